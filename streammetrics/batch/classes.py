"""Columns of several classes: the class of a row, and its probability of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.kernel_registry import kernel
from ..numerics.settings import plain
from . import remedies
from .columns import Array, Batch, Column, Kind, Mask
from .convert import as_array, is_listed
from .keys import kind_of, read_keys
from .kinds import Matrix, Need, Score, matrix, score

__all__ = [
    "Classes",
    "Distribution",
    "ScoresOrClasses",
    "check_ignored",
    "check_labels",
    "class_of",
    "class_scores",
    "spread_integers",
]

NONE = -1  # the class of a row that has none of those there are
IGNORED = -2  # that of a row that is to be left out
SLACK = 2.0**-7  # more than rounding each probability to bfloat16 can move their sum


class Classes(Kind):
    """One of several classes, kept as its number (int64); a matrix of a column for each class has a single 1 a row.

    Parameters
    ----------
    names : int or tuple of int or str
        The classes in their order; or how many there are, 0, 1, 2, ...
    ignore : int or str, optional
        A row of this class, which need not be one of them, is left out and counted.
    """

    def __init__(self, names: int | tuple[Any, ...], ignore: Any = None) -> None:
        self.names, self.ignore, self.skips = names, ignore, ignore is not None
        shown = f"an integer from 0 to {names - 1:,}" if isinstance(names, int) else f"one of {_listed(names)}"
        self.expected = f"a class: {shown}"  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Classes) and (self.names, self.ignore) == (other.names, other.ignore)

    def __hash__(self) -> int:
        return hash((Classes, self.names, self.ignore))

    def read(self, batch: Batch, name: str) -> Column:
        if batch.parent is not None:
            whole = batch.parent.column(name, self)
            return Column(whole.values[batch.index], whole.source)
        if self._is_one_hot(batch, name):
            made = _one_hot(batch.array(name, 2), name, self)
            return Column(self._marked(made.values, made.values == self._place_ignored), made.source)
        if isinstance(self.names, int):
            values = batch.array(name)
            made = self.convert(values, name)
            return (
                made if self.ignore is None else Column(self._marked(made.values, values == self.ignore), made.source)
            )
        made = self._named(batch.raw(name), name)
        batch.same_length(len(made.values), name)
        return made

    def _is_one_hot(self, batch: Batch, name: Any) -> bool:
        """Whether a column is a matrix of a column for each class."""
        several = isinstance(name, tuple) or is_listed(batch.raw(name))
        return several and batch.array(name, 2).shape[1:] != (1,)

    def convert(self, values: Array, name: str) -> Column:
        if values.dtype == np.int64:
            return Column(np.ascontiguousarray(values), "int64")
        if values.dtype.kind not in "biuf":
            raise InvalidInputError(
                f"{name}: expected {self.expected}, got an array of {values.dtype}; labels=(...) takes named classes",
                column=name,
            )
        whole = values.astype(np.int64) if values.dtype.kind != "f" else _whole(values)
        return Column(np.where(values > 2**62, NONE, whole) if values.dtype.kind == "u" else whole, values.dtype.name)

    def _named(self, raw: Any, name: str) -> Column:
        """Look each label up among the names."""
        assert isinstance(self.names, tuple)
        kind, made = read_keys(raw, name)
        if not kind:
            return Column(np.full(int(made), NONE), "")
        if kind != (wanted := kind_of(self.names, name)):
            raise InvalidInputError(f"{name}: expected {self.expected}, got labels of kind {kind}, not {wanted}")
        if kind == "integer":
            values, missing = made
            codes = self._marked(_places(values, self.names), values == self.ignore)
        else:
            (data, ends), index, missing = made
            number = {_text(n): i for i, n in enumerate(self.names)} | (
                {_text(self.ignore): IGNORED} if self.skips else {}
            )
            texts = [data[a:b].tobytes() for a, b in pairwise(ends.tolist())]
            codes = np.array([number.get(t, NONE) for t in texts], np.int64)[index]
        return Column(codes if missing is None else np.where(missing, NONE, codes), kind)

    @property
    def _place_ignored(self) -> int:
        """The number of the class that is left out; one that no row has, if it is none of them."""
        known = range(self.names) if isinstance(self.names, int) else self.names
        return known.index(self.ignore) if self.ignore in known else IGNORED

    def _marked(self, codes: NDArray[np.int64], gone: Any) -> NDArray[np.int64]:
        """Codes, with marks of those rows that are to be left out, which no other row has."""
        return np.where(gone, IGNORED, np.maximum(codes, NONE))

    def skipped(self, column: Column) -> Mask | None:
        return ignored(column) if self.skips else None

    def ok(self, column: Column) -> bool:
        v = column.values
        return not len(v) or bool(v.min() >= 0 and v.max() < self.width)

    def bad(self, column: Column) -> Mask:
        return np.asarray((column.values < 0) | (column.values >= self.width))

    @property
    def width(self) -> int:
        """How many classes there are."""
        return self.names if isinstance(self.names, int) else len(self.names)

    def found(self, batch: Batch, name: str, row: int) -> str:
        whole = batch.whole
        if self._is_one_hot(whole, name):
            return f"{batch.array(name, 2)[row].tolist()}, not a single 1, in row {batch.origin(row):,}"
        return f"{plain(batch.array(name)[row])!r} in row {batch.origin(row):,}"

    def remedy(self, batch: Batch, name: str, bad: Mask, role: str, others: Sequence[Array]) -> remedies.Remedy:
        whole = batch.whole
        if self._is_one_hot(whole, name):
            return remedies.Remedy()
        values = batch.array(name)
        return remedies.for_classes(values, values[bad], self.width, not isinstance(self.names, int), others)


class ScoresOrClasses(Matrix):
    """A score for each class; or one value a row, the predicted class: an integer or a text."""

    def __init__(self, names: int | tuple[Any, ...]) -> None:
        self.classes = Classes(names)
        hint = "; for predicted classes pass one integer or text per row"
        super().__init__(score(scale="real").kind, self.classes.width, hint)
        self.scores = Matrix(self.kind, self.width, hint)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScoresOrClasses) and self.classes == other.classes

    def __hash__(self) -> int:
        return hash((ScoresOrClasses, self.classes))

    def variant(self, batch: Batch, name: str) -> Kind:
        whole = batch.whole
        raw = None if isinstance(name, tuple) else whole.raw(name)
        if raw is None or (is_listed(raw) and getattr(raw, "shape", (0, 0))[1:] != (1,)):
            return self.scores
        values = as_array(raw, name)
        if values.dtype.kind != "f":
            return self.classes
        some = values[~np.isnan(values)]  # integers, some of them missing, are read as floats
        return self.classes if len(some) < len(values) and (some == np.floor(some)).all() else self.scores


def ignored(column: Column) -> Mask | None:
    """Which rows of a column of classes are marked to be left out; None for none."""
    gone = np.asarray(column.values == IGNORED)
    return gone if gone.any() else None


def _text(name: Any) -> Any:
    return name.encode() if isinstance(name, str) else name


def _one_hot(values: Array, name: str, kind: Classes) -> Column:
    """The place of the single 1 of each row; no class where that is not what there is."""
    if values.dtype.kind not in "biuf":
        raise InvalidInputError(f"{name}: expected {kind.expected}, got a matrix of {values.dtype}", column=name)
    if values.shape[1] != kind.width and len(values):
        raise InvalidInputError(
            f"{name}: expected {kind.expected}, or a matrix of {kind.width} columns with a single 1 in each row; got "
            f"rows of {values.shape[1]}",
            column=name,
        )
    ones = values == 1
    good = (ones.sum(axis=1) == 1) & (ones | (values == 0)).all(axis=1)
    classes = ones.argmax(axis=1) if len(values) else np.zeros(0, np.int64)
    return Column(np.where(good, classes, NONE), values.dtype.name)


def _whole(values: Array) -> NDArray[np.int64]:
    """Floats as integers; what is none, as no class."""
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    return np.where(whole == values, whole, NONE)


def _places(values: Array, names: Sequence[int]) -> NDArray[np.int64]:
    """The place of each integer among the names."""
    if values.dtype == np.uint64:  # beside int64 it would be compared as float64
        if max(names) < 1 << 63:
            return np.where(values < 1 << 63, _places(values.astype(np.int64), names), NONE)
        values = values.astype(object)
    known = np.array(names, object if max(names) >= 1 << 63 else np.int64)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], values), len(known) - 1)
    return np.where(known[order][at] == values, order[at], NONE).astype(np.int64)


WORDS = 6  # int64 that hold a class: its kind and length, and an integer or 40 bytes of text
KINDS = ("integer", "string", "bytes")  # for ever: it is in the bytes
LONGEST = 8 * (WORDS - 1)
SPAN = 1 << 12


@dataclass(frozen=True)
class FoundColumn(Column):
    """Classes as numbers into those of the batch.

    Parameters
    ----------
    values : int64 array
        The number of the class of each row; -1 for none.
    source : str
        Their kind.
    keys : int64 array, or list of bytes
        The classes that there may be in the batch: integers, or texts as their UTF-8.
    """

    keys: Any = ()

    @cached_property
    def names(self) -> NDArray[np.int64]:
        """The classes of the batch, each as WORDS integers."""
        if self.source == "integer":
            names = np.zeros((len(self.keys), WORDS), np.int64)
            names[:, 1] = self.keys
            return names
        return np.array([_worded(self.source, t) for t in self.keys], np.int64).reshape(-1, WORDS)


class FoundClasses(Kind):
    """A class that nobody has announced: an integer, or a text of up to 40 bytes.

    Parameters
    ----------
    ignore : int or str, optional
        A row of this class is left out and counted.
    """

    expected = f"a class: an integer, or a string or bytes of up to {LONGEST} bytes"

    def __init__(self, ignore: Any = None) -> None:
        self.ignore, self.skips = ignore, ignore is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FoundClasses) and self.ignore == other.ignore

    def __hash__(self) -> int:
        return hash((FoundClasses, self.ignore))

    def skipped(self, column: Column) -> Mask | None:
        return ignored(column) if self.skips else None

    def read(self, batch: Batch, name: str) -> Column:
        if batch.parent is not None:
            whole = batch.parent.column(name, self)
            assert isinstance(whole, FoundColumn)
            return FoundColumn(whole.values[batch.index], whole.source, whole.keys)
        made = self._read(batch.raw(name), name)
        batch.same_length(len(made.values), name)
        return made

    def _read(self, raw: Any, name: str) -> FoundColumn:
        kind, made = read_keys(raw, name)
        keys: Any
        if not kind:
            return FoundColumn(np.full(int(made), NONE), "")
        if self.skips and isinstance(self.ignore, int) != (kind == "integer"):
            raise InvalidInputError(
                f"{name}: ignore_class={self.ignore!r} is a class of another kind than those of this column, {kind}",
                column=name,
            )
        if kind == "integer":
            values, missing = made
            if values.dtype == object or (values.dtype == np.uint64 and len(values) and values.max() >= 1 << 63):
                raise InvalidInputError(f"{name}: classes are integers below 2**63", column=name)
            keys, codes = spread_integers(np.ascontiguousarray(values, np.int64))
            codes = np.where(values == self.ignore, IGNORED, codes) if self.skips else codes
        else:
            (data, ends), index, missing = made
            keys = [data[a:b].tobytes() for a, b in pairwise(ends.tolist())]
            good = np.array([len(t) <= LONGEST for t in keys])
            codes = np.where(good, np.arange(len(keys)), NONE)
            if self.skips and (text := _text(self.ignore)) in keys:
                codes[keys.index(text)] = IGNORED
            codes = codes[index].astype(np.int64)
        return FoundColumn(codes if missing is None else np.where(missing, NONE, codes), kind, keys)

    def bad(self, column: Column) -> Mask:
        return np.asarray(column.values < 0)

    def found(self, batch: Batch, name: str, row: int) -> str:
        return f"{plain(batch.array(name)[row])!r} in row {batch.origin(row):,}"


def spread_integers(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return integers that include all of some, and the place of each among them; without sorting while they are close."""
    low, high = int(values.min()), int(values.max())
    if high - low < SPAN:
        return np.arange(low, high + 1), values - low
    distinct, codes = np.unique(values, return_inverse=True)
    return distinct, codes.reshape(-1).astype(np.int64)


def _worded(kind: str, text: bytes) -> tuple[int, ...]:
    """A text as integers: its kind and length, and its bytes."""
    words = np.frombuffer(text[:LONGEST].ljust(LONGEST, b"\0"), ">i8")
    return KINDS.index(kind) * 100 + min(len(text), LONGEST), *(int(w) for w in words)


def kinds_of(classes: NDArray[np.int64]) -> list[str]:
    """The kind of each class."""
    return [KINDS[int(row[0]) // 100] for row in classes]


class Distribution(Matrix):
    """A probability for each class; those of a row sum to 1."""

    def __init__(self, width: int) -> None:
        super().__init__(Score("probability"), width)
        self.expected = (  # type: ignore[misc]
            f'rows of {width} probabilities in [0, 1] that sum to 1 (scale="logit" takes logits, scale="real" of metrics '
            "of order any finite scores)"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Distribution) and self.width == other.width

    def __hash__(self) -> int:
        return hash((Distribution, self.width))

    def ok(self, column: Column) -> bool:
        return super().ok(column) and not self._off(column).any()

    def bad(self, column: Column) -> Mask:
        return np.asarray(super().bad(column) | self._off(column))

    def found(self, batch: Batch, name: str, row: int) -> str:
        if super().bad(batch.column(name, self))[row]:
            return super().found(batch, name, row)
        total = batch.array(name, 2)[row].astype(np.float64).sum()
        return f"a sum of {total:g} in row {batch.origin(row):,}"

    def _off(self, column: Column) -> Mask:
        """Which rows do not sum to 1."""
        sums = np.empty(len(column.values))
        kernel("classes:sum_rows")(column.values, sums)
        return np.asarray(~(np.abs(sums - 1) <= SLACK))


class Logit(Score):
    """A logit; differences of any two are finite."""

    def __init__(self) -> None:
        super().__init__("logit")
        self.low, self.high, self.expected = -(2.0**100), 2.0**100, "a logit in [-2**100, 2**100]"  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Logit)

    def __hash__(self) -> int:
        return hash(Logit)


def check_labels(owner: str, labels: Any) -> None:
    """Raise unless these are labels: at least two different ones, all integers or all text."""
    if not isinstance(labels, (tuple, list)) or len(labels) < 2:
        raise ValueError(f"{owner}: labels are at least two classes in their order, not {labels!r}")
    if len(set(labels)) < len(labels):
        raise ValueError(f"{owner}: labels has {next(x for x in labels if labels.count(x) > 1)!r} twice")
    if any(all(isinstance(x, kind) and not isinstance(x, bool) for x in labels) for kind in (int, str, bytes)):
        return
    raise ValueError(f"{owner}: labels are integers, or strings, or bytes, not {_listed(labels)}")


def check_ignored(owner: str, names: Any, ignore: Any) -> None:
    """Raise if no row could be of the class to ignore, because those that there are, are of another kind."""
    some = names[0] if isinstance(names, tuple) else 0
    if ignore is not None and names != "discover" and isinstance(ignore, str | bytes) != isinstance(some, str | bytes):
        raise ValueError(
            f"{owner}: ignore_class={ignore!r} is a class of another kind than those there are, like {some!r}"
        )


def class_of(names: int | tuple[Any, ...], role: str = "y_true", ignore: Any = None) -> Need:
    """Declare the need for a column of classes; rows of the class to ignore are left out and counted."""
    return Need(role, Classes(names, ignore))


def class_scores(width: int, scale: str) -> Need:
    """Declare the need for a score of each class: probabilities that sum to 1, or any finite numbers."""
    if scale == "probability":
        return Need("y_score", Distribution(width))
    return matrix(Need("y_score", Logit()) if scale == "logit" else score(scale=scale), width)


def _listed(names: Sequence[Any]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return shown + (f" and {len(names) - 10:,} more" if len(names) > 10 else "")
