"""Groups: as always to the bit, by fractions with weights, on disk, sampled, sorted, sealed."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.batch.column_binding import PLAIN
from streammetrics.count.batch_updater import BatchUpdater
from streammetrics.count.reads import Read
from streammetrics.count.state_changes import apply_changes
from streammetrics.format import frame
from streammetrics.numerics import kernel_registry
from streammetrics.state.axes import Axis
from streammetrics.statistics.groups import closed_sums as closed
from streammetrics.statistics.groups import scan, spill
from streammetrics.statistics.groups.closed_sums import GROUP_WEIGHTS, SealedGroups
from streammetrics.statistics.groups.group_rows import GroupRows
from streammetrics.statistics.groups.partitions import partition_of
from streammetrics.statistics.groups.sorted_groups import SortedGroups
from tests.statistics import frozen

WEIGHTS = np.array([0.0, 0.5, 1.0, 3.7, 1e-9])


def log(n: int, seed: int, *, text: bool = False, dtype: Any = np.float32, weighted: bool = False) -> dict[str, Any]:
    """Users with few and many rows, ties, one class."""
    rng = np.random.default_rng(seed)
    u = rng.random(n)
    users = np.minimum(1 / (u * u + 2.0**-60), n // 8).astype(np.int64) * 2654435761
    keys = np.array([f"user-{u}" for u in users]) if text else users
    s = np.round(rng.random(n), 2).astype(dtype)
    table = {"group": keys, "y_true": (rng.random(n) < 0.2).astype(np.int64), "y_score": s}
    return table | ({"sample_weight": WEIGHTS[rng.integers(0, 5, n)]} if weighted else {})


def some(table: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {k: v[rows] for k, v in table.items()}


def fed(table: dict[str, Any], *cuts: Any, state: Any = None) -> Any:
    feed = BatchUpdater([Read(GroupRows() if state is None else state, PLAIN)])
    for rows in cuts or [slice(None)]:
        feed.count(some(table, rows))
    return feed.states[0]


def values(state: Any) -> list[float]:
    made = state.close_groups()
    return [float(made.total("sums", by) / made.total("weights", by)) for by in GROUP_WEIGHTS]


def settled(state: Any) -> Any:
    """The same of entries alone, as bytes would bring it."""
    return state.with_cells(state.cells)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("text", [False, True])
def test_as_frozen(text: bool, dtype: Any) -> None:
    table, rng = log(4000, 1, text=text, dtype=dtype), np.random.default_rng(5)
    state = fed(table, *np.array_split(rng.permutation(4000), 7))
    assert values(settled(state)) == values(state)
    assert values(state) == [sm.GroupAUC(group_weight=by).reading(state).value for by in GROUP_WEIGHTS]
    made = state.close_groups()
    held = {name: getattr(made, name) for name in ("groups", "rows", "sums", "weights", "lone")}
    frozen.check(held | {"values": values(state)})


@pytest.mark.parametrize("scale", ["probability", "real"])
def test_weights_by_fractions(scale: str) -> None:
    table = log(1500, 2, weighted=True, dtype=np.float64)
    if scale == "real":
        table["y_score"] = table["y_score"] * 4 - 2
    state = fed(table, state=GroupRows(scale=scale))
    groups = state.groups()
    found = sorted(zip(*(g.tolist() for g in groups), strict=True))
    assert found == sorted(zip(*(g.tolist() for g in settled(state).groups()), strict=True))
    expected = []
    for user in np.unique(table["group"]):
        mine = some(table, table["group"] == user)
        w = [Fraction(round(Fraction(x) * 2**60), 2**60) for x in mine["sample_weight"].tolist()]
        rows = sorted(zip(mine["y_score"].tolist(), mine["y_true"].tolist(), w, strict=True))
        neg = won = pos = Fraction(0)
        for _, tied in itertools.groupby(rows, key=lambda r: r[0]):
            some_ = list(tied)
            a, c = (sum((r[2] for r in some_ if r[1] == y), Fraction(0)) for y in (1, 0))
            won, neg, pos = won + a * (neg + c / 2), neg + c, pos + a
        expected.append((float(neg), float(pos), float(won), float(neg * pos)))
    assert found == sorted(expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_merge_server_reads_the_same_bits(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    state = settled(fed(log(3000, 3, weighted=weighted, dtype=np.float64)))
    with_kernels = state.close_groups()
    for module in (closed, scan):
        monkeypatch.setattr(module.kernel_registry, "has_kernels", lambda: False)
    assert settled(state).close_groups() == with_kernels
    assert kernel_registry.has_kernels() is False
    level = settled(fed(log(3000, 3), state=GroupRows())).leading_zeros
    monkeypatch.undo()
    assert np.array_equal(settled(fed(log(3000, 3))).leading_zeros, level)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("text", [False, True])
def test_whoever_holds_which_rows(text: bool, weighted: bool) -> None:
    table, rng = log(3000, 4, text=text, weighted=weighted), np.random.default_rng(1)
    whole = fed(table)
    parts = [fed(table, rows) for rows in np.array_split(rng.permutation(3000), 7)]
    lazy = parts[0].merge(*parts[1:])
    eager = settled(parts[3]).merge(*(settled(parts[i]) for i in (0, 6, 1, 2, 5, 4)))
    mixed = settled(parts[0]).merge(*parts[1:])
    assert lazy == eager == mixed == whole
    assert lazy.close_groups() == eager.close_groups() == mixed.close_groups() == whole.close_groups()
    on = BatchUpdater([Read(settled(parts[0]), PLAIN)])
    for rows in np.array_split(np.random.default_rng(1).permutation(3000), 7)[1:]:
        on.count(some(table, rows))
    assert on.states[0].close_groups() == whole.close_groups()
    assert on.states[0] == whole
    with pytest.raises(sm.IncompatibleStateError, match=r"keys of group are of kind \w+ here and \w+ there"):
        whole.merge(fed(log(10, 1, text=not text)))
    taken = settled(whole).subtract(settled(parts[0]))
    assert taken == settled(parts[1]).merge(*parts[2:])


def test_partitions_are_sealed_once() -> None:
    table = log(3000, 5)
    whole, owner = fed(table), partition_of(table["group"], 3)
    closed_ = [fed(table, owner == i, state=GroupRows(partition=(i, 3))).close_groups() for i in range(3)]
    total = closed_[2].merge(closed_[0], closed_[1])
    for name in ("groups", "rows", "sums", "weights", "lone", "moments"):
        assert np.array_equal(getattr(total, name), getattr(whole.close_groups(), name)), name
    with pytest.raises(sm.IncompatibleStateError, match="partition 1 of 3 is sealed in more than one state"):
        total.merge(closed_[1])
    none = GroupRows(partition=(1, 3)).close_groups()
    assert none.sealed.tolist() == [0, 1, 0]
    assert closed_[0].merge(none).sealed.tolist() == [1, 1, 0]
    with pytest.raises(sm.InvalidInputError, match=r"found a group of another partition in row \d+"):
        fed(table, state=GroupRows(partition=(0, 3)))
    with pytest.raises(sm.InvalidInputError, match="closed"):
        fed(table, state=SealedGroups())


def test_moments_are_those_of_groups() -> None:
    state = fed(log(3000, 6, weighted=True))
    groups, made = state.groups(), state.close_groups()
    auc, both = groups.auc(), (groups.negatives > 0) & (groups.positives > 0)
    for by in GROUP_WEIGHTS:
        w = groups.weight(by)
        x = (w * auc)[both]
        assert float(made.moment("squares", by)) == pytest.approx((x**2).sum(), rel=1e-12)
        assert float(made.moment("products", by)) == pytest.approx((x * w[both]).sum(), rel=1e-12)
        assert float(made.moment("weights", by)) == pytest.approx((w[both] ** 2).sum(), rel=1e-12)


def test_in_slices() -> None:
    table = log(2000, 7, weighted=True) | {"k": np.random.default_rng(1).integers(0, 5, 2000)}
    axis = (Axis(("k",)),)
    rows = np.array_split(np.random.default_rng(2).permutation(2000), 4)
    feed = BatchUpdater([Read(GroupRows().empty_copy(axis), PLAIN)])
    for r in rows:
        feed.count(some(table, r))
        assert feed.states[0].total_row_counts.sum() > 0  # read between batches
    whole = feed.states[0]
    parts = [fed(table, r, state=GroupRows().empty_copy(axis)) for r in rows]
    assert parts[2].merge(parts[0], parts[3], parts[1]) == whole
    closed_ = whole.close_groups()
    for i in range(5):
        mine = fed({n: c for n, c in table.items() if n != "k"}, table["k"] == i)
        assert whole.read_cell(i) == mine
        assert closed_.read_cell(i) == mine.close_groups()
    assert whole.without_axes == fed({n: c for n, c in table.items() if n != "k"})
    with pytest.raises(sm.InvalidInputError, match="sliced group metrics do not support"):
        fed(table, state=GroupRows(sample_rows=10).empty_copy(axis))


def test_a_failed_batch_changes_nothing() -> None:
    table = log(1000, 8)
    feed = BatchUpdater([Read(GroupRows(memory_limit=20_000), PLAIN)])
    feed.count(table)
    before = feed.states[0]
    with pytest.raises(sm.MemoryLimitError, match=r"spill_dir=.*partition=\(i, n\).*sample=True"):
        feed.count(table)
    with pytest.raises(sm.InvalidInputError, match="expected keys of kind integer, as in earlier rows"):
        feed.count(log(10, 1, text=True))
    with pytest.raises(sm.InvalidInputError, match="y_score"):
        feed.count(some(table, slice(5)) | {"y_score": np.full(5, np.nan)})
    assert feed.states[0] == before


# -- on disk -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_spilled(weighted: bool, tmp_path: Path) -> None:
    table, rng = log(6000, 9, weighted=weighted), np.random.default_rng(1)
    whole, limited = fed(table), GroupRows(memory_limit=20_000, spill_dir=str(tmp_path))
    cuts = np.array_split(rng.permutation(6000), 40)
    state = fed(table, *cuts, state=limited)
    assert state.describe_storage()["spilled_rows"] > 4000
    assert state.nbytes <= 20_000
    assert state.close_groups() == whole.close_groups()
    assert not list(tmp_path.iterdir())  # it has no name
    halves = [fed(table, *cuts[a::2], state=limited) for a in (0, 1)]
    both = halves[0].merge(halves[1])
    assert both.close_groups() == whole.close_groups()
    on = BatchUpdater([Read(both, PLAIN)])
    on.count(some(table, slice(900)))
    assert on.states[0].close_groups() == fed(table).merge(fed(table, slice(900))).close_groups()
    with pytest.raises(sm.MemoryLimitError, match=r"partition=\(i, n\)"):
        state.cells  # noqa: B018 - what bytes are made of
    state.close()
    with pytest.raises(sm.StateFormatError, match="closed"):
        state.with_cells(state.make_empty_cells(())).from_waiting(state.waiting).close_groups()


@pytest.mark.slow
@pytest.mark.parametrize("short", [False, True])
def test_a_disk_that_is_full(short: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = log(6000, 10)
    cuts = np.array_split(np.arange(6000), 40)
    real = spill.write_at
    for nth in range(1, 10, 2):
        calls = itertools.count(1)

        def failing(file: int, data: Any, at: int, calls: Any = calls, nth: int = nth) -> int:
            if next(calls) == nth:
                if short:
                    real(file, data[: len(data) // 2], at)
                    return 0
                raise OSError(28, "No space left on device")
            return real(file, data, at)

        monkeypatch.setattr(spill, "write_at", failing)
        feed, failed = BatchUpdater([Read(GroupRows(memory_limit=20_000, spill_dir=str(tmp_path)), PLAIN)]), 0
        for rows in cuts:
            before = feed.states[0].facts()
            try:
                feed.count(some(table, rows))
            except sm.MemoryLimitError as error:
                failed += 1
                assert str(tmp_path) in str(error)  # noqa: PT017
                assert feed.states[0].facts() == before
                feed.count(some(table, rows))  # there is space again
        assert failed == 1
        assert feed.states[0].close_groups() == fed(table).close_groups()


def test_a_disk_that_is_full_in_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, limited = log(6000, 14), GroupRows(memory_limit=20_000, spill_dir=str(tmp_path))
    cuts = np.array_split(np.arange(6000), 40)
    feeds = [BatchUpdater([Read(fed(table, *cuts[a::2], state=limited), PLAIN)]) for a in (0, 1)]
    halves = [f.states[0] for f in feeds]

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(spill, "write_at", full)
        with pytest.raises(sm.MemoryLimitError, match=f"{tmp_path}: No space left on device.*free disk space"):
            apply_changes([feeds[0].merge_change(feeds[1].states)])
        assert [f.states[0] is s for f, s in zip(feeds, halves, strict=True)] == [True, True]
    apply_changes([feeds[0].merge_change(feeds[1].states)])
    assert feeds[0].nbytes <= 20_000
    assert feeds[0].states[0].close_groups() == fed(table).close_groups()


def test_a_full_disk_is_not_filled_by_trying_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that were written before the one that did not fit take no space."""
    table, real = log(3000, 15), spill.write_at
    feed = BatchUpdater([Read(GroupRows(memory_limit=30_000, spill_dir=str(tmp_path)), PLAIN)])
    feed.count(some(table, slice(2000)))
    feed.count(some(table, slice(2000, 2400)))
    file = feed.states[0].waiting.spilled[0].runs[0].file  # type: ignore[attr-defined]
    end = os.fstat(file.file.fileno()).st_size
    monkeypatch.setattr(spill, "ROWS", 100)  # in four pieces

    def full(handle: int, data: Any, at: int) -> int:
        return real(handle, data[: max(0, end + 3000 - at)], at)

    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(spill, "write_at", full)
            with pytest.raises(sm.MemoryLimitError, match="nothing was counted"):
                feed.count({k: np.concatenate([v, v]) for k, v in some(table, slice(1000, 3000)).items()})
        assert os.fstat(file.file.fileno()).st_size == end == file.end
    feed.count(some(table, slice(2400, 3000)))
    assert feed.states[0].close_groups() == fed(table).close_groups()


@pytest.mark.slow
def test_copies_that_share_a_file(tmp_path: Path) -> None:
    """Each appends what nobody writes over, from threads of their own."""
    table = log(9000, 16)
    one = BatchUpdater([Read(GroupRows(memory_limit=2000, spill_dir=str(tmp_path)), PLAIN)])
    one.count(some(table, slice(300)))
    one.count(some(table, slice(300, 600)))
    feeds = [BatchUpdater([Read(one.states[0], PLAIN)]) for _ in range(4)]
    assert len({f.states[0].waiting.spilled[0].runs[0].file for f in feeds}) == 1  # type: ignore[attr-defined]

    def count(a: int) -> None:
        for begin in range(600 + 200 * a, 9000, 800):
            feeds[a].count(some(table, slice(begin, begin + 200)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    for a, feed in enumerate(feeds):
        rows = [slice(600), *(slice(begin, begin + 200) for begin in range(600 + 200 * a, 9000, 800))]
        assert feed.states[0].close_groups() == fed(table, *rows).close_groups()


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = spill.write_at
    monkeypatch.setattr(spill, "write_at", lambda file, data, at: real(file, data[: max(1, len(data) // 3)], at))
    table = log(3000, 11)
    state = fed(table, *np.array_split(np.arange(3000), 9), state=GroupRows(memory_limit=9000, spill_dir=str(tmp_path)))
    assert state.close_groups() == fed(table).close_groups()


def test_a_damaged_spill_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = log(3000, 12)
    for damage in ("cut", "flip", "unreadable"):
        state = fed(
            table, *np.array_split(np.arange(3000), 9), state=GroupRows(memory_limit=9000, spill_dir=str(tmp_path))
        )
        file = state.waiting.spilled[0].runs[0].file.file
        if damage == "cut":
            file.truncate(file.seek(0, 2) - 5)
        elif damage == "unreadable":
            monkeypatch.setattr(spill, "read_at", broken)
        else:
            os.pwrite(file.fileno(), bytes([os.pread(file.fileno(), 1, 700)[0] ^ 8]), 700)
        with pytest.raises(sm.StateFormatError, match=f"{tmp_path} are damaged.*count the log again"):
            state.close_groups()


def broken(*_: Any) -> bytes:
    raise OSError(5, "Input/output error")


PROCESS = """
import os, sys, time
import numpy as np
from streammetrics.batch.column_binding import PLAIN
from streammetrics.count.batch_updater import BatchUpdater
from streammetrics.count.reads import Read
from streammetrics.statistics.groups.group_rows import GroupRows
feed = BatchUpdater([Read(GroupRows(memory_limit=1000, spill_dir=sys.argv[1]), PLAIN)])
def more(k):
    r = np.random.default_rng(k)
    feed.count({"group": r.integers(0, 9, 500), "y_true": r.integers(0, 2, 500), "y_score": r.random(500)})
for k in range(5): more(k)
if sys.argv[2] == "fork":
    child = os.fork()
    for k in range(5, 9): more(k + 100 * (child == 0))  # each on its own
    mine = feed.states[0].close_groups()
    again = BatchUpdater([Read(GroupRows(), PLAIN)])
    feed_, feed = feed, again
    for k in [*range(5), *(k + 100 * (child == 0) for k in range(5, 9))]: more(k)
    assert feed.states[0].close_groups() == mine
    if child == 0: sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    one = feed_.states[0]
    assert one.with_cells(one.make_empty_cells(())).from_waiting(one.waiting).close_groups() == mine
    sys.exit(0)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fork", signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_on_disk(how: Any, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(tmp_path), str(how)], stdout=subprocess.PIPE, text=True
    ) as process:
        if how != "fork":
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(how)
        assert process.wait(120) == (0 if how == "fork" else -how)
    assert not list(tmp_path.iterdir())


# -- samples -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_samples_commute_with_merging(weighted: bool) -> None:
    table, rng = log(20_000, 13, weighted=weighted), np.random.default_rng(2)
    sampled = GroupRows(sample_rows=1800)
    whole = fed(table, state=sampled)
    parts = [fed(table, rows, state=sampled) for rows in np.array_split(rng.permutation(20_000), 9)]
    once = parts[0].merge(*parts[1:])
    pairs = parts[8].merge(parts[1]).merge(parts[7].merge(*parts[2:7])).merge(settled(parts[0]))
    on = BatchUpdater([Read(parts[0].merge(parts[1]), PLAIN)])
    for rows in np.array_split(np.random.default_rng(2).permutation(20_000), 9)[2:]:
        on.count(some(table, rows))
    assert once == pairs == on.states[0] == whole
    rows = whole.facts()["rows"]
    assert 0 < rows <= 1800
    assert whole.share < 1
    assert whole.dropped[whole.reasons.index("sample")] == 20_000 - rows
    users, counts = np.unique(table["group"], return_counts=True)
    kept = set(whole.cells.inner_keys[:, 1].tolist())
    assert rows == sum(n for u, n in zip(users.tolist(), counts.tolist(), strict=True) if u in kept)
    with pytest.raises(sm.IncompatibleStateError, match="sample"):
        whole.subtract(parts[0])


def test_a_sample_of_nothing_still_knows_its_level() -> None:
    table = {"group": np.full(50, 7), "y_true": np.arange(50) % 2, "y_score": np.linspace(0, 1, 50)}
    state, other = fed(table, state=GroupRows(sample_rows=10)), fed(log(10, 1), state=GroupRows(sample_rows=10))
    assert state.facts()["rows"] == 0
    assert other.merge(state) == state.merge(other)
    assert settled(state).dropped.sum() == 50
    _, (again,) = frame.merge_frames([frame.write_frame([state], {})])
    assert again == state


def test_rows_left_out_stay_counted() -> None:
    feed = BatchUpdater([Read(GroupRows(), PLAIN)], on_invalid="drop")
    bad = log(50, 1)
    bad["y_score"][:7] = 2.0
    feed.count(bad)
    state = feed.states[0]
    both = settled(state).merge(state)
    assert state.dropped.sum() == 7
    assert both.dropped.sum() == settled(both).dropped.sum() == 14
    on = BatchUpdater([Read(both, PLAIN)], on_invalid="drop")
    on.count(bad)
    assert on.states[0].dropped.sum() == settled(on.states[0]).dropped.sum() == 21


# -- sorted logs -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sorted_logs_cut_anywhere(dtype: Any, weighted: bool) -> None:
    rng, table = np.random.default_rng(8), log(5000, 14, dtype=dtype, weighted=weighted)
    table["group"] = table["group"] - 2654435761 * 3  # some are negative
    table = some(table, np.argsort(table["group"], kind="stable"))
    whole, state = fed(table).close_groups(), SortedGroups()
    steps = fed(table, *np.array_split(np.arange(5000), 60), state=state)
    assert steps.close_groups() == whole
    assert steps.describe_storage()["parts"] == 1
    for _ in range(20):
        cuts = [0, *np.sort(rng.integers(0, 5000, 5)).tolist(), 5000]
        parts = [fed(table, slice(a, b), state=state) for a, b in itertools.pairwise(cuts)]
        order = rng.permutation(6)
        merged = parts[order[0]].merge(*(parts[i] for i in order[1:4])).merge(*(parts[i] for i in order[4:]))
        merged.check()
        assert merged.close_groups() == whole
        assert merged == parts[0].merge(*parts[1:])
    on = BatchUpdater([Read(fed(table, slice(2000), state=state), PLAIN)])
    on.count(some(table, slice(2000, 5000)))
    assert on.states[0].close_groups() == whole
    with pytest.raises(sm.InvalidInputError, match=r"expected ascending keys, found .* in row 0"):
        on.count(some(table, slice(10)))
    with pytest.raises(sm.IncompatibleStateError, match="keys overlap"):
        merged.merge(fed(table, slice(0, 4000), state=state))
    with pytest.raises(sm.InvalidInputError, match="expects integer keys"):
        fed(log(10, 1, text=True), state=state)


def test_a_part_within_another_does_not_merge() -> None:
    def part(*users: int) -> Any:
        table = {"group": np.array(users), "y_true": [0, 1] * (len(users) // 2), "y_score": np.full(len(users), 0.5)}
        return fed(table, state=SortedGroups())

    with pytest.raises(sm.IncompatibleStateError, match="1 to 7 and 5 to 5"):
        part(1, 7).merge(part(5, 5))
    with pytest.raises(sm.IncompatibleStateError, match="1 to 5 and 3 to 7"):
        part(1, 5).merge(part(3, 7))
    touching = part(1, 5).merge(part(5, 7), part(5, 5))
    assert touching.key_ranges == [(1, 5), (5, 5), (5, 7)]
    with pytest.raises(sm.IncompatibleStateError, match="1 to 5 and 3 to 3"):
        touching.merge(part(3, 3))


def test_a_range_of_one_part_does_not_end_in_another() -> None:
    """Each is refused alone, and so are they where they are read together."""
    state = fed({"group": [1, 1], "y_true": [0, 1], "y_score": [0.5, 0.5]}, state=SortedGroups())

    def without(name: str) -> bytes:
        flats = {**state.cells.flats, name: np.zeros_like(state.cells.flats[name])}
        return frame.write_frame([state.with_cells(replace(state.cells, flats=flats))], {})

    for parts in (["ends"], ["begins"], ["ends", "begins"]):
        with pytest.raises(sm.StateFormatError, match="do not form ranges"):
            frame.merge_frames([without(name) for name in parts])


# -- bytes -------------------------------------------------------------------------------------------------------------


def test_written_and_read() -> None:
    table = log(2000, 15, weighted=True)
    inorder = some(log(500, 15), np.argsort(log(500, 15)["group"], kind="stable"))
    sliced = fed(table | {"k": np.arange(2000) % 3}, state=GroupRows().empty_copy((Axis(("k",)),)))
    made = [
        *(fed(table), fed(log(900, 3, text=True)), fed(table, state=GroupRows(sample_rows=300)), sliced),
        *(sliced.close_groups(), fed(table, state=GroupRows(scale="real")), fed(inorder, state=SortedGroups())),
        *(fed(table).close_groups(), GroupRows(partition=(2, 3)).close_groups()),
    ]
    for state in made:
        data = frame.write_frame([state], {})
        _, (again,) = frame.merge_frames([data])
        assert again == state
        assert again.close_groups() == state.close_groups()
        assert frame.compute_digest(again) == frame.compute_digest(state)


def test_frames_are_merged_as_states_are() -> None:
    ascending = some(log(500, 15), np.argsort(log(500, 15)["group"], kind="stable"))
    apart = [fed(ascending, slice(a, a + 100), state=SortedGroups()) for a in range(0, 500, 100)]
    sampled = [fed(log(800, i), state=GroupRows(sample_rows=900)) for i in range(4)]
    plain = [fed(log(300, i)) for i in range(4)]
    for states in (apart, sampled, plain):
        _, (merged,) = frame.merge_frames([frame.write_frame([s], {}) for s in states])
        assert merged == states[0].merge(*states[1:])
    closed_ = plain[0].close_groups()
    for states in ([apart[4], apart[0], apart[4]], [plain[0], fed(log(30, 1, text=True))], [closed_, closed_]):
        with pytest.raises(sm.IncompatibleStateError):
            frame.merge_frames([frame.write_frame([s], {}) for s in states])


AT_EXIT = """
import atexit
import numpy as np
import streammetrics as sm

rng = np.random.default_rng(0)
users, given = sm.GroupAUC(), {n: rng.integers(0, k, 20_000) for n, k in [("y_true", 2), ("y_score", 2), ("group", 999)]}
atexit.register(lambda: print(users.update(given).compute() == sm.GroupAUC().update(given).compute()))
"""


@pytest.mark.slow
def test_what_atexit_computes() -> None:
    """There are no threads any more, neither to load kernels in nor to sort users in."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", AT_EXIT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")
