"""What Kueue's manifests hold, in plain dataclasses with the names of its API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gangline.envs.core.spec import QueueSpec, QuotaSpec
from gangline.envs.errors import unknown_name
from gangline.envs.files.kubernetes import Node, PriorityClass

COHORT = "cohort/"


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Quota of one resource in one flavor. None = not set."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class FlavorQuotas:
    """A flavor of a resource group, with the quota of each of the group's resources."""

    name: str
    quotas: Mapping[str, Quota]


@dataclass(frozen=True, kw_only=True)
class ResourceGroup:
    """Resources that take the same flavor, and the flavors in the order in which they are tried."""

    resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


@dataclass(frozen=True, kw_only=True)
class Preemption:
    """`spec.preemption`."""

    within_cluster_queue: str = "Never"
    reclaim_within_cohort: str = "Never"
    borrow_within_cohort: str = "Never"
    max_priority_threshold: int | None = None


@dataclass(frozen=True, kw_only=True)
class FlavorFungibility:
    """`spec.flavorFungibility`, in v1beta2's words."""

    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = "TryNextFlavor"
    preference: str = "BorrowingOverPreemption"


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """A cohort, with quota of its own or without."""

    name: str
    parent: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    weight: float = 1.0

    def quotas(self) -> dict[tuple[str, str], Quota]:
        """(flavor, resource) -> quota."""
        return {
            (flavor.name, resource): quota
            for group in self.resource_groups
            for flavor in group.flavors
            for resource, quota in flavor.quotas.items()
        }


@dataclass(frozen=True, kw_only=True)
class ClusterQueue(Cohort):
    """A ClusterQueue; `parent` is its cohort."""

    queueing_strategy: str = "BestEffortFIFO"
    preemption: Preemption = Preemption()
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    admission_mode: str = "None"
    stop_policy: str = "None"  # None | Hold | HoldAndDrain
    admission_checks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LocalQueue:
    """A LocalQueue."""

    name: str
    namespace: str
    cluster_queue: str
    weight: float = 1.0
    stop_policy: str = "None"


@dataclass(frozen=True, kw_only=True)
class ResourceFlavor:
    """A ResourceFlavor."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    topology: str | None = None


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A Topology: labels of nodes, coarsest first."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TopologyRequest:
    """What a pod set asks of the topology."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool = False
    slices: tuple[tuple[str, int], ...] = ()  # (level, pods), outermost first
    group: str | None = None


@dataclass(frozen=True, kw_only=True)
class PodSet:
    """Equal pods of a workload."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    requests: Mapping[str, int] = field(default_factory=dict)  # per pod
    node_selector: Mapping[str, str] = field(default_factory=dict)
    topology: TopologyRequest | None = None


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Quota that a pod set holds: `status.admission.podSetAssignments`."""

    pod_set: str
    count: int | None
    flavors: Mapping[str, str]
    usage: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A Workload, or the one that Kueue makes of a Job."""

    name: str
    namespace: str
    local_queue: str
    pod_sets: tuple[PodSet, ...]
    priority: int = 0
    created_ms: int | None = None
    uid: str = ""
    is_active: bool = True
    claim_ms: int | None = None  # maximumExecutionTimeSeconds, activeDeadlineSeconds
    cluster_queue: str | None = None  # that has admitted it
    assignments: tuple[Assignment, ...] = ()
    reserved_ms: int | None = None  # since when it holds quota
    evicted_ms: int | None = None  # since when it is being evicted

    @property
    def full_name(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """`config.kueue.x-k8s.io` Configuration. None = the section is absent or switched off."""

    fair_sharing: tuple[str, ...] | None = None  # preemption strategies
    usage_half_life_ms: int | None = None  # of admissionFairSharing
    usage_sampling_interval_ms: int = 300_000
    resource_weights: Mapping[str, float] = field(default_factory=dict)
    pods_ready_timeout_ms: int | None = None  # of waitForPodsReady
    block_admission: bool = False
    requeuing_timestamp: str = "Eviction"
    backoff_base_ms: int = 60_000
    backoff_max_ms: int = 3_600_000
    backoff_limit_count: int | None = None
    gates: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Manifests:
    """What the files hold, by name (workloads and LocalQueues by `namespace/name`).

    Attributes:
        skipped: objects of kinds that are not read, with their place.
        unknown: fields that were passed over, with their place.
    """

    cluster_queues: Mapping[str, ClusterQueue] = field(default_factory=dict)
    cohorts: Mapping[str, Cohort] = field(default_factory=dict)
    local_queues: Mapping[str, LocalQueue] = field(default_factory=dict)
    flavors: Mapping[str, ResourceFlavor] = field(default_factory=dict)
    topologies: Mapping[str, Topology] = field(default_factory=dict)
    workload_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    configuration: Configuration | None = None
    skipped: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def queue_of(self, workload: Workload) -> str:
        """The ClusterQueue of a workload: the one that admitted it, else its LocalQueue's.

        Raises:
            GanglineError: there is no such LocalQueue.
        """
        if workload.cluster_queue:
            return workload.cluster_queue
        name = f"{workload.namespace}/{workload.local_queue}"
        if name not in self.local_queues:
            raise unknown_name(f"LocalQueue of workload {workload.full_name}", name, self.local_queues)
        return self.local_queues[name].cluster_queue

    def queue_specs(self, scale: Callable[[str], int] = lambda resource: 1, cohort: str = COHORT) -> list[QueueSpec]:
        """Cohorts, then ClusterQueues, with their quotas, for a `WorldSpec`.

        Cohorts that are only named have no quota and no parent.

        Args:
            scale: base units of the core in one of ours, by resource: 1000 for a device-backed GPU.
            cohort: goes before the names of cohorts: theirs may be those of ClusterQueues, in the core they may not.
        """
        named = {parent for node in (*self.cluster_queues.values(), *self.cohorts.values()) if (parent := node.parent)}
        cohorts = {**self.cohorts, **{name: Cohort(name=name) for name in sorted(named - set(self.cohorts))}}
        return [
            QueueSpec(
                name=node.name if isinstance(node, ClusterQueue) else cohort + node.name,
                parent=None if node.parent is None else cohort + node.parent,
                is_cohort=not isinstance(node, ClusterQueue),
                weight=round(node.weight * 1000),
                quotas={
                    (flavor, resource): QuotaSpec(
                        nominal=quota.nominal * scale(resource),
                        borrowing_limit=_scaled(quota.borrowing_limit, scale(resource)),
                        lending_limit=_scaled(quota.lending_limit, scale(resource)),
                    )
                    for (flavor, resource), quota in node.quotas().items()
                },
            )
            for node in (*cohorts.values(), *self.cluster_queues.values())
        ]


def _scaled(limit: int | None, scale: int) -> int | None:
    return None if limit is None else limit * scale
