"""How often each item is among the first k of a list: what recommendations expose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import FoundColumn
from ..batch.columns import Column
from ..batch.ids import IdColumn, query
from ..batch.kinds import FLAG, Need, score, weight
from ..errors import StateFormatError
from ..numerics.exact import UNIT, weights
from ..numerics.settings import setting
from ..state.declare import Flat
from .found_classes import numbered
from .key_counts import KeyCounts
from .query_sums import listed, owners, unmasked
from .step import Like, Step

__all__ = ["ListedKeys"]

Ints = NDArray[np.int64]


class ListedKeys(KeyCounts, tag="listed_keys"):
    """Lists by item, those that have it among their first k; and, of these, the ones that have it first.

    Parameters
    ----------
    column : str
        The role of the items.
    k : int
        How many of each list count, by falling score; equal scores in the ascending order of the items.
    limit : int
        How many different items there may be.

    Notes
    -----
    100 bytes an item that was among the first k of a list, and what the item itself takes, once.
    """

    column: str = setting(default="item")
    k: int = setting(default=10, low=1, high=1 << 24)

    firsts = Flat()
    firsts_excess = Flat(form="fixed", beside="firsts")

    together = "query"

    def needs(self) -> tuple[Need, ...]:
        others = replace(weight(), once=True), Need("retrieved", FLAG, optional=True), Need("mask", FLAG, optional=True)
        return super().needs()[0], score(scale="real"), query(), *others

    def plausible(self, columns: dict[str, Any]) -> dict[str, Any]:
        made, items = unmasked(columns), columns[self.column]
        codes = np.unique(items, return_inverse=True)[1].reshape(-1)
        pairs = list(zip(columns["query"].tolist(), codes.tolist(), strict=True))
        again = np.array([pairs[:i].count(pair) for i, pair in enumerate(pairs)], np.int64)
        if items.dtype.kind == "U":  # no list has an item twice
            made[self.column] = np.char.add(items, np.where(again > 0, again.astype("U2"), ""))
        return made

    def contradiction(self, columns: Mapping[str, Any]) -> tuple[str, int, str] | None:
        of, items = _lists(columns), columns[self.column].values
        order = np.lexsort([items, of])
        there = listed(columns)[order]
        again = (items[order[1:]] == items[order[:-1]]) & (of[order[1:]] == of[order[:-1]]) & there[1:] & there[:-1]
        return (self.column, int(order[1:][again].min()), "the list has this item twice") if again.any() else None

    def _places(self, columns: Mapping[str, Any]) -> tuple[Ints, Ints]:
        """The place of each row in its list, from 0; the row that is first in its list. Rows not returned come last."""
        of, scores, codes = _lists(columns), columns["y_score"].values, columns[self.column]
        there = listed(columns)
        order = np.lexsort([_ranks(codes)[codes.values], -scores, ~there, of])
        starts = np.flatnonzero(np.r_[True, of[order[1:]] != of[order[:-1]]][: len(of)])
        at, places = np.repeat(starts, np.diff(starts, append=len(of))), np.empty(len(of), np.int64)
        places[order] = np.where(there[order], np.arange(len(of)) - at, self.k)
        first = np.empty(len(of), np.int64)
        first[order] = order[at]
        return places, first

    def class_codes(self, columns: Mapping[str, Any], numbers: Any) -> tuple[Ints, ...]:
        # rows that do not count go to the first of their list, so that no item is kept that no list has among its first
        items = columns[self.column]
        places, first = self._places(columns)
        codes = np.where(places < self.k, items.values, items.values[first])
        return (numbered(self.column, FoundColumn(codes, items.source, items.keys), numbers, "items"),)

    def derive(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        places, _ = self._places(columns)
        given = columns.get("sample_weight")
        each = np.ones(len(places)) if given is None else given.values[_lists(columns)]
        made = {n: np.where(places < k, each, 0.0) for n, k in (("sample_weight", self.k), ("firsts", 1))}
        return {n: Column(np.ascontiguousarray(w), "float64") for n, w in made.items()}

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        yield Step("class_counts:count_cells", "at", "sample_weight", own.counts, own.excess)
        yield Step("class_counts:count_cells", "at", "firsts", own.firsts, own.firsts_excess)

    def check(self) -> None:
        first, shown = (self.cells.flats[n] for n in ("firsts", "counts"))
        if (first != shown).any():
            raise StateFormatError("ListedKeys.firsts and ListedKeys.counts are not of the same rows")
        front = self.cells.inner[:, 0] if self.cells.inner is not None else np.zeros(len(shown), np.int64)
        each, of_first = self._units("counts", "excess"), self._units("firsts", "firsts_excess")
        lists, total = np.zeros((2, len(self)), object)
        np.add.at(lists, front, of_first)
        np.add.at(total, front, each)
        if (of_first > each).any() or (each > lists[front]).any() or (total > self.k * lists).any():
            raise StateFormatError(f"ListedKeys.counts holds more than lists of {self.k} different items have")

    def _units(self, rows: str, excess: str) -> NDArray[Any]:
        """What the rows of a part weigh, cell by cell, in units of 2**-60."""
        held = self.cells.flats
        return weights(held[rows], held[excess]) if excess in held else weights(held[rows], None) * UNIT

    @property
    def lists(self) -> Fraction:
        """What the lists that have an item weigh; exact."""
        return Fraction(
            sum(weights(self.firsts, self.firsts_excess).tolist()), 1 if self.firsts_excess is None else UNIT
        )


def _lists(columns: Mapping[str, Any]) -> Ints:
    """The list of each row, by number."""
    keys = columns["query"]
    assert isinstance(keys, IdColumn)
    return owners(keys.starts, len(keys.values))


def _ranks(items: FoundColumn) -> Ints:
    """The place of each key of a column in ascending order."""
    keys = items.keys
    if not isinstance(keys, list):
        return np.argsort(np.argsort(keys, kind="stable"), kind="stable")
    ranks = np.empty(len(keys), np.int64)
    ranks[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    return ranks
