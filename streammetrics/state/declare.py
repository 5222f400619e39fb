"""The parts (arrays and histograms) of a statistic, and the forms of their numbers, such as counts, sums or maxima.

The form of a part determines how it is merged.
"""

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
    "UNKNOWN_EXTREME",
    "Array",
    "Flat",
    "Form",
    "StatePart",
    "Tally",
    "carry",
    "identity",
    "is_saturated",
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
"""The upper integer (limb) of a sum of squares at which the sum saturates; it corresponds to a sum of 2**41. Since no term
is negative, whether a sum saturates does not depend on the order of its terms."""

LIMIT = 1 << 62
"""Counts, and the upper integers of sums, must be below this number. The sum of two such integers fits into an int64,
so the sum can be compared with this number after the addition."""

UNKNOWN_EXTREME = {"least": np.iinfo(np.int64).min, "largest": np.iinfo(np.int64).max}
"""The value of a minimum ("least") or maximum ("largest") that is unknown because its row may have been subtracted. It is
more extreme than all numbers, so it is kept when rows are added."""

NONE_LOW, NONE_HIGH = np.iinfo(np.int64).max, np.iinfo(np.int64).min


class Form(NamedTuple):
    """The form of the numbers in a part (an array of a state): how they are stored as integers and merged.

    Parameters
    ----------
    limbs : int
        The number of integers (limbs) that make up one number and form an additional last axis; 0 for plain integers.
    combine : ufunc
        The operation that merges two aligned arrays, before carries between limbs are propagated.
    identity : int
        The neutral element of `combine`.
    can_subtract : bool
        Whether rows can be subtracted from numbers of this form. A subtraction combines numbers of the forms "flag" and
        "level" in the same way as a merge.
    """

    limbs: int
    combine: np.ufunc
    identity: int
    can_subtract: bool


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
"""The forms, in order: counts; signed integers; flags (0 or 1); multiples of 2**-60 in two limbs (integers);
superaccumulators, which add up float64 numbers exactly; nonnegative sums in two limbs that saturate at CEILING; minimum
and maximum; minimum and maximum that become unknown when rows are subtracted; the level of buckets (see `levels`);
registers, which keep the largest byte; counts of at most 1."""


def identity(form: str) -> int:
    """Return the neutral element of the operation that merges numbers of this form, such as 0 for sums."""
    return FORMS[form].identity


def carry(form: str, array: Array) -> Array:
    """Propagate carries between limbs (the integers that make up a number), so that equal numbers have equal limbs.

    Work in place, and return the array.
    """
    if form in ("fixed", "square"):
        exact.carry_fixed(array)
    elif form == "exact":
        exact.carry_exact(array)
    # Clip sums of squares to CEILING. No term is negative, so whether a sum reaches CEILING does not depend on the
    # order of its terms.
    if form == "square":
        beyond = array[..., 0] >= CEILING
        if beyond.any():
            array[beyond] = (CEILING, 0)
    return array


def is_saturated(square: Array) -> Any:
    """Return whether a sum of squares has reached CEILING, where it stays from then on.

    The first axis of `square` contains the two integers of the sum. The result is elementwise over the other axes.
    """
    return square[0] >= CEILING


class Readable(Protocol):
    """An object from which parts can be read, that is, a state.

    Reading a part as an attribute of the state calls one of these methods.
    """

    def read_part(self, flat: Flat) -> Array | None: ...

    def read_entries(self, part: Tally) -> Entries: ...


@dataclass(frozen=True, eq=False)
class StatePart:
    """A part (array or histogram) of a statistic, declared as a class attribute and named after this attribute."""

    name: str = field(init=False, default="")

    def __set_name__(self, owner: type, name: str) -> None:
        object.__setattr__(self, "name", name)


@dataclass(frozen=True, eq=False)
class Flat(StatePart):
    """A part with a fixed number of integers in every cell.

    For a state with a single cell, reading the part as an attribute returns an array of shape `shape`, with one more
    axis if each number consists of several integers (limbs).

    Parameters
    ----------
    *shape : int or str
        The lengths of the axes. A string names a setting or property of the statistic; the length is then its value, or
        the length of the value if it is a tuple.
    form : str
        The form of the integers (see FORMS).
    optional : bool
        Whether the part is absent (None) as long as all of its numbers are 0.
    front : bool
        Whether the part has a row for each front cell (such as a slice or an epoch) rather than for each group or class
        within it.
    like : str, optional
        The name of another part. As long as all weights are 1, this part equals the other one and is therefore absent.
        For example, the sum of squared weights then equals the number of rows.
    excess_of : str, optional
        The name of the part that counts rows, if this part is the sum of w - 1 over the weights w of the same rows. The
        two parts add up to the total weight.
    """

    shape: tuple[int | str, ...]
    form: FormName
    optional: bool
    front: bool
    like: str | None
    excess_of: str | None

    def __init__(
        self,
        *shape: int | str,
        form: FormName = "count",
        optional: bool = False,
        front: bool = False,
        like: str | None = None,
        excess_of: str | None = None,
    ) -> None:
        absent = optional or like is not None or excess_of is not None
        for name, value in (
            ("shape", shape), ("form", form), ("optional", absent), ("front", front), ("like", like),
            ("excess_of", excess_of),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def limbs(self) -> int:
        """The number of integers that make up one number; 0 for plain integers."""
        return FORMS[self.form].limbs

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the array: uint8 for flags and registers, int64 for all other forms."""
        return np.dtype(np.uint8 if self.form in ("flag", "register") else np.int64)

    def extents(self, statistic: Any) -> tuple[int, ...]:
        """Return the shape of one cell's array, including the last axis for limbs (see `limbs`), if there is one."""
        axes = tuple(_extent(statistic, axis) for axis in self.shape)
        return axes + ((self.limbs,) if self.limbs else ())

    def empty(self, statistic: Any, cells: int) -> Array:
        """Return this part's array for `cells` empty cells."""
        return np.full((cells, *self.extents(statistic)), identity(self.form), self.dtype)

    @overload
    def __get__(self, state: None, owner: type) -> Flat: ...
    @overload
    def __get__(self, state: Readable, owner: type) -> Any: ...
    def __get__(self, state: Readable | None, owner: type) -> Any:
        return self if state is None else state.read_part(self)


@dataclass(frozen=True, eq=False)
class Tally(StatePart):
    """A histogram: a part that counts the rows of a cell by place (a bucket, such as a range of scores).

    A tally stores only the places that contain rows, as sorted entries. For a state with a single cell, reading the
    part as an attribute returns an `Entries` object.

    Parameters
    ----------
    places : str
        The name of the statistic's property that gives the number of places, including empty ones.
    level : str, optional
        The name of the part with the bucket width (level) of each cell and output, if the places are buckets whose
        width adapts to the values (see `levels`).
    bits : str
        The name of the setting that limits the width of these buckets.
    pairs : bool
        Whether a bucket contains pairs of numbers rather than single numbers (see `pair_levels`).
    """

    places: str
    level: str | None = None
    bits: str = "bits"
    pairs: bool = False

    def place_count(self, statistic: Any) -> int:
        """Return the number of places (buckets) of each cell (such as a slice), including empty places."""
        return int(getattr(statistic, self.places))

    def shift(self, statistic: Any) -> int:
        """Return the number of bits of an entry's code that contain the place; the bits above them contain the cell."""
        return (self.place_count(statistic) - 1).bit_length()

    def is_wide(self, statistic: Any) -> bool:
        """Return whether the codes of entries (cell and place) need two words, because 64 bits may not be enough."""
        return self.shift(statistic) > 48

    @overload
    def __get__(self, state: None, owner: type) -> Tally: ...
    @overload
    def __get__(self, state: Readable, owner: type) -> Entries: ...
    def __get__(self, state: Readable | None, owner: type) -> Any:
        return self if state is None else state.read_entries(self)


def _extent(statistic: Any, axis: int | str) -> int:
    value = axis if isinstance(axis, int) else getattr(statistic, axis)
    return len(value) if isinstance(value, tuple) else int(value)
