"""Kernels are compiled when a hook is created: neither a first weighted nor a first large batch needs another one."""

from __future__ import annotations

import subprocess
import sys

import pytest

import streammetrics as sm
from streammetrics.hooks.compilation import compile_kernels
from streammetrics.hooks.deferred import Deferred

# Variants of kernels that are compiled or loaded after the hook was created. The process is a new one, and the batches are
# those that a framework passes: float32 scores, and labels of any dtype.
PROGRAM = """
import sys
import numpy as np
import streammetrics as sm
from streammetrics.hooks.deferred import Deferred
from streammetrics.kernels._jit import KERNELS

def variants():
    return {(k.__name__, str(s)) for k in KERNELS for s in k.dispatcher.overloads}

metrics = Deferred(eval(sys.argv[1]), every=1)
before, rng, first = variants(), np.random.default_rng(1), 0
for rows in (100, 80_000, 5_000, 100):
    for weighted in (False, True):
        batch = {
            "y_true": rng.integers(0, 2, rows).astype("float32"),
            "y_score": rng.random(rows).astype("float32"),
            "y_pred": rng.random(rows).astype("float32"),
            "group": np.arange(first, first + rows) // 7,
            "query": np.arange(first, first + rows) // 7,
        }
        first += 7 * rows
        if weighted:
            batch["sample_weight"] = rng.integers(1, 9, rows).astype("float32") / 4
            if "query" in metrics._columns:
                batch["sample_weight"] = (1 + batch["query"] % 3).astype("float32")
        metrics.update({name: batch[name] for name in batch if name in metrics._columns})
metrics.compute()
sm.merge([metrics.to_bytes(), metrics.copy().flush()])
print(sorted(variants() - before))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "metrics",
    [
        "sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.Calibration())",
        "sm.MetricCollection(sm.AUC(bits=10, limit=0), sm.F1(), sm.MAE())",
        "sm.GroupAUC()",
        "sm.NDCG(k=5)",
    ],
)
def test_no_batch_in_the_middle_needs_another_kernel(metrics: str) -> None:
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM, metrics], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "[]"


def test_metrics_stay_as_they_are(tmp_path: object) -> None:
    """A metric that would write rows to disk is left alone, and one whose rows cannot be generated is no error."""
    for metrics in (
        sm.MetricCollection(sm.CTR(), {"task": sm.Task(sm.CTR(), y_true="click", where="shown", labels=(1, 2))}),
        sm.GroupAUC(spill_dir=str(tmp_path)),
        sm.Windowed(sm.CTR(), width="1h", time="ts"),
        sm.Recent(sm.CTR(), steps=3),
    ):
        before = metrics.digest()
        compile_kernels(metrics)
        Deferred(metrics)
        assert metrics.digest() == before
