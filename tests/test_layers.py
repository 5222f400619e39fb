"""The shape of the package: layers import only leftwards, and a merge server needs only numpy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import streammetrics as sm

ROOT = Path(sm.__file__).parent

LAYERS = (
    "kernels",
    "errors settings exact table",
    "arrays convert encodable",
    "columns",
    "state keys",
    "states intake codec",
    "metric",
    "metrics opaque task",
    "plan",
    "collection",
    "compose inference merging",
    "bundle",
    "laws",
    "io engines",
    "integrations",
    "cli dashboard",
    "__init__ __main__",
)
"""From left to right; a module, or a folder of them, imports from its own place and those to its left."""

LATER = {("encodable", "codec"), ("codec", "opaque"), ("metric", "opaque")}
"""Imports from the right, inside a function: reading bytes needs the classes that it makes."""

NOT_ONLY_NUMPY = {"kernels/_jit.py": {"numba"}}
OPTIONAL = "numba llvmlite pandas polars pyarrow torch scipy sklearn rich typer hypothesis pytest jax tensorflow"

MODULES = sorted(ROOT.rglob("*.py"))
PLACE = {name: i for i, names in enumerate(LAYERS) for name in names.split()}


def parts(path):
    return path.relative_to(ROOT).with_suffix("").parts


def imports(path):
    """Yield the name of each module that a module imports, whole, and whether at its top."""
    package = ["streammetrics", *parts(path)][:-1]
    tree = ast.parse(path.read_text())
    inner = {n for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.Lambda)) for n in ast.walk(f)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node not in inner) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            found = [*base, *([node.module] if node.module else [])]
            names = [".".join(found)] if node.module else [".".join([*found, alias.name]) for alias in node.names]
            yield from ((name, node not in inner) for name in names)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: "/".join(parts(p)))
def test_a_module_imports_only_from_its_left(path):
    mine = parts(path)[0]
    assert mine in PLACE, f"say in LAYERS where {mine} belongs"
    for name, at_top in imports(path):
        home, _, rest = name.partition(".")
        theirs = (rest or "__init__").split(".")[0]
        if home != "streammetrics" or theirs == mine:
            continue
        late = not at_top and (mine, theirs) in LATER
        assert late or PLACE.get(theirs, 99) < PLACE[mine] or mine in ("cli", "__main__"), f"{mine} imports {name}"


def test_the_layers_of_the_design():
    order = ("kernels", "states", "metrics", "collection", "io", "cli")
    assert sorted(order, key=PLACE.__getitem__) == list(order)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: "/".join(parts(p)))
def test_names_say_what_is_inside(path):
    assert not {"utils", "util", "helpers", "common", "manager", "base"} & set(parts(path))


def test_njit_is_said_in_one_place():
    found = {
        "/".join(parts(path))
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in ("njit", "jit", "vectorize", "guvectorize"))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("numba", "llvmlite"))
        or (isinstance(node, ast.Import) and any(a.name.split(".")[0] in ("numba", "llvmlite") for a in node.names))
    }
    assert found == {"kernels/_jit"}


def test_there_is_no_fastmath_and_no_parallel():
    text = (ROOT / "kernels" / "_jit.py").read_text()
    assert '"fastmath": False' in text
    assert "parallel=True" not in text.replace("no parallel=True", "")


def run(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


LOADED = f"print(*[n for n in {OPTIONAL.split()!r} if n in sys.modules])"


def test_import_loads_only_numpy():
    assert run(f"import sys, streammetrics; {LOADED}") == []


def saved(folder):
    """Bytes of everything that can be saved, by two workers."""
    rng = np.random.default_rng(5)
    columns = {"y_true": rng.random(50) < 0.4, "y_score": rng.random(50), "k": rng.choice(["a", "b", "c"], 50)}
    own = {tag: cls() for tag, cls in sm.METRICS.items() if cls.__module__.startswith("streammetrics.")}
    metrics = sm.MetricCollection(own)
    makers = {"collection": metrics.copy, "auc": sm.AUC, "sliced": lambda: sm.Sliced(metrics, by="k", limit=2)}
    for name, make in makers.items():
        for worker in range(2):
            thing = make()
            read = thing.columns if hasattr(thing, "columns") else columns
            rows = {n: c[worker::2] for n, c in columns.items() if n in read or n == "k"}
            if name == "auc":
                del rows["k"]
            thing.update(rows)
            sm.save(thing, folder / f"{name}{worker}.smet")


MERGE = f"""
import sys, warnings
for name in {OPTIONAL.split()!r}:
    sys.modules[name] = None  # importing it raises
import streammetrics as sm
warnings.simplefilter("ignore")
folder = sys.argv[1]
for name in ("collection", "auc", "sliced"):
    total = sm.merge([f"{{folder}}/{{name}}0.smet", f"{{folder}}/{{name}}1.smet"])
    total = sm.from_bytes(total.to_bytes())
    total.compute(), repr(total), total.copy() == total
    if name != "auc":
        total.table().to_dict()
    if name == "sliced":
        total.total.compute(), total.other.compute(), total.top(1), total.select(total.keys[:1])
    else:
        total.bounds(), total.explain()
    print(name)
"""


def test_a_merge_server_needs_only_numpy(tmp_path):
    saved(tmp_path)
    assert run(MERGE, str(tmp_path)) == ["collection", "auc", "sliced"]


def test_check_metric_needs_neither_pytest_nor_data_frames():
    blocked = [n for n in OPTIONAL.split() if n not in ("numba", "llvmlite")]
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\nimport streammetrics as sm\n"
    assert run(code + "sm.check_metric(sm.CTR, examples=2); print('kept')") == ["kept"]
