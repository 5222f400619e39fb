"""HyperLogLog: an estimate of the number of distinct keys from a fixed number of one-byte registers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..batch.ids import group
from ..batch.kinds import Need
from ..errors import StateFormatError
from ..numerics.settings import setting
from ..state.declare import Flat
from .key_kinds import KeyKinds
from .step import Like, Step

__all__ = ["DistinctKeys"]

# The constant 1 / (2 * log(2)) in Ertl's estimator of the number of distinct keys.
ALPHA = 0.7213475204444817


class DistinctKeys(KeyKinds, tag="distinct"):
    """HyperLogLog registers of keys, which are integers, strings, bytes, or tuples from several columns.

    Parameters
    ----------
    precision : int
        log2 of the number of registers. The relative standard error of the estimate is 1.04 / sqrt(2**precision).

    Notes
    -----
    Each key is hashed. The first `precision` bits of the hash select a register. A register stores one more than the
    largest number of leading zeros in the remaining bits, over all keys that select it. A merge keeps the larger of
    two registers, so a repeated key changes nothing. The hash function never changes, because the registers of saved
    states depend on it. A register takes one byte.
    """

    precision: int = setting(default=14, low=4, high=18)

    rows = Flat()
    registers = Flat("size", form="register")

    @property
    def size(self) -> int:
        """The number of registers."""
        return 1 << self.precision

    def needs(self) -> tuple[Need, ...]:
        return (group("value"),)

    def derive_columns(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        value = columns["value"]
        words = 1 if value.values.ndim == 1 else value.values.shape[1]
        return {"value": replace(value, values=value.values.reshape(len(value.values), words))}

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        return [
            Step("registers:update_registers", "value", "at", self.precision, own.rows, own.registers),
            self.kind_step(like),
        ]

    def check(self) -> None:
        if int(self.read_cells_named("registers").max(initial=0)) > 65 - self.precision:
            raise StateFormatError(
                "the state is corrupt: a register in DistinctKeys.registers exceeds the largest possible value"
            )
        used, rows = (self.read_cells_named("registers") > 0).sum(axis=1), self.read_cells_named("rows")
        if ((used > rows) | ((used == 0) & (rows > 0))).any():
            raise StateFormatError(
                "the state is corrupt: DistinctKeys.registers contains more keys than rows, or rows and no keys"
            )

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows)}

    @property
    def used_registers(self) -> int:
        """The number of registers that at least one key has selected: a lower bound on the number of distinct keys."""
        return int((self.registers > 0).sum())

    def estimate(self) -> float:
        """Return the estimated number of distinct keys by the improved raw estimator of Ertl (2017)."""
        # counts[k] is the number of registers with value k, that is, k - 1 leading zeros. The value 0 means that no key
        # selected the register. The value longest + 1, the largest possible, means that a register is saturated. These
        # two values need the corrections sigma and tau of Ertl's paper.
        m, longest = self.size, 64 - self.precision
        counts = np.bincount(self.registers, minlength=longest + 2).tolist()
        z = m * _tau(1.0 - counts[longest + 1] / m)
        for k in range(longest, 0, -1):
            z = 0.5 * (z + counts[k])
        z += m * _sigma(counts[0] / m)
        # If all registers are saturated, z is 0 and the estimate is infinite.
        return ALPHA * m * m / z if z else math.inf


def _sigma(x: float) -> float:
    """Return Ertl's correction for unused registers, where `x` is the fraction of registers that are unused.

    The correction is x plus the sum of 2**(k - 1) * x**(2**k) for k = 1, 2, ...
    """
    if x == 1.0:
        return math.inf
    y, z, before = 1.0, x, -1.0
    while z != before:
        x, before = x * x, z
        z += x * y
        y += y
    return z


def _tau(x: float) -> float:
    """Return Ertl's correction for saturated registers; `x` is the fraction of registers that are not saturated."""
    if x in (0.0, 1.0):
        return 0.0
    y, z, before = 1.0, 1.0 - x, -1.0
    while z != before:
        x, before = math.sqrt(x), z
        y *= 0.5
        z -= (1.0 - x) * (1.0 - x) * y
    return z / 3.0
