"""The histogram of values: buckets, weights and limits as always, however the rows come."""

from __future__ import annotations

import numpy as np
import pytest

from streammetrics.errors import InvalidInputError
from streammetrics.statistics.values import ValueHistogram
from tests.statistics.batches import BY, WEIGHTS, batches_of, bell, counted, fed, flats, one_of, tens

PAIR = ("y_true", "y_pred")
CASES = [
    {},
    {"bits": 1},
    {"bits": 9},
    {"columns": PAIR, "bits": 3},
    {"columns": PAIR, "signed": True, "bits": 4},
    {"columns": PAIR, "num_outputs": 3, "bits": 2},
    {"num_outputs": 200, "bits": 8},  # too many places for a counter each
]


def view(state):
    made = {"extremes": [state.extremes(i) for i in range(min(state.outputs, 3))], "level": state.level}
    for i in range(min(state.outputs, 3)):
        made[f"buckets {i}"], made[f"rows {i}"] = state.occupied_buckets(i), state.rows_per_bucket(i)
        made[f"total {i}"], made[f"ends {i}"] = state.mass(i).total(), np.stack(state.value_bounds(i))
    return made


def maker(settings):
    roles, outputs = settings.get("columns", ("value",)), settings.get("num_outputs")

    def make(rng, n):
        shape = n if outputs is None else (n, outputs)
        few = rng.random() < 0.3  # bits

        def values():
            v = bell(rng, shape) * tens(rng, -8, 9, shape)
            v = np.where(rng.random(shape) < 0.1, 0, np.round(v) if few else v)
            return np.clip(v, -60000, 60000).astype(one_of(rng, ["f2", "f4", "f8"]))

        return {r: values() for r in roles}

    return make


@pytest.mark.parametrize("settings", [c for c in CASES if c.get("num_outputs") != 200], ids=str)
@pytest.mark.parametrize("how", WEIGHTS)
def test_as_frozen(settings, how):
    def bad(columns):
        role = next(iter(columns))
        v = columns[role].astype(float)
        v[0] = np.nan
        return columns | {role: v}

    counted(ValueHistogram(**settings), maker(settings), seed=2, how=how, bad=bad, view=view)


@pytest.mark.slow
def test_many_outputs_wait_to_be_sorted():
    settings = CASES[-1]
    rng = np.random.default_rng(0)
    v, w = rng.normal(size=(40, 200)), rng.random(40)
    new = fed(ValueHistogram(**settings), {"value": v}, {"value": v, "sample_weight": w})
    for output in (0, 7, 199):
        alone = fed(ValueHistogram(bits=8), {"value": v[:, output]}, {"value": v[:, output], "sample_weight": w})
        assert np.array_equal(new.occupied_buckets(output), alone.occupied_buckets(0))
        assert new.mass(output).total() == alone.mass(0).total()
    assert new.facts()["rows"] == 80


@pytest.mark.parametrize("settings", CASES[:1] + CASES[3:6], ids=str)
@pytest.mark.parametrize("how", ["none", "some"])
def test_coarsening_is_counting_there(settings, how):
    batches = batches_of(maker(settings), 4, how)
    fine = fed(ValueHistogram(**settings | {"bits": 9}), *batches)
    rng = np.random.default_rng(0)
    keyed = [c | {"k": rng.integers(0, 3, len(next(iter(c.values()))))} for c in batches]
    sliced = fed(ValueHistogram(**settings | {"bits": 9}).empty_copy((BY,)), *keyed)
    for bits in (9, 8, 5, 1):
        coarse = ValueHistogram(**settings | {"bits": bits})
        assert fine.coarsen(bits) == fed(coarse, *batches)
        assert sliced.coarsen(bits) == fed(coarse.empty_copy((BY,)), *keyed)
    with pytest.raises(InvalidInputError, match="expected at most"):
        fine.coarsen(10)


def test_extremes_are_those_of_rows_with_weight():
    given = {"value": np.array([1.0, 1.1, -7.0]), "sample_weight": np.array([1.0, 0.5, 0.0])}
    state = fed(ValueHistogram(bits=2), given)
    assert state.extremes() == (1.0, 1.1)
    assert fed(ValueHistogram(), {"value": given["value"], "sample_weight": np.zeros(3)}).extremes()[0] != 0
    assert flats(state)["least"].dtype == np.int64


@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1.0, 2.0**51])
def test_windows_count_as_buffers_do(sign, weighted, size):
    """A state with one cell counts values in a window, and buffers those outside; states with slices have no windows."""
    rng = np.random.default_rng(3)
    v = size + np.round(rng.normal(0, 500, 20_000)) if size > 1 else rng.lognormal(0, 1, 20_000)
    v *= np.where(rng.random(20_000) < 0.5, -1.0, 1.0) if sign == 0 else sign
    v[5000:] *= np.where(rng.random(15_000) < 0.05, -100.0, 1.0)
    v[::7] = -0.0
    columns = [{"value": v[a : a + 4000]} for a in range(0, 20_000, 4000)]
    if weighted:
        columns = [c | {"sample_weight": rng.integers(0, 4, 4000) / 4} for c in columns]
    alone = fed(ValueHistogram(), *columns)
    sliced = fed(ValueHistogram().empty_copy((BY,)), *(c | {"k": np.zeros(4000, np.int64)} for c in columns))
    assert alone == next(iter(sliced.iterate_cells()))
