"""Durations as people write them: "15m", "1h", "7d"."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np

__all__ = ["duration_text", "microseconds"]

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


def microseconds(given: Any, what: str) -> int:
    """The microseconds of a duration.

    Raises
    ------
    ValueError
        It is none; `what` says of what it was to be one.
    """
    length = _standard(given) if isinstance(given, np.timedelta64) else given
    if isinstance(length, datetime.timedelta):
        found = length // datetime.timedelta(microseconds=1)
    else:
        read = WRITTEN.fullmatch(length) if isinstance(length, str) else None
        found = 0 if read is None else int(read[1]) * UNITS[read[2]]
    if not 0 < found <= LONGEST:
        raise ValueError(f'{what} takes a duration such as "1h", "15m", "1d" or "30s", not {given!r}')
    return found


def _standard(given: np.timedelta64) -> Any:
    """A duration of numpy as one of Python; anything else if it has no length, such as months, or too great a one."""
    fine = np.datetime_data(given.dtype)[0] == "ns"  # which Python has not, and pandas always
    return (given.astype("m8[us]") if fine else given).item()


def duration_text(length: int) -> str:
    """The shortest text of a duration, in days or less."""
    unit = next(u for u, size in UNITS.items() if u != "w" and not length % size)
    return f"{length // UNITS[unit]}{unit}"
