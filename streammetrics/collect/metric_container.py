"""MetricContainer: the methods shared by collections and by wrappers (such as slices) around collections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from ..numerics.settings import check_list
from ..reading.interval import DEFAULT_CONFIDENCE, check_confidence
from ..reading.table import Table, values_table
from .accumulator import accumulate, select
from .metric_like import MetricLike

__all__ = ["MetricContainer"]


class MetricContainer(MetricLike):
    """An object (such as a collection) with several metrics, any of which can be selected with their states."""

    @property
    def on_invalid(self) -> str:
        """What happens to an invalid row: "raise" raises an error, and "drop" leaves the row out and reports it."""
        return self._accumulator.definition.on_invalid

    @property
    def names(self) -> list[str]:
        """The names of the metrics."""
        return self._accumulator.definition.names

    def table(self, *, confidence: float | None = DEFAULT_CONFIDENCE) -> Table:
        """Return values, bounds, intervals and counts as one table.

        Parameters
        ----------
        confidence : float or None
            Confidence level of the intervals. If you pass a level, the table prints every interval, or the reason why
            there is none. By default, the table prints only intervals that come from `Sharded`: other intervals assume
            independent rows, but rows from the same user are correlated. If you pass None, there are no intervals.
        """
        accumulator = self._accumulator
        records = accumulator.answer().records(check_confidence(confidence))
        return values_table(accumulator.definition.levels, records, confidence)

    def only(self, names: Iterable[str]) -> Self:
        """Return a copy with only the named metrics of a collection and their states, in the order of the collection.

        Raises
        ------
        KeyError
            There is no metric with one of these names.
        """
        some = self._check_names(names)
        return self._select({name: name for name in self.names if name in some})

    def ordered(self, names: Iterable[str]) -> Self:
        """Return a copy with only the named metrics of a collection and their states, in the order of `names`."""
        return self._select({name: name for name in self._check_names(names)})

    def task(self, name: str) -> Self:
        """Return a copy with the metrics of one task and their states. The task prefix is removed from their names.

        Examples
        --------
        >>> import streammetrics as sm
        >>> both = sm.MetricCollection({"a": sm.Task(sm.CTR(), y_true="click"), "b": sm.Task(sm.CTR(), y_true="buy")})
        >>> both.update(click=[1, 1], buy=[0, 1]).task("b").compute()
        {'ctr': 0.5}
        """
        known = self.names
        names = {full: full.removeprefix(f"{name}/") for full in known if full.startswith(f"{name}/")}
        if not names:
            tasks = dict.fromkeys(full.rpartition("/")[0] for full in known if "/" in full)
            raise KeyError(f"there is no task {name!r}; the tasks are {', '.join(tasks) or 'none'}")
        return self._select(names)

    def _find_metrics(self, name: str) -> Any:
        """Return the metric `name` or, like `task`, all metrics of the task `name`; None if there is neither."""
        definition, states = self._accumulator.definition, self._accumulator.states
        if (found := definition.find_entry(name)) is None:
            return self.task(name) if any(full.startswith(f"{name}/") for full in self.names) else None
        new, places = found
        # The metric itself does not know how the rows were sampled, so its states must contain the sampling correction.
        corrected = [definition.reads[i].binding.correct_state(states[i]) for i in places]
        return new.wrap(accumulate(new, [s.narrow(r.state) for s, r in zip(corrected, new.reads, strict=True)]))

    def _check_names(self, names: Iterable[str]) -> list[str]:
        wanted, known = check_list("names=", names, "names of metrics"), self.names
        for name in wanted:
            if name not in known:
                raise KeyError(f"there is no metric {name!r}; the metrics are {', '.join(known)}")
        return wanted

    def _select(self, names: dict[str, str]) -> Self:
        selected = select(self._accumulator, names)
        container: Any = selected.definition.wrap(selected)
        return container  # type: ignore[no-any-return]
