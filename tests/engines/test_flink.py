"""Apache Flink: the same digest, SQL over states, and what goes wrong in its workers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import streammetrics as sm

pytest.importorskip("pyflink")
pd = pytest.importorskip("pandas")
logs = pytest.importorskip("engine_logs")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of what Flink pins, and of its own
    from pyflink.table import DataTypes, TableEnvironment

    from streammetrics.engines.flink import evaluate, register

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # its gateway is left to the exit
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # the reader of its worker, whose job ended first
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture(scope="module")
def env() -> TableEnvironment:
    return logs.start_flink()


def log_of(env: TableEnvironment, table: Any) -> Any:
    frame = table.to_pandas()
    frame["device"] = frame["device"].astype(str)
    return env.from_pandas(frame, splits_num=3)


def test_the_digest_is_that_of_one_pass(env: TableEnvironment) -> None:
    case = logs.CASES["scores"]()
    assert evaluate(log_of(env, case.log), case.metrics, buckets=5).digest() == case.digest()


def test_no_rows(env: TableEnvironment) -> None:
    case = logs.CASES["scores"]()
    none = log_of(env, case.log).limit(0)
    assert evaluate(none, case.metrics).digest() == case.metrics.digest()


def test_queries_are_counted_whole(env: TableEnvironment) -> None:
    """Rows of a query are at random places of the table; a row may also have a whole query as lists."""
    rng = np.random.default_rng(3)
    rows = pd.DataFrame(
        {"query": rng.integers(0, 60, 300), "y_true": rng.integers(0, 4, 300), "y_score": rng.random(300)}
    )
    metrics = sm.NDCG(k=3)
    whole = metrics.copy().update(rows.sort_values("query", kind="stable"))
    assert evaluate(env.from_pandas(rows, splits_num=3), metrics, buckets=5).digest() == whole.digest()
    lists = rows.groupby("query").agg(list)
    kind = DataTypes.ROW(
        [
            DataTypes.FIELD("y_true", DataTypes.ARRAY(DataTypes.BIGINT())),
            DataTypes.FIELD("y_score", DataTypes.ARRAY(DataTypes.DOUBLE())),
        ]
    )
    table = env.from_elements(list(zip(lists["y_true"], lists["y_score"], strict=True)), kind)
    assert evaluate(table, metrics, buckets=5).digest() == whole.digest()


def test_sql_by_key_and_states_of_states(env: TableEnvironment) -> None:
    table = logs.simple(400)
    env.create_temporary_view("log", env.from_pandas(table.to_pandas()))
    register(env, {"ctr": sm.CTR(), "both": sm.MetricCollection(sm.AUC(), sm.CTR())})
    states = "SELECT `variant`, smet_both_agg(y_true, y_score) AS state FROM `log` GROUP BY `variant`"
    whole = sm.MetricCollection(sm.AUC(), sm.CTR()).update(table)
    with env.sql_query(f"SELECT smet_merge_agg(state) FROM ({states})").execute().collect() as rows:
        (merged,) = [sm.from_bytes(row[0]) for row in rows]
    assert merged.digest() == whole.digest()
    expected = sm.Sliced(sm.CTR(), by="variant").update(table).compute()
    with env.sql_query(f"SELECT `variant`, smet_value(state, 'ctr') FROM ({states})").execute().collect() as rows:
        assert {row[0]: row[1] for row in rows} == expected


def test_a_bad_row_says_what_and_where(env: TableEnvironment) -> None:
    table, *_ = logs.spoiled([logs.simple(60)], "y_score", 0, 17)
    with pytest.raises(Exception, match=r"y_score: expected a probability .*found 7\.5 in row 17"):
        evaluate(env.from_pandas(table.to_pandas()), sm.AUC(), buckets=1)


def test_a_column_is_missing(env: TableEnvironment) -> None:
    with pytest.raises(sm.InvalidInputError, match="no column 'y_score'"):
        evaluate(env.from_pandas(logs.simple(10).select(["y_true"]).to_pandas()), sm.AUC())
