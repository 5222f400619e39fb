"""Convert the command-line options for reading a log to arguments of `Log`."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from streammetrics.cli.messages import UsageError, convert_keywords

__all__ = ["build_log_arguments", "missing_label_error", "split_columns"]


def split_columns(text: str, columns: Collection[str] = ()) -> tuple[str, ...]:
    """Split a list of column names, such as `country,device`, at its commas.

    If `columns` contains `country,device` itself, the text is not split. A name with a comma may also be quoted.
    """
    if text in columns:
        return (text,)
    return tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))


def build_log_arguments(
    *,
    types: Sequence[str] = (),
    delimiter: str | None = None,
    nulls: Sequence[str] = (),
    quotes: bool = True,
    columns: str | None = None,
    missing_columns: str | None = None,
) -> dict[str, Any]:
    """Return the arguments of `Log` for the options that are set.

    Arguments for other options are omitted, because `Log` raises an error for an argument that does not apply to the
    format of the log.

    Raises
    ------
    UsageError
        The value of an option is malformed.
    """
    arguments: dict[str, Any] = {}
    if types:
        arguments["types"] = _parse_types(types)
    if delimiter is not None:
        arguments["delimiter"] = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
    if nulls:
        # This import loads pyarrow, which is slow, so run it only if it is needed.
        from streammetrics.io.text import DEFAULT_NULLS

        arguments["nulls"] = [*DEFAULT_NULLS, *_split_all(nulls)]
    if not quotes:
        arguments["quotes"] = False
    if columns is not None:
        arguments["names"] = _split_all([columns])
    if missing_columns is not None:
        arguments["missing_columns"] = missing_columns
    return arguments


def _parse_types(texts: Sequence[str]) -> dict[str, str]:
    types: dict[str, str] = {}
    for one in texts:
        name, equals, kind = one.rpartition("=")
        if not (equals and name and kind):
            raise UsageError(f"--type: expected NAME=TYPE, such as user_id=int or zip=string, found {one!r}")
        if types.setdefault(name, kind) != kind:
            raise UsageError(f"--type {name}: expected one type, found {types[name]} and {kind}; remove one of them")
    return types


def _split_all(texts: Sequence[str]) -> list[str]:
    return [word for one in texts for word in split_columns(one)]


def missing_label_error(paths: Sequence[str], reading: Mapping[str, Any]) -> UsageError:
    """Return the error for a missing --label or --value. Its message lists the columns of the log.

    `reading` contains the arguments of `Log` other than the paths.
    """
    from streammetrics.io.logs import Log, format_names

    log = Log(paths, **reading)
    hint = f"; {log.suggest_delimiter()}" if log.suggest_delimiter() else ""
    return UsageError(
        f"expected a column of labels; name it with --label, or a column of values for metrics such as mean with --value, "
        f"or use --task FILE.toml; the columns are: {convert_keywords(format_names(log.columns) + hint)}"
    )
