"""Score histograms of treated and of control rows: what Qini and uplift curves read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..columns.columns import Column, Need, label, score, weight
from ..numerics.exact import Mass
from ..numerics.settings import setting
from .by_label_scores import LabelScores

__all__ = ["Arms", "UpliftScores"]


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
