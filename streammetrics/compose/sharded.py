"""Sharded: metrics with rows split into shards by unit, for valid intervals even if rows of one user are correlated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..batch.column_binding import Unit
from ..batch.ids import Ids
from ..collect.accumulator import accumulate, definition_of
from ..collect.collection import CollectionDefinition
from ..collect.definition import Definition, MetricRead, coarsen_state, definition_of_header, number_of_states
from ..collect.metric import MetricDefinition
from ..collect.metric_container import MetricContainer
from ..collect.task import Metrics, resolve_on_invalid
from ..count.reads import MEMORY_LIMIT, Read
from ..inference.estimates import split_intervals
from ..inference.shard_intervals import compute_shard_intervals
from ..numerics.settings import check_missing_values, decode_setting, encode_setting, to_python_int
from ..reading.about import about_of, sharded_refusal_of
from ..reading.answers import InnerAnswer
from ..reading.flatten import named_numbers
from ..reading.interval import Interval, no_interval
from ..reading.reading import CellReadings
from ..reading.records import interval_columns
from ..reading.replicates import Sample, Shards
from ..state.axes import Axis
from ..state.state import State
from ..state.unknown_state import OpaqueState
from ..statistics.value_order import weight_below
from .axis_wrapper import check_dense_size, inner_of
from .leave_one_shard_out import (
    cells_of_shards,
    check_cells,
    count_events,
    fold_shards,
    leave_one_out,
    reduce_groups,
    split_by_cell,
    table_by_shard,
)

__all__ = ["Sharded", "ShardedDefinition"]

FEWEST, MOST = 8, 4096
Floats = NDArray[np.float64]


class ShardedAnswer(InnerAnswer):
    """Values and intervals of sharded metrics; values come from the states without shards, intervals from the shards.

    Parameters
    ----------
    definition : ShardedDefinition
        The metrics and the units.
    states : sequence of State
        The states without shards, followed by the states that have a shard axis and fewer histogram buckets.
    """

    def __init__(self, definition: Any, states: Sequence[State]) -> None:
        super().__init__(definition, states, definition.inner.read(states[: len(states) // 2]))

    def intervals(self, confidence: float, method: str | None = None) -> Any:
        if method not in (None, "jackknife"):
            return self.answer.intervals(confidence, method)
        intervals = {n: one[0] for n, one in self.definition.intervals_of_cells(self.states, confidence).items()}
        return next(iter(intervals.values())) if self.definition.is_single else intervals

    def records(self, confidence: float | None = 0.95) -> list[dict[str, Any]]:
        rows = self.answer.records(None)
        if confidence is None:
            return rows
        intervals = self.definition.intervals_of_cells(self.states, confidence)
        unit = {"unit": self.definition.unit}
        return [r | interval_columns(r["value"], intervals[r["metric"]][0]) | unit for r in rows]


class ShardedDefinition(Definition):
    """The definition of metrics whose rows are split into shards by unit; see `Sharded`.

    Parameters
    ----------
    inner : Definition
        The metrics.
    units : Unit
        The column of the units, and what to do with a row whose unit is missing.
    shards : int
        The number of shards. The hash of a unit determines its shard.
    bits : int
        The base-2 logarithm of the number of histogram buckets in shards.
    on_invalid, memory_limit
        The same as for `Sharded`.
    unknown : tuple of State
        The empty states of the shards, needed only if the states come from a file with metrics whose class has not been
        imported.
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
        """Return a copy with a different `inner` or `shard_bits`."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__getstate__() | parts)
        return copy

    # -- the settings -------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return str(self.inner.name)

    @property
    def names(self) -> list[str]:
        names: list[str] = self.inner.names
        return names

    @property
    def unit(self) -> str:  # type: ignore[override]
        return self.units.column

    @property
    def is_single(self) -> bool:  # type: ignore[override]
        return bool(self.inner.is_single)

    @property
    def axis(self) -> Axis:
        """The axis whose cells are the shards."""
        return Axis((self.unit,), "shard", self.shards)

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The empty states of all metrics, with the columns that they read.

        The states without shards are followed by the states that have a shard axis and fewer histogram buckets.
        """
        whole = [r._replace(binding=replace(r.binding, unit=self.units)) for r in self.inner.reads]
        coarse = self._unknown or [coarsen_state(r.state, self.shard_bits) for r in whole]
        parts = [r._replace(state=s.empty_copy((*r.state.axes, self.axis))) for r, s in zip(whole, coarse, strict=True)]
        return (*whole, *parts)

    def positional_columns(self) -> tuple[str, ...]:
        columns: tuple[str, ...] = self.inner.positional_columns()
        return columns

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
        values = check_missing_values("Sharded", decode_setting(header.get("missing_values", [])))
        known = all(not isinstance(s, OpaqueState) for s in states[:half])
        # Usually `reads` derives the empty states of the shards from the states without shards. This is impossible if
        # the class of a state has not been imported, so keep empty copies of the saved states instead.
        unknown = () if known else tuple(s.empty_copy(s.axes[:-1]) for s in states[half:])
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
        differences = [f"{name} is {a!r} here and {b!r} there" for name, (a, b) in pairs.items() if a != b]
        if self.inner.kind != other.inner.kind:
            return [*differences, f"the inner object is {self.inner.type_name} here and {other.inner.type_name} there"]
        return differences + list(self.inner.differences(other.inner))

    # -- the answers --------------------------------------------------------------------------------------------------

    def read(self, states: Sequence[State]) -> ShardedAnswer:
        return ShardedAnswer(self, states)

    def check_states(self, states: Sequence[State]) -> None:
        half = len(states) // 2
        for whole, parts in zip(states[:half], states[half:], strict=True):
            check_cells(whole, parts)

    def metric_reads(self) -> dict[str, MetricRead] | None:
        reads: dict[str, MetricRead] | None = self.inner.metric_reads()
        return reads

    def intervals_of_cells(self, states: Sequence[State], confidence: float) -> dict[str, list[Interval]]:
        of_numbers = {
            s.name: list(split_intervals(compute_shard_intervals(s, confidence))) for s in self.samples(states)
        }
        intervals: dict[str, list[Interval]] = {}
        for name, (metric, place, _) in (self.metric_reads() or {}).items():
            if name in of_numbers:
                intervals[name] = of_numbers[name]
                continue
            state = states[place]
            values = CellReadings(metric, state).values if state.axes else [metric.reading(state).value]
            intervals[name] = [
                _array_interval(name, metric, v, of_numbers, i, confidence) for i, v in enumerate(values)
            ]
        return intervals

    def samples(self, states: Sequence[State]) -> list[Sample]:
        # Values come from the states without shards. Replicates (the values without each shard) come from the shards.
        half = len(states) // 2
        whole, parts = states[:half], states[half:]
        samples = {s.name: s for s in self.inner.samples(whole)}
        return [replace(samples[n], shards=s) for n, s in self._shards(whole, parts, samples)]

    def _shards(
        self, whole: Sequence[State], parts: Sequence[State], samples: dict[str, Sample]
    ) -> Iterator[tuple[str, Shards]]:
        """Yield the name of each number that a metric returns, and a `Shards` object with its leave-one-out values."""
        totals_by_place: dict[int, tuple[Any, ...]] = {}
        for name, (metric, place, binding) in (self.metric_reads() or {}).items():
            shards = reduce_groups(metric, parts[place], is_group=binding.column("group") == self.unit)
            # A state without slices or windows has exactly one cell, even if it has no rows.
            cells = len(whole[place]) if whole[place].axes else 1
            total: Any = whole[place]
            share = about_of(metric).quantile
            below = None if share is None else weight_below(total, shards, cells_of_shards(shards), share)
            known = not sharded_refusal_of(metric) and below is None
            numbers = cache(partial(_leave_out_each, name, metric, binding, shards)) if known else _no_numbers
            edges = None
            if below is not None:
                before, below, through = (table_by_shard(shards, each, self.shards, cells) for each in below)
                edges = np.stack([before, through])
            # All metrics that share a state have the same weights and events, so compute these once.
            if place not in totals_by_place:
                weights = table_by_shard(shards, parts[place].row_weights, self.shards, cells)
                events = count_events(parts[place], shards, self.shards, cells)
                totals_by_place[place] = weights, *events, split_by_cell(parts[place], cells)
            weights, events, events_names, states_by_cell = totals_by_place[place]
            # Select the numbers of this metric. Comparing metric objects is not enough, because several tasks may
            # contain the same object, so compare names, too.
            own = [n for n, s in samples.items() if s.metric is metric and (n == name or n.startswith(f"{name}/"))]
            for number in own:
                plan = self.unit, self.shards, parts[place].cells.vocabularies[-1].kind.removeprefix("shard of ")
                replicate = partial(_select_number, numbers, number, cells)
                yield number, Shards(plan, replicate, weights, events, below, edges, events_names, states_by_cell)

    # -- other definitions --------------------------------------------------------------------------------------------

    def select_metrics(self, names: Mapping[str, str]) -> tuple[Self, list[int]]:
        inner, at = self.inner.select_metrics(names)
        half = len(self.reads) // 2
        return self.having(inner=inner), [*at, *(half + i for i in at)]

    def find_entry(self, name: str) -> tuple[Self, list[int]] | None:
        if (found := self.inner.find_entry(name)) is None:
            return None
        half, (inner, at) = len(self.reads) // 2, found
        return self.having(inner=inner), [*at, *(half + i for i in at)]

    def seal(self, parts: int | None = None) -> Self:
        return self.having(inner=self.inner.seal(parts))

    def coarsen(self, bits: int) -> Self:
        inner = self.inner.coarsen(bits) if self.inner.can_coarsen else self.inner
        fewer = min(bits, self.shard_bits)
        return self.having(
            inner=inner, shard_bits=fewer, _unknown=tuple(coarsen_state(s, fewer) for s in self._unknown)
        )

    def coarsen_states(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        whole = self.inner.coarsen_states(new.inner, states[: len(states) // 2], bits)
        from_places = zip(self.sources(new)[len(whole) :], new.reads[len(whole) :], strict=True)
        return [*whole, *(coarsen_state(states[i], new.shard_bits).narrow(read.state) for i, read in from_places)]

    def sources(self, new: Any) -> list[int]:
        half, whole = len(self.reads) // 2, self.inner.sources(new.inner)
        return [*whole, *(half + i for i in whole)]


class Sharded(MetricContainer):
    """A metric, or a collection, with valid intervals even if rows of one unit, such as a user, are correlated.

    The hash of each unit assigns it to one of K shards. Values are computed from the states of all rows. The standard
    error comes from the delete-one-group jackknife, for which each shard has its own states, with fewer histogram
    buckets.

    Parameters
    ----------
    metric : metric, Task, MetricCollection, or list or dict of metrics
        The metrics to compute. To add slices or windows, wrap the `Sharded`: ``Sliced(Sharded(...), by=)``.
    unit : str
        The column of the units, such as the user ID. In an experiment, a unit is what is assigned to an arm; in
        general, units must be independent of one another. IDs are integers, strings, bytes, booleans, dates, timestamps
        or decimals.
    shards : int
        The number of shards, 8 to 4,096. Objects that are compared must have the same number.
    shard_bits : int
        The base-2 logarithm of the number of histogram buckets in shards. If a metric has fewer buckets, its shards
        have as many as the metric.
    missing : {"raise", "skip"}
        Whether a row without a unit raises an error, or is left out and reported.
    missing_values : tuple of int or str
        IDs that stand for a missing unit, such as 0.
    memory_limit : int
        The maximum total size of all shards in bytes; exceeding it raises MemoryLimitError. The constructor raises the
        error if arrays whose size does not depend on the rows, such as confusion matrices, would exceed the limit in
        all shards together.
    on_invalid : {"raise", "drop"}
        Whether an invalid row raises an error, or is left out and reported.

    Notes
    -----
    Values are bit-for-bit equal to those of the metrics without shards. The memory used by shards depends on the rows
    in them: about 100 bytes for sums, and 5 to 8 bytes for each occupied histogram bucket. An interval of an AUC takes
    about 20 ms.

    Let x_k be the value without shard k, on the scale of the metric (logit for areas and proportions, log for ratios).
    The squared standard error is (K - 1) / K * sum (x_k - mean)^2, where mean is the mean of all x_k. The limits use
    Student's t with K_eff - 1 degrees of freedom, where K_eff = (sum W)^2 / sum W^2 is the effective number of shards,
    and W are the weights of the shards. Units with large weights reduce K_eff. If K_eff is below 6, there is no
    interval, and the result states the reason. For quantiles, the jackknife gives the standard error of the fraction
    of rows below the quantile, and the histogram converts it to the scale of the values (Woodruff 1952). The method is
    the delete-a-group jackknife of Kott (2001).

    The coverage of 95 % intervals is 94.4 to 95.4 % if all users have the same number of rows, and 93.2 to 96.0 % if
    rows per user follow a power law (46 to 78 % for binomial intervals). It is only 83 % for a mean of totals per user
    that follow a power law, because single users dominate the mean. In this case, cap the totals (see PerUnit).

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
        shards, shard_bits = to_python_int(shards), to_python_int(shard_bits)
        check_settings(unit, shards, shard_bits, missing)
        inner = inner_of(metric, on_invalid)
        units = Unit(unit, Ids(missing, check_missing_values("Sharded", missing_values)))
        how = resolve_on_invalid(on_invalid, [inner])
        definition = ShardedDefinition(inner, units, shards, shard_bits, how, memory_limit)
        check_dense_size(definition)
        self._accumulator = accumulate(definition)

    @property
    def unit(self) -> str:
        """The name of the column that contains the units, such as "user"."""
        unit: str = definition_of(self).unit
        return unit

    @property
    def shards(self) -> int:
        """The number of shards."""
        shards: int = definition_of(self).shards
        return shards

    @property
    def inner(self) -> Any:
        """The same metrics without shards and without rows."""
        inner = definition_of(self).inner
        return inner.wrap(accumulate(inner))

    @property
    def whole(self) -> Any:
        """The same metrics without shards, for all rows."""
        inner = definition_of(self).inner.with_on_invalid(definition_of(self).on_invalid)
        states = self._accumulator.states
        return inner.wrap(accumulate(inner, states[: len(states) // 2]))

    def __getitem__(self, name: str) -> Any:
        """Return one metric of the collection, or all metrics whose names begin with a prefix, as a `Sharded` object."""
        inner = definition_of(self).inner
        if not isinstance(inner, CollectionDefinition):
            raise TypeError(f"there is no {name!r}: this Sharded object contains the single metric {inner.name}")
        found = self._find_metrics(name)
        if found is None:
            raise KeyError(f"there is no metric {name!r}; the metrics are {', '.join(self.names)}")
        return found

    def __iter__(self) -> Any:
        if not isinstance(definition_of(self).inner, CollectionDefinition):
            raise TypeError(f"this Sharded object contains the single metric {self.name}, so iteration is not possible")
        return iter(self.names)

    def __repr__(self) -> str:
        inner = definition_of(self).inner
        return f"Sharded({inner.wrap(accumulate(inner))!r}; {self.shards} shards of {self.unit})"


ShardedDefinition.public = Sharded


def check_settings(unit: Any, shards: Any, shard_bits: Any, missing: Any) -> None:
    """Raise ValueError if an argument of `Sharded` is invalid."""
    if not isinstance(unit, str) or not unit:
        raise ValueError(f'unit= must be the name of a column, such as "user_id", not {unit!r}')
    if type(shards) is not int or not FEWEST <= shards <= MOST:
        raise ValueError(f"shards must be a whole number from {FEWEST} to {MOST:,}, not {shards!r}")
    if type(shard_bits) is not int or not 4 <= shard_bits <= 24:
        raise ValueError(f"shard_bits must be a whole number from 4 to 24, not {shard_bits!r}")
    if missing not in ("raise", "skip"):
        raise ValueError(f'missing must be "raise" or "skip", not {missing!r}')


def check_inner(inner: Definition) -> None:
    """Raise TypeError if `inner` is a wrapper such as `Sliced`, which must contain the `Sharded` instead."""
    inside = [e.definition for e in inner.plan.entries.values()] if isinstance(inner, CollectionDefinition) else [inner]
    for one in inside:
        if not isinstance(one, MetricDefinition):
            raise TypeError(
                f"Sharded: expected a metric or a collection of metrics, found an object of class {one.type_name}; put "
                f"Sharded inside, as in Sliced(Sharded(...), by=...)"
            )


def _leave_out_each(name: str, metric: Any, binding: Any, shards: State, count: int) -> dict[str, Floats]:
    """Merge the shards into `count` shards, and return the leave-one-out values of a metric, keyed by name."""
    return leave_one_out(name, metric, binding, fold_shards(shards, count), count)


def _no_numbers(count: int) -> dict[str, Floats]:
    return {}


def _select_number(numbers: Callable[[int], dict[str, Floats]], name: str, cells: int, count: int) -> Floats:
    """Return the leave-one-out values called `name`, of shape (count, cells); NaN if `numbers` does not return them.

    `numbers` is a function that returns all leave-one-out values of a metric for a given number of shards.
    """
    found = numbers(count)
    return found[name] if name in found else np.full((count, cells), np.nan)


def _array_interval(
    name: str, metric: Any, value: Any, intervals: dict[str, list[Interval]], cell: int, confidence: float
) -> Interval:
    """Combine the intervals of the elements of `value`, an array, into one interval.

    The limits of the result are arrays. A curve has no interval, so its result has a reason instead of limits.
    `intervals` maps the name of each element to its intervals, one for each cell; `cell` is the index of the cell.
    """
    of_elements = [intervals[n][cell] for n, _ in named_numbers(name, value)]
    if not of_elements:
        why = (
            about_of(metric).no_interval_reason
            or "a curve has no single standard error; the area under the curve has an interval"
        )
        return no_interval(value, confidence, why)
    low, high, error = (np.array([getattr(e, f) for e in of_elements]) for f in ("low", "high", "standard_error"))
    some = next((e for e in of_elements if e.reason is None), of_elements[0])
    return some._replace(low=low, high=high, estimate=value, standard_error=error)
