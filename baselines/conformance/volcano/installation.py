"""A recorded case's tiers, queues and PodGroups as a `VolcanoConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline.baselines.conformance.kueue.world import Units, device_backed
from gangline.baselines.conformance.volcano.world import in_task_order, pod_sets_of
from gangline.baselines.volcano.config import Plugin, PodGroup, Pods, Queue, SubGroup, VolcanoConfig, limit_of

Case = Mapping[str, Any]


def config_of(case: Case, cycle: Mapping[str, Any] | None = None) -> VolcanoConfig:
    """The installation of a case, or of one of its cycles."""
    units = Units(device_backed(node["allocatable"] for node in case.get("nodes", [])))
    podgroups = list(case.get("podgroups", []))
    pods = list(case.get("pods", []))
    for added in case.get("cycles", []):
        podgroups += added.get("add_podgroups", [])
        pods += added.get("add_pods", [])
    pods = in_task_order(pods)
    ranks = {pod["name"]: rank for rank, pod in enumerate(pods)}
    return VolcanoConfig(
        actions=(cycle or case).get("actions", ()),
        tiers=[[_plugin(p) for p in tier["plugins"]] for tier in case.get("tiers", [])],
        action_arguments=case.get("action_arguments", {}),
        queues=[_queue(queue, units) for queue in case.get("queues", [])],
        pod_groups=[
            _pod_group(group, [p for p in pods if p["podgroup"] == group["name"]], ranks, case, units)
            for group in podgroups
        ],
        enqueue_configured=(cycle or {}).get("enqueue_action_configured"),
    )


def _plugin(plugin: Mapping[str, Any]) -> Plugin:
    return Plugin(name=plugin["name"], enabled=tuple(plugin.get("enabled", ())), arguments=plugin.get("arguments", {}))


def _queue(queue: Mapping[str, Any], units: Units) -> Queue:
    def amounts(key: str) -> dict[str, int] | None:
        return units.to_core(queue[key]) if queue.get(key) is not None else None

    return Queue(
        name=queue["name"],
        capability=amounts("capability"),
        deserved=amounts("deserved"),
        guarantee=amounts("guarantee"),
        reclaimable=queue.get("reclaimable", True),
        priority=queue.get("priority", 0),
        state=queue.get("state") or "Open",
        hierarchy=queue.get("hierarchy"),
        hierarchy_weights=queue.get("hierarchy_weights"),
    )


def _pod_group(
    group: Mapping[str, Any], pods: list[dict[str, Any]], ranks: Mapping[str, int], case: Case, units: Units
) -> PodGroup:
    wish = group.get("network_topology")
    limit = _limit(wish, case)
    policies = group.get("sub_group_policy", [])
    minimum = group.get("min_resources")
    return PodGroup(
        job=group["name"],
        min_member=group["min_member"],
        min_task_member=group.get("min_task_member", {}),
        min_resources=None if minimum is None else units.to_core(minimum),
        phase=group["phase"] or "Pending",
        has_topology=wish is not None,
        is_hard=wish is not None and limit is not None,
        highest_tier=limit,
        allocated_hypernode=group.get("allocated_hypernode"),
        sub_groups=[
            SubGroup(
                name=policy["name"],
                size=policy.get("sub_group_size", 0),
                min_sub_groups=policy.get("min_sub_groups") or 0,
                highest_tier=_sub_limit(policy.get("network_topology"), limit, case),
                allocated_hypernode=group.get("allocated_hypernode") if "subject" in case else None,
            )
            for policy in policies
        ],
        preemptable=group.get("preemptable"),
        sla_waiting_ms=None if group.get("sla_waiting_s") is None else group["sla_waiting_s"] * 1000,
        pods=[_pods(pod_set, policies, ranks, case) for pod_set in pod_sets_of(pods)],
        is_known=any(queue["name"] == group["queue"] for queue in case["queues"]),
    )


def _limit(wish: Mapping[str, Any] | None, case: Case) -> int | None:
    """Highest tier of a network topology."""
    if wish is None:
        return None
    names = case.get("hypernode_tier_names", {})
    return limit_of(wish["mode"], wish.get("highest_tier_allowed"), wish.get("highest_tier_name"), names)


def _sub_limit(wish: Mapping[str, Any] | None, of_job: int | None, case: Case) -> int | None:
    """The same for a sub-group: soft goes as far as its job may."""
    if wish is not None and wish["mode"] != "hard" and of_job is not None:
        return of_job
    return _limit(wish, case)


def _pods(pods: list[dict[str, Any]], policies: list[dict[str, Any]], ranks: Mapping[str, int], case: Case) -> Pods:
    first = pods[0]
    bound = [pod for pod in pods if pod.get("node")]
    waiting = [pod for pod in pods if not pod.get("node")]
    selector = first.get("node_selector")
    nodes = None
    if selector:
        nodes = [n["name"] for n in case.get("nodes", []) if selector.items() <= n.get("labels", {}).items()]
    labels = first.get("labels", {})
    match = None
    for i, policy in enumerate(policies):
        keys = policy.get("match_label_keys", [])
        if match is None and all(key in labels for key in keys):
            match = (i, "-".join(labels[key] for key in keys))
    return Pods(
        task=first.get("task", ""),
        priority=first.get("priority", 1),
        has_priority="priority" in first,
        preemptable=first.get("preemptable", True),
        preemption_policy=first.get("preemption_policy"),
        nodes=nodes,
        sub_group=match,
        ranks=[ranks[pod["name"]] for pod in [*bound, *waiting]],
        is_critical=first["name"].startswith("kube-system/"),
    )
