"""The results of an experiment as JSON. The schema is stable: releases add fields, but never rename or remove any."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from ..evaluation.evaluation import Evaluation, MetricRow
from ..evaluation.experiment import Experiment
from ..part_keys import format_hour
from ..store.journal import Annotation, Decision

__all__ = ["SCHEMA", "build_results", "describe_annotation", "describe_decision", "format_timestamp"]

SCHEMA = 1
"""The version of the schema. It changes only if a field is renamed or removed, or gets another meaning."""
METRIC_FIELDS = ("treatment", "metric", "role", "better", "margin", "control_value", "value", "change", "low", "high")


def build_results(
    evaluation: Evaluation, experiment: Experiment, decisions: Sequence[Decision], annotations: Sequence[Annotation]
) -> dict[str, Any]:
    """Return the results of an experiment as JSON values.

    Times are strings such as 2026-06-01T09:30:00Z, hours are strings such as 2026-06-01T09 (both UTC), relative
    differences are fractions (0.01 means 1 %), and unknown numbers are None.
    """
    first, last = evaluation.hours or (None, None)
    return {
        "schema": SCHEMA,
        "experiment": evaluation.experiment,
        "title": evaluation.title,
        "description": experiment.description,
        "hypothesis": experiment.hypothesis,
        "owner": experiment.owner,
        "tags": list(experiment.tags),
        "archived": experiment.archived,
        "version": evaluation.version,
        "timezone": evaluation.timezone,
        "evaluated": format_timestamp(evaluation.at),
        "state": evaluation.state,
        "data": {
            "first_hour": _format_hour(first),
            "last_hour": _format_hour(last),
            "final_hour": _format_hour(evaluation.final_to),
            "rows": evaluation.rows,
            "parts": evaluation.parts,
            "dropped": evaluation.dropped,
            "digest": evaluation.digest,
        },
        "users": {"total": evaluation.users, "planned": evaluation.planned, "per_day": evaluation.per_day},
        "arms": [
            {"arm": a.arm, "planned_share": a.planned, "users": a.users, "share": a.share, "rows": a.rows}
            for a in evaluation.arms
        ],
        "withheld": evaluation.withheld,
        "late_changes": evaluation.late_changes,
        "verdicts": [verdict._asdict() for verdict in evaluation.verdicts],
        "metrics": [_describe_row(row) for row in evaluation.table],
        "slices": [_describe_row(row) | {"slice": row.slice, "share": row.share} for row in evaluation.slices],
        "sample_ratio": None
        if evaluation.ratio is None
        else {
            "alarm": evaluation.ratio.alarm,
            "e_value": evaluation.ratio.e_value,
            "sentence": evaluation.ratio.sentence,
        },
        "sources": [
            {"source": s.source, "state": s.state, "last_hour": _format_hour(s.counted_to), "parts": s.parts,
             "conflicts": s.conflicts, "missing_hours": s.missing}
            for s in evaluation.sources
        ],
        "notes": evaluation.notes,
        "decisions": [describe_decision(one) for one in decisions],
        "annotations": [describe_annotation(one) for one in annotations],
    }  # fmt: skip


def _describe_row(row: MetricRow) -> dict[str, Any]:
    """Return the JSON values of a row, which compares a treatment with the control on one metric.

    `conclusion` is a word such as "better". If there is no conclusion, `reason` says why.
    """
    fields = row._asdict()
    return {name: fields[name] for name in METRIC_FIELDS} | {
        "single_look_low": row.once_low,
        "single_look_high": row.once_high,
        "bound": row.bound,
        "rows": row.rows,
        "conclusion": row.word,
        "reason": row.reason,
    }


def describe_decision(decision: Decision) -> dict[str, Any]:
    """Return a decision as JSON values."""
    return decision._asdict() | {"at": format_timestamp(decision.at)}


def describe_annotation(annotation: Annotation) -> dict[str, Any]:
    """Return an annotation as JSON values."""
    return annotation._asdict() | {"at": format_timestamp(annotation.at), "hour": format_hour(annotation.hour)}


def format_timestamp(at: float) -> str:
    """Format a time, in seconds since 1970, as ISO 8601 in UTC.

    Examples
    --------
    >>> format_timestamp(494529 * 3600.0 + 5.2)
    '2026-06-01T09:00:05Z'
    """
    return f"{datetime.datetime.fromtimestamp(at, datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"


def _format_hour(hour: int | None) -> str | None:
    return None if hour is None else format_hour(hour)
