"""Count-min sketch: upper bounds on the weight of any key, in memory that does not grow with the number of keys."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.discovered_keys import discovered_key
from ..batch.ids import integer_ids
from ..batch.kinds import Need, weight
from ..errors import StateFormatError
from ..numerics.exact import UNIT, weights_in_units
from ..numerics.settings import setting
from ..numerics.slice_keys import encode_atom_text, from_stored_key, hash_text, mix_bits, to_stored_key
from ..state.declare import Array, Tally
from .key_kinds import KeyKinds, kind_number

__all__ = ["KeySketch"]

Words = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class KeySketch(KeyKinds, tag="key_sketch"):
    """A count-min sketch: `depth` tables of counters, in each of which a hash of the key selects one counter.

    Parameters
    ----------
    bits : int
        log2 of the number of counters per table.
    depth : int
        The number of tables.
    missing, missing_values
        How rows with missing keys are treated, and which values count as missing; see `sm.extend.group`.

    Notes
    -----
    A row adds its weight to one counter of each table. Several keys may share a counter, so each counter of a key is at
    least the weight of the key, and the smallest of its counters is the tightest bound. The order of rows does not
    matter. The state does not store the keys. A counter in use takes 4 bytes, or 12 bytes with weights. The hash
    function never changes, because the counters of saved states depend on it. Source: Cormode and Muthukrishnan (2005).
    """

    bits: int = setting(default=16, low=4, high=24)
    depth: int = setting(default=4, low=1, high=16)
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    rows = Tally("places")

    @property
    def places(self) -> int:
        """The number of counters in all tables."""
        return self.depth << self.bits

    @property
    def counts_per_row(self) -> int:
        return self.depth

    def needs(self) -> tuple[Need, ...]:
        return discovered_key("value", self.missing, self.missing_values), weight()

    def absorb(self, into: dict[str, Any], at: Array, **columns: Any) -> None:
        column = columns["value"]
        used, codes = np.unique(column.values, return_inverse=True)
        words = hash_keys(column.source, [column.keys[i] for i in used.tolist()])
        row_weights = columns["sample_weight"].values if "sample_weight" in columns else None
        into["kinds"][at, kind_number(column.source, np.zeros(0))] = 1
        for row in self._counter_places(words):
            into["rows"].append((at, row[codes.reshape(-1)], row_weights))

    def _counter_places(self, words: Words) -> NDArray[np.int64]:
        """Return the counter index of each key in each table, as an array of shape (tables, keys).

        `words` contains the 64 bits that `hash_keys` returns for each key.
        """
        tables = np.arange(self.depth, dtype=np.uint64)[:, None]
        # Add a different multiple of the golden ratio for each table. Two keys that share a counter in one table are then
        # unlikely to share a counter in another table.
        low = mix_bits(words[None, :] + GOLDEN * (tables + np.uint64(1))) >> np.uint64(64 - self.bits)
        return np.asarray((tables << np.uint64(self.bits)) | low).astype(np.int64)

    def check(self) -> None:
        counters = self.cells.tallies["rows"]
        if counters.excess is not None and (weights_in_units(counters.int64_counts, counters.excess) < 0).any():
            raise StateFormatError("the state is corrupt: KeySketch.rows contains a negative counter")

    @property
    def unit(self) -> int:
        """The number of units in a weight of 1 (see `max_weight_of`): 1, or 2**60 if rows have weights."""
        return 1 if self.rows.excess is None else UNIT

    def max_weight_of(self, key: Any) -> int:
        """Return an upper bound on the weight of a key, in units of 1 / `unit`: the smallest counter of the key."""
        counters = self.rows
        weight_at = dict(
            zip(
                counters.places.tolist(), weights_in_units(counters.int64_counts, counters.excess).tolist(), strict=True
            )
        )
        kind, atom = to_stored_key(key) or ("", None)
        places = self._counter_places(hash_keys(kind, [] if atom is None else [atom]))
        return min((weight_at.get(place, 0) for place in places.reshape(-1).tolist()), default=0)

    def weight(self) -> Fraction:
        """Return the exact weight of all rows."""
        return Fraction(
            sum(weights_in_units(self.rows.int64_counts, self.rows.excess).tolist()), self.unit * self.depth
        )

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.row_counts.sum()), "weight": self.weight()}


def hash_keys(kind: str, keys: list[Any]) -> Words:
    """Return 64 bits for each key: the value if the keys are integers, or a hash if they are of another `kind`."""
    if kind == "integer":
        return integer_ids(np.array(keys, object)).view(np.uint64)
    return np.fromiter((hash_text(encode_atom_text(from_stored_key(kind, k))) for k in keys), np.uint64, len(keys))
