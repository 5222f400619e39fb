"""Exact sums of diversity measures, such as alpha-NDCG and ERR-IA, over queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..batch.ids import IdColumn, group, name, query
from ..batch.kinds import FLAG, Need, grade, score, weight
from ..numerics import kernel_registry
from ..numerics.settings import setting
from .query_sums import QuerySums, mask_retrieved, parse_term, query_numbers, with_full_mask
from .ranking import MIN_POSITIVE, log_discounts

__all__ = ["SubtopicSums"]

Ints = NDArray[np.int64]

MEASURES = ("alpha_ndcg", "alpha_dcg", "err_ia", "err_ia_ideal", "err_ia_plain", "subtopic_recall", "diversity")


class SubtopicSums(QuerySums, tag="subtopic_sums"):
    """Exact sums of diversity measures over queries, from one row for each pair of a document and a subtopic.

    Parameters
    ----------
    terms : tuple of str
        The measures with their cut-offs, such as "alpha_ndcg@10". A collection keeps the union of the terms that its
        metrics need.
    column : {"subtopic", "category"}
        The column of the topics that a document covers. With "subtopic", a row contains a subtopic of the query and the
        relevance grade of the document for this subtopic (`y_true`). With "category", a row contains a category of the
        document.
    relevance_level : float, optional
        The lowest grade that counts as relevant. By default, any grade above 0 is relevant.

    Notes
    -----
    Documents with equal scores are in ascending order of their IDs, as in ndeval. In all other respects, the state
    works like `RankingSums`.
    """

    measures = MEASURES

    column: str = setting(default="subtopic", choices=("subtopic", "category"))
    relevance_level: float | None = setting(default=None, above=0.0)

    def needs(self) -> tuple[Need, ...]:
        return (
            *([grade()] if self.column == "subtopic" else []),
            score(scale="real"),
            query(),
            name(),
            group(self.column),
            replace(weight(), once=True),
            Need("retrieved", FLAG, optional=True),
            Need("mask", FLAG, optional=True),
        )

    def make_consistent(self, columns: dict[str, Any]) -> dict[str, Any]:
        n = len(columns["query"])
        return with_full_mask(columns) | {"document": np.arange(n, dtype=np.int64) * 7 % 11 * n + np.arange(n)}

    def find_contradiction(self, columns: Mapping[str, Any]) -> tuple[str, int, str] | None:
        order, starts_document, topic_ids = self._sort_rows(columns)
        is_repeated = ~starts_document[1:] & (topic_ids[order[1:]] == topic_ids[order[:-1]])
        if is_repeated.any():
            return self.column, int(order[1:][is_repeated].min()), f"the document has two rows with this {self.column}"
        scores, documents = columns["y_score"].values, columns["document"].values
        query_of_row = query_numbers(columns["query"].starts, len(order))
        by = np.lexsort([documents, query_of_row])
        same = (documents[by[1:]] == documents[by[:-1]]) & (query_of_row[by[1:]] == query_of_row[by[:-1]])
        for role, values in (("y_score", scores), ("retrieved", mask_retrieved(columns))):
            if (differs := same & (values[by[1:]] != values[by[:-1]])).any():
                return role, int(by[1:][differs].min()), "another row of this document has a different value"
        return None

    def _sort_rows(self, columns: Mapping[str, Any]) -> tuple[Ints, NDArray[np.bool_], Ints]:
        """Sort the rows by query, rank, document and topic (the subtopic or the category).

        Returns
        -------
        order : int64 array
            The indices of the rows in sorted order.
        starts_document : bool array
            For each row in sorted order, whether it is the first row of a document.
        topic_ids : int64 array
            For each row in the original order, a number that identifies its topic.
        """
        keys, documents = columns["query"], columns["document"].values
        assert isinstance(keys, IdColumn)
        n = len(documents)
        query_of_row, ids = query_numbers(keys.starts, n), columns[self.column].values
        topic_ids = (
            np.unique(ids.reshape(n, -1), axis=0, return_inverse=True)[1].reshape(-1) if n else np.zeros(0, np.int64)
        )
        order = np.lexsort([topic_ids, documents, -columns["y_score"].values, ~mask_retrieved(columns), query_of_row])
        starts_new = (documents[order[1:]] != documents[order[:-1]]) | (
            query_of_row[order[1:]] != query_of_row[order[:-1]]
        )
        return order, np.r_[True, starts_new][:n], topic_ids

    def derive_columns(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        starts, n = columns["query"].starts, len(columns["y_score"].values)
        order, starts_document, topic_ids = self._sort_rows(columns)
        query_of_row, is_listed = query_numbers(starts, n)[order], mask_retrieved(columns)[order]
        is_relevant = np.ones(n, bool)
        if self.column == "subtopic":
            is_relevant = columns["y_true"].values[order] >= (
                MIN_POSITIVE if self.relevance_level is None else self.relevance_level
            )
        topic, topics = _number_subtopics(query_of_row, topic_ids[order], is_relevant, len(starts))
        bounds = np.append(np.flatnonzero(starts_document), n)
        first = bounds[:-1]
        owner, shown = query_of_row[first], is_listed[first]
        useful = np.logical_or.reduceat(is_relevant, first) if n else is_relevant
        useful = useful if self.column == "subtopic" else np.zeros(len(first), bool)
        # `facts` contains five integers for each query, as in `QuerySums`. The first four are the numbers of documents
        # that are retrieved and irrelevant, retrieved and relevant, not retrieved and irrelevant, and not retrieved and
        # relevant. The fifth is 1 if the query counts as empty, else 0: it has no relevant subtopic or, with
        # categories, fewer than two retrieved documents.
        facts = np.zeros((len(starts), 5), np.int64)
        np.add.at(facts, (owner, 2 * ~shown + useful), 1)
        returned = facts[:, 0] + facts[:, 1]
        facts[:, 4] = topics == 0 if self.column == "subtopic" else returned < 2
        of_documents = np.append(np.searchsorted(owner, np.arange(len(starts))), len(owner))
        # The kernel builds an ideal ranking by adding one document at a time. Among equally good documents, it adds the
        # one with the largest ID, so it needs the documents of each query in descending order of their IDs.
        named = np.lexsort([-columns["document"].values[order][first], owner]) - of_documents[owner]
        out = np.empty(len(starts) * len(self.terms))
        read = [parse_term(t) for t in self.terms]
        deepest = max((k for _, k, _ in read), default=1)
        kernel_registry.find_kernel("subtopics:compute_subtopic_measures")(
            topic, bounds, named, of_documents, returned, topics,
            np.array([MEASURES.index(m) for m, _, _ in read], np.int64), np.array([k for _, k, _ in read], np.int64),
            np.array([p for _, _, p in read]), log_discounts(deepest), 1.0 / np.arange(1.0, deepest + 1),
            np.zeros(int(topics.max(initial=1))), np.zeros(int(np.diff(of_documents).max(initial=1)), np.int64), out,
        )  # fmt: skip
        derived = {"values": Column(out, ""), "facts": Column(facts.reshape(-1), ""), "starts": Column(starts, "")}
        return derived | ({"sample_weight": columns["sample_weight"]} if "sample_weight" in columns else {})


def _number_subtopics(
    query_of_row: Ints, topic_ids: Ints, is_relevant: NDArray[np.bool_], queries: int
) -> tuple[Ints, Ints]:
    """Assign consecutive numbers, from 0, to the topics of each query. Only topics of relevant rows get a number.

    Returns
    -------
    topic : int64 array
        The topic number of each row; -1 if the row is not relevant.
    topics : int64 array
        The number of topics of each query.
    """
    topic, topics = np.full(len(query_of_row), -1, np.int64), np.zeros(queries, np.int64)
    pairs, code = np.unique(np.stack([query_of_row[is_relevant], topic_ids[is_relevant]]), axis=1, return_inverse=True)
    np.add.at(topics, pairs[0], 1)
    topics_before = np.cumsum(topics) - topics
    topic[is_relevant] = code.reshape(-1) - topics_before[query_of_row[is_relevant]]
    return topic, topics
