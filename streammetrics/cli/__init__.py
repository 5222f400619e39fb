"""The command line: `streammetrics eval`, `merge`, `show`, `compare`, `power`, `catalog`, `serve` and other commands.

User errors produce one line on stderr and exit code 2. Each command imports only the modules that it needs, as late
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
        # The stream is None if the caller closed it. Replace it, so that the output is discarded without an error.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            # If the terminal cannot show a character such as ±, print a question mark rather than raise an error.
            stream.reconfigure(errors="replace")
            if arguments is None and not stream.isatty():
                setattr(sys, name, _tolerate_closed_reader(stream))
    kernel_registry.set_slow_report(_announce_compilation)
    code = _run(words)
    if code == INTERRUPTED and arguments is None:
        _exit_process(code)
    sys.exit(code)


class _TolerantFile(io.FileIO):
    """An output stream whose reader, such as `head`, may close it early. Any further output is then discarded.

    Closing the stream affects neither the files that a command writes nor the exit code of the command.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            # The reader has closed the pipe, so discard the rest of the output.
            _redirect_to_null(self)
            return len(data)


def _redirect_to_null(stream: Any) -> None:
    """Discard all further output of a stream."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _tolerate_closed_reader(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """Wrap a stream so that writing to it raises no error if the reader closes it early."""
    stream.flush()
    try:
        number = stream.fileno()
    # An in-memory stream has no file descriptor. Return it unchanged, because it has no reader that could close it.
    except OSError:
        return stream
    pipe = io.BufferedWriter(_TolerantFile(number, "wb", closefd=False))
    # With `python -u`, the user wants unbuffered output. The new stream has a buffer, so flush it after each line.
    lines = stream.line_buffering or stream.write_through
    return io.TextIOWrapper(pipe, stream.encoding, stream.errors, line_buffering=lines)


def _run(arguments: Sequence[str]) -> int:
    # Importing typer is slow, and unnecessary for printing the version.
    if list(arguments) == ["--version"]:
        return _print_version()
    try:
        from streammetrics.cli.app import run

        code = run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        # The user pressed Ctrl-C. Print a short message instead of a traceback.
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
        # If flushing fails, discard the output. Otherwise Python would flush it again at exit and report the failure.
        except OSError:
            _redirect_to_null(sys.stdout)
        return USAGE_ERROR
    return code


def _print_version() -> int:
    from streammetrics import __version__

    print(f"streammetrics {__version__}")
    return 0


def _announce_compilation() -> None:
    """Tell a user at a terminal that kernels are being compiled, which explains why the command seems to hang."""
    if sys.stderr.isatty():
        _print_error("compiling the kernels for this processor, which takes up to a minute; later runs start faster")


def _print_error(line: str) -> None:
    print(f"streammetrics: {line}", file=sys.stderr)


def _exit_process(code: int) -> None:
    """Run Python's exit handlers, skip those of C++ libraries, and end the process.

    Arrow's C++ exit handlers would abort the process if an Arrow thread were still reading ahead.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def _report_interrupt() -> int:
    print("streammetrics: interrupted", file=sys.stderr, flush=True)
    # A daemon thread that is still alive may be running a kernel or reading a file. A normal exit could then crash, so
    # end the process immediately.
    if any(t.daemon and t.is_alive() for t in threading.enumerate()):
        sys.stdout.flush()
        os._exit(INTERRUPTED)
    return INTERRUPTED
