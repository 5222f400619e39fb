"""`streammetrics power`: print how many users an experiment needs, given saved states of a log without a treatment."""

from __future__ import annotations

import math
from typing import Any

from streammetrics.cli.comparison import ComparisonOptions, check_metric_names
from streammetrics.cli.messages import unknown_name_error
from streammetrics.cli.state_files import MAX_BYTES, find_overall
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import states_of
from streammetrics.collect.serialization import load
from streammetrics.errors import InvalidInputError
from streammetrics.inference.power import power
from streammetrics.inference.power_table import power_table
from streammetrics.reports.records import collect_entries, split_pieces
from streammetrics.reports.tables import format_confidence
from streammetrics.reports.text_table import Cell, Grid, print_grid

__all__ = ["show_power", "show_power_table"]

HELD_REMARK = (
    "a guardrail is held if its interval excludes the margin; the users apply if the treatment does not change it"
)


def show_power(file: str, metric: str | None, relative: float, options: dict[str, Any]) -> None:
    """Print, for each metric, how many users an experiment needs to detect a relative difference.

    If `options` contains a planned number of users, instead print the smallest difference that this number can detect.
    """
    side, names = _load_metrics(file, metric)
    rows: list[list[Cell] | None] = []
    refused = []
    for name in names:
        try:
            plan = power(side, name, relative=relative, **options)
        # A plan requires a standard error. If the metric has none, print its name and the reason below the table.
        except InvalidInputError as error:
            refused.append(f"{name}: {error}")
            continue
        mean = [Cell(f"{math.ceil(plan.mean_users):,}")] if options["sequential"] else []
        rows.append([Cell(name), Cell(f"{100 * plan.relative:+.3g} %"), Cell(f"{math.ceil(plan.users):,}"), *mean])
    heads = ["metric", "difference", "users", *(["on average"] if options["sequential"] else [])]
    print_grid(Grid("", heads, rows, remarks=[_describe_settings(options), *refused]))


def show_power_table(file: str, metric: str | None, options: dict[str, Any]) -> None:
    """Print how many users an experiment needs to detect several differences and to check guardrails.

    The table of differences has a column for each metric. `options` contains the arguments of `power_table`, including
    the guardrails and directions from the command line.
    """
    side, names = _load_metrics(file, metric)
    roles = ComparisonOptions(guardrails=options["guardrails"], better=options["better"])
    check_metric_names(roles, {name: one.metric for name, one in collect_entries(side).items()})
    records: list[dict[str, Any]] = power_table(side, metrics=names, **options).records
    reasons = {r["metric"]: f"{r['metric']}: {r['reason']}" for r in records if r["reason"]}
    detected = [r for r in records if r["goal"] == "detect"]
    columns = [name for name in names if any(r["metric"] == name and not r["reason"] for r in detected)]
    cells = {(r["metric"], r["relative"]): _build_cell(r) for r in detected}
    effects = list(dict.fromkeys(r["relative"] for r in detected))
    rows: list[list[Cell] | None] = [
        [Cell(f"{100.0 * effect:+.3g} %"), *(cells[name, effect] for name in columns)] for effect in effects if columns
    ]
    print_grid(Grid("users to detect a difference", ["difference", *columns], rows,
                    remarks=[_describe_settings(options), *reasons.values()]))  # fmt: skip
    guardrails = [r for r in records if r["goal"] == "hold"]
    if guardrails:
        rows = [[Cell(r["metric"]), Cell(f"{100.0 * abs(r['relative']):.3g} %"), _build_cell(r)] for r in guardrails]
        print_grid(Grid("users to hold a guardrail", ["guardrail", "margin", "users"], rows, remarks=[HELD_REMARK]))


def _build_cell(record: dict[str, Any]) -> Cell:
    """Return a table cell with the required number of users.

    Its note shows the average number of users, if the experiment may stop early, and the number of days, if known.
    """
    if record["reason"]:
        return Cell("")
    notes = [f"{math.ceil(record['mean_users']):,} on average"] if record["mean_users"] < record["users"] else []
    if not math.isnan(record["days"]):
        notes.append(f"{record['days']:,.0f} day{'s' if record['days'] != 1 else ''}")
    return Cell(f"{math.ceil(record['users']):,}", ", ".join(notes))


def _load_metrics(file: str, metric: str | None) -> tuple[Any, list[str]]:
    """Return the metrics in a file, and the names of those to print: `metric`, or all if `metric` is None."""
    side = find_overall(file, split_pieces(load(file, max_bytes=MAX_BYTES)))
    names = [s.name for s in definition_of(side).samples(states_of(side))]
    if metric is not None and metric not in names:
        raise unknown_name_error("metric", metric, names)
    return side, names if metric is None else [metric]


def _describe_settings(options: dict[str, Any]) -> str:
    looks = " at all looks" if options["sequential"] else ", one look"
    return (
        f"users of both arms together, half in each: 80 % power, {format_confidence(options['confidence'])} "
        f"intervals{looks}"
    )
