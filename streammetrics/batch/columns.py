"""Columns in: every conversion and every check of what users pass, done once per column and batch.

A column goes through three steps: `as_array` makes a one-dimensional numpy array of whatever was given, a `Kind`
converts it to what kernels read, and the same kind checks its values. Rows that a task's `where` leaves out are gone
before the second step, so a conversion label may be missing where there was no click.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.kernel_registry import kernel, loaded
from . import remedies
from .convert import (
    as_array,
    as_rows,
    is_bfloat16,
    is_listed,
    is_scalar,
    is_tensor,
    of_tensor,
    text_of,
)

__all__ = ["Batch", "Column"]

Array = NDArray[Any]
Mask = NDArray[np.bool_]


PREDICTIONS = ("y_score", "y_pred")
"""Roles that a user may swap with `y_true`."""

SMALLEST_WEIGHT, LARGEST_WEIGHT = 2.0**-36, 2.0**31


@dataclass(frozen=True)
class Column:
    """A column as kernels read it: contiguous, native, uint8, float32 or float64.

    Parameters
    ----------
    values : ndarray
        The rows.
    source : str
        Name of the dtype the user gave; thresholds and clipping follow it. Behind CORRECTED, clipping alone: what was
        computed of scores has float64's bits, and those that were saturated still are.
    """

    values: Array
    source: str


CORRECTED = "corrected "

dtype_name = functools.cache(lambda dtype: str(dtype.name))
"""The name of a dtype, which numpy makes anew, in a microsecond, every time it is asked."""


class Kind:
    """What a column may hold: how it is converted and what is checked."""

    expected: ClassVar[str]
    hint: str = ""
    """What is added where a column has another shape."""
    ndim: ClassVar[int] = 1
    """1, or 2 for a matrix: rows x columns."""
    skips: bool = False
    """Whether `skipped` may leave rows out."""

    def read(self, batch: Batch, name: str) -> Column:
        """Return the column of a batch; values that cannot be held are left for `bad`."""
        try:
            values = batch.array(name, self.ndim)
        except InvalidInputError as error:
            if "got shape" not in str(error):
                raise
            raise InvalidInputError(f"{error}{self.hint}", column=name) from error
        column = self.convert(values, name)
        if column.source == "float32" and batch.is_widened(name):
            return Column(column.values, "bfloat16")
        return column

    def convert(self, values: Array, name: str) -> Column:
        """Return the column as kernels read it; values that cannot be held are left for `bad`."""
        raise NotImplementedError

    def ok(self, column: Column) -> bool:
        """Whether all values are good: the fast check."""
        return not self.bad(column).any()

    def bad(self, column: Column) -> Mask:
        """Which rows hold a bad value."""
        raise NotImplementedError

    def found(self, batch: Batch, name: str, row: int) -> str:
        """Show what is bad about a row, as it was given."""
        return f"{text_of(batch.array(name, self.ndim)[row])} in row {batch.origin(row):,}"

    def remedy(self, batch: Batch, name: str, bad: Mask, role: str, others: Sequence[Array]) -> remedies.Remedy:
        """Return what most likely helps against bad rows.

        Parameters
        ----------
        batch, name
            The column.
        bad : bool array
            Its bad rows.
        role : str
            The role that it plays; empty if it only selects rows.
        others : sequence of ndarray
            The scores or predictions beside it.
        """
        return remedies.Remedy()

    def variant(self, batch: Batch, name: str) -> Kind:
        """Return the kind that a column has, where a role takes columns of several kinds."""
        return self

    def skipped(self, column: Column) -> Mask | None:
        """Which rows are to be left out, and counted, whatever `on_invalid` says; None for none."""
        return None


class Batch:
    """Columns by name, each converted and checked at most once.

    Parameters
    ----------
    columns : mapping
        Arrays, or whatever `as_array` takes, by name.
    parent, index : Batch and int64 array, optional
        What it is a selection of, and the rows of that.
    widened : set of str, optional
        Columns whose values were bfloat16, and are given in float32.
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        parent: Batch | None = None,
        index: NDArray[np.int64] | None = None,
        widened: frozenset[str] = frozenset(),
    ) -> None:
        self._columns, self._parent, self._index = columns, parent, index
        self._widened = set(widened)
        self._tensors: dict[str, Array] = {}
        self._arrays: dict[tuple[Any, int], Array] = {}
        self._made: dict[Any, Any] = {}
        self._length: tuple[int, str] | None = None

    def __contains__(self, name: str) -> bool:
        return name in (self._columns if self._parent is None else self._parent)

    @property
    def names(self) -> list[str]:
        """The columns there are."""
        return list(self._columns) if self._parent is None else self._parent.names

    def raw(self, name: str) -> Any:
        """Return a column as it was given, a tensor as an array, one value as a column of one row."""
        return as_rows(self.given(name))

    def given(self, name: str) -> Any:
        """Return what was given under a name, a tensor as an array; or raise naming the columns there are."""
        if name not in self._columns:
            raise InvalidInputError(f"there is no column {name!r}; the batch has {_listed(self.names)}", column=name)
        given = self._tensors.get(name)
        if given is None:
            given = self._columns[name]
            if is_tensor(given):
                if is_bfloat16(given):
                    self._widened.add(name)
                given = self._tensors[name] = of_tensor(given, name)
        return given

    def is_widened(self, name: Any) -> bool:
        """Whether a column that is now float32 was given as bfloat16, which thresholds and clipping follow."""
        return name in self._widened if self._parent is None else self._parent.is_widened(name)

    def array(self, name: Any, ndim: int = 1) -> Array:
        """Return a column as a numpy array, rows selected, values unchecked; a tuple of columns as a matrix."""
        if (name, ndim) not in self._arrays:
            if self._parent is not None:
                values = self._parent.array(name, ndim).take(self.index, axis=0)
            elif isinstance(name, tuple):
                values = np.column_stack([self.array(n) for n in name])
            else:
                given = self.raw(name)
                values = as_array([given] if self._is_one_row(given, ndim) else given, name, ndim)
                if type(given) is np.ndarray and given.dtype.kind == "V":  # as JAX and TensorFlow extend numpy
                    self._widened.add(name)
                self.same_length(len(values), name)
            self._arrays[name, ndim] = values
        return self._arrays[name, ndim]

    def _is_one_row(self, given: Any, ndim: int) -> bool:
        """Whether a list of values is the row of a matrix: that of one event, of which another column is a value."""
        flat = ndim == 2 and self.rows == 1 and not is_listed(given) and hasattr(given, "__len__") and len(given) > 0
        return flat and any(is_scalar(self.given(name)) for name in self.names)

    def same_length(self, n: int, name: str) -> None:
        """Raise unless this column is as long as those before it."""
        if self._length is None:
            self._length = n, name
        elif self._length[0] != n:
            raise InvalidInputError(f"{name} has {n:,} rows, {self._length[1]} has {self._length[0]:,}", column=name)

    @property
    def rows(self) -> int | None:
        """How many rows there are, once a column said so."""
        if self._parent is not None:
            return len(self.index)
        return None if self._length is None else self._length[0]

    def make(self, key: Any, maker: Callable[[], Any]) -> Any:
        """Return what was made under this key, made now if it is new."""
        if key not in self._made:
            self._made[key] = maker()
        return self._made[key]

    def column(self, name: Any, kind: Kind) -> Column:
        """Return a column as kernels read it, values unchecked."""
        made: Column = self.make((name, kind), lambda: kind.read(self, name))
        return made

    def check(self, name: str, kind: Kind, beside: Sequence[tuple[str, Any, Kind]] = ()) -> None:
        """Raise InvalidInputError naming column, first bad row, count and remedy, unless all values are good.

        `beside` are the roles, names and kinds of all columns that are read.
        """
        column = self.column(name, kind)
        if self.make((name, kind, "ok"), lambda: kind.ok(column)):
            return
        wrong = kind.bad(column)
        bad = np.flatnonzero(wrong)
        first = int(bad[0])
        role = next((r for r, n, k in beside if (n, k) == (name, kind)), "")
        others = self._readable(n for r, n, k in beside if r in PREDICTIONS and n != name and k.ndim == 1)
        remedy = kind.remedy(self, name, wrong, role, others)
        raise InvalidInputError(
            f"{name}: expected {kind.expected}, found {kind.found(self, name, first)}"
            + (f" ({len(bad):,} bad rows of {len(column.values):,} in this batch)" if len(bad) > 1 else "")
            + f"; {remedy.said(len(bad), len(column.values))}",
            column=name,
            row=self.origin(first),
            count=len(bad),
        )

    def _readable(self, names: Iterable[Any]) -> list[Array]:
        """Return the columns of these names that can be read as arrays."""
        found = []
        for name in names:
            with contextlib.suppress(InvalidInputError):
                found.append(self.array(name))
        return found

    def origin(self, row: int) -> int:
        """Where a row stood in the batch that the user gave."""
        return row if self._parent is None or self._index is None else self._parent.origin(int(self._index[row]))

    def select(self, keep: Mask) -> Batch:
        """Return the batch of the rows kept."""
        return Batch({}, self, np.flatnonzero(keep))

    def split(self, flags: NDArray[np.uint8]) -> tuple[Batch, NDArray[np.int64]]:
        """Return the batch of the rows whose flag is 1, and the other rows."""
        if loaded():
            rows = np.empty(len(flags) + 1, np.int64), np.empty(len(flags) + 1, np.int64)
            n = kernel("convert:choose")(flags, *rows)
            return Batch({}, self, rows[0][:n]), rows[1][: len(flags) - n]
        kept = flags == 1
        return self.select(kept), np.flatnonzero(~kept)

    @property
    def parent(self) -> Batch | None:
        """The batch that this one is a selection of."""
        return self._parent

    @property
    def whole(self) -> Batch:
        """The batch as it was given; itself, if this is no selection."""
        return self if self._parent is None else self._parent.whole

    @property
    def index(self) -> NDArray[np.int64]:
        """For a selection: the rows of its parent."""
        assert self._index is not None
        return self._index


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20]))
    return (shown or "none") + (f" and {len(names) - 20} more" if len(names) > 20 else "")
