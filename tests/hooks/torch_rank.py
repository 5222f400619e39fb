"""What a rank of the tests of torch.distributed does: `torch_rank.py RANK SIZE CASES STORE`."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import streammetrics as sm
from streammetrics.hooks.torch_distributed import sync
from tests.hooks import logs

RANK, SIZE = int(sys.argv[1]), int(sys.argv[2])
ASKED, STORE = sys.argv[3].split(","), sys.argv[4]


def say(*words: Any) -> None:
    print(*words, flush=True)


def trains() -> None:
    """The group of the training is usable."""
    one = torch.ones(1)
    dist.all_reduce(one)
    say("training", int(one))


def fails(metrics: Any, timeout: float = 60, group: Any = None) -> None:
    """Say how a sync fails, after how long; the metrics stay as they were."""
    before, start = metrics.digest(), time.monotonic()
    try:
        sync(metrics, group, timeout=timeout)
    except (sm.StreamMetricsError, TypeError) as error:
        say(type(error).__name__, error)
        say("seconds", time.monotonic() - start)
    assert metrics.digest() == before


def things() -> None:
    for name in logs.THINGS:
        mine = logs.part(name, RANK, SIZE)
        before = mine.digest()
        total = sync(mine, timeout=200)
        assert mine.digest() == before
        assert total is not mine
        say(name, total.digest())


def subset() -> None:
    odd = [r for r in range(SIZE) if r % 2]
    group = dist.new_group(odd)
    if RANK in odd:
        ctr = sm.CTR().update(y_true=[1] * RANK + [0])
        say("odd", sync(ctr, group, timeout=100).compute())
        say("again", sync(ctr, group, timeout=100).compute())
    else:
        try:
            sync(sm.CTR(), group)
        except ValueError as error:
            say(error)
    say("all", sync(sm.CTR().update(y_true=[1] * RANK + [0]), timeout=100).compute())
    trains()


def mismatch() -> None:
    fails(sm.MetricCollection(sm.AUC(bits=12), *[sm.LogLoss()] * (RANK != 2)))
    fails(sm.AUC(bits=12 if RANK < 2 else 14))
    fails(sm.CTR() if RANK else sm.MetricCollection(sm.CTR()))
    say("then", sync(sm.CTR().update(y_true=[RANK > 0]), timeout=100).compute())
    trains()


def not_metrics() -> None:
    ctr: Any = sm.CTR() if RANK else None
    start = time.monotonic()
    try:
        sync(ctr, timeout=60)
    except (sm.SyncError, TypeError) as error:
        say(type(error).__name__, error)
    say("seconds", time.monotonic() - start)
    say("then", sync(sm.CTR().update(y_true=[RANK > 0]), timeout=100).compute())


def killed(first: bool) -> None:
    """A rank dies without a word: before it ever met the others, or later."""
    ctr = sm.CTR().update(y_true=[1])
    if first:
        say("first", sync(ctr, timeout=5).compute())
    dist.barrier()
    if RANK == SIZE - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    fails(ctr, 5)
    fails(ctr, 5)


def stuck() -> None:
    """A rank is busy elsewhere while the others sync; then all go on."""
    ctr = sm.CTR().update(y_true=[RANK > 0])
    say("first", sync(ctr, timeout=4).compute())
    dist.barrier()
    if RANK == 1:
        time.sleep(6)
    else:
        fails(ctr, 4)
    trains()
    say("then", sync(ctr, timeout=4).compute())
    trains()


def stuck_before() -> None:
    """The same, before any sync of a group."""
    group = dist.new_group([0, 1])
    if RANK == 0:
        fails(sm.CTR(), 3, group)
    trains()
    if RANK < 2:
        say("then", sync(sm.CTR().update(y_true=[RANK > 0]), group, timeout=60).compute())


def sizes() -> None:
    """Frames of very different length, which go one after the other."""
    groups = sm.GroupAUC()
    if RANK == 1:
        groups.update(np.arange(50_000) % 2, np.linspace(0, 1, 50_000), group=np.arange(50_000) % 100)
    say("groups", sync(groups, timeout=100).digest() == sync(groups, timeout=100).digest(), groups.explain()["rows"])


def resumed() -> None:
    """Each rank saves what it has seen, before and after the world shrinks to one process, and grows again."""
    part = logs.part("collection", RANK, SIZE)
    with open(f"{sys.argv[5]}/{RANK}.smet", "wb") as file:
        file.write(part.to_bytes())


def grown() -> None:
    """What all ranks of another world have saved is loaded by rank 0, the others begin with nothing."""
    files = sorted(Path(sys.argv[5]).glob("*.smet"))
    metrics = sm.merge(files) if RANK == 0 else sm.from_bytes(files[0].read_bytes()).reset()
    say("total", sync(metrics, timeout=100).digest())


def late() -> None:
    """A rank calls sync when the others have given it up: it gives up, too, and then all are together again."""
    ctr = sm.CTR().update(y_true=[RANK > 0])
    say("first", sync(ctr, timeout=100).compute())
    if RANK == 1:
        time.sleep(6)
    fails(ctr, 3)
    trains()
    say("then", sync(ctr, timeout=60).compute())
    trains()


def stopped() -> None:
    """The process that holds the store stands still, and goes on: nobody waits longer than the timeout."""
    ctr = sm.CTR().update(y_true=[RANK > 0])
    sync(ctr, timeout=100)
    pid = torch.tensor([os.getpid()])
    dist.broadcast(pid, 0)
    if RANK == 0:
        trains()
    else:
        time.sleep(0.5)
        os.kill(int(pid), signal.SIGSTOP)
        try:
            fails(ctr, 3)
        finally:
            os.kill(int(pid), signal.SIGCONT)
        trains()


class Silent(dist.ProcessGroup):  # type: ignore[misc]
    """A backend that carries nothing, as one on a device would not carry what lies on the CPU: every collective raises."""


def foreign() -> None:
    """The training's group is of another backend, and is not touched."""
    assert dist.get_backend() == "silent"
    try:
        dist.barrier()
    except RuntimeError:
        say("silent")
    say("total", sync(sm.CTR().update(y_true=[RANK > 0]), timeout=100).compute())
    say("again", sync(sm.CTR().update(y_true=[RANK > 0]), timeout=100).compute())


CASES = {
    "foreign": foreign,
    "things": things,
    "subset": subset,
    "mismatch": mismatch,
    "not-metrics": not_metrics,
    "sizes": sizes,
    "killed": lambda: killed(True),
    "killed-before": lambda: killed(False),
    "stuck": stuck,
    "stuck-before": stuck_before,
    "late": late,
    "stopped": stopped,
    "resumed": resumed,
    "grown": grown,
}

if __name__ == "__main__":
    backend = "silent" if ASKED == ["foreign"] else "gloo"
    dist.Backend.register_backend("silent", lambda store, rank, size, timeout: Silent(rank, size), devices=["cpu"])
    dist.init_process_group(backend, init_method=STORE, rank=RANK, world_size=SIZE, timeout=timedelta(seconds=120))
    for case in ASKED:
        say("case", case)
        CASES[case]()
    if ASKED[0].startswith("killed") or ASKED == ["foreign"]:  # nothing can be taken down together
        os._exit(0)
    dist.destroy_process_group()
