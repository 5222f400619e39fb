"""The one place that says njit.

Every kernel is compiled on the first call that needs it, once per dtype of its inputs, and kept on disk (`_cache`).
Inputs are typed read-only, so one compilation takes writable arrays and memory maps alike; the parameters named in
`out` are written. No fastmath, no fused multiply-add, no parallel=True: the bits must not depend on the machine.

A kernel allocates nothing: what it works in is `scratch` (module `_memory`) or an argument. So it is compiled without
numba's run-time (`_nrt`), whose counts of references, two atomic additions for a slice of an array, took up to a third
of the time.
"""

from __future__ import annotations

import fcntl
import functools
import inspect
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any, TypeVar

import numba
import numpy as np
from numba import types
from numba.extending import overload

from ..numerics import kernel_registry as compiled
from ..numerics.signal_safety import undivided
from ._cache import KernelCache, writable_folder
from ._compiler import KernelCompiler, StepCompiler, collector_paused, remember_operations
from ._digest import STEPS, kernel_digest

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": None,
    "fastmath": False,
    "_nrt": False,
    "no_cfunc_wrapper": True,
}
_KERNEL = _OPTIONS | {"pipeline_class": KernelCompiler}
_STEP = _OPTIONS | {"pipeline_class": StepCompiler, "no_cpython_wrapper": True}

_COMPILING = threading.RLock()
os.register_at_fork(before=_COMPILING.acquire, after_in_parent=_COMPILING.release, after_in_child=_COMPILING.release)
LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC

_patient = True
PATIENCE = 120.0  # seconds: several times what the longest kernel takes
SLOW = 1.0  # seconds of compiling after which the command line says so

_seconds = 0.0  # spent compiling so far

KERNELS: list[Kernel] = []
"""Every kernel of the package, for `streammetrics warmup` and for the tests that read the assembly."""


class BusyError(Exception):
    """Another process compiles the kernel that a call needs, and this one was told not to wait for it."""


@contextmanager
def impatient() -> Iterator[None]:
    """Raise BusyError rather than wait for what another process compiles: for those who have other work meanwhile."""
    global _patient
    _patient = False
    try:
        yield
    finally:
        _patient = True


def compilations() -> int:
    """Return how many kernels this process has compiled, rather than read from the cache."""
    return sum(sum(kernel.dispatcher.stats.cache_misses.values()) for kernel in KERNELS)


@contextmanager
def _reported_if_slow() -> Iterator[None]:
    """Tell the user, if somebody has said how, when this process has compiled for more than a second in all."""
    global _seconds
    if not compiled.reports_slow():
        yield
        return
    timer = threading.Timer(max(SLOW - _seconds, 0.0), compiled.report_slow)
    timer.daemon = True
    began = time.monotonic()
    with suppress(RuntimeError):  # the interpreter ends, and starts no more threads
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _seconds += time.monotonic() - began


def inline(function: F) -> F:
    """Compile a step that kernels call in their inner loops, and the plain functions that it calls itself."""
    return _step(function, forceinline=True)


def outline(function: F) -> F:
    """Compile a step as a function of its own: many times quicker to compile where it is long, or called in places."""
    return _step(function, forceinline=False)


@functools.cache
def _step(function: Any, *, forceinline: bool) -> Any:
    scope = function.__globals__
    called = {n: scope[n] for n in function.__code__.co_names if _plain(scope.get(n))}
    if called:
        scope = scope | {name: _step(step, forceinline=forceinline) for name, step in called.items()}
        function = FunctionType(function.__code__, scope, function.__name__)
    return numba.njit(forceinline=forceinline, **_STEP)(function)


def by_dtype(*, float32: Callable[..., Any], float64: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a step of one number that is compiled from the function for its dtype."""

    def step(z: Any) -> Any:
        """Stand for the function that numba chooses."""

    def choose(z: Any) -> Callable[..., Any]:
        return float32 if z.bitwidth == 32 else float64

    overload(step, jit_options=_STEP | {"forceinline": True})(choose)
    STEPS[step] = (float32, float64)
    return step


def stand_in(step: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """Compile another function of x wherever kernels call this one, which is of Python."""
    overload(step, jit_options=_STEP | {"forceinline": True})(lambda x: replacement)
    STEPS[step] = (replacement,)


def _plain(value: object) -> bool:
    return isinstance(value, FunctionType) and value not in STEPS


class Kernel:
    """A loop, compiled for the dtypes it meets."""

    def __init__(self, function: FunctionType, out: frozenset[str]) -> None:
        self.function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self._names = tuple(inspect.signature(function).parameters)
        self._out = out
        kernel_digest(function, _KERNEL)  # refuses what the cache could not follow
        self.dispatcher = numba.njit(**_KERNEL)(function)
        self.cache = self.dispatcher._cache = KernelCache(f"{function.__module__}.{self.__name__}", self._digest)
        self._entries: dict[tuple[Any, ...], Callable[..., Any]] = {}
        KERNELS.append(self)

    def _digest(self, signature: Any) -> str:
        return kernel_digest(self.function, _KERNEL, signature)

    def __call__(self, *arguments: Any) -> Any:
        self.entry(*arguments)
        try:
            return self.dispatcher(*arguments)
        except RuntimeError:  # another thread compiled it for other types meanwhile, and numba wanted to for these, too
            with _COMPILING:
                return self.dispatcher(*arguments)

    def _compile(self, arguments: tuple[Any, ...]) -> None:
        """Compile, or read from the cache; a Ctrl-C inside numba would leave its locks held, its registries half read."""
        signature = tuple(self._type(n, a) for n, a in zip(self._names, arguments, strict=True))
        undivided(functools.partial(self._compile_alone, signature))

    def _compile_alone(self, signature: tuple[Any, ...]) -> None:
        with _COMPILING:
            if signature in self.dispatcher.overloads:  # another thread was faster
                return
            if signature in self.cache:
                self._add(signature)
                return
            with self._alone(), _reported_if_slow():
                self._add(signature)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one process at a time compile this kernel; the others wait, or not, and read what it has cached.

        They do not wait for ever: it may have been stopped, by a Ctrl-Z or a debugger.
        """
        file = self._lock_file()
        if file is None:
            yield
            return
        try:
            until = time.monotonic() + PATIENCE
            while _held_elsewhere(file) and time.monotonic() < until:
                if not _patient:
                    raise BusyError(self.__name__)
                time.sleep(0.02)
            yield
        finally:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough: a child forked meanwhile has it open, too
            os.close(file)

    def _lock_file(self) -> int | None:
        folder = writable_folder()
        if folder is None:
            return None
        try:
            return os.open(folder / f"{self.function.__module__}.{self.__name__}.lock", LOCK)
        except OSError:  # the disk is full, or the folder has become read-only
            return None

    def _add(self, signature: tuple[Any, ...]) -> None:
        self.dispatcher.disable_compile(False)
        with collector_paused(), remember_operations():
            self.dispatcher.compile(signature)
        self.dispatcher.disable_compile()  # a call with other types raises TypeError: nothing compiles unasked

    def entry(self, *like: Any) -> Callable[..., Any]:
        """Return the compiled function for arguments of these types; it looks at none of them again.

        What numba's dispatch looks up at every call (types, layouts, flags of each array) is looked up once. The function
        checks neither dtype nor dimensions: whoever calls it has to.
        """
        kinds = tuple([(a.dtype, a.ndim) if type(a) is np.ndarray else type(a) for a in like])
        found = self._entries.get(kinds)
        if found is None:
            signature = tuple(self._type(n, a) for n, a in zip(self._names, like, strict=True))
            if signature not in self.dispatcher.overloads:
                self._compile(like)
            found = getattr(self.dispatcher.overloads[signature], "entry_point", None) or self.dispatcher
            self._entries[kinds] = found
        return found

    def _type(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return _array_type(value.dtype, value.ndim, name not in self._out)
        return numba.typeof(value)


def _held_elsewhere(file: int) -> bool:
    """Whether another process has the lock; else it is ours."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # that it is held is the answer
        return True
    except OSError:  # some file systems have no locks
        pass
    return False


@functools.lru_cache(1024)
def _array_type(dtype: np.dtype[Any], ndim: int, readonly: bool) -> Any:
    return types.Array(numba.from_dtype(dtype), ndim, "C", readonly=readonly)


def kernel(*, out: tuple[str, ...]) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a kernel; `out` names the arrays that it writes."""

    def declare(function: Callable[..., Any]) -> Kernel:
        assert isinstance(function, FunctionType)
        return Kernel(function, frozenset(out))

    return declare
