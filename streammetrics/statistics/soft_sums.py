"""Exact sums over scored rows whose labels are soft: targets in [0, 1]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from ..batch.columns import Column
from ..batch.kinds import Need, score, target, weight
from ..numerics.exact import FRACTION_BITS, UNIT, exact_to_fraction, fixed_to_int, of_units, whole
from ..numerics.settings import setting
from ..state.declare import Flat, lost
from .covariance import Spread, spread
from .step import NOTHING, Like, Step
from .sums import Terms

__all__ = ["SoftSums"]


class SoftSums(Terms, tag="soft_sums"):
    """Exact sums over rows of a target in [0, 1] and a score, and rows and weight; settings as for `ScoreSums`.

    Parameters
    ----------
    smoothing : float
        A share of each target that is taken away and given to both classes alike.

    Notes
    -----
    The targets are one more term, "target". A row of target t and weight w stands for a positive of weight w t and a
    negative of weight w (1 - t): so its log-loss is w (t L(1) + (1 - t) L(0)). Targets of 0 and 1 have the terms that
    `ScoreSums` has of labels, to the bit. Terms are rounded, and large ones kept, as there; so are second moments, of
    which `crossed` has w**2 x t: with it there is the standard error of what is divided by the sum of targets.
    """

    smoothing: float = setting(default=0.0, low=0.0, high=1.0)

    rows = Flat()
    excess = Flat(form="fixed", beside="rows")
    sums = Flat("terms", form="fixed")
    large = Flat("terms", form="exact", optional=True)
    squares = Flat("terms", form="square")
    crossed = Flat("terms", form="square")
    w2 = Flat(form="square", like="rows")
    w2x = Flat("terms", form="square", like="sums")
    clipped = Flat("terms")

    choices = (*Terms.choices, "target")

    @property
    def _scored(self) -> bool:
        return any(term != "target" for term in self.terms)

    def needs(self) -> tuple[Need, ...]:
        return (target(), *([score(scale=self.scale)] if self._scored else []), weight())

    @property
    def derives(self) -> bool:
        return bool(self.smoothing) or type(self).derive is not SoftSums.derive

    def derive(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        if not self.smoothing:
            return super().derive(columns)
        target = columns["y_true"]
        smooth = target.values * (1.0 - self.smoothing) + 0.5 * self.smoothing
        return super().derive({**columns, "y_true": Column(smooth, target.source)})

    def steps(self, like: Like) -> Iterable[Step]:
        own, weighted = type(self), like.weighted or "w2" in like.present
        scores = "y_score" if self._scored else "y_true"  # which nobody reads
        weights = "sample_weight" if like.weighted else "ones" if weighted else "sample_weight"
        how = self.numbers, self.scale == "logit", self.epsilon(like.source(scores))
        large = own.large if weighted or self.scale == "logit" else NOTHING
        more = (own.w2, own.w2x) if weighted else (NOTHING, NOTHING)
        into = own.rows, own.excess if weighted else NOTHING, own.sums, large, own.squares, own.crossed, *more
        return [Step("soft_sums:sum_soft", "y_true", scores, weights, "at", *how, *into, own.clipped)]

    # -- read from a state of one cell --------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        seen = {"rows": int(self.rows), "weight": self.weight()}
        return seen | {"clipped": int(self.clipped[self.terms.index("log_loss")])} if "log_loss" in self.terms else seen

    @property
    def stacks(self) -> bool:
        return "large" not in self.cells.flats

    def weight(self, label: int | None = None) -> Fraction:
        """Rows, or total weight; of one label the share that targets give it."""
        if label is not None:
            positive = self.total("target")
            return positive if label else self.weight() - positive
        return of_units(self._weight())  # type: ignore[no-any-return]

    def _weight(self) -> Any:
        """What the rows weigh, in units of 2**-60; of cells side by side an array."""
        units = whole(self.rows) << FRACTION_BITS
        return units if self.excess is None else units + fixed_to_int(self.excess)

    def support(self) -> Fraction:
        """What the positives weigh."""
        return self.weight(1)

    def total(self, term: str) -> Fraction:
        """The weighted sum of one term; exact over the rounded terms."""
        i = self.terms.index(term)
        total: Fraction = of_units(fixed_to_int(self.sums[i]))
        return total if self.large is None else total + exact_to_fraction(self.large[i])

    def spread_of(self, *names: str) -> Spread:
        """Means over rows of terms, or of the target, their "label", and their covariances; no two of other terms."""
        weight = self._weight()
        squared = weight if self.w2 is None else fixed_to_int(self.w2)
        sums, products, gone = [], {(-1, -1): squared}, False if self.w2 is None else lost(self.w2)
        at = [self.terms.index("target" if name == "label" else name) for name in names]
        for j, i in enumerate(at):
            sums.append(fixed_to_int(self.sums[i]))
            products |= {(-1, j): sums[j] if self.w2x is None else fixed_to_int(self.w2x[i])}
            products |= {(j, j): fixed_to_int(self.squares[i])}
            gone = gone | lost(self.squares[i])
            if self.w2x is not None:
                gone = gone | lost(self.w2x[i])
            for k, other in enumerate(names):
                if other == "label" and k != j:
                    products |= {(min(j, k), max(j, k)): fixed_to_int(self.crossed[i])}
                    gone = gone | lost(self.crossed[i])
        return spread(weight, sums, products, gone, UNIT)
