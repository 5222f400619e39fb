"""Which cell a row belongs to: by the cell above it and a code, numbered as they come."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import fetch, scratch

i4, i8, u8 = np.int32, np.int64, np.uint64

BLOCK = 128  # rows whose cells are asked of memory at once
AHEAD = 1024  # how far ahead units are fetched: hashing takes longer than they take to come
NEAR = 1 << 17  # places of a table that stays in the cache


@inline
def mix(x: Any) -> Any:
    """Scramble 64 bits (splitmix64)."""
    x = (x ^ (x >> u8(30))) * u8(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> u8(27))) * u8(0x94D049BB133111EB)
    return x ^ (x >> u8(31))


@kernel(out=("table", "parents", "codes", "out"))
def locate(above: Any, code: Any, table: Any, parents: Any, codes: Any, count: Any, out: Any) -> Any:
    """Write the cell of each row, and return how many cells there are now; -1 - count if the table has to grow first."""
    mask = u8(table.shape[0] - 1)
    lone = above.shape[0] == 0
    for i in range(code.shape[0]):
        c, parent = code[i], i8(0) if lone else above[i]
        h = ((u8(c) ^ (u8(parent) << u8(40))) * u8(0x9E3779B97F4A7C15)) >> u8(32)
        cell = i8(table[h & mask])
        while cell >= 0 and (codes[u8(cell)] != c or parents[u8(cell)] != parent):
            h += u8(1)
            cell = i8(table[h & mask])
        if cell < 0:
            if 2 * (count + 1) > table.shape[0] or count >= codes.shape[0]:
                return -1 - count
            cell, table[h & mask] = i8(count), i4(count)
            parents[count], codes[count] = parent, c
            count += 1
        out[i] = cell
    return count


@kernel(out=("table", "parents", "codes", "out"))
def locate_small(
    above: Any, code: Any, low: Any, extent: Any, table: Any, parents: Any, codes: Any, count: Any, out: Any
) -> Any:  # fmt: skip
    """Do what `locate` does for codes within a small extent, by a table of all of them, in which there is room."""
    lone = above.shape[0] == 0
    for i in range(code.shape[0]):
        parent = u8(0) if lone else u8(above[i])
        h = parent * u8(extent) + u8(code[i] - low)
        cell = i8(table[h])
        if cell < 0:
            cell, table[h] = i8(count), i4(count)
            parents[count], codes[count] = i8(parent), code[i]
            count += 1
        out[i] = cell
    return count


@kernel(out=("table", "parents", "codes", "out"))
def locate_group(
    above: Any, left: Any, right: Any, table: Any, parents: Any, codes: Any, count: Any, out: Any
) -> Any:  # fmt: skip
    """Do what `locate` does for ids of 128 bits (`right` is empty where they have 64); `codes` holds two words a cell.

    There are many: a place of the table, and then the id that is there, are asked of memory for a block of rows before
    any of them is looked at.
    """
    mask = u8(table.shape[0] - 1)
    lone, short = above.shape[0] == 0, right.shape[0] == 0
    far, hashes = table.shape[0] > NEAR, scratch(BLOCK, u8)
    for begin in range(0, left.shape[0], BLOCK):
        size = min(BLOCK, left.shape[0] - begin)
        for j in range(size):
            i = begin + j
            a, b, parent = left[i], i8(0) if short else right[i], i8(0) if lone else above[i]
            hashes[j] = mix(u8(a) + (u8(b) ^ u8(parent)) * u8(0x9E3779B97F4A7C15))
            if far:
                fetch(table, hashes[j] & mask, 1)
        for j in range(size if far else 0):
            fetch(codes, u8(2) * u8(max(table[hashes[j] & mask], i4(0))), 1)
        for j in range(size):
            i, h = begin + j, hashes[j]
            a, b, parent = left[i], i8(0) if short else right[i], i8(0) if lone else above[i]
            cell = i8(table[h & mask])
            while cell >= 0 and (
                codes[u8(2 * cell)] != a or codes[u8(2 * cell + 1)] != b or ((not lone) and parents[u8(cell)] != parent)
            ):
                h += u8(1)
                cell = i8(table[h & mask])
            if cell < 0:
                if 2 * (count + 1) > table.shape[0] or count >= parents.shape[0]:
                    return -1 - count
                cell, table[h & mask] = i8(count), i4(count)
                parents[count], codes[2 * count], codes[2 * count + 1] = parent, a, b
                count += 1
            out[i] = cell
    return count


@inline
def shard_of(left: Any, right: Any, i: Any, short: Any, salt: Any, shards: Any) -> Any:
    """The hash class of a unit."""
    word = mix(u8(left[i]) + u8(salt))
    if not short:
        word = mix(word + u8(right[i]))
    return ((word >> u8(32)) * u8(shards)) >> u8(32)


@kernel(out=("out",))
def shard_units(left: Any, right: Any, salt: Any, shards: Any, out: Any) -> Any:
    """Write the hash class of each unit."""
    short = right.shape[0] == 0
    for i in range(left.shape[0]):
        out[i] = i8(shard_of(left, right, i, short, salt, shards))
    return 0


@kernel(out=("out",))
def shard_cells(unit: Any, salt: Any, cells: Any, out: Any) -> Any:
    """Write the cell of the hash class of each unit, -1 for one that has none; return 1 if there is such."""
    shard, least, none = scratch(BLOCK, u8), i8(0), unit[:0]
    for a in range(0, unit.shape[0], BLOCK):
        n = min(BLOCK, unit.shape[0] - a)
        fetch(unit, a + AHEAD, n)
        here, to = unit[a : a + n], out[a : a + n]
        for j in range(n):
            shard[j] = shard_of(here, none, j, True, salt, cells.shape[0])
        for j in range(n):
            to[j] = cells[shard[j]]
        for j in range(n):
            least = min(least, to[j])
    return i8(least < 0)


@kernel(out=("flags",))
def mark_rows(rows: Any, at: Any, width: Any, which: Any, flags: Any) -> Any:
    """Set one of the flags of the front cell of each row; `at` is empty for a lone state."""
    if at.shape[0] == 0 and rows.shape[0] > 0:
        flags[which] = 1
    for i in range(at.shape[0]):
        flags[at[i] * width + which] = 1
    return 0


@kernel(out=("dropped",))
def drop_rows(dropped: Any, at: Any, width: Any, reason: Any, n: Any) -> Any:
    """Count n rows that are left out, each in its front cell, for a reason; `at` is empty for a lone state."""
    if at.shape[0] == 0:
        dropped[reason] += n
    for i in range(at.shape[0]):
        dropped[at[i] * width + reason] += 1
    return 0
