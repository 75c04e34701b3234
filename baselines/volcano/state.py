"""What Volcano knows in a session: one record beside the world's, called `k` in the other files of this folder.

Indices are the world's: a queue by its place in `w.queues`, a job (PodGroup) by its slot, a task by its pod-set slot
while it is pending and by its pod slot when it is bound, a hypernode by its domain. Amounts are vectors over the
world's resources; a mask tells which scalar keys are there, because absent and zero differ.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from gangline.envs.core.types import MAX_RESOURCES, SizeClass

MAX_PLUGINS = 24
MAX_ACTIONS = 8
MAX_NAMED_JOBS = 1024
MAX_NAMED_SETS = 4096
MAX_RANKS = 16384
MAX_POLICIES = 8
MAX_DEPTH = 8  # of a queue's path in hdrf
MAX_DOMAINS_TO_EVICT = 8
MAX_CANDIDATES = 2048  # victims that are weighed at once
MAX_NOMINATIONS = 1024
ALL_NODES = -1
NO_QUOTA = -2
EPSILON = 0.1  # Volcano's tolerance, in its internal units


class Kind(IntEnum):
    """Plugins."""

    OTHER = 0  # takes no part in what is modelled
    GANG = 1
    PRIORITY = 2
    DRF = 3
    PROPORTION = 4
    CAPACITY = 5
    PREDICATES = 6
    NODEORDER = 7
    BINPACK = 8
    OVERCOMMIT = 9
    SLA = 10
    CONFORMANCE = 11
    TOPOLOGY = 12
    PRIORITY_VICTIMS = 13  # hands running pods of one priority to shuffle
    REJECTER = 14  # refuses to enqueue one job


class Point(IntEnum):
    """Extension points; bits of a plugin's `enabled`, in the order of `config.POINTS`."""

    JOB_ORDER = 0
    JOB_READY = 1
    JOB_PIPELINED = 2
    JOB_STARVING = 3
    JOB_ENQUEUED = 4
    TASK_ORDER = 5
    QUEUE_ORDER = 6
    PREEMPTABLE = 7
    RECLAIMABLE = 8
    PREEMPTIVE = 9
    ALLOCATABLE = 10
    OVERUSED = 11
    PREDICATE = 12
    BEST_NODE = 13
    NODE_ORDER = 14
    VICTIM = 15
    HIERARCHY = 16
    HYPERNODE_ORDER = 17
    HYPERNODE_GRADIENT = 18
    SUB_JOB_READY = 19
    SUB_JOB_PIPELINED = 20
    SUB_JOB_ORDER = 21


class Action(IntEnum):
    """Actions."""

    ENQUEUE = 0
    ALLOCATE = 1
    BACKFILL = 2
    PREEMPT = 3
    RECLAIM = 4
    SHUFFLE = 5
    GANGPREEMPT = 6
    GANGRECLAIM = 7


class Phase(IntEnum):
    """Phase of a PodGroup."""

    PENDING = 0
    INQUEUE = 1
    RUNNING = 2
    UNKNOWN = 3
    COMPLETED = 4


class Status(IntEnum):
    """What an operation of a statement makes of a task."""

    ALLOCATED = 0
    PIPELINED = 1
    RELEASING = 2


AMOUNTS = (MAX_RESOURCES,)

PLUGIN = np.dtype([("kind", np.int8), ("tier", np.int32), ("enabled", np.int64)], align=True)

QUEUE = np.dtype(
    [
        ("name_rank", np.int32),
        ("is_open", np.bool_),
        ("is_reclaimable", np.bool_),
        ("is_leaf", np.bool_),
        ("parent", np.int32),
        ("priority", np.int64),
        ("weight", np.float64),
        ("capability", np.float64, AMOUNTS),
        ("capability_has", np.int64),
        ("deserved_spec", np.float64, AMOUNTS),
        ("deserved_spec_has", np.int64),
        ("guarantee", np.float64, AMOUNTS),
        ("path", np.int32, (MAX_DEPTH,)),  # hdrf: nodes from the root down to the queue; NONE-terminated
        # session
        ("num_jobs", np.int32),
        ("allocated", np.float64, AMOUNTS),
        ("request", np.float64, AMOUNTS),
        ("inqueue", np.float64, AMOUNTS),
        ("elastic", np.float64, AMOUNTS),
        ("real", np.float64, (2, MAX_RESOURCES)),  # realCapability: of proportion, of capacity
        ("real_has", np.int64, (2,)),
        ("deserved", np.float64, (2, MAX_RESOURCES)),
        ("deserved_has", np.int64, (2,)),
        ("share", np.float64, (2,)),
        ("is_met", np.bool_),  # of the water filling
        ("first", np.int32),  # of its jobs' heap
        ("size", np.int32),
    ],
    align=True,
)

JOB = np.dtype(
    [
        ("row", np.int32),  # whose slot it is
        ("phase", np.int8),
        ("is_in", np.bool_),  # of the session
        ("is_gated", np.bool_),  # an admission layer in front of Volcano holds it back: it has no pods yet
        ("is_known", np.bool_),
        ("queue", np.int32),
        ("min_member", np.int32),
        ("total_role_min", np.int32),
        ("min_resources", np.float64, AMOUNTS),
        ("has_min_resources", np.bool_),
        ("is_preemptable", np.int8),  # of the PodGroup: 1, 0, NONE
        ("sla_ms", np.int64),  # how long it may wait; NEVER
        ("is_hard", np.bool_),  # network topology
        ("has_wish", np.bool_),
        ("limit", np.int32),  # highest tier; NONE = the root's
        ("allocated_hypernode", np.int32),
        ("nominated_hypernode", np.int32),  # where room was made for it; NONE
        ("num_policies", np.int32),
        ("min_sub_groups", np.int32, (MAX_POLICIES,)),
        ("first_sub_job", np.int32),
        ("num_sub_jobs", np.int32),
        # session
        ("num_tasks", np.int32),
        ("ready", np.int32),  # allocated set and succeeded
        ("running", np.int32),
        ("done", np.int32),
        ("releasing", np.int32),
        ("pipelined", np.int32),
        ("pending", np.int32),
        ("pending_best_effort", np.int32),
        ("newly_bound", np.int32),  # placed in this session
        ("allocated", np.float64, AMOUNTS),
        ("share", np.float64),
        ("is_unschedulable", np.bool_),
        ("is_ready", np.bool_),  # as the gang plugin says
        ("is_valid", np.bool_),  # at the opening
        ("is_dirty", np.bool_),  # moved in this session: count it anew at the next opening
        ("seen_change", np.int64),  # the job's last change when it was counted
        ("is_plain", np.bool_),  # waits like all others of its group: nothing bound, nothing configured
    ],
    align=True,
)

POD_SET = np.dtype(
    [
        ("role", np.int32),  # within the job; NONE = no role
        ("named_role", np.bool_),
        ("role_min", np.int32),
        ("priority", np.int64),
        ("is_preemptable", np.bool_),
        ("never_preempts", np.bool_),
        ("is_best_effort", np.bool_),
        ("is_critical", np.bool_),
        ("has_priority", np.bool_),
        ("sub_job", np.int32),
        ("nodes", np.int64),  # mask of the nodes that it admits; ALL_NODES
        ("first_rank", np.int32),
        ("num_ranks", np.int32),
        # session
        ("pending", np.int32),
        ("next", np.int32),  # place of the next pending pod among the set's
        ("ready", np.int32),
        ("pipelined", np.int32),
        ("has_failed", np.bool_),  # its role, in this attempt
        ("skipped", np.int32),  # pods passed over in this attempt
        ("quota_flavor", np.int32),  # in which the world has quota for the set; NONE = any, NO_QUOTA = none
    ],
    align=True,
)

SUB_JOB = np.dtype(
    [
        ("policy", np.int32),  # NONE = matches none
        ("size", np.int32),
        ("limit", np.int32),  # highest tier of a hard topology; NONE
        ("allocated_hypernode", np.int32),
        ("bound_hypernode", np.int32),  # lowest that contains its bound pods
        ("committed_hypernode", np.int32),  # allocated_hypernode before a dry run
        ("nominated_hypernode", np.int32),  # where room was made for it; NONE
        ("match_index", np.int32),
        ("is_required", np.bool_),
        ("is_tried", np.bool_),  # in this attempt
    ],
    align=True,
)

NODE = np.dtype(
    [
        ("idle", np.float64, AMOUNTS),
        ("used", np.float64, AMOUNTS),
        ("releasing", np.float64, AMOUNTS),
        ("pipelined", np.float64, AMOUNTS),
        ("num_pods", np.int32),
        ("is_up", np.bool_),
        ("assumed_cpu", np.float64),  # what Kubernetes counts, in scores, for pods that ask for none
        ("assumed_memory", np.float64),
        ("whole_gpus", np.int32),  # devices with nothing on them
        ("fractions", np.int32),  # pods with a part of a GPU, placed in this session
    ],
    align=True,
)

OP = np.dtype(
    [
        ("status", np.int8),
        ("slot", np.int32),
        ("pod_set", np.int32),
        ("node", np.int32),
        ("pod", np.int32),
        ("place", np.int32),  # of a pending pod among its set's
    ],
    align=True,
)

NOMINATION = np.dtype(  # a node on which room was made for a pending pod
    [
        ("slot", np.int32),
        ("row", np.int32),
        ("pod_set", np.int32),
        ("place", np.int32),  # of the pod among its set's
        ("node", np.int32),
    ],
    align=True,
)

BUNDLE = np.dtype(  # pods of one job in a domain, `candidates[first:first+count]`
    [
        ("is_whole", np.bool_),  # all or nothing: losing them breaks the gang
        ("first", np.int32),
        ("count", np.int32),
        ("slot", np.int32),
        ("order", np.int64),  # of the victim job, or of its queue
        ("roi", np.float64),  # how much of what is needed it gives for how much of the job; infinite if safe
        ("job_rank", np.int64),
        ("pod_rank", np.int64),  # of the first pod
    ],
    align=True,
)

KEPT = np.dtype([("slot", np.int32), ("node", np.int32)], align=True)  # reservations of a session

NAMED_SET = np.dtype(
    [
        ("role", np.int32),
        ("named_role", np.bool_),
        ("role_min", np.int32),
        ("priority", np.int64),
        ("is_preemptable", np.bool_),
        ("never_preempts", np.bool_),
        ("is_critical", np.bool_),
        ("has_priority", np.bool_),
        ("sub_job", np.int32),  # within the job
        ("nodes", np.int64),
        ("first_rank", np.int32),
        ("num_ranks", np.int32),
    ],
    align=True,
)

NAMED = np.dtype(  # a PodGroup of which something is configured, by row of the trace
    [
        ("is_named", np.bool_),
        ("is_known", np.bool_),
        ("phase", np.int8),
        ("min_member", np.int32),
        ("total_role_min", np.int32),
        ("min_resources", np.float64, AMOUNTS),
        ("has_min_resources", np.bool_),
        ("is_preemptable", np.int8),
        ("sla_ms", np.int64),  # NONE = as configured for all
        ("is_hard", np.int8),  # NONE = the world's wish
        ("has_wish", np.bool_),
        ("limit", np.int32),
        ("allocated_hypernode", np.int32),
        ("num_policies", np.int32),
        ("min_sub_groups", np.int32, (MAX_POLICIES,)),
        ("first_sub_job", np.int32),
        ("num_sub_jobs", np.int32),
        ("first_set", np.int32),
        ("num_sets", np.int32),
    ],
    align=True,
)

HDRF = np.dtype(  # a node of the tree of hierarchical shares
    [
        ("parent", np.int32),
        ("weight", np.float64),
        ("name_rank", np.int32),
        ("depth", np.int32),
        ("allocated", np.float64, AMOUNTS),
        ("request", np.float64, AMOUNTS),
        ("share", np.float64),
        ("is_saturated", np.bool_),
        ("is_leaf", np.bool_),
    ],
    align=True,
)
MAX_HDRF = 64


def volcano_dtype(size: SizeClass) -> np.dtype[Any]:
    """The record for worlds of a size class."""
    return np.dtype(
        [
            # configuration
            ("num_plugins", np.int32),
            ("plugins", PLUGIN, (MAX_PLUGINS,)),
            ("num_actions", np.int32),
            ("actions", np.int8, (MAX_ACTIONS,)),
            ("admits_itself", np.bool_),  # no enqueue action: allocate takes Pending PodGroups
            ("period_ms", np.int64),
            ("grace_ms", np.int64),
            ("one_session", np.bool_),
            ("cpu", np.int32),
            ("memory", np.int32),
            ("gpu", np.int32),
            ("pods", np.int32),
            ("tolerance", np.float64, AMOUNTS),
            ("topology_aware_preemption", np.bool_),
            ("allow_whole_bundle", np.int8, (2,)),  # of gangpreempt, of gangreclaim
            ("max_domains", np.int32, (2,)),
            ("max_evict_domains", np.int32),
            ("binpack_weight", np.float64),
            ("binpack", np.float64, AMOUNTS),  # NONE = not listed
            ("least_requested", np.float64),
            ("most_requested", np.float64),
            ("balanced", np.float64),
            ("overcommit_factor", np.float64),
            ("sla_ms", np.int64),  # NEVER = none
            ("reclaim_level", np.int32),
            ("topology_weight", np.float64),
            ("topology_binpack", np.float64, AMOUNTS),
            ("scores_normal_pods", np.bool_),
            ("fading", np.float64),
            ("shuffled_priority", np.int64),
            ("rejected_row", np.int32),
            ("topology", np.int32),  # the world's topology that the hypernodes are; NONE
            ("max_tier", np.int32),  # of the virtual root
            ("min_tier", np.int32),
            ("hierarchy", np.bool_),  # capacity
            ("is_broken", np.bool_),  # capacity: a job in a queue that is no leaf
            ("root", np.int32),
            ("hdrf", np.bool_),
            ("num_hdrf", np.int32),
            ("named", NAMED, (MAX_NAMED_JOBS,)),
            ("num_named", np.int32),
            ("named_sets", NAMED_SET, (MAX_NAMED_SETS,)),
            ("ranks", np.int32, (MAX_RANKS,)),
            ("sub_jobs", SUB_JOB, (MAX_NAMED_SETS,)),
            # session
            ("session", np.int64),
            ("seen_change", np.int64),
            ("seen_room", np.int64),
            ("sent", np.int32),  # transactions of the last session
            ("has_changed", np.bool_),  # a phase
            ("last_index", np.int32),  # of the search for nodes
            ("total", np.float64, AMOUNTS),
            ("total_used", np.float64, AMOUNTS),
            ("overcommit_inqueue", np.float64, AMOUNTS),
            ("num_ops", np.int32),
            ("num_kept", np.int32),
            ("num_evicted", np.int32),
            ("is_full", np.bool_),  # the decision has no room for more commands
            ("num_queue_heap", np.int32),
            ("num_candidates", np.int32),
            ("num_victims", np.int32),
            ("num_bundles", np.int32),
            ("num_nominations", np.int32),
            ("total_evicted", np.int64),
            ("is_releasing", np.bool_),  # somebody is on the way out
            ("was_barred", np.bool_),  # by a queue, in this attempt
            ("nominations", NOMINATION, (MAX_NOMINATIONS,)),
            ("num_queues", np.int32),
            ("tenants_are_queues", np.bool_),  # in a world without queues
            ("one_queue", np.bool_),  # everybody is in the queue `default`: quota is the business of a layer in front
            ("queues", QUEUE, (size.max_queues,)),
            ("tree", HDRF, (MAX_HDRF,)),
            ("nodes", NODE, (size.max_nodes,)),
            ("domain_total", np.float64, (size.max_domains + 1, MAX_RESOURCES)),
            ("domain_used", np.float64, (size.max_domains + 1, MAX_RESOURCES)),
            ("domain_idle", np.float64, (size.max_domains + 1, MAX_RESOURCES)),
            ("domain_future", np.float64, (size.max_domains + 1, MAX_RESOURCES)),
            ("domain_scores", np.float64, (size.max_domains + 1,)),
            ("domains", np.int32, (2, size.max_domains + 1)),
            ("domain_tiers", np.int32, (2, size.max_domains + 1)),  # of a gradient
            ("picked", np.int32, (size.max_domains + 1,)),
            ("score", np.float64, (size.max_nodes,)),
            ("feasible", np.int32, (size.max_nodes,)),
            (
                "no_room_at",
                np.int64,
                (size.max_groups,),
            ),  # for a plain job, room alone being too little: `room_key` then
            ("waiting", np.int32, (2, size.max_groups)),  # plain jobs of a group that are Pending, Inqueue
            ("one_of", np.int32, (size.max_groups,)),  # a plain job of the group
            ("entry", np.int64, (size.max_groups,)),  # session in which it was asked whether plain jobs may enter
            ("may_enter", np.int8, (size.max_groups,)),
            ("no_room", np.int64, (size.max_groups,)),  # session in which a job of the group found no room
            ("ops", OP, (4 * size.max_touched,)),
            ("kept", KEPT, (4 * size.max_touched,)),
            ("evicted_now", np.int32, (4 * size.max_touched,)),
            ("heap", np.int32, (2 * size.max_jobs,)),  # of the jobs of each queue, then of the queues
            ("num_list", np.int32),
            ("list", np.int32, (size.max_jobs,)),
            ("queue_order", np.int32, (size.max_queues,)),
            ("candidates", np.int32, (MAX_CANDIDATES,)),
            ("victims", np.int32, (MAX_CANDIDATES,)),
            ("is_victim", np.int8, (MAX_CANDIDATES,)),
            ("bundles", BUNDLE, (MAX_CANDIDATES,)),
            ("bundle_order", np.int32, (MAX_CANDIDATES,)),
            ("votes", np.int8, (MAX_PLUGINS,)),  # 0 = the plugin abstains
            ("allowed", np.int8, (MAX_PLUGINS, MAX_CANDIDATES)),
            ("queue_left", np.float64, (size.max_queues, MAX_RESOURCES)),
            ("job_left", np.int32, (size.max_jobs,)),
            ("evicted", np.int64, (size.max_pods,)),  # session in which a pod was evicted
            ("place", np.int32, (size.max_pods,)),  # of a bound pod among its set's
            ("jobs", JOB, (size.max_jobs,)),
            ("sets", POD_SET, (size.max_pod_sets,)),
        ],
        align=True,
    )
