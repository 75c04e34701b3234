"""Strict FIFO: the oldest waiting job starts when it fits; nobody overtakes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.baselines.base import CompiledScheduler, placement_rule
from gangline.envs.core.queue import first_waiting
from gangline.envs.core.transactions import plan
from gangline.envs.core.types import AGAIN, NEVER, NONE

PRIVATE = np.dtype([("rule", np.int64)])
PRIVATE_BYTES = PRIVATE.itemsize


def decide(w: Any, private: Any, out: Any) -> int:
    """Start the head if it fits, and ask again; else wait."""
    own = private[:PRIVATE_BYTES].view(PRIVATE)[0]
    head = first_waiting(w)
    if head != NONE and plan(w, head, own.rule, out):
        return AGAIN
    return NEVER


def build(rule: str = "pack") -> CompiledScheduler:
    """Strict FIFO with a placement rule."""
    return CompiledScheduler("fifo", decide, np.array([(placement_rule(rule),)], PRIVATE))
