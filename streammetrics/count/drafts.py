"""Drafts: cached plans of how batches of one layout are counted.

The layout of a batch is what is known before its values: names, dtypes, strides and widths of its columns. A draft holds
the conversion of each column and one bound call of all kernels, the commit. It is made once for each layout, so most
batches need no decision in Python. Batches whose columns have to be prepared, because they select rows, have keys or
need a ranking, get their columns from `batch.prepared_batch`; only their kernels are bound here.
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
"""The salt of the hash that assigns units to shards."""


@cache
def load_engine() -> Any:
    """Import and return the module of everything that needs numba, at the first row that is counted."""

    def load() -> Any:
        from . import engine

        return engine

    # An interrupt (Ctrl-C) during the import would leave numba half imported, and Python could not import it again.
    return run_uninterrupted(load)


class Draft(NamedTuple):
    """The plan for batches of one layout.

    Parameters
    ----------
    converters : tuple of (column, callable or None), optional
        For each argument column, the position of the column of the user and its conversion; None if no column changes.
    commit : callable
        Counts argument columns, and returns 1 without any change if a value is bad. For prepared columns, which are
        already checked, it returns the calls that count them, to run together with other calls.
    cells : callable, optional
        Counts argument columns, and returns 1 without any change if a value is bad. For prepared columns, which are
    """

    converters: tuple[tuple[int, Callable[[Array], Array] | None], ...] | None
    commit: Callable[..., Any]
    cells: Callable[[Array], Ints | None] | None = None


class LastBatch(NamedTuple):
    """The plan of the last batch. It also serves a batch of equal names if `like` returns True for the new columns."""

    names: tuple[str, ...]
    like: Callable[..., bool]
    commit: Callable[..., Any]
    converters: tuple[tuple[int, Callable[[Array], Array] | None], ...] | None


class LiveCounters(NamedTuple):
    """The counters of an updater and everything that depends on their arrays; all are replaced together.

    Parameters
    ----------
    counters : tuple of Counter
        A counter for each state.
    index : Index
        The cells, shared by all counters.
    mass : float64 array
        Two numbers: an upper limit on the total weight, and 1.0 if a weight may have bits below 2**-60, otherwise 0.0.
    drafts : dict
        Drafts by layout, bound to the arrays of these counters.
    recent : dict
        For states that count by query, the ids of the queries in the last batch.
    free_rows : list of one int
        The number of rows for which the counters have room; negative while arrays are being replaced.
    last : list of one LastBatch or None
        How the last batch was counted.
    """

    counters: tuple[Counter, ...]
    index: Index  # type: ignore[assignment]
    mass: Array
    drafts: dict[Any, Draft]
    recent: dict[int, Ints]
    free_rows: list[int]
    last: list[LastBatch | None]


class ArgumentColumns:
    """The arrays that kernels read. An array that several kernels read is listed only once."""

    def __init__(self) -> None:
        self.flats: list[Array] = []
        self.typed: list[ColumnType] = []
        self.ndims: list[int] = []
        # Positions by the `id` of an array. The array is kept, so no other array can get the same `id`.
        self._places: dict[int, tuple[Array, int]] = {}

    def add(self, values: Array, source: str) -> int:
        """Add an array unless it is already there; return its position."""
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
    """Return the draft for plain columns like these; None if they have to be prepared. The caller holds the lock.

    Parameters
    ----------
    reads_of, needs_of : sequences
        The reads of the updater (states with their columns), and the needs of each.
    live : LiveCounters
        The counters, which also keep the draft.
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
            # The general path prepares rows without weights: it gives them weight 1.
            return None
        positions: dict[str, int] = {}
        for need in needs:
            name = binding.column(need.role)
            if name not in like:
                if need.optional and need.role not in binding.columns_by_role and not need.derived:
                    continue
                # The general path raises the error when it prepares the rows.
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
            # The general path raises the error when it prepares the rows.
            return None
        bound.append(positions)
    cells, columns_read = None, list(reads)
    if unit is not None:
        flat = plan_column(unit.kind, like[unit.column]) if unit.column in like else None
        if flat is None or live.index.key_codes(unit.column, "shard").kind not in ("", SHARDS["integer"]):
            # For units of another kind, the general path raises the error when it prepares the rows.
            return None
        for positions, counter in zip(bound, live.counters, strict=True):
            positions |= {"at": len(reads), "front": len(reads)} if counter.front else {}
        columns_read.append(unit)
        flats.append(flat)
        cells = _make_shard_locator(live.index, path)
    commit = bind_kernels(live, bound, [ColumnType(f.dtype, f.source) for f in flats], reads, [f.ndim for f in flats])
    converters = tuple((names.index(n), f.convert) for (n, _), f in zip(columns_read, flats, strict=True))
    as_is = [i for i, _ in converters] == list(range(len(names))) and not any(m for _, m in converters)
    # Strides are part of the layout and may differ in each batch, so the number of drafts needs a limit.
    if len(live.drafts) >= MOST_DRAFTS:
        live.drafts.clear()
    draft = Draft(None if as_is else converters, commit, cells)
    live.drafts[names, key] = draft
    return draft


def bind_kernels(
    live: LiveCounters, bound: Sequence[Mapping[str, int]], typed: Sequence[ColumnType], reads: Sequence[Any] | None,
    ndims: Sequence[int],
) -> Callable[..., Any]:  # fmt: skip
    """Return the call that counts argument columns: the commit, or a builder of calls if all columns are prepared.

    Parameters
    ----------
    live : LiveCounters
        The counters whose arrays the kernels write.
    bound : sequence of mappings
        For each counter, the position of the column that plays each role.
    typed, ndims : sequences
        The dtype, source and dimensions of each column.
    reads : sequence of (name, kind), optional
        What the columns hold. Then the commit first checks every column that the first kernel does not check itself;
        None means that the columns are checked already.
    """
    count = load_engine()
    columns = [np.zeros((0,) * d, t.dtype) for t, d in zip(typed, ndims, strict=True)]
    steps: list[tuple[Step, dict[str, int], Counter]] = []
    # By the `id` of a step: the second counter that the step writes to.
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
    # The first counting kernel may check its columns itself, which saves a pass over them: on a bad value it leaves its
    # counters as they were, and no other kernel has run. So a checking kernel of a single cell comes first. All other
    # columns are checked by kernels of their own before it.
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
    """Return the kernels that check those columns that the first counting kernel does not check itself.

    Checks of weights come last, because they add to the total weight: no check may fail after them.
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
    """Return whether a statistic counts rows with numpy (`absorb`) instead of kernels."""
    return type(state).absorb is not State.absorb


def can_draft(read: Read) -> bool:
    """Return whether plain columns may be counted without preparation: every row, in one cell, by kernels alone."""
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
    """Return a step that can count a single cell and its shards in one pass, the counter by shard, and its columns."""
    for other, other_positions in zip(counters, bound, strict=True):
        same = type(other.statistic) is type(counter.statistic) and positions.items() <= other_positions.items()
        if counter.lone and other.front and same:
            step = counter.statistic.step_with_shards(like, other.statistic)
            if step is not None:
                return step, other, dict(other_positions)
    return None


def _make_shard_locator(index: Index, path: Any) -> Callable[[Array], Ints | None]:
    """Return the function that turns the units of rows, such as users, into the cells of their shards."""
    return lambda units: index.shards(path, units, SHARD_SALT)


def compute_shards(batch: Batch, name: str, axis: Any) -> Ints:
    """Return the shard of each row; 0 for a row without a unit, which raises an error or counts as dropped there."""
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
