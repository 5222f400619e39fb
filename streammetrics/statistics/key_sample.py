"""Different keys, thinned by a hash of their own: enough to say how many there were, and how many two sides share."""

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
from ..state.tally import Entries, canonical
from .groups.rows import zeros_of
from .key_kinds import KeyKinds

__all__ = ["SALT", "KeySample", "at_one_level", "thinned"]

SALT = 0x44495354494E4354  # other than those of shards, spills and samples of groups; for ever
ALL = np.uint64((1 << 64) - 1)
DEEPEST = 60  # zeros: 16 hashes have so many
Hashes = NDArray[np.uint64]


class KeySample(KeyKinds, tag="key_sample"):
    """The hashes of different keys, and how many rows each had: all of them, or those that begin with enough zeros.

    Parameters
    ----------
    limit : int
        How many different keys a cell keeps. While there are more, keys whose hash has fewest zeros in front go.
    missing, missing_values
        As `sm.extend.group` takes them.

    Notes
    -----
    Which keys stay, and the level (how many zeros), are functions of the set of keys alone: whatever the order, however
    it was split. A level halves what is kept; so between half the limit and the limit, and everything at level 0. A key
    is known by 64 bits: an integer exactly, others by their hash. 12 bytes a key. Source: Wegman's adaptive sampling
    (Flajolet 1990).
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
        """How many hashes there can be."""
        return 1 << 64

    def needs(self) -> tuple[Need, ...]:
        return (group("value", self.missing, self.missing_values),)

    def absorb(self, into: dict[str, Array], at: Any, **columns: Any) -> None:
        raise NotImplementedError("keys are thinned as they come: see `count.key_sample`")

    def present(self, parts: Mapping[str, Any] | None = None) -> Self:
        made = super().present(parts)
        return made.fitted() if len(made) else made

    def fitted(self) -> Self:
        """Leave out keys beyond the level of their cell, and raise this where there are too many."""
        held, levels = self.cells.tallies["keys"], self.cells.flats["level"]
        entries, raised = thinned(held, levels, self.limit)
        if entries is held:
            return self
        return self.holding(replace(self.cells, flats={**self.cells.flats, "level": raised}, tallies={"keys": entries}))

    def check(self) -> None:
        held, levels, rows = self.cells.tallies["keys"], self.flat("level"), self.flat("rows")
        if levels.max(initial=0) > DEEPEST or thinned(held, levels, self.limit)[0] is not held:
            raise StateFormatError("KeySample.keys holds keys beyond its level, or more of them than its limit")
        kept = self.by_cell("keys")
        if held.excess is not None:
            raise StateFormatError("KeySample.keys are weighted, which keys are not")
        if ((kept > rows) | ((levels == 0) & (kept != rows))).any():
            raise StateFormatError("KeySample.keys does not hold the keys of its rows")

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows)}

    @property
    def kept(self) -> int:
        """How many keys a state of one cell keeps."""
        return len(self.keys)

    @property
    def share(self) -> float:
        """The share of all keys that a state of one cell keeps."""
        return float(np.ldexp(1.0, -int(self.level)))


def thinned(entries: Entries, levels: NDArray[np.uint8], limit: int) -> tuple[Entries, NDArray[np.uint8]]:
    """Leave out what is beyond the level of each cell, and raise it where more keys than the limit are left."""
    entries = _within(entries, levels)
    starts = entries.starts(len(levels))
    over = np.flatnonzero(np.diff(starts) > limit)
    if not len(over):
        return entries, levels
    raised = levels.copy()
    raised[over] = zeros_of(entries.codes[starts[over] + limit]) + 1  # the first that is one too many
    return _within(entries, raised), raised


def _within(entries: Entries, levels: NDArray[np.uint8]) -> Entries:
    beyond = entries.codes > ALL >> levels.astype(np.uint64)[entries.cells] if levels.any() else np.zeros(0, bool)
    return canonical(entries.where(~beyond)) if beyond.any() else entries


def at_one_level(states: Sequence[KeySample]) -> tuple[float, list[Hashes]]:
    """Return the share of keys that all of some states of one cell keep, and the hashes that each has of those."""
    level = max((int(s.level) for s in states), default=0)
    most = ALL >> np.uint64(level)
    return float(np.ldexp(1.0, -level)), [s.keys.codes[s.keys.codes <= most] for s in states]
