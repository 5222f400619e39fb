"""Deferred metrics of torch tensors and JAX arrays, on the CPU; `test_deferred_gpu.py` does the same on a GPU."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import streammetrics as sm

torch = pytest.importorskip("torch")

from streammetrics.hooks.torch import Deferred, TensorCarrier  # noqa: E402 - only where torch is

SOURCE = torch.Generator().manual_seed(3)


def batch(n: int = 64) -> tuple[Any, Any]:
    return (torch.rand(n, generator=SOURCE) < 0.3).long(), torch.rand(n, generator=SOURCE)


def metrics() -> sm.MetricCollection:
    return sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.Precision(threshold=0.7))


def test_a_training_loop() -> None:
    """Scores with a graph, in half precision and as a view; whatever comes, the digest is that of every step."""
    ours, plain = Deferred(metrics(), every=8), metrics()
    weight = torch.nn.Parameter(torch.ones(()))
    for i in range(50):
        y, p = batch()
        p = [p * weight, p.bfloat16(), p.half(), torch.stack([p, p], 1)[:, 1], p[:, None], p.double()][i // 9]
        ours.update(y, p)
        plain.update(y.numpy(), p)
    assert ours.digest() == plain.digest()


def test_references_hold_no_graph() -> None:
    kept, version = TensorCarrier().keep(torch.ones(3, requires_grad=True) * 2)
    assert kept.grad_fn is None
    assert version == 0


def test_a_tensor_changed_in_place_is_named() -> None:
    ours, plain = Deferred(metrics(), every=10), metrics()
    y, p = batch()
    ours.update(y, p)
    plain.update(y, p)
    changed = p.clone()
    ours.update(y, changed)
    ours.update(y_true=y.clone(), y_score=changed.clone())
    plain.update(y, p)
    changed[1:].mul_(0.5)  # through a view
    with pytest.raises(sm.InvalidInputError, match="step 1: y_score was changed in place after update") as raised:
        ours.compute()
    assert raised.value.column == "y_score"
    assert ours.digest() == plain.digest()


def test_a_tensor_with_a_graph_that_is_changed_is_seen_through_its_detached_view() -> None:
    ours = Deferred(metrics(), every=10)
    p = torch.rand(4, requires_grad=True) * 1
    ours.update(torch.tensor([0, 1, 0, 1]), p)
    with torch.no_grad():
        p.add_(0.1)
    with pytest.raises(sm.InvalidInputError, match="step 0"):
        ours.flush()


def test_inference_tensors_and_snapshots_are_copied_at_once() -> None:
    for inference in (True, False):
        ours, plain = Deferred(metrics(), every=10, snapshot=not inference), metrics()
        with torch.inference_mode(inference):
            y, p = batch()
            y, p = y * 1, p * 1
            ours.update(y, p)
            plain.update(y, p)
            p.zero_()
            y.zero_()
        assert ours.digest() == plain.digest()


def test_what_is_no_column_is_named() -> None:
    ours = Deferred(metrics(), every=2)
    y, p = batch()
    ours.update(y, p.to_sparse()).update(y[0], p).update(y, p)
    with pytest.raises(sm.InvalidInputError, match=r"step 0: .*; steps? 1.* also failed"):
        ours.flush()
    assert ours.digest() == metrics().update(y, p).digest()


def test_torch_metrics_in_a_table_and_beside_numpy() -> None:
    y, p = batch()
    plain = metrics().update(y, p).update(y, p)
    ours = Deferred(metrics(), every=2).update({"y_true": y, "y_score": p}).update(y, p.numpy())
    assert ours.digest() == plain.digest()


def test_a_tensor_needs_its_carrier() -> None:
    """Where nobody imported it, a tensor is refused at once: copying it blindly would wait for its device."""
    code = """
import torch, streammetrics as sm
from streammetrics.hooks.deferred import Deferred
metrics = Deferred(sm.CTR())
try:
    metrics.update(torch.ones(3))
except TypeError as error:
    assert "add `import streammetrics.hooks.torch`" in str(error), error
else:
    raise SystemExit("no error")
import streammetrics.hooks.torch
assert metrics.update(torch.ones(3)).compute() == 1.0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
def test_jax_arrays(kind: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    from streammetrics.hooks.jax import Deferred as OfJax

    assert OfJax is Deferred
    ours, plain = Deferred(metrics(), every=4), metrics()
    for i in range(11):
        y, p = batch(64 - i % 2)
        given = jnp.asarray(y.numpy()), jnp.asarray(p.numpy(), kind)
        ours.update(*given)
        plain.update(*given)
    assert ours.digest() == plain.digest()
    for snapshot in (False, True):
        ours = Deferred(metrics(), snapshot=snapshot).update(*given)
        given[1].delete()
        given = given[0], jnp.asarray(p.numpy(), kind)
        if snapshot:
            assert ours.digest() == metrics().update(*given).digest()
        else:
            with pytest.raises(sm.InvalidInputError, match=r"step 0: y_score was deleted \(donated"):
                ours.flush()


def test_tensorflow_tensors_are_copied_at_once() -> None:
    tf = pytest.importorskip("tensorflow")
    y, p = batch()
    for kind in ("float32", "bfloat16"):
        tensor = tf.Variable(tf.cast(tf.constant(p.numpy()), kind))
        ours = Deferred(metrics()).update(tf.constant(y.numpy()), tensor)
        plain = metrics().update(y, np.asarray(tensor))
        tensor.assign(tf.zeros_like(tensor))
        assert ours.digest() == plain.digest()
