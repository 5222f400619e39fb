"""Metrics within groups, averaged over groups: GAUC, and whatever asks how well a model ranks for each user."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import Metric
from ...numerics.exact import to_float
from ...numerics.settings import check_whole, is_partition, setting
from ...reading.about import About
from ...reading.interval import GROUPS, Estimate
from ...reading.reading import NAN, OwnReading, Reading, widened
from ...statistics.groups.closed import GROUP_WEIGHTS, SealedGroups
from ...statistics.groups.rows import GroupRows
from ...statistics.groups.solve import share_of
from ...statistics.groups.sorted import SortedGroups

__all__ = ["GroupAUC", "group_partition"]

Floats = NDArray[np.float64]
State = GroupRows | SealedGroups | SortedGroups


def _read_closed_groups(metric: GroupAUC, state: State) -> Reading:
    """Return the reading of all cells as arrays."""
    # It takes less time to close the groups of all cells together than those of one cell after the other.
    each = [metric.read(cell) for cell in state.close_groups().each_cell()]
    values = np.array([one.value for one in each])
    return Reading(state, values, bounds=lambda: _columns(one.bounds for one in each))


class GroupAUC(Metric[State, float], tag="group_auc"):
    """GAUC: the AUC within every group, such as a user, averaged over groups.

    Formula: sum_g w_g AUC_g / sum_g w_g over groups with both classes.

    Parameters
    ----------
    group_weight : {"impressions", "uniform", "positives", "pairs"}
        What a group counts: its rows (DIN, FuxiCTR's gAUC, Paddle's wuAUC), one (EasyRec's default, FuxiCTR's avgAUC),
        its positives (RecBole), or its pairs of a positive and a negative.
    one_class : {"skip", 0.5}
        Whether a group of one class is left out, and counted in `explain()`, or counts with an AUC of 0.5.
    scale : {"probability", "real", "logit"}
        As for AUC.
    missing, missing_values
        Whether a row without a group raises, or is left out and counted; keys that stand for none, such as 0.
    grouped : "sorted", optional
        The log ascends by group, an integer: groups are closed as they end, in constant memory. Parts with ranges of keys
        of their own merge; a group that was cut between two is put together.
    partition : (i, n), optional
        This worker holds only groups of class i of n (see `group_partition`); others raise. `seal()` then makes constant
        size of them.
    sample : bool
        Keep whole groups of smallest hash, with no more than `sample_rows` rows: an estimate, with its standard error.
    sample_rows : int, optional
        By default as many as `memory_limit` holds: a row takes at most 33 bytes. Samples of another size do not merge.
    sealed : int, optional
        Of how many partitions this holds the closed ones; made by `seal()`.
    memory_limit : int
        Bytes of rows in memory (4 GiB); MemoryLimitError beyond, unless there is a `spill_dir`.
    spill_dir : str, optional
        A folder for files of rows beyond the memory limit; they are removed with the metric (it is a context manager).
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Exact, whoever holds which rows: a group split over workers is put together when they merge. Sums over groups are exact
    sums of float64 terms, rounded once. Groups are told apart by all 64 bits of an integer, 128 bits of the hash of
    anything else; `explain()` has the chance that two are one.
    Memory: 13 bytes a row (int64 groups, float32 scores), up to 33. Cost: some 20 ns a row, most of it in `compute`.
    A group's weight under `sample_weight` is the sum of its rows' weights, and pairs weigh the product of both. Weights
    with bits below 2**-60 are rounded there: then the bound has room for that.
    `interval()` takes groups as independent. Source: Zhu et al. (2017), Zhou et al. (2018).

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
        formula="sum over groups of w_g AUC_g / sum of w_g",
        cost="13 to 33 bytes a row, on disk with spill_dir=; some 20 ns a row",
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
            raise ValueError("GroupAUC: sample_rows= is how many rows sample=True keeps, which is an estimate")
        if self.sample and self.sample_rows is None:
            object.__setattr__(self, "sample_rows", max(1, self.memory_limit // 33))
        if self.partition is not None and not is_partition(self.partition):
            raise ValueError(f"GroupAUC: partition is (i, n) with 0 <= i < n, not {self.partition!r}")
        if self.grouped and (self.partition or self.spill_dir or self.sample):
            raise ValueError('GroupAUC: grouped="sorted" needs neither partition=, spill_dir= nor sample=')
        if self.sample and (self.partition or self.spill_dir):
            raise ValueError("GroupAUC: sample=True is an estimate in memory; partition= and spill_dir= are exact")

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
        return OfClosed(self, state)

    def estimate(self, found: Reading, method: str) -> Estimate:
        error, groups = self._error(found)
        few = None if error == error else "fewer than two groups have both classes"
        return Estimate(
            found.value, error, method=method, assumption=GROUPS, degrees=groups - 1, within=(0.0, 1.0), reason=few
        )

    def _error(self, found: Reading) -> tuple[float, int]:
        """Return standard error and groups: from sums of squares over groups, of which those of one class are 1/2."""
        state: Any = found.state
        closed, by = state.close_groups(), self.group_weight
        n, total = int(closed.groups[0]), closed.total("weights", by)
        xx, wx, ww = (closed.moment(name, by) for name in ("squares", "products", "weights"))
        if self.one_class != "skip":
            lone = closed.moment("lone", by)
            n, total = n + int(closed.groups[1]), total + closed.total("lone", by)
            xx, wx, ww = xx + lone / 4, wx + lone / 2, ww + lone
        if n < 2 or not total:
            return NAN, n
        v = Fraction(found.value)
        spread = max(Fraction(0), xx - 2 * v * wx + v * v * ww) * n / (n - 1)
        return math.sqrt(to_float(spread, total * total)), n

    def sealed_metric(self, parts: int | None = None) -> GroupAUC:
        """Return the metric of closed groups, of so many partitions."""
        of = parts or self.sealed or (self.partition or (0, 1))[1]
        return GroupAUC(group_weight=self.group_weight, one_class=self.one_class, sealed=of)

    def close(self) -> None:
        """Remove files that were spilled."""
        state = self.state
        if isinstance(state, GroupRows):
            state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OfClosed(OwnReading):
    """The reading of a mean over closed groups."""

    def _bounds(self) -> tuple[float, float]:
        # Where weights were rounded, each may have been the smallest: closed groups do not say.
        low, high = widened(self.value, self.state.close_groups())
        return low, min(high, 1.0)  # NaN stays

    def _details(self) -> dict[str, Any]:
        state, closed = self.state, self.state.close_groups()
        known: dict[str, Any] = {"groups": int(closed.groups[0]), "one_class": int(closed.groups[1])}
        if isinstance(state, SealedGroups):
            return known | {"partitions": f"{int(state.sealed.sum())} of {state.partitions}"}
        known |= state.held()
        if isinstance(state, GroupRows) and self.metric.sample:
            share = state.share
            error, _ = self.metric._error(self)
            known |= {"sampled_share": share, "standard_error": error * math.sqrt(1 - share) if share < 1 else 0.0}
        return known


def _columns(pairs: Iterable[tuple[float, float]]) -> tuple[Floats, Floats]:
    """Return the first and the second numbers of pairs."""
    low, high = np.array(list(pairs)).reshape(-1, 2).T
    return low, high


def group_partition(ids: Any, parts: int) -> Any:
    """Return the class of every group, from 0 to parts - 1: which worker `GroupAUC(partition=(i, parts))` takes its rows.

    Parameters
    ----------
    ids : array-like of shape (n,)
        Integers, strings or bytes; a tuple of columns for a key of several.
    parts : int
        How many workers there are.

    Returns
    -------
    int64 array of shape (n,)

    Examples
    --------
    >>> import streammetrics as sm
    >>> bool((sm.group_partition([7, 7, 8], 4) < 4).all())
    True
    """
    return share_of(ids, check_whole("group_partition()", parts, 1))
