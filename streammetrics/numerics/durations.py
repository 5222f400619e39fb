"""Durations such as "15m", "1h" and "7d"."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np

__all__ = ["format_duration", "to_microseconds"]

UNITS = {
    "w": 604_800_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1000,
    "us": 1,
}
WRITTEN = re.compile(r"([0-9]{1,15})(w|d|h|m|s|ms|us)")
LONGEST = 9999 * 366 * UNITS["d"]


def to_microseconds(duration: Any, what: str) -> int:
    """Return a duration in microseconds.

    Raises
    ------
    ValueError
        If the value is not a duration; the message begins with `what`, the name of the argument.
    """
    length = _to_timedelta(duration) if isinstance(duration, np.timedelta64) else duration
    if isinstance(length, datetime.timedelta):
        micros = length // datetime.timedelta(microseconds=1)
    else:
        match = WRITTEN.fullmatch(length) if isinstance(length, str) else None
        micros = 0 if match is None else int(match[1]) * UNITS[match[2]]
    if not 0 < micros <= LONGEST:
        raise ValueError(f'{what} takes a duration such as "1h", "15m", "1d" or "30s", not {duration!r}')
    return micros


def _to_timedelta(duration: np.timedelta64) -> Any:
    """Return a numpy duration as a timedelta; another type if it is too long, or has no fixed length (months)."""
    # Python's timedelta has no nanoseconds.
    fine = np.datetime_data(duration.dtype)[0] == "ns"
    return (duration.astype("m8[us]") if fine else duration).item()


def format_duration(length: int) -> str:
    """Format a duration in the largest unit, up to days, of which it is a whole multiple."""
    unit = next(u for u, size in UNITS.items() if u != "w" and not length % size)
    return f"{length // UNITS[unit]}{unit}"
