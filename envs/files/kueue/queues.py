"""ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, checked as Kueue's webhooks check them."""

from __future__ import annotations

from dataclasses import replace

from gangline.envs.errors import GanglineError
from gangline.envs.files.kubernetes import Fields, kind_of, meta_of, quantity
from gangline.envs.files.kueue.objects import (
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    LocalQueue,
    Preemption,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Topology,
)
from gangline.envs.files.text import shown

POLICIES = ("Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any")
FUNGIBILITY = {"MayStopSearch": "MayStopSearch", "TryNextFlavor": "TryNextFlavor"}
OLD_FUNGIBILITY = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}  # v1beta1


def cluster_queue(top: Fields) -> ClusterQueue:
    """A ClusterQueue."""
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


def cohort(top: Fields) -> Cohort:
    """A Cohort, of v1alpha1 (`parent`) or later (`parentName`)."""
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


def local_queue(top: Fields) -> LocalQueue:
    """A LocalQueue."""
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


def flavor(top: Fields) -> ResourceFlavor:
    """A ResourceFlavor; its taints decide nothing here."""
    meta, spec = meta_of(top), top.sub("spec")
    top.done()
    flavor = ResourceFlavor(
        name=meta.name, node_labels=spec.labels("nodeLabels"), topology=spec.text("topologyName") or None
    )
    spec.ignore("nodeTaints", "tolerations")
    spec.done()
    return flavor


def topology(top: Fields) -> Topology:
    """A Topology."""
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
