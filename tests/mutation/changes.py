"""Random one-line changes (mutants) of the package's source.

`sample_mutants` returns the same mutants for the same seed and the same sources. It never changes imports, decorators,
type annotations, text, exception arguments or what obviously cannot change a result (`PASSIVE_KEYWORDS`, `HINTS`). It
also leaves out lines that delete files or end processes (`DANGEROUS`): a mutant of those could damage the machine. The
kernel compiler (`kernels/_*.py`) is not a kernel, and each change in it would compile everything again.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import itertools
import random
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FOLDERS = ("kernels", "statistics", "metrics", "state", "io", "cli")

BINARY = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
}
COMPARISONS = {
    ast.Lt: (r"<", "<="),
    ast.LtE: (r"<=", "<"),
    ast.Gt: (r">", ">="),
    ast.GtE: (r">=", ">"),
    ast.Eq: (r"==", "!="),
    ast.NotEq: (r"!=", "=="),
    ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"\bis\s+not\b", "is"),
    ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"\bnot\s+in\b", "in"),
}
COMMUTATIVE = {"min", "max", "minimum", "maximum", "add", "multiply", "fmin", "fmax", "logaddexp", "gcd", "isclose"}
PASSIVE_KEYWORDS = {"strict", "stacklevel", "maxsize", "daemon", "frozen", "slots", "kw_only", "flush"}
HINTS = {"fetch", "fetch_line", "collect", "sleep"}  # prefetches, garbage collection, pauses
DANGEROUS = re.compile(r"\b(rmtree|unlink|rmdir|removedirs|remove|rename|replace|kill|killpg|system|truncate)\b")
UNCHANGED_NAMES = {"__all__", "__slots__", "__version__"}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One replacement in one line of a file of the package.

    `start` and `end` are offsets in bytes, as those of `ast`. `scope` is the qualified name of the function around the
    change, or empty if the change is at the level of the module or of a class: it then acts on import.
    """

    number: int
    path: str
    line: int
    start: int
    end: int
    kind: str
    old: str
    new: str
    scope: str
    name: str

    def apply(self, source: bytes) -> bytes:
        """Return the source with this change."""
        return apply_all(source, [self])

    def diff(self, source: bytes) -> str:
        """Return the change as a unified diff."""
        before, after = (s.decode().splitlines(keepends=True) for s in (source, self.apply(source)))
        return "".join(difflib.unified_diff(before, after, f"a/{self.path}", f"b/{self.path}", n=2))


def apply_all(source: bytes, mutants: Iterable[Mutant]) -> bytes:
    """Return the source with several changes, each in a line of its own."""
    lines = source.split(b"\n")
    for mutant in mutants:
        line = lines[mutant.line - 1]
        assert line[mutant.start : mutant.end] == mutant.old.encode(), f"{mutant.path}:{mutant.line} is another line"
        lines[mutant.line - 1] = line[: mutant.start] + mutant.new.encode() + line[mutant.end :]
    return b"\n".join(lines)


def sample_mutants(root: Path, seed: int, count: int, folders: Iterable[str] = FOLDERS) -> list[Mutant]:
    """Return `count` random mutants of the package in `root`, an equal share of them in each folder.

    Each kind of change is as likely as any other, and each line where it is possible as any other such line.
    """
    folders = list(folders)
    chosen: list[Mutant] = []
    for k, folder in enumerate(folders):
        share = count // len(folders) + (k < count % len(folders))
        by_kind = defaultdict(list)
        for path in sorted((root / "streammetrics" / folder).rglob("*.py")):
            if folder == "kernels" and path.name.startswith("_"):
                continue
            for mutant in all_mutants(path.read_bytes(), path.relative_to(root).as_posix()):
                by_kind[mutant.kind].append(mutant)
        draw = random.Random(f"{seed}:{folder}")
        lines: set[tuple[str, int]] = set()
        while len(lines) < share:
            kinds = sorted(kind for kind, left in by_kind.items() if left)
            assert kinds, f"{folder} has only {len(lines)} lines to change"
            left = by_kind[draw.choice(kinds)]
            mutant = left.pop(draw.randrange(len(left)))
            if (mutant.path, mutant.line) not in lines and compiles((root / mutant.path).read_bytes(), mutant):
                chosen.append(dataclasses.replace(mutant, number=len(chosen) + 1))
                lines.add((mutant.path, mutant.line))
    return chosen


def compiles(source: bytes, mutant: Mutant) -> bool:
    """Tell whether the changed source compiles, and is another program."""
    changed = mutant.apply(source)
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(changed, mutant.path, "exec")
    except (SyntaxError, ValueError):
        return False
    return ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


def find_same(mutant: Mutant, source: bytes, other: bytes) -> Mutant | None:
    """Return the same change in another version of the file, or None if it has no such line in the same function."""

    def alike(text: bytes) -> list[Mutant]:
        return [m for m in all_mutants(text, mutant.path) if _fingerprint(m, text) == _fingerprint(mutant, source)]

    here, there = alike(source), alike(other)
    if len(here) != len(there):
        return None
    place = [m.line for m in here].index(mutant.line)
    return dataclasses.replace(there[place], number=mutant.number)


def _fingerprint(mutant: Mutant, source: bytes) -> tuple[Any, ...]:
    line = source.split(b"\n")[mutant.line - 1]
    indent = len(line) - len(line.lstrip())
    return mutant.scope, mutant.name, mutant.kind, mutant.old, mutant.new, mutant.start - indent, line.strip()


def all_mutants(source: bytes, path: str) -> Iterator[Mutant]:
    """Yield every change that could be chosen, in the order of the source."""
    finder = _Finder(source, path)
    finder.visit_body(ast.parse(source).body)
    yield from finder.found


class _Finder:
    """Walk over a module and collect its possible changes."""

    def __init__(self, source: bytes, path: str) -> None:
        self.lines = source.split(b"\n")
        self.path = path
        self.found: list[Mutant] = []
        self.names: list[str] = []
        self.function = 0  # how many of the names belong to functions
        self.bound: set[str] = set()
        self.top = ""

    # -- statements ------------------------------------------------------------------------------------------------------

    def visit_body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if not self.names:
                self.top = _bound_name(statement)
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal() | ast.Pass():
                pass
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.define(node)
            case ast.ClassDef():
                self.names.append(node.name)
                self.visit_body(node.body)
                self.names.pop()
            case ast.Raise():
                if "NotImplementedError" not in ast.unparse(node):
                    self.drop(node)
            case ast.Assert():
                self.expression(node.test)
            case ast.If() if "TYPE_CHECKING" in ast.unparse(node.test) or "__name__" in ast.unparse(node.test):
                pass
            case ast.Assign() if any(isinstance(t, ast.Name) and t.id in UNCHANGED_NAMES for t in node.targets):
                pass
            case ast.AnnAssign():
                if node.value is not None:
                    self.expression(node.value)
            case ast.Return():
                self.give_back(node)
            case _:
                if isinstance(node, ast.AugAssign) and type(node.op) in BINARY:
                    old, new = BINARY[type(node.op)]
                    self.between(node.target, node.value, re.escape(f"{old}="), f"{new}=", "operator")
                if self.function and self.droppable(node):
                    self.drop(node)
                self.children(node)

    def define(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if any("overload" in ast.unparse(d) or "abstractmethod" in ast.unparse(d) for d in node.decorator_list):
            return
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.expression(default)
        outer = self.bound
        self.bound = {a.arg for a in [*node.args.args, *node.args.kwonlyargs]}
        self.names.append(node.name)
        self.function += 1
        self.visit_body(node.body)
        self.function -= 1
        self.names.pop()
        self.bound = outer

    def droppable(self, node: ast.stmt) -> bool:
        match node:
            case ast.AugAssign() | ast.Break() | ast.Continue() | ast.Delete():
                return True
            case ast.Expr(value=ast.Call() as call):
                return _called(call) not in HINTS
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                return True
            case ast.Assign(targets=[ast.Name(id=name)]):
                again = name in self.bound
                self.bound.add(name)
                return again
        return False

    def drop(self, node: ast.stmt) -> None:
        if self.function and node.lineno == node.end_lineno:
            self.add(node, "pass", "statement")

    def give_back(self, node: ast.Return) -> None:
        value = node.value
        if value is None:
            return
        if value.lineno == value.end_lineno and not (isinstance(value, ast.Constant) and value.value is None):
            text = self.text(value)
            match value:
                case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                    self.add(value, f"not ({text})", "return")
                case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()) if not _textual(value):
                    self.add(value, f"-({text})", "return")
                case _:
                    self.add(value, "None", "return")
        self.expression(value)

    # -- expressions -----------------------------------------------------------------------------------------------------

    def children(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self.statement(child)
            elif isinstance(child, ast.expr):
                self.expression(child)
            elif not isinstance(child, ast.pattern | ast.arguments):
                self.children(child)

    def expression(self, node: ast.expr) -> None:
        match node:
            case ast.JoinedStr():
                return
            case ast.Constant():
                self.constant(node)
            case ast.BinOp() if type(node.op) in BINARY and not _textual(node):
                if not (isinstance(node.op, ast.BitOr) and (not self.function or _is_type(node))):
                    old, new = BINARY[type(node.op)]
                    self.between(node.left, node.right, re.escape(old), new, "operator")
            case ast.BoolOp():
                old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in itertools.pairwise(node.values):
                    self.between(left, right, rf"\b{old}\b", new, "operator")
            case ast.Compare():
                for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                    self.between(left, right, *COMPARISONS[type(op)], "comparison")
            case ast.UnaryOp(op=ast.Not()):
                self.unary(node, rb"not\b\s*", "not")
            case ast.UnaryOp(op=ast.USub()):
                self.unary(node, rb"-", "negation")
            case ast.Call():
                self.call(node)
                return
        self.children(node)

    def constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self.add(node, str(not value), "constant")
        elif isinstance(value, int):
            self.add(node, hex(value + 1) if self.text(node).lower().startswith("0x") else str(value + 1), "constant")
        elif isinstance(value, float):
            self.add(node, repr(value + 1), "constant")

    def unary(self, node: ast.UnaryOp, token: bytes, kind: str) -> None:
        line = self.lines[node.lineno - 1]
        found = re.compile(token).match(line, node.col_offset)
        if found:
            self.replace(node.lineno, found.start(), found.end(), "", kind)

    def call(self, node: ast.Call) -> None:
        name = _called(node)
        if name.endswith(("Error", "Warning", "warn", "TypeVar", "exception", "secho")):
            return
        arguments = node.args[1:] if name == "cast" else node.args
        if name not in COMMUTATIVE:
            for left, right in itertools.pairwise(arguments):
                one_line = left.lineno == right.end_lineno
                if one_line and not isinstance(left, ast.Starred) and not isinstance(right, ast.Starred):
                    self.swap(left, right)
        self.expression(node.func)
        for argument in arguments:
            self.expression(argument)
        for keyword in node.keywords:
            if keyword.arg not in PASSIVE_KEYWORDS:
                self.expression(keyword.value)

    def swap(self, left: ast.expr, right: ast.expr) -> None:
        line = self.lines[left.lineno - 1]
        middle = line[left.end_col_offset : right.col_offset]
        if middle.strip() == b"," and self.text(left) != self.text(right):
            new = self.text(right) + middle.decode() + self.text(left)
            self.replace(left.lineno, left.col_offset, right.end_col_offset or 0, new, "arguments")

    # -- edits -----------------------------------------------------------------------------------------------------------

    def text(self, node: ast.expr | ast.stmt) -> str:
        return self.lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()

    def add(self, node: ast.expr | ast.stmt, new: str, kind: str) -> None:
        if node.lineno == node.end_lineno:
            self.replace(node.lineno, node.col_offset, node.end_col_offset or 0, new, kind)

    def between(self, left: ast.expr, right: ast.expr, token: str, new: str, kind: str) -> None:
        if left.end_lineno != right.lineno:
            return
        begin = left.end_col_offset or 0
        found = re.search(token.encode(), self.lines[right.lineno - 1][begin : right.col_offset])
        if found:
            self.replace(right.lineno, begin + found.start(), begin + found.end(), new, kind)

    def replace(self, line: int, start: int, end: int, new: str, kind: str) -> None:
        text = self.lines[line - 1]
        if not DANGEROUS.search(text.decode()):
            scope = ".".join(self.names) if self.function else ""
            old = text[start:end].decode()
            self.found.append(Mutant(0, self.path, line, start, end, kind, old, new, scope, self.top))


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def _textual(node: ast.BinOp) -> bool:
    """Tell whether the operator joins or formats text."""
    sides = (node.left, node.right)
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides
    )


def _is_type(node: ast.BinOp) -> bool:
    """Tell whether the operator is the union of two types."""
    sides = [ast.unparse(s).rpartition(".")[2] for s in (node.left, node.right)]
    return (
        "None" in sides
        or all(s[:1].isupper() and not s.isupper() for s in sides)
        or sides[-1] in ("str", "int", "float")
    )


def _bound_name(node: ast.stmt) -> str:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.Assign(targets=[ast.Name(id=name), *_]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.Assign(targets=[ast.Tuple(elts=names)]):
            return ",".join(ast.unparse(n) for n in names)
    return ""
