"""Ledger: a total and the partitions that are in it: those that come again, late or in another order count once."""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..batch.column_binding import PLAIN
from ..collect.accumulator import Accumulator, accumulate, accumulator_of, definition_of
from ..collect.definition import Definition, definition_of_header, number_of_states
from ..collect.metric_like import MetricLike
from ..collect.serialization import from_bytes, load
from ..count.reads import Read
from ..errors import IncompatibleStateError, PartitionConflictError, StateFormatError
from ..numerics.keys import KINDS, fits, plain, raw
from ..numerics.signal_safety import at_once
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


class LedgerAccumulator(Accumulator):
    """The accumulator of the total, with the digest of every partition."""

    def __init__(self, definition: Any, states: Sequence[State] | None = None) -> None:
        self._lock = threading.Lock()
        self.content: tuple[str, dict[Any, bytes], Accumulator] = "", {}, accumulate(definition.total)
        super().__init__(definition, states)

    def snapshot(self) -> tuple[str, dict[Any, bytes], Accumulator]:
        """Return kind of the ids, digests by id, and total, of one moment."""
        with self._lock:
            kind, digests, total = self.content
            return kind, dict(digests), total

    @property
    def states(self) -> tuple[State, ...]:
        kind, digests, total = self.snapshot()
        return Added.of(kind, digests), *total.states

    @property
    def nbytes(self) -> int:
        _, digests, total = self.content
        return total.nbytes + 250 * len(digests)

    def hold(self, states: Sequence[State]) -> None:
        added, *rest = states
        assert isinstance(added, Added)
        definition: Any = self.definition
        with self._lock:
            self.content = (*added.read(), accumulate(definition.total, rest))

    def reset(self) -> None:
        definition: Any = self.definition
        with self._lock:  # or what somebody adds meanwhile would come back
            self.content = "", {}, accumulate(definition.total)

    def copy(self) -> Self:
        kind, digests, total = self.snapshot()
        made = type(self)(self.definition)
        made.content = kind, digests, total.copy()
        return made

    def update(self, first: Any, second: Any, columns: dict[str, Any]) -> None:
        raise TypeError("a ledger counts no rows itself: add() what has counted those of a partition")

    def add(self, partition_id: Any, state: Any) -> None:
        """Add what a partition counted, unless it is there already; see `Ledger.add`."""
        kind, value = _id(partition_id)
        thing = accumulator_of(_opened(state))
        with self._lock:
            held, digests, total = self.content
            if held not in ("", kind):
                raise TypeError(f"partition ids of this ledger are of kind {held}, {partition_id!r} is of kind {kind}")
            thing = total.fitting(thing)
            digest = bytes.fromhex(thing.digest())
            if value in digests:
                _check_same(kind, value, digests[value], digest)
                return
            merged = total.copy()
            merged.merge(thing)
            self._commit(kind, {value: digest}, merged)

    def _commit(self, kind: str, new: dict[Any, bytes], total: Accumulator) -> None:
        """Note partitions and their total, in one call that no signal divides: no Python runs in it."""
        digests = self.content[1]
        at_once([partial(digests.update, new), partial(self.__dict__.__setitem__, "content", (kind, digests, total))])

    def merge(self, other: Any) -> None:
        if other is self:
            return
        self.check_fits(other)
        their_kind, theirs, their_total = other.snapshot()
        with self._lock:
            kind, ours, total = self.content
            if kind and their_kind and kind != their_kind:
                raise IncompatibleStateError(f"partition ids are of kind {kind} here and of kind {their_kind} there")
            both = [value for value in theirs if value in ours]
            for value in both:
                _check_same(kind, value, ours[value], theirs[value])
            if len(both) == len(theirs):
                return
            if both and len(both) < len(ours):
                raise IncompatibleStateError(_overlap(kind, both, len(ours), len(theirs)))
            merged = (their_total if both else total).copy()
            if not both:
                merged.merge(their_total)
            self._commit(their_kind, theirs, merged)


class LedgerDefinition(Definition):
    """The definition of a total that partitions are added to."""

    kind = "ledger"
    accumulator_type = LedgerAccumulator
    adds = False

    def __init__(self, total: Definition) -> None:
        self.total = total

    @property
    def name(self) -> str:
        return "ledger"

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        return Read(Added().empty((AXIS,)), PLAIN), *self.total.reads

    def header(self) -> dict[str, Any]:
        return {"kind": "ledger", "total": self.total.header()}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Self:
        added, *rest = states
        if not isinstance(added, Added):
            raise ValueError("a ledger begins with what was added")
        total = definition_of_header(header["total"], rest)
        if not total.adds:
            raise ValueError(f"a ledger holds no {total.type_name}")
        return cls(total)

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        return 1 + number_of_states(header["total"])

    def differences(self, other: Any) -> list[str]:
        ours, theirs = self.total, other.total
        if ours.kind != theirs.kind:
            return [f"its total is a {theirs.kind}, that of this one a {ours.kind}"]
        return ours.differences(theirs)

    def check_states(self, states: Sequence[State]) -> None:
        self.total.check_states(states[1:])

    def sealed(self, parts: int | None = None) -> Any:
        raise TypeError("a ledger goes on: add() what was sealed, or seal its total")

    def coarser(self, bits: int) -> Any:
        raise TypeError("a ledger keeps digests of what was added, which has the bits it has; coarsen its total")


class Ledger(MetricLike):
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

    _accumulator: LedgerAccumulator

    def __init__(self, metrics: MetricLike) -> None:
        if not isinstance(metrics, MetricLike) or not definition_of(metrics).adds:
            raise TypeError(f"a ledger adds up metrics, collections, slices or bundles, not a {type(metrics).__name__}")
        self._accumulator = LedgerAccumulator(LedgerDefinition(definition_of(metrics)))

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
        self._accumulator.add(partition_id, state)
        return self

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
        return super().merge(other)

    @property
    def total(self) -> Any:
        """A copy of the total of all partitions."""
        total = self._accumulator.content[2].copy()
        return total.definition.wrap(total)

    @property
    def partitions(self) -> Mapping[Any, str]:
        """The digest of what was added, by partition, in the order of their ids."""
        kind, digests, _ = self._accumulator.snapshot()
        return MappingProxyType({plain(kind, v): digests[v].hex() for v in sorted(digests)})

    def __contains__(self, partition_id: object) -> bool:
        found = _fitting(partition_id)
        kind, digests, _ = self._accumulator.content
        return found is not None and found[0] == kind and found[1] in digests

    def __len__(self) -> int:
        return len(self._accumulator.content[1])

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        some = f"{len(self):,} partition{'s' if len(self) != 1 else ''}"
        total = self._accumulator.content[2]
        return f"Ledger of {some}: {total.definition.wrap(total)!r}"


LedgerDefinition.public = Ledger


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
