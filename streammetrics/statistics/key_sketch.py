"""Count-min: how often a key came that is named afterwards, from a table whose size does not depend on the keys."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.discovered_keys import found_key
from ..batch.ids import integer_ids
from ..batch.kinds import Need, weight
from ..errors import StateFormatError
from ..numerics.exact import UNIT, weights
from ..numerics.keys import atom_text, hash_of, plain, raw, scattered
from ..numerics.settings import setting
from ..state.declare import Array, Tally
from .key_kinds import KeyKinds, kind_of

__all__ = ["KeySketch"]

Words = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class KeySketch(KeyKinds, tag="key_sketch"):
    """A count-min sketch: rows of tables of counters, in each of which a key has one, by a hash that is fixed for ever.

    Parameters
    ----------
    bits : int
        log2 of the counters of a table.
    depth : int
        How many tables there are.
    missing, missing_values
        As `sm.extend.group` takes them.

    Notes
    -----
    It is linear: counters add up, whatever the order. No key is kept, so it can only be asked for one that is named: the
    least of its counters is its weight or more. 4 bytes a counter in use, 12 with weights. Source: Cormode and
    Muthukrishnan (2005).
    """

    bits: int = setting(default=16, low=4, high=24)
    depth: int = setting(default=4, low=1, high=16)
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    rows = Tally("places")

    @property
    def places(self) -> int:
        """The number of counters."""
        return self.depth << self.bits

    @property
    def times(self) -> int:
        return self.depth

    def needs(self) -> tuple[Need, ...]:
        return found_key("value", self.missing, self.missing_values), weight()

    def absorb(self, into: dict[str, Any], at: Array, **columns: Any) -> None:
        column = columns["value"]
        used, codes = np.unique(column.values, return_inverse=True)
        words = _words(column.source, [column.keys[i] for i in used.tolist()])
        given = columns["sample_weight"].values if "sample_weight" in columns else None
        into["kinds"][at, kind_of(column.source, np.zeros(0))] = 1
        for row in self._places(words):
            into["rows"].append((at, row[codes.reshape(-1)], given))

    def _places(self, words: Words) -> NDArray[np.int64]:
        """The counter of each word in each table."""
        tables = np.arange(self.depth, dtype=np.uint64)[:, None]
        low = scattered(words[None, :] + GOLDEN * (tables + np.uint64(1))) >> np.uint64(64 - self.bits)
        return np.asarray((tables << np.uint64(self.bits)) | low).astype(np.int64)

    def check(self) -> None:
        held = self.cells.tallies["rows"]
        if held.excess is not None and (weights(held.mass, held.excess) < 0).any():
            raise StateFormatError("KeySketch.rows holds a counter below 0")

    @property
    def unit(self) -> int:
        """What a row of weight 1 counts in `most_of`."""
        return 1 if self.rows.excess is None else UNIT

    def most_of(self, key: Any) -> int:
        """The least of the counters of a key, in units: what it weighs, or more."""
        held = self.rows
        found = dict(zip(held.places.tolist(), weights(held.mass, held.excess).tolist(), strict=True))
        kind, atom = raw(key) or ("", None)
        places = self._places(_words(kind, [] if atom is None else [atom]))
        return min((found.get(place, 0) for place in places.reshape(-1).tolist()), default=0)

    def weight(self) -> Fraction:
        """What all rows weigh; exact."""
        return Fraction(sum(weights(self.rows.mass, self.rows.excess).tolist()), self.unit * self.depth)

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows_seen.sum()), "weight": self.weight()}


def _words(kind: str, keys: list[Any]) -> Words:
    """64 bits of each key of a kind; an integer is its own."""
    if kind == "integer":
        return integer_ids(np.array(keys, object)).view(np.uint64)
    return np.fromiter((hash_of(atom_text(plain(kind, k))) for k in keys), np.uint64, len(keys))
