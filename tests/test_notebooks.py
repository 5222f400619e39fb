"""The notebooks of the guide run from top to bottom, and print what they say."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(str(resources.files("streammetrics") / "guide" / "notebooks"))
NEEDS = {"from_torchmetrics": ("torch", "torchmetrics")}


def texts(cells: list[dict[str, Any]]) -> list[str]:
    """What each cell of code prints and returns, as text."""
    found = []
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        text = ""
        for output in cell["outputs"]:
            part = output.get("text") or output.get("data", {}).get("text/plain", "")
            text += part if isinstance(part, str) else "".join(part)
        found.append(text.strip())
    return found


@pytest.mark.cpu_limit(120)  # a kernel of its own, which may import torch
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.ipynb")))
def test_a_notebook_prints_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    for module in NEEDS.get(name, ()):
        pytest.importorskip(module)
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # else the kernel may warn of frozen modules
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    said = texts(json.loads(text)["cells"])
    notebook = nbformat.reads(text, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert texts(notebook["cells"]) == said


def test_notebooks_are_small_and_name_no_machine() -> None:
    paths = sorted(FOLDER.glob("*.ipynb"))
    assert len(paths) == 3
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert len(text) < 200_000, path
        assert "/home/" not in text, path
        assert "/root/" not in text, path
