"""Spark: digests of one pass in one process, whatever is shuffled; errors that say what a worker found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from spark_log import FILES, QUIET, session, table, written

import streammetrics as sm

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from streammetrics.engines import spark
from streammetrics.engines.spark import partitions, tasks
from streammetrics.engines.spark.as_accumulator import make_empty_metrics
from streammetrics.engines.spark.run import _has_many_keys
from streammetrics.engines.spark.worker_errors import raise_worker_errors

pytestmark = pytest.mark.filterwarnings(QUIET)

LOG = table()
PLAIN = [sm.AUC(), sm.LogLoss(), sm.CTR()]
TASK = sm.Task([sm.AUC(), sm.Calibration()], sample_weight="ad.weight")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONWARNINGS", "ignore")  # of workers, which are not under test's rule
        spark_session = session()
        yield spark_session.read.parquet(written(tmp_path_factory.mktemp("spark")))
        spark_session.stop()


KEYS = ["country", "day", "arm"]


@pytest.mark.parametrize(
    ("strategy", "by"),
    [("states", KEYS[:1]), ("states", KEYS), ("rows", KEYS), ("auto", KEYS)],
    ids=["states, 1 key", "states, 3 keys", "rows, 3 keys", "auto, 3 keys"],
)
def test_slices_have_the_digest_of_one_pass(log: Any, strategy: str, by: list[str]) -> None:
    done = spark.evaluate(log, PLAIN, by=by, strategy=strategy)
    whole = sm.Sliced(PLAIN, by=by).update(LOG)
    assert done.state.digest() == whole.digest()
    assert done.table == whole.table()


@pytest.mark.parametrize(
    "metrics",
    [sm.AUC(), sm.MetricCollection(PLAIN), {"ad": TASK}, sm.GroupLogLoss()],
    ids=["one", "many", "task", "groups"],
)
def test_all_rows_have_the_digest_of_one_pass(log: Any, metrics: Any) -> None:
    done = spark.evaluate(log, metrics)
    whole = (sm.MetricCollection(metrics) if isinstance(metrics, dict) else metrics.copy()).update(LOG)
    assert done.state.digest() == whole.digest()
    assert type(done.state) is type(whole)
    assert len(done.table) == len(getattr(whole, "names", [0]))


def test_a_value_is_that_of_others(log: Any) -> None:
    row = next(iter(spark.evaluate(log, sm.AUC()).table))
    value = roc_auc_score(LOG["y_true"], LOG["y_score"])  # its last bit is not exact
    assert row["bound_low"] - 1e-12 <= value <= row["bound_high"] + 1e-12


def test_what_was_seen_before_is_not_counted_again(log: Any) -> None:
    seen = sm.CTR().update(y_true=[1, 1])
    assert spark.evaluate(log, seen).state.digest() == sm.CTR().update(LOG["y_true"]).digest()
    assert seen.compute() == 1.0


def test_a_limit_keeps_what_it_keeps_in_one_pass(log: Any) -> None:
    metrics = sm.Sliced(PLAIN, by="group", limit=20, values=[7])
    assert spark.evaluate(log, metrics).state.digest() == metrics.copy().update(LOG).digest()


def test_auto_looks_at_the_keys(log: Any) -> None:
    assert not _has_many_keys(log, ("country",))
    assert not _has_many_keys(log.where("false"), ("country",))
    ids = log.sparkSession.range(50_000)
    assert _has_many_keys(ids, ("id",))
    assert not _has_many_keys(ids.selectExpr("id % 10000 as id"), ("id",))


@pytest.mark.parametrize("by", [(), ("country",)], ids=["all", "slices"])
def test_no_rows(log: Any, by: Any) -> None:
    for metrics, closed in ((sm.MetricCollection(PLAIN), False), (sm.GroupAUC(), True), (sm.NDCG(k=5), False)):
        nothing = sm.Sliced(metrics, by=by) if by else metrics
        found = spark.evaluate(log.where("false"), metrics, by)
        assert found.state.digest() == (sm.seal(nothing) if closed else nothing).digest()
        assert len(found.table) == (0 if by else len(getattr(metrics, "names", [0])))


def test_empty_partitions(log: Any) -> None:
    few = log.where("arm = 0").repartition(16, "country")
    rows = LOG.filter(np.asarray(LOG["arm"]) == 0)
    assert spark.evaluate(few, PLAIN).state.digest() == sm.MetricCollection(PLAIN).update(rows).digest()
    assert (
        spark.evaluate(few, sm.GroupAUC(), partitions=30).state.digest() == sm.seal(sm.GroupAUC().update(rows)).digest()
    )


# -- rows that belong together ----------------------------------------------------------------------------------------

GROUPS = sm.MetricCollection(sm.GroupAUC(), sm.GroupAUC(group_weight="uniform"), sm.AUC())
PAIRS = {"pair": sm.Task(sm.GroupAUC(), group=("group", "arm"))}
SKIPS = sm.MetricCollection(sm.Task(sm.GroupAUC(missing="skip"), group="country"))


@pytest.mark.parametrize("metrics", [sm.GroupAUC(), GROUPS, sm.MetricCollection(PAIRS), SKIPS])
def test_groups_are_closed_where_they_are(log: Any, metrics: Any) -> None:
    done = spark.evaluate(log, metrics)
    assert done.state.digest() == sm.seal(metrics.copy().update(LOG)).digest()
    assert done.state.compute() == metrics.copy().update(LOG).compute()
    assert len(done.state.to_bytes()) < 20_000


def test_groups_in_slices(log: Any) -> None:
    whole = sm.Sliced(GROUPS, by=["country", "arm"]).update(LOG)
    assert spark.evaluate(log, GROUPS, by=["country", "arm"]).state.digest() == sm.seal(whole).digest()


def ranked(metrics: Any, rows: Any = LOG) -> Any:
    return sm.MetricCollection(metrics).update(rows.sort_by("query"))


def test_queries_are_counted_whole(log: Any) -> None:
    metrics = [sm.NDCG(k=5), sm.MeanReciprocalRank(), sm.AUC()]
    assert spark.evaluate(log, metrics).state.digest() == ranked(metrics).digest()


def test_groups_that_are_queries_are_closed_too(log: Any) -> None:
    metrics = [sm.NDCG(k=3), sm.Task(sm.GroupAUC(), group="query")]
    assert spark.evaluate(log, metrics).state.digest() == sm.seal(ranked(metrics)).digest()


def test_groups_that_are_not_the_queries_stay_open(log: Any) -> None:
    metrics = [sm.NDCG(k=3), sm.GroupAUC()]
    assert spark.evaluate(log, metrics).state.digest() == ranked(metrics).digest()


def test_two_kinds_of_queries_are_refused(log: Any) -> None:
    with pytest.raises(sm.InvalidInputError, match="found 'query' and 'group'"):
        spark.evaluate(log, [sm.NDCG(k=3), {"g": sm.Task(sm.NDCG(k=3), query="group")}])


# -- tasks by themselves ----------------------------------------------------------------------------------------------


class Context:
    @staticmethod
    def get() -> Any:
        return Context

    @staticmethod
    def partitionId() -> int:  # noqa: N802
        return 5


def fold(monkeypatch: pytest.MonkeyPatch, metrics: Any, by: Any = (), **asked: Any) -> list[dict[str, Any]]:
    monkeypatch.setattr(tasks, "TaskContext", Context)
    batches = LOG.combine_chunks().to_batches(max_chunksize=1000)
    made = tasks.build_fold_task(make_empty_metrics(metrics, by), LOG.column_names, 8, **asked)(batches)
    return [row for batch in made for row in batch.to_pylist()]


def test_a_bucket_is_a_frame_and_not_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = fold(monkeypatch, sm.CTR(), "group")
    assert sorted(row["bucket"] for row in frames) == list(range(8))
    keys = [set(sm.from_bytes(row["state"]).keys) for row in frames]
    assert sum(map(len, keys)) == len(set.union(*keys)) == 200


def test_states_are_handed_on_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_STATE_BYTES", 1)
    monkeypatch.setattr("streammetrics.engines.spark.tasks.BATCH_ROWS", 2000)
    frames = fold(monkeypatch, PLAIN)
    assert len(frames) == 3
    monkeypatch.setattr(tasks, "MAX_BUFFERED_BYTES", 1)
    merged = list(tasks.merge_task([tasks._build_batch([0], [row["state"]]) for row in frames]))
    assert [b.num_rows for b in merged] == [1]
    assert sm.from_bytes(merged[0]["state"][0].as_py()).digest() == sm.MetricCollection(PLAIN).update(LOG).digest()


def test_groups_of_several_partitions_are_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PART", "arm")
    with pytest.raises(sm.InvalidInputError, match="found partitions"):
        fold(monkeypatch, sm.GroupAUC(), sealed=3)


# -- what goes wrong --------------------------------------------------------------------------------------------------


def bad(log: Any) -> Any:
    """A log with one bad label, in the middle."""
    at = (f.col("group") == 7) & (f.col("arm") == 1)
    return log.withColumn("y_true", f.when(at, 3).otherwise(f.col("y_true")))


@pytest.mark.parametrize("by", [(), "country"])
def test_a_bad_row_is_named(log: Any, by: Any) -> None:
    with pytest.raises(
        sm.InvalidInputError, match=r"^y_true: expected 0 or 1, found 3 in row .* of partition \d"
    ) as caught:
        spark.evaluate(bad(log), PLAIN, by=by)
    assert isinstance(caught.value.__cause__, PySparkException)


def test_bad_rows_are_left_out_where_asked(log: Any) -> None:
    metrics = sm.MetricCollection(PLAIN, on_invalid="drop")
    rows = LOG.to_pandas()
    rows.loc[(rows["group"] == 7) & (rows["arm"] == 1), "y_true"] = 3
    done = spark.evaluate(bad(log), metrics).state
    assert done.digest() == metrics.copy().update(rows[["y_true", "y_score"]]).digest()
    assert done.on_invalid == "drop"


def test_a_column_that_is_not_there_is_named(log: Any) -> None:
    with pytest.raises(sm.InvalidInputError, match="there is no column 'y_score'; the table has 'y_true', 'group'"):
        spark.evaluate(log.drop("y_score"), PLAIN)


def test_too_many_slices(log: Any) -> None:
    with pytest.raises(sm.MemoryLimitError, match="memory_limit"):
        spark.evaluate(log, sm.Sliced(PLAIN, by="group", memory_limit=20_000))


def test_a_key_of_another_kind_than_keys(log: Any) -> None:
    with pytest.raises(sm.InvalidInputError, match="y_score: expected keys of one kind"):
        spark.evaluate(log, sm.CTR(), by="y_score")


def test_errors_of_others_are_theirs(log: Any) -> None:
    broken = log.withColumn("y_true", f.expr("raise_error('the disk is full')").cast("int"))
    with pytest.raises(PySparkException, match="the disk is full"):
        spark.evaluate(broken, PLAIN)


def test_wrong_arguments(log: Any) -> None:
    with pytest.raises(ValueError, match="strategy must be"):
        spark.evaluate(log, PLAIN, strategy="shuffle")
    with pytest.raises(TypeError, match="bundle"):
        spark.evaluate(log, sm.Bundle({"a": sm.AUC()}))
    with pytest.raises(TypeError, match="expected metrics"):
        spark.evaluate(log, "auc")


# -- SQL --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sql(log: Any) -> Any:
    spark.register(log.sparkSession, {"ad": TASK, "ctr": sm.CTR()})
    log.createOrReplaceTempView("log")
    return log.sparkSession.sql


def test_states_are_made_kept_and_merged_in_sql(sql: Any) -> None:
    sql("select day, smet_auc_agg(y_true, y_score) state from log group by day").createOrReplaceTempView("daily")
    rows = sql("select day, smet_value(state, 'auc') auc from daily").collect()
    days = sm.Sliced(sm.AUC(), by="day").update(LOG)
    assert {row.day: row.auc for row in rows} == days.compute()
    merged = sql("select smet_merge_agg(state) state from daily").collect()[0].state
    assert sm.from_bytes(bytes(merged)).digest() == days.total.digest()
    assert sql("select smet_value(smet_merge_agg(state), 'auc') from daily").collect()[0][0] == days.total.compute()


def test_aggregates_of_any_metrics(sql: Any, log: Any) -> None:
    state = sql("select smet_ad_agg(y_true, y_score, `ad.weight`) from log").collect()[0][0]
    assert sm.from_bytes(bytes(state)).digest() == sm.MetricCollection(TASK).update(LOG).digest()
    assert (
        sql("select smet_value(smet_ctr_agg(y_true), 'ctr') from log").collect()[0][0]
        == sm.CTR().update(LOG["y_true"]).compute()
    )
    found = log.groupBy("arm").agg(spark.aggregate(sm.CTR())("y_true").alias("s"))
    values = found.select("arm", spark.state_value()("s", f.lit("ctr")).alias("v")).collect()
    assert {row.arm: row.v for row in values} == sm.Sliced(sm.CTR(), by="arm").update(LOG).compute()
    total = found.agg(spark.merge_states()("s")).collect()[0][0]
    assert sm.from_bytes(bytes(total)).digest() == sm.CTR().update(LOG["y_true"]).digest()


def test_an_empty_table_gives_no_row(sql: Any) -> None:
    assert sql("select smet_auc_agg(y_true, y_score) from log where false").collect() == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "select smet_auc_agg(if(arm = 1, null, y_true), y_score) from log",
            "InvalidInputError: y_true: expected 0 or 1",
        ),
        ("select smet_auc_agg(y_true, if(arm = 1, null, y_score)) from log", "InvalidInputError: y_score: expected"),
        (
            "select smet_auc_agg(y_true) from log",
            r"columns \(y_true, y_score\[, sample_weight\]\) as arguments .* found 1 column",
        ),
        (
            "select smet_merge_agg(cast(null as binary)) from log",
            "smet_merge_agg: state: expected no nulls, found a null in row 0",
        ),
        (
            "select smet_merge_agg(cast('a state' as binary)) from log",
            "StateFormatError: smet_merge_agg: state: 7 bytes",
        ),
        (
            "select smet_value(cast('a state' as binary), 'auc') from log",
            "StateFormatError: smet_value: state: 7 bytes",
        ),
        (
            "select smet_value(cast(null as binary), 'auc') from log",
            "smet_value: state: expected no nulls, found a null in row 0",
        ),
        (
            "select smet_value(smet_ctr_agg(y_true), 'auc') from log",
            "no metric 'auc' in this state; the metrics are ctr",
        ),
    ],
)
def test_errors_in_sql_name_what_is_wrong(sql: Any, query: str, message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        sql(query).collect()


def test_rankings_are_refused_in_sql() -> None:
    with pytest.raises(ValueError, match="rows of a query"):
        spark.aggregate(sm.NDCG(k=5))


# -- streams ----------------------------------------------------------------------------------------------------------


def test_a_micro_batch_is_counted_once(log: Any, tmp_path: Any) -> None:
    sink = spark.Sink(tmp_path / "ctr.stream", PLAIN, by="country")
    assert (sink.last, len(sink.state)) == (None, 0)
    for batch in (0, 0, 1, 1, 2):
        sink(log.where(f"arm = {batch}"), batch)
    again = spark.Sink(tmp_path / "ctr.stream", PLAIN, by="country")
    assert again.last == 2
    assert again.state.digest() == sm.Sliced(PLAIN, by="country").update(LOG).digest()
    for batch in (0, 4):
        with pytest.raises(sm.InvalidInputError, match=f"expected micro-batch 3 after micro-batch 2, found {batch}"):
            again(log, batch)


def test_a_stream_of_other_metrics_or_none(log: Any, tmp_path: Any) -> None:
    path = tmp_path / "ctr.stream"
    spark.Sink(path, sm.CTR())(log, 0)
    before = path.read_bytes()
    with pytest.raises(sm.IncompatibleStateError):
        spark.Sink(path, sm.AUC())(log, 1)
    assert path.read_bytes() == before
    path.write_bytes(b"something else\n")
    with pytest.raises(sm.StateFormatError, match="expected a file that a Spark sink wrote"):
        spark.Sink(path, sm.CTR())(log, 1)


def test_a_stream_runs(log: Any, tmp_path: Any) -> None:
    sink = spark.Sink(tmp_path / "auc.stream", PLAIN)
    folder = log.inputFiles()[0].rpartition("/")[0]
    stream = log.sparkSession.readStream.schema(log.schema).option("maxFilesPerTrigger", 1).parquet(folder)
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sink.last == FILES - 1
    assert sink.state.digest() == sm.MetricCollection(PLAIN).update(LOG).digest()


@pytest.mark.slow
def test_decimals_are_read_like_numbers(log: Any) -> None:
    """Warehouses export labels and scores as decimals."""
    exported = log.selectExpr("cast(y_true as decimal(10, 0)) as y_true", "cast(y_score as decimal(10, 4)) as y_score")
    rows = exported.toPandas().astype(float)
    found = spark.evaluate(exported, [sm.AUC(), sm.LogLoss()]).state
    assert found.digest() == sm.MetricCollection(sm.AUC(), sm.LogLoss()).update(rows).digest()


@pytest.mark.slow
def test_a_missing_group_column_lists_all_columns_of_the_frame(log: Any) -> None:
    renamed = log.withColumnRenamed("group", "user_id")
    with pytest.raises(
        sm.InvalidInputError, match=r"no column 'group'; the table has .*'user_id'.*; .* pass group= to Task"
    ):
        spark.evaluate(renamed, [sm.AUC(), sm.GroupAUC()])


@pytest.mark.slow
def test_the_number_of_partitions_follows_from_the_size_of_the_input(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's default of 200 partitions costs more than counting if the input is small."""
    rows, conf = log.select("group", "y_score"), log.sparkSession.conf
    size = partitions.estimate_bytes(rows)
    assert 1_000 < size < 1e6
    before = conf.get("spark.sql.shuffle.partitions")
    conf.set("spark.sql.shuffle.partitions", "200")
    try:
        assert partitions.choose_partition_count(rows) == 8
        monkeypatch.setattr(partitions, "PARTITION_BYTES", size / 20.5)
        assert partitions.choose_partition_count(rows) == 20
        monkeypatch.setattr(partitions, "PARTITION_BYTES", 1)
        assert partitions.choose_partition_count(rows) == 200
    finally:
        conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark",
            sm.StreamMetricsError,
            "run Python 3.12, and the driver runs Python 3.11; set PYSPARK_PYTHON to a Python 3.11 that",
        ),
        (
            "  File ...\nModuleNotFoundError: No module named 'streammetrics'\n",
            sm.StreamMetricsError,
            "no module 'streammetrics'; install .* or set PYSPARK_PYTHON",
        ),
        (
            "Total size of serialized results of 12 tasks (1046.2 MiB) is bigger than spark.driver.maxResultSize 1 GiB",
            sm.MemoryLimitError,
            "take more than 1046.2 MiB, which Spark refuses .* raise spark.driver.maxResultSize",
        ),
    ],
)
def test_an_error_of_workers_is_one_line(text: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught, raise_worker_errors():
        raise PySparkException(text)
    assert "\n" not in str(caught.value)
    with pytest.raises(PySparkException), raise_worker_errors():
        raise PySparkException("ModuleNotFoundError: No module named 'their_own'")


def test_nulls_are_called_nulls(log: Any) -> None:
    some = log.withColumn("y_true", f.when(f.col("group") != 7, f.col("y_true")))
    with pytest.raises(sm.InvalidInputError, match=r"^y_true: expected 0 or 1, found a null in row .* of partition \d"):
        spark.evaluate(some, sm.CTR())
