"""Sums over queries of measures of each, with the squares that standard errors need."""

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
from ..numerics.exact import FRACTION_BITS, UNIT, carry_fixed, exact_to_fraction, fixed_to_int, of_units, whole
from ..numerics.settings import union
from ..state.consistency import all_within, weight_of
from ..state.declare import Flat, lost
from ..state.state import State
from .covariance import Spread, spread
from .step import NOTHING, Like, Step

__all__ = ["ALL", "QuerySums", "listed", "owners", "parts", "term", "unmasked"]

Ints = NDArray[np.int64]

ALL = 1 << 40  # the cut-off of a measure without one


def term(measure: str, k: int | None = None, parameter: float | None = None) -> str:
    """Spell a measure, its cut-off and its parameter as a state reads it: "ndcg@10", "rbp:0.8"."""
    return measure + (f"@{k}" if k is not None else "") + (f":{parameter!r}" if parameter is not None else "")


@lru_cache(maxsize=1024)
def parts(spelled: str) -> tuple[str, int, float]:
    """Read what `term` spelled: the measure, its cut-off, its parameter."""
    head, _, parameter = spelled.partition(":")
    measure, _, k = head.partition("@")
    return measure, int(k) if k else ALL, float(parameter) if parameter else 0.0


def owners(starts: Ints, n: int) -> Ints:
    """The query of each row."""
    return np.repeat(np.arange(len(starts)), np.diff(starts, append=n))


def listed(columns: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Which rows are of documents, or items, that were returned."""
    there = np.ones(len(columns["y_score"].values), bool)
    for name in ("retrieved", "mask"):
        there &= columns[name].values == 1 if name in columns else True
    return there


def unmasked(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Made-up columns without a masked row: in one values do not matter, bad ones included."""
    return columns | ({"mask": np.ones_like(columns["mask"])} if "mask" in columns else {})


class QuerySums(State):
    """Exact sums over queries of what measures say of each; queries with and without a relevant document.

    A state says in `measures` which there are, in `unbounded` which of them are no shares of something, and makes of
    checked columns what they say (`derive`): "values", one after the other by query; "facts", five of each query (see
    `kernels.query_sums`); and "starts", the first row of each.
    """

    measures: ClassVar[tuple[str, ...]] = ()
    unbounded: ClassVar[tuple[str, ...]] = ()
    """Summed exactly, in superaccumulators."""
    signed: ClassVar[tuple[str, ...]] = ()
    """Of these, those that may be negative."""
    never_beyond: ClassVar[dict[str, str]] = {}
    """Measures that are never more, in any query, than another one without a cut-off."""

    terms: tuple[str, ...] = union(default=())

    rows = Flat(2, 2)
    queries = Flat(2)
    excess = Flat(2, form="fixed", beside="queries")
    sums = Flat("terms", form="fixed")
    large = Flat("terms", form="exact", optional=True)
    squares = Flat("terms", form="square")
    large_squares = Flat("terms", form="exact", optional=True)
    w2 = Flat(2, form="square", like="queries")
    w2x = Flat("terms", form="square", like="sums")
    more_w2x = Flat("terms", form="exact", optional=True)

    together = "query"

    def __post_init__(self) -> None:
        for spelled in self.terms:
            if parts(spelled)[0] not in self.measures:
                raise ValueError(
                    f"{type(self).__name__} has no measure {parts(spelled)[0]!r}; there are {', '.join(self.measures)}"
                )
        super().__post_init__()

    def _has(self, *measures: str) -> bool:
        return any(parts(t)[0] in measures for t in self.terms)

    def _anywhere(self, measure: str) -> bool:
        """Whether a query without a relevant document may have something of a measure."""
        return False

    @staticmethod
    def _twice(columns: Any, name: str) -> int | None:
        """The first row whose name a row of the same query before it has, in a column of names; None without."""
        query, names = columns["query"], columns[name].values
        assert isinstance(query, IdColumn)
        starts = query.starts
        order = np.lexsort([names, owners(starts, len(names))])
        same = names[order[1:]] == names[order[:-1]]
        same[starts[1:] - 1] = False
        return int(order[1:][same].min()) if same.any() else None

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        unbounded = np.array([parts(t)[0] in self.unbounded for t in self.terms], np.int64)
        exact, heavy = bool(unbounded.any()), like.weighted or "w2" in like.present
        into: list[Any] = [own.rows, own.queries, own.excess if like.weighted else NOTHING, own.sums]
        into += [own.large if exact else NOTHING, own.squares, own.large_squares if exact else NOTHING]
        into += [own.w2, own.w2x] if heavy else [NOTHING, NOTHING]
        into += [own.more_w2x if exact and like.weighted else NOTHING]
        return [Step("query_sums:add", "values", "facts", "sample_weight", "at", "starts", unbounded, *into)]

    def check(self) -> None:
        weight, held = weight_of(self, "queries"), self.cells.flats
        some, both = weight[..., 0], weight.sum(-1)
        if (both.rows > self.flat("rows").sum(axis=(-1, -2))).any():
            raise StateFormatError(f"{type(self).__name__} has more queries than rows")
        for i, (measure, _, _) in enumerate(map(parts, self.terms)):
            unbounded = measure in self.unbounded
            enough = both if self._anywhere(measure) else some
            wrong = enough.fall_short(held["sums"][..., i, :], 0 if unbounded else 1 + 2.0**-40)
            if "large" in held:
                most = math.inf if unbounded else 0
                wrong |= both.fall_short(held["large"][..., i, :], most, signed=measure in self.signed)
            if wrong:
                raise StateFormatError(f"{type(self).__name__} holds a sum of {measure} that these queries cannot have")
        if "large_squares" in held and (held["large_squares"][..., -1] < 0).any():
            raise StateFormatError(f"{type(self).__name__}.large_squares holds a negative sum of squares")
        self._check_pairs()

    def _check_pairs(self) -> None:
        """Raise if a sum is beyond that of what it is never beyond, as hits beyond relevant documents."""
        for i, (measure, _, parameter) in enumerate(map(parts, self.terms)):
            most = term(self.never_beyond.get(measure, ""), None, parameter or None)
            if most in self.terms and not self._within(measure, i, self.terms.index(most)):
                raise StateFormatError(f"{type(self).__name__} holds more of {measure} than of {most}")

    def _within(self, measure: str, less: int, more: int) -> bool:
        """Whether no sum of one term is beyond that of another."""
        if measure in self.unbounded:
            large = self.cells.flats.get("large")
            return large is None or all_within(large[:, less], large[:, more])
        left = self.cells.flats["sums"][:, more] - self.cells.flats["sums"][:, less]
        carry_fixed(left)
        return not (left[..., 0] < 0).any()

    @property
    def positives_seen(self) -> NDArray[np.int64]:
        return np.asarray(self.flat("rows")[..., 1].sum(axis=1))

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
    def stacks(self) -> bool:
        return not any(measure in self.unbounded for measure, _, _ in map(parts, self.terms))

    def weight(self, *, empty: bool = False) -> Fraction:
        """Queries with a relevant document, or those without; or their total weight; exact."""
        return of_units(self._units(int(empty)))  # type: ignore[no-any-return]

    def total(self, measure: str, k: int | None = None, parameter: float | None = None) -> Fraction:
        """The weighted sum of a measure over queries; exact over the values of the queries."""
        i = self.terms.index(term(measure, k, parameter))
        if measure not in self.unbounded:
            return of_units(fixed_to_int(self.sums[i]))  # type: ignore[no-any-return]
        return exact_to_fraction(self.large[i]) if self.large is not None else Fraction(0)

    def square(self, measure: str, k: int | None = None, parameter: float | None = None) -> Fraction | None:
        """The sum over queries of (w x)^2 of a measure; None if it is lost."""
        i = self.terms.index(term(measure, k, parameter))
        if measure in self.unbounded:
            return exact_to_fraction(self.large_squares[i]) if self.large_squares is not None else Fraction(0)
        return kept(self.squares[i])

    def weight_squared(self, *, empty: bool = False) -> Fraction | None:
        """The sum of w^2 over queries with a relevant document, or without; None if it is lost."""
        return kept(self.w2[int(empty)]) if self.w2 is not None else Fraction(int(self.queries[int(empty)]))

    def product(self, measure: str, k: int | None = None, parameter: float | None = None) -> Fraction | None:
        """The sum over queries of w^2 x of a measure; None if it is lost."""
        i = self.terms.index(term(measure, k, parameter))
        if measure in self.unbounded:
            more = exact_to_fraction(self.more_w2x[i]) if self.more_w2x is not None else 0
            return self.total(measure, k, parameter) + more
        return kept(self.w2x[i]) if self.w2x is not None else self.total(measure, k, parameter)

    def spread_of(
        self, empty: float | None, measure: str, k: int | None = None, parameter: float | None = None
    ) -> Spread:
        """The mean of a measure over queries, and its variance.

        Parameters
        ----------
        empty : float or None
            What queries without a relevant document count; None if they are left out.
        measure, k, parameter
            As for `total`.
        """
        labels = (0,) if empty is None else (0, 1)
        weight = sum(self._units(i) for i in labels)
        squared = weight if self.w2 is None else sum(fixed_to_int(self.w2[i]) for i in labels)
        gone: Any = False if self.w2 is None else lost(self.w2[0]) | lost(self.w2[1])
        more, more_squared = 0, 0
        if empty:  # then these queries count nothing else
            more, more_squared = self._units(1), self._units(1) if self.w2 is None else fixed_to_int(self.w2[1])
        i = self.terms.index(term(measure, k, parameter))
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
            gone = gone | lost(self.squares[i]) | (False if self.w2x is None else lost(self.w2x[i]))
        products = {(-1, -1): squared, (-1, 0): crossed + more_squared, (0, 0): square + more_squared}
        return spread(weight, [total + more], products, gone, UNIT)

    def spread_within(self, empty: float | None, which: tuple[Any, ...], of: tuple[Any, ...]) -> Spread:
        """The mean of a measure over the queries in which another one is 1, and its variance.

        Parameters
        ----------
        empty : float or None
            What the others count, in which both are 0; None if they are left out.
        which, of : tuple
            The two measures, each as `total` takes it.
        """
        found = self.product(*which), self.product(*of), self.square(*of)
        squared = self.weight_squared(), self.weight_squared(empty=True)
        gone = None in (*found, *squared)
        inside, x, xx, *every = (Fraction(0) if n is None else n for n in (*found, *squared))
        weight, total = self.total(*which), self.total(*of)
        if empty is not None:
            others, others_squared = self.weight() + self.weight(empty=True) - weight, sum(every) - inside
            weight, inside, total = weight + others, inside + others_squared, total + int(empty) * others
            x, xx = x + int(empty) * others_squared, xx + int(empty) * others_squared
        return spread(weight, [total], {(-1, -1): inside, (-1, 0): x, (0, 0): xx}, gone)

    def _units(self, i: int) -> Any:
        """What queries with (0) or without (1) a relevant document weigh, in units of 2**-60."""
        units = whole(self.queries[i]) << FRACTION_BITS
        return units if self.excess is None else units + fixed_to_int(self.excess[i])


def kept(number: Ints) -> Fraction | None:
    """A sum that may have been lost."""
    return None if lost(number) else Fraction(fixed_to_int(number), UNIT)
