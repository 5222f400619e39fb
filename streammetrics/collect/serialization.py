"""Save and load objects, and merge the results of many workers, passed as objects, bytes or files."""

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
from ..state.block_ends import BlockEnds
from ..state.state import State
from . import files
from .accumulator import definition_of
from .collection import CollectionDefinition
from .definition import Definition, whole_kinds
from .metric_container import MetricContainer
from .metric_like import MetricLike, object_of_frame, object_of_header, states_of, with_states

__all__ = ["from_bytes", "load", "merge", "save"]

M = TypeVar("M", bound=MetricLike | State)

PATHS = (str, os.PathLike)
BYTES = (bytes, bytearray, memoryview)
RUN, RUN_BYTES = 1 << 14, 1 << 26
"""`merge` keeps at most this many saved parts, and at most this many bytes of them, in memory at a time."""


@overload
def from_bytes(data: bytes | bytearray | memoryview, *, max_bytes: int = ...) -> MetricLike: ...
@overload
def from_bytes(data: bytes | bytearray | memoryview, kind: type[M], *, max_bytes: int = ...) -> M: ...
def from_bytes(
    data: bytes | bytearray | memoryview, kind: type[Any] | None = None, *, max_bytes: int = MAX_BYTES
) -> Any:
    """Decode a state, metric, collection, slices or bundle from bytes that `to_bytes` returned.

    Parameters
    ----------
    data : bytes
        The bytes. They may come from an untrusted source.
    kind : type, optional
        The expected class, such as `Sliced`. Editors then know the methods of the result.
    max_bytes : int
        The maximum amount of memory, in bytes, that decoding may use.

    Returns
    -------
    Metric, MetricCollection, Sliced, Bundle or State
        The decoded object. If the package that defines its metric or state is not imported, the object can still be merged
        and encoded again.

    Raises
    ------
    StateFormatError
        The bytes are damaged, truncated or inconsistent, come from a newer release, or do not contain an object of
        this library.
    TypeError
        The bytes contain a different kind of object.
    """
    if not isinstance(data, BYTES):
        raise TypeError(f"from_bytes() expects bytes, found an object of class {type(data).__name__}")
    thing: Any = object_of_frame(Frame(data, max_bytes))
    if kind is not None and not isinstance(thing, kind):
        raise TypeError(f"expected an object of class {kind.__name__}, found an object of class {type(thing).__name__}")
    return thing


def save(thing: Any, path: str | os.PathLike[str]) -> Path:
    """Write a state, metric, collection, slices or bundle to a file atomically.

    Parameters
    ----------
    thing : object with `to_bytes`, or state
        The object to write.
    path : path
        The file. If it is a symbolic link, its target is replaced. An existing file keeps its permissions. If the
        process is killed, the old file remains, possibly along with a hidden temporary file ".streammetrics-..." in the
        same folder.

    Raises
    ------
    TypeError
        `thing` is not an object that can be saved, for example a path.
    OSError
        The operating system refuses the write; the old file is unchanged.
    """
    if not (isinstance(thing, State) or hasattr(thing, "to_bytes")):
        raise TypeError(
            f"save() expects the object first and then the path, as in sm.save(metric, 'auc.smet'); "
            f"found an object of class {type(thing).__name__} first"
        )
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
        The expected class, such as `Sliced`. Editors then know the methods of the result.
    max_bytes : int
        The maximum amount of memory, in bytes, that decoding may use.

    Raises
    ------
    StateFormatError
        The file does not contain a readable object; the message names the file.
    TypeError
        The file contains a different kind of object.
    """
    try:
        # The type annotations of `from_bytes` do not allow `kind=None`, although its code does. Annotating the function
        # as `Any` hides this from mypy.
        read: Any = from_bytes
        return read(files.read(path), kind, max_bytes=max_bytes)
    except (StateFormatError, TypeError) as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from error


@overload
def merge(parts: Iterable[M], *, metrics: str = ..., max_bytes: int = ...) -> M: ...
@overload
def merge(parts: Iterable[Any], *, metrics: str = ..., max_bytes: int = ...) -> Any: ...
def merge(parts: Iterable[Any], *more: Any, metrics: str = "same", max_bytes: int = MAX_BYTES) -> Any:
    """Merge states, metrics, collections, slices or ledgers into a new object; the parts are unchanged.

    Parameters
    ----------
    parts : iterable of objects, bytes or paths
        The objects that workers returned or saved. Their order does not matter: the result is always the same, to the
        last bit. If the order of metrics differs between parts, the result has them in alphabetical order. Successive
        bytes and files with equal settings are merged together, which is faster.
    metrics : {"same", "common"}
        For collections, and for slices and windows of collections. "same": all parts must have the same metrics.
        "common": only the metrics that all parts have are merged.
    max_bytes : int
        The maximum amount of memory, in bytes, that decoding a single part may use.

    Raises
    ------
    TypeError
        A part is not an object, bytes or path that can be merged, or the parts are not in one iterable.
    IncompatibleStateError
        Two parts have different settings, a file or an object is passed twice, or a query in ranking metrics is the
        last in one part and the first in another. The message names each difference, and the file if there is one.
    StateFormatError
        Bytes or a file do not contain a readable object.

    Notes
    -----
    For ranking metrics, give each worker whole queries. If the rows of a query are in two parts, the merged state would
    count the query twice. A state contains the IDs of the first and the last query that it has counted, so `merge`
    raises an error if the log was cut inside a query. It cannot detect other queries with rows in two parts, such as
    those of a shuffled log; `evaluate` of `streammetrics.engines` brings the rows of a query together. An object that
    was merged from several parts is saved without these two IDs, so merge all parts in one step.

    In addition to the result, at most 16,384 saved parts, and at most 64 MiB of them, are in memory at a time.

    Examples
    --------
    >>> import streammetrics as sm
    >>> parts = [sm.CTR().update(y_true=[0, 1]), sm.CTR().update(y_true=[1, 1]).to_bytes()]
    >>> sm.merge(parts).compute()
    0.75
    """
    # `more` is empty in every valid call. Without this parameter, Python's error would not say how to call `merge`.
    if more:
        raise TypeError(
            f"merge() expects one iterable of parts, as in sm.merge([a, b]), found {1 + len(more)} arguments"
        )
    if metrics not in ("same", "common"):
        raise ValueError(f'metrics must be "same" or "common", not {metrics!r}')
    # A `Sliced` object is iterable, but iterating over it yields slice keys, which cannot be merged.
    if isinstance(parts, (*BYTES, *PATHS, MetricLike)) or not isinstance(parts, Iterable):
        raise TypeError(
            f"merge() expects an iterable of parts, such as [a, b], found an object of class {type(parts).__name__}"
        )
    total: Any = None
    for thing, fresh, path in _iterate_parts(parts, max_bytes):
        with _add_path_to_errors(path):
            total = _merge_part(total, thing, fresh, metrics)
    if total is None:
        raise InvalidInputError("merge() expects at least one part, found none")
    return total


def _merge_part(total: Any, thing: Any, fresh: bool, metrics: str) -> Any:
    """Merge a part into the total, and return the total.

    The first part becomes the total. It is copied, unless it is `fresh` (it has just been loaded, so nothing else uses
    it) or a `State`, which never changes. `metrics` has the same meaning as in `merge`.
    """
    if total is None:
        return thing if fresh or isinstance(thing, State) else thing.copy()
    if isinstance(total, State):
        return total.merge(thing)
    if isinstance(thing, MetricContainer) and _wrap_collections_alike(total, thing) and total.names != thing.names:
        total, thing = _select_common_metrics(total, thing, metrics == "common")
    return total.merge(thing)


def _wrap_collections_alike(total: Any, thing: Any) -> bool:
    """Return whether both objects contain a collection inside the same wrappers, such as slices.

    The function `merge` can reconcile a different order or selection of metrics in two such objects. It raises an error
    for any other difference.
    """
    kinds = _wrapper_kinds(definition_of(total))
    return kinds[-1] == CollectionDefinition.kind and kinds == _wrapper_kinds(definition_of(thing))


def _wrapper_kinds(definition: Definition) -> list[str]:
    """Return the kinds of a definition and of the definitions nested in it, outermost first."""
    inner = getattr(definition, "inner", None)
    return [definition.kind] if inner is None else [definition.kind, *_wrapper_kinds(inner)]


def _select_common_metrics(total: Any, thing: Any, some: bool) -> tuple[Any, Any]:
    """Return the two objects with only the metrics that they have in common, in alphabetical order.

    A fixed order makes the result independent of the order of the parts. Unless `some` is true, objects with different
    metrics are returned unchanged.
    """
    shared = sorted(set(total.names) & set(thing.names))
    if not some and not len(shared) == len(total.names) == len(thing.names):
        # The metrics differ. The merge that follows raises an error that names the differences.
        return total, thing
    if not shared:
        raise InvalidInputError("the collections have no metric in common")
    return total.ordered(shared), thing.ordered(shared)


class _SavedPart(NamedTuple):
    """A part that was passed as bytes or as a file, and the path of the file (None for bytes)."""

    frame: Frame
    path: Any

    @property
    def header_text(self) -> str:
        """The header (the settings) as text. Parts with equal headers are merged without building objects."""
        return self.frame.kind.about

    @property
    def merges_as_whole(self) -> bool:
        """Whether the part must be merged as an object, because merging its states one by one could count rows twice."""
        about = self.frame.about
        return isinstance(about, dict) and about.get("kind") in whole_kinds

    def build(self) -> Any:
        """Decode the part into an object."""
        with _add_path_to_errors(self.path):
            return object_of_frame(self.frame)


LoadedPart = tuple[Any, bool, Any]


def _iterate_parts(parts: Iterable[Any], max_bytes: int) -> Iterator[LoadedPart]:
    """Yield (object, whether it has just been loaded, path of its file) for each part or run of parts.

    Consecutive saved parts with equal headers form a run. A run is merged as bytes and yielded as one object, which is
    much faster than building an object for each part.
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
        raise TypeError(
            f"merge() expects metrics, collections, slices, states, bytes or paths, found an object of class {what}"
        )


def _check_new(part: Any, parts_so_far: dict[Any, Any]) -> None:
    """Raise IncompatibleStateError if an object or a file is passed twice, because its rows would count twice.

    A file is recognized under any of its paths.
    """
    if isinstance(part, PATHS):
        key = files.file_identity(part)
        again, name = key in parts_so_far, os.fspath(part)
        parts_so_far[key] = True
    elif isinstance(part, MetricLike):
        reference = parts_so_far.get(id(part))
        again, name = reference is not None and reference() is part, f"the same {type(part).__name__}"
        # After an object is freed, another object may receive the same id. The weak reference tells the two apart.
        parts_so_far[id(part)] = weakref.ref(part)
    else:
        return
    if again:
        raise IncompatibleStateError(
            f"{name} is passed twice, so its rows would count twice; pass a copy to count the rows twice on purpose"
        )


def _open_part(part: Any, max_bytes: int) -> _SavedPart:
    if isinstance(part, BYTES):
        return _SavedPart(Frame(part, max_bytes), None)
    with _add_path_to_errors(part):
        return _SavedPart(Frame(files.read(part), max_bytes), part)


def _merge_run(run: list[_SavedPart]) -> Iterator[LoadedPart]:
    """Yield one object for a run of saved parts, or one for each part if the parts cannot be merged as bytes."""
    if len(run) > 1 and not run[0].merges_as_whole and (merged := _merge_frames(run)) is not None:
        yield merged, True, None
    else:
        yield from ((one.build(), True, one.path) for one in run)


def _merge_frames(run: list[_SavedPart]) -> Any:
    """Merge the parts of a run as bytes.

    Return None if that fails and a part is a file, so that the caller merges the parts one by one and the error names
    the file.
    """
    try:
        about, states = frame.merge_frames((one.frame for one in run), run[0].frame.limit)
        return _join_ends(object_of_header(about, states), run)
    except StreamMetricsError:
        if all(one.path is None for one in run):
            raise
        return None


def _join_ends(merged: Any, run: list[_SavedPart]) -> Any:
    """Return `merged` with the IDs of the first and last queries of all parts.

    Raise IncompatibleStateError if the last query of one part is the first of another.
    """
    ends = [one.frame.ends for one in run if one.frame.ends is not None]
    if not ends or isinstance(merged, State):
        return merged
    by_read = zip(definition_of(merged).reads, *ends, strict=True)
    joined = [BlockEnds.join(of_read, read.block_column) for read, *of_read in by_read]
    return with_states(merged, [s.with_block_ends(e) for s, e in zip(states_of(merged), joined, strict=True)])


@contextmanager
def _add_path_to_errors(path: Any) -> Iterator[None]:
    """Add a path to the errors of the `with` block; if `path` is None, leave the errors unchanged."""
    try:
        yield
    except (StateFormatError, IncompatibleStateError) as error:
        if path is None:
            raise
        raise type(error)(f"{os.fspath(path)}: {error}") from error
