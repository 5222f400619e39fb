"""Select those columns of a Spark data frame that metrics read."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ...collect.metric_like import MetricLike
from ..parts import find_read_columns

__all__ = ["column", "select_read_columns"]


def column(name: str) -> Column:
    """Return the column with exactly this name, even if the name contains dots (which usually mean nested fields)."""
    quoted = name.replace("`", "``")
    return f.col(f"`{quoted}`")


def select_read_columns(frame: DataFrame, metrics: MetricLike) -> DataFrame:
    """Return a data frame with only the columns that metrics read.

    Raises
    ------
    InvalidInputError
        If a required column is missing.
    """
    return frame.select(*(column(name) for name in find_read_columns(metrics, frame.columns)))
