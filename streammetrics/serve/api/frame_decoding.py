"""Decode posted frames (serialized metrics).

Frames with the same header are decoded together, which is three times as fast as decoding each frame on its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...errors import StreamMetricsError
from ...format.frame import Frame
from ..part_keys import RowCounts
from .part_summary import PartSummary, summarize_parts

__all__ = ["DecodedFrame", "decode_frames"]


class DecodedFrame(NamedTuple):
    """The result of decoding one frame: the digest (hash) of its metrics and its row counts, or the error."""

    digest: str = ""
    row_counts: RowCounts = RowCounts()
    error: Exception | None = None


def decode_frames(
    frames: Sequence[bytes], max_content: int, checks: Sequence[Callable[[PartSummary], None]] = ()
) -> list[DecodedFrame]:
    """Decode frames (serialized metrics) and check all of their content.

    Parameters
    ----------
    frames : sequence of bytes
        Untrusted input. A damaged frame, or one from a later release, does not affect the results of the others.
    max_content : int
        The maximum decompressed size of a frame, in bytes.
    checks : sequence of callables
        One check for each frame, or an empty sequence for no checks. A check takes the summary of its frame, and raises
        an error to reject the frame.

    Examples
    --------
    >>> import streammetrics as sm
    >>> good, bad = decode_frames([sm.CTR().update([0, 1]).to_bytes(), b"SMET"], 1 << 20)
    >>> good.row_counts.rows, bad.error
    (2, StateFormatError('4 bytes are too few for a state: the bytes are truncated, or are not a state'))
    """
    results: dict[int, DecodedFrame] = {}
    opened: dict[int, Frame] = {}
    for i, data in enumerate(frames):
        try:
            opened[i] = Frame(data, max_content)
        # This frame is damaged. Its error is returned to the sender, and the other frames are still decoded.
        except (StreamMetricsError, MemoryError) as error:
            results[i] = DecodedFrame(error=error)
    for indices in _group_by_header(opened):
        for i, summary in zip(indices, _summarize_frames([opened[i] for i in indices]), strict=True):
            results[i] = _check_frame(summary, opened[i], checks[i : i + 1])
    return [results[i] for i in range(len(frames))]


def _group_by_header(opened: Mapping[int, Frame]) -> Iterator[list[int]]:
    """Yield groups of frames with the same header, as lists of frame indices."""
    groups: dict[tuple[bytes, int], list[int]] = {}
    for i, frame in opened.items():
        groups.setdefault((frame.head, frame.size), []).append(i)
    yield from groups.values()


def _summarize_frames(frames: Sequence[Frame]) -> list[PartSummary | Exception]:
    """Return the summary or the error of each frame; all frames must have the same header.

    If decoding the frames together fails, each is decoded on its own, so that only damaged frames get an error.
    """
    try:
        return list(summarize_parts(frames))
    # At least one of the frames is damaged. Decode each frame alone, so that only the damaged frames get an error.
    except (StreamMetricsError, MemoryError) as error:
        return [error] if len(frames) == 1 else [one for frame in frames for one in _summarize_frames([frame])]


def _check_frame(
    summary: PartSummary | Exception, frame: Frame, checks: Sequence[Callable[[PartSummary], None]]
) -> DecodedFrame:
    if isinstance(summary, Exception):
        return DecodedFrame(error=summary)
    try:
        for check in checks:
            check(summary)
    # A check has refused this frame. Its error is returned to the sender.
    except StreamMetricsError as error:
        return DecodedFrame(error=error)
    sha = hashlib.sha256(frame.kind.about.encode())
    for section in range(len(frame)):
        sha.update(bytes.fromhex(frame.digest(section)))
    return DecodedFrame(sha.hexdigest(), RowCounts(summary.rows, json.dumps(summary.dropped, sort_keys=True)))
