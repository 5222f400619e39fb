"""Score histograms of treated and of control rows: what Qini and uplift curves read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..batch.kinds import Need, label, score, weight
from ..errors import StateFormatError
from ..numerics.exact import FRACTION_BITS, LOW_BITS, Mass
from ..numerics.settings import setting
from ..state.tally import Entries
from .by_label_scores import LabelScores

__all__ = ["Arms", "UpliftScores"]

Ints = NDArray[np.int64]


class Arms(NamedTuple):
    """Rows (or weight) of treated and of control, and the positives of both, by score, from the highest down."""

    treated: Mass
    control: Mass
    treated_positives: Mass
    control_positives: Mass


class UpliftScores(LabelScores, tag="uplift_scores"):
    """Rows by score, outcome and treatment: exact while a cell is small, by bucket beyond.

    Notes
    -----
    Three histograms of the same rows, which tell apart what is positive, what is treated, and what is both: with them the
    four kinds of rows are known. So they are kept as labels are.
    """

    scale: str = setting(default="real", choices=("probability", "real", "logit"))
    num_labels: int | None = setting(default=3, low=3, high=3)

    def needs(self) -> tuple[Need, ...]:
        return label(), score(scale=self.scale), label("treatment"), weight()

    def derive(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        y, t, s = (columns[role] for role in ("y_true", "treatment", "y_score"))
        made = {n: c for n, c in columns.items() if n == "sample_weight"}
        made["y_true"] = Column(np.stack([y.values, t.values, y.values & t.values], axis=1), y.source)
        made["y_score"] = Column(np.repeat(s.values[:, None], 3, axis=1), s.source)
        return super().derive(made)

    def check(self) -> None:
        super().check()
        for name in self.counted:
            held = self.cells.tallies[name]
            if len(held) and not _agree(self._label_of(held), held.cells, self._within(held)):
                raise StateFormatError(f"UpliftScores.{name} holds three histograms that no rows have together")

    def arms(self) -> Arms:
        """The rows of each kind; only of scores that have any."""
        each: list[Any] = self.each()
        positive, treated, both = each
        control = Mass.of_digits(_less(positive.positives, both.positives))
        kinds = treated.positives, treated.negatives, both.positives, control
        held = np.flatnonzero(np.any([m.digits.any(axis=0) for m in kinds], axis=0))[::-1]
        return Arms(*(m[held] for m in kinds))

    @property
    def is_exact(self) -> bool:
        return not bool(self.cells.flats["off_grid"].any())

    def facts(self) -> dict[str, Any]:
        return self._first().facts()


def _less(whole: Mass, part: Mass) -> Any:
    """Digits of a difference that is not negative."""
    count = max(len(whole.digits), len(part.digits))
    return whole.padded(count) - part.padded(count)


def _agree(histogram: Ints, cells: Ints, within: Entries) -> bool:
    """Whether all three are of the same rows at each score, and no kind of row is fewer than none, or weighs less."""
    yes = (within.codes & within.codes.dtype.type(1)).astype(np.int64)
    at = _rungs(cells, within)
    counts = _counts(within)
    held = np.zeros((len(counts), 3, 2, int(at.max()) + 1), np.int64)
    held[:, histogram, yes, at] = counts
    positive, treated, both = (held[:, i] for i in range(3))
    control_positives, treated_negatives = positive[:, 1] - both[:, 1], treated[:, 1] - both[:, 1]
    control_negatives = positive[:, 0] - treated_negatives
    same = (control_positives + positive[:, 0] - both[:, 0], treated_negatives + treated[:, 0] - both[:, 0])
    if any(part.any() for found in same for part in _carried(found)):
        return False
    kinds = control_positives, treated_negatives, control_negatives
    return all((part >= 0).all() for found in kinds for part in _carried(found))


def _counts(held: Entries) -> Ints:
    """The rows of each entry; with weights what they weigh, too: a whole number, and a fraction in units of 2**-60."""
    if held.excess is None:
        return held.mass[None]
    high, low = held.excess.T
    more = FRACTION_BITS - LOW_BITS
    return np.stack([held.mass, held.mass + (high >> more), ((high & ((1 << more) - 1)) << LOW_BITS) + low])


def _carried(counts: Ints) -> Ints:
    """Differences of counts, with fractions in [0, 1)."""
    out = counts.copy()
    if len(out) > 1:
        out[1] += out[2] >> FRACTION_BITS
        out[2] &= (1 << FRACTION_BITS) - 1
    return out


def _rungs(cells: Ints, within: Entries) -> Ints:
    """A number for each entry, the same for those of one cell and score, whatever their histogram and label."""
    keys = [within.codes >> within.codes.dtype.type(1), cells, *([] if within.high is None else [within.high])]
    order = np.lexsort(keys)
    new = np.any([np.diff(key[order], prepend=key[order[0]]) != 0 for key in keys], axis=0)
    at = np.empty(len(order), np.int64)
    at[order] = np.cumsum(new)
    return at
