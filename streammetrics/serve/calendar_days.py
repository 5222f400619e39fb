"""Do calendar arithmetic with days in a time zone. Hours are UTC hours; when clocks change, a day may have 23 or 25.

A day contains the hours that begin on its date. In a time zone whose offset is not a whole number of hours, such as
Asia/Kolkata, midnight falls within an hour. This hour belongs to the day on which it begins.
"""

from __future__ import annotations

import datetime
import math
from functools import lru_cache
from zoneinfo import ZoneInfo

from ..errors import InvalidInputError
from .part_keys import HOUR

__all__ = ["add_days", "count_days", "find_day", "find_first_hour", "find_next_day", "to_datetime", "to_time_zone"]

ONE_DAY = datetime.timedelta(days=1)


@lru_cache
def to_time_zone(name: str) -> datetime.tzinfo:
    """Return the time zone with an IANA name, such as Europe/Berlin; raise InvalidInputError if it is unknown."""
    try:
        # UTC does not need the time zone database, which is missing on some computers.
        return datetime.UTC if name == "UTC" else ZoneInfo(name)
    # These errors mean that the name is unknown or invalid, or that it is a folder in the time zone database.
    except (KeyError, ValueError, OSError):
        raise InvalidInputError(
            f"timezone: expected the IANA name of a time zone, such as Europe/Berlin, found {name!r}"
        ) from None


def to_datetime(hour: float, time_zone: str = "UTC") -> datetime.datetime:
    """Return a time, given in hours since 1970, as a datetime in a time zone."""
    return datetime.datetime.fromtimestamp(hour * HOUR, to_time_zone(time_zone))


def find_first_hour(date: datetime.date, time_zone: str) -> int:
    """Return the first hour of a date in a time zone, in hours since 1970."""
    midnight = datetime.datetime.combine(date, datetime.time(), to_time_zone(time_zone))
    return math.ceil(midnight.timestamp() / HOUR)


@lru_cache(1 << 16)
def find_day(hour: int, time_zone: str) -> int:
    """Return the first hour of the day that contains `hour`; both are in hours since 1970.

    Examples
    --------
    >>> find_day(494543, "UTC"), find_day(494543, "Europe/Berlin")
    (494520, 494542)
    """
    return find_first_hour(to_datetime(hour, time_zone).date(), time_zone)


@lru_cache(1 << 16)
def find_next_day(hour: int, time_zone: str) -> int:
    """Return the first hour of the day after the one that contains `hour`; both are in hours since 1970.

    Examples
    --------
    >>> day = find_day(492804, "Europe/Berlin")  # on 21 March 2026
    >>> find_next_day(day, "Europe/Berlin") - day
    24
    """
    return find_first_hour(to_datetime(hour, time_zone).date() + ONE_DAY, time_zone)


def add_days(hour: int, days: int, time_zone: str) -> int:
    """Return the hour `days` days after `hour`, at the same local time of day; both are in hours since 1970."""
    # Adding days to a datetime keeps the local time of day, even if the offset from UTC changes in between.
    return math.ceil((to_datetime(hour, time_zone) + days * ONE_DAY).timestamp() / HOUR)


def count_days(first: int, end: float, time_zone: str) -> float:
    """Return the fractional number of days from `first` to `end`, both in hours since 1970.

    One day later means the same local time of day on the next date, so a day may have 23 or 25 hours.
    """
    begin, last = (to_datetime(hour, time_zone).replace(tzinfo=None) for hour in (first, end))
    return (last - begin) / ONE_DAY
