"""Build the rows of a scorecard from the numbers of each metric, for reports and for the dashboard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..inference.questions import GUARDRAIL, PRIMARY, SECONDARY
from .headline import format_finite_bound, format_limit
from .measure_rows import build_shared_axis, collect_reasons, format_direction, place_rows
from .numbers import choose_decimals, format_fixed, format_p_value, format_signed
from .page_model import MeasureRow, MeasureTable, NamedSide, RowAxis, RowGroup

__all__ = ["FOREST", "MODEL", "ScorecardRow", "build_scorecard_row", "build_scorecard_table"]

MODEL = "model"
DECIDES = {
    PRIMARY: ("Primary", "decides"),
    GUARDRAIL: ("Guardrails", "must not cross the limit"),
    SECONDARY: ("Also watched", "does not affect the verdict"),
    MODEL: (
        "Model metrics",
        "each arm on its own traffic: not an effect of the treatment; does not affect the verdict",
    ),
}
FOREST = "Largest impact first. Dotted: the difference of all rows. Slices explain; they do not decide."
CORRECTION = "The words and p-values allow for the number of slices and metrics (Benjamini-Hochberg)."
HATCHED = "; the forbidden side is hatched"
GUARDRAIL_NOTE = (
    "A guardrail is held when its whole interval is on the right side of its limit, and breached when its whole "
    "interval is beyond the limit."
)
ONE_SCALE = "Differences are in percent of the control, all on one scale."
OWN_SCALES = "Each row of the picture has its own scale, with zero in the middle; better is to the right."
# A certified bound of at most this size can only come from the rounding of floating-point sums, so the value is shown
# as exact.
FEW = 1e-12
MAX_DIGITS = 6  # the largest number of decimals of values


class ScorecardRow(NamedTuple):
    """The numbers of one metric for a treatment and the control; a number is NaN if it is unknown.

    Parameters
    ----------
    name, role, better : str
        The name of the metric or slice, its role, and which values are better.
    margin : float or None
        The margin of a guardrail.
    before, after : float
        The values of the control and of the treatment.
    change, low, high, bound, p : float
        The difference, the limits of its interval, its certified bound, and its p-value.
    word, reason : str
        The conclusion, such as "better", and the reason if there is no conclusion.
    rows : int
        The number of rows in both arms together.
    relative, rate : bool
        Whether the difference is relative, and whether values are shown as percentages.
    note : str
        A remark below the name.
    """

    name: str
    role: str
    better: str
    margin: float | None
    before: float
    after: float
    change: float
    low: float
    high: float
    bound: float
    p: float
    word: str
    reason: str
    rows: int
    relative: bool
    rate: bool
    note: str = ""


def build_scorecard_row(
    row: ScorecardRow, decimals: int | None = None, *, turn: bool, withheld: bool = False
) -> MeasureRow:
    """Return the page row for one metric.

    If `turn` is true and lower values are better, the sign of the difference is reversed, so that better results are on
    the right. If `withheld` is true, the row shows no conclusion. `decimals` is the number of decimals for the
    difference. By default, it is chosen from the width of the interval.
    """
    # If lower values are better and `turn` is false, the difference keeps its sign, so a guardrail has an upper limit.
    half = (row.high - row.low) / 2
    if decimals is None:
        own = choose_decimals(half * (100 if row.relative else 1))
        decimals = (1 if row.relative else 4) if own is None else own
    down = turn and row.better == "low"
    guarded = row.role == GUARDRAIL and row.better != "one"
    is_upper_limit = row.better == "low" and not down
    some = math.isfinite(half)
    digits = _choose_value_decimals(row, half, decimals)
    beyond = row.bound if math.isfinite(row.bound) else 0.0
    clear = some and (row.low - beyond > 0.0 or row.high + beyond < 0.0) and not row.p > 1.0
    return MeasureRow(
        row.name,
        "; ".join(t for t in (format_direction(row.better), row.note) if t),
        format_fixed(row.after, digits, row.rate),
        format_fixed(row.before, digits, row.rate),
        format_signed(row.change, decimals, row.relative),
        "",
        f"±{format_fixed(half, decimals, row.relative)}" if some else "",
        f"{format_signed(row.low, decimals, row.relative)} to {format_signed(row.high, decimals, row.relative)}"
        if some
        else "",
        format_p_value(row.p) if math.isfinite(row.p) else "",
        format_finite_bound(0.0 if row.bound <= FEW else row.bound * (100 if row.relative else 1))
        + ("\u202f%" if row.relative and row.bound > FEW else ""),
        format_limit(row.role, row.better, row.margin, row.relative, row.before, rate=row.rate),
        bold=clear and not withheld,
        word="withheld" if withheld else row.word,
        reason=row.reason,
        ends=(-row.high, -row.change, -row.low) if down else (row.low, row.change, row.high),
        direction=-1.0 if down else 1.0,
        margin=(row.margin or 0.0) * (1.0 if is_upper_limit else -1.0) if guarded else None,
        is_upper_limit=is_upper_limit,
        rows=row.rows,
    )


def _choose_value_decimals(row: ScorecardRow, half: float, decimals: int) -> int:
    """Return the number of decimals for the values in a row.

    The number is chosen from `half`, the half-width of the interval of the difference. If the difference is relative,
    values get more decimals until they agree with the difference as it is shown, with `decimals` decimals. For example,
    values shown as 105 and 104 would contradict a difference of -2 %.
    """
    size = half * abs(row.before) if row.relative else half
    own = choose_decimals(size * (100 if row.rate else 1))
    digits = (2 if row.rate else 4) if own is None else min(own, MAX_DIGITS)
    shown = format_fixed(row.change, decimals, True)
    # If the difference was adjusted for covariates, even the unrounded values do not agree with it.
    if not row.relative or _format_difference(row.before, row.after, decimals) != shown:
        return digits
    shift = 2 if row.rate else 0
    rounded = ((d, round(row.before, d + shift), round(row.after, d + shift)) for d in range(digits, MAX_DIGITS))
    return next((d for d, a, b in rounded if _format_difference(a, b, decimals) == shown), MAX_DIGITS)


def _format_difference(before: float, after: float, decimals: int) -> str:
    return format_fixed(after / before - 1.0 if before else math.nan, decimals, True)


def build_scorecard_table(
    rows: Sequence[tuple[str, MeasureRow]], sides: tuple[NamedSide, NamedSide], interval: str, *, relative: bool
) -> MeasureTable:
    """Return the table of a scorecard.

    `rows` are pairs of a role, such as "guardrail", and a row. The table has one group of rows for each role. `interval`
    is the label of the intervals, such as "95 %". If `relative` is true, all rows share one axis.
    """
    every = [r for _, r in rows]
    axis: RowAxis | None = None
    if relative:
        axis, low, high = build_shared_axis(every, "", True, most=4.0, steps=2.5)
        place_rows(every, shared=axis, low=low, high=high)
    else:
        place_rows(every, shared=None)
    groups: list[RowGroup] = []
    for role, (title, note) in DECIDES.items():
        some = [r for k, r in rows if k == role]
        # Explain the hatching only if it appears in a row. The limits of a calibration ratio, which are on both sides
        # of 1, are not hatched.
        more = HATCHED if any(r.margin is not None for r in some) else ""
        groups += [RowGroup(title, note + more, some)] if some else []
    notes = [ONE_SCALE if axis is not None else OWN_SCALES]
    notes += [GUARDRAIL_NOTE] if any(r.limit for r in every) else []
    notes += collect_reasons(every)
    limits = any(r.limit for r in every)
    return MeasureTable("The metrics of both arms, with the difference", sides, groups, axis, interval, limits, notes)
