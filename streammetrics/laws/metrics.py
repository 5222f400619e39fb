"""Laws of metrics: values and bounds, weights, dtypes and formats, dropped rows, company."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.ids import Ids
from ..batch.kinds import Label, Score
from ..collect.accumulator import definition_of
from ..collect.collection import MetricCollection
from ..collect.metric import METRICS, Metric
from ..collect.metric_like import coarsen, empty_copy, with_states
from ..collect.serialization import from_bytes, merge
from ..errors import IncompatibleStateError, InvalidInputError
from ..reading.about import about_of
from ..reading.interval import QUERIES, ROWS
from ..reading.records import dropped_of
from ..state.state import State
from .case import Case, Law, by_name, expect, folded, numbers, refuses, same, same_value, value_of
from .specimens import Columns, events, formats, on_grid, spoil, tables

UNITS = 2.0**-59  # where a weight stands for rows, terms are rounded to 2**-60 once instead of k times
CLOSE = 2.0**-44  # and relatively, where these are divided by what is small


def registered(case: Case) -> None:
    """The class has a tag of its own, under which its bytes find it."""
    metric = case.make()
    expect(METRICS.get(metric.about.tag) is type(metric), "a class declared with tag=", f"tag {metric.about.tag!r}")
    state = metric.state
    expect(State.by_tag.get(state.tag) is type(state), "a state declared with tag=", f"tag {state.tag!r}")
    expect(isinstance(metric.name, str) and metric.name, "a name", repr(metric.name))


def value_follows_rows(case: Case) -> None:
    """A value is that of the rows seen now, whatever was computed before: after update, merge and reset alike."""
    a, b = (case.take(rows) for rows in case.parts(2))
    nothing, whole = value_of(case.make()), value_of(case.fed())
    for change in ("update", "merge"):
        metric = case.fed(a)
        value_of(metric)
        getattr(metric, change)(b if change == "update" else case.fed(b))
        same_value(whole, value_of(metric), f"{change}() after compute() to change the value")
        same_value(nothing, value_of(metric.reset()), "reset() after compute() to change the value")


def within_bounds(case: Case) -> None:
    """The value lies within its certified bounds, and is the same from the state alone."""
    metric = case.fed()
    value, (low, high) = value_of(metric), metric.bounds()
    same_value(
        value,
        metric.reading(from_bytes(metric.to_bytes(), Metric).state).value,
        "reading(state) to have what compute() returns",
    )
    v, a, b = numbers(value), numbers(low), numbers(high)
    inside = ((a <= v) & (v <= b)) | (np.isnan(v) & np.isnan(a) & np.isnan(b))
    expect(inside.all(), f"a value within [{low}, {high}]", repr(value))


def interval_around_value(case: Case) -> None:
    """An interval is finite, holds the value, widens with confidence; or there is a reason. Split and merged, the same."""
    metric = case.fed()
    found = [metric.interval(confidence) for confidence in (0.5, 0.8, 0.95, 0.999)]
    parts = merge([case.fed(case.take(rows)) for rows in case.parts(3)]).interval()
    expect(repr(parts) == repr(found[2]), "the interval of parts that were merged to be that of all", repr(parts))
    for name in ("estimate", "reason"):
        expect(len({repr(getattr(one, name)) for one in found}) == 1, f"one {name} at all confidences", repr(found))
    for one in found:
        low, high = numbers(one.low), numbers(one.high)
        if one.reason is not None:
            expect(one.reason and np.isnan([*low, *high]).all(), "a reason, and no limits", repr(one))
            continue
        some, value = ~np.isnan(low), numbers(one.estimate)
        same_value(one.estimate, value_of(metric), "the estimate to be the value")
        expect(np.isfinite([*low[some], *high[some]]).all() and some.any(), "finite limits", repr(one))
        expect(((low <= value) & (value <= high))[some].all(), "the value between the limits", repr(one))
        expect(
            (numbers(one.standard_error)[some] >= 0).all() and one.method and one.assumption, "its making", repr(one)
        )
    for narrow, wide in itertools.pairwise(one for one in found if one.reason is None):
        some = ~np.isnan(numbers(narrow.low))
        slack = 1e-12 * np.abs(numbers(narrow.estimate))[some]
        wider = numbers(wide.low)[some] <= numbers(narrow.low)[some] + slack
        wider &= numbers(wide.high)[some] >= numbers(narrow.high)[some] - slack
        expect(wider.all(), f"limits at {wide.confidence} around those at {narrow.confidence}", repr((narrow, wide)))


def interval_narrows(case: Case) -> None:
    """The same rows, or queries, a second time make no interval wider."""
    once = case.fed().interval()
    twice = case.fed().update(**case.again()).interval()
    if once.reason is None and twice.reason is None and once.assumption in (ROWS, QUERIES):
        wide, narrow = (numbers(one.high) - numbers(one.low) for one in (once, twice))
        both = ~np.isnan(wide) & ~np.isnan(narrow)
        slack = 1e-9 * np.abs(numbers(once.estimate))[both]
        expect((narrow[both] <= wide[both] * (1 + 1e-9) + slack).all(), f"no more than {once!r}", repr(twice))


def weight_of_one(case: Case) -> None:
    """Weights of one give the same bytes as no weights."""
    if role := case.weight():
        plain = {k: v for k, v in case.columns.items() if k != role}
        same(case.fed(plain), case.fed(plain | {role: np.ones(case.n)}), "weights of one to be no weights")


def integer_weights(case: Case) -> None:
    """A row, or block, of weight k has the value of k of them; unless a metric says that it counts rows as they come."""
    if role := _repeating(case):
        plain = {k: v for k, v in _without_next_to_nothing(case).items() if k != role}
        times = case.rng.integers(1, 4, case.n)[case.blocks]
        weighted = case.fed(plain | {role: times.astype(np.float64)})
        repeated = case.fed(_repeated(case, plain, times))
        if folded(repeated) == folded(weighted):  # they are more rows, and can be too many to be kept exactly
            same_value(value_of(repeated), value_of(weighted), "weight k to be worth k rows", CLOSE, UNITS)


def _repeating(case: Case) -> str | None:
    """The role of the weights, if they stand for so many rows."""
    return case.weight() if case.metric is None or about_of(case.metric).weights_are_counts else None


def _without_next_to_nothing(case: Case) -> Columns:
    """The rows, with 0 for small probabilities: of a bin of such alone the sum in fixed point has few digits."""
    nothing = {"probability": (2.0**-10, 0.0), "logit": (-7.0, -1000.0)}
    scored = {
        n.role: getattr(getattr(n.kind, "kind", n.kind), "scale", "") for n in case.of(Score) if n.role in case.columns
    }
    small = {role: nothing[scale] for role, scale in scored.items() if scale in nothing}
    return case.columns | {r: np.where(case.columns[r] < a, b, case.columns[r]) for r, (a, b) in small.items()}


def _repeated(case: Case, columns: Columns, times: NDArray[np.int64]) -> Columns:
    """Return each row, or block, so many times; repeated blocks go by other names."""
    assert case.metric is not None
    together = case.metric.make_state().together
    if together is None:
        return {k: np.repeat(v, times, axis=0) for k, v in columns.items()}
    copies = [np.flatnonzero(times > i) for i in range(3)]
    made = {k: np.concatenate([v[rows] for rows in copies]) for k, v in columns.items()}
    made[together] = np.concatenate([case.blocks[rows] + i * case.n for i, rows in enumerate(copies)])
    return made


def weight_of_zero(case: Case) -> None:
    """A row of weight 0, or a label of it, changes no value; unless a metric says that it counts rows as they come."""
    if role := _repeating(case):
        weights = case.columns.get(role, np.ones(case.n)).astype(np.float64)
        weights[(case.rng.random(case.n) < 0.4)[case.blocks]] = 0
        columns = case.columns | {role: weights}
        whole, some = case.fed(columns), np.atleast_2d(weights.T).any(axis=0)
        kept, came = case.fed({k: v[some] for k, v in columns.items()}), value_of(whole)
        if folded(kept) == folded(whole):  # rows of weight 0 are rows, too, and can be too many to be kept exactly
            same_value(value_of(kept), came, "rows of weight 0 to be worth nothing", CLOSE)
        if weights.ndim > 1:  # of scores, those of other labels may decide
            others = np.where(weights == 0, np.roll(columns["y_true"], 1, axis=0), columns["y_true"])
            changed = value_of(case.fed(columns | {"y_true": others}))
            same_value(came, changed, "labels of weight 0 to be worth nothing", CLOSE)


def weighted_with_unweighted(case: Case) -> None:
    """Batches with weights and batches without go together: no weights are weights of one."""
    if role := case.weight():
        plain = {k: v for k, v in case.columns.items() if k != role}
        rows, others = case.parts(2)
        weights = case.columns.get(role, np.full(case.n, 2.0)).astype(np.float64)
        weights[others] = 1
        whole = case.fed(plain | {role: weights})
        one = case.fed({k: v[rows] for k, v in plain.items()} | {role: weights[rows]})
        two = case.fed({k: v[others] for k, v in plain.items()})
        same(whole, one.copy().merge(two), "weighted and unweighted states to merge")
        same(whole, two.merge(one), "unweighted and weighted states to merge")
        mixed = case.fed({k: v[others] for k, v in plain.items()})
        same(
            whole, mixed.update({k: v[rows] for k, v in (plain | {role: weights}).items()}), "a mix of batches to count"
        )


def label_dtypes(case: Case) -> None:
    """Labels of equal value count alike in every dtype."""
    whole = case.fed()
    for need in [n for n in case.of(Label) if n.role in case.columns]:
        for dtype in ("?", "u1", "i1", "<i4", ">i8", "u8", "f2", "<f4", ">f8"):
            cast = case.columns | {need.role: case.columns[need.role].astype(dtype)}
            same(whole, case.fed(cast), f"{need.role} as {np.dtype(dtype)} to count alike")


def score_dtypes(case: Case) -> None:
    """Scores that every floating dtype holds count alike in each; so do weights."""
    held = {n.role: on_grid(n.kind, case.rng, case.n) for n in case.of(Score)}
    if (role := case.weight()) in case.columns:
        held[role] = np.ldexp(1.0, case.rng.integers(-10, 10, case.n))
    columns = case.fitting(case.columns | held)
    whole = case.fed(columns)
    for dtype in ("f2", "<f4", ">f4", ">f8"):
        cast = columns | {name: columns[name].astype(dtype) for name in held}
        same(whole, case.fed(cast), f"{', '.join(held)} as {np.dtype(dtype)} to count alike")


def key_dtypes(case: Case) -> None:
    """A key is its value, in every integer dtype, mixed over batches; text is refused beside integers that are kept."""
    first, rest = case.parts(2)
    for role in [n.role for n in case.of(Ids) if case.columns[n.role].dtype.kind in "iu"]:
        case = case._replace(columns=case.columns | {role: case.columns[role] - case.columns[role].min(initial=0) + 1})
        whole = case.fed()
        for dtype in ("<i4", ">i8", "u8", "O"):
            cast = case.columns | {role: case.columns[role].astype(dtype)}
            same(whole, case.fed(cast), f"{role} as {np.dtype(dtype)} to count alike")
        if not (len(first) and len(rest) and "kinds" in whole.state.parts()):
            continue
        mixed = case.fed(case.take(first))
        by_name(mixed, {k: v[rest].astype("u8") if k == role else v[rest] for k, v in case.columns.items()})
        same(
            merge([case.fed(case.take(first)), case.fed(case.take(rest))]),
            mixed,
            f"{role} as uint64 to go on from int64",
        )
        text = {k: v[rest].astype("U") if k == role else v[rest] for k, v in case.columns.items()}
        refuses(
            InvalidInputError, partial(by_name, case.fed(case.take(first)), text), f"{role} as text beside integers"
        )
        refuses(
            IncompatibleStateError, partial(case.fed(case.take(first)).merge, case.fed(text)), f"{role} of both kinds"
        )


def shifted_logits(case: Case) -> None:
    """A constant added to all logits of a row of classes changes no value: they stand for the softmax of the row."""
    metric, several = case.metric, {"scale": "logit", "num_classes": 3, "labels": None, "num_labels": None}
    if metric is None or not {"scale", "num_classes"} <= metric.settings.keys():
        return
    try:
        prototype = type(metric)(**(metric.settings | {k: v for k, v in several.items() if k in metric.settings}))
    except ValueError:  # these settings are not of classes, or not of logits
        return
    classes, logits = case.rng.integers(0, 3, case.n), case.rng.integers(-256, 257, (case.n, 3)) / 32
    constants = case.rng.integers(-64, 65, (case.n, 1)) / 4  # of so few bits that sums are exact
    whole, moved = (empty_copy(prototype).update(classes, given) for given in (logits, logits + constants))
    same_value(value_of(whole), value_of(moved), "a constant added to a row of logits to change nothing", CLOSE)


def column_formats(case: Case) -> None:
    """Lists, arrays, series, Arrow arrays and tensors of equal values count alike."""
    columns = {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in case.columns.items()}
    whole = case.fed(columns)
    for name, column in columns.items():
        for what, given in formats(column):
            same(whole, case.fed(columns | {name: given}), f"{name} as a {what} to count alike")


def table_formats(case: Case) -> None:
    """Mappings, data frames, Arrow tables, record batches, events and keywords of equal columns count alike."""
    whole = case.fed()
    if _has_single_events(case):
        one = case.make()
        for event in events(case.columns):
            one.update(event)
        same(whole, one, "events one at a time to count alike")
    for what, table in tables(case.columns):
        same(whole, case.make().update(table), f"a {what} to count alike")
    same(whole, case.make().update(**case.columns), "keywords to count alike")
    must = [role for role in definition_of(whole).positional_columns() if role in case.columns]
    rest = {k: v for k, v in case.columns.items() if k not in must}
    same(whole, case.make().update(*(case.columns[r] for r in must), **rest), "positions to count alike")


def _has_single_events(case: Case) -> bool:
    """Whether a row can come alone: no block of rows, and a first column that says that a list beside it is a row."""
    together = case.metric is None or case.metric.make_state().together is not None
    return not together and all(column.ndim == 1 for column in [*case.columns.values()][:1])


def dropped_rows(case: Case) -> None:
    """With on_invalid="drop" bad rows are left out and counted, and the counts merge."""
    columns, reasons = spoiled(case)
    make = dropping(case)
    kept = {k: v[reasons == ""] for k, v in columns.items()}
    metric = case.fed(columns, make)
    counts = {r: int(np.count_nonzero(reasons == r)) for r in metric.state.reasons if (reasons == r).any()}
    expect(dropped_of(metric.state) == counts, f"dropped rows to be counted as {counts}", dropped_of(metric.state))
    same(case.fed(kept), undropped(metric), "the rows that are left to count as if they were alone")
    parts = [case.fed({k: v[rows] for k, v in columns.items()}, make) for rows in case.parts(3)]
    same(metric, merge(parts), "counts of dropped rows to merge")


def undropped(metric: Any) -> Any:
    """Return a metric that has seen the same good rows, and no bad ones."""
    state = metric.state
    flats = {name: array for name, array in state.cells.flats.items() if name != "dropped"}
    return with_states(metric, [state.holding(replace(state.cells, flats=flats)).present()])


def dropping(case: Case) -> Callable[[], Any]:
    """Return what makes the metric of a case, leaving out bad rows."""
    cls, settings = type(case.metric), case.metric.settings if case.metric is not None else {}
    return lambda: cls(**settings, on_invalid="drop")  # type: ignore[misc]


def spoiled(case: Case) -> tuple[Columns, NDArray[Any]]:
    """Return the rows, some of them bad, and by row the reason for which it is dropped, or nothing."""
    columns, reasons = dict(case.columns), np.full(case.n, "", object)
    for role in reversed([n.role for n in case.needs]):  # the first reason wins
        if role in case.bad and role in columns:
            hit = case.rng.random(case.n) < 0.2
            columns[role] = spoil(columns[role], hit, case.bad[role])
            reasons[hit] = role
    return columns, reasons


def in_collection(case: Case) -> None:
    """In a collection with others of the same columns, also those that share its state, it is what it is alone."""
    assert case.metric is not None
    metrics = {"": case.metric} | company(case.metric, case.columns)
    whole = MetricCollection(metrics).update(case.columns)
    chosen = ["", *case.rng.choice(list(metrics), 2)]
    for name in chosen:
        alone = empty_copy(metrics[name]).update(case.columns)
        same(alone, whole[name], f"{metrics[name]!r} to be in company what it is alone")
    parts = [MetricCollection(metrics).update(case.take(rows)) for rows in case.parts(2)]
    same(case.fed(), merge(parts)[""], "merged collections to hold what merged metrics hold")
    decoded = from_bytes(whole.to_bytes(), MetricCollection)
    same(case.fed(), decoded[""], "bytes of a collection to hold what the metric holds")
    same(case.fed(), whole.only([""])[""], "only() to keep what the metric holds")


def company(metric: Metric[Any, Any], columns: Columns) -> dict[str, Metric[Any, Any]]:
    """Every registered metric of the same statistic that takes these rows: what needs no kernel that this one does not."""
    found, mine = {}, metric.make_state()
    for tag, cls in list(METRICS.items()):
        alike = {n: getattr(metric, n) for n in ("scale", "soft_labels") if hasattr(cls, n) and _has(metric, n)}
        try:
            other = cls(**{**cls.about.example, **alike})
            theirs = other.make_state()
            if theirs.tag == mine.tag and theirs.needs() == mine.needs():
                other.update(columns)
                found[tag] = empty_copy(other)
        except Exception:  # noqa: BLE001 - another scale; rows that contradict its settings; broken itself
            continue
    return found


def _has(metric: Any, setting: str) -> bool:
    return getattr(metric, setting, None) is not None


def coarsened(case: Case) -> None:
    """A histogram brought down to fewer bits is what the rows would have made there."""
    metric = case.make()
    if definition_of(metric).can_coarsen and (metric.settings.get("bits") or 0) > 8:
        expect(coarsen(metric, 8).settings["bits"] == 8, "coarsen(8) to have 8 bits")
    if hasattr(metric.state, "coarsen") and "bits" in metric.settings and (metric.state.bits or 0) > 8:
        bits = int(case.rng.integers(8, metric.state.bits))
        low = coarsen(metric, bits)  # with a limit of its own: rows that are kept exactly come down with the bits
        usual = type(metric)(
            **(metric.settings | {"bits": bits} | ({"limit": low.limit} if hasattr(low, "limit") else {}))
        )
        same(usual, low, f"coarsen({bits}) to change bits and limit alone")
        same(low.update(case.columns), coarsen(case.fed(), bits), f"coarsen({bits}) to give what {bits} bits would")


METRIC_LAWS: list[Law] = [
    value_follows_rows,
    within_bounds,
    interval_around_value,
    interval_narrows,
    weight_of_one,
    integer_weights,
    weight_of_zero,
    weighted_with_unweighted,
    label_dtypes,
    score_dtypes,
    key_dtypes,
    shifted_logits,
    column_formats,
    table_formats,
    dropped_rows,
    in_collection,
    coarsened,
]
"""What metrics keep besides."""
