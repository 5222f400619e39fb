"""Which of two is better, by how much, and whether that can be trusted: models, arms, or days, slice by slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..collect.accumulator import definition_of
from ..collect.metric_like import MetricLike, states_of
from ..errors import InvalidInputError
from ..reading.interval import alpha_of
from ..reading.replicates import Sample
from .comparison import Comparison, Comparisons
from .differences import changes_of
from .interpretation import ComparisonSettings, read
from .pairs import Left, Pair, paired
from .sequential import Look

__all__ = ["compare", "compare_all"]


def compare(
    a: MetricLike,
    b: MetricLike,
    *,
    confidence: float = 0.95,
    independent: bool = False,
    relative: bool = False,
    sequential: bool = False,
    planned: float | None = None,
    users: float | None = None,
    covariates: Any = (),
    adjust: str | None = None,
) -> Comparison | Comparisons:
    """Return by how much a differs from b, with interval and p-value; of collections and slices, for each number.

    Where both sides have the same shards of units (`Sharded`), shard k is left out on both sides: right for two models of
    the same rows, for overlapping users, and for separate arms alike. Slices and names that only one side has are listed
    with the reason.

    Parameters
    ----------
    a, b : metric, collection, slices or windows
        The sides: usually of `Sharded` metrics. Values are a's and b's, differences a - b. Of a collection that has
        several models of one log, the parts: ``compare(log["new"], log["old"])``.
    confidence : float
        Nominal coverage of each interval.
    independent : bool
        Say that the sides have no unit in common: without common shards they are then compared by Welch, from the shards
        of each, or as if its rows were independent.
    relative : bool
        Whether p-values, and which side is better, are of a / b - 1; else they are of a - b. Both have intervals.
    sequential : bool
        Whether intervals and p-values are those that hold at all looks together; needs `planned` and `users`.
    planned, users : float, optional
        Users at the planned end, fixed before the first look, and those so far; each of both arms together.
    covariates : pair, or list of pairs, optional
        The same arms before the treatment (CUPED), each a pair as (a, b): what of the difference they explain is taken
        from it. Of a collection, a metric is adjusted by what has its name, or else by all; at most three. For randomised
        arms only.
    adjust : {"holm", "bh"}, optional
        Adjust p-values for all rows together, and let it count for what is better; with `sequential`, "bh" is e-BH.

    Returns
    -------
    Comparison or Comparisons
        One for two single metrics; else a mapping by name, or by slice keys and name, with `table()`.

    Raises
    ------
    InvalidInputError
        The sides have not the same shards, and are not said to be independent; they have nothing in common; or covariates
        do not fit.

    Notes
    -----
    The error of a difference is that of the delete-one-shard jackknife of d_k = a without shard k - b without shard k (see
    `Sharded`), with Welch and Satterthwaite's degrees of freedom, (vA + vB)^2 / (vA^2 / dfA + vB^2 / dfB), where each side
    has its variance v and K_eff - 1; differences on the natural scale, relative ones as exp of a difference of logarithms.
    There is none under 50 positives (rows, of a metric without positives) in half of the shards.

    A ratio whose best value is 1 is better where it is closer to 1, by two signed contrasts: with a and b the logarithms,
    b - a and b + a must both leave 0 out. 50 us for each of many cells; the states behind them take longer to read.
    Sources: CUPED, Deng, Xu, Kohavi, Walker (2013); intervals at all looks, Waudby-Smith et al. (2021, arXiv 2103.06476);
    e-BH, Wang, Ramdas (2022).

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> rng = np.random.default_rng(1)
    >>> user, click = rng.integers(0, 2000, 20_000), rng.random(20_000) < 0.1
    >>> def scored(noise):
    ...     p = 0.1 + 0.05 * (click - 0.1) + noise * rng.random(20_000)
    ...     return sm.Sharded(sm.AUC(), unit="user").update(click, p, user=user)
    >>> found = sm.compare(scored(0.1), scored(0.2))
    >>> found.better, found.p_value < 1e-6
    ('a', True)
    """
    alpha_of(confidence)
    settings = ComparisonSettings(confidence, look_at(sequential, users, planned, confidence), relative, adjust)
    found = compare_all(a, b, settings, independent=independent, covariates=covariates)
    if definition_of(a).is_single and definition_of(b).is_single and len(found) == 1 and not found.left:
        return next(iter(found.values()))
    return found


def compare_all(
    a: MetricLike,
    b: MetricLike,
    settings: ComparisonSettings,
    *,
    independent: bool = False,
    covariates: Any = (),
) -> Comparisons:
    """Return what `compare` does, always as a mapping: of two single metrics of one."""
    alpha_of(settings.confidence)
    pairs, left = _sides(a, b)
    if not pairs:
        raise InvalidInputError(_nothing(a, b))
    before = _before(covariates)
    readings = [read(changes_of(p, independent=independent, covariates=_of_name(p, before)), settings) for p in pairs]
    return Comparisons(slices_of(a), readings, left, settings)


def look_at(sequential: bool, users: float | None, planned: float | None, confidence: float) -> Look | None:
    """Return which look this is, of what is looked at all along; None for one look."""
    if not sequential:
        return None
    if users is None or planned is None:
        raise InvalidInputError("sequential intervals need users=, those so far, and planned=")
    return Look(float(users), float(planned), confidence)


def samples_of(side: Any) -> list[Sample]:
    """Return what a side says of itself."""
    if not isinstance(side, MetricLike):
        raise InvalidInputError(f"compare takes metrics, collections, slices or windows, not a {type(side).__name__}")
    found: list[Sample] = definition_of(side).samples(states_of(side))
    return found


def _sides(a: Any, b: Any) -> tuple[list[Pair], list[Left]]:
    return paired(samples_of(a), samples_of(b))


def slices_of(side: MetricLike) -> tuple[str, ...]:
    """Return the columns that slices are made by."""
    return tuple(
        dict.fromkeys(n for r in definition_of(side).reads for x in r.state.axes if x.kind != "shard" for n in x.names)
    )


def _nothing(a: Any, b: Any) -> str:
    ours, theirs = (", ".join(dict.fromkeys(s.name for s in samples_of(x))) or "nothing" for x in (a, b))
    return f"there is nothing to compare: a has {ours}, b {theirs}"


def _before(covariates: Any) -> list[Pair]:
    """The pairs of covariates."""
    given = list(covariates)
    if len(given) == 2 and all(isinstance(x, MetricLike) for x in given):
        given = [tuple(given)]
    found = []
    for pair in given:
        if not (isinstance(pair, Sequence) and len(pair) == 2):
            raise InvalidInputError("covariates= takes a pair (a, b) of what was before, or a list of such pairs")
        found += _sides(*pair)[0]
    return found


def _of_name(pair: Pair, before: Sequence[Pair]) -> Sequence[Pair]:
    """The covariates of a number: those of its name, else all."""
    return [p for p in before if p.name == pair.name] or before
