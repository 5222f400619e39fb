"""Numbers as a page prints them: true minus, thin space before the percent sign, as many decimals as an interval gives."""

from __future__ import annotations

import math
from decimal import ROUND_UP, Decimal

__all__ = ["count", "decimals_of", "fixed", "p_text", "proof", "share", "signed", "typeset"]

NARROW = "\u202f"
MOST = 6  # decimals


def typeset(text: str) -> str:
    """Return a text of numbers with true minus signs, and spaces before percent signs that do not break."""
    return text.replace("-", "−").replace(" %", f"{NARROW}%")


def decimals_of(half: float, most: int = MOST) -> int | None:
    """Return how many decimals show half an interval with two digits; None where there is none."""
    if not (half > 0.0 and math.isfinite(half)):
        return None
    return min(max(1 - int(f"{half:.1e}".split("e")[1]), 0), most)


def fixed(value: float | None, decimals: int, percent: bool = False) -> str:
    """Return a number with these decimals; in percent, of a share."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return typeset(f"{value:+}").replace("inf", "∞")
    shown = 100.0 * value if percent else value
    text = f"{shown:,.{decimals}f}"
    text = text.lstrip("-") if not text.strip("-0.,") else text
    return typeset(f"{text} %" if percent else text)


def signed(value: float | None, decimals: int, percent: bool = False) -> str:
    """Return a difference: always with a sign, but 0."""
    text = fixed(value, decimals, percent)
    plain = value is None or not value > 0.0 or not text.strip("0.,%" + NARROW) or not math.isfinite(value)
    return text if plain else f"+{text}"


def share(value: float, decimals: int = 1) -> str:
    """Return a share in percent; not 0 where there is some."""
    least = 10.0 ** -(decimals + 2)
    return f"<{fixed(least, decimals, True)}" if 0.0 < value < least / 2 else fixed(value, decimals, True)


def count(value: float | None) -> str:
    """Return a number of things."""
    return "" if value is None else f"{value:,.0f}"


def p_text(p: float) -> str:
    """Return a p-value: three decimals of small ones, else two."""
    if math.isnan(p):
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def proof(half: float | None) -> str:
    """Return half the width of certified bounds with two digits, rounded up; "exact" where there is nothing to bound."""
    if half is None or math.isnan(half):
        return ""
    if half <= 0.0:
        return "exact"
    if math.isinf(half):
        return "±∞"
    exact = Decimal(half)
    step = Decimal(1).scaleb(exact.adjusted() - 1)
    up = exact.quantize(step, rounding=ROUND_UP)
    return f"±{up:f}" if up >= Decimal("1e-7") else f"±{up:.1e}"
