"""Record which test reaches which changed line.

The study inserts calls of `hit` before the lines that it will change, and calls `watch_kernels` when the package is
imported. Compiled code cannot call Python, so a line of compiled code counts as reached whenever one of the kernels that
contain it runs. This module is imported by every process that a test starts: it imports no more than it needs.
"""

from __future__ import annotations

import json
import os
from typing import Any

_FILE = os.environ.get("MUTATION_HITS")
_SEEN: set[tuple[int, str]] = set()


def hit(*numbers: int) -> None:
    """Note that the test that runs now reaches these mutants; "?" stands for code outside tests, such as imports."""
    if _FILE is None:
        return
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0] or "?"
    for number in numbers:
        if (number, test) not in _SEEN:
            _SEEN.add((number, test))
            with open(_FILE, "a") as file:
                file.write(f"{number}\t{test}\n")


def watch_kernels() -> None:
    """Let kernels call `hit`, by the numbers that MUTATION_KERNELS has for "module:function"."""
    if _FILE is None:
        return
    with open(os.environ["MUTATION_KERNELS"]) as file:
        numbers = json.load(file)
    if not numbers:
        return
    from streammetrics.kernels._jit import Kernel

    def of(kernel: Any) -> list[int]:
        return numbers.get(f"{kernel.function.__module__.rpartition('.')[2]}:{kernel.function.__name__}", [])

    entry, call = Kernel.find_entry_point, Kernel.__call__

    def watched_entry(self: Any, *like: Any) -> Any:
        found, mine = entry(self, *like), of(self)
        if not mine:
            return found

        def run(*arguments: Any) -> Any:
            hit(*mine)
            return found(*arguments)

        return run

    def watched_call(self: Any, *arguments: Any) -> Any:
        hit(*of(self))
        return call(self, *arguments)

    Kernel.find_entry_point, Kernel.__call__ = watched_entry, watched_call
