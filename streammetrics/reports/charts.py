"""What a picture shows, as plain data: axes with their ticks, and lines, dots and bands on them.

The page draws these as SVG, and `plot` with matplotlib; so both show the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .numbers import fixed, signed

__all__ = [
    "Area",
    "Band",
    "Chart",
    "ChartAxis",
    "ChartLine",
    "ColourKey",
    "Rule",
    "Whiskers",
    "linear",
    "logarithmic",
    "stations",
]

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


class ChartAxis(NamedTuple):
    """An axis.

    Parameters
    ----------
    low, high : float
        Its ends.
    log : bool
        Whether equal steps are equal ratios.
    ticks : tuple of (value, text)
        What is written beside it.
    """

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def place(self, values: Any) -> Any:
        """Return where values are, from 0 to 1; NaN where a logarithm has none."""
        v = np.asarray(values, float)
        if not self.log:
            return (v - self.low) / (self.high - self.low)
        with np.errstate(divide="ignore", invalid="ignore"):
            made = (np.log(v) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return np.where(np.isfinite(made), made, np.nan)


def linear(low: float, high: float, *, percent: bool = False, sign: bool = False, most: float = 5.5) -> ChartAxis:
    """Return an axis of equal steps, with round ticks."""
    low, high = float(low), float(high)
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        low, high = (low, low + 1.0) if math.isfinite(low) else (0.0, 1.0)
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in STEPS if (high - low) / (step * m) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    shown = step * (100 if percent else 1)
    decimals = next((d for d in range(15) if math.isclose(round(shown, d), shown, rel_tol=1e-9)), 15)
    write = signed if sign else fixed
    ticks = [(i * step, write(i * step, decimals, percent) if i else "0") for i in range(first, last + 1)]
    return ChartAxis(low, high, False, tuple(ticks))


def logarithmic(low: float, high: float, *, percent: bool = False) -> ChartAxis:
    """Return an axis of equal ratios, with ticks at round numbers, four to six of them if they can be had."""
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
        found = [m * 10.0**d for d in decades for m in marks if low * 0.999 <= m * 10.0**d <= high * 1.001]
        if len(found) >= 4:
            break
    if len(found) > 7:
        found = found[:: math.ceil(len(found) / 6)]
    return ChartAxis(low, high, True, tuple((v, short(v, percent)) for v in found))


def stations(names: Sequence[str], most: int = 7) -> ChartAxis:
    """Return an axis of places in a row, with the names of some."""
    every = max(1, math.ceil(len(names) / most))
    ticks = tuple((float(i), name) for i, name in enumerate(names) if i % every == 0)
    return ChartAxis(-0.5, max(len(names), 1) - 0.5, False, ticks)


def short(value: float, percent: bool = False) -> str:
    """Return a round number without needless zeros."""
    shown = value * 100 if percent else value
    decimals = max(0, 1 - math.floor(math.log10(shown) + 1e-9)) if shown > 0 else 0
    text = f"{shown:,.{min(decimals, 9)}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{text}\u202f%" if percent else text


class ChartLine(NamedTuple):
    """A line through points; `number` is the colour of a model, or None for ink; `marks` the points that have a marker."""

    x: Any
    y: Any
    number: int | None = None
    marks: Sequence[int] = ()
    steps: bool = False


class Area(NamedTuple):
    """The steps of a distribution, filled down to the axis."""

    x: Any
    y: Any
    number: int | None = None


class Band(NamedTuple):
    """What lies between two lines."""

    x: Any
    low: Any
    high: Any
    number: int | None = None


class Whiskers(NamedTuple):
    """Points with their intervals, each alone; NaN where there is none. `quiet` ones are pale."""

    x: Any
    y: Any
    low: Any
    high: Any
    number: int | None = None
    quiet: Any = None


class Rule(NamedTuple):
    """A dotted line of reference."""

    x: Sequence[float]
    y: Sequence[float]
    name: str = ""
    solid: bool = False


class ColourKey(NamedTuple):
    """What a colour stands for."""

    number: int
    text: str


@dataclass
class Chart:
    """A picture.

    Parameters
    ----------
    title, note : str
        What stands above it, and in small letters below that.
    says : str
        What it shows, in a sentence.
    x, y : Scale
        The axes.
    xlabel, ylabel : str
        What they are of.
    layers : list
        What is drawn, from the bottom up.
    key : list of Key
        The models in it.
    right : tuple of (value, text)
        Ticks on the right, at values of y; and below `rightlabel` what they are of.
    readings : list of (x, text)
        What a cursor reads at places from left to right.
    other : Chart, optional
        The same on other axes.
    """

    title: str
    note: str
    says: str
    x: ChartAxis
    y: ChartAxis
    xlabel: str
    ylabel: str
    layers: list[Any]
    key: list[ColourKey] = field(default_factory=list)
    right: tuple[tuple[float, str], ...] = ()
    rightlabel: str = ""
    readings: list[tuple[float, str]] = field(default_factory=list)
    other: Chart | None = None
