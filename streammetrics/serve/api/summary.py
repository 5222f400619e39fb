"""What parts hold, in short: of frames of one kind all is read and checked in one pass, and no object made of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ...collect.accumulator import accumulate, definition_of
from ...collect.definition import described, inconsistent
from ...compose.sliced import Sliced
from ...errors import StateFormatError
from ...format.frame import Frame, FrameKind, read_together
from ...format.unpack import Sections
from ...state.axes import OTHER, Vocabulary

__all__ = ["Summary", "summaries"]

Ints = NDArray[np.int64]


class Summary(NamedTuple):
    """What a part holds.

    Parameters
    ----------
    thing : MetricLike
        Its metrics and their settings: one that has seen nothing, of all parts that were read together.
    keys : set
        Of slices, the keys of the first column.
    kinds : dict
        What keys of each column are, as far as a row has shown it.
    rows : int
        Those of the state that counted most.
    weight : float
        Of the rows, in the state where it is largest.
    dropped : dict
        Rows that were left out, by reason, of the state that left out most.
    left : float
        The share of rows in `other`, which slices with a limit have.
    """

    thing: Any
    keys: set[Any]
    kinds: dict[str, str]
    rows: int
    weight: float
    dropped: dict[str, int]
    left: float


def summaries(frames: Sequence[Frame]) -> Iterator[Summary]:
    """Yield what each of some frames of one header holds, all of which was read and checked.

    Raises
    ------
    StateFormatError, IncompatibleStateError
        One of them is damaged; which, shows when each is read alone.

    Examples
    --------
    >>> import streammetrics as sm
    >>> part = sm.Sliced(sm.CTR(), by="arm").update(y_true=[0, 1, 1], arm=["a", "b", "b"])
    >>> [found] = summaries([Frame(part.to_bytes())])
    >>> sorted(found.keys), found.kinds, found.rows, found.dropped
    (['a', 'b'], {'arm': 'string'}, 3, {})
    """
    thing = _described(frames[0].kind)
    for sections in read_together(frames):
        with inconsistent():
            definition_of(thing).check_states([one.apart() for one in sections])
        yield from _each(thing, sections)


_known: WeakKeyDictionary[FrameKind, Any] = WeakKeyDictionary()


def _described(kind: FrameKind) -> Any:
    """Return the empty object of frames of a kind; it is kept, because to make it takes as long as to read a frame."""
    if kind not in _known:
        about = json.loads(kind.about)
        if about == {"kind": "state"}:
            raise StateFormatError("this is one state; post the metrics that it is of: to_bytes() of a Sliced")
        definition = described(about, [schema.like for schema in kind.sections])
        _known[kind] = definition.wrap(accumulate(definition))
    return _known[kind]


def _each(thing: Any, sections: Sequence[Sections]) -> list[Summary]:
    sliced, many = isinstance(thing, Sliced), len(sections[0])
    found = [Summary(thing, set(), {}, 0, 0.0, {}, left) for left in _left(thing, sections[0])]
    rows, weight = np.zeros(many, np.int64), np.zeros(many)
    for one in sections:
        rows = np.maximum(rows, one.each(one.joined.rows_seen))
        weight = np.maximum(weight, one.each(one.joined.weight_seen))
        for part, reason, count in _dropped(one):
            gone = found[part].dropped
            gone[reason] = max(gone.get(reason, 0), count)
        for part, column, kind in _kinds(one):
            found[part].kinds[column] = kind
        for part, key in _first_keys(one) if sliced else ():
            found[part].keys.add(key)
    return [
        summary._replace(rows=count, weight=heavy)
        for summary, count, heavy in zip(found, rows.tolist(), weight.tolist(), strict=True)
    ]


def _left(thing: Any, one: Sections) -> list[float]:
    if not isinstance(thing, Sliced):
        return [0.0] * len(one)
    rows = one.joined.rows_seen
    other = one.each(np.where(one.joined.cells.keys[:, 0] == OTHER, rows, 0))
    shares: list[float] = (other / np.maximum(one.each(rows), 1)).tolist()
    return shares


def _dropped(one: Sections) -> Iterator[tuple[int, str, int]]:
    """Which part left rows out, why, and how many."""
    gone = one.joined.cells.flats.get("dropped")
    if gone is not None:
        counts = one.each(gone)
        for part, reason in zip(*np.nonzero(counts), strict=True):
            yield int(part), one.joined.reasons[reason], int(counts[part, reason])


def _kinds(one: Sections) -> Iterator[tuple[int, str, str]]:
    """Which part has a key in which column that is not null, and what keys are there."""
    cells = one.joined.cells
    for i, (column, words) in enumerate(zip((n for a in cells.axes for n in a.names), cells.words, strict=False)):
        if words.kind:
            for part in np.flatnonzero(one.each((cells.keys[:, i] >= 0).astype(np.int64))).tolist():
                yield part, column, words.kind


def _first_keys(one: Sections) -> Iterator[tuple[int, Any]]:
    """Which part has which keys in the first column: sorted, so each stands where the one before is another."""
    cells = one.joined.cells
    ranks, words = cells.keys[:, 0], cells.words[0]
    of = np.repeat(np.arange(len(one)), np.diff(one.fronts))
    new = (np.diff(ranks, prepend=OTHER) != 0) | (np.diff(of, prepend=-1) != 0)
    begins = np.flatnonzero(new & (ranks != OTHER))
    yield from zip(of[begins].tolist(), _plain(words, ranks[begins]), strict=True)


def _plain(words: Vocabulary, ranks: Ints) -> list[Any]:
    known = {rank: words.key(rank) for rank in set(ranks.tolist())}
    return [known[rank] for rank in ranks.tolist()]
