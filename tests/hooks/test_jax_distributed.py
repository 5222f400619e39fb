"""Processes of jax.distributed that add up what they have seen."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("jax")

from tests.hooks import logs, ranks


def test_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    said = ranks.outputs(ranks.run("jax_rank.py", 2, "things,mismatch,stuck", address))
    things = [f"{name} {logs.whole(name).digest()}" for name in logs.THINGS]
    for lines in said:
        ours = [line for line in lines if not line.startswith(("[Gloo]", "case "))]
        assert ours[: len(things)] == things
        assert ours[len(things)].endswith("rank 1 differs from rank 0: bits is 12 on rank 0 and 13 on rank 1")
        assert ours[len(things) + 2] == "then 0.5"
    first, seconds, second, _ = said[0][-4:]
    assert first.startswith("SyncTimeoutError timed out after 3 s while exchanging data with the other ranks")
    assert 2.9 < float(seconds.split()[1]) < 30
    assert second.startswith("SyncError an earlier sync timed out, and JAX still waits for data of this sync; restart")
