"""Headers: what every answer says to browsers, and what of a request is believed."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["FIXED", "POLICY", "Headers", "client_of", "is_https", "same_origin", "values_of"]

POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'nonce-{nonce}'; "
    "style-src-attr 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere, and no script within a page but by the number of the answer; style attributes are of charts."""
FIXED = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Headers:
    """Put the headers of security on every answer, and a number into `request.state.nonce` that scripts and styles name.

    Parameters
    ----------
    app : ASGI application
        What answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["content-security-policy"] = POLICY.format(nonce=nonce)
                headers.update(FIXED)
                headers.setdefault("cache-control", "private, no-cache")
            await send(message)

        await self.app(scope, receive, secured)


def values_of(scope: Scope, name: str) -> list[str]:
    """Return every value of a header, of which there may be several."""
    key = name.lower().encode("latin-1")
    return [value.decode("latin-1") for given, value in scope["headers"] if given == key]


def client_of(scope: Scope, proxies: Collection[str]) -> str:
    """Return whose request it is: the address, of IPv6 the network, which one customer has whole.

    What a proxy forwards is believed of `proxies` alone, and of that the last word, which is the proxy's own.
    """
    peer = peer_of(scope)
    if peer in proxies:
        forwarded = ",".join(values_of(scope, "x-forwarded-for"))
        peer = forwarded.rpartition(",")[2].strip() or peer
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:  # a unix socket, or what a proxy wrote: one client
        return "unknown"
    if address.version == 6:
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)


def peer_of(scope: Scope) -> str:
    """Return who is connected."""
    client: Any = scope.get("client")
    return str(client[0]) if client else ""


def is_https(scope: Scope, proxies: Collection[str]) -> bool:
    """Whether the browser speaks https, here or to a proxy that is believed."""
    if peer_of(scope) in proxies:
        return values_of(scope, "x-forwarded-proto")[-1:] == ["https"]
    return str(scope.get("scheme")) == "https"


def same_origin(request: Request) -> bool:
    """Whether a form is one of our own pages, as far as a browser says; what is no browser says nothing."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host")
