"""Results as records: what the tables, JSON and CSV of the command line are made from."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from streammetrics.cli.messages import UsageError
from streammetrics.collect.collection import Content, MetricCollection
from streammetrics.collect.metric import Metric
from streammetrics.collect.table import RESULT
from streammetrics.compose.bundle import Bundle
from streammetrics.compose.sliced import Sliced
from streammetrics.numerics.keys import encode_key, shown

__all__ = ["by_slice", "check_order", "contents", "overall", "pieces", "write_csv", "write_json"]

Record = dict[str, Any]


def pieces(thing: Any, name: str = "") -> list[tuple[str, MetricCollection | Sliced]]:
    """Return the metrics and the slices that an object holds, each with its name; a lone object has none."""
    if isinstance(thing, Bundle):
        return [piece for inner, one in thing.items() for piece in pieces(one, _joined(name, inner))]
    if isinstance(thing, Metric):
        return [(name, MetricCollection(thing).holding(thing.states))]
    if isinstance(thing, Sliced):
        return [(name, thing)]
    if not isinstance(thing, MetricCollection):
        raise UsageError(f"this is a bare {type(thing).__name__}; show reads metrics, collections, slices and bundles")
    others = [c.name for c in thing.contents() if not isinstance(c.thing, Metric)]
    lone = [n for n in thing.names if n not in others]
    first = [(name, thing.only(lone) if others else thing)] if lone else []
    return [*first, *(piece for other in others for piece in pieces(thing[other], _joined(name, other)))]


def _joined(name: str, inner: str) -> str:
    return f"{name}/{inner}" if name else inner


def contents(thing: MetricCollection | Sliced) -> dict[str, Content]:
    """Return the metrics of a collection, or of every slice, by name."""
    inner = thing.inner if isinstance(thing, Sliced) else thing
    if isinstance(inner, Sliced):
        return contents(inner)
    collection = MetricCollection(inner) if isinstance(inner, Metric) else inner
    found: dict[str, Content] = {}
    for content in collection.contents():
        if isinstance(content.thing, Metric):
            found[content.name] = content
        else:
            found |= {f"{content.name}/{name}": one for name, one in contents(content.thing).items()}
    return found


def overall(collection: MetricCollection) -> list[Record]:
    """Return a record of every metric: the columns of `Table`, and the rows left out by reason."""
    return _with_columns(collection, collection.records(collection.feed.states))


def by_slice(sliced: Sliced, top: int | None = None, sort: str | None = None, min_rows: int = 0) -> list[Record]:
    """Return records of every slice and metric, by key; `other` comes last. `top` keeps the slices with most rows.

    With `sort` the order is that of `Sliced.table`, and `top` keeps the first.
    """
    made: list[Record] = []
    for record in _with_columns(sliced, sliced.shown(top=top, sort=sort, min_rows=min_rows)):
        by = tuple(name for name in sliced.levels if name in record)
        other = bool(record.get("other"))
        key = {name: None if other and record[name] == "(other)" else record[name] for name in by}
        made.append(record | {"by": by, "slice": key, "other": other})
    return made


def check_order(sliced: Sliced, sort: str | None) -> None:
    """Raise where slices cannot be sorted so."""
    try:
        sliced.shown(sort=sort)
    except ValueError as error:
        raise UsageError(f"--sort: {error}") from None


def _with_columns(thing: MetricCollection | Sliced, made: list[Record]) -> list[Record]:
    """Add the column that each reason for leaving out rows speaks of."""
    known = contents(thing)
    for record in made:
        content = known.get(record["metric"])
        if content is not None:
            binding = content.binding
            record["columns"] = {r: binding.where if r == "where" else binding.column(r) for r in record["dropped"]}
    return made


# -- for programs ----------------------------------------------------------------------------------------------------


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
    reason) and `reason` (why a value is undefined). NaN is null; a key of bytes is {"bytes": hex}, dates and
    times are as ISO 8601 writes them.
    """
    lines = []
    for record in _all(thing):
        keys = [
            k if isinstance(k, (bool, int, bytes)) else k if k is None else shown(k) for k in record["slice"].values()
        ]
        keys = encode_key(tuple(keys))
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
    return "(other)" if record[name] == "(other)" and record["other"] else shown(record["slice"][name])


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
