"""Metrics of a data frame: rows are folded into states where they are, states are merged by buckets of their keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.functions import arrow_udf

from ... import errors
from ...collect.accumulator import accumulate, definition_of
from ...collect.metric import Metric
from ...collect.metric_like import MetricLike, answer_of, seal, states_of
from ...collect.serialization import merge
from ...compose.sliced import Sliced
from ...io.queries import query_column
from ...metrics.groups.auc import group_partition
from ...reading.table import Table
from ...statistics.groups.rows import GroupRows
from .as_accumulator import make_empty_metrics
from .frames import column, needed
from .tasks import PART, STATES, folding, merging

__all__ = ["Evaluated", "evaluate"]

Names = tuple[str, ...]


class Together(NamedTuple):
    """What rows must be together.

    Parameters
    ----------
    columns : tuple of str
        Rows that are equal here.
    query : bool
        Whether they must be counted in one batch.
    seals : bool
        Whether they are groups that can be closed by whoever has all of their rows.
    """

    columns: Names
    query: bool
    seals: bool

    def gather(self, frame: DataFrame, parts: int) -> DataFrame:
        """Return the rows, those of a part in one partition, with the number of their part; queries in order."""
        keys = [column(name) for name in self.columns]
        placed = frame.withColumn(PART, part_of(parts)(*keys)).repartitionById(parts, column(PART))
        return placed.sortWithinPartitions(*keys) if self.query else placed


def together_of(metrics: MetricLike, there: Collection[str]) -> Together | None:
    """Say what rows of a table with these columns are wanted together; None if any rows go anywhere.

    Without a column of queries a row is one, and holds lists.

    Raises
    ------
    InvalidInputError
        Two metrics want queries by different columns.
    """
    query = query_column(metrics)
    if query is not None and not {*_names(query)} <= {*there}:
        query = None
    groups = {
        binding.column("group")
        for state, binding, *_ in definition_of(metrics).reads
        if isinstance(state, GroupRows) and not state.sample_rows and not state.partition
    }
    if query is None and len(groups) != 1:
        return None
    chosen = query if query is not None else next(iter(groups))
    return Together(_names(chosen), query is not None, groups == {chosen})


def _names(column: str | Names) -> Names:
    return column if isinstance(column, tuple) else (column,)


def part_of(parts: int) -> Callable[..., Column]:
    """Return a function of columns: the part that their group is in, one of so many."""

    def part(*keys):  # type: ignore[no-untyped-def]
        return pa.array(group_partition(keys[0] if len(keys) == 1 else keys, parts), pa.int32())

    made: Callable[..., Column] = arrow_udf(part, "int")
    return made


RAISED = re.compile(r"^streammetrics\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def said_plainly() -> Iterator[None]:
    """Raise an error of this package that a worker raised; Spark's own one, with all traces, is its cause."""
    try:
        yield
    except PySparkException as error:
        found = RAISED.search(str(error))
        kind = getattr(errors, found[1], None) if found is not None else None
        if found is None or kind is None:
            raise
        raise kind(found[2]) from error


BUCKETS = 64
LOOK, MANY = 20_000, 0.75  # three quarters of so many rows: there are some 35,000 keys, or more
STRATEGIES = ("auto", "states", "rows")


@dataclass(frozen=True)
class Evaluated:
    """What a data frame came to.

    Parameters
    ----------
    state : Metric, MetricCollection or Sliced
        What was seen: to be saved, merged with other days, asked other questions.
    """

    state: Any

    @cached_property
    def table(self) -> Table:
        """Values with their bounds and counts, a row for each slice and metric; worked out when it is asked for."""
        state = self.state
        made: Table = Table((), answer_of(state).records()) if isinstance(state, Metric) else state.table()
        return made


def evaluate(
    frame: DataFrame,
    metrics: Any,
    by: str | Iterable[str] = (),
    *,
    strategy: str = "auto",
    partitions: int | None = None,
) -> Evaluated:
    """Compute metrics of a data frame, overall or by slice: the same bits as one pass in one process.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        Of a classic session or of Spark Connect. Only the columns that are read leave their source.
    metrics : Metric, Task, MetricCollection, Sliced, or list or dict of metrics
        What to compute; it stays as it is.
    by : str or sequence of str
        The slicing columns: keys are integers, strings, booleans, dates, timestamps, decimals or null.
    strategy : {"auto", "states", "rows"}
        What is shuffled. "states": each task folds its rows into states of all keys that it meets; those are shuffled, in
        one frame per bucket of keys, and merged. "rows": rows are shuffled by their key, so that each task has whole keys;
        right where keys are so many that their states are no smaller than rows. "auto" looks at the keys of the first
        20,000 rows, of the first partitions alone, and takes rows where three quarters of these differ, as they do from
        some 35,000 keys on. A log sorted by key is taken for one of few; states are handed on before they fill memory.
    partitions : int, optional
        How many parts rows are shuffled into, where they are ("rows", and the two kinds below). By default
        `spark.sql.shuffle.partitions`, which adaptive execution makes fewer for "rows" alone: groups stay in their part.

    Returns
    -------
    Evaluated
        The merged state, of an empty data frame one that has seen nothing; and its table.

    Raises
    ------
    InvalidInputError
        A column is missing, or holds a bad value: the message names column, value and partition.
    MemoryLimitError
        There are too many slices.
    StreamMetricsError
        Whatever a worker raised, as it was raised there; Spark's error, with the traces of workers, is its cause.

    Notes
    -----
    Exact, with all rows of a query or group in one task, are two kinds of metrics whose rows are shuffled whatever the
    strategy. Ranking metrics (NDCG and its like): rows are sorted by query and counted between queries. GroupAUC: every
    task closes its groups, so what is merged has constant size, and is what `seal` makes of all rows.
    Where GroupAUC reads other groups than the queries of ranking metrics, it keeps its rows open, which is bounded.
    Rows that Spark may give differently when it repeats a task (`rand()`, `limit` without an order) are counted as given.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.engines import spark
    >>> done = spark.evaluate(log, [sm.AUC(), sm.CTR()], by=["variant", "day"])  # doctest: +SKIP
    >>> done.table.to_pandas()  # doctest: +SKIP
    >>> sm.save(done.state, "monday.smet")  # doctest: +SKIP
    """
    if strategy not in STRATEGIES:
        raise ValueError(f'strategy must be "auto", "states" or "rows", not {strategy!r}')
    counted = make_empty_metrics(metrics, by)
    rows = needed(frame, counted)
    with said_plainly():
        folded, seals = _folded(rows, counted, strategy, partitions)
        found = [bytes(row["state"]) for row in folded.select("state").collect()]
    return _evaluated(counted, found, seals)


def _folded(rows: DataFrame, counted: MetricLike, strategy: str, partitions: int | None) -> tuple[DataFrame, bool]:
    """Return the states of some rows, merged by bucket, and whether their groups were closed."""
    together = together_of(counted, rows.columns)
    if together is not None:
        query = together.columns if together.query else None
        parts = partitions or int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
        sealed = parts if together.seals else 0
        return _merged(_mapped(together.gather(rows, parts), counted, BUCKETS, query, sealed)), together.seals
    if isinstance(counted, Sliced) and (strategy == "rows" or (strategy == "auto" and _many_keys(rows, counted.by))):
        keys = [column(name) for name in counted.by]
        placed = rows.repartition(partitions, *keys) if partitions else rows.repartition(*keys)
        return _mapped(placed, counted, 1), False
    return _merged(_mapped(rows, counted, BUCKETS)), False


def _mapped(rows: DataFrame, metrics: MetricLike, *asked: Any) -> DataFrame:
    """Fold the rows of each task; columns go by number, as mapInArrow takes a dot in a name for a field."""
    names = rows.columns
    return rows.toDF(*map(str, range(len(names)))).mapInArrow(folding(metrics, names, *asked), STATES)


def _merged(states: DataFrame) -> DataFrame:
    """Merge states by bucket; few of them are put in few tasks by adaptive execution."""
    return states.repartition(column("bucket")).mapInArrow(merging, STATES)


def _many_keys(rows: DataFrame, by: tuple[str, ...]) -> bool:
    """Whether most of the first rows have a key of their own: states would be no smaller than rows."""
    key = f.xxhash64(*(column(name) for name in by)).alias("key")
    seen = [row["key"] for row in rows.select(key).limit(LOOK).collect()]
    return len(seen) == LOOK and len(set(seen)) > MANY * LOOK


def _evaluated(counted: MetricLike, found: list[bytes], seals: bool) -> Evaluated:
    """Merge what came, into metrics with the settings that were given."""
    whole = merge(found) if found else counted
    definition = definition_of(counted)
    if seals:
        whole, definition = seal(whole, (0, 1)), definition.sealed(1)
    return Evaluated(definition.wrap(accumulate(definition, states_of(whole))))
