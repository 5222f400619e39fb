"""From what was counted and compared to the parts of a page, in the order in which it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..collect.metric_like import MetricLike
from ..compose.bundle import Bundle
from ..compose.checkpoint import Checkpoint
from ..compose.ledger import Ledger
from ..compose.windowed import Windowed
from ..errors import InvalidInputError
from ..inference.compare import compare, samples_of
from ..inference.comparison import Comparison, Comparisons
from ..inference.scorecard import Scorecard
from ..reading.records import badness
from ..reading.table import Table
from .card_sections import add_cards
from .comparison_sections import add_comparisons
from .count_sections import add_held, grid_of
from .families import COLOURS
from .page_model import Headline, NamedSide, Page, PagePart
from .provenance import about, about_card, given_terms, worries_of
from .records import by_unit, is_sliced, pieces, rivals

__all__ = ["assemble"]


@dataclass
class _Found:
    """What objects have been found, by kind."""

    cards: list[tuple[str, Scorecard]] = field(default_factory=list)
    pairs: list[tuple[str, Comparisons | list[Comparison]]] = field(default_factory=list)
    tables: list[tuple[str, Table]] = field(default_factory=list)
    held: list[tuple[str, Any]] = field(default_factory=list)


def assemble(
    objects: Any, title: str, *, sides: tuple[str, str] = ("a", "b"), rows_independent: bool = False,
    provenance: Mapping[str, Any] | None = None, sort: str | None = None, min_rows: int = 0,
) -> Page:  # fmt: skip
    """Return the page of some objects."""
    found = _Found()
    for name, thing in flat(objects):
        _sort_out(name, thing, found)
    if not (found.cards or found.pairs or found.tables or found.held):
        raise InvalidInputError("there is nothing to report: give what counts, a table, a comparison, or a scorecard")
    both, compared = _models(found, sides)
    worries = worries_of(found.held)
    page = Page(title, Headline([(title, None)], "", []), provenance=[*given_terms(provenance), *about(found.held)])
    if found.cards:
        page.provenance += [term for name, card in found.cards for term in about_card(name, card)]
        add_cards(page, found.cards, worries)
    if compared:
        add_comparisons(page, compared, both, worries, first=not found.cards)
    add_held(page, found.held, rows_independent=rows_independent, first=not (found.cards or compared), sort=sort,
              min_rows=min_rows, worries=worries, compared=compared)  # fmt: skip
    for name, table in found.tables:
        head, rows = table.texts()
        words = sum(h in (*table.by, "metric", "treatment", "role") for h in head)
        page.parts.append(PagePart("grid", name or "Table", "", grid_of(head, rows, words, [])))
    taken: set[str] = set()
    for i, part in enumerate(page.parts):
        anchor = part.anchor if part.anchor and part.anchor not in taken else f"part{i}"
        page.parts[i] = part._replace(anchor=anchor)
        taken.add(anchor)
    return page


def flat(objects: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the objects of a dict or list of them, each with its name."""
    if isinstance(objects, Mapping) and not isinstance(objects, (MetricLike, Comparisons)):
        for inner, one in objects.items():
            yield from flat(one, f"{name}/{inner}" if name else str(inner))
    elif isinstance(objects, (list, tuple)):
        for one in objects:
            yield from flat(one, name)
    else:
        yield name, objects


def _sort_out(name: str, thing: Any, found: _Found) -> None:
    """Put an object with those of its kind."""
    if isinstance(thing, Scorecard):
        found.cards.append((name, thing))
    elif isinstance(thing, Comparison):
        last = found.pairs[-1][1] if found.pairs else None
        if isinstance(last, list):
            last.append(thing)
        else:
            found.pairs.append((name, [thing]))
    elif isinstance(thing, Comparisons):
        found.pairs.append((name, thing))
    elif isinstance(thing, Table):
        found.tables.append((name, thing))
    elif isinstance(thing, MetricLike):
        found.held += _unfolded(name, thing)
    else:
        raise InvalidInputError(
            f"a page shows what counts (metrics, collections, slices, windows), tables, comparisons and scorecards, "
            f"not a {type(thing).__name__}"
        )


def _unfolded(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield what bundles and ledgers hold, down to collections, slices and windows."""
    if isinstance(thing, Bundle):
        for inner, one in thing.items():
            yield from _unfolded(f"{name}/{inner}" if name else inner, one)
    elif isinstance(thing, (Ledger, Checkpoint)):
        for inner, piece in pieces(thing, name) if isinstance(thing, Checkpoint) else [(name, thing.total)]:
            yield from _unfolded(inner, piece)
    else:
        yield name, thing


def _models(
    found: _Found, sides: tuple[str, str]
) -> tuple[tuple[NamedSide, NamedSide], list[tuple[str, Comparisons | list[Comparison]]]]:
    """Return what is compared: what was given; else a model of what was counted by units with the first."""
    if found.pairs:
        return (NamedSide(sides[0], 1), NamedSide(sides[1], 0)), found.pairs
    made: list[tuple[str, Any]] = []
    models: list[str] = []
    chosen = ""
    for name, thing in found.held:
        groups = rivals(thing) if by_unit(thing) and not isinstance(thing, Windowed) else []
        known = groups[0] if groups else []
        if known and (not models or known == models):
            chosen = chosen or _best_of(thing, known)
            models = known
            sides_of = thing.task(chosen), thing.task(known[0])
            made.append((name, compare(*sides_of, adjust="bh" if is_sliced(thing) else None)))
    if not made:
        return (NamedSide(sides[0], 1), NamedSide(sides[1], 0)), []
    return (NamedSide(chosen, models.index(chosen) % COLOURS), NamedSide(models[0], 0)), made


def _best_of(thing: Any, models: list[str]) -> str:
    """Which model is compared with the first: the second; of more, the one with the best value of the first metric."""
    if len(models) == 2:
        return models[1]
    samples = samples_of(thing)
    metric = samples[0].name.rpartition("/")[2]
    mine = {s.name.rpartition("/")[0]: s for s in samples if s.name.rpartition("/")[2] == metric and len(s.values) == 1}
    faults = {m: badness(mine[m].metric, float(mine[m].values[0])) for m in models[1:] if m in mine}
    known = {m: fault for m, fault in faults.items() if fault == fault}
    return min(known, key=lambda m: known[m]) if known else models[1]
