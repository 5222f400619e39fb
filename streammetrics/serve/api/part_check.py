"""Check that a part (the posted metrics of one source in one hour) fits its experiment.

A part must have the slices and metrics of the experiment's definition, and only arms that the definition lists. The
metrics that the part shares with earlier parts must have the same settings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ...collect.accumulator import definition_of
from ...collect.metric_like import MetricLike, empty_copy, states_of
from ...compose.bundle import Bundle
from ...compose.sliced import Sliced
from ...errors import IncompatibleStateError
from ...state.declare import Flat
from ..evaluation.experiment import Experiment
from .part_summary import PartSummary

__all__ = ["PartChecker", "find_key_kinds", "list_metric_names", "select_metrics"]

MAX_ROWS, MAX_EXTRA_WEIGHT = 1 << 40, 1 << 32
"""The largest number of rows in a part, and the largest amount by which the sum of weights may exceed that number.

With these limits, counters cannot overflow in fewer than four million parts, and sums of weights cannot overflow in
fewer than a thousand parts.
"""


def list_metric_names(experiment: Experiment) -> tuple[str, ...]:
    """Return the names of all metrics that the definition of an experiment uses."""
    names = (experiment.primary, *experiment.guardrails, *experiment.secondary, *experiment.model, experiment.counts)
    return tuple(dict.fromkeys(name for name in names if name))


def select_metrics(metrics: MetricLike, names: Iterable[str]) -> Any:
    """Return only the metrics that compute the named outputs; raise IncompatibleStateError if one is missing.

    Examples
    --------
    >>> import streammetrics as sm
    >>> arms = sm.Sliced([sm.CTR(), sm.LogLoss()], by="arm")
    >>> select_metrics(arms, ["ctr"]).names
    ['ctr']
    """
    available: list[str] = definition_of(metrics).names
    wanted = {name: _find_metric(name, available) for name in names}
    if missing := [name for name, metric in wanted.items() if metric is None]:
        raise IncompatibleStateError(
            f"the experiment needs {', '.join(missing)}, but this part has only {', '.join(available)}; "
            f"add the missing metrics, or change the definition"
        )
    return metrics if set(available) <= set(wanted.values()) else metrics.only(set(wanted.values()))  # type: ignore[attr-defined]


def _find_metric(output: str, names: Iterable[str]) -> str | None:
    """Return the name of the metric that computes an output, such as "per_unit" for "per_unit/outcome".

    Return None if no metric computes it.
    """
    matches = [name for name in names if output == name or output.startswith(f"{name}/")]
    return max(matches, key=len, default=None)


class PartPlan(NamedTuple):
    """The metrics and key types that all parts of an experiment must share.

    A plan consists of the metrics with their settings (but without rows), and the type of the keys in each slice
    column.
    """

    metrics: Any
    key_kinds: dict[str, str]

    def describe_kind_differences(self, key_kinds: dict[str, str]) -> list[str]:
        """Return a sentence for each slice column whose keys have one type in the plan and another type in a part."""
        old = self.key_kinds
        return [
            f"keys of {n} are of kind {old[n]} here and {key_kinds[n]} there"
            for n in key_kinds
            if n in old and old[n] != key_kinds[n]
        ]


class _AcceptedHeader(NamedTuple):
    """The header of the last accepted part of an experiment, and the definition and metric plan that it matched."""

    experiment: Experiment
    metrics: Any
    header: bytes

    def matches(self, experiment: Experiment, metrics: Any, header: bytes) -> bool:
        """Return whether the definition, the metrics of the plan and the header are those of the last accepted part."""
        return experiment == self.experiment and metrics is self.metrics and header == self.header


class PartChecker:
    """A checker of posted parts. The first part fixes its experiment's metric plan, which all later parts must match.

    Parameters
    ----------
    load_reference : callable
        Takes the ID of an experiment and returns its stored metrics, or None if nothing is stored. After a restart, the
        plan is read from these metrics.
    """

    def __init__(self, load_reference: Callable[[str], MetricLike | None]) -> None:
        self._load_reference = load_reference
        self._plans: dict[str, PartPlan] = {}
        self._fits: dict[str, _AcceptedHeader] = {}
        self._lock = threading.Lock()

    def check(self, experiment: Experiment, part: PartSummary, header: bytes = b"") -> None:
        """Raise IncompatibleStateError unless a part fits the definition and the plan of its experiment.

        Parameters
        ----------
        experiment : Experiment
            The experiment.
        part : PartSummary
            The summary of the part.
        header : bytes
            The header of the part's frame (its serialized metrics), which contains the settings of the metrics. If it
            equals the header of the last accepted part, the settings are not compared again.
        """
        _check_layout(experiment, part)
        # If the first two parts arrive at the same time, the lock ensures that one of them fixes the plan, and that the
        # other is compared with this plan. Comparing settings is slow, so it is skipped if the header equals that of
        # the last accepted part.
        with self._lock:
            plan, fits = self._plans.get(experiment.id), self._fits.get(experiment.id)
            if plan is None and (reference := self._load_reference(experiment.id)) is not None:
                plan = PartPlan(reference, find_key_kinds(reference))
            if plan is not None and fits is not None and fits.matches(experiment, plan.metrics, header):
                new_plan = _extend_plan(experiment, plan, part.key_kinds, [])
            else:
                new_plan = _merge_plan(
                    experiment, plan, select_metrics(part.metrics, list_metric_names(experiment)), part.key_kinds
                )
            self._plans[experiment.id], self._fits[experiment.id] = (
                new_plan,
                _AcceptedHeader(experiment, new_plan.metrics, header),
            )

    def forget_plans(self, experiments: Iterable[str]) -> None:
        """Forget the metric plans of `experiments`, because the parts that fixed these plans could not be stored."""
        with self._lock:
            for experiment in experiments:
                self._plans.pop(experiment, None)
                self._fits.pop(experiment, None)


def _check_layout(experiment: Experiment, part: PartSummary) -> None:
    """Raise IncompatibleStateError unless the slice columns, arms, row count and weights of a part fit its experiment.

    Metrics with closed groups (see `sm.seal`) are also refused, because closed groups can be counted only once.
    """
    what, metrics = f"experiment {experiment.id!r}", part.metrics
    if not isinstance(metrics, Sliced) or metrics.by[0] != experiment.arm:
        raise IncompatibleStateError(
            f"{what}: expected metrics sliced by arm, such as sm.Sliced(..., by=[{experiment.arm!r}, ...]); "
            f"found {_describe_layout(metrics)}"
            + ("; post one of its tables, such as sm.load(file)[name]" if isinstance(metrics, Bundle) else "")
        )
    slices = [*experiment.slices, *([] if experiment.phase is None else [experiment.phase])]
    levels = definition_of(metrics).levels
    if missing := [name for name in slices if name not in levels]:
        raise IncompatibleStateError(
            f"{what}: expected slices by {', '.join(missing)}, found slices by {', '.join(levels)}; "
            f"add the missing columns to by="
        )
    if part.other_share > 0:
        raise IncompatibleStateError(
            f"{what}: the limit of slices leaves {part.other_share:.1%} of the rows without an arm; "
            f"set the limit on the slices within each arm: "
            f"sm.Sliced(sm.Sliced(..., by=slices, limit=...), by={experiment.arm!r})"
        )
    if unknown := sorted(repr(arm) for arm in part.keys if arm not in experiment.arms):
        raise IncompatibleStateError(
            f"{what}: expected the arms {', '.join(experiment.arms)}, found {', '.join(unknown[:5])}; "
            f"leave out the rows of other arms"
        )
    if max(part.rows, *part.dropped.values(), 0) >= MAX_ROWS:
        raise IncompatibleStateError(
            f"{what}: this part has {MAX_ROWS:,} rows or more; split it into several parts with different values of seq"
        )
    if part.weight - part.rows >= MAX_EXTRA_WEIGHT:
        raise IncompatibleStateError(
            f"{what}: the total weight of the rows exceeds the number of rows by {MAX_EXTRA_WEIGHT:,} or more; "
            f"scale the weights down"
        )
    if closed := sorted({str(tag) for tag in map(_find_single_use_tag, definition_of(metrics).reads) if tag}):
        raise IncompatibleStateError(
            f"{what}: {', '.join(closed)} contains closed groups, which can be counted only once and not in every hour; "
            f"post the metrics before sm.seal()"
        )


def _find_single_use_tag(read: Any) -> str:
    """Return a state's tag if some of its data can be counted only once (closed groups); otherwise, return ""."""
    parts = read.state.parts().values()
    return read.state.tag if any(isinstance(p, Flat) and p.form == "once" for p in parts) else ""


def _describe_layout(metrics: Any) -> str:
    return f"an object of class {type(metrics).__name__}" + (
        f" by {', '.join(metrics.by)}" if isinstance(metrics, Sliced) else ""
    )


def _merge_plan(experiment: Experiment, plan: PartPlan | None, part: Any, key_kinds: dict[str, str]) -> PartPlan:
    """Return the plan, extended with a part's new metrics; raise IncompatibleStateError if the settings differ.

    If `plan` is None, the metrics in `part` and their `key_kinds` become the plan.
    """
    if plan is None:
        return PartPlan(empty_copy(part), key_kinds)
    common = [name for name in plan.metrics.names if name in part.names]
    if not common:
        raise IncompatibleStateError(
            f"experiment {experiment.id!r} has counted {', '.join(plan.metrics.names)} so far, but this part "
            f"has none of these metrics; post new metrics together with the earlier ones"
        )
    ours, theirs = (thing if thing.names == common else thing.ordered(common) for thing in (plan.metrics, part))
    differences = definition_of(ours).differences(definition_of(theirs))
    new_plan = _extend_plan(experiment, plan, key_kinds, differences)
    return new_plan if set(part.names) <= set(plan.metrics.names) else new_plan._replace(metrics=empty_copy(part))


def _extend_plan(experiment: Experiment, plan: PartPlan, key_kinds: dict[str, str], differences: list[str]) -> PartPlan:
    """Return the plan, extended with the key types of a part.

    Raise IncompatibleStateError if a key type differs, or if `differences` lists any differences between settings.
    """
    if all_differences := [*differences, *plan.describe_kind_differences(key_kinds)]:
        raise IncompatibleStateError(
            f"the earlier parts of experiment {experiment.id!r} (here) and this part (there) have different settings: "
            f"{'; '.join(dict.fromkeys(all_differences))}; use the settings of the earlier parts"
        )
    return plan._replace(key_kinds=plan.key_kinds | key_kinds)


def find_key_kinds(metrics: Any) -> dict[str, str]:
    """Return the type of the keys in each slice column, such as "string". Columns without keys are left out."""
    return {
        name: words.kind
        for state in states_of(metrics)
        for name, words in zip((n for axis in state.axes for n in axis.names), state.cells.vocabularies, strict=False)
        if words.kind
    }
