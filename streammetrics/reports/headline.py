"""What a page says first: the sentence of a comparison or scorecard, and the remarks below it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..inference.comparison import Comparison
from ..inference.interpretation import BOUND
from ..inference.scorecard import GUARDRAIL, Scorecard
from ..numerics.keys import shown
from .figures import by_name, figure_of, told_words
from .numbers import fixed, proof, share, typeset
from .page_model import Fact, Figure, Forest, Headline, NamedSide

__all__ = [
    "bound_text", "bounds", "coloured", "guardrails", "interval_name", "limit_text", "next_step", "of_comparisons",
    "of_scorecard",
]  # fmt: skip

Parts = list[tuple[str, int | None]]


def interval_name(confidence: float, always: bool) -> str:
    """What the badge of an interval says: "95 %", or "95 % always"."""
    return typeset(f"{100.0 * confidence:.4g} %{' always' if always else ''}")


def of_comparisons(
    found: Sequence[Comparison],
    sides: tuple[NamedSide, NamedSide],
    forests: Sequence[Forest],
    worries: Sequence[str] = (),
) -> Headline:
    """Return what comparisons of all rows say; of slices alone, what these say together."""
    if not found:
        return _of_slices(sides, forests, worries)
    main, rows = found[0], [figure_of(c) for c in found]
    row = rows[0]
    badge = interval_name(main.difference.confidence, main.always)
    facts = [*_errors(main, row, badge), *_where(forests), *_but(rows[1:], forests, worries)]
    if row.word == "too few":
        return Headline(
            [(f"{row.name}: no difference can be read.", None)],
            f"{_values(row, sides)} {by_name(row.reason, sides)}.",
            facts,
        )
    lead = f"{row.name} {_moved(main, row)}, from {row.b} to {row.a}; {badge} {row.between}."
    return Headline(_sentence(main, row, rows, sides), lead + _agree(rows), facts)


def _values(row: Figure, sides: tuple[NamedSide, NamedSide]) -> str:
    return f"{sides[0].name} {row.a}, {sides[1].name} {row.b}."


def _moved(main: Comparison, row: Figure) -> str:
    """Say where a value went: "rises by 0.0373"."""
    by = row.change.lstrip("+−")
    if not float(main.a - main.b):
        return "is the same"
    return f"{'rises' if main.a > main.b else 'falls'} by {by}"


def _sentence(main: Comparison, row: Figure, rows: list[Figure], sides: tuple[NamedSide, NamedSide]) -> Parts:
    new, old = ((side.name, side.number) for side in sides)
    if row.word == "better" or row.word == "worse":
        others = [r.name for r in rows[1:] if r.word in ("better", "worse") and r.word != row.word]
        opposite = "worse" if row.word == "better" else "better"
        mixed = f", {opposite} at {_listed(others)}" if others else ""
        end = f" at {row.name}{mixed}." if mixed else f": {row.name} {row.change}."
        middle = " is better than " if row.word == "better" else " is worse than "
        return [new, (middle, None), old, (end, None)]
    if row.word == "unclear":
        return [
            ("No difference shown between ", None),
            new,
            (" and ", None),
            old,
            (f": {row.name} {row.change}.", None),
        ]
    return [new, (f": {row.name} {row.change} against ", None), old, (".", None)]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _agree(rows: list[Figure]) -> str:
    """Whether all measures say the same."""
    words = {r.word for r in rows if r.word}
    return f" All {len(rows)} measures agree." if len(rows) > 2 and words in ({"better"}, {"worse"}) else ""


def _errors(main: Comparison, row: Figure, badge: str) -> list[Fact]:
    """Which of the two errors is the limit, and what would make it smaller."""
    if not row.half:
        return []
    bounded = (
        f"{row.proof} certified" if row.proof not in ("", "exact") else "The value is exact: there is nothing to bound"
    )
    if main.limited_by == BOUND:
        return [Fact("proof", "proof", f"The arithmetic is the limit: {bounded}; {main.cure} would narrow it."),
                Fact("ci", badge, f"Sampling is not: {row.half}.")]  # fmt: skip
    told = f"Sampling is the limit: {row.half}{f' (p {_p(row.p)})' if row.p else ''}; more users would narrow it."
    unclear = f" A difference over {_furthest(row)} is ruled out." if row.word == "unclear" else ""
    half = (main.difference.high - main.difference.low) / 2
    times = f", {half / main.bound:,.0f} times narrower" if 0.0 < main.bound < half / 2 else ""
    fine = f"The arithmetic is not: {bounded}{times}" if row.proof not in ("", "exact") else bounded
    return [Fact("ci", badge, told + unclear), Fact("proof", "proof", f"{fine}.")]


def _p(text: str) -> str:
    return text.replace("<", "< ") if text.startswith("<") else f"= {text}"


def _furthest(row: Figure) -> str:
    """The end of the interval that is farther from zero."""
    ends = row.between.split(" to ")
    return max((e.lstrip("+−") for e in ends), key=lambda e: float(e.rstrip("\u202f%").replace(",", "") or 0))


def _where(forests: Sequence[Forest]) -> list[Fact]:
    if not forests:
        return []
    first = forests[0]
    told = "; ".join(f"{g.title}: {g.note}" if g.title else g.note for g in first.groups)
    return [Fact("tag", "where", f"By {first.metric}: {told}.")]


def _but(rows: Sequence[Figure], forests: Sequence[Forest], worries: Sequence[str]) -> list[Fact]:
    """The worst that was found; never left out."""
    worse = [f"{r.name} is worse: {r.b} → {r.a} ({r.change})" for r in rows if r.word in ("worse", "breached")]
    for one in forests[:1]:
        bad = [r for g in one.groups for r in g.rows if r.word in ("worse", "breached")]
        if bad:
            r = bad[0]
            more = f", and {len(bad) - 1:,} more" if len(bad) > 1 else ""
            worse.append(f"in {r.name} ({r.share} of rows) {one.metric} is {r.word}: {r.change} {r.half}{more}")
    told = [*worse, *worries]
    return [Fact("but", "but", "; ".join(told) + ".")] if told else []


def _of_slices(sides: tuple[NamedSide, NamedSide], forests: Sequence[Forest], worries: Sequence[str]) -> Headline:
    one = forests[0] if forests else None
    rows = [r for g in one.groups for r in g.rows] if one else []
    told: Parts = [(s.name, s.number) for s in sides]
    metric = one.metric if one else "nothing"
    parts = [told[0], (" against ", None), told[1], (f": {metric} by slice.", None)]
    return Headline(parts, f"{told_words(rows)}." if rows else "", [*_but([], forests, worries)])


def of_scorecard(
    card: Scorecard, figures: Mapping[Any, Sequence[Figure]], colours: Mapping[Any, int], forests: Sequence[Forest],
    worries: Sequence[str] = (),
) -> Headline:  # fmt: skip
    """Return what a scorecard says: the sentence of its verdict; of several treatments, one after the other."""
    verdicts = list(card.verdicts.items())
    (arm, first), rest = verdicts[0], verdicts[1:]
    badge = interval_name(card.asked.confidence, any(p.sequential for p in card.progress.values()))
    lead = " ".join(typeset(v.sentence) for _, v in rest)
    facts: list[Fact] = []
    always = any(p.sequential for p in card.progress.values())
    if first.decision != "withheld":
        facts += [Fact("ci", badge, _looks(card, always))] if _looks(card, always) else []
        facts += bounds(figures[arm])
        facts += guardrails({shown(a): rows for a, rows in figures.items()})
    facts += _health(card)
    facts += _but([], forests, worries) if first.decision != "withheld" else next_step()
    alert = typeset(first.sentence.partition(". ")[2] or first.sentence) if first.decision == "withheld" else ""
    if alert:
        head = "Numbers are shown so that the fault can be found, not to decide by."
        return Headline([("No verdict: the arms are not comparable.", None)], head, facts, alert)
    return Headline(coloured(typeset(first.sentence), {shown(a): n for a, n in colours.items()}), lead, facts)


def coloured(text: str, names: Mapping[str, int]) -> Parts:
    """Return a sentence whose first mention of each name has its colour, where it stands as a word."""
    found = []
    for name, number in names.items():
        at = f" {text} ".find(f" {name}")
        end = text[at + len(name) : at + len(name) + 1] if at >= 0 else ""
        if at >= 0 and name and not end.isalnum():
            found.append((at, name, number))
    parts: Parts = []
    done = 0
    for at, name, number in sorted(found):
        if at >= done:
            parts += [(text[done:at], None), (name, number)]
            done = at + len(name)
    return [p for p in [*parts, (text[done:], None)] if p[0]]


def _looks(card: Scorecard, always: bool) -> str:
    users = [p for p in card.progress.values() if p.users is not None]
    so_far = ""
    if users:
        one = users[0]
        planned = f" of {one.planned:,.0f} planned" if one.planned is not None else ""
        so_far = f" {one.users:,.0f}{planned} users so far."
    if always:
        return f"Holds at every look, so stopping on a good day is no cheating.{so_far}"
    return f"Sampling, at one look.{so_far}"


def bounds(rows: Sequence[Figure]) -> list[Fact]:
    """What the arithmetic may be off by."""
    some = [r for r in rows if r.proof not in ("", "exact")]
    if not any(r.proof for r in rows):
        return []
    if not some:
        return [Fact("proof", "proof", "Counts are exact: there is nothing to bound. Sampling is the limit.")]
    return [Fact("proof", "proof", "Certified: " + ", ".join(f"{r.name} {r.proof}" for r in some) + ".")]


def guardrails(figures: Mapping[str, Sequence[Figure]]) -> list[Fact]:
    """Which guardrails are held, by treatment."""
    facts = []
    for arm, rows in figures.items():
        kept = [r for r in rows if r.word in ("held", "undecided", "breached") or r.limit]
        if not kept:
            continue
        held = sum(r.word == "held" for r in kept)
        rest = [f"{r.name} is {r.word}: {r.change}{f', {r.between}' if r.between else ''}; the limit is {r.limit}"
                for r in kept if r.word not in ("held", "")]  # fmt: skip
        if not any(r.word for r in kept):  # it is too early to say
            continue
        who = f"{arm}: " if len(figures) > 1 else ""
        broken = any(r.word == "breached" for r in kept)
        told = f"{who}{held} of {len(kept)} held. {'; '.join(rest)}{'.' if rest else ''}".strip()
        facts.append(Fact("but" if broken else "tag", "guardrails", told))
    return facts


def _health(card: Scorecard) -> list[Fact]:
    if card.ratio is None:
        return []
    parts = ", ".join(f"{shown(a)} {share(v, 2)} of the users, {share(card.ratio.planned[a], 2)} planned"
                      for a, v in card.ratio.shares.items())  # fmt: skip
    kind = "but" if card.ratio.alarm else "tag"
    return [Fact(kind, "health", f"Sample ratio: {parts}; e = {card.ratio.e_value:.2g}, the alarm is at 100.")]


def next_step() -> list[Fact]:
    """What to do where arms are not comparable."""
    told = (
        "Find and mend the loss, then start again with new users. Dropping rows until the ratio fits does not mend it."
    )
    return [Fact("tag", "next", told)]


def limit_text(role: str, better: str, margin: float | None, relative: bool) -> str:
    """How far a guardrail may go: "≥ −5 %"."""
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
    size = fixed(margin, decimals, relative)
    if better == "one":
        return f"≤ {size} from 1"
    sign = ("−" if better == "high" else "+") if margin else ""
    return f"{'≥' if better == 'high' else '≤'} {sign}{size}"


def bound_text(half: float) -> str:
    """The certified bound of a change."""
    return proof(half) if math.isfinite(half) else ""
