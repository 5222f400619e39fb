"""A random sample of the distinct keys of a column. The hash of a key determines whether it is in the sample.

The sample yields estimates of the number of distinct keys, and of the number of keys that two states have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..batch.ids import group
from ..batch.kinds import Need
from ..errors import StateFormatError
from ..numerics.settings import setting
from ..state.declare import Array, Flat, Tally
from ..state.tally import Entries, canonicalize
from .groups.group_rows import count_leading_zeros
from .key_kinds import KeyKinds

__all__ = ["SALT", "KeySample", "hashes_at_one_level", "thin_keys"]

# The salt of the hash that selects keys. It must never change, because saved states contain hashes. It differs from all
# other salts, so that the sample is independent of all other random choices that depend on the key, such as the choice
# of a shard.
SALT = 0x44495354494E4354
ALL = np.uint64((1 << 64) - 1)
# The largest level. At level L, only hashes with at least L leading zeros are kept. At level 60, only 16 of the 2**64
# possible hashes are left.
DEEPEST = 60
Hashes = NDArray[np.uint64]


class KeySample(KeyKinds, tag="key_sample"):
    """Hashes of distinct keys, with row counts. Cells (slices) with many keys keep only hashes with many leading zeros.

    Parameters
    ----------
    limit : int
        The maximum number of keys in a cell. At level L, a cell keeps only the keys whose hash has at least L leading
        zeros. If a cell has more than `limit` keys, its level is raised until at most `limit` keys are left.
    missing, missing_values
        How rows with missing keys are treated, and which values count as missing; see `sm.extend.group`.

    Notes
    -----
    This is Wegman's adaptive sampling (Flajolet 1990). The level and the kept keys depend only on the set of keys, not on
    their order or on merges. At level 0, a cell keeps all keys. Each further level halves the expected number of keys,
    so a cell that has exceeded the limit still keeps about limit / 2 keys or more. A key takes 12 bytes. It is
    identified by 64 bits, which represent an integer exactly and any other key by a hash.
    """

    limit: int = setting(default=1 << 16, low=16, high=float(1 << 24))
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    rows = Flat()
    level = Flat(form="register")
    keys = Tally("hashes")

    counter: ClassVar[str] = "key_sample"

    @property
    def hashes(self) -> int:
        """The number of possible hash values, which are the codes in the histogram `keys`."""
        return 1 << 64

    def needs(self) -> tuple[Need, ...]:
        return (group("value", self.missing, self.missing_values),)

    def absorb(self, into: dict[str, Array], at: Any, **columns: Any) -> None:
        raise NotImplementedError("absorb() does not apply: the module `count.key_sample` counts keys")

    def canonicalize(self, parts: Mapping[str, Any] | None = None) -> Self:
        state = super().canonicalize(parts)
        return state.at_needed_level() if len(state) else state

    def at_needed_level(self) -> Self:
        """Return a state in which the level of each cell is raised until the cell keeps at most `limit` keys."""
        keys, levels = self.cells.tallies["keys"], self.cells.flats["level"]
        entries, raised = thin_keys(keys, levels, self.limit)
        if entries is keys:
            return self
        return self.with_cells(
            replace(self.cells, flats={**self.cells.flats, "level": raised}, tallies={"keys": entries})
        )

    def check(self) -> None:
        keys, levels, rows = self.cells.tallies["keys"], self.read_cells_named("level"), self.read_cells_named("rows")
        if levels.max(initial=0) > DEEPEST or thin_keys(keys, levels, self.limit)[0] is not keys:
            raise StateFormatError(
                "the state is corrupt: KeySample.keys contains keys outside the sample, or too many keys"
            )
        kept = self.rows_by_cell("keys")
        if keys.excess is not None:
            raise StateFormatError("the state is corrupt: KeySample.keys contains weights, but keys have no weights")
        if ((kept > rows) | ((levels == 0) & (kept != rows))).any():
            raise StateFormatError(
                "the state is corrupt: KeySample.keys does not count the same rows as KeySample.rows"
            )

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows)}

    @property
    def kept_keys(self) -> int:
        """The number of keys in the sample; the state must have only one cell (slice)."""
        return len(self.keys)

    @property
    def share(self) -> float:
        """The expected share of distinct keys that the sample contains; the state must have only one cell (slice)."""
        return float(np.ldexp(1.0, -int(self.level)))


def thin_keys(entries: Entries, levels: NDArray[np.uint8], limit: int) -> tuple[Entries, NDArray[np.uint8]]:
    """Raise the level of each cell (slice) with more than `limit` hashes, and drop the hashes that its level excludes.

    Return the remaining entries and the new level of each cell. A cell of level L keeps the hashes with at least L
    leading zeros.
    """
    entries = _drop_beyond_level(entries, levels)
    starts = entries.cell_starts(len(levels))
    full_cells = np.flatnonzero(np.diff(starts) > limit)
    if not len(full_cells):
        return entries, levels
    raised = levels.copy()
    # The hashes of a cell are in ascending order, so the hash at index `limit` is the smallest that must be dropped. The
    # lowest level that excludes it is its number of leading zeros plus one.
    raised[full_cells] = count_leading_zeros(entries.codes[starts[full_cells] + limit]) + 1
    return _drop_beyond_level(entries, raised), raised


def _drop_beyond_level(entries: Entries, levels: NDArray[np.uint8]) -> Entries:
    beyond = entries.codes > ALL >> levels.astype(np.uint64)[entries.cells] if levels.any() else np.zeros(0, bool)
    return canonicalize(entries.select(~beyond)) if beyond.any() else entries


def hashes_at_one_level(states: Sequence[KeySample]) -> tuple[float, list[Hashes]]:
    """Reduce several samples to the highest of their levels, so that they can be compared.

    Parameters
    ----------
    states : sequence of KeySample
        States with one cell (slice) each.

    Returns
    -------
    share : float
        The expected share of all keys that is sampled at this level.
    hashes : list of uint64 arrays
        The hashes of each state that belong to the sample at this level.
    """
    level = max((int(s.level) for s in states), default=0)
    most = ALL >> np.uint64(level)
    return float(np.ldexp(1.0, -level)), [s.keys.codes[s.keys.codes <= most] for s in states]
