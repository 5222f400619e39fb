"""What comes from who means harm: no 5xx, nothing stored, nothing that grows, nothing told, and others are served."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest
from serve.client import Client
from serve.fakes import DEFINITION, HOUR, NOW, World, arms, world
from serve.running import running
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from streammetrics.serve.app import create_app
from streammetrics.serve.server import TimeoutProtocol
from streammetrics.serve.settings import ServerSettings

STATES = f"/v1/experiments/rank/states?hour={HOUR}&source=job"
ROUNDS = 5000 if os.environ.get("SERVE") == "full" else 150
"""Of hostile frames; ``SERVE=full pytest -m "" tests/serve/test_attacks.py`` tries many more."""


@pytest.fixture
def here() -> World:
    return world()


@pytest.fixture
def client(here: World) -> Iterator[Client]:
    settings = ServerSettings(clock=lambda: NOW, max_bytes=100_000, failures=10**6, rate=10**6, burst=10**6)
    with Client(create_app(*here[:2], settings)) as client:
        client.headers["authorization"] = f"Bearer {here.writer}"
        yield client


def repaired(frame: bytes) -> bytes:
    """With the checksum that it would have."""
    return frame[:-4] + zlib.crc32(frame[:-4]).to_bytes(4, "little")


def mutants(seed: int, count: int) -> Iterator[bytes]:
    """Frames with bytes changed, cut out, doubled and moved, whose checksum is right."""
    draw = random.Random(seed)
    frame = arms(seed).to_bytes()
    for _ in range(count):
        data = bytearray(frame)
        for _ in range(draw.choice([1, 1, 2, 8])):
            at = draw.randrange(8, len(data) - 4)
            how = draw.randrange(5)
            if how == 0:
                data[at] ^= 1 << draw.randrange(8)
            elif how == 1:
                data[at] = draw.choice([0, 1, 127, 128, 255])
            elif how == 2:
                del data[at : at + draw.randrange(1, 40)]
            elif how == 3:
                data[at:at] = data[at : at + draw.randrange(1, 40)]
            else:
                data[at : at + 8] = draw.choice([b"\xff" * 8, b"\0" * 8, (1 << 62).to_bytes(8, "little")])
            if len(data) < 40:
                break
        yield repaired(bytes(data))


@pytest.fixture
def decoding(here: World, decoder_of: Any) -> Iterator[Client]:
    """A client of an application that decodes in a thread, or in a process of its own."""
    settings = ServerSettings(clock=lambda: NOW, rate=10**6, burst=10**6)
    app = create_app(*here[:2], settings, decoder=decoder_of(here.store))
    with Client(app, authorization=f"Bearer {here.writer}") as client:
        yield client


@pytest.mark.slow
def test_mutated_frames(here: World, decoding: Client) -> None:
    """With their checksums repaired, so that what is behind the checksum has to hold."""
    client = decoding
    codes = [client.post(f"{STATES}&seq={i}", content=data).status_code for i, data in enumerate(mutants(1, ROUNDS))]
    assert set(codes) <= {400, 422, 201}
    assert codes.count(400) > 0.9 * ROUNDS
    assert len(here.store.kept) == codes.count(201)
    queue = client.app.state.ingest
    assert (queue.waiting, queue._bytes) == (0, 0) or here.board.told.wait(5)
    assert client.post(f"{STATES}&seq=999999", content=arms().to_bytes()).status_code == 201


@pytest.mark.slow
def test_truncated_frames(here: World, client: Client) -> None:
    frame = arms().to_bytes()
    cuts = random.Random(2).sample(range(len(frame)), min(ROUNDS, len(frame) - 1))
    for cut in cuts:
        assert client.post(STATES, content=frame[:cut]).status_code == 400
        if cut > 8:
            assert client.post(STATES, content=repaired(frame[:cut])).status_code == 400
    assert here.store.kept == {}


@pytest.mark.slow
def test_hostile_frames_leave_no_memory_behind(here: World, client: Client) -> None:
    def round_of(seed: int) -> int:
        for data in mutants(seed, 30):
            client.post(STATES, content=data)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        round_of(10)  # fills the caches of bounded size
        before = round_of(11)
        after = [round_of(seed) for seed in range(12, 15)][-1]
    finally:
        tracemalloc.stop()
    assert after - before < 1_500_000  # of 64 headers, which are kept


def test_oversized_bodies(here: World, client: Client) -> None:
    def endless() -> Iterator[bytes]:
        sent = 0
        while True:
            sent += 1
            assert sent < 100, "it is read to the end"
            yield b"x" * 10_000

    class Pieces(httpx.AsyncByteStream):
        async def __aiter__(self):
            for piece in endless():
                yield piece

    said = client.post(STATES, content=b"x" * 100_001)
    assert said.status_code == 413
    assert "100,000" in said.json()["error"]
    assert client.post(STATES, content=Pieces()).status_code == 413
    assert client.post("/login", content=b"token=" + b"x" * 20_000).status_code == 413
    assert client.post("/v1/experiments/rank", content=b"x", headers={"content-length": "9" * 30}).status_code in (
        401,
        413,
    )


def test_a_small_frame_that_would_become_large(here: World) -> None:
    """What decoding takes is bounded before it is taken."""
    settings = ServerSettings(clock=lambda: NOW, max_content=20_000)
    with Client(create_app(*here[:2], settings), authorization=f"Bearer {here.writer}") as client:
        answer = client.post(STATES, content=arms(rows=500).to_bytes())
    assert (answer.status_code, here.store.kept) == (400, {})
    assert "max_bytes" in answer.json()["error"]


PATHS = [
    "/v1/experiments/../../etc/passwd",
    "/v1/experiments/%2e%2e%2f%2e%2e%2fetc%2fpasswd/states",
    "/v1/experiments/rank%00/states",
    "/v1/experiments/%ff%fe/states",
    "/v1/experiments/rank/states/../../other/states",
    "//evil.example/v1",
    "/v1/experiments/" + "a" * 5000,
    "/v1/experiments/rank/conflicts/99999999999999999999999999/accept",
    "/v1/experiments/rank/conflicts/-1/accept",
    "/login/../v1",
    "/%6cogin%0a",
    "/experiments/rank.csv/../../secret",
    "/healthz/",
    "/\u202e",
]


@pytest.mark.parametrize("path", PATHS)
def test_paths(here: World, client: Client, path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "HEAD"):
        answer = client.request(method, path, content=b"")
        assert answer.status_code < 500, method
        assert "root:" not in answer.text
    assert here.store.kept == {}


@pytest.mark.parametrize(
    "head",
    [
        {"authorization": "Bearer \xff\xfe"},
        {"authorization": "bearer " * 50},
        {"cookie": "streammetrics=" + "x" * 5000},
        {"cookie": "streammetrics=W10.x.y; streammetrics=\x01"},
        {"x-forwarded-for": "1.2.3.4, , \xff"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-encoding": "gzip"},
        {"content-length": "-1"},
        {"content-length": "\xb2"},
        {"sec-fetch-site": "\xff"},
        {"origin": "http://["},
        {"host": "[::1"},
        {"retry-after": "x"},
    ],
)
def test_headers(here: World, client: Client, head: dict[str, str]) -> None:
    given = [(name.encode(), value.encode("latin-1")) for name, value in head.items()]
    for method, path in (("POST", STATES), ("GET", "/"), ("POST", "/login"), ("POST", "/logout"), ("GET", "/readyz")):
        assert client.request(method, path, headers=given, content=b"token=a").status_code < 500, path


@pytest.mark.slow
def test_tokens_cannot_be_guessed_at(here: World) -> None:
    """However many are tried and whatever they look like; and what is remembered of who tries is bounded."""
    app = create_app(*here[:2], ServerSettings(clock=lambda: NOW, failures=10))
    draw = random.Random(3)
    with Client(app, "10.0.0.1") as guesser:
        other = guesser.beside("10.0.0.2", authorization=f"Bearer {here.writer}")
        codes = []
        for _ in range(200):
            guess = here.writer[: draw.randrange(len(here.writer))] + draw.choice(["", "x", "\xff"])
            head = [(b"authorization", b"Bearer " + guess.encode("latin-1"))]
            codes.append(guesser.post(STATES, content=arms().to_bytes(), headers=head).status_code)
        assert set(codes) == {401, 429}
        assert codes.count(401) <= 12
        assert here.store.kept == {}
        assert other.post(STATES, content=arms().to_bytes()).is_success


def test_names_cannot_hold_markup_and_errors_do_not_repeat_it(here: World, client: Client) -> None:
    bad = "<script>alert(1)</script>"
    for path in (f"/v1/experiments/{bad}/states?hour={HOUR}&source=a", f"{STATES}{bad}", f"/login?next={bad}"):
        answer = client.request("POST" if "v1" in path else "GET", path)
        assert answer.status_code < 500
        assert bad not in answer.text or answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
    client.headers["authorization"] = f"Bearer {here.owner}"
    assert client.post("/v1/experiments/a", json=DEFINITION | {"sources": {bad: 1}}).status_code == 422


# -- on the wire -----------------------------------------------------------------------------------------------------


@pytest.fixture
def url(here: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(TimeoutProtocol, "seconds", 0.3)
    settings = ServerSettings(clock=lambda: NOW, body_seconds=0.3, max_bytes=100_000)
    with running(create_app(*here[:2], settings)) as url:
        yield url


def dialled(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=5)


def heard(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    found = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            found += piece
    return found


def served(here: World, url: str) -> bool:
    head = {"authorization": f"Bearer {here.writer}"}
    return httpx.post(url + STATES, content=arms().to_bytes(), headers=head).is_success


@pytest.mark.parametrize("said", [b"", b"G", b"GET / HTTP/1.1\r\nhost: a\r\n", b"POST /login HTTP/1.1\r\nx: "])
def test_who_does_not_say_what_he_wants_is_let_go(here: World, url: str, said: bytes) -> None:
    with ExitStack() as stack:
        many = [stack.enter_context(dialled(url)) for _ in range(20)]
        for one in many:
            one.sendall(said)
        assert served(here, url)
        assert all(heard(one) == b"" for one in many)


def test_who_says_it_slowly_is_let_go(url: str) -> None:
    """A byte now and then does not buy time; nor does it after a first answer."""
    for begin in (b"", b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"):
        with dialled(url) as one:
            one.sendall(begin)
            one.settimeout(0.05)
            found, ended = b"", False
            for _ in range(40):
                try:
                    one.sendall(b"G")
                    piece = one.recv(65536)
                    found += piece
                    ended = not piece
                except TimeoutError:
                    continue
                except (BrokenPipeError, ConnectionResetError):
                    ended = True
                if ended:
                    break
            assert ended
            assert (b"200 OK" in found) == bool(begin)


def test_a_body_that_dribbles_is_cut_off(here: World, url: str) -> None:
    head = f"POST {STATES} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {here.writer}\r\ncontent-length: 5000\r\n\r\n"
    with ExitStack() as stack:
        many = [stack.enter_context(dialled(url)) for _ in range(20)]
        for one in many:
            one.sendall(head.encode() + b"x")
        assert served(here, url)
        for one in many:
            assert heard(one).startswith(b"HTTP/1.1 408")
    assert len(here.store.kept) == 1


def test_who_leaves_in_the_middle_is_not_missed(here: World, url: str) -> None:
    head = f"POST {STATES}&seq=5 HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {here.writer}\r\n"
    head += "content-length: 5000\r\n\r\n"
    for _ in range(20):
        with dialled(url) as one:
            one.sendall(head.encode() + b"x" * 100)
    assert served(here, url)
    assert [key.seq for key in here.store.kept] == [0]


@pytest.mark.parametrize(
    "head",
    [
        "content-length: 10\r\ncontent-length: 20",
        "content-length: 10\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "content-length: 1e9",
        "content-length: +5",
        "x: " + "a" * 100_000,
        "a b: c",
        "x\x00: y",
        " folded: x",
    ],
)
def test_requests_that_two_servers_would_read_differently(here: World, url: str, head: str) -> None:
    """Smuggling, and heads without end."""
    with dialled(url) as one:
        text = f"POST {STATES} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {here.writer}\r\n{head}\r\n\r\n0\r\n\r\n"
        with suppress(BrokenPipeError, ConnectionResetError):
            one.sendall(text.encode("latin-1") + b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        found = heard(one)
    assert b"HTTP/1.1 5" not in found
    assert b"200 OK" not in found  # what is behind it is not taken for another request
    assert served(here, url)


@pytest.mark.parametrize("piece", [b"a" * 10_000, b"x: y\r\n" * 1000])
def test_heads_without_end_behind_an_answer_without_end(piece: bytes) -> None:
    """What comes while a page listens, and is no whole request, is not kept for when it has heard enough."""

    async def live(request: Request) -> StreamingResponse:
        async def said() -> AsyncIterator[bytes]:
            while not await request.is_disconnected():
                yield b": nothing yet\n\n"
                await asyncio.sleep(0.05)

        return StreamingResponse(said())

    with running(Starlette(routes=[Route("/", live)])) as url, dialled(url) as one:
        one.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert b"200 OK" in one.recv(65536)
        one.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            one.sendall(piece * 1000)


def test_chunks_without_end(here: World, url: str) -> None:
    with dialled(url) as one:
        text = f"POST {STATES} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {here.writer}\r\n"
        one.sendall(text.encode() + b"transfer-encoding: chunked\r\n\r\n")
        with suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(1000):
                one.sendall(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
        assert heard(one)[:12] in (b"HTTP/1.1 413", b"")
    assert served(here, url)
