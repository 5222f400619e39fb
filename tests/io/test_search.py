"""The log of searches: its truth is what the metrics say."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

import streammetrics as sm
from streammetrics.io.search import write_search_log
from streammetrics.io.sources import LogError


def test_the_truth_is_what_the_metrics_say(tmp_path):
    truth = write_search_log(tmp_path / "log", 500)
    log = pq.read_table(tmp_path / "log")
    assert log.num_rows == truth.rows
    assert truth.queries == 500
    for model in ("score_a", "score_b"):
        rows = {"query": log["query_id"], "y_true": log["grade"], "y_score": log[model]}
        assert sm.NDCG(10).update(rows).compute() == pytest.approx(truth.ndcg[model], rel=1e-12)
        assert sm.MeanReciprocalRank(10).update(rows).compute() == pytest.approx(truth.mrr[model], rel=1e-12)
    assert truth.ndcg["score_a"] < truth.ndcg["score_b"] < 1


def test_the_same_seed_gives_the_same_rows(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_search_log(tmp_path / name, 50, seed)
    a, b, c = (pq.read_table(tmp_path / name) for name in "abc")
    assert a.equals(b)
    assert not a.equals(c)


def test_a_folder_with_files_is_left_alone(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(LogError, match="not empty"):
        write_search_log(tmp_path)
