"""What slurm.conf, the accounting database and a job's submission say: names and units as Slurm has them, typed.

Readers of real files fill a `SlurmConfig`; `tables.py` turns it into the numbers that the compiled scheduler reads.
Defaults are Slurm's own (slurm.conf(5), sacctmgr(1), version 22.05), but for the weights, which Slurm leaves at 0.

TRES are named as Slurm names them: `cpu`, `mem`, `node`, `gres/gpu`, `gres/gpu:h100`, `billing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

DAY_S = 86_400

ResetPeriod = Literal["NONE", "NOW", "DAILY", "WEEKLY", "MONTHLY", "QUARTERLY", "YEARLY"]
PreemptType = Literal["preempt/none", "preempt/qos", "preempt/partition_prio"]
PreemptMode = Literal["OFF", "CANCEL", "REQUEUE", "SUSPEND", "GANG", "WITHIN"]
SiblingOrder = Literal["newest_first", "alphabetical"]


@dataclass(frozen=True, kw_only=True)
class Priority:
    """priority/multifactor: `PriorityWeight*`, `PriorityFlags` and the decay of usage."""

    weight_age: int = 0
    weight_assoc: int = 0
    weight_fairshare: int = 0
    weight_job_size: int = 0
    weight_partition: int = 0
    weight_qos: int = 0
    weight_tres: Mapping[str, float] = field(default_factory=dict)
    max_age_s: int = 7 * DAY_S
    calc_period_s: int = 300
    decay_half_life_s: int = 7 * DAY_S  # 0 = no decay
    usage_reset_period: ResetPeriod = "NONE"
    favor_small: bool = False
    dampening_factor: int = 1  # FairShareDampeningFactor, classic fair share only
    flags: frozenset[str] = frozenset()  # PriorityFlags, upper case: NO_FAIR_TREE, SMALL_RELATIVE_TO_TIME, ...


PRIORITY_FLAGS = frozenset(
    {
        "ACCRUE_ALWAYS",
        "CALCULATE_RUNNING",
        "INCR_ONLY",
        "MAX_TRES",
        "MAX_TRES_GRES",
        "NO_FAIR_TREE",
        "NO_NORMAL_ALL",
        "NO_NORMAL_ASSOC",
        "NO_NORMAL_PART",
        "NO_NORMAL_QOS",
        "NO_NORMAL_TRES",
        "SMALL_RELATIVE_TO_TIME",
    }
)


@dataclass(frozen=True, kw_only=True)
class SchedulerParameters:
    """`SchedulerType` and `SchedulerParameters`."""

    scheduler_type: Literal["sched/backfill", "sched/builtin"] = "sched/backfill"
    default_queue_depth: int = 100
    partition_job_depth: int = 0  # 0 = no limit
    sched_interval_s: int = 60
    sched_max_job_start: int = 0
    assoc_limit_stop: bool = False
    bf_interval_s: int = 30
    bf_window_min: int = 1440
    bf_resolution_s: int = 60
    bf_max_job_test: int = 500
    bf_max_job_start: int = 0
    bf_max_job_user: int = 0
    bf_max_job_user_part: int = 0
    bf_max_job_array_resv: int = 20
    bf_max_job_part: int = 0
    bf_max_job_assoc: int = 0
    bf_continue: bool = False  # a pass takes no simulated time, so that it always runs to its end either way
    bf_window_linear_s: int = 0  # 0 = the window of will_run doubles
    bf_min_age_reserve_s: int = 0
    bf_min_prio_reserve: int = 0
    batch_sched_delay_s: int = 0  # Slurm: 3; a latency, so 0 unless a run is compared with a real system's
    sched_loop_s: int = 0  # the background loop that runs passes wakes this often; a latency likewise (Slurm: 1)


@dataclass(frozen=True, kw_only=True)
class Preemption:
    """`PreemptType`, `PreemptMode` and their options."""

    type: PreemptType = "preempt/none"
    modes: frozenset[PreemptMode] = frozenset({"OFF"})  # PreemptMode=SUSPEND,GANG is two of them
    exempt_time_s: int = 0
    youngest_first: bool = False
    reorder_count: int = 1
    strict_order: bool = False
    min_exempt_priority: int | None = None
    priority_must_be_higher: bool = False  # PreemptMode=PRIORITY
    time_slice_s: int = 30  # SchedulerTimeSlice


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One `PartitionName` line."""

    name: str
    nodes: Sequence[str] | None = None  # None = ALL
    is_default: bool = False
    max_time_min: int | None = None  # None = UNLIMITED
    default_time_min: int | None = None  # None = max_time_min
    priority_tier: int = 1
    priority_job_factor: int = 1
    tres_billing_weights: Mapping[str, float] = field(default_factory=dict)  # empty = one per CPU
    over_subscribe: int = 0  # FORCE:n; 0 = NO
    exclusive: bool = False  # OverSubscribe=EXCLUSIVE
    preempt_mode: PreemptMode | None = None  # None = the cluster's
    grace_time_s: int = 0
    lln: bool = False
    qos: str | None = None  # whose limits hold for all jobs in the partition, before those of their own QOS


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of an association or a QOS; None and missing TRES = no limit."""

    grp_tres: Mapping[str, int] = field(default_factory=dict)
    grp_tres_mins: Mapping[str, int] = field(default_factory=dict)
    grp_wall_min: int | None = None  # decayed minutes of all jobs, whatever they hold
    grp_jobs: int | None = None
    grp_submit: int | None = None  # waiting and running; one more is rejected at submission
    max_tres_per_job: Mapping[str, int] = field(default_factory=dict)
    max_tres_per_node: Mapping[str, int] = field(default_factory=dict)
    max_tres_mins_per_job: Mapping[str, int] = field(default_factory=dict)
    max_wall_min: int | None = None
    max_jobs: int | None = None  # association: of each user below it that sets none of its own
    max_submit: int | None = None  # the same of waiting and running jobs
    max_tres_per_user: Mapping[str, int] = field(default_factory=dict)  # QOS only
    max_tres_per_account: Mapping[str, int] = field(default_factory=dict)  # QOS only
    max_jobs_per_user: int | None = None  # QOS only
    max_jobs_per_account: int | None = None  # QOS only
    max_submit_per_user: int | None = None  # QOS only
    max_submit_per_account: int | None = None  # QOS only


@dataclass(frozen=True, kw_only=True)
class Qos:
    """One QOS."""

    name: str
    priority: int = 0
    preempts: Sequence[str] = ()
    preempt_mode: PreemptMode | None = None  # of its jobs as victims; None = the cluster's
    grace_time_s: int = 0
    exempt_time_s: int | None = None  # None = the cluster's
    usage_factor: float = 1.0
    flags: frozenset[str] = frozenset()  # NoDecay, NoReserve, OverPartQOS
    limits: Limits = Limits()


@dataclass(frozen=True, kw_only=True)
class User:
    """A user's association with the account it hangs under."""

    name: str
    shares: int | Literal["parent"] = 1
    priority: int = 0
    limits: Limits = Limits()


@dataclass(frozen=True, kw_only=True)
class Account:
    """An account and what hangs under it, in order of creation."""

    name: str
    shares: int | Literal["parent"] = 1
    children: Sequence[Account | User] = ()
    priority: int = 0
    limits: Limits = Limits()


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a job's submission says beyond the world's `JobSpec`; None = nothing was said."""

    partitions: Sequence[str] = ()  # empty = the default partition
    qos: str | None = None
    account: str | None = None  # None = the tenant
    user: str | None = None
    nice: int = 0
    exclusive: bool = False
    nodelist: Sequence[str] = ()  # nodes that the job must have, -w
    exclude: Sequence[str] = ()  # nodes that it must not have, -x
    constraint: str | None = None  # features of its nodes, -C: `a&b`, `a|b`, `(a|b)&c`
    whole_nodes: bool = False  # --nodes was given: each pod is the job's part of one node
    tasks_per_node_are_fixed: bool = True  # one node, --ntasks-per-node, or one task a node
    priority: int | None = None  # set directly: frozen; 0 = held
    array: str | None = None  # the array that the job is an element of
    array_limit: int | None = None  # elements that run at once


@dataclass(frozen=True, eq=False)
class RowRequests:
    """Requests of the jobs of a trace, which have no names.

    Attributes:
        distinct: the different ones, without their arrays.
        of_row: (num_jobs,) index into `distinct`.
        array_of_row: (num_jobs,) number of the job's array; -1 = none. None = no job is of an array.
        array_limits: elements that run at once, by array; -1 = no limit.
    """

    distinct: Sequence[Request]
    of_row: Sequence[int] | np.ndarray
    array_of_row: Sequence[int] | np.ndarray | None = None
    array_limits: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class SlurmConfig:
    """A whole cluster's Slurm.

    Attributes:
        accounts: what hangs under root. Empty = an account for each tenant, with its weight as its shares and its
            users below it with one share each.
        root_user_shares: the user `root` directly under root, which Slurm creates with one share; None = none.
        usage: raw usage in billing-seconds by "account:user", before the world began.
        requests: by job name; or by row, of a trace.
        node_weights: by node; nodes of a lower weight are taken first, 1 where none is given.
        node_features: by node, what `Request.constraint` asks for.
    """

    priority: Priority = Priority()
    scheduler: SchedulerParameters = SchedulerParameters()
    preemption: Preemption = Preemption()
    partitions: Sequence[Partition] = (Partition(name="main", is_default=True),)
    qos: Sequence[Qos] = (Qos(name="normal"),)
    accounts: Sequence[Account | User] = ()
    root_user_shares: int | None = 1
    usage: Mapping[str, float] = field(default_factory=dict)
    requests: Mapping[str, Request] | RowRequests = field(default_factory=dict)
    node_weights: Mapping[str, int] = field(default_factory=dict)
    node_features: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sibling_order: SiblingOrder = "newest_first"  # 22.05; the 2026 tree reads associations in path order
    enforces_limits: bool = True  # AccountingStorageEnforce=limits
    kill_wait_s: int = 30


def world_defaults() -> SlurmConfig:
    """Fair share first, age to break its ties: what a site with one partition and no QOS would set up.

    Accounts are tenants and shares are entitlements; GPUs are what is billed. A job's priority is its account's rank,
    10,000 to the best, then up to 1,000 for a week of waiting.
    """
    return SlurmConfig(
        priority=Priority(weight_fairshare=10_000, weight_age=1_000),
        partitions=(Partition(name="main", is_default=True, tres_billing_weights={"gres/gpu": 1.0}),),
    )
