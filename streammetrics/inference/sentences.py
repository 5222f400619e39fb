"""Describe a comparison in one sentence: the better side, the difference, and other metrics that changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..reading.about import best_of
from .comparison import Comparison, Comparisons
from .interpretation import BOUND
from .number_format import choose_format, format_interval
from .verdict import POWER_QUANTILE

__all__ = ["NamedComparison", "choose_primary", "describe_comparison", "name_sides"]

# The largest number of metrics that a sentence names.
MAX_NAMES = 6


def name_sides(text: str, a: str, b: str) -> str:
    """Replace "the first side" and "the second side" in a sentence or reason with the names of the sides."""
    return text.replace("the first side", a).replace("the second side", b)


class NamedComparison(NamedTuple):
    """The comparisons of a treatment with the control, with the names of both sides.

    Parameters
    ----------
    treatment, control : str
        Names of the sides `a` and `b` of the comparisons.
    comparisons : Comparisons
        The comparison of every metric, over all rows or by slice.
    primary_name : str or None
        The metric that decides; by default the first one that defines which values are better or, if none does, the
        first metric.
    """

    treatment: str
    control: str
    comparisons: Comparisons
    primary_name: str | None = None

    @property
    def primary(self) -> Comparison:
        """The comparison of the metric that decides."""
        return choose_primary(list(self.comparisons.values()), self.primary_name)

    @property
    def sentence(self) -> str:
        """One sentence that says which side is better and by how much."""
        return describe_comparison(self.primary, self.comparisons.values(), a=self.treatment, b=self.control)


def choose_primary(comparisons: Sequence[Comparison], name: str | None = None) -> Comparison:
    """Return the comparison that decides: the comparison of the metric `name`.

    Without a name, it is the comparison of the first metric that defines which values are better. If no metric does,
    it is the first comparison.
    """
    if name is not None:
        return next(one for one in comparisons if one.name == name)
    return next((one for one in comparisons if best_of(one.metric) is not None), comparisons[0])


def describe_comparison(primary: Comparison, others: Iterable[Comparison] = (), *, a: str = "a", b: str = "b") -> str:
    """Return one sentence that says which side is better and by how much.

    Parameters
    ----------
    primary : Comparison
        The comparison of the deciding metric.
    others : iterable of Comparison
        Comparisons of other metrics. The sentence only lists which of these metrics are better and which are worse.
    a, b : str
        Names of the sides.

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> rng = np.random.default_rng(1)
    >>> user, click = rng.integers(0, 2000, 20_000), rng.random(20_000) < 0.1
    >>> def scored(noise):
    ...     p = 0.1 + 0.05 * (click - 0.1) + noise * rng.random(20_000)
    ...     return sm.Sharded(sm.AUC(), unit="user").update(click, p, user=user)
    >>> describe_comparison(sm.compare(scored(0.1), scored(0.2)), a="new", b="old")
    'new is better than old: auc +0.153 (95 % +0.140 to +0.166).'
    """
    figures = f"{primary.name} {format_interval(primary.difference, False, primary.always)}"
    if primary.reason:
        text = f"No verdict on {a} and {b}: {primary.name} has no interval: {primary.reason}"
    elif primary.note:
        text = f"{a} and {b} have the same {primary.name}: {primary.note}"
    elif primary.better is not None:
        text = f"{a} is {'better' if primary.better == 'a' else 'worse'} than {b}: {figures}"
    elif primary.limited_by == BOUND:
        text = (
            f"No difference shown between {a} and {b}: {figures}; the certified bounds are wider than this interval, "
            f"so use {primary.cure}"
        )
    elif primary.difference.low > 0.0 or primary.difference.high < 0.0:
        text = f"{a} and {b} differ, but it is not clear which side is better: {figures}"
    else:
        difference = primary.difference
        detectable = (
            max(difference.high - difference.estimate, difference.estimate - difference.low)
            + POWER_QUANTILE * difference.standard_error
        )
        more = (
            f"; a difference over {choose_format(difference, False)(detectable, '')} would most likely have been detected"
            if math.isfinite(detectable)
            else ""
        )
        text = f"No difference shown between {a} and {b}: {figures}{more}"
    rest = [o for o in others if o.name != primary.name]
    for word, side in (("better", "a"), ("worse", "b")):
        names = [o.name for o in rest if o.better == side]
        also = "also " if names and primary.better == side else ""
        text += f"; {also}{word}: {_list_names(names)}" if names else ""
    return name_sides(f"{text}.", a, b)


def _list_names(names: Sequence[str]) -> str:
    """Return the names of metrics as text; shorten a long list to the first few names and the number of other names."""
    if len(names) <= MAX_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:MAX_NAMES])} and {len(names) - MAX_NAMES} more metrics"
