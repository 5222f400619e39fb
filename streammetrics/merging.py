"""Merging what many workers made: objects, bytes and files alike."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from .codec import from_bytes, load
from .collection import MetricCollection
from .errors import InvalidInputError

__all__ = ["merge"]


def merge(parts: Iterable[Any], *, metrics: str = "same") -> Any:
    """Merge states, metrics, collections or slices into a new one; the parts stay as they are.

    Parameters
    ----------
    parts : iterable of objects, bytes or paths
        What workers returned or saved. Order does not matter: the result is the same to the last bit.
    metrics : {"same", "common"}
        For collections: whether all must have the same metrics, or those that all have are merged and the others left.

    Raises
    ------
    IncompatibleStateError
        Two parts answer different questions; the message names each difference.
    StateFormatError
        Bytes or a file are not a state.

    Examples
    --------
    >>> import streammetrics as sm
    >>> parts = [sm.CTR().update(y_true=[0, 1]), sm.CTR().update(y_true=[1, 1]).to_bytes()]
    >>> sm.merge(parts).compute()
    0.75
    """
    if metrics not in ("same", "common"):
        raise ValueError(f'metrics must be "same" or "common", not {metrics!r}')
    if isinstance(parts, (bytes, str, os.PathLike)):
        raise TypeError("merge() takes an iterable of parts, such as [a, b]")
    total: Any = None
    for part in parts:
        fresh = isinstance(part, (bytes, bytearray, memoryview, str, os.PathLike))
        thing = read(part)
        if total is None:
            total = thing if fresh else thing.copy()
            continue
        if metrics == "common" and isinstance(thing, MetricCollection):
            shared = [n for n in total.names if n in thing]
            if not shared:
                raise InvalidInputError("the collections have no metric in common")
            total, thing = total.only(shared), thing.only(shared)
        total.merge(thing)
    if total is None:
        raise InvalidInputError("there is nothing to merge")
    return total


def read(part: Any) -> Any:
    """Return an object from an object, bytes or a path."""
    if isinstance(part, (bytes, bytearray, memoryview)):
        return from_bytes(part)
    return load(part) if isinstance(part, (str, os.PathLike)) else part
