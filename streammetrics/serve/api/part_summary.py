"""Summarize posted parts, which arrive as frames (serialized metrics).

Frames with equal headers are read together, without creating a metric object for each frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...collect.accumulator import accumulate, definition_of
from ...collect.definition import definition_of_frame_kind, wrap_format_errors
from ...collect.metric_like import STATE_TEXT
from ...compose.sliced import Sliced
from ...errors import StateFormatError
from ...format.frame import Frame, FrameKind, read_frames
from ...format.unpack import Sections
from ...state.axes import OTHER, Vocabulary

__all__ = ["PartSummary", "summarize_parts"]

Ints = NDArray[np.int64]


class PartSummary(NamedTuple):
    """The properties of a part that `PartChecker` checks.

    Parameters
    ----------
    metrics : MetricLike
        The metrics and their settings, without rows; one object for all parts that were read together.
    keys : set
        The keys of the first slice column.
    key_kinds : dict
        The type of the keys in each slice column that contains at least one key.
    rows : int
        The number of rows. Metrics may leave out rows, so this is the largest number that any metric counted.
    weight : float
        The largest sum of weights that any metric counted.
    dropped : dict
        For each reason to drop rows, the largest number of rows that any metric dropped.
    other_share : float
        The share of rows in the slice `other`, which collects the rows of all slices beyond the slice limit.
    """

    metrics: Any
    keys: set[Any]
    key_kinds: dict[str, str]
    rows: int
    weight: float
    dropped: dict[str, int]
    other_share: float


def summarize_parts(frames: Sequence[Frame]) -> Iterator[PartSummary]:
    """Check the entire content of each frame (a serialized part) and yield a summary; all headers must be equal.

    Raises
    ------
    StateFormatError, IncompatibleStateError
        A frame is damaged. The caller then reads each frame on its own to find the damaged one.

    Examples
    --------
    >>> import streammetrics as sm
    >>> part = sm.Sliced(sm.CTR(), by="arm").update(y_true=[0, 1, 1], arm=["a", "b", "b"])
    >>> [found] = summarize_parts([Frame(part.to_bytes())])
    >>> sorted(found.keys), found.key_kinds, found.rows, found.dropped
    (['a', 'b'], {'arm': 'string'}, 3, {})
    """
    thing = _build_metrics(frames[0].kind)
    for sections in read_frames(frames):
        with wrap_format_errors():
            definition_of(thing).check_states([one.with_section_axis() for one in sections])
        yield from _summarize_sections(thing, sections)


def _build_metrics(kind: FrameKind) -> Any:
    """Return empty metrics with the classes and settings from the header of a frame."""
    if kind.about == STATE_TEXT:
        raise StateFormatError(
            "expected metrics sliced by arm, found a single state; post to_bytes() of sm.Sliced(...)"
        )
    definition = definition_of_frame_kind(kind)
    return definition.wrap(accumulate(definition))


def _summarize_sections(metrics: Any, sections: Sequence[Sections]) -> list[PartSummary]:
    sliced, many = isinstance(metrics, Sliced), len(sections[0])
    summaries = [
        PartSummary(metrics, set(), {}, 0, 0.0, {}, left) for left in _compute_other_shares(metrics, sections[0])
    ]
    rows, weight = np.zeros(many, np.int64), np.zeros(many)
    for one in sections:
        rows = np.maximum(rows, one.sum_by_section(one.joined.row_counts))
        weight = np.maximum(weight, one.sum_by_section(one.joined.row_weights))
        for part, reason, count in _count_dropped_rows(one):
            dropped = summaries[part].dropped
            dropped[reason] = max(dropped.get(reason, 0), count)
        for part, column, kind in _find_key_kinds(one):
            summaries[part].key_kinds[column] = kind
        for part, key in _find_first_keys(one) if sliced else ():
            summaries[part].keys.add(key)
    return [
        summary._replace(rows=count, weight=heavy)
        for summary, count, heavy in zip(summaries, rows.tolist(), weight.tolist(), strict=True)
    ]


def _compute_other_shares(metrics: Any, one: Sections) -> list[float]:
    if not isinstance(metrics, Sliced):
        return [0.0] * len(one)
    rows = one.joined.row_counts
    other = one.sum_by_section(np.where(one.joined.cells.keys[:, 0] == OTHER, rows, 0))
    shares: list[float] = (other / np.maximum(one.sum_by_section(rows), 1)).tolist()
    return shares


def _count_dropped_rows(one: Sections) -> Iterator[tuple[int, str, int]]:
    """Yield the counts of dropped rows as tuples of a part's index, the reason, and the number of rows."""
    dropped = one.joined.cells.flats.get("dropped")
    if dropped is not None:
        counts = one.sum_by_section(dropped)
        for part, reason in zip(*np.nonzero(counts), strict=True):
            yield int(part), one.joined.reasons[reason], int(counts[part, reason])


def _find_key_kinds(one: Sections) -> Iterator[tuple[int, str, str]]:
    """Yield the types of keys as tuples of a part's index, a slice column, and the type of the column's keys.

    Columns in which all keys are null are left out.
    """
    cells = one.joined.cells
    for i, (column, words) in enumerate(
        zip((n for a in cells.axes for n in a.names), cells.vocabularies, strict=False)
    ):
        if words.kind:
            for part in np.flatnonzero(one.sum_by_section((cells.keys[:, i] >= 0).astype(np.int64))).tolist():
                yield part, column, words.kind


def _find_first_keys(one: Sections) -> Iterator[tuple[int, Any]]:
    """Yield, for each part, the distinct keys in the first slice column, as pairs of the part's index and a key."""
    # The cells (the slices of all parts) are sorted by part and key, so equal keys of a part are adjacent. A key is
    # therefore new if it differs from its predecessor.
    cells = one.joined.cells
    ranks, words = cells.keys[:, 0], cells.vocabularies[0]
    parts = np.repeat(np.arange(len(one)), np.diff(one.fronts))
    new = (np.diff(ranks, prepend=OTHER) != 0) | (np.diff(parts, prepend=-1) != 0)
    begins = np.flatnonzero(new & (ranks != OTHER))
    yield from zip(parts[begins].tolist(), _decode_keys(words, ranks[begins]), strict=True)


def _decode_keys(words: Vocabulary, ranks: Ints) -> list[Any]:
    keys = {rank: words.read_key(rank) for rank in set(ranks.tolist())}
    return [keys[rank] for rank in ranks.tolist()]
