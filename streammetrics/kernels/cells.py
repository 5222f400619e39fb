"""Lookup of the cell (such as a slice) of each row, given the row's parent (a cell of an outer axis) and key code.

New cells are numbered in order of appearance. Lookups use a hash table with open addressing and linear probing: `table`
holds a cell number in each slot, or -1 if the slot is free, and its length is a power of two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import prefetch, scratch
from .keys import find_slot, mix_bits

i4, i8, u8 = np.int32, np.int64, np.uint64

# Rows are looked up in blocks of this size: the slots of all rows in a block are prefetched before the first lookup.
BLOCK = 128
# Unit IDs are prefetched this many rows ahead. Hashing this many rows takes longer than loading an ID from memory.
AHEAD = 1024
# A hash table of at most this length stays in the CPU cache and needs no prefetching.
CACHED_SLOTS = 1 << 17


@inline
def find_cell_slot(parent: Any, code: Any, table: Any, parents: Any, codes: Any) -> Any:
    """Return the slot of `table` that holds the cell with this parent and code, or the free slot for a new cell.

    `parents` and `codes` hold the parent and the code of each cell.
    """
    # Multiplicative (Fibonacci) hashing: the upper bits of the product depend on all bits of the code and the parent.
    mask = u8(table.shape[0] - 1)
    h = ((u8(code) ^ (u8(parent) << u8(40))) * u8(0x9E3779B97F4A7C15)) >> u8(32)
    cell = i8(table[h & mask])
    while cell >= 0 and (codes[u8(cell)] != code or parents[u8(cell)] != parent):
        h += u8(1)
        cell = i8(table[h & mask])
    return h & mask


@kernel(out=("table", "parents", "codes", "out"))
def find_cells(row_parents: Any, row_codes: Any, table: Any, parents: Any, codes: Any, count: Any, out: Any) -> Any:
    """Write the cell of each row to `out`, add new cells, and return the number of cells.

    Each row has a parent cell and the code of its key; an empty `row_parents` means that all parents are 0. `parents`
    and `codes` contain the parent and the code of each of the `count` existing cells. If the table has to grow before a
    cell can be added, return -1 - (the number of cells so far).
    """
    is_lone = row_parents.shape[0] == 0
    for i in range(row_codes.shape[0]):
        code, parent = row_codes[i], i8(0) if is_lone else row_parents[i]
        slot = find_cell_slot(parent, code, table, parents, codes)
        cell = i8(table[slot])
        if cell < 0:
            # At most half of the slots may be in use, so that probe sequences stay short.
            if 2 * (count + 1) > table.shape[0] or count >= codes.shape[0]:
                return -1 - count
            cell, table[slot] = i8(count), i4(count)
            parents[count], codes[count] = parent, code
            count += 1
        out[i] = cell
    return count


@kernel(out=("table", "parents", "codes", "out"))
def find_cells_in_range(
    row_parents: Any, row_codes: Any, code_of: Any, low: Any, extent: Any, table: Any, parents: Any, codes: Any,
    count: Any, out: Any,
) -> Any:  # fmt: skip
    """Write the cell of each row and add new cells, like `find_cells`, but without hashing.

    Codes range from `low` to `low + extent - 1`. This range is small, so `table` has a slot for every combination of
    parent and code. If `code_of` is not empty, `row_codes` contains indices into `code_of` rather than codes.
    """
    is_lone, is_direct = row_parents.shape[0] == 0, code_of.shape[0] == 0
    for i in range(row_codes.shape[0]):
        parent, code = u8(0) if is_lone else u8(row_parents[i]), i8(row_codes[i])
        if not is_direct:
            code = code_of[u8(code)]
        h = parent * u8(extent) + u8(code - low)
        cell = i8(table[h])
        if cell < 0:
            cell, table[h] = i8(count), i4(count)
            parents[count], codes[count] = i8(parent), code
            count += 1
        out[i] = cell
    return count


@kernel(out=("table", "parents", "codes", "out"))
def find_cells_by_id(
    row_parents: Any, first: Any, second: Any, table: Any, parents: Any, codes: Any, count: Any, out: Any
) -> Any:  # fmt: skip
    """Write the cell of each row and add new cells, like `find_cells`, for keys that are 64-bit or 128-bit IDs.

    The 64-bit words of an ID are in `first` and `second`; if IDs have one word, `second` is empty. `codes` holds two
    words per cell. If there are many cells, most accesses miss the CPU cache. A large table is therefore accessed in
    three steps for each block of rows: prefetch the slots of the table, prefetch the IDs of the cells in these slots,
    and compare the IDs.
    """
    mask = u8(table.shape[0] - 1)
    is_lone, one_word = row_parents.shape[0] == 0, second.shape[0] == 0
    is_large, hashes = table.shape[0] > CACHED_SLOTS, scratch(BLOCK, u8)
    for begin in range(0, first.shape[0], BLOCK):
        size = min(BLOCK, first.shape[0] - begin)
        for j in range(size):
            i = begin + j
            a, b, parent = first[i], i8(0) if one_word else second[i], i8(0) if is_lone else row_parents[i]
            hashes[j] = mix_bits(u8(a) + (u8(b) ^ u8(parent)) * u8(0x9E3779B97F4A7C15))
            if is_large:
                prefetch(table, hashes[j] & mask, 1)
        for j in range(size if is_large else 0):
            prefetch(codes, u8(2) * u8(max(table[hashes[j] & mask], i4(0))), 1)
        for j in range(size):
            i, h = begin + j, hashes[j]
            a, b, parent = first[i], i8(0) if one_word else second[i], i8(0) if is_lone else row_parents[i]
            cell = i8(table[h & mask])
            while cell >= 0 and (
                codes[u8(2 * cell)] != a
                or codes[u8(2 * cell + 1)] != b
                or ((not is_lone) and parents[u8(cell)] != parent)
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


@kernel(out=("out",))
def find_known_cells(
    row_parents: Any, values: Any, stored: Any, slots: Any, low: Any, extent: Any, table: Any, parents: Any, codes: Any,
    out: Any,
) -> Any:  # fmt: skip
    """Write the cell of each row, given its parent cell and integer key; return 1 if a row needs a new cell, else 0.

    `values` holds the key of each row, and `stored` the keys that have a code; `slots` is the hash table of these keys
    (see `encode_ints`). If `extent` is 0, `table` is a hash table; otherwise, it has a slot for every combination of a
    parent and a code from `low` to `low + extent - 1`. `parents` and `codes` hold the parent and the code of each cell.
    """
    is_lone = row_parents.shape[0] == 0
    for i in range(values.shape[0]):
        code, parent = slots[find_slot(values[i], stored, slots)], i8(0) if is_lone else row_parents[i]
        if code < i8(0):
            return 1
        if extent == 0:
            slot = u8(find_cell_slot(parent, code, table, parents, codes))
        else:
            slot = u8(parent) * u8(extent) + u8(code - low)
            if u8(code - low) >= u8(extent) or slot >= u8(table.shape[0]):
                return 1
        out[i] = i8(table[slot])
        if table[slot] < 0:
            return 1
    return 0


@inline
def find_shard(first: Any, second: Any, i: Any, one_word: Any, salt: Any, shards: Any) -> Any:
    """Return the shard of unit i (such as a user), a number from 0 to `shards` - 1.

    A hash of the unit's ID and a salt determines the shard. The ID consists of first[i] and, unless `one_word` is true,
    second[i].
    """
    word = mix_bits(u8(first[i]) + u8(salt))
    if not one_word:
        word = mix_bits(word + u8(second[i]))
    return ((word >> u8(32)) * u8(shards)) >> u8(32)


@kernel(out=("out",))
def find_unit_shards(first: Any, second: Any, salt: Any, shards: Any, out: Any) -> Any:
    """Write the shard of each unit (such as a user), a number from 0 to `shards` - 1, to `out`.

    A hash of the unit's ID and a salt determines the shard. The 64-bit words of the IDs are in `first` and `second`; if
    IDs have one word, `second` is empty.
    """
    one_word = second.shape[0] == 0
    for i in range(first.shape[0]):
        out[i] = i8(find_shard(first, second, i, one_word, salt, shards))
    return 0


@kernel(out=("out",))
def find_shard_cells(unit: Any, salt: Any, cells: Any, out: Any) -> Any:
    """Write the cell of each unit's shard to `out`. A shard is a group of units, chosen by a hash of the unit ID.

    `unit` holds the ID of each unit, and `cells` the cell of each shard, or -1 if the shard has none yet. Return 1 if
    the shard of a unit has no cell, else 0.
    """
    shard, least, none = scratch(BLOCK, u8), i8(0), unit[:0]
    for a in range(0, unit.shape[0], BLOCK):
        n = min(BLOCK, unit.shape[0] - a)
        prefetch(unit, a + AHEAD, n)
        here, to = unit[a : a + n], out[a : a + n]
        # Three loops rather than one allow the compiler to vectorize the first one (hashes) and the last one (minimum).
        for j in range(n):
            shard[j] = find_shard(here, none, j, True, salt, cells.shape[0])
        for j in range(n):
            to[j] = cells[shard[j]]
        for j in range(n):
            least = min(least, to[j])
    return i8(least < 0)


@kernel(out=("flags",))
def set_cell_flags(rows: Any, at: Any, width: Any, which: Any, flags: Any) -> Any:
    """Set flag number `which` of the cell of each row; `flags` holds `width` flags for each cell.

    `at` holds the cell of each row. If it is empty, there is one cell, whose flag is set if there are any `rows`.
    Flags belong to the cells of the outer axes, such as slices. The cells of an inner axis, such as classes, have none.
    """
    if at.shape[0] == 0 and rows.shape[0] > 0:
        flags[which] = 1
    for i in range(at.shape[0]):
        flags[at[i] * width + which] = 1
    return 0


@kernel(out=("dropped",))
def count_dropped_rows(dropped: Any, at: Any, width: Any, reason: Any, n: Any) -> Any:
    """Count n dropped (invalid) rows by cell and reason; `dropped` holds `width` counters for each cell.

    `at` holds the cell of each dropped row. If it is empty, there is one cell. Counters belong to the cells of the
    outer axes, such as slices. The cells of an inner axis, such as classes, have none.
    """
    if at.shape[0] == 0:
        dropped[reason] += n
    for i in range(at.shape[0]):
        dropped[at[i] * width + reason] += 1
    return 0
