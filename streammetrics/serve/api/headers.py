"""HTTP headers: the security headers of every response, and the trusted headers of requests."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = [
    "CONTENT_SECURITY_POLICY",
    "FIXED_HEADERS",
    "SecurityHeaders",
    "find_client_address",
    "is_https",
    "is_same_origin",
    "read_header_values",
]

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'nonce-{nonce}'; "
    "style-src-attr 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of pages.

Pages load nothing from other hosts, and run only inline scripts that carry the random nonce of the response. Style
attributes are allowed, because charts need them.
"""
FIXED_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityHeaders:
    """Middleware that adds security headers to every response.

    The random nonce for inline scripts and styles is in `request.state.nonce`, where the pages read it.

    Parameters
    ----------
    app : ASGI application
        The next application.
    https : bool
        Whether browsers must always use HTTPS.
    """

    def __init__(self, app: ASGIApp, https: bool = False) -> None:
        self.app = app
        self.headers = FIXED_HEADERS | ({"strict-transport-security": "max-age=31536000"} if https else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the headers to its response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["content-security-policy"] = CONTENT_SECURITY_POLICY.format(nonce=nonce)
                headers.update(self.headers)
                headers.setdefault("cache-control", "private, no-cache")
            await send(message)

        await self.app(scope, receive, send_with_headers)


def read_header_values(scope: Scope, name: str) -> list[str]:
    """Return all values of a header. A request can contain the same header several times."""
    key = name.lower().encode("latin-1")
    return [value.decode("latin-1") for header, value in scope["headers"] if header == key]


def find_client_address(scope: Scope, proxies: Collection[str]) -> str:
    """Return the address of the client that sent a request, for rate limits.

    An IPv6 address is replaced with its /64 network, because all addresses in such a network usually belong to one
    customer. The header X-Forwarded-For is trusted only if the request comes from one of `proxies`. The last entry of
    the header is used, because the proxy itself added this entry.
    """
    peer = find_peer(scope)
    if peer in proxies:
        forwarded = ",".join(read_header_values(scope, "x-forwarded-for"))
        peer = forwarded.rpartition(",")[2].strip() or peer
    try:
        address = ipaddress.ip_address(peer)
    # The address is not an IP address: the client uses a Unix socket, or a proxy has sent an invalid header.
    except ValueError:
        return "unknown"
    if address.version == 6:
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)


def find_peer(scope: Scope) -> str:
    """Return the address at the other end of the connection."""
    client: Any = scope.get("client")
    return str(client[0]) if client else ""


def is_https(scope: Scope, proxies: Collection[str]) -> bool:
    """Return whether the browser connects over HTTPS, either to this server or to a trusted proxy in front of it."""
    if find_peer(scope) in proxies:
        return read_header_values(scope, "x-forwarded-proto")[-1:] == ["https"]
    return str(scope.get("scheme")) == "https"


def is_same_origin(request: Request) -> bool:
    """Return whether a form comes from a page of this server.

    The headers Sec-Fetch-Site and Origin, which browsers add, show where a form comes from. The result is True if
    both headers are missing.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host")
