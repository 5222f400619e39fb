"""Popularity and novelty of recommended items, whether or not they are relevant."""

from __future__ import annotations

import math

from ...reading.about import About
from .gains import RankingMetric

__all__ = ["AveragePopularity", "Novelty"]


class OfPopularity(RankingMetric):
    """Base class for metrics of the popularity of the first k items of each list.

    The data have a `popularity` column instead of grades.
    """

    about = About(best=None, cost="about 1.2 kB; 7 ns per document")

    grades = "popularity"
    interval_within = (0.0, math.inf)


class AveragePopularity(OfPopularity, tag="average_popularity"):
    """Average popularity: the mean popularity of the first k items of a list, averaged over lists.

    Formula: mean over lists of (sum over i <= k of popularity_i) / min(k, length of the list), where popularity_i is
    the popularity of the item at rank i.

    Notes
    -----
    Popularity is any non-negative number, such as the number of interactions with the item in the training log (as in
    RecBole), or the share of users who interacted with it. The measure can exceed 1, so the state uses a wider
    accumulator and takes about 1.2 kB. The value is undefined without lists.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(popularity=[8, 2, 5, 5], y_score=[3, 2, 1, 9], query=[1, 1, 1, 2])
    >>> sm.AveragePopularity(2).update(rows).compute()
    5.0
    """

    about = About(formula="mean over lists of the mean popularity of the first k items")

    measure = "mean_gain"


class Novelty(OfPopularity, tag="novelty"):
    """Novelty: the mean self-information of the first k items of a list in bits, averaged over lists.

    Formula: mean over lists of (sum over i <= k of -log2(p_i)) / min(k, length of the list), where p_i is the share of
    users who know the item at rank i.

    Notes
    -----
    The definition matches recmetrics' `novelty`. A share of 0 raises an error, because its self-information is
    infinite; add 1 to the count of each item to avoid this. The measure can exceed 1, so the state uses a wider
    accumulator and takes about 1.2 kB. The value is undefined without lists. Source: Zhou et al., "Solving the apparent
    diversity-accuracy dilemma of recommender systems" (2010).

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(popularity=[0.5, 0.125, 1.0], y_score=[3, 2, 9], query=[1, 1, 2])
    >>> sm.Novelty(2).update(rows).compute()
    1.0
    """

    about = About(
        best="high",
        formula="mean over lists of the mean over the first k items of -log2(share of users who know the item)",
    )

    measure = "surprise"
