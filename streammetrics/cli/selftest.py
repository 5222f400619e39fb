"""`streammetrics selftest`: check that this machine computes the same bits as all others, and measure its speed.

The test generates rows with integer arithmetic, so they are the same on every machine. It then compares digests of the
results with the digests in this module. If the byte format of states changes but their content does not, run
``python -m streammetrics.cli.selftest`` to print the new digests.
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
from streammetrics.numerics.slice_keys import mix_bits
from streammetrics.reports.text_table import Cell, Grid, print_grid, print_line

__all__ = ["GOLDEN", "compute_fingerprint", "make_cases", "run_self_test"]

ROWS = 20_000
SPEED_ROWS = 1 << 16
TIMING_ROUNDS = 15

GOLDEN = {
    "probabilities, float32": "424d752b233ff12ec80e956b30c59640fe31ea4b4a725c0a74296440d2a1995d",
    "probabilities, float64": "65a20b5bc08357eb5b0174ca248e483abcc1755ec84d412b399e5fbf9599de18",
    "probabilities, weighted": "4586b772655abde2d5abbdef4284fb43a67d24e66015d4831fa66f38fde9f9a0",
    "logits": "d004339208250325396d143e7506345a3f235b19d2ec9fbe2750f4e47010d481",
    "down-sampled, corrected": "be0d764f25578126b4bdc20212e99657b5d6f9785f266ea6c063274cd4143e1b",
    "slices": "0fd4efcc34017f9225b1bb49ec1de380d2a97ce4103d37dc1ba587dbe748b93c",
    "slices, limited": "70f8a846844bb2a846fd7c1d4f05c3a9ec2a61a2a01133eb2116e65d8e7af558",
    "by unit": "ef34795f6090e4b4606930fba12712939b611dc9a678bb3a2dd50787a331b3b9",
}
"""The expected SHA-256 of the state, values and bounds of each case."""


def run_self_test() -> bool:
    """Print the checks and the measured speed; return whether all digests match."""
    print_line(
        f"streammetrics {__version__}, {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}"
    )
    print_line()
    wrong = [name for name, make_case in make_cases().items() if compute_fingerprint(make_case()) != GOLDEN[name]]
    for name in GOLDEN:
        print_line(f"{'WRONG' if name in wrong else 'ok   '}  {name}", "bold red" if name in wrong else "")
    print_line()
    print_line(
        "digests differ: do not merge states of this machine with states of others, and report the problem"
        if wrong
        else "all digests match"
    )
    print_line()
    print_grid(_measure_speeds())
    return not wrong


def compute_fingerprint(metrics: MetricCollection | Sliced) -> str:
    """Return a single SHA-256 hash of the metrics' states and the bits of all values, bounds and intervals."""
    sha = hashlib.sha256(metrics.digest().encode())
    for record in metrics.table():
        for column in ("value", "bound_low", "bound_high", "interval_low", "interval_high"):
            number = record[column]
            sha.update(b"-" if number is None else float(number).hex().encode())
    return sha.hexdigest()


# -- Rows that are the same on every machine ----------------------------------------------------------------------------


def _random_integers(rows: int, seed: int) -> NDArray[np.uint64]:
    """Return pseudorandom integers from the splitmix64 generator, the same on every machine."""
    return mix_bits((np.arange(rows, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15))


def make_columns(rows: int = ROWS, dtype: Any = np.float32) -> dict[str, Any]:
    """Return the columns of a log with calibrated scores, in which a few percent of the rows are clicks.

    The columns have the same bits on every machine. `dtype` is the dtype of the scores.
    """
    unit = (_random_integers(rows, 1) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    # Compute the scores with float64 products only, because every machine rounds these in the same way.
    score = unit * unit * unit * 0.25
    luck = (_random_integers(rows, 2) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return {
        "y_true": (luck < score).astype(np.uint8),
        "y_score": score.astype(dtype),
        "logit": ((_random_integers(rows, 3) >> np.uint64(40)).astype(np.float64) * 2.0**-20 - 12.0).astype(dtype),
        "weight": 1.0 + (_random_integers(rows, 4) & np.uint64(0xFFFFF)).astype(np.float64) * 2.0**-18,
        "variant": np.where(_random_integers(rows, 5) & np.uint64(1), "B", "A"),
        "shop": (_random_integers(rows, 6) % np.uint64(7)).astype(np.int32),
        "user": (_random_integers(rows, 7) % np.uint64(997)).astype(np.int64),
    }


def make_cases() -> dict[str, Callable[[], MetricCollection | Sliced]]:
    """Return the test cases, keyed by name: functions that build metrics and update them with the test rows."""
    smooth = ["auc", "average_precision", "ks", "log_loss", "normalized_entropy", "brier_score", "calibration"]
    metrics = make_metrics([*smooth, "auc@0.1", "ctr", "f1@0.1", "matthews_corrcoef@0.1"])
    logits = Task(make_metrics(smooth, scale="logit"), y_score="logit")
    corrected = Task(metrics, negative_rate=0.1, corrects="both")
    few = make_metrics(["auc", "log_loss"], bits=12)
    return {
        "probabilities, float32": lambda: MetricCollection(metrics).update(make_columns()),
        "probabilities, float64": lambda: MetricCollection(metrics).update(make_columns(dtype=np.float64)),
        "probabilities, weighted": lambda: MetricCollection(Task(metrics, sample_weight="weight")).update(
            make_columns()
        ),
        "logits": lambda: MetricCollection(logits).update(make_columns()),
        "down-sampled, corrected": lambda: MetricCollection(corrected).update(make_columns()),
        "slices": lambda: Sliced(few, by=("variant", "shop")).update(make_columns()),
        "slices, limited": lambda: Sliced(few, by="shop", limit=3).update(make_columns()),
        "by unit": lambda: Sliced(Sharded(metrics, unit="user"), by="variant").update(make_columns()),
    }


# -- Speed -----------------------------------------------------------------------------------------------------------


def _measure_speeds() -> Grid:
    log = make_columns(SPEED_ROWS)
    y, s = log["y_true"], log["y_score"]
    metrics = make_metrics(["auc", "log_loss", "normalized_entropy", "calibration", "f1"])
    several = MetricCollection(make_metrics(["auc", "log_loss", "calibration"]))
    arms = Sliced(metrics["auc"], by="shop")
    calls: dict[str, Callable[[], Any]] = {name: partial(_update, metric, y, s) for name, metric in metrics.items()}
    calls["auc, log_loss, calibration"] = partial(several.update, y, s)
    calls["auc by 7 slices"] = lambda: arms.update(y, s, shop=log["shop"])
    rows: list[list[Cell] | None] = [
        [Cell(n), Cell(f"{1e9 * _measure_fastest(f) / SPEED_ROWS:.2f}")] for n, f in calls.items()
    ]
    one = make_metrics(["auc"])["auc"]
    rows.append(
        [
            Cell("auc, one row per call"),
            Cell(f"{1e9 * _measure_fastest(partial(_update, one, y[:1], s[:1]), 1000):,.0f}"),
        ]
    )
    return Grid("Speed of one core, float32", ["update", "ns a row"], rows)


def _update(metric: Any, y: Any, s: Any) -> None:
    metric.update(y, s)


def _measure_fastest(call: Callable[[], Any], times: int = 1) -> float:
    """Return the seconds per call in the fastest round of `times` calls; other processes disturbed it least."""
    call()
    best = float("inf")
    for _ in range(TIMING_ROUNDS):
        began = time.perf_counter()
        for _ in range(times):
            call()
        best = min(best, (time.perf_counter() - began) / times)
    return best


if __name__ == "__main__":
    for case, make in make_cases().items():
        print(f'    "{case}": "{compute_fingerprint(make())}",')
