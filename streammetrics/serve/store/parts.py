"""Parts as they were posted: each key counts once, and what it is remembered by outlives what was posted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import InvalidInputError
from .database import Database, Run
from .part_keys import PartKey, PostedPart, RowCounts
from .streams import Position, lock, note, position

__all__ = ["DAY", "News", "Outline", "Parts", "Settled", "StoredPart"]

DAY = 24
COUNTED = ("current", "folded", "forgotten")
ASIDE = 8
"""Other contents of one key that are kept: who does not count the same twice would fill the disk."""
PAGE = 256
SWEPT, PAUSE, SWEEPING = 64, 0.01, 5.0
"""Frames that are deleted at once, and seconds in between: who posts waits, and SQLite has them ask, not queue. And after
how many seconds the rest is left for later."""


class StoredPart(NamedTuple):
    """A part as the ledger has it.

    The state is "current" (counted, and kept), "folded" (counted, in the fold of its day), "forgotten" (no longer
    counted), "conflict" (its key was there with another digest) or "refused" (another content of its key was accepted).
    """

    number: int
    key: PartKey
    digest: str
    received: float
    state: str
    seen: RowCounts = RowCounts()


class News(NamedTuple):
    """Where an experiment is, and the parts since a number: `whole` unless some of them are not there any more."""

    at: Position
    parts: list[tuple[int, PostedPart]]
    whole: bool


class Outline(NamedTuple):
    """What an experiment consists of: the digests of the folds of days, and the parts that are current."""

    at: Position
    days: dict[int, str]
    current: list[StoredPart]

    def until(self, number: int) -> Outline:
        """The same without parts that came behind a number."""
        return self._replace(current=[entry for entry in self.current if entry.number <= number])


class Settled(NamedTuple):
    """The fold of a day: what it is of (the fold that there was, and parts), and what it is."""

    day: int
    before: str | None
    numbers: Sequence[int]
    digest: str
    data: bytes


class Parts:
    """The part of a store that keeps states."""

    database: Database

    def put(self, parts: Sequence[PostedPart]) -> list[str]:
        """Keep parts, on disk when this returns.

        Returns
        -------
        list of str
            For each "stored", "same" (it is there) or "conflict" (its key is there with another digest; it is kept aside).

        Raises
        ------
        StoreFullError, StoreDownError
            None of them was kept; or, when the database went down, that is not known: put them again.
        """
        with self.database.writing() as run:
            # in order, so that two servers never wait for each other
            last = {name: lock(run, name)[0] for name in sorted({p.key.experiment for p in parts})}
            answers = [_put(run, part, last) for part in parts]
            for name, number in last.items():
                run("UPDATE streams SET last = ? WHERE experiment = ?", number, name)
        return answers

    def parts(self, experiment: str, after: int = 0) -> list[tuple[int, PostedPart]]:
        """At most 256 parts that are current, after a number, in order of their numbers."""
        return self.since(experiment, after).parts

    def since(self, experiment: str, after: int) -> News:
        """What has come after a number, at most 256 parts of it."""
        with self.database.reading() as run:
            at = position(run, experiment)
            rows = run(
                "SELECT p.number, hour, source, seq, digest, received, state, data FROM parts p LEFT JOIN frames f "
                "ON f.experiment = p.experiment AND f.number = p.number "
                f"WHERE p.experiment = ? AND p.number > ? AND state IN {COUNTED} ORDER BY p.number LIMIT {PAGE}",
                experiment,
                after,
            )
        found = [
            (number, PostedPart(PartKey(experiment, source, hour, seq), data, digest, received))
            for number, hour, source, seq, digest, received, state, data in rows
            if state == "current"
        ]
        return News(at, found, len(found) == len(rows))

    # -- what there is ------------------------------------------------------------------------------------------------

    def ledger(self, experiment: str) -> list[StoredPart]:
        """Everything that was posted, in order."""
        return self.posted(experiment, 0)[1]

    def posted(self, experiment: str, after: int) -> tuple[Position, list[StoredPart]]:
        """Where an experiment is, and what was posted since a number; of another epoch if older ones changed."""
        with self.database.reading() as run:
            return position(run, experiment), _entries(run, experiment, " AND number > ?", after)

    def conflicts(self, experiment: str) -> list[StoredPart]:
        """What is kept aside, in order."""
        with self.database.reading() as run:
            return _entries(run, experiment, " AND state = 'conflict'")

    def outline(self, experiment: str) -> Outline:
        """What the total consists of."""
        with self.database.reading() as run:
            days = dict(run("SELECT day, digest FROM folds WHERE experiment = ?", experiment))
            return Outline(position(run, experiment), days, _entries(run, experiment, " AND state = 'current'"))

    def frames(self, experiment: str, numbers: Sequence[int]) -> list[bytes]:
        """What was posted under these numbers, of those that are kept."""
        with self.database.reading() as run:
            found = []
            for i in range(0, len(numbers), PAGE):
                some = numbers[i : i + PAGE]
                found += run(
                    f"SELECT data FROM frames WHERE experiment = ? AND number IN ({', '.join('?' * len(some))})",
                    experiment,
                    *some,
                )
        return [data for (data,) in found]

    def fold(self, experiment: str, day: int, digest: str) -> bytes | None:
        """The fold of a day, if it is the one that has this digest."""
        with self.database.reading() as run:
            found = run(
                "SELECT data FROM folds WHERE experiment = ? AND day = ? AND digest = ?", experiment, day, digest
            )
        return found[0][0] if found else None

    # -- what is changed ----------------------------------------------------------------------------------------------

    def accept(self, experiment: str, number: int, *, by: str, at: float) -> PartKey:
        """Count what was kept aside in place of what is counted under its key, whose turn it is to be kept aside.

        Raises
        ------
        InvalidInputError
            There is no such conflict, or it is too late: the parts of its hour were folded into their day.
        """
        with self.database.writing() as run:
            _, epoch = lock(run, experiment)
            found = _entries(run, experiment, " AND number = ? AND state IN ('conflict', 'refused')", number)
            if not found:
                raise InvalidInputError(f"experiment {experiment!r} has no conflict {number}")
            key = found[0].key
            where = f" AND hour = ? AND source = ? AND seq = ? AND state IN {COUNTED}"
            (held,) = _entries(run, experiment, where, key.hour, key.source, key.seq)
            if held.state != "current":
                raise InvalidInputError(
                    f"the conflict of {key.text} cannot be accepted any more: parts are kept for correct_within, and that "
                    f"of this key is {held.state}, so that its hour cannot be folded anew"
                )
            run("UPDATE parts SET state = 'refused' WHERE experiment = ? AND number = ?", experiment, held.number)
            run("UPDATE parts SET state = 'current' WHERE experiment = ? AND number = ?", experiment, number)
            run("UPDATE streams SET epoch = ? WHERE experiment = ?", epoch + 1, experiment)
            what = f"accepted {found[0].digest[:12]} for {key.text}, in place of {held.digest[:12]}"
            note(run, experiment, what, by=by, at=at)
        return key

    def compact(self, experiment: str, epoch: int, new: Settled) -> bool:
        """Keep the fold of a day in place of its parts; return False, and change nothing, if these are not there.

        What was posted is deleted behind it; where that raises, the fold is kept, and `sweep` goes on.
        """
        days = experiment, new.day, new.day + DAY
        with self.database.writing() as run:
            _, now = lock(run, experiment)
            before = run("SELECT digest FROM folds WHERE experiment = ? AND day = ?", experiment, new.day)
            current = run(
                "SELECT number FROM parts WHERE experiment = ? AND hour >= ? AND hour < ? AND state = 'current'", *days
            )
            held = before[0][0] if before else None
            if now != epoch or held != new.before or not set(new.numbers) <= {number for (number,) in current}:
                return False
            for number in new.numbers:
                run("UPDATE parts SET state = 'folded' WHERE experiment = ? AND number = ?", experiment, number)
            run(
                "INSERT INTO folds VALUES (?, ?, ?, ?) "
                "ON CONFLICT (experiment, day) DO UPDATE SET digest = excluded.digest, data = excluded.data",
                experiment,
                new.day,
                new.digest,
                new.data,
            )
        self.sweep(experiment)
        return True

    def forget(self, experiment: str, before: int) -> int:
        """Count no longer, and delete, what is of days that ended before an hour; return how many parts that were.

        Their keys and digests stay, so that a late duplicate is known.
        """
        end = before // DAY * DAY
        with self.database.writing() as run:
            lock(run, experiment)
            where = "experiment = ? AND hour < ? AND state IN ('current', 'folded')"
            ((count,),) = run(f"SELECT COUNT(*) FROM parts WHERE {where}", experiment, end)
            if count:
                run(f"UPDATE parts SET state = 'forgotten' WHERE {where}", experiment, end)
                run("DELETE FROM folds WHERE experiment = ? AND day < ?", experiment, end)
                run("DELETE FROM totals WHERE experiment = ?", experiment)
                run("UPDATE streams SET epoch = epoch + 1 WHERE experiment = ?", experiment)
        self.sweep(experiment)
        return int(count)

    def sweep(self, experiment: str) -> None:
        """Delete what was posted of keys that are no longer current: some at a time, as others wait to write.

        Folding and forgetting do it; it is for what they left, as it stops after some seconds: others wait to be read.
        """
        end = time.monotonic() + SWEEPING
        while time.monotonic() < end and (gone := self._swept(experiment)):
            with self.database.writing() as run:
                for number in gone:
                    run("DELETE FROM frames WHERE experiment = ? AND number = ?", experiment, number)
            time.sleep(PAUSE)

    def _swept(self, experiment: str) -> list[int]:
        """What is to be deleted next."""
        with self.database.reading() as run:
            found = run(
                "SELECT f.number FROM frames f JOIN parts p ON p.experiment = f.experiment AND p.number = f.number "
                "WHERE f.experiment = ? AND NOT EXISTS (SELECT 1 FROM parts c WHERE c.experiment = p.experiment "
                "AND c.hour = p.hour AND c.source = p.source AND c.seq = p.seq AND c.state = 'current') "
                f"ORDER BY f.number LIMIT {SWEPT}",
                experiment,
            )
        return [number for (number,) in found]

    # -- the total ----------------------------------------------------------------------------------------------------

    def keep_total(self, experiment: str, at: Position, data: bytes) -> None:
        """Keep the total of all parts up to a position, unless a later one is kept."""
        with self.database.writing() as run:
            run(
                "INSERT INTO totals VALUES (?, ?, ?, ?) ON CONFLICT (experiment) DO UPDATE SET "
                "upto = excluded.upto, epoch = excluded.epoch, data = excluded.data "
                "WHERE totals.epoch < excluded.epoch OR (totals.epoch = excluded.epoch AND totals.upto < excluded.upto)",
                experiment,
                *at,
                data,
            )

    def total(self, experiment: str) -> tuple[Position, bytes] | None:
        """The total that was kept, and up to where it counts."""
        with self.database.reading() as run:
            found = run("SELECT upto, epoch, data FROM totals WHERE experiment = ?", experiment)
        return ((found[0][0], found[0][1]), found[0][2]) if found else None


def _put(run: Run, part: PostedPart, last: dict[str, int]) -> str:
    key = part.key
    known = run(
        "SELECT digest, state FROM parts WHERE experiment = ? AND hour = ? AND source = ? AND seq = ?",
        key.experiment,
        key.hour,
        key.source,
        key.seq,
    )
    counted, state = next((row for row in known if row[1] in COUNTED), (None, "current"))
    if counted == part.digest:
        return "same"
    if counted is not None and (len(known) > ASIDE or any(digest == part.digest for digest, _ in known)):
        return "conflict"
    last[key.experiment] = number = last[key.experiment] + 1
    as_what = "current" if counted is None else "conflict"
    run(
        "INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        key.experiment, number, key.hour, key.source, key.seq, part.digest, part.received, as_what, *part.seen,
    )  # fmt: skip
    if state == "current":  # what cannot be accepted any more is only remembered
        run("INSERT INTO frames VALUES (?, ?, ?)", key.experiment, number, part.data)
    return "stored" if counted is None else "conflict"


def _entries(run: Run, experiment: str, where: str, *given: object) -> list[StoredPart]:
    rows = run(
        "SELECT number, hour, source, seq, digest, received, state, rows, dropped FROM parts "
        f"WHERE experiment = ?{where} ORDER BY number",
        experiment,
        *given,
    )
    return [
        StoredPart(number, PartKey(experiment, source, hour, seq), digest, received, state, RowCounts(counted, dropped))
        for number, hour, source, seq, digest, received, state, counted, dropped in rows
    ]
