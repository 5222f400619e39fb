"""A real server, in a thread, at a port that the system gives."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streammetrics.serve.server import build_server

__all__ = ["running"]


@contextmanager
def running(app: Any, **options: Any) -> Iterator[str]:
    """Serve an application; give its URL."""
    server = build_server(app, "127.0.0.1", 0, timeout_graceful_shutdown=1, **options)
    heard = socket.create_server(("127.0.0.1", 0))  # connections wait here until it has started
    thread = threading.Thread(target=server.run, kwargs={"sockets": [heard]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{heard.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        heard.close()
