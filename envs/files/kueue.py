"""Manifests of Kueue: queues, cohorts, flavors, topologies, priority classes, workloads and Jobs, its configuration.

    site = kueue.read("queues.yaml", "jobs/")
    site.cluster_queues["team-a"].quotas()     # {("default", "nvidia.com/gpu"): Quota(nominal=8, ...)}

Both v1beta1 and v1beta2 are understood: `cohort` and `cohortName`, `parent` and `parentName`, `priorityClassName` and
`priorityClassRef`, `Borrow`/`Preempt` and `MayStopSearch`. Amounts are base units (milli-CPU, bytes, whole pieces).
A `batch/v1` Job is the workload that Kueue would make of it. Namespaces and namespace selectors are not followed.
Source: kubernetes-sigs/kueue `apis/kueue`, `apis/config`, `pkg/controller/jobs/job`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gangline.envs.core.spec import QueueSpec, QuotaSpec
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.files.kubernetes import (
    Document,
    Fields,
    Meta,
    Node,
    PriorityClass,
    documents,
    duration_ms,
    files_of,
    kind_of,
    meta_of,
    node_of,
    parse_yaml,
    pod_template,
    priority_class_of,
    priority_of,
    quantity,
    time_ms,
)
from gangline.envs.files.text import Expected, Unknown, real, shown

GROUP = "kueue.x-k8s.io"
QUEUE_LABEL = f"{GROUP}/queue-name"
PRIORITY_LABEL = f"{GROUP}/priority-class"
MIN_PARALLELISM = f"{GROUP}/job-min-parallelism"
COHORT = "cohort/"

POLICIES = ("Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any")
FUNGIBILITY = {"MayStopSearch": "MayStopSearch", "TryNextFlavor": "TryNextFlavor"}
OLD_FUNGIBILITY = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}  # v1beta1
STRATEGIES = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


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


def read(*paths: str | Path) -> Manifests:
    """Read manifest files and folders.

    Raises:
        GanglineError: one line with file, document and path of the field: a value that makes no sense, an object that
            is there twice, a flavor without the quota of a covered resource, a priority class that is not there.
    """
    if not paths:
        raise GanglineError("manifests: no file, expected at least one")
    unknown = Unknown()
    found: dict[str, dict[str, Any]] = {}
    places: dict[tuple[str, str], str] = {}
    skipped: list[str] = []
    later: list[tuple[Document, Fields]] = []
    files = files_of(paths)
    for path in files:
        for document in documents(path):
            top = Fields(document.content, document.where, "", unknown)
            place, reader = _reader(document)
            if place == "workloads":
                later.append((document, top))  # they need the priority classes
            elif reader is None:
                name = shown(str((document.content.get("metadata") or {}).get("name", "")))[1:-1]
                skipped.append(f"{document.kind} {name} ({document.where})")
            else:
                result = reader(top)
                if result is None:
                    continue
                _once(found, places, place, _key(result), result, document.where)
    for document, top in later:
        made = _workload(top, found) if document.kind == "Workload" else _job(top, found)
        if made is None:
            skipped.append(f"{document.kind} without the label {QUEUE_LABEL} ({document.where})")
        else:
            _once(found, places, "workloads", made.full_name, made, document.where)
    configuration = found.pop("configuration", {})
    return Manifests(
        **found,
        configuration=next(iter(configuration.values()), None),
        skipped=tuple(skipped),
        unknown=unknown.warn(str(files[0]) if len(files) == 1 else f"{len(files)} files from {files[0]}"),
    )


def _reader(document: Document) -> tuple[str, Callable[[Fields], Any] | None]:
    """(field of `Manifests`, what reads it) of an object."""
    group = document.api.partition("/")[0]
    table: dict[tuple[str, str], tuple[str, Callable[[Fields], Any] | None]] = {
        (GROUP, "ClusterQueue"): ("cluster_queues", _cluster_queue),
        (GROUP, "Cohort"): ("cohorts", _cohort),
        (GROUP, "LocalQueue"): ("local_queues", _local_queue),
        (GROUP, "ResourceFlavor"): ("flavors", _flavor),
        (GROUP, "Topology"): ("topologies", _topology),
        (GROUP, "WorkloadPriorityClass"): ("workload_classes", priority_class_of),
        (GROUP, "Workload"): ("workloads", None),
        ("batch", "Job"): ("workloads", None),
        ("scheduling.k8s.io", "PriorityClass"): ("priority_classes", priority_class_of),
        ("v1", "Node"): ("nodes", node_of),
        (f"config.{GROUP}", "Configuration"): ("configuration", _configuration),
        ("v1", "ConfigMap"): ("configuration", _config_map),
    }
    return table.get((group, document.kind), ("", None))


def _key(result: Any) -> str:
    if isinstance(result, LocalQueue):
        return f"{result.namespace}/{result.name}"
    return getattr(result, "name", "configuration")


def _once(
    found: dict[str, dict[str, Any]],
    places: dict[tuple[str, str], str],
    place: str,
    name: str,
    result: Any,
    where: str,
) -> None:
    if (place, name) in places:
        raise GanglineError(
            f"{where}: {shown(name)} is there already ({places[place, name]}), expected each object once"
        )
    places[place, name] = where
    found.setdefault(place, {})[name] = result


# ---------------------------------------------------------------------------------------------------------------
# Queues
# ---------------------------------------------------------------------------------------------------------------


def _cluster_queue(top: Fields) -> ClusterQueue:
    meta, spec = meta_of(top), top.sub("spec")
    top.done()
    preemption, borrow = spec.sub("preemption"), spec.sub("preemption").sub("borrowWithinCohort")
    fungibility, checks = spec.sub("flavorFungibility"), spec.sub("admissionChecksStrategy")
    cohort = spec.text("cohortName") or spec.text("cohort") or None
    if "cohort" in spec and "cohortName" in spec and spec.text("cohort") != cohort:
        raise spec.wrong("cohort", f"the same as cohortName {shown(cohort)}")
    queue = ClusterQueue(
        name=meta.name,
        parent=cohort,
        resource_groups=_groups(spec, can_borrow=cohort is not None),
        weight=_weight(spec),
        queueing_strategy=spec.choice("queueingStrategy", ("StrictFIFO", "BestEffortFIFO"), "BestEffortFIFO"),
        preemption=Preemption(
            within_cluster_queue=preemption.choice("withinClusterQueue", POLICIES[:3], "Never"),
            reclaim_within_cohort=preemption.choice("reclaimWithinCohort", POLICIES, "Never"),
            borrow_within_cohort=borrow.choice("policy", POLICIES[:2], "Never"),
            max_priority_threshold=borrow.integer("maxPriorityThreshold"),
        ),
        flavor_fungibility=FlavorFungibility(
            when_can_borrow=_fungible(fungibility, "whenCanBorrow", "MayStopSearch"),
            when_can_preempt=_fungible(fungibility, "whenCanPreempt", "TryNextFlavor"),
            preference=fungibility.choice(
                "preference", ("BorrowingOverPreemption", "PreemptionOverBorrowing"), "BorrowingOverPreemption"
            ),
        ),
        admission_mode=spec.sub("admissionScope").choice(
            "admissionMode", ("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"), "None"
        ),
        stop_policy=spec.choice("stopPolicy", ("None", "Hold", "HoldAndDrain"), "None"),
        admission_checks=(*spec.texts("admissionChecks"), *(check.name() for check in checks.each("admissionChecks"))),
    )
    preemption.ignore("borrowWithinCohort")
    for inside in (preemption, borrow, fungibility):
        inside.done()
    spec.ignore("namespaceSelector", "concurrentAdmissionPolicy")
    spec.done()
    return queue if queue.admission_mode != "NoAdmissionFairSharing" else replace(queue, admission_mode="None")


def _fungible(fields: Fields, key: str, default: str) -> str:
    value = fields.choice(key, (*FUNGIBILITY, *OLD_FUNGIBILITY), default)
    return {**FUNGIBILITY, **OLD_FUNGIBILITY}[value]


def _weight(spec: Fields) -> float:
    """`fairSharing.weight`, a quantity."""
    sharing = spec.sub("fairSharing")
    weight = sharing.parsed("weight", quantity, 1)
    sharing.done()
    if weight < 0:
        raise sharing.wrong("weight", "a quantity of at least 0")
    return float(weight)


def _groups(spec: Fields, *, can_borrow: bool) -> tuple[ResourceGroup, ...]:
    """`resourceGroups`, checked as Kueue's webhook does."""
    groups = []
    resources_so_far: set[str] = set()
    flavors_so_far: set[str] = set()
    for group in spec.each("resourceGroups"):
        covered = group.texts("coveredResources")
        if not covered:
            raise group.wrong("coveredResources", "at least one resource")
        for i, resource in enumerate(covered):
            if resource in resources_so_far:
                raise GanglineError(
                    f"{group.where}: {group.path}.coveredResources[{i}] is {shown(resource)}, expected a resource that "
                    "no other place of the queue covers"
                )
            resources_so_far.add(resource)
        flavors = []
        for flavor in group.each("flavors"):
            name = flavor.name()
            if name in flavors_so_far:
                raise flavor.wrong("name", "a flavor that no other place of the queue has")
            flavors_so_far.add(name)
            quotas = {}
            for entry in flavor.each("resources"):
                resource = entry.name()
                if resource not in covered or resource in quotas:
                    raise entry.wrong("name", f"each of coveredResources once: {', '.join(covered)}")
                quotas[resource] = _quota(entry, resource, can_borrow)
            missing = [resource for resource in covered if resource not in quotas]
            if missing:
                raise GanglineError(
                    f"{flavor.where}: {flavor.path}.resources has no {', '.join(missing)}, expected a quota for each "
                    "of coveredResources"
                )
            flavors.append(FlavorQuotas(name=name, quotas=quotas))
            flavor.done()
        if not flavors:
            raise group.wrong("flavors", "at least one flavor")
        groups.append(ResourceGroup(resources=covered, flavors=tuple(flavors)))
        group.done()
    return tuple(groups)


def _quota(entry: Fields, resource: str, can_borrow: bool) -> Quota:
    nominal = entry.amount("nominalQuota", resource)
    if nominal is None:
        raise entry.wrong("nominalQuota", "a quantity such as 8")
    quota = Quota(
        nominal=nominal,
        borrowing_limit=entry.amount("borrowingLimit", resource),
        lending_limit=entry.amount("lendingLimit", resource),
    )
    for key in ("borrowingLimit", "lendingLimit"):
        if key in entry and not can_borrow:
            raise entry.wrong(key, "none without a cohort")
    if quota.lending_limit is not None and quota.lending_limit > nominal:
        raise entry.wrong("lendingLimit", f"at most the nominal quota {kind_of(entry.raw('nominalQuota'))}")
    entry.done()
    return quota


def _cohort(top: Fields) -> Cohort:
    meta, spec = meta_of(top), top.sub("spec")
    top.done()
    parent = spec.text("parentName") or spec.text("parent") or None
    cohort = Cohort(
        name=meta.name,
        parent=parent,
        resource_groups=_groups(spec, can_borrow=parent is not None),
        weight=_weight(spec),
    )
    spec.done()
    return cohort


def _local_queue(top: Fields) -> LocalQueue:
    meta, spec = meta_of(top), top.sub("spec")
    top.done()
    queue = LocalQueue(
        name=meta.name,
        namespace=meta.namespace,
        cluster_queue=spec.name("clusterQueue"),
        weight=_weight(spec),
        stop_policy=spec.choice("stopPolicy", ("None", "Hold", "HoldAndDrain"), "None"),
    )
    spec.done()
    return queue


def _flavor(top: Fields) -> ResourceFlavor:
    meta, spec = meta_of(top), top.sub("spec")
    top.done()
    flavor = ResourceFlavor(
        name=meta.name, node_labels=spec.labels("nodeLabels"), topology=spec.text("topologyName") or None
    )
    spec.ignore("nodeTaints", "tolerations")
    spec.done()
    return flavor


def _topology(top: Fields) -> Topology:
    meta, spec = meta_of(top), top.sub("spec")
    top.done()
    levels = []
    for level in spec.each("levels"):
        levels.append(level.name("nodeLabel"))
        level.done()
    if not levels:
        raise spec.wrong("levels", "at least one level")
    spec.done()
    return Topology(name=meta.name, levels=tuple(levels))


# ---------------------------------------------------------------------------------------------------------------
# Workloads
# ---------------------------------------------------------------------------------------------------------------


def _workload(top: Fields, found: Mapping[str, Mapping[str, Any]]) -> Workload:
    meta, spec, status = meta_of(top), top.sub("spec"), top.sub("status")
    top.done()
    priority = spec.integer("priority")
    ref = spec.sub("priorityClassRef")
    source = spec.text("priorityClassSource", "") or ref.text("group", "")
    name = spec.text("priorityClassName") or ref.text("name")
    ref.ignore("kind")
    ref.done()
    if priority is None:
        kind = "priority_classes" if "scheduling" in source else "workload_classes"
        priority = priority_of(name, found.get(kind, {}), f"{spec.where}: {spec.path}")
    pod_sets = []
    for entry in spec.each("podSets"):
        template = pod_template(entry.sub("template"))
        request = entry.sub("topologyRequest")
        topology = (
            _topology_request(request) if "topologyRequest" in entry else annotated_topology(template.annotations)
        )
        pod_sets.append(
            PodSet(
                name=entry.text("name", "main"),
                count=entry.integer("count", 1, least=0),
                min_count=entry.integer("minCount", least=0),
                requests=template.requests,
                node_selector=template.node_selector,
                topology=topology,
            )
        )
        entry.done()
    if not pod_sets:
        raise spec.wrong("podSets", "at least one pod set")
    seconds = spec.integer("maximumExecutionTimeSeconds", least=1)
    workload = Workload(
        name=meta.name,
        namespace=meta.namespace,
        local_queue=spec.text("queueName", ""),
        pod_sets=tuple(pod_sets),
        priority=priority,
        created_ms=meta.created_ms,
        uid=meta.uid,
        is_active=spec.flag("active", True),
        claim_ms=None if seconds is None else seconds * 1000,
        **_admission(status),
    )
    spec.ignore("preemptionGates")
    spec.done()
    return workload


def _admission(status: Fields) -> dict[str, Any]:
    """What a running cluster says of a workload: `kubectl get workloads -o yaml`."""
    since = {
        condition.text("type"): condition.parsed("lastTransitionTime", time_ms)
        for condition in status.each("conditions")
        if condition.text("status") == "True"
    }
    if "admission" not in status:
        return {}
    admission = status.sub("admission")
    return {
        "cluster_queue": admission.name("clusterQueue"),
        "assignments": tuple(
            Assignment(
                pod_set=entry.text("name", "main"),
                count=entry.integer("count", least=0),
                flavors=entry.labels("flavors"),
                usage=entry.amounts("resourceUsage"),
            )
            for entry in admission.each("podSetAssignments")
        ),
        "reserved_ms": since.get("QuotaReserved"),
        "evicted_ms": since.get("Evicted"),
    }


def _topology_request(request: Fields) -> TopologyRequest:
    slices = []
    for layer in request.each("podsetSliceRequiredTopologyConstraints"):
        slices.append((layer.name("topology"), layer.integer("size", 1, least=1)))
    if "podSetSliceRequiredTopology" in request:
        slices.append((request.name("podSetSliceRequiredTopology"), request.integer("podSetSliceSize", 1, least=1)))
    asked = TopologyRequest(
        required=request.text("required"),
        preferred=request.text("preferred"),
        unconstrained=request.flag("unconstrained", False),
        slices=tuple(slices),
        group=request.text("podSetGroupName"),
    )
    request.ignore("podIndexLabel", "subGroupIndexLabel", "subGroupCount", "podSetSliceSize")
    request.done()
    return asked


def annotated_topology(annotations: Mapping[str, str]) -> TopologyRequest | None:
    """The topology request in a pod template's annotations, if there is one."""
    given = {
        key.removeprefix(f"{GROUP}/podset-"): value
        for key, value in annotations.items()
        if key.startswith(f"{GROUP}/podset-")
    }
    if not given:
        return None
    level, size = given.get("slice-required-topology"), given.get("slice-size", "")
    return TopologyRequest(
        required=given.get("required-topology"),
        preferred=given.get("preferred-topology"),
        unconstrained=given.get("unconstrained-topology") == "true",
        slices=((level, int(size)),) if level and size.isdigit() else (),
        group=given.get("group-name"),
    )


def _job(top: Fields, found: Mapping[str, Mapping[str, Any]]) -> Workload | None:
    """The workload of a `batch/v1` Job; None of one that Kueue does not manage."""
    meta, spec = meta_of(top), top.sub("spec")
    queue = meta.labels.get(QUEUE_LABEL) or meta.annotations.get(QUEUE_LABEL)
    if not queue:
        return None
    template = pod_template(spec.sub("template"))
    parallelism, completions = spec.integer("parallelism", 1, least=0), spec.integer("completions", least=0)
    seconds = spec.integer("activeDeadlineSeconds", least=1)
    return Workload(
        name=meta.name,
        namespace=meta.namespace,
        local_queue=queue,
        pod_sets=(
            PodSet(
                count=parallelism if completions is None else min(parallelism, completions),
                min_count=_min_parallelism(top, meta),
                requests=template.requests,
                node_selector=template.node_selector,
                topology=annotated_topology(template.annotations),
            ),
        ),
        priority=job_priority(meta, template.priority, template.priority_class, found, top.where),
        created_ms=meta.created_ms,
        uid=meta.uid,
        claim_ms=None if seconds is None else seconds * 1000,
    )


def _min_parallelism(top: Fields, meta: Meta) -> int | None:
    text = meta.annotations.get(MIN_PARALLELISM)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise GanglineError(
            f"{top.where}: metadata.annotations[{MIN_PARALLELISM}] is {shown(text)}, expected a whole number of at "
            "least 1"
        )
    return int(text)


def job_priority(
    meta: Meta, given: int | None, name: str | None, found: Mapping[str, Mapping[str, Any]], where: str
) -> int:
    """Of a Job: its WorkloadPriorityClass label, else its pods' priority or PriorityClass."""
    label = meta.labels.get(PRIORITY_LABEL)
    if label:
        return priority_of(label, found.get("workload_classes", {}), f"{where}: metadata.labels[{PRIORITY_LABEL}]")
    if given is not None:
        return given
    return priority_of(name, found.get("priority_classes", {}), f"{where}: spec.template.spec.priorityClassName")


# ---------------------------------------------------------------------------------------------------------------
# Configuration
# ---------------------------------------------------------------------------------------------------------------


def _config_map(top: Fields) -> Configuration | None:
    """The Configuration in Kueue's ConfigMap; None of other ConfigMaps."""
    meta = meta_of(top)
    for key, text in top.labels("data").items():
        if key == "controller_manager_config.yaml":
            where = f"{top.where} {key} of ConfigMap {meta.name}"
            contents = [content for content in parse_yaml(text, where) if content is not None]
            return _configuration(top.within(contents[0] if contents else {}, where))
    return None


def _configuration(top: Fields) -> Configuration:
    fair, admission = top.sub("fairSharing"), top.sub("admissionFairSharing")
    ready, requeuing = top.sub("waitForPodsReady"), top.sub("waitForPodsReady").sub("requeuingStrategy")
    strategies = fair.texts("preemptionStrategies")
    for i, strategy in enumerate(strategies):
        if strategy not in STRATEGIES:
            raise GanglineError(
                f"{top.where}: fairSharing.preemptionStrategies[{i}] is {shown(strategy)}, expected one of "
                f"{', '.join(STRATEGIES)}"
            )
    unless_said = not top.text("apiVersion", "").endswith("/v1beta1")  # v1beta1: off unless `enable: true`
    is_fair = "fairSharing" in top and fair.flag("enable", unless_said)
    waits = "waitForPodsReady" in top and ready.flag("enable", unless_said)
    timeout_ms = ready.parsed("timeout", duration_ms, 1_800_000)
    gates = top.sub("featureGates")
    weights = admission.sub("resourceWeights")
    configuration = Configuration(
        fair_sharing=(strategies or STRATEGIES) if is_fair else None,
        usage_half_life_ms=admission.parsed("usageHalfLifeTime", duration_ms, 0)
        if "admissionFairSharing" in top
        else None,
        usage_sampling_interval_ms=admission.parsed("usageSamplingInterval", duration_ms, 300_000),
        resource_weights={name: weights.parsed(name, _number) for name in weights.keys()},  # noqa: SIM118
        pods_ready_timeout_ms=timeout_ms if waits else None,
        block_admission=ready.flag("blockAdmission", False),
        requeuing_timestamp=requeuing.choice("timestamp", ("Eviction", "Creation"), "Eviction"),
        backoff_base_ms=requeuing.integer("backoffBaseSeconds", 60, least=0) * 1000,
        backoff_max_ms=requeuing.integer("backoffMaxSeconds", 3600, least=0) * 1000,
        backoff_limit_count=requeuing.integer("backoffLimitCount", least=0),
        gates={name: gates.flag(name, False) for name in gates.keys()},  # noqa: SIM118
    )
    fair.done()
    admission.done()
    requeuing.done()
    ready.ignore("enable", "recoveryTimeout", "requeuingStrategy")
    ready.done()
    return configuration


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise Expected("a number")
    return real(str(value))
