"""State: one statistic, times some axes, as one immutable table of cells in canonical form.

Nesting is having more axes. Merge, subtract, roll-up, selection, totals, limits and expiry are one operation, `fold`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from ..errors import IncompatibleStateError, MemoryLimitError
from ..numerics.canonical import canonical_json
from ..numerics.exact import slip
from ..numerics.settings import Settings, encode_setting, setting, union, unions, unlike
from .axes import Axis, Vocabulary
from .cells import Cells
from .declare import Array, Flat, Part, Tally, carry
from .fold import fold, regroup
from .policy import settled
from .tally import Entries

__all__ = ["State"]

Ints = NDArray[np.int64]
ALL = ("dropped", "rounded")  # what every state has


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False, field_specifiers=(setting, union))
class State(Settings):
    """A sufficient statistic: what was seen, enough to answer every metric that reads it.

    A subclass declares settings and parts, says which columns it `needs`, and which kernel counts them (`steps`).
    Everything else follows: merge, subtract, bytes, checks of hostile values, repr, equality, digest. The settings are the
    identity: only equal ones merge. Made with settings alone, a state has seen nothing; it never changes.

    Notes
    -----
    A part is read as an attribute of a state of one cell: an array, or `Entries`; absent optional parts are None.
    """

    tag: ClassVar[str] = ""
    together: ClassVar[str | None] = None
    """The role of the column whose equal rows, a block, stand side by side and come in one batch: `query`."""
    behind: ClassVar[Axis | None] = None
    """The axis that the statistic brings itself."""
    counted: ClassVar[tuple[str, ...]] = ("rows",)
    """The parts that count rows."""
    folds: ClassVar[tuple[str, str, str] | None] = None
    """A tally of exact rows, that of the buckets they become beyond `most` rows, and the flag of what was lost thereby."""

    dropped = Flat("reasons", optional=True, front=True)
    rounded = Flat(form="flag", optional=True, front=True)
    """Whether a weight had bits below 2**-60, which its sum does not have (see `slip`)."""

    by_tag: ClassVar[dict[str, type[State]]] = {}
    declared: ClassVar[dict[str, Part]] = {}

    def __init_subclass__(cls, tag: str = "", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        found: dict[str, Part] = {}
        for name, thing in vars(cls).items():
            if isinstance(thing, Part) and name not in ALL and hasattr(State, name):
                raise TypeError(f"{cls.__name__}.{name}: every state has a {name!r}; call the part something else")
        for base in reversed(cls.__mro__):
            found |= {n: p for n, p in vars(base).items() if isinstance(p, Part)}
        optional = sorted(n for n, p in found.items() if isinstance(p, Flat) and p.optional)
        cls.declared = {n: p for n, p in found.items() if n not in optional} | {n: found[n] for n in optional}
        if tag:
            taken = State.by_tag.get(tag)
            if taken is not None and taken.__qualname__ != cls.__qualname__:
                raise TypeError(f"the state tag {tag!r} is already taken by {taken.__qualname__}")
            cls.tag = tag
            State.by_tag[tag] = cls

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in unions(type(self)):  # type: ignore[arg-type] # sets, so that states alone and in a collection are alike
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))

    # -- what a statistic declares ------------------------------------------------------------------------------------

    def needs(self) -> tuple[Any, ...]:
        """The columns that are read, each with its check."""
        raise NotImplementedError(f"{type(self).__name__} does not say which columns it needs")

    def steps(self, like: Any) -> Iterable[Any]:
        """The kernels that count checked columns `like` these (see `count.steps`)."""
        raise NotImplementedError(f"{type(self).__name__} cannot count rows")

    def derive(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make what `steps` read of checked columns: to scratch, before anything is counted."""
        return columns

    def absorb(self, into: dict[str, Array], at: Ints, **columns: Any) -> None:
        """Count checked rows, each in its cell, into copies of the parts, cells first: for what numpy counts.

        Then there are no `steps`. Sums need not be carried; a tally takes a list to which (cells, places, weights) are
        appended, weights being None where there are none.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot count rows")

    @property
    def spread(self) -> int:
        """How many cells side by side each row goes to, one for each label."""
        return 1

    def admit_rows(self, columns: Mapping[str, Any], at: Ints) -> None:
        """Raise unless checked rows, each in its front cell (`at` is empty for a lone state), may be counted together."""

    def admit_beside(self, flats: Mapping[str, Array], columns: Mapping[str, Any]) -> None:
        """Raise unless checked rows may be counted with those before; `flats` holds the parts of all cells so far."""

    def class_codes(self, columns: Mapping[str, Any], numbers: Any) -> tuple[Ints, ...]:
        """Of a statistic of classes behind: the number of the class of each row, for each column of the axis."""
        raise NotImplementedError

    def admit_classes(self, count: int) -> None:
        """Raise unless there may be so many different classes behind."""

    @property
    def fixed_weights(self) -> bool:
        """Whether weights are summed as multiples of 2**-60."""
        parts = self.parts()
        flat = parts.get("excess")
        return any(isinstance(p, Tally) for p in parts.values()) or getattr(flat, "form", "") == "fixed"

    @cached_property
    def slip(self) -> Fraction:
        """How far, relatively, any weight of a state of one cell can be from what was counted; 0 if none was rounded."""
        if self.rounded is None or not self.rounded:
            return Fraction(0)
        held = [(e.mass, e.excess) for e in self.cells.tallies.values()]
        if (excess := self.cells.flats.get("excess")) is not None and excess.shape[-1] == 2:
            rows = self.cells.flats[self.counted[0]]
            if rows.shape != excess.shape[:-1]:
                return Fraction(1, 1 << 25)  # half a unit beside the smallest weight
            held.append((rows, excess))
        return max((slip(rows, e) for rows, e in held if len(rows)), default=Fraction(0))

    def weight_limit(self) -> float:
        """An upper limit of the weight of all rows."""
        return self.rows_about + self.weight_beside

    @cached_property
    def weight_beside(self) -> float:
        """How far the weight of all rows is from their number, at most."""
        excess = self.cells.flats.get("excess")
        held = [e.excess for e in self.cells.tallies.values()]
        held += [excess] if excess is not None and excess.shape[-1] == 2 else []
        return sum(_size(x[..., 0]) * 2.0**-20 for x in held if x is not None)

    @property
    def times(self) -> int:
        """How often a row is counted in `counted`."""
        return 1

    @property
    def most(self) -> int | None:
        """Of a statistic that folds: the rows of a cell that are kept exactly; None for all."""
        return None

    def bucketed(self, exact: Entries) -> tuple[Entries, Ints]:
        """Of a statistic that folds: the bucket entries of exact ones, and the cells in which something was lost."""
        raise NotImplementedError

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a row may be left out: `where`, the role of a bad value, or an epoch that has expired."""
        return ("where", *dict.fromkeys(n.role for n in self.needs()), "expired")

    @property
    def ordered(self) -> bool:
        """Whether the order of the rows of a block matters."""
        return False

    def contradiction(self, columns: Mapping[str, Any]) -> tuple[str, int, str] | None:
        """Say which checked row contradicts others, or is not for this state: its role, the row, and why; or None."""
        return None

    def plausible(self, columns: dict[str, Array]) -> dict[str, Array]:
        """Make columns that were made up one by one, for the laws, fit together (see `contradiction`)."""
        return columns

    def corrected(self, negative_rate: float, scale: str) -> Self:
        """Return a view from which scores are read as those of the full log, of what was counted as it was given."""
        return self

    def check(self) -> None:
        """Raise StateFormatError where decoded parts, of all cells, contradict one another."""

    def alike(self, states: Sequence[Self]) -> Sequence[Self]:
        """Let states that are to be added know the same parts (see `OpaqueState`)."""
        return states

    def reasoned(self, reason: str) -> Self:
        """Return this state as one that knows a reason for leaving rows out."""
        return self

    def facts(self) -> dict[str, Any]:
        """What is worth telling about a state of one cell: rows, positives, weight."""
        return {}

    def parts(self) -> Mapping[str, Any]:
        """The declared parts by name, in the order in which they are written."""
        return self.declared

    # -- content ------------------------------------------------------------------------------------------------------

    @cached_property
    def cells(self) -> Cells:
        """What was seen; read-only."""
        return self.no_cells(())

    def no_cells(self, axes: tuple[Axis, ...]) -> Cells:
        """Cells without any."""
        words = tuple(Vocabulary() for a in axes for _ in a.names)
        inner = None if self.behind is None else np.zeros((0, 1 + self.behind.width), np.int64)
        behind = Vocabulary() if self.behind is not None and self.behind.kind == "class" else None
        flats = {n: p.empty(self, 0) for n, p in self.parts().items() if isinstance(p, Flat) and not p.optional}
        tallies = {
            n: Entries.none(p.shift(self), wide=p.wide(self)) for n, p in self.parts().items() if isinstance(p, Tally)
        }
        return Cells(
            axes, np.zeros((0, sum(len(a.names) for a in axes)), np.int64), words, inner, behind, flats, tallies
        )

    def holding(self, cells: Cells) -> Self:
        """Return a state of the same settings with this content, which is canonical."""
        new = object.__new__(type(self))
        new.__dict__.update({f.name: getattr(self, f.name) for f in fields(self)})  # type: ignore[arg-type]
        new.__dict__["cells"] = cells
        return new

    def empty(self, axes: tuple[Axis, ...] | None = None) -> Self:
        """Return a state of the same settings that has seen nothing, of other axes if these are given."""
        return self.holding(self.no_cells(self.cells.axes if axes is None else axes))

    def with_settings(self, **settings: Any) -> Self:
        """Return an empty state of other settings."""
        ours = {f.name: getattr(self, f.name) for f in fields(self) if f.init}  # type: ignore[arg-type]
        return type(self)(**(ours | settings))

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What front cells are told apart by."""
        cells = self.__dict__.get("cells")  # of a state that has seen nothing they are not made for this
        return () if cells is None else cells.axes

    def __len__(self) -> int:
        return self.cells.fronts

    def __bool__(self) -> bool:
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of memory the content takes."""
        return self.cells.nbytes

    def part(self, flat: Flat) -> Array | None:
        """One part of a state of one cell, or of the cells behind it."""
        self._lone()
        cells = self.cells
        behind = cells.inner is not None and not flat.front
        if flat.name not in cells.flats:
            return None
        array: Array = cells.flats[flat.name]
        if behind:
            return array
        one: Array = array[0] if len(array) else flat.empty(self, 1)[0]
        return one

    def entries(self, part: Tally) -> Entries:
        """The entries of a state of one cell, or of the cells behind it."""
        self._lone()
        return self.cells.tallies[part.name]

    def _lone(self) -> None:
        if self.cells.axes:
            names = ", ".join(self.cells.columns)
            raise TypeError(f"this {type(self).__name__} has a cell for each {names}: read one of them, or the total")

    def spelled(self, flat: Flat) -> Array:
        """One part of all cells, spelled out where it is absent."""
        cells = self.cells
        if flat.name in cells.flats:
            return cells.flats[flat.name]
        size = cells.fronts if flat.front or cells.inner is None else len(cells)
        made = flat.empty(self, size)
        if flat.like is not None and size:
            source = cells.flats[flat.like]
            if made.ndim == source.ndim:
                made[...] = source
                carry(flat.form, made)
            else:
                made[..., 0] = source << 20
        return made

    def flat(self, name: str) -> Array:
        """One part of all cells by name, spelled out where it is absent."""
        part = self.parts()[name]
        return self.spelled(part)

    def starts(self, name: str) -> Ints:
        """Where the entries of each cell begin in a tally, and the end."""
        kept: dict[str, Ints] = self.__dict__.setdefault("_starts", {})
        if name not in kept:
            kept[name] = self.cells.tallies[name].starts(len(self.cells))
        return kept[name]

    def by_cell(self, name: str) -> Ints:
        """The rows that a tally counts in each cell."""
        starts, counts = self.starts(name), self.cells.tallies[name].counts
        if len(starts) == 2:
            return np.array([counts.sum(dtype=np.int64)])
        held = starts[1:] > starts[:-1]
        out = np.zeros(len(held), np.int64)
        if held.any():
            out[held] = np.add.reduceat(counts, starts[:-1][held], dtype=np.int64)
        return out

    @cached_property
    def rows_behind(self) -> Ints:
        """Rows of each cell, those behind front cells told apart."""
        total = np.zeros(len(self.cells), np.int64)
        for name in self.counted:
            if name in self.cells.tallies:
                total += self.by_cell(name)
            elif name in self.cells.flats:
                rows = self.cells.flats[name]
                total += rows.sum(axis=tuple(range(1, rows.ndim)))
        return total // self.times

    @cached_property
    def rows_about(self) -> float:
        """Rows of all cells, as a float."""
        cells = self.cells
        held = [cells.tallies[n].counts if n in cells.tallies else cells.flats.get(n) for n in self.counted]
        return sum(float(a.sum(dtype=np.float64)) for a in held if a is not None) / self.times

    @property
    def gone_about(self) -> float:
        """Rows of all cells that were left out, as a float."""
        gone = self.cells.flats.get("dropped")
        return 0.0 if gone is None else float(gone.sum(dtype=np.float64))

    @cached_property
    def rows_seen(self) -> Ints:
        """Rows of each front cell that were counted."""
        if self.cells.inner is None:
            return self.rows_behind
        out = np.zeros(len(self), np.int64)
        np.add.at(out, self.cells.inner[:, 0], self.rows_behind)
        return out

    @cached_property
    def seen(self) -> Ints:
        """Rows of each front cell, those left out included: what says that it is there."""
        gone = self.cells.flats.get("dropped")
        return self.rows_seen if gone is None else self.rows_seen + gone.sum(axis=1)

    # -- one operation, many uses -------------------------------------------------------------------------------------

    def present(self, parts: Mapping[str, Any] | None = None) -> Self:
        """Forget cells without rows, words without cells, and optional parts that say nothing."""
        state = self
        if state.cells.inner is not None and not (state.rows_behind > 0).all():
            state = state._take_inner(np.flatnonzero(state.rows_behind > 0))
        if not (state.seen > 0).all():
            state = state._take_fronts(np.flatnonzero(state.seen > 0))
        cells = state.cells
        flats = {
            n: a
            for n, a in cells.flats.items()
            if not (p := (parts or state.parts())[n]).optional or not state._says_nothing(p, a)
        }
        if len(flats) < len(cells.flats):
            state = state.holding(replace(cells, flats=flats))
        return state._used_words()

    def _says_nothing(self, flat: Flat, array: Array) -> bool:
        if flat.like is None:
            return not array.any()
        bare = {n: a for n, a in self.cells.flats.items() if n != flat.name}
        return bool(np.array_equal(array, self.holding(replace(self.cells, flats=bare)).spelled(flat)))

    def _used_words(self) -> Self:
        cells = self.cells
        keys, words = cells.keys, list(cells.words)
        for i, vocabulary in enumerate(words):
            if len(vocabulary):
                used, keys = _ranked(keys, slice(i, i + 1), len(vocabulary))
                if used is not None:
                    words[i] = vocabulary.take(used)
        inner, behind = cells.inner, cells.behind
        if behind is not None and inner is not None and len(behind):
            used, inner = _ranked(inner, slice(1, None), len(behind))
            if used is not None:
                behind = behind.take(used)
        if keys is cells.keys and inner is cells.inner:
            return self
        return self.holding(replace(cells, keys=keys, words=tuple(words), inner=inner, behind=behind))

    def _take_fronts(self, chosen: Ints) -> Self:
        cells, parts = self.cells, self.parts()
        if cells.inner is not None:
            to = np.full(len(self), -1)
            to[chosen] = np.arange(len(chosen))
            kept = self._take_inner(np.flatnonzero(to[cells.inner[:, 0]] >= 0))
            inner = kept.cells.inner
            assert inner is not None
            renumbered = np.column_stack([to[inner[:, 0]], inner[:, 1:]])
            cells = replace(kept.cells, inner=renumbered)
            flats = {n: a[chosen] if parts[n].front else a for n, a in cells.flats.items()}
            return self.holding(replace(cells, keys=cells.keys[chosen], flats=flats))
        flats = {n: a[chosen] for n, a in cells.flats.items()}
        tallies = {n: e.take(chosen, self.starts(n)) for n, e in cells.tallies.items()}
        return self.holding(replace(cells, keys=cells.keys[chosen], flats=flats, tallies=tallies))

    def _take_inner(self, chosen: Ints) -> Self:
        cells, parts = self.cells, self.parts()
        assert cells.inner is not None
        flats = {n: a if parts[n].front else a[chosen] for n, a in cells.flats.items()}
        tallies = {n: e.take(chosen, self.starts(n)) for n, e in cells.tallies.items()}
        return self.holding(replace(cells, inner=cells.inner[chosen], flats=flats, tallies=tallies))

    def select(self, which: Array) -> Self:
        """Keep the front cells of a mask, or of an index in ascending order."""
        chosen = np.flatnonzero(which) if which.dtype == bool else which
        return self._take_fronts(np.asarray(chosen, np.int64)).present()

    def moved(
        self, keys: Ints, axes: tuple[Axis, ...] | None = None, words: tuple[Vocabulary, ...] | None = None
    ) -> Self:
        """Give every front cell another key, in any order; cells whose keys meet are added."""
        return regroup(self, keys, self.axes if axes is None else axes, self.cells.words if words is None else words)

    def rollup(self, *axes: Axis) -> Self:
        """Keep these axes, and add up over the others."""
        columns, kept = 0, list[int]()
        for axis in self.axes:
            if axis in axes:
                kept += range(columns, columns + len(axis.names))
            columns += len(axis.names)
        words = tuple(self.cells.words[i] for i in kept)
        return self.moved(
            np.ascontiguousarray(self.cells.keys[:, np.array(kept, np.int64)]),
            tuple(a for a in self.axes if a in axes),
            words,
        )

    @cached_property
    def whole(self) -> Self:
        """All cells as one: what the same rows would have made without axes."""
        return self.rollup() if self.axes else self

    def cell(self, i: int) -> Self:
        """Front cell i as a state of its own, without axes."""
        return self.under(np.array([i], np.int64), len(self.axes))

    def each_cell(self) -> Iterator[Self]:
        """Every front cell as a state of its own, without axes: quicker than one after the other by `cell`."""
        cells, parts = self.cells, self.parts()
        if cells.inner is not None:
            yield from map(self.cell, range(len(self)))
            return
        key, starts = np.zeros((1, 0), np.int64), {n: self.starts(n).tolist() for n in cells.tallies}
        always = [(n, a) for n, a in cells.flats.items() if not parts[n].optional]
        maybe = [(n, a) for n, a in cells.flats.items() if parts[n].optional]
        for i in range(len(self)):
            flats = {n: a[i : i + 1] for n, a in always}
            flats |= {n: a[i : i + 1] for n, a in maybe if parts[n].like is not None or a[i].any()}
            tallies = {n: e.only(starts[n][i], starts[n][i + 1]) for n, e in cells.tallies.items()}
            made = self.holding(Cells((), key, (), None, None, flats, tallies))
            yield made if all(parts[n].like is None for n, _ in maybe) else made.present()

    @property
    def stacks(self) -> bool:
        """Whether `stacked` is of use: formulas that read this state also take the cells side by side."""
        return False

    def stacked(self) -> Self:
        """Return this state with its parts as arrays whose last axis is the cells: for formulas that read all at once."""
        new, held = self.holding(self.cells), self.cells.flats
        for name, part in self.parts().items():
            if isinstance(part, Flat):
                new.__dict__[name] = np.moveaxis(held[name], 0, -1) if name in held else None
        return new

    def under(self, chosen: Ints, axes: int) -> Self:
        """Some front cells, by an index in ascending order, that have one key on the first axes: a state without these."""
        made = self._take_fronts(chosen)
        cells, gone = made.cells, sum(len(a.names) for a in self.axes[:axes])
        rest = replace(cells, axes=self.axes[axes:], keys=cells.keys[:, gone:], words=cells.words[gone:])
        return made.holding(rest).present()

    def merge(self, *others: Self) -> Self:
        """Add other states of the same settings and axes; limits of the axes are applied.

        Raises
        ------
        IncompatibleStateError
            A setting, or an axis, differs; the message names each.
        CounterOverflowError
            A count, or a sum, would leave its range.
        MemoryLimitError
            A statistic that has a limit would pass it.
        """
        for other in others:
            self._fits(other)
        made = settled(fold([self, *others]))
        limit = getattr(self, "memory_limit", None)
        if limit is not None and made.nbytes > limit:
            raise MemoryLimitError(
                f"{type(self).__name__} would need {made.nbytes:,} bytes; its memory_limit is {limit:,}"
            )
        return made

    def subtract(self, other: Self) -> Self:
        """Take rows away that were counted: flags and folded cells stay as they are.

        Raises
        ------
        IncompatibleStateError
            A setting differs; or a part keeps extremes, which do not come back.
        ValueError
            There are not so many rows.
        """
        self._fits(other)
        return fold([self, other], sign=-1)

    def _fits(self, other: State) -> None:
        if found := self.differences(other):
            hint = "; coarsen(bits) brings histograms to the same resolution" if "bits" in " ".join(found) else ""
            raise IncompatibleStateError(f"cannot merge this {type(self).__name__}: {'; '.join(found)}{hint}")

    def differences(self, other: object) -> list[str]:
        """Say in words why another state cannot be merged into this one; empty if it can."""
        if not isinstance(other, State) or other.tag != self.tag or type(other) is not type(self):
            return [f"it is a {type(other).__name__}, not a {type(self).__name__}"]
        found = [f"{n} is {a} here and {b} there" for n, (a, b) in unlike(self._spoken(), other._spoken()).items()]
        return found + [f"its axes are {other.axes} there and {self.axes} here" for _ in [0] if self.axes != other.axes]

    def _spoken(self) -> dict[str, Any]:
        return {k: encode_setting(v) for k, v in self.settings.items()}

    # -- read-outs that collections widen -----------------------------------------------------------------------------

    def widen(self, other: State) -> Self | None:
        """Make one empty state that serves both, or None if their settings differ in more than read-outs."""
        if type(other) is not type(self) or self.axes != other.axes:
            return None
        wide: dict[str, Any] = {}
        for f in fields(self):  # type: ignore[arg-type]
            if f.init:
                a, b = getattr(self, f.name), getattr(other, f.name)
                if f.metadata.get("union"):
                    wide[f.name] = tuple(sorted({*a, *b}))
                elif canonical_json(encode_setting(a)) == canonical_json(encode_setting(b)):
                    wide[f.name] = a
                else:
                    return None
        return type(self)(**wide).empty(self.axes)

    def narrow(self, to: State) -> Self:
        """Return the part of a widened state that `to` asks for, as if it had been counted alone."""
        if to.settings == self.settings:
            return self
        new = self.with_settings(**to.settings)
        cells, flats = self.cells, {}
        for name, array in cells.flats.items():
            taken = array
            for axis, extent in enumerate(self.parts()[name].shape):
                ours, wanted = (getattr(s, extent, None) if isinstance(extent, str) else None for s in (self, new))
                if isinstance(ours, tuple) and ours != wanted and name != "dropped":
                    taken = taken.take([ours.index(w) for w in wanted or ()], axis=axis + 1)
            flats[name] = self._reasons_of(new, taken) if name == "dropped" else taken
        return new.holding(replace(cells, flats=flats)).present()

    def _reasons_of(self, new: State, dropped: Array) -> Array:
        out = np.zeros((len(dropped), len(new.reasons)), np.int64)
        for i, reason in enumerate(self.reasons):
            if reason in new.reasons:
                out[:, new.reasons.index(reason)] = dropped[:, i]
        return out

    # -- identity -----------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        if self is other:
            return True
        if self.differences(other) or len(self.cells) != len(other.cells) or len(self) != len(other):
            return False
        a, b = self.cells, other.cells
        if a.flats.keys() != b.flats.keys() or not np.array_equal(a.keys, b.keys):
            return False
        if not all(x.same(y) and (x.kind == y.kind) for x, y in zip(a.words, b.words, strict=True)):
            return False
        if a.inner is not None and not (b.inner is not None and np.array_equal(a.inner, b.inner)):
            return False
        if a.behind is not None and not (b.behind is not None and a.behind.same(b.behind)):
            return False
        return all(np.array_equal(a.flats[n], b.flats[n]) for n in a.flats) and all(
            a.tallies[n].same(b.tallies[n]) for n in a.tallies
        )

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> Self:
        """Return itself: a state never changes."""
        return self


def _size(numbers: Ints) -> float:
    """The sum of absolute values, without an array of them."""
    above = float(numbers.sum(dtype=np.float64, where=numbers > 0, initial=0.0))
    return above - float(numbers.sum(dtype=np.float64, where=numbers < 0, initial=0.0))


def _ranked(keys: Ints, columns: slice, count: int) -> tuple[Ints | None, Ints]:
    """Return the ranks that are used, and keys that hold ranks among these; None where all are used."""
    held = keys[:, columns]
    there = np.zeros(count, bool)
    there[held[held >= 0]] = True
    if there.all():
        return None, keys
    used = np.flatnonzero(there)
    to = np.zeros(count, np.int64)
    to[used] = np.arange(len(used))
    out = keys.copy()
    out[:, columns] = np.where(held < 0, held, to[np.maximum(held, 0)])
    return used, out
