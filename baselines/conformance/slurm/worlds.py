"""A recorded Slurm case as a world and a configuration: names and units of slurm.conf and sacctmgr, read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from gangline.baselines.conformance.cases import Case
from gangline.baselines.slurm.config import (
    Account,
    Limits,
    Partition,
    Preemption,
    PreemptMode,
    PreemptType,
    Priority,
    Qos,
    Request,
    SchedulerParameters,
    SlurmConfig,
    User,
)
from gangline.envs.core.spec import (
    MINUTE_MS,
    ChangeSpec,
    JobSpec,
    LiveSpec,
    NodeSpec,
    OptionsSpec,
    PlacedPods,
    PodSetSpec,
    TenantSpec,
    UserSpec,
    WorldSpec,
)
from gangline.envs.core.types import ONE_GPU
from gangline.envs.errors import GanglineError

SECOND_MS = 1000
CPU = 1000  # milli-CPU in one CPU
REQUEUE_HOLD_S = 121
LIMIT_CHECK_S = 30


class SlurmWorld(NamedTuple):
    """A recorded case: the world that the core runs, and what only Slurm knows."""

    world: WorldSpec
    config: SlurmConfig


def slurm_world(about: Case, case: Case, at_s: float | None = None) -> SlurmWorld:
    """A Slurm case: the empty cluster with the jobs that arrive; a pod is a job's part of one node.

    Args:
        about: what the file says about all its cases (`read`): the cluster.
        at_s: of a history, the second at which the world begins: jobs that had ended are left out, those that ran
            are on their nodes, those that waited wait. A start at this very second has not happened.
    """
    users = dict(users_of(case["accounts"]))
    shares = dict(_shares_of(case["accounts"]))
    jobs = []
    for job in case["jobs"]:
        live, eligible_ms = None, None
        if at_s is not None and job["submit"] <= at_s:
            run = _life_of(job, case, at_s)
            if run is None:
                continue
            live, eligible_ms = run
        jobs.append(_job_of(job, live, eligible_ms))
    half_life_min = float(case["config"].get("PriorityDecayHalfLife", "0"))
    world = WorldSpec(
        resources=("gpu", "cpu"),
        flavors=tuple(group["gpu_type"] for group in about["cluster"]["nodes"]),
        nodes=[
            NodeSpec(
                name=name,
                amounts={"gpu": group["gpus"] * ONE_GPU, "cpu": group["cpus"] * CPU},
                flavor=group["gpu_type"],
                gpu_type=group["gpu_type"],
            )
            for group in about["cluster"]["nodes"]
            for name in group["names"]
        ],
        tenants=[TenantSpec(name=account, weight=shares[account]) for account in dict.fromkeys(users.values())],
        users=[UserSpec(name=user, tenant=account) for user, account in users.items()],
        jobs=jobs,
        changes=[
            ChangeSpec(time_ms=_ms(at), what="node_state", target=node, value=state)
            for at, node, state in node_changes(case)
            if at_s is None or at > at_s
        ],
        options=OptionsSpec(
            reject_oversized=False,
            half_life_ms=round(half_life_min * MINUTE_MS) or None,
            limit_check_ms=LIMIT_CHECK_S * SECOND_MS,
            requeue_hold_ms=case.get("requeue_delay_s", REQUEUE_HOLD_S) * SECOND_MS,
            locality_topology="",
        ),
        now_ms=0 if at_s is None else _ms(at_s),
    )
    return SlurmWorld(world, config_of(case, [job.name for job in jobs]))


def _ms(seconds: float) -> int:
    return round(seconds * SECOND_MS)


def users_of(accounts: Iterable[Mapping[str, Any]], above: str = "") -> Iterator[tuple[str, str]]:
    """(user, account) of the leaves."""
    for entry in accounts:
        if "children" in entry:
            yield from users_of(entry["children"], entry["name"])
        else:
            yield entry["name"], above


def _shares_of(accounts: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    """(account, shares as stated at its level)."""
    for entry in accounts:
        if "children" in entry:
            yield entry["name"], entry["shares"] if isinstance(entry["shares"], int) else 1
            yield from _shares_of(entry["children"])


def pods_of(request: Mapping[str, Any]) -> tuple[int, int]:
    """(nodes, CPUs on each) that a job asks for: one CPU a task, at least one a node."""
    nodes = request.get("nodes", 1)
    tasks = request.get("ntasks_per_node", 0) * nodes or max(request.get("ntasks", nodes), nodes)
    if tasks % nodes:
        raise GanglineError(f"{tasks} tasks on {nodes} nodes, expected a multiple")
    return nodes, tasks // nodes


def nodes_are_open(request: Mapping[str, Any]) -> bool:
    """Whether a job leaves it to Slurm on how many nodes its GPUs are."""
    return "gpus" in request and "nodes" not in request and "ntasks_per_node" not in request


def _job_of(job: Mapping[str, Any], live: LiveSpec | None, eligible_ms: int | None) -> JobSpec:
    request = job["request"]
    nodes, cpus = pods_of(request)
    amounts = {"cpu": cpus * CPU}
    if "gpus_per_node" in request:
        amounts["gpu"] = request["gpus_per_node"] * ONE_GPU
    elif "gpus" in request and nodes_are_open(request):  # its GPUs one by one, wherever they are; its CPUs go along
        nodes = request["gpus"]
        amounts = {"cpu": -(-max(request.get("ntasks", 1), 1) * CPU // nodes), "gpu": ONE_GPU}
    elif "gpus" in request:
        if request["gpus"] % nodes:
            raise GanglineError(f"{request['gpus']} GPUs on {nodes} nodes, expected a multiple")
        amounts["gpu"] = request["gpus"] // nodes * ONE_GPU
    submit_ms = _ms(job["submit"])
    if "begin" in request:
        eligible_ms = submit_ms + int(request["begin"].removeprefix("now+")) * SECOND_MS
    return JobSpec(
        name=job["label"],
        tenant=job["account"],
        user=job["user"],
        submit_ms=submit_ms,
        eligible_ms=eligible_ms,
        work_ms=_ms(job["runtime_s"]),
        claim_ms=request["time_limit_min"] * MINUTE_MS,
        killed_at_claim=True,
        checkpoint_interval_ms=None,
        requeue=not request.get("no_requeue", False),
        after=request["dependency"].split("<id of ")[1].rstrip(">") if "dependency" in request else None,
        pod_sets=[
            PodSetSpec(count=nodes, request=amounts, flavors=[request["gpu_type"]] if "gpu_type" in request else None)
        ],
        live=live,
    )


def _life_of(job: Mapping[str, Any], case: Case, at_s: float) -> tuple[LiveSpec, int | None] | None:
    """(life, eligible time) at a second of a history of a job that had been submitted; None if it had ended."""
    runs = [run for run in case["observed"][job["label"]]["runs"] if run["start"] < at_s]
    stops = [v["at"] for v in case["facts"]["victims"] if v["label"] == job["label"] and v["at"] <= at_s]
    if not runs:
        return LiveSpec(), None
    if len(stops) == len(runs):  # every run so far was stopped: it waits out the requeue delay
        eligible_ms = (int(stops[-1]) + case.get("requeue_delay_s", REQUEUE_HOLD_S)) * SECOND_MS
        life = LiveSpec(
            starts=len(runs),
            preemptions=len(stops),
            first_start_ms=_ms(runs[0]["start"]),
            last_submit_ms=_ms(stops[-1]),
            evict_ms=_ms(stops[-1]),
        )
        return life, eligible_ms if eligible_ms > _ms(at_s) else None
    if runs[-1]["start"] + job["runtime_s"] <= at_s:
        return None
    life = LiveSpec(
        pods=[PlacedPods(pod_set=0, node=node) for node in runs[-1]["nodes"]],
        start_ms=_ms(runs[-1]["start"]),
        first_start_ms=_ms(runs[0]["start"]),
        starts=len(runs),
        preemptions=len(stops),
        progress_ms=_ms(at_s) - _ms(runs[-1]["start"]),
    )
    return life, None


def node_changes(case: Case) -> Iterator[tuple[float, str, str]]:
    """(second, node, state) of each `scontrol update nodename=a,b state=down`."""
    for action in case.get("actions", ()):
        words = dict(word.split("=", 1) for word in action["do"].split() if "=" in word)
        for node in words["nodename"].split(","):
            yield action["at"], node, {"down": "down", "drain": "drained", "resume": "up"}[words["state"]]


# ---------------------------------------------------------------------------------------------------------------
# Configuration
# ---------------------------------------------------------------------------------------------------------------


def config_of(case: Case, labels: Iterable[str]) -> SlurmConfig:
    """A case's settings; requests of the jobs `labels` only."""
    conf: Mapping[str, str] = case["config"]
    jobs = {job["label"]: job for job in case["jobs"]}
    return SlurmConfig(
        priority=_priority(conf),
        scheduler=_parameters(conf),
        preemption=_preemption(conf),
        partitions=[_partition(line) for line in case["partitions"]],
        qos=_qos(case["qos"]),
        accounts=accounts_of(case["accounts"]),
        usage=case["initial_usage"],
        requests={label: _request(jobs[label]) for label in labels},
        kill_wait_s=5,  # what the recorded system had
    )


def node_names(text: str) -> list[str]:
    """`n[1-3,5],m` as names."""
    names = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text):
        stem, _, ranges = part.partition("[")
        if not ranges:
            names.append(stem)
        for span in filter(None, ranges.rstrip("]").split(",")):
            first, _, last = span.partition("-")
            names += [f"{stem}{i:0{len(first)}d}" for i in range(int(first), int(last or first) + 1)]
    return names


def _numbers(text: str) -> dict[str, float]:
    """`CPU=0,GRES/gpu=1.0` as numbers by lower-case name."""
    pairs = (item.partition("=") for item in text.split(",") if item)
    return {name.lower(): float(value) for name, _, value in pairs}


def _counts(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in _numbers(text).items()}


def _priority(conf: Mapping[str, str]) -> Priority:
    weights = ("Age", "Assoc", "Fairshare", "JobSize", "Partition", "QOS")
    names = ("age", "assoc", "fairshare", "job_size", "partition", "qos")
    given = {f"weight_{n}": int(conf.get(f"PriorityWeight{w}", 0)) for n, w in zip(names, weights, strict=True)}
    return Priority(
        **cast(dict[str, Any], given),
        weight_tres=_numbers(conf.get("PriorityWeightTRES", "")),
        max_age_s=60 * int(conf.get("PriorityMaxAge", 7 * 1440)),
        calc_period_s=60 * int(conf.get("PriorityCalcPeriod", 5)),
        decay_half_life_s=round(60 * float(conf.get("PriorityDecayHalfLife", 7 * 1440))),
        favor_small=conf.get("PriorityFavorSmall", "NO") == "YES",
        dampening_factor=int(conf.get("FairShareDampeningFactor", 1)),
        flags=frozenset(filter(None, conf.get("PriorityFlags", "").split(","))),
    )


def _parameters(conf: Mapping[str, str]) -> SchedulerParameters:
    words = dict(word.partition("=")[::2] for word in conf.get("SchedulerParameters", "").split(",") if word)
    numbers = {name: int(words[name]) for name in words if words[name].isdecimal()}
    kind = conf.get("SchedulerType", "sched/backfill")
    if kind not in ("sched/backfill", "sched/builtin"):
        raise GanglineError(f"SchedulerType is {kind!r}, expected sched/backfill or sched/builtin")
    known = {
        "default_queue_depth": "default_queue_depth",
        "partition_job_depth": "partition_job_depth",
        "sched_interval": "sched_interval_s",
        "bf_interval": "bf_interval_s",
        "bf_window": "bf_window_min",
        "bf_resolution": "bf_resolution_s",
        "bf_max_job_test": "bf_max_job_test",
        "bf_max_job_start": "bf_max_job_start",
        "bf_max_job_user": "bf_max_job_user",
        "bf_max_job_user_part": "bf_max_job_user_part",
        "bf_max_job_array_resv": "bf_max_job_array_resv",
        "bf_max_job_part": "bf_max_job_part",
        "bf_max_job_assoc": "bf_max_job_assoc",
        "bf_min_age_reserve": "bf_min_age_reserve_s",
        "bf_min_prio_reserve": "bf_min_prio_reserve",
    }
    return SchedulerParameters(
        scheduler_type=cast(Any, kind),
        assoc_limit_stop="assoc_limit_stop" in words,
        bf_continue="bf_continue" in words,
        **cast(dict[str, Any], {known[name]: value for name, value in numbers.items() if name in known}),
    )


def _preemption(conf: Mapping[str, str]) -> Preemption:
    words = dict(word.partition("=")[::2] for word in conf.get("SchedulerParameters", "").split(",") if word)
    hours, minutes, seconds = (int(part) for part in conf.get("PreemptExemptTime", "00:00:00").split(":"))
    modes = conf.get("PreemptMode", "OFF").split(",")
    return Preemption(
        type=cast(PreemptType, conf.get("PreemptType", "preempt/none")),
        modes=cast(frozenset[PreemptMode], frozenset(modes)),
        exempt_time_s=3600 * hours + 60 * minutes + seconds,
        youngest_first="preempt_youngest_first" in words,
        reorder_count=int(words.get("preempt_reorder_count", 1)),
        strict_order="preempt_strict_order" in words,
        time_slice_s=int(conf.get("SchedulerTimeSlice", 30)),
    )


def _partition(line: Mapping[str, str]) -> Partition:
    def minutes(key: str) -> int | None:
        text = line.get(key, "INFINITE")
        return None if text in ("INFINITE", "UNLIMITED") else int(text)

    sharing, _, layers = line.get("OverSubscribe", "NO").partition(":")
    return Partition(
        name=line["PartitionName"],
        nodes=node_names(line["Nodes"]),
        is_default=line.get("Default") == "YES",
        max_time_min=minutes("MaxTime"),
        default_time_min=minutes("DefaultTime"),
        priority_tier=int(line.get("PriorityTier", 1)),
        priority_job_factor=int(line.get("PriorityJobFactor", 1)),
        tres_billing_weights=_numbers(line.get("TRESBillingWeights", "")),
        over_subscribe=int(layers or 4) if sharing == "FORCE" else 0,
        exclusive=sharing == "EXCLUSIVE",
        preempt_mode=cast(PreemptMode | None, line.get("PreemptMode")),
        grace_time_s=int(line.get("GraceTime", 0)),
        lln=line.get("LLN") == "YES",
        qos=line.get("QOS"),
    )


def _qos(lines: Iterable[Mapping[str, Any]]) -> list[Qos]:
    found = []
    for line in lines:
        mode = line.get("preemptmode")
        found.append(
            Qos(
                name=line["name"],
                priority=int(line.get("priority", 0)),
                preempts=[name for name in line.get("preempt", "").split(",") if name],
                preempt_mode=cast(PreemptMode, mode.upper()) if mode else None,
                grace_time_s=int(line.get("gracetime", 0)),
                usage_factor=float(line.get("usagefactor", 1.0)),
                flags=frozenset(filter(None, line.get("flags", "").split(","))),
                limits=_limits({key.lower(): value for key, value in line.items()}),
            )
        )
    if all(entry.name != "normal" for entry in found):
        found.insert(0, Qos(name="normal"))
    return found


def _optional(value: Any) -> int | None:
    return None if value is None else int(value)


def accounts_of(entries: Iterable[Mapping[str, Any]]) -> list[Account | User]:
    """Accounts and users as the case nests them."""
    found: list[Account | User] = []
    for entry in entries:
        limits = _limits({key.lower(): value for key, value in (entry.get("set") or {}).items()})
        shares = entry.get("shares", entry.get("raw_shares", 1))
        if "children" in entry or entry.get("kind") == "acct":
            children = accounts_of(entry.get("children", ()))
            found.append(Account(name=entry["name"], shares=shares, children=children, limits=limits))
        else:
            found.append(User(name=entry["name"], shares=shares, limits=limits))
    return found


def _limits(line: Mapping[str, Any]) -> Limits:
    """Limits of an association or a QOS, by sacctmgr's names in lower case, long or short."""

    def first(*names: str) -> Any:
        return next((line[name] for name in names if name in line), None)

    return Limits(
        grp_tres=_counts(first("grptres") or ""),
        grp_tres_mins=_counts(first("grptresmins") or ""),
        grp_wall_min=_minutes(first("grpwall")),
        grp_jobs=_optional(first("grpjobs")),
        grp_submit=_optional(first("grpsubmit", "grpsubmitjobs")),
        max_tres_per_job=_counts(first("maxtres", "maxtrespj", "maxtresperjob") or ""),
        max_tres_per_node=_counts(first("maxtrespn", "maxtrespernode") or ""),
        max_tres_mins_per_job=_counts(first("maxtresmins", "maxtresminspj", "maxtresminsperjob") or ""),
        max_wall_min=_minutes(first("maxwall", "maxwalldurationperjob")),
        max_jobs=_optional(first("maxjobs")),
        max_submit=_optional(first("maxsubmit", "maxsubmitjobs")),
        max_tres_per_user=_counts(first("maxtrespu", "maxtresperuser") or ""),
        max_tres_per_account=_counts(first("maxtrespa", "maxtresperaccount") or ""),
        max_jobs_per_user=_optional(first("maxjobspu", "maxjobsperuser")),
        max_jobs_per_account=_optional(first("maxjobspa", "maxjobsperaccount")),
        max_submit_per_user=_optional(first("maxsubmitpu", "maxsubmitjobsperuser", "maxsubmitjobspu")),
        max_submit_per_account=_optional(first("maxsubmitpa", "maxsubmitjobsperaccount", "maxsubmitjobspa")),
    )


def _minutes(value: Any) -> int | None:
    """Minutes, as a number or as Slurm writes times."""
    if value is None:
        return None
    days, dash, clock = str(value).rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if dash:  # days-hours[:minutes[:seconds]]
        parts = [*parts, 0, 0][:3]
    elif len(parts) == 1:
        return parts[0]
    elif len(parts) == 2:  # minutes:seconds
        parts = [0, *parts]
    hours, minutes, seconds = parts
    return int(days or 0) * 1440 + hours * 60 + minutes + (seconds > 0)


def _request(job: Mapping[str, Any]) -> Request:
    request = job["request"]
    nodes, _ = pods_of(request)
    one_task_each = request.get("ntasks", nodes) <= nodes
    return Request(
        partitions=request.get("partitions", ()),
        qos=request.get("qos"),
        account=job["account"],
        user=job["user"],
        nice=request.get("nice", 0),
        exclusive=request.get("exclusive", False),
        nodelist=request.get("nodelist", ()),
        whole_nodes=not nodes_are_open(request),
        tasks_per_node_are_fixed=not nodes_are_open(request)
        and (nodes == 1 or "ntasks_per_node" in request or one_task_each),
    )
