"""The one place that says how the core is compiled, so that results do not depend on who wrote a kernel.

No fast-math: results are the same on every machine. The plain-Python twin of this code is `tests/reference/`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def helper(function: F) -> F:
    """A function that only kernels call."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inlined(function: F) -> F:
    """A helper that is written into its callers: for pieces of a loop that have a name for the reader's sake.

    LLVM works through everything that a separately compiled helper calls once more for each helper above it; a chain of
    thin ones would multiply the time of the first compile.
    """
    return _compiled(function, inline="always")


def kernel(function: F) -> F:
    """A function that Python calls: once per step or batch."""
    return _compiled(function)


def compile_for(function: F, signature: Any) -> Any:
    """A function compiled now, for one signature: it can be passed as a first-class function."""
    dispatcher = _compiled(function)
    dispatcher.compile(signature)  # type: ignore[attr-defined]
    return dispatcher


def _compiled(function: F, **flags: Any) -> F:
    decorate: Callable[[F], F] = numba.njit(cache=True, nogil=True, error_model="numpy", **flags)
    dispatcher = decorate(function)
    _trust_cache_only_for_these_sources(dispatcher)
    return dispatcher


def _trust_cache_only_for_these_sources(dispatcher: Any) -> None:
    """Make the cache of a function depend on every source file of the simulator.

    numba looks at the file of the function alone, and would go on using code that has a changed callee compiled in.
    """
    file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if file is not None and hasattr(file, "_source_stamp"):
        file._source_stamp = (file._source_stamp, _stamp_of_sources())


@cache
def _stamp_of_sources() -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of each file that kernels are made of."""
    environment = Path(__file__).resolve().parents[1]
    folders = (
        environment,
        environment / "core",
        environment.parent / "baselines",
        environment.parent / "baselines/primitives",
    )
    files = sorted(path for folder in folders for path in folder.glob("*.py"))
    return tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in files)
