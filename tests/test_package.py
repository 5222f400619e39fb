"""The package has no file that nothing reads, and its metadata agree with the code. `.ci/jobs` checks the wheel itself."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import extra_examples
import pytest
from public_api import MODULES

import streammetrics as sm

ROOT = Path(sm.__file__).parent
CHECKOUT = Path(__file__).parent.parent
TEXTS = {".css", ".html", ".js", ".json", ".md", ".py", ".svg", ".toml"}
LOADED_BY_NAME = {
    "__main__": "python -m streammetrics",
    "serve.page.static": "the folder of files for browsers",
    "serve.page.templates": "the folder of templates",
}
"""Modules that no other module imports, although they are not public, and what uses them."""


@pytest.mark.slow
def test_every_data_file_is_named_in_another_file() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in ROOT.rglob("*") if path.suffix in TEXTS}
    data = [path for path in ROOT.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    assert len(data) > 50
    for path in data:
        # Pages, notebooks and tables of other libraries are named without their suffix.
        name = re.compile(rf"\b{re.escape(path.stem if path.suffix in ('.md', '.ipynb', '.toml') else path.name)}\b")
        assert path.name == "py.typed" or any(name.search(text) for other, text in texts.items() if other != path), path


@pytest.mark.slow
def test_every_module_is_imported_or_public() -> None:
    modules = {module_name(path): path for path in ROOT.rglob("*.py")}
    imported = {name for path in modules.values() for name in imported_names(path)}
    # States name the modules of kernels as text.
    unused = {name for name in modules if name not in imported and not name.startswith("kernels.")}
    assert unused - set(MODULES) == set(LOADED_BY_NAME)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(path: Path) -> set[str]:
    """Return the modules that a module imports, by their names below the package, and the packages above them."""
    folder = path.parent.relative_to(ROOT).parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".") if node.module else []
            if node.level:
                base = [*folder[: len(folder) - node.level + 1], *base]
            elif base[:1] == ["streammetrics"]:
                base = base[1:]
            else:
                continue
            for name in node.names:
                parts = [*base, name.name]
                found |= {".".join(parts[:i]) for i in range(len(parts) + 1)}
    return found


def test_every_extra_has_an_example() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert {*extra_examples.MODULES, *extra_examples.PROGRAMS} == set(project["optional-dependencies"])
    assert set(extra_examples.COMPANIONS) < {*extra_examples.MODULES, *extra_examples.PROGRAMS}


def test_a_release_has_a_section_of_the_changelog() -> None:
    text = (CHECKOUT / "CHANGELOG.md").read_text()
    assert ".dev" in sm.__version__ or re.search(rf"^## {re.escape(sm.__version__)}\b", text, flags=re.M)
