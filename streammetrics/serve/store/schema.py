"""Define the tables and indexes of a store.

The column types are PostgreSQL types, which SQLite maps to its own types.
"""

from __future__ import annotations

from ...errors import StreamMetricsError
from .database import Database

__all__ = ["create_tables"]

VERSION = 1

TABLES = (
    # The parts of an experiment are numbered in commit order. A reader that has read up to some number therefore never
    # misses a part with a smaller number. `epoch` increases when a part that is already stored changes, unless
    # the part is only merged into its day.
    "streams (experiment TEXT PRIMARY KEY, last BIGINT NOT NULL, epoch BIGINT NOT NULL)",
    """parts (experiment TEXT NOT NULL, number BIGINT NOT NULL, hour BIGINT NOT NULL, source TEXT NOT NULL,
        seq BIGINT NOT NULL, digest TEXT NOT NULL, received DOUBLE PRECISION NOT NULL, state TEXT NOT NULL,
        rows BIGINT NOT NULL, dropped TEXT NOT NULL, PRIMARY KEY (experiment, number))""",
    "frames (experiment TEXT NOT NULL, number BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (experiment, number))",
    """folds (experiment TEXT NOT NULL, day BIGINT NOT NULL, digest TEXT NOT NULL, data BYTEA NOT NULL,
        PRIMARY KEY (experiment, day))""",
    "totals (experiment TEXT PRIMARY KEY, upto BIGINT NOT NULL, epoch BIGINT NOT NULL, data BYTEA NOT NULL)",
    "series (experiment TEXT PRIMARY KEY, points TEXT NOT NULL, days BYTEA)",
    """definitions (experiment TEXT NOT NULL, version BIGINT NOT NULL, definition TEXT NOT NULL, author TEXT NOT NULL,
        at DOUBLE PRECISION NOT NULL, PRIMARY KEY (experiment, version))""",
    "looks (number {numbered}, experiment TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, look TEXT NOT NULL)",
    "evaluations (experiment TEXT PRIMARY KEY, evaluation TEXT NOT NULL)",
    "servers (server TEXT PRIMARY KEY, until DOUBLE PRECISION NOT NULL)",
    """leases (experiment TEXT PRIMARY KEY, server TEXT NOT NULL, fence BIGINT NOT NULL, until DOUBLE PRECISION NOT NULL,
        evaluated DOUBLE PRECISION, computing DOUBLE PRECISION)""",
    """audits (number {numbered}, experiment TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, author TEXT NOT NULL,
        what TEXT NOT NULL)""",
    """tokens (experiment TEXT NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (experiment, name))""",
    "sessions (session TEXT PRIMARY KEY, token TEXT NOT NULL, expires DOUBLE PRECISION NOT NULL)",
    "token_tags (experiment TEXT NOT NULL, name TEXT NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (experiment, name, tag))",
    "alerts (experiment TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (experiment, name))",
    """decisions (experiment TEXT NOT NULL, number BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, author TEXT NOT NULL,
        arm TEXT NOT NULL, reason TEXT NOT NULL, version BIGINT NOT NULL, verdict TEXT NOT NULL, page TEXT NOT NULL,
        PRIMARY KEY (experiment, number))""",
    """annotations (experiment TEXT NOT NULL, number BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, author TEXT NOT NULL,
        hour BIGINT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (experiment, number))""",
)
INDEXES = (
    "UNIQUE INDEX IF NOT EXISTS parts_contents ON parts (experiment, hour, source, seq, digest)",
    # This index guarantees that at most one part counts under each key.
    """UNIQUE INDEX IF NOT EXISTS parts_counted ON parts (experiment, hour, source, seq)
        WHERE state IN ('current', 'folded', 'forgotten')""",
    "INDEX IF NOT EXISTS parts_states ON parts (experiment, state, hour)",
    "INDEX IF NOT EXISTS looks_of ON looks (experiment, number)",
    "INDEX IF NOT EXISTS audits_of ON audits (experiment, number)",
)


def create_tables(database: Database) -> None:
    """Create any missing tables and indexes.

    Raises
    ------
    StreamMetricsError
        The tables were created by a later release.
    """
    with database.write_transaction() as run:
        database.driver.prepare(run)
        run("CREATE TABLE IF NOT EXISTS layout (version BIGINT NOT NULL)")
        rows = run("SELECT version FROM layout")
        if not rows:
            run("INSERT INTO layout VALUES (?)", VERSION)
        elif rows[0][0] != VERSION:
            raise StreamMetricsError(
                f"the store has layout {rows[0][0]}, but this release supports only layout {VERSION}: the store "
                f"was made by a later release; upgrade streammetrics"
            )
        for table in TABLES:
            run(f"CREATE TABLE IF NOT EXISTS {table.format(numbered=database.driver.identity_column)}")
        for index in INDEXES:
            run(f"CREATE {index}")
