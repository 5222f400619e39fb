"""Kernels that merge the codes of weighted rows into entries.

Module `tally_codes` contains the kernels for codes without weights, and the kernel that sorts both kinds of codes. An
entry is a code with the number of its rows and the sum of w - 1 over these rows (the excess), where w is the weight of
a row. The sum is a fixed-point number (see `score_terms`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import scratch
from .score_terms import LOW_MASK, add_fixed, split_limbs
from .tally_codes import move_by_digit

i8, u8 = np.int64, np.uint64

# `add_dense_weighted_codes` groups codes by their highest bits, of which it uses at most GROUP_BITS. Its table has
# counters for all values of the lowest TABLE_BITS bits and fits into the cache of a CPU core.
GROUP_BITS, TABLE_BITS = 10, 15
GROUPS, TABLE = 1 << GROUP_BITS, 1 << TABLE_BITS


@inline
def add_to_run(same: Any, rows: Any, high: Any, low: Any, run: Any, run_high: Any, run_low: Any) -> Any:
    """Add an entry to a run of equal codes. Return the row count of the run and the two integers of its sum of w - 1.

    Here, w is the weight of a row. The row count and the two integers are `rows`, `high` and `low` for the entry, and
    `run`, `run_high` and `run_low` for the run. If `same` is 0, the entry begins a new run.
    """
    part = run_low * same + low
    return run * same + rows, run_high * same + high + (part >> i8(40)), part & LOW_MASK


@kernel(out=("codes", "counts", "sums"))
def add_weighted_codes(
    old: Any, rows: Any, excess: Any, fresh: Any, weights: Any, codes: Any, counts: Any, sums: Any
) -> Any:  # fmt: skip
    """Merge sorted entries and one or more sorted codes of weighted rows. Return the number of merged codes.

    `old`, `rows` and `excess` are the codes of the entries, their counts and their sums of w - 1. `fresh` and `weights`
    hold the rows, whose codes may repeat. The result is written to `codes`, `counts` and `sums`.
    """
    i, j, m, na, nb = u8(0), u8(0), u8(0), u8(old.shape[0]), u8(fresh.shape[0])
    last, run, high, low = fresh[0], i8(0), i8(0), i8(0)
    if na:
        last = min(last, old[0])
    # Take the smaller of the next two codes, without a branch.
    while i < na and j < nb:
        x, y = old[i], fresh[j]
        code, ours = min(x, y), x <= y
        one_high, one_low = split_limbs(weights[j])
        one_high -= i8(1 << 20)
        more, more_high, more_low = i8(rows[i]), excess[u8(2) * i], excess[u8(2) * i + u8(1)]
        same = i8(code == last)
        run, high, low = add_to_run(
            same, more if ours else i8(1), more_high if ours else one_high, more_low if ours else one_low, run, high, low
        )  # fmt: skip
        m += u8(i8(1) - same)
        codes[m], counts[m], sums[u8(2) * m], sums[u8(2) * m + u8(1)], last = code, run, high, low, code
        i += u8(ours)
        j += u8(not ours)
    while i < na:
        same = i8(old[i] == last)
        run, high, low = add_to_run(
            same, i8(rows[i]), excess[u8(2) * i], excess[u8(2) * i + u8(1)], run, high, low
        )  # fmt: skip
        m += u8(i8(1) - same)
        codes[m], counts[m], sums[u8(2) * m], sums[u8(2) * m + u8(1)], last = old[i], run, high, low, old[i]
        i += u8(1)
    while j < nb:
        same = i8(fresh[j] == last)
        one_high, one_low = split_limbs(weights[j])
        run, high, low = add_to_run(same, i8(1), one_high - i8(1 << 20), one_low, run, high, low)
        m += u8(i8(1) - same)
        codes[m], counts[m], sums[u8(2) * m], sums[u8(2) * m + u8(1)], last = fresh[j], run, high, low, fresh[j]
        j += u8(1)
    return i8(m) + 1


@kernel(out=("grouped", "grouped_weights", "table", "codes", "counts", "sums"))
def add_dense_weighted_codes(
    old: Any, rows: Any, excess: Any, fresh: Any, weights: Any, bits: Any,
    grouped: Any, grouped_weights: Any, table: Any, codes: Any, counts: Any, sums: Any,
) -> Any:  # fmt: skip
    """Merge sorted entries and unsorted codes of weighted rows. Return the number of merged codes.

    The parameters and the result are those of `add_weighted_codes`; `grouped`, `grouped_weights` and `table` are
    working memory. Each code has at most `bits` bits. This function is faster than sorting if there are not many more
    possible codes than rows. The codes are moved to `grouped`, grouped by their highest bits. The rows are counted in
    `table`, one group at a time. For each value of the lower bits, the table holds a count and the two integers of a
    fixed-point sum. The table contains zeros before and after the call.
    """
    starts, m, i, a = scratch(GROUPS, i8), u8(0), u8(0), u8(0)
    width = u8(max(bits - TABLE_BITS, 0))
    move_by_digit(fresh, weights, grouped, grouped_weights, starts, u8(TABLE_BITS), width)
    for group in range(u8(1) << width):
        # `move_by_digit` has advanced starts[group] to the end of the group.
        first, end = u8(group) << u8(TABLE_BITS), u8(starts[group])
        while i < u8(old.shape[0]) and u8(old[i]) - first < u8(TABLE):
            k = u8(3) * (u8(old[i]) - first)
            table[k], table[k + u8(1)], table[k + u8(2)] = rows[i], excess[u8(2) * i], excess[u8(2) * i + u8(1)]
            i += u8(1)
        for j in range(a, end):
            k = u8(3) * (u8(grouped[j]) - first)
            high, low = split_limbs(grouped_weights[j])
            table[k] += 1
            add_fixed(table, k + u8(1), high - i8(1 << 20), low)
        for place in range(u8(TABLE)):
            k = u8(3) * place
            if table[k]:
                codes[m], counts[m] = first + place, table[k]
                sums[u8(2) * m], sums[u8(2) * m + u8(1)] = table[k + u8(1)], table[k + u8(2)]
                table[k], table[k + u8(1)], table[k + u8(2)] = 0, 0, 0
                m += u8(1)
        a = end
    return i8(m)
