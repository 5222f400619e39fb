"""Results as loggers take them: plain floats under names that TensorBoard, MLflow and Weights & Biases all accept."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

__all__ = ["Named", "named_numbers", "prefixed", "settled_names"]

Named = Iterator[tuple[str, float]]

REFUSED = re.compile(r"[^\w./-]")


def named_numbers(name: str, value: Any) -> Named:
    """The numbers of one metric's value: itself; of an array each, by its place; nothing of matrices and of curves."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        for i, one in enumerate(value.tolist()):
            yield f"{name}/{i}", float(one)
    elif isinstance(value, (int, float, np.number)):
        yield name, float(value)


def prefixed(prefix: Any, numbers: Named) -> Named:
    """Numbers of what has a name, or the key of a slice, in front of theirs."""
    atoms = prefix if isinstance(prefix, tuple) else (prefix,)
    first = "/".join(
        "null" if a is None else a.decode(errors="replace") if isinstance(a, bytes) else str(a) for a in atoms
    )
    for name, number in numbers:
        yield f"{first}/{name}", number


def settled_names(numbers: Iterable[tuple[str, float]], undefined: str) -> dict[str, float]:
    """Numbers under names of letters, digits and ``_ . / -``; "@" becomes "_at_", all else "_".

    Raises
    ------
    ValueError
        `undefined` is unknown, or two numbers would have one name.
    """
    if undefined not in ("omit", "nan"):
        raise ValueError(f'undefined must be "omit" or "nan", not {undefined!r}')
    found: dict[str, float] = {}
    given: dict[str, str] = {}
    for name, number in numbers:
        plain = REFUSED.sub("_", name.replace("@", "_at_"))
        if plain in given:
            raise ValueError(
                f"{name!r} and {given[plain]!r} are both {plain!r} to a logger; name one of them otherwise"
            )
        given[plain] = name
        if undefined == "nan" or not math.isnan(number):
            found[plain] = number
    return found
