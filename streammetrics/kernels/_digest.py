"""The digest of a kernel: a hash of everything that its machine code depends on.

The cache finds a compiled kernel by its digest. If the digest left out a constant, old code would still run after a
change of the constant, and results would be silently wrong. So a kernel that uses a value of unknown type is rejected.
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
"""Packages whose functions enter the digest by name only, because the versions of these packages are part of it."""

STEPS: dict[Any, tuple[Callable[..., Any], ...]] = {}
"""For each Python function that is replaced when a kernel calls it, the functions that numba compiles instead."""


class UnfollowedError(TypeError):
    """Raised if a kernel uses a value that cannot enter its digest, so that changes to the value would be missed."""


def kernel_digest(function: FunctionType, options: dict[str, Any], signature: object = None) -> str:
    """Return the digest of a kernel compiled for a signature.

    Parameters
    ----------
    function : function
        The kernel.
    options : dict
        numba's options for the kernel.
    signature : object, optional
        The types of the kernel's arguments. If omitted, the call only serves to check the kernel, and the digest
        cannot be used as a cache key.

    Raises
    ------
    UnfollowedError
        The kernel, or a function that it calls, uses a value of a type that cannot be part of the digest.
    """
    builder = DigestBuilder(function.__name__)
    builder.add_function(function)
    builder.add_options(options)
    builder.add("types", repr(signature), describe_environment() if signature is not None else "")
    return builder.hash.hexdigest()


@functools.cache
def describe_environment() -> str:
    """Return a description of the environment in which kernels are compiled: versions, numba settings and processor."""
    settings = {
        name: value
        for name, value in vars(numba.config).items()
        if name.isupper() and isinstance(value, (bool, int, float, str, NoneType))
    }
    # The number of threads and the cache folder do not change the machine code.
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
            # The tuple describes the processor and its instruction sets.
            cpu_target.target_context.codegen().magic_tuple(),
            hashlib.sha256(Path(_compiler.__file__).read_bytes()).hexdigest(),
        )
    )


class DigestBuilder:
    """Builder of a hash of one kernel and of everything that its code depends on, such as functions and constants."""

    def __init__(self, kernel: str) -> None:
        self.hash = hashlib.sha256()
        self._kernel = kernel
        self._numbers: dict[Any, int] = {}

    def add(self, *facts: object) -> None:
        """Add the `repr` of each value to the hash. The `repr` must be the same in every process."""
        self.hash.update(repr(facts).encode())

    def add_function(self, function: FunctionType) -> None:
        """Add a function to the hash: its code, global variables, closure variables and default arguments."""
        # Functions may call each other recursively. To end the recursion, add only the number of a function that was
        # added before.
        if function in self._numbers:
            self.add("met before", self._numbers[function])
            return
        self._numbers[function] = len(self._numbers)
        self._add_code(function.__code__, function.__doc__)
        self._add_globals(function)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.add_value(name, cell.cell_contents)
        self.add_value("a default", function.__defaults__)
        self.add_value("a default", tuple(sorted((function.__kwdefaults__ or {}).items())))

    def _add_code(self, code: CodeType, doc: str | None = None) -> None:
        """Add the code of a function, without its docstring and line numbers, which do not change the machine code."""
        self.add("code", code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self.add(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self.add(code.co_exceptiontable)
        # The docstring is the first constant. A reworded docstring must not recompile the kernel.
        documented = doc is not None and code.co_consts[:1] == (doc,)
        for constant in code.co_consts[1:] if documented else code.co_consts:
            self.add_value("a constant", constant)

    def _add_globals(self, function: FunctionType) -> None:
        """Add the global variables that a function uses."""
        scope, names = function.__globals__, _names(function.__code__)
        for name in sorted(names & scope.keys()):
            value = scope[name]
            # If the value is a module of this project, add only the attributes that the function uses.
            if isinstance(value, ModuleType) and not _is_library(value.__name__):
                for attribute in sorted(names & vars(value).keys()):
                    self.add_value(f"{name}.{attribute}", getattr(value, attribute))
            else:
                self.add_value(name, value)

    def add_options(self, options: dict[str, Any]) -> None:
        """Add numba options.

        A compiler class is added only by its name, because `describe_environment` already contains its source.
        """
        self.add(sorted((name, getattr(value, "__qualname__", repr(value))) for name, value in options.items()))

    def add_value(self, name: str, value: Any) -> None:
        """Add a value that the compiled code may contain, such as a constant; `name` describes its origin."""
        if isinstance(value, (NoneType, bool, int, float, complex, str, bytes, EllipsisType)):
            self.add(name, type(value).__name__, value)
        elif isinstance(value, (tuple, frozenset)):
            self.add(name, type(value).__name__, len(value))
            for item in value if isinstance(value, tuple) else sorted(value, key=repr):
                self.add_value(name, item)
        elif isinstance(value, (np.ndarray, np.generic)):
            array = np.asarray(value)
            self._refuse_objects(name, array.dtype)
            self.add(name, type(value).__name__, array.dtype.str, array.shape, array.tobytes())
        elif isinstance(value, np.dtype):
            self.add(name, repr(value))
        elif isinstance(value, CodeType):
            self.add(name)
            self._add_code(value)
        else:
            self._add_callable(name, value)

    def _add_callable(self, name: str, value: Any) -> None:
        """Add a function, type or module that a kernel uses."""
        if not isinstance(value, Hashable):
            self._refuse(name, value)
        elif value in STEPS:
            self.add(name, "replaced")
            for step in STEPS[value]:
                self.add_value(name, step)
        elif hasattr(value, "py_func") and hasattr(value, "targetoptions"):
            self.add(name, "compiled")
            self.add_options(value.targetoptions)
            self.add_function(value.py_func)
        elif isinstance(value, numba.core.extending._Intrinsic):
            self.add(name, "intrinsic")
            self.add_function(value._defn)
        elif isinstance(value, (type, BuiltinFunctionType, ModuleType, np.ufunc, FunctionType)) and _is_library(
            getattr(value, "__module__", None) or value.__name__
        ):
            self.add(name, getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__))
        elif isinstance(value, numba.types.Type):
            self.add(name, repr(value))
        elif isinstance(value, FunctionType):
            self.add(name, "function")
            self.add_function(value)
        else:
            self._refuse(name, value)

    def _refuse_objects(self, name: str, dtype: np.dtype[Any]) -> None:
        if dtype.hasobject:
            self._refuse(name, dtype)

    def _refuse(self, name: str, value: object) -> None:
        raise UnfollowedError(
            f"kernel {self._kernel}: {name} is an object of class {type(value).__name__}, whose changes the kernel "
            f"cache cannot track; use a number, a tuple, an array or a function, or pass the value as an argument"
        )


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in LIBRARIES


def _names(code: CodeType) -> set[str]:
    """Return the names of globals and attributes in the code of a function and of its inner functions."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names, inner))
