"""GroupAUC (GAUC): the AUC within each user or group, averaged over groups."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import Metric
from ...count.drafts import load_engine
from ...numerics.exact import to_float
from ...numerics.settings import check_integer, is_partition, setting
from ...reading.about import About
from ...reading.interval import GROUPS, Estimate
from ...reading.reading import NAN, OwnReading, Reading, widen_for_rounding
from ...statistics.groups.closed_sums import GROUP_WEIGHTS, SealedGroups
from ...statistics.groups.group_rows import GroupRows
from ...statistics.groups.partitions import partition_of
from ...statistics.groups.sorted_groups import SortedGroups

__all__ = ["GroupAUC", "group_partition"]

Floats = NDArray[np.float64]
State = GroupRows | SealedGroups | SortedGroups


def _read_closed_groups(metric: GroupAUC, state: State) -> Reading:
    """Return one `Reading` with arrays of the values and bounds of all cells (such as slices)."""
    # Closing a group means replacing its rows with sums. Closing the groups of all cells in one call is faster than
    # closing them cell by cell.
    each = [metric.read(cell) for cell in state.close_groups().iterate_cells()]
    values = np.array([one.value for one in each])
    return Reading(state, values, bounds=lambda: _columns(one.bounds for one in each))


class GroupAUC(Metric[State, float], tag="group_auc"):
    """Group AUC, or GAUC: the AUC within each group (such as a user), averaged over groups.

    Formula: sum_g(w_g * AUC_g) / sum_g(w_g) over groups g with both classes.

    Parameters
    ----------
    group_weight : {"impressions", "uniform", "positives", "pairs"}
        The weight w_g of a group. "impressions": its number of rows (as in DIN, FuxiCTR's gAUC and Paddle's wuAUC).
        "uniform": 1 (the default of EasyRec and FuxiCTR's avgAUC). "positives": its number of positives (as in
        RecBole). "pairs": its number of pairs of a positive and a negative.
    one_class : {"skip", 0.5}
        What to do with groups whose rows all have the same label: leave them out ("skip"; `explain()` counts them), or
        give them an AUC of 0.5.
    scale : {"probability", "real", "logit"}
        The scale of the scores: numbers in [0, 1] ("probability") or any finite numbers.
    missing : {"raise", "skip"}
        Whether a row without a group raises an error or is left out. `explain()` shows the number of rows left out.
    missing_values : tuple of int, str or bytes
        Keys, such as 0, that stand for a missing group in addition to null values.
    grouped : "sorted", optional
        "sorted" declares that groups are integers and that rows are in ascending order of group. A group is then closed
        (reduced to sums) when the next one begins, so memory is constant. Metrics of different parts of a log can be
        merged if their group ranges do not overlap. Only the group at the boundary between two parts may be in both;
        the merge joins its rows.
    partition : (i, n), optional
        Use this if each worker counts one of n partitions of the groups: the metric accepts only groups of partition i
        (see `group_partition`), and a row of another partition raises an error. `seal()` then reduces the state to a
        constant size.
    sample : bool
        Whether to keep only a sample of the groups: those with the smallest hashes, with at most `sample_rows` rows in
        total. The value is then an estimate with a standard error.
    sample_rows : int, optional
        The size of the sample. By default, it is the number of rows that fit into `memory_limit` at 33 bytes per row,
        the most that a row can take. Samples of different sizes cannot be merged.
    sealed : int, optional
        The number of partitions of a metric whose groups were closed (reduced to sums). `seal()` sets it.
    memory_limit : int
        The maximum memory for rows, in bytes (4 GiB by default). An update that would exceed it raises MemoryLimitError
        unless `spill_dir` is set.
    spill_dir : str, optional
        A folder for files that store the rows beyond the memory limit. The files are removed when the metric is
        deleted, or at the end of a `with` block.

    Notes
    -----
    The value is exact, however rows are distributed over workers: a group that is split over workers is reassembled when
    their states are merged. Sums over groups are exact sums of float64 terms, rounded once. Groups are identified by
    all 64 bits of an integer, or by a 128-bit hash of any other key; `explain()` gives the probability that two groups
    have the same hash.

    With `sample_weight`, the weight of a group is the sum of the weights of its rows. The weight of a pair is the
    product of the weights of its two rows. Weights with bits below 2**-60 are rounded; the bounds allow for that.
    `interval()` treats groups as independent.

    A row takes between 13 bytes of memory (int64 groups, float32 scores) and 33 bytes. Processing it takes about 20 ns,
    mostly in `compute()`. Source: Zhu et al. (2017), Zhou et al. (2018).

    Examples
    --------
    >>> import streammetrics as sm
    >>> users = ["a", "a", "a", "b", "b", "c"]
    >>> gauc = sm.GroupAUC().update([1, 0, 0, 0, 1, 1], [0.5, 0.25, 0.75, 0.25, 0.5, 0.9], group=users)
    >>> gauc.compute()
    0.7
    >>> sm.GroupAUC(group_weight="uniform").of(gauc.state), gauc.explain()["one_class"]
    (0.75, 1)
    """

    about = About(
        read_cells=_read_closed_groups,
        rank_based=True,
        best="high",
        formula="(sum over groups g of w_g AUC_g) / (sum over groups of w_g), w_g the weight of the group",
        cost="13 to 33 bytes per row, on disk with spill_dir=; about 20 ns per row",
    )

    group_weight: str = setting(default="impressions", choices=GROUP_WEIGHTS)
    one_class: Any = setting(default="skip", choices=("skip", 0.5))
    scale: str = setting(default="probability", choices=("probability", "real", "logit"))
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)
    grouped: str | None = setting(default=None, choices=(None, "sorted"))
    partition: tuple[int, ...] | None = setting(default=None)
    sample: bool = setting(default=False)
    sample_rows: int | None = setting(default=None, low=1)
    sealed: int | None = setting(default=None, low=1)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)
    spill_dir: str | None = setting(default=None, operational=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample_rows is not None and not self.sample:
            raise ValueError(
                "GroupAUC: sample_rows= is the size of the sample that sample=True keeps; pass sample=True as well to get "
                "an estimate, or leave sample_rows= out"
            )
        if self.sample and self.sample_rows is None:
            object.__setattr__(self, "sample_rows", max(1, self.memory_limit // 33))
        if self.partition is not None and not is_partition(self.partition):
            raise ValueError(f"GroupAUC: expected partition=(i, n) with 0 <= i < n, found {self.partition!r}")
        if self.grouped and (self.partition or self.spill_dir or self.sample):
            raise ValueError(
                'GroupAUC: grouped="sorted" cannot be combined with partition=, spill_dir= or sample=; leave these '
                "settings out, because a sorted log needs little memory"
            )
        if self.sample and (self.partition or self.spill_dir):
            raise ValueError(
                "GroupAUC: sample=True cannot be combined with partition= or spill_dir=; choose sample=True for an "
                "estimate, or one of the others for the exact value"
            )

    @property
    def name(self) -> str:
        return "group_auc" if self.group_weight == "impressions" else f"group_auc_{self.group_weight}"

    def make_state(self) -> State:
        if self.sealed is not None:
            return SealedGroups(partitions=self.sealed)
        if self.grouped == "sorted":
            return SortedGroups(scale=self.scale, missing=self.missing, missing_values=self.missing_values)
        return GroupRows(
            scale=self.scale,
            missing=self.missing,
            missing_values=self.missing_values,
            partition=self.partition or (),
            sample_rows=self.sample_rows or 0,
            memory_limit=self.memory_limit,
            spill_dir=self.spill_dir,
        )

    def of(self, state: State) -> float:
        closed = state.close_groups()
        by, lone = self.group_weight, Fraction(0)
        if self.one_class != "skip":
            lone = closed.total("lone", by)
        return to_float(closed.total("sums", by) + lone / 2, closed.total("weights", by) + lone)

    def reason(self, state: State) -> str | None:
        rows = state.facts()["rows"]
        return None if state.close_groups().groups[0] else "no group has both classes" if rows else "no rows"

    def read(self, state: State) -> Reading:
        return OfClosedGroups(self, state)

    def estimate(self, reading: Reading, method: str) -> Estimate:
        error, groups = self._error(reading)
        few = None if error == error else "fewer than two groups have both classes"
        return Estimate(
            reading.value, error, method=method, assumption=GROUPS, degrees=groups - 1, within=(0.0, 1.0), reason=few
        )

    def _error(self, reading: Reading) -> tuple[float, int]:
        """Return the standard error, computed from sums of squares over groups, and the number of groups.

        With `one_class=0.5`, groups whose rows all have the same label are included with the value 1/2.
        """
        state: Any = reading.state
        closed, by = state.close_groups(), self.group_weight
        n, total = int(closed.groups[0]), closed.total("weights", by)
        xx, wx, ww = (closed.moment(name, by) for name in ("squares", "products", "weights"))
        if self.one_class != "skip":
            lone = closed.moment("lone", by)
            n, total = n + int(closed.groups[1]), total + closed.total("lone", by)
            xx, wx, ww = xx + lone / 4, wx + lone / 2, ww + lone
        if n < 2 or not total:
            return NAN, n
        # Use the delta method for a quotient of two sums over independent groups. The sum of (w * x - v * w)**2, for
        # groups with weight w and AUC x, is expanded into sums that do not depend on the value v.
        v = Fraction(reading.value)
        spread = max(Fraction(0), xx - 2 * v * wx + v * v * ww) * n / (n - 1)
        return math.sqrt(to_float(spread, total * total)), n

    def sealed_metric(self, parts: int | None = None) -> GroupAUC:
        """Return a metric for groups whose rows were replaced with sums, with the same `group_weight` and `one_class`.

        `parts` is the number of partitions of the groups, by default the same as for this metric.
        """
        of = parts or self.sealed or (self.partition or (0, 1))[1]
        return GroupAUC(group_weight=self.group_weight, one_class=self.one_class, sealed=of)

    def close(self) -> None:
        """Delete the temporary files that store the rows beyond the memory limit."""
        state = self.state
        if isinstance(state, GroupRows):
            state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OfClosedGroups(OwnReading):
    """The value, bounds and details of a mean over closed groups, whose rows were replaced with sums."""

    def _bounds(self) -> tuple[float, float]:
        # Closed groups do not contain the weights of their rows, so the bounds assume the largest rounding error for every
        # weight.
        low, high = widen_for_rounding(self.value, self.state.close_groups())
        # `high` must be the first argument, because only then does `min` return NaN if `high` is NaN.
        return low, min(high, 1.0)

    def _details(self) -> dict[str, Any]:
        state, closed = self.state, self.state.close_groups()
        known: dict[str, Any] = {"groups": int(closed.groups[0]), "one_class": int(closed.groups[1])}
        if isinstance(state, SealedGroups):
            return known | {"partitions": f"{int(state.sealed.sum())} of {state.partitions}"}
        known |= state.describe_storage()
        if isinstance(state, GroupRows) and self.metric.sample:
            share = state.share
            error, _ = self.metric._error(self)
            known |= {"sampled_share": share, "standard_error": error * math.sqrt(1 - share) if share < 1 else 0.0}
        return known


def _columns(pairs: Iterable[tuple[float, float]]) -> tuple[Floats, Floats]:
    """Return the first elements of all pairs as one array, and the second elements as another."""
    low, high = np.array(list(pairs)).reshape(-1, 2).T
    return low, high


def group_partition(ids: Any, parts: int) -> Any:
    """Return the partition number of each group, from 0 to parts - 1.

    The worker with `GroupAUC(partition=(i, parts))` accepts only the groups of partition i, so send it the rows of
    those groups.

    Parameters
    ----------
    ids : array-like of shape (n,)
        The groups: integers, strings or bytes. For a key of several columns, pass a tuple of columns.
    parts : int
        The number of partitions (workers).

    Returns
    -------
    int64 array of shape (n,)

    Examples
    --------
    >>> import streammetrics as sm
    >>> bool((sm.group_partition([7, 7, 8], 4) < 4).all())
    True
    """
    # Strings are hashed by compiled code, which may not be loaded yet.
    load_engine()
    return partition_of(ids, check_integer("group_partition()", parts, 1))
