"""Results as records: what tables, pages, JSON and CSV are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..collect.accumulator import definition_of
from ..collect.collection import CollectionEntry, MetricCollection, contents_of
from ..collect.metric import Metric
from ..collect.metric_like import answer_of, states_of, with_states
from ..compose.axis_wrapper import AxisWrapper
from ..compose.bundle import Bundle
from ..compose.checkpoint import Checkpoint
from ..compose.ledger import Ledger
from ..compose.pooled_windows import PooledWrapper
from ..compose.sharded import Sharded
from ..compose.windowed import Windowed
from ..errors import InvalidInputError
from ..numerics.keys import shown

__all__ = [
    "Record",
    "Whole",
    "by_slice",
    "by_unit",
    "called",
    "contents",
    "is_sliced",
    "overall",
    "pieces",
    "sharded",
    "tasks_of",
    "total",
    "unsharded",
    "views",
    "why_left_out",
    "windows_in",
]

Record = dict[str, Any]
LEFT = ("(other)", "(expired)")
"""How tables call what is not kept."""


Whole = MetricCollection | Sharded
"""Metrics of all rows, with or without shards of units."""


def pieces(thing: Any, name: str = "") -> list[tuple[str, Whole | AxisWrapper]]:
    """Return the metrics, slices and windows that an object holds, each with its name; a lone object has none."""
    if isinstance(thing, Bundle):
        return [piece for inner, one in thing.items() for piece in pieces(one, _joined(name, inner))]
    if isinstance(thing, Ledger):
        return pieces(thing.total, name)
    if isinstance(thing, Checkpoint):
        counted = pieces(thing.total, name)
        first = counted[0][1]  # a pass by slices counts these alone: all rows are their sum
        return [(name, total(first)), *counted] if isinstance(first, AxisWrapper) else counted
    if isinstance(thing, Metric):
        return [(name, with_states(MetricCollection(thing), states_of(thing)))]
    if isinstance(thing, PooledWrapper):
        definition = definition_of(thing)
        return pieces(with_states(thing.inner, definition.pooled(states_of(thing))), name)
    if isinstance(thing, (AxisWrapper, Sharded)):
        return [(name, thing)]
    if not isinstance(thing, MetricCollection):
        raise InvalidInputError(
            f"this is a bare {type(thing).__name__}; results are of metrics, collections, slices and bundles"
        )
    others = [c.name for c in contents_of(thing) if c.metric is None]
    lone = [n for n in thing.names if n not in others]
    whole = [(name, thing.only(lone) if others else thing)] if lone else []
    return [*whole, *(piece for other in others for piece in pieces(thing[other], _joined(name, other)))]


def _joined(name: str, inner: str) -> str:
    return f"{name}/{inner}" if name else inner


def total(thing: Any) -> Any:
    """Return all rows of slices and windows."""
    while isinstance(thing, AxisWrapper):
        thing = thing.total
    return thing


def unsharded(thing: Whole) -> MetricCollection:
    """Return metrics without the shards of units behind their intervals."""
    found = thing.whole if isinstance(thing, Sharded) else thing
    return found if isinstance(found, MetricCollection) else with_states(MetricCollection(found), states_of(found))


def sharded(thing: Any) -> Sharded | None:
    """Return what holds the shards of units behind the intervals, if there are any."""
    while isinstance(thing, AxisWrapper):
        thing = thing.inner
    return thing if isinstance(thing, Sharded) else None


def windows_in(thing: AxisWrapper) -> Windowed | None:
    """Return the windows within slices, if there are any."""
    inner = thing.inner
    while isinstance(inner, AxisWrapper) and not isinstance(inner, Windowed):
        inner = inner.inner
    return inner if isinstance(inner, Windowed) else None


def views(thing: AxisWrapper) -> list[AxisWrapper]:
    """Return slices and windows as they are shown: of windows within slices, the slices of all times first."""
    within = windows_in(thing)
    return [thing] if within is None else [thing.across(within.time), thing]


def contents(thing: Whole | AxisWrapper) -> dict[str, CollectionEntry]:
    """Return the metrics of a collection, or of every slice, by name."""
    inner = thing.inner if isinstance(thing, (AxisWrapper, Sharded)) else thing
    if isinstance(inner, (AxisWrapper, Sharded)):
        return contents(inner)
    collection = MetricCollection(inner) if isinstance(inner, Metric) else inner
    found: dict[str, CollectionEntry] = {}
    for content in contents_of(collection):
        if content.metric is not None:
            found[content.name] = content
        else:
            found |= {f"{content.name}/{name}": one for name, one in contents(collection[content.name]).items()}
    return found


def rivals(thing: Any) -> list[list[str]]:
    """Return the tasks that can be compared, by group: those of the same labels and rows, with a metric in common."""
    groups: dict[Any, dict[str, set[str]]] = {}
    for name, content in contents(thing).items():
        task, _, metric = name.rpartition("/")
        of = content.binding
        rows = of.column("y_true"), of.where, of.column("sample_weight"), of.corrects, of.negative_rate
        if task:
            groups.setdefault(rows, {}).setdefault(task, set()).add(metric)
    found = [[t for t, metrics in tasks.items() if metrics & next(iter(tasks.values()))] for tasks in groups.values()]
    return [tasks for tasks in found if len(tasks) > 1]


def overall(thing: Whole, confidence: float | None = None) -> list[Record]:
    """Return a record of every metric: the columns of `Table`, why there is no interval, the rows left out by reason."""
    return _with_columns(thing, answer_of(thing).records(confidence))


def by_slice(
    thing: AxisWrapper,
    top: int | None = None,
    sort: str | None = None,
    min_rows: int = 0,
    confidence: float | None = None,
) -> list[Record]:
    """Return records of every slice and metric, by key; `other` comes last. `top` keeps the slices with most rows.

    With `sort` the order is that of `Sliced.table`, and `top` keeps the first. Windows are by time, and `top` keeps the
    newest.
    """
    if isinstance(thing, Windowed):
        rows = thing.shown(top=top, confidence=confidence)
    else:
        rows = thing.shown(top=top, sort=sort, min_rows=min_rows, confidence=confidence)  # type: ignore[attr-defined]
    made: list[Record] = []
    for record in _with_columns(thing, rows):
        by = tuple(name for name in definition_of(thing).levels if name in record)
        other = bool(record.get("other"))
        key = {name: None if other and record[name] in LEFT else record[name] for name in by}
        made.append(record | {"by": by, "slice": key, "other": other})
    return made


def called(record: Record, name: str) -> str:
    """How people read the key of a record by one of its columns: what is not kept by its word, null as such."""
    if record["other"] and record.get(name) in LEFT:
        return str(record[name])
    text = shown(record["slice"].get(name, ""))
    return f'"{text}"' if text in LEFT else text  # a key that is called so


def _with_columns(thing: Whole | AxisWrapper, made: list[Record]) -> list[Record]:
    """Add the column that each reason for leaving out rows speaks of."""
    known = contents(thing)
    for record in made:
        content = known.get(record["metric"])
        if content is not None:
            binding = content.binding
            record["columns"] = {r: binding.where if r == "where" else binding.column(r) for r in record["dropped"]}
    return made


def tasks_of(found: Sequence[Record]) -> dict[str, dict[str, Record]]:
    """Return records by task ("" if there is one without a name) and by metric."""
    tasks: dict[str, dict[str, Record]] = {}
    for record in found:
        task, _, metric = record["metric"].rpartition("/")
        tasks.setdefault(task, {})[metric] = record
    return tasks


def by_unit(thing: Any) -> bool:
    """Whether something was counted by shards of units."""
    return any(axis.kind == "shard" for read in definition_of(thing).reads for axis in read.state.axes)


def is_sliced(thing: Any) -> bool:
    """Whether it is by slice."""
    return any(axis.kind != "shard" for read in definition_of(thing).reads for axis in read.state.axes)


def why_left_out(reason: str, column: Any) -> str:
    """Say why rows do not count."""
    return f"not {column}" if reason == "where" else f"bad {column}"
