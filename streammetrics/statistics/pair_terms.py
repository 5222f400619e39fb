"""Functions that compute a term (a value such as a loss or a distance) for each row from one or more columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..numerics import elementary
from ..numerics.array_rows import sum_columns
from . import forecast_terms
from .decision_counts import eps_of, round_thresholds

__all__ = ["POWERS", "TERMS", "TINY", "Term", "TermRows", "parse_term"]

Floats = NDArray[np.float64]

POWERS = 50
"""Numbers whose powers are summed must lie between 2**-POWERS and 2**POWERS.

The square of their tenth power then does not overflow float64.
"""
TINY = 2.0**-1000
"""Numbers below TINY are replaced with TINY before their logarithm or power is computed."""
# The value of log(2 * pi) / 2.
HALF_LOG_TAU = 0.91893853320467274178


class TermRows:
    """The checked columns of a batch, converted to float64, from which terms are computed.

    Parameters
    ----------
    columns : mapping of str to Column
        The columns, keyed by role. A role is the name by which the metrics refer to a column, such as "y_true".
    scale : {"probability", "logit", "real"}
        The scale of the scores.
    eps : float, optional
        The distance from 0 and 1 to which probabilities are clipped; the default depends on their dtype (see `eps_of`).
    """

    def __init__(self, columns: Mapping[str, Column], scale: str, eps: float | None) -> None:
        self.columns, self.scale, self.given_eps = columns, scale, eps

    def __getitem__(self, role: str) -> Floats:
        return np.asarray(self.columns[role].values, np.float64)

    def eps(self, role: str) -> float:
        """Return the number e such that the probabilities of a column are clipped to [e, 1 - e]."""
        return eps_of(self.columns[role].source, self.given_eps)

    def probability(self, role: str = "y_score") -> Floats:
        """Return a column of scores as probabilities; logits are converted."""
        return np.asarray(elementary.sigmoid(self[role])) if self.scale == "logit" else self[role]

    def score_of_true_class(self, role: str) -> tuple[Floats, bool]:
        """Return the predicted probability or logit of the true class of each row, and whether the values are logits."""
        s, positive = self[role], self["y_true"] == 1
        if self.scale == "logit":
            return np.where(positive, s, -s), True
        return np.clip(np.where(positive, s, 1.0 - s), self.eps(role), 1.0 - self.eps(role)), False

    def is_above(self, role: str, threshold: float) -> NDArray[np.bool_]:
        """Return whether each score is at least `threshold`, which is first rounded to the dtype of the scores."""
        column = self.columns[role]
        return np.asarray(column.values >= round_thresholds((threshold,), column.source, column.values.dtype)[0])


# -- a label and a score ---------------------------------------------------------------------------------------------


def log_loss(rows: TermRows, role: str = "y_score") -> Floats:
    """Return -log(q), where q is the predicted probability of the label."""
    q, logit = rows.score_of_true_class(role)
    return np.asarray(elementary.softplus(-q) if logit else -elementary.log(q))


def focal_loss(rows: TermRows, gamma: float, alpha: float | None = None) -> Floats:
    """Return -(1 - q)^gamma * log(q), where q is the predicted probability of the label.

    If `alpha` is given, the loss is multiplied by alpha for positives, and by 1 - alpha for negatives.
    """
    q, logit = rows.score_of_true_class("y_score")
    wrong = np.maximum(elementary.sigmoid(-q) if logit else 1.0 - q, TINY)
    loss = np.asarray(elementary.power(wrong, np.float64(gamma)) * log_loss(rows))
    return loss if alpha is None else np.where(rows["y_true"] == 1, alpha, 1.0 - alpha) * loss


def squared_error(rows: TermRows, role: str = "y_score") -> Floats:
    """Return (p - y)^2, where y is the label and p the predicted probability of a positive."""
    d = rows.probability(role) - rows["y_true"]
    return d * d


def hinge_loss(rows: TermRows) -> Floats:
    """Return the hinge loss of score s: max(0, 1 - s) for positives and max(0, 1 + s) for negatives."""
    s = rows["y_score"]
    return np.maximum(1.0 - np.where(rows["y_true"] == 1, s, -s), 0.0)


def calibration_residual(rows: TermRows) -> Floats:
    """Return (y - p) * (1 - 2 * p) for the label y and the probability p; the mean is 0 if p is calibrated.

    Spiegelhalter's test is based on this term.
    """
    p = rows.probability()
    return (rows["y_true"] - p) * (1.0 - 2.0 * p)


def calibration_residual_variance(rows: TermRows) -> Floats:
    """Return the variance of `calibration_residual` for a calibrated p."""
    p = rows.probability()
    d = 1.0 - 2.0 * p
    return d * d * (p * (1.0 - p))


# -- two scores ------------------------------------------------------------------------------------------------------


def score_difference(rows: TermRows) -> Floats:
    """Return the score of the model minus that of the baseline."""
    return rows["y_score"] - rows["baseline"]


def symmetric_difference(rows: TermRows) -> Floats:
    """Return 2 * |a - b| / (|a| + |b|) for the scores a and b of the model and the baseline; 0 if both are 0."""
    size = np.abs(rows["y_score"]) + np.abs(rows["baseline"])
    return np.where(size > 0, 2.0 * np.abs(score_difference(rows)) / np.where(size > 0, size, 1.0), 0.0)


def decision_change(rows: TermRows, threshold: float, *pairs: tuple[bool, bool]) -> Floats:
    """Return 1 if the decisions (baseline, model) at a threshold are among `pairs`, such as (False, True), else 0."""
    old, new = rows.is_above("baseline", threshold), rows.is_above("y_score", threshold)
    return np.asarray(np.any([(old == a) & (new == b) for a, b in pairs], axis=0), np.float64)


# -- a count and a rate ----------------------------------------------------------------------------------------------


def poisson_loss(rows: TermRows, eps: float) -> Floats:
    """Return the Poisson loss p - y * log(p + eps), where p is the predicted rate."""
    y, p = rows["y_true"], rows["y_pred"]
    return np.asarray(p - y * elementary.log(p + eps))


def poisson_loss_of_log(rows: TermRows) -> Floats:
    """Return the Poisson loss e^x - y * x, where x is the logarithm of the predicted rate."""
    return np.asarray(elementary.exp(rows["y_pred"]) - rows["y_true"] * rows["y_pred"])


def stirling_term(rows: TermRows) -> Floats:
    """Return Stirling's approximation of log(y!): y * log(y) - y + log(2 * pi * y) / 2 for y above 1, else 0."""
    y = rows["y_true"]
    log_y = elementary.log(np.maximum(y, 1.0))
    return np.asarray(np.where(y > 1.0, y * log_y - y + (HALF_LOG_TAU + 0.5 * log_y), 0.0))


# -- an amount and its prediction ------------------------------------------------------------------------------------


def deviance(rows: TermRows, power: float) -> Floats:
    """Return the Tweedie deviance for a power of at least 1."""
    return 2.0 * half_deviance(rows["y_true"], rows["y_pred"], power)


def half_deviance(y: Floats, p: Floats, power: float) -> Floats:
    """Return half the Tweedie deviance between the targets y and the predictions p, for a power of at least 1.

    The result is accurate even if y is close to p.
    """
    # If y is close to p, the terms of the usual formula nearly cancel and few digits remain. If |y - p| <= p / 32, a
    # series in (y - p) / p is used instead.
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


def constant_deviance_term(rows: TermRows, power: float) -> Floats:
    """Return the function of y whose mean is needed for the Tweedie deviance of a constant prediction.

    For the target y, the function is y * log(y) for power 1, log(y) for power 2, and y^(2 - power) for other powers.
    """
    y = rows["y_true"]
    some = np.where(y > 0, y, 1.0)
    if power == 1.0:
        return np.asarray(y * elementary.log(some))
    found = elementary.log(some) if power == 2.0 else elementary.power(some, np.float64(2.0 - power))
    return np.asarray(np.where(y > 0, found, 0.0))


# -- two vectors, summed column by column, so that every machine adds in the same order ------------------------------


def normalized_columns(rows: TermRows, role: str) -> list[Floats]:
    """Return the columns of a matrix after each row (a vector) has been divided by its sum."""
    columns = list(rows[role].T)
    total = sum_columns(columns)
    return [c / total for c in columns]


def kl_divergence(rows: TermRows) -> Floats:
    """Return the Kullback-Leibler divergence, the sum of p * log(p / q), where any q below eps is replaced with eps.

    The code sums p * log(p / q) - p + q instead, which is never negative, so that no digits are lost by cancellation.
    The two sums are equal, because p and q each sum to 1. If eps replaces q, the difference eps - q is subtracted.
    """
    eps, parts = rows.eps("y_pred"), []
    for p, q in zip(normalized_columns(rows, "y_true"), normalized_columns(rows, "y_pred"), strict=True):
        raised = np.maximum(q, eps)
        parts.append(half_deviance(p, raised, 1.0) - (raised - q))
    return sum_columns(parts)


def js_divergence(rows: TermRows) -> Floats:
    """Return the Jensen-Shannon divergence: the mean KL divergence of the two distributions from their average."""
    parts = []
    for p, q in zip(normalized_columns(rows, "y_true"), normalized_columns(rows, "y_pred"), strict=True):
        m = 0.5 * (p + q)
        parts.append(0.5 * (half_deviance(p, m, 1.0) + half_deviance(q, m, 1.0)))
    return sum_columns(parts)


def cosine_similarity(rows: TermRows) -> Floats:
    """Return the cosine similarity of two vectors; 0 if either vector is zero."""
    a, b = list(rows["y_true"].T), list(rows["y_pred"].T)

    def product(a: list[Floats], b: list[Floats]) -> Floats:
        parts = [x * y for x, y in zip(a, b, strict=True)]
        return sum_columns(parts)

    length = np.sqrt(product(a, a)) * np.sqrt(product(b, b))
    return np.clip(np.where(length > 0, product(a, b) / np.where(length > 0, length, 1.0), 0.0), -1.0, 1.0)


# -- how many raters chose each class ---------------------------------------------------------------------------------


def rater_count(rows: TermRows, k: float) -> Floats:
    """Return, for each row, the number of raters who chose class k."""
    return rows["ratings"][:, int(k)]


def rater_pairs(rows: TermRows) -> Floats:
    """Return the number of ordered pairs of raters in each row."""
    total = sum_columns(list(rows["ratings"].T))
    return total * (total - 1.0)


def agreeing_pairs(rows: TermRows) -> Floats:
    """Return, for each row, the number of ordered pairs of raters who chose the same class."""
    return sum_columns([n * (n - 1.0) for n in rows["ratings"].T])


# -- the table -------------------------------------------------------------------------------------------------------


class Term(NamedTuple):
    """A term (a value of each row, such as a loss): the function that computes it, and its properties.

    Parameters
    ----------
    row_kind : str
        The kind of rows for which the term is defined, such as "labels" for rows with a label and a score (see the
        setting `over` of `RowTerms`).
    compute : callable
        The function that computes the term from the rows and the parameters of the term.
    max_value : float
        An upper bound on the absolute value of the term.
    signed : bool
        Whether the term can be negative.
    """

    row_kind: str
    compute: Callable[..., Floats]
    max_value: float = math.inf
    signed: bool = False


def squared_hinge_loss(rows: TermRows) -> Floats:
    """Return the square of the hinge loss."""
    m = hinge_loss(rows)
    return m * m


TERMS = {
    "log_loss": Term("labels", log_loss),
    "positive_log_loss": Term("labels", lambda rows: rows["y_true"] * log_loss(rows)),
    "label": Term("labels", lambda rows: rows["y_true"], 1),
    "brier": Term("labels", squared_error, 1),
    "baseline_log_loss": Term("baselines", lambda rows: log_loss(rows, "baseline")),
    "baseline_brier": Term("baselines", lambda rows: squared_error(rows, "baseline"), 1),
    "focal": Term("labels", focal_loss),
    "hinge": Term("labels", hinge_loss),
    "squared_hinge": Term("labels", squared_hinge_loss),
    "surprise": Term("labels", calibration_residual, 1, signed=True),
    "surprise_variance": Term("labels", calibration_residual_variance, 1),
    "difference": Term("models", score_difference, signed=True),
    "absolute": Term("models", lambda rows: np.abs(score_difference(rows))),
    "symmetric": Term("models", symmetric_difference, 2),
    "any": Term("models", lambda rows, at: decision_change(rows, at, (False, True), (True, False)), 1),
    "up": Term("models", lambda rows, at: decision_change(rows, at, (False, True)), 1),
    "down": Term("models", lambda rows, at: decision_change(rows, at, (True, False)), 1),
    "both": Term("models", lambda rows, at: decision_change(rows, at, (True, True)), 1),
    "neither": Term("models", lambda rows, at: decision_change(rows, at, (False, False)), 1),
    "poisson": Term("rates", poisson_loss, signed=True),
    "poisson_of_log": Term("logs", poisson_loss_of_log, signed=True),
    # Stirling's approximation of log(y!) is slightly negative (down to -0.08) for y from 1 to 1.08.
    "stirling": Term("rates", stirling_term, signed=True),
    "target": Term("amounts", lambda rows: rows["y_true"], 2.0**POWERS),
    "unit": Term("amounts", constant_deviance_term, signed=True),
    "deviance": Term("amounts", deviance),
    "kl": Term("distributions", kl_divergence, signed=True),
    "js": Term("distributions", js_divergence, 1),
    "log": Term("values", lambda rows: np.asarray(elementary.log(rows["value"])), 278.0, signed=True),
    "inverse": Term("values", lambda rows: 1.0 / rows["value"], 2.0**400),
    "cosine": Term("vectors", cosine_similarity, 1, signed=True),
    "prediction": Term("lags", forecast_terms.prediction_error),
    "naive": Term("lags", forecast_terms.naive_error),
    "covered": Term("intervals", forecast_terms.interval_coverage, 1),
    "width": Term("intervals", forecast_terms.interval_width, signed=True),
    "interval": Term("intervals", forecast_terms.interval_score, signed=True),
    "raters": Term("ratings", rater_count, 2.0**24),
    "rater_pairs": Term("ratings", rater_pairs, 2.0**80),
    "agreeing_pairs": Term("ratings", agreeing_pairs, 2.0**64),
    "crps": Term("forecasts", forecast_terms.quantile_crps),
    "energy": Term("forecasts", forecast_terms.ensemble_crps),
}


def parse_term(term: str) -> tuple[str, list[float]]:
    """Split a term such as "focal@2.0:0.25" into its name "focal" and its parameters [2.0, 0.25]."""
    name, _, numbers = term.partition("@")
    return name, [float(n) for n in numbers.split(":")] if numbers else []
