"""For each item, the number of recommendation lists that contain it among their first k items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import DiscoveredColumn
from ..batch.columns import Column
from ..batch.ids import IdColumn, query
from ..batch.kinds import FLAG, Need, score, weight
from ..errors import StateFormatError
from ..numerics.exact import UNIT, weights_in_units
from ..numerics.settings import setting
from ..state.declare import Flat
from .discovered_classes import number_classes
from .key_counts import KeyCounts
from .query_sums import mask_retrieved, query_numbers, with_full_mask
from .step import Like, Step

__all__ = ["ListedKeys"]

Ints = NDArray[np.int64]


class ListedKeys(KeyCounts, tag="listed_keys"):
    """For each item, the number of lists that contain it among their first k items and the number that begin with it.

    Parameters
    ----------
    column : str
        The name of the column of items.
    k : int
        The number of items to count at the top of each list. A list is sorted by descending score; items with equal
        scores are in ascending order.
    limit : int
        The maximum number of distinct items to store. A batch that would exceed it raises MemoryLimitError and is not
        counted.

    Notes
    -----
    Only items among the first k of a list take memory: 100 bytes each, plus the item itself.
    """

    column: str = setting(default="item")
    k: int = setting(default=10, low=1, high=1 << 24)

    firsts = Flat()
    firsts_excess = Flat(form="fixed", excess_of="firsts")

    block_column = "query"

    def needs(self) -> tuple[Need, ...]:
        others = replace(weight(), once=True), Need("retrieved", FLAG, optional=True), Need("mask", FLAG, optional=True)
        return super().needs()[0], score(scale="real"), query(), *others

    def make_consistent(self, columns: dict[str, Any]) -> dict[str, Any]:
        plausible, items = with_full_mask(columns), columns[self.column]
        codes = np.unique(items, return_inverse=True)[1].reshape(-1)
        pairs = list(zip(columns["query"].tolist(), codes.tolist(), strict=True))
        again = np.array([pairs[:i].count(pair) for i, pair in enumerate(pairs)], np.int64)
        # In valid columns, no item occurs twice in a list, so append a number to repeated items.
        if items.dtype.kind == "U":
            plausible[self.column] = np.char.add(items, np.where(again > 0, again.astype("U2"), ""))
        return plausible

    def find_contradiction(self, columns: Mapping[str, Any]) -> tuple[str, int, str] | None:
        list_of_row, items = _list_numbers(columns), columns[self.column].values
        order = np.lexsort([items, list_of_row])
        is_listed = mask_retrieved(columns)[order]
        is_repeated = (
            (items[order[1:]] == items[order[:-1]])
            & (list_of_row[order[1:]] == list_of_row[order[:-1]])
            & is_listed[1:]
            & is_listed[:-1]
        )
        return (
            (self.column, int(order[1:][is_repeated].min()), "the list contains this item twice")
            if is_repeated.any()
            else None
        )

    def _list_positions(self, columns: Mapping[str, Any]) -> tuple[Ints, Ints]:
        """Return, for each row, its position in its list and the index of the row at the first position of the list.

        Positions start at 0. A row whose item was not retrieved gets position k, so that it is not counted.
        """
        list_of_row, scores, codes = _list_numbers(columns), columns["y_score"].values, columns[self.column]
        is_listed = mask_retrieved(columns)
        order = np.lexsort([_rank_keys(codes)[codes.values], -scores, ~is_listed, list_of_row])
        starts = np.flatnonzero(np.r_[True, list_of_row[order[1:]] != list_of_row[order[:-1]]][: len(list_of_row)])
        at, places = np.repeat(starts, np.diff(starts, append=len(list_of_row))), np.empty(len(list_of_row), np.int64)
        places[order] = np.where(is_listed[order], np.arange(len(list_of_row)) - at, self.k)
        first = np.empty(len(list_of_row), np.int64)
        first[order] = order[at]
        return places, first

    def class_codes(self, columns: Mapping[str, Any], numbers: Any) -> tuple[Ints, ...]:
        # Rows beyond the first k positions have weight 0. Replace their items with the first item of the list, so that
        # the state stores no items that it does not count.
        items = columns[self.column]
        places, first = self._list_positions(columns)
        codes = np.where(places < self.k, items.values, items.values[first])
        return (number_classes(self.column, DiscoveredColumn(codes, items.source, items.keys), numbers, "items"),)

    def derive_columns(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        places, _ = self._list_positions(columns)
        list_weights = columns.get("sample_weight")
        each = np.ones(len(places)) if list_weights is None else list_weights.values[_list_numbers(columns)]
        row_weights = {n: np.where(places < k, each, 0.0) for n, k in (("sample_weight", self.k), ("firsts", 1))}
        return {n: Column(np.ascontiguousarray(w), "float64") for n, w in row_weights.items()}

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        yield Step("class_counts:count_cells", "at", "sample_weight", own.counts, own.excess)
        yield Step("class_counts:count_cells", "at", "firsts", own.firsts, own.firsts_excess)

    def check(self) -> None:
        first, shown = (self.cells.flats[n] for n in ("firsts", "counts"))
        if (first != shown).any():
            raise StateFormatError(
                "the state is corrupt: ListedKeys.firsts and ListedKeys.counts do not count the same rows"
            )
        front = self.cells.inner_keys[:, 0] if self.cells.inner_keys is not None else np.zeros(len(shown), np.int64)
        each, of_first = self._weight_units("counts", "excess"), self._weight_units("firsts", "firsts_excess")
        lists, total = np.zeros((2, len(self)), object)
        np.add.at(lists, front, of_first)
        np.add.at(total, front, each)
        if (of_first > each).any() or (each > lists[front]).any() or (total > self.k * lists).any():
            raise StateFormatError(
                f"the state is corrupt: ListedKeys.counts has more items than lists of {self.k} different items allow"
            )

    def _weight_units(self, rows: str, excess: str) -> NDArray[Any]:
        """Return the weight of each item, in units of 2**-60, from two arrays of the state.

        Parameters
        ----------
        rows : {"counts", "firsts"}
            The name of the array of row counts.
        excess : {"excess", "firsts_excess"}
            The name of the array of sums of (weight - 1).
        """
        flats = self.cells.flats
        return (
            weights_in_units(flats[rows], flats[excess])
            if excess in flats
            else weights_in_units(flats[rows], None) * UNIT
        )

    @property
    def list_weight(self) -> Fraction:
        """The exact total weight of the lists that contain at least one item."""
        return Fraction(
            sum(weights_in_units(self.firsts, self.firsts_excess).tolist()), 1 if self.firsts_excess is None else UNIT
        )


def _list_numbers(columns: Mapping[str, Any]) -> Ints:
    """Return, for each row, the index of its recommendation list in the batch."""
    keys = columns["query"]
    assert isinstance(keys, IdColumn)
    return query_numbers(keys.starts, len(keys.values))


def _rank_keys(items: DiscoveredColumn) -> Ints:
    """Return the rank of each distinct key of a column; the smallest key has rank 0."""
    keys = items.keys
    if not isinstance(keys, list):
        return np.argsort(np.argsort(keys, kind="stable"), kind="stable")
    ranks = np.empty(len(keys), np.int64)
    ranks[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    return ranks
