"""What Kueue remembers between decisions: one record beside the world's, called `k` in the other files of this folder.

Indices are the world's: a ClusterQueue or cohort by its place in `w.queues`, a workload by its job's slot, a pod set
by its slot, a (flavor, resource) by its quota cell. Bit masks over cells have bit `cell`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from gangline.envs.core.types import MAX_FLAVORS, MAX_QUOTA_CELLS, MAX_RESOURCES, MAX_TOPOLOGIES, SizeClass

NOT_TRIED = -2  # no scan record for a resource; the next scan begins at the first flavor
LAST_TRIED = -1  # the scan reached the end of the list
MAX_LEVELS = 8  # of a topology
MAX_SLICE_LAYERS = 4


class Policy(IntEnum):
    """Preemption policies."""

    NEVER = 0
    LOWER_PRIORITY = 1
    LOWER_OR_NEWER_EQUAL_PRIORITY = 2
    ANY = 3


class Bucket(IntEnum):
    """Where a workload is."""

    NOWHERE = 0  # not eligible, or unknown
    ACTIVE = 1
    INADMISSIBLE = 2
    BACKOFF = 3  # inadmissible until its requeue backoff has passed
    POPPED = 4  # head of the running cycle
    RESERVED = 5  # holds quota


class Mode(IntEnum):
    """Result of a flavor assignment."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED_FIT = 2  # fits once victims of others are gone
    FIT = 3


class Fit(IntEnum):
    """The same for one (flavor, resource) within the scan of flavors, finer."""

    NO_FIT = 0
    NO_CANDIDATES = 1  # preemption is needed and there is nobody to preempt
    PREEMPT = 2
    RECLAIM = 3  # every victim is in another ClusterQueue
    FIT = 4


class Reason(IntEnum):
    """Why a workload is preempted."""

    NONE = 0
    IN_CLUSTER_QUEUE = 1
    IN_COHORT_RECLAMATION = 2
    IN_COHORT_FAIR_SHARING = 3
    IN_COHORT_RECLAIM_WHILE_BORROWING = 4
    POD_SETS_NOT_READY = 5


REASONS = {
    Reason.NONE: "",
    Reason.IN_CLUSTER_QUEUE: "InClusterQueue",
    Reason.IN_COHORT_RECLAMATION: "InCohortReclamation",
    Reason.IN_COHORT_FAIR_SHARING: "InCohortFairSharing",
    Reason.IN_COHORT_RECLAIM_WHILE_BORROWING: "InCohortReclaimWhileBorrowing",
    Reason.POD_SETS_NOT_READY: "PodsReadyTimeout",
}


class Requeue(IntEnum):
    """Why a head was not admitted."""

    GENERIC = 0
    NO_FIT = 1
    NO_CANDIDATES = 2
    FAILED_AFTER_NOMINATION = 3
    PENDING_PREEMPTION = 4


class Variant(IntEnum):
    """How a candidate may be preempted."""

    WITHIN_CQ = 0
    HIERARCHICAL_RECLAIM = 1
    RECLAIM_WITHOUT_BORROWING = 2
    RECLAIM_WHILE_BORROWING = 3


class Strategy(IntEnum):
    """Fair-sharing preemption strategies."""

    NONE = 0
    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = 1
    LESS_THAN_INITIAL_SHARE = 2


class RequestKind(IntEnum):
    """What a pod set asks of the topology."""

    NONE = 0
    REQUIRED = 1
    PREFERRED = 2
    UNCONSTRAINED = 3


CLUSTER_QUEUE = np.dtype(  # of a ClusterQueue or, first block, of a cohort
    [
        ("root", np.int32),
        ("height", np.int32),  # of a cohort: longest way down to a ClusterQueue
        ("nominal", np.int64, (MAX_QUOTA_CELLS,)),  # quotas as last seen
        ("borrowing_limit", np.int64, (MAX_QUOTA_CELLS,)),
        ("lending_limit", np.int64, (MAX_QUOTA_CELLS,)),
        ("is_pruned", np.bool_),  # in the choice of a ClusterQueue to preempt from
        ("winner", np.int32),  # of the tournament below this cohort
        # policies
        ("is_active", np.bool_),
        ("is_strict", np.bool_),  # StrictFIFO
        ("within_cluster_queue", np.int8),
        ("reclaim_within_cohort", np.int8),
        ("borrow_within_cohort", np.bool_),
        ("has_threshold", np.bool_),
        ("max_priority_threshold", np.int64),
        ("tries_next_when_borrowing", np.bool_),
        ("tries_next_when_preempting", np.bool_),
        ("prefers_preemption", np.bool_),
        ("is_usage_based", np.bool_),  # admission fair sharing
        ("is_topology_only", np.bool_),  # all its flavors have a topology
        ("group_of", np.int8, (MAX_RESOURCES,)),  # resource group of a resource; NONE = not covered
        ("covers", np.int64, (MAX_RESOURCES,)),  # mask of the resources of each group
        ("flavors", np.int8, (MAX_RESOURCES, MAX_FLAVORS)),  # of each group, best first, NONE-terminated
        ("num_flavors", np.int8, (MAX_RESOURCES,)),
        # state
        ("is_requeued", np.bool_),  # of a root: a requeue event has reached its tree
        ("generation", np.int64),  # grows when a reserved workload is replaced or removed, or a quota changes
        ("sticky", np.int32),  # workload that has issued preemptions: head until it is admitted; NONE
        ("first_group", np.int32),
        ("first_reserved", np.int32),
        ("num_reserved", np.int32),
        ("entry", np.int32),  # of the running cycle; NONE
        ("first_candidate", np.int32),  # in fair preemption: its next candidate
        ("first_retry", np.int32),  # and what is left for the second pass
        ("skipped_preemptions", np.int32),
    ],
    align=True,
)

GROUP = np.dtype(  # pending workloads of one ClusterQueue with the same shape: two heaps
    [
        ("queue", np.int32),
        ("shape", np.int32),
        ("priority", np.int64),
        ("local_queue", np.int32),
        ("request", np.int32),  # topology requests
        ("min_counts", np.int64),
        ("next", np.int32),
        ("active", np.int32),  # root of the heap
        ("inadmissible", np.int32),
        ("is_hopeless", np.bool_),  # equivalence hashing: one of the shape did not fit since the last requeue event
    ],
    align=True,
)

WORKLOAD = np.dtype(
    [
        ("is_known", np.bool_),
        ("row", np.int32),  # whose slot it is
        ("queue", np.int32),
        ("group", np.int32),
        ("bucket", np.int8),
        ("local_queue", np.int32),
        ("request", np.int32),  # of its first pod set, into the request table; NONE
        ("min_counts", np.int64),  # mask of the pod sets that state a minimum count
        ("timestamp_ms", np.int64),  # queue-order timestamp
        ("child", np.int32),  # heap
        ("next", np.int32),  # heap, or list of reserved workloads
        ("prev", np.int32),
        ("next_unplaced", np.int32),
        ("prev_unplaced", np.int32),
        ("is_unplaced", np.bool_),
        ("was_placed", np.bool_),
        ("is_evicted", np.bool_),  # still holding its quota
        ("is_taken", np.bool_),  # victim of an earlier entry of the cycle
        ("is_ready", np.bool_),
        ("reason", np.int8),  # of its last eviction
        ("evict_ms", np.int64),
        ("reserved_ms", np.int64),
        ("uid_rank", np.int64),
        ("cells", np.int64),  # mask of what it uses
        ("usage", np.int64, (MAX_QUOTA_CELLS,)),  # what it holds
        ("has_record", np.bool_),  # of its last scan of flavors
        ("record_cycle", np.int64),
        ("record_generation", np.int64),
        ("num_requeues", np.int32),  # by missed PodsReady timeouts
        ("backoff_ms", np.int64),  # inadmissible until
        ("ready_by_ms", np.int64),
    ],
    align=True,
)

POD_SET = np.dtype(
    [
        ("count", np.int32),  # pods that are assigned, or reserved
        ("reserved", np.int32),  # pods whose quota is charged
        ("request", np.int32),  # topology request; NONE
        ("flavor", np.int8, (MAX_RESOURCES,)),
        ("mode", np.int8, (MAX_RESOURCES,)),  # Fit of each
        ("level", np.int8, (MAX_RESOURCES,)),  # borrowing level of each
        ("first_flavor", np.int8, (MAX_RESOURCES,)),  # of the first nomination in a cycle
        ("tried", np.int8, (MAX_RESOURCES,)),  # scan record
        ("trying", np.int8, (MAX_RESOURCES,)),  # record of the scan that runs
        ("first_domain", np.int32),  # topology assignment: into `domains`
        ("num_domains", np.int32),
        ("has_reason", np.bool_),  # not to be Fit: a scan ended with less
        ("topology_fails", np.bool_),
        ("is_placed", np.bool_),  # within a search
    ],
    align=True,
)

ENTRY = np.dtype(
    [
        ("slot", np.int32),
        ("queue", np.int32),
        ("mode", np.int8),
        ("borrowing", np.int32),  # level
        ("usage", np.int64, (MAX_QUOTA_CELLS,)),
        ("cells", np.int64),  # mask of what it asks for
        ("preempt_cells", np.int64),  # of it, what needs preemption
        ("first_target", np.int32),
        ("num_targets", np.int32),
        ("is_done", np.bool_),
        ("stands_back", np.bool_),  # was preempted at this instant
        ("is_admitted", np.bool_),
        ("is_preempting", np.bool_),
        ("reason", np.int8),
        ("has_assignment", np.bool_),
        ("has_topology", np.bool_),
        ("first_placed", np.int32),  # where its topology assignment begins
    ],
    align=True,
)

CANDIDATE = np.dtype(
    [("slot", np.int32), ("variant", np.int8), ("list", np.int8), ("lca", np.int32), ("next", np.int32)], align=True
)

TARGET = np.dtype([("slot", np.int32), ("reason", np.int8)], align=True)

LOCAL_QUEUE = np.dtype(
    [
        ("weight", np.float64),
        ("consumed", np.float64, (MAX_RESOURCES,)),
        ("settled_ms", np.int64),
        ("factor", np.float64),  # of the sample that is being taken
    ],
    align=True,
)

REQUEST = np.dtype(  # topology requests of a pod set
    [
        ("kind", np.int8),  # RequestKind
        ("level", np.int8),
        ("group", np.int32),  # pod-set group; NONE
        ("num_layers", np.int8),
        ("layer_level", np.int8, (MAX_SLICE_LAYERS,)),
        ("layer_size", np.int32, (MAX_SLICE_LAYERS,)),
    ],
    align=True,
)

DOMAIN = np.dtype(  # state of a topology domain within a search
    [
        ("level", np.int8),  # 0 = coarsest
        ("first_child", np.int32),
        ("next", np.int32),
        ("pods", np.int64),  # that fit
        ("slices", np.int64),
        ("leaders", np.int32),  # 1 if the leader fits
        ("pods_led", np.int64),  # that fit beside the leader
        ("slices_led", np.int64),
        ("count", np.int64),  # pods that it takes
        ("leader_count", np.int32),
    ],
    align=True,
)

PLACED = np.dtype([("domain", np.int32), ("count", np.int32)], align=True)

NAMED = np.dtype(  # what the configuration says of a job of the trace, by row
    [
        ("local_queue", np.int32),
        ("first_request", np.int32),
        ("num_requests", np.int32),
        ("min_counts", np.int64),
        ("evicted_ms", np.int64),
        ("is_evicted", np.bool_),
        ("timestamp_ms", np.int64),
        ("has_timestamp", np.bool_),
    ],
    align=True,
)

ORACLE = np.dtype([("cell", np.int32), ("fit", np.int8), ("level", np.int32)], align=True)
MAX_ORACLE = 16
MAX_LOCAL_QUEUES = 64
MAX_REQUESTS = 256


def kueue_dtype(size: SizeClass) -> np.dtype[Any]:
    """The record for worlds of a size class."""
    return np.dtype(
        [
            # configuration
            ("rule", np.int64),  # placement rule behind the admission
            ("places", np.bool_),  # False: another scheduler binds the pods of admitted workloads
            ("grace_ms", np.int64),  # of an eviction; NEVER = until it is told that the pods are gone
            ("fair_sharing", np.bool_),
            ("strategies", np.int8, (2,)),
            ("excluded", np.int64),  # mask of resources that are not managed
            ("partial_admission", np.bool_),
            ("sorts_by_priority", np.bool_),
            ("preemptors_first", np.bool_),
            ("scans_flavors", np.bool_),  # FlavorFungibility
            ("keeps_scan", np.bool_),
            ("preempts_within_nominal", np.bool_),
            ("non_borrowing_first", np.bool_),
            ("hashes_shapes", np.bool_),
            ("recomputes_on_overlap", np.bool_),
            ("recomputes_topology", np.bool_),
            ("knows_topology", np.bool_),
            ("mixes_profiles", np.bool_),
            ("balances_placement", np.bool_),
            ("orders_by_eviction", np.bool_),  # requeuing timestamp
            ("waits_for_ready", np.bool_),
            ("blocks_admission", np.bool_),
            ("ready_timeout_ms", np.int64),
            ("backoff_base_ms", np.int64),
            ("backoff_max_ms", np.int64),
            ("backoff_limit", np.int64),
            ("half_life_ms", np.int64),
            ("sampling_ms", np.int64),
            ("sampled_ms", np.int64),
            ("fair_admission", np.bool_),
            ("resource_weight", np.float64, (MAX_RESOURCES,)),
            ("resource_unit", np.float64, (MAX_RESOURCES,)),
            ("topology_of", np.int8, (MAX_FLAVORS,)),  # world topology of a flavor; NONE
            ("num_levels", np.int8, (MAX_TOPOLOGIES,)),
            ("level_names", np.int8, (MAX_TOPOLOGIES, MAX_LEVELS)),
            ("has_topology", np.bool_),
            ("wants_topology", np.bool_),  # of the search for victims that runs
            ("spares_workers", np.bool_),  # below the level that fits, a leader goes where it costs fewest workers
            ("spreads_anywhere", np.bool_),  # the request that is being placed is unconstrained
            # how it is driven
            ("one_cycle", np.bool_),  # exactly one cycle a decision
            ("only_looks", np.bool_),  # notice what has happened, decide nothing
            ("max_idle_cycles", np.int64),  # cycles in a row without visible change before it waits
            ("num_oracle", np.int32),  # answers that replace the simulation of preemptions; NONE = simulate
            ("oracle", ORACLE, (MAX_ORACLE,)),
            # state
            ("has_begun", np.bool_),
            ("cycle", np.int64),
            ("seen_change", np.int64),
            ("seen_gpus_up", np.int64),
            ("first_unplaced", np.int32),
            ("last_unplaced", np.int32),
            ("first_backoff", np.int32),
            ("num_asked", np.int32),  # admissions asked of the world in the last decision
            ("groups_used", np.int32),
            ("num_entries", np.int32),
            ("num_targets", np.int32),
            ("num_preempting", np.int32),  # entries of the running cycle that preempt
            ("num_candidates", np.int32),
            ("num_placed", np.int32),
            ("wanted", np.int64, (MAX_QUOTA_CELLS,)),  # of the search for victims that runs
            ("wanted_cells", np.int64),
            ("rest", np.int64, (MAX_QUOTA_CELLS,)),
            ("tried_fit", np.int64, (MAX_RESOURCES,)),  # of the flavor that is being tried
            ("usage", np.int64, (size.max_queues, MAX_QUOTA_CELLS)),  # where the world does not enforce quota
            ("worlds_usage", np.int64, (size.max_queues, MAX_QUOTA_CELLS)),
            ("saved_usage", np.int64, (size.max_queues, MAX_QUOTA_CELLS)),
            ("queues", CLUSTER_QUEUE, (size.max_queues,)),
            ("entries", ENTRY, (size.max_queues,)),
            ("groups", GROUP, (4 * size.max_groups,)),
            ("local_queues", LOCAL_QUEUE, (MAX_LOCAL_QUEUES,)),
            ("requests", REQUEST, (MAX_REQUESTS,)),
            ("targets", TARGET, (4 * size.max_touched,)),
            ("asked", np.int32, (size.max_queues,)),
            ("domains", DOMAIN, (size.max_domains,)),
            ("free", np.int64, (size.max_domains, MAX_RESOURCES)),  # in a leaf, as victims and entries have left it
            ("capacity", np.int64, (size.max_domains, MAX_RESOURCES)),
            ("room", np.int64, (size.max_domains, MAX_RESOURCES)),  # of the search that runs
            ("order", np.int32, (size.max_domains,)),
            ("chosen", np.int32, (size.max_domains,)),
            ("parents", np.int32, (size.max_domains,)),
            ("kept", np.int32, (size.max_domains,)),
            ("placed", PLACED, (4 * size.max_touched,)),
            ("candidates", CANDIDATE, (size.max_jobs,)),
            ("sorted", np.int32, (size.max_jobs,)),
            ("workloads", WORKLOAD, (size.max_jobs,)),
            ("pod_sets", POD_SET, (size.max_pod_sets,)),
        ],
        align=True,
    )
