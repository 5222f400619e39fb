"""Top-k accuracy of the scores for several classes."""

from __future__ import annotations

from typing import Any

from ...collect.metric import no_weight_reason
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import Reading
from ...statistics.row_means import ClassRows
from ..averages import OfClasses
from ..standard_errors import mean

__all__ = ["TopKAccuracy"]


class TopKAccuracy(OfClasses[ClassRows, float], tag="top_k_accuracy"):
    """Top-k accuracy: the share of rows whose true class is among the k classes with the highest scores.

    Parameters
    ----------
    k : int
        The number of classes with the highest scores that count as predicted.
    num_classes, labels : int, or tuple
        The classes: 0, 1, ..., num_classes - 1, or a tuple of integers or strings. `y_score` is a matrix with one
        column per class.
    ignore_class : int or str
        Rows of this true class are dropped, and `explain()` shows their number. The class need not be one of `labels`.

    Notes
    -----
    Among classes with equal scores, the one with the lower number comes first (as with `numpy.argmax`), so k = 1 gives
    Accuracy; scikit-learn's `top_k_accuracy_score` uses the opposite order. Counts are exact.

    Examples
    --------
    >>> import streammetrics as sm
    >>> scores = [[0.5, 0.2, 0.2], [0.3, 0.4, 0.2], [0.2, 0.4, 0.3], [0.7, 0.2, 0.1]]
    >>> sm.TopKAccuracy(k=2, num_classes=3).update([0, 1, 2, 2], scores).compute()
    0.75
    """

    about = About(
        best="high",
        interval_methods=("wilson", "delta"),
        interval_scale="logit",
        formula="(rows whose true class is among the k classes with the highest scores) / (all rows)",
        cost="552 bytes; about 1 ns per score",
        example={"num_classes": 3},
    )

    k: int = setting(default=5, low=1, kw_only=False)
    ignore_class: int | str | bytes | None = setting(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._class_settings:
            raise ValueError(
                "TopKAccuracy: num_classes= or labels= is required; pass the number of classes, or the classes in the "
                "order of the columns of y_score"
            )

    @property
    def name(self) -> str:
        return f"top_{self.k}_accuracy"

    def make_state(self) -> ClassRows:
        return ClassRows(terms=(f"top@{self.k}",), scale="real", ignore_class=self.ignore_class, **self._class_settings)

    def of(self, state: ClassRows) -> float:
        return to_float(state.total(f"top@{self.k}"), state.weight())

    def estimate(self, reading: Reading, method: str) -> Estimate:
        state: Any = reading.state
        return mean(reading.value, state.estimate_means(f"top@{self.k}"), about_of(self).interval_scale, method)

    def reason(self, state: Any) -> str | None:
        return no_weight_reason(state)
