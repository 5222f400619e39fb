"""Divide the experiments among the servers that share a store. One server at a time holds the lease of an experiment.

The lease has a number, the fence, which increases when another server takes the lease. A server passes this fence with
every write. If another server has taken the lease in the meantime, the write is refused. Without this check, a server
that was paused for too long could write after its successor. All times come from the database clock, because the
servers' clocks may differ.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import NamedTuple

from ...errors import StreamMetricsError
from .database import Database, RunStatement
from .streams import StreamPosition

__all__ = ["ExperimentStatus", "LeaseLostError", "LeaseStore", "check_fence"]


class LeaseLostError(StreamMetricsError):
    """Raised if another server has taken the lease of an experiment. Nothing was written."""


class ExperimentStatus(NamedTuple):
    """The status of an experiment and of its evaluation in a store.

    `version` is the version of the definition. `position` is a pair: the number of the last part, and the epoch, which
    increases when older parts change. `evaluated_at` is the time of the stored evaluation, or None. `computing_since`
    is the time at which the running evaluation began; None if none is running, or if it has only just begun.
    """

    version: int
    position: StreamPosition
    evaluated_at: float | None
    computing_since: float | None


class LeaseStore:
    """The methods of a store that divide the experiments among the servers that share it."""

    database: Database

    def hold_leases(self, server: str, seconds: float) -> dict[str, int]:
        """Renew the leases of a server, take the leases that it should hold, and release all others.

        Parameters
        ----------
        server : str
            The name of the server, which must be unique.
        seconds : float
            The duration of the leases. The server must call this method again before they expire.

        Returns
        -------
        dict of str to int
            The fence of each experiment whose lease the server now holds.
        """
        driver = self.database.driver
        with self.database.write_transaction() as run:
            # This UPDATE statement changes no value but locks a row, so any other server that calls this method waits
            # here until the transaction ends.
            run("UPDATE layout SET version = version")
            ((now,),) = run(f"SELECT {driver.clock}")
            run("DELETE FROM servers WHERE until < ?", now)
            run(
                "INSERT INTO servers VALUES (?, ?) ON CONFLICT (server) DO UPDATE SET until = excluded.until",
                server,
                now + seconds,
            )
            servers = sorted(name for (name,) in run("SELECT server FROM servers")) if driver.is_shared else [server]
            run("UPDATE leases SET until = ? WHERE server = ?", now + seconds, server)
            holders = dict(run("SELECT experiment, server FROM leases"))
            # If only one server can use the database, any other holder of a lease must be an earlier process that has
            # died. Its leases can be taken even before they expire.
            limit = now if driver.is_shared else math.inf
            for (experiment,) in run("SELECT DISTINCT experiment FROM definitions"):
                is_preferred = find_preferred_server(experiment, servers) == server
                if is_preferred and holders.get(experiment) != server:
                    _take_lease(run, experiment, server, now + seconds, limit)
                elif holders.get(experiment) == server and not is_preferred:
                    run("UPDATE leases SET server = '', until = 0 WHERE experiment = ?", experiment)
            return dict(run("SELECT experiment, fence FROM leases WHERE server = ?", server))

    def release_leases(self, server: str) -> None:
        """Release all leases of a server that is stopping, so that other servers need not wait for them to expire."""
        with self.database.write_transaction() as run:
            run("UPDATE leases SET server = '', until = 0 WHERE server = ?", server)
            run("DELETE FROM servers WHERE server = ?", server)

    def statuses(self) -> dict[str, ExperimentStatus]:
        """Return the status of every experiment, keyed by ID."""
        with self.database.read_transaction() as run:
            rows = run(
                "SELECT d.experiment, MAX(d.version), s.last, s.epoch, l.evaluated, l.computing FROM definitions d "
                "JOIN streams s ON s.experiment = d.experiment LEFT JOIN leases l ON l.experiment = d.experiment "
                "GROUP BY d.experiment, s.last, s.epoch, l.evaluated, l.computing"
            )
        return {name: ExperimentStatus(version, (last, epoch), *rest) for name, version, last, epoch, *rest in rows}

    def note_computing(self, experiment: str, since: float | None, fence: int) -> None:
        """Save the start time of the running evaluation (None if none is running) for all servers to show."""
        with self.database.write_transaction() as run:
            check_fence(run, experiment, fence)
            run("UPDATE leases SET computing = ? WHERE experiment = ?", since, experiment)


def find_preferred_server(experiment: str, servers: Iterable[str]) -> str:
    """Return the server that should hold the lease of an experiment.

    The result is the same on all servers. When a server joins or leaves, only that server's experiments move
    (rendezvous hashing).

    Examples
    --------
    >>> find_preferred_server("checkout", ["a", "b"]) == find_preferred_server("checkout", ["b", "a"])
    True
    """
    return max(servers, key=lambda server: hashlib.sha256(f"{server} {experiment}".encode()).digest())


def check_fence(run: RunStatement, experiment: str, fence: int) -> None:
    """Raise LeaseLostError if an experiment's lease no longer has the number `fence`, because another server took it.

    The UPDATE statement changes no value, but it makes PostgreSQL lock the row, so that the lease cannot be taken
    before the transaction ends.
    """
    run("UPDATE leases SET fence = fence WHERE experiment = ?", experiment)
    if run("SELECT fence FROM leases WHERE experiment = ?", experiment) != [(fence,)]:
        raise LeaseLostError(f"another server evaluates {experiment} now; nothing was written")


def _take_lease(run: RunStatement, experiment: str, server: str, until: float, limit: float) -> None:
    """Take the lease of an experiment up to the time `until`, if the current lease expires before the time `limit`."""
    run("INSERT INTO leases VALUES (?, '', 0, 0, NULL, NULL) ON CONFLICT (experiment) DO NOTHING", experiment)
    run(
        "UPDATE leases SET server = ?, fence = fence + 1, until = ?, computing = NULL WHERE experiment = ? AND until < ?",
        server,
        until,
        experiment,
        limit,
    )
