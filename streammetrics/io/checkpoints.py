"""Write checkpoints while a log is scored, and resume from a checkpoint after an interruption."""

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
from streammetrics.compose.checkpoint import Checkpoint, LogIdentity, ranges
from streammetrics.errors import IncompatibleStateError, InvalidInputError
from streammetrics.io.logs import Log
from streammetrics.io.parts import LogPart
from streammetrics.io.sources import LogError, PathLike
from streammetrics.numerics.canonical import canonical_json
from streammetrics.state.state import State

__all__ = ["CheckpointFile", "CountedParts"]

OVERHEAD_RATIO = 20
"""Writing checkpoints takes at most 1 / OVERHEAD_RATIO of the time of a pass, which is 5 %."""

# Largest size of a decompressed checkpoint, in bytes. The limit protects against a malicious file that would exhaust
# the memory when it is loaded.
MAX_BYTES = 8 << 30

_NEW_CHECKPOINT_HINT = "use another file for the checkpoint, or delete this file to start again"


class CountedParts(NamedTuple):
    """The counts of one thread so far.

    Parameters
    ----------
    states : tuple of State
        The states of the metrics; they are never modified.
    part_numbers : tuple of int
        The numbers of the parts of the log that the states cover.
    rows : int
        The number of rows in these parts.
    """

    states: tuple[State, ...]
    part_numbers: tuple[int, ...]
    rows: int


class CountingThread(Protocol):
    """A thread that counts the rows in parts of a log, and provides snapshots of its counts for a checkpoint."""

    snapshot: CountedParts | None

    def take_snapshot(self) -> None:
        """Store the counts of all finished parts in the attribute `snapshot`."""


class CheckpointFile:
    """The checkpoint file of one pass over a log.

    A pass loads the file at the start, updates it at intervals, and writes it once more at the end.

    Parameters
    ----------
    path : path
        The checkpoint file.
    log : Log
        The log.
    parts : sequence of LogPart
        The parts of the log, which are counted separately.
    options : sequence of str
        The columns that are read, and the settings that affect the result. A checkpoint with other options is rejected.
    """

    def __init__(self, path: PathLike, log: Log, parts: Sequence[LogPart], options: Sequence[str]) -> None:
        self.path, self._count = path, len(parts)
        self._is_stream, self._is_table = log.is_stream, log.is_table
        self._identity = _identify_log(log, parts, options)
        self.checkpoint = self._load()
        self._lock, self._overhead, self._next_write = Lock(), 0.0, 0.0
        self._written: list[CountedParts | None] = []

    def _load(self) -> Checkpoint | None:
        """Load the checkpoint from disk; return None if the file does not exist."""
        if not os.path.exists(self.path):
            return None
        name, checkpoint = os.fspath(self.path), load(self.path, max_bytes=MAX_BYTES)
        if not isinstance(checkpoint, Checkpoint):
            raise LogError(
                f"{name}: expected a checkpoint, found a saved object of class {type(checkpoint).__name__}; "
                f"use another file for the checkpoint"
            )
        if difference := checkpoint.log.differences(self._identity):
            raise LogError(f"{name}: the file is the checkpoint {difference}; {_NEW_CHECKPOINT_HINT}")
        return checkpoint

    def check(self, metrics: Any, query: Any) -> None:
        """Raise an error if a checkpoint cannot be used for this log and these metrics.

        `query` contains the columns that identify a query of ranking metrics; it is None if no metric needs whole
        queries.

        Raises
        ------
        InvalidInputError
            The log cannot be counted part by part, or a metric needs rows of several parts together.
        """
        name = os.fspath(self.path)
        if self._is_table:
            raise InvalidInputError(
                f"{name}: a table or query is read as a single part, so its pass cannot be resumed; evaluate the log "
                f"without a checkpoint"
            )
        if self._is_stream:
            raise InvalidInputError(
                f"{name}: a checkpoint needs a log that can be read again, not standard input; write the log to a file"
            )
        if query is not None:
            raise InvalidInputError(
                f"{name}: ranking metrics need all rows of a query together, but a checkpoint stores each part of the "
                f"log separately; evaluate each file without a checkpoint, save the results, and merge the saved files"
            )
        if any(getattr(state, "spill_dir", None) for state, *_ in definition_of(metrics).reads):
            raise InvalidInputError(
                f"{name}: rows of groups that are spilled to disk are deleted when the process ends, so a checkpoint "
                f"cannot include these rows; remove spill_dir=, sort the log by group and set "
                f'grouped="sorted", or set sample=True'
            )

    def open(self, metrics: Any) -> Checkpoint:
        """Return the checkpoint to resume from: the one on disk, or an empty one if the file does not exist."""
        if self.checkpoint is None:
            self.checkpoint = Checkpoint(empty_copy(metrics), self._identity, self._count)
        try:
            accumulator_of(self.checkpoint.total).check_compatible(accumulator_of(metrics))
        except IncompatibleStateError as error:
            raise IncompatibleStateError(
                f"{os.fspath(self.path)}: the file is the checkpoint of other metrics or slices: {error}; "
                f"{_NEW_CHECKPOINT_HINT}"
            ) from error
        return self.checkpoint

    # -- Writing while parts are counted --------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Return whether the next checkpoint is due."""
        return time.monotonic() >= self._next_write

    @contextmanager
    def measure_overhead(self) -> Iterator[None]:
        """Measure the time that a `with` block takes, and add it to the time spent on checkpoints."""
        began = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._overhead += time.monotonic() - began

    def write(self, workers: Sequence[CountingThread]) -> None:
        """Write a checkpoint if a thread has a new snapshot, and schedule the next checkpoint."""
        # A thread replaces its snapshot but never changes it. Therefore, if all snapshots are the same objects as
        # before, there is nothing to write.
        snapshots = [worker.snapshot for worker in workers]
        if all(a is b for a, b in zip(snapshots, self._written or [None] * len(snapshots), strict=True)):
            return
        with self.measure_overhead():
            save(self._combine(snapshots), self.path)
        self._written = snapshots
        with self._lock:
            # Until the next checkpoint, count rows for OVERHEAD_RATIO - 1 times as long as this checkpoint took.
            # Checkpoints then take 1 / OVERHEAD_RATIO of the total time.
            self._next_write, self._overhead = time.monotonic() + (OVERHEAD_RATIO - 1) * self._overhead, 0.0

    def close(self, workers: Sequence[CountingThread]) -> Checkpoint:
        """Write the final checkpoint, and return it."""
        for worker in workers:
            worker.take_snapshot()
        checkpoint = self._combine([worker.snapshot for worker in workers])
        save(checkpoint, self.path)
        return checkpoint

    def _combine(self, snapshots: Sequence[CountedParts | None]) -> Checkpoint:
        """Return a checkpoint of all counts: the counts at the start of the pass and the counts in the snapshots."""
        assert self.checkpoint is not None
        start = self.checkpoint
        total, part_numbers, rows = start.total.copy(), [i for a, b in start.done for i in range(a, b)], start.rows
        for one in snapshots:
            if one is not None:
                total.merge(with_states(start.total, one.states))
                part_numbers += one.part_numbers
                rows += one.rows
        return Checkpoint(total, start.log, start.parts, ranges(part_numbers), rows)


def _identify_log(log: Log, parts: Sequence[LogPart], options: Sequence[str]) -> LogIdentity:
    boundaries = [[p.file, p.first_row, p.rows] for p in parts]
    return LogIdentity(
        len(log.files),
        log.bytes,
        _hash(log.files),
        _hash(log.stamps),
        _hash([*log.read_options, *options]),
        _hash(boundaries),
    )


def _hash(content: Any) -> str:
    return hashlib.sha256(canonical_json(content).encode(errors="surrogateescape")).hexdigest()
