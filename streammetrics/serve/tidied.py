"""What becomes of parts as they grow old: folded to days once nobody may correct them, and forgotten at last."""

from __future__ import annotations

from .experiment import Experiment
from .keys import HOUR
from .store import Store
from .totals import Totals

__all__ = ["tidy"]

DAY = 24


def tidy(store: Store, totals: Totals, experiment: Experiment, now: float) -> None:
    """Fold what can no longer be corrected; forget an experiment that was to be kept so long after its end."""
    totals.compact(experiment.id, now=now, correct_within_days=experiment.correct_within_days)
    if experiment.retention_days is not None and experiment.end is not None:
        kept_until = experiment.end + experiment.retention_days * DAY
        if now / HOUR >= kept_until:
            store.forget(experiment.id, int(now // HOUR) + 2 * DAY)
