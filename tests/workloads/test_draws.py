"""The hash that belongs to a job: known values, and a slow twin."""

import numpy as np
import pytest

from gangline.envs.errors import GanglineError
from gangline.envs.workloads.draws import ALL, job_hash, job_uniform, sub_seed


@pytest.mark.parametrize(
    ("seed", "row", "want"),
    [
        (0, 0, 0xE220A8397B1DCDAF),  # the first three outputs of splitmix64 from 0 (Vigna)
        (1, 0, 0x6E789E6AA1B965F4),
        (2, 0, 0x06C45D188009454F),
        (0, 1, 0x910A2DEC89025CC1),  # and the first of the stream from 1
        (42, 7, 0x61CC42D4094B9C40),
    ],
)
def test_the_hash_has_the_published_values(seed, row, want):
    assert int(job_hash(seed, row)) == want


def test_the_hash_equals_python_integers_modulo_2_to_the_64():
    rng = np.random.default_rng(0)
    for seed, row in zip(rng.integers(0, 1 << 63, 200).tolist(), rng.integers(0, 1 << 31, 200).tolist(), strict=True):
        z = ((seed + 1) * 0x9E3779B97F4A7C15 + row) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        assert int(job_hash(seed, row)) == z ^ (z >> 31)


def test_draws_are_uniform_and_unrelated_between_neighbouring_seeds():
    rows = np.arange(100_000)
    u, v = job_uniform(7, rows), job_uniform(8, rows)
    assert u.min() >= 0 and u.max() < 1
    counts = np.bincount((u * 100).astype(int), minlength=100)
    assert ((counts - 1000) ** 2 / 1000).sum() < 150  # chi-square, 99 degrees of freedom
    assert abs(np.corrcoef(u, v)[0, 1]) < 0.01
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 0.01


def test_derived_seeds_differ_by_stream_and_number():
    seeds = {sub_seed(3, stream, number) for stream in ("claims", "redraw") for number in range(50)}
    assert len(seeds) == 100
    assert all(0 <= seed <= ALL for seed in seeds)


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(GanglineError, match="expected 0 <= seed"):
        job_hash(seed, 0)
