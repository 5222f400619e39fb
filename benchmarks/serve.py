"""The dashboard under load: `python -m benchmarks.serve [SECONDS] [POSTGRES]` (60 by default; an hour is 3600).

200 posts a second of frames of five metrics (2,000 rows, 64 shards of users, two arms, four countries), encoded
beforehand, by a process of its own, once the server says that it is ready, while 50 pages are open. Latency is from when
a post was due, so a server that stops is not forgiven what was sent late. Time of the server runs a day in `24 / HOURS`
seconds, so that old parts are folded to days as they would be. Then the first page of 30 days x 24 hours x 4 arms x 20
slices, cold and warm. Then 100 experiments on one server: the CPU time of a start, of a minute without news, and of
one new part; and, with the URL of an empty PostgreSQL database, the same experiments on two servers, which must divide
them, show the same evaluations, and write each look once.

With fewer than 60 seconds, the other lines are smaller, too: 8 experiments, 5 seconds without news, and 2 days.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import failures, table, verdict
from benchmarks.timing import MIB, ROOT
from streammetrics.serve.api.auth import issue_token
from streammetrics.serve.api.reader_process import DecoderProcess, ReaderProcess
from streammetrics.serve.dashboard import build_dashboard
from streammetrics.serve.experiment_simulation import Simulation
from streammetrics.serve.part_keys import HOUR, PartKey, PostedPart, format_hour
from streammetrics.serve.server import build_server
from streammetrics.serve.settings import ServerSettings
from streammetrics.serve.store import open_store

POSTS, PAGES, FRAMES = 200, 50, 40
EXPERIMENTS, SOURCES = 4, 50
HOURS = POSTS / EXPERIMENTS / SOURCES  # of the server's time in a second
# The limit of the 99th percentile of the latency, in seconds. It depends on the free time of the two cores, of which the
# load takes 80 %: the 99th percentile is 77 ms without evaluations, and 80 to 320 ms with evaluations.
LATENCY = 0.5
GROWTH = 1.15  # the limit of the memory after the first third of the run, as a multiple of the memory at that time
LONG = 900.0  # the length of a run in seconds from which GROWTH applies; memory grows in shorter runs
COLD, WARM = 1.0, 0.1  # seconds
MANY, PARTS = 100, 6  # experiments, and parts of each before the measurement
FULL = 60.0  # seconds of posts from which on all lines have their full size
WAIT = 600.0  # seconds until a server that does not evaluate is given up
# CPU seconds: of a start, and of an experiment in a minute without news, and for one new part; seconds until news is seen.
RESTART, IDLE, PART, NEWS = 5.0, 0.05, 0.5, 60.0
LEAST_SHARE = 0.3  # of the work, that each of two servers must do
START = 480_000
GROWN = 100_000  # hours after which the frames of the load are drawn: by then there are many users
LOAD = Simulation(users=40_000, sources=tuple(f"s{i}" for i in range(SOURCES)), start=START, days=10_000)
SMALL = Simulation(users=40_000, sources=("one",), start=START, days=10)
LARGE = Simulation(id="large", arms=("a", "b", "c", "d"), countries=20, days=30, sources=("one",), start=START)


# -- the server, in a process of its own ---------------------------------------------------------------------------------


def serve(database: str, hour: float, hours_a_second: float) -> None:
    """Serve until killed; the clock begins at an hour and goes so fast."""
    began = time.monotonic()
    with open_store(database) as store, socket.create_server(("127.0.0.1", 0)) as heard:
        settings = ServerSettings(
            public_read=True,
            rate=1e6,
            burst=10**6,
            clock=lambda: HOUR * (hour + (time.monotonic() - began) * hours_a_second),
        )
        print(heard.getsockname()[1], flush=True)
        app = build_dashboard(store, settings, reader=ReaderProcess(database), decoder=DecoderProcess(database))
        build_server(app, "127.0.0.1", 0).run(sockets=[heard])


@contextlib.contextmanager
def served(database: str, hour: float, hours_a_second: float) -> Iterator[tuple[int, int]]:
    """Start a server, yield its port and process ID, and stop it on exit."""
    command = [sys.executable, "-m", "benchmarks.serve", "--serve", database, str(hour), str(hours_a_second)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert running.stdout is not None
    try:
        yield int(running.stdout.readline()), running.pid
    finally:
        running.terminate()
        running.wait(60)
        running.stdout.close()


def held(process: int) -> int:
    """Bytes of memory of a process and of those that it has started."""
    found = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    started = [
        int(child) for of in Path(f"/proc/{process}/task").glob("*/children") for child in of.read_text().split()
    ]
    return found + sum(map(held, started))


# -- the load -------------------------------------------------------------------------------------------------------------


@dataclass
class Loaded:
    """What came of so many posts a second."""

    rate: float
    latencies: list[float]
    refused: int
    looks: list[int]
    memory: list[int]


class Client:
    """A connection that is kept."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.pipe: Any = None

    async def ask(self, request: bytes) -> int:
        """Send a request, again if the server closes what was idle just now; return the status of the answer."""
        if self.pipe is not None and not self.pipe[0].at_eof():
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                return await self._answer(request)
        self.close()
        self.pipe = await asyncio.open_connection("127.0.0.1", self.port)
        return await self._answer(request)

    async def _answer(self, request: bytes) -> int:
        reader, writer = self.pipe
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
        return int(head.split()[1])

    def close(self) -> None:
        """Hang up."""
        if self.pipe is not None:
            self.pipe[1].close()


def post(experiment: int, source: int, hour: int, token: str, frame: bytes) -> bytes:
    """A request."""
    path = f"/v1/experiments/load-{experiment}/states?hour={format_hour(hour)}&source=s{source}"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(frame)}\r\n\r\n"
    return head.encode() + frame


async def watched(port: int, looks: list[int], page: int) -> None:
    """An open page: count what it is told, beside what it is told at first."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /experiments/load-0/live HTTP/1.1\r\nHost: x\r\n\r\n")
    try:
        while line := await reader.readline():
            looks[page] += line.startswith(b"data:")
    finally:
        writer.close()


async def loaded(port: int, process: int, posts: int, rate: float, tokens: list[str], frames: list[bytes]) -> Loaded:
    """Post so many, at a steady rate, while pages are open."""
    found = Loaded(rate, [], 0, [-1] * PAGES, [])
    idle = [Client(port)]
    while await idle[0].ask(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n") != 200:
        await asyncio.sleep(0.05)
    pages = [asyncio.ensure_future(watched(port, found.looks, page)) for page in range(PAGES)]

    async def one(number: int, due: float) -> None:
        rest, experiment = divmod(number, EXPERIMENTS)
        hours, source = divmod(rest, SOURCES)
        client = idle.pop() if idle else Client(port)
        status = await client.ask(post(experiment, source, START + hours, tokens[experiment], frames[number % FRAMES]))
        found.latencies.append(time.perf_counter() - due)
        found.refused += status not in (200, 201)  # 200: sent again, and there already
        idle.append(client)

    began, waiting = time.perf_counter(), set()
    for number in range(posts):
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.ensure_future(one(number, due))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        if number % 100 == 0:
            found.memory.append(held(process))
    await asyncio.gather(*waiting)
    assert len(found.latencies) == posts
    async with asyncio.timeout(60):
        while min(found.looks) < 1:  # what was posted last is news within seconds
            await asyncio.sleep(0.05)
    for page in pages:
        page.cancel()
    await asyncio.gather(*pages, return_exceptions=True)
    for client in idle:
        client.close()
    return found


def under_load(seconds: float, folder: str, rate: float = POSTS) -> Loaded:
    """Serve, and post for so long, so many a second."""
    database = f"{folder}/load.db"
    with open_store(database) as store:
        for i in range(EXPERIMENTS):
            definition = LOAD.definition() | {"id": f"load-{i}", "correct_within_days": 1.0}
            store.define(f"load-{i}", json.dumps(definition), by="load", at=START * HOUR)
        tokens = [issue_token(store, f"load-{i}", "load", by="load", at=0.0) for i in range(EXPERIMENTS)]
    frames = [LOAD.part(f"s{i % SOURCES}", START + GROWN + i).to_bytes() for i in range(FRAMES)]
    with served(database, START + 1, HOURS * rate / POSTS) as (port, process):
        return asyncio.run(loaded(port, process, int(seconds * rate), rate, tokens, frames))


# -- the first page ---------------------------------------------------------------------------------------------------


def first_pages(folder: str, simulated: Simulation = LARGE) -> tuple[float, float]:
    """Seconds until the first page of a server that has just started, and of those that follow once it has read."""
    database = f"{folder}/large.db"
    with open_store(database) as store:
        store.define(simulated.id, json.dumps(simulated.definition()), by="load", at=simulated.start * HOUR)
        for hour in range(simulated.start, simulated.end):
            part = simulated.part("one", hour)
            key = PartKey(simulated.id, "one", hour)
            store.put([PostedPart(key, part.to_bytes(), part.digest(), (hour + 1.0) * HOUR)])
    with served(database, simulated.end, 0.0) as (port, _):
        page(port, simulated.id, until=b"Scorecard")  # it reads what there is, and keeps it
    with served(database, simulated.end, 0.0) as (port, _):
        page(port, "", until=b"")  # it is there
        cold = page(port, simulated.id)
        warm = median(page(port, simulated.id) for _ in range(30))
    return cold, warm


def page(port: int, experiment: str, until: bytes | None = None) -> float:
    """Seconds that a page takes; with `until`, ask until it says that."""

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        path = f"/experiments/{experiment}" if experiment else "/healthz"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        found = await reader.read()
        writer.close()
        return found

    deadline = time.monotonic() + WAIT
    while True:
        began = time.perf_counter()
        found = asyncio.run(ask())
        took = time.perf_counter() - began
        assert found.startswith(b"HTTP/1.1 200"), found[:200]
        if until is None or until in found:
            return took
        if time.monotonic() > deadline:
            raise TimeoutError(f"the page of {experiment} did not say {until!r} within {WAIT:g} s")
        time.sleep(0.2)


# -- many experiments -------------------------------------------------------------------------------------------------


@dataclass
class Shared:
    """What many experiments cost, on one server or on several that share a database.

    Attributes
    ----------
    restart : float
        CPU seconds of a start when all experiments are evaluated already.
    idle, part : float
        CPU seconds of an experiment in a minute without news, and of one new part.
    news : float
        Seconds from the first of the new parts, one for each experiment, until every server shows all of them.
    shares : list of float
        Each server's share of the work on the new parts.
    twice : int
        Looks that were written twice.
    """

    restart: float
    idle: float
    part: float
    news: float
    shares: list[float]
    twice: int


def cpu(process: int) -> float:
    """CPU seconds of a process and of those that it has started and that run."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    started = [
        int(child) for of in Path(f"/proc/{process}/task").glob("*/children") for child in of.read_text().split()
    ]
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(map(cpu, started))


def many_experiments(database: str, servers: int, experiments: int = MANY, idle_seconds: float = 60.0) -> Shared:
    """Serve so many experiments, first without news, and then with one new part of each, all posted to one server."""
    names = [f"many-{i}" for i in range(experiments)]
    frames = [SMALL.part("one", START + hour) for hour in range(PARTS + 1)]
    encoded = [(part.to_bytes(), part.digest()) for part in frames]
    with open_store(database) as store:
        for name in names:
            store.define(name, json.dumps(SMALL.definition() | {"id": name}), by="load", at=START * HOUR)
            keys = [PartKey(name, "one", START + hour) for hour in range(PARTS)]
            store.put([PostedPart(k, *encoded[k.hour - START], (k.hour + 1.0) * HOUR) for k in keys])
        tokens = [issue_token(store, name, "load", by="load", at=0.0) for name in names]
        with served(database, START + PARTS + 0.1, 1 / 3600):
            wait_for_parts(store, names, PARTS)
        with contextlib.ExitStack() as running:
            found = [running.enter_context(served(database, START + PARTS + 0.3, 1 / 3600)) for _ in range(servers)]
            for port, _ in found:
                page(port, names[-1], until=f" in {PARTS} parts".encode())
            time.sleep(5.0)  # they have told each other of their experiments
            before = [cpu(process) for _, process in found]
            time.sleep(idle_seconds)
            rested = [cpu(process) for _, process in found]
            began = time.perf_counter()
            asyncio.run(post_to_each(found[0][0], names, tokens, encoded[PARTS][0]))
            # Wait for the evaluations without asking for pages, because pages take CPU time of the servers.
            wait_for_parts(store, names, PARTS + 1)
            for port, _ in found:
                for name in names:
                    page(port, name, until=f" in {PARTS + 1} parts".encode())
            news = time.perf_counter() - began
            spent = [cpu(process) - at for (_, process), at in zip(found, rested, strict=True)]
        looks = [at for name in names for at in store.looks(name)]
        twice = sum(len(some) - len({at for at, _ in some}) for some in map(store.looks, names))
    assert len(looks) >= experiments
    idle = (sum(rested) - sum(before)) / experiments * 60.0 / idle_seconds
    shares = [one / sum(spent) for one in spent]
    return Shared(max(before), idle, sum(spent) / experiments, news, shares, twice)


def wait_for_parts(store: Any, names: list[str], parts: int) -> None:
    """Wait until every experiment has a stored evaluation of so many parts."""
    deadline = time.monotonic() + WAIT
    for name in names:
        while json.loads(store.evaluation(name) or "{}").get("parts") != parts:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} was not evaluated within {WAIT:g} s")
            time.sleep(0.2)


async def post_to_each(port: int, names: list[str], tokens: list[str], frame: bytes) -> None:
    """Post the next part of each experiment."""
    client = Client(port)
    for name, token in zip(names, tokens, strict=True):
        path = f"/v1/experiments/{name}/states?hour={format_hour(START + PARTS)}&source=one"
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        assert await client.ask(f"{head}Content-Length: {len(frame)}\r\n\r\n".encode() + frame) == 201
    client.close()


# -- what is reported -------------------------------------------------------------------------------------------------


def report(found: Loaded) -> None:
    """Print what came of the load."""
    ordered = sorted(found.latencies)
    late = ordered[int(0.99 * len(ordered))]
    after = found.memory[len(found.memory) // 3]
    grown = max(found.memory[len(found.memory) // 3 :]) / after
    stored, judged = len(ordered) - found.refused, len(ordered) >= LONG * found.rate
    checks = {
        "refused": (f"posts stored, of {len(ordered):,}", f"{stored:,}", "all", not found.refused),
        "latency": ("99 of 100 within", f"{1000 * late:.0f} ms", f"{1000 * LATENCY:.0f} ms", late < LATENCY),
        "memory": (
            "memory, to that after a third",
            f"{grown:.2f} of {after / MIB:.0f} MiB",
            f"{GROWTH}" if judged else f"{GROWTH} from {LONG:g} s on",
            grown < GROWTH or not judged,
        ),
        "pages": (f"news of each of {PAGES} pages, at least", f"{min(found.looks)}", "1", min(found.looks) >= 1),
    }
    rows = [[*said, verdict(name, passed)] for name, (*said, passed) in checks.items()]
    rows.insert(1, ["half of them within", f"{1000 * median(ordered):.0f} ms", "", ""])
    table(f"{found.rate:g} posts a second", ["", "measured", "limit", ""], rows)


def report_many(found: Shared, experiments: int = MANY) -> None:
    """Print what many experiments cost."""
    servers = len(found.shares)
    checks = {
        "restart": ("CPU time of a start", found.restart, RESTART),
        "idle": ("CPU time of an experiment, a minute without news", found.idle, IDLE),
        "part": ("CPU time of a new part", found.part, PART),
        "news": ("until every server shows all new parts", found.news, NEWS),
    }
    rows = [
        [said, f"{value:.3g} s", f"{limit:g} s", verdict(f"{servers} servers, {name}", value < limit)]
        for name, (said, value, limit) in checks.items()
    ]
    rows.append(["looks written twice", f"{found.twice}", "0", verdict(f"{servers} servers, looks", not found.twice)])
    if servers > 1:
        least = min(found.shares)
        passed = verdict("shares", least >= LEAST_SHARE)
        rows.append(["the least share of a server", f"{least:.0%}", f"{LEAST_SHARE:.0%}", passed])
    on = "server" if servers == 1 else "servers on one PostgreSQL"
    table(f"{experiments} experiments on {servers} {on}", ["", "measured", "limit", ""], rows)


def main(seconds: float = 60.0, postgres: str = "") -> None:
    is_full = seconds >= FULL
    large = LARGE if is_full else replace(LARGE, days=2)
    experiments, idle_seconds = (MANY, 60.0) if is_full else (8, 5.0)
    with tempfile.TemporaryDirectory() as folder:
        report(under_load(seconds, folder))
        cold, warm = first_pages(folder, large)
    rows = [
        ["cold", f"{1000 * cold:.0f} ms", f"{1000 * COLD:.0f} ms", verdict("cold page", cold < COLD)],
        ["warm", f"{1000 * warm:.0f} ms", f"{1000 * WARM:.0f} ms", verdict("warm page", warm < WARM)],
    ]
    table(
        f"The first page of {large.end - large.start} hours x 4 arms x 20 slices", ["", "measured", "limit", ""], rows
    )
    with tempfile.TemporaryDirectory() as folder:
        found = many_experiments(f"{folder}/many.db", 1, experiments, idle_seconds)
        report_many(found, experiments)
    if postgres:
        report_many(many_experiments(postgres, 2, experiments, idle_seconds), experiments)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
    else:
        main(*map(float, sys.argv[1:2]), *sys.argv[2:3])
        sys.exit(bool(failures()))
