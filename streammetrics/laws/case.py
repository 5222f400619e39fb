"""Case: the object and rows on which a law runs, and the assertions of laws."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.kinds import Matrix, Need, Weight
from ..collect.accumulator import definition_of
from ..collect.metric import Metric
from ..collect.metric_like import columns_of, states_of
from ..errors import StreamMetricsError, UndefinedMetricWarning, WideBoundsWarning
from .specimens import Columns, make_consistent

__all__ = [
    "Case",
    "Law",
    "LawError",
    "Rows",
    "expect",
    "expect_error",
    "expect_same_bytes",
    "expect_same_value",
    "folded_cells",
    "numbers",
    "shorten",
    "update_by_name",
    "value_of",
    "without_warnings",
]

Law = Callable[["Case"], None]
Rows = NDArray[np.int64]


class LawError(StreamMetricsError, AssertionError):
    """A metric breaks a law that all metrics must satisfy.

    Attributes
    ----------
    law : str
        The name of the law.
    """

    law = ""


class Case(NamedTuple):
    """The object and the rows on which a law runs.

    Parameters
    ----------
    make : callable
        Returns an empty metric, collection or slices.
    columns : dict of arrays
        Valid rows, by column.
    rng : numpy Generator
        The random generator of the law.
    bad : dict
        An invalid value for each column that has one.
    metric : Metric, optional
        The metric, for laws of metrics.
    """

    make: Callable[[], Any]
    columns: Columns
    rng: np.random.Generator
    bad: dict[str, Any] = {}  # noqa: RUF012 - a tuple's field, never written to
    metric: Metric[Any, Any] | None = None

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values())))

    @property
    def needs(self) -> Sequence[Need]:
        """The needs that the state of the metric declares: its columns and their kinds."""
        return () if self.metric is None else self.metric.make_state().needs()

    def take(self, rows: Any) -> Columns:
        """Return some rows of all columns."""
        return {name: column[rows] for name, column in self.columns.items()}

    def build(self, columns: Columns | None = None, make: Callable[[], Any] | None = None) -> Any:
        """Return a new object that counted these rows (by default all), passed as keyword arguments."""
        return update_by_name((make or self.make)(), self.columns if columns is None else columns)

    def parts(self, k: int) -> list[Rows]:
        """Return the row numbers of `k` random parts; blocks are not split, and parts may be empty."""
        owner = self.rng.integers(0, k, self.n)[self.blocks]
        return [np.flatnonzero(owner == i) for i in range(k)]

    def needs_of_kind(self, kind: type) -> list[Need]:
        """Return the needs of a kind (also as the kind of a matrix) for which there is a column."""
        served = [n for n in self.needs if n.optional or n.role in self.columns]
        return [n for n in served if isinstance(n.kind.kind if isinstance(n.kind, Matrix) else n.kind, kind)]

    @property
    def blocks(self) -> Rows:
        """The block number of each row, from 0. Rows of one query, for example, are a block; otherwise each row is one."""
        role = None if self.metric is None else self.metric.make_state().block_column
        if role is None or not self.n:
            return np.arange(self.n)
        return np.cumsum(np.r_[False, self.columns[role][1:] != self.columns[role][:-1]])

    def shuffle_rows(self) -> Rows:
        """Return the row numbers in random order. Blocks stay together, in their order if the state depends on it."""
        ordered = self.metric is not None and self.metric.make_state().is_order_dependent
        within = np.arange(self.n) if ordered else self.rng.random(self.n)
        return np.lexsort([within, self.rng.permutation(self.n)[self.blocks]])

    def next_columns(self) -> Columns:
        """Return the same rows for a second batch, with new block IDs, because a block must not occur again."""
        role = None if self.metric is None else self.metric.make_state().block_column
        return self.columns if role is None else self.columns | {role: self.columns[role] + 100}

    def make_consistent(self, columns: Columns) -> Columns:
        """Return the columns made consistent with one another again, after some of them were replaced."""
        return columns if self.metric is None else make_consistent(self.metric.make_state(), columns)

    def weight_role(self) -> str | None:
        """Return the role of the weights; None if the metric takes none."""
        return next((n.role for n in self.needs_of_kind(Weight) if n.optional), None)


def update_by_name(thing: Any, columns: Columns) -> Any:
    """Update an object with the columns that it reads as keyword arguments (a different code path than tables)."""
    known = columns_of(thing)
    return thing.update(**{name: column for name, column in columns.items() if name in known})


def expect(condition: Any, expected: str, actual: Any = "something else") -> None:
    """Raise LawError unless the condition holds."""
    if not condition:
        raise LawError(f"expected {expected}; found {actual}")


def expect_same_bytes(a: Any, b: Any, expected: str) -> None:
    """Raise LawError unless two objects have the same bytes."""
    if a.to_bytes() != b.to_bytes():
        raise LawError(f"expected {expected}; found different ones: {_difference_text(a, b)}")


def _difference_text(a: Any, b: Any) -> str:
    for x, y in zip(states_of(a), states_of(b), strict=False):
        if differences := x.differences(y):
            return "; ".join(differences)
        if x != y:
            return f"{type(x).__name__} of {_content_text(x)} and {_content_text(y)}"
    return f"headers {shorten(definition_of(a).header())} and {shorten(definition_of(b).header())}"


def _content_text(state: Any) -> str:
    cells = state.cells
    keys = [w.values for w in cells.vocabularies] if cells.axes else []
    return shorten({"keys": keys, **cells.flats, **cells.tallies})


def shorten(thing: Any) -> str:
    """Return an object as text in one line of bounded length."""
    text = " ".join(str(thing).split())
    return text if len(text) < 300 else text[:300] + "..."


def expect_error(error: type[Exception], action: Callable[[], Any], what: str) -> None:
    """Raise LawError unless an action raises this error."""
    try:
        action()
    except error:
        # This is the expected error.
        return
    except Exception as other:
        raise LawError(f"expected {error.__name__} for {what}; found {type(other).__name__}: {other}") from other
    raise LawError(f"expected {error.__name__} for {what}; found no error")


def without_warnings(action: Callable[[], Any]) -> Any:
    """Return the result of an action, without warnings of undefined values and wide bounds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        warnings.simplefilter("ignore", WideBoundsWarning)
        return action()


def folded_cells(thing: Any) -> list[list[bool]]:
    """Return which cells of the states had too many rows to keep them exactly."""
    return [(s.rows_by_cell(s.folding[1]) > 0).tolist() for s in states_of(thing) if s.folding is not None]


def value_of(thing: Any) -> Any:
    """Return the value without warnings."""
    return without_warnings(thing.compute)


def numbers(value: Any) -> NDArray[np.float64]:
    """Return all numbers of a value: of a float, an array, a tuple or a dict."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.zeros(0), *map(numbers, value)])
    return np.asarray(value, np.float64).reshape(-1)


def expect_same_value(a: Any, b: Any, expected: str, close: float = 0.0, nearly: float = 0.0) -> None:
    """Raise LawError unless two values agree within the relative tolerance `close` or the absolute one `nearly`."""
    x, y = numbers(a), numbers(b)
    good = x.shape == y.shape
    if good:
        # Infinity minus infinity gives NaN.
        with np.errstate(invalid="ignore"):
            near = np.abs(x - y) <= np.maximum(close * np.maximum(np.abs(x), np.abs(y)), nearly)
        good = bool(np.all((x == y) | (np.isnan(x) & np.isnan(y)) | near))
    expect(good, f"{expected}: {a!r}", repr(b))
