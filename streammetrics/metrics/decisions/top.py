"""Metrics of the scores of several classes beside those that two classes have, too."""

from __future__ import annotations

from typing import Any

from ...collect.metric import nothing_counted
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
    """Top-k accuracy: the share of rows whose true class is among the k with the highest scores.

    Parameters
    ----------
    k : int
        How many classes may be named.
    num_classes, labels : int, or tuple
        Classes 0, 1, ...; or these, integers or strings. `y_score` has a score of each, rows x classes.
    ignore_class : int or str
        A row of this true class, which need not be among the classes, is left out and counted.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Of equal scores the class of lower number comes first, so that k = 1 is Accuracy (`numpy.argmax`); scikit-learn's
    `top_k_accuracy_score` takes the other order. Exact counts. 552 bytes; about 1 ns a score.

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
        formula="rows whose true class is among the k highest scores / rows",
        cost="552 bytes; about 1 ns a score",
        example={"num_classes": 3},
    )

    k: int = setting(default=5, low=1, kw_only=False)
    ignore_class: int | str | bytes | None = setting(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._class_settings:
            raise ValueError("TopKAccuracy: say which classes there are, num_classes= or labels=")

    @property
    def name(self) -> str:
        return f"top_{self.k}_accuracy"

    def make_state(self) -> ClassRows:
        return ClassRows(terms=(f"top@{self.k}",), scale="real", ignore_class=self.ignore_class, **self._class_settings)

    def of(self, state: ClassRows) -> float:
        return to_float(state.total(f"top@{self.k}"), state.weight())

    def estimate(self, found: Reading, method: str) -> Estimate:
        state: Any = found.state
        return mean(found.value, state.spread_of(f"top@{self.k}"), about_of(self).interval_scale, method)

    def reason(self, state: Any) -> str | None:
        return nothing_counted(state)
