"""Waiting jobs in order: one balanced search tree per group (tenant, shape), so that no decision walks the queue.

A group's tree is a treap over job slots, ordered by (order_key, row); its node weights are hashes of the row, so
its form does not depend on history. Every node knows the smallest walltime claim below it: the first job in order
with a claim of at most x, the oldest and the shortest are found in O(log n). Jobs of a group ask for the same, so
when one finds no room none does, and a scheduler looks at the heads of the groups only.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np

from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER, NONE, ONE_GPU, JobKind, JobState


class QueueOrder(IntEnum):
    """What orders the waiting jobs. Only visible fields enter, but for the oracle's."""

    SUBMIT = 0  # first submission
    CLAIM = 1  # shortest walltime claim first
    F1 = 2  # log10(claim) x processors + 870 log10(submit), seconds (Carastan-Santos and de Camargo, SC 2017)
    ATTAINED = 3  # least attained GPU time first, in doubling classes
    REMAINING = 4  # oracle: least work left first; the one order that is told the truth


F1_SCALE = 1e6  # order keys are integers: F1 scores are kept to six decimals
ATTAINED_BASE_GPU_MS = ONE_GPU * 3_600_000  # first class of LAS: one GPU-hour
MAX_ATTAINED_CLASS = 40


@helper
def order_key(w: Any, job: Any) -> int:
    """Place of a job in its group's queue; ties are broken by row."""
    if w.params.queue_order == QueueOrder.CLAIM:
        return job.claim_ms
    if w.params.queue_order == QueueOrder.F1:
        claim_s = max(job.claim_ms, 1) / 1000.0
        submit_s = max(job.submit_ms + w.time_offset_ms, 1) / 1000.0
        score = math.log10(claim_s) * (job.gpus_wanted / ONE_GPU) + 870.0 * math.log10(submit_s)
        return math.floor(score * F1_SCALE)
    if w.params.queue_order == QueueOrder.ATTAINED:
        return attained_class(job.gpu_time.held)
    if w.params.queue_order == QueueOrder.REMAINING:
        return job.progress.left
    return job.submit_ms


@helper
def attained_class(held: int) -> int:
    """Class of an attained service: 0 below one GPU-hour, then one for each doubling (Tiresias' discretized 2D-LAS)."""
    level = 0
    bound = ATTAINED_BASE_GPU_MS
    while held >= bound and level < MAX_ATTAINED_CLASS:
        level += 1
        bound *= 2
    return level


@helper
def precedes(a: Any, b: Any) -> bool:
    """Whether job a is before job b."""
    if a.order_key != b.order_key:
        return a.order_key < b.order_key
    return a.row < b.row


@helper
def enqueue(w: Any, slot: int) -> None:
    """Put a waiting job into its group's tree. O(log n)."""
    jobs = w.jobs
    job = jobs[slot]
    group = w.groups[job.group]
    job.is_queued = True
    job.order_key = order_key(w, job)
    job.left = NONE
    job.right = NONE
    job.parent = NONE
    job.min_claim_ms = job.claim_ms
    group.num_waiting += 1
    w.queue_version += 1
    if group.root == NONE:
        group.root = slot
        group.least_claim_ms = job.claim_ms
        _list_waiting(w, slot, NONE, NONE)
        group.shortest_place = job.queue_place
        _set_head(w, group, slot)
        _link_group(w, job.group)
        return
    before = NONE
    after = NONE
    at = group.root
    while True:
        here = jobs[at]
        here.min_claim_ms = min(here.min_claim_ms, job.claim_ms)
        if precedes(job, here):
            after = at
            if here.left == NONE:
                here.left = slot
                break
            at = here.left
        else:
            before = at
            if here.right == NONE:
                here.right = slot
                break
            at = here.right
    job.parent = at
    _list_waiting(w, slot, before, after)
    if job.claim_ms <= group.least_claim_ms:
        group.shortest_place = job.queue_place if job.claim_ms < group.least_claim_ms else NONE
    while job.parent != NONE and _weight(job.row) > _weight(jobs[job.parent].row):
        _rotate_up(w, group, slot)
    group.least_claim_ms = jobs[group.root].min_claim_ms
    if precedes(job, jobs[group.head]):
        _set_head(w, group, slot)


@helper
def dequeue(w: Any, slot: int) -> None:
    """Take a job out of its group's tree. O(log n)."""
    jobs = w.jobs
    job = jobs[slot]
    group = w.groups[job.group]
    job.is_queued = False
    group.num_waiting -= 1
    w.queue_version += 1
    if group.head == slot:
        _set_head(w, group, following(w, slot))
    if group.shortest_place == job.queue_place:
        group.shortest_place = NONE
    _unlist_waiting(w, slot)
    while job.left != NONE or job.right != NONE:
        if job.left == NONE:
            child = job.right
        elif job.right == NONE or _weight(jobs[job.left].row) > _weight(jobs[job.right].row):
            child = job.left
        else:
            child = job.right
        _rotate_up(w, group, child)
    above = job.parent
    if above == NONE:
        group.root = NONE
        _unlink_group(w, job.group)
    elif jobs[above].left == slot:
        jobs[above].left = NONE
    else:
        jobs[above].right = NONE
    while above != NONE:
        _pull(jobs, above)
        above = jobs[above].parent
    group.least_claim_ms = jobs[group.root].min_claim_ms if group.root != NONE else NEVER
    job.parent = NONE


@helper
def _set_head(w: Any, group: Any, slot: int) -> None:
    """Note the first job of a group, or that there is none, and what orders it among the heads."""
    group.head = slot
    group.head_place = w.jobs[slot].queue_place if slot != NONE else NONE
    group.head_key = w.jobs[slot].order_key if slot != NONE else NEVER
    group.head_row = w.jobs[slot].row if slot != NONE else NONE


@helper
def _list_waiting(w: Any, slot: int, before: int, after: int) -> None:
    """Append a job to the table of waiting jobs, linked to the jobs before and after it in its group."""
    job = w.jobs[slot]
    place = w.num_queued
    w.num_queued += 1
    job.queue_place = place
    row = w.waiting[place]
    row.job = slot
    row.row = job.row
    row.tenant = job.tenant
    row.group = job.group
    row.order_key = job.order_key
    row.submit_ms = job.submit_ms
    row.claim_ms = job.claim_ms
    row.has_parts = job.num_pod_sets > 1
    row.is_gang = job.kind == JobKind.TRAINING and job.min_member > 1
    row.prev = w.jobs[before].queue_place if before != NONE else NONE
    row.next = w.jobs[after].queue_place if after != NONE else NONE
    if row.prev != NONE:
        w.waiting[row.prev].next = place
    if row.next != NONE:
        w.waiting[row.next].prev = place
    note_waiting(w, slot)


@helper
def note_waiting(w: Any, slot: int) -> None:
    """Copy to the table of waiting jobs what may have changed of one that is in it."""
    job = w.jobs[slot]
    row = w.waiting[job.queue_place]
    row.num_wanted = job.num_wanted
    row.starts = job.starts
    row.gpus_wanted = job.gpus_wanted
    row.touch_ms = job.touch_ms
    row.is_plain = job.state == JobState.QUEUED and job.first_reservation == NONE


@helper
def _unlist_waiting(w: Any, slot: int) -> None:
    """Take a job out of the table of waiting jobs; the last of the table takes its place."""
    place = w.jobs[slot].queue_place
    w.jobs[slot].queue_place = NONE
    row = w.waiting[place]
    if row.prev != NONE:
        w.waiting[row.prev].next = row.next
    if row.next != NONE:
        w.waiting[row.next].prev = row.prev
    w.num_queued -= 1
    if place == w.num_queued:
        return
    w.waiting[place] = w.waiting[w.num_queued]
    row = w.waiting[place]
    w.jobs[row.job].queue_place = place
    if row.prev != NONE:
        w.waiting[row.prev].next = place
    else:
        w.groups[row.group].head_place = place
    if w.groups[row.group].shortest_place == w.num_queued:
        w.groups[row.group].shortest_place = place
    if row.next != NONE:
        w.waiting[row.next].prev = place


@helper
def following(w: Any, slot: int) -> int:
    """The next job of the same group, or NONE."""
    place = w.waiting[w.jobs[slot].queue_place].next
    return w.waiting[place].job if place != NONE else NONE


@helper
def first_with_claim(w: Any, group: int, most_ms: int) -> int:
    """First job of a group, in order, whose walltime claim is at most `most_ms`; NONE. O(log n)."""
    jobs = w.jobs
    at = w.groups[group].root
    if at == NONE or jobs[at].min_claim_ms > most_ms:
        return NONE
    while True:
        here = jobs[at]
        if here.left != NONE and jobs[here.left].min_claim_ms <= most_ms:
            at = here.left
        elif here.claim_ms <= most_ms:
            return at
        else:
            at = here.right


@helper
def shortest(w: Any, g: int) -> int:
    """Where in the table of waiting jobs a group's job with the smallest claim is (first in order among equals).

    The group must not be empty. What has been found is remembered.
    """
    group = w.groups[g]
    if group.shortest_place == NONE:
        group.shortest_place = w.jobs[first_with_claim(w, g, group.least_claim_ms)].queue_place
    return group.shortest_place


@helper
def first_waiting(w: Any) -> int:
    """The first waiting job of all groups, or NONE. O(non-empty groups)."""
    best = NONE
    g = w.first_group
    while g != NONE:
        group = w.groups[g]
        if best == NONE or heads_before(group, w.groups[best]):
            best = g
        g = group.next
    return w.groups[best].head if best != NONE else NONE


@helper
def heads_before(a: Any, b: Any) -> bool:
    """Whether the first job of group a is before that of group b."""
    if a.head_key != b.head_key:
        return a.head_key < b.head_key
    return a.head_row < b.head_row


@helper
def _weight(row: int) -> int:
    """Tree weight of a job: a hash of its row."""
    x = np.uint64(row) * np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(31)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    return int(np.int64(x >> np.uint64(2)))


@helper
def _pull(jobs: Any, at: int) -> None:
    """Recompute the smallest claim of a subtree from its children."""
    here = jobs[at]
    least = here.claim_ms
    if here.left != NONE:
        least = min(least, jobs[here.left].min_claim_ms)
    if here.right != NONE:
        least = min(least, jobs[here.right].min_claim_ms)
    here.min_claim_ms = least


@helper
def _rotate_up(w: Any, group: Any, slot: int) -> None:
    """Exchange a node with its parent, keeping the order."""
    jobs = w.jobs
    node = jobs[slot]
    above = node.parent
    parent = jobs[above]
    if parent.left == slot:
        parent.left = node.right
        if node.right != NONE:
            jobs[node.right].parent = above
        node.right = above
    else:
        parent.right = node.left
        if node.left != NONE:
            jobs[node.left].parent = above
        node.left = above
    top = parent.parent
    parent.parent = slot
    node.parent = top
    if top == NONE:
        group.root = slot
    elif jobs[top].left == above:
        jobs[top].left = slot
    else:
        jobs[top].right = slot
    _pull(jobs, above)
    _pull(jobs, slot)


@helper
def _link_group(w: Any, g: int) -> None:
    """Put a group that has got its first job into the list of non-empty groups."""
    group = w.groups[g]
    group.prev = NONE
    group.next = w.first_group
    if w.first_group != NONE:
        w.groups[w.first_group].prev = g
    w.first_group = g


@helper
def _unlink_group(w: Any, g: int) -> None:
    """Take an empty group out of the list."""
    group = w.groups[g]
    if group.prev != NONE:
        w.groups[group.prev].next = group.next
    else:
        w.first_group = group.next
    if group.next != NONE:
        w.groups[group.next].prev = group.prev
