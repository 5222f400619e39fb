"""Choose the number of partitions for a shuffle from the size of the input."""

from __future__ import annotations

import re

from pyspark.sql import DataFrame

__all__ = ["choose_partition_count"]

# A partition gets about this many bytes of input, as stored in the (compressed) files. Smaller partitions would be
# inefficient, because a task takes about 0.2 s of CPU time to start.
PARTITION_BYTES = 1 << 25
MIN_PARTITIONS = 8
SIZE = re.compile(r"sizeInBytes=([\d.]+(?:E\+?\d+)?) ([KMGTPE]i)?B")
UNITS = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]


def choose_partition_count(rows: DataFrame) -> int:
    """Return the number of partitions for a shuffle of a data frame: one for each 32 MiB of input, and at least 8.

    The number is at most the setting `spark.sql.shuffle.partitions`, and equals this setting if Spark does not know the
    size of the input.
    """
    most = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
    return int(min(max(estimate_bytes(rows) // PARTITION_BYTES, MIN_PARTITIONS), most))


def estimate_bytes(rows: DataFrame) -> float:
    """Return Spark's estimate of the size of a data frame in bytes; infinity if Spark has no estimate."""
    # Parse the text of the query plan. This is the only way to get the estimate that works both in classic sessions and
    # in Spark Connect.
    plan = rows.sparkSession.sql("EXPLAIN COST SELECT * FROM {rows}", rows=rows).collect()[0][0]
    match = SIZE.search(plan)
    return float(match[1]) * 1024.0 ** UNITS.index(match[2] or "") if match else float("inf")
