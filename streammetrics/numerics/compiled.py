"""The seam by which compiled kernels are handed out without being imported.

Whoever loads the kernels says once how they are found; columns and statistics ask for one by name, when rows come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["kernel", "loaded", "use"]

Find = Callable[[str], Callable[..., Any]]

_FIND: list[Find] = []


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
