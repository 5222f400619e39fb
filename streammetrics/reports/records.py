"""Results as records, the common source of tables, pages, JSON and CSV."""

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
from ..numerics.slice_keys import format_atom

__all__ = [
    "Record",
    "TotalMetrics",
    "build_records",
    "build_slice_records",
    "build_views",
    "collect_entries",
    "describe_dropped",
    "find_sharded",
    "find_windows",
    "format_slice_key",
    "group_by_task",
    "has_shards",
    "is_sliced",
    "merge_cells",
    "remove_shards",
    "split_pieces",
]

Record = dict[str, Any]
UNKEPT_KEYS = ("(other)", "(expired)")
"""Keys of the rows whose own keys were not kept."""


TotalMetrics = MetricCollection | Sharded
"""Metrics over all rows, with or without shards of units."""


def split_pieces(thing: Any, name: str = "") -> list[tuple[str, TotalMetrics | AxisWrapper]]:
    """Return the collections, slices and windows inside an object, with their names; a single object has an empty name."""
    if isinstance(thing, Bundle):
        return [piece for inner, one in thing.items() for piece in split_pieces(one, _join_names(name, inner))]
    if isinstance(thing, Ledger):
        return split_pieces(thing.total, name)
    if isinstance(thing, Checkpoint):
        counted = split_pieces(thing.total, name)
        first = counted[0][1]  # a pass that counts slices has no own total
        return [(name, merge_cells(first)), *counted] if isinstance(first, AxisWrapper) else counted
    if isinstance(thing, Metric):
        return [(name, with_states(MetricCollection(thing), states_of(thing)))]
    if isinstance(thing, PooledWrapper):
        definition = definition_of(thing)
        return split_pieces(with_states(thing.inner, definition.pool_states(states_of(thing))), name)
    if isinstance(thing, (AxisWrapper, Sharded)):
        return [(name, thing)]
    if not isinstance(thing, MetricCollection):
        raise InvalidInputError(
            f"a {type(thing).__name__} has no results: pass a metric, collection, slices or a bundle"
        )
    others = [c.name for c in contents_of(thing) if c.metric is None]
    lone = [n for n in thing.names if n not in others]
    own = [(name, thing.only(lone) if others else thing)] if lone else []
    return [*own, *(piece for other in others for piece in split_pieces(thing[other], _join_names(name, other)))]


def _join_names(name: str, inner: str) -> str:
    return f"{name}/{inner}" if name else inner


def merge_cells(thing: Any) -> Any:
    """Return the metrics over all rows, without slices and windows; other objects are returned as they are."""
    while isinstance(thing, AxisWrapper):
        thing = thing.total
    return thing


def remove_shards(thing: TotalMetrics) -> MetricCollection:
    """Return metrics with their shards merged."""
    metrics = thing.whole if isinstance(thing, Sharded) else thing
    return (
        metrics if isinstance(metrics, MetricCollection) else with_states(MetricCollection(metrics), states_of(metrics))
    )


def find_sharded(thing: Any) -> Sharded | None:
    """Return the `Sharded` inside an object; None without shards."""
    while isinstance(thing, AxisWrapper):
        thing = thing.inner
    return thing if isinstance(thing, Sharded) else None


def find_windows(thing: AxisWrapper) -> Windowed | None:
    """Return the windows inside slices; None without windows."""
    inner = thing.inner
    while isinstance(inner, AxisWrapper) and not isinstance(inner, Windowed):
        inner = inner.inner
    return inner if isinstance(inner, Windowed) else None


def build_views(thing: AxisWrapper) -> list[AxisWrapper]:
    """Return the tables to show: for windows inside slices, first the slices over all times, then both."""
    within = find_windows(thing)
    return [thing] if within is None else [thing.across(within.time), thing]


def collect_entries(thing: TotalMetrics | AxisWrapper) -> dict[str, CollectionEntry]:
    """Return the entries of a collection, or of the collection inside slices, by name."""
    inner = thing.inner if isinstance(thing, (AxisWrapper, Sharded)) else thing
    if isinstance(inner, (AxisWrapper, Sharded)):
        return collect_entries(inner)
    collection = MetricCollection(inner) if isinstance(inner, Metric) else inner
    entries: dict[str, CollectionEntry] = {}
    for content in contents_of(collection):
        if content.metric is not None:
            entries[content.name] = content
        else:
            entries |= {
                f"{content.name}/{name}": one for name, one in collect_entries(collection[content.name]).items()
            }
    return entries


def group_comparable_tasks(thing: Any) -> list[list[str]]:
    """Return groups of comparable tasks: those with the same labels, rows and weights, and a common metric."""
    groups: dict[Any, dict[str, set[str]]] = {}
    for name, content in collect_entries(thing).items():
        task, _, metric = name.rpartition("/")
        binding = content.binding
        rows = (
            binding.column("y_true"),
            binding.where,
            binding.column("sample_weight"),
            binding.corrects,
            binding.negative_rate,
        )
        if task:
            groups.setdefault(rows, {}).setdefault(task, set()).add(metric)
    comparable = [
        [t for t, metrics in tasks.items() if metrics & next(iter(tasks.values()))] for tasks in groups.values()
    ]
    return [tasks for tasks in comparable if len(tasks) > 1]


def build_records(thing: TotalMetrics, confidence: float | None = None) -> list[Record]:
    """Return a record of each metric: the columns of `Table`, the reason for no interval, and dropped rows by reason."""
    return _add_columns(thing, answer_of(thing).records(confidence))


def build_slice_records(
    thing: AxisWrapper,
    top: int | None = None,
    sort: str | None = None,
    min_rows: int = 0,
    confidence: float | None = None,
) -> list[Record]:
    """Return records of each slice and metric, by key and with `other` last; `top` keeps the slices with most rows.

    With `sort`, the order is that of `Sliced.table` and `top` keeps the first slices. Windows are sorted by time, and
    `top` keeps the newest.
    """
    if isinstance(thing, Windowed):
        rows = thing.table_records(top=top, confidence=confidence)
    else:
        rows = thing.table_records(top=top, sort=sort, min_rows=min_rows, confidence=confidence)  # type: ignore[attr-defined]
    records: list[Record] = []
    for record in _add_columns(thing, rows):
        by = tuple(name for name in definition_of(thing).levels if name in record)
        other = bool(record.get("other"))
        key = {name: None if other and record[name] in UNKEPT_KEYS else record[name] for name in by}
        records.append(record | {"by": by, "slice": key, "other": other})
    return records


def format_slice_key(record: Record, name: str) -> str:
    """Return the key of a record in one column as text; real keys that look like "(other)" are quoted."""
    if record["other"] and record.get(name) in UNKEPT_KEYS:
        return str(record[name])
    text = format_atom(record["slice"].get(name, ""))
    return f'"{text}"' if text in UNKEPT_KEYS else text  # a real key with this text


def _add_columns(thing: TotalMetrics | AxisWrapper, records: list[Record]) -> list[Record]:
    """Add the column name of each reason for dropped rows to records."""
    entries = collect_entries(thing)
    for record in records:
        content = entries.get(record["metric"])
        if content is not None:
            binding = content.binding
            record["columns"] = {r: binding.where if r == "where" else binding.column(r) for r in record["dropped"]}
    return records


def group_by_task(records: Sequence[Record]) -> dict[str, dict[str, Record]]:
    """Return records by task and metric; the task without a name is ""."""
    tasks: dict[str, dict[str, Record]] = {}
    for record in records:
        task, _, metric = record["metric"].rpartition("/")
        tasks.setdefault(task, {})[metric] = record
    return tasks


def has_shards(thing: Any) -> bool:
    """Return whether an object has shards of units."""
    return any(axis.kind == "shard" for read in definition_of(thing).reads for axis in read.state.axes)


def is_sliced(thing: Any) -> bool:
    """Return whether an object has slices or windows."""
    return any(axis.kind != "shard" for read in definition_of(thing).reads for axis in read.state.axes)


def describe_dropped(reason: str, column: Any) -> str:
    """Return why rows were dropped, as text."""
    return f"not {column}" if reason == "where" else f"bad {column}"
