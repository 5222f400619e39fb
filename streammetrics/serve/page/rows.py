"""From what is known of a metric to rows of the scorecard and of the forest, by the rules of the report."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...reports.families import COLOURS
from ...reports.figures import common_decimals, forest, in_percent, key_text
from ...reports.headline import interval_name
from ...reports.page_model import Figure, Figures, Forest, NamedSide
from ...reports.scorecard_rows import MODEL, ScorecardRow, card_of, row_of
from ..evaluation.evaluation import Evaluation, Row

__all__ = ["Arms", "badge_of", "figures_of", "forest_of", "is_rate", "scorecard_of"]

CONFIDENCE = 0.95
PLENTY = 60  # slices that a page shows of a column
OWN = "own traffic"
Arms = dict[str, NamedSide]


def arms_of(evaluation: Evaluation, definition_arms: Sequence[str] = ()) -> Arms:
    """Return every arm with its colour: first the control, then the treatments."""
    treatments = treatments_of(evaluation)
    names = list(dict.fromkeys([*(a.arm for a in evaluation.arms), *definition_arms, *treatments]))
    ordered = [n for n in names if n not in treatments] + treatments
    return {name: NamedSide(name, i % COLOURS) for i, name in enumerate(ordered)}


def treatments_of(evaluation: Evaluation) -> list[str]:
    """Return the treatments, in their order."""
    return list(dict.fromkeys([*(t.treatment for t in evaluation.verdicts), *(r.treatment for r in evaluation.table)]))


def badge_of(evaluation: Evaluation) -> str:
    """What the badge of intervals says; treatments share alpha."""
    return interval_name(1.0 - (1.0 - CONFIDENCE) / max(len(treatments_of(evaluation)), 1), True)


def figures_of(evaluation: Evaluation, treatment: str, *, withheld: bool) -> list[tuple[str, Figure]]:
    """Return the rows of a treatment, each with its role."""
    return [
        (row.role, row_of(_answer(row, row.metric, row.role), turn=False, withheld=withheld))
        for row in evaluation.table
        if row.treatment == treatment
    ]


def scorecard_of(rows: Sequence[tuple[str, Figure]], sides: tuple[NamedSide, NamedSide], badge: str) -> Figures:
    """Return the scorecard of a treatment."""
    return card_of(rows, sides, badge, relative=True)


def forest_of(
    rows: Sequence[Row], whole: Row | None, sides: tuple[NamedSide, NamedSide], badge: str, *, withheld: bool
) -> Forest | None:
    """Return the slices of one metric, by column."""
    if not rows:
        return None
    decimals = common_decimals([_half(r) for r in rows], True)
    groups: dict[str, list[Figure]] = {}
    for row in rows:
        one = row_of(_answer(row, key_text(list(row.slice.values())), ""), decimals, turn=True, withheld=withheld)
        one.sub, one.part = one.reason, _known(row.share)
        groups.setdefault(" × ".join(row.slice), []).append(one)
    middle = None if whole is None or whole.change is None else whole.change
    turned = middle if middle is None or rows[0].better != "low" else -middle
    return forest(rows[0].metric, sides, list(groups.items()), percent=True, whole=turned, interval=badge,
                  best=rows[0].better, first=True, plenty=PLENTY)  # fmt: skip


def _answer(row: Row, name: str, role: str) -> ScorecardRow:
    numbers = (row.control_value, row.value, row.change, row.low, row.high, row.bound)
    before, after, change, low, high, bound = map(_known, numbers)
    return ScorecardRow(
        name,
        role,
        row.better,
        row.margin,
        *(before, after, change, low, high, bound, math.nan),
        word=OWN if row.role == MODEL else row.word,
        reason=row.reason,
        rows=row.rows,
        relative=True,
        rate=is_rate(row),
    )


def is_rate(row: Row) -> bool:
    """Whether values of a metric are read in percent."""
    return in_percent(row.tag or row.metric.rpartition("/")[2])


def _half(row: Row) -> float:
    return (_known(row.high) - _known(row.low)) / 2


def _known(value: float | None) -> float:
    return math.nan if value is None else float(value)
