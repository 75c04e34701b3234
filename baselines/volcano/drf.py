"""The drf plugin: dominant shares of jobs, and the hierarchical shares of queues.

Source: volcano-sh/volcano pkg/scheduler/plugins/drf/drf.go, hdrf.go.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.volcano.resources import share_of, zero
from gangline.baselines.volcano.state import MAX_DEPTH
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import MAX_RESOURCES, NONE

SHARE_DELTA = 1e-6


@helper
def build_tree(w: Any, k: Any) -> None:
    """Shares of the inner nodes, from the jobs up. Called whenever it is asked for: jobs move in between."""
    for i in range(k.num_hdrf):
        node = k.tree[i]
        zero(node.allocated)
        node.is_saturated = True
        node.share = 0.0
    deepest = MAX_DEPTH
    for depth in range(deepest, -1, -1):
        for i in range(k.num_hdrf):
            if k.tree[i].depth == depth:
                _build_node(w, k, i)


@helper
def _build_node(w: Any, k: Any, i: int) -> None:
    """Allocated amounts, share and saturation of one node from its children, inner nodes and jobs."""
    node = k.tree[i]
    smallest = 1.0
    is_saturated = True
    for child in range(k.num_hdrf):
        other = k.tree[child]
        if other.parent == i:
            is_saturated = is_saturated and other.is_saturated
            if other.share > 0 and not other.is_saturated:
                smallest = min(smallest, other.share)
    for slot in range(w.jobs_used):
        if _is_child(k, slot, i):
            saturated = _job_saturated(w, k, slot)
            is_saturated = is_saturated and saturated
            if k.jobs[slot].share > 0 and not saturated:
                smallest = min(smallest, k.jobs[slot].share)
    for child in range(k.num_hdrf):
        other = k.tree[child]
        if other.parent == i and other.share > 0:
            scale = 1.0 if other.is_saturated else smallest / other.share
            for r in range(MAX_RESOURCES):
                node.allocated[r] += other.allocated[r] * scale
    for slot in range(w.jobs_used):
        job = k.jobs[slot]
        if _is_child(k, slot, i) and job.share > 0:
            scale = 1.0 if _job_saturated(w, k, slot) else smallest / job.share
            for r in range(MAX_RESOURCES):
                node.allocated[r] += job.allocated[r] * scale
    node.is_saturated = is_saturated
    for r in range(MAX_RESOURCES):
        node.share = max(node.share, share_of(node.allocated[r], k.total[r]))


@helper
def _is_child(k: Any, slot: int, i: int) -> bool:
    """Whether a job hangs under a node of the tree: the last one of its queue's path."""
    job = k.jobs[slot]
    return job.is_in and last_of_path(k, job.queue) == i


@helper
def last_of_path(k: Any, q: int) -> int:
    """The node that a queue's jobs hang under; NONE."""
    last = NONE
    for depth in range(MAX_DEPTH):
        if k.queues[q].path[depth] == NONE:
            break
        last = k.queues[q].path[depth]
    return last


@helper
def _job_saturated(w: Any, k: Any, slot: int) -> bool:
    """It has all that it asks for of something, or asks for something of which nothing is left."""
    job = k.jobs[slot]
    for r in range(MAX_RESOURCES):
        request = job.allocated[r]
        ps = w.jobs[slot].first_pod_set
        while ps != NONE:
            request += k.sets[ps].pending * w.pod_sets[ps].request[r]
            ps = w.pod_sets[ps].next
        if job.allocated[r] > 0 and request > 0 and job.allocated[r] >= request:
            return True
        if request > 0 and not _is_demanding(w, k, r):
            return True
    return False


@helper
def _is_demanding(w: Any, k: Any, r: int) -> bool:
    """Whether the cluster's total of a resource is not used up."""
    used = 0.0
    for q in range(k.num_queues):
        if k.queues[q].num_jobs > 0:
            used += k.queues[q].allocated[r]
    return used < k.total[r]


@helper
def compare_paths(w: Any, k: Any, a: int, b: int) -> int:
    """Queue order by path, level by level: unsaturated first, then the smaller share by weight."""
    build_tree(w, k)
    for depth in range(1, MAX_DEPTH):
        i, j = k.queues[a].path[depth], k.queues[b].path[depth]
        if i == NONE or j == NONE:
            return 0
        left, right = k.tree[i], k.tree[j]
        if left.is_saturated != right.is_saturated:
            return 1 if left.is_saturated else -1
        share_a, share_b = left.share / left.weight, right.share / right.weight
        if share_a != share_b:
            return -1 if share_a < share_b else 1
    return 0
