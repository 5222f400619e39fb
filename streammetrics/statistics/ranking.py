"""Exact sums of ranking measures, such as NDCG, MAP and MRR, over queries."""

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
from ..numerics import elementary, kernel_registry
from ..numerics.settings import setting
from .query_sums import NO_CUTOFF, QuerySums, format_term, parse_term, query_numbers, with_full_mask

__all__ = ["RankingSums", "format_term"]

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
# Each key is a measure that is computed from another measure x (the value in this dict) as log(max(x, floor)) /
# log(floor). The floor is the parameter of the computed measure.
DERIVED = {"log_ap": "ap_relevant", "log_bpref": "bpref"}
# These measures can exceed 1, so they are summed exactly in superaccumulators.
UNBOUNDED = ("cg", "dcg", "cg_exp", "dcg_exp", "hits", "relevant")
MORE_UNBOUNDED = (
    "places", "mean_place", "first", "mean_gain", "surprise", "idcg", "idcg_exp", "pairs", "right_pairs", "smoothed_ap",
)  # fmt: skip
# These measures are computed from 2^grade.
POWERS = ("cg_exp", "dcg_exp", "ndcg_exp", "err", "idcg_exp")
# These measures use the grade of a document, not merely whether the document is relevant. With `relevance_level=`, a
# query without a relevant document can still contain documents with positive grades, so these measures can be nonzero.
GRADED = ("ndcg", "ndcg_exp", "err", "any_gain", "opa", "any_pair")
# These measures can be nonzero for a query without a relevant document, even if `relevance_level=` is not set.
UNFOUND = ("fall_out", "irrelevant", "judged")
DISCOUNTED = (
    "dcg", "ndcg", "dcg_exp", "ndcg_exp", "idcg", "idcg_exp", "hits_by_misses", "ndcg_of_hits", "ndcg_of_levels",
    "late_ndcg",
)  # fmt: skip
# These measures do not support ties="average", because their mean over all orders of tied documents has no closed form.
ONE_ORDER = (
    "iprec", "eleven_points", "bpref", "log_bpref", "inf_ap", "gain_over_cost", "hits_by_misses", "ndcg_of_hits",
    "ndcg_of_levels", "smoothed_ap",
)  # fmt: skip
# The maximum number of documents per query.
LONGEST = 1 << 24
# The highest valid grade for measures that use 2^grade.
STEEPEST = 1000.0
# The smallest positive float64, which is the default level of relevance: any grade above 0 is relevant.
MIN_POSITIVE = 5e-324
# The maximum number of keys that are sorted at a time, unless a single query has more. This many keys take 120 kB,
# which fits in the cache and is small enough for malloc to reuse the memory.
BLOCK = 15_000
NO_INTS, NO_FLOATS, NO_FLAGS = np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.uint8)


class RankingSums(QuerySums, tag="ranking_sums"):
    """Exact sums of ranking measures over queries, and the weights of queries with and without a relevant document.

    Parameters
    ----------
    terms : tuple of str
        The measures with their cut-offs, such as "ndcg@10" (see `format_term`). A collection keeps the union of the terms
        that its metrics need.
    ties : {"average", "order", "document", "optimistic", "pessimistic"}
        The order of documents with equal scores. "average" takes the mean of a measure over all orders. "order" is the
        order of rows, or of the column `position` if present. "document" is the descending order of the column
        `document`, as in trec_eval. "optimistic" puts the highest grade first, and "pessimistic" the lowest.
    relevance_level : float, optional
        The lowest grade that counts as relevant. By default, any grade above 0 is relevant.
    grades : {"y_true", "popularity"}
        The column of grades.
    missing : {"raise", "unjudged"}
        Whether a grade that is null or NaN is an error ("raise") or marks an unjudged document, whose grade is 0
        ("unjudged").

    Notes
    -----
    The documents of a query are sorted once for all measures and cut-offs. The value of a measure for a query is computed
    in float64, rounded to a multiple of 2**-60 (its square to a multiple of 2**-52) and summed as an integer. Values of
    measures that can exceed 1 are summed exactly. With weights w, the state also keeps the sums of w^2 and of w^2 times
    the value, for standard errors. A state with one cell (no slices) takes 100 bytes plus 32 bytes per term.
    """

    measures = (*MEASURES, *ORDERS, *DERIVED)
    unbounded = (*UNBOUNDED, *MORE_UNBOUNDED)
    signed = ("smoothed_ap",)
    upper_measures: ClassVar[dict[str, str]] = {
        "hits": "relevant", "right_pairs": "pairs", "opa": "any_pair", "fall_out": "irrelevant",
    }  # fmt: skip

    ties: str = setting(default="average", choices=("average", "order", "document", "optimistic", "pessimistic"))
    relevance_level: float | None = setting(default=None, above=0.0)
    grades: str = setting(default="y_true", choices=("y_true", "popularity"))
    missing: str = setting(default="raise", choices=("raise", "unjudged"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ties == "average" and self._has_measure(*ONE_ORDER):
            raise ValueError(
                f"RankingSums: {', '.join(ONE_ORDER)} need a single order of the documents in a query; choose a "
                f'ties= other than "average"'
            )

    @property
    def is_order_dependent(self) -> bool:
        return self.ties == "order"

    @property
    def _min_relevant_grade(self) -> float:
        return MIN_POSITIVE if self.relevance_level is None else self.relevance_level

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

    def find_contradiction(self, columns: Mapping[str, Any]) -> tuple[str, int, str] | None:
        grades, queries = columns[self.grades].values, columns["query"]
        assert isinstance(queries, IdColumn)
        starts = queries.starts
        if self._max_grade < np.inf and (steep := grades > self._max_grade).any():
            row = int(steep.argmax())
            return (
                self.grades,
                row,
                f"the grade is above {self._max_grade:g}, the most that max_grade= or 2**grade allows",
            )
        if self._has_measure("surprise") and (odd := self._mask_invalid_shares(columns)).any():
            return self.grades, int(odd.argmax()), "expected a share of users above 0 and at most 1"
        lengths = np.diff(starts, append=len(grades))
        if len(lengths) and lengths.max() > LONGEST:
            return "query", int(starts[lengths.argmax()]), f"this query has more than {LONGEST:,} rows"
        if "relevant" in columns:
            found = np.add.reduceat(grades >= self._min_relevant_grade, starts) if len(starts) else NO_INTS
            if (few := columns["relevant"].values[starts] < found).any():
                return "relevant", int(starts[few.argmax()]), "this query has more relevant rows than this column says"
        if "document" in columns and (again := self._find_repeated_name(columns, "document")) is not None:
            return "document", again, "the query contains this document twice"
        return None

    @property
    def _max_grade(self) -> float:
        """The highest grade that every term accepts."""
        tops = [top for measure, _, top in map(parse_term, self.terms) if measure == "err"]
        return min([STEEPEST if self._has_measure(*POWERS) else np.inf, *tops])

    def _mask_invalid_shares(self, columns: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return a mask of the rows whose grade is not a valid share of users, that is, not in (0, 1].

        Rows that the column `mask` excludes are never marked.
        """
        grades = columns[self.grades].values
        odd = ~((grades > 0) & (grades <= 1))
        return np.asarray(odd & (columns["mask"].values == 1)) if "mask" in columns else odd

    def make_consistent(self, columns: dict[str, Array]) -> dict[str, Array]:
        consistent, n = with_full_mask(columns), len(columns["query"])
        starts = IdColumn(columns["query"], "integer").starts
        of_row = query_numbers(starts, n)
        if "document" in consistent:
            consistent["document"] = np.arange(n, dtype=np.int64) * 7 % 11 * n + np.arange(n)
        if self._has_measure("surprise"):
            shares = consistent[self.grades]
            consistent[self.grades] = np.where((shares > 0) & (shares <= 1), shares, 1).astype(shares.dtype)
        if "relevant" in consistent and n:
            found = np.add.reduceat(consistent[self.grades] >= self._min_relevant_grade, starts)
            # In valid data, a query can have more relevant documents than rows. Generate some queries of this kind.
            more = np.where(consistent["relevant"] == 4, 40, 0)
            consistent["relevant"] = np.maximum(consistent["relevant"], found[of_row] + more).astype(
                consistent["relevant"].dtype
            )
        consistent[self.grades] = np.minimum(consistent[self.grades], self._max_grade).astype(
            consistent[self.grades].dtype
        )
        return consistent

    def derive_columns(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        query, weights, relevant = (columns.get(n) for n in ("query", "sample_weight", "relevant"))
        assert isinstance(query, IdColumn)
        starts = query.starts
        rows = self._row_columns(columns)
        if by := self._tie_keys(columns, rows):
            to = np.lexsort([*by, query_numbers(starts, len(rows[0]))])
            rows = [column[to] if len(column) else column for column in rows]
        values, facts = self._rank(starts, rows, NO_INTS if relevant is None else relevant.values.astype(np.int64))
        derived = {"values": Column(values, ""), "facts": Column(facts, ""), "starts": Column(starts, "")}
        return derived | ({} if weights is None else {"sample_weight": weights})

    def _row_columns(self, columns: Mapping[str, Any]) -> list[Array]:
        """Return four columns: grades, scores, whether a document is retrieved, and whether it is unjudged.

        The third column is empty if all documents are retrieved. The fourth column is empty if all documents are
        judged. Otherwise, it contains 0 for a judged document, 1 for an unjudged document, and 2 for an unjudged
        document outside the pool of documents that were selected for judging.
        """
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

    def _tie_keys(self, columns: Mapping[str, Any], rows: list[Array]) -> list[Array]:
        """Return the columns by which rows with equal scores are sorted, with the primary sort key last.

        The list is empty if rows with equal scores keep their original order.
        """
        if self.ties in ("optimistic", "pessimistic"):
            sign = -1.0 if self.ties == "optimistic" else 1.0
            return [sign * column for column in (rows[3], rows[0]) if len(column)]
        by = [-columns["document"].values] if "document" in columns else []
        return by + ([columns["position"].values] if "position" in columns else [])

    def _rank(self, starts: Ints, rows: list[Array], relevant: Ints) -> tuple[NDArray[np.float64], Ints]:
        """Rank the documents of each query, and compute all measures.

        Parameters
        ----------
        starts : int64 array
            The index of the first row of each query.
        rows : list of arrays
            The columns from `_row_columns`.
        relevant : int64 array
            The number of relevant documents of each query, including documents without a row; empty if it is not known.

        Returns
        -------
        values : float64 array
            The measures of the first query, then those of the second query, and so on.
        facts : int64 array
            Five integers for each query, as in `QuerySums`.

        Notes
        -----
        Documents are sorted by 64-bit keys. The keys of each query form a row of a table, and one call to `sort` sorts
        a table of many queries of similar length. A key contains the score of a document (only its upper half if
        scores are float64), its row number in the query and, if grades are small integers, its grade. Kernels then sort
        documents with equal upper halves by the full score.
        """
        pack, rank = (
            kernel_registry.find_kernel("ranking:pack_keys"),
            kernel_registry.find_kernel("query_sums:compute_measures"),
        )
        grades, scores, retrieved, blank = rows
        # The column `relevant` may count relevant documents that have no row. These documents get the grade `lowest`.
        lowest = 1.0 if self.relevance_level is None else self.relevance_level
        small = grades.dtype == np.uint8 and (not len(relevant) or (lowest.is_integer() and lowest < 256))
        values = np.arange(256.0) if small else grades.astype(np.float64)
        powers = exponential_gains(values) if self._has_measure(*POWERS) else NO_FLOATS
        infos = self_information(values) if self._has_measure("surprise") else NO_FLOATS
        top = float(exponential_gains(np.array([lowest]))[0]) if len(powers) else 0.0
        average, half = self.ties == "average", scores.dtype == np.float64
        bounds = np.append(starts, len(grades))
        lengths = np.diff(bounds)
        ranked, placed = (
            self._encode_terms(self._ranking_terms, MEASURES),
            self._encode_terms(self._order_terms, ORDERS),
        )
        out, facts = np.empty(len(starts) * len(ranked[0])), np.empty(5 * len(starts), np.int64)
        more = np.empty(len(starts) * len(placed[0]))
        order = kernel_registry.find_kernel("extended_measures:compute_extended_measures") if more.size else None
        for which, width in group_by_length(lengths):
            deepest = int((lengths[which] + relevant[which]).max()) if len(relevant) else width
            discounts = self._discounts(deepest)
            # The measure "gain_over_cost" divides by the gain of the whole ideal ranking, so the arrays need room for all
            # of its positions.
            whole = deepest if self._has_measure("gain_over_cost") else 0
            longest = max(width + 1, len(discounts), whole)
            how = (self._min_relevant_grade, average, relevant, lowest, top, discounts)
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
                    columns = (*at, small, values, powers, infos, blank, *how)
                    order(*columns, *placed, *scratch, more)
        return self._collect_terms(out, more, facts), facts

    def _collect_terms(
        self, ranking_values: NDArray[np.float64], order_values: NDArray[np.float64], facts: Ints
    ) -> NDArray[np.float64]:
        """Return the values of all terms for each query.

        Parameters
        ----------
        ranking_values, order_values : float64 arrays
            The values of `_ranking_terms` and `_order_terms`, as computed by two kernels.
        facts : int64 array
            Five integers for each query, as in `QuerySums`.
        """
        if self._ranking_terms == self.terms:
            return ranking_values
        n, values_by_term = len(facts) // 5, dict[str, Array]()
        for terms, values in ((self._ranking_terms, ranking_values), (self._order_terms, order_values)):
            values_by_term |= zip(terms, values.reshape(n, len(terms)).T, strict=True)
        for term in self.terms:
            measure, _, floor = parse_term(term)
            if measure in DERIVED:
                logs = elementary.log(np.maximum(values_by_term[base_term(term)], floor)) / elementary.log(
                    np.float64(floor)
                )
                values_by_term[term] = np.where(facts.reshape(n, 5)[:, 4] == 1, 0.0, np.minimum(logs, 1.0))
        return np.ascontiguousarray(np.column_stack([values_by_term[t] for t in self.terms])).reshape(-1)

    @property
    def _ranking_terms(self) -> tuple[str, ...]:
        """The terms whose measure is in MEASURES; one kernel computes them all.

        The result also contains the terms from which derived terms are computed (see DERIVED).
        """
        return self._select_terms(MEASURES)

    @property
    def _order_terms(self) -> tuple[str, ...]:
        """The terms whose measure is in ORDERS; a separate kernel computes them all."""
        return self._select_terms(ORDERS)

    def _select_terms(self, measures: tuple[str, ...]) -> tuple[str, ...]:
        bases = (base_term(t) if parse_term(t)[0] in DERIVED else t for t in self.terms)
        return tuple(dict.fromkeys(t for t in bases if parse_term(t)[0] in measures))

    def _encode_terms(self, terms: tuple[str, ...], names: tuple[str, ...]) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """Convert terms to arrays for a kernel: measures (as indices in `names`), cut-offs and parameters."""
        read = [parse_term(t) for t in terms]
        return (
            np.array([names.index(measure) for measure, _, _ in read], np.int64),
            np.array([k for _, k, _ in read], np.int64),
            np.array([np.ldexp(1.0, int(p)) if measure == "err" else p for measure, _, p in read]),
        )

    def _discounts(self, longest: int) -> NDArray[np.float64]:
        """Return the discounts 1 / log2(1 + position) for the positions that the terms need.

        `longest` is the length of the longest list.
        """
        ks = [k for measure, k, _ in map(parse_term, self.terms) if measure in DISCOUNTED]
        # Round the number of positions up to a power of two, compute their discounts, and keep the first n, so that the
        # cache of `log_discounts` contains only a few different arrays.
        n = min(longest, max(ks, default=0))
        return log_discounts(1 << max(n - 1, 0).bit_length())[:n]

    def _counts_without_relevant(self, measure: str) -> bool:
        return measure in UNFOUND or (self.relevance_level is not None and measure in GRADED)


def base_term(derived: str) -> str:
    """Return the term from which `derived`, a term such as "log_ap:1e-05", is computed (see DERIVED)."""
    measure, k, _ = parse_term(derived)
    return format_term(DERIVED[measure], k if k < NO_CUTOFF else None)


def group_by_length(lengths: Ints) -> Iterator[tuple[Ints, int]]:
    """Yield, for each group of queries of similar length, the indices of the queries and the largest length."""
    if len(lengths) and (lengths == lengths[0]).all():
        yield np.arange(len(lengths)), int(lengths[0])
        return
    order = np.argsort(lengths, kind="stable")
    ordered, first = lengths[order], 0
    while first < len(order):
        last = int(np.searchsorted(ordered, ordered[first] * 5 // 4 + 8, side="right"))
        yield order[first:last], int(ordered[last - 1])
        first = last


def exponential_gains(grades: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the gains 2^grade - 1, which are exact for integer grades."""
    whole = np.floor(grades)
    rest = grades - whole
    powers = np.ldexp(1.0, whole.astype(np.int64))
    if rest.any():
        powers = np.where(rest > 0, powers * elementary.exp(rest * elementary.LN2), powers)
    return powers - 1.0


def self_information(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return -log2(share) for each share in (0, 1], and 0 for other numbers."""
    good = (shares > 0) & (shares <= 1)
    mantissa, exponent = np.frexp(np.where(good, shares, 1.0))
    # Take the logarithm of the mantissa only and add the exponent, so that the result is exact for powers of two.
    return np.asarray(1.0 - exponent - elementary.log(2.0 * mantissa) / elementary.LN2)


@lru_cache(maxsize=32)
def log_discounts(n: int) -> NDArray[np.float64]:
    """Return 1 / log2(1 + position) for the positions 1 to `n`; exact if the logarithm is an integer."""
    mantissa, exponent = np.frexp(np.arange(2.0, n + 2.0))
    return np.asarray(1.0 / ((exponent - 1) + elementary.log(2.0 * mantissa) / elementary.LN2))
