"""A site's own files as a `SlurmConfig`: slurm.conf, gres.conf, sacctmgr's accounts and QOS, requests of jobs.

config = read_config("slurm.conf", accounts="assoc.txt", qos="qos.txt")
scheduler = build(config=config)

conf, trace = slurm_conf.read("slurm.conf"), load("sacct", "march.txt")      # replay a month
config = config_of_month(conf, trace, submissions("march.txt", trace), accounts, qos)
World(world_of(conf, trace, accounts), trace).run(build(config=config))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gangline.baselines.slurm.config import (
    PRIORITY_FLAGS,
    Account,
    Limits,
    Partition,
    Preemption,
    Priority,
    Qos,
    Request,
    RowRequests,
    SchedulerParameters,
    SlurmConfig,
    User,
)
from gangline.baselines.slurm.setup import constraint
from gangline.envs.core.trace import JobTrace
from gangline.envs.errors import GanglineError
from gangline.envs.files import sacctmgr, slurm_conf
from gangline.envs.files.sbatch import JobRequest
from gangline.envs.files.slurm_site import Submission
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
    "bf_max_job_user_part": "bf_max_job_user_part",
    "bf_max_job_array_resv": "bf_max_job_array_resv",
    "bf_window_linear_s": "bf_window_linear",
    "bf_min_age_reserve_s": "bf_min_age_reserve",
    "bf_min_prio_reserve": "bf_min_prio_reserve",
    "batch_sched_delay_s": "batch_sched_delay",
}

# What would decide something and is not modelled; read_config and config_of name what they meet of it.
PARAMETERS_PASSED_OVER = (
    *(
        "bf_busy_nodes",
        "bf_ignore_newly_avail_nodes",
        "bf_job_part_count_reserve",
        "bf_licenses",
        "bf_one_resv_per_job",
    ),
    *("bf_running_job_reserve", "bf_topopt_enable", "defer", "max_switch_wait", "pack_serial_at_end"),
    *("reduce_completing_frag", "time_min_as_soft_limit"),
)
LIMITS_PASSED_OVER = (
    *("grp_jobs_accrue", "grp_tres_run_mins", "max_jobs_accrue", "max_jobs_accrue_per_user"),
    *("max_jobs_accrue_per_account", "min_tres", "usage_threshold"),
)
_QOS_FLAGS = {"nodecay": "NoDecay", "noreserve": "NoReserve", "overpartqos": "OverPartQOS"}  # as sacctmgr prints them
QOS_FLAGS_PASSED_OVER = (
    "denyonlimit",
    "enforceusagethreshold",
    "partitiontimelimit",
    "requiresreservation",
    "relative",
)
REQUEST_PASSED_OVER = ("begin", "contiguous", "dependency", "oversubscribe", "reservation", "time_min_min")


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
    _note_passed_over(conf, accounts, qos or {}, requests or {}, passed_over)
    partitions = []
    is_lln = "CR_LLN" in {word.upper() for word in conf.value("SelectTypeParameters")}
    for partition in conf.partitions:
        if partition.state in ("DOWN", "INACTIVE"):
            passed_over.add(f"is {partition.state}", f"partition {partition.name}")
        else:
            if partition.qos is not None and partition.qos not in (qos or {}):
                passed_over.add("no QOS file has it; --qos names one", f"QOS {partition.qos} of a partition")
                partition = replace(partition, qos=None)
            partitions.append(replace(_partition(partition), lln=partition.lln or is_lln))
    if not partitions:
        raise GanglineError(f"{conf.path}: no partition that is up, expected at least one PartitionName line")
    enforced = {word.lower() for word in conf.value("AccountingStorageEnforce")}
    config = SlurmConfig(
        priority=_priority(conf, passed_over),
        scheduler=_scheduler(conf),
        preemption=_preemption(conf),
        partitions=partitions,
        qos=[_qos(entry) for entry in (qos or {"normal": sacctmgr.Qos(name="normal")}).values()],
        requests={name: request_of(request, name) for name, request in (requests or {}).items()},
        node_weights={node.name: node.weight for node in conf.nodes},
        node_features={node.name: node.features for node in conf.nodes},
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


def config_of_month(
    conf: slurm_conf.SlurmConf,
    trace: JobTrace,
    asked: Sequence[Submission],
    accounts: sacctmgr.Accounts | None = None,
    qos: Mapping[str, sacctmgr.Qos] | None = None,
) -> SlurmConfig:
    """The same for the jobs of a trace, with what each of them asked for (`sacct.submissions`).

    Who has jobs and is no association any more is one again, with one share; whose partition or QOS is no more is of
    the default one. Both are named in one warning.
    """
    config = config_of(conf, accounts, qos)
    changed = Unknown()
    config = replace(config, requests=_row_requests(config, asked, changed))
    if config.accounts:
        config = replace(config, accounts=_with_all(config.accounts, trace, changed))
    changed.warn(conf.path, "named by jobs and not by the configuration")
    return config


def request_of(request: JobRequest, name: str = "") -> Request:
    """What a submission says beyond the world's `JobSpec`; elements of an array are called `array_index`."""
    tasks, nodes = request.num_tasks, request.num_nodes
    return Request(
        partitions=request.partitions,
        qos=request.qos,
        nice=request.nice,
        exclusive=request.exclusive,
        nodelist=request.nodelist,
        exclude=request.exclude,
        constraint=request.constraint,
        whole_nodes=not request.spreads_gpus and request.nodes is not None,
        tasks_per_node_are_fixed=not request.spreads_gpus
        and (nodes == 1 or request.ntasks_per_node is not None or tasks == nodes),
        priority=0 if request.hold else request.priority,
        array=name.rpartition("_")[0] if request.array else None,
        array_limit=request.array_limit,
    )


def _note_passed_over(
    conf: slurm_conf.SlurmConf,
    accounts: sacctmgr.Accounts | None,
    qos: Mapping[str, sacctmgr.Qos],
    requests: Mapping[str, JobRequest],
    passed_over: Unknown,
) -> None:
    """Name everything of the files that would decide something and is not modelled."""

    def note(what: str, where: str) -> None:
        passed_over.add(where, what)

    for name in PARAMETERS_PASSED_OVER:
        if name in conf.parameters:
            note(name, "SchedulerParameters")
    if conf.value("PrioritySiteFactorPlugin"):
        note("PrioritySiteFactorPlugin", conf.value("PrioritySiteFactorPlugin"))
    if conf.value("OverTimeLimit"):
        note("OverTimeLimit", "jobs are killed at their limits")
    if "safe" in {word.lower() for word in conf.value("AccountingStorageEnforce")}:
        note("AccountingStorageEnforce=safe", "taken as limits")
    for partition in conf.partitions:
        if partition.over_subscribe.startswith("YES"):
            note(f"OverSubscribe={partition.over_subscribe}", f"partition {partition.name}")
        if partition.exclusive_user:
            note("ExclusiveUser", f"partition {partition.name}")
    for row in () if accounts is None else accounts.rows:
        who = row.user or row.account
        for name in LIMITS_PASSED_OVER:
            if getattr(row, name, None):
                note(_in_slurms_words(name), f"association {who}")
        if row.user is not None and row.partition:
            note(f"Partition={row.partition}", f"association {who}, taken for all partitions")
    for entry in qos.values():
        for name in LIMITS_PASSED_OVER:
            if getattr(entry, name, None):
                note(_in_slurms_words(name), f"QOS {entry.name}")
        if entry.limit_factor != 1.0:
            note("LimitFactor", f"QOS {entry.name}")
        for flag in entry.flags:
            if flag.lower() in QOS_FLAGS_PASSED_OVER:
                note(f"Flags={flag}", f"QOS {entry.name}")
    for job, request in requests.items():
        for name in REQUEST_PASSED_OVER:
            if getattr(request, name):
                note(f"--{name.removesuffix('_min').replace('_', '-')}", f"job {job}")


def _in_slurms_words(name: str) -> str:
    return "".join({"tres": "TRES"}.get(word, word.capitalize()) for word in name.split("_"))


# ---------------------------------------------------------------------------------------------------------------
# What the jobs of a trace asked for, and who they belong to
# ---------------------------------------------------------------------------------------------------------------


def _row_requests(config: SlurmConfig, asked: Sequence[Submission], changed: Unknown) -> RowRequests:
    partitions, names = {p.name for p in config.partitions}, {q.name for q in config.qos}
    distinct: dict[Submission, int] = {}
    sizes = Counter(one.array for one in asked if one.array is not None)
    arrays: dict[str, int] = {}
    limits: list[int] = []
    of_row = np.zeros(len(asked), np.int32)
    array_of_row = np.full(len(asked), -1, np.int32)
    found: list[Request] = []
    for row, one in enumerate(asked):
        if one.array is not None and (sizes[one.array] > 1 or one.array_limit is not None):
            if one.array not in arrays:
                arrays[one.array] = len(arrays)
                limits.append(-1 if one.array_limit is None else one.array_limit)
            array_of_row[row] = arrays[one.array]
        kind = replace(one, array=None, array_limit=None)
        if kind not in distinct:
            distinct[kind] = len(distinct)
            found.append(_request(kind, partitions, names, changed))
        of_row[row] = distinct[kind]
    return RowRequests(distinct=found, of_row=of_row, array_of_row=array_of_row, array_limits=limits)


def _request(asked: Submission, partitions: set[str], qos: set[str], changed: Unknown) -> Request:
    for name in asked.partitions:
        if name not in partitions:
            changed.add("its jobs are taken to be of the default partition", f"partition {name}", partitions)
    if asked.qos and asked.qos not in qos:
        changed.add("its jobs are taken to be of normal", f"QOS {asked.qos}", qos)
    wish: str | None = asked.constraint or None
    if wish is not None:
        try:
            constraint(wish)
        except GanglineError:
            changed.add("not modelled; these jobs run anywhere", f"constraint {wish}")
            wish = None
    return Request(
        partitions=[name for name in asked.partitions if name in partitions],
        qos=asked.qos if asked.qos in qos else None,
        constraint=wish,
        whole_nodes=asked.whole_nodes,
    )


def _with_all(accounts: Sequence[Account | User], trace: JobTrace, changed: Unknown) -> list[Account | User]:
    """The tree with an association for everybody who has jobs."""
    users: dict[str, list[str]] = {name: [] for name in trace.tenants}
    for name, tenant in zip(trace.users, trace.user_tenant.tolist(), strict=True):
        users[trace.tenants[tenant]].append(name.removesuffix(f"@{trace.tenants[tenant]}"))

    def completed(entry: Account | User) -> Account | User:
        if isinstance(entry, User):
            return entry
        children = [completed(child) for child in entry.children]
        there = {child.name for child in children if isinstance(child, User)}
        wanted = users.pop(entry.name, None)
        if wanted is not None:
            missing = [name for name in wanted if name not in there]
            if not there and not wanted:  # jobs of nobody in particular
                missing = [entry.name]
            for name in missing:
                changed.add(f"account {entry.name}; given one share", f"user {name}")
            children += [User(name=name) for name in missing]
        return replace(entry, children=children)

    found = [completed(entry) for entry in accounts]
    for account, names in users.items():
        changed.add("given one share under root", f"account {account}")
        found.append(Account(name=account, children=[User(name=name) for name in names or [account]]))
    return found


# ---------------------------------------------------------------------------------------------------------------
# slurm.conf
# ---------------------------------------------------------------------------------------------------------------


def _priority(conf: slurm_conf.SlurmConf, passed_over: Unknown) -> Priority:
    flags = [flag.upper() for flag in conf.value("PriorityFlags")]
    for flag in flags:
        if flag not in PRIORITY_FLAGS:
            passed_over.add("is not modelled", f"PriorityFlags={flag}", [f"PriorityFlags={f}" for f in PRIORITY_FLAGS])
    if conf.value("PriorityType") == "priority/basic":  # in order of submission
        return Priority()
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
    everywhere = {row.user for row in rows if not row.partition}
    for row in rows:
        common: dict[str, Any] = {"shares": row.shares, "priority": row.priority, "limits": _limits(row)}
        if row.user is None:
            found.append(Account(name=row.account, children=_children(accounts, row.account, by_id), **common))
        elif row.partition and (row.user in everywhere or any(entry.name == row.user for entry in found)):
            continue  # the same user again, for one partition only
        elif account != sacctmgr.ROOT or row.user != sacctmgr.ROOT:
            found.append(User(name=row.user, **common))
    return found


def _limits(row: sacctmgr.Association) -> Limits:
    return replace(_common_limits(row), max_jobs=row.max_jobs, max_submit=row.max_submit)


def _common_limits(row: sacctmgr.Limits) -> Limits:
    return Limits(
        grp_tres=_amounts(row.grp_tres),
        grp_tres_mins=_amounts(row.grp_tres_mins),
        grp_wall_min=minutes_up(row.grp_wall_ms),
        grp_jobs=row.grp_jobs,
        grp_submit=row.grp_submit,
        max_tres_per_job=_amounts(row.max_tres),
        max_tres_per_node=_amounts(row.max_tres_per_node),
        max_tres_mins_per_job=_amounts(row.max_tres_mins),
        max_wall_min=minutes_up(row.max_wall_ms),
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
        flags=frozenset(_QOS_FLAGS.get(flag.lower(), flag) for flag in entry.flags),
        limits=replace(
            _common_limits(entry),
            max_tres_per_user=_amounts(entry.max_tres_per_user),
            max_tres_per_account=_amounts(entry.max_tres_per_account),
            max_jobs_per_user=entry.max_jobs_per_user,
            max_jobs_per_account=entry.max_jobs_per_account,
            max_submit_per_user=entry.max_submit_per_user,
            max_submit_per_account=entry.max_submit_per_account,
        ),
    )


def _amounts(amounts: Mapping[str, int]) -> dict[str, int]:
    """TRES in Slurm's units: memory in MiB."""
    return {name: value // MIB if name == "mem" else value for name, value in amounts.items()}


def _whole(shares: int | str) -> int:
    return shares if isinstance(shares, int) else 1  # root cannot share its parent's
