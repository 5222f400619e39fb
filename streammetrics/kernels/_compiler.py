"""The kernel compiler: a variant of numba's compiler that compiles a kernel in half the time.

The functions that a kernel calls are referred to as steps. numba compiles every step as if Python also called it
directly: it optimises the step, writes machine code, and generates wrappers for Python and C. LLVM then optimises the
same code again as part of the kernel. This compiler only translates a step to LLVM IR and links the IR into the kernel.
Each kernel is thus optimised only once, together with all of its steps.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import llvmlite.binding as llvm
import numba
from numba import types
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, _LowerResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.funcdesc import PythonFunctionDescriptor
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering, NopythonTypeInference, type_inference_stage
from numba.core.typing import templates

# By default, LLVM uses only 256 of the 512 bits of a vector register, because the first AVX-512 processors ran at a
# lower clock frequency with full vectors. Full vectors make the kernels 10 to 20 % faster.
VECTOR_WIDTH = '"prefer-vector-width"="512"'

UNUSED_PASSES = {
    "AnnotateTypes",
    "DumpParforDiagnostics",
    "FindLiterallyCalls",
    "IRLegalization",
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
"""Compiler passes of numba that are skipped, because they support features that kernels do not use, such as `with`.

`IRLegalization` marks the last use of each variable, where numba would release the reference to an object. Kernels hold
no such references."""


class StepLibrary(JITCodeLibrary):
    """The LLVM IR of a step (a function that kernels call), which is neither optimised nor loaded into memory."""

    def add_ir_module(self, ir_module: Any) -> None:
        module = llvm.parse_assembly(cgutils.normalize_ir_text(str(ir_module)))
        module.name = ir_module.name
        module.data_layout = self._codegen._data_layout
        self._final_module.link_in(module)

    def finalize(self) -> None:
        self._finalized = True

    def called_libraries(self) -> dict[Any, None]:
        """Return the libraries of all functions that the step calls, directly or indirectly, in call order."""
        libraries: dict[Any, None] = {}
        for library in self._linking_libraries:
            libraries[library] = None
            if isinstance(library, StepLibrary):
                libraries |= library.called_libraries()
        return libraries


class KernelLibrary(StepLibrary):
    """The code of a kernel and of all functions that it calls, optimised as one LLVM module."""

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
    """Translates functions to LLVM IR, and sets an attribute that makes LLVM use full vector registers."""

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        # llvmlite's attribute set derives from `set`, but its own `add` method rejects attributes with a value. So call
        # `set.add` instead.
        set.add(self.function.attributes, VECTOR_WIDTH)


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelLowering(NativeLowering):
    """The last pass of the kernel compiler, which writes machine code."""

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
    """The pass that infers the types in a step (a function that kernels call) and lets it return an array slice.

    numba's own pass rejects such a return value in functions that are compiled without its runtime library.
    """

    _name = "streammetrics_step_typing"

    def run_pass(self, state: Any) -> bool:
        state.typemap, state.return_type, state.calltypes, state.typing_errors = type_inference_stage(
            state.typingctx, state.targetctx, state.func_ir, state.args, state.return_type, state.locals
        )
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class StepLowering(NativeLowering):
    """The last pass of the step compiler, which writes unoptimised LLVM IR. Steps are functions that kernels call."""

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
        # numba requires an object that Python can call, but a step is not compiled for Python. As a placeholder,
        # register the `index` method of a string, which raises TypeError if it is called with arrays.
        function = f"{descriptor.qualname} is a step, which only kernels can call".index
        context.insert_user_function(function, descriptor, [library])
        state["cr"] = _LowerResult(descriptor, lower.call_helper, cfunc=function, env=lower.env)
        return True


class KernelCompiler(CompilerBase):
    """numba's compiler without the passes that kernels do not need; its last pass is `KernelLowering`."""

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


# The signatures that numba has chosen, keyed by function and argument types. All kernels share this cache.
_CALL_TYPES: dict[Any, Any] = {}


@contextmanager
def cache_operator_types() -> Iterator[None]:
    """Cache numba's type inference for operators and functions, for all kernels.

    Without the cache, each time a kernel indexes an array or adds two numbers, numba tries dozens of typing rules, and
    tries them again when it translates the line. numba's compiler lock is held until the context ends, so that no other
    thread compiles a function with the cache.
    """
    look_up = types.Function.get_call_type

    def look_up_once(function: Any, context: Any, arguments: Any, keywords: Any) -> Any:
        if keywords:
            return look_up(function, context, arguments, keywords)
        key = function, tuple(arguments)
        if key not in _CALL_TYPES:
            _CALL_TYPES[key] = look_up(function, context, arguments, keywords)
        return _CALL_TYPES[key]

    with global_compiler_lock:
        types.Function.get_call_type = look_up_once
        try:
            yield
        finally:
            del types.Function.get_call_type


@contextmanager
def compile_overloads_as_steps(options: dict[str, Any]) -> Iterator[None]:
    """Until the context ends, compile numba's own functions that are written in Python, such as `max`, with `options`.

    With its default options, numba would optimise each of them and generate machine code for it, so compilation would
    take three times as long. numba's compiler lock is held until the context ends, so that no other thread compiles a
    function with these options.
    """
    template = templates._OverloadFunctionTemplate
    choose = template._get_jit_decorator

    with global_compiler_lock:
        template._get_jit_decorator = lambda _: lambda **own: numba.jit(**options | own)
        try:
            yield
        finally:
            template._get_jit_decorator = choose


@contextmanager
def pause_garbage_collector() -> Iterator[None]:
    """Pause Python's garbage collector, which otherwise takes a fifth of the compilation time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
