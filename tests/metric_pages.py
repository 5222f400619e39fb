"""The pages of the guide that are made of the classes and of the tables of peers: an index, and a page by family."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from types import ModuleType
from typing import Any

import streammetrics as sm
from streammetrics.guide.tables import PEERS, load_lines
from streammetrics.metrics.families import FAMILIES

INDEX = """\
# Metrics by family

A page for each family: what each metric is, its formula, how far off it can be, and its names in other libraries.

Weights, `where`, down-sampling, slices, windows, merging and bytes work for all of them; metrics of one state share it.
`sm.ranking.` and the tab key show a family, `streammetrics catalog NAME` a metric's definition, settings, cost and source,
`streammetrics catalog --from sklearn roc_auc_score` what stands for that of another library.

| page | metrics |
|---|---|
"""

PAGE = """\
# {title}

{about}

How far off a value can be, `bounds()` says of each. `streammetrics catalog NAME` prints a metric in full.
"""


@functools.cache
def pages() -> dict[str, str]:
    """Make all pages by name."""
    return {"metrics": index(), **{name_of(family): page(family) for family in FAMILIES}}


def names() -> list[str]:
    """Return the names of the pages, which costs less than to make them."""
    return ["metrics", *map(name_of, FAMILIES)]


def name_of(family: ModuleType) -> str:
    return family.__name__.rpartition(".")[2]


def index() -> str:
    names = map(name_of, FAMILIES)
    rows = [f"| [{name}]({name}.md) | {', '.join(f'`{m}`' for m in dir(getattr(sm, name)))} |" for name in names]
    return INDEX + "\n".join(rows) + "\n"


def page(family: ModuleType) -> str:
    """The metrics of a family by the state that they are read from, and their names in other libraries."""
    title, _, about = (family.__doc__ or "").partition(": ")
    made = PAGE.format(title=title, about=about[:1].upper() + about[1:])
    metrics = [getattr(family, name) for name in dir(family)]
    for state in dict.fromkeys(state_of(metric) for metric in metrics):
        made += f"\n## From the state `{state}`\n\n" + table(
            [metric for metric in metrics if state_of(metric) == state]
        )
    called = [(metric.__name__, elsewhere(metric)) for metric in metrics]
    if any(names for _, names in called):
        made += "\n## What they are called elsewhere\n\n| here | elsewhere |\n|---|---|\n"
        made += "".join(f"| `{name}` | {names} |\n" for name, names in called if names)
    return made


def table(metrics: list[Any]) -> str:
    """What metrics of one state are; how far off they can be is said once where it is the same for all."""
    heads, bounds = ["metric", "what it is", "formula"], {metric.about.bound for metric in metrics}
    made = f"How far off: {bounds.pop()}.\n\n" if len(bounds) == 1 else ""
    rows = [heads + ["how far off"] * bool(bounds)]
    rows.append(["---"] * len(rows[0]))
    for metric in metrics:
        row = [
            f"`{metric.__name__}`",
            (metric.__doc__ or "").partition("\n")[0],
            metric.about.formula,
            metric.about.bound,
        ]
        rows.append([cell.replace("|", "\\|") for cell in row[: len(rows[0])]])
    return made + "".join(f"| {' | '.join(row)} |\n" for row in rows).replace("| --- ", "|---").replace("--- |", "---|")


def state_of(metric: Any) -> str:
    tag: str = metric(**metric.about.example).make_state().tag
    return tag


def elsewhere(metric: Any) -> str:
    """The names for which a metric stands, by library."""
    found: dict[str, dict[str, None]] = {}
    for line in load_lines():
        if line.ours and metric.__name__ in named(line.ours):
            found.setdefault(line.peer, {})[line.name] = None
    return "; ".join(f"{PEERS[peer]} {', '.join(f'`{name}`' for name in names)}" for peer, names in found.items())


@functools.cache  # every line is compared with every metric
def named(ours: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(ours, mode="eval")) if isinstance(node, ast.Name)}


def write() -> None:
    """Write the pages to where they are shipped."""
    for name, text in pages().items():
        (Path(sm.__file__).parent / "guide" / f"{name}.md").write_text(text, encoding="utf-8")
