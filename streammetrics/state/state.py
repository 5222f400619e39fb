"""The class `State`: an immutable table of cells that holds a statistic of rows, split by any number of axes.

An axis splits rows by a column, such as the country or the hour. A state with several axes has a cell for each
combination of their keys; states are not nested. Merging, subtracting, roll-up, selection, totals, limits and expiry
are all implemented by one operation, `fold`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import IncompatibleStateError, MemoryLimitError
from ..numerics.canonical import canonical_json
from ..numerics.settings import encode_setting, find_differing_settings
from .axes import Axis, Vocabulary
from .block_ends import BlockEnds
from .cell_table import CellTable
from .declare import FORMS, Array, Flat, StatePart
from .fold import fold, regroup
from .retention import apply_retention, match_retention

__all__ = ["State"]

Ints = NDArray[np.int64]
COMMON_PARTS = ("dropped", "rounded")


class State(CellTable):
    """A sufficient statistic of rows: metrics are computed from it alone, without the rows.

    A subclass declares its settings and parts, the columns that it reads (`needs`), and the kernels that count rows
    (`steps`). Merging, subtracting, encoding, checks of untrusted bytes, repr, equality and digest all follow from the
    declaration. Only states with equal settings can be merged. A state is immutable; its constructor returns a state
    without rows.

    Notes
    -----
    If a state has no axes, its parts are available as attributes. A part is an array or, for a histogram, an `Entries`
    object. An optional part that is absent is None.
    """

    by_tag: ClassVar[dict[str, type[State]]] = {}

    block_ends: ClassVar[BlockEnds | None] = None
    """The first and the last block (such as a query) that were counted, which `with_block_ends` sets; None if unknown.

    They are not part of the content. Most methods that compute a state from another one do not keep them.
    """

    def __init_subclass__(cls, tag: str = "", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        found: dict[str, StatePart] = {}
        for name, thing in vars(cls).items():
            if isinstance(thing, StatePart) and name not in COMMON_PARTS and hasattr(State, name):
                raise TypeError(f"{cls.__name__}.{name}: the name {name!r} is reserved in every state; rename the part")
        for base in reversed(cls.__mro__):
            found |= {n: p for n, p in vars(base).items() if isinstance(p, StatePart)}
        optional = sorted(n for n, p in found.items() if isinstance(p, Flat) and p.optional)
        cls.declared_parts = {n: p for n, p in found.items() if n not in optional} | {n: found[n] for n in optional}
        cls.excess_names = {p.excess_of: n for n, p in found.items() if isinstance(p, Flat) and p.excess_of is not None}
        if tag:
            taken = State.by_tag.get(tag)
            if taken is not None and taken.__qualname__ != cls.__qualname__:
                raise TypeError(f"the state tag {tag!r} already belongs to {taken.__qualname__}; choose another tag")
            cls.tag = tag
            State.by_tag[tag] = cls

    def move_cells(
        self, keys: Ints, axes: tuple[Axis, ...] | None = None, vocabularies: tuple[Vocabulary, ...] | None = None
    ) -> Self:
        """Replace the key of every front cell (such as a slice), and add up the cells whose new keys are equal."""
        axes = self.axes if axes is None else axes
        return regroup(self, keys, axes, self.cells.vocabularies if vocabularies is None else vocabularies)

    def rollup(self, *axes: Axis) -> Self:
        """Keep only the given axes, and add up the cells (such as slices) whose keys on these axes are equal."""
        columns, kept = 0, list[int]()
        for axis in self.axes:
            if axis in axes:
                kept += range(columns, columns + len(axis.names))
            columns += len(axis.names)
        vocabularies = tuple(self.cells.vocabularies[i] for i in kept)
        keys = np.ascontiguousarray(self.cells.keys[:, np.array(kept, np.int64)])
        return self.move_cells(keys, tuple(a for a in self.axes if a in axes), vocabularies)

    @cached_property
    def without_axes(self) -> Self:
        """The total of all cells (such as slices), which equals a state without axes that has counted the same rows."""
        return self.rollup() if self.axes else self

    def merge(self, *others: Self) -> Self:
        """Add other states with the same settings and axes, and apply the key limit and the expiry of each axis.

        Raises
        ------
        IncompatibleStateError
            A setting or an axis differs; the message names each difference.
        CounterOverflowError
            A count or a sum would leave its range.
        MemoryLimitError
            The sum would exceed the `memory_limit` of the statistic.
        """
        for other in others:
            self._check_mergeable(other)
        merged = apply_retention(fold([self, *others]))
        limit = getattr(self, "memory_limit", None)
        if limit is not None and merged.nbytes > limit:
            raise MemoryLimitError(
                f"{type(self).__name__} would need {merged.nbytes:,} bytes, more than the memory_limit of {limit:,}; "
                f"raise memory_limit"
            )
        return merged

    @property
    def can_subtract(self) -> bool:
        """Whether rows can be subtracted, that is, whether the form of every array allows it (see `declare.FORMS`)."""
        flats = [p for n, p in self.parts().items() if isinstance(p, Flat) and n in self.cells.flats]
        return all(FORMS[p.form].can_subtract for p in flats)

    def subtract(self, other: Self) -> Self:
        """Subtract rows that were counted before, such as a faulty partition or an expired hour.

        Flags, such as the one for rounded weights, stay set. Rows that were converted to buckets are not converted
        back. Keys that were combined because of a limit or an expiry are not separated again.

        Raises
        ------
        IncompatibleStateError
            A setting or an axis differs, a part (such as an exact minimum) does not support subtraction, or some of the
            rows to subtract were not counted.
        """
        self._check_mergeable(other)
        return fold([self, match_retention(other, self)], sign=-1)

    def _check_mergeable(self, other: State) -> None:
        if found := self.differences(other):
            hint = "; coarsen(bits) brings histograms to the same resolution" if "bits" in " ".join(found) else ""
            raise IncompatibleStateError(f"cannot merge this {type(self).__name__}: {'; '.join(found)}{hint}")

    def differences(self, other: object) -> list[str]:
        """Return the reasons why another state cannot be merged into this one, or an empty list if it can."""
        if not isinstance(other, State) or other.tag != self.tag or type(other) is not type(self):
            return [f"the other state is {type(other).__name__}"]
        settings = find_differing_settings(self._encode_settings(), other._encode_settings())
        found = [f"{n} is {a} here and {b} there" for n, (a, b) in settings.items()]
        return found + [f"the axes are {self.axes} here and {other.axes} there" for _ in [0] if self.axes != other.axes]

    def _encode_settings(self) -> dict[str, Any]:
        return {k: encode_setting(v) for k, v in self.settings.items()}

    def seal(self, partition: tuple[int, int] | None = None) -> State:
        """Close the groups whose rows have all been counted, that is, replace their rows with sums.

        Return the state itself if the statistic has no groups.

        Parameters
        ----------
        partition : (i, n), optional
            The partition (number i of n) whose groups are complete in this state. By default, it is the partition in
            the settings.
        """
        return self

    def to_subtractable(self) -> State:
        """Return an equivalent state that supports subtraction, such as one with group sums instead of rows."""
        return self

    # -- states that several metrics share ----------------------------------------------------------------------------

    def widen(self, other: State) -> Self | None:
        """Return an empty state that counts everything that either state counts, so that two metrics can share it.

        Settings that list quantities, such as thresholds, are combined. Return None if any other setting differs.
        """
        if type(other) is not type(self) or self.axes != other.axes:
            return None
        wide: dict[str, Any] = {}
        for f in fields(self):
            if f.init:
                a, b = getattr(self, f.name), getattr(other, f.name)
                if f.metadata.get("union"):
                    wide[f.name] = tuple(sorted({*a, *b}))
                # An operational setting, such as a memory limit, does not change what is counted, so states with different
                # values can be combined.
                elif f.metadata.get("operational"):
                    wide[f.name] = _choose_stricter(a, b)
                elif canonical_json(encode_setting(a)) == canonical_json(encode_setting(b)):
                    wide[f.name] = a
                else:
                    return None
        return type(self)(**wide).empty_copy(self.axes)

    def narrow(self, to: State) -> Self:
        """Reduce this state, whose settings come from `widen`, to the quantities that `to` counts.

        The result is equal, bit for bit, to a state with the settings of `to` that counted the same rows.
        """
        if to.settings == self.settings:
            return self
        new = self.with_settings(**to.settings)
        cells, flats = self.cells, {}
        for name, array in cells.flats.items():
            selected = array
            for axis, extent in enumerate(self.parts()[name].shape):
                ours, wanted = (getattr(s, extent, None) if isinstance(extent, str) else None for s in (self, new))
                if isinstance(ours, tuple) and ours != wanted and name != "dropped":
                    selected = selected.take([ours.index(w) for w in wanted or ()], axis=axis + 1)
            flats[name] = self._select_reasons(new, selected) if name == "dropped" else selected
        return new.with_cells(replace(cells, flats=flats)).canonicalize().with_block_ends(self.block_ends)

    def with_block_ends(self, ends: BlockEnds | None) -> Self:
        """Return a state with the same content whose first and last blocks (such as queries) are `ends`."""
        if ends is self.block_ends:
            return self
        new = self.with_cells(self.cells)
        new.__dict__["block_ends"] = ends
        return new

    def _select_reasons(self, new: State, dropped: Array) -> Array:
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
        if not all(x.equals(y) and (x.kind == y.kind) for x, y in zip(a.vocabularies, b.vocabularies, strict=True)):
            return False
        if a.inner_keys is not None and not (b.inner_keys is not None and np.array_equal(a.inner_keys, b.inner_keys)):
            return False
        if a.class_vocabulary is not None and not (
            b.class_vocabulary is not None and a.class_vocabulary.equals(b.class_vocabulary)
        ):
            return False
        return all(np.array_equal(a.flats[n], b.flats[n]) for n in a.flats) and all(
            a.tallies[n].equals(b.tallies[n]) for n in a.tallies
        )

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> Self:
        """Return the state itself, because a state never changes."""
        return self


def _choose_stricter(a: Any, b: Any) -> Any:
    """Return the stricter of two operational settings: the lower limit, or the only one that is not None."""
    if a is None or b is None:
        return b if a is None else a
    return min(a, b) if isinstance(a, (int, float)) else a
