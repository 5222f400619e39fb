"""Decayed: a metric of rows that fade with age, for the curve of a training run or of a live model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from ..collect.accumulator import accumulate, definition_of
from ..collect.collection import CollectionDefinition
from ..collect.definition import Definition
from ..collect.metric import Metric, MetricDefinition
from ..collect.task import Metrics
from ..count.reads import MEMORY_LIMIT
from ..numerics.settings import as_int
from ..reading.about import about_of
from ..reading.interval import refused
from ..reading.replicates import Sample
from ..state.declare import FORMS, Flat
from ..state.state import State
from .pooled_windows import PooledAnswer, PooledDefinition, PooledWrapper, alone, mapped, newest, starts
from .windowed import Windowed, WindowedDefinition, axis_of, width_of

__all__ = ["Decayed", "DecayedDefinition"]

READ = ("value", "bound_low", "bound_high", "bounds", "exact", "reason", "wide")
"""What a row of a table, or an explanation, says about weighted rows; the rest is about rows as they came."""

NO_SAMPLE = "rows weigh what their age says, so they are no sample: Decayed(Sharded(..., unit=), ...) has intervals"


class DecayedAnswer(PooledAnswer):
    """The answer about faded rows; the numbers of rows are those of rows as they came."""

    @property
    def _counted(self) -> Any:
        """The answer about the rows of all epochs that are read, as they came."""
        return self.definition.inner.read([alone(s, starts(s)[0]) for s in self.states])

    @property
    def explanation(self) -> Any:
        return _with_read(self._counted.explanation, self.answer.explanation)

    def intervals(self, confidence: float, method: str | None = None) -> Any:
        if self.definition.unit is not None:
            return self.answer.intervals(confidence, method)
        return mapped(self.value, lambda value: refused(value, confidence, NO_SAMPLE))

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        by_unit = self.definition.unit is not None
        read = (*READ, "interval_low", "interval_high", "interval_reason") if by_unit else READ
        faded = self.answer.records(confidence if by_unit else None)
        rows = [
            row | {n: one[n] for n in read if n in one}
            for row, one in zip(self._counted.records(None), faded, strict=True)
        ]
        no_interval = not by_unit and confidence is not None
        return [row | {"interval_reason": NO_SAMPLE} for row in rows] if no_interval else rows


class DecayedDefinition(PooledDefinition):
    """The definition of rows that fade."""

    kind = "decayed"
    rest = "(expired)"
    noun = "epoch"

    @classmethod
    def checked_inner(cls, inner: Any) -> Any:
        check_fades(super().checked_inner(inner))
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

    def pooled(self, states: Sequence[State]) -> list[State]:
        return [self._faded(s) for s in states]

    def _faded(self, state: State) -> State:
        """Return each epoch of a state 2**k times, k the epochs behind it, all added up."""
        held, begin = starts(state)
        total = state.empty(state.axes[1:])
        if not len(held):
            return total
        age = (int(begin.max()) - begin) // self.axis.size
        for k in range(int(age.max()) + 1):
            again = [total, total] if k else []
            total = total.empty(total.axes).merge(*again, alone(state, held[age == k]))
        return total

    def samples(self, states: Sequence[State]) -> list[Sample]:
        return Definition.samples(self, states)


class Decayed(PooledWrapper):
    """A metric, a collection, or slices, in which rows weigh half as much one half-life later.

    The weight of a row is 2**-age, its age being the whole half-lives between the epoch that it lies in and the newest.
    Epochs begin at multiples of the half-life, the same everywhere: so results of workers merge, and resumed runs go on.

    Parameters
    ----------
    metric : metric, Task, MetricCollection, Sliced, Sharded, or list or dict of metrics
        What to compute: shares, means, curves. Counts and sums are refused, as are extremes and distinct counts.
    half_life : int, str or timedelta
        So many steps, for a column of integers; or a duration such as "1h", for a column of timestamps or dates.
    time : str
        The column that says when a row came. One number may stand for a whole batch: ``update(y, p, step=17)``.
    keep : int
        How many epochs are read, the newest: what is older, and would weigh 2**-keep or less, weighs nothing.
    memory_limit : int
        Raise MemoryLimitError rather than take more bytes than this.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted, that without a time in no epoch.

    Notes
    -----
    States of epochs are integers; at the read-out each is added 2**k times, k the epochs behind it: so any order of rows
    and of merges gives the same bits, and the value is that of rows that come so often, exactly. It costs what `Windowed`
    does, and `compute()` some `keep` merges. Tables and `explain()` say how many rows there were, not what they weigh.
    Scores that a histogram keeps while rows are few become buckets sooner, as each counts so often: `bounds()` tells.
    There are no intervals but by units, ``Decayed(Sharded(...), ...)``. The weight of an epoch times 2**keep stays below
    2**42, or CounterOverflowError: of a longer one use a smaller `keep`.

    EasyRec's DecayAUC fades a state with every batch; torcheval's WindowedBinaryAUROC and torchrec's windows forget at
    once, as `Recent` and ``Windowed(...).last(n)`` do.

    Examples
    --------
    >>> import streammetrics as sm
    >>> live = sm.Decayed([sm.CTR(), sm.AUC()], half_life=100, time="step")
    >>> for step in range(0, 300, 50):  # a training loop
    ...     _ = live.update([0, 1], [0.3, 0.6] if step < 200 else [0.6, 0.3], step=step)
    >>> live.compute()  # of 4 rows each that weigh 1, 1/2 and 1/4
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
        check_epochs(keep := as_int(keep))
        axis = axis_of(time, half_life, keep, "half_life=")
        self._accumulator = accumulate(DecayedDefinition.around(metric, axis, on_invalid, memory_limit))

    @property
    def time(self) -> str:
        """The column that says when a row came."""
        name: str = definition_of(self).axis.names[0]
        return name

    @property
    def half_life(self) -> str | int:
        """After how long a row weighs half as much: a duration, or so many steps."""
        return width_of(definition_of(self).axis)

    @property
    def windows(self) -> Windowed:
        """The epochs as windows, with what they have counted: each alone, some as one, or all."""
        own = definition_of(self)
        definition = WindowedDefinition(own.inner, own.axis, own.on_invalid, own.memory_limit)
        made: Windowed = definition.wrap(accumulate(definition, self._accumulator.states))
        return made

    @property
    def newest(self) -> int | None:
        """The step, or microsecond since 1970, at which the newest epoch begins; None without rows."""
        return newest(self._accumulator.states)

    def __repr__(self) -> str:
        of = f" {self.time}" if definition_of(self).axis.kind == "step" else f" of {self.time}"
        return f"Decayed({', '.join(self.names)}; half-life {self.half_life}{of}): {self._summary('epochs')}"


DecayedDefinition.public = Decayed


def _with_read(came: Any, faded: Any) -> Any:
    """Explanations of rows as they came, with what is read of them as they are weighed."""
    if isinstance(came, dict) and "metric" not in came:
        return {key: _with_read(one, faded[key]) for key, one in came.items()}
    return came | {name: faded[name] for name in READ if name in faded}


def check_epochs(keep: Any) -> None:
    """Raise ValueError unless so many epochs may be kept."""
    if type(keep) is not int or not 1 <= keep <= 40:
        raise ValueError(f"keep= takes a number of epochs from 1 to 40, not {keep!r}")


def check_fades(inner: Any) -> None:
    """Raise TypeError unless the weight of rows is all that their age can change."""
    for metric in metrics_of(inner):
        if about_of(metric).extensive:
            raise TypeError(
                f"{metric.name} grows with the rows, and so has no value where these fade; Mean and shares have, and "
                f"Recent holds any metric"
            )
    for read in inner.reads:
        for part in read.state.parts().values():
            if isinstance(part, Flat) and not (part.optional or FORMS[part.form].subtracts):
                raise TypeError(
                    f"{type(read.state).__name__} keeps extremes, registers, samples or closed groups, of which no row "
                    f"can fade; Recent holds any metric"
                )


def metrics_of(definition: Any) -> Iterator[Metric[Any, Any]]:
    """Yield the metrics of a definition."""
    if isinstance(definition, MetricDefinition):
        yield definition.metric
    elif isinstance(definition, CollectionDefinition):
        for entry in definition.plan.entries.values():
            yield from metrics_of(entry.definition)
    else:
        yield from metrics_of(definition.inner)
