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
from ..numerics.compiled import kernel, loaded
from . import remedies
from .convert import (
    as_array,
    as_rows,
    is_bfloat16,
    is_listed,
    is_scalar,
    is_tensor,
    missing,
    of_tensor,
    one_column,
    text_of,
)

__all__ = ["Batch", "Column", "Need", "flag", "grade", "kind_word", "label", "matrix", "score", "target", "weight"]

Array = NDArray[Any]
Mask = NDArray[np.bool_]

NAMED = ", or give labels=(negative, positive) to the task"
"""What may be done with labels that are strings; with nothing else."""

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


SEVERAL = "; for a column for each class give num_classes= or labels=, for one for each label num_labels="
"""What a matrix in place of a column may be meant to be."""


class Label(Kind):
    """0 or 1, in any dtype, or what a task calls the two; kept as uint8, where 2 stands for everything else."""

    expected = "0 or 1"
    hint = SEVERAL

    def __init__(self, labels: tuple[Any, Any] | None = None, pos_label: Any = None) -> None:
        self.labels, self.pos_label = labels, pos_label
        if labels is not None:
            self.expected = f"{labels[0]!r} or {labels[1]!r}"  # type: ignore[misc]
        elif pos_label is not None:
            self.expected = f"labels, of which {pos_label!r} is positive"  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Label) and (self.labels, self.pos_label) == (other.labels, other.pos_label)

    def __hash__(self) -> int:
        return hash((Label, self.labels, self.pos_label))

    def convert(self, values: Array, name: str) -> Column:
        source = dtype_name(values.dtype)
        if self.labels is not None or self.pos_label is not None:
            return Column(self._named(values, name), source)
        _numeric(values, name, self.expected, NAMED)
        if values.dtype.itemsize == 1:  # bool, int8, uint8: the kernels see -1 as 255
            return Column(np.ascontiguousarray(values).view(np.uint8), source)
        positive = values == 1
        out = positive.view(np.uint8)
        good = (values == 0) | positive
        return Column(out if good.all() else np.where(good, out, np.uint8(2)), source)

    def _named(self, values: Array, name: str) -> NDArray[np.uint8]:
        """Look labels up; a column of another kind than the names would be silently all negatives."""
        named = self.labels if self.labels is not None else (self.pos_label,)
        objects = values.dtype.kind in "OT"
        gone = missing(values, len(values)) if objects else values != values if values.dtype.kind == "f" else None
        there = values if gone is None else values[~gone]
        found = (
            {kind_word(type(v)) for v in there} if objects else {kind_word(values.dtype.type)} if len(there) else set()
        )
        if strange := found - {kind_word(type(n)) for n in named}:
            raise InvalidInputError(
                f"{name}: expected {self.expected}, got a column of {' and '.join(sorted(strange))}", column=name
            )
        if not len(there):  # of whatever kind, which need not compare with the names
            return np.full(len(values), 2, np.uint8)
        out = np.asarray(there == named[-1]).astype(np.uint8)
        if self.labels is not None:
            out[~((there == named[0]) | (out == 1))] = 2
        if gone is None:
            return out
        whole = np.full(len(values), 2, np.uint8)
        whole[~gone] = out
        return whole

    def ok(self, column: Column) -> bool:
        return int(column.values.max(initial=0)) <= 1

    def bad(self, column: Column) -> Mask:
        return np.asarray(column.values > 1)

    def remedy(self, batch: Batch, name: str, bad: Mask, role: str, others: Sequence[Array]) -> remedies.Remedy:
        if self.labels is not None or self.pos_label is not None:
            return remedies.Remedy()
        values = batch.array(name)
        if role == "y_pred":
            return remedies.for_decisions(values[bad])
        return remedies.for_labels(values, values[bad], others) if role == "y_true" else remedies.Remedy()


def kind_word(kind: type) -> str:
    """What values of a type are, in a word; numbers of any type are equal where their values are."""
    if issubclass(kind, (int, float, np.number, np.bool_)):
        return "numbers"
    return "texts" if issubclass(kind, str) else "bytes" if issubclass(kind, bytes) else kind.__name__


class Score(Kind):
    """A finite number; in [0, 1] on the probability scale. Kept as float32 or float64."""

    def __init__(self, scale: str) -> None:
        self.scale = scale
        self.low, self.high = (0.0, 1.0) if scale == "probability" else (-np.inf, np.inf)
        self.expected = (  # type: ignore[misc]
            'a probability in [0, 1] (scale="logit" and scale="real" take any finite score)'
            if scale == "probability"
            else "a finite number"
        )
        self.hint = SEVERAL if type(self) is Score else ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Score) and not isinstance(other, Target) and self.scale == other.scale

    def __hash__(self) -> int:
        return hash((Score, self.scale))

    def convert(self, values: Array, name: str) -> Column:
        source = dtype_name(values.dtype)
        _numeric(values, name, self.expected)
        if source == "float16":
            return Column(values.astype(np.float32), source)
        if source in ("float32", "float64"):
            return Column(np.ascontiguousarray(values), source)
        if values.dtype.itemsize == 8 and values.size and max(-int(values.min()), int(values.max())) > 1 << 53:
            raise InvalidInputError(
                f"{name}: integers above 2**53 do not fit float64; convert them to floats", column=name
            )
        return Column(values.astype(np.float64), source)

    def ok(self, column: Column) -> bool:
        if not column.values.size:
            return True
        if type(self) is Score and loaded() and column.values.ndim == 1:  # others have other limits
            return not kernel("checks:probabilities" if self.scale == "probability" else "checks:finite")(column.values)
        low, high = column.values.min(), column.values.max()  # NaN comes through both, and fails every comparison
        return bool(low >= self.low and high <= self.high and np.isfinite(low) and np.isfinite(high))

    def bad(self, column: Column) -> Mask:
        values = column.values
        return ~((values >= self.low) & (values <= self.high) & np.isfinite(values))

    def remedy(self, batch: Batch, name: str, bad: Mask, role: str, others: Sequence[Array]) -> remedies.Remedy:
        if type(self) is not Score or self.scale != "probability":
            return remedies.Remedy()
        return remedies.for_scores(batch.column(name, self).values[bad])


class Target(Score):
    """How far a row is positive: 0, 1, or anything between; or what a task calls the two. Kept as float64."""

    def __init__(self, named: Label | None = None) -> None:
        super().__init__("probability")
        self.named = named
        self.expected = "a soft label in [0, 1]" if named is None else named.expected  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self.named == other.named

    def __hash__(self) -> int:
        return hash((Target, self.named))

    def convert(self, values: Array, name: str) -> Column:
        if self.named is not None:  # 2, which is none of both, is no target either
            hard = self.named.convert(values, name)
            return Column(hard.values.astype(np.float64), hard.source)
        _numeric(values, name, self.expected, NAMED)
        return Column(np.ascontiguousarray(values, np.float64), dtype_name(values.dtype))


class Grade(Score):
    """A number that is not negative: how relevant a document is. Kept as uint8 where all are such integers, or float64."""

    expected = "a grade: a number in [0, 2**400]"

    def __init__(self) -> None:
        self.scale, self.low, self.high = "grade", 0.0, 2.0**400  # sums of any number of them are finite

    def convert(self, values: Array, name: str) -> Column:
        source = dtype_name(values.dtype)
        _numeric(values, name, self.expected)
        if source in ("bool", "uint8"):
            return Column(np.ascontiguousarray(values).view(np.uint8), source)
        if values.size and values.min() >= 0 and values.max() <= 255:  # NaN fails both
            small = values.astype(np.uint8)
            if values.dtype.kind != "f" or (small == values).all():
                return Column(small, source)
        return Column(np.ascontiguousarray(values, np.float64), source)


class UnjudgedGrade(Grade):
    """A grade, or null or NaN for a document that nobody judged: then the column is kept as float64."""

    expected = "a grade, a number in [0, 2**400], or null where nobody judged"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnjudgedGrade)

    def __hash__(self) -> int:
        return hash(UnjudgedGrade)

    def convert(self, values: Array, name: str) -> Column:
        if values.dtype.kind == "O":
            gone = missing(values, len(values))
            values = np.where(gone, np.nan, values) if gone.any() else values
            if all(isinstance(v, (int, float, np.number)) for v in values):
                values = values.astype(np.float64)
        return super().convert(values, name)

    def ok(self, column: Column) -> bool:
        return not self.bad(column).any()

    def bad(self, column: Column) -> Mask:
        return np.asarray(super().bad(column) & (column.values == column.values))


class Count(Score):
    """An integer that is not negative, in any dtype; kept as float64."""

    expected = "a count: an integer in [0, 2**24]"

    def __init__(self) -> None:
        self.scale, self.low, self.high = "count", 0.0, 2.0**24

    def convert(self, values: Array, name: str) -> Column:
        _numeric(values, name, self.expected)
        return Column(np.ascontiguousarray(values, np.float64), dtype_name(values.dtype))

    def ok(self, column: Column) -> bool:
        return not self.bad(column).any()

    def bad(self, column: Column) -> Mask:
        return np.asarray(super().bad(column) | (column.values != np.floor(column.values)))


class Weight(Kind):
    """0, or a number in [2**-36, 2**31); kept as float64."""

    expected = "0, or a weight in [2**-36, 2**31)"

    def convert(self, values: Array, name: str) -> Column:
        _numeric(values, name, self.expected)
        return Column(np.ascontiguousarray(values, np.float64), dtype_name(values.dtype))

    def ok(self, column: Column) -> bool:
        if not column.values.size:
            return True
        low, high = column.values.min(), column.values.max()
        return bool(low >= SMALLEST_WEIGHT and high < LARGEST_WEIGHT) or not self.bad(column).any()

    def bad(self, column: Column) -> Mask:
        w = column.values
        return np.asarray(~((w == 0) | ((w >= SMALLEST_WEIGHT) & (w < LARGEST_WEIGHT))))


class LabelWeight(Weight):
    """A weight for each row, or for each of so many labels of it."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelWeight) and self.width == other.width

    def __hash__(self) -> int:
        return hash((LabelWeight, self.width))

    def read(self, batch: Batch, name: str) -> Column:
        if batch.parent is not None:
            whole = batch.parent.column(name, self)
            return Column(whole.values[batch.index], whole.source)
        listed = is_listed(batch.raw(name))
        values = one_column(batch.array(name, 2)) if listed else batch.array(name)
        if values.ndim == 2 and values.shape[1] != self.width and len(values):
            raise InvalidInputError(
                f"{name}: expected a weight for each row, or for each of its {self.width} labels; got rows of "
                f"{values.shape[1]}",
                column=name,
            )
        return self.convert(values, name)

    def bad(self, column: Column) -> Mask:
        wrong = super().bad(column)
        return wrong if wrong.ndim == 1 else np.asarray(wrong.any(axis=1))

    def found(self, batch: Batch, name: str, row: int) -> str:
        values = batch.column(name, self).values
        if values.ndim == 1:
            return super().found(batch, name, row)
        at = int(np.flatnonzero(super().bad(Column(values[row], "")))[0])
        return f"{values[row, at]!s} in row {batch.origin(row):,}, column {at}"


class Matrix(Kind):
    """Rows of `width` values, each of one kind; `hint` says what a column of another shape may be meant to be."""

    ndim = 2

    def __init__(self, kind: Kind, width: int, hint: str = "") -> None:
        self.kind, self.width, self.hint = kind, width, hint
        self.expected = f"rows of {width} values, each {kind.expected}"  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Matrix) and (self.kind, self.width) == (other.kind, other.width)

    def __hash__(self) -> int:
        return hash((Matrix, self.kind, self.width))

    def convert(self, values: Array, name: str) -> Column:
        if values.shape[1] != self.width and len(values):
            raise InvalidInputError(f"{name}: expected {self.expected}; got rows of {values.shape[1]}", column=name)
        flat = self.kind.convert(np.ascontiguousarray(values).reshape(-1), name)
        return Column(flat.values.reshape(len(values), self.width), flat.source)

    def ok(self, column: Column) -> bool:
        return self.kind.ok(self._flat(column))

    def bad(self, column: Column) -> Mask:
        return np.asarray(self._cells(column).any(axis=1))

    def found(self, batch: Batch, name: str, row: int) -> str:
        at = int(np.flatnonzero(self._cells(batch.column(name, self))[row])[0])
        return f"{batch.array(name, 2)[row, at]!s} in row {batch.origin(row):,}, column {at}"

    def remedy(self, batch: Batch, name: str, bad: Mask, role: str, others: Sequence[Array]) -> remedies.Remedy:
        if type(self.kind) is not Score or self.kind.scale != "probability":
            return remedies.Remedy()
        column = batch.column(name, self)
        return remedies.for_scores(column.values[self._cells(column)])

    def _flat(self, column: Column) -> Column:
        return Column(column.values.reshape(-1), column.source)

    def _cells(self, column: Column) -> Mask:
        return self.kind.bad(self._flat(column)).reshape(column.values.shape)


LABEL, FLAG, TARGET, WEIGHT = Label(), Label(), Target(), Weight()
GRADE, UNJUDGED, COUNT = Grade(), UnjudgedGrade(), Count()
SCORES = {scale: Score(scale) for scale in ("probability", "real", "logit")}


@dataclass(frozen=True)
class Need:
    """A column that a state reads.

    Parameters
    ----------
    role : str
        Its name where a task does not bind it to another.
    kind : Kind
        What it may hold.
    optional : bool
        Whether it may be absent.
    once : bool
        Whether all rows of a block (see `State.together`) have one value, which `absorb` is given once.
    either : bool
        Of optional ones: whether at least one of those that say so must be there.
    derived : bool
        Of an optional one: whether the statistic makes it where it is absent.
    """

    role: str
    kind: Kind
    optional: bool = False
    once: bool = False
    either: bool = False
    derived: bool = False


def label(role: str = "y_true") -> Need:
    """Declare the need for a 0/1 column."""
    return Need(role, LABEL)


def target(role: str = "y_true") -> Need:
    """Declare the need for a column of soft labels: numbers in [0, 1]."""
    return Need(role, TARGET)


def score(role: str = "y_score", scale: str = "probability") -> Need:
    """Declare the need for a column of scores."""
    return Need(role, SCORES[scale])


def grade(role: str = "y_true") -> Need:
    """Declare the need for a column of grades: numbers that are not negative, 0 for what is not relevant."""
    return Need(role, GRADE)


def matrix(need: Need, width: int, hint: str = "") -> Need:
    """Declare the need for rows of `width` values, each as `need` has them; `hint` is for columns of another shape."""
    return Need(need.role, Matrix(need.kind, width, hint), need.optional)


def weight(role: str = "sample_weight") -> Need:
    """Declare that a column of weights is welcome."""
    return Need(role, WEIGHT, optional=True)


def label_weight(width: int, role: str = "sample_weight") -> Need:
    """Declare that a column of weights is welcome, or a matrix of one for each label."""
    return Need(role, LabelWeight(width), optional=True)


def flag(role: str) -> Need:
    """Declare the need for a 0/1 column of hard predictions."""
    return Need(role, FLAG)


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
        """Return those of some columns that are columns at all."""
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


def _numeric(values: Array, name: str, expected: str, instead: str = "") -> None:
    """Raise unless an array is of numbers; `instead` is what may be done with strings but make numbers of them."""
    kind, dtype = values.dtype.kind, dtype_name(values.dtype)
    if kind in "biu" or dtype in ("float16", "float32", "float64"):
        return
    if kind == "O" and values.size and all(isinstance(v, str) for v in values.flat):
        kind, dtype = "U", "strings"
    hint = {
        "O": "; objects are not converted by guessing: pass numbers, or astype() them yourself",
        "c": "; complex numbers have no order",
        "M": "; dates have no place here",
        "m": "; durations have no place here",
        "U": f"; convert the strings to numbers{instead}",
        "S": f"; convert the strings to numbers{instead}",
        "T": f"; convert the strings to numbers{instead}",
        "f": "; pass float64, float32 or float16",
    }.get(kind, "")
    if kind == "O" and values.size and any(v is None for v in values):
        first = next(i for i, v in enumerate(values) if v is None)
        hint = f"; row {first} is missing"
    raise InvalidInputError(f"{name}: expected {expected}, got an array of {dtype}{hint}", column=name)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20]))
    return (shown or "none") + (f" and {len(names) - 20} more" if len(names) > 20 else "")
