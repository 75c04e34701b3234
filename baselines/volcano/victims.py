"""Whom a task may push out: candidates, what plugins allow, how tiers combine that, in which order they go.

Source: volcano-sh/volcano pkg/scheduler/framework/session_plugins.go, and the plugins' preemptable and reclaimable
functions.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.volcano.drf import SHARE_DELTA, build_tree
from gangline.baselines.volcano.gang import is_on
from gangline.baselines.volcano.orders import (
    below_common,
    compare_jobs,
    has_task_priority,
    is_above,
    queue_less,
    sign,
    task_less,
)
from gangline.baselines.volcano.queues import CAPACITY, PROPORTION
from gangline.baselines.volcano.resources import EVERYTHING, assign, greater_relevant, less_equal, share_of, vector
from gangline.baselines.volcano.state import MAX_DEPTH, Kind, Point
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import MAX_RESOURCES, NONE, PodState


@helper
def is_running(w: Any, k: Any, p: int) -> bool:
    """Whether a pod is bound and was not evicted in this session."""
    return w.pods[p].state == PodState.BOUND and k.evicted[p] != k.session and k.jobs[w.pods[p].job].is_in


@helper
def add_candidate(k: Any, p: int) -> None:
    """Note a pod as a candidate; those beyond the table are not weighed."""
    if k.num_candidates < len(k.candidates):
        k.candidates[k.num_candidates] = p
        k.num_candidates += 1


@helper
def sort_candidates(w: Any, k: Any, queue: int) -> None:
    """Into victim order, for a task of `queue` (NONE = none)."""
    for i in range(1, k.num_candidates):
        p = k.candidates[i]
        j = i
        while j > 0 and victim_less(w, k, queue, p, k.candidates[j - 1]):
            k.candidates[j] = k.candidates[j - 1]
            j -= 1
        k.candidates[j] = p


@helper
def victim_less(w: Any, k: Any, queue: int, a: int, b: int) -> bool:
    """Who is evicted first: lowest priority, latest created."""
    slot_a, slot_b = w.pods[a].job, w.pods[b].job
    if slot_a != slot_b:
        queue_a, queue_b = k.jobs[slot_a].queue, k.jobs[slot_b].queue
        if queue_a != queue_b:
            return queue_is_hit_first(w, k, queue, queue_a, queue_b)
        found = compare_jobs(w, k, slot_b, slot_a)
        if found != 0:
            return found < 0
    set_a, set_b = w.pods[a].pod_set, w.pods[b].pod_set
    by_priority = has_task_priority(k)
    if task_less(k, set_b, k.place[b], set_a, k.place[a], by_priority):
        return True
    if task_less(k, set_a, k.place[a], set_b, k.place[b], by_priority):
        return False
    return w.pods[a].serial > w.pods[b].serial


@helper
def queue_is_hit_first(w: Any, k: Any, queue: int, a: int, b: int) -> bool:
    """Whether pods of queue `a` are evicted before those of `b`, for a task of `queue` (NONE = none)."""
    found = _compare_victim_queues(k, queue, a, b)
    return found < 0 if found != 0 else queue_less(w, k, b, a)


@helper
def _compare_victim_queues(k: Any, queue: int, a: int, b: int) -> int:
    """capacity: queues that share the deeper ancestor with the reclaimer first."""
    if queue == NONE or not k.hierarchy:
        return 0
    return sign(_shared_depth(k, queue, b), _shared_depth(k, queue, a))


@helper
def _shared_depth(k: Any, a: int, b: int) -> int:
    """Depth of the last common ancestor."""
    at = a
    while at != NONE and not is_above(k, at, b):
        at = k.queues[at].parent
    depth = 0
    while at != NONE:
        depth += 1
        at = k.queues[at].parent
    return depth


@helper
def choose_victims(w: Any, k: Any, point: int, slot: int, ps: int) -> None:
    """Of the candidates, in their order, those that the plugins give up for a task, into `k.victims`."""
    for i in range(k.num_plugins):
        k.votes[i] = 0
        if is_on(k, i, point):
            if point == Point.PREEMPTABLE:
                k.votes[i] = _vote_preemptable(w, k, i, slot, ps)
            else:
                k.votes[i] = _vote_reclaimable(w, k, i, slot, ps)
    combine_votes(k)
    k.num_victims = 0
    for c in range(k.num_candidates):
        if k.is_victim[c] != 0:
            k.victims[k.num_victims] = k.candidates[c]
            k.num_victims += 1


@helper
def choose_evictable(w: Any, k: Any, slot: int, reclaims: bool) -> None:
    """Of the candidates, in their order, those that the plugins give up for a whole gang; marked in `k.is_victim`.

    gang permits all, since bundles keep gangs whole. The enable switches do not matter.
    """
    for i in range(k.num_plugins):
        kind = k.plugins[i].kind
        k.votes[i] = 1 if kind == Kind.GANG or kind == Kind.PRIORITY or kind == Kind.CAPACITY else 0
        if kind == Kind.CAPACITY and reclaims:
            _allow_beyond_deserved(w, k, i)
        elif k.votes[i] != 0:
            for c in range(k.num_candidates):
                victim = w.pods[k.candidates[c]].job
                is_lower = w.jobs[victim].priority < w.jobs[slot].priority
                k.allowed[i, c] = kind != Kind.PRIORITY or reclaims or is_lower
    combine_votes(k)


@helper
def combine_votes(k: Any) -> None:
    """Tier by tier: intersect what the voting plugins allow. An empty answer sends the question to the next tier, and
    an intersection that comes out empty is overwritten by the next plugin of the same tier (T1).
    """
    for c in range(k.num_candidates):
        k.is_victim[c] = 0
    i = 0
    while i < k.num_plugins:
        tier = k.plugins[i].tier
        is_set = False
        has_given_up = False
        while i < k.num_plugins and k.plugins[i].tier == tier:
            if k.votes[i] != 0 and not has_given_up:
                count = 0
                left = 0
                for c in range(k.num_candidates):
                    allowed = k.allowed[i, c] != 0
                    count += allowed
                    left += allowed and (k.is_victim[c] != 0 or not is_set)
                if count == 0:
                    has_given_up = True
                    is_set = False
                else:
                    for c in range(k.num_candidates):
                        k.is_victim[c] = k.allowed[i, c] != 0 and (k.is_victim[c] != 0 or not is_set)
                    is_set = left > 0
            i += 1
        if is_set:
            return
        for c in range(k.num_candidates):
            k.is_victim[c] = 0


# ---------------------------------------------------------------------------------------------------------------
# What the plugins allow
# ---------------------------------------------------------------------------------------------------------------


@helper
def _vote_preemptable(w: Any, k: Any, i: int, slot: int, ps: int) -> int:
    kind = k.plugins[i].kind
    if kind == Kind.GANG:
        _allow_gang(w, k, i)
        return 1
    if kind == Kind.CONFORMANCE:
        _allow_conformance(w, k, i)
        return 1
    if kind == Kind.PRIORITY:
        _allow_priority(w, k, i, slot, ps)
        return 1
    if kind == Kind.DRF:
        _allow_drf(w, k, i, slot, ps)
        return 1
    return 0


@helper
def _vote_reclaimable(w: Any, k: Any, i: int, slot: int, ps: int) -> int:
    kind = k.plugins[i].kind
    if kind == Kind.GANG:
        _allow_gang(w, k, i)
        return 1
    if kind == Kind.CONFORMANCE:
        _allow_conformance(w, k, i)
        return 1
    if kind == Kind.PROPORTION:
        _allow_proportion(w, k, i)
        return 1
    if kind == Kind.CAPACITY:
        _allow_capacity(w, k, i, slot, ps)
        return 1
    if kind == Kind.DRF and k.hdrf:
        _allow_hdrf(w, k, i, slot, ps)
        return 1
    return 0


@helper
def _allow_gang(w: Any, k: Any, i: int) -> None:
    """Pods that a job can lose without falling below minMember."""
    for c in range(k.num_candidates):
        slot = w.pods[k.candidates[c]].job
        k.job_left[slot] = k.jobs[slot].ready
    for c in range(k.num_candidates):
        slot = w.pods[k.candidates[c]].job
        k.allowed[i, c] = k.job_left[slot] > k.jobs[slot].min_member
        k.job_left[slot] -= k.allowed[i, c]


@helper
def _allow_conformance(w: Any, k: Any, i: int) -> None:
    """No pod of the system."""
    for c in range(k.num_candidates):
        k.allowed[i, c] = not k.sets[w.pods[k.candidates[c]].pod_set].is_critical


@helper
def _allow_priority(w: Any, k: Any, i: int, slot: int, ps: int) -> None:
    """Of other jobs, those of lower job priority; of the same job, those of lower pod priority."""
    for c in range(k.num_candidates):
        pod = w.pods[k.candidates[c]]
        if pod.job == slot:
            k.allowed[i, c] = k.sets[pod.pod_set].priority < k.sets[ps].priority
        else:
            k.allowed[i, c] = w.jobs[pod.job].priority < w.jobs[slot].priority


@helper
def _allow_drf(w: Any, k: Any, i: int, slot: int, ps: int) -> None:
    """Jobs whose share stays above the preemptor's, each less all its candidates so far, kept or not."""
    share = 0.0
    for r in range(MAX_RESOURCES):
        share = max(share, share_of(k.jobs[slot].allocated[r] + w.pod_sets[ps].request[r], k.total[r]))
    left = vector()
    for c in range(k.num_candidates):
        victim = w.pods[k.candidates[c]].job
        assign(left, k.jobs[victim].allocated)
        for other in range(c + 1):
            if w.pods[k.candidates[other]].job == victim:
                request = w.pod_sets[w.pods[k.candidates[other]].pod_set].request
                for r in range(MAX_RESOURCES):
                    left[r] -= request[r]
        rest = 0.0
        for r in range(MAX_RESOURCES):
            rest = max(rest, share_of(left[r], k.total[r]))
        k.allowed[i, c] = share < rest or abs(share - rest) <= SHARE_DELTA


@helper
def _allow_hdrf(w: Any, k: Any, i: int, slot: int, ps: int) -> None:
    """Pods whose queue's path stays behind the reclaimer's once the task is in and the pod is out."""
    for c in range(k.num_candidates):
        victim = w.pods[k.candidates[c]].job
        given = w.pod_sets[w.pods[k.candidates[c]].pod_set].request
        _shift(k, slot, w.pod_sets[ps].request, 1)
        _shift(k, victim, given, -1)
        build_tree(w, k)
        k.allowed[i, c] = _path_less(k, k.jobs[slot].queue, k.jobs[victim].queue)
        _shift(k, victim, given, 1)
        _shift(k, slot, w.pod_sets[ps].request, -1)


@helper
def _shift(k: Any, slot: int, request: Any, pods: int) -> None:
    job = k.jobs[slot]
    job.share = 0.0
    for r in range(MAX_RESOURCES):
        job.allocated[r] += pods * request[r]
        job.share = max(job.share, share_of(job.allocated[r], k.total[r]))


@helper
def _path_less(k: Any, a: int, b: int) -> bool:
    """Whether a queue comes before another in the tree as it is built now."""
    for depth in range(1, MAX_DEPTH):
        i, j = k.queues[a].path[depth], k.queues[b].path[depth]
        if i == NONE or j == NONE:
            return False
        left, right = k.tree[i], k.tree[j]
        if left.is_saturated != right.is_saturated:
            return right.is_saturated
        if left.share / left.weight != right.share / right.weight:
            return left.share / left.weight < right.share / right.weight
    return False


@helper
def _start_queues(w: Any, k: Any) -> None:
    """What is left of the queues of the candidates, before any of them goes."""
    for c in range(k.num_candidates):
        q = k.jobs[w.pods[k.candidates[c]].job].queue
        while q != NONE:
            assign(k.queue_left[q], k.queues[q].allocated)
            q = k.queues[q].parent if k.hierarchy else NONE


@helper
def _allow_proportion(w: Any, k: Any, i: int) -> None:
    """Pods of queues that are above what they deserve in some dimension (T8), one after another."""
    _start_queues(w, k)
    for c in range(k.num_candidates):
        pod = w.pods[k.candidates[c]]
        q = k.jobs[pod.job].queue
        left = k.queue_left[q]
        k.allowed[i, c] = not less_equal(k, left, EVERYTHING, k.queues[q].deserved[PROPORTION], EVERYTHING, False)
        if k.allowed[i, c] != 0:
            for r in range(MAX_RESOURCES):
                left[r] -= w.pod_sets[pod.pod_set].request[r]


@helper
def _allow_capacity(w: Any, k: Any, i: int, slot: int, ps: int) -> None:
    """Pods that hold something of what is asked for, of queues above what they deserve of it, guarantees kept."""
    _start_queues(w, k)
    for c in range(k.num_candidates):
        pod = w.pods[k.candidates[c]]
        q = k.jobs[pod.job].queue
        k.allowed[i, c] = not k.is_broken and _may_reclaim(w, k, slot, ps, pod.pod_set, q)
        if k.allowed[i, c] != 0:
            while q != NONE:
                for r in range(MAX_RESOURCES):
                    k.queue_left[q, r] -= w.pod_sets[pod.pod_set].request[r]
                q = k.queues[q].parent if k.hierarchy else NONE


@helper
def _allow_beyond_deserved(w: Any, k: Any, i: int) -> None:
    """capacity, for gangreclaim: of queues above what they deserve, guarantees kept. Ancestors are not asked."""
    _start_queues(w, k)
    for c in range(k.num_candidates):
        pod_set = w.pod_sets[w.pods[k.candidates[c]].pod_set]
        q = k.jobs[w.pods[k.candidates[c]].job].queue
        k.allowed[i, c] = (
            not k.is_broken
            and _keeps_guarantee(k, q, pod_set.request)
            and (
                not _shares_dimension(k, pod_set.request, k.queues[q].deserved[CAPACITY])
                or _is_above_deserved(k, q, pod_set.request, pod_set.asked)
            )
        )
        if k.allowed[i, c] != 0:
            for r in range(MAX_RESOURCES):
                k.queue_left[q, r] -= pod_set.request[r]


@helper
def _keeps_guarantee(k: Any, q: int, given: Any) -> bool:
    """Whether what a queue is guaranteed is still there once a pod is gone."""
    left = vector()
    for r in range(MAX_RESOURCES):
        left[r] = k.queue_left[q, r] - given[r]
    return less_equal(k, k.queues[q].guarantee, EVERYTHING, left, EVERYTHING, False)


@helper
def _may_reclaim(w: Any, k: Any, slot: int, ps: int, victim_set: int, q: int) -> bool:
    wanted = w.pod_sets[ps].request
    given = w.pod_sets[victim_set].request
    asked = w.pod_sets[victim_set].asked
    has_common = False
    for r in range(MAX_RESOURCES):
        has_common = has_common or (r != k.pods and wanted[r] > 0 and given[r] > 0)
    if not has_common:
        return False
    if not _keeps_guarantee(k, q, given):
        return False
    reclaimer = k.jobs[slot].queue
    is_immediate = not _shares_dimension(k, given, k.queues[q].deserved[CAPACITY])
    if is_immediate and k.hierarchy and k.reclaim_level > 0:
        shares_ancestor = below_common(k, q, reclaimer) != NONE and _shared_depth(k, q, reclaimer) > 1
        if shares_ancestor and not _shares_dimension(k, wanted, k.queues[reclaimer].deserved[CAPACITY]):
            return False
    if not is_immediate and not _is_above_deserved(k, q, given, asked):
        return False
    mine = reclaimer
    at = q
    for _ in range(k.reclaim_level if k.hierarchy else 0):
        mine = k.queues[mine].parent if mine != NONE else NONE
        at = k.queues[at].parent
        if at in (NONE, mine) or at == k.root:
            break
        if _shares_dimension(k, given, k.queues[at].deserved[CAPACITY]) and not _is_above_deserved(k, at, given, asked):
            return False
    return True


@helper
def _is_above_deserved(k: Any, q: int, given: Any, asked: int) -> bool:
    queue = k.queues[q]
    deserved = queue.deserved[CAPACITY]
    has = queue.deserved_has[CAPACITY]
    return greater_relevant(k, k.queue_left[q], EVERYTHING, deserved, has, given, asked) != 0


@helper
def _shares_dimension(k: Any, request: Any, amounts: Any) -> bool:
    """Whether two vectors have a dimension, other than pods, of which both have something."""
    found = False
    for r in range(MAX_RESOURCES):
        found = found or (r != k.pods and request[r] > 0 and amounts[r] > 0)
    return found
