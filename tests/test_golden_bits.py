"""The same bits on every processor: digests and values under masks of CPU features, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import draws
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.batch.classes import Classes, DiscoveredClasses, Distribution
from streammetrics.batch.ids import Ids
from streammetrics.batch.kinds import CountKind, Grade, Label, Matrix, Weight
from streammetrics.batch.numbers import Number
from streammetrics.laws.case import update_by_name
from streammetrics.laws.specimens import clip_to_kind, make_consistent


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A log made by integer arithmetic, so that it is the same everywhere."""
    i = np.arange(20_000, dtype=np.uint64)
    with np.errstate(over="ignore"):
        h = (i + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
        h *= np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(32)
    p = (h >> np.uint64(11)).astype(np.float64) * 2.0**-53
    p = p * p * p
    y = ((h & np.uint64(0xFFF)).astype(np.float64) * 2.0**-12 < p).astype(np.uint8)
    w = ((h >> np.uint64(5)) & np.uint64(0xFFFF)).astype(np.float64) / 4096 + 2.0**-30
    return y, p, w, (h % np.uint64(5)).astype(np.int64)


CLASSES = {"num_classes": 3}
SEVERAL = [
    sm.AUC(**CLASSES),
    sm.LogLoss(**CLASSES),
    sm.LogLoss(**CLASSES, scale="logit"),
    sm.BrierScore(**CLASSES, scale="logit"),
    sm.ExpectedCalibrationError(**CLASSES, scale="logit"),
    sm.F1(labels="discover"),
    sm.AveragePrecision(num_labels=2),
    sm.NormalizedEntropy(soft_labels=True),
    sm.LogLoss(soft_labels=True, scale="logit"),
]


def column(need: Any, table: dict[str, np.ndarray]) -> np.ndarray:
    """The rows of the log that play a role."""
    if need.role == "item":  # no list has one twice
        return np.arange(len(table["k"])) * 7 % 100003
    if isinstance(need.kind, (Classes, DiscoveredClasses)):
        return table["k"] % (need.kind.width if isinstance(need.kind, Classes) else 4)
    if isinstance(need.kind, Distribution):
        shares = [np.roll(table["y_score"], i) + 0.01 for i in range(need.kind.width)]
        total = sum(shares[1:], shares[0])  # one after the other, as it is on every machine
        return np.column_stack([share / total for share in shares])
    if isinstance(need.kind, Matrix):
        one = column(replace(need, kind=need.kind.kind), table)
        return np.column_stack([np.roll(one, i) for i in range(need.kind.width)])
    if isinstance(need.kind, Ids):
        return np.sort(table["k"]) if need.role == "query" else table["k"]
    if isinstance(need.kind, (CountKind, Grade)):
        return table["y_true"]
    if isinstance(need.kind, Number):
        return clip_to_kind(need.kind, np.roll(table["y_score"], need.role == "y_pred"))
    if isinstance(need.kind, Label):
        return table["y_true"]
    return table["sample_weight"] if isinstance(need.kind, Weight) else table["y_score"]


def one_of_each_statistic() -> list[Any]:
    """Of the metrics of a label and a score, one for each kernel: what takes the time is to compile these."""
    scaled = (m for m in map(draws.usual, draws.BINARY) if m.about.tag != "thresholded_auc")  # which knows one scale
    return list({m.make_state().tag: m for m in scaled}.values())


def fingerprint() -> list[str]:
    """Digests of every metric's state, and values and bounds to the last digit."""
    y, p, w, k = rows()
    out = []
    for scale, scores in (("probability", p), ("logit", p * 20 - 8)):
        for dtype in (np.float32, np.float64):
            for extra in ({}, {"sample_weight": w}):
                table = {"y_true": y, "y_score": scores.astype(dtype), "k": k} | extra
                whole = scale == "probability" and dtype is np.float64
                for metric in [*map(draws.usual, draws.OWN), *SEVERAL] if whole else one_of_each_statistic():
                    scaled = {"scale": scale} if metric.settings.get("scale") == "probability" else {}
                    made = type(metric)(**(metric.settings | scaled))
                    needs = [n for n in made.make_state().needs() if n.role in table or not n.optional or n.either]
                    given = make_consistent(made.make_state(), {n.role: column(n, table) for n in needs})
                    update_by_name(made, given) if extra else made.update(given)
                    out.append(f"{made.name} {made.digest()} {made.compute()!r} {made.bounds()!r} {made.interval()!r}")
                out.append(sm.Sliced([sm.AUC(bits=10), sm.LogLoss()] if scale == "probability" else sm.F1(), by="k")
                           .update(table).digest())  # fmt: skip
    return out


@pytest.mark.slow
def test_masks_of_cpu_features_change_nothing(tmp_path: Path) -> None:
    """The normal run has no vectors, and every index checked; the long one has all masks beside."""
    from machines import machines

    masks = [dict(mask) for mask in machines()]  # of which each compiles everything: the first is without any vectors
    checked = masks[0] | {"NUMBA_BOUNDSCHECK": "1"}
    environments = [{}, checked, *(masks if draws.TIMES > 1 else [])]
    running = [
        subprocess.Popen(
            [sys.executable, __file__],
            env=os.environ | mask | ({"NUMBA_CACHE_DIR": str(tmp_path / str(i))} if mask else {}),
            stdout=subprocess.PIPE,
            text=True,
        )
        for i, mask in enumerate(environments)
    ]
    printed = [process.communicate(timeout=1200)[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    assert len(printed[0]) > 100
    for mask, lines in zip(environments, printed, strict=True):
        assert lines == printed[0], mask


if __name__ == "__main__":
    print("\n".join(fingerprint()))
