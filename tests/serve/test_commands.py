"""`streammetrics serve` and `eval --push` as they are called: processes, a store, a browser's requests."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import posted
import pytest
from serve.fakes import NOW
from serve.running import running

import streammetrics as sm
from streammetrics.cli import main
from streammetrics.cli.messages import UsageError
from streammetrics.cli.serve import parse_auth, parse_groups
from streammetrics.serve.api.auth import OWNER, issue_token
from streammetrics.serve.dashboard import build_dashboard
from streammetrics.serve.evaluation.experiment import Experiment
from streammetrics.serve.evaluation.totals import Totals
from streammetrics.serve.part_keys import PartKey, PostedPart, format_hour
from streammetrics.serve.settings import ServerSettings
from streammetrics.serve.store import Store, open_store

HOUR = "2026-06-01T09"
TOML = 'arms = {A = 1, B = 1}\ncontrol = "A"\nprimary = "ctr"\nslices = ["country"]\nstart = "2026-06-01T00"\n'


class Ran(NamedTuple):
    code: object
    out: str
    err: str


Command = Callable[..., Ran]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Calls the command line, in this process: others take seconds to start."""

    def call(*words: Any) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, words)))
        return Ran(ended.value.code, *capsys.readouterr())

    return call


@contextmanager
def serving(*words: Any) -> Iterator[str]:
    """A server as a process; its URL. Ended by a signal, as an operator does."""
    given = [sys.executable, "-W", "error", "-m", "streammetrics", "serve", "--port", "0", *map(str, words)]
    with subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().strip()
        try:
            yield url
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "streammetrics: interrupted\n")


@pytest.mark.slow
def test_a_server_from_the_first_command_on(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    store, folder, dropped = tmp_path / "a.db", tmp_path / "experiments", tmp_path / "parts"
    folder.mkdir()
    dropped.mkdir()
    (folder / "rank.toml").write_text(TOML)
    made = [command("serve", "token", *who, "--store", store) for who in (["rank"], ["--reader", "bob"])]
    assert [one.code for one in made] == [0, 0]
    writer, reader = (one.out.strip() for one in made)
    arms = sm.Sliced(sm.Sharded([sm.CTR()], unit="user"), by=["arm", "country"])
    arms.update(y_true=[0, 1], user=[1, 2], arm=["A", "B"], country=["br", "br"])
    with serving("--store", store, "--experiments", folder, "--watch", dropped) as url:
        assert sm.push(url, arms, experiment="rank", source="job", hour=HOUR, token=writer) == "stored"
        with httpx.Client(base_url=url) as browser:
            assert browser.get("/", headers={"accept": "text/html"}).headers["location"] == "/login"
            assert browser.post("/login", data={"token": reader}).status_code == 303
            assert browser.get("/experiments/rank").status_code == 200
            assert browser.get("/healthz", headers={"host": "evil.example"}).status_code == 400
    with open_store(store) as kept:
        assert [(row.key.text, row.digest) for row in kept.ledger("rank")] == [(f"rank/{HOUR}/job-0", arms.digest())]
    monkeypatch.setenv("STREAMMETRICS_STORE", str(store))
    assert command("serve", "tokens").out.split("\n")[:2] == ["reader\tbob", "rank\tworker"]
    assert command("serve", "revoke", "reader", "bob").code == 0
    again = command("serve", "revoke", "reader", "bob")
    assert (again.code, again.err) == (
        2,
        "streammetrics: reader has no token 'bob'; `streammetrics serve tokens` lists all tokens\n",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["token"], "expected either EXPERIMENT"),
        (["token", "rank", "--reader", "bob"], "found 2 of them"),
        (["token", "../rank"], "EXPERIMENT: expected at most 100 letters"),
        (["token", "reader"], "for a token of that kind, use --reader NAME"),
        (["token", "--reader", "bob", "--name", "x"], "--name is the name of a worker and needs EXPERIMENT"),
        (["--auth", "basic"], "--auth: expected login or proxy-header=NAME"),
        (["--auth", "proxy-header=a b"], "--auth: expected login"),
        (["--experiments", "/nowhere"], "there is no folder /nowhere"),
        (["--watch", "/nowhere"], "there is no folder /nowhere"),
        (["--store", "mysql://x"], "--store: expected a path"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    tmp_path: Path, command: Command, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = command("serve", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_auth_is_read() -> None:
    assert parse_auth("login") is None
    assert parse_auth("proxy-header=X-Forwarded-User") == "X-Forwarded-User"
    with pytest.raises(UsageError):
        parse_auth("proxy-header=")


# -- eval --push -----------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMMETRICS_TOKEN", "t")
    draw = np.random.default_rng(0)
    labels, scores, users = draw.integers(0, 2, 500), draw.random(500).round(3), draw.integers(0, 99, 500)
    arms, countries = draw.choice(["A", "B"], 500), draw.choice(["br", "de"], 500)
    rows = [",".join(map(str, row)) for row in zip(labels, scores, arms, countries, users, strict=True)]
    path = tmp_path / "log.csv"
    path.write_text("click,p,arm,country,user\n" + "\n".join(rows) + "\n")
    return path


OPTIONS = (
    "--label",
    "click",
    "--score",
    "p",
    "--metrics",
    "ctr,auc",
    "--arm",
    "arm",
    "--control",
    "A",
    "--unit",
    "user",
)


@pytest.mark.slow
def test_eval_pushes(tmp_path: Path, log: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path / "a.db") as store:
        app = build_dashboard(store, ServerSettings(clock=lambda: NOW, public_read=True), every=0.05)
        monkeypatch.setenv("STREAMMETRICS_TOKEN", issue_token(store, "rank", "job", by="test", at=0.0))
        app.state.definitions.load_folder(str(_folder(tmp_path)), {})
        with running(app) as url:
            pushed = ["--by", "country", "--push", url, "--experiment", "rank", "--hour", HOUR]
            formats = ((), (), ("--format", "json"))
            ran = [command("eval", log, *OPTIONS, *pushed, *how) for how in formats]
        assert [one.code for one in ran] == [0, 0, 0], ran[0].err
        assert f"by arm,country: pushed to {url} as rank/{HOUR}/eval-0" in ran[0].out
        assert "was already pushed with the same content" in ran[1].out
        assert "was already pushed with the same content" in ran[2].err
        assert json.loads(ran[2].out)["values"]
        total = Totals(store).total("rank")
        table = [line.split(",") for line in log.read_text().splitlines()[1:]]
        for arm in "AB":
            clicks = [int(row[0]) for row in table if row[2] == arm]
            assert total.across("country")[arm].compute()["ctr"] == sum(clicks) / len(clicks)


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "rank.toml").write_text(TOML)
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--push", "http://x"], "--push needs --experiment"),
        (["--experiment", "rank"], "need --push; add --push URL"),
        (["--push", "x", "--experiment", "rank", "--hour", HOUR], "url: expected the URL of the server"),
        (["--push", "http://x", "--experiment", "a b", "--hour", HOUR], "experiment: expected"),
        (["--push", "http://x", "--experiment", "rank", "--hour", "now"], "hour: expected an hour in UTC"),
        (
            ["--push", "http://x", "--experiment", "rank", "--hour", HOUR, "--by", "country", "--by", "p"],
            "allows at most one --by",
        ),
    ],
)
def test_push_is_checked_before_the_log_is_read(log: Path, command: Command, words: list[str], said: str) -> None:
    ran = command("eval", log, *OPTIONS, *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_push_needs_a_token_and_arms(log: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed = ["--push", "http://x", "--experiment", "rank", "--hour", HOUR]
    assert "--push needs --arm" in command("eval", log, *OPTIONS[:6], *pushed).err
    monkeypatch.delenv("STREAMMETRICS_TOKEN")
    assert "STREAMMETRICS_TOKEN" in command("eval", log, *OPTIONS, *pushed).err


# -- the audit log and backups -----------------------------------------------------------------------------------------


def test_the_audit_log_and_a_backup_by_commands(tmp_path: Path, command: Command) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "b.db"
    assert command("serve", "token", "--reader", "ann", "--tag", "ads", "--tag", "search", "--store", path).code == 0
    with open_store(path) as store:  # a server has it open, and what it wrote last is in the write-ahead log
        store.define("rank", "{}", by="eve", at=NOW)
        assert command("serve", "backup", copy, "--store", f"sqlite:///{path}").code == 0
    assert copy.stat().st_mode & 0o777 == 0o600
    log = command("serve", "audit", "--store", copy).out
    assert "\t@reader\t" in log
    assert "made token 'ann' for ads, search" in log
    assert command("serve", "audit", "rank", "--store", copy).out == (
        "2026-06-01T20:00:00Z\trank\teve\tdefined version 1\n"
    )
    again = command("serve", "backup", copy, "--store", path)
    assert (again.code, "exists already" in again.err) == (2, True)
    assert "pg_dump" in command("serve", "backup", tmp_path / "c", "--store", "postgresql://a/b").err
    assert "there is no file" in command("serve", "backup", tmp_path / "c", "--store", tmp_path / "none").err
    assert not (tmp_path / "c").exists()
    assert "--reader NAME" in command("serve", "token", "rank", "--tag", "x", "--store", path).err


@pytest.mark.slow
def test_a_backup_is_restored_on_another_port(tmp_path: Path, command: Command) -> None:
    """The copy of a server that runs gives the same answers, and takes the posts after the backup."""
    path, copy = tmp_path / "a.db", tmp_path / "b.db"
    parts = [posted.part(PartKey("rank", "job", posted.FIRST + hour), hour) for hour in range(3)]
    with open_store(path) as store:
        owner = issue_token(store, OWNER, "eve", by="test", at=NOW)
        store.define("rank", json.dumps(Experiment.from_toml(TOML, id="rank").to_dict()), by="eve", at=NOW)
    with open_store(path) as store, running(_dashboard_of(store)) as url:
        assert [_post(url, owner, part) for part in parts[:2]] == ["stored", "stored"]
        _wait_for_parts(url, owner, 2)
        decision = {"arm": "B", "reason": "it is better"}
        assert _call("POST", f"{url}{API}/decisions", owner, json=decision).status_code == 201
        assert command("serve", "backup", copy, "--store", path).code == 0
        assert _post(url, owner, parts[2]) == "stored"  # the backup does not have it
    with open_store(copy) as store:
        evaluation, looks = store.evaluation("rank"), store.looks("rank")
        assert evaluation is not None
        assert {look["treatment"] for _, text in looks for look in json.loads(text)} == {"B"}
        with running(_dashboard_of(store)) as url:
            answers = {address: _call("GET", f"{url}{address}", owner) for address in ANSWERS}
            assert store.evaluation("rank") == evaluation
            assert store.looks("rank") == looks
            assert [_post(url, owner, part) for part in parts] == ["same", "same", "stored"]
            _wait_for_parts(url, owner, 3)
    with open_store(path) as store, running(_dashboard_of(store)) as url:
        _wait_for_parts(url, owner, 3)
        restored = answers[f"{API}/results"].json()
        assert restored["data"]["parts"] == 2
        assert restored["decisions"] == _call("GET", f"{url}{API}/results", owner).json()["decisions"]
        for same in (f"{API}/decisions", f"{API}/audit", "/experiments/rank/decisions/1"):
            assert _without_nonce(answers[same]) == _without_nonce(_call("GET", f"{url}{same}", owner)), same
    assert "it is better" in answers["/experiments/rank/decisions/1"].text


API = "/v1/experiments/rank"
ANSWERS = f"{API}/results", f"{API}/decisions", f"{API}/audit", "/experiments/rank/decisions/1"


def _dashboard_of(store: Store) -> Any:
    return build_dashboard(store, ServerSettings(clock=lambda: NOW, public_read=True), every=0.05)


def _call(method: str, url: str, owner: str, **given: Any) -> httpx.Response:
    return httpx.request(method, url, headers={"authorization": f"Bearer {owner}"}, timeout=300, **given)


def _post(url: str, owner: str, part: PostedPart) -> str:
    query = f"hour={format_hour(part.key.hour)}&source={part.key.source}"
    return str(_call("POST", f"{url}{API}/states?{query}", owner, content=part.data).json()["state"])


def _wait_for_parts(url: str, owner: str, count: int) -> None:
    for _ in range(3000):
        if _call("GET", f"{url}{API}/results", owner).json()["data"]["parts"] == count:
            return
        time.sleep(0.1)
    raise AssertionError(f"{count} parts were not evaluated within five minutes")


def _without_nonce(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return re.sub(r'nonce="[^"]*"', "", answer.text)


def test_rights_of_groups_are_checked() -> None:
    assert parse_groups(["a=owner", "cn=b=tag:x", "c=reader"]) == (("a", "owner"), ("cn=b", "tag:x"), ("c", "reader"))
    for wrong in ("a", "=owner", "a=writer", "a=tag:"):
        with pytest.raises(UsageError, match="GROUP=tag:TAG"):
            parse_groups([wrong])
