"""The tables of definitions, looks, evaluations, alerts, tokens, sessions and the audit log.

A look records the verdicts of an experiment at one time, as people saw them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .database import Database
from .leases import check_fence
from .streams import add_audit_entry, lock_experiment

__all__ = ["AuditEntry", "DefinitionVersion", "RecordStore", "Token"]

DEFINED = "SELECT version, definition, author, at FROM definitions"


class DefinitionVersion(NamedTuple):
    """A version of an experiment's definition (as JSON), with its author and time."""

    version: int
    text: str
    by: str
    at: float


class AuditEntry(NamedTuple):
    """An entry in the audit log: who changed what, and when."""

    at: float
    by: str
    what: str


class Token(NamedTuple):
    """A token of a worker, owner or reader: its name, and the hash of its secret text."""

    name: str
    hashed: str


class RecordStore:
    """The methods of a store for definitions, looks, evaluations, alerts, tokens, sessions and the audit log."""

    database: Database

    # -- definitions --------------------------------------------------------------------------------------------------

    def define(self, experiment: str, text: str, *, by: str, at: float) -> int:
        """Save a definition as a new version unless it equals the last version, and return its version number."""
        with self.database.write_transaction() as run:
            lock_experiment(run, experiment)
            rows = run(f"{DEFINED} WHERE experiment = ? ORDER BY version DESC LIMIT 1", experiment)
            last = DefinitionVersion(*rows[0]) if rows else DefinitionVersion(0, "", "", 0.0)
            if last.text == text:
                return last.version
            run("INSERT INTO definitions VALUES (?, ?, ?, ?, ?)", experiment, last.version + 1, text, by, at)
            add_audit_entry(run, experiment, f"defined version {last.version + 1}", by=by, at=at)
        return last.version + 1

    def definitions(self) -> dict[str, DefinitionVersion]:
        """Return the last definition of every experiment, keyed by ID."""
        with self.database.read_transaction() as run:
            rows = run(
                f"SELECT experiment, {DEFINED.removeprefix('SELECT ')} d WHERE version = "
                "(SELECT MAX(version) FROM definitions WHERE experiment = d.experiment) ORDER BY experiment"
            )
        return {experiment: DefinitionVersion(*rest) for experiment, *rest in rows}

    def history(self, experiment: str) -> list[DefinitionVersion]:
        """Return all versions of the definition of an experiment, oldest first."""
        with self.database.read_transaction() as run:
            return [
                DefinitionVersion(*row) for row in run(f"{DEFINED} WHERE experiment = ? ORDER BY version", experiment)
            ]

    # -- looks and evaluations ----------------------------------------------------------------------------------------

    def looks(self, experiment: str) -> list[tuple[float, str]]:
        """Return the time and the content (the verdicts as JSON) of every look at an experiment, oldest first."""
        return [(at, look) for _, at, look in self.looks_since(experiment, 0)]

    def looks_since(self, experiment: str, after: int) -> list[tuple[int, float, str]]:
        """Return the looks (saved verdicts) after number `after`, as tuples of a number, a time and the content."""
        with self.database.read_transaction() as run:
            rows = run(
                "SELECT number, at, look FROM looks WHERE experiment = ? AND number > ? ORDER BY number",
                experiment,
                after,
            )
        return list(map(tuple, rows))

    def save_evaluation(
        self, experiment: str, at: float, evaluation: str, look: str | None = None, *, fence: int
    ) -> None:
        """Save the latest evaluation of an experiment as JSON, replacing the previous one.

        If `look` (the verdicts at one time, as JSON) is given, it is added to the experiment's looks in the same
        transaction.

        Raises
        ------
        LeaseLostError
            Another server has taken the lease of the experiment, so the number of the lease is no longer `fence`.
        """
        with self.database.write_transaction() as run:
            check_fence(run, experiment, fence)
            run("UPDATE leases SET evaluated = ? WHERE experiment = ?", at, experiment)
            if look is not None:
                run("INSERT INTO looks (experiment, at, look) VALUES (?, ?, ?)", experiment, at, look)
            run(
                "INSERT INTO evaluations VALUES (?, ?) "
                "ON CONFLICT (experiment) DO UPDATE SET evaluation = excluded.evaluation",
                experiment,
                evaluation,
            )

    def evaluation(self, experiment: str) -> str | None:
        """Return the saved evaluation of an experiment, or None if there is none."""
        with self.database.read_transaction() as run:
            rows = run("SELECT evaluation FROM evaluations WHERE experiment = ?", experiment)
        return rows[0][0] if rows else None

    # -- alerts -------------------------------------------------------------------------------------------------------

    def alert_state(self, experiment: str) -> dict[str, str]:
        """Return the saved state of each fault (a problem that raises an alert) of an experiment, by fault name."""
        with self.database.read_transaction() as run:
            return dict(run("SELECT name, state FROM alerts WHERE experiment = ?", experiment))

    def set_alert_state(self, experiment: str, name: str, state: str, *, fence: int | None) -> None:
        """Save the state of a fault; raise LeaseLostError if the lease of the experiment no longer has number `fence`.

        If `fence` is None, any server may save the state.
        """
        with self.database.write_transaction() as run:
            if fence is not None:
                check_fence(run, experiment, fence)
            run(
                "INSERT INTO alerts VALUES (?, ?, ?) ON CONFLICT (experiment, name) DO UPDATE SET state = excluded.state",
                experiment,
                name,
                state,
            )

    # -- access -------------------------------------------------------------------------------------------------------

    def add_token(
        self, experiment: str, hashed: str, name: str, *, by: str, at: float, tags: Sequence[str] = ()
    ) -> None:
        """Save the hash of a token and the tags that it is limited to. A token with the same name is replaced."""
        with self.database.write_transaction() as run:
            run(
                "INSERT INTO tokens VALUES (?, ?, ?) ON CONFLICT (experiment, name) DO UPDATE SET hash = excluded.hash",
                experiment,
                name,
                hashed,
            )
            run("DELETE FROM token_tags WHERE experiment = ? AND name = ?", experiment, name)
            for tag in tags:
                run("INSERT INTO token_tags VALUES (?, ?, ?)", experiment, name, tag)
            limit = f" for {', '.join(tags)}" if tags else ""
            add_audit_entry(run, experiment, f"made token {name!r}{limit}", by=by, at=at)

    def tokens(self, experiment: str) -> list[Token]:
        """Return the tokens of a scope, sorted by name.

        The scope `experiment` is an experiment ID, or a name that stands for the owners or the readers of the server.
        """
        with self.database.read_transaction() as run:
            return [
                Token(*row)
                for row in run("SELECT name, hash FROM tokens WHERE experiment = ? ORDER BY name", experiment)
            ]

    def token_tags(self, experiment: str) -> dict[str, tuple[str, ...]]:
        """Return the tags that each token of a scope is limited to, by token name; leave out tokens without tags."""
        with self.database.read_transaction() as run:
            rows = run("SELECT name, tag FROM token_tags WHERE experiment = ? ORDER BY name, tag", experiment)
        return {name: tuple(tag for other, tag in rows if other == name) for name, _ in rows}

    def revoke(self, experiment: str, name: str, *, by: str, at: float) -> bool:
        """Delete the token with this name, and return whether it existed."""
        with self.database.write_transaction() as run:
            if not run("SELECT 1 FROM tokens WHERE experiment = ? AND name = ?", experiment, name):
                return False
            run("DELETE FROM tokens WHERE experiment = ? AND name = ?", experiment, name)
            run("DELETE FROM token_tags WHERE experiment = ? AND name = ?", experiment, name)
            add_audit_entry(run, experiment, f"revoked token {name!r}", by=by, at=at)
        return True

    def add_session(self, session: str, token: str, *, expires_at: float, now: float) -> None:
        """Save a session unless it is already saved, and delete expired sessions.

        `session` is the hash of the session cookie, and `token` is the hash of the token used to log in.
        """
        with self.database.write_transaction() as run:
            run("DELETE FROM sessions WHERE expires <= ?", now)
            run("INSERT INTO sessions VALUES (?, ?, ?) ON CONFLICT (session) DO NOTHING", session, token, expires_at)

    def find_session(self, session: str, now: float) -> str | None:
        """Return the hash of the token that started a session; None if the session does not exist or has expired."""
        with self.database.read_transaction() as run:
            rows = run("SELECT token FROM sessions WHERE session = ? AND expires > ?", session, now)
        return rows[0][0] if rows else None

    def delete_session(self, session: str) -> None:
        """Delete a session."""
        with self.database.write_transaction() as run:
            run("DELETE FROM sessions WHERE session = ?", session)

    def check_write(self) -> None:
        """Write to the store without changing its data, and raise a store error if the store is not writable."""
        with self.database.write_transaction() as run:
            run("UPDATE layout SET version = version")

    def add_audit(self, experiment: str, change: str, *, by: str, at: float) -> None:
        """Add an entry to the audit log.

        Use this for events that change nothing else in the store, such as a refused file.
        """
        with self.database.write_transaction() as run:
            add_audit_entry(run, experiment, change, by=by, at=at)

    def audits(self, experiment: str) -> list[AuditEntry]:
        """Return the audit log of an experiment, oldest entry first."""
        with self.database.read_transaction() as run:
            rows = run("SELECT at, author, what FROM audits WHERE experiment = ? ORDER BY number", experiment)
        return [AuditEntry(*row) for row in rows]

    def all_audits(self) -> list[tuple[str, AuditEntry]]:
        """Return all entries of the audit log, oldest first.

        Each entry comes with the ID of its experiment, or with the scope of a token, such as "@owner".
        """
        with self.database.read_transaction() as run:
            rows = run("SELECT experiment, at, author, what FROM audits ORDER BY number")
        return [(experiment, AuditEntry(*rest)) for experiment, *rest in rows]
