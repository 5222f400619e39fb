from __future__ import annotations

import pytest

from streammetrics.cli.specs import format_spec, make_metrics
from streammetrics.guide.tables import PEERS, load_lines
from tests.small_peers import small_peers  # noqa: F401

small = pytest.mark.usefixtures("small_peers")


@small
class TestFrom:
    def test_one_name(self, run):
        assert run("catalog", "--from", "sklearn", "roc_auc_score").out.splitlines() == [
            "scikit-learn  roc_auc_score()",
            "  sm.AUC()",
            "  --metrics auc",
            "scikit-learn  roc_auc_score(max_fpr=0.1)",
            "  sm.AUC(max_fpr=0.1)",
            "  --metrics auc:max_fpr=0.1",
        ]

    def test_what_differs_is_told(self, run):
        out = run("catalog", "--from", "torchmetrics", "BinaryCalibrationError").out
        assert "  other values: A probability of 1 is in the last bin here." in out

    def test_what_is_not_offered_is_told(self, run):
        out = run("catalog", "--from", "sklearn", "silhouette_score").out
        assert "  not offered: feature-space clustering: needs all pairs of rows" in out

    def test_what_options_cannot_say(self, run):
        assert run("catalog", "--from", "tfma", "SlicedThings").out.splitlines()[1:] == [
            "  sm.Sliced(sm.CTR(), by='country')"
        ]

    @pytest.mark.parametrize("name", ["sklearn.metrics.roc_curve", "ROC_Curve", "roccurve"])
    def test_a_name_in_other_letters(self, run, name):
        assert "sm.ROCCurve().fpr" in run("catalog", "--from", "sklearn", name).out

    def test_a_name_above_several_tasks(self, run):
        out = run("catalog", "--from", "torchmetrics", "AUROC").out
        assert "BinaryAUROC()" in out
        assert "MulticlassAUROC(num_classes=C)" in out

    @pytest.mark.parametrize("library", ["sklearn", "scikit-learn", "SciKit-Learn"])
    def test_all_names(self, run, library):
        head, *rows = run("catalog", "--from", library).out.strip().splitlines()
        assert head.split() == ["scikit-learn", "here", "what", "differs"]
        assert [row.split()[0] for row in rows] == [
            "roc_auc_score()",
            "roc_auc_score(max_fpr=0.1)",
            "roc_curve()[0]",
            "silhouette_score()",
        ]
        assert "not offered: feature-space" in rows[-1]

    def test_on_a_terminal(self, run, monkeypatch):
        for module in ("reports.text_table", "cli.peers"):
            monkeypatch.setattr(f"streammetrics.{module}.is_terminal", lambda: True)
        out = run("catalog", "--from", "sklearn").out
        assert "roc_curve()[0]" in out
        assert "sm.ROCCurve().fpr" in out

    def test_near_misses(self, fails):
        near = "there is no metric 'roc_auc' in scikit-learn; did you mean 'roc_auc_score'?"
        assert fails("catalog", "--from", "sklearn", "roc_auc") == near
        assert fails("catalog", "--from", "sklern") == "there is no library 'sklern'; did you mean 'sklearn'?"


@small
class TestMetricsByTheirNamesElsewhere:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ("roc_auc_score", "scikit-learn's roc_auc_score is called 'auc' here"),
            ("BinaryCalibrationError", "BinaryCalibrationError is called 'expected_calibration_error:n_bins=15' here"),
            ("SlicedThings", "TFMA's SlicedThings is called \"sm.Sliced(sm.CTR(), by='country')\" here"),
            ("silhouette_score", "not offered: feature-space clustering"),
            ("gauc", "did you mean 'group_auc'?"),
            ("COPC", "did you mean 'calibration:inverse=True'?"),
            ("logloss", "did you mean 'log_loss'?"),
            ("xylophone", "there is no metric 'xylophone'; `streammetrics catalog` lists all"),
        ],
    )
    def test_is_told(self, fails, log, given, said):
        assert said in fails("catalog", given)
        assert said in fails("eval", log, "--label", "click", "--score", "pctr_a", "--metrics", given)


@pytest.mark.parametrize("peer", PEERS)
def test_what_is_said_for_options_is_what_they_take(peer):
    """The line for the command line makes the same metric as the one for Python."""
    import streammetrics as sm
    from streammetrics.guide.tables import format_expression

    for ours in sorted({line.ours for line in load_lines() if line.ours and line.peer == peer}):
        if spec := format_spec(ours):
            (made,) = make_metrics([spec]).values()
            assert made == eval(format_expression(ours), {"sm": sm}), ours


def test_calls_with_several_equivalents_name_the_data(run):
    heads = [line for line in run("catalog", "--from", "sklearn", "log_loss").out.splitlines() if line[0] != " "]
    assert heads == ["scikit-learn  log_loss(), two classes", "scikit-learn  log_loss(), several classes"]
    heads = [line for line in run("catalog", "--from", "torchrec", "MSEMetric").out.splitlines() if line[0] != " "]
    assert heads == ["torchrec  MSEMetric()"]


@pytest.mark.parametrize("peer", PEERS)
def test_the_shipped_tables_are_listed(run, peer):
    out = run("catalog", "--from", peer).out
    assert all(line.name in out for line in load_lines() if line.peer == peer)
