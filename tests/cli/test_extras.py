"""A command that needs an optional dependency says in one line which extra installs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import streammetrics as sm
from streammetrics.cli.app import app, serve

pytestmark = pytest.mark.cpu_limit(4)  # every test starts a process

CLI = ("click", "pyarrow", "rich", "typer")
OTHERS = (
    "anyio", "deltalake", "duckdb", "fsspec", "h11", "httptools", "jinja2", "markupsafe", "matplotlib",
    "pandas", "polars", "prometheus_client", "psycopg", "pyiceberg", "python_multipart", "scipy", "sklearn", "starlette",
    "uvicorn", "uvloop",
)  # fmt: skip
EVAL = ("--label", "click", "--score", "pctr_a")
COMMANDS = {
    "eval": ["eval", "log", *EVAL],
    "merge": ["merge", "day.smet", "-o", "both.smet"],
    "show": ["show", "day.smet"],
    "compare": ["compare", "day.smet", "other.smet"],
    "power": ["power", "day.smet", "--users", "100"],
    "catalog": ["catalog"],
    "guide": ["guide", "tour"],
    "warmup": ["warmup"],
    "selftest": ["selftest"],
    "demo": ["demo"],
    "serve": ["serve"],
    "serve token": ["serve", "token", "ranker"],
    "serve tokens": ["serve", "tokens"],
    "serve revoke": ["serve", "revoke", "ranker", "worker"],
    "serve audit": ["serve", "audit"],
    "serve backup": ["serve", "backup", "copy.db"],
    "serve check": ["serve", "check", "experiments"],
}
"""Every command, with arguments with which it runs."""

SCRIPT = """
import contextlib, io, json, sys
from importlib.machinery import PathFinder

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in sys.argv[1].split(",") else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
from streammetrics.cli import main

said = []
for arguments in json.loads(sys.argv[2]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as stop:
            code = stop.code
        except Exception as error:
            code = repr(error)
    said.append((code, err.getvalue()))
print(json.dumps(said))
"""


def run_without(packages: tuple[str, ...], commands: list[list[str]], folder: Path) -> list[tuple[object, str]]:
    """Run commands in one process in which these packages are not installed; return exit codes and what stderr got."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, ",".join(packages), json.dumps(commands)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return [(code, err) for code, err in json.loads(ran.stdout)]


def test_every_command_is_here() -> None:
    names = {str(command.name) for command in app.registered_commands} | {"serve"}
    assert names | {f"serve {command.name}" for command in serve.registered_commands} == set(COMMANDS)


def test_without_any_extra_every_command_says_what_to_install(tmp_path: Path) -> None:
    commands = [*COMMANDS.values(), ["demo", "--live"], ["--help"], []]
    for command, (code, err) in zip(commands, run_without(CLI + OTHERS, commands, tmp_path), strict=True):
        if command[:1] == ["serve"] or "--live" in command:
            expected = "the dashboard needs typer: pip install 'streammetrics[serve]'"
        else:
            expected = "the command line needs typer: pip install 'streammetrics[cli]'"
        assert (code, err) == (2, f"streammetrics: {expected}\n"), command


def test_without_any_extra_it_has_a_version(tmp_path: Path) -> None:
    assert run_without(CLI + OTHERS, [["--version"]], tmp_path) == [(0, "")]


@pytest.mark.parametrize("package", ["prometheus_client", "starlette", "uvicorn", "jinja2", "httptools"])
def test_the_dashboard_needs_every_package_of_its_extra(package: str, tmp_path: Path) -> None:
    commands = [["demo", "--live", "--seconds", "1"], ["serve", "--port", "0"]]
    expected = f"streammetrics: the dashboard needs {package}: pip install 'streammetrics[serve]'\n"
    assert run_without((package,), commands, tmp_path) == [(2, expected)] * 2


def test_with_the_command_line_alone_the_others_are_named(tmp_path: Path) -> None:
    expected = {
        ("demo", "--live"): "the dashboard needs starlette: pip install 'streammetrics[serve]'",
        ("serve",): "the dashboard needs starlette: pip install 'streammetrics[serve]'",
        ("serve", "token", "a"): "the dashboard needs starlette: pip install 'streammetrics[serve]'",
        ("serve", "tokens"): "the dashboard needs starlette: pip install 'streammetrics[serve]'",
        ("serve", "revoke", "a", "b"): "the dashboard needs starlette: pip install 'streammetrics[serve]'",
        ("show", "day.smet", "--report", "page.html"): '--report needs jinja2: pip install "streammetrics[report]"',
        ("eval", "s3://bucket/log", *EVAL): "reading this log needs fsspec: pip install 'streammetrics[remote]'",
        ("eval", "delta:table", *EVAL): "reading this log needs deltalake: pip install 'streammetrics[delta]'",
        ("eval", "iceberg:a.b", *EVAL): "reading this log needs pyiceberg: pip install 'streammetrics[iceberg]'",
        ("eval", "--sql", "select 1", *EVAL): "reading this log needs duckdb: pip install 'streammetrics[sql]'",
    }  # fmt: skip
    said = run_without(OTHERS, [list(command) for command in expected], tmp_path)
    for (command, line), (code, err) in zip(expected.items(), said, strict=True):
        assert code == 2, command
        assert err.startswith("streammetrics: "), command
        assert err.endswith(f"{line}\n"), command
        assert err.count("\n") == 1, command


def test_with_the_command_line_alone_the_other_commands_run(tmp_path: Path) -> None:
    rows = {"y_true": [0, 1] * 500, "y_score": [i / 1000 for i in range(1000)], "user": list(range(1000))}
    state = sm.Sharded([sm.CTR()], unit="user").update(rows)
    for name in ("day.smet", "other.smet"):
        sm.save(state, tmp_path / name)
        state.update(rows)
    commands = [COMMANDS[name] for name in ("merge", "show", "compare", "power", "catalog", "guide")]
    assert [code for code, _ in run_without(OTHERS, commands, tmp_path)] == [0] * len(commands)


def test_the_store_in_postgresql_needs_its_extra(tmp_path: Path) -> None:
    ((code, err),) = run_without(
        ("psycopg",), [["serve", "tokens", "--store", "postgresql://user@host/base"]], tmp_path
    )
    assert (code, err) == (2, "streammetrics: PostgreSQL needs psycopg: pip install 'streammetrics[postgres]'\n")
