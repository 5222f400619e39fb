"""Arrays of a state: how one is declared, merged, brought to canonical form, checked and digested."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from . import exact
from .settings import canonical_json

__all__ = ["Array", "ArrayRule", "added", "highest", "keyed", "lowest", "rows"]

Array = NDArray[Any]

ROW_LIMIT = 1 << 62
"""No counter and no high limb passes this: there is room to add two states before the check."""

IDENTITY = {"add": 0, "min": np.iinfo(np.int64).max, "max": np.iinfo(np.int64).min}
COMBINE = {"add": np.add, "min": np.minimum, "max": np.maximum}
LIMBS = {"count": 0, "signed": 0, "flag": 0, "fixed": 2, "exact": exact.CHUNKS}


@dataclass(frozen=True)
class ArrayRule:
    """How one array of a state is shaped, merged and checked.

    Parameters
    ----------
    rule : {"add", "min", "max", "keyed", "rows"}
        `keyed` arrays are sorted unique rows of int64, with companion arrays declared `per` them; `rows` arrays are
        sorted rows of int64 that may repeat. Only these two grow.
    shape : tuple of int or str
        Axes; a string names a setting or property (its value, or its length if a tuple).
    form : {"count", "signed", "flag", "fixed", "exact"}
        What the integers are; `fixed` and `exact` add an axis of limbs (module `exact`).
    optional : bool
        Absent until first needed, and again when all zero.
    per : str, optional
        The `keyed` array whose rows the first axis follows.
    """

    rule: Literal["add", "min", "max", "keyed", "rows"]
    shape: tuple[int | str, ...] = ()
    form: Literal["count", "signed", "flag", "fixed", "exact"] = "count"
    optional: bool = False
    per: str | None = None

    @property
    def grows(self) -> bool:
        """Whether the array's length depends on the data."""
        return self.rule in ("keyed", "rows") or self.per is not None

    @property
    def identity(self) -> int:
        """The value that changes nothing when combined."""
        return 0 if self.form == "flag" else IDENTITY[self.rule]

    def combine(self, ours: Array, theirs: Array) -> Array:
        """Combine two aligned arrays into a new one, in canonical form."""
        return self.carry(COMBINE[self.rule](ours, theirs))

    def carry(self, array: Array) -> Array:
        """Bring limbs to canonical form, in place."""
        if self.form == "fixed":
            exact.carry_fixed(array)
        elif self.form == "exact":
            exact.carry_exact(array)
        return array

    @property
    def limbs(self) -> int:
        """How many integers make up one number; 0 for plain integers, which have no axis for them."""
        return LIMBS[self.form]

    def broken(self, array: Array) -> str | None:
        """Say what is wrong with a decoded array; None if it is in canonical form and in range."""
        if not array.size:
            return None
        if self.form in ("count", "flag") and array.min() < 0:
            return "holds a negative count"
        if self.form == "flag" and array.max() > 1:
            return "holds a flag that is neither 0 nor 1"
        if self.limbs:
            low = array[..., 1] if self.form == "fixed" else array[..., :-1]
            if low.min() < 0 or low.max() >= 1 << (exact.LOW_BITS if self.form == "fixed" else 32):
                return "holds a sum that is not in canonical form"
        if self.rule == "add" and np.abs(self._top(array).astype(np.float64)).sum() >= ROW_LIMIT:  # no int wraps around
            return "is out of range"
        return "is all zero, and should be absent" if self.optional and not array.any() else None

    def _top(self, array: Array) -> Array:
        return array if not self.limbs else array[..., 0 if self.form == "fixed" else -1]

    def load(self, array: Array) -> int:
        """How far the array has used up its range: compared with ROW_LIMIT."""
        if self.rule != "add" or not array.size:
            return 0
        return int(np.abs(self._top(array)).sum())


def in_order(rules: Mapping[str, ArrayRule]) -> dict[str, ArrayRule]:
    """Put rules in the order in which arrays are written: as declared, but optional ones last and by name.

    So whoever merges states without knowing their class, each with some of the optional arrays, writes what the class
    would have written.
    """
    optional = sorted(name for name, rule in rules.items() if rule.optional)
    return {name: rules[name] for name in [*(n for n, r in rules.items() if not r.optional), *optional]}


def _declare(rule: Any, shape: tuple[int | str, ...], form: Any, optional: bool, per: str | None) -> Any:
    return field(init=False, repr=False, metadata={"array": ArrayRule(rule, shape, form, optional, per)})


def added(
    *shape: int | str, form: str = "count", optional: bool = False, per: str | None = None, init: Literal[False] = False
) -> Any:
    """Declare an array that merges by addition (see `ArrayRule`)."""
    return _declare("add", shape, form, optional, per)


def lowest(*shape: int | str, per: str | None = None, init: Literal[False] = False) -> Any:
    """Declare an array that keeps the minimum."""
    return _declare("min", shape, "signed", False, per)


def highest(*shape: int | str, form: str = "signed", per: str | None = None, init: Literal[False] = False) -> Any:
    """Declare an array that keeps the maximum; `form="flag"` starts at 0."""
    return _declare("max", shape, form, False, per)


def keyed(width: int | str = 1, *, init: Literal[False] = False) -> Any:
    """Declare sorted unique rows of `width` int64: the keys of the arrays declared `per` them."""
    return _declare("keyed", (width,), "signed", False, None)


def rows(width: int | str = 1, *, init: Literal[False] = False) -> Any:
    """Declare a sorted multiset of rows of `width` int64."""
    return _declare("rows", (width,), "signed", False, None)


def scatter(rule: ArrayRule, source: Array, to: NDArray[np.int64], target: Array) -> Array:
    """Combine row i of `source` into row `to[i]` of `target`."""
    if len(np.unique(to)) == len(to):  # the common case: no two rows meet
        target[to] = rule.combine(target[to], source)
        return target
    order = np.argsort(to, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(to[order]) != 0])
    met = COMBINE[rule.rule].reduceat(source[order], starts, axis=0)
    where = to[order][starts]
    target[where] = rule.combine(target[where], met)
    return target


def canonical(rules: dict[str, ArrayRule], arrays: dict[str, Array]) -> dict[str, Array]:
    """Sort rows; unite equal keys and combine what is `per` them."""
    out: dict[str, Array] = {}
    for name, array in arrays.items():
        rule = rules[name]
        if rule.rule == "rows":
            out[name] = array[np.lexsort(array.T[::-1])]
        elif rule.rule == "keyed":
            order = np.lexsort(array.T[::-1])
            ordered = array[order]
            starts = np.flatnonzero(np.r_[len(ordered) > 0, (ordered[1:] != ordered[:-1]).any(axis=1)][: len(ordered)])
            out[name] = ordered[starts]
            for member, held in arrays.items():
                its = rules[member]
                if its.per == name:
                    met = COMBINE[its.rule].reduceat(held[order], starts, axis=0) if len(starts) else held
                    out[member] = its.carry(met)
    return out


def digest_of(header: dict[str, Any], arrays: list[Array]) -> str:
    """SHA-256 of a header and the raw little-endian bytes of its arrays."""
    sha = hashlib.sha256(canonical_json(header).encode())
    for array in arrays:
        sha.update(np.ascontiguousarray(array, "<i8").data)
    return sha.hexdigest()
