"""`streammetrics selftest`: whether this machine makes the same bits as all others, and how fast it is.

The rows are made by integer arithmetic, so that they are the same everywhere; what comes of them is compared with digests
that are part of the code. To renew them after a change of a state's form (never of its content):
``python -m streammetrics.cli.selftest``.
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammetrics import __version__
from streammetrics.cli.specs import make_metrics
from streammetrics.collect.collection import MetricCollection
from streammetrics.collect.task import Task
from streammetrics.compose.sliced import Sliced
from streammetrics.report.grid import Cell, Grid, say, show

__all__ = ["GOLDEN", "cases", "fingerprint", "self_test"]

ROWS = 20_000
SPEED_ROWS = 1 << 16
ROUNDS = 15

GOLDEN = {
    "probabilities, float32": "b8a05c841b143ac300abadc0880cb3c69ce1aaabce4add8c8081cd0b5790ed62",
    "probabilities, float64": "c105dcc46b9a23b3e3eafad39cc5053d2504aaace5b40af2634f49d76e6a3870",
    "probabilities, weighted": "993cbc2c7ea2369fbe8e6c77d2635966f594029ee32570d5f7fdc74ac6fd93cd",
    "logits": "9aa51f2e856aa9aee3853ca0e3082672c5a4d16e73117db80cfac381d902531e",
    "down-sampled, corrected": "f0eb9827f69fbb4406cb582687f90474fc2dcbf4773b549b310ba46b4763cee9",
    "slices": "8203d564207fc159a38b4723c74b618609d844b58ad6bb3622e5b8d7293226a3",
    "slices, limited": "737112d2fa21320caae4e0d18c6874d6716733953ce13af609305a4cc9d147b4",
}
"""SHA-256 of the state and of the bits of all values and bounds, for each case."""


def self_test() -> bool:
    """Print what is checked and what was measured; return whether all digests are right."""
    say(
        f"streammetrics {__version__}, {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}"
    )
    say()
    wrong = [name for name, made in cases().items() if fingerprint(made()) != GOLDEN[name]]
    for name in GOLDEN:
        say(f"{'WRONG' if name in wrong else 'ok   '}  {name}", "bold red" if name in wrong else "")
    say()
    say("digests differ: do not merge states of this machine with others, and report it" if wrong else "all bits right")
    say()
    show(_speeds())
    return not wrong


def fingerprint(thing: MetricCollection | Sliced) -> str:
    """SHA-256 of a state, and of the bits of every value and bound."""
    sha = hashlib.sha256(thing.digest().encode())
    for record in thing.table():
        for column in ("value", "bound_low", "bound_high", "interval_low", "interval_high"):
            number = record[column]
            sha.update(b"-" if number is None else float(number).hex().encode())
    return sha.hexdigest()


# -- rows that are the same everywhere -------------------------------------------------------------------------------


def _random(rows: int, seed: int) -> NDArray[np.uint64]:
    """Numbers by splitmix64: integers alone."""
    x = (np.arange(rows, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed


def columns(rows: int = ROWS, dtype: Any = np.float32) -> dict[str, Any]:
    """Return a log of a few percent of clicks that the scores know something about."""
    unit = (_random(rows, 1) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    score = unit * unit * unit * 0.25  # products round alike everywhere
    luck = (_random(rows, 2) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return {
        "y_true": (luck < score).astype(np.uint8),
        "y_score": score.astype(dtype),
        "logit": ((_random(rows, 3) >> np.uint64(40)).astype(np.float64) * 2.0**-20 - 12.0).astype(dtype),
        "weight": 1.0 + (_random(rows, 4) & np.uint64(0xFFFFF)).astype(np.float64) * 2.0**-18,
        "variant": np.where(_random(rows, 5) & np.uint64(1), "B", "A"),
        "shop": (_random(rows, 6) % np.uint64(7)).astype(np.int32),
    }


def cases() -> dict[str, Callable[[], MetricCollection | Sliced]]:
    """Return how each case is made."""
    smooth = ["auc", "average_precision", "ks", "log_loss", "normalized_entropy", "brier_score", "calibration"]
    plain = make_metrics([*smooth, "auc@0.1", "ctr", "f1@0.1", "matthews_corrcoef@0.1"])
    logits = Task(make_metrics(smooth, scale="logit"), y_score="logit")
    corrected = Task(plain, negative_rate=0.1, corrects="both")
    few = make_metrics(["auc", "log_loss"], bits=12)
    return {
        "probabilities, float32": lambda: MetricCollection(plain).update(columns()),
        "probabilities, float64": lambda: MetricCollection(plain).update(columns(dtype=np.float64)),
        "probabilities, weighted": lambda: MetricCollection(Task(plain, sample_weight="weight")).update(columns()),
        "logits": lambda: MetricCollection(logits).update(columns()),
        "down-sampled, corrected": lambda: MetricCollection(corrected).update(columns()),
        "slices": lambda: Sliced(few, by=("variant", "shop")).update(columns()),
        "slices, limited": lambda: Sliced(few, by="shop", limit=3).update(columns()),
    }


# -- speed -----------------------------------------------------------------------------------------------------------


def _speeds() -> Grid:
    log = columns(SPEED_ROWS)
    y, s = log["y_true"], log["y_score"]
    made = make_metrics(["auc", "log_loss", "normalized_entropy", "calibration", "f1"])
    several = MetricCollection(make_metrics(["auc", "log_loss", "calibration"]))
    arms = Sliced(made["auc"], by="shop")
    timed: dict[str, Callable[[], Any]] = {name: partial(_update, metric, y, s) for name, metric in made.items()}
    timed["auc, log_loss, calibration"] = partial(several.update, y, s)
    timed["auc by 7 slices"] = lambda: arms.update(y, s, shop=log["shop"])
    rows: list[list[Cell] | None] = [[Cell(n), Cell(f"{1e9 * _fastest(f) / SPEED_ROWS:.2f}")] for n, f in timed.items()]
    one = make_metrics(["auc"])["auc"]
    rows.append(
        [Cell("auc, one row a call"), Cell(f"{1e9 * _fastest(partial(_update, one, y[:1], s[:1]), 1000):,.0f}")]
    )
    return Grid("Speed of one core, float32", ["update", "ns a row"], rows)


def _update(metric: Any, y: Any, s: Any) -> None:
    metric.update(y, s)


def _fastest(call: Callable[[], Any], times: int = 1) -> float:
    """Return the seconds of a call, without what else the machine does."""
    call()
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(times):
            call()
        best = min(best, (time.perf_counter() - began) / times)
    return best


if __name__ == "__main__":
    for case, make in cases().items():
        print(f'    "{case}": "{fingerprint(make())}",')
