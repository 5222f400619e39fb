"""The view of a page: the arm, metric, slice column and time range that a visitor has chosen.

The view is part of the page's URL query.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import NamedTuple, Self
from urllib.parse import urlencode

from ...errors import InvalidInputError
from ..calendar_days import find_first_hour, find_next_day, to_datetime
from ..part_keys import format_hour, parse_hour

__all__ = ["View"]


class View(NamedTuple):
    """A visitor's choices on a page. The page replaces empty choices with defaults.

    Parameters
    ----------
    arm, metric, slice : str
        The treatment, the metric and the slice column.
    since, until : int or None
        The first and the last hour (inclusive) of the charts over time, in hours since 1970; None for no limit.
    by : str
        The length of the windows: "hour" or "day".
    timezone : str
        The time zone that defines days.
    """

    arm: str = ""
    metric: str = ""
    slice: str = ""
    since: int | None = None
    until: int | None = None
    by: str = "day"
    timezone: str = "UTC"

    @classmethod
    def from_query(cls, query: Mapping[str, str], timezone: str = "UTC") -> Self:
        """Read a view from a URL query. Dates in the query are days in the time zone.

        Invalid values are ignored, so that every link shows a page.

        Examples
        --------
        >>> View.from_query({"arm": "b", "from": "2026-06-01", "by": "hour"}).to_query(arm="c")
        'arm=c&from=2026-06-01T00&by=hour'
        """
        by = "hour" if query.get("by") == "hour" else "day"
        since, until = (_parse_hours(query.get(name, ""), timezone) for name in ("from", "to"))
        first, last = None if since is None else since[0], None if until is None else until[-1]
        return cls(
            query.get("arm", ""), query.get("metric", ""), query.get("slice", ""), first, last, by, timezone
        )  # fmt: skip

    def to_query(self, **changes: str) -> str:
        """Return the view, with the given changes, as a URL query."""
        new = self._replace(**changes)  # type: ignore[arg-type]
        fields = {"arm": new.arm, "metric": new.metric, "slice": new.slice}
        fields |= {
            "from": _format_hour(new.since),
            "to": _format_hour(new.until),
            "by": new.by if new.by != "day" else "",
        }
        return urlencode({name: value for name, value in fields.items() if value})

    def form_fields(self) -> list[tuple[str, str]]:
        """Return the hidden fields of the form that changes the time range, as pairs of a name and a value."""
        fields = {
            "arm": self.arm,
            "metric": self.metric,
            "slice": self.slice,
            "by": self.by if self.by != "day" else "",
        }
        return [(name, value) for name, value in fields.items() if value]

    @property
    def days(self) -> tuple[str, str]:
        """The first and the last day of the time range, in the format of HTML date inputs."""
        first, last = (
            "" if hour is None else to_datetime(hour, self.timezone).date().isoformat()
            for hour in (self.since, self.until)
        )
        return first, last

    def contains(self, hour: int) -> bool:
        """Return whether an hour is in the time range."""
        return (self.since is None or hour >= self.since) and (self.until is None or hour <= self.until)


def _parse_hours(text: str, timezone: str) -> range | None:
    """Return the hours of a date, such as 2026-06-01, or one hour, such as 2026-06-01T09; None if `text` is invalid."""
    try:
        if "T" in text:
            hour = parse_hour(text)
            return range(hour, hour + 1)
        first = find_first_hour(datetime.date.fromisoformat(text), timezone)
        return range(first, find_next_day(first, timezone))
    # If the time in a link is invalid, the page shows the whole time range rather than an error.
    except (InvalidInputError, ValueError, OverflowError):
        return None


def _format_hour(hour: int | None) -> str:
    return "" if hour is None else format_hour(hour)
