"""A Hugging Face Trainer with our metrics: tiny models of no weights from anywhere, against scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("torch")

import torch
from sklearn import metrics as sk
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    EvalPrediction,
    Trainer,
    TrainingArguments,
)

import streammetrics as sm
from streammetrics.hooks.transformers import compute_metrics

ROWS, TOKENS = 70, 8


def config(labels: int, **more: Any) -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertConfig(vocab_size=30, max_position_embeddings=TOKENS, num_labels=labels, **sizes, **more)


def texts(labels: Any) -> list[dict[str, Any]]:
    ids = np.random.default_rng(0).integers(1, 30, (len(labels), TOKENS))
    return [{"input_ids": i, "labels": y} for i, y in zip(ids, labels, strict=True)]


def trainer(model: Any, folder: Path, rows: Any, metrics: Any, **more: Any) -> Any:
    said = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "dataloader_pin_memory": False, "seed": 0}
    said |= {"per_device_eval_batch_size": 16, "batch_eval_metrics": True, "logging_strategy": "no"}
    made = TrainingArguments(str(folder), **said | more)
    return Trainer(model=model, args=made, train_dataset=rows, eval_dataset=rows, compute_metrics=metrics)


def logits(model: Any, rows: Any) -> Any:
    ids = torch.tensor(np.stack([r["input_ids"] for r in rows]))
    with torch.no_grad():
        return model.eval()(input_ids=ids).logits.double()


@pytest.mark.parametrize("batched", [True, False])
def test_two_logits_of_a_binary_label(tmp_path: Path, batched: bool) -> None:
    torch.manual_seed(0)
    y = np.random.default_rng(1).integers(0, 2, ROWS)
    rows, model = texts(y), BertForSequenceClassification(config(2))
    ours = compute_metrics(sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.F1(threshold=0.5)), link="logit")
    run = trainer(model, tmp_path, rows, ours, batch_eval_metrics=batched)
    for _ in range(2):  # the second evaluation starts from nothing
        found = run.evaluate()
        assert ours.metrics["auc"].explain()["rows"] == ROWS
    p = torch.softmax(logits(model, rows), dim=1)[:, 1].numpy()
    assert found["eval_auc"] == pytest.approx(sk.roc_auc_score(y, p), abs=1e-12)
    assert found["eval_log_loss"] == pytest.approx(sk.log_loss(y, p), rel=1e-6)
    assert found["eval_f1"] == pytest.approx(sk.f1_score(y, p >= 0.5), abs=1e-12)


def test_training_keeps_the_best_model_by_our_metric(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rows = texts(np.random.default_rng(1).integers(0, 2, ROWS))
    ours = compute_metrics(sm.MetricCollection(sm.AUC()), link="logit")
    best = {
        "eval_strategy": "epoch",
        "save_strategy": "best",
        "metric_for_best_model": "auc",
        "greater_is_better": True,
    }
    run = trainer(BertForSequenceClassification(config(2)), tmp_path, rows, ours, num_train_epochs=3, **best)
    run.train()
    seen = [entry["eval_auc"] for entry in run.state.log_history if "eval_auc" in entry]
    assert len(seen) == 3
    assert run.state.best_metric == max(seen)


def test_classes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    y = np.random.default_rng(1).integers(0, 3, ROWS)
    rows, model = texts(y), BertForSequenceClassification(config(3))
    ours = {"loss": sm.LogLoss(num_classes=3, scale="logit"), "brier": sm.BrierScore(num_classes=3, scale="logit")}
    for metrics in (sm.MetricCollection(ours), sm.MetricCollection({"loss": sm.LogLoss(num_classes=3)})):
        found = trainer(model, tmp_path, rows, compute_metrics(metrics, link="logit")).evaluate()
        p = torch.softmax(logits(model, rows), dim=1).numpy()
        assert found["eval_loss"] != pytest.approx(0)
        want = sk.log_loss(y, p)
        assert dict(metrics.compute())["loss"] == pytest.approx(want, rel=1e-6)
    accuracy = compute_metrics(sm.Accuracy(num_classes=3), link="logit")
    found = trainer(model, tmp_path, rows, accuracy).evaluate()
    assert found["eval_accuracy"] == pytest.approx((p.argmax(axis=1) == y).mean())


def test_several_labels(tmp_path: Path) -> None:
    torch.manual_seed(0)
    y = np.random.default_rng(1).integers(0, 2, (ROWS, 3)).astype(np.float32)
    rows = texts(y)
    model = BertForSequenceClassification(config(3, problem_type="multi_label_classification"))
    found = trainer(model, tmp_path, rows, compute_metrics(sm.AUC(num_labels=3), link="logit")).evaluate()
    assert found["eval_auc"] == pytest.approx(sk.roc_auc_score(y, logits(model, rows).numpy()), abs=1e-12)


def test_tokens_without_those_that_are_padding(tmp_path: Path) -> None:
    torch.manual_seed(0)
    y = np.random.default_rng(1).integers(-1, 3, (ROWS, TOKENS))
    y[y == -1] = -100
    rows, model = texts(y), BertForTokenClassification(config(3))
    found = trainer(model, tmp_path, rows, compute_metrics(sm.Accuracy(num_classes=3), link="logit")).evaluate()
    scores = logits(model, rows).numpy()
    assert found["eval_accuracy"] == pytest.approx((scores.argmax(axis=2) == y)[y >= 0].mean(), abs=1e-12)


def test_regression_and_weights_of_the_inputs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    y = np.random.default_rng(1).normal(size=ROWS).astype(np.float32)
    y[3] = -100.0  # a number, not a label that is left out
    rows, model = texts(y), BertForSequenceClassification(config(1))
    metrics = compute_metrics(
        sm.R2(), link="identity", columns=lambda p: {"sample_weight": p.inputs["input_ids"][:, 0].float() / 8}
    )
    found = trainer(model, tmp_path, rows, metrics, include_for_metrics=["inputs"]).evaluate()
    weights = np.array([r["input_ids"][0] for r in rows]) / 8
    want = sk.r2_score(y, logits(model, rows)[:, 0].numpy(), sample_weight=weights)
    assert found["eval_r2"] == pytest.approx(want, rel=1e-5)


def batch(scores: Any, labels: Any) -> EvalPrediction:
    return EvalPrediction(torch.tensor(scores), torch.tensor(labels))


def test_half_precision_hidden_states_and_one_logit() -> None:
    ours = compute_metrics(sm.AUC(), link="logit")
    for dtype in (torch.bfloat16, torch.float16):
        pair = EvalPrediction(
            (torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=dtype), torch.zeros(2, 3)), torch.tensor([1, 0])
        )
        assert ours(pair, compute_result=True) == {"auc": 1.0}
    assert ours(batch([[0.5], [1.5]], [1, 0]), compute_result=True) == {"auc": 0.0}


def test_a_bad_batch_raises_and_leaves_nothing_for_the_next_evaluation() -> None:
    ours = compute_metrics(sm.LogLoss(), link="probability")
    assert ours(batch([0.5], [1]), compute_result=False) == {}
    with pytest.raises(sm.InvalidInputError, match="y_score: expected a probability"):
        ours(batch([1.5], [1]), compute_result=False)
    assert ours(batch([0.25, 0.25], [0, 0]), compute_result=True)["log_loss"] == pytest.approx(-np.log(0.75))
    ours(batch([0.5], [1]), compute_result=False)
    ours.reset()
    assert ours(batch([0.25, 0.25], [0, 0]), compute_result=True)["log_loss"] == pytest.approx(-np.log(0.75))
    with pytest.raises(TypeError, match="label_names"):
        ours(EvalPrediction(torch.zeros(2), (torch.zeros(2), torch.zeros(2))))
    with pytest.raises(ValueError, match="reads group"):
        compute_metrics(sm.GroupAUC(), link="logit")
