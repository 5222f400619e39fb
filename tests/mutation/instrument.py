"""Insert calls into the package that tell which test reaches which mutant (see `reach`)."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from mutation.changes import Mutant

COMPILED = ("kernels", "numerics")
Node = tuple[str, str]  # a module and a name that is bound in it


def instrument(root: Path, mutants: Iterable[Mutant], plugins: Path) -> dict[str, list[int]]:
    """Instrument the package in `root`, and return the numbers of the mutants in each kernel.

    A mutant at the level of a module or class that no kernel uses is not instrumented: it acts on import.
    """
    kernels = kernels_of(root, mutants)
    compiled = {number for numbers in kernels.values() for number in numbers}
    by_file = defaultdict(list)
    for mutant in mutants:
        if mutant.scope and mutant.number not in compiled:
            by_file[mutant.path].append(mutant)
    for path, inside in by_file.items():
        (root / path).write_bytes(insert_hits((root / path).read_bytes(), inside))
    init = root / "streammetrics" / "__init__.py"
    source = init.read_text()
    after = ast.parse(source).body[0].end_lineno or 0  # the docstring
    lines = source.splitlines(keepends=True)
    lines.insert(after, f"import sys as _sys\n_sys.path.append({str(plugins)!r})\n")
    init.write_text("".join(lines) + "\n__import__('mutation_reach').watch_kernels()\n")
    return kernels


def insert_hits(source: bytes, mutants: Iterable[Mutant]) -> bytes:
    """Insert a call of `hit` in a line of its own, before the statement that holds each mutant."""
    lines = source.split(b"\n")
    tree = ast.parse(source)
    before = defaultdict(list)
    for mutant in mutants:
        before[_statement_line(tree, lines, mutant)].append(mutant.number)
    for line in sorted(before, reverse=True):
        text = lines[line - 1]
        indent = text[: len(text) - len(text.lstrip())]
        numbers = ", ".join(map(str, before[line]))
        lines.insert(line - 1, indent + f"__import__('mutation_reach').hit({numbers})".encode())
    changed = b"\n".join(lines)
    compile(changed, "instrumented", "exec")
    return changed


def _statement_line(tree: ast.Module, lines: list[bytes], mutant: Mutant) -> int:
    """Return the line of the innermost statement around the mutant before which another statement can stand."""
    found, body = 0, tree.body
    while True:
        inner = [s for s in body if _first_line(s) <= mutant.line <= (s.end_lineno or 0)]
        if not inner:
            return found
        statement = inner[0]
        line = _first_line(statement)
        alone = not lines[line - 1][: statement.col_offset].strip()
        if alone and not lines[line - 1].lstrip().startswith(b"elif"):
            found = line
        body = list(_inner_statements(statement))


def _inner_statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements directly inside this one, through `except` and `case`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _inner_statements(child)


def _first_line(statement: ast.stmt) -> int:
    return min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])


# -- kernels -------------------------------------------------------------------------------------------------------------


def kernels_of(root: Path, mutants: Iterable[Mutant]) -> dict[str, list[int]]:
    """Return which mutants each kernel contains: "module:function" to their numbers."""
    uses, kernels = _uses(root)
    found = {}
    for kernel in kernels:
        reached, waiting = {kernel}, [kernel]
        while waiting:
            new = uses[waiting.pop()] - reached
            reached |= new
            waiting += new
        numbers = [m.number for m in mutants if any((m.path, name) in reached for name in m.name.split(","))]
        if numbers:
            found[f"{Path(kernel[0]).stem}:{kernel[1]}"] = numbers
    return found


def _uses(root: Path) -> tuple[dict[Node, set[Node]], list[Node]]:
    """Return the names that each function or constant of the compiled modules uses, and the kernels."""
    uses: dict[Node, set[Node]] = defaultdict(set)
    kernels: list[Node] = []
    for folder in COMPILED:
        for file in sorted((root / "streammetrics" / folder).glob("*.py")):
            path = file.relative_to(root).as_posix()
            tree = ast.parse(file.read_bytes())
            known: dict[str, Node] = {}
            for statement in tree.body:
                if isinstance(statement, ast.ImportFrom):
                    known |= _imported(statement, folder)
                else:
                    known |= {name: (path, name) for name in _bound_names(statement)}
            for statement in tree.body:
                used = {known[n.id] for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id in known}
                for name in _bound_names(statement):
                    uses[path, name] |= used
                    decorators = getattr(statement, "decorator_list", [])
                    if any(ast.unparse(d).startswith("kernel(") for d in decorators):
                        kernels.append((path, name))
                if isinstance(statement, ast.Expr) and isinstance(
                    statement.value, ast.Call
                ):  # replace_function(step, compiled)
                    for one in used:
                        uses[one] |= used - {one}
    return uses, kernels


def _imported(statement: ast.ImportFrom, folder: str) -> dict[str, Node]:
    module = (statement.module or "").split(".")
    if statement.level == 2 and len(module) == 2:
        folder, name = module
    elif statement.level == 1 and len(module) == 1:
        name = module[0]
    else:
        return {}
    path = f"streammetrics/{folder}/{name}.py"
    return {alias.asname or alias.name: (path, alias.name) for alias in statement.names}


def _bound_names(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef() | ast.ClassDef():
            return [statement.name]
        case ast.Assign():
            return [n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []
