"""How each peer is called: the value of one of its metrics on a log, by its name and arguments."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from tests.peers.data import DOCUMENTS, QUERIES, Data

NEEDS = {
    "sklearn": "sklearn",
    "torchmetrics": "torchmetrics",
    "torcheval": "torcheval",
    "keras": "keras",
    "river": "river",
    "ranx": "ranx",
    "trec_eval": "pytrec_eval",
    "tfma": "tensorflow_model_analysis",
    "recbole": "recbole",
}
"""What is imported for each; torchrec's are re-typed by the tests of their families, as its kernels rarely load."""

TOLERANCE = {
    **dict.fromkeys(("sklearn", "river", "ranx", "trec_eval", "recbole"), 1e-11),  # sums in float64
    **dict.fromkeys(("torchmetrics", "torcheval", "keras"), 3e-5),  # states in float32: 300 roundings of 6e-8
    "tfma": 1e-6,  # results in float64, predictions read as float32
}
"""Of a value, relative; and absolute, as most are near 1."""

Given = dict[str, Any]


def sklearn(name: str, given: Given, data: Data) -> Any:
    module = "sklearn.calibration" if name == "calibration_curve" else "sklearn.metrics"
    function = getattr(import_module(module), name)
    if name in ("dcg_score", "ndcg_score"):
        return function(*(column.reshape(QUERIES, DOCUMENTS) for column in data.given), **given)
    return function(*data.given, **given)


def tensors(data: Data, name: str) -> list[Any]:
    """The columns, predictions first; but the true one of two distributions is first there, too."""
    torch = import_module("torch")
    made = [torch.tensor(x.astype(np.float32) if x.dtype.kind == "f" else x) for x in data.given]
    return made if name.endswith("Divergence") else made[::-1]


def torchmetrics(name: str, given: Given, data: Data) -> Any:
    parts = ("classification", "regression", "retrieval", "aggregation", "clustering", "nominal")
    places = [import_module(f"torchmetrics.{part}") for part in parts]
    metric = next(getattr(place, name) for place in places if hasattr(place, name))(**given)
    known = {"query": "indexes", "group": "groups"}
    named = {known[role]: import_module("torch").tensor(x) for role, x in data.named.items()}
    metric.update(*(_encoded(x, given) for x in tensors(data, name)), **named)
    return metric.compute()


def _encoded(column: Any, given: Given) -> Any:
    """A column as these arguments ask for it: probabilities as logarithms, counts of raters as the choice of each."""
    if given.get("log_prob"):
        return column.log()
    if given.get("mode") == "probs":  # items x classes x raters
        rank = import_module("torch").arange(int(column.sum(1).max()))
        above = column.cumsum(1)[..., None]
        return ((rank < above) & (rank >= above - column[..., None])).float()
    return column


def torcheval(name: str, given: Given, data: Data) -> Any:
    metric = getattr(import_module("torcheval.metrics"), name)(**given)
    if name == "Throughput":
        for done in zip(*(column.tolist() for column in data.named.values()), strict=True):
            metric.update(*done)
        return metric.compute()
    columns = tensors(data, name)
    if "Entropy" in name:  # which multiplies labels
        columns = [column.float() for column in columns]
    return metric.update(*columns).compute()


def keras(name: str, given: Given, data: Data) -> Any:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    metric = getattr(import_module("keras.metrics"), name)(**given)
    metric.update_state(*(x.astype(np.float32) for x in data.given))
    return np.asarray(metric.result())


def river(name: str, given: Given, data: Data) -> Any:
    module = import_module("river.metrics")
    metric = getattr(module if hasattr(module, name) else module.multioutput, name)(**given)
    binary = data.kind.startswith("binary")
    for truth, *predicted in zip(*data.given, strict=True):
        of = bool if binary else _dictionary
        if data.kind == "binary_decisions":
            predicted = list(map(bool, predicted))
        metric.update(of(truth), *map(_dictionary, predicted))
    return metric.get()


def _dictionary(value: Any) -> Any:
    """A row of numbers as river has it, by the names of classes; a lone one is itself."""
    if isinstance(value, bool):
        return value
    return value.item() if np.ndim(value) == 0 else {i: one.item() for i, one in enumerate(value)}


def by_query(data: Data, column: int, of: Callable[[Any], Any]) -> dict[str, dict[str, Any]]:
    rows = data.given[column].reshape(QUERIES, DOCUMENTS)
    return {f"q{q:03}": {f"d{d:03}": of(rows[q, d]) for d in range(DOCUMENTS)} for q in range(QUERIES)}


def ranx(name: str, given: Given, data: Data) -> Any:
    module = import_module("ranx")
    qrels, run = module.Qrels(by_query(data, 0, int)), module.Run(by_query(data, 1, float))
    marks = {"k": "@{}", "p": "{}", "rel_lvl": "-l{}"}  # ndcg@10, rbp.80, map-l2
    spelled = [marks[key].format(f"{value:.2f}"[1:] if key == "p" else value) for key, value in given.items()]
    return module.evaluate(qrels, run, name + "".join(spelled))


def trec_eval(name: str, given: Given, data: Data) -> Any:
    """The mean over queries; of counts their sum, of what is geometric the exponential: as trec_eval prints them."""
    evaluator = import_module("pytrec_eval").RelevanceEvaluator
    arguments = [str(value) for key, value in given.items() if key != "relevance_level"]
    level = given.get("relevance_level", 1)
    judged = evaluator(by_query(data, 0, int), {".".join([name, *arguments])}, relevance_level=level)
    rows = list(judged.evaluate(by_query(data, 1, float)).values())
    found = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    if name.startswith("num_"):
        return [x.size if name == "num_q" else x.sum() for x in found.values()]
    means = [x.mean() for x in found.values()]
    return np.exp(means) if name.startswith("gm_") else means


def tfma(name: str, given: Given, data: Data) -> Any:
    config = import_module("tensorflow_model_analysis.proto.config_pb2")
    table = {"label": data.given[0], "prediction": list(data.given[1].astype(np.float32))}
    metrics = [config.MetricConfig(class_name=name, config=json.dumps(given))]
    made = config.EvalConfig(
        model_specs=[config.ModelSpec(label_key="label", prediction_key="prediction")],
        slicing_specs=[config.SlicingSpec()],
        metrics_specs=[config.MetricsSpec(metrics=metrics)],
    )
    frame = import_module("pandas").DataFrame(table)
    found = import_module("tensorflow_model_analysis").analyze_raw_data(frame, made)
    ((_, outputs),) = found.slicing_metrics
    return [value["doubleValue"] for value in outputs[""][""].values()]


def recbole(name: str, given: Given, data: Data) -> Any:
    torch = import_module("torch")
    metric = getattr(import_module("recbole.evaluator.metrics"), name)
    k = given.get("k", DOCUMENTS)
    truth, score = data.given
    if name in ("AUC", "MAE", "RMSE", "LogLoss"):
        holds = {"rec.score": torch.tensor(score), "data.label": torch.tensor(truth)}
    else:
        hit = np.take_along_axis(
            truth.reshape(QUERIES, DOCUMENTS), np.argsort(-score.reshape(QUERIES, DOCUMENTS), axis=1), axis=1
        )
        holds = {"rec.topk": torch.tensor(np.column_stack([hit[:, :k], hit.sum(axis=1)]))}
    config = {"topk": [k], "metric_decimal_place": 17}
    (value,) = metric(config).calculate_metric(holds).values()
    return value


CALLS: dict[str, Callable[[str, Given, Data], Any]] = {
    "sklearn": sklearn,
    "torchmetrics": torchmetrics,
    "torcheval": torcheval,
    "keras": keras,
    "river": river,
    "ranx": ranx,
    "trec_eval": trec_eval,
    "tfma": tfma,
    "recbole": recbole,
}
