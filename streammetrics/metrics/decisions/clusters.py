"""Found clusters beside true classes, where each cluster stands for the class that it fits best."""

from __future__ import annotations

from ...numerics.exact import Limits
from ...numerics.linear_assignment import heaviest
from ...reading.about import About
from ...statistics.found_classes import Contingency
from .pairs import Labeling

__all__ = ["ClusterAccuracy"]


class ClusterAccuracy(Labeling, tag="cluster_accuracy"):
    """Cluster accuracy: the share of rows in the right cluster, where each cluster stands for a class of its own.

    Formula: the largest sum of n_jk / n over assignments of clusters k to classes j, no two of them to the same.

    Parameters
    ----------
    max_labels, on_invalid
        As for RandScore.

    Notes
    -----
    Definition as torchmetrics' `ClusterAccuracy`, and unsupervised clustering accuracy (ACC) elsewhere; there may be more
    clusters than classes, or fewer: what is left over is wrong. The best assignment is found exactly, in integers, and
    divided once. Some 100 bytes a pair of classes that occurs; 10 ns a row; the assignment of 1000 clusters takes under a
    second where they fit their classes, some seconds where weights have many digits or no cluster fits, and at worst the
    cube of their number. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ClusterAccuracy().update([0, 0, 1, 1], [7, 7, 9, 7]).compute()
    0.75
    """

    about = About(formula="most rows of pairs of a class and a cluster, each in one pair / rows")

    def of(self, found: Contingency) -> Limits | None:
        sides = (found.row, found.column) if len(found.true) <= len(found.predicted) else (found.column, found.row)
        best = Limits.exactly(heaviest(*sides, found.both), found.total)
        return best and best.widened(4 * found.slip, 0, 1)
