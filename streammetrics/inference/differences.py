"""What changes from one side to the other, with its error: shard by shard, or as of two that are independent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..reading.about import sharded_refusal_of
from ..reading.interval import Estimate
from ..reading.replicates import Sample, Shards
from .calibration import Calibrations, calibrations
from .estimates import Measured, measured, welch
from .jackknife import Contrast, Replicates, jackknife, of_one, subtracted, too_few
from .pairs import Pair, joined
from .quantiles import quantile_replicates
from .reasons import Reasons, add, as_reasons, known

__all__ = ["Changes", "at_shares", "changes_of", "replicates", "side", "why_none"]

Floats = NDArray[np.float64]
RATIO = 1.0  # the best value of a calibration: what is good is neither high nor low


@dataclass(frozen=True, eq=False)
class Changes:
    """How a number of n cells differs between two sides.

    Parameters
    ----------
    pair : Pair
        The sides.
    difference, relative : Measured
        a - b, and a / b - 1.
    contrasts : Calibrations or None
        Of a ratio whose best value is 1.
    reasons : array of str or None, shape (n,)
        Why a cell has too little data, or is refused.
    """

    pair: Pair
    difference: Measured
    relative: Measured
    contrasts: Calibrations | None
    reasons: Reasons


def replicates(sample: Sample) -> Replicates:
    """Return a number of each cell, with each shard deleted; a quantile along the line of its interval."""
    shards = sample.shards
    assert shards is not None
    if shards.below is None:
        return Replicates(sample.values, shards.deleted, shards.weights)
    return quantile_replicates(sample.metric.q, shards.below, shards.weights, at_shares(sample))


def at_shares(sample: Sample) -> Callable[[Any], Floats]:
    """Return the function of a share of each cell that gives the value below which it lies; NaN in cells without one."""
    quantile, known_ones = sample.quantile, np.isfinite(sample.values).tolist()
    assert quantile is not None

    def at(shares: Any) -> Floats:
        cells = zip(known_ones, np.broadcast_to(shares, sample.values.shape).tolist(), strict=True)
        return np.array([quantile(i, p) if some else np.nan for i, (some, p) in enumerate(cells)], np.float64)

    return at


def why_none(metric: Any) -> str | None:
    """Return why a metric has no error by shards, and what to use in its place."""
    return sharded_refusal_of(metric) or None


def side(sample: Sample, scale: str) -> Measured:
    """Return a number of each cell on its own: by its shards, or else as its metric estimates it of what it counts."""
    if sample.shards is not None:
        return jackknife(of_one(replicates(sample), scale))
    found = sample.estimates()
    fields = (np.array([_number(e, name) for e in found], np.float64) for name in ("value", "error", "degrees"))
    value, error, degrees = fields
    reasons = as_reasons(None, value.shape)
    add(reasons, [e.reason is not None for e in found], lambda i: str(found[i].reason))
    assumption = found[0].assumption if found else ""
    return measured(value, error, scale, df=np.maximum(degrees, 1.0), assumption=assumption, reason=reasons)


def _number(found: Estimate, name: str) -> float:
    """A field of an estimate; degrees of freedom that are not given are those of an error that is known."""
    value = getattr(found, name)
    return np.inf if value is None else float(value)


def changes_of(pair: Pair, *, independent: bool = False, covariates: Sequence[Pair] = ()) -> Changes:
    """Return what changes between two sides, in each of their cells.

    Shard by shard where both have the same shards: right for the same rows, for overlapping users and for separate arms.
    Else by Welch, if the caller says that the sides are independent.

    Raises
    ------
    InvalidInputError
        The sides have not the same shards, and are not said to be independent; or covariates have others, or are given
        for two models of the same rows.
    """
    a, b = pair.a, pair.b
    if a.shards is not None and b.shards is not None and a.shards.alike(b.shards):
        found = _by_shard(pair, covariates)
    elif not independent:
        raise InvalidInputError(_unlike(pair.name, a.shards, b.shards))
    elif covariates:
        raise InvalidInputError(f"{pair.name}: covariates need shards of the same units on both sides")
    else:
        found = _apart(pair)
    return found


def _by_shard(pair: Pair, covariates: Sequence[Pair]) -> Changes:
    a, b = pair.a.shards, pair.b.shards
    assert a is not None
    assert b is not None
    before = [_covariate(pair, c) for c in covariates]
    if before and len(pair.keys) and np.array_equal(a.weights, b.weights):
        raise InvalidInputError(
            f"{pair.name}: covariates are for randomised arms, and both sides have the same rows in every shard: of two "
            f"models of one log the difference before is not 0 on average"
        )
    one, two = replicates(pair.a), replicates(pair.b)
    difference, relative = (jackknife(subtracted(one, two, relative=r), before) for r in (False, True))
    ratio = pair.metric.about.best == RATIO
    contrasts = calibrations(one, two) if ratio else None
    return Changes(pair, difference, relative, contrasts, _reasons(pair, a, b))


def _covariate(pair: Pair, before: Pair) -> Contrast:
    """The difference of a covariate in the cells of what it adjusts; NaN in those that it has not."""
    sides = []
    for sample, of in ((before.a, pair.a), (before.b, pair.b)):
        cells, at = joined(sample, pair.keys)
        if cells.shards is None or of.shards is None or not cells.shards.alike(of.shards):
            raise InvalidInputError(
                f"{pair.name}: the covariate {before.name} must have the shards of what it adjusts: "
                f"{plan_text(of.shards)}, not {plan_text(cells.shards)}"
            )
        one, shape = replicates(cells), of.shards.weights.shape
        value, deleted, weights = np.full(shape[1], np.nan), np.full(shape, np.nan), np.zeros(shape)
        value[at], deleted[:, at], weights[:, at] = one.value, one.deleted, one.weights
        sides.append(Replicates(value, deleted, weights))
    return subtracted(*sides)


def _apart(pair: Pair) -> Changes:
    difference, relative = (welch(*(side(s, on) for s in (pair.a, pair.b))) for on in ("natural", "log"))
    contrasts = None
    if pair.metric.about.best == RATIO:
        inverse = _inverse(side(pair.b, "log"))
        contrasts = Calibrations(relative, welch(side(pair.a, "log"), inverse))
    return Changes(pair, difference, relative, contrasts, _reasons(pair, pair.a.shards, pair.b.shards))


def _inverse(found: Measured) -> Measured:
    """1 / v, on logarithms."""
    return found._replace(point=-found.point)


def _reasons(pair: Pair, a: Shards | None, b: Shards | None) -> Reasons:
    """Why cells have too little data, or a metric has no error of any kind."""
    reasons = as_reasons(why_none(pair.metric) if a is not None else None, (len(pair.keys),))
    for name, shards in (("first", a), ("second", b)):
        if shards is not None:
            what = "rows" if np.array_equal(shards.events, shards.weights) else "positives"
            few = as_reasons(too_few(shards.events, what=what), reasons.shape)
            add(reasons, known(few), _prefixed(name, few))
    return reasons


def _prefixed(name: str, texts: Reasons) -> Callable[[int], str]:
    return lambda i: f"the {name} side: {texts[i]}"


def plan_text(shards: Shards | None) -> str:
    """Say what shards there are: 64 shards of user_id."""
    return "no shards of units" if shards is None else f"{shards.plan[1]} shards of {shards.plan[0]}"


def _unlike(name: str, a: Shards | None, b: Shards | None) -> str:
    unit, count, _ = next((s.plan for s in (a, b) if s is not None), ("user_id", 64, ""))
    cure = f'Sharded(..., unit="{unit}", shards={count}) on both sides'
    have = f"a has {plan_text(a)}, b {plan_text(b)}"
    if a is None and b is None:
        have = "neither side has shards of units"
    elif a is not None and b is not None and a.plan[:2] == b.plan[:2]:
        return (
            f"{name}: {unit} holds {a.plan[2]} keys in a and {b.plan[2]} keys in b, so that units cannot be matched; "
            f"convert the keys of one side and count again"
        )
    return (
        f"{name}: {have}, so that what they share cannot be told from what differs. "
        f"Count with {cure}; or, if no unit is in both, say independent=True"
    )
