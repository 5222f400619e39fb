"""Exact sums of terms, such as the log loss, over rows with a score and a soft label (a target in [0, 1])."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from ..batch.columns import Column
from ..batch.kinds import Need, score, target, weight
from ..numerics.exact import FRACTION_BITS, UNIT, exact_to_fraction, fixed_to_int, to_python_int, units_to_fraction
from ..numerics.settings import setting
from ..state.declare import Flat, is_saturated
from .covariance import MeanEstimates, estimate_means
from .step import NOTHING, Like, Step
from .sums import ScoreTerms
from .terms import find_term

__all__ = ["SoftSums"]


class SoftSums(ScoreTerms, tag="soft_sums"):
    """Exact sums of terms over rows with a score and a target in [0, 1], with one more setting than `ScoreTerms`.

    Parameters
    ----------
    smoothing : float
        Label smoothing: each target t becomes t * (1 - smoothing) + smoothing / 2.

    Notes
    -----
    A row with target t and weight w counts as a positive of weight w * t and a negative of weight w * (1 - t). Its log
    loss is therefore w * (t * L(1) + (1 - t) * L(0)), where L(y) is the log loss for the label y. With targets of 0 and
    1, every term equals that of `ScoreSums` bit for bit, and numbers are rounded and stored in the same way. The sum of
    the targets is an additional term, "target". The array `crossed` contains, for each term x, the sum of
    w**2 * x * t. These sums are needed for the standard error of a ratio: the sum of a term divided by the sum of the
    targets.
    """

    smoothing: float = setting(default=0.0, low=0.0, high=1.0)

    rows = Flat()
    excess = Flat(form="fixed", excess_of="rows")
    sums = Flat("terms", form="fixed")
    large = Flat("terms", form="exact", optional=True)
    squares = Flat("terms", form="square")
    crossed = Flat("terms", form="square")
    w2 = Flat(form="square", like="rows")
    w2x = Flat("terms", form="square", like="sums")
    clipped = Flat("terms")

    choices = (*ScoreTerms.choices, "target")

    @property
    def _has_score_terms(self) -> bool:
        return any(term != "target" for term in self.terms)

    def needs(self) -> tuple[Need, ...]:
        return (target(), *([score(scale=self.scale)] if self._has_score_terms else []), weight())

    @property
    def derives_columns(self) -> bool:
        return bool(self.smoothing) or type(self).derive_columns is not SoftSums.derive_columns

    def derive_columns(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        if not self.smoothing:
            return super().derive_columns(columns)
        target = columns["y_true"]
        smooth = target.values * (1.0 - self.smoothing) + 0.5 * self.smoothing
        return super().derive_columns({**columns, "y_true": Column(smooth, target.source)})

    def steps(self, like: Like) -> Iterable[Step]:
        own, weighted = type(self), like.has_weights or "w2" in like.present
        # If no term uses the scores, the batch has no column of scores. The kernel then receives another column
        # instead, and ignores it.
        scores = "y_score" if self._has_score_terms else "y_true"
        weights = "sample_weight" if like.has_weights else "ones" if weighted else "sample_weight"
        how = self.term_codes, self.scale == "logit", self.epsilon(like.source(scores))
        large = own.large if weighted or self.scale == "logit" else NOTHING
        more = (own.w2, own.w2x) if weighted else (NOTHING, NOTHING)
        into = own.rows, own.excess if weighted else NOTHING, own.sums, large, own.squares, own.crossed, *more
        return [Step("soft_sums:sum_soft", "y_true", scores, weights, "at", *how, *into, own.clipped)]

    # -- reading a state of one cell ----------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        facts = {"rows": int(self.rows), "weight": self.weight()}
        return (
            facts | {"clipped": int(self.clipped[self.terms.index("log_loss")])} if "log_loss" in self.terms else facts
        )

    @property
    def can_vectorize(self) -> bool:
        return "large" not in self.cells.flats

    def weight(self, label: int | None = None) -> Fraction:
        """Return the exact total weight or, if `label` is passed, the weight that the targets assign to this label.

        A target t assigns the share t of the weight of its row to label 1, and the share 1 - t to label 0.
        """
        if label is not None:
            positive = self.total("target")
            return positive if label else self.weight() - positive
        return units_to_fraction(self._weight_units())  # type: ignore[no-any-return]

    def _weight_units(self) -> Any:
        """Return the weight of the rows in units of 2**-60: one integer, or one integer per cell (slice)."""
        units = to_python_int(self.rows) << FRACTION_BITS
        return units if self.excess is None else units + fixed_to_int(self.excess)

    def support(self) -> Fraction:
        """Return the weight of the positives: the weighted sum of the targets."""
        return self.weight(1)

    def total(self, term: str) -> Fraction:
        """Return the weighted sum of a term. Only the value of the term in each row is rounded, not the sum."""
        i = find_term(self, term)
        total: Fraction = units_to_fraction(fixed_to_int(self.sums[i]))
        return total if self.large is None else total + exact_to_fraction(self.large[i])

    def estimate_means(self, *names: str) -> MeanEstimates:
        """Estimate the mean over all rows of a term, the target (named "label"), or both, with their covariances."""
        weight = self._weight_units()
        squared = weight if self.w2 is None else fixed_to_int(self.w2)
        sums, products, overflowed = [], {(-1, -1): squared}, False if self.w2 is None else is_saturated(self.w2)
        at = [find_term(self, "target" if name == "label" else name) for name in names]
        for j, i in enumerate(at):
            sums.append(fixed_to_int(self.sums[i]))
            products |= {(-1, j): sums[j] if self.w2x is None else fixed_to_int(self.w2x[i])}
            products |= {(j, j): fixed_to_int(self.squares[i])}
            overflowed = overflowed | is_saturated(self.squares[i])
            if self.w2x is not None:
                overflowed = overflowed | is_saturated(self.w2x[i])
            for k, other in enumerate(names):
                if other == "label" and k != j:
                    products |= {(min(j, k), max(j, k)): fixed_to_int(self.crossed[i])}
                    overflowed = overflowed | is_saturated(self.crossed[i])
        return estimate_means(weight, sums, products, overflowed, UNIT, self.rows)
