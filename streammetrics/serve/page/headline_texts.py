"""Build the texts at the top of the page of an experiment: the verdict, remarks below it, and warnings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...inference.verdict import TOO_EARLY
from ...reports.headline import colour_names, describe_bounds, describe_guardrails, describe_next_step
from ...reports.numbers import choose_decimals, format_count, format_fixed, format_share, typeset
from ...reports.page_model import Fact, Headline, MeasureRow
from ..evaluation.evaluation import Evaluation, MetricRow, ShownLook, TreatmentVerdict
from .table_rows import Arms
from .time_format import format_hour_end, format_span, format_time

__all__ = [
    "build_headline",
    "describe_final_hours",
    "describe_power",
    "describe_staleness",
    "describe_users",
    "find_primary",
    "split_sentence",
]

SENTENCE_WITH_INTERVAL = re.compile(r"^(?P<head>.+?) \((?P<between>[\d.]+ % (?:always )?[^()]*)\)(?P<tail>.*)$")
UNSAFE_NOTE = "The numbers are shown to help find the fault. Do not base decisions on them."


def build_headline(
    evaluation: Evaluation,
    verdict: TreatmentVerdict | None,
    rows: Sequence[MeasureRow],
    arms: Arms,
    looks: Sequence[ShownLook],
    badge: str,
) -> Headline:
    """Return the headline about a treatment: the verdict, a second line, and remarks (each a `Fact`).

    `rows` contains the rows of the treatment's scorecard, `arms` the color of each arm, and `looks` the earlier looks.
    `badge` is the label of the intervals, such as "95 % always" for intervals that are valid at every look.
    """
    ratio, changes = evaluation.ratio, [Fact("but", "changed", f"{text}.") for text in evaluation.late_changes]
    if ratio is not None and ratio.alarm:
        health = Fact("but", "health", f"{_describe_ratio(evaluation)} {_describe_sources(evaluation)}".strip())
        alert = typeset(ratio.sentence[:1].upper() + ratio.sentence[1:]).rstrip(".") + "."
        return Headline(
            [("No verdict: the arms are not comparable.", None)],
            UNSAFE_NOTE,
            [health, *changes, *describe_next_step()],
            alert,
        )
    if evaluation.state == "no data":
        return Headline(
            [("No data yet.", None)],
            "No part has been posted yet. Workers post one part per hour, and this page updates by itself.",
            [],
        )
    warnings = [] if verdict is None else evaluation.warnings.get(verdict.treatment, [])
    facts = [
        *changes,
        *_describe_interval(evaluation, verdict, looks, badge),
        *describe_bounds(rows),
        *describe_guardrails({"": rows}),
        *(Fact("but", "caution", typeset(text)) for text in warnings),
        *_describe_health(evaluation),
    ]
    if evaluation.withheld or verdict is None:
        reason = typeset(evaluation.withheld)
        return Headline(
            [("No verdict yet.", None)], reason[:1].upper() + reason[1:].rstrip(".") + "." if reason else "", facts
        )
    head, lead = split_sentence(typeset(verdict.sentence))
    lead = " ".join(part for part in (lead, _describe_levels(rows)) if part)
    return Headline(colour_names(head, {name: one.number for name, one in arms.items()}), lead, facts)


def split_sentence(sentence: str) -> tuple[str, str]:
    """Split the sentence of a verdict into a headline and a second line.

    The second line contains the interval and the rest of the sentence.

    Examples
    --------
    >>> head, lead = split_sentence("Ship b: ctr +5.7 % (95 % always +3.8 % to +7.6 %), and the guardrail is held.")
    >>> head.replace("\u202f", " ")
    'Ship b: ctr +5.7 %.'
    >>> lead.replace("\u202f", " ")
    '95 % always +3.8 % to +7.6 %, and the guardrail is held.'
    """
    match = SENTENCE_WITH_INTERVAL.match(sentence.replace("\u202f", " "))
    if match is None:
        return sentence, ""
    head, between, tail = (typeset(part) for part in match.groups())
    return f"{head}.", f"{between}{tail}"


def _describe_levels(rows: Sequence[MeasureRow]) -> str:
    """Return a sentence with the values of the primary metric in the control and the treatment."""
    if not rows or "–" in (rows[0].a, rows[0].b, rows[0].change):
        return ""
    return f"{rows[0].name} went from {rows[0].b} to {rows[0].a}, {rows[0].change}."


def _describe_interval(
    evaluation: Evaluation, verdict: TreatmentVerdict | None, looks: Sequence[ShownLook], badge: str
) -> list[Fact]:
    """Return a list with one remark about the primary metric's interval, or an empty list if there is no interval.

    The remark says what the interval guarantees, and since when it has excluded zero.
    """
    row = next(
        (r for r in evaluation.table if verdict and r.treatment == verdict.treatment and r.role == "primary"), None
    )
    if row is None or row.low is None or row.high is None or row.word == TOO_EARLY:
        return []
    parts = [] if evaluation.late_changes else ["Valid at every look, so the experiment may stop at any time."]
    since = find_exclusion_time([look for look in looks if look.treatment == row.treatment])
    if since is not None and not row.low <= 0.0 <= row.high:
        parts.append(f"The interval has excluded zero since {format_time(since)}.")
    if (once := _format_half_width(row.once_low, row.once_high)) is not None:
        always = _format_half_width(row.low, row.high)
        parts.append(f"For a single look, the interval would be {once} instead of {always}.")
    return [Fact("ci", badge, " ".join(parts))] if parts else []


def find_exclusion_time(looks: Sequence[ShownLook]) -> float | None:
    """Return the time since which the interval of the difference has excluded zero at every look.

    Return None if the interval at the last look includes zero.
    """
    since = None
    for look in looks:
        beyond = look.low is not None and look.high is not None and not look.low <= 0.0 <= look.high
        since = (since if since is not None else look.at) if beyond else None
    return since


def _format_half_width(low: float | None, high: float | None) -> str | None:
    if low is None or high is None:
        return None
    half = (high - low) / 2
    decimals = choose_decimals(half * 100)
    return f"±{format_fixed(half, 1 if decimals is None else decimals, True)}"


def _describe_health(evaluation: Evaluation) -> list[Fact]:
    text = f"{_describe_ratio(evaluation)} {_describe_sources(evaluation)}".strip()
    return [Fact("tag", "health", text)] if text else []


def _describe_ratio(evaluation: Evaluation) -> str:
    ratio = evaluation.ratio
    total = sum(ratio.users.values()) if ratio else 0.0
    if ratio is None or not total:
        return ""
    parts = ", ".join(f"{arm} {format_share(n / total, 2)}" for arm, n in ratio.users.items())
    planned = ", ".join(format_share(p, 2) for p in ratio.planned.values())
    word = "not as" if ratio.alarm else "as"
    return f"Sample ratio {word} planned: {parts} of users ({planned} planned; e-value {ratio.e_value:.2g})."


def _describe_sources(evaluation: Evaluation) -> str:
    listed = [s for s in evaluation.sources if s.state != "unlisted"]
    behind = [s for s in listed if s.is_behind]
    if not listed:
        return ""
    if not behind:
        return "All sources are fresh."
    named = ", ".join(
        f"{s.source} {s.state}{f' ({format_span(s.behind)} overdue)' if s.behind else ''}" for s in behind
    )
    return f"Some sources are not fresh: {named}." if len(behind) < len(listed) else f"No source is fresh: {named}."


def describe_staleness(evaluation: Evaluation) -> tuple[str, str] | None:
    """Return the heading and text of a warning about sources in the state "silent", or None if there are none."""
    silent = [s for s in evaluation.sources if s.state == "silent"]
    if not silent:
        return None
    worst = max(silent, key=lambda s: s.behind or 0.0)
    gaps = [
        f"“{s.source}” has posted nothing{'' if s.counted_to is None else f' after {format_hour_end(s.counted_to)}'}."
        for s in silent
    ]
    head = f"Data of “{worst.source}” is {format_span(worst.behind or 0.0)} overdue."
    others = [s for s in evaluation.sources if s.state != "silent"]
    return head, " ".join(gaps) + (" The other sources are counted." if others else "")


def describe_users(evaluation: Evaluation, verdict: TreatmentVerdict | None) -> list[tuple[str, str]]:
    """Return figures about users as pairs of a label and a text.

    The figures are the users so far, the planned users, the new users per day, and the additional users and days needed
    for a decision. Unknown figures are left out.
    """
    terms = [("so far", format_count(evaluation.users)), ("planned", format_count(evaluation.planned))]
    terms.append(("new per day", format_count(evaluation.per_day)))
    if verdict is not None:
        terms.append(("more until a decision", format_count(verdict.more_users)))
        days = verdict.more_days
        terms.append(
            ("days until a decision", "" if days is None else f"about {format_fixed(days, 0 if days >= 3 else 1)}")
        )
    return [(term, text) for term, text in terms if text]


def describe_power(evaluation: Evaluation, treatment: str) -> str:
    """Return a sentence on the number of users needed to detect a difference in the primary metric.

    Return "" if there is no estimate.
    """
    one = next((p for p in evaluation.power if p.treatment == treatment), None)
    if one is None:
        return ""
    more = f", in about {format_fixed(one.more_days, 0)} more days" if one.more_days else ""
    shown = (
        f"Detecting a difference of {format_fixed(one.relative, 0, True)} needs {format_count(one.users)} users{more}"
    )
    end = (
        ""
        if one.at_end is None
        else f"; at the planned end, a difference of {format_fixed(one.at_end, 1, True)} can be detected"
    )
    return f"{shown}{end} (power 80\u202f%)."


def describe_final_hours(evaluation: Evaluation) -> str:
    """Return a sentence that names the last hour with complete outcomes; "" if all hours or no hours are complete."""
    if evaluation.final_to is None or evaluation.hours is None or evaluation.final_to >= evaluation.hours[1]:
        return ""
    return (
        f"Verdict and figures cover the hours up to {format_hour_end(evaluation.final_to)}. Outcomes of later hours "
        f"may still arrive."
    )


def find_primary(evaluation: Evaluation, treatment: str) -> MetricRow | None:
    """Return the row of a treatment's primary metric, or None if there is none."""
    return next((r for r in evaluation.table if r.treatment == treatment and r.role == "primary"), None)
