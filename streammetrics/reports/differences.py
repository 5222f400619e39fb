"""Differences as tables for people: of all rows metric by metric, then by slice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..inference.comparison import Comparisons
from ..inference.interpretation import BOUND
from ..inference.number_format import digits, p_text
from ..numerics.keys import shown
from ..reading.interval import Interval
from ..reading.table import Table, show
from .text_table import Cell, Grid

__all__ = ["NumberChange", "by_key", "changes_of_card", "changes_of_models", "differences", "scorecard"]

REASONS = 3  # that a table of slices tells
SHOWN = "bold"
PLAIN = {"better": SHOWN, "worse": SHOWN, "breached": SHOWN, "held": SHOWN}


class NumberChange(NamedTuple):
    """How one number of one slice differs from that of the control.

    Parameters
    ----------
    key : tuple
        Of the slice.
    treatment, metric, role : str
        Whose number it is, which, and what it decides.
    before, after : float
        Of the control, and of the treatment.
    change : Interval
        Of the difference, or of the relative one.
    percent : bool
        Whether it is relative.
    relative : Interval or None
        The relative one beside a plain one.
    p : float
        Its p-value, adjusted if that was asked for.
    word : str
        What it says: "better", "worse", "held", "breached", "too few", or nothing.
    reason : str or None
        Why there is no interval.
    """

    key: tuple[Any, ...]
    treatment: str
    metric: str
    role: str
    before: float
    after: float
    change: Interval
    percent: bool
    relative: Interval | None
    p: float
    word: str
    reason: str | None


def changes_of_models(treatment: str, found: Comparisons) -> list[NumberChange]:
    """Return the changes of comparisons, the treatment being their first side."""
    made = []
    for one in found.values():
        word = "too few" if one.reason else {"a": "better", "b": "worse"}.get(one.better or "", "")
        if not word and one.limited_by == BOUND:
            word = f"within the bound: {one.cure}"
        about = one.difference, False, one.relative, one.adjusted, word, one.reason
        made.append(NumberChange(one.keys, treatment, one.name, "", one.b, one.a, *about))
    return made


def changes_of_card(table: Table) -> list[NumberChange]:
    """Return the changes of a scorecard's table; what only one arm has is left out."""
    made = []
    for row in table:
        if not row["role"]:
            continue
        change = Interval(row["low"], row["high"], row["change"], math.nan, "", "", 0.0, row["reason"])
        one = NumberChange(
            key=tuple(row[name] for name in table.by),
            treatment=str(row["treatment"]),
            metric=row["metric"],
            role=row["role"],
            before=row["control_value"],
            after=row["value"],
            change=change,
            percent=row["relative"],
            relative=None,
            p=row["adjusted"],
            word=row["word"],
            reason=row["reason"],
        )
        made.append(one)
    return made


def differences(found: Sequence[NumberChange], control: str, share: str) -> Grid:
    """Return a table of the differences between two models: metrics down."""
    treatment = found[0].treatment if found else ""
    heads = ["metric", control, treatment, "difference", share, "relative", share, "p", ""]
    rows: list[list[Cell] | None] = []
    for one in filter(_can_differ, found):
        relative = one.relative or one.change
        rows.append(
            [
                Cell(one.metric),
                *_values(one),
                *_interval(one.change, False, one.word),
                *_interval(relative, True, one.word),
                Cell(p_text(one.p)),
                Cell(one.word),
            ]
        )
    return Grid(f"{treatment} against {control}", heads, rows, remarks=_reasons(found))


def scorecard(found: Sequence[NumberChange], control: str, share: str) -> Grid:
    """Return a table of the figures behind a verdict: metrics down, first the one that decides."""
    several = len({one.treatment for one in found}) > 1
    heads = [*(["treatment"] if several else []), "metric", "role", control, "value", "change", share, "p", ""]
    rows: list[list[Cell] | None] = []
    for one in found:
        named = [Cell(one.treatment)] if several else []
        cells = [*_values(one), *_interval(one.change, one.percent, one.word), Cell(p_text(one.p)), Cell(one.word)]
        rows.append([*named, Cell(one.metric), Cell(one.role), *cells])
    if not several and found:
        heads[heads.index("value")] = found[0].treatment
    left = 2 + several
    title = "change" if several else f"{found[0].treatment} against {control}" if found else ""
    return Grid(title, heads, rows, left, left, _reasons(found))


def by_key(
    found: Sequence[NumberChange], by: Sequence[str], rows_of: Mapping[tuple[Any, ...], int], title: str, share: str
) -> Grid:
    """Return a table of differences by slice (down) and metric (across), of the slices given and in their order."""
    several = len({one.treatment for one in found}) > 1
    groups: dict[tuple[Any, ...], dict[str, NumberChange]] = {}
    for one in found:
        groups.setdefault((one.key, one.treatment), {})[one.metric] = one
    metrics = list(dict.fromkeys(one.metric for one in found if _can_differ(one)))
    treatments = dict.fromkeys(one.treatment for one in found)
    rows: list[list[Cell] | None] = []
    for key, count in rows_of.items():
        for treatment in treatments:
            changes = groups.get((key, treatment))
            if changes is None:
                continue
            names = [Cell(shown(k)) for k in key] + ([Cell(treatment)] if several else [])
            rows.append([*names, Cell(f"{count:,}"), *(_change(changes.get(m)) for m in metrics)])
    lead = len(by) + several
    heads = [*by, *(["treatment"] if several else []), "rows", *metrics]
    told = [one for one in found if one.key in rows_of]
    remarks = [
        f"differences with {share} intervals; better and worse after Benjamini and Hochberg over all of the table",
        *_reasons(told)[:REASONS],
    ]
    return Grid(title, heads, rows, lead, lead, remarks)


def _can_differ(one: NumberChange) -> bool:
    """Whether it says anything of the sides: the labels of two models of one log are the same."""
    return one.before != one.after or (one.reason is None and not one.change.low == one.change.high == 0.0)


def _values(one: NumberChange) -> list[Cell]:
    decimals = 4 if one.percent else digits(one.change, False).decimals
    return [
        Cell(f"{v:.{decimals}f}" if math.isfinite(v) and abs(v) < 1e6 else show(v)) for v in (one.before, one.after)
    ]


def _interval(found: Interval, percent: bool, word: str) -> list[Cell]:
    """A difference, and its interval."""
    write = digits(found, percent)
    some = math.isfinite(found.low) and math.isfinite(found.high)
    between = f"{write(found.low)} to {write(found.high)}" if some else ""
    estimate = write(found.estimate) if math.isfinite(found.estimate) else ""
    return [Cell(estimate, style=PLAIN.get(word, "")), Cell(between)]


def _change(one: NumberChange | None) -> Cell:
    if one is None:
        return Cell("")
    value, between = _interval(one.change, one.percent, one.word)
    word = one.word if one.word in (*PLAIN, "too few") else ""
    return Cell(value.text, " ".join(filter(None, [between.text, word])), value.style)


def _reasons(found: Iterable[NumberChange]) -> list[str]:
    """Say why there are no intervals: each reason once, with whose it is."""
    why: dict[str, list[str]] = {}
    for one in found:
        if one.reason:
            names = why.setdefault(one.reason, [])
            names += [] if one.metric in names else [one.metric]
    return [f"no interval of {', '.join(names)}: {reason}" for reason, names in why.items()]
