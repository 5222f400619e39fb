"""What the guide says of definitions and alerts is what the code takes and sends."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
import typer
from kept import Kept
from page_blocks import blocks

from streammetrics.cli.guide import load_pages
from streammetrics.cli.serve_commands import serve
from streammetrics.errors import InvalidInputError
from streammetrics.serve.alerts import Alerts, find_faults
from streammetrics.serve.api.results import build_results
from streammetrics.serve.evaluation.evaluation import Evaluation, MetricRow
from streammetrics.serve.evaluation.experiment import Experiment
from streammetrics.serve.evaluation.metric_catalog import MetricCatalog

PAGE = load_pages()["dashboard"]


def test_the_definition_is_one_and_its_metrics_are_those_of_the_worker() -> None:
    text = blocks(PAGE, "toml")[0]
    defined = Experiment.from_toml(text, id="new-ranker")
    (names,) = [line for line in PAGE.splitlines() if line.startswith("['ctr'")]
    assert {*defined.metrics, defined.counts} == set(json.loads(names.replace("'", '"')))
    assert defined.arms == {"old": 0.5, "new": 0.5}


def test_the_shortest_definition_has_the_keys_that_are_required() -> None:
    text = next(one for one in blocks(PAGE, "toml") if "public = true" in one)
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


def test_the_catalog_fits_the_definition() -> None:
    (text,) = [one for one in blocks(PAGE, "toml") if "[ctr]" in one]
    assert list(MetricCatalog.from_toml(text).entries) == ["ctr", "latency_p95"]


def test_every_option_has_a_variable_and_the_page_names_it() -> None:
    declared = typer.main.get_command(serve)
    options = [one for one in declared.params if "completion" not in str(one.name) and one.name != "help"]
    variables = [one.envvar for one in options]
    assert all(variables), [one.name for one in options if not one.envvar]
    page = load_pages()["production"]
    named = set(re.findall(r"`(STREAMMETRICS_[A-Z_]+)`", page)) - {"STREAMMETRICS_TOKEN"}
    assert {str(name) for name in variables} == named
    used = re.findall(r"^(STREAMMETRICS_\w+)=", page, flags=re.M)
    assert set(used) <= named


def test_fields_of_results_are_those_of_the_page() -> None:
    (section,) = [text for text in PAGE.split("\n## ") if text.startswith("Read results")]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    experiment = Experiment("e", {"a": 1, "b": 1}, "a", "ctr", 494529)
    assert named | {"schema"} == set(build_results(Evaluation("e", "E", 1, 0.0, "running"), experiment, [], []))
