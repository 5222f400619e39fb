"""Checkpoint: the state of an unfinished pass over a log, from which the pass can resume.

A checkpoint also records the identity of the log and which of its parts were counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

from ..collect.accumulator import Accumulator, accumulate, accumulator_of, definition_of
from ..collect.definition import Definition, definition_of_header, number_of_states
from ..collect.metric_like import MetricLike
from ..count.batch_updater import BatchUpdater
from ..count.reads import Read
from ..errors import IncompatibleStateError
from ..state.state import State

__all__ = ["Checkpoint", "LogIdentity", "ranges"]

Ranges = Sequence[Sequence[int]]


class LogIdentity(NamedTuple):
    """The identity of a log. A pass resumes only from a checkpoint of the same log. Digests are SHA-256.

    Parameters
    ----------
    files, bytes : int
        The number of files, and their total size in bytes.
    names : str
        The digest of the file names, in order.
    stamps : str
        The digest of the sizes and modification times of the files.
    reading : str
        The digest of the settings for reading the log: the columns, delimiter, conditions and slice limits.
    cut : str
        The digest of the parts into which the log is cut.
    """

    files: int
    bytes: int
    names: str
    stamps: str
    reading: str
    cut: str

    def differences(self, now: LogIdentity) -> str:
        """Describe the most basic difference between this log and `now`; return an empty string if there is none.

        For example, if the file names differ, a difference in modification times is not reported.
        """
        if self.names != now.names:
            return (
                f"of another log, with {self.files:,} files and {self.bytes:,} bytes; this log has {now.files:,} files "
                f"and {now.bytes:,} bytes, or other file names"
            )
        if self.stamps != now.stamps:
            return "of an older version of this log: since then, a file was rewritten or its size changed"
        if self.reading != now.reading:
            return "of this log with other settings: the columns, --where, --delimiter, --limit or --keep have changed"
        if self.cut != now.cut:
            return "of this log in other parts: the release that wrote the checkpoint divides logs differently"
        return ""


class CheckpointAccumulator(Accumulator):
    """The accumulator of an unfinished pass over a log. Its states are those of `total`, the metrics' accumulator."""

    def __init__(
        self, definition: Any, states: Sequence[State] | None = None, total: Accumulator | None = None
    ) -> None:
        if total is None and states is None:
            # A new accumulator has counted nothing, although the definition may list previously counted parts.
            definition = definition.having(done=(), rows=0)
        self.total: Accumulator = accumulate(definition.total) if total is None else total
        super().__init__(definition, states)

    def _start_with(self, states: Iterable[State]) -> None:
        self.total._start_with(states)

    @property
    def updaters(self) -> tuple[BatchUpdater, ...]:
        return self.total.updaters

    @property
    def states(self) -> tuple[State, ...]:
        return self.total.states

    @property
    def all_states(self) -> tuple[State, ...]:
        return self.total.all_states

    @property
    def nbytes(self) -> int:
        return self.total.nbytes

    def reset(self) -> None:
        definition: Any = self.definition
        self.total, self.definition = accumulate(definition.total), definition.having(done=(), rows=0)

    def update(self, first: Any, second: Any, columns: dict[str, Any]) -> None:
        raise TypeError(
            "a checkpoint cannot be updated: run `streammetrics eval --checkpoint` again to continue the pass"
        )

    def merge(self, other: Any) -> None:
        raise IncompatibleStateError(
            "a checkpoint belongs to one pass over one log: finish the pass, then merge the state that --save writes"
        )


class CheckpointDefinition(Definition):
    """The definition of an unfinished pass over a log: the metrics (`total`), the log, and its counted parts."""

    kind = "checkpoint"
    accumulator_type = CheckpointAccumulator
    adds = False

    def __init__(
        self, total: Definition, log: LogIdentity, parts: int, part_ranges: Ranges = (), rows: int = 0
    ) -> None:
        self.total, self.log, self.parts, self.rows = total, log, parts, rows
        self.done = tuple((a, b) for a, b in part_ranges)

    def having(self, **parts: Any) -> Self:
        """Return a copy with new values of `done` (the ranges of counted parts) or `rows` (their number of rows)."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__ | parts)
        return copy

    @property
    def name(self) -> str:
        return "checkpoint"

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        return self.total.reads

    def header(self) -> dict[str, Any]:
        return {
            "kind": "checkpoint",
            "log": list(self.log),
            "parts": self.parts,
            "done": [list(pair) for pair in self.done],
            "rows": self.rows,
            "total": self.total.header(),
        }

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Self:
        log, part_ranges, counts = LogIdentity(*header["log"]), header["done"], (header["parts"], header["rows"])
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in (*counts, *log[:2])):
            raise ValueError("the numbers of parts, rows, files and bytes must be integers")
        if not all(isinstance(text, str) for text in log[2:]):
            raise ValueError("the digests of a log must be strings")
        # The header may be damaged. In a valid header, ranges are sorted and do not touch, so the bounds of all ranges,
        # listed in order, are strictly increasing.
        edges = [edge for pair in part_ranges for edge in pair]
        if not all(type(edge) is int for edge in edges) or not all(len(pair) == 2 for pair in part_ranges):
            raise ValueError("the ranges of parts must be pairs of integers")
        if any(a >= b for a, b in pairwise(edges)) or (edges and not 0 <= edges[0] < edges[-1] <= counts[0]):
            raise ValueError("the ranges of parts must be in ascending order")
        return cls(definition_of_header(header["total"], states), log, counts[0], part_ranges, counts[1])

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        return number_of_states(header["total"])

    def check_states(self, states: Sequence[State]) -> None:
        self.total.check_states(states)

    def seal(self, parts: int | None = None) -> Any:
        raise TypeError(
            "a checkpoint cannot be sealed: finish the pass over the log, then seal the state that --save writes"
        )

    def coarsen(self, bits: int) -> Any:
        raise TypeError(
            "a checkpoint cannot be coarsened: finish the pass over the log, then coarsen the state that --save writes"
        )


class Checkpoint(MetricLike):
    """The state of an unfinished pass over a log, with a list of the counted parts.

    Parameters
    ----------
    total : metric, collection or wrapper
        The object that counts the rows of the log.
    log : LogIdentity
        The identity of the log.
    parts : int
        The number of parts in the log.
    done : sequence of (int, int)
        The numbers of the parts that the total contains, as ascending ranges (first, one past the last).
    rows : int
        The number of rows in these parts, including invalid rows that were left out.
    """

    _accumulator: CheckpointAccumulator

    def __init__(self, total: Any, log: LogIdentity, parts: int, done: Ranges = (), rows: int = 0) -> None:
        definition = CheckpointDefinition(definition_of(total), log, parts, done, rows)
        self._accumulator = CheckpointAccumulator(definition, None, accumulator_of(total))

    @property
    def total(self) -> Any:
        """The object that counts the rows of the log; it contains all rows counted so far."""
        total = self._accumulator.total
        return total.definition.wrap(total)

    @property
    def log(self) -> LogIdentity:
        """The identity of the log."""
        log: LogIdentity = definition_of(self).log
        return log

    @property
    def parts(self) -> int:
        """The number of parts of the log."""
        parts: int = definition_of(self).parts
        return parts

    @property
    def done(self) -> Ranges:
        """The numbers of the parts that the total contains, as ascending ranges (first, one past the last)."""
        done: Ranges = definition_of(self).done
        return done

    @property
    def rows(self) -> int:
        """The number of rows in the parts that the total contains, including invalid rows that were left out."""
        rows: int = definition_of(self).rows
        return rows

    @property
    def count(self) -> int:
        """The number of parts that the total contains."""
        return sum(b - a for a, b in self.done)

    @property
    def finished(self) -> bool:
        """Whether the total contains all parts."""
        return self.count == self.parts

    def __repr__(self) -> str:
        return f"Checkpoint: {self.count:,} of {self.parts:,} parts, {self.rows:,} rows of {self.total!r}"


CheckpointDefinition.public = Checkpoint


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return distinct numbers as ascending ranges (first, one past the last); 1, 2 and 4 become (1, 3) and (4, 5)."""
    result: list[tuple[int, int]] = []
    for n in sorted(numbers):
        first = result.pop()[0] if result and result[-1][1] == n else n
        result.append((first, n + 1))
    return result
