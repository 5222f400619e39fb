"""Owners accept, reject and void parts and close sources with a reason, by page and API; every answer is true."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import posted
import pytest
from serve.client import Client
from serve.fakes import DEFINITION, NOW
from serve.test_journal import World

from streammetrics.serve.dashboard import build_dashboard
from streammetrics.serve.evaluation.experiment import Experiment
from streammetrics.serve.evaluation.totals import Totals
from streammetrics.serve.part_keys import PartKey, format_hour
from streammetrics.serve.settings import ServerSettings
from streammetrics.serve.store import open_store

API, PAGE = "/v1/experiments/rank", "/experiments/rank"
KEY = PartKey("rank", "job", posted.FIRST + 9)
HOUR = format_hour(KEY.hour)
PART = {"source": "job", "hour": f"{HOUR}:00", "seq": "0"}
"""As a form of a browser has it."""
CLOSING = {"source": "job", "hour": "2026-06-01T18:00"}
REASON = "rows of a test"
LATER = NOW + 30 * 86_400.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    definition = Experiment.from_dict(
        {"id": "rank"} | DEFINITION | {"model": [], "better": {"ctr": "high"}, "sources": {"job": 1.0}}
    )
    with open_store(tmp_path / "a.db") as store:
        store.define("rank", json.dumps(definition.to_dict()), by="ann", at=NOW)
        store.put([posted.part(KEY, seed) for seed in (0, 1, 2)])
        with Client(build_dashboard(store, ServerSettings(clock=lambda: NOW), every=0.01)) as client:
            one = World(store, client)
            one.log_in(one.owner)
            yield one


def submit(world: World, action: str, **fields: str) -> Any:
    return world.client.post(f"{PAGE}/{action}", data={"form": world.form()} | fields)


def merge_days(world: World) -> None:
    Totals(world.store).compact("rank", now=LATER)
    world.store.close_conflicts("rank", LATER)


def states(world: World) -> list[str]:
    return [entry.state for entry in world.store.ledger("rank")]


def last_entry(world: World) -> tuple[str, str]:
    entry = world.store.audits("rank")[-1]
    return entry.by, entry.what


def test_an_owner_corrects_the_data_from_the_page(world: World) -> None:
    assert states(world) == ["current", "conflict", "conflict"]
    answer = submit(world, "conflicts/2", decision="accept", reason=REASON)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PAGE}#data")
    assert states(world) == ["refused", "current", "conflict"]
    assert last_entry(world)[1].endswith(f": {REASON}")
    assert "has conflicts; accept or reject each of them first" in submit(world, "voided", **PART, reason=REASON).text
    assert submit(world, "conflicts/3", decision="reject", reason=REASON).status_code == 303
    assert states(world) == ["refused", "current", "refused"]
    answer = submit(world, "voided", **PART, reason=REASON)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PAGE}#voided")
    assert states(world) == ["refused", "refused", "refused"]
    assert last_entry(world) == ("eve", f"voided {posted.frame(1)[1][:12]} of rank/{HOUR}/job-0: {REASON}")
    answer = submit(world, "closed", **CLOSING, reason=REASON)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PAGE}#closed")
    assert last_entry(world) == ("eve", f"closed job from 2026-06-01T18 on: {REASON}")
    definition = json.loads(world.store.definitions()["rank"].text)
    assert (definition["closed"], definition["sources"]) == ({"job": "2026-06-01T18"}, {"job": 1.0})
    assert world.store.put([posted.part(KEY, 3)]) == ["stored"]


@pytest.mark.parametrize(
    ("action", "fields", "code", "said"),
    [
        ("conflicts/2", {"decision": "accept"}, 400, "with a reason"),
        ("conflicts/2", {"decision": "reject"}, 400, "with a reason"),
        ("conflicts/9", {"decision": "accept", "reason": REASON}, 409, "has no conflict 9"),
        ("voided", PART, 422, "reason: expected a text of 1 to 500"),
        ("voided", PART | {"reason": REASON, "source": "web"}, 422, f"there is no part rank/{HOUR}/web-0"),
        ("voided", PART | {"reason": REASON, "hour": ""}, 422, "hour: expected an hour in UTC"),
        ("voided", {"reason": REASON}, 422, "source: expected at most 100 letters"),
        ("closed", CLOSING, 422, "reason: expected a text of 1 to 500"),
        (
            "closed",
            CLOSING | {"reason": REASON, "source": "web"},
            422,
            r"a source of the definition \(job\), found 'web'",
        ),
        ("closed", CLOSING | {"reason": REASON, "hour": "soon"}, 422, "hour: expected an hour in UTC"),
    ],
)
def test_wrong_corrections_change_nothing(
    world: World, action: str, fields: dict[str, str], code: int, said: str
) -> None:
    answer = submit(world, action, **fields)
    assert answer.status_code == code
    assert re.search(said, answer.text), answer.text
    assert states(world) == ["current", "conflict", "conflict"]
    assert len(world.store.history("rank")) == 1


def test_readers_correct_nothing(world: World) -> None:
    world.log_in(world.reader)
    token = world.form()
    for action in ("voided", "closed", "conflicts/2"):
        fields = PART | {"reason": REASON, "decision": "accept", "form": token}
        assert world.client.post(f"{PAGE}/{action}", data=fields).status_code == 403
    text = world.client.get(PAGE).text
    assert "void part" not in text
    assert "close source" not in text
    for kind in ("voided", "closed"):
        assert (
            world.client.post(f"{API}/{kind}", json=PART | {"reason": REASON}, headers=world.reader).status_code == 401
        )
    assert states(world) == ["current", "conflict", "conflict"]


def test_programs_correct_with_a_reason(world: World) -> None:
    call = world.client

    def post(path: str, **given: Any) -> Any:
        return call.post(f"{API}/{path}", headers=world.owner, **given)

    for path in ("conflicts/2/accept", "conflicts/2/reject"):
        assert "reason: expected a text" in post(path).json()["error"]
    assert states(world) == ["current", "conflict", "conflict"]
    assert post(f"conflicts/2/accept?reason={REASON}").json() == {"accepted": 2}
    assert post(f"conflicts/3/reject?reason={REASON}").json() == {"rejected": 3}
    fields = {"source": "job", "hour": HOUR}
    voided = call.request("DELETE", f"{API}/states?hour={HOUR}&source=job", headers=world.owner)
    assert (voided.status_code, "reason: expected a text" in voided.text) == (400, True)
    assert post("voided", json=fields).status_code == 422
    assert post("voided", json=fields | {"reason": REASON}).json() == {"voided": KEY.text}
    closed = post("closed", json=fields | {"reason": REASON})
    assert (closed.status_code, closed.json()) == (201, {"closed": "job", "hour": HOUR, "version": 2})
    assert states(world) == ["refused"] * 3


def test_answers_after_the_merge_of_the_day_are_true(world: World) -> None:
    """What can no longer be corrected is said on the page, with the reason; nothing waits for an owner any more."""
    assert "Changes that came too late" not in world.client.get(PAGE).text
    merge_days(world)
    assert states(world) == ["folded", "late", "late"]
    content = posted.frame(3)[0]
    late = world.client.post(f"{API}/states?hour={HOUR}&source=job", content=content, headers=world.owner)
    assert (late.status_code, late.json()["state"]) == (409, "late")
    assert "the parts of its day can no longer be replaced (correct_within_days)" in late.json()["error"]
    assert states(world) == ["folded", "late", "late", "late"]
    for number in (2, 4):
        accepted = submit(world, f"conflicts/{number}", decision="accept", reason=REASON)
        assert (accepted.status_code, "already merged into its day" in accepted.text) == (409, True)
    rejected = submit(world, "conflicts/2", decision="reject", reason=REASON)
    assert (rejected.status_code, "has no open conflict 2" in rejected.text) == (409, True)
    voided = submit(world, "voided", **PART, reason=REASON)
    assert (voided.status_code, "cannot be voided any more" in voided.text) == (422, True)
    assert submit(world, "closed", **CLOSING, reason=REASON).status_code == 303
    text = world.client.get(PAGE).text
    assert "Changes that came too late" in text
    assert "3 parts were posted again with different content, and no owner accepted them" in text
    assert world.store.conflicts("rank") == []
    # Rows that are missing can still be added, as the page says.
    assert world.store.put([posted.part(KEY._replace(seq=1), 3)]) == ["stored"]
