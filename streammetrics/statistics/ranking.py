"""Rankings: sums over queries of every measure of the order in which their documents are ranked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..batch.ids import IdColumn, name, query
from ..batch.kinds import COUNT, FLAG, SCORES, UNJUDGED, Need, grade, score, weight
from ..numerics import elementary
from ..numerics import kernel_registry as compiled
from ..numerics.settings import setting
from .query_sums import ALL, QuerySums, owners, parts, term, unmasked

__all__ = ["RankingSums", "term"]

Array = NDArray[Any]
Ints = NDArray[np.int64]

MEASURES = (
    "cg", "dcg", "ndcg", "cg_exp", "dcg_exp", "ndcg_exp", "precision", "recall", "r_precision", "hits", "relevant",
    "hit", "mrr", "ap_min", "ap_relevant", "ap_hits", "err", "rbp",
)  # fmt: skip
ORDERS = (
    "fall_out", "irrelevant", "relative_precision", "fbeta", "set_ap", "judged", "places", "mean_place", "any_gain",
    "first", "mean_gain", "surprise", "idcg", "idcg_exp", "pairs", "right_pairs", "opa", "any_pair", "q", "iprec",
    "eleven_points", "bpref", "inf_ap", "r_precision_at", "gain_over_cost", "hits_by_misses", "ndcg_of_hits",
    "ndcg_of_levels", "late_ndcg", "smoothed_ap",
)  # fmt: skip
DERIVED = {"log_ap": "ap_relevant", "log_bpref": "bpref"}  # log over the log of a floor, of another measure
UNBOUNDED = ("cg", "dcg", "cg_exp", "dcg_exp", "hits", "relevant")  # summed exactly, in superaccumulators
MORE_UNBOUNDED = (
    "places", "mean_place", "first", "mean_gain", "surprise", "idcg", "idcg_exp", "pairs", "right_pairs", "smoothed_ap",
)  # fmt: skip
POWERS = ("cg_exp", "dcg_exp", "ndcg_exp", "err", "idcg_exp")  # they read 2^grade
GRADED = ("ndcg", "ndcg_exp", "err", "any_gain", "opa", "any_pair")  # they read grades, not relevance
UNFOUND = ("fall_out", "irrelevant", "judged")  # they are something without a relevant document, too
DISCOUNTED = (
    "dcg", "ndcg", "dcg_exp", "ndcg_exp", "idcg", "idcg_exp", "hits_by_misses", "ndcg_of_hits", "ndcg_of_levels",
    "late_ndcg",
)  # fmt: skip
ONE_ORDER = (  # nobody knows their mean over all orders of tied documents
    "iprec", "eleven_points", "bpref", "log_bpref", "inf_ap", "gain_over_cost", "hits_by_misses", "ndcg_of_hits",
    "ndcg_of_levels", "smoothed_ap",
)  # fmt: skip
LONGEST = 1 << 24  # documents of a query
STEEPEST = 1000.0  # the highest grade whose power of two is summed
ANY = 5e-324  # the lowest grade that is more than 0
BLOCK = 15_000  # keys sorted and read at a time: 120 kB, which stay in the cache, and malloc takes from no new pages
NO_INTS, NO_FLOATS, NO_FLAGS = np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.uint8)


class RankingSums(QuerySums, tag="ranking_sums"):
    """Exact sums over queries of measures of their ranking; queries with and without a relevant document.

    Parameters
    ----------
    terms : tuple of str
        The measures, each with its cut-off (see `term`); a collection keeps the union of what its metrics ask for.
    ties : {"average", "order", "document", "optimistic", "pessimistic"}
        Equal scores: the mean over all orders of the documents; the order of their rows, or of the column `position` if
        there is one; by the column `document`, descending, as trec_eval does; the highest, or the lowest, grade first.
    relevance_level : float, optional
        The lowest grade that is relevant; by default any above 0.
    grades : {"y_true", "popularity"}
        The column of grades.
    missing : {"raise", "unjudged"}
        What a grade that is null or NaN is: an error, or that of a document that nobody judged, which counts as 0.

    Notes
    -----
    One ranking of a query serves all measures and cut-offs. Each value of a query is computed in float64 and added as an
    integer: a multiple of 2**-60, or exactly where it may be any number; so is its square, a multiple of 2**-52. With
    weights there are w^2 and w^2 x, too: enough for standard errors. A lone state takes 100 bytes and 32 a term.
    """

    measures = (*MEASURES, *ORDERS, *DERIVED)
    unbounded = (*UNBOUNDED, *MORE_UNBOUNDED)
    signed = ("smoothed_ap",)
    never_beyond: ClassVar[dict[str, str]] = {
        "hits": "relevant", "right_pairs": "pairs", "opa": "any_pair", "fall_out": "irrelevant",
    }  # fmt: skip

    ties: str = setting(default="average", choices=("average", "order", "document", "optimistic", "pessimistic"))
    relevance_level: float | None = setting(default=None, above=0.0)
    grades: str = setting(default="y_true", choices=("y_true", "popularity"))
    missing: str = setting(default="raise", choices=("raise", "unjudged"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ties == "average" and self._has(*ONE_ORDER):
            raise ValueError(f'RankingSums: {", ".join(ONE_ORDER)} need one order: ties= must not be "average"')

    @property
    def ordered(self) -> bool:
        return self.ties == "order"

    @property
    def _level(self) -> float:
        return ANY if self.relevance_level is None else self.relevance_level

    def needs(self) -> tuple[Need, ...]:
        order = {"order": (Need("position", SCORES["real"], optional=True),), "document": (name(),)}
        unjudged = self.missing == "unjudged"
        return (
            Need(self.grades, UNJUDGED) if unjudged else grade(self.grades),
            score(scale="real"),
            query(),
            *order.get(self.ties, ()),
            replace(weight(), once=True),
            Need("relevant", COUNT, optional=True, once=True),
            Need("retrieved", FLAG, optional=True),
            Need("mask", FLAG, optional=True),
            *([Need("pooled", FLAG, optional=True)] if unjudged else []),
        )

    def contradiction(self, columns: Mapping[str, Any]) -> tuple[str, int, str] | None:
        grades, queries = columns[self.grades].values, columns["query"]
        assert isinstance(queries, IdColumn)
        starts = queries.starts
        if self._steepest < np.inf and (steep := grades > self._steepest).any():
            row = int(steep.argmax())
            return self.grades, row, f"a grade above {self._steepest:g}, the limit of max_grade= or of 2**grade"
        if self._has("surprise") and (odd := self._no_share(columns)).any():
            return self.grades, int(odd.argmax()), "no share in (0, 1], of which self-information is told"
        lengths = np.diff(starts, append=len(grades))
        if len(lengths) and lengths.max() > LONGEST:
            return "query", int(starts[lengths.argmax()]), f"a query of more than {LONGEST:,} rows"
        if "relevant" in columns:
            found = np.add.reduceat(grades >= self._level, starts) if len(starts) else NO_INTS
            if (few := columns["relevant"].values[starts] < found).any():
                return "relevant", int(starts[few.argmax()]), "the query has more relevant rows than that"
        if "document" in columns and (again := self._twice(columns, "document")) is not None:
            return "document", again, "the query has this document twice"
        return None

    @property
    def _steepest(self) -> float:
        """The highest grade that every term takes."""
        tops = [top for measure, _, top in map(parts, self.terms) if measure == "err"]
        return min([STEEPEST if self._has(*POWERS) else np.inf, *tops])

    def _no_share(self, columns: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Which documents have a grade that is no share, or none; those behind a mask have nothing."""
        grades = columns[self.grades].values
        odd = ~((grades > 0) & (grades <= 1))
        return np.asarray(odd & (columns["mask"].values == 1)) if "mask" in columns else odd

    def plausible(self, columns: dict[str, Array]) -> dict[str, Array]:
        made, n = unmasked(columns), len(columns["query"])
        starts = IdColumn(columns["query"], "integer").starts
        of_row = owners(starts, n)
        if "document" in made:
            made["document"] = np.arange(n, dtype=np.int64) * 7 % 11 * n + np.arange(n)
        if self._has("surprise"):
            shares = made[self.grades]
            made[self.grades] = np.where((shares > 0) & (shares <= 1), shares, 1).astype(shares.dtype)
        if "relevant" in made and n:
            found = np.add.reduceat(made[self.grades] >= self._level, starts)
            more = np.where(made["relevant"] == 4, 40, 0)  # than there are rows, now and then
            made["relevant"] = np.maximum(made["relevant"], found[of_row] + more).astype(made["relevant"].dtype)
        made[self.grades] = np.minimum(made[self.grades], self._steepest).astype(made[self.grades].dtype)
        return made

    def derive(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        query, weights, relevant = (columns.get(n) for n in ("query", "sample_weight", "relevant"))
        assert isinstance(query, IdColumn)
        starts = query.starts
        rows = self._rows(columns)
        if by := self._by(columns, rows):
            to = np.lexsort([*by, owners(starts, len(rows[0]))])
            rows = [column[to] if len(column) else column for column in rows]
        values, facts = self._rank(starts, rows, NO_INTS if relevant is None else relevant.values.astype(np.int64))
        made = {"values": Column(values, ""), "facts": Column(facts, ""), "starts": Column(starts, "")}
        return made | ({} if weights is None else {"sample_weight": weights})

    def _rows(self, columns: Mapping[str, Any]) -> list[Array]:
        """Grades and scores; whether each was returned, and what nobody judged (both may be empty)."""
        retrieved, mask = columns.get("retrieved"), columns.get("mask")
        kept = NO_FLAGS if retrieved is None else retrieved.values
        if mask is not None and not mask.values.all():
            kept = mask.values if retrieved is None else mask.values & retrieved.values
        grades, blank = columns[self.grades].values, NO_FLAGS
        if grades.dtype != np.uint8 and (null := np.isnan(grades)).any():
            outside = columns["pooled"].values == 0 if "pooled" in columns else np.zeros(len(null), bool)
            blank = (null * np.where(outside, 2, 1)).astype(np.uint8)
            grades = UNJUDGED.convert(np.where(null, 0.0, grades), self.grades).values
        return [grades, columns["y_score"].values, kept, blank]

    def _by(self, columns: Mapping[str, Any], rows: list[Array]) -> list[Array]:
        """By what rows of equal score are ordered, the last first, if not by the order they have."""
        if self.ties in ("optimistic", "pessimistic"):
            sign = -1.0 if self.ties == "optimistic" else 1.0
            return [sign * column for column in (rows[3], rows[0]) if len(column)]
        by = [-columns["document"].values] if "document" in columns else []
        return by + ([columns["position"].values] if "position" in columns else [])

    def _rank(self, starts: Ints, rows: list[Array], relevant: Ints) -> tuple[NDArray[np.float64], Ints]:
        """Sort the documents of each query, queries of similar length together; return every measure, and facts."""
        pack, rank = compiled.kernel("ranking:pack"), compiled.kernel("query_sums:rank")
        grades, scores, retrieved, blank = rows
        lowest = 1.0 if self.relevance_level is None else self.relevance_level  # of what is relevant, and no row
        small = grades.dtype == np.uint8 and (not len(relevant) or (lowest.is_integer() and lowest < 256))
        values = np.arange(256.0) if small else grades.astype(np.float64)
        powers = gains(values) if self._has(*POWERS) else NO_FLOATS
        infos = surprises(values) if self._has("surprise") else NO_FLOATS
        top = float(gains(np.array([lowest]))[0]) if len(powers) else 0.0
        average, half = self.ties == "average", scores.dtype == np.float64
        bounds = np.append(starts, len(grades))
        lengths = np.diff(bounds)
        ranked, placed = self._codes(self._ranked, MEASURES), self._codes(self._placed, ORDERS)
        out, facts = np.empty(len(starts) * len(ranked[0])), np.empty(5 * len(starts), np.int64)
        more = np.empty(len(starts) * len(placed[0]))
        order = compiled.kernel("orders:order") if more.size else None
        for which, width in alike(lengths):
            deepest = int((lengths[which] + relevant[which]).max()) if len(relevant) else width
            discounts = self._discounts(deepest)
            whole = deepest if self._has("gain_over_cost") else 0  # which divides by the gain of the whole ideal order
            longest = max(width + 1, len(discounts), whole)
            how = (self._level, average, relevant, lowest, top, discounts)
            scratch = np.zeros((8, longest)), np.zeros((5, longest), np.int64)
            height = max(1, BLOCK // width)
            space = np.empty((min(height, len(which)), width), np.uint64)
            for first in range(0, len(which), height):
                some = which[first : first + height]
                keys = space[: len(some)]
                pack(grades if small else NO_FLAGS, scores, retrieved, some, bounds, keys)
                keys.sort(axis=1)
                at = (keys, some, bounds, scores)
                rank(*at, half, small, values, powers, *how, *ranked, *scratch, facts, out)
                if order is not None:
                    given = (*at, small, values, powers, infos, blank, *how)
                    order(*given, *placed, *scratch, more)
        return self._told(out, more, facts), facts

    def _told(self, out: NDArray[np.float64], more: NDArray[np.float64], facts: Ints) -> NDArray[np.float64]:
        """What every term says of each query, of what two kernels said."""
        if self._ranked == self.terms:
            return out
        n, sides = len(facts) // 5, dict[str, Array]()
        for terms, said in ((self._ranked, out), (self._placed, more)):
            sides |= zip(terms, said.reshape(n, len(terms)).T, strict=True)
        for spelled in self.terms:
            measure, _, floor = parts(spelled)
            if measure in DERIVED:
                logs = elementary.log(np.maximum(sides[base_of(spelled)], floor)) / elementary.log(np.float64(floor))
                sides[spelled] = np.where(facts.reshape(n, 5)[:, 4] == 1, 0.0, np.minimum(logs, 1.0))
        return np.ascontiguousarray(np.column_stack([sides[t] for t in self.terms])).reshape(-1)

    @property
    def _ranked(self) -> tuple[str, ...]:
        """The terms of the first kernel, those of which others are derived among them."""
        return self._asked(MEASURES)

    @property
    def _placed(self) -> tuple[str, ...]:
        """Those of the other."""
        return self._asked(ORDERS)

    def _asked(self, measures: tuple[str, ...]) -> tuple[str, ...]:
        bases = (base_of(t) if parts(t)[0] in DERIVED else t for t in self.terms)
        return tuple(dict.fromkeys(t for t in bases if parts(t)[0] in measures))

    def _codes(self, terms: tuple[str, ...], names: tuple[str, ...]) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """Terms as a kernel takes them: measures, cut-offs, parameters."""
        read = [parts(t) for t in terms]
        return (
            np.array([names.index(measure) for measure, _, _ in read], np.int64),
            np.array([k for _, k, _ in read], np.int64),
            np.array([np.ldexp(1.0, int(p)) if measure == "err" else p for measure, _, p in read]),
        )

    def _discounts(self, longest: int) -> NDArray[np.float64]:
        """1 / log2(1 + place), as far as a measure of lists of this length reads them."""
        ks = [k for measure, k, _ in map(parts, self.terms) if measure in DISCOUNTED]
        n = min(longest, max(ks, default=0))
        return discounts(1 << max(n - 1, 0).bit_length())[:n]

    def _anywhere(self, measure: str) -> bool:
        return measure in UNFOUND or (self.relevance_level is not None and measure in GRADED)


def base_of(derived: str) -> str:
    """The term of which another is derived."""
    measure, k, _ = parts(derived)
    return term(DERIVED[measure], k if k < ALL else None)


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
        made = np.where(rest > 0, made * elementary.exp(rest * elementary.LN2), made)
    return made - 1.0


def surprises(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return -log2 of shares; 0 of what is none."""
    good = (shares > 0) & (shares <= 1)
    mantissa, exponent = np.frexp(np.where(good, shares, 1.0))
    return np.asarray(1.0 - exponent - elementary.log(2.0 * mantissa) / elementary.LN2)  # exact for powers of two


@lru_cache(maxsize=32)
def discounts(n: int) -> NDArray[np.float64]:
    """Return 1 / log2(1 + place) of places from 1; exact where that is 1 over an integer."""
    mantissa, exponent = np.frexp(np.arange(2.0, n + 2.0))
    return np.asarray(1.0 / ((exponent - 1) + elementary.log(2.0 * mantissa) / elementary.LN2))
