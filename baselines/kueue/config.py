"""What a Kueue installation is configured with, in Kueue's own words.

Quotas, cohorts and fair-sharing weights are the world's (`QueueSpec` in `envs/core/spec.py`): a ClusterQueue is the
queue of the same name there, a ResourceFlavor the flavor of the same name. Here is what only Kueue knows: policies,
resource groups, LocalQueues, topologies, and what a workload asks of them. A queue of the world that is not listed
gets `KueueConfig.default_cluster_queue`.
Source: Kueue API v1beta2; defaults as spec/kueue.md section 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

QueueingStrategy = Literal["StrictFIFO", "BestEffortFIFO"]
PreemptionPolicy = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"]
FungibilityPolicy = Literal["MayStopSearch", "TryNextFlavor"]
FlavorPreference = Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"]
FairSharingStrategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
AdmissionMode = Literal["None", "UsageBasedAdmissionFairSharing"]

GATES = {  # feature gates that change a decision, with their defaults
    "PartialAdmission": True,
    "PrioritySortingWithinCohort": True,
    "PrioritizePreemptorWorkloads": False,
    "FlavorFungibility": True,
    "FlavorFungibilityPreserveScanProgress": True,
    "FairSharingPreemptWithinNominal": True,
    "FairSharingPrioritizeNonBorrowing": True,
    "SchedulingEquivalenceHashing": True,
    "RecomputeAssignmentUponPreemptionTargetsOverlap": True,
    "TASRecomputeAssignmentWithinSchedulingCycle": True,
    "TopologyAwareScheduling": True,
    "TASProfileMixed": True,
    "TASBalancedPlacement": False,
}


@dataclass(frozen=True, kw_only=True)
class BorrowWithinCohort:
    """Whether a workload that borrows may preempt in other ClusterQueues of the cohort."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: int | None = None


@dataclass(frozen=True, kw_only=True)
class Preemption:
    """`spec.preemption` of a ClusterQueue."""

    within_cluster_queue: PreemptionPolicy = "Never"
    reclaim_within_cohort: PreemptionPolicy = "Never"
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()


@dataclass(frozen=True, kw_only=True)
class FlavorFungibility:
    """`spec.flavorFungibility` of a ClusterQueue."""

    when_can_borrow: FungibilityPolicy = "MayStopSearch"
    when_can_preempt: FungibilityPolicy = "TryNextFlavor"
    preference: FlavorPreference = "BorrowingOverPreemption"


@dataclass(frozen=True, kw_only=True)
class ResourceGroup:
    """Resources that take the same flavor, and the flavors in the order in which they are tried."""

    resources: Sequence[str]
    flavors: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ClusterQueue:
    """A ClusterQueue less its quotas. `resource_groups` None = as the quotas of the world say."""

    name: str = ""
    queueing_strategy: QueueingStrategy = "BestEffortFIFO"
    resource_groups: Sequence[ResourceGroup] | None = None
    preemption: Preemption = Preemption()
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    admission_mode: AdmissionMode = "None"
    is_active: bool = True  # False: stopped (stopPolicy Hold), nothing new is admitted


@dataclass(frozen=True, kw_only=True)
class LocalQueue:
    """An entry point to a ClusterQueue; it counts for admission fair sharing only."""

    name: str
    cluster_queue: str
    weight: float = 1.0
    consumed: Mapping[str, float] = field(default_factory=dict)  # decayed usage at the beginning, base units


@dataclass(frozen=True, kw_only=True)
class FairSharing:
    """`fairSharing` of the configuration; absent = classical preemption and order."""

    preemption_strategies: Sequence[FairSharingStrategy] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


@dataclass(frozen=True, kw_only=True)
class AdmissionFairSharing:
    """`admissionFairSharing` of the configuration: LocalQueues of one ClusterQueue by their decayed usage."""

    usage_half_life_ms: int = 0
    usage_sampling_interval_ms: int = 300_000
    resource_weights: Mapping[str, float] = field(default_factory=dict)  # not named = 1


@dataclass(frozen=True, kw_only=True)
class WaitForPodsReady:
    """`waitForPodsReady` of the configuration. A workload is ready when all its pods are bound.

    The defaults are those of a cluster that names the section; `KueueConfig.wait_for_pods_ready` None switches it off.
    """

    timeout_ms: int = 1_800_000
    block_admission: bool = False
    requeuing_timestamp: Literal["Eviction", "Creation"] = "Eviction"
    backoff_base_ms: int = 60_000
    backoff_max_ms: int = 3_600_000
    backoff_limit_count: int | None = None  # None = for ever


@dataclass(frozen=True, kw_only=True)
class TopologyRequest:
    """What a pod set asks of the topology; levels by name. All None and not unconstrained = no request."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool = False
    slices: Sequence[tuple[str, int]] = ()  # (level, pods), outermost first
    group: str | None = None  # pod sets of a group are placed together


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The topology of a flavor.

    Attributes:
        flavor: whose nodes it orders.
        topology: name of the world's topology that has the domains; its tiers are the levels, coarsest first.
        levels: names of the levels, coarsest first.
    """

    flavor: str
    topology: str
    levels: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a job of the world asks for in Kueue's words, beyond what the world knows of it."""

    local_queue: str | None = None
    pod_sets: Sequence[TopologyRequest | None] = ()  # by pod set; missing = None
    states_min_count: Sequence[bool] = ()  # by pod set: equivalence hashing tells a minCount equal to count from none
    evicted_ms: int | None = None  # the Evicted condition is set, since then
    evicted_by_pods_ready: bool = False
    preempted_reason: str | None = None  # of the last preemption


@dataclass(frozen=True, kw_only=True)
class KueueConfig:
    """A whole installation.

    Attributes:
        default_cluster_queue: for the queues of the world that `cluster_queues` does not name.
        excluded_resources: not managed by Kueue (`resources.excludeResourcePrefixes`); None = those for which no queue
            of the world has quota.
        workloads: by the name of the job.
        gates: feature gates that differ from `GATES`.
    """

    cluster_queues: Sequence[ClusterQueue] = ()
    default_cluster_queue: ClusterQueue = ClusterQueue()
    local_queues: Sequence[LocalQueue] = ()
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    wait_for_pods_ready: WaitForPodsReady | None = None
    topologies: Sequence[Topology] = ()
    excluded_resources: Sequence[str] | None = ()
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    gates: Mapping[str, bool] = field(default_factory=dict)
