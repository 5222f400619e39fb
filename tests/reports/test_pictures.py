"""Numbers as pages print them, axes, and pictures whose data page and matplotlib share."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from pages import number, tree

import streammetrics as sm
from streammetrics.reports.assemble import assemble
from streammetrics.reports.charts import Band, Chart, ChartLine, Whiskers, category_axis, linear_axis, logarithmic_axis
from streammetrics.reports.curve_charts import build_charts
from streammetrics.reports.numbers import (
    choose_decimals,
    format_bound,
    format_count,
    format_fixed,
    format_p_value,
    format_share,
    format_signed,
    typeset,
)
from streammetrics.reports.page.svg import draw_marker, draw_sparkline, draw_svg
from streammetrics.reports.plots import draw_chart


@pytest.fixture
def pyplot() -> Any:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def clicks(n: int = 20_000, rate: float = 0.02) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    p = np.clip(rng.beta(1, 1 / rate, n), 1e-6, 1)
    scores = {m: np.clip(p * rng.lognormal(0, s, n), 0, 1) for m, s in (("a", 0.8), ("b", 0.3))}
    return {
        "click": (rng.random(n) < p).astype(int),
        "user": rng.integers(0, 900, n),
        "k": rng.integers(0, 4, n),
        **scores,
    }


def collection(**more: Any) -> Any:
    tasks = {m: sm.Task([sm.AUC(), sm.LogLoss()], y_true="click", y_score=m) for m in "ab"}
    return sm.MetricCollection(tasks).update(clicks(**more))


# -- numbers ------------------------------------------------------------------------------------------------------------


def test_numbers() -> None:
    assert typeset("-0.5 %") == "−0.5\u202f%"
    assert [format_fixed(v, 2) for v in (1234.567, -0.001, math.nan, math.inf, None)] == [
        "1,234.57",
        "0.00",
        "–",
        "+∞",
        "–",
    ]
    assert [format_signed(v, 1, True) for v in (0.057, -0.027, 0.0, 0.0001)] == [
        "+5.7\u202f%",
        "−2.7\u202f%",
        "0.0\u202f%",
        "0.0\u202f%",
    ]
    assert [format_share(v) for v in (0.309, 0.0, 1e-5, 1.0)] == [
        "30.9\u202f%",
        "0.0\u202f%",
        "<0.1\u202f%",
        "100.0\u202f%",
    ]
    assert [format_p_value(p) for p in (1e-9, 0.0123, 0.5, math.nan)] == ["<0.001", "0.012", "0.50", "–"]
    assert [choose_decimals(h) for h in (0.0026, 0.99, 26.0, 1e-9, 0.0, math.nan, math.inf)] == [
        4,
        2,
        0,
        6,
        None,
        None,
        None,
    ]
    assert [format_count(v) for v in (1_000_000, None)] == ["1,000,000", ""]


def test_bounds_are_rounded_up_to_two_digits() -> None:
    rng = np.random.default_rng(0)
    for half in np.exp(rng.uniform(-25, 5, 500)).tolist():
        shown = Fraction(format_bound(half).removeprefix("±"))
        assert Fraction(half) <= shown <= Fraction(half) * Fraction(11, 10)
    assert [format_bound(v) for v in (0.0, math.nan, None, math.inf, 0.25, 1.0)] == [
        "exact",
        "",
        "",
        "±∞",
        "±0.25",
        "±1.0",
    ]


# -- axes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("percent", [False, True])
def test_ticks_are_few_round_and_right(percent: bool) -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        low = float(rng.normal(0, 10.0 ** rng.integers(-4, 4)))
        high = low + float(np.exp(rng.uniform(-8, 8)))
        scale = linear_axis(low, high, percent=percent)
        assert 2 <= len(scale.ticks) <= 7
        step = scale.ticks[1][0] - scale.ticks[0][0]
        for value, text in scale.ticks:
            assert low - 1e-9 * step <= value <= high + 1e-9 * step
            assert abs(number(text)[0] - value) <= 1e-6 * step + 1e-12
    for _ in range(300):
        low = float(np.exp(rng.uniform(-10, 5)))
        high = low * float(np.exp(rng.uniform(0.05, 12)))
        scale = logarithmic_axis(low, high, percent=percent)
        assert 1 <= len(scale.ticks) <= 8
        for value, text in scale.ticks:
            assert number(text)[0] == pytest.approx(value, rel=0.06)


def test_axes_of_nothing() -> None:
    for low, high in ((math.nan, 1.0), (0.0, 0.0), (3.0, 2.0), (-math.inf, math.inf)):
        scale = linear_axis(low, high)
        assert scale.high > scale.low
    assert logarithmic_axis(0.0, 0.0).high > logarithmic_axis(0.0, 0.0).low > 0
    assert category_axis([]).high > category_axis([]).low
    assert len(category_axis([str(i) for i in range(100)]).ticks) <= 7
    assert np.isnan(logarithmic_axis(0.1, 1.0).place([0.0, -1.0])).all()


# -- pictures -----------------------------------------------------------------------------------------------------------


def test_rare_positives_are_drawn_on_logarithmic_axes_and_linear_ones_beside() -> None:
    roc, pr, reliability, *scores = build_charts(collection())
    assert (roc.x.log, roc.y.log, pr.x.log, pr.y.log, reliability.x.log, reliability.y.log) == (True,) * 6
    assert all(c.alternative is not None and not c.alternative.x.log for c in (roc, pr, reliability))
    assert [c.x.log for c in scores] == [True, True]
    common = build_charts(collection(rate=0.5))
    assert not any(c.x.log for c in common)
    assert common[0].alternative is not None
    assert common[0].alternative.x.log


def test_curves_are_those_of_the_metrics() -> None:
    thing = collection()
    roc, pr, *_ = build_charts(thing)
    for number_, name in enumerate("ab"):
        state = thing[f"{name}/auc"].state
        (line,) = [layer for layer in roc.layers if isinstance(layer, ChartLine) and layer.number == number_]
        whole = sm.ROCCurve(tolerance=0.0).reading(state).value
        assert np.allclose(line.y, np.interp(line.x, whole.fpr, whole.tpr))
        (line,) = [layer for layer in pr.layers if isinstance(layer, ChartLine) and layer.number == number_]
        whole = sm.PRCurve(tolerance=0.0).reading(state).value
        assert np.allclose(line.y, np.interp(line.x, whole.recall[::-1], whole.precision[::-1]))
    assert [k.text for k in roc.key] == [f"{n} AUC {thing[f'{n}/auc'].compute():.4f}" for n in "ab"]


def test_lift_is_of_rates_that_are_alike() -> None:
    rows = clicks() | {"some": (clicks()["a"] > 0.02).astype(int)}
    tasks = {
        "all": sm.Task(sm.AUC(), y_true="click", y_score="a"),
        "some": sm.Task(sm.AUC(), y_true="click", y_score="a", where="some"),
    }
    chart = build_charts(sm.MetricCollection(tasks).update(rows))[1]
    assert chart.right == ()
    assert chart.x.log
    assert build_charts(collection())[1].right


def test_svg_and_matplotlib_draw_the_same_data(pyplot: Any) -> None:
    for chart in build_charts(collection()):
        tree(draw_svg(chart))
        ax = draw_chart(chart, pyplot.subplots()[1])
        ours = [layer for layer in chart.layers if isinstance(layer, ChartLine)]
        theirs = [
            line for line in ax.lines if (line.get_label() and line.get_label()[0] != "_") or line.get_linewidth() > 1
        ]
        assert len(theirs) >= len(ours)
        for layer in ours:
            assert any(
                np.array_equal(line.get_ydata(), layer.y) and np.array_equal(line.get_xdata(), layer.x)
                for line in theirs
            )
        assert ax.get_xlabel() == chart.xlabel
        assert [t.get_text() for t in ax.get_xticklabels()] == [text for _, text in chart.x.ticks]
        assert ax.get_xscale() == ("log" if chart.x.log else "linear")


def chart_with_gaps() -> Chart:
    nan = math.nan
    return Chart("t", "", "", linear_axis(0, 3), linear_axis(0, 1), "x", "y", [
        ChartLine([0, 1, 2, 3], [0.5, nan, 7.0, -7.0], 0, [0, 1, 2]),
        Band([0, 1, 2, 3], [0.1, nan, 0.2, 0.3], [0.2, nan, 0.4, 9.0]),
        Whiskers([0, 1, 2], [0.5, nan, 0.5], [0.4, nan, nan], [2.0, nan, nan], 1, [False, False, True]),
    ])  # fmt: skip


def test_matplotlib_draws_gaps(pyplot: Any) -> None:
    assert draw_chart(chart_with_gaps(), pyplot.subplots()[1]).lines


def test_gaps_and_edges() -> None:
    chart = chart_with_gaps()
    drawing = tree(draw_svg(chart))
    text = draw_svg(chart)
    assert "nan" not in text.lower()
    for path in drawing.all("path", class_="ln"):
        heights = [float(p.split()[1]) for p in path.attrs["d"][1:].split("L")]
        assert all(26 <= h <= 264 for h in heights)
    assert len(drawing.all("line", class_="w1")) == 1
    assert len(drawing.all("g", class_="pale")) == 1
    assert "svg" in draw_sparkline("none", [(0, [math.nan, math.nan])])
    assert len({draw_marker(i, 0, 0) for i in range(6)}) == 6


# -- plot() -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_everything_that_has_a_picture_draws_it(pyplot: Any) -> None:
    tasks = {m: sm.Task(sm.AUC(), y_true="click", y_score=m) for m in "ab"}
    both = sm.Sharded(tasks, unit="user").update(clicks())
    axes = both.plot()
    assert [ax.get_title(loc="left") for ax in axes][:2] == ["ROC", "Precision and recall"]
    rows = clicks()
    sides = [
        sm.Sliced(sm.Sharded(sm.AUC(), unit="user"), by="k").update(
            rows["click"], rows[m], user=rows["user"], k=rows["k"]
        )
        for m in "ba"
    ]
    found = sm.compare(*sides)
    ax = found.plot()
    page = assemble(found, "")
    rows = [r for g in page.parts[0].data[0].groups for r in g.rows]
    assert [t.get_text() for t in ax.get_yticklabels()] == [r.name for r in rows]
    dots = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"]
    assert dots == [r.span.mid for r in rows]
    card = sm.scorecard({"new": sides[0], "old": sides[1]}, control="old", primary="auc")
    assert card.plot().get_yticklabels()[0].get_text() == "auc"
    one = sm.compare(sides[0].total, sides[1].total)
    assert one.plot(pyplot.subplots()[1]) is not None
    days = sm.Windowed(sm.CTR(), width=5, time="step").update(y_true=[0, 1] * 10, step=list(range(20)))
    line = sm.plot(days).lines[0]
    assert line.get_ydata().tolist() == [r["value"] for r in days.table()]
    with pytest.raises(TypeError, match="no plot for this object of class MAE; plots exist for curves such as"):
        sm.MAE().update([1.0], [2.0]).plot()
    with pytest.raises(TypeError, match="of class str"):
        sm.plot("auc")
