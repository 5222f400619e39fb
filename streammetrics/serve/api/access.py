"""The gate in front of every page: who reads, whether that is allowed, and whether a form is one of ours."""

from __future__ import annotations

import hmac
import re
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..evaluation.definitions import Definitions
from ..settings import LOOPBACK, ServerSettings
from .auth import Accounts, Person
from .headers import client_of, is_https, peer_of, same_origin, values_of
from .limits import BodyError, Rate, read_body

__all__ = ["Access", "Gate", "bearer", "cookie_name", "form_is_ours", "form_of", "refused"]

OPEN = re.compile(r"/(login|healthz|readyz)|/static/[^/]+|/v1/.*")
"""What needs no reader: files that are of this package; and /v1, where every address asks for a token itself."""
OF_EXPERIMENT = re.compile(r"/experiments/([^/]+)(/.*)?")
LARGEST = 4096
"""Bytes of a form."""
READING = ("GET", "HEAD")


class Access:
    """What the gate and the addresses behind it ask.

    Parameters
    ----------
    accounts : Accounts
        Tokens and sessions.
    definitions : Definitions
        Experiments, some of which everybody may read.
    settings : Settings
        What the operator allows.
    """

    def __init__(self, accounts: Accounts, definitions: Definitions, settings: ServerSettings) -> None:
        self.accounts, self.definitions, self.settings = accounts, definitions, settings
        self.requests = Rate(settings.rate, settings.burst)
        self.failures = Rate(settings.failures / 60, settings.failures)

    def client(self, scope: Scope) -> str:
        """Whose request it is."""
        return client_of(scope, self.settings.proxies)

    def https(self, scope: Scope) -> bool:
        """Whether cookies may go over https alone."""
        return self.settings.https or is_https(scope, self.settings.proxies)

    def locked(self, client: str) -> bool:
        """Whether a client has tried too many wrong tokens: then none of its tokens is looked at."""
        return self.failures.left(client) < 1

    def token(self, client: str, token: str | None, *whose: str) -> str | None:
        """Return whose token it is, of an experiment or a role; count it against the client if it is nobody's."""
        if token is None or len(token) > 200:
            return None
        for one in whose:
            if (name := self.accounts.name_of(one, token)) is not None:
                return name
        self.failures.take(client)
        return None

    def reader(self, request: Request) -> Person | None:
        """Return who reads: by the header of a proxy, by a session, or by a token, as programs do."""
        header = self.settings.proxy_header
        if header is not None:
            names = values_of(request.scope, header)
            believed = peer_of(request.scope) in (self.settings.proxies or LOOPBACK)
            return Person(names[0], "reader") if believed and len(names) == 1 and names[0] else None
        if cookie := request.cookies.get(cookie_name(self.https(request.scope))):
            return self.accounts.of_session(cookie)
        if token := bearer(request):
            client = self.client(request.scope)
            if self.locked(client):
                return None
            person = self.accounts.person(token)
            if person is None:
                self.failures.take(client)
            return person
        return None

    def may_read(self, person: Person | None, path: str) -> bool:
        """Whether somebody may see a page."""
        if person is not None or self.settings.public_read:
            return True
        found = OF_EXPERIMENT.fullmatch(path)
        if found is None:
            return False
        named = {found[1], found[1].rpartition(".")[0]}  # x.csv is a file of x, or the page of another
        known = [one for name in named if (one := self.definitions.get(name)) is not None]
        return bool(known) and all(one.public for one in known)


class Gate:
    """Let through what is allowed, with the reader in `request.state.reader`; the others see the login.

    Parameters
    ----------
    app : ASGI application
        What is behind it.
    access : Access
        Who may do what.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        answer = await self._stopped(request)
        if answer is None and request.method not in READING and not OPEN.fullmatch(scope["path"]):
            try:
                receive = _again(await read_body(request, LARGEST, self.access.settings.body_seconds))
            except BodyError as error:  # answered here: handlers of the application are behind the gate
                answer = refused(error.status, str(error), close=True)
        await (self.app if answer is None else answer)(scope, receive, send)

    async def _stopped(self, request: Request) -> Response | None:
        access, path = self.access, str(request.scope["path"])
        client = access.client(request.scope)
        request.state.reader = None
        if "content-length" in request.headers and "transfer-encoding" in request.headers:
            return refused(
                400, "a body has a length or comes in chunks, not both", close=True
            )  # or a proxy reads another
        if not access.requests.take(client):
            return refused(429, "too many requests", wait=access.requests.wait(client))
        if OPEN.fullmatch(path):
            return None
        reader = await run_in_threadpool(access.reader, request)
        request.state.reader = reader
        if not await run_in_threadpool(access.may_read, reader, path):
            return self._login(request)
        if request.method not in READING and (reader is None or not same_origin(request)):
            return refused(403, "log in to change something, and do it on a page of this server")
        return None

    def _login(self, request: Request) -> Response:
        if request.method not in READING or "text/html" not in request.headers.get("accept", ""):
            return refused(401, "log in, or send the token of a reader", bearer=True)
        if self.access.settings.proxy_header is not None:
            return refused(401, "the proxy in front does not say who you are")
        to = quote(request.scope["path"]) + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse("/login" if to == "/" else f"/login?next={quote(to, safe='')}", 303)


def _again(body: bytes) -> Receive:
    """A form that was read, so that the page reads it: none is larger than this."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive


def cookie_name(https: bool) -> str:
    """Return what the session is called: a browser takes the one with __Host- from this host over https alone."""
    return "__Host-streammetrics" if https else "streammetrics"


def bearer(request: Request) -> str | None:
    """Return the token that a program sends."""
    given = request.headers.getlist("authorization")
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() or None if scheme.lower() == "bearer" else None


async def form_of(request: Request, seconds: float) -> dict[str, str]:
    """Return the fields of a form."""
    body = await read_body(request, LARGEST, seconds)
    try:
        return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20))
    except ValueError:  # more fields than any form of ours: it is none
        return {}


def form_is_ours(person: Person | None, given: Any) -> bool:
    """Whether a form carries what those of this session do."""
    return person is not None and bool(person.form) and hmac.compare_digest(person.form.encode(), str(given).encode())


def refused(
    status: int, message: str, *, wait: int | None = None, bearer: bool = False, close: bool = False
) -> Response:
    """Say as JSON why something is not done: when to come again, that a token is needed, that the connection ends."""
    headers = {"cache-control": "no-store"} | ({"connection": "close"} if close else {})
    if wait is not None:
        headers["retry-after"] = str(wait)
    if bearer:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse({"error": message}, status, headers)
