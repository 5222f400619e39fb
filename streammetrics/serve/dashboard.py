"""Build a complete dashboard from a store: reader, board, endpoints and pages."""

from __future__ import annotations

import json
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from .api.auth import Person
from .api.decoder import DecoderService
from .app import create_app
from .corrections import Corrections
from .evaluation.board import Board
from .evaluation.experiment import Experiment, describe_changes
from .evaluation.experiment_reader import ExperimentReader, ExperimentSource
from .journal import Journal
from .journal_routes import JournalRoutes
from .page.routes import build_page_routes
from .page.snapshot import render_snapshot
from .prometheus import build_metrics_route
from .settings import ServerSettings
from .store import Store

__all__ = ["build_dashboard"]


def build_dashboard(
    store: Store,
    settings: ServerSettings | None = None,
    *,
    every: float = 5.0,
    reader: ExperimentSource | None = None,
    decoder: DecoderService | None = None,
) -> Starlette:
    """Return the dashboard of a store as an ASGI application. `streammetrics serve` runs it.

    Parameters
    ----------
    store : Store
        The store of experiments, parts and tokens.
    settings : ServerSettings, optional
        The limits and access rules.
    every : float
        The minimum number of seconds between two evaluations of an experiment.
    reader : ExperimentSource, optional
        Reads experiments, by default in a thread. With a `ReaderProcess`, evaluations do not delay requests.
    decoder : DecoderService, optional
        Decodes posted frames (serialized metrics), by default in a thread. A `DecoderProcess` protects the server from
        harmful frames.
    """
    settings = settings or ServerSettings()
    reader = reader or ExperimentReader(store)
    board = Board(store, reader, every=every, clock=settings.clock)

    def decide(experiment: str, number: int, decision: str, who: str, reason: str) -> None:
        {"accept": store.accept, "reject": store.reject}[decision](
            experiment, number, by=who, at=settings.clock(), reason=reason
        )
        board.mark_changed(experiment)

    pages = build_page_routes(
        board, store, _find_reader, total=reader.total, decide=decide, describe_changes=_describe_changes
    )
    journal = Journal(store, board, partial(render_snapshot, store, _describe_changes), settings.clock)
    journal_routes = JournalRoutes(
        store, board, journal, Corrections(store, board, settings.clock), _find_reader
    ).routes()
    app = create_app(store, board, settings, [build_metrics_route(board), *journal_routes, *pages], decoder)
    app.state.board, app.state.end_streams = board, board.end_subscriptions
    return app


def _find_reader(request: Request, experiment: str) -> Person | Response:
    """Return the person who sent a request, or a 404 response if they may not read the experiment."""
    person: Person | None = request.state.reader
    access = request.app.state.access
    if experiment and not access.may_read(person, f"/experiments/{experiment}"):
        return Response(status_code=404)
    return person or Person("", "reader")


def _describe_changes(old: str, new: str) -> list[str]:
    was, now = (Experiment.from_dict(json.loads(text)) for text in (old, new))
    return describe_changes(was, now)
