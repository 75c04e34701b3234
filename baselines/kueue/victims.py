"""Candidates for preemption, their order, and taking them off the quota tree and putting them back.

What classical preemption and fair sharing have in common.
Source: Kueue pkg/scheduler/preemption/common, preemption.go.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.kueue.admission_fair_sharing import local_queue_usage
from gangline.baselines.kueue.snapshot import fits, holds_quota, move_workload, was_preempted_now
from gangline.baselines.kueue.state import Policy, Variant
from gangline.baselines.kueue.tas import topology_fits
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NONE


@helper
def _satisfies(w: Any, k: Any, policy: int, candidate: int, preemptor: int) -> bool:
    """Whether a preemption policy allows a victim. Source: SatisfiesPreemptionPolicy."""
    if policy == Policy.NEVER:
        return False
    if policy == Policy.ANY:
        return True
    if w.jobs[candidate].priority != w.jobs[preemptor].priority:
        return w.jobs[candidate].priority < w.jobs[preemptor].priority
    is_newer = k.workloads[preemptor].timestamp_ms < k.workloads[candidate].timestamp_ms
    return policy == Policy.LOWER_OR_NEWER_EQUAL_PRIORITY and is_newer


@helper
def collect(w: Any, k: Any, entry: Any, q: int, cells: int, policy: int, variant: int, lca: int) -> None:
    """Add the candidates of one ClusterQueue. `variant` RECLAIM_WITHOUT_BORROWING stands for priority candidates."""
    at = k.queues[q].first_reserved
    while at != NONE:
        slot = at
        at = k.workloads[at].next
        if (
            (was_preempted_now(w, k, slot) and not k.workloads[slot].is_evicted)  # once at an instant is enough
            or not w.jobs[slot].preemptible
            or not holds_quota(k, slot)
            or not (k.workloads[slot].cells & cells)
        ):
            continue
        if not _satisfies(w, k, policy, slot, entry.slot) or k.num_candidates >= len(k.candidates):
            continue
        candidate = k.candidates[k.num_candidates]
        candidate.slot = slot
        candidate.variant = variant
        candidate.lca = lca
        kind = 2 if q == entry.queue else (0 if variant == Variant.HIERARCHICAL_RECLAIM else 1)
        candidate.list = kind if k.workloads[slot].is_evicted else 3 + kind
        if variant == Variant.RECLAIM_WITHOUT_BORROWING and k.queues[entry.queue].borrow_within_cohort:
            queue = k.queues[entry.queue]
            priority = w.jobs[slot].priority
            is_above = queue.has_threshold and priority > queue.max_priority_threshold
            if priority < w.jobs[entry.slot].priority and not is_above:
                candidate.variant = Variant.RECLAIM_WHILE_BORROWING
        k.sorted[k.num_candidates] = k.num_candidates
        k.num_candidates += 1


@helper
def collect_own(w: Any, k: Any, entry: Any, cells: int) -> None:
    """Candidates of the preemptor's own ClusterQueue."""
    policy = k.queues[entry.queue].within_cluster_queue
    if policy != Policy.NEVER:
        collect(w, k, entry, entry.queue, cells, policy, Variant.WITHIN_CQ, NONE)


@helper
def candidate_precedes(w: Any, k: Any, own: int, a: int, b: int) -> bool:
    """Order of candidates, first victim first. Source: CandidatesOrdering; the lists of hierarchical preemption."""
    one = k.candidates[a]
    two = k.candidates[b]
    if k.fair_sharing:
        if k.workloads[one.slot].is_evicted != k.workloads[two.slot].is_evicted:
            return k.workloads[one.slot].is_evicted
        if (k.workloads[one.slot].queue == own) != (k.workloads[two.slot].queue == own):
            return k.workloads[two.slot].queue == own
    elif one.list != two.list:
        return one.list < two.list
    first = k.workloads[one.slot]
    second = k.workloads[two.slot]
    is_shared = first.queue == second.queue and first.local_queue != second.local_queue
    if k.fair_admission and is_shared and k.queues[first.queue].is_usage_based:
        usage = local_queue_usage(w, k, first.local_queue)
        other = local_queue_usage(w, k, second.local_queue)
        if usage != other:
            return usage > other
    if w.jobs[one.slot].priority != w.jobs[two.slot].priority:
        return w.jobs[one.slot].priority < w.jobs[two.slot].priority
    if first.reserved_ms != second.reserved_ms:
        return first.reserved_ms > second.reserved_ms
    return first.uid_rank < second.uid_rank


@helper
def sort_candidates(w: Any, k: Any, own: int) -> None:
    """Put `k.sorted` in order (Shell sort: few candidates, no memory)."""
    gap = k.num_candidates // 2
    while gap > 0:
        for i in range(gap, k.num_candidates):
            moving = k.sorted[i]
            j = i
            while j >= gap and candidate_precedes(w, k, own, moving, k.sorted[j - gap]):
                k.sorted[j] = k.sorted[j - gap]
                j -= gap
            k.sorted[j] = moving
        gap //= 2


@helper
def preemptor_fits(w: Any, k: Any, entry: Any, may_borrow: bool) -> bool:
    """Whether what is wanted fits on the tree, and in the topology, as victims have left them."""
    return fits(w, entry.queue, k.wanted, k.wanted_cells, may_borrow) and topology_fits(w, k, entry)


@helper
def add_target(w: Any, k: Any, slot: int, reason: int) -> bool:
    """Take a victim off the tree and note it; False if there is no room for more."""
    if k.num_targets >= len(k.targets):
        return False
    move_workload(w, k, slot, -1)
    k.targets[k.num_targets].slot = slot
    k.targets[k.num_targets].reason = reason
    k.num_targets += 1
    return True


@helper
def fill_back(w: Any, k: Any, entry: Any, first: int, may_borrow: bool) -> None:
    """Put victims back, the last but one first, if the preemptor fits without them. Source: fillBackWorkloads."""
    for i in range(k.num_targets - 2, first - 1, -1):
        slot = k.targets[i].slot
        move_workload(w, k, slot, 1)
        if preemptor_fits(w, k, entry, may_borrow):
            k.num_targets -= 1
            k.targets[i] = k.targets[k.num_targets]
        else:
            move_workload(w, k, slot, -1)


@helper
def put_targets_back(w: Any, k: Any, first: int) -> None:
    """Put all victims from `first` on back on the tree."""
    for i in range(first, k.num_targets):
        move_workload(w, k, k.targets[i].slot, 1)


@helper
def want_usage(w: Any, k: Any, entry: Any) -> None:
    """Make an entry's whole usage what the search for victims wants."""
    k.wanted_cells = entry.cells
    k.wants_topology = True
    for cell in range(w.num_cells):
        k.wanted[cell] = entry.usage[cell]
