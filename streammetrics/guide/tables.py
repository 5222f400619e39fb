"""What other libraries call their metrics, and what stands for each here: the tables of `peers/`, a file per family."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

__all__ = ["DATA", "PEERS", "PeerLine", "lines", "of_peer", "parse", "written"]

PEERS = {
    "sklearn": "scikit-learn",
    "torchmetrics": "torchmetrics",
    "torcheval": "torcheval",
    "keras": "Keras",
    "river": "river",
    "ranx": "ranx",
    "trec_eval": "trec_eval",
    "torchrec": "torchrec",
    "tfma": "TFMA",
    "recbole": "RecBole",
}
"""Libraries by their key, as they are spelled."""

DATA = (
    *("binary_scores", "binary_logits", "binary_decisions"),
    *("class_scores", "class_decisions", "label_scores", "label_decisions"),
    *("numbers", "positive_numbers", "number_outputs", "ranking_binary", "ranking_graded"),
    *("labelings", "ratings", "vectors", "values", "totals", "keys", "groups", "own"),
)
"""What a line is tried on; "own" by a test of its family."""

SIZES = ("C", "L", "np")
"""What an expression may name that is not ours: how many classes and labels there are, and numpy."""


@dataclass(frozen=True)
class PeerLine:
    """A name of a peer, with some of its arguments, and what stands for it; or why nothing does.

    Parameters
    ----------
    peer, name : str
        A key of `PEERS`, and what the metric is called there.
    given : str
        Arguments of the peer, as Python keywords.
    ours : str
        The expression that stands for it, without `sm.`; empty where `why` says that it is not offered.
    data : str
        One of `DATA`.
    read, ours_read : str
        What is read from the results, such as "[1]" or ".tpr".
    note : str
        What differs, in a sentence.
    differs : bool
        Values are known to differ, and are not compared.
    why : str
        Why it is not offered.
    """

    peer: str
    name: str
    given: str = ""
    ours: str = ""
    data: str = ""
    read: str = ""
    ours_read: str = ""
    note: str = ""
    differs: bool = False
    why: str = ""

    def __post_init__(self) -> None:
        if fault := next(self._faults(), None):
            raise ValueError(f"{self.peer}.{self.name}{f' ({self.given})' if self.given else ''}: {fault}")

    def _faults(self) -> Iterator[str]:
        for field in fields(self):
            if not isinstance(getattr(self, field.name), str if field.name != "differs" else bool):
                yield f"{field.name} is a {'text' if field.name != 'differs' else 'truth value'}"
        if self.peer not in PEERS:
            yield f"no peer is called {self.peer}; there are {', '.join(PEERS)}"
        if bool(self.ours) == bool(self.why):
            yield "a line has either ours or why"
        if self.why and (self.data or self.read or self.ours_read or self.differs or self.note):
            yield "a line that says why has nothing else but given"
        if self.ours and self.data not in DATA:
            yield f"data is one of {', '.join(DATA)}, not {self.data!r}"
        if self.differs and not self.note:
            yield "a line that differs says how, in note"
        for what, text, form in (
            ("given", self.given, "f({})"),
            ("ours", self.ours or "x", "{}"),
            ("read", self.read, "x{}"),
            ("ours_read", self.ours_read, "x{}"),
        ):
            if not _is_code(what, form.format(text)):
                yield f"{what} is not Python as it has to be: {text!r}"


def _is_code(what: str, code: str) -> bool:
    try:
        made = ast.parse(code, mode="eval").body
    except SyntaxError:  # whoever wrote the table is told
        return False
    return what != "given" or (isinstance(made, ast.Call) and not made.args)


def parse(table: dict[str, Any]) -> list[PeerLine]:
    """Return the lines of one family's table; raise ValueError for what the format does not have."""
    found = []
    for peer, names in table.items():
        for name, rows in names.items():
            if not isinstance(rows, list):
                raise ValueError(f"{peer}.{name}: is written [[{peer}.{name}]], again for other arguments")
            for row in rows:
                if unknown := set(row) - {f.name for f in fields(PeerLine)} | set(row) & {"peer", "name"}:
                    raise ValueError(f"{peer}.{name}: a line has no {', '.join(sorted(unknown))}")
                found.append(PeerLine(peer, name, **row))
    return found


@cache
def lines() -> tuple[PeerLine, ...]:
    """Return the lines of all families, in the order of the libraries."""
    import tomllib  # here alone, so that importing the package does not load it

    found: list[PeerLine] = []
    for file in sorted((resources.files("streammetrics") / "guide" / "peers").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            found += parse(tomllib.loads(file.read_text(encoding="utf-8")))
    known = {key: i for i, key in enumerate(PEERS)}
    return tuple(sorted(found, key=lambda line: known[line.peer]))


def of_peer(peer: str) -> dict[str, list[PeerLine]]:
    """Return the lines of one library by name, sorted."""
    found: dict[str, list[PeerLine]] = {}
    for line in sorted((line for line in lines() if line.peer == peer), key=lambda line: line.name.lower()):
        found.setdefault(line.name, []).append(line)
    return found


def written(ours: str, prefix: str = "sm.") -> str:
    """Return an expression as a user writes it: `AUC()` as `sm.AUC()`."""
    free = {*SIZES, *dir(builtins)}
    names = [n for n in ast.walk(ast.parse(ours, mode="eval")) if isinstance(n, ast.Name) and n.id not in free]
    for name in sorted(names, key=lambda name: -name.col_offset):
        ours = ours[: name.col_offset] + prefix + ours[name.col_offset :]
    return ours
