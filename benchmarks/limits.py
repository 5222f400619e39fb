"""The limits of this machine: `limits.c`, compiled here and now, checked against numpy before it is believed."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.data import FOLDER, complete

SOURCE = Path(__file__).with_name("limits.c")
BUCKETS = 65_537
EPSILON = np.finfo(np.float32).eps

_FLAGS = ["-O3", "-march=native", "-fopenmp-simd", "-fno-trapping-math", "-shared", "-fPIC", "-Wall", "-Wextra"]
if platform.machine() == "x86_64":
    _FLAGS.append("-mprefer-vector-width=512")  # gcc alone stays at 256 on some Intel; a limit should not


def build(source: Path) -> Path:
    """Compile a C file of this folder into the temporary folder; always afresh, so that it fits this processor."""
    library = FOLDER / f"{source.stem}.so"
    with complete(library) as partial:
        subprocess.run(["gcc", *_FLAGS, str(source), "-o", str(partial), "-lm", "-ldl"], check=True)
    return library


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class Limits:
    """The C loops over one pair of arrays: each method answers its question over all rows in one call."""

    def __init__(self, labels: np.ndarray, scores: np.ndarray) -> None:
        assert labels.dtype == np.uint8
        assert scores.dtype == np.float32
        assert labels.flags.c_contiguous
        assert scores.flags.c_contiguous
        self._labels, self._scores = labels, scores
        self._c = ctypes.CDLL(str(build(SOURCE)))
        for name in ("log_loss_polynomial", "log_loss_libm", "sum_inexact"):
            getattr(self._c, name).restype = ctypes.c_double
        self._rows = ctypes.c_int64(len(scores))
        self._columns = _pointer(scores), _pointer(labels)
        self.histogram = np.zeros((2, BUCKETS), np.int64)
        """Negatives and positives by bucket; `fold` adds to it, as an update does."""

    def fold(self) -> None:
        """Count the rows by label and bucket."""
        self._c.fold_histogram(*self._columns, self._rows, _pointer(self.histogram))

    def log_loss(self) -> float:
        """Sum -log(likelihood): float32 polynomial, float64 lanes."""
        total: float = self._c.log_loss_polynomial(*self._columns, self._rows)
        return total

    def log_loss_libm(self) -> float:
        """Sum the same one row at a time with logf."""
        total: float = self._c.log_loss_libm(*self._columns, self._rows)
        return total

    def sum(self) -> float:
        """Sum the scores in float64 lanes."""
        total: float = self._c.sum_inexact(self._columns[0], self._rows)
        return total

    def counts(self, threshold: float) -> np.ndarray:
        """Count predicted positives, positives, true positives."""
        out = np.zeros(3, np.int64)
        self._c.binary_counts(*self._columns, self._rows, ctypes.c_float(threshold), _pointer(out))
        return out


def errors(targets: np.ndarray, predicted: np.ndarray) -> Callable[[], np.ndarray]:
    """Return a call of the C loop that sums absolute and squared errors of two float64 arrays."""
    c, out = ctypes.CDLL(str(build(SOURCE))), np.zeros(2)

    def call() -> np.ndarray:
        c.errors_inexact(_pointer(targets), _pointer(predicted), ctypes.c_int64(len(targets)), _pointer(out))
        return out

    return call


def confusion(truth: np.ndarray, predicted: np.ndarray, classes: int) -> Callable[[], np.ndarray]:
    """Return a call of the C loop that counts pairs of int64 classes."""
    c, out = ctypes.CDLL(str(build(SOURCE))), np.zeros((classes, classes), np.int64)

    def call() -> np.ndarray:
        columns = _pointer(truth), _pointer(predicted), ctypes.c_int64(len(truth)), ctypes.c_int64(classes)
        c.confusion(*columns, _pointer(out))
        return out

    return call


def check() -> None:
    """Compare every C loop with numpy on 100,003 awkward rows: a wrong yardstick would be worse than none."""
    rng = np.random.default_rng(0)
    scores = rng.random(100_003, np.float32) ** 8
    scores[::3] = 1 - scores[::3]
    scores[:4] = 0, 0.5, 1, 1e-30
    labels = (rng.random(len(scores)) < 0.3).astype(np.uint8)
    limits = Limits(labels, scores)

    limits.fold()
    folded = np.minimum(scores, 1 - scores).view(np.int32) >> 13
    bucket = np.maximum(folded - (94 << 10), 0)
    bucket = np.where(scores > 0.5, BUCKETS - 1 - bucket, bucket)
    expected = [np.bincount(bucket[labels == y], minlength=BUCKETS) for y in (0, 1)]
    np.testing.assert_array_equal(limits.histogram, expected)

    likelihood = np.maximum(np.where(labels == 1, scores, 1 - scores), EPSILON).astype(np.float64)
    loss = -np.log(likelihood).sum()
    np.testing.assert_allclose([limits.log_loss(), limits.log_loss_libm()], loss, rtol=1e-6)
    np.testing.assert_allclose(limits.sum(), scores.sum(dtype=np.float64), rtol=1e-12)

    above = scores >= np.float32(0.1)
    np.testing.assert_array_equal(limits.counts(0.1), [above.sum(), labels.sum(), (above & (labels == 1)).sum()])

    targets = rng.normal(0, 3, len(scores))
    predicted = targets + scores
    d = predicted - targets
    np.testing.assert_allclose(errors(targets, predicted)(), [np.abs(d).sum(), (d * d).sum()], rtol=1e-12)

    truth, guess = rng.integers(0, 7, 100_003), rng.integers(0, 7, 100_003)
    pairs = np.bincount(truth * 7 + guess, minlength=49).reshape(7, 7)
    np.testing.assert_array_equal(confusion(truth, guess, 7)(), pairs)
