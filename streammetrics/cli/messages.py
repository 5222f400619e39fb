"""Error messages for users: one line each, in terms of command-line options rather than Python arguments."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from contextvars import ContextVar

from streammetrics.errors import IncompatibleStateError, MemoryLimitError, StreamMetricsError

__all__ = ["COMMAND", "UsageError", "convert_keywords", "format_user_error", "unknown_name_error"]

COMMAND: ContextVar[tuple[str, ...]] = ContextVar("COMMAND", default=())
"""The arguments of the running command. A report shows the command that wrote it."""

_KEYWORD = re.compile(r"\b([a-z_]+)=\"?([\w.-]+)\"?(?= |;|,|\)|$)")
_OPTION_KEYWORDS = ("scale", "on_invalid", "corrects", "limit", "negative_rate", "bits")
_MESSAGES = {
    r"give labels=\([^)]*\) to the task": "say which are positive: --pos-label VALUE",
    r"give where= to the task, a 0/1 column that selects": "give --where to select",
    # This pattern must precede the shorter `give num_classes=` below, which also matches the beginning of this message.
    r"give num_classes=(\d+) if there are so many classes": (
        r"if there are \1 classes, give --classes \1 and a score column for each"
    ),
    r"give labels=tuple\(range\(1, \d+\)\)": "name the classes: --classes 1,2,...",
    r"add the class to labels=, or give ignore_class=.*?out": "add the class to --classes",
    r"scores are y_score, which metrics with a threshold read": "if the column holds scores, name it with --score",
    r"give num_classes=\d+": "give --task-type multiclass",
    r"soft_labels=True, for example LogLoss\(soft_labels=True\)": "--metrics log_loss:soft_labels=true",
    r": the order is update\(y_true, y_score\)": ", see --label and --score",
    r'missing="skip" leaves out rows': "--metrics group_auc:missing=skip leaves out rows",
    r"labels=\(\.\.\.\) takes named classes": "--classes a,b,c names classes",
}
"""For each pattern in the library's error messages, which name Python arguments, a text that names options instead."""
_LOG_OPTIONS = (
    (re.compile(r"types=\{'([^']*)': '([^']*)'\}"), r"--type \1=\2"),
    (re.compile(r"types=\{\"([^\"]*)\": '([^']*)'\}"), r"--type \1=\2"),
    (re.compile(r"nulls=\[\*DEFAULT_NULLS, '([^']*)'\]"), r"--nulls '\1'"),
    (re.compile(r"missing_columns=\"null\""), "--missing-columns null"),
    (re.compile(r"\bquotes=False"), "--no-quotes"),
    (re.compile(r"\bquotes="), "--no-quotes"),
    (re.compile(r"\bdelimiter=('[^']*')"), r"--delimiter \1"),
    (re.compile(r"\bdelimiter="), "--delimiter"),
    (re.compile(r"\bnames="), "--columns"),
    (re.compile(r"\bnulls="), "--nulls"),
)
"""Patterns in error messages that name arguments of `Log`, and the equivalent command-line options."""
_KEY_KINDS = re.compile(r"of kind (integer|string) here and (integer|string) there")


class UsageError(Exception):
    """Raised for a mistake in options or files; the message is one line."""


def format_user_error(error: Exception) -> str | None:
    """Return the one-line message for an error that the user can correct; None for a bug, which needs its traceback."""
    if isinstance(error, MemoryLimitError) and " slices " in str(error):
        return f"{str(error).partition(';')[0]}; fewer --bits make them smaller, --limit N keeps N of them"
    if isinstance(error, IncompatibleStateError) and _KEY_KINDS.search(str(error)):
        what = str(error).removesuffix("; convert one of them")
        return (
            f"{what}; keys of CSV files and partitions are text, those of Parquet have the type of their column: score "
            f"both logs with the same --type, such as --type NAME=string"
        )
    if isinstance(error, (UsageError, StreamMetricsError)):
        return convert_keywords(str(error)).replace("\n", " ")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return f"out of memory: {error}".removesuffix(": ")
    return None


def convert_keywords(message: str) -> str:
    """Replace keyword arguments in a message by options: on_invalid="drop" becomes --on-invalid drop."""

    def spell(match: re.Match[str]) -> str:
        name, value = match.groups()
        return f"--{name.replace('_', '-')} {value}" if name in _OPTION_KEYWORDS else match[0]

    for library_text, instead in _MESSAGES.items():
        message = re.sub(library_text, instead, message)
    for pattern, option in _LOG_OPTIONS:
        message = pattern.sub(option, message)
    return _KEYWORD.sub(spell, message)


def unknown_name_error(what: str, name: str, names: Iterable[str]) -> UsageError:
    """Return the error for an unknown name, with the most similar name or all known names."""
    by_lower = {one.lower(): one for one in names}
    close = difflib.get_close_matches(name.lower(), by_lower, 1)
    hint = f"did you mean {by_lower[close[0]]!r}?" if close else f"there are {', '.join(by_lower.values())}"
    return UsageError(f"there is no {what} {name!r}; {hint}")
