"""Random draws that belong to a job, not to the order of drawing: the same (seed, row) gives the same number anywhere.

The compiled core thins a trace with the same hash, so a job is in or out whatever else is in the table.
"""

from __future__ import annotations

import numpy as np

from gangline.envs.errors import GanglineError

GOLDEN = 0x9E3779B97F4A7C15
ALL = (1 << 64) - 1  # the threshold that no row is above


def job_hash(seed: int, row: np.ndarray | int) -> np.ndarray:
    """One 64-bit number per (seed, row): output number `seed` of a splitmix64 stream that starts at `row`.

    In arithmetic modulo 2^64, with `GOLDEN` = 0x9E3779B97F4A7C15:

        z = (seed + 1) * GOLDEN + row
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB
        hash = z ^ (z >> 31)

    Args:
        seed: 0 <= seed < 2^64.
        row: integers, any shape.

    Returns: uint64, same shape.
    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014; Vigna's splitmix64.c.
    """
    if not 0 <= int(seed) <= ALL:
        raise GanglineError(f"seed is {seed}, expected 0 <= seed < 2^64")
    with np.errstate(over="ignore"):  # numpy warns when a scalar wraps around, which is the point
        z = np.asarray(row).astype(np.uint64) + np.uint64((int(seed) + 1) * GOLDEN & ALL)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def sub_seed(seed: int, stream: str, number: int = 0) -> int:
    """A seed derived from another, so that two uses of one seed share nothing.

    Args:
        seed: 0 <= seed < 2^64.
        stream: what it is for, at most 8 ASCII letters.
        number: a further counter.
    """
    return int(job_hash(int(job_hash(seed, int.from_bytes(stream.encode("ascii"), "little"))), number))


def job_uniform(seed: int, row: np.ndarray) -> np.ndarray:
    """(n,) float64 in [0, 1): the top 53 bits of `job_hash`."""
    return (job_hash(seed, row) >> np.uint64(11)).astype(np.float64) * 2.0**-53
