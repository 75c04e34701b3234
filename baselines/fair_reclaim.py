"""Fair-share reclaim: DRF, and a tenant below its fair share takes GPUs back from those above theirs.

The hand rule that a learned policy has to face. Victims are those that lose least (since the last checkpoint,
restart included), never one that has run for less than `min_run_h`, never of a tenant within its share; a reclaimer
stays within its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.baselines.base import CompiledScheduler, placement_rule, victim_rule
from gangline.baselines.primitives.order import most_entitled, poorest_with_room
from gangline.baselines.primitives.preemption import next_unprotected_ms, protected_ms
from gangline.envs.core.preemption import Scope, plan_make_room
from gangline.envs.core.transactions import plan
from gangline.envs.core.types import AGAIN, NEVER, NONE

PRIVATE = np.dtype([("rule", np.int64), ("victims", np.int64), ("min_run_ms", np.int64), ("stamp", np.int64)])
PRIVATE_BYTES = PRIVATE.itemsize


def decide(w: Any, private: Any, out: Any) -> int:
    """Start what fits, poorest tenant first; then reclaim for the tenant furthest below its share; else wait."""
    own = private[:PRIVATE_BYTES].view(PRIVATE)[0]
    tried = private[PRIVATE_BYTES:].view(np.int64)
    while True:
        slot = poorest_with_room(w)
        if slot == NONE:
            break
        if plan(w, slot, own.rule, out):
            return AGAIN
    own.stamp += 1
    next_ms = NEVER
    while True:
        slot = most_entitled(w, tried, own.stamp)
        if slot == NONE:
            return next_ms
        next_ms = next_unprotected_ms(w, own.min_run_ms)
        tried[w.jobs[slot].group] = own.stamp
        if plan_make_room(w, slot, own.rule, own.victims, Scope.OVER_SHARE, own.min_run_ms, out):
            return AGAIN


def build(rule: str = "pack", victims: str = "least_lost", min_run_h: float = 2.0) -> CompiledScheduler:
    """Fair-share reclaim with a placement rule, a victim rule and a protected minimum run time (hours)."""
    private = np.array([(placement_rule(rule), victim_rule(victims), protected_ms(min_run_h), 0)], PRIVATE)
    return CompiledScheduler("fair_reclaim", decide, private, scratch_cells=lambda size: size.max_groups)
