"""Moments: what they counted always, however the rows come."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.format import frame
from streammetrics.statistics.moments import Moments
from tests.statistics.batches import WEIGHTS, bell, counted, fed, one_of, tens

PAIR = ("y_true", "y_pred")
CASES = [
    {"terms": ()},
    {"terms": ("x",)},
    {"terms": ("x", "xx")},
    {"columns": PAIR, "terms": ("x", "y", "xx", "xy", "yy")},
    {"columns": PAIR, "terms": ("xy", "y"), "num_outputs": 2},
]


@pytest.mark.parametrize("settings", CASES, ids=str)
@pytest.mark.parametrize("how", WEIGHTS)
def test_as_frozen(settings, how):
    roles, outputs = settings.get("columns", ("value",)), settings.get("num_outputs")

    def make(rng, n):
        shape = n if outputs is None else (n, outputs)
        return {
            r: (1e8 + bell(rng, shape) * tens(rng, -6, 7, shape)).astype(one_of(rng, ["f4", "f8", "i8"])) for r in roles
        }

    def bad(columns):
        return columns | {roles[0]: np.full(len(columns[roles[0]]), 1e300)}

    for seed in range(2):
        made = counted(Moments(**settings), make, seed=seed, how=how, bad=bad)
        if "xx" in made.terms:
            assert made.covariance("x", "x") >= 0


@pytest.mark.parametrize("octaves", [1, 12, 19, 25, 60, 180])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("terms", [("x",), ("x", "y", "xx", "xy", "yy"), ("xxx", "xxxx")], ids=str)
def test_sums_are_those_of_fractions_whatever_the_sizes(terms, weighted, octaves):
    """Of blocks in which the least is so much smaller than the largest that bits fall below all cuts.

    If numbers grow from block to block, the largest of the block before is no bound.
    """
    rng = np.random.default_rng(octaves)
    n = 2300
    drawn = {r: rng.standard_normal(n) * 2.0 ** rng.integers(-octaves, octaves + 1, n) for r in PAIR}
    for columns in (drawn, {r: np.array(sorted(c, key=abs)) for r, c in drawn.items()}):
        if weighted:
            columns["sample_weight"] = rng.random(n) + 2.0**-9
        made = fed(Moments(columns=PAIR, terms=terms), columns)
        exact = {"x": list(map(Fraction, columns["y_true"])), "y": list(map(Fraction, columns["y_pred"]))}
        weights = list(map(Fraction, columns.get("sample_weight", np.ones(n))))
        for term in terms:
            rows = zip(*(exact[letter] for letter in term), weights, strict=True)
            assert made.total(term) == sum(map(math.prod, rows)), term


def test_squares_that_are_too_small_are_found_behind_a_part_that_is_sound():
    sound = sm.Variance().update(value=[1.0, 2.0, 4.0]).state
    sums = sound.cells.flats["sums"].copy()
    sums[:, sound.terms.index("xx")] = 0
    flats = {**sound.cells.flats, "sums": sums}
    bad = frame.write_frame([sound.with_cells(replace(sound.cells, flats=flats))], {})
    for parts in ([bad], [frame.write_frame([sound], {}), bad]):
        with pytest.raises(sm.StateFormatError, match="smaller than the means allow"):
            frame.merge_frames(parts)


def test_columns_have_names_of_their_own():
    for columns in (("a", "a"), ("at",), ("sample_weight", "b"), ()):
        with pytest.raises(ValueError, match="two different columns"):
            Moments(columns=columns)
