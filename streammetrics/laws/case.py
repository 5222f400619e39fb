"""What a law is tried on, and how it says what is wrong."""

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
from .specimens import Columns, fitting

__all__ = [
    "Case",
    "Law",
    "LawError",
    "Rows",
    "by_name",
    "expect",
    "folded",
    "numbers",
    "quiet",
    "refuses",
    "same",
    "same_value",
    "shown",
    "value_of",
]

Law = Callable[["Case"], None]
Rows = NDArray[np.int64]


class LawError(StreamMetricsError, AssertionError):
    """A metric breaks a law that all metrics keep.

    Attributes
    ----------
    law : str
        The name of the law.
    """

    law = ""


class Case(NamedTuple):
    """What a law is tried on.

    Parameters
    ----------
    make : callable
        Makes an empty metric, collection or slices.
    columns : dict of arrays
        Good rows.
    rng : numpy Generator
        For whatever a law leaves to chance.
    bad : dict
        A bad value for columns that refuse some.
    metric : Metric, optional
        What `make` makes, for the laws of metrics.
    """

    make: Callable[[], Any]
    columns: Columns
    rng: np.random.Generator
    bad: dict[str, Any] = {}  # noqa: RUF012 - a tuple's field, never written to
    metric: Metric[Any, Any] | None = None

    @property
    def n(self) -> int:
        """How many rows there are."""
        return len(next(iter(self.columns.values())))

    @property
    def needs(self) -> Sequence[Need]:
        """What the state of the metric reads."""
        return () if self.metric is None else self.metric.make_state().needs()

    def take(self, rows: Any) -> Columns:
        """Return some of the rows."""
        return {name: column[rows] for name, column in self.columns.items()}

    def fed(self, columns: Columns | None = None, make: Callable[[], Any] | None = None) -> Any:
        """Make something that has seen these rows, by default all, each column by its name; laws give tables, too."""
        return by_name((make or self.make)(), self.columns if columns is None else columns)

    def parts(self, k: int) -> list[Rows]:
        """Split the rows in `k` parts at random, between blocks; some may be empty."""
        owner = self.rng.integers(0, k, self.n)[self.blocks]
        return [np.flatnonzero(owner == i) for i in range(k)]

    def of(self, kind: type) -> list[Need]:
        """The needs of a kind, alone or in a matrix, that these rows serve."""
        served = [n for n in self.needs if n.optional or n.role in self.columns]
        return [n for n in served if isinstance(n.kind.kind if isinstance(n.kind, Matrix) else n.kind, kind)]

    @property
    def blocks(self) -> Rows:
        """The block of each row, from 0: rows that must come together are one, otherwise each row is."""
        role = None if self.metric is None else self.metric.make_state().together
        if role is None or not self.n:
            return np.arange(self.n)
        return np.cumsum(np.r_[False, self.columns[role][1:] != self.columns[role][:-1]])

    def shuffled(self) -> Rows:
        """Put the rows in another order: blocks whole, and within them as they were if that matters."""
        ordered = self.metric is not None and self.metric.make_state().ordered
        within = np.arange(self.n) if ordered else self.rng.random(self.n)
        return np.lexsort([within, self.rng.permutation(self.n)[self.blocks]])

    def again(self) -> Columns:
        """Return the rows as they would come a second time: as other blocks, which must not return."""
        role = None if self.metric is None else self.metric.make_state().together
        return self.columns if role is None else self.columns | {role: self.columns[role] + 100}

    def fitting(self, columns: Columns) -> Columns:
        """Return columns of which some were replaced, made to fit together."""
        return columns if self.metric is None else fitting(self.metric.make_state(), columns)

    def weight(self) -> str | None:
        """The role of the weights, if the metric takes them."""
        return next((n.role for n in self.of(Weight) if n.optional), None)


def by_name(thing: Any, columns: Columns) -> Any:
    """Update a thing with those columns that it reads, by keyword: plain arrays take another way than tables."""
    known = columns_of(thing)
    return thing.update(**{name: column for name, column in columns.items() if name in known})


def expect(good: Any, expected: str, came: Any = "something else") -> None:
    """Raise LawError unless `good`."""
    if not good:
        raise LawError(f"expected {expected}; came {came}")


def same(a: Any, b: Any, expected: str) -> None:
    """Raise LawError unless two things have the same bytes, of which the digest is a part."""
    if a.to_bytes() != b.to_bytes():
        raise LawError(f"expected {expected}; came different ones: {_difference(a, b)}")


def _difference(a: Any, b: Any) -> str:
    for x, y in zip(states_of(a), states_of(b), strict=False):
        if found := x.differences(y):
            return "; ".join(found)
        if x != y:
            return f"{type(x).__name__} of {_content(x)} and {_content(y)}"
    return f"headers {shown(definition_of(a).header())} and {shown(definition_of(b).header())}"


def _content(state: Any) -> str:
    cells = state.cells
    keys = [w.values for w in cells.words] if cells.axes else []
    return shown({"keys": keys, **cells.flats, **cells.tallies})


def shown(thing: Any) -> str:
    """Show a thing in one line of bounded length."""
    text = " ".join(str(thing).split())
    return text if len(text) < 300 else text[:300] + "..."


def refuses(error: type[Exception], action: Callable[[], Any], what: str) -> None:
    """Raise LawError unless an action raises this error."""
    try:
        action()
    except error:  # as it should
        return
    except Exception as other:
        raise LawError(f"expected {error.__name__} for {what}; came {type(other).__name__}: {other}") from other
    raise LawError(f"expected {error.__name__} for {what}; came no error")


def quiet(action: Callable[[], Any]) -> Any:
    """Return what an action returns, without a warning where a value is undefined or its bounds are wide."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        warnings.simplefilter("ignore", WideBoundsWarning)
        return action()


def folded(thing: Any) -> list[list[bool]]:
    """Which cells of the states had too many rows to keep them exactly."""
    return [(s.by_cell(s.folds[1]) > 0).tolist() for s in states_of(thing) if s.folds is not None]


def value_of(thing: Any) -> Any:
    """Return the value, without a warning where it is undefined."""
    return quiet(thing.compute)


def numbers(value: Any) -> NDArray[np.float64]:
    """Return all numbers of a value: of a float, an array, a tuple or a dict."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.zeros(0), *map(numbers, value)])
    return np.asarray(value, np.float64).reshape(-1)


def same_value(a: Any, b: Any, expected: str, close: float = 0.0, nearly: float = 0.0) -> None:
    """Raise LawError unless two values are equal, or relatively close, or absolutely `nearly`; NaN is equal to NaN."""
    x, y = numbers(a), numbers(b)
    good = x.shape == y.shape
    if good:
        with np.errstate(invalid="ignore"):  # infinity less infinity
            near = np.abs(x - y) <= np.maximum(close * np.maximum(np.abs(x), np.abs(y)), nearly)
        good = bool(np.all((x == y) | (np.isnan(x) & np.isnan(y)) | near))
    expect(good, f"{expected}: {a!r}", repr(b))
