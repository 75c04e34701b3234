"""The quota tree as a cycle sees it: usage is put on and taken off the world's own tree, and restored afterwards.

Sums over quotas are `envs/core/quota.py`'s; here is whose usage, and the questions that Kueue asks of it.
Where the world does not enforce quota, Kueue keeps the books itself (`k.usage`) and lends them to the tree for the
time of a decision.
Source: Kueue pkg/cache/scheduler/{snapshot,clusterqueue_snapshot,resource_node}.go.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.kueue.state import Bucket
from gangline.baselines.kueue.tas import move_pods
from gangline.envs.core.compiled import helper
from gangline.envs.core.quota import available, charge, give_back, local_available
from gangline.envs.core.types import NONE, Quota


@helper
def open_books(w: Any, k: Any) -> None:
    """Put Kueue's own usage on the tree, where the world does not enforce quota."""
    if w.params.quota == Quota.ENFORCED:
        return
    for q in range(w.num_queues):
        for cell in range(w.num_cells):
            k.worlds_usage[q, cell] = w.queues[q].usage[cell]
            w.queues[q].usage[cell] = k.usage[q, cell]


@helper
def close_books(w: Any, k: Any) -> None:
    """Undo `open_books`, keeping what has changed."""
    if w.params.quota == Quota.ENFORCED:
        return
    for q in range(w.num_queues):
        for cell in range(w.num_cells):
            k.usage[q, cell] = w.queues[q].usage[cell]
            w.queues[q].usage[cell] = k.worlds_usage[q, cell]


@helper
def save_usage(w: Any, k: Any) -> None:
    """Note the usage from which a cycle begins."""
    for q in range(w.num_queues):
        for cell in range(w.num_cells):
            k.saved_usage[q, cell] = w.queues[q].usage[cell]


@helper
def restore_usage(w: Any, k: Any) -> None:
    """Return to it."""
    for q in range(w.num_queues):
        for cell in range(w.num_cells):
            w.queues[q].usage[cell] = k.saved_usage[q, cell]


@helper
def move_workload(w: Any, k: Any, slot: int, sign: int) -> None:
    """Put (1) the usage of a workload that holds quota on the tree, or take it off (-1)."""
    note = k.workloads[slot]
    for cell in range(w.num_cells):
        if note.usage[cell] > 0:
            if sign > 0:
                charge(w, note.queue, cell, note.usage[cell])
            else:
                give_back(w, note.queue, cell, note.usage[cell])
    if k.has_topology:
        move_pods(w, k, slot, sign)


@helper
def move_entry(w: Any, q: int, amounts: Any, sign: int) -> None:
    """The same for the usage that an assignment asks for."""
    for cell in range(w.num_cells):
        if amounts[cell] > 0:
            if sign > 0:
                charge(w, q, cell, amounts[cell])
            else:
                give_back(w, q, cell, amounts[cell])


@helper
def count_usage(w: Any, k: Any, slot: int) -> None:
    """Note what a workload holds, by the flavors and reserved pods of its pod sets."""
    note = k.workloads[slot]
    note.cells = 0
    for cell in range(w.num_cells):
        note.usage[cell] = 0
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        for r in range(w.params.num_resources):
            flavor = k.pod_sets[ps].flavor[r]
            if flavor == NONE or not (w.pod_sets[ps].asked >> r) & 1:
                continue
            cell = w.cell_of[flavor, r]
            if cell != NONE:
                note.cells |= 1 << cell
                note.usage[cell] += k.pod_sets[ps].reserved * w.pod_sets[ps].request[r]
        ps = w.pod_sets[ps].next


@helper
def fits(w: Any, q: int, amounts: Any, cells: int, may_borrow: bool) -> bool:
    """Whether a ClusterQueue may take the amounts now; without borrowing, within its nominal quota."""
    for cell in range(w.num_cells):
        if (cells >> cell) & 1:
            if amounts[cell] > max(0, available(w, q, cell)):
                return False
            if not may_borrow and w.queues[q].usage[cell] + amounts[cell] > w.queues[q].nominal[cell]:
                return False
    return True


@helper
def is_within_nominal(w: Any, q: int, cells: int) -> bool:
    """Whether a ClusterQueue or cohort uses no more than its quota (with what its children lend), for every cell."""
    for cell in range(w.num_cells):
        if (cells >> cell) & 1 and w.queues[q].usage[cell] > w.queues[q].subtree[cell]:
            return False
    return True


@helper
def borrowing_level(w: Any, k: Any, q: int, cell: int, amount: int) -> tuple[int, bool]:
    """Height of the lowest subtree in which an amount fits (0: the ClusterQueue itself), and whether that is not all.

    Source: FindHeightOfLowestSubtreeThatFits, hierarchical_preemption.go.
    """
    queue = w.queues[q]
    if queue.parent == NONE or queue.usage[cell] + amount <= queue.nominal[cell]:
        return 0, queue.parent != NONE
    rest = amount - local_available(queue, cell)
    c = queue.parent
    while True:
        cohort = w.queues[c]
        if cohort.usage[cell] + rest <= cohort.subtree[cell]:
            return k.queues[c].height, cohort.parent != NONE
        if cohort.parent == NONE:
            return k.queues[c].height, False
        rest -= local_available(cohort, cell)
        c = cohort.parent


@helper
def borrows_on(w: Any, q: int, cells: int) -> bool:
    """Whether a node uses more than its quota for some cell of the mask."""
    return not is_within_nominal(w, q, cells)


@helper
def holds_quota(k: Any, slot: int) -> bool:
    """Whether a workload has its quota reserved and is not a victim of this cycle's recomputation."""
    return k.workloads[slot].bucket == Bucket.RESERVED and not k.workloads[slot].is_taken


@helper
def was_preempted_now(w: Any, k: Any, slot: int) -> bool:
    """Whether a workload has been preempted at this instant, in worlds where that takes no time.

    Kueue's victims need time to stop, so a preemptor and a victim that take turns do so for ever, but slowly. Where
    evictions take no time they would never let the instant end: so the victim stands back behind everybody else of the
    cycle, and it is preempted no more at this instant. Differs: Kueue has neither rule.
    """
    return not k.one_cycle and k.workloads[slot].evict_ms >= w.now_ms
