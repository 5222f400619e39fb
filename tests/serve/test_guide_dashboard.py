"""What the guide says of definitions and alerts is what the code takes and sends."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
from kept import Kept
from page_blocks import blocks

from streammetrics.cli.guide import load_pages
from streammetrics.errors import InvalidInputError
from streammetrics.serve.alerts import Alerts, find_faults
from streammetrics.serve.evaluation.evaluation import Evaluation, MetricRow
from streammetrics.serve.evaluation.experiment import Experiment

PAGE = load_pages()["dashboard"]


def test_the_definition_is_one_and_its_metrics_are_those_of_the_worker() -> None:
    text, _ = blocks(PAGE, "toml")
    defined = Experiment.from_toml(text, id="new-ranker")
    (names,) = [line for line in PAGE.splitlines() if line.startswith("['ctr'")]
    assert {*defined.metrics, defined.counts} == set(json.loads(names.replace("'", '"')))
    assert defined.arms == {"old": 0.5, "new": 0.5}


def test_the_shortest_definition_has_the_keys_that_are_required() -> None:
    _, text = blocks(PAGE, "toml")
    assert Experiment.from_toml(text, id="first").metrics == {"ctr": "primary"}
    required = re.findall(r"`(\w+)` \(required\)", PAGE)
    for name in required:
        without = {key: value for key, value in tomllib.loads(text).items() if key != name}
        with pytest.raises(InvalidInputError, match=f"{name}: the definition lacks this key"):
            Experiment.from_dict({"id": "first"} | without)
    assert sorted(required) == ["arms", "control", "primary", "start"]


def test_the_alert_is_what_is_sent() -> None:
    said = json.loads(*blocks(PAGE, "json"))
    row = MetricRow(
        "new",
        "latency_p95",
        "guardrail",
        "low",
        0.02,
        1,
        1.061,
        0.061,
        0.03,
        0.1,
        None,
        None,
        None,
        "breached",
        "",
        9,
        {},
    )
    found = Evaluation("new-ranker", "A new ranker", 1, said["at"], "running", table=[row])
    store = Kept("new-ranker")
    Alerts(store).notify(found, ["http://127.0.0.1:9"])  # nothing is sent: it was not started
    ((_, sent),) = json.loads(*store.alerts["new-ranker"].values())["pending"]
    assert sent == said | {"id": sent["id"]}
    assert list(sent) == list(said)
    assert len(sent["id"]) == len(said["id"])
    for fault in find_faults(found):
        assert f'"{fault.alert}"' in PAGE
