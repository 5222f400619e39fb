"""What a user did wrong, in one line that speaks of options rather than of Python."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from contextvars import ContextVar

from streammetrics.errors import IncompatibleStateError, MemoryLimitError, StreamMetricsError

__all__ = ["COMMAND", "UsageError", "as_options", "explain", "nearest"]

COMMAND: ContextVar[tuple[str, ...]] = ContextVar("COMMAND", default=())
"""The words of the command that runs: what pages say they come from."""

_KEYWORD = re.compile(r"\b([a-z_]+)=\"?([\w.-]+)\"?(?= |;|,|\)|$)")
_OPTIONS = ("scale", "on_invalid", "corrects", "limit", "negative_rate", "bits")
_SAID = {
    r"give labels=\([^)]*\) to the task": "say which are positive: --pos-label VALUE",
    r"give where= to the task, a 0/1 column that selects": "give --where to select",
    # These patterns precede the general ones: they name options that the command does not have yet.
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
"""Patterns of what the library says to users of Python, and what the command line says instead."""
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
"""Arguments of `Log`, and the options that stand for them."""
_KINDS = re.compile(r"of kind (integer|string) here and (integer|string) there")


class UsageError(Exception):
    """What was asked for makes no sense; the message is one line."""


def explain(error: Exception) -> str | None:
    """Return the one line for a user's error; None for an error of ours, which is to be seen in full."""
    if isinstance(error, MemoryLimitError) and " slices " in str(error):
        return f"{str(error).partition(';')[0]}; fewer --bits make them smaller, --limit N keeps N of them"
    if isinstance(error, IncompatibleStateError) and _KINDS.search(str(error)):
        what = str(error).removesuffix("; convert one of them")
        return (
            f"{what}; keys of CSV files and partitions are text, those of Parquet have the type of their column: score "
            f"both logs with the same --type, such as --type NAME=string"
        )
    if isinstance(error, (UsageError, StreamMetricsError)):
        return as_options(str(error)).replace("\n", " ")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return f"out of memory: {error}".removesuffix(": ")
    return None


def as_options(message: str) -> str:
    """Spell keyword arguments as options: on_invalid="drop" becomes --on-invalid drop."""

    def spell(match: re.Match[str]) -> str:
        name, value = match.groups()
        return f"--{name.replace('_', '-')} {value}" if name in _OPTIONS else match[0]

    for said, instead in _SAID.items():
        message = re.sub(said, instead, message)
    for pattern, option in _LOG_OPTIONS:
        message = pattern.sub(option, message)
    return _KEYWORD.sub(spell, message)


def nearest(what: str, given: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown name: the nearest one, or all there are."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(given.lower(), names, 1)
    hint = f"did you mean {names[close[0]]!r}?" if close else f"there are {', '.join(names.values())}"
    return UsageError(f"there is no {what} {given!r}; {hint}")
