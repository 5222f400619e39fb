"""Convert comparisons to rows of a report page: the texts of the cells, and the positions of intervals on axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ..inference.comparison import Comparison
from ..inference.verdict import choose_missing_word
from ..numerics.slice_keys import format_atom
from ..reading.about import best_of
from .charts import linear_axis
from .numbers import choose_decimals, format_bound, format_fixed, format_p_value, format_share, format_signed
from .page_model import Forest, IntervalBar, MeasureRow, NamedSide, RowAxis, RowGroup

__all__ = [
    "build_forest",
    "build_hero",
    "build_measure_row",
    "build_shared_axis",
    "choose_common_decimals",
    "collect_reasons",
    "count_shown_slices",
    "describe_average",
    "describe_slices",
    "format_direction",
    "format_key",
    "format_subtitle",
    "is_percent",
    "name_sides",
    "place_rows",
    "shorten_reason",
]  # fmt: skip

RATES = ("ctr", "predicted_ctr", "precision", "recall", "false_positive_rate", "specificity", "accuracy", "error_rate",
         "hit_rate", "top_k_accuracy", "subset_accuracy", "hamming_loss")  # fmt: skip
RELATIVE = (*RATES, "log_loss", "normalized_entropy", "brier_score", "average_precision", "mae", "mse", "rmse", "wmae",
            "mean", "sum", "count", "ratio", "per_unit", "quantile")  # fmt: skip
# If the certified error bound, divided by the value, is at most this, the error can only come from the rounding of
# floating-point sums, so the value is shown as exact.
FEW = 1e-12
WORDS = ("better", "held", "unclear", "undecided", "too few", "too early", "not shown", "worse", "breached")
ONE_IS_BEST = "→ 1 is best"
MAX_SLICES = 200  # the largest number of slices per group in a forest plot


def format_direction(best: Any) -> str:
    """Return a text that says which values of a metric are better, such as "↑ higher is better".

    `best` is "high", "low", or 1 ("one" in scorecards) for metrics whose best value is 1.
    """
    return {"high": "↑ higher is better", "low": "↓ lower is better"}.get(str(best), ONE_IS_BEST if best else "")


def describe_average(metric: Any) -> str:
    """Return a description of how a metric is averaged over classes, such as "macro: the mean of the classes".

    The result is empty if the metric is not averaged over classes.
    """
    if not getattr(metric, "_class_settings", None):
        return ""
    how = getattr(metric, "average", None)
    descriptions = {"macro": "macro: the mean of the classes", "micro": "micro: all classes as one",
                    "weighted": "weighted by the rows of each class"}  # fmt: skip
    return descriptions.get(str(how), "")


def format_subtitle(metric: Any, best: Any = None) -> str:
    """Return the small text below the name of a metric: which values are better, and the kind of average."""
    return "; ".join(t for t in (format_direction(best or best_of(metric)), describe_average(metric)) if t)


def read_tag(metric: Any) -> str:
    """Return the tag that identifies the class of a metric, such as "auc"; empty for None."""
    return "" if metric is None else str(metric.about.tag)


def is_percent(tag: str) -> bool:
    """Return whether values of metrics with the given tag are shown as percentages."""
    return tag.partition("@")[0] in RATES


def build_measure_row(
    one: Comparison, name: str = "", *, decimals: int | None = None, slices: bool = False
) -> MeasureRow:
    """Return the table row of a comparison.

    `name` replaces the name of the comparison, and `decimals` is the number of decimals for differences (by default, it
    depends on the width of the interval). `slices` says whether the row is a slice in a forest plot, where all rows
    share an axis.
    """
    tag = read_tag(one.metric)
    percent = is_percent(tag)
    # The page draws improvements on the right, so the interval is mirrored if lower values are better. For a ratio that
    # is best at 1, a decrease is better if the old value is above 1. Its interval is then mirrored as well, except in
    # forest plots, where all rows share an axis.
    interval = one.relative if percent else one.difference
    half = (interval.high - interval.low) / 2
    if decimals is None:
        own = choose_decimals(half * (100 if percent else 1))
        decimals = (1 if percent else 4) if own is None else own
    best = best_of(one.metric)
    direction = -1.0 if best == "low" or (best == 1.0 and one.b > 1.0 and not slices) else 1.0
    ends = tuple(v * direction for v in (interval.low, interval.estimate, interval.high))
    ends = (ends[2], ends[1], ends[0]) if direction < 0 else ends
    is_finite = math.isfinite(half)
    relative = one.relative.estimate
    digits = decimals if not percent else _choose_value_decimals(one)
    return MeasureRow(
        name or one.name,
        format_subtitle(one.metric),
        format_fixed(one.a, digits, percent),
        format_fixed(one.b, digits, percent),
        format_signed(interval.estimate, decimals, percent),
        format_signed(relative, 1, True) if tag in RELATIVE and not percent and math.isfinite(relative) else "",
        f"±{format_fixed(half, decimals, percent)}" if is_finite else "",
        f"{format_signed(interval.low, decimals, percent)} to {format_signed(interval.high, decimals, percent)}"
        if is_finite
        else "",
        "" if one.reason else format_p_value(one.adjusted if math.isfinite(one.adjusted) else one.p_value),
        format_bound(0.0 if one.bound <= FEW * abs(one.a) else one.bound) if math.isfinite(one.bound) else "",
        bold=is_finite and not (interval.low <= 0.0 <= interval.high) and _is_clear(one),
        word=choose_word(one),
        reason=format_reason(one.reason or one.note),
        ends=ends,
        direction=direction,
        rows=one.rows,
    )


def _is_clear(one: Comparison) -> bool:
    """Return whether the interval of a difference, widened by the certified bound, excludes zero.

    The difference must also stay significant after the multiplicity correction.
    """
    bound = one.bound if math.isfinite(one.bound) else 0.0
    difference = one.difference
    beyond = difference.low - bound > 0.0 or difference.high + bound < 0.0
    return beyond and not one.adjusted > 1.0 - difference.confidence


def _choose_value_decimals(one: Comparison) -> int:
    """Return the number of decimals for values in percent, chosen from the width of the interval of the difference."""
    decimals = choose_decimals((one.difference.high - one.difference.low) / 2 * 100)
    return 2 if decimals is None else min(decimals, 4)


def choose_common_decimals(halves: Iterable[float], percent: bool) -> int:
    """Return the number of decimals for all intervals in a column, chosen from their median half-width."""
    known = sorted(h for h in halves if h > 0.0 and math.isfinite(h))
    decimals = choose_decimals(known[len(known) // 2] * (100 if percent else 1)) if known else None
    return (1 if percent else 4) if decimals is None else decimals


def choose_word(one: Comparison) -> str:
    """Return the conclusion about side `a` of a comparison: "better", "worse", "unclear", "too few" or "not shown".

    The result is empty if the metric does not define which values are better.
    """
    if one.reason is not None or math.isnan(one.difference.low):
        return choose_missing_word(one.reason)
    if best_of(one.metric) is None:
        return ""
    return {"a": "better", "b": "worse"}.get(str(one.better), "unclear")


def format_reason(reason: Any) -> str:
    """Return the reason for a missing interval; an empty string if `reason` is not a string, for example None or NaN."""
    return str(reason) if isinstance(reason, str) else ""


def place_rows(rows: Iterable[MeasureRow], *, shared: RowAxis | None, low: float = 0.0, high: float = 0.0) -> None:
    """Compute the position of the interval of each row on its axis, and store it in `row.span`.

    With a `shared` axis, all rows are drawn on the range from `low` to `high`. Otherwise each row has its own axis with
    zero in the middle.
    """
    for row in rows:
        ends = [v for v in row.ends if math.isfinite(v)]
        if not ends:
            continue
        a, b = (
            (low, high)
            if shared is not None
            else _compute_axis_limits([*ends, *([row.margin] if row.margin is not None else [])])
        )
        row.span = build_bar(row.ends, a, b, limit=row.margin, is_upper_limit=row.is_upper_limit)


def _compute_axis_limits(values: list[float]) -> tuple[float, float]:
    far = max(map(abs, values)) * 1.12 or 1.0
    return -far, far


def build_bar(
    ends: tuple[float, float, float], a: float, b: float, overall: float | None = None, limit: float | None = None,
    *, is_upper_limit: bool = False,
) -> IntervalBar:  # fmt: skip
    """Return the position of an interval on an axis from `a` to `b`, in percent of the axis width.

    `ends` are the lower limit, the estimate and the upper limit. `overall` is the difference over all rows, and `limit`
    is the limit of a guardrail. If `is_upper_limit` is true, values above this limit are forbidden; otherwise, values
    below it are.
    """

    def position_of(v: float) -> float:
        return min(max((v - a) / (b - a) * 100.0, 0.0), 100.0)

    low, mid, high = ends
    known = math.isfinite(low) and math.isfinite(high)
    low, high = (low, high) if known else (mid, mid)
    return IntervalBar(
        position_of(low), position_of(mid), position_of(high), position_of(0.0), low < a, high > b,
        None if overall is None or not math.isfinite(overall) else position_of(overall),
        None if limit is None else position_of(limit), is_upper_limit,
    )  # fmt: skip


def build_shared_axis(
    rows: Sequence[MeasureRow],
    title: str,
    percent: bool,
    overall: float | None = None,
    *,
    most: float = 2.0,
    steps: float = 4.5,
) -> tuple[RowAxis, float, float]:
    """Return a shared axis for several rows, and its lowest and highest values.

    Rows with too little data do not affect the range. Intervals that are much longer than the others are cut off at the
    ends of the axis. The range includes `overall`, the difference over all rows. `most` limits the room for intervals
    on either side of the differences, as a multiple of the median half-width of the intervals. The ticks divide the
    axis into at most `steps` steps, or up to twice as many if there would be fewer than two ticks. If `percent` is
    true, the labels of the ticks are percentages.
    """
    # The range covers the middle 96 % of the differences, plus `most` times the median half-width of the intervals on
    # both sides. If it covered all intervals, one slice with little data would squeeze all the others.
    set_by = [r for r in rows if not r.is_too_few and math.isfinite(r.ends[1])] or [
        r for r in rows if math.isfinite(r.ends[1])
    ]
    mids = [r.ends[1] for r in set_by]
    halves = sorted(r.ends[2] - r.ends[0] for r in set_by if math.isfinite(r.ends[2] - r.ends[0]))
    reach = halves[(len(halves) - 1) // 2] / 2 * most if halves else 0.0
    marks = [
        0.0,
        *([overall] if overall is not None and math.isfinite(overall) else []),
        *(r.margin for r in rows if r.margin is not None),
    ]
    if mids:
        mids = sorted(mids)
        inside = mids[len(mids) // 50], mids[-1 - len(mids) // 50]
        ends = [v for r in set_by for v in r.ends if math.isfinite(v)]
        marks += [max(min(ends), inside[0] - reach), min(max(ends), inside[1] + reach)]
    low, high = min(marks), max(marks)
    room = (high - low) * 0.05 or 1.0
    low, high = low - room, high + room
    direction = -1.0 if rows and all(r.direction < 0 for r in rows) else 1.0
    scale = linear_axis(low, high, percent=percent, sign=True, most=steps)
    # A single label, such as 0, would not show how large the differences are.
    if len(scale.ticks) < 2:
        scale = linear_axis(low, high, percent=percent, sign=True, most=2.0 * steps)
    ticks = [((v - low) / (high - low) * 100.0, _flip_sign(text) if direction < 0 else text) for v, text in scale.ticks]
    return RowAxis(title, ticks), low, high


def _flip_sign(text: str) -> str:
    return {"+": "−", "−": "+"}.get(text[:1], text[:1]) + text[1:]


def build_forest(
    metric: str, sides: tuple[NamedSide, NamedSide], groups: Sequence[tuple[str, Sequence[MeasureRow]]], *, percent: bool,
    overall: float | None, interval: str, best: Any, first: bool, max_slices: int = MAX_SLICES,
) -> Forest:  # fmt: skip
    """Return a forest plot of a metric, with one interval for each slice.

    Slices are sorted by impact, which is the share of rows times the difference. Slices with too little data come last.
    At most `max_slices` slices of each group are shown. `groups` are pairs of a heading and the rows below it,
    `overall` is the difference over all rows, and `interval` is the label of the intervals, such as "95 %". If `first`
    is true, the page shows the plot expanded. `percent` says whether differences are shown as percentages, and
    `best` says which values are better.
    """
    every = [r for _, rows in groups for r in rows]
    title = f"{metric} difference{', better →' if best in ('high', 'low') else ''}"
    axis, low, high = build_shared_axis(every, title, percent, overall)
    decimals = max((len(r.change.partition(".")[2].rstrip("\u202f%")) for r in every), default=4)
    groups_shown = []
    for name, rows in groups:
        total = sum(r.rows for r in rows)
        for r in rows:
            if math.isnan(r.part) and total:
                r.part = r.rows / total
            r.share = format_share(r.part) if math.isfinite(r.part) else ""
            impact = r.part * r.ends[1] * r.direction
            r.impact = format_signed(impact, min(decimals + 1, 6), percent) if math.isfinite(impact) else ""
            r.order = {"rows": float(r.rows), "diff": r.ends[1] * r.direction, "imp": abs(impact)}
            r.span = None if math.isnan(r.ends[1]) else build_bar(r.ends, low, high, overall)
        ordered = sorted(
            rows, key=lambda r: (r.is_too_few, -r.order["imp"] if math.isfinite(r.order["imp"]) else math.inf, r.name)
        )
        kept = ordered[:max_slices]
        groups_shown.append(RowGroup(name, describe_slices(rows), kept, describe_hidden_slices(ordered[max_slices:])))
    return Forest(metric, f"{metric}: difference by slice", sides, groups_shown, axis, interval, first)


def describe_slices(rows: Sequence[MeasureRow]) -> str:
    """Return a summary of slices, such as "12 slices: better in 10, unclear in 1, too few in 1"."""
    counts = [(w, sum(r.word == w for r in rows)) for w in WORDS]
    text = ", ".join(f"{w} in {n:,}" for w, n in counts if n)
    if text and any(w in ("better", "worse") for w, n in counts if n) and not dict(counts)["worse"]:
        text += ", worse in none"
    return f"{len(rows):,} slice{'s' if len(rows) != 1 else ''}{': ' if text else ''}{text}"


def describe_hidden_slices(rows: Sequence[MeasureRow]) -> str:
    """Return a remark with the number of hidden slices (`rows`) and their share of the data; "" if there are none."""
    if not rows:
        return ""
    part = sum(r.part for r in rows if math.isfinite(r.part))
    return f"And {describe_slices(rows)}, with less impact and {format_share(part)} of the rows; the table lists all."


def format_key(key: Sequence[Any]) -> str:
    """Return the name of a slice: the values of its key, as in "DE · mobile"."""
    return " · ".join(format_atom(k) if format_atom(k) != "" else "(empty)" for k in key)


def build_hero(row: MeasureRow, percent: bool) -> tuple[MeasureRow, RowAxis]:
    """Return a copy of `row`, the most important row, and the axis of its large chart at the top of the page.

    The axis includes zero.
    """
    axis, a, b = build_shared_axis([row], row.name, percent)
    hero = MeasureRow(**row.__dict__)
    place_rows([hero], shared=axis, low=a, high=b)
    return hero, axis


def count_shown_slices(place: int, groups: int) -> int:
    """Return the largest number of slices to show in each group of a forest plot.

    `place` is the position of the metric on the page, and `groups` is the number of groups of slices. The result is
    larger for the first metric (`place` 0), and smaller if there are many groups.
    """
    return max(20, (200 if place == 0 else 40) // max(1, groups // 2))


def name_sides(reason: str, sides: tuple[NamedSide, NamedSide]) -> str:
    """Replace "the first side" and "the second side" in a reason with the names of the sides."""
    return reason.replace("the first side", sides[0].name).replace("the second side", sides[1].name)


def shorten_reason(reason: str) -> str:
    """Return the part of a reason between "too few: " and the next semicolon; return other reasons unchanged."""
    return reason.partition("too few: ")[2].partition(";")[0] or reason


def collect_reasons(rows: Sequence[MeasureRow]) -> list[str]:
    """Return the reasons for missing intervals and conclusions, each preceded by the names of the metrics concerned."""
    ratios = [r.name for r in rows if ONE_IS_BEST in r.sub and r.word == "unclear" and r.bold]
    unclear = [f"{', '.join(ratios)}: the values differ, but it is unclear which one is closer to 1."] if ratios else []
    names: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.reason:
            names.setdefault(row.reason, {})[row.name] = None
    return [*unclear, *(f"{', '.join(some)}: {reason}." for reason, some in names.items())]
