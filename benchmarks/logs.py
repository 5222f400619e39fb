"""Parquet logs for the benchmarks of the command line, written once to the temporary folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import FOLDER, clicks, complete

ROW_GROUP = 1_000_000
VARIANTS = ["control", "treatment"]
COUNTRIES = ["BR", "CN", "DE", "ES", "FR", "GB", "ID", "IN", "JP", "MX", "NG", "US"]
DEVICES = ["desktop", "phone", "tablet"]
USERS, CAMPAIGNS = 500_000, 1_000


def _dictionary(rng: np.random.Generator, values: list[str], rows: int) -> pa.DictionaryArray:
    codes = rng.integers(0, len(values), rows, dtype=np.int8)
    return pa.DictionaryArray.from_arrays(codes, values)


def impressions(rows: int, seed: int) -> pa.Table:
    """Draw clicks, with the columns that people slice by."""
    labels, scores = clicks(rows, seed=seed)
    rng = np.random.default_rng([seed, 1])
    return pa.table(
        {
            "pctr": scores,
            "click": labels.view(np.int8),
            "variant": _dictionary(rng, VARIANTS, rows),
            "country": _dictionary(rng, COUNTRIES, rows),
            "device": _dictionary(rng, DEVICES, rows),
            "user_id": rng.integers(0, USERS, rows) ** 2 // USERS,  # some come often, most seldom
            "campaign": rng.integers(0, CAMPAIGNS, rows),
        }
    )


def log(rows: int, *, typed: bool = True) -> Path:
    """Return a log whose rows all differ: float32 scores, zstd, row groups of a million.

    `typed` keeps Arrow's own types, here dictionaries; otherwise, as Spark, Hive and DuckDB write it, texts are texts.
    """
    path = FOLDER / f"impressions-{rows}{'' if typed else '-plain'}.parquet"
    if not path.exists():
        tables = (impressions(min(ROW_GROUP, rows - start), seed=start) for start in range(0, rows, ROW_GROUP))
        _write(path, tables, typed)
    return path


def repeated_log(rows: int) -> Path:
    """Return a log of two columns that repeats one row group: as many rows as wanted, on little disk.

    Some hundred distinct scores, so that a row takes nine bits on disk; once read, it is as large as any.
    """
    path = FOLDER / f"repeated-{rows}.parquet"
    if not path.exists():
        labels, scores = clicks(ROW_GROUP)
        scores = (scores.view(np.uint32) & 0xFFFC_0000).view(np.float32)
        group = pa.table({"pctr": scores, "click": labels.view(np.int8)})
        _write(path, (group for _ in range(rows // ROW_GROUP)))
    return path


def _write(path: Path, tables: Iterable[pa.Table], typed: bool = True) -> None:
    with complete(path) as partial:
        writer = None
        for table in tables:
            writer = writer or pq.ParquetWriter(partial, table.schema, compression="zstd", store_schema=typed)
            writer.write_table(table, row_group_size=ROW_GROUP)
        assert writer is not None
        writer.close()
