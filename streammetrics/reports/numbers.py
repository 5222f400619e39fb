"""Format numbers for report pages: minus signs, thin spaces before %, and a suitable number of decimals."""

from __future__ import annotations

import math
from decimal import ROUND_UP, Decimal

__all__ = [
    "choose_decimals",
    "end_sentence",
    "format_bound",
    "format_count",
    "format_fixed",
    "format_number",
    "format_p_value",
    "format_share",
    "format_signed",
    "typeset",
]

NARROW = "\u202f"
MAX_DECIMALS = 6  # the largest number of decimals that is shown
LARGE = 1e12  # numbers of at least this size are shown with an exponent


def typeset(text: str) -> str:
    """Return the text with true minus signs and non-breaking thin spaces before percent signs."""
    return text.replace("-", "−").replace(" %", f"{NARROW}%")


def end_sentence(text: str) -> str:
    """Return a remark as a sentence, with a capital letter and a period.

    Hyphens are kept, because remarks contain options such as `--shares`.
    """
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}".replace(" %", f"{NARROW}%")


def choose_decimals(half: float, most: int = MAX_DECIMALS) -> int | None:
    """Return the number of decimals needed to show the half-width of an interval with two significant digits.

    Return None if the half-width is not positive and finite. More decimals would show noise, and fewer would hide part
    of the interval.
    """
    if not (half > 0.0 and math.isfinite(half)):
        return None
    return min(max(1 - int(f"{half:.1e}".split("e")[1]), 0), most)


def format_fixed(value: float | None, decimals: int, percent: bool = False) -> str:
    """Return a number with a fixed number of decimals, optionally as a percentage; "–" for None and NaN."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return typeset(f"{value:+}").replace("inf", "∞")
    shown = 100.0 * value if percent else value
    text = f"{shown:,.{decimals}f}" if abs(shown) < LARGE else f"{shown:.4g}"
    text = text.lstrip("-") if not text.strip("-0.,") else text
    return typeset(f"{text} %" if percent else text)


def format_number(value: float) -> str:
    """Return a number with four significant digits, such as "−0.02338" or "2.104e+28"; "–" for NaN."""
    return "–" if math.isnan(value) else typeset(f"{value:.4g}")


def format_signed(value: float | None, decimals: int, percent: bool = False) -> str:
    """Return a difference as text. A positive number begins with "+"; 0 has no sign."""
    text = format_fixed(value, decimals, percent)
    plain = value is None or not value > 0.0 or not text.strip("0.,%" + NARROW) or not math.isfinite(value)
    return text if plain else f"+{text}"


def format_share(value: float, decimals: int = 1) -> str:
    """Return a share as a percentage. A positive share that would be rounded to 0 is shown as "<0.1 %"."""
    least = 10.0 ** -(decimals + 2)
    return f"<{format_fixed(least, decimals, True)}" if 0.0 < value < least / 2 else format_fixed(value, decimals, True)


def format_count(value: float | None) -> str:
    """Return a count with thousands separators; empty for None."""
    return "" if value is None else f"{value:,.0f}"


def format_p_value(p: float) -> str:
    """Return a p-value as text: two decimals, three below 0.1, and "<0.001" below 0.001; "–" for NaN."""
    if math.isnan(p):
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def format_bound(half: float | None) -> str:
    """Return a certified bound as text, such as "±0.0012", with two significant digits.

    The text is "exact" for 0 and empty for None and NaN.
    """
    if half is None or math.isnan(half):
        return ""
    if half <= 0.0:
        return "exact"
    if math.isinf(half):
        return "±∞"
    # Round the bound up, because a bound that is rounded down may be too small. Use decimal arithmetic, which has no
    # rounding errors of its own.
    exact = Decimal(half)
    step = Decimal(1).scaleb(exact.adjusted() - 1)
    up = exact.quantize(step, rounding=ROUND_UP)
    return f"±{up:f}" if Decimal("1e-7") <= up < Decimal(LARGE) else f"±{up:.1e}"
