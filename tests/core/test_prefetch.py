"""Asking for memory ahead: every line of a record is asked for, nothing is changed, no address is a wrong one."""

import numba
import numpy as np
import pytest

from gangline.envs.core.prefetch import prefetch, prefetch_element, prefetch_first, prefetch_line
from gangline.envs.core.types import CACHE_LINE


def record_of(size: int) -> np.dtype:
    return np.dtype({"names": ["first"], "formats": [np.int64], "offsets": [0], "itemsize": size})


@pytest.mark.parametrize(("size", "lines"), [(64, 1), (576, 9), (120, 3), (184, 4)])
def test_a_record_is_asked_for_line_by_line(size: int, lines: int) -> None:
    @numba.njit
    def ask(records):
        prefetch(records[1])

    ask(np.zeros(2, record_of(size)))
    (code,) = ask.inspect_llvm().values()
    assert code.count("call void @llvm.prefetch") == lines


def test_asking_changes_nothing_wherever_the_address_is() -> None:
    @numba.njit
    def ask(records, numbers, at):
        prefetch(records[0])
        prefetch_line(records[0], at)
        prefetch_element(numbers, at)
        prefetch_first(numbers, len(numbers))

    records = np.full(4 * CACHE_LINE, 7, np.uint8).view(record_of(CACHE_LINE))
    numbers = np.arange(1000)
    for at in (0, 3, -1, 10**9, -(10**12), 2**62):
        ask(records, numbers, at)
    assert (records.view(np.uint8) == 7).all() and (numbers == np.arange(1000)).all()
