"""From a configuration by names to Volcano's record for a world."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.baselines.volcano.config import POINTS, Plugin, PodGroup, Queue, VolcanoConfig
from gangline.baselines.volcano.state import (
    ALL_NODES,
    MAX_ACTIONS,
    MAX_DEPTH,
    MAX_DOMAINS_TO_EVICT,
    MAX_HDRF,
    MAX_NAMED_JOBS,
    MAX_NAMED_SETS,
    MAX_PLUGINS,
    MAX_POLICIES,
    MAX_RANKS,
    Action,
    Kind,
    Phase,
    volcano_dtype,
)
from gangline.envs.core.types import NEVER, NONE
from gangline.envs.errors import GanglineError, unknown_name

if TYPE_CHECKING:
    from gangline.envs.core.world import World

KINDS = {
    "gang": Kind.GANG,
    "priority": Kind.PRIORITY,
    "drf": Kind.DRF,
    "proportion": Kind.PROPORTION,
    "capacity": Kind.CAPACITY,
    "predicates": Kind.PREDICATES,
    "nodeorder": Kind.NODEORDER,
    "binpack": Kind.BINPACK,
    "overcommit": Kind.OVERCOMMIT,
    "sla": Kind.SLA,
    "conformance": Kind.CONFORMANCE,
    "network-topology-aware": Kind.TOPOLOGY,
    "fake-victims": Kind.PRIORITY_VICTIMS,
    "test-rejecter": Kind.REJECTER,
}
# Arguments that have an effect, or would have one on what a world does not have; a trailing dot: all that begin so.
ARGUMENTS = {
    "binpack": ("binpack.weight", "binpack.cpu", "binpack.memory", "binpack.resources", "binpack.resources."),
    "nodeorder": (
        *("leastrequested.weight", "mostrequested.weight", "balancedresource.weight", "nodeaffinity.weight"),
        *("podaffinity.weight", "tainttoleration.weight", "imagelocality.weight", "podtopologyspread.weight"),
    ),
    "overcommit": ("overcommit-factor",),
    "sla": ("sla-waiting-time",),
    "capacity": ("ancestorReclaimLevel",),
    "network-topology-aware": (
        *("weight", "hypernode.binpack.cpu", "hypernode.binpack.memory", "hypernode.binpack.resources"),
        *("hypernode.binpack.resources.", "hypernode.binpack.normal-pod.enable"),
        *("hypernode.binpack.normal-pod.fading", "hypernode.gradient.evict.max-hypernodes"),
    ),
    "predicates": ("predicate.",),
}
ACTION_ARGUMENTS = {
    "preempt": ("enableTopologyAwarePreemption",),
    "gangpreempt": ("maxDomains", "allowWholeBundle"),
    "gangreclaim": ("maxDomains", "allowWholeBundle"),
    "allocate": ("predicateErrorCacheEnable",),
}
NOT_MODELLED = (  # they have nothing to say about a world: docs/volcano.md
    *("cdp", "deviceshare", "extender", "nodegroup", "numaaware", "pdb", "rescheduling", "resource-strategy-fit"),
    *("resourcequota", "task-topology", "tdm", "usage"),
)
GPU_NAMES = ("gpu", "nvidia.com/gpu")


def private_bytes(world: World, config: VolcanoConfig, grace_ms: int, one_session: bool) -> np.ndarray:
    """(num_bytes,) uint8: the record of a size class.

    Raises:
        GanglineError: a name that the world or Volcano does not have, or more than the record holds.
    """
    private = np.zeros(volcano_dtype(world.size).itemsize, np.uint8)
    k = private.view(volcano_dtype(world.size))[0]
    k["grace_ms"] = grace_ms
    k["one_session"] = one_session
    k["period_ms"] = config.schedule_period_ms
    k["seen_change"] = NONE
    _fill_resources(k, world)
    _fill_actions(k, config)
    _fill_plugins(k, world, config)
    _fill_queues(k, world, config)
    k["topology"] = 0 if world.names.topologies else NONE
    _fill_pod_groups(k, world, config)
    return private


def _fill_resources(k: np.void, world: World) -> None:
    names = world.names.resources
    for field, known in (("cpu", ("cpu",)), ("memory", ("memory",)), ("gpu", GPU_NAMES)):
        k[field] = next((r for r, name in enumerate(names) if name in known), NONE)
    params = world.record["params"]
    k["pods"] = params["pods_resource"]
    k["tolerance"] = 0.1
    for r in range(len(names)):  # Volcano keeps other devices in thousandths
        if r not in (k["cpu"], k["memory"], k["pods"], params["gpu_resource"]):
            k["tolerance"][r] = 0.0001


def _fill_actions(k: np.void, config: VolcanoConfig) -> None:
    if len(config.actions) > MAX_ACTIONS:
        raise GanglineError(f"{len(config.actions)} actions, expected at most {MAX_ACTIONS}")
    known = {action.name.lower(): action for action in Action}
    k["num_actions"] = len(config.actions)
    for i, name in enumerate(config.actions):
        if name not in known:
            raise unknown_name("Volcano action", name, known)
        k["actions"][i] = known[name]
    configured = config.enqueue_configured
    k["admits_itself"] = "enqueue" not in config.actions if configured is None else not configured
    preempt = config.action_arguments.get("preempt", {})
    k["topology_aware_preemption"] = _flag(preempt.get("enableTopologyAwarePreemption", False))
    for i, name in enumerate(("gangpreempt", "gangreclaim")):
        given = config.action_arguments.get(name, {})
        k["allow_whole_bundle"][i] = _flag(given.get("allowWholeBundle", True))
        most = int(_number(given, "maxDomains", MAX_DOMAINS_TO_EVICT))
        k["max_domains"][i] = most if most > 0 else MAX_DOMAINS_TO_EVICT


def _flag(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).strip().lower() in ("1", "t", "true")


def _number(arguments: Mapping[str, Any], key: str, default: float) -> float:
    value = arguments.get(key, default)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise GanglineError(f"argument {key} is {value!r}, expected a number") from None


def _fill_plugins(k: np.void, world: World, config: VolcanoConfig) -> None:
    plugins = [(tier, plugin) for tier, plugins in enumerate(config.tiers) for plugin in plugins]
    if len(plugins) > MAX_PLUGINS:
        raise GanglineError(f"{len(plugins)} plugins, expected at most {MAX_PLUGINS}")
    k["sla_ms"] = NEVER
    k["binpack"] = NONE
    k["topology_binpack"] = NONE
    k["rejected_row"] = NONE
    k["max_evict_domains"] = MAX_DOMAINS_TO_EVICT
    k["num_plugins"] = len(plugins)
    for i, (tier, plugin) in enumerate(plugins):
        if plugin.name not in KINDS and plugin.name not in NOT_MODELLED:
            raise unknown_name("Volcano plugin", plugin.name, [*KINDS, *NOT_MODELLED])
        record = k["plugins"][i]
        record["kind"] = KINDS.get(plugin.name, Kind.OTHER)
        record["tier"] = tier
        for point in plugin.enabled:
            if point not in POINTS:
                raise unknown_name(f"switch of plugin {plugin.name!r}", point, POINTS)
            record["enabled"] |= 1 << POINTS.index(point)
        _fill_arguments(k, world, plugin)
    for members in config.tiers:
        names = {plugin.name: plugin for plugin in members}
        both = "proportion" in names and "drf" in names and "hierarchy" in names["drf"].enabled
        if both and not any(queue.hierarchy for queue in config.queues):
            raise GanglineError("a tier has proportion beside drf with hierarchy, expected one of them")


def _fill_arguments(k: np.void, world: World, plugin: Plugin) -> None:
    given = plugin.arguments
    if plugin.name == "binpack":
        k["binpack_weight"] = _number(given, "binpack.weight", 1)
        _fill_weights(k["binpack"], world, given, "binpack")
    elif plugin.name == "nodeorder":
        k["least_requested"] = _number(given, "leastrequested.weight", 1)
        k["most_requested"] = _number(given, "mostrequested.weight", 0)
        k["balanced"] = _number(given, "balancedresource.weight", 1)
    elif plugin.name == "overcommit":
        factor = _number(given, "overcommit-factor", 1.2)
        k["overcommit_factor"] = factor if factor >= 1 else 1.2
    elif plugin.name == "sla":
        wait_ms = duration_ms(given.get("sla-waiting-time"))
        k["sla_ms"] = NEVER if wait_ms is None else wait_ms
    elif plugin.name == "capacity":
        k["reclaim_level"] = int(_number(given, "ancestorReclaimLevel", 0))
        k["hierarchy"] = "hierarchy" in plugin.enabled
    elif plugin.name == "drf":
        k["hdrf"] = "hierarchy" in plugin.enabled
    elif plugin.name == "network-topology-aware":
        k["topology_weight"] = _number(given, "weight", 1)
        most = int(_number(given, "hypernode.gradient.evict.max-hypernodes", MAX_DOMAINS_TO_EVICT))
        k["max_evict_domains"] = most if most > 0 else MAX_DOMAINS_TO_EVICT
        k["scores_normal_pods"] = _flag(given.get("hypernode.binpack.normal-pod.enable", True))
        k["fading"] = _number(given, "hypernode.binpack.normal-pod.fading", 0.8)
        _fill_weights(k["topology_binpack"], world, given, "hypernode.binpack")
    elif plugin.name == "fake-victims":
        k["shuffled_priority"] = int(given["select_running_pods_with_priority"])
    elif plugin.name == "test-rejecter":
        k["rejected_row"] = world.job_names.index(given["reject_job"])


def _fill_weights(into: np.ndarray, world: World, given: Mapping[str, Any], prefix: str) -> None:
    """Weights by resource: cpu and memory 1, others only if they are listed; negative ones become 1."""
    names = world.names.resources
    listed = [name.strip() for name in str(given.get(f"{prefix}.resources", "")).split(",") if name.strip()]
    for name in ("cpu", "memory", *listed):
        weight = _number(given, f"{prefix}.{name}" if name in ("cpu", "memory") else f"{prefix}.resources.{name}", 1)
        own = "gpu" if name == "nvidia.com/gpu" and "gpu" in names else name
        if own in names:
            into[names.index(own)] = weight if weight >= 0 else 1


def duration_ms(text: Any) -> int | None:
    """A Go duration; what is no text, or none, is not set."""
    units = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
    if not isinstance(text, str) or not re.fullmatch(r"(\d+(\.\d+)?(h|ms|m|s))+", text):
        return None
    return round(sum(float(n) * units[u] for n, _, u in re.findall(r"(\d+(\.\d+)?)(h|ms|m|s)", text)))


# ---------------------------------------------------------------------------------------------------------------
# Queues
# ---------------------------------------------------------------------------------------------------------------


def _fill_queues(k: np.void, world: World, config: VolcanoConfig) -> None:
    by_name = {queue.name: queue for queue in config.queues}
    names = world.names.queues
    for name in by_name:
        world.names.find("queues" if names else "tenants", name)
    k["root"] = names.index("root") if "root" in names else NONE
    parents = {int(world.record["queues"][q]["parent"]) for q in range(len(names))}
    for q, name in enumerate(names):
        record = k["queues"][q]
        parent = int(world.record["queues"][q]["parent"])
        if parent == NONE and q != k["root"]:
            parent = int(k["root"])
        record["parent"] = parent
        record["name_rank"] = world.record["queues"][q]["name_rank"]
        record["is_leaf"] = q not in parents and q != k["root"]
        record["weight"] = max(1.0, float(world.record["queues"][q]["weight"]) / 1000)
        _fill_queue(record, world, by_name.get(name) or _queue_of_world(world, q))
    _fill_unnamed(k, world, by_name)
    if k["hdrf"]:
        _fill_tree(k, world, by_name)


def _fill_queue(record: np.void, world: World, queue: Queue) -> None:
    record["is_open"] = queue.state in ("Open", "")
    record["is_reclaimable"] = queue.reclaimable
    record["priority"] = queue.priority
    record["path"] = NONE
    record["capability_has"] = _fill_amounts(record["capability"], world, queue.capability)
    record["deserved_spec_has"] = _fill_amounts(record["deserved_spec"], world, queue.deserved)
    _fill_amounts(record["guarantee"], world, queue.guarantee)


def _fill_unnamed(k: np.void, world: World, by_name: Mapping[str, Queue]) -> None:
    """Queues that a world does not have: of its tenants if it has none at all, else one `default` for who has none."""
    num_queues = len(world.names.queues)
    k["tenants_are_queues"] = num_queues == 0
    weights = [float(tenant["weight"]) for tenant in world.record["tenants"][: len(world.names.tenants)]]
    extra = weights if num_queues == 0 else [1.0]
    k["num_queues"] = min(num_queues + len(extra), len(k["queues"]))
    for i in range(num_queues, int(k["num_queues"])):
        record = k["queues"][i]
        name = world.names.tenants[i] if num_queues == 0 else ""
        record["name_rank"] = world.record["tenants"][i]["name_rank"] if num_queues == 0 else num_queues
        record["is_leaf"] = True
        record["parent"] = k["root"]
        record["weight"] = max(1.0, extra[i - num_queues])
        _fill_queue(record, world, by_name.get(name) or Queue(name=name))


def _fill_amounts(into: np.ndarray, world: World, amounts: Mapping[str, int] | None) -> int:
    """Amounts by name into a vector; returns the mask of those that are there."""
    has = 0
    for name, value in (amounts or {}).items():
        r = world.names.find("resources", name)
        into[r] = value
        has |= 1 << r
    return has


def _queue_of_world(world: World, q: int) -> Queue:
    """What a world's quotas mean to capacity: nominal is deserved, with the borrowing limit it is the capability."""
    quotas = world.record["queues"][q]
    deserved: dict[str, int] = {}
    capability: dict[str, int] = {}
    guarantee: dict[str, int] = {}
    for cell, (_, resource) in enumerate(world.names.cells):
        nominal = int(quotas["nominal"][cell])
        limit, lent = int(quotas["borrowing_limit"][cell]), int(quotas["lending_limit"][cell])
        deserved[resource] = deserved.get(resource, 0) + nominal
        if limit != NONE:
            capability[resource] = capability.get(resource, 0) + nominal + limit
        if lent != NONE:
            guarantee[resource] = guarantee.get(resource, 0) + max(0, nominal - lent)
    return Queue(name=world.names.queues[q], deserved=deserved, capability=capability, guarantee=guarantee)


def _fill_tree(k: np.void, world: World, by_name: Mapping[str, Queue]) -> None:
    """Nodes of hierarchical shares: from the annotations, else from the world's own tree."""
    known: dict[str, int] = {}
    for q, name in enumerate(world.names.queues):
        queue = by_name.get(name)
        path, weights = _path_of(world, q) if queue is None or not queue.hierarchy else _annotated(queue)
        if len(path) > MAX_DEPTH:
            raise GanglineError(f"queue {name!r} is {len(path)} levels deep, expected at most {MAX_DEPTH}")
        for depth in range(len(path)):
            full = "/".join(path[: depth + 1])
            if full not in known:
                if len(known) == MAX_HDRF:
                    raise GanglineError(f"more than {MAX_HDRF} nodes of hierarchical shares, expected fewer")
                node = k["tree"][len(known)]
                node["parent"] = known["/".join(path[:depth])] if depth else NONE
                node["depth"] = depth
                node["weight"] = max(1.0, weights[depth])
                known[full] = len(known)
            k["queues"][q]["path"][depth] = known[full]
    k["num_hdrf"] = len(known)


def _annotated(queue: Queue) -> tuple[list[str], list[float]]:
    path = (queue.hierarchy or "").split("/")
    weights = [float(word) for word in (queue.hierarchy_weights or "").split("/") if word]
    return path, weights + [1.0] * (len(path) - len(weights))


def _path_of(world: World, q: int) -> tuple[list[str], list[float]]:
    path: list[str] = []
    weights: list[float] = []
    while q != NONE:
        path.insert(0, world.names.queues[q])
        weights.insert(0, float(world.record["queues"][q]["weight"]) / 1000)
        q = int(world.record["queues"][q]["parent"])
    if path[0] != "root":
        path.insert(0, "root")
        weights.insert(0, 1.0)
    return path, weights


# ---------------------------------------------------------------------------------------------------------------
# PodGroups
# ---------------------------------------------------------------------------------------------------------------


def _fill_pod_groups(k: np.void, world: World, config: VolcanoConfig) -> None:
    used = {"sets": 0, "ranks": 0, "sub_jobs": 0}
    rows = {name: row for row, name in enumerate(world.job_names)}
    for group in config.pod_groups:
        if group.job not in rows:
            raise unknown_name("job of a PodGroup", group.job, rows)
        row = rows[group.job]
        if row >= MAX_NAMED_JOBS:
            raise GanglineError(f"PodGroup {group.job!r} is job {row}, expected fewer than {MAX_NAMED_JOBS} jobs")
        k["num_named"] = max(int(k["num_named"]), row + 1)
        _fill_pod_group(k, k["named"][row], world, group, used)


def _fill_pod_group(k: np.void, record: np.void, world: World, group: PodGroup, used: dict[str, int]) -> None:
    phases = {phase.name.lower(): phase for phase in Phase}
    phase = group.phase.lower() or "pending"
    if phase not in phases:
        raise unknown_name("phase of a PodGroup", group.phase, [p.name.capitalize() for p in Phase])
    if len(group.sub_groups) > MAX_POLICIES:
        raise GanglineError(f"PodGroup {group.job!r} has {len(group.sub_groups)} sub-groups, expected {MAX_POLICIES}")
    record["is_named"] = True
    record["is_known"] = group.is_known
    record["phase"] = phases[phase]
    record["min_member"] = group.min_member
    record["total_role_min"] = sum(group.min_task_member.values())
    record["has_min_resources"] = group.min_resources is not None
    _fill_amounts(record["min_resources"], world, group.min_resources)
    record["is_preemptable"] = NONE if group.preemptable is None else int(group.preemptable)
    record["sla_ms"] = NONE if group.sla_waiting_ms is None else group.sla_waiting_ms
    record["is_hard"] = NONE if group.is_hard is None else int(group.is_hard)
    record["has_wish"] = group.has_topology
    record["limit"] = NONE if group.highest_tier is None else group.highest_tier
    record["allocated_hypernode"] = NONE
    domains = [name.partition("/")[2] for name in world.names.domains]
    if group.allocated_hypernode in domains:
        record["allocated_hypernode"] = domains.index(group.allocated_hypernode)
    record["num_policies"] = len(group.sub_groups)
    for i, policy in enumerate(group.sub_groups):
        record["min_sub_groups"][i] = policy.min_sub_groups
    sub_jobs = _fill_sub_jobs(k, record, group, used, domains)
    roles = {task: i for i, task in enumerate(dict.fromkeys(pods.task for pods in group.pods))}
    record["first_set"] = used["sets"]
    record["num_sets"] = len(group.pods)
    for pods in group.pods:
        if used["sets"] == MAX_NAMED_SETS or used["ranks"] + len(pods.ranks) > MAX_RANKS:
            raise GanglineError(f"more than {MAX_NAMED_SETS} pod sets or {MAX_RANKS} pods named, expected fewer")
        s = k["named_sets"][used["sets"]]
        s["role"] = roles[pods.task]
        s["named_role"] = pods.task != ""
        s["role_min"] = group.min_task_member.get(pods.task, 0)
        s["priority"] = pods.priority
        s["has_priority"] = pods.has_priority
        s["is_preemptable"] = pods.preemptable
        s["never_preempts"] = pods.preemption_policy == "Never"
        s["is_critical"] = pods.is_critical
        s["sub_job"] = sub_jobs.index(pods.sub_group) if pods.sub_group in sub_jobs else NONE
        s["nodes"] = ALL_NODES if pods.nodes is None else _node_mask(world, pods.nodes)
        s["first_rank"] = used["ranks"]
        s["num_ranks"] = len(pods.ranks)
        k["ranks"][used["ranks"] : used["ranks"] + len(pods.ranks)] = pods.ranks
        used["ranks"] += len(pods.ranks)
        used["sets"] += 1


def _fill_sub_jobs(
    k: np.void, record: np.void, group: PodGroup, used: dict[str, int], domains: Sequence[str]
) -> list[tuple[int, str] | None]:
    """One sub-job for each policy and label value, by policy and then by name; pods that match none form one more."""
    found: Sequence[tuple[int, str] | None] = ()
    if group.sub_groups:
        matched = {pods.sub_group for pods in group.pods if pods.sub_group is not None}
        found = [*sorted(matched), *([None] if any(pods.sub_group is None for pods in group.pods) else [])]
    record["first_sub_job"] = used["sub_jobs"]
    record["num_sub_jobs"] = len(found)
    for i, match in enumerate(found):
        s = k["sub_jobs"][used["sub_jobs"] + i]
        policy = None if match is None else group.sub_groups[match[0]]
        s["policy"] = NONE if match is None else match[0]
        s["size"] = 0 if policy is None else policy.size
        s["limit"] = NONE if policy is None or policy.highest_tier is None else policy.highest_tier
        s["allocated_hypernode"] = NONE
        s["nominated_hypernode"] = NONE
        if policy is not None and policy.allocated_hypernode in domains:
            s["allocated_hypernode"] = domains.index(policy.allocated_hypernode)
    used["sub_jobs"] += len(found)
    return list(found)


def _node_mask(world: World, nodes: Sequence[str]) -> int:
    indices = [world.names.find("nodes", name) for name in nodes]
    if any(n >= 63 for n in indices) or len(world.names.nodes) > 63:
        raise GanglineError("node selectors of single PodGroups need a world of at most 63 nodes; use flavors instead")
    return sum(1 << n for n in indices)
