"""A process beside this one that does what it is asked: what it computes, takes or breaks is not the server's."""

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
from .malloc_trim import Spare

__all__ = ["EndedError", "LateError", "WorkerProcess"]

FIRST = "500"
"""Where memory is short, the system ends such a process before it ends the server."""


class EndedError(StreamMetricsError):
    """A process ended before it had answered; another is started, which may be asked the same."""


class LateError(StreamMetricsError, TimeoutError):
    """It took longer than it may; what it would have found is lost."""


class WorkerProcess:
    """A process that is started when it is asked, and again if it died; it ends with this one.

    Parameters
    ----------
    does : str
        What it does, for messages.
    make : function
        Makes, there, the object whose methods are called: of a module, so that the other process finds it.
    *given : objects
        What `make` is given.
    nice : int
        How much it steps back behind others.

    Notes
    -----
    It does one thing at a time; who asks meanwhile waits. Any thread may ask.
    """

    def __init__(self, does: str, make: Callable[..., Any], *given: Any, nice: int = 0) -> None:
        self._does, self._begin = does, (os.getpid(), nice, make, given)
        self._child: _Child | None = None
        self._lock = threading.Lock()
        self._ending: threading.Timer | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process, if there is one."""
        child = self._child
        return None if child is None else child.process.pid

    def start(self) -> None:
        """Return once the process is there, which takes as long as importing this package does."""
        with self._lock:
            self._started()

    def ask(self, method: str, *given: Any, seconds: float | None = None) -> Any:
        """Return what a method returns; raise what it raises.

        Parameters
        ----------
        method : str
            Its name.
        *given : objects
            Its arguments.
        seconds : float, optional
            How long it may take: a process that takes longer is ended.

        Raises
        ------
        EndedError
            The process ended before it had answered.
        LateError
            It took too long.
        """
        with self._lock:
            return self._answer(self._started(), (method, given), seconds)

    def hurry(self, seconds: float) -> None:
        """End the process in so many seconds, whatever it does then, unless it is closed before."""
        self._ending = threading.Timer(seconds, self.end)
        self._ending.daemon = True
        self._ending.start()

    def close(self, method: str) -> None:
        """Call a method of a process that is there, as the last one, and end it."""
        with self._lock:
            if self._child is not None:
                try:
                    with suppress(EndedError):
                        self._answer(self._child, (method, ()), None)
                finally:
                    self._drop()
            if self._ending is not None:
                self._ending.cancel()

    def end(self) -> None:
        """End the process, whatever it does."""
        if (child := self._child) is not None:
            child.process.kill()  # who holds the lock waits for it
        with self._lock:
            self._drop()

    def _started(self) -> _Child:
        if self._child is not None and not self._child.process.is_alive():
            self._drop()
        if self._child is None:
            self._child = _Child(*self._begin)
            self._answer(self._child, None, None)
        assert self._child is not None
        return self._child

    def _answer(self, child: _Child, question: Any, seconds: float | None) -> Any:
        try:
            fine, found = child.answer(question, seconds)
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            self._drop()
            raise EndedError(f"the process that {self._does} has ended; another is started") from error
        except BaseException:  # what it would answer later is of no question any more
            self._drop()
            raise
        if not fine:
            if question is None:
                self._drop()
            raise found
        return found

    def _drop(self) -> None:
        if self._child is not None:
            self._child.end()
        self._child = None


class _Child:
    """A process, and the pipe to it."""

    def __init__(self, *begin: Any) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, *begin), daemon=True)
        atexit.register(self.process.kill)  # else this one would wait for it, which ignores that it is to end
        self.process.start()
        theirs.close()  # so that the pipe ends with the process

    def answer(self, question: Any, seconds: float | None) -> Any:
        """What it answers; without a question, whether it is there."""
        if question is not None:
            self.pipe.send(question)
        if not self.pipe.poll(seconds):
            raise LateError(f"it took longer than {seconds:g} s")
        return self.pipe.recv()

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.join()
        atexit.unregister(self.process.kill)
        self.pipe.close()


# -- in the other process ------------------------------------------------------------------------------------------------


def _work(pipe: Connection, parent: int, nice: int, make: Callable[..., Any], given: Any) -> None:
    """Answer until the server is gone. Who is asked to stop is the server, and it ends this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(nice)
    with suppress(OSError):  # there is none of it on other systems
        Path("/proc/self/oom_score_adj").write_text(FIRST)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        fine, made = _tried(make, given)
        pipe.send((fine, None if fine else made))
        spare = Spare()
        while fine:
            method, asked = pipe.recv()
            pipe.send(_tried(getattr(made, method), asked))
            del method, asked
            spare.give_back()


def _watch(parent: int) -> None:
    """End with the server, which may be killed while this computes."""
    while os.getppid() == parent:
        threading.Event().wait(1.0)
    os._exit(1)


def _tried(call: Callable[..., Any], given: Any) -> tuple[bool, Any]:
    """Whether a call went well, and what it returned or raised."""
    try:
        return True, call(*given)
    except Exception as error:  # noqa: BLE001 - who asked is told
        error.add_note("".join(traceback.format_exception(error)))
        return False, _portable(error)


def _portable(error: Exception) -> Exception:
    """The error, or its words where it is one that does not come through a pipe."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - of any kind: it is what somebody else's class does
        return StreamMetricsError(f"{type(error).__name__}: {error}")
    return error
