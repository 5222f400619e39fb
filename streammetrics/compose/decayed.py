"""Anything that holds states, of rows that fade with age: for the curve of a training run, or of a live model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..collect.about import about_of
from ..collect.collection import MetricCollection
from ..collect.feed import MEMORY_LIMIT
from ..collect.holder import Holder
from ..collect.interval import check_confidence, refused
from ..collect.metric import Metric
from ..collect.task import Metrics
from ..numerics.settings import as_int
from ..state.declare import FORMS, Flat
from ..state.state import State
from .front import check_dense
from .pooled import Pooled, mapped, newest, starts
from .windowed import Windowed, axis_of, width_of

__all__ = ["Decayed"]

READ = ("value", "bound_low", "bound_high", "bounds", "exact", "reason", "wide")
"""What a row of a table, or an explanation, has of rows as they are weighed; the rest is of rows as they came."""


NO_SAMPLE = "rows weigh what their age says, so they are no sample: Decayed(Sharded(..., unit=), ...) has intervals"


class Decayed(Pooled):
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

    sort = "decayed"
    noun = "epoch"
    rest = "(expired)"

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
        inner, how = self._holding(metric, on_invalid)
        self._take(inner, axis_of(time, half_life, keep, "half_life="), memory_limit=memory_limit, on_invalid=how)
        check_dense(self)

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name in a collection."""
        of = f" {self.time}" if self.axis.kind == "step" else ""
        return f"{self.inner.name} decayed by {self.half_life}{of}"

    @property
    def time(self) -> str:
        """The column that says when a row came."""
        return self.axis.names[0]

    @property
    def half_life(self) -> str | int:
        """After how long a row weighs half as much: a duration, or so many steps."""
        return width_of(self.axis)

    @classmethod
    def _checked(cls, inner: Any) -> Any:
        check_fades(super()._checked(inner))
        return inner

    def header(self) -> dict[str, Any]:
        how = {"time": self.time, "half_life": self.half_life, "keep": self.axis.keep}
        return {"kind": "decayed", "inner": self.inner.header(), **how}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        check_epochs(header["keep"])
        axis = axis_of(header["time"], header["half_life"], header["keep"], "half_life=")
        return cls._of(cls._inner_of(header, states), axis)

    @property
    def windows(self) -> Windowed:
        """The epochs as windows, with what they have seen: each by itself, some as one, or all."""
        new = Windowed._of(self.inner.blank(), self.axis, self._given())
        return new.holding(self.states)

    @property
    def newest(self) -> int | None:
        """At which step, or microsecond since 1970, the newest epoch begins; None without rows."""
        return newest(self.states)

    # -- results of states --------------------------------------------------------------------------------------------

    def pooled(self, states: Sequence[State]) -> list[State]:
        return [self._faded(s) for s in states]

    def _faded(self, state: State) -> State:
        """Each epoch of a state 2**k times, k the epochs behind it, all added up."""
        held, begin = starts(state)
        total = state.empty(state.axes[1:])
        if not len(held):
            return total
        age = (int(begin.max()) - begin) // self.axis.size
        for k in range(int(age.max()) + 1):
            again = [total, total] if k else []
            total = total.empty(total.axes).merge(*again, self._alone(state, held[age == k]))
        return total

    def _came(self, states: Sequence[State]) -> list[State]:
        """The rows of all epochs that are read, as they came."""
        return [self._alone(s, starts(s)[0]) for s in states]

    def explained(self, states: Sequence[State]) -> Any:
        return _with_read(self.inner.explained(self._came(states)), super().explained(states))

    def records(self, states: Sequence[State], confidence: float | None = 0.95) -> list[dict[str, Any]]:
        read = READ if self.unit is None else (*READ, "interval_low", "interval_high", "interval_reason")
        some = confidence if self.unit is not None else None
        came = self.inner.records(self._came(states), None)
        pairs = zip(came, super().records(states, some), strict=True)
        rows = [row | {n: faded[n] for n in read if n in faded} for row, faded in pairs]
        refused = self.unit is None and confidence is not None
        return [row | {"interval_reason": NO_SAMPLE} for row in rows] if refused else rows

    def chances(self, states: Sequence[State], confidence: float, method: str | None) -> Any:
        if self.unit is not None:
            return super().chances(states, confidence, method)
        check_confidence(confidence)
        return mapped(self.value(states), lambda value: refused(value, confidence, NO_SAMPLE))

    def samples(self, states: Sequence[State]) -> Any:
        return Holder.samples(self, states)

    def __repr__(self) -> str:
        of = f" {self.time}" if self.axis.kind == "step" else f" of {self.time}"
        names = ", ".join(self.names)
        return f"Decayed({names}; half-life {self.half_life}{of}): {len(self)} epochs, {self.nbytes / 2**20:.1f} MiB"


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
    for read in inner.reads():
        for part in read.state.parts().values():
            if isinstance(part, Flat) and not (part.optional or FORMS[part.form].subtracts):
                raise TypeError(
                    f"{type(read.state).__name__} keeps extremes, registers, samples or closed groups, of which no row "
                    f"can fade; Recent holds any metric"
                )


def metrics_of(thing: Any) -> Iterator[Metric[Any, Any]]:
    """The metrics in something that holds them."""
    if isinstance(thing, Metric):
        yield thing
    elif isinstance(thing, MetricCollection):
        for content in thing.contents():
            yield from metrics_of(content.thing)
    else:
        yield from metrics_of(thing.inner)
