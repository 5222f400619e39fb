"""Objects that are made, updated, merged, copied, written, read, reset and refused in any order, against rows in a list.

The model is naive: it keeps rows, and computes in fractions. Whatever happened before, an object must be to the byte what
one update with its rows makes, and its values what the model computes. The normal run is short; for the long form see
`draws`: ``LAWS=100 pytest -m "" tests/laws -n auto``.
"""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from fractions import Fraction

import draws
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, multiple, rule

import streammetrics as sm
from streammetrics.laws.slices import expected_keys

KEYS = ["a", "b", "c", "é", "", None]
ROWS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from([0.0, 0.125, 0.5, 0.5 + 2.0**-40, 0.75, 1.0]) | st.floats(0, 1),
        st.sampled_from([1.0, 1.0, 2.0, 0.0, 0.25]),
        st.sampled_from(KEYS),
    ),
    max_size=6,
)


def columns(rows):
    names = ("y_true", "y_score", "sample_weight", "key")
    dtypes = ("u1", "f8", "f8", object)
    return {n: np.array([r[i] for r in rows], d) for i, (n, d) in enumerate(zip(names, dtypes, strict=True))}


def collection():
    return sm.MetricCollection(
        sm.AUC(bits=8), sm.CTR(), sm.Calibration(), sm.BrierScore(), sm.Precision(), sm.KS(bits=8)
    )


def naive(rows):
    """Values in fractions; of AUC, which the histogram only encloses, too."""
    positive, negative = ([(Fraction(s), Fraction(w)) for y, s, w, _ in rows if y == label] for label in (1, 0))
    P, N = (sum(w for _, w in side) for side in (positive, negative))
    pairs = sum(a * b * (Fraction(1, 2) if p == n else int(p > n)) for p, a in positive for n, b in negative)
    squares = sum(Fraction(w) * (Fraction(s) - y) ** 2 for y, s, w, _ in rows)
    predicted = sum(Fraction(w) * Fraction(s) for _, s, w, _ in rows)
    called = [(y, Fraction(w)) for y, s, w, _ in rows if s >= 0.5]
    return {
        "auc": (pairs, P * N),
        "ctr": (P, P + N),
        "calibration": (predicted, P),
        "brier_score": (squares, P + N),
        "precision": (sum(w for y, w in called if y), sum(w for _, w in called)),
    }


def agree(found, rows):
    """Raise unless a collection has the values that its rows have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sm.UndefinedMetricWarning)
        values, limits = found.compute(), found.bounds()
    for name, (above, below) in naive(rows).items():
        value, (low, high) = values[name], limits[name]
        if not below:
            assert math.isnan(value), name
        elif name == "auc":
            assert Fraction(low) <= above / below <= Fraction(high) or low == high == float(above / below)
            assert low <= value <= high
        elif name in ("ctr", "precision"):
            assert value == float(above / below)
        else:
            assert math.isclose(value, float(above / below), rel_tol=1e-12, abs_tol=2.0**-58)


class Machine(RuleBasedStateMachine):
    """Pairs of an object and the rows it has seen."""

    things = Bundle("things")

    def make(self):
        return collection()

    def read(self, rows):
        made = columns(rows)
        del made["key"]
        return made

    def right(self, thing, rows):
        whole = self.make().update(self.read(rows))
        assert thing.digest() == whole.digest()
        assert thing.to_bytes() == whole.to_bytes()
        return thing, rows

    @rule(target=things)
    def new(self):
        return self.right(self.make(), [])

    @rule(target=things, pair=consumes(things), rows=ROWS)
    def update(self, pair, rows):
        thing, seen = pair
        assert thing.update(self.read(rows)) is thing
        return self.right(thing, seen + rows)

    @rule(target=things, pair=consumes(things), rows=ROWS)
    def update_without_weights(self, pair, rows):
        thing, seen = pair
        plain = self.read(rows)
        del plain["sample_weight"]
        return self.right(thing.update(plain), seen + [(y, s, 1.0, k) for y, s, _, k in rows])

    @rule(target=things, pair=consumes(things), other=consumes(things))
    def merge(self, pair, other):
        (thing, seen), (theirs, more) = pair, other
        assert thing.merge(theirs) is thing
        return multiple(self.right(thing, seen + more), self.right(theirs, more))

    @rule(target=things, pair=things, how=st.sampled_from(["copy", "deepcopy", "pickle", "bytes", "merge"]))
    def twin(self, pair, how):
        thing, seen = pair
        made = {
            "copy": thing.copy,
            "deepcopy": lambda: copy.deepcopy(thing),
            "pickle": lambda: pickle.loads(pickle.dumps(thing)),
            "bytes": lambda: sm.from_bytes(thing.to_bytes()),
            "merge": lambda: sm.merge([thing.to_bytes(), self.make()]),
        }[how]()
        assert made is not thing
        assert made == thing
        return self.right(made, list(seen))

    @rule(target=things, pair=consumes(things))
    def reset(self, pair):
        return self.right(pair[0].reset(), [])

    @rule(pair=things, rows=ROWS, where=st.data())
    def refused_update(self, pair, rows, where):
        thing, seen = pair
        made = self.read([*rows, (1, 0.5, 1.0, "a")])
        at = where.draw(st.integers(0, len(rows)))
        name, bad = where.draw(st.sampled_from([("y_true", 2), ("y_score", np.nan), ("sample_weight", -1)]))
        made[name][at] = bad
        with pytest.raises(sm.InvalidInputError) as caught:
            thing.update(made)
        assert (caught.value.column, caught.value.row, caught.value.count) == (name, at, 1)
        self.right(thing, seen)

    @rule(pair=things)
    def refused_merge(self, pair):
        thing, seen = pair
        for other in (thing, sm.MetricCollection(sm.CTR()), sm.Sliced(sm.CTR(), by="key")):
            with pytest.raises(sm.IncompatibleStateError):
                thing.merge(other)
        self.right(thing, seen)

    @rule(pair=things)
    def compute(self, pair):
        thing, seen = pair
        agree(thing, seen)
        thing.table(), thing.explain(), repr(thing)
        self.right(thing, seen)


class SliceMachine(Machine):
    """The same of slices within a limit; keys come and go."""

    def make(self):
        return sm.Sliced(collection(), by="key", limit=2, values=["c"])

    def read(self, rows):
        return columns(rows)

    @rule(pair=Machine.things)
    def compute(self, pair):
        thing, seen = pair
        kept = expected_keys([(row[3],) for row in seen], {"limit": 2, "values": ["c"]})
        assert set(thing.keys) == {key[0] for key in kept}
        for key in thing:
            agree(thing[key], [row for row in seen if row[3] == key])
        agree(thing.other, [row for row in seen if (row[3],) not in kept])
        agree(thing.total, seen)
        thing.table(), repr(thing), thing.compute()
        self.right(thing, seen)


WIDE = pytest.mark.filterwarnings("ignore::streammetrics.errors.WideBoundsWarning")  # of few rows in few buckets
TestCollection = pytest.mark.slow(WIDE(Machine.TestCase))
TestCollection.settings = draws.short(25, stateful_step_count=15)
TestSlices = pytest.mark.slow(WIDE(SliceMachine.TestCase))
TestSlices.settings = draws.short(20, stateful_step_count=15)
