"""The tables of parts, merged days and totals.

Of all parts with the same key, only one counts. The ledger lists every part that was received. A frame is the
serialized content of a part; its digest (hash) stays in the ledger after the frame is deleted. The position of an
experiment is a pair: the number of its last part, and an epoch, which increases whenever an older part changes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import InvalidInputError
from ..part_keys import PartKey, PostedPart, RowCounts
from .database import Database, RunStatement
from .streams import StreamPosition, add_audit_entry, lock_experiment, read_position

__all__ = ["DAY", "MergedDay", "NewParts", "PartOutline", "PartStore", "StoredPart"]

DAY = 24
COUNTED = ("current", "folded", "forgotten")
MAX_CONFLICTS = 8
"""The maximum number of conflicts (parts with the same key but different content) that are stored for a key.

A source whose content changes with each retry would otherwise fill the disk.
"""
PAGE = 256
DELETE_BATCH, DELETE_PAUSE, DELETE_SECONDS = 64, 0.01, 5.0
"""The number of frames that one transaction deletes; the pause between two transactions and the time limit, in seconds.

SQLite does not queue writers from other processes; they have to retry. Short transactions with pauses let them write.
"""


class StoredPart(NamedTuple):
    """A row of the ledger, the list of all received parts.

    The state is one of these words:

    - "current": the part counts, and its frame is stored.
    - "folded": the part counts and has been merged into its day.
    - "forgotten": the part was counted, but its data was deleted after the retention time.
    - "conflict": the key was posted before with different content, and nobody has decided which part counts.
    - "refused": the part does not count. Another part with its key was accepted in its place, or the part was rejected
      or voided.
    - "late": the part does not count. The part that counts under its key was merged into its day, or its data was
      deleted, before an owner accepted this one.
    """

    number: int
    key: PartKey
    digest: str
    received_at: float
    state: str
    row_counts: RowCounts = RowCounts()


class NewParts(NamedTuple):
    """The new parts of an experiment, and the experiment's position (last number and epoch).

    New parts are those with a larger number than the last part that the caller has read. `is_complete` is false if some
    new parts are missing from the list because their frames have already been deleted.
    """

    position: StreamPosition
    parts: list[tuple[int, PostedPart]]
    is_complete: bool


class PartOutline(NamedTuple):
    """The components of the total (the merged metrics of all parts) of an experiment.

    The components are the merged days, given by their digests, and the parts that have not been merged yet.
    """

    position: StreamPosition
    day_digests: dict[int, str]
    current_parts: list[StoredPart]

    def limit_to(self, number: int) -> PartOutline:
        """Return the outline without the parts whose numbers are larger than `number`."""
        return self._replace(current_parts=[entry for entry in self.current_parts if entry.number <= number])


class MergedDay(NamedTuple):
    """The merged metrics of a day, which replace its parts in the store.

    `day` is the first hour of the day, and `end` is the first hour of the next day. `previous_digest` is the digest of
    the previous merge of the same day, if any. `part_numbers` contains the numbers of the parts to replace. `data` is
    the frame of the merged day, and `digest` is its hash.
    """

    day: int
    end: int
    previous_digest: str | None
    part_numbers: Sequence[int]
    digest: str
    data: bytes


class PartStore:
    """The methods of a store that read and write posted parts, days (the merged parts of a day) and merged totals."""

    database: Database

    def put(self, parts: Sequence[PostedPart]) -> list[str]:
        """Store parts in one transaction.

        Returns
        -------
        list of str
            For each part: "stored", "same" (already stored) or "conflict" (its key is stored with a different digest;
            the part is kept but does not count). For parts that are not kept: "excess" (too many parts with different
            content have this key), "late" (the part that counts under this key can no longer be replaced) or "rejected"
            (an owner has rejected this content).

        Raises
        ------
        StoreFullError
            The disk is full, and no part was stored.
        StoreDownError
            The database does not answer, so it is unknown whether the parts were stored. The caller should try again.
        """
        with self.database.write_transaction() as run:
            # Lock the experiments in alphabetical order, so that two servers cannot wait for each other forever (a
            # deadlock).
            last = {name: lock_experiment(run, name)[0] for name in sorted({p.key.experiment for p in parts})}
            answers = [_put_part(run, part, last) for part in parts]
            for name, number in last.items():
                run("UPDATE streams SET last = ? WHERE experiment = ?", number, name)
        return answers

    def parts(self, experiment: str, after: int = 0) -> list[tuple[int, PostedPart]]:
        """Return up to 256 parts that count and whose frames are stored, starting after part number `after`."""
        return self.load_parts_since(experiment, after).parts

    def load_parts_since(self, experiment: str, after: int) -> NewParts:
        """Return the position of an experiment, and up to 256 parts that count, starting after part number `after`.

        Parts whose frames are no longer stored are left out.
        """
        with self.database.read_transaction() as run:
            stream_position = read_position(run, experiment)
            # The left join also returns parts whose frames have been deleted. Such a part shows that the list is
            # incomplete.
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

    # -- reading ------------------------------------------------------------------------------------------------------

    def ledger(self, experiment: str) -> list[StoredPart]:
        """Return the ledger of an experiment (the list of all received parts), sorted by number."""
        return self.load_ledger_since(experiment, 0)[1]

    def load_ledger_since(self, experiment: str, after: int) -> tuple[StreamPosition, list[StoredPart]]:
        """Return the position (last part number and epoch) of an experiment, and its ledger after part number `after`.

        If the epoch in the position differs from the one at the last call, older rows have changed as well.
        """
        with self.database.read_transaction() as run:
            return read_position(run, experiment), _load_entries(run, experiment, " AND number > ?", after)

    def conflicts(self, experiment: str) -> list[StoredPart]:
        """Return the conflicts of an experiment, sorted by number.

        A conflict is a part whose key was posted before with different content.
        """
        with self.database.read_transaction() as run:
            return _load_entries(run, experiment, " AND state = 'conflict'")

    def late_parts(self, experiment: str) -> list[StoredPart]:
        """Return the conflicts that can no longer be accepted.

        A conflict cannot be accepted after the part that counts under its key was merged into its day or deleted.
        """
        with self.database.read_transaction() as run:
            return _load_entries(run, experiment, " AND state = 'late'")

    def outline(self, experiment: str) -> PartOutline:
        """Return the components of the total (the merged metrics) of an experiment, read in one transaction."""
        with self.database.read_transaction() as run:
            days = dict(run("SELECT day, digest FROM folds WHERE experiment = ?", experiment))
            return PartOutline(
                read_position(run, experiment), days, _load_entries(run, experiment, " AND state = 'current'")
            )

    def frames(self, experiment: str, numbers: Sequence[int]) -> list[bytes]:
        """Return the frames (serialized metrics) of the parts with these numbers. Deleted frames are left out."""
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
        """Return the frame (serialized metrics) of a merged day.

        Return None if the store contains no merged day with this digest, for example because the day has been merged
        again.
        """
        with self.database.read_transaction() as run:
            rows = run(
                "SELECT data FROM folds WHERE experiment = ? AND day = ? AND digest = ?", experiment, day, digest
            )
        return rows[0][0] if rows else None

    # -- changes ------------------------------------------------------------------------------------------------------

    def accept(self, experiment: str, number: int, *, by: str, at: float, reason: str = "") -> PartKey:
        """Accept conflict `number`, so that it replaces the part that currently counts under its key.

        A conflict is a part whose key was posted before with different content. The replaced part becomes "refused".
        The audit log records the reason.

        Raises
        ------
        InvalidInputError
            There is no such conflict, its content is no longer stored, or the earlier part was voided or can no longer
            be replaced.
        """
        with self.database.write_transaction() as run:
            _, epoch = lock_experiment(run, experiment)
            where = " AND number = ? AND state IN ('conflict', 'refused', 'late')"
            conflicts = _load_entries(run, experiment, where, number)
            if not conflicts:
                raise InvalidInputError(f"experiment {experiment!r} has no conflict {number}")
            key = conflicts[0].key
            counted = _load_counted(run, key)
            if counted is None:
                raise InvalidInputError(
                    f"{key.text} was voided, so its other contents cannot be accepted; post it again"
                )
            if counted.state != "current":
                fate = "deleted" if counted.state == "forgotten" else "merged into its day"
                raise InvalidInputError(
                    f"the conflict of {key.text} cannot be accepted any more: parts can be replaced only "
                    f"within correct_within_days, and the earlier part is already {fate}"
                )
            # The frame of this conflict may have been deleted after an earlier part with the same key was voided.
            if not run("SELECT 1 FROM frames WHERE experiment = ? AND number = ?", experiment, number):
                raise InvalidInputError(f"the content of conflict {number} is no longer stored; post it again")
            run("UPDATE parts SET state = 'refused' WHERE experiment = ? AND number = ?", experiment, counted.number)
            run("UPDATE parts SET state = 'current' WHERE experiment = ? AND number = ?", experiment, number)
            run("UPDATE streams SET epoch = ? WHERE experiment = ?", epoch + 1, experiment)
            change = f"accepted {conflicts[0].digest[:12]} for {key.text}, in place of {counted.digest[:12]}"
            add_audit_entry(run, experiment, _add_reason(change, reason), by=by, at=at)
        return key

    def reject(self, experiment: str, number: int, *, by: str, at: float, reason: str = "") -> PartKey:
        """Reject conflict `number`, so that the part that counts under its key stays in place.

        Raise InvalidInputError if there is no such conflict.
        """
        with self.database.write_transaction() as run:
            _, epoch = lock_experiment(run, experiment)
            conflicts = _load_entries(run, experiment, " AND number = ? AND state = 'conflict'", number)
            if not conflicts:
                raise InvalidInputError(f"experiment {experiment!r} has no open conflict {number}")
            key = conflicts[0].key
            _exclude_parts(run, experiment, [number], epoch)
            change = f"rejected {conflicts[0].digest[:12]} for {key.text}"
            add_audit_entry(run, experiment, _add_reason(change, reason), by=by, at=at)
        return key

    def void(self, key: PartKey, *, by: str, at: float, reason: str = "") -> None:
        """Remove a part that should not have been posted. Its source can then post different content under its key.

        Raises
        ------
        InvalidInputError
            There is no part with this key, its day is already merged, or the key has open conflicts.
        """
        experiment = key.experiment
        with self.database.write_transaction() as run:
            _, epoch = lock_experiment(run, experiment)
            counted = _load_counted(run, key)
            if counted is None:
                raise InvalidInputError(f"there is no part {key.text}")
            if counted.state != "current":
                raise InvalidInputError(
                    f"{key.text} cannot be voided any more: parts can be changed only within correct_within_days"
                )
            where = " AND hour = ? AND source = ? AND seq = ? AND state = 'conflict'"
            if _load_entries(run, experiment, where, key.hour, key.source, key.seq):
                raise InvalidInputError(f"{key.text} has conflicts; accept or reject each of them first")
            _exclude_parts(run, experiment, [counted.number], epoch)
            change = f"voided {counted.digest[:12]} of {key.text}"
            add_audit_entry(run, experiment, _add_reason(change, reason), by=by, at=at)

    def close_conflicts(self, experiment: str, at: float) -> None:
        """Close the conflicts that can no longer be accepted, by changing their state to "late".

        A conflict cannot be accepted after the part that counts under its key was merged into its day or deleted.
        """
        with self.database.write_transaction() as run:
            _, epoch = lock_experiment(run, experiment)
            rows = run(
                "SELECT number FROM parts p WHERE experiment = ? AND state = 'conflict' AND EXISTS (SELECT 1 FROM parts c "
                "WHERE c.experiment = p.experiment AND c.hour = p.hour AND c.source = p.source AND c.seq = p.seq "
                "AND c.state IN ('folded', 'forgotten'))",
                experiment,
            )
            if rows:
                _exclude_parts(run, experiment, [number for (number,) in rows], epoch, "late")
                change = f"closed {len(rows)} conflicts, because the parts of their days are merged"
                add_audit_entry(run, experiment, change, by="server", at=at)

    def replace_parts(self, experiment: str, epoch: int, merged: MergedDay) -> bool:
        """Replace the parts of a day with the merged day. Return False if the day has changed since it was merged.

        `epoch` is the epoch of the experiment at the time of the merge. The frames of the parts are deleted afterwards,
        in separate transactions. If that fails, a later call to `delete_obsolete_frames` deletes them.
        """
        with self.database.write_transaction() as run:
            _, current_epoch = lock_experiment(run, experiment)
            rows = run("SELECT digest FROM folds WHERE experiment = ? AND day = ?", experiment, merged.day)
            current = run(
                "SELECT number FROM parts WHERE experiment = ? AND hour >= ? AND hour < ? AND state = 'current'",
                experiment,
                merged.day,
                merged.end,
            )
            # Refuse the merged day if the epoch, the previous merge of the day or the merged parts have changed since
            # it was computed. Parts that arrived later do not matter, because they remain separate parts.
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
        """Delete the data of days that ended by the hour `before`; return how many parts become "forgotten".

        The keys and digests of the parts stay in the ledger, so a part that is posted again does not count again.
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
                run("DELETE FROM series WHERE experiment = ?", experiment)
                run("UPDATE streams SET epoch = epoch + 1 WHERE experiment = ?", experiment)
        self.delete_obsolete_frames(experiment)
        return int(count)

    def delete_obsolete_frames(self, experiment: str) -> None:
        """Delete the frames that are no longer needed, in short transactions that let other writers proceed in between.

        The frame of a part is needed as long as a part with the same key is "current". Deletion stops after a few
        seconds, because the caller has other work to do; a later call deletes the remaining frames.
        """
        end = time.monotonic() + DELETE_SECONDS
        while time.monotonic() < end and (numbers := self._find_obsolete_frames(experiment)):
            with self.database.write_transaction() as run:
                for number in numbers:
                    run("DELETE FROM frames WHERE experiment = ? AND number = ?", experiment, number)
            time.sleep(DELETE_PAUSE)

    def _find_obsolete_frames(self, experiment: str) -> list[int]:
        """Return the numbers of the next batch of frames that are no longer needed."""
        # Keep the frame of a conflict as long as there is a current part with the same key, because an owner may still
        # accept the conflict.
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
        """Save the total (merged metrics) of all parts up to the position `at`, unless a later total is stored."""
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
        """Return the stored total (merged metrics) of an experiment and its position, or None if there is none."""
        with self.database.read_transaction() as run:
            rows = run("SELECT upto, epoch, data FROM totals WHERE experiment = ?", experiment)
        return ((rows[0][0], rows[0][1]), rows[0][2]) if rows else None

    def save_series(self, experiment: str, points: str, days: bytes | None) -> None:
        """Save the chart points of an experiment (as JSON) and the merged metrics of its final days, if any.

        A day is provisional, not final, as long as outcomes may still arrive.
        """
        with self.database.write_transaction() as run:
            run(
                "INSERT INTO series VALUES (?, ?, ?) "
                "ON CONFLICT (experiment) DO UPDATE SET points = excluded.points, days = excluded.days",
                experiment,
                points,
                days,
            )

    def series(self, experiment: str) -> tuple[str, bytes | None] | None:
        """Return the chart points and merged metrics that `save_series` saved, or None if nothing was saved."""
        with self.database.read_transaction() as run:
            rows = run("SELECT points, days FROM series WHERE experiment = ?", experiment)
        return rows[0] if rows else None


def _put_part(run: RunStatement, part: PostedPart, last: dict[str, int]) -> str:
    key = part.key
    rows = run(
        "SELECT digest, state FROM parts WHERE experiment = ? AND hour = ? AND source = ? AND seq = ?",
        key.experiment,
        key.hour,
        key.source,
        key.seq,
    )
    # `counted` is the digest of the part that counts under this key, or None. A unique index ensures that at most one
    # part counts.
    counted, state = next((row for row in rows if row[1] in COUNTED), (None, "current"))
    if counted == part.digest:
        return "same"
    is_late = counted is not None and state != "current"
    known_state = next((known for digest, known in rows if digest == part.digest), None)
    if known_state is not None or (counted is not None and len(rows) > MAX_CONFLICTS):
        return "late" if is_late else {"refused": "rejected", None: "excess"}.get(known_state, "conflict")
    last[key.experiment] = number = last[key.experiment] + 1
    # A conflict can be accepted only until its day is merged or deleted. If it arrives later, only its row in the
    # ledger is stored, without its frame.
    new_state = "current" if counted is None else "late" if is_late else "conflict"
    run(
        "INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        key.experiment, number, key.hour, key.source, key.seq, part.digest, part.received_at, new_state, *part.row_counts,
    )  # fmt: skip
    if state == "current":
        run("INSERT INTO frames VALUES (?, ?, ?)", key.experiment, number, part.data)
    return "stored" if new_state == "current" else new_state


def _exclude_parts(
    run: RunStatement, experiment: str, numbers: Sequence[int], epoch: int, state: str = "refused"
) -> None:
    """Put parts into a state in which they do not count, and increase the epoch of the experiment."""
    for number in numbers:
        run("UPDATE parts SET state = ? WHERE experiment = ? AND number = ?", state, experiment, number)
    run("UPDATE streams SET epoch = ? WHERE experiment = ?", epoch + 1, experiment)


def _load_counted(run: RunStatement, key: PartKey) -> StoredPart | None:
    """Return the part that counts under a key, or None if there is none."""
    where = f" AND hour = ? AND source = ? AND seq = ? AND state IN {COUNTED}"
    return next(iter(_load_entries(run, key.experiment, where, key.hour, key.source, key.seq)), None)


def _add_reason(change: str, reason: str) -> str:
    return f"{change}: {reason}" if reason else change


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
