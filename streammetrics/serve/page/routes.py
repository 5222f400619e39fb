"""The routes of the pages."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ... import __version__
from ...errors import StreamMetricsError
from ...reports.page.templates import environment, read
from ..evaluation.evaluation import Evaluation
from .downloads import PICTURES, TABLES, csv_of, png_of
from .known import known_of
from .scene import Scene, arms_table, glance_of, scene_of, source_rows
from .view import View

__all__ = ["PageReader", "page_routes"]

HERE = "streammetrics.serve.page.static"
KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
FILES = {"page.css": None, "page.js": None, "dashboard.css": HERE, "dashboard.js": HERE, "icon.svg": HERE}
FOREVER = "public, max-age=31536000, immutable"
DIGITS = 12


class SentFile(NamedTuple):
    """What is sent, as what."""

    text: str
    kind: str


@cache
def files() -> dict[str, SentFile]:
    """Return every file by the name that it has in addresses."""
    found = {}
    for name, package in FILES.items():
        text = read(name, package) if package else read(name)
        stem, _, ending = name.partition(".")
        digest = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
        found[f"{stem}-{digest}.{ending}"] = SentFile(text, KINDS[ending])
    return found


def address_of(name: str) -> str:
    """Return where a file is, below the root.

    Examples
    --------
    >>> address_of("page.css").startswith("/static/page-"), address_of("page.css").endswith(".css")
    (True, True)
    """
    stem, _, ending = name.partition(".")
    return "/static/" + next(n for n in files() if n.startswith(f"{stem}-") and n.endswith(f".{ending}"))


def serve_file(request: Request) -> Response:
    """Answer with a file, for ever; of another content than it has, with nothing."""
    found = files().get(request.path_params["name"])
    if found is None:
        return PlainTextResponse("there is no such file", 404)
    return Response(found.text, media_type=found.kind, headers={"cache-control": FOREVER})


BEAT = 15.0  # seconds; proxies close what is silent for a minute
RETRY = 3000  # milliseconds until a browser asks again


def stream(sources: Sequence[AsyncIterator[Evaluation]], now: str, beat: float = BEAT) -> StreamingResponse:
    """Answer with events: what is shown now, then each new evaluation of any source, until the page goes or all end."""
    return StreamingResponse(
        _events(sources, now, beat),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _events(sources: Sequence[AsyncIterator[Evaluation]], now: str, beat: float) -> AsyncIterator[str]:
    yield f"retry: {RETRY}\nevent: look\ndata: {now}\n\n"
    waiting: dict[asyncio.Future[Evaluation], AsyncIterator[Evaluation]] = {_next(s): s for s in sources}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, timeout=beat, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                yield ": beat\n\n"
            for one in done:
                source = waiting.pop(one)
                with contextlib.suppress(StopAsyncIteration):
                    found = one.result()
                    yield f"event: look\ndata: {found.at!r}\n\n"
                    waiting[_next(source)] = source
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for source in sources:
            await _close(source)


def _next(source: AsyncIterator[Evaluation]) -> asyncio.Future[Evaluation]:
    return asyncio.ensure_future(anext(source))


async def _close(source: Any) -> None:
    if hasattr(source, "aclose"):
        await source.aclose()


HERE = "streammetrics.serve.page.templates"
OWNER, PART = "owner", "fragment"
FRAGMENTS = 64  # that are kept, while many pages ask for the same
Handler = Callable[[Request, Any], Response]


class PageReader(Protocol):
    """Who reads: a name, "reader" or "owner", and what forms of this session carry (empty: it may send none)."""

    @property
    def name(self) -> str:
        """Who."""
        ...

    @property
    def role(self) -> str:
        """What it may do."""
        ...

    @property
    def form(self) -> str:
        """What other sites cannot know."""
        ...


def page_routes(
    board: Any,
    store: Any,
    reader: Callable[[Request, str], PageReader | Response],
    *,
    total: Callable[[str], bytes | None],
    accept: Callable[[str, int, str], None],
    changes: Callable[[str, str], list[str]],
    beat: float = BEAT,
) -> list[Route]:
    """Return the routes of the pages.

    Parameters
    ----------
    board : Board
        `evaluation(id)`, and `subscribe(id, since)`, which yields when there is one newer than that.
    store : Store
        `definitions()`, `history(id)`, `looks(id)`, `conflicts(id)`.
    reader : callable
        Says who reads an experiment ("" for the list of all) by a request, or what is answered to who may not.
    total : callable
        The merged state of an experiment as a frame, or None; what is downloaded.
    accept : callable
        Takes a conflict of an experiment, by its number, for what counts; and who says so.
    changes : callable
        Says what is other in the second of two definitions, each as JSON.
    beat : float
        Seconds of silence after which a stream says that it is there.
    """
    pages = _Pages(board, store, reader, total, accept, changes, beat)
    one = "/experiments/{id}"
    return [
        Route("/", pages.glance),
        Route("/live", pages.live_of_all),
        Route("/static/{name}", serve_file),
        Route(one, pages.experiment),
        Route(f"{one}/live", pages.live),
        Route(f"{one}/total.smet", pages.total),
        Route(f"{one}/{{name}}.csv", pages.table),
        Route(f"{one}/{{name}}.png", pages.picture),
        Route(f"{one}/conflicts/{{number:int}}", pages.accept, methods=["POST"]),
    ]


class _Pages:
    """What routes share."""

    def __init__(self, board: Any, store: Any, reader: Any, total: Any, accept: Any, changes: Any, beat: float):
        self._board, self._store, self._reader = board, store, reader
        self._total, self._accept, self._changes, self._beat = total, accept, changes, beat
        self._made: OrderedDict[tuple[Any, ...], str] = OrderedDict()
        self._making = threading.Lock()
        self._templates = environment(HERE)
        self._templates.globals |= {
            "file": address_of,
            "version": __version__,
            "arms_table": arms_table,
            "source_rows": source_rows,
        }

    # -- pages --------------------------------------------------------------------------------------------------------

    def glance(self, request: Request) -> Response:
        """Answer with all experiments."""
        who = self._reader(request, "")
        if isinstance(who, Response):
            return who
        rows = [glance_of(e, len(self._store.conflicts(e.experiment))) for e in self._readable(request)]
        name = "glance-main.html" if PART in request.query_params else "glance.html"
        return _page(self._text(name, request, who, max((r.at for r in rows), default=0.0), rows=rows))

    def experiment(self, request: Request) -> Response:
        """Answer with one experiment; of many pages that are open, and ask for the same sections at once, one is made."""
        who, found = self._found(request)
        if isinstance(who, Response):
            return who
        if PART not in request.query_params:
            return _page(self._text("experiment.html", request, who, found.at, scene=self._scene(request, found)))
        key = found.experiment, found.at, str(request.query_params), who.form if who.role == OWNER else ""
        with self._making:
            if key not in self._made:
                scene = self._scene(request, found)
                self._made[key] = self._text("experiment-main.html", request, who, found.at, scene=scene)
            while len(self._made) > FRAGMENTS:
                self._made.popitem(last=False)
            return _page(self._made[key])

    def _text(self, name: str, request: Request, who: PageReader, at: float, **given: Any) -> str:
        owner, root = who.role == OWNER and bool(who.form), request.scope.get("root_path", "")
        made: str = self._templates.get_template(name).render(root=root, who=who, owner=owner, at=repr(at), **given)
        return made

    # -- what changes -------------------------------------------------------------------------------------------------

    async def live(self, request: Request) -> Response:
        """Answer with a stream of one experiment."""
        who, found = await run_in_threadpool(self._found, request)
        if isinstance(who, Response):
            return who
        return stream([self._board.subscribe(found.experiment, found.at)], repr(found.at), self._beat)

    async def live_of_all(self, request: Request) -> Response:
        """Answer with a stream of all experiments."""
        who = await run_in_threadpool(self._reader, request, "")
        if isinstance(who, Response):
            return who
        known = await run_in_threadpool(self._readable, request)
        at = max((e.at for e in known), default=0.0)
        return stream([self._board.subscribe(e.experiment, e.at) for e in known], repr(at), self._beat)

    async def accept(self, request: Request) -> Response:
        """Take a conflict for what counts, if the owner says so on a page of ours."""
        who, found = await run_in_threadpool(self._found, request)
        if isinstance(who, Response):
            return who
        async with request.form() as form:
            token = str(form.get("form", ""))
        if who.role != OWNER or not who.form or not hmac.compare_digest(token.encode(), who.form.encode()):
            return PlainTextResponse(
                "only an owner accepts a conflict, on the page of the experiment; load it again", 403
            )
        try:
            await run_in_threadpool(self._accept, found.experiment, request.path_params["number"], who.name)
        except StreamMetricsError as error:  # the owner is told
            return PlainTextResponse(str(error), 409)
        return RedirectResponse(f"{request.scope.get('root_path', '')}/experiments/{quote(found.experiment)}#data", 303)

    # -- files --------------------------------------------------------------------------------------------------------

    def table(self, request: Request) -> Response:
        """Answer with a table as CSV."""
        who, found = self._found(request)
        name = request.path_params["name"]
        if isinstance(who, Response) or name not in TABLES:
            return who if isinstance(who, Response) else _missing(name, TABLES)
        return _file(csv_of(found, name), "text/csv; charset=utf-8", f"{found.experiment}-{name}.csv")

    def picture(self, request: Request) -> Response:
        """Answer with a picture as PNG."""
        who, found = self._found(request)
        name = request.path_params["name"]
        if isinstance(who, Response) or name not in PICTURES:
            return who if isinstance(who, Response) else _missing(name, PICTURES)
        try:
            drawn = png_of(self._scene(request, found), name)
        except ImportError:  # an extra that may not be there
            return PlainTextResponse("pictures need matplotlib on the server: pip install 'streammetrics[plot]'", 404)
        if drawn is None:
            return PlainTextResponse(f"there is nothing to draw yet: {name}", 404)
        return _file(drawn, "image/png", f"{found.experiment}-{name}.png")

    def total(self, request: Request) -> Response:
        """Answer with the merged state."""
        who, found = self._found(request)
        if isinstance(who, Response):
            return who
        held = self._total(found.experiment)
        if held is None:
            return PlainTextResponse("there is no data yet", 404)
        return _file(held, "application/octet-stream", f"{found.experiment}.smet")

    # -- what is read -------------------------------------------------------------------------------------------------

    def _readable(self, request: Request) -> list[Evaluation]:
        """The evaluations that one may see."""
        known = [e for e in sorted(self._store.definitions()) if not isinstance(self._reader(request, e), Response)]
        found = [self._board.evaluation(e) for e in known]
        return [one for one in found if one is not None]

    def _found(self, request: Request) -> tuple[PageReader | Response, Any]:
        """Who reads, and the evaluation; or what is answered."""
        experiment = request.path_params["id"]
        who = self._reader(request, experiment)
        if isinstance(who, Response):
            return who, None
        known = experiment in self._store.definitions()
        found = self._board.evaluation(experiment) if known else None
        if found is None:
            return PlainTextResponse("there is no such experiment", 404), None
        return who, found

    def _scene(self, request: Request, found: Evaluation) -> Scene:
        known = known_of(self._store, found.experiment, self._changes)
        return scene_of(found, known, View.of(request.query_params))


def _page(text: str) -> Response:
    return HTMLResponse(text, headers={"cache-control": "private, no-store"})


def _missing(name: str, known: Any) -> Response:
    return PlainTextResponse(f"there is {', '.join(known)}, and no {name[:40]}", 404)


def _file(content: str | bytes, kind: str, name: str) -> Response:
    disposition = f'attachment; filename="{name}"'
    return Response(
        content, media_type=kind, headers={"content-disposition": disposition, "cache-control": "private, no-store"}
    )
