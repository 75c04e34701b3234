"""Pending workloads: the active and the inadmissible ones of each ClusterQueue, and what moves them.

Workloads of one shape stand together in a pairing heap, so that moving all of a shape costs nothing: what does not fit
takes its like along (equivalence hashing), and a requeue event brings back everybody.
Source: Kueue pkg/cache/queue/{cluster_queue,inadmissible_workloads}.go, pkg/workload/workload.go.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.kueue.admission_fair_sharing import local_queue_usage
from gangline.baselines.kueue.state import NOT_TRIED, Bucket, Requeue
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NONE, ErrorCode

# ---------------------------------------------------------------------------------------------------------------
# Order
# ---------------------------------------------------------------------------------------------------------------


@helper
def is_older(k: Any, a: int, b: int) -> bool:
    """Queue order of two workloads of the same priority: earlier timestamp, then uid."""
    if k.workloads[a].timestamp_ms != k.workloads[b].timestamp_ms:
        return k.workloads[a].timestamp_ms < k.workloads[b].timestamp_ms
    return k.workloads[a].uid_rank < k.workloads[b].uid_rank


@helper
def precedes_in_queue(w: Any, k: Any, a: int, b: int) -> bool:
    """Queue order of two workloads of a ClusterQueue."""
    queue = k.queues[k.workloads[a].queue]
    if queue.is_usage_based and k.workloads[a].local_queue != k.workloads[b].local_queue:
        first = local_queue_usage(w, k, k.workloads[a].local_queue)
        second = local_queue_usage(w, k, k.workloads[b].local_queue)
        if first != second:
            return first < second
    if (queue.sticky == a) != (queue.sticky == b):
        return queue.sticky == a
    if w.jobs[a].priority != w.jobs[b].priority:
        return w.jobs[a].priority > w.jobs[b].priority
    return is_older(k, a, b)


@helper
def head_of(w: Any, k: Any, q: int) -> int:
    """The workload that a ClusterQueue would send into the next cycle; NONE."""
    best = NONE
    g = k.queues[q].first_group
    while g != NONE:
        at = k.groups[g].active
        if at != NONE and (best == NONE or precedes_in_queue(w, k, at, best)):
            best = at
        g = k.groups[g].next
    sticky = k.queues[q].sticky
    if sticky != NONE and best != NONE and is_active(k, sticky) and precedes_in_queue(w, k, sticky, best):
        return sticky
    return best


@helper
def is_active(k: Any, slot: int) -> bool:
    """Whether a pending workload is in the active heap of its group."""
    if k.workloads[slot].bucket != Bucket.ACTIVE and k.workloads[slot].bucket != Bucket.INADMISSIBLE:
        return False
    root = k.groups[k.workloads[slot].group].active
    at = slot
    while k.workloads[at].prev != NONE:
        at = k.workloads[at].prev
    return at == root


# ---------------------------------------------------------------------------------------------------------------
# Heaps
# ---------------------------------------------------------------------------------------------------------------


@helper
def _meld(k: Any, a: int, b: int) -> int:
    """One heap out of two; returns its root."""
    if a == NONE:
        return b
    if b == NONE:
        return a
    if is_older(k, b, a):
        a, b = b, a
    child = k.workloads[a].child
    k.workloads[b].next = child
    k.workloads[b].prev = a
    if child != NONE:
        k.workloads[child].prev = b
    k.workloads[a].child = b
    return a


@helper
def _meld_children(k: Any, slot: int) -> int:
    """One heap out of the children of a node, in pairs from the left, then together from the right."""
    pairs = NONE
    at = k.workloads[slot].child
    k.workloads[slot].child = NONE
    while at != NONE:
        second = k.workloads[at].next
        following = k.workloads[second].next if second != NONE else NONE
        k.workloads[at].next = NONE
        k.workloads[at].prev = NONE
        if second != NONE:
            k.workloads[second].next = NONE
            k.workloads[second].prev = NONE
        root = _meld(k, at, second)
        k.workloads[root].next = pairs
        pairs = root
        at = following
    root = NONE
    while pairs != NONE:
        following = k.workloads[pairs].next
        k.workloads[pairs].next = NONE
        root = _meld(k, root, pairs)
        pairs = following
    return root


@helper
def put(k: Any, slot: int, bucket: int) -> None:
    """Make a workload that is nowhere active, inadmissible, or inadmissible until its backoff has passed."""
    note = k.workloads[slot]
    note.bucket = bucket
    note.child = NONE
    note.next = NONE
    note.prev = NONE
    group = k.groups[note.group]
    if bucket == Bucket.ACTIVE:
        group.active = _meld(k, group.active, slot)
    elif bucket == Bucket.INADMISSIBLE:
        group.inadmissible = _meld(k, group.inadmissible, slot)
    elif bucket == Bucket.BACKOFF:
        note.next = k.first_backoff
        if k.first_backoff != NONE:
            k.workloads[k.first_backoff].prev = slot
        k.first_backoff = slot


@helper
def take_out(k: Any, slot: int) -> None:
    """Take a pending workload out of wherever it waits."""
    note = k.workloads[slot]
    group = k.groups[note.group]
    bucket = note.bucket
    if bucket == Bucket.BACKOFF:
        if note.prev == NONE:
            k.first_backoff = note.next
        else:
            k.workloads[note.prev].next = note.next
        if note.next != NONE:
            k.workloads[note.next].prev = note.prev
    elif group.active == slot or group.inadmissible == slot:
        rest = _meld_children(k, slot)
        if group.active == slot:
            group.active = rest
        else:
            group.inadmissible = rest
    else:  # its children take its place
        rest = _meld_children(k, slot)
        if rest == NONE:
            rest = note.next
        else:
            k.workloads[rest].next = note.next
            if note.next != NONE:
                k.workloads[note.next].prev = rest
        if rest != NONE:
            k.workloads[rest].prev = note.prev
        if k.workloads[note.prev].child == slot:
            k.workloads[note.prev].child = rest
        else:
            k.workloads[note.prev].next = rest
    note.bucket = Bucket.NOWHERE
    note.next = NONE
    note.prev = NONE


# ---------------------------------------------------------------------------------------------------------------
# What moves workloads
# ---------------------------------------------------------------------------------------------------------------


@helper
def join_group(w: Any, k: Any, slot: int) -> bool:
    """Find or make the group of a workload: same ClusterQueue, pod sets, priority, LocalQueue and topology requests."""
    job = w.jobs[slot]
    note = k.workloads[slot]
    local_queue = note.local_queue if k.queues[note.queue].is_usage_based else NONE
    empty = NONE
    g = k.queues[note.queue].first_group
    while g != NONE:
        group = k.groups[g]
        if (
            group.shape == job.shape
            and group.priority == job.priority
            and group.local_queue == local_queue
            and group.request == note.request
            and group.min_counts == note.min_counts
        ):
            note.group = g
            return True
        if group.active == NONE and group.inadmissible == NONE and not group.is_hopeless:
            empty = g
        g = group.next
    if empty == NONE:
        if k.groups_used >= len(k.groups):
            w.error = ErrorCode.TOO_MANY_GROUPS
            w.error_value = k.groups_used + 1
            return False
        empty = k.groups_used
        k.groups_used += 1
        k.groups[empty].queue = note.queue
        k.groups[empty].next = k.queues[note.queue].first_group
        k.queues[note.queue].first_group = empty
        k.groups[empty].active = NONE
        k.groups[empty].inadmissible = NONE
        k.groups[empty].is_hopeless = False
    group = k.groups[empty]
    group.shape = job.shape
    group.priority = job.priority
    group.local_queue = local_queue
    group.request = note.request
    group.min_counts = note.min_counts
    note.group = empty
    return True


@helper
def push(w: Any, k: Any, slot: int) -> None:
    """A workload arrives, or comes back after an eviction."""
    if not join_group(w, k, slot):
        return
    note = k.workloads[slot]
    if note.backoff_ms > w.now_ms:
        put(k, slot, Bucket.BACKOFF)
    elif k.groups[note.group].is_hopeless:
        put(k, slot, Bucket.INADMISSIBLE)
    else:
        put(k, slot, Bucket.ACTIVE)


@helper
def requeue_tree(w: Any, k: Any, root: int) -> None:
    """A requeue event: everybody inadmissible in the ClusterQueues of a cohort tree is active again."""
    for q in range(w.num_queues):
        if k.queues[q].root != root:
            continue
        g = k.queues[q].first_group
        while g != NONE:
            group = k.groups[g]
            group.is_hopeless = False
            at = group.inadmissible
            if at != NONE:
                group.inadmissible = NONE
                group.active = _meld(k, group.active, at)
            g = group.next


@helper
def wake_backoffs(w: Any, k: Any) -> None:
    """Workloads whose requeue backoff has passed are active again."""
    at = k.first_backoff
    while at != NONE:
        following = k.workloads[at].next
        if k.workloads[at].backoff_ms <= w.now_ms:
            take_out(k, at)
            push(w, k, at)
        at = following


@helper
def requeue_head(w: Any, k: Any, slot: int, reason: int) -> bool:
    """Put back a head that was not admitted. True if it, or its like, has left the active ones."""
    note = k.workloads[slot]
    queue = k.queues[note.queue]
    group = k.groups[note.group]
    if reason == Requeue.PENDING_PREEMPTION and not queue.is_strict:
        queue.sticky = slot
    if note.backoff_ms > w.now_ms:
        put(k, slot, Bucket.BACKOFF)
        return True
    stays = queue.is_strict or reason == Requeue.FAILED_AFTER_NOMINATION or reason == Requeue.PENDING_PREEMPTION
    if stays or has_untried_flavors(w, k, slot):
        put(k, slot, Bucket.ACTIVE)
        return False
    put(k, slot, Bucket.INADMISSIBLE)
    if k.hashes_shapes and (reason == Requeue.NO_FIT or reason == Requeue.NO_CANDIDATES):
        group.is_hopeless = True
        at = group.active
        group.active = NONE
        group.inadmissible = _meld(k, group.inadmissible, at)
    return True


@helper
def has_untried_flavors(w: Any, k: Any, slot: int) -> bool:
    """Whether the last scan of some pod set stopped before the end of its list of flavors."""
    if not k.workloads[slot].has_record:
        return False
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        for r in range(w.params.num_resources):
            if k.pod_sets[ps].tried[r] >= 0:
                return True
        ps = w.pod_sets[ps].next
    return False


@helper
def forget_scan(w: Any, k: Any, slot: int) -> None:
    """Drop a workload's scan record."""
    k.workloads[slot].has_record = False
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        for r in range(w.params.num_resources):
            k.pod_sets[ps].tried[r] = NOT_TRIED
        ps = w.pod_sets[ps].next
