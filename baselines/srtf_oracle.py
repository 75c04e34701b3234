"""Shortest remaining time first, given the truth: an oracle that no real scheduler can be.

It orders by the work that is really left, and stops a running job for a waiting one with less. The name says that it
is told what others must not know.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.baselines.base import CompiledScheduler, placement_rule
from gangline.baselines.las import PRIVATE, PRIVATE_BYTES
from gangline.baselines.primitives.order import first_untried, first_with_room
from gangline.baselines.primitives.preemption import next_unprotected_ms, protected_ms
from gangline.envs.core.preemption import Scope, VictimRule, plan_make_room
from gangline.envs.core.progress import accrue_job
from gangline.envs.core.queue import QueueOrder
from gangline.envs.core.transactions import plan
from gangline.envs.core.types import AGAIN, NEVER, NONE


def decide(w: Any, private: Any, out: Any) -> int:
    """Start the shortest that fits; else stop longer jobs for the shortest that may; else wait."""
    own = private[:PRIVATE_BYTES].view(PRIVATE)[0]
    tried = private[PRIVATE_BYTES:].view(np.int64)
    while True:
        slot = first_with_room(w)
        if slot == NONE:
            break
        if plan(w, slot, own.rule, out):
            return AGAIN
    if w.first_group == NONE:
        return NEVER
    at = w.first_running
    while at != NONE:
        accrue_job(w, at)
        at = w.jobs[at].next
    own.stamp += 1
    while True:
        best = first_untried(w, tried, own.stamp)
        if best == NONE:
            return next_unprotected_ms(w, own.min_run_ms)
        tried[w.jobs[best].group] = own.stamp
        if plan_make_room(w, best, own.rule, VictimRule.LEAST_LOST, Scope.LONGER_REMAINING, own.min_run_ms, out):
            return AGAIN


def build(rule: str = "pack", min_run_h: float = 0.0) -> CompiledScheduler:
    """SRTF with the truth, a placement rule and a protected minimum run time (hours)."""
    private = np.array([(placement_rule(rule), protected_ms(min_run_h), 0)], PRIVATE)
    return CompiledScheduler(
        "srtf_oracle", decide, private, scratch_cells=lambda size: size.max_groups, queue_order=QueueOrder.REMAINING
    )
