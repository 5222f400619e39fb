"""The decorators that compile kernels. No other module calls `numba.njit`.

A kernel is compiled on its first call with each combination of dtypes, and cached on disk (`_cache`). Arrays are typed
read-only, except the parameters named in `out`, so that one compilation works for writable arrays and memory maps.
Options that would make results depend on the machine are off: fastmath, fused multiply-add and parallel.

A kernel allocates no memory: its working memory is `scratch` (module `_memory`) or an argument. It is therefore
compiled without numba's runtime library (`_nrt`), whose reference counting of arrays would take up to a third of the
running time.
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

from ..numerics import kernel_registry
from ..numerics.signal_safety import run_uninterrupted
from ._cache import KernelCache, writable_folder
from ._compiler import (
    KernelCompiler,
    StepCompiler,
    cache_operator_types,
    compile_overloads_as_steps,
    pause_garbage_collector,
)
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

# Acquire the lock before a fork. Otherwise, a child process could inherit a lock that it can never release.
_COMPILING = threading.RLock()
os.register_at_fork(before=_COMPILING.acquire, after_in_parent=_COMPILING.release, after_in_child=_COMPILING.release)
LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC

_waits_for_others = True
# The maximum time to wait while another process compiles a kernel, in seconds: several times the compilation time of
# the slowest kernel.
WAIT_SECONDS = 120.0
# The total compilation time of this process, in seconds, after which the command line prints a message.
SLOW_SECONDS = 1.0

_seconds = 0.0  # the total compilation time of this process so far

KERNELS: list[Kernel] = []
"""All kernels, for `streammetrics warmup` and for the tests that inspect the machine code."""


class BusyError(Exception):
    """Raised if another process is compiling a kernel that a call needs, and `raise_if_busy` forbids waiting for it."""


@contextmanager
def raise_if_busy() -> Iterator[None]:
    """Within this context, raise BusyError instead of waiting for another process to compile a kernel."""
    global _waits_for_others
    _waits_for_others = False
    try:
        yield
    finally:
        _waits_for_others = True


def count_compilations() -> int:
    """Return how many kernels this process has compiled itself, rather than loaded from the cache."""
    return sum(sum(kernel.dispatcher.stats.cache_misses.values()) for kernel in KERNELS)


@contextmanager
def _report_if_slow() -> Iterator[None]:
    """Within this context, tell the user (see `kernel_registry`) once this process has spent SLOW_SECONDS compiling."""
    global _seconds
    if not kernel_registry.has_slow_report():
        yield
        return
    timer = threading.Timer(max(SLOW_SECONDS - _seconds, 0.0), kernel_registry.report_slow)
    timer.daemon = True
    began = time.monotonic()
    with suppress(RuntimeError):  # an interpreter that is shutting down starts no more threads
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _seconds += time.monotonic() - began


def inline(function: F) -> F:
    """Make a function callable in kernels. Its code is inlined in the kernel, as are the functions that it calls."""
    return _compile_step(function, forceinline=True)


def outline(function: F) -> F:
    """Make a function callable in kernels, as a separate function that is not inlined.

    A kernel compiles much faster if long functions, and functions that it calls in several places, are not inlined.
    """
    return _compile_step(function, forceinline=False)


@functools.cache
def _compile_step(function: Any, *, forceinline: bool) -> Any:
    scope = function.__globals__
    called = {n: scope[n] for n in function.__code__.co_names if _is_plain_function(scope.get(n))}
    if called:
        scope = scope | {name: _compile_step(step, forceinline=forceinline) for name, step in called.items()}
        function = FunctionType(function.__code__, scope, function.__name__)
    return numba.njit(forceinline=forceinline, **_STEP)(function)


def choose_by_dtype(*, float32: Callable[..., Any], float64: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a function for use in kernels. It calls `float32` or `float64`, depending on the dtype of its argument."""

    def step(z: Any) -> Any:
        """Do nothing. In compiled code, numba replaces a call to this function with the overload for the dtype of z."""

    def choose(z: Any) -> Callable[..., Any]:
        return float32 if z.bitwidth == 32 else float64

    overload(step, jit_options=_STEP | {"forceinline": True})(choose)
    STEPS[step] = (float32, float64)
    return step


def replace_function(step: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """Make kernels run `replacement`, a function of one number x, wherever they call the Python function `step`."""
    overload(step, jit_options=_STEP | {"forceinline": True})(lambda x: replacement)
    STEPS[step] = (replacement,)


def _is_plain_function(value: object) -> bool:
    return isinstance(value, FunctionType) and value not in STEPS


class Kernel:
    """A function of arrays that is compiled on its first call with each combination of dtypes.

    Parameters
    ----------
    function : function
        The Python function to compile.
    out : frozenset of str
        The names of the parameters that the function writes to.
    """

    def __init__(self, function: FunctionType, out: frozenset[str]) -> None:
        self.function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self._names = tuple(inspect.signature(function).parameters)
        self._out = out
        kernel_digest(function, _KERNEL)  # raises if the kernel uses a value that the cache cannot track
        self.dispatcher = numba.njit(**_KERNEL)(function)
        self.cache = self.dispatcher._cache = KernelCache(f"{function.__module__}.{self.__name__}", self._digest)
        self._entries: dict[tuple[Any, ...], Callable[..., Any]] = {}
        KERNELS.append(self)

    def _digest(self, signature: Any) -> str:
        return kernel_digest(self.function, _KERNEL, signature)

    def __call__(self, *arguments: Any) -> Any:
        self.find_entry_point(*arguments)
        try:
            return self.dispatcher(*arguments)
        # The call failed because another thread was compiling this kernel for other types, so that numba also tried to
        # compile it here, or read its dictionary of overloads while it grew. Wait for the other thread, and call again.
        except (RuntimeError, KeyError):
            with _COMPILING:
                return self.dispatcher(*arguments)

    def _compile(self, arguments: tuple[Any, ...]) -> None:
        """Compile the kernel, or load it from the cache, without interruption.

        Pressing Ctrl-C during compilation could leave numba's locks acquired and its registries incomplete.
        """
        signature = tuple(self._numba_type(n, a) for n, a in zip(self._names, arguments, strict=True))
        run_uninterrupted(functools.partial(self._compile_locked, signature))

    def _compile_locked(self, signature: tuple[Any, ...]) -> None:
        with _COMPILING:
            # Another thread may have compiled the kernel since this thread checked.
            if signature in self.dispatcher.overloads:
                return
            # A cached kernel loads quickly, so it needs no lock against other processes.
            if signature in self.cache:
                self._add_overload(signature)
                return
            with self._process_lock(), _report_if_slow():
                self._add_overload(signature)

    @contextmanager
    def _process_lock(self) -> Iterator[None]:
        """Lock this kernel, so that other processes wait and load it from the cache rather than compile it too.

        The wait for the lock is limited, because the process that holds it may be suspended by Ctrl-Z or a debugger.
        """
        file = self._lock_file()
        if file is None:
            yield
            return
        try:
            until = time.monotonic() + WAIT_SECONDS
            while _is_locked_elsewhere(file) and time.monotonic() < until:
                if not _waits_for_others:
                    raise BusyError(self.__name__)
                time.sleep(0.02)
            yield
        finally:
            with suppress(OSError):
                # Unlock explicitly. If a child process was forked in the meantime, it also has the file open, and
                # closing the file here would not unlock it.
                fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    def _lock_file(self) -> int | None:
        folder = writable_folder()
        if folder is None:
            return None
        try:
            return os.open(folder / f"{self.function.__module__}.{self.__name__}.lock", LOCK_FLAGS)
        except OSError:  # the disk is full, or the folder has become read-only
            return None

    def _add_overload(self, signature: tuple[Any, ...]) -> None:
        # Enable compilation only here, while the locks are held. Otherwise, numba would also compile during a call,
        # without the locks.
        self.dispatcher.disable_compile(False)
        with pause_garbage_collector(), cache_operator_types(), compile_overloads_as_steps(_STEP):
            self.dispatcher.compile(signature)
        self.dispatcher.disable_compile()  # a call with other types now raises TypeError instead of compiling

    def find_entry_point(self, *like: Any) -> Callable[..., Any]:
        """Return the compiled function for arguments with the types of `like`. It is faster to call than the kernel.

        When the kernel is called, numba inspects the type, layout and flags of each array. The returned function skips
        these checks, so the caller must pass the right dtypes and dimensions.
        """
        key = tuple([(a.dtype, a.ndim) if type(a) is np.ndarray else type(a) for a in like])
        entry_point = self._entries.get(key)
        if entry_point is None:
            signature = tuple(self._numba_type(n, a) for n, a in zip(self._names, like, strict=True))
            if signature not in self.dispatcher.overloads:
                self._compile(like)
            entry_point = getattr(self.dispatcher.overloads[signature], "entry_point", None) or self.dispatcher
            self._entries[key] = entry_point
        return entry_point

    def _numba_type(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return _array_type(value.dtype, value.ndim, name not in self._out)
        return numba.typeof(value)


def _is_locked_elsewhere(file: int) -> bool:
    """Try to acquire the lock on an open file, and return whether another process already holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # The lock cannot be acquired, because another process holds it.
    except BlockingIOError:
        return True
    except OSError:  # some file systems have no locks
        pass
    return False


@functools.lru_cache(1024)
def _array_type(dtype: np.dtype[Any], ndim: int, readonly: bool) -> Any:
    return types.Array(numba.from_dtype(dtype), ndim, "C", readonly=readonly)


def kernel(*, out: tuple[str, ...]) -> Callable[[Callable[..., Any]], Kernel]:
    """Return a decorator that makes a function a kernel; `out` names the parameters that the function writes to."""

    def declare(function: Callable[..., Any]) -> Kernel:
        assert isinstance(function, FunctionType)
        return Kernel(function, frozenset(out))

    return declare
