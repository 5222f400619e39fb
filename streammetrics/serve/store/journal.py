"""The tables of the decisions and annotations that people record about an experiment."""

from __future__ import annotations

from typing import NamedTuple

from .database import Database, RunStatement
from .streams import add_audit_entry, lock_experiment

__all__ = ["Annotation", "Decision", "JournalStore"]


class Decision(NamedTuple):
    """A recorded decision to give all users one arm of the experiment (`arm`).

    `by` is the person who decided, and `at` is the time of the decision, in seconds since 1970. `version` is the
    version of the experiment's definition, and `verdict` is what the experiment's page said about the arm at that
    time.
    """

    number: int
    at: float
    by: str
    arm: str
    reason: str
    version: int
    verdict: str


class Annotation(NamedTuple):
    """A remark, such as "release 4.2 of the app", about an hour. Charts over time show the remark."""

    number: int
    at: float
    by: str
    hour: int
    text: str


DECISION_COLUMNS = "number, at, author, arm, reason, version, verdict"


class JournalStore:
    """The methods of a store that read and write decisions and annotations."""

    database: Database

    def add_decision(self, experiment: str, decision: Decision, page: str) -> int:
        """Save a decision and the experiment's HTML page as people saw it, and return the new decision's number.

        The number in `decision` itself is ignored.
        """
        _, at, by, arm, reason, version, verdict = decision
        with self.database.write_transaction() as run:
            lock_experiment(run, experiment)
            number = _find_next_number(run, "decisions", experiment)
            run(
                "INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                experiment, number, at, by, arm, reason, version, verdict, page,
            )  # fmt: skip
            add_audit_entry(run, experiment, f"decided for {arm}: {reason}", by=by, at=at)
        return number

    def decisions(self, experiment: str) -> list[Decision]:
        """Return the decisions about an experiment, oldest first. The last one counts."""
        with self.database.read_transaction() as run:
            rows = run(f"SELECT {DECISION_COLUMNS} FROM decisions WHERE experiment = ? ORDER BY number", experiment)
        return [Decision(*row) for row in rows]

    def last_decisions(self) -> dict[str, Decision]:
        """Return the last decision about each experiment that has any decisions, keyed by experiment ID."""
        with self.database.read_transaction() as run:
            rows = run(f"SELECT experiment, {DECISION_COLUMNS} FROM decisions ORDER BY number")
        return {experiment: Decision(*rest) for experiment, *rest in rows}

    def decision_page(self, experiment: str, number: int) -> str | None:
        """Return the HTML page that was saved with a decision, or None if there is no such decision."""
        with self.database.read_transaction() as run:
            rows = run("SELECT page FROM decisions WHERE experiment = ? AND number = ?", experiment, number)
        return rows[0][0] if rows else None

    def add_annotation(self, experiment: str, hour: int, text: str, *, by: str, at: float) -> int:
        """Save an annotation, and return its number."""
        with self.database.write_transaction() as run:
            lock_experiment(run, experiment)
            number = _find_next_number(run, "annotations", experiment)
            run("INSERT INTO annotations VALUES (?, ?, ?, ?, ?, ?)", experiment, number, at, by, hour, text)
            add_audit_entry(run, experiment, f"annotated: {text}", by=by, at=at)
        return number

    def annotations(self, experiment: str) -> list[Annotation]:
        """Return the annotations of an experiment, sorted by hour."""
        with self.database.read_transaction() as run:
            rows = run(
                "SELECT number, at, author, hour, text FROM annotations WHERE experiment = ? ORDER BY hour, number",
                experiment,
            )
        return [Annotation(*row) for row in rows]


def _find_next_number(run: RunStatement, table: str, experiment: str) -> int:
    ((last,),) = run(f"SELECT COALESCE(MAX(number), 0) FROM {table} WHERE experiment = ?", experiment)
    return int(last) + 1
