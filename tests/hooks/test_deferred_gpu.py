"""The copy from a GPU: `python -m pytest tests/hooks/test_deferred_gpu.py`, on a machine that has one."""

from __future__ import annotations

import time
from typing import Any

import pytest

import streammetrics as sm

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from streammetrics.hooks.torch import Deferred, TensorCarrier, TensorTransfer  # noqa: E402 - only where torch is

SOURCE = torch.Generator(device="cuda").manual_seed(3)
N, STEPS = 4096, 120


def batch(kind: Any = torch.float32) -> tuple[Any, Any]:
    scores = torch.rand(N, device="cuda", generator=SOURCE)
    return (torch.rand(N, device="cuda", generator=SOURCE) < 0.3).long(), scores.to(kind)


def metrics() -> sm.MetricCollection:
    return sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.Precision(threshold=0.7))


def busy() -> None:
    """Keep the GPU busy for about a second, without waiting for it."""
    torch.cuda._sleep(2_000_000_000)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("snapshot", [False, True])
def test_the_digest_is_that_of_every_step(kind: Any, snapshot: bool) -> None:
    ours, plain = Deferred(metrics(), snapshot=snapshot), metrics()
    for i in range(STEPS):
        y, p = batch(kind)
        ours.update(y.cpu() if i % 7 == 0 else y, p)
        plain.update(y.cpu(), p.cpu())
        if snapshot:
            p.zero_()
    assert ours.digest() == plain.digest()


def test_a_step_never_waits_for_the_gpu() -> None:
    """Fifty steps and their copies are queued behind a second's work, and come back long before it is done."""
    warm = Deferred(metrics())
    for _ in range(60):
        warm.update(*batch())
    warm.flush()
    batches = [batch() for _ in range(60)]
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    ours = Deferred(metrics())
    busy()
    done.record()
    for y, p in batches:
        ours.update(y, p)
    assert not done.query()
    assert ours.pending == 60
    plain = metrics()
    for y, p in batches:
        plain.update(y, p)
    assert ours.digest() == plain.digest()


def test_the_seam() -> None:
    """Not ready while the GPU is busy, ready afterwards, and pinned."""
    columns = [batch()[1] for _ in range(3)]
    TensorTransfer(columns)
    busy()
    flight = TensorCarrier().start_transfer(columns)
    assert not flight.is_ready()
    stop = time.monotonic() + 60
    while not flight.is_ready() and time.monotonic() < stop:
        time.sleep(0.01)
    assert flight._here.is_pinned()
    assert (flight.to_array() == torch.cat(columns).cpu().numpy()).all()


def test_a_copy_is_not_changed_by_what_the_gpu_is_told_later() -> None:
    ours, plain = Deferred(metrics(), every=2), metrics()
    batches = [batch(), batch()]
    for y, p in batches:
        plain.update(y, p)
    busy()
    for y, p in batches:
        ours.update(y, p)
    for _, p in batches:
        p.zero_()
    del batches, y, p
    torch.rand(N, 64, device="cuda")
    assert ours.digest() == plain.digest()


def test_changed_in_place_before_it_was_copied() -> None:
    ours = Deferred(metrics(), every=3)
    y, p = batch()
    ours.update(y, p)
    p.mul_(0.5)
    with pytest.raises(sm.InvalidInputError, match="step 0: y_score was changed in place"):
        ours.compute()


def test_a_copy_that_is_late_is_waited_for_so_long_and_no_longer() -> None:
    ours, plain = Deferred(metrics(), every=1, timeout=0.05), metrics()
    y, p = batch()
    plain.update(y, p)
    busy()
    ours.update(y, p)
    with pytest.raises(sm.NotArrivedError):
        ours.compute()
    torch.cuda.synchronize()
    assert ours.digest() == plain.digest()
