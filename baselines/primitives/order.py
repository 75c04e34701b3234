"""Which waiting job is next: stages that pick a job from the queue, looking at the heads of its groups only."""

from __future__ import annotations

from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.core.fair_share import refresh_shares
from gangline.envs.core.queue import precedes
from gangline.envs.core.transactions import may_have_room
from gangline.envs.core.types import NONE


@helper
def first_with_room(w: Any) -> int:
    """First waiting job of all groups whose shape may find room, or NONE. O(non-empty groups)."""
    best = NONE
    g = w.first_group
    while g != NONE:
        head = w.groups[g].head
        if may_have_room(w, head) and (best == NONE or precedes(w.jobs[head], w.jobs[best])):
            best = head
        g = w.groups[g].next
    return best


@helper
def first_untried(w: Any, tried: Any, stamp: int) -> int:
    """First waiting job of all groups that have not been tried at this state, or NONE. O(non-empty groups).

    Args:
        tried: (num_groups,) int64; a group whose cell holds `stamp` has been tried.
        stamp: number of the state.
    """
    best = NONE
    g = w.first_group
    while g != NONE:
        head = w.groups[g].head
        if tried[g] != stamp and (best == NONE or precedes(w.jobs[head], w.jobs[best])):
            best = head
        g = w.groups[g].next
    return best


@helper
def share_precedes(w: Any, a: int, b: int) -> bool:
    """Whether tenant a's share of what it is entitled to is smaller than tenant b's (held / weight, exact)."""
    first = w.tenants[a]
    second = w.tenants[b]
    if first.weight == 0 or second.weight == 0:  # entitled to nothing: after all others
        return first.weight > 0 or (second.weight == 0 and first.held < second.held)
    return first.held * second.weight < second.held * first.weight


@helper
def poorest_with_room(w: Any) -> int:
    """Waiting job of the tenant with the smallest weighted GPU share whose shape may find room, oldest first; NONE."""
    best = NONE
    g = w.first_group
    while g != NONE:
        head = w.groups[g].head
        if may_have_room(w, head):
            tenant = w.jobs[head].tenant
            if (
                best == NONE
                or share_precedes(w, tenant, w.jobs[best].tenant)
                or (precedes(w.jobs[head], w.jobs[best]) and not share_precedes(w, w.jobs[best].tenant, tenant))
            ):
                best = head
        g = w.groups[g].next
    return best


@helper
def most_entitled(w: Any, tried: Any, stamp: int) -> int:
    """Waiting job of the tenant furthest below its fair share that would stay within it, oldest first; NONE.

    Args:
        tried: (num_groups,) int64; a group whose cell holds `stamp` has been tried at this state and is skipped.
        stamp: number of the state.
    """
    refresh_shares(w)
    best = NONE
    best_gap = 0
    g = w.first_group
    while g != NONE:
        head = w.groups[g].head
        job = w.jobs[head]
        gap = w.tenants[job.tenant].fair - w.tenants[job.tenant].held
        is_entitled = gap >= job.gpus_wanted > 0 and tried[g] != stamp
        if is_entitled and (best == NONE or gap > best_gap or (gap == best_gap and precedes(job, w.jobs[best]))):
            best = head
            best_gap = gap
        g = w.groups[g].next
    return best
