"""The routes for results, decisions, annotations, corrections and the audit log, as JSON, forms and pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from ..errors import InvalidInputError, StreamMetricsError
from .api.access import is_valid_csrf_token, read_form
from .api.auth import Person
from .api.limits import read_body
from .api.results import build_results, describe_annotation, describe_decision, format_timestamp
from .corrections import Corrections
from .evaluation.experiment import Experiment
from .journal import Journal
from .page.routes import build_templates
from .page.snapshot import NONCE
from .page.time_format import format_time

__all__ = ["JournalRoutes"]

MAX_BODY_BYTES, BODY_SECONDS = 1 << 14, 10.0
"""The maximum size of a request body, in bytes, and the time limit for receiving the body, in seconds."""
JOURNAL = "decisions", "annotations"
CORRECTIONS = "voided", "closed"
MUST_BE_OWNER = "only an owner can change an experiment; log in as an owner, reload the page and try again"


class JournalRoutes(NamedTuple):
    """The request handlers for decisions, annotations, corrections, results and the audit log.

    Parameters
    ----------
    store : Store
        The store of decisions, annotations and the audit log.
    board : Board
        Provides the evaluations.
    journal : Journal
        Saves decisions and annotations.
    corrections : Corrections
        Voids parts and closes sources.
    reader : callable
        Returns the person who sent a request if they may read an experiment; otherwise, returns an error response.
    """

    store: Any
    board: Any
    journal: Journal
    corrections: Corrections
    reader: Callable[[Request, str], Any]

    def routes(self) -> list[Route]:
        """Return the routes."""
        api, page = "/v1/experiments/{id}", "/experiments/{id}"
        return [
            Route("/v1/experiments", self._list_experiments, methods=["GET"]),
            Route(f"{api}/results", self._send_results, methods=["GET"]),
            Route(f"{api}/audit", self._send_audit, methods=["GET"]),
            Route(f"{page}/results.json", self._show_results),
            Route(f"{page}/audit", self._show_audit),
            Route(f"{page}/decisions/{{number:int}}", self._show_decision),
            *(Route(f"{api}/{kind}", self._send_entries, methods=["GET"]) for kind in JOURNAL),
            *(Route(f"{api}/{kind}", self._add_entry, methods=["POST"]) for kind in (*JOURNAL, *CORRECTIONS)),
            *(Route(f"{page}/{kind}", self._submit_form, methods=["POST"]) for kind in (*JOURNAL, *CORRECTIONS)),
        ]

    # -- for programs -------------------------------------------------------------------------------------------------

    async def _list_experiments(self, request: Request) -> Response:
        found: tuple[Person | None, Response] = await request.app.state.authorize_reader(request)
        person, answer = found
        if person is None:
            return answer
        return JSONResponse(await run_in_threadpool(self._load_list, request, person))

    def _load_list(self, request: Request, person: Any) -> list[dict[str, Any]]:
        access, decisions = request.app.state.access, self.store.last_decisions()
        rows = []
        for name, (version, experiment) in sorted(access.definitions.load_all().items()):
            evaluation = self.board.evaluation(name)
            if evaluation is None or not access.may_see(person, experiment):
                continue
            rows.append(
                {"experiment": name, "title": experiment.title, "owner": experiment.owner, "tags": experiment.tags,
                 "archived": experiment.archived, "version": version, "state": evaluation.state,
                 "verdicts": {v.treatment: v.decision for v in evaluation.verdicts},
                 "decided": decisions[name].arm if name in decisions else None}
            )  # fmt: skip
        return rows

    async def _send_results(self, request: Request) -> Response:
        experiment, answer = await _authorize(request, readers=True)
        if experiment is None:
            return answer
        return JSONResponse(await run_in_threadpool(self._load_results, experiment))

    def _load_results(self, experiment: Experiment) -> dict[str, Any]:
        name = experiment.id
        return build_results(
            self.board.evaluation(name), experiment, self.store.decisions(name), self.store.annotations(name)
        )

    async def _send_audit(self, request: Request) -> Response:
        experiment, answer = await _authorize(request, readers=True)
        if experiment is None:
            return answer
        entries = await run_in_threadpool(self.store.audits, experiment.id)
        return JSONResponse([{"at": format_timestamp(e.at), "by": e.by, "change": e.what} for e in entries])

    async def _send_entries(self, request: Request) -> Response:
        experiment, answer = await _authorize(request, readers=True)
        if experiment is None:
            return answer
        if _read_kind(request) == "decisions":
            rows = [describe_decision(one) for one in await run_in_threadpool(self.store.decisions, experiment.id)]
        else:
            rows = [describe_annotation(one) for one in await run_in_threadpool(self.store.annotations, experiment.id)]
        return JSONResponse(rows)

    async def _add_entry(self, request: Request) -> Response:
        experiment, answer = await _authorize(request)
        if experiment is None:
            return answer
        body = await read_body(request, MAX_BODY_BYTES, BODY_SECONDS)
        try:
            fields = _parse_object(body)
            entry = await run_in_threadpool(self._save_entry, request, experiment, fields, request.state.name)
        # The entry is invalid, or the data cannot be corrected; the error message says why.
        except InvalidInputError as error:
            return JSONResponse({"error": str(error)}, 422)
        return JSONResponse(entry, 201)

    def _save_entry(self, request: Request, experiment: Experiment, fields: dict[str, Any], by: str) -> dict[str, Any]:
        kind = _read_kind(request)
        if kind == "voided":
            return self.corrections.void(experiment, fields, by=by)
        if kind == "closed":
            return self.corrections.close(request.app.state.definitions, experiment, fields, by=by)
        if kind == "decisions":
            decision = self.journal.decide(experiment, fields.get("arm"), fields.get("reason"), by=by)
            return describe_decision(decision)
        return describe_annotation(self.journal.annotate(experiment, fields.get("hour"), fields.get("text"), by=by))

    # -- for people ---------------------------------------------------------------------------------------------------

    def _find_experiment(self, request: Request) -> tuple[Any, Experiment | Response]:
        """Return the person who sent a request (None without access), and the experiment or an error response."""
        name = request.path_params["id"]
        person = self.reader(request, name)
        if isinstance(person, Response):
            return None, person
        experiment = request.app.state.access.definitions.get(name)
        return person, experiment or PlainTextResponse("there is no such experiment", 404)

    def _show_results(self, request: Request) -> Response:
        _, experiment = self._find_experiment(request)
        return experiment if isinstance(experiment, Response) else JSONResponse(self._load_results(experiment))

    def _show_audit(self, request: Request) -> Response:
        person, experiment = self._find_experiment(request)
        if isinstance(experiment, Response):
            return experiment
        # The audit log contains the names of people and tokens. Anonymous visitors to a public page must not see them.
        if not person.name:
            return PlainTextResponse("log in to see who changed the experiment", 403)
        rows = [(format_time(e.at), e.by, e.what) for e in reversed(self.store.audits(experiment.id))]
        root = request.scope.get("root_path", "")
        template = build_templates().get_template("audit.html")
        return _html_response(template.render(root=root, who=person, owner=False, experiment=experiment, rows=rows))

    def _show_decision(self, request: Request) -> Response:
        _, experiment = self._find_experiment(request)
        if isinstance(experiment, Response):
            return experiment
        page = self.store.decision_page(experiment.id, request.path_params["number"])
        if page is None:
            return PlainTextResponse("there is no such decision", 404)
        return _html_response(page.replace(f'nonce="{NONCE}"', f'nonce="{request.state.nonce}"', 1))

    async def _submit_form(self, request: Request) -> Response:
        """Save the decision or annotation in a form, or make the correction that the form requests.

        The sender must be an owner, and the form must contain the CSRF token of the owner's session.
        """
        person, experiment = await run_in_threadpool(self._find_experiment, request)
        if isinstance(experiment, Response):
            return experiment
        fields = await read_form(request, BODY_SECONDS)
        # Browsers send a time such as 2026-06-01T09:30. Keep only the date and hour.
        fields["hour"] = fields.get("hour", "")[:13]
        if person.role != "owner" or not is_valid_csrf_token(person, fields.get("form", "")):
            return PlainTextResponse(MUST_BE_OWNER, 403)
        try:
            await run_in_threadpool(self._save_entry, request, experiment, fields, person.name)
        # The entry could not be saved, or the data could not be corrected. The response tells the owner why.
        except StreamMetricsError as error:
            return PlainTextResponse(str(error), 422)
        page = f"{request.scope.get('root_path', '')}/experiments/{quote(experiment.id)}"
        return RedirectResponse(f"{page}#{_read_kind(request)}", 303)


async def _authorize(request: Request, *, readers: bool = False) -> tuple[Experiment | None, Response]:
    """Return the experiment if the token of a request grants access; otherwise, return None and an error response.

    The tokens of readers grant access only if `readers` is true.
    """
    found: tuple[Experiment | None, Response] = await request.app.state.authorize(request, readers=readers)
    return found


def _read_kind(request: Request) -> str:
    return str(request.scope["path"]).rpartition("/")[2]


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the body is not valid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidInputError("expected an object with keys and values")
    return fields


def _html_response(text: str) -> Response:
    return HTMLResponse(text, headers={"cache-control": "private, no-store"})
