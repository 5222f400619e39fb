"""Which keys of slices have most rows: a pass over the columns of keys alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from streammetrics.io.logs import Log
from streammetrics.io.parts import Part

__all__ = ["MOST_KEYS", "largest_keys"]

MOST_KEYS = 1 << 22  # of which the rows are counted: some 50 bytes each
_ROWS = "streammetrics: rows"
_WAITING = 16  # counts of batches before they are added up

Names = tuple[str, ...]


def largest_keys(log: Log, sets: Sequence[Names], limit: int, threads: int) -> dict[Names, list[tuple[Any, ...]]]:
    """Return the keys of most rows, of equal ones the smaller, for each set of columns that has more of them.

    Parameters
    ----------
    log : Log
        What is read, a first time.
    sets : sequence of tuple of str
        Slicing columns.
    limit : int
        How many keys of each.
    threads : int
        How many threads read.

    Returns
    -------
    dict of tuple of str to list of tuple
        A set is left out that has no more keys than the limit, or more than MOST_KEYS, or columns that are no keys.
    """
    parts = log.parts([], list(dict.fromkeys(name for names in sets for name in names)))
    with ThreadPoolExecutor(threads) as pool:
        counted = list(pool.map(lambda part: _of_part(part, sets), parts))
    found = {}
    for names in sets:
        table = _added([one[names] for one in counted if one[names] is not None], names)
        if table is not None and limit < table.num_rows <= MOST_KEYS:
            order = [(_ROWS, "descending"), *((name, "ascending") for name in names)]
            first = table.sort_by(order).slice(0, limit)
            found[names] = list(zip(*(_plain(first.column(name)).to_pylist() for name in names), strict=True))
    return found


def _of_part(part: Part, sets: Sequence[Names]) -> dict[Names, pa.Table | None]:
    """The rows of every key of a part; None where columns are no keys, or there are too many."""
    waiting: dict[Names, list[pa.Table] | None] = {names: [] for names in sets}
    for batch in part.batches():
        for names, tables in waiting.items():
            if tables is None:
                continue
            columns = [_decoded(batch.column(name)) for name in names]
            if not all(_is_key(column.type) for column in columns):
                waiting[names] = None
                continue
            table = pa.table([*columns, pa.array(np.ones(batch.num_rows, np.int64))], names=[*names, _ROWS])
            tables.append(_sum(table, names))
            if len(tables) > _WAITING and (total := _added(tables, names)) is not None:
                waiting[names] = [total] if total.num_rows <= MOST_KEYS else None
    return {names: _added(tables, names) if tables is not None else None for names, tables in waiting.items()}


def _added(tables: Iterable[pa.Table], names: Names) -> pa.Table | None:
    several = list(tables)
    return _sum(pa.concat_tables(several, promote_options="permissive"), names) if several else None


def _sum(table: pa.Table, names: Names) -> pa.Table:
    summed = table.group_by(list(names), use_threads=False).aggregate([(_ROWS, "sum")])
    return summed.rename_columns([_ROWS if name == f"{_ROWS}_sum" else name for name in summed.column_names])


def _decoded(column: pa.Array) -> pa.Array:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times in microseconds: what Python's have."""
    kind = column.type
    return column.cast(pa.timestamp("us", kind.tz), safe=False) if pa.types.is_timestamp(kind) else column


def _is_key(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_integer, types.is_boolean, types.is_date, types.is_timestamp, types.is_decimal)
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in (*tests, *texts))
