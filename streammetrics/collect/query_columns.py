"""The columns that identify queries, and the IDs of the queries in a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Batch
from ..batch.convert import as_columns
from ..batch.ids import Ids
from ..count.drafts import load_engine
from ..errors import InvalidInputError
from .accumulator import definition_of
from .metric_like import MetricLike

__all__ = ["compute_query_ids", "find_query_column"]


def find_query_column(metrics: MetricLike) -> str | tuple[str, ...] | None:
    """Return the columns that identify a query; None if no metric needs all rows of a query together."""
    readers = [read for read in definition_of(metrics).reads if read.state.block_column is not None]
    names = list(dict.fromkeys(binding.column(state.block_column or "") for state, binding, *_ in readers))
    if len(names) > 1:
        raise InvalidInputError(
            f"expected one query column for all ranking metrics, found {names[0]!r} and {names[1]!r}; evaluate the "
            f"metrics of each query column in a separate pass"
        )
    return names[0] if names else None


def compute_query_ids(table: Any, column: str | tuple[str, ...]) -> NDArray[np.int64]:
    """Return the query ID of each row, as an array with one column, or two columns if IDs are hashes of strings."""
    # Strings are hashed by a kernel, so load the kernels if necessary.
    load_engine()
    columns = as_columns(table)
    assert columns is not None
    ids: NDArray[np.int64] = Batch(columns).column(column, Ids()).values
    return ids.reshape(len(ids), -1 if ids.size else 1)
