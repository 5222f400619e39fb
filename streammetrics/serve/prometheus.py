"""What Prometheus scrapes: values by experiment, arm and metric, verdicts and freshness, from the evaluations at hand.

No slices: they are many, and a time series of each is what a page is for.
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
from .store.part_keys import HOUR

__all__ = ["GAUGES", "exposed", "metrics_route"]

OF_ARM = ("experiment", "arm")
OF_ROW = ("experiment", "treatment", "metric")
OF_SOURCE = ("experiment", "source")
GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "streammetrics_value": ("A metric of an arm, of all rows.", (*OF_ARM, "metric")),
    "streammetrics_change": ("The relative difference of a treatment to the control.", OF_ROW),
    "streammetrics_change_low": ("The lower end of its interval, which holds at all looks.", OF_ROW),
    "streammetrics_change_high": ("The upper end.", OF_ROW),
    "streammetrics_guardrail_broken": ("1 if a guardrail is broken.", OF_ROW),
    "streammetrics_users": ("Users of an arm.", OF_ARM),
    "streammetrics_rows": ("Rows of an arm.", OF_ARM),
    "streammetrics_verdict": ("1 for the decision on a treatment.", ("experiment", "treatment", "decision")),
    "streammetrics_sample_ratio_alarm": ("1 if users did not fall to arms as planned.", ("experiment",)),
    "streammetrics_evaluated_seconds": ("When it was read, since 1970.", ("experiment",)),
    "streammetrics_counted_to_seconds": ("The end of the last hour counted, since 1970.", ("experiment",)),
    "streammetrics_source_behind_seconds": ("How far a source is behind what is expected of it.", OF_SOURCE),
    "streammetrics_source_silent": ("1 if a source is silent.", OF_SOURCE),
    "streammetrics_source_parts": ("Parts of a source.", OF_SOURCE),
    "streammetrics_source_late_parts": ("Parts that came late.", OF_SOURCE),
    "streammetrics_source_missing_parts": ("Parts that a source owes: one an hour, at most 24.", OF_SOURCE),
    "streammetrics_source_conflicts": ("Parts that were posted again with other content.", OF_SOURCE),
    "streammetrics_queue": ("What waits to be stored, and what was refused.", ("what",)),
}
"""What is exported: name, meaning, labels."""

COUNTED = ("stored", "same", "conflict", "refused")
Sample = tuple[str, tuple[str, ...], float | None]


class _Collector:
    """Hand the numbers to the library that knows how they are written."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        families = {name: GaugeMetricFamily(name, about, labels=labels) for name, (about, labels) in GAUGES.items()}
        for name, labels, value in self._samples:
            if value is not None:
                families[name].add_metric(labels, value)
        yield from families.values()


def exposed(evaluations: Iterable[Evaluation], queue: Mapping[str, float] | None = None) -> bytes:
    """Return the text that Prometheus reads.

    Parameters
    ----------
    evaluations : iterable of Evaluation
        Of all experiments.
    queue : dict of str to float, optional
        Figures of the queue in front of the store, by what they are.

    Examples
    --------
    >>> text = exposed([Evaluation("ranker", "A new ranker", 1, 1_800_000_000.0, "running")], {"waiting": 3})
    >>> [line for line in text.decode().splitlines() if not line.startswith("#")]
    ['streammetrics_evaluated_seconds{experiment="ranker"} 1.8e+09', 'streammetrics_queue{what="waiting"} 3.0']
    """
    registry = CollectorRegistry()
    registry.register(_Collector(_samples(evaluations, queue or {})))
    return generate_latest(registry)


def metrics_route(board: Any) -> Route:
    """Return the address /metrics, for who may read: Prometheus sends the token of a reader.

    Parameters
    ----------
    board : Board
        Whose evaluations it is of; the queue is that of the application.
    """

    def scraped(request: Request) -> Response:
        ingest = request.app.state.ingest
        queue = {"waiting": ingest.waiting} | {word: getattr(ingest.counts, word) for word in COUNTED}
        return Response(exposed(board.evaluations(), queue), media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", scraped, methods=["GET"])


def _samples(evaluations: Iterable[Evaluation], queue: Mapping[str, float]) -> Iterator[Sample]:
    for found in evaluations:
        for name, labels, value in [*_of_all(found), *_of_rows(found), *_of_sources(found)]:
            yield f"streammetrics_{name}", (found.experiment, *labels), value
    for what, number in queue.items():
        yield "streammetrics_queue", (what,), number


def _of_all(found: Evaluation) -> Iterator[Sample]:
    yield "evaluated_seconds", (), found.at
    yield "counted_to_seconds", (), None if found.hours is None else float((found.hours[1] + 1) * HOUR)
    yield "sample_ratio_alarm", (), None if found.ratio is None else float(found.ratio.alarm)
    for arm in found.arms:
        yield "users", (arm.arm,), arm.users
        yield "rows", (arm.arm,), arm.rows
    for told in found.verdicts:
        yield "verdict", (told.treatment, told.decision), 1.0


def _of_rows(found: Evaluation) -> Iterator[Sample]:
    treatments = {row.treatment for row in found.table}
    controls = [arm.arm for arm in found.arms if arm.arm not in treatments]
    values = {(row.treatment, row.metric): row.value for row in found.table}
    if len(controls) == 1:
        values |= {(controls[0], row.metric): row.control_value for row in found.table}
    for labels, value in values.items():
        yield "value", labels, value
    for row in found.table:
        labels = row.treatment, row.metric
        yield "change", labels, row.change
        yield "change_low", labels, row.low
        yield "change_high", labels, row.high
        if row.role == "guardrail":
            yield "guardrail_broken", labels, float(row.word == "breached")


def _of_sources(found: Evaluation) -> Iterator[Sample]:
    for source in found.sources:
        labels = (source.source,)
        yield "source_behind_seconds", labels, source.behind
        yield "source_silent", labels, float(source.state == "silent")
        yield "source_parts", labels, source.parts
        yield "source_late_parts", labels, source.late
        yield "source_missing_parts", labels, len(source.missing)
        yield "source_conflicts", labels, source.conflicts
