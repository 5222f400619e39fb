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
from ..state.consistency import RowWeight, are_within, read_row_weight
from ..state.declare import Flat
from ..state.state import State
from .covariance import MeanEstimates, estimate_means
from .decision_counts import round_thresholds
from .step import Like, Step
from .terms import find_term
from .weighted_rows import WeightedRows

__all__ = ["RegressionSums", "check_losses", "squared_term"]

TERMS = (
    "absolute", "squared", "target", "nonzero", "relative", "guarded", "symmetric", "log_squared", "pinball", "huber",
    "tweedie", "log_cosh", "signed_relative", "minkowski", "hit", "either", "below",
)  # fmt: skip
"""The names of all terms. Kernels identify a term by its index here."""
WITH_PARAMETER = ("pinball", "huber", "tweedie", "minkowski", "hit", "either")
PLAIN = tuple(term for term in TERMS if term not in WITH_PARAMETER)
# The value of these terms is 0 or 1 for every row.
SHARES = ("nonzero", "hit", "either", "below")
# These terms leave out rows with a target of 0.
LEFT_OUT = ("relative", "signed_relative")
# An upper bound on the value of any term. The bound holds because input checks limit the targets and predictions.
LARGEST = 2.0**992
SQUARE = "^2"
# Kernels identify the square of a term by the index of the term in TERMS plus OFFSET.
OFFSET = 32
# If squares of losses are summed, inputs must be 0 or between 2**-240 and 2**240 in absolute value, so that no square
# overflows or underflows float64.
SQUARED = 240
DOMAINS: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "real": ({}, {}),
    "log1p": ({"above": -1.0}, {"above": -1.0}),
    "positive_pred": ({}, {"above": 0.0}),
    "nonnegative": ({"low": 0.0}, {"above": 0.0}),
    "positive": ({"above": 0.0}, {"above": 0.0}),
}
"""For each domain, the lower bounds on the target and on the prediction: `above` is exclusive, `low` is inclusive."""


class RegressionSums(WeightedRows, tag="regression_sums"):
    """Exact sums of losses over rows, each with a target and a prediction.

    Parameters
    ----------
    terms : tuple of str
        The terms whose weighted sums are kept. They are functions of the target y, the prediction p and d = p - y:

        - "absolute": |d|
        - "squared": d^2
        - "target": |y|
        - "nonzero": 1 if y is not 0, else 0
        - "relative": |d / y|; rows with y = 0 are left out
        - "signed_relative": d / |y|; rows with y = 0 are left out
        - "guarded": |d| / max(|y|, 2^-52)
        - "symmetric": 2 * |d| / (|y| + |p|)
        - "log_squared": (log(1 + p) - log(1 + y))^2
        - "log_cosh": log(cosh(d))
        - "below": 1 if y <= p, else 0
        - "pinball@0.9", "huber@1.0", "tweedie@1.5": the losses of the same names, with the parameter after "@"
        - "minkowski@3.0": |d|^3
        - "hit@0.5": 1 if both y and p are at least 0.5, else 0
        - "either@0.5": 1 if y or p is at least 0.5, else 0

        The suffix "^2" denotes the square of a term. If rows have no weights, standard errors are computed from these
        squares.
    domain : {"real", "log1p", "positive_pred", "nonnegative", "positive"}
        The range of the columns. With "real", the columns can contain any numbers; with "log1p", numbers above -1. With
        the other domains, the prediction is above 0, and the target is any number ("positive_pred"), at least 0
        ("nonnegative") or above 0 ("positive").
    num_outputs : int, optional
        The number of targets and predictions per row.

    Notes
    -----
    The difference d and each term are computed in float64. The terms are then summed in superaccumulators, which do not
    round, so the order of rows does not matter. A term takes 552 bytes per output.
    """

    terms: tuple[str, ...] = union(default=("absolute",))
    domain: str = setting(default="real", choices=tuple(DOMAINS))
    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)

    sums = Flat("terms", "outputs", form="exact")
    skipped = Flat("terms", "outputs")

    def __post_init__(self) -> None:
        for term in self.terms:
            parse_loss(term)
        super().__post_init__()

    @property
    def outputs(self) -> int:
        """The number of targets per row."""
        return self.num_outputs or 1

    def needs(self) -> tuple[Need, ...]:
        # Limit the range of the numbers so that no power, product or square in a term overflows or underflows float64.
        powers = [k for name, k in map(parse_loss, self.terms) if name == "tweedie"]
        squares = any(term.endswith(SQUARE) for term in self.terms)
        most, room = (SQUARED, 450) if squares else (OCTAVES, 900)
        octaves = min([most, *(int(room / (1 + max(abs(1 - k), abs(2 - k)))) for k in powers)])
        octaves = min([octaves, *(int(room / k) - 2 for name, k in map(parse_loss, self.terms) if name == "minkowski")])
        columns = [
            number(role, octaves=octaves, **limit)
            for role, limit in zip(("y_true", "y_pred"), DOMAINS[self.domain], strict=True)
        ]
        if self.num_outputs is not None:
            columns = [matrix(need, self.num_outputs) for need in columns]
        return (*columns, weight())

    def steps(self, like: Like) -> Iterable[Step]:
        own, limits = type(self), self.value_limits(like, len(self.terms))
        return [self.loss_step(like, limits, *self.row_arguments(like), own.sums, own.skipped)]

    def loss_step(self, like: Like, limits: NDArray[np.float64], *into: Any) -> Step:
        """Return the kernel call that computes the terms of each row and adds them to the sums of a state.

        Parameters
        ----------
        like : Like
            The types of the columns.
        limits : float64 array
            The valid range of each column, from `value_limits`; empty if the kernel does not check values.
        *into
            The arrays of the state to which the kernel adds: the row count, the sum of (weight - 1), the sums of the
            terms, and the number of rows that each term leaves out.
        """
        named = [parse_loss(term) for term in self.terms]
        terms = np.array([TERMS.index(name) for name, _ in named], np.int64)
        terms[[term.endswith(SQUARE) for term in self.terms]] += OFFSET
        numbers = [round_threshold(k, like) if name in ("hit", "either") else k for name, k in named]
        how = self.outputs, terms, np.array(numbers, np.float64), limits
        columns = "y_true", "y_pred", "sample_weight", "at"
        return Step("row_sums:sum_losses", *columns, *how, *into, checks=len(limits) > 0)

    def check(self) -> None:
        check_losses(self, self.terms, read_row_weight(self, "rows")[..., None])
        sums = dict(zip(self.terms, np.moveaxis(self.read_cells_named("sums"), 1, 0), strict=True))
        for term, either in ((t, t.replace("hit", "either")) for t in sums if parse_loss(t)[0] == "hit"):
            if either in sums and not are_within(sums[term], sums[either]):
                raise StateFormatError(
                    f"the state is corrupt: the sum of {term} in RegressionSums exceeds the sum of {either}"
                )
        if (self.read_cells_named("skipped") > self.read_cells_named("rows")[..., None, None]).any():
            raise StateFormatError(
                "the state is corrupt: RegressionSums.skipped counts more rows than RegressionSums.rows"
            )

    def facts(self) -> dict[str, Any]:
        facts = super().facts()
        return facts | ({"skipped": self.skipped_rows} if {*LEFT_OUT} & {*self.terms} else {})

    @property
    def skipped_rows(self) -> int:
        """The number of targets that are 0, summed over all outputs; relative errors leave these targets out."""
        return int(self.skipped[next(i for i, term in enumerate(self.terms) if term in LEFT_OUT)].sum())

    def total(self, term: str, output: int = 0) -> Fraction:
        """Return the weighted sum of a term, such as "absolute"; `output` is the index of the target within each row.

        The term of each row is rounded, but the sum is exact.
        """
        return exact_to_fraction(self.sums[find_term(self, term), output])

    def estimate_means(self, term: str, output: int = 0, *, per: str | None = None) -> MeanEstimates | None:
        """Estimate the mean of a term and the variance of this mean.

        The result is None if rows have weights, or if the state does not keep the sum of squares of the term.

        Parameters
        ----------
        term : str
            The term to average.
        output : int
            The index of the output.
        per : {"nonzero"}, optional
            A second term, which is 1 in every row in which the first term is not 0, and 0 or 1 in other rows. The
            result then contains the means of both terms. Their ratio is the mean of the first term over the rows in
            which the second is 1.
        """
        if self.excess is not None or squared_term(term) not in self.terms:
            return None
        total, square, rows = self.total(term, output), self.total(squared_term(term), output), self.weight()
        if per is None:
            return estimate_means(rows, [total], {(-1, -1): rows, (-1, 0): total, (0, 0): square})
        some = self.total(per, output)
        products = {(-1, -1): rows, (-1, 0): total, (-1, 1): some, (0, 0): square, (0, 1): total, (1, 1): some}
        return estimate_means(rows, [total, some], products)


def check_losses(state: State, terms: tuple[str, ...], weight: RowWeight) -> None:
    """Raise StateFormatError if a sum of losses is too large for the weight of its rows."""
    sums = state.read_cells_named("sums")
    for i, (name, _) in enumerate(map(parse_loss, terms)):
        most, signed = 1 if name in SHARES else LARGEST, name == "signed_relative"
        if weight.is_exceeded_by(sums[..., i, :, :], most, signed=signed):
            raise StateFormatError(
                f"the state is corrupt: a sum of {name} in {type(state).__name__}.sums is impossible for the "
                f"weight of its rows"
            )


def round_threshold(threshold: float, like: Like) -> float:
    """Round a threshold to the dtype of the target or of the prediction, whichever is narrower."""
    role = min(("y_true", "y_pred"), key=lambda role: like.dtype(role).itemsize)
    return float(round_thresholds((threshold,), like.source(role), like.dtype(role))[0])


def squared_term(term: str) -> str:
    """Return the name of the square of a term."""
    return "squared" if term == "absolute" else term + SQUARE


def parse_loss(term: str) -> tuple[str, float]:
    """Split a term such as "huber@1.0" into its name and its parameter (0.0 if the term has none).

    If the term does not exist, raise a ValueError that lists the valid terms.
    """
    name, _, parameter = term.removesuffix(SQUARE).partition("@")
    try:
        if (name in PLAIN and not parameter) or (name in WITH_PARAMETER and np.isfinite(float(parameter))):
            return name, float(parameter or 0.0)
    # The parameter is not a number. The error below lists the valid terms.
    except ValueError:
        pass
    known = ", ".join([*PLAIN, *(f"{n}@1.5" for n in WITH_PARAMETER)])
    raise ValueError(f"RegressionSums has no term {term!r}; choose from {known}")
