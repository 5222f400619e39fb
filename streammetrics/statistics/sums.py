"""Exact sums over rows with a label and a score: log loss, squared error, scores, and the weight of rows by label."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..batch.kinds import Need, label, score, weight
from ..errors import StateFormatError
from ..numerics.array_rows import row_sums
from ..numerics.exact import FRACTION_BITS, UNIT, exact_to_fraction, fixed_to_int, to_python_int, units_to_fraction
from ..numerics.settings import setting, union
from ..state.consistency import RowWeight, read_row_weight
from ..state.declare import Flat, is_saturated
from ..state.state import State
from .covariance import MeanEstimates, estimate_means
from .decision_counts import eps_of
from .step import NOTHING, Like, Step
from .terms import find_term

__all__ = ["ScoreSums", "ScoreTerms", "TermSums"]

# An upper bound on the log loss of a probability. The largest log loss is 745, which is -log of the smallest positive
# float64.
MAX_LOSS = 1024
# If probabilities are clipped to [eps, 1 - eps] and eps is at least this large, no log loss exceeds 45 and no squared
# log loss exceeds 2**11. The kernel `sum_scores` requires these limits.
SMALLEST_EPS = 2.0**-52


class ScoreTerms(State):
    """The base class for states that sum terms of rows with scores. It provides the settings and checks saved states.

    Parameters
    ----------
    terms : tuple of {"score", "log_loss", "brier"}
        The terms whose weighted sums are kept: the score, the log loss and the squared error of a row. A collection keeps
        the union of the terms that its metrics need.
    scale : {"probability", "logit"}
        The scale of the score. A logit is converted to a probability, except for the log loss, which is computed from the
        logit itself.
    eps : float, optional
        The log loss clips probabilities to [eps, 1 - eps]. The default is the machine epsilon of float32 for float32 and
        half-precision scores, and that of float64 for other scores, as in scikit-learn.
    """

    terms: tuple[str, ...] = union(default=())
    scale: str = setting(default="probability", choices=("probability", "logit"))
    eps: float | None = setting(default=None, low=0.0, high=0.25)

    choices: ClassVar[tuple[str, ...]] = ("score", "log_loss", "brier")

    def __post_init__(self) -> None:
        if unknown := set(self.terms) - set(self.choices):
            name, known = type(self).__name__, ", ".join(self.choices)
            raise ValueError(f"{name} has no term {sorted(unknown)[0]!r}; choose from {known}")
        super().__post_init__()

    @property
    def term_codes(self) -> NDArray[np.int64]:
        """The integers by which the kernel identifies the terms."""
        return np.array([self.choices.index(t) for t in self.terms], np.int64)

    def epsilon(self, source: str) -> float:
        """Return the number e such that the log loss clips probabilities of the dtype `source` to [e, 1 - e]."""
        return eps_of(source, self.eps)

    def total_row_weight(self) -> RowWeight:
        """Return the row count and the weight of each cell (such as a slice), summed over both labels."""
        return read_row_weight(self, "rows")

    def check(self) -> None:
        if not self.terms:
            return
        name, weight, both = type(self).__name__, read_row_weight(self, "rows"), self.total_row_weight()
        sums, large = self.read_cells_named("sums"), self.cells.flats.get("large")
        before: tuple[Any, ...] = (slice(None),) * both.rows.ndim
        for i, term in enumerate(self.terms):
            most = self._max_term(term)
            if weight.is_exceeded_by(sums[(*before, i)], most):
                raise StateFormatError(
                    f"the state is corrupt: a sum of {term} in {name}.sums is impossible for the weight of its rows"
                )
            if large is not None and both.is_exceeded_by(large[..., i, :], most if term == "log_loss" else 0):
                raise StateFormatError(
                    f"the state is corrupt: a sum of {term} in {name}.large is impossible for the weight of its rows"
                )
        if (self.read_cells_named("clipped") > both.rows[..., None]).any():
            raise StateFormatError(f"the state is corrupt: {name}.clipped counts more rows than {name}.rows")

    def _max_term(self, term: str) -> float:
        """Return an upper bound on the value of a term for one row."""
        if term != "log_loss":
            return 1
        return MAX_LOSS if self.scale == "probability" else sys.float_info.max


class TermSums(ScoreTerms):
    """Row counts, weights and exact sums of terms for each label; the settings are those of `ScoreTerms`.

    Notes
    -----
    The term of each row is rounded to a multiple of 2**-60. Sums are then exact integers, so the order of rows does not
    matter. Terms of 2**31 or more are summed separately, in a superaccumulator that holds any float64.

    For standard errors of means and of ratios of means, the state also keeps the sum of (w * x)**2 over all rows, for
    weight w and term x. After the first batch with weights, it also keeps the sums of w**2 and w**2 * x by label.
    Squares are rounded to multiples of 2**-52, or of 2**-41 for the log loss. A sum of squares that reaches 2**41, or
    that contains a term of 2**31 or more, stays at 2**41, which means that it overflowed. A state with three terms and
    one cell (no slices) takes 300 bytes.
    """

    rows = Flat(2)
    excess = Flat(2, form="fixed", excess_of="rows")
    sums = Flat("terms", 2, form="fixed")
    large = Flat("terms", form="exact", optional=True)
    squares = Flat("terms", form="square")
    w2 = Flat(2, form="square", like="rows")
    w2x = Flat("terms", 2, form="square", like="sums")
    clipped = Flat("terms")

    def needs(self) -> tuple[Need, ...]:
        return (label(), score(scale=self.scale), weight()) if self.terms else (label(), weight())

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        if not self.terms and not like.has_weights and "w2" not in like.present:
            return [Step("score_sums:count_labels", "y_true", "sample_weight", "at", own.rows, NOTHING, checks=True)]
        weights = "sample_weight" if like.has_weights else "ones"
        # If there are no terms, the batch has no column of scores. The kernel then receives another column instead, and
        # ignores it.
        scores = "y_score" if self.terms else weights
        eps = self.epsilon(like.source("y_score")) if self.terms else 0.0
        how = self.term_codes, self.scale == "logit", eps
        into: tuple[Any, ...]
        large = own.large if self.scale == "logit" else NOTHING
        if like.has_weights or "w2" in like.present:
            into = own.rows, own.excess, own.sums, own.large, own.squares, own.w2, own.w2x, own.clipped
            if like.lone:
                return [Step("score_sums:sum_weighted", "y_true", scores, weights, *how, *into)]
            return [Step("score_sums:sum_weighted_cells", "y_true", scores, weights, "at", *how, *into)]
        if not like.lone:
            into = own.rows, own.sums, large, own.squares, own.clipped
            return [Step("score_sums:sum_cells", "y_true", scores, "at", *how, *into)]
        if self.scale == "logit" or eps < SMALLEST_EPS:
            into = own.rows, own.sums, large, own.squares, own.clipped
            return [Step("score_sums:sum_unbounded", "y_true", scores, *how, *into, checks=True)]
        into = own.rows, own.sums, own.squares, own.clipped
        return [Step("score_sums:sum_scores", "y_true", scores, self.term_codes, eps, *into, checks=True)]

    def total_row_weight(self) -> RowWeight:
        return super().total_row_weight().sum(-1)


class ScoreSums(TermSums, tag="score_sums"):
    """Exact sums of terms, such as the log loss, for each label, with one more setting than `ScoreTerms`.

    Parameters
    ----------
    unlabelled : bool
        Whether batches may lack a column of labels, because no metric uses labels. Rows without a label are counted as
        negatives.
    """

    unlabelled: bool = setting(default=False, operational=True)

    def needs(self) -> tuple[Need, ...]:
        needs = super().needs()
        return (replace(label(), optional=True, derived=True), *needs[1:]) if self.unlabelled else needs

    @property
    def derives_columns(self) -> bool:
        # `derive_columns` of this class has an effect only if labels are missing. Batches with labels can skip it,
        # unless a subclass overrides it.
        return type(self).derive_columns is not ScoreSums.derive_columns

    def derive_columns(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        if "y_true" in columns:
            return super().derive_columns(columns)
        none = np.zeros(len(columns["y_score"].values), np.uint8)
        return super().derive_columns({**columns, "y_true": Column(none, "uint8")})

    @property
    def positive_counts(self) -> NDArray[np.int64]:
        return self.sum_by_front(row_sums(self.read_cells_named("rows")[..., 1]))

    def facts(self) -> dict[str, Any]:
        facts = {"rows": int(self.rows.sum()), "positives": int(self.rows[1]), "weight": self.weight()}
        return (
            facts | {"clipped": int(self.clipped[self.terms.index("log_loss")])} if "log_loss" in self.terms else facts
        )

    @property
    def can_vectorize(self) -> bool:
        return "large" not in self.cells.flats

    def weight(self, label: int | None = None) -> Fraction:
        """Return the exact weight of all rows or, if `label` is passed, of the rows with this label."""
        labels = (0, 1) if label is None else (label,)
        return units_to_fraction(sum(map(self._weight_units, labels)))  # type: ignore[no-any-return]

    def support(self) -> Fraction:
        """Return the weight of the positive rows."""
        return self.weight(1)

    def total(self, term: str, label: int | None = None) -> Fraction:
        """Return the weighted sum of a term over all rows or, if `label` is passed, over the rows with this label.

        Only the term of each row is rounded, not the sum.

        Raises
        ------
        ValueError
            `label` is not None, and a term of 2**31 or more occurred. Such terms are summed over both labels together.
        """
        i = find_term(self, term)
        if label is not None:
            if self.large is not None and self.large[i].any():
                raise ValueError(
                    f"the sum of {term} contains terms of 2**31 or more, which are known only for both labels "
                    f"together; pass label=None"
                )
            return units_to_fraction(fixed_to_int(self.sums[i, label]))  # type: ignore[no-any-return]
        total: Fraction = units_to_fraction(fixed_to_int(self.sums[i, 0]) + fixed_to_int(self.sums[i, 1]))
        return total if self.large is None else total + exact_to_fraction(self.large[i])

    def estimate_means(self, *names: str) -> MeanEstimates:
        """Estimate the mean over all rows of a term, the label (named "label"), or both, with their covariances.

        At most one of the names may be a term, because the state does not keep the products of two terms.
        """
        weight = [self._weight_units(label) for label in (0, 1)]
        squared = weight if self.w2 is None else [fixed_to_int(self.w2[label]) for label in (0, 1)]
        sums: list[Any] = []
        products: dict[tuple[int, int], Any] = {(-1, -1): squared[0] + squared[1]}
        overflowed: Any = False if self.w2 is None else is_saturated(self.w2[0]) | is_saturated(self.w2[1])
        for j, name in enumerate(names):
            if name == "label":
                sums.append(weight[1])
                products |= {(-1, j): squared[1], (j, j): squared[1]}
                continue
            i = find_term(self, name)
            total = [fixed_to_int(self.sums[i, label]) for label in (0, 1)]
            crossed = total if self.w2x is None else [fixed_to_int(self.w2x[i, label]) for label in (0, 1)]
            sums.append(total[0] + total[1])
            products |= {(-1, j): crossed[0] + crossed[1], (j, j): fixed_to_int(self.squares[i])}
            products |= {(min(j, k), max(j, k)): crossed[1] for k, other in enumerate(names) if other == "label"}
            overflowed = overflowed | is_saturated(self.squares[i])
            if self.w2x is not None:
                overflowed = overflowed | is_saturated(self.w2x[i, 0]) | is_saturated(self.w2x[i, 1])
        return estimate_means(weight[0] + weight[1], sums, products, overflowed, UNIT, self.rows[0] + self.rows[1])

    def _weight_units(self, label: int) -> Any:
        """Return the weight of the rows with a label, in units of 2**-60: one integer, or one for each cell (slice)."""
        units = to_python_int(self.rows[label]) << FRACTION_BITS
        return units if self.excess is None else units + fixed_to_int(self.excess[label])
