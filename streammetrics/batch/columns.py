"""Columns of a batch. Each column is converted and checked at most once, even if many metrics use it.

A column goes through three steps. `as_array` makes a numpy array from the user's data. A `Kind`, such as a label or a
score, converts it to an array that kernels can read. The same kind then checks the values.

Rows that the option `where` of a task excludes are removed before the second step, so their values are never checked.
For example, a conversion label may be missing in impressions without a click if ``where="click"``.
"""

from __future__ import annotations

import contextlib
import difflib
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
    is_null,
    is_scalar,
    is_tensor,
)

__all__ = ["Batch", "Column", "length_error", "missing_column_error", "suggest_column"]

Array = NDArray[Any]
Mask = NDArray[np.bool_]


PREDICTIONS = ("y_score", "y_pred")
"""The roles of predictions, which users sometimes swap with the labels. `Kind.remedy` looks for such a swap."""

ROLES = frozenset(("y_true", "y_score", "y_pred", "value", "sample_weight", "group", "query"))
"""The roles that `Task` can bind to columns with other names."""

SMALLEST_WEIGHT, LARGEST_WEIGHT = 2.0**-36, 2.0**31


@dataclass(frozen=True)
class Column:
    """A column that kernels can read: contiguous, in native byte order, and of a supported dtype.

    Parameters
    ----------
    values : ndarray
        The values: one for each row, or, in a matrix, several for each row.
    source : str
        The name of the dtype that the user passed. It determines how thresholds are rounded before scores are compared
        with them, and how far scores are clipped away from 0 and 1. Scores that were corrected for down-sampling have a
        source with the prefix `CORRECTED`; they are float64, but are clipped like scores of the original dtype.
    """

    values: Array
    source: str


CORRECTED = "corrected "

dtype_name = functools.cache(lambda dtype: str(dtype.name))
"""Return the name of a dtype. numpy takes about a microsecond to build the name, so names are cached."""


class Kind:
    """The kind of data in a column, such as labels or weights: how to convert the data, and which values are valid."""

    expected: ClassVar[str]
    """The description of valid values in error messages, such as "0 or 1" in "expected 0 or 1"."""
    hint: str = ""
    """Text that an error message appends if the column has the wrong shape."""
    two_columns_hint: str = ""
    """Text that precedes `hint` if a matrix of two columns was passed."""
    ndim: ClassVar[int] = 1
    """1 for a column, 2 for a matrix with a row for each row of the batch."""
    skips: bool = False
    """Whether some valid values, such as an ignored class, exclude their row. If so, `find_skipped` finds them."""

    def read(self, batch: Batch, name: str) -> Column:
        """Return column `name` in the form that kernels read. A value that cannot be converted becomes invalid."""
        try:
            values = batch.array(name, self.ndim)
        except InvalidInputError as error:
            # Add a remedy only to errors about the shape of an array. An iterator is reported with the shape (), and
            # its error already has a remedy.
            if "found an array of shape" not in str(error) or "found an array of shape ()" in str(error):
                raise
            # The message writes the shape of a matrix of two columns as "(n, 2)".
            hint = self.two_columns_hint if str(error).endswith(", 2)") else ""
            raise InvalidInputError(f"{error}{hint}{self.hint}", column=name) from error
        column = self.convert(values, name)
        if column.source == "float32" and batch.is_widened(name):
            return Column(column.values, "bfloat16")
        return column

    def convert(self, values: Array, name: str) -> Column:
        """Convert an array to the form that kernels read. A value that cannot be converted becomes an invalid value."""
        raise NotImplementedError

    def ok(self, column: Column) -> bool:
        """Return whether all values are valid. Call this before the slower `bad`: the answer is usually True."""
        return not self.bad(column).any()

    def bad(self, column: Column) -> Mask:
        """Return a mask of the rows that have an invalid value."""
        raise NotImplementedError

    def describe_row(self, batch: Batch, name: str, row: int) -> str:
        """Describe an invalid row for an error message: its value, as the user passed it, and its row number."""
        return f"{format_value(batch.array(name, self.ndim)[row])} in row {batch.original_row(row):,}"

    def remedy(self, batch: Batch, name: str, bad: Mask, role: str, others: Sequence[Array]) -> remedies.Remedy:
        """Return the most likely way to fix a column with invalid rows, for the error message.

        Parameters
        ----------
        batch, name
            The batch, and the name of the invalid column.
        bad : bool array
            Mask of the invalid rows of the column.
        role : str
            The role of the column in the metric; empty if the column serves only to select rows.
        others : sequence of ndarray
            The other columns of scores or predictions, which may have been swapped with this one.
        """
        return remedies.Remedy()

    def variant(self, batch: Batch, name: str) -> Kind:
        """Return the kind to use for the column of this batch.

        Most kinds return themselves. A kind that accepts several layouts, such as `ScoresOrClasses`, looks at the data
        and returns the kind of the layout that it finds.
        """
        return self

    def find_skipped(self, column: Column) -> Mask | None:
        """Return a mask of the rows to leave out even with ``on_invalid="raise"``, such as rows of an ignored class.

        Returns None if there are no such rows.
        """
        return None


def length_error(name: str, rows: int, other: str, other_rows: int) -> InvalidInputError:
    """Return the error to raise for a column that has more or fewer rows than another column."""
    found = f"{rows:,} row{'s' if rows != 1 else ''}"
    message = f"{name} has {found}, but {other} has {other_rows:,}; pass columns of equal length"
    return InvalidInputError(message, column=name)


def missing_column_error(name: str, names: Sequence[str], hint: str = "") -> InvalidInputError:
    """Return the error to raise for a column that a batch lacks.

    `names` are the column names of the batch. The message ends with `hint` or, by default, with the most likely remedy.
    """
    found = _format_names(names) or "no columns"
    hint = hint or _find_remedy_for_missing(name, names)
    return InvalidInputError(f"there is no column {name!r}; the batch has {found}{hint}", column=name)


def _find_remedy_for_missing(name: str, names: Sequence[str]) -> str:
    if name not in ROLES:
        # If all columns have the names of roles, such as `y_true`, the user passed arrays as arguments rather than a
        # table. The missing column is then a missing argument.
        are_arrays = bool(names) and ROLES.issuperset(names)
        return f"; pass {name}= to update()" if are_arrays else suggest_column(name, names)
    if not ROLES.issuperset(names):
        task = f'sm.MetricCollection(sm.Task(metric, {name}="..."))'
        return f"; if the column has another name, pass {name}= to Task, as in {task}"
    # All columns have the names of roles, so the user probably passed arrays as arguments and left one out.
    if name in PREDICTIONS and "y_true" in names:
        return f"; pass the {'scores' if name == 'y_score' else 'predictions'} as the second argument"
    return f"; pass {name}= to update()"


def suggest_column(name: str, names: Iterable[str]) -> str:
    """Return a hint, for an error message, that suggests the most similar column; empty if no name is similar."""
    # If the batch is a mapping, some of its keys may not be strings.
    by_lower = {one.lower(): one for one in names if isinstance(one, str)}
    close = difflib.get_close_matches(name.lower(), by_lower, 1)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""


class Batch:
    """The columns passed to one `update` call, keyed by name. Each column is converted and checked at most once.

    A batch may also be a selection of rows of another batch, its parent.

    Parameters
    ----------
    columns : mapping
        The columns, keyed by name: arrays, or anything else that `as_array` accepts. Empty for a selection.
    parent, index : Batch and int64 array, optional
        For a selection: the parent, and the positions of the selected rows in it.
    widened : set of str, optional
        The names of the columns that the user passed as bfloat16 and that `columns` contains as float32.
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
        """Return a column as the user passed it, but convert a tensor to an array, and a scalar to a one-row column."""
        return as_rows(self.read_original(name))

    def read_original(self, name: str) -> Any:
        """Return a column as the user passed it, except that a tensor becomes an array.

        A tensor is copied from its device only once.
        """
        if name not in self._columns:
            raise missing_column_error(name, self.names)
        column = self._tensors.get(name)
        if column is None:
            column = self._columns[name]
            if is_tensor(column):
                if is_bfloat16(column):
                    self._widened.add(name)
                column = self._tensors[name] = convert_tensor(column, name)
        return column

    def is_widened(self, name: Any) -> bool:
        """Return whether a float32 column was converted from bfloat16.

        If so, thresholds are rounded and scores are clipped as for bfloat16.
        """
        return name in self._widened if self._parent is None else self._parent.is_widened(name)

    def array(self, name: Any, ndim: int = 1) -> Array:
        """Return a column as an array, without checking its values.

        For a tuple of names, return a matrix with one column for each name.
        """
        if (name, ndim) not in self._arrays:
            if self._parent is not None:
                values = self._parent.array(name, ndim).take(self.index, axis=0)
            elif isinstance(name, tuple):
                values = np.column_stack([self.array(n) for n in name])
            else:
                raw = self.raw(name)
                values = as_array([raw] if self._is_one_row(raw, ndim) else raw, name, ndim)
                # JAX and TensorFlow return bfloat16 as numpy arrays of kind "V".
                if type(raw) is np.ndarray and raw.dtype.kind == "V":
                    self._widened.add(name)
                self.check_length(len(values), name)
            self._arrays[name, ndim] = values
        return self._arrays[name, ndim]

    def _is_one_row(self, raw: Any, ndim: int) -> bool:
        """Return whether a list is the only row of a matrix rather than a column.

        This is the case for a batch of one event, such as ``update(y_true=1, y_score=[0.2, 0.8])``: its other columns
        are scalars.
        """
        flat = ndim == 2 and self.rows == 1 and not is_listed(raw) and hasattr(raw, "__len__") and len(raw) > 0
        return flat and any(is_scalar(self.read_original(name)) for name in self.names)

    def check_length(self, n: int, name: str) -> None:
        """Raise InvalidInputError if a column has more or fewer rows than the columns that were read before."""
        if self._length is None:
            self._length = n, name
        elif self._length[0] != n:
            raise length_error(name, n, self._length[1], self._length[0])

    @property
    def rows(self) -> int | None:
        """The number of rows; None until a column has been read."""
        if self._parent is not None:
            return len(self.index)
        return None if self._length is None else self._length[0]

    def memoize(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Return the cached result for a key. On the first call with this key, call `compute` and cache its result."""
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]

    def column(self, name: Any, kind: Kind) -> Column:
        """Return a column in the form that kernels read, without checking its values."""
        column: Column = self.memoize((name, kind), lambda: kind.read(self, name))
        return column

    def check(self, name: str, kind: Kind, all_columns: Sequence[tuple[str, Any, Kind]] = ()) -> None:
        """Raise InvalidInputError if column `name` contains an invalid value.

        The message names the column, the first invalid row and the number of invalid rows, and suggests a remedy.
        `all_columns` lists (role, name, kind) for each column that the metric reads: the remedy may depend on them.
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
            f"{name}: expected {kind.expected}, found {self._describe_row(name, kind, first)}"
            + (f" ({len(bad):,} of {len(column.values):,} rows in this batch are invalid)" if len(bad) > 1 else "")
            + f"; {remedy.format(len(bad), len(column.values))}",
            column=name,
            row=self.original_row(first),
            count=len(bad),
        )

    def _describe_row(self, name: str, kind: Kind, row: int) -> str:
        at = self.original_row(row)
        if kind.ndim == 1 and is_null(self.root.raw(name), at):
            return f"a null in row {at:,}"
        return kind.describe_row(self, name, row)

    def _collect_readable(self, names: Iterable[Any]) -> list[Array]:
        """Return the named columns that can be converted to arrays; skip the others without an error."""
        arrays = []
        for name in names:
            with contextlib.suppress(InvalidInputError):
                arrays.append(self.array(name))
        return arrays

    def original_row(self, row: int) -> int:
        """Return the position of a row in the batch that the user passed, before any selection."""
        return row if self._parent is None or self._index is None else self._parent.original_row(int(self._index[row]))

    def select(self, keep: Mask) -> Batch:
        """Return a batch of the rows for which the mask `keep` is true."""
        return Batch({}, self, np.flatnonzero(keep))

    def split(self, flags: NDArray[np.uint8]) -> tuple[Batch, NDArray[np.int64]]:
        """Return a batch of the rows whose entry in the 0/1 array `flags` is 1, and the positions of all other rows."""
        # The kernel finds both lists of positions in one pass. numpy, used until the kernels are loaded, needs two.
        if has_kernels():
            rows = np.empty(len(flags) + 1, np.int64), np.empty(len(flags) + 1, np.int64)
            n = find_kernel("convert:split_by_flag")(flags, *rows)
            return Batch({}, self, rows[0][:n]), rows[1][: len(flags) - n]
        kept = flags == 1
        return self.select(kept), np.flatnonzero(~kept)

    @property
    def parent(self) -> Batch | None:
        """The batch that this selection of rows was taken from; None if this batch is not a selection."""
        return self._parent

    @property
    def root(self) -> Batch:
        """The batch that the user passed: this batch itself or, for a selection, the end of its chain of parents."""
        return self if self._parent is None else self._parent.root

    @property
    def index(self) -> NDArray[np.int64]:
        """The positions of the rows of this selection in the parent batch."""
        assert self._index is not None
        return self._index


def _format_names(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20]))
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
