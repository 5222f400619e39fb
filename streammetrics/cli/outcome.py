"""Checks that a task counted rows and found the positive label."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.reading.records import dropped_of
from streammetrics.reports.records import contents, unsharded

__all__ = ["check_outcome"]

_SHOWN = 10
_MOST_VALUES = 1000
_SIMILAR = 0.8

Labels = Mapping[tuple[str, Any], Any]
"""Positive labels as the user typed them, by the column and the value that metrics compare with."""


def check_outcome(overall: Any, log: Any, filters: Iterable[Any] = (), spellings: Labels | None = None) -> list[str]:
    """Raise UsageError if no row meets `--where`, or if `--pos-label` seems to be misspelled.

    Parameters
    ----------
    overall : MetricCollection or Sharded
        The metrics of all rows.
    log : Log
        The log. The function reads a column of it again if its values explain the error.
    filters : iterable of Filter
        The conditions on rows.
    spellings : mapping of (str, value) to value, optional
        Positive labels as the user typed them, by the column and the value that metrics compare with.

    Returns
    -------
    list of str
        Messages about tasks that counted no row while others did, and about positive labels that no row has.

    Raises
    ------
    UsageError
        No task has a row that meets its conditions; or no row has the label that `--pos-label` names, and another label
        is spelled almost alike. Without such a label the hour may simply have no positives.
    """
    columns = {one.name: [c.column for c in one.conditions if c.sign in ("=", "!=")] for one in filters}
    counted = [(content.binding, content.states[0]) for content in contents(unsharded(overall)).values()]
    known = [(binding, state.facts(), dropped_of(state).get("where", 0)) for binding, state in counted]
    known = [(binding, facts, left_out) for binding, facts, left_out in known if "rows" in facts]
    none = {binding.where: n for binding, facts, n in known if not facts["rows"] and n and binding.where is not None}
    messages = [_no_rows(where, rows, log, columns.get(where, ())) for where, rows in none.items()]
    if messages and not any(facts["rows"] for _, facts, _ in known):
        raise UsageError(messages[0])
    # Several metrics share a label, which is looked up once.
    absent = {
        (binding.column("y_true"), binding.pos_label): None
        for binding, facts, _ in known
        if binding.pos_label is not None and facts["rows"] and facts.get("positives") == 0
    }
    found = [
        _check_label(column, label, (spellings or {}).get((column, label), label), log) for column, label in absent
    ]
    return [*messages, *(message for message in found if message is not None)]


def _no_rows(where: str, rows: int, log: Any, columns: Iterable[str]) -> str:
    said = f"no row of {rows:,} meets --where {where}"
    found = [f"{column} holds {shown}" for column in columns if (shown := _shown(_count_values(log, column)))]
    return "; ".join([said, *found])


def _check_label(column: str, positive: Any, spelling: Any, log: Any) -> str | None:
    """Return a message if no row of the log has the label; raise UsageError if another label is spelled almost alike.

    A label that the log has is in rows that conditions or metrics leave out.
    """
    if log.once:
        return None
    found: Counter[Any] = Counter()
    for part in log.parts([column]):
        for batch in part.batches():
            counts = _counts(batch)
            if any(value == positive for value in counts):
                return None
            found.update(counts)
            if len(found) > _MOST_VALUES:
                return f"--pos-label {spelling}: no counted row has this label"
    holds = f"; {column} holds {_shown(found)}" if found else ""
    message = f"--pos-label {spelling}: no row has this label{holds}"
    similar = _find_similar(positive, [value for value in found if isinstance(value, str)])
    if similar is not None:
        raise UsageError(f"{message}; did you mean --pos-label {similar}?")
    return message


def _find_similar(label: Any, others: Iterable[str]) -> str | None:
    """Return a label that is probably meant: it differs in case, or in a few letters.

    Labels with other digits (class_0, class_1) or another first letter (typical, atypical) are other labels.
    """
    if not isinstance(label, str):
        return None
    key = _similarity_key(label)
    candidates = {v.strip().lower(): v for v in others if _similarity_key(v) == key}
    close = difflib.get_close_matches(label.strip().lower(), candidates, 1, _SIMILAR)
    return candidates[close[0]] if close else None


def _similarity_key(label: str) -> tuple[str, list[str]]:
    return label.strip().lower()[:1], re.findall(r"\d", label)


def _count_values(log: Any, column: str) -> Counter[Any]:
    """Count the rows of each value of a column; empty if the log is read only once, or if there are too many values."""
    found: Counter[Any] = Counter()
    if log.once:
        return found
    for part in log.parts([], [column]):
        for batch in part.batches():
            found.update(_counts(batch))
            if len(found) > _MOST_VALUES:
                return Counter()
    return found


def _counts(batch: Any) -> dict[Any, int]:
    """Count the rows of each value of a batch of one column."""
    counts = batch.column(0).value_counts().to_pylist()
    return {one["values"]: one["counts"] for one in counts if one["values"] is not None}


def _shown(found: Counter[Any]) -> str:
    some = [f"{value} ({n:,} row{'s' if n > 1 else ''})" for value, n in found.most_common(_SHOWN)]
    more = f" and {len(found) - _SHOWN:,} others" if len(found) > _SHOWN else ""
    return ", ".join(some) + more
