"""Exact sums over scored rows: log-loss, squared error, the scores themselves, rows and weight by label."""

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
from ..numerics.exact import FRACTION_BITS, UNIT, exact_to_fraction, fixed_to_int, of_units, whole
from ..numerics.rows import row_sums
from ..numerics.settings import setting, union
from ..state.consistency import RowWeight, weight_of
from ..state.declare import Flat, lost
from ..state.state import State
from .covariance import Spread, spread
from .labels import eps_of
from .step import NOTHING, Like, Step

__all__ = ["ScoreSums", "TermSums", "Terms"]

MOST_LOSS = 1024  # of a probability: -log of the least float64 is 745
SMALLEST_EPS = 2.0**-52  # with which no square of a loss passes 2**11


class Terms(State):
    """Settings of exact sums of terms, and what rows of some weight cannot add up to.

    Parameters
    ----------
    terms : tuple of {"score", "log_loss", "brier"}
        What is summed, weighted; a collection keeps the union of what its metrics ask for.
    scale : {"probability", "logit"}
        What the score is; a logit is turned into the probability, and its loss computed without it.
    eps : float, optional
        Log-loss keeps probabilities within [eps, 1 - eps]. By default the machine epsilon of float32 for float32 and
        half-precision scores, of float64 for the others (scikit-learn's rule).
    """

    terms: tuple[str, ...] = union(default=())
    scale: str = setting(default="probability", choices=("probability", "logit"))
    eps: float | None = setting(default=None, low=0.0, high=0.25)

    choices: ClassVar[tuple[str, ...]] = ("score", "log_loss", "brier")

    def __post_init__(self) -> None:
        if unknown := set(self.terms) - set(self.choices):
            name, known = type(self).__name__, ", ".join(self.choices)
            raise ValueError(f"{name} has no term {sorted(unknown)[0]!r}; there are {known}")
        super().__post_init__()

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The terms as the kernel takes them."""
        return np.array([self.choices.index(t) for t in self.terms], np.int64)

    def epsilon(self, source: str) -> float:
        """What probabilities of a dtype are kept away from 0 and 1."""
        return eps_of(source, self.eps)

    def all_rows(self) -> RowWeight:
        """What all rows of each cell weigh."""
        return weight_of(self, "rows")

    def check(self) -> None:
        name, weight, both = type(self).__name__, weight_of(self, "rows"), self.all_rows()
        sums, large = np.moveaxis(self.flat("sums"), both.rows.ndim, 0), self.cells.flats.get("large")
        for i, term in enumerate(self.terms):
            most = self._most(term)
            if weight.fall_short(sums[i], most):
                raise StateFormatError(f"{name}.sums holds a sum of {term} that rows of this weight cannot have")
            if large is not None and both.fall_short(large[..., i, :], most if term == "log_loss" else 0):
                raise StateFormatError(f"{name}.large holds a sum of {term} that rows of this weight cannot have")
        if (self.flat("clipped") > both.rows[..., None]).any():
            raise StateFormatError(f"{name}.clipped counts more rows than there are")

    def _most(self, term: str) -> float:
        """What a term of a row can be at most."""
        if term != "log_loss":
            return 1
        return MOST_LOSS if self.scale == "probability" else sys.float_info.max


class TermSums(Terms):
    """Exact sums over rows of a label and a score, and rows and weight by label, in every cell; settings as for `Terms`.

    Notes
    -----
    Every term is a multiple of 2**-60, rounded once; sums are integers, so order does not matter. Terms of 2**31 or more
    go to a superaccumulator. Beside the terms x, weighted, by label, there are their squares (w x)**2 over all rows, and
    from the first weight that is not 1 the sums of w**2 and w**2 x by label: enough for the standard error of a mean,
    and of a ratio of means. Squares are multiples of 2**-52 (log-loss: 2**-41), and their sum stops at 2**41, where it
    says that it is lost; that of a term which goes to the superaccumulator is. A lone state of three terms takes 300
    bytes.
    """

    rows = Flat(2)
    excess = Flat(2, form="fixed", beside="rows")
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
        if not self.terms and not like.weighted and "w2" not in like.present:
            return [Step("score_sums:count_labels", "y_true", "sample_weight", "at", own.rows, NOTHING, checks=True)]
        weights = "sample_weight" if like.weighted else "ones"
        scores = "y_score" if self.terms else weights  # which nobody reads
        eps = self.epsilon(like.source("y_score")) if self.terms else 0.0
        how = self.numbers, self.scale == "logit", eps
        into: tuple[Any, ...]
        large = own.large if self.scale == "logit" else NOTHING
        if like.weighted or "w2" in like.present:
            into = own.rows, own.excess, own.sums, own.large, own.squares, own.w2, own.w2x, own.clipped
            if like.lone:
                return [Step("score_sums:sum_weighted", "y_true", scores, weights, *how, *into)]
            return [Step("score_sums:sum_weighted_cells", "y_true", scores, weights, "at", *how, *into)]
        if not like.lone:
            into = own.rows, own.sums, large, own.squares, own.clipped
            return [Step("score_sums:sum_cells", "y_true", scores, "at", *how, *into)]
        if self.scale == "logit" or eps < SMALLEST_EPS:
            into = own.rows, own.sums, large, own.squares, own.clipped
            return [Step("score_sums:sum_any", "y_true", scores, *how, *into, checks=True)]
        into = own.rows, own.sums, own.squares, own.clipped
        return [Step("score_sums:sum_scores", "y_true", scores, self.numbers, eps, *into, checks=True)]

    def all_rows(self) -> RowWeight:
        return super().all_rows().sum(-1)


class ScoreSums(TermSums, tag="score_sums"):
    """The sums of all rows of a cell; settings as for `TermSums`.

    Parameters
    ----------
    unlabelled : bool
        Whether rows may come without a label, which nobody reads: they are counted as negatives.
    """

    unlabelled: bool = setting(default=False, operational=True)

    def needs(self) -> tuple[Need, ...]:
        needs = super().needs()
        return (replace(label(), optional=True, derived=True), *needs[1:]) if self.unlabelled else needs

    @property
    def derives(self) -> bool:
        return type(self).derive is not ScoreSums.derive  # plain columns that are all there are counted as they come

    def derive(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        if "y_true" in columns:
            return super().derive(columns)
        none = np.zeros(len(columns["y_score"].values), np.uint8)
        return super().derive({**columns, "y_true": Column(none, "uint8")})

    @property
    def positives_seen(self) -> NDArray[np.int64]:
        return self.by_front(row_sums(self.flat("rows")[..., 1]))

    def facts(self) -> dict[str, Any]:
        seen = {"rows": int(self.rows.sum()), "positives": int(self.rows[1]), "weight": self.weight()}
        return seen | {"clipped": int(self.clipped[self.terms.index("log_loss")])} if "log_loss" in self.terms else seen

    @property
    def stacks(self) -> bool:
        return "large" not in self.cells.flats

    def weight(self, label: int | None = None) -> Fraction:
        """Rows, or total weight, of one label or both; exact."""
        labels = (0, 1) if label is None else (label,)
        return of_units(sum(map(self._weight, labels)))  # type: ignore[no-any-return]

    def support(self) -> Fraction:
        """What the positives weigh."""
        return self.weight(1)

    def total(self, term: str, label: int | None = None) -> Fraction:
        """The weighted sum of one term, of both labels or one; exact over the rounded terms.

        Raises
        ------
        ValueError
            One label is asked for, and terms of 2**31 or more went to a sum of both.
        """
        i = self.terms.index(term)
        if label is not None:
            if self.large is not None and self.large[i].any():
                raise ValueError(f"ScoreSums keeps terms of 2**31 and more, here of {term}, for both labels together")
            return of_units(fixed_to_int(self.sums[i, label]))  # type: ignore[no-any-return]
        total: Fraction = of_units(fixed_to_int(self.sums[i, 0]) + fixed_to_int(self.sums[i, 1]))
        return total if self.large is None else total + exact_to_fraction(self.large[i])

    def spread_of(self, *names: str) -> Spread:
        """Means over rows of terms, or of the "label", and their covariances; no two of the terms of the state."""
        weight = [self._weight(label) for label in (0, 1)]
        squared = weight if self.w2 is None else [fixed_to_int(self.w2[label]) for label in (0, 1)]
        sums: list[Any] = []
        products: dict[tuple[int, int], Any] = {(-1, -1): squared[0] + squared[1]}
        gone: Any = False if self.w2 is None else lost(self.w2[0]) | lost(self.w2[1])
        for j, name in enumerate(names):
            if name == "label":
                sums.append(weight[1])
                products |= {(-1, j): squared[1], (j, j): squared[1]}
                continue
            i = self.terms.index(name)
            total = [fixed_to_int(self.sums[i, label]) for label in (0, 1)]
            crossed = total if self.w2x is None else [fixed_to_int(self.w2x[i, label]) for label in (0, 1)]
            sums.append(total[0] + total[1])
            products |= {(-1, j): crossed[0] + crossed[1], (j, j): fixed_to_int(self.squares[i])}
            products |= {(min(j, k), max(j, k)): crossed[1] for k, other in enumerate(names) if other == "label"}
            gone = gone | lost(self.squares[i])
            if self.w2x is not None:
                gone = gone | lost(self.w2x[i, 0]) | lost(self.w2x[i, 1])
        return spread(weight[0] + weight[1], sums, products, gone, UNIT)

    def _weight(self, label: int) -> Any:
        """What the rows of a label weigh, in units of 2**-60; of cells side by side an array."""
        units = whole(self.rows[label]) << FRACTION_BITS
        return units if self.excess is None else units + fixed_to_int(self.excess[label])
