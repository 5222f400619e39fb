"""Data frames: the columns that are read, whatever they are called, and nothing else."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ...collect.metric_like import MetricLike
from ..parts import read_columns

__all__ = ["column", "needed"]


def column(name: str) -> Column:
    """Return a column by its name, of which a dot may be a part."""
    quoted = name.replace("`", "``")
    return f.col(f"`{quoted}`")


def needed(frame: DataFrame, metrics: MetricLike) -> DataFrame:
    """Return the columns that metrics read.

    Raises
    ------
    InvalidInputError
        One is not there.
    """
    return frame.select(*(column(name) for name in read_columns(metrics, frame.columns)))
