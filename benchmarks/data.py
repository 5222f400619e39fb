"""Synthetic click logs, made once from a seed and kept in a temporary folder (STREAMMETRICS_BENCHMARKS, if set)."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

FOLDER = Path(os.environ.get("STREAMMETRICS_BENCHMARKS", Path(tempfile.gettempdir()) / "streammetrics-benchmarks"))

SPREAD = 1.1  # standard deviation of the true logit
NOISE = 0.3  # and of the model's error


@contextmanager
def complete(path: Path) -> Iterator[Path]:
    """Yield a name to write to; the file gets its own name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def clicks(rows: int, rate: float = 0.02, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Draw labels (uint8) and scores (float32): normal true logits, about `rate` clicked, a model that errs."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(math.log(rate) - SPREAD**2 / 2, SPREAD, rows)  # exp of it has mean `rate`
    labels = (rng.random(rows) < sigmoid(logit)).astype(np.uint8)
    scores = sigmoid(logit + rng.normal(0, NOISE, rows)).astype(np.float32)
    return labels, scores


def cached_clicks(rows: int, rate: float = 0.02, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return `clicks`, from the folder after the first time."""
    path = FOLDER / f"clicks-{rows}-{rate}-{seed}.npz"
    if not path.exists():
        labels, scores = clicks(rows, rate, seed)
        with complete(path) as partial, partial.open("wb") as file:
            np.savez(file, labels=labels, scores=scores)
    with np.load(path) as arrays:
        return arrays["labels"], arrays["scores"]
