"""Layers import leftwards alone, and what only reads states loads neither numba nor an optional package."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import streammetrics as sm

ROOT = Path(sm.__file__).parent
KERNELS = [p for p in (ROOT / "kernels").glob("*.py") if p.stem != "__init__"]
OPTIONAL = ("numba", "pyarrow", "pandas", "polars", "torch", "matplotlib", "rich", "typer", "scipy", "sklearn")
WEAK_NAMES = {"utils", "helpers", "common", "manager", "base", "misc"}


def imported(path: Path, *, top: bool) -> set[str]:
    """Modules of ours that a file imports, by their first name below the package; at its top, or anywhere."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top else ast.walk(tree)
    depth = len(path.relative_to(ROOT).parts) - 1
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            if node.level == depth + 1:
                found |= {node.module.split(".")[0]} if node.module else {a.name for a in node.names}
            elif node.level == 0 and (node.module or "").startswith("streammetrics."):
                found.add((node.module or "").split(".")[1])
    return found


def test_kernels_import_nothing_of_ours() -> None:
    for path in KERNELS:
        assert not imported(path, top=False) - {"kernels"}, path


@pytest.mark.parametrize(
    ("folder", "never"),
    [
        ("states", {"metrics", "metric", "collection", "compose", "plan", "task", "io", "cli"}),
        ("metrics", {"collection", "compose", "plan", "task", "io", "cli"}),
        ("io", {"cli"}),
    ],
)
def test_layers_import_leftwards(folder: str, never: set[str]) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        assert not imported(path, top=False) & never, path


def test_the_core_does_not_import_what_is_optional() -> None:
    for path in [*ROOT.glob("*.py"), *(ROOT / "states").glob("*.py"), *(ROOT / "metrics").glob("*.py")]:
        if path.stem != "__main__":
            assert not imported(path, top=True) & {"io", "cli"}, path


def test_njit_is_said_in_one_place() -> None:
    for path in ROOT.rglob("*.py"):
        assert path.name == "_jit.py" or "njit(" not in path.read_text(), path


def test_names_say_something() -> None:
    assert not {p.stem for p in ROOT.rglob("*.py")} & WEAK_NAMES


def test_a_merge_server_needs_only_numpy() -> None:
    y, s = [0, 1, 0, 1], [0.1, 0.7, 0.2, 0.6]
    metrics = sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.F1()).update(y, s)
    slices = sm.Sliced(sm.AUC(bits=10), by="k", limit=1).update(y, s, k=["a", "b", "a", None])
    code = f"""
import sys, streammetrics as sm
for data in ({metrics.to_bytes()!r}, {slices.to_bytes()!r}):
    thing = sm.merge([data, sm.from_bytes(data)])
    thing.compute(), thing.table(), thing.digest()
loaded = [m for m in {OPTIONAL!r} if m in sys.modules]
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
