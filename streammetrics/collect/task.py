"""Task: metrics, and the columns that they read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..batch.column_binding import PLAIN, Binding
from ..batch.kinds import Label
from .accumulator import definition_of
from .definition import Definition
from .metric import METRICS
from .metric_like import MetricLike

__all__ = ["Metrics", "Task", "flatten"]

Metrics = Any
"""What a collection or a task accepts: a metric, a collection, a wrapper, a task, or lists and dicts of these."""


class Task:
    """Metrics and the columns that they read, with an optional row filter and a correction for down-sampled negatives.

    Parameters
    ----------
    metrics : metric, list or dict of metrics
        The metrics to compute; a dict assigns names.
    y_true, y_score, y_pred, value, sample_weight, group, query : str, optional
        The columns to read for these roles; by default, the columns of the same names. A tuple or list of names stands
        for a multi-column key (`group` and `query`) or a matrix (`y_true`, `y_score` and `y_pred`).
    where : str, optional
        A 0/1 column: rows with 0 are left out, and their number is reported. For example, ``where="click"`` restricts a
        conversion rate to clicked rows.
    labels : (negative, positive), optional
        The values of the two labels in `y_true` and `y_pred`, such as (-1, 1) or ("no", "yes"). If set, columns of
        soft labels must contain these two values rather than numbers in [0, 1].
    pos_label : optional
        The value of positive labels; all other values are negative.
    negative_rate : float, optional
        The fraction of negatives kept in a down-sampled log, in (0, 1].
    corrects : {"score", "rows", "both"}, optional
        How to undo the down-sampling, with r = `negative_rate`. "score" replaces each score p by p / (p + (1 - p) / r),
        for a model that was trained on down-sampled rows. Metrics that depend only on the order of scores (AUC, curves,
        GroupAUC) use the scores unchanged and correct their thresholds. "rows" gives negatives the weight 1 / r, for a
        log that was down-sampled. "both" does both.
    scale : {"probability", "logit"}
        The scale of the scores, which determines how they are corrected. If a metric has a setting `scale`, both must
        have the same value.
    **others : str
        The columns for other roles of the metrics, such as `document` of ``NDCG(ties="document")``. A role that no
        metric reads raises TypeError.

    Examples
    --------
    >>> import streammetrics as sm
    >>> task = sm.Task([sm.AUC(), sm.NormalizedEntropy()], y_true="convert", y_score="pcvr", where="click")
    >>> sm.MetricCollection({"cvr": task}).names
    ['cvr/auc', 'cvr/normalized_entropy']
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        y_true: str | tuple[str, ...] | list[str] | None = None,
        y_score: str | tuple[str, ...] | list[str] | None = None,
        y_pred: str | tuple[str, ...] | list[str] | None = None,
        value: str | tuple[str, ...] | list[str] | None = None,
        sample_weight: str | None = None,
        group: str | tuple[str, ...] | list[str] | None = None,
        query: str | tuple[str, ...] | list[str] | None = None,
        where: str | None = None,
        labels: tuple[Any, Any] | None = None,
        pos_label: Any = None,
        negative_rate: float | None = None,
        corrects: str | None = None,
        scale: str = "probability",
        **others: str | tuple[str, ...] | list[str],
    ) -> None:
        roles: dict[str, Any] = {"y_true": y_true, "y_score": y_score, "y_pred": y_pred, **others}
        roles |= {"value": value, "sample_weight": sample_weight, "group": group, "query": query}
        self.others, self.metrics = tuple(others), metrics
        self.binding = Binding(
            columns=tuple(
                sorted((r, tuple(c) if isinstance(c, list) else c) for r, c in roles.items() if c is not None)
            ),
            where=where,
            labels=labels,
            pos_label=pos_label,
            negative_rate=negative_rate,
            corrects=corrects,
            scale=scale,
        )
        # `flatten` raises an error if `others` contains a role that no metric reads. The roles that are parameters,
        # such as `group`, need no check, because metrics may ignore them.
        if others:
            list(flatten(self))

    def __getattr__(self, name: str) -> Any:
        if name in ("update", "compute", "merge"):
            raise AttributeError(
                f"a Task only binds metrics to columns and has no {name}(); use sm.MetricCollection(task).{name}(...)"
            )
        raise AttributeError(f"'Task' object has no attribute {name!r}")

    def __repr__(self) -> str:
        settings = [f"{k}={v!r}" for k, v in (dict(self.binding.columns) | self.binding.options).items()]
        return f"Task({', '.join([repr(self.metrics), *settings])})"


def containable_definition(metric: MetricLike, binding: Binding) -> Definition:
    """Return the definition of a metric that will become a member of a collection.

    Raise an error if a collection cannot contain the metric, or if the options of the task do not fit the metric.
    """
    definition: Definition = definition_of(metric)
    if not (definition.adds and definition.counts):
        raise TypeError(
            f"MetricCollection: expected a metric, a collection or slices, found an object of class {definition.type_name}"
        )
    for state, *_ in definition.reads if binding.corrects is not None else ():
        labels = [isinstance(need.kind, Label) for need in state.needs() if need.role == "y_true"]
        if not all(labels):
            raise ValueError(f"{metric!r}: negative_rate= requires a metric that reads one 0/1 label in each row")
        if not labels and binding.corrects != "score":
            raise ValueError(
                f"{metric!r} reads no label, but corrects={binding.corrects!r} weights rows by their label; put the "
                f'metric into a Task of its own, or pass corrects="score"'
            )
    return definition


def flatten(metrics: Any, binding: Binding = PLAIN, prefix: str = "") -> Iterator[tuple[str, Definition, Binding]]:
    """Yield (full name, definition, binding) for each metric in nested lists, dicts and tasks.

    `binding` contains the columns of the surrounding task, and `prefix` is the start of the full names.
    """
    if isinstance(metrics, MetricLike):
        definition = containable_definition(metrics, binding)
        yield prefix + definition.name, definition, binding
    elif isinstance(metrics, Task):
        if binding != PLAIN:
            raise TypeError(f"{metrics!r} is inside another task; name its columns in only one of these tasks")
        definitions = list(flatten(metrics.metrics, metrics.binding, prefix))
        _check_roles(metrics.others, definitions)
        yield from definitions
    elif isinstance(metrics, Mapping):
        for key, value in metrics.items():
            if isinstance(value, MetricLike):
                yield f"{prefix}{key}", containable_definition(value, binding), binding
            else:
                yield from flatten(value, binding, f"{prefix}{key}/")
    elif isinstance(metrics, (list, tuple)):
        for value in metrics:
            yield from flatten(value, binding, prefix)
    else:
        hint = f"; write {metrics.__name__}(), not {metrics.__name__}" if isinstance(metrics, type) else ""
        if isinstance(metrics, str) and metrics in METRICS:
            hint = f"; write sm.{METRICS[metrics].__name__}()"
        raise TypeError(f"expected metrics, lists, dicts or tasks, found {metrics!r}{hint}")


def resolve_on_invalid(on_invalid: str | None, definitions: Iterable[Definition]) -> str:
    """Return `on_invalid`; if it is None, return "drop" if all definitions have "drop", otherwise "raise"."""
    if on_invalid is None:
        return "drop" if all(one.on_invalid == "drop" for one in definitions) else "raise"
    if on_invalid not in ("raise", "drop"):
        raise ValueError(f'on_invalid must be "raise" or "drop", not {on_invalid!r}')
    return on_invalid


def _check_roles(roles: Iterable[str], definitions: list[tuple[str, Definition, Binding]]) -> None:
    """Raise TypeError if a task binds a column to a role that none of its metrics reads."""
    known = dict.fromkeys(
        n.role for _, definition, _ in definitions for state, *_ in definition.reads for n in state.needs()
    )
    for role in roles:
        if role not in known:
            raise TypeError(f"Task: no metric reads {role!r}; the metrics read {', '.join(known)}")
