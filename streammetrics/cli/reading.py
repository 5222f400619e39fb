"""How a log is read: from options to the arguments of `Log`."""

from __future__ import annotations

import csv
from collections.abc import Collection, Sequence
from typing import Any

from streammetrics.cli.messages import UsageError

__all__ = ["key_columns", "log_arguments"]


def key_columns(text: str, known: Collection[str] = ()) -> tuple[str, ...]:
    """Read `country,device` as two columns, unless a column is called so; quotation marks enclose a name with a comma."""
    if text in known:
        return (text,)
    return tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))


def log_arguments(
    *,
    types: Sequence[str] = (),
    delimiter: str | None = None,
    nulls: Sequence[str] = (),
    quotes: bool = True,
    columns: str | None = None,
    missing_columns: str | None = None,
) -> dict[str, Any]:
    """Return the arguments of `Log` that the options set.

    The function leaves all others out, so that the log can refuse options that do not fit its format.

    Raises
    ------
    UsageError
        An option is not spelled as it should be.
    """
    made: dict[str, Any] = {}
    if types:
        made["types"] = _types(types)
    if delimiter is not None:
        made["delimiter"] = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
    if nulls:
        from streammetrics.io.text import DEFAULT_NULLS  # which loads pyarrow

        made["nulls"] = [*DEFAULT_NULLS, *_words(nulls)]
    if not quotes:
        made["quotes"] = False
    if columns is not None:
        made["names"] = _words([columns])
    if missing_columns is not None:
        made["missing_columns"] = missing_columns
    return made


def _types(given: Sequence[str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for one in given:
        name, equals, kind = one.rpartition("=")
        if not (equals and name and kind):
            raise UsageError(f"--type is NAME=TYPE, such as user_id=int or zip=string, not {one!r}")
        if made.setdefault(name, kind) != kind:
            raise UsageError(f"--type {name}: expected one type, found {made[name]} and {kind}")
    return made


def _words(given: Sequence[str]) -> list[str]:
    return [word for one in given for word in key_columns(one)]
