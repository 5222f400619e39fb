"""Regression sums: what they counted always, however the rows come."""

from __future__ import annotations

import numpy as np
import pytest

from streammetrics.statistics.regression import RegressionSums
from tests.statistics.batches import BY, WEIGHTS, bell, counted, fed, one_of, tens

ANY = ("absolute", "squared", "target", "nonzero", "relative", "guarded", "symmetric", "pinball@0.9", "huber@1.0")
CASES = [
    {"terms": ("absolute",)},
    {"terms": ANY},
    {"terms": ("absolute", "relative"), "num_outputs": 3},
    {"terms": ("log_squared",), "domain": "log1p"},
    {"terms": ("tweedie@1.5", "tweedie@1.0"), "domain": "nonnegative"},
    {"terms": ("tweedie@2.0", "tweedie@3.0"), "domain": "positive"},
]


def maker(settings):
    outputs = settings.get("num_outputs")
    real = settings.get("domain", "real") == "real"

    def make(rng, n):
        shape = n if outputs is None else (n, outputs)
        y, p = (bell(rng, shape) * tens(rng, -6, 7, shape) for _ in range(2))
        y[rng.random(shape) < 0.1] = 0.0
        y, p = (y, p) if real else (np.abs(y) + 0.25, np.abs(p) + 0.25)
        kinds = [np.dtype(one_of(rng, ["f4", "f8"])) for _ in range(2)]
        return {"y_true": y.astype(kinds[0]), "y_pred": p.astype(kinds[1])}

    return make


@pytest.mark.parametrize("settings", CASES, ids=str)
@pytest.mark.parametrize("how", WEIGHTS)
def test_as_frozen(settings, how):
    def bad(columns):
        p = columns["y_pred"].copy()
        p[-1] = np.nan
        return columns | {"y_pred": p}

    for seed in range(2):
        made = counted(RegressionSums(**settings), maker(settings), seed=seed, how=how, bad=bad)
        assert made.total(made.terms[0]) >= 0


def test_integers_and_halves():
    def make(rng, n):
        return {"y_true": rng.integers(-5, 5, n), "y_pred": bell(rng, n).astype(np.float16)}

    counted(RegressionSums(terms=ANY), make, seed=3, how="some")


def test_many_slices_of_few_rows():
    """Where the cells are more than the rows, what was added to is carried at once."""
    settings = {"terms": ("absolute", "squared")}
    rng = np.random.default_rng(0)
    y, p, w, k = rng.normal(size=3000), rng.normal(size=3000), rng.random(3000) + 0.5, np.arange(3000) % 1500
    given = [slice(0, 3000), *(slice(i, i + 7) for i in range(0, 70, 7))]
    columns = {"y_true": y, "y_pred": p, "sample_weight": w}
    sliced = fed(
        RegressionSums(**settings).empty_copy((BY,)),
        *({n: v[g] for n, v in (columns | {"k": k}).items()} for g in given),
    )
    sliced.check()
    for i in range(0, 1500, 91):
        which = [np.flatnonzero(k[g] == i) + (g.start or 0) for g in given]
        alone = fed(RegressionSums(**settings), *({n: v[g] for n, v in columns.items()} for g in which if len(g)))
        assert sliced.read_cell(i) == alone
