"""What can go wrong, by name: every error of the package derives from StreamMetricsError."""

__all__ = [
    "CounterOverflowError",
    "IncompatibleStateError",
    "InvalidInputError",
    "MemoryLimitError",
    "StateFormatError",
    "StreamMetricsError",
    "UndefinedMetricWarning",
]


class StreamMetricsError(Exception):
    """Base of every error that streammetrics raises on purpose."""


class InvalidInputError(StreamMetricsError, ValueError):
    """A batch holds something that cannot be counted; nothing of it was."""


class IncompatibleStateError(StreamMetricsError, ValueError):
    """Two states that answer different questions were to be merged; both are as they were."""


class StateFormatError(StreamMetricsError, ValueError):
    """Bytes that are not a state of this library: damaged, truncated, newer, or something else."""


class CounterOverflowError(StreamMetricsError, OverflowError):
    """A counter or a sum would leave its range; the state is as it was."""


class MemoryLimitError(StreamMetricsError, MemoryError):
    """A state that grows with the data reached its limit; the state is as it was."""


class UndefinedMetricWarning(UserWarning):
    """A metric has no value (0/0, one class only, no rows); `compute()` returned NaN."""
