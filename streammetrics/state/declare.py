"""What a statistic declares: its parts, and for each the form of its numbers, from which follows how they merge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, overload

import numpy as np

from ..numerics import exact
from .tally import Array, Entries

__all__ = [
    "CEILING",
    "FORMS",
    "LIMIT",
    "UNKNOWN",
    "Array",
    "Flat",
    "Form",
    "StatePart",
    "Tally",
    "carry",
    "identity",
    "lost",
]

FormName = Literal[
    "count",
    "signed",
    "flag",
    "fixed",
    "exact",
    "square",
    "low",
    "high",
    "least",
    "largest",
    "level",
    "register",
    "once",
]

CEILING = 1 << 61
"""The first limb of a square that is lost: 2**41. Numbers that are not negative stop there, in whatever order."""

LIMIT = 1 << 62
"""No count and no first limb passes this: there is room to add two states before anybody looks."""

UNKNOWN = {"least": np.iinfo(np.int64).min, "largest": np.iinfo(np.int64).max}
"""The value of an extreme whose row may have been subtracted: beyond all numbers, whatever is added."""

NONE_LOW, NONE_HIGH = np.iinfo(np.int64).max, np.iinfo(np.int64).min


class Form(NamedTuple):
    """What the integers of a part are.

    Parameters
    ----------
    limbs : int
        How many integers make up one number; 0 for plain ones, which have no axis for them.
    combine : ufunc
        How two aligned arrays become one, before limbs are carried.
    identity : int
        The value that changes nothing.
    subtracts : bool
        Whether rows can be taken away again; flags stay as they are.
    """

    limbs: int
    combine: np.ufunc
    identity: int
    subtracts: bool


FORMS: dict[str, Form] = {
    "count": Form(0, np.add, 0, True),
    "signed": Form(0, np.add, 0, True),
    "flag": Form(0, np.maximum, 0, True),
    "fixed": Form(2, np.add, 0, True),
    "exact": Form(exact.CHUNKS, np.add, 0, True),
    "square": Form(2, np.add, 0, True),
    "low": Form(0, np.minimum, NONE_LOW, False),
    "high": Form(0, np.maximum, NONE_HIGH, False),
    "least": Form(0, np.minimum, NONE_LOW, True),
    "largest": Form(0, np.maximum, NONE_HIGH, True),
    "level": Form(0, np.maximum, 0, True),
    "register": Form(0, np.maximum, 0, False),
    "once": Form(0, np.add, 0, False),
}
"""Counts; signed integers; 0 or 1; multiples of 2**-60 in two limbs; superaccumulators; numbers that are not negative in
two limbs, which stop at CEILING; least and largest; extremes that become unknown when rows are subtracted; the level of
buckets (see `levels`); small numbers of which the largest stays; what may be there once."""


def identity(form: str) -> int:
    """The value of a form that changes nothing."""
    return FORMS[form].identity


def carry(form: str, array: Array) -> Array:
    """Bring limbs to canonical form, in place."""
    if form in ("fixed", "square"):
        exact.carry_fixed(array)
    elif form == "exact":
        exact.carry_exact(array)
    if form == "square":
        beyond = array[..., 0] >= CEILING
        if beyond.any():
            array[beyond] = (CEILING, 0)
    return array


def lost(square: Array) -> Any:
    """Whether a sum of squares stopped at CEILING; of cells side by side, of each."""
    return square[0] >= CEILING


class Readable(Protocol):
    """What parts are read of: the content of a state."""

    def part(self, flat: Flat) -> Array | None: ...

    def entries(self, part: Tally) -> Entries: ...


@dataclass(frozen=True, eq=False)
class StatePart:
    """One part of a statistic, under the name of the class attribute that it is."""

    name: str = field(init=False, default="")

    def __set_name__(self, owner: type, name: str) -> None:
        object.__setattr__(self, "name", name)


@dataclass(frozen=True, eq=False)
class Flat(StatePart):
    """So many integers for every cell; read from a state of one cell, an array of `shape` (and limbs).

    Parameters
    ----------
    *shape : int or str
        Axes; a string names a setting or property of the statistic (its value, or its length if a tuple).
    form : str
        What the integers are (see FORMS).
    optional : bool
        Absent (None) while all zero.
    front : bool
        Whether it belongs to the front cell (a slice, an epoch), not to each group or class behind it.
    like : str, optional
        An optional part that is absent while it is what this part, of counts or sums, would make it: of weights that are
        all 1 the sum of w^2 is rows, and that of w^2 x the sum of x.
    beside : str, optional
        The part that counts rows, of which this is the sum of w - 1: both say what they weigh.
    """

    shape: tuple[int | str, ...]
    form: FormName
    optional: bool
    front: bool
    like: str | None
    beside: str | None

    def __init__(
        self,
        *shape: int | str,
        form: FormName = "count",
        optional: bool = False,
        front: bool = False,
        like: str | None = None,
        beside: str | None = None,
    ) -> None:
        absent = optional or like is not None or beside is not None
        for name, value in (
            ("shape", shape), ("form", form), ("optional", absent), ("front", front), ("like", like), ("beside", beside),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def limbs(self) -> int:
        """How many integers make up one number; 0 for plain ones."""
        return FORMS[self.form].limbs

    @property
    def dtype(self) -> np.dtype[Any]:
        """Flags and registers are bytes, all else is int64."""
        return np.dtype(np.uint8 if self.form in ("flag", "register") else np.int64)

    def extents(self, statistic: Any) -> tuple[int, ...]:
        """The shape of what one cell has, limbs included."""
        axes = tuple(_extent(statistic, axis) for axis in self.shape)
        return axes + ((self.limbs,) if self.limbs else ())

    def empty(self, statistic: Any, cells: int) -> Array:
        """Make what some cells without rows hold."""
        return np.full((cells, *self.extents(statistic)), identity(self.form), self.dtype)

    @overload
    def __get__(self, state: None, owner: type) -> Flat: ...
    @overload
    def __get__(self, state: Readable, owner: type) -> Any: ...
    def __get__(self, state: Readable | None, owner: type) -> Any:
        return self if state is None else state.part(self)


@dataclass(frozen=True, eq=False)
class Tally(StatePart):
    """Rows counted by place within a cell, as sorted entries; read from a state of one cell, `Entries`.

    Parameters
    ----------
    places : str
        The property that says how many places there are.
    level : str, optional
        The part that holds the level of each cell and output, where places are buckets of numbers (see `levels`).
    bits : str
        The setting that limits the width of these buckets.
    pairs : bool
        Whether these are buckets of pairs of numbers (see `pair_levels`).
    """

    places: str
    level: str | None = None
    bits: str = "bits"
    pairs: bool = False

    def count(self, statistic: Any) -> int:
        """How many places there are."""
        return int(getattr(statistic, self.places))

    def shift(self, statistic: Any) -> int:
        """Bits of a place; more than 63 take two words."""
        return (self.count(statistic) - 1).bit_length()

    def wide(self, statistic: Any) -> bool:
        """Whether a place takes a word of its own, and the cell, with a bit of the place, another."""
        return self.shift(statistic) > 48

    @overload
    def __get__(self, state: None, owner: type) -> Tally: ...
    @overload
    def __get__(self, state: Readable, owner: type) -> Entries: ...
    def __get__(self, state: Readable | None, owner: type) -> Any:
        return self if state is None else state.entries(self)


def _extent(statistic: Any, axis: int | str) -> int:
    value = axis if isinstance(axis, int) else getattr(statistic, axis)
    return len(value) if isinstance(value, tuple) else int(value)
