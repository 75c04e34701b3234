"""Compiling: helpers live inside kernels, processes share one cache, and it depends on all that is compiled in."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from gangline.envs.core.compiled import _imported_files, helper, kernel
from gangline.envs.core.compiler import KernelCompiler

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted([*(ROOT / "envs").rglob("*.py"), *(ROOT / "baselines").rglob("*.py")])

SCRIPT = """
from gangline.baselines.base import build
from gangline.envs.core.types import SIZE_CLASSES
build("fifo").compiled(SIZE_CLASSES[0])
print("compiled")
"""


def run(cache, environment):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env={**environment, "NUMBA_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_that_compile_at_once_leave_a_cache_that_a_third_loads(tmp_path):
    first, second = run(tmp_path, os.environ), run(tmp_path, os.environ)
    for process in (first, second):
        out, error = process.communicate(timeout=300)
        assert process.returncode == 0 and out == "compiled\n", error
    third = run(tmp_path, os.environ)
    out, error = third.communicate(timeout=300)
    assert out == "compiled\n"
    assert "compiling" not in error  # found in the cache


@helper
def double(x):
    return 2 * x


@kernel
def doubled(values):
    for i in range(len(values)):
        values[i] = double(values[i])


def test_a_helper_is_compiled_once_for_integers_of_every_width():
    compiled_here = numba.njit(pipeline_class=KernelCompiler)(doubled.py_func)  # without a cache
    for kind in (np.int8, np.int32, np.int64):
        values = np.arange(3, dtype=kind)
        compiled_here(values)
        assert values.tolist() == [0, 2, 4]
    assert len(double.overloads) == 1


def imported(path: Path) -> set[Path]:
    """Modules of the package that a file imports, read from its syntax tree."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gangline."):
            base = (node.module or "").removeprefix("gangline.").replace(".", "/")
            found |= {ROOT / f"{base}.py", *(ROOT / base / f"{alias.name}.py" for alias in node.names)}
    return {path for path in found if path.is_file()}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_import_line_is_seen(path):
    assert set(_imported_files(path.resolve())) == imported(path)
