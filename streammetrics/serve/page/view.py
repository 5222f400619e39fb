"""What of an experiment is looked at: the state of a page, which its address carries, so that a view can be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self
from urllib.parse import urlencode

from ...errors import InvalidInputError
from ..store.part_keys import hour_of, hour_text

__all__ = ["View"]


class View(NamedTuple):
    """What is looked at; empty where the page decides.

    Parameters
    ----------
    arm, metric, slice : str
        The treatment, the metric and the slice column.
    since, until : int or None
        The first and the last hour of series.
    by : str
        "hour" or "day".
    """

    arm: str = ""
    metric: str = ""
    slice: str = ""
    since: int | None = None
    until: int | None = None
    by: str = "day"

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """Return what an address asks for; what it says wrongly is left out, so that no link fails.

        Examples
        --------
        >>> View.of({"arm": "b", "from": "2026-06-01", "by": "hour"}).query(arm="c")
        'arm=c&from=2026-06-01T00&by=hour'
        """
        by = "hour" if query.get("by") == "hour" else "day"
        since, until = _hour(query.get("from", "")), _hour(query.get("to", ""), last=True)
        return cls(query.get("arm", ""), query.get("metric", ""), query.get("slice", ""), since, until, by)

    def query(self, **changes: str) -> str:
        """Return the view, with changes, as the query of an address."""
        new = self._replace(**changes)  # type: ignore[arg-type]
        told = {"arm": new.arm, "metric": new.metric, "slice": new.slice}
        told |= {"from": _text(new.since), "to": _text(new.until), "by": new.by if new.by != "day" else ""}
        return urlencode({name: value for name, value in told.items() if value})

    def kept(self) -> list[tuple[str, str]]:
        """Return what a form that asks for another range has to carry."""
        told = {"arm": self.arm, "metric": self.metric, "slice": self.slice, "by": self.by if self.by != "day" else ""}
        return [(name, value) for name, value in told.items() if value]

    @property
    def days(self) -> tuple[str, str]:
        """The first and the last day, as a form has them."""
        return _text(self.since)[:10], _text(self.until)[:10]

    def holds(self, hour: int) -> bool:
        """Whether an hour is in what is looked at."""
        return (self.since is None or hour >= self.since) and (self.until is None or hour <= self.until)


def _hour(text: str, *, last: bool = False) -> int | None:
    """Return the hour that a text says; of a day its first, or last."""
    try:
        return hour_of(text if "T" in text else f"{text}T{'23' if last else '00'}") if text else None
    except InvalidInputError:  # a link that was cut off shows all
        return None


def _text(hour: int | None) -> str:
    return "" if hour is None else hour_text(hour)
