"""The network-topology-aware plugin: hypernodes, gradients of domains, scores.

Hypernodes are the domains of one topology of the world; above those without a parent stands a virtual root, whose index
is `w.num_domains`. Source: volcano-sh/volcano pkg/scheduler/plugins/network-topology-aware, pkg/scheduler/api/
hyper_node_info.go, pkg/scheduler/framework/session.go.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.volcano.resources import EVERYTHING, less_equal, vector, zero
from gangline.baselines.volcano.state import Kind, Point
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import MAX_RESOURCES, NONE, PodState


@helper
def leaf_of(w: Any, k: Any, n: int) -> int:
    """Lowest hypernode of a node; NONE."""
    return NONE if k.topology == NONE else w.nodes[n].domain[k.topology]


@helper
def above(w: Any, d: int) -> int:
    """Parent of a hypernode: the virtual root of those without one; NONE of the root."""
    if d == w.num_domains:
        return NONE
    return w.num_domains if w.domains[d].parent == NONE else w.domains[d].parent


@helper
def tier_of(w: Any, k: Any, d: int) -> int:
    """Tier of a hypernode."""
    return k.max_tier if d == w.num_domains else w.domains[d].tier


@helper
def is_within(w: Any, inner: int, outer: int) -> bool:
    """Whether a hypernode is another one, or below it."""
    while inner != NONE:
        if inner == outer:
            return True
        inner = above(w, inner)
    return False


@helper
def in_domain(w: Any, k: Any, n: int, d: int) -> bool:
    """Whether a node is in a hypernode; every node is in the virtual root."""
    if d == w.num_domains:
        return True
    leaf = leaf_of(w, k, n)
    return leaf != NONE and is_within(w, leaf, d)


@helper
def common(w: Any, a: int, b: int) -> int:
    """Lowest hypernode that contains both; the other one where one is NONE."""
    if a == NONE:
        return b
    if b == NONE:
        return a
    while not is_within(w, b, a):
        a = above(w, a)
    return a


@helper
def charge_domains(w: Any, k: Any, n: int, request: Any, sign: int) -> None:
    """What is used in the hypernodes of a node."""
    if k.topology == NONE:
        return
    d = leaf_of(w, k, n)
    d = w.num_domains if d == NONE else d
    while d != NONE:
        for r in range(MAX_RESOURCES):
            k.domain_used[d, r] += sign * request[r]
        d = above(w, d)


@helper
def open_domains(w: Any, k: Any) -> None:
    """Sums over the hypernodes, and where jobs and sub-groups have their pods."""
    if k.topology == NONE:
        return
    k.max_tier = 0
    k.min_tier = 1 << 30
    for d in range(w.num_domains):
        if w.domains[d].topology == k.topology:
            k.max_tier = max(k.max_tier, w.domains[d].tier)
            k.min_tier = min(k.min_tier, w.domains[d].tier)
    k.max_tier += 1
    for d in range(w.num_domains + 1):
        zero(k.domain_total[d])
        zero(k.domain_used[d])
        zero(k.domain_idle[d])
        zero(k.domain_future[d])
    for n in range(w.num_nodes):
        if not k.nodes[n].is_up:
            continue
        d = leaf_of(w, k, n)
        d = w.num_domains if d == NONE else d
        while d != NONE:
            for r in range(MAX_RESOURCES):
                node = k.nodes[n]
                k.domain_total[d, r] += w.nodes[n].capacity[r]
                k.domain_used[d, r] += node.used[r]
                k.domain_idle[d, r] += node.idle[r]
                k.domain_future[d, r] += node.idle[r] + node.releasing[r]
            d = above(w, d)
    for slot in range(w.jobs_used):
        if k.jobs[slot].is_in and (k.jobs[slot].has_wish or k.jobs[slot].num_sub_jobs > 0):
            _find_allocated(w, k, slot)


@helper
def _find_allocated(w: Any, k: Any, slot: int) -> None:
    """The allocated hypernode: dropped without allocated tasks, found anew where it is not known."""
    job = k.jobs[slot]
    for i in range(job.first_sub_job, job.first_sub_job + job.num_sub_jobs):
        k.sub_jobs[i].bound_hypernode = NONE
    found = NONE
    at = w.jobs[slot].first_pod
    while at != NONE:
        pod = w.pods[at]
        if pod.state == PodState.BOUND:
            leaf = leaf_of(w, k, pod.node)
            leaf = w.num_domains if leaf == NONE else leaf
            found = common(w, found, leaf)
            i = k.sets[pod.pod_set].sub_job
            if i != NONE:
                k.sub_jobs[i].bound_hypernode = common(w, k.sub_jobs[i].bound_hypernode, leaf)
        at = pod.next
    for i in range(job.first_sub_job, job.first_sub_job + job.num_sub_jobs):
        s = k.sub_jobs[i]
        if s.bound_hypernode == NONE or s.allocated_hypernode == NONE:
            s.allocated_hypernode = s.bound_hypernode
        s.committed_hypernode = s.allocated_hypernode
    if found == NONE or job.allocated_hypernode == NONE:
        job.allocated_hypernode = found


# ---------------------------------------------------------------------------------------------------------------
# Gradients
# ---------------------------------------------------------------------------------------------------------------


@helper
def has_gradient(k: Any) -> bool:
    """Whether the plugin offers domains."""
    for i in range(k.num_plugins):
        if k.plugins[i].kind == Kind.TOPOLOGY and is_enabled(k, i, Point.HYPERNODE_GRADIENT):
            return True
    return False


@helper
def is_enabled(k: Any, i: int, point: int) -> bool:
    """Whether a plugin's extension point is enabled."""
    return (k.plugins[i].enabled >> point) & 1 == 1


@helper
def is_kept(k: Any, wanted: Any, idle: Any, future: Any) -> bool:
    """Whether a domain may hold what is wanted at least, now or once what is releasing is gone."""
    return less_equal(k, wanted, EVERYTHING, idle, EVERYTHING, False) or less_equal(
        k, wanted, EVERYTHING, future, EVERYTHING, False
    )


@helper
def find_gradient(
    w: Any, k: Any, level: int, root: int, is_hard: bool, limit: int, allocated: int, wanted: Any, evicts: bool
) -> int:
    """Domains below `root` for a job (level 0) or a sub-group of it (1), by ascending tier, into `k.domains[level]`.

    Args:
        limit: highest tier allowed; NONE = the root's.
        allocated: hypernode of what is placed already; NONE = nothing is.
        wanted: what a domain has to hold at least, asked only if nothing is placed.
        evicts: everything in the domain might go; wide domains first, and only some.
    Returns: how many.
    """
    if not is_hard or not has_gradient(k):
        k.domains[level, 0] = root
        return 1
    limit = k.max_tier if limit == NONE else limit
    search = root
    if allocated != NONE:
        highest = NONE
        at = allocated
        while at != NONE and tier_of(w, k, at) <= limit:
            highest = at
            at = above(w, at)
        if highest == NONE:
            return 0
        if is_within(w, highest, root):
            search = highest
        elif not is_within(w, root, highest):
            return 0
    count = 0
    for tier in range(k.max_tier + 1):
        for d in range(w.num_domains + 1):
            if tier_of(w, k, d) != tier or tier > limit or not is_within(w, d, search):
                continue
            if d < w.num_domains and w.domains[d].topology != k.topology:
                continue
            if allocated == NONE:
                total = k.domain_total[d]
                if not evicts and not is_kept(k, wanted, k.domain_idle[d], k.domain_future[d]):
                    continue
                if evicts and not is_kept(k, wanted, total, total):
                    continue
            k.domains[level, count] = d
            k.domain_tiers[level, count] = tier
            count += 1
    return reverse_and_cap(k, level, count, k.max_evict_domains) if evicts else count


@helper
def reverse_and_cap(k: Any, level: int, count: int, most: int) -> int:
    """For an eviction: wide domains first, those of a tier as they stand, at most `most` in all (0 = as it is). Of a
    tier that is cut the last ones stay. Returns how many are left.
    """
    if most <= 0:
        return count
    _reverse(k, level, 0, count)
    left = 0
    first = 0
    while first < count and left < most:
        end = first
        while end < count and k.domain_tiers[level, end] == k.domain_tiers[level, first]:
            end += 1
        _reverse(k, level, first, end)
        skipped = max(0, end - first - (most - left))
        for i in range(first + skipped, end):
            k.domains[level, left] = k.domains[level, i]
            k.domain_tiers[level, left] = k.domain_tiers[level, i]
            left += 1
        first = end
    return left


@helper
def _reverse(k: Any, level: int, first: int, end: int) -> None:
    for i in range((end - first) // 2):
        a, b = first + i, end - 1 - i
        k.domains[level, a], k.domains[level, b] = k.domains[level, b], k.domains[level, a]
        k.domain_tiers[level, a], k.domain_tiers[level, b] = k.domain_tiers[level, b], k.domain_tiers[level, a]


@helper
def pick_domains(k: Any, count: int, most: int, fallback: int) -> int:
    """The first `most` different domains of a job's gradient, into `k.picked`; the fallback if there is none and it is
    not NONE. Returns how many.
    """
    picked = 0
    for i in range(count):
        is_new = True
        for j in range(picked):
            is_new = is_new and k.picked[j] != k.domains[0, i]
        if is_new:
            k.picked[picked] = k.domains[0, i]
            picked += 1
            if most > 0 and picked >= most:
                return picked
    if picked == 0 and fallback != NONE:
        k.picked[0] = fallback
        picked = 1
    return picked


# ---------------------------------------------------------------------------------------------------------------
# Scores
# ---------------------------------------------------------------------------------------------------------------


@helper
def fullness(k: Any, request: Any, d: int) -> float:
    """Weighted mean of (used + request) / allocatable of a hypernode; 0 if something does not fit."""
    total = 0.0
    weights = 0.0
    for r in range(MAX_RESOURCES):
        weight = k.topology_binpack[r]
        if weight < 0 or request[r] <= 0 or r == k.pods:
            continue
        used = k.domain_used[d, r] + request[r]
        if used > k.domain_total[d, r]:
            return 0.0
        weights += weight
        total += weight * used / k.domain_total[d, r]
    return total / weights if weights > 0 else 0.0


@helper
def sum_requests(w: Any, k: Any, slot: int, sub_job: int, only_pending: bool, into: Any) -> int:
    """What the tasks of a job or sub-group ask for, into a vector; returns how many tasks they are."""
    zero(into)
    tasks = 0
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        s = k.sets[ps]
        if sub_job == NONE or s.sub_job == sub_job:
            count = s.pending if only_pending else s.pending + s.ready + s.pipelined
            tasks += count
            for r in range(MAX_RESOURCES):
                into[r] += count * w.pod_sets[ps].request[r]
        ps = w.pod_sets[ps].next
    return tasks


@helper
def tasks_within(w: Any, k: Any, slot: int, sub_job: int, d: int) -> int:
    """Bound or placed tasks of a job or sub-group in a hypernode."""
    count = 0
    at = w.jobs[slot].first_pod
    while at != NONE:
        pod = w.pods[at]
        is_meant = sub_job == NONE or k.sets[pod.pod_set].sub_job == sub_job
        if is_meant and pod.state == PodState.BOUND and in_domain(w, k, pod.node, d):
            count += 1
        at = pod.next
    for i in range(k.num_ops):
        op = k.ops[i]
        is_meant = op.slot == slot and (sub_job == NONE or k.sets[op.pod_set].sub_job == sub_job)
        if is_meant and op.pod == NONE and in_domain(w, k, op.node, d):
            count += 1
    return count


@helper
def hypernode_scores(w: Any, k: Any, slot: int, sub_job: int, level: int, first: int, count: int, into: Any) -> None:
    """Scores of `k.domains[level, first:first+count]` for a sub-group."""
    request = vector()
    tasks = sum_requests(w, k, slot, sub_job, False, request)
    for i in range(count):
        into[i] = 0
    for p in range(k.num_plugins):
        if k.plugins[p].kind != Kind.TOPOLOGY or not is_enabled(k, p, Point.HYPERNODE_ORDER):
            continue
        best = 0.0
        ties = 0
        for i in range(count):
            into[i] = fullness(k, request, k.domains[level, first + i])
            if into[i] > best:
                best = into[i]
                ties = 0
            ties += into[i] == best
        for i in range(count):
            if ties > 1 and into[i] == best and tasks > 0:
                into[i] += tasks_within(w, k, slot, sub_job, k.domains[level, first + i]) / tasks
            into[i] *= 100 * k.topology_weight


@helper
def add_topology_scores(w: Any, k: Any, slot: int, ps: int, first: int, count: int) -> None:
    """Node scores: near what is allocated for topology pods, into full hypernodes for the others."""
    if k.topology == NONE:
        return
    sub_job = k.sets[ps].sub_job
    has_own = sub_job != NONE and k.sub_jobs[sub_job].limit != NONE
    if not k.jobs[slot].has_wish and not has_own:
        if k.scores_normal_pods:
            for i in range(first, first + count):
                n = k.feasible[i]
                k.score[n] += 100 * k.topology_weight * _normal_score(w, k, ps, n)
        return
    allocated = k.jobs[slot].allocated_hypernode
    if sub_job != NONE and k.sub_jobs[sub_job].allocated_hypernode != NONE:
        allocated = k.sub_jobs[sub_job].allocated_hypernode
    if allocated == NONE:
        return
    best = 0.0
    ties = 0
    for i in range(first, first + count):
        near = _nearness(w, k, k.feasible[i], allocated)
        if near > best:
            best = near
            ties = 0
        ties += near == best
    request = vector()
    tasks = sum_requests(w, k, slot, sub_job, False, request)
    for i in range(first, first + count):
        n = k.feasible[i]
        near = _nearness(w, k, n, allocated)
        if ties > 1 and near == best and tasks > 0 and leaf_of(w, k, n) != NONE:
            near += tasks_within(w, k, slot, sub_job, leaf_of(w, k, n)) / tasks
        k.score[n] += 100 * k.topology_weight * near


@helper
def _nearness(w: Any, k: Any, n: int, allocated: int) -> float:
    leaf = leaf_of(w, k, n)
    if leaf == NONE or tier_of(w, k, leaf) != k.min_tier:
        return 0.0
    if leaf == allocated:
        return 1.0
    top = common(w, leaf, allocated)
    return (k.max_tier - tier_of(w, k, top)) / (k.max_tier - k.min_tier) if k.max_tier > k.min_tier else 0.0


@helper
def _normal_score(w: Any, k: Any, ps: int, n: int) -> float:
    """Mean fullness of the hypernodes above a node, lower tiers counting more; 1 where it belongs to none."""
    request = vector()
    for r in range(MAX_RESOURCES):
        request[r] = w.pod_sets[ps].request[r]
    total = 0.0
    weights = 0.0
    for tier in range(k.min_tier, k.max_tier + 1):
        weight = 1.0
        for _ in range(tier - 1):
            weight *= k.fading
        own = NONE
        d = leaf_of(w, k, n)
        d = w.num_domains if d == NONE else d
        while d != NONE:
            if tier_of(w, k, d) == tier:
                own = d
            d = above(w, d)
        weights += weight
        total += weight * (1.0 if own == NONE else fullness(k, request, own))
    return total / weights if weights > 0 else 0.0
