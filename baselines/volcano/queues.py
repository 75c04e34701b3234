"""What a queue may hold: the proportion and the capacity plugin, overcommit, and the questions asked of all of them.

Source: volcano-sh/volcano pkg/scheduler/plugins/{proportion,capacity,overcommit}.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.volcano.gang import deadline, is_on
from gangline.baselines.volcano.resources import (
    EVERYTHING,
    add,
    assign,
    copy_of,
    difference,
    is_empty,
    is_equal,
    is_scalar,
    less_equal,
    less_equal_partly,
    less_equal_with_dimension,
    set_max,
    set_min,
    share_of,
    subtract,
    vector,
    zero,
)
from gangline.baselines.volcano.state import Kind, Phase, Point
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import MAX_RESOURCES, NONE

PROPORTION = 0  # index of a plugin's own numbers in a queue's record
CAPACITY = 1
UNLIMITED = 1e300


@helper
def open_queues(w: Any, k: Any) -> None:
    """Real capabilities, deserved amounts and shares at the opening of a session."""
    if k.hierarchy:
        _add_to_ancestors(w, k)
    total_guarantee = vector()
    for q in range(k.num_queues):
        for r in range(MAX_RESOURCES):
            total_guarantee[r] += k.queues[q].guarantee[r]
    for q in range(k.num_queues):
        queue = k.queues[q]
        for r in range(MAX_RESOURCES):
            real = max(0.0, k.total[r] - total_guarantee[r]) + queue.guarantee[r]
            real = min(real, _capability(k, queue, r))
            queue.real[PROPORTION, r] = real
            queue.real[CAPACITY, r] = real
            deserved = queue.deserved_spec[r]
            queue.deserved[CAPACITY, r] = max(min(deserved, real), queue.guarantee[r])
        queue.real_has[0] = EVERYTHING
        queue.real_has[1] = EVERYTHING
        queue.deserved_has[CAPACITY] = queue.deserved_spec_has
    for i in range(k.num_plugins):
        if k.plugins[i].kind == Kind.PROPORTION:
            _fill_water(w, k)
        elif k.plugins[i].kind == Kind.CAPACITY and k.hierarchy:
            _open_hierarchy(w, k)
    for q in range(k.num_queues):
        update_queue_shares(k, q)


@helper
def _capability(k: Any, queue: Any, r: int) -> float:
    """A queue's stated capability; unlimited where it is not set."""
    if not (queue.capability_has >> r) & 1 or (not is_scalar(k, r) and queue.capability[r] <= 0):
        return UNLIMITED
    return queue.capability[r]


@helper
def update_queue_shares(k: Any, q: int) -> None:
    """allocated / deserved, the largest over what is deserved."""
    queue = k.queues[q]
    for plugin in range(2):
        queue.share[plugin] = 0.0
        for r in range(MAX_RESOURCES):
            if (queue.deserved_has[plugin] >> r) & 1 or (not is_scalar(k, r) and queue.deserved[plugin, r] > 0):
                queue.share[plugin] = max(queue.share[plugin], share_of(queue.allocated[r], queue.deserved[plugin, r]))
    if is_empty(k, queue.deserved[CAPACITY]):
        queue.share[CAPACITY] = 1.0  # a best-effort queue


@helper
def charge_queue(k: Any, q: int, request: Any, sign: int) -> None:
    """A task of a queue is allocated or pipelined (1), or goes (-1). Of ancestors, only the amounts move."""
    at = q
    while at != NONE:
        for r in range(MAX_RESOURCES):
            k.queues[at].allocated[r] += sign * request[r]
        at = k.queues[at].parent if k.hierarchy else NONE
    update_queue_shares(k, q)


# ---------------------------------------------------------------------------------------------------------------
# proportion: what is deserved is computed anew every session, from weights
# ---------------------------------------------------------------------------------------------------------------


@helper
def _fill_water(w: Any, k: Any) -> None:
    """Water filling over the queues that have jobs; nobody deserves more than it asks for."""
    remaining = copy_of(k.total)
    before = vector()
    rest = vector()
    old = vector()
    share = vector()
    increased = vector()
    decreased = vector()
    for q in range(k.num_queues):
        zero(k.queues[q].deserved[PROPORTION])
        k.queues[q].deserved_has[PROPORTION] = EVERYTHING
        k.queues[q].is_met = k.queues[q].num_jobs == 0
    while True:
        weights = 0.0
        for q in range(k.num_queues):
            if not k.queues[q].is_met:
                weights += k.queues[q].weight
        if weights == 0:
            return
        assign(before, remaining)
        assign(rest, remaining)
        for q in range(k.num_queues):
            queue = k.queues[q]
            if queue.is_met:
                continue
            deserved = queue.deserved[PROPORTION]
            assign(old, deserved)
            for r in range(MAX_RESOURCES):
                share[r] = remaining[r] * queue.weight / weights
            add(deserved, share)
            set_min(k, deserved, queue.real[PROPORTION], EVERYTHING, True)
            set_min(k, deserved, queue.request, EVERYTHING, False)
            set_max(deserved, queue.guarantee)
            difference(deserved, old, increased, decreased)
            add(rest, decreased)
            subtract(rest, increased)
            suffices = less_equal(k, queue.request, EVERYTHING, deserved, EVERYTHING, False)
            queue.is_met = suffices or is_equal(k, deserved, old)
        assign(remaining, rest)
        set_max(remaining, vector())
        if is_empty(k, remaining) or is_equal(k, remaining, before):
            return


# ---------------------------------------------------------------------------------------------------------------
# capacity: what is deserved is configured, in a tree of queues
# ---------------------------------------------------------------------------------------------------------------


@helper
def _add_to_ancestors(w: Any, k: Any) -> None:
    """What leaves hold, ask for and have admitted counts in their ancestors too."""
    for q in range(k.num_queues):
        queue = k.queues[q]
        if queue.num_jobs > 0 and not queue.is_leaf:
            k.is_broken = True
        if not queue.is_leaf:
            continue
        at = queue.parent
        while at != NONE:
            add(k.queues[at].allocated, queue.allocated)
            add(k.queues[at].request, queue.request)
            add(k.queues[at].inqueue, queue.inqueue)
            add(k.queues[at].elastic, queue.elastic)
            at = k.queues[at].parent


@helper
def _open_hierarchy(w: Any, k: Any) -> None:
    """Real capabilities from the root down; the root deserves what its children deserve."""
    for q in range(k.num_queues):
        queue = k.queues[q]
        for r in range(MAX_RESOURCES):
            queue.deserved[CAPACITY, r] = max(queue.deserved_spec[r], queue.guarantee[r])
    for depth in range(k.num_queues):
        for q in range(k.num_queues):
            if _depth(k, q) == depth:
                _open_below(w, k, q)
    if k.root != NONE:
        root = k.queues[k.root]
        zero(root.deserved[CAPACITY])
        root.deserved_has[CAPACITY] = 0
        for q in range(k.num_queues):
            if k.queues[q].parent == k.root:
                root.deserved_has[CAPACITY] |= k.queues[q].deserved_has[CAPACITY]
                for r in range(MAX_RESOURCES):
                    root.deserved[CAPACITY, r] += k.queues[q].deserved[CAPACITY, r]


@helper
def _depth(k: Any, q: int) -> int:
    depth = 0
    at = k.queues[q].parent
    while at != NONE:
        depth += 1
        at = k.queues[at].parent
    return depth


@helper
def _open_below(w: Any, k: Any, q: int) -> None:
    """Real capability of a queue: its parent's less the guarantees of its siblings, within its own capability."""
    queue = k.queues[q]
    parent = queue.parent
    for r in range(MAX_RESOURCES):
        if parent == NONE:
            queue.real[CAPACITY, r] = _capability(k, queue, r) if k.root == q else k.total[r]
            continue
        guarantees = 0.0
        for other in range(k.num_queues):
            if k.queues[other].parent == parent:
                guarantees += k.queues[other].guarantee[r]
        real = max(0.0, k.queues[parent].real[CAPACITY, r] - guarantees) + queue.guarantee[r]
        queue.real[CAPACITY, r] = min(real, _capability(k, queue, r))


# ---------------------------------------------------------------------------------------------------------------
# The questions
# ---------------------------------------------------------------------------------------------------------------


@helper
def overused(k: Any, q: int) -> bool:
    """proportion: what is deserved is allocated in all dimensions."""
    for i in range(k.num_plugins):
        if k.plugins[i].kind == Kind.PROPORTION and is_on(k, i, Point.OVERUSED):
            queue = k.queues[q]
            if less_equal(k, queue.deserved[PROPORTION], EVERYTHING, queue.allocated, EVERYTHING, False):
                return True
    return False


@helper
def allocatable(w: Any, k: Any, q: int, ps: int) -> bool:
    """Whether a queue may take a task: all plugins agree."""
    for i in range(k.num_plugins):
        if is_on(k, i, Point.ALLOCATABLE):
            if k.plugins[i].kind == Kind.PROPORTION and not _within(
                k, q, w.pod_sets[ps].request, w.pod_sets[ps].asked, PROPORTION
            ):
                return False
            if k.plugins[i].kind == Kind.CAPACITY and not _may_allocate(w, k, q, ps):
                return False
    return True


@helper
def _within(k: Any, q: int, request: Any, asked: int, plugin: int) -> bool:
    """proportion: within what is deserved, in the requested dimensions."""
    queue = k.queues[q]
    if not queue.is_open:
        return False
    after = copy_of(queue.allocated)
    for r in range(MAX_RESOURCES):
        after[r] += request[r]
    return less_equal_with_dimension(k, after, EVERYTHING, queue.deserved[plugin], EVERYTHING, request, asked) == 0


@helper
def _may_allocate(w: Any, k: Any, q: int, ps: int) -> bool:
    """capacity: within the real capability of the queue and of every ancestor (T10: whatever is deserved)."""
    if k.is_broken or not k.queues[q].is_open or (k.hierarchy and not k.queues[q].is_leaf):
        return False
    request = w.pod_sets[ps].request
    asked = w.pod_sets[ps].asked
    at = q
    while at != NONE:
        queue = k.queues[at]
        after = copy_of(queue.allocated)
        for r in range(MAX_RESOURCES):
            after[r] += request[r]
        if less_equal_with_dimension(k, after, EVERYTHING, queue.real[CAPACITY], EVERYTHING, request, asked) != 0:
            return False
        at = queue.parent if k.hierarchy else NONE
    return True


@helper
def preemptive(k: Any, q: int, request: Any, asked: int) -> bool:
    """Whether a queue may take this much from others: proportion as allocatable, capacity if one dimension suffices."""
    for i in range(k.num_plugins):
        if is_on(k, i, Point.PREEMPTIVE):
            if k.plugins[i].kind == Kind.PROPORTION and not _within(k, q, request, asked, PROPORTION):
                return False
            if k.plugins[i].kind == Kind.CAPACITY and not _may_take(k, q, request, asked):
                return False
    return True


@helper
def _may_take(k: Any, q: int, request: Any, asked: int) -> bool:
    if k.is_broken or not k.queues[q].is_open:
        return False
    at = q
    level = 0
    while at != NONE and level <= k.reclaim_level:
        queue = k.queues[at]
        if level > 0 and at == k.root:
            return False
        after = copy_of(queue.allocated)
        for r in range(MAX_RESOURCES):
            after[r] += request[r]
        beyond = less_equal_with_dimension(k, after, EVERYTHING, queue.real[CAPACITY], EVERYTHING, request, asked)
        if level == 0 and beyond != 0:
            return False
        deserved = queue.deserved[CAPACITY]
        if less_equal_partly(k, after, EVERYTHING, deserved, queue.deserved_has[CAPACITY], request, asked, True) != 0:
            return True
        at = queue.parent if k.hierarchy else NONE
        level += 1
    return False


@helper
def job_enqueueable(w: Any, k: Any, slot: int) -> bool:
    """Votes: any -1 met on the way is no; a tier with +1 and no -1 is yes; nobody votes is yes."""
    i = 0
    while i < k.num_plugins:
        tier = k.plugins[i].tier
        has_yes = False
        while i < k.num_plugins and k.plugins[i].tier == tier:
            if is_on(k, i, Point.JOB_ENQUEUED):
                vote = _vote_enqueue(w, k, k.plugins[i].kind, slot)
                if vote < 0:
                    return False
                has_yes = has_yes or vote > 0
            i += 1
        if has_yes:
            return True
    return True


@helper
def _vote_enqueue(w: Any, k: Any, kind: int, slot: int) -> int:
    job = k.jobs[slot]
    if kind == Kind.REJECTER:
        return -1 if w.jobs[slot].row == k.rejected_row else 0
    if kind == Kind.SLA:
        return 1 if deadline(w, k, slot) <= w.now_ms else 0
    if kind == Kind.OVERCOMMIT:
        if not job.has_min_resources:
            return 1
        wanted = copy_of(job.min_resources)
        idle = vector()
        for r in range(MAX_RESOURCES):
            wanted[r] += k.overcommit_inqueue[r]
            idle[r] = k.total[r] * k.overcommit_factor - k.total_used[r]
        has = EVERYTHING
        return 1 if less_equal_with_dimension(k, wanted, has, idle, has, job.min_resources, has) == 0 else -1
    if kind == Kind.PROPORTION:
        return _vote_within_real(k, job, job.queue, PROPORTION)
    if kind == Kind.CAPACITY:
        if k.is_broken:
            return -1
        at = job.queue
        while at != NONE:
            if _vote_within_real(k, job, at, CAPACITY) < 0:
                return -1
            at = k.queues[at].parent if k.hierarchy else NONE
        return 1
    return 0


@helper
def _vote_within_real(k: Any, job: Any, q: int, plugin: int) -> int:
    queue = k.queues[q]
    if not queue.is_open:
        return -1
    if not job.has_min_resources:
        return 1
    wanted = copy_of(job.min_resources)
    for r in range(MAX_RESOURCES):
        wanted[r] += queue.allocated[r] + queue.inqueue[r] - queue.elastic[r]
    has = EVERYTHING
    failed = less_equal_with_dimension(k, wanted, has, queue.real[plugin], has, job.min_resources, has)
    return 1 if failed == 0 else -1


@helper
def job_enqueued(w: Any, k: Any, slot: int) -> None:
    """A job was admitted: what it will ask for counts from now on."""
    job = k.jobs[slot]
    if not job.has_min_resources:
        return
    is_counted = False
    for i in range(k.num_plugins):
        kind = k.plugins[i].kind
        if not is_on(k, i, Point.JOB_ENQUEUED):
            continue
        if kind == Kind.OVERCOMMIT:
            for r in range(MAX_RESOURCES):
                k.overcommit_inqueue[r] += job.min_resources[r]
        elif (kind == Kind.PROPORTION or kind == Kind.CAPACITY) and not is_counted:
            is_counted = True
            at = job.queue
            while at != NONE:
                for r in range(MAX_RESOURCES):
                    k.queues[at].inqueue[r] += job.min_resources[r]
                at = k.queues[at].parent if k.hierarchy else NONE


@helper
def run_enqueue(w: Any, k: Any, slot: int) -> None:
    """Ask for one job, and admit it."""
    job = k.jobs[slot]
    if not job.has_min_resources or job_enqueueable(w, k, slot):
        job_enqueued(w, k, slot)
        job.phase = Phase.INQUEUE
        k.has_changed = True
