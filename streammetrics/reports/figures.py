"""From comparisons to the rows of a page: texts, and places on axes. Nothing is computed here but these."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ..inference.comparison import Comparison
from ..numerics.keys import shown
from ..reading.about import best_of
from .charts import linear
from .numbers import decimals_of, fixed, p_text, proof, share, signed
from .page_model import Figure, Forest, Group, IntervalBar, NamedSide, RowAxis

__all__ = [
    "averaged", "by_name", "common_decimals", "figure_of", "forest", "hero_of", "in_percent", "key_text", "plenty",
    "reasons_of", "shared_axis", "shorter", "spans", "told_words", "under",
]  # fmt: skip

RATES = ("ctr", "predicted_ctr", "precision", "recall", "false_positive_rate", "specificity", "accuracy", "error_rate",
         "hit_rate", "top_k_accuracy", "subset_accuracy", "hamming_loss")  # fmt: skip
RELATIVE = (*RATES, "log_loss", "normalized_entropy", "brier_score", "average_precision", "mae", "mse", "rmse", "wmae",
            "mean", "sum", "count", "ratio", "per_unit", "quantile")  # fmt: skip
FEW = 1e-12
WORDS = ("better", "held", "unclear", "undecided", "too few", "worse", "breached")
PLENTY = 200  # slices of a forest


def arrow(best: Any) -> str:
    """Say which values are better."""
    return {"high": "↑ higher is better", "low": "↓ lower is better"}.get(str(best), "→ 1 is best" if best else "")


def averaged(metric: Any) -> str:
    """Say how a metric of several classes or labels is averaged."""
    if not getattr(metric, "_class_settings", None):
        return ""
    how = getattr(metric, "average", None)
    said = {"macro": "macro: the mean of the classes", "micro": "micro: all classes as one",
            "weighted": "weighted by the rows of each class"}  # fmt: skip
    return said.get(str(how), "")


def under(metric: Any, best: Any = None) -> str:
    """What stands below the name of a measure."""
    return "; ".join(t for t in (arrow(best or best_of(metric)), averaged(metric)) if t)


def tag_of(metric: Any) -> str:
    """Return the tag of a metric; empty if a comparison does not know its metric."""
    return "" if metric is None else str(metric.about.tag)


def in_percent(tag: str) -> bool:
    """Whether values of a metric are shares that are read in percent."""
    return tag.partition("@")[0] in RATES


def figure_of(one: Comparison, name: str = "", *, decimals: int | None = None, slices: bool = False) -> Figure:
    """Return the row of a comparison, a against b; of slices, whose axis they share, with the decimals of all."""
    tag = tag_of(one.metric)
    percent = in_percent(tag)
    found = one.relative if percent else one.difference
    half = (found.high - found.low) / 2
    if decimals is None:
        own = decimals_of(half * (100 if percent else 1))
        decimals = (1 if percent else 4) if own is None else own
    best = best_of(one.metric)
    turned = -1.0 if best == "low" or (best == 1.0 and one.b > 1.0 and not slices) else 1.0
    ends = tuple(v * turned for v in (found.low, found.estimate, found.high))
    ends = (ends[2], ends[1], ends[0]) if turned < 0 else ends
    some = math.isfinite(half)
    relative = one.relative.estimate
    digits = decimals if not percent else _value_decimals(one)
    return Figure(
        name or one.name,
        under(one.metric),
        fixed(one.a, digits, percent),
        fixed(one.b, digits, percent),
        signed(found.estimate, decimals, percent),
        signed(relative, 1, True) if tag in RELATIVE and not percent and math.isfinite(relative) else "",
        f"±{fixed(half, decimals, percent)}" if some else "",
        f"{signed(found.low, decimals, percent)} to {signed(found.high, decimals, percent)}" if some else "",
        "" if one.reason else p_text(one.adjusted if math.isfinite(one.adjusted) else one.p_value),
        proof(0.0 if one.bound <= FEW * abs(one.a) else one.bound) if math.isfinite(one.bound) else "",
        bold=some and not (found.low <= 0.0 <= found.high) and _clear(one),
        word=word_of(one),
        reason=typeset_reason(one.reason),
        ends=ends,
        turned=turned,
        rows=one.rows,
    )


def _clear(one: Comparison) -> bool:
    """Whether a difference leaves zero out beyond both kinds of error, and among all those of its table."""
    bound = one.bound if math.isfinite(one.bound) else 0.0
    found = one.difference
    beyond = found.low - bound > 0.0 or found.high + bound < 0.0
    return beyond and not one.adjusted > 1.0 - found.confidence


def _value_decimals(one: Comparison) -> int:
    """Decimals of shares whose difference is shown as a share of them."""
    found = decimals_of((one.difference.high - one.difference.low) / 2 * 100)
    return 2 if found is None else min(found, 4)


def common_decimals(halves: Iterable[float], percent: bool) -> int:
    """Return the decimals of a column: those of the half intervals of most rows."""
    known = sorted(h for h in halves if h > 0.0 and math.isfinite(h))
    found = decimals_of(known[len(known) // 2] * (100 if percent else 1)) if known else None
    return (1 if percent else 4) if found is None else found


def word_of(one: Comparison) -> str:
    """What a comparison says of a: "better", "worse", "unclear", "too few"; of what has no better side nothing."""
    if one.reason is not None or math.isnan(one.difference.low):
        return "too few"
    if best_of(one.metric) is None:
        return ""
    return {"a": "better", "b": "worse"}.get(str(one.better), "unclear")


def typeset_reason(reason: Any) -> str:
    """A reason as a page has it."""
    return str(reason) if isinstance(reason, str) else ""


def spans(rows: Iterable[Figure], *, shared: RowAxis | None, low: float = 0.0, high: float = 0.0) -> None:
    """Place rows on the axis that they share from low to high, or each on its own, with zero in the middle."""
    for row in rows:
        ends = [v for v in row.ends if math.isfinite(v)]
        if not ends:
            continue
        a, b = (low, high) if shared is not None else _own([*ends, *([row.margin] if row.margin is not None else [])])
        row.span = span(row.ends, a, b, limit=row.margin, over=row.over)


def _own(values: list[float]) -> tuple[float, float]:
    far = max(map(abs, values)) * 1.12 or 1.0
    return -far, far


def span(
    ends: tuple[float, float, float], a: float, b: float, whole: float | None = None, limit: float | None = None,
    *, over: bool = False,
) -> IntervalBar:  # fmt: skip
    """Return where an interval is on an axis from a to b."""

    def at(v: float) -> float:
        return min(max((v - a) / (b - a) * 100.0, 0.0), 100.0)

    low, mid, high = ends
    known = math.isfinite(low) and math.isfinite(high)
    low, high = (low, high) if known else (mid, mid)
    return IntervalBar(
        at(low), at(mid), at(high), at(0.0), low < a, high > b,
        None if whole is None or not math.isfinite(whole) else at(whole), None if limit is None else at(limit), over,
    )  # fmt: skip


def shared_axis(
    rows: Sequence[Figure], title: str, percent: bool, whole: float | None = None, *, most: float = 2.0
) -> tuple[RowAxis, float, float]:
    """Return an axis for rows, set by those that are not too few; an interval much longer than most runs out of it."""
    set_by = [r for r in rows if not r.few and math.isfinite(r.ends[1])] or [
        r for r in rows if math.isfinite(r.ends[1])
    ]
    mids = [r.ends[1] for r in set_by]
    halves = sorted(r.ends[2] - r.ends[0] for r in set_by if math.isfinite(r.ends[2] - r.ends[0]))
    reach = halves[(len(halves) - 1) // 2] / 2 * most if halves else 0.0
    marks = [
        0.0,
        *([whole] if whole is not None and math.isfinite(whole) else []),
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
    turned = -1.0 if rows and all(r.turned < 0 for r in rows) else 1.0
    scale = linear(low, high, percent=percent, sign=True, most=4.5)
    ticks = [((v - low) / (high - low) * 100.0, _flipped(text) if turned < 0 else text) for v, text in scale.ticks]
    return RowAxis(title, ticks), low, high


def _flipped(text: str) -> str:
    return {"+": "−", "−": "+"}.get(text[:1], text[:1]) + text[1:]


def forest(
    metric: str, sides: tuple[NamedSide, NamedSide], groups: Sequence[tuple[str, Sequence[Figure]]], *, percent: bool,
    whole: float | None, interval: str, best: Any, first: bool, plenty: int = PLENTY,
) -> Forest:  # fmt: skip
    """Return slices on one axis, the largest impact first, those too small last; of many only the first."""
    every = [r for _, rows in groups for r in rows]
    title = f"{metric} difference{', better →' if best in ('high', 'low') else ''}"
    axis, low, high = shared_axis(every, title, percent, whole)
    decimals = max((len(r.change.partition(".")[2].rstrip("\u202f%")) for r in every), default=4)
    made = []
    for name, rows in groups:
        total = sum(r.rows for r in rows)
        for r in rows:
            if math.isnan(r.part) and total:
                r.part = r.rows / total
            r.share = share(r.part) if math.isfinite(r.part) else ""
            impact = r.part * r.ends[1] * r.turned
            r.impact = signed(impact, min(decimals + 1, 6), percent) if math.isfinite(impact) else ""
            r.order = {"rows": float(r.rows), "diff": r.ends[1] * r.turned, "imp": abs(impact)}
            r.span = None if math.isnan(r.ends[1]) else span(r.ends, low, high, whole)
        ordered = sorted(
            rows, key=lambda r: (r.few, -r.order["imp"] if math.isfinite(r.order["imp"]) else math.inf, r.name)
        )
        kept = ordered[:plenty]
        made.append(Group(name, told_words(rows), kept, more_words(ordered[plenty:])))
    return Forest(metric, f"{metric}: difference by slice", sides, made, axis, interval, first)


def told_words(rows: Sequence[Figure]) -> str:
    """Say how many slices there are, and what they say: "12 slices: better in 10, unclear in 1, too few in 1"."""
    counts = [(w, sum(r.word == w for r in rows)) for w in WORDS]
    told = ", ".join(f"{w} in {n:,}" for w, n in counts if n)
    if told and any(w in ("better", "worse") for w, n in counts if n) and not dict(counts)["worse"]:
        told += ", worse in none"
    return f"{len(rows):,} slice{'s' if len(rows) != 1 else ''}{': ' if told else ''}{told}"


def more_words(rows: Sequence[Figure]) -> str:
    """What is said of slices that are not shown."""
    if not rows:
        return ""
    part = sum(r.part for r in rows if math.isfinite(r.part))
    return f"And {told_words(rows)}, of less impact, with {share(part)} of the rows; the table has all."


def key_text(key: Sequence[Any]) -> str:
    """The name of a slice."""
    return " · ".join(shown(k) if shown(k) != "" else "(empty)" for k in key)


def hero_of(row: Figure, percent: bool) -> tuple[Figure, RowAxis]:
    """The difference that decides, on an axis that shows zero."""
    made, a, b = shared_axis([row], row.name, percent)
    hero = Figure(**row.__dict__)
    spans([hero], shared=made, low=a, high=b)
    return hero, made


def plenty(place: int, groups: int) -> int:
    """How many slices of a group are shown."""
    return max(20, (200 if place == 0 else 40) // max(1, groups // 2))


def by_name(reason: str, sides: tuple[NamedSide, NamedSide]) -> str:
    """Return a reason that says what both sides are called."""
    return reason.replace("the first side", sides[0].name).replace("the second side", sides[1].name)


def shorter(reason: str) -> str:
    """Return the reason of a slice without what is true of all: whose it is, and how much is needed."""
    return reason.partition("too few: ")[2].partition(";")[0] or reason


def reasons_of(rows: Sequence[Figure]) -> list[str]:
    """Say why rows are not read."""
    return list(dict.fromkeys(f"{r.name}: {r.reason}." for r in rows if r.reason))
