"""`streammetrics serve`: run the dashboard, and manage the tokens of its workers and readers."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from getpass import getuser
from pathlib import Path
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.errors import InvalidInputError
from streammetrics.reports.text_table import print_line
from streammetrics.serve.api.auth import OWNER, READER, issue_token
from streammetrics.serve.api.reader_process import DecoderProcess, ReaderProcess
from streammetrics.serve.api.results import format_timestamp
from streammetrics.serve.dashboard import build_dashboard
from streammetrics.serve.evaluation.metric_catalog import MetricCatalog, check_definitions
from streammetrics.serve.part_keys import NAME
from streammetrics.serve.server import build_server
from streammetrics.serve.settings import LOOPBACK, TAG_PREFIX, ServerSettings
from streammetrics.serve.store import Store, open_store
from streammetrics.serve.store.backup import back_up_sqlite

__all__ = [
    "back_up",
    "check_folder",
    "list_tokens",
    "make_token",
    "open_listener",
    "parse_auth",
    "parse_groups",
    "print_audit",
    "read_catalog",
    "revoke_token",
    "run_server",
]

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "[::1]")


def run_server(url: str, host: str, port: int, settings: ServerSettings, names: list[str]) -> None:
    """Serve until a signal stops the process.

    Parameters
    ----------
    url : str
        URL of the store.
    host, port : str, int
        Address to listen on; port 0 selects a free port.
    settings : ServerSettings
        The settings for access and limits, such as the maximum size of a posted state.
    names : list of str
        Names of this host, in addition to localhost, under which readers can open the dashboard.
    """
    for folder in (settings.definitions, settings.watch):
        if folder is not None and "://" not in folder and not Path(folder).is_dir():
            raise UsageError(f"there is no folder {folder}; create it first")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    alone = host in (*LOOPBACK, "localhost")
    settings = replace(settings, hosts=(*LOCAL_HOSTS, *names) if alone or names else ("*",))
    with open_listener(host, port) as listener, _open_store(url) as store:
        app = build_dashboard(store, settings, reader=ReaderProcess(url), decoder=DecoderProcess(url))
        shown_host = f"[{host}]" if ":" in host else host
        print_line(f"http://{shown_host}:{listener.getsockname()[1]}", "bold")
        for hint in _collect_hints(store, settings, alone):
            print_line(hint, "dim")
        # Flush the output, because the process that started this one may wait for the printed address.
        sys.stdout.flush()
        build_server(app, host, port).run(sockets=[listener])


def _collect_hints(store: Store, settings: ServerSettings, alone: bool) -> list[str]:
    """Return hints about missing or unsafe settings. `alone` says whether only this machine can reach the server."""
    hints = []
    if not (settings.public_read or settings.proxy_header or store.tokens(READER) or store.tokens(OWNER)):
        hints.append("nobody can log in yet; create a token: streammetrics serve token --reader NAME")
    if not (store.definitions() or settings.definitions):
        hints.append(
            "there are no experiments yet; name a folder of TOML files with --experiments, or post definitions"
        )
    if not alone and not settings.https and not settings.proxies:
        hints.append(
            "tokens and sessions are not encrypted; put an HTTPS proxy in front of the server, and pass "
            "the address of the proxy with --trust-proxy"
        )
    return hints


def open_listener(host: str, port: int) -> socket.socket:
    """Open and return the server's socket before the server starts.

    The caller thus knows the port even if `port` is 0, and connections that arrive early wait for the server.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UsageError(f"{host}, port {port}: {reason}; choose another --port (0 selects a free one)") from None


def _open_store(url: str) -> Store:
    try:
        return open_store(url)
    except ValueError as error:
        raise UsageError(f"--store: {error}") from None


def parse_auth(text: str) -> str | None:
    """Parse --auth; return the HTTP header in which a proxy passes the reader's name, or None if readers log in."""
    kind, _, header = text.partition("=")
    if text == "login":
        return None
    if kind == "proxy-header" and header and all(c.isalnum() or c == "-" for c in header):
        return header
    raise UsageError(
        f"--auth: expected login or proxy-header=NAME, such as proxy-header=X-Forwarded-User, found {text!r}"
    )


def parse_groups(rules: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse the values of --group, such as admins=owner; return (group, rights) pairs."""
    pairs = []
    for rule in rules:
        group, _, rights = rule.rpartition("=")
        if not group or not (rights in ("owner", "reader") or rights.removeprefix(TAG_PREFIX) not in ("", rights)):
            raise UsageError(
                f"--group: expected GROUP=owner, GROUP=reader or GROUP=tag:TAG, such as admins=owner, found {rule!r}"
            )
        pairs.append((group, rights))
    return tuple(pairs)


def make_token(
    url: str,
    experiment: str | None,
    name: str | None,
    owner: str | None,
    reader: str | None,
    tags: Sequence[str] = (),
) -> None:
    """Create a token for an owner, a reader or the workers of an experiment, and print only the token on stdout."""
    if (found := sum(one is not None for one in (experiment, owner, reader))) != 1:
        raise UsageError(
            f"expected either EXPERIMENT (a token for its workers), --owner NAME or --reader NAME, found {found} of them"
        )
    if name is not None and experiment is None:
        raise UsageError(
            "--name is the name of a worker and needs EXPERIMENT; for other tokens, use --owner NAME or --reader NAME"
        )
    if tags and reader is None:
        raise UsageError("--tag limits the experiments that a reader sees; use it with --reader NAME")
    if experiment is not None:
        _check_name(experiment)
    whose, who = (experiment, name or "worker") if experiment else (OWNER, owner) if owner else (READER, reader)
    with _open_store(url) as store:
        print(issue_token(store, str(whose), str(who), tags=tags, **_audit_fields()))
    print(
        "The token is shown only once, because only its hash is stored. A new token of this name replaces it.",
        file=sys.stderr,
    )


def list_tokens(url: str, experiment: str | None) -> None:
    """Print the names of all owner and reader tokens, and of the tokens of `experiment` (None for all experiments)."""
    with _open_store(url) as store:
        rows = [("owner", row.name) for row in store.tokens(OWNER)] + [
            ("reader", row.name) for row in store.tokens(READER)
        ]
        for one in [experiment] if experiment else sorted(store.definitions()):
            rows += [(one, row.name) for row in store.tokens(one)]
    for whose, who in rows:
        print(f"{whose}\t{who}")


def revoke_token(url: str, whose: str, name: str) -> None:
    """Revoke a token by its name; raise UsageError if there is no such token.

    `whose` is "owner", "reader" or the ID of an experiment.
    """
    owner = {"owner": OWNER, "reader": READER}.get(whose, whose)
    with _open_store(url) as store:
        if not store.revoke(owner, name, **_audit_fields()):
            raise UsageError(f"{whose} has no token {name!r}; `streammetrics serve tokens` lists all tokens")


def read_catalog(path: str | None) -> MetricCatalog | None:
    """Read a metric catalog; return None if `path` is None."""
    if path is None:
        return None
    try:
        return MetricCatalog.from_toml(Path(path).read_text("utf-8"))
    except (InvalidInputError, OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--metrics {path}: {error}") from None


def check_folder(folder: str, catalog: str | None) -> None:
    """Print how many definitions in a folder are valid; exit with status 1 unless all are."""
    if not Path(folder).is_dir():
        raise UsageError(f"there is no folder {folder}")
    valid, errors = check_definitions(folder, read_catalog(catalog))
    for error in errors:
        print(error, file=sys.stderr)
    print(f"{len(valid)} valid, {len(errors)} not valid")
    if errors:
        raise SystemExit(1)


def print_audit(url: str, experiment: str | None) -> None:
    """Print the audit log (who changed what and when): a tab-separated line for each entry, oldest first.

    `experiment` is the ID of an experiment; None prints the entries for all experiments and all tokens.
    """
    with _open_store(url) as store:
        for scope, entry in store.all_audits():
            if experiment in (None, scope):
                print(f"{format_timestamp(entry.at)}\t{scope}\t{entry.by}\t{entry.what}")


def back_up(url: str, target: Path) -> None:
    """Copy an SQLite store to a new file while the server runs; raise UsageError if the store is not SQLite."""
    scheme, separator, path = url.partition(":///")
    path = path if separator and scheme == "sqlite" else url
    if "://" in path:
        raise UsageError(f"--store: expected an SQLite file, found {url!r}; back up PostgreSQL with pg_dump")
    if not Path(path).is_file():
        raise UsageError(f"--store: there is no file {path}")
    try:
        back_up_sqlite(path, target)
    except FileExistsError:
        raise UsageError(f"{target} exists already; choose another name") from None


def _check_name(experiment: str) -> None:
    if not NAME.fullmatch(experiment):
        raise UsageError(
            f"EXPERIMENT: expected at most 100 letters, digits, '.', '_' or '-', beginning with a letter or digit, found "
            f"{experiment!r}"
        )
    if experiment in ("owner", "reader"):
        raise UsageError(
            f"{experiment!r} cannot be the ID of an experiment; for a token of that kind, use --{experiment} NAME"
        )


def _audit_fields() -> dict[str, Any]:
    """Return the fields of an audit log entry that say who changes a token, and when."""
    try:
        who = getuser()
    # If the user has no name, which happens in containers, use the user ID.
    except (KeyError, OSError):
        who = f"user {os.getuid()}"
    return {"by": f"{who} by the command line", "at": time.time()}
