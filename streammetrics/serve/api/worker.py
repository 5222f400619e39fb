"""Run method calls in a worker process, so that their time, memory and crashes do not affect the server."""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ...errors import StreamMetricsError
from .malloc_trim import MallocTrimmer

__all__ = ["EndedError", "LateError", "WorkerProcess"]

OOM_SCORE = "500"
"""The out-of-memory score adjustment of workers. If memory is short, the kernel kills a worker before the server."""


class EndedError(StreamMetricsError):
    """An error raised if the process ended before it returned a result. Repeating the call starts a new process."""


class LateError(StreamMetricsError, TimeoutError):
    """An error raised if a call took longer than its time limit. The result of the call is lost."""


class WorkerProcess:
    """A worker process that calls the methods of an object.

    The process starts at the first call, is restarted if it has died, and ends when its parent process ends.

    Parameters
    ----------
    task : str
        A verb phrase for messages, such as "decodes".
    make : callable
        Builds, in the worker process, the object whose methods are called. The callable must be importable there.
    *args : objects
        The arguments of `make`.
    nice : int
        The niceness of the process.

    Notes
    -----
    Methods can be called from any thread. The worker runs one call at a time; other callers wait for the lock.
    """

    def __init__(self, task: str, make: Callable[..., Any], *args: Any, nice: int = 0) -> None:
        self._task, self._child_arguments = task, (os.getpid(), nice, make, args)
        self._child: _Child | None = None
        self._lock = threading.Lock()
        self._kill_timer: threading.Timer | None = None

    @property
    def pid(self) -> int | None:
        """The ID of the process; None if it is not running."""
        child = self._child
        return None if child is None else child.process.pid

    def start(self) -> None:
        """Start the process and wait until it is ready, which takes about as long as importing this package."""
        with self._lock:
            self._ensure_started()

    def call(self, method: str, *args: Any, seconds: float | None = None) -> Any:
        """Call a method of the worker's object. Return the result of the method, or raise its error.

        Parameters
        ----------
        method : str
            The name of the method.
        *args : objects
            The arguments of the method.
        seconds : float, optional
            The time limit; a process that takes longer is killed.

        Raises
        ------
        EndedError
            The process ended before it returned.
        LateError
            The call took too long.
        """
        with self._lock:
            return self._exchange(self._ensure_started(), (method, args), seconds)

    def end_after(self, seconds: float) -> None:
        """Kill the process after the given number of seconds, unless `close` is called earlier."""
        self._kill_timer = threading.Timer(seconds, self.end)
        self._kill_timer.daemon = True
        self._kill_timer.start()

    def close(self, method: str) -> None:
        """Call one more method of the object, such as "close", and then end the process.

        Do nothing if the process is not running.
        """
        with self._lock:
            if self._child is not None:
                try:
                    with suppress(EndedError):
                        self._exchange(self._child, (method, ()), None)
                finally:
                    self._discard_child()
            if self._kill_timer is not None:
                self._kill_timer.cancel()

    def end(self) -> None:
        """Kill the process, even during a call."""
        if (child := self._child) is not None:
            # Another thread may hold the lock while it waits for an answer from the process. Once the process is
            # killed, that thread's call raises EndedError and releases the lock.
            child.process.kill()
        with self._lock:
            self._discard_child()

    def _ensure_started(self) -> _Child:
        if self._child is not None and not self._child.process.is_alive():
            self._discard_child()
        if self._child is None:
            self._child = _Child(*self._child_arguments)
            self._exchange(self._child, None, None)
        assert self._child is not None
        return self._child

    def _exchange(self, child: _Child, question: Any, seconds: float | None) -> Any:
        try:
            succeeded, result = child.exchange(question, seconds)
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            self._discard_child()
            raise EndedError(
                f"the process that {self._task} has ended unexpectedly; a new process is started"
            ) from error
        # After a timeout or an interrupt, the process may still send its answer. End the process; otherwise, the next
        # call would mistake the late answer for its own.
        except BaseException:
            self._discard_child()
            raise
        if not succeeded:
            if question is None:
                self._discard_child()
            raise result
        return result

    def _discard_child(self) -> None:
        if self._child is not None:
            self._child.end()
        self._child = None


class _Child:
    """A running worker process, and the pipe through which it receives calls and returns results."""

    def __init__(self, *begin: Any) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve_calls, args=(theirs, *begin), daemon=True)
        # When Python exits, multiprocessing sends SIGTERM to its children and waits for them. The worker ignores
        # SIGTERM, so it must be killed, or the exit would hang.
        atexit.register(self.process.kill)
        self.process.start()
        # Close this process's copy of the worker's end of the pipe. Otherwise, `recv` would not raise EOFError when the
        # worker dies.
        theirs.close()

    def exchange(self, question: Any, seconds: float | None) -> Any:
        """Send a call to the process and return its answer; raise LateError if it takes longer than `seconds`.

        `question` is a pair: a method name and its arguments. If it is None, send nothing, and return the first message
        of the process, which says whether it is ready.
        """
        if question is not None:
            self.pipe.send(question)
        if not self.pipe.poll(seconds):
            raise LateError(f"the call took longer than {seconds:g} s")
        return self.pipe.recv()

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()
        atexit.unregister(self.process.kill)
        self.pipe.close()


# -- in the other process ----------------------------------------------------------------------------------------------


def _serve_calls(pipe: Connection, parent: int, nice: int, make: Callable[..., Any], args: Any) -> None:
    """Serve the calls that arrive through the pipe, until the server ends.

    The calls are method calls on `make(*args)`; `parent` is the process ID of the server. The worker process ignores
    Ctrl-C and SIGTERM: the server handles these signals and ends the worker.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(nice)
    # With this setting, Linux kills this process rather than the server if memory runs out. The file does not exist on
    # other systems, so errors are ignored.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        succeeded, target = _try_call(make, args)
        pipe.send((succeeded, None if succeeded else target))
        trimmer = MallocTrimmer()
        while succeeded:
            method, method_args = pipe.recv()
            pipe.send(_try_call(getattr(target, method), method_args))
            del method, method_args
            trimmer.trim()


def _exit_with_parent(parent: int) -> None:
    """Wait until the parent process has ended, and then end this process, even during a call."""
    while os.getppid() == parent:
        threading.Event().wait(1.0)
    os._exit(1)


def _try_call(call: Callable[..., Any], args: Any) -> tuple[bool, Any]:
    """Call a function. Return True and its result, or False and the error that it raised."""
    try:
        return True, call(*args)
    except Exception as error:  # noqa: BLE001 - the caller gets the error
        error.add_note("".join(traceback.format_exception(error)))
        return False, _make_picklable(error)


def _make_picklable(error: Exception) -> Exception:
    """Return the error itself if it can be pickled, otherwise a StreamMetricsError with its message."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - pickling runs code of any class
        return StreamMetricsError(f"{type(error).__name__}: {error}")
    return error
