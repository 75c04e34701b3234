"""Orders of queues, jobs and tasks, and the heaps that Volcano keeps them in.

The heaps are Go's container/heap: they compare with the shares of the moment and are not put in order anew while an
element is inside (T14). Source: volcano-sh/volcano pkg/scheduler/framework/session_plugins.go, pkg/scheduler/util.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.volcano.drf import compare_paths
from gangline.baselines.volcano.gang import deadline, is_on
from gangline.baselines.volcano.queues import CAPACITY, PROPORTION
from gangline.baselines.volcano.resources import is_empty
from gangline.baselines.volcano.state import Kind, Point
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NONE


@helper
def sign(a: float, b: float) -> int:
    """-1 if a < b, 1 if a > b."""
    return -1 if a < b else (1 if a > b else 0)


@helper
def compare_queues(w: Any, k: Any, a: int, b: int) -> int:
    """Queue order of the plugins: the first that differs decides."""
    for i in range(k.num_plugins):
        if not is_on(k, i, Point.QUEUE_ORDER):
            continue
        kind = k.plugins[i].kind
        found = 0
        if kind == Kind.PROPORTION or kind == Kind.CAPACITY:
            found = sign(k.queues[b].priority, k.queues[a].priority)
        if found == 0 and kind == Kind.PROPORTION:
            found = sign(k.queues[a].share[PROPORTION], k.queues[b].share[PROPORTION])
        elif found == 0 and kind == Kind.CAPACITY:
            found = _compare_capacity(k, a, b)
        elif kind == Kind.DRF and k.hdrf:
            found = compare_paths(w, k, a, b)
        if found != 0:
            return found
    return 0


@helper
def _compare_capacity(k: Any, a: int, b: int) -> int:
    if k.hierarchy:
        if k.queues[a].is_leaf != k.queues[b].is_leaf:
            return -1 if k.queues[a].is_leaf else 1
        above_a, above_b = below_common(k, a, b), below_common(k, b, a)
        if above_a == NONE or above_b == NONE:
            return 0
        return sign(k.queues[above_a].share[CAPACITY], k.queues[above_b].share[CAPACITY])
    found = sign(k.queues[a].share[CAPACITY], k.queues[b].share[CAPACITY])
    if found == 0:
        found = sign(is_empty(k, k.queues[a].deserved[CAPACITY]), is_empty(k, k.queues[b].deserved[CAPACITY]))
    return found


@helper
def is_above(k: Any, ancestor: int, q: int) -> bool:
    """Whether a queue is an ancestor of another, or itself."""
    while q != NONE:
        if q == ancestor:
            return True
        q = k.queues[q].parent
    return False


@helper
def below_common(k: Any, a: int, b: int) -> int:
    """The ancestor of `a`, or `a`, just below the last common ancestor of both; NONE if `a` is that itself."""
    if is_above(k, a, b):
        return NONE
    while k.queues[a].parent != NONE and not is_above(k, k.queues[a].parent, b):
        a = k.queues[a].parent
    return a


@helper
def queue_less(w: Any, k: Any, a: int, b: int) -> bool:
    """Queue order; ties by name (queues of a world are as old as one another)."""
    found = compare_queues(w, k, a, b)
    return found < 0 if found != 0 else k.queues[a].name_rank < k.queues[b].name_rank


@helper
def compare_jobs(w: Any, k: Any, a: int, b: int) -> int:
    """Job order of the plugins: the first that differs decides."""
    for i in range(k.num_plugins):
        if not is_on(k, i, Point.JOB_ORDER):
            continue
        kind = k.plugins[i].kind
        found = 0
        if kind == Kind.PRIORITY:
            found = sign(w.jobs[b].priority, w.jobs[a].priority)
        elif kind == Kind.GANG:
            found = sign(k.jobs[a].is_ready, k.jobs[b].is_ready)
        elif kind == Kind.DRF:
            found = sign(k.jobs[a].share, k.jobs[b].share)
        elif kind == Kind.SLA:
            found = sign(deadline(w, k, a), deadline(w, k, b))
        if found != 0:
            return found
    return 0


@helper
def job_less(w: Any, k: Any, a: int, b: int) -> bool:
    """Job order; ties: earlier creation, then the name."""
    found = compare_jobs(w, k, a, b)
    if found != 0:
        return found < 0
    if w.jobs[a].submit_ms != w.jobs[b].submit_ms:
        return w.jobs[a].submit_ms < w.jobs[b].submit_ms
    if w.jobs[a].name_rank != w.jobs[b].name_rank:
        return w.jobs[a].name_rank < w.jobs[b].name_rank
    return w.jobs[a].row < w.jobs[b].row


@helper
def has_task_priority(k: Any) -> bool:
    """Whether the priority plugin orders tasks."""
    found = False
    for i in range(k.num_plugins):
        found = found or (k.plugins[i].kind == Kind.PRIORITY and is_on(k, i, Point.TASK_ORDER))
    return found


@helper
def rank_of(k: Any, ps: int, place: int) -> int:
    """Place in the task order of a pod of a set: as configured, else pods of all sets interleave by index."""
    s = k.sets[ps]
    if place < s.num_ranks:
        return k.ranks[s.first_rank + place]
    return place * 64 + max(0, s.role)


@helper
def start_tasks(w: Any, k: Any, slot: int) -> None:
    """No task has been passed over in this attempt yet, and no role has failed."""
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        k.sets[ps].skipped = 0
        k.sets[ps].has_failed = False
        ps = w.pod_sets[ps].next


@helper
def next_task(w: Any, k: Any, slot: int, sub_job: int, best_effort: bool) -> int:
    """Pod set of the first pending task, in task order, that was not passed over in this attempt; NONE."""
    best = NONE
    by_priority = has_task_priority(k)
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        s = k.sets[ps]
        is_meant = s.is_best_effort == best_effort and (sub_job == NONE or s.sub_job == sub_job)
        if is_meant and s.pending > s.skipped:
            b = k.sets[max(0, best)]
            if best != NONE and not task_less(k, ps, s.next + s.skipped, best, b.next + b.skipped, by_priority):
                ps = w.pod_sets[ps].next
                continue
            best = ps
        ps = w.pod_sets[ps].next
    return best


@helper
def task_less(k: Any, a: int, place_a: int, b: int, place_b: int, by_priority: bool) -> bool:
    """Task order within a job."""
    if by_priority and k.sets[a].priority != k.sets[b].priority:
        return k.sets[a].priority > k.sets[b].priority
    return rank_of(k, a, place_a) < rank_of(k, b, place_b)


# ---------------------------------------------------------------------------------------------------------------
# Heaps
# ---------------------------------------------------------------------------------------------------------------


@helper
def _less(w: Any, k: Any, of_jobs: bool, a: int, b: int) -> bool:
    return job_less(w, k, a, b) if of_jobs else queue_less(w, k, a, b)


@helper
def push(w: Any, k: Any, first: int, size: int, item: int, of_jobs: bool) -> int:
    """container/heap Push into `k.heap[first:first+size]`; returns the new size."""
    heap = k.heap
    heap[first + size] = item
    j = size
    while j > 0:
        i = (j - 1) // 2
        if not _less(w, k, of_jobs, heap[first + j], heap[first + i]):
            break
        heap[first + i], heap[first + j] = heap[first + j], heap[first + i]
        j = i
    return size + 1


@helper
def pop(w: Any, k: Any, first: int, size: int, of_jobs: bool) -> int:
    """container/heap Pop: the item lands at `k.heap[first+size-1]` and is returned."""
    heap = k.heap
    last = size - 1
    heap[first], heap[first + last] = heap[first + last], heap[first]
    i = 0
    while True:
        j = 2 * i + 1
        if j >= last:
            break
        if j + 1 < last and _less(w, k, of_jobs, heap[first + j + 1], heap[first + j]):
            j += 1
        if not _less(w, k, of_jobs, heap[first + j], heap[first + i]):
            break
        heap[first + i], heap[first + j] = heap[first + j], heap[first + i]
        i = j
    return heap[first + last]


@helper
def push_queue(w: Any, k: Any, q: int) -> None:
    """Into the heap of queues."""
    k.num_queue_heap = push(w, k, len(k.jobs), k.num_queue_heap, q, False)


@helper
def pop_queue(w: Any, k: Any) -> int:
    """Best queue of the heap."""
    q = pop(w, k, len(k.jobs), k.num_queue_heap, False)
    k.num_queue_heap -= 1
    return q


@helper
def push_job(w: Any, k: Any, slot: int) -> None:
    """Into its queue's heap of jobs."""
    queue = k.queues[k.jobs[slot].queue]
    queue.size = push(w, k, queue.first, queue.size, slot, True)


@helper
def pop_job(w: Any, k: Any, q: int) -> int:
    """Best job of a queue's heap."""
    queue = k.queues[q]
    slot = pop(w, k, queue.first, queue.size, True)
    queue.size -= 1
    return slot


@helper
def clear_heaps(w: Any, k: Any) -> None:
    """Empty heaps, with room for the jobs of each queue."""
    k.num_queue_heap = 0
    first = 0
    for q in range(k.num_queues):
        k.queues[q].first = first
        k.queues[q].size = 0
        first += k.queues[q].num_jobs
