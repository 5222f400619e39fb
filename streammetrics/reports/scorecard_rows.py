"""From what is known of a metric of an experiment to a row of its scorecard: the same for a report and for a dashboard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..inference.scorecard import GUARDRAIL, PRIMARY, SECONDARY
from .figures import reasons_of, shared_axis, spans
from .headline import bound_text, limit_text
from .numbers import decimals_of, fixed, p_text, signed
from .page_model import Figure, Figures, Group, NamedSide, RowAxis

__all__ = ["FOREST", "MODEL", "ScorecardRow", "card_of", "row_of"]

MODEL = "model"
DECIDES = {
    PRIMARY: ("Primary", "decides"),
    GUARDRAIL: ("Guardrails", "may not cross the limit; hatched: forbidden"),
    SECONDARY: ("Also watched", "decides nothing"),
    MODEL: ("Of the model", "each arm on its own traffic: no effect of the treatment, decides nothing"),
}
FOREST = "Largest impact first. Dotted: the difference of all rows. Slices explain; they do not decide."
ONE_SCALE = ("Differences are relative, all on one scale, in percent. A guardrail is held when its whole "
             "interval is on the right side of its limit, and breached when all of it is beyond.")  # fmt: skip
OWN_SCALES = ("Each row of the picture has its own scale, with zero in the middle; right is better. A guardrail is held "
              "when its interval is on the right side of its limit, and breached when all of it is beyond.")  # fmt: skip
FEW = 1e-12


class ScorecardRow(NamedTuple):
    """One metric of a treatment beside the control; numbers are NaN where they are not known.

    Parameters
    ----------
    name, role, better : str
        Which metric or slice, what it decides, and which values are good.
    margin : float or None
        Of a guardrail.
    before, after : float
        Of the control, and of the treatment.
    change, low, high, bound, p : float
        The difference, its interval, what may be off by what was counted, and its p-value.
    word, reason : str
        What it says; and why it does not.
    rows : int
        Of both arms.
    relative, rate : bool
        Whether the difference is relative; whether values are read in percent.
    note : str
        What is said below the name, beside which values are good.
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


def row_of(one: ScorecardRow, decimals: int | None = None, *, turn: bool, withheld: bool = False) -> Figure:
    """Return the row of a metric; turned, so that right is better, where lower is."""
    half = (one.high - one.low) / 2
    if decimals is None:
        own = decimals_of(half * (100 if one.relative else 1))
        decimals = (1 if one.relative else 4) if own is None else own
    down = turn and one.better == "low"
    guarded = one.role == GUARDRAIL and one.better != "one"
    over = one.better == "low" and not down
    some = math.isfinite(half)
    digits = _digits(half, one.before, one.relative, one.rate, decimals)
    beyond = one.bound if math.isfinite(one.bound) else 0.0
    clear = some and (one.low - beyond > 0.0 or one.high + beyond < 0.0) and not one.p > 1.0
    return Figure(
        one.name,
        "; ".join(t for t in (_direction(one.better), one.note) if t),
        fixed(one.after, digits, one.rate),
        fixed(one.before, digits, one.rate),
        signed(one.change, decimals, one.relative),
        "",
        f"±{fixed(half, decimals, one.relative)}" if some else "",
        f"{signed(one.low, decimals, one.relative)} to {signed(one.high, decimals, one.relative)}" if some else "",
        p_text(one.p) if math.isfinite(one.p) else "",
        bound_text(0.0 if one.bound <= FEW else one.bound * (100 if one.relative else 1))
        + ("\u202f%" if one.relative and one.bound > FEW else ""),
        limit_text(one.role, one.better, one.margin, one.relative),
        bold=clear and not withheld,
        word="withheld" if withheld else one.word,
        reason=one.reason,
        ends=(-one.high, -one.change, -one.low) if down else (one.low, one.change, one.high),
        turned=-1.0 if down else 1.0,
        margin=(one.margin or 0.0) * (1.0 if over else -1.0) if guarded else None,
        over=over,
        rows=one.rows,
    )


def _direction(better: str) -> str:
    return {"high": "↑ higher is better", "low": "↓ lower is better"}.get(better, "→ 1 is best")


def _digits(half: float, value: float, relative: bool, rates: bool, decimals: int) -> int:
    """Decimals of values: as many as their difference gives them."""
    size = half * abs(value) if relative else half
    found = decimals_of(size * (100 if rates else 1))
    return (2 if rates else 4) if found is None else min(found, 6)


def card_of(
    rows: Sequence[tuple[str, Figure]], sides: tuple[NamedSide, NamedSide], interval: str, *, relative: bool
) -> Figures:
    """Return the scorecard of rows, each with its role."""
    every = [r for _, r in rows]
    axis: RowAxis | None = None
    if relative:
        axis, low, high = shared_axis(every, "", True, most=4.0)
        spans(every, shared=axis, low=low, high=high)
    else:
        spans(every, shared=None)
    groups = [
        Group(*DECIDES[role], [r for k, r in rows if k == role]) for role in DECIDES if any(k == role for k, _ in rows)
    ]
    notes = [ONE_SCALE if axis is not None else OWN_SCALES, *reasons_of(every)]
    limits = any(r.limit for r in every)
    return Figures("The measures of both arms, with the difference", sides, groups, axis, interval, limits, notes)
