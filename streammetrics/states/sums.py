"""Exact sums over scored rows: log-loss, squared error, the scores themselves, rows and weight by label."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, added
from ..columns import Column, Need, label, score, weight
from ..errors import StateFormatError
from ..exact import UNIT, exact_to_fraction, fixed_to_int
from ..settings import setting, union
from ..state import State

__all__ = ["ScoreSums"]

TERMS = ("score", "log_loss", "brier")
NOTHING = np.zeros(0, np.int64)
NO_WEIGHTS = np.zeros(0)


class ScoreSums(State, tag="score_sums"):
    """Exact sums over rows of a label and a score, and rows and weight by label.

    Parameters
    ----------
    terms : tuple of {"score", "log_loss", "brier"}
        What is summed, weighted; a collection keeps the union of what its metrics ask for.
    scale : {"probability", "logit"}
        What the score is; a logit is turned into the probability, and its loss computed without it.
    eps : float, optional
        Log-loss keeps probabilities within [eps, 1 - eps]. By default the machine epsilon of float32 for float32 and
        half-precision scores, of float64 for the others (scikit-learn's rule).

    Notes
    -----
    Every term is a multiple of 2**-60, rounded once; sums are integers, so order does not matter. Terms of 2**31 or more
    go to a superaccumulator. A lone state of three terms takes 200 bytes.
    """

    terms: tuple[str, ...] = union(default=())
    scale: str = setting(default="probability", choices=("probability", "logit"))
    eps: float | None = setting(default=None, low=0.0, high=0.25)

    rows: Array = added(2)
    excess: Array = added(2, form="fixed", optional=True)
    sums: Array = added("terms", form="fixed")
    large: Array = added("terms", form="exact", optional=True)
    clipped: Array = added("terms")

    checks_itself = True

    def __post_init__(self) -> None:
        if unknown := set(self.terms) - set(TERMS):
            raise ValueError(f"ScoreSums has no term {sorted(unknown)[0]!r}; there are {', '.join(TERMS)}")
        super().__post_init__()

    def needs(self) -> tuple[Need, ...]:
        return (label(), score(scale=self.scale), weight()) if self.terms else (label(), weight())

    def absorb(
        self,
        at: NDArray[np.int64] | None,
        /,
        y_true: Column,
        y_score: Column | None = None,
        sample_weight: Column | None = None,
    ) -> bool:
        from ..kernels.sums import sum_scores, sum_slices

        if y_score is None:  # no terms: only labels are counted, and the kernel looks at a score all the same
            y_score = Column(y_true.values.astype(np.float32), "float32")
        weighted = sample_weight is not None
        large = self.need("large") if weighted or self.scale == "logit" else None
        rows = y_true.values, y_score.values, sample_weight.values if sample_weight is not None else NO_WEIGHTS
        how = self.numbers, self.scale == "logit", self.epsilon(y_score.source)
        into = (
            self.rows.reshape(-1),
            self.need("excess").reshape(-1) if weighted else NOTHING,
            self.sums.reshape(-1),
            NOTHING if large is None else large.reshape(-1),
            self.clipped.reshape(-1),
        )
        found = sum_scores(*rows, *how, *into) if at is None else sum_slices(*rows, at, self.slices, *how, *into)
        if found > 0 and large is not None:
            self.rules()["large"].carry(large)
        return bool(found >= 0)

    def quick(self) -> Callable[[Array, Array], bool] | None:
        from ..kernels.sums import sum_scores

        if self.scale == "logit":
            return None
        terms = self.numbers
        rows, sums, clipped = self.rows.reshape(-1), self.sums.reshape(-1), self.clipped.reshape(-1)
        eps = {np.float32: self.epsilon("float32"), np.float64: self.epsilon("float64")}

        def add(y: Array, s: Array) -> bool:
            e = eps[s.dtype.type]
            done = sum_scores.dispatcher(y, s, NO_WEIGHTS, terms, False, e, rows, NOTHING, sums, NOTHING, clipped)
            return bool(done >= 0)

        return add

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The terms as the kernel takes them."""
        return np.array([TERMS.index(t) for t in self.terms], np.int64)

    def epsilon(self, source: str) -> float:
        """What probabilities of a dtype are kept away from 0 and 1."""
        if self.eps is not None:
            return self.eps
        return 2.0**-23 if source in ("float32", "float16", "bfloat16") else 2.0**-52

    def check(self) -> None:
        if (self.sums[..., 0] < 0).any():
            raise StateFormatError("ScoreSums.sums holds a negative sum of terms that are not negative")

    def facts(self) -> dict[str, Any]:
        seen = {"rows": int(self.rows.sum()), "positives": int(self.rows[1]), "weight": self.weight()}
        return seen | {"clipped": int(self.clipped[self.terms.index("log_loss")])} if "log_loss" in self.terms else seen

    def weight(self, label: int | None = None) -> Fraction:
        """Rows, or total weight, of one label or both; exact."""
        labels = (0, 1) if label is None else (label,)
        total = Fraction(sum(int(self.rows[i]) for i in labels))
        if self.excess is not None:
            total += Fraction(sum(fixed_to_int(self.excess[i]) for i in labels), UNIT)
        return total

    def support(self) -> Fraction:
        """What the positives weigh."""
        return self.weight(1)

    def total(self, term: str) -> Fraction:
        """The weighted sum of one term; exact over the rounded terms."""
        i = self.terms.index(term)
        total = Fraction(fixed_to_int(self.sums[i]), UNIT)
        return total if self.large is None else total + exact_to_fraction(self.large[i])
