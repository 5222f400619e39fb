"""Calls that a signal handler (such as the one for Ctrl-C) cannot interrupt.

Python runs signal handlers only in the main thread, between two bytecode instructions. A single call to a C function,
or a call in another thread, is therefore not interrupted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from operator import call
from queue import SimpleQueue
from typing import Any, TypeVar

__all__ = ["run_uninterrupted", "run_with_locks", "run_without_interrupt", "start_in_thread"]

T = TypeVar("T")


def run_without_interrupt(steps: Sequence[Callable[[], Any]]) -> None:
    """Call functions one after another, without letting a signal handler run between them.

    The functions must be implemented in C. They are all called within a single call to a C function.
    """
    deque(map(call, steps), maxlen=0)


def run_with_locks(locks: Sequence[threading.Lock], function: Callable[[], T]) -> T:
    """Acquire all locks, call a function, release the locks, and return the result of the function.

    A context manager would be unsafe: a Ctrl-C in its Python code could leave locks acquired.
    """
    releases: list[Callable[[], Any]] = []
    # The iterator is lazy: it calls the release functions only when the `finally` block consumes it.
    release_all = map(call, releases)
    try:
        # Acquire each lock and record its release without interruption, so that no acquired lock is left unrecorded.
        for lock in locks:
            run_without_interrupt([lock.acquire, partial(releases.append, lock.release)])
        return function()
    finally:
        # A signal handler could interrupt Python code in this block, so a single call to a C function releases all
        # locks.
        deque(release_all, 0)


def start_in_thread(
    function: Callable[[], T], purpose: str, daemon: bool = False, when_done: Callable[[], Any] = lambda: None
) -> tuple[Future[T], threading.Thread]:
    """Call a function in a new thread; return a future for its result, and the thread.

    `purpose` becomes part of the name of the thread. A `daemon` thread does not keep the process from exiting. The new
    thread calls `when_done` once the future is done.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised again by future.result()
            future.set_exception(error)
        when_done()

    thread = threading.Thread(target=run, daemon=daemon, name=f"streammetrics: {purpose}")
    thread.start()
    return future, thread


def run_uninterrupted(function: Callable[[], T]) -> T:
    """Call a function in another thread, where no signal handler runs, and return its result.

    Use it for work that must not stop halfway, such as importing numba and compiling kernels. A Ctrl-C still raises
    KeyboardInterrupt in the main thread immediately. The function then continues in the background, so it must itself
    hold the locks that protect its work.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    # The main thread waits in a single call to a C function. If it waited in `Future.result`, a Ctrl-C in the Python code
    # of that method could leave the lock of the future acquired.
    finished: SimpleQueue[None] = SimpleQueue()
    try:
        future, _ = start_in_thread(function, "uninterrupted", when_done=partial(finished.put, None))
    except RuntimeError as error:
        # If a signal handler raises an exception while Python waits for the thread to start, Python can release a lock
        # that is not acquired, which replaces the exception by a RuntimeError. The thread then runs the function.
        if "new thread" not in str(error):
            raise (error.__context__ or error) from None
        # No thread can be started, for example because the interpreter is shutting down, so call the function here.
        return function()
    finished.get()
    return future.result()
