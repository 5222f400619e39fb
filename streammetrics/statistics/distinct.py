"""HyperLogLog: how many different keys there were, from a few thousand registers."""

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

ALPHA = 0.7213475204444817  # 1 / (2 log 2)


class DistinctKeys(KeyKinds, tag="distinct"):
    """HyperLogLog registers of keys: integers, strings, bytes, or several columns of them.

    Parameters
    ----------
    precision : int
        log2 of the number of registers; the standard error of the estimate is 1.04 / sqrt(2**precision).

    Notes
    -----
    A register holds the longest run of zeros in the hashes it was given, and merges by maximum: a key that comes again
    changes nothing. The hash is fixed for ever. A byte a register.
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

    def derive(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        value = columns["value"]
        words = 1 if value.values.ndim == 1 else value.values.shape[1]
        return {"value": replace(value, values=value.values.reshape(len(value.values), words))}

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        return [
            Step("registers:note_keys", "value", "at", self.precision, own.rows, own.registers),
            self.note_kind(like),
        ]

    def check(self) -> None:
        if int(self.flat("registers").max(initial=0)) > 65 - self.precision:
            raise StateFormatError("DistinctKeys.registers holds a run that no hash has")
        used, rows = (self.flat("registers") > 0).sum(axis=1), self.flat("rows")
        if ((used > rows) | ((used == 0) & (rows > 0))).any():
            raise StateFormatError("DistinctKeys.registers holds more keys than rows, or none of them")

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows)}

    @property
    def used(self) -> int:
        """How many registers have seen a key: no fewer keys can have been."""
        return int((self.registers > 0).sum())

    def estimate(self) -> float:
        """The number of different keys: Ertl's improved raw estimator (2017), of one form from 0 to 2**60."""
        m, longest = self.size, 64 - self.precision
        counts = np.bincount(self.registers, minlength=longest + 2).tolist()
        z = m * _tau(1.0 - counts[longest + 1] / m)
        for k in range(longest, 0, -1):
            z = 0.5 * (z + counts[k])
        z += m * _sigma(counts[0] / m)
        return ALPHA * m * m / z if z else math.inf  # of registers that are all full


def _sigma(x: float) -> float:
    """Return x + sum of 2**(k-1) x**(2**k): what registers still empty stand for."""
    if x == 1.0:
        return math.inf
    y, z, before = 1.0, x, -1.0
    while z != before:
        x, before = x * x, z
        z += x * y
        y += y
    return z


def _tau(x: float) -> float:
    """Return what registers that are full stand for."""
    if x in (0.0, 1.0):
        return 0.0
    y, z, before = 1.0, 1.0 - x, -1.0
    while z != before:
        x, before = math.sqrt(x), z
        y *= 0.5
        z -= (1.0 - x) * (1.0 - x) * y
    return z / 3.0
