"""Rankings: sums over queries of every measure of the order in which their documents are ranked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns.columns import COUNT, FLAG, SCORES, Column, Need, grade, score, weight
from ..columns.ids import IdColumn, name, query
from ..errors import StateFormatError
from ..numerics import compiled, elementary
from ..numerics.exact import FRACTION_BITS, UNIT, exact_to_fraction, fixed_to_int, of_units, whole
from ..numerics.settings import setting, union
from ..state.declare import Flat, lost
from ..state.state import State
from ..state.totals import all_within, weight_of
from .spread import Spread, spread
from .step import NOTHING, Like, Step

__all__ = ["RankingSums", "term"]

Array = NDArray[Any]
Ints = NDArray[np.int64]

MEASURES = (
    "cg", "dcg", "ndcg", "cg_exp", "dcg_exp", "ndcg_exp", "precision", "recall", "r_precision", "hits", "relevant",
    "hit", "mrr", "ap_min", "ap_relevant", "ap_hits", "err", "rbp",
)  # fmt: skip
UNBOUNDED = ("cg", "dcg", "cg_exp", "dcg_exp", "hits", "relevant")  # summed exactly, in superaccumulators
POWERS = ("cg_exp", "dcg_exp", "ndcg_exp", "err")  # they read 2^grade
GRADED = ("ndcg", "ndcg_exp", "err")  # they read grades, not relevance
DISCOUNTED = ("dcg", "ndcg", "dcg_exp", "ndcg_exp")
ALL = 1 << 40  # the cut-off of a measure without one
LONGEST = 1 << 24  # documents of a query
STEEPEST = 1000.0  # the highest grade whose power of two is summed
LN2 = 0.6931471805599453
ANY = 5e-324  # the lowest grade that is more than 0
BLOCK = 15_000  # keys sorted and read at a time: 120 kB, which stay in the cache, and malloc takes from no new pages
NO_INTS, NO_FLOATS, NO_FLAGS = np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.uint8)


def term(measure: str, k: int | None = None, parameter: float | None = None) -> str:
    """Spell a measure, its cut-off and its parameter as `RankingSums` reads it: "ndcg@10", "rbp:0.8"."""
    return measure + (f"@{k}" if k is not None else "") + (f":{parameter!r}" if parameter is not None else "")


@lru_cache(maxsize=1024)
def parts(spelled: str) -> tuple[str, int, float]:
    """Read what `term` spelled: the measure, its cut-off, its parameter."""
    head, _, parameter = spelled.partition(":")
    measure, _, k = head.partition("@")
    if measure not in MEASURES:
        raise ValueError(f"RankingSums has no measure {measure!r}; there are {', '.join(MEASURES)}")
    return measure, int(k) if k else ALL, float(parameter) if parameter else 0.0


class RankingSums(State, tag="ranking_sums"):
    """Exact sums over queries of measures of their ranking; queries with and without a relevant document.

    Parameters
    ----------
    terms : tuple of str
        The measures, each with its cut-off (see `term`); a collection keeps the union of what its metrics ask for.
    ties : {"average", "order", "document"}
        Equal scores: the mean over all orders of the documents; the order of their rows, or of the column `position` if
        there is one; by the column `document`, descending, as trec_eval does.
    relevance_level : float, optional
        The lowest grade that is relevant; by default any above 0.

    Notes
    -----
    One ranking of a query serves all measures and cut-offs. Each value of a query is computed in float64 and added as an
    integer: a multiple of 2**-60, or exactly where it may be any number; so is its square, a multiple of 2**-52. With
    weights there are w^2 and w^2 x, too: enough for standard errors. A lone state takes 100 bytes and 32 a term.
    """

    terms: tuple[str, ...] = union(default=())
    ties: str = setting(default="average", choices=("average", "order", "document"))
    relevance_level: float | None = setting(default=None, above=0.0)

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
            parts(spelled)
        super().__post_init__()

    @property
    def ordered(self) -> bool:
        return self.ties == "order"

    @property
    def _level(self) -> float:
        return ANY if self.relevance_level is None else self.relevance_level

    def _has(self, *measures: str) -> bool:
        return any(parts(t)[0] in measures for t in self.terms)

    def needs(self) -> tuple[Need, ...]:
        order = {"order": (Need("position", SCORES["real"], optional=True),), "document": (name(),), "average": ()}
        return (
            grade(),
            score(scale="real"),
            query(),
            *order[self.ties],
            replace(weight(), once=True),
            Need("relevant", COUNT, optional=True, once=True),
            Need("retrieved", FLAG, optional=True),
            Need("mask", FLAG, optional=True),
        )

    def contradiction(self, columns: Mapping[str, Any]) -> tuple[str, int, str] | None:
        grades, queries = columns["y_true"].values, columns["query"]
        assert isinstance(queries, IdColumn)
        starts = queries.starts
        if len(grades) and self._steepest < np.inf and grades.max() > self._steepest:
            row = int((grades > self._steepest).argmax())
            return "y_true", row, f"a grade above {self._steepest:g}, the limit of max_grade= or of 2**grade"
        lengths = np.diff(starts, append=len(grades))
        if len(lengths) and lengths.max() > LONGEST:
            return "query", int(starts[lengths.argmax()]), f"a query of more than {LONGEST:,} rows"
        if "relevant" in columns:
            found = np.add.reduceat(grades >= self._level, starts) if len(starts) else NO_INTS
            if (few := columns["relevant"].values[starts] < found).any():
                return "relevant", int(starts[few.argmax()]), "the query has more relevant rows than that"
        if "document" in columns:
            order = np.lexsort([columns["document"].values, self._owners(starts, len(grades))])
            same = columns["document"].values[order[1:]] == columns["document"].values[order[:-1]]
            same[starts[1:] - 1] = False
            if same.any():
                return "document", int(order[1:][same].min()), "the query has this document twice"
        return None

    @property
    def _steepest(self) -> float:
        """The highest grade that every term takes."""
        tops = [top for measure, _, top in map(parts, self.terms) if measure == "err"]
        return min([STEEPEST if self._has(*POWERS) else np.inf, *tops])

    def plausible(self, columns: dict[str, Array]) -> dict[str, Array]:
        made, n = dict(columns), len(columns["query"])
        starts = IdColumn(columns["query"], "integer").starts
        of_row = self._owners(starts, n)
        if "mask" in made:  # elsewhere values do not matter, bad ones included
            made["mask"] = np.ones_like(made["mask"])
        if "document" in made:
            made["document"] = np.arange(n, dtype=np.int64) * 7 % 11 * n + np.arange(n)
        if "relevant" in made and n:
            found = np.add.reduceat(made["y_true"] >= self._level, starts)
            made["relevant"] = np.maximum(made["relevant"], found[of_row]).astype(made["relevant"].dtype)
        made["y_true"] = np.minimum(made["y_true"], self._steepest).astype(made["y_true"].dtype)
        return made

    def derive(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        query, weights, relevant = (columns.get(n) for n in ("query", "sample_weight", "relevant"))
        retrieved, mask = columns.get("retrieved"), columns.get("mask")
        assert isinstance(query, IdColumn)
        starts = query.starts
        rows = [
            columns["y_true"].values,
            columns["y_score"].values,
            NO_FLAGS if retrieved is None else retrieved.values,
        ]
        if mask is not None and not mask.values.all():
            rows[2] = mask.values if retrieved is None else mask.values & retrieved.values
        by = [-columns["document"].values] if "document" in columns else []
        by += [columns["position"].values] if "position" in columns else []
        if by:
            to = np.lexsort([*by, self._owners(starts, len(rows[0]))])
            rows = [column[to] if len(column) else column for column in rows]
        values, facts = self._rank(starts, rows, NO_INTS if relevant is None else relevant.values.astype(np.int64))
        made = {"values": Column(values, ""), "facts": Column(facts, ""), "starts": Column(starts, "")}
        return made | ({} if weights is None else {"sample_weight": weights})

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        unbounded = np.array([parts(t)[0] in UNBOUNDED for t in self.terms], np.int64)
        exact, heavy = bool(unbounded.any()), like.weighted or "w2" in like.present
        into: list[Any] = [own.rows, own.queries, own.excess if like.weighted else NOTHING, own.sums]
        into += [own.large if exact else NOTHING, own.squares, own.large_squares if exact else NOTHING]
        into += [own.w2, own.w2x] if heavy else [NOTHING, NOTHING]
        into += [own.more_w2x if exact and like.weighted else NOTHING]
        return [Step("query_sums:add", "values", "facts", "sample_weight", "at", "starts", unbounded, *into)]

    def _rank(self, starts: Ints, rows: list[Array], relevant: Ints) -> tuple[NDArray[np.float64], Ints]:
        """Sort the documents of each query, queries of similar length together; return every measure, and facts."""
        pack, rank = compiled.kernel("ranking:pack"), compiled.kernel("query_sums:rank")
        grades, scores, retrieved = rows
        lowest = 1.0 if self.relevance_level is None else self.relevance_level  # of what is relevant, and no row
        small = grades.dtype == np.uint8 and (not len(relevant) or (lowest.is_integer() and lowest < 256))
        values = np.arange(256.0) if small else grades.astype(np.float64)
        powers = gains(values) if self._has(*POWERS) else NO_FLOATS
        top = float(gains(np.array([lowest]))[0]) if len(powers) else 0.0
        average, half = self.ties == "average", scores.dtype == np.float64
        bounds = np.append(starts, len(grades))
        lengths = np.diff(bounds)
        out, facts = np.empty(len(starts) * len(self.terms)), np.empty(5 * len(starts), np.int64)
        for which, width in alike(lengths):
            deepest = int((lengths[which] + relevant[which]).max()) if len(relevant) else width
            discounts = self._discounts(deepest)
            how = (values, powers, self._level, average, relevant, lowest, top, discounts, *self._codes)
            longest = max(width + 1, len(discounts))
            scratch = np.zeros((8, longest)), np.zeros((3, longest), np.int64)
            height = max(1, BLOCK // width)
            space = np.empty((min(height, len(which)), width), np.uint64)
            for first in range(0, len(which), height):
                some = which[first : first + height]
                keys = space[: len(some)]
                pack(grades if small else NO_FLAGS, scores, retrieved, some, bounds, keys)
                keys.sort(axis=1)
                rank(keys, some, bounds, scores, half, small, *how, *scratch, facts, out)
        return out, facts

    @property
    def _codes(self) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """The terms as the kernel takes them: measures, cut-offs, parameters."""
        read = [parts(t) for t in self.terms]
        return (
            np.array([MEASURES.index(measure) for measure, _, _ in read], np.int64),
            np.array([k for _, k, _ in read], np.int64),
            np.array([np.ldexp(1.0, int(p)) if measure == "err" else p for measure, _, p in read]),
        )

    def _discounts(self, longest: int) -> NDArray[np.float64]:
        """1 / log2(1 + place), as far as a measure of lists of this length reads them."""
        ks = [k for measure, k, _ in map(parts, self.terms) if measure in DISCOUNTED]
        n = min(longest, max(ks, default=0))
        return discounts(1 << max(n - 1, 0).bit_length())[:n]

    @staticmethod
    def _owners(starts: Ints, n: int) -> Ints:
        """The query of each row."""
        return np.repeat(np.arange(len(starts)), np.diff(starts, append=n))

    def check(self) -> None:
        weight, held = weight_of(self, "queries"), self.cells.flats
        some, both = weight[..., 0], weight.sum(-1)
        if (both.rows > self.flat("rows").sum(axis=(-1, -2))).any():
            raise StateFormatError("RankingSums has more queries than rows")
        for i, (measure, _, _) in enumerate(map(parts, self.terms)):
            unbounded = measure in UNBOUNDED
            graded = (
                self.relevance_level is not None and measure in GRADED
            )  # then a query without may be worth something
            wrong = (both if graded else some).fall_short(held["sums"][..., i, :], 0 if unbounded else 1 + 2.0**-40)
            if "large" in held:
                wrong |= both.fall_short(held["large"][..., i, :], math.inf if unbounded else 0)
            if wrong:
                raise StateFormatError(f"RankingSums holds a sum of {measure} that these queries cannot have")
        if "large_squares" in held and (held["large_squares"][..., -1] < 0).any():
            raise StateFormatError("RankingSums.large_squares holds a negative sum of squares")
        self._check_hits()

    def _check_hits(self) -> None:
        """Raise if more relevant documents were found than there are."""
        large, relevant = self.cells.flats.get("large"), term("relevant")
        if large is None or relevant not in self.terms:
            return
        for i, (measure, _, _) in enumerate(map(parts, self.terms)):
            if measure == "hits" and not all_within(large[:, i], large[:, self.terms.index(relevant)]):
                raise StateFormatError("RankingSums found more relevant documents than there are")

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
        return not any(measure in UNBOUNDED for measure, _, _ in map(parts, self.terms))

    def weight(self, *, empty: bool = False) -> Fraction:
        """Queries with a relevant document, or those without; or their total weight; exact."""
        return of_units(self._units(int(empty)))  # type: ignore[no-any-return]

    def total(self, measure: str, k: int | None = None, parameter: float | None = None) -> Fraction:
        """The weighted sum of a measure over queries; exact over the values of the queries."""
        i = self.terms.index(term(measure, k, parameter))
        if measure not in UNBOUNDED:
            return of_units(fixed_to_int(self.sums[i]))  # type: ignore[no-any-return]
        return exact_to_fraction(self.large[i]) if self.large is not None else Fraction(0)

    def square(self, measure: str, k: int | None = None, parameter: float | None = None) -> Fraction | None:
        """The sum over queries of (w x)^2 of a measure; None if it is lost."""
        i = self.terms.index(term(measure, k, parameter))
        if measure in UNBOUNDED:
            return exact_to_fraction(self.large_squares[i]) if self.large_squares is not None else Fraction(0)
        return kept(self.squares[i])

    def weight_squared(self, *, empty: bool = False) -> Fraction | None:
        """The sum of w^2 over queries with a relevant document, or without; None if it is lost."""
        return kept(self.w2[int(empty)]) if self.w2 is not None else Fraction(int(self.queries[int(empty)]))

    def product(self, measure: str, k: int | None = None, parameter: float | None = None) -> Fraction | None:
        """The sum over queries of w^2 x of a measure; None if it is lost."""
        i = self.terms.index(term(measure, k, parameter))
        if measure in UNBOUNDED:
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
        if measure in UNBOUNDED:
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

    def _units(self, i: int) -> Any:
        """What queries with (0) or without (1) a relevant document weigh, in units of 2**-60."""
        units = whole(self.queries[i]) << FRACTION_BITS
        return units if self.excess is None else units + fixed_to_int(self.excess[i])


def kept(number: Ints) -> Fraction | None:
    """A sum that may have been lost."""
    return None if lost(number) else Fraction(fixed_to_int(number), UNIT)


def alike(lengths: Ints) -> Iterator[tuple[Ints, int]]:
    """Yield queries of similar length, and the greatest of their lengths."""
    if len(lengths) and (lengths == lengths[0]).all():
        yield np.arange(len(lengths)), int(lengths[0])
        return
    order = np.argsort(lengths, kind="stable")
    ordered, first = lengths[order], 0
    while first < len(order):
        last = int(np.searchsorted(ordered, ordered[first] * 5 // 4 + 8, side="right"))
        yield order[first:last], int(ordered[last - 1])
        first = last


def gains(grades: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 2^grade - 1, exact for integers."""
    whole = np.floor(grades)
    rest = grades - whole
    made = np.ldexp(1.0, whole.astype(np.int64))
    if rest.any():
        made = np.where(rest > 0, made * elementary.exp(rest * LN2), made)
    return made - 1.0


@lru_cache(maxsize=32)
def discounts(n: int) -> NDArray[np.float64]:
    """Return 1 / log2(1 + place) of places from 1; exact where that is 1 over an integer."""
    mantissa, exponent = np.frexp(np.arange(2.0, n + 2.0))
    return np.asarray(1.0 / ((exponent - 1) + elementary.log(2.0 * mantissa) / LN2))
