"""What a Volcano installation is configured with: actions, tiers of plugins, queues, PodGroups.

Field names follow `volcano-scheduler.conf` and Volcano's API; amounts are in the world's units.
Source: volcano-sh/volcano pkg/scheduler/conf, pkg/scheduler/plugins/defaults.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

POINTS = (
    "job_order",
    "job_ready",
    "job_pipelined",
    "job_starving",
    "job_enqueued",
    "task_order",
    "queue_order",
    "preemptable",
    "reclaimable",
    "preemptive",
    "allocatable",
    "overused",
    "predicate",
    "best_node",
    "node_order",
    "victim",
    "hierarchy",
    "hypernode_order",
    "hypernode_gradient",
    "sub_job_ready",
    "sub_job_pipelined",
    "sub_job_order",
)
ON_UNLESS_SAID = tuple(point for point in POINTS if point != "hierarchy")  # once a file is loaded


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A plugin of a tier: the extension points that are on, and its arguments as the file gives them."""

    name: str
    enabled: Sequence[str] = ON_UNLESS_SAID
    arguments: Mapping[str, Any] = field(default_factory=dict)


def plugin(name: str, *, off: Sequence[str] = (), on: Sequence[str] = (), **arguments: Any) -> Plugin:
    """A plugin as a configuration file enables it: everything but `off`, and `hierarchy` only if asked for."""
    enabled = tuple(point for point in POINTS if point not in off and (point in ON_UNLESS_SAID or point in on))
    return Plugin(name=name, enabled=enabled, arguments=arguments)


BUILT_IN_TIERS = (  # pkg/scheduler/util.go: what runs without a file
    (plugin("priority"), plugin("gang"), plugin("conformance")),
    (plugin("overcommit"), plugin("drf"), plugin("predicates"), plugin("proportion"), plugin("nodeorder")),
)
CHART_TIERS = (  # installer/helm/chart/volcano/config/volcano-scheduler.conf
    (plugin("priority"), plugin("gang", off=("preemptable",)), plugin("conformance")),
    (
        plugin("overcommit"),
        plugin("drf", off=("preemptable",)),
        plugin("predicates"),
        plugin("proportion"),
        plugin("nodeorder"),
        plugin("binpack"),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A Queue beyond its weight and parent, which are the world's. None = not set."""

    name: str
    capability: Mapping[str, int] | None = None
    deserved: Mapping[str, int] | None = None
    guarantee: Mapping[str, int] | None = None
    reclaimable: bool = True
    priority: int = 0
    state: str = "Open"
    hierarchy: str | None = None  # "root/a/b"
    hierarchy_weights: str | None = None  # "100/50/50"


@dataclass(frozen=True, kw_only=True)
class SubGroup:
    """An entry of `subGroupPolicy`."""

    name: str
    size: int = 0
    min_sub_groups: int = 0
    highest_tier: int | None = None  # of a hard or soft network topology
    allocated_hypernode: str | None = None


@dataclass(frozen=True, kw_only=True)
class Pods:
    """What is particular about the pods of one pod set.

    Attributes:
        task: role; "" = none.
        nodes: names of the nodes that a selector admits; None = all.
        sub_group: (index of the policy, words of its label values) that the pods match; None.
        ranks: place in Volcano's task order of each pod of the set, bound ones first; none = as they are counted.
    """

    task: str = ""
    priority: int = 1
    has_priority: bool = True  # False: of a pod without one, which counts as 1, or 0 in topology-aware preemption
    preemptable: bool = True
    preemption_policy: str | None = None
    nodes: Sequence[str] | None = None
    sub_group: tuple[int, str] | None = None
    ranks: Sequence[int] = ()
    is_critical: bool = False  # in kube-system, or of a system-critical class


@dataclass(frozen=True, kw_only=True)
class PodGroup:
    """A PodGroup beyond what a world's job holds."""

    job: str
    min_member: int
    min_task_member: Mapping[str, int] = field(default_factory=dict)
    min_resources: Mapping[str, int] | None = None
    phase: str = "Pending"
    has_topology: bool = False  # asks for a network topology
    is_hard: bool | None = None  # with a limit that has to hold; None = the world's wish
    highest_tier: int | None = None  # None = the root's
    allocated_hypernode: str | None = None
    sub_groups: Sequence[SubGroup] = ()
    preemptable: bool | None = None
    sla_waiting_ms: int | None = None  # annotation; None = as the sla plugin says
    pods: Sequence[Pods] = ()
    is_known: bool = True  # False: names a queue that does not exist, and is left out


ANY_TIER = 1_000_000  # the virtual root's


def limit_of(mode: str, tier: int | None, tier_name: str | None, names: Mapping[str, int]) -> int | None:
    """Highest tier of a network topology: soft is hard up to the root; a tier name that is unknown sets none."""
    if mode != "hard":
        return ANY_TIER
    return tier if tier is not None else names.get(tier_name or "")


def compare_pod_names(a: str, b: str) -> int:
    """Task order among equals, of `namespace/name`: the number after the last dash if both names have three parts, else
    `namespace-name`.
    """
    index_a, index_b = _pod_index(a), _pod_index(b)
    if index_a is not None and index_b is not None and index_a != index_b:
        return index_a - index_b
    key_a, key_b = a.replace("/", "-"), b.replace("/", "-")
    return (key_a > key_b) - (key_a < key_b)


def _pod_index(name: str) -> int | None:
    parts = name.split("/")[-1].split("-")
    return int(parts[-1]) if len(parts) >= 3 and parts[-1].isdigit() else None


@dataclass(frozen=True, kw_only=True)
class VolcanoConfig:
    """A Volcano installation.

    Attributes:
        actions: in order.
        tiers: plugins, tier by tier.
        action_arguments: action -> arguments.
        queues: those of which something is set.
        pod_groups: jobs of which something is set.
        enqueue_configured: None = whether `actions` has enqueue; without it allocate admits Pending PodGroups itself.
        schedule_period_ms: one session each.
    """

    actions: Sequence[str] = ("enqueue", "allocate", "backfill")
    tiers: Sequence[Sequence[Plugin]] = CHART_TIERS
    action_arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    queues: Sequence[Queue] = ()
    pod_groups: Sequence[PodGroup] = ()
    enqueue_configured: bool | None = None
    schedule_period_ms: int = 1000
