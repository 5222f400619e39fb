"""Convert the metrics of an evaluation to rows for the scorecard and the slice chart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...inference.verdict import TOO_EARLY
from ...reports.headline import format_confidence
from ...reports.measure_rows import build_forest, choose_common_decimals, format_key, is_percent
from ...reports.page_model import Forest, MeasureRow, MeasureTable, NamedSide
from ...reports.scorecard_rows import MODEL, ScorecardRow, build_scorecard_row, build_scorecard_table
from ...reports.task_charts import COLOURS
from ..evaluation.evaluation import Evaluation, MetricRow

__all__ = ["Arms", "build_figures", "build_scorecard", "build_slice_forest", "format_badge", "is_rate"]

CONFIDENCE = 0.95
MAX_SLICES = 60  # the largest number of slices shown per slice column on a page
OWN_TRAFFIC = "own traffic"
Arms = dict[str, NamedSide]


def assign_colours(evaluation: Evaluation, definition_arms: Sequence[str] = ()) -> Arms:
    """Return the name and color index of each arm, as a dict keyed by arm; the control comes first."""
    treatments = list_treatments(evaluation)
    names = list(dict.fromkeys([*(a.arm for a in evaluation.arms), *definition_arms, *treatments]))
    ordered = [n for n in names if n not in treatments] + treatments
    return {name: NamedSide(name, i % COLOURS) for i, name in enumerate(ordered)}


def list_treatments(evaluation: Evaluation) -> list[str]:
    """Return the names of the treatments, in the order of the verdicts."""
    return list(dict.fromkeys([*(t.treatment for t in evaluation.verdicts), *(r.treatment for r in evaluation.table)]))


def format_badge(evaluation: Evaluation) -> str:
    """Return the label of the intervals on a page, such as "97.5 % always".

    "always" means that the intervals are valid at every look. The percentage is the confidence level of each
    treatment's intervals, corrected for the number of treatments.
    """
    return format_confidence(1.0 - (1.0 - CONFIDENCE) / max(len(list_treatments(evaluation)), 1), True)


def build_figures(evaluation: Evaluation, treatment: str, *, withheld: bool) -> list[tuple[str, MeasureRow]]:
    """Return the rows of a treatment's scorecard, each with its role, such as "guardrail".

    If `withheld` is true, the rows show no conclusions.
    """
    return [
        (row.role, build_scorecard_row(_build_scorecard_row(row, row.metric, row.role), turn=False, withheld=withheld))
        for row in evaluation.table
        if row.treatment == treatment
    ]


def build_scorecard(
    rows: Sequence[tuple[str, MeasureRow]], sides: tuple[NamedSide, NamedSide], badge: str
) -> MeasureTable:
    """Return the scorecard of a treatment: a table with one row for each metric, grouped by role."""
    return build_scorecard_table(rows, sides, badge, relative=True)


def build_slice_forest(
    rows: Sequence[MetricRow],
    all_rows: MetricRow | None,
    sides: tuple[NamedSide, NamedSide],
    badge: str,
    *,
    withheld: bool,
) -> Forest | None:
    """Return a chart of the difference in a metric by slice, grouped by slice column; None if there are no slices.

    `all_rows` is the table row of the metric over all data. If `withheld` is true, the chart shows no conclusions.
    """
    if not rows:
        return None
    decimals = choose_common_decimals([_half_width(r) for r in rows], True)
    groups: dict[str, list[MeasureRow]] = {}
    for row in rows:
        one = build_scorecard_row(
            _build_scorecard_row(row, format_key(list(row.slice.values())), ""), decimals, turn=True, withheld=withheld
        )
        one.sub, one.part = one.reason, _nan_if_none(row.share)
        groups.setdefault(" × ".join(row.slice), []).append(one)
    middle = None if all_rows is None or all_rows.change is None else all_rows.change
    turned = middle if middle is None or rows[0].better != "low" else -middle
    return build_forest(rows[0].metric, sides, list(groups.items()), percent=True, overall=turned, interval=badge,
                  best=rows[0].better, first=True, max_slices=MAX_SLICES)  # fmt: skip


def _build_scorecard_row(row: MetricRow, name: str, role: str) -> ScorecardRow:
    numbers = (row.control_value, row.value, row.change, row.low, row.high, row.bound)
    before, after, change, low, high, bound = map(_nan_if_none, numbers)
    is_early = row.word == TOO_EARLY
    if is_early:
        change = low = high = math.nan
    return ScorecardRow(
        name,
        role,
        row.better,
        row.margin,
        *(before, after, change, low, high, bound, math.nan),
        word=OWN_TRAFFIC if row.role == MODEL and not is_early else row.word,
        reason=row.reason,
        rows=row.rows,
        relative=True,
        rate=is_rate(row),
    )


def is_rate(row: MetricRow) -> bool:
    """Return whether the values in a row are shown as percentages."""
    return is_percent(row.tag or row.metric.rpartition("/")[2])


def _half_width(row: MetricRow) -> float:
    return (_nan_if_none(row.high) - _nan_if_none(row.low)) / 2


def _nan_if_none(value: float | None) -> float:
    return math.nan if value is None else float(value)
