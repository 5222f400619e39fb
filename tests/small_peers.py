"""A small table of peers, for tests that must not hang on what the shipped ones say."""

from __future__ import annotations

import tomllib

import pytest

from streammetrics.guide import suggest, tables

SMALL = """
[[sklearn.roc_auc_score]]
ours = "AUC()"
data = "binary_scores"
[[sklearn.roc_auc_score]]
arguments = "max_fpr=0.1"
ours = "AUC(max_fpr=0.1)"
data = "binary_scores"
[[sklearn.roc_curve]]
ours = "ROCCurve()"
data = "own"
read = "[0]"
ours_read = ".fpr"
[[sklearn.silhouette_score]]
why = "feature-space clustering: needs all pairs of rows"
[[torchmetrics.BinaryAUROC]]
ours = "AUC()"
data = "binary_scores"
[[torchmetrics.BinaryCalibrationError]]
arguments = "n_bins=15, norm='l1'"
ours = "ExpectedCalibrationError(n_bins=15)"
data = "binary_scores"
note = "A probability of 1 is in the last bin here."
differs = true
[[torchmetrics.MulticlassAUROC]]
arguments = "num_classes=C"
ours = "AUC(num_classes=C)"
data = "class_scores"
[[tfma.SlicedThings]]
ours = "Sliced(CTR(), by='country')"
data = "own"
"""


@pytest.fixture
def small_peers(monkeypatch: pytest.MonkeyPatch) -> tuple[tables.PeerLine, ...]:
    """The small table instead of those that are shipped."""
    found = tuple(tables.parse_table(tomllib.loads(SMALL)))
    for module in (tables, suggest):
        monkeypatch.setattr(module, "load_lines", lambda: found)
    return found
