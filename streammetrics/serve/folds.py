"""Folds that are kept in memory: as they are while they are used, as frames for as long as there is room."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, NamedTuple

from ..collect.metric_like import nbytes
from ..collect.saved import from_bytes

__all__ = ["Fold", "Folds", "Names", "Place"]

IDLE = 4
"""Folds as they are may take this part of the room, and frames the rest: one takes a tenth, and 10 ms to read."""
Place = tuple[str, str, int]
"""Experiment, "hour" or "day", and where it begins."""
Names = frozenset[Hashable]


class Fold(NamedTuple):
    """What was counted in a window, and what it is of."""

    names: Names
    made: Any


class Folds:
    """Folds by their place; those not asked for longest are packed, then forgotten.

    Parameters
    ----------
    room : int
        The most bytes that they may take, but for the last one.

    Examples
    --------
    >>> import streammetrics as sm
    >>> folds, place = Folds(1 << 20), ("checkout", "hour", 494529)
    >>> folds.hold(place, Fold(frozenset([1]), sm.CTR().update([0, 1])))
    >>> folds.take(place).made.compute()
    0.5
    >>> folds.take(place) is None
    True
    """

    def __init__(self, room: int) -> None:
        self._ready, self._packed = _Kept(room // IDLE, least=1), _Kept(room - room // IDLE)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ready) + len(self._packed)

    def take(self, place: Place) -> Fold | None:
        """Take a fold away, where it is kept."""
        with self._lock:
            packed, ready = self._packed.take(place), self._ready.take(place)
        return Fold(packed.names, from_bytes(packed.made)) if packed and not ready else ready

    def hold(self, place: Place, fold: Fold) -> None:
        """Keep a fold, in place of those not asked for longest."""
        with self._lock:
            idle = self._ready.hold(place, fold, nbytes(fold.made))
        for there, (names, made) in idle:
            packed = bytes(made.to_bytes())
            with self._lock:
                self._packed.hold(there, Fold(names, packed), len(packed))


class _Kept:
    """Folds, and the bytes that they take: so many at most, unless a few take more."""

    def __init__(self, room: int, least: int = 0) -> None:
        self._room, self._least, self._size = room, least, 0
        self._folds: OrderedDict[Place, tuple[Fold, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._folds)

    def take(self, place: Place) -> Fold | None:
        fold, size = self._folds.pop(place, (None, 0))
        self._size -= size
        return fold

    def hold(self, place: Place, fold: Fold, size: int) -> list[tuple[Place, Fold]]:
        """Keep one; return those that have no room any more, the oldest first."""
        self.take(place)
        self._folds[place] = fold, size
        self._size += size
        gone = []
        while self._size > self._room and len(self._folds) > self._least:
            there, (old, freed) = self._folds.popitem(last=False)
            self._size -= freed
            gone.append((there, old))
        return gone
