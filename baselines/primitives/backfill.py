"""EASY backfill: the head's reserved start, and who may start before it without delaying it.

Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995. Node-exact: the reservation is the earliest time at which the
head fits when running jobs leave at the end of their walltime claims, on the real nodes and GPUs.
"""

from __future__ import annotations

from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.core.placement import measure_fit
from gangline.envs.core.queue import first_with_claim, precedes
from gangline.envs.core.transactions import (
    begin,
    lift,
    may_have_room,
    plan,
    plan_within,
    put_all_back,
    touch,
    try_command,
    undo,
)
from gangline.envs.core.types import NEVER, NONE, JobState, Result


@helper
def claimed_end_ms(w: Any, job: Any) -> int:
    """When a running job ends by its walltime claim; NEVER without one. A job past its claim counts as ending now."""
    if job.claim_ms >= NEVER or job.start_ms >= NEVER:
        return NEVER
    return max(w.now_ms, job.start_ms + job.claim_ms)


@helper
def fits_now(w: Any, slot: int, rule: int) -> bool:
    """Whether a waiting job would find nodes with whoever is lifted out of the way."""
    begin(w)
    scratch = w.scratch[0]
    scratch.num_commands = 0
    scratch.num_transactions = 0
    found = touch(w, slot) and plan_within(w, slot, rule, scratch)
    undo(w)
    return found


@helper
def may_fit(w: Any, slot: int) -> bool:
    """Quick test before `fits_now`: enough pods of the first pod set fit somewhere."""
    job = w.jobs[slot]
    pod_set = w.pod_sets[job.first_pod_set]
    wanted = pod_set.count - pod_set.num_done
    return measure_fit(w, job, pod_set, NONE, wanted) >= wanted


@helper
def lift_until_fit(w: Any, head: int, rule: int, ends: Any, slots: Any) -> int:
    """Lift running jobs in order of their claimed ends until the head fits; returns that time.

    NEVER if it has to wait for jobs without a claim, or cannot fit at all. The lifted jobs stay lifted: the caller puts
    them back. `ends` and `slots` are scratch, one cell per running job.
    """
    count = 0
    at = w.first_running
    while at != NONE and count < len(slots):
        end_ms = claimed_end_ms(w, w.jobs[at])
        if w.jobs[at].state != JobState.SUSPENDED:
            ends[count] = end_ms
            slots[count] = at
            count += 1
        at = w.jobs[at].next
    for i in range(count // 2 - 1, -1, -1):
        _sink(w, ends, slots, i, count)
    while count > 0:
        time_ms = ends[0]
        while count > 0 and ends[0] == time_ms:
            if not lift(w, slots[0]):
                return NEVER
            count -= 1
            ends[0] = ends[count]
            slots[0] = slots[count]
            _sink(w, ends, slots, 0, count)
        if may_fit(w, head) and fits_now(w, head, rule):
            return time_ms
    return NEVER


@helper
def _sink(w: Any, ends: Any, slots: Any, at: int, count: int) -> None:
    """Restore the heap order (end, row) below a place."""
    while True:
        child = 2 * at + 1
        if child >= count:
            return
        if child + 1 < count and _is_earlier(w, ends, slots, child + 1, child):
            child += 1
        if not _is_earlier(w, ends, slots, child, at):
            return
        ends[at], ends[child] = ends[child], ends[at]
        slots[at], slots[child] = slots[child], slots[at]
        at = child


@helper
def _is_earlier(w: Any, ends: Any, slots: Any, a: int, b: int) -> bool:
    """Order of claimed ends; equal ends by row."""
    if ends[a] != ends[b]:
        return ends[a] < ends[b]
    return w.jobs[slots[a]].row < w.jobs[slots[b]].row


@helper
def still_fits_beside(w: Any, head: int, out: Any, first: int, rule: int, until_ms: int) -> bool:
    """Whether the head would still start at its reserved time with the planned job beside it.

    Args:
        head: slot of the job with the reservation.
        out: decision whose commands from `first` on place the other job.
        first: index of the first of them.
        rule: placement rule.
        until_ms: the reserved start; running jobs that end by then are out of the way.
    """
    at = w.first_running
    while at != NONE:
        if claimed_end_ms(w, w.jobs[at]) <= until_ms and w.jobs[at].state != JobState.SUSPENDED and not lift(w, at):
            put_all_back(w)
            return False
        at = w.jobs[at].next
    begin(w)
    fits = True
    for i in range(first, out.num_commands):
        fits = fits and try_command(w, out.commands[i]) == Result.OK
    scratch = w.scratch[0]
    scratch.num_commands = 0
    scratch.num_transactions = 0
    fits = fits and touch(w, head) and plan_within(w, head, rule, scratch)
    undo(w)
    put_all_back(w)
    return fits


@helper
def next_backfill(w: Any, head: int, shadow_ms: int, delays: Any, stamp: int) -> int:
    """First job in queue order that may start before the head, shape and claim permitting; NONE.

    A job that ends by the reserved start may always; a longer one only if its group is not known to delay the head
    (`delays[group] == stamp`).
    """
    best = NONE
    g = w.first_group
    while g != NONE:
        first = w.groups[g].head
        if may_have_room(w, first):
            candidate = first
            if delays[g] == stamp or candidate == head:
                candidate = first_with_claim(w, g, shadow_ms - w.now_ms - (shadow_ms >= NEVER))
            if candidate != NONE and candidate != head and (best == NONE or precedes(w.jobs[candidate], w.jobs[best])):
                best = candidate
        g = w.groups[g].next
    return best


@helper
def backfill_one(w: Any, head: int, shadow_ms: int, rule: int, delays: Any, stamp: int, out: Any) -> bool:
    """Plan the start of one job before the head's reserved start; False if no job may."""
    while True:
        slot = next_backfill(w, head, shadow_ms, delays, stamp)
        if slot == NONE:
            return False
        first = out.num_commands
        if not plan(w, slot, rule, out):
            continue  # its group is known to have no room now
        claim_ms = w.jobs[slot].claim_ms
        if (claim_ms < NEVER and w.now_ms + claim_ms <= shadow_ms) or still_fits_beside(
            w, head, out, first, rule, shadow_ms
        ):
            return True
        out.num_commands = first
        out.num_transactions -= 1
        delays[w.jobs[slot].group] = stamp
