"""Build text tables of differences: by metric over all rows, and by slice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..inference.comparison import Comparisons
from ..inference.interpretation import BOUND
from ..inference.number_format import choose_format, format_p_value
from ..inference.questions import Question
from ..inference.scorecard import Scorecard
from ..inference.verdict import Verdict, choose_missing_word
from ..numerics.slice_keys import format_atom
from ..reading.interval import Interval
from ..reading.table import Table, format_value
from .headline import format_limit
from .measure_rows import format_key
from .text_table import Cell, Grid

__all__ = [
    "NumberChange",
    "build_difference_grid",
    "build_scorecard_grid",
    "build_slice_grid",
    "collect_card_changes",
    "collect_model_changes",
    "describe_breach_confidence",
    "describe_joint_confidence",
    "describe_left_out",
]

# The remarks below a table of slices list at most this many reasons for missing intervals.
REASONS = 3
# A remark about a missing interval names at most this many slices.
NAMED_SLICES = 3
SHOWN = "bold"
WORD_STYLES = {"better": SHOWN, "worse": SHOWN, "breached": SHOWN, "held": SHOWN}


class NumberChange(NamedTuple):
    """The difference between treatment and control in one metric, over all rows or in one slice, for text tables.

    Parameters
    ----------
    key : tuple
        The key of the slice; empty for all rows.
    treatment, metric, role : str
        The names of the treatment and the metric, and the role of the metric, such as "guardrail".
    before, after : float
        The values of the control and of the treatment.
    change : Interval
        The interval of the difference, which is absolute or relative.
    percent : bool
        Whether `change` is relative.
    relative : Interval or None
        The interval of the relative difference, if `change` is absolute.
    p : float
        The p-value, after the multiplicity correction if there is one.
    word : str
        The conclusion, such as "better" or "worse"; "held", "breached" or "not shown" for a guardrail; "too few" for
        too little data; "too early" before the planned number of users; "withheld" after a sample ratio mismatch; or
        empty.
    reason : str or None
        The reason why there is no interval.
    limit : str
        The limit of a guardrail, such as "≥ -5 % (0.0931)"; empty for other metrics.
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
    limit: str = ""


def collect_model_changes(treatment: str, comparisons: Comparisons) -> list[NumberChange]:
    """Return a `NumberChange` for each comparison of two models; `treatment` is the name of side `a`."""
    changes = []
    for one in comparisons.values():
        word = (
            choose_missing_word(one.reason) if one.reason else {"a": "better", "b": "worse"}.get(one.better or "", "")
        )
        if not word and one.limited_by == BOUND:
            word = f"within the bound: {one.cure}"
        about = one.difference, False, one.relative, one.adjusted, word, one.reason or one.note
        changes.append(NumberChange(one.keys, treatment, one.name, "", one.b, one.a, *about))
    return changes


def collect_card_changes(card: Scorecard, table: Table) -> list[NumberChange]:
    """Return a `NumberChange` for each row of a scorecard table; slices that exist in only one arm are left out.

    The rows of `table` compare the arms over all data, or by slice.
    """
    question_of = {one.name: one for one in card.options.questions}
    changes = []
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
            word="withheld" if card.verdicts[row["treatment"]].decision == "withheld" else row["word"],
            reason=row["reason"],
            limit=_format_limit(question_of[row["metric"]], row),
        )
        changes.append(one)
    return changes


def _format_limit(question: Question, row: Mapping[str, Any]) -> str:
    """Return the limit of a guardrail as text for a terminal, with ASCII minus signs and spaces."""
    control = float(row["control_value"])
    limit = format_limit(question.role, question.better, question.margin, row["relative"], control)
    return limit.replace("−", "-").replace("\u202f", " ")


def build_difference_grid(changes: Sequence[NumberChange], control: str, share: str) -> Grid:
    """Return a table of the differences between two models, one row for each metric.

    `control` is the name of the baseline model. `share` is the heading of both interval columns: the confidence level,
    such as "95 %".
    """
    treatment = changes[0].treatment if changes else ""
    heads = ["metric", control, treatment, "difference", share, "relative", share, "p", ""]
    rows: list[list[Cell] | None] = []
    for one in filter(_can_differ, changes):
        relative = one.relative or one.change
        rows.append(
            [
                Cell(one.metric),
                *_build_value_cells(one),
                *_build_interval_cells(one.change, False, one.word),
                *_build_interval_cells(relative, True, one.word),
                Cell(format_p_value(one.p)),
                Cell(one.word),
            ]
        )
    return Grid(f"{treatment} against {control}", heads, rows, remarks=_describe_reasons(changes))


def describe_joint_confidence(treatments: int, control: str, confidence: str) -> str:
    """Return the reason why intervals for several treatments each have a higher confidence level than `confidence`.

    `treatments` is the number of treatments, `control` is the name of the control, and `confidence` is a text such as
    "95 %".
    """
    return f"{treatments} comparisons with {control} are valid together at {confidence}"


def describe_breach_confidence(verdicts: Iterable[Verdict]) -> str:
    """Return the reason why verdicts give wider intervals for breached guardrails than tables do; "" if they do not."""
    breached = [
        (100.0 * reading.interval.confidence, len(verdict.guardrails))
        for verdict in verdicts
        for reading in verdict.guardrails
        if reading.word == "breached" and len(verdict.guardrails) > 1
    ]
    if not breached:
        return ""
    level, count = breached[0]
    return (
        f"the verdict gives the {level:.3g} % interval of a breached guardrail, because any one of {count} guardrails can "
        f"stop the treatment"
    )


def describe_left_out(metrics: Iterable[str], card: Scorecard) -> list[str]:
    """Return a list with one remark about the metrics that are missing from a scorecard; empty if none are missing."""
    questions = {question.name for question in card.options.questions}
    left = [name for name in metrics if name not in questions]
    if not left:
        return []
    return [
        f"not compared, because it is unknown whether high or low values are better: {', '.join(left)}; add --better "
        f"{left[0]}=high (or low)"
    ]


def build_scorecard_grid(
    changes: Sequence[NumberChange], control: str, share: str, confidence: str, verdicts: Iterable[Verdict]
) -> Grid:
    """Return the table of a scorecard: one row for each metric and treatment, with the primary metric first.

    `control` is the name of the control. `share` is the heading of the interval column, such as "97.5 %", and
    `confidence` is the joint confidence level for all treatments, such as "95 %". `verdicts` are the verdicts on all
    treatments.
    """
    treatments = {one.treatment for one in changes}
    several, has_limits = len(treatments) > 1, any(one.limit for one in changes)
    heads = [*(["treatment"] if several else []), "metric", "role", control, "value", "change", share]
    heads += [*(["limit"] if has_limits else []), "p", ""]
    rows: list[list[Cell] | None] = []
    for one in changes:
        named = [Cell(one.treatment)] if several else []
        cells = [
            *_build_value_cells(one),
            *_build_interval_cells(one.change, one.percent, one.word),
            *([Cell(one.limit)] if has_limits else []),
            Cell(format_p_value(one.p)),
            Cell(one.word),
        ]
        rows.append([*named, Cell(one.metric), Cell(one.role), *cells])
    if not several and changes:
        heads[heads.index("value")] = changes[0].treatment
    left = 2 + several
    title = "change" if several else f"{changes[0].treatment} against {control}" if changes else ""
    joint = describe_joint_confidence(len(treatments), control, confidence)
    remarks = [f"{share} intervals, because {joint}"] if several else []
    remarks += [text for text in [describe_breach_confidence(verdicts)] if text] + _describe_reasons(changes)
    return Grid(title, heads, rows, left, left, remarks)


def build_slice_grid(
    number_changes: Sequence[NumberChange],
    by: Sequence[str],
    rows_of: Mapping[tuple[Any, ...], int],
    title: str,
    share: str,
) -> Grid:
    """Return a table of differences by slice (rows) and metric (columns).

    `rows_of` maps the key of each slice to its number of rows, and determines the order of slices. `by` are the names
    of the slice columns, and `share` is the confidence level, such as "95 %".
    """
    several = len({one.treatment for one in number_changes}) > 1
    groups: dict[tuple[Any, ...], dict[str, NumberChange]] = {}
    for one in number_changes:
        groups.setdefault((one.key, one.treatment), {})[one.metric] = one
    metrics = list(dict.fromkeys(one.metric for one in number_changes if _can_differ(one)))
    treatments = dict.fromkeys(one.treatment for one in number_changes)
    rows: list[list[Cell] | None] = []
    for key, count in rows_of.items():
        for treatment in treatments:
            changes = groups.get((key, treatment))
            if changes is None:
                continue
            names = [Cell(format_atom(k)) for k in key] + ([Cell(treatment)] if several else [])
            rows.append([*names, Cell(f"{count:,}"), *(_build_change_cell(changes.get(m)) for m in metrics)])
    lead = len(by) + several
    heads = [*by, *(["treatment"] if several else []), "rows", *metrics]
    shown_changes = [one for one in number_changes if one.key in rows_of]
    remarks = [
        f"differences with {share} intervals; better and worse after the Benjamini-Hochberg correction "
        f"over the whole table",
        *_describe_reasons(shown_changes, REASONS),
    ]
    return Grid(title, heads, rows, lead, lead, remarks)


def _can_differ(one: NumberChange) -> bool:
    """Return whether a metric can differ between two models evaluated on the same log.

    The number of positive labels, for example, cannot differ.
    """
    return one.before != one.after or (one.reason is None and not one.change.low == one.change.high == 0.0)


def _build_value_cells(one: NumberChange) -> list[Cell]:
    decimals = 4 if one.percent else choose_format(one.change, False).decimals
    return [
        Cell(f"{v:.{decimals}f}" if math.isfinite(v) and abs(v) < 1e6 else format_value(v))
        for v in (one.before, one.after)
    ]


def _build_interval_cells(interval: Interval, percent: bool, word: str) -> list[Cell]:
    """Return two cells: the difference, and its interval."""
    write = choose_format(interval, percent)
    some = math.isfinite(interval.low) and math.isfinite(interval.high)
    between = f"{write(interval.low)} to {write(interval.high)}" if some else ""
    estimate = write(interval.estimate) if math.isfinite(interval.estimate) else ""
    return [Cell(estimate, style=WORD_STYLES.get(word, "")), Cell(between)]


def _build_change_cell(one: NumberChange | None) -> Cell:
    if one is None:
        return Cell("")
    value, between = _build_interval_cells(one.change, one.percent, one.word)
    word = one.word if one.word in (*WORD_STYLES, "too few", "not shown") else ""
    return Cell(value.text, " ".join(filter(None, [between.text, word])), value.style)


def _describe_reasons(changes: Iterable[NumberChange], limit: int | None = None) -> list[str]:
    """Return one remark for each reason why intervals or p-values are missing, with the names of metrics and slices.

    `limit` is the largest number of reasons.
    """
    by_reason: dict[str, list[NumberChange]] = {}
    for one in changes:
        if one.reason:
            by_reason.setdefault(one.reason, []).append(one)
    remarks = []
    for reason, some in [*by_reason.items()][:limit]:
        missing = "no interval for " if any(math.isnan(one.change.low) for one in some) else ""
        remarks.append(f"{missing}{', '.join(dict.fromkeys(one.metric for one in some))}{_name_slices(some)}: {reason}")
    more = len(by_reason) - len(remarks)
    return [*remarks, f"and {more:,} other reasons: --format json lists all"] if more else remarks


def _name_slices(changes: Iterable[NumberChange]) -> str:
    """Return the names of the slices of some changes, such as " (br, de, fr and 4 other slices)"; "" for all rows."""
    slices = [*dict.fromkeys(format_key(one.key) for one in changes if one.key)]
    more = f" and {len(slices) - NAMED_SLICES:,} other slices" if len(slices) > NAMED_SLICES else ""
    return f" ({', '.join(slices[:NAMED_SLICES])}{more})" if slices else ""
