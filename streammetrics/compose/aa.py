"""A/A tests: compare equal arms, and count how often the interval of their difference excludes 0.

The count shows whether units of the chosen kind, such as users, are independent enough for valid intervals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise, starmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Batch, Kind
from ..batch.convert import as_columns
from ..batch.ids import IdColumn, Ids
from ..collect.accumulator import definition_of
from ..collect.task import Metrics
from ..count.batch_updater import BatchUpdater
from ..count.reads import MEMORY_LIMIT, Read
from ..errors import InvalidInputError
from ..inference.estimates import p_value
from ..inference.jackknife import Replicates, jackknife, subtract_replicates
from ..reading.about import sharded_refusal_of
from ..reading.interval import check_confidence
from ..reading.reading import CellReadings
from ..reading.replicates import numbers_of
from ..state.axes import Axis, Vocabulary
from ..state.state import State
from ..statistics.groups.partitions import hashes_of
from .leave_one_shard_out import leave_one_out, merge_shards, reduce_groups, table_by_shard
from .sharded import Sharded

__all__ = ["FalseAlarms", "aa"]

# Never change the salt: the same seed must always yield the same arms. Shards and samples use other salts, so arms are
# independent of both.
SALT = 0x4141544553540001
CHUNK = 1 << 15
"""The number of rows assigned to arms and counted at a time. A chunk takes about 100 MB for all runs together."""
ROW = "row of the log"
SPREAD = 3.0
"""The intervals are trusted if the rate is at most this many standard errors above the expected rate."""
Ints = NDArray[np.int64]


class FalseAlarms(NamedTuple):
    """The false alarm rate of a metric: the fraction of comparisons of equal arms that show a significant difference.

    Parameters
    ----------
    metric : str
        The name of the metric in the collection, such as "ctr".
    unit : str
        The column of the units that intervals assume to be independent, such as "user"; "row" if each row is a unit.
    rate : float
        The fraction of comparisons whose interval excludes 0; NaN if there is no interval.
    expected : float
        The expected rate: 1 - confidence.
    compared : int
        The number of comparisons with an interval.
    refused : int
        The number of comparisons without an interval, because of too few shards or no variation.
    """

    metric: str
    unit: str
    rate: float
    expected: float
    compared: int
    refused: int

    @property
    def most(self) -> float:
        """The largest rate that chance can explain: three standard errors above the expected rate."""
        if not self.compared:
            return math.nan
        return self.expected + SPREAD * math.sqrt(self.expected * (1.0 - self.expected) / self.compared)

    @property
    def trusted(self) -> bool:
        """Whether the rate is at most `most`, so that intervals can be trusted."""
        return self.rate <= self.most

    @property
    def sentence(self) -> str:
        """The result as a sentence: the rate, the expected rate, and a warning if the intervals are too narrow."""
        if not self.compared:
            return f"{self.metric} by {self.unit}: no interval in any of {self.refused} comparisons"
        text = (
            f"{self.metric} by {self.unit}: {100 * self.rate:.1f} % of {self.compared} comparisons of equal arms are "
            f"false alarms, {100 * self.expected:g} % expected"
        )
        rest = "" if self.trusted else ": the intervals are too narrow and show differences where there are none"
        return f"{text}{rest}"


def aa(
    table: Any,
    *,
    unit: str,
    metrics: Metrics,
    runs: int = 200,
    arms: int = 2,
    rows: bool = False,
    confidence: float = 0.95,
    shards: int = 64,
    shard_bits: int = 10,
    seed: int = 0,
    memory_limit: int = MEMORY_LIMIT,
) -> list[FalseAlarms]:
    """Assign the units of a log to random arms many times, and count how often the arms seem to differ.

    All arms are equal, so valid intervals exclude 0 in a fraction 1 - confidence of the comparisons. If they do so more
    often, they are too narrow, usually because `unit` is the wrong column. The function needs the rows of the log:
    sharded states no longer contain units, and assigning whole shards to arms would not show this.

    Parameters
    ----------
    table : table, or iterable of tables
        A mapping, data frame, Arrow table or record batch; or several of these, each of which is read once.
    unit : str
        The column of the units that are assigned to arms, such as users.
    metrics : metric, Task, MetricCollection, or list or dict of metrics
        The metrics to compare.
    runs : int
        The number of random assignments.
    arms : int
        The number of arms. The first arm is compared with each of the others.
    rows : bool
        Whether to also report the rates for intervals that treat every row as a unit, which is usually wrong.
    confidence : float
        The confidence level of the intervals.
    shards, shard_bits : int
        The same as for `Sharded`.
    seed : int
        The seed of the random assignments.
    memory_limit : int
        The memory limit in bytes; exceeding it raises MemoryLimitError. Each run keeps the shards of all arms.

    Returns
    -------
    list of FalseAlarms
        The false alarm rates by `unit`: one for each metric, or several for a metric with several values. With `rows`,
        the rates by row follow in the same order.

    Raises
    ------
    InvalidInputError
        A column is missing or contains an invalid value, or a row has no unit.

    Notes
    -----
    There is one pass over the log. 200 runs of CTR and log-loss over 1 million rows take 3 seconds on one core (twice that
    with `rows`) and 0.4 GB. With 200 runs the standard error of a rate of 5 % is 1.5 %.

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> rng = np.random.default_rng(1)
    >>> user = np.repeat(np.arange(1000), 20)
    >>> click = rng.random(20_000) < rng.beta(1, 9, 1000)[user]  # users differ
    >>> right, wrong = sm.aa({"user": user, "y_true": click}, unit="user", metrics=sm.CTR(), runs=100, rows=True)
    >>> right.trusted, wrong.trusted
    (True, False)
    """
    check_confidence(confidence)
    for name, value, least in (("runs", runs, 1), ("arms", arms, 2)):
        if type(value) is not int or value < least:
            raise ValueError(f"{name} must be a whole number, {least} or more, not {value!r}")
    sharded = Sharded(metrics, unit=unit, shards=shards, shard_bits=shard_bits)
    definition = definition_of(sharded)
    readers = (definition.metric_reads() or {}).values()
    if none := [r.metric for r in readers if sharded_refusal_of(r.metric)]:
        raise ValueError(
            f"aa() checks confidence intervals, but {none[0].name} has none: {sharded_refusal_of(none[0])}"
        )
    units = [unit, ROW] if rows else [unit]
    blocks = {
        r.binding.column(n.role): n.kind
        for r in definition.reads
        for n in r.state.needs()
        if n.role == r.state.block_column
    }
    if rows and blocks:
        raise ValueError(
            f"rows=True: rows cannot be units, because a metric reads all rows of the same "
            f"{', '.join(map(str, blocks))} together; use rows=False"
        )
    updater = BatchUpdater(_reads(sharded, units, runs), memory_limit=memory_limit, on_invalid=definition.on_invalid)
    salts = hashes_of(np.arange(runs, dtype=np.int64) + seed * runs, SALT).tolist()
    first = 0
    for batch, ids in _batches(table, unit):
        # Update a copy with an empty batch, which raises an error if a column is missing.
        sharded.copy().update({n: _slice_column(batch.raw(n), slice(0, 0)) for n in batch.names})
        for some in _split_rows(batch, len(ids), blocks):
            columns = {name: _slice_column(batch.raw(name), some) for name in batch.names}
            columns |= {_arm_column(r): _assign_arms(ids[some], salt, arms) for r, salt in enumerate(salts)}
            columns[ROW] = np.arange(first + some.start, first + some.stop)
            with _shift_row_numbers(some.start):
                updater.count_batch(Batch(columns))
        first += len(ids)
    states = updater.states
    each, out = len(states) // (len(units) * runs), list[FalseAlarms]()
    for i, name in enumerate(units):
        mine = states[i * runs * each : (i + 1) * runs * each]
        merged = [_merge_runs(mine[s::each]) for s in range(each)]
        out += _count_false_alarms(sharded, merged, name, round(1.0 - confidence, 15))
    return out


# -- counting -------------------------------------------------------------------------------------------------------


def _arm_column(run: int) -> str:
    return f"arm in run {run}"


def _reads(sharded: Sharded, units: Sequence[str], runs: int) -> list[Read]:
    """Return empty states of all metrics, split by arm and shard, for each unit column and each run."""
    definition = definition_of(sharded)
    coarse = definition.reads[len(definition.reads) // 2 :]
    return [
        read._replace(state=read.state.empty_copy((Axis((_arm_column(r),)), definition.axis._replace(names=(name,)))))
        for name in units
        for r in range(runs)
        for read in coarse
    ]


def _batches(table: Any, unit: str) -> Iterator[tuple[Batch, Ints]]:
    """Yield each table as a batch, with the unit ID of each of its rows."""
    alone = not isinstance(table, (list, tuple)) and as_columns(table) is not None
    tables: Iterable[Any] = [table] if alone else table
    for one in tables:
        columns: Mapping[str, Any] | None = as_columns(one)
        if columns is None:
            raise InvalidInputError(
                f"aa(): expected a table or an iterable of tables, found an object of class {type(one).__name__}"
            )
        batch = Batch(columns)
        ids = batch.column(unit, Ids())
        batch.check(unit, Ids())
        assert isinstance(ids, IdColumn)
        yield batch, ids.values


def _split_rows(batch: Batch, rows: int, blocks: Mapping[Any, Kind]) -> Iterator[slice]:
    """Yield ranges of about CHUNK rows to count at a time. No range splits a block of rows, such as a query."""
    edges = np.arange(0, rows, CHUNK)
    for name, kind in blocks.items():
        ids = batch.column(name, kind)
        assert isinstance(ids, IdColumn)
        if len(ids.starts):
            edges = np.unique(ids.starts[np.searchsorted(ids.starts, edges, "right") - 1])
    yield from starmap(slice, pairwise([*edges.tolist(), rows]))


@contextmanager
def _shift_row_numbers(first: int) -> Iterator[None]:
    """Add `first` to the row number in an error, so that the number refers to the whole table, not to the chunk."""
    try:
        yield
    except InvalidInputError as error:
        if error.row is None:
            raise
        row = first + error.row
        text = re.sub(rf"\brow {error.row:,}(?![\d,])", f"row {row:,}", str(error), count=1)
        raise InvalidInputError(text, column=error.column, row=row, count=error.count) from None


def _slice_column(column: Any, rows: slice) -> Any:
    """Return a range of rows of a column, such as a pandas or Arrow column, as an object of the same type."""
    if hasattr(column, "iloc"):
        return column.iloc[rows]
    if hasattr(column, "slice"):
        return column.slice(rows.start, rows.stop - rows.start)
    return column[rows]


def _assign_arms(ids: Ints, salt: int, arms: int) -> Ints:
    """Return the arm of each row, determined by the hash of the row's unit.

    The upper 32 bits of the hash, divided by 2**32, are a fraction below 1. The arm is this fraction times the number of
    arms, rounded down.
    """
    return np.asarray((hashes_of(ids, salt) >> np.uint64(32)) * np.uint64(arms) >> np.uint64(32), np.int64)


# -- results ---------------------------------------------------------------------------------------------------


def _merge_runs(states: Sequence[State]) -> State:
    """Merge the states of all runs into one state with the axes run, arm and shard."""
    first = states[0]
    axes = Axis(("run",)), Axis(("arm",)), first.axes[1]
    with_run = []
    for run, state in enumerate(states):
        keys = np.column_stack([np.zeros(len(state), np.int64), state.cells.keys])
        words = (
            Vocabulary.from_values("integer", np.array([run] if len(state) else [], np.int64)),
            *state.cells.vocabularies,
        )
        with_run.append(state.move_cells(keys, axes, words))
    return with_run[0].merge(*with_run[1:])


def _count_false_alarms(sharded: Sharded, states: Sequence[State], name: str, alpha: float) -> list[FalseAlarms]:
    """Return the false alarm rate of each metric. A metric that returns several numbers has a rate for each.

    `name` is the unit column, and `alpha` is 1 - confidence.
    """
    out = []
    for called, (metric, unit, binding) in (definition_of(sharded).metric_reads() or {}).items():
        state: Any = states[unit]
        shards = reduce_groups(metric, state, is_group=name == sharded.unit == binding.column("group"))
        total: Any = binding.correct_state(merge_shards(shards))
        values = numbers_of(called, CellReadings(metric, total).values)
        weights = table_by_shard(shards, state.row_weights, sharded.shards, max(len(total), 1))
        without = leave_one_out(called, metric, binding, shards, sharded.shards)
        first, other = _pair_arms(total)
        for number, values_of_cells in values.items():
            each = without[number]
            sides = [Replicates(values_of_cells[at], each[:, at], weights[:, at]) for at in (other, first)]
            p_values = np.asarray(p_value(jackknife(subtract_replicates(*sides))))
            known = p_values[~np.isnan(p_values)]
            rate = float((known <= alpha).mean()) if len(known) else math.nan
            shown = "row" if name == ROW else name
            out.append(FalseAlarms(number, shown, rate, alpha, len(known), len(p_values) - len(known)))
    return out


def _pair_arms(total: State) -> tuple[list[int], list[int]]:
    """Return the cells to compare in all runs as two lists of indices: arm 0, and the arm compared with it.

    A pair of arms is left out if one of them has no rows.
    """
    if not len(total):
        return [], []
    runs, arms = (total.cells.vocabularies[i].values[total.cells.keys[:, i]].tolist() for i in range(2))
    cells = list(enumerate(zip(runs, arms, strict=True)))
    firsts = {run: i for i, (run, arm) in cells if arm == 0}
    others = [(firsts[run], i) for i, (run, arm) in cells if arm and run in firsts]
    return [a for a, _ in others], [b for _, b in others]
