"""Pictures as inline SVG: lines and bars whose colours are those of the page, light or dark."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Series", "bars", "heat", "histogram", "lines"]

WIDTH, HEIGHT = 420, 330
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 44
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 3")  # series differ by more than their colour


class Series(NamedTuple):
    """One model in a picture.

    Parameters
    ----------
    name : str
        What it is called.
    x, y : arrays
        Its points.
    number : int
        Which of the page's colours it has.
    """

    name: str
    x: Any
    y: Any
    number: int


class Axes(NamedTuple):
    """Where values are on the paper."""

    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, value: Any) -> Any:
        """Place values from left to right."""
        low, high = self.x
        return LEFT + (np.asarray(value, float) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def up(self, value: Any) -> Any:
        """Place values from the bottom up."""
        low, high = self.y
        return HEIGHT - BOTTOM - (np.asarray(value, float) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def lines(
    title: str,
    series: Sequence[Series],
    xlabel: str,
    ylabel: str,
    *,
    x: tuple[float, float] = (0.0, 1.0),
    y: tuple[float, float] = (0.0, 1.0),
    diagonal: bool = False,
    steps: bool = False,
    dots: bool = False,
    under: str = "",
) -> str:
    """Draw lines; `under` is drawn below them."""
    axes = Axes(_wide(x), _wide(y))
    body = [under]
    if diagonal:
        low, high = max(axes.x[0], axes.y[0]), min(axes.x[1], axes.y[1])
        body.append(f'<path class="chance" d="{_path(axes, [low, high], [low, high])}"/>')
    for one in series:
        dash = f' stroke-dasharray="{DASHES[one.number % len(DASHES)]}"' if DASHES[one.number % len(DASHES)] else ""
        path = _path(axes, *(_stairs(one.x, one.y) if steps else (one.x, one.y)))
        body.append(f'<path class="line s{one.number}"{dash} d="{path}"><title>{escape(one.name)}</title></path>')
        if dots:
            places = zip(one.x, one.y, axes.across(one.x), axes.up(one.y), strict=True)
            body += [
                f'<circle class="dot s{one.number}" cx="{cx:.1f}" cy="{cy:.1f}" r="3">'
                f"<title>{escape(one.name)}: {a:.4g}, {b:.4g}</title></circle>"
                for a, b, cx, cy in places
                if math.isfinite(a) and math.isfinite(b)
            ]
    return _frame(title, axes, "".join(body), xlabel, ylabel)


def bars(
    title: str, heights: Sequence[Series], xlabel: str, ylabel: str, *, x: tuple[float, float] = (0.0, 1.0)
) -> str:
    """Draw filled outlines of distributions, one over the other."""
    top = max((float(np.nanmax(s.y)) for s in heights if len(s.y)), default=1.0) or 1.0
    axes = Axes(_wide(x), (0.0, top * 1.05))
    body = []
    for one in heights:
        xs, ys = _stairs(one.x, one.y)
        path = _path(axes, [xs[0], *xs, xs[-1]], [0.0, *ys, 0.0]) if len(xs) else ""
        body.append(f'<path class="area s{one.number}" d="{path}"><title>{escape(one.name)}</title></path>')
    return _frame(title, axes, "".join(body), xlabel, ylabel)


def heat(title: str, names: Sequence[str], counts: Any, shares: Any) -> str:
    """Draw a matrix: each cell as dark as its share of the row, its count inside where there is room."""
    n, side = len(names), WIDTH - LEFT - RIGHT
    step, small = side / n, 13 if n <= 8 else 10
    high = TOP + side + BOTTOM
    body = []
    for i, j in itertools.product(range(n), range(n)):
        x, y, share = LEFT + j * step, TOP + i * step, float(shares[i][j])
        told = f"{escape(names[i])} taken for {escape(names[j])}: {counts[i][j]:,.10g} ({share:.1%})"
        share = share if math.isfinite(share) else 0.0
        body.append(
            f'<rect class="heat" x="{x:.1f}" y="{y:.1f}" width="{step - 1:.1f}" height="{step - 1:.1f}" '
            f'style="fill-opacity:{0.04 + 0.9 * share:.3f}"><title>{told}</title></rect>'
        )
        if n <= 15 and counts[i][j]:
            tone = "on" if share > 0.5 else "off"
            body.append(
                f'<text class="cell {tone}" x="{x + step / 2:.1f}" y="{y + step / 2 + small / 3:.1f}" '
                f'font-size="{small}" text-anchor="middle">{short(counts[i][j])}</text>'
            )
    letters = max(1, int(step / 6))
    for i, name in enumerate(names):
        at = i * step + step / 2
        head = f'<text class="tick" x="{LEFT - 6}" y="{TOP + at + 4:.1f}" text-anchor="end">'
        body.append(f"{head}<title>{escape(name)}</title>{escape(cut(name, 6))}</text>")
        head = f'<text class="tick" x="{LEFT + at:.1f}" y="{TOP + side + 14:.1f}" text-anchor="middle">'
        body.append(f"{head}<title>{escape(name)}</title>{escape(cut(name, letters))}</text>")
    middle = TOP + side / 2
    return (
        f'<svg viewBox="0 0 {WIDTH} {high}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"{''.join(body)}"
        f'<text class="axis" x="{LEFT + side / 2}" y="{high - 8}" text-anchor="middle">predicted class</text>'
        f'<text class="axis" transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">true class</text></svg>'
    )


def short(count: float) -> str:
    """A count in at most four letters."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if count >= 10 * size or (size == 1e6 and count >= size):
            return f"{count / size:.0f}{unit}"
    return f"{count:.4g}"


def cut(name: str, letters: int) -> str:
    """A name in so many letters."""
    return name if len(name) <= letters else name[: max(1, letters - 1)] + "…"


def histogram(axes_x: tuple[float, float], edges: Any, weight: Any) -> str:
    """Draw the density of rows in the lower quarter of a picture, their number in the tooltip."""
    density = np.divide(weight, np.diff(edges), out=np.zeros(len(weight)), where=np.diff(edges) > 0)
    axes = Axes(_wide(axes_x), (0.0, 4.0 * (float(np.max(density, initial=0.0)) or 1.0)))
    out = []
    for low, high, w, d in zip(edges[:-1], edges[1:], weight, density, strict=True):
        left, right = axes.across(np.clip([low, high], *axes.x))
        top = float(axes.up(d))
        out.append(
            f'<rect class="count" x="{left:.1f}" y="{top:.1f}" width="{max(right - left - 1, 0.5):.1f}" '
            f'height="{HEIGHT - BOTTOM - top:.1f}"><title>{w:,.0f} rows</title></rect>'
        )
    return "".join(out)


def _wide(limits: tuple[float, float]) -> tuple[float, float]:
    low, high = limits
    return (low, high) if math.isfinite(low) and math.isfinite(high) and high > low else (low, low + 1.0)


def _stairs(x: Any, y: Any) -> tuple[Any, Any]:
    """Hold every value until the next."""
    return np.repeat(np.asarray(x, float), 2)[1:], np.repeat(np.asarray(y, float), 2)[:-1]


def _path(axes: Axes, x: Any, y: Any) -> str:
    across, up = axes.across(x), axes.up(y)
    good = np.isfinite(across) & np.isfinite(up)
    places = [f"{a:.1f} {b:.1f}" for a, b in zip(across[good], up[good], strict=True)]
    return "M" + "L".join(places) if places else ""


def _frame(title: str, axes: Axes, body: str, xlabel: str, ylabel: str) -> str:
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    marks = []
    for value in _ticks(*axes.x):
        at = float(axes.across(value))
        marks.append(f'<line class="grid" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{floor}"/>')
        marks.append(f'<text class="tick" x="{at:.1f}" y="{floor + 16}" text-anchor="middle">{value:g}</text>')
    for value in _ticks(*axes.y):
        at = float(axes.up(value))
        marks.append(f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>')
        marks.append(f'<text class="tick" x="{LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>')
    middle = (TOP + floor) / 2
    inner = f"{LEFT} {TOP} {right - LEFT} {floor - TOP}"  # what leaves the axes is cut off
    size = 'x="{}" y="{}" width="{}" height="{}"'.format(*inner.split())
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f'{"".join(marks)}<svg {size} viewBox="{inner}">{body}</svg>'
        f'<text class="axis" x="{(LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(xlabel)}</text>'
        f'<text class="axis" transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">{escape(ylabel)}</text>'
        "</svg>"
    )


def _ticks(low: float, high: float) -> list[float]:
    """Round values, four to six of them."""
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if (high - low) / (step * m) <= 5.5)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]
