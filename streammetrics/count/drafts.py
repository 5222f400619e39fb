"""Drafts: how batches of some dtypes are counted, decided once: the conversion of columns, and the kernels to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.column_plan import check_of, flat_of
from ..batch.columns import Batch
from ..batch.kinds import Need
from ..errors import InvalidInputError
from ..numerics.keys import SHARDS
from ..numerics.signal_safety import undivided
from ..state.state import State
from ..statistics.step import NO_WEIGHTS, NOTHING, Beside, Step, Typed
from .reads import Read

if TYPE_CHECKING:
    from .counter import Counter
    from .index import Index

__all__ = ["Draft", "Given", "Held", "Last", "absorbs", "bind", "can_draft", "counting", "draft_of"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
MOST_DRAFTS = 256
SHARD_SALT = np.uint64(0x5348415244000001)
"""The salt of the hash that says in which shard a unit is."""


@cache
def counting() -> Any:
    """What counts: loaded at the first row, so that merging and reading need no kernels.

    Numba that a Ctrl-C had left half imported could not be imported again.
    """

    def load() -> Any:
        from . import engine

        return engine

    return undivided(load)


class Draft(NamedTuple):
    """How batches of some dtypes are counted.

    Parameters
    ----------
    makes : tuple of (column, callable or None)
        How each flat column is made of those given.
    commit : callable
        Counts flat columns; returns 1, and leaves everything as it was, on a bad value. Of prepared columns, all good, the
        calls that count them, to be taken as one with others.
    cells : callable, optional
        Turns the last flat column, of units, into the cell of each row; None if one is new.
    """

    makes: tuple[tuple[int, Callable[[Array], Array] | None], ...] | None
    commit: Callable[..., Any]
    cells: Callable[[Array], Ints | None] | None = None


class Last(NamedTuple):
    """How the batch before was counted: columns of these names that are like its columns are counted alike."""

    names: tuple[str, ...]
    like: Callable[..., bool]
    commit: Callable[..., Any]
    makes: tuple[tuple[int, Callable[[Array], Array] | None], ...] | None


class Held(NamedTuple):
    """All that a feed holds while rows come, on one attribute; for how many rows is `left` (see `_room`).

    `last` has how the batch before was counted, or None.
    """

    counters: tuple[Counter, ...]
    index: Index  # type: ignore[assignment]
    mass: Array
    drafts: dict[Any, Draft]
    recent: dict[int, Ints]
    left: list[int]
    last: list[Last | None]


class Given:
    """Arrays that kernels are given, each once, however many read it."""

    def __init__(self) -> None:
        self.flats: list[Array] = []
        self.typed: list[Typed] = []
        self.ndims: list[int] = []
        self._places: dict[int, tuple[Array, int]] = {}  # with the array, lest another gets its number

    def place(self, values: Array, source: str) -> int:
        """Say where an array stands."""
        known = self._places.get(id(values))
        if known is None:
            known = values, len(self.flats)
            self._places[id(values)] = known
            self.flats.append(values if values.flags.c_contiguous else np.ascontiguousarray(values))
            self.typed.append(Typed(values.dtype, source))
            self.ndims.append(values.ndim)
        return known[1]


def draft_of(
    reads_of: Sequence[Read],
    needs_of: Sequence[tuple[Need, ...]],
    held: Held,
    names: tuple[str, ...],
    key: Any,
    arrays: tuple[Array, ...],
    widened: frozenset[str],
) -> Draft | None:
    """Say how plain columns like these are counted; None if they have to be prepared. The caller has the lock."""
    like = dict(zip(names, arrays, strict=True))
    batch = Batch(like)
    units = {r.binding.unit: c.front for r, c in zip(reads_of, held.counters, strict=True) if c.front}
    unit, path = next(iter(units.items()), (None, ()))
    if len(units) > 1 or any(r.binding.unit != unit for r in reads_of):
        return None
    reads: list[tuple[str, Any]] = []
    flats: list[Any] = []
    bound: list[dict[str, int]] = []
    for read, needs, counter in zip(reads_of, needs_of, held.counters, strict=True):
        binding = read.binding
        if counter.weighed and binding.column("sample_weight") not in like:
            return None  # rows without weights are rows of weight 1
        mine: dict[str, int] = {}
        for need in needs:
            name = binding.column(need.role)
            if name not in like:
                if need.optional and need.role not in binding.bound and not need.derived:
                    continue
                return None  # what is missing is said there
            kind = need.kind.variant(batch, name)
            flat = flat_of(kind, like[name])
            if flat is None or (need.role != "sample_weight" and check_of(kind) is None):
                return None
            if name in widened and flat.source == "float32":
                flat = flat._replace(source="bfloat16")
            if (name, kind) not in reads:
                reads.append((name, kind))
                flats.append(flat)
            mine[need.role] = reads.index((name, kind))
        try:
            counter.statistic.admit_beside(counter.flats, {role: flats[i].source for role, i in mine.items()})
        except InvalidInputError:
            return None  # it is raised there
        bound.append(mine)
    cells, given = None, list(reads)
    if unit is not None:
        flat = flat_of(unit.kind, like[unit.column]) if unit.column in like else None
        if flat is None or held.index.numbers(unit.column, "shard").kind not in ("", SHARDS["integer"]):
            return None  # units of another kind are refused there
        for mine, counter in zip(bound, held.counters, strict=True):
            mine |= {"at": len(reads), "front": len(reads)} if counter.front else {}
        given.append(unit)
        flats.append(flat)
        cells = _cells_of(held.index, path)
    commit = bind(held, bound, [Typed(f.dtype, f.source) for f in flats], reads, [f.ndim for f in flats])
    makes = tuple((names.index(n), f.make) for (n, _), f in zip(given, flats, strict=True))
    as_is = [i for i, _ in makes] == list(range(len(names))) and not any(m for _, m in makes)
    if len(held.drafts) >= MOST_DRAFTS:  # of strides that never come again
        held.drafts.clear()
    draft = Draft(None if as_is else makes, commit, cells)
    held.drafts[names, key] = draft
    return draft


def bind(
    held: Held, bound: Sequence[Mapping[str, int]], typed: Sequence[Typed], reads: Sequence[Any] | None,
    ndims: Sequence[int],
) -> Callable[..., Any]:  # fmt: skip
    """Return the call that counts flat columns; `bound` says for each state which column plays which role.

    With `reads`, what the columns hold, all that nothing else checks is checked first.
    """
    count = counting()
    columns = [np.zeros((0,) * d, t.dtype) for t, d in zip(typed, ndims, strict=True)]
    steps: list[tuple[Step, dict[str, int], Counter]] = []
    beside: dict[int, Counter] = {}  # by the number of a step, what it counts besides
    for counter, mine in zip(held.counters, bound, strict=True):
        if not mine or counter in beside.values() or absorbs(counter.statistic):
            continue
        like = counter.like({role: typed[i] for role, i in mine.items() if role not in ("at", "front", "ones")})
        other = None if reads is None else _same_by_shard(counter, mine, held.counters, bound, like)
        if other is not None:
            step, fellow, columns_of = other
            beside[id(step)] = fellow
            steps.append((step, columns_of, counter))
            continue
        steps += [(step, dict(mine), counter) for step in counter.statistic.steps(like)]
        if reads is not None and like.weighted and counter.fixed_weights:
            terms = counter.fixed_terms
            step = Step("checks:note_rounding", "sample_weight", "front", terms, held.mass, State.rounded)
            steps.append((step, {r: mine[r] for r in ("sample_weight", "front") if r in mine}, counter))
    if reads is not None:
        steps.sort(key=lambda s: not s[0].checks or bool(s[2].front))
    made = [] if reads is None else _checks(held, steps, reads, bound)
    for step, mine, counter in steps:
        arguments: list[Any] = []
        for argument in step.arguments:
            if isinstance(argument, Beside):
                arguments += beside[id(step)].held(argument.part)
            elif isinstance(argument, str):
                arguments.append(count.Place(mine[argument]) if argument in mine else _absent(argument))
            elif hasattr(argument, "name") and argument.name in counter.parts:
                arguments += counter.held(argument)
            else:
                arguments.append(argument)
        made.append((step.kernel, arguments))
    bound_steps = [(count.bound(k, a, columns), a) for k, a in made]
    made_of: Callable[..., Any] = (
        count.calls_of(bound_steps) if reads is None else count.commit_of(bound_steps, len(columns))
    )
    return made_of


def _checks(
    held: Held, steps: Sequence[tuple[Step, dict[str, int], Counter]], reads: Sequence[Any], bound: Any
) -> list[tuple[str, list[Any]]]:
    """The checks of what the first counter does not check itself; of weights last, as their total is kept."""
    place = counting().Place
    weights = sorted({mine["sample_weight"] for mine in bound if "sample_weight" in mine})
    done: set[int] = set()
    if steps and steps[0][0].checks and not weights:
        done = {steps[0][1][a] for a in steps[0][0].arguments if isinstance(a, str) and a in steps[0][1]}
    left = [i for i in range(len(reads)) if i not in done and i not in weights]
    checks = [(i, check_of(reads[i][1])) for i in left]
    named = [c.kernel for _, c in checks if c is not None]
    if named == ["checks:labels", "checks:probabilities"]:
        pair = [place(i) for i in left]
        if len(weights) == 1:
            return [("checks:weighted_pairs", [*pair, place(weights[0]), held.mass])]
        return [("checks:pairs", pair)]
    made: list[tuple[str, list[Any]]] = [(c.kernel, [place(i), *c.arguments]) for i, c in checks if c is not None]
    return made + [("checks:weights", [place(i), held.mass]) for i in weights]


def _absent(role: str) -> Array:
    return NOTHING if role in ("at", "front") else NO_WEIGHTS


def absorbs(state: State) -> bool:
    """Return whether a statistic counts rows by itself, not by steps of kernels."""
    return type(state).absorb is not State.absorb


def can_draft(read: Read) -> bool:
    """Whether plain columns may be counted as they come: every row, in one cell, by kernels alone."""
    state, binding = read.state, read.binding
    by_shard = [a.kind for a in state.axes] == ["shard"] and (state.folds is None or state.most == 0)
    lone = (not state.axes or by_shard) and state.behind is None and state.spread <= 1
    as_is = not state.derives and type(state).admit_rows is State.admit_rows
    return lone and as_is and not (absorbs(state) or state.together or binding.where or binding.corrects)


def _same_by_shard(
    counter: Counter,
    mine: Mapping[str, int],
    counters: Sequence[Counter],
    bound: Sequence[Mapping[str, int]],
    like: Any,
) -> tuple[Step, Counter, dict[str, int]] | None:
    """The step that counts a lone cell and the same rows by shard at once, the counter of these, and its columns."""
    for other, theirs in zip(counters, bound, strict=True):
        same = type(other.statistic) is type(counter.statistic) and mine.items() <= theirs.items()
        if counter.lone and other.front and same:
            step = counter.statistic.step_with_shards(like, other.statistic)
            if step is not None:
                return step, other, dict(theirs)
    return None


def _cells_of(index: Index, path: Any) -> Callable[[Array], Ints | None]:
    """What turns units into the cells of their shards."""
    return lambda units: index.shards(path, units, SHARD_SALT)
