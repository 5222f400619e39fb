"""The seam by which compiled kernels are handed out without being imported.

Whoever loads the kernels says once how they are found; columns and statistics ask for one by name, when rows come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["kernel", "loaded", "report_slow", "reports_slow", "use", "when_slow"]

Find = Callable[[str], Callable[..., Any]]

_FIND: list[Find] = []
_REPORTS: list[Callable[[], None]] = []


def use(find: Find) -> None:
    """Say how a kernel is found by its name; called once, by whoever loads the kernels.

    Parameters
    ----------
    find : callable
        Takes "module:function" and returns the kernel.
    """
    _FIND[:] = [find]


def kernel(name: str) -> Callable[..., Any]:
    """Return a compiled kernel.

    Parameters
    ----------
    name : str
        Its module and its function, such as "keys:number_ints".

    Raises
    ------
    LookupError
        Nobody has said how kernels are found.
    """
    if not _FIND:
        raise LookupError(f"no kernels are loaded, so there is no {name!r}: `compiled.use` says how they are found")
    return _FIND[0](name)


def loaded() -> bool:
    """Whether somebody has said how kernels are found."""
    return bool(_FIND)


def when_slow(report: Callable[[], None]) -> None:
    """Set what is called, once, when a process has compiled kernels for more than a second.

    Parameters
    ----------
    report : callable
        Prints a message, for example. It runs in another thread while the compilation continues.
    """
    _REPORTS[:] = [report]


def reports_slow() -> bool:
    """Return whether `report_slow` has something to call."""
    return bool(_REPORTS)


def report_slow() -> None:
    """Call what `when_slow` has set, if it has not been called yet."""
    while _REPORTS:
        _REPORTS.pop()()
