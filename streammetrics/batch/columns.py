"""Columns of a batch: each is converted and checked at most once, however many states read it.

A column goes through three steps: `as_array` makes a numpy array of the data of the user, a `Kind` converts it to an
array that kernels read, and the same kind checks its values. Rows that the `where` of a task excludes are removed before
the second step, so the label of a conversion may be missing in rows without a click.
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
from ..numerics.kernel_registry import find_kernel, has_kernels
from . import remedies
from .convert import (
    as_array,
    as_rows,
    convert_tensor,
    format_value,
    is_bfloat16,
    is_listed,
    is_scalar,
    is_tensor,
)

__all__ = ["Batch", "Column"]

Array = NDArray[Any]
Mask = NDArray[np.bool_]


PREDICTIONS = ("y_score", "y_pred")
"""Roles that a user may swap with `y_true`."""

SMALLEST_WEIGHT, LARGEST_WEIGHT = 2.0**-36, 2.0**31


@dataclass(frozen=True)
class Column:
    """A column as kernels read it: contiguous, in native byte order, and of a dtype that kernels know.

    Parameters
    ----------
    values : ndarray
        The value, or values, of each row.
    source : str
        The name of the dtype of the user, which decides how thresholds are compared and scores are clipped. For scores
        corrected for down-sampling it begins with `CORRECTED`: then only clipping follows the dtype, because corrected
        scores are float64, but scores that were exactly 0 or 1 still are.
    """

    values: Array
    source: str


CORRECTED = "corrected "

dtype_name = functools.cache(lambda dtype: str(dtype.name))
"""Return the name of a dtype, from a cache: numpy takes a microsecond to make it."""


class Kind:
    """A kind of columns: how a column is converted, and which values are valid."""

    expected: ClassVar[str]
    """What is expected, for error messages."""
    hint: str = ""
    """What an error message adds if a column has another shape."""
    ndim: ClassVar[int] = 1
    """1, or 2 for a matrix: rows x columns."""
    skips: bool = False
    """Whether `find_skipped` may exclude rows."""

    def read(self, batch: Batch, name: str) -> Column:
        """Return the column of a batch; values that cannot be converted become invalid values, which `bad` finds."""
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
        """Return the column as kernels read it; values that cannot be converted become invalid values."""
        raise NotImplementedError

    def ok(self, column: Column) -> bool:
        """Return whether all values are valid; this is faster than `bad`."""
        return not self.bad(column).any()

    def bad(self, column: Column) -> Mask:
        """Return a mask of the rows that have an invalid value."""
        raise NotImplementedError

    def describe_row(self, batch: Batch, name: str, row: int) -> str:
        """Return the value of an invalid row, as the user passed it, and the row number, for an error message."""
        return f"{format_value(batch.array(name, self.ndim)[row])} in row {batch.original_row(row):,}"

    def remedy(self, batch: Batch, name: str, bad: Mask, role: str, others: Sequence[Array]) -> remedies.Remedy:
        """Return the most likely remedy for invalid rows.

        Parameters
        ----------
        batch, name
            The column.
        bad : bool array
            Mask of the invalid rows of the column.
        role : str
            The role of the column in the metric; empty if the column only selects rows.
        others : sequence of ndarray
            The other columns of scores or predictions.
        """
        return remedies.Remedy()

    def variant(self, batch: Batch, name: str) -> Kind:
        """Return the kind of a column, for roles that take columns of several kinds."""
        return self

    def find_skipped(self, column: Column) -> Mask | None:
        """Return a mask of the rows that are excluded and counted for any `on_invalid`; None if there are none."""
        return None


class Batch:
    """Columns by name, each converted and checked at most once.

    Parameters
    ----------
    columns : mapping
        Arrays, or anything else that `as_array` takes, by name.
    parent, index : Batch and int64 array, optional
        For a selection: the batch that rows are selected from, and the selected rows.
    widened : set of str, optional
        Columns that were bfloat16, and are float32 in `columns`.
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
        self._cache: dict[Any, Any] = {}
        self._length: tuple[int, str] | None = None

    def __contains__(self, name: str) -> bool:
        return name in (self._columns if self._parent is None else self._parent)

    @property
    def names(self) -> list[str]:
        """The names of all columns of the batch."""
        return list(self._columns) if self._parent is None else self._parent.names

    def raw(self, name: str) -> Any:
        """Return a column as the user passed it; a tensor becomes an array, and a scalar a column of one row."""
        return as_rows(self.read_original(name))

    def read_original(self, name: str) -> Any:
        """Return a column as the user passed it; a tensor becomes an array and is copied from its device only once."""
        if name not in self._columns:
            raise InvalidInputError(
                f"there is no column {name!r}; the batch has {_format_names(self.names)}", column=name
            )
        column = self._tensors.get(name)
        if column is None:
            column = self._columns[name]
            if is_tensor(column):
                if is_bfloat16(column):
                    self._widened.add(name)
                column = self._tensors[name] = convert_tensor(column, name)
        return column

    def is_widened(self, name: Any) -> bool:
        """Return whether a float32 column was bfloat16, which decides how thresholds are compared and scores clipped."""
        return name in self._widened if self._parent is None else self._parent.is_widened(name)

    def array(self, name: Any, ndim: int = 1) -> Array:
        """Return the selected rows of a column as a numpy array, or of a tuple of columns as a matrix, unchecked."""
        if (name, ndim) not in self._arrays:
            if self._parent is not None:
                values = self._parent.array(name, ndim).take(self.index, axis=0)
            elif isinstance(name, tuple):
                values = np.column_stack([self.array(n) for n in name])
            else:
                raw = self.raw(name)
                values = as_array([raw] if self._is_one_row(raw, ndim) else raw, name, ndim)
                # JAX and TensorFlow represent bfloat16 like this.
                if type(raw) is np.ndarray and raw.dtype.kind == "V":
                    self._widened.add(name)
                self.check_length(len(values), name)
            self._arrays[name, ndim] = values
        return self._arrays[name, ndim]

    def _is_one_row(self, raw: Any, ndim: int) -> bool:
        """Return whether a list is one row of a matrix, as in a batch of one event, whose other columns are scalars."""
        flat = ndim == 2 and self.rows == 1 and not is_listed(raw) and hasattr(raw, "__len__") and len(raw) > 0
        return flat and any(is_scalar(self.read_original(name)) for name in self.names)

    def check_length(self, n: int, name: str) -> None:
        """Raise InvalidInputError if this column has another length than earlier columns."""
        if self._length is None:
            self._length = n, name
        elif self._length[0] != n:
            raise InvalidInputError(f"{name} has {n:,} rows, {self._length[1]} has {self._length[0]:,}", column=name)

    @property
    def rows(self) -> int | None:
        """The number of rows; None before a column is read."""
        if self._parent is not None:
            return len(self.index)
        return None if self._length is None else self._length[0]

    def memoize(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Return the cached result for a key; the first call computes the result."""
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]

    def column(self, name: Any, kind: Kind) -> Column:
        """Return a column as kernels read it, without checking its values."""
        column: Column = self.memoize((name, kind), lambda: kind.read(self, name))
        return column

    def check(self, name: str, kind: Kind, all_columns: Sequence[tuple[str, Any, Kind]] = ()) -> None:
        """Raise InvalidInputError if a value is invalid; name the column, the first invalid row, the count and a remedy.

        `all_columns` are the roles, names and kinds of all columns that the state reads; they help to find the remedy.
        """
        column = self.column(name, kind)
        if self.memoize((name, kind, "ok"), lambda: kind.ok(column)):
            return
        wrong = kind.bad(column)
        bad = np.flatnonzero(wrong)
        first = int(bad[0])
        role = next((r for r, n, k in all_columns if (n, k) == (name, kind)), "")
        others = self._collect_readable(n for r, n, k in all_columns if r in PREDICTIONS and n != name and k.ndim == 1)
        remedy = kind.remedy(self, name, wrong, role, others)
        raise InvalidInputError(
            f"{name}: expected {kind.expected}, found {kind.describe_row(self, name, first)}"
            + (f" ({len(bad):,} bad rows of {len(column.values):,} in this batch)" if len(bad) > 1 else "")
            + f"; {remedy.format(len(bad), len(column.values))}",
            column=name,
            row=self.original_row(first),
            count=len(bad),
        )

    def _collect_readable(self, names: Iterable[Any]) -> list[Array]:
        """Return the columns with these names that can be converted to arrays."""
        arrays = []
        for name in names:
            with contextlib.suppress(InvalidInputError):
                arrays.append(self.array(name))
        return arrays

    def original_row(self, row: int) -> int:
        """Return the position of a row in the batch that the user passed."""
        return row if self._parent is None or self._index is None else self._parent.original_row(int(self._index[row]))

    def select(self, keep: Mask) -> Batch:
        """Return a batch of the selected rows."""
        return Batch({}, self, np.flatnonzero(keep))

    def split(self, flags: NDArray[np.uint8]) -> tuple[Batch, NDArray[np.int64]]:
        """Return the rows whose flag is 1 as a batch, and the positions of the other rows."""
        # The kernel writes both lists in one pass. If kernels are not loaded yet, numpy computes the lists.
        if has_kernels():
            rows = np.empty(len(flags) + 1, np.int64), np.empty(len(flags) + 1, np.int64)
            n = find_kernel("convert:split_by_flag")(flags, *rows)
            return Batch({}, self, rows[0][:n]), rows[1][: len(flags) - n]
        kept = flags == 1
        return self.select(kept), np.flatnonzero(~kept)

    @property
    def parent(self) -> Batch | None:
        """The batch from which this batch was selected; None if this batch is not a selection."""
        return self._parent

    @property
    def root(self) -> Batch:
        """The batch that the user passed, from which this batch was selected in any number of steps (maybe none)."""
        return self if self._parent is None else self._parent.root

    @property
    def index(self) -> NDArray[np.int64]:
        """The positions in the parent of the rows of a selection."""
        assert self._index is not None
        return self._index


def _format_names(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20]))
    return (shown or "none") + (f" and {len(names) - 20} more" if len(names) > 20 else "")
