"""Confusion matrices of binary decisions at one or more thresholds."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import CORRECTED
from ..batch.kinds import Need, flag, label, score, weight
from ..errors import StateFormatError
from ..numerics.array_rows import row_sums
from ..numerics.exact import UNIT, fixed_to_int, to_python_int
from ..numerics.settings import setting, union
from ..state.consistency import read_row_weight
from ..state.declare import Flat
from ..state.state import State
from .step import NOTHING, Like, Step

__all__ = ["MIN_EPS", "DecisionCounts", "eps_of", "mark_top_k", "round_thresholds"]

MIN_EPS = 2.0**-1022
"""The smallest base rate or `eps` that is allowed.

This is the smallest normal float64. The logarithms of this library do not handle subnormal numbers.
"""


class DecisionCounts(State, tag="decisions"):
    """Row counts by true label and decision at each threshold: true and false positives and negatives.

    Parameters
    ----------
    thresholds : tuple of float
        A row is predicted positive if `score >= threshold`, where the threshold is rounded to the dtype of the scores, as
        numpy does. A collection of metrics keeps the union of the thresholds that its metrics need.
    column : {"y_score", "y_pred"}
        The column that is compared with the thresholds: `y_score` may contain any finite numbers; `y_pred` contains
        decisions, which must be 0 or 1.

    Notes
    -----
    The shape of `counts` is thresholds x true label x decision: [[TN, FP], [FN, TP]], as in scikit-learn.
    """

    thresholds: tuple[float, ...] = union(default=(0.5,))
    column: str = setting(default="y_score", choices=("y_score", "y_pred"))

    counts = Flat("thresholds", 2, 2)
    excess = Flat("thresholds", 2, 2, form="fixed", excess_of="counts")

    row_parts = ("counts",)

    @property
    def counts_per_row(self) -> int:
        return len(self.thresholds)

    @property
    def can_vectorize(self) -> bool:
        return True

    def needs(self) -> tuple[Need, ...]:
        return label(), score(scale="real") if self.column == "y_score" else flag("y_pred"), weight()

    def steps(self, like: Like) -> Iterable[Step]:
        own, scores = type(self), self.column == "y_score"
        dtype = like.dtype(self.column) if scores else np.dtype(np.float32)
        cuts = self.rounded_thresholds(like.source(self.column), dtype)
        into = own.counts, own.excess if like.has_weights else NOTHING
        return [
            Step("decisions:count_decisions", "y_true", self.column, "sample_weight", "at", cuts, *into, checks=scores)
        ]

    def rounded_thresholds(self, source: str, dtype: np.dtype[Any]) -> NDArray[np.floating]:
        """Return the thresholds that the kernel compares with scores.

        Parameters
        ----------
        source : str
            The name of the dtype of the scores that the user passed; thresholds are rounded to this dtype.
        dtype : dtype
            The dtype in which the kernel reads scores, which is also the dtype of the returned array.
        """
        return round_thresholds(self.thresholds, source, dtype)

    def check(self) -> None:
        weight = read_row_weight(self, "counts")
        # At a single threshold, all combinations of counts are possible. Only counts at different thresholds can
        # contradict one another.
        if weight.rows.shape[-3] == 1:
            return
        labels, above = weight.sum(-1), weight[..., 1]
        if not labels[..., 1:, :].equals(labels[..., :1, :]):
            raise StateFormatError(
                f"the state is corrupt: {type(self).__name__} counts different rows at different thresholds"
            )
        higher = above[..., 1:, :]
        more = (higher.rows > above.rows[..., :-1, :]).any()
        if more or (weight.excess is not None and above[..., :-1, :].is_exceeded_by(higher.to_fixed_point(), 1)):
            raise StateFormatError(
                f"the state is corrupt: {type(self).__name__} has more positive decisions at a higher "
                f"threshold than at a lower threshold"
            )

    @property
    def positive_counts(self) -> NDArray[np.int64]:
        return self.sum_by_front(row_sums(self.read_cells_named("counts")[..., 0, 1, :]))

    @property
    def unit(self) -> int:
        """The integer that represents a weight of 1 in the confusion matrix: 1, or 2**60 if rows have weights."""
        return 1 if self.excess is None else UNIT

    def facts(self) -> dict[str, Any]:
        tn, fp, fn, tp = self.cells_at(self.thresholds[0])
        counts = self.counts[0]
        weight = Fraction(tn + fp + fn + tp, self.unit)
        return {"rows": int(counts.sum()), "positives": int(counts[1].sum()), "weight": weight}

    def support(self) -> Fraction:
        """Return the total weight of the positive rows."""
        _, _, fn, tp = self.cells_at(self.thresholds[0])
        return Fraction(fn + tp, self.unit)

    def counts_at(self, threshold: float) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Return two 2 x 2 matrices (label x decision) at a threshold: row counts, and sums of (weight - 1).

        The second matrix is None if rows have no weights.
        """
        if threshold not in self.thresholds:
            counted = ", ".join(map(str, self.thresholds))
            raise ValueError(
                f"threshold {threshold!r} is not counted; the thresholds of this state are {counted}; add it to "
                f"thresholds= in make_state()"
            )
        i = self.thresholds.index(threshold)
        return self.counts[i], None if self.excess is None else self.excess[i]

    def cells_at(self, threshold: float) -> tuple[int, int, int, int]:
        """Return TN, FP, FN and TP at a threshold: row counts, or integers in units of 2**-60 if rows have weights."""
        rows, excess = self.counts_at(threshold)
        counts = [to_python_int(rows[i]) for i in np.ndindex(2, 2)]
        if excess is not None:
            counts = [c * UNIT + fixed_to_int(excess[i]) for c, i in zip(counts, np.ndindex(2, 2), strict=True)]
        tn, fp, fn, tp = counts
        return tn, fp, fn, tp


def round_thresholds(thresholds: tuple[float, ...], source: str, dtype: np.dtype[np.floating]) -> NDArray[np.floating]:
    """Round thresholds to `source`, the dtype of the user's scores, and return them as `dtype`, which kernels read."""
    exact = np.array(thresholds)
    # numpy has no bfloat16. Round each float32 to its upper 16 bits, which form a bfloat16; ties go to even.
    if source == "bfloat16":
        bits = exact.astype(np.float32).view(np.uint32).astype(np.uint64)
        bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
        return np.asarray(bits.astype(np.uint32).view(np.float32).astype(dtype))
    own = source if source in ("float16", "float32") else "float64"
    # A threshold that is too large for the dtype becomes infinite. Decisions stay the same, because no finite score of
    # this dtype reaches the threshold before or after rounding.
    with np.errstate(over="ignore"):
        return np.asarray(exact.astype(own).astype(dtype))


def eps_of(source: str, eps: float | None = None) -> float:
    """Return the number e such that the log loss clips probabilities to [e, 1 - e].

    Parameters
    ----------
    source : str
        The name of the dtype of the probabilities.
    eps : float, optional
        The user's setting, which is raised to MIN_EPS if it is smaller. The default depends on the dtype, as in
        scikit-learn: 2**-52 for float64, and 2**-23 for float32 and half precision.
    """
    if eps is not None:
        return max(eps, MIN_EPS)
    return 2.0**-23 if source.removeprefix(CORRECTED) in ("float32", "float16", "bfloat16") else 2.0**-52


def mark_top_k(scores: NDArray[np.floating], k: int) -> NDArray[np.float32]:
    """Return a matrix with 1 for the k highest scores of each row and 0 for all others.

    Among equal scores, the first ones in the row are chosen.
    """
    decided = np.zeros(scores.shape, np.float32)
    np.put_along_axis(decided, np.argsort(-scores, axis=1, kind="stable")[:, :k], np.float32(1), axis=1)
    return decided
