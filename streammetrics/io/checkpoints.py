"""Checkpoints of a pass over a log: written while its parts are counted, and read when it begins again."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple, Protocol

from streammetrics.collect.accumulator import accumulator_of, definition_of
from streammetrics.collect.metric_like import empty_copy, with_states
from streammetrics.collect.serialization import load, save
from streammetrics.compose.checkpoint import Checkpoint, ranges
from streammetrics.compose.checkpoint import LogIdentity as Known
from streammetrics.errors import IncompatibleStateError, InvalidInputError
from streammetrics.io.logs import Log
from streammetrics.io.parts import LogPart
from streammetrics.io.sources import LogError, PathLike
from streammetrics.numerics.canonical import canonical_json
from streammetrics.state.state import State

__all__ = ["CountedParts", "Keeper"]

SHARE = 20
"""One part in so many of the time goes into a checkpoint, at most."""

MOST = 8 << 30  # bytes that a checkpoint may unfold to: it is ours, but may have been exchanged


class CountedParts(NamedTuple):
    """What a thread has counted: states that do not change, whole parts, and their rows."""

    states: tuple[State, ...]
    done: tuple[int, ...]
    rows: int


class CountingThread(Protocol):
    """A thread that counts parts."""

    kept: CountedParts | None

    def keep(self) -> None:
        """Hold on to what was counted by now."""


class Keeper:
    """A checkpoint on disk, and when it is to be written next.

    Parameters
    ----------
    path : path
        Where it lies.
    log : Log
        The log.
    parts : sequence of Part
        What it is read in.
    asked : sequence of str
        What is read of it, and how.
    """

    def __init__(self, path: PathLike, log: Log, parts: Sequence[LogPart], asked: Sequence[str]) -> None:
        self.path, self._count = path, len(parts)
        self._once, self._table, self._known = log.once, log.table, _known(log, parts, asked)
        self.begun = self._found()
        self._lock, self._spent, self._next = Lock(), 0.0, 0.0
        self._written: list[CountedParts | None] = []

    def _found(self) -> Checkpoint | None:
        """What is on the disk."""
        if not os.path.exists(self.path):
            return None
        name, found = os.fspath(self.path), load(self.path, max_bytes=MOST)
        if not isinstance(found, Checkpoint):
            raise LogError(f"{name}: is no checkpoint, but a saved {type(found).__name__}; name another file")
        if said := found.log.differences(self._known):
            raise LogError(f"{name}: is the checkpoint {said}; name another file, or remove it to begin anew")
        return found

    def check(self, metrics: Any, query: Any) -> None:
        """Raise where a pass cannot be interrupted and go on.

        Raises
        ------
        InvalidInputError
            The log, or what is asked of it, cannot be counted part by part.
        """
        name = os.fspath(self.path)
        if self._table:
            raise InvalidInputError(f"{name}: a table, or a query, is read in one part: there is nothing to go on from")
        if self._once:
            raise InvalidInputError(f"{name}: a checkpoint is of a log that can be read again, not of standard input")
        if query is not None:
            raise InvalidInputError(
                f"{name}: rankings keep queries whole across the parts of a log, which a checkpoint cannot; score each "
                f"file by itself, and merge what is saved"
            )
        if any(getattr(state, "spill_dir", None) for state, *_ in definition_of(metrics).reads):
            raise InvalidInputError(
                f"{name}: rows of groups that are spilled to disk go with the process, and are in no checkpoint; leave "
                f'spill_dir away, sort the log by group (grouped="sorted"), or take a sample=True'
            )

    def open(self, metrics: Any) -> Checkpoint:
        """Return where to go on from: what is on the disk, or nothing counted yet."""
        if self.begun is None:
            self.begun = Checkpoint(empty_copy(metrics), self._known, self._count)
        try:
            accumulator_of(self.begun.total).check_fits(accumulator_of(metrics))
        except IncompatibleStateError as error:
            raise IncompatibleStateError(
                f"{os.fspath(self.path)}: is the checkpoint of other metrics or slices: {error}; name another file, or "
                f"remove it to begin anew"
            ) from error
        return self.begun

    # -- while parts are counted ----------------------------------------------------------------------------------------

    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() >= self._next

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Note how long something took that serves the checkpoint alone."""
        began = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._spent += time.monotonic() - began

    def write(self, workers: Sequence[CountingThread]) -> None:
        """Write what threads hold on to, if one of them has more than is written; and say when the next is due."""
        kept = [worker.kept for worker in workers]
        if all(a is b for a, b in zip(kept, self._written or [None] * len(kept), strict=True)):
            return
        with self.timed():
            save(self._joined(kept), self.path)
        self._written = kept
        with self._lock:
            self._next, self._spent = time.monotonic() + (SHARE - 1) * self._spent, 0.0

    def close(self, workers: Sequence[CountingThread]) -> Checkpoint:
        """Write everything, and return it."""
        for worker in workers:
            worker.keep()
        found = self._joined([worker.kept for worker in workers])
        save(found, self.path)
        return found

    def _joined(self, kept: Sequence[CountedParts | None]) -> Checkpoint:
        """What was on the disk, and what was counted since."""
        assert self.begun is not None
        begun = self.begun
        total, done, rows = begun.total.copy(), [i for a, b in begun.done for i in range(a, b)], begun.rows
        for one in kept:
            if one is not None:
                total.merge(with_states(begun.total, one.states))
                done += one.done
                rows += one.rows
        return Checkpoint(total, begun.log, begun.parts, ranges(done), rows)


def _known(log: Log, parts: Sequence[LogPart], asked: Sequence[str]) -> Known:
    cut = [[p.file, p.first_row, p.rows] for p in parts]
    return Known(
        len(log.files),
        log.bytes,
        _hash(log.files),
        _hash(log.stamps),
        _hash([*log.reading, *asked]),
        _hash(cut),
    )


def _hash(content: Any) -> str:
    return hashlib.sha256(canonical_json(content).encode(errors="surrogateescape")).hexdigest()
