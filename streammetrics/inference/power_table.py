"""A table of the number of users that an experiment needs, for several effects, metrics and guardrails."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..collect.metric_like import MetricLike
from ..errors import InvalidInputError
from ..reading.replicates import Sample
from ..reading.table import Table, TableLayout
from .compare import collect_samples
from .power import EVEN, PowerPlan, check_range, days_to_go, read_estimate, users_needed, users_to_hold
from .questions import GUARDRAIL, build_question, read_margins

__all__ = ["EFFECTS", "power_table"]

EFFECTS = (0.005, 0.01, 0.02, 0.05, 0.1)
"""The default relative effects of a table."""

DETECT, HOLD = "detect", "hold"
"""The goals of an experiment: detect an effect, or, if there is no effect, show that a guardrail is met."""


def power_table(
    holder: MetricLike,
    *,
    users: float | None = None,
    metrics: Sequence[str] | None = None,
    effects: Iterable[float] = EFFECTS,
    guardrails: Mapping[str, float] | None = None,
    better: Mapping[str, str] | None = None,
    per_day: float | None = None,
    power: float = 0.8,
    confidence: float = 0.95,
    shares: tuple[float, float] = EVEN,
    sequential: bool = False,
    looks: int = 100,
) -> Table:
    """Return the number of users that an experiment needs, for each effect and metric and for each guardrail.

    Parameters
    ----------
    holder : metric or collection, usually Sharded
        Metrics of one population that will be split into two arms, for example the log of the past few weeks.
    users : float, optional
        Number of units (users) in the data, as for `power`.
    metrics : sequence of str, optional
        The metrics whose effects are to be detected; by default all.
    effects : iterable of float
        The relative differences to detect: 0.01 is 1 % more, -0.01 is 1 % less.
    guardrails : dict of str to float, optional
        Metrics that must not become worse by more than a relative margin, as for `scorecard`.
    better : dict of str to {"high", "low"}, optional
        Which values are better, for guardrails whose metric does not define this.
    per_day : float, optional
        Total number of new users per day in both arms, used to compute the number of days.
    power : float
        Probability of detecting the effect if it exists, and of meeting the guardrail if the metric does not change.
    confidence, shares, sequential, looks
        The same as for `power`.

    Returns
    -------
    Table
        A row for each effect and metric (`goal` is "detect"), and for each guardrail (`goal` is "hold"). The columns
        are:

        - `metric` and `goal`;
        - `relative`: the effect, or the margin with the sign of a change for the worse;
        - `users`: the total of both arms;
        - `mean_users`: the mean total if the experiment stops as soon as the goal is reached;
        - `days`;
        - `reason`: why there is no number of users.

    Notes
    -----
    A guardrail is met if the whole interval of the difference is better than the margin, taken as a change for the
    worse. If the metric does not change, the interval lies around 0 and must exclude the margin. To detect an effect
    that equals the margin, an interval around the margin must exclude 0. Both take the same number of users. A
    guardrail on a calibration ratio needs more users, because its interval has the confidence level
    (1 + `confidence`) / 2. Every guardrail must be met, so plan for the largest number of users in the table.

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> user = np.arange(50_000) % 5_000
    >>> click = np.random.default_rng(1).random(50_000) < 0.1
    >>> rate = sm.Sharded(sm.CTR(), unit="user").update(y_true=click, user=user)
    >>> held = {"guardrails": {"ctr": 0.05}, "better": {"ctr": "high"}}
    >>> sm.power_table(rate, users=5_000, effects=(0.05, 0.1), per_day=800, **held)
    metric    goal  difference   users  days
    ctr     detect        +5 %  12,497    16
    ctr     detect       +10 %   3,275     5
    ctr       hold        -5 %  11,307    15
    """
    samples = {s.name: s for s in collect_samples(holder)}
    names = list(samples) if metrics is None else list(metrics)
    if unknown := [name for name in names if name not in samples]:
        raise InvalidInputError(f"metrics= must be some of {', '.join(samples)}, not {unknown[0]!r}")
    effects, margins, known = list(effects), read_margins(guardrails, True), {n: s.metric for n, s in samples.items()}
    questions = [build_question(n, GUARDRAIL, known, better or {}, margin) for n, margin in margins.items()]
    options: dict[str, Any] = {"power": power, "confidence": confidence, "shares": shares}
    options["looks"] = looks if sequential else None
    rows = [
        _build_row(samples[name], DETECT, relative, users, per_day, options) for relative in effects for name in names
    ]
    for question in questions:
        # Give the margin the sign of a change for the worse. A calibration ratio can become worse in either direction,
        # so its margin stays positive.
        margin = -margins[question.name] if question.better == "high" else margins[question.name]
        own = options | {"is_ratio": question.better == "one"}
        rows.append(_build_row(samples[question.name], HOLD, margin, users, per_day, own))
    return Table((), rows, LAYOUT)


def _build_row(
    sample: Sample, goal: str, relative: float, users: float | None, per_day: float | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Return one row of the table: the number of users that the metric needs, or the reason why it cannot be computed.

    `options` are the remaining arguments of `users_needed` or `users_to_hold`.
    """
    row = {"metric": sample.name, "goal": goal, "relative": relative}
    try:
        estimate, counted = read_estimate(sample, users)
        plan: PowerPlan = (users_needed if goal == DETECT else users_to_hold)(estimate, counted, relative, **options)
        if goal == DETECT:
            check_range(
                sample, relative, f"a difference of {100.0 * relative:g} % is too large: it", "a smaller effect"
            )
    except InvalidInputError as error:
        # Other rows of the table may have numbers, so do not raise the error: show it as the reason in this row.
        return row | {"users": math.nan, "mean_users": math.nan, "days": math.nan, "reason": str(error)}
    days = math.nan if per_day is None else days_to_go(0.0, plan.users, per_day)
    return row | {"users": plan.users, "mean_users": plan.mean_users, "days": days, "reason": None}


def _format_row(row: dict[str, Any]) -> list[str]:
    """Return the text of each column for a row of the table."""
    is_sooner = row["mean_users"] < row["users"]
    numbers = (row["users"], row["mean_users"] if is_sooner else math.nan, row["days"])
    texts = ["" if math.isnan(number) else f"{number:,.0f}" for number in numbers]
    return [row["metric"], row["goal"], f"{100.0 * row['relative']:+.3g} %", *texts, row["reason"] or ""]


COLUMNS = ("metric", "goal", "relative", "users", "mean_users", "days", "reason")
HEADS = ("metric", "goal", "difference", "users", "on average", "days", "reason")
LAYOUT = TableLayout(COLUMNS, HEADS, _format_row, ("on average", "days", "reason"))
