"""Lock an experiment so that its changes run one after the other, number its parts, and write its audit log."""

from __future__ import annotations

from .database import RunStatement

__all__ = ["StreamPosition", "add_audit_entry", "lock_experiment", "read_position"]

StreamPosition = tuple[int, int]
"""The number of the last part, and the epoch: the number of changes to parts that counted already."""


def lock_experiment(run: RunStatement, experiment: str) -> StreamPosition:
    """Lock an experiment until the transaction ends, and return its position.

    The update changes nothing, but it locks the row of the experiment in PostgreSQL: parts of an experiment are numbered
    and committed in the same order.
    """
    run("INSERT INTO streams VALUES (?, 0, 0) ON CONFLICT (experiment) DO NOTHING", experiment)
    run("UPDATE streams SET last = last WHERE experiment = ?", experiment)
    return read_position(run, experiment)


def read_position(run: RunStatement, experiment: str) -> StreamPosition:
    """Return the position of an experiment: the number of its last part, and its epoch."""
    rows = run("SELECT last, epoch FROM streams WHERE experiment = ?", experiment)
    return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)


def add_audit_entry(run: RunStatement, experiment: str, change: str, *, by: str, at: float) -> None:
    """Add an entry to the audit log."""
    run("INSERT INTO audits (experiment, at, author, what) VALUES (?, ?, ?, ?)", experiment, at, by, change)
