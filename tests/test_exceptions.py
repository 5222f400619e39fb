"""An exception is not control flow: what a user's column, table or statistic raises comes out, and nothing is counted."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import plugin
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import columns_of, empty_copy
from streammetrics.kernels import checks

RAISED = [TypeError, KeyError, RuntimeError, AttributeError, ValueError, IndexError]
GOOD = {"y_true": np.array([0, 1]), "y_score": np.array([0.2, 0.7])}


class Column:
    """A column that cannot be read."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __len__(self) -> int:
        return 2

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self.error("of this column")


class Table(Mapping[str, Any]):
    """A table one of whose columns cannot be fetched."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __getitem__(self, name: str) -> Any:
        if name == "y_score":
            raise self.error("of this table")
        return GOOD[name]

    def __contains__(self, name: object) -> bool:
        return name in GOOD

    def __iter__(self) -> Iterator[str]:
        return iter(GOOD)

    def __len__(self) -> int:
        return 2


def things() -> list[Any]:
    return [
        sm.AUC(),
        sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.GroupAUC()),
        sm.Sliced(sm.AUC(), by="k"),
        sm.MetricCollection(sm.Task(sm.AUC(), where="w")),
    ]


@pytest.mark.parametrize("error", RAISED)
def test_of_columns_and_tables(error: type[Exception]) -> None:
    beside = {"group": [1, 2], "k": ["a", "b"], "w": [1, 1]}
    for thing in things():
        more = {n: c for n, c in beside.items() if n in columns_of(thing)}
        for _ in range(2):  # before a plain batch, and after it
            before = thing.digest()
            with pytest.raises(error, match="of this column"):
                thing.update(GOOD | more | {"y_score": Column(error)})
            with pytest.raises(error, match="of this column"):
                thing.update(**(GOOD | more | {"y_true": Column(error)}))
            if not more:
                with pytest.raises(error, match="of this table"):
                    thing.update(Table(error))
            assert thing.digest() == before
            thing.update(GOOD | more)


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("method", ["steps", "derive_columns", "check_rows", "absorb"])
def test_of_statistics(error: type[Exception], method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise error("of this statistic")

    with plugin.imported():
        metric = plugin.Median() if method == "absorb" else sm.LogLoss()
        columns = {"value": [1.0, 2.0]} if method == "absorb" else GOOD
        columns = {n: c for n, c in (columns | GOOD).items() if n in columns_of(metric)}
        for thing in (
            empty_copy(metric),
            sm.MetricCollection(empty_copy(metric)),
            sm.Sliced(empty_copy(metric), by="k"),
        ):
            # Lists are prepared, so that every method is called.
            table = {n: list(c) for n, c in columns.items()}
            table |= {"k": ["a", "b"]} if isinstance(thing, sm.Sliced) else {}
            before = thing.digest()
            with monkeypatch.context() as patch:
                patch.setattr(type(metric.make_state()), method, broken)
                with pytest.raises(error, match="of this statistic"):
                    thing.update(table)
            assert thing.digest() == before
            thing.update(table)


def test_of_kernels() -> None:
    """A call with arguments that a kernel does not take raises; it does not compile and try again."""
    kernel = checks.find_bad_label
    kernel(np.zeros(3, np.uint8))
    known = set(kernel.dispatcher.signatures)
    with pytest.raises(TypeError, match="No matching definition"):
        kernel(np.zeros(6, np.uint8)[::2])
    assert set(kernel.dispatcher.signatures) == known


@pytest.mark.slow
def test_every_handler_says_why() -> None:
    """Nothing is caught silently: a handler raises, or a comment in it or above it says why it does not."""
    silent = []
    for path in sorted(Path(sm.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ExceptHandler) and not any(isinstance(n, ast.Raise) for n in ast.walk(node)):
                said = lines[node.lineno - 2 : node.body[-1].end_lineno]
                if not any("#" in line for line in said):
                    silent.append(f"{path.name}:{node.lineno}")
    assert not silent
