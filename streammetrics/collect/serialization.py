"""Save and load objects, and merge the objects, bytes and files of many workers."""

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
"""The largest number of saved parts that `merge` keeps in memory at a time, and of their bytes."""


@overload
def from_bytes(data: bytes | bytearray | memoryview, *, max_bytes: int = ...) -> MetricLike: ...
@overload
def from_bytes(data: bytes | bytearray | memoryview, kind: type[M], *, max_bytes: int = ...) -> M: ...
def from_bytes(
    data: bytes | bytearray | memoryview, kind: type[Any] | None = None, *, max_bytes: int = MAX_BYTES
) -> Any:
    """Decode a state, metric, collection, slices or bundle from the bytes of `to_bytes`.

    Parameters
    ----------
    data : bytes
        The bytes. They may come from an untrusted source.
    kind : type, optional
        The expected class, such as `Sliced`; an editor then knows the methods of the result.
    max_bytes : int
        The most memory that decoding may take.

    Returns
    -------
    Metric, MetricCollection, Sliced, Bundle or State
        The decoded object. If the package that defines its metric or state is not imported, the object can still be merged
        and encoded again.

    Raises
    ------
    StateFormatError
        The bytes are damaged, truncated, inconsistent, from a newer release, or something else.
    TypeError
        The bytes contain another kind of object.
    """
    if not isinstance(data, BYTES):
        raise TypeError(f"from_bytes() takes bytes, not a {type(data).__name__}")
    saved = Frame(data, max_bytes)
    thing: Any = object_of_header(saved.about, saved.read_states())
    if kind is not None and not isinstance(thing, kind):
        raise TypeError(f"expected a {kind.__name__}, found a {type(thing).__name__}")
    return thing


def save(thing: Any, path: str | os.PathLike[str]) -> Path:
    """Write a state, metric, collection, slices or bundle to a file atomically.

    Parameters
    ----------
    thing : object with `to_bytes`, or state
        The object to write.
    path : path
        The file. A symbolic link stays a link, and a file keeps its permissions. If the process is killed, the old file
        stays, possibly with a hidden temporary file ".streammetrics-..." in the same folder.

    Raises
    ------
    OSError
        The system refuses the write; the old file is unchanged.
    """
    data = frame.write_frame([thing], {"kind": "state"}) if isinstance(thing, State) else thing.to_bytes()
    files.atomic_write(path, lambda file: file.write(data))
    return Path(path)


@overload
def load(path: str | os.PathLike[str], *, max_bytes: int = ...) -> MetricLike: ...
@overload
def load(path: str | os.PathLike[str], kind: type[M], *, max_bytes: int = ...) -> M: ...
def load(path: str | os.PathLike[str], kind: type[Any] | None = None, *, max_bytes: int = MAX_BYTES) -> Any:
    """Load an object from a file that `save` wrote.

    Parameters
    ----------
    path : path
        The file.
    kind : type, optional
        The expected class, such as `Sliced`; an editor then knows the methods of the result.
    max_bytes : int
        The most memory that decoding may take.

    Raises
    ------
    StateFormatError
        The file is not a readable state; the message names the file.
    TypeError
        The file contains another kind of object.
    """
    try:
        # The overloads of `from_bytes` do not allow `kind=None`.
        read: Any = from_bytes
        return read(files.read(path), kind, max_bytes=max_bytes)
    except (StateFormatError, TypeError) as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from error


@overload
def merge(parts: Iterable[M], *, metrics: str = ..., max_bytes: int = ...) -> M: ...
@overload
def merge(parts: Iterable[Any], *, metrics: str = ..., max_bytes: int = ...) -> Any: ...
def merge(parts: Iterable[Any], *, metrics: str = "same", max_bytes: int = MAX_BYTES) -> Any:
    """Merge states, metrics, collections, slices or ledgers into a new object; the parts are unchanged.

    Parameters
    ----------
    parts : iterable of objects, bytes or paths
        The objects that workers returned or saved. Their order does not matter: the result is identical to the last bit.
        If the order of metrics differs between parts, the result has them in alphabetical order. Bytes and files of one
        kind are read many at a time.
    metrics : {"same", "common"}
        For collections, and slices and windows of them. "same": all parts must have the same metrics. "common": only the
        metrics that all parts have are merged.
    max_bytes : int
        The most memory that decoding any one of the parts may take.

    Raises
    ------
    TypeError
        A part is not an object, bytes or path that can be merged.
    IncompatibleStateError
        Two parts have different settings; the message names each difference, and the file if there is one. Or a file or an
        object is passed twice.
    StateFormatError
        Bytes or a file are not a state.

    Notes
    -----
    At most 16,384 saved parts, or 64 MiB of them, are in memory at a time, besides the total.

    Examples
    --------
    >>> import streammetrics as sm
    >>> parts = [sm.CTR().update(y_true=[0, 1]), sm.CTR().update(y_true=[1, 1]).to_bytes()]
    >>> sm.merge(parts).compute()
    0.75
    """
    if metrics not in ("same", "common"):
        raise ValueError(f'metrics must be "same" or "common", not {metrics!r}')
    # Slices are iterable, but iterating gives their keys, which are no parts.
    if isinstance(parts, (*BYTES, *PATHS, MetricLike)) or not isinstance(parts, Iterable):
        raise TypeError("merge() takes an iterable of parts, such as [a, b]")
    total: Any = None
    for thing, fresh, path in _iterate_parts(parts, max_bytes):
        with _add_path_to_errors(path):
            total = _merge_part(total, thing, fresh, metrics)
    if total is None:
        raise InvalidInputError("there is nothing to merge")
    return total


def _merge_part(total: Any, thing: Any, fresh: bool, metrics: str) -> Any:
    """Merge a part into the total and return it; no other object refers to a `fresh` part, so it need not be copied."""
    if total is None:
        return thing if fresh or isinstance(thing, State) else thing.copy()
    if isinstance(total, State):
        return total.merge(thing)
    if isinstance(thing, MetricContainer) and _wrap_collections_alike(total, thing) and total.names != thing.names:
        total, thing = _select_common_metrics(total, thing, metrics == "common")
    return total.merge(thing)


def _wrap_collections_alike(total: Any, thing: Any) -> bool:
    """Return whether both contain a collection inside the same wrappers; `merge` reports all other differences."""
    kinds = _wrapper_kinds(definition_of(total))
    return kinds[-1] == CollectionDefinition.kind and kinds == _wrapper_kinds(definition_of(thing))


def _wrapper_kinds(definition: Definition) -> list[str]:
    """Return the kinds of nested definitions, the outermost first."""
    inner = getattr(definition, "inner", None)
    return [definition.kind] if inner is None else [definition.kind, *_wrapper_kinds(inner)]


def _select_common_metrics(total: Any, thing: Any, some: bool) -> tuple[Any, Any]:
    """Return both with their common metrics in alphabetical order, so that the result does not depend on the order."""
    shared = sorted(set(total.names) & set(thing.names))
    if not some and not len(shared) == len(total.names) == len(thing.names):
        # The metrics differ, and `merge` raises an error that names the differences.
        return total, thing
    if not shared:
        raise InvalidInputError("the collections have no metric in common")
    return total.ordered(shared), thing.ordered(shared)


class _SavedPart(NamedTuple):
    """A saved part, and its file if it has one."""

    frame: Frame
    path: Any

    @property
    def header_text(self) -> str:
        """The header as text; parts with equal headers are of one kind."""
        return self.frame.kind.about

    @property
    def merges_as_whole(self) -> bool:
        """Whether the part has to be merged as an object, because its states cannot be merged one by one."""
        about = self.frame.about
        return isinstance(about, dict) and about.get("kind") in whole_kinds

    def build(self) -> Any:
        """Return the object of the part."""
        with _add_path_to_errors(self.path):
            return object_of_header(self.frame.about, self.frame.read_states())


LoadedPart = tuple[Any, bool, Any]


def _iterate_parts(parts: Iterable[Any], max_bytes: int) -> Iterator[LoadedPart]:
    """Yield (object, whether it is fresh, file) for all parts.

    Consecutive saved parts of one kind are collected in a run, merged as frames, and yielded as one object: this is much
    faster than building and merging an object for each.
    """
    run: list[_SavedPart] = []
    size, parts_so_far = 0, dict[Any, Any]()
    for part in parts:
        _check_part(part)
        _check_new(part, parts_so_far)
        if isinstance(part, (MetricLike, State)):
            yield from _merge_run(run)
            run, size = [], 0
            yield part, False, None
            continue
        saved = _open_part(part, max_bytes)
        if run and (saved.header_text != run[0].header_text or len(run) >= RUN or size >= RUN_BYTES):
            yield from _merge_run(run)
            run, size = [], 0
        run.append(saved)
        size += len(saved.frame.data)
    yield from _merge_run(run)


def _check_part(part: Any) -> None:
    if not isinstance(part, (MetricLike, State, *BYTES, *PATHS)):
        what = type(part).__name__
        raise TypeError(f"a part is a metric, collection, slices, a state, bytes or a path, not a {what}")


def _check_new(part: Any, parts_so_far: dict[Any, Any]) -> None:
    """Raise if an object, or a file under any of its names, occurs twice: its rows would count twice."""
    if isinstance(part, PATHS):
        key = files.file_identity(part)
        again, name = key in parts_so_far, os.fspath(part)
        parts_so_far[key] = True
    elif isinstance(part, MetricLike):
        reference = parts_so_far.get(id(part))
        again, name = reference is not None and reference() is part, f"one {type(part).__name__}"
        # A weak reference, because another object can get the same id once this one is freed.
        parts_so_far[id(part)] = weakref.ref(part)
    else:
        return
    if again:
        raise IncompatibleStateError(
            f"{name} is passed twice, so its rows would count twice; pass copies if you want that"
        )


def _open_part(part: Any, max_bytes: int) -> _SavedPart:
    if isinstance(part, BYTES):
        return _SavedPart(Frame(part, max_bytes), None)
    with _add_path_to_errors(part):
        return _SavedPart(Frame(files.read(part), max_bytes), part)


def _merge_run(run: list[_SavedPart]) -> Iterator[LoadedPart]:
    """Yield one object for the whole run, or one for each part if they cannot be merged as frames."""
    if len(run) > 1 and not run[0].merges_as_whole and (merged := _merge_frames(run)) is not None:
        yield merged, True, None
    else:
        yield from ((one.build(), True, one.path) for one in run)


def _merge_frames(run: list[_SavedPart]) -> Any:
    """Merge the frames of a run. Return None if that fails for files: then each is read alone, and its error names it."""
    try:
        about, states = frame.merge_frames((one.frame for one in run), run[0].frame.limit)
        return object_of_header(about, states)
    except StreamMetricsError:
        if all(one.path is None for one in run):
            raise
        return None


@contextmanager
def _add_path_to_errors(path: Any) -> Iterator[None]:
    """Add the path of a file to errors."""
    try:
        yield
    except (StateFormatError, IncompatibleStateError) as error:
        if path is None:
            raise
        raise type(error)(f"{os.fspath(path)}: {error}") from error
