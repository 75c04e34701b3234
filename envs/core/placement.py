"""Where pods can go: how many fit on a node, and the rules that choose among nodes.

A rule is a score per node; `transactions.plan` puts pods on nodes, best score first. docs/model.md
section 5 has NODE_FITS. To add a rule: a member of `Rule`, and its lines in `_node_score`.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.core.types import MAX_FLAVORS, MAX_GPUS_PER_NODE, NEVER, NONE, ONE_GPU, NodeState, Shape

NO_SCORE = -(1 << 62)
FGD_TIE_MILLI = 40.0  # growths this near are ties, broken by packing (spec/metrics.md section 3)


class Rule(IntEnum):
    """Which node first."""

    PACK = 0  # fewest nodes, then the fullest node that suffices
    SPREAD = 1  # emptiest node first, pod by pod
    TOPOLOGY_AWARE = 2  # smallest domain that holds the job, pack inside it
    FGD = 3  # smallest growth of fragmentation (Weng et al., ATC 2023), near-ties packed
    FIRST = 4  # lowest index


@helper
def flavor_allowed(pod_set: Any, flavor: int) -> bool:
    """Whether a pod set may run on a flavor."""
    for i in range(MAX_FLAVORS):
        if pod_set.flavors[i] == NONE:
            return False
        if pod_set.flavors[i] == flavor:
            return True
    return False


@helper
def own_reserved(w: Any, job: Any, n: int, resource: int) -> int:
    """What a job has reserved on a node."""
    amount = 0
    at = job.first_reservation
    while at != NONE:
        reservation = w.reservations[at]
        if reservation.node == n:
            amount += reservation.amount[resource]
        at = reservation.next
    return amount


@helper
def pods_that_fit(w: Any, job: Any, pod_set: Any, n: int) -> int:
    """Further pods of a pod set that fit on node `n` now (docs/model.md: NODE_FITS); state and flavor are not asked."""
    node = w.nodes[n]
    fit = NEVER
    for r in range(w.params.num_resources):
        request = pod_set.request[r]
        if request == 0 or not (pod_set.asked >> r) & 1:
            continue
        if not (node.has >> r) & 1:
            return 0
        planned = node.planned[r]
        if planned > 0 and job.first_reservation != NONE:
            planned -= own_reserved(w, job, n, r)
        if r == w.params.gpu_resource:
            fit = min(fit, _gpu_fit(node, request, planned))
        else:
            fit = min(fit, max(0, node.idle[r] - planned) // request)
        if fit == 0:
            return 0
    return fit


@helper
def _gpu_fit(node: Any, request: int, planned: int) -> int:
    """Pods with a GPU request (milli-GPU) that fit on a node's devices, `planned` milli-GPU kept for others."""
    empty = node.free_gpus - planned // ONE_GPU
    if request >= ONE_GPU:
        return max(0, empty) // (request // ONE_GPU)
    fit = 0
    for g in range(node.num_gpus):
        left = node.gpu_free[g]
        if left == ONE_GPU:
            if empty <= 0:
                continue
            empty -= 1
        fit += left // request
    return fit


@helper
def node_is_open(w: Any, pod_set: Any, n: int, flavor: int) -> bool:
    """Whether a node takes pods of this pod set at all. `flavor` NONE = any that the pod set allows."""
    node = w.nodes[n]
    if node.state != NodeState.UP:
        return False
    if flavor != NONE:
        return node.flavor == flavor
    return flavor_allowed(pod_set, node.flavor)


@helper
def fits_empty_cluster(w: Any, job: Any) -> bool:
    """Whether all pods of a job could ever be bound: every node up and empty, pod sets in order, nodes filled in index
    order. Jobs of a shape share the answer.
    """
    if w.fits_empty[job.shape] == 0:
        w.fits_empty[job.shape] = 1 if _fill_empty_cluster(w, job) else -1
    return w.fits_empty[job.shape] > 0


@helper
def _fill_empty_cluster(w: Any, job: Any) -> bool:
    """Put all pods of a job on a copy of the empty cluster."""
    idle = w.empty_idle
    free = w.empty_gpus
    for n in range(w.num_nodes):
        for r in range(w.params.num_resources):
            idle[n, r] = w.nodes[n].capacity[r]
        for g in range(MAX_GPUS_PER_NODE):
            free[n, g] = ONE_GPU if g < w.nodes[n].num_gpus else 0
    ps = job.first_pod_set
    while ps != NONE:
        pod_set = w.pod_sets[ps]
        left = pod_set.count
        for n in range(w.num_nodes):
            if flavor_allowed(pod_set, w.nodes[n].flavor):
                while left > 0 and _take_from(w, pod_set, w.nodes[n].has, idle[n], free[n]):
                    left -= 1
        if left > 0:
            return False
        ps = pod_set.next
    return True


@helper
def _take_from(w: Any, pod_set: Any, has: int, idle: Any, free: Any) -> bool:
    """Take one pod's request from idle amounts and GPUs; False, with nothing taken, if it does not fit."""
    gpu = w.params.gpu_resource
    for r in range(w.params.num_resources):
        if (pod_set.asked >> r) & 1 and pod_set.request[r] > 0 and (not (has >> r) & 1 or idle[r] < pod_set.request[r]):
            return False
    request = pod_set.request[gpu] if gpu != NONE and (pod_set.asked >> gpu) & 1 else 0
    if request >= ONE_GPU:
        left = request // ONE_GPU
        empty = 0
        for g in range(len(free)):
            empty += free[g] == ONE_GPU
        if empty < left:
            return False
        for g in range(len(free)):
            if left > 0 and free[g] == ONE_GPU:
                free[g] = 0
                left -= 1
    elif request > 0:
        best = NONE
        for g in range(len(free)):
            if free[g] >= request and (best == NONE or free[g] < free[best]):
                best = g
        if best == NONE:
            return False
        free[best] -= request
    for r in range(w.params.num_resources):
        if (pod_set.asked >> r) & 1:
            idle[r] -= pod_set.request[r]
    return True


@helper
def measure_fit(w: Any, job: Any, pod_set: Any, flavor: int, wanted: int) -> int:
    """Fill `w.fit` with the pods that fit on each node; returns the sum, cut at `wanted` per node."""
    gpu = w.params.gpu_resource
    if gpu != NONE and pod_set.asked == 1 << gpu and pod_set.request[gpu] >= ONE_GPU and job.first_reservation == NONE:
        return _measure_whole_gpus(w, pod_set, flavor, wanted)
    total = 0
    for n in range(w.num_nodes):
        w.fit[n] = 0
        if node_is_open(w, pod_set, n, flavor):
            fit = min(pods_that_fit(w, job, pod_set, n), wanted)
            w.fit[n] = fit
            total += fit
    return total


@helper
def _measure_whole_gpus(w: Any, pod_set: Any, flavor: int, wanted: int) -> int:
    """The same for pods that ask for whole GPUs and nothing else: the commonest search, so it has a loop of its own."""
    gpu = w.params.gpu_resource
    each = pod_set.request[gpu] // ONE_GPU
    allowed = flavor_mask(pod_set) if flavor == NONE else 1 << flavor
    some_are_planned = w.gpus_reserved > 0
    total = 0
    for n in range(w.num_nodes):
        node = w.nodes[n]
        fit = 0
        empty = node.free_gpus
        if some_are_planned:
            empty -= node.planned[gpu] // ONE_GPU
        if empty >= each and node.state == NodeState.UP and (allowed >> node.flavor) & 1 and (node.has >> gpu) & 1:
            while empty >= each and fit < wanted:
                fit += 1
                empty -= each
        w.fit[n] = fit
        total += fit
    return total


@helper
def flavor_mask(pod_set: Any) -> int:
    """Flavors that a pod set may run on, as bits."""
    mask = 0
    for i in range(MAX_FLAVORS):
        if pod_set.flavors[i] == NONE:
            break
        mask |= 1 << pod_set.flavors[i]
    return mask


@helper
def narrow_to_domain(w: Any, topology: int, tier: int, wanted: int) -> bool:
    """Keep in `w.fit` only the smallest sufficient domain at or below a tier; False if none suffices.

    Smallest: lowest tier, then the fewest pods it could hold, then name order.
    """
    for d in range(w.num_domains):
        w.domain_fit[d] = 0
    for n in range(w.num_nodes):
        if w.fit[n] > 0:
            d = w.nodes[n].domain[topology]
            while d != NONE:
                w.domain_fit[d] += w.fit[n]
                d = w.domains[d].parent
    best = NONE
    for d in range(w.num_domains):
        domain = w.domains[d]
        if domain.topology != topology or domain.tier > tier or w.domain_fit[d] < wanted:
            continue
        if best != NONE:
            other = w.domains[best]
            if domain.tier != other.tier:
                if domain.tier > other.tier:
                    continue
            elif w.domain_fit[d] != w.domain_fit[best]:
                if w.domain_fit[d] > w.domain_fit[best]:
                    continue
            elif domain.name_rank > other.name_rank:
                continue
        best = d
    if best == NONE:
        return False
    for n in range(w.num_nodes):
        if w.fit[n] > 0:
            d = w.nodes[n].domain[topology]
            while d != NONE and d != best:
                d = w.domains[d].parent
            if d == NONE:
                w.fit[n] = 0
    return True


@helper
def narrow_by_wish(w: Any, job: Any, rule: int, wanted: int) -> bool:
    """Apply the job's topology wish, or the topology-aware rule, to `w.fit`; False if a required wish cannot be met."""
    if job.topology_wish != Shape.NO_WISH:
        if narrow_to_domain(w, job.topology, job.topology_tier, wanted):
            return True
        return job.topology_wish == Shape.PREFERRED
    if rule == Rule.TOPOLOGY_AWARE and w.num_topologies > 0:
        narrow_to_domain(w, max(w.params.locality_topology, 0), NEVER, wanted)
    return True


@helper
def choose_node(w: Any, pod_set: Any, rule: int, left: int) -> int:
    """Best node for the next pods by a rule, given `w.fit`; NONE if no node takes one."""
    if rule == Rule.PACK:
        return _fullest(w, left)
    best = NONE
    best_score = NO_SCORE
    for n in range(w.num_nodes):
        if w.fit[n] <= 0:
            continue
        score = _node_score(w, pod_set, n, rule, w.fit[n], left)
        if score > best_score:  # ties: lowest index
            best_score = score
            best = n
            if rule == Rule.FIRST:
                break
    return best


@helper
def _fullest(w: Any, left: int) -> int:
    """Best node by `pack`: the commonest rule, so it has a loop of its own."""
    gpu = max(w.params.gpu_resource, 0)
    best = NONE
    best_score = NO_SCORE
    for n in range(w.num_nodes):
        fit = w.fit[n]
        if fit > 0:
            score = _pack_score(w.nodes[n].idle[gpu], fit, left)
            if score > best_score:  # ties: lowest index
                best_score = score
                best = n
    return best


@helper
def _pack_score(idle: int, fit: int, left: int) -> int:
    """A node that holds the rest beats one that does not; there the fullest wins, else the roomiest."""
    return (1 << 50) - idle if fit >= left else (fit << 20) - idle // ONE_GPU


@helper
def pods_per_turn(rule: int, fit: int, left: int) -> int:
    """How many pods go to the chosen node before the rule is asked again."""
    if rule == Rule.SPREAD or rule == Rule.FGD:
        return 1
    return min(fit, left)


@helper
def _node_score(w: Any, pod_set: Any, n: int, rule: int, fit: int, left: int) -> int:
    """Score of a node by a rule; the highest wins."""
    node = w.nodes[n]
    idle = node.idle[max(w.params.gpu_resource, 0)]
    if rule == Rule.SPREAD:
        return idle
    if rule == Rule.FGD and w.params.gpu_resource != NONE:
        growth = fragmentation(w, pod_set, n, True) - fragmentation(w, pod_set, n, False)
        return -math.floor(growth / FGD_TIE_MILLI) * (1 << 30) - idle
    if rule == Rule.FIRST:
        return -n
    return _pack_score(idle, fit, left)  # inside the domain that topology_aware has chosen


@helper
def fragmentation(w: Any, pod_set: Any, n: int, with_pod: bool) -> float:
    """Expected fragmentation (milli-GPU) of a node over the world's task classes, now or with one more pod.

    F_n = sum over classes of popularity x (all that is left, if the class cannot run there; else what is left on GPUs
    too small for it). Source: Weng et al., ATC 2023, section 4; spec/metrics.md section 3.
    """
    node = w.nodes[n]
    gpu = w.params.gpu_resource
    request = pod_set.request[gpu] if with_pod else 0
    whole = request // ONE_GPU if request >= ONE_GPU else 0  # GPUs that the pod takes whole
    shared = fullest_gpu(node, request) if 0 < request < ONE_GPU else NONE
    total = 0.0
    for c in range(w.num_frag_classes):
        task = w.frag_classes[c]
        wants = task.request[gpu]
        each = min(wants, ONE_GPU)
        devices = max(wants // ONE_GPU, 1)
        runs = wants > 0
        for r in range(w.params.num_resources):
            taken = pod_set.request[r] if with_pod else 0
            if r != gpu and (task.asked >> r) & 1 and task.request[r] > node.idle[r] - taken:
                runs = False
        left_total = 0
        too_small = 0
        big_enough = 0
        to_take = whole
        for g in range(node.num_gpus):
            left = node.gpu_free[g]
            if g == shared:
                left -= request
            elif to_take > 0 and left == ONE_GPU:
                left = 0
                to_take -= 1
            left_total += left
            if left >= each:
                big_enough += 1
            else:
                too_small += left
        total += task.popularity * (too_small if runs and big_enough >= devices else left_total)
    return total


@helper
def fullest_gpu(node: Any, request: int) -> int:
    """GPU with the least left that still takes a fraction; lowest index on ties; NONE."""
    best = NONE
    for g in range(node.num_gpus):
        if node.gpu_free[g] >= request and (best == NONE or node.gpu_free[g] < node.gpu_free[best]):
            best = g
    return best
