"""Sharded: metrics with shards of units, for intervals and comparisons where rows of one user are correlated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ..batch.column_binding import Unit
from ..batch.ids import Ids
from ..collect.accumulator import accumulate, definition_of
from ..collect.collection import CollectionDefinition
from ..collect.definition import Definition, MetricRead, coarsened, definition_of_header, number_of_states
from ..collect.metric import MetricDefinition
from ..collect.metric_container import MetricContainer
from ..collect.task import Metrics, agreed
from ..count.reads import MEMORY_LIMIT, Read
from ..inference.estimates import each
from ..inference.shard_intervals import intervals_of
from ..numerics.settings import as_int, check_missing, decode_setting, encode_setting
from ..reading.about import about_of, sharded_refusal_of
from ..reading.answers import InnerAnswer
from ..reading.flatten import named_numbers
from ..reading.interval import Interval, refused
from ..reading.reading import CellReadings
from ..reading.records import chance
from ..reading.replicates import Sample, Shards
from ..state.axes import Axis
from ..state.state import State
from ..state.unknown_state import OpaqueState
from ..statistics.value_order import weight_below
from .axis_wrapper import check_dense, inner_of
from .leave_one_shard_out import by_shard, check_cells, deleted, places

__all__ = ["Sharded", "ShardedDefinition"]

FEWEST, MOST = 8, 4096


class ShardedAnswer(InnerAnswer):
    """The answer of the metrics about the whole states, with intervals from the shards.

    Parameters
    ----------
    definition : ShardedDefinition
        The metrics and the units.
    states : sequence of State
        The states at full resolution, then those by shard.
    """

    def __init__(self, definition: Any, states: Sequence[State]) -> None:
        super().__init__(definition, states, definition.inner.read(states[: len(states) // 2]))

    def intervals(self, confidence: float, method: str | None = None) -> Any:
        if method not in (None, "jackknife"):
            return self.answer.intervals(confidence, method)
        found = {n: one[0] for n, one in self.definition.intervals_of_cells(self.states, confidence).items()}
        return next(iter(found.values())) if self.definition.is_single else found

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        rows = self.answer.records(None)
        if confidence is None:
            return rows
        found = self.definition.intervals_of_cells(self.states, confidence)
        unit = {"unit": self.definition.unit}
        return [r | chance(r["value"], found[r["metric"]][0]) | unit for r in rows]


class ShardedDefinition(Definition):
    """The definition of metrics with shards of units.

    Parameters
    ----------
    inner : Definition
        The metrics.
    units : Unit
        The column of the units, and how it is read.
    shards : int
        How many hash classes of units.
    bits : int
        log2 of the buckets of histograms in shards.
    on_invalid, memory_limit
        As for `Sharded`.
    unknown : tuple of State
        The states by shard of metrics that are not known here.
    """

    kind = "sharded"

    def __init__(
        self,
        inner: Any,
        units: Unit,
        shards: int,
        bits: int,
        on_invalid: str = "raise",
        memory_limit: int | None = MEMORY_LIMIT,
        unknown: tuple[State, ...] = (),
    ) -> None:
        self.inner, self.units, self.shards, self.shard_bits = inner, units, shards, bits
        self.on_invalid, self.memory_limit, self._unknown = on_invalid, memory_limit, unknown
        check_inner(inner)

    def having(self, **parts: Any) -> Self:
        """Return the same definition with another `inner` or `shard_bits`."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__getstate__() | parts)
        return made

    # -- the settings -------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return str(self.inner.name)

    @property
    def names(self) -> list[str]:
        found: list[str] = self.inner.names
        return found

    @property
    def unit(self) -> str:  # type: ignore[override]
        return self.units.column

    @property
    def is_single(self) -> bool:  # type: ignore[override]
        return bool(self.inner.is_single)

    @property
    def axis(self) -> Axis:
        """The axis of the states by shard."""
        return Axis((self.unit,), "shard", self.shards)

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """First what the metrics read, then the same by shard."""
        whole = [r._replace(binding=replace(r.binding, unit=self.units)) for r in self.inner.reads]
        coarse = self._unknown or [coarsened(r.state, self.shard_bits) for r in whole]
        parts = [r._replace(state=s.empty((*r.state.axes, self.axis))) for r, s in zip(whole, coarse, strict=True)]
        return (*whole, *parts)

    def positional_columns(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.inner.positional_columns()
        return found

    def header(self) -> dict[str, Any]:
        how = self.units.kind
        missing = {} if how.missing == "raise" else {"missing": how.missing}
        values = {"missing_values": encode_setting(how.missing_values)} if how.missing_values else {}
        about = {"unit": self.unit, "shards": self.shards, "bits": self.shard_bits}
        return {"kind": "sharded", "inner": self.inner.header(), **about, **missing, **values}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Self:
        half = len(states) // 2
        inner = definition_of_header(header["inner"], states[:half])
        shards, bits, missing = header["shards"], header["bits"], header.get("missing", "raise")
        check_settings(header["unit"], shards, bits, missing)
        values = check_missing("Sharded", decode_setting(header.get("missing_values", [])))
        known = all(not isinstance(s, OpaqueState) for s in states[:half])
        # Of states that are not known here, nobody knows what they are at fewer bits.
        unknown = () if known else tuple(s.empty(s.axes[:-1]) for s in states[half:])
        return cls(inner, Unit(header["unit"], Ids(missing, values)), shards, bits, unknown=unknown)

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        return 2 * number_of_states(header["inner"])

    def differences(self, other: Any) -> list[str]:
        pairs = {
            "unit": (self.unit, other.unit),
            "shards": (self.shards, other.shards),
            "shard_bits": (self.shard_bits, other.shard_bits),
            "missing": (self.units.kind.missing, other.units.kind.missing),
            "missing_values": (self.units.kind.missing_values, other.units.kind.missing_values),
        }
        found = [f"{name} is {a!r} here and {b!r} there" for name, (a, b) in pairs.items() if a != b]
        if self.inner.kind != other.inner.kind:
            return [*found, f"it holds a {other.inner.kind}, this one a {self.inner.kind}"]
        return found + list(self.inner.differences(other.inner))

    # -- the answers --------------------------------------------------------------------------------------------------

    def read(self, states: Sequence[State]) -> ShardedAnswer:
        return ShardedAnswer(self, states)

    def check_states(self, states: Sequence[State]) -> None:
        half = len(states) // 2
        for whole, parts in zip(states[:half], states[half:], strict=True):
            check_cells(whole, parts)

    def metric_reads(self) -> dict[str, MetricRead] | None:
        found: dict[str, MetricRead] | None = self.inner.metric_reads()
        return found

    def intervals_of_cells(self, states: Sequence[State], confidence: float) -> dict[str, list[Interval]]:
        found = {s.name: list(each(intervals_of(s, confidence))) for s in self.samples(states)}
        made: dict[str, list[Interval]] = {}
        for name, (metric, place, _) in (self.metric_reads() or {}).items():
            if name in found:
                made[name] = found[name]
                continue
            state = states[place]
            values = CellReadings(metric, state).values if state.axes else [metric.reading(state).value]
            made[name] = [_of_several(name, metric, v, found, i, confidence) for i, v in enumerate(values)]
        return made

    def samples(self, states: Sequence[State]) -> list[Sample]:
        half = len(states) // 2
        whole, parts = states[:half], states[half:]
        found = {s.name: s for s in self.inner.samples(whole)}
        return [replace(found[n], shards=s) for n, s in self._shards(whole, parts, found)]

    def _shards(
        self, whole: Sequence[State], parts: Sequence[State], found: dict[str, Sample]
    ) -> Iterator[tuple[str, Shards]]:
        """Yield each number without each shard."""
        seen: dict[int, tuple[Any, ...]] = {}
        for name, (metric, place, binding) in (self.metric_reads() or {}).items():
            grouped = binding.column("group") == self.unit  # then no group is in two shards
            apart: Any = parts[place].apart() if grouped else parts[place]
            cells = len(whole[place]) if whole[place].axes else 1  # one, whether or not it has rows
            total: Any = whole[place]
            share = about_of(metric).quantile
            below = None if share is None else weight_below(total, apart, places(apart), share)
            known = not sharded_refusal_of(metric) and below is None
            numbers = deleted(name, metric, binding, apart, self.shards) if known else {}
            below = None if below is None else by_shard(apart, below, self.shards, cells)
            if place not in seen:  # of all metrics of a state alike
                both = parts[place].weight_seen, parts[place].positives_seen
                seen[place] = tuple(by_shard(apart, each, self.shards, cells) for each in both)
            weights, events = seen[place]
            none = np.full((self.shards, cells), np.nan)
            for number in [n for n, s in found.items() if s.metric is metric]:
                plan = self.unit, self.shards, parts[place].cells.words[-1].kind.removeprefix("shard of ")
                yield number, Shards(plan, numbers.get(number, none), weights, events, below)

    # -- other definitions --------------------------------------------------------------------------------------------

    def selected(self, names: Mapping[str, str]) -> tuple[Self, list[int]]:
        inner, at = self.inner.selected(names)
        half = len(self.reads) // 2
        return self.having(inner=inner), [*at, *(half + i for i in at)]

    def sealed(self, parts: int | None = None) -> Self:
        return self.having(inner=self.inner.sealed(parts))

    def coarser(self, bits: int) -> Self:
        inner = self.inner.coarser(bits) if self.inner.can_coarsen else self.inner
        fewer = min(bits, self.shard_bits)
        return self.having(inner=inner, shard_bits=fewer, _unknown=tuple(coarsened(s, fewer) for s in self._unknown))

    def coarsened(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        whole = self.inner.coarsened(new.inner, states[: len(states) // 2], bits)
        came = zip(self.sources(new)[len(whole) :], new.reads[len(whole) :], strict=True)
        return [*whole, *(coarsened(states[i], new.shard_bits).narrow(read.state) for i, read in came)]

    def sources(self, new: Any) -> list[int]:
        half, whole = len(self.reads) // 2, self.inner.sources(new.inner)
        return [*whole, *(half + i for i in whole)]


class Sharded(MetricContainer):
    """A metric, or a collection of metrics, whose intervals hold although rows of one unit, such as a user, are alike.

    Beside the states at full resolution, which make the values, it keeps coarse ones for each of K hash classes of units:
    what the values are without each of these says how far they are off by chance (the delete-one-group jackknife).

    Parameters
    ----------
    metric : metric, Task, MetricCollection, or list or dict of metrics
        What to compute. Slices and windows go around: ``Sliced(Sharded(...), by=)``.
    unit : str
        The column of the units: whoever decides, comes back, or was assigned to an arm. Keys are integers, strings, bytes,
        booleans, dates, timestamps or decimals.
    shards : int
        How many hash classes, 8 to 4,096. What is compared must have the same.
    shard_bits : int
        log2 of the buckets of histograms in shards, at most those of the metrics.
    missing : {"raise", "skip"}
        Whether a row without a unit raises, or is left out and counted.
    missing_values : tuple of int or str
        Units that stand for none, such as 0.
    memory_limit : int
        Raise MemoryLimitError rather than take more bytes than this: when it is built, if what every shard has is larger.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Values are those that the metrics have alone, to the bit. Shards cost what their rows touch: of sums 100 bytes each, of
    histograms 5 to 8 bytes a bucket that occurs. An interval of an AUC takes some 20 ms.

    With x_k the value without shard k, on the scale of the metric (logit for areas and proportions, log for ratios):
    se^2 = (K - 1) / K sum (x_k - mean)^2, and limits by Student's t of K_eff - 1 degrees of freedom, K_eff = (sum W)^2 /
    sum W^2 over the weights W of the shards: units that weigh much make them fewer. Under K_eff 6 there is no interval,
    and the reason says so. Quantiles: the error of the share below q, carried back through the histogram (Woodruff 1952).
    At nominal 95 % intervals cover 94.4 to 95.4 % for even users, 93.2 to 96.0 % where rows by user follow a power law
    (the binomial interval 46 to 78 %); but 83 % of a mean of the totals of such users, which single ones of them make up:
    cap it (see PerUnit). Source: delete-a-group jackknife, Kott (2001).

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> user = np.arange(20_000) % 2_000
    >>> click = np.random.default_rng(1).random(20_000) < 0.1
    >>> rate = sm.Sharded(sm.CTR(), unit="user").update(y_true=click, user=user)
    >>> low, high, estimate, *_ = rate.interval()
    >>> low < estimate < high
    True
    """

    def __init__(
        self,
        metric: Metrics,
        *,
        unit: str,
        shards: int = 64,
        shard_bits: int = 10,
        missing: str = "raise",
        missing_values: Sequence[Any] = (),
        memory_limit: int = MEMORY_LIMIT,
        on_invalid: str | None = None,
    ) -> None:
        shards, shard_bits = as_int(shards), as_int(shard_bits)
        check_settings(unit, shards, shard_bits, missing)
        inner = inner_of(metric, on_invalid)
        units = Unit(unit, Ids(missing, check_missing("Sharded", missing_values)))
        how = agreed(on_invalid, [inner])
        definition = ShardedDefinition(inner, units, shards, shard_bits, how, memory_limit)
        check_dense(definition)
        self._accumulator = accumulate(definition)

    @property
    def unit(self) -> str:
        """The column of the units."""
        unit: str = definition_of(self).unit
        return unit

    @property
    def shards(self) -> int:
        """How many hash classes of units there are."""
        shards: int = definition_of(self).shards
        return shards

    @property
    def inner(self) -> Any:
        """An empty copy of the metrics without their shards."""
        inner = definition_of(self).inner
        return inner.wrap(accumulate(inner))

    @property
    def whole(self) -> Any:
        """The metrics without their shards, with what they have counted."""
        inner = definition_of(self).inner.with_on_invalid(definition_of(self).on_invalid)
        states = self._accumulator.states
        return inner.wrap(accumulate(inner, states[: len(states) // 2]))

    def __getitem__(self, name: str) -> Any:
        """Return a metric of a collection, or all below a name, such as those of a model, with its shards."""
        definition = definition_of(self)
        inner = definition.inner
        if not isinstance(inner, CollectionDefinition):
            raise TypeError(f"{inner.name} is one metric: it has no {name!r}")
        if name not in inner.names and any(n.startswith(f"{name}/") for n in inner.names):
            return self.task(name)
        entry = inner.plan.entry(name)
        new = definition.having(inner=entry.definition)
        states = self._accumulator.states
        half = len(states) // 2
        chosen = [states[u] for u in entry.units] + [states[half + u] for u in entry.units]
        return new.wrap(accumulate(new, [s.narrow(r.state) for s, r in zip(chosen, new.reads, strict=True)]))

    def __iter__(self) -> Any:
        if not isinstance(definition_of(self).inner, CollectionDefinition):
            raise TypeError(f"{self.name} is one metric: there is nothing to go through")
        return iter(self.names)

    def __repr__(self) -> str:
        inner = definition_of(self).inner
        return f"Sharded({inner.wrap(accumulate(inner))!r}; {self.shards} shards of {self.unit})"


ShardedDefinition.public = Sharded


def check_settings(unit: Any, shards: Any, shard_bits: Any, missing: Any) -> None:
    """Raise ValueError for what cannot be."""
    if not isinstance(unit, str) or not unit:
        raise ValueError(f'unit= takes the name of a column, such as "user_id", not {unit!r}')
    if type(shards) is not int or not FEWEST <= shards <= MOST:
        raise ValueError(f"shards must be a number from {FEWEST} to {MOST:,}, not {shards!r}")
    if type(shard_bits) is not int or not 4 <= shard_bits <= 24:
        raise ValueError(f"shard_bits must be a number from 4 to 24, not {shard_bits!r}")
    if missing not in ("raise", "skip"):
        raise ValueError(f'missing must be "raise" or "skip", not {missing!r}')


def check_inner(inner: Definition) -> None:
    """Raise TypeError for wrappers that go around shards, not inside."""
    inside = [e.definition for e in inner.plan.entries.values()] if isinstance(inner, CollectionDefinition) else [inner]
    for one in inside:
        if not isinstance(one, MetricDefinition):
            raise TypeError(
                f"Sharded takes metrics and collections of metrics, not a {one.type_name}: put the shards inside, such as "
                f"Sliced(Sharded(...), by=...)"
            )


def _of_several(
    name: str, metric: Any, value: Any, found: dict[str, list[Interval]], cell: int, confidence: float
) -> Interval:
    """The interval of an array: of each class, label or output its own; of a curve there is none."""
    each = [found[n][cell] for n, _ in named_numbers(name, value)]
    if not each:
        why = about_of(metric).no_interval_reason or "a curve has no one standard error; its area has an interval"
        return refused(value, confidence, why)
    low, high, error = (np.array([getattr(e, f) for e in each]) for f in ("low", "high", "standard_error"))
    some = next((e for e in each if e.reason is None), each[0])
    return some._replace(low=low, high=high, estimate=value, standard_error=error)
