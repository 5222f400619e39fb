"""Merge the metrics of several processes over any transport of bytes (such as MPI or gloo), in three steps.

A frame is the state of the metrics in the byte format of this library. It stores a histogram as a sparse list of its
nonempty buckets (entries). A dense histogram, by contrast, is an array with one counter for each possible bucket.

1. All ranks exchange a fixed-size record: the digest of the metric settings, whether the rank has failed, and the
   length of its frame. If the settings differ or a rank has failed, all ranks learn of this before anything is merged,
   and all raise an error.
2. If a rank reports in step 1 that summing dense histograms by an all-reduce may be faster than merging the entries of
   all ranks, all ranks exchange the sizes of their histograms. From these, every rank makes the same decision.
3. All ranks exchange their frames, and each rank merges them. The frames leave out the histograms that are summed by an
   all-reduce.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..collect.accumulator import definition_of
from ..collect.metric_like import MetricLike, empty_copy, states_of, with_states
from ..collect.serialization import from_bytes, merge
from ..errors import IncompatibleStateError, SyncError
from ..format import frame
from ..state.dense import DenseFacts, describe_dense_form, encode_flats, merge_dense, to_dense
from ..state.state import State
from .deferred import Deferred

__all__ = ["Transport", "format_ranks", "merge_ranks", "merge_saved", "read_metrics"]

H = TypeVar("H", bound=MetricLike)
Ints = NDArray[np.int64]

RECORD = struct.Struct("<32sBBq")
FACTS = struct.Struct("<qqqdd")
LENGTH = struct.Struct("<q")
MAX_TEXT = 2000
# The maximum size of a frame (encoded states). Only untrusted data needs a strict limit. Ranks of the same job trust
# each other, so this limit is larger than any frame.
MAX_FRAME_BYTES = 1 << 62


class Transport(Protocol):
    """A way to send bytes between ranks, such as an MPI communicator.

    All ranks must call the same methods in the same order. A method raises SyncError if other ranks do not answer.
    """

    rank: int
    size: int
    sums: bool
    """Whether the transport supports `sum`, an all-reduce whose time hardly grows with the number of ranks."""

    def gather_uneven(self, data: bytes, lengths: Sequence[int]) -> Sequence[bytes | memoryview]:
        """Send this rank's bytes to all ranks, and return the bytes of every rank; `lengths` gives the size of each."""
        ...

    def sum(self, numbers: Ints) -> Ints:
        """Return the elementwise sum of all ranks' arrays, which must have equal lengths."""
        ...


class RankReport(NamedTuple):
    """The first message that a rank sends to all others.

    `plan` is a digest of the metric settings, `failed` says whether the rank has raised an error, and `length` is the
    length of its frame (its encoded state) in bytes. `dense` is true if the rank has a histogram that may be faster to
    sum as an array of counters than to send as a list of entries.
    """

    plan: bytes
    failed: bool
    dense: bool
    length: int


def read_metrics(metrics: H | Deferred[H]) -> H:
    """Return the metrics to merge; for a `Deferred`, the metrics in it, after adding its waiting batches to them.

    Raises
    ------
    TypeError
        The argument is not an object of this library that can be merged.
    InvalidInputError
        A batch that was passed to a `Deferred` had invalid values.
    """
    counted = metrics.flush() if isinstance(metrics, Deferred) else metrics
    if not isinstance(counted, MetricLike):
        raise TypeError(
            f"sync() takes a metric, collection, slices, bundle or Deferred; found an object of class "
            f"{type(metrics).__name__}"
        )
    return counted


def merge_ranks(metrics: H | Deferred[H], transport: Transport) -> H:
    """Return the merged metrics of all ranks; the argument does not change, but waiting steps of `Deferred` are counted.

    Raises
    ------
    IncompatibleStateError
        Ranks have different metrics or settings. All ranks raise this error, and its message lists the differences.
    SyncError
        A rank is gone or stuck, or has failed. All other ranks raise this error.
    """
    try:
        counted = read_metrics(metrics)
        empty, states = empty_copy(counted), states_of(counted)
        plan = _compute_plan(empty)
        dense = transport.sums and any(_is_dense_faster(describe_dense_form(s), transport.size) for s in states)
        data = b"" if dense else frame.write_frame(states)
    except Exception as error:
        _report_failure(transport, error)
        raise
    reports = _exchange_reports(transport, RankReport(plan, False, dense, len(data)))
    _check_reports(transport, reports, empty)
    if any(s.dense for s in reports):
        total = _merge_with_sums(transport, states)
    else:
        total = _merge_frames(transport.gather_uneven(data, [s.length for s in reports]))
    merged: H = with_states(counted, total)
    return merged


def _compute_plan(blank: MetricLike) -> bytes:
    """Return a digest of the metric settings and the counter layout. Ranks can merge if their digests are equal.

    `blank` is an empty copy of the metrics of this rank.
    """
    sha = hashlib.sha256(blank.digest().encode())
    for state in states_of(blank):
        sha.update(repr([(p.name, getattr(p, "form", "tally")) for p in state.parts().values()]).encode())
        sha.update(repr(state.reasons).encode())
    return sha.digest()


def _gather_records(transport: Transport, record: bytes) -> list[bytes]:
    """Send this rank's record to all ranks, and return the records of all ranks, which must have equal lengths."""
    return [bytes(r) for r in transport.gather_uneven(record, [len(record)] * transport.size)]


def _exchange_reports(transport: Transport, mine: RankReport) -> list[RankReport]:
    record = RECORD.pack(mine.plan, mine.failed, mine.dense, mine.length)
    return [RankReport(p, bool(f), bool(d), n) for p, f, d, n in map(RECORD.unpack, _gather_records(transport, record))]


def _report_failure(transport: Transport, error: Exception) -> None:
    """Send this rank's error to all reachable ranks, so that they do not wait. The caller then raises the error."""
    with suppress(SyncError):
        reports = _exchange_reports(transport, RankReport(bytes(32), True, False, 0))
        _gather_texts(transport, reports, f"{type(error).__name__}: {error}"[:MAX_TEXT].encode())


def _gather_texts(transport: Transport, reports: Sequence[RankReport], mine: bytes) -> list[bytes]:
    lengths = [LENGTH.unpack(n)[0] for n in _gather_records(transport, LENGTH.pack(len(mine)))]
    return [bytes(t) for t in transport.gather_uneven(mine, lengths)]


# -- differences -------------------------------------------------------------------------------------------------------


def _check_reports(transport: Transport, reports: Sequence[RankReport], blank: MetricLike) -> None:
    """Raise an error on every rank if any rank has failed or has different metrics.

    `blank` is an empty copy of the metrics of this rank, which is sent to describe its settings.
    """
    if not any(s.failed or s.plan != reports[0].plan for s in reports):
        return
    texts = _gather_texts(transport, reports, blank.to_bytes())
    if failed := [f"rank {r}: {texts[r].decode(errors='replace')}" for r, s in enumerate(reports) if s.failed]:
        raise SyncError(f"nothing was merged, because other ranks have failed: {'; '.join(failed)}")
    raise _build_mismatch_error([s.plan for s in reports], texts)


def merge_saved(parts: Sequence[bytes]) -> Any:
    """Merge the metrics that the ranks have saved as bytes; `parts` contains the bytes of each rank.

    Raises
    ------
    IncompatibleStateError
        Ranks have different metrics or settings; the message lists the differences and the ranks.
    """
    try:
        return merge(parts)
    except IncompatibleStateError:
        plans = [empty_copy(from_bytes(part)).digest() for part in parts]
        if len(set(plans)) == 1:
            raise
        raise _build_mismatch_error(plans, parts) from None


def _build_mismatch_error(plans: Sequence[Any], texts: Sequence[bytes]) -> IncompatibleStateError:
    """Return the error that says how the metrics of other ranks differ from the metrics of rank 0.

    Parameters
    ----------
    plans : sequence
        A digest of the metric settings of each rank.
    texts : sequence of bytes
        The saved metrics of each rank. Only their settings are compared.
    """
    reference, sentences = definition_of(from_bytes(texts[0])), []
    for plan in dict.fromkeys(p for p in plans if p != plans[0]):
        ranks = [r for r, p in enumerate(plans) if p == plan]
        who = format_ranks(ranks)
        other = definition_of(from_bytes(texts[ranks[0]]))
        if other.kind != reference.kind:
            what = [f"{other.type_name} instead of {reference.type_name}"]
        else:
            # Every rank shows this text, so replace "here" and "there" with the numbers of the ranks.
            what = [
                re.sub(r" here and (.*) there$", rf" on rank 0 and \1 on {who}", text)
                .replace("the other object", who)
                .replace("the other metric", f"the metric of {who}")
                .replace("this object", "rank 0")
                for text in reference.differences(other)
            ]
        differ = "differ" if len(ranks) > 1 else "differs"
        sentences.append(f"{who} {differ} from rank 0: {', '.join(what) or 'the releases of streammetrics differ'}")
    return IncompatibleStateError(f"the ranks have different metrics: {'; '.join(sentences)}")


def format_ranks(ranks: Sequence[int]) -> str:
    """Format sorted ranks, with ranges for consecutive ones: "ranks 1, 4 to 7"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    text = ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs)
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {text}"


# -- merging -----------------------------------------------------------------------------------------------------------


def _is_dense_faster(facts: DenseFacts, ranks: int) -> bool:
    """Return whether summing a dense histogram by an all-reduce is faster than merging the entries of all ranks.

    The rule is based on measurements with gloo. `facts` gives the number of counters in the dense form of the histogram
    (0 if there is no dense form) and the number of entries (nonempty buckets) in its sparse form.
    """
    return bool(facts.places) and facts.entries * ranks >= facts.places


def _merge_frames(parts: Sequence[bytes | memoryview]) -> list[State]:
    return frame.merge_frames(frame.Frame(p, MAX_FRAME_BYTES) for p in parts)[1]


def _merge_with_sums(transport: Transport, states: Sequence[State]) -> list[State]:
    """Merge the states of all ranks.

    Histograms are summed by an all-reduce if that is faster. All other states are exchanged as frames (encoded states).
    """
    facts = _gather_facts(transport, states)
    dense = [all(f.places for f in of) and any(_is_dense_faster(f, transport.size) for f in of) for of in facts]
    rest = frame.write_frame([s for s, d in zip(states, dense, strict=True) if not d])
    flats = [encode_flats(s) for s, d in zip(states, dense, strict=True) if d]
    counters = [
        to_dense(s, weighted=any(f.weighted for f in of)) for s, of, d in zip(states, facts, dense, strict=True) if d
    ]
    parts = [_unpack_pieces(p, len(flats)) for p in _gather_bytes(transport, _pack_pieces([rest, *flats]))]
    sums = transport.sum(np.concatenate(counters)) if counters else np.zeros(0, np.int64)
    pieces = np.split(sums, np.cumsum([len(c) for c in counters])[:-1]) if counters else []
    merged, added, out = iter(_merge_frames([p[0] for p in parts])), 0, []
    for state, of, d in zip(states, facts, dense, strict=True):
        if d:
            out.append(merge_dense(state, pieces[added], [p[1 + added] for p in parts], of))
            added += 1
        else:
            out.append(next(merged))
    return out


def _gather_facts(transport: Transport, states: Sequence[State]) -> list[list[DenseFacts]]:
    """Exchange facts about histograms, such as their sizes; return the facts of all ranks for each state."""
    mine = b"".join(FACTS.pack(*describe_dense_form(s)) for s in states)
    by_rank = [[DenseFacts(*f) for f in FACTS.iter_unpack(r)] for r in _gather_records(transport, mine)]
    return [list(of) for of in zip(*by_rank, strict=True)]


def _gather_bytes(transport: Transport, data: bytes) -> Sequence[bytes | memoryview]:
    lengths = [LENGTH.unpack(n)[0] for n in _gather_records(transport, LENGTH.pack(len(data)))]
    return transport.gather_uneven(data, lengths)


def _pack_pieces(pieces: Sequence[bytes]) -> bytes:
    return b"".join([*(LENGTH.pack(len(p)) for p in pieces), *pieces])


def _unpack_pieces(data: bytes | memoryview, flats: int) -> list[memoryview]:
    """Split the bytes that `_pack_pieces` joined: a frame, then one piece for each state with a dense histogram.

    The frame contains all other states. A piece contains all fields of a state except its histogram; `flats` is the
    number of pieces.
    """
    view, at, out = memoryview(data), (1 + flats) * LENGTH.size, []
    for i in range(1 + flats):
        length = LENGTH.unpack_from(view, i * LENGTH.size)[0]
        out.append(view[at : at + length])
        at += length
    return out
