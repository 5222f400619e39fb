"""The dense form of a state, for an all-reduce: its histogram as an array with a counter for each place (bucket).

A state normally stores only the buckets that contain rows, as entries. Gathering and merging the entries of n processes
takes time proportional to n. An all-reduce adds up arrays while sending them, which takes about as long for a thousand
processes as for two. All parts of a state except the histogram are small, so each process gathers them from all
processes and adds them up.
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
from .fold import check_capacity, fold
from .tally import Entries

__all__ = ["DenseFacts", "describe_dense_form", "encode_flats", "merge_dense", "to_dense"]

Ints = NDArray[np.int64]
S = TypeVar("S", bound=CellTable)

MAX_PLACES = 1 << 24
"""The largest number of places of a dense histogram, whose counters then take 128 MiB."""


class DenseFacts(NamedTuple):
    """The sizes that processes exchange before they convert their states to dense form.

    Parameters
    ----------
    places : int
        The number of places (such as score buckets) in the state's histogram, including empty ones; 0 if the state has
        no dense form. A state has no dense form if it has axes (including an inner axis), rows stored as exact numbers
        rather than in buckets, no histogram, several histograms, or too many places.
    entries : int
        The number of places that contain rows.
    weighted : int
        1 if any row has a weight other than 1; otherwise 0.
    rows, excess : float
        The number of rows, and an upper bound on the difference between their total weight and their number.
    """

    places: int
    entries: int
    weighted: int
    rows: float
    excess: float


def describe_dense_form(state: CellTable) -> DenseFacts:
    """Return the facts that other processes need: whether a state has a dense form, and how large this form is."""
    name = find_dense_tally(state)
    entries = state.cells.tallies[name] if name else Entries.empty(0)
    places = _count_places(state, name) if name else 0
    return DenseFacts(
        places, len(entries), int(entries.excess is not None), state.approximate_rows, state.weight_excess_bound
    )


def find_dense_tally(state: CellTable) -> str:
    """Return the name of the histogram (tally) that `to_dense` converts, or "" if the state has no dense form."""
    if state.axes or state.inner_axis is not None:
        return ""
    names = [n for n, e in state.cells.tallies.items() if not e.is_wide and _count_places(state, n) <= MAX_PLACES]
    if len(names) != 1 or any(len(e) for n, e in state.cells.tallies.items() if n != names[0]):
        return ""
    return names[0]


def _count_places(state: CellTable, name: str) -> int:
    part = state.parts()[name]
    assert isinstance(part, Tally)
    return part.place_count(state)


def to_dense(state: CellTable, *, weighted: bool) -> Ints:
    """Return the counters of all places (buckets), as an array for an all-reduce.

    `weighted` is true if any process has weights w other than 1. The row counts are then followed by the sum of w - 1
    at each place, as two integers for each sum.

    Returns
    -------
    int64 of shape (places,) or (3 * places,)
        Integers that can be added across fewer than 2**22 processes without overflow.
    """
    name = find_dense_tally(state)
    entries, places = state.cells.tallies[name], _count_places(state, name)
    out = np.zeros((3 if weighted else 1, places), np.int64)
    at = entries.places
    out[0, at] = entries.counts
    if entries.excess is not None:
        out[1:, at] = entries.excess.T
    return out.reshape(-1)


def encode_flats(state: CellTable) -> bytes:
    """Encode all parts of a state without axes, except its histogram; return b"" if the state has no rows."""
    if not len(state):
        return b""
    pieces = []
    for flat in _list_flats(state):
        array = state.cells.flats.get(flat.name)
        pieces.append(b"\0" if array is None else b"\1" + array.astype(flat.dtype.newbyteorder("<")).tobytes())
    return b"".join(pieces)


def _list_flats(state: CellTable) -> list[Flat]:
    return [p for p in state.parts().values() if isinstance(p, Flat)]


def merge_dense(like: S, counters: Ints, flats: Sequence[bytes | memoryview], facts: Sequence[DenseFacts]) -> S:
    """Return the sum of states that were converted to dense form.

    Parameters
    ----------
    like : State
        One of the states.
    counters : int64
        The sum of the arrays that `to_dense` returned for the states.
    flats : sequence of bytes
        The bytes that `encode_flats` returned for each state.
    facts : sequence of DenseFacts
        The result of `describe_dense_form` for each state.

    Raises
    ------
    CounterOverflowError
        The sum would leave the range of counts.
    """
    check_capacity(like, sum(f.rows for f in facts), sum(f.excess for f in facts))
    arrays_by_state = [_decode_flats(like, data) for data in flats if len(data)]
    if not arrays_by_state:
        return like.empty_copy()
    name = find_dense_tally(like)
    total = _to_entries(like.cells.tallies[name].shift, counters.reshape(-1, _count_places(like, name)))
    cells = []
    # Give the histogram to the first state only, because the counters are already the sum over all states.
    for i, arrays in enumerate(arrays_by_state):
        tallies = {n: Entries.empty(e.shift, wide=e.is_wide) for n, e in like.cells.tallies.items()}
        tallies |= {name: total} if i == 0 else {}
        cells.append(like.with_cells(Cells((), np.zeros((1, 0), np.int64), (), None, None, arrays, tallies)))
    return fold(cells)


def _decode_flats(like: CellTable, data: bytes | memoryview) -> dict[str, NDArray[np.generic]]:
    arrays: dict[str, NDArray[np.generic]] = {}
    at = 0
    for flat in _list_flats(like):
        is_present, at = data[at], at + 1
        if is_present:
            empty = flat.empty(like, 1)
            piece = np.frombuffer(data, flat.dtype.newbyteorder("<"), empty.size, at)
            arrays[flat.name] = piece.astype(flat.dtype).reshape(empty.shape)
            at += piece.nbytes
    return arrays


def _to_entries(shift: int, counters: Ints) -> Entries:
    at = np.flatnonzero(counters[0])
    excess = None
    if len(counters) > 1:
        excess = np.ascontiguousarray(counters[1:, at].T)
        carry_fixed(excess)
    return tally.canonicalize(Entries(shift, at.astype(np.uint64), counters[0, at], excess))
