"""Metrics of other libraries and their equivalents in this package.

Both come from the tables in the folder `peers`, which contains one file for each family of metrics.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

__all__ = ["DATA", "PEERS", "PeerLine", "find_peer_lines", "format_expression", "load_lines", "parse_table"]

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
"""The names of other libraries, as those libraries write them, by the key that the tables use."""

DATA = (
    *("binary_scores", "binary_logits", "binary_decisions"),
    *("class_scores", "class_decisions", "label_scores", "label_decisions"),
    *("numbers", "positive_numbers", "number_outputs", "ranking_binary", "ranking_graded"),
    *("labelings", "ratings", "vectors", "values", "totals", "keys", "groups", "own"),
)
"""Kinds of data on which a test compares the two metrics of a line. A line with "own" has a test of its own instead."""

SIZES = ("C", "L", "np")
"""Names in the expressions of a table that are not metrics.

C stands for the number of classes, L for the number of labels, and np for numpy.
"""


@dataclass(frozen=True)
class PeerLine:
    """A line of a table: a metric of another library with some arguments, and its equivalent in this package.

    Parameters
    ----------
    peer : str
        The other library, as a key of `PEERS`.
    name : str
        The name of the metric in that library.
    arguments : str
        The arguments of the metric, as Python keywords.
    ours : str
        The equivalent expression, without the prefix `sm.`; empty if there is none.
    data : str
        The kind of data on which a test compares the two metrics: one of `DATA`.
    read, ours_read : str
        How to get the value from the result of the other library and of this package, such as "[1]" or ".tpr". Empty if
        the result is the value.
    note : str
        A sentence about the differences between the two metrics.
    differs : bool
        Whether the values of the two metrics are known to differ, so that tests do not compare them.
    why : str
        Why there is no equivalent; empty if there is one.
    """

    peer: str
    name: str
    arguments: str = ""
    ours: str = ""
    data: str = ""
    read: str = ""
    ours_read: str = ""
    note: str = ""
    differs: bool = False
    why: str = ""

    def __post_init__(self) -> None:
        if fault := next(self._faults(), None):
            raise ValueError(f"{self.peer}.{self.name}{f' ({self.arguments})' if self.arguments else ''}: {fault}")

    def _faults(self) -> Iterator[str]:
        for field in fields(self):
            if not isinstance(getattr(self, field.name), str if field.name != "differs" else bool):
                yield f"{field.name} is a {'text' if field.name != 'differs' else 'truth value'}"
        if self.peer not in PEERS:
            yield f"no peer is called {self.peer}; there are {', '.join(PEERS)}"
        if bool(self.ours) == bool(self.why):
            yield "a line has either ours or why"
        if self.why and (self.data or self.read or self.ours_read or self.differs or self.note):
            yield "a line that says why has nothing else but arguments"
        if self.ours and self.data not in DATA:
            yield f"data is one of {', '.join(DATA)}, not {self.data!r}"
        if self.differs and not self.note:
            yield "a line that differs says how, in note"
        for what, text, form in (
            ("arguments", self.arguments, "f({})"),
            ("ours", self.ours or "x", "{}"),
            ("read", self.read, "x{}"),
            ("ours_read", self.ours_read, "x{}"),
        ):
            if not _is_code(what, form.format(text)):
                yield f"{what} is not Python as it has to be: {text!r}"


def _is_code(what: str, code: str) -> bool:
    try:
        parsed = ast.parse(code, mode="eval").body
    except SyntaxError:
        # The caller reports a string that is not valid Python.
        return False
    return what != "arguments" or (isinstance(parsed, ast.Call) and not parsed.args)


def parse_table(table: dict[str, Any]) -> list[PeerLine]:
    """Convert the content of one table file (a family of metrics) to lines; raise ValueError for an invalid entry."""
    lines = []
    for peer, names in table.items():
        for name, rows in names.items():
            if not isinstance(rows, list):
                raise ValueError(f"{peer}.{name}: is written [[{peer}.{name}]], again for other arguments")
            for row in rows:
                if unknown := set(row) - {f.name for f in fields(PeerLine)} | set(row) & {"peer", "name"}:
                    raise ValueError(f"{peer}.{name}: a line has no {', '.join(sorted(unknown))}")
                lines.append(PeerLine(peer, name, **row))
    return lines


@cache
def load_lines() -> tuple[PeerLine, ...]:
    """Return the lines of all tables, sorted by library in the order of `PEERS`."""
    # Import `tomllib` only when it is needed, so that importing the package stays fast.
    import tomllib

    lines: list[PeerLine] = []
    for file in sorted((resources.files("streammetrics") / "guide" / "peers").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            lines += parse_table(tomllib.loads(file.read_text(encoding="utf-8")))
    order = {key: i for i, key in enumerate(PEERS)}
    return tuple(sorted(lines, key=lambda line: order[line.peer]))


def find_peer_lines(peer: str) -> dict[str, list[PeerLine]]:
    """Return the lines for one library, keyed by metric name in alphabetical order."""
    lines_by_name: dict[str, list[PeerLine]] = {}
    for line in sorted((line for line in load_lines() if line.peer == peer), key=lambda line: line.name.lower()):
        lines_by_name.setdefault(line.name, []).append(line)
    return lines_by_name


def format_expression(expression: str, prefix: str = "sm.") -> str:
    """Return an expression with a prefix before every name of the package: `AUC()` becomes `sm.AUC()`."""
    free = {*SIZES, *dir(builtins)}
    names = [n for n in ast.walk(ast.parse(expression, mode="eval")) if isinstance(n, ast.Name) and n.id not in free]
    for name in sorted(names, key=lambda name: -name.col_offset):
        expression = expression[: name.col_offset] + prefix + expression[name.col_offset :]
    return expression
