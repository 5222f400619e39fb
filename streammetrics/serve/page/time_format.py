"""Format times and durations as human-readable text."""

from __future__ import annotations

import datetime

from ..calendar_days import to_datetime

__all__ = ["format_day", "format_hour_end", "format_span", "format_time"]


def format_time(at: float) -> str:
    """Format a time, given in seconds since 1970, to the minute.

    Examples
    --------
    >>> format_time(1780358400.0), format_hour_end(494543), format_day(494543)
    ('Tue 2 June 00:00 UTC', 'Mon 1 June 24:00 UTC', 'Mon 1 June 2026')
    """
    t = datetime.datetime.fromtimestamp(at, datetime.UTC)
    return f"{t:%a} {t.day} {t:%B %H:%M} UTC"


def format_hour_end(hour: int) -> str:
    """Format the end of an hour, given in hours since 1970; the end of a day is written as 24:00."""
    t = to_datetime(hour)
    return f"{t:%a} {t.day} {t:%B} {t.hour + 1:02}:00 UTC"


def format_day(hour: int) -> str:
    """Format the UTC day of an hour, given in hours since 1970."""
    t = to_datetime(hour)
    return f"{t:%a} {t.day} {t:%B %Y}"


def format_span(seconds: float) -> str:
    """Format a duration, given in seconds, in its two largest units.

    Examples
    --------
    >>> [format_span(s) for s in (30, 720, 20_400, 7200, 300_000)]
    ['under a minute', '12 min', '5 h 40 min', '2 h', '3 days 11 h']
    """
    minutes = int(max(seconds, 0) // 60)
    days, hours, left = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} day{'s' if days > 1 else ''}" + (f" {hours} h" if hours else "")
    if hours:
        return f"{hours} h" + (f" {left} min" if left else "")
    return f"{left} min" if left else "under a minute"
