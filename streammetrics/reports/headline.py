"""Write the headline of a page: a main sentence about a comparison or scorecard, and remarks below it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..inference.caveats import Note
from ..inference.comparison import Comparison
from ..inference.interpretation import BOUND
from ..inference.questions import GUARDRAIL
from ..inference.scorecard import Scorecard
from ..inference.sentences import choose_primary, describe_comparison
from ..inference.verdict import TOO_EARLY
from ..numerics.slice_keys import format_atom
from .measure_rows import build_measure_row, describe_slices
from .numbers import end_sentence, format_bound, format_fixed, format_number, typeset
from .page_model import Fact, Forest, Headline, MeasureRow, NamedSide
from .user_split import UserSplit

__all__ = [
    "build_comparison_headline",
    "build_scorecard_headline",
    "colour_names",
    "describe_bounds",
    "describe_guardrails",
    "describe_next_step",
    "format_confidence",
    "format_finite_bound",
    "format_limit",
]  # fmt: skip

Parts = list[tuple[str, int | None]]
EXACT = "Rounding of scores does not change the values: they are exact."


def format_confidence(confidence: float, always: bool) -> str:
    """Return a confidence level as a label: "95 %", or "95 % always" for an always-valid interval.

    An always-valid interval keeps its coverage even if the experiment is checked repeatedly.
    """
    return typeset(f"{100.0 * confidence:.4g} %{' always' if always else ''}")


def build_comparison_headline(
    comparisons: Sequence[Comparison],
    primary: str | None,
    sides: tuple[NamedSide, NamedSide],
    forests: Sequence[Forest],
    warnings: Sequence[str] = (),
    notes: Iterable[Note] = (),
) -> Headline:
    """Return the headline for comparisons over all rows; its main sentence is also printed by the `eval` command.

    The main sentence is about the metric `primary`. If there are no comparisons, it is about the slices in `forests`.
    `sides` are the new and the old model or arm, and `warnings` are sentences about dropped rows. `notes` are further
    notes about the comparison, such as the effect of covariates.
    """
    if not comparisons:
        return _build_slice_headline(sides, forests, warnings)
    main = choose_primary(comparisons, primary)
    ordered = [main, *(c for c in comparisons if c is not main)]
    rows = [build_measure_row(c) for c in ordered]
    row = rows[0]
    sentence = describe_comparison(main, comparisons, a=sides[0].name, b=sides[1].name)
    facts = [
        *_describe_errors(main, row, format_confidence(main.difference.confidence, main.always)),
        *_describe_forests(forests),
        *_describe_notes(notes),
        *_describe_warnings(rows[1:], forests, warnings),
    ]
    lead = f"{row.name} {_describe_movement(main, row)}, from {row.b} to {row.a}.{_describe_agreement(rows)}"
    return Headline(colour_names(typeset(sentence), {side.name: side.number for side in sides}), lead, facts)


def _describe_movement(main: Comparison, row: MeasureRow) -> str:
    """Return a description of the change in a metric relative to the control, such as "rises by 0.0373"."""
    by = row.change.lstrip("+−")
    if not float(main.a - main.b):
        return "is the same"
    return f"{'rises' if main.a > main.b else 'falls'} by {by}"


def _describe_agreement(rows: list[MeasureRow]) -> str:
    """Return a sentence such as " All 4 metrics agree." if all metrics are better, or all are worse.

    Metrics that do not define which values are better, such as the mean error, are ignored. The result is empty if the
    remaining metrics disagree, or if there are fewer than three of them.
    """
    words = [r.word for r in rows if r.word]
    if len(words) < 3 or set(words) not in ({"better"}, {"worse"}):
        return ""
    which = "" if len(words) == len(rows) else " that have a better direction"
    return f" All {len(words)} metrics{which} agree."


def _describe_errors(main: Comparison, row: MeasureRow, badge: str) -> list[Fact]:
    """Return remarks about the two sources of error in a difference: chance, and rounding scores to histogram buckets.

    The first remark is about the larger error, and says how to reduce it.
    """
    if not row.half:
        return []
    rounded = row.proof not in ("", "exact")
    if main.limited_by == BOUND:
        cure = f"more than chance does; {main.cure} would narrow this bound"
        return [Fact("proof", "certified", f"Rounding of scores may change the difference by {row.proof}, {cure}."),
                Fact("ci", badge, f"By chance, the difference may be off by {row.half}.")]  # fmt: skip
    p_value = f" (p {_format_p_value(row.p)})" if row.p else ""
    sentence = f"By chance, the difference may be off by {row.half}{p_value}; more users would narrow this interval."
    unclear = f" A difference larger than {_find_furthest_limit(row)} is ruled out." if row.word == "unclear" else ""
    half = (main.difference.high - main.difference.low) / 2
    times = f", {half / main.bound:,.0f} times less than chance" if 0.0 < main.bound < half / 2 else ""
    bounded = f"Rounding of scores may change the difference by {row.proof}{times}."
    if not rounded:
        bounded = f"Rounding of scores does not change {row.name}: its values are exact."
    return [Fact("ci", badge, sentence + unclear), Fact("proof", "certified", bounded)]


def _format_p_value(text: str) -> str:
    return text.replace("<", "< ") if text.startswith("<") else f"= {text}"


def _find_furthest_limit(row: MeasureRow) -> str:
    """Return the absolute value of the interval limit that is further from zero."""
    ends = row.between.split(" to ")
    return max((e.lstrip("+−") for e in ends), key=lambda e: float(e.rstrip("\u202f%").replace(",", "") or 0))


def _describe_forests(forests: Sequence[Forest]) -> list[Fact]:
    if not forests:
        return []
    first = forests[0]
    text = "; ".join(f"by {g.title}, {g.note}" if g.title else g.note for g in first.groups)
    return [Fact("tag", "where", f"{first.metric} {text}.")]


def _describe_warnings(rows: Sequence[MeasureRow], forests: Sequence[Forest], warnings: Sequence[str]) -> list[Fact]:
    """Return a list with one remark: the metrics and slices that are worse, and the `warnings` about dropped rows.

    The list is empty if there is nothing to warn about.
    """
    worse = [f"{r.name} is worse: {r.b} → {r.a} ({r.change})" for r in rows if r.word in ("worse", "breached")]
    for one in forests[:1]:
        bad = [r for g in one.groups for r in g.rows if r.word in ("worse", "breached")]
        if bad:
            r = bad[0]
            more = f", and {len(bad) - 1:,} more" if len(bad) > 1 else ""
            worse.append(f"in {r.name} ({r.share} of rows) {one.metric} is {r.word}: {r.change} {r.half}{more}")
    sentences = [*worse, *warnings]
    return [Fact("but", "caution", "; ".join(sentences) + ".")] if sentences else []


def _describe_notes(notes: Iterable[Note]) -> list[Fact]:
    """Return a remark for each note about a comparison."""
    return [Fact("but" if n.is_warning else "tag", "caution" if n.is_warning else "covariates", typeset(n.sentence))
            for n in dict.fromkeys(notes)]  # fmt: skip


def _build_slice_headline(
    sides: tuple[NamedSide, NamedSide], forests: Sequence[Forest], warnings: Sequence[str]
) -> Headline:
    one = forests[0] if forests else None
    rows = [r for g in one.groups for r in g.rows] if one else []
    names: Parts = [(s.name, s.number) for s in sides]
    metric = one.metric if one else "nothing"
    parts = [names[0], (" against ", None), names[1], (f": {metric} by slice.", None)]
    return Headline(parts, f"{describe_slices(rows)}." if rows else "", [*_describe_warnings([], forests, warnings)])


def build_scorecard_headline(
    card: Scorecard, figures: Mapping[Any, Sequence[MeasureRow]], colours: Mapping[Any, int], forests: Sequence[Forest],
    warnings: Sequence[str] = (), notes: Iterable[Note] = (), *, has_users: bool = False,
) -> Headline:  # fmt: skip
    """Return the headline of a scorecard: the verdict on the first treatment, the other verdicts, and remarks.

    `figures` contains the table rows of each treatment, and `colours` contains the color index of each arm. `forests`
    are the forest plots of slices, `warnings` are sentences about dropped rows, and `notes` are notes about all
    treatments and slices. `has_users` says whether the page contains a table with the number of users in each arm. If
    so, the headline gives the number of users only if the planned number is known.
    """
    verdicts = list(card.verdicts.items())
    arm, first = verdicts[0]
    confidence = 1.0 - (1.0 - card.options.confidence) / len(verdicts)
    badge = format_confidence(confidence, any(p.sequential for p in card.progress.values()))
    lead = " ".join(map(typeset, card.sentences[1:]))
    facts: list[Fact] = []
    always = any(p.sequential for p in card.progress.values())
    if first.decision != "withheld":
        facts.append(Fact("ci", badge, _describe_looks(card, always, has_users)))
        facts += describe_bounds(figures[arm])
        facts += describe_guardrails({format_atom(a): rows for a, rows in figures.items()})
    facts += [*_describe_sample_ratio(card), *_describe_notes(notes)]
    facts += _describe_warnings([], forests, warnings) if first.decision != "withheld" else describe_next_step()
    alert = typeset(first.sentence.partition(". ")[2] or first.sentence) if first.decision == "withheld" else ""
    if alert:
        head = "The numbers are shown to help find the fault. Do not base decisions on them."
        return Headline([("No verdict: the arms are not comparable.", None)], head, facts, alert)
    return Headline(colour_names(typeset(first.sentence), {format_atom(a): n for a, n in colours.items()}), lead, facts)


def colour_names(text: str, names: Mapping[str, int]) -> Parts:
    """Split a sentence at the names of arms, so that each name can be shown in its color.

    Only the first mention of each name is colored. `names` maps each name to the index of its color.
    """
    # Find a name only at the start of the text or after a space, and only if no letter or digit follows it. Otherwise,
    # "new" would be found in "newer".
    mentions = []
    for name, number in names.items():
        found = re.search(rf"(?<!\S){re.escape(name)}(?!\w)", text) if name else None
        if found is not None:
            mentions.append((found.start(), name, number))
    parts: Parts = []
    done = 0
    for at, name, number in sorted(mentions):
        if at >= done:
            parts += [(text[done:at], None), (name, number)]
            done = at + len(name)
    return [p for p in [*parts, (text[done:], None)] if p[0]]


def _describe_looks(card: Scorecard, always: bool, has_users: bool) -> str:
    users = [p for p in card.progress.values() if p.users is not None and not (has_users and p.planned is None)]
    so_far = ""
    if users:
        one = users[0]
        planned = f" of {one.planned:,.0f} planned" if one.planned is not None else ""
        so_far = f" {one.users:,.0f}{planned} users so far."
    if always:
        return f"Valid at every look, so the experiment may stop at any time.{so_far}"
    progress = next(iter(card.progress.values()))
    if not progress.allows_decision:
        return f"Valid only if you look once.{so_far}"
    return f"Valid at one look, the {'end of the experiment' if progress.final else 'planned end'}.{so_far}"


def describe_bounds(rows: Sequence[MeasureRow]) -> list[Fact]:
    """Return a list with one remark, which gives the certified bounds or says that all values are exact.

    The list is empty if no metric has a finite bound.
    """
    some = [r for r in rows if r.proof not in ("", "exact")]
    if not any(r.proof for r in rows):
        return []
    if not some:
        return [Fact("proof", "certified", EXACT)]
    bounds = ", ".join(f"{r.name} by {r.proof}" for r in some)
    return [Fact("proof", "certified", f"Rounding of scores may change the difference of {bounds}.")]


def describe_guardrails(figures: Mapping[str, Sequence[MeasureRow]]) -> list[Fact]:
    """Return a remark for each treatment: how many of its guardrails hold, and the differences in the others."""
    facts = []
    for arm, rows in figures.items():
        guarded = [r for r in rows if r.word in ("held", "undecided", "breached") or r.limit]
        if not guarded:
            continue
        held_count = sum(r.word == "held" for r in guarded)
        rest = [f"{r.name} is {r.word}: {r.change}{f', {r.between}' if r.between else ''}; the limit is {r.limit}"
                for r in guarded if r.word not in ("held", TOO_EARLY, "")]  # fmt: skip
        # If no guardrail has a conclusion yet, it is too early for a remark about this treatment.
        if all(r.word in ("", TOO_EARLY) for r in guarded):
            continue
        who = f"{arm}: " if len(figures) > 1 else ""
        is_breached = any(r.word == "breached" for r in guarded)
        text = f"{who}{held_count} of {len(guarded)} held. {'; '.join(rest)}{'.' if rest else ''}".strip()
        facts.append(Fact("but" if is_breached else "tag", "guardrails", text))
    return facts


def _describe_sample_ratio(card: Scorecard) -> list[Fact]:
    if card.ratio is None:
        return []
    kind = "but" if card.ratio.alarm else "tag"
    return [Fact(kind, "users", end_sentence(UserSplit(card.ratio, is_tested=True).describe_test()))]


def describe_next_step() -> list[Fact]:
    """Return a remark that says what to do after a sample ratio mismatch, which makes the arms incomparable."""
    text = "Find and fix the cause, then restart with new users. Dropping rows until the ratio fits does not help."
    return [Fact("tag", "next", text)]


def format_limit(
    role: str, better: str, margin: float | None, relative: bool, control: float = math.nan, *, rate: bool = False
) -> str:
    """Return the limit of a guardrail as text, such as "≥ −5 % (0.0931)"; empty for a metric that is not a guardrail.

    `margin` is the allowed deterioration: a difference, or a share of the control's value if `relative` is true.
    `better` says which values are better: "high", "low" or "one" (closer to 1). `control` is the value of the control.
    If it is known and the margin is relative, the number in parentheses is the worst allowed value, as a percentage if
    `rate` is true. For "one" and a known control, the text consists of the lowest and highest allowed values.
    """
    if role != GUARDRAIL or margin is None:
        return ""
    decimals = next(
        (
            d
            for d in range(5)
            if math.isclose(round(margin * (100 if relative else 1), d), margin * (100 if relative else 1))
        ),
        6,
    )
    size = format_fixed(margin, decimals, relative)
    if better == "one":
        if not 0.0 < control < math.inf:
            return f"≤ {size} farther from 1"
        # Values on both sides of 1 are allowed. A value and its inverse, such as 0.8 and 1.25, count as equally far
        # from 1.
        far = max(control, 1.0 / control) * (1.0 + margin)
        return f"{format_number(1.0 / far)} to {format_number(far)}"
    sign = ("−" if better == "high" else "+") if margin else ""
    allowed = control * (1.0 - margin if better == "high" else 1.0 + margin)
    shown = f"{format_number(100 * allowed)}\u202f%" if rate else format_number(allowed)
    value = f" ({shown})" if relative and allowed > 0.0 else ""
    return f"{'≥' if better == 'high' else '≤'} {sign}{size}{value}"


def format_finite_bound(half: float) -> str:
    """Return a certified bound as text, such as "±0.0012"; empty if the bound is not finite."""
    return format_bound(half) if math.isfinite(half) else ""
