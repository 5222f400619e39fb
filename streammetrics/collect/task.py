"""Tasks: metrics bound to columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..batch.column_binding import PLAIN, Binding
from ..batch.kinds import Label
from .accumulator import definition_of
from .definition import Definition
from .metric_like import MetricLike

__all__ = ["Metrics", "Task", "flatten"]

Metrics = Any
"""A metric, a collection, a wrapper, a task, or lists and dicts of these."""


class Task:
    """Metrics bound to columns, rows chosen by `where`, down-sampling undone.

    Parameters
    ----------
    metrics : metric, list or dict of metrics
        What to compute; a dict names them.
    y_true, y_score, y_pred, value, sample_weight, group, query : str, optional
        The columns that play these roles; by default those of the same name. A tuple of names is a key of several
        columns for `group` and `query`, and a matrix for `y_true`, `y_score` and `y_pred`.
    where : str, optional
        A 0/1 column: rows with 0 are left out, and counted. Conversions after clicks: ``where="click"``.
    labels : (negative, positive), optional
        What the two labels are called, such as (-1, 1) or ("no", "yes"); in `y_pred`, too. Soft labels are then these two.
    pos_label : optional
        What a positive is called; everything else that is there is a negative.
    negative_rate : float, optional
        The share of negatives kept in a down-sampled log, in (0, 1].
    corrects : {"score", "rows", "both"}, optional
        What to bring back to the full log. `score`: p' = p / (p + (1 - p) / r), for a model trained on down-sampled rows.
        Metrics of the order of scores (AUC, curves, GroupAUC) count scores as given; their thresholds are corrected.
        `rows`: negatives weigh 1 / r, for a log that was down-sampled.
    scale : {"probability", "logit"}
        What the scores are, for the correction; metrics have their own `scale`.
    **others : str
        The columns of other roles that the metrics read, such as `document` of ``NDCG(ties="document")``.

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
        y_true: str | tuple[str, ...] | None = None,
        y_score: str | tuple[str, ...] | None = None,
        y_pred: str | tuple[str, ...] | None = None,
        value: str | tuple[str, ...] | None = None,
        sample_weight: str | None = None,
        group: str | tuple[str, ...] | None = None,
        query: str | tuple[str, ...] | None = None,
        where: str | None = None,
        labels: tuple[Any, Any] | None = None,
        pos_label: Any = None,
        negative_rate: float | None = None,
        corrects: str | None = None,
        scale: str = "probability",
        **others: str | tuple[str, ...],
    ) -> None:
        roles: dict[str, Any] = {"y_true": y_true, "y_score": y_score, "y_pred": y_pred, **others}
        roles |= {"value": value, "sample_weight": sample_weight, "group": group, "query": query}
        self.others, self.metrics = tuple(others), metrics
        self.binding = Binding(
            columns=tuple(sorted((r, c) for r, c in roles.items() if c is not None)),
            where=where,
            labels=labels,
            pos_label=pos_label,
            negative_rate=negative_rate,
            corrects=corrects,
            scale=scale,
        )

    def __repr__(self) -> str:
        given = [f"{k}={v!r}" for k, v in (dict(self.binding.columns) | self.binding.given).items()]
        return f"Task({', '.join([repr(self.metrics), *given])})"


def fitting(metric: MetricLike, binding: Binding) -> Definition:
    """Return the definition of a metric; raise where a collection cannot contain it, or the binding does not fit it."""
    definition: Definition = definition_of(metric)
    if not (definition.adds and definition.counts):
        raise TypeError(f"a collection holds metrics, collections and slices, not a {definition.type_name}")
    for state, *_ in definition.reads if binding.corrects is not None else ():
        labels = [isinstance(need.kind, Label) for need in state.needs() if need.role == "y_true"]
        if not all(labels):
            raise ValueError(f"{metric!r}: negative_rate= undoes the sampling of rows of one 0/1 label")
        if not labels and binding.corrects != "score":
            raise ValueError(
                f"{metric!r} reads no label, by which corrects={binding.corrects!r} weighs rows; put it into a task of "
                f'its own, or pass corrects="score"'
            )
    return definition


def flatten(metrics: Any, binding: Binding = PLAIN, prefix: str = "") -> Iterator[tuple[str, Definition, Binding]]:
    """Yield each definition in a nest of lists, dicts and tasks, with its full name and its binding."""
    if isinstance(metrics, MetricLike):
        definition = fitting(metrics, binding)
        yield prefix + definition.name, definition, binding
    elif isinstance(metrics, Task):
        if binding != PLAIN:
            raise TypeError(f"a task inside a task: say in one how {metrics!r} is bound to columns")
        found = list(flatten(metrics.metrics, metrics.binding, prefix))
        _check_roles(metrics.others, found)
        yield from found
    elif isinstance(metrics, Mapping):
        for key, value in metrics.items():
            if isinstance(value, MetricLike):
                yield f"{prefix}{key}", fitting(value, binding), binding
            else:
                yield from flatten(value, binding, f"{prefix}{key}/")
    elif isinstance(metrics, (list, tuple)):
        for value in metrics:
            yield from flatten(value, binding, prefix)
    else:
        hint = "; write AUC(), not AUC" if isinstance(metrics, type) else ""
        raise TypeError(f"expected metrics, lists, dicts or tasks, got {metrics!r}{hint}")


def agreed(on_invalid: str | None, definitions: Iterable[Definition]) -> str:
    """Return the rule for bad rows: the one that is passed, else "drop" if all definitions say so; check it."""
    if on_invalid is None:
        return "drop" if all(one.on_invalid == "drop" for one in definitions) else "raise"
    if on_invalid not in ("raise", "drop"):
        raise ValueError(f'on_invalid must be "raise" or "drop", not {on_invalid!r}')
    return on_invalid


def _check_roles(roles: Iterable[str], found: list[tuple[str, Definition, Binding]]) -> None:
    """Raise for a role that no metric of a task reads."""
    known = dict.fromkeys(n.role for _, definition, _ in found for state, *_ in definition.reads for n in state.needs())
    for role in roles:
        if role not in known:
            raise TypeError(f"Task: no metric reads {role!r}; they read {', '.join(known)}")
