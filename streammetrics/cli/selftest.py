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
from streammetrics.cli.grid import Cell, Grid, say, show
from streammetrics.cli.specs import make_metrics
from streammetrics.collection import MetricCollection
from streammetrics.compose import Sliced
from streammetrics.task import Task

__all__ = ["GOLDEN", "cases", "fingerprint", "self_test"]

ROWS = 20_000
SPEED_ROWS = 1 << 16
ROUNDS = 15

GOLDEN = {
    "probabilities, float32": "42ee9b562ac43fbd57095f046b4251bc2c98b1f3ba3736e213a707488753ab98",
    "probabilities, float64": "0380ce00a6301e526571aa60b277ee2b62aab6553527cf4a9dfd81641ba333dd",
    "probabilities, weighted": "36d7ddd6a05bd0dde9e1975658c8c1fc34fc51d0baa584d3969e2acb16640b90",
    "logits": "0476a5dd80ef6baba8582960f6f29e0c5283d1cb2b9b1befbd3594a3fa25aa67",
    "down-sampled, corrected": "88fa61618d16d52f408592f5f1f7dff19b30f9aac8067f14708eba0bc94a2024",
    "slices": "d6fdaf2ef9884b20ec86e1cbe929c2022bf66fb9ba767a65fda45a54732d23f7",
    "slices, limited": "45fc3bb63a07aba2731e5d6795464dee6fb522b792acd3033bdad31a9c0f8564",
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


# -- rows that are the same everywhere ---------------------------------------------------------------------------------


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


# -- speed -------------------------------------------------------------------------------------------------------------


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
