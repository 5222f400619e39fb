"""Conversion of single rows to sorted entries: row counts by group, score and label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import MemoryLimitError
from ...numerics.exact import carry_fixed
from ...numerics.score_buckets import count_exact_bits, encode_scores
from ...state.tally import Entries, canonicalize
from .partitions import RawRows, split_words, weights_of, widen_ids
from .scan import fixed_weights

__all__ = ["ADVICE", "entries_of"]

Ints = NDArray[np.int64]

ADVICE = (
    'pass spill_dir= to keep rows on disk, sort the log by group (grouped="sorted"), give each of n workers its own '
    "partition=(i, n), or pass sample=True for an estimate"
)


def entries_of(raws: Sequence[RawRows], real: bool, fronts: Ints | None = None) -> tuple[Ints, Entries]:
    """Sort rows into entries: one entry with a row count for each group, score and label.

    Parameters
    ----------
    raws : sequence of dict
        The columns of the rows.
    real : bool
        Whether scores may be negative.
    fronts : int64 array, optional
        The slice index of each row; by default, all rows belong to slice 0.

    Returns
    -------
    inner : int64 array of shape (groups, 3)
        The slice and the two words of the ID of each group, in ascending order.
    entries : Entries
        The sorted entries.
    """
    # The code of an entry has two words. The high word (32 bits) contains the group, and the low word (64 bits)
    # contains the score and the label. If scores may be negative, they have one bit too many for the low word. In this
    # case, the extra bit is stored in the high word, and `top` is 1; otherwise `top` is 0.
    top = max(count_exact_bits(real) - 64, 0)
    shift = 64 + top
    raws = [r for r in raws if len(r["labels"])]
    if not raws:
        return np.zeros((0, 3), np.int64), Entries.empty(shift, wide=True)
    has_two_words = any(r["ids"].ndim == 2 for r in raws)
    first_words = np.concatenate([split_words(r["ids"])[0] for r in raws])
    second_words = np.concatenate([split_words(widen_ids(r["ids"]))[1] for r in raws]) if has_two_words else None
    keys = encode_scores(np.concatenate([r["scores"].astype(np.float64) for r in raws]), real)
    low = (keys << np.uint64(1)) | np.concatenate([r["labels"] for r in raws])
    # Sort by slice, ID, score and label. `lexsort` expects the most significant key last.
    columns = [
        low,
        *([keys >> np.uint64(63)] if top else []),
        *([second_words] if second_words is not None else []),
        first_words,
    ]
    order = np.lexsort([*columns, *([fronts] if fronts is not None else [])])
    columns = [c[order] for c in columns]
    front = np.zeros(len(order), np.int64) if fronts is None else fronts[order]
    starts_group = np.ones(len(order), bool)
    starts_group[1:] = (columns[-1][1:] != columns[-1][:-1]) | (front[1:] != front[:-1])
    if second_words is not None:
        starts_group[1:] |= columns[-2][1:] != columns[-2][:-1]
    starts_entry = starts_group.copy()
    starts_entry[1:] |= columns[0][1:] != columns[0][:-1]
    if top:
        starts_entry[1:] |= columns[1][1:] != columns[1][:-1]
    begins, firsts = np.flatnonzero(starts_group), np.flatnonzero(starts_entry)
    second = columns[-2][begins] if second_words is not None else np.zeros(len(begins), np.int64)
    inner = np.column_stack([front[begins], columns[-1][begins], second])
    if len(inner) << top >= 1 << 32:
        raise MemoryLimitError(f"{len(inner):,} groups are more than a state can contain; {ADVICE}")
    high = (np.cumsum(starts_group)[firsts] - 1).astype(np.uint32) << np.uint32(top)
    if top:
        high |= columns[1][firsts].astype(np.uint32)
    excess = None
    if any("weights" in r for r in raws):
        # Entries store the sum of (weight - 1). A fixed-point weight consists of two integers, which represent
        # high * 2**-20 + low * 2**-60. To subtract 1 from the weight, subtract 2**20 from the first integer.
        pair = fixed_weights(np.concatenate([weights_of(r) for r in raws])[order])
        pair[:, 0] -= 1 << 20
        excess = np.add.reduceat(pair, firsts)
        carry_fixed(excess)
    counts = np.diff(firsts, append=len(order))
    return inner, canonicalize(Entries(shift, columns[0][firsts], counts, excess, high))
