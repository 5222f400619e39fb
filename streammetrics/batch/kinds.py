"""Kinds of columns: labels, scores, grades, weights and matrices; what each accepts, and how states ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.kernel_registry import kernel, loaded
from . import remedies
from .columns import LARGEST_WEIGHT, SMALLEST_WEIGHT, Array, Batch, Column, Kind, Mask, dtype_name
from .convert import (
    is_listed,
    missing,
    one_column,
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


NAMED = ", or give labels=(negative, positive) to the task"
"""What may be done with labels that are strings; with nothing else."""
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


class CountKind(Score):
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
GRADE, UNJUDGED, COUNT = Grade(), UnjudgedGrade(), CountKind()
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
