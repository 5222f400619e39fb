"""Who may do what: tokens, logins, sessions, proxies, forms."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from serve.client import Client
from serve.fakes import DEFINITION, HOUR, NOW, World, arms, world
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from streammetrics.errors import InvalidInputError
from streammetrics.serve.api.auth import OWNER, READER, hash_token, issue_token
from streammetrics.serve.api.limits import RateLimiter
from streammetrics.serve.app import create_app
from streammetrics.serve.dashboard import build_dashboard
from streammetrics.serve.evaluation.experiment import Experiment
from streammetrics.serve.settings import ServerSettings
from streammetrics.serve.store import open_store

STATES = f"/v1/experiments/rank/states?hour={HOUR}&source=job"
HTML = {"accept": "text/html"}
Open = Callable[..., Client]


class Clock:
    """Moves by hand."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def here() -> World:
    return world()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def shown(request: Request) -> PlainTextResponse:
    reader = request.state.reader
    return PlainTextResponse("nobody" if reader is None else f"{reader.name} {reader.role} {reader.csrf_token}")


@pytest.fixture
def opened(here: World, clock: Clock) -> Iterator[Open]:
    """Opens clients of the application, with pages that say who reads."""
    pages = [Route("/", shown), Route("/experiments/{id}", shown), Route("/experiments/{id}/live", shown)]
    with ExitStack() as stack:

        def client(peer: str = "127.0.0.1", headers: dict[str, str] | None = None, **settings: Any) -> Client:
            app = create_app(*here[:2], ServerSettings(clock=clock, **settings), pages)
            return stack.enter_context(Client(app, peer, **(headers or {})))

        yield client


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


# -- tokens ----------------------------------------------------------------------------------------------------------


def test_tokens_are_random_and_kept_as_hashes(here: World) -> None:
    tokens = {issue_token(here.store, "rank", f"job {i}", by="test", at=0.0) for i in range(50)}
    assert len(tokens) == 50
    assert all(re.fullmatch(r"smt_[A-Za-z0-9_-]{43}", token) for token in tokens)
    kept = repr(dict(here.store.hashes))
    assert not any(token in kept for token in tokens)
    assert {hash_token(token) for token in tokens} <= {row.hashed for row in here.store.hashes["rank"]}


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb"])
def test_names_of_tokens_are_checked(here: World, name: str) -> None:
    with pytest.raises(InvalidInputError, match="1 to 100 printable characters"):
        issue_token(here.store, "rank", name, by="test", at=0.0)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Basic abc"},
        bearer("smt_wrong"),
        bearer("x" * 10_000),
    ],
)
def test_writers_need_their_token(here: World, opened: Open, headers: dict[str, str]) -> None:
    answer = opened().post(STATES, content=arms().to_bytes(), headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"], here.store.kept) == (401, "Bearer", {})


def test_two_tokens_at_once_are_none(here: World, opened: Open) -> None:
    twice = [("authorization", f"Bearer {here.writer}"), ("authorization", f"Bearer {here.owner}")]
    assert opened().post(STATES, content=arms().to_bytes(), headers=twice).status_code == 401


def test_a_token_is_of_one_experiment(here: World, opened: Open) -> None:
    client = opened()
    there = client.post("/v1/experiments/other", json=DEFINITION, headers=bearer(here.owner))
    assert there.status_code == 201
    said = [
        client.post(f"/v1/experiments/{name}/states?hour={HOUR}&source=a", content=b"", headers=bearer(here.writer))
        for name in ("other", "nothing")
    ]
    assert [a.status_code for a in said] == [401, 401]
    assert all("wrong, or the experiment does not exist; check its ID" in a.json()["error"] for a in said)
    assert said[0].text == said[1].text  # whether there is one is not told
    assert client.post(STATES, content=arms().to_bytes(), headers=bearer(here.reader)).status_code == 401


def test_an_owner_may_post_and_hears_what_there_is_not(here: World, opened: Open) -> None:
    client = opened(headers=bearer(here.owner))
    assert client.post(STATES, content=arms().to_bytes()).status_code == 201
    assert client.post(STATES.replace("rank", "nothing"), content=b"").status_code == 404


def test_a_revoked_token_is_refused_soon(here: World, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streammetrics.serve.api.auth.CACHE_SECONDS", 0.0)
    client = opened(headers=bearer(here.writer))
    assert client.post(STATES, content=arms().to_bytes()).status_code == 201
    here.store.revoke("rank", "job", by="test", at=0.0)
    assert client.post(STATES, content=arms().to_bytes()).status_code == 401


def test_the_body_is_not_kept_for_who_may_not_post(here: World, opened: Open) -> None:
    read: list[int] = []

    async def body() -> Any:
        for _ in range(3):
            read.append(1)
            yield b"x" * 1000

    assert opened(max_bytes=1500).post(STATES, content=body()).status_code == 401  # and not 413


def test_definitions_and_conflicts_are_for_owners(here: World, opened: Open) -> None:
    client = opened()
    for token in (here.writer, here.reader):
        assert client.post("/v1/experiments/rank", json=DEFINITION, headers=bearer(token)).status_code == 401
        accept = client.post("/v1/experiments/rank/conflicts/0/accept", headers=bearer(token))
        assert accept.status_code == 401
    assert here.store.accepted == []
    assert client.get("/v1/experiments/rank", headers=bearer(here.writer)).json()["primary"] == "ctr"
    assert client.get("/v1/experiments/rank").status_code == 401


def test_wrong_tokens_are_counted(here: World, opened: Open, clock: Clock) -> None:
    client = opened(failures=5)
    codes = [client.post(STATES, content=b"", headers=bearer(f"smt_{i}")).status_code for i in range(8)]
    assert codes == [401] * 5 + [429] * 3
    locked = client.post(STATES, content=b"", headers=bearer("smt_8"))
    assert int(locked.headers["retry-after"]) > 0
    assert client.post("/login", data={"token": "smt_9"}).status_code == 429
    assert client.get("/", headers=bearer("smt_9")).status_code == 429


def test_a_wrong_token_locks_out_nobody_else(here: World, opened: Open) -> None:
    """Workers behind one address share a limit; the valid tokens among them are accepted all the same."""
    client = opened(failures=5)
    for i in range(8):
        client.post(STATES, content=b"", headers=bearer(f"smt_{i}"))
    posts = [client.post(f"{STATES}&seq={i}", content=arms().to_bytes(), headers=bearer(here.writer)) for i in range(5)]
    assert [answer.status_code for answer in posts] == [201] * 5
    assert client.get("/", headers=bearer(here.reader)).status_code == 200
    assert client.post("/login", data={"token": here.reader}).status_code == 303


# -- readers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/experiments/rank", "/experiments/rank/live", "/experiments/rank.csv", "/metrics"]
)
def test_nobody_sees_nothing(opened: Open, path: str) -> None:
    client = opened()
    page = client.get(path, headers=HTML)
    assert (page.status_code, page.headers["location"].partition("?")[0]) == (303, "/login")
    plain = client.get(path)
    assert plain.status_code == 401
    assert "rank" not in plain.text


def log_in(client: Client, token: str, to: str = "/") -> Any:
    return client.post("/login", data={"token": token, "next": to})


def test_a_reader_logs_in_and_out(here: World, opened: Open) -> None:
    client = opened()
    page = client.get("/login?next=/experiments/rank")
    assert 'value="/experiments/rank"' in page.text
    assert page.headers["cache-control"] == "no-store"
    answer = log_in(client, here.reader, "/experiments/rank")
    assert (answer.status_code, answer.headers["location"]) == (303, "/experiments/rank")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Path=/" in cookie
    assert "Secure" not in cookie
    assert here.reader not in cookie
    name, role, form = client.get("/").text.split()
    assert (name, role) == ("bob", "reader")
    assert client.post("/logout").status_code == 403
    assert client.post("/logout", data={"form": "0" * 64}).status_code == 403
    assert client.post("/logout", data={"form": form}).status_code == 303
    assert client.get("/").status_code == 401
    client.cookies.set("streammetrics", cookie.partition("=")[2].partition(";")[0])
    assert client.get("/").status_code == 401  # nor is a copy of the cookie of any use


def test_over_https_cookies_stay_there(here: World, opened: Open) -> None:
    answer = log_in(opened(https=True), here.reader)
    assert answer.headers["set-cookie"].startswith("__Host-streammetrics=")
    assert "Secure" in answer.headers["set-cookie"]
    assert answer.headers["strict-transport-security"] == "max-age=31536000"
    assert "strict-transport-security" not in log_in(opened(), here.reader).headers


def test_a_wrong_token_shows_the_form_again(opened: Open) -> None:
    answer = log_in(opened(), "smt_<b>")
    assert answer.status_code == 403
    assert "not known" in answer.text
    assert "<b>" not in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "to",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/\t/evil", "", "/a\r\nx: y"],
)
def test_a_login_leads_nowhere_else(here: World, opened: Open, to: str) -> None:
    assert log_in(opened(), here.reader, to).headers["location"] == "/"


def test_what_the_login_is_given_is_escaped(opened: Open) -> None:
    page = opened().get("/login", params={"next": '/"><script>alert(1)</script>'})
    assert "<script>" not in page.text


def test_sessions_end(here: World, opened: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streammetrics.serve.api.auth.CACHE_SECONDS", 0.0)
    client = opened(session_hours=1)
    log_in(client, here.reader)
    assert client.get("/").status_code == 200
    clock.now += 3700.0
    assert client.get("/").status_code == 401
    clock.now -= 3700.0
    assert client.get("/").status_code == 200
    here.store.revoke(READER, "bob", by="test", at=0.0)
    assert client.get("/").status_code == 401


def test_cookies_are_signed(here: World, opened: Open) -> None:
    client = opened()
    log_in(client, here.reader)
    (name, value), *_ = client.cookies.items()
    for at, digit in itertools.product(range(0, len(value), 7), "Aa-"):
        changed = value[:at] + digit + value[at + 1 :]
        if changed != value:
            fresh = {"cookie": f"{name}={changed}"}
            client.cookies.clear()
            assert client.get("/", headers=fresh).status_code == 401, at


def test_servers_of_one_store_know_each_others_sessions(here: World, opened: Open) -> None:
    first, second = opened(), opened()
    log_in(first, here.reader)
    (name, value), *_ = first.cookies.items()
    assert second.get("/", headers={"cookie": f"{name}={value}"}).text.startswith("bob reader")


def test_programs_read_by_token(here: World, opened: Open) -> None:
    client = opened()
    assert client.get("/", headers=bearer(here.reader)).text.startswith("bob reader")
    assert client.get("/", headers=bearer(here.owner)).text.startswith("ann owner")
    assert client.get("/", headers=bearer(here.writer)).status_code == 401


def test_public_read_is_said(opened: Open) -> None:
    client = opened(public_read=True)
    assert client.get("/").text == "nobody"
    assert client.post("/logout").status_code == 403


def test_one_experiment_may_be_public(here: World, opened: Open) -> None:
    client = opened()
    for name, public in (("open", True), ("open.csv", False)):
        said = client.post(f"/v1/experiments/{name}", json=DEFINITION | {"public": public}, headers=bearer(here.owner))
        assert said.status_code == 201
    paths = ["/experiments/open", "/experiments/open/live", "/experiments/open.csv", "/experiments/rank", "/"]
    assert [client.get(path).status_code for path in paths] == [200, 200, 401, 401, 401]


def test_a_proxy_says_who_reads(opened: Open) -> None:
    client = opened(proxy_header="X-User")
    assert client.get("/", headers={"x-user": "eve"}).text.strip() == "eve reader"
    assert client.get("/").status_code == 401
    assert client.get("/", headers=[("x-user", "eve"), ("x-user", "bob")]).status_code == 401
    assert client.get("/", headers={"x_user": "eve"}).status_code == 401
    assert client.get("/", headers=HTML).status_code == 401  # there is no login to go to
    assert opened("10.0.0.7", proxy_header="X-User").get("/", headers={"x-user": "eve"}).status_code == 401
    there = opened("10.0.0.7", proxy_header="X-User", proxies=("10.0.0.7",))
    assert there.get("/", headers={"x-user": "eve"}).status_code == 200


def test_without_a_proxy_its_header_says_nothing(opened: Open) -> None:
    assert opened().get("/", headers={"x-user": "eve", "x-forwarded-user": "eve"}).status_code == 401


def test_forwarded_addresses_are_believed_of_proxies_alone(here: World, opened: Open) -> None:
    def tries(client: Client) -> list[int]:
        heads = [{"x-forwarded-for": f"1.1.1.{i}", **bearer("smt_no")} for i in range(4)]
        return [client.post(STATES, content=b"", headers=head).status_code for head in heads]

    assert tries(opened(failures=2)) == [401, 401, 429, 429]
    assert tries(opened(failures=2, proxies=("127.0.0.1",))) == [401] * 4
    secure = opened(proxies=("127.0.0.1",)).post(
        "/login", data={"token": here.reader}, headers={"x-forwarded-proto": "https"}
    )
    assert "Secure" in secure.headers["set-cookie"]


# -- forms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"origin": "https://evil"}, {"origin": "null"}],
)
def test_forms_of_other_sites_are_refused(here: World, opened: Open, head: dict[str, str]) -> None:
    client = opened()
    assert client.post("/login", data={"token": here.reader}, headers=head).status_code == 403
    log_in(client, here.owner)
    form = client.get("/").text.split()[2]
    assert client.post("/logout", data={"form": form}, headers=head).status_code == 403


@pytest.mark.slow
def test_an_owner_accepts_a_conflict_on_the_page(clock: Clock, tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store, Client(build_dashboard(store, ServerSettings(clock=clock))) as client:
        owner, reader = (issue_token(store, whose, "x", by="test", at=0.0) for whose in (OWNER, READER))
        head = bearer(owner)
        client.post("/v1/experiments/rank", json=DEFINITION, headers=head)
        for seed in (0, 1):
            client.post(STATES, content=arms(seed).to_bytes(), headers=head)
        (number,) = [row["number"] for row in client.get("/v1/experiments/rank/conflicts", headers=head).json()]
        path = f"/experiments/rank/conflicts/{number}"

        def form(token: str) -> str:
            client.cookies.clear()
            log_in(client, token)
            return "".join(re.findall(r'/conflicts/.*name="form" value="(\w+)"', client.get("/experiments/rank").text))

        assert client.post(path).status_code == 401
        assert form(reader) == ""
        assert client.post(path, data={"form": form(owner)}, headers={"origin": "https://evil"}).status_code == 403
        old, new = form(owner), form(owner)
        decision = {"decision": "accept", "reason": "late conversions"}
        assert client.post(path, data={"form": old} | decision).status_code == 403  # of another session
        assert client.post(path, content=b"x" * 20_000).status_code == 413
        assert client.post(path, data={"form": new} | decision).status_code == 303
        assert store.audits("rank")[-1].what.startswith("accepted")
        assert store.audits("rank")[-1].what.endswith(": late conversions")
        assert store.conflicts("rank") == []


# -- rates -----------------------------------------------------------------------------------------------------------


def test_requests_of_a_client_are_counted(opened: Open) -> None:
    client = opened(rate=0.001, burst=3)
    assert [client.get("/healthz").status_code for _ in range(5)] == [200] * 3 + [429] * 2


def test_a_bucket_fills_again_and_forgets() -> None:
    now = [0.0]
    rate = RateLimiter(2.0, 4, max_clients=10, clock=lambda: now[0])
    assert [rate.take("a") for _ in range(6)] == [True] * 4 + [False] * 2
    now[0] = 1.0
    assert [rate.take("a") for _ in range(3)] == [True, True, False]
    assert all(rate.take(str(i)) for i in range(1000))
    assert len(rate) == 10


# -- groups and tags ---------------------------------------------------------------------------------------------------

RULES = (("admins", "owner"), ("analysts", "reader"), ("search-team", "tag:search"), ("ads-team", "tag:ads"))
PROXY = {"proxy_header": "x-user", "groups_header": "x-groups", "group_rights": RULES}


@pytest.mark.parametrize(
    ("groups", "role", "ids"),
    [
        ("admins", "owner", ["rank", "shop"]),
        ("search-team, admins", "owner", ["rank", "shop"]),
        ("analysts,search-team", "reader", ["rank", "shop"]),
        ("search-team", "reader", ["rank"]),
        ("search-team,ads-team", "reader", ["rank"]),
        ("ads-team", "reader", []),
        ("others", "", []),
        ("", "", []),
    ],
)
def test_groups_of_the_proxy_give_rights(groups: str, role: str, ids: list[str]) -> None:
    here = world(tags=["search"])
    here.store.define("shop", here.store.defined["rank"][-1].replace('"rank"', '"shop"').replace("search", "x"),
                      by="t", at=0.0)  # fmt: skip
    pages = [Route("/", shown), Route("/experiments/{id}", shown), Route("/metrics", shown)]
    settings = ServerSettings(clock=lambda: NOW, **PROXY)
    with Client(create_app(*here[:2], settings, pages)) as client:
        headers = {"x-user": "ann", "x-groups": groups}
        list_page = client.get("/", headers=headers)
        assert list_page.text.split(" ")[:2] == ["ann", role] if role else list_page.status_code == 401
        assert (len(list_page.text.split(" ")[-1]) == 64) == (role == "owner")
        assert [
            i for i in ("rank", "shop") if client.get(f"/experiments/{i}", headers=headers).status_code == 200
        ] == ids
        assert (client.get("/metrics", headers=headers).status_code == 200) == (len(ids) == 2)
        assert client.get("/", headers=headers | {"x-user": ""}).status_code == 401
        stranger = client.beside("10.0.0.9", **headers)
        assert stranger.get("/").status_code == 401


def test_the_token_of_a_reader_can_be_limited_to_tags() -> None:
    here = world(tags=["search"])
    token = issue_token(here.store, READER, "sue", by="t", at=0.0, tags=["ads"])
    with Client(
        create_app(*here[:2], ServerSettings(clock=lambda: NOW), [Route("/experiments/{id}", shown)])
    ) as client:
        for tags, status in ((["search"], 401), (["ads", "search"], 200)):
            client.app.state.definitions.define(Experiment.from_dict({"id": "rank"} | DEFINITION | {"tags": tags}), "t")
            client.headers["authorization"] = f"Bearer {token}"
            assert client.get("/v1/experiments/rank").status_code == status
            assert client.get("/experiments/rank").status_code == status
            client.headers["authorization"] = f"Bearer {here.reader}"
            assert client.get("/experiments/rank").status_code == 200
