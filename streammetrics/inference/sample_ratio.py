"""Whether users fell to the arms as planned: if not, some are missing, not at random, and no difference can be trusted."""

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
from ..statistics.key_sample import KeySample, at_one_level
from ..statistics.unit_sums import UnitSums

__all__ = ["ALARM", "SampleRatio", "sample_ratio_mismatch"]

ALARM = 100.0
PRIOR = 1e4  # users that the prior is worth: with 100, half as many small mismatches are found
LARGEST = 700.0


class SampleRatio(NamedTuple):
    """What `sample_ratio_mismatch` found.

    Parameters
    ----------
    e_value : float
        Evidence against the planned shares.
    alarm : bool
        Whether it has reached 100.
    users : dict
        By arm: counted, or, from a sample, estimated.
    planned : dict
        The shares planned, by arm; they add up to 1.
    several : float, optional
        Users that were in more than one arm; None where nobody knows.
    share : float
        The share of users that the evidence is of: 1 if all were counted.
    """

    e_value: float
    alarm: bool
    users: dict[Any, float]
    planned: dict[Any, float]
    several: float | None = None
    share: float = 1.0

    @property
    def shares(self) -> dict[Any, float]:
        """The shares counted, by arm; NaN without users."""
        total = math.fsum(self.users.values())
        return {arm: count / total if total else float("nan") for arm, count in self.users.items()}

    @property
    def sentence(self) -> str:
        """What it means, in words."""
        total = math.fsum(self.users.values())
        if not total:
            return "no users yet"
        each = [f"{arm} {100 * s:.2f} % (planned {100 * self.planned[arm]:.2f})" for arm, s in self.shares.items()]
        sampled = f", of which {100 * self.share:.2g} % were looked at" if self.share < 1 else ""
        parts = f"{' and '.join(each)} of {total:,.0f} users{sampled}"
        said = f"users fell to the arms as planned: {parts}"
        if self.alarm:
            said = (
                f"the arms do not have the users that were planned: {parts}; some are missing, not at random, and no "
                f"difference can be trusted until it is known why"
            )
        both = f"; {self.several:,.0f} users were in more than one arm" if self.several else ""
        return f"{said} (e = {self.e_value:.2g}, alarm at {ALARM:g}){both}"


def sample_ratio_mismatch(
    users: Mapping[Any, float] | MetricLike,
    planned: Mapping[Any, float] | None = None,
    *,
    sample: MetricLike | None = None,
) -> SampleRatio:
    """Test the counts of users by arm against the planned shares, at this look and at any number of them.

    Parameters
    ----------
    users : mapping of arm to int, or holder
        Distinct users by arm, counted from exposure rows (one a user and arm). Or what was sliced by arm: `PerUnit`, whose
        exposures they are; or `DistinctSample` of the users, whose arms are brought to one threshold of their hash.
    planned : mapping of arm to float, optional
        What each arm was to get, in any unit: {"a": 50, "b": 50}; even by default. An arm of which a holder has no rows
        has no users.
    sample : holder, optional
        `DistinctSample` of the users, sliced by arm: beside exact counts, to say how many users are in several arms.

    Returns
    -------
    SampleRatio
        e = B(k p + n) / (B(k p) prod p^n) with B the multivariate beta function, k = 10,000: the evidence of multinomial
        counts (Lindon, Malek 2022, arXiv 2011.03567).

    Raises
    ------
    InvalidInputError
        If arms differ, there is only one, a count is negative, or a share is not positive; or a holder counts no users.

    Notes
    -----
    Certified for exact counts: under the planned shares e is a martingale with mean 1, so that it ever reaches 100 with
    probability 1 % at most (Ville), however often one looks. Counts from samples have an error of their own, and still
    reach 100 in 1.0 to 1.4 % of runs; they find little, as the evidence is that of the users kept: exact counts see a
    50.2/49.8 split of 10 million users that samples find in 18 % of runs. An alarm at p < 0.001 of a chi-square test,
    looked at 500 times, is false in 2.3 %. Counts by a `DistinctCount` have an error of about 1 % in each arm, which is no
    user's doing: never test those.

    Examples
    --------
    >>> sample_ratio_mismatch({"control": 50_000, "treatment": 50_200}).alarm
    False
    >>> found = sample_ratio_mismatch({"control": 149_520, "treatment": 146_201})
    >>> found.alarm, f"{found.e_value:.2g}", round(found.shares["treatment"], 4)
    (True, '1.2e+07', 0.4944)
    """
    share, several = 1.0, None
    counted, state = (users, None) if not isinstance(users, MetricLike) else _counted(users)
    nobody = (
        dict.fromkeys(planned or (), 0.0) if isinstance(users, MetricLike) else {}
    )  # an arm without rows has no cell
    if sample is not None or isinstance(state, KeySample):
        known = state if sample is None else _state_of(sample, (KeySample,))
        assert known is not None
        found, kept, both = _sampled(known)
        several = both / found
        if sample is None:
            counted, share = kept, found
    assert isinstance(counted, Mapping)
    counted = nobody | dict(counted)
    e, shares = _tested(counted, planned)
    told = {arm: float(v) / share for arm, v in counted.items()}
    return SampleRatio(e, e >= ALARM, told, shares, several, share)


def _tested(users: Mapping[Any, float], planned: Mapping[Any, float] | None) -> tuple[float, dict[Any, float]]:
    """Return e, and the planned shares."""
    planned = dict.fromkeys(users, 1.0) if planned is None else planned
    if set(users) != set(planned) or len(users) < 2:
        raise InvalidInputError(
            f"users and planned shares need the same two arms or more, not {list(users)} and {list(planned)}"
        )
    if bad := [arm for arm, count in users.items() if not 0.0 <= count < math.inf]:
        raise InvalidInputError(f"users of {bad[0]} must be a count, not {users[bad[0]]}")
    if bad := [arm for arm, share in planned.items() if not 0.0 < share < math.inf]:
        raise InvalidInputError(f"the planned share of {bad[0]} must be more than 0, not {planned[bad[0]]}")
    whole = math.fsum(planned.values())
    shares = {arm: planned[arm] / whole for arm in users}
    evidence = _log_evidence([float(users[arm]) for arm in users], list(shares.values()))
    return (math.inf if evidence > LARGEST else float(exp(evidence))), shares


def _counted(users: MetricLike) -> tuple[dict[Any, float], State]:
    """The exposures of each arm of what counts them; none yet of a sample."""
    state = _state_of(users, (UnitSums, KeySample))
    if isinstance(state, KeySample):
        return {}, state
    cells: Sequence[Any] = list(state.each_cell())
    return {arm: float(cell.exposures) for arm, cell in zip(_arms(state), cells, strict=True)}, state


def _state_of(holder: MetricLike, kinds: tuple[type[State], ...]) -> State:
    """What a holder counts users in, by arm."""
    for state in states_of(holder):
        if isinstance(state, kinds) and [(a.kind, len(a.names)) for a in state.axes] == [("key", 1)]:
            return state
    needed = " or ".join("PerUnit(...)" if kind is UnitSums else "DistinctSample()" for kind in kinds)
    raise InvalidInputError(f"users are counted by Sliced({needed}, by=the arm), or given as a dict; not by {holder!r}")


def _arms(state: State) -> list[Any]:
    return [key[0] for key in keys_of(state)]


def _sampled(state: State) -> tuple[float, dict[Any, float], int]:
    """Return the share of users that all arms keep, how many these are by arm, and how many are in several."""
    cells: Sequence[Any] = list(state.each_cell())
    share, hashes = at_one_level(cells)
    each = np.unique(np.concatenate([np.zeros(0, np.uint64), *hashes]), return_counts=True)[1]
    kept = {arm: float(len(h)) for arm, h in zip(_arms(state), hashes, strict=True)}
    return share, kept, int(np.count_nonzero(each > 1))


def _log_evidence(counts: list[float], shares: list[float]) -> float:
    """The logarithm of e, by Stirling's form with what cancels left out, so that no digits are lost at 1e12 users.

    With N = k + n and d = (count - n p) / (N p): N sum p ((1 + d) ln(1 + d) - d) - 1/2 sum ln(1 + d)
    - (arms - 1) / 2 ln(N / k) + sum (s(k p + count) - s(k p)) - s(N) + s(k).
    """
    n = math.fsum(counts)
    whole = PRIOR + n
    terms = [-0.5 * (len(counts) - 1.0) * float(log1p(n / PRIOR)), stirling(PRIOR) - stirling(whole)]
    for count, share in zip(counts, shares, strict=True):
        d = (count - n * share) / (whole * share)
        terms += [whole * share * _divergence(d), -0.5 * float(log1p(d))]
        terms += [stirling(PRIOR * share + count) - stirling(PRIOR * share)]
    return math.fsum(terms)


def _divergence(d: float) -> float:
    """(1 + d) ln(1 + d) - d for d > -1, about d^2 / 2, without cancellation."""
    if d >= 0.0:
        return d * float(log1p(d)) - float(x_minus_log1p(d))
    g = -d / (1.0 + d)
    return float(x_minus_log1p(g)) / (1.0 + g)


def stirling(a: float) -> float:
    """Return ln Gamma(a) - (a - 1/2) ln a + a - 1/2 ln(2 pi) for a > 0: Stirling's series from 16 on, below by steps."""
    total = 0.0
    while a < 16.0:
        total += (a + 0.5) * float(log1p(1.0 / a)) - 1.0
        a += 1.0
    z = 1.0 / (a * a)
    series = 1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z * (1.0 / 1680.0 - z / 1188.0)))
    return total + series / a
