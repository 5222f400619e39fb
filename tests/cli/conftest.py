from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streammetrics.cli import main
from streammetrics.io.demo import write_demo_log

ROWS = 30_000


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)["values"]
        return found

    @property
    def verdicts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)["verdicts"]
        return found

    @property
    def comparisons(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)["comparisons"]
        return found

    @property
    def users(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)["users"]
        return found

    @property
    def values(self) -> dict[str, Any]:
        """The values of all rows by metric."""
        return {r["metric"]: r["value"] for r in self.records if not r["by"]}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run a command in this process."""

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        code = stop.value.code
        assert isinstance(code, int)
        return Ran(code, out, err)

    return call


@pytest.fixture
def fails(run: Callable[..., Ran]) -> Callable[..., str]:
    """Run a command that a user got wrong; return its one line."""

    def call(*arguments: object) -> str:
        ran = run(*arguments)
        assert ran.code == 2
        assert ran.out == ""
        assert ran.err.startswith("streammetrics: ")
        assert ran.err.count("\n") == 1
        return ran.err.removeprefix("streammetrics: ").strip()

    return call


@pytest.fixture
def in_process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python code in a process of its own."""

    def call(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    return call


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A click log of seven files: so many parts for threads to share."""
    folder = tmp_path_factory.mktemp("logs") / "log"
    write_demo_log(folder, ROWS)
    return folder


@pytest.fixture(scope="session")
def table(log: Path) -> pa.Table:
    return pq.read_table(log)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write columns as a log."""

    def make(name: str = "log.parquet", **columns: Any) -> Path:
        path = tmp_path / name
        pq.write_table(pa.table(columns), path)
        return path

    return make
