"""Samples of keys while rows come: keys beyond the level are not taken, those that are wait to be sorted in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..statistics.groups.solve import hashes_of
from ..statistics.key_kinds import kind_of
from ..statistics.key_sample import ALL, SALT, KeySample, thinned
from .counter import Counter
from .tallies import HotExact

__all__ = ["KeyCounter"]

FEW = 1 << 16  # keys that are never looked through


class KeyCounter(Counter):
    """A sample of keys that is being counted."""

    statistic: KeySample
    after = 0
    """How many keys were left when there were last too many."""

    def room(self, rows: int, *, weighted: bool) -> bool:
        changed = super().room(rows, weighted=False)
        hot = self.hot["keys"]
        if len(hot.entries) + int(hot.used[0]) > 2 * self.after + FEW:
            self._thin()
        self.hot["keys"].room(rows, None, weighted=False)
        return changed

    def _thin(self) -> None:
        """Raise levels until no cell has more keys than its limit; all of it or, should this be interrupted, nothing."""
        old: HotExact = self.hot["keys"]
        entries, levels = thinned(old.settle(), self.flats["level"], self.statistic.limit)
        fresh = HotExact(old.shift, lone=self.lone)
        fresh.take(entries)
        self.__dict__.update(hot={"keys": fresh}, flats=self.flats | {"level": levels}, after=len(entries))

    def absorbed(self, columns: Mapping[str, Column], at: NDArray[np.int64], rows: int) -> list[Callable[[], Any]]:
        """Write keys where nobody sees them yet; return the calls after which they are there."""
        if not rows:
            return []
        hashes, hot = hashes_of(columns["value"].values, SALT), self.hot["keys"]
        cells = at if len(at) else np.zeros(rows, np.int64)
        level = self.flats["level"].astype(np.uint64)
        kept = hashes <= ALL >> level[cells]
        first = int(hot.used[0])
        end = first + int(kept.sum())
        hot.low[first:end] = hashes[kept]
        if len(hot.high):
            hot.high[first:end] = cells[kept]
        seen = self.flats["rows"] + np.bincount(cells, minlength=len(self.flats["rows"]))
        kind, kinds = kind_of(columns["value"].source, np.zeros(0)), self.flats["kinds"]
        if not kinds[:, kind].all():  # of cells that are new
            kinds = kinds.copy()
            kinds[cells, kind] = 1
        fresh = self.flats | {"rows": seen, "kinds": kinds}
        return [partial(hot.used.__setitem__, 0, end), partial(self.__dict__.update, flats=fresh)]
