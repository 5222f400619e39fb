"""How a dashboard is run: what an operator says once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["LOOPBACK", "ServerSettings"]

LOOPBACK = ("127.0.0.1", "::1")
MIB = 1 << 20


@dataclass(frozen=True)
class ServerSettings:
    """What is allowed, and how much of it.

    Parameters
    ----------
    public_read : bool
        Whether everybody may read every experiment.
    proxy_header : str or None
        The header by which a proxy says who reads; then there is no login.
    proxies : tuple of str
        Addresses whose forwarded headers are believed. The proxy of `proxy_header` is on this machine unless they say it.
    hosts : tuple of str
        Names under which the server is called; others are refused, for a page elsewhere may lead a browser here.
    https : bool
        Whether cookies go over https alone, whatever a request says of itself.
    max_bytes, max_content : int
        Of a frame as it is sent, and of what it decodes to.
    body_seconds, decode_seconds : float
        How long a body may take to arrive, and a frame to be decoded.
    waiting, waiting_bytes : int
        Frames that may wait; more are told to come again.
    rate, burst : float, int
        Requests of one client a second, and at once.
    failures : int
        Wrong tokens of one client a minute.
    session_hours : float
        How long a login lasts.
    definitions : str or None
        A folder of TOML files, one an experiment.
    watch : str or None
        A folder, or a URL of fsspec, into which parts are dropped as files.
    watch_seconds : float
        How often it is looked at.
    clock : function
        Seconds since 1970.
    """

    public_read: bool = False
    proxy_header: str | None = None
    proxies: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ("*",)
    https: bool = False
    max_bytes: int = 32 * MIB
    max_content: int = 256 * MIB
    body_seconds: float = 30.0
    decode_seconds: float = 20.0
    waiting: int = 2048
    waiting_bytes: int = 256 * MIB
    rate: float = 500.0
    burst: int = 1000
    failures: int = 10
    session_hours: float = 24.0 * 7
    definitions: str | None = None
    watch: str | None = None
    watch_seconds: float = 5.0
    clock: Callable[[], float] = time.time
