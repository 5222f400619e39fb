"""Ours as a metric of torchmetrics: in its collections and wrappers, and in a Lightning run of two processes."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streammetrics as sm

torch = pytest.importorskip("torch")
torchmetrics = pytest.importorskip("torchmetrics")

from sklearn import metrics  # noqa: E402

from streammetrics.hooks.torch import Deferred  # noqa: E402 - only where torch is
from streammetrics.hooks.torchmetrics import TorchMetric  # noqa: E402

SOURCE = torch.Generator().manual_seed(8)
BATCHES = [
    (torch.rand(64, generator=SOURCE).half().float(), (torch.rand(64, generator=SOURCE) < 0.4).long()) for _ in range(6)
]
P, Y = torch.cat([p for p, _ in BATCHES]), torch.cat([y for _, y in BATCHES])


def roc_auc_score(y: Any, p: Any) -> Any:
    """Scikit-learn sums floats: the last digit is not certain."""
    return pytest.approx(metrics.roc_auc_score(y, p), rel=1e-14)


def plain(make: Any, batches: Any = BATCHES) -> Any:
    metric = make()
    for p, y in batches:
        metric.update(y, p)
    return metric


def test_forward_returns_the_batch_and_keeps_all() -> None:
    ours, theirs = TorchMetric(sm.AUC()), torchmetrics.AUROC(task="binary")
    for p, y in BATCHES:
        assert ours(p, y).item() == pytest.approx(theirs(p, y).item(), abs=1e-6)
        assert ours(p, y).item() == roc_auc_score(y, p)
    assert ours.update_count == 2 * len(BATCHES)
    assert ours.compute().item() == roc_auc_score(torch.cat([Y, Y]), torch.cat([P, P]))
    assert ours.metric.digest() == plain(sm.AUC, BATCHES * 2).digest()


def test_update_compute_reset_and_cache() -> None:
    ours = TorchMetric(sm.MetricCollection(sm.AUC(), sm.CTR()))
    for p, y in BATCHES:
        ours.update(p, y)
    found = ours.compute()
    assert {n: v.item() for n, v in found.items()} == plain(lambda: sm.MetricCollection(sm.AUC(), sm.CTR())).compute()
    assert all(v.dtype == torch.float64 and v.ndim == 0 for v in found.values())
    ours.update(*BATCHES[0])
    assert ours.compute() != found
    ours.reset()
    assert ours.update_count == 0
    ours.update(*BATCHES[0])
    assert ours.compute()["auc"].item() == roc_auc_score(BATCHES[0][1], BATCHES[0][0])


def test_a_bad_batch_changes_nothing() -> None:
    ours = TorchMetric(sm.AUC())
    ours.update(*BATCHES[0])
    for how in (ours, ours.update):
        with pytest.raises(sm.InvalidInputError, match="y_true: expected 0 or 1"):
            how(BATCHES[0][0], BATCHES[0][1] + 5)
    assert ours.metric.digest() == sm.AUC().update(BATCHES[0][1], BATCHES[0][0]).digest()
    assert ours.compute().item() == roc_auc_score(BATCHES[0][1], BATCHES[0][0])
    for bad in (sm.AUC, sm.Bundle({"a": sm.AUC()}), torch.nn.Identity()):
        with pytest.raises(TypeError, match="expected a metric"):
            TorchMetric(bad)


@pytest.mark.parametrize("how", ["update", "forward"])
def test_a_collection_of_theirs_shares_nothing_of_ours(how: str) -> None:
    """Metrics whose states look equal: of equal settings, of other settings, and one of theirs among them."""
    ours = torchmetrics.MetricCollection(
        {
            "auc": TorchMetric(sm.AUC()),
            "again": TorchMetric(sm.AUC()),
            "loss": TorchMetric(sm.LogLoss()),
            "ctr": TorchMetric(sm.CTR()),
            "mean": TorchMetric(sm.Mean()),
            "many": TorchMetric(sm.MetricCollection(sm.AUC(bits=10), sm.GroupAUC())),
            "theirs": torchmetrics.AUROC(task="binary"),
        }
    )
    groups = torch.arange(64) % 3
    for p, y in BATCHES:
        getattr(ours, how)(p, y, group=groups)
    for name, make in (("auc", sm.AUC), ("again", sm.AUC), ("loss", sm.LogLoss)):
        assert ours[name].metric.digest() == plain(make).digest()
    found = ours.compute()
    assert len(ours.compute_groups) == 7
    assert found["auc"].item() == found["again"].item() == roc_auc_score(Y, P)
    assert found["ctr"].item() == Y.double().mean().item()
    assert found["theirs"].item() == pytest.approx(found["auc"].item(), abs=1e-6)
    assert "many_group_auc" in found


def test_a_collection_of_ours_by_keyword() -> None:
    ours = torchmetrics.MetricCollection({"auc": TorchMetric(sm.AUC()), "loss": TorchMetric(sm.LogLoss())})
    for p, y in BATCHES:
        ours.update(preds=p, target=y, other=y)
    assert ours.compute()["auc"].item() == roc_auc_score(Y, P)


def test_a_list_of_ours_has_their_names() -> None:
    ours = torchmetrics.MetricCollection(
        [TorchMetric(sm.AUC()), TorchMetric(Deferred(sm.LogLoss())), TorchMetric(sm.CTR())]
    )
    for copied in (ours, ours.clone(), pickle.loads(pickle.dumps(ours))):
        copied.update(*BATCHES[0])
        copied.update(*BATCHES[1])
        assert set(copied.compute()) == {"auc", "ctr", "log_loss"}
        assert isinstance(copied["auc"], TorchMetric)
        assert copied["auc"].compute().item() == roc_auc_score(Y[:128], P[:128])
    several = [sm.RecallAtPrecision(precision=0.9), sm.MetricCollection(sm.KS()), sm.Mean()]
    assert set(torchmetrics.MetricCollection(list(map(TorchMetric, several)))) == {
        "recall_at_precision@0_9", "metrics", "mean",
    }  # fmt: skip

    class Own(TorchMetric):
        pass

    assert list(torchmetrics.MetricCollection([Own(sm.AUC())])) == ["Own"]


def test_columns_by_keyword() -> None:
    p, y = BATCHES[0]
    weight = torch.arange(64) / 8
    want = sm.AUC().update(y, p, sample_weight=weight).compute()
    for columns in (
        {"preds": p, "target": y},
        {"y_score": p, "y_true": y},
        {"preds": p, "y_true": y},
        {"target": y, "y_score": p},
    ):
        ours = TorchMetric(sm.AUC())
        assert ours(**columns, sample_weight=weight).item() == ours.compute().item() == want
    mean = TorchMetric(sm.Mean())
    mean.update(value=p)
    assert mean.compute().item() == sm.Mean().update(p).compute()
    ours = torchmetrics.MetricCollection([TorchMetric(sm.AUC()), TorchMetric(sm.Mean()), TorchMetric(sm.GroupAUC())])
    ours.update(preds=p, target=y, value=weight, group=y * 0)
    found = ours.compute()
    assert found["mean"].item() == sm.Mean().update(weight).compute()
    assert found["auc"].item() == found["group_auc"].item() == sm.AUC().update(y, p).compute()


def test_each_value_of_a_collection_is_a_metric() -> None:
    """Lightning logs it, computes it at the end of an epoch, and resets it."""
    ours = TorchMetric(sm.MetricCollection(sm.AUC(), sm.CTR()))
    for metric in (ours, ours.clone(), pickle.loads(pickle.dumps(ours))):
        values = dict(metric.items())
        assert list(values) == ["auc", "ctr"]
        assert set(values.values()) < set(metric.modules())
        assert not values["auc"].update_called
        cache = metric(*BATCHES[0])
        assert values["ctr"]._forward_cache == cache["ctr"]
        metric.update(*BATCHES[1])
        assert values["auc"].compute().item() == roc_auc_score(Y[:128], P[:128])
        assert values["auc"].update_called
        with pytest.raises(torchmetrics.utilities.exceptions.TorchMetricsUserError, match="update the TorchMetric"):
            values["auc"].update(*BATCHES[0])
        values["auc"].reset()
        assert metric.update_count == 0
        metric.persistent(True)
        assert len(metric.to("cpu").state_dict()) == 1
    alone = TorchMetric(sm.AUC())
    assert list(alone.items()) == [("auc", alone)]
    assert not len(alone._values)


def test_ranks_with_other_settings_are_named() -> None:
    """On whichever rank, the message is the same."""
    states = [TorchMetric(sm.AUC(bits=bits)).metric_state for bits in (None, 12)]
    ours = TorchMetric(
        sm.AUC(bits=12),
        distributed_available_fn=lambda: True,
        dist_sync_fn=lambda state, group=None: [tensor for s in states for tensor in s.values()],
    )
    ours.update(*BATCHES[0])
    with pytest.raises(sm.IncompatibleStateError, match="bits is None on rank 0 and 12 on rank 1"):
        ours.compute()


def test_groups_that_name_ours_are_refused() -> None:
    ours = torchmetrics.MetricCollection(
        {"a": TorchMetric(sm.AUC()), "b": TorchMetric(sm.LogLoss())}, compute_groups=[["a", "b"]]
    )
    ours.update(*BATCHES[0])
    with pytest.raises(
        torchmetrics.utilities.exceptions.TorchMetricsUserError, match="compute_groups= groups this metric"
    ):
        ours.compute()


def test_clone_pickle_device_and_half() -> None:
    ours = TorchMetric(sm.AUC())
    ours.update(*BATCHES[0])
    for copied in (ours.clone(), pickle.loads(pickle.dumps(ours)), ours.clone().to("cpu").half().set_dtype(torch.half)):
        copied.update(*BATCHES[1])
        assert copied.compute().item() == roc_auc_score(Y[:128], P[:128])
    assert ours.compute().item() == roc_auc_score(Y[:64], P[:64])
    meta = ours.clone().to("meta")
    assert meta.device.type == "meta"
    assert meta.compute().device.type == "meta"


def test_state_dict(tmp_path: Path) -> None:
    model = torch.nn.Module()
    model.auc, model.all = TorchMetric(sm.AUC()), torchmetrics.MetricCollection({"loss": TorchMetric(sm.LogLoss())})
    model.auc.update(*BATCHES[0])
    model.all.update(*BATCHES[0])
    assert len(model.state_dict()) == 0, "a checkpoint that every rank loads holds no rows unasked"
    model.auc.persistent(True)
    model.all.persistent(True)
    saved = model.state_dict()
    assert [v.dtype for v in saved.values()] == [torch.uint8] * 2
    torch.save(saved, tmp_path / "model.pt")
    other = torch.nn.Module()
    other.auc, other.all = TorchMetric(sm.AUC()), torchmetrics.MetricCollection({"loss": TorchMetric(sm.LogLoss())})
    other.auc.update(*BATCHES[3])
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert other.auc.compute() == model.auc.compute()
    assert other.all.compute() == model.all.compute()
    other.auc.update(*BATCHES[1])
    assert other.auc.compute().item() == roc_auc_score(Y[:128], P[:128])
    other.auc = TorchMetric(sm.AUC(bits=10))
    with pytest.raises(sm.IncompatibleStateError, match="bits is 10 here"):
        other.load_state_dict(saved)
    other.auc = TorchMetric(sm.KS())
    with pytest.raises(sm.IncompatibleStateError, match="AUC"):
        other.load_state_dict(saved)
    model.auc.persistent(False)
    assert len(model.state_dict()) == 1


def test_merge_state_and_wrappers() -> None:
    a, b = TorchMetric(sm.AUC()), TorchMetric(sm.AUC())
    a.update(*BATCHES[0])
    b.update(*BATCHES[1])
    a.merge_state(b)
    a.merge_state(plain_state(BATCHES[2]))
    assert a.compute().item() == roc_auc_score(Y[:192], P[:192])
    with pytest.raises(sm.IncompatibleStateError):
        a.merge_state(TorchMetric(sm.KS()))
    tracker = torchmetrics.MetricTracker(TorchMetric(sm.AUC()))
    for p, y in BATCHES[:3]:
        tracker.increment()
        tracker.update(p, y)
    values = [metrics.roc_auc_score(y, p) for p, y in BATCHES[:3]]
    best, step = tracker.best_metric(return_step=True)
    assert (best, step) == (pytest.approx(max(values)), int(np.argmax(values)))
    bounds = torchmetrics.MinMaxMetric(TorchMetric(sm.AUC()))
    for p, y in BATCHES[:3]:
        bounds.update(p, y)
    assert bounds.compute()["raw"].item() == roc_auc_score(Y[:192], P[:192])


def test_states_saved_in_a_sync_context_are_those_of_all_ranks() -> None:
    other = plain_state(BATCHES[1])

    def gather(state: Any, group: Any = None) -> list[Any]:
        return [state, next(iter(other.values()))]

    metric = TorchMetric(sm.AUC(), distributed_available_fn=lambda: True)
    metric.persistent(True)
    metric.update(*BATCHES[0])
    alone = plain(sm.AUC, BATCHES[:1]).to_bytes()
    with metric.sync_context(dist_sync_fn=gather):
        saved = [*metric.state_dict().values(), *metric.metric_state.values()]
    assert [bytes(s.numpy()) for s in saved] == [plain(sm.AUC, BATCHES[:2]).to_bytes()] * 2
    assert [bytes(s.numpy()) for s in metric.state_dict().values()] == [alone]


def test_the_most_recent_batches() -> None:
    running = torchmetrics.wrappers.Running(TorchMetric(sm.AUC()), window=2)
    recent = TorchMetric(sm.Recent(sm.AUC(), steps=2))
    for p, y in BATCHES:
        running.update(p, y)
        recent.update(p, y)
    with pytest.raises(torchmetrics.utilities.exceptions.TorchMetricsUserError, match="use TorchMetric"):
        running.compute()
    assert recent.compute().item() == roc_auc_score(Y[-128:], P[-128:])


def plain_state(batch: Any) -> dict[str, Any]:
    metric = TorchMetric(sm.AUC())
    metric.update(*batch)
    return metric.metric_state


def test_deferred() -> None:
    ours = TorchMetric(Deferred(sm.AUC(), every=4))
    for p, y in BATCHES:
        ours.update(p, y)
    assert ours.compute().item() == roc_auc_score(Y, P)
    assert ours(*BATCHES[0]).item() == roc_auc_score(BATCHES[0][1], BATCHES[0][0])
    twin = TorchMetric(Deferred(sm.AUC(), every=4))
    ours.persistent(True)
    twin.load_state_dict(ours.state_dict())
    assert twin.compute() == ours.compute()
    assert ours.clone().compute() == ours.compute()
    ours.update(P[:2], Y[:2] + 7)
    with pytest.raises(sm.InvalidInputError, match="step 7"):
        ours.compute()


def test_undefined() -> None:
    ours = TorchMetric(sm.AUC())
    assert torch.isnan(ours(torch.rand(3), torch.zeros(3)))
    with pytest.warns(sm.UndefinedMetricWarning):
        assert torch.isnan(ours.compute())


TWO = Path(__file__).with_name("lightning_two_processes.py")


def test_two_processes_of_lightning(tmp_path: Path) -> None:
    """Ranks of 5 and of 2 batches; then one that has none; then one with a bad deferred batch: both raise."""
    pytest.importorskip("lightning")
    run = subprocess.run(
        [sys.executable, str(TWO), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(sm.__file__).parent.parent)},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    rng = np.random.default_rng(0)
    y, p = (rng.random(700) < 0.3).astype(int), rng.random(700).astype(np.float16).astype(np.float64)
    assert found["auc"] == found["many/auc"] == found["pair_auc"] == roc_auc_score(y, p)
    assert found["many/ctr"] == found["pair_ctr"] == y.mean()
    assert found["empty_rank"] == roc_auc_score(y[:500], p[:500])
    assert "step 0" in found["bad"][0]
    assert "a step of rank 0 failed" in found["bad"][1]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_lightning_continues_from_a_checkpoint(tmp_path: Path, devices: int) -> None:
    """In the middle of an epoch and at its end, each row is counted once; two processes are continued by one."""
    pytest.importorskip("lightning")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(TWO.with_name("lightning_checkpoints.py")), str(tmp_path), str(devices)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(sm.__file__).parent.parent)},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    rows = 8 * 64
    assert found["first"] == [rows] * 2
    assert found["middle"] == found["middle, one process"] == [rows] * 2
    assert found["end"] == [rows]
    assert found["validated"] == [64] * 2
    # Without the callback nothing is restored, and a warning says so.
    assert found["alone"] == [rows - 3 * 64, rows]
    assert "were not restored" in found["warning"]
