"""An unfinished pass over a log: what was counted so far, of which parts, and which log it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

from ..collect.feed import Read
from ..collect.holder import Holder, blank_of, states_of
from ..errors import IncompatibleStateError
from ..state.state import State

__all__ = ["Checkpoint", "Log", "ranges"]

Ranges = Sequence[Sequence[int]]


class Log(NamedTuple):
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

    def differences(self, now: Log) -> str:
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


class Checkpoint(Holder):
    """What one pass over a log has counted so far, and of which of its parts.

    Parameters
    ----------
    total : MetricCollection or other holder
        What was counted.
    log : Log
        Which log.
    parts : int
        How many parts it has.
    done : sequence of (int, int)
        The parts that are in the total, as ascending ranges.
    rows : int
        Their rows, those left out included.
    """

    sort = "checkpoint"
    adds: ClassVar[bool] = False

    def __init__(self, total: Any, log: Log, parts: int, done: Ranges = (), rows: int = 0) -> None:
        self.total, self.log, self.parts, self.rows = total, log, parts, rows
        self.done = tuple((a, b) for a, b in done)

    @property
    def count(self) -> int:
        """How many parts are in the total."""
        return sum(b - a for a, b in self.done)

    @property
    def finished(self) -> bool:
        """Whether all are."""
        return self.count == self.parts

    def reads(self) -> tuple[Read, ...]:
        found: tuple[Read, ...] = self.total.reads()
        return found

    @property
    def states(self) -> tuple[State, ...]:
        found: tuple[State, ...] = self.total.states
        return found

    @classmethod
    def state_count(cls, header: dict[str, Any]) -> int:
        return states_of(header["total"])

    def check_states(self, states: Sequence[State]) -> None:
        self.total.check_states(states)

    def take_states(self, states: Sequence[State]) -> None:
        self.total.take_states(states)

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """Rows come from the log that it is of."""
        raise TypeError("a checkpoint counts no rows itself: `streammetrics eval --checkpoint` goes on from it")

    def seal(self, partition: tuple[int, int] | None = None) -> Any:
        """Groups are closed once all rows are there."""
        raise TypeError("a checkpoint is half of a result: finish the pass, then close the groups of what --save wrote")

    def coarsen(self, bits: int) -> Any:
        """The pass goes on with the bits that it has."""
        raise TypeError("a checkpoint is half of a result: finish the pass, then coarsen what --save wrote")

    def merge(self, other: Self) -> Self:
        """A checkpoint is half of a result, which is no part of another."""
        raise IncompatibleStateError(
            "a checkpoint belongs to one pass over one log: finish that, and merge what --save wrote"
        )

    def copy(self) -> Self:
        return type(self)(self.total.copy(), self.log, self.parts, self.done, self.rows)

    def blank(self) -> Self:
        return type(self)(self.total.blank(), self.log, self.parts)

    def reset(self) -> Self:
        self.total, self.done, self.rows = self.total.copy().reset(), (), 0
        return self

    @property
    def nbytes(self) -> int:
        size: int = self.total.nbytes
        return size

    def __eq__(self, other: object) -> bool:
        return Holder.__eq__(self, other)

    __hash__ = None

    def __repr__(self) -> str:
        return f"Checkpoint: {self.count:,} of {self.parts:,} parts, {self.rows:,} rows of {self.total!r}"

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
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        log, done, counts = Log(*header["log"]), header["done"], (header["parts"], header["rows"])
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in (*counts, *log[:2])):
            raise ValueError("a checkpoint counts parts, rows, files and bytes")
        if not all(isinstance(text, str) for text in log[2:]):
            raise ValueError("a log is known by texts")
        edges = [edge for pair in done for edge in pair]
        if not all(type(edge) is int for edge in edges) or not all(len(pair) == 2 for pair in done):
            raise ValueError("parts are numbers, in ranges")
        if any(a >= b for a, b in pairwise(edges)) or (edges and not 0 <= edges[0] < edges[-1] <= counts[0]):
            raise ValueError("ranges of parts ascend")
        total = blank_of(header["total"], states)
        return cls(total, log, counts[0], done, counts[1])


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers as ascending ranges: each the first, and one past the last."""
    found: list[tuple[int, int]] = []
    for n in sorted(numbers):
        first = found.pop()[0] if found and found[-1][1] == n else n
        found.append((first, n + 1))
    return found
