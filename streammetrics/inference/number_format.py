"""Format differences as text, with as many digits as their intervals support. Relative differences are in percent."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..reading.interval import Interval

__all__ = ["DifferenceFormat", "choose_format", "format_interval", "format_p_value"]

# Numbers of at least this size are shown with an exponent.
LARGE = 1e12


class DifferenceFormat(NamedTuple):
    """A text format for differences, with a fixed number of decimals, optionally in percent: "+0.0049" or "+5.7 %"."""

    decimals: int
    percent: bool

    def __call__(self, value: float, sign: str = "+") -> str:
        """Return a difference as text, without a sign if it rounds to 0.

        `sign` is the sign option of a Python format string: "+" writes plus and minus signs, "" only minus signs.
        """
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else f"{value:+}"
        shown = 100.0 * value if self.percent else value
        text = f"{shown:{sign}.{self.decimals}f}" if abs(shown) < LARGE else f"{shown:{sign}.4g}"
        text = text.lstrip("+-") if not float(text) else text
        return f"{text} %" if self.percent else text


def choose_format(interval: Interval, percent: bool) -> DifferenceFormat:
    """Return the format for a difference. The number of digits depends on the width of its interval.

    Without a finite interval, the format has 4 decimals, or 1 if it is in percent.
    """
    half = (interval.high - interval.low) * (50.0 if percent else 0.5)
    if not (half > 0.0 and math.isfinite(half)):
        return DifferenceFormat(1 if percent else 4, percent)
    # Show two significant digits of the half width, because further digits of the difference would be noise. Take the
    # exponent from the rounded half width, so that 0.0996 is treated like 0.10.
    exponent = int(f"{half:.1e}".split("e")[1])
    return DifferenceFormat(min(max(1 - exponent, 0), 6), percent)


def format_interval(interval: Interval, percent: bool, always: bool = False) -> str:
    """Return a difference with its interval, if it has one: "+5.7 % (95 % +3.8 % to +7.6 %)".

    With `percent`, the numbers are percentages. With `always`, the interval is marked as always-valid:
    "(95 % always +3.8 % to +7.6 %)".
    """
    show = choose_format(interval, percent)
    if interval.reason:
        return show(interval.estimate)
    share = f"{100.0 * interval.confidence:.3g} %{' always' if always else ''}"
    return f"{show(interval.estimate)} ({share} {show(interval.low)} to {show(interval.high)})"


def format_p_value(p: float) -> str:
    """Return a p-value as text, such as "0.012" or "2e-07"; "< 1e-15" if it is below 1e-15, and "" if it is NaN."""
    if math.isnan(p):
        return ""
    return "< 1e-15" if p < 1e-15 else f"{p:.0e}" if p < 1e-3 else f"{p:.3f}"
