"""Single questions to the compiled baseline, for the recorded cases that ask one rule and not a whole cycle."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from gangline.baselines.kueue.cycle import next_entry, nominate, pop_heads, reserved_amount
from gangline.baselines.kueue.fair_sharing import dominant_share
from gangline.baselines.kueue.flavors import LEVELS, is_preferred
from gangline.baselines.kueue.preemption import find_targets
from gangline.baselines.kueue.queues import head_of
from gangline.baselines.kueue.scheduler import SMALL, SMALL_BYTES
from gangline.baselines.kueue.snapshot import borrows_on
from gangline.baselines.kueue.victims import sort_candidates, want_usage
from gangline.envs.core.compiled import kernel
from gangline.envs.core.quota import available, potential
from gangline.envs.core.types import MAX_QUOTA_CELLS


class Question(IntEnum):
    """What may be asked."""

    AVAILABLE = 0
    SHARE = 1
    BORROWING_ON = 2
    RESERVED = 3
    HEAD = 4
    TARGETS = 5
    NOMINATION = 6
    ENTRY_ORDER = 7
    CANDIDATE_ORDER = 8
    PREFERRED = 9


@kernel
def answer(worlds: Any, private: Any, question: int, a: int, b: int, numbers: Any, reals: Any) -> None:
    """Answer a question about a world and Kueue's record into `numbers` (int64) and `reals` (float64).

    `a` and `b` are what the question is about: a queue, a slot, a mask of cells.
    """
    w = worlds[0]
    k = private[:SMALL_BYTES].view(SMALL)[0]
    if question == Question.AVAILABLE:
        for cell in range(w.num_cells):
            numbers[cell] = max(0, available(w, a, cell))
            numbers[MAX_QUOTA_CELLS + cell] = potential(w, a, cell)
    elif question == Question.SHARE:
        for cell in range(w.num_cells):
            w.queues[a].usage[cell] += numbers[cell]
        share, is_infinite, is_borrowing, dominant = dominant_share(w, a)
        for cell in range(w.num_cells):
            w.queues[a].usage[cell] -= numbers[cell]
        reals[0] = share
        numbers[0] = is_infinite
        numbers[1] = is_borrowing
        numbers[2] = dominant
    elif question == Question.BORROWING_ON:
        numbers[0] = borrows_on(w, a, b)
    elif question == Question.RESERVED:
        for cell in range(w.num_cells):
            numbers[cell] = reserved_amount(w, a, cell, numbers[cell], b)
    elif question == Question.HEAD:
        numbers[0] = head_of(w, k, a)
    elif question == Question.TARGETS:
        k.num_targets = 0
        want_usage(w, k, k.entries[0])
        numbers[0] = find_targets(w, k, k.entries[0], k.entries[0].preempt_cells)
    elif question == Question.NOMINATION:
        k.num_targets = 0
        if pop_heads(w, k):
            nominate(w, k, k.entries[0])
    elif question == Question.ENTRY_ORDER:
        for i in range(k.num_entries):
            numbers[i] = next_entry(w, k)
            k.entries[numbers[i]].is_done = True
    elif question == Question.CANDIDATE_ORDER:
        sort_candidates(w, k, a)
    elif question == Question.PREFERRED:
        first = numbers[0] * LEVELS + numbers[1]
        second = numbers[2] * LEVELS + numbers[3]
        numbers[0] = is_preferred(first, second, a != 0)
