"""What a part of an experiment is called, and its time."""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple

from ...errors import InvalidInputError

__all__ = ["HOUR", "PartKey", "PostedPart", "RowCounts", "hour_of", "hour_text", "key_of"]

HOUR = 3600
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Of experiments and sources: what is safe in a path, a URL and a label of Prometheus."""


class PartKey(NamedTuple):
    """What a source posts once: retries have the same key.

    Parameters
    ----------
    experiment, source : str
        Whose it is, and who counted it.
    hour : int
        Of the rows, by the clock of the sender: hours since 1970, UTC.
    seq : int
        Parts of one hour are numbered.
    """

    experiment: str
    source: str
    hour: int
    seq: int = 0

    @property
    def text(self) -> str:
        """As it is written in messages and as a path."""
        return f"{self.experiment}/{hour_text(self.hour)}/{self.source}-{self.seq}"


class RowCounts(NamedTuple):
    """Rows that were counted, and those that were left out, by reason, as JSON."""

    rows: int = 0
    dropped: str = "{}"


class PostedPart(NamedTuple):
    """What was posted under a key.

    Parameters
    ----------
    key : Key
        What it is called.
    data : bytes
        The frame.
    digest : str
        Of its content, in hexadecimal digits.
    received : float
        When, in seconds since 1970, by the clock of the server.
    seen : Seen
        The rows in it.
    """

    key: PartKey
    data: bytes
    digest: str
    received: float
    seen: RowCounts = RowCounts()


def key_of(experiment: str, source: str, hour: str | int, seq: str | int = 0) -> PartKey:
    """Return the key of what a sender says; raise where it says it wrongly."""
    for what, name in (("experiment", experiment), ("source", source)):
        if not NAME.fullmatch(name):
            raise InvalidInputError(
                f"{what} must be at most 100 letters, digits, '.', '_' or '-', and begin with a letter or digit: {name!r}"
            )
    number = str(seq)
    if not re.fullmatch(r"[0-9]{1,9}", number):
        raise InvalidInputError(f"seq must be a number from 0 to 999999999, not {seq!r}")
    return PartKey(experiment, source, hour_of(hour), int(number))


def hour_of(given: str | int) -> int:
    """Return hours since 1970 of a text such as 2026-06-01T09, or of such a number.

    Examples
    --------
    >>> hour_of("2026-06-01T09"), hour_text(494529)
    (494529, '2026-06-01T09')
    """
    if isinstance(given, int):
        return given
    try:
        when = datetime.datetime.strptime(given.removesuffix("Z"), "%Y-%m-%dT%H")
    except ValueError:
        raise InvalidInputError(f"hour must be written as 2026-06-01T09, in UTC, not {given!r}") from None
    return int(when.replace(tzinfo=datetime.UTC).timestamp()) // HOUR


def hour_text(hour: int) -> str:
    """Return how an hour is written."""
    return datetime.datetime.fromtimestamp(hour * HOUR, datetime.UTC).strftime("%Y-%m-%dT%H")
