"""Access control: identify the sender of a request, and check whether the sender may read or change an experiment."""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import StreamMetricsError
from ..evaluation.definitions import Definitions
from ..evaluation.experiment import Experiment
from ..settings import LOOPBACK, TAG_PREFIX, ServerSettings
from .auth import Accounts, Person
from .headers import find_client_address, find_peer, is_https, is_same_origin, read_header_values
from .limits import BodyError, RateLimiter, read_body

__all__ = [
    "TOO_MANY_TOKENS",
    "Access",
    "Gate",
    "cookie_name",
    "error_response",
    "is_valid_csrf_token",
    "read_bearer_token",
    "read_form",
]

OPEN_PATHS = re.compile(r"/(login|healthz|readyz)|/static/[^/]+|/v1/.*")
"""Paths that need no login: static files, the login form, health checks, and /v1, whose endpoints check tokens."""
EXPERIMENT_PATH = re.compile(r"/experiments/([^/]+)(/.*)?")
LIST_PATHS = ("/", "/live", "/logout")
"""The paths that are open to readers who may see only some experiments.

For these readers, lists of experiments leave out the experiments that they may not see.
"""
MAX_FORM_BYTES = 1 << 14
"""The largest body of an HTML form, in bytes."""
READ_METHODS = ("GET", "HEAD")
ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]
TOO_MANY_TOKENS = "too many wrong tokens; wait for the number of seconds in the Retry-After header"
"""The message for a client that has sent too many wrong tokens."""


class Access:
    """The rules that decide who may send which request. `Gate` and the endpoints apply them.

    Parameters
    ----------
    accounts : Accounts
        Tokens and sessions.
    definitions : Definitions
        The experiments; some of them are public.
    settings : ServerSettings
        Rate limits, trusted proxies and public access.
    """

    def __init__(self, accounts: Accounts, definitions: Definitions, settings: ServerSettings) -> None:
        self.accounts, self.definitions, self.settings = accounts, definitions, settings
        self.requests = RateLimiter(settings.rate, settings.burst)
        self.failures = RateLimiter(settings.failures / 60, settings.failures)

    def find_client(self, scope: Scope) -> str:
        """Return the address of the client that sent a request. Clients with the same address share one rate limit."""
        return find_client_address(scope, self.settings.proxies)

    def uses_https(self, scope: Scope) -> bool:
        """Return whether the browser uses HTTPS; if so, cookies get the `Secure` attribute."""
        return self.settings.https or is_https(scope, self.settings.proxies)

    def identify_token(self, token: str | None, *scopes: str) -> str | None:
        """Return the name of a token if it is valid in one of the scopes; otherwise None.

        A scope is an experiment ID, `OWNER` or `READER`.
        """
        if token is None:
            return None
        names = (self.accounts.find_name(scope, token) for scope in scopes)
        return next((name for name in names if name is not None), None)

    def refuse_token(self, client: str, token: str | None, message: str) -> Response:
        """Return the error response for a request with a missing or wrong token.

        Each client may send a limited number of wrong tokens per minute. Above this limit, the status is 429 instead
        of 401. Valid tokens are accepted even above the limit, because several workers may share one address and
        therefore one limit. This is safe: a token has 256 random bits and cannot be guessed.
        """
        if token is None or self.failures.take(client):
            return error_response(401, message, bearer=True)
        return error_response(429, TOO_MANY_TOKENS, wait=self.failures.seconds_to_wait(client))

    def find_reader(self, request: Request) -> Person | None:
        """Return the person who sent a request; None if the request does not identify one.

        A person is identified by the header of a trusted proxy, a session cookie, or a bearer token.
        """
        header = self.settings.proxy_header
        if header is not None:
            names = read_header_values(request.scope, header)
            trusted = find_peer(request.scope) in (self.settings.proxies or LOOPBACK)
            return self._find_proxy_user(request, names[0]) if trusted and len(names) == 1 and names[0] else None
        if cookie := request.cookies.get(cookie_name(self.uses_https(request.scope))):
            return self.accounts.read_session(cookie)
        token = read_bearer_token(request)
        return None if token is None else self.accounts.find_person(token)

    def _find_proxy_user(self, request: Request, name: str) -> Person | None:
        """Return the user whom the proxy has logged in, with the rights of the user's groups.

        A user in several groups gets the rights of all of them. A user in none of the groups that have rights may see
        only public experiments. If the settings give no group rights, all users may read all experiments.
        """
        rights = dict(self.settings.group_rights)
        if not rights:
            return Person(name, "reader")
        header = self.settings.groups_header or ""
        groups = [group.strip() for value in read_header_values(request.scope, header) for group in value.split(",")]
        granted = {rights[group] for group in groups if group in rights}
        if not granted:
            return None
        if "owner" in granted:
            return Person(name, "owner", self.accounts.compute_proxy_csrf_token(name))
        tags = () if "reader" in granted else tuple(sorted(right.removeprefix(TAG_PREFIX) for right in granted))
        return Person(name, "reader", tags=tags)

    def may_see(self, person: Person | None, experiment: Experiment) -> bool:
        """Return whether a person may see an experiment; `person` is None for an anonymous visitor."""
        if experiment.public or self.settings.public_read:
            return True
        return person is not None and (not person.tags or not {*person.tags}.isdisjoint(experiment.tags))

    def may_read(self, person: Person | None, path: str) -> bool:
        """Return whether a person may see the page at a path; `person` is None for an anonymous visitor."""
        if self.settings.public_read or (person is not None and not person.tags):
            return True
        match = EXPERIMENT_PATH.fullmatch(path)
        if match is None:
            return person is not None and path in LIST_PATHS
        # The path /experiments/x.csv can mean a file of experiment "x", or the page of an experiment "x.csv". A person
        # needs access to both experiments if both exist.
        ids = {match[1], match[1].rpartition(".")[0]}
        experiments = [one for name in ids if (one := self.definitions.get(name)) is not None]
        return bool(experiments) and all(self.may_see(person, one) for one in experiments)


class Gate:
    """Middleware that checks every request.

    It stores the sender in `request.state.reader` and passes each allowed request on to the application. It answers all
    other requests with an error or a redirect to the login form.

    Parameters
    ----------
    app : ASGI application
        The next application.
    access : Access
        The access rules.
    answer_error : callable
        A function that converts errors of this library, such as store errors, to responses.
    """

    def __init__(self, app: ASGIApp, access: Access, answer_error: ErrorHandler) -> None:
        self.app, self.access, self.answer_error = app, access, answer_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application if it is allowed; otherwise, send an error or a redirect."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            answer = await self._check_request(request)
        # This error must be handled here, because the application's exception handlers do not see errors that
        # middleware raises.
        except StreamMetricsError as error:
            answer = await self.answer_error(request, error)
        if answer is None and request.method not in READ_METHODS and not OPEN_PATHS.fullmatch(scope["path"]):
            try:
                receive = _replay_body(await read_body(request, MAX_FORM_BYTES, self.access.settings.body_seconds))
            # This error must be handled here, because the application's exception handlers do not see errors that
            # middleware raises.
            except BodyError as error:
                answer = error_response(error.status, str(error), close=True)
        await (self.app if answer is None else answer)(scope, receive, send)

    async def _check_request(self, request: Request) -> Response | None:
        access, path = self.access, str(request.scope["path"])
        client = access.find_client(request.scope)
        request.state.reader = None
        if "content-length" in request.headers and "transfer-encoding" in request.headers:
            # If a proxy used one of these headers to find the end of the body, and this server used the other, an
            # attacker could hide a second request in the body (request smuggling).
            message = "a request must not have both Content-Length and Transfer-Encoding"
            return error_response(400, message, close=True)
        if not access.requests.take(client):
            return error_response(
                429,
                "too many requests; wait for the number of seconds in the Retry-After header",
                wait=access.requests.seconds_to_wait(client),
            )
        if OPEN_PATHS.fullmatch(path):
            return None
        reader = await run_in_threadpool(access.find_reader, request)
        request.state.reader = reader
        if not await run_in_threadpool(access.may_read, reader, path):
            return self._ask_for_login(request)
        if request.method not in READ_METHODS and (reader is None or not is_same_origin(request)):
            return error_response(
                403, "a change needs a login and a form on a page of this server; log in, open the page and try again"
            )
        return None

    def _ask_for_login(self, request: Request) -> Response:
        if request.method not in READ_METHODS or "text/html" not in request.headers.get("accept", ""):
            return self.access.refuse_token(
                self.access.find_client(request.scope),
                read_bearer_token(request),
                "a login is required; log in, or send the token of a reader: Authorization: Bearer smt_...",
            )
        if self.access.settings.proxy_header is not None:
            return error_response(
                401,
                "the proxy did not send the header with your user name, or none of your groups has access; ask the "
                "operator of this server",
            )
        to = quote(request.scope["path"]) + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse("/login" if to == "/" else f"/login?next={quote(to, safe='')}", 303)


def _replay_body(body: bytes) -> Receive:
    """Return a `receive` function that delivers a body again after the middleware has consumed it."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive


def cookie_name(https: bool) -> str:
    """Return the name of the session cookie.

    With HTTPS, the name begins with __Host-, so browsers accept the cookie only from this host, and only over HTTPS.
    """
    return "__Host-streammetrics" if https else "streammetrics"


def read_bearer_token(request: Request) -> str | None:
    """Return the bearer token in the Authorization header; None unless there is exactly one such header."""
    values = request.headers.getlist("authorization")
    scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    return token.strip() or None if scheme.lower() == "bearer" else None


async def read_form(request: Request, seconds: float) -> dict[str, str]:
    """Return the fields of a posted form, keyed by name, or an empty dict if the body cannot be parsed as a form.

    `seconds` is the time limit for reading the body.
    """
    body = await read_body(request, MAX_FORM_BYTES, seconds)
    try:
        return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20))
    # `parse_qsl` raises this error if the body has more than 20 fields, more than any dashboard form has.
    except ValueError:
        return {}


def is_valid_csrf_token(person: Person | None, token: Any) -> bool:
    """Return whether the CSRF token in a form is the token of the sender's session.

    The comparison takes constant time, so that its duration reveals nothing about the token.
    """
    return (
        person is not None
        and bool(person.csrf_token)
        and hmac.compare_digest(person.csrf_token.encode(), str(token).encode())
    )


def error_response(
    status: int, message: str, *, wait: int | None = None, bearer: bool = False, close: bool = False
) -> Response:
    """Return an error as JSON.

    `wait` is the number of seconds until a retry, for the Retry-After header. With `bearer`, the WWW-Authenticate
    header asks for a bearer token. With `close`, the server closes the connection.
    """
    headers = {"cache-control": "no-store"} | ({"connection": "close"} if close else {})
    if wait is not None:
        headers["retry-after"] = str(wait)
    if bearer:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse({"error": message}, status, headers)
