"""The command line: `streammetrics eval`, `merge`, `show`, `compare`, `power`, `catalog`, `warmup`, `selftest`, `demo`.

Mistakes of a user end in one line on stderr and exit code 2. Each command imports only the modules that it needs, as late
as possible: `show`, `merge` and `catalog` do not load numba.
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
from streammetrics.cli.messages import UsageError, format_user_error
from streammetrics.numerics import kernel_registry

__all__ = ["UsageError", "main"]

USAGE_ERROR, INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Parameters
    ----------
    arguments : sequence of str, optional
        The arguments; by default `sys.argv[1:]`.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    for name in ("stdout", "stderr"):
        # The caller closed the stream, so discard the output.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            # A terminal that cannot show ± prints a question mark, not a traceback.
            stream.reconfigure(errors="replace")
            if arguments is None and not stream.isatty():
                setattr(sys, name, _tolerate_closed_reader(stream))
    kernel_registry.set_slow_report(_announce_compilation)
    code = _run(words)
    if code == INTERRUPTED and arguments is None:
        _exit_process(code)
    sys.exit(code)


class _TolerantFile(io.FileIO):
    """Standard output whose reader may close early, such as `| head`. Further output is then discarded.

    The files that a command writes and its exit code do not change.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            # The reader has closed the pipe: there is nobody left to write to.
            _redirect_to_null(self)
            return len(data)


def _redirect_to_null(stream: Any) -> None:
    """Discard all further output of a stream."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _tolerate_closed_reader(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """Return a wrapper of a stream that raises no error if the reader of the stream closes it early."""
    stream.flush()
    try:
        number = stream.fileno()
    except OSError:  # a stream in memory has no file number
        return stream
    pipe = io.BufferedWriter(_TolerantFile(number, "wb", closefd=False))
    # `python -u` asks for unbuffered output, but this stream has a buffer: flush it after each line.
    lines = stream.line_buffering or stream.write_through
    return io.TextIOWrapper(pipe, stream.encoding, stream.errors, line_buffering=lines)


def _run(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--version"]:  # without importing typer
        return _print_version()
    try:
        from streammetrics.cli.app import run

        code = run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        # The user pressed Ctrl-C.
        return _report_interrupt()
    except ModuleNotFoundError as error:
        line = explain_missing_package(error.name, arguments)
        if line is None:
            raise
        _print_error(line)
        return USAGE_ERROR
    except Exception as error:
        line = format_user_error(error)
        if line is None:
            raise
        _print_error(line)
        try:
            sys.stdout.flush()
        # The error is reported already, and Python would report it again at exit.
        except OSError:
            _redirect_to_null(sys.stdout)
        return USAGE_ERROR
    return code


def _print_version() -> int:
    from streammetrics import __version__

    print(f"streammetrics {__version__}")
    return 0


def _announce_compilation() -> None:
    """Explain on a terminal why the command seems to hang."""
    if sys.stderr.isatty():
        _print_error("compiling for this processor; this takes up to a minute once, and is kept for later runs")


def _print_error(line: str) -> None:
    print(f"streammetrics: {line}", file=sys.stderr)


def _exit_process(code: int) -> None:
    """Run the exit handlers of Python, then exit without those of C++, in which Arrow aborts if it is reading ahead."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def _report_interrupt() -> int:
    print("streammetrics: interrupted", file=sys.stderr, flush=True)
    # A daemon thread that is still alive is compiling or waits for a disk. A normal exit would wait for it.
    if any(t.daemon and t.is_alive() for t in threading.enumerate()):
        sys.stdout.flush()
        os._exit(INTERRUPTED)
    return INTERRUPTED
