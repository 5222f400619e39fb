"""Build text tables of metrics by class or label, and of confusion matrices."""

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
from ..reading.table import format_value
from ..statistics.by_label import ByLabel, LabelDecisions
from ..statistics.by_label_scores import LabelScores
from ..statistics.classes import PairCounts
from .records import name_task_column
from .task_charts import MAX_CLASSES
from .text_table import Cell, Grid

__all__ = [
    "ArrayValues",
    "build_breakdowns",
    "build_class_grids",
    "build_confusion_grids",
    "collect_array_values",
    "find_class_names",
    "strip_average",
]

WORST = 20  # the number of most frequent confusions to show if the whole matrix is too large


class ArrayValues(NamedTuple):
    """The values of a metric for each class or label, as an array, with the names of the classes.

    Parameters
    ----------
    task, metric : str
        The names of the task and the metric.
    names : list of str
        The classes or labels.
    value : ndarray
        An array with one number for each name, a single matrix, or an array with one matrix for each name.
    confusions : bool
        Whether `value` is a confusion matrix, or an array of confusion matrices.
    """

    task: str
    metric: str
    names: list[str]
    value: np.ndarray[Any, Any]
    confusions: bool = False


def collect_array_values(collection: MetricCollection) -> list[ArrayValues]:
    """Return all array-valued metrics of a collection, such as recall for each class or a confusion matrix."""
    arrays = []
    for full, metric, (state, *_), binding, _ in contents_of(collection):
        value = metric.reading(state).value
        if isinstance(value, np.ndarray):
            task, _, name = full.rpartition("/")
            labels = find_class_names(metric, state, binding.column("y_true"))
            labels = labels or list(map(str, range(len(value))))
            arrays.append(ArrayValues(task, name, labels, value, isinstance(metric, ConfusionMatrix)))
    return arrays


def find_class_names(metric: Metric[Any, Any], state: Any, columns: Any) -> list[str]:
    """Return the names of the classes or labels of a metric.

    These are the class values of a multiclass state, the label columns of a multilabel one, or numbers such as "0" and
    "1". The list is empty if the metric has no classes. `columns` is the name of the column of `y_true`, or a tuple of
    the names of label columns.
    """
    if isinstance(state, PairCounts):
        return list(map(str, state.class_names()))
    if isinstance(columns, tuple):
        # Leave out the prefix that all columns have in common, such as "label_" in label_a and label_b.
        shared = next((i for i, letters in enumerate(zip(*columns, strict=False)) if len(set(letters)) > 1), 0)
        return [name[shared:] or name for name in columns]
    if isinstance(state, ByLabel):
        return list(map(str, state.labels or range(state.width)))
    return ["0", "1"] if isinstance(metric, ConfusionMatrix) else []


def build_breakdowns(collection: MetricCollection) -> list[Grid]:
    """Return a table of metrics by class for each set of classes, followed by the confusion matrices."""
    matrices: list[Grid] = []
    tables: dict[tuple[str, ...], list[ArrayValues]] = {}
    for values in collect_array_values(collection):
        if values.value.ndim == 1:
            tables.setdefault(tuple(values.names), []).append(values)
        elif values.confusions:
            matrices += build_confusion_grids(values)
        elif values.value.ndim == 2:
            matrices.append(_build_array_grid(values))
    return [*_build_class_grids(collection, tables), *matrices]


def _build_class_grids(
    collection: MetricCollection, tables: dict[tuple[str, ...], list[ArrayValues]]
) -> Iterator[Grid]:
    """Yield a table of metrics by class for each set of classes."""
    task_head = name_task_column(collection)
    for names, columns in tables.items():
        yield _build_class_grid(list(names), columns, task_head)


def _build_class_grid(names: list[str], columns: list[ArrayValues], task_head: str) -> Grid:
    """Return a table of classes (rows) by metrics (columns). Each class has one row for each task."""
    tasks = list(dict.fromkeys(one.task for one in columns))
    known = {(one.task, strip_average(one.metric)): one for one in columns}
    metrics = list(dict.fromkeys(metric for _, metric in known))
    several = [task_head] if len(tasks) > 1 else []
    rows = [
        [Cell(name if task == tasks[0] else ""), *([Cell(task)] if several else [])]
        + [_build_cell(known[task, metric], i) if (task, metric) in known else Cell("") for metric in metrics]
        for i, name in enumerate(names)
        for task in tasks
    ]
    title = f"{tasks[0]}: by class" if not several and tasks[0] else "by class"
    return Grid(title, ["class", *several, *metrics], [*rows], 1 + len(several), 1 + len(several))


def _build_cell(one: ArrayValues, i: int) -> Cell:
    return Cell(_format_count(one.value[i]) if one.metric == "positives" else format_value(float(one.value[i])))


def build_class_grids(collection: MetricCollection) -> list[Grid]:
    """Return tables of metrics by class, computed from all states that count each class separately.

    If there are too many classes for a confusion matrix, the list also contains a table of the most frequent
    confusions.
    """
    confusion_grids: list[Grid] = []
    tables: dict[tuple[str, ...], list[ArrayValues]] = {}
    for full, metric, (state, *_), binding, _ in contents_of(collection):
        names = find_class_names(metric, state, binding.column("y_true"))
        task = full.rpartition("/")[0]
        for one in _read_class_values(task, state, names):
            columns = tables.setdefault(tuple(names), [])
            if (one.task, one.metric) not in [(c.task, c.metric) for c in columns]:
                columns.append(one)
        if isinstance(state, PairCounts) and len(names) > MAX_CLASSES:
            title = f"{task}: confusions" if task else "confusions"
            worst = _build_worst_grid(
                title, ArrayValues(task, "confusions", names, ConfusionMatrix(num_classes=2).reading(state).value)
            )
            confusion_grids += [worst] if worst.title not in [grid.title for grid in confusion_grids] else []
    return [*_build_class_grids(collection, tables), *confusion_grids]


def _read_class_values(task: str, state: Any, names: list[str]) -> Iterator[ArrayValues]:
    """Yield the metrics that can be computed from a state, each with one value for every class or label.

    A state with counts of decisions gives the number of positives, precision, recall and F1. A state with scores gives
    AUC and average precision.
    """
    metrics: list[Several[Any]] = []
    which: Any = {"num_classes": max(2, len(names)), "average": None}
    if isinstance(state, (PairCounts, LabelDecisions)):
        each: list[Any] = list(state.split_classes())
        yield ArrayValues(
            task, "positives", names, np.array([float(part.support()) for part in each]) / _read_weight_unit(state)
        )
        if isinstance(state, LabelDecisions):
            which = {"threshold": state.thresholds[0], "num_labels": len(names), "average": None}
        metrics = [Precision(**which), Recall(**which), F1(**which)]
    elif isinstance(state, LabelScores):
        metrics = [AUC(**which, scale=state.scale), AveragePrecision(**which, scale=state.scale)]
    for metric in metrics if names else []:
        yield ArrayValues(task, metric.about.tag, names, metric.reading(state).value)


def _read_weight_unit(state: Any) -> int:
    return state.unit if isinstance(state, PairCounts) else 1


def strip_average(metric: str) -> str:
    """Return the name of a metric without the suffix for per-class values: "recall" for "recall:average=none"."""
    return metric.removesuffix(":average=none").removesuffix("_each")


def build_confusion_grids(values: ArrayValues) -> Iterator[Grid]:
    """Yield a table for each confusion matrix. With many classes, the table lists only the most frequent confusions."""
    title = f"{values.task}: {values.metric}" if values.task else values.metric
    if values.value.ndim == 3:
        for name, matrix in zip(values.names, values.value, strict=True):
            yield _build_matrix_grid(f"{title} of {name}", ["0", "1"], matrix)
    elif len(values.names) <= MAX_CLASSES:
        yield _build_matrix_grid(title, values.names, values.value)
    else:
        yield _build_worst_grid(title, values)


def _build_matrix_grid(title: str, names: list[str], matrix: Any) -> Grid:
    rows = [[Cell(n), *(Cell(_format_count(v)) for v in row)] for n, row in zip(names, matrix, strict=True)]
    return Grid(f"{title}: true class down, predicted across", ["", *names], [*rows])


def _build_array_grid(values: ArrayValues) -> Grid:
    """Return a table of an array-valued metric that is not a confusion matrix, such as correlations."""
    down, across = values.value.shape
    names = values.names if len(values.names) == down == across else [*map(str, range(max(down, across)))]
    rows = [[Cell(n), *(Cell(_format_count(v)) for v in row)] for n, row in zip(names, values.value, strict=False)]
    title = f"{values.task}: {values.metric}" if values.task else values.metric
    return Grid(title, ["", *names[:across]], [*rows])


def _build_worst_grid(title: str, values: ArrayValues) -> Grid:
    cells = values.value.astype(float)
    np.fill_diagonal(cells, 0)
    order = np.argsort(-cells, axis=None, kind="stable")[:WORST]
    pairs = [divmod(int(i), len(values.names)) for i in order if cells.flat[i] > 0]
    rows = [[Cell(values.names[a]), Cell(values.names[b]), Cell(_format_count(values.value[a, b]))] for a, b in pairs]
    remark = f"the {len(rows)} most frequent confusions of {len(values.names):,} classes; --format json lists all"
    return Grid(f"{title}: true class mistaken for another", ["true", "predicted", "rows"], [*rows], 2, 2, [remark])


def _format_count(value: Any) -> str:
    return f"{int(value):,}" if float(value).is_integer() else format_value(float(value))
