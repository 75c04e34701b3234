"""Committed: the first job by an order is chosen and then waited for; nothing is chosen anew while it blocks.

RLScheduler's protocol, made to reproduce its tables. With backfill the shadow time is fixed when the chosen job blocks:
the claimed end of the running job, in order of claimed ends, that frees enough GPUs. From then on, at every event, the
queue is walked in order of submission, and each job starts that fits and by its claim ends before the shadow time.

Events are taken one at a time, also those of one instant: arrivals before releases, each with its own walk. The
simulator applies an instant as a whole, so what has been released and not been taken yet is withheld.
GPUs are counted, as in the paper: where a count does not make a placement, the job waits.
Source: Zhang et al., "RLScheduler", SC 2020; DIR-LAB/deep-batch-scheduler cd433e3,
`moveforward_for_resources_backfill`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.baselines.base import CompiledScheduler, placement_rule
from gangline.baselines.primitives.backfill import claimed_end_ms
from gangline.envs.core.compiled import helper
from gangline.envs.core.queue import QueueOrder, precedes
from gangline.envs.core.transactions import plan
from gangline.envs.core.types import AGAIN, NEVER, NONE
from gangline.envs.errors import unknown_name

PRIVATE = np.dtype(
    [
        ("rule", np.int64),
        ("backfills", np.int64),  # 0 or 1
        ("chosen_row", np.int64),  # the job waited for; NONE
        ("shadow_ms", np.int64),  # jobs that end before may start before it; NONE = not blocked yet
        ("seen_row", np.int64),  # arrivals up to this row have been taken
        ("num_held", np.int64),
    ]
)
PRIVATE_BYTES = PRIVATE.itemsize
HELD = np.dtype(
    [("slot", np.int64), ("row", np.int64), ("gpus", np.int64), ("end_ms", np.int64), ("is_gone", np.int64)]
)
HELD_CELLS = HELD.itemsize // 8  # the jobs that hold GPUs as far as events have been taken, in order of their start

ORDERS = {"submit": QueueOrder.SUBMIT, "claim": QueueOrder.CLAIM, "f1": QueueOrder.F1}


def decide(w: Any, private: Any, out: Any) -> int:
    """Start the chosen job, or one that ends before it could; else take the next event of this instant; else wait."""
    own = private[:PRIVATE_BYTES].view(PRIVATE)[0]
    held = private[PRIVATE_BYTES:].view(HELD)
    notice(w, own, held)
    free = w.gpus_up - w.gpus_held
    for i in range(own.num_held):
        if held[i].is_gone:
            free -= held[i].gpus
    while True:
        chosen = first_seen(w, own)
        if chosen != NONE:
            job = w.jobs[chosen]
            own.chosen_row = job.row
            if job.gpus_wanted <= free and plan(w, chosen, own.rule, out):
                own.chosen_row = NONE
                own.shadow_ms = NONE
                return AGAIN
            if own.backfills:
                if own.shadow_ms == NONE:
                    own.shadow_ms = shadow_of(own, held, job.gpus_wanted - free)
                if backfill_in_order(w, own, free, out):
                    return AGAIN
        if take_arrival(w, own):
            continue
        gpus = take_release(own, held)
        if gpus == NONE:
            return NEVER
        free += gpus


@helper
def notice(w: Any, own: Any, held: Any) -> None:
    """Mark the jobs that hold GPUs no longer, and add those that have started."""
    for i in range(own.num_held):
        job = w.jobs[held[i].slot]
        if job.row != held[i].row or job.num_bound == 0:
            held[i].is_gone = 1
    at = w.last_running
    while at != NONE and not is_held(own, held, at, w.jobs[at].row):
        at = w.jobs[at].prev
    at = w.first_running if at == NONE else w.jobs[at].next
    while at != NONE:
        entry = held[own.num_held]
        entry.slot = at
        entry.row = w.jobs[at].row
        entry.gpus = w.jobs[at].gpus_bound
        entry.end_ms = claimed_end_ms(w, w.jobs[at])
        entry.is_gone = 0
        own.num_held += 1
        at = w.jobs[at].next


@helper
def is_held(own: Any, held: Any, slot: int, row: int) -> bool:
    """Whether a running job is in the list already."""
    for i in range(own.num_held - 1, -1, -1):
        if held[i].slot == slot and held[i].row == row and not held[i].is_gone:
            return True
    return False


@helper
def first_seen(w: Any, own: Any) -> int:
    """The job that is waited for, else the first in the world's queue order whose arrival has been taken; NONE."""
    best = NONE
    for slot in range(w.jobs_used):
        job = w.jobs[slot]
        if job.is_queued and job.row <= own.seen_row:
            if job.row == own.chosen_row:
                return slot
            if best == NONE or precedes(job, w.jobs[best]):
                best = slot
    own.shadow_ms = NONE
    return best


@helper
def shadow_of(own: Any, held: Any, missing: int) -> int:
    """The claimed end by which enough GPUs have come free; NEVER if jobs without a claim are needed."""
    end_ms = NONE
    while True:
        following = NEVER
        freed = 0
        for i in range(own.num_held):
            if held[i].end_ms > end_ms:
                following = min(following, held[i].end_ms)
        if following >= NEVER:
            return NEVER
        end_ms = following
        for i in range(own.num_held):
            if held[i].end_ms <= end_ms:
                freed += held[i].gpus
        if freed >= missing:
            return end_ms


@helper
def backfill_in_order(w: Any, own: Any, free: int, out: Any) -> bool:
    """Plan the start of the first job, by submission, that fits and ends before the shadow time; False if none does."""
    tried_ms = NONE
    tried_row = NONE
    while True:
        best = NONE
        for slot in range(w.jobs_used):
            job = w.jobs[slot]
            if (
                job.is_queued
                and job.row <= own.seen_row
                and job.row != own.chosen_row
                and job.gpus_wanted <= free
                and w.now_ms + job.claim_ms < own.shadow_ms
                and is_earlier(tried_ms, tried_row, job.submit_ms, job.row)
                and (best == NONE or is_earlier(job.submit_ms, job.row, w.jobs[best].submit_ms, w.jobs[best].row))
            ):
                best = slot
        if best == NONE:
            return False
        if plan(w, best, own.rule, out):
            return True
        tried_ms = w.jobs[best].submit_ms
        tried_row = w.jobs[best].row


@helper
def is_earlier(a_ms: int, a_row: int, b_ms: int, b_row: int) -> bool:
    """Order of submission; equal times by row."""
    return a_ms < b_ms or (a_ms == b_ms and a_row < b_row)


@helper
def take_arrival(w: Any, own: Any) -> bool:
    """Take the next arrival of this instant; False if there is none."""
    row = NEVER
    for slot in range(w.jobs_used):
        if w.jobs[slot].is_queued and own.seen_row < w.jobs[slot].row < row:
            row = w.jobs[slot].row
    if row >= NEVER:
        return False
    own.seen_row = row
    return True


@helper
def take_release(own: Any, held: Any) -> int:
    """Take the next release of this instant, by start; returns the GPUs that come free, NONE if there is no release."""
    for i in range(own.num_held):
        if held[i].is_gone:
            gpus = held[i].gpus
            own.num_held -= 1
            for later in range(i, own.num_held):
                held[later] = held[later + 1]
            return gpus
    return NONE


def build(order: str = "submit", backfill: bool = False, rule: str = "pack") -> CompiledScheduler:
    """RLScheduler's protocol: the order that chooses (submit, claim, f1), backfill or not, a placement rule."""
    if order not in ORDERS:
        raise unknown_name("order", order, ORDERS)
    private = np.array([(placement_rule(rule), backfill, NONE, NONE, NONE, 0)], PRIVATE)
    return CompiledScheduler(
        "committed",
        decide,
        private,
        scratch_cells=lambda size: HELD_CELLS * size.max_jobs,
        queue_order=ORDERS[order],
    )
