"""The registry that gives access to compiled kernels without importing numba.

The package that loads kernels registers a finder; columns and statistics ask for a kernel by name when rows arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["find_kernel", "has_kernels", "has_slow_report", "report_slow", "set_kernel_finder", "set_slow_report"]

Find = Callable[[str], Callable[..., Any]]

_FIND: list[Find] = []
_REPORTS: list[Callable[[], None]] = []


def set_kernel_finder(find: Find) -> None:
    """Set the function that finds a kernel by name; called once, by the module that loads kernels.

    Parameters
    ----------
    find : callable
        Takes "module:function" and returns the kernel.
    """
    _FIND[:] = [find]


def find_kernel(name: str) -> Callable[..., Any]:
    """Return a compiled kernel.

    Parameters
    ----------
    name : str
        Its module and its function, such as "keys:encode_ints".

    Raises
    ------
    LookupError
        If no kernel finder has been set.
    """
    if not _FIND:
        raise LookupError(f"no kernels are loaded, so there is no {name!r}: call `set_kernel_finder` first")
    return _FIND[0](name)


def has_kernels() -> bool:
    """Return whether `set_kernel_finder` has been called, so that `find_kernel` works."""
    return bool(_FIND)


def set_slow_report(report: Callable[[], None]) -> None:
    """Set the function to call, once, when a process has compiled kernels for more than a second.

    Parameters
    ----------
    report : callable
        Prints a message, for example. It runs in another thread while the compilation continues.
    """
    _REPORTS[:] = [report]


def has_slow_report() -> bool:
    """Return whether `set_slow_report` has set a function that `report_slow` has not called yet."""
    return bool(_REPORTS)


def report_slow() -> None:
    """Call the function of `set_slow_report`, if it has not been called yet."""
    while _REPORTS:
        _REPORTS.pop()()
