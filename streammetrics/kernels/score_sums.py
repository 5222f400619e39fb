"""Compute exact sums of terms (such as log-loss) over rows, and of the squares needed for their standard errors.

There are kernels for one cell, for rows with several labels, and for many cells (such as slices), each with and without
weights. Module `block_sums` sums a block of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import prefetch, scratch
from .block_sums import (
    LOSS,
    LOSS_BITS,
    ONE,
    ONE_BITS,
    add_saturating,
    add_term,
    add_units,
    add_weighted_term,
    add_weights,
    count_square_units,
    is_any_from,
    may_clip_block,
    move_heavy_rows,
    move_large_rows,
    move_wild_squares,
    split_block,
    split_squares,
    sum_coarse_scores,
    sum_with_squares,
)
from .multilabel import slice_label, slice_label_weights
from .score_terms import (
    AHEAD,
    BLOCK,
    LARGE,
    LOG_LOSS,
    MOST,
    PART,
    SCORE,
    add_fixed,
    count_positives,
    fill_block,
    has_bad_score,
    has_bad_value,
    is_clipped,
    is_coarse,
    may_be_bad,
    may_clip,
    score_extremes,
    split_limbs,
)

f8, i8, u8 = np.float64, np.int64, np.uint64

LANES = 4
# If there are few cells (such as slices), consecutive rows are added to separate sets of sums ("lanes"), so that an
# addition need not wait for the previous one. Lanes are used if they have at most this many numbers in total. More
# numbers would not stay in the cache, and with so many cells, consecutive rows are rarely in the same cell.
LANE_CELLS = 4096
# The largest number of counters that stay in the cache. If there are more, the counters for the next rows are
# prefetched.
CACHED_NUMBERS = 1 << 16
# The number of blocks after which lanes are added to the final sums. Up to then, a lane sums at most 2**11 rows, whose
# sum fits into an int64.
FLUSH_PARTS = 18


@outline
def add_labels(y: Any, w: Any, at: Any, rows: Any, excess: Any) -> Any:
    """Count rows by cell (such as a slice) and label. See `count_labels` for the parameters."""
    # With one cell, the number of positives is the sum of the labels, which a vectorized loop computes.
    if at.shape[0] == 0:
        positives, bad = count_positives(y)
        if bad:
            return 1
        rows[0] += y.shape[0] - positives
        rows[1] += positives
    for j in range(at.shape[0]):
        rows[u8(2) * u8(at[j]) + u8(y[j])] += 1
    for j in range(w.shape[0]):
        cell = u8(0) if at.shape[0] == 0 else u8(at[j])
        high, low = split_limbs(w[j])
        add_fixed(excess, u8(2) * (u8(2) * cell + u8(y[j])), high - i8(1 << 20), low)
    return 0


@kernel(out=("rows", "excess"))
def count_labels(y: Any, w: Any, at: Any, rows: Any, excess: Any) -> Any:
    """Count rows by cell (such as a slice) and label (0 or 1), and add each row's weight minus 1 to `excess`.

    With one cell, labels are also checked: if a label is invalid, return 1 and count nothing.
    """
    return add_labels(y, w, at, rows, excess)


@kernel(out=("rows", "excess"))
def count_labels_multilabel(width: Any, y: Any, w: Any, at: Any, rows: Any, excess: Any) -> Any:
    """Count rows by cell and label (0 or 1), like `count_labels`, separately for each of `width` label columns."""
    for i in range(width):
        yy = slice_label(y, i, width)
        add_labels(
            yy, slice_label_weights(w, i, yy.shape[0]), at, slice_label(rows, i, width), slice_label(excess, i, width)
        )
    return 0


@outline
def add_scores(y: Any, s: Any, terms: Any, eps: Any, rows: Any, sums: Any, squares: Any, clipped: Any) -> Any:
    """Add terms (such as log-loss) of unweighted rows to the sums of one cell. See `sum_scores` for the parameters."""
    n_terms, n = terms.shape[0], s.shape[0]
    k, f, out = scratch(PART, f8), scratch(PART, f8), scratch(BLOCK, f8)
    total, square, counts, hits = scratch(12, i8), scratch(6, i8), scratch(2, i8), scratch(MOST, i8)
    # Collect all sums in local arrays and add them to the cell at the end, so that the cell is unchanged if a later
    # block contains an invalid value.
    for so_far in (total, square, counts, hits):
        so_far[:] = 0
    for a in range(0, n, BLOCK):
        m = min(BLOCK, n - a)
        yy, ss = y[a : a + m], s[a : a + m]
        positives, bad = count_positives(yy)
        least, most = score_extremes(ss)
        # Usually, the extremes show that all scores are valid. Check every score only if they do not.
        if bad or (may_be_bad(most) and has_bad_score(False, ss)):
            return 1
        counts[1] += positives
        counts[0] += m - positives
        clip = may_clip(eps, least, most)
        for t in range(n_terms):
            loss, at = terms[t] == LOG_LOSS, u8(4 * t)
            # Unless they are tiny, float32 scores are multiples of 2**-52, for which there is a faster function.
            if terms[t] == SCORE and is_coarse(least):
                prefetch(y, a + AHEAD, m)
                prefetch(s, a + AHEAD, m)
                h0, l0, h1, l1, q = sum_coarse_scores(yy, ss, i8(positives))
            else:
                fill_block(terms[t], False, eps, clip, yy, ss, k, f, out)
                magic, magic_bits = (LOSS, LOSS_BITS) if loss else (ONE, ONE_BITS)
                h0, l0, h1, l1, q = sum_with_squares(yy, out[:m], magic, magic_bits, i8(positives))
            add_fixed(total, at, h0, l0)
            add_fixed(total, at + u8(2), h1, l1)
            add_units(square, u8(2 * t), q, loss)
            if loss and clip:
                for j in range(m):
                    hits[t] += is_clipped(eps, yy[j], ss[j])
    rows[0] += counts[0]
    rows[1] += counts[1]
    for t in range(n_terms):
        clipped[t] += hits[t]
        add_saturating(squares, u8(2 * t), square[2 * t], square[2 * t + 1])
        for c in range(2):
            at = u8(4 * t + 2 * c)
            add_fixed(sums, at, total[at], total[at + u8(1)])
    return 0


@outline
def add_unbounded(
    y: Any, s: Any, terms: Any, logit: Any, eps: Any, rows: Any, sums: Any, large: Any, squares: Any, clipped: Any
) -> Any:  # fmt: skip
    """Add terms of any size for unweighted rows to the sums of one cell. See `sum_unbounded` for the parameters."""
    if has_bad_value(logit, y, s):  # check all rows first: large terms are added immediately and cannot be undone
        return 1
    k, f, out, v = scratch(PART, f8), scratch(PART, f8), scratch(BLOCK, f8), scratch(BLOCK, f8)
    for a in range(0, y.shape[0], BLOCK):
        m = min(BLOCK, y.shape[0] - a)
        yy, ss = y[a : a + m], s[a : a + m]
        positives = i8(count_positives(yy)[0])
        rows[0] += m - positives
        rows[1] += positives
        clip = terms.shape[0] > 0 and not logit and may_clip_block(eps, ss)
        for t in range(terms.shape[0]):
            fill_block(terms[t], logit, eps, clip, yy, ss, k, f, out)
            loss = terms[t] == LOG_LOSS
            add_term(yy, out[:m], positives, loss, v[:m], u8(t), sums, large, squares)
            if loss and clip:
                for j in range(m):
                    clipped[t] += is_clipped(eps, yy[j], ss[j])
    return 0


@outline
def add_weighted(
    y: Any, s: Any, w: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add the weighted terms of rows to the sums of one cell. See `sum_weighted` for the parameters."""
    k, f, out, parts = scratch(PART, f8), scratch(PART, f8), scratch(BLOCK, f8), scratch(10, i8)
    for a in range(0, y.shape[0], BLOCK):
        m = min(BLOCK, y.shape[0] - a)
        yy, ss, ww = y[a : a + m], s[a : a + m], w[a : a + m]
        positives = i8(count_positives(yy)[0])
        rows[0] += m - positives
        rows[1] += positives
        add_weights(yy, ww, positives, parts, excess, w2)
        clip = terms.shape[0] > 0 and not logit and may_clip_block(eps, ss)
        for t in range(terms.shape[0]):
            fill_block(terms[t], logit, eps, clip, yy, ss, k, f, out)
            loss = terms[t] == LOG_LOSS
            add_weighted_term(yy, out[:m], ww, positives, loss, u8(t), parts, sums, large, squares, w2x)
            if loss and clip:
                for j in range(m):
                    clipped[t] += is_clipped(eps, yy[j], ss[j])
    return 0


@kernel(out=("rows", "sums", "squares", "clipped"))
def sum_scores(y: Any, s: Any, terms: Any, eps: Any, rows: Any, sums: Any, squares: Any, clipped: Any) -> Any:
    """Add the terms (such as log-loss) of unweighted rows to the sums of one cell, and count the rows.

    `terms` holds the codes of the terms: SCORE, LOG_LOSS or BRIER. Scores are probabilities. For log-loss, they are
    clipped to [eps, 1 - eps]; the log-loss of a row must not exceed 45. `sums` holds the sum of each term by label,
    `squares` the sums of squares, and `clipped` the number of clipped rows. If a value is invalid, add nothing and
    return 1.
    """
    return add_scores(y, s, terms, eps, rows, sums, squares, clipped)


@kernel(out=("rows", "sums", "squares", "clipped"))
def sum_scores_multilabel(
    width: Any, y: Any, s: Any, terms: Any, eps: Any, rows: Any, sums: Any, squares: Any, clipped: Any
) -> Any:  # fmt: skip
    """Add terms of unweighted rows to the sums of each of `width` labels in one cell, like `sum_scores`."""
    for i in range(width):
        yy, ss = slice_label(y, i, width), slice_label(s, i, width)
        counts, total, square = slice_label(rows, i, width), slice_label(sums, i, width), slice_label(squares, i, width)
        add_scores(yy, ss, terms, eps, counts, total, square, slice_label(clipped, i, width))
    return 0


@kernel(out=("rows", "sums", "large", "squares", "clipped"))
def sum_unbounded(
    y: Any, s: Any, terms: Any, logit: Any, eps: Any, rows: Any, sums: Any, large: Any, squares: Any, clipped: Any
) -> Any:  # fmt: skip
    """Add terms of any size (such as log-loss of logits) for unweighted rows to the sums of one cell; count the rows.

    The parameters are those of `sum_scores`, with two additions: scores are logits if `logit` is true, and values of
    2**31 or more are added to `large`. If a value is invalid, add nothing and return 1.
    """
    return add_unbounded(y, s, terms, logit, eps, rows, sums, large, squares, clipped)


@kernel(out=("rows", "sums", "large", "squares", "clipped"))
def sum_unbounded_multilabel(
    width: Any, y: Any, s: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, sums: Any, large: Any, squares: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add terms of any size for unweighted rows, like `sum_unbounded`, separately for each of `width` labels."""
    for i in range(width):
        yy, ss, counts, total = (
            slice_label(y, i, width),
            slice_label(s, i, width),
            slice_label(rows, i, width),
            slice_label(sums, i, width),
        )
        wide, square, hits = (
            slice_label(large, i, width),
            slice_label(squares, i, width),
            slice_label(clipped, i, width),
        )
        add_unbounded(yy, ss, terms, logit, eps, counts, total, wide, square, hits)
    return 0


@kernel(out=("rows", "excess", "sums", "large", "squares", "w2", "w2x", "clipped"))
def sum_weighted(
    y: Any, s: Any, w: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add weighted terms of any size to the sums of one cell, and count the rows. The caller has checked all values.

    The other parameters are those of `sum_unbounded`. For a term x and a weight w, the sums of w * x, (w * x)**2, w**2
    and w**2 * x are added to `sums`, `squares`, `w2` and `w2x`, respectively.
    """
    return add_weighted(y, s, w, terms, logit, eps, rows, excess, sums, large, squares, w2, w2x, clipped)


@kernel(out=("rows", "excess", "sums", "large", "squares", "w2", "w2x", "clipped"))
def sum_weighted_multilabel(
    width: Any, y: Any, s: Any, w: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add weighted terms of rows to the sums of each of `width` labels in one cell, like `sum_weighted`."""
    for i in range(width):
        yy, ss, counts, weights = (
            slice_label(y, i, width),
            slice_label(s, i, width),
            slice_label(rows, i, width),
            slice_label(excess, i, width),
        )
        total, wide, square = slice_label(sums, i, width), slice_label(large, i, width), slice_label(squares, i, width)
        second, cross, hits = slice_label(w2, i, width), slice_label(w2x, i, width), slice_label(clipped, i, width)
        ww = slice_label_weights(w, i, yy.shape[0])
        add_weighted(yy, ss, ww, terms, logit, eps, counts, weights, total, wide, square, second, cross, hits)
    return 0


@outline
def flush_lanes(lanes: Any, cells: Any, terms: Any, rows: Any, sums: Any, squares: Any) -> None:
    """Add the lanes (partial sums over unweighted rows) to `rows`, `sums` and `squares`, and set the lanes to 0.

    There are LANES sets of partial sums. Each set has a row count and the sums of all terms for every cell and label.
    """
    n_terms = terms.shape[0]
    width = 1 + 3 * n_terms
    for k in range(2 * LANES * cells):
        # The index i is twice the cell index plus the label.
        i, lane = k % (2 * cells), k * width
        rows[i] += lanes[lane]
        for t in range(n_terms):
            first, to = lane + 1 + 3 * t, u8((i >> 1) * n_terms + t)
            add_fixed(sums, u8(4) * to + u8(2) * u8(i & 1), lanes[first], lanes[first + 1])
            add_units(squares, u8(2) * to, lanes[first + 2], terms[t] == LOG_LOSS)
        lanes[lane : lane + width] = 0


@inline
def prefetch_cells(here: Any, n_terms: Any, rows: Any, sums: Any, squares: Any) -> None:
    """Prefetch the counters and sums of `here`, the cells of the next rows, unless all counters fit into the cache."""
    if rows.shape[0] > CACHED_NUMBERS:
        for j in range(here.shape[0]):
            prefetch(rows, u8(2) * u8(here[j]), 1)
            prefetch(sums, u8(4 * n_terms) * u8(here[j]), u8(4 * n_terms))
            prefetch(squares, u8(2 * n_terms) * u8(here[j]), 1)


@kernel(out=("rows", "sums", "large", "squares", "clipped"))
def sum_cells(
    y: Any, s: Any, at: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, sums: Any, large: Any, squares: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add the terms (such as log-loss) of unweighted rows to the sums of their cells.

    The caller has checked all values. `at` holds the cell (such as a slice) of each row. Sums are stored in flat
    arrays, cell by cell. Values of 2**31 or more are added to `large`, which is empty if no term can be that large. If
    there are few cells, consecutive rows are added to four separate sets of sums ("lanes"), because an addition to the
    same address would have to wait for the previous one.
    """
    n_terms, n, cells = terms.shape[0], y.shape[0], rows.shape[0] // 2
    width = 1 + 3 * n_terms
    lanes = scratch(LANE_CELLS, i8)
    # Use lanes only if there are many rows per cell, because adding the lanes of all cells to the sums takes time.
    laned = n >= 8 * cells and 2 * LANES * cells * width <= LANE_CELLS
    lanes[: 2 * LANES * cells * width if laned else 0] = 0
    k, f, out, place = scratch(PART, f8), scratch(PART, f8), scratch(PART, f8), scratch(PART, u8)
    highs, lows, units = scratch(PART, i8), scratch(PART, i8), scratch(PART, i8)
    for a in range(0, n, PART):
        m = min(PART, n - a)
        prefetch(at, a + AHEAD, m)
        yy, ss, here = y[a : a + m], s[a : a + m], at[a : a + m]
        prefetch_cells(here, n_terms, rows, sums, squares)
        if laned:
            for j in range(m):
                # Consecutive rows use different lanes, so that an addition rarely waits for the previous one.
                place[j] = u8((((j & (LANES - 1)) * cells + here[j]) * 2 + yy[j]) * width)
            for j in range(m):
                lanes[place[j]] += 1
        else:
            for j in range(m):
                place[j] = u8(here[j]) * u8(2) + u8(yy[j])
            for j in range(m):
                rows[place[j]] += 1
        clip = terms.shape[0] > 0 and not logit and may_clip_block(eps, ss)
        for t in range(n_terms):
            fill_block(terms[t], logit, eps, clip, yy, ss, k, f, out)
            loss = terms[t] == LOG_LOSS
            if large.shape[0] and is_any_from(out[:m], LARGE):
                move_large_rows(out[:m], here, n_terms, t, large, squares)
            split_block(out[:m], highs, lows)
            count_square_units(out[:m], loss, units)
            # A loss above 45 occurs only with logits or a tiny eps. Its square may be 2**11 or more, which is too large
            # for `count_square_units`, so it is added separately.
            if loss and (logit or eps < 2.0**-52) and is_any_from(out[:m], 45.0):
                move_wild_squares(out[:m], here, n_terms, t, squares, units)
            if laned:
                first = u8(1 + 3 * t)
                for j in range(m):
                    to = place[j] + first
                    lanes[to] += highs[j]
                    lanes[to + u8(1)] += lows[j]
                    lanes[to + u8(2)] += units[j]
            else:
                for j in range(m):
                    to = u8(here[j]) * u8(n_terms) + u8(t)
                    add_fixed(sums, u8(4) * to + u8(2) * u8(yy[j]), highs[j], lows[j])
                    add_units(squares, u8(2) * to, units[j], loss)
            if loss and clip:
                for j in range(m):
                    clipped[u8(here[j]) * u8(n_terms) + u8(t)] += is_clipped(eps, yy[j], ss[j])
        if laned and (a + m == n or (a // PART) % FLUSH_PARTS == FLUSH_PARTS - 1):
            flush_lanes(lanes, cells, terms, rows, sums, squares)
    return 0


@outline
def flush_weighted_lanes(
    lanes: Any, cells: Any, n_terms: Any, rows: Any, excess: Any, sums: Any, squares: Any, w2: Any, w2x: Any
) -> None:
    """Add the lanes (partial sums over weighted rows, see `flush_lanes`) to sums and counts, and reset the lanes."""
    width = 5 + 6 * n_terms
    for k in range(2 * LANES * cells):
        # The index i is twice the cell index plus the label.
        i, lane = k % (2 * cells), k * width
        count = lanes[lane]
        rows[i] += count
        # The lanes contain sums of w, but `excess` contains sums of w - 1, so subtract the number of rows.
        add_fixed(excess, u8(2 * i), lanes[lane + 1] - (count << i8(20)), lanes[lane + 2])
        add_saturating(w2, u8(2 * i), lanes[lane + 3], lanes[lane + 4])
        for t in range(n_terms):
            first, to = lane + 5 + 6 * t, u8((i >> 1) * n_terms + t)
            one = u8(4) * to + u8(2) * u8(i & 1)
            add_fixed(sums, one, lanes[first], lanes[first + 1])
            add_saturating(w2x, one, lanes[first + 2], lanes[first + 3])
            add_saturating(squares, u8(2) * to, lanes[first + 4], lanes[first + 5])
        lanes[lane : lane + width] = 0


@kernel(out=("rows", "excess", "sums", "large", "squares", "w2", "w2x", "clipped"))
def sum_weighted_cells(
    y: Any, s: Any, w: Any, at: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add weighted terms to the sums of their cells. The caller has checked all values.

    For a term x and a weight w, the sums of w * x, (w * x)**2, w**2 and w**2 * x are added to `sums`, `squares`, `w2`
    and `w2x`, respectively. `at` holds the cell (such as a slice) of each row.
    """
    n_terms, n, cells = terms.shape[0], y.shape[0], rows.shape[0] // 2
    width = 5 + 6 * n_terms
    lanes = scratch(LANE_CELLS, i8)
    laned = n >= 8 * cells and 2 * LANES * cells * width <= LANE_CELLS
    lanes[: 2 * LANES * cells * width if laned else 0] = 0
    k, f, out, v, place = scratch(PART, f8), scratch(PART, f8), scratch(PART, f8), scratch(PART, f8), scratch(PART, u8)
    one, two, lane = scratch(PART, u8), scratch(PART, u8), scratch(PART, u8)
    h1, l1, h2, l2, h3, l3 = (
        scratch(PART, i8), scratch(PART, i8), scratch(PART, i8), scratch(PART, i8), scratch(PART, i8), scratch(PART, i8)
    )  # fmt: skip
    for a in range(0, n, PART):
        m = min(PART, n - a)
        prefetch(at, a + AHEAD, m)
        prefetch(w, a + AHEAD, m)
        yy, ss, ww, here = y[a : a + m], s[a : a + m], w[a : a + m], at[a : a + m]
        prefetch_cells(here, n_terms, rows, sums, squares)
        for j in range(m):
            place[j] = u8(here[j]) * u8(2) + u8(yy[j])
            v[j] = ww[j] * ww[j]
        if is_any_from(v[:m], LARGE):
            move_heavy_rows(v[:m], place, w2)
        split_block(ww, h1, l1)
        split_block(v[:m], h2, l2)
        if laned:
            for j in range(m):
                lane[j] = u8(((j & (LANES - 1)) * 2 * cells + i8(place[j])) * width)
            for j in range(m):
                to = lane[j]
                lanes[to] += 1
                lanes[to + u8(1)] += h1[j]
                lanes[to + u8(2)] += l1[j]
                lanes[to + u8(3)] += h2[j]
                lanes[to + u8(4)] += l2[j]
        else:
            for j in range(m):
                rows[place[j]] += 1
                add_fixed(excess, u8(2) * place[j], h1[j] - i8(1 << 20), l1[j])
                add_saturating(w2, u8(2) * place[j], h2[j], l2[j])
        clip = terms.shape[0] > 0 and not logit and may_clip_block(eps, ss)
        for t in range(n_terms):
            fill_block(terms[t], logit, eps, clip, yy, ss, k, f, out)
            loss = terms[t] == LOG_LOSS
            for j in range(m):
                out[j] *= ww[j]
            if is_any_from(out[:m], LARGE):
                move_large_rows(out[:m], here, n_terms, t, large, squares)
            for j in range(m):
                two[j] = u8(here[j]) * u8(n_terms) + u8(t)
                one[j] = u8(2) * two[j] + u8(yy[j])
                v[j] = out[j] * ww[j]
            if is_any_from(v[:m], LARGE):
                move_heavy_rows(v[:m], one, w2x)
            split_block(out[:m], h1, l1)
            split_block(v[:m], h2, l2)
            for j in range(m):
                v[j] = out[j] * out[j]
            if is_any_from(v[:m], LARGE):
                move_heavy_rows(v[:m], two, squares)
            split_squares(v[:m], loss, h3, l3)
            if laned:
                first = u8(5 + 6 * t)
                for j in range(m):
                    to = lane[j] + first
                    lanes[to] += h1[j]
                    lanes[to + u8(1)] += l1[j]
                    lanes[to + u8(2)] += h2[j]
                    lanes[to + u8(3)] += l2[j]
                    lanes[to + u8(4)] += h3[j]
                    lanes[to + u8(5)] += l3[j]
            else:
                for j in range(m):
                    add_fixed(sums, u8(2) * one[j], h1[j], l1[j])
                    add_saturating(w2x, u8(2) * one[j], h2[j], l2[j])
                    add_saturating(squares, u8(2) * two[j], h3[j], l3[j])
            if loss and clip:
                for j in range(m):
                    clipped[two[j]] += is_clipped(eps, yy[j], ss[j])
        if laned and (a + m == n or (a // PART) % FLUSH_PARTS == FLUSH_PARTS - 1):
            flush_weighted_lanes(lanes, cells, n_terms, rows, excess, sums, squares, w2, w2x)
    return 0
