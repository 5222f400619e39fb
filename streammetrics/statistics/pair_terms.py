"""Terms of rows: what two columns, or two vectors, say of one another. Losses, distances, decisions that differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..numerics import elementary
from ..numerics.rows import across
from . import forecast_terms
from .labels import eps_of, rounded

__all__ = ["POWERS", "TERMS", "TINY", "Term", "TermRows", "parsed"]

Floats = NDArray[np.float64]

POWERS = 50
"""Octaves of numbers whose tenth power is a float, and the square of that."""
TINY = 2.0**-1000
"""Below it nothing has a logarithm here."""
HALF_LOG_TAU = 0.91893853320467274178  # log(2 pi) / 2


class TermRows:
    """Checked columns, as terms read them.

    Parameters
    ----------
    columns : mapping of str to Column
        By role.
    scale : {"probability", "logit", "real"}
        What the scores are.
    eps : float, optional
        What probabilities are kept away from 0 and 1; by default the machine epsilon of their dtype, or of float32.
    """

    def __init__(self, columns: Mapping[str, Column], scale: str, eps: float | None) -> None:
        self.columns, self.scale, self.given_eps = columns, scale, eps

    def __getitem__(self, role: str) -> Floats:
        return np.asarray(self.columns[role].values, np.float64)

    def eps(self, role: str) -> float:
        """What probabilities of a column are kept away from 0 and 1."""
        return eps_of(self.columns[role].source, self.given_eps)

    def probability(self, role: str = "y_score") -> Floats:
        """The scores as probabilities."""
        return np.asarray(elementary.sigmoid(self[role])) if self.scale == "logit" else self[role]

    def towards(self, role: str) -> tuple[Floats, bool]:
        """Score or logit of the class that the row has, and whether it is a logit."""
        s, positive = self[role], self["y_true"] == 1
        if self.scale == "logit":
            return np.where(positive, s, -s), True
        return np.clip(np.where(positive, s, 1.0 - s), self.eps(role), 1.0 - self.eps(role)), False

    def above(self, role: str, threshold: float) -> NDArray[np.bool_]:
        """Whether scores are at least a threshold, as it is in their dtype."""
        column = self.columns[role]
        return np.asarray(column.values >= rounded((threshold,), column.source, column.values.dtype)[0])


# -- a label and a score ---------------------------------------------------------------------------------------------


def log_loss(rows: TermRows, role: str = "y_score") -> Floats:
    """-log(q), q the probability of the label."""
    q, logit = rows.towards(role)
    return np.asarray(elementary.softplus(-q) if logit else -elementary.log(q))


def focal(rows: TermRows, gamma: float, alpha: float | None = None) -> Floats:
    """-(1 - q)^gamma log(q); weighed alpha for positives, 1 - alpha for negatives."""
    q, logit = rows.towards("y_score")
    wrong = np.maximum(elementary.sigmoid(-q) if logit else 1.0 - q, TINY)
    loss = np.asarray(elementary.power(wrong, np.float64(gamma)) * log_loss(rows))
    return loss if alpha is None else np.where(rows["y_true"] == 1, alpha, 1.0 - alpha) * loss


def brier(rows: TermRows, role: str = "y_score") -> Floats:
    """(p - y)^2."""
    d = rows.probability(role) - rows["y_true"]
    return d * d


def margin(rows: TermRows) -> Floats:
    """1 - s for positives, 1 + s for negatives, not below 0."""
    s = rows["y_score"]
    return np.maximum(1.0 - np.where(rows["y_true"] == 1, s, -s), 0.0)


def surprise(rows: TermRows) -> Floats:
    """(y - p) (1 - 2 p): of well calibrated p its mean is 0."""
    p = rows.probability()
    return (rows["y_true"] - p) * (1.0 - 2.0 * p)


def surprise_variance(rows: TermRows) -> Floats:
    """The variance of `surprise`, if p is the probability of a positive."""
    p = rows.probability()
    d = 1.0 - 2.0 * p
    return d * d * (p * (1.0 - p))


# -- two scores ------------------------------------------------------------------------------------------------------


def difference(rows: TermRows) -> Floats:
    """How much more the score is than that of the baseline."""
    return rows["y_score"] - rows["baseline"]


def symmetric(rows: TermRows) -> Floats:
    """2 |d| / (|a| + |b|), and 0 of two zeros."""
    size = np.abs(rows["y_score"]) + np.abs(rows["baseline"])
    return np.where(size > 0, 2.0 * np.abs(difference(rows)) / np.where(size > 0, size, 1.0), 0.0)


def decided(rows: TermRows, threshold: float, *pairs: tuple[bool, bool]) -> Floats:
    """Whether both decisions, the old one and the new one, are such a pair."""
    old, new = rows.above("baseline", threshold), rows.above("y_score", threshold)
    return np.asarray(np.any([(old == a) & (new == b) for a, b in pairs], axis=0), np.float64)


# -- a count and a rate ----------------------------------------------------------------------------------------------


def poisson(rows: TermRows, eps: float) -> Floats:
    """The rate p less y log(p + eps)."""
    y, p = rows["y_true"], rows["y_pred"]
    return np.asarray(p - y * elementary.log(p + eps))


def poisson_of_log(rows: TermRows) -> Floats:
    """e^x - y x, x the logarithm of the rate."""
    return np.asarray(elementary.exp(rows["y_pred"]) - rows["y_true"] * rows["y_pred"])


def stirling(rows: TermRows) -> Floats:
    """About log(y!): y log(y) - y + log(2 pi y) / 2 for y above 1, else 0."""
    y = rows["y_true"]
    log_y = elementary.log(np.maximum(y, 1.0))
    return np.asarray(np.where(y > 1.0, y * log_y - y + (HALF_LOG_TAU + 0.5 * log_y), 0.0))


# -- an amount and its prediction ------------------------------------------------------------------------------------


def deviance(rows: TermRows, power: float) -> Floats:
    """Tweedie's deviance of a power of 1 or more."""
    return 2.0 * half_deviance(rows["y_true"], rows["y_pred"], power)


def half_deviance(y: Floats, p: Floats, power: float) -> Floats:
    """Half of Tweedie's deviance of y from p, for a power of 1 or more; accurate also where y is close to p."""
    near, some, over = np.abs(y - p) * 32.0 <= p, np.maximum(y, TINY), np.where(p > 0, p, 1.0)
    if power == 1.0:
        far, size = y * elementary.log(some / over) - (y - p), p
    elif power == 2.0:
        far, size = elementary.log(p / y) + y / p - 1.0, np.ones(len(y))
    else:
        a, b, size = 1.0 - power, 2.0 - power, elementary.power(p, np.float64(2.0 - power))
        first = np.where(y > 0, elementary.power(some, np.float64(b)), 0.0)
        far = first / (a * b) - y * elementary.power(p, np.float64(a)) / a + size / b
    close: Floats = elementary.near_deviance(np.where(near, (y - p) / over, 0.0), power) * size
    return np.where(near, close, np.maximum(far, 0.0))


def unit(rows: TermRows, power: float) -> Floats:
    """What the deviance from a constant is made of: y^(2 - power), y log(y) at 1, log(y) at 2."""
    y = rows["y_true"]
    some = np.where(y > 0, y, 1.0)
    if power == 1.0:
        return np.asarray(y * elementary.log(some))
    found = elementary.log(some) if power == 2.0 else elementary.power(some, np.float64(2.0 - power))
    return np.asarray(np.where(y > 0, found, 0.0))


# -- two vectors: columns one after the other, so that every machine adds them in one order -------------------------


def shares(rows: TermRows, role: str) -> list[Floats]:
    """The columns of rows that are brought to a sum of 1."""
    columns = list(rows[role].T)
    total = across(columns)
    return [c / total for c in columns]


def kl(rows: TermRows) -> Floats:
    """The sum of p log(p / q), q not below eps.

    Added up as p log(p / q) - p + q, none of which is negative: p and q have the same sum, up to what eps adds to q.
    """
    eps, parts = rows.eps("y_pred"), []
    for p, q in zip(shares(rows, "y_true"), shares(rows, "y_pred"), strict=True):
        raised = np.maximum(q, eps)
        parts.append(half_deviance(p, raised, 1.0) - (raised - q))
    return across(parts)


def js(rows: TermRows) -> Floats:
    """Half the divergences of both from their mean."""
    parts = []
    for p, q in zip(shares(rows, "y_true"), shares(rows, "y_pred"), strict=True):
        m = 0.5 * (p + q)
        parts.append(0.5 * (half_deviance(p, m, 1.0) + half_deviance(q, m, 1.0)))
    return across(parts)


def cosine(rows: TermRows) -> Floats:
    """The product of both over their lengths; 0 where one is nothing but zeros."""
    a, b = list(rows["y_true"].T), list(rows["y_pred"].T)

    def product(a: list[Floats], b: list[Floats]) -> Floats:
        parts = [x * y for x, y in zip(a, b, strict=True)]
        return across(parts)

    length = np.sqrt(product(a, a)) * np.sqrt(product(b, b))
    return np.clip(np.where(length > 0, product(a, b) / np.where(length > 0, length, 1.0), 0.0), -1.0, 1.0)


# -- how many raters chose each class ---------------------------------------------------------------------------------


def raters(rows: TermRows, k: float) -> Floats:
    """How many chose a class."""
    return rows["ratings"][:, int(k)]


def rater_pairs(rows: TermRows) -> Floats:
    """Ordered pairs of raters."""
    total = across(list(rows["ratings"].T))
    return total * (total - 1.0)


def agreeing_pairs(rows: TermRows) -> Floats:
    """Ordered pairs of raters who chose the same class."""
    return across([n * (n - 1.0) for n in rows["ratings"].T])


# -- the table -------------------------------------------------------------------------------------------------------


class Term(NamedTuple):
    """A term: what it reads, its value of rows and the numbers behind its "@", how large it can be, and below 0."""

    over: str
    of: Callable[..., Floats]
    most: float = math.inf
    signed: bool = False


def squared(rows: TermRows) -> Floats:
    """The square of `margin`."""
    m = margin(rows)
    return m * m


TERMS = {
    "log_loss": Term("labels", log_loss),
    "positive_log_loss": Term("labels", lambda rows: rows["y_true"] * log_loss(rows)),
    "label": Term("labels", lambda rows: rows["y_true"], 1),
    "brier": Term("labels", brier, 1),
    "baseline_log_loss": Term("baselines", lambda rows: log_loss(rows, "baseline")),
    "baseline_brier": Term("baselines", lambda rows: brier(rows, "baseline"), 1),
    "focal": Term("labels", focal),
    "hinge": Term("labels", margin),
    "squared_hinge": Term("labels", squared),
    "surprise": Term("labels", surprise, 1, signed=True),
    "surprise_variance": Term("labels", surprise_variance, 1),
    "difference": Term("models", difference, signed=True),
    "absolute": Term("models", lambda rows: np.abs(difference(rows))),
    "symmetric": Term("models", symmetric, 2),
    "any": Term("models", lambda rows, at: decided(rows, at, (False, True), (True, False)), 1),
    "up": Term("models", lambda rows, at: decided(rows, at, (False, True)), 1),
    "down": Term("models", lambda rows, at: decided(rows, at, (True, False)), 1),
    "both": Term("models", lambda rows, at: decided(rows, at, (True, True)), 1),
    "neither": Term("models", lambda rows, at: decided(rows, at, (False, False)), 1),
    "poisson": Term("rates", poisson, signed=True),
    "poisson_of_log": Term("logs", poisson_of_log, signed=True),
    "stirling": Term("rates", stirling, signed=True),  # of y from 1 to 1.08
    "target": Term("amounts", lambda rows: rows["y_true"], 2.0**POWERS),
    "unit": Term("amounts", unit, signed=True),
    "deviance": Term("amounts", deviance),
    "kl": Term("distributions", kl, signed=True),
    "js": Term("distributions", js, 1),
    "log": Term("values", lambda rows: np.asarray(elementary.log(rows["value"])), 278.0, signed=True),
    "inverse": Term("values", lambda rows: 1.0 / rows["value"], 2.0**400),
    "cosine": Term("vectors", cosine, 1, signed=True),
    "prediction": Term("lags", forecast_terms.prediction),
    "naive": Term("lags", forecast_terms.naive),
    "covered": Term("intervals", forecast_terms.covered, 1),
    "width": Term("intervals", forecast_terms.width, signed=True),
    "interval": Term("intervals", forecast_terms.interval, signed=True),
    "raters": Term("ratings", raters, 2.0**24),
    "rater_pairs": Term("ratings", rater_pairs, 2.0**80),
    "agreeing_pairs": Term("ratings", agreeing_pairs, 2.0**64),
    "crps": Term("forecasts", forecast_terms.crps),
    "energy": Term("forecasts", forecast_terms.energy),
}


def parsed(term: str) -> tuple[str, list[float]]:
    """Return the name of a term and the numbers behind it."""
    name, _, numbers = term.partition("@")
    return name, [float(n) for n in numbers.split(":")] if numbers else []
