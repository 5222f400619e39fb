"""The number of rows that have a given key, estimated by a sketch of constant size."""

from __future__ import annotations

import math
from typing import Any

from ...collect.metric import Metric
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...numerics.slice_keys import format_atom
from ...reading.about import About
from ...reading.reading import OwnReading, Reading, widen_for_rounding
from ...statistics.key_sketch import KeySketch

__all__ = ["KeyFrequency"]


class KeyFrequency(Metric[KeySketch, float], tag="key_frequency"):
    """Key frequency: the number of rows that have a given key, in constant memory and never underestimated.

    Formula: the smallest of the key's counters in a count-min sketch.

    Parameters
    ----------
    key : int, str or bytes
        The key whose rows are counted.
    bits : int
        The base-2 logarithm of the number of counters in each table.
    depth : int
        The number of tables.
    missing : {"raise", "skip"}
        Whether a row without a key raises an error or is skipped. `explain()` shows the number of skipped rows.
    missing_values : tuple of int, str or bytes
        Values, such as 0, that stand for a missing key in addition to null values.

    Notes
    -----
    All metrics that differ only in `key` share one sketch. The sketch is linear, so the order of rows does not matter,
    and the count of any key can be read later: ``KeyFrequency("new").of(state)``. The certified bounds are 0 and the
    value. With probability 1 - exp(-depth), the value is too large by at most e / 2**bits times the total number of
    rows; `explain()` gives this bound as "expected_excess". If there are few enough keys to count each of them, use
    `HeavyHitters`, which is exact.

    At 16 bits and 4 tables, the state takes up to 1 MiB (less if there are few keys); an update takes about 0.5 us per
    row. Source: Cormode and Muthukrishnan (2005). The value is 0 if there are no rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> metric = sm.KeyFrequency("de").update(["de", "fr", "de", "us"])
    >>> metric.compute(), sm.KeyFrequency("us").of(metric.state)
    (2.0, 1.0)
    """

    about = About(
        extensive=True,
        no_interval_reason="the number of counted rows is not an estimate; Mean of a 0/1 column has an interval",
        formula="smallest counter of the key in a count-min sketch",
        cost="up to 4 bytes per counter, 1 MiB at 16 bits and 4 tables; about 0.5 us per row",
        bound=(
            "0 <= true weight <= value; true weight >= value - e W / 2**bits with probability 1 - exp(-depth), W the "
            "total weight"
        ),
        example={"key": "a"},
    )

    key: int | str | bytes = setting(kw_only=False)
    bits: int = setting(default=16, low=4, high=24)
    depth: int = setting(default=4, low=1, high=16)
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    @property
    def name(self) -> str:
        return f"{self.about.tag}@{format_atom(self.key)}"

    def make_state(self) -> KeySketch:
        return KeySketch(bits=self.bits, depth=self.depth, missing=self.missing, missing_values=self.missing_values)

    def of(self, state: KeySketch) -> float:
        return to_float(state.max_weight_of(self.key), state.unit)

    def reason(self, state: KeySketch) -> str | None:
        return None

    def read(self, state: KeySketch) -> Reading:
        return OfCounters(self, state)


class OfCounters(OwnReading):
    """Value and bounds of a count in a count-min sketch. The value is never too low, so it is also the upper bound."""

    def _bounds(self) -> tuple[float, float]:
        return 0.0, widen_for_rounding(self.value, self.state)[1]

    def _details(self) -> dict[str, float]:
        state: Any = self.state
        return {"expected_excess": math.e * to_float(state.weight()) / (1 << self.metric.bits)}
