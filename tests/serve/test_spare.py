"""Free memory goes back to the system."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from streammetrics.serve.api.malloc_trim import MallocTrimmer

glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc keeps it")


def held() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@glibc
def test_holes_are_given_back() -> None:
    blocks = [b"x" * 50_000 for _ in range(2_000)]
    kept = blocks[::50]
    del blocks
    before, spare = held(), MallocTrimmer(interval=0.0)
    assert spare.trim()
    assert held() < before - 50_000_000
    assert len(kept) == 40


@glibc
def test_not_at_every_call() -> None:
    now = [0.0]
    spare = MallocTrimmer(interval=10.0, clock=lambda: now[0])
    found = []
    for second in range(25):
        now[0] = float(second)
        junk = [b"x" * 50_000 for _ in range(200)]
        keep = junk[-1]
        del junk
        found.append((second, spare.trim()))
        assert keep
    assert {second for second, gave in found if gave} <= {10, 20}
    assert any(gave for _, gave in found)
