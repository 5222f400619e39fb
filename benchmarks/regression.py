"""Speed of regression metrics: ten million rows of float64 in batches, exact sums, all checks on, beside plain C."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import streammetrics as sm
from benchmarks import limits
from benchmarks.report import table, verdict
from benchmarks.timing import interleave

ROWS = 10_000_000
BATCH = 65_536


def main() -> None:
    """Print time a row of MAE and RMSE together, its ratio to C and the target; then of the other metrics."""
    limits.check()
    rng = np.random.default_rng(3)
    targets = rng.lognormal(3, 1, ROWS)
    predicted = targets * rng.lognormal(0, 0.3, ROWS)
    weights = rng.random(ROWS) + 0.1

    def stream(
        make: Callable[[], sm.extend.Metric | sm.MetricCollection], weighted: bool = False
    ) -> Callable[[], object]:
        def update_and_compute() -> object:
            metric = make()
            for a in range(0, ROWS, BATCH):
                extra = {"sample_weight": weights[a : a + BATCH]} if weighted else {}
                metric.update(targets[a : a + BATCH], predicted[a : a + BATCH], **extra)
            return metric.compute()

        return update_and_compute

    def both() -> sm.MetricCollection:
        return sm.MetricCollection(sm.MAE(), sm.RMSE())

    timed = interleave({"limit": limits.errors(targets, predicted), "ours": stream(both)})
    ratio = timed["ours"].ratio(timed["limit"])
    row = [timed["ours"].nanoseconds(ROWS), timed["limit"].nanoseconds(ROWS), f"{ratio:.2f}", "4.50"]
    head = ["metrics", "ours, ns/row", "inexact C, ns/row", "ratio", "target", ""]
    title = f"Update and compute, {ROWS:,} rows in batches of {BATCH:,}, one thread, CPU"
    table(title, head, [["MAE + RMSE", *row, verdict("MAE + RMSE", ratio <= 4.5)]])

    others: dict[str, Callable[[], object]] = {
        "MAE": stream(sm.MAE),
        "MAE + RMSE, weighted": stream(both, True),
        "R2 + PearsonCorrelation": stream(lambda: sm.MetricCollection(sm.R2(), sm.PearsonCorrelation())),
        "R2, weighted": stream(sm.R2, True),
        "MAPE": stream(sm.MAPE),
        "RMSLE": stream(sm.RMSLE),
        "GammaDeviance": stream(sm.GammaDeviance),
        "TweedieDeviance, 1.5": stream(lambda: sm.TweedieDeviance(power=1.5)),
        "MedianAbsoluteError": stream(sm.MedianAbsoluteError),
        "MaxError": stream(sm.MaxError),
    }
    times = interleave(others, rounds=3)
    table("The others", ["metrics", "ours, ns/row"], [[name, t.nanoseconds(ROWS)] for name, t in times.items()])


if __name__ == "__main__":
    main()
