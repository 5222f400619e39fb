"""Laws: property tests that every metric must pass, including metrics that other packages define.

`check_metric` and `check_state` run all laws. Each law is a function that takes a `Case`, which provides rows to count
and a factory for empty metrics. A law that does not hold raises `LawError` with the name of the law, the expected
result and the actual result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ..collect.metric import METRICS, Metric
from ..collect.metric_like import empty_copy
from ..state.state import State
from .case import Case, Law, LawError, shorten
from .metrics import METRIC_LAWS, has_tag
from .objects import OBJECT_LAWS
from .shards import SHARD_LAWS
from .slices import SLICE_LAWS
from .specimens import STYLES, Columns, Data, bad_value, make_consistent, sample
from .windows import WINDOW_LAWS

__all__ = [
    "LAWS",
    "METRIC_LAWS",
    "OBJECT_LAWS",
    "SHARD_LAWS",
    "SLICE_LAWS",
    "WINDOW_LAWS",
    "Case",
    "LawError",
    "check_metric",
    "check_state",
]

LAWS: list[Law] = [has_tag, *OBJECT_LAWS, *METRIC_LAWS, *SLICE_LAWS, *SHARD_LAWS, *WINDOW_LAWS]
"""The laws that `check_metric` runs, in this order."""


def check_metric(
    metric: type[Metric[Any, Any]] | Metric[Any, Any], *, data: Data = None, seed: int = 0, examples: int = 7
) -> None:
    """Run every law on a metric, which may belong to another package.

    Parameters
    ----------
    metric : Metric, or class of metrics
        The metric to check. Rows that it has counted are ignored. A class must be callable without arguments or declare
        an `example` of its arguments.
    data : mapping of arrays, or function of (rng, n), optional
        Valid columns, keyed by name, or a function that generates `n` rows of valid columns. By default, the laws
        generate the columns that the state declares, such as labels, weights, and scores on the declared scale. Some
        of the generated data sets have ties, a single class, extreme values or no rows.
    seed : int
        The seed for the generated rows.
    examples : int
        The number of data sets. Seven data sets use each style in `STYLES` once.

    Raises
    ------
    LawError
        A law does not hold. The message names the law, the rows, the expected result and the actual result. LawError is
        a subclass of AssertionError.

    Notes
    -----
    The laws are the functions in `LAWS`. Neither pytest nor hypothesis is needed. Data frames, Arrow arrays and tensors
    are tested if their libraries are installed.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.extend.check_metric(sm.BrierScore)
    """
    prototype = metric(**metric.about.example) if isinstance(metric, type) else empty_copy(metric)
    for example in range(examples):
        for law in LAWS:
            run(law, example_case(prototype, data, seed, example))


def check_state(state: State, *, data: Data = None, seed: int = 0, examples: int = 7) -> None:
    """Run every law on a state, which may belong to another package.

    The laws need a metric, so the function defines one that reads the state and always returns 0.

    Parameters
    ----------
    state : State
        The state to check. Rows that it has counted are ignored.
    data, seed, examples
        See `check_metric`.

    Raises
    ------
    LawError
        A law does not hold.
    """
    with reader_of(state) as metric:
        check_metric(metric, data=data, seed=seed, examples=examples)


@contextmanager
def reader_of(state: State) -> Iterator[Metric[Any, Any]]:
    """Yield a metric that uses this state and always returns 0. Its class is registered only in the `with` block."""

    class Reader(Metric[State, float], tag=f"laws.reader.{state.tag}"):
        def make_state(self) -> State:
            return state.empty_copy()

        def of(self, state: State) -> float:
            return 0.0

    try:
        yield Reader()
    finally:
        del METRICS[Reader.about.tag]


def example_case(metric: Metric[Any, Any], data: Data, seed: int, example: int) -> Case:
    """Return a case for a metric and data set number `example`, whose rows are generated or taken from `data`."""
    rng = np.random.default_rng([seed, example])
    style = STYLES[example % len(STYLES)]
    n = {"few": int(rng.integers(1, 4)), "empty": 0}.get(style, int(rng.integers(20, 60)))
    needs = metric.make_state().needs()
    if data is None:
        columns = sample(needs, rng, n, style, weighted=bool(example % 2))
    elif callable(data):
        columns = {k: np.asarray(v) for k, v in data(rng, n).items()}
    else:
        table = {k: np.asarray(v) for k, v in data.items()}
        rows = rng.integers(0, len(next(iter(table.values()))), n)
        columns = {k: v[rows] for k, v in table.items()}
    return metric_case(metric, columns, rng)


def metric_case(metric: Metric[Any, Any], columns: Columns, rng: np.random.Generator) -> Case:
    """Return a case for a metric and some rows.

    The columns are first made consistent with one another. For example, all rows of a query get the same query weight.
    """
    columns = make_consistent(metric.make_state(), columns)
    bad = {n.role: bad_value(n.kind) for n in metric.make_state().needs() if bad_value(n.kind) is not None}
    return Case(partial(empty_copy, metric), columns, rng, bad, metric)


def run(law: Law, case: Case) -> None:
    """Run a law. If the law does not hold, or fails with an exception, raise a LawError that names the law."""
    try:
        law(case)
    except Exception as error:
        what = error if isinstance(error, LawError) else f"it raised {type(error).__name__}: {error}"
        broken = LawError(
            f"{case.make()!r} breaks the law {law.__name__!r} ({(law.__doc__ or '').splitlines()[0]}): {what}\n"
            f"The {case.n} rows: {shorten(case.columns)}"
        )
        broken.law = law.__name__
        raise broken from error
