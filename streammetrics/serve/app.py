"""The dashboard as an application: what programs call, what people see, and what works behind both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ..errors import IncompatibleStateError, InvalidInputError, StateFormatError, StreamMetricsError
from .api.access import Access, Gate, refused
from .api.auth import Accounts
from .api.decoder import Decode, InThread
from .api.endpoints import Api
from .api.headers import FIXED, POLICY, Headers
from .api.ingest import Ingest, NoRoomError
from .api.limits import BodyError, linger
from .api.login import login_routes
from .api.malloc_trim import EVERY, Spare
from .evaluation.definitions import Definitions
from .settings import ServerSettings
from .store import StoreDownError, StoreFullError
from .store.folder_watcher import Watch

__all__ = ["create_app"]

log = logging.getLogger(__name__)
FOLDER_SECONDS = 5.0
"""How often the folder of definitions is looked at."""
CODES: dict[type[Exception], int] = {
    InvalidInputError: 400,
    StateFormatError: 400,
    IncompatibleStateError: 422,
    NoRoomError: 429,
    StoreDownError: 503,
    StoreFullError: 507,
    TimeoutError: 503,
}
AGAIN = {429: 1, 503: 5, 507: 60}
"""Seconds after which a sender may try again."""


def create_app(
    store: Any,
    board: Any,
    settings: ServerSettings | None = None,
    routes: Sequence[BaseRoute] = (),
    decoder: Decode | None = None,
) -> Starlette:
    """Return the application of a dashboard.

    Parameters
    ----------
    store : Store
        Keeps what is posted.
    board : Board
        Evaluates; it is started and stopped with the application.
    settings : Settings, optional
        What is allowed.
    routes : sequence of Starlette routes
        The pages. Each request has `state.reader` (a `Person`, or None where everybody may read) and `state.nonce`.
    decoder : Decode, optional
        Who decodes what is posted; by default a thread. It is started and stopped with the application.
    """
    settings = settings or ServerSettings()
    definitions = Definitions(store, settings.clock)
    accounts = Accounts(store, settings.session_hours * 3600, settings.clock)
    access = Access(accounts, definitions, settings)
    ingest = Ingest(store, board.changed, settings, decoder or InThread(store))
    api = Api(store, board, ingest, access, definitions, settings)
    watch = None if settings.watch is None else Watch(settings.watch, ingest, definitions, store, settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        tasks = [ingest.run(), _give_back(), *([watch.run()] if watch else [])]
        if settings.definitions is not None:
            seen: dict[Path, int] = {}
            await _load(definitions, settings.definitions, seen, board)
            tasks.append(_reload(definitions, settings.definitions, seen, board))
        async with board:
            running = [asyncio.create_task(task) for task in tasks]
            try:
                yield
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    app = Starlette(
        routes=[*api.routes(), *login_routes(access), *routes],
        middleware=[
            Middleware(Headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(settings.hosts), www_redirect=False),
            Middleware(Gate, access=access),
        ],
        exception_handlers={
            StreamMetricsError: _said,
            TimeoutError: _said,
            BodyError: _unread(settings.max_bytes),
            Exception: _broken,
        },
        lifespan=lifespan,
    )
    app.state.ingest, app.state.access, app.state.definitions, app.state.watch = ingest, access, definitions, watch
    return app


async def _said(request: Request, error: Exception) -> Response:
    """The library's own message, as JSON."""
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), 422)
    if code >= 500:
        log.error("%s %s: %s", request.method, request.url.path, error)
    message = str(error) if code != 503 else "the store does not answer; try again later"
    return refused(code, message, wait=AGAIN.get(code))


async def _broken(request: Request, error: Exception) -> Response:
    """A mistake of ours, which the log of the server has in full. What answers here is around `Headers`."""
    answer = refused(500, "the server made a mistake; its log says which")
    answer.headers.update(FIXED | {"content-security-policy": POLICY.format(nonce="none")})
    return answer


def _unread(most: int) -> Any:
    """Answer what refused a body that may not have come to its end."""

    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, BodyError)
        if error.status != 408:
            await linger(request, most)
        return refused(error.status, str(error), close=True)

    return answer


async def _load(definitions: Definitions, folder: str, seen: dict[Path, int], board: Any) -> None:
    try:
        changed, wrong = await asyncio.to_thread(definitions.load, folder, seen)
    except StreamMetricsError as error:  # the store is away: the next look may find it
        log.error("%s: %s", folder, error)
        return
    for one in wrong:
        log.error("%s", one)
    for experiment in changed:
        board.changed(experiment)


async def _give_back() -> None:
    spare = Spare(every=0)  # how often is said here
    while True:
        await asyncio.sleep(EVERY)
        await asyncio.to_thread(spare.give_back)


async def _reload(definitions: Definitions, folder: str, seen: dict[Path, int], board: Any) -> None:
    while True:
        await asyncio.sleep(FOLDER_SECONDS)
        try:
            await _load(definitions, folder, seen, board)
        except Exception:  # a folder that is away for a while: the next look may find it
            log.exception("%s could not be looked at", folder)
