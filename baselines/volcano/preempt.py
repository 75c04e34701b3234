"""The actions preempt (same queue), reclaim (other queues) and shuffle.

Source: volcano-sh/volcano pkg/scheduler/actions/{preempt,reclaim,shuffle}.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.volcano.gang import is_on, job_pipelined, job_starving, job_valid
from gangline.baselines.volcano.nodes import find_quota, fits_future, predicates_pass, score_nodes
from gangline.baselines.volcano.orders import (
    clear_heaps,
    next_task,
    pop_job,
    pop_queue,
    push_job,
    push_queue,
    start_tasks,
)
from gangline.baselines.volcano.queues import allocatable, overused, preemptive
from gangline.baselines.volcano.resources import copy_of, vector
from gangline.baselines.volcano.state import Kind, Phase, Point, Status
from gangline.baselines.volcano.statement import commit, discard, evict, place
from gangline.baselines.volcano.victims import add_candidate, choose_victims, is_running, sort_candidates
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import MAX_RESOURCES, NONE

SHIFT = 1 << 31  # keeps sums of negative priorities positive


@helper
def preempt_action(w: Any, k: Any, out: Any) -> None:
    """Starving jobs push out pods of their own queue: first of other jobs, then of themselves."""
    for q in queues_of_starving(w, k, True):
        first = k.num_list
        while k.queues[q].size > 0:
            slot = pop_job(w, k, q)
            k.list[k.num_list] = slot
            k.num_list += 1
            _preempt_for_job(w, k, slot, out)
        for i in range(first, k.num_list):
            _preempt_within_job(w, k, k.list[i], out)


@helper
def queues_of_starving(w: Any, k: Any, skips_topology: bool) -> Any:
    """Starving jobs into the heaps of their queues; the queues in queue order."""
    clear_heaps(w, k)
    k.num_list = 0
    for slot in range(w.jobs_used):
        job = k.jobs[slot]
        if not job.is_in or job.phase == Phase.PENDING or job.pending + job.pending_best_effort == 0:
            continue
        if skips_topology and (job.has_wish or job.num_policies > 0):  # T12
            continue
        if job_valid(w, k, slot) and job_starving(w, k, slot):
            find_quota(w, k, slot)
            push_job(w, k, slot)
    for q in range(k.num_queues):
        if k.queues[q].size > 0:
            push_queue(w, k, q)
    order = k.queue_order
    count = 0
    while k.num_queue_heap > 0:
        order[count] = pop_queue(w, k)
        count += 1
    return order[:count]


@helper
def first_task(w: Any, k: Any, slot: int) -> int:
    """First pending task that was not passed over, best-effort ones too; NONE."""
    ps = next_task(w, k, slot, NONE, False)
    return ps if ps != NONE else next_task(w, k, slot, NONE, True)


@helper
def _preempt_for_job(w: Any, k: Any, slot: int, out: Any) -> None:
    """One statement for a job: tasks one after another while it starves; kept if it is pipelined then (T19)."""
    start = k.num_ops
    start_tasks(w, k, slot)
    while job_starving(w, k, slot):
        ps = first_task(w, k, slot)
        if ps == NONE:
            break
        if not _preempt_for_task(w, k, slot, ps, False):
            k.sets[ps].skipped += 1
    if k.num_ops > start and job_pipelined(w, k, slot):
        commit(w, k, start, out)
    else:
        discard(w, k, start)


@helper
def _preempt_within_job(w: Any, k: Any, slot: int, out: Any) -> None:
    """Task against task of one job; each success commits alone."""
    start_tasks(w, k, slot)
    while job_starving(w, k, slot):
        ps = first_task(w, k, slot)
        start = k.num_ops
        if ps == NONE or not _preempt_for_task(w, k, slot, ps, True):
            return
        if k.num_ops > start:
            commit(w, k, start, out)


@helper
def _preempt_for_task(w: Any, k: Any, slot: int, ps: int, within: bool) -> bool:
    """Find a node where a task fits once victims are gone, best score first."""
    if k.sets[ps].never_preempts:
        return False
    count = 0
    for n in range(w.num_nodes):  # room and pod slots are what an eviction can give
        if predicates_pass(w, k, ps, n, False):
            k.feasible[count] = n
            count += 1
    if k.topology_aware_preemption:
        return _preempt_by_dry_runs(w, k, slot, ps, within, count)
    score_nodes(w, k, slot, ps, 0, count)
    for i in range(1, count):  # by descending score, then as they stand
        n = k.feasible[i]
        j = i
        while j > 0 and k.score[k.feasible[j - 1]] < k.score[n]:
            k.feasible[j] = k.feasible[j - 1]
            j -= 1
        k.feasible[j] = n
    i = 0
    while i < count and not _preempt_on_node(w, k, slot, ps, k.feasible[i], within):
        i += 1
    return i < count


@helper
def _find_victims(w: Any, k: Any, slot: int, ps: int, n: int, within: bool) -> None:
    """Preemptable pods of the queue on a node: of other jobs, or of the same."""
    k.num_candidates = 0
    at = w.nodes[n].first_pod
    while at != NONE:
        pod = w.pods[at]
        s = k.sets[pod.pod_set]
        is_other = k.jobs[pod.job].queue != k.jobs[slot].queue or (pod.job == slot) != within
        is_better = k.sets[ps].is_best_effort and not s.is_best_effort
        if is_running(w, k, at) and s.is_preemptable and not is_other and not is_better:
            add_candidate(k, at)
        at = pod.next_on_node
    sort_candidates(w, k, k.jobs[slot].queue)
    choose_victims(w, k, Point.PREEMPTABLE, slot, ps)


@helper
def _fits_with(w: Any, k: Any, ps: int, n: int) -> bool:
    """Whether a task fits on a node once all of `k.victims` are gone."""
    freed = vector()
    for i in range(k.num_victims):
        for r in range(MAX_RESOURCES):
            freed[r] += w.pods[k.victims[i]].held[r]
    return fits_future(w, k, ps, n, freed)


@helper
def _fits_here(w: Any, k: Any, slot: int, ps: int, n: int) -> bool:
    """Its queue may take it, and the node will have room, and passes."""
    nothing = vector()
    if not allocatable(w, k, k.jobs[slot].queue, ps) or not fits_future(w, k, ps, n, nothing):
        return False
    return predicates_pass(w, k, ps, n, True)


@helper
def _preempt_on_node(w: Any, k: Any, slot: int, ps: int, n: int, within: bool) -> bool:
    """Evict victim after victim until the task fits; nothing is evicted if it never does."""
    _find_victims(w, k, slot, ps, n, within)
    if not _fits_with(w, k, ps, n):
        return False
    start = k.num_ops
    i = 0
    while not _fits_here(w, k, slot, ps, n):
        if i == k.num_victims or not evict(w, k, k.victims[i]):
            discard(w, k, start)
            return False
        i += 1
    if place(w, k, slot, ps, n, Status.PIPELINED):
        return True
    discard(w, k, start)
    return False


@helper
def _preempt_by_dry_runs(w: Any, k: Any, slot: int, ps: int, within: bool, count: int) -> bool:
    """Topology-aware mode: on each candidate node evict until it fits, reprieve the highest; the cheapest node wins.

    Volcano begins at a random node; here the search begins at the first.
    """
    wanted = min(max(count // 10, 1), 100)
    best = NONE
    best_highest = 0
    best_sum = 0
    best_count = 0
    best_start = 0
    found = 0
    for i in range(count):
        if found >= wanted and best != NONE:
            break
        n = k.feasible[i]
        start = k.num_ops
        if _dry_run(w, k, slot, ps, n, within):
            found += 1
            highest = -(1 << 62)
            total = 0
            earliest = 1 << 62
            number = 0
            for v in range(start, k.num_ops):
                s = k.sets[k.ops[v].pod_set]
                priority = s.priority if s.has_priority else 0  # here a pod without one counts as 0 (T15)
                highest = max(highest, priority)
                total += priority + SHIFT
                number += 1
            for v in range(start, k.num_ops):
                s = k.sets[k.ops[v].pod_set]
                if (s.priority if s.has_priority else 0) == highest:
                    earliest = min(earliest, w.jobs[k.ops[v].slot].start_ms)
            is_better = best == NONE or highest < best_highest
            if not is_better and highest == best_highest:
                is_better = total < best_sum
                if total == best_sum:
                    is_better = number < best_count or (number == best_count and earliest > best_start)
            if is_better:
                best = n
                best_highest, best_sum, best_count, best_start = highest, total, number, earliest
        discard(w, k, start)
    if best == NONE or not _dry_run(w, k, slot, ps, best, within):
        return False
    return place(w, k, slot, ps, best, Status.PIPELINED)


@helper
def _dry_run(w: Any, k: Any, slot: int, ps: int, n: int, within: bool) -> bool:
    """Evict what has to go from a node; False if the task does not fit, or nobody has to go."""
    _find_victims(w, k, slot, ps, n, within)
    if k.num_victims == 0 or not _fits_with(w, k, ps, n):
        return False
    start = k.num_ops
    taken = 0
    while taken < k.num_victims and not _fits_here(w, k, slot, ps, n):
        if not evict(w, k, k.victims[taken]):
            discard(w, k, start)
            return False
        taken += 1
    if taken == 0 or not _fits_here(w, k, slot, ps, n):
        discard(w, k, start)
        return False
    for i in range(taken - 1, -1, -1):  # reprieve: evicted last, spared first
        discard(w, k, start)
        p = k.victims[i]
        k.victims[i] = NONE
        for j in range(taken):
            if k.victims[j] != NONE:
                evict(w, k, k.victims[j])
        if not _fits_here(w, k, slot, ps, n):
            k.victims[i] = p
    discard(w, k, start)
    for j in range(taken):
        if k.victims[j] != NONE:
            evict(w, k, k.victims[j])
    return k.num_ops > start


# ---------------------------------------------------------------------------------------------------------------
# reclaim
# ---------------------------------------------------------------------------------------------------------------


@helper
def reclaim_action(w: Any, k: Any, out: Any) -> None:
    """Starving jobs take back what other queues hold beyond what they deserve."""
    for q in queues_of_starving(w, k, False):
        if overused(k, q):
            continue
        while k.queues[q].size > 0:
            slot = pop_job(w, k, q)
            start = k.num_ops
            start_tasks(w, k, slot)
            while job_starving(w, k, slot):
                ps = first_task(w, k, slot)
                if ps == NONE:
                    break
                if (
                    k.sets[ps].never_preempts
                    or not preemptive(k, q, copy_of(w.pod_sets[ps].request), w.pod_sets[ps].asked)
                    or not _reclaim_for_task(w, k, slot, ps)
                ):
                    k.sets[ps].skipped += 1
            if k.num_ops > start and job_pipelined(w, k, slot):
                commit(w, k, start, out)
            else:
                discard(w, k, start)


@helper
def _reclaim_for_task(w: Any, k: Any, slot: int, ps: int) -> bool:
    """Nodes as they stand (T11): the first where somebody may go and that suffices, even if it does without."""
    nothing = vector()
    for n in range(w.num_nodes):
        if not predicates_pass(w, k, ps, n, False):
            continue
        k.num_candidates = 0
        at = w.nodes[n].first_pod
        while at != NONE:
            pod = w.pods[at]
            q = k.jobs[pod.job].queue
            is_lent = q != k.jobs[slot].queue and k.queues[q].is_reclaimable
            if is_lent and is_running(w, k, at) and k.sets[pod.pod_set].is_preemptable:
                add_candidate(k, at)
            at = pod.next_on_node
        if k.num_candidates == 0:
            continue
        sort_candidates(w, k, k.jobs[slot].queue)
        choose_victims(w, k, Point.RECLAIMABLE, slot, ps)
        if not _fits_with(w, k, ps, n):
            continue
        start = k.num_ops
        i = 0
        while i < k.num_victims and not fits_future(w, k, ps, n, nothing):
            if not evict(w, k, k.victims[i]):
                break
            i += 1
        if fits_future(w, k, ps, n, nothing) and place(w, k, slot, ps, n, Status.PIPELINED):
            return True
        discard(w, k, start)
    return False


# ---------------------------------------------------------------------------------------------------------------
# shuffle
# ---------------------------------------------------------------------------------------------------------------


@helper
def shuffle_action(w: Any, k: Any, out: Any) -> None:
    """Evict the running pods that plugins hand in."""
    start = k.num_ops
    for i in range(k.num_plugins):
        if k.plugins[i].kind != Kind.PRIORITY_VICTIMS or not is_on(k, i, Point.VICTIM):
            continue
        for slot in range(w.jobs_used):
            if not k.jobs[slot].is_in:
                continue
            at = w.jobs[slot].first_pod
            while at != NONE:
                if is_running(w, k, at) and k.sets[w.pods[at].pod_set].priority == k.shuffled_priority:
                    evict(w, k, at)
                at = w.pods[at].next
    commit(w, k, start, out)
