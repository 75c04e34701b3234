"""Compiling: helpers live inside kernels, and processes that compile at the same time share one cache."""

import subprocess
import sys

import numpy as np

from gangline.envs.core.compiled import helper, kernel

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
    import os

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
    for kind in (np.int8, np.int32, np.int64):
        values = np.arange(3, dtype=kind)
        doubled(values)
        assert values.tolist() == [0, 2, 4]
    assert len(double.overloads) == 1
