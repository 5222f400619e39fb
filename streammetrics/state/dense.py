"""Dense counters: a tally of few places as one array, which many processes add up without reading each other's entries.

Entries of n processes are gathered and merged, which takes n times as long; counters of all places are summed on the way,
which takes as long for two processes as for a thousand. The flats of a state are few: they are gathered, and folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..numerics.exact import carry_fixed
from . import tally
from .cell_table import CellTable
from .cells import Cells
from .declare import Flat, Tally
from .fold import check_room, fold
from .tally import Entries

__all__ = ["DenseFacts", "facts_of", "flat_bytes", "from_dense", "spread"]

Ints = NDArray[np.int64]
S = TypeVar("S", bound=CellTable)

MOST_PLACES = 1 << 24
"""128 MiB of counters: beyond that entries are smaller, whatever they hold."""


class DenseFacts(NamedTuple):
    """What must be known of a state before it is made dense.

    Parameters
    ----------
    places : int
        Places of its one tally; 0 if it has no dense form: cells by key, rows that are kept as they are, none, or several
        tallies, or too many places.
    entries : int
        Entries there are.
    weighted : int
        Whether a weight was not 1.
    rows, beside : float
        How many rows, and how far their weight is from that.
    """

    places: int
    entries: int
    weighted: int
    rows: float
    beside: float


def facts_of(state: CellTable) -> DenseFacts:
    """Say whether a state has a dense form, and what it would hold."""
    name = dense_part(state)
    entries = state.cells.tallies[name] if name else Entries.none(0)
    places = _places(state, name) if name else 0
    return DenseFacts(places, len(entries), int(entries.excess is not None), state.rows_about, state.weight_beside)


def dense_part(state: CellTable) -> str:
    """Return the name of the one tally that is not empty or may be made dense; "" if there is no dense form."""
    if state.axes or state.behind is not None:
        return ""
    names = [n for n, e in state.cells.tallies.items() if not e.wide and _places(state, n) <= MOST_PLACES]
    if len(names) != 1 or any(len(e) for n, e in state.cells.tallies.items() if n != names[0]):
        return ""
    return names[0]


def _places(state: CellTable, name: str) -> int:
    part = state.parts()[name]
    assert isinstance(part, Tally)
    return part.count(state)


def spread(state: CellTable, *, weighted: bool) -> Ints:
    """Return counters of all places: rows, and, if anybody has weights, both limbs of the sums of w - 1.

    Returns
    -------
    int64 of shape (places,) or (3 * places,)
        Numbers that may be added as they are, of fewer than 2**22 processes.
    """
    name = dense_part(state)
    entries, places = state.cells.tallies[name], _places(state, name)
    out = np.zeros((3 if weighted else 1, places), np.int64)
    at = entries.places
    out[0, at] = entries.counts
    if entries.excess is not None:
        out[1:, at] = entries.excess.T
    return out.reshape(-1)


def flat_bytes(state: CellTable) -> bytes:
    """Return all that a state of one cell holds beside its tally; nothing if it has seen no rows."""
    if not len(state):
        return b""
    pieces = []
    for flat in _flats(state):
        array = state.cells.flats.get(flat.name)
        pieces.append(b"\0" if array is None else b"\1" + array.astype(flat.dtype.newbyteorder("<")).tobytes())
    return b"".join(pieces)


def _flats(state: CellTable) -> list[Flat]:
    return [p for p in state.parts().values() if isinstance(p, Flat)]


def from_dense(like: S, counters: Ints, flats: Sequence[bytes | memoryview], facts: Sequence[DenseFacts]) -> S:
    """Make the merged state of what several have made dense.

    Parameters
    ----------
    like : State
        One of them.
    counters : int64
        The sum of what `spread` made of each.
    flats : sequence of bytes
        What `flat_bytes` made of each.
    facts : sequence of Facts
        What `facts_of` said of each.

    Raises
    ------
    CounterOverflowError
        Together they have seen more than can be counted.
    """
    check_room(like, sum(f.rows for f in facts), sum(f.beside for f in facts))
    held = [_flats_from(like, data) for data in flats if len(data)]
    if not held:
        return like.empty()
    name = dense_part(like)
    total = _entries(like.cells.tallies[name].shift, counters.reshape(-1, _places(like, name)))
    cells = []
    for i, arrays in enumerate(held):  # all rows count as those of the first: what has rows is there
        tallies = {n: Entries.none(e.shift, wide=e.wide) for n, e in like.cells.tallies.items()}
        tallies |= {name: total} if i == 0 else {}
        cells.append(like.holding(Cells((), np.zeros((1, 0), np.int64), (), None, None, arrays, tallies)))
    return fold(cells)


def _flats_from(like: CellTable, data: bytes | memoryview) -> dict[str, NDArray[np.generic]]:
    found: dict[str, NDArray[np.generic]] = {}
    at = 0
    for flat in _flats(like):
        there, at = data[at], at + 1
        if there:
            empty = flat.empty(like, 1)
            piece = np.frombuffer(data, flat.dtype.newbyteorder("<"), empty.size, at)
            found[flat.name] = piece.astype(flat.dtype).reshape(empty.shape)
            at += piece.nbytes
    return found


def _entries(shift: int, counters: Ints) -> Entries:
    at = np.flatnonzero(counters[0])
    excess = None
    if len(counters) > 1:
        excess = np.ascontiguousarray(counters[1:, at].T)
        carry_fixed(excess)
    return tally.canonical(Entries(shift, at.astype(np.uint64), counters[0, at], excess))
