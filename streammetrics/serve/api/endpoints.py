"""The HTTP endpoints for programs: post metrics, read and write definitions, resolve conflicts, check server health.

A part consists of the metrics that one source posts for one hour. A conflict is a part with the same key (source, hour
and number) as an earlier part, but with different content.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ...errors import InvalidInputError
from ..corrections import MAX_REASON
from ..evaluation.definitions import MAX_DEFINITION_BYTES, Definitions
from ..evaluation.experiment import HIDDEN_FIELDS, Experiment
from ..journal import check_text
from ..part_keys import PartKey, parse_key
from ..settings import ServerSettings
from ..store.parts import MAX_CONFLICTS
from .access import Access, error_response, read_bearer_token
from .auth import OWNER, READER, Person
from .ingest import Ingest
from .limits import drain_body, read_body

__all__ = ["Api", "WriteProbe"]

READY_TIMEOUT = 2.0
"""Seconds within which a healthy store must answer."""
PROBE_INTERVAL = 1.0
"""Seconds after a successful test write during which no other test write is made."""
STATUS_CODES = {"stored": 201, "same": 200}
CONFLICTS = {
    "conflict": "is kept as a conflict, which an owner can accept to replace the earlier part",
    "excess": f"is not kept, because {MAX_CONFLICTS} other contents of it were posted already",
    "late": "is not kept, because the parts of its day can no longer be replaced (correct_within_days)",
    "rejected": "is not kept, because an owner has rejected or replaced this content",
}
"""Text for each outcome of a part whose key was posted before with different content."""


class WriteProbe:
    """A check that a store is writable, with at most one successful test write per second for all requests together."""

    def __init__(self, store: Any) -> None:
        self._store, self._lock, self._checked_at = store, threading.Lock(), float("-inf")

    def check(self) -> None:
        """Raise a store error if a test write fails. A successful test write is not repeated for one second."""
        with self._lock:
            if time.monotonic() - self._checked_at >= PROBE_INTERVAL:
                self._store.check_write()
                self._checked_at = time.monotonic()


class Api(NamedTuple):
    """The endpoints for programs.

    Parameters
    ----------
    store : Store
        The store of conflicts and definitions.
    board : Board
        The board, which keeps the last evaluation of each experiment and renews it after a change.
    ingest : Ingest
        The queue that receives posted parts.
    access : Access
        The access rules.
    definitions : Definitions
        The experiments.
    settings : ServerSettings
        The limits of the server.
    probe : WriteProbe
        The check that the store is writable.
    """

    store: Any
    board: Any
    ingest: Ingest
    access: Access
    definitions: Definitions
    settings: ServerSettings
    probe: WriteProbe

    def routes(self) -> list[Route]:
        """Return the routes of all endpoints."""
        one = "/v1/experiments/{id}"
        return [
            Route(f"{one}/states", self._post_state, methods=["POST"]),
            Route(f"{one}/states", self._void_part, methods=["DELETE"]),
            Route(one, self._save_definition, methods=["POST"]),
            Route(one, self._send_definition, methods=["GET"]),
            Route(f"{one}/conflicts", self._list_conflicts, methods=["GET"]),
            Route(f"{one}/conflicts/{{number:int}}/{{decision}}", self._decide_conflict, methods=["POST"]),
            Route("/healthz", self._check_liveness, methods=["GET"]),
            Route("/readyz", self._check_readiness, methods=["GET"]),
        ]

    # -- states -------------------------------------------------------------------------------------------------------

    async def _post_state(self, request: Request) -> Response:
        """Store a posted part. The token and the key (source, hour and number) are checked before the body is read."""
        experiment, answer = await self.authorize(request, workers=True)
        if experiment is None:
            return await self._refuse_early(request, answer)
        experiment = await run_in_threadpool(self.definitions.get_for_parts, experiment.id) or experiment
        try:
            key = self._parse_key(request, experiment)
        # The query does not contain a valid key. The error message says what is wrong with it.
        except InvalidInputError as error:
            return await self._refuse_early(request, error_response(400, str(error)))
        body = await read_body(request, self.settings.max_bytes, self.settings.body_seconds)
        outcome = await self.ingest.submit(key, body, experiment)
        answer_fields: dict[str, Any] = {"state": outcome, "key": key.text}
        if outcome in CONFLICTS:
            answer_fields["error"] = (
                f"{key.text} was posted before with different content; this part {CONFLICTS[outcome]}"
            )
        return JSONResponse(answer_fields, STATUS_CODES.get(outcome, 409))

    async def _void_part(self, request: Request) -> Response:
        """Remove a part (the metrics of one source for one hour) that should not have been posted."""
        experiment, answer = await self.authorize(request)
        if experiment is None:
            return answer
        reason = check_text("reason", request.query_params.get("reason"), MAX_REASON)
        try:
            key = self._parse_key(request, experiment)
            await run_in_threadpool(
                self.store.void, key, by=request.state.name, at=self.settings.clock(), reason=reason
            )
        # The key is invalid, or its part cannot be removed. The error message says why.
        except InvalidInputError as error:
            return error_response(409, str(error))
        self.board.mark_changed(experiment.id)
        return JSONResponse({"voided": key.text})

    def _parse_key(self, request: Request, experiment: Experiment) -> PartKey:
        """Return the key of a part (source, hour and number) from the query parameters of the request."""
        query = request.query_params
        allowed = {"hour", "source", "seq", *(["reason"] if request.method == "DELETE" else [])}
        if unknown := sorted(set(query) - allowed):
            raise InvalidInputError(
                f"unknown query parameters: {', '.join(unknown)[:100]}; expected only hour, source and seq"
            )
        if missing := [name for name in ("hour", "source") if name not in query]:
            raise InvalidInputError(
                f"missing query parameters: {', '.join(missing)}; expected ?hour=2026-06-01T09&source=NAME"
            )
        key = parse_key(experiment.id, query["source"], query["hour"], query.get("seq", "0"))
        experiment.check_hour(key.hour, self.settings.clock())
        return key

    async def authorize(
        self, request: Request, *, workers: bool = False, readers: bool = False
    ) -> tuple[Experiment | None, Response]:
        """Return the experiment that a request is about, and a response.

        If the token does not allow the request, the experiment is None and the response is the error. Owners' tokens
        are always allowed. If `workers` is true, the tokens of the experiment are allowed, too; if `readers` is true,
        so are the tokens of readers. A wrong token gets the same answer whether or not the experiment exists.
        """
        client, token = self.access.find_client(request.scope), read_bearer_token(request)
        experiment = await run_in_threadpool(self.definitions.get, request.path_params["id"])
        scopes = [OWNER, *([READER] if readers else []), *([experiment.id] if workers and experiment else [])]
        name = await run_in_threadpool(self.access.identify_token, token, *scopes)
        # Find the reader, because a reader's token may be valid only for experiments with certain tags.
        person = await run_in_threadpool(self.access.accounts.find_person, token or "") if readers else None
        if name is None or (person and experiment and not self.access.may_see(person, experiment)):
            return None, self.access.refuse_token(
                client,
                token,
                "the token is missing or wrong, or the experiment does not exist; check its ID, and send a token "
                "that 'streammetrics serve token EXPERIMENT' has created: Authorization: Bearer smt_...",
            )
        request.state.name = name
        if experiment is None:
            return None, error_response(
                404, f"there is no experiment {request.path_params['id'][:100]!r}; define it first, or correct its ID"
            )
        return experiment, Response()

    async def authorize_reader(self, request: Request) -> tuple[Person | None, Response]:
        """Return the owner or reader whose token a request contains, and a response.

        If the token is missing or invalid, the person is None and the response is the error.
        """
        client, token = self.access.find_client(request.scope), read_bearer_token(request)
        person = await run_in_threadpool(self.access.accounts.find_person, token or "")
        if person is None:
            message = "this address needs the token of a reader or an owner: Authorization: Bearer smt_..."
            return None, self.access.refuse_token(client, token, message)
        return person, Response()

    async def _refuse_early(self, request: Request, answer: Response) -> Response:
        """Answer a refused request whose body was not read.

        The body is discarded first, so that the sender receives the answer.
        """
        await drain_body(request, self.settings.max_bytes)
        answer.headers["connection"] = "close"
        return answer

    # -- definitions --------------------------------------------------------------------------------------------------

    async def _save_definition(self, request: Request) -> Response:
        client, token = self.access.find_client(request.scope), read_bearer_token(request)
        by = await run_in_threadpool(self.access.identify_token, token, OWNER)
        if by is None:
            message = "saving a definition needs the token of an owner: Authorization: Bearer smt_..."
            return await self._refuse_early(request, self.access.refuse_token(client, token, message))
        body = await read_body(request, MAX_DEFINITION_BYTES, self.settings.body_seconds)
        try:
            experiment = _parse_definition(body, request.headers.get("content-type", ""), request.path_params["id"])
            version, changes = await run_in_threadpool(self.definitions.define, experiment, by)
        # The definition is invalid. The error message says why.
        except InvalidInputError as error:
            return error_response(422, str(error))
        self.board.mark_changed(experiment.id)
        return JSONResponse({"version": version, "changes": changes}, 201 if version == 1 else 200)

    async def _send_definition(self, request: Request) -> Response:
        experiment, answer = await self.authorize(request, workers=True, readers=True)
        if experiment is None:
            return answer
        owner = await run_in_threadpool(self.access.accounts.find_name, OWNER, read_bearer_token(request) or "")
        return JSONResponse(
            {k: v for k, v in experiment.to_dict().items() if owner is not None or k not in HIDDEN_FIELDS}
        )

    # -- conflicts ----------------------------------------------------------------------------------------------------

    async def _list_conflicts(self, request: Request) -> Response:
        experiment, answer = await self.authorize(request, readers=True)
        if experiment is None:
            return answer
        conflicts = await run_in_threadpool(self.store.conflicts, experiment.id)
        return JSONResponse(
            [
                {"number": row.number, "key": row.key.text, "digest": row.digest, "received": row.received_at}
                for row in conflicts
            ]
        )

    async def _decide_conflict(self, request: Request) -> Response:
        """Accept or reject a conflicting part. An accepted part replaces the current part with the same key."""
        experiment, answer = await self.authorize(request)
        if experiment is None:
            return answer
        number, by = request.path_params["number"], request.state.name
        decide = {"accept": self.store.accept, "reject": self.store.reject}.get(request.path_params["decision"])
        if decide is None:
            return error_response(404, "expected .../accept or .../reject")
        reason = check_text("reason", request.query_params.get("reason"), MAX_REASON)
        try:
            await run_in_threadpool(decide, experiment.id, number, by=by, at=self.settings.clock(), reason=reason)
        # The conflict cannot be decided. The error message says why.
        except InvalidInputError as error:
            return error_response(409, str(error))
        self.board.mark_changed(experiment.id)
        return JSONResponse({f"{request.path_params['decision']}ed": number})

    # -- health checks ------------------------------------------------------------------------------------------------

    async def _check_liveness(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _check_readiness(self, request: Request) -> Response:
        # If the check takes too long, stop waiting for it, although its thread keeps running. `run_in_threadpool` would
        # wait for the thread even after the timeout.
        async with asyncio.timeout(READY_TIMEOUT):
            await asyncio.to_thread(self.probe.check)
        if not (self.board.ready and self.ingest.ready):
            return PlainTextResponse("starting\n", 503)
        full = self.ingest.waiting >= self.settings.waiting
        return PlainTextResponse("busy\n" if full else "ready\n", 503 if full else 200)


def _parse_definition(body: bytes, kind: str, id: str) -> Experiment:  # noqa: A002 - as the parameter is called
    """Parse a posted definition in JSON or TOML. The ID in the definition must match the one in the URL.

    `kind` is the content type of the request.
    """
    try:
        text = body.decode()
        if "toml" in kind:
            experiment = Experiment.from_toml(text, id=id)
        else:
            fields = json.loads(text)
            experiment = Experiment.from_dict({"id": id} | fields if isinstance(fields, dict) else fields)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"the definition is not valid JSON ({error}); for TOML, send Content-Type: application/toml"
        ) from None
    except (RecursionError, OverflowError) as error:
        raise InvalidInputError(
            f"the definition is nested too deeply, or contains a number that is too large: {error}"
        ) from None
    if experiment.id != id:
        raise InvalidInputError(f"id: expected {id!r} as in the URL, found {experiment.id!r} in the definition")
    return experiment
