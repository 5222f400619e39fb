"""No kernel holds a fused multiply-add, here or on aarch64, and the hot loops are vectorised.

A fused operation rounds once where two operations round twice, so its last bit differs from that of a processor without.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from typing import Any

import numba
import pytest
from llvmlite import binding as llvm

from streammetrics.cli.warmup import feed_all
from streammetrics.kernels import _jit

ARM = "aarch64-unknown-linux-gnu"
FUSED_X86 = re.compile(r"\bvfn?m(add|sub)\w*")
FUSED_ARM = re.compile(r"\bf(n?madd|n?msub|mla|mls)\b")


@pytest.fixture(scope="module")
def kernels() -> list[tuple[str, Any]]:
    """Every kernel, compiled for the dtypes it meets."""
    feed_all()
    return [(kernel.__name__, recompiled(kernel)) for kernel in _jit.KERNELS]


def recompiled(kernel: _jit.Kernel) -> Any:
    """Compile a kernel again: numba cannot show the assembly of what it reads from its cache."""
    fresh = numba.njit(**_jit._OPTIONS)(kernel.function)
    for signature in kernel.dispatcher.signatures:
        fresh.compile(signature)
    return fresh


def test_warming_up_calls_every_kernel() -> None:
    """In a process of its own: here, other tests may have called some."""
    code = (
        "from streammetrics.cli.warmup import feed_all; feed_all(); from streammetrics.kernels import _jit; "
        "print([k.__name__ for k in _jit.KERNELS if not k.dispatcher.signatures])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_nothing_is_fused_here(kernels: list[tuple[str, Any]]) -> None:
    for name, kernel in kernels:
        for signature, assembly in kernel.inspect_asm().items():
            found = FUSED_X86.findall(assembly) if platform.machine() == "x86_64" else FUSED_ARM.findall(assembly)
            assert not found, f"{name}{signature}: {found}"


def test_nothing_would_be_fused_on_aarch64(kernels: list[tuple[str, Any]]) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(ARM).create_target_machine(opt=3)
    for name, kernel in kernels:
        for signature, text in kernel.inspect_llvm().items():
            body = re.sub(r'target triple = ".*"', f'target triple = "{ARM}"', text)
            body = re.sub(r'target datalayout = ".*"', f'target datalayout = "{target.target_data}"', body)
            body = re.sub(r'"target-(cpu|features)"="[^"]*"', "", body)
            body = re.sub(r"= (tail )?call i8 @llvm\.x86\.atomic.*", "= add i8 0, 0", body)  # reference counts
            module = llvm.parse_assembly(body)
            assembly = target.emit_assembly(module)
            assert "fmul" in assembly or "add" in assembly
            assert not FUSED_ARM.findall(assembly), f"{name}{signature}"


def test_kernels_ask_for_no_memory(kernels: list[tuple[str, Any]]) -> None:
    """So they cannot fail, and what they count in several states is counted in all of them."""
    for name, kernel in kernels:
        for signature, text in kernel.inspect_llvm().items():
            found = set(re.findall(r"call[^\n]*@(NRT_(?:MemInfo_)?[aA]lloc\w*|malloc|calloc)\b", text))
            assert not found, f"{name}{signature}: {found}"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86 assembly")
def test_hot_loops_are_vectorised(kernels: list[tuple[str, Any]]) -> None:
    for name, kernel in kernels:
        if name in ("count_probabilities", "sum_scores", "count_decisions", "sum_terms"):
            for assembly in kernel.inspect_asm().values():
                assert len(re.findall(r"%[yz]mm\d", assembly)) > 50, name
