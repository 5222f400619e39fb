"""What scorecards put on a page: the verdict, the measures by what they decide, slices, and the arms."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..collect.accumulator import definition_of
from ..collect.metric_like import states_of
from ..inference.compare import samples_of
from ..inference.scorecard import Question, Scorecard
from ..numerics.keys import shown
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
    shorter,
    tag_of,
)
from .headline import interval_name, of_scorecard
from .numbers import count, share
from .page_model import Figure, Forest, NamedSide, Page, PagePart
from .records import is_sliced
from .scorecard_rows import FOREST, ScorecardRow, card_of, row_of

__all__ = ["add_cards"]


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
            page.sides = tuple(NamedSide(shown(a), n) for a, n in colours.items())
            page.badge = _card_badge(card)
        for arm, rows in figures.items():
            both = _sides(card, arm)
            data = card_of(rows, both, _card_badge(card), relative=card.asked.relative)
            if i == 0 and page.hero is None and rows and not math.isnan(rows[0][1].ends[1]):
                page.hero = hero_of(rows[0][1], card.asked.relative)
            several = len(figures) > 1 or name
            title = " ".join(
                ["Scorecard", *([f"of {name}"] if name else []), *([f"({shown(arm)})"] if several else [])]
            )
            page.parts.append(PagePart("scorecard", title, "score" if not several else "", data))
        if forests:
            page.parts.append(PagePart("forests", "Where it differs", "slices", forests, " ".join([FOREST, *left])))
        page.parts.append(PagePart("arms", "Arms", "arms", _arms(card, colours)))


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
    before, after, change, low, high, bound, p = (
        float(record[c]) for c in ("control_value", "value", "change", "low", "high", "bound", "adjusted")
    )
    one = ScorecardRow(
        name,
        question.role,
        question.better,
        question.margin,
        *(before, after, change, low, high, bound, p),
        word=str(record["word"] or "too few"),
        reason=by_name(str(record["reason"] or ""), _sides(card, record["treatment"])),
        rows=int(record["rows"]),
        relative=bool(record["relative"]),
        rate=in_percent(tag_of(metric)),
        note=averaged(metric),
    )
    return row_of(one, decimals, turn=turn, withheld=card.verdicts[record["treatment"]].decision == "withheld")


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


def _sides(card: Scorecard, arm: Any) -> tuple[NamedSide, NamedSide]:
    """A treatment and the control."""
    return NamedSide(shown(arm), (1 + list(card.progress).index(arm)) % COLOURS), NamedSide(shown(card.control), 0)


def _arms(card: Scorecard, colours: Mapping[Any, int]) -> dict[str, Any]:
    """What every arm has: rows, and users where they are known."""
    shares = card.ratio.shares if card.ratio is not None else {}
    rows = []
    for arm, number in colours.items():
        facts = definition_of(card.arms[arm]).reads
        held = states_of(card.arms[arm])
        n = max((int(np.sum(s.rows_seen)) for s in held[: max(1, len(facts) // 2)]), default=0)
        users = card.ratio.users.get(arm) if card.ratio is not None else None
        planned = card.ratio.planned.get(arm) if card.ratio is not None else None
        rows.append((NamedSide(shown(arm), number), count(n), count(users), "" if planned is None else share(planned, 2),
                     share(shares[arm], 2) if arm in shares else ""))  # fmt: skip
    return {"rows": rows, "users": card.ratio is not None}
