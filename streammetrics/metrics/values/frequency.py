"""How often one key came, among any number of others."""

from __future__ import annotations

import math
from typing import Any

from ...collect.metric import Metric
from ...numerics.exact import to_float
from ...numerics.keys import shown
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import OwnReading, Reading, widened
from ...statistics.key_sketch import KeySketch

__all__ = ["KeyFrequency"]


class KeyFrequency(Metric[KeySketch, float], tag="key_frequency"):
    """How often a key came that is known by name, in constant memory: never too low, and certified.

    Formula: the least of the counters of the key in a count-min sketch.

    Parameters
    ----------
    key : int, str or bytes
        Which key.
    bits : int
        log2 of the counters of a table.
    depth : int
        How many tables there are.
    missing, missing_values
        Whether a row without a key raises, or is left out and counted; keys that stand for none, such as 0.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Any number of metrics that differ in `key` alone share one sketch. It is linear, so order does not matter, and any key
    may be asked for later: ``KeyFrequency("new").of(state)``. Bound: 0 and the value; with probability 1 - exp(-depth) the
    truth is not below the value less e / 2**bits of all rows (`explain()`: "expected_excess"). While keys are few enough
    to be counted `HeavyHitters` is exact. Up to 1 MiB at 16 bits and 4 tables, less for few keys; about 0.5 us a row.
    Source: Cormode and Muthukrishnan (2005). 0 without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> metric = sm.KeyFrequency("de").update(["de", "fr", "de", "us"])
    >>> metric.compute(), sm.KeyFrequency("us").of(metric.state)
    (2.0, 1.0)
    """

    about = About(
        extensive=True,
        no_interval_reason="a count of these rows is no estimate; Mean of a 0/1 column has an interval",
        formula="least counter of the key in a count-min sketch",
        cost="up to 4 bytes a counter, 1 MiB at 16 bits and 4 tables; about 0.5 us a row",
        bound="0 <= truth <= value; truth >= value - e W / 2**bits with probability 1 - exp(-depth)",
        example={"key": "a"},
    )

    key: int | str | bytes = setting(kw_only=False)
    bits: int = setting(default=16, low=4, high=24)
    depth: int = setting(default=4, low=1, high=16)
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    @property
    def name(self) -> str:
        return f"{self.about.tag}@{shown(self.key)}"

    def make_state(self) -> KeySketch:
        return KeySketch(bits=self.bits, depth=self.depth, missing=self.missing, missing_values=self.missing_values)

    def of(self, state: KeySketch) -> float:
        return to_float(state.most_of(self.key), state.unit)

    def reason(self, state: KeySketch) -> str | None:
        return None

    def read(self, state: KeySketch) -> Reading:
        return OfCounters(self, state)


class OfCounters(OwnReading):
    """The reading of a sketch of counters, which are never too low."""

    def _bounds(self) -> tuple[float, float]:
        return 0.0, widened(self.value, self.state)[1]

    def _details(self) -> dict[str, float]:
        state: Any = self.state
        return {"expected_excess": math.e * to_float(state.weight()) / (1 << self.metric.bits)}
