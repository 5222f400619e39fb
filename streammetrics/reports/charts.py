"""Describe charts as plain data: axes with ticks, and layers of lines, points and bands.

The report page draws this data as SVG, and `plot` draws the same data with matplotlib.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .numbers import format_fixed, format_signed, typeset

__all__ = [
    "Area",
    "Band",
    "Chart",
    "ChartAxis",
    "ChartLine",
    "ColourKey",
    "Rule",
    "Whiskers",
    "category_axis",
    "linear_axis",
    "logarithmic_axis",
]

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LONG_LABEL = 9  # if a label has more characters, the labels of its axis are written with an exponent


class ChartAxis(NamedTuple):
    """The range and the ticks of a chart axis.

    Parameters
    ----------
    low, high : float
        The lower and upper ends of the axis.
    log : bool
        Whether the axis is logarithmic.
    ticks : tuple of (value, text)
        The positions of the ticks, and their labels.
    """

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def place(self, values: Any) -> Any:
        """Return the positions of values on the axis, from 0 (lower end) to 1 (upper end).

        On a logarithmic axis, the position of zero or a negative value is NaN.
        """
        v = np.asarray(values, float)
        if not self.log:
            return (v - self.low) / (self.high - self.low)
        with np.errstate(divide="ignore", invalid="ignore"):
            places = (np.log(v) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return np.where(np.isfinite(places), places, np.nan)


def linear_axis(low: float, high: float, *, percent: bool = False, sign: bool = False, most: float = 5.5) -> ChartAxis:
    """Return a linear axis from `low` to `high` with ticks at round numbers.

    The ticks divide the axis into at most `most` steps. If `percent` is true, the labels of the ticks are
    percentages. If `sign` is true, the labels of positive values begin with "+".
    """
    low, high = float(low), float(high)
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        low, high = (low, low + 1.0) if math.isfinite(low) else (0.0, 1.0)
    # Choose the smallest round step that gives at most `most` intervals. Every tick is a multiple of the step, and has
    # as many decimals as the step.
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step *= next(m for m in STEPS if (high - low) / (step * m) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    shown = step * (100 if percent else 1)
    decimals = next((d for d in range(15) if math.isclose(round(shown, d), shown, rel_tol=1e-9)), 15)
    write = format_signed if sign else format_fixed
    values = [i * step for i in range(first, last + 1)]
    texts = [write(v, decimals, percent) if v else "0" for v in values]
    if max(map(len, texts), default=0) > LONG_LABEL:
        # Write the labels with an exponent. They need all digits from the leading digit of the largest value to the
        # digit of the step. With fewer digits, adjacent ticks would have the same label.
        size = math.floor(math.log10(max(abs(low), abs(high)))) - math.floor(math.log10(step))
        short = [format_exponent(v, size + 1, sign=sign, percent=percent) for v in values]
        texts = min(texts, short, key=lambda some: max(map(len, some)))
    return ChartAxis(low, high, False, tuple(zip(values, texts, strict=True)))


def format_exponent(value: float, decimals: int, *, sign: bool = False, percent: bool = False) -> str:
    """Return a tick label in exponential notation, such as "2.5e+47", without trailing zeros."""
    digits, _, exponent = f"{value * 100 if percent else value:{'+' if sign else ''}.{decimals}e}".partition("e")
    digits = digits.rstrip("0").rstrip(".")
    return typeset(f"{digits}e{exponent}{' %' if percent else ''}") if value else "0"


def logarithmic_axis(low: float, high: float, *, percent: bool = False) -> ChartAxis:
    """Return a logarithmic axis with ticks at round numbers (at least four ticks, if possible)."""
    low = low if low > 0.0 and math.isfinite(low) else 1e-3
    high = high if high > low * 1.001 and math.isfinite(high) else low * 10.0
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for marks in (
        (1,),
        (1, 3),
        (1, 2, 5),
        (1, 2, 3, 5),
        (1, 1.5, 2, 3, 4, 5, 6, 8),
        tuple(1 + i / 10 for i in range(90)),
    ):
        ticks = [m * 10.0**d for d in decades for m in marks if low * 0.999 <= m * 10.0**d <= high * 1.001]
        if len(ticks) >= 4:
            break
    if len(ticks) > 7:
        ticks = ticks[:: math.ceil(len(ticks) / 6)]
    return ChartAxis(low, high, True, tuple((v, format_tick(v, percent)) for v in ticks))


def category_axis(names: Sequence[str], most: int = 7) -> ChartAxis:
    """Return an axis of equally spaced categories.

    If there are more than `most` categories, only every second (or third, …) category has a label, so that there are
    at most `most` labels.
    """
    every = max(1, math.ceil(len(names) / most))
    ticks = tuple((float(i), name) for i, name in enumerate(names) if i % every == 0)
    return ChartAxis(-0.5, max(len(names), 1) - 0.5, False, ticks)


def format_tick(value: float, percent: bool = False) -> str:
    """Return the label of a tick, such as "0.05" or "5 %", without trailing zeros."""
    shown = value * 100 if percent else value
    decimals = max(0, 1 - math.floor(math.log10(shown) + 1e-9)) if shown > 0 else 0
    text = f"{shown:,.{min(decimals, 9)}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{text}\u202f%" if percent else text


class ChartLine(NamedTuple):
    """A line through points.

    `number` is the color index of the model; None means black. `marks` are the indices of the points that have a
    marker. If `steps` is true, the line is drawn as a step function.
    """

    x: Any
    y: Any
    number: int | None = None
    marks: Sequence[int] = ()
    steps: bool = False


class Area(NamedTuple):
    """A step function with the area below it filled, such as a histogram; `number` is the color index of the model."""

    x: Any
    y: Any
    number: int | None = None


class Band(NamedTuple):
    """The filled area between a lower and an upper line, such as a confidence band; `number` is the color index."""

    x: Any
    low: Any
    high: Any
    number: int | None = None


class Whiskers(NamedTuple):
    """Points with error bars from `low` to `high`.

    A point whose limits are NaN has no error bar. Points for which the boolean array `quiet` is true are pale. `number`
    is the color index of the model; None means black.
    """

    x: Any
    y: Any
    low: Any
    high: Any
    number: int | None = None
    quiet: Any = None


class Rule(NamedTuple):
    """A reference line, such as the diagonal of a random classifier. It is dotted unless `solid` is true."""

    x: Sequence[float]
    y: Sequence[float]
    name: str = ""
    solid: bool = False


class ColourKey(NamedTuple):
    """An entry of the legend: the index of a color, and the text beside it."""

    number: int
    text: str


@dataclass
class Chart:
    """The data of a chart: texts, axes and layers.

    Parameters
    ----------
    title, note : str
        The title, and a remark in small print below it.
    summary : str
        One sentence about the result.
    x, y : ChartAxis
        The axes.
    xlabel, ylabel : str
        The labels of the axes.
    layers : list
        The lines, areas, bands, whiskers and rules, in the order in which they are drawn.
    key : list of ColourKey
        The legend.
    right : tuple of (value, text)
        The ticks of a second y axis on the right, whose label is `rightlabel`.
    readings : list of (x, text)
        The tooltips: a text for each x value, from left to right.
    alternative : Chart, optional
        The same chart with different axes, such as linear rather than logarithmic ones.
    """

    title: str
    note: str
    summary: str
    x: ChartAxis
    y: ChartAxis
    xlabel: str
    ylabel: str
    layers: list[Any]
    key: list[ColourKey] = field(default_factory=list)
    right: tuple[tuple[float, str], ...] = ()
    rightlabel: str = ""
    readings: list[tuple[float, str]] = field(default_factory=list)
    alternative: Chart | None = None
