"""Topology domains: what fits into each, and in what order they are looked at.

Source: Kueue pkg/cache/scheduler/tas_flavor_snapshot.go `fillInCountsHelper`, `sortedDomains`; spec/kueue.md 10.
"""

from __future__ import annotations

from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER, NONE


@helper
def count_domains(w: Any, k: Any, ps: int, leader: int, t: int, slice_level: int, slice_size: int) -> None:
    """Fill pods and slices of every domain, alone and beside the leader, from the leaves up."""
    request = k.pod_sets[ps].request
    for level in range(k.num_levels[t] - 1, -1, -1):
        for d in range(w.num_domains):
            domain = k.domains[d]
            if w.domains[d].topology != t or domain.level != level:
                continue
            domain.slices = 0
            domain.slices_led = 0
            if level == k.num_levels[t] - 1:
                domain.pods = pods_in(w, k, d, ps, NONE)
                domain.leaders = 0
                domain.pods_led = domain.pods
                if leader != NONE and pods_in(w, k, d, leader, NONE) > 0:
                    domain.leaders = 1
                    domain.pods_led = pods_in(w, k, d, ps, leader)
            else:
                sum_children(k, d, layer_at(k, t, request, level + 1) if level + 1 > slice_level else 0)
            if level == slice_level:
                domain.slices = domain.pods // slice_size
                domain.slices_led = domain.pods_led // slice_size


@helper
def sum_children(k: Any, d: int, unit: int) -> None:
    """Pods and slices of a domain from its children's; a child under an inner layer counts in whole units of it."""
    domain = k.domains[d]
    domain.pods = 0
    domain.leaders = 0
    least_pods = NEVER
    least_slices = NEVER
    at = domain.first_child
    while at != NONE:
        child = k.domains[at]
        pods = child.pods
        pods_led = child.pods_led
        if unit > 0:
            pods = pods // unit * unit
            pods_led = pods_led // unit * unit
        domain.pods += pods
        domain.slices += child.slices
        if child.leaders > 0:
            domain.leaders = 1
            least_pods = min(least_pods, pods - pods_led)
            least_slices = min(least_slices, child.slices - child.slices_led)
        at = child.next
    domain.pods_led = domain.pods - (least_pods if domain.leaders > 0 else 0)
    domain.slices_led = domain.slices - (least_slices if domain.leaders > 0 else 0)


@helper
def pods_in(w: Any, k: Any, d: int, ps: int, beside: int) -> int:
    """Pods of a pod set that fit into a leaf, beside one pod of another (NONE)."""
    fit = NEVER
    for r in range(w.params.num_resources):
        request = w.pod_sets[ps].request[r]
        if not (w.pod_sets[ps].asked >> r) & 1 or request == 0:
            continue
        room = k.room[d, r]
        if beside != NONE and (w.pod_sets[beside].asked >> r) & 1:
            room -= w.pod_sets[beside].request[r]
        fit = min(fit, max(0, room) // request)
    return fit


@helper
def layer_at(k: Any, t: int, request: int, level: int) -> int:
    """Size in whose multiples pods come at a level below the slice level: of the next inner layer; 0 = none."""
    if request != NONE:
        for i in range(1, k.requests[request].num_layers):
            if level <= level_index(k, t, k.requests[request].layer_level[i]):
                return k.requests[request].layer_size[i]
    return 0


@helper
def level_index(k: Any, t: int, name: int) -> int:
    """Level of a topology with a name, 0 = coarsest; NONE."""
    for level in range(k.num_levels[t]):
        if k.level_names[t, level] == name:
            return level
    return NONE


@helper
def add_children(k: Any, d: int, n: int) -> int:
    """Append a domain's children to `k.order`; returns the new length."""
    at = k.domains[d].first_child
    while at != NONE:
        k.order[n] = at
        n += 1
        at = k.domains[at].next
    return n


@helper
def sort_domains(w: Any, k: Any, first: int, n: int, is_led: bool, is_least_free: bool) -> None:
    """Put `k.order[first:n]` in order (Shell sort)."""
    gap = (n - first) // 2
    while gap > 0:
        for i in range(first + gap, n):
            moving = k.order[i]
            j = i
            while j >= first + gap and domain_precedes(w, k, moving, k.order[j - gap], is_led, is_least_free):
                k.order[j] = k.order[j - gap]
                j -= gap
            k.order[j] = moving
        gap //= 2


@helper
def domain_precedes(w: Any, k: Any, a: int, b: int, is_led: bool, is_least_free: bool) -> bool:
    """Order of domains: those that can lead, more slices (fewer with least free capacity), fewer pods, names."""
    one = k.domains[a]
    two = k.domains[b]
    if is_led and one.leaders != two.leaders:
        return one.leaders > two.leaders
    if is_led and k.spares_workers:
        loss = one.pods - one.pods_led
        other_loss = two.pods - two.pods_led
        if loss != other_loss:
            return loss < other_loss
    slices = one.slices_led if is_led else one.slices
    other_slices = two.slices_led if is_led else two.slices
    if slices != other_slices:
        return (slices < other_slices) == is_least_free
    if one.pods != two.pods:
        return one.pods < two.pods
    return name_precedes(w, a, b)


@helper
def name_precedes(w: Any, a: int, b: int) -> bool:
    """Order of two domains of a level by the values of their levels from the top."""
    while w.domains[a].parent != w.domains[b].parent:
        a = w.domains[a].parent
        b = w.domains[b].parent
    return w.domains[a].name_rank < w.domains[b].name_rank
