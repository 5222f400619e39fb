"""Mean over groups of their average precision, and precision and recall in the first rows of each session."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...collect.metric import Metric
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import GROUPS, Estimate
from ...reading.reading import OwnReading, Quotient, Reading
from ...state.cell_table import MAX_WEIGHT_ROUNDING
from ...statistics.groups.closed_sums import exact_sum
from ...statistics.groups.group_rows import GroupRows
from ...statistics.groups.score_blocks import Blocks, group_score_blocks

__all__ = ["GroupAveragePrecision", "SessionPrecisionAtK", "SessionRecallAtK"]


class OpenGroups(Metric[GroupRows, float]):
    """Base class for metrics that are computed from the rows of each group. The state keeps all of these rows.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        The scale of the scores: numbers in [0, 1] ("probability") or any finite numbers ("real" or "logit").
    missing : {"raise", "skip"}
        Whether a row without a group raises an error or is left out. `explain()` shows the number of rows left out.
    missing_values : tuple of int, str or bytes
        Keys, such as 0, that stand for a missing group in addition to null values.
    memory_limit : int
        The maximum memory for rows, in bytes (4 GiB by default). An update that would exceed it raises
        MemoryLimitError, and none of its rows are counted.
    """

    about = About(
        rank_based=True,
        best="high",
        cost="13 to 33 bytes per row; about 100 ns per row to compute",
        bound="the value of each group has an error of a few ulp; the sum over groups is exact",
    )

    scale: str = setting(default="probability", choices=("probability", "real", "logit"))
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    undefined: ClassVar[str] = "no group has positives"

    def make_state(self) -> GroupRows:
        return GroupRows(
            scale=self.scale, missing=self.missing, missing_values=self.missing_values, memory_limit=self.memory_limit
        )

    def of(self, blocks: Blocks) -> Quotient:
        """Return the numerators and denominators of the values of all groups, as two arrays.

        `blocks` contains, for each distinct score in each group, sums over the rows with that score.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define of(); override of() to return the values of all groups"
        )

    def read(self, state: GroupRows) -> Reading:
        return OverGroups(self, state)

    def estimate(self, reading: Any, method: str) -> Estimate:
        tops, divisors = reading.shares
        n, total, value = len(tops), math.fsum(divisors), reading.value
        if n < 2 or not total:
            return Estimate(value, reason="fewer than two groups have a value")
        # Use the delta method for a quotient of two sums over independent groups.
        error = math.sqrt(math.fsum(np.square(tops - value * divisors)) * n / (n - 1)) / total
        return Estimate(value, error, method=method, assumption=GROUPS, degrees=n - 1, within=(0.0, 1.0))


class OverGroups(OwnReading):
    """The value and bounds of an average over groups: (sum of group numerators) / (sum of group denominators)."""

    @cached_property
    def shares(self) -> Quotient:
        """The numerators and denominators of the groups with a positive denominator; other groups have no value."""
        each = [self.metric.of(group_score_blocks(rows)) for rows in self.state.sorted_rows()]
        tops, divisors = (np.concatenate(columns) for columns in zip(*each, strict=True))
        defined = divisors > 0
        return Quotient(tops[defined], divisors[defined])

    def _raw_value(self) -> Quotient:
        return Quotient(*map(exact_sum, self.shares))

    def _bounds(self) -> tuple[float, float]:
        if not self.state.weight_rounding or math.isnan(self.value):
            return self.value, self.value
        slack = 8 * float(MAX_WEIGHT_ROUNDING)
        return max(0.0, self.value - slack), min(1.0, self.value + slack)

    def _reason(self) -> str | None:
        if not self.state.facts()["rows"]:
            return "no rows"
        undefined: str = self.metric.undefined
        return None if len(self.shares.denominator) else undefined

    def _details(self) -> dict[str, Any]:
        return {"used": len(self.shares.denominator), "memory": self.state.nbytes}


class GroupAveragePrecision(OpenGroups, tag="group_average_precision"):
    """Group average precision: the average precision of each group (such as a user), averaged over groups with positives.

    Formula: sum_g(c_g * AP_g) / sum_g(c_g), where AP_g = sum_s((R_s - R_s') * P_s) over the distinct scores s of the
    group, descending. R_s and P_s are the recall and precision at threshold s, and s' is the score before s.

    Parameters
    ----------
    group_weight : {"uniform", "impressions", "positives"}
        The weight c_g of a group: 1 ("uniform"), its number of rows ("impressions") or its number of positives
        ("positives").

    Notes
    -----
    The value of a group matches scikit-learn's `average_precision_score`, where equal scores share one threshold.
    Groups without positives are left out; `explain()` counts the groups used. For NDCG and MAP per group, use the ranking
    metrics with the group as the query. The state is the same as for `GroupAUC` and takes 13 to 33 bytes per row. The
    value of each group is accurate to a few ulp, and the sum over groups is exact. `interval()` treats groups as
    independent. The value is undefined if no group has positives.

    Examples
    --------
    >>> import streammetrics as sm
    >>> users = ["a", "a", "a", "b"]
    >>> sm.GroupAveragePrecision().update([1, 0, 1, 1], [0.9, 0.5, 0.2, 0.3], group=users).compute()
    0.9166666666666666
    """

    about = About(formula="(sum over groups g of c_g AP_g) / (sum over groups of c_g), c_g the weight of the group")

    group_weight: str = setting(default="uniform", choices=("uniform", "impressions", "positives"))

    @property
    def name(self) -> str:
        return "group_average_precision" + ("" if self.group_weight == "uniform" else f"_{self.group_weight}")

    def of(self, blocks: Blocks) -> Quotient:
        some, above = blocks.positive > 0, np.where(blocks.through > 0, blocks.through, 1.0)
        # All rows of a group with the same score contribute one term: their number of positives times the precision at
        # that score. The sum of these terms, divided by the number of positives in the group, is its average precision.
        terms = np.where(some, blocks.positive * (blocks.positive_through / above), 0.0)
        positives = np.where(blocks.positives > 0, blocks.positives, 1.0)
        value = np.minimum(blocks.sums(terms) / positives, 1.0)
        counts = {
            "uniform": np.ones(len(value)),
            "impressions": blocks.weights,
            "positives": blocks.positives,
        }[self.group_weight]
        counts = np.where(blocks.positives > 0, counts, 0.0)
        return Quotient(counts * value, counts)


class SessionPrecisionAtK(OpenGroups, tag="session_precision_at_k"):
    """Session precision at k: the share of positives among the k highest-scoring rows of each session, over all sessions.

    Formula: (sum over sessions of positives among the first k) / (sum over sessions of rows among the first k).

    Parameters
    ----------
    k : int
        The number of rows shown in a session. A session may have fewer rows.

    Notes
    -----
    If rows with equal scores lie on both sides of the cut-off k, each of them counts with the same fraction, so that k
    rows count in total. A row of weight 2 counts as two rows with the same score. The definition matches torchrec's
    `precision_session`, with three exceptions: torchrec breaks ties by the order of rows, ignores weights in the ranks,
    and does not join the rows of a session from several batches. For the mean over queries rather than the pooled
    share, use `PrecisionAtK`. State and cost are the same as for `GroupAveragePrecision`. `interval()` treats sessions
    as independent. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sessions = [1, 1, 1, 2]
    >>> sm.SessionPrecisionAtK(2).update([1, 0, 1, 0], [0.9, 0.5, 0.2, 0.3], group=sessions).compute()
    0.3333333333333333
    """

    about = About(
        extensive=True,
        formula="(positives among the first k rows of each session) / (these rows), summed over sessions",
    )

    k: int = setting(default=10, low=1, high=1 << 40, kw_only=False)

    undefined = "the weights are all zero"

    @property
    def name(self) -> str:
        return f"session_precision@{self.k}"

    def of(self, blocks: Blocks) -> Quotient:
        return first_of(blocks, self.k)


class SessionRecallAtK(SessionPrecisionAtK, tag="session_recall_at_k"):
    """Session recall at k: the share of all positives that are among the k rows with the highest scores of their session.

    Formula: (sum over sessions of positives among the first k) / (sum over sessions of positives).

    Notes
    -----
    Ties and weights are handled as in `SessionPrecisionAtK`, and the state and cost are the same. The definition matches
    torchrec's `recall_session`. The value is undefined without positives.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sessions = [1, 1, 1, 2]
    >>> sm.SessionRecallAtK(2).update([1, 0, 1, 0], [0.9, 0.5, 0.2, 0.3], group=sessions).compute()
    0.5
    """

    about = About(formula="(positives among the first k rows of each session) / (all positives), summed over sessions")

    undefined = OpenGroups.undefined

    @property
    def name(self) -> str:
        return f"session_recall@{self.k}"

    def of(self, blocks: Blocks) -> Quotient:
        return Quotient(first_of(blocks, self.k).numerator, blocks.positives)


def first_of(blocks: Blocks, k: int) -> Quotient:
    """Return two arrays: the weights of the positives and of all rows among the first k rows of each group."""
    # If only some of the rows with equal scores are among the first k, their positives count in proportion.
    taken = np.clip(k - (blocks.through - blocks.weight), 0.0, blocks.weight)
    share = blocks.positive / np.where(blocks.weight > 0, blocks.weight, 1.0)
    return Quotient(blocks.sums(taken * share), np.minimum(blocks.weights, float(k)))
