"""The numbers behind a `SlurmConfig`: one record per world, that the compiled scheduler reads and writes, and behind it
what each row of the trace asked for.

It begins with `own` (settings, then what the scheduler remembers) and goes on with tables, see `block_dtype`. Their
capacities come with the size class of the world; how much of them is used stands in `own`.

TRES are numbered 0..7 as the world's resources, then nodes, GPUs by type, billing. Amounts are in the core's units.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from gangline.envs.core.types import MAX_COMMANDS, MAX_FLAVORS, MAX_RESOURCES, SizeClass

NODE_TRES = MAX_RESOURCES
TYPE_TRES = MAX_RESOURCES + 1  # first of the GPUs by type
BILLING_TRES = TYPE_TRES + MAX_FLAVORS
NUM_TRES = BILLING_TRES + 1
WORD_BITS = 64
MAX_CLOSED = 16


class Mode(IntEnum):
    """PreemptMode: what happens to victims."""

    OFF = 0
    CANCEL = 1
    REQUEUE = 2
    SUSPEND = 3


class PreemptBy(IntEnum):
    """PreemptType."""

    NOBODY = 0
    QOS = 1
    PARTITION = 2


class Stage(IntEnum):
    """What the scheduler is in the middle of: a pass goes on where its last start left it."""

    IDLE = 0
    MAIN = 1
    BACKFILL = 2


class Reason(IntEnum):
    """Why a job waits; those from JOB_COUNT on are limits."""

    NONE = 0
    PRIORITY = 1
    RESOURCES = 2
    HELD = 3
    QOS_GRP_JOBS = 4
    QOS_MAX_JOBS_PER_USER = 5
    QOS_MAX_JOBS_PER_ACCOUNT = 6
    ASSOC_GRP_JOBS = 7
    ASSOC_MAX_JOBS = 8
    QOS_MAX_WALL = 9
    ASSOC_MAX_WALL = 10
    QOS_GRP_TRES = 11
    QOS_MAX_TRES_PER_USER = 12
    QOS_MAX_TRES_PER_ACCOUNT = 13
    QOS_MAX_TRES_PER_JOB = 14
    ASSOC_GRP_TRES = 15
    ASSOC_MAX_TRES_PER_JOB = 16
    ASSOC_GRP_TRES_MINS = 17
    WORLD_QUOTA = 18  # the world enforces quotas, and this one is used up
    QOS_GRP_WALL = 19
    ASSOC_GRP_WALL = 20
    QOS_GRP_TRES_MINS = 21
    QOS_MAX_TRES_PER_NODE = 22
    ASSOC_MAX_TRES_PER_NODE = 23
    QOS_MAX_TRES_MINS = 24
    ASSOC_MAX_TRES_MINS = 25
    ARRAY_TASKS = 26  # as many elements of its array run as may at once


FIRST_LIMIT = int(Reason.QOS_GRP_JOBS)

SLURM = np.dtype(
    [
        # how much of the tables is used
        ("num_assocs", np.int64),
        ("num_qos", np.int64),
        ("num_partitions", np.int64),
        ("num_requests", np.int64),  # different ones; the first is that of jobs that said nothing
        ("num_arrays", np.int64),
        ("num_free", np.int64),  # cells of `free`
        # the cluster
        ("num_resources", np.int64),
        ("cpu", np.int64),  # resource index; NONE where the world counts no CPUs
        ("words", np.int64),  # of a set of nodes, 64 nodes a word
        ("cluster_cpus", np.int64),
        ("scale", np.int64, (NUM_TRES,)),  # core units in one Slurm unit
        # priority
        ("weight_age", np.float64),
        ("weight_assoc", np.float64),
        ("weight_fairshare", np.float64),
        ("weight_job_size", np.float64),
        ("weight_partition", np.float64),
        ("weight_qos", np.float64),
        ("weight_tres", np.float64, (NUM_TRES,)),
        ("max_age_s", np.int64),
        ("calc_period_s", np.int64),
        ("half_life_s", np.int64),
        ("reset_period_s", np.int64),  # 0 = never
        ("dampening", np.float64),
        ("favor_small", np.int64),
        ("small_relative_to_time", np.int64),
        ("is_classic", np.int64),
        ("accrue_always", np.int64),
        ("incr_only", np.int64),
        ("ranks_running", np.int64),  # CALCULATE_RUNNING
        ("raw_assoc", np.int64),
        ("raw_partition", np.int64),
        ("raw_qos", np.int64),
        ("raw_tres", np.int64),
        ("max_tres", np.int64),  # billing: 1 = MAX_TRES, 2 = MAX_TRES_GRES
        ("max_assoc_priority", np.float64),
        ("max_partition_factor", np.float64),
        ("max_qos_priority", np.float64),
        ("root", np.int64),
        ("num_users", np.int64),  # user associations, root's included
        # scheduling
        ("queue_depth", np.int64),
        ("partition_depth", np.int64),
        ("max_job_start", np.int64),
        ("limit_stop", np.int64),
        ("sched_interval_ms", np.int64),
        ("delay_ms", np.int64),
        ("loop_ms", np.int64),
        ("backfills", np.int64),
        ("bf_interval_ms", np.int64),
        ("bf_window_ms", np.int64),
        ("bf_resolution_ms", np.int64),
        ("bf_max_test", np.int64),
        ("bf_max_start", np.int64),
        ("bf_max_user", np.int64),
        ("bf_max_user_part", np.int64),
        ("bf_max_array", np.int64),
        ("bf_max_part", np.int64),
        ("bf_max_assoc", np.int64),
        ("bf_linear_ms", np.int64),
        ("bf_min_age_ms", np.int64),
        ("bf_min_prio", np.int64),
        ("kill_wait_ms", np.int64),
        ("has_limits", np.int64),
        ("has_submit_limits", np.int64),
        # preemption
        ("preempt_by", np.int64),
        ("preempt_mode", np.int64),
        ("is_gang", np.int64),
        ("exempt_ms", np.int64),
        ("youngest_first", np.int64),
        ("reorder_count", np.int64),
        ("strict_order", np.int64),
        ("min_exempt_priority", np.int64),
        ("priority_must_be_higher", np.int64),
        ("within_qos", np.int64),
        ("slice_ms", np.int64),
        # what the scheduler remembers
        ("default_partition", np.int64),
        ("default_qos", np.int64),
        ("tick_s", np.int64),  # last tick
        ("next_tick_ms", np.int64),
        ("next_reset_s", np.int64),
        ("stage", np.int64),
        ("position", np.int64),  # in the order, of the pass that goes on
        ("num_tested", np.int64),
        ("num_started", np.int64),
        ("num_passes", np.int64),  # main passes so far
        ("num_backfills", np.int64),  # backfill passes so far
        ("is_full_pass", np.int64),
        ("failed", np.int64),  # partitions that have a blocked job in this pass, a bit each
        ("present", np.int64),  # partitions that have a job in the order, a bit each
        ("num_order", np.int64),  # records in the order
        ("num_known", np.int64),  # jobs among them
        ("num_arrived", np.int64),  # as of the last look
        ("room_version", np.int64),
        ("num_running", np.int64),
        ("busy_ms", np.int64),  # when a job last ran or arrived
        ("idle_limit_ms", np.int64),  # after that long without one, ticks change nothing more
        ("main_ms", np.int64),  # when a pass is due; NEVER
        ("full_is_wanted", np.int64),
        ("backfill_is_wanted", np.int64),
        ("next_full_ms", np.int64),
        ("next_backfill_ms", np.int64),
        ("next_slice_ms", np.int64),
        ("wake_ms", np.int64),  # a protected time or grace ends
        ("num_intervals", np.int64),
        ("window_middle", np.int64),
        ("window_end", np.int64),
        ("num_plans", np.int64),
        ("num_ends", np.int64),
        ("stamp", np.int64),  # number of the state that backfill's answers are good for
        ("num_choices", np.int64),
        ("num_victims", np.int64),
        ("num_rejected", np.int64),  # jobs of this look that no limit on submissions admits
        ("by_hand", np.int64),  # 1: passes run only when they are asked for
        ("bf_phase_ms", np.int64),  # when in its interval backfill wakes; 0 but where a recorded run is followed
        ("epoch_ms", np.int64),  # the wall clock when the world's clock is 0
        ("asked", np.int64),  # the Stage of the pass that is asked for
        ("num_stopped", np.int64),  # jobs suspended by this scheduler
        ("newcomer", np.int64),  # started on shared cores just now; NONE
    ],
    align=True,
)

ASSOC = np.dtype(  # an association: an account, or a user of one
    [
        ("parent", np.int32),
        ("person", np.int32),  # first association of the same user
        ("share_parent", np.int32),  # nearest ancestor that does not itself have shares=parent
        ("is_user", np.bool_),
        ("is_parent_share", np.bool_),  # shares=parent
        ("is_taken", np.bool_),  # classic: its effective usage was taken since the last tick
        ("first_child", np.int32),  # of its level, in `children`
        ("num_children", np.int32),
        ("place", np.int32),  # in list order among its level
        ("priority", np.float64),
        ("shares", np.float64),
        ("level_shares", np.float64),
        ("norm_shares", np.float64),
        ("raw", np.float64),  # billing-seconds
        ("raw_tres", np.float64, (NUM_TRES,)),  # TRES-seconds, for GrpTRESMins
        ("raw_wall", np.float64),  # seconds, for GrpWall
        ("norm_usage", np.float64),
        ("effective", np.float64),
        ("level_fs", np.float64),
        ("level_exponent", np.int64),  # level_fs in 80-bit precision
        ("level_mantissa", np.uint64),
        ("factor", np.float64),
        ("has_limits", np.bool_),
        ("grp_jobs", np.int64),  # -1 = no limit, in all limits
        ("max_jobs", np.int64),
        ("grp_submit", np.int64),
        ("max_submit", np.int64),
        ("grp_wall_ms", np.int64),
        ("max_wall_ms", np.int64),
        ("grp_tres", np.int64, (NUM_TRES,)),
        ("grp_tres_mins", np.int64, (NUM_TRES,)),
        ("max_tres_per_job", np.int64, (NUM_TRES,)),
        ("max_tres_per_node", np.int64, (NUM_TRES,)),
        ("max_tres_mins_per_job", np.int64, (NUM_TRES,)),
        ("used_jobs", np.int64),
        ("used_tres", np.int64, (NUM_TRES,)),
        ("num_tested", np.int64),  # in this backfill pass
        ("num_tested_of_person", np.int64),
    ],
    align=True,
)

QOS = np.dtype(
    [
        ("priority", np.int64),
        ("preempts", np.int64),  # a bit for each QOS
        ("mode", np.int64),  # -1 = the cluster's
        ("grace_ms", np.int64),
        ("exempt_ms", np.int64),
        ("usage_factor", np.float64),
        ("no_decay", np.bool_),
        ("no_reserve", np.bool_),
        ("is_over_partition", np.bool_),  # OverPartQOS: its limits before those of the partition's QOS
        ("has_limits", np.bool_),
        ("raw", np.float64),
        ("raw_tres", np.float64, (NUM_TRES,)),
        ("raw_wall", np.float64),
        ("grp_jobs", np.int64),
        ("max_jobs_per_user", np.int64),
        ("max_jobs_per_account", np.int64),
        ("grp_submit", np.int64),
        ("max_submit_per_user", np.int64),
        ("max_submit_per_account", np.int64),
        ("grp_wall_ms", np.int64),
        ("max_wall_ms", np.int64),
        ("grp_tres", np.int64, (NUM_TRES,)),
        ("grp_tres_mins", np.int64, (NUM_TRES,)),
        ("max_tres_per_node", np.int64, (NUM_TRES,)),
        ("max_tres_mins_per_job", np.int64, (NUM_TRES,)),
        ("max_tres_per_user", np.int64, (NUM_TRES,)),
        ("max_tres_per_account", np.int64, (NUM_TRES,)),
        ("max_tres_per_job", np.int64, (NUM_TRES,)),
        ("used_jobs", np.int64),
        ("used_tres", np.int64, (NUM_TRES,)),
    ],
    align=True,
)

PARTITION = np.dtype(
    [
        ("tier", np.int64),
        ("factor", np.float64),
        ("max_time_ms", np.int64),  # NEVER = unlimited
        ("default_time_ms", np.int64),
        ("over_subscribe", np.int64),
        ("exclusive", np.bool_),
        ("lln", np.bool_),
        ("qos", np.int64),  # NONE
        ("mode", np.int64),  # -1 = the cluster's
        ("grace_ms", np.int64),
        ("has_weights", np.bool_),
        ("weights", np.float64, (NUM_TRES,)),  # TRESBillingWeights
        ("totals", np.float64, (NUM_TRES,)),  # TRES of its nodes, in Slurm's units
        ("num_tested", np.int64),  # in this pass
        # backfill: up to `closed_until_ms` no node stays open for `closed_limit_ms` or longer
        ("num_closed", np.int64),
        ("closed_limit_ms", np.int64, (MAX_CLOSED,)),
        ("closed_until_ms", np.int64, (MAX_CLOSED,)),
    ],
    align=True,
)

REQUEST = np.dtype(  # what submissions said, the different ones
    [
        ("partitions", np.int64),  # a bit each
        ("assoc", np.int32),  # NONE = that of the job's user or tenant
        ("qos", np.int32),
        ("nodelist", np.int32),  # row of `nodelists`: nodes that the job must have; NONE
        ("num_listed", np.int32),
        ("allowed", np.int32),  # row of `nodelists`: nodes that it may have; NONE = all
        ("nice", np.int64),
        ("fixed_priority", np.int64),  # -1 = computed
        ("exclusive", np.bool_),
        ("whole_nodes", np.bool_),
        ("tasks_are_fixed", np.bool_),
    ],
    align=True,
)

ARRAY = np.dtype(  # a job array: its elements are jobs
    [
        ("limit", np.int64),  # elements that run at once; -1 = no limit
        ("num_running", np.int64),
        ("failed_pass", np.int64),  # number of the main pass in which an element could not start
        ("failed_partitions", np.int64),  # and in which partitions, a bit each
        ("counted_pass", np.int64),  # number of the main pass in which it has counted towards the depth
        ("backfill_pass", np.int64),
        ("num_planned", np.int64),  # elements that have a plan in this backfill pass
    ],
    align=True,
)

SLOT = np.dtype(  # what is remembered of a live job, by the core's slot
    [
        ("row", np.int32),
        ("request", np.int32),
        ("array", np.int32),  # NONE
        ("is_known", np.bool_),  # in the order
        ("is_running", np.bool_),  # among those whose usage is charged
        ("is_sliced", np.bool_),  # shares its cores in turns
        ("is_stopped", np.bool_),  # suspended by this scheduler
        ("assoc", np.int32),
        ("qos", np.int32),
        ("partition", np.int32),  # where it runs
        ("fair_share", np.float64),
        ("age", np.float64),
        ("job_size", np.float64),
        ("accrue_s", np.int64),  # from when on it gains age
        ("start_s", np.int64),
        ("start_ms", np.int64),
        ("end_ms", np.int64),  # by its limit; cut by a grace period
        ("stopped_ms", np.int64),  # when it was suspended
        ("resumed_ms", np.int64),  # when its turn began
        ("preempt_ms", np.int64),  # end of its grace period; NEVER
        ("billing", np.float64),
        ("num_nodes", np.int64),
        ("reason", np.int64),
        ("reason_pass", np.int64),  # number of the main pass that found it
        ("reason_tres", np.int64),
        ("priority", np.int64),  # highest of its records
        ("tres", np.int64, (NUM_TRES,)),  # allocated
    ],
    align=True,
)

RECORD = np.dtype(  # of the queue: a job in one of its partitions
    [
        ("slot", np.int32),
        ("row", np.int32),
        ("partition", np.int32),
        ("qos", np.int32),
        ("tested_pass", np.int64),  # number of the backfill pass that has tested it last
        ("tier", np.int64),
        ("priority", np.int64),
        ("submit_s", np.int64),
    ],
    align=True,
)

PLAN = np.dtype(  # a planned start of the last backfill pass
    [
        ("slot", np.int32),
        ("row", np.int32),
        ("partition", np.int32),
        ("start_ms", np.int64),  # NEVER = none within the window
    ],
    align=True,
)

ANSWER = np.dtype(  # of will_run for a shape on a set of candidates, good for one state of the cluster
    [
        ("stamp", np.int64),
        ("shape", np.int32),
        ("request", np.int32),
        ("partition", np.int32),
        ("start_ms", np.int64),
    ],
    align=True,
)
NUM_ANSWERS = 4096  # a power of 2
INTERVAL = np.dtype([("start_ms", np.int64), ("end_ms", np.int64)], align=True)  # of the backfill map
END = np.dtype([("end_ms", np.int64), ("slot", np.int32), ("row", np.int32)], align=True)  # of a running job
CHOICE = np.dtype([("pod_set", np.int32), ("node", np.int32), ("pods", np.int32)], align=True)


MAX_PARTITIONS = 63  # a bit each
MAX_QOS = 63
MAX_TESTS = 1000  # bf_max_job_test
MAX_INTERVALS = 2 * MAX_TESTS + 2
MAX_NODELISTS = 1024
MAX_END_CELLS = 65_536


def max_assocs(size: SizeClass) -> int:
    """Associations of a size class: users in one or two accounts, and accounts above."""
    return 2 * size.max_users + 2 * size.max_tenants + 64


@cache
def block_dtype(size: SizeClass) -> np.dtype[Any]:
    """The scheduler's record for worlds of a size class: settings and memory, then every table."""
    assocs = max_assocs(size)
    words = -(-size.max_nodes // WORD_BITS)
    cells = size.max_nodes * (MAX_RESOURCES + 1)
    return np.dtype(
        [
            ("own", SLURM, (1,)),
            ("assocs", ASSOC, (assocs,)),
            ("levels", np.int64, (assocs,)),  # level by level; sorted at ticks
            ("stack", np.int64, (3 * assocs,)),  # scratch of the walk
            ("qos", QOS, (MAX_QOS,)),
            ("partitions", PARTITION, (MAX_PARTITIONS,)),
            ("partition_nodes", np.int64, (MAX_PARTITIONS * words,)),  # sets of nodes
            ("requests", REQUEST, (size.max_jobs,)),
            ("arrays", ARRAY, (size.max_jobs,)),
            ("rejected", np.int64, (size.max_jobs,)),  # slots
            ("node_weight", np.int64, (size.max_nodes,)),
            ("nodelists", np.int64, (MAX_NODELISTS * words,)),  # sets of nodes
            ("assoc_of_tenant", np.int64, (size.max_tenants,)),
            ("assoc_of_user", np.int64, (size.max_users,)),
            ("slots", SLOT, (size.max_jobs,)),
            ("running", np.int64, (size.max_jobs,)),  # slots of jobs whose usage is charged
            ("order", RECORD, (2 * size.max_jobs,)),  # the queue
            ("order_scratch", RECORD, (2 * size.max_jobs,)),
            ("free", np.int64, (cells,)),  # by node and resource; a last column counts whole free GPUs
            ("work", np.int64, (cells,)),  # the same, of a search
            ("fit", np.int64, (size.max_nodes,)),  # pods that fit on each node
            ("size", np.int64, (size.max_nodes,)),  # what a node counts in the choice
            ("candidates", np.int64, (words,)),
            ("open", np.int64, (words,)),  # nodes still usable in the main loop's pass
            ("chosen", np.int64, (words,)),
            ("tried", np.int64, (words,)),  # nodes of the last search for a start
            ("intervals", INTERVAL, (MAX_INTERVALS,)),  # the backfill map
            ("interval_nodes", np.int64, (MAX_INTERVALS * words,)),  # sets of nodes
            ("window_back", np.int64, (MAX_INTERVALS * words,)),  # of the search's window, see `gather_candidates`
            ("window_front", np.int64, (words,)),
            ("plans", PLAN, (MAX_TESTS,)),
            ("plan_nodes", np.int64, (MAX_TESTS * words,)),  # sets of nodes
            ("ends", END, (2 * size.max_jobs,)),
            ("end_nodes", np.int64, (MAX_END_CELLS,)),  # sets of nodes, by end; as far as they fit
            ("choices", CHOICE, (MAX_COMMANDS,)),
            ("victims", np.int64, (size.max_jobs,)),
            ("answers", ANSWER, (NUM_ANSWERS,)),
            ("answer_nodes", np.int64, (NUM_ANSWERS * 2 * words,)),  # candidates and chosen nodes
        ],
        align=True,
    )


def with_rows(block: np.ndarray, request_of_row: np.ndarray, array_of_row: np.ndarray) -> np.ndarray:
    """The scheduler's private bytes: the block, then the request and the array of each row of the trace."""
    rows = np.stack([request_of_row, array_of_row], axis=1).astype(np.int32)
    return np.concatenate([block, rows.reshape(-1).view(np.uint8)])


def opened(private: np.ndarray, size: SizeClass) -> SimpleNamespace:
    """The record's tables in Python, for tests and reports: arrays over the same bytes."""
    dtype = block_dtype(size)
    block = private[: dtype.itemsize].view(dtype)[0]
    return SimpleNamespace(**{name: block[name] for name in dtype.names or ()})
