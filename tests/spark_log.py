"""A log for the tests on Spark, and the session that reads it: small machines, no web page, quiet."""

from __future__ import annotations

import datetime
import itertools
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

QUIET = "ignore:PySpark does not yet fully support pandas:FutureWarning"
ROWS = 6000
FILES = 5


def table() -> pa.Table:
    """Clicks of users in three countries and on five days, null among the keys; scores are float32."""
    rng = np.random.default_rng(13)
    users = rng.integers(0, 200, ROWS)
    countries = np.array(["de", "fr", "日本", None], object)
    days = [datetime.date(2026, 11, 1 + int(d)) if d < 5 else None for d in rng.integers(0, 6, ROWS)]
    return pa.table(
        {
            "y_true": rng.integers(0, 2, ROWS),
            "y_score": rng.random(ROWS).astype(np.float32),
            "group": users,
            "query": [f"q{u}" for u in users],
            "country": pa.array(countries[rng.integers(0, 4, ROWS)], pa.string()),
            "day": pa.array(days, pa.date32()),
            "arm": rng.integers(0, 3, ROWS).astype(np.int16),
            "ad.weight": rng.integers(1, 5, ROWS).astype(float),
            "unused": ["x" * 50] * ROWS,
        }
    )


def written(folder: Path) -> str:
    """Write the log as files of unlike length, one of them empty; return where."""
    rows, folder = table(), folder / "log"
    folder.mkdir()
    ends = [0, 1, ROWS // 10, ROWS // 10, ROWS // 2, ROWS]
    for i, (start, end) in enumerate(itertools.pairwise(ends)):
        pq.write_table(rows.slice(start, end - start), folder / f"{i}.parquet")
    return str(folder)


def session(remote: bool = False) -> Any:
    """Start Spark in this process; over Connect where asked for."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.config("spark.sql.shuffle.partitions", "4")
    if remote:
        return builder.remote("local[2]").getOrCreate()
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    for name, value in quiet.items():
        builder = builder.config(name, value)
    return builder.master("local[2]").getOrCreate()
