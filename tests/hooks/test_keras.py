"""Keras on its three backends with our metrics: its own values, weights, epochs, early stopping, masks, errors."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("keras") is None:  # not imported here: a process has one backend for good
    pytest.skip("could not import 'keras'", allow_module_level=True)

PROGRAM = Path(__file__).with_name("keras_runs.py")


@pytest.fixture(scope="module", params=["tensorflow", "jax", "torch"])
def backend(request: Any) -> str:
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"could not import {request.param!r}")
    return str(request.param)


@pytest.fixture(scope="module")
def found(backend: str) -> Any:
    """What was found on one backend: every run in one process, as starting it takes longest."""
    said = os.environ | {"KERAS_BACKEND": backend, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = [sys.executable, "-W", "error::UserWarning:streammetrics", str(PROGRAM)]
    done = subprocess.run(run, env=said, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_values_are_those_of_keras(found: Any) -> None:
    """In each epoch, weighted or not, of training and of validation, each from nothing."""
    history, evaluated, want = (found["fitted"][name] for name in ("history", "evaluated", "want"))
    pairs = {"our_accuracy": "accuracy", "our_loss": "loss_mean", "our_weighted_loss": "weighted_loss"}
    for ours, theirs in pairs.items():
        for prefix in ("", "val_"):
            assert len(history[prefix + ours]) == 3
            np.testing.assert_allclose(history[prefix + ours], history[prefix + theirs], rtol=2e-6)
        assert evaluated[ours] == pytest.approx(evaluated[theirs], rel=2e-6)
    assert history["val_our_auc"][-1] == evaluated["our_auc"] == want["auc"]
    assert evaluated["our_weighted_loss"] == pytest.approx(want["weighted"], rel=1e-7)
    assert evaluated["our_weighted_loss"] != pytest.approx(evaluated["our_loss"], rel=1e-3)
    assert want["rows"] == 600


def test_early_stopping(found: Any) -> None:
    """Training ends two epochs after the best one, by a compiled metric and by the callback."""
    for values in found["stopped"].values():
        assert len(values) < 60
        assert int(np.argmax(values)) == len(values) - 3


def test_classes(found: Any) -> None:
    for link in ("identity", "logit"):
        values = found["classes"][link]
        assert values["ours"] == pytest.approx(values["theirs"], rel=2e-6)
        assert values["right"] == pytest.approx(values["accuracy"], rel=2e-6)
    values = found["classes"]["indicators"]
    assert values["log_loss"] == pytest.approx(values["loss"], rel=2e-6)


def test_several_outputs(found: Any) -> None:
    assert {"buy_ours", "click_ours", "val_auc"} <= set(found["outputs"]["names"])
    assert found["outputs"]["found"] == found["outputs"]["want"]
    for name, (shown, own) in found["outputs"]["ctr"].items():
        assert shown == pytest.approx(own, rel=1e-6), f"{name} has the values of the other output"
    assert found["outputs"]["again"] == ["buy_auc", "buy_ctr"]


def test_the_values_of_each_output_have_names_of_their_own(found: Any) -> None:
    names = found["names"]
    for output, want in names["want"].items():
        assert names["ctr"][output] == pytest.approx([want, want], rel=1e-6)
    assert "the KerasMetric 'auc' is used 2 times in compile()" in names["shared"]
    assert "two metrics in compile() have the name 'click_auc'; pass name=" in names["equal"]


def test_the_callback_reads_further_columns_of_any_data(found: Any) -> None:
    for group_auc, want, loss, want_loss in found["grouped"]["found"]:
        assert group_auc == pytest.approx(want, abs=1e-3)  # another batch size may round scores otherwise
        assert loss == pytest.approx(want_loss, rel=1e-6)


def test_the_callback_says_that_it_stands_too_late(found: Any) -> None:
    assert found["order"]["said"].startswith("EarlyStopping monitors val_auc, which Evaluate writes")


def test_a_bad_batch_stops_training_and_is_forgotten(found: Any) -> None:
    assert "y_score: expected a probability in [0, 1]" in found["bad"]["said"]
    assert found["bad"]["rows"] == 600
    assert min(found["bad"]["again"]) > 0.5


def test_masked_steps_are_not_counted(found: Any) -> None:
    assert found["masked"]["found"] == pytest.approx(found["masked"]["want"], rel=1e-6)


def test_models_with_our_metric_are_saved(found: Any) -> None:
    saved = found["saved"]
    assert saved["pair"][0] == saved["pair"][1] > 0.5
    assert 0.5 < saved["first"] < 1
    assert saved["hand"] == 1.0


@pytest.mark.slow
def test_a_saved_model_is_loaded_in_a_fresh_process(backend: str, tmp_path: Path) -> None:
    """The classes of its metrics are known after an import, and Keras says so without it."""
    if backend != "torch":
        pytest.skip("the code is that of every backend; torch starts fastest")
    said = os.environ | {"KERAS_BACKEND": backend, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    path = str(tmp_path / "model.keras")

    def run(source: str) -> Any:
        return subprocess.run(
            [sys.executable, "-c", source, path], env=said, capture_output=True, text=True, timeout=900
        )

    made = run(
        "import sys, keras, streammetrics as sm\n"
        "from streammetrics.hooks.keras import KerasMetric\n"
        "model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, 'sigmoid')])\n"
        "metrics = [KerasMetric(sm.MetricCollection(sm.AUC(bits=12), sm.CTR()), name='ours', every=3)]\n"
        "model.compile('sgd', 'binary_crossentropy', metrics=metrics)\n"
        "model.save(sys.argv[1])\n"
    )
    assert made.returncode == 0, made.stderr[-3000:]
    load = (
        "import sys, keras, numpy as np\n"
        "model = keras.saving.load_model(sys.argv[1])\n"
        "values = model.evaluate(np.arange(8.0)[:, None], np.arange(8) % 2, verbose=0, return_dict=True)\n"
        "print(sorted(values), values['ours_ctr'])\n"
    )
    loaded = run("import streammetrics.hooks.keras\n" + load)
    assert loaded.stdout.splitlines()[-1:] == ["['loss', 'ours_auc', 'ours_ctr'] 0.5"], loaded.stderr[-3000:]
    alone = run(load)
    assert "Could not locate class 'KerasMetric'" in alone.stderr
    assert "streammetrics.hooks.keras" in alone.stderr


def test_steps_that_are_not_compiled(found: Any) -> None:
    eager, compiled = found["eager"]["found"]
    assert eager == pytest.approx(compiled, abs=1e-3)


def test_xla_is_refused(backend: str, found: Any) -> None:
    if backend != "tensorflow":
        pytest.skip("jit_compile=True is a problem of TensorFlow alone")
    assert "jit_compile=False" in found["compiled_by_xla"]["said"]


def test_a_generator_that_has_ended_is_no_validation_data(found: Any) -> None:
    """Its first epoch has values; of the second there would be those of no rows."""
    assert "validation_data= had no batch in this epoch" in found["ended"]["said"]
    assert found["ended"]["epochs"] == 1
