"""What no signal divides: handlers run in the main thread alone, between instructions of Python."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from operator import call
from typing import Any, TypeVar

__all__ = ["at_once", "holding", "in_thread", "undivided"]

T = TypeVar("T")


def at_once(steps: Sequence[Callable[[], Any]]) -> None:
    """Take some steps, none of which is Python: handlers of signals run between its instructions, not inside one call."""
    deque(map(call, steps), maxlen=0)


def holding(locks: Sequence[threading.Lock], act: Callable[[], T]) -> T:
    """Return what a call returns that is made while all these locks are held.

    Not a context manager of Python: between its instructions a Ctrl-C would leave locks held.
    """
    held: list[Callable[[], Any]] = []
    let_go = map(call, held)  # of what is held by then
    try:
        for lock in locks:
            at_once([lock.acquire, partial(held.append, lock.release)])
        return act()
    finally:
        deque(let_go, 0)  # the first call of this block: nothing can come before it


def in_thread(act: Callable[[], T], doing: str, daemon: bool = False) -> tuple[Future[T], threading.Thread]:
    """Start a call in a thread of its own; return what it will return or raise, and the thread."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(act())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            done.set_exception(error)

    thread = threading.Thread(target=run, daemon=daemon, name=f"streammetrics: {doing}")
    thread.start()
    return done, thread


def undivided(act: Callable[[], T]) -> T:
    """Return what a call of Python returns, which is made in a thread where no handler of signals runs.

    For what may not be left half done, as numba's imports and compilations. A Ctrl-C is raised at once; the call then
    goes on by itself, and has to hold the locks that keep others from it.
    """
    if threading.current_thread() is not threading.main_thread():
        return act()
    try:
        done, _ = in_thread(act, "undivided")
    except RuntimeError:  # there are no more threads, or the interpreter ends
        return act()
    return done.result()
