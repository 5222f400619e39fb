"""The numbers that Prometheus reads are those of the evaluations, and the recipe for Grafana asks for no others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streammetrics.serve.evaluation.evaluation import (
    ArmRow,
    Evaluation,
    MetricRow,
    RatioCheck,
    SourceStatus,
    TreatmentVerdict,
)
from streammetrics.serve.grafana import recipe
from streammetrics.serve.prometheus import GAUGES, render_gauges


def row(treatment: str, metric: str, role: str, word: str, **other: Any) -> MetricRow:
    given = MetricRow(
        treatment, metric, role, "high", 0.02, 0.5, 0.55, 0.1, 0.05, 0.15, None, None, None, word, "", 9, {}
    )
    return given._replace(**other)


FOUND = Evaluation(
    "ranker",
    "A ranker",
    3,
    1_800_000_000.5,
    "running",
    hours=(100, 200),
    verdicts=[TreatmentVerdict("b", "ship", "Ship b."), TreatmentVerdict("c", "do not", "Do not.")],
    table=[
        row("b", "ctr", "primary", "better"),
        row("b", "latency", "guardrail", "held"),
        row("c", "ctr", "primary", "unclear", value=0.6, change=None),
        row("c", "latency", "guardrail", "breached"),
    ],
    slices=[row("b", "ctr", "primary", "better", slice={"country": "br"})],
    arms=[
        ArmRow("a", 0.5, 100.0, 0.5, 1000, 90, 0.5),
        ArmRow("b", 0.25, 50.0, 0.25, 500, 40, 0.55),
        ArmRow("c", 0.25, None, None, 499, 1, 0.6),
    ],
    ratio=RatioCheck(3.0, False, "as planned", {}, {}),
    sources=[SourceStatus("web", 200, 7200.0, 30, 2, ["2026-06-01T09"], 1, 1000, {}, "silent")],
)


def parsed(text: bytes) -> dict[tuple[str, ...], float]:
    """By the parser of Prometheus' own library."""
    return {
        (sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_values_are_those_of_the_evaluation() -> None:
    found = parsed(render_gauges([FOUND], {"waiting": 7, "refused": 2}, {"StoreDownError": 3}))
    e = "experiment=ranker"
    expected = {
        ("streammetrics_value", "arm=a", e, "metric=ctr"): 0.5,
        ("streammetrics_value", "arm=b", e, "metric=ctr"): 0.55,
        ("streammetrics_value", "arm=c", e, "metric=ctr"): 0.6,
        ("streammetrics_change", e, "metric=ctr", "treatment=b"): 0.1,
        ("streammetrics_change_low", e, "metric=ctr", "treatment=b"): 0.05,
        ("streammetrics_change_high", e, "metric=ctr", "treatment=b"): 0.15,
        ("streammetrics_guardrail_breached", e, "metric=latency", "treatment=b"): 0.0,
        ("streammetrics_guardrail_breached", e, "metric=latency", "treatment=c"): 1.0,
        ("streammetrics_users", "arm=a", e): 100.0,
        ("streammetrics_rows", "arm=c", e): 499.0,
        ("streammetrics_verdict", "decision=do not", e, "treatment=c"): 1.0,
        ("streammetrics_sample_ratio_alarm", e): 0.0,
        ("streammetrics_evaluated_seconds", e): 1_800_000_000.5,
        ("streammetrics_counted_to_seconds", e): 201 * 3600.0,
        ("streammetrics_source_behind_seconds", e, "source=web"): 7200.0,
        ("streammetrics_source_silent", e, "source=web"): 1.0,
        ("streammetrics_source_parts", e, "source=web"): 30.0,
        ("streammetrics_source_late_parts", e, "source=web"): 2.0,
        ("streammetrics_source_missing_parts", e, "source=web"): 1.0,
        ("streammetrics_source_conflicts", e, "source=web"): 1.0,
        ("streammetrics_queue", "what=waiting"): 7.0,
        ("streammetrics_queue", "what=refused"): 2.0,
        ("streammetrics_failures", "error=StoreDownError"): 3.0,
    }
    assert expected.items() <= found.items()
    assert {name for name, *_ in expected} == set(GAUGES)


def test_what_is_not_known_and_slices_are_not_there() -> None:
    found = parsed(render_gauges([FOUND]))
    assert ("streammetrics_change", "experiment=ranker", "metric=ctr", "treatment=c") not in found
    assert ("streammetrics_users", "arm=c", "experiment=ranker") not in found
    assert not [key for key in found if "country" in str(key)]


def test_names_of_arms_cannot_break_the_text() -> None:
    evil = 'a"} 1\nstreammetrics_value{x="\\'
    found = parsed(render_gauges([replace(FOUND, arms=[FOUND.arms[0]._replace(arm=evil)])]))
    assert found["streammetrics_users", f"arm={evil}", "experiment=ranker"] == 100.0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: apt-get install prometheus")
def test_prometheus_own_tool_finds_nothing_to_mend() -> None:
    text = render_gauges([FOUND], {"waiting": 7, "refused": 2})
    run = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


def test_without_experiments_it_is_empty_and_valid() -> None:
    assert parsed(render_gauges([])) == {}


def test_the_recipe_asks_for_what_is_exported() -> None:
    dashboard = json.loads(recipe())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [one["query"] for one in dashboard["templating"]["list"]]
    names = set(re.findall(r"streammetrics_\w+", " ".join(asked)))
    assert names <= set(GAUGES)
    assert len(names) >= 12
    for text in asked:
        for name, labels in re.findall(r"(streammetrics_\w+)\{([^}]*)\}", text):
            assert set(re.findall(r"(\w+)=", labels)) <= set(GAUGES[name][1]), text
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            (name,) = re.findall(r"streammetrics_\w+", target["expr"])
            assert used <= set(GAUGES[name][1]), target
    assert "recipe" in dashboard["title"]
