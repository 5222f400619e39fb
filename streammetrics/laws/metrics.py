"""Laws that a single metric must satisfy, for example about its value, bounds, weights and accepted dtypes."""

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
from ..collect.parameter_docs import settable_names
from ..collect.serialization import from_bytes, merge
from ..errors import IncompatibleStateError, InvalidInputError
from ..reading.about import about_of
from ..reading.interval import QUERIES, ROWS
from ..reading.records import dropped_of
from ..state.state import State
from .case import (
    Case,
    Law,
    expect,
    expect_error,
    expect_same_bytes,
    expect_same_value,
    folded_cells,
    numbers,
    update_by_name,
    value_of,
)
from .specimens import Columns, events, formats, on_grid, spoil, tables

# The absolute tolerance for comparing one row of weight k with k rows of weight 1. The contribution of a row to a sum
# is rounded to a multiple of 2**-60: once for the single row, but k times for the k rows.
UNITS = 2.0**-59
# The relative tolerance for comparing values that are equal except for rounding errors. It exceeds the rounding error
# of a sum, because a metric may divide sums by small numbers.
CLOSE = 2.0**-44


def has_tag(case: Case) -> None:
    """The classes of the metric and its state are registered under their tags, so that saved bytes can be loaded."""
    metric = case.make()
    expect(METRICS.get(metric.about.tag) is type(metric), "a class declared with tag=", f"tag {metric.about.tag!r}")
    state = metric.state
    expect(State.by_tag.get(state.tag) is type(state), "a state declared with tag=", f"tag {state.tag!r}")
    expect(isinstance(metric.name, str) and metric.name, "a name", repr(metric.name))


def value_follows_rows(case: Case) -> None:
    """After `update`, `merge` or `reset`, `compute` gives the value of the current rows, even if it ran before."""
    a, b = (case.take(rows) for rows in case.parts(2))
    nothing, whole = value_of(case.make()), value_of(case.build())
    for change in ("update", "merge"):
        metric = case.build(a)
        value_of(metric)
        getattr(metric, change)(b if change == "update" else case.build(b))
        expect_same_value(whole, value_of(metric), f"{change}() after compute() to change the value")
        expect_same_value(nothing, value_of(metric.reset()), "reset() after compute() to change the value")


def within_bounds(case: Case) -> None:
    """The value lies within its certified bounds, and a state that is saved and loaded again gives the same value."""
    metric = case.build()
    value, (low, high) = value_of(metric), metric.bounds()
    expect_same_value(
        value,
        metric.reading(from_bytes(metric.to_bytes(), Metric).state).value,
        "reading(state).value to equal compute()",
    )
    v, a, b = numbers(value), numbers(low), numbers(high)
    inside = ((a <= v) & (v <= b)) | (np.isnan(v) & np.isnan(a) & np.isnan(b))
    expect(inside.all(), f"a value within [{low}, {high}]", repr(value))


def interval_around_value(case: Case) -> None:
    """An interval is finite, contains the value and widens with the confidence level; an undefined one has a reason."""
    metric = case.build()
    intervals = [metric.interval(confidence) for confidence in (0.5, 0.8, 0.95, 0.999)]
    parts = merge([case.build(case.take(rows)) for rows in case.parts(3)]).interval()
    expect(repr(parts) == repr(intervals[2]), "merged parts to have the interval of all rows", repr(parts))
    for name in ("estimate", "reason"):
        expect(
            len({repr(getattr(one, name)) for one in intervals}) == 1,
            f"the same {name} at all confidence levels",
            repr(intervals),
        )
    for one in intervals:
        low, high = numbers(one.low), numbers(one.high)
        if one.reason is not None:
            expect(one.reason and np.isnan([*low, *high]).all(), "a reason, and no limits", repr(one))
            continue
        some, value = ~np.isnan(low), numbers(one.estimate)
        expect_same_value(one.estimate, value_of(metric), "the estimate to be the value")
        expect(np.isfinite([*low[some], *high[some]]).all() and some.any(), "finite limits", repr(one))
        expect(((low <= value) & (value <= high))[some].all(), "the value between the limits", repr(one))
        expect(
            (numbers(one.standard_error)[some] >= 0).all() and one.method and one.assumption,
            "a method and an assumption",
            repr(one),
        )
    for narrow, wide in itertools.pairwise(one for one in intervals if one.reason is None):
        some = ~np.isnan(numbers(narrow.low))
        slack = 1e-12 * np.abs(numbers(narrow.estimate))[some]
        wider = numbers(wide.low)[some] <= numbers(narrow.low)[some] + slack
        wider &= numbers(wide.high)[some] >= numbers(narrow.high)[some] - slack
        expect(
            wider.all(),
            f"the {wide.confidence} interval to contain the {narrow.confidence} interval",
            repr((narrow, wide)),
        )


def interval_narrows(case: Case) -> None:
    """Counting the same rows or queries twice does not widen the interval."""
    once = case.build().interval()
    twice = case.build().update(**case.next_columns()).interval()
    if once.reason is None and twice.reason is None and once.assumption in (ROWS, QUERIES):
        wide, narrow = (numbers(one.high) - numbers(one.low) for one in (once, twice))
        both = ~np.isnan(wide) & ~np.isnan(narrow)
        slack = 1e-9 * np.abs(numbers(once.estimate))[both]
        expect(
            (narrow[both] <= wide[both] * (1 + 1e-9) + slack).all(), f"an interval no wider than {once!r}", repr(twice)
        )


def weight_of_one(case: Case) -> None:
    """Weights of 1 give the same bytes as no weights."""
    if role := case.weight_role():
        plain = {k: v for k, v in case.columns.items() if k != role}
        expect_same_bytes(
            case.build(plain), case.build(plain | {role: np.ones(case.n)}), "weights of 1 to equal no weights"
        )


def integer_weights(case: Case) -> None:
    """A row (or block) of weight k counts as k rows (or blocks), unless the metric's `weights_are_counts` is False."""
    if role := _count_weights_role(case):
        plain = {k: v for k, v in _without_small_probabilities(case).items() if k != role}
        times = case.rng.integers(1, 4, case.n)[case.blocks]
        weighted = case.build(plain | {role: times.astype(np.float64)})
        repeated = case.build(_repeat_rows(case, plain, times))
        # A state moves its rows to histogram buckets when their number exceeds a limit, which changes the value
        # slightly. Repeated rows may exceed this limit where weighted rows do not. Compare the values only if both
        # objects have moved the rows of the same slices.
        if folded_cells(repeated) == folded_cells(weighted):
            expect_same_value(value_of(repeated), value_of(weighted), "weight k to count as k rows", CLOSE, UNITS)


def _count_weights_role(case: Case) -> str | None:
    """Return the name of the weight column if a weight of k means k rows, or None otherwise."""
    return case.weight_role() if case.metric is None or about_of(case.metric).weights_are_counts else None


def _without_small_probabilities(case: Case) -> Columns:
    """Return the columns with small probabilities set to 0, because their fixed-point sums are imprecise."""
    nothing = {"probability": (2.0**-10, 0.0), "logit": (-7.0, -1000.0)}
    scored = {
        n.role: getattr(getattr(n.kind, "kind", n.kind), "scale", "")
        for n in case.needs_of_kind(Score)
        if n.role in case.columns
    }
    small = {role: nothing[scale] for role, scale in scored.items() if scale in nothing}
    return case.columns | {r: np.where(case.columns[r] < a, b, case.columns[r]) for r, (a, b) in small.items()}


def _repeat_rows(case: Case, columns: Columns, times: NDArray[np.int64]) -> Columns:
    """Return the columns with each row repeated; `times` contains the number of copies of each row.

    If rows form blocks (such as the documents of a query), whole blocks are repeated, and each copy gets a new ID.
    """
    assert case.metric is not None
    block_column = case.metric.make_state().block_column
    if block_column is None:
        return {k: np.repeat(v, times, axis=0) for k, v in columns.items()}
    copies = [np.flatnonzero(times > i) for i in range(3)]
    repeated = {k: np.concatenate([v[rows] for rows in copies]) for k, v in columns.items()}
    repeated[block_column] = np.concatenate([case.blocks[rows] + i * case.n for i, rows in enumerate(copies)])
    return repeated


def weight_of_zero(case: Case) -> None:
    """A row or label of weight 0 does not change the value, unless the metric's `weights_are_counts` is False."""
    if role := _count_weights_role(case):
        weights = case.columns.get(role, np.ones(case.n)).astype(np.float64)
        weights[(case.rng.random(case.n) < 0.4)[case.blocks]] = 0
        columns = case.columns | {role: weights}
        whole, some = case.build(columns), np.atleast_2d(weights.T).any(axis=0)
        without_zeros, value = case.build({k: v[some] for k, v in columns.items()}), value_of(whole)
        # A state moves its rows to histogram buckets when their number exceeds a limit, which changes the value
        # slightly. Rows of weight 0 count toward this limit. Compare the values only if both objects have moved the
        # rows of the same slices.
        if folded_cells(without_zeros) == folded_cells(whole):
            expect_same_value(value_of(without_zeros), value, "rows of weight 0 to change nothing", CLOSE)
        if weights.ndim > 1:
            others = np.where(weights == 0, np.roll(columns["y_true"], 1, axis=0), columns["y_true"])
            changed = value_of(case.build(columns | {"y_true": others}))
            expect_same_value(value, changed, "labels of weight 0 to change nothing", CLOSE)


def weighted_with_unweighted(case: Case) -> None:
    """Batches with and without weights can be mixed; rows of a batch without weights count with a weight of 1."""
    if role := case.weight_role():
        plain = {k: v for k, v in case.columns.items() if k != role}
        rows, others = case.parts(2)
        weights = case.columns.get(role, np.full(case.n, 2.0)).astype(np.float64)
        weights[others] = 1
        whole = case.build(plain | {role: weights})
        one = case.build({k: v[rows] for k, v in plain.items()} | {role: weights[rows]})
        two = case.build({k: v[others] for k, v in plain.items()})
        expect_same_bytes(whole, one.copy().merge(two), "weighted and unweighted states to merge")
        expect_same_bytes(whole, two.merge(one), "unweighted and weighted states to merge")
        mixed = case.build({k: v[others] for k, v in plain.items()})
        expect_same_bytes(
            whole,
            mixed.update({k: v[rows] for k, v in (plain | {role: weights}).items()}),
            "weighted and unweighted batches to mix",
        )


def label_dtypes(case: Case) -> None:
    """The state does not depend on the dtype of the labels."""
    whole = case.build()
    for need in [n for n in case.needs_of_kind(Label) if n.role in case.columns]:
        for dtype in ("?", "u1", "i1", "<i4", ">i8", "u8", "f2", "<f4", ">f8"):
            cast = case.columns | {need.role: case.columns[need.role].astype(dtype)}
            expect_same_bytes(whole, case.build(cast), f"{need.role} as {np.dtype(dtype)} to give the same state")


def score_dtypes(case: Case) -> None:
    """The state does not depend on the dtype of scores and weights, if their values are exact in every dtype."""
    exact_columns = {n.role: on_grid(n.kind, case.rng, case.n) for n in case.needs_of_kind(Score)}
    if (role := case.weight_role()) in case.columns:
        exact_columns[role] = np.ldexp(1.0, case.rng.integers(-10, 10, case.n))
    columns = case.make_consistent(case.columns | exact_columns)
    whole = case.build(columns)
    for dtype in ("f2", "<f4", ">f4", ">f8"):
        cast = columns | {name: columns[name].astype(dtype) for name in exact_columns}
        expect_same_bytes(
            whole, case.build(cast), f"{', '.join(exact_columns)} as {np.dtype(dtype)} to give the same state"
        )


def key_dtypes(case: Case) -> None:
    """The state does not depend on the dtype of integer keys. String keys after integer keys raise an error."""
    first, rest = case.parts(2)
    for role in [n.role for n in case.needs_of_kind(Ids) if case.columns[n.role].dtype.kind in "iu"]:
        case = case._replace(columns=case.columns | {role: case.columns[role] - case.columns[role].min(initial=0) + 1})
        whole = case.build()
        for dtype in ("<i4", ">i8", "u8", "O"):
            cast = case.columns | {role: case.columns[role].astype(dtype)}
            expect_same_bytes(whole, case.build(cast), f"{role} as {np.dtype(dtype)} to give the same state")
        if not (len(first) and len(rest) and "kinds" in whole.state.parts()):
            continue
        mixed = case.build(case.take(first))
        update_by_name(mixed, {k: v[rest].astype("u8") if k == role else v[rest] for k, v in case.columns.items()})
        expect_same_bytes(
            merge([case.build(case.take(first)), case.build(case.take(rest))]),
            mixed,
            f"a uint64 batch of {role} to follow an int64 batch",
        )
        text = {k: v[rest].astype("U") if k == role else v[rest] for k, v in case.columns.items()}
        expect_error(
            InvalidInputError,
            partial(update_by_name, case.build(case.take(first)), text),
            f"{role} as text after integers",
        )
        expect_error(
            IncompatibleStateError,
            partial(case.build(case.take(first)).merge, case.build(text)),
            f"a merge of text and integers in {role}",
        )


def shifted_logits(case: Case) -> None:
    """Adding a constant to all class logits of a row does not change the value, because only their softmax matters."""
    metric, several = case.metric, {"scale": "logit", "num_classes": 3, "labels": None, "num_labels": None}
    if metric is None or not {"scale", "num_classes"} <= metric.settings.keys():
        return
    try:
        prototype = type(metric)(**(metric.settings | {k: v for k, v in several.items() if k in metric.settings}))
    except ValueError:
        # The metric does not accept these settings, so the law does not apply.
        return
    classes, logits = case.rng.integers(0, 3, case.n), case.rng.integers(-256, 257, (case.n, 3)) / 32
    # Choose logits and constants with few bits, so that their sums are exact.
    constants = case.rng.integers(-64, 65, (case.n, 1)) / 4
    whole, moved = (empty_copy(prototype).update(classes, scores) for scores in (logits, logits + constants))
    expect_same_value(value_of(whole), value_of(moved), "a constant added to a row of logits to change nothing", CLOSE)


def column_formats(case: Case) -> None:
    """Lists, arrays, series, Arrow arrays and tensors with equal values give the same state."""
    columns = {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in case.columns.items()}
    whole = case.build(columns)
    for name, column in columns.items():
        for what, formatted in formats(column):
            expect_same_bytes(
                whole, case.build(columns | {name: formatted}), f"{name} as a {what} to give the same state"
            )


def table_formats(case: Case) -> None:
    """Mappings, data frames, Arrow tables, record batches, events (dicts) and keyword arguments give the same state."""
    whole = case.build()
    if _has_single_events(case):
        one = case.make()
        for event in events(case.columns):
            one.update(event)
        expect_same_bytes(whole, one, "events one at a time to give the same state")
    for what, table in tables(case.columns):
        expect_same_bytes(whole, case.make().update(table), f"a {what} to give the same state")
    expect_same_bytes(whole, case.make().update(**case.columns), "columns by name to give the same state")
    must = [role for role in definition_of(whole).positional_columns() if role in case.columns]
    rest = {k: v for k, v in case.columns.items() if k not in must}
    expect_same_bytes(
        whole,
        case.make().update(*(case.columns[r] for r in must), **rest),
        "columns by position to give the same state",
    )


def _has_single_events(case: Case) -> bool:
    """Return whether rows can be passed one at a time.

    This is true if the case has a metric whose rows form no blocks, and if its first column is not a matrix.
    """
    has_blocks = case.metric is None or case.metric.make_state().block_column is not None
    return not has_blocks and all(column.ndim == 1 for column in [*case.columns.values()][:1])


def dropped_rows(case: Case) -> None:
    """With on_invalid="drop", invalid rows are left out and counted by reason. Merging adds up the counts."""
    columns, reasons = spoil_rows(case)
    make = dropping_factory(case)
    kept = {k: v[reasons == ""] for k, v in columns.items()}
    metric = case.build(columns, make)
    counts = {r: int(np.count_nonzero(reasons == r)) for r in metric.state.reasons if (reasons == r).any()}
    expect(dropped_of(metric.state) == counts, f"dropped rows to be counted as {counts}", dropped_of(metric.state))
    expect_same_bytes(case.build(kept), without_drop_counts(metric), "the valid rows to count as if they were alone")
    parts = [case.build({k: v[rows] for k, v in columns.items()}, make) for rows in case.parts(3)]
    expect_same_bytes(metric, merge(parts), "counts of dropped rows to merge")


def without_drop_counts(metric: Any) -> Any:
    """Return a copy of the metric without its drop counts, for comparison with a metric that dropped no rows."""
    state = metric.state
    flats = {name: array for name, array in state.cells.flats.items() if name != "dropped"}
    return with_states(metric, [state.with_cells(replace(state.cells, flats=flats)).canonicalize()])


def dropping_factory(case: Case) -> Callable[[], Any]:
    """Return a factory for empty metrics with the settings of the metric in `case`, but with on_invalid="drop"."""
    cls, settings = type(case.metric), case.metric.settings if case.metric is not None else {}
    return lambda: cls(**settings, on_invalid="drop")  # type: ignore[misc]


def spoil_rows(case: Case) -> tuple[Columns, NDArray[Any]]:
    """Return the columns with some invalid values, and the reason for dropping each row ("" if the row is valid)."""
    columns, reasons = dict(case.columns), np.full(case.n, "", object)
    # If a row is invalid in several columns, the first of these columns is the reason. Loop backwards so that the
    # first column overwrites the others.
    for role in reversed([n.role for n in case.needs]):
        if role in case.bad and role in columns:
            hit = case.rng.random(case.n) < 0.2
            columns[role] = spoil(columns[role], hit, case.bad[role])
            reasons[hit] = role
    return columns, reasons


def in_collection(case: Case) -> None:
    """A metric has the same state in a collection as on its own, even if it shares the state with other metrics."""
    assert case.metric is not None
    metrics = {"": case.metric} | companion_metrics(case.metric, case.columns)
    whole = MetricCollection(metrics).update(case.columns)
    chosen = ["", *case.rng.choice(list(metrics), 2)]
    for name in chosen:
        single = empty_copy(metrics[name]).update(case.columns)
        expect_same_bytes(single, whole[name], f"{metrics[name]!r} in a collection to equal the metric alone")
    parts = [MetricCollection(metrics).update(case.take(rows)) for rows in case.parts(2)]
    expect_same_bytes(case.build(), merge(parts)[""], "merged collections to equal merged metrics")
    decoded = from_bytes(whole.to_bytes(), MetricCollection)
    expect_same_bytes(case.build(), decoded[""], "the metric in the bytes of a collection to equal the metric alone")
    expect_same_bytes(case.build(), whole.only([""])[""], "only() to keep the state of the metric")


def companion_metrics(metric: Metric[Any, Any], columns: Columns) -> dict[str, Metric[Any, Any]]:
    """Return, by tag, the registered metrics that use the same state as `metric` and accept the rows in `columns`.

    Metrics that use other states are left out, because they need other kernels, which take time to compile.
    """
    companions, mine = {}, metric.make_state()
    required = {n: getattr(metric, n) for n in ("scale", "soft_labels") if _has_setting(metric, n)}
    for tag, cls in list(METRICS.items()):
        shared = {n: value for n, value in required.items() if n in settable_names(cls)}
        try:
            other = cls(**{**cls.about.example, **shared})
            theirs = other.make_state()
            if theirs.tag == mine.tag and theirs.needs() == mine.needs():
                other.update(columns)
                companions[tag] = empty_copy(other)
        except Exception:  # noqa: BLE001
            # Skip metrics that do not accept the scale or the rows. If the cause is a bug in the skipped metric, the
            # check of that metric reports it.
            continue
    return companions


def _has_setting(metric: Any, setting: str) -> bool:
    return getattr(metric, setting, None) is not None


def coarsening(case: Case) -> None:
    """A histogram coarsened to fewer bits (wider buckets) equals one created with that number of bits."""
    metric = case.make()
    if definition_of(metric).can_coarsen and (metric.settings.get("bits") or 0) > 8:
        expect(coarsen(metric, 8).settings["bits"] == 8, "coarsen(8) to have 8 bits")
    if hasattr(metric.state, "coarsen") and "bits" in metric.settings and (metric.state.bits or 0) > 8:
        bits = int(case.rng.integers(8, metric.state.bits))
        # The default value of `limit` depends on `bits`, so pass the limit of the coarsened metric explicitly.
        low = coarsen(metric, bits)
        usual = type(metric)(
            **(metric.settings | {"bits": bits} | ({"limit": low.limit} if hasattr(low, "limit") else {}))
        )
        expect_same_bytes(usual, low, f"coarsen({bits}) to change only bits and limit")
        expect_same_bytes(
            low.update(case.columns),
            coarsen(case.build(), bits),
            f"coarsen({bits}) to equal a histogram of {bits} bits",
        )


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
    coarsening,
]
"""The laws of this module, in the order in which `check_metric` runs them."""
