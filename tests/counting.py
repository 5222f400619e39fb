"""Count rows in a state, in one cell or by a column of slices, and in a metric without a draft."""

from __future__ import annotations

from typing import Any

from streammetrics.batch.column_binding import PLAIN
from streammetrics.batch.columns import Batch
from streammetrics.collect.accumulator import accumulator_of
from streammetrics.count.batch_updater import BatchUpdater
from streammetrics.count.reads import Read
from streammetrics.state.axes import Axis


def counted(state: Any, columns: dict[str, Any], by: str | None = None) -> Any:
    """The state after a batch; with `by`, a cell for each value of that column."""
    feed = BatchUpdater([Read(state.empty_copy((Axis((by,)),)) if by else state, PLAIN)])
    feed.count(columns)
    return feed.states[0]


def count_prepared(metric: Any, table: dict[str, Any]) -> Any:
    """Convert, check and count a table column by column, like a batch that no draft fits; return the metric."""
    accumulator_of(metric).count_batch(Batch(table))
    return metric
