"""Kinds of columns, such as labels and scores, and `Need`, which declares that a metric's state reads a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.kernel_registry import find_kernel, has_kernels
from . import remedies
from .columns import LARGEST_WEIGHT, SMALLEST_WEIGHT, Array, Batch, Column, Kind, Mask, dtype_name
from .convert import (
    find_missing,
    is_listed,
    squeeze_column,
)

__all__ = [
    "COUNT",
    "FLAG",
    "SCORES",
    "UNJUDGED",
    "CountKind",
    "Grade",
    "Label",
    "LabelWeight",
    "Matrix",
    "Need",
    "Score",
    "Target",
    "UnjudgedGrade",
    "Weight",
    "describe_dtype",
    "flag",
    "grade",
    "kind_word",
    "label",
    "label_weight",
    "matrix",
    "score",
    "target",
    "weight",
]


DTYPE_NAMES = {"O": "objects", "U": "strings", "S": "bytes", "T": "strings"}
"""What error messages call the values of an array, by the kind of its dtype; for other kinds, they name the dtype."""
NAMED = ", or pass labels=(negative, positive) to Task"
"""A remedy that error messages offer if the labels are strings."""
LISTS = ", or pass lists of documents to sm.ranked_lists(ranked, relevant)"
"""A remedy that error messages offer if the grades are strings, which are probably documents."""
SEVERAL = "; if each column is a class, pass num_classes= or labels=; if each column is a label, pass num_labels="
"""A remedy that error messages offer if a matrix was passed for a metric of one column."""
TWO_COLUMNS = "; for predict_proba() of two classes, pass scores[:, 1]"
"""The first remedy that error messages offer if a matrix of two columns was passed as scores of a binary metric."""


class Label(Kind):
    """A 0/1 label of any dtype, or one of the two label values of a task.

    The label is converted to uint8: 0 or 1 if it is valid, otherwise a larger number.
    """

    expected = "0 or 1"
    hint = SEVERAL

    def __init__(self, labels: tuple[Any, Any] | None = None, pos_label: Any = None) -> None:
        self.labels, self.pos_label = labels, pos_label
        if labels is not None:
            self.expected = f"{labels[0]!r} or {labels[1]!r}"  # type: ignore[misc]
        elif pos_label is not None:
            self.expected = f"a label, such as the positive label {pos_label!r}"  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Label) and (self.labels, self.pos_label) == (other.labels, other.pos_label)

    def __hash__(self) -> int:
        return hash((Label, self.labels, self.pos_label))

    def convert(self, values: Array, name: str) -> Column:
        source = dtype_name(values.dtype)
        if self.labels is not None or self.pos_label is not None:
            return Column(self._look_up_labels(values, name), source)
        _check_numeric(values, name, self.expected, NAMED)
        # View a column of one-byte values (bool, int8 or uint8) as uint8. An invalid label -1 then becomes 255, which
        # is also invalid.
        if values.dtype.itemsize == 1:
            return Column(np.ascontiguousarray(values).view(np.uint8), source)
        # The bytes of a bool array are 0 and 1, so a view of them is the column of labels and needs no copy.
        positive = values == 1
        out = positive.view(np.uint8)
        good = (values == 0) | positive
        return Column(out if good.all() else np.where(good, out, np.uint8(2)), source)

    def _look_up_labels(self, values: Array, name: str) -> NDArray[np.uint8]:
        """Return labels as 0, 1 or 2 (invalid).

        Raises an error if the types do not match, for example if the column contains strings but the task's label
        values are numbers.
        """
        named = self.labels if self.labels is not None else (self.pos_label,)
        objects = values.dtype.kind in "OT"
        null = find_missing(values, len(values)) if objects else values != values if values.dtype.kind == "f" else None
        present = values if null is None else values[~null]
        words = (
            {kind_word(type(v)) for v in present}
            if objects
            else {kind_word(values.dtype.type)}
            if len(present)
            else set()
        )
        if strange := words - {kind_word(type(n)) for n in named}:
            raise InvalidInputError(
                f"{name}: expected {self.expected}, found a column of {' and '.join(sorted(strange))}; in Task, pass "
                f"labels of the same type as the column",
                column=name,
            )
        # If all values are missing, all rows are invalid. Return early, because comparing the empty array with the
        # labels may raise an error.
        if not len(present):
            return np.full(len(values), 2, np.uint8)
        out = np.asarray(present == named[-1]).astype(np.uint8)
        if self.labels is not None:
            out[~((present == named[0]) | (out == 1))] = 2
        if null is None:
            return out
        all_rows = np.full(len(values), 2, np.uint8)
        all_rows[~null] = out
        return all_rows

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
    """Return the word for values of a type, such as "numbers" or "strings".

    All numeric types share one word, because numbers of different types can be equal.
    """
    if issubclass(kind, (int, float, np.number, np.bool_)):
        return "numbers"
    return "strings" if issubclass(kind, str) else "bytes" if issubclass(kind, bytes) else kind.__name__


class Score(Kind):
    """A finite score, which lies in [0, 1] if its scale is "probability"; converted to float32 or float64."""

    def __init__(self, scale: str) -> None:
        self.scale = scale
        self.low, self.high = (0.0, 1.0) if scale == "probability" else (-np.inf, np.inf)
        self.expected = (  # type: ignore[misc]
            'a probability in [0, 1] (scale="logit" and scale="real" accept any finite score)'
            if scale == "probability"
            else "a finite number"
        )
        self.hint = SEVERAL if type(self) is Score else ""
        self.two_columns_hint = TWO_COLUMNS if type(self) is Score else ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Score) and not isinstance(other, Target) and self.scale == other.scale

    def __hash__(self) -> int:
        return hash((Score, self.scale))

    def convert(self, values: Array, name: str) -> Column:
        source = dtype_name(values.dtype)
        _check_numeric(values, name, self.expected)
        if source == "float16":
            return Column(values.astype(np.float32), source)
        if source in ("float32", "float64"):
            return Column(np.ascontiguousarray(values), source)
        if values.dtype.itemsize == 8 and values.size and max(-int(values.min()), int(values.max())) > 1 << 53:
            raise InvalidInputError(
                f"{name}: expected integers of at most 2**53 in absolute value, which float64 represents exactly, found "
                f"larger integers; convert the column to floats",
                column=name,
            )
        return Column(values.astype(np.float64), source)

    def ok(self, column: Column) -> bool:
        if not column.values.size:
            return True
        # Use the kernel only for `Score` itself, because the kernel does not know the bounds of subclasses.
        if type(self) is Score and has_kernels() and column.values.ndim == 1:
            return not find_kernel(
                "checks:find_bad_probability" if self.scale == "probability" else "checks:find_nonfinite"
            )(column.values)
        # The minimum of a column with NaN is NaN, which fails every comparison.
        low, high = column.values.min(), column.values.max()
        return bool(low >= self.low and high <= self.high and np.isfinite(low) and np.isfinite(high))

    def bad(self, column: Column) -> Mask:
        values = column.values
        return ~((values >= self.low) & (values <= self.high) & np.isfinite(values))

    def remedy(self, batch: Batch, name: str, bad: Mask, role: str, others: Sequence[Array]) -> remedies.Remedy:
        if type(self) is not Score or self.scale != "probability":
            return remedies.Remedy()
        return remedies.for_scores(batch.column(name, self).values[bad])


class Target(Score):
    """A soft label: a number in [0, 1]. If a task names two label values, the column contains these values instead.

    The label is converted to float64. `hard_label` is the kind for the two label values if the task names them.
    """

    def __init__(self, hard_label: Label | None = None) -> None:
        super().__init__("probability")
        self.hard_label = hard_label
        self.expected = "a soft label in [0, 1]" if hard_label is None else hard_label.expected  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self.hard_label == other.hard_label

    def __hash__(self) -> int:
        return hash((Target, self.hard_label))

    def convert(self, values: Array, name: str) -> Column:
        # `Label` converts an invalid label to 2, which lies outside [0, 1] and is therefore also an invalid soft label.
        if self.hard_label is not None:
            hard = self.hard_label.convert(values, name)
            return Column(hard.values.astype(np.float64), hard.source)
        _check_numeric(values, name, self.expected, NAMED)
        return Column(np.ascontiguousarray(values, np.float64), dtype_name(values.dtype))


class Grade(Score):
    """The relevance grade of a document, at least 0.

    A column is converted to uint8 if all of its grades are integers up to 255, otherwise to float64.
    """

    expected = "a grade: a number in [0, 2**400]"

    def __init__(self) -> None:
        # With this upper bound, the sum of all grades in a batch cannot overflow to infinity.
        self.scale, self.low, self.high = "grade", 0.0, 2.0**400

    def convert(self, values: Array, name: str) -> Column:
        source = dtype_name(values.dtype)
        _check_numeric(values, name, self.expected, LISTS)
        if source in ("bool", "uint8"):
            return Column(np.ascontiguousarray(values).view(np.uint8), source)
        # If the column contains NaN, its minimum is NaN, and the condition is False.
        if values.size and values.min() >= 0 and values.max() <= 255:
            small = values.astype(np.uint8)
            if values.dtype.kind != "f" or (small == values).all():
                return Column(small, source)
        return Column(np.ascontiguousarray(values, np.float64), source)


class UnjudgedGrade(Grade):
    """The relevance grade of a document, or null or NaN if the document is unjudged.

    A column that contains null or NaN is converted to float64; any other column is converted as in `Grade`.
    """

    expected = "a grade: a number in [0, 2**400], or null for a document without a judgement"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnjudgedGrade)

    def __hash__(self) -> int:
        return hash(UnjudgedGrade)

    def convert(self, values: Array, name: str) -> Column:
        if values.dtype.kind == "O":
            null = find_missing(values, len(values))
            values = np.where(null, np.nan, values) if null.any() else values
            if all(isinstance(v, (int, float, np.number)) for v in values):
                values = values.astype(np.float64)
        return super().convert(values, name)

    def ok(self, column: Column) -> bool:
        return not self.bad(column).any()

    def bad(self, column: Column) -> Mask:
        return np.asarray(super().bad(column) & (column.values == column.values))


class CountKind(Score):
    """A count: an integer from 0 to 2**24, of any dtype; converted to float64."""

    expected = "a count: an integer in [0, 2**24]"

    def __init__(self) -> None:
        self.scale, self.low, self.high = "count", 0.0, 2.0**24

    def convert(self, values: Array, name: str) -> Column:
        _check_numeric(values, name, self.expected)
        return Column(np.ascontiguousarray(values, np.float64), dtype_name(values.dtype))

    def ok(self, column: Column) -> bool:
        return not self.bad(column).any()

    def bad(self, column: Column) -> Mask:
        return np.asarray(super().bad(column) | (column.values != np.floor(column.values)))


class Weight(Kind):
    """A weight: 0, or a number in [2**-36, 2**31); converted to float64."""

    expected = "0, or a weight in [2**-36, 2**31)"

    def convert(self, values: Array, name: str) -> Column:
        _check_numeric(values, name, self.expected)
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
    """A column with a weight for each row, or a matrix with a weight for each of the `width` labels of each row."""

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
        values = squeeze_column(batch.array(name, 2)) if listed else batch.array(name)
        if values.ndim == 2 and values.shape[1] != self.width and len(values):
            raise InvalidInputError(
                f"{name}: expected a weight for each row, or for each of its {self.width} labels, found rows of "
                f"{values.shape[1]} values",
                column=name,
            )
        return self.convert(values, name)

    def bad(self, column: Column) -> Mask:
        wrong = super().bad(column)
        return wrong if wrong.ndim == 1 else np.asarray(wrong.any(axis=1))

    def describe_row(self, batch: Batch, name: str, row: int) -> str:
        values = batch.column(name, self).values
        if values.ndim == 1:
            return super().describe_row(batch, name, row)
        at = int(np.flatnonzero(super().bad(Column(values[row], "")))[0])
        return f"{values[row, at]!s} in row {batch.original_row(row):,}, column {at}"


class Matrix(Kind):
    """A matrix whose rows contain `width` values of one kind.

    Errors about the shape of the column end with the text `hint`.
    """

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
            raise InvalidInputError(
                f"{name}: expected {self.expected}, found rows of {values.shape[1]} values", column=name
            )
        flat = self.kind.convert(np.ascontiguousarray(values).reshape(-1), name)
        return Column(flat.values.reshape(len(values), self.width), flat.source)

    def ok(self, column: Column) -> bool:
        return self.kind.ok(self._flat(column))

    def bad(self, column: Column) -> Mask:
        return np.asarray(self._cells(column).any(axis=1))

    def describe_row(self, batch: Batch, name: str, row: int) -> str:
        at = int(np.flatnonzero(self._cells(batch.column(name, self))[row])[0])
        return f"{batch.array(name, 2)[row, at]!s} in row {batch.original_row(row):,}, column {at}"

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
GRADE, UNJUDGED, COUNT = Grade(), UnjudgedGrade(), CountKind()
SCORES = {scale: Score(scale) for scale in ("probability", "real", "logit")}


@dataclass(frozen=True)
class Need:
    """A declaration that a metric's state reads a column.

    Parameters
    ----------
    role : str
        The role of the column, such as "y_true". The column has the same name unless a task binds the role to another
        column.
    kind : Kind
        What the column contains, such as labels or weights.
    optional : bool
        Whether the column may be absent from a batch.
    once : bool
        Whether all rows of a block, such as the documents of a query, must have the same value. If so, the state
        receives one value for each block (see `State.block_column`).
    either : bool
        Whether the column is one of several optional columns of which a batch must contain at least one.
    derived : bool
        For an optional column: whether the state computes the column if it is absent.
    """

    role: str
    kind: Kind
    optional: bool = False
    once: bool = False
    either: bool = False
    derived: bool = False


def describe_dtype(values: Array) -> str:
    """Return the term that error messages use for the values of an array, such as "strings" or "float64"."""
    return DTYPE_NAMES.get(values.dtype.kind, dtype_name(values.dtype))


def label(role: str = "y_true") -> Need:
    """Declare that a metric's state reads a 0/1 column of labels."""
    return Need(role, LABEL)


def target(role: str = "y_true") -> Need:
    """Declare that a metric's state reads a column of soft labels: numbers in [0, 1]."""
    return Need(role, TARGET)


def score(role: str = "y_score", scale: str = "probability") -> Need:
    """Declare that a metric's state reads a column of scores on the given scale."""
    return Need(role, SCORES[scale])


def grade(role: str = "y_true") -> Need:
    """Declare that a metric's state reads relevance grades: non-negative numbers, 0 for an irrelevant document."""
    return Need(role, GRADE)


def matrix(need: Need, width: int, hint: str = "") -> Need:
    """Declare that a metric's state reads a matrix with `width` columns, each of the kind that `need` declares.

    Errors about the shape of the matrix end with the text `hint`.
    """
    return Need(need.role, Matrix(need.kind, width, hint), need.optional)


def weight(role: str = "sample_weight") -> Need:
    """Declare that a metric's state reads an optional column of weights."""
    return Need(role, WEIGHT, optional=True)


def label_weight(width: int, role: str = "sample_weight") -> Need:
    """Declare that a metric's state reads optional weights: a column, or a matrix with a weight for each label."""
    return Need(role, LabelWeight(width), optional=True)


def flag(role: str) -> Need:
    """Declare that a metric's state reads a 0/1 column of hard predictions."""
    return Need(role, FLAG)


def _check_numeric(values: Array, name: str, expected: str, instead: str = "") -> None:
    """Raise InvalidInputError unless an array contains numbers; for strings, the message ends with `instead`."""
    kind, dtype = values.dtype.kind, dtype_name(values.dtype)
    if kind in "biu" or dtype in ("float16", "float32", "float64"):
        return
    if kind == "O" and values.size and all(isinstance(v, str) for v in values.flat):
        kind = "U"
    dtype = DTYPE_NAMES.get(kind, dtype)
    hint = {
        "O": "; pass numbers, or convert the objects with astype()",
        "c": "; pass real numbers, because complex numbers have no order",
        "M": "; convert the dates to numbers",
        "m": "; convert the durations to numbers",
        "U": f"; convert the strings to numbers{instead}",
        "S": f"; convert the strings to numbers{instead}",
        "T": f"; convert the strings to numbers{instead}",
        "f": "; pass float64, float32 or float16",
    }.get(kind, "")
    if kind == "O" and values.size and any(v is None for v in values):
        first = next(i for i, v in enumerate(values) if v is None)
        hint = f"; the value in row {first:,} is missing"
    raise InvalidInputError(f"{name}: expected {expected}, found an array of {dtype}{hint}", column=name)
