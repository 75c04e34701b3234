"""The one place that says how the core is compiled, so that results do not depend on who wrote a kernel.

No fast-math: results are the same on every machine. The plain-Python twin of this code is `tests/reference/`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba import types as nbt

from gangline.envs.core.compiler import HELPER_OPTIONS, KernelCompiler

F = TypeVar("F", bound=Callable[..., Any])


def helper(function: F) -> F:
    """A function that only kernels call: compiled into them, never alone."""
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **HELPER_OPTIONS}
    dispatcher = _compiled(function, cache=not HELPER_OPTIONS, **options)
    _take_every_integer_as_int64(dispatcher)
    return dispatcher


def inlined(function: F) -> F:
    """A helper that is written into its callers: for pieces of a loop that have a name for the reader's sake."""
    return _compiled(function, cache=False, inline="always")


def kernel(function: F) -> F:
    """A function that Python calls: once per step or batch."""
    return _compiled(function, cache=True, no_cfunc_wrapper=True, pipeline_class=KernelCompiler)


def compile_for(function: F, signature: Any) -> Any:
    """A function compiled now, for one signature: it can be passed as a first-class function."""
    dispatcher = _compiled(function, cache=True, pipeline_class=KernelCompiler)
    dispatcher.compile(signature)  # type: ignore[attr-defined]
    return dispatcher


def entry_point(dispatcher: Any, *arguments: Any) -> Callable[..., Any]:
    """A kernel's machine code for arguments of these types, to be called without asking for the types again.

    Finding out the type of a world record takes numba 25 us per call. Whoever calls what this returns with arguments of
    other types, or calls it with enumeration members instead of integers, gets garbage or worse.
    """
    function: Callable[..., Any] = dispatcher.compile(tuple(numba.typeof(argument) for argument in arguments))
    return function


ALLOCATE_NOTHING = ("gangline.envs.", "gangline.baselines.kueue.", "gangline.baselines.slurm.")


def _compiled(function: F, **options: Any) -> F:
    options["_nrt"] = _counts_references(function)
    decorate: Callable[[F], F] = numba.njit(nogil=True, error_model="numpy", **options)
    dispatcher = decorate(function)
    _trust_cache_only_for_these_sources(dispatcher)
    return dispatcher


def _counts_references(function: Any) -> bool:
    """Whether a function counts who holds its arrays: only where somebody makes some.

    Without the counts a step of the environment takes an eighth less, and there is less to compile. A module of these
    packages whose helpers do make arrays of their own says `ALLOCATES = True`.
    """
    if function.__globals__.get("ALLOCATES", False):
        return True
    return not function.__module__.startswith(ALLOCATE_NOTHING)


def _take_every_integer_as_int64(dispatcher: Any) -> None:
    """Compile a helper once, not once for each width of integer that some caller happens to pass."""
    resolve = dispatcher.get_call_template

    def widened(kind: Any) -> Any:
        kind = nbt.unliteral(kind)
        is_narrow = isinstance(kind, nbt.Integer) and kind.bitwidth < 64  # type: ignore[attr-defined]
        return nbt.int64 if is_narrow or isinstance(kind, nbt.IntEnumMember) else kind

    def resolve_widened(args: Any, kws: Any) -> Any:
        return resolve(tuple(widened(kind) for kind in args), {name: widened(kind) for name, kind in kws.items()})

    dispatcher.get_call_template = resolve_widened


def _trust_cache_only_for_these_sources(dispatcher: Any) -> None:
    """Make the cache of a function depend on every source file that is compiled into it.

    numba looks at the file of the function alone, and would go on using code that has a changed callee compiled in.
    """
    file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if file is not None and hasattr(file, "_source_stamp"):
        file._source_stamp = (file._source_stamp, _stamp_of_sources(Path(inspect.getfile(dispatcher.py_func))))


@cache
def _stamp_of_sources(file: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of a file and of each file of the package that it imports, and so on."""
    found: dict[Path, None] = {}
    open_files = [file.resolve()]
    while open_files:
        path = open_files.pop()
        if path not in found and path.name != "__init__.py":
            found[path] = None
            open_files += _imported_files(path)
    return tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(found))


@cache
def _imported_files(file: Path) -> tuple[Path, ...]:
    """Files of the package that a file imports, by its import lines."""
    text = file.read_text(encoding="utf-8")
    lines = re.findall(r"^\s*(?:from|import) +gangline\.([\w.]+)(?: +import +(\([^)]*\)|[\w, ]+))?", text, re.MULTILINE)
    names = [".".join(filter(None, (base, name))) for base, of in lines for name in ["", *re.findall(r"\w+", of)]]
    root = Path(__file__).resolve().parents[2]
    paths = [root / f"{name.replace('.', '/')}.py" for name in names]
    return tuple(path for path in dict.fromkeys(paths) if path.is_file())
