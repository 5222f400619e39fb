"""Build the ASGI application of a dashboard: endpoints, pages, middleware and background tasks."""

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
from .api.access import Access, Gate, error_response
from .api.auth import Accounts
from .api.decoder import DecoderService, ThreadDecoder
from .api.endpoints import Api, WriteProbe
from .api.headers import CONTENT_SECURITY_POLICY, FIXED_HEADERS, SecurityHeaders
from .api.ingest import Ingest, NoRoomError
from .api.limits import BodyError, drain_body
from .api.login import build_login_routes
from .api.malloc_trim import TRIM_INTERVAL, MallocTrimmer
from .evaluation.definitions import Definitions
from .settings import ServerSettings
from .store import StoreDownError, StoreFullError
from .store.folder_watcher import FolderWatcher

__all__ = ["create_app"]

log = logging.getLogger(__name__)
FOLDER_SECONDS = 5.0
"""Seconds between two scans of the folder of definitions."""
STATUS_CODES: dict[type[Exception], int] = {
    InvalidInputError: 400,
    StateFormatError: 400,
    IncompatibleStateError: 422,
    NoRoomError: 429,
    StoreDownError: 503,
    StoreFullError: 507,
    TimeoutError: 503,
}
RETRY_AFTER = {429: 1, 503: 5, 507: 60}
"""Seconds for the header Retry-After, by HTTP status."""


def create_app(
    store: Any,
    board: Any,
    settings: ServerSettings | None = None,
    routes: Sequence[BaseRoute] = (),
    decoder: DecoderService | None = None,
) -> Starlette:
    """Return the web application (ASGI) of a dashboard.

    Parameters
    ----------
    store : Store
        The store of experiments, parts and tokens.
    board : Board
        The board that evaluates experiments; it starts and stops with the application.
    settings : ServerSettings, optional
        The limits and access rules.
    routes : sequence of Starlette routes
        The routes of the pages. Each request carries `state.reader` (a `Person`, or None for an anonymous visitor) and
        `state.nonce`, the random nonce for inline scripts and styles.
    decoder : DecoderService, optional
        The decoder of posted frames (serialized metrics), by default one that runs in a thread. It starts and stops
        with the application.
    """
    settings = settings or ServerSettings()
    definitions = Definitions(store, settings.clock, settings.catalog)
    accounts = Accounts(store, settings.session_hours * 3600, settings.clock)
    access = Access(accounts, definitions, settings)
    ingest = Ingest(store, board.mark_changed, settings, decoder or ThreadDecoder(store))
    api = Api(store, board, ingest, access, definitions, settings, WriteProbe(store))
    watcher = None if settings.watch is None else FolderWatcher(settings.watch, ingest, definitions, store, settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        tasks = [ingest.run(), _trim_memory(), *([watcher.run()] if watcher else [])]
        if settings.definitions is not None:
            mtimes: dict[Path, int] = {}
            # Load the definitions before the board starts, so that the board evaluates their experiments immediately.
            await _load_definitions(definitions, settings.definitions, mtimes, board)
            tasks.append(_reload_definitions(definitions, settings.definitions, mtimes, board))
        async with board:
            running = [asyncio.create_task(task) for task in tasks]
            try:
                yield
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    app = Starlette(
        routes=[*api.routes(), *build_login_routes(access), *routes],
        middleware=[
            Middleware(SecurityHeaders, https=settings.https),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(settings.hosts), www_redirect=False),
            Middleware(Gate, access=access, answer_error=_answer_error),
        ],
        exception_handlers={
            StreamMetricsError: _answer_error,
            TimeoutError: _answer_error,
            BodyError: _build_body_error_handler(settings.max_bytes),
            Exception: _answer_unexpected_error,
        },
        lifespan=lifespan,
    )
    app.state.ingest, app.state.access, app.state.definitions, app.state.watch = ingest, access, definitions, watcher
    app.state.authorize, app.state.authorize_reader = api.authorize, api.authorize_reader
    return app


async def _answer_error(request: Request, error: Exception) -> Response:
    """Return the message of an error as JSON, with the HTTP status for its class; status 503 has a fixed message."""
    code = next((code for kind, code in STATUS_CODES.items() if isinstance(error, kind)), 422)
    if code >= 500:
        log.error("%s %s: %s", request.method, request.url.path, error)
    message = str(error) if code != 503 else "the store does not answer; try again later"
    return error_response(code, message, wait=RETRY_AFTER.get(code))


async def _answer_unexpected_error(request: Request, error: Exception) -> Response:
    """Respond to an unexpected error with status 500, without details. The traceback is in the log.

    Starlette calls this handler outside all middleware, so the security headers are added here.
    """
    answer = error_response(500, "the server had an internal error; the log of the server has the details")
    answer.headers.update(FIXED_HEADERS | {"content-security-policy": CONTENT_SECURITY_POLICY.format(nonce="none")})
    return answer


def _build_body_error_handler(max_bytes: int) -> Any:
    """Return a handler for BodyError that discards the rest of the body, unless it arrived too slowly, and responds."""

    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, BodyError)
        if error.status != 408:
            await drain_body(request, max_bytes)
        return error_response(error.status, str(error), close=True)

    return answer


async def _load_definitions(definitions: Definitions, folder: str, mtimes: dict[Path, int], board: Any) -> None:
    try:
        changed_ids, errors = await asyncio.to_thread(definitions.load_folder, folder, mtimes)
    # If the store is unavailable, only log the error, because the next scan of the folder tries again.
    except StreamMetricsError as error:
        log.error("%s: %s", folder, error)
        return
    for one in errors:
        log.error("%s", one)
    for experiment in changed_ids:
        board.mark_changed(experiment)


async def _trim_memory() -> None:
    # The trimmer needs no interval of its own, because the loop below already waits between calls.
    trimmer = MallocTrimmer(interval=0)
    while True:
        await asyncio.sleep(TRIM_INTERVAL)
        await asyncio.to_thread(trimmer.trim)


async def _reload_definitions(definitions: Definitions, folder: str, mtimes: dict[Path, int], board: Any) -> None:
    while True:
        await asyncio.sleep(FOLDER_SECONDS)
        try:
            await _load_definitions(definitions, folder, mtimes, board)
        # The folder may be on a network drive that is unavailable for a while. Only log the error, because the next
        # scan tries again.
        except Exception:
            log.exception("%s could not be read", folder)
