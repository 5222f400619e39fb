"""What a store may be unable to do."""

from __future__ import annotations

from ...errors import StreamMetricsError

__all__ = ["StoreDownError", "StoreFullError"]


class StoreFullError(StreamMetricsError):
    """There is no room left: nothing was written, and it goes on once there is."""


class StoreDownError(StreamMetricsError):
    """The database does not answer. What was asked for is to be asked again: it may or may not have been done."""
