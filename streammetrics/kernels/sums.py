"""Exact sums over scored rows: rows and weight by label, and the terms behind log-loss, Brier score and calibration.

A term is computed once per row in float64, in loops that vectorise, and added as integers: a fixed number of 2**-60 (see
module `exact`), by adding a magic number and reading the bits. Integer sums do not depend on order. A term of 2**31 or
more (a heavy weight, a wild logit) goes to a superaccumulator instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import elementary
from ._jit import inline, kernel
from .exact_sums import add_exact

f4, f8, i4, i8, u8 = np.float32, np.float64, np.int32, np.int64, np.uint64

BLOCK = 1024
LANES = 4
TERMS = ("score", "log_loss", "brier")  # by their number in the kernel
SCORE, LOG_LOSS, BRIER = 0, 1, 2
LARGE = 2.0**31  # terms from here on leave the fixed-point range

HIGH, LOW = 1.5 * 2.0**32, 1.5 * 2.0**-8  # adding them rounds to 2**-20 and 2**-60
HIGH_BITS, LOW_BITS = i8(0x41F8000000000000), i8(0x3F78000000000000)
LOW_MASK = i8((1 << 40) - 1)

log = inline(elementary.log)
sigmoid = inline(elementary.sigmoid)
softplus = inline(elementary.softplus)


@inline
def split(v: Any) -> Any:
    """Return v as high * 2**-20 + low * 2**-60, for |v| < 2**31."""
    t = v + HIGH
    rest = v - (t - HIGH)
    return f8(t).view(i8) - HIGH_BITS, f8(rest + LOW).view(i8) - LOW_BITS


@inline
def add_fixed(numbers: Any, at: Any, high: Any, low: Any) -> None:
    """Add to one fixed number of a flat array, kept canonical."""
    low += numbers[at + u8(1)]
    numbers[at] += high + (low >> i8(40))
    numbers[at + u8(1)] = low & LOW_MASK


@inline
def chance(y: Any, s: Any) -> Any:
    """Return the probability of what has happened: p or 1 - p, without a branch."""
    return abs(f8(i4(1) - i4(y)) - f8(s))


@inline
def loss(q: Any, eps: Any, top: Any) -> Any:
    """Return the log-loss of a row, its chance kept within [eps, top]."""
    q = q if q > eps else eps
    return -log(q if q < top else top)


@inline
def add_up(term: Any, eps: Any, y: Any, s: Any) -> Any:
    """Return the sum of one term of a block of probabilities as (high, low), not carried, and how many were clipped.

    One loop, so that adding hides behind the logarithm, which waits for its own results.
    """
    top, highs, lows, hits = 1.0 - eps, i8(0), i8(0), i8(0)
    if term == LOG_LOSS:
        for j in range(s.shape[0]):
            q = chance(y[j], s[j])
            hits += i8((q < eps) | (q > top))
            high, low = split(loss(q, eps, top))
            highs += high
            lows += low
    elif term == BRIER:
        for j in range(s.shape[0]):
            d = f8(s[j]) - f8(i4(y[j]))
            high, low = split(d * d)
            highs += high
            lows += low
    else:
        for j in range(s.shape[0]):
            high, low = split(f8(s[j]))
            highs += high
            lows += low
    return highs, lows, hits


@inline
def fill(term: Any, logit: Any, eps: Any, y: Any, s: Any, out: Any, clipped: Any) -> None:
    """Write one term of every row of a block."""
    n = s.shape[0]
    if term == LOG_LOSS and logit:
        for j in range(n):
            z = f8(s[j])
            out[j] = softplus(-z if y[j] else z)
    elif term == LOG_LOSS:
        top = 1.0 - eps
        for j in range(n):
            q = chance(y[j], s[j])
            clipped[j] = (q < eps) | (q > top)
            out[j] = loss(q, eps, top)
    else:
        for j in range(n):
            out[j] = f8(s[j])
        if logit:
            for j in range(n):
                out[j] = sigmoid(out[j])
        if term == BRIER:
            for j in range(n):
                d = out[j] - f8(i4(y[j]))
                out[j] = d * d


@inline
def bad_values(logit: Any, y: Any, s: Any) -> Any:
    """Whether a label or score is not what it should be."""
    bad = i4(0)
    if logit:
        for j in range(s.shape[0]):
            bad |= i4(y[j] > 1) | i4(not (abs(s[j]) < np.inf))
    else:
        for j in range(s.shape[0]):
            bad |= i4(y[j] > 1) | i4(not (s[j] >= 0)) | i4(not (s[j] <= 1))
    return bad


@kernel(out=("rows", "excess", "sums", "large", "clipped"))
def sum_scores(
    y: Any, s: Any, w: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add the terms asked for; return -1 if a value is bad (nothing was added), else how many terms were large.

    `w` is empty for no weights; `large` for terms that cannot be: of probabilities without weights.
    """
    n_terms, n, n_large = terms.shape[0], s.shape[0], i8(0)
    out, hit = np.empty(BLOCK, f8), np.zeros(BLOCK, np.uint8)
    total, counts, weights, hits = np.zeros(2 * n_terms, i8), np.zeros(2, i8), np.zeros(4, i8), np.zeros(n_terms, i8)
    for a in range(0, n if large.shape[0] else 0, BLOCK):  # large terms are added as they come: check before
        b = min(a + BLOCK, n)
        if bad_values(logit, y[a:b], s[a:b]):
            return -1
    for a in range(0, n, BLOCK):
        m = min(BLOCK, n - a)
        yy, ss = y[a : a + m], s[a : a + m]
        if not large.shape[0] and bad_values(logit, yy, ss):
            return -1
        positives = i4(0)
        for j in range(m):
            positives += i4(yy[j])
        counts[1] += positives
        counts[0] += m - positives
        for j in range(m if w.shape[0] else 0):
            high, low = split(w[a + j])
            add_fixed(weights, u8(2) * u8(yy[j]), high - i8(1 << 20), low)
        for t in range(n_terms):
            if not large.shape[0]:  # plain probabilities without weights
                highs, lows, block_hits = add_up(terms[t], eps, yy, ss)
                add_fixed(total, u8(2 * t), highs, lows)
                hits[t] += block_hits
                continue
            fill(terms[t], logit, eps, yy, ss, out[:m], hit)
            for j in range(m if w.shape[0] else 0):
                out[j] *= w[a + j]
            for j in range(m):
                if out[j] >= LARGE:
                    add_exact(large, u8(t) * u8(68), out[j])
                    out[j] = 0.0
                    n_large += 1
            highs, lows = i8(0), i8(0)
            for j in range(m):
                high, low = split(out[j])
                highs += high
                lows += low
            add_fixed(total, u8(2 * t), highs, lows)
            if terms[t] == LOG_LOSS and not logit:
                for j in range(m):
                    hits[t] += i8(hit[j])
    for c in range(2):
        rows[c] += counts[c]
        if w.shape[0]:
            add_fixed(excess, u8(2 * c), weights[2 * c], weights[2 * c + 1])
    for t in range(n_terms):
        clipped[t] += hits[t]
        add_fixed(sums, u8(2 * t), total[2 * t], total[2 * t + 1])
    return n_large


@inline
def pour(lanes: Any, slices: Any, n_terms: Any, rows: Any, sums: Any) -> None:
    """Add what the lanes hold to rows and sums, and empty them."""
    width = 2 + 2 * n_terms
    for k in range(LANES * slices):
        i, lane = k % slices, k * width
        for c in range(2):
            rows[2 * i + c] += lanes[lane + c]
        for t in range(n_terms):
            add_fixed(sums, u8(2 * (i * n_terms + t)), lanes[lane + 2 + 2 * t], lanes[lane + 3 + 2 * t])
    lanes[:] = 0


@kernel(out=("rows", "excess", "sums", "large", "clipped"))
def sum_slices(
    y: Any, s: Any, w: Any, at: Any, slices: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add the terms asked for to the slice of each row; all values have been checked. Return how many were large.

    Arrays are flat, slices first. With few slices rows take turns on four lanes of private sums, because adding to one
    place again has to wait for the time before.
    """
    n_terms, n, n_large = terms.shape[0], s.shape[0], i8(0)
    width = 2 + 2 * n_terms
    laned = n >= 8 * slices
    lanes = np.zeros(LANES * slices * width if laned else 0, i8)
    out, hit = np.empty(BLOCK, f8), np.zeros(BLOCK, np.uint8)
    place = np.empty(BLOCK, np.uint64)
    for a in range(0, n, BLOCK):
        m = min(BLOCK, n - a)
        yy, ss, here = y[a : a + m], s[a : a + m], at[a : a + m]
        if laned:
            for j in range(m):
                place[j] = u8(((j & (LANES - 1)) * slices + here[j]) * width)
            for j in range(m):
                lanes[place[j] + u8(yy[j])] += 1
        else:
            for j in range(m):
                rows[u8(here[j]) * u8(2) + u8(yy[j])] += 1
        for j in range(m if w.shape[0] else 0):
            high, low = split(w[a + j])
            add_fixed(excess, u8(2) * (u8(here[j]) * u8(2) + u8(yy[j])), high - i8(1 << 20), low)
        for t in range(n_terms):
            fill(terms[t], logit, eps, yy, ss, out[:m], hit)
            for j in range(m if w.shape[0] else 0):
                out[j] *= w[a + j]
            for j in range(m if large.shape[0] else 0):
                if out[j] >= LARGE:
                    add_exact(large, (u8(here[j]) * u8(n_terms) + u8(t)) * u8(68), out[j])
                    out[j] = 0.0
                    n_large += 1
            if laned:
                first = u8(2 + 2 * t)
                for j in range(m):
                    high, low = split(out[j])
                    lanes[place[j] + first] += high
                    lanes[place[j] + first + u8(1)] += low
            else:
                for j in range(m):
                    high, low = split(out[j])
                    add_fixed(sums, u8(2) * (u8(here[j]) * u8(n_terms) + u8(t)), high, low)
            for j in range(m if terms[t] == LOG_LOSS and not logit else 0):
                if hit[j]:
                    clipped[u8(here[j]) * u8(n_terms) + u8(t)] += 1
        if laned and (a + m == n or (a // BLOCK) % 4096 == 4095):  # before the low limbs can overflow
            pour(lanes, slices, n_terms, rows, sums)
    return n_large
