"""The content of a state: its cells, what is read of them, and a choice of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..numerics.exact import floats_of, slip
from ..numerics.rows import row_sums
from .axes import Axis, Vocabulary
from .cells import Cells
from .declare import Array, Flat, Tally, carry
from .pair_levels import at_needed_levels
from .statistic import Statistic
from .tally import Entries

__all__ = ["CellTable"]

Ints = NDArray[np.int64]

MOST_SLIP = Fraction(1, 1 << 25)
"""Half a unit beside the smallest weight: what is known where nothing says which rows have which weight."""


class CellTable(Statistic):
    """A statistic and the cells that hold what was seen of it."""

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
        new.__dict__.update({name: getattr(self, name) for name in _settings(type(self))})  # type: ignore[arg-type]
        new.__dict__["cells"] = cells
        return new

    def empty(self, axes: tuple[Axis, ...] | None = None) -> Self:
        """Return a state of the same settings that has seen nothing, of other axes if these are given."""
        return self.holding(self.no_cells(self.cells.axes if axes is None else axes))

    def with_settings(self, **settings: Any) -> Self:
        """Return an empty state of other settings."""
        ours = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
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
        kept: dict[str, Ints] = self.__dict__.setdefault("_rows_by_cell", {})
        if name not in kept:
            kept[name] = self._by_cell(name)
        return kept[name]

    def _by_cell(self, name: str) -> Ints:
        counts = self.cells.tallies[name].counts
        rows = counts.sum(dtype=np.int64)
        if len(self.cells) == 1:
            return np.array([rows])
        starts = self.starts(name)
        held = starts[1:] > starts[:-1]
        out = np.zeros(len(held), np.int64)
        if held.any():
            kind = counts.dtype if rows < 1 << 32 else np.int64  # in another than theirs all would be copied
            out[held] = np.add.reduceat(counts, starts[:-1][held], dtype=kind)
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
        return self.by_front(self.rows_behind)

    def by_front(self, numbers: Array) -> Array:
        """Numbers of all cells, those of cells behind one front cell added up."""
        if self.cells.inner is None:
            return numbers
        out = np.zeros(len(self), numbers.dtype)
        np.add.at(out, self.cells.inner[:, 0], numbers)
        return out

    @property
    def positives_seen(self) -> Ints:
        """Positives of each front cell; rows, of a statistic that knows no positives."""
        return self.rows_seen

    @property
    def weight_seen(self) -> NDArray[np.float64]:
        """What the rows of each front cell weigh, to some 2**-50."""
        beside = np.zeros(len(self.cells))
        for name in self.counted:
            entries = self.cells.tallies.get(name)
            if entries is not None and entries.excess is not None and len(entries):
                np.add.at(beside, entries.cells, floats_of(entries.excess))
        excess, part = self.cells.flats.get("excess"), self.parts().get("excess")
        if excess is not None and isinstance(part, Flat) and part.limbs and not part.front:
            beside += row_sums(floats_of(excess))
        return np.asarray(self.rows_seen + self.by_front(beside / self.times))

    @cached_property
    def seen(self) -> Ints:
        """Rows of each front cell, those left out included: what says that it is there."""
        gone = self.cells.flats.get("dropped")
        return self.rows_seen if gone is None else self.rows_seen + gone.sum(axis=1)

    @property
    def fixed_weights(self) -> bool:
        """Whether weights are summed as multiples of 2**-60."""
        return any(isinstance(p, Tally) or p.form == "fixed" for p in self.parts().values())

    @property
    def fixed_terms(self) -> bool:
        """Whether sums of w x are, too: then a small weight costs x bits, even if it has none below 2**-60 itself."""
        flats = [p for p in self.parts().values() if isinstance(p, Flat) and p.form == "fixed"]
        return any(p.beside is None and all(p.extents(self)) for p in flats)

    @cached_property
    def slip(self) -> Fraction:
        """How far, relatively, any weight of a state of one cell can be from what was counted; 0 if none was rounded."""
        if self.rounded is None or not self.rounded:
            return Fraction(0)
        held = [(e.mass, e.excess) for e in self.cells.tallies.values()]
        if (excess := self.cells.flats.get("excess")) is not None and excess.shape[-1] == 2:
            rows = self.cells.flats[self.counted[0]]
            if rows.shape != excess.shape[:-1]:
                return MOST_SLIP
            held.append((rows, excess))
        return max((slip(rows, e) for rows, e in held if len(rows)), default=MOST_SLIP)

    def weight_limit(self) -> float:
        """An upper limit of the weight of all rows."""
        return self.rows_about + self.weight_beside

    @cached_property
    def weight_beside(self) -> float:
        """How far the weight of all rows is from their number, at most."""
        excess = self.cells.flats.get("excess")
        held = [e.excess for e in self.cells.tallies.values()]
        held += [excess] if excess is not None and excess.shape[-1] == 2 else []
        # the lower limb counts as one of the upper, which it may become where states are added
        return sum((_size(x[..., 0]) + np.count_nonzero(x[..., 1])) * 2.0**-20 for x in held if x is not None)

    # -- a choice of cells -----------------------------------------------------------------------------------------------

    def present(self, parts: Mapping[str, Any] | None = None) -> Self:
        """Forget cells without rows, words without cells, and optional parts that say nothing."""
        state = self.at_needed_levels()
        if state.cells.inner is not None and not (state.rows_behind > 0).all():
            state = state.take_inner(np.flatnonzero(state.rows_behind > 0))
        if not (state.seen > 0).all():
            state = state.take_fronts(np.flatnonzero(state.seen > 0))
        cells = state.cells
        flats = {
            n: a
            for n, a in cells.flats.items()
            if not (p := (parts or state.parts())[n]).optional or not state._says_nothing(p, a)
        }
        if len(flats) < len(cells.flats):
            state = state.holding(replace(cells, flats=flats))
        return state.used_words()

    def at_needed_levels(self) -> Self:
        """Raise the levels of buckets to those that their numbers need (see `levels`)."""
        state = self
        for name, part in self.parts().items():
            if isinstance(part, Tally) and part.level is not None and name in state.cells.tallies:
                held, before = state.cells.tallies[name], state.flat(part.level)
                entries, after = at_needed_levels(part, held, before, getattr(self, part.bits))
                if entries is not held:
                    cells = state.cells
                    flats = {**cells.flats, part.level: after}
                    state = state.holding(replace(cells, flats=flats, tallies={**cells.tallies, name: entries}))
        return state

    def _says_nothing(self, flat: Flat, array: Array) -> bool:
        if flat.like is None:
            return not array.any()
        bare = {n: a for n, a in self.cells.flats.items() if n != flat.name}
        return bool(np.array_equal(array, self.holding(replace(self.cells, flats=bare)).spelled(flat)))

    def used_words(self) -> Self:
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

    def take_fronts(self, chosen: Ints) -> Self:
        cells, parts = self.cells, self.parts()
        if cells.inner is not None:
            to = np.full(len(self), -1)
            to[chosen] = np.arange(len(chosen))
            kept = self.take_inner(np.flatnonzero(to[cells.inner[:, 0]] >= 0))
            inner = kept.cells.inner
            assert inner is not None
            renumbered = np.column_stack([to[inner[:, 0]], inner[:, 1:]])
            cells = replace(kept.cells, inner=renumbered)
            flats = {n: a.take(chosen, axis=0) if parts[n].front else a for n, a in cells.flats.items()}
            return self.holding(replace(cells, keys=cells.keys.take(chosen, axis=0), flats=flats))
        flats = {n: a.take(chosen, axis=0) for n, a in cells.flats.items()}
        tallies = {n: e.take(chosen, self.starts(n)) for n, e in cells.tallies.items()}
        return self.holding(replace(cells, keys=cells.keys.take(chosen, axis=0), flats=flats, tallies=tallies))

    def take_inner(self, chosen: Ints) -> Self:
        cells, parts = self.cells, self.parts()
        assert cells.inner is not None
        flats = {n: a if parts[n].front else a.take(chosen, axis=0) for n, a in cells.flats.items()}
        tallies = {n: e.take(chosen, self.starts(n)) for n, e in cells.tallies.items()}
        return self.holding(replace(cells, inner=cells.inner.take(chosen, axis=0), flats=flats, tallies=tallies))

    def select(self, which: Array) -> Self:
        """Keep the front cells of a mask, or of an index in ascending order."""
        chosen = np.flatnonzero(which) if which.dtype == bool else which
        return self.take_fronts(np.asarray(chosen, np.int64)).present()

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

    def under(self, chosen: Ints, axes: int) -> Self:
        """Some front cells, by an index in ascending order, that have one key on the first axes: a state without these."""
        made = self.take_fronts(chosen)
        cells, gone = made.cells, sum(len(a.names) for a in self.axes[:axes])
        rest = replace(cells, axes=self.axes[axes:], keys=cells.keys[:, gone:], words=cells.words[gone:])
        return made.holding(rest).present()

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


@cache
def _settings(statistic: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(statistic))


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
