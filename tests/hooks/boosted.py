"""Rows for boosters to learn, too hard for them to get right."""

from __future__ import annotations

from typing import Any

import numpy as np


def binary(n: int = 1500, seed: int = 0) -> tuple[Any, Any, Any]:
    """Features, labels and weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4)).astype(np.float32)
    y = (rng.random(n) < 1 / (1 + np.exp(-x[:, 0] * x[:, 1] - x[:, 2]))).astype(np.int64)
    return x, y, (rng.integers(1, 16, n) / 8).astype(np.float32)


def classes(n: int = 1500, seed: int = 0) -> tuple[Any, Any, Any]:
    """Features, three classes and weights."""
    x, _, w = binary(n, seed)
    noise = np.random.default_rng(seed + 1).normal(size=n)
    return x, np.digitize(x[:, 0] * x[:, 1] + noise, [-0.5, 0.5]), w


def ranked(queries: int = 60, seed: int = 0) -> tuple[Any, Any, Any]:
    """Features, grades and the sizes of queries."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 20, queries)
    x = rng.normal(size=(sizes.sum(), 4)).astype(np.float32)
    grades = np.clip(np.round(x[:, 0] + rng.normal(size=len(x)) + 1), 0, 3).astype(int)
    return x, grades, sizes


def sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(z, np.float64)))


def softmax(z: Any) -> Any:
    p = np.exp(np.asarray(z, np.float64) - np.max(z, axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)
