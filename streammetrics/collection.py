"""Many metrics over one pass: tasks bind them to columns, and metrics that ask for the same state share it."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from .codec import decoders
from .columns import Batch, as_columns
from .errors import IncompatibleStateError, UndefinedMetricWarning
from .intake import Binding, Unit
from .metric import Metric, encode_settings, explain
from .settings import canonical_json
from .state import State
from .table import Table

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["MetricCollection", "Task"]

Metrics = Union["Metric[Any, Any]", "Task", Iterable[Any], Mapping[str, Any]]


class Task:
    """Metrics bound to columns, rows chosen by `where`, down-sampling undone.

    Parameters
    ----------
    metrics : metric, list or dict of metrics
        What to compute; a dict names them.
    y_true, y_score, y_pred, sample_weight, group, query : str, optional
        The columns that play these roles; by default those of the same name.
    where : str, optional
        A 0/1 column: rows with 0 are left out, and counted. Conversions after clicks: ``where="click"``.
    labels : (negative, positive), optional
        What the two labels are called, such as (-1, 1) or ("no", "yes").
    pos_label : optional
        What a positive is called; everything else is a negative.
    negative_rate : float, optional
        The share of negatives kept in a down-sampled log, in (0, 1].
    corrects : {"score", "rows", "both"}, optional
        What to bring back to the full log. `score`: p' = p / (p + (1 - p) / r), for a model trained on down-sampled rows.
        `rows`: negatives weigh 1 / r, for a log that was down-sampled.
    scale : {"probability", "logit"}
        What the scores are, for the correction; metrics have their own `scale`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> task = sm.Task([sm.AUC(), sm.NormalizedEntropy()], y_true="convert", y_score="pcvr", where="click")
    >>> sm.MetricCollection({"cvr": task}).names
    ['cvr/auc', 'cvr/normalized_entropy']
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        y_true: str | None = None,
        y_score: str | None = None,
        y_pred: str | None = None,
        sample_weight: str | None = None,
        group: str | None = None,
        query: str | None = None,
        where: str | None = None,
        labels: tuple[Any, Any] | None = None,
        pos_label: Any = None,
        negative_rate: float | None = None,
        corrects: str | None = None,
        scale: str = "probability",
    ) -> None:
        roles = {"y_true": y_true, "y_score": y_score, "y_pred": y_pred}
        roles |= {"sample_weight": sample_weight, "group": group, "query": query}
        if (negative_rate is None) != (corrects is None):
            raise ValueError('a task takes negative_rate= and corrects="score", "rows" or "both" together')
        if corrects not in (None, "score", "rows", "both"):
            raise ValueError(f'corrects must be "score", "rows" or "both", not {corrects!r}')
        if negative_rate is not None and not 0 < negative_rate <= 1:
            raise ValueError(f"negative_rate is the share of negatives kept, in (0, 1], not {negative_rate!r}")
        if labels is not None and (len(labels) != 2 or labels[0] == labels[1]):
            raise ValueError(f"labels must be (negative, positive), two different values, not {labels!r}")
        self.metrics = metrics
        self.binding = Binding(
            columns=tuple(sorted((r, c) for r, c in roles.items() if c is not None)),
            where=where,
            labels=tuple(labels) if labels is not None else None,
            pos_label=pos_label,
            negative_rate=negative_rate,
            corrects=corrects,
            scale=scale,
        )

    def __repr__(self) -> str:
        given = [f"{k}={v!r}" for k, v in self.binding.header().items() if k != "columns"]
        given = [f"{r}={c!r}" for r, c in self.binding.columns] + given
        return f"Task({', '.join([repr(self.metrics), *given])})"


class Entry(NamedTuple):
    """A metric of a collection, by name, and the number of the unit that it reads."""

    metric: Metric[Any, Any]
    unit: int


def flatten(metrics: Any, binding: Binding, prefix: str = "") -> Iterator[tuple[str, Metric[Any, Any], Binding]]:
    """Yield every metric of a nest of lists, dicts and tasks, with its full name and binding."""
    if isinstance(metrics, Metric):
        yield prefix + metrics.name, metrics, binding
    elif isinstance(metrics, Task):
        yield from flatten(metrics.metrics, metrics.binding, prefix)
    elif isinstance(metrics, Mapping):
        for key, value in metrics.items():
            if isinstance(value, Metric):
                yield f"{prefix}{key}", value, binding
            else:
                yield from flatten(value, binding, f"{prefix}{key}/")
    elif isinstance(metrics, (list, tuple)):
        for value in metrics:
            yield from flatten(value, binding, prefix)
    else:
        hint = "; write AUC(), not AUC" if isinstance(metrics, type) else ""
        raise TypeError(f"expected metrics, lists, dicts or tasks, got {metrics!r}{hint}")


class Plan:
    """Which metric reads which state, decided from settings and columns alone, before any data."""

    def __init__(self, named: Iterable[tuple[str, Metric[Any, Any], Binding]]) -> None:
        self.entries: dict[str, Entry] = {}
        self.units: list[Unit] = []
        for name, metric, binding in named:
            if name in self.entries:
                raise ValueError(f"two metrics are called {name!r}; name them with a dict")
            self.entries[name] = Entry(metric, self._unit(metric, binding))
        if not self.entries:
            raise ValueError("a collection needs at least one metric")

    def _unit(self, metric: Metric[Any, Any], binding: Binding) -> int:
        wanted = Unit(metric.make_state(), binding)
        given = getattr(metric, "scale", None)
        if binding.corrects in ("score", "both") and given not in (None, binding.scale):
            raise ValueError(f"{metric.name} has scale={given!r}, its task scale={binding.scale!r}")
        for i, unit in enumerate(self.units):
            if unit.binding == binding and unit.needs == wanted.needs and (wide := unit.state.widen(wanted.state)):
                self.units[i] = Unit(wide, binding)
                return i
        self.units.append(wanted)
        return len(self.units) - 1

    @property
    def columns(self) -> dict[str, bool]:
        """The columns read, and whether each must be there."""
        found: dict[str, bool] = {}
        for unit in self.units:
            for need in unit.needs:
                name = unit.binding.column(need.role)
                must = not need.optional or need.role in dict(unit.binding.columns)
                found[name] = found.get(name, False) or must
            if unit.binding.where is not None:
                found[unit.binding.where] = True
        return found

    def mapping(
        self, owner: str, given: tuple[Any, Any], columns: Mapping[str, Any], also: Iterable[str] = ()
    ) -> Mapping[str, Any]:
        """Return positional and named columns, or a table, as one mapping."""
        first, second = given
        if first is not None and second is None and (table := as_columns(first)) is not None:
            if columns:
                raise TypeError(f"{owner}.update() takes a table or columns, not both")
            return table
        known = [*self.columns, *also]
        out = dict(columns)
        for name in out:
            if name not in known:
                raise TypeError(f"{owner}.update() does not know {name!r}; it reads {', '.join(known)}")
        scores = [c for c in ("y_score", "y_pred") if c in known]
        for names, value in ((("y_true",), first), (scores[:1], second)):
            if value is None:
                continue
            if not names or names[0] not in known:
                raise TypeError(f"{owner} reads {', '.join(known)}: give columns by name, or a table")
            if names[0] in out:
                raise TypeError(f"{owner}.update() was given {names[0]} twice")
            out[names[0]] = value
        return out

    def header(self) -> dict[str, Any]:
        """Describe metrics and units as plain data."""
        return {
            "metrics": [
                {"name": n, "tag": e.metric.tag, "settings": encode_settings(e.metric), "unit": e.unit}
                for n, e in self.entries.items()
            ],
            "units": [{"binding": u.binding.header(), "state": u.state.header()} for u in self.units],
        }

    @classmethod
    def of(cls, header: dict[str, Any], read: Any) -> Plan:
        """Read what `header` wrote."""
        from .opaque import make_metric

        plan = cls.__new__(cls)
        heads = header["units"]
        plan.units = [Unit(read(u["state"]), Binding.of(u["binding"])) for u in heads]
        plan.entries = {
            m["name"]: Entry(make_metric(m["tag"], m["settings"], heads[m["unit"]]["state"]), m["unit"])
            for m in header["metrics"]
        }
        if len(plan.entries) != len(header["metrics"]) or any(type(e.unit) is not int for e in plan.entries.values()):
            raise ValueError("two metrics have one name")
        for name, (metric, unit) in plan.entries.items():
            state, wanted = plan.units[unit].state, metric.make_state()
            wide = state.widen(wanted) if state.tag == wanted.tag else None
            if wide is None or wide.settings != state.settings:
                raise ValueError(f"{name} does not read the state it is given")
        return plan

    def differences(self, other: Plan) -> list[str]:
        """Say in words how another plan differs."""
        mine, theirs = self._identity(), other._identity()
        found = [f"it has no {n!r}" for n in mine if n not in theirs]
        found += [f"it has {n!r}, this one has not" for n in theirs if n not in mine]
        return found + [
            f"{n!r} is {mine[n]} here and {theirs[n]} there" for n in mine if theirs.get(n, mine[n]) != mine[n]
        ]

    def _identity(self) -> dict[str, str]:
        return {
            name: canonical_json([e.metric.tag, encode_settings(e.metric), self.units[e.unit].binding.header()])
            for name, e in self.entries.items()
        }

    def state(self, name: str) -> State:
        """The state that a metric reads, narrowed to what it asks for, as a copy."""
        entry = self._entry(name)
        return self.units[entry.unit].state.narrow(entry.metric.make_state())

    def _entry(self, name: str) -> Entry:
        if name not in self.entries:
            raise KeyError(f"there is no metric {name!r}; there are {', '.join(self.entries)}")
        return self.entries[name]

    def restrict(self, names: Iterable[str]) -> Plan:
        """Return a plan of some of the metrics, holding what has been seen."""
        chosen = [n for n in self.entries if n in set(names)]
        plan = Plan((n, self.entries[n].metric, self.units[self.entries[n].unit].binding) for n in chosen)
        for name in chosen:
            new, old = plan.units[plan.entries[name].unit], self.units[self.entries[name].unit]
            new.state = old.state.narrow(new.state)
        return plan


class MetricCollection:
    """Many metrics over one pass.

    Metrics that ask for the same state from the same columns share it: decided here, from settings, never from data.
    For every metric m of a collection C, ``C[m]`` equals m used alone, bytes included.

    Parameters
    ----------
    *metrics : metric, Task, list or dict of these
        What to compute. Dicts name and nest: ``{"ctr": Task(...)}`` gives "ctr/auc".
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Examples
    --------
    >>> import streammetrics as sm
    >>> metrics = sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.Calibration())
    >>> metrics.update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.75]).compute()["auc"]
    0.75
    >>> metrics
    MetricCollection: 3 metrics over 2 states
      scores[y_true, y_score]: auc
      score_sums[y_true, y_score]: log_loss, calibration
    """

    def __init__(self, *metrics: Metrics, on_invalid: str = "raise") -> None:
        if on_invalid not in ("raise", "drop"):
            raise ValueError(f'on_invalid must be "raise" or "drop", not {on_invalid!r}')
        self._hold(Plan(flatten(list(metrics), Binding())), on_invalid)

    def _hold(self, plan: Plan, on_invalid: str = "raise") -> Self:
        self._plan, self.on_invalid = plan, on_invalid
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        return self

    @property
    def names(self) -> list[str]:
        """The names of the metrics."""
        return list(self._plan.entries)

    @property
    def columns(self) -> dict[str, bool]:
        """The columns that `update` reads, and whether each must be there."""
        return self._plan.columns

    def update(self, y_true: Any, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch in every metric.

        Parameters
        ----------
        y_true : array-like of shape (n,), or table
            Labels; or a mapping, data frame, Arrow table or record batch that holds all columns by name (extra ones are
            ignored).
        y_score : array-like of shape (n,)
            Scores.
        **columns : array-like of shape (n,)
            Columns by name; unknown names raise.

        Raises
        ------
        InvalidInputError
            A column is missing, of another length, or holds a bad value. Nothing was counted in any metric.
        """
        return self.absorb(Batch(self._plan.mapping("MetricCollection", (y_true, y_score), columns)))

    def absorb(self, batch: Batch) -> Self:
        """Count a batch whose columns other collections may share."""
        units = self._plan.units
        prepared = [unit.prepare(batch, self.on_invalid) for unit in units]
        with self._lock:
            for unit, rows in zip(units, prepared, strict=True):
                unit.state.admit(rows.n, rows.weight)
            for unit, rows in zip(units, prepared, strict=True):
                unit.absorb(rows)
        return self

    def merge(self, other: MetricCollection) -> Self:
        """Add what another collection of the same metrics has seen; `other` stays as it is.

        Raises
        ------
        IncompatibleStateError
            Names, settings or columns differ; the message names each, and both are as they were.
        """
        if other is self:
            raise IncompatibleStateError(
                "merging a collection with itself counts its rows twice; merge a copy() if you mean it"
            )
        if not isinstance(other, MetricCollection):
            raise IncompatibleStateError(f"cannot merge a {type(other).__name__} into a MetricCollection")
        if found := self._plan.differences(other._plan):
            hint = '; sm.merge(parts, metrics="common") merges what they share'
            raise IncompatibleStateError(f"cannot merge this collection: {'; '.join(found)}{hint}")
        with self._lock:
            merge_units(self._plan.units, other._plan.units)
        return self

    def compute(self) -> dict[str, Any]:
        """Return the value of every metric by name; NaN, with a warning, where undefined."""
        with self._lock:
            values = {n: m.of(self._plan.units[u].state) for n, (m, u) in self._plan.entries.items()}
        for name, value in values.items():
            if isinstance(value, float) and math.isnan(value) and name not in self._warned:
                self._warned.add(name)
                metric, unit = self._plan.entries[name]
                reason = metric.reason_of(self._plan.units[unit].state) or "0/0"
                warnings.warn(f"{name} is undefined: {reason}", UndefinedMetricWarning, stacklevel=2)
        return values

    def bounds(self) -> dict[str, tuple[Any, Any]]:
        """Return certified limits of every metric by name."""
        with self._lock:
            return {n: m.bounds_of(self._plan.units[u].state) for n, (m, u) in self._plan.entries.items()}

    def explain(self) -> dict[str, dict[str, Any]]:
        """Return every value with what is behind it (see `Metric.explain`)."""
        with self._lock:
            found = {n: explain(m, self._plan.state(n)) for n, (m, _) in self._plan.entries.items()}
        return {n: {**e, "metric": n} for n, e in found.items()}

    def table(self) -> Table:
        """Return values, bounds and counts as one table."""
        with self._lock:
            return Table((), records(self._plan, None))

    def __getitem__(self, name: str) -> Metric[Any, Any]:
        with self._lock:
            return Metric.holding(self._plan._entry(name).metric, self._plan.state(name))

    def __contains__(self, name: str) -> bool:
        return name in self._plan.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._plan.entries)

    def __len__(self) -> int:
        return len(self._plan.entries)

    def plan(self) -> list[dict[str, Any]]:
        """Return which metrics share which state, what it reads, and the bytes it takes."""
        out = []
        for i, unit in enumerate(self._plan.units):
            reads = {n.role: unit.binding.column(n.role) for n in unit.needs if not n.optional}
            names = [n for n, e in self._plan.entries.items() if e.unit == i]
            out.append({"state": unit.state.tag, "columns": reads, "metrics": names, "bytes": unit.state.nbytes})
        return out

    def __repr__(self) -> str:
        plan = self.plan()
        lines = [f"MetricCollection: {len(self)} metrics over {len(plan)} states"]
        lines += [f"  {p['state']}[{', '.join(p['columns'].values())}]: {', '.join(p['metrics'])}" for p in plan]
        return "\n".join(lines)

    def reset(self) -> Self:
        """Forget every row."""
        with self._lock:
            for unit in self._plan.units:
                unit.state.reset()
        self._warned.clear()
        return self

    def copy(self) -> Self:
        """Return an independent copy."""
        with self._lock:
            return type(self).__new__(type(self))._hold(self._plan.restrict(self.names), self.on_invalid)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def only(self, names: Iterable[str]) -> Self:
        """Return a collection of some of the metrics, with what they have seen."""
        with self._lock:
            return type(self).__new__(type(self))._hold(self._plan.restrict(names), self.on_invalid)

    def coarsen(self, bits: int) -> MetricCollection:
        """Return the collection with its histograms brought down to `bits`."""
        return self._made(lambda m: m.coarsen(bits) if "bits" in m.settings else m)

    def _made(self, change: Any) -> MetricCollection:
        binding = {n: self._plan.units[e.unit].binding for n, e in self._plan.entries.items()}
        metrics = {n: change(self[n]) for n in self.names}
        plan = Plan((n, m, binding[n]) for n, m in metrics.items())
        for name, metric in metrics.items():  # shared states are equal where they overlap: the widest one holds all
            unit = plan.units[plan.entries[name].unit]
            source = self._plan.units[self._plan.entries[name].unit].state
            unit.state = metric.state if unit.state.settings == metric.state.settings else source.narrow(unit.state)
        return type(self).__new__(type(self))._hold(plan, self.on_invalid)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetricCollection):
            return NotImplemented
        if self._plan.differences(other._plan) or self.names != other.names:
            return False
        return all(self._plan.state(n) == other._plan.state(n) for n in self.names)

    __hash__ = None  # type: ignore[assignment]

    def header(self) -> dict[str, Any]:
        """Describe metrics, columns and states as plain data: what the bytes format writes."""
        return {"kind": "collection", **self._plan.header()}

    def states(self) -> list[State]:
        """The states whose arrays the bytes hold."""
        return [u.state for u in self._plan.units]

    def digest(self) -> str:
        """SHA-256 of metrics, columns and states."""
        from .codec import digest

        with self._lock:
            return digest(self)

    def to_bytes(self) -> bytes:
        """Encode everything in the library's one format (see `streammetrics.codec`)."""
        from .codec import encode

        with self._lock:
            return encode(self)

    def __reduce__(self) -> Any:
        from .codec import from_bytes

        return from_bytes, (self.to_bytes(),)


def merge_units(ours: list[Unit], theirs: list[Unit]) -> None:
    """Merge the states of equal plans; nothing changes unless all of them can."""
    partners = [next(t for t in theirs if t.binding == o.binding and not o.state.differences(t.state)) for o in ours]
    for o, t in zip(ours, partners, strict=True):
        o.state.check_merge(t.state)
    for o, t in zip(ours, partners, strict=True):
        o.state.merge(t.state)


def records(plan: Plan, i: int | None) -> list[dict[str, Any]]:
    """Return a record for the table of every metric, of slice i or of a lone collection."""
    states = [u.state if i is None else u.state.slice(i) for u in plan.units]
    facts = [s.facts() for s in states]
    out = []
    for name, (metric, unit) in plan.entries.items():
        state, known = states[unit], facts[unit]
        low, high = metric.bounds_of(state)
        interval = metric.interval_of(state, 0.95)
        value = metric.of(state)
        scalar = isinstance(value, float)
        out.append({
            "metric": name,
            "value": value,
            # only a histogram has something to certify; counts and sums are exact as they stand
            "bound_low": low if scalar and "off_grid" in known else None,
            "bound_high": high if scalar and "off_grid" in known else None,
            "interval_low": interval.low if interval.reason is None else math.nan,
            "interval_high": interval.high if interval.reason is None else math.nan,
            "rows": known.get("rows"),
            "weight": float(known["weight"]) if "weight" in known else None,
            "positives": known.get("positives"),
            "reason": metric.reason_of(state),
        })  # fmt: skip
    return out


def _decode_collection(header: dict[str, Any], read: Any) -> MetricCollection:
    plan = Plan.of(header, read)
    if any(u.state.slices is not None for u in plan.units):
        raise ValueError("a collection holds slices")
    return MetricCollection.__new__(MetricCollection)._hold(plan)


decoders["collection"] = _decode_collection
