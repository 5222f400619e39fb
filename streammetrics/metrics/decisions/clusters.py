"""A metric that compares clusters with true classes by the best one-to-one assignment of clusters to classes."""

from __future__ import annotations

from ...numerics.exact import Limits
from ...numerics.linear_assignment import max_matching_weight
from ...reading.about import About
from ...statistics.discovered_classes import Contingency
from .pairs import Labeling

__all__ = ["ClusterAccuracy"]


class ClusterAccuracy(Labeling, tag="cluster_accuracy"):
    """Cluster accuracy: the accuracy under the best one-to-one assignment of clusters to classes.

    Formula: sum(n_jk) / n over the pairs of a cluster k and the class j assigned to it, for the assignment that
    makes this sum largest. Of the n rows, n_jk are in class j and cluster k, and each class is assigned to at most one
    cluster.

    Notes
    -----
    The definition matches torchmetrics' `ClusterAccuracy`. The metric is also called unsupervised clustering accuracy
    (ACC). The numbers of clusters and classes can differ: rows in clusters without a class count as wrong. The best
    assignment is found exactly, in integer arithmetic, and only the quotient is rounded.

    `compute()` takes less than a second for 1000 clusters if most clusters match a class, and a few seconds if weights
    have many digits or no cluster matches a class. In the worst case, its time grows with the cube of the number of
    clusters. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ClusterAccuracy().update([0, 0, 1, 1], [7, 7, 9, 7]).compute()
    0.75
    """

    about = About(formula="(rows whose cluster is assigned to their class) / (all rows), for the best assignment")

    def of(self, contingency: Contingency) -> Limits | None:
        sides = (
            (contingency.row, contingency.column)
            if len(contingency.true) <= len(contingency.predicted)
            else (contingency.column, contingency.row)
        )
        best = Limits.exactly(max_matching_weight(*sides, contingency.joint), contingency.total)
        return best and best.widen(4 * contingency.weight_rounding, 0, 1)
