"""The counter of a random sample of distinct keys, chosen by hash.

Each cell (such as a slice) has a level. Keys whose hash begins with fewer zero bits than the level are skipped. All
other keys are buffered, and merged into the sample later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..statistics.groups.partitions import hashes_of
from ..statistics.key_kinds import kind_number
from ..statistics.key_sample import ALL, SALT, KeySample, thin_keys
from .counter import Counter
from .tallies import LiveExactRows

__all__ = ["KeyCounter"]

# The sample is reduced if it contains more than 2 * n + FEW keys, where n is the number of keys after the last
# reduction.
FEW = 1 << 16


class KeyCounter(Counter):
    """A counter that keeps a random sample of the distinct keys, such as user IDs, chosen by hash."""

    statistic: KeySample
    keys_after_thinning = 0
    """The number of keys that were left after the last reduction of the sample."""

    def reserve(self, rows: int, *, weighted: bool) -> bool:
        changed = super().reserve(rows, weighted=False)
        live = self.tallies["keys"]
        if len(live.entries) + int(live.used[0]) > 2 * self.keys_after_thinning + FEW:
            self._thin()
        self.tallies["keys"].reserve(rows, None, weighted=False)
        return changed

    def _thin(self) -> None:
        """Drop keys by raising the level of each cell (such as a slice) until at most `limit` of its keys are left.

        Only keys whose hash begins with at least `level` zero bits remain in the sample.
        """
        old: LiveExactRows = self.tallies["keys"]
        entries, levels = thin_keys(old.consolidate(), self.flats["level"], self.statistic.limit)
        fresh = LiveExactRows(old.shift, lone=self.lone)
        fresh.set_entries(entries)
        # Assign all attributes in one call into C, so that an interrupt cannot leave only some of them changed.
        flats = self.flats | {"level": levels}
        self.__dict__.update(tallies={"keys": fresh}, flats=flats, keys_after_thinning=len(entries))

    def stage_rows(self, columns: Mapping[str, Column], at: NDArray[np.int64], rows: int) -> list[Callable[[], Any]]:
        """Write the hashes of keys after the used part of the buffer; return the calls that add them to the sample."""
        if not rows:
            return []
        hashes, live = hashes_of(columns["value"].values, SALT), self.tallies["keys"]
        cells = at if len(at) else np.zeros(rows, np.int64)
        level = self.flats["level"].astype(np.uint64)
        kept = hashes <= ALL >> level[cells]
        first = int(live.used[0])
        end = first + int(kept.sum())
        live.low[first:end] = hashes[kept]
        if len(live.high):
            live.high[first:end] = cells[kept]
        row_counts = self.flats["rows"] + np.bincount(cells, minlength=len(self.flats["rows"]))
        kind, kinds = kind_number(columns["value"].source, np.zeros(0)), self.flats["kinds"]
        # For each cell of these rows, store the kind of the keys, such as integers. Skip this if all cells have already
        # had keys of this kind.
        if not kinds[:, kind].all():
            kinds = kinds.copy()
            kinds[cells, kind] = 1
        fresh = self.flats | {"rows": row_counts, "kinds": kinds}
        return [partial(live.used.__setitem__, 0, end), partial(self.__dict__.update, flats=fresh)]
