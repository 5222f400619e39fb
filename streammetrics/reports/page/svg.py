"""Draw charts as inline SVG, which takes its light or dark colors from the page style."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

from ..charts import Area, Band, Chart, ChartLine, Rule, Whiskers

__all__ = ["COLOURS", "draw_heatmap", "draw_marker", "draw_sparkline", "draw_svg"]

WIDTH, HEIGHT = 360, 308
LEFT, RIGHT, TOP, FLOOR = 46, 346, 26, 264
COLOURS = 6  # the number of different colors for models on a page
DASHED = (1, 3, 5)  # the color indices of models whose lines are dashed
LETTERS = 6.4  # assumed width of a letter in SVG units, to estimate the width of text


def draw_svg(chart: Chart, width: int = WIDTH) -> str:
    """Return a chart as an SVG element with the given width and a height of 308 units."""
    longest = max((len(text) for _, text in chart.right), default=0)
    paper = SvgCanvas(chart, width, width - (WIDTH - RIGHT) - (max(24, round(longest * LETTERS - 2)) if longest else 0))
    label = f"{chart.title}. {chart.summary}" if chart.summary else chart.title
    points = ""
    if chart.readings:
        places = [[round(float(paper.scale_x(x)), 1), text] for x, text in chart.readings]
        points = f' tabindex="0" data-pts="{escape(json.dumps(places, ensure_ascii=False))}"'
    return (
        f'<svg viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{escape(label)}"{points}>'
        f"{''.join(paper.draw_axes())}{''.join(part for layer in chart.layers for part in paper.draw_layer(layer))}"
        f'<line class="cursor" y1="{TOP}" y2="{FLOOR}"/></svg>'
    )


class SvgCanvas:
    """A canvas that converts the values of one chart to SVG coordinates, and draws its axes and layers."""

    def __init__(self, chart: Chart, width: int, right: int) -> None:
        self.chart, self.width, self.right = chart, width, right

    def scale_x(self, values: Any) -> Any:
        """Return the horizontal SVG coordinates of x values."""
        return LEFT + self.chart.x.place(values) * (self.right - LEFT)

    def scale_y(self, values: Any) -> Any:
        """Return the vertical SVG coordinates of y values."""
        return FLOOR - self.chart.y.place(values) * (FLOOR - TOP)

    def draw_axes(self) -> Iterator[str]:
        """Yield the SVG elements of the axes, with ticks and labels."""
        chart = self.chart
        for value, text in chart.y.ticks:
            at = float(self.scale_y(value))
            yield f'<line class="g" x1="{LEFT}" x2="{self.right}" y1="{at:.1f}" y2="{at:.1f}"/>'
            yield f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        for value, text in chart.right:
            yield f'<text x="{self.right + 6}" y="{float(self.scale_y(value)) + 4:.1f}">{escape(text)}</text>'
        yield f'<line class="ax" x1="{LEFT}" x2="{self.right}" y1="{FLOOR}" y2="{FLOOR}"/>'
        free = -math.inf
        for value, text in chart.x.ticks:
            at, half = float(self.scale_x(value)), len(text) * LETTERS / 2
            # Skip a label that would overlap the one before it.
            if at - half < free:
                continue
            free = at + half + 4
            yield f'<line class="ax" x1="{at:.1f}" x2="{at:.1f}" y1="{FLOOR}" y2="{FLOOR + 4}"/>'
            yield f'<text x="{at:.1f}" y="{FLOOR + 18}" text-anchor="middle">{escape(text)}</text>'
        yield f'<text x="0" y="12">{escape(chart.ylabel)}</text>'
        if chart.rightlabel:
            yield f'<text x="{self.width}" y="12" text-anchor="end">{escape(chart.rightlabel)}</text>'
        yield f'<text x="{(LEFT + self.right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(chart.xlabel)}</text>'

    def draw_layer(self, layer: Any) -> Iterator[str]:
        """Yield the SVG elements of one layer, such as a line or a band."""
        if isinstance(layer, ChartLine):
            yield from self._draw_line(layer)
        elif isinstance(layer, Whiskers):
            yield from self._draw_whiskers(layer)
        elif isinstance(layer, Rule):
            kind = "zero" if layer.solid else "ref"
            path = self.build_path(layer.x, layer.y)
            yield f'<path class="{kind}" d="{path}"><title>{escape(layer.name)}</title></path>'
        elif isinstance(layer, Band):
            for path in self._outline_band(layer):
                yield f'<path class="{"area" if layer.number is None else f"a{layer.number}"}" d="{path}"/>'
        elif isinstance(layer, Area):
            x, y = _build_steps(layer.x, layer.y)
            floor = self.chart.y.low
            path = self.build_path([x[0], *x, x[-1]], [floor, *y, floor]) if len(x) else ""
            yield f'<path class="{"area" if layer.number is None else f"a{layer.number}"}" d="{path}"/>'

    def _draw_line(self, layer: ChartLine) -> Iterator[str]:
        x, y = _build_steps(layer.x, layer.y) if layer.steps else (layer.x, layer.y)
        kind = "strong" if layer.number is None else f"c{layer.number}"
        dash = " dash" if layer.number in DASHED else ""
        yield f'<path class="ln {kind}{dash}" d="{self.build_path(x, y)}"/>'
        for i in layer.marks:
            at, above = float(self.scale_x(layer.x[i])), float(self.scale_y(layer.y[i]))
            if math.isfinite(at) and math.isfinite(above):
                yield draw_marker(layer.number, at, self._clip_height(above))

    def _draw_whiskers(self, layer: Whiskers) -> Iterator[str]:
        quiet = layer.quiet if layer.quiet is not None else [False] * len(layer.x)
        kind = "band" if layer.number is None else f"w{layer.number}"
        for x, y, low, high, pale in zip(layer.x, layer.y, layer.low, layer.high, quiet, strict=True):
            at, above = float(self.scale_x(x)), float(self.scale_y(y))
            if not math.isfinite(above):
                continue
            tone = ' class="pale"' if pale else ""
            ends = [self._clip_height(float(self.scale_y(v))) for v in (low, high)]
            bar = f'<line class="{kind}" x1="{at:.1f}" x2="{at:.1f}" y1="{ends[0]:.1f}" y2="{ends[1]:.1f}"/>'
            some = math.isfinite(low) and math.isfinite(high)
            yield f"<g{tone}>{bar if some else ''}{draw_marker(layer.number, at, self._clip_height(above))}</g>"

    def _clip_height(self, y: float) -> float:
        return min(max(y, TOP), FLOOR) if math.isfinite(y) else y

    def _outline_band(self, layer: Band) -> Iterator[str]:
        """Yield the outline of each piece of a band. The band has a gap where a limit is NaN."""
        x, low, high = (np.asarray(v, float) for v in layer[:3])
        known = np.isfinite(low) & np.isfinite(high)
        for is_known, run in itertools.groupby(range(len(x)), lambda i: bool(known[i])):
            at = list(run)
            if is_known:
                yield self.build_path([*x[at], *x[at[::-1]]], [*high[at], *low[at[::-1]]]) + "Z"

    def build_path(self, x: Any, y: Any) -> str:
        """Return the `d` attribute of an SVG path through the finite points, clipped to the plot area."""
        across, up = self.scale_x(x), self.scale_y(y)
        good = np.isfinite(across) & np.isfinite(up)
        inside = np.clip(across, LEFT, self.right), np.clip(up, TOP, FLOOR)
        places = [f"{a:.1f} {b:.1f}" for a, b in zip(inside[0][good], inside[1][good], strict=True)]
        kept = [p for p, _ in itertools.groupby(places)]
        return "M" + "L".join(kept) if kept else ""


def draw_marker(number: int | None, x: float, y: float, r: float = 4.0) -> str:
    """Return the marker of a model as SVG; the shape depends on the color index `number`.

    If `number` is None, the marker is a black dot.
    """
    kind = "dot" if number is None else f"f{number}"
    if number is None or number % COLOURS == 0:
        return f'<circle class="{kind} halo" cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'
    a, b = r * 1.25, r * 0.9
    shapes = {
        1: f"M{x - a:.1f} {y:.1f}L{x:.1f} {y - a:.1f}L{x + a:.1f} {y:.1f}L{x:.1f} {y + a:.1f}Z",
        2: f"M{x - b:.1f} {y - b:.1f}h{2 * b:.1f}v{2 * b:.1f}h{-2 * b:.1f}Z",
        3: f"M{x - a:.1f} {y + b:.1f}L{x:.1f} {y - a:.1f}L{x + a:.1f} {y + b:.1f}Z",
        4: f"M{x - b:.1f} {y - b:.1f}l{2 * b:.1f} {2 * b:.1f}m0 {-2 * b:.1f}l{-2 * b:.1f} {2 * b:.1f}",
        5: f"M{x - a:.1f} {y:.1f}h{2 * a:.1f}M{x:.1f} {y - a:.1f}v{2 * a:.1f}",
    }
    stroke = f'stroke="var(--m{number})" stroke-width="2"' if number in (4, 5) else ""
    return f'<path class="{kind}{"" if stroke else " halo"}" {stroke} d="{shapes[number % COLOURS]}"/>'


def draw_sparkline(title: str, lines: Sequence[tuple[int, Sequence[float]]]) -> str:
    """Return a small line chart without axes.

    `lines` are pairs of a color index and values. The vertical scale ranges from the lowest to the highest of all
    values.
    """
    known = [v for _, values in lines for v in values if math.isfinite(v)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    span = (high - low) or 1.0
    out = []
    for number, values in lines:
        step = 96 / max(len(values) - 1, 1)
        places = [(6 + i * step, 36 - (v - low) / span * 30) for i, v in enumerate(values) if math.isfinite(v)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        if places:
            out.append(f'<path class="ln c{number}{" dash" if number in DASHED else ""} thin" d="M{path}"/>')
            out += [draw_marker(number, x, y, 2.6) for x, y in places]
    return f'<svg width="110" height="42" role="img" aria-label="{escape(title)}">{"".join(out)}</svg>'


def draw_heatmap(title: str, names: Sequence[str], counts: Any, shares: Any) -> str:
    """Return a heat map of a confusion matrix as SVG.

    A darker cell contains a larger share of its true class. With up to 15 classes, the cells also show counts.
    """
    n, side = len(names), RIGHT - LEFT
    step, small = side / n, 13 if n <= 8 else 10
    body = []
    for i, j in itertools.product(range(n), range(n)):
        x, y, part = LEFT + j * step, TOP + i * step, float(shares[i][j])
        label = f"{escape(names[i])} predicted as {escape(names[j])}: {counts[i][j]:,.10g} ({part:.1%})"
        part = part if math.isfinite(part) else 0.0
        body.append(
            f'<rect class="heat" x="{x:.1f}" y="{y:.1f}" width="{step - 1:.1f}" height="{step - 1:.1f}" '
            f'style="fill-opacity:{0.04 + 0.9 * part:.3f}"><title>{label}</title></rect>'
        )
        if n <= 15 and counts[i][j]:
            tone = "on" if part > 0.5 else "off"
            body.append(
                f'<text class="cell {tone}" x="{x + step / 2:.1f}" y="{y + step / 2 + small / 3:.1f}" '
                f'style="font-size:{small}px" text-anchor="middle">{_format_short(counts[i][j])}</text>'
            )
    letters = max(1, int(step / 6))
    for i, name in enumerate(names):
        at = i * step + step / 2
        head = f'<text x="{LEFT - 6}" y="{TOP + at + 4:.1f}" text-anchor="end">'
        body.append(f"{head}<title>{escape(name)}</title>{escape(_truncate(name, 6))}</text>")
        head = f'<text x="{LEFT + at:.1f}" y="{TOP + side + 16:.1f}" text-anchor="middle">'
        body.append(f"{head}<title>{escape(name)}</title>{escape(_truncate(name, letters))}</text>")
    return (
        f'<svg viewBox="0 0 {WIDTH} {TOP + side + 44}" role="img" aria-label="{escape(title)}">'
        f'{"".join(body)}<text x="0" y="12">true class</text>'
        f'<text x="{LEFT + side / 2}" y="{TOP + side + 38}" text-anchor="middle">predicted class</text></svg>'
    )


def _format_short(count: float) -> str:
    """Return a count as a short string, such as "12k" or "3M"."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if count >= 10 * size or (size == 1e6 and count >= size):
            return f"{count / size:.0f}{unit}"
    return f"{count:.4g}"


def _truncate(name: str, letters: int) -> str:
    """Return a name, truncated to at most `letters` characters."""
    return name if len(name) <= letters else name[: max(1, letters - 1)] + "…"


def _build_steps(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the corners of a step function that keeps each y value until the next x."""
    return np.repeat(np.asarray(x, float), 2)[1:], np.repeat(np.asarray(y, float), 2)[:-1]
