"""Exact intervals for the difference between two shares of users with an event, used if a rate has too few events.

Rows of the same user are correlated, so an interval for a rate needs many events. The share of users who have at least
one event has an exact interval (Clopper and Pearson 1934), because users are independent. The number of these users is
not stored, but it is bounded: every shard with events contains at least one of these users, and every event belongs to
one user.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..numerics.elementary import exp, log, log1p
from ..reading.about import about_of
from ..reading.interval import Interval, alpha_of
from ..reading.replicates import Shards
from .differences import MetricDifferences
from .number_format import choose_format
from .reasons import build_reasons, has_reason

__all__ = ["MOST_USERS", "add_user_shares", "difference_limits", "limit_users"]

Floats = NDArray[np.float64]
RATE = "ctr"
# The maximum number of events: with more, the bounds on the number of users with an event are too wide to be useful.
MOST_EVENTS = 10_000
# The maximum number of users in an arm: a larger number may be a sample estimate, for which no interval is exact.
MOST_USERS = 1 << 19
# The number of bisection steps; each step halves the error of a share.
STEPS = 60


def add_user_shares(differences: MetricDifferences, users: Sequence[float], confidence: float) -> MetricDifferences:
    """Return the differences; if a rate has no interval, the reason also compares the shares of users with an event.

    For example, if too few users clicked for an interval of the click-through rate, the exact interval for the
    difference between the shares of users who clicked is added to the reason why there is no interval.

    Parameters
    ----------
    differences : MetricDifferences
        The differences of a metric. Differences of metrics other than `CTR` are returned unchanged.
    users : pair of float
        The numbers of users on the sides `a` and `b`.
    confidence : float
        Nominal coverage of the interval.
    """
    pair = differences.pair
    a, b = pair.a.shards, pair.b.shards
    if about_of(pair.metric).tag != RATE or pair.metric.soft_labels or a is None or b is None:
        return differences
    reasons = build_reasons(differences.reasons, differences.reasons.shape)
    for i in np.flatnonzero(has_reason(reasons)).tolist():
        if text := _describe_shares(a, b, i, users, confidence):
            reasons[i] = f"{reasons[i]}; {text}"
    return replace(differences, reasons=reasons)


def _describe_shares(a: Shards, b: Shards, cell: int, users: Sequence[float], confidence: float) -> str:
    """Return a clause with the interval for the difference in the share of users with an event; "" if there is none."""
    names = [str(np.broadcast_to(side.events_names, side.weights.shape[1:])[cell]) for side in (a, b)]
    ranges = [limit_users(side.events[:, cell], count) for side, count in zip((a, b), users, strict=True)]
    first, second = ranges
    if names[0] != names[1] or first is None or second is None:
        return ""
    low, high = difference_limits(first, second, (int(users[0]), int(users[1])), confidence)
    write = choose_format(Interval(low, high, 0.0, math.nan, "", "", confidence), True)
    shown = [f"{x:,}" if x == y else f"{x:,} to {y:,}" for x, y in (first, second)]
    counts = f"{shown[0]} of {users[0]:,.0f} users in the first side, {shown[1]} of {users[1]:,.0f} in the second side"
    return (
        f"the share of users with a {names[0].removesuffix('s')} differs by {write(low)} to {write(high)} of all users "
        f"(exact {100.0 * confidence:.3g} % interval: {counts})"
    )


def limit_users(events: Floats, users: float) -> tuple[int, int] | None:
    """Return the smallest and the largest possible number of users with an event, given the events in each shard.

    Return None if there are more than MOST_EVENTS events, or if `users` is not a positive whole number or is less than
    the number of shards with events.
    """
    fewest, most = int(np.count_nonzero(events)), int(math.fsum(events))
    if most > MOST_EVENTS or not fewest <= users < math.inf or users != math.floor(users) or not users:
        return None
    return fewest, min(most, int(users))


def difference_limits(
    a: tuple[int, int], b: tuple[int, int], users: tuple[int, int], confidence: float
) -> tuple[float, float]:
    """Return the lower and the upper confidence limit of the difference between two shares of users.

    Parameters
    ----------
    a, b : pair of int
        The smallest and the largest possible number of users with an event on each side.
    users : pair of int
        The number of users on each side.
    confidence : float
        Minimum coverage of the interval.
    """
    # The difference can lie outside its interval only if at least one of the two shares is below its own lower limit or
    # above its own upper limit. These are four possible errors, so allow each one a probability of alpha / 4.
    tail = alpha_of(confidence) / 4.0
    (a_low, a_high), (b_low, b_high) = (
        (_lower_limit(low, n, tail), _upper_limit(high, n, tail)) for (low, high), n in zip((a, b), users, strict=True)
    )
    return a_low - b_high, a_high - b_low


def _lower_limit(count: int, users: int, tail: float) -> float:
    return _solve_share(count - 1, users, 1.0 - tail) if count else 0.0


def _upper_limit(count: int, users: int, tail: float) -> float:
    return _solve_share(count, users, tail) if count < users else 1.0


def _solve_share(count: int, users: int, probability: float) -> float:
    """Return the share p at which the probability of at most `count` users with an event equals `probability`."""
    steps = np.arange(count, dtype=np.float64)
    # Element j is the logarithm of the binomial coefficient "users choose j".
    coefficients = np.concatenate([[0.0], np.add.accumulate(log(users - steps) - log(steps + 1.0))])
    events = np.arange(count + 1.0)
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        p = (low + high) / 2.0
        logs = coefficients + events * float(log(p)) + (users - events) * float(log1p(-p))
        below = float(np.add.accumulate(exp(logs))[-1])
        low, high = (p, high) if below > probability else (low, p)
    return (low + high) / 2.0
