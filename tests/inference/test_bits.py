"""Results have the same bits on every machine: nothing of libm, of numpy's loops for it, or of linear algebra."""

import ast
from pathlib import Path

import pytest

from streammetrics import inference

FILES = sorted(Path(inference.__file__).parent.glob("*.py"))
OF_MATH = {"sqrt", "fsum", "isnan", "isinf", "isfinite", "copysign", "ceil", "floor", "inf", "nan", "comb"}
OF_NUMPY = {
    "float64", "bool_", "array", "asarray", "full", "zeros", "arange", "where", "divide", "minimum", "maximum", "abs",
    "sqrt", "isnan", "isinf", "isfinite", "finfo", "flatnonzero", "count_nonzero", "argsort", "shape", "ndim", "errstate",
    "broadcast_to", "ascontiguousarray", "nan", "inf", "int64", "concatenate", "array_equal",
    "unique", "uint64", "frombuffer", "searchsorted",
    "append", "argmax", "bincount", "isin", "repeat", "split",
    "add",  # along the first axis, one after the other: `jackknife.sum_shards`
}  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_only_operations_that_are_the_same_everywhere(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.MatMult))), node.lineno
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            known = {"math": OF_MATH, "np": OF_NUMPY}.get(node.value.id)
            assert known is None or node.attr in known, (node.lineno, node.attr)
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"sum", "mean", "dot", "std", "var", "prod", "cumsum"}, node.lineno
