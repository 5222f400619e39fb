"""Layers import leftwards alone, and what only reads states loads neither numba nor an optional package."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import streammetrics as sm

ROOT = Path(sm.__file__).parent
OPTIONAL = ("pyarrow", "pandas", "polars", "torch", "jinja2", "matplotlib", "rich", "typer", "scipy", "sklearn")
WEAK_NAMES = {"utils", "helpers", "common", "manager", "base", "misc"}
FLOORS = 11

CORE = {"numerics", "errors"}
READS = {*CORE, "batch", "state", "statistics", "format", "reading"}
COUNTS = {*READS, "count", "collect"}
LAYERS: dict[str, set[str]] = {  # what each folder may import, beside itself
    "numerics": set(),
    "state": CORE,
    "format": {*CORE, "state"},
    "batch": {*CORE, "state"},
    "statistics": {*CORE, "batch", "state"},
    "reading": {*CORE, "state", "statistics"},
    "kernels": {"numerics"},
    "count": {*CORE, "batch", "state", "statistics", "kernels"},
    "collect": {*READS, "count"},
    "inference": COUNTS,
    "metrics": {*COUNTS, "inference"},
    "compose": {*COUNTS, "inference"},
    "io": {*COUNTS, "compose"},
    "laws": {*COUNTS, "compose"},
    "reports": {*COUNTS, "inference", "compose", "metrics", "__version__"},
    "engines": {*COUNTS, "compose", "metrics", "io"},
    "hooks": {*COUNTS, "compose", "metrics", "laws"},
    "guide": set(),
    "serve": {*COUNTS, "inference", "compose", "metrics", "io", "reports", "__version__"},
    "cli": {
        *COUNTS,
        "inference",
        "compose",
        "metrics",
        "io",
        "laws",
        "reports",
        "serve",
        "count",
        "guide",
        "__version__",
    },
}


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


class Imports(NamedTuple):
    """The imports of a module: wherever they stand, at its top, for types alone, and within functions."""

    everywhere: list[ast.AST]
    at_top: list[ast.AST]
    for_types: list[ast.AST]
    late: list[ast.AST]


@cache
def imports(path: Path) -> Imports:
    body = ast.parse(path.read_text())
    functions = [n for n in ast.walk(body) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    top = [n for n in body.body if not typing_only(n)]
    top += [inner for n in top if isinstance(n, (ast.If, ast.Try)) for inner in n.body]
    typing = [inner for n in body.body if typing_only(n) for inner in n.body]  # type: ignore[attr-defined]
    late = [inner for function in functions for inner in ast.walk(function)]
    return Imports(*map(only_imports, (ast.walk(body), top, typing, late)))


def only_imports(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    return [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]


@pytest.fixture(scope="module", autouse=True)
def all_modules_are_read() -> None:
    """Read all modules before the first test, which would take seconds otherwise."""
    for path in ROOT.rglob("*.py"):
        imports(path)


def typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def ours(path: Path, nodes: Iterable[ast.AST]) -> set[str]:
    """The modules of ours among imports, by their first name below the package."""
    depth = len(path.relative_to(ROOT).parts) - 1
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            if node.level == depth + 1:
                found |= {node.module.split(".")[0]} if node.module else {a.name for a in node.names}
            elif node.level:
                found.add(path.relative_to(ROOT).parts[0])
            elif node.module == "streammetrics":
                found |= {a.name for a in node.names}
            elif (node.module or "").startswith("streammetrics."):
                found.add((node.module or "").split(".")[1])
    return found


def others(path: Path, nodes: Iterable[ast.AST]) -> set[str]:
    """The packages of others among imports."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found - {"streammetrics", *sys.stdlib_module_names}


def test_every_folder_has_its_rule() -> None:
    assert {p.name for p in ROOT.iterdir() if p.is_dir() and p.name != "__pycache__"} == set(LAYERS)
    assert {p.name for p in ROOT.iterdir() if p.is_file()} == {
        "__init__.py", "__main__.py", "errors.py", "extend.py", "results.py", "py.typed",
    }  # fmt: skip


@pytest.mark.full_matrix
@pytest.mark.parametrize("folder", LAYERS)
def test_layers_import_leftwards(folder: str) -> None:
    for path in files(folder):
        assert not ours(path, imports(path).everywhere) - LAYERS[folder] - {folder}, path
        assert not ours(path, imports(path).at_top) - LAYERS[folder] - {folder}, path


@pytest.mark.full_matrix
@pytest.mark.parametrize("folder", sorted(set(LAYERS) - {"cli"}))
def test_nothing_of_ours_is_imported_late(folder: str) -> None:
    """An import within a function dodges a circle, or hides what a layer needs; the command line alone starts lazily."""
    for path in files(folder):
        allowed = {"count"} if path == ROOT / "count" / "drafts.py" else set()
        assert not ours(path, imports(path).late) - allowed, path


@cache
def below(folder: str) -> set[str]:
    return {name for path in files(folder) for name in ours(path, imports(path).everywhere)} & set(LAYERS) - {folder}


def floor(folder: str, above: tuple[str, ...] = ()) -> int:
    """How many floors there are up to this one."""
    assert folder not in above, f"a circle: {' <- '.join([*above, folder])}"
    return 1 + max((floor(name, (*above, folder)) for name in below(folder)), default=0)


def test_floors_and_no_circle() -> None:
    assert max(map(floor, LAYERS)) <= FLOORS


def test_modules_make_no_circle() -> None:
    """Not even within a folder, nor for types: each module can be understood with those it imports."""
    known = {path: str(path.relative_to(ROOT).with_suffix("")) for path in ROOT.rglob("*.py")}
    names = {name: path for path, name in known.items()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"a circle: {' <- '.join([*above, name])}"
        if name not in done:
            for other in modules(names[name], names):
                visit(other, (*above, name))
            done.add(name)

    for name in names:
        visit(name, ())


def modules(path: Path, names: dict[str, Path]) -> set[str]:
    """The modules of ours that a module imports at its top, those for types alone included."""
    found = set()
    for node in [*imports(path).at_top, *imports(path).for_types]:
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("streammetrics")):
            if node.level:
                folder = path.parent.relative_to(ROOT).parts
                parts = (*folder[: len(folder) - node.level + 1], *(node.module or "").split("."))
            else:
                parts = tuple((node.module or "").split("."))[1:]
            stem = "/".join(p for p in parts if p)
            given = [f"{stem}/{a.name}".lstrip("/") for a in node.names]
            found |= {n for n in [stem, *given] if n in names} - {str(path.relative_to(ROOT).with_suffix(""))}
    return found


def test_state_needs_numpy_alone() -> None:
    for folder in (
        "numerics",
        "state",
        "format",
        "statistics",
        "reading",
        "collect",
        "metrics",
        "compose",
        "inference",
    ):
        for path in files(folder):
            assert others(path, imports(path).at_top) <= {"numpy"}, path
    for folder in ("numerics", "state", "format"):
        for path in files(folder):
            assert others(path, imports(path).everywhere) <= {"numpy"}, path


def test_only_kernels_know_numba() -> None:
    for folder in set(LAYERS) - {"kernels"}:
        for path in files(folder):
            assert "numba" not in others(path, imports(path).everywhere), path


def test_the_face_does_not_import_what_is_optional() -> None:
    path = ROOT / "__init__.py"
    assert not ours(path, imports(path).at_top) & {"io", "cli", "count", "kernels"}


def test_njit_is_said_in_one_place() -> None:
    for path in ROOT.rglob("*.py"):
        assert path.name == "_jit.py" or "njit(" not in path.read_text(), path


def test_names_say_something() -> None:
    assert not {p.stem for p in ROOT.rglob("*.py")} & WEAK_NAMES


def loaded(code: str) -> list[str]:
    """Run a program; return what it has loaded that is not needed to read states."""
    check = f"\nimport sys; print(*[m for m in {('numba', 'llvmlite', *OPTIONAL)!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code + check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.cpu_limit(4)  # a process of its own
def test_importing_loads_only_numpy() -> None:
    assert (
        loaded("import streammetrics as sm; sm.AUC(), sm.MetricCollection(sm.AUC()), sm.Sliced(sm.AUC(), by='k')") == []
    )


@pytest.mark.cpu_limit(4)  # a process of its own
def test_reports_are_loaded_when_they_are_used() -> None:
    code = """
import sys
import streammetrics as sm
count = lambda: sum(name.startswith("streammetrics.reports") for name in sys.modules)
before = count()
assert {"plot", "report"} <= {*dir(sm)} & {*sm.__all__}
sm.plot, sm.report
print(before, count() > 10)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]


@pytest.mark.cpu_limit(4)  # a process of its own
def test_a_merge_server_needs_only_numpy() -> None:
    y, s, k = [0, 1, 0, 1], [0.1, 0.7, 0.2, 0.6], ["a", "b", "a", None]
    things = [
        sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.F1(), sm.KS()).update(y, s),
        sm.Sliced(sm.AUC(bits=10), by="k", limit=1).update(y, s, k=k),
        sm.Sliced(sm.Sliced([sm.CTR(), sm.LogLoss()], by="d"), by="k").update(y_true=y, y_score=s, k=k, d=[1, 2, 1, 2]),
        sm.GroupAUC().update(y, s, group=[1, 1, 2, 2]),
        sm.NDCG().update(y, s, query=[1, 1, 2, 2]),
        sm.Accuracy(labels="discover").update(["a", "b"], ["a", "a"]),
        sm.DistinctCount(precision=6).update(["a", "b"]),
        sm.Sliced(sm.DistinctSample(limit=16), by="k").update([*range(40)], k=["a", "b"] * 20),
        sm.PerUnit(unit="k").update(k=["a", "b"], exposed=[1, 1], outcome=[3, 4]),
    ]
    code = f"""
import warnings
import streammetrics as sm
warnings.simplefilter("ignore", sm.UndefinedMetricWarning)
for data in {[thing.to_bytes() for thing in things]!r}:
    for thing in (sm.merge([data, sm.from_bytes(data)]), sm.merge([data, data])):
        thing.compute(), thing.bounds(), thing.explain(), thing.digest(), thing.copy().merge(thing)
        if hasattr(thing, "table"):
            thing.table()
"""
    assert loaded(code) == []


def test_modules_have_at_most_600_lines() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in ROOT.rglob("*.py")}
    assert not {path: lines for path, lines in sizes.items() if lines > 600}


@pytest.mark.cpu_limit(4)  # a process of its own
def test_the_first_row_loads_kernels() -> None:
    found = set(loaded("import streammetrics as sm; sm.CTR().update([0, 1])"))
    assert found - {"scipy"} == {"numba", "llvmlite"}  # numba looks for scipy itself
