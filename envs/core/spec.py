"""A world written down by hand: plain dataclasses with names, from which the state record is built.

`World.from_state(WorldSpec(...))` turns one into a running world; tests, scenarios, conformance cases and the
readers of real configuration files all end here. Names are strings; amounts are integers in the units of
`core/types.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
DEFAULT_CHECKPOINT_INTERVAL_MS = 30 * MINUTE_MS

JobKindName = Literal["training", "batch", "service"]
OutcomeName = Literal["done", "failed", "hangs"]
QuotaMode = Literal["off", "tracked", "enforced"]


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """One node: amounts it offers, what it is, where it stands."""

    name: str
    amounts: Mapping[str, int]  # resource -> base units; absent = not offered
    flavor: str = "default"
    gpu_type: str = "gpu"
    speed: int = 1000  # thousandths
    domains: Mapping[str, str] = field(default_factory=dict)  # topology -> leaf domain
    state: Literal["up", "drained", "down"] = "up"


@dataclass(frozen=True, kw_only=True)
class DomainSpec:
    """A domain of a topology: rack, block, Volcano HyperNode, Kueue topology level value."""

    name: str
    topology: str = "default"
    parent: str | None = None
    tier: int = 1  # 1 = finest


@dataclass(frozen=True, kw_only=True)
class QuotaSpec:
    """Quota of one (flavor, resource). None = not set: no limit on borrowing, everything may be lent."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class QueueSpec:
    """A queue, or a cohort that queues and cohorts hang under."""

    name: str
    parent: str | None = None
    is_cohort: bool = False
    weight: int = 1000  # fair-sharing weight, thousandths
    quotas: Mapping[tuple[str, str], QuotaSpec] = field(default_factory=dict)  # (flavor, resource)


@dataclass(frozen=True, kw_only=True)
class TenantSpec:
    """A team: its entitlement weight and the queue its jobs enter."""

    name: str
    weight: int = 1
    queue: str | None = None  # None = the queue of the tenant's own name, if there is one


@dataclass(frozen=True, kw_only=True)
class UserSpec:
    """A user of a tenant."""

    name: str
    tenant: str


@dataclass(frozen=True, kw_only=True)
class PodSetSpec:
    """Equal pods of a job."""

    count: int
    request: Mapping[str, int]  # per pod; a key with 0 is asked for, a missing key is not
    min_count: int | None = None  # None = count: no partial admission
    flavors: Sequence[str] | None = None  # allowed, best first; None = all


@dataclass(frozen=True, kw_only=True)
class TopologyWish:
    """All pods inside one domain of this tier: required, or preferred."""

    tier: int
    topology: str = "default"
    mode: Literal["required", "preferred"] = "required"


@dataclass(frozen=True, kw_only=True)
class PlacedPods:
    """Pods of a job that are already on a node."""

    pod_set: int
    node: str
    count: int = 1
    gpu: int | None = None  # first GPU index for a fraction; None = the simulator's rule
    whole_node: bool = False
    release_ms: int | None = None  # they are releasing until then (absolute); None = bound


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Quota that a pod set holds."""

    pod_set: int
    count: int
    flavors: Mapping[str, str]  # resource -> flavor


@dataclass(frozen=True, kw_only=True)
class LiveSpec:
    """Where a job is in its life when the world begins."""

    pods: Sequence[PlacedPods] = ()
    admissions: Sequence[Admission] = ()
    suspended: bool = False
    evicted_to: Literal["requeue", "cancel"] = "requeue"  # what follows when all its pods are releasing
    start_ms: int | None = None  # of the running attempt
    first_start_ms: int | None = None
    last_submit_ms: int | None = None
    admit_ms: int | None = None
    evict_ms: int | None = None
    eligible_ms: int | None = None  # held by the scheduler, or by a requeue delay, until then
    progress_ms: int = 0  # work done, ms at full speed
    saved_ms: int = 0  # of it, safe in a checkpoint
    starts: int | None = None  # None = 1 if it has pods, else 0
    preemptions: int = 0


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One job, hidden truth included."""

    name: str
    tenant: str
    pod_sets: Sequence[PodSetSpec]
    work_ms: int
    submit_ms: int = 0
    eligible_ms: int | None = None  # None = at submission
    min_member: int | None = None  # None = every pod of a training job; 1 of a batch job or service
    user: str | None = None
    queue: str | None = None  # None = the tenant's
    kind: JobKindName = "training"
    priority: int = 0
    preemptible: bool = True
    requeue: bool = True
    claim_ms: int | None = None  # visible walltime claim; None = endless
    killed_at_claim: bool = False
    outcome: OutcomeName = "done"
    outcome_ms: int | None = None  # progress at which it fails or hangs
    cancel_ms: int | None = None
    checkpoint_interval_ms: int | None = DEFAULT_CHECKPOINT_INTERVAL_MS  # None = never
    checkpoint_cost_ms: int = 0
    restart_cost_ms: int = 0
    after: str | None = None  # name of the job it depends on
    topology: TopologyWish | None = None
    uid: str = ""
    live: LiveSpec | None = None  # None = arrives at submit_ms


@dataclass(frozen=True, kw_only=True)
class ChangeSpec:
    """A change that comes from outside, at a time."""

    time_ms: int
    what: Literal[
        "nominal", "borrowing_limit", "lending_limit", "tenant_weight", "replicas", "node_state", "queue_weight"
    ]
    target: str  # queue, tenant, job or node
    cell: tuple[str, str] | None = None  # (flavor, resource)
    pod_set: int = 0
    value: int | str | None = 0  # node_state: up, drained, down; a limit may be None


@dataclass(frozen=True, kw_only=True)
class OptionsSpec:
    """World options; docs/model.md says what each does."""

    quota: QuotaMode = "off"
    gang: bool = True
    reject_oversized: bool = True
    half_life_ms: int | None = 7 * 24 * HOUR_MS  # None = usage does not decay
    usage_tick_ms: int | None = None
    start_latency_ms: int = 0
    completing_ms: int = 0
    limit_check_ms: int = 0
    requeue_hold_ms: int = 0
    hang_timeout_ms: int | None = None
    mean_up_ms: float | None = None  # node failures; None = none
    mean_down_ms: float = HOUR_MS
    locality: Sequence[int] = ()  # speed by tier of the domain that spans the job: [same node, tier 1, tier 2, ...]
    locality_topology: str = "default"
    failure_seed: int = 0


@dataclass(frozen=True, kw_only=True)
class WorldSpec:
    """A whole world at an instant."""

    resources: Sequence[str] = ("gpu",)
    gpu_resource: str | None = "gpu"  # the device-backed one
    pods_resource: str | None = None  # every pod takes one of it
    flavors: Sequence[str] = ("default",)
    nodes: Sequence[NodeSpec] = ()
    domains: Sequence[DomainSpec] = ()
    queues: Sequence[QueueSpec] = ()
    tenants: Sequence[TenantSpec] = ()
    users: Sequence[UserSpec] = ()
    jobs: Sequence[JobSpec] = ()
    changes: Sequence[ChangeSpec] = ()
    usage: Mapping[str, float] = field(default_factory=dict)  # tenant or user -> decayed GPU time, milli-GPU x ms
    options: OptionsSpec = OptionsSpec()
    now_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command of a transaction, by names. `World.apply` takes lists of them; docs/model.md section 5."""

    op: Literal["admit", "unadmit", "place", "evict", "suspend", "resume", "hold", "cancel", "reserve", "unreserve"]
    job: str
    pod_set: int | None = None  # admit, place; evict: None = all
    node: str | None = None  # place, reserve; evict: None = any
    pods: int | None = None  # admit, place; evict: None = all
    flavors: Mapping[str, str] = field(default_factory=dict)  # admit: resource -> flavor
    beyond_quota: bool = False  # admit: whether the limits allow that or not
    whole_node: bool = False  # place
    gpu: int | None = None  # place: the GPU to take a fraction of
    grace_ms: int = 0  # evict
    then: Literal["requeue", "cancel", "shrink"] = "requeue"  # evict
    freed: Sequence[str] = ()  # suspend: resources given up
    until_ms: int = 0  # hold, reserve
    amounts: Mapping[str, int] = field(default_factory=dict)  # reserve
    reason: Literal["unspecified", "by_user", "by_scheduler"] = "by_scheduler"  # cancel
