"""The view of a page: the arm, metric, slice and time range that it shows, as the query of its URL has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self
from urllib.parse import urlencode

from ...errors import InvalidInputError
from ..store.part_keys import format_hour, parse_hour

__all__ = ["View"]


class View(NamedTuple):
    """The choices of a page; the page chooses defaults for empty ones.

    Parameters
    ----------
    arm, metric, slice : str
        The treatment, the metric and the slice column.
    since, until : int or None
        The first and the last hour of the charts over time.
    by : str
        The length of windows: "hour" or "day".
    """

    arm: str = ""
    metric: str = ""
    slice: str = ""
    since: int | None = None
    until: int | None = None
    by: str = "day"

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Self:
        """Return the view of a query; invalid values are ignored, so that no link fails.

        Examples
        --------
        >>> View.from_query({"arm": "b", "from": "2026-06-01", "by": "hour"}).to_query(arm="c")
        'arm=c&from=2026-06-01T00&by=hour'
        """
        by = "hour" if query.get("by") == "hour" else "day"
        since, until = _parse_hour(query.get("from", "")), _parse_hour(query.get("to", ""), last=True)
        return cls(query.get("arm", ""), query.get("metric", ""), query.get("slice", ""), since, until, by)

    def to_query(self, **changes: str) -> str:
        """Return the view with some changes as the query of a URL."""
        new = self._replace(**changes)  # type: ignore[arg-type]
        fields = {"arm": new.arm, "metric": new.metric, "slice": new.slice}
        fields |= {
            "from": _format_hour(new.since),
            "to": _format_hour(new.until),
            "by": new.by if new.by != "day" else "",
        }
        return urlencode({name: value for name, value in fields.items() if value})

    def form_fields(self) -> list[tuple[str, str]]:
        """Return the hidden fields of the form that asks for another time range."""
        fields = {
            "arm": self.arm,
            "metric": self.metric,
            "slice": self.slice,
            "by": self.by if self.by != "day" else "",
        }
        return [(name, value) for name, value in fields.items() if value]

    @property
    def days(self) -> tuple[str, str]:
        """The first and the last day, as values of date inputs."""
        return _format_hour(self.since)[:10], _format_hour(self.until)[:10]

    def contains(self, hour: int) -> bool:
        """Return whether an hour is in the time range."""
        return (self.since is None or hour >= self.since) and (self.until is None or hour <= self.until)


def _parse_hour(text: str, *, last: bool = False) -> int | None:
    """Parse an hour, or a date as its first or last hour, in hours since 1970; return None for an invalid string."""
    try:
        return parse_hour(text if "T" in text else f"{text}T{'23' if last else '00'}") if text else None
    except InvalidInputError:  # With a damaged link, the page shows the whole time range.
        return None


def _format_hour(hour: int | None) -> str:
    return "" if hour is None else format_hour(hour)
