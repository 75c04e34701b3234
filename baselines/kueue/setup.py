"""From a configuration by names to Kueue's record for a world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.baselines.kueue.config import (
    GATES,
    ClusterQueue,
    KueueConfig,
    ResourceGroup,
    TopologyRequest,
)
from gangline.baselines.kueue.state import (
    MAX_LEVELS,
    MAX_LOCAL_QUEUES,
    MAX_REQUESTS,
    MAX_SLICE_LAYERS,
    NAMED,
    Policy,
    RequestKind,
    Strategy,
    kueue_dtype,
)
from gangline.envs.core.types import NO_TIME, NONE
from gangline.envs.errors import GanglineError, unknown_name

if TYPE_CHECKING:
    from gangline.envs.core.building import Names
    from gangline.envs.core.world import World

POLICIES = {
    "Never": Policy.NEVER,
    "LowerPriority": Policy.LOWER_PRIORITY,
    "LowerOrNewerEqualPriority": Policy.LOWER_OR_NEWER_EQUAL_PRIORITY,
    "Any": Policy.ANY,
}
STRATEGIES = {
    "LessThanOrEqualToFinalShare": Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
    "LessThanInitialShare": Strategy.LESS_THAN_INITIAL_SHARE,
}
FIELD_OF_GATE = {
    "PartialAdmission": "partial_admission",
    "PrioritySortingWithinCohort": "sorts_by_priority",
    "PrioritizePreemptorWorkloads": "preemptors_first",
    "FlavorFungibility": "scans_flavors",
    "FlavorFungibilityPreserveScanProgress": "keeps_scan",
    "FairSharingPreemptWithinNominal": "preempts_within_nominal",
    "FairSharingPrioritizeNonBorrowing": "non_borrowing_first",
    "SchedulingEquivalenceHashing": "hashes_shapes",
    "RecomputeAssignmentUponPreemptionTargetsOverlap": "recomputes_on_overlap",
    "TASRecomputeAssignmentWithinSchedulingCycle": "recomputes_topology",
    "TopologyAwareScheduling": "knows_topology",
    "TASProfileMixed": "mixes_profiles",
    "TASBalancedPlacement": "balances_placement",
}


UNKNOWN_LEVEL = 127  # a level that no topology has: no flavor serves the request


def private_bytes(
    world: World, config: KueueConfig, rule: int, grace_ms: int, one_cycle: bool, places: bool = True
) -> np.ndarray:
    """(num_bytes,) uint8: the record of a size class, then one NAMED for each row of the trace if jobs are named.

    Raises:
        GanglineError: a name that the world does not have, or a value that Kueue does not know.
    """
    layout = kueue_dtype(world.size)
    num_named = len(world.tables[0]) if config.workloads else 0
    private = np.zeros(layout.itemsize + num_named * NAMED.itemsize, np.uint8)
    k = private[: layout.itemsize].view(layout)[0]
    named = private[layout.itemsize :].view(NAMED)
    _fill_settings(k, config)
    k["rule"] = rule
    k["places"] = places
    k["grace_ms"] = grace_ms
    k["one_cycle"] = one_cycle
    k["seen_change"] = NONE
    for field in ("first_unplaced", "last_unplaced", "first_backoff", "num_oracle"):
        k[field] = NONE
    _fill_queues(k, world, config)
    levels = _fill_topologies(k, world, config)
    _fill_admission_fair_sharing(k, world.names, config)
    if num_named:
        _fill_named(k, named, world, config, levels)
    return private


def choose(what: str, name: str, known: Mapping[str, Any]) -> Any:
    """A named value, or a line that lists the known ones."""
    if name not in known:
        raise unknown_name(what, name, known)
    return known[name]


def _fill_settings(k: np.void, config: KueueConfig) -> None:
    """Gates, fair sharing, waitForPodsReady."""
    for gate in config.gates:
        choose("feature gate", gate, GATES)
    for gate, field in FIELD_OF_GATE.items():
        k[field] = config.gates.get(gate, GATES[gate])
    if config.fair_sharing is not None:
        k["fair_sharing"] = True
        names: Sequence[str] = config.fair_sharing.preemption_strategies or tuple(STRATEGIES)
        for i, name in enumerate(names):
            k["strategies"][i] = choose("fair sharing strategy", name, STRATEGIES)
    ready = config.wait_for_pods_ready
    k["orders_by_eviction"] = ready is None or ready.requeuing_timestamp == "Eviction"
    if ready is not None:
        k["waits_for_ready"] = True
        k["blocks_admission"] = ready.block_admission
        k["ready_timeout_ms"] = ready.timeout_ms
        k["backoff_base_ms"] = ready.backoff_base_ms
        k["backoff_max_ms"] = ready.backoff_max_ms
        k["backoff_limit"] = NONE if ready.backoff_limit_count is None else ready.backoff_limit_count


# ---------------------------------------------------------------------------------------------------------------
# ClusterQueues
# ---------------------------------------------------------------------------------------------------------------


def _fill_queues(k: np.void, world: World, config: KueueConfig) -> None:
    by_name = {queue.name: queue for queue in config.cluster_queues}
    for name in by_name:
        world.names.find("queues", name)
    _exclude(k, world, config)
    most_flavors = 1
    for q, name in enumerate(world.names.queues):
        record = k["queues"][q]
        for field in ("sticky", "first_group", "first_reserved", "entry", "first_candidate", "first_retry", "winner"):
            record[field] = NONE
        record["group_of"] = NONE
        record["flavors"] = NONE
        if not world.record["queues"][q]["is_cohort"]:
            queue = by_name.get(name, config.default_cluster_queue)
            _fill_queue(record, queue, world, q, config)
            most_flavors = max(most_flavors, int(record["num_flavors"].max()))
    k["max_idle_cycles"] = 1 if most_flavors == 1 else 2 * most_flavors + 1


def _exclude(k: np.void, world: World, config: KueueConfig) -> None:
    """Resources that are not managed: as configured, or those that no queue of the world has quota for."""
    quoted = {resource for _, resource in world.names.cells}
    for r, resource in enumerate(world.names.resources):
        chosen = config.excluded_resources
        if resource not in quoted if chosen is None else resource in chosen:
            k["excluded"] |= 1 << r


def _fill_queue(record: np.void, queue: ClusterQueue, world: World, q: int, config: KueueConfig) -> None:
    preemption = queue.preemption
    fungibility = queue.flavor_fungibility
    searches = {"MayStopSearch": False, "TryNextFlavor": True}
    record["is_active"] = queue.is_active
    record["is_strict"] = choose(
        "queueing strategy", queue.queueing_strategy, {"StrictFIFO": True, "BestEffortFIFO": False}
    )
    record["within_cluster_queue"] = choose("preemption policy", preemption.within_cluster_queue, POLICIES)
    record["reclaim_within_cohort"] = choose("preemption policy", preemption.reclaim_within_cohort, POLICIES)
    borrow = preemption.borrow_within_cohort
    record["borrow_within_cohort"] = choose(
        "borrowWithinCohort policy", borrow.policy, {"Never": False, "LowerPriority": True}
    )
    record["has_threshold"] = borrow.max_priority_threshold is not None
    record["max_priority_threshold"] = borrow.max_priority_threshold or 0
    record["tries_next_when_borrowing"] = choose("fungibility policy", fungibility.when_can_borrow, searches)
    record["tries_next_when_preempting"] = choose("fungibility policy", fungibility.when_can_preempt, searches)
    record["prefers_preemption"] = fungibility.preference == "PreemptionOverBorrowing"
    record["is_usage_based"] = (
        queue.admission_mode == "UsageBasedAdmissionFairSharing" and config.admission_fair_sharing is not None
    )
    groups = queue.resource_groups
    for g, group in enumerate(_groups_of_quotas(world, q) if groups is None else groups):
        for resource in group.resources:
            r = world.names.find("resources", resource)
            record["covers"][g] |= 1 << r
            if record["group_of"][r] == NONE:
                record["group_of"][r] = g
        for i, flavor in enumerate(group.flavors):
            record["flavors"][g][i] = world.names.find("flavors", flavor)
        record["num_flavors"][g] = len(group.flavors)


def _groups_of_quotas(world: World, q: int) -> Sequence[ResourceGroup]:
    """One resource group for each set of flavors that the world's quotas pair with a resource."""
    quotas = world.spec.queues[q].quotas
    by_flavors: dict[tuple[str, ...], list[str]] = {}
    for resource in dict.fromkeys(r for _, r in quotas):
        flavors = tuple(f for f in world.names.flavors if (f, resource) in quotas)
        by_flavors.setdefault(flavors, []).append(resource)
    return [ResourceGroup(resources=resources, flavors=flavors) for flavors, resources in by_flavors.items()]


# ---------------------------------------------------------------------------------------------------------------
# Topologies, LocalQueues, single jobs
# ---------------------------------------------------------------------------------------------------------------


def _fill_topologies(k: np.void, world: World, config: KueueConfig) -> list[str]:
    """Topology of each flavor; returns the names of all levels: a request refers to their places in that list."""
    names = world.names
    k["topology_of"] = NONE
    levels = list(dict.fromkeys(level for topology in config.topologies for level in topology.levels))
    if not k["knows_topology"]:
        return levels
    for topology in config.topologies:
        if len(topology.levels) > MAX_LEVELS:
            count = len(topology.levels)
            raise GanglineError(
                f"topology of flavor {topology.flavor!r} has {count} levels, expected at most {MAX_LEVELS}"
            )
        if topology.topology not in names.topologies:  # no nodes: nothing fits
            continue
        t = names.find("topologies", topology.topology)
        k["has_topology"] = True
        k["topology_of"][names.find("flavors", topology.flavor)] = t
        k["num_levels"][t] = len(topology.levels)
        for i, level in enumerate(topology.levels):
            k["level_names"][t][i] = levels.index(level)
    for q in range(len(names.queues)):
        record = k["queues"][q]
        flavors = [int(f) for row in record["flavors"] for f in row if f != NONE]
        record["is_topology_only"] = bool(flavors) and all(k["topology_of"][f] != NONE for f in flavors)
    return levels


def _fill_admission_fair_sharing(k: np.void, names: Names, config: KueueConfig) -> None:
    k["resource_weight"] = 1.0
    k["resource_unit"] = 1.0
    for r, resource in enumerate(names.resources):
        if resource == "cpu":
            k["resource_unit"][r] = 0.001  # CPU counts in cores
    if len(config.local_queues) > MAX_LOCAL_QUEUES:
        raise GanglineError(f"{len(config.local_queues)} LocalQueues, expected at most {MAX_LOCAL_QUEUES}")
    sharing = config.admission_fair_sharing
    if sharing is None:
        return
    k["fair_admission"] = True
    k["half_life_ms"] = sharing.usage_half_life_ms
    k["sampling_ms"] = sharing.usage_sampling_interval_ms
    for resource, weight in sharing.resource_weights.items():
        if resource in names.resources:
            k["resource_weight"][names.find("resources", resource)] = weight
    for i, queue in enumerate(config.local_queues):
        k["local_queues"][i]["weight"] = queue.weight
        for resource, amount in queue.consumed.items():
            if resource in names.resources:
                k["local_queues"][i]["consumed"][names.find("resources", resource)] = amount


def _fill_named(k: np.void, named: np.ndarray, world: World, config: KueueConfig, levels: Sequence[str]) -> None:
    """LocalQueues, conditions and topology requests of jobs by name."""
    local_queues = [queue.name for queue in config.local_queues]
    named["local_queue"] = NONE
    named["first_request"] = NONE
    named["evicted_ms"] = NO_TIME
    known: list[TopologyRequest | None] = []
    for row, name in enumerate(world.job_names):
        workload = config.workloads.get(name)
        if workload is None:
            continue
        record = named[row]
        if workload.local_queue is not None and workload.local_queue in local_queues:
            record["local_queue"] = local_queues.index(workload.local_queue)
        if workload.evicted_ms is not None:
            record["evicted_ms"] = workload.evicted_ms
            record["is_evicted"] = True
            if workload.evicted_by_pods_ready and k["orders_by_eviction"]:
                record["has_timestamp"] = True
                record["timestamp_ms"] = workload.evicted_ms
        record["min_counts"] = sum(1 << i for i, states in enumerate(workload.states_min_count) if states)
        if any(request is not None for request in workload.pod_sets):
            wishes = tuple(workload.pod_sets)
            at = _place_in(known, wishes)
            record["first_request"] = at
            record["num_requests"] = len(wishes)
    if len(known) > MAX_REQUESTS:
        raise GanglineError(f"{len(known)} topology requests, expected at most {MAX_REQUESTS}")
    groups: list[str] = []
    for i, request in enumerate(known):
        _fill_request(k["requests"][i], request, levels, groups)


def _place_in(known: list[Any], wishes: tuple[TopologyRequest | None, ...]) -> int:
    """Where a workload's requests stand in the list of all, appended if they are new."""
    for at in range(len(known) - len(wishes) + 1):
        if tuple(known[at : at + len(wishes)]) == wishes:
            return at
    known.extend(wishes)
    return len(known) - len(wishes)


def _fill_request(record: np.void, request: TopologyRequest | None, levels: Sequence[str], groups: list[str]) -> None:
    record["group"] = NONE
    if request is None:
        return

    def level(name: str) -> int:
        return levels.index(name) if name in levels else UNKNOWN_LEVEL

    if request.group is not None:
        if request.group not in groups:
            groups.append(request.group)
        record["group"] = groups.index(request.group)
    if request.required is not None:
        record["kind"] = RequestKind.REQUIRED
        record["level"] = level(request.required)
    elif request.preferred is not None:
        record["kind"] = RequestKind.PREFERRED
        record["level"] = level(request.preferred)
    elif request.unconstrained:
        record["kind"] = RequestKind.UNCONSTRAINED
    if len(request.slices) > MAX_SLICE_LAYERS:
        raise GanglineError(f"{len(request.slices)} slice layers, expected at most {MAX_SLICE_LAYERS}")
    record["num_layers"] = len(request.slices)
    for i, (name, size) in enumerate(request.slices):
        record["layer_level"][i] = level(name)
        record["layer_size"][i] = size
