"""The registry that gives access to compiled kernels without importing numba.

A kernel is a function that numba compiles. The package that loads kernels registers a function that finds them by name.
Other modules call `find_kernel` when the first rows arrive, so that importing the library does not import numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["find_kernel", "has_kernels", "has_slow_report", "report_slow", "set_kernel_finder", "set_slow_report"]

Find = Callable[[str], Callable[..., Any]]

_FIND: list[Find] = []
_REPORTS: list[Callable[[], None]] = []


def set_kernel_finder(find: Find) -> None:
    """Set the function that finds a kernel by name. The module that loads kernels calls `set_kernel_finder` once.

    Parameters
    ----------
    find : callable
        A function that takes a name of the form "module:function" and returns the kernel.
    """
    _FIND[:] = [find]


def find_kernel(name: str) -> Callable[..., Any]:
    """Return a compiled kernel.

    Parameters
    ----------
    name : str
        The module and the function of the kernel, such as "keys:encode_ints".

    Raises
    ------
    LookupError
        If no kernel finder has been set.
    """
    if not _FIND:
        raise LookupError(f"the kernel {name!r} is not loaded; call `set_kernel_finder` first")
    return _FIND[0](name)


def has_kernels() -> bool:
    """Return whether `set_kernel_finder` has been called, so that `find_kernel` works."""
    return bool(_FIND)


def set_slow_report(report: Callable[[], None]) -> None:
    """Set a function that tells the user about slow compilation.

    The function is called once, when the process has spent more than a second compiling kernels.

    Parameters
    ----------
    report : callable
        A function without arguments, for example one that prints a message. It runs in another thread while the
        compilation continues.
    """
    _REPORTS[:] = [report]


def has_slow_report() -> bool:
    """Return whether `set_slow_report` has set a function that has not been called yet."""
    return bool(_REPORTS)


def report_slow() -> None:
    """Call the function that `set_slow_report` has set, unless it has been called before."""
    while _REPORTS:
        _REPORTS.pop()()
