"""What a rank of the tests of MPI does: `mpi_rank.py CASES`, under mpirun."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from mpi4py import MPI

import streammetrics as sm
from streammetrics.hooks import mpi
from streammetrics.hooks.mpi import sync
from tests.hooks import logs

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.Get_rank(), WORLD.Get_size()


def say(*words: Any) -> None:
    print("rank", RANK, *words, flush=True)


def fails(metrics: Any, timeout: float) -> None:
    before, start = metrics.digest(), time.monotonic()
    try:
        sync(metrics, timeout=timeout)
    except sm.StreamMetricsError as error:
        say(type(error).__name__, error)
        say("seconds", time.monotonic() - start)
    assert metrics.digest() == before


def things() -> None:
    for name in logs.THINGS:
        mine = logs.part(name, RANK, SIZE)
        say(name, sync(mine, timeout=100).digest())


def subset() -> None:
    part = WORLD.Split(RANK % 2)
    say("part", sync(sm.CTR().update(y_true=[1] * RANK + [0]), part, timeout=60).compute())


def mismatch() -> None:
    fails(sm.AUC(bits=12 if RANK < 2 else 14), 60)
    say("then", sync(sm.CTR().update(y_true=[RANK > 0]), timeout=60).compute())


def pieces() -> None:
    """More bytes than one message may have."""
    most, mpi.MAX_MESSAGE = mpi.MAX_MESSAGE, 1000
    say("pieces", sync(logs.part("groups", RANK, SIZE), timeout=60).digest())
    mpi.MAX_MESSAGE = most


def stuck() -> None:
    ctr = sm.CTR().update(y_true=[RANK > 0])
    if RANK == 1:
        time.sleep(3)
    fails(ctr, 2)  # that of rank 1 begins when the others have given up
    say("training", WORLD.allreduce(1))
    say("then", sync(ctr, timeout=60).compute())


def killed() -> None:
    WORLD.Barrier()
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    fails(sm.CTR(), 60)
    time.sleep(60)


CASES = {"things": things, "subset": subset, "mismatch": mismatch, "pieces": pieces, "stuck": stuck, "killed": killed}

if __name__ == "__main__":
    for case in sys.argv[1].split(","):
        CASES[case]()
