"""Build the scorecard sections of a report page: verdict, metrics by role, slices and experiment arms."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ..collect.accumulator import definition_of
from ..collect.metric_like import states_of
from ..inference.compare import collect_samples, collect_slice_columns
from ..inference.multiple import SLICE_CORRECTION
from ..inference.questions import Question
from ..inference.scorecard import Scorecard
from ..inference.verdict import choose_missing_word
from ..numerics.slice_keys import format_atom
from .curve_charts import CHARTS_NOTE, build_charts, build_top_rows
from .differences import describe_breach_confidence, describe_joint_confidence
from .headline import build_scorecard_headline, format_confidence
from .measure_rows import (
    build_forest,
    build_hero,
    choose_common_decimals,
    count_shown_slices,
    describe_average,
    format_key,
    is_percent,
    name_sides,
    read_tag,
    shorten_reason,
)
from .numbers import end_sentence, format_count, typeset
from .page_model import Forest, MeasureRow, NamedSide, Page, PagePart
from .records import is_sliced, merge_cells, remove_shards
from .scorecard_rows import CORRECTION, FOREST, ScorecardRow, build_scorecard_row, build_scorecard_table
from .task_charts import COLOURS
from .user_split import UserSplit

__all__ = ["add_scorecards", "build_arm_part"]


def add_scorecards(
    page: Page, cards: Sequence[tuple[str, Scorecard]], warnings: Sequence[str], split: UserSplit | None = None
) -> None:
    """Add scorecard sections to a page. The verdict of the first scorecard becomes the headline of the page.

    Scorecards of one experiment, such as one over all rows and one by slice, have the same totals (metrics with all
    slices merged). The page shows the totals once, and then the slices of each of these scorecards. `warnings` are
    sentences about dropped rows, and `split` gives the number of users in each arm, if users were counted.
    """
    shown: list[Scorecard] = []
    later: list[PagePart] = []
    for i, (name, card) in enumerate(cards):
        is_new = all(card.totals is not one.totals for one in shown)
        shown.append(card)
        colours = {arm: n % COLOURS for n, arm in enumerate([card.control, *card.progress])}
        rows_of = {format_atom(arm): _count_rows(card, arm) for arm in colours}
        colour_of = {format_atom(arm): number for arm, number in colours.items()}
        questions = {q.name: q for q in card.options.questions}
        metrics = _collect_metrics(card)
        figures: dict[Any, list[tuple[str, MeasureRow]]] = {arm: [] for arm in card.progress}
        for record in card.table():
            if record["role"]:
                row = _build_row(
                    card,
                    record,
                    questions[record["metric"]],
                    metrics[record["metric"]],
                    record["metric"],
                    turn=not card.options.relative,
                )
                figures[record["treatment"]].append((record["role"], row))
        forests, left = _build_forests(card, questions, metrics, figures)
        if i == 0:
            page.headline = build_scorecard_headline(
                card,
                {a: [r for _, r in rows] for a, rows in figures.items()},
                colours,
                forests,
                warnings,
                [note for _, one in cards if one.totals is card.totals for some in one.notes.values() for note in some],
                has_users=bool(split or _find_split(card)),
            )
            page.sides = tuple(NamedSide(format_atom(a), n) for a, n in colours.items())
            page.badge = _format_badge(card)
            page.joint = _describe_confidence(card)
        if is_new:
            page.parts.append(build_arm_part(split or _find_split(card), rows_of, colour_of))
        for arm, rows in figures.items() if is_new else ():
            both = _name_sides(card, arm)
            data = build_scorecard_table(rows, both, _format_badge(card), relative=card.options.relative)
            if i == 0 and page.hero is None and rows and not math.isnan(rows[0][1].ends[1]):
                page.hero = build_hero(rows[0][1], card.options.relative)
            several = len(figures) > 1 or name
            title = " ".join(
                ["Scorecard", *([f"of {name}"] if name else []), *([f"({format_atom(arm)})"] if several else [])]
            )
            page.parts.append(PagePart("scorecard", title, "score" if not several else "", data))
        if forests:
            # Explain the forest plots only in the first slice section on the page.
            explained = any(part.kind == "forests" for part in page.parts)
            note = " ".join([*([] if explained else [FOREST, CORRECTION]), *left])
            title = f"Where it differs by {' and '.join(collect_slice_columns(card.arms[card.control]))}"
            page.parts.append(PagePart("forests", title, "slices", forests, note))
        if is_new:
            sources = {format_atom(arm): remove_shards(merge_cells(card.arms[arm])) for arm in colours}
            if charts := build_charts(sources):
                later.append(PagePart("charts", "Curves by arm", "", (charts, build_top_rows(sources)), CHARTS_NOTE))
    page.parts += later


def _find_split(card: Scorecard) -> UserSplit | None:
    """Return the number of users in each arm, from the sample ratio test of a scorecard; None if there was no test."""
    return None if card.ratio is None else UserSplit(card.ratio, is_tested=True)


def _collect_metrics(card: Scorecard) -> dict[str, Any]:
    return {s.name: s.metric for s in collect_samples(card.arms[card.control])}


def _format_badge(card: Scorecard) -> str:
    return format_confidence(
        1.0 - (1.0 - card.options.confidence) / len(card.progress), any(p.sequential for p in card.progress.values())
    )


def _describe_confidence(card: Scorecard) -> str:
    """Return sentences that say why intervals have a higher confidence level than requested; "" if none do."""
    together = format_confidence(card.options.confidence, False)
    joint = describe_joint_confidence(len(card.progress), format_atom(card.control), together)
    sentences = [f"Each interval has this level because {joint}."] if len(card.progress) > 1 else []
    breach = describe_breach_confidence(card.verdicts.values())
    return " ".join([*sentences, *([end_sentence(breach)] if breach else [])])


def _build_row(
    card: Scorecard, record: Mapping[str, Any], question: Question, metric: Any, name: str, decimals: int | None = None, *,
    turn: bool,
) -> MeasureRow:  # fmt: skip
    """Return the table row of a metric or slice.

    If `turn` is true and lower values of the metric are better, the sign of the difference is reversed. A better result
    is thus always to the right of zero in the plot. `name` is the name of the metric or slice. `decimals` is the number
    of decimals of the difference; by default, it is chosen from the width of the interval.
    """
    before, after, change, low, high, bound, p = (
        float(record[c]) for c in ("control_value", "value", "change", "low", "high", "bound", "adjusted")
    )
    one = ScorecardRow(
        name,
        question.role,
        question.better,
        question.margin,
        *(before, after, change, low, high, bound, p),
        word=str(record["word"] or choose_missing_word(record["reason"])),
        reason=name_sides(str(record["reason"] or ""), _name_sides(card, record["treatment"])),
        rows=int(record["rows"]),
        relative=bool(record["relative"]),
        rate=is_percent(read_tag(metric)),
        note=describe_average(metric),
    )
    return build_scorecard_row(
        one, decimals, turn=turn, withheld=card.verdicts[record["treatment"]].decision == "withheld"
    )


def _build_forests(
    card: Scorecard, questions: Mapping[str, Question], metrics: Mapping[str, Any],
    figures: Mapping[Any, Sequence[tuple[str, MeasureRow]]],
) -> tuple[list[Forest], list[str]]:  # fmt: skip
    """Return a forest plot (one interval for each slice) for each metric and treatment, and a list of remarks.

    Each remark gives a reason why slices cannot be compared, and the number of slices affected.
    """
    if not is_sliced(card.arms[card.control]):
        return [], []
    forests: list[Forest] = []
    table = card.slices(SLICE_CORRECTION)
    known = [r for r in table if r["role"]]
    for arm in card.progress:
        overall = {
            r.name: r.ends[1] * (-1.0 if r.is_upper_limit and card.options.relative else 1.0) for _, r in figures[arm]
        }
        for i, name in enumerate(questions):
            rows = [r for r in known if r["treatment"] == arm and r["metric"] == name]
            decimals = choose_common_decimals([(r["high"] - r["low"]) / 2 for r in rows], card.options.relative)
            keys = [format_key([r[c] for c in table.by]) for r in rows]
            slice_rows = [
                _build_row(card, r, questions[name], metrics[name], k, decimals, turn=True)
                for k, r in zip(keys, rows, strict=True)
            ]
            for one in slice_rows:
                one.sub, one.margin = shorten_reason(one.reason), None
            both = _name_sides(card, arm)
            title = name if len(card.progress) == 1 else f"{name} ({format_atom(arm)})"
            forests.append(
                build_forest(
                    title,
                    both,
                    [(" × ".join(table.by), slice_rows)],
                    percent=card.options.relative,
                    overall=overall.get(name),
                    interval=_format_badge(card),
                    best=questions[name].better,
                    first=not forests,
                    max_slices=count_shown_slices(i, 1),
                )
            )
    missing = [r for r in table if not r["role"]]
    reason_counts = Counter(name_sides(r["reason"], _name_sides(card, r["treatment"])) for r in missing)
    return forests, [f"Not compared, because {why}: {n:,}." for why, n in reason_counts.items()]


def _name_sides(card: Scorecard, arm: Any) -> tuple[NamedSide, NamedSide]:
    """Return the names and color indices of the two sides of a comparison: the treatment, then the control."""
    return NamedSide(format_atom(arm), (1 + list(card.progress).index(arm)) % COLOURS), NamedSide(
        format_atom(card.control), 0
    )


def build_arm_part(
    split: UserSplit | None,
    rows_of: Mapping[str, int] = MappingProxyType({}),
    colours: Mapping[str, int] = MappingProxyType({}),
) -> PagePart:
    """Return the section about arms: the numbers of rows and users and the share of users in each arm, and remarks.

    Parameters
    ----------
    split : UserSplit or None
        The number of users in each arm; None if users were not counted.
    rows_of : dict of str to int
        The number of rows in each arm; empty if unknown.
    colours : dict of str to int
        The color index of each arm. An arm that is not listed uses its position in the table.
    """
    texts = {} if split is None else split.describe_arms()
    heads = [*(["rows"] if rows_of else []), *([] if split is None else split.heads)]
    rows = []
    for i, name in enumerate(dict.fromkeys([*colours, *texts])):
        counts = [format_count(rows_of.get(name, 0))] if rows_of else []
        empty = [""] * (len(heads) - len(counts))
        side = NamedSide(name, colours.get(name, i % COLOURS))
        rows.append((side, [*counts, *map(typeset, texts.get(name, empty))]))
    remarks = [] if split is None else split.list_remarks()
    data = {"heads": heads, "rows": rows, "remarks": list(map(end_sentence, remarks))}
    return PagePart("arms", "Arms", "arms", data, "" if split is None else f"{split.total:,.0f} users so far.")


def _count_rows(card: Scorecard, arm: Any) -> int:
    states = states_of(card.arms[arm])
    reads = definition_of(card.arms[arm]).reads
    return max((int(np.sum(s.row_counts)) for s in states[: max(1, len(reads) // 2)]), default=0)
