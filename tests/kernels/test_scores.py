"""The histogram: its map never decreases, its counts are right, and what it does in one form it does in all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from counting import counted as by_cell
from draws import FIRST_BINARY

import streammetrics as sm

SCALES = ("probability", "real", "logit")


def buckets(scores: Any, scale: str, bits: int) -> Any:
    """The bucket of every score, found by giving each a slice of its own."""
    empty = sm.extend.ScoreHistogram(scale=scale, bits=bits, limit=0)
    rows = {"y_true": np.zeros(len(scores), bool), "y_score": scores, "cell": np.arange(len(scores))}
    return by_cell(empty, rows, "cell").cells.tallies["rows"].places.astype(np.int64) >> 1


def counted(scores: Any, scale: str, bits: int) -> Any:
    """How many of sorted scores are in each bucket."""
    empty = sm.extend.ScoreHistogram(scale=scale, bits=bits, limit=0)
    held = by_cell(empty, {"y_true": np.zeros(len(scores), bool), "y_score": scores}).rows
    out = np.zeros(empty.buckets, np.int64)
    out[held.places.astype(np.int64) >> 1] = held.counts
    return out


def adversarial(dtype: Any, scale: str) -> Any:
    """Sorted scores around every place where a map could step back."""
    rng = np.random.default_rng(3)
    kind = np.dtype(dtype)
    whole = np.uint32 if kind == np.float32 else np.uint64
    finite = np.uint64(0x7F7FFFFF) if kind == np.float32 else np.uint64(0x7FEFFFFFFFFFFFFF)
    shift = np.uint64(13 if kind == np.float32 else 42)
    tops = np.unique(rng.integers(0, int(finite >> shift), 150_000).astype(np.uint64)) << shift  # edges of cells
    patterns = np.concatenate([tops, tops + np.uint64(1), np.maximum(tops, np.uint64(1)) - np.uint64(1)])
    found = np.minimum(patterns, finite).astype(whole).view(kind)
    found = np.concatenate([found, -found, [0.0, -0.0, np.finfo(kind).tiny, np.finfo(kind).max]]).astype(kind)
    if scale == "probability":
        found = found[(found >= 0) & (found <= 1)]
        near = (rng.random(200_000) ** 8).astype(kind)
        half = kind.type(0.5)
        ulps = [half, np.nextafter(half, kind.type(0)), np.nextafter(half, kind.type(1))]
        found = np.concatenate([found, 1 - found, near, 1 - near, np.asarray(ulps, kind)])
    return np.sort(found)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 12, 16])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", ["probability", "real"])
def test_the_map_never_decreases(scale: str, dtype: Any, bits: int) -> None:
    scores = adversarial(dtype, scale)
    # counting the first k sorted scores for growing k: buckets fill from the left if and only if the map is monotone
    rows = counted(scores, scale, bits)
    ends = np.cumsum(rows)
    for k in np.linspace(0, len(scores), 200).astype(int):
        part = counted(scores[:k], scale, bits)
        full = np.searchsorted(ends, k, side="right")
        assert (part[:full] == rows[:full]).all()
        assert part[full + 1 :].sum() == 0
    sample = scores[:: max(1, len(scores) // 3000)]
    assert (np.diff(buckets(sample, scale, bits)) >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_equal_numbers_of_any_width_share_a_bucket(scale: str) -> None:
    for dtype in (np.float16, np.float32):
        with np.errstate(over="ignore"):
            scores = adversarial(np.float32, "probability" if scale == "probability" else "real").astype(dtype)
        scores = scores[np.isfinite(scores)]
        narrow = scores.astype(np.float32)
        a, b = (counted(s, scale, 12) for s in (narrow, narrow.astype(np.float64)))
        assert (a == b).all()


def log(n: int, scale: str, dtype: Any, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 3, n)
    s = 1 / (1 + np.exp(-z)) if scale == "probability" else z * 10.0 ** rng.integers(-3, 3, n)
    s[rng.random(n) < 0.05] = 0.0
    return (rng.random(n) < 0.3).astype(np.uint8), s.astype(dtype), rng.integers(0, 9, n) / 4


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("scale", SCALES)
def test_coarsening_gives_what_counting_coarsely_gives(scale: str, dtype: Any, weighted: bool) -> None:
    y, s, w = log(3000, scale, dtype)
    extra = {"sample_weight": w} if weighted else {}
    fine = sm.AUC(scale=scale, bits=16).update(y, s, **extra)
    for bits in (8, 11, 15):
        assert sm.coarsen(fine, bits).digest() == sm.AUC(scale=scale, bits=bits).update(y, s, **extra).digest()
    for exact in (np.array([0.0, 0.5, 1.0]), np.array([0.25, 0.75])):  # on the grid at 16 bits and below
        assert not sm.coarsen(sm.AUC(bits=16).update(np.arange(len(exact)) % 2, exact), 8).explain()["off_grid"]


@pytest.mark.parametrize("scale", SCALES)
def test_off_grid_is_a_bit_lost(scale: str) -> None:
    for score, bits in (
        (0.5, 12),
        (0.25, 12),
        (0.3, 16),
        (1 - 2.0**-20, 16),
        (2.0**-33 * 1.5, 16),
        (2.0**-33, 16),
        (0.0, 16),
    ):
        empty = sm.extend.ScoreHistogram(scale=scale, bits=bits, limit=0)
        state = by_cell(empty, {"y_true": np.zeros(1, bool), "y_score": np.array([score])})
        mantissa = bits - 6 if scale == "probability" else bits - 9
        z = min(score, 1 - score) if scale == "probability" else score
        fraction, exponent = np.frexp(z)
        kept = (fraction * 2.0 ** (mantissa + 1)).is_integer()
        inside = scale != "probability" or z == 0 or z >= 2.0**-33 * (1 + 2.0**-mantissa)
        assert state.is_exact == bool(kept and inside), (score, bits, exponent)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", SCALES)
def test_a_bad_value_anywhere_takes_everything_back(scale: str, weighted: bool) -> None:
    y, s, w = log(1500, scale, np.float32)
    metric = sm.AUC(scale=scale, bits=12).update(y[:50], s[:50])
    before = metric.digest()
    for at in (0, 1, 255, 256, 257, 511, 512, 1279, 1280, 1499):
        for bad in (np.nan, np.inf, -np.inf):
            broken = s.copy()
            broken[at] = bad
            with pytest.raises(sm.InvalidInputError, match=rf"row {at:,}"):
                metric.update(y, broken, **({"sample_weight": w} if weighted else {}))
            assert metric.digest() == before
    labels = y.copy()
    labels[700] = 2
    with pytest.raises(sm.InvalidInputError, match="y_true"):
        metric.update(labels, s)
    assert metric.digest() == before


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "tag", [t for t in FIRST_BINARY if t != "bucket_error"]
)  # whose slices have a million bins each
def test_slices_are_lone_states_side_by_side(tag: str, weighted: bool) -> None:
    y, s, w = log(5000, "probability", np.float32)
    keys = np.random.default_rng(1).integers(0, 7, len(y))
    extra = {"sample_weight": w} if weighted else {}
    sliced = sm.Sliced(sm.extend.METRICS[tag](), by="k")
    sliced.update({"y_true": y, "y_score": s, "k": keys} | extra)
    for key in range(7):
        mine = keys == key
        alone = sm.extend.METRICS[tag]().update(
            {"y_true": y[mine], "y_score": s[mine]} | {k: v[mine] for k, v in extra.items()}
        )
        assert sliced[key].to_bytes() == alone.to_bytes()
