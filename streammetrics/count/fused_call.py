"""The commit: compiled steps that count a batch, called as one, which no signal divides.

Python runs the handlers of signals between its own instructions, never inside one call into C. So all steps run inside
one: `next` over `starmap`, which ends at the first that finds something. Only a check, or the first counter, which
checks while it counts, ever does; then nothing has been counted.
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
from ..numerics import kernel_registry as compiled

__all__ = ["Place", "bound", "calls_of", "commit_of", "find"]


class Place(NamedTuple):
    """Where among the columns of a commit an argument is."""

    i: int


@functools.cache
def find(name: str) -> Callable[..., Any]:
    """Return a kernel by its name: "score_sums:sum_scores" of this package, or "acme.kernels:count" of another."""
    module, _, function = name.partition(":")
    path = module if "." in module else f"streammetrics.kernels.{module}"
    found: Callable[..., Any] = getattr(importlib.import_module(path), function)
    return found


def bound(name: str, arguments: Sequence[Any], columns: Sequence[Any]) -> Callable[..., Any]:
    """Return the compiled function for these arguments, of which some are columns like those given."""
    kernel = find(name)
    if not isinstance(kernel, Kernel):
        return kernel
    return kernel.entry(*(columns[a.i] if isinstance(a, Place) else a for a in arguments))


@functools.cache
def _shape(picks: tuple[tuple[int, ...], ...], columns: int) -> Callable[..., Callable[..., int]]:
    """Make what turns kernels and constants into one function of columns; -1 in a pick is the next constant."""
    held, calls = [], []
    for k, pick in enumerate(picks):
        names = [f"c{i}" if i >= 0 else f"h{k}_{j}" for j, i in enumerate(pick)]
        held += [f"k{k}", *(n for n in names if n.startswith("h"))]
        calls.append(f"(k{k}, {', '.join(names)})")
    given = ", ".join(f"c{i}" for i in range(columns))
    if len(calls) == 1:
        inner = calls[0].replace(", ", "(", 1)[1:] if picks[0] else "k0()"
        source = f"lambda {', '.join(held)}: lambda {given}: {inner}"
    else:
        source = (
            f"lambda {', '.join(held)}: lambda {given}: next(filter(None, starmap(call, ({', '.join(calls)},))), 0)"
        )
    made: Callable[..., Callable[..., int]] = eval(source, {"starmap": starmap, "call": call})  # made of numbers alone
    return made


def commit_of(steps: Sequence[tuple[Callable[..., Any], Sequence[Any]]], columns: int) -> Callable[..., int]:
    """Return steps as one function of so many columns, which returns 0, or 1 with everything as it was.

    Parameters
    ----------
    steps : sequence of (compiled function, arguments)
        Arguments are columns by their `Place`, or what they are.
    columns : int
        How many columns there are.
    """
    if not steps:
        return lambda *_: 0
    picks = tuple(tuple(a.i if isinstance(a, Place) else -1 for a in arguments) for _, arguments in steps)
    held = [x for k, arguments in steps for x in (k, *(a for a in arguments if not isinstance(a, Place)))]
    return _shape(picks, columns)(*held)


def calls_of(steps: Sequence[tuple[Callable[..., Any], Sequence[Any]]]) -> Callable[..., list[Callable[[], Any]]]:
    """Return steps as a function of columns that makes calls of them, for `at_once`."""

    def calls(*columns: Any) -> list[Callable[[], Any]]:
        return [partial(k, *(columns[a.i] if isinstance(a, Place) else a for a in given)) for k, given in steps]

    return calls


compiled.use(find)
