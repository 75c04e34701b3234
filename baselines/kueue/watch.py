"""What has happened in the world since the last decision: the events that Kueue's controllers would have seen.

A job whose state has changed is noticed by the number of the change that touched it last; quotas by comparison.
Source: Kueue pkg/controller/core/workload_controller.go, pkg/cache/queue/manager.go.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.kueue.queues import forget_scan, push, requeue_tree, take_out
from gangline.baselines.kueue.snapshot import count_usage, move_workload
from gangline.baselines.kueue.state import NOT_TRIED, Bucket, Reason
from gangline.envs.core.compiled import helper
from gangline.envs.core.quota import depth_of
from gangline.envs.core.types import NEVER, NO_TIME, NONE, JobState, PodState, Quota


@helper
def look(w: Any, k: Any, named: Any) -> None:
    """Bring what Kueue knows up to date: quotas, workloads that came, went, or gave their quota back."""
    if not k.has_begun:
        _begin(w, k)
    _look_at_quotas(w, k)
    for slot in range(w.jobs_used):
        if w.jobs[slot].change > k.seen_change:
            _look_at_job(w, k, slot, named)
    k.seen_change = w.change
    for q in range(w.num_queues):
        if k.queues[q].is_requeued:
            k.queues[q].is_requeued = False
            requeue_tree(w, k, q)
    if k.seen_gpus_up != w.gpus_up:  # nodes have come or gone
        k.seen_gpus_up = w.gpus_up
        for q in range(w.num_queues):
            if w.queues[q].parent == NONE:
                requeue_tree(w, k, q)


# ---------------------------------------------------------------------------------------------------------------
# Quotas
# ---------------------------------------------------------------------------------------------------------------


@helper
def _begin(w: Any, k: Any) -> None:
    """First look at the tree: roots, heights, quotas."""
    k.has_begun = True
    k.seen_gpus_up = w.gpus_up
    deepest = 0
    for q in range(w.num_queues):
        queue = k.queues[q]
        queue.height = 0
        queue.root = q
        while w.queues[queue.root].parent != NONE:
            queue.root = w.queues[queue.root].parent
        deepest = max(deepest, depth_of(w, q))
        _note_quota(w, k, q)
    for depth in range(deepest, 0, -1):
        for q in range(w.num_queues):
            if depth_of(w, q) == depth:
                above = k.queues[w.queues[q].parent]
                above.height = max(above.height, k.queues[q].height + 1)


@helper
def _note_quota(w: Any, k: Any, q: int) -> bool:
    """Remember a node's quotas; True if they differ from those remembered."""
    has_changed = False
    queue = w.queues[q]
    known = k.queues[q]
    for cell in range(w.num_cells):
        if (
            known.nominal[cell] != queue.nominal[cell]
            or known.borrowing_limit[cell] != queue.borrowing_limit[cell]
            or known.lending_limit[cell] != queue.lending_limit[cell]
        ):
            has_changed = True
            known.nominal[cell] = queue.nominal[cell]
            known.borrowing_limit[cell] = queue.borrowing_limit[cell]
            known.lending_limit[cell] = queue.lending_limit[cell]
    return has_changed


@helper
def _look_at_quotas(w: Any, k: Any) -> None:
    """A quota change is a requeue event for its whole tree, and outdates the scan records there."""
    for q in range(w.num_queues):
        if _note_quota(w, k, q):
            root = k.queues[q].root
            requeue_later(k, q)
            for other in range(w.num_queues):
                if k.queues[other].root == root:
                    k.queues[other].generation += 1
            if w.params.quota != Quota.ENFORCED:
                refresh_cohort_usage(w, k)


@helper
def refresh_cohort_usage(w: Any, k: Any) -> None:
    """Kueue's own books after a limit has changed: charge everybody anew."""
    for q in range(w.num_queues):
        for cell in range(w.num_cells):
            w.queues[q].usage[cell] = 0
    for slot in range(w.jobs_used):
        if k.workloads[slot].is_known and k.workloads[slot].bucket == Bucket.RESERVED:
            move_workload(w, k, slot, 1)


@helper
def requeue_later(k: Any, q: int) -> None:
    """A requeue event: carried out when everything that has happened is known."""
    k.queues[k.queues[q].root].is_requeued = True


# ---------------------------------------------------------------------------------------------------------------
# Workloads
# ---------------------------------------------------------------------------------------------------------------


@helper
def _look_at_job(w: Any, k: Any, slot: int, named: Any) -> None:
    """Notice what has become of the job in a slot."""
    job = w.jobs[slot]
    note = k.workloads[slot]
    if note.is_known and (job.state == JobState.FREE or job.row != note.row):
        _gone(w, k, slot)
    if job.state == JobState.FREE:
        return
    if not note.is_known:
        if job.state != JobState.NOT_ELIGIBLE:
            _come(w, k, slot, named)
        return
    if note.bucket == Bucket.RESERVED:
        _look_at_reserved(w, k, slot)
    elif job.state == JobState.NOT_ELIGIBLE:
        if note.bucket != Bucket.NOWHERE:
            take_out(k, slot)
    elif job.state != JobState.QUEUED:  # admitted by somebody else
        if note.bucket != Bucket.NOWHERE:
            take_out(k, slot)
        _take_over(w, k, slot)
    elif note.bucket == Bucket.NOWHERE:
        push(w, k, slot)


@helper
def _come(w: Any, k: Any, slot: int, named: Any) -> None:
    """A workload that Kueue has not seen before."""
    job = w.jobs[slot]
    note = k.workloads[slot]
    note.is_known = True
    note.row = job.row
    note.queue = job.queue if job.queue != NONE else w.tenants[job.tenant].queue
    note.bucket = Bucket.NOWHERE
    note.local_queue = NONE
    note.request = NONE
    note.min_counts = 0
    note.timestamp_ms = job.submit_ms
    note.uid_rank = job.uid_rank
    note.child = NONE
    note.next = NONE
    note.prev = NONE
    note.next_unplaced = NONE
    note.prev_unplaced = NONE
    note.is_unplaced = False
    note.was_placed = False
    note.is_evicted = False
    note.is_taken = False
    note.reason = Reason.NONE
    note.evict_ms = NO_TIME
    note.reserved_ms = NO_TIME
    note.num_requeues = 0
    note.backoff_ms = NO_TIME
    note.ready_by_ms = NEVER
    num_requests = 0
    if job.row < len(named):
        wish = named[job.row]
        note.local_queue = wish.local_queue
        note.request = wish.first_request
        note.min_counts = wish.min_counts
        num_requests = wish.num_requests
        note.is_evicted = wish.is_evicted
        note.evict_ms = wish.evicted_ms
        if wish.has_timestamp:
            note.timestamp_ms = wish.timestamp_ms
    forget_scan(w, k, slot)
    ps = job.first_pod_set
    i = 0
    while ps != NONE:
        pod_set = k.pod_sets[ps]
        pod_set.request = note.request + i if i < num_requests else NONE
        pod_set.count = 0
        pod_set.reserved = 0
        pod_set.num_domains = 0
        for r in range(len(pod_set.flavor)):
            pod_set.flavor[r] = NONE
            pod_set.trying[r] = NOT_TRIED
        i += 1
        ps = w.pod_sets[ps].next
    if job.state != JobState.QUEUED:
        _take_over(w, k, slot)
    elif note.queue == NONE:  # no quota to wait for
        reserve(w, k, slot, w.now_ms)
    else:
        push(w, k, slot)


@helper
def _take_over(w: Any, k: Any, slot: int) -> None:
    """A job holds pods or quota that Kueue has not given it: it counts from now on."""
    job = w.jobs[slot]
    ps = job.first_pod_set
    while ps != NONE:
        pod_set = w.pod_sets[ps]
        note = k.pod_sets[ps]
        note.count = pod_set.num_admitted if job.is_admitted else pod_set.num_bound + pod_set.num_releasing
        for r in range(w.params.num_resources):
            flavor = pod_set.admitted_flavor[r]
            if not job.is_admitted:
                flavor = _bound_flavor(w, slot, ps)
                if flavor != NONE and w.cell_of[flavor, r] == NONE:
                    flavor = _flavor_with_quota(w, r)
            note.flavor[r] = flavor
        ps = pod_set.next
    since_ms = job.admit_ms if job.is_admitted else job.start_ms
    reserve(w, k, slot, w.now_ms if since_ms >= NEVER else since_ms)


@helper
def _bound_flavor(w: Any, slot: int, ps: int) -> int:
    """Flavor of the node of some pod of a pod set; NONE."""
    at = w.jobs[slot].first_pod
    while at != NONE:
        if w.pods[at].pod_set == ps and w.pods[at].state != PodState.GONE:
            return w.nodes[w.pods[at].node].flavor
        at = w.pods[at].next
    return NONE


@helper
def _flavor_with_quota(w: Any, r: int) -> int:
    """First flavor for which somebody has quota of a resource; NONE."""
    for flavor in range(w.num_flavors):
        if w.cell_of[flavor, r] != NONE:
            return flavor
    return NONE


@helper
def _look_at_reserved(w: Any, k: Any, slot: int) -> None:
    """A workload that holds quota: placed, lost its quota, or some of its pods are done."""
    job = w.jobs[slot]
    note = k.workloads[slot]
    is_waiting = job.state == JobState.QUEUED or job.state == JobState.NOT_ELIGIBLE
    has_lost_it = not job.is_admitted if w.params.quota == Quota.ENFORCED else is_waiting and note.was_placed
    if has_lost_it and is_waiting:
        free(w, k, slot)
        if note.queue == NONE:
            reserve(w, k, slot, w.now_ms)
        elif job.state == JobState.QUEUED:
            push(w, k, slot)
        return
    if job.num_bound > 0:
        note.was_placed = True
        if job.num_bound + job.num_done >= job.num_wanted:
            note.is_ready = True
            note.ready_by_ms = NEVER
        _place_is_found(k, slot)
    if job.state == JobState.RELEASING and not note.is_evicted:  # evicted by somebody else
        mark_evicted(w, k, slot, Reason.NONE)
    if job.num_done > 0:
        _reclaim_done_pods(w, k, slot)


@helper
def _reclaim_done_pods(w: Any, k: Any, slot: int) -> None:
    """Pods of a batch job that are done give their quota back: a requeue event."""
    note = k.workloads[slot]
    has_changed = False
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        left = max(0, k.pod_sets[ps].count - w.pod_sets[ps].num_done)
        has_changed = has_changed or left < k.pod_sets[ps].reserved
        k.pod_sets[ps].reserved = left
        ps = w.pod_sets[ps].next
    if not has_changed or note.queue == NONE:
        return
    requeue_later(k, note.queue)
    if w.params.quota != Quota.ENFORCED:
        move_workload(w, k, slot, -1)
    count_usage(w, k, slot)
    if w.params.quota != Quota.ENFORCED:
        move_workload(w, k, slot, 1)


@helper
def reserve(w: Any, k: Any, slot: int, since_ms: int) -> None:
    """A workload holds the quota that its pod sets' notes say."""
    note = k.workloads[slot]
    note.bucket = Bucket.RESERVED
    note.reserved_ms = since_ms
    note.is_ready = w.jobs[slot].num_bound > 0
    note.was_placed = note.is_ready
    note.ready_by_ms = w.now_ms + k.ready_timeout_ms if k.waits_for_ready and not note.is_ready else NEVER
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        k.pod_sets[ps].reserved = k.pod_sets[ps].count
        ps = w.pod_sets[ps].next
    count_usage(w, k, slot)
    if note.queue != NONE:
        queue = k.queues[note.queue]
        if queue.sticky == slot:
            queue.sticky = NONE
        queue.generation += 1
        note.prev = NONE
        note.next = queue.first_reserved
        if note.next != NONE:
            k.workloads[note.next].prev = slot
        queue.first_reserved = slot
        queue.num_reserved += 1
        if w.params.quota != Quota.ENFORCED:
            move_workload(w, k, slot, 1)
    if not note.was_placed:
        note.is_unplaced = True
        note.next_unplaced = NONE
        note.prev_unplaced = k.last_unplaced
        if k.last_unplaced != NONE:
            k.workloads[k.last_unplaced].next_unplaced = slot
        else:
            k.first_unplaced = slot
        k.last_unplaced = slot


@helper
def free(w: Any, k: Any, slot: int) -> None:
    """A workload gives its quota back: a requeue event."""
    note = k.workloads[slot]
    note.bucket = Bucket.NOWHERE
    note.is_evicted = False
    note.is_ready = False
    note.ready_by_ms = NEVER
    _place_is_found(k, slot)
    if note.queue == NONE:
        return
    queue = k.queues[note.queue]
    queue.generation += 1
    queue.num_reserved -= 1
    if note.prev != NONE:
        k.workloads[note.prev].next = note.next
    else:
        queue.first_reserved = note.next
    if note.next != NONE:
        k.workloads[note.next].prev = note.prev
    note.next = NONE
    note.prev = NONE
    if w.params.quota != Quota.ENFORCED:
        move_workload(w, k, slot, -1)
    requeue_later(k, note.queue)


@helper
def mark_evicted(w: Any, k: Any, slot: int, reason: int) -> None:
    """The Evicted condition is set; the quota stays until the pods are gone."""
    note = k.workloads[slot]
    note.is_evicted = True
    note.evict_ms = w.now_ms
    note.reason = reason
    _place_is_found(k, slot)
    if note.queue != NONE:
        k.queues[note.queue].generation += 1


@helper
def _place_is_found(k: Any, slot: int) -> None:
    """A workload no longer waits for nodes."""
    note = k.workloads[slot]
    if not note.is_unplaced:
        return
    note.is_unplaced = False
    if note.prev_unplaced != NONE:
        k.workloads[note.prev_unplaced].next_unplaced = note.next_unplaced
    else:
        k.first_unplaced = note.next_unplaced
    if note.next_unplaced != NONE:
        k.workloads[note.next_unplaced].prev_unplaced = note.prev_unplaced
    else:
        k.last_unplaced = note.prev_unplaced


@helper
def _gone(w: Any, k: Any, slot: int) -> None:
    """A job has ended or was deleted, whatever it was doing: a requeue event."""
    note = k.workloads[slot]
    if note.queue != NONE:
        if k.queues[note.queue].sticky == slot:
            k.queues[note.queue].sticky = NONE
        requeue_later(k, note.queue)
    if note.bucket == Bucket.RESERVED:
        free(w, k, slot)
    elif note.bucket != Bucket.NOWHERE:
        take_out(k, slot)
    note.is_known = False
