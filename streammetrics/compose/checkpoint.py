"""Checkpoint: an unfinished pass over a log: what was counted so far, of which parts, and which log it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

from ..collect.accumulator import Accumulator, accumulate, accumulator_of, definition_of
from ..collect.definition import Definition, definition_of_header, number_of_states
from ..collect.metric_like import MetricLike
from ..count.batch_updater import Feed
from ..count.reads import Read
from ..errors import IncompatibleStateError
from ..state.state import State

__all__ = ["Checkpoint", "LogIdentity", "ranges"]

Ranges = Sequence[Sequence[int]]


class LogIdentity(NamedTuple):
    """What a log is known by: SHA-256 of what is too long to be kept.

    Parameters
    ----------
    files, bytes : int
        How many there are.
    names : str
        Of the files, in their order.
    stamps : str
        Of their sizes and of when they were written.
    reading : str
        Of how they are read: columns, delimiter, conditions, which slices are kept.
    cut : str
        Of the parts that they are read in.
    """

    files: int
    bytes: int
    names: str
    stamps: str
    reading: str
    cut: str

    def differences(self, now: LogIdentity) -> str:
        """Say how a log is another one; empty if it is not. What comes first explains what comes behind."""
        if self.names != now.names:
            return (
                f"of another log: of {self.files:,} files of {self.bytes:,} bytes; now there are {now.files:,} of "
                f"{now.bytes:,}, or they are called otherwise"
            )
        if self.stamps != now.stamps:
            return "of this log as it was: since then a file changed its size, or was written again"
        if self.reading != now.reading:
            return "of this log read otherwise: columns, --where, --delimiter, --limit or --keep are not what they were"
        return "of this log cut otherwise: another release reads it in other parts" if self.cut != now.cut else ""


class CheckpointAccumulator(Accumulator):
    """The accumulator of the total of an unfinished pass."""

    def __init__(
        self, definition: Any, states: Sequence[State] | None = None, total: Accumulator | None = None
    ) -> None:
        if total is None and states is None:
            # Without states no part was counted, whatever parts the definition names.
            definition = definition.having(done=(), rows=0)
        self.total: Accumulator = accumulate(definition.total) if total is None else total
        super().__init__(definition, states)

    @property
    def feeds(self) -> tuple[Feed, ...]:
        return self.total.feeds

    @property
    def states(self) -> tuple[State, ...]:
        return self.total.states

    @property
    def nbytes(self) -> int:
        return self.total.nbytes

    def reset(self) -> None:
        definition: Any = self.definition
        self.total, self.definition = accumulate(definition.total), definition.having(done=(), rows=0)

    def update(self, first: Any, second: Any, columns: dict[str, Any]) -> None:
        raise TypeError("a checkpoint counts no rows itself: `streammetrics eval --checkpoint` goes on from it")

    def merge(self, other: Any) -> None:
        raise IncompatibleStateError(
            "a checkpoint belongs to one pass over one log: finish that, and merge what --save wrote"
        )


class CheckpointDefinition(Definition):
    """The definition of an unfinished pass: what it counts, which log it reads, and how far it is."""

    kind = "checkpoint"
    accumulator_type = CheckpointAccumulator
    adds = False

    def __init__(self, total: Definition, log: LogIdentity, parts: int, done: Ranges = (), rows: int = 0) -> None:
        self.total, self.log, self.parts, self.rows = total, log, parts, rows
        self.done = tuple((a, b) for a, b in done)

    def having(self, **parts: Any) -> Self:
        """Return the same definition with other parts `done` and `rows`."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__ | parts)
        return made

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
        log, done, counts = LogIdentity(*header["log"]), header["done"], (header["parts"], header["rows"])
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in (*counts, *log[:2])):
            raise ValueError("a checkpoint counts parts, rows, files and bytes")
        if not all(isinstance(text, str) for text in log[2:]):
            raise ValueError("a log is known by texts")
        edges = [edge for pair in done for edge in pair]
        if not all(type(edge) is int for edge in edges) or not all(len(pair) == 2 for pair in done):
            raise ValueError("parts are numbers, in ranges")
        if any(a >= b for a, b in pairwise(edges)) or (edges and not 0 <= edges[0] < edges[-1] <= counts[0]):
            raise ValueError("ranges of parts ascend")
        return cls(definition_of_header(header["total"], states), log, counts[0], done, counts[1])

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        return number_of_states(header["total"])

    def check_states(self, states: Sequence[State]) -> None:
        self.total.check_states(states)

    def sealed(self, parts: int | None = None) -> Any:
        raise TypeError("a checkpoint is half of a result: finish the pass, then close the groups of what --save wrote")

    def coarser(self, bits: int) -> Any:
        raise TypeError("a checkpoint is half of a result: finish the pass, then coarsen what --save wrote")


class Checkpoint(MetricLike):
    """What one pass over a log has counted so far, and of which of its parts.

    Parameters
    ----------
    total : metric, collection or wrapper
        The object that has counted.
    log : Log
        The log.
    parts : int
        How many parts the log has.
    done : sequence of (int, int)
        The parts that are in the total, as ascending ranges.
    rows : int
        The number of their rows, those left out included.
    """

    _accumulator: CheckpointAccumulator

    def __init__(self, total: Any, log: LogIdentity, parts: int, done: Ranges = (), rows: int = 0) -> None:
        definition = CheckpointDefinition(definition_of(total), log, parts, done, rows)
        self._accumulator = CheckpointAccumulator(definition, None, accumulator_of(total))

    @property
    def total(self) -> Any:
        """The object that has counted."""
        total = self._accumulator.total
        return total.definition.wrap(total)

    @property
    def log(self) -> LogIdentity:
        """The log."""
        log: LogIdentity = definition_of(self).log
        return log

    @property
    def parts(self) -> int:
        """How many parts the log has."""
        parts: int = definition_of(self).parts
        return parts

    @property
    def done(self) -> Ranges:
        """The parts that are in the total, as ascending ranges."""
        done: Ranges = definition_of(self).done
        return done

    @property
    def rows(self) -> int:
        """The number of rows of these parts."""
        rows: int = definition_of(self).rows
        return rows

    @property
    def count(self) -> int:
        """How many parts are in the total."""
        return sum(b - a for a, b in self.done)

    @property
    def finished(self) -> bool:
        """Whether all parts are in the total."""
        return self.count == self.parts

    def __repr__(self) -> str:
        return f"Checkpoint: {self.count:,} of {self.parts:,} parts, {self.rows:,} rows of {self.total!r}"


CheckpointDefinition.public = Checkpoint


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers as ascending ranges: each the first, and one past the last."""
    found: list[tuple[int, int]] = []
    for n in sorted(numbers):
        first = found.pop()[0] if found and found[-1][1] == n else n
        found.append((first, n + 1))
    return found
