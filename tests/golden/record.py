"""A compiled world read back as a `WorldSpec`: every number from the record and its tables, only names from outside.

What `World.from_state(spec)` has lost or changed shows as a difference between `spec_of(world)` and `spec`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from gangline.envs.core.spec import (
    Admission,
    ChangeSpec,
    DomainSpec,
    JobSpec,
    LiveSpec,
    NodeSpec,
    OptionsSpec,
    PlacedPods,
    PodSetSpec,
    QueueSpec,
    QuotaSpec,
    TenantSpec,
    TopologyWish,
    UserSpec,
    WorldSpec,
)
from gangline.envs.core.types import (
    MAX_FLAVORS,
    NEVER,
    NO_LIMIT,
    NO_TIME,
    NONE,
    ChangeKind,
    JobState,
    NodeState,
    PodState,
    Shape,
)
from gangline.envs.core.world import World


def spec_of(world: World) -> WorldSpec:
    """The world as it is now: nodes, quotas, live jobs with their pods and admissions, jobs still to come."""
    w, names = world.record, world.names
    slots = {int(job["row"]): job for job in w["jobs"][: int(w["jobs_used"])] if job["state"] != JobState.FREE}
    params = w["params"]
    return WorldSpec(
        resources=names.resources,
        gpu_resource=_name(names.resources, params["gpu_resource"]),
        pods_resource=_name(names.resources, params["pods_resource"]),
        flavors=names.flavors,
        nodes=[_node(world, n) for n in range(int(w["num_nodes"]))],
        domains=[_domain(world, d) for d in range(int(w["num_domains"]))],
        queues=[_queue(world, q) for q in range(int(w["num_queues"]))],
        tenants=[
            TenantSpec(
                name=name, weight=int(w["tenants"][k]["weight"]), queue=_name(names.queues, w["tenants"][k]["queue"])
            )
            for k, name in enumerate(names.tenants)
        ],
        users=[
            UserSpec(name=name, tenant=names.tenants[int(w["users"][u]["tenant"])])
            for u, name in enumerate(names.users)
        ],
        jobs=[_job(world, row, slots.get(row)) for row in range(world.trace.num_jobs)],
        changes=[
            ChangeSpec(
                time_ms=int(change["time_ms"]),
                what="node_state",
                target=names.nodes[int(change["index"])],
                value=NodeState(int(change["value"])).name.lower(),
            )
            for change in world.schedule
            if change["what"] == ChangeKind.NODE_STATE
        ],
        options=OptionsSpec(gang=bool(params["gang"])),
        now_ms=int(w["now_ms"]),
    )


def _name(names: tuple[str, ...], index: Any) -> str | None:
    return None if index == NONE else names[int(index)]


def _time(value: Any) -> int | None:
    return None if value >= NEVER else int(value)


def _node(world: World, n: int) -> NodeSpec:
    node, names = world.record["nodes"][n], world.names
    for r in range(len(names.resources)):
        if node["idle"][r] + node["used"][r] != node["capacity"][r]:
            raise ValueError(f"node {names.nodes[n]}: idle + used is not the capacity of {names.resources[r]}")
    leaves = [names.domains[int(d)] for d in node["domain"] if d != NONE]
    return NodeSpec(
        name=names.nodes[n],
        amounts={r: int(node["capacity"][i]) for i, r in enumerate(names.resources) if int(node["has"]) >> i & 1},
        flavor=names.flavors[int(node["flavor"])],
        gpu_type=names.gpu_types[int(node["gpu_type"])],
        speed=int(node["speed"]),
        domains=dict(leaf.split("/", 1) for leaf in leaves),
    )


def _domain(world: World, d: int) -> DomainSpec:
    domain, names = world.record["domains"][d], world.names
    parent = _name(names.domains, domain["parent"])
    return DomainSpec(
        name=names.domains[d].split("/", 1)[1],
        topology=names.topologies[int(domain["topology"])],
        parent=parent.split("/", 1)[1] if parent else None,
        tier=int(domain["tier"]),
    )


def _queue(world: World, q: int) -> QueueSpec:
    queue, names = world.record["queues"][q], world.names

    def limit(value: Any) -> int | None:
        return None if value == NO_LIMIT else int(value)

    return QueueSpec(
        name=names.queues[q],
        parent=_name(names.queues, queue["parent"]),
        is_cohort=bool(queue["is_cohort"]),
        weight=int(queue["weight"]),
        quotas={
            cell: QuotaSpec(
                nominal=int(queue["nominal"][c]),
                borrowing_limit=limit(queue["borrowing_limit"][c]),
                lending_limit=limit(queue["lending_limit"][c]),
            )
            for c, cell in enumerate(names.cells)
        },
    )


def _job(world: World, row: int, job: Any) -> JobSpec:
    """A job from its slot where it has one (`job`), else from the trace."""
    names = world.names
    trace_row = world.trace.rows[row]
    about = trace_row if job is None else job
    if job is None:
        first = int(trace_row["first_pod_set"])
        pod_sets = list(world.trace.pod_sets[first : first + int(trace_row["num_pod_sets"])])
    else:
        pod_sets = world.pod_sets_of(job)
    uids = sorted(spec.uid for spec in world.spec.jobs)
    return JobSpec(
        name=world.job_name(row),
        tenant=names.tenants[int(about["tenant"])],
        user=_name(names.users, about["user"]),
        uid=uids[int(about["uid_rank"])],
        pod_sets=[_pod_set(world, pod_set) for pod_set in pod_sets],
        work_ms=int(about["work_ms"]),
        submit_ms=int(about["submit_ms"]),
        eligible_ms=int(about["eligible_ms"]) if about["eligible_ms"] != about["submit_ms"] else None,
        min_member=int(about["min_member"]),
        priority=int(about["priority"]),
        preemptible=bool(about["preemptible"]),
        requeue=bool(about["requeue"]),
        claim_ms=_time(about["claim_ms"]),
        killed_at_claim=bool(about["killed_at_claim"]),
        checkpoint_interval_ms=_time(about["checkpoint_interval_ms"]),
        after=None if trace_row["after_row"] == NONE else world.job_name(int(trace_row["after_row"])),
        topology=_wish(world, about),
        live=None if job is None else _live(world, job),
    )


def _pod_set(world: World, pod_set: Any) -> PodSetSpec:
    names = world.names
    flavors = [int(f) for f in pod_set["flavors"] if f != NONE]
    pods = world.spec.pods_resource
    return PodSetSpec(
        count=int(pod_set["count"]),
        min_count=int(pod_set["min_count"]),
        request={
            r: int(pod_set["request"][i])
            for i, r in enumerate(names.resources)
            if int(pod_set["asked"]) >> i & 1 and r != pods
        },
        flavors=None if flavors == list(range(MAX_FLAVORS)) else [names.flavors[f] for f in flavors],
    )


def _wish(world: World, about: Any) -> TopologyWish | None:
    if about["topology_wish"] == Shape.NO_WISH:
        return None
    return TopologyWish(
        tier=int(about["topology_tier"]),
        topology=world.names.topologies[int(about["topology"])],
        mode="required" if about["topology_wish"] == Shape.REQUIRED else "preferred",
    )


def _live(world: World, job: Any) -> LiveSpec:
    names = world.names
    pods = [(world.record["pod_sets"][int(p["pod_set"])], p) for p in world.pods_of(job)]
    placed = Counter((int(s["index"]), names.nodes[int(p["node"])]) for s, p in pods if p["state"] == PodState.BOUND)
    return LiveSpec(
        pods=[PlacedPods(pod_set=i, node=node, count=count) for (i, node), count in placed.items()],
        admissions=[
            Admission(
                pod_set=int(s["index"]),
                count=int(s["num_admitted"]),
                flavors={
                    r: names.flavors[int(s["admitted_flavor"][i])]
                    for i, r in enumerate(names.resources)
                    if s["admitted_flavor"][i] != NONE
                },
            )
            for s in world.pod_sets_of(job)
            if job["is_admitted"]
        ],
        admit_ms=None if job["admit_ms"] == NO_TIME else int(job["admit_ms"]),
        evict_ms=None if job["evict_ms"] == NO_TIME else int(job["evict_ms"]),
    )
