"""All of it together: a store, what its parts add up to, what is shown of them, and the pages."""

from __future__ import annotations

import json

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from .api.auth import Person
from .api.decoder import Decode
from .app import create_app
from .evaluation.board import Board
from .evaluation.experiment import Experiment, changes
from .evaluation.reading import ExperimentReader, ExperimentSource
from .page.routes import page_routes
from .prometheus import metrics_route
from .settings import ServerSettings
from .store import Store

__all__ = ["dashboard"]


def dashboard(
    store: Store,
    settings: ServerSettings | None = None,
    *,
    every: float = 5.0,
    reader: ExperimentSource | None = None,
    decoder: Decode | None = None,
) -> Starlette:
    """Return the application of a store: what `streammetrics serve` runs.

    Parameters
    ----------
    store : Store
        Where everything is kept.
    settings : Settings, optional
        What is allowed.
    every : float
        Seconds from one evaluation of an experiment to the next, at least.
    reader : Read, optional
        Who reads experiments: `Apart`, a process of its own, keeps posts from waiting. By default a thread.
    decoder : Decode, optional
        Who decodes what is posted: `DecoderApart`, as well, keeps the server from what frames may do. By default a
        thread.
    """
    settings = settings or ServerSettings()
    reader = reader or ExperimentReader(store)
    board = Board(store, reader, every=every, clock=settings.clock)

    def accept(experiment: str, number: int, who: str) -> None:
        store.accept(experiment, number, by=who, at=settings.clock())
        board.changed(experiment)

    pages = page_routes(board, store, _reader, total=reader.total, accept=accept, changes=_changes)
    app = create_app(store, board, settings, [metrics_route(board), *pages], decoder)
    app.state.board, app.state.let_go = board, board.let_go
    return app


def _reader(request: Request, experiment: str) -> Person | Response:
    """Who reads, as the gate has found; of an experiment of a list, whether they may."""
    person: Person | None = request.state.reader
    access = request.app.state.access
    if experiment and not access.may_read(person, f"/experiments/{experiment}"):
        return Response(status_code=404)
    return person or Person("", "reader")


def _changes(old: str, new: str) -> list[str]:
    was, now = (Experiment.of_dict(json.loads(text)) for text in (old, new))
    return changes(was, now)
