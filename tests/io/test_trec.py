"""What trec_eval prints for its own test files, to the last digit; and what its readers refuse."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import streammetrics as sm
from streammetrics.io.trec import read_qrels, read_run, trec_rows

HERE = Path(__file__).parent.parent
TREC = Path(os.environ.get("STREAMMETRICS_DATA", HERE.parent.parent / "shared" / "data")) / "trec"
CUTS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)

RUNS = {  # what trec_eval printed, of what, and how it was asked
    "out.test.a": ("qrels.test", "results.test", {}),
    "out.test.aq": ("qrels.test", "results.test", {}),
    "out.test.aqc": ("qrels.test", "results.trunc", {"complete": True}),
    "out.test.aql": ("qrels.rel_level", "results.test", {"level": 2.0}),
}


def measures(level: float | None) -> Iterator[tuple[str, sm.extend.Metric[Any, Any]]]:
    """Our metrics by the names of trec_eval."""
    graded: dict[str, Any] = {"ties": "document"}
    ranked = graded | {"relevance_level": level}
    yield "ndcg", sm.NDCG(**graded)
    yield "map", sm.MeanAveragePrecision(denominator="relevant", **ranked)
    yield "Rprec", sm.RPrecision(**ranked)
    yield "recip_rank", sm.MeanReciprocalRank(**ranked)
    yield "set_P", sm.PrecisionAtK(**ranked)
    yield "set_recall", sm.RecallAtK(**ranked)
    if level is None:  # of grades trec_eval takes shares of the highest one
        yield "rbp", sm.RankBiasedPrecision(0.9, **ranked)
    for k in CUTS:
        yield f"ndcg_cut_{k}", sm.NDCG(k, **graded)
        yield f"map_cut_{k}", sm.MeanAveragePrecision(k, denominator="relevant", **ranked)
        yield f"P_{k}", sm.PrecisionAtK(k, **ranked)
        yield f"recall_{k}", sm.RecallAtK(k, **ranked)
    for k in (1, 5, 10):
        yield f"success_{k}", sm.HitRate(k, **ranked)


@pytest.mark.parametrize("printed", RUNS)
def test_every_printed_digit(printed: str) -> None:
    if not TREC.exists():
        pytest.skip("the files of trec_eval are not here: set STREAMMETRICS_DATA to the folder above them")
    qrels, run, how = RUNS[printed]
    wanted = {tuple(line.split()[:2]): line.split()[2] for line in (TREC / printed).read_text().splitlines()}
    names = {query for _, query in wanted}
    family = sm.MetricCollection(dict(measures(how.get("level"))))
    rows = trec_rows(TREC / qrels, TREC / run, complete=how.get("complete", False))
    by_query = sm.Sliced(family, by="topic").update(rows | {"topic": rows["query"]})
    assert len(family.plan()) == (1 if "level" not in how else 2)
    checked = 0
    for query in names:
        values = (by_query.total if query == "all" else by_query[query]).compute()
        for name, value in values.items():
            assert f"{value:.4f}" == wanted[name, query], (name, query)
            checked += 1
    assert checked == len(names) * len(family) >= 46


def test_readers(tmp_path: Path) -> None:
    run = tmp_path / "run.gz"
    run.write_bytes(gzip.compress(b"q1 Q0 d1 1 0.5 me and more\n\nq1 Q0 d2 2 0.25 me\nq2 Q0 d1 1 -1e3 me\n"))
    assert read_run(run) == {"q1": {"d1": 0.5, "d2": 0.25}, "q2": {"d1": -1000.0}}
    qrels = tmp_path / "qrels"
    qrels.write_text("q1 0 d2 1\nq1 0 d9 -1\nq3 0 d1 2\n")
    assert read_qrels(qrels) == {"q1": {"d2": 1.0, "d9": -1.0}, "q3": {"d1": 2.0}}
    assert sm.MeanReciprocalRank().update(trec_rows(qrels, run)).compute() == 0.5
    assert sm.MeanReciprocalRank().update(trec_rows(qrels, run, complete=True)).compute() == 0.25


@pytest.mark.parametrize(
    ("text", "line"),
    [("q 0 d\n", 1), ("q 0 d 1\nq 0 e x\n", 2), ("q 0 d nan\n", 1), ("q 0 d 1\nq 0 d 1\n", 2)],
)
def test_lines_that_are_not_judgements(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "qrels").write_text(text)
    with pytest.raises(sm.InvalidInputError, match=f"qrels: line {line}"):
        read_qrels(tmp_path / "qrels")


@pytest.mark.parametrize("name", ["qrels", "qrels.gz"])
def test_a_byte_order_mark_is_no_part_of_the_first_query(tmp_path: Path, name: str) -> None:
    text = b"\xef\xbb\xbfq1 0 d1 1\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    (tmp_path / "run").write_text("q1 Q0 d1 1 0.9 me\n")
    rows = trec_rows(tmp_path / name, tmp_path / "run")
    assert sm.MeanReciprocalRank().update(rows).compute() == 1.0
