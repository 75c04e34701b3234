"""What a recorded case says in Kueue's words, as a `KueueConfig`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gangline.baselines.conformance.kueue.world import TAS_JOB, kueue_pending, kueue_topologies
from gangline.baselines.kueue.config import (
    GATES,
    AdmissionFairSharing,
    BorrowWithinCohort,
    ClusterQueue,
    FairSharing,
    FlavorFungibility,
    KueueConfig,
    LocalQueue,
    Preemption,
    ResourceGroup,
    Topology,
    TopologyRequest,
    WaitForPodsReady,
    Workload,
)

Case = Mapping[str, Any]
SECOND_MS = 1000


def kueue_config(case: Case) -> KueueConfig:
    """The installation of a case."""
    fair = case.get("fair_sharing", {})
    sharing = case.get("admission_fair_sharing")
    is_usage_based = isinstance(sharing, Mapping) and bool(sharing["enabled"])
    timestamp = case.get("requeuing_timestamp")
    return KueueConfig(
        cluster_queues=[_cluster_queue(queue, is_usage_based) for queue in case.get("queues", [])],
        local_queues=list(_local_queues(case)),
        fair_sharing=FairSharing(preemption_strategies=fair["strategies"]) if fair.get("enabled") else None,
        admission_fair_sharing=_admission_fair_sharing(sharing) if isinstance(sharing, Mapping) else None,
        wait_for_pods_ready=None if timestamp is None else WaitForPodsReady(requeuing_timestamp=timestamp),
        topologies=[
            Topology(flavor=flavor, topology=flavor, levels=levels) for flavor, levels, _ in kueue_topologies(case)
        ],
        workloads={w["name"]: _workload(w) for w in [*case.get("admitted", []), *kueue_pending(case)]},
        gates={gate: on for gate, on in (case.get("gates") or {}).items() if gate in GATES},
    )


def _cluster_queue(queue: Mapping[str, Any], is_usage_based: bool) -> ClusterQueue:
    preemption = queue["preemption"]
    borrow = preemption["borrow_within_cohort"]
    fungibility = queue["flavor_fungibility"]
    return ClusterQueue(
        name=queue["name"],
        queueing_strategy=queue["strategy"],
        resource_groups=[
            ResourceGroup(resources=group["resources"], flavors=[flavor["name"] for flavor in group["flavors"]])
            for group in queue["resource_groups"]
        ],
        preemption=Preemption(
            within_cluster_queue=preemption["within_cluster_queue"],
            reclaim_within_cohort=preemption["reclaim_within_cohort"],
            borrow_within_cohort=BorrowWithinCohort(
                policy=borrow["policy"], max_priority_threshold=borrow["max_priority_threshold"]
            ),
        ),
        flavor_fungibility=FlavorFungibility(
            when_can_borrow=fungibility["when_can_borrow"],
            when_can_preempt=fungibility["when_can_preempt"],
            preference=fungibility["preference"] or "BorrowingOverPreemption",
        ),
        admission_mode="UsageBasedAdmissionFairSharing" if is_usage_based else "None",
    )


def _local_queues(case: Case) -> Iterator[LocalQueue]:
    """LocalQueues in the order in which they are named; they count only where admission is by usage."""
    sharing = case.get("admission_fair_sharing")
    weights = sharing["local_queue_weights"] if isinstance(sharing, Mapping) else {}
    consumed = sharing["consumed"] if isinstance(sharing, Mapping) else {}
    candidates = case.get("candidates", [])
    names = [w.get("local_queue") for w in [*candidates, *kueue_pending(case)]] + [*weights, *consumed]
    usage = {w["local_queue"]: w["local_queue_usage"] for w in candidates if w.get("local_queue")}
    for name in dict.fromkeys(name for name in names if name):
        amounts = {"cpu": usage[name] * SECOND_MS} if name in usage else consumed.get(name, {})
        yield LocalQueue(name=name, cluster_queue="", weight=weights.get(name, 1), consumed=amounts)


def _admission_fair_sharing(sharing: Mapping[str, Any]) -> AdmissionFairSharing:
    return AdmissionFairSharing(
        usage_half_life_ms=round(sharing.get("half_life_s", 0) * SECOND_MS),
        usage_sampling_interval_ms=round(sharing.get("sampling_interval_s", 300) * SECOND_MS),
        resource_weights=sharing["resource_weights"],
    )


def _workload(workload: Mapping[str, Any]) -> Workload:
    evicted = workload.get("evicted")
    return Workload(
        local_queue=workload.get("local_queue"),
        pod_sets=[_topology_request(p.get("topology_request")) for p in workload.get("pod_sets", [])],
        states_min_count=["min_count" in p for p in workload.get("pod_sets", [])],
        evicted_ms=None if evicted is None else evicted["at"],
        evicted_by_pods_ready=evicted is not None and evicted["reason"] == "PodsReadyTimeout",
    )


def _topology_request(request: Mapping[str, Any] | None) -> TopologyRequest | None:
    if request is None:
        return None
    slices = [(layer["level"], layer["size"]) for layer in request.get("slice_layers", [])]
    if not slices and request.get("slice_level"):
        slices = [(request["slice_level"], request["slice_size"])]
    return TopologyRequest(
        required=request.get("required"),
        preferred=request.get("preferred"),
        unconstrained=bool(request.get("unconstrained")),
        slices=slices,
        group=request.get("group"),
    )


TAS_WORKLOAD = TAS_JOB
