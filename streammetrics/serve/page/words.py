"""What a page of an experiment says first: the verdict, at most four facts, and what may not be overlooked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...reports.headline import bounds, coloured, guardrails, next_step
from ...reports.numbers import count, decimals_of, fixed, share, typeset
from ...reports.page_model import Fact, Figure, Headline
from ..evaluation.evaluation import Evaluation, Row, ShownLook, Told
from .rows import Arms
from .times import ago, end_of, moment

__all__ = ["final_of", "power_of", "primary_of", "split", "stale_of", "users_of", "words_of"]

FIGURES = re.compile(r"^(?P<head>.+?) \((?P<between>[\d.]+ % (?:always )?[^()]*)\)(?P<tail>.*)$")
UNSAFE = "Numbers are shown so that the fault can be found, not to decide by."


def words_of(
    evaluation: Evaluation,
    told: Told | None,
    rows: Sequence[Figure],
    arms: Arms,
    looks: Sequence[ShownLook],
    badge: str,
) -> Headline:
    """Return what is said first of one treatment."""
    ratio = evaluation.ratio
    if ratio is not None and ratio.alarm:
        health = Fact("but", "health", f"{_ratio(evaluation)} {_sources(evaluation)}".strip())
        alert = typeset(ratio.sentence[:1].upper() + ratio.sentence[1:]).rstrip(".") + "."
        return Headline([("No verdict: the arms are not comparable.", None)], UNSAFE, [health, *next_step()], alert)
    if evaluation.state == "no data":
        return Headline(
            [("No data yet.", None)], "No part has come. Workers post one an hour; this page fills by itself.", []
        )
    facts = [*_looks(evaluation, told, looks, badge), *bounds(rows), *guardrails({"": rows}), *_health(evaluation)]
    if evaluation.withheld or told is None:
        said = typeset(evaluation.withheld)
        return Headline(
            [("No verdict yet.", None)], said[:1].upper() + said[1:].rstrip(".") + "." if said else "", facts
        )
    head, lead = split(typeset(told.sentence))
    lead = " ".join(part for part in (lead, _levels(rows)) if part)
    return Headline(coloured(head, {name: one.number for name, one in arms.items()}), lead, facts)


def split(sentence: str) -> tuple[str, str]:
    """Return the sentence of a verdict, and what stands in its brackets and behind as a second one.

    Examples
    --------
    >>> head, lead = split("Ship b: ctr +5.7 % (95 % always +3.8 % to +7.6 %), and the guardrail is held.")
    >>> head.replace("\u202f", " ")
    'Ship b: ctr +5.7 %.'
    >>> lead.replace("\u202f", " ")
    '95 % always +3.8 % to +7.6 %, and the guardrail is held.'
    """
    found = FIGURES.match(sentence.replace("\u202f", " "))
    if found is None:
        return sentence, ""
    head, between, tail = (typeset(part) for part in found.groups())
    return f"{head}.", f"{between}{tail}"


def _levels(rows: Sequence[Figure]) -> str:
    """From where to where the primary metric went."""
    if not rows or "–" in (rows[0].a, rows[0].b):
        return ""
    return f"{rows[0].name} went from {rows[0].b} to {rows[0].a}, {rows[0].change}."


def _looks(evaluation: Evaluation, told: Told | None, looks: Sequence[ShownLook], badge: str) -> list[Fact]:
    """What the interval holds, and since when it leaves zero out."""
    row = next((r for r in evaluation.table if told and r.treatment == told.treatment and r.role == "primary"), None)
    if row is None or row.low is None or row.high is None:
        return []
    parts = ["Holds at every look, so stopping on a good day is no cheating."]
    since = excluded_since([look for look in looks if look.treatment == row.treatment])
    if since is not None and not row.low <= 0.0 <= row.high:
        parts.append(f"Zero has been excluded since {moment(since)}.")
    if (once := _half(row.once_low, row.once_high)) is not None:
        always = _half(row.low, row.high)
        parts.append(f"Looked at only once it would be {once} instead of {always}.")
    return [Fact("ci", badge, " ".join(parts))]


def excluded_since(looks: Sequence[ShownLook]) -> float | None:
    """Return the time of the first of those last looks whose interval leaves zero out; None if the last does not."""
    since = None
    for look in looks:
        beyond = look.low is not None and look.high is not None and not look.low <= 0.0 <= look.high
        since = (since if since is not None else look.at) if beyond else None
    return since


def _half(low: float | None, high: float | None) -> str | None:
    if low is None or high is None:
        return None
    half = (high - low) / 2
    decimals = decimals_of(half * 100)
    return f"±{fixed(half, 1 if decimals is None else decimals, True)}"


def _health(evaluation: Evaluation) -> list[Fact]:
    told = f"{_ratio(evaluation)} {_sources(evaluation)}".strip()
    return [Fact("tag", "health", told)] if told else []


def _ratio(evaluation: Evaluation) -> str:
    ratio = evaluation.ratio
    total = sum(ratio.users.values()) if ratio else 0.0
    if ratio is None or not total:
        return ""
    parts = ", ".join(f"{arm} {share(n / total, 2)}" for arm, n in ratio.users.items())
    planned = ", ".join(share(p, 2) for p in ratio.planned.values())
    word = "not as" if ratio.alarm else "as"
    return f"Sample ratio {word} planned: {parts} of users ({planned} planned; e = {ratio.e_value:.2g})."


def _sources(evaluation: Evaluation) -> str:
    behind = [s for s in evaluation.sources if s.state != "fresh"]
    if not evaluation.sources:
        return ""
    if not behind:
        return "All sources fresh."
    named = ", ".join(f"{s.source} {s.state}{f' by {ago(s.behind)}' if s.behind else ''}" for s in behind)
    return f"Sources fresh but {named}." if len(behind) < len(evaluation.sources) else f"No source is fresh: {named}."


def stale_of(evaluation: Evaluation) -> tuple[str, str] | None:
    """Return what is said where a source is silent: how old the data is, and of whom nothing comes."""
    silent = [s for s in evaluation.sources if s.state == "silent"]
    if not silent:
        return None
    worst = max(silent, key=lambda s: s.behind or 0.0)
    names = " and ".join(f"“{s.source}”" for s in silent)
    last = "" if worst.counted_to is None else f" Counted to {end_of(worst.counted_to)}."
    nothing = f"{names} {'has' if len(silent) == 1 else 'have'} sent nothing since."
    head = f"Data is {ago(worst.behind)} behind what was expected." if worst.behind else "A source is silent."
    return head, f"{last} {nothing} What is shown was right then.".strip()


def users_of(evaluation: Evaluation, told: Told | None) -> list[tuple[str, str]]:
    """Return how many users there are, and how many more it takes."""
    known = [("so far", count(evaluation.users)), ("planned", count(evaluation.planned))]
    known.append(("new a day", count(evaluation.per_day)))
    if told is not None:
        known.append(("more until decided", count(told.more_users)))
        days = told.more_days
        known.append(("days until decided", "" if days is None else f"about {fixed(days, 0 if days >= 3 else 1)}"))
    return [(term, text) for term, text in known if text]


def power_of(evaluation: Evaluation, treatment: str) -> str:
    """Return what the experiment can show of the primary metric, and when."""
    one = next((p for p in evaluation.power if p.treatment == treatment), None)
    if one is None:
        return ""
    more = f", in about {fixed(one.more_days, 0)} more days" if one.more_days else ""
    shown = f"A difference of {fixed(one.relative, 0, True)} shows with {count(one.users)} users{more}"
    end = "" if one.at_end is None else f"; at the planned end one of {fixed(one.at_end, 1, True)} does"
    return f"{shown}{end} (in 80 of 100 such experiments)."


def final_of(evaluation: Evaluation) -> str:
    """Return up to where rows are final, if some are not."""
    if evaluation.final_to is None or evaluation.hours is None or evaluation.final_to >= evaluation.hours[1]:
        return ""
    return f"Verdict and figures are of hours to {end_of(evaluation.final_to)}: outcomes of later ones may come."


def primary_of(evaluation: Evaluation, treatment: str) -> Row | None:
    """Return the row that decides."""
    return next((r for r in evaluation.table if r.treatment == treatment and r.role == "primary"), None)
