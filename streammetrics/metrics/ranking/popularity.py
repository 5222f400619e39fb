"""Metrics of what is recommended, relevant or not: how popular, and how far from what everybody knows."""

from __future__ import annotations

import math

from ...reading.about import About
from .gains import RankingMetric

__all__ = ["AveragePopularity", "Novelty"]


class OfPopularity(RankingMetric):
    """A metric of the popularity of the first k items of each list."""

    about = About(best=None)

    grades = "popularity"
    interval_within = (0.0, math.inf)


class AveragePopularity(OfPopularity, tag="average_popularity"):
    """Average popularity: how popular the first k items of a list are, a mean over lists.

    Formula: mean over lists of sum of popularity_i / min(k, length), i <= k.

    Parameters
    ----------
    k, ties, missing, on_invalid
        As for CumulativeGain; the column `popularity` stands for the grades.

    Notes
    -----
    Cost as CumulativeGain, 700 bytes. Any number that is not negative: interactions of the item in the training log
    (RecBole), or its share of users. Undefined without lists.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(popularity=[8, 2, 5, 5], y_score=[3, 2, 1, 9], query=[1, 1, 1, 2])
    >>> sm.AveragePopularity(2).update(rows).compute()
    5.0
    """

    about = About(formula="mean over lists of the mean popularity of the first k")

    measure = "mean_gain"


class Novelty(OfPopularity, tag="novelty"):
    """Novelty: the mean self-information of the first k items of a list, a mean over lists.

    Formula: mean over lists of sum of -log2(p_i) / min(k, length), i <= k, with p the share of users who know an item.

    Parameters
    ----------
    k, ties, missing, on_invalid
        As for CumulativeGain; the column `popularity` holds shares in (0, 1].

    Notes
    -----
    Cost as CumulativeGain, 700 bytes. In bits; recmetrics' `novelty`. A share of 0 raises: nobody could tell how new the
    item is; count each item once more than it came. Undefined without lists. Source: Zhou et al., "Solving the apparent
    diversity-accuracy dilemma of recommender systems" (2010).

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(popularity=[0.5, 0.125, 1.0], y_score=[3, 2, 9], query=[1, 1, 2])
    >>> sm.Novelty(2).update(rows).compute()
    1.0
    """

    about = About(best="high", formula="mean over lists of the mean -log2(popularity) of the first k")

    measure = "surprise"
