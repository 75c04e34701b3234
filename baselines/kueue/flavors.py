"""Flavor assignment: which flavor each resource of a workload would take, and in which mode.

Source: Kueue pkg/scheduler/flavorassigner/{flavorassigner,podset_reducer}.go; spec/kueue.md sections 5 and 9.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.kueue.preemption import find_targets, has_own_victim
from gangline.baselines.kueue.snapshot import borrowing_level, move_workload
from gangline.baselines.kueue.state import LAST_TRIED, NOT_TRIED, Fit, Mode, Policy
from gangline.baselines.kueue.tas import flavor_serves_topology
from gangline.envs.core.compiled import helper
from gangline.envs.core.placement import flavor_allowed
from gangline.envs.core.quota import available, potential
from gangline.envs.core.types import NONE

LEVELS = 64  # a Fit and a borrowing level in one integer: fit x LEVELS + level


@helper
def assign_flavors(w: Any, k: Any, entry: Any, search_index: int, is_restricted: bool) -> None:
    """Assign flavors to all pod sets of an entry's workload, at the counts of a search index (0 = full).

    Fills the entry's mode, borrowing level and usage, and the workload's pod sets. `is_restricted`: to the flavors of
    its first nomination in this cycle.
    """
    slot = entry.slot
    job = w.jobs[slot]
    entry.mode = Mode.FIT
    entry.borrowing = 0
    entry.cells = 0
    entry.preempt_cells = 0
    entry.has_assignment = False
    for cell in range(w.num_cells):
        entry.usage[cell] = 0
    ps = job.first_pod_set
    while ps != NONE:
        note = k.pod_sets[ps]
        note.count = reduced_count(w, slot, ps, search_index)
        note.has_reason = False
        note.num_domains = 0
        note.topology_fails = False
        for r in range(w.params.num_resources):
            note.flavor[r] = NONE
            note.mode[r] = Fit.FIT
            note.trying[r] = NOT_TRIED
        ps = w.pod_sets[ps].next
    ps = job.first_pod_set
    while ps != NONE:
        if not _assign_pod_set(w, k, entry, ps, is_restricted):
            entry.mode = Mode.NO_FIT
            return
        _add_to_assignment(w, k, entry, ps)
        ps = w.pod_sets[ps].next


@helper
def reduced_count(w: Any, slot: int, ps: int, search_index: int) -> int:
    """Pods of a pod set at an index of the search for a smaller workload."""
    pod_set = w.pod_sets[ps]
    wanted = pod_set.count - pod_set.num_done
    if search_index == 0:
        return wanted
    total = most_reduction(w, slot)
    return wanted - (wanted - min(pod_set.min_count, wanted)) * search_index // total


@helper
def most_reduction(w: Any, slot: int) -> int:
    """Pods that a workload can do without."""
    total = 0
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        pod_set = w.pod_sets[ps]
        wanted = pod_set.count - pod_set.num_done
        total += wanted - min(pod_set.min_count, wanted)
        ps = pod_set.next
    return total


@helper
def _assign_pod_set(w: Any, k: Any, entry: Any, ps: int, is_restricted: bool) -> bool:
    """Choose flavors for a pod set, resource group by resource group; False, with nothing assigned, if one fails."""
    queue = k.queues[entry.queue]
    note = k.pod_sets[ps]
    if pod_set_group(k, ps) != NONE and _follow_group(w, k, entry.slot, ps):
        return True
    for r in range(w.params.num_resources):
        if not _is_requested(w, k, entry.queue, ps, r) or note.flavor[r] != NONE:
            continue
        group = queue.group_of[r]
        if group == NONE or not _scan_flavors(w, k, entry, ps, group, r, is_restricted):
            for other in range(w.params.num_resources):
                note.flavor[other] = NONE
                note.trying[other] = NOT_TRIED
            return False
    return True


@helper
def _follow_group(w: Any, k: Any, slot: int, ps: int) -> bool:
    """Take the flavors of an earlier pod set of the same pod-set group; False if this is its first."""
    note = k.pod_sets[ps]
    other = w.jobs[slot].first_pod_set
    while other != ps:
        if pod_set_group(k, other) == pod_set_group(k, ps):
            note.has_reason = k.pod_sets[other].has_reason
            for r in range(w.params.num_resources):
                if (w.pod_sets[ps].asked >> r) & 1:
                    note.flavor[r] = k.pod_sets[other].flavor[r]
                    note.mode[r] = k.pod_sets[other].mode[r]
                    note.level[r] = k.pod_sets[other].level[r]
                    note.trying[r] = k.pod_sets[other].trying[r]
            return True
        other = w.pod_sets[other].next
    return False


@helper
def _is_requested(w: Any, k: Any, q: int, ps: int, r: int) -> bool:
    """Whether a resource of a pod set needs quota; nothing of a resource that no group covers does not."""
    if not (w.pod_sets[ps].asked >> r) & 1:
        return False
    if k.queues[q].group_of[r] != NONE:
        return True
    if (k.excluded >> r) & 1 or r == w.params.pods_resource:
        return False
    return k.pod_sets[ps].count * w.pod_sets[ps].request[r] > 0


@helper
def _amount(w: Any, k: Any, entry: Any, ps: int, r: int) -> int:
    """What a pod set, with those of its pod-set group, asks of a resource."""
    total = k.pod_sets[ps].count * w.pod_sets[ps].request[r]
    group = pod_set_group(k, ps)
    if group != NONE:
        other = w.jobs[entry.slot].first_pod_set
        while other != NONE:
            if other != ps and pod_set_group(k, other) == group and (w.pod_sets[other].asked >> r) & 1:
                total += k.pod_sets[other].count * w.pod_sets[other].request[r]
            other = w.pod_sets[other].next
    return total


@helper
def pod_set_group(k: Any, ps: int) -> int:
    """Group of pod sets that are placed together; NONE."""
    request = k.pod_sets[ps].request
    return k.requests[request].group if request != NONE else NONE


@helper
def _scan_flavors(w: Any, k: Any, entry: Any, ps: int, group: int, resource: int, is_restricted: bool) -> bool:
    """Try the flavors of a resource group in order; False if none is good for anything."""
    queue = k.queues[entry.queue]
    note = k.pod_sets[ps]
    best = Fit.NO_FIT * LEVELS
    last = NONE
    first = 0
    if k.scans_flavors and k.workloads[entry.slot].has_record and note.tried[resource] >= 0:
        first = note.tried[resource] + 1
    for i in range(first, queue.num_flavors[group]):
        flavor = queue.flavors[group, i]
        last = i
        if is_restricted and note.first_flavor[resource] != flavor:
            continue
        if not flavor_allowed(w.pod_sets[ps], flavor) or not flavor_serves_topology(w, k, entry.queue, ps, flavor):
            continue
        found = Fit.FIT * LEVELS
        for r in range(w.params.num_resources):
            if not (queue.covers[group] >> r) & 1 or not _is_requested(w, k, entry.queue, ps, r):
                continue
            one = _fit_of_cell(w, k, entry, ps, flavor, r)
            k.tried_fit[r] = one
            if is_preferred(found, one, queue.prefers_preemption):
                found = one
            if found // LEVELS == Fit.NO_FIT:
                break
        stops = k.scans_flavors and not _tries_next(queue, found)
        if stops or is_preferred(found, best, queue.prefers_preemption):
            best = found
            for r in range(w.params.num_resources):
                if (queue.covers[group] >> r) & 1 and _is_requested(w, k, entry.queue, ps, r):
                    note.flavor[r] = flavor
                    note.mode[r] = k.tried_fit[r] // LEVELS
                    note.level[r] = k.tried_fit[r] % LEVELS
        if stops or (not k.scans_flavors and found // LEVELS == Fit.FIT):
            break
    if best // LEVELS == Fit.NO_FIT:
        return False
    if best // LEVELS != Fit.FIT:
        note.has_reason = True
    for r in range(w.params.num_resources):
        if (queue.covers[group] >> r) & 1 and _is_requested(w, k, entry.queue, ps, r):
            note.trying[r] = LAST_TRIED if last == queue.num_flavors[group] - 1 else last
    return True


@helper
def is_preferred(a: int, b: int, prefers_preemption: bool) -> bool:
    """Whether fit a (with its borrowing level) is better than b. Source: isPreferred."""
    fit = a // LEVELS
    other = b // LEVELS
    level = a % LEVELS
    other_level = b % LEVELS
    if fit == Fit.NO_FIT:
        return False
    if other == Fit.NO_FIT:
        return True
    if (fit == Fit.NO_CANDIDATES) != (other == Fit.NO_CANDIDATES):
        return other == Fit.NO_CANDIDATES
    if prefers_preemption and level != other_level:
        return level < other_level
    if fit != other:
        return fit > other
    return level < other_level


@helper
def _tries_next(queue: Any, found: int) -> bool:
    """Whether the scan goes on after a flavor. Source: shouldTryNextFlavor."""
    fit = found // LEVELS
    if fit == Fit.NO_FIT or fit == Fit.NO_CANDIDATES:
        return True
    if (fit == Fit.PREEMPT or fit == Fit.RECLAIM) and queue.tries_next_when_preempting:
        return True
    return found % LEVELS > 0 and queue.tries_next_when_borrowing


@helper
def _fit_of_cell(w: Any, k: Any, entry: Any, ps: int, flavor: int, r: int) -> int:
    """Fit and borrowing level of one (flavor, resource). Source: fitsResourceQuota."""
    q = entry.queue
    queue = k.queues[q]
    cell = w.cell_of[flavor, r]
    if cell == NONE:  # nobody has quota of it
        return Fit.NO_FIT * LEVELS if _amount(w, k, entry, ps, r) > 0 else Fit.FIT * LEVELS
    amount = entry.usage[cell] + _amount(w, k, entry, ps, r)
    if amount > potential(w, q, cell):
        return Fit.NO_FIT * LEVELS
    level, may_reclaim = borrowing_level(w, k, q, cell, amount)
    if amount <= max(0, available(w, q, cell)):
        return Fit.FIT * LEVELS + level
    preempts_borrowing = queue.borrow_within_cohort or (k.fair_sharing and queue.reclaim_within_cohort != Policy.NEVER)
    if w.queues[q].nominal[cell] >= amount or may_reclaim or preempts_borrowing:
        return _simulate_preemption(w, k, entry, cell, amount)
    return Fit.NO_FIT * LEVELS + level


@helper
def _simulate_preemption(w: Any, k: Any, entry: Any, cell: int, amount: int) -> int:
    """What preemption could do for one (flavor, resource). Source: SimulatePreemption."""
    for i in range(max(0, k.num_oracle)):
        if k.oracle[i].cell == cell:
            return k.oracle[i].fit * LEVELS + k.oracle[i].level
    if k.num_oracle != NONE:
        return Fit.PREEMPT * LEVELS
    for other in range(w.num_cells):
        k.wanted[other] = 0
    k.wanted[cell] = amount
    k.wanted_cells = 1 << cell
    k.wants_topology = False
    first = k.num_targets
    count = find_targets(w, k, entry, 1 << cell)
    fit = Fit.NO_CANDIDATES
    if count > 0:
        fit = Fit.PREEMPT if has_own_victim(k, entry.queue, first) else Fit.RECLAIM
    for i in range(first, first + count):
        move_workload(w, k, k.targets[i].slot, -1)
    level, _ = borrowing_level(w, k, entry.queue, cell, amount)
    for i in range(first, first + count):
        move_workload(w, k, k.targets[i].slot, 1)
    k.num_targets = first
    return fit * LEVELS + level


@helper
def _add_to_assignment(w: Any, k: Any, entry: Any, ps: int) -> None:
    """Add a pod set whose flavors are chosen to the usage and the mode of the whole.

    With PreemptionOverBorrowing the worse of two resources can be the one that fits by borrowing: then the whole counts
    as Fit although the other needs preemption, and will be found not to fit when it is processed. Kueue does so.
    """
    note = k.pod_sets[ps]
    for r in range(w.params.num_resources):
        if note.flavor[r] == NONE:
            continue
        entry.has_assignment = True
        entry.borrowing = max(entry.borrowing, note.level[r])
        if note.mode[r] != Fit.FIT and note.has_reason:
            entry.mode = Mode.PREEMPT
        cell = w.cell_of[note.flavor[r], r]
        if cell != NONE:
            entry.usage[cell] += note.count * w.pod_sets[ps].request[r]
            entry.cells |= 1 << cell
            if note.mode[r] != Fit.FIT:
                entry.preempt_cells |= 1 << cell
