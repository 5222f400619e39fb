"""Ignite engines with our metrics: its own values and scikit-learn's, weights, checkpoints, two processes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ignite")
pytest.importorskip("torch")

import ignite.distributed as idist
import ignite.metrics as theirs
import torch
from hooks.boosted import binary
from ignite.engine import Engine
from sklearn import metrics as sk

import streammetrics as sm
from streammetrics.hooks.ignite import IgniteMetric


def rows(n: int = 300) -> tuple[Any, Any, Any]:
    x, y, w = binary(n)
    return torch.tensor(x[:, 2] + x[:, 0]), torch.tensor(y), torch.tensor(w)


def batches(*columns: Any, size: int = 64) -> list[Any]:
    return [tuple(c[i : i + size] for c in columns) for i in range(0, len(columns[0]), size)]


def test_values_are_those_of_ignite_and_scikit_learn() -> None:
    z, y, _ = rows()
    engine = Engine(lambda _, batch: (torch.sigmoid(batch[0]), batch[1]))
    ours = IgniteMetric(sm.MetricCollection(sm.AUC(), sm.Accuracy(), sm.LogLoss()))
    ours.attach(engine, "ours")
    theirs.Accuracy(output_transform=lambda out: (out[0] >= 0.5, out[1])).attach(engine, "theirs")
    theirs.ROC_AUC().attach(engine, "their_auc")
    found = engine.run(batches(z, y), max_epochs=2).metrics  # an epoch starts from nothing
    assert found["accuracy"] == pytest.approx(found["theirs"], abs=1e-12)
    assert found["auc"] == pytest.approx(found["their_auc"], abs=1e-12)
    assert found["log_loss"] == pytest.approx(sk.log_loss(y, torch.sigmoid(z).double()), rel=1e-6)
    assert found["ours"] == {name: found[name] for name in ("auc", "accuracy", "log_loss")}
    assert ours.metrics["auc"].explain()["rows"] == len(y)


@pytest.mark.parametrize("named", [False, True])
def test_weights_and_columns(named: bool) -> None:
    z, y, w = rows()
    user = torch.arange(len(y)) % 20

    def transform(batch: Any) -> Any:
        z, y, w, user = batch
        return {"y_pred": z, "y": y, "sample_weight": w, "group": user} if named else (z, y, w)

    engine, metric = Engine(lambda _, batch: batch), sm.GroupAUC() if named else sm.AUC()
    IgniteMetric(metric, transform, link="logit").attach(engine, "ours")
    found = engine.run(batches(z, y, w, user)).metrics["ours"]
    if named:
        p = torch.sigmoid(z.double())
        assert found == sm.GroupAUC().update(y, p, sample_weight=w, group=user).compute()
    else:
        assert found == pytest.approx(sk.roc_auc_score(y, z, sample_weight=w), abs=1e-12)


def test_models_that_are_trained_and_classes() -> None:
    z, y, _ = rows()
    model = torch.nn.Linear(1, 2)
    engine = Engine(lambda _, batch: (model(batch[0][:, None]), batch[1]))  # with gradients
    found = {}
    for name, metric in {"auc": sm.AUC(), "accuracy": sm.Accuracy(num_classes=2)}.items():
        IgniteMetric(metric, link="logit").attach(engine, name)
    theirs.Accuracy().attach(engine, "theirs")
    found = engine.run(batches(z, y)).metrics
    assert found["accuracy"] == pytest.approx(found["theirs"], abs=1e-12)
    odds = (lambda out: out[:, 1] - out[:, 0])(model(z[:, None]).detach().double())
    assert found["auc"] == pytest.approx(sk.roc_auc_score(y, odds), abs=1e-12)


def test_a_checkpoint_goes_on() -> None:
    z, y, _ = rows()
    first, second = IgniteMetric(sm.AUC(), link="logit"), IgniteMetric(sm.AUC(), link="logit")
    first.update((z[:100], y[:100]))
    second.load_state_dict(first.state_dict())
    first.update((z[100:], y[100:]))
    second.update((z[100:], y[100:]))
    assert first.metrics.digest() == second.metrics.digest()
    before = second.metrics.digest()
    with pytest.raises(sm.IncompatibleStateError):
        second.load_state_dict(IgniteMetric(sm.LogLoss()).state_dict())
    assert second.metrics.digest() == before


def test_errors_say_what_was_expected() -> None:
    metric = IgniteMetric(sm.AUC())
    with pytest.raises(ValueError, match="found 1 values"):
        metric.update((torch.zeros(3),))
    with pytest.raises(ValueError, match="expected y_pred and y in the output, found y_true"):
        metric.update({"y_true": torch.zeros(3)})
    with pytest.raises(sm.InvalidInputError, match="y_score: expected a probability"):
        metric.update((torch.tensor([2.0]), torch.tensor([1])))
    engine = Engine(lambda _, batch: batch)
    metric.attach(engine, "auc")
    with pytest.raises(sm.InvalidInputError, match="y_score"):
        engine.run([(torch.tensor([2.0]), torch.tensor([1]))])


def half(rank: int, folder: str) -> None:
    """Count the rows of one process, unevenly many; write what all of them have."""
    z, y, _ = rows()
    mine = slice(0, 100) if rank == 0 else slice(100, 300)
    metric = IgniteMetric(sm.MetricCollection(sm.AUC(), sm.LogLoss()), link="logit")
    engine = Engine(lambda _, batch: batch)
    metric.attach(engine, "ours")
    found = engine.run(batches(z[mine], y[mine])).metrics["ours"]
    saved = metric.state_dict()["counted"].numpy().tobytes()
    assert metric.metrics["auc"].explain()["rows"] == (100, 200)[rank]
    metric.load_state_dict(metric.state_dict())
    assert metric.compute() == found
    Path(folder, f"{rank}").write_text(repr((found, sm.from_bytes(saved).digest())))


def test_two_processes_have_the_values_of_all_rows(tmp_path: Path) -> None:
    z, y, _ = rows()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with idist.Parallel(backend="gloo", nproc_per_node=2, master_port=port, start_method="spawn") as parallel:
        parallel.run(half, str(tmp_path))
    whole = IgniteMetric(sm.MetricCollection(sm.AUC(), sm.LogLoss()), link="logit")
    whole.update((z, y))
    said = {path.read_text() for path in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) == 2
    assert said == {repr((whole.compute(), whole.metrics.digest()))}
