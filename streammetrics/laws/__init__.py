"""The laws that every metric keeps, also one of another package: `check_metric`, `check_state`.

Each law is a function of a `Case`: something that counts rows, and rows to try it on. A law that is broken raises
`LawError`, which says which law, what was expected and what came.
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
from .case import Case, Law, LawError, shown
from .metrics import METRIC_LAWS, registered
from .objects import OBJECT_LAWS
from .shards import SHARD_LAWS
from .slices import SLICE_LAWS
from .specimens import STYLES, Columns, Data, bad_value, fitting, sample
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

LAWS: list[Law] = [registered, *OBJECT_LAWS, *METRIC_LAWS, *SLICE_LAWS, *SHARD_LAWS, *WINDOW_LAWS]
"""What `check_metric` tries, in turn."""


def check_metric(
    metric: type[Metric[Any, Any]] | Metric[Any, Any], *, data: Data = None, seed: int = 0, examples: int = 7
) -> None:
    """Run every law on a metric, also of another package.

    Parameters
    ----------
    metric : Metric, or a class of metrics that can be made without arguments, or has an `example` of them
        What to check; what an object has seen is left aside.
    data : mapping of arrays, or function of (rng, n), optional
        Good rows by name, or what makes some. By default they are made up from what the state `needs`: labels, scores
        of its scale, flags and weights, with ties, one class, saturation, or no rows at all.
    seed : int
        Another seed, other rows.
    examples : int
        How many sets of rows to try; seven see each of `STYLES` once.

    Raises
    ------
    LawError
        A law is broken (an AssertionError); the message says which, for which rows, what was expected and what came.

    Notes
    -----
    The laws are the functions in `LAWS`. Neither pytest nor hypothesis is needed; data frames, Arrow and tensors are
    tried where their libraries are installed.

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
    """Run every law on a state, also of another package: on a metric that reads it, and computes nothing.

    Parameters
    ----------
    state : State
        What to check; what it has seen is left aside.
    data, seed, examples
        As for `check_metric`.

    Raises
    ------
    LawError
        A law is broken.
    """
    with reader_of(state) as metric:
        check_metric(metric, data=data, seed=seed, examples=examples)


@contextmanager
def reader_of(state: State) -> Iterator[Metric[Any, Any]]:
    """Give a metric that reads this state, and is registered meanwhile."""

    class Reader(Metric[State, float], tag=f"laws.reader.{state.tag}"):
        def make_state(self) -> State:
            return state.empty()

        def of(self, state: State) -> float:
            return 0.0

    try:
        yield Reader()
    finally:
        del METRICS[Reader.about.tag]


def example_case(metric: Metric[Any, Any], data: Data, seed: int, example: int) -> Case:
    """Make up rows for a metric."""
    rng = np.random.default_rng([seed, example])
    style = STYLES[example % len(STYLES)]
    n = {"few": int(rng.integers(1, 4)), "empty": 0}.get(style, int(rng.integers(20, 60)))
    needs = metric.make_state().needs()
    if data is None:
        columns = sample(needs, rng, n, style, weighted=bool(example % 2))
    elif callable(data):
        columns = {k: np.asarray(v) for k, v in data(rng, n).items()}
    else:
        given = {k: np.asarray(v) for k, v in data.items()}
        rows = rng.integers(0, len(next(iter(given.values()))), n)
        columns = {k: v[rows] for k, v in given.items()}
    return metric_case(metric, columns, rng)


def metric_case(metric: Metric[Any, Any], columns: Columns, rng: np.random.Generator) -> Case:
    """Return a case of a metric and rows, which are made to fit together."""
    columns = fitting(metric.make_state(), columns)
    bad = {n.role: bad_value(n.kind) for n in metric.make_state().needs() if bad_value(n.kind) is not None}
    return Case(partial(empty_copy, metric), columns, rng, bad, metric)


def run(law: Law, case: Case) -> None:
    """Try a law; raise LawError, naming it, if it is broken or cannot be tried."""
    try:
        law(case)
    except Exception as error:
        what = error if isinstance(error, LawError) else f"it raised {type(error).__name__}: {error}"
        broken = LawError(
            f"{case.make()!r} breaks the law {law.__name__!r} ({(law.__doc__ or '').splitlines()[0]}): {what}\n"
            f"The {case.n} rows: {shown(case.columns)}"
        )
        broken.law = law.__name__
        raise broken from error
