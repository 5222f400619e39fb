"""The key of a part (the posted metrics of one source in one hour). This module also parses and formats hours."""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple

from ..errors import InvalidInputError

__all__ = ["HOUR", "PartKey", "PostedPart", "RowCounts", "format_hour", "parse_hour", "parse_key"]

HOUR = 3600
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""The pattern of experiment IDs and source names. Matching names are safe in paths, URLs and Prometheus labels."""


class PartKey(NamedTuple):
    """The identity of a part (metrics of one source and hour). A retry uses the same key, so a part counts only once.

    Parameters
    ----------
    experiment, source : str
        The ID of the experiment, and the name of the worker that counted the rows.
    hour : int
        The hour of the rows according to the sender's clock, in hours since 1970 (UTC).
    seq : int
        The number of the part, if a source posts several parts per hour.
    """

    experiment: str
    source: str
    hour: int
    seq: int = 0

    @property
    def text(self) -> str:
        """The key as a string, for messages and paths, such as new-rank/2026-06-01T09/job-0."""
        return f"{self.experiment}/{format_hour(self.hour)}/{self.source}-{self.seq}"


class RowCounts(NamedTuple):
    """The number of counted rows in a part, and a JSON object with the number of dropped rows for each reason."""

    rows: int = 0
    dropped: str = "{}"


class PostedPart(NamedTuple):
    """A posted part, as the store receives it: the serialized metrics of one source in one hour, and their key.

    Parameters
    ----------
    key : PartKey
        The key of the part.
    data : bytes
        The frame: the serialized metrics.
    digest : str
        The digest (hash) of the metrics, in hexadecimal digits.
    received_at : float
        The time at which the part was received, according to the server's clock, in seconds since 1970.
    row_counts : RowCounts
        The numbers of counted and dropped rows.
    """

    key: PartKey
    data: bytes
    digest: str
    received_at: float
    row_counts: RowCounts = RowCounts()


def parse_key(experiment: str, source: str, hour: str | int, seq: str | int = 0) -> PartKey:
    """Return the key of a part from its fields.

    Raise InvalidInputError if a field is invalid.
    """
    for what, name in (("experiment", experiment), ("source", source)):
        if not NAME.fullmatch(name):
            raise InvalidInputError(
                f"{what}: expected at most 100 letters, digits, '.', '_' or '-', beginning with a letter or digit, "
                f"found {name!r}"
            )
    number = str(seq)
    if not re.fullmatch(r"[0-9]{1,9}", number):
        raise InvalidInputError(f"seq: expected a number from 0 to 999999999, found {seq!r}")
    return PartKey(experiment, source, parse_hour(hour), int(number))


def parse_hour(value: str | int) -> int:
    """Convert a string such as 2026-06-01T09 (UTC) to hours since 1970; return an integer unchanged.

    Examples
    --------
    >>> parse_hour("2026-06-01T09"), format_hour(494529)
    (494529, '2026-06-01T09')
    """
    if isinstance(value, int):
        return value
    try:
        when = datetime.datetime.strptime(value.removesuffix("Z"), "%Y-%m-%dT%H")
    except ValueError:
        raise InvalidInputError(f"hour: expected an hour in UTC such as 2026-06-01T09, found {value!r}") from None
    return int(when.replace(tzinfo=datetime.UTC).timestamp()) // HOUR


def format_hour(hour: int) -> str:
    """Format an hour, given in hours since 1970, as a string such as 2026-06-01T09, in UTC."""
    return datetime.datetime.fromtimestamp(hour * HOUR, datetime.UTC).strftime("%Y-%m-%dT%H")
