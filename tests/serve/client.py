"""A client of an application without a network: the application runs, lifespan and all, on a loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self

import httpx
from starlette.applications import Starlette

__all__ = ["Client"]


class Client:
    """Call `get` and `post` as of `httpx`, inside a `with`.

    Parameters
    ----------
    app : Starlette
        What is called.
    peer : str
        The address that calls come from.
    **headers : str
        Of every call.
    """

    def __init__(self, app: Starlette, peer: str = "127.0.0.1", **headers: str) -> None:
        self.app = app
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(peer, 123))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://testserver", headers=headers)
        self.headers, self.cookies = self.http.headers, self.http.cookies

    def __enter__(self) -> Self:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.life = self.app.router.lifespan_context(self.app)
        self.wait(self.life.__aenter__())
        return self

    def __exit__(self, *raised: Any) -> None:
        self.wait(self.life.__aexit__(None, None, None))
        self.wait(self.http.aclose())
        self.wait(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def beside(self, peer: str, **headers: str) -> Self:
        """Another client of the application that runs, from another address."""
        other = type(self)(self.app, peer, **headers)
        other.loop = self.loop
        return other

    def wait(self, call: Any) -> Any:
        """Run something on the loop of the application."""
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(30)

    def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        return self.wait(self.http.request(method, path, **given))

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self.request("GET", path, **given)

    def post(self, path: str, **given: Any) -> httpx.Response:
        return self.request("POST", path, **given)
