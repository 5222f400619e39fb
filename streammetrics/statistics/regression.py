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
from .weighted_rows import WeightedRows

__all__ = ["RegressionSums", "check_losses", "squared_term"]

TERMS = (
    "absolute", "squared", "target", "nonzero", "relative", "guarded", "symmetric", "log_squared", "pinball", "huber",
    "tweedie", "log_cosh", "signed_relative", "minkowski", "hit", "either", "below",
)  # fmt: skip
"""The terms in the order in which kernels number them."""
WITH_PARAMETER = ("pinball", "huber", "tweedie", "minkowski", "hit", "either")
PLAIN = tuple(term for term in TERMS if term not in WITH_PARAMETER)
# These terms are 0 or 1.
SHARES = ("nonzero", "hit", "either", "below")
# These terms leave out rows with a target of 0.
LEFT_OUT = ("relative", "signed_relative")
# Any term of numbers that pass the column check is smaller than this.
LARGEST = 2.0**992
SQUARE = "^2"
# The kernel number of the square of a term is the number of the term plus OFFSET.
OFFSET = 32
# If numbers lie within 2**-240 and 2**240, squares of losses do not overflow float64.
SQUARED = 240
DOMAINS: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "real": ({}, {}),
    "log1p": ({"above": -1.0}, {"above": -1.0}),
    "positive_pred": ({}, {"above": 0.0}),
    "nonnegative": ({"low": 0.0}, {"above": 0.0}),
    "positive": ({"above": 0.0}, {"above": 0.0}),
}
"""The limits of target and prediction in each domain."""


class RegressionSums(WeightedRows, tag="regression_sums"):
    """Exact sums of losses over rows of a target and a prediction.

    Parameters
    ----------
    terms : tuple of str
        The terms whose weighted sums are kept, with d = p - y: "absolute" |d|, "squared" d^2, "target" |y|, "nonzero"
        [y != 0], "relative" |d / y| for y != 0, "guarded" |d| / max(|y|, 2^-52), "symmetric" 2 |d| / (|y| + |p|),
        "log_squared" (log(1 + p) - log(1 + y))^2, "log_cosh" log(cosh(d)), "signed_relative" d / |y| for y != 0, "below"
        [y <= p]. With a parameter: "pinball@0.9", "huber@1.0", "tweedie@1.5", "minkowski@3.0" |d|^3, "hit@0.5" and
        "either@0.5", whether both or at least one of y and p reach the threshold. The suffix "^2" stands for the square of
        a term, for standard errors of rows without weights.
    domain : {"real", "log1p", "positive_pred", "nonnegative", "positive"}
        The range of the columns: "real", any number; "log1p", above -1; for the others the prediction is above 0, and the
        target is of any sign ("positive_pred"), at least 0 ("nonnegative") or above 0 ("positive").
    num_outputs : int, optional
        The number of targets and predictions of a row.

    Notes
    -----
    d and each term are computed in float64. Sums are superaccumulators without rounding, so the order of rows does not
    matter. A term takes 552 bytes per output.
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
        # The range of numbers is limited, so that no power, product or square in a term overflows or underflows a
        # float64.
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
        """Return the kernel step that adds the terms of rows to these parts: rows, weight, sums and skipped rows."""
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
                raise StateFormatError(f"RegressionSums.sums holds more of {term} than of {either}")
        if (self.read_cells_named("skipped") > self.read_cells_named("rows")[..., None, None]).any():
            raise StateFormatError("RegressionSums.skipped counts more rows than there are")

    def facts(self) -> dict[str, Any]:
        facts = super().facts()
        return facts | ({"skipped": self.skipped_rows} if {*LEFT_OUT} & {*self.terms} else {})

    @property
    def skipped_rows(self) -> int:
        """The number of rows with a target of 0, summed over all outputs."""
        return int(self.skipped[next(i for i, term in enumerate(self.terms) if term in LEFT_OUT)].sum())

    def total(self, term: str, output: int = 0) -> Fraction:
        """Return the weighted sum of one term of one output, exact over the rounded terms."""
        return exact_to_fraction(self.sums[self.terms.index(term), output])

    def estimate_means(self, term: str, output: int = 0, *, per: str | None = None) -> MeanEstimates | None:
        """Estimate the mean of a term and its variance; None if rows have weights or the state has no squares of the term.

        Parameters
        ----------
        term : str
            The term to average.
        output : int
            The number of the output.
        per : {"nonzero"}, optional
            A second term with values 0 and 1, which is 1 in every row where the first term is not 0. Its mean is estimated
            too, as the second of two.
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
    """Raise StateFormatError if rows of this weight cannot have the sums of losses of a cell."""
    sums = state.read_cells_named("sums")
    for i, (name, _) in enumerate(map(parse_loss, terms)):
        most, signed = 1 if name in SHARES else LARGEST, name == "signed_relative"
        if weight.is_exceeded_by(sums[..., i, :, :], most, signed=signed):
            raise StateFormatError(
                f"{type(state).__name__}.sums holds a sum of {name} that rows of this weight cannot have"
            )


def round_threshold(threshold: float, like: Like) -> float:
    """Round a threshold to the dtype of target and prediction; if their dtypes differ, to the narrower one."""
    role = min(("y_true", "y_pred"), key=lambda role: like.dtype(role).itemsize)
    return float(round_thresholds((threshold,), like.source(role), like.dtype(role))[0])


def squared_term(term: str) -> str:
    """Return the name of the term that is the square of this term."""
    return "squared" if term == "absolute" else term + SQUARE


def parse_loss(term: str) -> tuple[str, float]:
    """Return the name and the parameter of a term, or raise an error that lists the valid terms."""
    name, _, parameter = term.removesuffix(SQUARE).partition("@")
    try:
        if (name in PLAIN and not parameter) or (name in WITH_PARAMETER and np.isfinite(float(parameter))):
            return name, float(parameter or 0.0)
    # A ValueError means that the parameter is not a number.
    except ValueError:
        pass
    known = ", ".join([*PLAIN, *(f"{n}@1.5" for n in WITH_PARAMETER)])
    raise ValueError(f"RegressionSums has no term {term!r}; there are {known}")
