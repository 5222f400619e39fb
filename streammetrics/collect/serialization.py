"""Saved objects: from bytes and files, and merging what many workers made."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

from ..errors import IncompatibleStateError, InvalidInputError, StateFormatError, StreamMetricsError
from ..format import frame
from ..format.frame import MAX_BYTES, Frame
from ..state.state import State
from . import files
from .accumulator import definition_of
from .collection import CollectionDefinition
from .definition import Definition, whole_kinds
from .metric_container import MetricContainer
from .metric_like import MetricLike, object_of_header

__all__ = ["from_bytes", "load", "merge", "save"]

M = TypeVar("M", bound=MetricLike | State)

PATHS = (str, os.PathLike)
BYTES = (bytes, bytearray, memoryview)
RUN, RUN_BYTES = 1 << 14, 1 << 26
"""Saved parts that are held at once: so many, of so many bytes."""


@overload
def from_bytes(data: bytes | bytearray | memoryview, *, max_bytes: int = ...) -> MetricLike: ...
@overload
def from_bytes(data: bytes | bytearray | memoryview, kind: type[M], *, max_bytes: int = ...) -> M: ...
def from_bytes(
    data: bytes | bytearray | memoryview, kind: type[Any] | None = None, *, max_bytes: int = MAX_BYTES
) -> Any:
    """Read a state, metric, collection, slices or bundle that `to_bytes` wrote.

    Parameters
    ----------
    data : bytes
        The bytes; they need not be trusted.
    kind : type, optional
        The class that must come out, such as `Sliced`; an editor then knows the methods of the result.
    max_bytes : int
        The most memory that decoding may take.

    Returns
    -------
    Metric, MetricCollection, Sliced, Bundle or State
        What was written. A metric or state of a package that is not imported still merges and re-encodes.

    Raises
    ------
    StateFormatError
        The bytes are damaged, truncated, newer than this release, inconsistent, or something else.
    TypeError
        The bytes contain another kind of object.
    """
    if not isinstance(data, BYTES):
        raise TypeError(f"from_bytes() takes bytes, not a {type(data).__name__}")
    opened = Frame(data, max_bytes)
    found: Any = object_of_header(opened.about, opened.states())
    if kind is not None and not isinstance(found, kind):
        raise TypeError(f"expected a {kind.__name__}, found a {type(found).__name__}")
    return found


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
    files.atomic_write(path, lambda file: file.write(data))
    return Path(path)


@overload
def load(path: str | os.PathLike[str], *, max_bytes: int = ...) -> MetricLike: ...
@overload
def load(path: str | os.PathLike[str], kind: type[M], *, max_bytes: int = ...) -> M: ...
def load(path: str | os.PathLike[str], kind: type[Any] | None = None, *, max_bytes: int = MAX_BYTES) -> Any:
    """Read what `save` wrote.

    Parameters
    ----------
    path : path
        The file.
    kind : type, optional
        The class that must come out, such as `Sliced`; an editor then knows the methods of the result.
    max_bytes : int
        The most memory that decoding may take.

    Raises
    ------
    StateFormatError
        The file is no state; the message names it.
    TypeError
        The file contains another kind of object.
    """
    try:
        read: Any = from_bytes  # without overloads: `kind` may be None
        return read(files.read(path), kind, max_bytes=max_bytes)
    except (StateFormatError, TypeError) as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from error


@overload
def merge(parts: Iterable[M], *, metrics: str = ..., max_bytes: int = ...) -> M: ...
@overload
def merge(parts: Iterable[Any], *, metrics: str = ..., max_bytes: int = ...) -> Any: ...
def merge(parts: Iterable[Any], *, metrics: str = "same", max_bytes: int = MAX_BYTES) -> Any:
    """Merge states, metrics, collections, slices or ledgers into a new one; the parts stay as they are.

    Parameters
    ----------
    parts : iterable of objects, bytes or paths
        What workers returned or saved. Order does not matter: the result is the same to the last bit; metrics are in the
        order of all parts, or that of their names where parts differ. Bytes and files of one kind are read many at a time.
    metrics : {"same", "common"}
        For collections, and slices and windows of them: whether all must have the same metrics, or those that all have are
        merged and the others left.
    max_bytes : int
        The most memory that decoding any one of the parts may take.

    Raises
    ------
    TypeError
        A part is nothing that can be merged.
    IncompatibleStateError
        Two parts answer different questions; the message names each difference, and the file if there is one. Or a file or
        an object is given twice.
    StateFormatError
        Bytes or a file are not a state.

    Notes
    -----
    At most 16,384 saved parts, or 64 MiB of them, are held at a time, besides the total.

    Examples
    --------
    >>> import streammetrics as sm
    >>> parts = [sm.CTR().update(y_true=[0, 1]), sm.CTR().update(y_true=[1, 1]).to_bytes()]
    >>> sm.merge(parts).compute()
    0.75
    """
    if metrics not in ("same", "common"):
        raise ValueError(f'metrics must be "same" or "common", not {metrics!r}')
    if isinstance(parts, (*BYTES, *PATHS, MetricLike)) or not isinstance(
        parts, Iterable
    ):  # slices have keys to go through, which are no parts
        raise TypeError("merge() takes an iterable of parts, such as [a, b]")
    total: Any = None
    for thing, fresh, path in _read(parts, max_bytes):
        with _named(path):
            total = _added(total, thing, fresh, metrics)
    if total is None:
        raise InvalidInputError("there is nothing to merge")
    return total


def _added(total: Any, thing: Any, fresh: bool, metrics: str) -> Any:
    """The total with one more; `fresh` says that nobody else has that."""
    if total is None:
        return thing if fresh or isinstance(thing, State) else thing.copy()
    if isinstance(total, State):
        return total.merge(thing)
    if isinstance(thing, MetricContainer) and _shares(total, thing) and total.names != thing.names:
        total, thing = _common(total, thing, metrics == "common")
    return total.merge(thing)


def _shares(total: Any, thing: Any) -> bool:
    """Whether both hold a collection in the same way; what else differs is for `merge` to say."""
    kinds = _kinds(definition_of(total))
    return kinds[-1] == CollectionDefinition.kind and kinds == _kinds(definition_of(thing))


def _kinds(definition: Definition) -> list[str]:
    """Return the kinds of the wrappers and of what they contain, from the outside in."""
    inner = getattr(definition, "inner", None)
    return [definition.kind] if inner is None else [definition.kind, *_kinds(inner)]


def _common(total: Any, thing: Any, some: bool) -> tuple[Any, Any]:
    """Both with the metrics that both have, in an order that is the same whichever came first."""
    shared = sorted(set(total.names) & set(thing.names))
    if not some and not len(shared) == len(total.names) == len(thing.names):
        return total, thing  # merge says what differs
    if not shared:
        raise InvalidInputError("the collections have no metric in common")
    return total.ordered(shared), thing.ordered(shared)


class _Saved(NamedTuple):
    """A saved part, and the file that it is from."""

    frame: Frame
    path: Any

    @property
    def about(self) -> str:
        """What it is, as text."""
        return self.frame.kind.about

    @property
    def alone(self) -> bool:
        """Whether it is merged as a whole only."""
        about = self.frame.about
        return isinstance(about, dict) and about.get("kind") in whole_kinds

    def made(self) -> Any:
        """The object."""
        with _named(self.path):
            return object_of_header(self.frame.about, self.frame.states())


Read = tuple[Any, bool, Any]


def _read(parts: Iterable[Any], max_bytes: int) -> Iterator[Read]:
    """Yield objects, whether nobody else has them, and their file; saved ones of one kind, side by side, as one."""
    run: list[_Saved] = []
    size, seen = 0, dict[Any, Any]()
    for part in parts:
        _check_part(part)
        _check_new(part, seen)
        if isinstance(part, (MetricLike, State)):
            yield from _united(run)
            run, size = [], 0
            yield part, False, None
            continue
        opened = _opened(part, max_bytes)
        if run and (opened.about != run[0].about or len(run) >= RUN or size >= RUN_BYTES):
            yield from _united(run)
            run, size = [], 0
        run.append(opened)
        size += len(opened.frame.data)
    yield from _united(run)


def _check_part(part: Any) -> None:
    if not isinstance(part, (MetricLike, State, *BYTES, *PATHS)):
        what = type(part).__name__
        raise TypeError(f"a part is a metric, collection, slices, a state, bytes or a path, not a {what}")


def _check_new(part: Any, seen: dict[Any, Any]) -> None:
    """Raise where a file, by whatever name, or an object is given twice: its rows would count twice."""
    if isinstance(part, PATHS):
        key = files.identity(part)
        again, name = key in seen, os.fspath(part)
        seen[key] = True
    elif isinstance(part, MetricLike):
        held = seen.get(id(part))
        again, name = held is not None and held() is part, f"one {type(part).__name__}"
        seen[id(part)] = weakref.ref(part)  # another may get its number once it is gone
    else:
        return
    if again:
        raise IncompatibleStateError(
            f"{name} is given twice, and its rows would count twice; give copies if that is what you mean"
        )


def _opened(part: Any, max_bytes: int) -> _Saved:
    if isinstance(part, BYTES):
        return _Saved(Frame(part, max_bytes), None)
    with _named(part):
        return _Saved(Frame(files.read(part), max_bytes), part)


def _united(run: list[_Saved]) -> Iterator[Read]:
    """One object of all; or each, where they have to be merged as objects, or to be told apart in an error."""
    if len(run) > 1 and not run[0].alone and (found := _folded(run)) is not None:
        yield found, True, None
    else:
        yield from ((one.made(), True, one.path) for one in run)


def _folded(run: list[_Saved]) -> Any:
    """All as one; None if one of them, from a file, has to be named: for it is read again by itself."""
    try:
        about, states = frame.merge_frames((one.frame for one in run), run[0].frame.limit)
        return object_of_header(about, states)
    except StreamMetricsError:
        if all(one.path is None for one in run):
            raise
        return None


@contextmanager
def _named(path: Any) -> Iterator[None]:
    """Let errors name the file, if it is one."""
    try:
        yield
    except (StateFormatError, IncompatibleStateError) as error:
        if path is None:
            raise
        raise type(error)(f"{os.fspath(path)}: {error}") from error
