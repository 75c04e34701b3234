"""Fair sharing: dominant resource shares, preemption by them, and the tournament that orders a cycle.

Source: Kueue pkg/cache/scheduler/fair_sharing.go, pkg/scheduler/preemption/fairsharing/,
pkg/scheduler/fair_sharing_iterator.go; spec/kueue.md section 8.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.kueue.snapshot import is_within_nominal, move_entry, move_workload
from gangline.baselines.kueue.state import Policy, Reason, Strategy, Variant
from gangline.baselines.kueue.victims import (
    add_target,
    candidate_precedes,
    collect,
    fill_back,
    preemptor_fits,
    put_targets_back,
)
from gangline.envs.core.compiled import helper
from gangline.envs.core.quota import potential
from gangline.envs.core.types import NEVER, NONE

UNLIMITED_SHARE = float(2**63 - 1)  # what an unlimited amount to lend counts as

# ---------------------------------------------------------------------------------------------------------------
# Shares
# ---------------------------------------------------------------------------------------------------------------


@helper
def dominant_share(w: Any, q: int) -> tuple[float, bool, bool, int]:
    """Dominant resource share of a ClusterQueue or cohort: what it borrows of what its parent could lend, in
    thousandths, over its weight.

    Returns: the share; whether it is infinite (weight 0: the first number then is without weight); whether the node
        borrows anything; the dominant resource, NONE.
    """
    queue = w.queues[q]
    is_borrowing = False
    most = 0.0
    dominant = NONE
    for r in range(w.params.num_resources):
        borrowed = 0
        for cell in range(w.num_cells):
            if w.cell_resource[cell] == r:
                borrowed += max(0, queue.usage[cell] - queue.subtree[cell])
        if borrowed == 0:
            continue
        is_borrowing = True
        lendable = 0.0
        if queue.parent != NONE:
            for cell in range(w.num_cells):
                if w.cell_resource[cell] == r:
                    part = potential(w, queue.parent, cell)
                    lendable += UNLIMITED_SHARE if part >= NEVER // 8 else float(part)
        ratio = borrowed * 1000.0 / min(lendable, UNLIMITED_SHARE) if lendable > 0 else 0.0
        if ratio > most:
            most = ratio
            dominant = r
    if queue.parent == NONE or most == 0.0:
        return 0.0, False, is_borrowing and queue.parent != NONE, NONE
    if queue.weight == 0:
        return most, True, is_borrowing, dominant
    return most / (queue.weight / 1000.0), False, is_borrowing, dominant


@helper
def compare_shares(a: float, a_is_infinite: bool, b: float, b_is_infinite: bool) -> int:
    """-1, 0 or 1: infinite shares are above all others, and compared by their part without weight."""
    if a_is_infinite != b_is_infinite:
        return 1 if a_is_infinite else -1
    return (a > b) - (a < b)


# ---------------------------------------------------------------------------------------------------------------
# Preemption
# ---------------------------------------------------------------------------------------------------------------


@helper
def collect_borrowers(w: Any, k: Any, entry: Any, cells: int) -> None:
    """Candidates for fair sharing: of every ClusterQueue of the tree that borrows now."""
    q = entry.queue
    policy = k.queues[q].reclaim_within_cohort
    if policy == Policy.NEVER or w.queues[q].parent == NONE:
        return
    for other in range(w.num_queues):
        if other == q or k.queues[other].root != k.queues[q].root or k.queues[other].first_reserved == NONE:
            continue
        if not is_within_nominal(w, other, cells):
            collect(w, k, entry, other, cells, policy, Variant.RECLAIM_WITHOUT_BORROWING, NONE)


@helper
def fair_targets(w: Any, k: Any, entry: Any, cells: int) -> int:
    """Choose victims by shares, from the sorted candidates; returns how many, 0 if that does not help."""
    first = k.num_targets
    move_entry(w, entry.queue, k.wanted, 1)  # shares are those with the preemptor admitted
    _deal_candidates(w, k)
    fits = _first_pass(w, k, entry, cells)
    if not fits and k.strategies[1] != Strategy.NONE:
        fits = _second_pass(w, k, entry)
    move_entry(w, entry.queue, k.wanted, -1)
    if fits:
        fill_back(w, k, entry, first, True)
    put_targets_back(w, k, first)
    if not fits:
        k.num_targets = first
    return k.num_targets - first


@helper
def _deal_candidates(w: Any, k: Any) -> None:
    """Give each ClusterQueue the list of its candidates, in order; nothing is pruned."""
    for q in range(w.num_queues):
        k.queues[q].first_candidate = NONE
        k.queues[q].first_retry = NONE
        k.queues[q].is_pruned = False
    for i in range(k.num_candidates - 1, -1, -1):
        c = k.sorted[i]
        queue = k.queues[k.workloads[k.candidates[c].slot].queue]
        k.candidates[c].next = queue.first_candidate
        queue.first_candidate = c


@helper
def _fits_with_preemptor(w: Any, k: Any, entry: Any) -> bool:
    """The fit test, with the preemptor's own usage taken out for it."""
    move_entry(w, entry.queue, k.wanted, -1)
    fits = preemptor_fits(w, k, entry, True)
    move_entry(w, entry.queue, k.wanted, 1)
    return fits


@helper
def _first_pass(w: Any, k: Any, entry: Any, cells: int) -> bool:
    """Victims by the first strategy, until the preemptor fits. Those that fail it are kept for the second pass."""
    own = entry.queue
    takes_back = k.preempts_within_nominal and is_within_nominal(w, own, cells)  # whoever else is removed
    while True:
        q = _next_queue(w, k, own)
        if q == NONE:
            return False
        is_own = q == own
        if is_own or takes_back:
            c = _pop_candidate(k, q)
            reason = Reason.IN_CLUSTER_QUEUE if is_own else Reason.IN_COHORT_RECLAMATION
            if not add_target(w, k, k.candidates[c].slot, reason):
                return False
            if _fits_with_preemptor(w, k, entry):
                return True
            continue
        mine, theirs = _almost_lca(w, own, q)
        share, is_infinite, _, _ = dominant_share(w, mine)
        old_share, old_is_infinite, _, _ = dominant_share(w, theirs)
        while k.queues[q].first_candidate != NONE:
            c = _pop_candidate(k, q)
            slot = k.candidates[c].slot
            move_workload(w, k, slot, -1)
            new_share, new_is_infinite, _, _ = dominant_share(w, theirs)
            move_workload(w, k, slot, 1)
            if k.strategies[0] == Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE:
                is_allowed = compare_shares(share, is_infinite, new_share, new_is_infinite) <= 0
            else:
                is_allowed = compare_shares(share, is_infinite, old_share, old_is_infinite) < 0
            if is_allowed:
                if not add_target(w, k, slot, Reason.IN_COHORT_FAIR_SHARING):
                    return False
                if _fits_with_preemptor(w, k, entry):
                    return True
                break
            _keep_for_retry(k, q, c)


@helper
def _second_pass(w: Any, k: Any, entry: Any) -> bool:
    """One more victim from each ClusterQueue, by the second strategy."""
    for q in range(w.num_queues):
        k.queues[q].first_candidate = k.queues[q].first_retry
        k.queues[q].is_pruned = False
    while True:
        q = _next_queue(w, k, entry.queue)
        if q == NONE:
            return False
        mine, theirs = _almost_lca(w, entry.queue, q)
        share, is_infinite, _, _ = dominant_share(w, mine)
        old_share, old_is_infinite, _, _ = dominant_share(w, theirs)
        if compare_shares(share, is_infinite, old_share, old_is_infinite) < 0:
            c = _pop_candidate(k, q)
            if not add_target(w, k, k.candidates[c].slot, Reason.IN_COHORT_FAIR_SHARING):
                return False
            if _fits_with_preemptor(w, k, entry):
                return True
        k.queues[q].is_pruned = True


@helper
def _pop_candidate(k: Any, q: int) -> int:
    """The next candidate of a ClusterQueue."""
    c = k.queues[q].first_candidate
    k.queues[q].first_candidate = k.candidates[c].next
    return c


@helper
def _keep_for_retry(k: Any, q: int, c: int) -> None:
    """Append a candidate to the second pass's list of its ClusterQueue."""
    k.candidates[c].next = NONE
    at = k.queues[q].first_retry
    if at == NONE:
        k.queues[q].first_retry = c
        return
    while k.candidates[at].next != NONE:
        at = k.candidates[at].next
    k.candidates[at].next = c


@helper
def _next_queue(w: Any, k: Any, own: int) -> int:
    """The ClusterQueue to preempt from next: the way down from the root follows the highest share; NONE.

    Source: TargetClusterQueueOrdering.
    """
    root = k.queues[own].root
    if root == own:
        return own if k.queues[own].first_candidate != NONE and not k.queues[own].is_pruned else NONE
    while not k.queues[root].is_pruned:
        cohort = root
        while cohort != NONE:
            best_queue, best_cohort, is_cohort_higher = _highest_children(w, k, cohort, own)
            if best_queue == NONE and best_cohort == NONE:
                k.queues[cohort].is_pruned = True
                cohort = NONE
            elif best_queue != NONE and not is_cohort_higher:
                return best_queue
            else:
                cohort = best_cohort
    return NONE


@helper
def _highest_children(w: Any, k: Any, cohort: int, own: int) -> tuple[int, int, bool]:
    """Child ClusterQueue and child cohort with the highest shares (NONE), and whether the cohort's is not below."""
    best_queue = NONE
    queue_share = -1.0
    queue_is_infinite = False
    best_cohort = NONE
    cohort_share = -1.0
    cohort_is_infinite = False
    for q in range(w.num_queues):
        if w.queues[q].parent != cohort or k.queues[q].is_pruned:
            continue
        share, is_infinite, is_borrowing, _ = dominant_share(w, q)
        if w.queues[q].is_cohort:
            if not is_borrowing and not _is_above(w, q, own):
                k.queues[q].is_pruned = True
            elif compare_shares(share, is_infinite, cohort_share, cohort_is_infinite) >= 0:
                best_cohort = q
                cohort_share = share
                cohort_is_infinite = is_infinite
            continue
        if k.queues[q].first_candidate == NONE or (not is_borrowing and q != own):
            k.queues[q].is_pruned = True
            continue
        order = compare_shares(share, is_infinite, queue_share, queue_is_infinite)
        if best_queue == NONE or order > 0:
            is_better = True
        else:
            mine = k.queues[q].first_candidate
            theirs = k.queues[best_queue].first_candidate
            is_better = order == 0 and candidate_precedes(w, k, own, mine, theirs)
        if is_better:
            best_queue = q
            queue_share = share
            queue_is_infinite = is_infinite
    is_higher = compare_shares(cohort_share, cohort_is_infinite, queue_share, queue_is_infinite) >= 0
    return best_queue, best_cohort, is_higher and best_cohort != NONE


@helper
def _is_above(w: Any, cohort: int, q: int) -> bool:
    """Whether a cohort is on the way from a ClusterQueue to its root."""
    at = w.queues[q].parent
    while at != NONE and at != cohort:
        at = w.queues[at].parent
    return at == cohort


@helper
def _almost_lca(w: Any, a: int, b: int) -> tuple[int, int]:
    """The nodes on either side just below the lowest cohort that two ClusterQueues have in common."""
    mine = a
    while not _is_above(w, w.queues[mine].parent, b):
        mine = w.queues[mine].parent
    theirs = b
    while w.queues[theirs].parent != w.queues[mine].parent:
        theirs = w.queues[theirs].parent
    return mine, theirs


# ---------------------------------------------------------------------------------------------------------------
# The tournament
# ---------------------------------------------------------------------------------------------------------------


@helper
def next_fair_entry(w: Any, k: Any) -> int:
    """The entry to process next: winner of its tree's tournament on the tree as it is now; NONE."""
    first = NONE
    for i in range(k.num_entries):
        if not k.entries[i].is_done:
            first = i
            break
    if first == NONE or w.queues[k.entries[first].queue].parent == NONE:
        return first
    root = k.queues[k.entries[first].queue].root
    for height in range(k.queues[root].height + 1):
        for cohort in range(w.num_queues):
            if w.queues[cohort].is_cohort and k.queues[cohort].root == root and k.queues[cohort].height == height:
                k.queues[cohort].winner = _winner(w, k, cohort)
    return k.queues[root].winner


@helper
def _winner(w: Any, k: Any, cohort: int) -> int:
    """Best among the entries of a cohort's ClusterQueues and the winners of its child cohorts; NONE."""
    best = NONE
    best_share = 0.0
    best_is_infinite = False
    best_borrows = False
    for child in range(w.num_queues):
        if w.queues[child].parent != cohort:
            continue
        i = k.queues[child].winner if w.queues[child].is_cohort else k.queues[child].entry
        if i == NONE or k.entries[i].is_done:
            continue
        entry = k.entries[i]
        move_entry(w, entry.queue, entry.usage, 1)
        share, is_infinite, _, _ = dominant_share(w, child)
        borrows = k.non_borrowing_first and not is_within_nominal(w, child, entry.cells)
        move_entry(w, entry.queue, entry.usage, -1)
        is_better = best == NONE
        if not is_better and borrows != best_borrows:
            is_better = best_borrows
        elif not is_better:
            order = compare_shares(share, is_infinite, best_share, best_is_infinite)
            is_better = order < 0 or (order == 0 and _goes_first(w, k, entry.slot, k.entries[best].slot))
        if is_better:
            best = i
            best_share = share
            best_is_infinite = is_infinite
            best_borrows = borrows
    return best


@helper
def _goes_first(w: Any, k: Any, a: int, b: int) -> bool:
    """Equal shares: higher priority, then earlier timestamp, then uid."""
    if k.sorts_by_priority and w.jobs[a].priority != w.jobs[b].priority:
        return w.jobs[a].priority > w.jobs[b].priority
    if k.workloads[a].timestamp_ms != k.workloads[b].timestamp_ms:
        return k.workloads[a].timestamp_ms < k.workloads[b].timestamp_ms
    return k.workloads[a].uid_rank < k.workloads[b].uid_rank
