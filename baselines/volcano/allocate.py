"""The actions enqueue, allocate and backfill.

Source: volcano-sh/volcano pkg/scheduler/actions/{enqueue,allocate,backfill}.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.volcano.gang import (
    job_pipelined,
    job_ready,
    job_valid,
    sub_job_complete,
    sub_job_pipelined,
    sub_job_ready,
)
from gangline.baselines.volcano.nodes import find_node, find_quota
from gangline.baselines.volcano.orders import (
    clear_heaps,
    next_task,
    pop_job,
    pop_queue,
    push_job,
    push_queue,
    start_tasks,
)
from gangline.baselines.volcano.queues import allocatable, job_enqueueable, overused, run_enqueue
from gangline.baselines.volcano.resources import assign, vector
from gangline.baselines.volcano.state import Phase, Status
from gangline.baselines.volcano.statement import commit, discard, keep, place
from gangline.baselines.volcano.topology import (
    common,
    find_gradient,
    hypernode_scores,
    is_within,
    sum_requests,
    tier_of,
)
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER, NONE, JobKind, Quota

FAILED = 0
PIPELINED = 1
READY = 2


@helper
def enqueue_action(w: Any, k: Any) -> None:
    """Admit Pending PodGroups; a refused one does not block the next."""
    clear_heaps(w, k)
    for slot in range(w.jobs_used):
        if k.jobs[slot].is_in and k.jobs[slot].phase == Phase.PENDING and _may_enter(w, k, slot):
            push_job(w, k, slot)
    for q in range(k.num_queues):
        if k.queues[q].num_jobs > 0:
            push_queue(w, k, q)
    while k.num_queue_heap > 0:
        q = pop_queue(w, k)
        if k.queues[q].size == 0:
            continue
        run_enqueue(w, k, pop_job(w, k, q))
        push_queue(w, k, q)


@helper
def _may_enter(w: Any, k: Any, slot: int) -> bool:
    """Whether it makes sense to ask for a job in its turn. One that is refused before anybody has entered will be
    refused after: what is admitted only grows. Jobs that wait alike are asked once a session; with sla each has its own
    deadline.
    """
    if not k.jobs[slot].is_plain or k.sla_ms < NEVER or not k.jobs[slot].has_min_resources:
        return True
    group = w.jobs[slot].group
    if k.entry[group] != k.session:
        k.entry[group] = k.session
        k.may_enter[group] = job_enqueueable(w, k, slot)
    return k.may_enter[group] != 0


@helper
def room_key(w: Any, k: Any) -> int:
    """Changes whenever there may be more room than before."""
    return w.room_version + k.total_evicted + 1


@helper
def allocate_action(w: Any, k: Any, out: Any) -> None:
    """Place jobs, best queue and best job first; what fails is discarded and holds nothing (T2)."""
    clear_heaps(w, k)
    for slot in range(w.jobs_used):
        job = k.jobs[slot]
        if not job.is_in:
            continue
        if job.phase == Phase.PENDING and k.admits_itself:
            job.phase = Phase.INQUEUE
        lacks_domains = job.is_hard and k.topology == NONE
        if job.phase == Phase.PENDING or job.pending == 0 or lacks_domains or not _is_valid(w, k, slot):
            continue
        if not job.is_plain or k.is_releasing or k.no_room_at[w.jobs[slot].group] != room_key(w, k):
            push_job(w, k, slot)
    for q in range(k.num_queues):
        if k.queues[q].size > 0:
            push_queue(w, k, q)
    while k.num_queue_heap > 0 and not k.is_full:
        q = pop_queue(w, k)
        if overused(k, q) or k.queues[q].size == 0:
            continue
        slot = pop_job(w, k, q)
        start = k.num_ops
        found = _allocate_job(w, k, slot)
        if found != FAILED and job_ready(w, k, slot):
            if not _bring_best_effort(w, k, slot):
                discard(w, k, start)
            elif commit(w, k, start, out) and k.jobs[slot].pending > 0:
                push_job(w, k, slot)  # T3: the surplus, one by one, in turns with other jobs
        elif found != FAILED:
            keep(w, k, start)  # T4: reserved to the end of the session
        push_queue(w, k, q)


@helper
def _bring_best_effort(w: Any, k: Any, slot: int) -> bool:
    """In a world that demands whole gangs, best-effort pods that a gang counts on go with it: backfill would come too
    late. False if one of them finds no node.
    """
    job = w.jobs[slot]
    if not w.params.gang or job.kind != JobKind.TRAINING:
        return True
    start_tasks(w, k, slot)
    while job.num_bound + k.jobs[slot].newly_bound < job.min_member:
        ps = next_task(w, k, slot, NONE, True)
        n = find_node(w, k, slot, ps, NONE, True) if ps != NONE else NONE
        if n < 0 or not place(w, k, slot, ps, n, Status.ALLOCATED):
            return False
    return True


@helper
def _allocate_job(w: Any, k: Any, slot: int) -> int:
    """Place a job's tasks until it is ready, in one domain of the network if it asks for that."""
    job = k.jobs[slot]
    group = w.jobs[slot].group
    is_alike = job.is_plain and job.newly_bound == 0
    k.was_barred = False
    if is_alike and k.no_room[group] == k.session:  # room has only become less since one like it has failed
        return FAILED
    find_quota(w, k, slot)
    if job.is_hard or job.num_policies > 0:
        found = _allocate_in_domains(w, k, slot)
    else:
        found = allocate_tasks(w, k, slot, NONE, NONE)
    if found == FAILED and is_alike:
        k.no_room[group] = k.session
        is_simple = w.jobs[slot].num_pod_sets == 1 and not job.is_hard and w.params.quota != Quota.ENFORCED
        if is_simple and not k.was_barred and not k.is_releasing and k.num_kept == 0:
            k.no_room_at[group] = room_key(w, k)  # until room is made no session need try
    return found


@helper
def _is_valid(w: Any, k: Any, slot: int) -> bool:
    return job_valid(w, k, slot) if k.jobs[slot].is_dirty else k.jobs[slot].is_valid


@helper
def allocate_tasks(w: Any, k: Any, slot: int, sub_job: int, domain: int) -> int:
    """Place pending tasks in task order until the job, or its sub-group, is ready; discarded if it is not even
    pipelined at the end.
    """
    start = k.num_ops
    q = k.jobs[slot].queue
    start_tasks(w, k, slot)
    while True:
        ps = next_task(w, k, slot, sub_job, False)
        if ps == NONE:
            break
        s = k.sets[ps]
        if not allocatable(w, k, q, ps) or (s.has_failed and s.named_role):
            s.skipped = s.pending  # the others of the set are no different
            k.was_barred = True
            continue
        n = find_node(w, k, slot, ps, domain, True)
        if n == NONE:
            _note_failure(w, k, slot, ps)
            s.skipped = s.pending
            if not _needs_more(w, k, slot, sub_job):
                break
            continue
        status = Status.ALLOCATED if n >= 0 else Status.PIPELINED
        if not place(w, k, slot, ps, n if n >= 0 else -2 - n, status):
            break
        if sub_job_ready(w, k, slot, sub_job):
            break
    if sub_job_ready(w, k, slot, sub_job) and k.num_ops > start:
        return READY
    if sub_job_pipelined(w, k, slot, sub_job) and k.num_ops > start:
        return PIPELINED
    discard(w, k, start)
    return FAILED


@helper
def _note_failure(w: Any, k: Any, slot: int, failed: int) -> None:
    """No node for a role: the others of it need not be tried."""
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        if k.sets[ps].role == k.sets[failed].role:
            k.sets[ps].has_failed = True
        ps = w.pod_sets[ps].next


@helper
def _needs_more(w: Any, k: Any, slot: int, sub_job: int) -> bool:
    """Whether the job may still become ready without the roles that have failed."""
    job = k.jobs[slot]
    if job.min_member == job.num_tasks:
        return False
    if sub_job != NONE and job.num_policies > 0:
        request = vector()
        return k.sub_jobs[sub_job].size < sum_requests(w, k, slot, sub_job, False, request)
    ready = job.ready
    is_enough = True
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        s = k.sets[ps]
        if not s.has_failed:
            ready += s.pending
        elif s.role_min > 0:
            count = 0
            other = w.jobs[slot].first_pod_set
            while other != NONE:
                if k.sets[other].role == s.role:
                    count += k.sets[other].ready
                other = w.pod_sets[other].next
            is_enough = is_enough and count >= s.role_min
        ps = w.pod_sets[ps].next
    return ready >= job.min_member if job.min_member < job.total_role_min else is_enough


# ---------------------------------------------------------------------------------------------------------------
# In domains of the network
# ---------------------------------------------------------------------------------------------------------------


@helper
def _allocate_in_domains(w: Any, k: Any, slot: int) -> int:
    """Dry-run the job in every domain of a gradient; the one with the highest sum of scores is done again for good."""
    job = k.jobs[slot]
    wanted = vector()
    if job.has_min_resources:
        assign(wanted, job.min_resources)
    root = w.num_domains
    start = k.num_ops
    count = find_gradient(w, k, 0, root, job.is_hard, job.limit, job.allocated_hypernode, wanted, False)
    before = job.allocated_hypernode
    i = 0
    while i < count:
        tier = tier_of(w, k, k.domains[0, i])
        best = NONE
        best_score = 0.0
        while i < count and tier_of(w, k, k.domains[0, i]) == tier:
            score = _try_domain(w, k, slot, k.domains[0, i])
            if score >= 0 and (best == NONE or score > best_score):
                best = k.domains[0, i]
                best_score = score
            discard(w, k, start)
            _forget_domains(w, k, slot, before)
            i += 1
        if best != NONE:
            _try_domain(w, k, slot, best)
            job.allocated_hypernode = common(w, before, _span(w, k, slot, best))
            for j in range(job.first_sub_job, job.first_sub_job + job.num_sub_jobs):
                k.sub_jobs[j].committed_hypernode = k.sub_jobs[j].allocated_hypernode
            return READY if job_ready(w, k, slot) else PIPELINED
    return FAILED


@helper
def _span(w: Any, k: Any, slot: int, domain: int) -> int:
    """The hypernode that the job has got: that of its sub-groups, or the domain itself."""
    job = k.jobs[slot]
    found = NONE
    for i in range(job.first_sub_job, job.first_sub_job + job.num_sub_jobs):
        found = common(w, found, k.sub_jobs[i].allocated_hypernode)
    return domain if found == NONE else found


@helper
def _forget_domains(w: Any, k: Any, slot: int, before: int) -> None:
    """Undo what a dry run has noted of hypernodes."""
    job = k.jobs[slot]
    job.allocated_hypernode = before
    for i in range(job.first_sub_job, job.first_sub_job + job.num_sub_jobs):
        k.sub_jobs[i].allocated_hypernode = k.sub_jobs[i].committed_hypernode


@helper
def _try_domain(w: Any, k: Any, slot: int, domain: int) -> float:
    """Place the job's sub-groups in a domain until it is ready; returns the sum of their scores, -1 if it fails."""
    job = k.jobs[slot]
    if job.num_sub_jobs == 0:
        return _place_sub_job(w, k, slot, NONE, domain) if job.pending > 0 else -1.0
    mark_required(w, k, slot)
    for i in range(job.first_sub_job, job.first_sub_job + job.num_sub_jobs):
        k.sub_jobs[i].is_tried = False
    total = 0.0
    has_placed = False
    while True:
        i = next_sub_job(w, k, slot)
        if i == NONE:
            break
        score = _place_sub_job(w, k, slot, i, domain)
        k.sub_jobs[i].is_tried = score < 0  # else its surplus may follow, if the job needs it
        if score >= 0:
            total += score
            has_placed = True
        if has_placed and job_ready(w, k, slot):
            break
    if has_placed and (job_ready(w, k, slot) or job_pipelined(w, k, slot)):
        return total
    return -1.0


@helper
def mark_required(w: Any, k: Any, slot: int) -> None:
    """Sub-groups that are needed to have minSubGroups ready ones."""
    job = k.jobs[slot]
    for policy in range(job.num_policies):
        needed = job.min_sub_groups[policy]
        for i in range(job.first_sub_job, job.first_sub_job + job.num_sub_jobs):
            k.sub_jobs[i].is_required = False if k.sub_jobs[i].policy == policy else k.sub_jobs[i].is_required
            if k.sub_jobs[i].policy == policy and sub_job_complete(w, k, slot, i, False):
                needed -= 1
        for i in range(job.first_sub_job, job.first_sub_job + job.num_sub_jobs):
            if k.sub_jobs[i].policy == policy and needed > 0 and not sub_job_complete(w, k, slot, i, False):
                k.sub_jobs[i].is_required = True
                needed -= 1


@helper
def next_sub_job(w: Any, k: Any, slot: int) -> int:
    """Required ones first, then those that are not ready, then in order; only with pending tasks."""
    job = k.jobs[slot]
    best = NONE
    best_key = 0
    request = vector()
    for i in range(job.first_sub_job, job.first_sub_job + job.num_sub_jobs):
        if k.sub_jobs[i].is_tried or sum_requests(w, k, slot, i, True, request) == 0:
            continue
        key = 2 * (not k.sub_jobs[i].is_required) + sub_job_complete(w, k, slot, i, False)
        if best == NONE or key < best_key:
            best = i
            best_key = key
    return best


@helper
def _place_sub_job(w: Any, k: Any, slot: int, sub_job: int, root: int) -> float:
    """Place a sub-group in the best hypernode of the first gradient below `root` that has any; -1 if none has."""
    job = k.jobs[slot]
    start = k.num_ops
    wanted = vector()
    sum_requests(w, k, slot, sub_job, True, wanted)
    limit = NONE
    allocated = NONE
    is_hard = False
    if sub_job != NONE:
        limit = k.sub_jobs[sub_job].limit
        allocated = k.sub_jobs[sub_job].allocated_hypernode
        is_hard = limit != NONE
    scores = k.domain_scores
    nominated = job.nominated_hypernode if sub_job == NONE else k.sub_jobs[sub_job].nominated_hypernode
    if nominated != NONE and is_within(w, nominated, root):  # where room was made for it
        k.domains[1, 0] = nominated
        hypernode_scores(w, k, slot, sub_job, 1, 0, 1, scores)
        if allocate_tasks(w, k, slot, sub_job, nominated) == READY:
            _note_domain(w, k, slot, sub_job, allocated, nominated)
            return scores[0]
        discard(w, k, start)
    count = find_gradient(w, k, 1, root, is_hard, limit, allocated, wanted, False)
    i = 0
    while i < count:
        first = i
        tier = tier_of(w, k, k.domains[1, i])
        while i < count and tier_of(w, k, k.domains[1, i]) == tier:
            i += 1
        hypernode_scores(w, k, slot, sub_job, 1, first, i - first, scores)
        best = NONE
        for j in range(first, i):
            found = allocate_tasks(w, k, slot, sub_job, k.domains[1, j])
            if found != FAILED and (best == NONE or scores[j - first] > scores[best - first]):
                best = j
            discard(w, k, start)
        if best != NONE:
            score = scores[best - first]
            allocate_tasks(w, k, slot, sub_job, k.domains[1, best])
            _note_domain(w, k, slot, sub_job, allocated, k.domains[1, best])
            return score
    return -1.0


@helper
def _note_domain(w: Any, k: Any, slot: int, sub_job: int, before: int, domain: int) -> None:
    """The hypernode of a job or sub-group that has got pods in a domain beside those that it had."""
    if sub_job != NONE:
        k.sub_jobs[sub_job].allocated_hypernode = common(w, before, domain)
    else:
        k.jobs[slot].allocated_hypernode = common(w, k.jobs[slot].allocated_hypernode, domain)


# ---------------------------------------------------------------------------------------------------------------
# backfill
# ---------------------------------------------------------------------------------------------------------------


@helper
def backfill_action(w: Any, k: Any, out: Any) -> None:
    """Place best-effort pods, queue by queue, job by job (T2: no reservations, no small jobs)."""
    clear_heaps(w, k)
    for slot in range(w.jobs_used):
        job = k.jobs[slot]
        if job.is_in and job.phase != Phase.PENDING and job.pending_best_effort > 0 and _is_valid(w, k, slot):
            push_job(w, k, slot)
    for q in range(k.num_queues):
        if k.queues[q].size > 0:
            push_queue(w, k, q)
    while k.num_queue_heap > 0 and not k.is_full:
        q = pop_queue(w, k)
        while k.queues[q].size > 0:
            slot = pop_job(w, k, q)
            find_quota(w, k, slot)
            start = k.num_ops
            start_tasks(w, k, slot)
            ps = next_task(w, k, slot, NONE, True)
            while ps != NONE:
                n = find_node(w, k, slot, ps, NONE, True)
                if n < 0 or not place(w, k, slot, ps, n, Status.ALLOCATED):
                    k.sets[ps].skipped = k.sets[ps].pending
                ps = next_task(w, k, slot, NONE, True)
            if job_ready(w, k, slot):
                commit(w, k, start, out)
            else:
                discard(w, k, start)
