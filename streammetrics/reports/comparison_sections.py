"""What comparisons put on a page: the verdict, the scorecard, slices, and ranking measures by cut-off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..inference.comparison import Comparison, Comparisons
from ..inference.jackknife import FEWEST_EVENTS
from ..reading.about import best_of
from .figures import (
    by_name,
    common_decimals,
    figure_of,
    forest,
    hero_of,
    in_percent,
    key_text,
    plenty,
    reasons_of,
    shorter,
    spans,
    tag_of,
    under,
)
from .headline import interval_name, of_comparisons
from .page_model import Figure, Figures, Forest, Group, NamedSide, Page, PagePart

__all__ = ["add_comparisons", "badge_of", "each_of"]


class Ranked(NamedTuple):
    """Measures by cut-off.

    Parameters
    ----------
    sides : tuple of Side
        What is compared.
    ks : list of str
        The cut-offs.
    rows : list of (name, remark, figures, (new, old))
        Of each measure, what it says at every cut-off (None where it was not counted), and both lines of values.
    """

    sides: tuple[NamedSide, NamedSide]
    ks: list[str]
    rows: list[tuple[str, str, list[Figure | None], tuple[list[float], list[float]]]]


def by_cutoff(found: Sequence[Comparison], sides: tuple[NamedSide, NamedSide]) -> Ranked | None:
    """Return comparisons of measures at several cut-offs as one table; None where there are none."""
    named: dict[str, dict[str, Comparison]] = {}
    for one in found:
        name, _, k = one.name.partition("@")
        named.setdefault(name, {})[k] = one
    if not named:
        return None
    ks = sorted({k for some in named.values() for k in some}, key=lambda k: (len(k), k))
    rows = []
    for name, some in named.items():
        chosen = [some.get(k) for k in ks]
        new, old = ([c.a if c else math.nan for c in chosen], [c.b if c else math.nan for c in chosen])
        rows.append(
            (name, under(next(iter(some.values())).metric), [figure_of(c) if c else None for c in chosen], (new, old))
        )
    return Ranked(sides, ks, rows)


def add_comparisons(
    page: Page,
    compared: list[tuple[str, Any]],
    sides: tuple[NamedSide, NamedSide],
    worries: Sequence[str],
    *,
    first: bool,
) -> None:
    """Put comparisons on a page; it begins with what the first says, unless something else has been said."""
    whole = [c for _, some in compared for c in each_of(some) if not c.keys]
    named = [_named(name, c, compared) for name, some in compared for c in each_of(some) if not c.keys]
    groups = [(_by_name(name, some), [c for c in each_of(some) if c.keys]) for name, some in compared]
    forests = _forests([g for g in groups if g[1]], whole, sides)
    if first:
        page.words = of_comparisons(whole, sides, forests, worries)
        page.sides = sides[::-1]
        page.badge = badge_of([c for _, some in compared for c in each_of(some)][:1])
    scored = [c for c in named if "@" not in c.name]
    left = _left(compared, sides)
    if whole:
        shown = scored or named
        rows = [figure_of(c) for c in shown]
        for row in rows:
            row.reason = by_name(row.reason, sides)
        spans(rows, shared=None)
        if first and not math.isnan(rows[0].ends[1]):
            page.hero = hero_of(rows[0], in_percent(tag_of(shown[0].metric)))
        card = Figures("Every measure of both sides, with the difference", sides, [Group("", "", rows)], None,
                       badge_of(whole), False, [OWN_SCALE, *reasons_of(rows), *left])  # fmt: skip
        page.parts.append(PagePart("scorecard", "Scorecard", "score", card))
    if forests:
        page.parts.append(
            PagePart(
                "forests", "Where it differs", "slices", forests, " ".join([FOREST_NOTE, *([] if whole else left)])
            )
        )
    if ranked := by_cutoff([c for c in named if "@" in c.name], sides):
        page.parts.append(PagePart("ranking", "Ranking", "ranking", ranked))


OWN_SCALE = ("Each row of the picture has its own scale with zero in the middle; right is better. "
             "p: two-sided, of no difference.")  # fmt: skip
FOREST_NOTE = ("Largest impact first: share of rows times difference. Dotted: the difference of all rows. "
               f"Grey: under {FEWEST_EVENTS} positives, or in under half of the shards. "
               "An arrow: the interval goes on.")  # fmt: skip


def each_of(some: Comparison | Comparisons | list[Comparison]) -> list[Comparison]:
    """Return comparisons one by one."""
    if isinstance(some, Comparison):
        return [some]
    return list(some.values()) if isinstance(some, Comparisons) else some


def _named(name: str, one: Comparison, compared: Sequence[tuple[str, Any]]) -> Comparison:
    """A comparison with the name that it was given, where there are others."""
    return replace(one, name=f"{name}/{one.name}") if name and len(compared) > 1 else one


def _by_name(name: str, some: Any) -> str:
    """What slices are by."""
    by = some.by if isinstance(some, Comparisons) else ()
    return " × ".join(by) or name


def _left(compared: Sequence[tuple[str, Any]], sides: tuple[NamedSide, NamedSide]) -> list[str]:
    """What only one side has, by reason: how often, and of what."""
    reasons: dict[str, list[str]] = {}
    for _, some in compared:
        for one in some.left if isinstance(some, Comparisons) else ():
            reasons.setdefault(by_name(one.reason, sides), []).append(
                ", ".join([*([key_text(one.key)] if one.key else []), one.name])
            )
    return [f"Not compared, {why}: {'; '.join(of[:5])}{f'; and {len(of) - 5:,} more' if len(of) > 5 else ''}."
            for why, of in reasons.items()]  # fmt: skip


def badge_of(some: Sequence[Comparison]) -> str:
    """Return what the badge of their intervals says."""
    return interval_name(some[0].difference.confidence, some[0].always) if some else interval_name(0.95, False)


def _forests(
    groups: Sequence[tuple[str, list[Comparison]]], whole: Sequence[Comparison], sides: tuple[NamedSide, NamedSide]
) -> list[Forest]:
    """A forest for each measure: of the first all that matters, of the others fewer slices."""
    of_all = {c.name: figure_of(c, slices=True).ends[1] for c in whole}
    metrics = list(dict.fromkeys(c.name for _, some in groups for c in some))
    made = []
    for i, metric in enumerate(metrics):
        chosen = [c for _, some in groups for c in some if c.name == metric]
        one = chosen[0]
        percent = in_percent(tag_of(one.metric))
        between = [c.relative if percent else c.difference for c in chosen]
        decimals = common_decimals([(i.high - i.low) / 2 for i in between], percent)
        mine = [(name, [_slice(c, decimals, sides) for c in some if c.name == metric]) for name, some in groups]
        rows = [(n, r) for n, r in mine if r]
        made.append(
            forest(metric, sides, rows, percent=percent, whole=of_all.get(metric), interval=badge_of([one]),
                   best=best_of(one.metric), first=i == 0, plenty=plenty(i, len(rows)))
        )  # fmt: skip
    return made


def _slice(one: Comparison, decimals: int, sides: tuple[NamedSide, NamedSide]) -> Figure:
    row = figure_of(one, key_text(one.keys), decimals=decimals, slices=True)
    row.reason = by_name(row.reason, sides)
    row.sub = shorter(row.reason)
    return row
