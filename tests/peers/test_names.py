"""Every name of every peer is in a table, or apart by a rule; and the tables have no name that no peer has."""

from __future__ import annotations

import ast
import importlib.util
import tomllib
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path

import pytest
import sklearn.metrics

from streammetrics.cli.peers import TASK_PREFIXES
from streammetrics.guide.tables import PEERS, find_peer_lines, load_lines

KNOWN = tomllib.loads((Path(__file__).parent / "names.toml").read_text())
APART = KNOWN.pop("apart")
KNOWN["sklearn"] = {"metrics": sorted(sklearn.metrics.__all__), "calibration": ["calibration_curve"]}
NAMES = {peer: [name for part in parts.values() for name in part] for peer, parts in KNOWN.items()}
SOME = 6
"""Reasons for which names of a peer are not offered: what streaming cannot do even with a limit, or needs other input."""


def is_apart(peer: str, name: str) -> bool:
    return any(rule["peer"] == peer and fnmatchcase(name, one) for rule in APART for one in rule.get("names", ()))


def is_told(peer: str, name: str) -> bool:
    """Whether a table has the name, or those of the tasks below it."""
    return name in find_peer_lines(peer) or (
        peer == "torchmetrics" and any(task + name in find_peer_lines(peer) for task in TASK_PREFIXES)
    )


def test_every_peer_has_its_names() -> None:
    assert set(NAMES) == set(PEERS)
    assert all(rule["peer"] in PEERS and rule["why"] for rule in APART)


@pytest.mark.parametrize(("peer", "part"), [(peer, part) for peer in KNOWN for part in KNOWN[peer]])
def test_every_name_is_in_a_table(peer: str, part: str) -> None:
    missing = [name for name in KNOWN[peer][part] if not is_apart(peer, name) and not is_told(peer, name)]
    assert not missing, f"of {part} of {PEERS[peer]} no file of streammetrics/guide/peers has {', '.join(missing)}"


@pytest.mark.parametrize("peer", PEERS)
def test_no_table_has_a_name_that_the_peer_has_not(peer: str) -> None:
    assert not set(find_peer_lines(peer)) - set(NAMES[peer])


@pytest.mark.parametrize("peer", PEERS)
def test_little_is_not_offered(peer: str) -> None:
    told = [found for name, found in find_peer_lines(peer).items() if not is_apart(peer, name)]
    refused = {line.why for found in told for line in found if all(one.why for one in found)}
    assert len(refused) <= SOME, refused


def test_every_rule_of_what_is_apart_is_needed() -> None:
    for rule in APART:
        for one in rule.get("names", ()):
            assert any(fnmatchcase(name, one) for name in NAMES[rule["peer"]]), one
    both = [f"{line.peer}.{line.name}" for line in load_lines() if is_apart(line.peer, line.name) and not line.why]
    assert not both, "apart, and yet offered"


def installed(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: .ci/peers")


@pytest.mark.filterwarnings("ignore")  # of packages that import what others deprecate
class TestListsAreThoseOfThePackages:
    """Where a package is installed: a release with more names shows here."""

    def test_torchmetrics(self) -> None:
        installed("torchmetrics")
        parts = KNOWN["torchmetrics"]
        for part in set(parts) - {"aggregation"}:
            assert set(parts[part]) == set(import_module(f"torchmetrics.{part}").__all__)
        assert set(parts["aggregation"]) <= set(import_module("torchmetrics.aggregation").__dict__)
        root = Path(import_module("torchmetrics").__file__ or "").parent
        folders = {path.parent.name for path in root.glob("*/__init__.py")}
        elsewhere = {name for rule in APART for name in rule.get("packages", ())}
        assert folders == (set(parts) - {"aggregation"}) | elsewhere

    def test_torcheval(self) -> None:
        installed("torcheval")
        found = set(import_module("torcheval.metrics").__all__) - {"Metric", "functional"}
        assert found == set(NAMES["torcheval"])

    def test_keras(self, monkeypatch: pytest.MonkeyPatch) -> None:
        installed("keras")
        monkeypatch.setenv("KERAS_BACKEND", "torch")
        found = {name for name in dir(import_module("keras.metrics")) if not name.startswith("_")}
        assert found == set(NAMES["keras"])

    def test_river(self) -> None:
        installed("river")
        module = import_module("river.metrics")
        assert set(module.__all__) - {"base", "multioutput"} == set(KNOWN["river"]["metrics"])
        assert set(module.multioutput.__all__) - {"base"} == set(KNOWN["river"]["multioutput"])

    def test_ranx(self) -> None:
        installed("ranx")
        switch = import_module("ranx.metrics").metric_switch
        for name in NAMES["ranx"]:
            assert switch(name)

    def test_trec_eval(self) -> None:
        installed("pytrec_eval")
        assert set(import_module("pytrec_eval").supported_measures) == set(KNOWN["trec_eval"]["measures"])

    def test_tfma(self) -> None:
        installed("tensorflow_model_analysis")
        source = Path(import_module("tensorflow_model_analysis.metrics").__file__ or "").read_text()
        imports = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
        found = {name.name for node in imports for name in node.names if name.name[0].isupper()}
        assert found - {"Metric"} == set(NAMES["tfma"])

    def test_recbole(self) -> None:
        installed("recbole")
        module = import_module("recbole.evaluator.metrics")
        found = {name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__}
        assert found == set(NAMES["recbole"])
