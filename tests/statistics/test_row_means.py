"""Means over rows of classes and labels: sums as always, and what standard errors need beside them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from streammetrics.batch.columns import Batch
from streammetrics.statistics.row_means import ClassRows, LabelRows
from tests.statistics.batches import WEIGHTS, batches_of, bell, counted, fed, flats, one_of, shares

LOSSES = ("log_loss", "brier", "top@1", "top@2")
CLASSES = [
    {"num_classes": 4, "terms": LOSSES},
    {"labels": ("b", "a", "é", "c"), "terms": ("log_loss",), "eps": 0.01},
    {"num_classes": 4, "terms": LOSSES, "scale": "logit"},
    {"num_classes": 4, "terms": ("top@3",), "scale": "real"},
]
LABELS = [
    {"num_labels": 3, "terms": ("coverage", "precision", "ranking_loss", "subset@0.5", "subset@0.3")},
    {"num_labels": 3, "terms": ("subset@0.5",), "column": "y_pred"},
]
MORE = ("squares", "more_w2", "more_w2x")


def sums_alone(state):
    return {name: array for name, array in flats(state).items() if name not in MORE}


def class_rows(settings):
    names = np.array(settings.get("labels", range(4)))

    def make(rng, n):
        s = shares(rng, n, 4) if settings.get("scale", "probability") == "probability" else bell(rng, (n, 4))
        return {"y_true": names[rng.integers(0, 4, n)], "y_score": s.astype(one_of(rng, ["f2", "f4", "f8"]))}

    return make


def label_rows(settings):
    def make(rng, n):
        y = (rng.random((n, 3)) < 0.4).astype(one_of(rng, ["u1", "i8", "?"]))
        s = rng.integers(0, 6, (n, 3)) / 5
        decided = settings.get("column") == "y_pred"
        return {"y_true": y} | ({"y_pred": (s > 0.5).astype(np.uint8)} if decided else {"y_score": s.astype("f4")})

    return make


def bad(columns):
    y = columns["y_true"].copy()
    y[-1] = "z" if y.dtype.kind == "U" else 7
    return columns | {"y_true": y.astype(np.uint8) * 9 if y.dtype == bool else y}


@pytest.mark.parametrize("settings", CLASSES, ids=str)
@pytest.mark.parametrize("how", WEIGHTS)
def test_classes_as_frozen(settings, how):
    counted(ClassRows(**settings), class_rows(settings), seed=1, how=how, bad=bad, view=sums_alone)


@pytest.mark.parametrize("settings", LABELS, ids=str)
@pytest.mark.parametrize("how", WEIGHTS)
def test_labels_as_frozen(settings, how):
    counted(LabelRows(**settings), label_rows(settings), seed=1, how=how, view=sums_alone)


def short(x):
    """Round to 26 bits."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(fraction, 26)), exponent - 26)


@pytest.mark.parametrize("how", WEIGHTS)
def test_squares_are_exact_sums_of_rounded_products(how):
    settings = CLASSES[0]
    batches, like = batches_of(class_rows(settings), 5, how), ClassRows(**settings)
    state = fed(like, *batches)
    squares, heavy, mixed, close = (Fraction(0) for _ in range(4))
    for columns in batches:
        batch = Batch(columns)
        checked = {need.role: batch.column(need.role, need.kind) for need in like.needs() if need.role in columns}
        x = like.compute_terms(checked)[:, like.terms.index("log_loss")]
        w = columns.get("sample_weight", np.ones(len(x)))
        squares += sum(map(Fraction, short(w * x * (w * x)).tolist()))
        heavy += len(x) + sum(map(Fraction, short((w - 1) * (w + 1)).tolist()))
        mixed += sum(map(Fraction, short((w - 1) * (w * x)).tolist()))
        close += sum(Fraction(a) ** 2 * Fraction(b) for a, b in zip(w.tolist(), x.tolist(), strict=True))
    assert state.square("log_loss") == squares
    assert state.weight_squared() == heavy
    assert state.weight_squared("log_loss") == state.total("log_loss") + mixed
    assert abs(state.weight_squared("log_loss") - close) < Fraction(1, 1 << 20) * close
    if how in ("none", "ones"):
        assert state.more_w2 is None
        assert state.more_w2x is None
        assert state.weight_squared("log_loss") == state.total("log_loss")
