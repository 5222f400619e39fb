"""The compiler of kernels: numba's, with each kernel optimised once, together with the steps that it calls.

numba compiles every function that a kernel calls as if Python called it, too: it optimises the function, writes its
machine code and wraps it for Python and for C. Then LLVM optimises the same code again as part of the kernel. Here a step
is only translated to LLVM's language, and linked into its kernel. A kernel takes half the time to compile.
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

# LLVM uses half of each 512-bit vector by default, because the first processors that had them ran slower with all in
# use. With whole vectors our loops gain a tenth to a fifth of their time.
WIDEST_VECTORS = '"prefer-vector-width"="512"'

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
"""numba's passes for what kernels do not have: `with`, `raise`, closures, literal unrolling, array expressions."""


class StepLibrary(JITCodeLibrary):
    """The code of a step: neither optimised nor loaded into memory."""

    def add_ir_module(self, ir_module: Any) -> None:
        module = llvm.parse_assembly(cgutils.normalize_ir_text(str(ir_module)))
        module.name = ir_module.name
        module.data_layout = self._codegen._data_layout
        self._final_module.link_in(module)

    def finalize(self) -> None:
        self._finalized = True

    def called_libraries(self) -> dict[Any, None]:
        """Return the libraries that this one calls, and those that they call, in order."""
        found: dict[Any, None] = {}
        for library in self._linking_libraries:
            found[library] = None
            if isinstance(library, StepLibrary):
                found |= library.called_libraries()
        return found


class KernelLibrary(StepLibrary):
    """The code of a kernel with all its steps, optimised as a whole."""

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


class WideLower(Lower):
    """Translates functions so that they use the widest vectors."""

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        # The attribute set's own `add` accepts no attributes that have values.
        set.add(self.function.attributes, WIDEST_VECTORS)


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelLowering(NativeLowering):
    """Compile a kernel to machine code."""

    _name = "streammetrics_kernel_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        return WideLower

    def run_pass(self, state: Any) -> bool:
        state.library = KernelLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        done: bool = super().run_pass(state)
        return done


@register_pass(mutates_CFG=True, analysis_only=False)
class StepTyping(NopythonTypeInference):
    """Find the types in a step, which, unlike other functions without numba's run-time, may return part of an array."""

    _name = "streammetrics_step_typing"

    def run_pass(self, state: Any) -> bool:
        found = type_inference_stage(
            state.typingctx, state.targetctx, state.func_ir, state.args, state.return_type, state.locals
        )
        state.typemap, state.return_type, state.calltypes, state.typing_errors = found
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class StepLowering(NativeLowering):
    """Translate a step to LLVM's language, and no further."""

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
            lower = WideLower(context, library, descriptor, state.func_ir, metadata=state.metadata)
            lower.lower()
        library.finalize()
        # numba wants a function of C that Python would call; a step has none. This one refuses all arguments but text.
        function = f"{descriptor.qualname} is a step, which only kernels can call".index
        context.insert_user_function(function, descriptor, [library])
        state["cr"] = _LowerResult(descriptor, lower.call_helper, cfunc=function, env=lower.env)
        return True


class KernelCompiler(CompilerBase):
    """numba's compiler without the passes that kernels do not need, and with one of ours at the end."""

    replaced: ClassVar[dict[type, type]] = {NativeLowering: KernelLowering}

    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (self.replaced.get(a_pass, a_pass), reason)
            for a_pass, reason in pipeline.passes
            if a_pass.__name__ not in UNUSED_PASSES
        ]
        pipeline.finalize()
        return [pipeline]


class StepCompiler(KernelCompiler):
    """The compiler of the functions that kernels call."""

    replaced: ClassVar[dict[type, type]] = {NativeLowering: StepLowering, NopythonTypeInference: StepTyping}


@contextmanager
def remember_operations() -> Iterator[None]:
    """Let numba look up an operation on given types once during a compilation.

    Each time that a kernel indexes an array or adds two numbers, numba tries dozens of typing rules, and again when it
    translates the line. The lock of numba's compiler is held, so no other compilation meets what is remembered.
    """
    look_up, found = types.Function.get_call_type, {}

    def remembered(function: Any, context: Any, arguments: Any, keywords: Any) -> Any:
        if keywords:
            return look_up(function, context, arguments, keywords)
        key = function, tuple(arguments)
        if key not in found:
            found[key] = look_up(function, context, arguments, keywords)
        return found[key]

    with global_compiler_lock:
        types.Function.get_call_type = remembered
        try:
            yield
        finally:
            del types.Function.get_call_type


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector: it takes a fifth of a compilation, looking at numba's objects again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
