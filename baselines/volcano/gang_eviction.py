"""The actions gangpreempt and gangreclaim: room for a whole gang in one domain, from bundles of pods of other gangs.

A victim job's pods in a domain are split into those that it can lose and stay a gang (safe) and the others, which go
all or not at all (whole). Source: volcano-sh/volcano pkg/scheduler/actions/{gangpreempt,gangreclaim,utils}.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.baselines.volcano.allocate import mark_required, next_sub_job
from gangline.baselines.volcano.gang import (
    job_pipelined,
    job_ready,
    sub_job_complete,
    sub_job_pipelined,
    sub_job_ready,
)
from gangline.baselines.volcano.nodes import find_node
from gangline.baselines.volcano.orders import job_less, next_task, pop_job, rank_of, start_tasks
from gangline.baselines.volcano.preempt import queues_of_starving
from gangline.baselines.volcano.queues import allocatable, overused, preemptive
from gangline.baselines.volcano.resources import EVERYTHING, less_equal, vector
from gangline.baselines.volcano.state import MAX_POLICIES, Status
from gangline.baselines.volcano.statement import commit, discard, evict, place
from gangline.baselines.volcano.topology import find_gradient, in_domain, pick_domains
from gangline.baselines.volcano.victims import add_candidate, choose_evictable, is_running, queue_is_hit_first
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import MAX_RESOURCES, NONE

ENDLESS = 1e300  # return on an eviction that costs no gang anything


@helper
def gang_eviction_action(w: Any, k: Any, reclaims: bool, out: Any) -> None:
    """Starving jobs push out bundles of lower jobs of their queue, or (reclaims) of other queues."""
    for q in queues_of_starving(w, k, False):
        if reclaims and overused(k, q):
            continue
        while k.queues[q].size > 0 and not k.is_full:
            slot = pop_job(w, k, q)
            start = k.num_ops
            _make_room(w, k, slot, reclaims)
            if k.num_ops > start and job_pipelined(w, k, slot):
                commit(w, k, start, out)
            else:
                discard(w, k, start)
                _forget_domains(k, slot)


@helper
def _make_room(w: Any, k: Any, slot: int, reclaims: bool) -> None:
    """In the first domain where it helps: bundle after bundle, until the job can be placed there."""
    job = k.jobs[slot]
    if job.is_hard and k.topology == NONE:
        return
    need = vector()
    asked = _need_of(w, k, slot, need)
    if asked == 0 or (reclaims and not preemptive(k, job.queue, need, asked)):
        return
    wanted = vector()
    for r in range(MAX_RESOURCES):
        wanted[r] = job.min_resources[r] if job.has_min_resources else 0.0
    root = w.num_domains
    count = find_gradient(w, k, 0, root, job.is_hard, job.limit, job.allocated_hypernode, wanted, True)
    count = pick_domains(k, count, k.max_domains[1 if reclaims else 0], NONE if _has_hard_limit(k, slot) else root)
    start = k.num_ops
    room = vector()
    for i in range(count):
        domain = k.picked[i]
        find_bundles(w, k, slot, domain, need, reclaims)
        _sum_room(w, k, domain, room)
        for b in range(k.num_bundles):
            _add_bundle(w, k, k.bundles[k.bundle_order[b]], room)
            if not less_equal(k, need, asked, room, EVERYTHING, False):
                continue
            if _evict_bundles(k, w, b + 1) and _place_gang(w, k, slot, domain):
                return
            discard(w, k, start)


@helper
def _need_of(w: Any, k: Any, slot: int, need: Any) -> int:
    """What the pods that have to be placed ask for: all that are pending, or, of a job that is ready, those of its next
    sub-group. Returns the mask of what is asked for; 0 if nothing is.
    """
    job = k.jobs[slot]
    asked = 0
    for r in range(MAX_RESOURCES):
        need[r] = 0
    if job.num_sub_jobs == 0 or not job_ready(w, k, slot):
        return _add_pending(w, k, slot, NONE, need)
    _start_sub_jobs(w, k, slot)
    i = next_sub_job(w, k, slot)
    while i != NONE and asked == 0:
        asked = _add_pending(w, k, slot, i, need)
        k.sub_jobs[i].is_tried = True
        i = next_sub_job(w, k, slot)
    return asked


@helper
def _add_pending(w: Any, k: Any, slot: int, sub_job: int, need: Any) -> int:
    asked = 0
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        s = k.sets[ps]
        if s.pending > 0 and not s.is_best_effort and (sub_job == NONE or s.sub_job == sub_job):
            asked |= w.pod_sets[ps].asked
            for r in range(MAX_RESOURCES):
                need[r] += s.pending * w.pod_sets[ps].request[r]
        ps = w.pod_sets[ps].next
    return asked


@helper
def _start_sub_jobs(w: Any, k: Any, slot: int) -> None:
    mark_required(w, k, slot)
    for i in range(k.jobs[slot].first_sub_job, k.jobs[slot].first_sub_job + k.jobs[slot].num_sub_jobs):
        k.sub_jobs[i].is_tried = False


@helper
def _has_hard_limit(k: Any, slot: int) -> bool:
    """Whether a job, or a sub-group of it, has to stay within a domain."""
    job = k.jobs[slot]
    has_limit = job.is_hard
    for i in range(job.first_sub_job, job.first_sub_job + job.num_sub_jobs):
        has_limit = has_limit or k.sub_jobs[i].limit != NONE
    return has_limit


@helper
def _sum_room(w: Any, k: Any, domain: int, room: Any) -> None:
    """What is idle or on its way out in a domain."""
    for r in range(MAX_RESOURCES):
        room[r] = 0
    for n in range(w.num_nodes):
        if k.nodes[n].is_up and in_domain(w, k, n, domain):
            for r in range(MAX_RESOURCES):
                room[r] += k.nodes[n].idle[r] + k.nodes[n].releasing[r]


@helper
def _add_bundle(w: Any, k: Any, bundle: Any, room: Any) -> None:
    for c in range(bundle.first, bundle.first + bundle.count):
        for r in range(MAX_RESOURCES):
            room[r] += w.pods[k.candidates[c]].held[r]


@helper
def _evict_bundles(k: Any, w: Any, count: int) -> bool:
    """Evict the first `count` bundles; False if the log is full."""
    for b in range(count):
        bundle = k.bundles[k.bundle_order[b]]
        for c in range(bundle.first, bundle.first + bundle.count):
            if not evict(w, k, k.candidates[c]):
                return False
    return True


# ---------------------------------------------------------------------------------------------------------------
# Bundles
# ---------------------------------------------------------------------------------------------------------------


@helper
def find_bundles(w: Any, k: Any, slot: int, domain: int, need: Any, reclaims: bool) -> None:
    """Bundles of a domain that may go for a job, in the order in which they go, into `k.bundles`."""
    k.num_candidates = 0
    for n in range(w.num_nodes):
        if not in_domain(w, k, n, domain):
            continue
        at = w.nodes[n].first_pod
        while at != NONE:
            if _may_go(w, k, slot, at, reclaims):
                add_candidate(k, at)
            at = w.pods[at].next_on_node
    group_candidates(w, k)
    k.num_bundles = 0
    first = 0
    while first < k.num_candidates:
        victim = w.pods[k.candidates[first]].job
        end = first
        while end < k.num_candidates and w.pods[k.candidates[end]].job == victim:
            end += 1
        split_job(w, k, victim, first, end - first, need)
        first = end
    _order_victims(w, k, slot, reclaims)
    sort_bundles(k)
    _flatten(k)
    choose_evictable(w, k, slot, reclaims)
    keep_allowed(k, k.allow_whole_bundle[1 if reclaims else 0] != 0)


@helper
def _may_go(w: Any, k: Any, slot: int, p: int, reclaims: bool) -> bool:
    """gangpreempt: of lower jobs of the same queue; gangreclaim: of other queues that may be reclaimed from. Not of a
    PodGroup that says of itself that it may not be preempted.
    """
    pod = w.pods[p]
    victim = k.jobs[pod.job]
    if not is_running(w, k, p) or not k.sets[pod.pod_set].is_preemptable or victim.is_preemptable == 0:
        return False
    is_same = victim.queue == k.jobs[slot].queue
    if reclaims:
        return not is_same and k.queues[victim.queue].is_reclaimable
    return is_same and pod.job != slot and w.jobs[pod.job].priority < w.jobs[slot].priority


@helper
def group_candidates(w: Any, k: Any) -> None:
    """Candidates job by job, each job's by priority and then by name."""
    for i in range(1, k.num_candidates):
        p = k.candidates[i]
        j = i
        while j > 0 and _comes_before(w, k, p, k.candidates[j - 1]):
            k.candidates[j] = k.candidates[j - 1]
            j -= 1
        k.candidates[j] = p


@helper
def _comes_before(w: Any, k: Any, a: int, b: int) -> bool:
    if w.pods[a].job != w.pods[b].job:
        return w.pods[a].job < w.pods[b].job
    set_a, set_b = w.pods[a].pod_set, w.pods[b].pod_set
    if k.sets[set_a].priority != k.sets[set_b].priority:
        return k.sets[set_a].priority < k.sets[set_b].priority
    return rank_of(k, set_a, k.place[a]) < rank_of(k, set_b, k.place[b])


@helper
def split_job(w: Any, k: Any, slot: int, first: int, count: int, need: Any) -> None:
    """Split a job's candidates (in order of priority) into a safe and a whole bundle.

    A pod is safe while its job has more than minMember without it, its role more than its minimum, and its sub-group is
    broken already or may be.
    """
    job = k.jobs[slot]
    surplus = job.ready - job.min_member
    spare = np.zeros(MAX_POLICIES, np.int64)  # ready sub-groups of each policy beyond its minimum
    broken = np.zeros(max(1, job.num_sub_jobs), np.bool_)
    for policy in range(job.num_policies):
        spare[policy] = -job.min_sub_groups[policy]
    for i in range(job.num_sub_jobs):
        sub_job = job.first_sub_job + i
        broken[i] = not sub_job_complete(w, k, slot, sub_job, False)
        policy = k.sub_jobs[sub_job].policy
        if policy != NONE and not broken[i]:
            spare[policy] += 1
    is_broken = surplus < 0  # no gang any more: it cannot be broken further
    taken = 0
    for i in range(count):
        p = k.candidates[first + i]
        s = k.sets[w.pods[p].pod_set]
        own = s.sub_job - job.first_sub_job if s.sub_job != NONE else NONE
        policy = k.sub_jobs[s.sub_job].policy if own != NONE else NONE
        may_break = policy == NONE or broken[own] or spare[policy] > 0
        is_safe = is_broken or (surplus > 0 and may_break and _role_surplus(w, k, slot, s, first, taken) > 0)
        if not is_safe:
            continue
        surplus -= 1
        if policy != NONE and not broken[own]:
            broken[own] = True
            spare[policy] -= 1
        for j in range(first + i, first + taken, -1):  # safe ones first, both in their order
            k.candidates[j] = k.candidates[j - 1]
        k.candidates[first + taken] = p
        taken += 1
    if taken > 0:
        _add_bundle_of(w, k, slot, first, taken, False, need)
    if taken < count:
        _add_bundle_of(w, k, slot, first + taken, count - taken, True, need)


@helper
def _role_surplus(w: Any, k: Any, slot: int, s: Any, first: int, taken: int) -> int:
    """Pods that a role can lose after those that are taken. T7: not asked if minMember is below the sum of minima."""
    if s.role_min <= 0 or k.jobs[slot].min_member < k.jobs[slot].total_role_min:
        return 1
    left = -s.role_min
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        if k.sets[ps].role == s.role:
            left += k.sets[ps].ready + (k.sets[ps].pending if k.sets[ps].is_best_effort else 0)
        ps = w.pod_sets[ps].next
    for i in range(first, first + taken):
        left -= k.sets[w.pods[k.candidates[i]].pod_set].role == s.role
    return left


@helper
def _add_bundle_of(w: Any, k: Any, slot: int, first: int, count: int, is_whole: bool, need: Any) -> None:
    local = vector()
    whole = vector()
    for i in range(first, first + count):
        for r in range(MAX_RESOURCES):
            local[r] += w.pod_sets[w.pods[k.candidates[i]].pod_set].request[r]
    ps = w.jobs[slot].first_pod_set
    while ps != NONE and is_whole:
        for r in range(MAX_RESOURCES):
            whole[r] += w.pod_sets[ps].count * w.pod_sets[ps].request[r]
        ps = w.pod_sets[ps].next
    bundle = k.bundles[k.num_bundles]
    bundle.is_whole = is_whole
    bundle.first = first
    bundle.count = count
    bundle.slot = slot
    bundle.order = 0
    bundle.roi = return_on(need, local, whole)
    bundle.job_rank = w.jobs[slot].name_rank
    bundle.pod_rank = rank_of(k, w.pods[k.candidates[first]].pod_set, k.place[k.candidates[first]])
    k.bundle_order[k.num_bundles] = k.num_bundles
    k.num_bundles += 1


@helper
def return_on(need: Any, local: Any, whole: Any) -> float:
    """What a bundle gives of what is needed, for what its whole job holds of it."""
    gain = 0.0
    cost = 0.0
    for r in range(MAX_RESOURCES):
        if need[r] > 0:
            gain += min(local[r], need[r]) / need[r]
            cost += whole[r] / need[r]
    return gain / cost if cost > 0 else ENDLESS


@helper
def _order_victims(w: Any, k: Any, slot: int, reclaims: bool) -> None:
    """Place of each bundle's job among the victims, or of its queue: how many others come before."""
    for b in range(k.num_bundles):
        for other in range(k.num_bundles):
            mine, its = k.bundles[b].slot, k.bundles[other].slot
            if mine == its or (reclaims and k.jobs[mine].queue == k.jobs[its].queue):
                continue
            if reclaims:
                is_before = queue_is_hit_first(w, k, k.jobs[slot].queue, k.jobs[its].queue, k.jobs[mine].queue)
            else:
                is_before = job_less(w, k, mine, its)
            k.bundles[b].order += is_before


@helper
def sort_bundles(k: Any) -> None:
    """Safe before whole, then the victims' order, then the better return, then names; into `k.bundle_order`."""
    for i in range(1, k.num_bundles):
        b = k.bundle_order[i]
        j = i
        while j > 0 and _goes_before(k.bundles[b], k.bundles[k.bundle_order[j - 1]]):
            k.bundle_order[j] = k.bundle_order[j - 1]
            j -= 1
        k.bundle_order[j] = b


@helper
def _goes_before(a: Any, b: Any) -> bool:
    if a.is_whole != b.is_whole:
        return b.is_whole
    if a.order != b.order:
        return a.order < b.order
    if a.roi != b.roi:
        return a.roi > b.roi
    if a.job_rank != b.job_rank:
        return a.job_rank < b.job_rank
    if a.pod_rank != b.pod_rank:
        return a.pod_rank < b.pod_rank
    return a.count < b.count


@helper
def _flatten(k: Any) -> None:
    """Candidates in the order of the bundles."""
    count = 0
    for b in range(k.num_bundles):
        bundle = k.bundles[k.bundle_order[b]]
        for i in range(bundle.count):
            k.victims[count + i] = k.candidates[bundle.first + i]
        bundle.first = count
        count += bundle.count
    for i in range(count):
        k.candidates[i] = k.victims[i]
    k.num_candidates = count


@helper
def keep_allowed(k: Any, allow_whole: bool) -> None:
    """Of safe bundles what is marked in `k.is_victim`; whole ones only complete, and only if they may be taken."""
    kept = 0
    for b in range(k.num_bundles):
        bundle = k.bundles[k.bundle_order[b]]
        count = 0
        for i in range(bundle.first, bundle.first + bundle.count):
            if k.is_victim[i] != 0:
                k.candidates[bundle.first + count] = k.candidates[i]
                count += 1
        if count == 0 or (bundle.is_whole and (count < bundle.count or not allow_whole)):
            continue
        bundle.count = count
        k.bundle_order[kept] = k.bundle_order[b]
        kept += 1
    k.num_bundles = kept


# ---------------------------------------------------------------------------------------------------------------
# The gang's place
# ---------------------------------------------------------------------------------------------------------------


@helper
def _place_gang(w: Any, k: Any, slot: int, domain: int) -> bool:
    """Pipeline the job's pending pods in a domain, sub-group by sub-group, until it is pipelined; what is half done is
    the caller's to discard. The domains are nominated for the next allocate.
    """
    _forget_domains(k, slot)
    if k.jobs[slot].num_sub_jobs == 0:
        return _place_within(w, k, slot, NONE, domain) and job_pipelined(w, k, slot)
    was_ready = job_ready(w, k, slot)
    _start_sub_jobs(w, k, slot)
    unasked = vector()
    while True:
        i = next_sub_job(w, k, slot)
        if i == NONE:
            break
        k.sub_jobs[i].is_tried = True
        if _add_pending(w, k, slot, i, unasked) == 0:
            continue
        if not _place_within(w, k, slot, i, domain):
            return False
        if was_ready or job_pipelined(w, k, slot):
            break
    return job_pipelined(w, k, slot)


@helper
def _forget_domains(k: Any, slot: int) -> None:
    job = k.jobs[slot]
    job.nominated_hypernode = NONE
    for i in range(job.first_sub_job, job.first_sub_job + job.num_sub_jobs):
        k.sub_jobs[i].nominated_hypernode = NONE


@helper
def _place_within(w: Any, k: Any, slot: int, sub_job: int, root: int) -> bool:
    """Pipeline a sub-group in the first domain of its gradient, wide ones first, that holds it; without a hard limit
    anywhere in the job, in the whole domain.
    """
    job = k.jobs[slot]
    count = 1
    k.domains[1, 0] = root
    if sub_job != NONE and _has_hard_limit(k, slot):
        s = k.sub_jobs[sub_job]
        wanted = vector()
        _add_pending(w, k, slot, sub_job, wanted)
        count = find_gradient(w, k, 1, root, s.limit != NONE, s.limit, s.allocated_hypernode, wanted, True)
    for i in range(count):
        domain = k.domains[1, i]
        if _pipeline_all(w, k, slot, sub_job, domain):
            if sub_job == NONE:
                job.nominated_hypernode = domain
            else:
                k.sub_jobs[sub_job].nominated_hypernode = domain
            return True
    return False


@helper
def _pipeline_all(w: Any, k: Any, slot: int, sub_job: int, domain: int) -> bool:
    """Pipeline every pending pod of a sub-group in a domain, or none."""
    start = k.num_ops
    start_tasks(w, k, slot)
    while True:
        ps = next_task(w, k, slot, sub_job, False)
        if ps == NONE:
            break
        n = NONE
        if allocatable(w, k, k.jobs[slot].queue, ps):
            n = find_node(w, k, slot, ps, domain, False)
        if n == NONE or not place(w, k, slot, ps, n if n >= 0 else -2 - n, Status.PIPELINED):
            discard(w, k, start)
            return False
    if k.num_ops > start and (sub_job_ready(w, k, slot, sub_job) or sub_job_pipelined(w, k, slot, sub_job)):
        return True
    discard(w, k, start)
    return False
