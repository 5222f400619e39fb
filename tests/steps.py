"""Steps of kernels, for tests that call them from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from streammetrics.kernels import _jit


def callable_step(step: Any) -> Callable[..., Any]:
    """Compile a step that only kernels can call as a function that Python can call."""
    return numba.njit(**_jit._KERNEL)(step.py_func)
