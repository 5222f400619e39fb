"""Exact sums of ranking measures over queries, and the sums of squares needed for their standard errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..batch.ids import IdColumn
from ..errors import StateFormatError
from ..numerics.exact import (
    FRACTION_BITS,
    UNIT,
    carry_fixed,
    exact_to_fraction,
    fixed_to_int,
    to_python_int,
    units_to_fraction,
)
from ..numerics.settings import union
from ..state.consistency import are_within, read_row_weight
from ..state.declare import Flat, is_saturated
from ..state.state import State
from .covariance import MeanEstimates, estimate_means
from .step import NOTHING, Like, Step
from .terms import find_term

__all__ = ["NO_CUTOFF", "QuerySums", "format_term", "mask_retrieved", "parse_term", "query_numbers", "with_full_mask"]

Ints = NDArray[np.int64]

# The cut-off of measures that use the whole ranking. No ranking is this long.
NO_CUTOFF = 1 << 40


def format_term(measure: str, k: int | None = None, parameter: float | None = None) -> str:
    """Return the name of a term: the measure with its cut-off and its parameter, such as "ndcg@10" or "rbp:0.8"."""
    return measure + (f"@{k}" if k is not None else "") + (f":{parameter!r}" if parameter is not None else "")


@lru_cache(maxsize=1024)
def parse_term(text: str) -> tuple[str, int, float]:
    """Split a term into measure, cut-off and parameter: "ndcg@10" becomes ("ndcg", 10, 0.0).

    A term without a cut-off has the cut-off NO_CUTOFF.
    """
    head, _, parameter = text.partition(":")
    measure, _, k = head.partition("@")
    return measure, int(k) if k else NO_CUTOFF, float(parameter) if parameter else 0.0


def query_numbers(starts: Ints, n: int) -> Ints:
    """Return the query index of each of `n` rows.

    `starts` contains the index of the first row of each query.
    """
    return np.repeat(np.arange(len(starts)), np.diff(starts, append=n))


def mask_retrieved(columns: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return a mask of the rows that count as retrieved.

    A row counts as retrieved unless it has a 0 in the optional column `retrieved` or `mask`.
    """
    there = np.ones(len(columns["y_score"].values), bool)
    for name in ("retrieved", "mask"):
        there &= columns[name].values == 1 if name in columns else True
    return there


def with_full_mask(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return synthetic test columns with the column `mask` set to 1 in every row.

    Tests insert invalid values and expect an error, but values in rows with a 0 in `mask` are not checked.
    """
    return columns | ({"mask": np.ones_like(columns["mask"])} if "mask" in columns else {})


class QuerySums(State):
    """The base class for states with exact sums of measures over queries.

    The state also keeps the weights of the queries with and without a relevant document. A subclass lists its measures
    in `measures`. Its `derive_columns` computes three columns:

    - "values": the measures of the first query, then those of the second query, and so on.
    - "facts": five integers for each query. The first four are the numbers of documents that are retrieved and
      irrelevant, retrieved and relevant, not retrieved and irrelevant, and not retrieved and relevant. The fifth is 1
      if the query has no relevant document, else 0.
    - "starts": the index of the first row of each query.
    """

    measures: ClassVar[tuple[str, ...]] = ()
    unbounded: ClassVar[tuple[str, ...]] = ()
    """The measures that may exceed 1; they are summed exactly in superaccumulators."""
    signed: ClassVar[tuple[str, ...]] = ()
    """The unbounded measures that may be negative."""
    upper_measures: ClassVar[dict[str, str]] = {}
    """Maps a measure to another measure, without a cut-off, that is at least as large in every query.

    For example, "hits" maps to "relevant". The sums of a state read from bytes are checked against these bounds.
    """

    terms: tuple[str, ...] = union(default=())

    rows = Flat(2, 2)
    queries = Flat(2)
    excess = Flat(2, form="fixed", excess_of="queries")
    sums = Flat("terms", form="fixed")
    large = Flat("terms", form="exact", optional=True)
    squares = Flat("terms", form="square")
    large_squares = Flat("terms", form="exact", optional=True)
    w2 = Flat(2, form="square", like="queries")
    w2x = Flat("terms", form="square", like="sums")
    more_w2x = Flat("terms", form="exact", optional=True)

    block_column = "query"

    def __post_init__(self) -> None:
        for term in self.terms:
            if parse_term(term)[0] not in self.measures:
                raise ValueError(
                    f"{type(self).__name__} has no measure {parse_term(term)[0]!r}; choose from "
                    f"{', '.join(self.measures)}"
                )
        super().__post_init__()

    def _has_measure(self, *measures: str) -> bool:
        return any(parse_term(t)[0] in measures for t in self.terms)

    def _counts_without_relevant(self, measure: str) -> bool:
        """Return whether a measure can be nonzero in a query that has no relevant document."""
        return False

    @staticmethod
    def _find_repeated_name(columns: Any, name: str) -> int | None:
        """Return the index of the first row whose value in the column `name` already occurs in the same query.

        The result is None if no value is repeated.
        """
        query, names = columns["query"], columns[name].values
        assert isinstance(query, IdColumn)
        starts = query.starts
        order = np.lexsort([names, query_numbers(starts, len(names))])
        is_repeated = names[order[1:]] == names[order[:-1]]
        is_repeated[starts[1:] - 1] = False
        return int(order[1:][is_repeated].min()) if is_repeated.any() else None

    def steps(self, like: Like) -> Iterable[Step]:
        # The kernel receives an empty array in place of sums that are not needed. Sums of terms that can exceed 1 are
        # needed only if there are such terms. Sums with squared weights are needed from the first batch with weights.
        own = type(self)
        unbounded = np.array([parse_term(t)[0] in self.unbounded for t in self.terms], np.int64)
        exact, heavy = bool(unbounded.any()), like.has_weights or "w2" in like.present
        into: list[Any] = [own.rows, own.queries, own.excess if like.has_weights else NOTHING, own.sums]
        into += [own.large if exact else NOTHING, own.squares, own.large_squares if exact else NOTHING]
        into += [own.w2, own.w2x] if heavy else [NOTHING, NOTHING]
        into += [own.more_w2x if exact and like.has_weights else NOTHING]
        return [Step("query_sums:add_queries", "values", "facts", "sample_weight", "at", "starts", unbounded, *into)]

    def check(self) -> None:
        weight, flats = read_row_weight(self, "queries"), self.cells.flats
        with_relevant, all_queries = weight[..., 0], weight.sum(-1)
        if (all_queries.rows > self.read_cells_named("rows").sum(axis=(-1, -2))).any():
            raise StateFormatError(f"the state is corrupt: {type(self).__name__} has more queries than rows")
        for i, (measure, _, _) in enumerate(map(parse_term, self.terms)):
            unbounded = measure in self.unbounded
            possible = all_queries if self._counts_without_relevant(measure) else with_relevant
            wrong = possible.is_exceeded_by(flats["sums"][..., i, :], 0 if unbounded else 1 + 2.0**-40)
            if "large" in flats:
                most = math.inf if unbounded else 0
                wrong |= all_queries.is_exceeded_by(flats["large"][..., i, :], most, signed=measure in self.signed)
            if wrong:
                raise StateFormatError(
                    f"the state is corrupt: a sum of {measure} in {type(self).__name__} is impossible for the "
                    f"weight of its queries"
                )
        if "large_squares" in flats and (flats["large_squares"][..., -1] < 0).any():
            raise StateFormatError(
                f"the state is corrupt: {type(self).__name__}.large_squares contains a negative sum of squares"
            )
        self._check_pairs()

    def _check_pairs(self) -> None:
        """Raise StateFormatError if a sum exceeds its upper bound, as when hits outnumber relevant documents.

        The upper bound of a sum is the sum of another measure (see `upper_measures`).
        """
        for i, (measure, _, parameter) in enumerate(map(parse_term, self.terms)):
            most = format_term(self.upper_measures.get(measure, ""), None, parameter or None)
            if most in self.terms and not self._is_within(measure, i, self.terms.index(most)):
                raise StateFormatError(
                    f"the state is corrupt: the sum of {measure} in {type(self).__name__} exceeds the sum of {most}"
                )

    def _is_within(self, measure: str, less: int, more: int) -> bool:
        """Return whether, in every cell (such as a slice), the sum of term `less` is at most that of term `more`."""
        if measure in self.unbounded:
            large = self.cells.flats.get("large")
            return large is None or are_within(large[:, less], large[:, more])
        left = self.cells.flats["sums"][:, more] - self.cells.flats["sums"][:, less]
        carry_fixed(left)
        return not (left[..., 0] < 0).any()

    @property
    def positive_counts(self) -> NDArray[np.int64]:
        return np.asarray(self.read_cells_named("rows")[..., 1].sum(axis=1))

    def facts(self) -> dict[str, Any]:
        return {
            "rows": int(self.rows.sum()),
            "positives": int(self.rows[:, 1].sum()),
            "documents": int(self.rows[0].sum()),
            "queries": int(self.queries.sum()),
            "empty": int(self.queries[1]),
            "weight": self.weight() + self.weight(empty=True),
        }

    @property
    def can_vectorize(self) -> bool:
        return not any(measure in self.unbounded for measure, _, _ in map(parse_term, self.terms))

    def weight(self, *, empty: bool = False) -> Fraction:
        """Return the exact weight of the queries with a relevant document; if `empty` is true, of the other queries."""
        return units_to_fraction(self._weight_units(int(empty)))  # type: ignore[no-any-return]

    def total(self, measure: str, k: int | None = None, parameter: float | None = None) -> Fraction:
        """Return the weighted sum of a measure over queries. Only the value of each query is rounded, not the sum."""
        i = find_term(self, format_term(measure, k, parameter))
        if measure not in self.unbounded:
            return units_to_fraction(fixed_to_int(self.sums[i]))  # type: ignore[no-any-return]
        return exact_to_fraction(self.large[i]) if self.large is not None else Fraction(0)

    def square(self, measure: str, k: int | None = None, parameter: float | None = None) -> Fraction | None:
        """Return the sum over queries of (w * x)^2, for weight w and measure x; None if the sum overflowed."""
        i = find_term(self, format_term(measure, k, parameter))
        if measure in self.unbounded:
            return exact_to_fraction(self.large_squares[i]) if self.large_squares is not None else Fraction(0)
        return read_square(self.squares[i])

    def weight_squared(self, *, empty: bool = False) -> Fraction | None:
        """Return the sum of the squared weights of the queries with a relevant document; None if the sum overflowed.

        If `empty` is true, the sum is over the queries without a relevant document instead.
        """
        return read_square(self.w2[int(empty)]) if self.w2 is not None else Fraction(int(self.queries[int(empty)]))

    def product(self, measure: str, k: int | None = None, parameter: float | None = None) -> Fraction | None:
        """Return the sum over queries of w^2 * x, for weight w and measure x; None if the sum overflowed."""
        i = find_term(self, format_term(measure, k, parameter))
        if measure in self.unbounded:
            more = exact_to_fraction(self.more_w2x[i]) if self.more_w2x is not None else 0
            return self.total(measure, k, parameter) + more
        return read_square(self.w2x[i]) if self.w2x is not None else self.total(measure, k, parameter)

    def estimate_means(
        self, empty: float | None, measure: str, k: int | None = None, parameter: float | None = None
    ) -> MeanEstimates:
        """Estimate the mean of a measure over queries, and the variance of this estimate.

        Parameters
        ----------
        empty : float or None
            The value (0 or 1) to use for queries without a relevant document; None leaves these queries out.
        measure, k, parameter
            As in `total`.
        """
        labels = (0,) if empty is None else (0, 1)
        weight = sum(self._weight_units(i) for i in labels)
        squared = weight if self.w2 is None else sum(fixed_to_int(self.w2[i]) for i in labels)
        overflowed: Any = False if self.w2 is None else is_saturated(self.w2[0]) | is_saturated(self.w2[1])
        more, more_squared = 0, 0
        # The sums contain the value 0 for queries without a relevant document. To give these queries the value 1
        # instead, add their weight.
        if empty:
            more, more_squared = (
                self._weight_units(1),
                self._weight_units(1) if self.w2 is None else fixed_to_int(self.w2[1]),
            )
        i = find_term(self, format_term(measure, k, parameter))
        if measure in self.unbounded:
            assert not empty
            numbers = (
                self.total(measure, k, parameter),
                self.product(measure, k, parameter),
                self.square(measure, k, parameter),
            )
            total, crossed, square = (x * UNIT for x in numbers if x is not None)
        else:
            total, square = fixed_to_int(self.sums[i]), fixed_to_int(self.squares[i])
            crossed = total if self.w2x is None else fixed_to_int(self.w2x[i])
            overflowed = (
                overflowed | is_saturated(self.squares[i]) | (False if self.w2x is None else is_saturated(self.w2x[i]))
            )
        products = {(-1, -1): squared, (-1, 0): crossed + more_squared, (0, 0): square + more_squared}
        return estimate_means(weight, [total + more], products, overflowed, UNIT)

    def estimate_means_within(self, empty: float | None, which: tuple[Any, ...], of: tuple[Any, ...]) -> MeanEstimates:
        """Estimate the mean of a measure over selected queries, and the variance of this estimate.

        Parameters
        ----------
        empty : float or None
            The value (0 or 1) to use for queries that are not selected; None leaves these queries out.
        which : tuple
            The measure that is 1 for selected queries and 0 for others, as a tuple of arguments of `total`.
        of : tuple
            The measure to average, as a tuple of arguments of `total`. It must be 0 for queries that are not selected.
        """
        found = self.product(*which), self.product(*of), self.square(*of)
        squared = self.weight_squared(), self.weight_squared(empty=True)
        overflowed = None in (*found, *squared)
        inside, x, xx, *every = (Fraction(0) if n is None else n for n in (*found, *squared))
        weight, total = self.total(*which), self.total(*of)
        if empty is not None:
            others, others_squared = self.weight() + self.weight(empty=True) - weight, sum(every) - inside
            weight, inside, total = weight + others, inside + others_squared, total + int(empty) * others
            x, xx = x + int(empty) * others_squared, xx + int(empty) * others_squared
        return estimate_means(weight, [total], {(-1, -1): inside, (-1, 0): x, (0, 0): xx}, overflowed)

    def _weight_units(self, i: int) -> Any:
        """Return the weight, in units of 2**-60, of the queries with (i = 0) or without (i = 1) a relevant document."""
        units = to_python_int(self.queries[i]) << FRACTION_BITS
        return units if self.excess is None else units + fixed_to_int(self.excess[i])


def read_square(number: Ints) -> Fraction | None:
    """Convert a stored sum of squares to a fraction; return None if the sum overflowed."""
    return None if is_saturated(number) else Fraction(fixed_to_int(number), UNIT)
