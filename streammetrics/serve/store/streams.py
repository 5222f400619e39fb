"""What changes of one experiment have in common: they come one after the other, and are noted."""

from __future__ import annotations

from .database import Run

__all__ = ["Position", "lock", "note", "position"]

Position = tuple[int, int]
"""The number of the last part, and the epoch: how often what had been counted was changed."""


def lock(run: Run, experiment: str) -> Position:
    """Wait until nobody else changes an experiment, and keep others from it until the transaction ends."""
    run("INSERT INTO streams VALUES (?, 0, 0) ON CONFLICT (experiment) DO NOTHING", experiment)
    run("UPDATE streams SET last = last WHERE experiment = ?", experiment)
    return position(run, experiment)


def position(run: Run, experiment: str) -> Position:
    """How far an experiment is."""
    found = run("SELECT last, epoch FROM streams WHERE experiment = ?", experiment)
    return (int(found[0][0]), int(found[0][1])) if found else (0, 0)


def note(run: Run, experiment: str, what: str, *, by: str, at: float) -> None:
    """Write down who changed something."""
    run("INSERT INTO audits (experiment, at, author, what) VALUES (?, ?, ?, ?)", experiment, at, by, what)
