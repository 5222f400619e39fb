"""States that have counted columns, in one cell or by a column of slices."""

from __future__ import annotations

from typing import Any

from streammetrics.batch.column_binding import PLAIN
from streammetrics.count.batch_updater import BatchUpdater
from streammetrics.count.reads import Read
from streammetrics.state.axes import Axis


def counted(state: Any, columns: dict[str, Any], by: str | None = None) -> Any:
    """The state after a batch; with `by`, a cell for each value of that column."""
    feed = BatchUpdater([Read(state.empty_copy((Axis((by,)),)) if by else state, PLAIN)])
    feed.count(columns)
    return feed.states[0]
