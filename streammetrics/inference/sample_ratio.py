"""Tests for sample ratio mismatch. They check that users are split between the arms as planned.

A mismatch means that some users are missing from an arm, and probably not at random. In that case, differences between
the arms cannot be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..collect.metric_like import MetricLike, states_of
from ..errors import InvalidInputError
from ..numerics.elementary import exp, log, log1p, x_minus_log1p
from ..numerics.student_t import normal_quantile
from ..reading.replicates import keys_of
from ..state.state import State
from ..statistics.key_sample import KeySample, hashes_at_one_level
from ..statistics.unit_sums import UnitSums
from .multinomial_test import multinomial_p_value
from .number_format import format_p_value

__all__ = ["ALARM", "SampleRatio", "sample_ratio_mismatch"]

ALARM = 100.0
"""The e-value at which a test for repeated looks raises an alarm."""
P_ALARM = 0.001
"""The p-value below which a test for one look raises an alarm."""
# The concentrations of the Dirichlet priors, as numbers of users. The test averages the e-values for these priors,
# and the average is also an e-value. Small concentrations detect large mismatches among few users, and the large
# concentration detects small mismatches among many users.
PRIORS = (30.0, 300.0, 1e4)
# The split is confirmed only if the 99 % interval for the share of each arm contains the planned share and is at most 2
# percentage points wide.
CONFIDENCE, MAX_WIDTH = 0.99, 0.02
# The maximum logarithm of an e-value; an e-value above exp(700) is reported as inf.
MAX_EXPONENT = 700.0


class SampleRatio(NamedTuple):
    """The result of `sample_ratio_mismatch`.

    Parameters
    ----------
    e_value : float
        Evidence against the planned shares: larger values are stronger evidence.
    alarm : bool
        Whether the e-value has reached 100 or, for a test at a single look, whether the p-value is below 0.001.
    users : dict
        Number of users in each arm: exact, or estimated from a sample. An estimate leaves out users in more than one
        arm.
    planned : dict
        Planned share of each arm; the shares add up to 1.
    several : float, optional
        Number of users in more than one arm; None if unknown.
    share : float
        The share of all users that the test has counted: 1 for exact counts, less than 1 if `users` comes from a
        sample.
    p_value : float, optional
        The p-value of the test for a single look; None if the test is for repeated looks.
    """

    e_value: float
    alarm: bool
    users: dict[Any, float]
    planned: dict[Any, float]
    several: float | None = None
    share: float = 1.0
    p_value: float | None = None

    @property
    def shares(self) -> dict[Any, float]:
        """The observed share of each arm; NaN if there are no users."""
        total = math.fsum(self.users.values())
        return {arm: count / total if total else float("nan") for arm, count in self.users.items()}

    @property
    def intervals(self) -> dict[Any, tuple[float, float]]:
        """The 99 % Wilson interval for the share of each arm; NaN if there are no users."""
        counted = math.fsum(self.users.values()) * self.share
        z = float(normal_quantile((1.0 + CONFIDENCE) / 2.0))
        return {arm: _wilson_interval(share, counted, z) for arm, share in self.shares.items()}

    @property
    def is_as_planned(self) -> bool:
        """Whether the test confirms the planned split.

        This requires that there is no alarm, and that the 99 % interval for each share contains the planned share and
        is at most 2 percentage points wide.
        """
        limits = ((*pair, self.planned[arm]) for arm, pair in self.intervals.items())
        return not self.alarm and all(low <= p <= high and high - low <= MAX_WIDTH for low, high, p in limits)

    @property
    def evidence(self) -> str:
        """The e-value or the p-value, and the threshold at which it raises an alarm, as text."""
        if self.p_value is None:
            return f"e-value {self.e_value:.2g}, alarm at {ALARM:g}"
        text = format_p_value(self.p_value)
        return f"p {text if text.startswith('<') else f'= {text}'}, alarm below {P_ALARM:g}"

    @property
    def smallest_mismatch(self) -> float:
        """The smallest difference between an arm's share and its planned share that the test is likely to detect.

        It is the difference at which the test raises an alarm with the current number of users, plus 0.84 standard
        errors, which gives 80 % power. It is computed for the arm whose planned share is closest to 0.5, where a
        difference is hardest to detect. It is NaN without users.
        """
        counted = math.fsum(self.users.values()) * self.share
        if not counted:
            return math.nan
        arm = min(self.planned, key=lambda a: abs(self.planned[a] - 0.5))
        planned = self.planned[arm]
        low, high = 0.0, 1.0 - planned
        # Find the difference by bisection. After 20 steps, its error is at most 1e-6 of the largest possible
        # difference.
        for _ in range(20):
            middle = (low + high) / 2.0
            counts = [counted * (planned + middle), counted * (1.0 - planned - middle)]
            alarm = _test_counts(counts, [planned, 1.0 - planned], self.p_value is None)[2]
            low, high = (low, middle) if alarm else (middle, high)
        return high + float(normal_quantile(0.8)) * math.sqrt(planned * (1.0 - planned) / counted)

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        total = math.fsum(self.users.values())
        if not total:
            return "no users yet"
        each = []
        for arm, share in self.shares.items():
            low, high = self.intervals[arm]
            interval = "" if self.alarm or self.is_as_planned else f"99 % {100 * low:.2f} % to {100 * high:.2f} %, "
            each.append(f"{arm} {100 * share:.2f} % ({interval}{100 * self.planned[arm]:.2f} % planned)")
        sampled = f", estimated from a sample of {100 * self.share:.2g} %" if self.share < 1 else ""
        parts = f"{' and '.join(each)} of {total:,.0f} users{sampled}"
        text = f"too few users to tell whether users are split between the arms as planned: {parts}"
        if self.alarm:
            text = (
                f"the split of users between the arms is not as planned: {parts}; users are missing, probably not at "
                f"random, so do not trust any difference until the cause is known"
            )
        elif self.is_as_planned:
            text = f"users are split between the arms as planned: {parts}"
        overlap = f"; {self.several:,.0f} users were in more than one arm" if self.several else ""
        return f"{text} ({self.evidence}){overlap}"


def sample_ratio_mismatch(
    users: Mapping[Any, float] | MetricLike,
    planned: Mapping[Any, float] | None = None,
    *,
    sample: MetricLike | None = None,
    sequential: bool = True,
) -> SampleRatio:
    """Test whether the number of users in each arm agrees with the planned shares.

    Parameters
    ----------
    users : mapping of arm to int, or metric
        Number of distinct users in each arm, for example from exposure rows (one per user and arm). Alternatively, a
        metric sliced by arm: `PerUnit`, which counts exposures, or a `DistinctSample` of the users.
    planned : mapping of arm to float, optional
        Planned split, in any unit: {"a": 50, "b": 50}; even by default. A planned arm without rows counts as 0 users.
    sample : metric, optional
        `DistinctSample` of the users, sliced by arm, to estimate how many users are in more than one arm.
    sequential : bool
        Whether the test is valid at repeated looks, for example every day. If False, the test is for a single look,
        with an alarm at p < 0.001. It is the exact multinomial test if there are at most 1,048,576 possible outcomes
        (with two arms, n users have n + 1 outcomes), otherwise the chi-square test.

    Returns
    -------
    SampleRatio
        The result. Its e-value e is the average, over k = 30, 300 and 10,000, of B(k * p + n) / (B(k * p) * prod(p^n)).
        Here n are the counts, p are the planned shares and B is the multivariate beta function. This is the Bayes
        factor of a Dirichlet prior for multinomial counts (Lindon, Malek 2022, arXiv 2011.03567).

    Raises
    ------
    InvalidInputError
        If `users` and `planned` have different arms, there is only one arm, a count is negative, a share is not
        positive, or `users` is a metric that counts no users.

    Notes
    -----
    For exact counts of users, the false alarm rate under repeated looks is proven. Under the planned shares, e is a
    martingale with mean 1, so it reaches 100 with probability at most 1 % over any number of looks (Ville's
    inequality). With counts from samples, the e-value reaches 100 in 1.0 to 1.4 % of runs. The test then has less
    power, because only the sampled users count as evidence (see `SampleRatio.smallest_mismatch`). A chi-square test
    with an alarm at p < 0.001, repeated 500 times, raises a false alarm in 2.3 % of runs. Therefore use
    `sequential=False` only for a single look. Do not test counts from `DistinctCount`: their error of about 1 % in each
    arm would look like a mismatch.

    Examples
    --------
    >>> sample_ratio_mismatch({"control": 50_000, "treatment": 50_200}).alarm
    False
    >>> result = sample_ratio_mismatch({"control": 149_520, "treatment": 146_201})
    >>> result.alarm, f"{result.e_value:.2g}", round(result.shares["treatment"], 4)
    (True, '5.7e+06', 0.4944)
    """
    share, several = 1.0, None
    counted, state = (users, None) if not isinstance(users, MetricLike) else _read_exposures(users)
    # The metric contains no counts for a planned arm without rows, so add such arms with 0 users.
    empty_arms = dict.fromkeys(planned or (), 0.0) if isinstance(users, MetricLike) else {}
    # For a sample, test the numbers of sampled users. Testing the estimated totals would overstate the evidence,
    # because each sampled user would count 1 / share times.
    if sample is not None or isinstance(state, KeySample):
        known = state if sample is None else _find_user_state(sample, (KeySample,))
        assert known is not None
        sampling_share, sampled_users, overlap = _read_sample(known)
        several = overlap / sampling_share
        if sample is None:
            counted, share = sampled_users, sampling_share
    assert isinstance(counted, Mapping)
    counted = empty_arms | dict(counted)
    shares = _check_shares(counted, planned)
    e, p, alarm = _test_counts([float(counted[arm]) for arm in shares], list(shares.values()), sequential)
    estimated_users = {arm: float(v) / share for arm, v in counted.items()}
    return SampleRatio(e, alarm, estimated_users, shares, several, share, p)


def _check_shares(users: Mapping[Any, float], planned: Mapping[Any, float] | None) -> dict[Any, float]:
    """Return the planned share of each arm, scaled to sum to 1; raise an error if shares or users are invalid."""
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
    return {arm: planned[arm] / total for arm in users}


def _test_counts(counts: list[float], shares: list[float], sequential: bool) -> tuple[float, float | None, bool]:
    """Return the e-value, the p-value for a single look (None if `sequential`), and whether there is an alarm.

    The hypothesis is that the users in `counts` are split according to the planned `shares`.
    """
    e = _compute_e_value(counts, shares)
    p = None if sequential else multinomial_p_value(counts, shares)
    return e, p, e >= ALARM if p is None else p < P_ALARM


def _compute_e_value(counts: list[float], shares: list[float]) -> float:
    """Return the average of the e-values for all priors; inf if it is above exp(700)."""
    logs = [_log_e_value(counts, shares, prior) for prior in PRIORS]
    largest = max(logs)
    average = largest + float(log(math.fsum(exp(np.array(logs) - largest)) / len(PRIORS)))
    return math.inf if average > MAX_EXPONENT else float(exp(average))


def _wilson_interval(share: float, users: float, z: float) -> tuple[float, float]:
    """Return the Wilson interval for a share observed in `users` users; `z` is the normal quantile (2.58 for 99 %)."""
    if not users:
        return math.nan, math.nan
    scale = 1.0 + z * z / users
    centre = (share + z * z / (2.0 * users)) / scale
    shift = z / (2.0 * users)
    half = z * math.sqrt(share * (1.0 - share) / users + shift * shift) / scale
    return max(centre - half, 0.0), min(centre + half, 1.0)


def _read_exposures(users: MetricLike) -> tuple[dict[Any, float], State]:
    """Return the number of exposed users by arm (an empty dict for a sample of users), and the state of the metric."""
    state = _find_user_state(users, (UnitSums, KeySample))
    if isinstance(state, KeySample):
        return {}, state
    cells: Sequence[Any] = list(state.iterate_cells())
    return {arm: float(cell.exposures) for arm, cell in zip(_read_arms(state), cells, strict=True)}, state


def _find_user_state(source: MetricLike, kinds: tuple[type[State], ...]) -> State:
    """Return the first state of a class in `kinds` that is sliced only by arm; raise an error if there is none."""
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
    """Return how the users of a sample are split between the arms.

    The result contains the share of all users that are in the sample; for each arm, the number of sampled users who are
    in no other arm; and the number of sampled users in more than one arm.
    """
    cells: Sequence[Any] = list(state.iterate_cells())
    share, hashes = hashes_at_one_level(cells)
    found, arm_counts = np.unique(np.concatenate([np.zeros(0, np.uint64), *hashes]), return_counts=True)
    several = found[arm_counts > 1]
    sampled_users = {
        arm: float(len(h) - np.count_nonzero(np.isin(several, h)))
        for arm, h in zip(_read_arms(state), hashes, strict=True)
    }
    return share, sampled_users, len(several)


def _log_e_value(counts: list[float], shares: list[float], prior: float) -> float:
    """Return the logarithm of the e-value for one prior, given the number of users and the planned share of each arm.

    The direct formula with log gamma functions would lose most digits at 1e12 users. Therefore the log gamma functions
    are replaced by Stirling's formula, and terms that cancel are left out. The result is

    N * sum(p * ((1 + d) * ln(1 + d) - d)) - 1/2 * sum(ln(1 + d)) - (arms - 1) / 2 * ln(N / k)
    + sum(s(k * p + count) - s(k * p)) - s(N) + s(k),

    where the sums are over the arms, k is `prior`, n is the total number of users, N = k + n, `count` and p are the
    number of users and the planned share of an arm, d = (count - n * p) / (N * p), and s is the remainder of Stirling's
    formula.
    """
    n = math.fsum(counts)
    total = prior + n
    terms = [
        -0.5 * (len(counts) - 1.0) * float(log1p(n / prior)),
        stirling_remainder(prior) - stirling_remainder(total),
    ]
    for count, share in zip(counts, shares, strict=True):
        d = (count - n * share) / (total * share)
        terms += [total * share * _entropy_term(d), -0.5 * float(log1p(d))]
        terms += [stirling_remainder(prior * share + count) - stirling_remainder(prior * share)]
    return math.fsum(terms)


def _entropy_term(d: float) -> float:
    """Return (1 + d) * ln(1 + d) - d for d > -1 without loss of precision near 0, where it is about d^2 / 2."""
    if d >= 0.0:
        return d * float(log1p(d)) - float(x_minus_log1p(d))
    g = -d / (1.0 + d)
    return float(x_minus_log1p(g)) / (1.0 + g)


def stirling_remainder(a: float) -> float:
    """Return ln(Gamma(a)) - (a - 1/2) * ln(a) + a - ln(2 * pi) / 2 for a > 0, the remainder of Stirling's formula."""
    # The asymptotic series has full precision for a >= 16. Increase smaller arguments with Gamma(a + 1) = a * Gamma(a).
    total = 0.0
    while a < 16.0:
        total += (a + 0.5) * float(log1p(1.0 / a)) - 1.0
        a += 1.0
    z = 1.0 / (a * a)
    series = 1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z * (1.0 / 1680.0 - z / 1188.0)))
    return total + series / a
