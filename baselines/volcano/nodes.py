"""Which nodes a task can go to, and which is best: predicates, binpack, nodeorder, the search over many nodes.

Source: volcano-sh/volcano pkg/scheduler/plugins/{predicates,binpack,nodeorder}, pkg/scheduler/util/scheduler_helper.go;
kubernetes pkg/scheduler/framework/plugins/noderesources.
"""

from __future__ import annotations

import math
from typing import Any

from gangline.baselines.volcano.gang import is_on
from gangline.baselines.volcano.resources import fits, is_scalar, vector
from gangline.baselines.volcano.session import ASSUMED_CPU, ASSUMED_MEMORY, nominated_node
from gangline.baselines.volcano.state import ALL_NODES, NO_QUOTA, Kind, Point
from gangline.baselines.volcano.topology import add_topology_scores, in_domain
from gangline.envs.core.compiled import helper
from gangline.envs.core.placement import node_is_open, pods_that_fit
from gangline.envs.core.transactions import quota_suffices
from gangline.envs.core.types import MAX_FLAVORS, MAX_RESOURCES, NONE, ONE_GPU, Quota

FEW_NODES = 100  # all of them are looked at


@helper
def predicates_pass(w: Any, k: Any, ps: int, n: int, with_slots: bool) -> bool:
    """Node up, flavor and selector right, and (with_slots) a pod slot left. Resources are the action's business."""
    s = k.sets[ps]
    if not k.nodes[n].is_up or s.quota_flavor == NO_QUOTA or not node_is_open(w, w.pod_sets[ps], n, s.quota_flavor):
        return False
    for i in range(k.num_plugins):
        if k.plugins[i].kind == Kind.PREDICATES and is_on(k, i, Point.PREDICATE):
            if s.nodes != ALL_NODES and not (n < 64 and (s.nodes >> n) & 1):
                return False
            if with_slots and k.pods != NONE and k.nodes[n].num_pods >= w.nodes[n].capacity[k.pods]:
                return False
    return True


@helper
def find_quota(w: Any, k: Any, slot: int) -> None:
    """In a world that enforces quota: the flavor in which each pod set has quota, or will get it."""
    job = w.jobs[slot]
    ps = job.first_pod_set
    while ps != NONE:
        pod_set = w.pod_sets[ps]
        flavor = NONE
        if w.params.quota == Quota.ENFORCED and job.queue != NONE:
            flavor = NO_QUOTA
            if job.is_admitted:
                for r in range(w.params.num_resources):
                    if (pod_set.asked >> r) & 1 and pod_set.admitted_flavor[r] != NONE:
                        flavor = pod_set.admitted_flavor[r]
            else:
                for i in range(MAX_FLAVORS):
                    f = pod_set.flavors[i]
                    if f == NONE or f >= w.num_flavors:
                        break
                    if flavor == NO_QUOTA and quota_suffices(w, job, pod_set, pod_set.count - pod_set.num_done, f):
                        flavor = f
        elif w.params.quota == Quota.ENFORCED:
            flavor = pod_set.admitted_flavor[0] if job.is_admitted else pod_set.flavors[0]
        k.sets[ps].quota_flavor = flavor
        ps = pod_set.next


@helper
def future_idle(k: Any, n: int, r: int) -> float:
    """What a node will have: idle + releasing - pipelined."""
    node = k.nodes[n]
    return node.idle[r] + node.releasing[r] - node.pipelined[r]


@helper
def fits_future(w: Any, k: Any, ps: int, n: int, more: Any) -> bool:
    """Whether a pod will fit on a node, with `more` freed there."""
    pod_set = w.pod_sets[ps]
    for r in range(MAX_RESOURCES):
        if is_scalar(k, r) and not (pod_set.asked >> r) & 1:
            continue
        if pod_set.request[r] - (future_idle(k, n, r) + more[r]) >= k.tolerance[r]:
            return False
    return True


@helper
def fits_idle(w: Any, k: Any, slot: int, ps: int, n: int) -> bool:
    """Whether a pod fits on a node now; of GPUs, on devices that can hold it."""
    pod_set = w.pod_sets[ps]
    if not fits(k, pod_set.request, pod_set.asked, k.nodes[n].idle):
        return False
    gpu = w.params.gpu_resource
    if gpu != NONE and pod_set.request[gpu] > 0:
        if pod_set.request[gpu] % ONE_GPU == 0:
            return k.nodes[n].whole_gpus * ONE_GPU >= pod_set.request[gpu]
        return pods_that_fit(w, w.jobs[slot], pod_set, n) > k.nodes[n].fractions
    return True


@helper
def nodes_to_find(num_nodes: int) -> int:
    """How many feasible nodes end the search in a large cluster."""
    if num_nodes <= FEW_NODES:
        return num_nodes
    return max(FEW_NODES, num_nodes * max(5, 50 - num_nodes // 125) // 100)


@helper
def find_node(w: Any, k: Any, slot: int, ps: int, domain: int, with_slots: bool) -> int:
    """Best node for a task within a domain: of those with room now if there are any, else of those that will have it.
    A node on which room was made for it, and where it still fits, is taken unasked.

    Returns: n if the task can be allocated, -2 - n if it can only be pipelined, NONE if there is no node. Volcano draws
    among equally scored nodes; here the first in the order of the search wins.
    """
    nothing = vector()
    n = nominated_node(k, slot, ps)
    is_near = n != NONE and (domain == NONE or in_domain(w, k, n, domain))
    if is_near and predicates_pass(w, k, ps, n, with_slots) and fits_future(w, k, ps, n, nothing):
        return n if fits_idle(w, k, slot, ps, n) else -2 - n
    wanted = nodes_to_find(w.num_nodes)
    num_now = 0
    num_later = 0
    looked = 0
    while looked < w.num_nodes and num_now + num_later < wanted:
        n = (k.last_index + looked) % w.num_nodes if w.num_nodes > FEW_NODES else looked
        looked += 1
        if domain != NONE and not in_domain(w, k, n, domain):
            continue
        if not predicates_pass(w, k, ps, n, with_slots) or not fits_future(w, k, ps, n, nothing):
            continue
        if fits_idle(w, k, slot, ps, n):
            k.feasible[num_now] = n
            num_now += 1
        else:
            num_later += 1
            k.feasible[w.num_nodes - num_later] = n
    if w.num_nodes > FEW_NODES:
        k.last_index = (k.last_index + looked) % w.num_nodes
    if num_now > 0:
        return _best_of(w, k, slot, ps, 0, num_now)
    if num_later == 0:
        return NONE
    first = w.num_nodes - num_later
    for i in range(num_later // 2):  # they were written from the end
        j = num_later - 1 - i
        k.feasible[first + i], k.feasible[first + j] = k.feasible[first + j], k.feasible[first + i]
    return -2 - _best_of(w, k, slot, ps, first, num_later)


@helper
def _best_of(w: Any, k: Any, slot: int, ps: int, first: int, count: int) -> int:
    if count == 1:
        return k.feasible[first]
    score_nodes(w, k, slot, ps, first, count)
    best = k.feasible[first]
    for i in range(first + 1, first + count):
        if k.score[k.feasible[i]] > k.score[best]:
            best = k.feasible[i]
    return best


@helper
def score_nodes(w: Any, k: Any, slot: int, ps: int, first: int, count: int) -> None:
    """Scores of `k.feasible[first:first+count]`, into `k.score` by node: the plain sum over the plugins."""
    for i in range(first, first + count):
        k.score[k.feasible[i]] = 0
    for p in range(k.num_plugins):
        if not is_on(k, p, Point.NODE_ORDER):
            continue
        kind = k.plugins[p].kind
        if kind == Kind.TOPOLOGY:
            add_topology_scores(w, k, slot, ps, first, count)
        elif kind == Kind.BINPACK:
            for i in range(first, first + count):
                k.score[k.feasible[i]] += binpack_score(w, k, ps, k.feasible[i])
        elif kind == Kind.NODEORDER:
            for i in range(first, first + count):
                k.score[k.feasible[i]] += nodeorder_score(w, k, ps, k.feasible[i])


@helper
def binpack_score(w: Any, k: Any, ps: int, n: int) -> float:
    """Fullness after the placement, over the requested dimensions that have a weight; 0 if one does not fit."""
    total = 0.0
    weights = 0.0
    for r in range(MAX_RESOURCES):
        request = w.pod_sets[ps].request[r]
        weight = k.binpack[r]
        if request == 0 or weight < 0 or r == k.pods:
            continue
        capacity = w.nodes[n].capacity[r]
        used = k.nodes[n].used[r] + request
        weights += weight
        if weight == 0 or capacity == 0:
            continue
        if used > capacity:
            return 0.0
        total += weight * used / capacity
    return k.binpack_weight * 100 * total / weights if weights > 0 else 0.0


@helper
def nodeorder_score(w: Any, k: Any, ps: int, n: int) -> float:
    """Kubernetes' scores by resources; the others are the same for all nodes here."""
    score = 0.0
    if k.least_requested != 0:
        score += k.least_requested * requested_score(w, k, ps, n, True)
    if k.most_requested != 0:
        score += k.most_requested * requested_score(w, k, ps, n, False)
    if k.balanced != 0:
        score += k.balanced * balanced_score(w, k, ps, n)
    return score


@helper
def requested_score(w: Any, k: Any, ps: int, n: int, least: bool) -> int:
    """LeastAllocated or MostAllocated: integer mean over cpu and memory."""
    total = 0
    count = 0
    for r in (k.cpu, k.memory):
        if r == NONE or w.nodes[n].capacity[r] == 0:
            continue
        capacity = w.nodes[n].capacity[r]
        assumed = k.nodes[n].assumed_cpu if r == k.cpu else k.nodes[n].assumed_memory
        request = w.pod_sets[ps].request[r]
        if request == 0:
            request = ASSUMED_CPU if r == k.cpu else ASSUMED_MEMORY
        used = int(k.nodes[n].used[r] + assumed) + request
        count += 1
        if used <= capacity:
            total += ((capacity - used) if least else used) * 100 // capacity
        elif not least:
            total += 100
    return total // count if count > 0 else 0


@helper
def balanced_score(w: Any, k: Any, ps: int, n: int) -> int:
    """BalancedAllocation since Kubernetes 1.36: how the placement changes the balance; 75 = not at all."""
    return 50 + (50 + _balance(w, k, ps, n, 1) - _balance(w, k, ps, n, 0)) // 2


@helper
def _balance(w: Any, k: Any, ps: int, n: int, pods: int) -> int:
    total = 0.0
    squares = 0.0
    least = 1.0
    most = 0.0
    count = 0
    for r in (k.cpu, k.memory, k.gpu):
        if r == NONE or w.nodes[n].capacity[r] == 0 or (r == k.gpu and w.pod_sets[ps].request[r] == 0):
            continue
        used = k.nodes[n].used[r] + pods * w.pod_sets[ps].request[r]
        fraction = min(1.0, used / w.nodes[n].capacity[r])
        total += fraction
        squares += fraction * fraction
        least = min(least, fraction)
        most = max(most, fraction)
        count += 1
    deviation = 0.0
    if count == 2:
        deviation = (most - least) / 2
    elif count > 2:
        deviation = math.sqrt(max(0.0, squares / count - (total / count) ** 2))
    return math.floor(100 * (1 - deviation))
