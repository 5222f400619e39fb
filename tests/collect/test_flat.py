"""Results as loggers take them."""

from __future__ import annotations

import math
import re
import warnings

import pytest

import streammetrics as sm

ROWS = {"y_true": [0, 1, 1, 0], "y_score": [0.1, 0.9, 0.4, 0.6], "arm": ["A", "A", "B", None], "n": [1, 2, 3, 4]}
MLFLOW = re.compile(r"^[/\w.\- ]*$")  # what its server accepts
TENSORBOARD = re.compile(r"^[-/\w.]*$")  # what its writer leaves as it is


def test_every_value_is_a_float_under_a_name_that_all_take() -> None:
    metrics = sm.MetricCollection(
        {"ctr": sm.Task([sm.AUC(), sm.PrecisionAtRecall(recall=0.5)])},
        sm.Precision(threshold=0.3),
        sm.ROCCurve(),
        sm.CalibrationCurve(),
        {"arms": sm.Sliced(sm.MetricCollection(sm.AUC(), sm.CTR()), by=("arm", "n"))},
    )
    found = sm.flat(metrics.update(ROWS), "nan")
    assert list(found)[:3] == ["ctr/auc", "ctr/precision_at_recall_at_0.5", "precision_at_0.3"]
    assert {"arms/A/1/auc", "arms/null/4/ctr"} < found.keys()
    assert math.isnan(found["arms/A/1/auc"])
    assert all(type(v) is float for v in found.values())
    assert all(MLFLOW.match(n) and TENSORBOARD.match(n) for n in found)
    assert found["ctr/auc"] == metrics.compute()["ctr/auc"]


def test_undefined_values_are_left_out_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sm.flat(sm.AUC()) == {}
        assert list(sm.flat(sm.AUC(), undefined="nan")) == ["auc"]
    with pytest.raises(ValueError, match='"omit" or "nan"'):
        sm.flat(sm.AUC(), "zero")


def test_slices_bundles_and_classes() -> None:
    arms = sm.Sliced(sm.CTR(), by="arm").update(ROWS)
    assert sm.flat(arms) == {"null/ctr": 0.0, "A/ctr": 0.5, "B/ctr": 1.0}
    assert sm.flat(sm.Bundle({"all": arms.total, "arms": arms})) == {
        "all/ctr": 0.5,
        **{f"arms/{n}": v for n, v in sm.flat(arms).items()},
    }
    recall = sm.Recall(num_classes=3, threshold=None, average=None).update([0, 1, 2], y_pred=[0, 2, 2])
    assert sm.flat(recall) == {"recall_each/0": 1.0, "recall_each/1": 0.0, "recall_each/2": 1.0}
    assert sm.flat(sm.ConfusionMatrix(num_classes=3, threshold=None).update([0, 1], y_pred=[0, 1])) == {}


def test_two_values_of_one_name() -> None:
    arms = sm.Sliced(sm.CTR(), by="arm").update([0, 1], arm=["a b", "a_b"])
    with pytest.raises(ValueError, match="'a_b/ctr' and 'a b/ctr' would both be logged as 'a_b/ctr'"):
        sm.flat(arms)
