"""Run the dashboard with uvicorn, and limit the size of request headers and the time to receive them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HEADER_BYTES", "HEADER_SECONDS", "TimeoutProtocol", "build_server"]

HEADER_SECONDS, HEADER_BYTES = 15.0, 1 << 15
"""The time limit for receiving the headers of a request, in seconds, and their maximum size, in bytes.

The time starts when the connection is opened, or after the last response on this connection.
"""
HEADER_TOO_LARGE = f"The head of a request has at most {HEADER_BYTES:,} bytes."


class TimeoutProtocol(HttpToolsProtocol):
    """An HTTP protocol that closes a connection if the headers of the next request do not arrive in time.

    Without this limit, slow clients could tie up connections and memory forever (a "slowloris" attack).
    """

    seconds = HEADER_SECONDS
    _incomplete_bytes = 0  # bytes that arrived since the last complete headers or body data
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # The HTTP parser buffers incomplete headers without a limit, so count and limit their bytes here.
        self._incomplete_bytes += len(data)
        super().data_received(data)
        if self._incomplete_bytes > HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response(HEADER_TOO_LARGE)
        if self._is_answering:
            self._stop_timer()

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEADER_BYTES:
            # The HTTP parser responds to this error with status 400.
            raise ValueError(HEADER_TOO_LARGE)
        self._incomplete_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._incomplete_bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_answering:
            self._start_timer()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.seconds, self._close_idle)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _close_idle(self) -> None:
        if not self._is_answering and not self.transport.is_closing():
            self.transport.close()


class DashboardServer(uvicorn.Server):
    """A uvicorn server that ends its live streams when it stops, because they never end on their own."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the live streams, and then shut down."""
        state = getattr(self.config.app, "state", None)
        if state is not None and hasattr(state, "end_streams"):
            state.end_streams()
        await super().shutdown(sockets)


def build_server(app: Any, host: str, port: int, **options: Any) -> uvicorn.Server:
    """Return a uvicorn server for an application. Its method `run` serves requests until a signal stops it.

    uvicorn ignores X-Forwarded headers here. The application reads them itself, and only from trusted proxies.
    """
    defaults: dict[str, Any] = {
        "http": TimeoutProtocol,
        "ws": "none",
        "proxy_headers": False,
        "server_header": False,
        "timeout_graceful_shutdown": 10,
        "access_log": False,
        "log_level": "warning",
    }
    return DashboardServer(uvicorn.Config(app, host=host, port=port, **defaults | options))
