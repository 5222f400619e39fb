"""The tables of parts, merged days and totals. Each key counts once; its digest stays after its frame is deleted.

The ledger lists every part that was received, and a frame is a serialized state. The position of an experiment consists
of the number of its last part and an epoch, which increases whenever an older part changes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import InvalidInputError
from .database import Database, RunStatement
from .part_keys import PartKey, PostedPart, RowCounts
from .streams import StreamPosition, add_audit_entry, lock_experiment, read_position

__all__ = ["DAY", "MergedDay", "NewParts", "PartOutline", "PartStore", "StoredPart"]

DAY = 24
COUNTED = ("current", "folded", "forgotten")
MAX_CONFLICTS = 8
"""The number of conflicts that are stored for a key; a source whose counts change with each retry would fill the disk."""
PAGE = 256
DELETE_BATCH, DELETE_PAUSE, DELETE_SECONDS = 64, 0.01, 5.0
"""The frames deleted in a transaction, the seconds between transactions, and the seconds after which deletion stops.
SQLite does not queue writers of other processes, they try again: short transactions with pauses let them in."""


class StoredPart(NamedTuple):
    """A row of the ledger of parts.

    The state is "current" (counts, its frame is stored), "folded" (counts, as part of its merged day), "forgotten" (no
    longer counts), "conflict" (the key was posted before with another digest) or "refused" (another content of the key
    was accepted in its place).
    """

    number: int
    key: PartKey
    digest: str
    received_at: float
    state: str
    row_counts: RowCounts = RowCounts()


class NewParts(NamedTuple):
    """The position of an experiment and its parts after a number; `is_complete` is false if some frames were deleted."""

    position: StreamPosition
    parts: list[tuple[int, PostedPart]]
    is_complete: bool


class PartOutline(NamedTuple):
    """What the total of an experiment consists of: the digests of its merged days, and its parts that are not merged."""

    position: StreamPosition
    day_digests: dict[int, str]
    current_parts: list[StoredPart]

    def limit_to(self, number: int) -> PartOutline:
        """Return the outline without the parts after a number."""
        return self._replace(current_parts=[entry for entry in self.current_parts if entry.number <= number])


class MergedDay(NamedTuple):
    """A new merged day: what it replaces (the digest of an earlier merge, part numbers), and its digest and frame."""

    day: int
    previous_digest: str | None
    part_numbers: Sequence[int]
    digest: str
    data: bytes


class PartStore:
    """The methods of a store that read and write parts, merged days and totals."""

    database: Database

    def put(self, parts: Sequence[PostedPart]) -> list[str]:
        """Store parts in one transaction.

        Returns
        -------
        list of str
            For each part "stored", "same" (already stored) or "conflict" (its key is stored with another digest).

        Raises
        ------
        StoreFullError, StoreDownError
            No part was stored. If the database went down, the outcome is unknown: put the parts again.
        """
        with self.database.write_transaction() as run:
            # Locks are taken in alphabetical order, so that two servers cannot deadlock.
            last = {name: lock_experiment(run, name)[0] for name in sorted({p.key.experiment for p in parts})}
            answers = [_put_part(run, part, last) for part in parts]
            for name, number in last.items():
                run("UPDATE streams SET last = ? WHERE experiment = ?", number, name)
        return answers

    def parts(self, experiment: str, after: int = 0) -> list[tuple[int, PostedPart]]:
        """Return the next current parts (at most 256) whose number is larger than `after`, in order of their numbers."""
        return self.load_parts_since(experiment, after).parts

    def load_parts_since(self, experiment: str, after: int) -> NewParts:
        """Return the position of an experiment, and its next parts (at most 256) whose number is larger than `after`."""
        with self.database.read_transaction() as run:
            stream_position = read_position(run, experiment)
            # The left join also returns parts without a frame, so that the caller sees if some are missing.
            rows = run(
                "SELECT p.number, hour, source, seq, digest, received, state, data FROM parts p LEFT JOIN frames f "
                "ON f.experiment = p.experiment AND f.number = p.number "
                f"WHERE p.experiment = ? AND p.number > ? AND state IN {COUNTED} ORDER BY p.number LIMIT {PAGE}",
                experiment,
                after,
            )
        current = [
            (number, PostedPart(PartKey(experiment, source, hour, seq), data, digest, received))
            for number, hour, source, seq, digest, received, state, data in rows
            if state == "current"
        ]
        return NewParts(stream_position, current, len(current) == len(rows))

    # -- what there is ------------------------------------------------------------------------------------------------

    def ledger(self, experiment: str) -> list[StoredPart]:
        """Return all rows of the ledger, in order of their numbers."""
        return self.load_ledger_since(experiment, 0)[1]

    def load_ledger_since(self, experiment: str, after: int) -> tuple[StreamPosition, list[StoredPart]]:
        """Return the position of an experiment, and the rows of its ledger after a number.

        The epoch of the position differs from an earlier one if older rows have changed since.
        """
        with self.database.read_transaction() as run:
            return read_position(run, experiment), _load_entries(run, experiment, " AND number > ?", after)

    def conflicts(self, experiment: str) -> list[StoredPart]:
        """Return the conflicts (parts whose key was posted before with other content), in order of their numbers."""
        with self.database.read_transaction() as run:
            return _load_entries(run, experiment, " AND state = 'conflict'")

    def outline(self, experiment: str) -> PartOutline:
        """Return what the total consists of, read in one transaction."""
        with self.database.read_transaction() as run:
            days = dict(run("SELECT day, digest FROM folds WHERE experiment = ?", experiment))
            return PartOutline(
                read_position(run, experiment), days, _load_entries(run, experiment, " AND state = 'current'")
            )

    def frames(self, experiment: str, numbers: Sequence[int]) -> list[bytes]:
        """Return the frames of the parts with these numbers; deleted frames are left out."""
        with self.database.read_transaction() as run:
            rows = []
            for i in range(0, len(numbers), PAGE):
                batch = numbers[i : i + PAGE]
                rows += run(
                    f"SELECT data FROM frames WHERE experiment = ? AND number IN ({', '.join('?' * len(batch))})",
                    experiment,
                    *batch,
                )
        return [data for (data,) in rows]

    def load_merged_day(self, experiment: str, day: int, digest: str) -> bytes | None:
        """Return the frame of a merged day; None if the store has none with this digest, as it was merged again."""
        with self.database.read_transaction() as run:
            rows = run(
                "SELECT data FROM folds WHERE experiment = ? AND day = ? AND digest = ?", experiment, day, digest
            )
        return rows[0][0] if rows else None

    # -- what is changed ----------------------------------------------------------------------------------------------

    def accept(self, experiment: str, number: int, *, by: str, at: float) -> PartKey:
        """Count a conflict in place of the part that counts under its key, whose state becomes "refused".

        Raises
        ------
        InvalidInputError
            There is no such conflict, or it is too late: the parts of its hour were merged into their day.
        """
        with self.database.write_transaction() as run:
            _, epoch = lock_experiment(run, experiment)
            conflicts = _load_entries(run, experiment, " AND number = ? AND state IN ('conflict', 'refused')", number)
            if not conflicts:
                raise InvalidInputError(f"experiment {experiment!r} has no conflict {number}")
            key = conflicts[0].key
            where = f" AND hour = ? AND source = ? AND seq = ? AND state IN {COUNTED}"
            (counted,) = _load_entries(run, experiment, where, key.hour, key.source, key.seq)
            if counted.state != "current":
                raise InvalidInputError(
                    f"the conflict of {key.text} cannot be accepted any more: parts are kept for correct_within_days, and "
                    f"the part of this key is {counted.state}, so its hour cannot be merged again"
                )
            run("UPDATE parts SET state = 'refused' WHERE experiment = ? AND number = ?", experiment, counted.number)
            run("UPDATE parts SET state = 'current' WHERE experiment = ? AND number = ?", experiment, number)
            run("UPDATE streams SET epoch = ? WHERE experiment = ?", epoch + 1, experiment)
            change = f"accepted {conflicts[0].digest[:12]} for {key.text}, in place of {counted.digest[:12]}"
            add_audit_entry(run, experiment, change, by=by, at=at)
        return key

    def replace_parts(self, experiment: str, epoch: int, merged: MergedDay) -> bool:
        """Replace the parts of a day by its merged day; return False if the day has changed meanwhile.

        The frames of the parts are deleted in later transactions. If that fails, `delete_obsolete_frames` continues.
        """
        days = experiment, merged.day, merged.day + DAY
        with self.database.write_transaction() as run:
            _, current_epoch = lock_experiment(run, experiment)
            rows = run("SELECT digest FROM folds WHERE experiment = ? AND day = ?", experiment, merged.day)
            current = run(
                "SELECT number FROM parts WHERE experiment = ? AND hour >= ? AND hour < ? AND state = 'current'", *days
            )
            # The merged day is right only if it replaces exactly the state from which it was computed: the same epoch, the
            # same earlier merged day, and parts that still count. Parts that arrived later stay beside it.
            previous_digest = rows[0][0] if rows else None
            if (
                current_epoch != epoch
                or previous_digest != merged.previous_digest
                or not set(merged.part_numbers) <= {number for (number,) in current}
            ):
                return False
            for number in merged.part_numbers:
                run("UPDATE parts SET state = 'folded' WHERE experiment = ? AND number = ?", experiment, number)
            run(
                "INSERT INTO folds VALUES (?, ?, ?, ?) "
                "ON CONFLICT (experiment, day) DO UPDATE SET digest = excluded.digest, data = excluded.data",
                experiment,
                merged.day,
                merged.digest,
                merged.data,
            )
        self.delete_obsolete_frames(experiment)
        return True

    def forget(self, experiment: str, before: int) -> int:
        """Delete the days that ended before an hour, and return the number of their parts.

        Their keys and digests stay in the ledger, so that a late duplicate does not count again.
        """
        end = before // DAY * DAY
        with self.database.write_transaction() as run:
            lock_experiment(run, experiment)
            where = "experiment = ? AND hour < ? AND state IN ('current', 'folded')"
            ((count,),) = run(f"SELECT COUNT(*) FROM parts WHERE {where}", experiment, end)
            if count:
                run(f"UPDATE parts SET state = 'forgotten' WHERE {where}", experiment, end)
                run("DELETE FROM folds WHERE experiment = ? AND day < ?", experiment, end)
                run("DELETE FROM totals WHERE experiment = ?", experiment)
                run("UPDATE streams SET epoch = epoch + 1 WHERE experiment = ?", experiment)
        self.delete_obsolete_frames(experiment)
        return int(count)

    def delete_obsolete_frames(self, experiment: str) -> None:
        """Delete the frames of keys without a current part, in short transactions that let other writers in.

        It stops after some seconds, as the caller has other experiments to read; a later call deletes the rest.
        """
        end = time.monotonic() + DELETE_SECONDS
        while time.monotonic() < end and (numbers := self._find_obsolete_frames(experiment)):
            with self.database.write_transaction() as run:
                for number in numbers:
                    run("DELETE FROM frames WHERE experiment = ? AND number = ?", experiment, number)
            time.sleep(DELETE_PAUSE)

    def _find_obsolete_frames(self, experiment: str) -> list[int]:
        """Return the numbers of the next frames to delete."""
        # Frames of conflicts stay as long as a current part has their key: an owner may still accept them.
        with self.database.read_transaction() as run:
            rows = run(
                "SELECT f.number FROM frames f JOIN parts p ON p.experiment = f.experiment AND p.number = f.number "
                "WHERE f.experiment = ? AND NOT EXISTS (SELECT 1 FROM parts c WHERE c.experiment = p.experiment "
                "AND c.hour = p.hour AND c.source = p.source AND c.seq = p.seq AND c.state = 'current') "
                f"ORDER BY f.number LIMIT {DELETE_BATCH}",
                experiment,
            )
        return [number for (number,) in rows]

    # -- the total ----------------------------------------------------------------------------------------------------

    def save_total(self, experiment: str, at: StreamPosition, data: bytes) -> None:
        """Save the total of all parts up to a position, unless the store has a total of a later position."""
        with self.database.write_transaction() as run:
            run(
                "INSERT INTO totals VALUES (?, ?, ?, ?) ON CONFLICT (experiment) DO UPDATE SET "
                "upto = excluded.upto, epoch = excluded.epoch, data = excluded.data "
                "WHERE totals.epoch < excluded.epoch OR (totals.epoch = excluded.epoch AND totals.upto < excluded.upto)",
                experiment,
                *at,
                data,
            )

    def total(self, experiment: str) -> tuple[StreamPosition, bytes] | None:
        """Return the stored total and its position; None if there is none."""
        with self.database.read_transaction() as run:
            rows = run("SELECT upto, epoch, data FROM totals WHERE experiment = ?", experiment)
        return ((rows[0][0], rows[0][1]), rows[0][2]) if rows else None


def _put_part(run: RunStatement, part: PostedPart, last: dict[str, int]) -> str:
    key = part.key
    rows = run(
        "SELECT digest, state FROM parts WHERE experiment = ? AND hour = ? AND source = ? AND seq = ?",
        key.experiment,
        key.hour,
        key.source,
        key.seq,
    )
    # `counted` is the digest that counts under this key; the unique index allows only one.
    counted, state = next((row for row in rows if row[1] in COUNTED), (None, "current"))
    if counted == part.digest:
        return "same"
    if counted is not None and (len(rows) > MAX_CONFLICTS or any(digest == part.digest for digest, _ in rows)):
        return "conflict"
    last[key.experiment] = number = last[key.experiment] + 1
    new_state = "current" if counted is None else "conflict"
    run(
        "INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        key.experiment, number, key.hour, key.source, key.seq, part.digest, part.received_at, new_state, *part.row_counts,
    )  # fmt: skip
    # A conflict can be accepted only until the parts of its day are merged. After that, its row in the ledger is kept as a
    # record, but its frame is not stored.
    if state == "current":
        run("INSERT INTO frames VALUES (?, ?, ?)", key.experiment, number, part.data)
    return "stored" if counted is None else "conflict"


def _load_entries(run: RunStatement, experiment: str, where: str, *args: object) -> list[StoredPart]:
    rows = run(
        "SELECT number, hour, source, seq, digest, received, state, rows, dropped FROM parts "
        f"WHERE experiment = ?{where} ORDER BY number",
        experiment,
        *args,
    )
    return [
        StoredPart(number, PartKey(experiment, source, hour, seq), digest, received, state, RowCounts(counted, dropped))
        for number, hour, source, seq, digest, received, state, counted, dropped in rows
    ]
