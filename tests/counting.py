"""States that have counted columns, in one cell or by a column of slices."""

from __future__ import annotations

from typing import Any

from streammetrics.collect.binding import PLAIN
from streammetrics.collect.feed import Feed, Read
from streammetrics.state.axes import Axis


def counted(state: Any, columns: dict[str, Any], by: str | None = None) -> Any:
    """The state after a batch; with `by`, a cell for each value of that column."""
    feed = Feed([Read(state.empty((Axis((by,)),)) if by else state, PLAIN)])
    feed.count(columns)
    return feed.states[0]
