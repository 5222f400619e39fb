"""The settings of a dashboard."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from .evaluation.metric_catalog import MetricCatalog

__all__ = ["LOOPBACK", "TAG_PREFIX", "ServerSettings"]

LOOPBACK = ("127.0.0.1", "::1")
MIB = 1 << 20
TAG_PREFIX = "tag:"
"""The prefix of a group right that is limited to the experiments with one tag, as in "tag:NAME"."""


@dataclass(frozen=True)
class ServerSettings:
    """The limits and access rules of a dashboard.

    Parameters
    ----------
    public_read : bool
        Whether anyone may read every experiment.
    proxy_header : str or None
        The header in which a proxy passes the name of the user. If it is set, the dashboard's own login is not used.
    groups_header : str or None
        The header in which the same proxy passes the groups of the user, separated by commas.
    group_rights : tuple of (str, str)
        The rights of each group: "owner", "reader", or "tag:NAME" for readers of the experiments with that tag.
    proxies : tuple of str
        The addresses of the proxies whose forwarded headers are trusted. By default, only a proxy on this machine may
        set `proxy_header`.
    hosts : tuple of str
        The allowed host names. Other Host headers are refused, which prevents DNS rebinding.
    https : bool
        Whether cookies are always `Secure`, even for requests that seem to use plain HTTP.
    max_bytes, max_content : int
        The maximum size, in bytes, of a frame (the serialized metrics that a worker posts) and of its decompressed
        content.
    body_seconds, decode_seconds : float
        The time limits for receiving a body and for decoding a frame, in seconds.
    waiting, waiting_bytes : int
        The maximum number of frames in the queue, and their maximum total size in bytes. Further frames are refused
        with status 429.
    rate, burst : float, int
        The number of requests that a client may send per second, and the number that it may send at once after a pause.
    failures : int
        The number of wrong tokens that a client may send per minute.
    session_hours : float
        The duration of a login, in hours.
    definitions : str or None
        A folder with a TOML file for each experiment.
    catalog : MetricCatalog or None
        The metrics that new definitions may use; None for any metric.
    watch : str or None
        A local folder, or an fsspec URL, whose files are read as parts.
    watch_seconds : float
        The number of seconds between two scans of the `watch` folder.
    clock : callable
        Returns the time, in seconds since 1970.
    """

    public_read: bool = False
    proxy_header: str | None = None
    groups_header: str | None = None
    group_rights: tuple[tuple[str, str], ...] = ()
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
    catalog: MetricCatalog | None = None
    watch: str | None = None
    watch_seconds: float = 5.0
    clock: Callable[[], float] = time.time
