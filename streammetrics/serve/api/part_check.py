"""Whether a frame is what an experiment takes: its arms, its slices, and its metrics with one plan."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ...collect.accumulator import definition_of
from ...collect.metric_like import MetricLike, empty_copy, states_of
from ...compose.sliced import Sliced
from ...errors import IncompatibleStateError
from ...state.declare import Flat
from ..evaluation.experiment import Experiment
from .summary import Summary

__all__ = ["Checker", "kinds_of", "metrics_of", "narrowed"]

MOST_ROWS, HEAVIEST = 1 << 40, 1 << 32
"""Of a part, counted or left out, and what they weigh beyond their number: so many fit into counters four million times,
such weights a thousand times."""


def metrics_of(experiment: Experiment) -> tuple[str, ...]:
    """Return the names of all metrics that an experiment reads."""
    asked = (experiment.primary, *experiment.guardrails, *experiment.secondary, *experiment.model, experiment.counts)
    return tuple(dict.fromkeys(name for name in asked if name))


def narrowed(metrics: MetricLike, names: Iterable[str]) -> Any:
    """Return the same with some of its metrics, in their order; raise if it lacks one of these.

    Examples
    --------
    >>> import streammetrics as sm
    >>> arms = sm.Sliced([sm.CTR(), sm.LogLoss()], by="arm")
    >>> narrowed(arms, ["ctr"]).names
    ['ctr']
    """
    known: list[str] = definition_of(metrics).names
    wanted = {name: _metric(name, known) for name in names}
    if lacking := [name for name, metric in wanted.items() if metric is None]:
        raise IncompatibleStateError(f"the experiment reads {', '.join(lacking)}, and this has {', '.join(known)}")
    return metrics if set(known) <= set(wanted.values()) else metrics.only(set(wanted.values()))  # type: ignore[attr-defined]


def _metric(number: str, known: Iterable[str]) -> str | None:
    """The metric that a number such as per_unit/outcome is of."""
    found = [name for name in known if number == name or number.startswith(f"{name}/")]
    return max(found, key=len, default=None)


class PartPlan(NamedTuple):
    """What parts have to agree on: metrics that have seen nothing, and what keys of each column are."""

    metrics: Any
    kinds: dict[str, str]

    def unlike(self, kinds: dict[str, str]) -> list[str]:
        """Say which columns have keys of another kind in a part."""
        old = self.kinds
        return [f"keys of {n} are {kinds[n]} rather than {old[n]}" for n in kinds if n in old and old[n] != kinds[n]]


class _Fits(NamedTuple):
    """A header that was accepted, and by what."""

    experiment: Experiment
    metrics: Any
    header: bytes

    def again(self, experiment: Experiment, metrics: Any, header: bytes) -> bool:
        """Whether nothing of it has changed."""
        return experiment == self.experiment and metrics is self.metrics and header == self.header


class Checker:
    """What experiments take: the first part fixes the plan of their metrics, and all later ones have the same.

    Parameters
    ----------
    held : function of an id
        What was counted so far of an experiment, or None: what has the plan after a restart.
    """

    def __init__(self, held: Callable[[str], MetricLike | None]) -> None:
        self._held = held
        self._plans: dict[str, PartPlan] = {}
        self._fits: dict[str, _Fits] = {}
        self._lock = threading.Lock()

    def check(self, experiment: Experiment, part: Summary, header: bytes = b"") -> None:
        """Raise IncompatibleStateError unless a part fits the experiment, and those that came before.

        Parameters
        ----------
        experiment : Experiment
            What it takes.
        part : Summary
            What the part holds.
        header : bytes
            What says its metrics and their settings: those of a header that was accepted are not compared again.
        """
        _by_arm(experiment, part)
        with self._lock:
            plan, fits = self._plans.get(experiment.id), self._fits.get(experiment.id)
            if plan is None and (held := self._held(experiment.id)) is not None:
                plan = PartPlan(held, kinds_of(held))
            if plan is not None and fits is not None and fits.again(experiment, plan.metrics, header):
                made = _added(experiment, plan, part.kinds, [])
            else:
                made = _agreed(experiment, plan, narrowed(part.thing, metrics_of(experiment)), part.kinds)
            self._plans[experiment.id], self._fits[experiment.id] = made, _Fits(experiment, made.metrics, header)

    def forget(self, experiments: Iterable[str]) -> None:
        """Forget what parts that could not be stored may have fixed."""
        with self._lock:
            for experiment in experiments:
                self._plans.pop(experiment, None)
                self._fits.pop(experiment, None)


def _by_arm(experiment: Experiment, part: Summary) -> None:
    """Raise unless a part is told apart by arms that there are and by the slices."""
    what, thing = f"experiment {experiment.id!r}", part.thing
    if not isinstance(thing, Sliced) or thing.by[0] != experiment.arm:
        raise IncompatibleStateError(
            f"{what} takes metrics by arm, sm.Sliced(..., by=[{experiment.arm!r}, ...]), not {_told(thing)}"
        )
    slices = [*experiment.slices, *([] if experiment.phase is None else [experiment.phase])]
    levels = definition_of(thing).levels
    if lacking := [name for name in slices if name not in levels]:
        raise IncompatibleStateError(f"{what} has slices by {', '.join(lacking)}; this is by {', '.join(levels)}")
    if part.left > 0:
        raise IncompatibleStateError(
            f"{what}: a limit of slices left {part.left:.1%} of the rows without an arm; put it on slices within arms, "
            f"sm.Sliced(sm.Sliced(..., by=slices, limit=...), by={experiment.arm!r})"
        )
    if unknown := sorted(repr(arm) for arm in part.keys if arm not in experiment.arms):
        raise IncompatibleStateError(
            f"{what} has the arms {', '.join(experiment.arms)}, and this has {', '.join(unknown[:5])}; leave the rows of "
            f"others out"
        )
    if max(part.rows, *part.dropped.values(), 0) >= MOST_ROWS:
        raise IncompatibleStateError(f"{what}: a part of one hour has more than {MOST_ROWS:,} rows")
    if part.weight - part.rows >= HEAVIEST:
        raise IncompatibleStateError(
            f"{what}: the rows of one hour weigh more than {HEAVIEST:,}; scale the weights down"
        )
    if once := sorted({str(tag) for tag in map(_once, definition_of(thing).reads) if tag}):
        raise IncompatibleStateError(
            f"{what}: {', '.join(once)} has closed groups, which can be there once, and not each hour; post it open"
        )


def _once(read: Any) -> str:
    """The state, if a part of it can be added up once only."""
    parts = read.state.parts().values()
    return read.state.tag if any(isinstance(p, Flat) and p.form == "once" for p in parts) else ""


def _told(thing: Any) -> str:
    return f"a {type(thing).__name__}" + (f" by {', '.join(thing.by)}" if isinstance(thing, Sliced) else "")


def _agreed(experiment: Experiment, plan: PartPlan | None, part: Any, kinds: dict[str, str]) -> PartPlan:
    """The plan of all before and this part, which may be the first of a metric; raise where they differ."""
    if plan is None:
        return PartPlan(empty_copy(part), kinds)
    common = [name for name in plan.metrics.names if name in part.names]
    if not common:
        raise IncompatibleStateError(
            f"experiment {experiment.id!r} has counted {', '.join(plan.metrics.names)} so far, and this part has none of "
            f"them: post new metrics beside these"
        )
    here, there = (thing if thing.names == common else thing.ordered(common) for thing in (plan.metrics, part))
    found = definition_of(here).differences(definition_of(there))
    made = _added(experiment, plan, kinds, found)
    return made if set(part.names) <= set(plan.metrics.names) else made._replace(metrics=empty_copy(part))


def _added(experiment: Experiment, plan: PartPlan, kinds: dict[str, str], differences: list[str]) -> PartPlan:
    """The plan with the kinds of keys of a part; raise if there are differences, or kinds are others."""
    if found := [*differences, *plan.unlike(kinds)]:
        raise IncompatibleStateError(
            f"experiment {experiment.id!r} counts otherwise than this part: {'; '.join(dict.fromkeys(found))}"
        )
    return plan._replace(kinds=plan.kinds | kinds)


def kinds_of(metrics: Any) -> dict[str, str]:
    """Return what the keys of each column are, as far as a row has shown it."""
    return {
        name: words.kind
        for state in states_of(metrics)
        for name, words in zip((n for axis in state.axes for n in axis.names), state.cells.words, strict=False)
        if words.kind
    }
