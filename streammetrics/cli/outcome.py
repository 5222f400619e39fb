"""Results that are no results: no row met the conditions, or no label is the positive one."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.collect.metric import dropped_of
from streammetrics.reports.records import contents, unsharded

__all__ = ["check_outcome"]

_SHOWN = 10
_MOST_LABELS = 1000


def check_outcome(overall: Any, log: Any, filters: Iterable[Any] = ()) -> list[str]:
    """Raise where a task has counted nothing that it was asked for.

    Parameters
    ----------
    overall : MetricCollection or Sharded
        The metrics of all rows.
    log : Log
        What was counted; the values of a column are read once more where they explain what is wrong.
    filters : iterable of Filter
        The conditions on rows.

    Returns
    -------
    list of str
        What there is to say of tasks that counted no row while others did.

    Raises
    ------
    UsageError
        No task has a row that meets its conditions; or no row has the label that `--pos-label` names.
    """
    columns = {one.name: [c.column for c in one.conditions if c.sign in ("=", "!=")] for one in filters}
    counted = [(content.binding, content.states[0]) for content in contents(unsharded(overall)).values()]
    known = [(binding, state.facts(), dropped_of(state).get("where", 0)) for binding, state in counted]
    known = [(binding, facts, left_out) for binding, facts, left_out in known if "rows" in facts]
    none = {binding.where: n for binding, facts, n in known if not facts["rows"] and n and binding.where is not None}
    messages = [_no_rows(where, rows, log, columns.get(where, ())) for where, rows in none.items()]
    if messages and not any(facts["rows"] for _, facts, _ in known):
        raise UsageError(messages[0])
    for binding, facts, _ in known:
        if binding.pos_label is not None and facts["rows"] and facts.get("positives") == 0:
            _check_label(binding.column("y_true"), binding.pos_label, log)
    return messages


def _no_rows(where: str, rows: int, log: Any, columns: Iterable[str]) -> str:
    said = f"no row of {rows:,} meets --where {where}"
    found = [f"{column} holds {shown}" for column in columns if (shown := _shown(_values(log, column)))]
    return "; ".join([said, *found])


def _check_label(column: str, positive: Any, log: Any) -> None:
    """Raise unless the label is in the log, so that conditions or metrics left its rows out."""
    found = _values(log, column)
    if str(positive) in found:
        return
    close = difflib.get_close_matches(str(positive).lower(), {str(v).lower(): v for v in found}, 1)
    nearest = next((v for v in found if close and v.lower() == close[0]), None)
    hint = f"; did you mean --pos-label {nearest}?" if nearest is not None else ""
    holds = f"; {column} holds {_shown(found)}" if found else ""
    raise UsageError(f"--pos-label {positive}: no row has this label{holds}{hint}")


def _values(log: Any, column: str) -> Counter[str]:
    """Return the values of a column, as far as it can be read again, and in how many rows each occurs."""
    found: Counter[str] = Counter()
    if log.once:
        return found
    for part in log.parts([], [column]):
        for batch in part.batches():
            counts = batch.column(0).value_counts().to_pylist()
            found.update({str(one["values"]): one["counts"] for one in counts if one["values"] is not None})
        if len(found) > _MOST_LABELS:
            break
    return found


def _shown(found: Counter[str]) -> str:
    some = [f"{value} ({n:,} row{'s' if n > 1 else ''})" for value, n in found.most_common(_SHOWN)]
    more = f" and {len(found) - _SHOWN:,} others" if len(found) > _SHOWN else ""
    return ", ".join(some) + more
