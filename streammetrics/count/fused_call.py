"""The commit: a single call that runs all kernels of a batch, so that a batch is counted in full or not at all.

Two things could leave a batch half counted: an invalid value, and an exception raised by a signal handler (on Ctrl-C).
Python runs signal handlers between bytecode instructions, never inside a call into C. The commit is therefore a single
call into C: `next(filter(None, starmap(call, steps)), 0)` calls one compiled kernel after another and stops at the
first that returns something other than 0. A kernel that finds an invalid value returns 1. Only the kernels that check
columns and the first kernel that counts rows can return 1, so no counts have changed at that point.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap
from operator import call
from typing import Any, NamedTuple

from ..kernels._jit import Kernel
from ..numerics import kernel_registry
from ..numerics.signal_safety import run_uninterrupted

__all__ = ["ColumnArgument", "build_commit", "build_deferred_calls", "import_kernel", "specialize_kernel"]


class ColumnArgument(NamedTuple):
    """A placeholder for a column of the batch among the arguments of a kernel.

    `position` is the index of the column among the columns that are passed to the commit.
    """

    position: int


@functools.cache
def import_kernel(name: str) -> Callable[..., Any]:
    """Import the module of a kernel, and return the kernel.

    Kernels of this package have names such as "score_sums:sum_scores". Kernels of other packages have full names, such
    as "acme.kernels:count".
    """
    module, _, function_name = name.partition(":")
    path = module if "." in module else f"streammetrics.kernels.{module}"
    # A Ctrl-C during an import in the main thread can leave Python's import lock held, and later imports in other
    # threads would then wait forever.
    loaded = run_uninterrupted(partial(importlib.import_module, path))
    kernel: Callable[..., Any] = getattr(loaded, function_name)
    return kernel


def specialize_kernel(name: str, arguments: Sequence[Any], columns: Sequence[Any]) -> Callable[..., Any]:
    """Return the machine code of a kernel for arguments of these types.

    `columns` contains an array for each column: array i replaces each `ColumnArgument` with position i. Only the types
    of these arrays matter.
    """
    kernel = import_kernel(name)
    if not isinstance(kernel, Kernel):
        return kernel
    return kernel.find_entry_point(*(columns[a.position] if isinstance(a, ColumnArgument) else a for a in arguments))


@functools.cache
def _build_caller(picks: tuple[tuple[int, ...], ...], columns: int) -> Callable[..., Callable[..., int]]:
    """Return a function that takes kernels and constants, and returns a function that calls the kernels with columns.

    Parameters
    ----------
    picks : tuple of tuple of int
        For each argument of each kernel, the index of the column to pass, or -1 to pass the next constant.
    columns : int
        The number of columns.
    """
    # The source of the function, for one kernel k0 with the columns c0 and c1 and the constant h0_1, is
    # `lambda k0, h0_1: lambda c0, c1: k0(c0, h0_1, c1)`. For several kernels, `next` makes one call after another. A
    # Python loop over the kernels would be slower, and a signal handler could run between two of them. The source
    # depends only on the arguments, so the function is cached.
    constants, calls = [], []
    for k, pick in enumerate(picks):
        names = [f"c{i}" if i >= 0 else f"h{k}_{j}" for j, i in enumerate(pick)]
        constants += [f"k{k}", *(n for n in names if n.startswith("h"))]
        calls.append(f"(k{k}, {', '.join(names)})")
    parameters = ", ".join(f"c{i}" for i in range(columns))
    if len(calls) == 1:
        inner = calls[0].replace(", ", "(", 1)[1:] if picks[0] else "k0()"
    else:
        inner = f"next(filter(None, starmap(call, ({', '.join(calls)},))), 0)"
    # `eval` is safe here: the source contains only names and numbers that this function has generated.
    source = f"lambda {', '.join(constants)}: lambda {parameters}: {inner}"
    factory: Callable[..., Callable[..., int]] = eval(source, {"starmap": starmap, "call": call})
    return factory


def build_commit(steps: Sequence[tuple[Callable[..., Any], Sequence[Any]]], columns: int) -> Callable[..., int]:
    """Return a function that takes the columns of a batch and runs all kernels.

    That function returns 0; if a value is invalid, it changes nothing and returns 1.

    Parameters
    ----------
    steps : sequence of (compiled function, arguments)
        The kernels. Each argument is a `ColumnArgument`, or a constant such as the array to which the kernel adds.
    columns : int
        The number of columns.
    """
    if not steps:
        return lambda *_: 0
    picks = tuple(
        tuple(a.position if isinstance(a, ColumnArgument) else -1 for a in arguments) for _, arguments in steps
    )
    constants = [x for k, arguments in steps for x in (k, *(a for a in arguments if not isinstance(a, ColumnArgument)))]
    return _build_caller(picks, columns)(*constants)


def build_deferred_calls(
    steps: Sequence[tuple[Callable[..., Any], Sequence[Any]]],
) -> Callable[..., list[Callable[[], Any]]]:
    """Return a function that takes the columns of a batch and returns one call for each kernel, to be run later.

    The caller runs these calls together with others, so that an interrupt cannot come between them.
    """

    def calls(*columns: Any) -> list[Callable[[], Any]]:
        return [
            partial(k, *(columns[a.position] if isinstance(a, ColumnArgument) else a for a in arguments))
            for k, arguments in steps
        ]

    return calls


kernel_registry.set_kernel_finder(import_kernel)
