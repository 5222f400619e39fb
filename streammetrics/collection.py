"""Many metrics over one pass: metrics that ask for the same state from the same columns share it."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .codec import decoders
from .columns import Batch
from .encodable import Encodable
from .errors import IncompatibleStateError, UndefinedMetricWarning
from .intake import Binding
from .metric import Metric, explain
from .plan import Plan, count_units, merge_units, records
from .shortcut import Shortcut
from .state import State
from .table import Table
from .task import Metrics, flatten

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["MetricCollection"]


class MetricCollection(Encodable):
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

    def _guard(self) -> threading.Lock:
        return self._lock

    def _hold(self, plan: Plan, on_invalid: str = "raise") -> Self:
        self._plan, self.on_invalid = plan, on_invalid
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        self._shortcut: Shortcut | None = None
        self._fed = False
        return self

    @property
    def names(self) -> list[str]:
        """The names of the metrics."""
        return list(self._plan.entries)

    @property
    def columns(self) -> dict[str, bool]:
        """The columns that `update` reads, and whether each must be there."""
        return self._plan.columns

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
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
        with self._lock:
            if self._shortcut is not None and self._shortcut.count(batch):
                return self
        prepared = [unit.prepare(batch, self.on_invalid) for unit in units]
        with self._lock:
            loads = [unit.state.__dict__["_load"] for unit in units]
            try:
                count_units(units, prepared)
            except BaseException:
                for unit, load in zip(units, loads, strict=True):
                    unit.state.__dict__["_load"] = load
                raise
            if not self._fed:  # now that kernels are loaded; merging and reading need none
                self._shortcut, self._fed = Shortcut.of(units), True
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
            reads = {n.role: _spelled(unit.binding.column(n.role)) for n in unit.needs if not n.optional}
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


def _spelled(column: Any) -> str:
    return " x ".join(column) if isinstance(column, tuple) else str(column)


def _decode_collection(header: dict[str, Any], read: Any) -> MetricCollection:
    plan = Plan.of(header, read)
    if any(u.state.slices is not None for u in plan.units):
        raise ValueError("a collection holds slices")
    return MetricCollection.__new__(MetricCollection)._hold(plan)


decoders["collection"] = _decode_collection
