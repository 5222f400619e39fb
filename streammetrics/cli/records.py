"""Select the results to show, and write results as JSON and CSV."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from streammetrics.cli.comparison import SideComparison
from streammetrics.cli.display_options import DisplayOptions
from streammetrics.cli.messages import UsageError, unknown_name_error
from streammetrics.collect.accumulator import definition_of
from streammetrics.compose.axis_wrapper import AxisWrapper
from streammetrics.compose.bundle import Bundle
from streammetrics.compose.sliced import Sliced
from streammetrics.inference.sentences import name_sides
from streammetrics.numerics.slice_keys import encode_key
from streammetrics.numerics.slice_keys import format_atom as shown_key
from streammetrics.reading.table import RESULT
from streammetrics.reports.records import (
    Record,
    TotalMetrics,
    build_records,
    build_slice_records,
    build_views,
    collect_entries,
    find_windows,
    format_slice_key,
    split_pieces,
)

__all__ = ["check_sort", "select_results", "write_comparisons", "write_csv", "write_json"]

CSV = ("model", "slice", *RESULT)
COMPARISON_COLUMNS = (
    "treatment", "control", "metric", "value", "control_value", "difference", "difference_low", "difference_high",
    "relative", "relative_low", "relative_high", "p_value", "adjusted", "better", "word", "limited_by", "reason",
)  # fmt: skip


def select_results(result: Any, metrics: Sequence[str] | None, by: Sequence[tuple[str, ...]]) -> Any:
    """Return a result with only the named metrics, and with slices by each set of columns in `by`.

    If necessary, the slices are merged from saved slices by more columns. If `metrics` is None, all metrics are
    selected. If `by` is empty, all saved slices are selected.
    """
    selected = split_pieces(result)
    if by:
        sliced = [piece for _, piece in selected if isinstance(piece, AxisWrapper)]
        overall = [(name, piece) for name, piece in selected if not isinstance(piece, AxisWrapper)]
        selected = [*overall, *((_name_slices(one), one) for one in (roll_up(sliced, names) for names in by))]
    if metrics is not None:
        full_names = dict.fromkeys(name for _, piece in selected for name in collect_entries(piece))
        for name in metrics:
            if not _match_metrics(full_names, [name]):
                raise unknown_name_error(
                    "metric", name, dict.fromkeys([*(full.rpartition("/")[2] for full in full_names), *full_names])
                )
        with_metrics = [
            (name, _select_metrics(piece, _match_metrics(collect_entries(piece), metrics))) for name, piece in selected
        ]
        selected = [(name, piece) for name, piece in with_metrics if piece is not None]
    if len(selected) == 1:
        return selected[0][1]
    return Bundle({name or ("overall" if i == 0 else f"{i}"): piece for i, (name, piece) in enumerate(selected)})


def roll_up(wrappers: Sequence[AxisWrapper], names: tuple[str, ...]) -> AxisWrapper:
    """Return slices by `names`, such as `country`, from saved slices by more columns, such as `country,device`.

    Slices that differ only in the other columns are merged. If several saved objects are sliced by all `names`, the one
    with the fewest columns is used.
    """
    candidates = [each for one in wrappers for each in _list_inner_axes(one)]
    fitting = sorted((one for one in candidates if set(names) <= set(_levels(one))), key=lambda one: len(_levels(one)))
    for one in fitting:
        rolled = one.across(*(set(_levels(one)) - set(names) - set(definition_of(one).axis.names)))
        if isinstance(rolled, Sliced) and (own_columns := tuple(name for name in names if name in rolled.by)):
            rolled = rolled if rolled.by == own_columns else rolled.rollup(own_columns)
        if set(_levels(rolled)) == set(names):
            return rolled
    available = "; ".join(dict.fromkeys(f"by {','.join(_levels(one))}" for one in wrappers))
    by, found = ",".join(names), f"slices {available}" if available else "no slices"
    raise UsageError(
        f"--by {by}: expected saved slices that include these columns, found {found}; score the log with --by {by}, or "
        f"choose columns of the saved slices"
    )


def _levels(wrapper: AxisWrapper) -> tuple[str, ...]:
    """Return the slice and window columns of a wrapper and of the wrappers inside it, outermost first."""
    levels: tuple[str, ...] = definition_of(wrapper).levels
    return levels


def _name_slices(wrapper: AxisWrapper) -> str:
    """Return a name for slices, such as "by country,device". The name omits the time column of windows."""
    windows = find_windows(wrapper)
    return f"by {','.join(name for name in _levels(wrapper) if windows is None or name != windows.time)}"


def _list_inner_axes(wrapper: AxisWrapper) -> Iterator[AxisWrapper]:
    """Yield nested slices or windows, then their total over the outermost axis, over the two outermost axes, and so on.

    For example, yield slices that contain windows, and then the windows of all rows.
    """
    yield wrapper
    while isinstance(wrapper.inner, AxisWrapper):
        wrapper = wrapper.total
        yield wrapper


def _match_metrics(full_names: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the full names, such as `ctr/auc`, that match one of `names`. A name may omit the task (`auc`)."""
    return [full for full in full_names if full in names or full.rpartition("/")[2] in names]


def _select_metrics(piece: TotalMetrics | AxisWrapper, names: list[str]) -> TotalMetrics | AxisWrapper | None:
    """Return a result (all rows, slices or windows) with only the metrics `names`; None if `names` is empty."""
    if not names:
        return None
    return piece if len(names) == len(collect_entries(piece)) else piece.only(names)


def check_sort(sliced: Sliced, sort: str | None) -> None:
    """Raise UsageError if slices cannot be sorted by the column `sort`."""
    try:
        sliced.table_records(sort=sort)
    except ValueError as error:
        raise UsageError(f"--sort: {error}") from None


# -- JSON and CSV ----------------------------------------------------------------------------------------------------


def _list_records(result: Any, display: DisplayOptions) -> Iterator[Record]:
    for _, piece in split_pieces(result):
        if isinstance(piece, AxisWrapper):
            for view in build_views(piece):
                yield from build_slice_records(view, None, display.sort, display.min_rows, display.confidence)
        else:
            yield from ({"by": (), "slice": {}, "other": False} | r for r in build_records(piece, display.confidence))


def write_json(display: DisplayOptions, result: Any = None) -> None:
    """Print a JSON object with four lists of records, a record per line: "verdicts", "users", "comparisons", "values".

    A value has `by` (the slicing columns; empty in records of all rows), `slice` (the key values by column), `other`
    (true for slices merged by --limit), `metric`, `value`, `bound_low` and `bound_high` (certified; null for a metric
    whose values are always exact), `interval_low` and `interval_high` (statistical; null without --unit), `rows`,
    `weight`, `positives`, `dropped` (row counts by reason), `reason` (why the value is undefined, or that its bounds
    are too wide) and `interval_reason` (why there is no interval). NaN is written as null, a key of bytes as
    {"bytes": hex}, and dates and times in ISO 8601.

    A comparison has `by`, `slice`, `treatment`, `control`, `metric`, `value` and `control_value`, `difference` and
    `relative` with their limits (`_low`, `_high`), `p_value`, `adjusted` (for slices: the p-value adjusted by
    Benjamini-Hochberg), `better` (the name of the better side: the treatment or the control), `word` (what the table
    says, such as "worse" or "held"), `limited_by` (whether the sampling error or the certified bound is larger) and
    `reason`. A verdict has `treatment`, `control`, `sentence` and `notes` (sentences about covariates and slices). With
    a scorecard, it also has `decision`, `more_users` and `more_days` (how many more are needed for a decision), and
    `metrics` (the role and assessment of each metric).

    The record of an arm's users has `arm`, `users`, `share` with its 99 % interval (`share_low`, `share_high`) and
    `planned` (the planned share; null without --shares). The remaining fields are the same for all arms: `alarm` and
    `p_value` (with --sequential, `e_value`), which come from the test of the shares and are null without --shares;
    `several` (the number of users in more than one arm); `sampled` (the fraction of users that were counted); and
    `smallest_mismatch` (the smallest difference between a share and its plan that the test would probably detect).
    """
    sides = display.comparisons
    lists = {
        "verdicts": [v for one in sides if not one.title for v in _add_notes(_list_verdicts(one), one, sides)],
        "users": [] if display.users is None else [_convert_to_json(one) for one in display.users.list_records()],
        "comparisons": [_convert_to_json(c) for one in sides for c in _list_comparisons(one)],
        "values": [] if result is None else [_format_value(record) for record in _list_records(result, display)],
    }
    print("{" + ",".join(f'\n"{name}": {_format_lines(records)}' for name, records in lists.items()) + "\n}")


def write_comparisons(sides: Sequence[SideComparison]) -> None:
    """Print comparisons as a CSV table: the slice, `COMPARISON_COLUMNS` (see `write_json`), and each slicing column."""
    records = [one for side in sides for one in _list_comparisons(side)]
    columns = list(dict.fromkeys(name for one in records for name in one["by"]))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["slice", *COMPARISON_COLUMNS, *columns])
    for one in records:
        keys = {name: "null" if key is None else shown_key(key) for name, key in one["slice"].items()}
        spelled = ",".join(f"{name}={key}" for name, key in keys.items())
        writer.writerow(
            [
                spelled,
                *(_format_cell(one[name]) for name in COMPARISON_COLUMNS),
                *(keys.get(name, "") for name in columns),
            ]
        )


def _format_lines(records: Sequence[Any]) -> str:
    lines = [json.dumps(one, ensure_ascii=False, allow_nan=False) for one in records]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


def _format_value(record: Record) -> Any:
    head = {"by": list(record["by"]), "slice": _format_keys(record["slice"])}
    rest = {name: record[name] for name in ("other", *RESULT[:-1], "dropped", "reason", "interval_reason")}
    return _convert_to_json(head | rest)


def _format_keys(keys: dict[str, Any]) -> dict[str, Any]:
    json_keys = [k if k is None or isinstance(k, (bool, int, bytes)) else shown_key(k) for k in keys.values()]
    return dict(zip(keys, encode_key(tuple(json_keys)), strict=True))


def _list_comparisons(one: SideComparison) -> Iterator[Record]:
    """Yield a record for each comparison with the control."""
    # JSON uses the same words as the table and the HTML report. If there is a scorecard, it supplies the words.
    changes = {(c.treatment, c.key, c.metric): c for c in one.collect_changes()}
    for treatment, comparisons in one.comparisons.items():
        sides = {"a": treatment, "b": one.control}
        for each in comparisons.values():
            row = each.record()
            change = changes.get((treatment, each.keys, each.name))
            word, reason = (change.word, change.reason) if change else ("", row["reason"])
            yield {
                "by": list(comparisons.by),
                "slice": _format_keys(dict(zip(comparisons.by, each.keys, strict=True))),
                "treatment": treatment,
                "control": one.control,
                "metric": row["metric"],
                "value": row["a"],
                "control_value": row["b"],
                "difference": row["difference"],
                "difference_low": row["low"],
                "difference_high": row["high"],
                **{name: row[name] for name in ("relative", "relative_low", "relative_high", "p_value", "adjusted")},
                "better": None
                if word in ("unclear", "undecided", "too few", "not shown", "too early", "withheld")
                else sides.get(row["better"]),
                "word": word,
                "limited_by": row["limited_by"],
                "reason": reason and name_sides(reason, treatment, one.control),
            }


def _list_verdicts(one: SideComparison) -> Iterator[Record]:
    """Yield a record for the verdict on each treatment."""
    if one.card is None:
        for treatment, sentence in zip(one.treatments, one.sentences, strict=True):
            yield {"treatment": treatment, "control": one.control, "sentence": sentence}
        return
    changes = one.collect_changes()
    for treatment, verdict in one.card.verdicts.items():
        yield {
            "treatment": treatment,
            "control": one.control,
            "sentence": verdict.sentence,
            "decision": verdict.decision,
            "more_users": verdict.more_users,
            "more_days": verdict.more_days,
            "metrics": {
                each.metric: {"role": each.role, "word": each.word}
                for each in changes
                if each.treatment == str(treatment)
            },
        }


def _add_notes(records: Iterable[Record], one: SideComparison, sides: Sequence[SideComparison]) -> Iterator[Record]:
    """Yield the verdict records, each with its notes; notes about all rows precede those about slices."""
    related = [one, *(other for other in sides if other.overall is one)]
    for record in records:
        notes = [note.sentence for each in related for note in each.notes.get(record["treatment"], [])]
        yield record | {"notes": list(dict.fromkeys(notes))}


def _convert_to_json(value: Any) -> Any:
    """Convert a value to JSON types, with NaN and infinity as null. `_format_keys` converts dates and bytes in keys."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {k: _convert_to_json(v) for k, v in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_convert_to_json(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_csv(result: Any, display: DisplayOptions) -> None:
    """Print a CSV table with the columns `model` and `slice`, those in `RESULT`, and each slicing column.

    `model` is the name of the model or task. `slice` is the key of a slice, such as country=br; in a record of all
    rows, it is empty. NaN is written as an empty cell, and a null key as "null".
    """
    records = list(_list_records(result, display))
    columns = list(dict.fromkeys(name for record in records for name in record["by"]))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["model", "slice", *RESULT, *(f"{name}_key" if name in CSV else name for name in columns)])
    for record in records:
        model, _, metric = record["metric"].rpartition("/")
        keys = {name: format_slice_key(record, name) for name in record["by"]}
        spelled = ",".join(f"{name}={key}" for name, key in keys.items())
        results = [metric, *(_format_cell(record[name]) for name in RESULT[1:])]
        writer.writerow([model, spelled, *results, *(keys.get(name, "") for name in columns)])


def _format_cell(value: Any) -> Any:
    json_value = _convert_to_json(value)
    return json.dumps(json_value) if isinstance(json_value, (list, dict)) else json_value
