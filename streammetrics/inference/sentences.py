"""What a comparison says, in one sentence: which side is better, by how much, and what speaks against it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .comparison import Comparison
from .interpretation import BOUND
from .number_format import digits, spelled
from .verdict import LIKELY

__all__ = ["sentence"]


def sentence(primary: Comparison, others: Iterable[Comparison] = (), *, a: str = "a", b: str = "b") -> str:
    """Return what a comparison says of its first side.

    Parameters
    ----------
    primary : Comparison
        Of the number that decides.
    others : iterable of Comparison
        Those of which it is only said which are better, and which worse.
    a, b : str
        What the sides are called.

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> rng = np.random.default_rng(1)
    >>> user, click = rng.integers(0, 2000, 20_000), rng.random(20_000) < 0.1
    >>> def scored(noise):
    ...     p = 0.1 + 0.05 * (click - 0.1) + noise * rng.random(20_000)
    ...     return sm.Sharded(sm.AUC(), unit="user").update(click, p, user=user)
    >>> sentence(sm.compare(scored(0.1), scored(0.2)), a="new", b="old")
    'new is better than old: auc +0.153 (95 % +0.140 to +0.166).'
    """
    figures = f"{primary.name} {spelled(primary.difference, False, primary.always)}"
    if primary.reason:
        told = f"No verdict on {a} and {b}: {primary.name}: {primary.reason}"
    elif primary.better is not None:
        told = f"{a} is {'better' if primary.better == 'a' else 'worse'} than {b}: {figures}"
    elif primary.limited_by == BOUND:
        told = f"No difference shown between {a} and {b}: {figures}, within the certified bounds: {primary.cure}"
    elif primary.difference.low > 0.0 or primary.difference.high < 0.0:
        told = f"{a} and {b} differ, and nothing shows which is better: {figures}"
    else:
        found = primary.difference
        shown = max(found.high - found.estimate, found.estimate - found.low) + LIKELY * found.standard_error
        more = (
            f"; one over {digits(found, False)(shown, '')} would most likely have shown" if math.isfinite(shown) else ""
        )
        told = f"No difference shown between {a} and {b}: {figures}{more}"
    rest = [o for o in others if o.name != primary.name]
    for word, side in (("better", "a"), ("worse", "b")):
        names = [o.name for o in rest if o.better == side]
        also = "also " if names and primary.better == side else ""
        told += f"; {also}{word}: {', '.join(names)}" if names else ""
    return f"{told}."
