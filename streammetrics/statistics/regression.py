"""Exact sums of regression losses over rows of targets and predictions."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.kinds import Need, matrix, weight
from ..batch.numbers import OCTAVES, number
from ..errors import StateFormatError
from ..numerics.exact import exact_to_fraction
from ..numerics.settings import setting, union
from ..state.consistency import RowWeight, all_within, weight_of
from ..state.declare import Flat
from ..state.state import State
from .covariance import Spread, spread
from .labels import rounded
from .step import Like, Step
from .weighted_rows import WeighedRows

__all__ = ["RegressionSums", "check_losses", "square_of"]

TERMS = (
    "absolute", "squared", "target", "nonzero", "relative", "guarded", "symmetric", "log_squared", "pinball", "huber",
    "tweedie", "log_cosh", "signed_relative", "minkowski", "hit", "either", "below",
)  # fmt: skip
"""As kernels number them."""
WITH_PARAMETER = ("pinball", "huber", "tweedie", "minkowski", "hit", "either")
PLAIN = tuple(term for term in TERMS if term not in WITH_PARAMETER)
SHARES = ("nonzero", "hit", "either", "below")  # 0 or 1
LEFT_OUT = ("relative", "signed_relative")  # of targets that are 0
LARGEST = 2.0**992  # more than a term of any numbers can be
SQUARE = "^2"
OFFSET = 32  # of the number of a square, as the kernel takes it
SQUARED = 240  # octaves of numbers, of which the squares of losses are floats
DOMAINS: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "real": ({}, {}),
    "log1p": ({"above": -1.0}, {"above": -1.0}),
    "positive_pred": ({}, {"above": 0.0}),
    "nonnegative": ({"low": 0.0}, {"above": 0.0}),
    "positive": ({"above": 0.0}, {"above": 0.0}),
}
"""Limits of target and prediction."""


class RegressionSums(WeighedRows, tag="regression_sums"):
    """Exact sums of loss terms over rows of a target and a prediction, and rows and weight.

    Parameters
    ----------
    terms : tuple of str
        What is summed, weighted: "absolute" |d|, "squared" d^2, "target" |y|, "nonzero" [y != 0], "relative" |d / y|
        of targets that are not 0, "guarded" |d| / max(|y|, 2^-52), "symmetric" 2 |d| / (|y| + |p|), "log_squared"
        (log(1 + p) - log(1 + y))^2, "log_cosh" log(cosh(d)), "signed_relative" d / |y| of targets that are not 0, "below"
        whether y is at most p; with a parameter "pinball@0.9", "huber@1.0", "tweedie@1.5", "minkowski@3.0" |d|^3,
        "hit@0.5" and "either@0.5" whether both, or one at least, of y and p reach it. Here d = p - y. "^2" behind any asks
        for its square: for standard errors of rows without weights.
    domain : {"real", "log1p", "positive_pred", "nonnegative", "positive"}
        What the columns may hold: any number; above -1; a prediction above 0 and a target of any sign, of at least 0,
        or above 0.
    num_outputs : int, optional
        Rows of so many targets and predictions.

    Notes
    -----
    d and each term are computed in float64, every operation rounded once; the sum is a superaccumulator, without
    rounding, so order does not matter. 552 bytes a term and output.
    """

    terms: tuple[str, ...] = union(default=("absolute",))
    domain: str = setting(default="real", choices=tuple(DOMAINS))
    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)

    sums = Flat("terms", "outputs", form="exact")
    skipped = Flat("terms", "outputs")

    def __post_init__(self) -> None:
        for term in self.terms:
            parsed(term)
        super().__post_init__()

    @property
    def outputs(self) -> int:
        """How many targets a row has."""
        return self.num_outputs or 1

    def needs(self) -> tuple[Need, ...]:
        powers = [k for name, k in map(parsed, self.terms) if name == "tweedie"]
        squares = any(term.endswith(SQUARE) for term in self.terms)
        most, room = (SQUARED, 450) if squares else (OCTAVES, 900)
        octaves = min([most, *(int(room / (1 + max(abs(1 - k), abs(2 - k)))) for k in powers)])
        octaves = min([octaves, *(int(room / k) - 2 for name, k in map(parsed, self.terms) if name == "minkowski")])
        columns = [
            number(role, octaves=octaves, **limit)
            for role, limit in zip(("y_true", "y_pred"), DOMAINS[self.domain], strict=True)
        ]
        if self.num_outputs is not None:
            columns = [matrix(need, self.num_outputs) for need in columns]
        return (*columns, weight())

    def steps(self, like: Like) -> Iterable[Step]:
        own, limits = type(self), self.limits(like, len(self.terms))
        return [self.step(like, limits, *self.counts(like), own.sums, own.skipped)]

    def step(self, like: Like, limits: NDArray[np.float64], *into: Any) -> Step:
        """The step that adds terms to these parts: rows, weight, sums, rows that are left out."""
        named = [parsed(term) for term in self.terms]
        terms = np.array([TERMS.index(name) for name, _ in named], np.int64)
        terms[[term.endswith(SQUARE) for term in self.terms]] += OFFSET
        numbers = [rounded_to(k, like) if name in ("hit", "either") else k for name, k in named]
        how = self.outputs, terms, np.array(numbers, np.float64), limits
        columns = "y_true", "y_pred", "sample_weight", "at"
        return Step("row_sums:sum_losses", *columns, *how, *into, checks=len(limits) > 0)

    def check(self) -> None:
        check_losses(self, self.terms, weight_of(self, "rows")[..., None])
        sums = dict(zip(self.terms, np.moveaxis(self.flat("sums"), 1, 0), strict=True))
        for term, either in ((t, t.replace("hit", "either")) for t in sums if parsed(t)[0] == "hit"):
            if either in sums and not all_within(sums[term], sums[either]):
                raise StateFormatError(f"RegressionSums.sums holds more of {term} than of {either}")
        if (self.flat("skipped") > self.flat("rows")[..., None, None]).any():
            raise StateFormatError("RegressionSums.skipped counts more rows than there are")

    def facts(self) -> dict[str, Any]:
        seen = super().facts()
        return seen | ({"skipped": self.left_out} if {*LEFT_OUT} & {*self.terms} else {})

    @property
    def left_out(self) -> int:
        """Rows whose target is 0, of all outputs."""
        return int(self.skipped[next(i for i, term in enumerate(self.terms) if term in LEFT_OUT)].sum())

    def total(self, term: str, output: int = 0) -> Fraction:
        """The weighted sum of one term of one output; exact over the rounded terms."""
        return exact_to_fraction(self.sums[self.terms.index(term), output])

    def spread_of(self, term: str, output: int = 0, *, per: str | None = None) -> Spread | None:
        """The mean of a term and its variance; None if rows are weighted, or the squares were not counted.

        Parameters
        ----------
        term : str
            What is averaged.
        output : int
            Of which output.
        per : {"nonzero"}, optional
            A second term, 0 or 1, without which the first is 0: its mean comes second.
        """
        if self.excess is not None or square_of(term) not in self.terms:
            return None
        total, square, rows = self.total(term, output), self.total(square_of(term), output), self.weight()
        if per is None:
            return spread(rows, [total], {(-1, -1): rows, (-1, 0): total, (0, 0): square})
        some = self.total(per, output)
        products = {(-1, -1): rows, (-1, 0): total, (-1, 1): some, (0, 0): square, (0, 1): total, (1, 1): some}
        return spread(rows, [total, some], products)


def check_losses(state: State, terms: tuple[str, ...], weight: RowWeight) -> None:
    """Raise unless the sums of losses of all cells are such as rows of this weight can have."""
    sums = state.flat("sums")
    for i, (name, _) in enumerate(map(parsed, terms)):
        most, signed = 1 if name in SHARES else LARGEST, name == "signed_relative"
        if weight.fall_short(sums[..., i, :, :], most, signed=signed):
            raise StateFormatError(
                f"{type(state).__name__}.sums holds a sum of {name} that rows of this weight cannot have"
            )


def rounded_to(threshold: float, like: Like) -> float:
    """A threshold as it is in the dtype of the columns, of two in the narrower one."""
    role = min(("y_true", "y_pred"), key=lambda role: like.dtype(role).itemsize)
    return float(rounded((threshold,), like.source(role), like.dtype(role))[0])


def square_of(term: str) -> str:
    """Return the term that is the square of one."""
    return "squared" if term == "absolute" else term + SQUARE


def parsed(term: str) -> tuple[str, float]:
    """Return the name of a term and its parameter, or raise naming those there are."""
    name, _, parameter = term.removesuffix(SQUARE).partition("@")
    try:
        if (name in PLAIN and not parameter) or (name in WITH_PARAMETER and np.isfinite(float(parameter))):
            return name, float(parameter or 0.0)
    except ValueError:  # a parameter that is no number: said below
        pass
    known = ", ".join([*PLAIN, *(f"{n}@1.5" for n in WITH_PARAMETER)])
    raise ValueError(f"RegressionSums has no term {term!r}; there are {known}")
