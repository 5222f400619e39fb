"""An experiment that never was, hour by hour, with known truth: for the demo, the tests and the load of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..collect.collection import MetricCollection
from ..collect.task import Task
from ..compose.sharded import Sharded
from ..compose.sliced import Sliced
from ..metrics.curves.areas import AUC
from ..metrics.probabilities.losses import CTR, NormalizedEntropy
from ..metrics.values.quantiles import Quantile
from ..metrics.values.totals import PerUnit

__all__ = ["METRICS", "Simulation"]

DAY = 24
METRICS = ("ctr", "auc", "normalized_entropy", "latency_p95", "click_per_user")
COUNTRIES = (
    "br", "de", "fr", "gb", "id", "in", "jp", "mx", "us", "za", "ar", "au", "ca", "cl", "es", "it", "ke", "kr", "ng", "pl",
)  # fmt: skip
BASE = -2.6  # of the logit of a click: about 9 % with the tastes below
TASTE, LUCK = 0.7, 0.5  # how much users differ, and what the model does not know of an impression
TYPICAL, SPREAD = 4.0, 0.4  # of the logarithm of the latency, in milliseconds


@dataclass(frozen=True)
class Simulation:
    """Users who arrive day by day, an arm that becomes better, and one that may become slow.

    Parameters
    ----------
    id : str
        Of the experiment.
    start : int
        Its first hour, since 1970.
    days : int
        Planned.
    users : int
        Who arrive until the planned end, as many each hour.
    rows : int
        Impressions of a part: of one source and hour.
    arms : tuple of str
        The control first; users fall to them evenly.
    sources : tuple of str
        Who post.
    countries : int
        Slices, at most 20.
    effect : float
        What the last arm adds to the logit of a click.
    effect_from : float
        The day on which it begins.
    slow_from : float or None
        The day from which on the last arm takes 40 % longer.
    seed : int
        Equal seeds, equal rows.

    Examples
    --------
    >>> simulated = Simulation(rows=500, users=2000)
    >>> part = simulated.part("web", simulated.start)
    >>> part.by, part.digest() == simulated.part("web", simulated.start).digest()
    (('arm', 'country'), True)
    """

    id: str = "new-ranker"
    start: int = 494_520
    days: int = 14
    users: int = 40_000
    rows: int = 2_000
    arms: tuple[str, ...] = ("control", "treatment")
    sources: tuple[str, ...] = ("app", "web")
    countries: int = 4
    effect: float = 0.2
    effect_from: float = 2.0
    slow_from: float | None = None
    seed: int = 15

    @property
    def end(self) -> int:
        """The hour of the planned end."""
        return self.start + self.days * DAY

    def definition(self) -> dict[str, Any]:
        """Return what `Experiment.of_dict` takes."""
        share = 1.0 / len(self.arms)
        return {
            "id": self.id,
            "title": "A new ranker (simulated)",
            "arms": dict.fromkeys(self.arms, share),
            "control": self.arms[0],
            "arm": "arm",
            "unit": "user",
            "primary": "ctr",
            "guardrails": {"latency_p95": 0.05},
            "secondary": ["click_per_user"],
            "model": ["auc", "normalized_entropy"],
            "better": {"ctr": "high", "latency_p95": "low", "click_per_user": "high"},
            "slices": ["country"],
            "sources": dict.fromkeys(self.sources, 1.0),
            "start": self.start,
            "end": self.end,
            "users": float(self.users),
            "counts": "click_per_user",
        }

    def metrics(self) -> Sliced:
        """Return what a worker fills: five metrics in 64 shards of users, by arm and country."""
        served = Task([CTR(), AUC(bits=12), NormalizedEntropy()], y_true="click", y_score="pctr")
        latency = Task({"latency_p95": Quantile(q=0.95)}, value="latency")
        both = MetricCollection(served, latency, PerUnit("click", unit="user"))
        return Sliced(Sharded(both, unit="user"), by=["arm", "country"])

    def part(self, source: str, hour: int) -> Sliced:
        """Return what a source counted in an hour, since 1970."""
        return self.metrics().update(self.log(source, hour))

    def log(self, source: str, hour: int) -> dict[str, NDArray[Any]]:
        """Return the impressions behind it; the first one of a user says that they were exposed."""
        place, passed = self.sources.index(source), hour - self.start
        rng = np.random.default_rng([self.seed, place, hour])
        before, now = (self.users * h // (self.days * DAY) for h in (passed, passed + 1))
        new = np.arange(before, now)[np.arange(before, now) % len(self.sources) == place]
        user = np.append(new, rng.integers(0, max(now, 1), max(self.rows - len(new), 0)))
        exposed = np.arange(len(user)) < len(new)
        arm, country = user % len(self.arms), user // len(self.arms) % self.countries
        treated, day = arm == len(self.arms) - 1, passed / DAY
        logit = BASE + TASTE * self._tastes()[user] + self.effect * (treated & (day >= self.effect_from))
        known = logit + LUCK * rng.normal(size=len(user))
        latency = np.exp(TYPICAL + SPREAD * rng.normal(size=len(user)))
        if self.slow_from is not None and day >= self.slow_from:
            latency[treated] *= 1.4
        return {
            "user": user,
            "arm": np.array(self.arms)[arm],
            "country": np.array(COUNTRIES)[country],
            "click": rng.random(len(user)) < 1.0 / (1.0 + np.exp(-logit)),
            "pctr": 1.0 / (1.0 + np.exp(-known)),
            "latency": latency,
            "exposed": exposed.astype(float),
        }

    def _tastes(self) -> NDArray[np.float64]:
        """Draw the tastes of all users. They are not kept, so that the simulation stays small plain data to pickle."""
        return np.random.default_rng(self.seed).normal(size=self.users)
