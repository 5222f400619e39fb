"""Metrics are defined once: definitions take their directions from the catalog, and do not contradict it."""

from __future__ import annotations

from pathlib import Path

import pytest
from serve.client import Client
from serve.fakes import DEFINITION, NOW, world
from serve.test_commands import Command, command  # noqa: F401 - a fixture

from streammetrics.errors import InvalidInputError
from streammetrics.serve.app import create_app
from streammetrics.serve.evaluation.experiment import Experiment
from streammetrics.serve.evaluation.metric_catalog import CatalogEntry, MetricCatalog
from streammetrics.serve.settings import ServerSettings

CATALOG = """
[ctr]
description = "Clicks per impression"
owner = "search"
better = "high"

[latency_p95]
description = "95 % of the answers are faster, in ms"
better = "low"
margin = 0.02

[auc]
description = "Area under the ROC curve"
"""
GIVEN = {"id": "rank", "arms": {"a": 1, "b": 1}, "control": "a", "primary": "ctr", "start": "2026-06-01T00"}


def test_directions_come_from_the_catalog() -> None:
    catalog = MetricCatalog.from_toml(CATALOG)
    assert catalog.entries["latency_p95"] == CatalogEntry("95 % of the answers are faster, in ms", "", "low", 0.02)
    found = catalog.apply(Experiment.from_dict(GIVEN | {"guardrails": {"latency_p95": 0.01}, "model": ["auc"]}))
    assert found.better == {"ctr": "high", "latency_p95": "low"}
    assert catalog.apply(found) == found


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"primary": "ctr2"}, "ctr2: expected metrics of the catalog"),
        ({"better": {"ctr": "low"}}, "better: expected 'high' for ctr"),
        ({"guardrails": {"latency_p95": 0.03}}, "at most 0.02 for latency_p95"),
    ],
)
def test_what_contradicts_the_catalog_is_refused(more: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        MetricCatalog.from_toml(CATALOG).apply(Experiment.from_dict(GIVEN | more))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "not valid TOML"),
        ("ctr = 1", "ctr: expected a table"),
        ("[ctr]", "ctr.description: expected a sentence"),
        ('[ctr]\ndescription = "x"\nbetter = "up"', "ctr.better: expected"),
        ('[ctr]\ndescription = "x"\nmargin = -1', "ctr.margin: expected a number"),
        ('[ctr]\ndescription = "x"\ncolour = 1', "ctr.colour: expected the keys"),
        ("[ctr]\ndescription = 1", "ctr.description: expected a string"),
    ],
)
def test_what_is_no_catalog_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        MetricCatalog.from_toml(text)


def test_posted_definitions_are_checked_and_completed() -> None:
    here = world()
    settings = ServerSettings(clock=lambda: NOW, catalog=MetricCatalog.from_toml(CATALOG))
    with Client(create_app(*here[:2], settings), authorization=f"Bearer {here.owner}") as client:
        assert client.post("/v1/experiments/new", json=DEFINITION).status_code == 201
        assert client.get("/v1/experiments/new").json()["better"] == {"ctr": "high"}
        assert client.post("/v1/experiments/new", json=DEFINITION).json() == {"version": 1, "changes": []}
        answer = client.post("/v1/experiments/other", json=DEFINITION | {"primary": "rate"})
        assert (answer.status_code, "of the catalog" in answer.json()["error"]) == (422, True)


def test_a_command_checks_definitions_before_they_are_used(tmp_path: Path, command: Command) -> None:  # noqa: F811
    folder, catalog = tmp_path / "experiments", tmp_path / "metrics.toml"
    folder.mkdir()
    catalog.write_text(CATALOG)
    good = 'arms = {a = 1, b = 1}\ncontrol = "a"\nprimary = "ctr"\nstart = "2026-06-01T00"\n'
    (folder / "one.toml").write_text(good)
    assert command("serve", "check", folder, "--metrics", catalog)[:2] == (0, "1 valid, 0 not valid\n")
    (folder / "two.toml").write_text(good.replace("ctr", "cvr"))
    ran = command("serve", "check", folder, "--metrics", catalog)
    assert ran[:2] == (1, "1 valid, 1 not valid\n")
    assert "two.toml: cvr: expected metrics of the catalog" in ran.err
    assert command("serve", "check", folder).code == 0
    catalog.write_text("[ctr]")
    assert "ctr.description" in command("serve", "check", folder, "--metrics", catalog).err
    assert command("serve", "check", tmp_path / "none").code == 2
