"""Frames as what they hold: those of one kind in one pass, which takes a third of the time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..collect.holder import Holder
from ..collect.saved import in_turn
from ..errors import StateFormatError, StreamMetricsError
from ..state.frame import Frame
from .keys import Seen

__all__ = ["Decoded", "decoded"]


class Decoded(NamedTuple):
    """The digest of what a frame holds, as `Holder.digest` has it, and its rows; or what is wrong with it."""

    digest: str = ""
    seen: Seen = Seen()
    error: Exception | None = None


def decoded(frames: Sequence[bytes], max_content: int, checks: Sequence[Callable[[Any], None]] = ()) -> list[Decoded]:
    """Decode frames, of which everything is read and checked.

    Parameters
    ----------
    frames : sequence of bytes
        They need not be trusted: one that is damaged, newer or no metrics keeps the others from nothing.
    max_content : int
        The most bytes that the content of one may take.
    checks : sequence of callables
        One of each frame, or none: called with what it holds, which is that until the next one; what it raises is what is
        wrong with the frame.

    Examples
    --------
    >>> import streammetrics as sm
    >>> good, bad = decoded([sm.CTR().update([0, 1]).to_bytes(), b"SMET"], 1 << 20)
    >>> good.seen.rows, bad.error
    (2, StateFormatError('4 bytes are too few for a state; it is truncated, or something else'))
    """
    found = [Decoded() for _ in frames]
    try:
        opened = [Frame(data, max_content) for data in frames]
        for i, thing in in_turn(opened):
            found[i] = _checked(thing, opened[i], checks[i : i + 1])
    except (StreamMetricsError, MemoryError) as error:  # whoever sent it is told
        if len(frames) == 1:
            return [Decoded(error=error)]
        # one by one, so that it shows which it is
        return [decoded([frame], max_content, checks[i : i + 1])[0] for i, frame in enumerate(frames)]
    return found


def _checked(thing: Any, frame: Frame, checks: Sequence[Callable[[Any], None]]) -> Decoded:
    if not isinstance(thing, Holder):
        raise StateFormatError("this is one state; post the metrics that it is of: to_bytes() of a Sliced")
    try:
        for check in checks:
            check(thing)
    except StreamMetricsError as error:  # whoever sent it is told
        return Decoded(error=error)
    sha = hashlib.sha256(frame.kind.about.encode())
    for section in range(len(frame)):
        sha.update(bytes.fromhex(frame.digest(section)))
    return Decoded(sha.hexdigest(), _seen(thing))


def _seen(thing: Holder) -> Seen:
    """The rows of the state that counted most, and those left out, by reason, of the state that left out most."""
    rows, dropped = 0, dict[str, int]()
    for state in thing.states:
        rows = max(rows, int(state.rows_seen.sum()))
        gone = state.cells.flats.get("dropped")
        counts = [] if gone is None else gone.sum(axis=0).tolist()
        for reason, count in zip(state.reasons, counts, strict=False):
            dropped[reason] = max(dropped.get(reason, 0), count)
    return Seen(rows, json.dumps({reason: count for reason, count in sorted(dropped.items()) if count}))
