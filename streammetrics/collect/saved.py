"""Saved objects: from bytes and files, and merging what many workers made."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import InvalidInputError, StateFormatError
from ..state import frame
from ..state.frame import MAX_BYTES, Frame
from ..state.state import State
from . import files
from .collection import MetricCollection
from .holder import Holder, made

__all__ = ["from_bytes", "load", "merge", "save"]

PATHS = (str, os.PathLike)
BYTES = (bytes, bytearray, memoryview)


def from_bytes(data: bytes | bytearray | memoryview, *, max_bytes: int = MAX_BYTES) -> Any:
    """Read a state, metric, collection, slices or bundle that `to_bytes` wrote.

    Parameters
    ----------
    data : bytes
        The bytes; they need not be trusted.
    max_bytes : int
        The most memory that decoding may take.

    Returns
    -------
    State, Metric, MetricCollection, Sliced or Bundle
        What was written. A metric or state of a package that is not imported still merges and re-encodes.

    Raises
    ------
    StateFormatError
        The bytes are damaged, truncated, newer than this release, inconsistent, or something else.
    """
    if not isinstance(data, BYTES):
        raise TypeError(f"from_bytes() takes bytes, not a {type(data).__name__}")
    opened = Frame(data, max_bytes)
    return made(opened.about, opened.states())


def save(thing: Any, path: str | os.PathLike[str]) -> Path:
    """Write a state, metric, collection, slices or bundle to a file, whole or not at all.

    Parameters
    ----------
    thing : object with `to_bytes`, or state
        What is written.
    path : path
        Where. A link stays a link, a file keeps its permissions; a killed process leaves the old file, and at most a
        hidden ".streammetrics-..." beside it.

    Raises
    ------
    OSError
        The system refuses; what was there is there, and nothing else.
    """
    data = frame.write([thing], {"kind": "state"}) if isinstance(thing, State) else thing.to_bytes()
    with files.atomic_write(path) as file:
        file.write(data)
    return Path(path)


def load(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Any:
    """Read what `save` wrote.

    Raises
    ------
    StateFormatError
        The file is no state; the message names it.
    """
    try:
        return from_bytes(files.read(path), max_bytes=max_bytes)
    except StateFormatError as error:
        raise StateFormatError(f"{os.fspath(path)}: {error}") from error


def merge(parts: Iterable[Any], *, metrics: str = "same") -> Any:
    """Merge states, metrics, collections or slices into a new one; the parts stay as they are.

    Parameters
    ----------
    parts : iterable of objects, bytes or paths
        What workers returned or saved. Order does not matter: the result is the same to the last bit. Bytes and files of
        one kind are read many at a time.
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
    if isinstance(parts, (*BYTES, *PATHS)):
        raise TypeError("merge() takes an iterable of parts, such as [a, b]")
    total: Any = None
    for thing, fresh in _read(parts):
        if total is None:
            total = thing if fresh or isinstance(thing, State) else thing.copy()
        elif isinstance(total, State):
            total = total.merge(thing)
        else:
            if metrics == "common" and isinstance(thing, MetricCollection):
                total, thing = _common(total, thing)
            total.merge(thing)
    if total is None:
        raise InvalidInputError("there is nothing to merge")
    return total


def _common(total: Any, thing: Any) -> tuple[Any, Any]:
    shared = [n for n in total.names if n in thing]
    if not shared:
        raise InvalidInputError("the collections have no metric in common")
    return total.only(shared), thing.only(shared)


def _read(parts: Iterable[Any]) -> Iterable[tuple[Any, bool]]:
    """Yield objects, and whether nobody else has them; saved ones of one kind, side by side, as one."""
    run: list[Frame] = []
    for part in parts:
        if isinstance(part, (Holder, State)) or not isinstance(part, (*BYTES, *PATHS)):
            yield from _united(run)
            run = []
            yield part, False
            continue
        opened = _opened(part)
        if run and (opened.about != run[0].about or len(run) >= 1 << 14):
            yield from _united(run)
            run = []
        run.append(opened)
    yield from _united(run)


def _opened(part: Any) -> Frame:
    if isinstance(part, BYTES):
        return Frame(part)
    try:
        return Frame(files.read(part))
    except StateFormatError as error:
        raise StateFormatError(f"{os.fspath(part)}: {error}") from error


def _united(run: list[Frame]) -> Iterable[tuple[Any, bool]]:
    if len(run) == 1:
        yield made(run[0].about, run[0].states()), True
    elif run:
        about, states = frame.merge_frames(run)
        yield made(about, states), True
