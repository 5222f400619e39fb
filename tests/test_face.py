"""The package's face: families beside flat names, and what is meant by a name that is not there."""

from __future__ import annotations

import importlib
import inspect
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import streammetrics as sm
from streammetrics.guide.suggest import ABBREVIATIONS, normalize_name
from streammetrics.guide.tables import format_expression
from streammetrics.metrics.families import FAMILIES
from tests.small_peers import small_peers  # noqa: F401

OWN = [m for m in sm.extend.METRICS.values() if m.__module__.startswith("streammetrics.")]


def test_families_are_beside_the_flat_names() -> None:
    shown = dir(sm)
    assert {"AUC", "NDCG", "MetricCollection", "compare", "__version__"} <= set(shown)
    modules = {name for name in shown if isinstance(getattr(sm, name), ModuleType)}
    families = {family.__name__.rpartition(".")[2] for family in FAMILIES}
    assert modules - {"__builtins__"} == {*families, "extend", "results"}
    assert all(getattr(sm, family.__name__.rpartition(".")[2]) is family for family in FAMILIES)


def test_a_family_shows_its_metrics_alone() -> None:
    found = [name for family in FAMILIES for name in dir(family)]
    assert sorted(found) == sorted(m.__name__ for m in OWN)
    assert "NDCG" in dir(sm.ranking)
    assert sm.ranking.NDCG is sm.NDCG
    assert all(getattr(sm, name) is getattr(family, name) for family in FAMILIES for name in dir(family))


def test_all_that_is_shown_is_there_and_can_be_imported() -> None:
    assert all(hasattr(sm, name) for name in dir(sm))
    scope: dict[str, object] = {}
    exec("from streammetrics import *", scope)
    assert set(scope) - {"__builtins__"} == {name for name in dir(sm) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NE", "did you mean sm.NormalizedEntropy()?"),
        ("GAUC", "did you mean sm.GroupAUC()?"),
        ("MRR", "did you mean sm.MeanReciprocalRank()?"),
        ("MAP", "did you mean sm.MeanAveragePrecision()?"),
        ("HR", "did you mean sm.HitRate()?"),
        ("COPC", "did you mean sm.Calibration(inverse=True)?"),
        ("logloss", "did you mean sm.LogLoss?"),
        ("auc", "did you mean sm.AUC?"),
        ("Acuracy", "did you mean sm.Accuracy?"),
        ("Metriccollection", "did you mean sm.MetricCollection?"),
        (
            "roc_auc_score",
            "scikit-learn's roc_auc_score is sm.AUC() here "
            "(other arguments: streammetrics catalog --from sklearn roc_auc_score)",
        ),
        ("BinaryAUROC", "torchmetrics's BinaryAUROC is sm.AUC() here"),
        ("binary_auroc", "torchmetrics's BinaryAUROC is sm.AUC() here"),
        ("BinaryAUROCC", "torchmetrics's BinaryAUROC is sm.AUC() here"),
        ("MulticlassAUROC", "torchmetrics's MulticlassAUROC is sm.AUC(num_classes=C) here"),
        ("SlicedThings", "TFMA's SlicedThings is sm.Sliced(sm.CTR(), by='country') here"),
        ("silhouette_score", "scikit-learn's silhouette_score is not offered: feature-space clustering: needs all"),
    ],
)
@pytest.mark.usefixtures("small_peers")
def test_what_is_meant(name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(sm, name)
    assert str(raised.value).startswith(f"module 'streammetrics' has no attribute {name!r}; {meant}")
    assert raised.value.name == name


@pytest.mark.parametrize("name", ["xylophone", "_private", "__wrapped__", "__all_", "_repr_html_"])
def test_what_is_like_nothing(name: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(sm, name)
    assert str(raised.value) == f"module 'streammetrics' has no attribute {name!r}"


@pytest.mark.parametrize("name", ["NE", "GAUC", "MRR", "MAP", "HR", "roc_auc_score", "BinaryAUROC", "ndcg_score"])
def test_the_shipped_tables_know_what_is_often_typed(name: str) -> None:
    with pytest.raises(AttributeError, match=r"sm\.[A-Z]\w+\("):
        getattr(sm, name)


def test_asking_is_harmless() -> None:
    assert not hasattr(sm, "roc_auc_score")
    assert getattr(sm, "NE", None) is None
    assert pickle.loads(pickle.dumps(sm.AUC)) is sm.AUC
    with pytest.raises(AttributeError) as raised:
        _ = sm.NE
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert inspect.unwrap(sm) is sm  # type: ignore[arg-type]
    assert importlib.reload(importlib.import_module("streammetrics.guide")) is not None
    with pytest.raises(ImportError):
        exec("from streammetrics import roc_auc_score")


@pytest.mark.slow
def test_the_traceback_has_one_guess() -> None:
    done = subprocess.run([sys.executable, "-c", "import streammetrics as sm; sm.Acuracy"], capture_output=True)
    last = done.stderr.decode().strip().splitlines()[-1]
    assert last.endswith("Error: module 'streammetrics' has no attribute 'Acuracy'; did you mean sm.Accuracy?")


@pytest.mark.slow
def test_importing_counting_and_hasattr_read_no_table() -> None:
    code = """
import sys
import streammetrics as sm
sm.CTR().update([0, 1]).compute()
hasattr(sm, "roc_auc_score")
print("tomllib" in sys.modules)
from streammetrics.guide.tables import load_lines
print(load_lines.cache_info().currsize)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "0"]


def test_type_checkers_see_what_is_there_and_nothing_else() -> None:
    """`__getattr__` of a module, seen by one, would make every name right."""
    source = Path(sm.__file__).read_text()
    hidden = source.index("if not _typing.TYPE_CHECKING:")
    assert source.index("def __getattr__") > hidden
    assert source.index("__all__ =") > hidden


@pytest.mark.parametrize("short", ABBREVIATIONS)
def test_abbreviations_stand_for_what_there_is(short: str) -> None:
    assert short == normalize_name(short)
    assert eval(format_expression(ABBREVIATIONS[short]), {"sm": sm, "L": 3}) is not None
    assert short not in {normalize_name(name) for name in dir(sm)}, "it is found without"
