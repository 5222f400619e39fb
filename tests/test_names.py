"""Names say what a thing is or does: no bare participle, no bare preposition, one owner for every public class name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import streammetrics as sm

ROOT = Path(sm.__file__).parent

PARTICIPLES = set(
    re.findall(
        r"\w+",
        """
    asked begun bought broken brought built called caught chosen done drawn driven fed felt forgotten found given gone
    heard held kept known laid learned led left lent lost made met named paid said seen sent shown sold sought spelled
    spent stood struck taken taught thought thrown told torn turned understood won worn written
    """,
    )
)
"""Words that do not say what was told, held or made. A verb and a noun do: `format_reason`, `dropped_rows`."""

ADVERBS = set(
    re.findall(
        r"\w+",
        """
    about above again alike alone among another apart around at before behind beside between beyond both but each here
    instead nothing once only over own plain same some then there through together under until upto what whatever when
    where whole with within without
    """,
    )
)

ENGLISH_ED = {"bed", "embed", "exceed", "feed", "indeed", "need", "proceed", "red", "seed", "shed", "speed", "weed"}

LOCALS = {"asked", "drawn", "given", "gone", "heard", "held", "made", "met", "said", "seen", "told"}
"""Participles that no local variable has for a name."""

# Names that somebody else chose: methods that a framework calls, and the record `about` of a metric.
ALLOWED = {"about", "completed", "iteration_completed", "epoch_completed"}

PUBLIC = {
    "collect/metric_container.py": {"only", "ordered"},
    "compose/aa.py": {"trusted"},
    "compose/checkpoint.py": {"done", "finished"},
    "compose/decayed.py": {"Decayed"},
    "compose/delta.py": {"added", "retracted"},
    "compose/sharded.py": {"Sharded", "whole"},
    "compose/sliced.py": {"Sliced", "left"},
    "compose/windowed.py": {"Windowed"},
    "engines/flink.py": {"merged"},
    "engines/polars.py": {"merged"},
    "engines/spark/run.py": {"Evaluated"},
    "hooks/deferred.py": {"Deferred"},
    "reading/about.py": {"About"},
}
"""Names that users type. They stay."""


def is_participle(word: str) -> bool:
    return word in PARTICIPLES or (word.endswith("ed") and "_" not in word and len(word) > 3 and word not in ENGLISH_ED)


def defined_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names of functions and classes that do not say what they do or are, and those of parameters and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            word = node.name.strip("_").lower()
            if word in ADVERBS or is_participle(word):
                yield node.name, node.lineno
        # An adjective is a good name of a flag or an array: `weighted`, `sorted`. The participles of the list are not.
        elif isinstance(node, ast.arg) and node.arg.strip("_") in PARTICIPLES:
            yield node.arg, node.lineno
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                name = (
                    field.target.id if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) else ""
                )
                if name.strip("_") in PARTICIPLES:
                    yield name, field.lineno
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.strip("_") in LOCALS:
            yield node.id, node.lineno


def module_says_nothing(path: Path, tree: ast.AST) -> bool:
    """Whether a module has a participle or an adverb for a name, and is not named after its class."""
    classes = {node.name.lower() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    word = path.stem.strip("_")
    return word not in classes | ALLOWED and (word in ADVERBS or is_participle(word))


@pytest.mark.full_matrix
@pytest.mark.parametrize("folder", sorted({p.relative_to(ROOT).parts[0] for p in ROOT.rglob("*.py")}))
def test_names_say_what_a_thing_is(folder: str) -> None:
    where = ROOT / folder
    found = []
    for path in sorted(where.rglob("*.py")) if where.is_dir() else [where]:
        tree = ast.parse(path.read_text())
        place = str(path.relative_to(ROOT))
        if path.name != "__init__.py" and module_says_nothing(path, tree):
            found.append(f"{place}: the module itself")
        found += [
            f"{place}:{line}: {name}"
            for name, line in defined_names(tree)
            if name not in ALLOWED | PUBLIC.get(place, set())
        ]
    assert not found, f"{len(found)} names:\n" + "\n".join(found)


def test_no_two_classes_share_a_name() -> None:
    """In a traceback a class stands without its module."""
    owners: dict[str, list[str]] = {}
    for path in ROOT.rglob("*.py"):
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE):
            owners.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert not {name: paths for name, paths in owners.items() if len(paths) > 1}


def test_help_texts_have_names_of_their_own() -> None:
    """A name that is assigned twice gives the first option the help text of the second."""
    names = [
        target.id
        for node in ast.parse((ROOT / "cli/help_texts.py").read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    assert len(names) == len(set(names))
