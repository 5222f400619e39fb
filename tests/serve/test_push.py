"""Workers that push, to a real server: what is retried, what is not, and that the token stays where it belongs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from serve.fakes import HOUR, NOW, World, arms, world
from serve.running import running

import streammetrics as sm
from streammetrics.serve import push as pushing
from streammetrics.serve.app import create_app
from streammetrics.serve.settings import ServerSettings

WHERE = {"experiment": "rank", "source": "job", "hour": HOUR}


class Said(list[tuple[int, dict[str, str], bytes]]):
    """What a server answers, one after the other; and what it was asked: paths, headers, bodies."""

    def __init__(self, *answers: tuple[int, dict[str, str], bytes]) -> None:
        super().__init__(answers)
        self.asked: list[tuple[str, dict[str, str], bytes]] = []


@contextmanager
def answering(said: Said) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            said.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status, headers, text = said.pop(0)
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {"content-length": str(len(text)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST  # noqa: N815 - as the standard library calls it

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were waited, without waiting."""
    found: list[float] = []
    monkeypatch.setattr(pushing.time, "sleep", found.append)
    return found


def stored(word: str = "stored", status: int = 201) -> tuple[int, dict[str, str], bytes]:
    return status, {}, json.dumps({"state": word}).encode()


def refused(status: int, **headers: str) -> tuple[int, dict[str, str], bytes]:
    return (
        status,
        {k.replace("_", "-"): v for k, v in headers.items()},
        json.dumps({"error": "no, for a reason"}).encode(),
    )


@pytest.fixture
def here() -> World:
    return world()


@pytest.fixture
def server(here: World) -> Iterator[str]:
    with running(create_app(*here[:2], ServerSettings(clock=lambda: NOW))) as url:
        yield url


# -- the real server -------------------------------------------------------------------------------------------------


def test_a_worker_pushes(here: World, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sm.push(server, arms(), **WHERE, token=here.writer) == "stored"
    monkeypatch.setenv("STREAMMETRICS_TOKEN", here.writer)
    assert sm.push(f"{server}/", arms().to_bytes(), **WHERE) == "same"
    assert [part.digest for part in here.store.kept.values()] == [arms().digest()]


def test_a_token_from_a_file_ends_in_a_newline(here: World, server: str) -> None:
    assert sm.push(server, arms(), **WHERE, token=f"{here.writer}\n") == "stored"
    for wrong in ("smt_a\nb", "smt_\u00e9", "smt_\u4e00"):
        with pytest.raises(sm.InvalidInputError, match="must contain only printable ASCII characters") as error:
            sm.push(server, arms(), **WHERE, token=wrong)
        assert "smt_" not in str(error.value)
    with pytest.raises(sm.InvalidInputError, match="create one with 'streammetrics serve token EXPERIMENT'"):
        sm.push(server, arms(), **WHERE, token=" \n")


def test_what_the_server_says_is_raised(here: World, server: str, pauses: list[float]) -> None:
    sm.push(server, arms(), **WHERE, token=here.writer)
    with pytest.raises(
        sm.PushError, match=r"rank/2026-06-01T09/job-0 was not stored .* kept as a conflict"
    ) as conflict:
        sm.push(server, arms(1), **WHERE, token=here.writer)
    with pytest.raises(sm.PushError, match="expected metrics sliced by arm") as other:
        sm.push(server, sm.CTR().update([0, 1]), **WHERE | {"source": "b"}, token=here.writer)
    with pytest.raises(sm.PushError, match="send a token") as wrong:
        sm.push(server, arms(), **WHERE, token="smt_wrong")
    assert (conflict.value.status, other.value.status, wrong.value.status) == (409, 422, 401)
    assert pauses == []


def test_hours_are_what_they_are(here: World, server: str) -> None:
    hours = [HOUR, 494529, datetime(2026, 6, 1, 9, 59, tzinfo=UTC)]
    hours.append(datetime(2026, 6, 1, 11, 30, tzinfo=timezone(timedelta(hours=2))))
    words = [sm.push(server, arms(), **WHERE | {"hour": hour}, token=here.writer) for hour in hours]
    assert words == ["stored", "same", "same", "same"]


def test_a_large_body_hears_why(here: World) -> None:
    """The answer arrives although the server does not read to the end."""
    with running(create_app(*here[:2], ServerSettings(clock=lambda: NOW, max_bytes=1 << 20))) as url:
        with pytest.raises(sm.PushError, match="larger than 1,048,576 bytes") as error:
            sm.push(url, b"x" * (1 << 20) + b"y" * 1000, **WHERE, token=here.writer, retries=0)
        assert error.value.status == 413
        with pytest.raises(sm.PushError, match="send a token"):
            sm.push(url, b"x" * 500_000, **WHERE, token="smt_wrong", retries=0)


# -- retries ---------------------------------------------------------------------------------------------------------


def test_what_passes_is_tried_again(pauses: list[float]) -> None:
    said = Said(refused(503), refused(429), refused(507), (0, {}, b""), refused(500), stored())
    with answering(said) as url:
        assert sm.push(url, arms(), **WHERE, token="t") == "stored"
    assert len({(path, body) for path, _, body in said.asked}) == 1  # the same part, under the same key
    assert len(said.asked) == 6
    for i, pause in enumerate(pauses):
        assert 0.25 * 2**i <= pause <= 0.75 * 2**i


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 408, 409, 413, 422, 301, 302, 307, 308])
def test_what_does_not_pass_is_not(pauses: list[float], status: int) -> None:
    said = Said(refused(status, location="/elsewhere"))
    with answering(said) as url, pytest.raises(sm.PushError, match="no, for a reason") as error:
        sm.push(url, arms(), **WHERE, token="t")
    assert (error.value.status, len(said.asked), pauses) == (status, 1, [])


def test_it_ends(pauses: list[float]) -> None:
    said = Said(*[refused(503)] * 3)
    with answering(said) as url, pytest.raises(sm.PushError, match="no, for a reason"):
        sm.push(url, arms(), **WHERE, token="t", retries=2)
    assert len(pauses) == 2


@pytest.mark.parametrize(
    ("after", "low", "high"),
    [
        ("7", 7, 8.75),
        ("100000", 600, 750),
        ("Fri, 01 Jan 2100 00:00:00 GMT", 600, 750),
        ("Fri, 01 Jan 1999 00:00:00 GMT", 0.25, 0.75),
        ("soon", 0.25, 0.75),
        ("-5", 0.25, 0.75),
    ],
)
def test_a_server_may_ask_to_be_left_alone(pauses: list[float], after: str, low: float, high: float) -> None:
    with answering(Said(refused(429, retry_after=after), stored())) as url:
        sm.push(url, arms(), **WHERE, token="t")
    assert low <= pauses[0] <= high


def test_pauses_are_not_alike_and_not_endless() -> None:
    found = {pushing._compute_pause(40, None) for _ in range(50)}
    assert len(found) == 50
    assert max(found) <= 90


@pytest.mark.parametrize("text", [b"<html>", b"[]", b"{}", b""])
def test_what_is_not_our_server_stores_nothing(pauses: list[float], text: bytes) -> None:
    with answering(Said((200, {}, text))) as url, pytest.raises(sm.PushError, match="is not a streammetrics dashboard"):
        sm.push(url, arms(), **WHERE, token="t", retries=0)


# -- what is asked ---------------------------------------------------------------------------------------------------


def test_the_token_is_in_a_header_alone(pauses: list[float]) -> None:
    said = Said(stored())
    with answering(said) as url:
        sm.push(url, arms(), **WHERE, token="smt_secret")
    ((path, headers, body),) = said.asked
    assert headers["authorization"] == "Bearer smt_secret"
    assert "smt_secret" not in path
    assert path == "/v1/experiments/rank/states?hour=2026-06-01T09&source=job&seq=0"
    assert body == arms().to_bytes()


@pytest.mark.parametrize(
    "url", ["ftp://host", "host:80", "", "file:///etc/passwd", "http://", "http://u:p@host", "http://host?token=x"]
)
def test_urls_are_checked(url: str) -> None:
    with pytest.raises(sm.InvalidInputError, match="url: expected the URL of the server"):
        sm.push(url, arms(), **WHERE, token="t")


@pytest.mark.parametrize("wrong", [{"source": "a/b"}, {"experiment": "../x"}, {"hour": "now"}, {"seq": -1}])
def test_keys_are_checked_before_anything_is_sent(wrong: dict[str, Any]) -> None:
    with pytest.raises(sm.InvalidInputError):
        sm.push("http://127.0.0.1:1", arms(), **WHERE | wrong, token="t")


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(sm.InvalidInputError, match="with a time zone"):
        sm.push("http://127.0.0.1:1", arms(), **WHERE | {"hour": datetime(2026, 6, 1)}, token="t")


def test_a_token_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMMETRICS_TOKEN", raising=False)
    with pytest.raises(sm.InvalidInputError, match="STREAMMETRICS_TOKEN"):
        sm.push("http://127.0.0.1:1", arms(), **WHERE)
    with pytest.raises(TypeError, match="of class list"):
        sm.push("http://127.0.0.1:1", [arms()], **WHERE, token="t")  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_worker_needs_nothing_else() -> None:
    """Pushing loads the standard library; importing the package not even its http."""
    code = f"""
import sys, streammetrics as sm
assert "http.client" not in sys.modules, "http.client"
try:
    sm.push("http://127.0.0.1:1", {arms().to_bytes()!r}, experiment="a", source="b", hour=1, token="t", retries=0)
except sm.PushError:
    pass
print(*{{"starlette", "uvicorn", "httpx", "jinja2", "numba"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
