"""Calls that signal handlers cannot interrupt, because handlers run only between bytecodes, in the main thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from operator import call
from typing import Any, TypeVar

__all__ = ["run_uninterrupted", "run_with_locks", "run_without_interrupt", "start_in_thread"]

T = TypeVar("T")


def run_without_interrupt(steps: Sequence[Callable[[], Any]]) -> None:
    """Call functions that are implemented in C, one after the other, without a signal handler in between.

    All calls are made within one call into C, and handlers only run between bytecode instructions.
    """
    deque(map(call, steps), maxlen=0)


def run_with_locks(locks: Sequence[threading.Lock], function: Callable[[], T]) -> T:
    """Call a function with all these locks acquired, and return its result.

    A Python context manager would be unsafe: a Ctrl-C between its instructions would leave locks acquired.
    """
    releases: list[Callable[[], Any]] = []
    release_all = map(call, releases)  # a lazy iterator: consuming it releases the acquired locks
    try:
        # The release of a lock is recorded in the same call into C that acquires it.
        for lock in locks:
            run_without_interrupt([lock.acquire, partial(releases.append, lock.release)])
        return function()
    finally:
        # This is the first call of the block, so that no signal handler can run before it.
        deque(release_all, 0)


def start_in_thread(
    function: Callable[[], T], purpose: str, daemon: bool = False
) -> tuple[Future[T], threading.Thread]:
    """Start a call in a new thread; return a future of its result, and the thread."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised again by future.result()
            future.set_exception(error)

    thread = threading.Thread(target=run, daemon=daemon, name=f"streammetrics: {purpose}")
    thread.start()
    return future, thread


def run_uninterrupted(function: Callable[[], T]) -> T:
    """Call a function in another thread, where no signal handler runs, and return its result.

    For work that must not stop halfway, such as imports and compilations of numba. A Ctrl-C is still raised at once in the
    main thread; the function then continues in the background, and has to hold the locks that protect its work.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    try:
        future, _ = start_in_thread(function, "uninterrupted")
    except RuntimeError:  # no thread can be started, or the interpreter shuts down
        return function()
    return future.result()
