"""Exact scores: rows by label for every score that was seen, whatever its bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, added, keyed
from ..columns import Column, Need, label, score, weight
from ..errors import StateFormatError
from ..exact import LOW_BITS, Mass
from ..growth import unite
from ..settings import setting
from .scores import ScoresByLabel, negative_weight

__all__ = ["ExactScores"]

FLIP = np.int64(0x7FFFFFFFFFFFFFFF)
FEW = 1 << 31  # rows, of which the pairs fit an int64


class ExactScores(ScoresByLabel, tag="exact_scores"):
    """Rows of negatives and positives at every score: what a histogram would be with a bucket for each float64.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        `probability` takes scores in [0, 1] alone, the others any finite score.
    memory_limit : int
        Bytes that the scores may take; MemoryLimitError beyond.

    Notes
    -----
    24 bytes for a score, however many rows have it. Rows without weights wait as the floats they came as (4 or 8 bytes)
    until there are more bytes of these, or somebody reads; then they are sorted and counted.
    """

    scale: str = setting(default="probability", choices=("probability", "real", "logit"))
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    scores: Array = keyed()
    rows: Array = added(2, per="scores")
    excess: Array = added(2, form="fixed", per="scores", optional=True)

    def needs(self) -> tuple[Need, ...]:
        return label(), score(scale=self.scale), weight()

    def absorb(
        self,
        at: NDArray[np.int64] | None,
        /,
        y_true: Column,
        y_score: Column,
        sample_weight: Column | None = None,
    ) -> None:
        y, s = y_true.values, y_score.values
        if at is None and sample_weight is None:
            self._take_growth(self._fit(_parted(y, s)))
            return
        rows = np.zeros((len(y), 2), np.int64)
        rows[np.arange(len(y)), y] = 1
        cells = {"scores": _order(s), "rows": rows}
        if sample_weight is not None:
            cells["excess"] = np.zeros((len(y), 2, 2), np.int64)
            cells["excess"][np.arange(len(y)), y] = _less_one(sample_weight.values)
        self.grow(at, **cells)

    def _united(self, rows: Mapping[str, Any]) -> dict[str, Array]:
        held = {name: self.__dict__[name] for name in ("scores", "rows", "excess")}
        floats = {name: array for name, array in rows.items() if name not in held}
        declared = {name: array for name, array in rows.items() if name in held}
        for dtype in sorted({name[:-2] for name in floats}):
            counted = _counted(*(np.sort(floats[f"{dtype}:{label}"]) for label in (0, 1)))
            if held["excess"] is None:
                held["scores"], held["rows"] = _merged((held["scores"], held["rows"]), counted)
            else:
                held |= unite(self.rules(), held, dict(zip(("scores", "rows"), counted, strict=True)), self._cell)
        if declared:
            held |= unite(self.rules(), held, declared, self._cell)
        return {name: array for name, array in held.items() if array is not None}

    @property
    def negatives(self) -> Mass:
        return self._mass(0)

    @property
    def positives(self) -> Mass:
        return self._mass(1)

    def _mass(self, label: int) -> Mass:
        return Mass.of(self.rows[:, label], None if self.excess is None else self.excess[:, label])

    def pairs(self) -> tuple[int, int, int, int]:
        from ..kernels.exact_scores import count_pairs

        if self.weighted or self.__dict__["_load"] > FEW:
            return super().pairs()
        found = np.zeros(4, np.int64)
        count_pairs(np.ascontiguousarray(self.rows).reshape(-1), found)
        negatives, positives, twice, ties = found.tolist()
        return negatives, positives, twice, ties

    @property
    def is_exact(self) -> bool:
        return True

    @property
    def counts(self) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = self.rows.T
        return counts

    def thresholds(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        return _score(self.scores[index, 0])

    def check(self) -> None:
        if self.excess is not None and negative_weight(self.rows, self.excess):
            raise StateFormatError("ExactScores.excess makes a weight negative")
        if score(scale=self.scale).kind.bad(Column(_score(self.scores[:, -1]), "float64")).any():
            raise StateFormatError(f"ExactScores.scores holds a score that is not of scale {self.scale}")


def _order(s: Array) -> NDArray[np.int64]:
    """Return integers that order as the scores do; -0.0 is 0.0."""
    bits = (s.astype(np.float64) + 0.0).view(np.int64)
    return np.where(bits >= 0, bits, bits ^ FLIP)


def _score(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    scores: NDArray[np.float64] = np.where(keys >= 0, keys, keys ^ FLIP).view(np.float64)
    return scores


def _less_one(weights: Array) -> NDArray[np.int64]:
    """Return weights less one as fixed numbers: w = high * 2**-20 + low * 2**-60, rounded once."""
    high = np.floor(weights * (1 << 20))
    low = np.rint((weights - high / (1 << 20)) * 2.0**60)
    out = np.stack([high, low], axis=1).astype(np.int64)
    out[:, 0] += (out[:, 1] >> LOW_BITS) - (1 << 20)
    out[:, 1] &= (1 << LOW_BITS) - 1
    return out


def _parted(y: Array, s: Array) -> dict[str, Array]:
    """Return the scores of each label, named by dtype and label."""
    from ..kernels.exact_scores import part_by_label

    negatives, positives = np.empty(len(s) + 1, s.dtype), np.empty(len(s) + 1, s.dtype)
    p = part_by_label(y, s, negatives, positives)
    return {f"{s.dtype.name}:0": negatives[: len(s) - p], f"{s.dtype.name}:1": positives[:p]}


def _counted(negatives: Array, positives: Array) -> tuple[Array, Array]:
    """Count sorted scores."""
    from ..kernels.exact_scores import count_sorted

    return _filled(len(negatives) + len(positives), lambda *out: count_sorted(negatives, positives, *out))


def _merged(ours: tuple[Array, Array], theirs: tuple[Array, Array]) -> tuple[Array, Array]:
    """Merge two sorted sets of scores, adding their rows."""
    from ..kernels.exact_scores import merge_runs

    if not len(ours[0]):
        return theirs
    flat = [np.ascontiguousarray(a).reshape(-1) for a in (*ours, *theirs)]
    return _filled(len(ours[0]) + len(theirs[0]), lambda *out: merge_runs(*flat, *out))


def _filled(size: int, fill: Callable[[Array, Array], int]) -> tuple[Array, Array]:
    """Return scores and rows of at most so many; copied where much room is left over."""
    scores, rows = np.empty(size, np.int64), np.empty(2 * size, np.int64)
    n = fill(scores, rows)
    found = scores[:n, None], rows[: 2 * n].reshape(n, 2)
    return found if 4 * n >= 3 * size else (found[0].copy(), found[1].copy())
