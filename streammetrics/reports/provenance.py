"""Where a page comes from: what its states say of their rows, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..collect.accumulator import definition_of
from ..collect.collection import MetricCollection, contents_of
from ..compose.axis_wrapper import AxisWrapper
from ..compose.sharded import Sharded
from ..compose.windowed import Windowed
from ..errors import MemoryLimitError
from ..inference.scorecard import Scorecard
from ..numerics.keys import shown
from .headline import interval_name
from .numbers import count, share
from .records import overall, pieces, unsharded, why_left_out

__all__ = ["about", "about_card", "given_terms", "worries_of"]

WORRY = 0.01  # share of rows left out that is told first


def worries_of(held: Sequence[tuple[str, Any]]) -> list[str]:
    """What was left out, where it is much."""
    told = []
    for _, thing in held[:1]:
        for _, piece in pieces_of(thing):
            for r in overall(piece)[:1]:
                out, rows = sum(n for why, n in r["dropped"].items() if why != "where"), r["rows"] or 0
                if out > WORRY * (rows + out):
                    told.append(f"{count(out)} of {count(rows + out)} rows were left out ({share(out / (rows + out))})")
    return told


def pieces_of(thing: Any) -> list[tuple[str, MetricCollection]]:
    """The collections that something holds, of all rows."""
    if isinstance(thing, Windowed):
        return pieces_of(thing.lifetime())
    return [(n, unsharded(p)) for n, p in pieces(thing) if not isinstance(p, AxisWrapper)]


def given_terms(provenance: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return what the caller says of it."""
    return [
        (str(k), "\n".join(map(str, v)) if isinstance(v, (list, tuple)) else str(v))
        for k, v in (provenance or {}).items()
    ]


def about(held: Sequence[tuple[str, Any]]) -> list[tuple[str, str]]:
    """What the states themselves say: rows, what was left out, weights, filters, units, digests."""
    terms: list[tuple[str, str]] = []
    for _, thing in held[:1]:
        for _, piece in pieces_of(thing)[:1]:
            terms += _counted_terms(piece)
        if isinstance(thing, Sharded):
            terms.append(("intervals", f"delete-one jackknife over {thing.shards} shards of {thing.unit}"))
    return [*terms, *((f"state{f' {n}' if n else ''}", _digest(thing)) for n, thing in held)]


def _digest(thing: Any) -> str:
    """What a state is known by, if it can be written."""
    try:
        return f"sha256 {thing.digest()}"
    except MemoryLimitError as error:  # groups that are open
        return f"none: {error}"


def about_card(name: str, card: Scorecard) -> list[tuple[str, str]]:
    """How a scorecard was asked, and of what."""
    of = f" of {name}" if name else ""
    one = card.arms[card.control]
    axes = [a for r in definition_of(one).reads for a in r.state.axes if a.kind == "shard"]
    shards = f"over {axes[0].size} shards of {', '.join(axes[0].names)}" if axes else "of rows taken as independent"
    looks = "valid at every look" if any(p.sequential for p in card.progress.values()) else "of one look"
    asked = ", ".join(
        f"{q.name} ({q.role}{f', margin {q.margin:g}' if q.margin is not None else ''})" for q in card.asked.questions
    )
    return [
        (f"asked{of}", asked),
        (
            f"intervals{of}",
            f"delete-one jackknife {shards}, {looks}; {interval_name(card.asked.confidence, False)} together",
        ),
        *((f"state of {shown(arm)}", f"sha256 {thing.digest()}") for arm, thing in card.arms.items()),
    ]


def _counted_terms(collection: MetricCollection) -> list[tuple[str, str]]:
    found = overall(collection)
    most = max(found, key=lambda r: r["rows"] or 0, default=None)
    if most is None:
        return []
    rows = f"{count(most['rows'])} counted" if most["rows"] is not None else ""
    rate = f", {count(most['positives'])} positives" if most["positives"] is not None else ""
    out = {f"{count(n)} {why_left_out(k, r['columns'].get(k))}" for r in found for k, n in r["dropped"].items()}
    bindings = [content.binding for content in contents_of(collection)]
    weights = sorted({str(b.column("sample_weight")) for b in bindings})
    weighed = most["weight"] is not None and most["rows"] is not None and most["weight"] != most["rows"]
    where = sorted({str(b.where) for b in bindings if b.where})
    rates = sorted(
        {f"{b.corrects} corrected for a negative rate of {b.negative_rate}" for b in bindings if b.negative_rate}
    )
    return [
        ("rows", f"{rows}{rate}"),
        ("left out", ", ".join(sorted(out)) or "none"),
        ("weights", f"{', '.join(weights)}: together {most['weight']:,.6g}" if weighed else "none"),
        ("filters", ", ".join(where) or "none"),
        *([("correction", "; ".join(rates))] if rates else []),
    ]
