"""Faults at will: an exception at any place of a call, and a system that refuses any of its calls."""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import gc
import io
import itertools
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import draws
import numpy as np

import streammetrics as sm

TRACED = (str(Path(sm.__file__).parent), contextlib.__file__)
ASKED = ("CALL", "RESUME", "JUMP_BACKWARD")  # after these a handler of signals may run


@functools.cache
def asked(code: Any) -> frozenset[int]:
    """Offsets of the instructions before which a handler may run.

    What it raises belongs to the instruction behind, what a tracer raises to the one ahead: where another block is in
    charge of that, as when `with lock: return f()` is about to let go, a tracer would show what cannot happen.
    """
    read = dis.Bytecode(code)
    steps, blocks = list(read), read.exception_entries  # type: ignore[attr-defined]

    def block(step: Any) -> Any:
        return next((b.target for b in blocks if b.start <= step.offset < b.end), None)

    pairs = [(a, b) for a, b in itertools.pairwise(steps) if a.opname.startswith(ASKED[:2])]
    here = {b.offset for a, b in pairs if block(a) == block(b)}
    return frozenset(here | {s.offset for s in steps if s.opname.startswith(ASKED[2])})


class At:
    """Runs a call, counts the places of the package it passes, and raises at one of them.

    The error is kept, as by somebody who handles it: with it live the frames that it passed, and what they hold.

    Parameters
    ----------
    stop : int, optional
        Which.
    error : type
        What.
    threads : bool
        Whether the places of threads that the call starts count, in place of its own.
    """

    def __init__(self, stop: int | None, error: type[BaseException], *, threads: bool = False) -> None:
        self.stop, self.error, self.threads, self.passed = stop, error, threads, 0
        self.raised: BaseException | None = None

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and frame.f_lasti in asked(frame.f_code):
            self.passed += 1
            if self.passed == self.stop:
                raise self.error
        return self

    def run(self, call: Callable[[], Any]) -> bool:
        """Return whether it was interrupted."""
        before = sys.gettrace()
        (threading if self.threads else sys).settrace(self)
        try:
            call()
        except self.error as error:
            self.raised = error
            return True
        finally:
            threading.settrace(None) if self.threads else sys.settrace(before)  # type: ignore[arg-type]
        return False


def places(count: int, most: int) -> Iterator[int]:
    """Some of the places that a call passes; each of them in the long form. Finalizers wait, which Python would tell."""
    every = np.arange(1, count + 1)
    most = draws.tries(most)
    gc.collect()
    gc.disable()
    try:
        chosen = every if count <= most else np.random.default_rng(0).choice(every, most, replace=False)
        yield from sorted(map(int, chosen))
    finally:
        gc.enable()


class Disk:
    """A disk whose n-th call fails, if n is given; it counts them.

    What is written before it fails is there: half of it.

    Parameters
    ----------
    folder : Path
        Where it is mounted: files elsewhere are read and written as ever.
    nth : int, optional
        Which call fails.
    error : int
        How, as `errno` has it.
    """

    def __init__(self, folder: Path, nth: int | None = None, error: int = 28) -> None:
        self.folder, self.nth, self.error, self.passed = str(folder), nth, error, 0
        self.lock = threading.Lock()

    def fails(self) -> bool:
        """Whether this call does."""
        with self.lock:
            self.passed += 1
            return self.passed == self.nth

    def refuse(self) -> None:
        """Raise if this call fails."""
        if self.fails():
            raise OSError(self.error, os.strerror(self.error))

    def refused(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """A call that may fail before it does anything."""

        def call(*given: Any, **named: Any) -> Any:
            self.refuse()
            return real(*given, **named)

        return call

    def opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """`open`, which may fail, and gives a file of which every write and the closing may."""

        def call(file: Any, *given: Any, **named: Any) -> Any:
            if not str(file).startswith(self.folder) or "opener" in named:
                return real(file, *given, **named)
            self.refuse()
            return File(real(file, *given, **named), self)

        return call

    def put(self, real: Callable[..., int]) -> Callable[..., int]:
        """`pwrite`, which may write half of what it is given, and fail."""

        def call(handle: int, data: Any, at: int) -> int:
            if self.fails():
                real(handle, data[: len(data) // 2], at)
                raise OSError(self.error, os.strerror(self.error))
            return real(handle, data, at)

        return call

    @contextlib.contextmanager
    def mounted(self) -> Iterator[None]:
        """Take the place of the real one."""
        held = {(os, name): self.refused(getattr(os, name)) for name in ("fsync", "replace", "chmod", "mkdir", "pread")}
        held |= {(builtins, "open"): self.opened(open), (io, "open"): self.opened(open)}
        held |= {(os, "pwrite"): self.put(os.pwrite)}
        held |= {(tempfile, "TemporaryFile"): self.refused(tempfile.TemporaryFile)}
        before = {(module, name): getattr(module, name) for module, name in held}
        try:
            for (module, name), fake in held.items():
                setattr(module, name, fake)
            yield
        finally:
            for (module, name), real in before.items():
                setattr(module, name, real)


class File:
    """An open file on such a disk."""

    def __init__(self, real: Any, disk: Disk) -> None:
        self.__dict__.update(real=real, disk=disk)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Any:
        return iter(self.real)

    def read(self, *size: int) -> Any:
        self.disk.refuse()
        return self.real.read(*size)

    def write(self, data: Any) -> int:
        if self.disk.fails():
            self.real.write(data[: len(data) // 2])
            raise OSError(self.disk.error, os.strerror(self.disk.error))
        return int(self.real.write(data))

    def flush(self) -> None:
        self.disk.refuse()
        self.real.flush()

    def close(self) -> None:
        if self.real.closed:
            return
        self.real.close()
        self.disk.refuse()
