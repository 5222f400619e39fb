"""Checks that a task counted rows and found the positive label."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.reading.records import dropped_of
from streammetrics.reports.records import collect_entries, remove_shards

__all__ = ["check_outcome"]

_MAX_LISTED_VALUES = 10
_MAX_COUNTED_VALUES = 1000
_MIN_SIMILARITY = 0.8

Labels = Mapping[tuple[str, Any], Any]
"""Positive labels as the user typed them. Each key is a label column and the label converted to that column's type."""


def check_outcome(overall: Any, log: Any, filters: Iterable[Any] = (), spellings: Labels | None = None) -> list[str]:
    """Raise UsageError if no row meets `--where`, or if `--pos-label` seems to be misspelled.

    Parameters
    ----------
    overall : MetricCollection or Sharded
        The metrics of all rows.
    log : Log
        The log. To explain an error, this function may reread one of its columns.
    filters : iterable of Filter
        The conditions on rows.
    spellings : mapping of (str, value) to value, optional
        Positive labels as the user typed them. Each key consists of the label column and the label converted to that
        column's type.

    Returns
    -------
    list of str
        Messages about tasks that counted no row while others did, and about positive labels that no row has.

    Raises
    ------
    UsageError
        No task has a row that meets its conditions; or no row has the label in `--pos-label`, but some have a label
        with a similar spelling. If there is no similar label, the function returns a message instead, because a short
        log may have no positives.
    """
    columns = {one.name: [c.column for c in one.conditions if c.sign in ("=", "!=")] for one in filters}
    statistics = [(content.binding, content.states[0]) for content in collect_entries(remove_shards(overall)).values()]
    counts = [(binding, state.facts(), dropped_of(state).get("where", 0)) for binding, state in statistics]
    counts = [(binding, facts, left_out) for binding, facts, left_out in counts if "rows" in facts]
    none = {binding.where: n for binding, facts, n in counts if not facts["rows"] and n and binding.where is not None}
    messages = [_describe_empty_filter(where, rows, log, columns.get(where, ())) for where, rows in none.items()]
    if messages and not any(facts["rows"] for _, facts, _ in counts):
        raise UsageError(messages[0])
    # Several metrics may have the same positive label. The keys of a dict are unique, so the log is searched only once
    # for each label.
    absent = {
        (binding.column("y_true"), binding.pos_label): None
        for binding, facts, _ in counts
        if binding.pos_label is not None and facts["rows"] and facts.get("positives") == 0
    }
    label_messages = [
        _check_label(column, label, (spellings or {}).get((column, label), label), log) for column, label in absent
    ]
    return [*messages, *(message for message in label_messages if message is not None)]


def _describe_empty_filter(condition: str, rows: int, log: Any, columns: Iterable[str]) -> str:
    message = f"none of the {rows:,} rows meets --where {condition}"
    values = [
        f"column {column!r} contains {listed}"
        for column in columns
        if (listed := _format_counts(_count_values(log, column)))
    ]
    return "; ".join([message, *values])


def _check_label(column: str, positive: Any, spelling: Any, log: Any) -> str | None:
    """Return a message if no row of the log has the positive label.

    If no row has it but another label has a similar spelling, raise UsageError, unless the column has too many values
    to compare. Return None if a row has the label: in that case, a condition or the metric left out all rows with this
    label. Also return None if the log cannot be read again. `spelling` is the label as the user typed it.
    """
    if log.is_stream:
        return None
    values: Counter[Any] = Counter()
    for part in log.parts([column]):
        for batch in part.batches():
            counts = _count_batch(batch)
            if any(value == positive for value in counts):
                return None
            values.update(counts)
            if len(values) > _MAX_COUNTED_VALUES:
                return f"--pos-label {spelling}: no counted row has this label"
    holds = f"; column {column!r} contains {_format_counts(values)}" if values else ""
    message = f"--pos-label {spelling}: no row has this label{holds}"
    similar = _find_similar(positive, [value for value in values if isinstance(value, str)])
    if similar is not None:
        raise UsageError(f"{message}; did you mean --pos-label {similar}?")
    return message


def _find_similar(label: Any, others: Iterable[str]) -> str | None:
    """Return the label among `others` that the user probably meant: it differs only in case or in a few letters.

    A label with different digits (class_1 for class_0) or a different first letter (atypical for typical) is not a
    misspelling. Return None if there is no similar label.
    """
    if not isinstance(label, str):
        return None
    key = _similarity_key(label)
    candidates = {v.strip().lower(): v for v in others if _similarity_key(v) == key}
    close = difflib.get_close_matches(label.strip().lower(), candidates, 1, _MIN_SIMILARITY)
    return candidates[close[0]] if close else None


def _similarity_key(label: str) -> tuple[str, list[str]]:
    return label.strip().lower()[:1], re.findall(r"\d", label)


def _count_values(log: Any, column: str) -> Counter[Any]:
    """Return the number of rows with each value of a column.

    The result is empty if the log cannot be read a second time, or if there are too many values.
    """
    values: Counter[Any] = Counter()
    if log.is_stream:
        return values
    for part in log.parts([], [column]):
        for batch in part.batches():
            values.update(_count_batch(batch))
            if len(values) > _MAX_COUNTED_VALUES:
                return Counter()
    return values


def _count_batch(batch: Any) -> dict[Any, int]:
    """Count the rows with each value in a one-column batch."""
    counts = batch.column(0).value_counts().to_pylist()
    return {one["values"]: one["counts"] for one in counts if one["values"] is not None}


def _format_counts(counts: Counter[Any]) -> str:
    listed = [f"{value} ({n:,} row{'s' if n > 1 else ''})" for value, n in counts.most_common(_MAX_LISTED_VALUES)]
    more = f" and {len(counts) - _MAX_LISTED_VALUES:,} others" if len(counts) > _MAX_LISTED_VALUES else ""
    return ", ".join(listed) + more
