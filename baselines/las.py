"""Least attained service, two-dimensional (GPUs x time), discretized and preemptive.

Jobs fall into classes of attained GPU time (one GPU-hour, then doubling); a lower class goes first, FIFO inside; a
waiting job may stop running jobs of higher classes. Needs no claims.
Source: Tiresias, Gu et al., NSDI 2019 (Discretized 2D-LAS).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.baselines.base import CompiledScheduler, placement_rule
from gangline.baselines.primitives.order import first_untried, first_with_room
from gangline.baselines.primitives.preemption import next_unprotected_ms, protected_ms
from gangline.envs.core.preemption import Scope, VictimRule, plan_make_room
from gangline.envs.core.queue import ATTAINED_BASE_GPU_MS, MAX_ATTAINED_CLASS, QueueOrder, attained_class
from gangline.envs.core.transactions import plan
from gangline.envs.core.types import AGAIN, NEVER, NONE

PRIVATE = np.dtype([("rule", np.int64), ("min_run_ms", np.int64), ("stamp", np.int64)])
PRIVATE_BYTES = PRIVATE.itemsize
NUM_CLASSES = MAX_ATTAINED_CLASS + 1


def decide(w: Any, private: Any, out: Any) -> int:
    """Start the first that fits; else stop jobs of higher classes for the first that may; else wait."""
    own = private[:PRIVATE_BYTES].view(PRIVATE)[0]
    cells = private[PRIVATE_BYTES:].view(np.int64)
    held_above = cells[:NUM_CLASSES]  # milli-GPU of the jobs above each class that may be stopped
    tried = cells[NUM_CLASSES:]
    while True:
        slot = first_with_room(w)
        if slot == NONE:
            break
        if plan(w, slot, own.rule, out):
            return AGAIN
    if w.first_group == NONE:
        return NEVER
    for c in range(NUM_CLASSES):
        held_above[c] = 0
    next_ms = NEVER
    at = w.first_running
    while at != NONE:
        job = w.jobs[at]
        held = job.gpus_bound + job.gpus_surplus
        attained = job.gpu_time.held + (w.now_ms - job.accrued_ms) * held
        job.order_key = attained_class(attained)
        if held > 0:  # a class change may let a waiting job stop it
            left = (ATTAINED_BASE_GPU_MS << job.order_key) - attained
            next_ms = min(next_ms, w.now_ms + max(1, -(-left // held)))
            is_protected = not job.preemptible or w.now_ms - job.start_ms < own.min_run_ms
            if job.order_key > 0 and not is_protected:
                held_above[job.order_key - 1] += held
        at = job.next
    for c in range(NUM_CLASSES - 2, -1, -1):
        held_above[c] += held_above[c + 1]
    own.stamp += 1
    while True:
        best = first_untried(w, tried, own.stamp)
        if best == NONE:
            return min(next_ms, next_unprotected_ms(w, own.min_run_ms))
        job = w.jobs[best]
        tried[job.group] = own.stamp
        if held_above[job.order_key] + w.gpus_up - w.gpus_held < job.gpus_wanted:
            continue  # stopping all of them would not do
        if plan_make_room(w, best, own.rule, VictimRule.LEAST_LOST, Scope.MORE_ATTAINED, own.min_run_ms, out):
            return AGAIN


def build(rule: str = "pack", min_run_h: float = 0.5) -> CompiledScheduler:
    """2D-LAS with a placement rule and a protected minimum run time (hours)."""
    private = np.array([(placement_rule(rule), protected_ms(min_run_h), 0)], PRIVATE)
    return CompiledScheduler("las", decide, private, lambda size: size.max_groups + NUM_CLASSES, QueueOrder.ATTAINED)
