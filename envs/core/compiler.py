"""How numba works through the simulator: each helper once, each kernel's machine code once.

By itself numba optimises and emits machine code for every function, with all that it calls linked in: in a deep call
tree the same code is worked through once per level. Only kernels need machine code, so helpers stay unoptimised LLVM
modules here until a kernel links them. That makes the first compile three times shorter.

Two things make kernels faster: the copies of helpers in the simulator's belong to them alone, so that LLVM may change
them at will; and an index is taken as it is, since none of ours counts from the end.

This reaches into numba's internals (0.61 to 0.68 have them alike). Where they have changed, `HELPER_OPTIONS` is empty
or there is no `KERNEL_LOWERING`, and everything works as before, slower.
"""

from __future__ import annotations

import gc
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba import types as nbt
from numba.core import event
from numba.core.compiler import Compiler
from numba.core.typed_passes import NativeLowering
from numba.np import arrayobj

# what these rewrite does not occur in a helper: context managers, closures, array expressions, object mode
_NEEDLESS_PASSES = (
    "WithLifting",
    "RewriteDynamicRaises",
    "MakeFunctionToJitFunction",
    "FindLiterallyCalls",
    "LiteralUnroll",
    "LiteralPropagationSubPipelinePass",
    "InlineOverloads",
    "NopythonRewrites",
    "AnnotateTypes",
    "DumpParforDiagnostics",
)

# LLVM takes up to a sixth longer over a kernel that owns its helpers: worth it where steps are taken
_STEPPING = "gangline.envs."

_LOCK_EVENT = "numba:llvm_lock"
_state = {"has_announced": False}


class KernelCompiler(Compiler):  # type: ignore[misc]
    """Compiles a kernel: says so once per process, since it may take a while."""

    def compile_extra(self, func: Any) -> Any:
        """Compile with the message and without the garbage collector."""
        with _compiling():
            return super().compile_extra(func)

    def define_pipelines(self) -> Any:
        """Numba's own passes, the last of them replaced where its internals are as expected."""
        pipelines = super().define_pipelines()
        return _with_lowering(pipelines, KERNEL_LOWERING) if KERNEL_LOWERING else pipelines


@contextmanager
def _compiling() -> Iterator[None]:
    """Announce the first compile, and pause what does not help it.

    That is the garbage collector (the compiler makes a million small objects) and the report of every call into LLVM to
    a timer for each function that is being compiled.
    """
    if not _state["has_announced"]:
        _state["has_announced"] = True
        print("gangline: compiling (once after installation or a change, then cached) ...", file=sys.stderr, flush=True)
    was_collecting = gc.isenabled()
    gc.disable()
    begin, end = event.start_event, event.end_event
    event.start_event = lambda kind, data=None: None if kind == _LOCK_EVENT else begin(kind, data)
    event.end_event = lambda kind, data=None, exc_details=None: (
        None if kind == _LOCK_EVENT else end(kind, data, exc_details)
    )
    try:
        yield
    finally:
        event.start_event, event.end_event = begin, end
        if was_collecting:
            gc.enable()


def _remember_names_of_records() -> None:
    """Write out the type of a record once: numba does it thousands of times, and a world's takes 100 kB."""
    write = nbt.Record.__repr__

    def remembered(self: Any) -> str:
        text: str | None = self.__dict__.get("_gangline_repr")
        if text is None:
            text = self.__dict__["_gangline_repr"] = write(self)
        return text

    nbt.Record.__repr__ = remembered  # type: ignore[method-assign]


def _compare_options_quickly() -> None:
    """Tell options of the compiler from one another by what was set: numba reads all of them out, at every call site.

    The hash is numba's own, which depends on the names of the options only.
    """
    from numba.core.targetconfig import TargetConfig

    compare = TargetConfig.__eq__
    names = TargetConfig.__hash__
    known: dict[type, int] = {}

    def same(self: Any, other: Any) -> Any:
        if self is other or (type(self) is type(other) and self._values == other._values):
            return True
        return compare(self, other)

    def remembered(self: Any) -> int:
        if type(self) not in known:
            known[type(self)] = names(self)
        return known[type(self)]

    if "_values" in TargetConfig.__slots__ and hasattr(TargetConfig, "options"):
        TargetConfig.__eq__ = same  # type: ignore[method-assign]
        TargetConfig.__hash__ = remembered  # type: ignore[method-assign]


def _take_indices_as_they_are() -> None:
    """Leave out of our kernels the question whether an index is negative, and counts from the end: none ever does.

    Numba asks it at every access. With NUMBA_BOUNDSCHECK=1 a negative index is an error, therefore.
    """
    fix = getattr(arrayobj, "fix_integer_index", None)
    if fix is None:
        return

    def taken_as_it_is(context: Any, builder: Any, kind: Any, index: Any, size: Any) -> Any:
        if not builder.function.name.startswith("_ZN8gangline"):
            return fix(context, builder, kind, index, size)
        return context.cast(builder, index, kind, nbt.intp if kind.signed else nbt.uintp)

    arrayobj.fix_integer_index = taken_as_it_is


def _with_lowering(pipelines: Any, lowering: Any, without: tuple[str, ...] = ()) -> Any:
    """Pipelines of passes with another last one, and without some."""
    for pipeline in pipelines:
        pipeline.passes = [
            (lowering if which is NativeLowering else which, why)
            for which, why in pipeline.passes
            if which.__name__ not in without
        ]
        pipeline._finalized = False
        pipeline.finalize()
    return pipelines


def _lowerings() -> tuple[Any, Any]:
    """(for helpers, for kernels) what takes the place of numba's last pass; None where its internals have changed."""
    try:
        from llvmlite import binding
        from numba import _dynfunc  # type: ignore[attr-defined]
        from numba.core.codegen import JITCodeLibrary
        from numba.core.compiler_machinery import register_pass
    except ImportError:
        return None, None
    parts = ("_linking_libraries", "_get_module_for_linking", "_finalize_dynamic_globals", "_raise_if_finalized")
    library = JITCodeLibrary.__init__.__code__.co_names + tuple(dir(JITCodeLibrary))
    if not all(part in library for part in parts) or not hasattr(_dynfunc, "make_function"):
        return None, None

    class Unoptimised(JITCodeLibrary):  # type: ignore[misc]
        """Code that waits to be linked into a kernel."""

        def finalize(self) -> None:
            """Link what it calls, and neither optimise nor emit anything."""
            self._raise_if_finalized()
            for linked in dict.fromkeys(self._linking_libraries):
                self._reload_init.update(linked._reload_init)
                self._final_module.link_in(linked._get_module_for_linking(), preserve=True)
            self._finalize_dynamic_globals()
            self._finalized = True

    @register_pass(mutates_CFG=True, analysis_only=False)
    class HelperLowering(NativeLowering):  # type: ignore[misc]
        """Lowers to an LLVM module and stops there."""

        _name = "gangline_helper_lowering"

        def run_pass(self, state: Any) -> bool:
            """Lower one function."""
            state.library = Unoptimised(state.targetctx.codegen(), state.func_id.func_qualname)
            state.flags = state.flags.copy()
            state.flags.no_compile = True
            super().run_pass(state)
            state.flags.no_compile = False
            state.library.finalize()
            done = state.cr
            # numba knows an overload by its entry point: this one is never called, its address is zero
            name = done.fndesc.qualname.split(".")[-1]
            entry = _dynfunc.make_function(done.fndesc.lookup_module(), name, "helper", 0, done.env, (state.library,))
            state.targetctx.insert_user_function(entry, done.fndesc, [state.library])
            state["cr"] = done._replace(cfunc=entry)
            return True

    if not hasattr(JITCodeLibrary, "_optimize_final_module") or not hasattr(binding, "Linkage"):
        return HelperLowering, None

    class OnItsOwn(JITCodeLibrary):  # type: ignore[misc]
        """A kernel with copies of its helpers that nobody else calls."""

        steps = False

        def _optimize_final_module(self) -> None:
            """Name the helpers anew, then let LLVM do as it likes with them: drop arguments, write them into callers.

            The loader knows functions by name, whoever they belong to: with other names, no kernel calls another's.
            """
            tag = uuid.uuid4().hex
            for function in self._final_module.functions:
                if not function.is_declaration and function.linkage == binding.Linkage.linkonce_odr:
                    function.name = f"{function.name}.{tag}"
                    function.linkage = "internal" if self.steps else "linkonce_odr"
            super()._optimize_final_module()

    @register_pass(mutates_CFG=True, analysis_only=False)
    class KernelLowering(NativeLowering):  # type: ignore[misc]
        """Lowers to machine code."""

        _name = "gangline_kernel_lowering"

        def run_pass(self, state: Any) -> bool:
            """Lower one function."""
            state.library = OnItsOwn(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.steps = state.func_id.modname.startswith(_STEPPING)
            state.library.enable_object_caching()
            done: bool = super().run_pass(state)
            return done

    return HelperLowering, KernelLowering


HELPER_LOWERING, KERNEL_LOWERING = _lowerings()


class HelperCompiler(Compiler):  # type: ignore[misc]
    """The usual passes, without the needless ones and with the last one replaced."""

    def define_pipelines(self) -> Any:
        """Numba's passes for a helper."""
        return _with_lowering(super().define_pipelines(), HELPER_LOWERING, _NEEDLESS_PASSES)


# options of `numba.njit` that leave a helper's machine code out
HELPER_OPTIONS = {"pipeline_class": HelperCompiler} if HELPER_LOWERING else {}

_remember_names_of_records()
_compare_options_quickly()
_take_indices_as_they_are()
