"""The routes of the web pages, their live updates, downloads and static files."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
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
from ...reports.page.templates import build_environment, read_template
from ..evaluation.evaluation import Evaluation
from .downloads import PICTURES, TABLES, render_csv, render_png
from .experiment_search import ExperimentSearch, list_tags
from .history import load_history
from .page_data import PageData, build_arms_table, build_glance, build_page, build_source_rows, describe_computing
from .view import View

__all__ = ["PageReader", "build_page_routes", "build_templates", "load_static_files"]

HERE = "streammetrics.serve.page.static"
KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
FILES = {"page.css": None, "page.js": None, "dashboard.css": HERE, "dashboard.js": HERE, "icon.svg": HERE}
FOREVER = "public, max-age=31536000, immutable"
DIGITS = 12


class StaticFile(NamedTuple):
    """The text of a static file, and its content type."""

    text: str
    kind: str


@cache
def load_static_files() -> dict[str, StaticFile]:
    """Return all static files, keyed by their names in URLs, which contain a digest of the content."""
    files = {}
    for name, package in FILES.items():
        text = read_template(name, package) if package else read_template(name)
        stem, _, ending = name.partition(".")
        digest = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
        files[f"{stem}-{digest}.{ending}"] = StaticFile(text, KINDS[ending])
    return files


def build_templates() -> Any:
    """Return a Jinja environment with the page templates and the functions that they call."""
    templates = build_environment(HERE)
    templates.globals |= {
        "file": find_static_path,
        "version": __version__,
        "build_arms_table": build_arms_table,
        "build_source_rows": build_source_rows,
    }
    return templates


def find_static_path(name: str) -> str:
    """Return the URL path of a static file, without the root path of the server.

    Examples
    --------
    >>> find_static_path("page.css").startswith("/static/page-"), find_static_path("page.css").endswith(".css")
    (True, True)
    """
    stem, _, ending = name.partition(".")
    return "/static/" + next(n for n in load_static_files() if n.startswith(f"{stem}-") and n.endswith(f".{ending}"))


def serve_file(request: Request) -> Response:
    """Respond with a static file.

    Browsers may cache the file forever, because a file with different content gets a different name.
    """
    file = load_static_files().get(request.path_params["name"])
    if file is None:
        return PlainTextResponse("there is no such file", 404)
    return Response(file.text, media_type=file.kind, headers={"cache-control": FOREVER})


# The number of seconds after which an idle stream sends a comment. Proxies close connections that are silent for a
# minute.
HEARTBEAT = 15.0
# The number of milliseconds after which a browser reconnects to a broken stream.
RETRY_MS = 3000


def stream_events(sources: Sequence[AsyncIterator[Evaluation]], now: str, beat: float = HEARTBEAT) -> StreamingResponse:
    """Return a response that streams server-sent events.

    The first event contains `now`, the timestamp of the last evaluation. Another event follows for each new evaluation
    from any source. After `beat` seconds of silence, the stream sends a comment, so that proxies do not close it.
    """
    return StreamingResponse(
        _iterate_events(sources, now, beat),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _iterate_events(sources: Sequence[AsyncIterator[Evaluation]], now: str, beat: float) -> AsyncIterator[str]:
    yield f"retry: {RETRY_MS}\nevent: look\ndata: {now}\n\n"
    # Keep one call to `anext` pending for each source. When a call returns, send its event and start the next call for
    # the same source.
    waiting: dict[asyncio.Future[Evaluation], AsyncIterator[Evaluation]] = {_start_next(s): s for s in sources}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, timeout=beat, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                yield ": beat\n\n"
            for one in done:
                source = waiting.pop(one)
                with contextlib.suppress(StopAsyncIteration):
                    evaluation = one.result()
                    yield f"event: look\ndata: {evaluation.at!r}\n\n"
                    waiting[_start_next(source)] = source
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for source in sources:
            await _close(source)


def _start_next(source: AsyncIterator[Evaluation]) -> asyncio.Future[Evaluation]:
    return asyncio.ensure_future(anext(source))


async def _close(source: Any) -> None:
    if hasattr(source, "aclose"):
        await source.aclose()


HERE = "streammetrics.serve.page.templates"
OWNER, FRAGMENT = "owner", "fragment"
MAX_REASON = 500  # the maximum length, in characters, of the reason that an owner gives
MAX_FRAGMENTS = 64  # the largest number of cached page fragments
Handler = Callable[[Request, Any], Response]


class PageReader(Protocol):
    """The user who sent a request, with the properties that the pages need.

    The CSRF token is empty if the user may not submit forms.
    """

    @property
    def name(self) -> str:
        """The name of the user."""
        ...

    @property
    def role(self) -> str:
        """The role: "reader" or "owner"."""
        ...

    @property
    def csrf_token(self) -> str:
        """The secret token in this session's forms, which proves that a form comes from this server."""
        ...


def build_page_routes(
    board: Any,
    store: Any,
    reader: Callable[[Request, str], PageReader | Response],
    *,
    total: Callable[[str], bytes | None],
    decide: Callable[[str, int, str, str, str], None],
    describe_changes: Callable[[str, str], list[str]],
    beat: float = HEARTBEAT,
) -> list[Route]:
    """Return the routes of the pages.

    Parameters
    ----------
    board : Board
        Provides the evaluations, through its methods `evaluation`, `subscribe` and `computing_since`.
    store : Store
        The store of definitions, looks and conflicts.
    reader : callable
        Returns the user who sent a request if they may read an experiment ("" stands for the list of experiments);
        otherwise, returns an error response.
    total : callable
        Returns the merged metrics of an experiment as bytes (a frame) for download, or None if there is no data.
    decide : callable
        Accepts or rejects a conflict (a part posted again with different content). Takes the experiment, the number of
        the conflict, "accept" or "reject", the name of the user who decides, and the reason.
    describe_changes : callable
        Takes two definitions as JSON; returns the changes from the first to the second as sentences.
    beat : float
        The number of seconds after which an idle stream sends a comment, so that proxies do not close it.
    """
    pages = _Pages(board, store, reader, total, decide, describe_changes, beat)
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
        Route(f"{one}/conflicts/{{number:int}}", pages.decide, methods=["POST"]),
    ]


class _Pages:
    """The request handlers of the pages. They share the board, the store and a cache of page fragments."""

    def __init__(self, board: Any, store: Any, reader: Any, total: Any, decide: Any, changes: Any, beat: float):
        self._board, self._store, self._reader = board, store, reader
        self._total, self._decide, self._changes, self._beat = total, decide, changes, beat
        self._fragments: OrderedDict[tuple[Any, ...], str] = OrderedDict()
        self._render_lock = threading.Lock()
        self._templates = build_templates()

    # -- pages --------------------------------------------------------------------------------------------------------

    def glance(self, request: Request) -> Response:
        """Respond with the list of experiments."""
        who = self._reader(request, "")
        if isinstance(who, Response):
            return who
        evaluations, search = self._list_readable(request), ExperimentSearch.from_query(request.query_params)
        texts, decisions = self._store.definitions(), self._store.last_decisions()
        definitions = {e.experiment: json.loads(texts[e.experiment].text) for e in evaluations}
        rows = [
            build_glance(
                e, definitions[e.experiment], len(self._store.conflicts(e.experiment)), decisions.get(e.experiment)
            )
            for e in evaluations
            if search.matches(e.experiment, definitions[e.experiment])
        ]
        name = "glance-main.html" if FRAGMENT in request.query_params else "glance.html"
        values = {"rows": rows, "search": search, "tags": list_tags(definitions.values()), "count": len(definitions)}
        return _html_response(self._render(name, request, who, max((e.at for e in evaluations), default=0.0), **values))

    def experiment(self, request: Request) -> Response:
        """Respond with an experiment's page, or with a fragment (only the page's sections) if the query requests one.

        Many open pages request the same fragment at the same time, so each fragment is rendered once and cached. The
        cache key contains everything that a fragment depends on: the evaluation, the view, the CSRF token in an owner's
        forms, and the start time of a running evaluation.
        """
        who, evaluation = self._find_evaluation(request)
        if isinstance(who, Response):
            return who
        if FRAGMENT not in request.query_params:
            page = self._build_page(request, evaluation)
            return _html_response(self._render("experiment.html", request, who, evaluation.at, page=page))
        key = (
            evaluation.experiment,
            evaluation.at,
            str(request.query_params),
            who.csrf_token if who.role == OWNER else "",
            self._board.computing_since(evaluation.experiment),
        )
        # Hold the lock while rendering a fragment, so that other requests for it wait and then find it in the cache.
        with self._render_lock:
            if key not in self._fragments:
                page = self._build_page(request, evaluation)
                self._fragments[key] = self._render("experiment-main.html", request, who, evaluation.at, page=page)
            while len(self._fragments) > MAX_FRAGMENTS:
                self._fragments.popitem(last=False)
            return _html_response(self._fragments[key])

    def _render(self, name: str, request: Request, who: PageReader, at: float, **values: Any) -> str:
        owner, root = who.role == OWNER and bool(who.csrf_token), request.scope.get("root_path", "")
        text: str = self._templates.get_template(name).render(root=root, who=who, owner=owner, at=repr(at), **values)
        return text

    # -- live updates -------------------------------------------------------------------------------------------------

    async def live(self, request: Request) -> Response:
        """Send a stream of events to an open experiment page, one event for each new evaluation of the experiment."""
        who, evaluation = await run_in_threadpool(self._find_evaluation, request)
        if isinstance(who, Response):
            return who
        return stream_events(
            [self._board.subscribe(evaluation.experiment, evaluation.at)], repr(evaluation.at), self._beat
        )

    async def live_of_all(self, request: Request) -> Response:
        """Send a stream of events to an open list of experiments, one event for each new evaluation."""
        who = await run_in_threadpool(self._reader, request, "")
        if isinstance(who, Response):
            return who
        evaluations = await run_in_threadpool(self._list_readable, request)
        at = max((e.at for e in evaluations), default=0.0)
        return stream_events([self._board.subscribe(e.experiment, e.at) for e in evaluations], repr(at), self._beat)

    async def decide(self, request: Request) -> Response:
        """Accept or reject a conflict: a part whose key was posted before with different content.

        An accepted conflict replaces the part that currently counts under its key. The sender must be an owner, and the
        form must contain the CSRF token of the owner's session.
        """
        who, evaluation = await run_in_threadpool(self._find_evaluation, request)
        if isinstance(who, Response):
            return who
        async with request.form() as form:
            token, decision, reason = (str(form.get(name, "")) for name in ("form", "decision", "reason"))
        if who.role != OWNER or not who.csrf_token or not hmac.compare_digest(token.encode(), who.csrf_token.encode()):
            return PlainTextResponse(
                "only an owner can decide a conflict; log in as an owner, reload the page and try again", 403
            )
        if decision not in ("accept", "reject") or not reason.strip():
            return PlainTextResponse(
                "a conflict is accepted or rejected with a reason; go back and give the reason", 400
            )
        number, reason = request.path_params["number"], reason.strip()[:MAX_REASON]
        try:
            await run_in_threadpool(self._decide, evaluation.experiment, number, decision, who.name, reason)
        # The conflict could not be decided. The response tells the owner why.
        except StreamMetricsError as error:
            return PlainTextResponse(str(error), 409)
        return RedirectResponse(
            f"{request.scope.get('root_path', '')}/experiments/{quote(evaluation.experiment)}#data", 303
        )

    # -- files --------------------------------------------------------------------------------------------------------

    def table(self, request: Request) -> Response:
        """Respond with a table of the page as CSV, or with status 404 if there is no such table."""
        who, evaluation = self._find_evaluation(request)
        name = request.path_params["name"]
        if isinstance(who, Response) or name not in TABLES:
            return who if isinstance(who, Response) else _not_found(name, TABLES)
        return _file_response(
            render_csv(evaluation, name), "text/csv; charset=utf-8", f"{evaluation.experiment}-{name}.csv"
        )

    def picture(self, request: Request) -> Response:
        """Respond with a chart of the page as PNG, or with status 404 if it cannot be drawn."""
        who, evaluation = self._find_evaluation(request)
        name = request.path_params["name"]
        if isinstance(who, Response) or name not in PICTURES:
            return who if isinstance(who, Response) else _not_found(name, PICTURES)
        try:
            picture = render_png(self._build_page(request, evaluation), name)
        # Drawing needs matplotlib, an optional dependency that may not be installed.
        except ImportError:
            return PlainTextResponse("pictures need matplotlib on the server: pip install 'streammetrics[plot]'", 404)
        if picture is None:
            return PlainTextResponse(f"{name}: there is nothing to draw yet", 404)
        return _file_response(picture, "image/png", f"{evaluation.experiment}-{name}.png")

    def total(self, request: Request) -> Response:
        """Respond with the merged metrics of an experiment as a downloadable file, in the format of `to_bytes`."""
        who, evaluation = self._find_evaluation(request)
        if isinstance(who, Response):
            return who
        state = self._total(evaluation.experiment)
        if state is None:
            return PlainTextResponse("there is no data yet", 404)
        return _file_response(state, "application/octet-stream", f"{evaluation.experiment}.smet")

    # -- reading ------------------------------------------------------------------------------------------------------

    def _list_readable(self, request: Request) -> list[Evaluation]:
        """Return the evaluations that the user who sent a request may see."""
        ids = [e for e in sorted(self._store.definitions()) if not isinstance(self._reader(request, e), Response)]
        evaluations = [self._board.evaluation(e) for e in ids]
        return [one for one in evaluations if one is not None]

    def _find_evaluation(self, request: Request) -> tuple[PageReader | Response, Any]:
        """Return the user who sent a request and the requested evaluation, or an error response and None."""
        experiment = request.path_params["id"]
        who = self._reader(request, experiment)
        if isinstance(who, Response):
            return who, None
        is_defined = experiment in self._store.definitions()
        evaluation = self._board.evaluation(experiment) if is_defined else None
        if evaluation is None:
            return PlainTextResponse("there is no such experiment", 404), None
        return who, evaluation

    def _build_page(self, request: Request, evaluation: Evaluation) -> PageData:
        history = load_history(self._store, evaluation.experiment, self._changes)
        page = build_page(evaluation, history, View.from_query(request.query_params, evaluation.timezone))
        page.computing = describe_computing(self._board.computing_since(evaluation.experiment))
        return page


def _html_response(text: str) -> Response:
    return HTMLResponse(text, headers={"cache-control": "private, no-store"})


def _not_found(name: str, names: Any) -> Response:
    return PlainTextResponse(f"there is no file {name[:40]}; the files are {', '.join(names)}", 404)


def _file_response(content: str | bytes, kind: str, name: str) -> Response:
    disposition = f'attachment; filename="{name}"'
    return Response(
        content, media_type=kind, headers={"content-disposition": disposition, "cache-control": "private, no-store"}
    )
