"""Average precision within groups, averaged over groups; precision and recall of the first rows of sessions, pooled."""

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
from ...state.cell_table import MOST_SLIP
from ...statistics.groups.blocks import Blocks, blocks_of
from ...statistics.groups.closed import exact_sum
from ...statistics.groups.rows import GroupRows

__all__ = ["GroupAveragePrecision", "SessionPrecisionAtK", "SessionRecallAtK"]


class OpenGroups(Metric[GroupRows, float]):
    """A metric that reads the rows of every group."""

    about = About(
        rank_based=True,
        best="high",
        cost="13 to 33 bytes a row; some 100 ns a row to compute",
        bound="groups within a few ulp, summed exactly",
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
        """Return numerator and divisor of the share of each group, from the scores of its rows."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes of a group")

    def read(self, state: GroupRows) -> Reading:
        return OverGroups(self, state)

    def estimate(self, found: Any, method: str) -> Estimate:
        tops, divisors = found.shares
        n, total, value = len(tops), math.fsum(divisors), found.value
        if n < 2 or not total:
            return Estimate(value, reason="fewer than two groups have a value")
        error = math.sqrt(math.fsum(np.square(tops - value * divisors)) * n / (n - 1)) / total
        return Estimate(value, error, method=method, assumption=GROUPS, degrees=n - 1, within=(0.0, 1.0))


class OverGroups(OwnReading):
    """The reading of the rows of every group: the quotient of two sums over groups."""

    @cached_property
    def shares(self) -> Quotient:
        """Numerators and divisors of all groups that have a divisor."""
        each = [self.metric.of(blocks_of(rows)) for rows in self.state.sorted_rows()]
        tops, divisors = (np.concatenate(columns) for columns in zip(*each, strict=True))
        held = divisors > 0
        return Quotient(tops[held], divisors[held])

    def _found(self) -> Quotient:
        return Quotient(*map(exact_sum, self.shares))

    def _bounds(self) -> tuple[float, float]:
        if not self.state.slip or math.isnan(self.value):
            return self.value, self.value
        slack = 8 * float(MOST_SLIP)
        return max(0.0, self.value - slack), min(1.0, self.value + slack)

    def _reason(self) -> str | None:
        if not self.state.facts()["rows"]:
            return "no rows"
        undefined: str = self.metric.undefined
        return None if len(self.shares.denominator) else undefined

    def _details(self) -> dict[str, Any]:
        return {"used": len(self.shares.denominator), "memory": self.state.nbytes}


class GroupAveragePrecision(OpenGroups, tag="group_average_precision"):
    """Group average precision: that of the rows of every group, such as a user, averaged over groups with positives.

    Formula: sum_g c_g AP_g / sum_g c_g, with AP_g = sum_s (R_s - R_s') P_s over the scores s of the group, descending.

    Parameters
    ----------
    group_weight : {"uniform", "impressions", "positives"}
        What a group counts: one, its rows, its positives.
    scale : {"probability", "real", "logit"}
        As for AUC.
    missing, missing_values
        Whether a row without a group raises, or is left out and counted; keys that stand for none, such as 0.
    memory_limit : int
        Bytes that rows may take (4 GiB); MemoryLimitError beyond, and nothing was counted.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Ties have one threshold, as in scikit-learn's `average_precision_score`, which it is of each group; groups without
    positives are left out (`explain()` counts those used). With a group as a query, NDCG and MAP of rankings are those by
    group. The state is that of GroupAUC: 13 to 33 bytes a row. A group is within a few ulp, the sum over groups exact.
    `interval()` takes groups as independent. Undefined if no group has positives.

    Examples
    --------
    >>> import streammetrics as sm
    >>> users = ["a", "a", "a", "b"]
    >>> sm.GroupAveragePrecision().update([1, 0, 1, 1], [0.9, 0.5, 0.2, 0.3], group=users).compute()
    0.9166666666666666
    """

    about = About(formula="sum over groups of c_g AP_g / sum of c_g")

    group_weight: str = setting(default="uniform", choices=("uniform", "impressions", "positives"))

    @property
    def name(self) -> str:
        return "group_average_precision" + ("" if self.group_weight == "uniform" else f"_{self.group_weight}")

    def of(self, blocks: Blocks) -> Quotient:
        some, above = blocks.positive > 0, np.where(blocks.through > 0, blocks.through, 1.0)
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
    """Precision of the k rows of highest score of every session, pooled: of all that is shown, the share of positives.

    Formula: sum over sessions of positives among the first k / sum over sessions of rows among the first k.

    Parameters
    ----------
    k : int
        How many rows of a session are shown; it may have fewer.
    scale, missing, missing_values, memory_limit, on_invalid
        As for GroupAveragePrecision; the column of sessions is `group`.

    Notes
    -----
    Of rows that tie about place k as many as fit, each by its share; so a weight counts as so many equal rows. Definition
    as torchrec's `precision_session`, which breaks ties by the order of rows, ranks rows whatever they weigh, and sees
    only sessions within a batch. PrecisionAtK is the mean over queries of rankings, by k. State and cost as
    GroupAveragePrecision. `interval()` takes sessions as independent. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sessions = [1, 1, 1, 2]
    >>> sm.SessionPrecisionAtK(2).update([1, 0, 1, 0], [0.9, 0.5, 0.2, 0.3], group=sessions).compute()
    0.3333333333333333
    """

    about = About(extensive=True, formula="sum of positives among the first k / sum of rows among the first k")

    k: int = setting(default=10, low=1, high=1 << 40, kw_only=False)

    undefined = "the weights are all zero"

    @property
    def name(self) -> str:
        return f"session_precision@{self.k}"

    def of(self, blocks: Blocks) -> Quotient:
        return first_of(blocks, self.k)


class SessionRecallAtK(SessionPrecisionAtK, tag="session_recall_at_k"):
    """Recall of the k rows of highest score of every session, pooled: of all positives, the share that is shown.

    Formula: sum over sessions of positives among the first k / sum over sessions of positives.

    Parameters
    ----------
    k, scale, missing, missing_values, memory_limit, on_invalid
        As for SessionPrecisionAtK.

    Notes
    -----
    Ties, weights, state and cost as SessionPrecisionAtK. Definition as torchrec's `recall_session`. Undefined without
    positives.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sessions = [1, 1, 1, 2]
    >>> sm.SessionRecallAtK(2).update([1, 0, 1, 0], [0.9, 0.5, 0.2, 0.3], group=sessions).compute()
    0.5
    """

    about = About(formula="sum of positives among the first k / sum of positives")

    undefined = OpenGroups.undefined

    @property
    def name(self) -> str:
        return f"session_recall@{self.k}"

    def of(self, blocks: Blocks) -> Quotient:
        return Quotient(first_of(blocks, self.k).numerator, blocks.positives)


def first_of(blocks: Blocks, k: int) -> Quotient:
    """Return the weight of the positives, and of all rows, among the first k of each group."""
    taken = np.clip(k - (blocks.through - blocks.weight), 0.0, blocks.weight)
    share = blocks.positive / np.where(blocks.weight > 0, blocks.weight, 1.0)
    return Quotient(blocks.sums(taken * share), np.minimum(blocks.weights, float(k)))
