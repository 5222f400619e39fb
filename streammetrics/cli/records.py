"""What is shown of results, and results for programs: JSON and CSV."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from streammetrics.cli.comparison import Versus
from streammetrics.cli.display_options import Shown
from streammetrics.cli.messages import UsageError, nearest
from streammetrics.collect.accumulator import definition_of
from streammetrics.compose.axis_wrapper import AxisWrapper
from streammetrics.compose.bundle import Bundle
from streammetrics.compose.sliced import Sliced
from streammetrics.numerics.keys import encode_key
from streammetrics.numerics.keys import shown as shown_key
from streammetrics.reading.table import RESULT
from streammetrics.reports.records import Record, Whole, by_slice, called, contents, overall, pieces, views, windows_in

__all__ = ["check_order", "restricted", "write_comparisons", "write_csv", "write_json"]

CSV = ("model", "slice", *RESULT)
COMPARED = (
    "treatment", "control", "metric", "value", "control_value", "difference", "difference_low", "difference_high",
    "relative", "relative_low", "relative_high", "p_value", "adjusted", "better", "limited_by", "reason",
)  # fmt: skip


def restricted(thing: Any, metrics: Sequence[str] | None, by: Sequence[tuple[str, ...]]) -> Any:
    """Return the same with some of its metrics, by name, and slices by some columns, rolled up from those there are."""
    found = pieces(thing)
    if by:
        sliced = [piece for _, piece in found if isinstance(piece, AxisWrapper)]
        whole = [(name, piece) for name, piece in found if not isinstance(piece, AxisWrapper)]
        found = [*whole, *((_called(one), one) for one in (rolled(sliced, names) for names in by))]
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


def rolled(wrappers: Sequence[AxisWrapper], names: tuple[str, ...]) -> AxisWrapper:
    """Return slices by these columns, rolled up from the slices that have the fewest other columns."""
    known = [each for one in wrappers for each in _within(one)]
    fitting = sorted((one for one in known if set(names) <= set(_levels(one))), key=lambda one: len(_levels(one)))
    for one in fitting:
        plain = one.across(*(set(_levels(one)) - set(names) - set(definition_of(one).axis.names)))
        if isinstance(plain, Sliced) and (kept := tuple(name for name in names if name in plain.by)):
            plain = plain if plain.by == kept else plain.rollup(kept)
        if set(_levels(plain)) == set(names):
            return plain
    saved = "; ".join(dict.fromkeys(", ".join(_levels(one)) for one in wrappers)) or "none"
    raise UsageError(f"--by {','.join(names)}: there are no slices to roll up to these; saved are slices by {saved}")


def _levels(wrapper: AxisWrapper) -> tuple[str, ...]:
    """Return the columns of slices and windows, the outermost first."""
    levels: tuple[str, ...] = definition_of(wrapper).levels
    return levels


def _called(wrapper: AxisWrapper) -> str:
    """Return the name of slices that were rolled up: their columns, without that of the windows in them."""
    within = windows_in(wrapper)
    return f"by {','.join(name for name in _levels(wrapper) if within is None or name != within.time)}"


def _within(wrapper: AxisWrapper) -> Iterator[AxisWrapper]:
    """Yield slices or windows, and then the slices and windows within them, of all rows."""
    yield wrapper
    while isinstance(wrapper.inner, AxisWrapper):
        wrapper = wrapper.total
        yield wrapper


def _named(known: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the metrics of these names, in full or without their task."""
    return [full for full in known if full in names or full.rpartition("/")[2] in names]


def _only(piece: Whole | AxisWrapper, names: list[str]) -> Whole | AxisWrapper | None:
    """Return a piece with some of its metrics; None if it has none of them."""
    if not names:
        return None
    return piece if len(names) == len(contents(piece)) else piece.only(names)


def check_order(sliced: Sliced, sort: str | None) -> None:
    """Raise where slices cannot be sorted so."""
    try:
        sliced.shown(sort=sort)
    except ValueError as error:
        raise UsageError(f"--sort: {error}") from None


# -- for programs ----------------------------------------------------------------------------------------------------


def _all(thing: Any, shown: Shown) -> Iterator[Record]:
    for _, piece in pieces(thing):
        if isinstance(piece, AxisWrapper):
            for view in views(piece):
                yield from by_slice(view, None, shown.sort, shown.min_rows, shown.confidence)
        else:
            yield from ({"by": (), "slice": {}, "other": False} | r for r in overall(piece, shown.confidence))


def write_json(shown: Shown, thing: Any = None) -> None:
    """Print one object with lists of records, each on a line of its own: "verdicts", "comparisons", "values".

    A value has `by` (the slicing columns; none for all rows), `slice` (the key by column), `other` (true for what --limit
    merged), `metric`, `value`, `bound_low` and `bound_high` (certified; null where the value is exact), `interval_low` and
    `interval_high` (statistical; null without --unit), `rows`, `weight`, `positives`, `dropped` (rows left out by reason),
    `reason` (why a value is undefined, or that its bounds are too wide) and `interval_reason` (why there is no interval).
    NaN is null; a key of bytes is {"bytes": hex}, dates and times are as ISO 8601 writes them.

    A comparison has `by`, `slice`, `treatment`, `control`, `metric`, `value` and `control_value`, `difference` and
    `relative` with their limits (`_low`, `_high`), `p_value`, `adjusted` (by slice: after Benjamini and Hochberg),
    `better` (the side that is), `limited_by` and `reason`. A verdict has `treatment`, `control`, `sentence`, and of a
    scorecard `decision`, `more_users`, `more_days` and `metrics`: by name its role and the word that it gets.
    """
    sides = shown.versus
    lists = {
        "verdicts": [v for one in sides if not one.title for v in _verdicts(one)],
        "comparisons": [_plain(c) for one in sides for c in _comparisons(one)],
        "values": [] if thing is None else [_value(record) for record in _all(thing, shown)],
    }
    print("{" + ",".join(f'\n"{name}": {_lines(found)}' for name, found in lists.items()) + "\n}")


def write_comparisons(sides: Sequence[Versus]) -> None:
    """Print comparisons as a CSV table: the columns as in JSON, each slicing column at the end for itself."""
    found = [one for side in sides for one in _comparisons(side)]
    columns = list(dict.fromkeys(name for one in found for name in one["by"]))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["slice", *COMPARED, *columns])
    for one in found:
        keys = {name: "null" if key is None else shown_key(key) for name, key in one["slice"].items()}
        spelled = ",".join(f"{name}={key}" for name, key in keys.items())
        writer.writerow([spelled, *(_text(one[name]) for name in COMPARED), *(keys.get(name, "") for name in columns)])


def _lines(found: Sequence[Any]) -> str:
    lines = [json.dumps(one, ensure_ascii=False, allow_nan=False) for one in found]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


def _value(record: Record) -> Any:
    head = {"by": list(record["by"]), "slice": _spelled_keys(record["slice"])}
    rest = {name: record[name] for name in ("other", *RESULT[:-1], "dropped", "reason", "interval_reason")}
    return _plain(head | rest)


def _spelled_keys(keys: dict[str, Any]) -> dict[str, Any]:
    plain = [k if k is None or isinstance(k, (bool, int, bytes)) else shown_key(k) for k in keys.values()]
    return dict(zip(keys, encode_key(tuple(plain)), strict=True))


def _comparisons(one: Versus) -> Iterator[Record]:
    """Every comparison with the control, as a record."""
    for treatment, found in one.found.items():
        sides = {"a": treatment, "b": one.control}
        for each in found.values():
            row = each.record()
            yield {
                "by": list(found.by),
                "slice": _spelled_keys(dict(zip(found.by, each.keys, strict=True))),
                "treatment": treatment,
                "control": one.control,
                "metric": row["metric"],
                "value": row["a"],
                "control_value": row["b"],
                "difference": row["difference"],
                "difference_low": row["low"],
                "difference_high": row["high"],
                **{name: row[name] for name in ("relative", "relative_low", "relative_high", "p_value", "adjusted")},
                "better": sides.get(row["better"]),
                "limited_by": row["limited_by"],
                "reason": row["reason"],
            }


def _verdicts(one: Versus) -> Iterator[Record]:
    """The verdict on each treatment."""
    if one.card is None:
        for treatment, said in zip(one.treatments, one.sentences, strict=True):
            yield {"treatment": treatment, "control": one.control, "sentence": said}
        return
    rows = [row for row in one.card.table() if row["role"]]
    for treatment, found in one.card.verdicts.items():
        yield {
            "treatment": treatment,
            "control": one.control,
            "sentence": found.sentence,
            "decision": found.decision,
            "more_users": found.more_users,
            "more_days": found.more_days,
            "metrics": {
                row["metric"]: {"role": row["role"], "word": row["word"]}
                for row in rows
                if row["treatment"] == treatment
            },
        }


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


def write_csv(thing: Any, shown: Shown) -> None:
    """Print a table: `model` (or task), `slice` (such as country=br; empty for all rows), the columns of `Table`.

    Behind these each slicing column stands for itself. Nothing stands for NaN, "null" for null.
    """
    found = list(_all(thing, shown))
    columns = list(dict.fromkeys(name for record in found for name in record["by"]))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["model", "slice", *RESULT, *(f"{name}_key" if name in CSV else name for name in columns)])
    for record in found:
        model, _, metric = record["metric"].rpartition("/")
        keys = {name: called(record, name) for name in record["by"]}
        spelled = ",".join(f"{name}={key}" for name, key in keys.items())
        results = [metric, *(_text(record[name]) for name in RESULT[1:])]
        writer.writerow([model, spelled, *results, *(keys.get(name, "") for name in columns)])


def _text(value: Any) -> Any:
    plain = _plain(value)
    return json.dumps(plain) if isinstance(plain, (list, dict)) else plain
