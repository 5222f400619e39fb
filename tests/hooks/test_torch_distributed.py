"""Ranks of torch.distributed that add up what they have seen: processes that differ, die, stand still, come late."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import streammetrics as sm
from tests.hooks import logs, ranks

pytest.importorskip("torch")

from streammetrics.hooks.deferred import Deferred
from streammetrics.hooks.torch_distributed import sync

Lines = dict[str, list[str]]


def launch(size: int, cases: str, *arguments: object) -> list[tuple[int, str, str]]:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    return ranks.run("torch_rank.py", size, cases, f"tcp://localhost:{port}", *arguments)


def by_case(lines: list[str]) -> Lines:
    found: Lines = {}
    for line in lines:
        if line.startswith("case "):
            current = found.setdefault(line[5:], [])
        else:
            current.append(line)
    return found


def waited(lines: list[str]) -> list[float]:
    return [float(line.split()[1]) for line in lines if line.startswith("seconds ")]


@pytest.fixture(scope="module")
def alive() -> list[Lines]:
    """What three ranks say in the cases that all of them outlive, one after the other in the same processes."""
    said = launch(3, "things,sizes,subset,mismatch,not-metrics,stuck,stuck-before,late")
    return [by_case(lines) for lines in ranks.outputs(said)]


def test_every_rank_has_what_one_pass_has(alive: list[Lines]) -> None:
    assert [r["things"] for r in alive] == [[f"{name} {logs.whole(name).digest()}" for name in logs.THINGS]] * 3


def test_frames_of_any_length(alive: list[Lines]) -> None:
    assert [r["sizes"] for r in alive] == [["groups True 0"], ["groups True 50000"], ["groups True 0"]]


def test_a_group_of_some_ranks(alive: list[Lines]) -> None:
    rest = ["all 0.5", "training 3"]
    assert alive[1]["subset"] == ["odd 0.5", "again 0.5", *rest]
    for rank in (0, 2):
        assert alive[rank]["subset"] == [
            "this rank is not in the process group; call sync only on ranks of the group",
            *rest,
        ]


def test_all_ranks_name_what_differs(alive: list[Lines]) -> None:
    errors = [[x for x in r["mismatch"] if "Error" in x] for r in alive]
    assert errors[0] == errors[1] == errors[2]
    one, two, three = errors[0]
    assert "IncompatibleStateError the ranks have different metrics: rank 2 differs from rank 0: " in one
    assert "rank 2 has no 'log_loss'" in one
    assert two.endswith("rank 2 differs from rank 0: bits is 12 on rank 0 and 14 on rank 2")
    assert three.endswith("ranks 1, 2 differ from rank 0: CTR instead of MetricCollection")
    assert all(r["mismatch"][-2:] == ["then 0.6666666666666666", "training 3"] for r in alive)


def test_a_rank_that_fails_is_named_at_once(alive: list[Lines]) -> None:
    assert alive[0]["not-metrics"][0].startswith(
        "TypeError sync() takes a metric, collection, slices, bundle or Deferred"
    )
    for rank in (1, 2):
        assert alive[rank]["not-metrics"][0].startswith(
            "SyncError nothing was merged, because other ranks have failed: rank 0: TypeError: sync() takes"
        )
    for rank in range(3):
        assert waited(alive[rank]["not-metrics"])[0] < 60
        assert alive[rank]["not-metrics"][-1] == "then 0.6666666666666666"


def test_a_stuck_rank_is_an_error_in_time_and_training_goes_on(alive: list[Lines]) -> None:
    rest = ["training 3", "then 0.6666666666666666", "training 3"]
    assert alive[1]["stuck"] == ["first 0.6666666666666666", *rest]
    for rank in (0, 2):
        first, error, seconds, *others = alive[rank]["stuck"]
        assert error.startswith("SyncTimeoutError timed out after 4 s while exchanging data with the other ranks")
        assert 3.9 < waited([seconds])[0] < 30
        assert [first, *others] == ["first 0.6666666666666666", *rest]


def test_who_did_not_come_is_named(alive: list[Lines]) -> None:
    assert "timed out after 3 s while waiting for rank 1" in alive[0]["stuck-before"][0]
    assert [r["stuck-before"][-1] for r in alive] == ["then 0.5", "then 0.5", "training 3"]


def test_a_rank_that_comes_late_gives_up_as_the_others_did(alive: list[Lines]) -> None:
    for r in alive:
        assert r["late"][1].startswith("SyncTimeoutError")
        assert r["late"][-3:] == ["training 3", "then 0.6666666666666666", "training 3"]


@pytest.mark.parametrize("case", ["killed", "killed-before"])
def test_a_dead_rank_is_an_error_in_time(case: str) -> None:
    said = launch(3, case)
    assert [status for status, _, _ in said] == [0, 0, -9]
    for _, out, _ in said[:2]:
        lines = by_case(out.splitlines())[case]
        errors = [x for x in lines if "Error" in x]
        assert len(errors) == 2
        assert "after 5 s while waiting for rank 2" in errors[1] or "a rank has ended" in errors[1]  # seen in time
        assert all(s < 30 for s in waited(lines))
        if case == "killed":
            assert errors[0].startswith("SyncError exchanging data with the other ranks failed: a rank has ended")


def test_a_process_that_stands_still_holds_nobody_up() -> None:
    said = [by_case(lines)["stopped"] for lines in ranks.outputs(launch(3, "stopped"))]
    assert said[0] == ["training 3"]
    for lines in said[1:]:
        assert lines[0].startswith("SyncTimeoutError")
        assert 2.9 < waited(lines)[0] < 30
        assert lines[-1] == "training 3"


def test_what_one_world_saved_another_goes_on_from(tmp_path: Path) -> None:
    ranks.outputs(launch(2, "resumed", tmp_path))
    whole = logs.whole("collection")
    assert sm.merge(sorted(tmp_path.glob("*.smet"))).digest() == whole.digest()
    said = [by_case(lines)["grown"] for lines in ranks.outputs(launch(4, "grown", tmp_path))]
    assert said == [[f"total {whole.digest()}"]] * 4


def test_a_group_of_any_backend_is_left_alone() -> None:
    said = [by_case(lines)["foreign"] for lines in ranks.outputs(launch(2, "foreign"))]
    assert said == [["silent", "total 0.5", "again 0.5"]] * 2


def test_one_process_gets_a_copy() -> None:
    ctr = sm.CTR().update(y_true=[0, 1])
    deferred = Deferred(sm.CTR()).update([0]).update([1])
    for total in (sync(ctr), sync(deferred)):
        assert type(total) is sm.CTR
        assert total == ctr
        assert total is not ctr
        assert total is not deferred.metrics
    for wrong in (None, [ctr], {"ctr": ctr}):
        with pytest.raises(TypeError, match="sync\\(\\) takes a metric"):
            sync(wrong)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="timeout must be a positive number"):
        sync(ctr, timeout=0)
