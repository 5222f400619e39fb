"""Which keys of slices have most rows: a pass over the columns of keys alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streammetrics.io.column_types import Uses
from streammetrics.io.logs import Log
from streammetrics.io.parts import LogPart
from streammetrics.io.readers import decoded, one_table
from streammetrics.io.where import Filter, as_numbers

__all__ = ["MOST_KEYS", "largest_keys"]

MOST_KEYS = 1 << 22  # of which the rows are counted: some 50 bytes each
_ROWS = "streammetrics: rows"
_WAITING = 16  # counts of batches before they are added up

Names = tuple[str, ...]


def largest_keys(
    log: Log,
    sets: Sequence[Names],
    limit: int,
    threads: int,
    filters: Sequence[Filter] = (),
    any_of: Sequence[str] = (),
    uses: Uses | None = None,
) -> dict[Names, list[tuple[Any, ...]]]:
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
    filters : sequence of Filter
        What makes columns of 0 and 1.
    any_of : sequence of str
        Such columns, or others of the log: a row counts where one of them is 1. All rows do without.
    uses : Uses, optional
        What columns are read for in the pass that counts: keys are to be the same.

    Returns
    -------
    dict of tuple of str to list of tuple
        A set is left out that has no more keys than the limit, or more than MOST_KEYS, or columns that are no keys.
    """
    made = {one.name: one for one in filters if one.name in any_of}
    read = [*(n for n in any_of if n not in made), *(n for one in made.values() for n in one.columns)]
    parts = log.parts(read, list(dict.fromkeys(name for names in sets for name in names)), uses)
    if made:
        parts = [part.with_flags(tuple(made.values())) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        counted = list(pool.map(lambda part: _of_part(part, sets, any_of), parts))
    found = {}
    for names in sets:
        table = _added([table for one in counted for table in one[names] or []], names)
        if table is None or any(one[names] is None for one in counted):
            continue
        if limit < table.num_rows <= MOST_KEYS:
            order = [(_ROWS, "descending"), *((name, "ascending") for name in names)]
            first = table.sort_by(order).slice(0, limit)
            found[names] = list(zip(*(_plain(first.column(name)).to_pylist() for name in names), strict=True))
    return found


def _of_part(part: LogPart, sets: Sequence[Names], any_of: Sequence[str]) -> dict[Names, list[pa.Table] | None]:
    """The rows of every key of a part, in tables; None where columns are no keys, or there are too many."""
    waiting: dict[Names, list[pa.Table] | None] = {names: [] for names in sets}
    for batch in part.batches():
        rows = _counted(batch, any_of)
        for names, tables in waiting.items():
            if tables is None:
                continue
            columns = [decoded(batch.column(name)) for name in names]
            if not all(_is_key(column.type) for column in columns):
                waiting[names] = None
                continue
            table = pa.table([*columns, rows], names=[*names, _ROWS])
            tables.append(_sum(table, names))
            if len(tables) > _WAITING and (total := _added(tables, names)) is not None:
                waiting[names] = [total] if total.num_rows <= MOST_KEYS else None
    return waiting


def _counted(batch: pa.RecordBatch, any_of: Sequence[str]) -> pa.Array:
    """1 for a row that counts, where one of some columns is 1, else 0; a key of none is one of the least."""
    found = pa.array(np.full(batch.num_rows, not any_of))
    for name in any_of:
        flags = as_numbers(decoded(batch.column(name)), name)
        found = pc.or_(found, pc.equal(flags, 1.0).fill_null(False))
    return found.cast(pa.int64())


def _added(tables: Sequence[pa.Table], names: Names) -> pa.Table | None:
    return _sum(one_table(tables), names) if tables else None


def _sum(table: pa.Table, names: Names) -> pa.Table:
    summed = table.group_by(list(names), use_threads=False).aggregate([(_ROWS, "sum")])
    return summed.rename_columns([_ROWS if name == f"{_ROWS}_sum" else name for name in summed.column_names])


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times in microseconds: what Python's have."""
    kind = column.type
    return column.cast(pa.timestamp("us", kind.tz), safe=False) if pa.types.is_timestamp(kind) else column


def _is_key(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_integer, types.is_boolean, types.is_date, types.is_timestamp, types.is_decimal)
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in (*tests, *texts))
