"""Drafts: cached plans for counting batches of the same layout.

The layout of a batch consists of the names, dtypes, strides and widths of its columns. A draft contains the conversion
of each column, and the commit: a single call that runs all kernels with their arguments. A draft is made once for each
layout, so most batches need no decisions in Python.

Some batches need preparation, for example because of a row filter, a new key, a key that is not an integer, or a
ranking. `batch.prepared_batch` prepares the columns of such a batch, and this module only builds the kernel call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from operator import call
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.column_plan import FlatColumn, find_check, plan_column
from ..batch.columns import Batch
from ..batch.ids import IdColumn, Ids
from ..batch.kinds import Need
from ..errors import InvalidInputError
from ..numerics.kernel_registry import find_kernel
from ..numerics.signal_safety import run_uninterrupted
from ..numerics.slice_keys import SHARDS
from ..state.block_ends import BlockEnds
from ..state.state import State
from ..statistics.groups.group_rows import GroupRows
from ..statistics.step import NO_WEIGHTS, NOTHING, ColumnType, ShardPart, Step
from .reads import Read

if TYPE_CHECKING:
    from .counter import Counter
    from .index import Index

__all__ = [
    "ArgumentColumns",
    "Draft",
    "LastBatch",
    "LiveCounters",
    "bind_kernels",
    "can_draft",
    "compute_shards",
    "counts_in_numpy",
    "has_only_numeric_arrays",
    "load_engine",
    "make_draft",
]

Array = NDArray[Any]
Ints = NDArray[np.int64]
MOST_DRAFTS = 256
SHARD_SALT = np.uint64(0x5348415244000001)
"""A salt for the hash that assigns units, such as users, to shards; it makes this hash independent of other hashes."""


@cache
def load_engine() -> Any:
    """Return the module `engine`, which needs numba. The first call, usually to count the first rows, imports it."""

    def load() -> Any:
        from . import engine

        return engine

    # A Ctrl-C during the import would leave numba partly imported, and Python could not import it again in this
    # process.
    return run_uninterrupted(load)


class Draft(NamedTuple):
    """The plan for batches of one layout.

    Parameters
    ----------
    converters : tuple of (column, callable or None), optional
        For each argument of the commit, the position of its column in the batch, and the function that converts the
        column, if needed. None if all columns are passed unchanged.
    commit : callable
        A function that counts the rows of a batch and returns 0; if a value is invalid, it changes nothing and returns
        1. If the columns have already been prepared and checked, it instead returns a list of calls that count the
        rows, which the caller runs together with other calls.
    build_arguments : callable, optional
        A function that builds the arguments of the commit from the converted columns. It replaces key columns, or unit
        columns such as user IDs, with the cell of each row. For a counter that stores rows, it also copies the rows to
        the memory of this counter, where the commit later makes them valid. The function returns None if a row needs a
        new cell. If `build_arguments` is None, the converted columns are the arguments.
    """

    converters: tuple[tuple[int, Callable[[Array], Array] | None], ...] | None
    commit: Callable[..., Any]
    build_arguments: Callable[[Sequence[Array]], tuple[Any, ...] | None] | None = None


class LastBatch(NamedTuple):
    """The plan of the last batch, which is reused if the next batch has the same column names and layout.

    `like` is the function that checks the layout: it returns True for columns of the same dtypes and strides.
    """

    names: tuple[str, ...]
    like: Callable[..., bool]
    converters: tuple[tuple[int, Callable[[Array], Array] | None], ...] | None
    commit: Callable[..., Any]
    build_arguments: Callable[[Sequence[Array]], tuple[Any, ...] | None] | None


class LiveCounters(NamedTuple):
    """The counters of an updater, and the objects that refer to the counters' arrays; all are replaced together.

    Parameters
    ----------
    counters : tuple of Counter
        A counter for each state.
    index : Index
        The object that finds the cell of each row, for all counters.
    mass : float64 array
        Two numbers: an upper bound on the total weight of all rows so far; and a flag, 1.0 if a weight may have bits
        below 2**-60 (which are rounded in sums), otherwise 0.0.
    drafts : dict
        The draft of each layout. Drafts write to the arrays of these counters.
    recent : dict
        The IDs of the queries in the last batch, for each state that counts queries. The keys are the indices of these
        states.
    first : dict
        The ID of the first query that was counted, with the same keys as `recent`.
    earlier_ends : tuple of BlockEnds or None
        The first and the last query of each state with which a counter started; None if the state has none.
    free_rows : list of one int
        The number of rows that can be added without allocating memory; negative while arrays are being replaced.
    last : list of one LastBatch or None
        The plan of the last batch; None if the next batch must not be counted by this plan, even if its layout is the
        same.
    """

    counters: tuple[Counter, ...]
    index: Index  # type: ignore[assignment]
    mass: Array
    drafts: dict[Any, Draft]
    recent: dict[int, Ints]
    first: dict[int, Ints]
    earlier_ends: tuple[BlockEnds | None, ...]
    free_rows: list[int]
    last: list[LastBatch | None]

    def read_states(self) -> tuple[State, ...]:
        """Return the counted rows as states, with the first and the last query of each state that counts queries."""
        return tuple([c.state().with_block_ends(self._read_ends(i)) for i, c in enumerate(self.counters)])

    def _read_ends(self, i: int) -> BlockEnds | None:
        earlier, first = self.earlier_ends[i], self.first.get(i)
        if first is None:
            return earlier
        ends = BlockEnds.of_part(first.tolist(), self.recent[i][-1].tolist())
        return ends if earlier is None else earlier.extend(ends)


class ArgumentColumns:
    """The columns that kernels read as arguments. A column that several kernels read is listed only once."""

    def __init__(self) -> None:
        self.flats: list[Array] = []
        self.typed: list[ColumnType] = []
        self.ndims: list[int] = []
        # The position of each array, keyed by the `id` of the array. The array itself is also stored, because its `id`
        # could be reused if it were deleted.
        self._places: dict[int, tuple[Array, int]] = {}

    def add(self, values: Array, source: str) -> int:
        """Add a column unless it is already in the list; return its position."""
        known = self._places.get(id(values))
        if known is None:
            known = values, len(self.flats)
            self._places[id(values)] = known
            self.flats.append(values if values.flags.c_contiguous else np.ascontiguousarray(values))
            self.typed.append(ColumnType(values.dtype, source))
            self.ndims.append(values.ndim)
        return known[1]


def make_draft(
    reads_of: Sequence[Read],
    needs_of: Sequence[tuple[Need, ...]],
    live: LiveCounters,
    names: tuple[str, ...],
    key: Any,
    arrays: tuple[Array, ...],
    widened: frozenset[str],
) -> Draft | None:
    """Return a draft (a plan for counting) for columns of this layout; None if they need preparation.

    The caller must hold the lock of the updater.

    Parameters
    ----------
    reads_of, needs_of : sequences
        The states of the updater, each with the columns that it reads; and, for each state, a `Need` for each column.
    live : LiveCounters
        The counters. The draft is also stored in `live.drafts`.
    names : tuple of str
        The names of the columns.
    key : tuple
        The layout of the columns.
    arrays : tuple of ndarray
        The columns of a batch with this layout.
    widened : frozenset of str
        The names of the columns that were converted from bfloat16 to float32.
    """
    like = dict(zip(names, arrays, strict=True))
    planned, locators = _plan_reads(reads_of, needs_of, live, like, widened), _make_locators(reads_of, live, like)
    if planned is None or locators is None:
        return None
    reads, flats, bound = planned
    typed, ndims = [ColumnType(f.dtype, f.source) for f in flats], [f.ndim for f in flats]
    sources = [(name, flat.convert) for (name, _), flat in zip(reads, flats, strict=True)]
    for path, locator in locators.items():
        for positions, counter in zip(bound, live.counters, strict=True):
            positions |= {"at": len(typed), "front": len(typed)} if counter.front == path else {}
        typed.append(ColumnType(NOTHING.dtype, ""))
        ndims.append(1)
        sources += locator.columns
    commit = bind_kernels(live, bound, typed, reads, ndims)
    converters = tuple((names.index(name), convert) for name, convert in sources)
    as_is = [i for i, _ in converters] == list(range(len(names))) and not any(m for _, m in converters)
    # Strides may differ from batch to batch, and each combination of strides is a layout with its own draft. Clear the
    # drafts as soon as there are `MOST_DRAFTS`, so that they do not use up memory.
    if len(live.drafts) >= MOST_DRAFTS:
        live.drafts.clear()
    stagers = [(c, p) for c, p in zip(live.counters, bound, strict=True) if counts_in_numpy(c.statistic)]
    build_arguments = (
        partial(_build_arguments, len(reads), tuple(locators.values()), stagers) if locators or stagers else None
    )
    draft = Draft(None if as_is else converters, commit, build_arguments)
    live.drafts[names, key] = draft
    return draft


def _plan_reads(
    reads_of: Sequence[Read],
    needs_of: Sequence[tuple[Need, ...]],
    live: LiveCounters,
    like: Mapping[str, Array],
    widened: frozenset[str],
) -> tuple[list[tuple[str, Any]], list[FlatColumn], list[dict[str, int]]] | None:
    """Return the plan for the columns that states read; None if they need preparation.

    The plan is a tuple of three lists: the name and kind of each column; the conversion of each column; and for each
    state, a dict from each role, such as `y_score`, to the position of its column in the other two lists.
    """
    batch = Batch(like)
    reads: list[tuple[str, Any]] = []
    flats: list[FlatColumn] = []
    bound: list[dict[str, int]] = []
    for read, needs, counter in zip(reads_of, needs_of, live.counters, strict=True):
        binding = read.binding
        if counter.has_weighted_parts and binding.column("sample_weight") not in like:
            # Rows without weights must be counted with weight 1. The general path (`count_batch`) creates these
            # weights.
            return None
        positions: dict[str, int] = {}
        for need in needs:
            name = binding.column(need.role)
            if name not in like:
                if need.optional and need.role not in binding.columns_by_role and not need.derived:
                    continue
                # A required column is missing. The general path (`count_batch`) raises the error.
                return None
            kind = need.kind.variant(batch, name)
            flat = plan_column(kind, like[name])
            # A column needs preparation if no kernel can check its values. The exceptions are weights, which are
            # checked separately, and integer IDs, which are always valid.
            is_unchecked = need.role != "sample_weight" and type(kind) is not Ids and find_check(kind) is None
            if flat is None or is_unchecked:
                return None
            if name in widened and flat.source == "float32":
                flat = flat._replace(source="bfloat16")
            if (name, kind) not in reads:
                reads.append((name, kind))
                flats.append(flat)
            positions[need.role] = reads.index((name, kind))
        try:
            counter.statistic.check_sources(counter.flats, {role: flats[i].source for role, i in positions.items()})
        except InvalidInputError:
            # The values of a column have a different type than in earlier batches, such as integers instead of strings.
            # The general path (`count_batch`) raises the error.
            return None
        bound.append(positions)
    return reads, flats, bound


class Locator(NamedTuple):
    """A function that finds the cell of each row (its slice or its shard), and the columns that it needs.

    Parameters
    ----------
    columns : list of (column, callable or None)
        The key or unit columns, each with its conversion if it needs one.
    find : callable
        A function that takes these columns and returns the cell of each row, or None if a row needs a new cell.
    """

    columns: list[tuple[str, Callable[[Array], Array] | None]]
    find: Callable[..., Ints | None]


def _make_locators(
    reads_of: Sequence[Read], live: LiveCounters, like: Mapping[str, Array]
) -> dict[Any, Locator] | None:
    """Return the locator of each nonempty path (sequence of key columns); None if a column needs preparation."""
    paths = {c.front: r.binding.unit for r, c in zip(reads_of, live.counters, strict=True) if c.front}
    unit = next(iter(paths.values()), None)
    # If there are shards, there must be only one path, because each call to `Index.shards` overwrites the cells that
    # the previous call returned.
    if any(r.binding.unit != unit for r in reads_of) or (unit is not None and len(paths) > 1):
        return None
    index, locators = live.index, {}
    for path in paths:
        names = [name for name, _ in path]
        # Leave a path that has no cells yet, and missing or two-dimensional columns, to `count_batch`, which creates
        # the cells or raises an error.
        if path not in index.levels or not all(n in like and like[n].ndim == 1 for n in names):
            return None
        if unit is not None:
            flat = plan_column(unit.kind, like[unit.column])
            if flat is None or index.key_codes(unit.column, "shard").kind not in ("", SHARDS["integer"]):
                return None
            locators[path] = Locator([(unit.column, flat.convert)], partial(_find_shards, index, path))
        elif all(like[n].dtype.kind in "biu" for n in names):
            cells = load_engine().KnownCells(index, path, [like[n].dtype for n in names])
            locators[path] = Locator([(n, None) for n in names], cells.find)
        else:
            return None
    return locators


def _find_shards(index: Index, path: Any, units: Array) -> Ints | None:
    """Return the cell of each unit's shard; None if a shard has no cell yet."""
    return index.shards(path, units, SHARD_SALT)


def _build_arguments(
    reads: int,
    locators: Sequence[Locator],
    stagers: Sequence[tuple[Any, Mapping[str, int]]],
    columns: Sequence[Array],
) -> tuple[Any, ...] | None:
    """Return the arguments of a commit; None if a row needs a new cell (such as a new slice).

    The arguments are the columns that states read, followed by the cells that each locator finds for the rows. For each
    counter that stores rows, there is one more argument: a call that makes the appended rows valid.

    Parameters
    ----------
    reads : int
        The number of columns that states read.
    locators : sequence of Locator
        The locators, which find the cells of the rows.
    stagers : sequence of (counter, positions)
        The counters that store rows, each with the position of the column for each role.
    columns : sequence of array
        The columns that states read, followed by the columns of each locator.
    """
    arguments, first = [*columns[:reads]], reads
    for columns_of_keys, find in locators:
        end = first + len(columns_of_keys)
        cells = find(*columns[first:end])
        if cells is None:
            return None
        arguments.append(cells)
        first = end
    arguments += [c.append_rows({role: columns[i] for role, i in positions.items()}) for c, positions in stagers]
    return tuple(arguments)


def bind_kernels(
    live: LiveCounters, bound: Sequence[Mapping[str, int]], typed: Sequence[ColumnType], reads: Sequence[Any] | None,
    ndims: Sequence[int],
) -> Callable[..., Any]:  # fmt: skip
    """Return the commit, which is the function that counts the rows of a batch.

    If the columns have been prepared, the commit does not count the rows itself. Instead, it returns a list of calls
    that count them, which the caller runs together with other calls.

    Parameters
    ----------
    live : LiveCounters
        The counters to whose arrays the kernels write.
    bound : sequence of mappings
        For each counter, the position of the column for each role.
    typed, ndims : sequences
        The type of each column (dtype and source), and its number of dimensions.
    reads : sequence of (name, kind), optional
        The name and kind of each column. The commit uses the kinds to check the columns before it counts them. None if
        the columns have been prepared, and therefore checked.
    """
    count = load_engine()
    columns = [np.zeros((0,) * d, t.dtype) for t, d in zip(typed, ndims, strict=True)]
    steps: list[tuple[Step, dict[str, int], Counter]] = []
    # Some kernels count the rows both in a state and in the same state split into shards, in one pass. This dict maps
    # the `id` of the step with such a kernel to the counter of the shards.
    shard_counters: dict[int, Counter] = {}
    for counter, positions in zip(live.counters, bound, strict=True):
        if not positions or counter in shard_counters.values():
            continue
        like = counter.describe_rows(
            {role: typed[i] for role, i in positions.items() if role not in ("at", "front", "ones")}
        )
        shard_step = None if reads is None else _find_shard_counter(counter, positions, live.counters, bound, like)
        if shard_step is not None:
            step, shard_counter, shard_positions = shard_step
            shard_counters[id(step)] = shard_counter
            steps.append((step, shard_positions, counter))
            continue
        steps += [(step, dict(positions), counter) for step in counter.statistic.steps(like)]
        if reads is not None and like.has_weights and counter.has_fixed_point_weights:
            terms = counter.has_fixed_point_terms
            step = Step("checks:mark_rounded_weights", "sample_weight", "front", terms, live.mass, State.rounded)
            steps.append((step, {r: positions[r] for r in ("sample_weight", "front") if r in positions}, counter))
    # Some counting kernels check their own columns, which saves a pass over them. If such a kernel finds an invalid
    # value, it restores only its own arrays, so no other kernel may count rows before it. Move a checking kernel that
    # counts a single cell ahead of the other counting kernels. Separate kernels, which run even earlier, check all
    # other columns.
    if reads is not None:
        steps.sort(key=lambda s: not s[0].checks or bool(s[2].front))
    calls = [] if reads is None else _collect_checks(live, steps, reads, bound)
    for step, positions, counter in steps:
        arguments: list[Any] = []
        for argument in step.arguments:
            if isinstance(argument, ShardPart):
                arguments += shard_counters[id(step)].bind_part(argument.part)
            elif isinstance(argument, str):
                arguments.append(
                    count.ColumnArgument(positions[argument]) if argument in positions else _empty_argument(argument)
                )
            elif hasattr(argument, "name") and argument.name in counter.parts:
                arguments += counter.bind_part(argument)
            else:
                arguments.append(argument)
        calls.append((step.kernel, arguments))
    bound_steps = [(count.specialize_kernel(k, a, columns), a) for k, a in calls]
    if reads is None:
        builder: Callable[..., Any] = count.build_deferred_calls(bound_steps)
        return builder
    # Before `commit` is called, the counters that store rows have copied the rows to their memory. The calls that make
    # these rows valid are the last arguments of `commit`, after the columns. They run last, after all checks.
    stagers = sum(counts_in_numpy(counter.statistic) for counter in live.counters)
    bound_steps += [(call, [count.ColumnArgument(len(columns) + i)]) for i in range(stagers)]
    commit: Callable[..., Any] = count.build_commit(bound_steps, len(columns) + stagers)
    return commit


def _collect_checks(
    live: LiveCounters, steps: Sequence[tuple[Step, dict[str, int], Counter]], reads: Sequence[Any], bound: Any
) -> list[tuple[str, list[Any]]]:
    """Return the kernels that check columns, with their arguments; skip columns that the first counting kernel checks.

    Checks of weights come last. They also add to the total weight, which would be wrong if a later check failed.
    """
    place = load_engine().ColumnArgument
    weights = sorted({positions["sample_weight"] for positions in bound if "sample_weight" in positions})
    checked: set[int] = set()
    if steps and steps[0][0].checks and not weights:
        checked = {steps[0][1][a] for a in steps[0][0].arguments if isinstance(a, str) and a in steps[0][1]}
    unchecked = [i for i in range(len(reads)) if i not in checked and i not in weights]
    checks = [(i, check) for i in unchecked if (check := find_check(reads[i][1])) is not None]
    if [c.kernel for _, c in checks] == ["checks:find_bad_label", "checks:find_bad_probability"]:
        pair = [place(i) for i, _ in checks]
        if len(weights) == 1:
            return [("checks:find_bad_weighted_pair", [*pair, place(weights[0]), live.mass])]
        return [("checks:find_bad_pair", pair)]
    calls: list[tuple[str, list[Any]]] = [(c.kernel, [place(i), *c.arguments]) for i, c in checks]
    return calls + [("checks:find_bad_weight", [place(i), live.mass]) for i in weights]


def _empty_argument(role: str) -> Array:
    return NOTHING if role in ("at", "front") else NO_WEIGHTS


def counts_in_numpy(state: State) -> bool:
    """Return whether a state overrides `absorb`, and therefore counts rows with numpy rather than with kernels."""
    return type(state).absorb is not State.absorb


def has_only_numeric_arrays(columns: tuple[Any, ...]) -> bool:
    """Return whether all numpy arrays in `columns` contain numbers; strings, times and objects need preparation.

    Columns of other classes, such as lists, are not examined.
    """
    return all(type(c) is not np.ndarray or c.dtype.kind in "biuf" for c in columns)


def can_draft(read: Read) -> bool:
    """Return whether a state can count batches without preparing their columns.

    Every row must be counted, and the values must be used unchanged. The state must have a single cell, or one cell for
    each slice or shard. A `GroupRows` state, which stores rows, must have neither slices nor shards, and must not use
    `sample_rows` or `partition`.
    """
    state, binding = read.state, read.binding
    kinds = [a.kind for a in state.axes]
    by_cell = kinds == ["shard"] or set(kinds) == {"key"}
    as_is = not state.derives_columns and type(state).check_rows is State.check_rows
    if isinstance(state, GroupRows):
        can_count = not (kinds or state.sample_rows or state.partition)
    else:
        is_outer = state.inner_axis is None and state.cells_per_row <= 1
        can_count = (not kinds or by_cell) and is_outer and not counts_in_numpy(state)
    return can_count and as_is and not (state.block_column or binding.where or binding.corrects)


def _find_shard_counter(
    counter: Counter,
    positions: Mapping[str, int],
    counters: Sequence[Counter],
    bound: Sequence[Mapping[str, int]],
    like: Any,
) -> tuple[Step, Counter, dict[str, int]] | None:
    """Find a step that counts rows both in a state and in the same state split into shards, in a single pass.

    Returns the step, the counter of the shards (random subsets of users), and the positions of that counter's columns.
    Returns None if there is no such step.
    """
    for other, other_positions in zip(counters, bound, strict=True):
        same = type(other.statistic) is type(counter.statistic) and positions.items() <= other_positions.items()
        if counter.lone and other.front and same:
            step = counter.statistic.step_with_shards(like, other.statistic)
            if step is not None:
                return step, other, dict(other_positions)
    return None


def compute_shards(batch: Batch, name: str, axis: Any) -> Ints:
    """Return the shard of each row.

    A row without a unit (such as a user ID) is in shard 0. Such a row is invalid: it either raises an error or counts
    as a dropped row of that shard.
    """
    ids = batch.column(name, Ids())
    assert isinstance(ids, IdColumn)
    words = (
        [ids.values, NOTHING] if ids.values.ndim == 1 else [np.ascontiguousarray(ids.values[:, i]) for i in range(2)]
    )
    out = np.empty(len(ids.values), np.int64)
    find_kernel("cells:find_unit_shards")(*words, SHARD_SALT, axis.size, out)
    if ids.missing is not None:
        out[ids.missing] = 0
    return out
