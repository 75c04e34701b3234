"""Whom to preempt: classical preemption within a ClusterQueue and through the cohort tree.

Source: Kueue pkg/scheduler/preemption/preemption.go and classical/; spec/kueue.md section 6.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.kueue.fair_sharing import collect_borrowers, fair_targets
from gangline.baselines.kueue.snapshot import is_within_nominal
from gangline.baselines.kueue.state import Policy, Reason, Variant
from gangline.baselines.kueue.victims import (
    add_target,
    collect,
    collect_own,
    fill_back,
    preemptor_fits,
    put_targets_back,
    sort_candidates,
)
from gangline.envs.core.compiled import helper
from gangline.envs.core.quota import local_available
from gangline.envs.core.types import NONE


@helper
def find_targets(w: Any, k: Any, entry: Any, cells: int) -> int:
    """Append to `k.targets` the workloads to preempt so that `k.wanted` fits; returns how many, 0 if nothing helps.

    Args:
        cells: mask of the (flavor, resource) pairs that need preemption.
    """
    k.num_candidates = 0
    if k.fair_sharing:
        collect_own(w, k, entry, cells)
        collect_borrowers(w, k, entry, cells)
        sort_candidates(w, k, entry.queue)
        return fair_targets(w, k, entry, cells)
    collect_own(w, k, entry, cells)
    num_own = k.num_candidates
    has_hierarchical = _collect_hierarchical(w, k, entry, cells)
    if k.num_candidates == 0:
        return 0
    sort_candidates(w, k, entry.queue)
    forbids_borrowing = not k.queues[entry.queue].borrow_within_cohort
    if k.num_candidates == num_own or (forbids_borrowing and not _is_under_nominal(w, entry.queue, cells)):
        return _greedy(w, k, entry, cells, True)
    borrows_first = not (forbids_borrowing and not has_hierarchical)
    count = _greedy(w, k, entry, cells, borrows_first)
    if count == 0:
        count = _greedy(w, k, entry, cells, not borrows_first)
    return count


@helper
def has_own_victim(k: Any, q: int, first: int) -> bool:
    """Whether some target from `first` on is of the ClusterQueue itself."""
    found = False
    for i in range(first, k.num_targets):
        found = found or k.workloads[k.targets[i].slot].queue == q
    return found


@helper
def _collect_hierarchical(w: Any, k: Any, entry: Any, cells: int) -> bool:
    """Candidates of other ClusterQueues, cohort by cohort towards the root; True if some are hierarchical.

    Where what is asked fits into the quota of the subtree below, borrowers outside it have to give way whatever their
    priority (the policy permitting): hierarchical candidates. Source: collectCandidatesForHierarchicalReclaim.
    """
    q = entry.queue
    policy = k.queues[q].reclaim_within_cohort
    if policy == Policy.NEVER or w.queues[q].parent == NONE:
        return False
    has_advantage = True
    for cell in range(w.num_cells):
        if (k.wanted_cells >> cell) & 1:
            if w.queues[q].usage[cell] + k.wanted[cell] > w.queues[q].subtree[cell]:
                has_advantage = False
            k.rest[cell] = max(0, k.wanted[cell] - local_available(w.queues[q], cell))
    found = False
    below = q
    c = w.queues[q].parent
    while c != NONE:
        first = k.num_candidates
        variant = Variant.HIERARCHICAL_RECLAIM if has_advantage else Variant.RECLAIM_WITHOUT_BORROWING
        for other in range(w.num_queues):
            if k.queues[other].first_reserved != NONE and _is_borrowing_branch(w, other, c, below, cells):
                collect(w, k, entry, other, cells, policy, variant, c)
        found = found or (has_advantage and k.num_candidates > first)
        fits_here = True
        for cell in range(w.num_cells):
            if (k.wanted_cells >> cell) & 1:
                if w.queues[c].usage[cell] + k.rest[cell] > w.queues[c].subtree[cell]:
                    fits_here = False
                k.rest[cell] = max(0, k.rest[cell] - local_available(w.queues[c], cell))
        has_advantage = has_advantage or fits_here
        below = c
        c = w.queues[c].parent
    return found


@helper
def _is_borrowing_branch(w: Any, q: int, top: int, below: int, cells: int) -> bool:
    """Whether a ClusterQueue hangs under `top`, not under `below`, and no node on the way is within nominal."""
    at = q
    while at != NONE and at != top:
        if at == below or is_within_nominal(w, at, cells):
            return False
        at = w.queues[at].parent
    return at == top


@helper
def _is_under_nominal(w: Any, q: int, cells: int) -> bool:
    """Whether a ClusterQueue uses less than its nominal quota of every cell."""
    for cell in range(w.num_cells):
        if (cells >> cell) & 1 and w.queues[q].usage[cell] >= w.queues[q].nominal[cell]:
            return False
    return True


@helper
def _greedy(w: Any, k: Any, entry: Any, cells: int, may_borrow: bool) -> int:
    """Remove candidates in order until the preemptor fits, then put back whom it does not need; 0 if it never fits."""
    first = k.num_targets
    for i in range(k.num_candidates):
        candidate = k.candidates[k.sorted[i]]
        if not _is_valid(w, k, entry.queue, candidate, cells, may_borrow):
            continue
        if not add_target(w, k, candidate.slot, reason_of(candidate.variant)):
            break
        if preemptor_fits(w, k, entry, may_borrow):
            fill_back(w, k, entry, first, may_borrow)
            put_targets_back(w, k, first)
            return k.num_targets - first
    put_targets_back(w, k, first)
    k.num_targets = first
    return 0


@helper
def _is_valid(w: Any, k: Any, own: int, candidate: Any, cells: int, may_borrow: bool) -> bool:
    """Whether a candidate may still be taken: its branch must borrow at this moment. Source: candidateIsValid."""
    q = k.workloads[candidate.slot].queue
    if q == own:
        return True
    if may_borrow and candidate.variant == Variant.RECLAIM_WITHOUT_BORROWING:
        return False
    at = q
    while at != NONE and at != candidate.lca:
        if is_within_nominal(w, at, cells):
            return False
        at = w.queues[at].parent
    return True


@helper
def reason_of(variant: int) -> int:
    """What Kueue reports for a variant."""
    if variant == Variant.WITHIN_CQ:
        return Reason.IN_CLUSTER_QUEUE
    if variant == Variant.RECLAIM_WHILE_BORROWING:
        return Reason.IN_COHORT_RECLAIM_WHILE_BORROWING
    return Reason.IN_COHORT_RECLAMATION
