"""What is shown of results, and results for programs: JSON and CSV."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from streammetrics.cli.messages import UsageError, nearest
from streammetrics.collect.collection import MetricCollection
from streammetrics.collect.metric import Metric
from streammetrics.collect.table import RESULT
from streammetrics.compose.bundle import Bundle
from streammetrics.compose.sliced import Sliced
from streammetrics.numerics.keys import encode_key, shown
from streammetrics.report.records import Record, by_slice, contents, overall, pieces

__all__ = ["check_order", "restricted", "write_csv", "write_json"]

CSV = ("model", "slice", *RESULT)


def restricted(thing: Any, metrics: Sequence[str] | None, by: Sequence[tuple[str, ...]]) -> Any:
    """Return the same with some of its metrics, by name, and slices by some columns, rolled up from those there are."""
    found = pieces(thing)
    if by:
        sliced = [piece for _, piece in found if isinstance(piece, Sliced)]
        whole = [(name, piece) for name, piece in found if not isinstance(piece, Sliced)]
        found = [*whole, *((f"by {','.join(names)}", _by(sliced, names)) for names in by)]
    if metrics is not None:
        known = dict.fromkeys(name for _, piece in found for name in contents(piece))
        for name in metrics:
            if not _named(known, [name]):
                raise nearest("metric", name, dict.fromkeys([*(full.rpartition("/")[2] for full in known), *known]))
        kept = [(name, _only(piece, _named(contents(piece), metrics))) for name, piece in found]
        found = [(name, piece) for name, piece in kept if piece is not None]
    if len(found) == 1:
        return found[0][1]
    return Bundle({name or ("overall" if i == 0 else f"{i}"): piece for i, (name, piece) in enumerate(found)})


def _by(sliced: Sequence[Sliced], names: tuple[str, ...]) -> Sliced:
    """Return slices by these columns, of those that have the fewest more."""
    fitting = sorted((one for one in sliced if set(names) <= set(one.by)), key=lambda one: len(one.by))
    if not fitting:
        saved = "; ".join(", ".join(one.by) for one in sliced) or "none"
        raise UsageError(
            f"--by {','.join(names)}: there are no slices to roll up to these; saved are slices by {saved}"
        )
    return fitting[0] if fitting[0].by == names else fitting[0].rollup(names)


def _named(known: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the metrics of these names, in full or without their task."""
    return [full for full in known if full in names or full.rpartition("/")[2] in names]


def _only(piece: MetricCollection | Sliced, names: list[str]) -> MetricCollection | Sliced | None:
    """Return a piece with some of its metrics; None if it has none of them."""
    if not names:
        return None
    lone = isinstance(piece, Sliced) and isinstance(piece.inner, Metric)
    return piece if lone or len(names) == len(contents(piece)) else piece.only(names)


def check_order(sliced: Sliced, sort: str | None) -> None:
    """Raise where slices cannot be sorted so."""
    try:
        sliced.shown(sort=sort)
    except ValueError as error:
        raise UsageError(f"--sort: {error}") from None


# -- for programs ----------------------------------------------------------------------------------------------------


def _all(thing: Any, sort: str | None, min_rows: int) -> Iterator[Record]:
    for _, piece in pieces(thing):
        if isinstance(piece, Sliced):
            yield from by_slice(piece, None, sort, min_rows)
        else:
            yield from ({"by": (), "slice": {}, "other": False} | r for r in overall(piece))


def write_json(thing: Any, sort: str | None = None, min_rows: int = 0) -> None:
    """Print a list of records, one a line.

    Each has `by` (the slicing columns; none for all rows), `slice` (the key by column), `other` (true for what --limit
    merged), `metric`, `value`, `bound_low` and `bound_high` (certified; null where the value is exact), `interval_low` and
    `interval_high` (95 %; null where none can be given), `rows`, `weight`, `positives`, `dropped` (rows left out by
    reason) and `reason` (why a value is undefined). NaN is null; a key of bytes is {"bytes": hex}, dates and
    times are as ISO 8601 writes them.
    """
    lines = []
    for record in _all(thing, sort, min_rows):
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


def write_csv(thing: Any, sort: str | None = None, min_rows: int = 0) -> None:
    """Print a table: `model` (or task), `slice` (such as country=br; empty for all rows), the columns of `Table`.

    Behind these each slicing column stands for itself. Nothing stands for NaN, "null" for null.
    """
    found = list(_all(thing, sort, min_rows))
    columns = list(dict.fromkeys(name for record in found for name in record["by"]))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["model", "slice", *RESULT, *(f"{name}_key" if name in CSV else name for name in columns)])
    for record in found:
        model, _, metric = record["metric"].rpartition("/")
        keys = {name: _key(record, name) for name in record["by"]}
        spelled = ",".join(f"{name}={key}" for name, key in keys.items())
        results = [metric, *(_text(record[name]) for name in RESULT[1:])]
        writer.writerow([model, spelled, *results, *(keys.get(name, "") for name in columns)])


def _key(record: Record, name: str) -> str:
    return "(other)" if record[name] == "(other)" and record["other"] else shown(record["slice"][name])


def _text(value: Any) -> Any:
    plain = _plain(value)
    return json.dumps(plain) if isinstance(plain, (list, dict)) else plain
