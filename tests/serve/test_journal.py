"""Decisions, annotations, results and the audit log: what is recorded stays as it was, and only owners record."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from serve.client import Client
from serve.evaluations import EVIL, START, running, ship
from serve.fakes import DEFINITION, HOUR, NOW, arms
from serve.sites import site_of
from serve.test_alerts import Post

from streammetrics.reports.charts import Rule
from streammetrics.serve.alerts import Alerts
from streammetrics.serve.api.auth import OWNER, READER, issue_token
from streammetrics.serve.api.results import build_results
from streammetrics.serve.dashboard import build_dashboard
from streammetrics.serve.evaluation.experiment import Experiment
from streammetrics.serve.journal import Journal
from streammetrics.serve.page.history import ExperimentHistory, ShownAnnotation
from streammetrics.serve.page.page_data import build_page
from streammetrics.serve.page.view import View
from streammetrics.serve.settings import ServerSettings
from streammetrics.serve.store import Store, open_store
from streammetrics.serve.store.journal import Annotation, Decision

API = "/v1/experiments/rank"
REASON = "clicks rose, and latency held"
TAGGED = DEFINITION | {"tags": ["search", "ads"], "owner": "ann", "hypothesis": "Users click more.", "title": "Rank"}


class World:
    """A dashboard with a store, an experiment and a client."""

    def __init__(self, store: Store, client: Client) -> None:
        self.store, self.client = store, client
        self.owner, self.reader = (
            {"authorization": f"Bearer {issue_token(store, scope, name, by='test', at=0.0)}"}
            for scope, name in ((OWNER, "eve"), (READER, "bob"))
        )

    def log_in(self, headers: dict[str, str]) -> None:
        token = headers["authorization"].partition(" ")[2]
        self.client.cookies.clear()
        assert self.client.post("/login", data={"token": token}).status_code == 303

    def wait_for_evaluation(self) -> None:
        """Wait until the first evaluation is shown, so that two requests see the same one."""
        deadline = time.monotonic() + 60
        while not self.client.get(f"{API}/results", headers=self.reader).json()["withheld"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def form(self) -> str:
        found = re.search(r'name="form" value="(\w+)"', self.client.get("/experiments/rank").text)
        assert found is not None
        return found[1]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_store(tmp_path / "a.db") as store:
        store.define("rank", json.dumps(Experiment.from_dict({"id": "rank"} | TAGGED).to_dict()), by="ann", at=NOW)
        with Client(build_dashboard(store, ServerSettings(clock=lambda: NOW), every=0.01)) as client:
            yield World(store, client)


# -- decisions -----------------------------------------------------------------------------------------------------------


@pytest.mark.cpu_limit(3)  # it may be the first that loads templates and kernels
def test_a_decision_keeps_the_page_as_it_was(world: World) -> None:
    call = world.client
    posted = call.post(f"{API}/states?hour={HOUR}&source=web", content=arms().to_bytes(), headers=world.owner)
    assert posted.status_code == 201
    made = call.post(f"{API}/decisions", json={"arm": "B", "reason": REASON}, headers=world.owner)
    assert made.status_code == 201
    expected = {"number": 1, "at": "2026-06-01T20:00:00Z", "by": "eve", "arm": "B", "reason": REASON, "version": 1}
    assert made.json() | {"verdict": ""} == expected | {"verdict": ""}
    assert call.get(f"{API}/decisions", headers=world.reader).json() == [made.json()]
    frozen = call.get("/experiments/rank/decisions/1", headers=world.reader)
    assert f"eve decided for B: {REASON}" in frozen.text
    nonce = re.search(r"style-src 'self' 'nonce-([^']+)'", frozen.headers["content-security-policy"])
    assert nonce is not None
    assert f'<style nonce="{nonce[1]}">' in frozen.text
    assert not re.search(r"<script|<form|<link|data-live", frozen.text)
    world.store.define("rank", json.dumps(Experiment.from_dict({"id": "rank"} | TAGGED | {"title": "New"}).to_dict()),
                       by="ann", at=NOW)  # fmt: skip
    again = call.get("/experiments/rank/decisions/1", headers=world.reader)
    assert again.text.replace(again.headers["content-security-policy"], "") != ""
    assert re.sub(r'nonce="[^"]*"', "", again.text) == re.sub(r'nonce="[^"]*"', "", frozen.text)
    page = call.get("/experiments/rank", headers=world.reader).text
    assert "Decided: all users get <bdi>B</bdi>." in page
    assert "decided" in call.get("/", headers=world.reader).text
    assert call.get("/experiments/rank/decisions/2", headers=world.reader).status_code == 404


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"arm": "C", "reason": REASON}, "arm: expected one of A, B, found 'C'"),
        ({"arm": ["A"], "reason": REASON}, "arm: expected one of A, B"),
        ({"arm": "B"}, "reason: expected a text of 1 to 2,000"),
        ({"arm": "B", "reason": " \n"}, "reason: expected a text"),
        ({"arm": "B", "reason": "x" * 2001}, "reason: expected a text"),
        ([], "expected an object"),
    ],
)
def test_a_decision_names_an_arm_and_a_reason(world: World, fields: Any, words: str) -> None:
    answer = world.client.post(f"{API}/decisions", json=fields, headers=world.owner)
    assert (answer.status_code, words in answer.json()["error"]) == (422, True)
    assert world.store.decisions("rank") == []


def test_a_decision_says_what_was_changed_after_the_first_data(tmp_path: Path) -> None:
    change = "primary: changed from auc to ctr (version 2, by ann, 2026), after the first data; accepted: a wrong log"
    alerts = SimpleNamespace(announce_decision=lambda *decided: None)
    evaluation = replace(ship(), experiment="rank", late_changes=[change])
    board = SimpleNamespace(evaluation=lambda name: evaluation, alerts=alerts, mark_changed=lambda name: None)
    with open_store(tmp_path / "a.db") as store:
        journal = Journal(store, board, lambda one, sentence: sentence, lambda: NOW)
        arms = {"arms": {"control": 1, "treatment": 1}, "control": "control"}
        one = Experiment.from_dict({"id": "rank"} | TAGGED | arms)
        journal.decide(one, "treatment", REASON, by="eve")
        (decision,) = store.decisions("rank")
    assert decision.verdict == f"{evaluation.verdicts[0].sentence} {change}."


def test_only_owners_decide_and_annotate(world: World) -> None:
    for kind, fields in (("decisions", {"arm": "B", "reason": REASON}), ("annotations", {"hour": HOUR, "text": "x"})):
        assert world.client.post(f"{API}/{kind}", json=fields, headers=world.reader).status_code == 401
        assert world.client.post(f"{API}/{kind}", json=fields).status_code == 401
        world.log_in(world.reader)
        assert world.client.post(f"/experiments/rank/{kind}", data=fields | {"form": "0"}).status_code == 403
        world.log_in(world.owner)
        assert world.client.post(f"/experiments/rank/{kind}", data=fields | {"form": "0"}).status_code == 403
        world.client.cookies.clear()
    assert world.store.decisions("rank") == world.store.annotations("rank") == []


def test_forms_of_the_page_record(world: World) -> None:
    world.log_in(world.owner)
    form = world.form()
    decided = world.client.post("/experiments/rank/decisions", data={"form": form, "arm": "A", "reason": "no effect"})
    assert (decided.status_code, decided.headers["location"]) == (303, "/experiments/rank#decisions")
    remark = {"form": form, "hour": "2026-06-01T09:30", "text": "release 4.2"}
    assert world.client.post("/experiments/rank/annotations", data=remark).status_code == 303
    assert [(d.by, d.arm) for d in world.store.decisions("rank")] == [("eve", "A")]
    assert [(a.hour, a.text) for a in world.store.annotations("rank")] == [(494529, "release 4.2")]
    late = world.client.post("/experiments/rank/annotations", data=remark | {"hour": "2026-07-01T09:00"})
    assert (late.status_code, "in the future" in late.text) == (422, True)


# -- results -------------------------------------------------------------------------------------------------------------


def test_results_have_a_stable_schema() -> None:
    """Programs read these names: none may be renamed or removed without a new version of the schema."""
    evaluation = replace(ship(), experiment="rank")
    decision, remark = Decision(1, NOW, "eve", "treatment", REASON, 1, "Ship."), Annotation(1, NOW, "eve", 494529, "x")
    found = build_results(evaluation, Experiment.from_dict({"id": "rank"} | TAGGED), [decision], [remark])
    assert json.loads(json.dumps(found)) == found
    assert found["schema"] == 1
    assert " ".join(found) == (
        "schema experiment title description hypothesis owner tags archived version timezone evaluated state data users "
        "arms withheld late_changes verdicts metrics slices sample_ratio sources notes decisions annotations"
    )
    inner = {name: " ".join(found[name]) for name in ("data", "users", "sample_ratio") if found[name]}
    assert inner["data"] == "first_hour last_hour final_hour rows parts dropped digest"
    assert inner["users"] == "total planned per_day"
    lists = {name: " ".join(found[name][0]) for name in found if isinstance(found[name], list) and name not in TEXTS}
    metric = (
        "treatment metric role better margin control_value value change low high single_look_low single_look_high "
        "bound rows conclusion reason"
    )
    assert lists == {
        "arms": "arm planned_share users share rows",
        "verdicts": "treatment decision sentence more_users more_days",
        "metrics": metric,
        "slices": f"{metric} slice share",
        "sources": "source state last_hour parts conflicts missing_hours",
        "decisions": "number at by arm reason version verdict",
        "annotations": "number at by hour text",
    }
    assert found["metrics"][0]["change"] == evaluation.table[0].change


TEXTS = ("tags", "notes", "late_changes")


def test_results_are_for_programs_and_for_people(world: World) -> None:
    world.wait_for_evaluation()
    by_token = world.client.get(f"{API}/results", headers=world.reader)
    assert (by_token.status_code, by_token.json()["hypothesis"]) == (200, "Users click more.")
    assert world.client.get("/experiments/rank/results.json", headers=world.reader).json() == by_token.json()
    assert world.client.get(f"{API}/results").status_code == 401
    (row,) = world.client.get("/v1/experiments", headers=world.reader).json()
    assert (row["experiment"], row["tags"], row["decided"]) == ("rank", ["search", "ads"], None)
    assert world.client.get("/v1/experiments").status_code == 401


# -- the audit log -------------------------------------------------------------------------------------------------------


def test_the_audit_log_is_a_page_and_json(world: World) -> None:
    world.client.post(f"{API}/decisions", json={"arm": "B", "reason": EVIL}, headers=world.owner)
    rows = world.client.get(f"{API}/audit", headers=world.reader).json()
    assert [(row["by"], row["change"]) for row in rows] == [
        ("ann", "defined version 1"),
        ("eve", f"decided for B: {EVIL}"),
    ]
    page = world.client.get("/experiments/rank/audit", headers=world.reader)
    assert page.status_code == 200
    assert "defined version 1" in page.text
    assert "<img src=x" not in page.text
    assert world.client.get("/experiments/rank/audit", headers={"accept": "text/html"}).status_code == 303


# -- alerts --------------------------------------------------------------------------------------------------------------


def test_webhooks_hear_of_verdicts_and_of_decisions_once(world: World) -> None:
    evaluation, post = replace(ship(), experiment="rank"), Post(wanted=2)
    alerts = Alerts(world.store, send=post, clock=lambda: NOW)
    alerts.take("rank", world.store.hold_leases("one server", 60.0)["rank"])
    alerts.notify(evaluation, ["http://a"])
    alerts.notify(replace(evaluation, at=evaluation.at + 5), ["http://a"])
    decision = Decision(1, NOW, "eve", "treatment", REASON, 1, "Ship.")
    alerts.announce_decision(evaluation, decision, ["http://a"])
    alerts.notify(replace(evaluation, at=evaluation.at + 9), ["http://a"])
    alerts.start()
    assert post.enough.wait(10)
    alerts.stop()
    assert post.said == [("decided", "begun"), ("decision recorded", "over")]
    assert post.taken[0][1]["about"] == {"treatment": "treatment", "verdict": "ship"}
    assert REASON in post.taken[1][1]["text"]


# -- charts and lists ----------------------------------------------------------------------------------------------------


def test_charts_show_annotations_in_their_range() -> None:
    remarks = [
        ShownAnnotation(START + 30, "Tue", "eve", "release"),
        ShownAnnotation(START - 9999, "long ago", "eve", "x"),
    ]
    page = build_page(
        running(), ExperimentHistory({"arms": {"control": 1, "treatment": 1}}, annotations=remarks), View()
    )
    assert page.charts
    for chart in page.charts:
        lines = [one for one in chart.layers if isinstance(one, Rule) and one.name == "Tue: release"]
        assert len(lines) == 1
        assert "long ago" not in chart.summary
    windows = next(one for one in page.charts if one.title.startswith("Each day"))
    first = min(p.hour for p in running().days)
    assert windows.layers[0].x[0] == (START + 30 - first) / 24 - 0.5


def test_experiments_are_found_by_words_tags_and_archive(world: World) -> None:
    archived = Experiment.from_dict({"id": "old"} | TAGGED | {"title": "Old one", "archived": True, "tags": ["ads"]})
    world.store.define("old", json.dumps(archived.to_dict()), by="ann", at=NOW)

    def found(query: str) -> list[str]:
        text = world.client.get(f"/{query}", headers=world.reader).text
        return re.findall(r'<a href="/experiments/([\w-]+)">', text)

    assert found("") == found("?q=users+CLICK") == found("?tag=search") == found("?q=search+rank") == ["rank"]
    assert found("?archived=1") == found("?archived=1&tag=ads") == ["old"]
    assert found("?q=nothing") == found("?tag=other") == []
    assert "No experiment matches" in world.client.get("/?q=nothing", headers=world.reader).text


def test_texts_of_people_are_texts() -> None:
    from serve.test_page import asked

    with asked(site_of()) as client:
        assert EVIL not in client.get("/experiments/weird").text + client.get("/").text
