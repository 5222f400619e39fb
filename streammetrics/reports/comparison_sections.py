"""Build the comparison sections of a report page: headline, scorecard, slices, and ranking metrics by cut-off."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..inference.caveats import Note, describe_caveats
from ..inference.comparison import Comparison, Comparisons
from ..inference.multiple import SLICE_CORRECTION
from ..inference.sentences import choose_primary
from ..metrics.ranking.exposure import ExposureMetric
from ..metrics.ranking.mean import QueryMean
from ..reading.about import best_of
from .headline import build_comparison_headline, format_confidence
from .measure_rows import (
    build_forest,
    build_hero,
    build_measure_row,
    choose_common_decimals,
    collect_reasons,
    count_shown_slices,
    format_key,
    format_subtitle,
    is_percent,
    name_sides,
    place_rows,
    read_tag,
    shorten_reason,
)
from .page_model import Forest, Headline, MeasureRow, MeasureTable, NamedSide, Page, PagePart, RowGroup
from .scorecard_rows import CORRECTION

__all__ = ["ComparedSides", "add_comparisons", "format_badge", "list_comparisons"]


class ComparedSides(NamedTuple):
    """The comparisons of a treatment with the control.

    Parameters
    ----------
    sides : tuple of NamedSide
        The treatment, and the control.
    pairs : list of (name, comparisons)
        Comparisons over all rows or by slice, each with a name (possibly empty) that is used in headings and to prefix
        metric names.
    primary : str or None
        The name of the primary metric, which decides which side is better; by default, the first metric that defines
        which values are better.
    """

    sides: tuple[NamedSide, NamedSide]
    pairs: Sequence[tuple[str, Any]]
    primary: str | None = None


class CutoffTable(NamedTuple):
    """Ranking metrics such as NDCG at several cut-offs (the 10 in NDCG@10), with one row for each metric.

    Parameters
    ----------
    sides : tuple of NamedSide
        The compared models or arms.
    ks : list of str
        The cut-offs.
    rows : list of (name, remark, cells, (new, old))
        For each metric: its name, a remark, one cell for each cut-off (None if the metric has no value there), and the
        lists of values for the new and the old side.
    """

    sides: tuple[NamedSide, NamedSide]
    ks: list[str]
    rows: list[tuple[str, str, list[MeasureRow | None], tuple[list[float], list[float]]]]


def build_cutoff_table(comparisons: Sequence[Comparison], sides: tuple[NamedSide, NamedSide]) -> CutoffTable | None:
    """Return the table of ranking metrics at their cut-offs; None if there are no comparisons.

    Each name in `comparisons` consists of the metric, "@" and the cut-off.
    """
    by_name: dict[str, dict[str, Comparison]] = {}
    for one in comparisons:
        name, _, k = one.name.partition("@")
        by_name.setdefault(name, {})[k] = one
    if not by_name:
        return None
    ks = sorted({k for some in by_name.values() for k in some}, key=lambda k: (len(k), k))
    rows = []
    for name, some in by_name.items():
        cells = [some.get(k) for k in ks]
        new, old = ([c.a if c else math.nan for c in cells], [c.b if c else math.nan for c in cells])
        rows.append(
            (
                name,
                format_subtitle(next(iter(some.values())).metric),
                [build_measure_row(c) if c else None for c in cells],
                (new, old),
            )
        )
    return CutoffTable(sides, ks, rows)


def add_comparisons(page: Page, compared: Sequence[ComparedSides], warnings: Sequence[str], *, first: bool) -> None:
    """Add comparison sections to a page, one treatment after another.

    If `first` is true, the headline of the page is about the first treatment, and one sentence about each of the other
    treatments follows below it. `warnings` are sentences about dropped rows.
    """
    if first:
        control = compared[0].sides[1]
        page.sides = control, *(one.sides[0] for one in compared)
        page.badge = format_badge([c for _, some in compared[0].pairs for c in list_comparisons(some)][:1])
    for i, one in enumerate(compared):
        title = f" ({one.sides[0].name})" if len(compared) > 1 else ""
        headline = _add_treatment(page, one, warnings, title, has_hero=first and i == 0)
        if first and i == 0:
            page.headline = headline
        elif first:
            page.headline = page.headline._replace(lead=f"{page.headline.lead} {headline.text}".strip())


def _add_treatment(
    page: Page, compared: ComparedSides, warnings: Sequence[str], title: str, *, has_hero: bool
) -> Headline:
    """Add the sections for one treatment, and return its headline.

    `title` is appended to the headings of the sections. If `has_hero` is true, the page also gets a large picture of
    the difference in the primary metric.
    """
    sides, pairs = compared.sides, compared.pairs
    equal = _find_equal_metrics([c for _, some in pairs for c in list_comparisons(some)], compared.primary)
    listed = [(name, some, [c for c in list_comparisons(some) if c.name not in equal]) for name, some in pairs]
    overall = [c for _, _, shown in listed for c in shown if not c.keys]
    several = sum(any(not c.keys for c in shown) for _, _, shown in listed) > 1
    prefixed = [
        replace(c, name=f"{name}/{c.name}") if name and several else c
        for name, _, shown in listed
        for c in shown
        if not c.keys
    ]
    groups = [(_name_slices(name, some), [c for c in shown if c.keys]) for name, some, shown in listed]
    forests = _build_forests([g for g in groups if g[1]], overall, sides, compared.primary)
    by_cutoff = _select_by_cutoff(prefixed)
    unmatched = _describe_unmatched(pairs, sides)
    if overall:
        primary = choose_primary(overall, compared.primary)
        # Leave out ranking metrics that are shown in the cut-off table, except the primary metric.
        rows = [build_measure_row(c) for c, one in zip(prefixed, overall, strict=True)
                if c.name not in by_cutoff or one is primary]  # fmt: skip
        for row in rows:
            row.reason = name_sides(row.reason, sides)
        place_rows(rows, shared=None)
        main = build_measure_row(primary)
        if has_hero and not math.isnan(main.ends[1]):
            page.hero = build_hero(main, is_percent(read_tag(primary.metric)))
        card = MeasureTable(
            "Every metric of both sides, with the difference",
            sides,
            [RowGroup("", "", rows)],
            None,
            format_badge(overall),
            False,
            [OWN_SCALE, *collect_reasons(rows), *unmatched],
        )
        page.parts.append(PagePart("scorecard", f"Scorecard{title}", "score", card))
    if ranked := build_cutoff_table(list(by_cutoff.values()), sides):
        page.parts.append(PagePart("ranking", f"Ranking by cut-off{title}", "ranking", ranked))
    if forests:
        corrected = any(some.settings.adjust == SLICE_CORRECTION for _, some in pairs if isinstance(some, Comparisons))
        note = " ".join([FOREST_NOTE, *([CORRECTION] if corrected else []), *([] if overall else unmatched)])
        page.parts.append(PagePart("forests", f"Where it differs{title}", "slices", forests, note))
    return build_comparison_headline(overall, compared.primary, sides, forests, warnings, _collect_notes(pairs, sides))


def _find_equal_metrics(comparisons: Sequence[Comparison], primary: str | None) -> set[str]:
    """Return the names of metrics that are known to have equal values on both sides, except the primary metric.

    An example is the click rate of two models on the same log. If all metrics have equal values, the result is empty.
    """
    if not comparisons:
        return set()
    by_name: dict[str, list[Comparison]] = {}
    for one in comparisons:
        by_name.setdefault(one.name, []).append(one)
    equal = {
        name
        for name, some in by_name.items()
        if all(c.a == c.b for c in some) and any(c.difference.low == c.difference.high == 0.0 for c in some)
    }
    return equal - {choose_primary(comparisons, primary).name} if len(equal) < len(by_name) else set()


def _collect_notes(pairs: Sequence[tuple[str, Any]], sides: tuple[NamedSide, NamedSide]) -> list[Note]:
    """Return notes on the comparison over all rows: effects of covariates, and metrics that show Simpson's paradox."""
    wholes = [some for _, some in pairs if isinstance(some, Comparisons) and not some.by]
    if len(wholes) != 1:
        return []
    whole = [r.differences for r in wholes[0].readings]
    notes = []
    for some in (some for _, some in pairs if isinstance(some, Comparisons)):
        parts = [r.differences for r in some.readings] if some.by else []
        names = sides[0].name, sides[1].name
        notes += describe_caveats(whole, parts, some.by, names, wholes[0].settings)
    return notes


def _select_by_cutoff(comparisons: Sequence[Comparison]) -> dict[str, Comparison]:
    """Return the comparisons of ranking metrics with several cut-offs, such as NDCG@5 and NDCG@10, keyed by name."""
    ranked = {c.name: c for c in comparisons if _has_cutoff(c)}
    counts = Counter(name.partition("@")[0] for name in ranked)
    return {name: c for name, c in ranked.items() if counts[name.partition("@")[0]] > 1}


def _has_cutoff(one: Comparison) -> bool:
    """Return whether the compared metric uses only the first k documents of each ranking, as NDCG@10 does."""
    k = getattr(one.metric, "k", None)
    return isinstance(one.metric, (QueryMean, ExposureMetric)) and k is not None and one.name.endswith(f"@{k}")


OWN_SCALE = ("Each row of the picture has its own scale, with zero in the middle. Better is to the right; if a metric has "
             "no better direction, larger is to the right.")  # fmt: skip
FOREST_NOTE = ("Largest impact first: share of rows times difference. Dotted: the difference of all rows. "
               "Grey: too little data for an interval. "
               "An arrow marks an interval that continues beyond the plot.")  # fmt: skip


def list_comparisons(some: Comparison | Comparisons | list[Comparison]) -> list[Comparison]:
    """Return one or more comparisons as a list."""
    if isinstance(some, Comparison):
        return [some]
    return list(some.values()) if isinstance(some, Comparisons) else some


def _name_slices(name: str, some: Any) -> str:
    """Return the heading of a group of slices: the slice columns, or the name of the object if it has no slices."""
    by = some.by if isinstance(some, Comparisons) else ()
    return " × ".join(by) or name


def _describe_unmatched(compared: Sequence[tuple[str, Any]], sides: tuple[NamedSide, NamedSide]) -> list[str]:
    """Return remarks about metrics and slices that could not be compared.

    There is one remark for each reason. It lists up to five of the metrics or slices to which the reason applies, and
    gives the number of the others.
    """
    reasons: dict[str, list[str]] = {}
    for _, some in compared:
        for one in some.unmatched if isinstance(some, Comparisons) else ():
            reasons.setdefault(name_sides(one.reason, sides), []).append(
                ", ".join([*([format_key(one.key)] if one.key else []), one.name])
            )
    return [f"Not compared, because {why}: {'; '.join(of[:5])}{f'; and {len(of) - 5:,} more' if len(of) > 5 else ''}."
            for why, of in reasons.items()]  # fmt: skip


def format_badge(some: Sequence[Comparison]) -> str:
    """Return the confidence level of the intervals as a label, such as "95 %"."""
    return format_confidence(some[0].difference.confidence, some[0].always) if some else format_confidence(0.95, False)


def _build_forests(
    groups: Sequence[tuple[str, list[Comparison]]], overall: Sequence[Comparison], sides: tuple[NamedSide, NamedSide],
    primary: str | None,
) -> list[Forest]:  # fmt: skip
    """Return a forest plot for each metric, with one interval for each slice. The primary metric comes first.

    Only the plot of the first metric is expanded when the page opens. It shows more slices than the others.
    """
    of_all = {c.name: build_measure_row(c, slices=True).ends[1] for c in overall}
    slices = [c for _, some in groups for c in some]
    metrics = list(dict.fromkeys(c.name for c in [choose_primary(slices, primary), *slices])) if slices else []
    forests = []
    for i, metric in enumerate(metrics):
        comparisons = [c for _, some in groups for c in some if c.name == metric]
        one = comparisons[0]
        percent = is_percent(read_tag(one.metric))
        between = [c.relative if percent else c.difference for c in comparisons]
        decimals = choose_common_decimals([(i.high - i.low) / 2 for i in between], percent)
        grouped = [
            (name, [_build_slice_row(c, decimals, sides) for c in some if c.name == metric]) for name, some in groups
        ]
        rows = [(n, r) for n, r in grouped if r]
        forests.append(
            build_forest(
                metric,
                sides,
                rows,
                percent=percent,
                overall=of_all.get(metric),
                interval=format_badge([one]),
                best=best_of(one.metric),
                first=i == 0,
                max_slices=count_shown_slices(i, len(rows)),
            )
        )
    return forests


def _build_slice_row(one: Comparison, decimals: int, sides: tuple[NamedSide, NamedSide]) -> MeasureRow:
    row = build_measure_row(one, format_key(one.keys), decimals=decimals, slices=True)
    row.reason = name_sides(row.reason, sides)
    row.sub = shorten_reason(row.reason)
    return row
