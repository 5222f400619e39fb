"""What is tried on one backend of Keras, which is fixed for a process: the tests run this file once for each.

It prints what was found, as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np

import streammetrics as sm
from streammetrics.hooks.keras import Evaluate, KerasMetric

ROWS, FEATURES = 600, 5


def rows(seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, FEATURES)).astype("float32")
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-2 * x[:, 0]))).astype("int32")
    return x, y, (rng.integers(1, 9, ROWS) / 4).astype("float32")


def model(units: int = 1, activation: str | None = "sigmoid", loss: str = "binary_crossentropy", **how: Any) -> Any:
    keras.utils.set_random_seed(0)
    made = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(units, activation)])
    made.compile(keras.optimizers.SGD(0.5), loss, **how)
    return made


def fitted() -> dict[str, Any]:
    """Fit with weights and validation; the values of Keras and ours, and what the last epoch should have."""
    (x, y, w), (vx, vy, vw) = rows(), rows(1)
    y, vy = y[:, None], vy[:, None]  # Keras's own metric of the loss wants the shape of what the model puts out
    ours = KerasMetric(
        sm.MetricCollection({"our_accuracy": sm.Accuracy(), "our_auc": sm.AUC(), "our_loss": sm.LogLoss()})
    )
    weighted = KerasMetric(sm.LogLoss(), name="our_weighted_loss")
    made = model(
        metrics=["accuracy", keras.metrics.BinaryCrossentropy(name="loss_mean"), ours],
        weighted_metrics=[keras.metrics.BinaryCrossentropy(name="weighted_loss"), weighted],
    )
    seen = made.fit(x, y, sample_weight=w, validation_data=(vx, vy, vw), epochs=3, batch_size=64, verbose=0)
    evaluated = made.evaluate(vx, vy, sample_weight=vw, batch_size=100, verbose=0, return_dict=True)
    scores = made.predict(vx, verbose=0)[:, 0]
    want = {"auc": sm.AUC().update(vy, scores).compute(), "rows": ours.metrics["our_auc"].explain()["rows"]}
    want["weighted"] = sm.LogLoss().update(vy, scores, sample_weight=vw).compute()
    logs = {name: [float(v) for v in values] for name, values in seen.history.items()}
    return {"history": logs, "evaluated": {k: float(v) for k, v in evaluated.items()}, "want": want}


def stopped() -> dict[str, Any]:
    """Early stopping by a compiled metric, whose direction is known, and by the callback."""
    (x, y, _), (vx, vy, _) = rows(), rows(1)
    found = {}
    for name, callbacks in {
        "compiled": [keras.callbacks.EarlyStopping("val_gini", patience=2)],
        "evaluate": [
            Evaluate(sm.Gini(), (vx, vy)),
            keras.callbacks.EarlyStopping("val_gini", mode="max", patience=2),
        ],
    }.items():
        how = {"metrics": [KerasMetric(sm.Gini())]} if name == "compiled" else {}
        data = {"validation_data": (vx, vy)} if name == "compiled" else {}
        seen = model(**how).fit(x, y, epochs=60, verbose=0, callbacks=callbacks, **data)
        found[name] = [float(v) for v in seen.history["val_gini"]]
    return found


def classes() -> dict[str, Any]:
    """Three classes, of probabilities and of logits, with labels as a column of floats and as indicators."""
    x, _, _ = rows()
    y = np.digitize(x[:, 0], [-0.5, 0.5])
    found = {}
    loss = keras.losses.SparseCategoricalCrossentropy
    for link, activation in {"identity": "softmax", "logit": None}.items():
        raw = link == "logit"
        several = sm.MetricCollection({"ours": sm.LogLoss(num_classes=3), "right": sm.Accuracy(num_classes=3)})
        theirs = [keras.metrics.SparseCategoricalCrossentropy(name="theirs", from_logits=raw), "accuracy"]
        made = model(3, activation, loss(from_logits=raw), metrics=[*theirs, KerasMetric(several, link=link)])
        made.fit(x, y[:, None].astype("float32"), epochs=1, verbose=0)
        found[link] = made.evaluate(x, y[:, None].astype("float32"), verbose=0, return_dict=True)
    made = model(3, "softmax", "categorical_crossentropy", metrics=[KerasMetric(sm.LogLoss(num_classes=3))])
    found["indicators"] = made.evaluate(x, np.eye(3, dtype="float32")[y], verbose=0, return_dict=True)
    return {k: {n: float(v) for n, v in values.items()} for k, values in found.items()}


def outputs() -> dict[str, Any]:
    """Two outputs: names of their own, and the callback on one of them."""
    x, y, _ = rows()
    inputs = keras.Input((FEATURES,))
    heads = {name: keras.layers.Dense(1, "sigmoid", name=name)(inputs) for name in ("click", "buy")}
    made = keras.Model(inputs, heads)
    two = {name: KerasMetric(sm.MetricCollection(sm.AUC(), sm.CTR()), name=name) for name in heads}
    both = {name: [KerasMetric(sm.AUC(), name="ours"), two[name]] for name in heads}
    made.compile("sgd", dict.fromkeys(heads, "binary_crossentropy"), metrics=both)
    labels = {"click": y, "buy": 1 - y}
    evaluate = Evaluate(sm.AUC(), (x, labels), output="buy")
    seen = made.fit(x, labels, epochs=1, verbose=0, callbacks=[evaluate]).history
    want = sm.AUC().update(1 - y, made.predict(x, verbose=0)["buy"]).compute()
    ctr = {name: (float(seen[f"{name}_ctr"][0]), float(label.mean())) for name, label in labels.items()}
    again = KerasMetric.from_config(two["buy"].get_config()).result()
    return {"names": sorted(seen), "found": seen["val_auc"][0], "want": want, "ctr": ctr, "again": sorted(again)}


def names() -> dict[str, Any]:
    """Two outputs with a collection each and no name; one object for both; two metrics of one name."""
    x, y, _ = rows()
    inputs = keras.Input((FEATURES,))
    heads = {name: keras.layers.Dense(1, "sigmoid", name=name)(inputs) for name in ("click", "buy")}
    labels, shared = {"click": y, "buy": (np.arange(ROWS) % 4 == 0).astype("int32")}, KerasMetric(sm.AUC())

    def fit(metrics: Any, weighted: Any = None) -> Any:
        made = keras.Model(inputs, heads)
        made.compile("sgd", dict.fromkeys(heads, "binary_crossentropy"), metrics=metrics, weighted_metrics=weighted)
        try:
            return made.fit(x, labels, epochs=1, batch_size=200, verbose=0, validation_data=(x, labels)).history
        except Exception as error:  # noqa: BLE001 - each backend may wrap it
            return str(error)

    def pair() -> KerasMetric:
        return KerasMetric(sm.MetricCollection(sm.AUC(), sm.CTR()))

    seen = fit({name: [pair()] for name in heads})
    return {
        "ctr": {name: [float(seen[f"{p}{name}_ctr"][0]) for p in ("", "val_")] for name in heads},
        "want": {name: float(np.mean(label)) for name, label in labels.items()},
        "shared": fit({name: [shared] for name in heads}),
        "equal": fit({"click": [pair()]}, {"click": [pair()]}),
    }


def grouped() -> dict[str, Any]:
    """The callback on batches of dicts, with a column that only the metrics read, and weights."""
    x, y, w = rows()
    user = np.arange(ROWS) % 30
    inputs = {"x": keras.Input((FEATURES,), name="x"), "user": keras.Input((), dtype="int32", name="user")}
    made = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(inputs["x"]))
    made.compile("sgd", "binary_crossentropy")
    features = {"x": x, "user": user}
    batches = [
        ({k: v[i : i + 77] for k, v in features.items()}, y[i : i + 77], w[i : i + 77]) for i in range(0, ROWS, 77)
    ]

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return len(batches)

        def __getitem__(self, i: int) -> Any:
            return batches[i]

    found = []
    for data in ((features, y, w), batches, Batches()):
        gauc = Evaluate(sm.MetricCollection(sm.GroupAUC(), sm.LogLoss()), data, columns=lambda x: {"group": x["user"]})
        seen = made.fit(features, y, epochs=1, verbose=0, callbacks=[gauc]).history
        scores = made.predict(features, verbose=0)
        want = sm.MetricCollection(sm.GroupAUC(), sm.LogLoss())
        want.update(y, scores, sample_weight=w, group=user)
        found.append(
            [seen["val_group_auc"][0], want.compute()["group_auc"], seen["val_log_loss"][0], want.compute()["log_loss"]]
        )
    return {"found": found}


def order() -> dict[str, Any]:
    """A callback that looks for our value, and stands first."""
    x, y, _ = rows()
    early = keras.callbacks.EarlyStopping("val_auc", mode="max")
    other = keras.callbacks.EarlyStopping("loss")
    try:
        model().fit(x, y, epochs=1, verbose=0, callbacks=[early, Evaluate(sm.AUC(), (x, y))])
        said = "nothing"
    except ValueError as error:
        said = str(error)
    model().fit(x, y, epochs=1, verbose=0, callbacks=[other, Evaluate(sm.AUC(), (x, y)), early])
    return {"said": said}


def bad() -> dict[str, Any]:
    """Logits taken for probabilities stop training, with our message; the next training is as if nothing had been."""
    x, y, _ = rows()
    made = model(1, None, keras.losses.BinaryCrossentropy(from_logits=True), metrics=[KerasMetric(sm.AUC())])
    try:
        made.fit(x, y, epochs=1, verbose=0)
        said = "nothing"
    except Exception as error:  # noqa: BLE001 - each backend wraps it into an error of its own
        said = str(error)
    auc = KerasMetric(sm.AUC(), name="ours")
    again = model(metrics=[auc]).fit(x, y, epochs=2, verbose=0).history["ours"]
    return {"said": said, "again": [float(v) for v in again], "rows": auc.metrics.explain()["rows"]}


def masked() -> dict[str, Any]:
    """Steps of sequences that a mask leaves out."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 4, (64, 6))  # 0 is padding
    y = ((tokens > 1) & (rng.random((64, 6)) < 0.8)).astype("float32")[..., None]
    ours = KerasMetric(sm.MetricCollection(sm.AUC(), sm.LogLoss()))
    layers = [keras.layers.Embedding(4, 3, mask_zero=True), keras.layers.Dense(1, "sigmoid")]
    made = keras.Sequential(layers)
    made.compile("sgd", "binary_crossentropy", metrics=[ours])
    values = made.evaluate(tokens, y, verbose=0, return_dict=True)
    scores, keep = made.predict(tokens, verbose=0), tokens > 0
    want = sm.MetricCollection(sm.AUC(), sm.LogLoss()).update(y[keep], scores[keep]).compute()
    return {"found": {n: float(values[n]) for n in want}, "want": want}


def saved() -> dict[str, Any]:
    """A model with our metric, saved and loaded; a lone metric used by hand; values every few steps."""
    x, y, _ = rows()
    made = model(metrics=[KerasMetric(sm.AUC(bits=12), name="ours", every=3)])
    first = made.fit(x, y, epochs=1, batch_size=64, verbose=0).history["ours"][0]
    with tempfile.TemporaryDirectory() as folder:
        made.save(f"{folder}/model.keras")
        loaded = keras.saving.load_model(f"{folder}/model.keras")
    pair = [float(m.evaluate(x, y, verbose=0, return_dict=True)["ours"]) for m in (made, loaded)]
    hand = KerasMetric(sm.AUC(), link="logit")
    hand.update_state([[0], [1], [1]], [[-1.5], [0.5], [2.0]])
    return {"first": float(first), "pair": pair, "hand": float(hand.result())}


def compiled_by_xla() -> dict[str, Any]:
    x, y, _ = rows()
    try:
        model(metrics=[KerasMetric(sm.AUC())], jit_compile=True).fit(x, y, epochs=1, verbose=0)
        return {"said": "nothing"}
    except ValueError as error:
        return {"said": str(error)}


def eager() -> dict[str, Any]:
    """Steps that are not compiled, and several steps compiled as one, which torch refuses."""
    x, y, _ = rows()
    several = {"steps_per_execution": 3} if keras.backend.backend() != "torch" else {}
    found = []
    for how in ({"run_eagerly": True}, several):
        made = model(metrics=[KerasMetric(sm.AUC(), name="ours")], **how)
        found.append(float(made.fit(x, y, epochs=1, batch_size=200, verbose=0, shuffle=False).history["ours"][0]))
    return {"found": found}


def ended() -> dict[str, Any]:
    """Validation data that can be read once, over two epochs."""
    x, y, _ = rows()
    once = ((x[i : i + 200], y[i : i + 200]) for i in range(0, ROWS, 200))
    made = model()
    try:
        made.fit(x, y, epochs=2, verbose=0, callbacks=[Evaluate(sm.AUC(), once)])
    except ValueError as error:
        return {"said": str(error), "epochs": len(made.history.epoch)}
    return {"said": "nothing"}


RUNS = [fitted, stopped, classes, outputs, names, grouped, order, bad, masked, saved, eager, ended]

if __name__ == "__main__":
    if keras.backend.backend() == "tensorflow":
        RUNS.append(compiled_by_xla)
    wanted = [run for run in RUNS if not sys.argv[1:] or run.__name__ in sys.argv[1:]]
    print(json.dumps({run.__name__: run() for run in wanted}))
