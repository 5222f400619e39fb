"""What each of several classes or labels has: a table by class, and confusion matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..collect.collection import MetricCollection, contents_of
from ..collect.metric import Metric
from ..metrics.averages import Several
from ..metrics.curves.areas import AUC, AveragePrecision
from ..metrics.decisions.agreement import ConfusionMatrix
from ..metrics.decisions.ratios import F1, Precision, Recall
from ..reading.table import show
from ..statistics.by_label import ByLabel, LabelDecisions
from ..statistics.by_label_scores import LabelScores
from ..statistics.classes import PairCounts
from .families import MOST
from .text_table import Cell, Grid

__all__ = ["ArrayValues", "breakdowns", "confusions", "each_class", "names_of", "plain_name", "values_of"]

WORST = 20  # confusions of more


class ArrayValues(NamedTuple):
    """A metric whose value is an array, with what its entries are called.

    Parameters
    ----------
    task, metric : str
        Its name, in two parts.
    names : list of str
        The classes or labels.
    value : ndarray
        One number a name, or a matrix, or a matrix a name.
    confusions : bool
        Whether a matrix counts true classes by predicted ones.
    """

    task: str
    metric: str
    names: list[str]
    value: np.ndarray[Any, Any]
    confusions: bool = False


def values_of(collection: MetricCollection) -> list[ArrayValues]:
    """Return the metrics of a collection whose values are arrays."""
    found = []
    for full, metric, (state, *_), binding, _ in contents_of(collection):
        value = metric.reading(state).value
        if isinstance(value, np.ndarray):
            task, _, name = full.rpartition("/")
            labels = names_of(metric, state, binding.column("y_true"))
            labels = labels or list(map(str, range(len(value))))
            found.append(ArrayValues(task, name, labels, value, isinstance(metric, ConfusionMatrix)))
    return found


def names_of(metric: Metric[Any, Any], state: Any, columns: Any) -> list[str]:
    """Return what classes or labels are called: by their names, by the columns of labels, or by number."""
    if isinstance(state, PairCounts):
        return list(map(str, state.names()))
    if isinstance(columns, tuple):
        shared = next((i for i, letters in enumerate(zip(*columns, strict=False)) if len(set(letters)) > 1), 0)
        return [name[shared:] or name for name in columns]
    if isinstance(state, ByLabel):
        return list(map(str, state.labels or range(state.width)))
    return ["0", "1"] if isinstance(metric, ConfusionMatrix) else []


def breakdowns(collection: MetricCollection) -> list[Grid]:
    """Return a table by class of all tasks with these classes, and the confusion matrices."""
    matrices: list[Grid] = []
    tables: dict[tuple[str, ...], list[ArrayValues]] = {}
    for found in values_of(collection):
        if found.value.ndim == 1:
            tables.setdefault(tuple(found.names), []).append(found)
        elif found.confusions:
            matrices += confusions(found)
        elif found.value.ndim == 2:
            matrices.append(_table(found))
    return [*(_by_class(list(names), columns) for names, columns in tables.items()), *matrices]


def _by_class(names: list[str], columns: list[ArrayValues]) -> Grid:
    """Return a table of classes (down) by metric (across); with several tasks a class has a line for each."""
    tasks = list(dict.fromkeys(one.task for one in columns))
    known = {(one.task, plain_name(one.metric)): one for one in columns}
    metrics = list(dict.fromkeys(metric for _, metric in known))
    several = ["task"] if len(tasks) > 1 else []
    rows = [
        [Cell(name if task == tasks[0] else ""), *([Cell(task)] if several else [])]
        + [_cell(known[task, metric], i) if (task, metric) in known else Cell("") for metric in metrics]
        for i, name in enumerate(names)
        for task in tasks
    ]
    title = f"{tasks[0]}: by class" if not several and tasks[0] else "by class"
    return Grid(title, ["class", *several, *metrics], [*rows], 1 + len(several), 1 + len(several))


def _cell(one: ArrayValues, i: int) -> Cell:
    return Cell(_count(one.value[i]) if one.metric == "positives" else show(float(one.value[i])))


def each_class(collection: MetricCollection) -> list[Grid]:
    """Return a table by class of what the states of a collection know of each, whatever was asked; worst confusions."""
    made: list[Grid] = []
    tables: dict[tuple[str, ...], list[ArrayValues]] = {}
    for full, metric, (state, *_), binding, _ in contents_of(collection):
        names = names_of(metric, state, binding.column("y_true"))
        task = full.rpartition("/")[0]
        for one in _asked(task, state, names):
            columns = tables.setdefault(tuple(names), [])
            if (one.task, one.metric) not in [(c.task, c.metric) for c in columns]:
                columns.append(one)
        if isinstance(state, PairCounts) and len(names) > MOST:
            title = f"{task}: confusions" if task else "confusions"
            worst = _worst(
                title, ArrayValues(task, "confusions", names, ConfusionMatrix(num_classes=2).reading(state).value)
            )
            made += [worst] if worst.title not in [grid.title for grid in made] else []
    return [*(_by_class(list(names), columns) for names, columns in tables.items()), *made]


def _asked(task: str, state: Any, names: list[str]) -> Iterator[ArrayValues]:
    """Yield what a state of several classes or labels knows of each."""
    metrics: list[Several[Any]] = []
    which: Any = {"num_classes": max(2, len(names)), "average": None}
    if isinstance(state, (PairCounts, LabelDecisions)):
        each: list[Any] = list(state.each())
        yield ArrayValues(task, "positives", names, np.array([float(part.support()) for part in each]) / _unit(state))
        if isinstance(state, LabelDecisions):
            which = {"threshold": state.thresholds[0], "num_labels": len(names), "average": None}
        metrics = [Precision(**which), Recall(**which), F1(**which)]
    elif isinstance(state, LabelScores):
        metrics = [AUC(**which, scale=state.scale), AveragePrecision(**which, scale=state.scale)]
    for metric in metrics if names else []:
        yield ArrayValues(task, metric.about.tag, names, metric.reading(state).value)


def _unit(state: Any) -> int:
    return state.unit if isinstance(state, PairCounts) else 1


def plain_name(metric: str) -> str:
    """The name of a metric without the words for "of each class"."""
    return metric.removesuffix(":average=none").removesuffix("_each")


def confusions(found: ArrayValues) -> Iterator[Grid]:
    """Yield a table of a confusion matrix, or of each label's; of many classes the worst confusions."""
    title = f"{found.task}: {found.metric}" if found.task else found.metric
    if found.value.ndim == 3:
        for name, matrix in zip(found.names, found.value, strict=True):
            yield _matrix(f"{title} of {name}", ["0", "1"], matrix)
    elif len(found.names) <= MOST:
        yield _matrix(title, found.names, found.value)
    else:
        yield _worst(title, found)


def _matrix(title: str, names: list[str], matrix: Any) -> Grid:
    rows = [[Cell(n), *(Cell(_count(v)) for v in row)] for n, row in zip(names, matrix, strict=True)]
    return Grid(f"{title}: true class down, predicted across", ["", *names], [*rows])


def _table(found: ArrayValues) -> Grid:
    """A matrix of its own kind: of pairs, of correlations."""
    down, across = found.value.shape
    names = found.names if len(found.names) == down == across else [*map(str, range(max(down, across)))]
    rows = [[Cell(n), *(Cell(_count(v)) for v in row)] for n, row in zip(names, found.value, strict=False)]
    title = f"{found.task}: {found.metric}" if found.task else found.metric
    return Grid(title, ["", *names[:across]], [*rows])


def _worst(title: str, found: ArrayValues) -> Grid:
    cells = found.value.astype(float)
    np.fill_diagonal(cells, 0)
    order = np.argsort(-cells, axis=None, kind="stable")[:WORST]
    pairs = [divmod(int(i), len(found.names)) for i in order if cells.flat[i] > 0]
    rows = [[Cell(found.names[a]), Cell(found.names[b]), Cell(_count(found.value[a, b]))] for a, b in pairs]
    remark = f"the {len(rows)} most frequent confusions of {len(found.names):,} classes; --format json has all"
    return Grid(f"{title}: true class taken for another", ["true", "predicted", "rows"], [*rows], 2, 2, [remark])


def _count(value: Any) -> str:
    return f"{int(value):,}" if float(value).is_integer() else show(float(value))
