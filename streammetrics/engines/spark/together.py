"""Rows that one worker must have: those of a query, and those of a group, so that its groups can be closed there."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import arrow_udf

from ...collect.accumulator import definition_of
from ...collect.metric_like import MetricLike
from ...io.queries import query_column
from ...metrics.groups.auc import group_partition
from ...statistics.groups.rows import GroupRows
from .frames import column
from .tasks import PART

__all__ = ["Together", "together_of"]

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
