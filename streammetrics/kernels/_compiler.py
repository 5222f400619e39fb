"""The compiler of kernels: numba's, but each kernel is optimised once, together with the steps that it calls.

numba compiles every function that a kernel calls as if Python called the function, too: it optimises the function, writes
machine code and generates wrappers for Python and C. LLVM then optimises the same code again as part of the kernel. This
compiler only translates a step to LLVM IR and links the IR into the kernel, which halves the time to compile a kernel.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import llvmlite.binding as llvm
from numba import types
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, _LowerResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.funcdesc import PythonFunctionDescriptor
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering, NopythonTypeInference, type_inference_stage

# By default LLVM uses 256 of the 512 bits of a vector register, because the first AVX-512 processors lowered their clock
# for full vectors. Full vectors make the loops here 10 to 20 % faster.
VECTOR_WIDTH = '"prefer-vector-width"="512"'

UNUSED_PASSES = {
    "AnnotateTypes",
    "DumpParforDiagnostics",
    "FindLiterallyCalls",
    "InlineClosureLikes",
    "InlineInlinables",
    "InlineOverloads",
    "LiteralPropagationSubPipelinePass",
    "LiteralUnroll",
    "MakeFunctionToJitFunction",
    "NoPythonSupportedFeatureValidation",
    "NopythonRewrites",
    "RewriteDynamicRaises",
    "RewriteSemanticConstants",
    "WithLifting",
}
"""numba's passes for language features that kernels do not use: `with`, `raise`, closures, array expressions."""


class StepLibrary(JITCodeLibrary):
    """The LLVM IR of a step, neither optimised nor loaded into memory."""

    def add_ir_module(self, ir_module: Any) -> None:
        module = llvm.parse_assembly(cgutils.normalize_ir_text(str(ir_module)))
        module.name = ir_module.name
        module.data_layout = self._codegen._data_layout
        self._final_module.link_in(module)

    def finalize(self) -> None:
        self._finalized = True

    def called_libraries(self) -> dict[Any, None]:
        """Return all libraries that this one calls, directly or through others, in call order."""
        libraries: dict[Any, None] = {}
        for library in self._linking_libraries:
            libraries[library] = None
            if isinstance(library, StepLibrary):
                libraries |= library.called_libraries()
        return libraries


class KernelLibrary(StepLibrary):
    """The code of a kernel with all its steps, optimised as one module."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in self.called_libraries():
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._optimize_final_module()
        self._finalize_final_module()

    def _optimize_final_module(self) -> None:
        manager = self._codegen._module_pass_manager()
        if isinstance(manager, tuple):
            manager, builder = manager
            manager.run(self._final_module, builder)
        else:  # numba before 0.62
            manager.run(self._final_module)


class VectorLower(Lower):
    """Translates functions to LLVM IR with the attribute that makes LLVM use full vector registers."""

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        # The `add` method of llvmlite's attribute set rejects attributes with a value, so the call goes to `set.add`.
        set.add(self.function.attributes, VECTOR_WIDTH)


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelLowering(NativeLowering):
    """Compile a kernel to machine code."""

    _name = "streammetrics_kernel_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        return VectorLower

    def run_pass(self, state: Any) -> bool:
        state.library = KernelLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        done: bool = super().run_pass(state)
        return done


@register_pass(mutates_CFG=True, analysis_only=False)
class StepTyping(NopythonTypeInference):
    """Infer the types in a step.

    numba forbids functions compiled without its run-time to return an array slice. A step may return one.
    """

    _name = "streammetrics_step_typing"

    def run_pass(self, state: Any) -> bool:
        state.typemap, state.return_type, state.calltypes, state.typing_errors = type_inference_stage(
            state.typingctx, state.targetctx, state.func_ir, state.args, state.return_type, state.locals
        )
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class StepLowering(NativeLowering):
    """Translate a step to LLVM IR, without optimising it."""

    _name = "streammetrics_step_lowering"

    def run_pass(self, state: Any) -> bool:
        flags, context = state.flags, state.targetctx
        library = state.library = StepLibrary(context.codegen(), state.func_id.func_qualname)
        descriptor = PythonFunctionDescriptor.from_specialized_function(
            state.func_ir,
            state.typemap,
            state.return_type,
            state.calltypes,
            mangler=context.mangler,
            inline=flags.forceinline,
            noalias=flags.noalias,
            abi_tags=[flags.get_mangle_string()],
        )
        with context.push_code_library(library):
            lower = VectorLower(context, library, descriptor, state.func_ir, metadata=state.metadata)
            lower.lower()
        library.finalize()
        # numba expects a C function that Python can call. A step has none, so `str.index` stands in: it raises TypeError
        # for array arguments, and the message names the step.
        function = f"{descriptor.qualname} is a step, which only kernels can call".index
        context.insert_user_function(function, descriptor, [library])
        state["cr"] = _LowerResult(descriptor, lower.call_helper, cfunc=function, env=lower.env)
        return True


class KernelCompiler(CompilerBase):
    """numba's compiler without the passes that kernels do not need, and with `KernelLowering` at the end."""

    replacements: ClassVar[dict[type, type]] = {NativeLowering: KernelLowering}

    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (self.replacements.get(a_pass, a_pass), reason)
            for a_pass, reason in pipeline.passes
            if a_pass.__name__ not in UNUSED_PASSES
        ]
        pipeline.finalize()
        return [pipeline]


class StepCompiler(KernelCompiler):
    """The compiler of the functions that kernels call."""

    replacements: ClassVar[dict[type, type]] = {NativeLowering: StepLowering, NopythonTypeInference: StepTyping}


@contextmanager
def cache_operator_types() -> Iterator[None]:
    """Cache numba's type inference for operators and functions during one compilation.

    Each time a kernel indexes an array or adds two numbers, numba tries dozens of typing rules, and tries them again when
    it translates the line. The lock of numba's compiler is held, so the cached types do not leak into other compilations.
    """
    look_up, results = types.Function.get_call_type, {}

    def look_up_once(function: Any, context: Any, arguments: Any, keywords: Any) -> Any:
        if keywords:
            return look_up(function, context, arguments, keywords)
        key = function, tuple(arguments)
        if key not in results:
            results[key] = look_up(function, context, arguments, keywords)
        return results[key]

    with global_compiler_lock:
        types.Function.get_call_type = look_up_once
        try:
            yield
        finally:
            del types.Function.get_call_type


@contextmanager
def pause_garbage_collector() -> Iterator[None]:
    """Pause Python's garbage collector, which takes a fifth of the time of a compilation."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
