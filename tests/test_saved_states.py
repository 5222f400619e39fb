"""States that were saved by an earlier version load with the digest that they had, and say what they said.

`saved_states.zip` holds a saved state of every metric and of every wrapper. Its `index.json` has the digest of each state,
of its value, bounds, interval and `explain()`, and of the table of its slices, each without the wording of sentences. If
a format is meant to change, write the file anew with ``python tests/test_saved_states.py``, and give the reason in the
commit.
"""

from __future__ import annotations

import hashlib
import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import draws
import numpy as np
import pytest
import test_golden_bits as golden
from test_frozen import plain

import streammetrics as sm
from streammetrics.collect.metric_like import answer_of, columns_of, empty_copy, without_block_ends

FILE = Path(__file__).with_name("saved_states.zip")
ROWS = 200
QUERIES = ("query", "group")


def values_of_columns(metric: Any) -> dict[str, np.ndarray]:
    """Columns that a metric reads, of the log of integers."""
    y, p, w, k = golden.rows()
    table = {"y_true": y[:ROWS], "y_score": p[:ROWS], "k": k[:ROWS], "sample_weight": w[:ROWS]}
    state = metric.make_state()
    needs = [x for x in state.needs() if x.role in table or not x.optional or x.either]
    return dict(golden.make_consistent(state, {x.role: golden.column(x, table) for x in needs}))


def keyed(columns: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The same columns and one more, of three keys; queries and groups stay together."""
    whole = next((columns[q] for q in QUERIES if q in columns), np.arange(ROWS))
    return {**columns, name: np.asarray(whole) % 3}


def wrappers() -> dict[str, Any]:
    """Everything that holds metrics, with the same rows in each."""
    y, p, w, k = golden.rows()
    rows = {"y_true": y[:ROWS], "y_score": p[:ROWS], "sample_weight": w[:ROWS]}
    rows |= {"user": k[:ROWS] + 5 * (np.arange(ROWS) % 20), "country": k[:ROWS], "time": np.arange(ROWS) * 60}
    inner = sm.MetricCollection([sm.AUC(), sm.LogLoss(), sm.Calibration()])
    made = {
        "collection": empty_copy(inner),
        "task": sm.MetricCollection({"task": sm.Task([sm.CTR(), sm.Recall()], where="y_true")}),
        "sliced": sm.Sliced(empty_copy(inner), by="country"),
        "sliced twice": sm.Sliced(sm.Sliced(sm.AUC(bits=10), by="country"), by="time", limit=5),
        "windowed": sm.Windowed(empty_copy(inner), width=3600),
        "windowed slices": sm.Windowed(sm.Sliced(sm.LogLoss(), by="country"), width=3600, keep=2),
        "sharded": sm.Sharded(empty_copy(inner), unit="user"),
        "sliced shards": sm.Sliced(sm.Sharded(sm.LogLoss(), unit="user"), by="country"),
        "decayed": sm.Decayed(sm.LogLoss(), half_life=600, time="time"),
        "recent": sm.Recent(sm.LogLoss(), rows=100),
    }
    for thing in made.values():
        needed = {n for n in rows if n in columns_of(thing)}
        thing.update({n: rows[n] for n in needed})
    made["bundle"] = sm.Bundle({"a": made["collection"].copy(), "b": made["sliced"].copy()})
    ledger = sm.Ledger(sm.LogLoss())
    ledger.add("part 1", sm.LogLoss().update(y[:ROWS], p[:ROWS]))
    made["ledger"] = ledger
    return made


def things() -> dict[str, Any]:
    """A metric of each class at its defaults, and every wrapper, with rows in it."""
    made: dict[str, Any] = {}
    for tag in sorted(draws.OWN):
        metric = draws.usual(tag)
        made[tag] = type(metric)(**metric.settings).update(values_of_columns(metric))
    return made | {f"wrapper {name}": thing for name, thing in wrappers().items()}


SILENT = {"wrapper bundle", "wrapper ledger"}
"""They had no `compute` when the states were saved: a bundle has one since, and a ledger says to ask its total."""


def said(thing: Any) -> str:
    """A digest of everything that a thing says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [plain_or_name(getattr(thing, how, None)) for how in ("compute", "bounds", "interval", "explain")]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def plain_or_name(method: Any) -> Any:
    """The result of a method as text has it; the name of the error that it raises."""
    if method is None:
        return None
    try:
        return as_text(method())
    except (TypeError, ValueError, sm.StreamMetricsError) as error:
        return type(error).__name__


def as_text(value: Any) -> Any:
    """A result as text has it, to the bit, of mappings too."""
    if isinstance(value, dict):
        return [[repr(key), as_text(one)] for key, one in value.items()]
    return plain(value)


def slices(tag: str) -> str:
    """A digest of what three slices of a metric say."""
    metric = draws.usual(tag)
    sliced = sm.Sliced(type(metric)(**metric.settings), by="slice").update(keyed(values_of_columns(metric), "slice"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = [as_text({k: v for k, v in r.items() if k != "wide"}) for r in answer_of(sliced).records(0.9)]
    return hashlib.sha256(json.dumps(records).encode()).hexdigest()[:16]


def saved() -> tuple[dict[str, Any], zipfile.ZipFile]:
    """The index, and the states."""
    held = zipfile.ZipFile(FILE)
    return json.loads(held.read("index.json")), held


INDEX: dict[str, Any] = json.loads(zipfile.ZipFile(FILE).read("index.json")) if FILE.exists() else {}


def test_there_is_a_state_of_every_metric_and_wrapper():
    assert {name for name in INDEX if not name.startswith("wrapper ")} == set(draws.OWN)


@pytest.mark.parametrize("name", INDEX)
def test_saved_states_load_with_their_digest_and_say_what_they_said(name):
    index, held = saved()
    data = held.read(name)
    thing = sm.from_bytes(data)
    assert thing.digest() == index[name]["digest"]
    assert thing.to_bytes() == data
    if name not in SILENT:
        assert said(thing) == index[name]["said"]


@pytest.mark.cpu_limit(2.0)
@pytest.mark.full_matrix
@pytest.mark.parametrize("tag", [name for name in INDEX if not name.startswith("wrapper ")])
def test_rows_make_the_saved_state_and_slices_say_what_they_said(tag):
    index, held = saved()
    metric = draws.usual(tag)
    made = type(metric)(**metric.settings).update(values_of_columns(metric))
    assert without_block_ends(made).to_bytes() == held.read(tag)
    assert slices(tag) == index[tag]["slices"]


if __name__ == "__main__":
    index = {}
    with zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED) as made:
        for name, thing in things().items():
            data = thing.to_bytes()
            made.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
            index[name] = {"digest": thing.digest(), "said": said(sm.from_bytes(data))}
            if not name.startswith("wrapper "):
                index[name]["slices"] = slices(name)
        made.writestr(zipfile.ZipInfo("index.json"), json.dumps(index, indent=0), zipfile.ZIP_DEFLATED)
