"""What scorecards put on a page: the verdict, the measures by what they decide, slices, and the arms."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..inference.compare import samples_of
from ..inference.scorecard import GUARDRAIL, PRIMARY, SECONDARY, Question, Scorecard
from ..numerics.keys import shown
from .blocks import Axis, Figure, Figures, Forest, Group, Page, Part, Side
from .families import COLOURS
from .figures import (
    averaged,
    by_name,
    common_decimals,
    forest,
    hero_of,
    in_percent,
    key_text,
    plenty,
    reasons_of,
    shared_axis,
    shorter,
    spans,
)
from .numbers import count, decimals_of, fixed, p_text, share, signed
from .records import is_sliced
from .told import bound_text, interval_name, limit_text, of_scorecard

__all__ = ["add_cards"]

DECIDES = {PRIMARY: ("Primary", "decides"), GUARDRAIL: ("Guardrails", "may not cross the limit; hatched: forbidden"),
           SECONDARY: ("Also watched", "decides nothing")}  # fmt: skip


def add_cards(page: Page, cards: Sequence[tuple[str, Scorecard]], worries: Sequence[str]) -> None:
    """Put scorecards on a page; it begins with the verdict of the first."""
    for i, (name, card) in enumerate(cards):
        colours = {arm: n % COLOURS for n, arm in enumerate([card.control, *card.progress])}
        questions = {q.name: q for q in card.asked.questions}
        metrics = _metrics_of(card)
        figures: dict[Any, list[tuple[str, Figure]]] = {arm: [] for arm in card.progress}
        for record in card.table():
            if record["role"]:
                row = _card_row(card, record, questions[record["metric"]], metrics[record["metric"]], record["metric"],
                                turn=not card.asked.relative)  # fmt: skip
                figures[record["treatment"]].append((record["role"], row))
        forests, left = _card_forests(card, questions, metrics, figures)
        if i == 0:
            page.words = of_scorecard(
                card, {a: [r for _, r in rows] for a, rows in figures.items()}, colours, forests, worries
            )
            page.sides = tuple(Side(shown(a), n) for a, n in colours.items())
            page.badge = _card_badge(card)
        for arm, rows in figures.items():
            both = _sides(card, arm)
            data = _card_figures(card, both, rows)
            if i == 0 and page.hero is None and rows and not math.isnan(rows[0][1].ends[1]):
                page.hero = hero_of(rows[0][1], card.asked.relative)
            several = len(figures) > 1 or name
            title = " ".join(
                ["Scorecard", *([f"of {name}"] if name else []), *([f"({shown(arm)})"] if several else [])]
            )
            page.parts.append(Part("scorecard", title, "score" if not several else "", data))
        if forests:
            page.parts.append(Part("forests", "Where it differs", "slices", forests, " ".join([CARD_FOREST, *left])))
        page.parts.append(Part("arms", "Arms", "arms", _arms(card, colours)))


CARD_FOREST = "Largest impact first. Dotted: the difference of all rows. Slices explain; they do not decide."
ONE_SCALE = ("Differences are relative, all on one scale, in percent. A guardrail is held when its whole "
             "interval is on the right side of its limit, and breached when all of it is beyond.")  # fmt: skip
OWN_SCALES = ("Each row of the picture has its own scale, with zero in the middle; right is better. A guardrail is held "
              "when its interval is on the right side of its limit, and breached when all of it is beyond.")  # fmt: skip


def _metrics_of(card: Scorecard) -> dict[str, Any]:
    return {s.name: s.metric for s in samples_of(card.arms[card.control])}


def _card_badge(card: Scorecard) -> str:
    return interval_name(1.0 - (1.0 - card.asked.confidence) / len(card.progress),
                         any(p.sequential for p in card.progress.values()))  # fmt: skip


def _card_row(
    card: Scorecard, record: Mapping[str, Any], question: Question, metric: Any, name: str, decimals: int | None = None, *,
    turn: bool,
) -> Figure:  # fmt: skip
    """The row of a metric of a scorecard, or of a slice; turned, so that right is better, where lower is."""
    percent, withheld = bool(record["relative"]), card.verdicts[record["treatment"]].decision == "withheld"
    tag = getattr(metric, "tag", "")
    low, mid, high = (float(record[c]) for c in ("low", "change", "high"))
    half = (high - low) / 2
    if decimals is None:
        own = decimals_of(half * (100 if percent else 1))
        decimals = (1 if percent else 4) if own is None else own
    down = turn and question.better == "low"
    guarded = question.role == GUARDRAIL and question.better != "one"
    over = question.better == "low" and not down
    ends = (-high, -mid, -low) if down else (low, mid, high)
    some = math.isfinite(half)
    rates = in_percent(tag)
    digits = _digits(half, record["control_value"], percent, rates, decimals)
    bound = float(record["bound"])
    beyond = bound if math.isfinite(bound) else 0.0
    clear = some and (low - beyond > 0.0 or high + beyond < 0.0) and not record["adjusted"] > 1.0
    return Figure(
        name,
        "; ".join(t for t in (_direction(question.better), averaged(metric)) if t),
        fixed(record["value"], digits, rates),
        fixed(record["control_value"], digits, rates),
        signed(mid, decimals, percent),
        "",
        f"±{fixed(half, decimals, percent)}" if some else "",
        f"{signed(low, decimals, percent)} to {signed(high, decimals, percent)}" if some else "",
        p_text(record["adjusted"]) if math.isfinite(record["adjusted"]) else "",
        bound_text(0.0 if bound <= 1e-12 else bound * (100 if percent else 1))
        + ("\u202f%" if percent and bound > 1e-12 else ""),
        limit_text(question.role, question.better, question.margin, percent),
        bold=clear and not withheld,
        word="withheld" if withheld else str(record["word"] or "too few"),
        reason=by_name(str(record["reason"] or ""), _sides(card, record["treatment"])),
        ends=ends,
        turned=-1.0 if down else 1.0,
        margin=(question.margin or 0.0) * (1.0 if over else -1.0) if guarded else None,
        over=over,
        rows=int(record["rows"]),
    )


def _direction(better: str) -> str:
    return {"high": "↑ higher is better", "low": "↓ lower is better"}.get(better, "→ 1 is best")


def _digits(half: float, value: float, relative: bool, rates: bool, decimals: int) -> int:
    """Decimals of values: as many as their difference gives them."""
    size = half * abs(value) if relative else half
    found = decimals_of(size * (100 if rates else 1))
    return (2 if rates else 4) if found is None else min(found, 6)


def _card_figures(card: Scorecard, sides: tuple[Side, Side], rows: Sequence[tuple[str, Figure]]) -> Figures:
    every = [r for _, r in rows]
    axis: Axis | None = None
    if card.asked.relative:
        axis, low, high = shared_axis(every, "", True, most=4.0)
        spans(every, shared=axis, low=low, high=high)
    else:
        spans(every, shared=None)
    groups = [
        Group(*DECIDES[role], [r for k, r in rows if k == role]) for role in DECIDES if any(k == role for k, _ in rows)
    ]
    notes = [ONE_SCALE if axis is not None else OWN_SCALES, *reasons_of(every)]
    limits = any(r.limit for r in every)
    return Figures(
        "The measures of both arms, with the difference", sides, groups, axis, _card_badge(card), limits, notes
    )


def _card_forests(
    card: Scorecard, questions: Mapping[str, Question], metrics: Mapping[str, Any],
    figures: Mapping[Any, Sequence[tuple[str, Figure]]],
) -> tuple[list[Forest], list[str]]:  # fmt: skip
    """A forest for each measure and treatment, and what is said of slices that only one arm has."""
    if not is_sliced(card.arms[card.control]):
        return [], []
    made: list[Forest] = []
    table = card.slices()
    known = [r for r in table if r["role"]]
    for arm in card.progress:
        whole = {r.name: r.ends[1] * (-1.0 if r.over and card.asked.relative else 1.0) for _, r in figures[arm]}
        for i, name in enumerate(questions):
            rows = [r for r in known if r["treatment"] == arm and r["metric"] == name]
            decimals = common_decimals([(r["high"] - r["low"]) / 2 for r in rows], card.asked.relative)
            keys = [key_text([r[c] for c in table.by]) for r in rows]
            mine = [_card_row(card, r, questions[name], metrics[name], k, decimals, turn=True)
                    for k, r in zip(keys, rows, strict=True)]  # fmt: skip
            for one in mine:
                one.sub, one.margin = shorter(one.reason), None
            both = _sides(card, arm)
            title = name if len(card.progress) == 1 else f"{name} ({shown(arm)})"
            made.append(
                forest(title, both, [(" × ".join(table.by), mine)], percent=card.asked.relative, whole=whole.get(name),
                       interval=_card_badge(card), best=questions[name].better, first=not made, plenty=plenty(i, 1))
            )  # fmt: skip
    missing = [r for r in table if not r["role"]]
    told = Counter(by_name(r["reason"], _sides(card, r["treatment"])) for r in missing)
    return made, [f"Not compared, {why}: {n:,}." for why, n in told.items()]


def _sides(card: Scorecard, arm: Any) -> tuple[Side, Side]:
    """A treatment and the control."""
    return Side(shown(arm), (1 + list(card.progress).index(arm)) % COLOURS), Side(shown(card.control), 0)


def _arms(card: Scorecard, colours: Mapping[Any, int]) -> dict[str, Any]:
    """What every arm has: rows, and users where they are known."""
    shares = card.ratio.shares if card.ratio is not None else {}
    rows = []
    for arm, number in colours.items():
        facts = card.arms[arm].reads()
        held = card.arms[arm].states
        n = max((int(np.sum(s.rows_seen)) for s in held[: max(1, len(facts) // 2)]), default=0)
        users = card.ratio.users.get(arm) if card.ratio is not None else None
        planned = card.ratio.planned.get(arm) if card.ratio is not None else None
        rows.append((Side(shown(arm), number), count(n), count(users), "" if planned is None else share(planned, 2),
                     share(shares[arm], 2) if arm in shares else ""))  # fmt: skip
    return {"rows": rows, "users": card.ratio is not None}
