"""The application as a whole: definitions, errors, health, headers, and a real store behind it."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serve.client import Client
from serve.fakes import DEFINITION, HOUR, NOW, Board, World, arms, world
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

import streammetrics as sm
from streammetrics.serve.api.auth import OWNER, hash_token, issue_token
from streammetrics.serve.api.decoder import ThreadDecoder
from streammetrics.serve.app import create_app
from streammetrics.serve.evaluation.totals import Totals
from streammetrics.serve.settings import ServerSettings
from streammetrics.serve.store import StoreDownError, open_store

STATES = f"/v1/experiments/rank/states?hour={HOUR}&source=job"
RANK = "/v1/experiments/rank"


@pytest.fixture
def here() -> World:
    return world()


@pytest.fixture
def client(here: World) -> Iterator[Client]:
    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(f"<script nonce={request.state.nonce}></script>")

    async def broken(request: Request) -> HTMLResponse:
        raise RuntimeError("secret")

    pages = [Route("/", page), Route("/broken", broken)]
    with Client(create_app(*here[:2], ServerSettings(clock=lambda: NOW), pages)) as client:
        client.headers["authorization"] = f"Bearer {here.owner}"
        yield client


# -- definitions -----------------------------------------------------------------------------------------------------


def test_a_definition_is_made_and_changed(here: World, client: Client) -> None:
    path = "/v1/experiments/new"
    first = client.post(path, json=DEFINITION)
    assert (first.status_code, first.json()) == (201, {"version": 1, "changes": []})
    assert client.post(path, json=DEFINITION).json() == {"version": 1, "changes": []}
    changed = client.post(path, json=DEFINITION | {"arms": {"A": 0.8, "B": 0.2}})
    assert changed.json()["version"] == 2
    assert changed.json()["changes"][0] == "planned share of A: changed from 50 % to 80 %"
    assert client.get(path).json()["arms"] == {"A": 0.8, "B": 0.2}
    assert here.board.changes == ["new"] * 3
    assert ("new", "defined version 2", "ann") in here.store.audited


def test_parts_of_the_definition_before_are_taken_for_a_day(here: World) -> None:
    """Workers cannot all be redeployed at the moment when a metric is added."""
    now = [NOW]
    with Client(create_app(*here[:2], ServerSettings(clock=lambda: now[0]))) as client:
        client.headers["authorization"] = f"Bearer {here.owner}"
        changed = json.loads(here.store.defined["rank"][-1]) | {"secondary": ["log_loss"]}
        assert client.post(RANK, json=changed).json()["version"] == 2
        assert client.post(STATES, content=arms(0).to_bytes()).status_code == 201
        now[0] += 86400.0
        late = client.post(f"{STATES}&seq=1", content=arms(1).to_bytes())
        assert (late.status_code, "the experiment needs" in late.text) == (422, True)
        new = arms(1, metrics=[sm.CTR(), sm.AUC(bits=10), sm.LogLoss()])
        assert client.post(f"{STATES}&seq=1", content=new.to_bytes()).status_code == 201


def test_addresses_of_webhooks_are_for_owners(here: World, client: Client) -> None:
    """They are as good as passwords."""
    hook = "https://hooks.example/secret"
    made = json.loads(here.store.defined["rank"][-1]) | {"webhooks": [hook]}
    answer = client.post("/v1/experiments/rank", json=made, headers={"authorization": f"Bearer {here.owner}"})
    assert answer.json()["changes"] == ["webhooks: changed"]
    for token, shown in ((here.owner, True), (here.reader, False), (here.writer, False)):
        given = client.get("/v1/experiments/rank", headers={"authorization": f"Bearer {token}"})
        assert (given.status_code, hook in given.text) == (200, shown)


def test_a_definition_may_be_toml(client: Client) -> None:
    text = 'arms = {A = 1, B = 1}\ncontrol = "A"\nprimary = "ctr"\nstart = 2026-06-01T00:00:00Z\n'
    answer = client.post("/v1/experiments/toml", content=text, headers={"content-type": "application/toml"})
    assert answer.status_code == 201
    assert client.get("/v1/experiments/toml").json()["start"] == "2026-06-01T00"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "an object with keys"),
        (b"{}", "arms: the definition lacks this key"),
        (json.dumps(DEFINITION | {"colour": 1}).encode(), "colour: the definition has an unknown key"),
        (json.dumps(DEFINITION | {"id": "other"}).encode(), "id: expected 'rank' as in the URL"),
        (json.dumps(DEFINITION | {"users": 10**400}).encode(), "users: expected a number of 0 or more"),
        (json.dumps(DEFINITION | {"control": "C"}).encode(), "control: expected one of the arms"),
    ],
)
def test_what_is_no_definition_is_refused(here: World, client: Client, body: bytes, words: str) -> None:
    answer = client.post(RANK, content=body)
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert len(here.store.defined["rank"]) == 1


@pytest.mark.parametrize("name", ["-x", "x" * 101, "a%20b", "%3Cb%3E", "a%00", "%F0%9F%98%80"])
def test_names_of_experiments_are_checked(here: World, client: Client, name: str) -> None:
    assert client.post(f"/v1/experiments/{name}", json=DEFINITION).status_code == 422
    assert client.get(f"/v1/experiments/{name}").status_code == 404
    assert set(here.store.defined) == {"rank"}


def test_definitions_of_a_folder(here: World, tmp_path: Path) -> None:
    good = 'arms = {A = 1, B = 1}\ncontrol = "A"\nprimary = "ctr"\nstart = "2026-06-01T00"\n'
    (tmp_path / "one.toml").write_text(good)
    (tmp_path / "two.toml").write_text(good.replace("ctr", ""))
    (tmp_path / "three.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "readme.md").write_text("no definition")
    app = create_app(*here[:2], ServerSettings(clock=lambda: NOW, definitions=str(tmp_path)))
    with Client(app):
        assert set(here.store.defined) == {"rank", "one"}
        definitions, seen = app.state.definitions, dict[Path, int]()
        _, wrong = definitions.load_folder(str(tmp_path), seen)
        assert [Path(line.partition(":")[0]).name for line in wrong] == ["three.toml", "two.toml"]
        assert definitions.load_folder(str(tmp_path), seen) == ([], [])
        (tmp_path / "two.toml").write_text(good)
        assert definitions.load_folder(str(tmp_path), seen) == (["two"], [])


def test_a_folder_of_definitions_that_is_away_for_a_while(here: World, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("streammetrics.serve.app.FOLDER_SECONDS", 0.01)
    app = create_app(*here[:2], ServerSettings(clock=lambda: NOW, definitions=str(tmp_path)))
    load, looks = app.state.definitions.load_folder, []

    def away(folder: str, seen: dict[Path, int]) -> Any:
        looks.append(folder)
        if len(looks) == 2:
            raise PermissionError(13, "no longer readable", folder)
        return load(folder, seen)

    monkeypatch.setattr(app.state.definitions, "load_folder", away)
    with Client(app):
        deadline = time.monotonic() + 20
        while len(looks) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
    assert len(looks) >= 4


# -- errors, health, headers -----------------------------------------------------------------------------------------


def test_health(here: World, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streammetrics.serve.api.endpoints.PROBE_INTERVAL", 0.0)
    assert (client.get("/healthz").status_code, client.get("/readyz").status_code) == (200, 200)
    here.board.ready = False
    assert (client.get("/readyz").status_code, client.get("/readyz").text) == (503, "starting\n")
    here.board.ready = True
    here.store.fails = StoreDownError("host db.internal is away")
    assert (client.get("/healthz").status_code, client.get("/readyz").status_code) == (200, 503)
    assert "internal" not in client.get("/readyz").text
    assert client.get(RANK).status_code == 503
    visitor = client.beside("127.0.0.1", cookie="streammetrics=a")
    for path in ("/", "/metrics"):  # who asks is looked up in the store
        assert (visitor.get(path).status_code, client.get(path).status_code) == (503, 503)


def test_it_is_not_ready_while_nothing_can_be_written(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streammetrics.serve.api.endpoints.READY_TIMEOUT", 0.05)
    with Client(create_app(*here[:2])) as client:
        here.store.open.clear()
        assert client.get("/readyz").status_code == 503
        here.store.open.set()
        while client.get("/readyz").status_code != 200:
            pass


def test_failures_of_the_store_are_counted(here: World, client: Client) -> None:
    app: Any = client.app
    assert app.state.definitions.get("rank") is not None
    here.store.fails = StoreDownError("away")
    app.state.access.accounts._cached_tokens |= {"@owner": (math.inf, {hash_token(here.owner): "ann"})}
    app.state.definitions._valid_until = math.inf
    assert client.post(STATES, content=arms().to_bytes()).status_code == 503
    counts = app.state.ingest.counts
    assert (counts.failed, counts.refused, counts.reasons) == (1, 0, {"StoreDownError": 1})


def test_it_is_ready_once_what_decodes_has_started(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, begun = threading.Event(), threading.Event()

    def start(self: ThreadDecoder) -> None:
        begin.wait(10)
        begun.set()
        raise RuntimeError("it cannot be started: it is tried again when it is asked")

    monkeypatch.setattr(ThreadDecoder, "start", start)
    with Client(create_app(*here[:2])) as client:
        assert (client.get("/readyz").status_code, client.get("/readyz").text) == (503, "starting\n")
        begin.set()
        assert begun.wait(10)
        while client.get("/readyz").status_code != 200:
            pass


def test_a_mistake_of_ours_tells_nothing(client: Client) -> None:
    answer = client.get("/broken")
    assert answer.status_code == 500
    assert "secret" not in answer.text


@pytest.mark.parametrize("path", ["/", "/login", "/healthz", "/nothing", "/broken", RANK])
def test_every_answer_has_the_headers(client: Client, path: str) -> None:
    answer = client.get(path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'self' 'nonce-" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "cache-control" in answer.headers


def test_the_number_of_scripts_is_another_each_time(client: Client) -> None:
    pages = [client.get("/") for _ in range(20)]
    numbers = {page.text.removeprefix("<script nonce=").partition(">")[0] for page in pages}
    assert len(numbers) == 20
    assert all(any(f"'nonce-{n}'" in p.headers["content-security-policy"] for n in numbers) for p in pages)


def test_other_hosts_are_refused(here: World) -> None:
    with Client(create_app(*here[:2], ServerSettings(hosts=("localhost", "127.0.0.1")))) as client:
        codes = [client.get("/healthz", headers={"host": h}).status_code for h in ("localhost:8000", "evil.example")]
    assert codes == [200, 400]


def test_conflicts_are_listed_and_accepted(here: World, client: Client) -> None:
    for seed in (0, 1):
        client.post(STATES, content=arms(seed).to_bytes())
    (conflict,) = client.get(f"{RANK}/conflicts").json()
    assert conflict == {"number": 0, "key": f"rank/{HOUR}/job-0", "digest": arms(1).digest(), "received": NOW}
    assert client.post(f"{RANK}/conflicts/7/accept?reason=x").status_code == 409
    assert client.post(f"{RANK}/conflicts/0/accept?reason=x").json() == {"accepted": 0}
    assert here.store.accepted == [0]


# -- the real store --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_with_a_real_store(tmp_path: Path) -> None:
    """Posted, told, conflicting, accepted; and the same after the server was started again."""
    with open_store(tmp_path / "a.db") as store:
        owner = issue_token(store, OWNER, "ann", by="test", at=0.0)
        bearer = {"authorization": f"Bearer {owner}"}

        def serve() -> Client:
            return Client(create_app(store, Board(), ServerSettings(clock=lambda: NOW)), **bearer)

        with serve() as client:
            assert client.post(RANK, json=DEFINITION).status_code == 201
            posts = [client.post(f"{STATES}&seq={i}", content=arms(i).to_bytes()) for i in (0, 1, 0, 2)]
            assert [p.json()["state"] for p in posts] == ["stored", "stored", "same", "stored"]
            assert client.post(STATES, content=arms(9).to_bytes()).status_code == 409
            more = [client.post(STATES, content=arms(i).to_bytes()).json() for i in range(10, 18)]
            assert [answer["state"] for answer in more] == ["conflict"] * 7 + ["excess"]
            assert more[-1]["error"].endswith("is not kept, because 8 other contents of it were posted already")
        with serve() as client:
            assert Totals(store).digest("rank") == sm.merge([arms(0), arms(1), arms(2)]).digest()
            conflict, *others = [one["number"] for one in client.get(f"{RANK}/conflicts").json()]
            assert client.post(f"{RANK}/conflicts/{conflict}/accept?reason=x").status_code == 200
            assert Totals(store).digest("rank") == sm.merge([arms(9), arms(1), arms(2)]).digest()
            assert client.request("DELETE", f"{STATES}&reason=wrong+rows").status_code == 409  # it has open conflicts
            for number in others:
                answer = client.post(f"{RANK}/conflicts/{number}/reject?reason=a+retry+of+a+test")
                assert answer.json() == {"rejected": number}
            assert client.get(f"{RANK}/conflicts").json() == []
            assert client.post(f"{RANK}/conflicts/{number}/drop?reason=x").status_code == 404
            assert client.request("DELETE", f"{STATES}&reason=wrong+rows").json() == {"voided": f"rank/{HOUR}/job-0"}
            assert client.request("DELETE", f"{STATES}&reason=wrong+rows").status_code == 409
            assert Totals(store).digest("rank") == sm.merge([arms(1), arms(2)]).digest()
            assert client.post(STATES, content=arms(9).to_bytes()).json()["state"] == "rejected"
            assert client.post(STATES, content=arms(8).to_bytes()).json()["state"] == "stored"
            assert Totals(store).digest("rank") == sm.merge([arms(8), arms(1), arms(2)]).digest()
            assert (
                client.post(STATES, content=arms(0, metrics=[sm.CTR(), sm.AUC(bits=9)]).to_bytes()).status_code == 422
            )
        said = [(row.by, row.what) for row in store.audits("rank")]
        assert said[0] == ("ann", "defined version 1")
        assert [what.partition(" ")[0] for _, what in said[-9:]] == ["accepted", *["rejected"] * 7, "voided"]
        assert said[-1][1].endswith(": wrong rows")


def test_a_body_that_waits_is_read_beside_others(here: World) -> None:
    """Who sends slowly holds up nobody."""

    async def both(client: Client) -> Any:
        go = asyncio.Event()

        async def slow() -> Any:
            yield arms(0).to_bytes()[:10]
            await go.wait()
            yield arms(0).to_bytes()[10:]

        first = asyncio.create_task(client.http.post(STATES, content=slow()))
        second = await client.http.post(f"{STATES}&seq=1", content=arms(1).to_bytes())
        go.set()
        return await first, second

    with Client(
        create_app(*here[:2], ServerSettings(clock=lambda: NOW)), authorization=f"Bearer {here.writer}"
    ) as client:
        first, second = client.wait(both(client))
    assert (first.status_code, second.status_code) == (201, 201)
    assert [key.seq for key in here.store.kept] == [1, 0]
