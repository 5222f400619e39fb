"""Differences as a person reads them: as many digits as their interval gives them, relative ones in percent."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..reading.interval import Interval

__all__ = ["Digits", "digits", "p_text", "spelled"]


class Digits(NamedTuple):
    """Writes differences: relative ones in percent, the half width of their interval with two digits."""

    decimals: int
    percent: bool

    def __call__(self, value: float, sign: str = "+") -> str:
        """Return a difference as a text."""
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else f"{value:+}"
        text = f"{100.0 * value if self.percent else value:{sign}.{self.decimals}f}"
        text = text.lstrip("+-") if not float(text) else text
        return f"{text} %" if self.percent else text


def digits(found: Interval, percent: bool) -> Digits:
    """Return how a difference with this interval is written."""
    half = (found.high - found.low) * (50.0 if percent else 0.5)
    if not (half > 0.0 and math.isfinite(half)):
        return Digits(1 if percent else 4, percent)
    exponent = int(f"{half:.1e}".split("e")[1])
    return Digits(min(max(1 - exponent, 0), 6), percent)


def spelled(found: Interval, percent: bool, always: bool = False) -> str:
    """Return a difference with its interval: +5.7 % (95 % always +3.8 % to +7.6 %); alone where there is none."""
    show = digits(found, percent)
    if found.reason:
        return show(found.estimate)
    share = f"{100.0 * found.confidence:.3g} %{' always' if always else ''}"
    return f"{show(found.estimate)} ({share} {show(found.low)} to {show(found.high)})"


def p_text(p: float) -> str:
    """Return a p-value as a text: one digit of small ones."""
    if math.isnan(p):
        return ""
    return "< 1e-15" if p < 1e-15 else f"{p:.0e}" if p < 1e-3 else f"{p:.3f}"
