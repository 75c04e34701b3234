"""Kueue's manifests as a world and a `KueueConfig`.

    site = kueue.read("queues.yaml", "nodes.yaml", "jobs/")
    world, config = world_of(site, work_ms=3_600_000)
    World.from_state(world).run(build(config=config))

    config = read_config("queues.yaml")  # for a world of another make, by names of queues
    world.run(build(config=config))

A ClusterQueue is a tenant and the queue of the same name; a cohort is `cohort/NAME`. Times count from the first
creation. What a manifest cannot say, how long a job runs, is `work_ms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gangline.baselines.kueue.config import (
    GATES,
    AdmissionFairSharing,
    BorrowWithinCohort,
    ClusterQueue,
    FairSharing,
    FlavorFungibility,
    KueueConfig,
    LocalQueue,
    Preemption,
    ResourceGroup,
    Topology,
    TopologyRequest,
    WaitForPodsReady,
    Workload,
)
from gangline.envs.core.spec import (
    Admission,
    DomainSpec,
    JobSpec,
    LiveSpec,
    NodeSpec,
    OptionsSpec,
    PodSetSpec,
    TenantSpec,
    WorldSpec,
)
from gangline.envs.core.types import MAX_GPUS_PER_NODE, ONE_GPU
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.files import kueue as files
from gangline.envs.files.kubernetes import Node
from gangline.envs.files.text import Unknown

NO_FLAVOR = "none"  # of nodes that no ResourceFlavor selects


def read_config(*manifests: str | Path) -> KueueConfig:
    """What manifests say to Kueue, for a world that has queues of these names; GPUs are called `gpu`, as there.

    Raises:
        GanglineError: one line about the first value that makes no sense.
    """
    config = config_of(files.read(*manifests))
    renamed = [
        replace(queue, resource_groups=[_with_gpu(group) for group in queue.resource_groups or ()])
        for queue in config.cluster_queues
    ]
    return replace(config, cluster_queues=renamed, excluded_resources=None)


def _with_gpu(group: ResourceGroup) -> ResourceGroup:
    return replace(group, resources=["gpu" if r.endswith("gpu") else r for r in group.resources])


def world_of(site: files.Manifests, *, work_ms: int | Mapping[str, int]) -> tuple[WorldSpec, KueueConfig]:
    """Queues, nodes and workloads of manifests.

    Args:
        site: what was read.
        work_ms: run time of each job, by `namespace/name`, or one for all.

    Raises:
        GanglineError: a workload without its LocalQueue, a queue that is not there, a job without a run time.
    """
    gpu = _device_backed(site.nodes.values())
    times = [w.created_ms for w in site.workloads.values() if w.created_ms is not None]
    first_ms = min(times, default=0)
    flavor_of = {node.name: flavor_of_node(site, node) for node in site.nodes.values()}
    flavors = tuple(dict.fromkeys([*_quota_flavors(site), *site.flavors, *flavor_of.values()])) or (NO_FLAVOR,)
    if site.nodes:
        homeless = Unknown()
        for flavor in _quota_flavors(site):
            if flavor not in flavor_of.values():
                homeless.add("no node has its labels", f"flavor {flavor}")
        homeless.warn("Kueue's quotas", "without nodes, so that what is admitted in them cannot be placed")
    jobs = [_job(site, w, gpu, flavors, first_ms, work_ms) for w in _in_order(site)]
    world = WorldSpec(
        resources=_resources(site),
        gpu_resource=gpu,
        pods_resource="pods" if site.nodes else None,
        flavors=flavors,
        nodes=[_node(site, node, flavor_of[node.name], gpu) for node in site.nodes.values()],
        domains=list(_domains(site, flavor_of)),
        queues=site.queue_specs(lambda resource: ONE_GPU if resource == gpu else 1),
        tenants=[TenantSpec(name=name) for name in site.cluster_queues],
        jobs=jobs,
        options=OptionsSpec(quota="enforced", reject_oversized=False, half_life_ms=None, locality_topology=""),
        now_ms=max((job.submit_ms for job in jobs if job.live is not None), default=0),
    )
    return world, config_of(site, first_ms)


def config_of(site: files.Manifests, first_ms: int = 0) -> KueueConfig:
    """What only Kueue knows; times count from `first_ms`."""
    settings = site.configuration or files.Configuration()
    passed_over = Unknown()
    for gate in settings.gates:
        if gate not in GATES:
            passed_over.add("is not modelled", f"featureGates.{gate}", [f"featureGates.{known}" for known in GATES])
    config = KueueConfig(
        cluster_queues=[_cluster_queue(queue) for queue in site.cluster_queues.values()],
        local_queues=[
            LocalQueue(name=name, cluster_queue=queue.cluster_queue, weight=queue.weight)
            for name, queue in site.local_queues.items()
        ],
        fair_sharing=None
        if settings.fair_sharing is None
        else FairSharing(preemption_strategies=settings.fair_sharing),  # type: ignore[arg-type]
        admission_fair_sharing=None
        if settings.usage_half_life_ms is None
        else AdmissionFairSharing(
            usage_half_life_ms=settings.usage_half_life_ms,
            usage_sampling_interval_ms=settings.usage_sampling_interval_ms,
            resource_weights=settings.resource_weights,
        ),
        wait_for_pods_ready=None
        if settings.pods_ready_timeout_ms is None
        else WaitForPodsReady(
            timeout_ms=settings.pods_ready_timeout_ms,
            block_admission=settings.block_admission,
            requeuing_timestamp=settings.requeuing_timestamp,  # type: ignore[arg-type]
            backoff_base_ms=settings.backoff_base_ms,
            backoff_max_ms=settings.backoff_max_ms,
            backoff_limit_count=settings.backoff_limit_count,
        ),
        topologies=[
            Topology(flavor=flavor.name, topology=flavor.name, levels=_levels(site, flavor))
            for flavor in site.flavors.values()
            if flavor.topology is not None
        ],
        workloads={w.full_name: _workload(w, first_ms) for w in site.workloads.values()},
        gates={gate: on for gate, on in settings.gates.items() if gate in GATES},
    )
    passed_over.warn("Kueue's Configuration", "not modelled, passed over")
    return config


def _cluster_queue(queue: files.ClusterQueue) -> ClusterQueue:
    preemption, fungibility = queue.preemption, queue.flavor_fungibility
    policies: dict[str, Any] = {
        "within_cluster_queue": preemption.within_cluster_queue,
        "reclaim_within_cohort": preemption.reclaim_within_cohort,
    }
    return ClusterQueue(
        name=queue.name,
        queueing_strategy=queue.queueing_strategy,  # type: ignore[arg-type]
        resource_groups=[
            ResourceGroup(resources=group.resources, flavors=[flavor.name for flavor in group.flavors])
            for group in queue.resource_groups
        ],
        preemption=Preemption(
            **policies,
            borrow_within_cohort=BorrowWithinCohort(
                policy=preemption.borrow_within_cohort,  # type: ignore[arg-type]
                max_priority_threshold=preemption.max_priority_threshold,
            ),
        ),
        flavor_fungibility=FlavorFungibility(
            when_can_borrow=fungibility.when_can_borrow,  # type: ignore[arg-type]
            when_can_preempt=fungibility.when_can_preempt,  # type: ignore[arg-type]
            preference=fungibility.preference,  # type: ignore[arg-type]
        ),
        admission_mode=queue.admission_mode,  # type: ignore[arg-type]
        is_active=queue.stop_policy == "None",
    )


def _workload(workload: files.Workload, first_ms: int) -> Workload:
    requests = [pods.topology for pods in workload.pod_sets]
    return Workload(
        local_queue=f"{workload.namespace}/{workload.local_queue}",
        pod_sets=[
            None
            if asked is None
            else TopologyRequest(
                required=asked.required,
                preferred=asked.preferred,
                unconstrained=asked.unconstrained,
                slices=asked.slices,
                group=asked.group,
            )
            for asked in requests
        ],
        evicted_ms=None if workload.evicted_ms is None else workload.evicted_ms - first_ms,
    )


# ---------------------------------------------------------------------------------------------------------------
# The world
# ---------------------------------------------------------------------------------------------------------------


def _device_backed(nodes: Iterable[Node]) -> str | None:
    """The GPU resource whose devices the world follows: none of its nodes has too many of it."""
    most: dict[str, int] = {}
    for node in nodes:
        for resource, amount in node.amounts.items():
            if resource.endswith("gpu"):
                most[resource] = max(most.get(resource, 0), amount)
    return next((resource for resource, amount in sorted(most.items()) if 0 < amount <= MAX_GPUS_PER_NODE), None)


def _scaled(amounts: Mapping[str, int], gpu: str | None) -> dict[str, int]:
    return {resource: amount * (ONE_GPU if resource == gpu else 1) for resource, amount in amounts.items()}


def _quota_flavors(site: files.Manifests) -> Iterator[str]:
    for owner in (*site.cluster_queues.values(), *site.cohorts.values()):
        for flavor, _ in owner.quotas():
            yield flavor


def _resources(site: files.Manifests) -> tuple[str, ...]:
    """By name: so Kueue breaks ties. What a node offers and nobody asks for or has quota of is left out."""
    names = {r for owner in (*site.cluster_queues.values(), *site.cohorts.values()) for _, r in owner.quotas()}
    names |= {r for workload in site.workloads.values() for pods in workload.pod_sets for r in pods.requests}
    return tuple(sorted(names | ({"pods"} if site.nodes else set())))


def flavor_of_node(site: files.Manifests, node: Node) -> str:
    """The flavor whose labels a node has: the one with the most labels, the first of equal ones."""
    matching = [f for f in site.flavors.values() if f.node_labels.items() <= node.labels.items()]
    return max(matching, key=lambda flavor: len(flavor.node_labels)).name if matching else NO_FLAVOR


def _levels(site: files.Manifests, flavor: files.ResourceFlavor) -> tuple[str, ...]:
    assert flavor.topology is not None
    if flavor.topology not in site.topologies:
        raise unknown_name(f"topology of flavor {flavor.name!r}", flavor.topology, site.topologies)
    return site.topologies[flavor.topology].levels


def _path(site: files.Manifests, node: Node, flavor: str) -> tuple[str, ...] | None:
    """The node's values of its flavor's levels, coarsest first; None if it is outside: a label is missing."""
    known = site.flavors.get(flavor)
    if known is None or known.topology is None:
        return None
    levels = _levels(site, known)
    return tuple(node.labels[level] for level in levels) if all(level in node.labels for level in levels) else None


def _node(site: files.Manifests, node: Node, flavor: str, gpu: str | None) -> NodeSpec:
    path = _path(site, node, flavor)
    offered = set(_resources(site))
    return NodeSpec(
        name=node.name,
        amounts=_scaled({r: amount for r, amount in node.amounts.items() if r in offered}, gpu),
        flavor=flavor,
        gpu_type=flavor,
        domains={} if path is None else {flavor: "/".join(path)},
        state="up" if node.is_up else "down",
    )


def _domains(site: files.Manifests, flavor_of: Mapping[str, str]) -> Iterator[DomainSpec]:
    """A domain for every beginning of a node's path: values repeat under different parents, paths do not."""
    seen = set()
    for node in site.nodes.values():
        flavor = flavor_of[node.name]
        path = _path(site, node, flavor) or ()
        for depth in range(1, len(path) + 1):
            part = path[:depth]
            if (flavor, part) not in seen:
                seen.add((flavor, part))
                yield DomainSpec(
                    name="/".join(part),
                    topology=flavor,
                    parent="/".join(part[:-1]) or None,
                    tier=len(path) - depth + 1,
                )


def _in_order(site: files.Manifests) -> list[files.Workload]:
    """Those that hold quota first, then by creation: as `WorldSpec.jobs` wants them. Inactive ones are left out."""
    active = [workload for workload in site.workloads.values() if workload.is_active]
    return sorted(active, key=lambda workload: (not workload.assignments, workload.created_ms or 0))


def _work_of(workload: files.Workload, work_ms: int | Mapping[str, int]) -> int:
    if isinstance(work_ms, int):
        return work_ms
    if workload.full_name not in work_ms:
        raise unknown_name("job in work_ms", workload.full_name, work_ms)
    return work_ms[workload.full_name]


def _job(
    site: files.Manifests,
    workload: files.Workload,
    gpu: str | None,
    flavors: tuple[str, ...],
    first_ms: int,
    work_ms: int | Mapping[str, int],
) -> JobSpec:
    queue = site.queue_of(workload)
    if queue not in site.cluster_queues:
        raise unknown_name(f"ClusterQueue of workload {workload.full_name}", queue, site.cluster_queues)
    counts_pods = any("pods" in group.resources for group in site.cluster_queues[queue].resource_groups)
    pod_sets = [
        PodSetSpec(
            count=pods.count,
            min_count=pods.min_count,
            request=_scaled(pods.requests, gpu) | ({"pods": 1} if counts_pods else {}),
            flavors=_allowed(site, pods, flavors),
        )
        for pods in workload.pod_sets
    ]
    created_ms = (first_ms if workload.created_ms is None else workload.created_ms) - first_ms
    return JobSpec(
        name=workload.full_name,
        tenant=queue,
        queue=queue,
        uid=workload.uid,
        priority=workload.priority,
        submit_ms=created_ms,
        work_ms=_work_of(workload, work_ms),
        claim_ms=workload.claim_ms,
        checkpoint_interval_ms=None,
        pod_sets=pod_sets,
        min_member=max(1, sum(p.count if p.min_count is None else p.min_count for p in pod_sets)),
        live=_life(workload, first_ms),
    )


def _allowed(site: files.Manifests, pods: files.PodSet, flavors: tuple[str, ...]) -> list[str] | None:
    """Flavors that the pods' node selector does not rule out; None = all. Labels that no flavor has do not count."""
    barred = {
        flavor.name
        for flavor in site.flavors.values()
        for label, value in pods.node_selector.items()
        if flavor.node_labels.get(label, value) != value
    }
    return [flavor for flavor in flavors if flavor not in barred] if barred else None


def _life(workload: files.Workload, first_ms: int) -> LiveSpec | None:
    """The quota that it holds; None of a workload that arrives. Its pods are placed by the scheduler anew."""
    if not workload.assignments:
        return None
    by_name = {assignment.pod_set: assignment for assignment in workload.assignments}
    admissions = []
    for i, pods in enumerate(workload.pod_sets):
        if pods.name not in by_name:
            raise GanglineError(
                f"workload {workload.full_name}: pod set {pods.name!r} has no assignment, expected one for each"
            )
        held = by_name[pods.name]
        admissions.append(
            Admission(pod_set=i, count=pods.count if held.count is None else held.count, flavors=dict(held.flavors))
        )
    reserved_ms, evicted_ms = (
        None if time is None else time - first_ms for time in (workload.reserved_ms, workload.evicted_ms)
    )
    return LiveSpec(admissions=admissions, admit_ms=reserved_ms, evict_ms=evicted_ms)
