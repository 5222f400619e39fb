"""What programs call: states in, definitions in and out, conflicts accepted, and whether the server is well."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ...errors import InvalidInputError
from ..evaluation.definitions import LARGEST, Definitions
from ..evaluation.experiment import HIDDEN, Experiment
from ..settings import ServerSettings
from ..store.part_keys import PartKey, key_of
from .access import Access, bearer, refused
from .auth import OWNER, READER
from .ingest import Ingest
from .limits import linger, read_body

__all__ = ["Api"]

WELL = 2.0
"""Seconds in which a store that is well answers."""
CODES = {"stored": 201, "same": 200, "conflict": 409}


class Api(NamedTuple):
    """The addresses of programs.

    Parameters
    ----------
    store, board
        What is asked.
    ingest : Ingest
        Where states go.
    access : Access
        Who may do what.
    definitions : Definitions
        Experiments.
    settings : Settings
        Limits.
    """

    store: Any
    board: Any
    ingest: Ingest
    access: Access
    definitions: Definitions
    settings: ServerSettings

    def routes(self) -> list[Route]:
        """Return the addresses."""
        one = "/v1/experiments/{id}"
        return [
            Route(f"{one}/states", self._post_state, methods=["POST"]),
            Route(one, self._define, methods=["POST"]),
            Route(one, self._definition, methods=["GET"]),
            Route(f"{one}/conflicts", self._conflicts, methods=["GET"]),
            Route(f"{one}/conflicts/{{number:int}}/accept", self._accept, methods=["POST"]),
            Route("/healthz", self._alive, methods=["GET"]),
            Route("/readyz", self._ready, methods=["GET"]),
        ]

    # -- states -------------------------------------------------------------------------------------------------------

    async def _post_state(self, request: Request) -> Response:
        """Store a part; who posts, and under which key, is settled before the body is read."""
        experiment, answer = await self._experiment_for(request, writers=True)
        if experiment is None:
            return await self._unread(request, answer)
        try:
            key = self._key(request, experiment)
        except InvalidInputError as error:  # the answer says it
            return await self._unread(request, refused(400, str(error)))
        body = await read_body(request, self.settings.max_bytes, self.settings.body_seconds)
        word = await self.ingest.take(key, body, experiment)
        said: dict[str, Any] = {"state": word, "key": key.text}
        if word == "conflict":
            said["error"] = (
                f"{key.text} was posted before with other content, which counts; this is kept aside, and an owner may "
                f"accept it in its place"
            )
        return JSONResponse(said, CODES[word])

    def _key(self, request: Request, experiment: Experiment) -> PartKey:
        """The key that the address says."""
        query = request.query_params
        if unknown := sorted(set(query) - {"hour", "source", "seq"}):
            raise InvalidInputError(f"the address takes hour, source and seq, not {', '.join(unknown)[:100]}")
        if missing := [name for name in ("hour", "source") if name not in query]:
            raise InvalidInputError(f"the address says no {' and no '.join(missing)}: ?hour=2026-06-01T09&source=NAME")
        key = key_of(experiment.id, query["source"], query["hour"], query.get("seq", "0"))
        experiment.check_hour(key.hour, self.settings.clock())
        return key

    async def _experiment_for(
        self, request: Request, *, writers: bool = False, readers: bool = False
    ) -> tuple[Experiment | None, Response]:
        """The experiment of an address, for who may have it; else the answer, the same whether there is one or not."""
        client, token = self.access.client(request.scope), bearer(request)
        if self.access.locked(client):
            wait = self.access.failures.wait(client)
            return None, refused(429, "too many wrong tokens; wait a little", wait=wait)
        experiment = await run_in_threadpool(self.definitions.get, request.path_params["id"])
        whose = [OWNER, *([READER] if readers else []), *([experiment.id] if writers and experiment else [])]
        name = await run_in_threadpool(self.access.token, client, token, *whose)
        if name is None:
            return None, refused(401, "send a token of this experiment: Authorization: Bearer smt_...", bearer=True)
        request.state.name = name
        if experiment is None:
            return None, refused(404, f"there is no experiment {request.path_params['id'][:100]!r}")
        return experiment, Response()

    async def _unread(self, request: Request, answer: Response) -> Response:
        """Refuse without the body, which its sender may still be writing."""
        await linger(request, self.settings.max_bytes)
        answer.headers["connection"] = "close"
        return answer

    # -- definitions --------------------------------------------------------------------------------------------------

    async def _define(self, request: Request) -> Response:
        client, token = self.access.client(request.scope), bearer(request)
        if self.access.locked(client):
            return await self._unread(request, refused(429, "too many wrong tokens; wait a little", wait=60))
        by = await run_in_threadpool(self.access.token, client, token, OWNER)
        if by is None:
            return await self._unread(request, refused(401, "definitions need the token of an owner", bearer=True))
        body = await read_body(request, LARGEST, self.settings.body_seconds)
        try:
            experiment = _read_definition(body, request.headers.get("content-type", ""), request.path_params["id"])
            version, said = await run_in_threadpool(self.definitions.define, experiment, by)
        except InvalidInputError as error:  # the answer says it
            return refused(422, str(error))
        self.board.changed(experiment.id)
        return JSONResponse({"version": version, "changes": said}, 201 if version == 1 else 200)

    async def _definition(self, request: Request) -> Response:
        experiment, answer = await self._experiment_for(request, writers=True, readers=True)
        if experiment is None:
            return answer
        owner = await run_in_threadpool(self.access.accounts.name_of, OWNER, bearer(request) or "")
        return JSONResponse({k: v for k, v in experiment.to_dict().items() if owner is not None or k not in HIDDEN})

    # -- conflicts ----------------------------------------------------------------------------------------------------

    async def _conflicts(self, request: Request) -> Response:
        experiment, answer = await self._experiment_for(request, readers=True)
        if experiment is None:
            return answer
        found = await run_in_threadpool(self.store.conflicts, experiment.id)
        return JSONResponse(
            [
                {"number": row.number, "key": row.key.text, "digest": row.digest, "received": row.received}
                for row in found
            ]
        )

    async def _accept(self, request: Request) -> Response:
        """Count a conflict in place of what is counted."""
        experiment, answer = await self._experiment_for(request)
        if experiment is None:
            return answer
        number, by = request.path_params["number"], request.state.name
        try:
            await run_in_threadpool(self.store.accept, experiment.id, number, by=by, at=self.settings.clock())
        except InvalidInputError as error:  # the answer says it
            return refused(409, str(error))
        self.board.changed(experiment.id)
        return JSONResponse({"accepted": number})

    # -- whether it is well -------------------------------------------------------------------------------------------

    async def _alive(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _ready(self, request: Request) -> Response:
        async with asyncio.timeout(WELL):
            await run_in_threadpool(self.store.definitions)
        if not (self.board.ready and self.ingest.ready):
            return PlainTextResponse("starting\n", 503)
        full = self.ingest.waiting >= self.settings.waiting
        return PlainTextResponse("busy\n" if full else "ready\n", 503 if full else 200)


def _read_definition(body: bytes, kind: str, id: str) -> Experiment:  # noqa: A002 - as the parameter is called
    """Read what was posted, JSON or TOML, of the experiment in the address."""
    try:
        text = body.decode()
        if "toml" in kind:
            experiment = Experiment.of_toml(text, id=id)
        else:
            given = json.loads(text)
            experiment = Experiment.of_dict({"id": id} | given if isinstance(given, dict) else given)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"the definition is no JSON (application/toml says that it is TOML): {error}") from None
    except (RecursionError, OverflowError) as error:
        raise InvalidInputError(f"the definition holds what no definition does: {error}") from None
    if experiment.id != id:
        raise InvalidInputError(f"id: the address says {id!r}, the definition {experiment.id!r}")
    return experiment
