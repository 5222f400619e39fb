"""Metrics with shards of units beside them: what intervals and comparisons need where rows of one user belong together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from ..collect.about import about_of, sharded_refusal_of
from ..collect.binding import Unit
from ..collect.collection import MetricCollection
from ..collect.feed import MEMORY_LIMIT, Read
from ..collect.holder import Holder, Reader, blank_of, coarsened, states_of
from ..collect.interval import DEFAULT_CONFIDENCE, Interval, check_confidence, refused
from ..collect.metric import Metric, chance
from ..collect.parted import Parted
from ..collect.reading import CellReadings
from ..collect.sample import Sample, Shards
from ..collect.scalars import Named, named_numbers
from ..collect.table import Table, values_table
from ..collect.task import Metrics, agreed
from ..collect.wide_bounds import WideValue, warn
from ..columns.ids import Ids
from ..inference.alone import intervals_of
from ..inference.measured import each
from ..numerics.settings import as_int, check_missing, decode_setting, encode_setting
from ..state.axes import Axis
from ..state.opaque import OpaqueState
from ..state.state import State
from ..statistics.value_order import weight_below
from .deleted import by_shard, check_cells, deleted, places
from .front import check_dense

__all__ = ["Sharded"]

FEWEST, MOST = 8, 4096


class Sharded(Parted):
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

    sort = "sharded"

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
        inner = metric if isinstance(metric, Holder) else MetricCollection(metric, on_invalid=on_invalid)
        check_inner(inner)
        how = Ids(missing, check_missing("Sharded", missing_values))
        self._take(inner.blank(), Unit(unit, how), shards, shard_bits)
        self.memory_limit = memory_limit
        self.on_invalid = agreed(on_invalid, [inner])
        check_dense(self)

    def _take(self, inner: Any, unit: Unit, shards: int, bits: int, opaque: tuple[State, ...] = ()) -> None:
        self.inner, self.of_unit, self.shards, self.shard_bits, self._opaque = inner, unit, shards, bits, opaque

    @classmethod
    def _of(
        cls,
        inner: Any,
        unit: Unit,
        shards: int,
        bits: int,
        memory_limit: int | None,
        on_invalid: str,
        *,
        opaque: Any = (),
    ) -> Self:
        new = cls.__new__(cls)
        new._take(inner, unit, shards, bits, opaque)
        new.memory_limit, new.on_invalid = memory_limit, on_invalid
        return new

    def _like(self, inner: Any, bits: int | None = None) -> Self:
        """Make one of the same units that has seen nothing."""
        bits = self.shard_bits if bits is None else bits
        known = self.of_unit, self.shards, bits, self.memory_limit, self.on_invalid
        return self._of(inner, *known, opaque=self._opaque)

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name in a collection: that of what it holds."""
        return str(self.inner.name)

    @property
    def names(self) -> list[str]:
        """The names of the metrics."""
        found: list[str] = getattr(self.inner, "names", [self.inner.name])
        return found

    @property
    def unit(self) -> str:  # type: ignore[override]
        """The column of the units."""
        return self.of_unit.column

    @property
    def axis(self) -> Axis:
        """What tells the coarse states apart."""
        return Axis((self.unit,), "shard", self.shards)

    def reads(self) -> tuple[Read, ...]:
        return self._reads

    @cached_property
    def _reads(self) -> tuple[Read, ...]:
        """First what the metrics read, then the same by shard."""
        whole = [r._replace(binding=replace(r.binding, unit=self.of_unit)) for r in self.inner.reads()]
        coarse = self._opaque or [coarsened(r.state, self.shard_bits) for r in whole]
        parts = [r._replace(state=s.empty((*r.state.axes, self.axis))) for r, s in zip(whole, coarse, strict=True)]
        return (*whole, *parts)

    def blank(self) -> Self:
        return self._like(self.inner.blank())

    def recipe(self) -> Callable[[], Holder]:
        known = self.of_unit, self.shards, self.shard_bits, self.memory_limit, self.on_invalid
        return partial(self._of, self.inner.blank(), *known)

    def by_position(self) -> tuple[str, ...]:
        made: tuple[str, ...] = self.inner.by_position()
        return made

    def header(self) -> dict[str, Any]:
        how = self.of_unit.kind
        missing = {} if how.missing == "raise" else {"missing": how.missing}
        values = {"missing_values": encode_setting(how.missing_values)} if how.missing_values else {}
        about = {"unit": self.unit, "shards": self.shards, "bits": self.shard_bits}
        return {"kind": "sharded", "inner": self.inner.header(), **about, **missing, **values}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        half = len(states) // 2
        inner = blank_of(header["inner"], states[:half])
        shards, bits, missing = header["shards"], header["bits"], header.get("missing", "raise")
        check_settings(header["unit"], shards, bits, missing)
        check_inner(inner)
        unit = Unit(
            header["unit"], Ids(missing, check_missing("Sharded", decode_setting(header.get("missing_values", []))))
        )
        known = all(not isinstance(s, OpaqueState) for s in states[:half])
        # of states that nobody knows here nobody knows either what they are at fewer bits
        opaque = () if known else tuple(s.empty(s.axes[:-1]) for s in states[half:])
        return cls._of(inner, unit, shards, bits, MEMORY_LIMIT, "raise", opaque=opaque)

    @classmethod
    def state_count(cls, header: dict[str, Any]) -> int:
        return 2 * states_of(header["inner"])

    def brought_down(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        whole = self.inner.brought_down(new.inner, states[: len(states) // 2], bits)
        came = zip(self.sources(new)[len(whole) :], new.reads()[len(whole) :], strict=True)
        return [*whole, *(coarsened(states[i], new.shard_bits).narrow(read.state) for i, read in came)]

    def sources(self, new: Any) -> list[int]:
        half, whole = len(self.reads()) // 2, self.inner.sources(new.inner)
        return [*whole, *(half + i for i in whole)]

    def check_states(self, states: Sequence[State]) -> None:
        half = len(states) // 2
        for whole, parts in zip(states[:half], states[half:], strict=True):
            check_cells(whole, parts)

    def differences(self, other: Any) -> list[str]:
        pairs = {
            "unit": (self.unit, other.unit),
            "shards": (self.shards, other.shards),
            "shard_bits": (self.shard_bits, other.shard_bits),
            "missing": (self.of_unit.kind.missing, other.of_unit.kind.missing),
            "missing_values": (self.of_unit.kind.missing_values, other.of_unit.kind.missing_values),
        }
        found = [f"{name} is {a!r} here and {b!r} there" for name, (a, b) in pairs.items() if a != b]
        if self.inner.sort != other.inner.sort:
            return [*found, f"it holds a {other.inner.sort}, this one a {self.inner.sort}"]
        return found + list(self.inner.differences(other.inner))

    def coarser(self, bits: int) -> Self:
        new = self._like(self.inner.coarser_within(bits), min(bits, self.shard_bits))
        new._opaque = tuple(coarsened(s, new.shard_bits) for s in self._opaque)
        return new

    def closing(self, parts: int | None = None) -> Self:
        return self._like(self.inner.closing(parts))

    def chosen(self, names: Mapping[str, str]) -> tuple[Self, list[int]]:
        inner, units = self.inner.chosen(names)
        half = len(self.reads()) // 2
        return self._like(inner), [*units, *(half + u for u in units)]

    def __getitem__(self, name: str) -> Any:
        """A metric of a collection, or all below a name, such as those of a model, with its shards."""
        if not isinstance(self.inner, MetricCollection):
            raise TypeError(f"{self.inner.name} is one metric: it has no {name!r}")
        if name not in self.inner and any(n.startswith(f"{name}/") for n in self.inner):
            return self.task(name)
        entry = self.inner._plan.entry(name)
        new = self._like(entry.thing.blank())
        states, half = self.states, len(self.states) // 2
        chosen = [states[u] for u in entry.units] + [states[half + u] for u in entry.units]
        return new.holding([s.narrow(r.state) for s, r in zip(chosen, new.reads(), strict=True)])

    def __iter__(self) -> Any:
        if not isinstance(self.inner, MetricCollection):
            raise TypeError(f"{self.inner.name} is one metric: there is nothing to go through")
        return iter(self.inner)

    # -- results of states --------------------------------------------------------------------------------------------

    def value(self, states: Sequence[State]) -> Any:
        return self.inner.value(states[: len(states) // 2])

    def value_with_wide(self, states: Sequence[State]) -> tuple[Any, list[WideValue]]:
        found: tuple[Any, list[WideValue]] = self.inner.value_with_wide(states[: len(states) // 2])
        return found

    def limits(self, states: Sequence[State]) -> Any:
        return self.inner.limits(states[: len(states) // 2])

    def explained(self, states: Sequence[State]) -> Any:
        return self.inner.explained(states[: len(states) // 2])

    def numbers(self, value: Any) -> Named:
        made: Named = self.inner.numbers(value)
        return made

    @property
    def single(self) -> bool:  # type: ignore[override]
        return bool(self.inner.single)

    def readers(self) -> dict[str, Reader] | None:
        made: dict[str, Reader] | None = self.inner.readers()
        return made

    def chances_of_cells(self, states: Sequence[State], confidence: float) -> dict[str, list[Interval]]:
        found = {s.name: list(each(intervals_of(s, confidence))) for s in self.samples(states)}
        made: dict[str, list[Interval]] = {}
        for name, (metric, unit, _) in (self.readers() or {}).items():
            if name in found:
                made[name] = found[name]
                continue
            state = states[unit]
            values = CellReadings(metric, state).values if state.axes else [metric.reading(state).value]
            made[name] = [_of_several(name, metric, v, found, i, confidence) for i, v in enumerate(values)]
        return made

    def samples(self, states: Sequence[State]) -> list[Sample]:
        half = len(states) // 2
        whole, parts = states[:half], states[half:]
        found = {s.name: s for s in self.inner.samples(whole)}
        return [replace(found[n], shards=s) for n, s in self._shards(whole, parts, found)]

    def _shards(self, whole: Sequence[State], parts: Sequence[State], found: dict[str, Sample]) -> Any:
        """What each number is without each shard."""
        seen: dict[int, tuple[Any, ...]] = {}
        for name, (metric, unit, binding) in (self.readers() or {}).items():
            grouped = binding.column("group") == self.unit  # then no group is in two shards
            apart: Any = parts[unit].apart() if grouped else parts[unit]
            cells = len(whole[unit]) if whole[unit].axes else 1  # one, whether or not it has rows
            total: Any = whole[unit]
            share = about_of(metric).quantile
            below = None if share is None else weight_below(total, apart, places(apart), share)
            known = not sharded_refusal_of(metric) and below is None
            numbers = deleted(name, metric, binding, apart, self.shards) if known else {}
            below = None if below is None else by_shard(apart, below, self.shards, cells)
            if unit not in seen:  # of all metrics of a state alike
                both = parts[unit].weight_seen, parts[unit].positives_seen
                seen[unit] = tuple(by_shard(apart, each, self.shards, cells) for each in both)
            weights, events = seen[unit]
            none = np.full((self.shards, cells), np.nan)
            for number in [n for n, s in found.items() if s.metric is metric]:
                plan = self.unit, self.shards, parts[unit].cells.words[-1].kind.removeprefix("shard of ")
                yield number, Shards(plan, numbers.get(number, none), weights, events, below)

    def chances(self, states: Sequence[State], confidence: float, method: str | None) -> Any:
        check_confidence(confidence)
        if method not in (None, "jackknife"):
            return self.inner.chances(states[: len(states) // 2], confidence, method)
        found = {n: one[0] for n, one in self.chances_of_cells(states, confidence).items()}
        return next(iter(found.values())) if self.single else found

    def records(self, states: Sequence[State], confidence: float | None = 0.95) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.inner.records(states[: len(states) // 2], None)
        if confidence is None:
            return rows
        found = self.chances_of_cells(states, confidence)
        limits = [found[r["metric"]][0] for r in rows]
        return [r | chance(r["value"], one) | {"unit": self.unit} for r, one in zip(rows, limits, strict=True)]

    # -- results ------------------------------------------------------------------------------------------------------

    @property
    def whole(self) -> Any:
        """The metrics without their shards, with what they have seen."""
        return self.inner.holding(self.states[: len(self.states) // 2]).heeding(self.on_invalid)

    def compute(self) -> Any:
        """Return the values, as the metrics alone have them."""
        value, wide = self.value_with_wide(self.states)
        warn(wide, self.warned_wide, stacklevel=2)
        return value

    def bounds(self) -> Any:
        """Return certified limits of the values."""
        return self.limits(self.states)

    def explain(self) -> Any:
        """Return the values with what is behind them."""
        return self.explained(self.states)

    def table(self, *, confidence: float | None = DEFAULT_CONFIDENCE) -> Table:
        """Return values, bounds, intervals and counts as one table.

        Parameters
        ----------
        confidence : float or None
            Confidence level of the intervals. If you pass one, the table prints every interval, or the reason why there is
            none. By default it prints only intervals that come from `Sharded`, because rows of one user are correlated.
            None omits intervals.
        """
        return values_table((), self.records(self.states, check_confidence(confidence)), confidence)

    def __repr__(self) -> str:
        return f"Sharded({self.inner!r}; {self.shards} shards of {self.unit})"


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


def check_inner(inner: Holder) -> None:
    """Raise for what goes around shards, and not inside."""
    things = [e.thing for e in inner._plan.entries.values()] if isinstance(inner, MetricCollection) else [inner]
    for thing in things:
        if not isinstance(thing, Metric):
            raise TypeError(
                f"Sharded takes metrics and collections of metrics, not a {type(thing).__name__}: put the shards inside, "
                f"such as Sliced(Sharded(...), by=...)"
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
