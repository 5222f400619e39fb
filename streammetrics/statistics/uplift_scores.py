"""Score histograms of treated and control rows, for Qini and uplift curves."""

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
    """The weights of the rows of a treatment arm and of a control arm at each distinct score, highest score first.

    Parameters
    ----------
    treated, control : Mass
        The weight of all rows of each arm.
    treated_positives, control_positives : Mass
        The weight of the positives of each arm.
    """

    treated: Mass
    control: Mass
    treated_positives: Mass
    control_positives: Mass


class UpliftScores(LabelScores, tag="uplift_scores"):
    """Row counts by outcome, treatment and score: exact scores in small cells (such as slices), else buckets.

    Notes
    -----
    The state has a score histogram for each of three 0/1 labels of a row: whether it is positive, whether it is treated,
    and whether it is both. The weights of the four combinations of outcome and treatment can be derived from these
    histograms.
    """

    scale: str = setting(default="real", choices=("probability", "real", "logit"))
    num_labels: int | None = setting(default=3, low=3, high=3)

    def needs(self) -> tuple[Need, ...]:
        return label(), score(scale=self.scale), label("treatment"), weight()

    def derive_columns(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        y, t, s = (columns[role] for role in ("y_true", "treatment", "y_score"))
        derived = {n: c for n, c in columns.items() if n == "sample_weight"}
        derived["y_true"] = Column(np.stack([y.values, t.values, y.values & t.values], axis=1), y.source)
        derived["y_score"] = Column(np.repeat(s.values[:, None], 3, axis=1), s.source)
        return super().derive_columns(derived)

    def check(self) -> None:
        super().check()
        for name in self.row_parts:
            entries = self.cells.tallies[name]
            if len(entries) and not _are_consistent(
                self._labels_of(entries), entries.cells, self._strip_labels(entries)
            ):
                raise StateFormatError(
                    f"the state is corrupt: the three histograms of UpliftScores.{name} do not count the same rows"
                )

    def arms(self) -> Arms:
        """Return the weights of both arms, and of their positives, at each score that has rows."""
        each: list[Any] = self.split_classes()
        positive, treated, both = each
        # The positives of the control arm are the positives that are not treated.
        control = Mass.from_digits(_subtract_digits(positive.positives, both.positives))
        kinds = treated.positives, treated.negatives, both.positives, control
        occupied = np.flatnonzero(np.any([m.digits.any(axis=0) for m in kinds], axis=0))[::-1]
        return Arms(*(m[occupied] for m in kinds))

    @property
    def is_exact(self) -> bool:
        return not bool(self.cells.flats["off_grid"].any())

    def facts(self) -> dict[str, Any]:
        return self._first_class().facts()


def _subtract_digits(whole: Mass, part: Mass) -> Any:
    """Subtract the digits of `part` from those of `whole`, one by one.

    No digit borrows from the next one, so individual digits of the result can be negative. No number in `part` may be
    larger than the corresponding number in `whole`.
    """
    count = max(len(whole.digits), len(part.digits))
    return whole.pad_digits(count) - part.pad_digits(count)


def _are_consistent(histogram: Ints, cells: Ints, within: Entries) -> bool:
    """Return whether the three histograms of an `UpliftScores` state read from bytes could come from the same rows.

    The histograms must have equal totals at each score, and each combination of outcome and treatment must have a
    nonnegative weight.

    Parameters
    ----------
    histogram, cells : int64 arrays
        The histogram index (0 to 2) and the cell (such as a slice) of each entry.
    within : Entries
        The entries of all three histograms, whose codes contain a score and a 0/1 label.
    """
    labels = (within.codes & within.codes.dtype.type(1)).astype(np.int64)
    at = _number_scores(cells, within)
    counts = _weight_digits(within)
    table = np.zeros((len(counts), 3, 2, int(at.max()) + 1), np.int64)
    table[:, histogram, labels, at] = counts
    # The weights of the combinations of outcome and treatment are differences between the histograms. `same` contains
    # the differences between the totals of the histograms at each score. Each histogram counts all rows, so the
    # differences in `same` must be 0.
    positive, treated, both = (table[:, i] for i in range(3))
    control_positives, treated_negatives = positive[:, 1] - both[:, 1], treated[:, 1] - both[:, 1]
    control_negatives = positive[:, 0] - treated_negatives
    same = (control_positives + positive[:, 0] - both[:, 0], treated_negatives + treated[:, 0] - both[:, 0])
    if any(part.any() for found in same for part in _carry_fractions(found)):
        return False
    kinds = control_positives, treated_negatives, control_negatives
    return all((part >= 0).all() for found in kinds for part in _carry_fractions(found))


def _weight_digits(entries: Entries) -> Ints:
    """Return an array with the row count of each entry and, if rows have weights, with its weight.

    The first row of the array contains the row counts. If rows have weights, the second row contains the integer part
    of each weight, and the third row its fraction in units of 2**-60.
    """
    if entries.excess is None:
        return entries.int64_counts[None]
    high, low = entries.excess.T
    more = FRACTION_BITS - LOW_BITS
    return np.stack(
        [entries.int64_counts, entries.int64_counts + (high >> more), ((high & ((1 << more) - 1)) << LOW_BITS) + low]
    )


def _carry_fractions(counts: Ints) -> Ints:
    """Carry whole numbers from the fractions of weights to their integer parts, so that the fractions lie in [0, 1)."""
    out = counts.copy()
    if len(out) > 1:
        out[1] += out[2] >> FRACTION_BITS
        out[2] &= (1 << FRACTION_BITS) - 1
    return out


def _number_scores(cells: Ints, within: Entries) -> Ints:
    """Number the entries so that two entries have the same number if and only if they have the same cell and score."""
    keys = [within.codes >> within.codes.dtype.type(1), cells, *([] if within.high is None else [within.high])]
    order = np.lexsort(keys)
    new = np.any([np.diff(key[order], prepend=key[order[0]]) != 0 for key in keys], axis=0)
    at = np.empty(len(order), np.int64)
    at[order] = np.cumsum(new)
    return at
