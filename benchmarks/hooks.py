"""A training loop on the CPU: what a step costs, beside torchmetrics and torcheval, and when deferred.

Process CPU time, one thread. Peers often only append in `update`, so a compute every 100 steps is counted with all.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from statistics import median
from typing import Any

import streammetrics as sm
from benchmarks.data import clicks
from benchmarks.report import Sheet, table, verdict
from benchmarks.timing import Timing, interleave

ROWS, STEPS, RATE = 4_096, 100, 0.3
SIZES, FEW = (256, 4_096, 65_536), 100
"""The rows of a step, and the steps after which all compute, in the table by size."""
NEEDED = ("torch", "torchmetrics", "torcheval")

Call = Callable[[], object]


def main() -> None:
    """Print all tables, or say what is not installed."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        print(f"hooks: skipped, as {', '.join(missing)} is not installed")
        return
    steps()
    sizes()
    peers()


def named() -> list[Any]:
    """Fifteen metrics that read three states."""
    ranked = [sm.AUC(), sm.AveragePrecision(), sm.KS(), sm.ROCCurve(), sm.PrecisionAtRecall(recall=0.5)]
    losses = [sm.LogLoss(), sm.NormalizedEntropy(), sm.Calibration(), sm.BrierScore()]
    decisions = [sm.Precision(), sm.Recall(), sm.F1(), sm.Accuracy(), sm.Specificity(), sm.MatthewsCorrcoef()]
    return [*ranked, *losses, *decisions]


def steps() -> None:
    """What a step costs, in microseconds."""
    import torch

    from streammetrics.hooks.torch import Deferred

    torch.set_num_threads(1)
    labels, scores = clicks(ROWS, RATE)
    y, p = torch.from_numpy(labels), torch.from_numpy(scores)
    graph = p.clone().requires_grad_()
    bare, binned = sm.MetricCollection(named()), sm.MetricCollection([*named(), sm.ExpectedCalibrationError()])
    kept = Deferred(sm.AUC(), every=1 << 40)  # steps that keep references, and nothing else
    through = Deferred(sm.MetricCollection(named()), every=50)

    def kept_steps() -> None:
        repeated(kept, y, graph)()
        kept.reset()

    calls: dict[str, tuple[Call, float]] = {
        "15 metrics over 3 states, numpy": (repeated(bare, labels, scores), 29),
        "15 metrics over 3 states, torch": (repeated(bare, y, p), 29),
        "and ECE, torch": (repeated(binned, y, p), 50),
        "and ECE, torch, int64 labels, bfloat16": (repeated(binned, y.long(), p.bfloat16()), 50),
        "Deferred, a step": (kept_steps, 3.6),
        "Deferred, copying and counting 15 metrics, too": (repeated(through, y, graph), 32),
    }
    timed = interleave({name: call for name, (call, _) in calls.items()}, rounds=15)
    sheet = Sheet()
    for name, (_, limit) in calls.items():
        sheet.line(name, median(timed[name].cpu) / STEPS * 1e6, limit, "us")
    sheet.show(f"A step of {ROWS:,} rows, CPU")


def repeated(metrics: Any, *columns: Any) -> Call:
    """Many steps."""

    def call() -> None:
        for _ in range(STEPS):
            metrics.update(*columns)

    return call


def sizes() -> None:
    """What a step of an AUC costs by its rows: alone, and with its share of a compute, as peers put off their work."""
    import torch
    from torcheval.metrics import BinaryAUROC as TorchevalAUC
    from torchmetrics.classification import BinaryAUROC

    from streammetrics.hooks.torchmetrics import TorchMetric

    metrics = {
        "streammetrics": sm.AUC(),
        "streammetrics, TorchMetric": TorchMetric(sm.AUC()),
        "torchmetrics, exact": BinaryAUROC(),
        "torchmetrics, 200 thresholds": BinaryAUROC(thresholds=200),
        "torcheval": TorchevalAUC(),
    }
    lines = [[name] for name in metrics]
    for rows in SIZES:
        y, p = map(torch.from_numpy, clicks(rows, RATE))
        calls: dict[str, Call] = {}
        for name, metric in metrics.items():
            columns = (y, p) if metric is metrics["streammetrics"] else (p, y.long())
            calls[f"{name}, steps"] = few_steps(metric, columns, computes=False)
            calls[name] = few_steps(metric, columns, computes=True)
        timed = interleave(calls, rounds=5)
        for line in lines:
            name = line[0]
            line += [f"{median(timed[key].cpu) / FEW * 1e6:,.0f}" for key in (f"{name}, steps", name)]
        for name in [name for name in metrics if not name.startswith("streammetrics")]:
            ratio = timed["streammetrics, TorchMetric"].ratio(timed[name])
            verdict(f"a step of {rows:,} rows beside {name}", ratio <= 1)
    head = ["", *(cell for rows in SIZES for cell in (f"{rows:,} rows", "with compute"))]
    table(f"A step of an AUC, and one with its share of a compute after {FEW} steps, CPU us", head, lines)


def few_steps(metric: Any, columns: tuple[Any, ...], *, computes: bool) -> Call:
    def call() -> None:
        metric.reset()
        for _ in range(FEW):
            metric.update(*columns)
        if computes:
            metric.compute()

    return call


def peers() -> None:
    """A hundred steps and a compute, beside peers on the metrics that both have."""
    import torch

    y, p = map(torch.from_numpy, clicks(ROWS, RATE))
    candidates: dict[str, Call] = {}
    for name, (ours, theirs) in {
        "torchmetrics, exact": (shared, torchmetrics_of(None)),
        "torchmetrics, 200 thresholds": (shared, torchmetrics_of(200)),
        "torcheval": (evaluated, torcheval_of()),
    }.items():
        candidates[f"ours beside {name}"] = an_epoch(sm.MetricCollection(ours()), y, p)
        candidates[name] = theirs(y.long(), p)
    timed = interleave(candidates, rounds=3)
    lines = []
    for name in [n for n in timed if not n.startswith("ours")]:
        ours = timed[f"ours beside {name}"]
        ratio = ours.ratio(timed[name])
        passed = verdict(name, ratio <= 0.1)
        lines.append([name, milliseconds(ours), milliseconds(timed[name]), f"{ratio:.4f}", "0.1", passed])
    title = f"{STEPS} steps of {ROWS:,} rows and a compute, CPU ms"
    table(title, ["", "ours", "theirs", "ratio", "at most", ""], lines)


def milliseconds(timing: Timing) -> str:
    return f"{median(timing.cpu) * 1e3:.1f}"


def shared() -> list[Any]:
    """What torchmetrics has, too."""
    ranked = [sm.AUC(), sm.AveragePrecision(), sm.ROCCurve(), sm.PrecisionAtRecall(recall=0.5)]
    decisions = [sm.Precision(), sm.Recall(), sm.F1(), sm.Accuracy(), sm.Specificity(), sm.MatthewsCorrcoef()]
    return [*ranked, sm.BrierScore(), *decisions, sm.CohenKappa(), sm.ExpectedCalibrationError()]


def evaluated() -> list[Any]:
    """What torcheval has, too."""
    ranked = [sm.AUC(), sm.AveragePrecision(), sm.PRCurve(), sm.RecallAtPrecision(precision=0.5)]
    decisions = [sm.Precision(), sm.Recall(), sm.F1(), sm.Accuracy(), sm.ConfusionMatrix()]
    return [*ranked, sm.NormalizedEntropy(), sm.Calibration(), sm.BrierScore(), sm.CTR(), *decisions]


def an_epoch(metrics: Any, y: Any, p: Any) -> Call:
    def call() -> object:
        metrics.reset()
        for _ in range(STEPS):
            metrics.update(y, p)
        return metrics.compute()

    return call


def torchmetrics_of(thresholds: int | None) -> Callable[[Any, Any], Call]:
    import torchmetrics
    from torchmetrics import classification as c

    ranked = [c.BinaryAUROC, c.BinaryAveragePrecision, c.BinaryROC]
    decisions = [
        c.BinaryPrecision, c.BinaryRecall, c.BinaryF1Score, c.BinaryAccuracy, c.BinarySpecificity,
        c.BinaryMatthewsCorrCoef, c.BinaryCohenKappa,
    ]  # fmt: skip
    metrics = torchmetrics.MetricCollection(
        [
            *(kind(thresholds=thresholds) for kind in ranked),
            c.BinaryPrecisionAtFixedRecall(min_recall=0.5, thresholds=thresholds),
            *(kind() for kind in decisions),
            torchmetrics.MeanSquaredError(),
            c.BinaryCalibrationError(n_bins=15),
        ]
    )

    def epoch(y: Any, p: Any) -> Call:
        def call() -> object:
            metrics.reset()
            for _ in range(STEPS):
                metrics.update(p, y)
            return metrics.compute()

        return call

    return epoch


def torcheval_of() -> Callable[[Any, Any], Call]:
    from torcheval import metrics as e

    scored = [
        *(e.BinaryAUROC(), e.BinaryAUPRC(), e.BinaryPrecisionRecallCurve()),
        *(e.BinaryRecallAtFixedPrecision(min_precision=0.5), e.MeanSquaredError(), e.WeightedCalibration()),
        *(e.BinaryPrecision(), e.BinaryRecall(), e.BinaryF1Score(), e.BinaryAccuracy(), e.BinaryConfusionMatrix()),
    ]
    entropy, rate = e.BinaryNormalizedEntropy(), e.ClickThroughRate()
    everything = [*scored, entropy, rate]

    def epoch(y: Any, p: Any) -> Call:
        clicked = y.float()  # the normalized entropy takes nothing else

        def call() -> object:
            for metric in everything:
                metric.reset()
            for _ in range(STEPS):
                for metric in scored:
                    metric.update(p, y)
                entropy.update(p, clicked)
                rate.update(clicked)
            return [metric.compute() for metric in everything]

        return call

    return epoch
