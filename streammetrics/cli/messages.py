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
    r"pass labels=\([^)]*\) to Task": "name the positive label with --pos-label VALUE",
    r"pass where= to Task, the name of a 0/1 column that selects": "use --where to select",
    # This pattern must precede the shorter `pass num_classes=` below, which also matches the start of this message.
    r"pass num_classes=(\d+) if there are [\d,]+ classes": (
        r"if there are \1 classes, use --classes \1 and a score column for each class"
    ),
    r"pass labels=tuple\(range\(1, \d+\)\)": "name the classes: --classes 1,2,...",
    r"add the class to labels=, or pass ignore_class= to leave out the rows of the class": "add the class to --classes",
    r"pass scores as y_score to a metric that has a threshold": "if the column holds scores, name it with --score",
    r"pass num_classes=\d+": "use --task-type multiclass",
    r"\bcovariates=": "--covariate",
    r"soft_labels=True, for example LogLoss\(soft_labels=True\)": "--metrics log_loss:soft_labels=true",
    r": the order is update\(y_true, y_score\)": "; check --label and --score",
    r'missing="skip" leaves out rows': "--metrics group_auc:missing=skip leaves out rows",
    r"pass labels=\(\.\.\.\)": "pass --classes a,b,c",
    r"pass pos_label= to Task, as in [^;]*": "name the positive label with --pos-label VALUE",
    r", or pass lists of documents to sm\.ranked_lists\(ranked, relevant\)": "",
}
"""Patterns in error messages that name Python arguments, and replacements that name command-line options."""
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
        what = str(error).partition(";")[0].replace("memory_limit", "memory limit")
        return f"{what}; set a lower --bits for smaller slices, or keep N slices with --limit N"
    if isinstance(error, IncompatibleStateError) and _KEY_KINDS.search(str(error)):
        what = str(error).removesuffix("; convert the keys of one side")
        return (
            f"{what}; score both logs with the same --type, such as --type NAME=string: keys in CSV files and partition "
            f"names are text, and keys in Parquet files have the type of their column"
        )
    if isinstance(error, (UsageError, StreamMetricsError)):
        return convert_keywords(str(error)).replace("\n", " ")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return f"out of memory: {error}".removesuffix(": ")
    return None


def convert_keywords(message: str) -> str:
    """Replace keyword arguments in a message with options: on_invalid="drop" becomes --on-invalid drop."""

    def spell(match: re.Match[str]) -> str:
        name, value = match.groups()
        return f"--{name.replace('_', '-')} {value}" if name in _OPTION_KEYWORDS else match[0]

    for library_text, instead in _MESSAGES.items():
        message = re.sub(library_text, instead, message)
    for pattern, option in _LOG_OPTIONS:
        message = pattern.sub(option, message)
    return _KEYWORD.sub(spell, message)


def unknown_name_error(
    what: str, name: str, names: Iterable[str], place: str = "", list_command: str = ""
) -> UsageError:
    """Return the error for an unknown name; it suggests a similar name, the names that contain it, or all names.

    `what` says what the name stands for, such as "metric", and `place` says where it is unknown. If there are too many
    names for one message, pass the command that lists them all as `list_command`. If no name is similar to the
    unknown name or contains it, the message shows this command and, if there are at most 12, the names in which a
    word starts with the same letters as the unknown name.
    """
    by_lower = {one.lower(): one for one in names}
    close = difflib.get_close_matches(name.lower(), by_lower, 1)
    containing = [one for lower, one in by_lower.items() if name.lower() in lower]
    if close and len(containing) < 2:
        hint = f"did you mean {by_lower[close[0]]!r}?"
    elif list_command and not containing:
        part, sharing = _find_shared_beginning(name.lower(), by_lower)
        hint = f"names that contain {part!r}: {', '.join(sharing)}; " if sharing else ""
        hint += f"`{list_command}` lists all"
    else:
        hint = f"choose from {', '.join(containing or by_lower.values())}"
    return UsageError(f"there is no {what} {name!r}{place and f' in {place}'}; {hint}")


def _find_shared_beginning(name: str, names: Iterable[str]) -> tuple[str, list[str]]:
    """Return the longest prefix of `name` that starts a word in one of `names`, and all names with such a word.

    The prefix has at least two characters. The list is empty if there are no such names, or more than 12.
    """
    for length in range(len(name) - 1, 1, -1):
        part = name[:length].rstrip("_-@ ")
        if sharing := [one for one in names if f"_{part}" in f"_{one}"]:
            return part, sharing if len(sharing) <= 12 else []
    return "", []
