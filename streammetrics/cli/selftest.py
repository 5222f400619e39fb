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
from streammetrics.compose.sharded import Sharded
from streammetrics.compose.sliced import Sliced
from streammetrics.numerics.keys import scattered
from streammetrics.reports.text_table import Cell, Grid, say, show

__all__ = ["GOLDEN", "cases", "fingerprint", "self_test"]

ROWS = 20_000
SPEED_ROWS = 1 << 16
ROUNDS = 15

GOLDEN = {
    "probabilities, float32": "424d752b233ff12ec80e956b30c59640fe31ea4b4a725c0a74296440d2a1995d",
    "probabilities, float64": "65a20b5bc08357eb5b0174ca248e483abcc1755ec84d412b399e5fbf9599de18",
    "probabilities, weighted": "13db76c0c7ab7ad48679df99fc2bdb3776a860d728b1ec0cc350781eeeef766c",
    "logits": "d004339208250325396d143e7506345a3f235b19d2ec9fbe2750f4e47010d481",
    "down-sampled, corrected": "779ddb177eb1d92dba5e196aec8197dfb6659a8e1db6bf336c5a6b840e4705cb",
    "slices": "0fd4efcc34017f9225b1bb49ec1de380d2a97ce4103d37dc1ba587dbe748b93c",
    "slices, limited": "70f8a846844bb2a846fd7c1d4f05c3a9ec2a61a2a01133eb2116e65d8e7af558",
    "by unit": "ef34795f6090e4b4606930fba12712939b611dc9a678bb3a2dd50787a331b3b9",
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
    return scattered((np.arange(rows, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15))


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
        "user": (_random(rows, 7) % np.uint64(997)).astype(np.int64),
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
        "by unit": lambda: Sliced(Sharded(plain, unit="user"), by="variant").update(columns()),
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
