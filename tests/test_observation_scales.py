"""The logarithm of the observation against the library's."""

import math

import numpy as np

from gangline.envs.core.compiled import kernel
from gangline.envs.observation import log_1_plus


@kernel
def fill(values, out):
    for i in range(len(values)):
        out[i] = log_1_plus(values[i])


def test_the_short_logarithm_agrees_to_ten_digits():
    values = np.concatenate([[0.0, 1e-9, 0.41, 0.42, 1.0], np.geomspace(1e-6, 1e15, 1000)])
    out = np.zeros_like(values)
    fill(values, out)
    assert out[0] == 0.0
    assert max(abs(a - math.log1p(x)) for a, x in zip(out, values, strict=True)) < 1e-9
