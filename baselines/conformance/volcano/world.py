"""A recorded case of Volcano as a world: what the core runs, and what only Volcano knows of it.

Units: the records count whole GPUs; where a world has nodes with at most 16 GPUs each, GPUs are device-backed and
counted in milli-GPU. In a world without nodes, or with larger ones, they are a scalar resource in the record's units.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from gangline.baselines.conformance.kueue.world import WORK_MS, Loaded, Units, device_backed, without
from gangline.baselines.volcano.config import compare_pod_names
from gangline.envs.core.spec import (
    DomainSpec,
    JobSpec,
    LiveSpec,
    NodeSpec,
    OptionsSpec,
    PlacedPods,
    PodSetSpec,
    QueueSpec,
    TenantSpec,
    TopologyWish,
    WorldSpec,
)

Case = Mapping[str, Any]

HYPERNODES = "hypernodes"  # the topology
QUEUE_AMOUNTS = ("capability", "deserved", "guarantee")
NOT_SHAPE = ("name", "node", "phase", "nominated_node", "session_status")  # what equal pods may differ in


def in_task_order(pods: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pods by Volcano's tie rule: the integer after the last dash if both names have three parts, else `ns-name`."""
    by_name = functools.cmp_to_key(compare_pod_names)
    return sorted(pods, key=lambda pod: by_name(pod["name"]))


def volcano_world(case: Case, stated: bool = False) -> Loaded:
    """A Volcano case: podgroups as jobs, equal pods of one as a pod set, queues, hypernodes.

    Args:
        stated: parents of hypernodes are those that the case states; else every hypernode has all its nodes.
    """
    nodes = case.get("nodes", [])
    units = Units(device_backed(node["allocatable"] for node in nodes))
    podgroups = [(podgroup, 0) for podgroup in case.get("podgroups", [])]
    pods = list(case.get("pods", []))
    for i, cycle in enumerate(case.get("cycles", [])):
        podgroups += [(podgroup, i) for podgroup in cycle.get("add_podgroups", [])]
        pods += cycle.get("add_pods", [])
    pods = in_task_order(pods)
    parents = {queue.get("parent") for queue in case["queues"]}
    queue_names = [queue["name"] for queue in case["queues"]]
    jobs, private = [], {}
    for podgroup, cycle in podgroups:
        own = [pod for pod in pods if pod["podgroup"] == podgroup["name"]]
        sets = pod_sets_of(own)
        jobs.append(_volcano_job(podgroup, sets, own, cycle, case, units))
        private[podgroup["name"]] = {
            **without(podgroup, "name", "queue", "created"),
            "pods": [[without(pod, "podgroup", "requests", "node") for pod in pod_set] for pod_set in sets],
        }
    names = [r for node in nodes for r in node["allocatable"]] + [r for pod in pods for r in pod["requests"]]
    names += [r for queue in case["queues"] for key in QUEUE_AMOUNTS for r in queue.get(key, {})]
    forest = _forest(case.get("hypernodes", []), stated)
    world = WorldSpec(
        resources=tuple(dict.fromkeys([*names, "pods"])),
        gpu_resource=units.gpu_resource,
        pods_resource="pods",
        nodes=[
            NodeSpec(
                name=node["name"], amounts=units.to_core(node["allocatable"]), domains=_leaf(node["name"], case, forest)
            )
            for node in nodes
        ],
        domains=[
            DomainSpec(name=h["name"], topology=HYPERNODES, parent=forest[h["name"]], tier=h["tier"])
            for h in case.get("hypernodes", [])
        ],
        queues=[
            QueueSpec(
                name=queue["name"],
                parent=queue.get("parent"),
                is_cohort=queue["name"] in parents,
                weight=queue["weight"] * 1000,
            )
            for queue in case["queues"]
        ],
        tenants=[
            TenantSpec(name=name, weight=_weight(name, case))
            for name in dict.fromkeys([*queue_names, *(podgroup["queue"] for podgroup, _ in podgroups)])
        ],
        jobs=jobs,
        options=OptionsSpec(gang=False, reject_oversized=False, half_life_ms=None, locality_topology=""),
    )
    system = {
        **without(case, "nodes", "podgroups", "pods"),
        "node_labels": {node["name"]: node.get("labels", {}) for node in nodes},
    }
    return Loaded(world, private, system)


def _weight(queue: str, case: Case) -> int:
    """Weight of a queue; of a queue that a podgroup names but which is not there, 1."""
    return next((q["weight"] for q in case["queues"] if q["name"] == queue), 1)


def pod_sets_of(pods: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Pods of a podgroup, those together that differ only in name and whereabouts, by first appearance."""
    sets: dict[str, list[dict[str, Any]]] = {}
    for pod in pods:
        sets.setdefault(json.dumps(without(pod, *NOT_SHAPE), sort_keys=True), []).append(pod)
    return list(sets.values())


def _volcano_job(
    podgroup: Mapping[str, Any],
    sets: list[list[dict[str, Any]]],
    pods: list[dict[str, Any]],
    cycle: int,
    case: Case,
    units: Units,
) -> JobSpec:
    set_of = {pod["name"]: i for i, pod_set in enumerate(sets) for pod in pod_set}
    return JobSpec(
        name=podgroup["name"],
        tenant=podgroup["queue"],
        priority=priority_of(podgroup, case),
        submit_ms=podgroup.get("created", cycle),
        work_ms=WORK_MS,
        checkpoint_interval_ms=None,
        pod_sets=[PodSetSpec(count=len(s), request=units.to_core(s[0]["requests"])) for s in sets]
        or [PodSetSpec(count=0, request={})],
        min_member=gang_minimum(podgroup, pods),
        preemptible=not pods or any(pod.get("preemptable", True) for pod in pods),
        topology=wish_of(podgroup, case),
        live=LiveSpec(pods=[PlacedPods(pod_set=set_of[pod["name"]], node=pod["node"]) for pod in pods if pod["node"]])
        if "cycles" not in case
        else None,
    )


def priority_of(podgroup: Mapping[str, Any], case: Case) -> int:
    """Value of a PodGroup's priority class."""
    values = {c["name"]: c["value"] for c in case.get("priority_classes", [])}
    return values.get(podgroup.get("priority_class"), 0)


def gang_minimum(podgroup: Mapping[str, Any], pods: list[dict[str, Any]]) -> int:
    """`min_member` as the core can hold it: at least 1 and no more than there are pods; the stated one is private."""
    return max(1, min(podgroup["min_member"], len(pods)))


def wish_of(podgroup: Mapping[str, Any], case: Case) -> TopologyWish | None:
    """What a PodGroup asks of the topology, in the core's words."""
    wish = podgroup.get("network_topology")
    if not wish or not case.get("hypernodes"):
        return None
    tier = wish.get("highest_tier_allowed")
    if tier is None:
        tier = case["hypernode_tier_names"][wish["highest_tier_name"]]
    return TopologyWish(tier=tier, topology=HYPERNODES, mode="required" if wish["mode"] == "hard" else "preferred")


def _forest(hypernodes: list[dict[str, Any]], stated: bool = False) -> dict[str, str | None]:
    """Parent of each hypernode: the stated one, else the smallest of a higher tier that has all its nodes; with
    `stated`, only that if no hypernode states any.
    """
    is_stated = stated and any("parent" in h or "children" in h for h in hypernodes)
    parent: dict[str, str | None] = {}
    for low in hypernodes:
        above = [h for h in hypernodes if h["tier"] > low["tier"] and set(low["nodes"]) <= set(h["nodes"])]
        above.sort(key=lambda h: (h["tier"], len(h["nodes"])))
        if is_stated:
            above = []
        parent[low["name"]] = low.get("parent") or (above[0]["name"] if above else None)
    return parent


def _leaf(node: str, case: Case, forest: Mapping[str, str | None]) -> dict[str, str]:
    """The finest hypernode that has this node."""
    own = [h for h in case.get("hypernodes", []) if node in h["nodes"]]
    return {HYPERNODES: min(own, key=lambda h: h["tier"])["name"]} if own else {}
