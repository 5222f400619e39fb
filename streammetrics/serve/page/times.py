"""Times and spans as people read them."""

from __future__ import annotations

import datetime

from ..store.part_keys import HOUR

__all__ = ["ago", "day", "end_of", "moment", "when"]


def when(hour: int) -> datetime.datetime:
    """Return the beginning of an hour."""
    return datetime.datetime.fromtimestamp(hour * HOUR, datetime.UTC)


def moment(at: float) -> str:
    """Return a time to the minute.

    Examples
    --------
    >>> moment(1780358400.0), end_of(494543), day(494543)
    ('Tue 2 June 00:00 UTC', 'Mon 1 June 24:00 UTC', 'Mon 1 June 2026')
    """
    t = datetime.datetime.fromtimestamp(at, datetime.UTC)
    return f"{t:%a} {t.day} {t:%B %H:%M} UTC"


def end_of(hour: int) -> str:
    """Return the end of an hour; that of a day is 24:00."""
    t = when(hour)
    return f"{t:%a} {t.day} {t:%B} {t.hour + 1:02}:00 UTC"


def day(hour: int) -> str:
    """Return the day of an hour."""
    t = when(hour)
    return f"{t:%a} {t.day} {t:%B %Y}"


def ago(seconds: float) -> str:
    """Return a span in the two units that matter.

    Examples
    --------
    >>> [ago(s) for s in (30, 720, 20_400, 7200, 300_000)]
    ['under a minute', '12 min', '5 h 40 min', '2 h', '3 days 11 h']
    """
    minutes = int(max(seconds, 0) // 60)
    days, hours, left = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} day{'s' if days > 1 else ''}" + (f" {hours} h" if hours else "")
    if hours:
        return f"{hours} h" + (f" {left} min" if left else "")
    return f"{left} min" if left else "under a minute"
