"""The tables are judged by their reader, and tell what is written in them."""

from __future__ import annotations

import tomllib
from dataclasses import fields

import pytest

import streammetrics as sm
from streammetrics.guide import tables
from streammetrics.guide.tables import PeerLine, find_peer_lines, format_expression, load_lines, parse_table
from streammetrics.metrics.families import FAMILIES
from tests.peers.data import MAKERS, NAMES

SMALL = """
[[sklearn.roc_auc_score]]
ours = "AUC()"
data = "binary_scores"
[[sklearn.roc_auc_score]]
arguments = "max_fpr=0.1"
ours = "AUC(max_fpr=0.1)"
data = "binary_scores"
[[torchmetrics.BinaryCalibrationError]]
arguments = "n_bins=15, norm='l1'"
ours = "ExpectedCalibrationError(n_bins=15)"
data = "binary_scores"
note = "p = 1 is in the last bin here"
differs = true
[[sklearn.roc_curve]]
ours = "ROCCurve()"
data = "own"
read = "[0]"
ours_read = ".fpr"
[[sklearn.silhouette_score]]
why = "feature-space clustering: needs all pairs of rows"
"""


def test_a_table_is_read() -> None:
    found = parse_table(tomllib.loads(SMALL))
    assert [line.name for line in found] == ["roc_auc_score"] * 2 + ["roc_curve", "silhouette_score"] + [
        "BinaryCalibrationError"
    ]
    assert found[1] == PeerLine("sklearn", "roc_auc_score", "max_fpr=0.1", "AUC(max_fpr=0.1)", "binary_scores")
    assert found[-1].differs
    assert found[3].why


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[[sklern.x]]\nwhy = 'a'", "no peer is called sklern"),
        ("[sklearn.x]\nwhy = 'a'", r"is written \[\[sklearn.x\]\]"),
        ("[[sklearn.x]]\nwy = 'a'", "has no wy"),
        ("[[sklearn.x]]\npeer = 'keras'\nwhy = 'a'", "has no peer"),
        ("[[sklearn.x]]", "either ours or why"),
        ("[[sklearn.x]]\nours = 'AUC()'\ndata = 'own'\nwhy = 'a'", "either ours or why"),
        ("[[sklearn.x]]\nours = 'AUC()'", "data is one of"),
        ("[[sklearn.x]]\nours = 'AUC()'\ndata = 'clicks'", "not 'clicks'"),
        ("[[sklearn.x]]\nours = 'AUC('\ndata = 'own'", "ours is not Python"),
        ("[[sklearn.x]]\narguments = '0.1'\nours = 'AUC()'\ndata = 'own'", "arguments is not Python"),
        ("[[sklearn.x]]\nread = '[0'\nours = 'AUC()'\ndata = 'own'", "read is not Python"),
        ("[[sklearn.x]]\nours = 'AUC()'\ndata = 'own'\ndiffers = true", "says how, in note"),
        ("[[sklearn.x]]\nours = 'AUC()'\ndata = 'own'\ndiffers = 'yes'", "differs is a truth value"),
        ("[[sklearn.x]]\nours = 'AUC()'\ndata = 'own'\nnote = 3", "note is a text"),
        ("[[sklearn.x]]\nwhy = 'a'\ndata = 'own'", "nothing else but arguments"),
    ],
)
def test_what_the_format_has_not_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_table(tomllib.loads(text))


def test_the_shipped_tables_are_read_once_and_hold_no_line_twice() -> None:
    assert load_lines() is load_lines()
    keys = [(line.peer, line.name, line.arguments, line.data, line.read) for line in load_lines()]
    assert not {f"{key}" for key in keys if keys.count(key) > 1}
    assert [line for found in map(find_peer_lines, tables.PEERS) for one in found.values() for line in one] == sorted(
        load_lines(), key=lambda line: (list(tables.PEERS).index(line.peer), line.name.lower())
    )


def test_each_family_has_its_file_and_it_is_shipped() -> None:
    folder = tables.resources.files("streammetrics") / "guide" / "peers"
    families = [family.__name__.rpartition(".")[2] for family in FAMILIES]
    assert {file.name for file in folder.iterdir()} == {f"{family}.toml" for family in families}


@pytest.mark.parametrize("peer", tables.PEERS)
def test_what_stands_for_a_name_can_be_made(peer: str) -> None:
    for line in load_lines():
        if line.ours and line.peer == peer:
            assert eval(format_expression(line.ours), {"sm": sm, **NAMES}) is not None, line.name


def test_kinds_of_data_are_those_that_are_made() -> None:
    assert set(tables.DATA) == {*MAKERS, "own"}
    assert set(tables.SIZES) == set(NAMES)
    assert all(getattr(PeerLine("sklearn", "x", why="y"), field.name) is not None for field in fields(PeerLine))


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        ("AUC()", "sm.AUC()"),
        ("AUC(num_classes=C)", "sm.AUC(num_classes=C)"),
        ("Sliced([AUC(), CTR()], by='AUC')", "sm.Sliced([sm.AUC(), sm.CTR()], by='AUC')"),
        ("Quantile(q=tuple(np.arange(3)))", "sm.Quantile(q=tuple(np.arange(3)))"),
    ],
)
def test_what_is_written(ours: str, expected: str) -> None:
    assert format_expression(ours) == expected
