"""Drafts: cached plans for counting batches of the same layout.

The layout of a batch is everything that is known before its values: the names, dtypes, strides and widths of its
columns. A draft contains the conversion of each column, and the commit: a single call that runs all kernels with their
arguments. A draft is made once for each layout, so most batches need no decisions in Python.

Some batches need preparation, because they select rows, contain keys or need a ranking. `batch.prepared_batch` prepares
their columns, and this module only makes the call to the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.column_plan import find_check, plan_column
from ..batch.columns import Batch
from ..batch.ids import IdColumn, Ids
from ..batch.kinds import Need
from ..errors import InvalidInputError
from ..numerics.kernel_registry import find_kernel
from ..numerics.signal_safety import run_uninterrupted
from ..numerics.slice_keys import SHARDS
from ..state.state import State
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
    """Import and return the module `engine`, which needs numba. This is called when the first row is counted."""

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
        For each argument of the commit, the position of the user's column, and its conversion if it needs one. None if
        the columns are passed unchanged.
    commit : callable
        Counts the columns; returns 1 and changes nothing if a value is invalid, otherwise 0. If the columns are
        prepared, and therefore already checked, it instead returns a list of the calls that count them, which the
        caller runs together with other calls.
    cells : callable, optional
        Converts the units of the rows, such as users, to the cells of their shards. It returns None if a shard has no
        cell yet. States without shards need no such function.
    """

    converters: tuple[tuple[int, Callable[[Array], Array] | None], ...] | None
    commit: Callable[..., Any]
    cells: Callable[[Array], Ints | None] | None = None


class LastBatch(NamedTuple):
    """How the last batch was counted. The next batch is counted in the same way if its names and its layout are the same.

    `like` is the function that checks the layout: it returns True for columns of the same dtypes and strides.
    """

    names: tuple[str, ...]
    like: Callable[..., bool]
    commit: Callable[..., Any]
    converters: tuple[tuple[int, Callable[[Array], Array] | None], ...] | None


class LiveCounters(NamedTuple):
    """The counters of an updater, and everything that refers to their arrays, so that both are replaced together.

    Parameters
    ----------
    counters : tuple of Counter
        A counter for each state.
    index : Index
        Finds the cell of each row, for all counters.
    mass : float64 array
        Two numbers: an upper bound on the total weight of all rows so far; and a flag, 1.0 if a weight may have bits
        below 2**-60 (which are rounded in sums), otherwise 0.0.
    drafts : dict
        The draft of each layout, which writes to the arrays of these counters.
    recent : dict
        For each state that counts queries (by its index), the ids of the queries in the last batch.
    free_rows : list of one int
        The number of rows that can be added without allocating memory; negative while arrays are being replaced.
    last : list of one LastBatch or None
        How the last batch was counted; None if the next batch must not be counted in the same way.
    """

    counters: tuple[Counter, ...]
    index: Index  # type: ignore[assignment]
    mass: Array
    drafts: dict[Any, Draft]
    recent: dict[int, Ints]
    free_rows: list[int]
    last: list[LastBatch | None]


class ArgumentColumns:
    """The columns that kernels read as arguments. A column that several kernels read is listed only once."""

    def __init__(self) -> None:
        self.flats: list[Array] = []
        self.typed: list[ColumnType] = []
        self.ndims: list[int] = []
        # The position of each array by its `id`. The array is also stored: while it exists, no other array can get the
        # same `id`.
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
    """Return a draft for columns like these; None if they need preparation. The caller must hold the lock.

    Parameters
    ----------
    reads_of, needs_of : sequences
        The states of the updater with their columns, and for each state the columns that it needs.
    live : LiveCounters
        The counters. The draft is also stored in `live.drafts`.
    names : tuple of str
        The names of the columns.
    key : tuple
        The layout of the columns.
    arrays : tuple of ndarray
        Columns of this layout.
    widened : frozenset of str
        The names of the columns that were bfloat16 and are now float32.
    """
    like = dict(zip(names, arrays, strict=True))
    batch = Batch(like)
    units = {r.binding.unit: c.front for r, c in zip(reads_of, live.counters, strict=True) if c.front}
    unit, path = next(iter(units.items()), (None, ()))
    if len(units) > 1 or any(r.binding.unit != unit for r in reads_of):
        return None
    reads: list[tuple[str, Any]] = []
    flats: list[Any] = []
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
            if flat is None or (need.role != "sample_weight" and find_check(kind) is None):
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
            # The column is of a different kind from before. The general path (`count_batch`) raises the error.
            return None
        bound.append(positions)
    cells, columns_read = None, list(reads)
    if unit is not None:
        flat = plan_column(unit.kind, like[unit.column]) if unit.column in like else None
        if flat is None or live.index.key_codes(unit.column, "shard").kind not in ("", SHARDS["integer"]):
            # The column of units is missing or of a different kind from before. The general path (`count_batch`)
            # handles it.
            return None
        for positions, counter in zip(bound, live.counters, strict=True):
            positions |= {"at": len(reads), "front": len(reads)} if counter.front else {}
        columns_read.append(unit)
        flats.append(flat)
        cells = _make_shard_locator(live.index, path)
    commit = bind_kernels(live, bound, [ColumnType(f.dtype, f.source) for f in flats], reads, [f.ndim for f in flats])
    converters = tuple((names.index(n), f.convert) for (n, _), f in zip(columns_read, flats, strict=True))
    as_is = [i for i, _ in converters] == list(range(len(names))) and not any(m for _, m in converters)
    # Strides may differ from batch to batch, and each combination of strides is a layout with its own draft. Clear the
    # drafts at a limit, so that they do not accumulate.
    if len(live.drafts) >= MOST_DRAFTS:
        live.drafts.clear()
    draft = Draft(None if as_is else converters, commit, cells)
    live.drafts[names, key] = draft
    return draft


def bind_kernels(
    live: LiveCounters, bound: Sequence[Mapping[str, int]], typed: Sequence[ColumnType], reads: Sequence[Any] | None,
    ndims: Sequence[int],
) -> Callable[..., Any]:  # fmt: skip
    """Return the call that counts columns: the commit.

    If the columns are already prepared, this call does not count them itself. It returns a list of calls that do, which
    the caller runs together with others.

    Parameters
    ----------
    live : LiveCounters
        The counters to whose arrays the kernels write.
    bound : sequence of mappings
        For each counter, the position of the column of each role.
    typed, ndims : sequences
        The type of each column (dtype and source), and its number of dimensions.
    reads : sequence of (name, kind), optional
        The name and kind of each column. The commit then begins with checks of the columns. None if the columns are
        prepared, and therefore already checked.
    """
    count = load_engine()
    columns = [np.zeros((0,) * d, t.dtype) for t, d in zip(typed, ndims, strict=True)]
    steps: list[tuple[Step, dict[str, int], Counter]] = []
    # Some kernels also count the shards of a state in the same pass. This dict maps the `id` of the step of such a
    # kernel to the counter of these shards.
    shard_counters: dict[int, Counter] = {}
    for counter, positions in zip(live.counters, bound, strict=True):
        if not positions or counter in shard_counters.values() or counts_in_numpy(counter.statistic):
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
    # The first counting kernel may check its own columns, which saves a pass over them. It can do so only as the first
    # kernel: on an invalid value it restores its own arrays, and no other kernel may have written anything before. So a
    # kernel that checks its columns goes first if it counts a single cell. Separate kernels check all other columns
    # before it runs.
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
    builder: Callable[..., Any] = (
        count.build_deferred_calls(bound_steps) if reads is None else count.build_commit(bound_steps, len(columns))
    )
    return builder


def _collect_checks(
    live: LiveCounters, steps: Sequence[tuple[Step, dict[str, int], Counter]], reads: Sequence[Any], bound: Any
) -> list[tuple[str, list[Any]]]:
    """Return the kernels that check columns, except the columns that the first counting kernel checks itself.

    Checks of weights come last: they also add to the total weight, so no other check may fail after them.
    """
    place = load_engine().ColumnArgument
    weights = sorted({positions["sample_weight"] for positions in bound if "sample_weight" in positions})
    checked: set[int] = set()
    if steps and steps[0][0].checks and not weights:
        checked = {steps[0][1][a] for a in steps[0][0].arguments if isinstance(a, str) and a in steps[0][1]}
    unchecked = [i for i in range(len(reads)) if i not in checked and i not in weights]
    checks = [(i, find_check(reads[i][1])) for i in unchecked]
    named = [c.kernel for _, c in checks if c is not None]
    if named == ["checks:find_bad_label", "checks:find_bad_probability"]:
        pair = [place(i) for i in unchecked]
        if len(weights) == 1:
            return [("checks:find_bad_weighted_pair", [*pair, place(weights[0]), live.mass])]
        return [("checks:find_bad_pair", pair)]
    calls: list[tuple[str, list[Any]]] = [(c.kernel, [place(i), *c.arguments]) for i, c in checks if c is not None]
    return calls + [("checks:find_bad_weight", [place(i), live.mass]) for i in weights]


def _empty_argument(role: str) -> Array:
    return NOTHING if role in ("at", "front") else NO_WEIGHTS


def counts_in_numpy(state: State) -> bool:
    """Return whether a state counts rows with numpy, in a method `absorb` of its own, rather than with kernels."""
    return type(state).absorb is not State.absorb


def can_draft(read: Read) -> bool:
    """Return whether a state can be counted without preparing its columns.

    This requires that kernels count every row, unchanged, in a single cell or in the cells of shards.
    """
    state, binding = read.state, read.binding
    by_shard = [a.kind for a in state.axes] == ["shard"] and (state.folding is None or state.exact_rows_limit == 0)
    lone = (not state.axes or by_shard) and state.inner_axis is None and state.cells_per_row <= 1
    as_is = not state.derives_columns and type(state).check_rows is State.check_rows
    return lone and as_is and not (counts_in_numpy(state) or state.block_column or binding.where or binding.corrects)


def _find_shard_counter(
    counter: Counter,
    positions: Mapping[str, int],
    counters: Sequence[Counter],
    bound: Sequence[Mapping[str, int]],
    like: Any,
) -> tuple[Step, Counter, dict[str, int]] | None:
    """Return a kernel step that counts a state and the same state by shard in a single pass over the rows.

    Returns the step, the counter of the shards, and the positions of its columns; None if there is no such step.
    """
    for other, other_positions in zip(counters, bound, strict=True):
        same = type(other.statistic) is type(counter.statistic) and positions.items() <= other_positions.items()
        if counter.lone and other.front and same:
            step = counter.statistic.step_with_shards(like, other.statistic)
            if step is not None:
                return step, other, dict(other_positions)
    return None


def _make_shard_locator(index: Index, path: Any) -> Callable[[Array], Ints | None]:
    """Return a function that maps the units of rows, such as users, to the cells of their shards."""
    return lambda units: index.shards(path, units, SHARD_SALT)


def compute_shards(batch: Batch, name: str, axis: Any) -> Ints:
    """Return the shard of each row.

    A row without a unit gets shard 0. Such a row is invalid: it raises an error or counts as dropped in that shard.
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
