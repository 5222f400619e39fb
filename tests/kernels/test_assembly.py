"""No kernel holds a fused multiply-add, here or on aarch64, and the hot loops are vectorised.

A fused operation rounds once where two operations round twice, so its last bit differs from that of a processor without.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from typing import Any, NamedTuple

import pytest
from llvmlite import binding as llvm

from streammetrics.cli.warmup import feed_all
from streammetrics.kernels import _jit

pytestmark = pytest.mark.slow

ARM = "aarch64-unknown-linux-gnu"
WIDEST = r"%zmm\d" if llvm.get_host_cpu_features().get("avx512f") else r"%[yz]mm\d"
FUSED_X86 = re.compile(r"\bvfn?m(add|sub)\w*")
FUSED_ARM = re.compile(r"\bf(n?madd|n?msub|mla|mls)\b")


class Compiled(NamedTuple):
    """A kernel for arguments of some types, as text."""

    name: str
    assembly: str
    llvm: str


@pytest.fixture(scope="module")
def kernels() -> list[Compiled]:
    """Every kernel, for the dtypes it meets.

    numba keeps the optimised module of what it reads from its cache, for others to link; its assembly is a tenth of the
    work of compiling all anew.
    """
    feed_all()
    return [
        Compiled(f"{kernel.__name__}{signature}", *texts(made.library))
        for kernel in _jit.KERNELS
        for signature, made in kernel.dispatcher.overloads.items()
    ]


def texts(library: Any) -> tuple[str, str]:
    module = library._get_module_for_linking()
    return str(library._codegen._tm.emit_assembly(module)), str(module)


def test_warming_up_calls_every_kernel() -> None:
    """In a process of its own: here, other tests may have called some."""
    code = (
        "from streammetrics.cli.warmup import feed_all; feed_all(); from streammetrics.kernels import _jit; "
        "print([k.__name__ for k in _jit.KERNELS if not k.dispatcher.signatures])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_nothing_is_fused_here(kernels: list[Compiled]) -> None:
    assert len(kernels) > 100
    for kernel in kernels:
        found = (FUSED_X86 if platform.machine() == "x86_64" else FUSED_ARM).findall(kernel.assembly)
        assert not found, f"{kernel.name}: {found}"


def test_nothing_would_be_fused_on_aarch64(kernels: list[Compiled]) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(ARM).create_target_machine(opt=3)
    for kernel in kernels:
        body = re.sub(r'target triple = ".*"', f'target triple = "{ARM}"', kernel.llvm)
        body = re.sub(r'target datalayout = ".*"', f'target datalayout = "{target.target_data}"', body)
        body = re.sub(r'"target-(cpu|features)"="[^"]*"', "", body)
        body = re.sub(r"= (tail )?call i8 @llvm\.x86\.atomic.*", "= add i8 0, 0", body)  # reference counts
        module = llvm.parse_assembly(body)
        assembly = target.emit_assembly(module)
        assert "fmul" in assembly or "add" in assembly
        assert not FUSED_ARM.findall(assembly), kernel.name


def test_kernels_ask_for_no_memory(kernels: list[Compiled]) -> None:
    """So they cannot fail, and what they count in several states is counted in all of them."""
    for kernel in kernels:
        found = set(re.findall(r"call[^\n]*@(NRT_(?:MemInfo_)?[aA]lloc\w*|malloc|calloc)\b", kernel.llvm))
        assert not found, f"{kernel.name}: {found}"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86 assembly")
def test_hot_loops_are_vectorised(kernels: list[Compiled]) -> None:
    for kernel in kernels:
        if kernel.name.partition("(")[0] in ("count_probabilities", "sum_scores", "count_decisions", "sum_terms"):
            assert len(re.findall(WIDEST, kernel.assembly)) > 50, kernel.name
