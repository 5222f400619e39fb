"""Encode the ends of each state in a frame: the first and the last query (or other block) that it has counted.

For each state, a u8 gives the number of integers in a query ID, or 0 if the state has no ends. The IDs of the first and
last queries follow, as i64. No digest includes the ends, because they depend on how the log was divided into
parts.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ..errors import StateFormatError
from ..state.block_ends import BlockEnds
from ..state.state import State

__all__ = ["pack_ends", "unpack_ends"]


def pack_ends(states: Sequence[State]) -> bytes:
    """Encode the first and the last query of each state; return empty bytes if no state has them.

    A state that was merged from several parts is encoded without ends, so its bytes do not depend on these parts.
    """
    packed = [_pack_one(state.block_ends) for state in states]
    return b"".join(packed) if any(map(any, packed)) else b""


def _pack_one(ends: BlockEnds | None) -> bytes:
    if ends is None or not ends.is_single:
        return b"\0"
    (first,), (last,) = ends.firsts, ends.lasts
    # The IDs have different lengths if the query column begins with integers and ends with strings. In that case,
    # encode no ends.
    return struct.pack(f"<B{2 * len(first)}q", len(first), *first, *last) if len(first) == len(last) else b"\0"


def unpack_ends(data: memoryview, count: int) -> list[BlockEnds | None]:
    """Decode the ends of `count` states."""
    ends: list[BlockEnds | None] = []
    at = 0
    for _ in range(count):
        width = data[at] if at < len(data) else 3
        if width > 2 or at + 1 + 16 * width > len(data):
            raise StateFormatError("the state is corrupt: its first and last queries are damaged or truncated")
        ids = struct.unpack_from(f"<{2 * width}q", data, at + 1)
        ends.append(BlockEnds.of_part(ids[:width], ids[width:]) if width else None)
        at += 1 + 16 * width
    if at != len(data) or not any(ends):
        raise StateFormatError("the state is corrupt: the lengths of its sections do not add up")
    return ends
