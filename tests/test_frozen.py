"""Values, bounds and counts of every variant on a log made by integers: what they were before the core was replaced.

``frozen.json`` holds a digest for each variant, written by ``python tests/test_frozen.py``; a value that is meant to
change is written anew, with the reason in the commit. Of the values of the first core those differ that are exact now
because rows are few, and weighted GAUC, which is rounded once.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import draws
import numpy as np
import pytest
import test_golden_bits as golden

import streammetrics as sm

FILE = Path(__file__).with_name("frozen.json")
CASES = [(np.float64, True, 1500), (np.float32, False, 300)]
FACTS = ("rows", "positives", "weight", "reason")


def plain(value: Any) -> Any:
    """A result as text has it, to the bit. A sentence may be reworded, so that only its presence counts."""
    if isinstance(value, str) and " " in value:
        return "a sentence"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {f: plain(getattr(value, f)) for f in value._fields}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (float, np.floating)):
        return float(value).hex()
    return int(value) if isinstance(value, np.integer) else value if isinstance(value, (int, str)) else repr(value)


def result(metric: Any, dtype: Any, weighted: bool, n: int) -> Any:
    """What a metric says of the log; or the error that it raises."""
    y, p, w, k = golden.rows()
    scores = p * 20 - 8 if metric.settings.get("scale") in ("real", "logit") else p
    table = {"y_true": y[:n], "y_score": scores.astype(dtype)[:n], "k": k[:n]}
    table |= {"sample_weight": w[:n]} if weighted else {}
    state = metric.make_state()
    needs = [x for x in state.needs() if x.role in table or not x.optional or x.either]
    made = type(metric)(**metric.settings)
    try:
        made.update(golden.make_consistent(state, {x.role: golden.column(x, table) for x in needs}))
    except sm.InvalidInputError as error:
        return plain(str(error))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sm.UndefinedMetricWarning)
        # Some settings have few bits, so that the bounds are wide.
        warnings.simplefilter("ignore", sm.WideBoundsWarning)
        found = made.explain()
        return plain([made.compute(), made.bounds(), *(found.get(f) for f in FACTS)])


def digest(metric: Any) -> str:
    """A short digest of all cases."""
    return hashlib.sha256(json.dumps([result(metric, *case) for case in CASES]).encode()).hexdigest()[:16]


@pytest.mark.full_matrix
@pytest.mark.parametrize("i", range(len(draws.VARIANTS)), ids=lambda i: repr(draws.VARIANTS[i]))
def test_values_are_what_they_were(i: int) -> None:
    frozen = json.loads(FILE.read_text())
    assert digest(draws.VARIANTS[i]) == frozen[repr(draws.VARIANTS[i])]


if __name__ == "__main__":
    made = {repr(metric): digest(metric) for metric in draws.VARIANTS}
    FILE.write_text(json.dumps(made, indent=0, sort_keys=True) + "\n")
