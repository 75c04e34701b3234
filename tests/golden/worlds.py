"""Recorded worlds of the three real systems, written as `WorldSpec`, and read back.

`kueue_world`, `volcano_world` and `slurm_world` translate one recorded case. Each returns a `Loaded`: the world that
the core runs, what only that system knows about each job (its baseline's private record), and what only it knows about
the rest (policies, partitions, tiers of plugins). `kueue_inputs`, `volcano_inputs` and `slurm_inputs` go back, from a
world to a case's own words; `*_owned` is the part of a case that the core owns, so that a test can say
`inputs(world) == owned(case)`. What is not owned is listed in `KUEUE_PRIVATE`, `VOLCANO_PRIVATE`, `SLURM_PRIVATE`.

Units: the records count whole GPUs; where a world has nodes with at most 16 GPUs each, GPUs are device-backed and
counted in milli-GPU. In a world without nodes, or with larger ones, they are a scalar resource in the record's units.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gangline.baselines.conformance.volcano.world import (
    HYPERNODES,
    WORK_MS,
    Loaded,
    Units,
    device_backed,
    gang_minimum,
    priority_of,
    wish_of,
    without,
)
from gangline.envs.core.spec import (
    MINUTE_MS,
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
from gangline.envs.core.types import NEVER, ONE_GPU

GOLDEN = Path(os.environ.get("GANGLINE_GOLDEN", Path(__file__).resolve().parents[2].parent / "shared" / "golden"))
SECOND_MS = 1000
UNLIMITED = int(NEVER)

Case = Mapping[str, Any]


def read(system: str, file: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(what the file says about all its cases, the cases) of `<golden>/<system>/<file>`."""
    content = json.loads((GOLDEN / system / file).read_text())
    if isinstance(content, list):
        return {}, content
    cases = content.get("cases", [])
    return {key: value for key, value in content.items() if key != "cases"}, cases


# ---------------------------------------------------------------------------------------------------------------
# Kueue
# ---------------------------------------------------------------------------------------------------------------

# Kinds that are a question about numbers, or about entries in no queue: there is no world in them.
KUEUE_WITHOUT_WORLD = {
    "candidate_order": "candidates of no size in queues without quota",
    "entry_order": "entries of one cycle with their borrowing level, in no queue",
    "flavor_preference": "two assignment modes",
    "partial_admission": "counts and a predicate",
    "queue_order": "jobs of no size in no queue",
}

KUEUE_PRIVATE = {
    "case": (
        "id",
        "kind",
        "source",
        "expect",
        "gates",
        "fair_sharing",
        "admission_fair_sharing",
        "cycles",
        "steps",  # trajectory: its arrivals become jobs, its quota steps name cells; the driver carries out the rest
        "assignment",
        "preemption_oracle",
        "extra_request",
        "requested",
        "queue",
        "mode",
        "borrowing_level",
        "assignment_usage",
        "levels",  # names of the topology levels; the core has tiers
    ),
    "queue": ("strategy", "resource_groups", "preemption", "flavor_fungibility"),  # quotas of the groups are owned
    "job": ("local_queue", "evicted.reason"),
    "pod set": ("name", "topology_request", "topology.levels"),
}

TAS_JOB = "workload"  # the only job of a `tas` case
USAGE_JOB = "usage of "  # a job that stands for the usage put on a queue directly
COHORT = "cohort/"  # queues and cohorts have names of their own kind; in the core they share one


def kueue_world(case: Case) -> Loaded:
    """A Kueue case: quotas, cohorts, workloads with their reservations; nodes and topology where it has them."""
    nodes = list(_kueue_nodes(case))
    units = Units(device_backed(node["free"] for node in nodes))
    flavors = _kueue_flavors(case)
    jobs: list[JobSpec] = []
    private: dict[str, dict[str, Any]] = {}
    covered = {queue["name"]: _covered(queue) for queue in case.get("queues", [])}
    for queue, usage in case.get("usage", {}).items():
        jobs.append(_kueue_usage(queue, usage))
        private[jobs[-1].name] = {"is_usage": True}
    for workload in case.get("admitted", []):
        jobs.append(_kueue_admitted(workload, nodes, units))
    for workload in _kueue_pending(case):
        arrives = "steps" in case and "pending" not in case
        jobs.append(
            _kueue_waiting(workload, case, flavors, units, arrives, "pods" in covered.get(workload["queue"], ()))
        )
    for workload in [*case.get("admitted", []), *_kueue_pending(case)]:
        private[workload["name"]] = {
            **without(workload, "name", "queue", "priority", "created", "uid", "reserved_at"),
            "pod_sets": [
                without(p, "count", "min_count", "per_pod", "usage", "flavors", "ineligible_flavors")
                for p in workload["pod_sets"]
            ],
        }
    queues = [*_kueue_cohorts(case, units), *_kueue_queues(case, units)]
    tenants = [TenantSpec(name=queue["name"]) for queue in case.get("queues", [])] or [TenantSpec(name=TAS_JOB)]
    resources = _kueue_resources(case, nodes, queues, jobs)
    world = WorldSpec(
        resources=resources,
        gpu_resource=units.gpu_resource,
        pods_resource="pods" if nodes else None,
        flavors=flavors,
        nodes=[_kueue_node(node, units) for node in nodes],
        domains=list(_kueue_domains(nodes)),
        queues=queues,
        tenants=tenants,
        jobs=jobs,
        options=OptionsSpec(
            quota="enforced" if queues else "off", reject_oversized=False, half_life_ms=None, locality_topology=""
        ),
        now_ms=max([0, *(job.submit_ms for job in jobs if job.live)]),  # some upstream jobs are created after "now"
    )
    system = {
        **without(case, "cohorts", "queues", "usage", "admitted", "pending", "nodes", "topologies", "pod_sets"),
        "queues": {queue["name"]: without(queue, "name", "cohort", "fair_weight") for queue in case.get("queues", [])},
        "levels": {flavor: levels for flavor, levels, _ in _kueue_topologies(case)},
    }
    return Loaded(world, private, system)


def _kueue_topologies(case: Case) -> list[tuple[str, list[str], list[dict[str, Any]]]]:
    """(flavor, level names from coarse to fine, nodes) of each topology."""
    if "levels" in case:
        return [("default", case["levels"], case["nodes"])]
    return [(flavor, t["levels"], t["nodes"]) for flavor, t in case.get("topologies", {}).items()]


def _kueue_nodes(case: Case) -> Iterator[dict[str, Any]]:
    for flavor, levels, nodes in _kueue_topologies(case):
        for node in nodes:
            yield {**node, "flavor": flavor, "num_levels": len(levels)}


def _kueue_node(node: dict[str, Any], units: Units) -> NodeSpec:
    return NodeSpec(
        name=node["name"],
        amounts=units.to_core(node["free"]),
        flavor=node["flavor"],
        domains={node["flavor"]: "/".join(node["path"])},
    )


def _kueue_domains(nodes: Iterable[dict[str, Any]]) -> Iterator[DomainSpec]:
    """A domain for every prefix of a node's path: values repeat under different parents, paths do not."""
    seen = set()
    for node in nodes:
        for depth in range(1, node["num_levels"] + 1):
            path = node["path"][:depth]
            if (node["flavor"], *path) not in seen:
                seen.add((node["flavor"], *path))
                yield DomainSpec(
                    name="/".join(path),
                    topology=node["flavor"],
                    parent="/".join(path[:-1]) or None,
                    tier=node["num_levels"] - depth + 1,
                )


def _kueue_pending(case: Case) -> list[dict[str, Any]]:
    """Workloads that wait, of whatever form the case gives them in."""
    if "levels" in case:
        return [
            {"name": TAS_JOB, "queue": TAS_JOB, "priority": 0, "created": 0, "uid": "", "pod_sets": case["pod_sets"]}
        ]
    pending = case.get("pending", [])
    if isinstance(pending, dict):
        return [pending]
    return pending + [w for step in case.get("steps", []) if step["op"] == "arrive" for w in step["workloads"]]


def _kueue_flavors(case: Case) -> tuple[str, ...]:
    """Names in the order in which queues, cohorts, usage and topologies name them first."""
    names = [
        f["name"] for queue in case.get("queues", []) for group in queue["resource_groups"] for f in group["flavors"]
    ]
    names += [flavor for cohort in case.get("cohorts", []) for flavor in cohort["quotas"]]
    names += [step["flavor"] for step in case.get("steps", []) if step["op"] == "quota"]
    names += [flavor for usage in case.get("usage", {}).values() for flavor in usage]
    names += [flavor for flavor, _, _ in _kueue_topologies(case)]
    for workload in _kueue_pending(case):
        names += [flavor for p in workload["pod_sets"] for flavor in p.get("ineligible_flavors", [])]
    return tuple(dict.fromkeys(names)) or ("default",)


def _kueue_resources(
    case: Case, nodes: list[dict[str, Any]], queues: list[QueueSpec], jobs: list[JobSpec]
) -> tuple[str, ...]:
    names = [resource for queue in queues for _, resource in queue.quotas]
    names += [resource for node in nodes for resource in node["free"]]
    names += [resource for job in jobs for p in job.pod_sets for resource in p.request]
    return tuple(dict.fromkeys(names + (["pods"] if nodes else [])))


def _kueue_quota(quota: Mapping[str, Any], resource: str, units: Units) -> QuotaSpec:
    def amount(key: str) -> int | None:
        value = quota[key]
        if value is None:
            return None
        return UNLIMITED if value == "inf" else int(value) * units.scale(resource)

    return QuotaSpec(
        nominal=amount("nominal") or 0,
        borrowing_limit=amount("borrowing_limit"),
        lending_limit=amount("lending_limit"),
    )


def _cells(owner: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(flavor, resource, quota) of a queue or cohort."""
    for group in owner.get("resource_groups", []):
        for flavor in group["flavors"]:
            for resource, quota in flavor["quotas"].items():
                yield flavor["name"], resource, quota
    for flavor, quotas in owner.get("quotas", {}).items():
        for resource, quota in quotas.items():
            yield flavor, resource, quota


def _changed_cells(case: Case, kind: str, name: str) -> dict[tuple[str, str], QuotaSpec]:
    """Cells that a later quota step names, with no quota: a cell has to be there from the beginning."""
    return {
        (step["flavor"], step["resource"]): QuotaSpec()
        for step in case.get("steps", [])
        if step["op"] == "quota" and step["node"] == kind and step["name"] == name
    }


def _kueue_cohorts(case: Case, units: Units) -> Iterator[QueueSpec]:
    for cohort in case.get("cohorts", []):
        yield QueueSpec(
            name=COHORT + cohort["name"],
            parent=COHORT + cohort["parent"] if cohort["parent"] else None,
            is_cohort=True,
            weight=round(cohort["fair_weight"] * 1000),
            quotas=_changed_cells(case, "cohort", cohort["name"])
            | {(f, r): _kueue_quota(q, r, units) for f, r, q in _cells(cohort)},
        )


def _kueue_queues(case: Case, units: Units) -> Iterator[QueueSpec]:
    for queue in case.get("queues", []):
        yield QueueSpec(
            name=queue["name"],
            parent=COHORT + queue["cohort"] if queue["cohort"] else None,
            weight=round(queue["fair_weight"] * 1000),
            quotas=_changed_cells(case, "queue", queue["name"])
            | {(f, r): _kueue_quota(q, r, units) for f, r, q in _cells(queue)},
        )


def _covered(queue: Mapping[str, Any]) -> set[str]:
    return {resource for group in queue["resource_groups"] for resource in group["resources"]}


def _kueue_usage(queue: str, usage: Mapping[str, Mapping[str, int]]) -> JobSpec:
    """Usage without a workload: a job of one pod per flavor that holds it."""
    return JobSpec(
        name=USAGE_JOB + queue,
        tenant=queue,
        work_ms=WORK_MS,
        checkpoint_interval_ms=None,
        pod_sets=[PodSetSpec(count=1, request=dict(amounts)) for amounts in usage.values()],
        live=LiveSpec(
            admissions=[
                Admission(pod_set=i, count=1, flavors=dict.fromkeys(amounts, flavor))
                for i, (flavor, amounts) in enumerate(usage.items())
            ]
        ),
    )


def _kueue_admitted(workload: Mapping[str, Any], nodes: list[dict[str, Any]], units: Units) -> JobSpec:
    pod_sets, admissions, placed = [], [], []
    for i, pods in enumerate(workload["pod_sets"]):
        count = _admitted_count(pods)
        pod_sets.append(PodSetSpec(count=count, request=units.to_core(_per_pod(pods))))
        admissions.append(Admission(pod_set=i, count=count, flavors=pods["flavors"]))
        for node, on_node in _kueue_placed(pods, nodes):
            placed.append(PlacedPods(pod_set=i, node=node["name"], count=on_node))
    return JobSpec(
        name=workload["name"],
        tenant=workload["queue"],
        uid=workload["uid"],
        priority=workload["priority"],
        submit_ms=workload["created"],
        work_ms=WORK_MS,
        checkpoint_interval_ms=None,
        pod_sets=pod_sets,
        live=LiveSpec(
            pods=placed,
            admissions=admissions,
            admit_ms=workload["reserved_at"],
            evict_ms=workload["evicted"]["at"] if "evicted" in workload else None,
        ),
    )


def _admitted_count(pods: Mapping[str, Any]) -> int:
    """Pods of an admitted pod set. Two upstream cases count 1 where usage and topology have 2: the latter hold."""
    return max(pods["count"], sum(d["count"] for d in pods.get("topology", {}).get("domains", [])))


def _per_pod(pods: Mapping[str, Any]) -> dict[str, int]:
    return {resource: total // _admitted_count(pods) for resource, total in pods["usage"].items()}


def _kueue_placed(pods: Mapping[str, Any], nodes: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """(node, pods) of an admitted pod set. Domains whose node is gone have no place in the world: not yielded."""
    for domain in pods.get("topology", {}).get("domains", []):
        values = domain["values"]
        for node in nodes:
            if node["flavor"] in pods["flavors"].values() and node["path"][-len(values) :] == values:
                yield node, domain["count"]
                break


def _kueue_waiting(
    workload: Mapping[str, Any],
    case: Case,
    flavors: tuple[str, ...],
    units: Units,
    arrives: bool,
    asks_for_pods: bool,
) -> JobSpec:
    """A workload without a reservation. `asks_for_pods`: its queue has quota for pods, so each pod asks for one."""
    pod_sets = []
    for pods in workload["pod_sets"]:
        barred = pods.get("ineligible_flavors")
        pod_sets.append(
            PodSetSpec(
                count=pods["count"],
                min_count=pods.get("min_count"),
                request=units.to_core(pods["per_pod"]) | ({"pods": 1} if asks_for_pods else {}),
                flavors=None if barred is None else [f for f in flavors if f not in barred],
            )
        )
    return JobSpec(
        name=workload["name"],
        tenant=workload["queue"],
        uid=workload["uid"],
        priority=workload["priority"],
        submit_ms=workload["created"],
        work_ms=WORK_MS,
        checkpoint_interval_ms=None,
        pod_sets=pod_sets,
        min_member=sum(p.count if p.min_count is None else p.min_count for p in pod_sets),
        topology=_kueue_wish(workload, case),
        live=None if arrives else LiveSpec(),
    )


def _kueue_wish(workload: Mapping[str, Any], case: Case) -> TopologyWish | None:
    """What all pods of the job want together: where there is one pod set and one topology. The rest is private."""
    topologies = [(flavor, levels) for flavor, levels, nodes in _kueue_topologies(case) if nodes]
    if len(workload["pod_sets"]) != 1 or len(topologies) != 1:
        return None
    request = workload["pod_sets"][0].get("topology_request") or {}
    ((flavor, levels),) = topologies
    if request.get("required") in levels:
        return TopologyWish(tier=len(levels) - levels.index(request["required"]), topology=flavor, mode="required")
    if request.get("preferred") in levels:
        return TopologyWish(tier=len(levels) - levels.index(request["preferred"]), topology=flavor, mode="preferred")
    return None


def kueue_owned(case: Case) -> dict[str, Any]:
    """What the core owns of a Kueue case, in the case's words. Absent quotas and quotas of nothing are the same."""
    nodes = list(_kueue_nodes(case))
    return {
        "cohorts": {
            c["name"]: {"parent": c["parent"], "fair_weight": c["fair_weight"], "quotas": _stated(_cells(c))}
            for c in case.get("cohorts", [])
        },
        "queues": {
            q["name"]: {"cohort": q["cohort"], "fair_weight": q["fair_weight"], "quotas": _stated(_cells(q))}
            for q in case.get("queues", [])
        },
        "usage": {
            queue: {f: {r: v for r, v in amounts.items() if v} for f, amounts in usage.items() if any(amounts.values())}
            for queue, usage in case.get("usage", {}).items()
        },
        "nodes": {n["name"]: {"flavor": n["flavor"], "path": n["path"], "free": n["free"]} for n in nodes},
        "levels": {flavor: len(levels) for flavor, levels, nodes in _kueue_topologies(case) if nodes},
        "admitted": {
            w["name"]: {
                **{key: w[key] for key in ("queue", "priority", "created", "uid", "reserved_at")},
                "evicted_at": w["evicted"]["at"] if "evicted" in w else None,
                "pod_sets": [
                    {
                        "wanted": _admitted_count(p),
                        "count": _admitted_count(p),
                        "flavors": p["flavors"],
                        "usage": p["usage"],
                        "placed": dict(Counter({node["name"]: count for node, count in _kueue_placed(p, nodes)})),
                    }
                    for p in w["pod_sets"]
                ],
            }
            for w in case.get("admitted", [])
        },
        "pending": {
            w["name"]: {
                **{key: w[key] for key in ("queue", "priority", "created", "uid")},
                "pod_sets": [
                    {
                        "count": p["count"],
                        "min_count": p.get("min_count", p["count"]),
                        "per_pod": p["per_pod"],
                        "ineligible_flavors": sorted(p.get("ineligible_flavors", [])),
                    }
                    for p in w["pod_sets"]
                ],
            }
            for w in _kueue_pending(case)
        },
    }


def _stated(cells: Iterable[tuple[str, str, dict[str, Any]]]) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Quotas that differ from none at all."""
    quotas = {(f, r): (q["nominal"], q["borrowing_limit"], q["lending_limit"]) for f, r, q in cells}
    return {cell: quota for cell, quota in quotas.items() if quota != (0, None, None)}


def kueue_inputs(world: WorldSpec) -> dict[str, Any]:
    """`kueue_owned` of the case that a world was made from."""
    units = Units(world.gpu_resource)

    def limit(value: int | None, resource: str) -> Any:
        return value if value is None else "inf" if value == UNLIMITED else value // units.scale(resource)

    def place(queue: QueueSpec) -> dict[str, Any]:
        quotas = {
            (f, r): (limit(q.nominal, r), limit(q.borrowing_limit, r), limit(q.lending_limit, r))
            for (f, r), q in queue.quotas.items()
        }
        above = queue.parent.removeprefix(COHORT) if queue.parent else None
        return {
            "parent" if queue.is_cohort else "cohort": above,
            "fair_weight": queue.weight / 1000,
            "quotas": {cell: quota for cell, quota in quotas.items() if quota != (0, None, None)},
        }

    usage: dict[str, Any] = {}
    admitted, pending = {}, {}
    levels: dict[str, int] = {}
    for domain in world.domains:
        depth = domain.name.count("/") + 1
        levels.setdefault(domain.topology, domain.tier + depth - 1)
        if levels[domain.topology] != domain.tier + depth - 1:
            raise ValueError(
                f"domain {domain.name}: tier is {domain.tier}, expected {levels[domain.topology] - depth + 1}"
            )
    queues_with_pods = {q.name for q in world.queues if any(r == "pods" for _, r in q.quotas)}
    for job in world.jobs:
        held = {a.pod_set: a for a in job.live.admissions} if job.live else {}
        if job.name.startswith(USAGE_JOB):
            flavors = [next(iter(held[i].flavors.values()), None) for i in range(len(job.pod_sets))]
            amounts = [{r: v * held[i].count for r, v in p.request.items() if v} for i, p in enumerate(job.pod_sets)]
            usage[job.tenant] = {f: a for f, a in zip(flavors, amounts, strict=True) if a}
            continue
        about = {"queue": job.tenant, "priority": job.priority, "created": job.submit_ms, "uid": job.uid}
        if job.live and held:
            admitted[job.name] = {
                **about,
                "reserved_at": job.live.admit_ms,
                "evicted_at": job.live.evict_ms,
                "pod_sets": [
                    {
                        "wanted": p.count,
                        "count": held[i].count,
                        "flavors": held[i].flavors,
                        "usage": {r: v * held[i].count for r, v in units.to_record(p.request).items()},
                        "placed": dict(_placed(job, i)),
                    }
                    for i, p in enumerate(job.pod_sets)
                ],
            }
        else:
            drop = ("pods",) if job.tenant in queues_with_pods else ()
            pending[job.name] = {
                **about,
                "pod_sets": [
                    {
                        "count": p.count,
                        "min_count": p.count if p.min_count is None else p.min_count,
                        "per_pod": units.to_record(without(p.request, *drop)),
                        "ineligible_flavors": sorted(set(world.flavors) - set(p.flavors))
                        if p.flavors is not None
                        else [],
                    }
                    for p in job.pod_sets
                ],
            }
    return {
        "cohorts": {q.name.removeprefix(COHORT): place(q) for q in world.queues if q.is_cohort},
        "queues": {q.name: place(q) for q in world.queues if not q.is_cohort},
        "usage": usage,
        "nodes": {
            n.name: {
                "flavor": n.flavor,
                "path": n.domains[n.flavor].split("/"),
                "free": units.to_record(n.amounts),
            }
            for n in world.nodes
        },
        "levels": levels,
        "admitted": admitted,
        "pending": pending,
    }


def _placed(job: JobSpec, pod_set: int) -> Counter[str]:
    """Pods of a pod set by node."""
    placed: Counter[str] = Counter()
    for pods in job.live.pods if job.live else ():
        if pods.pod_set == pod_set:
            placed[pods.node] += pods.count
    return placed


# ---------------------------------------------------------------------------------------------------------------
# Volcano
# ---------------------------------------------------------------------------------------------------------------

# Kinds that are a question about one rule: lists, sums or statuses, with no cluster.
VOLCANO_WITHOUT_WORLD = (
    "capacity_share",
    "conformance",
    "domain_pick",
    "elastic_resources",
    "eviction_gradient_cap",
    "gang_bundle_filter",
    "gang_bundle_order",
    "gang_bundles",
    "gang_domain_victims",
    "gang_evictable_priority",
    "gang_state",
    "hypernode_prefilter",
    "podgroup_phase",
    "resource_math",
    "sla",
    "tier_victims",
)

VOLCANO_PRIVATE = {
    "case": (
        "id",
        "kind",
        "title",
        "source",
        "quirk",
        "transcription",
        "expect",
        "tiers",
        "tiers_not_loaded",
        "actions",
        "action_arguments",
        "cycles",  # podgroups that a later cycle adds become jobs that arrive
        "priority_classes",  # a podgroup's value is its job's priority
        "hypernode_tier_names",
        "tolerance",
        "subject",
        "candidate_nodes",
        "candidate_hypernodes",
        "candidates",
        "preemptor",
        "call_enqueued_hook_before_check",
        "upstream_assertion_effective",
    ),
    "queue": (
        "capability",
        "deserved",
        "guarantee",
        "reclaimable",
        "priority",
        "state",
        "hierarchy",
        "hierarchy_weights",
    ),
    "node": ("labels",),
    "hypernode": ("member_nodes", "children", "tier_name", "upstream_object_name"),  # nodes, tier, parent are owned
    "job": (
        "min_task_member",
        "min_resources",
        "phase",
        "priority_class",
        "network_topology.highest_tier_name",
        "allocated_hypernode",
        "sub_group_policy",
        "preemptable",
    ),
    "pod": (
        "name",
        "phase",
        "session_status",
        "priority",
        "preemptable",
        "preemption_policy",
        "task",
        "labels",
        "node_selector",
        "nominated_node",
    ),
}


def volcano_owned(case: Case) -> dict[str, Any]:
    """What the core owns of a Volcano case, in the case's words."""
    podgroups = [(podgroup, 0) for podgroup in case.get("podgroups", [])]
    pods = list(case.get("pods", []))
    for i, cycle in enumerate(case.get("cycles", [])):
        podgroups += [(podgroup, i) for podgroup in cycle.get("add_podgroups", [])]
        pods += cycle.get("add_pods", [])
    return {
        "nodes": {node["name"]: node["allocatable"] for node in case.get("nodes", [])},
        "queues": {q["name"]: {"weight": q["weight"], "parent": q.get("parent")} for q in case["queues"]},
        "hypernodes": {h["name"]: {"tier": h["tier"], "nodes": sorted(h["nodes"])} for h in case.get("hypernodes", [])},
        "podgroups": {
            p["name"]: {
                "queue": p["queue"],
                "min_member": gang_minimum(p, [pod for pod in pods if pod["podgroup"] == p["name"]]),
                "created": p.get("created", cycle),
                "priority": priority_of(p, case),
                "wish": _wish_words(wish_of(p, case)),
            }
            for p, cycle in podgroups
        },
        "pods": _sorted((pod["podgroup"], sorted(pod["requests"].items()), pod["node"]) for pod in pods),
    }


def _wish_words(wish: TopologyWish | None) -> tuple[str, int] | None:
    return (wish.mode, wish.tier) if wish else None


def _sorted(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def volcano_inputs(world: WorldSpec) -> dict[str, Any]:
    """`volcano_owned` of the case that a world was made from."""
    units = Units(world.gpu_resource)
    parent = {domain.name: domain.parent for domain in world.domains}
    members: dict[str, list[str]] = {domain.name: [] for domain in world.domains}
    for node in world.nodes:
        domain = node.domains.get(HYPERNODES)
        while domain is not None:
            members[domain].append(node.name)
            domain = parent[domain]
    pods = []
    for job in world.jobs:
        for i, pod_set in enumerate(job.pod_sets):
            request = sorted(units.to_record(pod_set.request).items())
            placed = list(_placed(job, i).elements())
            pods += [(job.name, request, node) for node in [*placed, *[None] * (pod_set.count - len(placed))]]
    return {
        "nodes": {node.name: units.to_record(node.amounts) for node in world.nodes},
        "queues": {q.name: {"weight": q.weight // 1000, "parent": q.parent} for q in world.queues},
        "hypernodes": {d.name: {"tier": d.tier, "nodes": sorted(members[d.name])} for d in world.domains},
        "podgroups": {
            job.name: {
                "queue": job.tenant,
                "min_member": job.min_member,
                "created": job.submit_ms,
                "priority": job.priority,
                "wish": _wish_words(job.topology),
            }
            for job in world.jobs
        },
        "pods": _sorted(pods),
    }


# ---------------------------------------------------------------------------------------------------------------
# Slurm
# ---------------------------------------------------------------------------------------------------------------

# Files of formula cases: a tree of accounts with usage in, factors out.
SLURM_WITHOUT_WORLD = ("fairshare_formulas.json", "testsuite_classic_parent.json")

SLURM_PRIVATE = {
    "case": (
        "name",
        "provenance",
        "note",
        "exact",
        "loose",
        "config",  # PriorityDecayHalfLife is also the core's half-life
        "partitions",
        "accounts",  # who is in which is owned, not the tree above
        "qos",
        "initial_usage",  # billing-seconds, Slurm's own usage
        "facts",
        "observed",
        "snapshots",
        "log",
        "jobid_of",
        "assoc_ids",
        "nodes_exact",
        "nodes_not_exact",
        "max_start_difference_between_runs_s",
        "t0_mod_30",
        "ticks",
        "free_run_reproduced",
        "free_run_nodes_reproduced",
        "requeue_delay_s",  # the core's requeue_hold
        "compare_until",
    ),
    "node": ("sockets", "cores_per_socket", "threads_per_core"),
    "request": ("partitions", "nodelist", "qos", "nice", "exclusive"),
}

CPU = 1000  # milli-CPU in one CPU
REQUEUE_HOLD_S = 121
LIMIT_CHECK_S = 30


def slurm_world(about: Case, case: Case, at_s: float | None = None) -> Loaded:
    """A Slurm case: the empty cluster with the jobs that arrive; a pod is a job's part of one node.

    Args:
        about: what the file says about all its cases (`read`): the cluster.
        at_s: of a history, the second at which the world begins: jobs that had ended are left out, those that ran
            are on their nodes, those that waited wait. A start at this very second has not happened.
    """
    users = dict(_slurm_users(case["accounts"]))
    shares = dict(_slurm_shares(case["accounts"]))
    jobs, private = [], {}
    for job in case["jobs"]:
        live, eligible_ms = None, None
        if at_s is not None and job["submit"] <= at_s:
            run = _slurm_run(job, case, at_s)
            if run is None:
                continue
            live, eligible_ms = run
        jobs.append(_slurm_job(job, live, eligible_ms))
        private[job["label"]] = dict(job["request"])
    half_life_min = float(case["config"].get("PriorityDecayHalfLife", "0"))
    world = WorldSpec(
        resources=("gpu", "cpu"),
        flavors=tuple(group["gpu_type"] for group in about["cluster"]["nodes"]),
        nodes=[
            NodeSpec(
                name=name,
                amounts={"gpu": group["gpus"] * ONE_GPU, "cpu": group["cpus"] * CPU},
                flavor=group["gpu_type"],
                gpu_type=group["gpu_type"],
            )
            for group in about["cluster"]["nodes"]
            for name in group["names"]
        ],
        tenants=[TenantSpec(name=account, weight=shares[account]) for account in dict.fromkeys(users.values())],
        users=[UserSpec(name=user, tenant=account) for user, account in users.items()],
        jobs=jobs,
        changes=[
            ChangeSpec(time_ms=_ms(at), what="node_state", target=node, value=state)
            for at, node, state in _slurm_node_changes(case)
            if at_s is None or at > at_s
        ],
        options=OptionsSpec(
            reject_oversized=False,
            half_life_ms=round(half_life_min * MINUTE_MS) or None,
            limit_check_ms=LIMIT_CHECK_S * SECOND_MS,
            requeue_hold_ms=case.get("requeue_delay_s", REQUEUE_HOLD_S) * SECOND_MS,
            locality_topology="",
        ),
        now_ms=0 if at_s is None else _ms(at_s),
    )
    system = {**without(case, "jobs", "actions"), "cluster": about["cluster"]}
    return Loaded(world, private, system)


def _ms(seconds: float) -> int:
    return round(seconds * SECOND_MS)


def _slurm_users(accounts: Iterable[Mapping[str, Any]], above: str = "") -> Iterator[tuple[str, str]]:
    """(user, account) of the leaves."""
    for entry in accounts:
        if "children" in entry:
            yield from _slurm_users(entry["children"], entry["name"])
        else:
            yield entry["name"], above


def _slurm_shares(accounts: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    """(account, shares as stated at its level)."""
    for entry in accounts:
        if "children" in entry:
            yield entry["name"], entry["shares"] if isinstance(entry["shares"], int) else 1
            yield from _slurm_shares(entry["children"])


def _slurm_pods(request: Mapping[str, Any]) -> tuple[int, int]:
    """(nodes, CPUs on each) that a job asks for: one CPU a task, at least one a node."""
    nodes = request.get("nodes", 1)
    tasks = request.get("ntasks_per_node", 0) * nodes or max(request.get("ntasks", nodes), nodes)
    if tasks % nodes:
        raise ValueError(f"{tasks} tasks on {nodes} nodes, expected a multiple")
    return nodes, tasks // nodes


def _slurm_job(job: Mapping[str, Any], live: LiveSpec | None, eligible_ms: int | None) -> JobSpec:
    request = job["request"]
    nodes, cpus = _slurm_pods(request)
    amounts = {"cpu": cpus * CPU}
    if "gpus_per_node" in request:
        amounts["gpu"] = request["gpus_per_node"] * ONE_GPU
    submit_ms = _ms(job["submit"])
    if "begin" in request:
        eligible_ms = submit_ms + int(request["begin"].removeprefix("now+")) * SECOND_MS
    return JobSpec(
        name=job["label"],
        tenant=job["account"],
        user=job["user"],
        submit_ms=submit_ms,
        eligible_ms=eligible_ms,
        work_ms=_ms(job["runtime_s"]),
        claim_ms=request["time_limit_min"] * MINUTE_MS,
        killed_at_claim=True,
        checkpoint_interval_ms=None,
        requeue=not request.get("no_requeue", False),
        after=request["dependency"].split("<id of ")[1].rstrip(">") if "dependency" in request else None,
        pod_sets=[
            PodSetSpec(count=nodes, request=amounts, flavors=[request["gpu_type"]] if "gpu_type" in request else None)
        ],
        live=live,
    )


def _slurm_run(job: Mapping[str, Any], case: Case, at_s: float) -> tuple[LiveSpec, int | None] | None:
    """(life, eligible time) at a second of a history of a job that had been submitted; None if it had ended."""
    runs = [run for run in case["observed"][job["label"]]["runs"] if run["start"] < at_s]
    stops = [v["at"] for v in case["facts"]["victims"] if v["label"] == job["label"] and v["at"] <= at_s]
    if not runs:
        return LiveSpec(), None
    if len(stops) == len(runs):  # every run so far was stopped: it waits out the requeue delay
        eligible_ms = (int(stops[-1]) + case.get("requeue_delay_s", REQUEUE_HOLD_S)) * SECOND_MS
        life = LiveSpec(
            starts=len(runs),
            preemptions=len(stops),
            first_start_ms=_ms(runs[0]["start"]),
            last_submit_ms=_ms(stops[-1]),
            evict_ms=_ms(stops[-1]),
        )
        return life, eligible_ms if eligible_ms > _ms(at_s) else None
    if runs[-1]["start"] + job["runtime_s"] <= at_s:
        return None
    life = LiveSpec(
        pods=[PlacedPods(pod_set=0, node=node) for node in runs[-1]["nodes"]],
        start_ms=_ms(runs[-1]["start"]),
        first_start_ms=_ms(runs[0]["start"]),
        starts=len(runs),
        preemptions=len(stops),
        progress_ms=_ms(at_s) - _ms(runs[-1]["start"]),
    )
    return life, None


def _slurm_node_changes(case: Case) -> Iterator[tuple[float, str, str]]:
    """(second, node, state) of each `scontrol update nodename=a,b state=down`."""
    for action in case["actions"]:
        words = dict(word.split("=", 1) for word in action["do"].split() if "=" in word)
        for node in words["nodename"].split(","):
            yield action["at"], node, {"down": "down", "drain": "drained", "resume": "up"}[words["state"]]


def slurm_owned(about: Case, case: Case) -> dict[str, Any]:
    """What the core owns of a Slurm case, in the case's words."""
    jobs = {}
    for job in case["jobs"]:
        request = without(
            job["request"], *SLURM_PRIVATE["request"], "ntasks", "ntasks_per_node", "nodes", "gpus_per_node"
        )
        nodes, cpus = _slurm_pods(job["request"])
        jobs[job["label"]] = {
            **without(job, "label", "request"),
            "request": {
                **request,
                "nodes": nodes,
                "cpus_per_node": cpus,
                "gpus_per_node": job["request"].get("gpus_per_node", 0),
            },
        }
    return {
        "nodes": {
            name: {key: group[key] for key in ("cpus", "gpus", "gpu_type")}
            for group in about["cluster"]["nodes"]
            for name in group["names"]
        },
        "users": dict(_slurm_users(case["accounts"])),
        "node_changes": list(_slurm_node_changes(case)),
        "jobs": jobs,
    }


def slurm_inputs(world: WorldSpec) -> dict[str, Any]:
    """`slurm_owned` of the case that a world was made from."""
    jobs = {}
    for job in world.jobs:
        (pods,) = job.pod_sets
        request: dict[str, Any] = {
            "nodes": pods.count,
            "cpus_per_node": pods.request["cpu"] // CPU,
            "gpus_per_node": pods.request.get("gpu", 0) // ONE_GPU,
            "time_limit_min": (job.claim_ms or 0) // MINUTE_MS,
        }
        if pods.flavors is not None:
            (request["gpu_type"],) = pods.flavors
        if not job.requeue:
            request["no_requeue"] = True
        if job.eligible_ms is not None:
            request["begin"] = f"now+{(job.eligible_ms - job.submit_ms) // SECOND_MS}"
        if job.after is not None:
            request["dependency"] = f"afterany:<id of {job.after}>"
        jobs[job.name] = {
            "user": job.user,
            "account": job.tenant,
            "submit": job.submit_ms / SECOND_MS,
            "runtime_s": job.work_ms // SECOND_MS,
            "request": request,
        }
    return {
        "nodes": {
            n.name: {"cpus": n.amounts["cpu"] // CPU, "gpus": n.amounts["gpu"] // ONE_GPU, "gpu_type": n.gpu_type}
            for n in world.nodes
        },
        "users": {user.name: user.tenant for user in world.users},
        "node_changes": [(change.time_ms / SECOND_MS, change.target, change.value) for change in world.changes],
        "jobs": jobs,
    }
