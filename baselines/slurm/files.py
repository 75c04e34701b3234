"""A site's own files as a `SlurmConfig`: slurm.conf, gres.conf, sacctmgr's accounts and QOS, requests of jobs.

config = read_config("slurm.conf", accounts="assoc.txt", qos="qos.txt")
scheduler = build(config=config)

conf, trace = slurm_conf.read("slurm.conf"), load("sacct", "march.txt")      # replay a month
world = World(world_of(conf, trace, sacctmgr.read_accounts("assoc.txt")), trace)
world.run(build(config=config))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gangline.baselines.slurm.config import (
    PRIORITY_FLAGS,
    Account,
    Limits,
    Partition,
    Preemption,
    Priority,
    Qos,
    Request,
    SchedulerParameters,
    SlurmConfig,
    User,
)
from gangline.envs.errors import GanglineError
from gangline.envs.files import sacctmgr, slurm_conf
from gangline.envs.files.sbatch import JobRequest
from gangline.envs.files.slurm_values import MIB, minutes_up
from gangline.envs.files.text import Unknown

SECOND_MS = 1000
FORCED = 4  # OverSubscribe=FORCE without a number

# ours: Slurm's, of SchedulerParameters with a number
PARAMETERS = {
    "default_queue_depth": "default_queue_depth",
    "partition_job_depth": "partition_job_depth",
    "sched_interval_s": "sched_interval",
    "sched_max_job_start": "sched_max_job_start",
    "bf_interval_s": "bf_interval",
    "bf_window_min": "bf_window",
    "bf_resolution_s": "bf_resolution",
    "bf_max_job_test": "bf_max_job_test",
    "bf_max_job_start": "bf_max_job_start",
    "bf_max_job_user": "bf_max_job_user",
    "bf_max_job_part": "bf_max_job_part",
    "bf_max_job_assoc": "bf_max_job_assoc",
    "bf_window_linear_s": "bf_window_linear",
    "bf_min_age_reserve_s": "bf_min_age_reserve",
    "bf_min_prio_reserve": "bf_min_prio_reserve",
    "batch_sched_delay_s": "batch_sched_delay",
}


def read_config(
    slurm_conf_path: str | Path,
    *,
    accounts: str | Path | None = None,
    qos: str | Path | None = None,
    gres_conf: str | Path | None = None,
    any_nodes: bool = False,
) -> SlurmConfig:
    """The configuration of a site.

    Args:
        slurm_conf_path: its slurm.conf.
        accounts: `sacctmgr show assoc -P` or `sacctmgr dump`; None = an account for each tenant.
        qos: `sacctmgr show qos -P`; None = `normal` alone.
        gres_conf: None = the one beside slurm.conf, if there is one.
        any_nodes: let every partition have all nodes, for a world whose nodes have other names.

    Raises:
        GanglineError: one line about the first value that makes no sense.
    """
    conf = slurm_conf.read(slurm_conf_path, gres_conf)
    config = config_of(
        conf,
        None if accounts is None else sacctmgr.read_accounts(accounts),
        None if qos is None else sacctmgr.read_qos(qos),
    )
    if any_nodes:
        config = replace(config, partitions=[replace(partition, nodes=None) for partition in config.partitions])
    return config


def config_of(
    conf: slurm_conf.SlurmConf,
    accounts: sacctmgr.Accounts | None = None,
    qos: Mapping[str, sacctmgr.Qos] | None = None,
    requests: Mapping[str, JobRequest] | None = None,
) -> SlurmConfig:
    """The same from what was read; `requests` by the names of the world's jobs.

    What is given and not modelled (a priority flag, a partition that is down) is named in one warning.
    """
    passed_over = Unknown()
    partitions = []
    for partition in conf.partitions:
        if partition.state in ("DOWN", "INACTIVE"):
            passed_over.add(f"is {partition.state}", f"partition {partition.name}")
        else:
            partitions.append(_partition(partition))
    if not partitions:
        raise GanglineError(f"{conf.path}: no partition that is up, expected at least one PartitionName line")
    enforced = {word.lower() for word in conf.value("AccountingStorageEnforce")}
    config = SlurmConfig(
        priority=_priority(conf, passed_over),
        scheduler=_scheduler(conf),
        preemption=_preemption(conf),
        partitions=partitions,
        qos=[_qos(entry) for entry in (qos or {"normal": sacctmgr.Qos(name="normal")}).values()],
        requests={name: request_of(request) for name, request in (requests or {}).items()},
        enforces_limits=bool({"limits", "safe", "all"} & enforced),
        kill_wait_s=conf.value("KillWait") // SECOND_MS,
    )
    passed_over.warn(conf.path, "not modelled, passed over")
    if accounts is None:
        return config
    root = [row for row in accounts.users if row.account == sacctmgr.ROOT and row.user == sacctmgr.ROOT]
    has_ids = all(row.number is not None for row in accounts.rows)  # in order of creation
    return replace(
        config,
        accounts=_children(accounts, sacctmgr.ROOT, has_ids),
        root_user_shares=_whole(root[0].shares) if root else None,
        sibling_order="newest_first" if has_ids else "alphabetical",
    )


def request_of(request: JobRequest) -> Request:
    """What a submission says beyond the world's `JobSpec`."""
    tasks, nodes = request.num_tasks, request.num_nodes
    return Request(
        partitions=request.partitions,
        qos=request.qos,
        nice=request.nice,
        exclusive=request.exclusive,
        nodelist=request.nodelist,
        whole_nodes=request.nodes is not None,
        tasks_per_node_are_fixed=nodes == 1 or request.ntasks_per_node is not None or tasks == nodes,
        priority=0 if request.hold else request.priority,
    )


# ---------------------------------------------------------------------------------------------------------------
# slurm.conf
# ---------------------------------------------------------------------------------------------------------------


def _priority(conf: slurm_conf.SlurmConf, passed_over: Unknown) -> Priority:
    flags = [flag.upper() for flag in conf.value("PriorityFlags")]
    for flag in flags:
        if flag not in PRIORITY_FLAGS:
            passed_over.add("is not modelled", f"PriorityFlags={flag}", [f"PriorityFlags={f}" for f in PRIORITY_FLAGS])
    return Priority(
        weight_age=conf.value("PriorityWeightAge"),
        weight_assoc=conf.value("PriorityWeightAssoc"),
        weight_fairshare=conf.value("PriorityWeightFairshare"),
        weight_job_size=conf.value("PriorityWeightJobSize"),
        weight_partition=conf.value("PriorityWeightPartition"),
        weight_qos=conf.value("PriorityWeightQOS"),
        weight_tres=conf.value("PriorityWeightTRES"),
        max_age_s=conf.value("PriorityMaxAge") // SECOND_MS,
        calc_period_s=conf.value("PriorityCalcPeriod") // SECOND_MS,
        decay_half_life_s=conf.value("PriorityDecayHalfLife") // SECOND_MS,
        usage_reset_period=conf.value("PriorityUsageResetPeriod"),
        favor_small=conf.value("PriorityFavorSmall"),
        dampening_factor=conf.value("FairShareDampeningFactor"),
        flags=frozenset(flags) & PRIORITY_FLAGS,
    )


def _scheduler(conf: slurm_conf.SlurmConf) -> SchedulerParameters:
    given = conf.parameters
    return SchedulerParameters(
        scheduler_type=conf.value("SchedulerType"),
        assoc_limit_stop="assoc_limit_stop" in given,
        bf_continue="bf_continue" in given,
        **{ours: int(given[slurms]) for ours, slurms in PARAMETERS.items() if slurms in given},
    )


def _preemption(conf: slurm_conf.SlurmConf) -> Preemption:
    given = conf.parameters  # the words lost their `preempt_` when they moved to PreemptParameters
    reorder = given.get("reorder_count", given.get("preempt_reorder_count"))
    exempt = given.get("min_exempt_priority")
    modes = set(conf.value("PreemptMode"))
    return Preemption(
        type=conf.value("PreemptType"),
        modes=frozenset(mode.upper() for mode in modes - {"priority"}),  # type: ignore[misc]
        exempt_time_s=(conf.value("PreemptExemptTime") or 0) // SECOND_MS,
        youngest_first=bool({"youngest_first", "preempt_youngest_first"} & set(given)),
        strict_order=bool({"strict_order", "preempt_strict_order"} & set(given)),
        reorder_count=1 if reorder is None else int(reorder),
        min_exempt_priority=None if exempt is None else int(exempt),
        priority_must_be_higher="priority" in modes,
        time_slice_s=conf.value("SchedulerTimeSlice") // SECOND_MS,
    )


def _partition(partition: slurm_conf.SlurmPartition) -> Partition:
    how, _, number = partition.over_subscribe.partition(":")
    return Partition(
        name=partition.name,
        nodes=partition.nodes,
        is_default=partition.is_default,
        max_time_min=minutes_up(partition.max_time_ms),
        default_time_min=minutes_up(partition.default_time_ms),
        priority_tier=partition.priority_tier,
        priority_job_factor=partition.priority_job_factor,
        tres_billing_weights=partition.billing_weights or {},
        over_subscribe=int(number or FORCED) if how == "FORCE" else 0,
        exclusive=how == "EXCLUSIVE",
        preempt_mode=_one_mode(partition.preempt_mode),
        grace_time_s=partition.grace_time_ms // SECOND_MS,
        lln=partition.lln,
        qos=partition.qos,
    )


def _one_mode(modes: tuple[str, ...] | None) -> Any:
    """What is done to victims, of modes such as `suspend,gang`; None = the cluster's."""
    named = [mode.upper() for mode in modes or () if mode not in ("gang", "within", "priority")]
    return named[0] if named else None


# ---------------------------------------------------------------------------------------------------------------
# Accounts and QOS
# ---------------------------------------------------------------------------------------------------------------


def _children(accounts: sacctmgr.Accounts, account: str, by_id: bool) -> list[Account | User]:
    """What hangs under an account, in order of creation where that is known; Slurm's own user of root apart."""
    rows = list(accounts.children(account))
    if by_id:
        rows.sort(key=lambda row: row.number or 0)
    found: list[Account | User] = []
    for row in rows:
        common: dict[str, Any] = {"shares": row.shares, "priority": row.priority, "limits": _limits(row)}
        if row.user is None:
            found.append(Account(name=row.account, children=_children(accounts, row.account, by_id), **common))
        elif account != sacctmgr.ROOT or row.user != sacctmgr.ROOT:
            found.append(User(name=row.user, **common))
    return found


def _limits(row: sacctmgr.Association) -> Limits:
    return Limits(
        grp_tres=_amounts(row.grp_tres),
        grp_tres_mins=_amounts(row.grp_tres_mins),
        grp_jobs=row.grp_jobs,
        max_tres_per_job=_amounts(row.max_tres),
        max_wall_min=minutes_up(row.max_wall_ms),
        max_jobs=row.max_jobs,
    )


def _qos(entry: sacctmgr.Qos) -> Qos:
    return Qos(
        name=entry.name,
        priority=entry.priority,
        preempts=entry.preempt,
        preempt_mode=_one_mode(tuple(entry.preempt_mode.split(","))) if entry.preempt_mode else None,
        grace_time_s=entry.grace_ms // SECOND_MS,
        exempt_time_s=None if entry.preempt_exempt_ms is None else entry.preempt_exempt_ms // SECOND_MS,
        usage_factor=entry.usage_factor,
        flags=frozenset(entry.flags),
        limits=Limits(
            grp_tres=_amounts(entry.grp_tres),
            grp_tres_mins=_amounts(entry.grp_tres_mins),
            grp_jobs=entry.grp_jobs,
            max_tres_per_job=_amounts(entry.max_tres),
            max_wall_min=minutes_up(entry.max_wall_ms),
            max_tres_per_user=_amounts(entry.max_tres_per_user),
            max_tres_per_account=_amounts(entry.max_tres_per_account),
            max_jobs_per_user=entry.max_jobs_per_user,
            max_jobs_per_account=entry.max_jobs_per_account,
        ),
    )


def _amounts(amounts: Mapping[str, int]) -> dict[str, int]:
    """TRES in Slurm's units: memory in MiB."""
    return {name: value // MIB if name == "mem" else value for name, value in amounts.items()}


def _whole(shares: int | str) -> int:
    return shares if isinstance(shares, int) else 1  # root cannot share its parent's
