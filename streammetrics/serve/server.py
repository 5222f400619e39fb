"""Running the application: uvicorn, which gives clients only so long to say what they want."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HEADER_BYTES", "HEADER_SECONDS", "Patient", "server_of"]

HEADER_SECONDS, HEADER_BYTES = 15.0, 1 << 15
"""How long a client may take for the head of a request, from when it connects or was answered last; its size."""
LARGE = f"The head of a request has at most {HEADER_BYTES:,} bytes."


class Patient(HttpToolsProtocol):
    """HTTP, and the end of a connection whose next request does not come, or does not end.

    Else a client that is slow, or never done, holds it or its memory for ever.
    """

    seconds = HEADER_SECONDS
    _partial = 0  # bytes since a head, or a piece of a body, was whole
    _ends: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._partial += len(data)
        super().data_received(data)
        if self._partial > HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response(LARGE)
        if self._busy:
            self._stop()

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEADER_BYTES:
            raise ValueError(LARGE)  # the parser answers 400
        self._partial = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._partial = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._busy:
            self._wait()

    @property
    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._stop()
        self._ends = self.loop.call_later(self.seconds, self._end)

    def _stop(self) -> None:
        if self._ends is not None:
            self._ends.cancel()
        self._ends = None

    def _end(self) -> None:
        if not self._busy and not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """One that ends its streams before it waits for its answers to end."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, once `app.state.let_go` has ended what would never end by itself."""
        state = getattr(self.config.app, "state", None)
        if state is not None and hasattr(state, "let_go"):
            state.let_go()
        await super().shutdown(sockets)


def server_of(app: Any, host: str, port: int, **options: Any) -> uvicorn.Server:
    """Return the server of an application; `run()` serves until a signal.

    Headers that proxies forward are left to the application, which is told whom to believe.
    """
    given: dict[str, Any] = {
        "http": Patient,
        "ws": "none",
        "proxy_headers": False,
        "server_header": False,
        "timeout_graceful_shutdown": 10,
        "access_log": False,
        "log_level": "warning",
    }
    return Server(uvicorn.Config(app, host=host, port=port, **given | options))
