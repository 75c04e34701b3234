"""The one place that says how the core is compiled, so that results do not depend on who wrote a kernel.

No fast-math: results are the same on every machine. `NUMBA_DISABLE_JIT=1` runs the same code as plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

JIT_IS_OFF = bool(getattr(numba.config, "DISABLE_JIT", False))

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


def _compiled(function: F, **flags: Any) -> F:
    decorate: Callable[[F], F] = numba.njit(cache=True, nogil=True, error_model="numpy", **flags)
    return decorate(function)
