"""Compare the metrics of two models, experiment arms or days, with confidence intervals and p-values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..collect.accumulator import definition_of
from ..collect.metric_like import MetricLike, states_of
from ..errors import InvalidInputError
from ..reading.interval import alpha_of
from ..reading.replicates import Sample
from .comparison import Comparison, Comparisons
from .differences import check_balance, compute_differences
from .interpretation import ComparisonSettings, interpret
from .pairs import Pair, pair_samples
from .shard_counts import fold_shards
from .verdict import Progress

__all__ = [
    "collect_arms",
    "collect_samples",
    "collect_slice_columns",
    "compare",
    "compare_all",
    "merge_slices",
    "select_arm_covariates",
    "select_covariates",
]


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
    """Return the difference a - b with its confidence interval and p-value, for every metric and slice.

    The two sides `a` and `b` are, for example, two models or two arms of an experiment. If both have the same shards of
    units (`Sharded`), the standard error comes from the jackknife, which leaves the same shard out on both sides. This
    is valid for two models on the same rows, for overlapping users and for separate arms. Metrics and slices that exist
    on only one side cannot be compared; the result lists them with the reason.

    Parameters
    ----------
    a, b : metric, collection, slices or windows
        The two sides, usually `Sharded`. For two models in one log, pass the tasks of the collection:
        ``compare(log["new"], log["old"])``.
    confidence : float
        Nominal coverage of each interval.
    independent : bool
        True asserts that the sides have no unit in common. If so, sides with different or no shards are compared by
        Welch's method. The standard error of each side comes from its own shards. Without shards, it comes from the
        formula of the metric for independent rows.
    relative : bool
        Whether the p-value and `better` refer to a / b - 1 rather than a - b. The result always contains both
        intervals.
    sequential : bool
        Whether intervals and p-values are always-valid: they hold over all looks (interim analyses) together. Needs
        `users`.
    planned, users : float, optional
        The planned number of users, fixed before the first look, and the number of users so far. Each number is the
        total of both arms. Without `planned`, always-valid intervals are narrowest at 10,000 users.
    covariates : pair, or list of pairs, optional
        Metrics of the same two arms from before the treatment, for variance reduction (CUPED): a pair (a, b) for each
        covariate. A metric of a collection is adjusted by the covariates with the same name or, if there are none, by
        all covariates. A metric may have at most three covariates. The arms must be randomized. A quantile of data with
        few distinct values is not adjusted, and the `method` of its interval says so.
    adjust : {"holm", "bh"}, optional
        Multiplicity correction over all metrics and slices; `better` then also requires that the adjusted p-value is at
        most 1 - `confidence`. With `sequential`, "bh" is e-BH.

    Returns
    -------
    Comparison or Comparisons
        One comparison for two single metrics; otherwise a mapping keyed by metric name, or by slice keys and metric
        name, with a method `table()`.

    Raises
    ------
    InvalidInputError
        The sides have different shards and `independent` is False; the sides have no metric and slice in common; or the
        covariates do not match, or differ between the sides by more than chance explains (p below 0.0001).

    Notes
    -----
    The standard error comes from the delete-one-shard jackknife of d_k = (a without shard k) - (b without shard k), see
    `Sharded`. Degrees of freedom follow Welch and Satterthwaite: (vA + vB)^2 / (vA^2 / dfA + vB^2 / dfB). For each
    side, v is the variance and df = K_eff - 1, where K_eff is the effective number of shards. Relative differences are
    computed on logarithms. If a metric, such as profit, may be 0 or negative in one of the slices, they are computed by
    the delta method instead. This method needs a control value (`b`) clearly above 0.

    An interval needs at least 50 positives and 50 negatives, or 50 rows for a metric without positives. At least half
    of the shards must contain them. A difference of 0 is certain only if both sides have the same state.

    A quantile of data with few distinct values, such as whole seconds, jumps from one value to the next. Suppose that
    one stored value holds more than 15 % of the weight inside the interval of either side (Woodruff 1952). The interval
    of the difference then consists of all differences between a value in one interval and a value in the other. The
    p-value comes from the narrowest such set that contains 0. Where both intervals consist of the same single value,
    there is no p-value, and `note` contains the change in the share of rows at or below this value.

    For a ratio whose best value is 1, the side closer to 1 is better. If a and b denote the logarithms of the two
    ratios, a side is better only if the intervals of b - a and b + a both exclude 0. A comparison takes 50 microseconds
    per metric and slice, which is less time than reading the states takes. Sources: CUPED, Deng, Xu, Kohavi, Walker
    (2013); always-valid intervals, Waudby-Smith et al. (2021, arXiv 2103.06476); e-BH, Wang, Ramdas (2022).

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> rng = np.random.default_rng(1)
    >>> user, click = rng.integers(0, 2000, 20_000), rng.random(20_000) < 0.1
    >>> def scored(noise):
    ...     p = 0.1 + 0.05 * (click - 0.1) + noise * rng.random(20_000)
    ...     return sm.Sharded(sm.AUC(), unit="user").update(click, p, user=user)
    >>> comparison = sm.compare(scored(0.1), scored(0.2))
    >>> comparison.better, comparison.p_value < 1e-6
    ('a', True)
    """
    alpha_of(confidence)
    look = Progress(users, planned, sequential=sequential, tuned_confidence=confidence).look
    settings = ComparisonSettings(confidence, look, relative, adjust)
    comparisons = compare_all(a, b, settings, independent=independent, covariates=covariates)
    if (
        definition_of(a).is_single
        and definition_of(b).is_single
        and len(comparisons) == 1
        and not comparisons.unmatched
    ):
        return next(iter(comparisons.values()))
    return comparisons


def compare_all(
    a: MetricLike,
    b: MetricLike,
    settings: ComparisonSettings,
    *,
    independent: bool = False,
    covariates: Any = (),
) -> Comparisons:
    """Compare two sides as `compare` does, but return a mapping even for two single metrics.

    Parameters
    ----------
    a, b, independent, covariates
        The same as for `compare`.
    settings : ComparisonSettings
        The other arguments of `compare`.
    """
    alpha_of(settings.confidence)
    sides = collect_sides(a, b, *(side for pair in _list_covariates(covariates) for side in pair))
    pairs, unmatched = pair_samples(*sides[:2])
    if not pairs:
        raise InvalidInputError(_describe_no_overlap(*sides[:2]))
    # For each covariate, use only the metrics that both arms contain.
    before = [p for i in range(2, len(sides), 2) for p in pair_samples(*sides[i : i + 2])[0]]
    readings = [
        interpret(compute_differences(p, independent=independent, covariates=select_covariates(p, before)), settings)
        for p in pairs
    ]
    check_balance(before)
    return Comparisons(collect_slice_columns(a), readings, unmatched, settings)


def collect_samples(side: Any) -> list[Sample]:
    """Return a `Sample` for each metric of one side: the values of its cells (slices), their keys, and their shards."""
    if not isinstance(side, MetricLike):
        raise InvalidInputError(
            f"expected metrics, collections, slices or windows to compare, found an object of class {type(side).__name__}"
        )
    samples: list[Sample] = definition_of(side).samples(states_of(side))
    return samples


def collect_sides(*sides: Any) -> list[list[Sample]]:
    """Return the samples of all sides of a comparison. If there are few units, shards are merged (`fold_shards`)."""
    return fold_shards([collect_samples(side) for side in sides])


def collect_slice_columns(side: MetricLike) -> tuple[str, ...]:
    """Return the names of the columns by which one side of a comparison is sliced, such as ("country",)."""
    return tuple(
        dict.fromkeys(n for r in definition_of(side).reads for x in r.state.axes if x.kind != "shard" for n in x.names)
    )


def merge_slices(thing: MetricLike) -> MetricLike:
    """Return the metrics of an arm with all slices merged."""
    while collect_slice_columns(thing):
        if not hasattr(thing, "total"):
            raise InvalidInputError(
                f"expected arms without slices, or Sliced objects, found an object of class {type(thing).__name__}, "
                "which has no total"
            )
        thing = thing.total
    return thing


def _describe_no_overlap(a: Sequence[Sample], b: Sequence[Sample]) -> str:
    ours, theirs = (", ".join(dict.fromkeys(s.name for s in side)) or "nothing" for side in (a, b))
    return f"there is nothing to compare: a has {ours}; b has {theirs}. Count the same metric on both sides"


def _list_covariates(covariates: Any) -> list[Sequence[Any]]:
    """Convert the argument `covariates` of `compare` to a list of pairs of arms."""
    items = list(covariates)
    if len(items) == 2 and all(isinstance(x, MetricLike) for x in items):
        items = [tuple(items)]
    for pair in items:
        if not (isinstance(pair, Sequence) and len(pair) == 2):
            raise InvalidInputError(
                "covariates= takes a pair (a, b) of pre-treatment metrics, or a list of such pairs; "
                f"found an object of class {type(pair).__name__}"
            )
    return items


def select_covariates(pair: Pair, before: Sequence[Pair]) -> Sequence[Pair]:
    """Return the covariates in `before` with the same name as the metric `pair`; if there are none, return all."""
    return [p for p in before if p.name == pair.name] or before


def select_arm_covariates(
    covariates: Sequence[Mapping[Any, MetricLike]], arms: Iterable[Any], by: tuple[str, ...] = ()
) -> list[dict[Any, MetricLike]]:
    """Return the covariates of an experiment, each as a dict from arms to metrics.

    If `by` contains slice columns, return only the covariates that are sliced by the same columns. If it is empty,
    merge the slices of each covariate.
    """
    selected = []
    for sides in covariates:
        if missing := [arm for arm in arms if arm not in sides]:
            raise InvalidInputError(f"covariates= has no arm {missing[0]!r}; pass the same arms as in arms=")
        some = {arm: sides[arm] if by else merge_slices(sides[arm]) for arm in arms}
        if not by or all(collect_slice_columns(side) == by for side in some.values()):
            selected.append(some)
    return selected


def collect_arms(
    arms: Mapping[Any, MetricLike], covariates: Sequence[Mapping[Any, MetricLike]] = ()
) -> tuple[dict[Any, list[Sample]], list[dict[Any, list[Sample]]]]:
    """Return the samples of the metrics and of each covariate, keyed by arm; all have the same number of shards."""
    mappings = [arms, *covariates]
    samples = iter(collect_sides(*(side for one in mappings for side in one.values())))
    first, *others = ({arm: next(samples) for arm in one} for one in mappings)
    return first, others
