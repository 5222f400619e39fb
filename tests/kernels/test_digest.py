"""A kernel's digest changes with everything that its machine code depends on, and with nothing else."""

from __future__ import annotations

import functools
import types

import numba
import pytest

from streammetrics.kernels import _digest, _jit
from streammetrics.kernels._digest import UnfollowedError, describe_environment, kernel_digest

SOURCE = '''
import numpy as np
from numba.extending import intrinsic
from streammetrics.kernels._jit import choose_by_dtype, inline, outline, replace_function

NUMBER = 3
TABLE = np.array([1.0, 2.0, 3.0])
LIMIT = np.float32(0.5)

def deepest(x):
    """Add one."""
    return x + 1.0

@outline
def callee(x):
    return deepest(x)

def for_float32(z):
    return z * np.float32(2.0)

def for_float64(z):
    return z * 2.0

chosen = choose_by_dtype(float32=for_float32, float64=for_float64)

def replaced(x):
    return x

replace_function(replaced, lambda x: np.float64(x))

@inline
def calls_replaced(x):
    return replaced(x)

@intrinsic
def native(_, x):
    def generate(context, builder, signature, arguments):
        return builder.fadd(arguments[0], arguments[0])
    return x(x), generate

def with_closure(factor):
    def closed(x):
        return x * factor
    return closed

closed = inline(with_closure(2.0))

def unrelated(x):
    return x - 1.0

def function(x, out, most=4):
    for j in range(x.shape[0]):
        if x[j] < LIMIT:
            out[j] = callee(x[j]) + TABLE[j] * NUMBER + chosen(x[j]) + calls_replaced(x[j]) + native(x[j]) + closed(x[j])
    return 7
'''

CHANGES = {
    "bytecode": ("x[j] < LIMIT", "x[j] <= LIMIT"),
    "constant": ("return 7", "return 8"),
    "type of a constant": ("return 7", "return 7.0"),
    "default": ("most=4", "most=5"),
    "global number": ("NUMBER = 3", "NUMBER = 4"),
    "global numpy number": ("np.float32(0.5)", "np.float32(0.25)"),
    "type of a global number": ("np.float32(0.5)", "np.float64(0.5)"),
    "value in a global array": ("[1.0, 2.0, 3.0]", "[1.0, 2.0, 4.0]"),
    "dtype of a global array": ("[1.0, 2.0, 3.0]", "[1, 2, 3]"),
    "closure": ("with_closure(2.0)", "with_closure(4.0)"),
    "callee of a callee": ("x + 1.0", "x + 2.0"),
    "how a callee is compiled": ("@outline\ndef callee", "@inline\ndef callee"),
    "function for float32": ("np.float32(2.0)", "np.float32(4.0)"),
    "function for float64": ("z * 2.0", "z * 4.0"),
    "function that stands in": ("np.float64(x)", "np.float32(x)"),
    "intrinsic": ("builder.fadd", "builder.fsub"),
}

UNCHANGED = {
    "comment": ("NUMBER = 3", "NUMBER = 3  # a comment"),
    "line": ("NUMBER = 3", "\n\nNUMBER = 3"),
    "docstring": ("Add one.", "Return x plus one."),
    "unrelated function": ("x - 1.0", "x - 2.0"),
}


def define(source: str = SOURCE) -> types.FunctionType:
    scope = {"__name__": "streammetrics.kernels.an_example"}
    exec(compile(source, "an_example.py", "exec"), scope)
    return scope["function"]


def digest(source: str = SOURCE, options: dict[str, object] | None = None, signature: object = "types") -> str:
    return kernel_digest(define(source), options or _jit._KERNEL, signature)


def changed(old: str, new: str) -> str:
    assert old in SOURCE
    return SOURCE.replace(old, new)


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_the_code_changes_the_digest(what: str) -> None:
    assert digest(changed(*CHANGES[what])) != digest()


@pytest.mark.parametrize("what", UNCHANGED)
def test_what_does_not_change_the_code_does_not_change_the_digest(what: str) -> None:
    assert digest(changed(*UNCHANGED[what])) == digest()


def test_options_and_types_change_the_digest() -> None:
    assert digest(options=_jit._KERNEL | {"error_model": "python"}) != digest()
    assert digest(options=_jit._KERNEL | {"pipeline_class": _jit.StepCompiler}) != digest()
    assert digest(signature=(numba.types.float32[:],)) != digest(signature=(numba.types.float64[:],))


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        ("sys", "version", "3.99"),
        ("numba", "__version__", "0.0"),
        ("llvmlite", "__version__", "0.0"),
        ("np", "__version__", "0.0"),
        ("numba.config", "OPT", 1),
        ("_compiler", "__file__", _digest.__file__),
    ],
)
def test_what_all_kernels_are_compiled_with(
    owner: str, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *rest = owner.split(".")
    found = functools.reduce(getattr, rest, getattr(_digest, first))
    before = describe_environment()
    monkeypatch.setattr(found, name, value)
    assert describe_environment.__wrapped__() != before


def test_the_processor_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = describe_environment()
    codegen = type(_digest.cpu_target.target_context.codegen())
    monkeypatch.setattr(codegen, "magic_tuple", lambda _: ("x86_64", "another", ""))
    assert describe_environment.__wrapped__() != before


def test_where_kernels_are_kept_and_how_many_threads_run_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    before = describe_environment()
    monkeypatch.setattr(numba.config, "CACHE_DIR", "elsewhere")
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 99)
    assert describe_environment.__wrapped__() == before


@pytest.mark.parametrize(
    "value", ["[1, 2]", "{1: 2}", "object()", "np.array([None])", "type('C', (), {'x': 1})", "open"]
)
def test_what_cannot_be_followed_is_refused_when_the_kernel_is_declared(value: str) -> None:
    function = define(changed("NUMBER = 3", f"NUMBER = {value}"))
    known = len(_jit.KERNELS)
    if value == "open":  # a function of Python's own: its version is part of the digest
        kernel_digest(function, _jit._KERNEL)
        return
    with pytest.raises(UnfollowedError, match="kernel function: NUMBER is an object of class "):
        _jit.kernel(out=("out",))(function)
    assert len(_jit.KERNELS) == known


def test_a_module_of_ours_is_followed_to_what_is_used_of_it() -> None:
    first, second = (
        changed("NUMBER = 3", f"import types\nsettings = types.ModuleType('ours')\nsettings.NUMBER = {n}").replace(
            "* NUMBER", "* settings.NUMBER"
        )
        for n in (3, 4)
    )
    assert digest(first) != digest(second)


def test_the_digest_is_the_same_in_every_process() -> None:
    assert len({digest() for _ in range(3)}) == 1
