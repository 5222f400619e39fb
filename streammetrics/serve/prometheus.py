"""Prometheus metrics of experiments: values by arm and metric, verdicts and freshness, from the last evaluations.

Slices are not exported, because they would create too many time series.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .evaluation.evaluation import Evaluation
from .part_keys import HOUR

__all__ = ["GAUGES", "build_metrics_route", "render_gauges"]

ARM_LABELS = ("experiment", "arm")
TREATMENT_LABELS = ("experiment", "treatment", "metric")
SOURCE_LABELS = ("experiment", "source")
GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "streammetrics_value": ("The value of a metric in an arm, over all rows.", (*ARM_LABELS, "metric")),
    "streammetrics_change": ("The relative difference between a treatment and the control.", TREATMENT_LABELS),
    "streammetrics_change_low": ("The lower limit of the always-valid interval of the difference.", TREATMENT_LABELS),
    "streammetrics_change_high": ("The upper limit of the always-valid interval of the difference.", TREATMENT_LABELS),
    "streammetrics_guardrail_breached": ("1 if a guardrail is breached.", TREATMENT_LABELS),
    "streammetrics_users": ("The number of users in an arm.", ARM_LABELS),
    "streammetrics_rows": ("The number of rows in an arm.", ARM_LABELS),
    "streammetrics_verdict": ("1 for the current decision on a treatment.", ("experiment", "treatment", "decision")),
    "streammetrics_sample_ratio_alarm": (
        "1 if the arms do not have the planned shares of users (sample ratio mismatch).",
        ("experiment",),
    ),
    "streammetrics_evaluated_seconds": ("The time of the last evaluation, in seconds since 1970.", ("experiment",)),
    "streammetrics_counted_to_seconds": ("The end of the last counted hour, in seconds since 1970.", ("experiment",)),
    "streammetrics_source_behind_seconds": (
        "The seconds by which the next part of a source is overdue.",
        SOURCE_LABELS,
    ),
    "streammetrics_source_silent": ("1 if a source is silent.", SOURCE_LABELS),
    "streammetrics_source_parts": ("The number of parts that a source has posted.", SOURCE_LABELS),
    "streammetrics_source_late_parts": ("The number of parts that arrived late.", SOURCE_LABELS),
    "streammetrics_source_missing_parts": ("The number of hours without a part, at most 24.", SOURCE_LABELS),
    "streammetrics_source_conflicts": (
        "The number of parts that were posted again with different content.",
        SOURCE_LABELS,
    ),
    "streammetrics_queue": ("The number of parts by outcome, or waiting to be stored.", ("what",)),
    "streammetrics_failures": ("The number of parts that were refused or failed, by class of the error.", ("error",)),
}
"""The exported metrics by name, each with its help text and the names of its labels."""

INGEST_OUTCOMES = ("stored", "same", "conflict", "refused", "failed")
GaugeSample = tuple[str, tuple[str, ...], float | None]


class _GaugeCollector:
    """An adapter that passes the metric values to the Prometheus client library."""

    def __init__(self, samples: Iterable[GaugeSample]) -> None:
        self.collect_samples = samples

    def collect(self) -> Iterator[Metric]:
        families = {name: GaugeMetricFamily(name, about, labels=labels) for name, (about, labels) in GAUGES.items()}
        for name, labels, value in self.collect_samples:
            if value is not None:
                families[name].add_metric(labels, value)
        yield from families.values()


def render_gauges(
    evaluations: Iterable[Evaluation],
    queue: Mapping[str, float] | None = None,
    failures: Mapping[str, float] | None = None,
) -> bytes:
    """Return all metrics in the Prometheus text format.

    See `GAUGES` for their names and labels.

    Parameters
    ----------
    evaluations : iterable of Evaluation
        The last evaluations of all experiments.
    queue : dict of str to float, optional
        The number of waiting frames (posted parts), and the number of frames with each outcome.
    failures : dict of str to float, optional
        The number of frames that were refused or failed, by error class.

    Examples
    --------
    >>> text = render_gauges([Evaluation("ranker", "A new ranker", 1, 1_800_000_000.0, "running")], {"waiting": 3})
    >>> [line for line in text.decode().splitlines() if not line.startswith("#")]
    ['streammetrics_evaluated_seconds{experiment="ranker"} 1.8e+09', 'streammetrics_queue{what="waiting"} 3.0']
    """
    registry = CollectorRegistry()
    registry.register(_GaugeCollector(collect_samples(evaluations, queue or {}, failures or {})))
    return generate_latest(registry)


def build_metrics_route(board: Any) -> Route:
    """Return the route /metrics, from which Prometheus reads the metrics. Requests need a reader's token.

    Parameters
    ----------
    board : Board
        The board with the last evaluations.
    """

    def serve_gauges(request: Request) -> Response:
        ingest = request.app.state.ingest
        queue = {"waiting": ingest.waiting} | {word: getattr(ingest.counts, word) for word in INGEST_OUTCOMES}
        text = render_gauges(board.evaluations(), queue, ingest.counts.reasons)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", serve_gauges, methods=["GET"])


def collect_samples(
    evaluations: Iterable[Evaluation], queue: Mapping[str, float], failures: Mapping[str, float]
) -> Iterator[GaugeSample]:
    for evaluation in evaluations:
        for name, labels, value in [
            *_experiment_samples(evaluation),
            *_metric_samples(evaluation),
            *_source_samples(evaluation),
        ]:
            yield f"streammetrics_{name}", (evaluation.experiment, *labels), value
    for what, number in queue.items():
        yield "streammetrics_queue", (what,), number
    for name, number in failures.items():
        yield "streammetrics_failures", (name,), number


def _experiment_samples(evaluation: Evaluation) -> Iterator[GaugeSample]:
    yield "evaluated_seconds", (), evaluation.at
    yield "counted_to_seconds", (), None if evaluation.hours is None else float((evaluation.hours[1] + 1) * HOUR)
    yield "sample_ratio_alarm", (), None if evaluation.ratio is None else float(evaluation.ratio.alarm)
    for arm in evaluation.arms:
        yield "users", (arm.arm,), arm.users
        yield "rows", (arm.arm,), arm.rows
    for verdict in evaluation.verdicts:
        yield "verdict", (verdict.treatment, verdict.decision), 1.0


def _metric_samples(evaluation: Evaluation) -> Iterator[GaugeSample]:
    treatments = {row.treatment for row in evaluation.table}
    controls = [arm.arm for arm in evaluation.arms if arm.arm not in treatments]
    values = {(row.treatment, row.metric): row.value for row in evaluation.table}
    if len(controls) == 1:
        values |= {(controls[0], row.metric): row.control_value for row in evaluation.table}
    for labels, value in values.items():
        yield "value", labels, value
    for row in evaluation.table:
        labels = row.treatment, row.metric
        yield "change", labels, row.change
        yield "change_low", labels, row.low
        yield "change_high", labels, row.high
        if row.role == "guardrail":
            yield "guardrail_breached", labels, float(row.word == "breached")


def _source_samples(evaluation: Evaluation) -> Iterator[GaugeSample]:
    for source in evaluation.sources:
        labels = (source.source,)
        yield "source_behind_seconds", labels, source.behind
        yield "source_silent", labels, float(source.state == "silent")
        yield "source_parts", labels, source.parts
        yield "source_late_parts", labels, source.late
        yield "source_missing_parts", labels, len(source.missing)
        yield "source_conflicts", labels, source.conflicts
