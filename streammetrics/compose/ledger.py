"""What has been added up, and what of: partitions that come again, late or in another order count once."""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..collect.binding import PLAIN
from ..collect.feed import Read
from ..collect.holder import Holder, blank_of, states_of
from ..collect.saved import from_bytes, load
from ..errors import IncompatibleStateError, PartitionConflictError, StateFormatError
from ..numerics.keys import KINDS, fits, plain, raw
from ..numerics.once import at_once
from ..state.axes import NULL, Axis, Vocabulary
from ..state.cells import Cells
from ..state.declare import Flat
from ..state.state import State

__all__ = ["Added", "Ledger"]

AXIS = Axis(("partition",))
WORDS = 8
"""A digest is so many words of 32 bits."""
LISTED = 3


class Added(State, tag="added"):
    """The digest of what was added, for every partition."""

    added = Flat(form="once")
    digest = Flat(WORDS)

    counted = ("added",)

    def needs(self) -> tuple[Any, ...]:
        return ()

    def check(self) -> None:
        digests = self.flat("digest")
        if (self.flat("added") != 1).any() or (digests < 0).any() or (digests >= 1 << 32).any():
            raise StateFormatError("Added holds what is no digest")
        if len(self) and int(self.cells.keys.min()) <= NULL:
            raise StateFormatError("Added holds a partition without an id")

    @classmethod
    def of(cls, kind: str, digests: Mapping[Any, bytes]) -> Added:
        """The state of some partitions, whose ids are as they are held."""
        empty = cls().empty((AXIS,))
        if not digests:
            return empty
        words = Vocabulary.of(kind, list(digests))
        order = words.values if words.texts else words.values.tolist()
        table = np.frombuffer(b"".join(digests[i] for i in order), "<u4").reshape(-1, WORDS).astype(np.int64)
        keys = np.arange(len(words), dtype=np.int64)[:, None]
        flats = {"added": np.ones(len(words), np.int64), "digest": table}
        return empty.holding(Cells((AXIS,), keys, (words,), None, None, flats, {}))

    def read(self) -> tuple[str, dict[Any, bytes]]:
        """What `of` was given."""
        (words,) = self.cells.words
        table: NDArray[Any] = self.flat("digest").astype("<u4")
        values = words.values if words.texts or not len(words) else words.values.tolist()
        return words.kind, {value: row.tobytes() for value, row in zip(values, table, strict=True)}


class Ledger(Holder):
    """One merged total, and which partitions are in it.

    Tasks are retried, batches replayed, files listed twice: a partition that is added again, as it was, changes nothing,
    and the order does not matter. One that comes again with other content raises. So a total may be kept up to date by a
    job that can die at any moment: load, add, save, and begin again where nobody knows.

    Parameters
    ----------
    metrics : Metric, MetricCollection, Sliced or Bundle
        What the states are of. It stays as it is; rows that it has seen do not count.

    Notes
    -----
    Besides the total it holds the id of each partition and 32 bytes, in memory about 250, so there is no need for the
    parts after they were added. An `add` takes a copy of the total, which shares what does not change: the time of a
    merge. Several threads may add. Saved by `sm.save`, whole or not at all, and read by `sm.load`.

    A digest is that of content: what a partition counts must not depend on the run. It does not, unless rows differ; but
    with ``grouped="sorted"`` it tells how rows were cut into batches.

    Examples
    --------
    >>> import streammetrics as sm
    >>> ledger = sm.Ledger(sm.CTR())
    >>> ledger.add("day=1/part-0", sm.CTR().update([0, 1])).add("day=1/part-1", sm.CTR().update([1, 1]))
    Ledger of 2 partitions: CTR(0.75, 4 rows)
    >>> ledger.add("day=1/part-0", sm.CTR().update([0, 1])).total.compute()  # a retry
    0.75
    >>> ledger.add("day=1/part-0", sm.CTR().update([0, 0]))
    Traceback (most recent call last):
    streammetrics.errors.PartitionConflictError: partition 'day=1/part-0' was added with digest 9799bae8ab4c..., and now \
has 714858656aef...: its rows, or the metrics, are not what they were; count it again, or give it another id
    """

    sort = "ledger"
    adds: ClassVar[bool] = False

    def __init__(self, metrics: Holder) -> None:
        if not isinstance(metrics, Holder) or not metrics.adds:
            raise TypeError(f"a ledger adds up metrics, collections, slices or bundles, not a {type(metrics).__name__}")
        self._begin("", {}, metrics.copy().reset())

    def _begin(self, kind: str, digests: dict[Any, bytes], total: Any) -> None:
        self._held: tuple[str, dict[Any, bytes], Any] = kind, digests, total
        self._lock = threading.Lock()

    # -- adding -------------------------------------------------------------------------------------------------------

    def add(self, partition_id: Any, state: Any) -> Self:
        """Add what a partition counted, unless it is there already.

        Parameters
        ----------
        partition_id : str, int, bytes, date, ...
            What the partition is called by every run: a path, the number of a batch. All ids are of one kind.
        state : object, bytes or path
            What was counted of its rows alone: of the same metrics as the ledger. It stays as it is.

        Raises
        ------
        PartitionConflictError
            The id is there with another digest; the message names it, and both digests.
        IncompatibleStateError
            The state is of other metrics; the message names each difference. Whatever is raised, nothing was added.
        """
        kind, value = _id(partition_id)
        thing = _opened(state)
        with self._lock:
            held, digests, total = self._held
            if held not in ("", kind):
                raise TypeError(f"partition ids of this ledger are of kind {held}, {partition_id!r} is of kind {kind}")
            thing = total.fitting(thing)
            digest = bytes.fromhex(thing.digest())
            if value in digests:
                _check_same(kind, value, digests[value], digest)
                return self
            merged = total.copy().merge(thing)
            self._commit(kind, {value: digest}, merged)
        return self

    def _commit(self, kind: str, new: dict[Any, bytes], total: Any) -> None:
        """Note partitions and their total, in one call that no signal divides: no Python runs in it."""
        digests = self._held[1]
        at_once([partial(digests.update, new), partial(self.__dict__.__setitem__, "_held", (kind, digests, total))])

    def merge(self, other: Self) -> Self:
        """Add what another ledger holds; `other` stays as it is.

        Either they have no partition in common, or all that one has are in the other, whose total is that of both: a
        total cannot be taken apart.

        Raises
        ------
        PartitionConflictError
            A partition has one digest here and another there.
        IncompatibleStateError
            They have some partitions in common, and each has others besides; or their metrics differ. Both are as they
            were.
        """
        if other is self:
            return self
        self.check_fits(other)
        their_kind, theirs, their_total = other._snapshot()
        with self._lock:
            kind, ours, total = self._held
            if kind and their_kind and kind != their_kind:
                raise IncompatibleStateError(f"partition ids are of kind {kind} here and of kind {their_kind} there")
            both = [value for value in theirs if value in ours]
            for value in both:
                _check_same(kind, value, ours[value], theirs[value])
            if len(both) == len(theirs):
                return self
            if both and len(both) < len(ours):
                raise IncompatibleStateError(_overlap(kind, both, len(ours), len(theirs)))
            merged = their_total.copy() if both else total.copy().merge(their_total)
            self._commit(their_kind, theirs, merged)
        return self

    # -- what it holds ------------------------------------------------------------------------------------------------

    @property
    def total(self) -> Any:
        """A copy of what all partitions together have seen."""
        return self._held[2].copy()

    @property
    def partitions(self) -> Mapping[Any, str]:
        """The digest of what was added, by partition, in the order of their ids."""
        kind, digests, _ = self._snapshot()
        return MappingProxyType({plain(kind, v): digests[v].hex() for v in sorted(digests)})

    def __contains__(self, partition_id: object) -> bool:
        found = _fitting(partition_id)
        return found is not None and found[0] == self._held[0] and found[1] in self._held[1]

    def __len__(self) -> int:
        return len(self._held[1])

    def __bool__(self) -> bool:
        return True

    @property
    def states(self) -> tuple[State, ...]:
        kind, digests, total = self._snapshot()
        return Added.of(kind, digests), *total.states

    def take_states(self, states: Sequence[State]) -> None:
        added, *rest = states
        assert isinstance(added, Added)
        with self._lock:
            self._held = (*added.read(), self._held[2].holding(rest))

    def reads(self) -> tuple[Read, ...]:
        return Read(Added().empty((AXIS,)), PLAIN), *self._held[2].reads()

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """A ledger adds up what has counted."""
        raise TypeError("a ledger counts no rows itself: add() what has counted those of a partition")

    def reset(self) -> Self:
        with self._lock:  # or what somebody adds meanwhile would come back
            self._held = "", {}, self._held[2].copy().reset()
        return self

    def copy(self) -> Self:
        kind, digests, total = self._snapshot()
        return self._of(kind, digests, total.copy())

    def _snapshot(self) -> tuple[str, dict[Any, bytes], Any]:
        """What is held, of which no thread changes anything meanwhile."""
        with self._lock:
            kind, digests, total = self._held
            return kind, dict(digests), total

    def blank(self) -> Self:
        return self._of("", {}, self._held[2].blank())

    @classmethod
    def _of(cls, kind: str, digests: dict[Any, bytes], total: Any) -> Self:
        new = cls.__new__(cls)
        new._begin(kind, digests, total)
        return new

    def recipe(self) -> Callable[[], Holder]:
        return partial(self._of, "", {}, self._held[2].blank())

    @property
    def nbytes(self) -> int:
        size: int = self._held[2].nbytes
        return size + 250 * len(self)

    def seal(self, partition: tuple[int, int] | None = None) -> Any:
        """What is added later would be of groups that are closed."""
        raise TypeError("a ledger goes on: add() what was sealed, or seal its total")

    def coarsen(self, bits: int) -> Any:
        """Partitions have the digests of what they counted."""
        raise TypeError("a ledger keeps digests of what was added, which has the bits it has; coarsen its total")

    def __eq__(self, other: object) -> bool:
        return Holder.__eq__(self, other)

    __hash__ = None

    def __repr__(self) -> str:
        some = f"{len(self):,} partition{'s' if len(self) != 1 else ''}"
        return f"Ledger of {some}: {self._held[2]!r}"

    def differences(self, other: Any) -> list[str]:
        ours, theirs = self._held[2], other._held[2]
        if ours.sort != theirs.sort:
            return [f"its total is a {theirs.sort}, that of this one a {ours.sort}"]
        found: list[str] = ours.differences(theirs)
        return found

    def check_states(self, states: Sequence[State]) -> None:
        self._held[2].check_states(states[1:])

    def header(self) -> dict[str, Any]:
        return {"kind": "ledger", "total": self._held[2].header()}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        added, *rest = states
        if not isinstance(added, Added):
            raise ValueError("a ledger begins with what was added")
        return cls(blank_of(header["total"], rest))

    @classmethod
    def state_count(cls, header: dict[str, Any]) -> int:
        return 1 + states_of(header["total"])


def _id(given: Any) -> tuple[str, Any]:
    """The kind of an id, and how it is held."""
    if (found := _fitting(given)) is not None:
        return found
    said = f"a partition is called by a text of Unicode, an integer of 64 bits, bytes or a date, not by {given!r}"
    raise (ValueError if isinstance(given, (str, int, datetime.date)) else TypeError)(said)


def _fitting(given: Any) -> tuple[str, Any] | None:
    """The kind of an id, and how it is held; None for what can be none."""
    try:
        held = None if given is None else raw(given)
        # or it could be added, and never be saved
        fit = held is not None and (KINDS[held[0]] or fits(held[0], np.array([held[1]], object)))
    except ValueError:  # half a character, or the NaT of pandas
        return None
    return held if fit else None


def _opened(state: Any) -> Any:
    if isinstance(state, (bytes, bytearray, memoryview)):
        return from_bytes(state)
    return load(state) if isinstance(state, (str, os.PathLike)) else state


def _check_same(kind: str, value: Any, held: bytes, given: bytes) -> None:
    if held != given:
        raise PartitionConflictError(plain(kind, value), held.hex(), given.hex())


def _overlap(kind: str, both: Sequence[Any], ours: int, theirs: int) -> str:
    some = ", ".join(repr(plain(kind, v)) for v in sorted(both)[:LISTED])
    return (
        f"{len(both):,} partition{'s are' if len(both) > 1 else ' is'} in both ledgers, of {ours:,} here and {theirs:,} "
        f"there: {some}{', ...' if len(both) > LISTED else ''}; totals cannot be taken apart: add() the partitions that "
        f"are missing, from their own states"
    )
