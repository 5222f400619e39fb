"""Sequential test for sample ratio mismatch, which checks that users are split between the arms as planned.

A mismatch means that some users are missing from an arm, and probably not at random. Differences between the arms can then
not be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..collect.metric_like import MetricLike, states_of
from ..errors import InvalidInputError
from ..numerics.elementary import exp, log1p, x_minus_log1p
from ..reading.replicates import keys_of
from ..state.state import State
from ..statistics.key_sample import KeySample, hashes_at_one_level
from ..statistics.unit_sums import UnitSums

__all__ = ["ALARM", "SampleRatio", "sample_ratio_mismatch"]

ALARM = 100.0
# The concentration of the Dirichlet prior, as a number of users. With 100 rather than 10,000, the test would find half as
# many small mismatches.
PRIOR_USERS = 1e4
# The maximum logarithm of an e-value; an e-value above e^700 is reported as inf.
MAX_EXPONENT = 700.0


class SampleRatio(NamedTuple):
    """The result of `sample_ratio_mismatch`.

    Parameters
    ----------
    e_value : float
        Evidence against the planned shares: larger values are stronger evidence.
    alarm : bool
        Whether the e-value has reached 100.
    users : dict
        Number of users in each arm: exact, or estimated from a sample.
    planned : dict
        Planned share of each arm; the shares add up to 1.
    several : float, optional
        Number of users in more than one arm; None if unknown.
    share : float
        The share of all users that the test has counted: 1 for exact counts, less if `users` is a sample.
    """

    e_value: float
    alarm: bool
    users: dict[Any, float]
    planned: dict[Any, float]
    several: float | None = None
    share: float = 1.0

    @property
    def shares(self) -> dict[Any, float]:
        """The observed share of each arm; NaN without users."""
        total = math.fsum(self.users.values())
        return {arm: count / total if total else float("nan") for arm, count in self.users.items()}

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        total = math.fsum(self.users.values())
        if not total:
            return "no users yet"
        each = [f"{arm} {100 * s:.2f} % ({100 * self.planned[arm]:.2f} % planned)" for arm, s in self.shares.items()]
        sampled = f", estimated from a sample of {100 * self.share:.2g} %" if self.share < 1 else ""
        parts = f"{' and '.join(each)} of {total:,.0f} users{sampled}"
        text = f"users are split between the arms as planned: {parts}"
        if self.alarm:
            text = (
                f"the split of users between the arms is not as planned: {parts}; users are missing, probably not at "
                f"random, so do not trust any difference until the cause is known"
            )
        overlap = f"; {self.several:,.0f} users were in more than one arm" if self.several else ""
        return f"{text} (e-value {self.e_value:.2g}, alarm at {ALARM:g}){overlap}"


def sample_ratio_mismatch(
    users: Mapping[Any, float] | MetricLike,
    planned: Mapping[Any, float] | None = None,
    *,
    sample: MetricLike | None = None,
) -> SampleRatio:
    """Test whether the numbers of users in each arm agree with the planned shares. The test is valid at repeated looks.

    Parameters
    ----------
    users : mapping of arm to int, or metric
        Number of distinct users in each arm, for example from exposure rows (one for each user and arm). Alternatively, a
        metric sliced by arm: `PerUnit`, which counts exposures, or a `DistinctSample` of the users.
    planned : mapping of arm to float, optional
        Planned split, in any unit: {"a": 50, "b": 50}; even by default. A planned arm without rows counts as 0 users.
    sample : metric, optional
        `DistinctSample` of the users, sliced by arm, to estimate how many users are in more than one arm.

    Returns
    -------
    SampleRatio
        The result, whose e-value is e = B(k p + n) / (B(k p) prod p^n), where n are the counts, p the planned shares, B is
        the multivariate beta function and k = 10,000. This is the Bayes factor of a Dirichlet prior for multinomial counts
        (Lindon, Malek 2022, arXiv 2011.03567).

    Raises
    ------
    InvalidInputError
        If the arms differ, there is only one, a count is negative, a share is not positive, or `users` counts no users.

    Notes
    -----
    For exact counts the false alarm rate is proven: under the planned shares e is a martingale with mean 1, so it reaches
    100 with probability at most 1 % over any number of looks (Ville's inequality). Counts from samples reach 100 in 1.0 to
    1.4 % of runs, but have less power, because only sampled users are evidence: exact counts always detect a 50.2/49.8
    split of 10 million users, samples only in 18 % of runs. A chi-square test with an alarm at p < 0.001, repeated 500
    times, raises a false alarm in 2.3 % of runs. Do not test counts of `DistinctCount`: their error of about 1 % in each
    arm would look like a mismatch.

    Examples
    --------
    >>> sample_ratio_mismatch({"control": 50_000, "treatment": 50_200}).alarm
    False
    >>> result = sample_ratio_mismatch({"control": 149_520, "treatment": 146_201})
    >>> result.alarm, f"{result.e_value:.2g}", round(result.shares["treatment"], 4)
    (True, '1.2e+07', 0.4944)
    """
    share, several = 1.0, None
    counted, state = (users, None) if not isinstance(users, MetricLike) else _read_exposures(users)
    # The state has no cell for a planned arm without rows, so add such arms with 0 users.
    empty_arms = dict.fromkeys(planned or (), 0.0) if isinstance(users, MetricLike) else {}
    # For a sample, test the numbers of sampled users. Testing the estimated totals would overstate the evidence, because
    # it would count each sampled user 1 / share times.
    if sample is not None or isinstance(state, KeySample):
        known = state if sample is None else _find_user_state(sample, (KeySample,))
        assert known is not None
        sampling_share, sampled_users, overlap = _read_sample(known)
        several = overlap / sampling_share
        if sample is None:
            counted, share = sampled_users, sampling_share
    assert isinstance(counted, Mapping)
    counted = empty_arms | dict(counted)
    e, shares = _test_counts(counted, planned)
    estimated_users = {arm: float(v) / share for arm, v in counted.items()}
    return SampleRatio(e, e >= ALARM, estimated_users, shares, several, share)


def _test_counts(users: Mapping[Any, float], planned: Mapping[Any, float] | None) -> tuple[float, dict[Any, float]]:
    """Return the e-value against the planned shares, and the planned share of each arm, scaled to a sum of 1."""
    planned = dict.fromkeys(users, 1.0) if planned is None else planned
    if set(users) != set(planned) or len(users) < 2:
        raise InvalidInputError(
            f"users and planned must have the same arms, at least two; found {list(users)} and {list(planned)}"
        )
    if invalid := [arm for arm, count in users.items() if not 0.0 <= count < math.inf]:
        raise InvalidInputError(f"the number of users of {invalid[0]} must be 0 or more, not {users[invalid[0]]}")
    if invalid := [arm for arm, share in planned.items() if not 0.0 < share < math.inf]:
        raise InvalidInputError(f"the planned share of {invalid[0]} must be more than 0, not {planned[invalid[0]]}")
    total = math.fsum(planned.values())
    shares = {arm: planned[arm] / total for arm in users}
    evidence = _log_e_value([float(users[arm]) for arm in users], list(shares.values()))
    return (math.inf if evidence > MAX_EXPONENT else float(exp(evidence))), shares


def _read_exposures(users: MetricLike) -> tuple[dict[Any, float], State]:
    """Return the number of exposures (users) of each arm, and the state; an empty dict if the state is a sample."""
    state = _find_user_state(users, (UnitSums, KeySample))
    if isinstance(state, KeySample):
        return {}, state
    cells: Sequence[Any] = list(state.iterate_cells())
    return {arm: float(cell.exposures) for arm, cell in zip(_read_arms(state), cells, strict=True)}, state


def _find_user_state(source: MetricLike, kinds: tuple[type[State], ...]) -> State:
    """Return the first state of one of these kinds that is sliced by one column, the arm; raise if there is none."""
    for state in states_of(source):
        if isinstance(state, kinds) and [(a.kind, len(a.names)) for a in state.axes] == [("key", 1)]:
            return state
    needed = " or ".join("PerUnit(...)" if kind is UnitSums else "DistinctSample()" for kind in kinds)
    expected = "users= takes a dict of counts, or" if UnitSums in kinds else "sample= takes"
    raise InvalidInputError(
        f"{expected} Sliced({needed}, by=...), where by= names the column of the arm, not {source!r}"
    )


def _read_arms(state: State) -> list[Any]:
    return [key[0] for key in keys_of(state)]


def _read_sample(state: State) -> tuple[float, dict[Any, float], int]:
    """Return the share of users in the sample, their number in each arm, and how many of them are in more than one arm."""
    cells: Sequence[Any] = list(state.iterate_cells())
    share, hashes = hashes_at_one_level(cells)
    arm_counts = np.unique(np.concatenate([np.zeros(0, np.uint64), *hashes]), return_counts=True)[1]
    sampled_users = {arm: float(len(h)) for arm, h in zip(_read_arms(state), hashes, strict=True)}
    return share, sampled_users, int(np.count_nonzero(arm_counts > 1))


def _log_e_value(counts: list[float], shares: list[float]) -> float:
    """Return the logarithm of the e-value, given the number of users and the planned share of each arm.

    The direct formula with log gamma functions would lose most digits at 1e12 users. Therefore the log gamma functions are
    replaced by Stirling's formula, and terms that cancel are left out. The result is
    N sum p ((1 + d) ln(1 + d) - d) - 1/2 sum ln(1 + d) - (arms - 1) / 2 ln(N / k)
    + sum (s(k p + count) - s(k p)) - s(N) + s(k),
    where k is `PRIOR_USERS`, n the total number of users, N = k + n, p the planned share of an arm,
    d = (count - n p) / (N p), and s the remainder of Stirling's formula.
    """
    n = math.fsum(counts)
    total = PRIOR_USERS + n
    terms = [
        -0.5 * (len(counts) - 1.0) * float(log1p(n / PRIOR_USERS)),
        stirling_remainder(PRIOR_USERS) - stirling_remainder(total),
    ]
    for count, share in zip(counts, shares, strict=True):
        d = (count - n * share) / (total * share)
        terms += [total * share * _entropy_term(d), -0.5 * float(log1p(d))]
        terms += [stirling_remainder(PRIOR_USERS * share + count) - stirling_remainder(PRIOR_USERS * share)]
    return math.fsum(terms)


def _entropy_term(d: float) -> float:
    """Return (1 + d) ln(1 + d) - d for d > -1 without loss of precision near 0, where it is about d^2 / 2."""
    if d >= 0.0:
        return d * float(log1p(d)) - float(x_minus_log1p(d))
    g = -d / (1.0 + d)
    return float(x_minus_log1p(g)) / (1.0 + g)


def stirling_remainder(a: float) -> float:
    """Return ln Gamma(a) - (a - 1/2) ln a + a - 1/2 ln(2 pi) for a > 0, the remainder of Stirling's formula."""
    # The asymptotic series has full precision for a >= 16. Increase smaller arguments by Gamma(a + 1) = a Gamma(a).
    total = 0.0
    while a < 16.0:
        total += (a + 0.5) * float(log1p(1.0 / a)) - 1.0
        a += 1.0
    z = 1.0 / (a * a)
    series = 1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z * (1.0 / 1680.0 - z / 1188.0)))
    return total + series / a
