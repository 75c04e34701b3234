"""Least attained service, two-dimensional (GPUs x time), discretized and preemptive.

Jobs fall into classes of attained GPU time (one GPU-hour, then doubling); a lower class goes first, FIFO inside; a
waiting job may stop running jobs of higher classes. Needs no claims.
Source: Tiresias, Gu et al., NSDI 2019 (Discretized 2D-LAS).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.baselines.base import CompiledScheduler, placement_rule
from gangline.baselines.primitives.order import first_with_room
from gangline.envs.core.preemption import Scope, VictimRule, plan_make_room
from gangline.envs.core.queue import ATTAINED_BASE_GPU_MS, QueueOrder, attained_class, precedes
from gangline.envs.core.transactions import plan
from gangline.envs.core.types import AGAIN, NEVER, NONE
from gangline.envs.errors import GanglineError

PRIVATE = np.dtype([("rule", np.int64), ("min_run_ms", np.int64), ("stamp", np.int64)])
PRIVATE_BYTES = PRIVATE.itemsize


def decide(w: Any, private: Any, out: Any) -> int:
    """Start the first that fits; else stop jobs of higher classes for the first that may; else wait for a class change."""
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
    next_ms = NEVER
    at = w.first_running
    while at != NONE:
        job = w.jobs[at]
        attained = job.gpu_time.held + (w.now_ms - job.accrued_ms) * (job.gpus_bound + job.gpus_surplus)
        job.order_key = attained_class(attained)
        if job.gpus_bound > 0:
            left = (ATTAINED_BASE_GPU_MS << job.order_key) - attained
            next_ms = min(next_ms, w.now_ms + max(1, -(-left // job.gpus_bound)))
        at = job.next
    own.stamp += 1
    while True:
        best = NONE
        g = w.first_group
        while g != NONE:
            head = w.groups[g].head
            if tried[g] != own.stamp and (best == NONE or precedes(w.jobs[head], w.jobs[best])):
                best = head
            g = w.groups[g].next
        if best == NONE:
            return next_ms
        tried[w.jobs[best].group] = own.stamp
        if plan_make_room(w, best, own.rule, VictimRule.LEAST_LOST, Scope.MORE_ATTAINED, own.min_run_ms, out):
            return AGAIN


def build(rule: str = "pack", min_run_h: float = 0.5) -> CompiledScheduler:
    """2D-LAS with a placement rule and a protected minimum run time (hours)."""
    if not min_run_h >= 0:
        raise GanglineError(f"min_run_h is {min_run_h}, expected at least 0 hours")
    private = np.array([(placement_rule(rule), round(min_run_h * 3_600_000), 0)], PRIVATE)
    return CompiledScheduler(
        "las", decide, private, scratch_cells=lambda size: size.max_groups, queue_order=QueueOrder.ATTAINED
    )
