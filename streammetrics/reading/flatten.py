"""Flat results for loggers: a dict of floats with names that TensorBoard, MLflow and Weights & Biases accept."""

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
    """Yield a name and a number for each number in the value of a metric.

    `name` is the name of the metric. A scalar gets this name, such as "auc". An element of a vector gets a
    name such as "f1_each/0". Matrices and curves yield nothing.
    """
    if isinstance(value, np.ndarray) and value.ndim == 1:
        for i, one in enumerate(value.tolist()):
            yield f"{name}/{i}", float(one)
    elif isinstance(value, (int, float, np.number)):
        yield name, float(value)


def prefix_names(prefix: Any, numbers: NamedNumbers) -> NamedNumbers:
    """Yield named numbers with the prefix and "/" before each name. The prefix is a name, or the key of a slice."""
    atoms = prefix if isinstance(prefix, tuple) else (prefix,)
    first = "/".join(
        "null" if a is None else a.decode(errors="replace") if isinstance(a, bytes) else str(a) for a in atoms
    )
    for name, number in numbers:
        yield f"{first}/{name}", number


def logger_names(numbers: Iterable[tuple[str, float]], undefined: str) -> dict[str, float]:
    """Return a dict from names to numbers, with names that are valid for loggers.

    Valid names consist of letters, digits and ``_ . / -``. In a name with other characters, "@" is replaced with "_at_"
    and any other invalid character with "_". `undefined` says what to do with NaN: "omit" leaves it out, and "nan" keeps
    it.

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
                f"{name!r} and {original_names[clean_name]!r} would both be logged as {clean_name!r}; rename one of them"
            )
        original_names[clean_name] = name
        if undefined == "nan" or not math.isnan(number):
            numbers_by_name[clean_name] = number
    return numbers_by_name
