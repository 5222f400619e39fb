"""A dashboard with pages alone: what stores, reads and checks is faked."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import uvicorn
from serve.evaluations import ALL, FakeStore
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import streammetrics as sm
from streammetrics.serve.evaluation.evaluation import Evaluation
from streammetrics.serve.page.routes import build_page_routes

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


class Person(NamedTuple):
    """Who reads."""

    name: str
    role: str
    csrf_token: str


class FakeBoard:
    """What pages ask a board."""

    def __init__(self, evaluations: dict[str, Evaluation]) -> None:
        self.evaluations, self.open = evaluations, 0
        self.computing: dict[str, float] = {}
        self._queues: list[tuple[str, asyncio.AbstractEventLoop, asyncio.Queue[Evaluation | None]]] = []

    def evaluation(self, experiment: str) -> Evaluation | None:
        return self.evaluations.get(experiment)

    def computing_since(self, experiment: str) -> float | None:
        return self.computing.get(experiment)

    async def subscribe(self, experiment: str, since: float = 0.0) -> AsyncIterator[Evaluation]:
        queue: asyncio.Queue[Evaluation | None] = asyncio.Queue()
        self._queues.append((experiment, asyncio.get_running_loop(), queue))
        self.open += 1
        try:
            if self.evaluations[experiment].at > since > 0.0:
                yield self.evaluations[experiment]
            while (found := await queue.get()) is not None:
                yield found
        finally:
            self.open -= 1

    def put(self, found: Evaluation) -> None:
        """Show another evaluation, from any thread."""
        self.evaluations[found.experiment] = found
        for name, loop, queue in self._queues:
            if name == found.experiment:
                loop.call_soon_threadsafe(queue.put_nowait, found)


OWNER = Person("ann", "owner", "f0" * 32)
READER = Person("bob", "reader", "0f" * 32)


@dataclass
class Site:
    """Pages, and what is behind them."""

    store: FakeStore
    board: FakeBoard
    person: Person = OWNER
    hidden: set[str] = field(default_factory=set)
    changed: str = "users: changed from 300,000 to 400,000"
    beat: float = 15.0
    url: str = ""

    def reader(self, request: Request, experiment: str) -> Person | Response:
        return PlainTextResponse("log in", 401) if experiment in self.hidden else self.person

    def app(self) -> Any:
        held = sm.CTR().update([0, 1, 1])
        routes = build_page_routes(
            self.board, self.store, self.reader, total=lambda name: held.to_bytes() if name != "empty" else None,
            decide=self.store.decide, describe_changes=lambda old, new: [self.changed], beat=self.beat,
        )  # fmt: skip
        return strict(Starlette(routes=routes))


def strict(app: Any) -> Any:
    """Say the strictest policy with every answer."""

    async def secured(scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["content-security-policy"] = POLICY
            await send(message)

        await app(scope, receive, sent)

    return secured


def site_of(**more: Any) -> Site:
    """Every state, each an experiment of that name."""
    evaluations = {name: replace(made(), experiment=name) for name, made in ALL.items()}
    return Site(FakeStore(evaluations), FakeBoard(evaluations), **more)


@contextlib.contextmanager
def served(site: Site) -> Iterator[Site]:
    """Serve pages on a free port."""
    config = uvicorn.Config(site.app(), port=0, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    site.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield site
    finally:
        server.should_exit = True
        thread.join(10)
