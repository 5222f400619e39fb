"""Rows as workers count them: Spark's batches are small, so many are one; and queries come whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from ...io.queries import query_ids

__all__ = ["gathered", "whole_queries"]

ROWS = 1 << 17  # counted at once: what a batch costs beside its rows no longer matters


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of some batches, many at a time, each column in one piece; nothing where there are none."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held += [batch] if batch.num_rows else []
        if sum(b.num_rows for b in held) >= ROWS:
            yield pa.Table.from_batches(held).combine_chunks()
            held = []
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def whole_queries(tables: Iterable[pa.Table], column: str | tuple[str, ...]) -> Iterator[pa.Table]:
    """Yield rows that are sorted by query, cut between queries alone."""
    held: list[pa.Table] = []
    for table in tables:
        rows = pa.concat_tables([*held, table]).combine_chunks()
        ids = query_ids(rows, column)
        starts = np.flatnonzero((ids[1:] != ids[:-1]).any(axis=1)) + 1
        cut = int(starts[-1]) if len(starts) else 0
        if cut:
            yield rows.slice(0, cut)
        held = [rows.slice(cut)]
    yield from held
