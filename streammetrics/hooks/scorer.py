"""Update metrics with labels and predictions. The user specifies the scale of the predictions, such as "logit"."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import Classes, DiscoveredClasses
from ..batch.convert import as_array, squeeze_column
from ..batch.kinds import Label, Matrix, Score
from ..collect.accumulator import definition_of
from ..collect.collection import MetricCollection
from ..collect.metric_like import MetricLike, answer_of, columns_of, empty_copy
from ..numerics import elementary
from ..reading.about import best_of
from .compilation import compile_kernels

__all__ = ["LINKS", "Scorer", "find_directions", "read_scores"]

Floats = NDArray[np.float64]

LINKS = ("probability", "logit", "log", "identity")


def read_scores(metrics: MetricLike) -> dict[str, float]:
    """Return the metric values that are single numbers, keyed by name; undefined values are NaN."""
    found = answer_of(metrics).value
    named = found if isinstance(found, dict) else {metrics.name: found}
    return {name: value for name, value in named.items() if isinstance(value, float)}


class Scorer:
    """An adapter that updates metrics with labels, and with predictions converted to the scale that the metrics read.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        The metrics to update in place.
    link : {"probability", "logit", "log", "identity"}
        The scale of predictions. Logits are converted to probabilities (with several classes by softmax), unless the
        metrics read logits (`scale="logit"`); logarithms are exponentiated; "identity" leaves predictions unchanged.
    gives : iterable of str, or None
        The names of the columns that the caller can pass to `update` besides labels, predictions and weights; None
        stands for every column that the metrics read.

    Raises
    ------
    TypeError
        `metrics` is not a metric or collection of this library.
    ValueError
        The link is unknown or does not fit the metrics, or the metrics read columns that are not passed.
    """

    def __init__(self, metrics: MetricLike, link: str, gives: Iterable[str] | None = ()) -> None:
        if not isinstance(metrics, MetricLike):
            hint = (
                "; write AUC(), not AUC" if isinstance(metrics, type) else "; put several metrics in a MetricCollection"
            )
            raise TypeError(f"expected a metric or a MetricCollection, found {metrics!r}{hint}")
        if link not in LINKS:
            raise ValueError(f"link=, the scale of the predictions, must be one of {', '.join(LINKS)}, not {link!r}")
        self.metrics, self.link = metrics, link
        columns = columns_of(metrics)
        self._predictions = "y_score" if "y_score" in columns else "y_pred"
        self._check_columns(columns if gives is None else gives)
        scales = self._find_scales()
        self._squash = link == "logit" and scales != {"logit"}
        self._of_labels, self._single = self._find_shape()

    def update(self, y_true: Any, predictions: Any, sample_weight: Any = None, **columns: Any) -> None:
        """Update the metrics with a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,), (n, 1) or (n, labels)
            The labels.
        predictions : array-like of shape (n,), (n, 1) or (n, classes)
            The predictions on the scale of `link`. For metrics of one binary label, two columns are interpreted as the
            scores of the negative and the positive class.
        sample_weight : array-like of shape (n,), optional
            The weights of the rows.
        **columns : array-like of shape (n,)
            The other columns that the metrics read, such as `query`.

        Raises
        ------
        InvalidInputError
            A value is invalid; the metrics have not changed.
        """
        if getattr(y_true, "ndim", 1) == 2 and y_true.shape[1] == 1:
            y_true = squeeze_column(as_array(y_true, "y_true", 2))
        if self._reads_classes("y_true"):
            y_true = _convert_classes(y_true, "y_true")
        values = {"y_true": y_true, self._predictions: self._convert_predictions(predictions), **columns}
        self.metrics.update(**values, sample_weight=sample_weight)

    def compile_kernels(self) -> None:
        """Compile the kernels of the metrics for predictions of the dtype that `update` passes to them."""
        compile_kernels(self.metrics, np.float64 if self._squash or self.link == "log" else np.float32)

    def values(self) -> dict[str, float]:
        """Return the metric values that are single numbers, keyed by name; undefined values are NaN."""
        return read_scores(self.metrics)

    @cached_property
    def names(self) -> list[str]:
        """The names in the result of `values`. They depend only on the settings of the metrics, not on the rows."""
        return list(read_scores(empty_copy(self.metrics)))

    def _check_columns(self, gives: Iterable[str]) -> None:
        columns = columns_of(self.metrics)
        required = {name for name, is_required in columns.items() if is_required}
        available = {"y_true", self._predictions, *gives}
        if required - available:
            raise ValueError(
                f"{self.metrics!r} reads {', '.join(sorted(required - available))}, but receives only "
                f"{', '.join(sorted(available))} and sample_weight; choose another metric, or pass columns= if this "
                f"hook has that parameter"
            )
        if not {"y_true", self._predictions} <= set(columns):
            raise ValueError(
                f"{self.metrics!r} does not read labels and predictions, so it cannot score a model; choose another metric"
            )

    def _find_kinds(self, role: str) -> list[Any]:
        return [
            need.kind for state, *_ in definition_of(self.metrics).reads for need in state.needs() if need.role == role
        ]

    def _reads_classes(self, role: str) -> bool:
        return any(isinstance(kind, (Classes, DiscoveredClasses)) for kind in self._find_kinds(role))

    def _find_scales(self) -> set[str]:
        """Return the scales on which the metrics read predictions; raise ValueError if the link does not fit them."""
        inner = [k.kind if isinstance(k, Matrix) else k for k in self._find_kinds(self._predictions)]
        scales = {k.scale for k in inner if isinstance(k, Score)}
        if "logit" in scales and self.link not in ("logit", "identity"):
            raise ValueError(
                f'{self.metrics!r} reads logits (scale="logit"), but link={self.link!r} does not pass logits; '
                'pass link="logit" or "identity"'
            )
        if "logit" in scales and len(scales) > 1 and self.link == "logit":
            raise ValueError(
                f'{self.metrics!r}: some metrics read logits (scale="logit") and some do not, but a model returns '
                'one column of predictions; set the same scale= in all metrics, or link="identity" to pass logits to all'
            )
        if self.link != "identity" and not scales:
            raise ValueError(
                f'{self.metrics!r} reads decisions, not scores; if the model returns decisions, pass link="identity"; '
                "otherwise set threshold= or the number of classes in the metric"
            )
        return scales

    def _find_shape(self) -> tuple[bool, bool]:
        """Return whether the task is multi-label, and whether each row has one prediction rather than one per class."""
        of_labels = any(
            isinstance(k, Matrix) and isinstance(k.kind, (Label, Score)) for k in self._find_kinds("y_true")
        )
        return of_labels, not any(isinstance(k, Matrix) for k in self._find_kinds(self._predictions))

    def _convert_predictions(self, predictions: Any) -> Any:
        """Return predictions on the scale that the metrics read."""
        ndim = getattr(predictions, "ndim", 1)
        pair = self._single and ndim == 2 and predictions.shape[1] == 2 and self.link in ("probability", "logit")
        if not pair and not self._squash and self.link != "log":
            return (
                _convert_classes(predictions, self._predictions)
                if self._reads_classes(self._predictions)
                else predictions
            )
        scores = as_array(predictions, self._predictions, ndim)
        if pair and self.link == "probability":
            return scores[:, 1]
        wide = np.asarray(scores, np.float64)
        if self.link == "log":
            return elementary.exp(wide)
        if pair:
            wide = wide[:, 1] - wide[:, 0]
        if not self._squash:
            return wide
        return elementary.sigmoid(wide) if self._of_labels or self._single else _softmax(wide)


def find_directions(metrics: MetricLike, maximize: bool | None = None) -> dict[str, bool | None]:
    """Return whether higher values are better, by metric name; `maximize` applies if a metric does not define this."""
    named = {n: metrics[n] for n in metrics} if isinstance(metrics, MetricCollection) else {metrics.name: metrics}
    best = {name: best_of(thing) for name, thing in named.items()}
    return {name: which == "high" if which in ("high", "low") else maximize for name, which in best.items()}


def _convert_classes(classes: Any, name: str) -> Any:
    """Convert class labels such as 2.0, which some frameworks pass, to integers; return other arrays unchanged."""
    if getattr(classes, "ndim", 1) != 1:
        return classes
    values = as_array(classes, name)
    if values.dtype.kind != "f":
        return values
    with np.errstate(invalid="ignore"):
        integers = values.astype(np.int64)
    return integers if (integers == values).all() else values


def _softmax(logits: Floats) -> Floats:
    """Return the class probabilities of each row.

    `np.add.accumulate` adds in the same order on every machine, unlike `np.sum`, so the result is bit-for-bit
    reproducible.
    """
    powers = elementary.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(powers / np.add.accumulate(powers, axis=1)[:, -1:])
