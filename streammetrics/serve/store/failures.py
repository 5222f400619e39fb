"""The errors that a store raises when the disk is full or the database is down."""

from __future__ import annotations

from ...errors import StreamMetricsError

__all__ = ["StoreDownError", "StoreFullError"]


class StoreFullError(StreamMetricsError):
    """Raised if the disk is full. Nothing was written; the store will work again once there is free space."""


class StoreDownError(StreamMetricsError):
    """Raised if the database does not answer. A write may or may not have succeeded, so the caller should repeat it."""
