"""Ledger: a total and the list of its partitions; a partition that is added twice is counted only once."""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
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
from ..numerics.signal_safety import run_without_interrupt
from ..numerics.slice_keys import KINDS, are_stored_keys, from_stored_key, to_stored_key
from ..state.axes import NULL, Axis, Vocabulary
from ..state.cells import Cells
from ..state.declare import Flat
from ..state.state import State

__all__ = ["Ledger", "PartitionDigests"]

AXIS = Axis(("partition",))
WORDS = 8
"""The number of 32-bit words of a SHA-256 digest."""
LISTED = 3
"""The largest number of partitions that an error message names."""


class PartitionDigests(State, tag="added"):
    """The digest of the content of every partition, as a state whose cells are keyed by partition ID.

    Because the digests are a state, they are saved and loaded together with the states of the total.
    """

    added = Flat(form="once")
    digest = Flat(WORDS)

    row_parts = ("added",)

    def needs(self) -> tuple[Any, ...]:
        return ()

    def check(self) -> None:
        digests = self.read_cells_named("digest")
        if (self.read_cells_named("added") != 1).any() or (digests < 0).any() or (digests >= 1 << 32).any():
            raise StateFormatError("the state is corrupt: the digest of a partition is invalid")
        if len(self) and int(self.cells.keys.min()) <= NULL:
            raise StateFormatError("the state is corrupt: a partition has no ID")

    @classmethod
    def of(cls, kind: str, digests: Mapping[Any, bytes]) -> PartitionDigests:
        """Build the state from the type name of the IDs (such as "integer") and the partition digests, keyed by ID."""
        empty = cls().empty_copy((AXIS,))
        if not digests:
            return empty
        words = Vocabulary.from_values(kind, list(digests))
        order = words.values if words.is_text else words.values.tolist()
        table = np.frombuffer(b"".join(digests[i] for i in order), "<u4").reshape(-1, WORDS).astype(np.int64)
        keys = np.arange(len(words), dtype=np.int64)[:, None]
        flats = {"added": np.ones(len(words), np.int64), "digest": table}
        return empty.with_cells(Cells((AXIS,), keys, (words,), None, None, flats, {}))

    def read(self) -> tuple[str, dict[Any, bytes]]:
        """Return the type name of the IDs and the digests, keyed by ID; ``of(*state.read())`` builds an equal state."""
        (words,) = self.cells.vocabularies
        table: NDArray[Any] = self.read_cells_named("digest").astype("<u4")
        values = words.values if words.is_text or not len(words) else words.values.tolist()
        return words.kind, {value: row.tobytes() for value, row in zip(values, table, strict=True)}


class LedgerAccumulator(Accumulator):
    """The accumulator of the total, together with the digest of every partition.

    One tuple, `content`, holds the type name of the IDs, the digests and the total. It is replaced as a whole. A thread
    that reads it without the lock therefore always sees a total together with its partitions.
    """

    def __init__(self, definition: Any, states: Sequence[State] | None = None) -> None:
        self._lock = threading.Lock()
        self.content: tuple[str, dict[Any, bytes], Accumulator] = "", {}, accumulate(definition.total)
        super().__init__(definition, states)

    def snapshot(self) -> tuple[str, dict[Any, bytes], Accumulator]:
        """Return the type name of the IDs, a copy of the digests, and the total, all from the same moment."""
        with self._lock:
            kind, digests, total = self.content
            return kind, dict(digests), total

    @property
    def states(self) -> tuple[State, ...]:
        kind, digests, total = self.snapshot()
        return PartitionDigests.of(kind, digests), *total.states

    @property
    def nbytes(self) -> int:
        _, digests, total = self.content
        return total.nbytes + 250 * len(digests)

    def _start_with(self, states: Iterable[State]) -> None:
        self.set_states(tuple(states))

    def set_states(self, states: Sequence[State]) -> None:
        added, *rest = states
        assert isinstance(added, PartitionDigests)
        definition: Any = self.definition
        with self._lock:
            self.content = (*added.read(), accumulate(definition.total, rest))

    def reset(self) -> None:
        definition: Any = self.definition
        # Without the lock, an `add` that is running in another thread could restore the old total after the reset.
        with self._lock:
            self.content = "", {}, accumulate(definition.total)

    def copy(self) -> Self:
        kind, digests, total = self.snapshot()
        copy = type(self)(self.definition)
        copy.content = kind, digests, total.copy()
        return copy

    def update(self, first: Any, second: Any, columns: dict[str, Any]) -> None:
        raise TypeError("a ledger cannot be updated with rows: pass the object that counted a partition to add()")

    def add(self, partition_id: Any, state: Any) -> None:
        """Add the state of a partition unless the ledger already contains the partition; see `Ledger.add`."""
        kind, value = _require_id(partition_id)
        thing = accumulator_of(_load_state(state))
        with self._lock:
            ledger_kind, digests, total = self.content
            if ledger_kind not in ("", kind):
                raise TypeError(
                    f"partition IDs of this ledger are of kind {ledger_kind}, but {partition_id!r} is of kind {kind}"
                )
            thing = total.align(thing)
            digest = bytes.fromhex(thing.digest())
            if value in digests:
                _check_same(kind, value, digests[value], digest)
                return
            # Merge into a copy. If the merge fails, or the process is interrupted, the old total is still consistent.
            merged = total.copy()
            merged.merge(thing)
            self._commit(kind, {value: digest}, merged)

    def _commit(self, kind: str, new: dict[Any, bytes], total: Accumulator) -> None:
        """Store the digests of new partitions and the new total, without interruption.

        Both steps run in one call into C, so no signal handler (for Ctrl-C, say) can run in between. Otherwise a
        partition could be listed although its rows are not in the total.
        """
        digests = self.content[1]
        run_without_interrupt(
            [partial(digests.update, new), partial(self.__dict__.__setitem__, "content", (kind, digests, total))]
        )

    def merge(self, other: Any) -> None:
        if other is self:
            return
        self.check_compatible(other)
        their_kind, theirs, their_total = other.snapshot()
        with self._lock:
            kind, ours, total = self.content
            if kind and their_kind and kind != their_kind:
                raise IncompatibleStateError(
                    f"partition IDs are of kind {kind} here and of kind {their_kind} there; use IDs of one kind"
                )
            both = [value for value in theirs if value in ours]
            for value in both:
                _check_same(kind, value, ours[value], theirs[value])
            if len(both) == len(theirs):
                return
            if both and len(both) < len(ours):
                raise IncompatibleStateError(_overlap_message(kind, both, len(ours), len(theirs)))
            # There are two cases. If the other ledger contains all partitions of this one, its total is the result. If the
            # ledgers have no partition in common, the totals are merged. The merge changes only a copy, so that both
            # ledgers are unchanged if it fails.
            merged = (their_total if both else total).copy()
            if not both:
                merged.merge(their_total)
            self._commit(their_kind, theirs, merged)


class LedgerDefinition(Definition):
    """The definition of a ledger, which has the settings of its total."""

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
        return Read(PartitionDigests().empty_copy((AXIS,)), PLAIN), *self.total.reads

    def header(self) -> dict[str, Any]:
        return {"kind": "ledger", "total": self.total.header()}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Self:
        added, *rest = states
        if not isinstance(added, PartitionDigests):
            raise ValueError("the first state of a ledger must contain the digests of the partitions")
        total = definition_of_header(header["total"], rest)
        if not total.adds:
            raise ValueError(f"a ledger cannot contain an object of class {total.type_name}")
        return cls(total)

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        return 1 + number_of_states(header["total"])

    def differences(self, other: Any) -> list[str]:
        ours, theirs = self.total, other.total
        if ours.kind != theirs.kind:
            return [f"the total is {ours.type_name} here and {theirs.type_name} there"]
        return ours.differences(theirs)

    def check_states(self, states: Sequence[State]) -> None:
        self.total.check_states(states[1:])

    def seal(self, parts: int | None = None) -> Any:
        raise TypeError("a ledger cannot be sealed: add() sealed objects, or seal the total of the ledger")

    def coarsen(self, bits: int) -> Any:
        raise TypeError(
            "a ledger cannot be coarsened, because a ledger keeps digests of its partitions: coarsen the total of "
            "the ledger"
        )


class Ledger(MetricLike):
    """A merged total and the list of the partitions that it contains.

    A partition may be added more than once, for example if a task is retried or a file is listed twice. If its content is
    the same, adding it again changes nothing. If its content differs, an error is raised. A job that may fail at any time
    can therefore keep a total up to date: it loads the ledger, adds partitions and saves the ledger. After a failure, it
    simply starts again.

    Parameters
    ----------
    metrics : Metric, MetricCollection, Sliced or Bundle
        An object with the settings of the partitions. It is unchanged, and its rows are not counted.

    Notes
    -----
    For each partition the ledger keeps the ID and a digest of 32 bytes (about 250 bytes in memory). The state of a
    partition is no longer needed once it has been added. `add` takes no longer than a merge: it works on a copy of the
    total, but arrays that do not change are shared rather than copied. Several threads may call `add`. `sm.save` writes
    a ledger atomically, and `sm.load` reads it.

    The digest is computed from the partition's state, so counting a partition again must give the same state. The same
    rows always do, with one exception: with ``grouped="sorted"`` the state also depends on how rows were split into
    batches.

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
    streammetrics.errors.PartitionConflictError: partition 'day=1/part-0': expected digest 9799bae8ab4c... (added \
before), found 714858656aef...: the rows or the metrics have changed; count the partition again, or use another ID
    """

    _accumulator: LedgerAccumulator

    def __init__(self, metrics: MetricLike) -> None:
        if not isinstance(metrics, MetricLike) or not definition_of(metrics).adds:
            raise TypeError(
                f"Ledger: expected a metric, a collection, slices or a bundle, found an object of class "
                f"{type(metrics).__name__}"
            )
        self._accumulator = LedgerAccumulator(LedgerDefinition(definition_of(metrics)))

    def add(self, partition_id: Any, state: Any) -> Self:
        """Add the state of a partition, unless the ledger already contains the partition.

        Parameters
        ----------
        partition_id : str, int, bytes, date, ...
            The ID of the partition, such as a path or a batch number. It must be the same in every run. All IDs must
            have the same type.
        state : object, bytes or path
            The object that counted the rows of this partition, with the metrics of the ledger; or its bytes, or the
            path of its file. The object is unchanged.

        Raises
        ------
        PartitionConflictError
            The ID is in the ledger with a different digest; the message names the ID and both digests.
        IncompatibleStateError
            The state has different metrics; the message names each difference. After any error the ledger is unchanged.
        """
        self._accumulator.add(partition_id, state)
        return self

    def merge(self, other: Self) -> Self:
        """Merge another ledger into this one; `other` is unchanged.

        If the ledgers have no partition in common, the totals are merged. If one ledger contains all partitions of the
        other, its total is the result. All other overlaps raise an error, because a ledger cannot remove the rows of a
        single partition from a total.

        Raises
        ------
        PartitionConflictError
            A partition has different digests in the two ledgers.
        IncompatibleStateError
            The ledgers share some partitions, but each also has partitions that the other lacks; or their metrics differ.
            Both ledgers are unchanged.
        """
        return super().merge(other)

    @property
    def total(self) -> Any:
        """A copy of the total of all partitions."""
        total = self._accumulator.content[2].copy()
        return total.definition.wrap(total)

    @property
    def partitions(self) -> Mapping[Any, str]:
        """The digest of each partition as a hexadecimal string, keyed by partition ID in ascending order."""
        kind, digests, _ = self._accumulator.snapshot()
        return MappingProxyType({from_stored_key(kind, v): digests[v].hex() for v in sorted(digests)})

    def __contains__(self, partition_id: object) -> bool:
        parsed = _parse_id(partition_id)
        kind, digests, _ = self._accumulator.content
        return parsed is not None and parsed[0] == kind and parsed[1] in digests

    def __len__(self) -> int:
        return len(self._accumulator.content[1])

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        some = f"{len(self):,} partition{'s' if len(self) != 1 else ''}"
        total = self._accumulator.content[2]
        return f"Ledger of {some}: {total.definition.wrap(total)!r}"


LedgerDefinition.public = Ledger


def _require_id(partition_id: Any) -> tuple[str, Any]:
    """Return the type name of a partition ID and the value to store; raise TypeError or ValueError for an invalid ID."""
    if (parsed := _parse_id(partition_id)) is not None:
        return parsed
    message = f"a partition ID must be a Unicode string, a 64-bit integer, bytes or a date, not {partition_id!r}"
    raise (ValueError if isinstance(partition_id, (str, int, datetime.date)) else TypeError)(message)


def _parse_id(partition_id: Any) -> tuple[str, Any] | None:
    """Return the type name of a partition ID and the value to store; None if the ID is invalid."""
    try:
        parsed = None if partition_id is None else to_stored_key(partition_id)
        # Reject an ID that cannot be saved, such as an integer of more than 64 bits.
        fit = parsed is not None and (KINDS[parsed[0]] or are_stored_keys(parsed[0], np.array([parsed[1]], object)))
    # The ID cannot be converted, because it is pandas.NaT or a string that is not valid Unicode.
    except ValueError:
        return None
    return parsed if fit else None


def _load_state(state: Any) -> Any:
    if isinstance(state, (bytes, bytearray, memoryview)):
        return from_bytes(state)
    return load(state) if isinstance(state, (str, os.PathLike)) else state


def _check_same(kind: str, value: Any, ours: bytes, theirs: bytes) -> None:
    if ours != theirs:
        raise PartitionConflictError(from_stored_key(kind, value), ours.hex(), theirs.hex())


def _overlap_message(kind: str, both: Sequence[Any], ours: int, theirs: int) -> str:
    some = ", ".join(repr(from_stored_key(kind, v)) for v in sorted(both)[:LISTED])
    return (
        f"{len(both):,} partition{'s are' if len(both) > 1 else ' is'} in both ledgers (of {ours:,} here and "
        f"{theirs:,} there): {some}{', ...' if len(both) > LISTED else ''}; a total cannot be split, so add() the "
        f"missing partitions from their own states"
    )
