"""The command line: `streammetrics eval`, `merge`, `show`, `compare`, `power`, `catalog`, `warmup`, `selftest`, `demo`.

What a user can do wrong ends in one line on stderr and exit code 2. Imports are as late as they can be: `show`, `merge`
and `catalog` load no numba, and what a command does not need it does not load.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

from streammetrics.cli.extras import explain_missing_package
from streammetrics.cli.messages import UsageError, explain
from streammetrics.numerics import kernel_registry as compiled

__all__ = ["UsageError", "main"]

USAGE, INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of those of the process.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who called: what is said is heard by nobody
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± gets a question mark, not a traceback
            if arguments is None and not stream.isatty():
                setattr(sys, name, _forgiving(stream))
    compiled.when_slow(_say_compiling)
    code = _run(given)
    if code == INTERRUPTED and arguments is None:
        _leave(code)
    sys.exit(code)


class _Pipe(io.FileIO):
    """A stream whose reader may go, as `| head` does that has read enough: what is said then is heard by nobody.

    All else that a command does, its files and its exit code, stays as it is.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:  # from now on nothing is told that it is
            _silence(self)
            return len(data)


def _silence(stream: Any) -> None:
    """Send nowhere what a stream is given from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _forgiving(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """The same stream, which does not mind if nobody reads it any more."""
    stream.flush()
    try:
        number = stream.fileno()
    except OSError:  # of one that is held in memory nobody is the reader
        return stream
    pipe = io.BufferedWriter(_Pipe(number, "wb", closefd=False))
    lines = stream.line_buffering or stream.write_through  # of `python -u`, where the buffer is ours
    return io.TextIOWrapper(pipe, stream.encoding, stream.errors, line_buffering=lines)


def _run(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--version"]:  # without even typer
        return _print_version()
    try:
        from streammetrics.cli.app import run

        code = run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:  # asked for, and no error
        return _interrupted()
    except ModuleNotFoundError as error:
        line = explain_missing_package(error.name, arguments)
        if line is None:
            raise
        _complain(line)
        return USAGE
    except Exception as error:
        line = explain(error)
        if line is None:
            raise
        _complain(line)
        try:
            sys.stdout.flush()
        except OSError:  # what could not be written was said; Python would say it again
            _silence(sys.stdout)
        return USAGE
    return code


def _print_version() -> int:
    from streammetrics import __version__

    print(f"streammetrics {__version__}")
    return 0


def _say_compiling() -> None:
    """Tell whoever watches a terminal why nothing happens."""
    if sys.stderr.isatty():
        _complain("compiling for this processor; this takes up to a minute once, and is kept for later runs")


def _complain(line: str) -> None:
    print(f"streammetrics: {line}", file=sys.stderr)


def _leave(code: int) -> None:
    """End the process with what Python tidies, and without what C++ does: Arrow aborts if it was reading ahead."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def _interrupted() -> int:
    print("streammetrics: interrupted", file=sys.stderr, flush=True)
    if any(t.daemon and t.is_alive() for t in threading.enumerate()):  # stuck in a compilation, or on a dead disk
        sys.stdout.flush()
        os._exit(INTERRUPTED)
    return INTERRUPTED
