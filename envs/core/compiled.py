"""The one place that says how the core is compiled, so that results do not depend on who wrote a kernel.

No fast-math: results are the same on every machine. `NUMBA_DISABLE_JIT=1` runs the same code as plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def helper(function: F) -> F:
    """A function that only kernels call."""
    compiled: F = numba.njit(
        cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
    )(function)
    return compiled


def inlined(function: F) -> F:
    """A helper that is written into its callers: for pieces of a loop that have a name for the reader's sake.

    LLVM works through everything that a separately compiled helper calls once more for each helper above it; a chain of
    thin ones would multiply the time of the first compile.
    """
    compiled: F = numba.njit(inline="always", cache=True, nogil=True, error_model="numpy")(function)
    return compiled


def kernel(function: F) -> F:
    """A function that Python calls: once per step or batch."""
    compiled: F = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled
