"""Topology-aware scheduling: in which domains the pods of a workload go.

Phase 1 (`domains.py`) counts what fits into each domain, bottom up. Phase 2 finds the lowest level at which one domain
holds all (required, preferred), or the domains to spread over (`balanced.py`: evenly), and goes down level by level
with as few domains as it can.
Source: Kueue pkg/cache/scheduler/tas_flavor_snapshot.go, pkg/scheduler/flavorassigner/tas_flavorassigner.go;
spec/kueue.md section 10. Not modelled: node selectors and taints inside a flavor.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.kueue.balanced import place_balanced
from gangline.baselines.kueue.domains import (
    add_children,
    count_domains,
    layer_at,
    level_index,
    name_precedes,
    sort_domains,
)
from gangline.baselines.kueue.state import Mode, RequestKind
from gangline.envs.core.compiled import helper
from gangline.envs.core.transactions import _new_command, pod_set_slot
from gangline.envs.core.types import NONE, NodeState, Op, PodState

# ---------------------------------------------------------------------------------------------------------------
# What a flavor and a pod set have to do with topology
# ---------------------------------------------------------------------------------------------------------------


@helper
def flavor_serves_topology(w: Any, k: Any, q: int, ps: int, flavor: int) -> bool:
    """Whether a flavor has a topology, with the levels asked for, if and only if the pod set asks for one."""
    if not k.has_topology:
        return True
    t = k.topology_of[flavor]
    request = k.pod_sets[ps].request
    asks = request != NONE and (k.requests[request].kind != RequestKind.NONE or k.requests[request].num_layers > 0)
    if t == NONE:
        return not asks
    if not asks:
        return k.queues[q].is_topology_only  # implied: anywhere, on the lowest level
    asked = k.requests[request]
    names_level = asked.kind == RequestKind.REQUIRED or asked.kind == RequestKind.PREFERRED
    has_levels = not names_level or level_index(k, t, asked.level) != NONE
    for i in range(asked.num_layers):
        has_levels = has_levels and level_index(k, t, asked.layer_level[i]) != NONE
    return has_levels


@helper
def _topology_of(w: Any, k: Any, ps: int) -> int:
    """Topology of the flavor that is assigned to a pod set; NONE."""
    for r in range(w.params.num_resources):
        flavor = k.pod_sets[ps].flavor[r]
        if flavor != NONE and k.topology_of[flavor] != NONE:
            return k.topology_of[flavor]
    return NONE


# ---------------------------------------------------------------------------------------------------------------
# Free capacity of the leaves
# ---------------------------------------------------------------------------------------------------------------


@helper
def measure_leaves(w: Any, k: Any) -> None:
    """Levels and children of the domains, and what is free in each leaf, at the beginning of a cycle."""
    if not k.has_topology:
        return
    for d in range(w.num_domains):
        domain = k.domains[d]
        t = w.domains[d].topology
        domain.level = k.num_levels[t] - w.domains[d].tier
        domain.first_child = NONE
        for r in range(w.params.num_resources):
            k.free[d, r] = 0
            k.capacity[d, r] = 0
    for d in range(w.num_domains):
        above = w.domains[d].parent
        if above != NONE:
            k.domains[d].next = k.domains[above].first_child
            k.domains[above].first_child = d
    for n in range(w.num_nodes):
        node = w.nodes[n]
        if node.state != NodeState.UP:
            continue
        for t in range(w.num_topologies):
            d = node.domain[t]
            if d != NONE and k.topology_of[node.flavor] == t:
                for r in range(w.params.num_resources):
                    k.free[d, r] += node.idle[r] - node.planned[r]
                    k.capacity[d, r] += node.capacity[r]


@helper
def move_pods(w: Any, k: Any, slot: int, sign: int) -> None:
    """Take (1) what a workload's pods hold from their leaves, or give it back (-1)."""
    at = w.jobs[slot].first_pod
    while at != NONE:
        pod = w.pods[at]
        node = w.nodes[pod.node]
        t = k.topology_of[node.flavor]
        if t != NONE and node.domain[t] != NONE and pod.state != PodState.GONE and node.state == NodeState.UP:
            for r in range(w.params.num_resources):
                k.free[node.domain[t], r] -= sign * pod.held[r]
        at = pod.next


@helper
def take_assignment(w: Any, k: Any, entry: Any) -> None:
    """Take from the leaves what the assignment of an entry needs."""
    ps = w.jobs[entry.slot].first_pod_set
    while ps != NONE and k.has_topology:
        _take_pods(w, k, ps, k.free)
        ps = w.pod_sets[ps].next


@helper
def _take_pods(w: Any, k: Any, ps: int, amounts: Any) -> None:
    """Take a pod set's assignment from leaf amounts."""
    note = k.pod_sets[ps]
    for i in range(note.first_domain, note.first_domain + note.num_domains):
        for r in range(w.params.num_resources):
            if (w.pod_sets[ps].asked >> r) & 1:
                amounts[k.placed[i].domain, r] -= k.placed[i].count * w.pod_sets[ps].request[r]


@helper
def assignment_fits(w: Any, k: Any, entry: Any) -> bool:
    """Whether the leaves that an entry is assigned to still have room."""
    if not entry.has_topology:
        return True
    ps = w.jobs[entry.slot].first_pod_set
    while ps != NONE:
        note = k.pod_sets[ps]
        for i in range(note.first_domain, note.first_domain + note.num_domains):
            for r in range(w.params.num_resources):
                if (w.pod_sets[ps].asked >> r) & 1:
                    needed = _needed_in(w, k, entry.slot, k.placed[i].domain, r)
                    if needed > 0 and needed > k.free[k.placed[i].domain, r]:
                        return False
        ps = w.pod_sets[ps].next
    return True


@helper
def _needed_in(w: Any, k: Any, slot: int, domain: int, r: int) -> int:
    """What all pod sets of a workload need of a resource in one leaf."""
    total = 0
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        note = k.pod_sets[ps]
        for i in range(note.first_domain, note.first_domain + note.num_domains):
            if k.placed[i].domain == domain and (w.pod_sets[ps].asked >> r) & 1:
                total += k.placed[i].count * w.pod_sets[ps].request[r]
        ps = w.pod_sets[ps].next
    return total


# ---------------------------------------------------------------------------------------------------------------
# The stage of a flavor assignment
# ---------------------------------------------------------------------------------------------------------------


@helper
def assign_topology(w: Any, k: Any, entry: Any) -> None:
    """Find domains for an entry whose flavors are assigned.

    Where the quota fits and the topology does not, others have to be preempted: unless an empty cluster would not do.
    """
    entry.has_topology = False
    ps = w.jobs[entry.slot].first_pod_set
    while ps != NONE and k.has_topology:
        k.pod_sets[ps].num_domains = 0
        entry.has_topology = entry.has_topology or _topology_of(w, k, ps) != NONE
        ps = w.pod_sets[ps].next
    if entry.mode == Mode.NO_FIT or not entry.has_topology:
        return
    if entry.mode == Mode.FIT and place_workload(w, k, entry, False):
        return
    if not place_workload(w, k, entry, True):
        entry.mode = Mode.NO_FIT
        return
    entry.mode = Mode.PREEMPT
    ps = w.jobs[entry.slot].first_pod_set
    while ps != NONE:
        for r in range(w.params.num_resources):
            flavor = k.pod_sets[ps].flavor[r]
            if flavor != NONE and k.topology_of[flavor] != NONE and w.cell_of[flavor, r] != NONE:
                entry.preempt_cells |= 1 << w.cell_of[flavor, r]
        ps = w.pod_sets[ps].next


@helper
def topology_fits(w: Any, k: Any, entry: Any) -> bool:
    """Whether the pods of an entry find domains as victims have left them."""
    return not entry.has_topology or not k.wants_topology or place_workload(w, k, entry, False)


@helper
def place_workload(w: Any, k: Any, entry: Any, is_empty: bool) -> bool:
    """Find domains for all pod sets of an entry, in order; on what is free now, or on an empty cluster."""
    k.num_placed = entry.first_placed
    for d in range(w.num_domains):
        for r in range(w.params.num_resources):
            k.room[d, r] = k.capacity[d, r] if is_empty else k.free[d, r]
    ps = w.jobs[entry.slot].first_pod_set
    while ps != NONE:
        k.pod_sets[ps].num_domains = 0
        k.pod_sets[ps].topology_fails = False
        k.pod_sets[ps].is_placed = False
        ps = w.pod_sets[ps].next
    ps = w.jobs[entry.slot].first_pod_set
    while ps != NONE:
        t = _topology_of(w, k, ps)
        if t != NONE and not k.pod_sets[ps].is_placed:
            leader = NONE
            workers = ps
            other = _partner(w, k, entry.slot, ps)
            if other != NONE:  # the one of a single pod leads
                leader = ps if k.pod_sets[ps].count == 1 and k.pod_sets[other].count != 1 else other
                workers = other if leader == ps else ps
                k.pod_sets[leader].is_placed = True
            k.pod_sets[workers].is_placed = True
            if not _place_pod_set(w, k, workers, leader, t):
                k.pod_sets[workers].topology_fails = True
                if leader != NONE:
                    k.pod_sets[leader].topology_fails = True
                return False
            _take_pods(w, k, workers, k.room)
            if leader != NONE:
                _take_pods(w, k, leader, k.room)
        ps = w.pod_sets[ps].next
    return True


@helper
def _partner(w: Any, k: Any, slot: int, ps: int) -> int:
    """The other pod set of a pod-set group; NONE."""
    request = k.pod_sets[ps].request
    if request == NONE or k.requests[request].group == NONE:
        return NONE
    other = w.jobs[slot].first_pod_set
    while other != NONE:
        theirs = k.pod_sets[other].request
        if other != ps and theirs != NONE and k.requests[theirs].group == k.requests[request].group:
            return other
        other = w.pod_sets[other].next
    return NONE


# ---------------------------------------------------------------------------------------------------------------
# The domains of a pod set
# ---------------------------------------------------------------------------------------------------------------


@helper
def _place_pod_set(w: Any, k: Any, ps: int, leader: int, t: int) -> bool:
    """Find the leaves of a pod set, and of its leader; False if it does not fit. Source: findTopologyAssignment."""
    request = k.pod_sets[ps].request
    count = k.pod_sets[ps].count
    leaders = 0 if leader == NONE else 1
    lowest = k.num_levels[t] - 1
    level = lowest
    is_required = False
    is_unconstrained = True
    slice_level = lowest
    slice_size = 1
    if request != NONE:
        asked = k.requests[request]
        is_required = asked.kind == RequestKind.REQUIRED
        is_unconstrained = asked.kind != RequestKind.REQUIRED and asked.kind != RequestKind.PREFERRED
        if not is_unconstrained:
            level = level_index(k, t, asked.level)
        elif asked.kind == RequestKind.NONE and asked.num_layers > 0:
            level = 0  # slices only: anywhere in the tree
        if asked.num_layers > 0:
            slice_level = level_index(k, t, asked.layer_level[0])
            slice_size = asked.layer_size[0]
    if count % slice_size != 0 or slice_level < level:
        return False
    is_least_free = is_unconstrained and k.mixes_profiles
    k.spreads_anywhere = is_unconstrained
    k.spares_workers = False
    count_domains(w, k, ps, leader, t, slice_level, slice_size)
    slices = count // slice_size
    found = 0
    is_balanced = False
    if k.balances_placement and not is_required and not is_unconstrained:
        found = place_balanced(w, k, ps, leader, t, level, slice_level, slice_size, slices)
        is_balanced = found > 0
        if is_balanced and level < slice_level:
            level += 1
    while found == 0:
        found = _fit_at_level(w, k, t, level, slices, leaders, is_least_free, not is_required)
        if found > 0:
            break
        if is_required or is_unconstrained or level == 0:
            return False
        level -= 1
    if not is_balanced:
        for i in range(found):
            k.order[i] = k.chosen[i]
    found = _take_least(w, k, found, slices, leaders, slice_size, True, is_least_free)
    while level < lowest:
        k.spares_workers = leaders > 0
        if level < slice_level and not is_balanced:
            n = 0
            for i in range(found):
                n = add_children(k, k.chosen[i], n)
            sort_domains(w, k, 0, n, leaders > 0, is_least_free)
            found = _take_least(w, k, n, slices, leaders, slice_size, True, is_least_free)
        else:
            found = _take_below(w, k, t, request, level, slice_level, slice_size, found, is_least_free)
        if found == 0:
            return False
        level += 1
    return _write_leaves(w, k, ps, leader, found)


@helper
def _take_below(
    w: Any, k: Any, t: int, request: int, level: int, slice_level: int, slice_size: int, found: int, is_least_free: bool
) -> int:
    """At and below the slice level each chosen domain's children take its pods separately; returns how many do."""
    unit = slice_size if level < slice_level else max(1, layer_at(k, t, request, level + 1))
    for i in range(found):
        k.parents[i] = k.chosen[i]
    total = 0
    for i in range(found):
        domain = k.domains[k.parents[i]]
        n = add_children(k, k.parents[i], 0)
        sort_domains(w, k, 0, n, domain.leader_count > 0, is_least_free)
        for j in range(total):
            k.kept[j] = k.chosen[j]
        taken = _take_least(w, k, n, domain.count // unit, domain.leader_count, unit, False, is_least_free)
        if taken == 0:
            return 0
        for j in range(taken - 1, -1, -1):
            k.chosen[total + j] = k.chosen[j]
        for j in range(total):
            k.chosen[j] = k.kept[j]
        total += taken
    return total


@helper
def _fit_at_level(
    w: Any, k: Any, t: int, level: int, slices: int, leaders: int, is_least_free: bool, may_spread: bool
) -> int:
    """Choose one domain of a level that holds everything; on the top level, or where anything goes, several.

    Returns: how many are in `k.chosen`; 0 if this level does not do. Source: findLevelWithFitDomains.
    """
    n = 0
    for d in range(w.num_domains):
        if w.domains[d].topology == t and k.domains[d].level == level:
            k.order[n] = d
            n += 1
    if n == 0:
        return 0
    sort_domains(w, k, 0, n, leaders > 0, is_least_free)
    best = k.order[0]
    if is_least_free:
        for i in range(n):
            if k.domains[k.order[i]].slices >= slices:
                best = k.order[i]
                break
    elif k.domains[best].slices_led >= slices and k.domains[best].leaders >= leaders:
        best = _best_fit(k, 0, n, slices, leaders, 1, True)
    if k.domains[best].slices_led >= slices and k.domains[best].leaders >= leaders:
        k.chosen[0] = best
        return 1
    if not may_spread or (level > 0 and not k.spreads_anywhere):
        return 0
    return _spread(w, k, n, slices, leaders, is_least_free)


@helper
def _spread(w: Any, k: Any, n: int, slices: int, leaders: int, is_least_free: bool) -> int:
    """Take sorted domains until everything is held: those that can lead first."""
    found = 0
    i = 0
    left = slices
    while leaders > 0 and i < n and k.domains[k.order[i]].leaders > 0:
        d = k.order[i]
        if not is_least_free and k.domains[d].slices_led >= left:
            d = _bring_forward(k, i, _best_fit(k, i, n, left, leaders, 1, True))
        k.chosen[found] = d
        found += 1
        leaders -= k.domains[d].leaders
        left -= k.domains[d].slices_led
        i += 1
    if leaders > 0:
        return 0
    sort_domains(w, k, i, n, False, is_least_free)
    while left > 0 and i < n:
        d = k.order[i]
        if k.domains[d].slices == 0:
            i += 1
            continue
        if not is_least_free and k.domains[d].slices >= left:
            d = _bring_forward(k, i, _best_fit(k, i, n, left, 0, 1, True))
        k.chosen[found] = d
        found += 1
        left -= k.domains[d].slices
        i += 1
    return found if left <= 0 else 0


@helper
def _bring_forward(k: Any, i: int, d: int) -> int:
    """Exchange a later domain of the list with the one at `i`; returns it."""
    for j in range(i, len(k.order)):
        if k.order[j] == d:
            k.order[j] = k.order[i]
            k.order[i] = d
            return d
    return d


@helper
def _held(k: Any, d: int, leaders: int, unit: int, by_slices: bool) -> int:
    """Units that a domain holds, beside a leader if one is still to be placed."""
    domain = k.domains[d]
    if by_slices:
        return domain.slices_led if leaders > 0 else domain.slices
    return (domain.pods_led if leaders > 0 else domain.pods) // unit


@helper
def _best_fit(k: Any, first: int, n: int, units: int, leaders: int, unit: int, by_slices: bool) -> int:
    """The first domain of the list from `first` on with the smallest sufficient number of units."""
    best = k.order[first]
    for i in range(first, n):
        d = k.order[i]
        held = _held(k, d, leaders, unit, by_slices)
        if k.domains[d].leaders >= leaders and held >= units and held < _held(k, best, leaders, unit, by_slices):
            best = d
    return best


@helper
def _take_least(
    w: Any, k: Any, n: int, units: int, leaders: int, unit: int, by_slices: bool, is_least_free: bool
) -> int:
    """Take units from the domains of `k.order` in turn, the last from the smallest that suffices, into `k.chosen`.

    Once the leader has its domain, the others are put in order without it.

    Returns: how many are chosen; 0 if the units do not fit. Source: updateCountsToMinimumGeneric.
    """
    left = units
    for i in range(n):
        d = k.order[i]
        enough = _held(k, d, leaders, unit, by_slices) >= left and k.domains[d].leaders >= leaders
        if not is_least_free and enough:
            d = _bring_forward(k, i, _best_fit(k, i, n, left, leaders, unit, by_slices))
        domain = k.domains[d]
        held = _held(k, d, leaders, unit, by_slices)
        if leaders > 0 and domain.leaders == 0:
            held = _held(k, d, 0, unit, by_slices)
        k.chosen[i] = d
        domain.leader_count = min(leaders, domain.leaders)
        if held >= left and domain.leaders >= leaders:
            domain.count = left * unit
            return i + 1
        domain.count = min(held, left) * unit
        left -= min(held, left)
        if domain.leader_count > 0:
            leaders -= domain.leader_count
            sort_domains(w, k, i + 1, n, False, is_least_free)
    return 0


@helper
def _write_leaves(w: Any, k: Any, ps: int, leader: int, found: int) -> bool:
    """Note the chosen leaves, in the order of their names, as the assignment of a pod set and of its leader."""
    for i in range(1, found):
        moving = k.chosen[i]
        j = i
        while j > 0 and name_precedes(w, moving, k.chosen[j - 1]):
            k.chosen[j] = k.chosen[j - 1]
            j -= 1
        k.chosen[j] = moving
    if k.num_placed + 2 * found > len(k.placed):
        return False
    for of_leader in range(2):
        if of_leader and leader == NONE:
            break
        note = k.pod_sets[leader if of_leader else ps]
        note.first_domain = k.num_placed
        for i in range(found):
            domain = k.domains[k.chosen[i]]
            count = domain.leader_count if of_leader else domain.count
            if count > 0:
                k.placed[k.num_placed].domain = k.chosen[i]
                k.placed[k.num_placed].count = count
                k.num_placed += 1
        note.num_domains = k.num_placed - note.first_domain
    return True


# ---------------------------------------------------------------------------------------------------------------
# Nodes
# ---------------------------------------------------------------------------------------------------------------


@helper
def write_placement(w: Any, k: Any, slot: int, out: Any) -> bool:
    """Write the nodes of a topology assignment: in each leaf, in the order of the nodes. False if there is no room.

    A workload of which only a part has a topology is placed as a whole, by the rule behind the admission.
    """
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        if k.pod_sets[ps].num_domains == 0:
            return True
        ps = w.pod_sets[ps].next
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        note = k.pod_sets[ps]
        for i in range(note.first_domain, note.first_domain + note.num_domains):
            if not _write_leaf(w, k, slot, ps, k.placed[i].domain, k.placed[i].count, out):
                return False
        ps = w.pod_sets[ps].next
    return True


@helper
def _write_leaf(w: Any, k: Any, slot: int, ps: int, leaf: int, pods: int, out: Any) -> bool:
    """Commands that bind pods to the nodes of a leaf."""
    t = w.domains[leaf].topology
    pod_set = w.pod_sets[ps]
    for n in range(w.num_nodes):
        node = w.nodes[n]
        if pods == 0:
            break
        if node.domain[t] != leaf or node.state != NodeState.UP or k.topology_of[node.flavor] != t:
            continue
        fit = pods
        for r in range(w.params.num_resources):
            if (pod_set.asked >> r) & 1 and pod_set.request[r] > 0:
                taken = _written_on(w, slot, n, r, out)
                fit = min(fit, max(0, node.idle[r] - node.planned[r] - taken) // pod_set.request[r])
        if fit > 0:
            at = _new_command(out, Op.PLACE, slot)
            if at == NONE:
                return False
            out.commands[at].pod_set = pod_set.index
            out.commands[at].node = n
            out.commands[at].pods = fit
            pods -= fit
    return pods == 0


@helper
def _written_on(w: Any, slot: int, n: int, r: int, out: Any) -> int:
    """What commands of this decision take of a resource of a node already."""
    total = 0
    for i in range(out.num_commands):
        command = out.commands[i]
        if command.op == Op.PLACE and command.node == n:
            pod_set = w.pod_sets[pod_set_slot(w, command.job, command.pod_set)]
            total += command.pods * pod_set.request[r] if (pod_set.asked >> r) & 1 else 0
    return total
