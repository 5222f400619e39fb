"""Every line of the peers' tables is tried: the peer and ours on the same log. A peer that is not installed is skipped.

`.ci/peers` runs all of them in environments of their own.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.guide.tables import PeerLine, load_lines
from tests.peers.calls import CALLS, NEEDS, TOLERANCE
from tests.peers.data import MAKERS, NAMES, Data, data_of

TRIED = [line for line in load_lines() if line.ours and line.data != "own" and not line.differs]


def named(line: PeerLine) -> str:
    return f"{line.peer}.{line.name}({line.arguments}) on {line.data}"


def flat(value: Any) -> Iterator[float]:
    """The numbers of a result, in its order, whatever holds them."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from flat(one)
    else:
        yield from np.asarray(value, dtype=np.float64).ravel()


def of_peer(line: PeerLine, data: Data) -> Any:
    value = CALLS[line.peer](line.name, eval(f"dict({line.arguments})", NAMES.copy()), data)
    return eval(f"value{line.read}", {**NAMES, "value": value})


def of_ours(line: PeerLine, data: Data) -> Any:
    metric = eval(line.ours, {**vars(sm), **NAMES})
    value = metric.update(*data.given, **data.named).compute()
    return eval(f"value{line.ours_read}", {**NAMES, "value": value})


def compare(line: PeerLine) -> None:
    data = data_of(line.data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers warn of their own, and both of what is undefined
        expected, found = [*flat(of_peer(line, data))], [*flat(of_ours(line, data))]
    assert len(expected) == len(found), f"{expected} there, {found} here"
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE[line.peer], atol=TOLERANCE[line.peer])


@pytest.mark.parametrize("line", TRIED, ids=named)
def test_as_the_peer(line: PeerLine) -> None:
    skip_without(line.peer)
    compare(line)


def skip_without(peer: str) -> None:
    if peer not in NEEDS:
        pytest.skip("its kernels rarely load: the tests of its family have its formulas")
    if importlib.util.find_spec(NEEDS[peer]) is None:
        pytest.skip(f"{NEEDS[peer]} is not installed: .ci/peers")


def line(peer: str, name: str, ours: str, data: str, given: str = "", read: str = "") -> PeerLine:
    return PeerLine(peer, name, given, ours, data, read)


SURE = [  # of each peer something that is right beyond doubt, so that it is seen whether the run itself works
    line("sklearn", "roc_auc_score", "AUC()", "binary_scores"),
    line("sklearn", "precision_score", "Precision(threshold=None)", "binary_decisions"),
    line("sklearn", "log_loss", "LogLoss(num_classes=C)", "class_scores"),
    line("sklearn", "accuracy_score", "Accuracy(num_classes=C, threshold=None)", "class_decisions"),
    line("sklearn", "label_ranking_loss", "LabelRankingLoss(num_labels=L)", "label_scores"),
    line("sklearn", "mean_squared_error", "MSE()", "numbers"),
    line("sklearn", "ndcg_score", "NDCG(k=5)", "ranking_graded", "k=5"),
    line("torchmetrics", "MulticlassAUROC", "AUC(num_classes=C)", "class_scores", "num_classes=C"),
    line("torchmetrics", "RetrievalHitRate", "HitRate(k=2)", "ranking_binary", "top_k=2"),
    line("torchmetrics", "MeanAbsoluteError", "MAE()", "numbers"),
    line("torchmetrics", "MeanMetric", "Mean()", "values"),
    line("torcheval", "BinaryAUROC", "AUC()", "binary_scores"),
    line("torcheval", "MeanSquaredError", "MSE()", "numbers"),
    line("keras", "BinaryCrossentropy", "LogLoss()", "binary_scores"),
    line("keras", "Precision", "Precision(threshold=0.5)", "binary_scores"),
    line("river", "F1", "F1(threshold=None)", "binary_decisions"),
    line("river", "LogLoss", "LogLoss()", "binary_scores"),
    line("river", "CrossEntropy", "LogLoss(num_classes=C)", "class_scores"),
    line("river", "MAE", "MAE()", "numbers"),
    line("ranx", "ndcg", "NDCG(k=5)", "ranking_graded", "k=5"),
    line("ranx", "rbp", "RankBiasedPrecision(p=0.8)", "ranking_binary", "p=0.8"),
    line("trec_eval", "P", "PrecisionAtK(k=5)", "ranking_binary", "k=5"),
    line("trec_eval", "map", "MeanAveragePrecision()", "ranking_binary"),
    line("tfma", "MeanLabel", "CTR()", "binary_scores"),
    line("recbole", "Hit", "HitRate(k=3)", "ranking_binary", "k=3"),
    line("recbole", "RMSE", "RMSE()", "numbers"),
]


@pytest.mark.parametrize("line", SURE, ids=named)
def test_the_run_finds_what_is_equal_and_what_is_not(line: PeerLine) -> None:
    skip_without(line.peer)
    compare(line)
    with pytest.raises(AssertionError):
        compare(replace(line, ours_read=" + 1e-3"))


@pytest.mark.parametrize("kind", MAKERS)
def test_logs_are_what_their_names_say(kind: str) -> None:
    data = data_of(kind)
    columns = [*data.given, *data.named.values()]
    assert len({len(column) for column in columns}) == 1
    assert all((column == column.astype(np.float32)).all() for column in columns)
    if kind in ("class_scores", "vectors"):
        assert (data.given[-1].sum(axis=1) == 1).all()
    if kind.startswith("ranking"):
        truth, query = data.given[0], data.named["query"]
        assert all(truth[query == q].any() for q in set(query))
    again = data_of(kind)
    assert all((a == b).all() for a, b in zip(columns, [*again.given, *again.named.values()], strict=True))


def test_every_peer_but_one_is_called() -> None:
    assert {one.peer for one in SURE} == set(CALLS)
    assert set(CALLS) == set(NEEDS) == set(TOLERANCE)
