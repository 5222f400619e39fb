"""Columns of multiclass metrics: each row's class, and each row's score or probability for every class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.kernel_registry import find_kernel
from ..numerics.settings import to_python_value
from . import remedies
from .columns import Array, Batch, Column, Kind, Mask
from .convert import as_array, is_listed
from .keys import kind_of, read_keys
from .kinds import Matrix, Need, Score, describe_dtype, matrix, score

__all__ = [
    "Classes",
    "Distribution",
    "ScoresOrClasses",
    "check_ignored",
    "check_labels",
    "class_label",
    "class_scores",
    "factorize_integers",
]

# The code of a row is the position of its class among the known classes. A row whose class is missing or unknown has
# the code `NONE` and is invalid.
NONE = -1
# The code of a row whose class the user ignores (`ignore_class=`). The row is left out without an error.
IGNORED = -2
# The largest difference allowed between 1 and the sum of a row's probabilities. Probabilities that are rounded to
# bfloat16 stay within it.
SLACK = 2.0**-7
# The remedy that error messages suggest if a user passes a single score per row to a two-class metric.
ONE_SCORE = (
    "; for one score in each row, remove labels= or num_classes= from the metric, and pass labels=(negative, positive) "
    "to Task if the labels are not 0 and 1"
)
# The remedy that error messages suggest if a user passes a single score per row to a metric with more than two classes.
MATRIX = "; pass a matrix with a column of scores for each class"


class Classes(Kind):
    """The class of each row, converted to its position among the known classes (int64).

    The column contains labels, or it is a one-hot matrix with a column for each class.

    Parameters
    ----------
    names : int or tuple of int or str
        The classes, in order. An integer n stands for the classes 0, 1, ..., n - 1.
    ignore : int or str, optional
        A class, not necessarily one of `names`, whose rows are left out; the metric's state records their number.
    """

    def __init__(self, names: int | tuple[Any, ...], ignore: Any = None) -> None:
        self.names, self.ignore, self.skips = names, ignore, ignore is not None
        shown = f"an integer from 0 to {names - 1:,}" if isinstance(names, int) else f"one of {_format_names(names)}"
        self.expected = f"a class: {shown}"  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Classes) and (self.names, self.ignore) == (other.names, other.ignore)

    def __hash__(self) -> int:
        return hash((Classes, self.names, self.ignore))

    def read(self, batch: Batch, name: str) -> Column:
        if batch.parent is not None:
            parent_column = batch.parent.column(name, self)
            return Column(parent_column.values[batch.index], parent_column.source)
        if self._is_one_hot(batch, name):
            column = _one_hot(batch.array(name, 2), name, self)
            return Column(self._mark_ignored(column.values, column.values == self._ignored_code), column.source)
        if isinstance(self.names, int):
            values = batch.array(name)
            column = self.convert(values, name)
            return (
                column
                if self.ignore is None
                else Column(self._mark_ignored(column.values, values == self.ignore), column.source)
            )
        column = self._look_up_names(batch.raw(name), name)
        batch.check_length(len(column.values), name)
        return column

    def _is_one_hot(self, batch: Batch, name: Any) -> bool:
        """Return whether a column is a one-hot matrix. A matrix with one column counts as a column of labels."""
        several = isinstance(name, tuple) or is_listed(batch.raw(name))
        return several and batch.array(name, 2).shape[1:] != (1,)

    def convert(self, values: Array, name: str) -> Column:
        if values.dtype == np.int64:
            return Column(np.ascontiguousarray(values), "int64")
        if values.dtype.kind not in "biuf":
            raise InvalidInputError(
                f"{name}: expected {self.expected}, found an array of {describe_dtype(values)}; for named classes, pass "
                f"labels=(...)",
                column=name,
            )
        classes = values.astype(np.int64) if values.dtype.kind != "f" else _floats_to_classes(values)
        return Column(
            np.where(values > 2**62, NONE, classes) if values.dtype.kind == "u" else classes, values.dtype.name
        )

    def _look_up_names(self, raw: Any, name: str) -> Column:
        """Return the code of each label: its position among the names, `NONE` if missing or unknown, or `IGNORED`."""
        assert isinstance(self.names, tuple)
        kind, content = read_keys(raw, name)
        if not kind:
            return Column(np.full(int(content), NONE), "")
        if kind != (wanted := kind_of(self.names, name)):
            raise InvalidInputError(
                f"{name}: expected {self.expected}, found classes of kind {kind} instead of {wanted}; convert the column, "
                f"or change labels="
            )
        if kind == "integer":
            values, missing = content
            codes = self._mark_ignored(_find_positions(values, self.names), values == self.ignore)
        else:
            (data, ends), index, missing = content
            number = {_encode_text(n): i for i, n in enumerate(self.names)} | (
                {_encode_text(self.ignore): IGNORED} if self.skips else {}
            )
            texts = [data[a:b].tobytes() for a, b in pairwise(ends.tolist())]
            codes = np.array([number.get(t, NONE) for t in texts], np.int64)[index]
        return Column(codes if missing is None else np.where(missing, NONE, codes), kind)

    @property
    def _ignored_code(self) -> int:
        """The position of the ignored class among `names`.

        The value is `IGNORED` if `names` lacks this class. A one-hot matrix has no column for such a class, so none of
        its rows is ignored.
        """
        known = range(self.names) if isinstance(self.names, int) else self.names
        return known.index(self.ignore) if self.ignore in known else IGNORED

    def _mark_ignored(self, codes: NDArray[np.int64], is_ignored: Any) -> NDArray[np.int64]:
        """Return `codes` with `IGNORED` where `is_ignored` is true, and `NONE` in place of any other negative code."""
        return np.where(is_ignored, IGNORED, np.maximum(codes, NONE))

    def find_skipped(self, column: Column) -> Mask | None:
        return find_ignored(column) if self.skips else None

    def ok(self, column: Column) -> bool:
        v = column.values
        return not len(v) or bool(v.min() >= 0 and v.max() < self.width)

    def bad(self, column: Column) -> Mask:
        return np.asarray((column.values < 0) | (column.values >= self.width))

    @property
    def width(self) -> int:
        """The number of classes."""
        return self.names if isinstance(self.names, int) else len(self.names)

    def describe_row(self, batch: Batch, name: str, row: int) -> str:
        root = batch.root
        if self._is_one_hot(root, name):
            return f"{batch.array(name, 2)[row].tolist()} instead of a single 1 in row {batch.original_row(row):,}"
        return f"{to_python_value(batch.array(name)[row])!r} in row {batch.original_row(row):,}"

    def remedy(self, batch: Batch, name: str, bad: Mask, role: str, others: Sequence[Array]) -> remedies.Remedy:
        root = batch.root
        if self._is_one_hot(root, name):
            return remedies.Remedy()
        values = batch.array(name)
        return remedies.for_classes(values, values[bad], self.width, not isinstance(self.names, int), others)


class ScoresOrClasses(Matrix):
    """Either a matrix with a score for each class, or a column of predicted classes (integers or strings).

    Only the data show which of the two a column contains, so `variant` inspects the column in each batch and returns
    the matching kind.
    """

    def __init__(self, names: int | tuple[Any, ...]) -> None:
        self.classes = Classes(names)
        hint = ONE_SCORE if self.classes.width == 2 else MATRIX
        hint += "; to pass predicted classes, pass one integer or string for each row"
        super().__init__(score(scale="real").kind, self.classes.width, hint)
        self.scores = Matrix(self.kind, self.width, hint)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScoresOrClasses) and self.classes == other.classes

    def __hash__(self) -> int:
        return hash((ScoresOrClasses, self.classes))

    def variant(self, batch: Batch, name: str) -> Kind:
        root = batch.root
        raw = None if isinstance(name, tuple) else root.raw(name)
        if raw is None or (is_listed(raw) and getattr(raw, "shape", (0, 0))[1:] != (1,)):
            return self.scores
        values = as_array(raw, name)
        if values.dtype.kind != "f":
            return self.classes
        # A column of integers with missing values arrives as floats with NaN. So if some values are NaN and all others
        # are whole numbers, the column contains classes, not scores.
        present = values[~np.isnan(values)]
        return self.classes if len(present) < len(values) and (present == np.floor(present)).all() else self.scores


def find_ignored(column: Column) -> Mask | None:
    """Return a mask of the ignored rows of a column of classes; None if there are none."""
    ignored = np.asarray(column.values == IGNORED)
    return ignored if ignored.any() else None


def _encode_text(name: Any) -> Any:
    return name.encode() if isinstance(name, str) else name


def _one_hot(values: Array, name: str, kind: Classes) -> Column:
    """Convert a one-hot matrix to classes: the position of the 1 in each row, or `NONE` if the row is not one-hot."""
    if values.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"{name}: expected {kind.expected}, found a matrix of {describe_dtype(values)}; pass a column of classes",
            column=name,
        )
    if values.shape[1] != kind.width and len(values):
        raise InvalidInputError(
            f"{name}: expected {kind.expected}, or a matrix of {kind.width} columns with a single 1 in each row, "
            f"found a matrix of {values.shape[1]} columns",
            column=name,
        )
    ones = values == 1
    good = (ones.sum(axis=1) == 1) & (ones | (values == 0)).all(axis=1)
    classes = ones.argmax(axis=1) if len(values) else np.zeros(0, np.int64)
    return Column(np.where(good, classes, NONE), values.dtype.name)


def _floats_to_classes(values: Array) -> NDArray[np.int64]:
    """Convert classes from floats to integers. A float that is not a whole number becomes `NONE`."""
    with np.errstate(invalid="ignore"):
        classes = values.astype(np.int64)
    return np.where(classes == values, classes, NONE)


def _find_positions(values: Array, names: Sequence[int]) -> NDArray[np.int64]:
    """Return the position of each integer among the class names, or `NONE` if it is not a class name."""
    # numpy compares uint64 and int64 as float64, which is inexact beyond 2**53.
    if values.dtype == np.uint64:
        if max(names) < 1 << 63:
            return np.where(values < 1 << 63, _find_positions(values.astype(np.int64), names), NONE)
        values = values.astype(object)
    known = np.array(names, object if max(names) >= 1 << 63 else np.int64)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], values), len(known) - 1)
    return np.where(known[order][at] == values, order[at], NONE).astype(np.int64)


# A metric's state stores a class as this many int64 words. The first word encodes its kind and length; the other five
# hold an integer, or a string of up to 40 bytes.
WORDS = 6
KINDS = ("integer", "string", "bytes")  # Saved states contain positions in this tuple: never reorder it.
LONGEST = 8 * (WORDS - 1)
# `factorize_integers` avoids a sort if the largest and the smallest integer differ by less than this number.
SPAN = 1 << 12


@dataclass(frozen=True)
class DiscoveredColumn(Column):
    """A column of classes found in the data, stored as positions in a list of these classes.

    Parameters
    ----------
    values : int64 array
        For each row, the position of its class in `keys`; a negative number if the row has no class.
    source : str
        The kind of the classes: "integer", "string" or "bytes"; an empty string if no row has a class.
    keys : int64 array, or list of bytes
        The classes: integers, or bytes (strings are encoded in UTF-8). The list may include classes that no row has.
    """

    keys: Any = ()

    @cached_property
    def names(self) -> NDArray[np.int64]:
        """The classes as states store them: a matrix in which each row encodes one class as `WORDS` integers."""
        if self.source == "integer":
            names = np.zeros((len(self.keys), WORDS), np.int64)
            names[:, 1] = self.keys
            return names
        return np.array([_pack_text(self.source, t) for t in self.keys], np.int64).reshape(-1, WORDS)


class DiscoveredClasses(Kind):
    """A class that the user need not declare in advance: an integer, or a string or bytes object of up to 40 bytes.

    Parameters
    ----------
    ignore : int or str, optional
        A class whose rows are left out; the metric's state records their number.
    """

    expected = f"a class: an integer, or a string or bytes of up to {LONGEST} bytes"

    def __init__(self, ignore: Any = None) -> None:
        self.ignore, self.skips = ignore, ignore is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DiscoveredClasses) and self.ignore == other.ignore

    def __hash__(self) -> int:
        return hash((DiscoveredClasses, self.ignore))

    def find_skipped(self, column: Column) -> Mask | None:
        return find_ignored(column) if self.skips else None

    def read(self, batch: Batch, name: str) -> Column:
        if batch.parent is not None:
            parent_column = batch.parent.column(name, self)
            assert isinstance(parent_column, DiscoveredColumn)
            return DiscoveredColumn(parent_column.values[batch.index], parent_column.source, parent_column.keys)
        column = self._read(batch.raw(name), name)
        batch.check_length(len(column.values), name)
        return column

    def _read(self, raw: Any, name: str) -> DiscoveredColumn:
        kind, content = read_keys(raw, name)
        keys: Any
        if not kind:
            return DiscoveredColumn(np.full(int(content), NONE), "")
        if self.skips and isinstance(self.ignore, int) != (kind == "integer"):
            raise InvalidInputError(
                f"{name}: the classes in this column are of kind {kind}, but ignore_class={self.ignore!r} is not; pass "
                f"an ignore_class= of kind {kind}",
                column=name,
            )
        if kind == "integer":
            values, missing = content
            if values.dtype == object or (values.dtype == np.uint64 and len(values) and values.max() >= 1 << 63):
                raise InvalidInputError(
                    f"{name}: expected integers below 2**63, found {int(values.max())}; convert the classes to strings",
                    column=name,
                )
            keys, codes = factorize_integers(np.ascontiguousarray(values, np.int64))
            codes = np.where(values == self.ignore, IGNORED, codes) if self.skips else codes
        else:
            (data, ends), index, missing = content
            keys = [data[a:b].tobytes() for a, b in pairwise(ends.tolist())]
            good = np.array([len(t) <= LONGEST for t in keys])
            codes = np.where(good, np.arange(len(keys)), NONE)
            if self.skips and (text := _encode_text(self.ignore)) in keys:
                codes[keys.index(text)] = IGNORED
            codes = codes[index].astype(np.int64)
        return DiscoveredColumn(codes if missing is None else np.where(missing, NONE, codes), kind, keys)

    def bad(self, column: Column) -> Mask:
        return np.asarray(column.values < 0)

    def describe_row(self, batch: Batch, name: str, row: int) -> str:
        return f"{to_python_value(batch.array(name)[row])!r} in row {batch.original_row(row):,}"


def factorize_integers(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return an ascending array of integers that contains all values, and the position of each value in that array."""
    # If the integers lie close together, no sort is needed: the array is the whole range from the smallest to the
    # largest integer, including integers that do not occur.
    low, high = int(values.min()), int(values.max())
    if high - low < SPAN:
        return np.arange(low, high + 1), values - low
    distinct, codes = np.unique(values, return_inverse=True)
    return distinct, codes.reshape(-1).astype(np.int64)


def _pack_text(kind: str, text: bytes) -> tuple[int, ...]:
    """Return a string as `WORDS` integers: its kind and length in one integer, then its bytes, padded with zeros."""
    words = np.frombuffer(text[:LONGEST].ljust(LONGEST, b"\0"), ">i8")
    return KINDS.index(kind) * 100 + min(len(text), LONGEST), *(int(w) for w in words)


class Distribution(Matrix):
    """A probability for each of the `width` classes; the probabilities of a row sum to 1."""

    def __init__(self, width: int, hint: str = "") -> None:
        super().__init__(Score("probability"), width, hint)
        self.expected = (  # type: ignore[misc]
            f'rows of {width} probabilities in [0, 1] that sum to 1 (for logits, pass scale="logit"; metrics that depend '
            'only on the order of the scores also accept scale="real" for any finite scores)'
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Distribution) and self.width == other.width

    def __hash__(self) -> int:
        return hash((Distribution, self.width))

    def ok(self, column: Column) -> bool:
        return super().ok(column) and not self._find_bad_sums(column).any()

    def bad(self, column: Column) -> Mask:
        return np.asarray(super().bad(column) | self._find_bad_sums(column))

    def describe_row(self, batch: Batch, name: str, row: int) -> str:
        if super().bad(batch.column(name, self))[row]:
            return super().describe_row(batch, name, row)
        total = batch.array(name, 2)[row].astype(np.float64).sum()
        return f"a sum of {total:g} in row {batch.original_row(row):,}"

    def _find_bad_sums(self, column: Column) -> Mask:
        """Return a mask of the rows whose probabilities do not sum to 1."""
        sums = np.empty(len(column.values))
        find_kernel("classes:sum_rows")(column.values, sums)
        return np.asarray(~(np.abs(sums - 1) <= SLACK))


class Logit(Score):
    """A logit in [-2**100, 2**100], a range that keeps the difference of any two logits finite."""

    def __init__(self) -> None:
        super().__init__("logit")
        self.low, self.high, self.expected = -(2.0**100), 2.0**100, "a logit in [-2**100, 2**100]"  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Logit)

    def __hash__(self) -> int:
        return hash(Logit)


def check_labels(owner: str, labels: Any) -> None:
    """Raise ValueError unless `labels` is a tuple or list of two or more distinct integers, strings or bytes.

    All labels must be of the same type. The error message begins with `owner`.
    """
    if not isinstance(labels, (tuple, list)) or len(labels) < 2:
        raise ValueError(f"{owner}: labels= must be a tuple or list of at least two classes, not {labels!r}")
    if len(set(labels)) < len(labels):
        repeated = next(x for x in labels if labels.count(x) > 1)
        raise ValueError(f"{owner}: labels= must not repeat a class, but {repeated!r} occurs more than once")
    if any(all(isinstance(x, kind) and not isinstance(x, bool) for x in labels) for kind in (int, str, bytes)):
        return
    raise ValueError(f"{owner}: labels= must be all integers, all strings or all bytes, not {_format_names(labels)}")


def check_ignored(owner: str, names: Any, ignore: Any) -> None:
    """Raise ValueError if the classes are integers and the ignored class is a string, or vice versa."""
    some = names[0] if isinstance(names, tuple) else 0
    if ignore is not None and names != "discover" and isinstance(ignore, str | bytes) != isinstance(some, str | bytes):
        raise ValueError(
            f"{owner}: ignore_class={ignore!r} must be of the same kind as the classes, which include {some!r}"
        )


def class_label(names: int | tuple[Any, ...], role: str = "y_true", ignore: Any = None) -> Need:
    """Declare that a metric's state reads a column of classes and leaves out the rows of class `ignore`."""
    return Need(role, Classes(names, ignore))


def class_scores(width: int, scale: str) -> Need:
    """Declare that a metric's state reads a matrix with a score for each class.

    The scores are probabilities that sum to 1, logits, or any finite numbers, depending on `scale`.
    """
    hint = ONE_SCORE if width == 2 else MATRIX
    if scale == "probability":
        return Need("y_score", Distribution(width, hint))
    return matrix(Need("y_score", Logit()) if scale == "logit" else score(scale=scale), width, hint)


def _format_names(names: Sequence[Any]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return shown + (f" and {len(names) - 10:,} more" if len(names) > 10 else "")
