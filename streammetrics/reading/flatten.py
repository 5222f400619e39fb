"""Flat results for loggers: floats under names that TensorBoard, MLflow and Weights & Biases accept."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

__all__ = ["NamedNumbers", "logger_names", "named_numbers", "prefix_names"]

NamedNumbers = Iterator[tuple[str, float]]

FORBIDDEN = re.compile(r"[^\w./-]")


def named_numbers(name: str, value: Any) -> NamedNumbers:
    """Yield the numbers of the value of a metric: a scalar, or the elements of a vector; matrices and curves have none."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        for i, one in enumerate(value.tolist()):
            yield f"{name}/{i}", float(one)
    elif isinstance(value, (int, float, np.number)):
        yield name, float(value)


def prefix_names(prefix: Any, numbers: NamedNumbers) -> NamedNumbers:
    """Yield numbers with a prefix: the name of an object, or the key of a slice."""
    atoms = prefix if isinstance(prefix, tuple) else (prefix,)
    first = "/".join(
        "null" if a is None else a.decode(errors="replace") if isinstance(a, bytes) else str(a) for a in atoms
    )
    for name, number in numbers:
        yield f"{first}/{name}", number


def logger_names(numbers: Iterable[tuple[str, float]], undefined: str) -> dict[str, float]:
    """Return numbers under names of letters, digits and ``_ . / -``; "@" becomes "_at_", other characters become "_".

    Raises
    ------
    ValueError
        `undefined` is invalid, or two numbers would have the same name.
    """
    if undefined not in ("omit", "nan"):
        raise ValueError(f'undefined must be "omit" or "nan", not {undefined!r}')
    numbers_by_name: dict[str, float] = {}
    original_names: dict[str, str] = {}
    for name, number in numbers:
        clean_name = FORBIDDEN.sub("_", name.replace("@", "_at_"))
        if clean_name in original_names:
            raise ValueError(
                f"{name!r} and {original_names[clean_name]!r} are both {clean_name!r} to a logger; "
                f"name one of them otherwise"
            )
        original_names[clean_name] = name
        if undefined == "nan" or not math.isnan(number):
            numbers_by_name[clean_name] = number
    return numbers_by_name
