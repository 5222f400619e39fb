"""A real PostgreSQL, where its programs are found, and stores in both databases."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streammetrics.serve.api.decoder import DecoderService, ThreadDecoder
from streammetrics.serve.api.reader_process import DecoderProcess
from streammetrics.serve.store import Store, open_store

FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(shutil.which("initdb") or "none")]
OTHERS = ("postgres", "nobody")
"""Who runs it where we are root, as which it refuses to."""


class PostgreSQLServer:
    """A server on a socket in a folder of its own."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="smet-", dir="/tmp"))  # the path of a socket must be short
        self.as_whom: dict[str, Any] = {}
        if os.geteuid() == 0:
            names = [user.pw_name for user in pwd.getpwall()]
            user = next(name for name in OTHERS if name in names)
            self.as_whom = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
            shutil.chown(self.folder, user)
        self._names = itertools.count()
        self.run("initdb", "-D", "data", "-U", "tester", "--auth=trust", "--no-sync", "--encoding=UTF8")
        self.start()

    def run(self, program: str, *arguments: str) -> None:
        with (self.folder / "said").open("ab") as said:  # not a pipe, which the server would hold open
            subprocess.run(
                [self.programs / program, *arguments],
                cwd=self.folder,
                check=True,
                stdout=said,
                stderr=said,
                **self.as_whom,
            )

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off -c max_connections=50"
        self.run("pg_ctl", "-D", "data", "-w", "-o", options, "-l", "log", "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; "immediate" is what a crash does."""
        self.run("pg_ctl", "-D", "data", "-w", "-m", mode, "stop")

    def fresh(self) -> str:
        """The URL of a database of its own."""
        name = f"d{next(self._names)}"
        self.run("createdb", "-h", str(self.folder), "-U", "tester", name)
        return f"postgresql://tester@/{name}?host={self.folder}"


@pytest.fixture(scope="session")
def postgres_programs() -> Path:
    if not FOUND[-1].exists():
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    pytest.importorskip("psycopg")
    return FOUND[-1].parent


@pytest.fixture(scope="session")
def postgres(postgres_programs: Path) -> Iterator[PostgreSQLServer]:
    server = PostgreSQLServer(postgres_programs)
    yield server
    server.stop()
    shutil.rmtree(server.folder)


@pytest.fixture(params=["sqlite", "postgres"])
def fresh_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Return URLs of stores that are not there yet."""
    if request.param == "postgres":
        fresh: Callable[[], str] = request.getfixturevalue("postgres").fresh
        return fresh
    numbers = itertools.count()
    return lambda: f"sqlite:///{tmp_path}/store-{next(numbers)}.db"


@pytest.fixture
def url(fresh_url: Callable[[], str]) -> str:
    return fresh_url()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


class Lent(DecoderProcess):
    """A process that takes a second to start, and is not ended before all tests are."""

    def close(self) -> None:
        self.forget_plans(["rank"])


@pytest.fixture(scope="session")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DecoderProcess]:
    decoder = Lent(str(tmp_path_factory.mktemp("lent") / "a.db"))
    yield decoder
    decoder.worker.end()


@pytest.fixture(params=["thread", "process"])
def decoder_of(request: pytest.FixtureRequest) -> Callable[[Any], DecoderService]:
    """Return who decodes for a store; the process knows nothing of what stores in memory have."""
    if request.param == "thread":
        return ThreadDecoder
    decoder: DecoderProcess = request.getfixturevalue("lent")
    return lambda store: decoder
