"""The first and last blocks of the logs that a state has counted.

A block is a group of adjacent rows that belong together, such as the rows of a query. If two workers each count some of
the rows of a query, the merged state counts the query twice. When a log is cut inside a query, the query is at the end
of one part and at the start of another. `BlockEnds.join` detects this.

The ends depend on how a log was cut, so they are not part of the content of a state: values, equality and digests do
not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import IncompatibleStateError

__all__ = ["BlockEnds"]

Id = tuple[int, ...]
"""The ID of a block: one integer, or two for the hash of a string."""

MAX_ENDS = 1024
"""The size of a sample of first (or last) blocks. A sample replaces a set of more than twice this size."""


@dataclass(frozen=True)
class BlockEnds:
    """The IDs of the first and the last blocks (such as queries) of the logs, or parts of logs, that a state counted.

    Parameters
    ----------
    firsts, lasts : frozenset of tuple of int
        The IDs of the first and the last block of each part. If a state has counted a single log, each set contains one
        ID. A set of more than twice MAX_ENDS blocks is replaced with a sample of MAX_ENDS blocks.
    """

    firsts: frozenset[Id]
    lasts: frozenset[Id]

    @classmethod
    def of_part(cls, first: Iterable[int], last: Iterable[int]) -> BlockEnds:
        """Return the ends of a single part of a log, given the IDs of its first and its last block."""
        return cls(frozenset([tuple(first)]), frozenset([tuple(last)]))

    @property
    def is_single(self) -> bool:
        """Whether the state has counted a single part of a log rather than several merged parts."""
        return len(self.firsts) == len(self.lasts) == 1

    def extend(self, part: BlockEnds) -> BlockEnds:
        """Return the ends after the state has counted more rows, whose first and last blocks are given by `part`."""
        if self.is_single:
            return BlockEnds(self.firsts, part.lasts)
        return BlockEnds(self.firsts | part.firsts, self.lasts | part.lasts)

    @staticmethod
    def join(parts: Iterable[BlockEnds | None], column: str) -> BlockEnds | None:
        """Return the first and last blocks of all parts together, or None if no part has any.

        A part that was itself merged from several parts is not compared with the union of several earlier parts. With
        many ends on both sides, an ID that occurs on both by chance, such as that of a user who was active on two days,
        would often cause an error.

        Raises
        ------
        IncompatibleStateError
            The last block of one part is the first block of another. The message names `column`, which identifies
            blocks.
        """
        firsts, lasts = set[Id](), set[Id]()
        for one in parts:
            if one is None:
                continue
            if one.is_single or len(firsts) == len(lasts) == 1:
                for block in (one.firsts & lasts) | (one.lasts & firsts):
                    raise IncompatibleStateError(
                        f"{column}: {f'query {block[0]}' if len(block) == 1 else 'a query'} is the last of one part and "
                        f"the first of another, so its rows are in both parts and would count as two queries; cut the "
                        f"log between queries, or read the whole log with `evaluate` of streammetrics.engines or with "
                        f"`streammetrics eval`, which bring the rows of each query together; if different queries share "
                        f"an ID, pass another column as well, such as query=('day', 'query')"
                    )
            firsts |= one.firsts
            lasts |= one.lasts
        return BlockEnds(_take_sample(firsts), _take_sample(lasts)) if firsts else None


def _take_sample(blocks: set[Id]) -> frozenset[Id]:
    """Return the blocks; if there are more than twice MAX_ENDS, return a sample of MAX_ENDS blocks."""
    # Select the blocks with the smallest hashes, so that a block that is among the last blocks of one part and the
    # first blocks of another is likely to be in both samples or in neither.
    return frozenset(blocks if len(blocks) <= 2 * MAX_ENDS else sorted(blocks, key=hash)[:MAX_ENDS])
