"""What each tenant would have had alone: the reference of the sharing incentive. spec/metrics.md section 5.

A tenant's jobs of an episode run in a cluster of its own, of its entitlement `e_k C` in GPUs, under FIFO that passes
over what does not fit. No scheduler of the shared cluster is asked, so that one reference serves all of them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gangline.baselines import base
from gangline.envs import metrics
from gangline.envs.core.spec import HOUR_MS, NodeSpec, TenantSpec, WorldSpec
from gangline.envs.core.world import World
from gangline.envs.worlds import Episode

DRAIN_MS = 30 * 24 * HOUR_MS
RULE = "greedy_fifo"


def private_times(spec: WorldSpec, episode: Episode) -> dict[str, float | None]:
    """GPU-hour-weighted JCT (s) of each tenant's jobs in its private cluster.

    None for a tenant without jobs in the window; infinite where a job of it does not fit, or does not end within 30
    days after the last arrival: whatever the shared cluster does is better.
    """
    jobs = episode.jobs()
    capacity = sum(node.amounts.get("gpu", 0) for node in spec.nodes)
    weights = {tenant.name: tenant.weight for tenant in spec.tenants}
    times: dict[str, float | None] = {}
    for k, name in enumerate(jobs.tenants):
        own = jobs.select(jobs.rows["tenant"] == k)
        counted = own.rows["submit_ms"] >= episode.begin_ms
        if not counted.any():
            times[name] = None
            continue
        entitled = capacity * weights.get(name, 0) // max(sum(weights.values()), 1)
        nodes = _nodes(spec, entitled)
        world = World(_private_spec(spec, nodes), own)
        last = int(own.rows["submit_ms"].max())
        end_ms = last + DRAIN_MS
        scheduler = base.build(RULE)
        world.run(scheduler, max(0, episode.begin_ms - 1))
        start = metrics.snapshot(world)
        world.run(scheduler, end_ms)
        report = metrics.measure(world, start)
        all_ended = report.counts["unfinished"] == 0 and report.counts["rejected"] == 0
        value = report.values["jct_weighted_s"]
        times[name] = float(value) if all_ended and value is not None else float("inf")
    return times


def _nodes(spec: WorldSpec, gpus: int) -> list[NodeSpec]:
    """Nodes like the largest of the cluster, the last one smaller, with `gpus` milli-GPU in whole GPUs."""
    largest = max(spec.nodes, key=lambda node: node.amounts.get("gpu", 0))
    each = largest.amounts.get("gpu", 0)
    nodes: list[NodeSpec] = []
    left = gpus // 1000 * 1000
    while left > 0 and each > 0:
        amounts = {**largest.amounts, "gpu": min(left, each)}
        nodes.append(replace(largest, name=f"own-{len(nodes):04d}", amounts=amounts, domains={}))
        left -= each
    return nodes


def _private_spec(spec: WorldSpec, nodes: list[NodeSpec]) -> WorldSpec:
    tenants = [TenantSpec(name=tenant.name, weight=tenant.weight) for tenant in spec.tenants]
    options = replace(spec.options, quota="off", reject_oversized=True, mean_up_ms=None, locality=())
    return replace(spec, nodes=nodes, domains=[], queues=[], tenants=tenants, options=options)


def sharing_incentive(
    shared: dict[str, dict[str, float | None]], private: dict[str, float | None]
) -> tuple[float | None, float | None]:
    """Share of tenants whose jobs took no longer than in their private clusters, and the worst ratio.

    Args:
        shared: `Report.tenants`; times of unfinished jobs count so far.
        private: from `private_times`.
    """
    ratios = []
    for name, alone in private.items():
        here = shared.get(name, {}).get("jct_so_far_weighted_s")
        if alone is not None and here is not None and alone > 0:
            ratios.append(0.0 if np.isinf(alone) else here / alone)
    if not ratios:
        return None, None
    return sum(ratio <= 1 for ratio in ratios) / len(ratios), max(ratios)
