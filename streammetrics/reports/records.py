"""Convert results to records (dicts), from which tables, pages, JSON and CSV are built."""

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
    "name_task_column",
    "remove_shards",
    "split_pieces",
]

Record = dict[str, Any]
UNKEPT_KEYS = ("(other)", "(expired)")
"""The keys of rows whose own key is not kept: "(other)" if a limit on keys merged them, "(expired)" for old windows."""


TotalMetrics = MetricCollection | Sharded
"""Metrics over all rows, which may be split into shards of users for standard errors."""


def split_pieces(thing: Any, name: str = "") -> list[tuple[str, TotalMetrics | AxisWrapper]]:
    """Return the collections, slices and windows inside an object, each with its name.

    `name` is the name of the object. If the object contains other objects, `name` is the prefix of their names.
    """
    if isinstance(thing, Bundle):
        return [piece for inner, one in thing.items() for piece in split_pieces(one, _join_names(name, inner))]
    if isinstance(thing, Ledger):
        return split_pieces(thing.total, name)
    if isinstance(thing, Checkpoint):
        counted = split_pieces(thing.total, name)
        # If only slices were counted, merge them to get the metrics over all rows.
        first = counted[0][1]
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
            f"an object of class {type(thing).__name__} has no results: pass a metric, collection, slices or a bundle"
        )
    others = [c.name for c in contents_of(thing) if c.metric is None]
    lone = [n for n in thing.names if n not in others]
    own = [(name, thing.only(lone) if others else thing)] if lone else []
    return [*own, *(piece for other in others for piece in split_pieces(thing[other], _join_names(name, other)))]


def _join_names(name: str, inner: str) -> str:
    return f"{name}/{inner}" if name else inner


def merge_cells(thing: Any) -> Any:
    """Merge all slices and windows, and return the metrics over all rows; return any other object unchanged."""
    while isinstance(thing, AxisWrapper):
        thing = thing.total
    return thing


def remove_shards(thing: TotalMetrics) -> MetricCollection:
    """Return the metrics as a collection with all shards of users merged."""
    metrics = thing.whole if isinstance(thing, Sharded) else thing
    return (
        metrics if isinstance(metrics, MetricCollection) else with_states(MetricCollection(metrics), states_of(metrics))
    )


def find_sharded(thing: Any) -> Sharded | None:
    """Return the `Sharded` metrics inside an object; None if it has no shards of users."""
    while isinstance(thing, AxisWrapper):
        thing = thing.inner
    return thing if isinstance(thing, Sharded) else None


def find_windows(thing: AxisWrapper) -> Windowed | None:
    """Return the time windows inside slices; None if the slices contain no windows."""
    inner = thing.inner
    while isinstance(inner, AxisWrapper) and not isinstance(inner, Windowed):
        inner = inner.inner
    return inner if isinstance(inner, Windowed) else None


def build_views(thing: AxisWrapper) -> list[AxisWrapper]:
    """Return the objects to show as tables.

    For windows inside slices, the list contains the slices with all their windows merged, and then the windows of each
    slice. For any other object, it contains only the object itself.
    """
    within = find_windows(thing)
    return [thing] if within is None else [thing.across(within.time), thing]


def collect_entries(thing: TotalMetrics | AxisWrapper) -> dict[str, CollectionEntry]:
    """Return the entries (metric, state, columns) of a collection, keyed by name, even if it is sliced or sharded."""
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
    """Return groups of task names whose metrics can be compared.

    The tasks of a group have the same labels, rows and weights, and a metric in common. Two models evaluated on the
    same log are an example.
    """
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


def name_task_column(thing: Any) -> str:
    """Return the heading of a column of task names: "model" if all tasks are comparable models, otherwise "task"."""
    tasks = {name.rpartition("/")[0] for name in collect_entries(thing)}
    return "model" if any(set(group) == tasks for group in group_comparable_tasks(thing)) else "task"


def build_records(thing: TotalMetrics, confidence: float | None = None) -> list[Record]:
    """Return a record (dict) for each metric.

    A record contains the columns of `Table`, the reason for a missing interval, and the counts of dropped rows by
    reason.
    """
    return _add_columns(thing, answer_of(thing).records(confidence))


def build_slice_records(
    thing: AxisWrapper,
    top: int | None = None,
    sort: str | None = None,
    min_rows: int = 0,
    confidence: float | None = None,
) -> list[Record]:
    """Return a record (dict) for each slice and metric, sorted by key unless `sort` is passed.

    The slice "(other)", which contains the rows whose keys were not kept because of a limit, comes last. `top` keeps
    only the slices with the most rows, or the first slices in the order of the table if `sort` or `min_rows` is passed.
    Windows are sorted by time, and `top` keeps the newest. `sort`, `min_rows` and `confidence` have the same meaning as
    in `Sliced.table`; for windows, only `confidence` is used.
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
    """Return the value of one slice column as text. A real value that looks like "(other)" is quoted."""
    if record["other"] and record.get(name) in UNKEPT_KEYS:
        return str(record[name])
    text = format_atom(record["slice"].get(name, ""))
    # Put a real key such as "(other)" in quotes. Without quotes, (other) stands for all rows whose keys were not kept.
    return f'"{text}"' if text in UNKEPT_KEYS else text


def _add_columns(thing: TotalMetrics | AxisWrapper, records: list[Record]) -> list[Record]:
    """Add to each record a dict that maps each reason for dropped rows to its column, and return the records."""
    entries = collect_entries(thing)
    for record in records:
        content = entries.get(record["metric"])
        if content is not None:
            binding = content.binding
            record["columns"] = {r: binding.where if r == "where" else binding.column(r) for r in record["dropped"]}
    return records


def group_by_task(records: Sequence[Record]) -> dict[str, dict[str, Record]]:
    """Group records by task and metric. A metric without a task belongs to the task ""."""
    tasks: dict[str, dict[str, Record]] = {}
    for record in records:
        task, _, metric = record["metric"].rpartition("/")
        tasks.setdefault(task, {})[metric] = record
    return tasks


def has_shards(thing: Any) -> bool:
    """Return whether the rows of an object are split into shards of users, from which standard errors are computed."""
    return any(axis.kind == "shard" for read in definition_of(thing).reads for axis in read.state.axes)


def is_sliced(thing: Any) -> bool:
    """Return whether an object has slices or windows."""
    return any(axis.kind != "shard" for read in definition_of(thing).reads for axis in read.state.axes)


def describe_dropped(reason: str, column: Any) -> str:
    """Return the reason for dropped rows as text, such as "bad score" for invalid values in the column "score"."""
    return f"not {column}" if reason == "where" else f"bad {column}"
