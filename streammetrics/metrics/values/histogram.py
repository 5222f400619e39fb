"""The number of rows whose value lies in each bin, for given bin edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import Metric
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import OwnReading, Reading
from ...statistics.key_counts import KeyCounts, check_edges

__all__ = ["Histogram"]


class Histogram(Metric[KeyCounts, NDArray[Any]], tag="histogram"):
    """Histogram: the total weight of the rows whose value lies in each bin, for given bin edges.

    Formula: the sum of w over edges[i] <= v < edges[i + 1]. The last bin includes its upper edge.

    Parameters
    ----------
    edges : tuple of float
        The bin edges in ascending order; n + 1 edges define n bins.
    density : bool
        Whether the weight of each bin is divided by the weight of all bins and by the width of the bin, so that the total
        area is 1.

    Notes
    -----
    The value is exact. `explain()` shows the weight of the rows below the first edge and above the last edge. The
    definition matches numpy's `histogram`; values are compared with the edges as float64. The state takes 40 bytes per
    bin that contains rows; an update takes about 40 ns per row. If there are no rows, the counts are 0, and a density
    is undefined.

    Examples
    --------
    >>> import streammetrics as sm
    >>> seconds = sm.Histogram((0, 1, 10, 60)).update([0.5, 1, 3, 60, 61])
    >>> seconds.compute(), seconds.explain()["above"]
    (array([1., 2., 1.]), 1.0)
    """

    about = About(
        no_interval_reason=(
            "the numbers of counted rows are not estimates; Mean of a 0/1 column and Quantile have intervals"
        ),
        formula="sum(w) over rows with edges[i] <= v < edges[i + 1], for each bin i",
        cost="40 bytes per bin that contains rows; about 40 ns per row",
        example={"edges": (-1.0, 0.0, 0.5, 3.0)},
        # Counts change if all rows are counted twice. A density does not, because its area is always 1.
        extensive=About.per_instance(lambda metric: not metric.density),
    )

    edges: tuple[float, ...] = setting(kw_only=False)
    density: bool = setting(default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_edges(self.edges)

    def make_state(self) -> KeyCounts:
        return KeyCounts(edges=self.edges)

    def of(self, state: KeyCounts) -> NDArray[Any]:
        bins = [state.mass_of(i) for i in range(1, len(self.edges))]
        if not self.density:
            return np.array([to_float(mass, state.unit) for mass in bins])
        # The density of a very narrow bin, or the width of a very wide bin, can overflow; suppress numpy's warning.
        with np.errstate(over="ignore"):
            return np.array([to_float(mass, sum(bins)) for mass in bins]) / np.diff(self.edges)

    def read(self, state: KeyCounts) -> Reading:
        return OfBins(self, state)

    def reason(self, state: KeyCounts) -> str | None:
        inside = state.total - state.mass_of(0) - state.mass_of(len(self.edges))
        return None if inside else "no rows between the edges"


class OfBins(OwnReading):
    """Value, bounds and details of a histogram; the details contain the weight of values outside the bins."""

    def _details(self) -> dict[str, float]:
        state: Any = self.state
        ends = {"below": state.mass_of(0), "above": state.mass_of(len(self.metric.edges))}
        return {name: to_float(mass, state.unit) for name, mass in ends.items()}
