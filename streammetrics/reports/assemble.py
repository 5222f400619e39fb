"""Build the data of a report page: sort the reported objects by type, and arrange the sections of the page."""

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
from ..inference.compare import collect_samples, compare
from ..inference.comparison import Comparison, Comparisons
from ..inference.multiple import SLICE_CORRECTION
from ..inference.scorecard import Scorecard
from ..inference.sentences import NamedComparison
from ..reading.records import badness
from ..reading.table import Table
from .card_sections import add_scorecards, build_arm_part
from .comparison_sections import ComparedSides, add_comparisons
from .count_sections import add_accumulators, build_grid
from .page_model import Headline, NamedSide, Page, PagePart
from .provenance import build_card_terms, build_state_terms, describe_dropped_rows, format_terms
from .records import group_comparable_tasks, has_shards, is_sliced, split_pieces
from .task_charts import COLOURS
from .user_split import UserSplit

__all__ = ["assemble"]


@dataclass
class _ReportContent:
    """The objects of a report, sorted into one list for each type. Each object has a name for headings."""

    cards: list[tuple[str, Scorecard]] = field(default_factory=list)
    pairs: list[tuple[str, Comparisons | list[Comparison]]] = field(default_factory=list)
    model_comparisons: list[NamedComparison] = field(default_factory=list)
    tables: list[tuple[str, Table]] = field(default_factory=list)
    accumulators: list[tuple[str, Any]] = field(default_factory=list)
    splits: list[UserSplit] = field(default_factory=list)


def assemble(
    objects: Any, title: str, *, sides: tuple[str, str] = ("a", "b"), rows_independent: bool = False,
    provenance: Mapping[str, Any] | None = None, sort: str | None = None, min_rows: int = 0,
    confidence: float = 0.95,
) -> Page:  # fmt: skip
    """Return the data of a report page, without HTML; the parameters are those of `report`.

    The page begins with scorecards. Comparisons, metrics and tables follow.
    """
    content = _ReportContent()
    for name, thing in flatten(objects):
        _add_object(name, thing, content)
    if not any(vars(content).values()):
        raise InvalidInputError("there is nothing to report: pass a metric, collection, table, comparison or scorecard")
    compared = _find_comparisons(content, sides)
    warnings = describe_dropped_rows(content.accumulators)
    page = Page(
        title,
        Headline([(title, None)], "", []),
        provenance=[*format_terms(provenance), *build_state_terms(content.accumulators)],
    )
    if content.cards:
        for name, card in content.cards:
            terms = build_card_terms(name, card)
            page.provenance += [term for term in terms if term not in page.provenance]
        add_scorecards(page, content.cards, warnings, content.splits[0] if content.splits else None)
    elif content.splits:
        page.parts.append(build_arm_part(content.splits[0]))
    if compared:
        add_comparisons(page, compared, warnings, first=not content.cards)
    first = not (content.cards or compared)
    add_accumulators(page, content.accumulators, rows_independent=rows_independent, first=first, sort=sort,
                     min_rows=min_rows, confidence=confidence, warnings=warnings,
                     compared=compared[0].pairs if compared else [])  # fmt: skip
    for name, table in content.tables:
        head, rows = table.texts()
        words = sum(h in (*table.by, "metric", "treatment", "role") for h in head)
        cells = [[(text, "") for text in row] for row in rows]
        page.parts.append(PagePart("grid", name or "Table", "", build_grid(head, cells, words, [])))
    anchors: set[str] = set()
    for i, part in enumerate(page.parts):
        anchor = part.anchor if part.anchor and part.anchor not in anchors else f"part{i}"
        page.parts[i] = part._replace(anchor=anchor)
        anchors.add(anchor)
    return page


def flatten(objects: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the objects inside nested dicts and lists, each with a name.

    The name of an object consists of the dict keys that lead to it, such as "models/new".
    """
    if isinstance(objects, Mapping) and not isinstance(objects, (MetricLike, Comparisons)):
        for inner, one in objects.items():
            yield from flatten(one, f"{name}/{inner}" if name else str(inner))
    elif isinstance(objects, (list, tuple)) and not isinstance(objects, NamedComparison):
        for one in objects:
            yield from flatten(one, name)
    else:
        yield name, objects


def _add_object(name: str, thing: Any, content: _ReportContent) -> None:
    """Add an object to the list for its type in `content`.

    Raises
    ------
    InvalidInputError
        A report cannot show an object of this type.
    """
    if isinstance(thing, NamedComparison):
        content.model_comparisons.append(thing)
    elif isinstance(thing, Scorecard):
        content.cards.append((name, thing))
    elif isinstance(thing, Comparison):
        last = content.pairs[-1][1] if content.pairs else None
        if isinstance(last, list):
            last.append(thing)
        else:
            content.pairs.append((name, [thing]))
    elif isinstance(thing, Comparisons):
        content.pairs.append((name, thing))
    elif isinstance(thing, UserSplit):
        content.splits.append(thing)
    elif isinstance(thing, Table):
        content.tables.append((name, thing))
    elif isinstance(thing, MetricLike):
        content.accumulators += _unwrap(name, thing)
    else:
        raise InvalidInputError(
            f"expected metrics, collections, slices, windows, tables, comparisons or scorecards, "
            f"found an object of class {type(thing).__name__}"
        )


def _unwrap(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the metrics inside an object, each with a name.

    For a bundle, these are its members; for a ledger, its total; for a checkpoint, its collections, slices and windows.
    Any other object is yielded as it is.
    """
    if isinstance(thing, Bundle):
        for inner, one in thing.items():
            yield from _unwrap(f"{name}/{inner}" if name else inner, one)
    elif isinstance(thing, (Ledger, Checkpoint)):
        for inner, piece in split_pieces(thing, name) if isinstance(thing, Checkpoint) else [(name, thing.total)]:
            yield from _unwrap(inner, piece)
    else:
        yield name, thing


def _find_comparisons(content: _ReportContent, sides: tuple[str, str]) -> list[ComparedSides]:
    """Return the comparisons to show on a page, grouped by treatment.

    If the caller passed neither comparisons nor a scorecard, this function compares two models of each collection whose
    rows are split into shards of users. The first model is the control, and `_choose_model` chooses the other one.
    `sides` contains the names of the treatment and the control for comparisons passed without names.
    """
    if content.pairs:
        return [ComparedSides((NamedSide(sides[0], 1), NamedSide(sides[1], 0)), content.pairs)]
    if content.model_comparisons:
        return _group_by_treatment(content)
    comparisons: list[tuple[str, Any]] = []
    models: list[str] = []
    challenger = ""
    for name, thing in [] if content.cards else content.accumulators:
        groups = group_comparable_tasks(thing) if has_shards(thing) and not isinstance(thing, Windowed) else []
        group = groups[0] if groups else []
        if group and (not models or group == models):
            challenger = challenger or _choose_model(thing, group)
            models = group
            sides_of = thing.task(challenger), thing.task(group[0])
            comparisons.append((name, compare(*sides_of, adjust=SLICE_CORRECTION if is_sliced(thing) else None)))
    if not comparisons:
        return []
    both = NamedSide(challenger, models.index(challenger) % COLOURS), NamedSide(models[0], 0)
    return [ComparedSides(both, comparisons)]


def _group_by_treatment(content: _ReportContent) -> list[ComparedSides]:
    """Group the named comparisons by treatment and control. Each model has the same color as in the charts."""
    tasks = [name for _, thing in content.accumulators for group in group_comparable_tasks(thing) for name in group]
    named = dict.fromkeys(name for one in content.model_comparisons for name in (one.control, one.treatment))
    order = [n for n in dict.fromkeys(t.rpartition("/")[2] for t in tasks) if n in named]
    colours = {name: i % COLOURS for i, name in enumerate(dict.fromkeys([*order, *named]))}
    groups: dict[tuple[str, str], list[NamedComparison]] = {}
    for one in content.model_comparisons:
        groups.setdefault((one.treatment, one.control), []).append(one)
    return [
        ComparedSides(
            (NamedSide(a, colours[a]), NamedSide(b, colours[b])),
            [("", one.comparisons) for one in some],
            some[0].primary_name,
        )
        for (a, b), some in groups.items()
    ]


def _choose_model(thing: Any, models: list[str]) -> str:
    """Return the name of the model to compare with the first one.

    If there are several other models, choose the one with the best value of the first metric.
    """
    if len(models) == 2:
        return models[1]
    samples = collect_samples(thing)
    metric = samples[0].name.rpartition("/")[2]
    sample_of = {
        s.name.rpartition("/")[0]: s for s in samples if s.name.rpartition("/")[2] == metric and len(s.values) == 1
    }
    faults = {m: badness(sample_of[m].metric, float(sample_of[m].values[0])) for m in models[1:] if m in sample_of}
    comparable = {m: fault for m, fault in faults.items() if fault == fault}
    return min(comparable, key=lambda m: comparable[m]) if comparable else models[1]
