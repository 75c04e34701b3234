"""Dominant-resource fairness, greedy: the tenant with the smallest weighted share goes first, its oldest job that fits.

Ghodsi et al., "Dominant Resource Fairness", NSDI 2011; here over the GPU, the resource that is scarce. No preemption.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.baselines.base import CompiledScheduler, placement_rule
from gangline.baselines.greedy_fifo import PRIVATE, PRIVATE_BYTES
from gangline.baselines.primitives.order import poorest_with_room
from gangline.envs.core.transactions import plan
from gangline.envs.core.types import AGAIN, NEVER, NONE


def decide(w: Any, private: Any, out: Any) -> int:
    """Start one job of the poorest tenant that has one that fits, and ask again; else wait."""
    own = private[:PRIVATE_BYTES].view(PRIVATE)[0]
    while True:
        slot = poorest_with_room(w)
        if slot == NONE:
            return NEVER
        if plan(w, slot, own.rule, out):
            return AGAIN


def build(rule: str = "pack") -> CompiledScheduler:
    """DRF, greedy, with a placement rule."""
    return CompiledScheduler("drf_greedy", decide, np.array([(placement_rule(rule),)], PRIVATE))
