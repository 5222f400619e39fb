"""Decayed: a metric in which old rows decay exponentially, for monitoring a training run or a live model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from ..collect.accumulator import accumulate, definition_of
from ..collect.collection import CollectionDefinition
from ..collect.definition import Definition
from ..collect.metric import Metric, MetricDefinition
from ..collect.task import Metrics
from ..count.reads import MEMORY_LIMIT
from ..numerics.settings import to_python_int
from ..reading.about import about_of
from ..reading.interval import no_interval
from ..reading.replicates import Sample
from ..state.declare import FORMS, Flat
from ..state.state import State
from .pooled_windows import (
    PooledAnswer,
    PooledDefinition,
    PooledWrapper,
    cell_starts,
    map_values,
    newest_start,
    sum_cells,
)
from .windowed import Windowed, WindowedDefinition, axis_of, width_of

__all__ = ["Decayed", "DecayedDefinition"]

READ = ("value", "bound_low", "bound_high", "bounds", "exact", "reason", "wide")
"""The fields of table rows and explanations that are computed with decay; others, such as counts, ignore it."""

NO_SAMPLE = "rows weighted by age are not a sample; use Decayed(Sharded(..., unit=), ...) for intervals"


class DecayedAnswer(PooledAnswer):
    """Values, bounds and intervals with decay. Tables and explanations show row counts without decay."""

    @property
    def _undecayed_answer(self) -> Any:
        """The answer without decay for the same epochs; tables and explanations take the row counts from it."""
        return self.definition.inner.read([sum_cells(s, cell_starts(s)[0]) for s in self.states])

    @property
    def explanation(self) -> Any:
        return _replace_decayed_fields(self._undecayed_answer.explanation, self.answer.explanation)

    def intervals(self, confidence: float, method: str | None = None) -> Any:
        if self.definition.unit is not None:
            return self.answer.intervals(confidence, method)
        return map_values(self.value, lambda value: no_interval(value, confidence, NO_SAMPLE))

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        by_unit = self.definition.unit is not None
        read = (*READ, "interval_low", "interval_high", "interval_reason") if by_unit else READ
        decayed = self.answer.records(confidence if by_unit else None)
        rows = [
            row | {n: one[n] for n in read if n in one}
            for row, one in zip(self._undecayed_answer.records(None), decayed, strict=True)
        ]
        without_interval = not by_unit and confidence is not None
        return [row | {"interval_reason": NO_SAMPLE} for row in rows] if without_interval else rows


class DecayedDefinition(PooledDefinition):
    """The definition of a metric with exponential decay; see `Decayed`."""

    kind = "decayed"
    rest = "(expired)"
    noun = "epoch"

    @classmethod
    def check_inner(cls, inner: Any) -> Any:
        check_can_decay(super().check_inner(inner))
        return inner

    @property
    def name(self) -> str:
        of = f" {self.axis.names[0]}" if self.axis.kind == "step" else ""
        return f"{self.inner.name} decayed by {width_of(self.axis)}{of}"

    def header(self) -> dict[str, Any]:
        how = {"time": self.axis.names[0], "half_life": width_of(self.axis), "keep": self.axis.keep}
        return {"kind": "decayed", "inner": self.inner.header(), **how}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Self:
        check_epochs(header["keep"])
        axis = axis_of(header["time"], header["half_life"], header["keep"], "half_life=")
        return cls(cls.inner_of_header(header, states), axis)

    def read(self, states: Sequence[State]) -> DecayedAnswer:
        return DecayedAnswer(self, states)

    def pool_states(self, states: Sequence[State]) -> list[State]:
        return [self._decay_state(s) for s in states]

    def _decay_state(self, state: State) -> State:
        """Return the weighted sum of all epochs of a state; each epoch has twice the weight of the one before it."""
        cells, begin = cell_starts(state)
        total = state.empty_copy(state.axes[1:])
        if not len(cells):
            return total
        # Go from the newest epoch (age 0) to the oldest: double the total, then add the next older epoch (Horner's
        # scheme). In the end, the oldest epoch has weight 1, and every newer epoch has twice the weight of the epoch
        # before it. All weights are integers, so all sums stay exact.
        age = (int(begin.max()) - begin) // self.axis.size
        for k in range(int(age.max()) + 1):
            again = [total, total] if k else []
            total = total.empty_copy(total.axes).merge(*again, sum_cells(state, cells[age == k]))
        return total

    def samples(self, states: Sequence[State]) -> list[Sample]:
        return Definition.samples(self, states)


class Decayed(PooledWrapper):
    """A metric, a collection, or slices with exponential decay: the weight of a row halves with every half-life.

    Rows are grouped into epochs of one half-life. The weight of a row is 2**-age, where age is the number of epochs
    by which the row precedes the newest epoch. Epochs begin at multiples of the half-life on every machine, so the
    states of workers can be merged, and resumed runs can continue.

    Parameters
    ----------
    metric : metric, Task, MetricCollection, Sliced, Sharded, or list or dict of metrics
        The metrics to compute, such as proportions, means and curves. Counts, sums, extremes and distinct counts raise
        TypeError.
    half_life : int, str or timedelta
        The number of steps, for a column of integers; or a duration such as "1h", for a column of timestamps or dates.
    time : str
        The column with the time of each row. A scalar applies to the whole batch: ``update(y, p, step=17)``.
    keep : int
        The number of newest epochs from which the value is computed. Older rows, whose weight would be 2**-keep or less,
        are ignored.
    memory_limit : int
        The maximum total size of all epochs in bytes; exceeding it raises MemoryLimitError.
    on_invalid : {"raise", "drop"}
        Whether an invalid row raises an error, or is left out and reported. A row without a time belongs to no epoch.

    Notes
    -----
    The state of each epoch consists of integers. `compute()` gives the oldest epoch the weight 1 and each later epoch
    twice the weight of the epoch before it. The value is therefore exactly the same as if each row were repeated w
    times, where w is the weight of its epoch, and does not depend on the order of rows or merges.

    A `Decayed` takes as much memory as a `Windowed` with the same `keep`, and `compute()` takes about as long as `keep`
    merges. Tables and `explain()` show the number of rows without decay. A histogram can store only a limited number of
    scores without rounding. With decay it reaches this limit sooner, because rows are repeated, and `bounds()` shows
    wider bounds. Intervals need units: ``Decayed(Sharded(...), ...)``. The sum of the sample weights in an epoch, times
    2**keep, must be below 2**42. Otherwise CounterOverflowError is raised; in this case, use a smaller `keep`.

    EasyRec's DecayAUC, in comparison, decays the state with every batch. torcheval's WindowedBinaryAUROC and torchrec's
    windows drop old rows abruptly, as `Recent` and ``Windowed(...).last(n)`` do.

    Examples
    --------
    >>> import streammetrics as sm
    >>> live = sm.Decayed([sm.CTR(), sm.AUC()], half_life=100, time="step")
    >>> for step in range(0, 300, 50):  # a training loop
    ...     _ = live.update([0, 1], [0.3, 0.6] if step < 200 else [0.6, 0.3], step=step)
    >>> live.compute()  # 4 rows each with the weights 1, 1/2 and 1/4
    {'ctr': 0.5, 'auc': 0.42857142857142855}
    >>> sm.from_bytes(live.to_bytes()).update([1], [0.9], step=300).newest
    300
    """

    def __init__(
        self,
        metric: Metrics,
        *,
        half_life: Any,
        time: str = "step",
        keep: int = 16,
        memory_limit: int = MEMORY_LIMIT,
        on_invalid: str | None = None,
    ) -> None:
        check_epochs(keep := to_python_int(keep))
        axis = axis_of(time, half_life, keep, "half_life=")
        self._accumulator = accumulate(DecayedDefinition.from_metrics(metric, axis, on_invalid, memory_limit))

    @property
    def time(self) -> str:
        """The column with the time of each row."""
        name: str = definition_of(self).axis.names[0]
        return name

    @property
    def half_life(self) -> str | int:
        """The half-life: a duration such as "1h", or a number of steps."""
        return width_of(definition_of(self).axis)

    @property
    def windows(self) -> Windowed:
        """The same rows without decay, as a `Windowed` object with one window for each epoch."""
        own = definition_of(self)
        definition = WindowedDefinition(own.inner, own.axis, own.on_invalid, own.memory_limit)
        windows: Windowed = definition.wrap(accumulate(definition, self._accumulator.states))
        return windows

    @property
    def newest(self) -> int | None:
        """The start of the newest epoch, as a step number or as microseconds since 1970; None if there are no rows."""
        return newest_start(self._accumulator.states)

    def __repr__(self) -> str:
        of = f" {self.time}" if definition_of(self).axis.kind == "step" else f" of {self.time}"
        return f"Decayed({', '.join(self.names)}; half-life {self.half_life}{of}): {self._summary('epochs')}"


DecayedDefinition.public = Decayed


def _replace_decayed_fields(undecayed: Any, decayed: Any) -> Any:
    """Return a copy of `undecayed` in which the fields that depend on decay (`READ`) come from `decayed`."""
    if isinstance(undecayed, dict) and "metric" not in undecayed:
        return {key: _replace_decayed_fields(one, decayed[key]) for key, one in undecayed.items()}
    return undecayed | {name: decayed[name] for name in READ if name in decayed}


def check_epochs(keep: Any) -> None:
    """Raise ValueError unless `keep` is an integer from 1 to 40."""
    if type(keep) is not int or not 1 <= keep <= 40:
        raise ValueError(f"keep= must be a whole number of epochs from 1 to 40, not {keep!r}")


def check_can_decay(inner: Any) -> None:
    """Raise TypeError if a metric cannot decay.

    Metrics that grow with the number of rows, such as sums, cannot decay. Neither can metrics whose rows cannot be
    weighted, such as extremes.
    """
    for metric in iterate_metrics(inner):
        if about_of(metric).extensive:
            raise TypeError(
                f"{metric.name} grows with the number of rows, so {metric.name} has no meaning with decay; use a mean "
                f"or a share, such as Mean, or use Recent, which accepts any metric"
            )
    for read in inner.reads:
        for part in read.state.parts().values():
            if isinstance(part, Flat) and not (part.optional or FORMS[part.form].can_subtract):
                raise TypeError(
                    f"rows cannot decay in a metric that keeps extremes, registers, samples or closed groups "
                    f"({type(read.state).__name__}); use Recent, which accepts any metric"
                )


def iterate_metrics(definition: Any) -> Iterator[Metric[Any, Any]]:
    """Yield every metric in a definition, including the metrics inside collections and wrappers."""
    if isinstance(definition, MetricDefinition):
        yield definition.metric
    elif isinstance(definition, CollectionDefinition):
        for entry in definition.plan.entries.values():
            yield from iterate_metrics(entry.definition)
    else:
        yield from iterate_metrics(definition.inner)
