"""The public API is that of `public_api.txt`, so that each change of it is a decision.

`python tests/test_public_api.py` writes the file anew. `public_api.py` says what is in it; the page "What is stable" of
the guide says what users may rely on.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import public_api
import pytest

from streammetrics.cli.guide import load_pages

FILE = Path(__file__).with_name("public_api.txt")
EVAL = "JSON of eval --format json"


def read_sections() -> dict[str, list[str]]:
    """Return the lines of each section of the file."""
    parts = re.split(r"^# (.*)$", FILE.read_text(), flags=re.M)
    return {title: text.strip().splitlines() for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def compare(title: str, lines: list[str]) -> None:
    known = read_sections().get(title, [])
    changes = [f"- {line}" for line in known if line not in lines]
    changes += [f"+ {line}" for line in lines if line not in known]
    assert lines == known, (
        f"{title} has changed; if this is meant, write the file anew (python tests/test_public_api.py) and name the "
        "change in CHANGELOG.md:\n" + "\n".join(changes)
    )


@pytest.mark.cpu_limit(5)  # it parses the modules of all engines and frameworks
def test_the_api_is_that_of_the_file() -> None:
    found = dict(public_api.describe())
    assert [*found, EVAL] == list(read_sections())
    for title, lines in found.items():
        compare(title, lines)


@pytest.mark.slow
def test_the_fields_of_eval_are_those_of_the_file() -> None:
    compare(EVAL, public_api.list_eval_fields())


def test_the_guide_names_every_public_module() -> None:
    page = load_pages()["stability"]
    named = set(re.findall(r"`((?:engines|hooks|io|serve)(?:\.\w+)?)`", page))
    assert named == set(public_api.MODULES)


def test_the_guide_imports_only_public_modules() -> None:
    text = "\n".join(load_pages().values())
    imported = set(re.findall(r"^(?:>>> )?from streammetrics\.([\w.]+) import", text, flags=re.M))
    imported |= {f"engines.{name}" for name in re.findall(r"from streammetrics\.engines import (\w+)", text)}
    assert imported - {"engines.fold", "extend"} <= set(public_api.MODULES)


if __name__ == "__main__":
    sections = {**dict(public_api.describe()), EVAL: public_api.list_eval_fields()}
    FILE.write_text("\n".join("\n".join([f"# {title}", *lines, ""]) for title, lines in sections.items()))
    sys.stdout.write(f"{FILE}\n")
