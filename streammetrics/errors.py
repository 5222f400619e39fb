"""What can go wrong, by name: every error of the package derives from StreamMetricsError."""

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
    """Base of every error that streammetrics raises on purpose."""


class InvalidInputError(StreamMetricsError, ValueError):
    """A batch holds something that cannot be counted; nothing of it was.

    Attributes
    ----------
    column : str or None
        The column at fault.
    row : int or None
        The first bad row, counted from 0 in the batch as it was given.
    count : int or None
        How many rows are bad.
    """

    def __init__(self, message: str, *, column: str | None = None, row: int | None = None, count: int | None = None):
        super().__init__(message)
        self.column, self.row, self.count = column, row, count


class IncompatibleStateError(StreamMetricsError, ValueError):
    """Two states that answer different questions were to be merged; both are as they were."""


class StateFormatError(StreamMetricsError, ValueError):
    """Bytes that are not a state of this library: damaged, truncated, newer, or something else."""


class CounterOverflowError(StreamMetricsError, OverflowError):
    """A counter or a sum would leave its range; the state is as it was."""


class MemoryLimitError(StreamMetricsError, MemoryError):
    """A state that grows with the data reached its limit; the state is as it was."""


class PartitionConflictError(StreamMetricsError, ValueError):
    """A partition was added to a ledger before, with other content; the ledger is as it was.

    Attributes
    ----------
    partition : str, int, bytes or date
        Its id.
    held, given : str
        The digest of what was added, and of what came now.
    """

    def __init__(self, partition: object, held: str, given: str):
        super().__init__(
            f"partition {partition!r} was added with digest {held[:12]}..., and now has {given[:12]}...: its rows, or the "
            f"metrics, are not what they were; count it again, or give it another id"
        )
        self.partition, self.held, self.given = partition, held, given

    def __reduce__(self) -> tuple[type[Self], tuple[object, str, str]]:
        """Processes hand it to each other."""
        return type(self), (self.partition, self.held, self.given)


class PushError(StreamMetricsError, RuntimeError):
    """A dashboard did not store what was posted to it.

    Attributes
    ----------
    status : int
        Of HTTP: 409 if another part has its key; 0 if nobody answered.
    """

    def __init__(self, message: str, *, status: int = 0):
        super().__init__(message)
        self.status = status


class NotArrivedError(StreamMetricsError, TimeoutError):
    """Rows that are on their way from a device did not arrive in time; they are still waited for by the next call."""


class SyncError(StreamMetricsError, RuntimeError):
    """Processes could not add up what they have seen: one of them died, or failed before; all metrics are as they were."""


class SyncTimeoutError(SyncError, TimeoutError):
    """Processes could not add up what they have seen within the timeout: one of them is stuck, late or gone."""


class UndefinedMetricWarning(UserWarning):
    """A metric has no value (0/0, one class only, no rows); `compute()` returned NaN."""


class WideBoundsWarning(UserWarning):
    """The certified bounds of a value are wider than 5 % of the metric's range, or of the value where it has no range."""
