"""A server that webhooks are posted to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["webhook"]


@contextmanager
def webhook(take: Callable[[str, str, Any], object], status: int = 204, location: str = "") -> Iterator[str]:
    """Listen, and hand on the path, the type and the JSON of what is posted; give the URL."""

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            take(self.path, self.headers["Content-Type"], said)
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - as the library calls it

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
