"""One scheduling cycle: the head of every ClusterQueue is nominated, put in order, and admitted, or preempts, or waits.

Source: Kueue pkg/scheduler/scheduler.go `schedule`; spec/kueue.md section 4.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.kueue.admission_fair_sharing import charge_penalty
from gangline.baselines.kueue.commands import write_admission, write_eviction
from gangline.baselines.kueue.fair_sharing import next_fair_entry
from gangline.baselines.kueue.flavors import assign_flavors, most_reduction
from gangline.baselines.kueue.preemption import find_targets
from gangline.baselines.kueue.queues import forget_scan, head_of, requeue_head, take_out
from gangline.baselines.kueue.snapshot import (
    fits,
    move_entry,
    move_workload,
    restore_usage,
    save_usage,
    was_preempted_now,
)
from gangline.baselines.kueue.state import Bucket, Mode, Policy, Reason, Requeue
from gangline.baselines.kueue.tas import (
    assign_topology,
    assignment_fits,
    measure_leaves,
    place_workload,
    take_assignment,
)
from gangline.baselines.kueue.victims import want_usage
from gangline.baselines.kueue.watch import reserve
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NO_LIMIT, NONE


@helper
def run_cycle(w: Any, k: Any, out: Any) -> bool:
    """Run a cycle and write its decisions; False if there was no head, or nothing has come of it but another scan."""
    if not pop_heads(w, k):
        return False
    k.cycle += 1
    k.num_targets = 0
    k.num_placed = 0
    k.num_preempting = 0
    save_usage(w, k)
    measure_leaves(w, k)
    for i in range(k.num_entries):
        nominate(w, k, k.entries[i])
    for stands_back in (False, True):
        for i in range(k.num_entries):
            k.entries[i].is_done = k.entries[i].stands_back != stands_back
        while True:
            i = next_fair_entry(w, k) if k.fair_sharing else next_entry(w, k)
            if i == NONE:
                break
            k.entries[i].is_done = True
            process(w, k, k.entries[i])
    restore_usage(w, k)
    return finish_cycle(w, k, out)


@helper
def pop_heads(w: Any, k: Any) -> bool:
    """At most one workload of each active ClusterQueue; False if there is none."""
    k.num_entries = 0
    for q in range(w.num_queues):
        k.queues[q].entry = NONE
        if w.queues[q].is_cohort or not k.queues[q].is_active:
            continue
        slot = head_of(w, k, q)
        if slot == NONE:
            continue
        take_out(k, slot)
        k.workloads[slot].bucket = Bucket.POPPED
        k.queues[q].entry = k.num_entries
        entry = k.entries[k.num_entries]
        entry.slot = slot
        entry.queue = q
        entry.first_target = 0
        entry.num_targets = 0
        entry.is_done = False
        entry.stands_back = was_preempted_now(w, k, slot)
        entry.is_admitted = False
        entry.is_preempting = False
        entry.reason = Requeue.GENERIC
        k.num_entries += 1
    return k.num_entries > 0


# ---------------------------------------------------------------------------------------------------------------
# Nomination
# ---------------------------------------------------------------------------------------------------------------


@helper
def nominate(w: Any, k: Any, entry: Any) -> None:
    """Find flavors and victims for a head, on the tree as it is. Source: getInitialAssignments."""
    _forget_outdated_scan(w, k, entry)
    _find_assignment(w, k, entry, False)
    _keep_scan(w, k, entry)
    ps = w.jobs[entry.slot].first_pod_set
    while ps != NONE:
        for r in range(w.params.num_resources):
            k.pod_sets[ps].first_flavor[r] = k.pod_sets[ps].flavor[r]
        ps = w.pod_sets[ps].next


@helper
def _forget_outdated_scan(w: Any, k: Any, entry: Any) -> None:
    """Drop a record of flavors tried that is more than a cycle old and older than the ClusterQueue's last change."""
    note = k.workloads[entry.slot]
    is_old = k.cycle - note.record_cycle > 1 and k.queues[entry.queue].generation > note.record_generation
    if note.has_record and is_old:
        forget_scan(w, k, entry.slot)


@helper
def _keep_scan(w: Any, k: Any, entry: Any) -> None:
    """Record which flavors were tried."""
    note = k.workloads[entry.slot]
    note.has_record = True
    note.record_cycle = k.cycle
    note.record_generation = k.queues[entry.queue].generation
    ps = w.jobs[entry.slot].first_pod_set
    while ps != NONE:
        for r in range(w.params.num_resources):
            k.pod_sets[ps].tried[r] = k.pod_sets[ps].trying[r]
        ps = w.pod_sets[ps].next


@helper
def _find_assignment(w: Any, k: Any, entry: Any, is_restricted: bool) -> None:
    """The full workload, or, where that does not do, the largest part of it that does."""
    entry.first_placed = k.num_placed
    is_accepted = _try_assignment(w, k, entry, 0, is_restricted)
    if not is_accepted and k.partial_admission and most_reduction(w, entry.slot) > 0:
        _reduce(w, k, entry, is_restricted)


@helper
def _try_assignment(w: Any, k: Any, entry: Any, search_index: int, is_restricted: bool) -> bool:
    """Assign flavors, topology and victims at some counts; True if it fits, or somebody can be preempted for it."""
    entry.num_targets = 0
    entry.first_target = k.num_targets
    assign_flavors(w, k, entry, search_index, is_restricted)
    assign_topology(w, k, entry)
    if entry.mode == Mode.PREEMPT:
        want_usage(w, k, entry)
        entry.num_targets = find_targets(w, k, entry, entry.preempt_cells)
        if entry.has_topology:
            _place_after_preemption(w, k, entry)
    return entry.mode == Mode.FIT or entry.num_targets > 0


@helper
def _place_after_preemption(w: Any, k: Any, entry: Any) -> None:
    """The domains of an entry once its victims are gone; on an empty cluster if it has none. updateAssignmentForTAS."""
    for i in range(entry.first_target, entry.first_target + entry.num_targets):
        move_workload(w, k, k.targets[i].slot, -1)
    place_workload(w, k, entry, entry.num_targets == 0)
    for i in range(entry.first_target, entry.first_target + entry.num_targets):
        move_workload(w, k, k.targets[i].slot, 1)


@helper
def _reduce(w: Any, k: Any, entry: Any, is_restricted: bool) -> None:
    """Partial admission: the smallest reduction that is accepted, by bisection. Source: PodSetReducer."""
    low = 0
    high = most_reduction(w, entry.slot) + 1
    last_good = NONE
    while low < high:
        middle = (low + high) // 2
        k.num_targets = entry.first_target
        if _try_assignment(w, k, entry, middle, is_restricted):
            last_good = middle
            high = middle
        else:
            low = middle + 1
    k.num_targets = entry.first_target
    _try_assignment(w, k, entry, max(last_good, 0) if last_good == low else 0, is_restricted)


@helper
def next_entry(w: Any, k: Any) -> int:
    """The entry to process next in a classical cycle; NONE."""
    best = NONE
    for i in range(k.num_entries):
        if not k.entries[i].is_done and (best == NONE or entry_precedes(w, k, k.entries[i], k.entries[best])):
            best = i
    return best


@helper
def entry_precedes(w: Any, k: Any, a: Any, b: Any) -> bool:
    """Order of entries: less borrowing, higher priority, earlier timestamp; full ties by uid."""
    if k.preemptors_first:
        a_is_preemptor = k.queues[a.queue].sticky == a.slot
        if a_is_preemptor != (k.queues[b.queue].sticky == b.slot):
            return a_is_preemptor
    if a.borrowing != b.borrowing:
        return a.borrowing < b.borrowing
    if k.sorts_by_priority and w.jobs[a.slot].priority != w.jobs[b.slot].priority:
        return w.jobs[a.slot].priority > w.jobs[b.slot].priority
    a_ms = order_time_ms(k, a.slot)
    b_ms = order_time_ms(k, b.slot)
    if a_ms != b_ms:
        return a_ms < b_ms
    return k.workloads[a.slot].uid_rank < k.workloads[b.slot].uid_rank


@helper
def order_time_ms(k: Any, slot: int) -> int:
    """Queue-order timestamp; without sorting by priority, who was reclaimed while borrowing goes behind."""
    note = k.workloads[slot]
    if not k.sorts_by_priority and note.reason == Reason.IN_COHORT_RECLAIM_WHILE_BORROWING:
        return note.evict_ms + 1
    return note.timestamp_ms


# ---------------------------------------------------------------------------------------------------------------
# Processing
# ---------------------------------------------------------------------------------------------------------------


@helper
def process(w: Any, k: Any, entry: Any) -> None:
    """Decide on one entry, on the tree that earlier ones have left."""
    if entry.mode == Mode.PREEMPT and entry.num_targets > 0 and k.recomputes_on_overlap and _overlaps(k, entry):
        _recompute_without_victims(w, k, entry)
    elif k.recomputes_topology and entry.has_topology and _only_topology_fails(w, k, entry):
        forget_scan(w, k, entry.slot)
        _find_assignment(w, k, entry, True)
        _keep_scan(w, k, entry)
    if entry.mode == Mode.NO_FIT:
        entry.reason = Requeue.NO_FIT
        return
    if entry.mode == Mode.PREEMPT and entry.num_targets == 0:
        entry.reason = Requeue.NO_CANDIDATES
        if k.queues[entry.queue].reclaim_within_cohort != Policy.ANY:  # else it can always take it back later
            _hold_capacity(w, k, entry)
        return
    if entry.mode == Mode.DEFERRED_FIT:
        entry.reason = Requeue.PENDING_PREEMPTION
        forget_scan(w, k, entry.slot)
        move_entry(w, entry.queue, entry.usage, 1)
        take_assignment(w, k, entry)
        return
    if _overlaps(k, entry) or not _fits_without_victims(w, k, entry):
        entry.reason = Requeue.FAILED_AFTER_NOMINATION
        if entry.mode == Mode.PREEMPT:
            k.queues[entry.queue].skipped_preemptions += 1
        if not k.keeps_scan:
            forget_scan(w, k, entry.slot)
        return
    if entry.mode == Mode.FIT and k.blocks_admission and not _all_are_ready(w, k):
        entry.reason = Requeue.FAILED_AFTER_NOMINATION
        return
    for i in range(entry.first_target, entry.first_target + entry.num_targets):
        k.workloads[k.targets[i].slot].is_taken = True
    move_entry(w, entry.queue, entry.usage, 1)
    take_assignment(w, k, entry)
    if entry.mode == Mode.PREEMPT:
        entry.reason = Requeue.PENDING_PREEMPTION
        entry.is_preempting = True
        k.num_preempting += 1
        forget_scan(w, k, entry.slot)
    else:
        entry.is_admitted = True


@helper
def _overlaps(k: Any, entry: Any) -> bool:
    """Whether a victim of the entry is one of an earlier entry already."""
    for i in range(entry.first_target, entry.first_target + entry.num_targets):
        if k.workloads[k.targets[i].slot].is_taken:
            return True
    return False


@helper
def _move_taken(w: Any, k: Any, entry: Any, sign: int) -> None:
    """Take the victims of all earlier entries off the tree, or put them back."""
    for i in range(k.num_entries):
        other = k.entries[i]
        if other.is_preempting:
            for t in range(other.first_target, other.first_target + other.num_targets):
                move_workload(w, k, k.targets[t].slot, sign)


@helper
def _recompute_without_victims(w: Any, k: Any, entry: Any) -> None:
    """Nominate an entry again as if the victims of earlier ones were gone, in the flavors it had.

    If it fits then, it waits for that; if it finds victims of its own, it takes those; else it has none.
    """
    forget_scan(w, k, entry.slot)
    _move_taken(w, k, entry, -1)
    _find_assignment(w, k, entry, True)
    _move_taken(w, k, entry, 1)
    _keep_scan(w, k, entry)
    if entry.mode == Mode.FIT:
        entry.mode = Mode.DEFERRED_FIT
    elif entry.num_targets == 0:
        k.queues[entry.queue].skipped_preemptions += 1


@helper
def _hold_capacity(w: Any, k: Any, entry: Any) -> None:
    """Keep what a workload that cannot preempt would take, so that nobody of another queue gets it in this cycle."""
    q = entry.queue
    for cell in range(w.num_cells):
        k.rest[cell] = reserved_amount(w, q, cell, entry.usage[cell], entry.borrowing)
    move_entry(w, q, k.rest, 1)
    take_assignment(w, k, entry)


@helper
def reserved_amount(w: Any, q: int, cell: int, amount: int, borrowing: int) -> int:
    """How much of it is kept. Source: resourcesToReserve."""
    queue = w.queues[q]
    if borrowing > 0:
        if queue.borrowing_limit[cell] == NO_LIMIT:
            return amount
        return min(amount, queue.nominal[cell] + queue.borrowing_limit[cell] - queue.usage[cell])
    return max(0, min(amount, queue.nominal[cell] - queue.usage[cell]))


@helper
def _only_topology_fails(w: Any, k: Any, entry: Any) -> bool:
    """Whether an entry has the quota, but others have taken its domains."""
    if entry.mode != Mode.FIT and entry.num_targets == 0:
        return False
    if _fits_without_victims(w, k, entry):
        return False
    entry.has_topology = False  # what the quota alone says
    quota_fits = _fits_without_victims(w, k, entry)
    entry.has_topology = True
    return quota_fits


@helper
def _fits_without_victims(w: Any, k: Any, entry: Any) -> bool:
    """Whether an entry fits once its own victims and those of earlier entries are gone."""
    _move_taken(w, k, entry, -1)
    for i in range(entry.first_target, entry.first_target + entry.num_targets):
        if not k.workloads[k.targets[i].slot].is_taken:
            move_workload(w, k, k.targets[i].slot, -1)
    it_fits = fits(w, entry.queue, entry.usage, entry.cells, True) and assignment_fits(w, k, entry)
    for i in range(entry.first_target, entry.first_target + entry.num_targets):
        if not k.workloads[k.targets[i].slot].is_taken:
            move_workload(w, k, k.targets[i].slot, 1)
    _move_taken(w, k, entry, 1)
    return it_fits


@helper
def _all_are_ready(w: Any, k: Any) -> bool:
    """Whether the pods of every admitted workload are all bound."""
    at = k.first_unplaced
    for i in range(k.num_entries):
        if k.entries[i].is_admitted:
            return False
    return at == NONE


# ---------------------------------------------------------------------------------------------------------------
# After the cycle
# ---------------------------------------------------------------------------------------------------------------


@helper
def finish_cycle(w: Any, k: Any, out: Any) -> bool:
    """Write evictions and admissions, put the others back; True if something has come of the cycle."""
    something = False
    k.num_asked = 0
    for i in range(k.num_entries):
        entry = k.entries[i]
        if entry.is_preempting:
            for t in range(entry.first_target, entry.first_target + entry.num_targets):
                target = k.targets[t]
                k.workloads[target.slot].is_taken = False
                if not k.workloads[target.slot].is_evicted and write_eviction(w, k, target.slot, target.reason, out):
                    something = True
    for i in range(k.num_entries):
        entry = k.entries[i]
        k.queues[entry.queue].entry = NONE
        if entry.is_admitted and write_admission(w, k, entry, out):
            k.workloads[entry.slot].bucket = Bucket.NOWHERE
            reserve(w, k, entry.slot, w.now_ms)
            forget_scan(w, k, entry.slot)
            if k.queues[entry.queue].is_usage_based:
                charge_penalty(w, k, entry.slot)
            something = True
            continue
        if entry.is_admitted:
            entry.reason = Requeue.FAILED_AFTER_NOMINATION
        if requeue_head(w, k, entry.slot, entry.reason):
            something = True
    return something
