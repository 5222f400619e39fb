"""Lock an experiment, so that only one transaction at a time changes it, and write its audit log.

The parts of an experiment are numbered, and each change to older parts increases the epoch of the experiment.
"""

from __future__ import annotations

from .database import RunStatement

__all__ = ["StreamPosition", "add_audit_entry", "lock_experiment", "read_position"]

StreamPosition = tuple[int, int]
"""The position of an experiment: the number of its last part, and its epoch.

The epoch increases when parts that are already stored change, for example when an owner accepts a conflict.
"""


def lock_experiment(run: RunStatement, experiment: str) -> StreamPosition:
    """Lock an experiment until the transaction ends, and return its position.

    The UPDATE statement changes no value, but it makes PostgreSQL lock the experiment's row. The parts of an experiment
    are therefore committed in the order of their numbers.
    """
    run("INSERT INTO streams VALUES (?, 0, 0) ON CONFLICT (experiment) DO NOTHING", experiment)
    run("UPDATE streams SET last = last WHERE experiment = ?", experiment)
    return read_position(run, experiment)


def read_position(run: RunStatement, experiment: str) -> StreamPosition:
    """Return the position of an experiment: the number of its last part, and its epoch."""
    rows = run("SELECT last, epoch FROM streams WHERE experiment = ?", experiment)
    return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)


def add_audit_entry(run: RunStatement, experiment: str, change: str, *, by: str, at: float) -> None:
    """Add an entry to the audit log of an experiment: who (`by`) made which change, and when (`at`)."""
    run("INSERT INTO audits (experiment, at, author, what) VALUES (?, ?, ?, ?)", experiment, at, by, change)
