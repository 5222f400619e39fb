"""Parsing and formatting of durations such as "15m", "1h" and "7d"."""

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
    """Convert a duration to a number of microseconds.

    Parameters
    ----------
    duration : str, timedelta or np.timedelta64
        The duration, for example "15m".
    what : str
        The name of the argument, for the error message.

    Raises
    ------
    ValueError
        If the value is not a positive duration, or is too long.
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
    """Convert a numpy duration to a timedelta.

    A duration that is too long or has no fixed length, such as a month, becomes an integer, which the caller rejects.
    """
    # Convert nanoseconds to microseconds first. A timedelta has no nanoseconds, so numpy would return an integer.
    fine = np.datetime_data(duration.dtype)[0] == "ns"
    return (duration.astype("m8[us]") if fine else duration).item()


def format_duration(length: int) -> str:
    """Format a number of microseconds in the largest unit, up to days, that divides it: "90m", not "1.5h"."""
    unit = next(u for u, size in UNITS.items() if u != "w" and not length % size)
    return f"{length // UNITS[unit]}{unit}"
