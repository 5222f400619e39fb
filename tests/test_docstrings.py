"""Every public thing has a docstring that says what it is, every metric one that says all, and every example runs."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import warnings
from pathlib import Path

import pytest

import streammetrics as sm

OWN = sorted(t for t, m in sm.METRICS.items() if m.__module__.startswith("streammetrics."))
ADAPTERS = ("streammetrics.engines.", "streammetrics.hooks.")
MODULES = [m.name for m in pkgutil.walk_packages(sm.__path__, "streammetrics.") if "__main__" not in m.name]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    if name.startswith(ADAPTERS):
        warnings.simplefilter("ignore", DeprecationWarning)  # what a framework says when it is loaded is its own
        _skip_without_framework(name)
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def _skip_without_framework(name: str) -> None:
    """An adapter imports its framework at the top: skip where that, and nothing of ours, is absent."""
    code = ast.parse(Path(importlib.util.find_spec(name).origin).read_text())
    found = [a.name for node in code.body if isinstance(node, ast.Import) for a in node.names]
    found += [node.module for node in code.body if isinstance(node, ast.ImportFrom) and not node.level]
    for module in found:
        pytest.importorskip(module.partition(".")[0])


@pytest.mark.parametrize("tag", OWN)
def test_metrics_say_everything(tag: str) -> None:
    metric = sm.METRICS[tag]
    text = inspect.getdoc(metric) or ""
    assert text.splitlines()[0].endswith(".")
    for section in ("Parameters\n---", "Notes\n---", "Examples\n---"):
        assert section in text
    assert metric.formula
    assert metric.cost
    assert metric.bound


def test_public_names_have_docstrings() -> None:
    for name, thing in vars(sm).items():
        if not name.startswith("_") and (inspect.isclass(thing) or inspect.isfunction(thing)):
            assert (inspect.getdoc(thing) or "").strip(), name
