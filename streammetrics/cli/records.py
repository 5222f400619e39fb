"""Results as records: what the tables, JSON and CSV of the command line are made from."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from streammetrics.bundle import Bundle
from streammetrics.cli.messages import UsageError
from streammetrics.collection import MetricCollection
from streammetrics.compose import OTHER, Sliced
from streammetrics.keys import encode_key, sort_key
from streammetrics.metric import Metric
from streammetrics.plan import records
from streammetrics.state import DROPPED
from streammetrics.table import RESULT

__all__ = ["biggest", "by_slice", "overall", "pieces", "write_csv", "write_json"]

Record = dict[str, Any]


def pieces(thing: Any) -> list[tuple[str, MetricCollection | Sliced]]:
    """Return what an object holds, each with its name; a lone object has none."""
    if isinstance(thing, Bundle):
        return [(name, _piece(one)) for name, one in thing.items()]
    if isinstance(thing, (Metric, MetricCollection, Sliced)):
        return [("", _piece(thing))]
    raise UsageError(f"this is a bare {type(thing).__name__}; show reads metrics, collections, slices and bundles")


def _piece(thing: Any) -> MetricCollection | Sliced:
    if not isinstance(thing, Metric):
        made: MetricCollection | Sliced = thing
        return made
    alone = MetricCollection(thing)
    alone._plan.units[0].state = thing.state
    return alone


def overall(collection: MetricCollection) -> list[Record]:
    """Return a record of every metric: the columns of `Table`, and the rows left out by reason."""
    return _with_drops(collection, None)


def by_slice(sliced: Sliced, top: int | None = None, sort: str | None = None, min_rows: int = 0) -> list[Record]:
    """Return records of every slice and metric, by key; `other` comes last. `top` keeps the slices with most rows.

    With `sort` the order is that of `Sliced.table`, and `top` keeps the first.
    """
    places = {key: i + 1 for i, key in enumerate(sliced._kept)}
    keys = ordered(sliced, sort, min_rows)[:top] if sort or min_rows else sorted(biggest(sliced, top), key=sort_key)
    made: list[Record] = []
    for key in keys:
        here = {"by": sliced.by, "slice": dict(zip(sliced.by, key, strict=True)), "other": False}
        made += [here | r for r in _with_drops(sliced, places[key])]
    if sliced._limit is not None:
        here = {"by": sliced.by, "slice": dict.fromkeys(sliced.by), "other": True}
        made += [here | r for r in _with_drops(sliced, OTHER)]
    return made


def ordered(sliced: Sliced, sort: str | None, min_rows: int) -> list[tuple[Any, ...]]:
    """Return the keys of slices of so many rows, in the order of `Sliced.table(sort=)`."""
    try:
        return sliced._order(sort, min_rows)
    except ValueError as error:
        raise UsageError(f"--sort: {error}") from None


def biggest(sliced: Sliced, top: int | None) -> list[tuple[Any, ...]]:
    """Return the keys of the slices with most rows."""
    if top is None or len(sliced) <= top:
        return list(sliced._kept)
    state = min((unit.state for unit in sliced._plan.units), key=lambda s: s.nbytes)  # any of them knows
    rows = {key: state.slice(i).facts().get("rows", 0) for i, key in enumerate(sliced._kept, 1)}
    return sorted(rows, key=lambda key: (-rows[key], sort_key(key)))[:top]


def _with_drops(thing: MetricCollection | Sliced, i: int | None) -> list[Record]:
    plan = thing._plan
    made = records(plan, i)
    for record, (_, number) in zip(made, plan.entries.values(), strict=True):
        unit = plan.units[number]
        counts = unit.state.dropped if i is None else unit.state.dropped[i]
        why = {role: int(n) for role, n in zip(DROPPED, counts.reshape(-1), strict=True) if n}
        names = {role: unit.binding.where if role == "where" else unit.binding.column(role) for role in why}
        record["dropped"] = why
        record["columns"] = names
    return made


# -- for programs ------------------------------------------------------------------------------------------------------


def _all(thing: Any) -> Iterator[Record]:
    for _, piece in pieces(thing):
        if isinstance(piece, Sliced):
            yield from by_slice(piece)
        else:
            yield from ({"by": (), "slice": {}, "other": False} | r for r in overall(piece))


def write_json(thing: Any) -> None:
    """Print a list of records, one a line.

    Each has `by` (the slicing columns; none for all rows), `slice` (the key by column), `other` (true for what --limit
    merged), `metric`, `value`, `bound_low` and `bound_high` (certified; null where the value is exact), `interval_low` and
    `interval_high` (95 %; null where none can be given), `rows`, `weight`, `positives`, `dropped` (rows left out by
    reason) and `reason` (why a value is undefined). NaN is null; a key of bytes is {"bytes": hex}.
    """
    lines = []
    for record in _all(thing):
        keys = encode_key(tuple(record["slice"].values()))
        head = {"by": list(record["by"]), "slice": dict(zip(record["slice"], keys, strict=True))}
        rest = {name: record[name] for name in ("other", *RESULT[:-1], "dropped", "reason")}
        lines.append(json.dumps(_plain(head | rest), ensure_ascii=False, allow_nan=False))
    print("[\n" + ",\n".join(lines) + "\n]" if lines else "[]")


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_csv(thing: Any) -> None:
    """Print a table: `by`, every slicing column, and the columns of `Table`. Nothing stands for NaN, "null" for null."""
    found = list(_all(thing))
    columns = list(dict.fromkeys(name for record in found for name in record["by"]))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["by", *columns, *RESULT])
    for record in found:
        keys = [_key(record, name) for name in columns]
        writer.writerow([",".join(record["by"]), *keys, *(_text(record[name]) for name in RESULT)])


def _key(record: Record, name: str) -> str:
    if name not in record["by"]:
        return ""
    return "(other)" if record["other"] else key_text(record["slice"][name])


def key_text(key: Any) -> str:
    """A key as a person reads it."""
    return "null" if key is None else key.decode(errors="replace") if isinstance(key, bytes) else str(key)


def _text(value: Any) -> Any:
    plain = _plain(value)
    return json.dumps(plain) if isinstance(plain, (list, dict)) else plain


def tasks_of(found: Sequence[Record]) -> dict[str, dict[str, Record]]:
    """Return records by task ("" if there is one without a name) and by metric."""
    tasks: dict[str, dict[str, Record]] = {}
    for record in found:
        task, _, metric = record["metric"].rpartition("/")
        tasks.setdefault(task, {})[metric] = record
    return tasks
