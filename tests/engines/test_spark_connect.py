"""Spark Connect: the same as in a classic session, from a client that has no Java objects at hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from spark_log import FILES, QUIET, session, table, written

import streammetrics as sm

pytest.importorskip("pyspark")
pytest.importorskip("grpc")

from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from streammetrics.engines import spark

pytestmark = [
    pytest.mark.filterwarnings(QUIET),
    pytest.mark.filterwarnings("ignore:Failed to set spark.*:UserWarning"),
]

LOG = table()
PLAIN = [sm.AUC(), sm.LogLoss(), sm.CTR()]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    started = session(remote=True)
    assert "connect" in type(started).__module__
    yield started.read.parquet(written(tmp_path_factory.mktemp("connect")))
    started.stop()


@pytest.mark.parametrize("strategy", ["states", "rows", "auto"])
def test_slices_have_the_digest_of_one_pass(log: Any, strategy: str) -> None:
    by = ["country", "day", "arm"]
    done = spark.evaluate(log, PLAIN, by=by, strategy=strategy)
    assert done.state.digest() == sm.Sliced(PLAIN, by=by).update(LOG).digest()


def test_groups_and_queries_are_whole(log: Any) -> None:
    metrics = sm.MetricCollection(sm.NDCG(k=5), sm.Task(sm.GroupAUC(), group="query"), sm.AUC())
    whole = metrics.copy().update(LOG.sort_by("query"))
    assert spark.evaluate(log, metrics).state.digest() == sm.seal(whole).digest()


def test_no_rows(log: Any) -> None:
    assert spark.evaluate(log.where("false"), PLAIN).state.digest() == sm.MetricCollection(PLAIN).digest()


def test_a_bad_row_is_named(log: Any) -> None:
    bad = log.withColumn("y_true", f.when(f.col("group") == 7, 3).otherwise(f.col("y_true")))
    with pytest.raises(
        sm.InvalidInputError, match=r"^y_true: expected 0 or 1, found 3 in row .* of partition \d"
    ) as caught:
        spark.evaluate(bad, PLAIN)
    assert isinstance(caught.value.__cause__, PySparkException)


def test_sql(log: Any) -> None:
    spark.register(log.sparkSession)
    log.createOrReplaceTempView("log")
    sql = log.sparkSession.sql
    sql("select day, smet_auc_agg(y_true, y_score) state from log group by day").createOrReplaceTempView("daily")
    merged = sql("select smet_merge_agg(state) state from daily").collect()[0].state
    assert sm.from_bytes(bytes(merged)).digest() == sm.AUC().update(LOG["y_true"], LOG["y_score"]).digest()
    assert (
        sql("select smet_value(smet_merge_agg(state), 'auc') from daily").collect()[0][0]
        == sm.from_bytes(bytes(merged)).compute()
    )
    with pytest.raises(PySparkException, match="smet_value: state: 7 bytes"):
        sql("select smet_value(cast('a state' as binary), 'auc')").collect()


def test_a_stream_runs(log: Any, tmp_path: Any) -> None:
    sink = spark.Sink(tmp_path / "auc.stream", PLAIN)
    folder = log.inputFiles()[0].rpartition("/")[0]
    stream = log.sparkSession.readStream.schema(log.schema).option("maxFilesPerTrigger", 1).parquet(folder)
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sink.last == FILES - 1
    assert sink.state.digest() == sm.MetricCollection(PLAIN).update(LOG).digest()
