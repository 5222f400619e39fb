"""Define CellTable, the base class of states, with methods to read arrays, count rows and select cells.

The counts and sums of a state are stored in a table with one row for each cell, such as a slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..numerics.array_rows import expand_ranges, row_sums
from ..numerics.exact import to_floats, weight_rounding
from .axes import Axis, Vocabulary
from .cells import Cells
from .declare import Array, Flat, Tally, carry
from .pair_levels import fit_part_levels
from .statistic import Statistic
from .tally import Entries

__all__ = ["CellTable"]

Ints = NDArray[np.int64]
Table = TypeVar("Table", bound="CellTable")

MAX_WEIGHT_ROUNDING = Fraction(1, 1 << 25)
"""The largest relative rounding error of a weight. Rounding to a multiple of 2**-60 has an error of at most 2**-61, and
the smallest weight is 2**-36."""


class CellTable(Statistic):
    """A statistic together with the table of cells that contains its counts and sums; the base class of `State`."""

    @cached_property
    def cells(self) -> Cells:
        """The table of cells, which contains all counts and sums. Do not change it."""
        return self.make_empty_cells(())

    def make_empty_cells(self, axes: tuple[Axis, ...]) -> Cells:
        """Return an empty table of cells with these axes."""
        vocabularies = tuple(Vocabulary() for a in axes for _ in a.names)
        inner = None if self.inner_axis is None else np.zeros((0, 1 + self.inner_axis.key_width), np.int64)
        classes = Vocabulary() if self.inner_axis is not None and self.inner_axis.kind == "class" else None
        flats = {n: p.empty(self, 0) for n, p in self.parts().items() if isinstance(p, Flat) and not p.optional}
        tallies = {
            n: Entries.empty(p.shift(self), wide=p.is_wide(self))
            for n, p in self.parts().items()
            if isinstance(p, Tally)
        }
        return Cells(
            axes, np.zeros((0, sum(len(a.names) for a in axes)), np.int64), vocabularies, inner, classes, flats, tallies
        )

    def with_cells(self, cells: Cells) -> Self:
        """Return a state with the same settings and the given table of cells, which must be canonical (see `Cells`)."""
        new = object.__new__(type(self))
        own, attributes = self.__dict__, new.__dict__
        for name in _setting_names(type(self)):  # type: ignore[arg-type]
            attributes[name] = own[name]
        attributes["cells"] = cells
        return new

    def empty_copy(self, axes: tuple[Axis, ...] | None = None) -> Self:
        """Return a state with the same settings but no rows; if `axes` is None, its axes are also the same."""
        return self.with_cells(self.make_empty_cells(self.cells.axes if axes is None else axes))

    def with_settings(self, **settings: Any) -> Self:
        """Return an empty state with the given settings. All other settings are copied from this state."""
        current = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        return type(self)(**(current | settings))

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of the state: the columns that divide its rows into cells, such as a slice column."""
        # An empty state may not have built its table yet. Do not build it just to find that there are no axes.
        cells = self.__dict__.get("cells")
        return () if cells is None else cells.axes

    def __len__(self) -> int:
        return self.cells.front_count

    def __bool__(self) -> bool:
        return True

    @property
    def nbytes(self) -> int:
        """The memory that the table uses, in bytes."""
        return self.cells.nbytes

    def read_part(self, flat: Flat) -> Array | None:
        """Return a part (a named array of the state), or None if it is absent; the state must not have axes.

        If the statistic has an inner axis, the array has a row for each group or class. Otherwise, it is the array of
        the only cell.
        """
        self._check_one_cell()
        cells = self.cells
        has_inner_rows = cells.inner_keys is not None and not flat.front
        if flat.name not in cells.flats:
            return None
        array: Array = cells.flats[flat.name]
        if has_inner_rows:
            return array
        one: Array = array[0] if len(array) else flat.empty(self, 1)[0]
        return one

    def read_entries(self, part: Tally) -> Entries:
        """Return the sorted entries of a tally (a histogram); the state must not have axes."""
        self._check_one_cell()
        return self.cells.tallies[part.name]

    def _check_one_cell(self) -> None:
        if self.cells.axes:
            names = ", ".join(self.cells.column_names)
            raise TypeError(
                f"this {type(self).__name__} has a separate cell for each {names}; read a single cell, or the total"
            )

    def read_cells(self, flat: Flat) -> Array:
        """Return the array of a part (a named array of the state) for all cells, even if the part is absent.

        If the part is absent, the array contains zeros, or, if the part's declaration has a `like`, the values of the
        part named there.
        """
        cells = self.cells
        if flat.name in cells.flats:
            return cells.flats[flat.name]
        size = cells.front_count if flat.front or cells.inner_keys is None else len(cells)
        array = flat.empty(self, size)
        if flat.like is not None and size:
            source = cells.flats[flat.like]
            if array.ndim == source.ndim:
                array[...] = source
                carry(flat.form, array)
            else:
                # A fixed-point number is a pair of integers. The first is in units of 2**-20, so multiply by 2**20.
                array[..., 0] = source << 20
        return array

    def read_cells_named(self, name: str) -> Array:
        """Return the array of the named part for all cells; see `read_cells`."""
        part = self.parts()[name]
        return self.read_cells(part)

    def entry_starts(self, name: str) -> Ints:
        """Return the index of each cell's first entry in the named histogram, followed by the number of entries."""
        cache: dict[str, Ints] = self.__dict__.setdefault("_starts", {})
        if name not in cache:
            cache[name] = self.cells.tallies[name].cell_starts(len(self.cells))
        return cache[name]

    def rows_by_cell(self, name: str) -> Ints:
        """Return the number of rows that the named histogram counts in each cell."""
        cache: dict[str, Ints] = self.__dict__.setdefault("_rows_by_cell", {})
        if name not in cache:
            cache[name] = self._count_rows_by_cell(name)
        return cache[name]

    def _count_rows_by_cell(self, name: str) -> Ints:
        counts = self.cells.tallies[name].counts
        if not len(counts):
            return np.zeros(len(self.cells), np.int64)
        rows = counts.sum(dtype=np.int64)
        if len(self.cells) == 1:
            return np.array([rows])
        starts = self.entry_starts(name)
        nonempty = starts[1:] > starts[:-1]
        out = np.zeros(len(nonempty), np.int64)
        if nonempty.any():
            # If possible, sum in the dtype of the counts. Otherwise, numpy would have to copy the counts.
            kind = counts.dtype if rows < 1 << 32 else np.int64
            out[nonempty] = np.add.reduceat(counts, starts[:-1][nonempty], dtype=kind)
        return out

    @cached_property
    def inner_row_counts(self) -> Ints:
        """The number of rows in each inner cell (a group or class), or in each cell if there is no inner axis."""
        total = np.zeros(len(self.cells), np.int64)
        for name in self.row_parts:
            if name in self.cells.tallies:
                total += self.rows_by_cell(name)
            elif name in self.cells.flats:
                rows = self.cells.flats[name]
                total += rows.sum(axis=tuple(range(1, rows.ndim)))
        return total // self.counts_per_row if self.counts_per_row > 1 else total

    @cached_property
    def approximate_rows(self) -> float:
        """The total number of rows in all cells, as a float to avoid overflow."""
        cells = self.cells
        counts = [cells.tallies[n].counts if n in cells.tallies else cells.flats.get(n) for n in self.row_parts]
        return sum(float(a.sum(dtype=np.float64)) for a in counts if a is not None) / self.counts_per_row

    @property
    def approximate_dropped_rows(self) -> float:
        """The total number of dropped rows in all cells, as a float to avoid overflow."""
        dropped = self.cells.flats.get("dropped")
        return 0.0 if dropped is None else float(dropped.sum(dtype=np.float64))

    @cached_property
    def row_counts(self) -> Ints:
        """The number of counted rows in each front cell (such as a slice), not including dropped rows."""
        return self.sum_by_front(self.inner_row_counts)

    def sum_by_front(self, numbers: Array) -> Array:
        """Return the sum of `numbers` over the inner cells (groups or classes) of each front cell, such as a slice."""
        if self.cells.inner_keys is None:
            return numbers
        out = np.zeros(len(self), numbers.dtype)
        np.add.at(out, self.cells.inner_keys[:, 0], numbers)
        return out

    @property
    def positive_counts(self) -> Ints:
        """The number of positives in each front cell (such as a slice), or of rows if positives are not counted."""
        return self.row_counts

    @property
    def row_weights(self) -> NDArray[np.float64]:
        """The total weight of the rows in each front cell (such as a slice), with a relative error of about 2**-50."""
        excess_weight = np.zeros(len(self.cells))
        for name in self.row_parts:
            entries = self.cells.tallies.get(name)
            if entries is not None and entries.excess is not None and len(entries):
                np.add.at(excess_weight, entries.cells, to_floats(entries.excess))
        excess, part = self.cells.flats.get("excess"), self.parts().get("excess")
        if excess is not None and isinstance(part, Flat) and part.limbs and not part.front:
            excess_weight += row_sums(to_floats(excess))
        return np.asarray(self.row_counts + self.sum_by_front(excess_weight / self.counts_per_row))

    @cached_property
    def total_row_counts(self) -> Ints:
        """The number of counted plus dropped rows in each front cell. `canonicalize` removes cells in which it is 0."""
        dropped = self.cells.flats.get("dropped")
        return self.row_counts if dropped is None else self.row_counts + dropped.sum(axis=1)

    @property
    def has_fixed_point_weights(self) -> bool:
        """Whether weights are rounded to multiples of 2**-60 and summed as integers."""
        return any(isinstance(p, Tally) or p.form == "fixed" for p in self.parts().values())

    @property
    def has_fixed_point_terms(self) -> bool:
        """Whether products of a weight w and a value x are rounded to multiples of 2**-60 before they are summed.

        The rounding loses bits of x if w is small.
        """
        flats = [p for p in self.parts().values() if isinstance(p, Flat) and p.form == "fixed"]
        return any(p.excess_of is None and all(p.extents(self)) for p in flats)

    @cached_property
    def weight_rounding(self) -> Fraction:
        """The largest relative rounding error of a weight in a state with a single cell; 0 if no weight was rounded."""
        if self.rounded is None or not self.rounded:
            return Fraction(0)
        # Weights are rounded to multiples of 2**-60, so a small weight has a large relative error. The number of rows
        # in a bucket and their total weight limit how small a single weight can be. If the arrays of rows and weights
        # differ in shape, assume the smallest weight that is allowed.
        pairs = [(e.int64_counts, e.excess) for e in self.cells.tallies.values()]
        if (excess := self.cells.flats.get("excess")) is not None and excess.shape[-1] == 2:
            rows = self.cells.flats[self.row_parts[0]]
            if rows.shape != excess.shape[:-1]:
                return MAX_WEIGHT_ROUNDING
            pairs.append((rows, excess))
        return max((weight_rounding(rows, e) for rows, e in pairs if len(rows)), default=MAX_WEIGHT_ROUNDING)

    def weight_bound(self) -> float:
        """Return an upper bound on the total weight of all rows."""
        return self.approximate_rows + self.weight_excess_bound

    @cached_property
    def weight_excess_bound(self) -> float:
        """An upper bound on the difference between the total weight of all rows and their number."""
        excess = self.cells.flats.get("excess")
        sums = [e.excess for e in self.cells.tallies.values()]
        sums += [excess] if excess is not None and excess.shape[-1] == 2 else []
        # A sum is a pair of an upper and a lower integer. Count each nonzero lower integer as a full unit of the upper
        # one, because adding states can carry from the lower integer into the upper one.
        return sum((_sum_absolute(x[..., 0]) + np.count_nonzero(x[..., 1])) * 2.0**-20 for x in sums if x is not None)

    # -- selecting cells -------------------------------------------------------------------------------------------------

    def canonicalize(self, parts: Mapping[str, Any] | None = None) -> Self:
        """Return the state with its table in canonical form.

        States with equal content must have equal bytes, whatever operations led to them. This method therefore removes
        cells without rows, keys without cells, and optional parts that add no information. It also widens buckets if
        their number exceeds the limit.
        """
        return _drop_empty(self.fit_levels(), parts)

    def fit_levels(self) -> Self:
        """Raise the level (bucket width) of each cell until its values occupy no more buckets than allowed.

        The module `levels` defines the rules.
        """
        state = self
        for name, part in self.parts().items():
            if isinstance(part, Tally) and part.level is not None and name in state.cells.tallies:
                finer, before = state.cells.tallies[name], state.read_cells_named(part.level)
                entries, after = fit_part_levels(part, finer, before, getattr(self, part.bits))
                if entries is not finer:
                    cells = state.cells
                    flats = {**cells.flats, part.level: after}
                    state = state.with_cells(replace(cells, flats=flats, tallies={**cells.tallies, name: entries}))
        return state

    def drop_unused_keys(self) -> Self:
        """Remove from the vocabularies the keys that no cell uses."""
        cells = self.cells
        keys, vocabularies = cells.keys, list(cells.vocabularies)
        for i, vocabulary in enumerate(vocabularies):
            if len(vocabulary):
                used, keys = _renumber_ranks(keys, slice(i, i + 1), len(vocabulary))
                if used is not None:
                    vocabularies[i] = vocabulary.select(used)
        inner, classes = cells.inner_keys, cells.class_vocabulary
        if classes is not None and inner is not None and len(classes):
            used, inner = _renumber_ranks(inner, slice(1, None), len(classes))
            if used is not None:
                classes = classes.select(used)
        if keys is cells.keys and inner is cells.inner_keys:
            return self
        return self.with_cells(
            replace(cells, keys=keys, vocabularies=tuple(vocabularies), inner_keys=inner, class_vocabulary=classes)
        )

    def take_fronts(self, index: Ints) -> Self:
        """Return a state with the front cells (such as slices) at the given indices, which may contain duplicates.

        Call `canonicalize` to remove keys without cells.
        """
        cells, parts = self.cells, self.parts()
        if cells.inner_keys is not None:
            fronts = cells.inner_keys[:, 0]
            starts = np.searchsorted(fronts, index)
            counts = np.searchsorted(fronts, index, "right") - starts
            kept = self.take_inner(expand_ranges(starts, counts))
            inner = kept.cells.inner_keys
            assert inner is not None
            renumbered = np.column_stack([np.repeat(np.arange(len(index)), counts), inner[:, 1:]])
            cells = replace(kept.cells, inner_keys=renumbered)
            flats = {n: a.take(index, axis=0) if parts[n].front else a for n, a in cells.flats.items()}
            return self.with_cells(replace(cells, keys=cells.keys.take(index, axis=0), flats=flats))
        flats = {n: a.take(index, axis=0) for n, a in cells.flats.items()}
        tallies = {n: e.take_cells(index, self.entry_starts(n)) for n, e in cells.tallies.items()}
        return self.with_cells(replace(cells, keys=cells.keys.take(index, axis=0), flats=flats, tallies=tallies))

    def take_inner(self, index: Ints) -> Self:
        """Return a state with the inner cells (groups or classes) at the given indices, which may contain duplicates.

        Call `canonicalize` to remove keys without cells.
        """
        cells, parts = self.cells, self.parts()
        assert cells.inner_keys is not None
        flats = {n: a if parts[n].front else a.take(index, axis=0) for n, a in cells.flats.items()}
        tallies = {n: e.take_cells(index, self.entry_starts(n)) for n, e in cells.tallies.items()}
        return self.with_cells(
            replace(cells, inner_keys=cells.inner_keys.take(index, axis=0), flats=flats, tallies=tallies)
        )

    def select(self, mask: Array) -> Self:
        """Return a state with only the front cells (such as slices) selected by a boolean mask or ascending indices."""
        index = np.flatnonzero(mask) if mask.dtype == bool else mask
        # Selecting cells does not change their buckets, so `_drop_empty` suffices: no bucket has to be widened.
        return _drop_empty(self.take_fronts(np.asarray(index, np.int64)))

    def read_cell(self, i: int) -> Self:
        """Return the front cell (such as a slice) with index `i` as a state without axes."""
        return self.drop_leading_axes(np.array([i], np.int64), len(self.axes))

    def iterate_cells(self) -> Iterator[Self]:
        """Yield every front cell as a state without axes; this is faster than calling `read_cell` for each."""
        cells, parts = self.cells, self.parts()
        if cells.inner_keys is not None:
            yield from map(self.read_cell, range(len(self)))
            return
        key, starts = np.zeros((1, 0), np.int64), {n: self.entry_starts(n).tolist() for n in cells.tallies}
        always = [(n, a) for n, a in cells.flats.items() if not parts[n].optional]
        maybe = [(n, a) for n, a in cells.flats.items() if parts[n].optional]
        for i in range(len(self)):
            flats = {n: a[i : i + 1] for n, a in always}
            flats |= {n: a[i : i + 1] for n, a in maybe if parts[n].like is not None or a[i].any()}
            tallies = {n: e.select_cell(starts[n][i], starts[n][i + 1]) for n, e in cells.tallies.items()}
            state = self.with_cells(Cells((), key, (), None, None, flats, tallies))
            yield state if all(parts[n].like is None for n, _ in maybe) else state.canonicalize()

    def drop_leading_axes(self, index: Ints, count: int) -> Self:
        """Return a state with the front cells (such as slices) at the given indices, without the first `count` axes.

        The indices must be ascending, and the cells must have equal keys on the first `count` axes.
        """
        state = self.take_fronts(index)
        cells, first = state.cells, sum(len(a.names) for a in self.axes[:count])
        rest = replace(
            cells, axes=self.axes[count:], keys=cells.keys[:, first:], vocabularies=cells.vocabularies[first:]
        )
        # Selecting cells does not change their buckets, so no bucket has to be widened.
        return _drop_empty(state.with_cells(rest))

    @property
    def can_vectorize(self) -> bool:
        """Whether metrics can compute the values of all cells in one step from the result of `vectorize`."""
        return False

    def vectorize(self) -> Self:
        """Return this state with the cells as the last axis of each array, so that one formula computes all values."""
        new, flats = self.with_cells(self.cells), self.cells.flats
        for name, part in self.parts().items():
            if isinstance(part, Flat):
                new.__dict__[name] = np.moveaxis(flats[name], 0, -1) if name in flats else None
        return new


def _drop_empty(state: Table, parts: Mapping[str, Any] | None = None) -> Table:
    """Remove empty cells, unused keys, and optional parts that add no information."""
    # Remove inner cells before front cells, because a front cell that loses all of its inner cells may be empty.
    if state.cells.inner_keys is not None and not (state.inner_row_counts > 0).all():
        state = state.take_inner(np.flatnonzero(state.inner_row_counts > 0))
    if not (state.total_row_counts > 0).all():
        state = state.take_fronts(np.flatnonzero(state.total_row_counts > 0))
    cells = state.cells
    flats = {
        n: a
        for n, a in cells.flats.items()
        if not (p := (parts or state.parts())[n]).optional or not _is_redundant(state, p, a)
    }
    if len(flats) < len(cells.flats):
        state = state.with_cells(replace(cells, flats=flats))
    return state.drop_unused_keys()


def _is_redundant(state: CellTable, flat: Flat, array: Array) -> bool:
    if flat.like is None:
        return not array.any()
    bare = {n: a for n, a in state.cells.flats.items() if n != flat.name}
    return bool(np.array_equal(array, state.with_cells(replace(state.cells, flats=bare)).read_cells(flat)))


@cache
def _setting_names(statistic: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(statistic))


def _sum_absolute(numbers: Ints) -> float:
    """Return the sum of the absolute values of `numbers` without allocating an array for them."""
    above = float(numbers.sum(dtype=np.float64, where=numbers > 0, initial=0.0))
    return above - float(numbers.sum(dtype=np.float64, where=numbers < 0, initial=0.0))


def _renumber_ranks(keys: Ints, columns: slice, count: int) -> tuple[Ints | None, Ints]:
    """Return the ranks that occur in the given key columns, and the keys with these ranks renumbered from 0.

    The ranks are None if all of `count` ranks occur; the keys are then unchanged.
    """
    ranks = keys[:, columns]
    occurs = np.zeros(count, bool)
    occurs[ranks[ranks >= 0]] = True
    if occurs.all():
        return None, keys
    used = np.flatnonzero(occurs)
    new_ranks = np.zeros(count, np.int64)
    new_ranks[used] = np.arange(len(used))
    out = keys.copy()
    out[:, columns] = np.where(ranks < 0, ranks, new_ranks[np.maximum(ranks, 0)])
    return used, out
