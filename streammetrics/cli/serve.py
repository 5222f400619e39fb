"""`streammetrics serve`: the dashboard, and the tokens of those who write to it and read it."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from dataclasses import replace
from getpass import getuser
from pathlib import Path
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.reports.text_table import say
from streammetrics.serve.api.auth import OWNER, READER, issue
from streammetrics.serve.api.reader_process import Apart, DecoderApart
from streammetrics.serve.dashboard import dashboard
from streammetrics.serve.server import server_of
from streammetrics.serve.settings import LOOPBACK, ServerSettings
from streammetrics.serve.store import Store, open_store
from streammetrics.serve.store.part_keys import NAME

__all__ = ["list_tokens", "listening", "make_token", "read_auth", "revoke_token", "run_server"]

HERE = ("localhost", "127.0.0.1", "::1", "[::1]")


def run_server(url: str, host: str, port: int, settings: ServerSettings, names: list[str]) -> None:
    """Serve until a signal comes.

    Parameters
    ----------
    url : str
        Of the store.
    host, port : str, int
        Where it listens; port 0 is one that is free.
    settings : Settings
        What is allowed.
    names : list of str
        Names under which it is called, beside those of this machine.
    """
    for folder in (settings.definitions, settings.watch):
        if folder is not None and "://" not in folder and not Path(folder).is_dir():
            raise UsageError(f"there is no folder {folder}")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    alone = host in (*LOOPBACK, "localhost")
    settings = replace(settings, hosts=(*HERE, *names) if alone or names else ("*",))
    with listening(host, port) as heard, _opened(url) as store:
        app = dashboard(store, settings, reader=Apart(url), decoder=DecoderApart(url))
        shown = f"[{host}]" if ":" in host else host
        say(f"http://{shown}:{heard.getsockname()[1]}", "bold")
        for hint in _hints(store, settings, alone):
            say(hint, "dim")
        sys.stdout.flush()  # whoever started it may wait for the address
        server_of(app, host, port).run(sockets=[heard])


def _hints(store: Store, settings: ServerSettings, alone: bool) -> list[str]:
    """What is missing, or not safe."""
    found = []
    if not (settings.public_read or settings.proxy_header or store.tokens(READER) or store.tokens(OWNER)):
        found.append("nobody can log in yet: streammetrics serve token --reader NAME")
    if not (store.definitions() or settings.definitions):
        found.append("there are no experiments yet: --experiments FOLDER of TOML files, or post definitions")
    if not alone and not settings.https and not settings.proxies:
        found.append("tokens and sessions are not encrypted: put a proxy with https in front, --trust-proxy ADDRESS")
    return found


def listening(host: str, port: int) -> socket.socket:
    """Return a socket, before the server is there: so that its address can be said, and workers may knock already."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UsageError(f"{host}, port {port}: {reason}; --port 0 takes one that is free") from None


def _opened(url: str) -> Store:
    try:
        return open_store(url)
    except ValueError as error:
        raise UsageError(f"--store: {error}") from None


def read_auth(given: str) -> str | None:
    """Return the header by which a proxy says who reads; None where readers log in."""
    kind, _, header = given.partition("=")
    if given == "login":
        return None
    if kind == "proxy-header" and header and all(c.isalnum() or c == "-" for c in header):
        return header
    raise UsageError(f"--auth is login, or proxy-header=NAME such as proxy-header=X-Forwarded-User, not {given!r}")


def make_token(url: str, experiment: str | None, name: str | None, owner: str | None, reader: str | None) -> None:
    """Print a new token, and nothing else on stdout."""
    if sum(one is not None for one in (experiment, owner, reader)) != 1:
        raise UsageError("whose token? Give EXPERIMENT for workers, --owner NAME or --reader NAME")
    if name is not None and experiment is None:
        raise UsageError("--name goes with EXPERIMENT; --owner and --reader are given the name")
    if experiment is not None:
        _check_name(experiment)
    whose, who = (experiment, name or "worker") if experiment else (OWNER, owner) if owner else (READER, reader)
    with _opened(url) as store:
        print(issue(store, str(whose), str(who), **_by()))
    print("shown once: only its hash is kept; another one of this name takes its place", file=sys.stderr)


def list_tokens(url: str, experiment: str | None) -> None:
    """Print who has a token."""
    with _opened(url) as store:
        rows = [("owner", row.name) for row in store.tokens(OWNER)] + [
            ("reader", row.name) for row in store.tokens(READER)
        ]
        for one in [experiment] if experiment else sorted(store.definitions()):
            rows += [(one, row.name) for row in store.tokens(one)]
    for whose, who in rows:
        print(f"{whose}\t{who}")


def revoke_token(url: str, whose: str, name: str) -> None:
    """Let somebody in no longer."""
    kept = {"owner": OWNER, "reader": READER}.get(whose, whose)
    with _opened(url) as store:
        if not store.revoke(kept, name, **_by()):
            raise UsageError(f"{whose} has no token {name!r}; `streammetrics serve tokens` lists them")


def _check_name(experiment: str) -> None:
    if not NAME.fullmatch(experiment):
        raise UsageError(f"an experiment is at most 100 letters, digits, '.', '_' or '-', not {experiment!r}")
    if experiment in ("owner", "reader"):
        raise UsageError(f"--{experiment} NAME makes the token of an {experiment}")


def _by() -> dict[str, Any]:
    """Who does it, by the system, and when."""
    try:
        who = getuser()
    except (KeyError, OSError):  # a container has users without a name
        who = f"user {os.getuid()}"
    return {"by": f"{who} by the command line", "at": time.time()}
