"""What processes do that add up what they have seen, whatever carries their bytes: no framework is known here.

1. A record of fixed size: the digest of what is counted, whether this rank has failed, how long its frame is. So all ranks
   know of a difference, or of a failure, before anything is added, and all raise.
2. If a large histogram would be quicker as counters, the facts of all states; all ranks decide alike.
3. The frames of all ranks, which each merges, and one sum of the counters of what is dense.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..collect.accumulator import definition_of
from ..collect.metric_like import MetricLike, empty_copy, states_of, with_states
from ..collect.serialization import from_bytes
from ..errors import IncompatibleStateError, SyncError
from ..format import frame
from ..state.dense import DenseFacts, facts_of, flat_bytes, from_dense, spread
from ..state.state import State

__all__ = ["Transport", "add_up", "spelled"]

H = TypeVar("H", bound=MetricLike)
Ints = NDArray[np.int64]

RECORD = struct.Struct("<32sBBq")
FACTS = struct.Struct("<qqqdd")
LENGTH = struct.Struct("<q")
MOST_TEXT = 2000
MOST_BYTES = 1 << 62  # frames of the own job are as large as they are


class Transport(Protocol):
    """What carries bytes between ranks; every rank calls the same methods in the same order, or raises SyncError."""

    rank: int
    size: int
    sums: bool
    """Whether it adds integers on the way, so that it takes no longer for more ranks."""

    def gather_uneven(self, data: bytes, lengths: Sequence[int]) -> Sequence[bytes | memoryview]:
        """Return the bytes of all ranks, whose lengths all know."""
        ...

    def sum(self, numbers: Ints) -> Ints:
        """Return the sum over all ranks of arrays of one length, of int64."""
        ...


class Said(NamedTuple):
    """What a rank says first."""

    plan: bytes
    failed: bool
    dense: bool
    length: int


def add_up(metrics: H, transport: Transport) -> H:
    """Return what all ranks have seen together; the metrics stay as they are.

    Raises
    ------
    IncompatibleStateError
        Ranks count different things; all raise, and name them.
    SyncError
        A rank is gone or stuck, or failed before; all that are left raise.
    """
    try:
        if not isinstance(metrics, MetricLike):
            raise TypeError(f"sync() takes a metric, collection, slices or bundle, not a {type(metrics).__name__}")
        blank, states = empty_copy(metrics), states_of(metrics)
        plan = _plan(blank)
        asked = transport.sums and any(_pays(facts_of(s), transport.size) for s in states)
        data = b"" if asked else frame.write(states)
    except Exception as error:
        _give_up(transport, error)
        raise
    said = _first(transport, Said(plan, False, asked, len(data)))
    _check(transport, said, blank)
    if any(s.dense for s in said):
        total = _with_sums(transport, states)
    else:
        total = _merged(transport.gather_uneven(data, [s.length for s in said]))
    made: H = with_states(metrics, total)
    return made


def _plan(blank: MetricLike) -> bytes:
    """What is counted, and how what is not framed is laid out."""
    sha = hashlib.sha256(blank.digest().encode())
    for state in states_of(blank):
        sha.update(repr([(p.name, getattr(p, "form", "tally")) for p in state.parts().values()]).encode())
        sha.update(repr(state.reasons).encode())
    return sha.digest()


def _records(transport: Transport, record: bytes) -> list[bytes]:
    """The records of all ranks, which are equally long."""
    return [bytes(r) for r in transport.gather_uneven(record, [len(record)] * transport.size)]


def _first(transport: Transport, mine: Said) -> list[Said]:
    record = RECORD.pack(mine.plan, mine.failed, mine.dense, mine.length)
    return [Said(p, bool(f), bool(d), n) for p, f, d, n in map(RECORD.unpack, _records(transport, record))]


def _give_up(transport: Transport, error: Exception) -> None:
    """Tell the others, as far as they can be reached: the error itself is raised here anyway."""
    with suppress(SyncError):
        said = _first(transport, Said(bytes(32), True, False, 0))
        _texts(transport, said, f"{type(error).__name__}: {error}"[:MOST_TEXT].encode())


def _texts(transport: Transport, said: Sequence[Said], mine: bytes) -> list[bytes]:
    lengths = [LENGTH.unpack(n)[0] for n in _records(transport, LENGTH.pack(len(mine)))]
    return [bytes(t) for t in transport.gather_uneven(mine, lengths)]


# -- what cannot be added ----------------------------------------------------------------------------------------------


def _check(transport: Transport, said: Sequence[Said], blank: MetricLike) -> None:
    """Raise on all ranks if one has failed, or counts something else."""
    if not any(s.failed or s.plan != said[0].plan for s in said):
        return
    texts = _texts(transport, said, blank.to_bytes())
    if failed := [f"rank {r}: {texts[r].decode(errors='replace')}" for r, s in enumerate(said) if s.failed]:
        raise SyncError(f"nothing was added, as other ranks have failed: {'; '.join(failed)}")
    raise IncompatibleStateError(f"ranks count different things: {'; '.join(_differences(said, texts))}")


def _differences(said: Sequence[Said], texts: Sequence[bytes]) -> list[str]:
    """Say how each kind of metrics differs from that of rank 0, and which ranks have it."""
    first, out = definition_of(from_bytes(texts[0])), []
    for plan in dict.fromkeys(s.plan for s in said if s.plan != said[0].plan):
        ranks = [r for r, s in enumerate(said) if s.plan == plan]
        who = f"{spelled(ranks)} against rank 0"
        other = definition_of(from_bytes(texts[ranks[0]]))
        if other.kind != first.kind:
            what = [f"it is a {other.type_name}, not a {first.type_name}"]
        else:
            what = first.differences(other)
        out.append(f"{who}: {', '.join(what) or 'releases differ'}")
    return out


def spelled(ranks: Sequence[int]) -> str:
    """Ranks in ascending order, neighbours as one: ranks 1, 4 to 7."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    said = ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs)
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {said}"


# -- adding ------------------------------------------------------------------------------------------------------------


def _pays(facts: DenseFacts, ranks: int) -> bool:
    """Whether counters are added more quickly than as many entries are read and merged (measured on gloo)."""
    return bool(facts.places) and facts.entries * ranks >= facts.places


def _merged(parts: Sequence[bytes | memoryview]) -> list[State]:
    return frame.merge_frames(frame.Frame(p, MOST_BYTES) for p in parts)[1]


def _with_sums(transport: Transport, states: Sequence[State]) -> list[State]:
    """Add what is of a fixed shape, and large, on the way; merge the rest."""
    facts = _facts(transport, states)
    dense = [all(f.places for f in of) and any(_pays(f, transport.size) for f in of) for of in facts]
    rest = frame.write([s for s, d in zip(states, dense, strict=True) if not d])
    flats = [flat_bytes(s) for s, d in zip(states, dense, strict=True) if d]
    counters = [
        spread(s, weighted=any(f.weighted for f in of)) for s, of, d in zip(states, facts, dense, strict=True) if d
    ]
    parts = [_split(p, len(flats)) for p in _gathered(transport, _joined([rest, *flats]))]
    sums = transport.sum(np.concatenate(counters)) if counters else np.zeros(0, np.int64)
    pieces = np.split(sums, np.cumsum([len(c) for c in counters])[:-1]) if counters else []
    merged, added, out = iter(_merged([p[0] for p in parts])), 0, []
    for state, of, d in zip(states, facts, dense, strict=True):
        if d:
            out.append(from_dense(state, pieces[added], [p[1 + added] for p in parts], of))
            added += 1
        else:
            out.append(next(merged))
    return out


def _facts(transport: Transport, states: Sequence[State]) -> list[list[DenseFacts]]:
    """The facts of each state on all ranks."""
    mine = b"".join(FACTS.pack(*facts_of(s)) for s in states)
    by_rank = [[DenseFacts(*f) for f in FACTS.iter_unpack(r)] for r in _records(transport, mine)]
    return [list(of) for of in zip(*by_rank, strict=True)]


def _gathered(transport: Transport, data: bytes) -> Sequence[bytes | memoryview]:
    lengths = [LENGTH.unpack(n)[0] for n in _records(transport, LENGTH.pack(len(data)))]
    return transport.gather_uneven(data, lengths)


def _joined(pieces: Sequence[bytes]) -> bytes:
    return b"".join([*(LENGTH.pack(len(p)) for p in pieces), *pieces])


def _split(data: bytes | memoryview, flats: int) -> list[memoryview]:
    """Take apart what `_joined` made: a frame, and the flats of what is dense."""
    view, at, out = memoryview(data), (1 + flats) * LENGTH.size, []
    for i in range(1 + flats):
        length = LENGTH.unpack_from(view, i * LENGTH.size)[0]
        out.append(view[at : at + length])
        at += length
    return out
