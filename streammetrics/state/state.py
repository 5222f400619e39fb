"""State: one statistic, times some axes, as one immutable table of cells in canonical form.

Nesting is having more axes. Merge, subtract, roll-up, selection, totals, limits and expiry are one operation, `fold`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import IncompatibleStateError, MemoryLimitError
from ..numerics.canonical import canonical_json
from ..numerics.settings import encode_setting, unlike
from .axes import Axis, Vocabulary
from .cell_table import CellTable
from .declare import FORMS, Array, Flat, StatePart
from .fold import fold, regroup
from .retention import kept_as, settled

__all__ = ["State"]

Ints = NDArray[np.int64]
ALL = ("dropped", "rounded")  # what every state has


class State(CellTable):
    """A sufficient statistic: what was seen, enough to answer every metric that reads it.

    A subclass declares settings and parts, says which columns it `needs`, and which kernel counts them (`steps`).
    Everything else follows: merge, subtract, bytes, checks of hostile values, repr, equality, digest. The settings are the
    identity: only equal ones merge. Made with settings alone, a state has seen nothing; it never changes.

    Notes
    -----
    A part is read as an attribute of a state of one cell: an array, or `Entries`; absent optional parts are None.
    """

    by_tag: ClassVar[dict[str, type[State]]] = {}

    def __init_subclass__(cls, tag: str = "", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        found: dict[str, StatePart] = {}
        for name, thing in vars(cls).items():
            if isinstance(thing, StatePart) and name not in ALL and hasattr(State, name):
                raise TypeError(f"{cls.__name__}.{name}: every state has a {name!r}; call the part something else")
        for base in reversed(cls.__mro__):
            found |= {n: p for n, p in vars(base).items() if isinstance(p, StatePart)}
        optional = sorted(n for n, p in found.items() if isinstance(p, Flat) and p.optional)
        cls.declared = {n: p for n, p in found.items() if n not in optional} | {n: found[n] for n in optional}
        if tag:
            taken = State.by_tag.get(tag)
            if taken is not None and taken.__qualname__ != cls.__qualname__:
                raise TypeError(f"the state tag {tag!r} is already taken by {taken.__qualname__}")
            cls.tag = tag
            State.by_tag[tag] = cls

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

    @property
    def subtracts(self) -> bool:
        """Whether rows can be taken away: nothing is kept that does not come back, such as an extreme."""
        flats = [p for n, p in self.parts().items() if isinstance(p, Flat) and n in self.cells.flats]
        return all(FORMS[p.form].subtracts for p in flats)

    def subtract(self, other: Self) -> Self:
        """Take rows away that were counted.

        Flags and folded cells stay as they are, and so does what was added up because it was beyond a limit, or too old.

        Raises
        ------
        IncompatibleStateError
            A setting differs; a part keeps extremes, which do not come back; or there are not so many rows.
        """
        self._fits(other)
        return fold([self, kept_as(other, self)], sign=-1)

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

    def seal(self, partition: tuple[int, int] | None = None) -> State:
        """Close what is open, such as groups whose rows are all here; itself, where nothing ever is.

        Parameters
        ----------
        partition : (i, n), optional
            Of which partition these are all groups; by default what the settings say.
        """
        return self

    def apart(self) -> State:
        """What tells the same, and from which cells can be taken away: closed groups, say, in place of open ones."""
        return self

    # -- read-outs that collections widen -----------------------------------------------------------------------------

    def widen(self, other: State) -> Self | None:
        """Make one empty state that serves both, or None if their settings differ in more than read-outs."""
        if type(other) is not type(self) or self.axes != other.axes:
            return None
        wide: dict[str, Any] = {}
        for f in fields(self):
            if f.init:
                a, b = getattr(self, f.name), getattr(other, f.name)
                if f.metadata.get("union"):
                    wide[f.name] = tuple(sorted({*a, *b}))
                elif f.metadata.get("operational"):  # no part of what a state is, so none of what is shared
                    wide[f.name] = _both_heeded(a, b)
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


def _both_heeded(a: Any, b: Any) -> Any:
    """What an operational setting is where two are asked for: the lower limit, or the first that is given at all."""
    if a is None or b is None:
        return b if a is None else a
    return min(a, b) if isinstance(a, (int, float)) else a
