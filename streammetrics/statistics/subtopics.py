"""Ranked lists by what their documents are about: sums over queries of measures that ask for something new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..batch.ids import IdColumn, group, name, query
from ..batch.kinds import FLAG, Need, grade, score, weight
from ..numerics import kernel_registry as compiled
from ..numerics.settings import setting
from .query_sums import QuerySums, listed, owners, parts, unmasked
from .ranking import ANY, discounts

__all__ = ["SubtopicSums"]

Ints = NDArray[np.int64]

MEASURES = ("alpha_ndcg", "alpha_dcg", "err_ia", "err_ia_ideal", "err_ia_plain", "subtopic_recall", "diversity")


class SubtopicSums(QuerySums, tag="subtopic_sums"):
    """Exact sums over queries of measures of what their documents are about, from a row for each pair of both.

    Parameters
    ----------
    terms : tuple of str
        The measures, each with its cut-off; a collection keeps the union of what its metrics ask for.
    column : {"subtopic", "category"}
        What documents are about: subtopics of a query, for some of which a document is relevant (`y_true`); or categories
        that it has.
    relevance_level : float, optional
        The lowest grade that is relevant; by default any above 0.

    Notes
    -----
    Equal scores are ordered by document, ascending, as ndeval does. Otherwise as `RankingSums`.
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

    def plausible(self, columns: dict[str, Any]) -> dict[str, Any]:
        n = len(columns["query"])
        return unmasked(columns) | {"document": np.arange(n, dtype=np.int64) * 7 % 11 * n + np.arange(n)}

    def contradiction(self, columns: Mapping[str, Any]) -> tuple[str, int, str] | None:
        order, new, about = self._order(columns)
        again = ~new[1:] & (about[order[1:]] == about[order[:-1]])
        if again.any():
            return self.column, int(order[1:][again].min()), f"the document has this {self.column} twice"
        scores, documents = columns["y_score"].values, columns["document"].values
        of = owners(columns["query"].starts, len(order))
        by = np.lexsort([documents, of])
        same = (documents[by[1:]] == documents[by[:-1]]) & (of[by[1:]] == of[by[:-1]])
        for role, values in (("y_score", scores), ("retrieved", listed(columns))):
            if (odd := same & (values[by[1:]] != values[by[:-1]])).any():
                return role, int(by[1:][odd].min()), "another row of this document says otherwise"
        return None

    def _order(self, columns: Mapping[str, Any]) -> tuple[Ints, NDArray[np.bool_], Ints]:
        """The order of rows, by place; which of them begin a document; what each row is about, by number in the batch."""
        keys, documents = columns["query"], columns["document"].values
        assert isinstance(keys, IdColumn)
        n = len(documents)
        of, ids = owners(keys.starts, n), columns[self.column].values
        about = (
            np.unique(ids.reshape(n, -1), axis=0, return_inverse=True)[1].reshape(-1) if n else np.zeros(0, np.int64)
        )
        order = np.lexsort([about, documents, -columns["y_score"].values, ~listed(columns), of])
        changed = (documents[order[1:]] != documents[order[:-1]]) | (of[order[1:]] != of[order[:-1]])
        return order, np.r_[True, changed][:n], about

    def derive(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        starts, n = columns["query"].starts, len(columns["y_score"].values)
        order, new, about = self._order(columns)
        of, there = owners(starts, n)[order], listed(columns)[order]
        good = np.ones(n, bool)
        if self.column == "subtopic":
            good = columns["y_true"].values[order] >= (ANY if self.relevance_level is None else self.relevance_level)
        topic, topics = _numbered(of, about[order], good, len(starts))
        bounds = np.append(np.flatnonzero(new), n)
        first = bounds[:-1]
        owner, shown = of[first], there[first]
        useful = np.logical_or.reduceat(good, first) if n else good
        useful = useful if self.column == "subtopic" else np.zeros(len(first), bool)
        facts = np.zeros((len(starts), 5), np.int64)
        np.add.at(facts, (owner, 2 * ~shown + useful), 1)
        returned = facts[:, 0] + facts[:, 1]
        facts[:, 4] = topics == 0 if self.column == "subtopic" else returned < 2
        of_documents = np.append(np.searchsorted(owner, np.arange(len(starts))), len(owner))
        named = np.lexsort([-columns["document"].values[order][first], owner]) - of_documents[owner]
        out = np.empty(len(starts) * len(self.terms))
        read = [parts(t) for t in self.terms]
        deepest = max((k for _, k, _ in read), default=1)
        compiled.kernel("subtopics:subtopics")(
            topic, bounds, named, of_documents, returned, topics,
            np.array([MEASURES.index(m) for m, _, _ in read], np.int64), np.array([k for _, k, _ in read], np.int64),
            np.array([p for _, _, p in read]), discounts(deepest), 1.0 / np.arange(1.0, deepest + 1),
            np.zeros(int(topics.max(initial=1))), np.zeros(int(np.diff(of_documents).max(initial=1)), np.int64), out,
        )  # fmt: skip
        made = {"values": Column(out, ""), "facts": Column(facts.reshape(-1), ""), "starts": Column(starts, "")}
        return made | ({"sample_weight": columns["sample_weight"]} if "sample_weight" in columns else {})


def _numbered(of: Ints, about: Ints, good: NDArray[np.bool_], queries: int) -> tuple[Ints, Ints]:
    """Number what good rows are about from 0 in each query, in the order of ids, -1 elsewhere; and how many there are."""
    topic, topics = np.full(len(of), -1, np.int64), np.zeros(queries, np.int64)
    pairs, code = np.unique(np.stack([of[good], about[good]]), axis=1, return_inverse=True)
    np.add.at(topics, pairs[0], 1)
    before = np.cumsum(topics) - topics
    topic[good] = code.reshape(-1) - before[of[good]]
    return topic, topics
