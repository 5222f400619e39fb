"""The digest of a kernel: of everything that its machine code depends on.

The cache finds a compiled kernel by its digest. If the digest left out a constant, a changed constant would run the old
code and silently give wrong numbers. So a value that the digest cannot follow is refused.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import platform
import sys
from collections.abc import Callable, Hashable
from pathlib import Path
from types import BuiltinFunctionType, CodeType, EllipsisType, FunctionType, ModuleType, NoneType
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.registry import cpu_target

from . import _compiler

LIBRARIES = sys.stdlib_module_names | {"llvmlite", "numba", "numpy"}
"""Packages whose functions stand for themselves by name: their versions are part of the digest."""

STEPS: dict[Any, tuple[Callable[..., Any], ...]] = {}
"""Functions that kernels call and that numba replaces, with the functions that take their place."""


class UnfollowedError(TypeError):
    """A kernel uses a value whose changes its digest would not see."""


def kernel_digest(function: FunctionType, options: dict[str, Any], signature: object = None) -> str:
    """Return the digest of a kernel that is compiled for the types of a signature.

    Parameters
    ----------
    function : function
        The kernel.
    options : dict
        numba's options for it.
    signature : object, optional
        The types of its arguments; without them the digest is of no use as a key.

    Raises
    ------
    UnfollowedError
        If the kernel, or a function that it calls, uses a value of a kind that the digest does not know.
    """
    walk = Walk(function.__name__)
    walk.function(function)
    walk.options(options)
    walk.add("types", repr(signature), surroundings() if signature is not None else "")
    return walk.hash.hexdigest()


@functools.cache
def surroundings() -> str:
    """Describe what all kernels of a process are compiled with."""
    settings = {
        name: value
        for name, value in vars(numba.config).items()
        if name.isupper() and isinstance(value, (bool, int, float, str, NoneType))
    }
    for irrelevant in [name for name in settings if "THREADS" in name or name == "CACHE_DIR"]:
        del settings[irrelevant]
    return repr(
        (
            sys.version,
            sys.abiflags,
            importlib.util.MAGIC_NUMBER,
            platform.machine(),
            (np.__version__, numba.__version__, llvmlite.__version__),
            sorted(settings.items()),
            cpu_target.target_context.codegen().magic_tuple(),  # the processor and what it can do
            hashlib.sha256(Path(_compiler.__file__).read_bytes()).hexdigest(),
        )
    )


class Walk:
    """One walk over a kernel and all that it uses."""

    def __init__(self, kernel: str) -> None:
        self.hash = hashlib.sha256()
        self._kernel = kernel
        self._met: dict[Any, int] = {}

    def add(self, *facts: object) -> None:
        """Add facts whose `repr` is the same in every process."""
        self.hash.update(repr(facts).encode())

    def function(self, function: FunctionType) -> None:
        """Add a function: its code, the globals and closures that it names, and its defaults."""
        if function in self._met:
            self.add("met before", self._met[function])
            return
        self._met[function] = len(self._met)
        self._code(function.__code__, function.__doc__)
        self._global_names(function)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.value(name, cell.cell_contents)
        self.value("a default", function.__defaults__)
        self.value("a default", tuple(sorted((function.__kwdefaults__ or {}).items())))

    def _code(self, code: CodeType, doc: str | None = None) -> None:
        """Add what a function does; where it stands, and what its comments and docstring say, changes nothing."""
        self.add("code", code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self.add(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self.add(code.co_exceptiontable)
        documented = doc is not None and code.co_consts[:1] == (doc,)
        for constant in code.co_consts[1:] if documented else code.co_consts:
            self.value("a constant", constant)

    def _global_names(self, function: FunctionType) -> None:
        scope, names = function.__globals__, _names(function.__code__)
        for name in sorted(names & scope.keys()):
            value = scope[name]
            if isinstance(value, ModuleType) and not _is_library(value.__name__):
                for attribute in sorted(names & vars(value).keys()):
                    self.value(f"{name}.{attribute}", getattr(value, attribute))
            else:
                self.value(name, value)

    def options(self, options: dict[str, Any]) -> None:
        """Add options of numba; a compiler is added by its name, as its source is part of the surroundings."""
        self.add(sorted((name, getattr(value, "__qualname__", repr(value))) for name, value in options.items()))

    def value(self, name: str, value: Any) -> None:
        """Add a value that compiled code may contain."""
        if isinstance(value, (NoneType, bool, int, float, complex, str, bytes, EllipsisType)):
            self.add(name, type(value).__name__, value)
        elif isinstance(value, (tuple, frozenset)):
            self.add(name, type(value).__name__, len(value))
            for item in value if isinstance(value, tuple) else sorted(value, key=repr):
                self.value(name, item)
        elif isinstance(value, (np.ndarray, np.generic)):
            array = np.asarray(value)
            self._refuse_objects(name, array.dtype)
            self.add(name, type(value).__name__, array.dtype.str, array.shape, array.tobytes())
        elif isinstance(value, np.dtype):
            self.add(name, repr(value))
        elif isinstance(value, CodeType):
            self.add(name)
            self._code(value)
        else:
            self._called(name, value)

    def _called(self, name: str, value: Any) -> None:
        """Add what a kernel calls."""
        if not isinstance(value, Hashable):
            self._refuse(name, value)
        elif value in STEPS:
            self.add(name, "replaced")
            for step in STEPS[value]:
                self.value(name, step)
        elif hasattr(value, "py_func") and hasattr(value, "targetoptions"):
            self.add(name, "compiled")
            self.options(value.targetoptions)
            self.function(value.py_func)
        elif isinstance(value, numba.core.extending._Intrinsic):
            self.add(name, "intrinsic")
            self.function(value._defn)
        elif isinstance(value, (type, BuiltinFunctionType, ModuleType, np.ufunc, FunctionType)) and _is_library(
            getattr(value, "__module__", None) or value.__name__
        ):
            self.add(name, getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__))
        elif isinstance(value, numba.types.Type):
            self.add(name, repr(value))
        elif isinstance(value, FunctionType):
            self.add(name, "function")
            self.function(value)
        else:
            self._refuse(name, value)

    def _refuse_objects(self, name: str, dtype: np.dtype[Any]) -> None:
        if dtype.hasobject:
            self._refuse(name, dtype)

    def _refuse(self, name: str, value: object) -> None:
        raise UnfollowedError(
            f"kernel {self._kernel}: {name} is a {type(value).__name__}, whose changes the kernel cache would not see; "
            f"use a number, a tuple, an array or a function, or pass it as an argument"
        )


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in LIBRARIES


def _names(code: CodeType) -> set[str]:
    """Return the names in a function's code and in that of the functions within it."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names, inner))
