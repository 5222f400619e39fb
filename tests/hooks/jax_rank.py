"""What a process of the tests of jax.distributed does: `jax_rank.py RANK SIZE CASES ADDRESS`."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import jax

import streammetrics as sm
from streammetrics.hooks.jax_distributed import sync
from tests.hooks import logs

RANK, SIZE = int(sys.argv[1]), int(sys.argv[2])


def say(*words: Any) -> None:
    print(*words, flush=True)


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
        say(name, sync(logs.part(name, RANK, SIZE), timeout=100).digest())


def mismatch() -> None:
    fails(sm.AUC(bits=12 + RANK), 60)
    say("then", sync(sm.CTR().update(y_true=[RANK > 0]), timeout=60).compute())


def stuck() -> None:
    if RANK == 1:
        time.sleep(8)
    else:
        fails(sm.CTR(), 3)
        fails(sm.CTR(), 3)
        time.sleep(5)
    os._exit(0)  # what was given up keeps JAX from being taken down


if __name__ == "__main__":
    jax.distributed.initialize(sys.argv[4], num_processes=SIZE, process_id=RANK)
    for case in sys.argv[3].split(","):
        say("case", case)
        {"things": things, "mismatch": mismatch, "stuck": stuck}[case]()
