"""Tensors are counted as they are: to the bit what numpy counts, whatever dtype, device, view or graph they come with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streammetrics as sm

torch = pytest.importorskip("torch")

N = 300
LABELS = (np.random.default_rng(1).random(N) < 0.3).astype(np.int64)
SCORES = np.random.default_rng(2).random(N)
KEYS = np.random.default_rng(3).integers(0, 5, N)


def metrics() -> sm.MetricCollection:
    return sm.MetricCollection(
        sm.AUC(), sm.LogLoss(), sm.Precision(threshold=0.7), sm.ExpectedCalibrationError(), sm.GroupAUC(),
    )  # fmt: skip


def digest(y: Any, p: Any, w: Any = None, group: Any = KEYS) -> str:
    return metrics().update(y, p, sample_weight=w, group=group).digest()


def lone(y: Any, p: Any) -> str:
    """By the quick way: a metric of plain columns alone."""
    return sm.Precision(threshold=0.7).update(y, p).digest()


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("labels", ["bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64"])
def test_torch_dtypes_are_those_of_numpy(kind: str, labels: str) -> None:
    y, p = torch.from_numpy(LABELS).to(getattr(torch, labels)), torch.from_numpy(SCORES).to(getattr(torch, kind))
    assert digest(y, p) == digest(y.numpy(), p.numpy()) == digest(LABELS.astype(labels), SCORES.astype(kind))
    assert lone(y, p) == lone(y.numpy(), p.numpy())


@pytest.mark.parametrize("labels", [torch.bfloat16, torch.float32, torch.int64])
def test_bfloat16_has_the_values_of_float32_and_its_own_thresholds(labels: Any) -> None:
    y, p = torch.from_numpy(LABELS).to(labels), torch.from_numpy(SCORES).bfloat16()
    p[:20] = 0.7  # 0.69921875: at the threshold in bfloat16, below it in float32
    wide = sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.BrierScore())
    assert wide.copy().update(y, p).digest() == wide.copy().update(LABELS, p.float().numpy()).digest()
    chosen = p >= 0.7
    expected = (torch.from_numpy(LABELS).bool() & chosen).sum().item() / chosen.sum().item()
    ours = sm.Precision(threshold=0.7)
    assert ours.copy().update(y, p).compute() == expected
    assert metrics().update(y, p, group=KEYS)["precision@0.7"].compute() == expected
    ml_dtypes = pytest.importorskip("ml_dtypes")
    known = p.float().numpy().astype(ml_dtypes.bfloat16)
    assert digest(y, p) == digest(LABELS, known)
    assert lone(y, p) == lone(LABELS, known)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_certified_exact(kind: Any) -> None:
    metric = sm.AUC().update(torch.from_numpy(LABELS), torch.from_numpy(SCORES).to(kind))
    low, high = metric.bounds()
    assert low == metric.compute() == high


def test_graphs_views_and_shapes() -> None:
    y, p = torch.from_numpy(LABELS), torch.from_numpy(SCORES)
    expected = digest(LABELS, SCORES)
    with_grad = p.clone().requires_grad_()
    assert digest(y, with_grad) == digest(y, with_grad * 1) == expected
    assert digest(y.view(-1, 1), torch.stack([p, p], 1)[:, :1]) == expected
    assert digest(torch.stack([y, y], 1)[:, 0], torch.stack([p, p], 1)[:, 1]) == expected
    with torch.inference_mode():
        inference = p * 1
    assert digest(y, inference) == digest(y, torch.nn.Parameter(p)) == expected
    assert digest(y, p, torch.ones(N)) == expected
    assert digest(y, p, group=torch.from_numpy(KEYS)) == expected
    table = {"y_true": y, "y_score": with_grad, "group": KEYS}
    assert metrics().update(table).digest() == expected


def test_classes_and_slices_of_tensors() -> None:
    p = np.random.default_rng(5).random((N, 3), np.float32)
    p /= p.sum(axis=1, keepdims=True)
    classes = sm.MetricCollection(sm.Accuracy(num_classes=3), sm.F1(num_classes=3, average="macro"))
    tensors = torch.from_numpy(KEYS % 3), torch.from_numpy(p).requires_grad_()
    assert classes.copy().update(*tensors).digest() == classes.copy().update(KEYS % 3, p).digest()
    sliced = sm.Sliced(sm.AUC(), by="key")
    ours = sliced.copy().update(torch.from_numpy(LABELS), torch.from_numpy(SCORES), key=torch.from_numpy(KEYS))
    assert ours.digest() == sliced.copy().update(LABELS, SCORES, key=KEYS).digest()


class Elsewhere(torch.Tensor):
    """A tensor that counts how often it is brought to this machine."""

    moves = 0

    def numpy(self, *, force: bool = False) -> Any:
        type(self).moves += 1
        return self.as_subclass(torch.Tensor).numpy(force=force)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_tensor_elsewhere_is_copied_once(kind: Any) -> None:
    """However many metrics read it, by whatever way, and when what is wrong with it is looked for."""
    Elsewhere.moves = 0
    column = torch.from_numpy(SCORES).to(kind).as_subclass(Elsewhere)
    many = sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.GroupAUC(), {"other": sm.Task(sm.AUC(), where="chosen")})
    many.update(LABELS, column, group=KEYS, chosen=LABELS)
    assert Elsewhere.moves == 1
    sm.MetricCollection(sm.AUC(), sm.LogLoss()).update(LABELS, column)
    assert Elsewhere.moves == 2
    with pytest.raises(sm.InvalidInputError, match="y_score: expected a probability"):
        sm.MetricCollection(sm.AUC(), sm.LogLoss()).update(LABELS, column + 1)
    assert Elsewhere.moves == 3
    sm.Accuracy(num_classes=5).update(torch.from_numpy(KEYS), torch.eye(5)[KEYS].as_subclass(Elsewhere))
    assert Elsewhere.moves == 4


def test_what_is_no_column_says_so() -> None:
    for bad in (torch.eye(3).to_sparse(), torch.zeros(3, dtype=torch.complex64), torch.zeros(())):
        with pytest.raises(sm.InvalidInputError, match="y_score"):
            sm.AUC().update(torch.tensor([0, 1, 1]), bad)
    with pytest.raises(sm.InvalidInputError, match="rows"):
        sm.AUC().update(torch.tensor([0, 1, 1]), torch.zeros(2))
    with pytest.raises(sm.InvalidInputError, match="2 in row 1"):
        sm.AUC().update(torch.tensor([0, 2, 1]), torch.zeros(3))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
def test_jax_arrays(kind: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    y, p = jnp.asarray(LABELS.astype(np.int32)), jnp.asarray(SCORES, kind)
    theirs = torch.from_numpy(SCORES).float().to(getattr(torch, kind))
    assert digest(y, p) == digest(LABELS, theirs)
    assert lone(y, p) == lone(LABELS, theirs)
    p.delete()
    with pytest.raises(sm.InvalidInputError, match="deleted"):
        sm.AUC().update(y, p)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_tensorflow_tensors(kind: str) -> None:
    tf = pytest.importorskip("tensorflow")
    theirs = torch.from_numpy(SCORES).to(getattr(torch, kind))
    y, p = tf.constant(LABELS), tf.cast(tf.constant(theirs.double().numpy()), kind)
    assert digest(y, p) == digest(LABELS, theirs)
    assert lone(y, p) == lone(LABELS, theirs)
    assert lone(y, tf.Variable(p)) == lone(LABELS, theirs)
