"""Values of a definition, as somebody wrote them: checked, with messages that name the key."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidInputError
from .keys import HOUR, hour_of

__all__ = ["amount", "given_hour", "listed", "named_amounts"]

FIRST, LAST = 0, 2_500_000
"""Hours since 1970 that have a name of four digits of a year."""


def amount(key: str, value: Any) -> float:
    """Return a finite number, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= sys.float_info.max:
        raise InvalidInputError(f"{key}: a number, 0 or more, not {value!r}")
    return float(value)


def named_amounts(key: str, value: Any) -> dict[str, float]:
    """Return names with such numbers."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise InvalidInputError(f"{key}: names with numbers, such as {{a = 0.5, b = 0.5}}, not {value!r}")
    return {name: amount(f"{key}.{name}", v) for name, v in value.items()}


def listed(key: str, value: Any) -> tuple[str, ...]:
    """Return a list of texts, each once."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) and v for v in value):
        raise InvalidInputError(f'{key}: a list of texts, such as ["a", "b"], not {value!r}')
    if len(set(value)) != len(value):
        raise InvalidInputError(f"{key}: a name is there twice: {', '.join(value)}")
    return tuple(value)


def given_hour(key: str, value: Any) -> int:
    """Return hours since 1970 of a number, a text such as 2026-06-01T09, or a date or time of TOML, in UTC."""
    if isinstance(value, datetime.datetime):
        when = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        value = int(when.timestamp()) // HOUR
    elif isinstance(value, datetime.date):
        value = f"{value.isoformat()}T00"
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidInputError(f"{key}: an hour, written as 2026-06-01T09, not {value!r}")
    try:
        hour = hour_of(value)
    except InvalidInputError as error:
        raise InvalidInputError(f"{key}: {error}") from None
    if not FIRST <= hour <= LAST:
        raise InvalidInputError(f"{key}: hours since 1970 are a number from {FIRST} to {LAST:,}, not {hour}")
    return hour
