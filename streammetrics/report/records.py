"""Results as records: what tables, pages, JSON and CSV are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..collect.collection import Content, MetricCollection
from ..collect.metric import Metric
from ..compose.bundle import Bundle
from ..compose.checkpoint import Checkpoint
from ..compose.ledger import Ledger
from ..compose.sliced import Sliced
from ..errors import InvalidInputError

__all__ = ["Record", "by_slice", "contents", "overall", "pieces", "tasks_of"]

Record = dict[str, Any]


def pieces(thing: Any, name: str = "") -> list[tuple[str, MetricCollection | Sliced]]:
    """Return the metrics and the slices that an object holds, each with its name; a lone object has none."""
    if isinstance(thing, Bundle):
        return [piece for inner, one in thing.items() for piece in pieces(one, _joined(name, inner))]
    if isinstance(thing, Ledger):
        return pieces(thing.total, name)
    if isinstance(thing, Checkpoint):
        counted = pieces(thing.total, name)
        slices = counted[0][1]  # a pass by slices counts these alone: all rows are their sum
        return [(name, slices.total), *counted] if isinstance(slices, Sliced) else counted
    if isinstance(thing, Metric):
        return [(name, MetricCollection(thing).holding(thing.states))]
    if isinstance(thing, Sliced):
        return [(name, thing)]
    if not isinstance(thing, MetricCollection):
        raise InvalidInputError(
            f"this is a bare {type(thing).__name__}; results are of metrics, collections, slices and bundles"
        )
    others = [c.name for c in thing.contents() if not isinstance(c.thing, Metric)]
    lone = [n for n in thing.names if n not in others]
    whole = [(name, thing.only(lone) if others else thing)] if lone else []
    return [*whole, *(piece for other in others for piece in pieces(thing[other], _joined(name, other)))]


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


def _with_columns(thing: MetricCollection | Sliced, made: list[Record]) -> list[Record]:
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
