"""Environments that make this machine compute as others do: masks of CPU features for numba, numpy and libm."""

from __future__ import annotations

from collections.abc import Iterator

import llvmlite.binding
import numpy as np


def numpy_features() -> str:
    """The CPU features that numpy chooses its loops by."""
    core = getattr(np, "_core", None) or np.core
    module = core._multiarray_umath
    return " ".join(f for f in module.__cpu_dispatch__ if module.__cpu_features__[f])


def machines() -> Iterator[dict[str, str]]:
    """Yield environments for processes of their own."""
    host = llvmlite.binding.get_host_cpu_features()
    yield {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NPY_DISABLE_CPU_FEATURES": numpy_features()}
    if host.get("avx2") and host.get("fma"):
        yield {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "", "NUMBA_OPT": "2"}
    yield {"NUMBA_OPT": "0", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"}
    if host.get("avx512dq") and host.get("avx512vl"):
        yield {"NUMBA_CPU_NAME": "skylake-avx512", "NUMBA_CPU_FEATURES": ""}
