"""Counts of decisions: true label by predicted label, at one or more thresholds."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import CORRECTED
from ..batch.kinds import Need, flag, label, score, weight
from ..errors import StateFormatError
from ..numerics.exact import UNIT, fixed_to_int, whole
from ..numerics.rows import row_sums
from ..numerics.settings import setting, union
from ..state.consistency import weight_of
from ..state.declare import Flat
from ..state.state import State
from .step import NOTHING, Like, Step

__all__ = ["LEAST", "DecisionCounts", "eps_of", "highest", "rounded"]

LEAST = 2.0**-1022
"""The least base rate, or `eps`: logarithms are of normal numbers."""


class DecisionCounts(State, tag="decisions"):
    """Rows by true label and decision: true and false, positives and negatives.

    Parameters
    ----------
    thresholds : tuple of float
        A row is called positive where `score >= threshold`, the threshold rounded to the dtype of the scores, as numpy
        does. A collection keeps the union of the thresholds its metrics ask for.
    column : {"y_score", "y_pred"}
        `y_score` takes any finite number; `y_pred` takes decisions, which must be 0 or 1.

    Notes
    -----
    `counts` is thresholds x true label x decision: [[TN, FP], [FN, TP]] as scikit-learn lays it out.
    """

    thresholds: tuple[float, ...] = union(default=(0.5,))
    column: str = setting(default="y_score", choices=("y_score", "y_pred"))

    counts = Flat("thresholds", 2, 2)
    excess = Flat("thresholds", 2, 2, form="fixed", beside="counts")

    counted = ("counts",)

    @property
    def times(self) -> int:
        return len(self.thresholds)

    @property
    def stacks(self) -> bool:
        return True

    def needs(self) -> tuple[Need, ...]:
        return label(), score(scale="real") if self.column == "y_score" else flag("y_pred"), weight()

    def steps(self, like: Like) -> Iterable[Step]:
        own, scores = type(self), self.column == "y_score"
        dtype = like.dtype(self.column) if scores else np.dtype(np.float32)
        cuts = self.cuts(like.source(self.column), dtype)
        into = own.counts, own.excess if like.weighted else NOTHING
        return [Step("decisions:count", "y_true", self.column, "sample_weight", "at", cuts, *into, checks=scores)]

    def cuts(self, source: str, dtype: np.dtype[Any]) -> NDArray[np.floating]:
        """The thresholds as the kernel compares them with scores, which were given in the dtype `source`."""
        return rounded(self.thresholds, source, dtype)

    def check(self) -> None:
        weight = weight_of(self, "counts")
        labels, above = weight.sum(-1), weight[..., 1]
        if not labels[..., 1:, :].same(labels[..., :1, :]):
            raise StateFormatError(f"{type(self).__name__} has not seen the same labels at every threshold")
        higher = above[..., 1:, :]
        more = (higher.rows > above.rows[..., :-1, :]).any()
        if more or (weight.excess is not None and above[..., :-1, :].fall_short(higher.mass(), 1)):
            raise StateFormatError(f"{type(self).__name__} has more positive decisions at a higher threshold")

    @property
    def positives_seen(self) -> NDArray[np.int64]:
        return self.by_front(row_sums(self.flat("counts")[..., 0, 1, :]))

    @property
    def unit(self) -> int:
        """What a row of weight 1 counts in cells."""
        return 1 if self.excess is None else UNIT

    def facts(self) -> dict[str, Any]:
        tn, fp, fn, tp = self.cells_at(self.thresholds[0])
        counts = self.counts[0]
        weight = Fraction(tn + fp + fn + tp, self.unit)
        return {"rows": int(counts.sum()), "positives": int(counts[1].sum()), "weight": weight}

    def support(self) -> Fraction:
        """What the positives weigh."""
        _, _, fn, tp = self.cells_at(self.thresholds[0])
        return Fraction(fn + tp, self.unit)

    def at_threshold(self, threshold: float) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Rows by true label and decision, and the excess of their weights."""
        i = self.thresholds.index(threshold)
        return self.counts[i], None if self.excess is None else self.excess[i]

    def cells_at(self, threshold: float) -> tuple[int, int, int, int]:
        """TN, FP, FN, TP at a threshold: rows, or weight in units of 2**-60."""
        rows, excess = self.at_threshold(threshold)
        counts = [whole(rows[i]) for i in np.ndindex(2, 2)]
        if excess is not None:
            counts = [c * UNIT + fixed_to_int(excess[i]) for c, i in zip(counts, np.ndindex(2, 2), strict=True)]
        tn, fp, fn, tp = counts
        return tn, fp, fn, tp


def rounded(thresholds: tuple[float, ...], source: str, dtype: np.dtype[np.floating]) -> NDArray[np.floating]:
    """Round thresholds to the dtype of the scores as they were given."""
    exact = np.array(thresholds)
    if source == "bfloat16":
        bits = exact.astype(np.float32).view(np.uint32).astype(np.uint64)
        bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
        return np.asarray(bits.astype(np.uint32).view(np.float32).astype(dtype))
    own = source if source in ("float16", "float32") else "float64"
    with np.errstate(over="ignore"):  # beyond all scores of that dtype: infinity decides alike
        return np.asarray(exact.astype(own).astype(dtype))


def eps_of(source: str, given: float | None = None) -> float:
    """What probabilities of a dtype are kept away from 0 and 1: a machine epsilon, as scikit-learn does.

    If it is given, then as far, but at least by the least normal number: of no less there is a logarithm here.
    """
    if given is not None:
        return max(given, LEAST)
    return 2.0**-23 if source.removeprefix(CORRECTED) in ("float32", "float16", "bfloat16") else 2.0**-52


def highest(scores: NDArray[np.floating], k: int) -> NDArray[np.float32]:
    """1 for the k highest scores of each row, of equal ones the first, and 0 for the others."""
    decided = np.zeros(scores.shape, np.float32)
    np.put_along_axis(decided, np.argsort(-scores, axis=1, kind="stable")[:, :k], np.float32(1), axis=1)
    return decided
