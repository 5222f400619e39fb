"""Plan how a pass over a log splits the rows by arm, slice and window, and counts the users of each arm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.collection import MetricCollection
from streammetrics.collect.metric_like import empty_copy
from streammetrics.compose.sliced import Sliced

__all__ = ["USERS", "SlicePlan", "WindowOptions", "slice_name"]

USERS = "users"
"""The name under which the results of a pass contain the distinct users by arm."""


class WindowOptions(NamedTuple):
    """Windows of event time: their width, such as "1h", and the time column. `Windowed` has the same arguments."""

    width: str | int
    time: str


def slice_name(by: Iterable[str]) -> str:
    """Return the name of a result that is sliced by the columns `by`, such as "by country,device"."""
    return f"by {','.join(by)}"


@dataclass(frozen=True)
class SlicePlan:
    """A plan for splitting the rows of a log in a pass: by arm, then by slice, then by window.

    Parameters
    ----------
    slice_columns : list of tuple of str
        The combinations of slicing columns, such as [("country",), ("country", "device")].
    arm : str or None
        The column that contains the arm of each row; None if there are no arms.
    window : WindowOptions or None
        The windows of event time; None if there are no windows.
    limit : int or None
        How many slices to keep for each combination of columns; None for all.
    users : Sliced or None
        An empty metric in which the pass counts the users of each arm; None to count no users.
    """

    slice_columns: list[tuple[str, ...]]
    arm: str | None
    window: WindowOptions | None
    limit: int | None
    users: Sliced | None

    @property
    def column_sets(self) -> list[tuple[str, ...]]:
        """The slicing columns of every sliced result.

        If there are arms, the first result is sliced by arm alone, and each other result by arm and slicing columns.
        """
        if self.arm is None:
            return self.slice_columns
        return [(self.arm,), *((self.arm, *names) for names in self.slice_columns)]

    def build_metrics(self, metrics: Any, fixed_keys: Mapping[Any, Sequence[Any]]) -> Any:
        """Build the metrics to update in a pass: sliced by each combination of columns, or unsliced if there is none.

        `fixed_keys` contains the slices to keep, for each combination whose slices were chosen before the pass.
        """
        # The metrics over all rows are the exact sum of the metrics per slice, so they are not updated separately if
        # there are slices. Slicing by all columns at once and merging at the end would not be faster, because there
        # would be more slices and thus more CPU cache misses.
        if not self.column_sets:
            return empty_copy(metrics)
        limits: dict[Any, Any] = {names: {"limit": self.limit} for names in self.slice_columns}
        limits |= {names: {"limit": 0, "values": keys} for names, keys in fixed_keys.items()}
        sliced: list[Sliced] = [Sliced(metrics, by=names, **limits[names]) for names in self.slice_columns]
        if self.arm is not None:
            sliced = [Sliced(one, by=self.arm) for one in (metrics, *sliced)]
        parts = dict(zip(map(slice_name, self.column_sets), sliced, strict=True))
        if self.users is not None:
            parts[USERS] = self.users
        return MetricCollection(parts, on_invalid=definition_of(metrics).on_invalid)

    def read_fixed_keys(self, total: Any) -> dict[Any, Sequence[Any]]:
        """Return the slices to keep when an interrupted pass is resumed, for each combination of slicing columns.

        The slices are read from `total`, the metrics in the checkpoint of the pass. A combination is left out if the
        pass did not start with a fixed selection of slices.
        """
        keys_by_columns: dict[Any, Sequence[Any]] = {}
        first = len(self.column_sets) - len(self.slice_columns)
        for names, full in zip(self.slice_columns, self.column_sets[first:], strict=True):
            if isinstance(total, MetricCollection) and slice_name(full) in total:
                definition = definition_of(total[slice_name(full)])
                axis = (definition if self.arm is None else definition.inner).axis
                keys_by_columns |= {names: axis.pinned} if axis.limit == 0 else {}
        return keys_by_columns
