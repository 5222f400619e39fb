"""The input to a law (a `Case`, which holds a metric and rows) and the assertion functions that laws use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.kinds import Matrix, Need, Weight
from ..collect.accumulator import definition_of
from ..collect.metric import Metric
from ..collect.metric_like import columns_of, states_of, without_block_ends
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
    """Raised when a metric does not satisfy a law, a property that all metrics must have.

    Attributes
    ----------
    law : str
        The name of the law.
    """

    law = ""


class Case(NamedTuple):
    """The input to a law: a factory for the objects to check, and rows for them to count.

    For some states, rows form blocks: adjacent rows that belong together, such as the documents of a query. Laws never
    split a block.

    Parameters
    ----------
    make : callable
        A function that returns an empty metric, collection or `Sliced`.
    columns : dict of arrays
        Valid rows, as a dict from column name to column.
    rng : numpy Generator
        The generator for the law's random choices.
    bad : dict
        An invalid value for each column that can have one, such as 2 for 0/1 labels.
    metric : Metric, optional
        The metric, if the law is about a single metric.
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
        """The columns that the state of the metric declares; empty if the case has no metric."""
        return () if self.metric is None else self.metric.make_state().needs()

    def take(self, rows: Any) -> Columns:
        """Return all columns, but only the rows at these indices."""
        return {name: column[rows] for name, column in self.columns.items()}

    def build(self, columns: Columns | None = None, make: Callable[[], Any] | None = None) -> Any:
        """Return a new object that has counted these rows, by default all rows of the case.

        The columns are passed as keyword arguments. `make` is a function that returns an empty object; the default is
        the `make` of the case.
        """
        return update_by_name((make or self.make)(), self.columns if columns is None else columns)

    def parts(self, k: int) -> list[Rows]:
        """Split the rows at random into `k` parts, and return the row numbers of each part.

        Blocks are not split, and parts may be empty.
        """
        owner = self.rng.integers(0, k, self.n)[self.blocks]
        return [np.flatnonzero(owner == i) for i in range(k)]

    def needs_of_kind(self, kind: type) -> list[Need]:
        """Return the declared columns that contain values, or matrices of values, of this kind (such as `Label`).

        Required columns that the case does not contain are left out.
        """
        served = [n for n in self.needs if n.optional or n.role in self.columns]
        return [n for n in served if isinstance(n.kind.kind if isinstance(n.kind, Matrix) else n.kind, kind)]

    @property
    def blocks(self) -> Rows:
        """The block number of each row, from 0. If the rows do not form blocks, each row is its own block."""
        role = None if self.metric is None else self.metric.make_state().block_column
        if role is None or not self.n:
            return np.arange(self.n)
        return np.cumsum(np.r_[False, self.columns[role][1:] != self.columns[role][:-1]])

    def shuffle_rows(self) -> Rows:
        """Return the row numbers in random order. The rows of a block stay together.

        If the state depends on the row order within a block, this order is kept.
        """
        ordered = self.metric is not None and self.metric.make_state().is_order_dependent
        within = np.arange(self.n) if ordered else self.rng.random(self.n)
        return np.lexsort([within, self.rng.permutation(self.n)[self.blocks]])

    def next_columns(self, batch: int = 1) -> Columns:
        """Return the rows of the case as batch number `batch`, with new block IDs.

        The IDs are new because a block must not occur in two batches.
        """
        role = None if self.metric is None else self.metric.make_state().block_column
        return self.columns if role is None else self.columns | {role: self.columns[role] + 100 * batch}

    def make_consistent(self, columns: Columns) -> Columns:
        """Make the columns consistent with one another again after the law has replaced some of them."""
        return columns if self.metric is None else make_consistent(self.metric.make_state(), columns)

    def weight_role(self) -> str | None:
        """Return the name of the weight column, such as "sample_weight", or None if the metric accepts no weights."""
        return next((n.role for n in self.needs_of_kind(Weight) if n.optional), None)


def update_by_name(thing: Any, columns: Columns) -> Any:
    """Update an object with the columns that it reads, passed as keyword arguments rather than as a table."""
    known = columns_of(thing)
    return thing.update(**{name: column for name, column in columns.items() if name in known})


def expect(condition: Any, expected: str, actual: Any = "another result") -> None:
    """Raise LawError unless the condition is true; `expected` and `actual` describe the two results in the message."""
    if not condition:
        raise LawError(f"expected {expected}; found {actual}")


def expect_same_bytes(a: Any, b: Any, expected: str) -> None:
    """Raise LawError, with `expected` and the first difference, unless two objects serialize to the same bytes.

    The IDs of the queries that were counted first and last may differ, because they depend on the row order.
    """
    if without_block_ends(a).to_bytes() != without_block_ends(b).to_bytes():
        raise LawError(f"expected {expected}; found a difference: {_difference_text(a, b)}")


def _difference_text(a: Any, b: Any) -> str:
    for x, y in zip(states_of(a), states_of(b), strict=False):
        if differences := x.differences(y):
            return "; ".join(differences)
        if x != y:
            return f"{type(x).__name__} contains {_content_text(x)} in one object and {_content_text(y)} in the other"
    return f"the headers are {shorten(definition_of(a).header())} and {shorten(definition_of(b).header())}"


def _content_text(state: Any) -> str:
    cells = state.cells
    keys = [w.values for w in cells.vocabularies] if cells.axes else []
    return shorten({"keys": keys, **cells.flats, **cells.tallies})


def shorten(thing: Any) -> str:
    """Convert an object to a single line of text with at most 303 characters."""
    text = " ".join(str(thing).split())
    return text if len(text) < 300 else text[:300] + "..."


def expect_error(error: type[Exception], action: Callable[[], Any], what: str) -> None:
    """Raise LawError unless the action raises `error`; `what` describes the action in the message."""
    try:
        action()
    # The action raised the error that the law expects.
    except error:
        return
    except Exception as other:
        raise LawError(f"expected {error.__name__} for {what}; found {type(other).__name__}: {other}") from other
    raise LawError(f"expected {error.__name__} for {what}; found no error")


def without_warnings(action: Callable[[], Any]) -> Any:
    """Return the result of an action, suppressing warnings about undefined values and wide bounds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        warnings.simplefilter("ignore", WideBoundsWarning)
        return action()


def folded_cells(thing: Any) -> list[list[bool]]:
    """Return, for each state, a list of flags: whether the rows of each cell (such as a slice) are in buckets.

    A state keeps the rows of a cell exactly until their number exceeds a limit, and then moves them to histogram
    buckets. States whose statistic does not support this (`folding` is None) are left out.
    """
    return [(s.rows_by_cell(s.folding[1]) > 0).tolist() for s in states_of(thing) if s.folding is not None]


def value_of(thing: Any) -> Any:
    """Return the value of a metric, suppressing warnings."""
    return without_warnings(thing.compute)


def numbers(value: Any) -> NDArray[np.float64]:
    """Return all numbers in a value (a float, array, tuple or dict) as a flat array."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.zeros(0), *map(numbers, value)])
    return np.asarray(value, np.float64).reshape(-1)


def expect_same_value(a: Any, b: Any, expected: str, close: float = 0.0, nearly: float = 0.0) -> None:
    """Raise LawError unless the corresponding numbers in two values are equal within a tolerance.

    Parameters
    ----------
    a, b : float, array, tuple or dict
        The values. NaN equals NaN.
    expected : str
        The expected result, for the message.
    close, nearly : float
        The relative and absolute tolerances. A number needs to meet only one of them.
    """
    x, y = numbers(a), numbers(b)
    good = x.shape == y.shape
    if good:
        # The difference of two infinite values is NaN. Suppress the warning about it.
        with np.errstate(invalid="ignore"):
            near = np.abs(x - y) <= np.maximum(close * np.maximum(np.abs(x), np.abs(y)), nearly)
        good = bool(np.all((x == y) | (np.isnan(x) & np.isnan(y)) | near))
    expect(good, f"{expected}: {a!r}", repr(b))
