"""Search for the slices with the most rows, in a pass over only the slicing and filter columns of a log."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streammetrics.io.column_types import ColumnUses
from streammetrics.io.logs import Log
from streammetrics.io.parts import LogPart
from streammetrics.io.readers import concat_tables, decode_dictionary
from streammetrics.io.row_filter import Filter, convert_flags

__all__ = ["MAX_KEYS", "find_largest_keys"]

# The maximum number of slices that are counted for a set of columns. Each slice takes about 50 bytes of memory.
MAX_KEYS = 1 << 22
_ROWS = "streammetrics: rows"
# Each batch yields a table of counts. When there are more tables than this, they are summed into one.
_MAX_PENDING = 16

Names = tuple[str, ...]


def find_largest_keys(
    log: Log,
    sets: Sequence[Names],
    limit: int,
    threads: int,
    filters: Sequence[Filter] = (),
    any_of: Sequence[str] = (),
    uses: ColumnUses | None = None,
) -> dict[Names, list[tuple[Any, ...]]]:
    """Return the keys of the slices with the most rows, for each set of slicing columns.

    The key of a slice is the tuple of its values in the slicing columns. If two keys have the same number of rows, the
    smaller key takes precedence.

    Parameters
    ----------
    log : Log
        The log. It must be readable twice: in this pass, and in the main pass, which computes the metrics.
    sets : sequence of tuple of str
        Sets of slicing columns.
    limit : int
        The maximum number of keys for each set.
    threads : int
        Number of threads.
    filters : sequence of Filter
        The filters of the main pass, each of which computes a column of 0s and 1s.
    any_of : sequence of str
        Names of filters or columns: a row counts if at least one of them is 1. By default, all rows count.
    uses : ColumnUses, optional
        How the main pass uses columns, so that keys have the same types in both passes.

    Returns
    -------
    dict of tuple of str to list of tuple
        The keys to keep for each set of columns. A set is omitted if it has no more keys than the limit, because then
        all of them are kept. It is also omitted if it has more than MAX_KEYS keys or a column that cannot be a key.
    """
    filters_by_name = {one.name: one for one in filters if one.name in any_of}
    read = [
        *(n for n in any_of if n not in filters_by_name),
        *(n for one in filters_by_name.values() for n in one.columns),
    ]
    parts = log.parts(read, list(dict.fromkeys(name for names in sets for name in names)), uses)
    if filters_by_name:
        parts = [part.with_filters(tuple(filters_by_name.values())) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        tables_by_part = list(pool.map(lambda part: _count_part(part, sets, any_of), parts))
    largest = {}
    for names in sets:
        table = _sum_tables([table for one in tables_by_part for table in one[names] or []], names)
        if table is None or any(one[names] is None for one in tables_by_part):
            continue
        if limit < table.num_rows <= MAX_KEYS:
            order = [(_ROWS, "descending"), *((name, "ascending") for name in names)]
            first = table.sort_by(order).slice(0, limit)
            largest[names] = list(zip(*(_round_times(first.column(name)).to_pylist() for name in names), strict=True))
    return largest


def _count_part(part: LogPart, sets: Sequence[Names], any_of: Sequence[str]) -> dict[Names, list[pa.Table] | None]:
    """Count the rows of each key in a part of a log.

    For each set of columns, the result contains tables of row counts by key. A key may occur in several tables, so the
    caller adds up its counts. The value is None if the set has too many keys or a column that cannot be a key.
    """
    pending: dict[Names, list[pa.Table] | None] = {names: [] for names in sets}
    for batch in part.batches():
        rows = _flag_counted_rows(batch, any_of)
        for names, tables in pending.items():
            if tables is None:
                continue
            columns = [decode_dictionary(batch.column(name)) for name in names]
            if not all(_is_key(column.type) for column in columns):
                pending[names] = None
                continue
            table = pa.table([*columns, rows], names=[*names, _ROWS])
            tables.append(_sum_by_key(table, names))
            if len(tables) > _MAX_PENDING and (total := _sum_tables(tables, names)) is not None:
                pending[names] = [total] if total.num_rows <= MAX_KEYS else None
    return pending


def _flag_counted_rows(batch: pa.RecordBatch, any_of: Sequence[str]) -> pa.Array:
    """Return 1 for each row in which at least one of the columns `any_of` is 1, and 0 for every other row.

    If `any_of` is empty, return 1 for all rows. The caller sums these flags for each key, so a key whose flags are all
    0 is still listed, with 0 rows.
    """
    counted = pa.array(np.full(batch.num_rows, not any_of))
    for name in any_of:
        flags = convert_flags(decode_dictionary(batch.column(name)), name)
        counted = pc.or_(counted, pc.equal(flags, 1.0).fill_null(False))
    return counted.cast(pa.int64())


def _sum_tables(tables: Sequence[pa.Table], names: Names) -> pa.Table | None:
    return _sum_by_key(concat_tables(tables), names) if tables else None


def _sum_by_key(table: pa.Table, names: Names) -> pa.Table:
    summed = table.group_by(list(names), use_threads=False).aggregate([(_ROWS, "sum")])
    return summed.rename_columns([_ROWS if name == f"{_ROWS}_sum" else name for name in summed.column_names])


def _round_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert times to microseconds, the resolution of Python's `datetime`; return columns of other types unchanged."""
    kind = column.type
    return column.cast(pa.timestamp("us", kind.tz), safe=False) if pa.types.is_timestamp(kind) else column


def _is_key(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_integer, types.is_boolean, types.is_date, types.is_timestamp, types.is_decimal)
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in (*tests, *texts))
