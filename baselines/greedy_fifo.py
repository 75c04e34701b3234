"""Greedy FIFO: oldest first, but a job that does not fit is passed over."""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.baselines.base import CompiledScheduler, placement_rule
from gangline.baselines.primitives.order import first_with_room
from gangline.envs.core.transactions import plan
from gangline.envs.core.types import AGAIN, NEVER, NONE

PRIVATE = np.dtype([("rule", np.int64)])
PRIVATE_BYTES = PRIVATE.itemsize


def decide(w: Any, private: Any, out: Any) -> int:
    """Start the first job that fits, and ask again; else wait."""
    own = private[:PRIVATE_BYTES].view(PRIVATE)[0]
    while True:
        slot = first_with_room(w)
        if slot == NONE:
            return NEVER
        if plan(w, slot, own.rule, out):
            return AGAIN


def build(rule: str = "pack") -> CompiledScheduler:
    """Greedy FIFO with a placement rule."""
    return CompiledScheduler("greedy_fifo", decide, np.array([(placement_rule(rule),)], PRIVATE))
