"""Describe the origin of the numbers on a page: rows, dropped rows, weights, filters, and digests of the states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..collect.accumulator import definition_of
from ..collect.collection import MetricCollection, contents_of
from ..compose.axis_wrapper import AxisWrapper
from ..compose.sharded import Sharded
from ..compose.windowed import Windowed
from ..errors import MemoryLimitError
from ..inference.compare import collect_slice_columns
from ..inference.scorecard import Scorecard
from ..numerics.slice_keys import format_atom
from .headline import format_confidence
from .numbers import format_count, format_share
from .records import build_records, describe_dropped, remove_shards, split_pieces

__all__ = ["build_card_terms", "build_state_terms", "describe_dropped_rows", "format_terms"]

MAX_DROPPED_SHARE = 0.01  # a warning appears in the headline if a larger share of the rows was dropped


def describe_dropped_rows(accumulators: Sequence[tuple[str, Any]]) -> list[str]:
    """Return warnings if more than 1 % of the rows of the first object were dropped; otherwise, an empty list."""
    sentences = []
    for _, thing in accumulators[:1]:
        for _, piece in collect_collections(thing):
            for r in build_records(piece)[:1]:
                out, rows = sum(n for why, n in r["dropped"].items() if why != "where"), r["rows"] or 0
                if out > MAX_DROPPED_SHARE * (rows + out):
                    share = format_share(out / (rows + out))
                    sentences.append(f"{format_count(out)} of {format_count(rows + out)} rows were left out ({share})")
    return sentences


def collect_collections(thing: Any) -> list[tuple[str, MetricCollection]]:
    """Return the metrics inside an object, computed over all rows, as pairs of a name and a collection.

    Windows are merged, and slices are left out.
    """
    if isinstance(thing, Windowed):
        return collect_collections(thing.lifetime())
    return [(n, remove_shards(p)) for n, p in split_pieces(thing) if not isinstance(p, AxisWrapper)]


def format_terms(provenance: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return the caller's provenance as pairs of a term and a text. A list becomes a multi-line text."""
    return [
        (str(k), "\n".join(map(str, v)) if isinstance(v, (list, tuple)) else str(v))
        for k, v in (provenance or {}).items()
    ]


def build_state_terms(accumulators: Sequence[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Return the provenance of metrics as pairs of a term and a text.

    The terms are the rows, dropped rows, weights and filters of the first object, how its intervals are computed, and
    the digest (a hash) of every object.
    """
    terms: list[tuple[str, str]] = []
    for _, thing in accumulators[:1]:
        for _, piece in collect_collections(thing)[:1]:
            terms += _build_count_terms(piece)
        if isinstance(thing, Sharded):
            terms.append(("intervals", f"delete-one jackknife over {thing.shards} groups of {thing.unit}"))
    return [*terms, *((_name_state(n), _format_digest(thing)) for n, thing in accumulators)]


def _name_state(name: str) -> str:
    return "state of the whole log" if name == "overall" else f"state{f' {name}' if name else ''}"


def _format_digest(thing: Any) -> str:
    """Return the digest (a hash) of the content of an object, or the reason why it has none."""
    try:
        return f"sha256 {thing.digest()}"
    # A state with open groups, which may still receive rows, cannot be serialized, so it has no digest.
    except MemoryLimitError as error:
        return f"none: {error}"


def build_card_terms(name: str, card: Scorecard) -> list[tuple[str, str]]:
    """Return the provenance of a scorecard as pairs of a term and a text.

    The terms are its metrics with their roles, how its intervals are computed, and the digest (a hash) of each arm.
    """
    of = f" of {name}" if name else ""
    one = card.arms[card.control]
    columns = collect_slice_columns(one)
    by = f" by {', '.join(columns)}" if columns else ""
    axes = [a for r in definition_of(one).reads for a in r.state.axes if a.kind == "shard"]
    shards = (
        f"over {axes[0].size} groups of {', '.join(axes[0].names)}"
        if axes
        else "over rows that are assumed to be independent"
    )
    looks = "valid at every look" if any(p.sequential for p in card.progress.values()) else "valid at one look"
    questions = ", ".join(
        f"{q.name} ({q.role}{f', margin {q.margin:g}' if q.margin is not None else ''})" for q in card.options.questions
    )
    return [
        (f"metrics{of}", questions),
        (
            f"intervals{of}",
            f"delete-one jackknife {shards}, {looks}; {format_confidence(card.options.confidence, False)} together",
        ),
        *((f"state of {format_atom(arm)}{by}", f"sha256 {thing.digest()}") for arm, thing in card.arms.items()),
    ]


def _build_count_terms(collection: MetricCollection) -> list[tuple[str, str]]:
    records = build_records(collection)
    most = max(records, key=lambda r: r["rows"] or 0, default=None)
    if most is None:
        return []
    rows = f"{format_count(most['rows'])} counted" if most["rows"] is not None else ""
    rate = f", {format_count(most['positives'])} positives" if most["positives"] is not None else ""
    out = {
        f"{format_count(n)} {describe_dropped(k, r['columns'].get(k))}"
        for r in records
        for k, n in r["dropped"].items()
    }
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
        ("weights", f"{', '.join(weights)}: total weight {most['weight']:,.6g}" if weighed else "none"),
        ("filters", ", ".join(where) or "none"),
        *([("correction", "; ".join(rates))] if rates else []),
    ]
