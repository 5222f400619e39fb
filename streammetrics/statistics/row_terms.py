"""Means over rows of what two columns, or two vectors, say of one another: losses, distances, decisions that differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..columns.classes import Distribution, Logit
from ..columns.columns import Column, Need, label, matrix, score, weight
from ..columns.numbers import Exponent, number
from ..numerics import elementary
from ..numerics.settings import setting
from . import forecast_terms
from .labels import rounded
from .row_means import RowMeans

__all__ = ["RowTerms"]

Floats = NDArray[np.float64]

TINY = 2.0**-1000
"""Below it nothing has a logarithm here."""
OCTAVES = 200
"""Of numbers: squares of sums of products of any two are floats."""
HALF_LOG_TAU = 0.91893853320467274178  # log(2 pi) / 2


class Rows:
    """Checked columns, as terms read them."""

    def __init__(self, state: RowTerms, columns: Mapping[str, Column]) -> None:
        self.state, self.columns = state, columns

    def __getitem__(self, role: str) -> Floats:
        return np.asarray(self.columns[role].values, np.float64)

    def eps(self, role: str) -> float:
        """What probabilities of a column are kept away from 0 and 1."""
        if self.state.eps is not None:
            return self.state.eps
        return 2.0**-52 if self.columns[role].source == "float64" else 2.0**-23

    def probability(self, role: str = "y_score") -> Floats:
        """The scores as probabilities."""
        return np.asarray(elementary.sigmoid(self[role])) if self.state.scale == "logit" else self[role]

    def towards(self, role: str) -> tuple[Floats, bool]:
        """Score or logit of the class that the row has, and whether it is a logit."""
        s, positive = self[role], self["y_true"] == 1
        if self.state.scale == "logit":
            return np.where(positive, s, -s), True
        return np.clip(np.where(positive, s, 1.0 - s), self.eps(role), 1.0 - self.eps(role)), False

    def above(self, role: str, threshold: float) -> NDArray[np.bool_]:
        """Whether scores are at least a threshold, as it is in their dtype."""
        column = self.columns[role]
        return np.asarray(column.values >= rounded((threshold,), column.source, column.values.dtype)[0])


# -- a label and a score ---------------------------------------------------------------------------------------------


def log_loss(rows: Rows, role: str = "y_score") -> Floats:
    """-log(q), q the probability of the label."""
    q, logit = rows.towards(role)
    return np.asarray(elementary.softplus(-q) if logit else -elementary.log(q))


def focal(rows: Rows, gamma: float, alpha: float | None = None) -> Floats:
    """-(1 - q)^gamma log(q); weighed alpha for positives, 1 - alpha for negatives."""
    q, logit = rows.towards("y_score")
    wrong = np.maximum(elementary.sigmoid(-q) if logit else 1.0 - q, TINY)
    loss = np.asarray(elementary.power(wrong, np.float64(gamma)) * log_loss(rows))
    return loss if alpha is None else np.where(rows["y_true"] == 1, alpha, 1.0 - alpha) * loss


def brier(rows: Rows, role: str = "y_score") -> Floats:
    """(p - y)^2."""
    d = rows.probability(role) - rows["y_true"]
    return d * d


def margin(rows: Rows) -> Floats:
    """1 - s for positives, 1 + s for negatives, not below 0."""
    s = rows["y_score"]
    return np.maximum(1.0 - np.where(rows["y_true"] == 1, s, -s), 0.0)


def surprise(rows: Rows) -> Floats:
    """(y - p) (1 - 2 p): of well calibrated p its mean is 0."""
    p = rows.probability()
    return (rows["y_true"] - p) * (1.0 - 2.0 * p)


def surprise_variance(rows: Rows) -> Floats:
    """The variance of `surprise`, if p is the probability of a positive."""
    p = rows.probability()
    d = 1.0 - 2.0 * p
    return d * d * (p * (1.0 - p))


# -- two scores ------------------------------------------------------------------------------------------------------


def difference(rows: Rows) -> Floats:
    """How much more the score is than that of the baseline."""
    return rows["y_score"] - rows["baseline"]


def symmetric(rows: Rows) -> Floats:
    """2 |d| / (|a| + |b|), and 0 of two zeros."""
    size = np.abs(rows["y_score"]) + np.abs(rows["baseline"])
    return np.where(size > 0, 2.0 * np.abs(difference(rows)) / np.where(size > 0, size, 1.0), 0.0)


def flips(rows: Rows, threshold: float, *ways: bool) -> Floats:
    """Whether the decision was turned, to positive (True) or to negative (False)."""
    new, old = rows.above("y_score", threshold), rows.above("baseline", threshold)
    return np.asarray((new != old) & np.isin(new, ways), np.float64)


# -- a count and a rate ----------------------------------------------------------------------------------------------


def poisson(rows: Rows, eps: float) -> Floats:
    """The rate p less y log(p + eps)."""
    y, p = rows["y_true"], rows["y_pred"]
    return np.asarray(p - y * elementary.log(p + eps))


def poisson_of_log(rows: Rows) -> Floats:
    """e^x - y x, x the logarithm of the rate."""
    return np.asarray(elementary.exp(rows["y_pred"]) - rows["y_true"] * rows["y_pred"])


def stirling(rows: Rows) -> Floats:
    """About log(y!): y log(y) - y + log(2 pi y) / 2 for y above 1, else 0."""
    y = rows["y_true"]
    log_y = elementary.log(np.maximum(y, 1.0))
    return np.asarray(np.where(y > 1.0, y * log_y - y + (HALF_LOG_TAU + 0.5 * log_y), 0.0))


# -- two vectors: columns one after the other, so that every machine adds them in one order -------------------------


def shares(rows: Rows, role: str) -> list[Floats]:
    """The columns of rows that are brought to a sum of 1."""
    columns = list(rows[role].T)
    total = sum(columns[1:], columns[0])
    return [c / total for c in columns]


def divergence(p: Floats, q: Floats) -> Floats:
    """The part p log(p / q), and 0 where p is."""
    some = p > 0
    return np.asarray(np.where(some, p * elementary.log(np.where(some, np.maximum(p, TINY) / q, 1.0)), 0.0))


def kl(rows: Rows) -> Floats:
    """The sum of p log(p / q), q not below eps."""
    eps = rows.eps("y_pred")
    pairs = zip(shares(rows, "y_true"), shares(rows, "y_pred"), strict=True)
    parts = [divergence(p, np.maximum(q, eps)) for p, q in pairs]
    return sum(parts[1:], parts[0])


def js(rows: Rows) -> Floats:
    """Half the divergences of both from their mean."""
    parts = []
    for p, q in zip(shares(rows, "y_true"), shares(rows, "y_pred"), strict=True):
        m = np.maximum(0.5 * (p + q), TINY)
        parts.append(0.5 * (divergence(p, m) + divergence(q, m)))
    return np.maximum(sum(parts[1:], parts[0]), 0.0)


def cosine(rows: Rows) -> Floats:
    """The product of both over their lengths; 0 where one is nothing but zeros."""
    a, b = list(rows["y_true"].T), list(rows["y_pred"].T)

    def product(a: list[Floats], b: list[Floats]) -> Floats:
        parts = [x * y for x, y in zip(a, b, strict=True)]
        return sum(parts[1:], parts[0])

    length = np.sqrt(product(a, a)) * np.sqrt(product(b, b))
    return np.clip(np.where(length > 0, product(a, b) / np.where(length > 0, length, 1.0), 0.0), -1.0, 1.0)


# -- the table -------------------------------------------------------------------------------------------------------


class Term(NamedTuple):
    """A term: what it reads, its value of rows and the numbers behind its "@", how large it can be, and below 0."""

    over: str
    of: Callable[..., Floats]
    most: float = math.inf
    signed: bool = False


def squared(rows: Rows) -> Floats:
    """The square of `margin`."""
    m = margin(rows)
    return m * m


TERMS = {
    "log_loss": Term("labels", log_loss),
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
    "flip": Term("models", lambda rows, threshold: flips(rows, threshold, True, False), 1),
    "up": Term("models", lambda rows, threshold: flips(rows, threshold, True), 1),
    "down": Term("models", lambda rows, threshold: flips(rows, threshold, False), 1),
    "poisson": Term("rates", poisson, signed=True),
    "poisson_of_log": Term("logs", poisson_of_log, signed=True),
    "stirling": Term("rates", stirling),
    "kl": Term("distributions", kl, signed=True),
    "js": Term("distributions", js, 1),
    "prediction": Term("lags", forecast_terms.prediction),
    "naive": Term("lags", forecast_terms.naive),
    "covered": Term("intervals", forecast_terms.covered, 1),
    "width": Term("intervals", forecast_terms.width, signed=True),
    "interval": Term("intervals", forecast_terms.interval, signed=True),
    "crps": Term("forecasts", forecast_terms.crps),
    "energy": Term("forecasts", forecast_terms.energy, signed=True),
    "cosine": Term("vectors", cosine, 1, signed=True),
}
WIDER = {"baselines": ("labels", "baselines"), "logs": ("logs", "rates")}
"""Whose terms these columns have, too."""


class RowTerms(RowMeans, tag="row_terms"):
    """Sums over rows of terms of two columns or two vectors.

    Parameters
    ----------
    terms : tuple of str
        What is summed, weighted, as `TERMS` lists it; numbers stand behind it, "focal@2.0:0.25".
    over : str
        What a row has: "labels", a 0/1 label and a score; "baselines", and a second score, `baseline`; "models", two
        scores; "rates", a target of at least 0 and a prediction that is, or "logs", its logarithm; "distributions", two
        rows of probabilities; "vectors", two rows of numbers; "lags", a target, a prediction and an earlier value, `lag`;
        "intervals", a target, `lower` and `upper`; "forecasts", a target and a row of predictions.
    scale : {"probability", "logit", "real"}
        What the scores are.
    eps : float, optional
        What probabilities are kept away from 0 and 1, by default as `ScoreSums`; the least share of a distribution.
    width : int, optional
        How long vectors are.

    Notes
    -----
    Terms are computed in float64, every operation rounded once, whole columns at a time. 1.1 kB a term.
    """

    over: str = setting(
        default="labels",
        choices=(
            "labels",
            "baselines",
            "models",
            "rates",
            "logs",
            "distributions",
            "vectors",
            "lags",
            "intervals",
            "forecasts",
        ),
    )
    scale: str = setting(default="probability", choices=("probability", "logit", "real"))
    eps: float | None = setting(default=None, above=0.0, high=0.25)
    width: int | None = setting(default=None, low=1, high=1 << 16)

    choices = tuple(TERMS)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = WIDER.get(self.over, (self.over,))
        if strange := [t for t in self.terms if TERMS[t.partition("@")[0]].over not in known]:
            raise ValueError(f"{type(self).__name__}: {strange[0]!r} is no term over {self.over}")
        if (self.over in ("distributions", "vectors", "forecasts")) != (self.width is not None):
            raise ValueError(
                f"{type(self).__name__}: width= is for distributions, vectors and forecasts, which need it"
            )

    def needs(self) -> tuple[Need, ...]:
        def scored(role: str) -> Need:
            return score(role) if self.scale == "probability" else Need(role, Logit())

        def pair(need: Callable[[str], Need]) -> tuple[Need, ...]:
            return need("y_true"), need("y_pred")

        width = self.width or 1
        each: dict[str, Callable[[], tuple[Need, ...]]] = {
            "labels": lambda: (label(), scored("y_score")),
            "baselines": lambda: (label(), scored("y_score"), scored("baseline")),
            "models": lambda: (scored("y_score"), scored("baseline")),
            "rates": lambda: pair(lambda role: number(role, low=0.0, octaves=OCTAVES)),
            "logs": lambda: (number("y_true", low=0.0, octaves=OCTAVES), Need("y_pred", Exponent())),
            "distributions": lambda: pair(lambda role: Need(role, Distribution(width))),
            "lags": lambda: tuple(number(role) for role in ("y_true", "y_pred", "lag")),
            "intervals": lambda: tuple(number(role) for role in ("y_true", "lower", "upper")),
            "forecasts": lambda: (number("y_true"), matrix(number("y_pred"), width)),
            "vectors": lambda: pair(lambda role: matrix(number(role, octaves=OCTAVES), width)),
        }
        return (*each[self.over](), weight())

    def values_of(self, columns: Mapping[str, Any]) -> Floats:
        rows, parts = Rows(self, columns), [parsed(term) for term in self.terms]
        return np.column_stack([TERMS[name].of(rows, *numbers) for name, numbers in parts])

    def most_of(self, term: str) -> float:
        return TERMS[parsed(term)[0]].most

    def signed(self, term: str) -> bool:
        return TERMS[parsed(term)[0]].signed


def parsed(term: str) -> tuple[str, list[float]]:
    """Return the name of a term and the numbers behind it."""
    name, _, numbers = term.partition("@")
    return name, [float(n) for n in numbers.split(":")] if numbers else []
