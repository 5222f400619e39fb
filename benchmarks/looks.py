"""How often evidence that may be looked at all day is wrong: a part of `python -m benchmarks.coverage`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import scipy.special
from numpy.typing import NDArray

from benchmarks.report import table, verdict
from streammetrics.inference.estimates import ScaledEstimate, interval, p_value
from streammetrics.inference.multiple import benjamini_hochberg, e_benjamini_hochberg
from streammetrics.inference.sample_ratio import ALARM, PRIORS, sample_ratio_mismatch
from streammetrics.inference.sequential import Look, always_valid, e_value

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHARDS = 64
LEVELS = 40  # of samples of users
SAMPLE = 4096  # how many these keep


def shard_weights(rng: np.random.Generator, effective: float) -> Floats:
    """Weights of shards that tell as much as so many even ones."""
    if effective >= SHARDS:
        return np.full(SHARDS, 1.0 / SHARDS)
    even, heavy = np.full(SHARDS, 1.0), np.exp(rng.normal(0.0, 2.0, SHARDS))
    low, high = 0.0, 1.0
    w: Floats = even
    for _ in range(60):
        part = 0.5 * (low + high)
        w = even * (1.0 - part) / SHARDS + part * heavy / heavy.sum()
        low, high = (part, high) if 1.0 / (w * w).sum() > effective else (low, part)
    return w


class Drifting:
    """The estimate of one metric at every look, as the jackknife sees it: 64 shards of given weights, users coming.

    The sum of shard k after n users is a Brownian motion with the variance w_k n; the estimate is their sum over n. Its
    error is that of the jackknife of a mean, with K_eff - 1 degrees of freedom.
    """

    def __init__(self, weights: Floats, metrics: int, looks: int, effect: Floats, rng: np.random.Generator) -> None:
        self.weights, self.effect, self.rng, self.looks = weights, effect, rng, looks
        self.sums = np.zeros((metrics, weights.size))

    def __iter__(self) -> Iterator[ScaledEstimate]:
        part = 1.0 / self.looks
        df = np.full(len(self.sums), 1.0 / (self.weights * self.weights).sum() - 1.0)
        for look in range(1, self.looks + 1):
            spread = np.sqrt(self.weights * part)
            self.sums += self.rng.normal(size=self.sums.shape) * spread
            self.sums += self.effect[:, None] * self.weights * part
            n = look * part
            value = self.sums.sum(1) / n
            rest = (self.sums - self.weights * n * value[:, None]) / (n * (1.0 - self.weights))
            centred = rest - rest.mean(1, keepdims=True)
            error = np.sqrt((SHARDS - 1.0) / SHARDS * (centred * centred).sum(1))
            yield ScaledEstimate(value, value, error, df)


def looks(runs: int, count: int, effective: float, seed: int = 2) -> tuple[float, float]:
    """Return in which part of runs the sequential interval, and that of one look, ever leave the truth out."""
    rng = np.random.default_rng([seed, int(effective)])
    weights = shard_weights(rng, effective)
    sequential, fixed = np.zeros(runs, bool), np.zeros(runs, bool)
    for at, found in enumerate(Drifting(weights, runs, count, np.zeros(runs), rng), 1):
        one = ScaledEstimate(0.0, 0.0, 1.0, float(found.df[0]))  # limits in errors are the same for all runs
        away = np.abs(found.point) / found.standard_error
        sequential |= away > always_valid(one, Look(at, count)).high
        fixed |= away > interval(one).high
    return float(sequential.mean()), float(fixed.mean())


def tables(runs: int, count: int, effective: float, true: int, metrics: int = 200, seed: int = 3) -> Floats:
    """Return how e-BH, and BH of plain p-values, fare at the first look at which they reject anything.

    For each the false discovery rate, and which part of the runs reject.
    """
    rates = np.full((runs, 2), np.nan)
    for run in range(runs):
        rng = np.random.default_rng([seed, run, int(effective), true])
        effect = np.where(np.arange(metrics) < true, 6.0 * rng.choice([-1.0, 1.0], metrics), 0.0)
        for at, estimates in enumerate(Drifting(shard_weights(rng, effective), metrics, count, effect, rng), 1):
            for rule, hit in enumerate(rejected(estimates, Look(at, count))):
                if hit.any() and math.isnan(rates[run, rule]):
                    rates[run, rule] = hit[true:].sum() / hit.sum()
            if not np.isnan(rates[run]).any():
                break
    return np.array([np.nan_to_num(rates).mean(0), (~np.isnan(rates)).mean(0)])


def rejected(found: ScaledEstimate, look: Look) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """What e-BH and BH reject; what is not beyond its own limit never is, so its e or p is as good as 1."""
    one = ScaledEstimate(0.0, 0.0, 1.0, float(found.df[0]))
    away = np.abs(found.point) / found.standard_error
    e, p = np.ones(away.size), np.ones(away.size)
    for out, of, limit in ((e, lambda m: e_value(m, look), always_valid(one, look)), (p, p_value, interval(one))):
        far = away >= limit.high
        out[far] = of(ScaledEstimate(*(field[far] for field in found[:4])))
    return e_benjamini_hochberg(e) <= 0.05, benjamini_hochberg(p) <= 0.05


def ratio(runs: int, count: int, share: float, per_look: int, limit: int | None = None, seed: int = 4) -> list[float]:
    """Return for every run the look at which the mismatch alarms, inf if it never does.

    Users are counted; or those that samples keep of them, of so many at most an arm.
    """
    found = []
    for run in range(runs):
        rng = np.random.default_rng([seed, run, int(1000 * share), limit or 0])
        if limit is None:
            first = np.cumsum(rng.binomial(per_look, share, count))
            users = np.stack([first, per_look * np.arange(1, count + 1) - first], axis=1)
        else:
            users = sampled(rng, count, share, per_look, limit)
        at = (i for i, (a, b) in enumerate(users.tolist(), 1) if sample_ratio_mismatch({"a": a, "b": b}).alarm)
        found.append(float(next(at, math.inf)))
    return found


def sampled(rng: np.random.Generator, count: int, share: float, per_look: int, limit: int) -> Ints:
    """The users of two arms that samples keep at every look, (looks, arms), both at the level of the one that has more."""
    n = count * per_look
    arm, zeros = (rng.random(n) >= share).astype(np.int64), np.minimum(rng.geometric(0.5, n) - 1, LEVELS - 1)
    cells = (np.arange(n) // per_look * 2 + arm) * LEVELS + zeros
    fresh = np.bincount(cells, minlength=count * 2 * LEVELS).reshape(count, 2, LEVELS)
    kept = np.cumsum(fresh[..., ::-1], axis=-1)[..., ::-1].cumsum(axis=0)  # with so many zeros or more, so far
    level = (kept > limit).sum(axis=-1).max(axis=-1)
    return np.asarray(kept[np.arange(count), :, level])


def show_looks(runs: int) -> None:
    rows = []
    for effective in (64, 16):
        ever, once = looks(runs, 500, effective)
        rows.append(
            [
                f"500 looks, K_eff {effective}: sequential",
                f"{100 * ever:.1f}",
                verdict(f"sequential {effective}", ever <= 0.05),
            ]
        )
        rows.append(["  of one look", f"{100 * once:.1f}", verdict(f"one look {effective}", once >= 0.2)])
    table(f"ever missed, {runs:,} runs", ["interval", "%", ""], rows)


def show_tables(runs: int) -> None:
    rows = []
    for effective in (64, 16):
        for true in (20, 0):
            rate, part = tables(runs, 30, effective, true)
            good = verdict(f"e-BH, K_eff {effective}, {true} true", rate[0] <= 0.05)
            what = f"K_eff {effective}, {true} of 200 metrics moved"
            rows.append([f"{what}: e-BH", f"{100 * rate[0]:.1f}", f"{100 * part[0]:.0f}", good])
            rows.append(["  BH of plain p-values", f"{100 * rate[1]:.1f}", f"{100 * part[1]:.0f}", ""])
    title = f"false discoveries at the first of 30 looks that rejects, {runs:,} runs"
    table(title, ["rule", "%", "rejects in %", ""], rows)


def share_of_alarms(priors: tuple[float, ...], share: float, per_look: int, count: int, runs: int = 10_000) -> float:
    """Return the share of runs in which the average e-value of two equal arms ever reaches 100."""
    alarms, batch, beta = 0, 500, scipy.special.betaln
    rng, users = np.random.default_rng(4), per_look * np.arange(1, count + 1)
    for _ in range(0, runs, batch):
        first = rng.binomial(per_look, share, (batch, count)).cumsum(axis=1)
        logs = [beta(k / 2 + first, k / 2 + users - first) - beta(k / 2, k / 2) + users * math.log(2) for k in priors]
        evidence = scipy.special.logsumexp(logs, axis=0) - math.log(len(priors))
        alarms += int(np.count_nonzero((evidence >= math.log(ALARM)).any(axis=1)))
    return alarms / (batch * math.ceil(runs / batch))


def show_ratio(runs: int) -> None:
    false, rough = (float(np.mean(np.isfinite(ratio(runs, 500, 0.5, 200, limit)))) for limit in (None, SAMPLE))
    found = ratio(runs, 500, 0.51, 200)
    median, most = (math.ceil(v * 200 / 2000) for v in np.quantile(found, (0.5, 0.9)))
    rows = [
        ["false alarms ever, 500 looks, %", f"{100 * false:.1f}", verdict("false alarms", false <= 0.02)],
        [f"  from samples of {SAMPLE:,} users an arm", f"{100 * rough:.1f}", verdict("sampled alarms", rough <= 0.02)],
        ["51/49 found, 2,000 users a day: days, median", f"{median}", ""],
        ["  in nine runs of ten", f"{most}", ""],
    ]
    table(f"sample ratio, {runs:,} runs", ["", "", ""], rows)
    cases = {"400 looks at nothing, 10 users each": (0.5, 10, 400), "  2,500 users each": (0.5, 2500, 400)}
    cases |= {"57/43 of 1,000 users, one look": (0.57, 1000, 1), "50.2/49.8 of 1 M users, one look": (0.502, 10**6, 1)}
    holds = [lambda now, _: now <= 0.01] * 2 + [lambda now, _: now >= 0.7, lambda now, one: now >= one - 0.1]
    rows = []
    for (name, case), is_good in zip(cases.items(), holds, strict=True):
        alone, average = share_of_alarms(PRIORS[-1:], *case), share_of_alarms(PRIORS, *case)
        good = verdict(name.strip(), is_good(average, alone))
        rows.append([name, f"{100 * alone:.2f}", f"{100 * average:.2f}", good])
    table("sample ratio, alarms in 10,000 runs", ["", "prior 10,000, %", "all priors, %", ""], rows)
