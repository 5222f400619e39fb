"""Every public thing has a docstring that says what it is, every metric one that says all, and every example runs."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
import warnings

import pytest

import streammetrics as sm
from streammetrics.collect.parameter_docs import settable_names

OWN = sorted(t for t, m in sm.extend.METRICS.items() if m.__module__.startswith("streammetrics."))
ADAPTERS = ("streammetrics.engines.", "streammetrics.hooks.")
MODULES = [m.name for m in pkgutil.walk_packages(sm.__path__, "streammetrics.") if "__main__" not in m.name]
CHECKS_EVERY_LAW = pytest.param("streammetrics.laws", marks=pytest.mark.slow)  # its example calls check_metric


@pytest.mark.filterwarnings("ignore:`torch.jit.* is deprecated:DeprecationWarning")  # of ignite's own imports
@pytest.mark.full_matrix
@pytest.mark.parametrize("name", [n if n != "streammetrics.laws" else CHECKS_EVERY_LAW for n in MODULES])
def test_examples_run(name: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a framework says when it is loaded is its own
            module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(ADAPTERS) or (error.name or "").startswith("streammetrics"):
            raise
        pytest.skip(f"{error.name} is not installed")
    if ">>>" in inspect.getsource(module):  # to look for examples in a module takes longer than to import it
        assert doctest.testmod(module).failed == 0


@pytest.mark.full_matrix
@pytest.mark.parametrize("tag", OWN)
def test_metrics_say_everything(tag: str) -> None:
    metric = sm.extend.METRICS[tag]
    text = inspect.getdoc(metric) or ""
    assert text.splitlines()[0].endswith(".")
    for section in ("Parameters\n---", "Notes\n---", "Examples\n---"):
        assert section in text
    assert metric.about.formula
    assert metric.about.bound
    assert metric.about.cost
    # The cost is declared once, and `help` shows it at the end of the notes.
    notes = text.partition("Notes\n-----\n")[2].partition("Examples\n---")[0]
    assert " ".join(notes.split()).endswith(f"Memory and time: {metric.about.cost}.")


@pytest.mark.full_matrix
@pytest.mark.parametrize("tag", OWN)
def test_metrics_describe_every_parameter(tag: str) -> None:
    """In full: not by a reference to another metric."""
    metric = sm.extend.METRICS[tag]
    section = (inspect.getdoc(metric) or "").partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    heads = [line.partition(" : ")[0] for line in section.splitlines() if not line.startswith(" ")]
    described = {name.strip() for head in heads for name in head.split(",")}
    assert described == settable_names(metric)
    assert not re.search(r"^ *As for", section, re.MULTILINE)


def test_public_names_have_docstrings() -> None:
    for name, thing in vars(sm).items():
        if not name.startswith("_") and (inspect.isclass(thing) or inspect.isfunction(thing)):
            assert (inspect.getdoc(thing) or "").strip(), name
