"""Errors and warnings: every error in the package derives from StreamMetricsError."""

from __future__ import annotations

from typing import Self

__all__ = [
    "CounterOverflowError",
    "IncompatibleStateError",
    "InvalidInputError",
    "MemoryLimitError",
    "NotArrivedError",
    "PartitionConflictError",
    "PushError",
    "StateFormatError",
    "StreamMetricsError",
    "SyncError",
    "SyncTimeoutError",
    "UndefinedMetricWarning",
    "WideBoundsWarning",
]


class StreamMetricsError(Exception):
    """Base class of every error that streammetrics raises on purpose."""


class InvalidInputError(StreamMetricsError, ValueError):
    """A batch contains a value that cannot be counted; no row of the batch was counted.

    Attributes
    ----------
    column : str or None
        The column that contains the bad value.
    row : int or None
        The first bad row, counted from 0 in the batch as the caller passed it.
    count : int or None
        The number of bad rows.
    """

    def __init__(self, message: str, *, column: str | None = None, row: int | None = None, count: int | None = None):
        super().__init__(message)
        self.column, self.row, self.count = column, row, count


class IncompatibleStateError(StreamMetricsError, ValueError):
    """Two states cannot be merged, for example because their settings differ; both are unchanged."""


class StateFormatError(StreamMetricsError, ValueError):
    """Bytes are not a readable state: they are damaged, truncated, from a newer release, or not a saved state at all."""


class CounterOverflowError(StreamMetricsError, OverflowError):
    """A counter or a sum would exceed its range; the state is unchanged."""


class MemoryLimitError(StreamMetricsError, MemoryError):
    """A state whose size depends on the data would exceed its memory limit; the state is unchanged."""


class PartitionConflictError(StreamMetricsError, ValueError):
    """A partition was added to a ledger twice, with the same ID but different content; the ledger is unchanged.

    A ledger is a total that records which partitions of a log it contains (see `Ledger`).

    Attributes
    ----------
    partition : str, int, bytes or date
        The ID of the partition.
    held, given : str
        The digests (hashes) of the content in the ledger (`held`) and of the new content (`given`).
    """

    def __init__(self, partition: object, old_digest: str, new_digest: str):
        super().__init__(
            f"partition {partition!r}: expected digest {old_digest[:12]}... (added before), found {new_digest[:12]}...: "
            f"the rows or the metrics have changed; count the partition again, or use another ID"
        )
        self.partition, self.held, self.given = partition, old_digest, new_digest

    def __reduce__(self) -> tuple[type[Self], tuple[object, str, str]]:
        """Pickle the arguments instead of the message, so that another process can rebuild the error."""
        return type(self), (self.partition, self.held, self.given)


class PushError(StreamMetricsError, RuntimeError):
    """A dashboard did not store the metrics that `push` sent to it.

    Attributes
    ----------
    status : int
        The HTTP status: 409 if the dashboard already has different metrics under the same key; 0 if it did not respond.
    """

    def __init__(self, message: str, *, status: int = 0):
        super().__init__(message)
        self.status = status


class NotArrivedError(StreamMetricsError, TimeoutError):
    """Rows were not copied from a device, such as a GPU, within the timeout.

    The next call to `compute` or `flush` waits for them again.
    """


class SyncError(StreamMetricsError, RuntimeError):
    """Processes could not merge their states because a process died or raised an error; all metrics are unchanged."""


class SyncTimeoutError(SyncError, TimeoutError):
    """Processes could not merge their states within the timeout, because a process is slow, is stuck or has ended."""


class UndefinedMetricWarning(UserWarning):
    """A metric is undefined, for example because of 0/0, a single class, or no rows; `compute()` returned NaN."""


class WideBoundsWarning(UserWarning):
    """The certified bounds are wider than 5 % of the metric's range, or of the value if the metric has no range."""
