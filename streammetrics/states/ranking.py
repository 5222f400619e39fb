"""Rankings: sums over queries of every measure of the order in which their documents are ranked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, added
from ..columns import COUNT, FLAG, SCORES, Column, Need, grade, score, weight
from ..errors import StateFormatError
from ..exact import UNIT, exact_to_fraction, fixed_to_int
from ..ids import IdColumn, name, query
from ..kernels import elementary
from ..settings import setting, union
from ..state import State

__all__ = ["RankingSums", "term"]

Ints = NDArray[np.int64]

MEASURES = (
    "cg", "dcg", "ndcg", "cg_exp", "dcg_exp", "ndcg_exp", "precision", "recall", "r_precision", "hits", "relevant",
    "hit", "mrr", "ap_min", "ap_relevant", "ap_hits", "err", "rbp",
)  # fmt: skip
UNBOUNDED = ("cg", "dcg", "cg_exp", "dcg_exp", "hits", "relevant")  # summed exactly, in superaccumulators
POWERS = ("cg_exp", "dcg_exp", "ndcg_exp", "err")  # they read 2^grade
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
    integer: a multiple of 2**-60, or exactly where it may be any number. A lone state takes 100 bytes and 16 a term.
    """

    terms: tuple[str, ...] = union(default=())
    ties: str = setting(default="average", choices=("average", "order", "document"))
    relevance_level: float | None = setting(default=None, above=0.0)

    rows: Array = added(2, 2)
    queries: Array = added(2)
    excess: Array = added(2, form="fixed", optional=True)
    sums: Array = added("terms", form="fixed")
    large: Array = added("terms", form="exact", optional=True)

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

    def contradiction(self, columns: dict[str, Column]) -> tuple[str, int, str] | None:
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

    def absorb(
        self,
        at: Ints | None,
        /,
        y_true: Column,
        y_score: Column,
        query: IdColumn,
        sample_weight: Column | None = None,
        relevant: Column | None = None,
        retrieved: Column | None = None,
        mask: Column | None = None,
        **order: Column,
    ) -> None:
        starts = query.starts
        once = [sample_weight.values if sample_weight is not None else NO_FLOATS]
        once += [relevant.values.astype(np.int64) if relevant is not None else NO_INTS]
        rows = [y_true.values, y_score.values, retrieved.values if retrieved is not None else NO_FLAGS]
        if mask is not None and not mask.values.all():
            rows[2] = mask.values if retrieved is None else mask.values & retrieved.values
        by = [-order["document"].values] if "document" in order else []
        by += [order["position"].values] if "position" in order else []
        if by:
            to = np.lexsort([*by, self._owners(starts, len(rows[0]))])
            rows = [column[to] if len(column) else column for column in rows]
        self._rank(starts, rows, once, NO_INTS if at is None else at[starts])

    def _rank(self, starts: Ints, rows: list[Array], once: list[Array], at: Ints) -> None:
        """Sort the documents of each query, queries of similar length together, and add what they measure."""
        from ..kernels.ranking import measure, pack

        (grades, scores, retrieved), (weights, relevant) = rows, once
        lowest = 1.0 if self.relevance_level is None else self.relevance_level  # of what is relevant, and no row
        small = grades.dtype == np.uint8 and (not len(relevant) or (lowest.is_integer() and lowest < 256))
        values = np.arange(256.0) if small else grades.astype(np.float64)
        powers = gains(values) if self._has(*POWERS) else NO_FLOATS
        top = float(gains(np.array([lowest]))[0]) if len(powers) else 0.0
        read = [parts(t) for t in self.terms]
        terms = (
            np.array([MEASURES.index(measure) for measure, _, _ in read], np.int64),
            np.array([k for _, k, _ in read], np.int64),
            np.array([np.ldexp(1.0, int(p)) if measure == "err" else p for measure, _, p in read]),
        )
        average, half = self.ties == "average", scores.dtype == np.float64
        bounds = np.append(starts, len(grades))
        lengths = np.diff(bounds)
        for which, width in alike(lengths):
            deepest = int((lengths[which] + relevant[which]).max()) if len(relevant) else width
            discounts = self._discounts(deepest)
            how = (values, powers, self._level, average, relevant, lowest, top, discounts, *terms)
            longest = max(width + 1, len(discounts))
            scratch = np.zeros((8, longest)), np.zeros((3, longest), np.int64)
            height = max(1, BLOCK // width)
            space = np.empty((min(height, len(which)), width), np.uint64)
            for first in range(0, len(which), height):
                some = which[first : first + height]
                keys = space[: len(some)]
                pack(grades if small else NO_FLAGS, scores, retrieved, some, bounds, keys)
                keys.sort(axis=1)
                measure(keys, some, bounds, scores, half, small, *how, weights, at, *scratch, *self._into(len(weights)))
        if self.large is not None:
            self.rules()["large"].carry(self.large)

    def _into(self, weighted: int) -> tuple[Array, ...]:
        exact, excess = self._has(*UNBOUNDED), weighted > 0
        return (
            self.rows.reshape(-1),
            self.queries.reshape(-1),
            self.need("excess").reshape(-1) if excess else NO_INTS,
            self.sums.reshape(-1),
            self.need("large").reshape(-1) if exact else NO_INTS,
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
        if (self.sums[..., 0] < 0).any():
            raise StateFormatError("RankingSums.sums holds a negative sum of measures that are not negative")

    def facts(self) -> dict[str, Any]:
        return {
            "rows": int(self.rows.sum()),
            "positives": int(self.rows[:, 1].sum()),
            "documents": int(self.rows[0].sum()),
            "queries": int(self.queries.sum()),
            "empty": int(self.queries[1]),
            "weight": self.weight() + self.weight(empty=True),
        }

    def weight(self, *, empty: bool = False) -> Fraction:
        """Queries with a relevant document, or those without; or their total weight; exact."""
        i = int(empty)
        return Fraction(int(self.queries[i])) + (
            Fraction(fixed_to_int(self.excess[i]), UNIT) if self.excess is not None else 0
        )

    def total(self, measure: str, k: int | None = None, parameter: float | None = None) -> Fraction:
        """The weighted sum of a measure over queries; exact over the values of the queries."""
        i = self.terms.index(term(measure, k, parameter))
        if measure not in UNBOUNDED:
            return Fraction(fixed_to_int(self.sums[i]), UNIT)
        return exact_to_fraction(self.large[i]) if self.large is not None else Fraction(0)


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
