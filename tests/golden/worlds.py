"""Recorded worlds of the three real systems, written as `WorldSpec`, and read back.

The worlds themselves are written by `baselines/conformance` (`kueue_world`, `slurm_world`, `volcano_world`):
each returns a `Loaded`: the world that
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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gangline.baselines.conformance.kueue.world import (
    COHORT,
    UNLIMITED,
    USAGE_JOB,
    Units,
    admitted_count,
    cells_of,
    kueue_nodes,
    kueue_pending,
    kueue_placed,
    kueue_topologies,
    without,
)
from gangline.baselines.conformance.slurm import (
    CPU,
    SECOND_MS,
    node_changes,
    pods_of,
    users_of,
)
from gangline.baselines.conformance.volcano.world import HYPERNODES, gang_minimum, priority_of, wish_of
from gangline.envs.core.spec import (
    MINUTE_MS,
    JobSpec,
    QueueSpec,
    TopologyWish,
    WorldSpec,
)
from gangline.envs.core.types import ONE_GPU

GOLDEN = Path(os.environ.get("GANGLINE_GOLDEN", Path(__file__).resolve().parents[2].parent / "shared" / "golden"))

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


def kueue_owned(case: Case) -> dict[str, Any]:
    """What the core owns of a Kueue case, in the case's words. Absent quotas and quotas of nothing are the same."""
    nodes = list(kueue_nodes(case))
    return {
        "cohorts": {
            c["name"]: {"parent": c["parent"], "fair_weight": c["fair_weight"], "quotas": _stated(cells_of(c))}
            for c in case.get("cohorts", [])
        },
        "queues": {
            q["name"]: {"cohort": q["cohort"], "fair_weight": q["fair_weight"], "quotas": _stated(cells_of(q))}
            for q in case.get("queues", [])
        },
        "usage": {
            queue: {f: {r: v for r, v in amounts.items() if v} for f, amounts in usage.items() if any(amounts.values())}
            for queue, usage in case.get("usage", {}).items()
        },
        "nodes": {n["name"]: {"flavor": n["flavor"], "path": n["path"], "free": n["free"]} for n in nodes},
        "levels": {flavor: len(levels) for flavor, levels, nodes in kueue_topologies(case) if nodes},
        "admitted": {
            w["name"]: {
                **{key: w[key] for key in ("queue", "priority", "created", "uid", "reserved_at")},
                "evicted_at": w["evicted"]["at"] if "evicted" in w else None,
                "pod_sets": [
                    {
                        "wanted": admitted_count(p),
                        "count": admitted_count(p),
                        "flavors": p["flavors"],
                        "usage": p["usage"],
                        "placed": dict(Counter({node["name"]: count for node, count in kueue_placed(p, nodes)})),
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
            for w in kueue_pending(case)
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


def slurm_owned(about: Case, case: Case) -> dict[str, Any]:
    """What the core owns of a Slurm case, in the case's words."""
    jobs = {}
    for job in case["jobs"]:
        request = without(
            job["request"], *SLURM_PRIVATE["request"], "ntasks", "ntasks_per_node", "nodes", "gpus_per_node"
        )
        nodes, cpus = pods_of(job["request"])
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
        "users": dict(users_of(case["accounts"])),
        "node_changes": list(node_changes(case)),
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
