"""How often equal arms ever get a verdict, by the way of looking: a part of `python -m benchmarks.coverage`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from benchmarks.looks import Drifting, shard_weights
from benchmarks.report import table, verdict
from streammetrics.inference.estimates import ScaledEstimate, interval
from streammetrics.inference.sequential import TUNED_USERS, always_valid
from streammetrics.inference.verdict import MetricEffect, Progress, is_not_worse, is_worse

Bools = NDArray[np.bool_]

LOOKS = 500
ALPHA = 0.05
# For each way of looking: the users at the end, and what is stated at each look.
WAYS = {
    "planned, decides at the end": (TUNED_USERS, Progress(planned=TUNED_USERS)),
    "sequential, planned": (TUNED_USERS, Progress(planned=TUNED_USERS, sequential=True)),
    "sequential, as tuned": (TUNED_USERS, Progress(sequential=True)),
    "sequential, 10 times smaller": (TUNED_USERS / 10.0, Progress(sequential=True)),
    "sequential, 10 times larger": (TUNED_USERS * 10.0, Progress(sequential=True)),
    "not stated": (TUNED_USERS, Progress()),
}
ONE_LOOK = "the words better or worse, at any look"


def has_word(found: ScaledEstimate, progress: Progress) -> Bools:
    """Return which runs have the word "better" or "worse"; nothing differs, so each is false."""
    effect = MetricEffect("m", found)
    words: Bools = is_worse(effect, progress, ALPHA) | is_not_worse(effect, progress, ALPHA)
    return words


def is_decided(found: ScaledEstimate, progress: Progress) -> Bools:
    """Return which runs have the decision "ship" or "do not"."""
    if not progress.allows_decision or progress.is_early:
        return np.zeros(np.shape(found.value), bool)
    return has_word(found, progress)


def count_decisions(runs: int, effective: float, looks: int = LOOKS, seed: int = 5) -> dict[str, float]:
    """Return the share of the runs that ever have a verdict, by the way of looking."""
    rng = np.random.default_rng([seed, int(effective)])
    ever = {name: np.zeros(runs, bool) for name in (*WAYS, ONE_LOOK)}
    none = np.full(runs, None, object)
    for at, found in enumerate(Drifting(shard_weights(rng, effective), runs, looks, np.zeros(runs), rng), 1):
        # The degrees of freedom are the same for all runs.
        one = found._replace(df=float(found.df[0]), reason=none)
        for name, (users, progress) in WAYS.items():
            ever[name] |= is_decided(one, progress._replace(users=users * at / looks))
        ever[ONE_LOOK] |= has_word(one, Progress())
    return {name: float(some.mean()) for name, some in ever.items()}


def compute_width(name: str) -> float:
    """Return the width of the last interval, in widths of the interval for one look, with 63 degrees of freedom."""
    users, progress = WAYS[name]
    one = ScaledEstimate(0.0, 0.0, 1.0, 63.0)
    look = progress._replace(users=users).look
    return 1.0 if look is None else always_valid(one, look).high / interval(one).high


def show_decisions(runs: int) -> None:
    """Print the share of equal arms with a verdict, and the width of the last interval."""
    # At the planned end, 5 % of the runs have a verdict; few runs leave room for chance.
    most = ALPHA + 2.6 * math.sqrt(ALPHA * (1.0 - ALPHA) / runs)
    rows = []
    for effective in (64, 16):
        found = count_decisions(runs, effective)
        for name in WAYS:
            good = verdict(f"{name}, K_eff {effective}", found[name] <= most)
            rows.append([f"{name}, K_eff {effective}", f"{100 * found[name]:.1f}", f"{compute_width(name):.2f}", good])
        rows.append([ONE_LOOK, f"{100 * found[ONE_LOOK]:.1f}", "1.00", ""])
    table(f"a verdict ever, {LOOKS} looks at nothing, {runs:,} runs", ["way of looking", "%", "width", ""], rows)
