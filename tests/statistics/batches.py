"""The same rows counted in every way: alone, in slices, in parts merged in any order, after bad batches."""

from __future__ import annotations

import numpy as np
import pytest

from streammetrics.batch.column_binding import PLAIN
from streammetrics.count.batch_updater import BatchUpdater
from streammetrics.count.reads import Read
from streammetrics.errors import InvalidInputError
from streammetrics.state.axes import Axis
from tests.statistics import frozen

WEIGHTS = ("none", "ones", "some", "mixed")
BY = Axis(("k",))
TENS = np.array([float(f"1e{k}") for k in range(-12, 13)])  # as written, whatever pow does


def fed(state, *batches):
    """Count batches."""
    feed = BatchUpdater([Read(state, PLAIN)])
    for columns in batches:
        feed.count(columns)
    return feed.states[0]


# -- rows, the same on every machine: of integers, of random(), and of +, -, *, / alone --------------------------------


def one_of(rng, these):
    return these[int(rng.integers(len(these)))]


def bell(rng, shape):
    """Nearly normal numbers."""
    return ((rng.random(shape) + rng.random(shape)) + (rng.random(shape) + rng.random(shape)) - 2.0) * 1.75


def tens(rng, low, high, shape=None):
    """Powers of ten, low <= exponent < high."""
    return TENS[rng.integers(low, high, shape) + 12]


def shares(rng, n, width):
    """Distributions over classes."""
    made = rng.random((n, width)) + 2.0**-20
    total = made[:, 0].copy()
    for i in range(1, width):
        total += made[:, i]
    return made / total[:, None]


def weights(rng, n, how):
    if how == "none" or (how == "mixed" and rng.random() < 0.5):
        return {}
    return {
        "sample_weight": np.ones(n) if how == "ones" else np.where(rng.random(n) < 0.2, 0, rng.random(n) * 5 + 1e-3)
    }


def batches_of(make, seed, how, many=4):
    """Some batches; one of a row, one strided."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(many):
        n = 1 if i == 1 else int(rng.integers(2, 1500))
        columns = make(rng, n) | weights(rng, n, how)
        if i == 2:
            columns = {name: np.repeat(values, 2, axis=0)[::2] for name, values in columns.items()}
        made.append(columns)
    return made


def rows_of(columns, which):
    return {name: values[which] for name, values in columns.items()}


# -- what is seen of a state -------------------------------------------------------------------------------------------


def flats(state):
    """The arrays of a state of one cell."""
    held = {name: state.read_part(part) for name, part in state.parts().items() if name != "dropped"}
    return {name: array for name, array in held.items() if array is not None}


def see(view, state, batches):
    """What is frozen of a state of these batches."""
    assert batches
    return view(state) | {"facts": state.facts()}


def counted(like, make, *, seed, how, bad=None, view=flats):
    """Compare with what is frozen, and a state with the same rows counted in another way."""
    batches = batches_of(make, seed, how)
    rng = np.random.default_rng(seed + 1000)
    lone = fed(like, *batches)
    lone.check()
    seen = [see(view, lone, batches)]
    merged_anyhow(like, lone, batches, seed)
    if how == "ones":
        bare = [{n: v for n, v in columns.items() if n != "sample_weight"} for columns in batches]
        assert fed(like, *bare) == lone
    for keys in (np.array([5, -3, 1 << 40]), np.array(["b", "a", "é"])):
        at = [rng.integers(0, 3, len(next(iter(c.values())))) for c in batches]
        seen += in_slices(like, lone, batches, keys, at, view)
    if bad is not None:
        after_bad(like, lone, batches, bad)
    frozen.check(*seen, what=f"seed {seed}")
    return lone


def merged_anyhow(like, lone, batches, seed):
    rng = np.random.default_rng(seed + 2000)
    parts = [fed(like, columns) for columns in batches]
    first, *rest = [parts[i] for i in rng.permutation(len(parts))]
    assert first.merge(*rest) == lone
    assert fed(parts[0], *batches[1:]) == lone


def in_slices(like, lone, batches, keys, at, view):
    """Each slice is what its rows alone make; the views of the slices by key."""
    keyed = [c | {"k": keys[k]} for c, k in zip(batches, at, strict=True)]
    sliced = fed(like.empty_copy((BY,)), *keyed)
    sliced.check()
    assert sliced.without_axes == lone
    seen = {}
    for i, rank in enumerate(sliced.cells.keys[:, 0].tolist()):
        k = keys.tolist().index(sliced.cells.vocabularies[0].read_key(rank))
        mine = [rows_of(c, a == k) for c, a in zip(batches, at, strict=True) if (a == k).any()]
        assert sliced.read_cell(i) == fed(like, *mine)
        seen[k] = see(view, sliced.read_cell(i), mine)
    one, *others = (fed(like.empty_copy((BY,)), columns) for columns in reversed(keyed))
    assert one.merge(*others) == sliced
    return [seen[k] for k in sorted(seen)]


def after_bad(like, lone, batches, bad):
    feed = BatchUpdater([Read(like, PLAIN)])
    for columns in batches:
        with pytest.raises(InvalidInputError):
            feed.count(bad(columns))
        feed.count(columns)
    assert feed.states[0] == lone
