"""Simulate an experiment hour by hour, with known true effects, for the demo, tests and benchmarks."""

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
# The mean logit of the click probability. With this mean and the spread between users (`USER_SPREAD`), about 9 % of
# impressions are clicked.
BASE_LOGIT = -2.6
# The standard deviations, on the logit scale, of the users' random effects and of the prediction errors.
USER_SPREAD, ROW_SPREAD = 0.7, 0.5
LATENCY_MEAN, LATENCY_SPREAD = 4.0, 0.4  # mean and standard deviation of the logarithm of the latency in milliseconds


@dataclass(frozen=True)
class Simulation:
    """A simulated experiment whose users arrive over time; its last arm becomes better, and may become slow.

    Parameters
    ----------
    id : str
        The ID of the experiment.
    start : int
        The first hour, in hours since 1970.
    days : int
        The planned duration, in days.
    users : int
        The number of users who arrive by the planned end, at a constant rate per hour.
    rows : int
        The number of impressions in a part, which covers one source in one hour.
    arms : tuple of str
        The arms, starting with the control; users are split evenly.
    sources : tuple of str
        The names of the sources, such as the app and the website. Each posts its own parts.
    countries : int
        The number of countries (slices), at most 20.
    effect : float
        The effect of the last arm on the logit of the click probability.
    effect_from : float
        The number of days after which the effect begins.
    slow_from : float or None
        The number of days after which the latency of the last arm increases by 40 %; None if it never does.
    seed : int
        The random seed; equal seeds give equal rows.

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
        """Return the definition of the experiment as a dict, which `Experiment.from_dict` accepts."""
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
        """Return the empty metrics for a worker: five metrics in 64 shards of users, sliced by arm and country."""
        click_metrics = Task([CTR(), AUC(bits=12), NormalizedEntropy()], y_true="click", y_score="pctr")
        latency_metrics = Task({"latency_p95": Quantile(q=0.95)}, value="latency")
        collection = MetricCollection(click_metrics, latency_metrics, PerUnit("click", unit="user"))
        return Sliced(Sharded(collection, unit="user"), by=["arm", "country"])

    def part(self, source: str, hour: int) -> Sliced:
        """Return metrics that have counted the impressions of one source in one hour."""
        return self.metrics().update(self.log(source, hour))

    def log(self, source: str, hour: int) -> dict[str, NDArray[Any]]:
        """Return the impressions of one source in one hour, as a dict of columns.

        `exposed` is 1 for the first impression of each user, and 0 otherwise.
        """
        source_index, hours_passed = self.sources.index(source), hour - self.start
        rng = np.random.default_rng([self.seed, source_index, hour])
        users_before, users_now = (self.users * h // (self.days * DAY) for h in (hours_passed, hours_passed + 1))
        new_users = np.arange(users_before, users_now)
        # Do not split users by `user % len(self.sources)`. With two arms and two sources, each source would then have
        # new users of one arm only, and the first part would look like a sample ratio mismatch.
        new_users = new_users[new_users // (len(self.arms) * self.countries) % len(self.sources) == source_index]
        user = np.append(new_users, rng.integers(0, max(users_now, 1), max(self.rows - len(new_users), 0)))
        exposed = np.arange(len(user)) < len(new_users)
        arm, country = user % len(self.arms), user // len(self.arms) % self.countries
        treated, day = arm == len(self.arms) - 1, hours_passed / DAY
        logit = (
            BASE_LOGIT
            + USER_SPREAD * self._draw_user_effects()[user]
            + self.effect * (treated & (day >= self.effect_from))
        )
        model_logit = logit + ROW_SPREAD * rng.normal(size=len(user))
        latency = np.exp(LATENCY_MEAN + LATENCY_SPREAD * rng.normal(size=len(user)))
        if self.slow_from is not None and day >= self.slow_from:
            latency[treated] *= 1.4
        return {
            "user": user,
            "arm": np.array(self.arms)[arm],
            "country": np.array(COUNTRIES)[country],
            "click": rng.random(len(user)) < 1.0 / (1.0 + np.exp(-logit)),
            "pctr": 1.0 / (1.0 + np.exp(-model_logit)),
            "latency": latency,
            "exposed": exposed.astype(float),
        }

    def _draw_user_effects(self) -> NDArray[np.float64]:
        """Draw the random effect of each user.

        The effects are not stored, so that a pickled simulation stays small.
        """
        return np.random.default_rng(self.seed).normal(size=self.users)
