"""Metrics fed by what a model hands over: labels, and predictions on a scale that is said, never guessed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import Classes, FoundClasses
from ..batch.convert import as_array, one_column
from ..batch.kinds import Label, Matrix, Score
from ..collect.accumulator import definition_of
from ..collect.collection import MetricCollection
from ..collect.metric_like import MetricLike, answer_of, columns_of, empty_copy
from ..numerics import elementary
from ..reading.about import best_of

__all__ = ["LINKS", "Scorer", "directions", "scores"]

Floats = NDArray[np.float64]

LINKS = ("probability", "logit", "log", "identity")


def scores(metrics: MetricLike) -> dict[str, float]:
    """Return every value that is one number, as the metrics name it; NaN where it is undefined. Arrays are left out."""
    found = answer_of(metrics).value
    named = found if isinstance(found, dict) else {metrics.name: found}
    return {name: value for name, value in named.items() if isinstance(value, float)}


class Scorer:
    """Metrics, and how they are fed by a model that knows nothing of their columns.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        What is counted, in this very object.
    link : {"probability", "logit", "log", "identity"}
        What predictions are. `logit` is turned into probabilities (of several classes by softmax), unless the metrics
        read logits (`scale="logit"`); `log` into what it is the logarithm of; `identity` is left alone.
    gives : iterable of str, or None
        The columns that the model provides besides labels, predictions and weights; None for all that the metrics read.

    Raises
    ------
    TypeError
        These are no metrics of ours.
    ValueError
        The link is unknown or does not fit the metrics, or they read columns that nobody hands over.
    """

    def __init__(self, metrics: MetricLike, link: str, gives: Iterable[str] | None = ()) -> None:
        if not isinstance(metrics, MetricLike):
            hint = "; write AUC(), not AUC" if isinstance(metrics, type) else "; put several in a MetricCollection"
            raise TypeError(f"expected a metric or a MetricCollection, got {metrics!r}{hint}")
        if link not in LINKS:
            raise ValueError(f"link= says what predictions are, one of {', '.join(LINKS)}; got {link!r}")
        self.metrics, self.link = metrics, link
        columns = columns_of(metrics)
        self._predictions = "y_score" if "y_score" in columns else "y_pred"
        self._check_columns(columns if gives is None else gives)
        scales = self._scales()
        self._squash = link == "logit" and scales != {"logit"}
        self._of_labels, self._single = self._shape()

    def update(self, y_true: Any, predictions: Any, sample_weight: Any = None, **columns: Any) -> None:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,), (n, 1) or (n, labels)
            Labels.
        predictions : array-like of shape (n,), (n, 1) or (n, classes)
            On the scale of `link`. Two columns of a metric of one 0/1 label are its negatives and positives.
        sample_weight : array-like of shape (n,), optional
            Weights.
        **columns : array-like of shape (n,)
            Further columns.

        Raises
        ------
        InvalidInputError
            A value is bad; nothing was counted.
        """
        if getattr(y_true, "ndim", 1) == 2 and y_true.shape[1] == 1:
            y_true = one_column(as_array(y_true, "y_true", 2))
        if self._reads_classes("y_true"):
            y_true = _whole(y_true, "y_true")
        given = {"y_true": y_true, self._predictions: self._read(predictions), **columns}
        self.metrics.update(**given, sample_weight=sample_weight)

    def values(self) -> dict[str, float]:
        """Return the value of every metric that is a number, by name; NaN where it is undefined."""
        return scores(self.metrics)

    @cached_property
    def names(self) -> list[str]:
        """The names of the values, which depend on settings alone."""
        return list(scores(empty_copy(self.metrics)))

    def _check_columns(self, gives: Iterable[str]) -> None:
        columns = columns_of(self.metrics)
        must = {name for name, needed in columns.items() if needed}
        handed = {"y_true", self._predictions, *gives}
        if must - handed:
            raise ValueError(
                f"{self.metrics!r} reads {', '.join(sorted(must - handed))}; handed over are only "
                f"{', '.join(sorted(handed))} and sample_weight"
            )
        if not {"y_true", self._predictions} <= set(columns):
            raise ValueError(f"{self.metrics!r} reads no labels with predictions: there is nothing to score a model by")

    def _kinds(self, role: str) -> list[Any]:
        return [
            need.kind for state, *_ in definition_of(self.metrics).reads for need in state.needs() if need.role == role
        ]

    def _reads_classes(self, role: str) -> bool:
        return any(isinstance(kind, (Classes, FoundClasses)) for kind in self._kinds(role))

    def _scales(self) -> set[str]:
        """The scales that the metrics read predictions on; raise where the link does not fit them."""
        inner = [k.kind if isinstance(k, Matrix) else k for k in self._kinds(self._predictions)]
        scales = {k.scale for k in inner if isinstance(k, Score)}
        if "logit" in scales and self.link not in ("logit", "identity"):
            raise ValueError(f'{self.metrics!r} reads logits (scale="logit"), and link={self.link!r} hands over others')
        if "logit" in scales and len(scales) > 1 and self.link == "logit":
            raise ValueError(
                f'{self.metrics!r}: some metrics read logits (scale="logit") and some do not, but a model hands over one '
                'column: give all of them one scale, or say link="identity" to hand logits to all of them'
            )
        if self.link != "identity" and not scales:
            raise ValueError(
                f'{self.metrics!r} reads decisions, not scores: of a model that hands over decisions say link="identity"; '
                "else give threshold= or the number of classes"
            )
        return scales

    def _shape(self) -> tuple[bool, bool]:
        """Whether there are several labels, not classes; and whether predictions are one column."""
        of_labels = any(isinstance(k, Matrix) and isinstance(k.kind, (Label, Score)) for k in self._kinds("y_true"))
        return of_labels, not any(isinstance(k, Matrix) for k in self._kinds(self._predictions))

    def _read(self, predictions: Any) -> Any:
        """Predictions as the metrics read them."""
        ndim = getattr(predictions, "ndim", 1)
        pair = self._single and ndim == 2 and predictions.shape[1] == 2 and self.link in ("probability", "logit")
        if not pair and not self._squash and self.link != "log":
            return _whole(predictions, self._predictions) if self._reads_classes(self._predictions) else predictions
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


def directions(metrics: MetricLike, maximize: bool | None = None) -> dict[str, bool | None]:
    """Whether higher values are better, by name; `maximize` where a metric does not say, None where nobody does."""
    named = {n: metrics[n] for n in metrics} if isinstance(metrics, MetricCollection) else {metrics.name: metrics}
    best = {name: best_of(thing) for name, thing in named.items()}
    return {name: which == "high" if which in ("high", "low") else maximize for name, which in best.items()}


def _whole(classes: Any, name: str) -> Any:
    """Classes as integers, where a framework has made floats of them; anything else as it is."""
    if getattr(classes, "ndim", 1) != 1:
        return classes
    values = as_array(classes, name)
    if values.dtype.kind != "f":
        return values
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    return whole if (whole == values).all() else values


def _softmax(logits: Floats) -> Floats:
    """Probabilities of classes; summed one class after the other, so that the bits are those of every machine."""
    powers = elementary.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(powers / np.add.accumulate(powers, axis=1)[:, -1:])
