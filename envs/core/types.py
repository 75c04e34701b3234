"""The state of a world: one structured record of arrays, and the tables it reads from.

Read this file first. Everything the simulator knows about a world at an instant is in one `World` record:
scalars, then fixed-size arrays of small records (jobs, pods, nodes, ...). Capacities belong to the record's type
(three size classes, see `SIZE_CLASSES`); how much of them a world uses is a run-time field (`num_nodes`, ...).

Units: time is int64 milliseconds, GPU amounts are milli-GPU, CPU is milli-CPU, everything else is a base unit
(bytes, devices, pod slots). Work is "speed x time": thousandths x ms, so that every sum is an exact integer.

The trace a world replays is a read-only table (`JOB_ROW`, `POD_SET_ROW`) outside the record, shared by all
environments; a job gets a *slot* in `world.jobs` when it arrives and gives it back when it ends. Ended jobs are
written to a log (`LOG_ROW`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

# ---------------------------------------------------------------------------------------------------------------
# Named values. Kernels use the module-level integers; the IntEnums are their names for people.
# ---------------------------------------------------------------------------------------------------------------

NEVER = 1 << 62  # a time that does not come; an unlimited amount; a walltime claim that was not given
NO_LIMIT = -1  # a borrowing or lending limit that was not set (Kueue: nil)
NO_TIME = -(1 << 62)  # a time that was not noted
NONE = -1  # no index: no node, no job, no queue, no parent
MAX_RESOURCES = 8
MAX_FLAVORS = 8
MAX_GPUS_PER_NODE = 16
MAX_TOPOLOGIES = 4
MAX_QUOTA_CELLS = 16  # (flavor, resource) pairs that carry quota
FULL_SPEED = 1000  # thousandths
SLOWNESS = 1_000_000_000  # one job of 1 ms; jobs below 10 s count as 10 s (bounded slowdown)
SHORTEST_WORK_MS = 10_000
ONE_GPU = 1000  # milli-GPU


class EventKind(IntEnum):
    """What can happen; the order of the values *is* the order of events at one instant."""

    RELEASED = 0
    FINISH = 1
    FAIL_OR_HANG = 2
    WALLTIME = 3
    NODE = 4
    SCHEDULE = 5  # quota, weight or wanted-replica change
    CANCEL = 6
    ELIGIBLE = 7  # hold, requeue delay or reservation expired; begin time reached
    ARRIVAL = 8
    USAGE_TICK = 9
    TIMER = 10


class JobState(IntEnum):
    """Life cycle of a job that has arrived and not ended."""

    FREE = 0  # the slot holds no job
    NOT_ELIGIBLE = 1  # begin time, dependency, hold or requeue delay
    QUEUED = 2
    ADMITTED = 3  # quota reserved, no pod bound
    PARTIAL = 4  # fewer pods than min_member: holds its GPUs and makes no progress
    RUNNING = 5
    SUSPENDED = 6
    RELEASING = 7  # every pod is on its way out


class JobKind(IntEnum):
    """What a job's pods owe each other."""

    TRAINING = 0  # one gang, one piece of work
    BATCH = 1  # independent pods, each with the job's work, ending one by one
    SERVICE = 2  # resident replicas, no gang; lives `work_ms` from its first start


class Outcome(IntEnum):
    """How a job ended; also the hidden truth of how its work will go (first three)."""

    DONE = 0
    FAILED = 1
    HANGS = 2  # hidden truth only: stops making progress at `outcome_ms`, once
    TIMEOUT = 3
    NODE_FAIL = 4
    PREEMPTED = 5  # evicted for good
    CANCELLED = 6
    REJECTED = 7


class Reason(IntEnum):
    """Why a job was rejected or cancelled."""

    UNSPECIFIED = 0
    LARGER_THAN_CLUSTER = 1
    BY_USER = 2
    BY_SCHEDULER = 3


class Quota(IntEnum):
    """World option `quota`."""

    OFF = 0  # placing implies admission, nothing is counted
    TRACKED = 1  # placing implies admission, usage is counted, limits are not enforced
    ENFORCED = 2  # a pod may only be bound within an admission that the limits allowed


class NodeState(IntEnum):
    """State of a node."""

    UP = 0
    DRAINED = 1  # keeps what runs, takes nothing new
    DOWN = 2


class PodState(IntEnum):
    """State of a live pod."""

    FREE = 0
    BOUND = 1
    RELEASING = 2
    GONE = 3  # within a change: has left its node, not yet unlinked


class Op(IntEnum):
    """Commands that a transaction is made of."""

    ADMIT = 0
    UNADMIT = 1
    PLACE = 2
    EVICT = 3
    SUSPEND = 4
    RESUME = 5
    HOLD = 6
    CANCEL = 7
    RESERVE = 8
    UNRESERVE = 9


class Then(IntEnum):
    """What becomes of evicted pods."""

    REQUEUE = 0
    CANCEL = 1
    SHRINK = 2


class Result(IntEnum):
    """Answer to a transaction: OK, or why nothing of it was applied."""

    OK = 0
    BAD_INDEX = 1  # no such job, pod set, node or flavor
    WRONG_STATE = 2  # the job is not in a state in which the command makes sense
    NO_ROOM = 3  # the node lacks idle resources, or all of them are reserved
    NODE_UNAVAILABLE = 4  # drained or down
    NO_QUOTA = 5
    NOT_ADMITTED = 6
    GANG_INCOMPLETE = 7  # the first placement of a gang must reach min_member
    TOO_MANY_PODS = 8  # more pods than the pod set still wants, or than are there to evict
    BAD_TIME = 9  # an end that is not after now, or that never comes
    NO_CAPACITY = 10  # the record is full (pods, reservations)
    TOUCHED = 11  # the job was already touched at this instant (agents only)


class Shape(IntEnum):
    """What the environment wants of a topology wish."""

    NO_WISH = 0
    REQUIRED = 1  # all pods inside one domain of the tier
    PREFERRED = 2


class ErrorCode(IntEnum):
    """Why a kernel handed control back to Python."""

    NONE = 0
    TOO_MANY_JOBS = 1
    TOO_MANY_POD_SETS = 2
    TOO_MANY_PODS = 3
    LOG_FULL = 4  # not an error: the driver grows the log and goes on
    ENDLESS_CYCLE = 5
    TOO_MANY_GROUPS = 6


# ---------------------------------------------------------------------------------------------------------------
# How records lie in memory
# ---------------------------------------------------------------------------------------------------------------

CACHE_LINE = 64  # bytes
PAGE = 4096


def in_cache_lines(fields: list[tuple[Any, ...]], whole: int = CACHE_LINE) -> np.dtype[Any]:
    """A record of whole cache lines (or pages), in which every array of 64 bytes or more begins with one.

    What a batch of worlds costs is how many lines and pages it reads, since they do not all fit into a cache.
    """
    offsets = []
    at = 0
    for _, *form in fields:
        kind = np.dtype(tuple(form) if len(form) > 1 else form[0])
        step = CACHE_LINE if kind.itemsize >= CACHE_LINE and kind.subdtype is not None else kind.alignment
        at += -at % step
        offsets.append(at)
        at += kind.itemsize
    formats = [tuple(form) if len(form) > 1 else form[0] for _, *form in fields]
    names = [name for name, *_ in fields]
    size = at + -at % whole
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size}, align=True)


# ---------------------------------------------------------------------------------------------------------------
# The read-only trace
# ---------------------------------------------------------------------------------------------------------------

JOB_ROW = np.dtype(
    [
        ("submit_ms", np.int64),
        ("eligible_ms", np.int64),  # begin time asked for by the user; submit_ms where none
        ("cancel_ms", np.int64),  # hidden: when the user cancels; NEVER
        ("work_ms", np.int64),  # hidden: run time at full speed
        ("outcome_ms", np.int64),  # hidden: progress (ms at full speed) at which it fails or hangs; NEVER
        ("claim_ms", np.int64),  # visible walltime claim; NEVER = none given = endless
        ("checkpoint_interval_ms", np.int64),  # of progress time; NEVER = no checkpoints
        ("checkpoint_cost_ms", np.int64),  # time to write one, without progress
        ("restart_cost_ms", np.int64),  # paid at every start but the first
        ("priority", np.int64),
        ("tenant", np.int32),
        ("user", np.int32),
        ("queue", np.int32),
        ("first_pod_set", np.int32),  # into the pod-set table
        ("num_pod_sets", np.int32),
        ("min_member", np.int32),
        ("after_row", np.int32),  # starts after this row has ended (think time is in eligible_ms); NONE
        ("shape", np.int32),  # jobs with equal pod sets, min_member and wishes share a shape
        ("group", np.int32),  # (tenant, shape), dense
        ("name_rank", np.int32),  # place of the job's name in string order
        ("uid_rank", np.int32),
        ("source_row", np.int32),  # row in the file it came from
        ("kind", np.int8),
        ("outcome", np.int8),  # hidden
        ("preemptible", np.bool_),
        ("requeue", np.bool_),  # may return to the queue after a node failure or an eviction
        ("killed_at_claim", np.bool_),
        ("has_dependents", np.bool_),
        ("topology_wish", np.int8),
        ("topology_tier", np.int8),
        ("topology", np.int8),  # index of the topology the tier belongs to
    ],
    align=True,
)
HIDDEN_COLUMNS = ("cancel_ms", "work_ms", "outcome_ms", "outcome")

POD_SET_ROW = np.dtype(
    [
        ("count", np.int32),
        ("min_count", np.int32),
        ("request", np.int64, (MAX_RESOURCES,)),  # per pod
        ("asked", np.uint8),  # bit r: resource r is asked for (absent differs from 0)
        ("flavors", np.int8, (MAX_FLAVORS,)),  # allowed, best first, NONE-terminated
    ],
    align=True,
)

SCHEDULE_ROW = np.dtype(
    [
        ("time_ms", np.int64),
        ("what", np.int8),  # ChangeKind
        ("index", np.int32),  # queue, tenant, node or trace row
        ("cell", np.int32),  # quota cell or pod set
        ("value", np.int64),
    ],
    align=True,
)


class ChangeKind(IntEnum):
    """What a row of the world's schedule (or an injected event) changes."""

    NOMINAL = 0
    BORROWING_LIMIT = 1
    LENDING_LIMIT = 2
    TENANT_WEIGHT = 3
    REPLICAS = 4  # index = trace row of a live service, cell = pod set, value = wanted replicas
    NODE_STATE = 5  # value = NodeState
    QUEUE_WEIGHT = 6


LOG_ROW = np.dtype(
    [
        ("row", np.int32),
        ("source_row", np.int32),
        ("tenant", np.int32),
        ("user", np.int32),
        ("submit_ms", np.int64),
        ("eligible_ms", np.int64),
        ("first_start_ms", np.int64),  # NEVER when it never started
        ("end_ms", np.int64),
        ("work_ms", np.int64),
        ("claim_ms", np.int64),
        ("holding_ms", np.int64),  # time during which it held GPUs
        ("gpus", np.int64),  # milli-GPU asked for by all its pods
        ("pods", np.int32),
        ("starts", np.int32),
        ("preemptions", np.int32),
        ("kind", np.int8),
        ("outcome", np.int8),
        ("reason", np.int8),
        # milli-GPU x ms
        ("held", np.int64),
        ("kept", np.int64),
        ("lost", np.int64),
        ("hang", np.int64),
        ("suspended", np.int64),
        ("overhead", np.int64),
        ("releasing", np.int64),
        ("surplus", np.int64),
        ("undecided", np.int64),
    ],
    align=True,
)

# ---------------------------------------------------------------------------------------------------------------
# The state record
# ---------------------------------------------------------------------------------------------------------------

GPU_TIME = np.dtype(  # milli-GPU x ms, by what became of it: spec/metrics.md section 2, "identity"
    [
        ("held", np.int64),
        ("kept", np.int64),
        ("lost", np.int64),
        ("hang", np.int64),
        ("suspended", np.int64),
        ("overhead", np.int64),
        ("releasing", np.int64),
        ("surplus", np.int64),
        ("undecided", np.int64),
    ],
    align=True,
)

PROGRESS = np.dtype(  # of a training job, or of one pod of a batch job
    [
        ("left", np.int64),  # work left, thousandths x ms
        ("saved_left", np.int64),  # work left at the last checkpoint
        ("outcome_left", np.int64),  # work left when the hidden outcome strikes; NONE = never
        ("overhead_ms", np.int64),  # start and restore time still to pass
        ("cycle_ms", np.int64),  # position in the checkpoint cycle: interval of progress, then the write
        ("undecided", np.int64),  # milli-GPU x ms since the last checkpoint
    ],
    align=True,
)

JOB = in_cache_lines(
    [
        # first line: a queue is searched ...
        ("order_key", np.int64),  # place in its group's queue: (order_key, row)
        ("row", np.int32),
        ("group", np.int32),
        ("tenant", np.int32),
        ("left", np.int32),  # queue tree, see core/queue.py
        ("right", np.int32),
        ("parent", np.int32),
        ("claim_ms", np.int64),
        ("min_claim_ms", np.int64),  # smallest claim in the subtree
        ("submit_ms", np.int64),  # first submission
        ("touch_ms", np.int64),  # last instant at which an agent's command touched it
        # ... second: a waiting job is shown and asked whether it could start ...
        ("gpus_wanted", np.int64),  # milli-GPU
        ("num_wanted", np.int32),  # pods wanted over all pod sets
        ("starts", np.int32),
        ("min_member", np.int32),
        ("first_pod_set", np.int32),  # slot; the others follow by `next`
        ("num_pod_sets", np.int32),
        ("shape", np.int32),
        ("first_reservation", np.int32),
        ("state", np.int8),
        ("kind", np.int8),
        ("topology_wish", np.int8),
        ("is_let_in", np.bool_),  # the admitter of a roles environment has admitted it; until it starts
        ("next", np.int32),  # running list (start order), or free list
        ("prev", np.int32),
        ("preemptible", np.bool_),
        ("is_lifted", np.bool_),  # within a search: taken off its nodes to see what fits then
        ("is_hung", np.bool_),  # hidden: running without progress, although all pods are there
        ("has_stopped", np.bool_),  # within a change: its attempt was ended, roll back
        ("num_bound", np.int32),
        ("gpus_bound", np.int64),  # requested milli-GPU of bound pods
        # ... and third: running jobs are compared
        ("start_ms", np.int64),  # of the current attempt: when it reached min_member
        ("checkpoint_interval_ms", np.int64),
        ("checkpoint_cost_ms", np.int64),
        ("restart_cost_ms", np.int64),
        ("victim_cost", np.int64),  # within a search: cost of stopping it; NEVER = it may not be stopped
        ("cost_of_search", np.int64),  # the search that the cost is of
        ("first_pod", np.int32),
        ("place", np.int32),  # in the table of running jobs
        ("queue_place", np.int32),  # in the table of waiting jobs
        ("preemptions", np.int32),
        # what it is (copied from the trace at arrival; `work` and outcomes live in `progress`, hidden)
        ("user", np.int32),
        ("queue", np.int32),
        ("name_rank", np.int32),
        ("uid_rank", np.int32),
        ("outcome", np.int8),  # hidden
        ("requeue", np.bool_),
        ("killed_at_claim", np.bool_),
        ("has_dependents", np.bool_),
        ("topology_tier", np.int8),
        ("topology", np.int8),  # index of the topology the tier belongs to
        ("priority", np.int64),
        ("work_ms", np.int64),  # hidden
        ("cancel_ms", np.int64),  # hidden
        # life cycle
        ("waits_by_scheduler", np.bool_),  # not eligible by a hold or a requeue delay, not by its user's wish
        ("is_first_placement", np.bool_),  # within a change: got its first pods in it
        ("change", np.int64),  # the last change that touched it
        ("num_gone", np.int32),  # within a change: pods that have left
        ("is_queued", np.bool_),  # in its group's queue tree
        ("is_listed", np.bool_),  # in the running list
        ("then", np.int8),  # what happens when its releasing pods are gone
        ("end_outcome", np.int8),  # and how it ends then
        ("end_reason", np.int8),
        ("after_job", np.int32),  # slot of the job it waits for
        ("first_dependent", np.int32),  # jobs that wait for this one
        ("next_dependent", np.int32),
        ("last_submit_ms", np.int64),  # moved by a requeue
        ("eligible_ms", np.int64),
        ("admit_ms", np.int64),
        ("admit_change", np.int64),  # number of the change that admitted it
        ("evict_ms", np.int64),
        ("first_start_ms", np.int64),
        ("hang_since_ms", np.int64),
        ("end_ms", np.int64),  # when it ended, while its last pods are still releasing
        # now
        ("speed", np.int32),  # thousandths
        ("is_admitted", np.bool_),
        ("num_releasing", np.int32),
        ("num_done", np.int32),  # batch: pods that have ended
        ("gpus_releasing", np.int64),  # held milli-GPU of releasing pods
        ("gpus_surplus", np.int64),  # held beyond the request, bound pods
        ("demand", np.int64),  # what it adds to its tenant's demand, milli-GPU
        ("freed_mask", np.uint8),  # resources given up while suspended
        ("progress", PROGRESS),
        ("gpu_time", GPU_TIME),
        ("holding_ms", np.int64),
        ("accrued_ms", np.int64),  # up to when the counters above are right
        ("reserve_until_ms", np.int64),
        ("no_room_at", np.int64),  # room_version at which it found no room, of a job with reservations
        # links
        ("last_pod", np.int32),
        ("next_event_ms", np.int64),
    ]
)

BEFORE = np.dtype([("job", JOB), ("slot", np.int32)], align=True)

RUNNING = np.dtype(  # what is read of every running job at each decision, side by side; core/slots.py keeps it
    [
        ("job", np.int32),
        ("tenant", np.int32),
        ("node", np.int32),  # where its one pod is, which holds the whole GPUs that it asked for; NONE in other cases
        ("preemptions", np.int32),
        ("listed", np.int64),  # the how-manieth entry of the running list ever: their order
        ("start_ms", np.int64),
        ("cycle_from_ms", np.int64),  # its start, or a later begin of a checkpoint cycle
        ("gpus_bound", np.int64),
        ("checkpoint_interval_ms", np.int64),
        ("checkpoint_cost_ms", np.int64),
        ("restart_cost_ms", np.int64),
        ("claim_ms", np.int64),
        ("touch_ms", np.int64),
        ("may_be_shown", np.bool_),  # it runs, and may be preempted
        ("may_be_stopped", np.bool_),  # it has pods to take away, and may be preempted
    ],
    align=True,
)

WAITING = np.dtype(  # the same of every job in a queue; core/queue.py keeps it
    [
        ("job", np.int32),
        ("next", np.int32),  # place of the next job of the group, and of the one before
        ("prev", np.int32),
        ("row", np.int32),
        ("tenant", np.int32),
        ("group", np.int32),
        ("num_wanted", np.int32),
        ("starts", np.int32),
        ("order_key", np.int64),
        ("submit_ms", np.int64),
        ("claim_ms", np.int64),
        ("gpus_wanted", np.int64),
        ("touch_ms", np.int64),
        ("is_gang", np.bool_),
        ("has_parts", np.bool_),  # more than one pod set
        ("is_plain", np.bool_),  # queued, without a reservation: as others of its group that are
    ],
    align=True,
)

POD_SET = np.dtype(
    [
        ("job", np.int32),
        ("next", np.int32),
        ("index", np.int32),  # within the job
        ("count", np.int32),  # wanted now
        ("min_count", np.int32),
        ("num_admitted", np.int32),
        ("num_bound", np.int32),
        ("num_releasing", np.int32),
        ("num_done", np.int32),
        ("asked", np.uint8),
        ("flavors", np.int8, (MAX_FLAVORS,)),
        ("admitted_flavor", np.int8, (MAX_RESOURCES,)),
        ("request", np.int64, (MAX_RESOURCES,)),
    ],
    align=True,
)

POD = np.dtype(
    [
        ("job", np.int32),
        ("pod_set", np.int32),  # slot
        ("node", np.int32),
        ("serial", np.int32),  # order of binding within the world, for same-instant order
        ("next", np.int32),  # of the job, or free list
        ("prev", np.int32),
        ("next_on_node", np.int32),
        ("prev_on_node", np.int32),
        ("state", np.int8),
        ("is_new", np.bool_),  # within a change
        ("gives_back", np.bool_),  # its admission ends with it (shrink, batch pods that are done)
        ("gpu_mask", np.uint16),
        ("gpu_milli", np.int32),  # held on each GPU of the mask
        ("gpus_asked", np.int64),
        ("held", np.int64, (MAX_RESOURCES,)),
        ("release_ms", np.int64),
        ("accrued_ms", np.int64),
        ("progress", PROGRESS),  # batch only
    ],
    align=True,
)

NODE = np.dtype(
    [
        # the fields come first that a placement search reads of every node
        ("state", np.int8),
        ("has", np.uint8),  # bit r: the node offers resource r
        ("flavor", np.int32),
        ("free_gpus", np.int32),  # GPUs with nothing on them
        ("num_gpus", np.int32),
        ("first_pod", np.int32),
        ("num_pods", np.int32),  # bound or releasing
        ("speed", np.int32),  # thousandths
        ("gpu_type", np.int32),
        ("idle", np.int64, (MAX_RESOURCES,)),
        ("planned", np.int64, (MAX_RESOURCES,)),  # reserved
        ("gpu_free", np.int32, (MAX_GPUS_PER_NODE,)),  # milli-GPU left on each
        ("used", np.int64, (MAX_RESOURCES,)),  # by bound and releasing pods
        ("releasing", np.int64, (MAX_RESOURCES,)),  # part of used
        ("capacity", np.int64, (MAX_RESOURCES,)),
        ("domain", np.int32, (MAX_TOPOLOGIES,)),  # leaf domain; NONE = outside that topology
        ("name_rank", np.int32),
        ("failure_rng", np.uint64),
        ("next_change_ms", np.int64),  # next failure or repair
        ("down_ms", np.int64),  # time spent down, up to accrued_ms
        ("accrued_ms", np.int64),
    ],
    align=True,
)

RESERVATION = np.dtype(
    [("job", np.int32), ("node", np.int32), ("next", np.int32), ("amount", np.int64, (MAX_RESOURCES,))], align=True
)

DOMAIN = np.dtype(
    [("parent", np.int32), ("tier", np.int32), ("topology", np.int32), ("name_rank", np.int32)], align=True
)

TENANT = np.dtype(
    [
        ("weight", np.int64),  # entitlement
        ("queue", np.int32),
        ("name_rank", np.int32),
        ("entitled", np.int64),  # weight share of the cluster, milli-GPU
        ("held", np.int64),  # A_k, milli-GPU
        ("running", np.int64),  # of it, in jobs that make progress
        ("demand", np.int64),  # D_k
        ("fair", np.int64),  # F_k: water-filled share
        ("leaving", np.int64),  # scratch of a victim search: GPUs of victims so far, milli-GPU
        ("num_waiting", np.int32),
        ("num_running", np.int32),
        ("gpus_waiting", np.int64),
        ("usage", np.float64),  # milli-GPU x ms, decayed
        ("usage_ms", np.int64),
        # integrals since the world began, milli-GPU x ms
        ("held_area", np.int64),
        ("running_area", np.int64),
        ("demand_area", np.int64),
        ("fair_area", np.int64),
        ("over_area", np.int64),
        ("deficit_area", np.int64),
        ("waste_area", np.int64),  # charged at the event: its part of lost_area and restart_area
    ],
    align=True,
)

USER = np.dtype(
    [
        ("tenant", np.int32),
        ("held", np.int64),
        ("usage", np.float64),
        ("usage_ms", np.int64),
    ],
    align=True,
)

QUEUE = np.dtype(  # a queue or a cohort: a node of the quota tree
    [
        ("parent", np.int32),
        ("is_cohort", np.bool_),
        ("weight", np.int64),  # thousandths
        ("name_rank", np.int32),
        ("nominal", np.int64, (MAX_QUOTA_CELLS,)),
        ("borrowing_limit", np.int64, (MAX_QUOTA_CELLS,)),
        ("lending_limit", np.int64, (MAX_QUOTA_CELLS,)),
        ("subtree", np.int64, (MAX_QUOTA_CELLS,)),
        ("usage", np.int64, (MAX_QUOTA_CELLS,)),
    ],
    align=True,
)

GROUP = np.dtype(  # waiting jobs of one (tenant, shape), in order
    [
        ("root", np.int32),
        ("num_waiting", np.int32),
        ("head", np.int32),  # first job
        ("head_place", np.int32),  # its place in the table of waiting jobs
        ("head_row", np.int32),  # its row and order_key
        ("shortest_place", np.int32),  # place of the first with the smallest claim; NONE = to be looked for
        ("head_key", np.int64),
        ("least_claim_ms", np.int64),  # smallest claim of its jobs
        ("no_room_at", np.int64),  # room_version at which its jobs found no room
        ("next", np.int32),  # list of non-empty groups
        ("prev", np.int32),
        ("tenant", np.int16),
        ("shape", np.int16),
    ],
    align=True,
)

TOTALS = np.dtype(  # since the world began
    [
        ("gpu_time", GPU_TIME),  # of ended jobs; kept = of jobs that end well
        ("kept_bad", np.int64),  # kept by jobs that did not end well
        # exact integrals, milli-GPU x ms
        ("capacity_area", np.int64),  # GPUs that are up
        ("held_area", np.int64),
        ("running_area", np.int64),
        ("demand_area", np.int64),
        ("wanted_area", np.int64),  # min(C, D)
        ("idle_area", np.int64),  # [min(C, D) - running]+
        ("over_area", np.int64),
        ("deficit_area", np.int64),
        ("hang_area", np.int64),
        ("reserved_area", np.int64),  # idle GPUs kept by reservations
        ("replica_wanted_area", np.int64),  # services: replicas x ms
        ("replica_missing_area", np.int64),
        ("lost_area", np.int64),  # charged at the event
        ("restart_area", np.int64),  # charged at the event: GPUs x (start latency + restart cost)
        ("waiting_area", np.int64),  # jobs x ms
        ("in_system_area", np.int64),
        ("slowness_area", np.int64),  # sum over jobs of SLOWNESS / max(work, 10 s), x ms
        ("jain_area", np.float64),  # Jain index of min(A/F, 1) over tenants with demand, x ms
        ("gpus_waiting_area", np.int64),
        ("num_arrived", np.int64),
        ("num_started", np.int64),
        ("num_ended", np.int64),
        ("num_done", np.int64),
        ("num_rejected", np.int64),
        ("num_preemptions", np.int64),
        ("num_node_failures", np.int64),
        ("num_events", np.int64),
        ("num_instants", np.int64),
        ("num_decisions", np.int64),
        ("num_transactions", np.int64),
        ("num_refused", np.int64),
        ("num_attempts", np.int64),  # placement attempts
        ("most_waiting", np.int64),  # most jobs that have waited at once
    ],
    align=True,
)

EVENT = np.dtype([("time_ms", np.int64), ("rank", np.int64), ("entity", np.int32)], align=True)

MAX_COMMANDS = 1024  # of a decision
NUM_SEARCH_KEYS = 7  # see core/preemption.py
LAST_SEARCH = 7  # one more entry of `candidates_of`: number of the search
MAX_FRAG_CLASSES = 32

JOURNAL = np.dtype(  # how to undo one step of a transaction
    [("step", np.int8), ("a", np.int32), ("b", np.int32), ("amount", np.int64)], align=True
)

FRAG_CLASS = np.dtype(  # a class of pods, for the fragmentation measure
    [("popularity", np.float64), ("request", np.int64, (MAX_RESOURCES,)), ("asked", np.uint8)], align=True
)

# What a scheduler returns.
COMMAND = np.dtype(
    [
        ("op", np.int8),
        ("then", np.int8),  # EVICT
        ("beyond_quota", np.bool_),  # ADMIT: whether the limits allow that or not (quota is on its way back)
        ("whole_node", np.bool_),  # PLACE: hold everything that is idle on the node
        ("gpu", np.int8),  # PLACE: first GPU to use for a fraction; NONE = fullest that fits
        ("freed_mask", np.uint8),  # SUSPEND
        ("reason", np.int8),  # CANCEL
        ("transaction", np.int32),  # equal numbers are applied together or not at all
        ("job", np.int32),  # slot
        ("pod_set", np.int32),  # index within the job; NONE = all (EVICT)
        ("node", np.int32),  # NONE = any (EVICT)
        ("pods", np.int32),  # ADMIT, PLACE, EVICT; NONE = all (EVICT)
        ("grace_ms", np.int64),  # EVICT
        ("until_ms", np.int64),  # HOLD, RESERVE
        ("flavor", np.int8, (MAX_RESOURCES,)),  # ADMIT
        ("amount", np.int64, (MAX_RESOURCES,)),  # RESERVE
    ],
    align=True,
)

DECISION = np.dtype(
    [
        ("num_commands", np.int32),
        ("num_transactions", np.int32),
        ("results", np.int8, (MAX_COMMANDS,)),  # by transaction, filled in by the simulator
        ("commands", COMMAND, (MAX_COMMANDS,)),
    ],
    align=True,
)

PARAMS = np.dtype(  # fixed while a world runs
    [
        ("num_resources", np.int32),
        ("gpu_resource", np.int32),  # the device-backed one; NONE in a quota-only world
        ("pods_resource", np.int32),  # every pod takes one of it; NONE
        ("quota", np.int8),
        ("gang", np.bool_),
        ("reject_oversized", np.bool_),
        ("track_users", np.bool_),
        ("queue_order", np.int8),
        ("half_life_ms", np.int64),  # NEVER = no decay
        ("usage_tick_ms", np.int64),
        ("start_latency_ms", np.int64),
        ("completing_ms", np.int64),
        ("limit_check_ms", np.int64),
        ("requeue_hold_ms", np.int64),
        ("hang_timeout_ms", np.int64),
        ("mean_up_ms", np.float64),  # 0 = nodes do not fail
        ("mean_down_ms", np.float64),
        ("locality", np.int32, (MAX_GPUS_PER_NODE,)),  # speed (thousandths) by tier of the domain that spans the job
        ("locality_topology", np.int32),
    ],
    align=True,
)


@dataclass(frozen=True)
class SizeClass:
    """Capacities of a `World` record. Another size class is another compile."""

    name: str
    max_nodes: int
    max_domains: int
    max_tenants: int
    max_users: int
    max_queues: int
    max_jobs: int
    max_pod_sets: int
    max_pods: int
    max_groups: int
    max_shapes: int
    max_reservations: int
    max_touched: int  # jobs that one transaction or one event may change

    @property
    def max_entities(self) -> int:
        """Things that can have an event: jobs, nodes, arrivals, schedule, usage tick, scheduler timer."""
        return self.max_jobs + self.max_nodes + 4


SIZE_CLASSES = (
    SizeClass("small", 64, 96, 16, 128, 32, 20480, 20480, 16384, 256, 64, 128, 2048),
    SizeClass("medium", 512, 768, 64, 2048, 128, 65536, 65536, 131072, 2048, 512, 1024, 8192),
    SizeClass("large", 4096, 6144, 256, 16384, 512, 524288, 524288, 1048576, 16384, 2048, 8192, 32768),
)


def world_dtype(size: SizeClass) -> np.dtype[Any]:
    """The record of one world of a size class."""
    return in_cache_lines(
        [
            ("now_ms", np.int64),
            ("params", PARAMS),
            ("totals", TOTALS),
            # how much of the capacities below is used
            ("num_nodes", np.int32),
            ("num_domains", np.int32),
            ("num_topologies", np.int32),
            ("num_tenants", np.int32),
            ("num_users", np.int32),
            ("num_queues", np.int32),
            ("num_cells", np.int32),
            ("num_groups", np.int32),
            ("num_shapes", np.int32),
            ("num_flavors", np.int32),
            # the trace: rows [next_row, end_row) of the table are still to come
            ("next_row", np.int32),
            ("end_row", np.int32),
            ("thin_seed", np.uint64),
            ("thin_below", np.uint64),  # a row arrives if hash(thin_seed, row) <= thin_below; all ones = all rows
            ("time_offset_ms", np.int64),  # subtracted from the times of the trace
            ("next_change", np.int32),  # schedule rows
            ("end_change", np.int32),
            # counts
            ("num_jobs", np.int32),  # live
            ("num_waiting", np.int32),
            ("num_queued", np.int32),  # in the table of waiting jobs
            ("num_running", np.int32),  # partial, running or suspended
            ("gpus_waiting", np.int64),
            ("gpus_total", np.int64),  # milli-GPU, of all nodes
            ("gpus_up", np.int64),  # of nodes that are not down
            ("gpus_held", np.int64),
            ("gpus_running", np.int64),
            ("gpus_hung", np.int64),
            ("gpus_reserved", np.int64),
            ("demand", np.int64),
            ("replicas_wanted", np.int64),
            ("replicas_missing", np.int64),
            ("over", np.int64),  # sum_k [A_k - F_k]+ as of the last refresh
            ("deficit", np.int64),
            ("jain", np.float64),
            ("slowness", np.int64),
            ("shares_are_stale", np.bool_),
            ("areas_ms", np.int64),  # up to when the integrals are right
            ("room_version", np.int64),  # grows when room may have been made: what did not fit before may fit now
            ("error", np.int32),
            ("error_value", np.int64),
            # slots
            ("jobs_used", np.int32),  # high-water mark
            ("free_job", np.int32),
            ("pod_sets_used", np.int32),
            ("free_pod_set", np.int32),
            ("pods_used", np.int32),
            ("free_pod", np.int32),
            ("next_serial", np.int32),
            ("queue_version", np.int64),  # grows when somebody begins or ceases to wait
            ("reservations_used", np.int32),
            ("free_reservation", np.int32),
            ("first_running", np.int32),
            ("last_running", np.int32),
            ("num_listed", np.int64),  # entries of the running list so far
            ("first_group", np.int32),
            ("first_service", np.int32),
            ("log_used", np.int64),
            # events
            ("next_arrival_ms", np.int64),
            ("timer_ms", np.int64),
            ("heap_size", np.int32),
            ("change", np.int64),  # number of the current change
            ("num_touched", np.int32),
            ("num_pod_sets_before", np.int32),
            ("num_lifted", np.int32),
            ("num_journal", np.int32),
            ("num_frag_classes", np.int32),
            ("cell_flavor", np.int8, (MAX_QUOTA_CELLS,)),
            ("cell_resource", np.int8, (MAX_QUOTA_CELLS,)),
            ("cell_of", np.int8, (MAX_FLAVORS, MAX_RESOURCES)),
            # what small worlds read at every step, in one page of memory as far as it goes
            ("fits_empty", np.int8, (size.max_shapes,)),  # on the empty cluster: 1 yes, -1 no, 0 not asked
            ("no_room_at", np.int64, (size.max_shapes,)),  # room_version at which a job of the shape found no room
            ("candidates_of", np.int64, (NUM_SEARCH_KEYS + 1,)),  # for which search candidate victims have been noted
            ("stoppable_of", np.int64, (4,)),  # for which state the sums of `stoppable` have been taken
            ("fit", np.int32, (size.max_nodes,)),  # scratch of a placement search: pods that fit on each node
            ("may_free", np.int64, (size.max_nodes,)),  # scratch of a search for victims: milli-GPU they hold there
            ("all_stoppable", np.int64, (size.max_nodes,)),  # see `stoppable`
            ("stops_plainly", np.int8, (size.max_nodes,)),
            ("tenants", TENANT, (size.max_tenants,)),
            ("nodes", NODE, (size.max_nodes,)),
            ("groups", GROUP, (size.max_groups,)),
            ("heap_place", np.int32, (size.max_entities,)),
            ("domains", DOMAIN, (size.max_domains,)),
            ("users", USER, (size.max_users,)),
            ("queues", QUEUE, (size.max_queues,)),
            ("frag_classes", FRAG_CLASS, (MAX_FRAG_CLASSES,)),
            ("slot_keys", np.int32, (2 * size.max_jobs,)),  # hash map trace row -> slot, for dependencies and services
            # from here on nothing needs to be cleared when a world begins anew (RESET_BOUNDARY)
            ("heap", EVENT, (size.max_entities,)),  # core/events.py
            # milli-GPU that may be stopped on each node, of each tenant above its share; `all_stoppable` is of all of
            # them, `stops_plainly` says that all may be stopped in any order, and leaves whole GPUs
            ("stoppable", np.int64, (size.max_tenants, size.max_nodes)),
            ("before", BEFORE, (size.max_touched,)),  # the touched jobs as they were
            ("pod_sets_before", POD_SET, (2 * size.max_touched,)),
            ("journal", JOURNAL, (8 * size.max_touched,)),
            ("lifted", np.int32, (size.max_touched,)),
            ("reservations", RESERVATION, (size.max_reservations,)),
            ("domain_fit", np.int64, (size.max_domains,)),  # scratch
            ("empty_idle", np.int64, (size.max_nodes, MAX_RESOURCES)),  # scratch: a copy of the empty cluster
            ("empty_gpus", np.int32, (size.max_nodes, MAX_GPUS_PER_NODE)),
            ("scratch", DECISION, (1,)),  # commands of a search that is undone
            ("probe", DECISION, (1,)),  # the same, for searches around it
            ("waiting", WAITING, (size.max_jobs,)),  # [0, num_queued) in any order
            ("running", RUNNING, (size.max_jobs,)),  # [0, num_running) in any order
            ("jobs", JOB, (size.max_jobs,)),
            ("pod_sets", POD_SET, (size.max_pod_sets,)),
            ("pods", POD, (size.max_pods,)),
        ],
        PAGE,
    )


SCRATCH = (  # fields of a world that hold nothing between two changes
    "before",
    "pod_sets_before",
    "journal",
    "lifted",
    "fit",
    "may_free",
    "candidates_of",
    "stoppable_of",
    "stoppable",
    "all_stoppable",
    "stops_plainly",
    "domain_fit",
    "empty_idle",
    "empty_gpus",
    "scratch",
    "probe",
)
IN_USE = {  # arrays of a world of which no more is in use than a count says
    "jobs": "jobs_used",
    "pods": "pods_used",
    "pod_sets": "pod_sets_used",
    "waiting": "num_queued",
    "running": "num_running",
    "heap": "heap_size",
}
RESET_BOUNDARY = "heap"  # the first field of a world that need not be cleared

AGAIN = -1  # `next` of a decision: ask once more at this instant
