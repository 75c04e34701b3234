"""Volcano's own files as a world and a `VolcanoConfig`.

    site = volcano.read("queues.yaml", "nodes.yaml", "jobs/")
    conf = volcano.read_conf("volcano-scheduler.conf")
    world, config = world_of(site, conf, work_ms=3_600_000)
    World.from_state(world).run(build(config=config))

    config = read_config("volcano-scheduler.conf", "queues.yaml")  # for a world of another make, by names of tenants
    world.run(build(config=config))

A Queue is a tenant and the queue of the same name; a PodGroup is a job, its equal pods a pod set; a HyperNode is a
domain. Times count from the first creation. What a manifest cannot say, how long a job runs, is `work_ms`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gangline.baselines.volcano.config import (
    ANY_TIER,
    POINTS,
    Plugin,
    PodGroup,
    Pods,
    Queue,
    SubGroup,
    VolcanoConfig,
    compare_pod_names,
    limit_of,
)
from gangline.baselines.volcano.setup import ACTION_ARGUMENTS, ARGUMENTS, KINDS, duration_ms
from gangline.baselines.volcano.state import Action
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
from gangline.envs.core.types import MAX_GPUS_PER_NODE, ONE_GPU
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.files import volcano as files
from gangline.envs.files.kubernetes import Node
from gangline.envs.files.text import Unknown

HYPERNODES = "hypernodes"  # the topology
ROOT = "root"
SYSTEM_NAMESPACE = "kube-system"
ACTIONS = tuple(action.name.lower() for action in Action)


def read_config(conf: str | Path | None, *manifests: str | Path) -> VolcanoConfig:
    """`volcano-scheduler.conf` (None = what the Helm chart installs), and Queues of manifests, for a world that has
    tenants or queues of these names.

    Amounts of GPUs are in milli-GPU and called `gpu`, as traces of jobs call them.

    Raises:
        GanglineError: one line about the first value that makes no sense.
    """
    config = VolcanoConfig() if conf is None else config_of(files.read_conf(conf))
    if not manifests:
        return config
    site = files.read(*manifests)
    renamed = {"nvidia.com/gpu": "gpu"}
    queues = [_queue(queue, lambda r: ONE_GPU if r.endswith("gpu") else 1, renamed) for queue in site.queues.values()]
    return replace(config, queues=queues)


def world_of(
    site: files.Manifests, conf: files.SchedulerConf | None = None, *, work_ms: int | Mapping[str, int]
) -> tuple[WorldSpec, VolcanoConfig]:
    """Queues, nodes, HyperNodes and PodGroups of manifests.

    Args:
        site: what was read.
        conf: `volcano-scheduler.conf`; None = what the Helm chart installs.
        work_ms: run time of each job, by `namespace/name`, or one for all.

    Raises:
        GanglineError: a pod without its PodGroup or on a node that is not there, a job without a run time, a HyperNode
            in two others.
    """
    gpu = _device_backed(site.nodes.values())
    config = VolcanoConfig() if conf is None else config_of(conf)
    has_tree = any(p.name == "capacity" and "hierarchy" in p.enabled for tier in config.tiers for p in tier)
    queues = _queues(site, has_tree)
    times = [group.created_ms for group in site.pod_groups.values() if group.created_ms is not None]
    first_ms = min(times, default=0)
    forest = _forest(site)
    members = _members(site)
    tiers = {h.tier_name: h.tier for h in site.hyper_nodes.values() if h.tier_name}
    groups = sorted(
        site.pod_groups.values(), key=lambda group: (not _runs(members[group.full_name]), group.created_ms or 0)
    )
    sets = {group.full_name: _pod_sets(group, members[group.full_name]) for group in groups}
    jobs = [_job(group, sets[group.full_name], tiers, gpu, first_ms, work_ms) for group in groups]
    used = [group.queue for group in groups]
    world = WorldSpec(
        resources=_resources(site),
        gpu_resource=gpu,
        pods_resource="pods" if site.nodes else None,
        nodes=[_node(site, node, gpu) for node in site.nodes.values()],
        domains=[
            DomainSpec(name=h.name, topology=HYPERNODES, parent=forest[h.name], tier=h.tier)
            for h in site.hyper_nodes.values()
        ],
        queues=queues,
        tenants=[TenantSpec(name=name) for name in dict.fromkeys([*(queue.name for queue in queues), *used])],
        jobs=jobs,
        options=OptionsSpec(gang=False, reject_oversized=False, half_life_ms=None, locality_topology=""),
        now_ms=max((job.submit_ms for job in jobs if job.live is not None), default=0),
    )
    _warn_of_overlaps(site, world)
    ranks = {pod.full_name: rank for rank, pod in enumerate(_in_task_order(site.pods.values()))}
    known = {queue.name for queue in queues}
    config = replace(
        config,
        queues=[_queue(queue, _scale_of(gpu), {}) for queue in site.queues.values()],
        pod_groups=[_pod_group(site, group, sets[group.full_name], ranks, tiers, gpu, known) for group in groups],
    )
    return world, config


def config_of(conf: files.SchedulerConf) -> VolcanoConfig:
    """Actions, tiers and arguments. What Volcano knows and is not modelled is named in one warning and passed over."""
    passed_over = Unknown()
    for action in conf.actions:
        if action not in ACTIONS:
            passed_over.add("is not modelled", f"action {action}", ACTIONS)
    tiers = []
    for tier in conf.tiers:
        plugins = []
        for plugin in tier:
            if plugin.name not in KINDS:
                passed_over.add("is not modelled", f"plugin {plugin.name}")
                continue
            _check_arguments(f"{plugin.name}.arguments", plugin.arguments, ARGUMENTS.get(plugin.name, ()), passed_over)
            enabled = tuple(point for point in POINTS if plugin.is_on(point))
            plugins.append(Plugin(name=plugin.name, enabled=enabled, arguments=plugin.arguments))
        tiers.append(plugins)
    for action, arguments in conf.action_arguments.items():
        _check_arguments(f"configurations.{action}", arguments, ACTION_ARGUMENTS.get(action, ()), passed_over)
    passed_over.warn("volcano-scheduler.conf", "not modelled, passed over")
    return VolcanoConfig(
        actions=tuple(action for action in conf.actions if action in ACTIONS),
        tiers=tiers,
        action_arguments=conf.action_arguments,
    )


def _check_arguments(where: str, given: Mapping[str, Any], known: Sequence[str], passed_over: Unknown) -> None:
    """Arguments that have no effect here; a known one that ends in a dot stands for all that begin so."""
    for name in given:
        if not any(name == word or (word.endswith(".") and name.startswith(word)) for word in known):
            passed_over.add("has no effect", f"{where} {name}", [f"{where} {word}" for word in known])


# ---------------------------------------------------------------------------------------------------------------
# Amounts, nodes, queues
# ---------------------------------------------------------------------------------------------------------------


def _device_backed(nodes: Iterable[Node]) -> str | None:
    """The GPU resource whose devices the world follows: none of its nodes has too many of it."""
    most: dict[str, int] = {}
    for node in nodes:
        for resource, amount in node.amounts.items():
            if resource.endswith("gpu"):
                most[resource] = max(most.get(resource, 0), amount)
    return next((resource for resource, amount in sorted(most.items()) if 0 < amount <= MAX_GPUS_PER_NODE), None)


def _scale_of(gpu: str | None) -> Any:
    return lambda resource: ONE_GPU if resource == gpu else 1


def _scaled(amounts: Mapping[str, int], gpu: str | None) -> dict[str, int]:
    scale = _scale_of(gpu)
    return {resource: amount * scale(resource) for resource, amount in amounts.items()}


def _resources(site: files.Manifests) -> tuple[str, ...]:
    """What pods ask for and queues limit. What a node offers beyond that is left out."""
    names = {resource for pod in site.pods.values() for resource in pod.requests}
    for queue in site.queues.values():
        names |= {*queue.capability, *queue.deserved, *queue.guarantee}
    for group in site.pod_groups.values():
        names |= set(group.min_resources or {})
    return tuple(sorted(names | ({"pods"} if site.nodes else set())))


def _node(site: files.Manifests, node: Node, gpu: str | None) -> NodeSpec:
    offered = set(_resources(site))
    own = [h for h in site.hyper_nodes.values() if node.name in site.leaf_nodes(h.name)]
    return NodeSpec(
        name=node.name,
        amounts=_scaled({r: amount for r, amount in node.amounts.items() if r in offered}, gpu),
        domains={HYPERNODES: min(own, key=lambda h: h.tier).name} if own else {},
        state="up" if node.is_up else "down",
    )


def _forest(site: files.Manifests) -> dict[str, str | None]:
    """Parent of each HyperNode."""
    parent: dict[str, str | None] = dict.fromkeys(site.hyper_nodes)
    for name in site.hyper_nodes:
        for child in site.children(name):
            if parent[child] not in (None, name):
                raise GanglineError(
                    f"manifests: HyperNode {child!r} is in {parent[child]!r} and in {name!r}, expected in one"
                )
            parent[child] = name
    return parent


def _warn_of_overlaps(site: files.Manifests, world: WorldSpec) -> None:
    """A node is in one HyperNode of the lowest tier and in those above: others that name it have it no more."""
    parent = {domain.name: domain.parent for domain in world.domains}
    inside: dict[str, set[str]] = {name: set() for name in parent}
    for node in world.nodes:
        at = node.domains.get(HYPERNODES)
        while at is not None:
            inside[at].add(node.name)
            at = parent[at]
    overlapping = Unknown()
    for name, nodes in inside.items():
        missing = sorted(set(site.leaf_nodes(name)) - nodes)
        if missing:
            overlapping.add(f"{', '.join(missing)} counted elsewhere", f"HyperNode {name}")
    overlapping.warn("manifests", "HyperNodes that overlap others")


def _queues(site: files.Manifests, has_tree: bool) -> list[QueueSpec]:
    """The Queues, and `default` and `root`, which Volcano makes by itself. A parent that is not there is root."""
    names = dict.fromkeys([*site.queues, files.DEFAULT_QUEUE])
    parents = {queue.parent for queue in site.queues.values()} - {None}
    if has_tree or parents:
        names[ROOT] = None
    found = []
    for name in names:
        queue = site.queues.get(name, files.Queue(name=name))
        parent = queue.parent if queue.parent in names else None
        if parent is None and ROOT in names and name != ROOT:
            parent = ROOT
        found.append((name, queue.weight, parent))
    inner = {parent for _, _, parent in found}
    return [
        QueueSpec(name=name, parent=parent, is_cohort=name in inner, weight=weight * 1000)
        for name, weight, parent in found
    ]


def _queue(queue: files.Queue, scale: Any, renamed: Mapping[str, str]) -> Queue:
    def amounts(given: Mapping[str, int]) -> dict[str, int] | None:
        return {renamed.get(r, r): amount * scale(r) for r, amount in given.items()} or None

    return Queue(
        name=queue.name,
        capability=amounts(queue.capability),
        deserved=amounts(queue.deserved),
        guarantee=amounts(queue.guarantee),
        reclaimable=queue.reclaimable,
        priority=queue.priority,
        state=queue.state,
        hierarchy=queue.hierarchy,
        hierarchy_weights=queue.hierarchy_weights,
    )


# ---------------------------------------------------------------------------------------------------------------
# PodGroups and their pods
# ---------------------------------------------------------------------------------------------------------------


def _in_task_order(pods: Iterable[files.Pod]) -> list[files.Pod]:
    by_name = functools.cmp_to_key(compare_pod_names)
    return sorted(pods, key=lambda pod: by_name(pod.full_name))


def _members(site: files.Manifests) -> dict[str, list[files.Pod]]:
    """Pods of each PodGroup, in task order; those that have ended are left out."""
    found: dict[str, list[files.Pod]] = {name: [] for name in site.pod_groups}
    for pod in _in_task_order(site.pods.values()):
        if pod.pod_group not in found:
            raise unknown_name(f"PodGroup of pod {pod.full_name}", pod.pod_group, found)
        if pod.node is not None and pod.node not in site.nodes:
            raise unknown_name(f"node of pod {pod.full_name}", pod.node, site.nodes)
        if pod.phase not in ("Succeeded", "Failed"):
            found[pod.pod_group].append(pod)
    return found


def _runs(pods: Iterable[files.Pod]) -> bool:
    return any(pod.node is not None for pod in pods)


def _match(group: files.PodGroup, pod: files.Pod, pods: Sequence[files.Pod]) -> tuple[int, str] | None:
    """(index of the policy, words of its label values) of a pod's sub-group. A policy without labels, of a Volcano Job,
    cuts the pods of the task of its name into parts of its size.
    """
    for i, policy in enumerate(group.sub_groups):
        if not policy.match_label_keys and pod.task == policy.name:
            index = [other.full_name for other in pods if other.task == pod.task].index(pod.full_name)
            return i, f"{index // max(1, policy.size or 1):06d}"
        if policy.match_label_keys and all(key in pod.labels for key in policy.match_label_keys):
            return i, "-".join(pod.labels[key] for key in policy.match_label_keys)
    return None


def _pod_sets(group: files.PodGroup, pods: Sequence[files.Pod]) -> list[list[files.Pod]]:
    """Pods that differ only in name and whereabouts together, by first appearance."""
    sets: dict[tuple[Any, ...], list[files.Pod]] = {}
    for pod in pods:
        shape = (
            tuple(sorted(pod.requests.items())),
            tuple(sorted(pod.node_selector.items())),
            (pod.task, pod.priority, pod.preemptable, pod.preemption_policy, pod.namespace),
            _match(group, pod, pods),
        )
        sets.setdefault(shape, []).append(pod)
    return list(sets.values())


def _job(
    group: files.PodGroup,
    sets: Sequence[Sequence[files.Pod]],
    tiers: Mapping[str, int],
    gpu: str | None,
    first_ms: int,
    work_ms: int | Mapping[str, int],
) -> JobSpec:
    if not isinstance(work_ms, int) and group.full_name not in work_ms:
        raise unknown_name("job in work_ms", group.full_name, work_ms)
    num_pods = sum(len(pods) for pods in sets)
    placed = [
        PlacedPods(pod_set=i, node=pod.node) for i, pods in enumerate(sets) for pod in pods if pod.node is not None
    ]
    created_ms = (first_ms if group.created_ms is None else group.created_ms) - first_ms
    return JobSpec(
        name=group.full_name,
        tenant=group.queue,
        uid=group.uid,
        priority=group.priority,
        submit_ms=created_ms,
        work_ms=work_ms if isinstance(work_ms, int) else work_ms[group.full_name],
        checkpoint_interval_ms=None,
        pod_sets=[PodSetSpec(count=len(pods), request=_scaled(pods[0].requests, gpu)) for pods in sets]
        or [PodSetSpec(count=0, request={})],
        min_member=max(1, min(group.min_member, num_pods)),
        preemptible=not num_pods or any(pod.preemptable for pods in sets for pod in pods),
        topology=_wish(group.network_topology, tiers),
        live=LiveSpec(pods=placed) if placed else None,
    )


def _wish(asked: files.NetworkTopology | None, tiers: Mapping[str, int]) -> TopologyWish | None:
    """A network topology in the core's words; one without a tier that is known asks for nothing."""
    if asked is None:
        return None
    tier = asked.highest_tier_allowed
    if tier is None:
        tier = tiers.get(asked.highest_tier_name or "")
    mode = "required" if asked.mode == "hard" else "preferred"
    return None if tier is None else TopologyWish(tier=tier, topology=HYPERNODES, mode=mode)  # type: ignore[arg-type]


def _limit(asked: files.NetworkTopology | None, tiers: Mapping[str, int]) -> int | None:
    if asked is None:
        return None
    return limit_of(asked.mode, asked.highest_tier_allowed, asked.highest_tier_name, tiers)


def _pod_group(
    site: files.Manifests,
    group: files.PodGroup,
    sets: Sequence[Sequence[files.Pod]],
    ranks: Mapping[str, int],
    tiers: Mapping[str, int],
    gpu: str | None,
    queues: set[str],
) -> PodGroup:
    asked = group.network_topology
    limit = _limit(asked, tiers)
    members = [pod for pods in sets for pod in pods]
    return PodGroup(
        job=group.full_name,
        min_member=group.min_member,
        min_task_member=group.min_task_member,
        min_resources=None if group.min_resources is None else _scaled(group.min_resources, gpu),
        phase=group.phase,
        has_topology=asked is not None,
        is_hard=limit is not None,
        highest_tier=limit,
        sub_groups=[
            SubGroup(
                name=policy.name,
                size=policy.size or 0,
                min_sub_groups=policy.min_sub_groups or 0,
                highest_tier=_sub_limit(policy.network_topology, limit, tiers),
            )
            for policy in group.sub_groups
        ],
        preemptable=group.preemptable,
        sla_waiting_ms=duration_ms(group.sla_waiting_time),
        pods=[_pods(site, group, pods, _in_task_order(members), ranks) for pods in sets],
        is_known=group.queue in queues,
    )


def _sub_limit(asked: files.NetworkTopology | None, of_job: int | None, tiers: Mapping[str, int]) -> int | None:
    """The same for a sub-group: soft goes as far as its job may."""
    limit = _limit(asked, tiers)
    return of_job if limit == ANY_TIER and of_job is not None else limit


def _pods(
    site: files.Manifests,
    group: files.PodGroup,
    pods: Sequence[files.Pod],
    members: Sequence[files.Pod],
    ranks: Mapping[str, int],
) -> Pods:
    first = pods[0]
    selector = first.node_selector
    bound_first = sorted(pods, key=lambda pod: pod.node is None)
    return Pods(
        task=first.task,
        priority=1 if first.priority is None else first.priority,
        has_priority=first.priority is not None,
        preemptable=first.preemptable,
        preemption_policy=first.preemption_policy,
        nodes=[n.name for n in site.nodes.values() if selector.items() <= n.labels.items()] if selector else None,
        sub_group=_match(group, first, members),
        ranks=[ranks[pod.full_name] for pod in bound_first],
        is_critical=first.namespace == SYSTEM_NAMESPACE,
    )
