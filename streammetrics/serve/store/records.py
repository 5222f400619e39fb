"""What is noted of experiments: definitions, looks, alerts, tokens, and who changed what."""

from __future__ import annotations

from typing import NamedTuple

from .database import Database
from .streams import lock, note

__all__ = ["Audit", "DefinitionVersion", "Records", "Token"]

DEFINED = "SELECT version, definition, author, at FROM definitions"


class DefinitionVersion(NamedTuple):
    """A version of what an experiment is, as JSON, and who made it so."""

    version: int
    text: str
    by: str
    at: float


class Audit(NamedTuple):
    """Who changed what, and when."""

    at: float
    by: str
    what: str


class Token(NamedTuple):
    """The name of a writer, and the hash of its token."""

    name: str
    hashed: str


class Records:
    """The part of a store that knows no states."""

    database: Database

    # -- definitions --------------------------------------------------------------------------------------------------

    def define(self, experiment: str, text: str, *, by: str, at: float) -> int:
        """Keep a definition, unless it is the one there is; return its version."""
        with self.database.writing() as run:
            lock(run, experiment)
            found = run(f"{DEFINED} WHERE experiment = ? ORDER BY version DESC LIMIT 1", experiment)
            last = DefinitionVersion(*found[0]) if found else DefinitionVersion(0, "", "", 0.0)
            if last.text == text:
                return last.version
            run("INSERT INTO definitions VALUES (?, ?, ?, ?, ?)", experiment, last.version + 1, text, by, at)
            note(run, experiment, f"defined version {last.version + 1}", by=by, at=at)
        return last.version + 1

    def definitions(self) -> dict[str, DefinitionVersion]:
        """The last definition of every experiment, by id."""
        with self.database.reading() as run:
            rows = run(
                f"SELECT experiment, {DEFINED.removeprefix('SELECT ')} d WHERE version = "
                "(SELECT MAX(version) FROM definitions WHERE experiment = d.experiment) ORDER BY experiment"
            )
        return {experiment: DefinitionVersion(*rest) for experiment, *rest in rows}

    def history(self, experiment: str) -> list[DefinitionVersion]:
        """All definitions of an experiment, the first one first."""
        with self.database.reading() as run:
            return [
                DefinitionVersion(*row) for row in run(f"{DEFINED} WHERE experiment = ? ORDER BY version", experiment)
            ]

    # -- what was shown -----------------------------------------------------------------------------------------------

    def add_look(self, experiment: str, at: float, look: str) -> None:
        """Log what was shown."""
        with self.database.writing() as run:
            run("INSERT INTO looks (experiment, at, look) VALUES (?, ?, ?)", experiment, at, look)

    def looks(self, experiment: str) -> list[tuple[float, str]]:
        """What was shown, and when, in the order in which it was logged."""
        return [(at, look) for _, at, look in self.looks_since(experiment, 0)]

    def looks_since(self, experiment: str, after: int) -> list[tuple[int, float, str]]:
        """What was shown after a look, each with its number."""
        with self.database.reading() as run:
            found = run(
                "SELECT number, at, look FROM looks WHERE experiment = ? AND number > ? ORDER BY number",
                experiment,
                after,
            )
        return list(map(tuple, found))

    def keep_evaluation(self, experiment: str, evaluation: str) -> None:
        """Keep the last evaluation."""
        with self.database.writing() as run:
            run(
                "INSERT INTO evaluations VALUES (?, ?) "
                "ON CONFLICT (experiment) DO UPDATE SET evaluation = excluded.evaluation",
                experiment,
                evaluation,
            )

    def evaluation(self, experiment: str) -> str | None:
        """The last evaluation that was kept."""
        with self.database.reading() as run:
            found = run("SELECT evaluation FROM evaluations WHERE experiment = ?", experiment)
        return found[0][0] if found else None

    # -- alerts -------------------------------------------------------------------------------------------------------

    def alert_state(self, experiment: str) -> dict[str, str]:
        """The state of every alert that has one, by its name."""
        with self.database.reading() as run:
            return dict(run("SELECT name, state FROM alerts WHERE experiment = ?", experiment))

    def set_alert_state(self, experiment: str, name: str, state: str) -> bool:
        """Set the state of an alert; return whether it was another: of many servers one is told so."""
        with self.database.writing() as run:
            lock(run, experiment)
            found = run("SELECT state FROM alerts WHERE experiment = ? AND name = ?", experiment, name)
            if found and found[0][0] == state:
                return False
            run(
                "INSERT INTO alerts VALUES (?, ?, ?) ON CONFLICT (experiment, name) DO UPDATE SET state = excluded.state",
                experiment,
                name,
                state,
            )
        return True

    # -- access -------------------------------------------------------------------------------------------------------

    def add_token(self, experiment: str, hashed: str, name: str, *, by: str, at: float) -> None:
        """Let a writer in; a token of that name is no longer good."""
        with self.database.writing() as run:
            run(
                "INSERT INTO tokens VALUES (?, ?, ?) ON CONFLICT (experiment, name) DO UPDATE SET hash = excluded.hash",
                experiment,
                name,
                hashed,
            )
            note(run, experiment, f"made token {name!r}", by=by, at=at)

    def tokens(self, experiment: str) -> list[Token]:
        """Those who may write, by name."""
        with self.database.reading() as run:
            return [
                Token(*row)
                for row in run("SELECT name, hash FROM tokens WHERE experiment = ? ORDER BY name", experiment)
            ]

    def revoke(self, experiment: str, name: str, *, by: str, at: float) -> bool:
        """Let a writer in no longer; return whether there was one of that name."""
        with self.database.writing() as run:
            if not run("SELECT 1 FROM tokens WHERE experiment = ? AND name = ?", experiment, name):
                return False
            run("DELETE FROM tokens WHERE experiment = ? AND name = ?", experiment, name)
            note(run, experiment, f"revoked token {name!r}", by=by, at=at)
        return True

    def audit(self, experiment: str, what: str, *, by: str, at: float) -> None:
        """Note a change that is not one of the store."""
        with self.database.writing() as run:
            note(run, experiment, what, by=by, at=at)

    def audits(self, experiment: str) -> list[Audit]:
        """Every change that was noted, in order."""
        with self.database.reading() as run:
            rows = run("SELECT at, author, what FROM audits WHERE experiment = ? ORDER BY number", experiment)
        return [Audit(*row) for row in rows]
