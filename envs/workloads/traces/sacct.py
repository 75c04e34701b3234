"""Slurm's accounting, `sacct -P`: what a site ran, one row a job.

    sacct -P -a -X -S 2024-03-01 -E 2024-04-01 -o JobID,User,Account,Partition,QOS,Constraints,Submit,Eligible,\\
        Start,End,Timelimit,State,NNodes,AllocTRES,ReqTRES > march.txt

JobID, Submit, Start, End, State and AllocTRES or ReqTRES are needed; the others are used where they are there. Lines
of steps (`123.batch`) are passed over, with or without `-X`. Times without a zone are read as UTC. Source: sacct(1).

A job becomes a gang of as many pods as it had nodes. Elements of an array are jobs of their own; components of a
heterogeneous job (`123+0`, `123+1`) are pod sets of one. A job that was requeued has several rows if sacct was told
`--duplicates`: its submission is the first one's, its run the last one's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gangline.envs.core.spec import DEFAULT_CHECKPOINT_INTERVAL_MS
from gangline.envs.core.trace import new_pod_sets, new_rows
from gangline.envs.core.types import MAX_FLAVORS, MAX_GPUS_PER_NODE, NEVER, NONE, ONE_GPU, Outcome
from gangline.envs.errors import GanglineError
from gangline.envs.files.slurm_site import Submission
from gangline.envs.files.slurm_values import SECOND_MS, date_ms, gpus_of, gres, time_ms, tres
from gangline.envs.files.text import column_index, count, lines_of, parsed, read_text, shown, words
from gangline.envs.workloads.base import JobTrace, chosen, pods_of

COMMAND = (
    "sacct -P -a -X -o JobID,User,Account,Partition,QOS,Constraints,Submit,Eligible,Start,End,Timelimit,State,NNodes,"
    "AllocTRES,ReqTRES"
)
NEEDED = ("JobID", "Submit", "Start", "End", "State")
RESOURCES = {"gpu": ("gpu",), "gpu_cpu": ("gpu", "cpu"), "gpu_cpu_memory": ("gpu", "cpu", "memory")}
TENANTS = ("account", "user", "qos", "partition", "none")

DONE = ("COMPLETED", "COMPLETING")
FAILED = ("FAILED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "LAUNCH_FAILED", "RECONFIG_FAIL")
STOPPED = ("NODE_FAIL", "PREEMPTED", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REVOKED", "STOPPED")
UNDER_WAY = ("RUNNING", "SUSPENDED", "RESIZING", "STAGE_OUT", "SIGNALING", "POWER_UP_NODE", "CONFIGURING")
WAITING = ("PENDING", "RESV_DEL_HOLD")
STATES = {*DONE, *FAILED, *STOPPED, *UNDER_WAY, *WAITING, "CANCELLED", "TIMEOUT"}

_JOB_ID = re.compile(r"(\d{1,18})(?:_(\d{1,9})|_\[([^\]]*)\]?)?(?:\+(\d{1,6}))?\Z")
_STEP = re.compile(r"\d+(?:_\d+|_\[[^\]]*\]?)?(?:\+\d+)?\.")


class _Part(NamedTuple):
    """What a job, or a component of a heterogeneous one, had in all."""

    nodes: int  # 0 = unknown
    gpus: int
    cpus: int
    bytes: int
    gpu_type: str  # that it asked for; "" = none


@dataclass
class _Job:
    """One job, or what is known of it so far."""

    number: str  # JobID
    row: int
    submit_ms: int
    eligible_ms: int | None
    start_ms: int | None
    end_ms: int | None
    state: str
    claim_ms: int | None
    names: tuple[str, str, str, str]  # account, user, qos, partition
    constraint: str = ""
    parts: list[_Part] = field(default_factory=list)


def load(
    path: str | Path,
    *,
    tenant: str = "account",
    resources: str = "gpu",
    cpu_jobs: str = "drop",
    gpu_types: str = "any",
    running: str = "drop",
    outcomes: bool = False,
    eligible: bool = True,
    gpus_per_pod: int = 8,
    checkpoint_interval_ms: int | None = DEFAULT_CHECKPOINT_INTERVAL_MS,
) -> JobTrace:
    """Read the file.

    Dropped and counted: jobs that never started (or failed within the second), jobs without GPUs, rows that are there
    twice.

    Args:
        path: the output of sacct; packed if it ends in .gz.
        tenant: the field that names the tenant: `account`, `user`, `qos`, `partition`; `none` makes one tenant `all`.
            Empty becomes `unknown`.
        resources: what pods ask for: `gpu`, `gpu_cpu` or `gpu_cpu_memory`. The world must count the same.
        cpu_jobs: jobs without GPUs: `drop`, or `keep`, where CPUs are counted.
        gpu_types: `any` GPU will do, or the type that ReqTRES names where it names one (`requested`): the trace's
            flavors are then the types, and the world's must begin with them (`slurm_site.world_of` sees to that).
        running: jobs that had not ended: `drop`, or `cut`: they are taken to end at the last moment of the file.
        outcomes: follow the state: failed jobs fail at the end of their run; cancelled ones are cancelled at the time
            they were, and would have gone on to their limit; those that ran into their limit are killed there.
            Otherwise all complete.
        eligible: a job may not start before Eligible (begin time, dependency, hold), where the column is there.
        gpus_per_pod: of jobs whose GPUs do not divide by their nodes, or that do not say their nodes.
        checkpoint_interval_ms: of progress time; None = no checkpoints.

    Returns: training gangs; the walltime claim is Timelimit; none where it is UNLIMITED or Partition_Limit. Report:
        `rows_read`, `rows_kept`, `step_lines`, `out_of_order`, `dropped_*`, `repaired_*`, `state_<name>`,
        `unknown_tenant`, `het_jobs`, `uneven_jobs`, `claim_partition_limit`, `claim_below_run`, `t0_epoch_ms`, and
        what the site's own scheduler did: `recorded_wait_mean_s`, `recorded_wait_p95_s`.

    Raises:
        GanglineError: a column that is missing, or the first line with a value that makes no sense.
    """
    chosen("tenant", tenant, TENANTS)
    chosen("resources", resources, tuple(RESOURCES))
    chosen("cpu_jobs", cpu_jobs, ("drop", "keep"))
    chosen("gpu_types", gpu_types, ("any", "requested"))
    chosen("running", running, ("drop", "cut"))
    if cpu_jobs == "keep" and resources == "gpu":
        raise GanglineError("cpu_jobs is 'keep', expected resources=gpu_cpu with it: these jobs ask for CPUs only")
    report: dict[str, int] = {}
    jobs = _jobs(path, report)
    jobs = _started(jobs, running, report)
    if cpu_jobs == "drop":
        kept = [job for job in jobs if any(part.gpus for part in job.parts)]
        report["dropped_no_gpu"] = len(jobs) - len(kept)
        jobs = kept
    if not jobs:
        raise GanglineError(
            f"sacct trace {path}: no job is left of {report['rows_read']} rows; expected at least one that ran on GPUs"
        )
    submit = np.array([job.submit_ms for job in jobs], np.int64)
    report["out_of_order"] = int((np.diff(submit) < 0).sum())
    order = np.argsort(submit, kind="stable")
    jobs, submit = [jobs[i] for i in order], submit[order]
    report["rows_kept"] = len(jobs)
    report["t0_epoch_ms"] = t0 = int(submit[0])

    rows = new_rows(len(jobs))
    rows["submit_ms"] = rows["eligible_ms"] = submit - t0
    if eligible:
        later = np.array([submit[i] if j.eligible_ms is None else j.eligible_ms for i, j in enumerate(jobs)], np.int64)
        rows["eligible_ms"] = np.maximum(submit, later) - t0
    start = np.array([job.start_ms or 0 for job in jobs], np.int64)
    run = np.array([job.end_ms or 0 for job in jobs], np.int64) - start
    report["repaired_zero_duration"] = int((run <= 0).sum())
    run = np.maximum(run, SECOND_MS)
    rows["work_ms"] = run
    waits = np.maximum(start - t0 - rows["eligible_ms"], 0)
    report["recorded_wait_mean_s"] = round(waits.mean() / SECOND_MS)
    report["recorded_wait_p95_s"] = round(np.percentile(waits, 95) / SECOND_MS)
    rows["claim_ms"] = np.array([NEVER if job.claim_ms is None else job.claim_ms for job in jobs], np.int64)
    report["claim_below_run"] = int((rows["claim_ms"] < run).sum())
    rows["checkpoint_interval_ms"] = NEVER if checkpoint_interval_ms is None else checkpoint_interval_ms
    rows["source_row"] = [job.row for job in jobs]
    if outcomes:
        _follow_state(rows, np.array([job.state for job in jobs]), start - t0)
    types = sorted({part.gpu_type for job in jobs for part in job.parts} - {""}) if gpu_types == "requested" else []
    if len(types) > MAX_FLAVORS:
        raise GanglineError(
            f"sacct trace {path}: {len(types)} GPU types, expected at most {MAX_FLAVORS}; gpu_types=any"
        )
    pod_sets = _pod_sets(rows, jobs, resources, gpus_per_pod, types, report)
    tenants, index = _tenants(jobs, tenant, report)
    rows["tenant"] = index
    users, rows["user"], user_tenant = _users(jobs, index, tenants)
    return JobTrace.build(
        rows,
        pod_sets,
        tenants,
        users,
        RESOURCES[resources],
        types or ("default",),
        user_tenant=user_tenant,
        report=report,
    )


def submissions(path: str | Path, trace: JobTrace) -> list[Submission]:
    """What each job of a trace that was loaded from this file asked for, by row."""
    jobs = _jobs(path, {})
    by_row = {job.row: job for job in jobs}
    limits: dict[str, int] = {}  # of arrays whose elements still wait: 123_[5-9%2]
    for job in jobs:
        waiting = (_JOB_ID.match(job.number) or [None] * 4)[3]
        at_once = waiting.partition("%")[2] if waiting else ""
        if at_once.isdecimal() and int(at_once) > 0:
            limits[job.number.partition("_")[0]] = int(at_once)
    return [_submission(by_row[int(row)], limits) for row in trace.rows["source_row"]]


def _submission(job: _Job, limits: Mapping[str, int]) -> Submission:
    number, is_element, _ = job.number.partition("_")
    return Submission(
        partitions=words(job.names[3]),
        qos=job.names[2],
        constraint=job.constraint,
        array=number if is_element else None,
        array_limit=limits.get(number) if is_element else None,
        whole_nodes=all(map(_is_by_node, job.parts)),
    )


# ---------------------------------------------------------------------------------------------------------------
# Rows -> jobs
# ---------------------------------------------------------------------------------------------------------------


def _is_by_node(part: _Part) -> bool:
    """Whether its pods are its parts of nodes."""
    return part.nodes > 0 and part.gpus % part.nodes == 0 and part.gpus // part.nodes <= MAX_GPUS_PER_NODE


def _jobs(path: str | Path, report: dict[str, int]) -> list[_Job]:
    """The jobs of a file, requeued and heterogeneous ones as one."""
    jobs: list[_Job] = []
    by_id: dict[tuple[str, str], _Job] = {}  # (id, "" or the submission of a heterogeneous job) -> the last such job
    seen: set[tuple[str, str]] = set()
    report.update(rows_read=0, step_lines=0, dropped_duplicate=0, dropped_never_started=0, repaired_requeued=0)
    report.update(het_jobs=0, claim_partition_limit=0)
    for row, line in _rows(path, report):
        found = _JOB_ID.match(line["JobID"])
        if found is None:
            raise _bad(_place(path, row), "JobID", line["JobID"], "an id such as 123, 123_4 or 123+0")
        if (line["JobID"], line["Submit"]) in seen:
            report["dropped_duplicate"] += 1
            continue
        seen.add((line["JobID"], line["Submit"]))
        job = _job(row, _place(path, row), line, report)
        report[f"state_{job.state.lower()}"] = report.get(f"state_{job.state.lower()}", 0) + 1
        key = (line["JobID"].partition("+")[0], line["Submit"] if found[4] else "")
        before = by_id.get(key)
        if found[4] and before is not None:  # a further component: it started and ended with the first
            before.parts += job.parts
            report["het_jobs"] += len(before.parts) == 2
            continue
        if before is not None and before.state in STOPPED:  # the same job, queued again; else the id was used again
            report["repaired_requeued"] += 1
            before.start_ms, before.end_ms, before.state = job.start_ms, job.end_ms, job.state
            before.parts = job.parts
            continue
        by_id[key] = job
        jobs.append(job)
    return jobs


def _rows(path: str | Path, report: dict[str, int]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """(row from 0, fields by our column names) of each line that is a job."""
    lines = lines_of(read_text(path, "sacct trace", lenient=True))
    header = lines[0].split("|") if lines else []
    place = {}
    for name in (*NEEDED, *OPTIONAL):
        index = column_index(header, name)
        if index is not None:
            place[name] = index
        elif name in NEEDED:
            found = ", ".join(shown(title)[1:-1] for title in header[:12]) or "nothing"
            raise GanglineError(f"sacct trace {path}: no column {name}; expected those of {COMMAND}; found {found}")
    if not any(name in place for name in ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")):
        raise GanglineError(f"sacct trace {path}: no column AllocTRES or ReqTRES, expected the output of {COMMAND}")
    width = len(header)
    free_texts = [
        index for name in ("JobName", "Constraints") for index in (column_index(header, name),) if index is not None
    ]
    for row, line in enumerate(lines[1:]):
        if not line.strip():
            continue
        fields = line.split("|")
        if len(fields) > width and free_texts:  # a job may be called a|b, or ask for features a|b
            fields = _rejoined(fields, width, free_texts, place["State"])
        if len(fields) != width:
            raise GanglineError(
                f"{_place(path, row)}: {len(fields)} fields, expected {width}, as in the first line; cut off?"
            )
        report["rows_read"] += 1
        values = {name: fields[index].strip() for name, index in place.items()}
        if _STEP.match(values["JobID"]):
            report["step_lines"] += 1
            continue
        yield row, values


def _place(path: str | Path, row: int) -> str:
    """Where a row, from 0, stands."""
    return f"sacct trace {path} line {row + 2}"


def _rejoined(fields: list[str], width: int, free_texts: list[int], state: int) -> list[str]:
    """Fields with those together that a `|` inside one has cut apart: where a state is found then."""
    surplus = len(fields) - width
    for at in free_texts:
        joined = [*fields[:at], "|".join(fields[at : at + surplus + 1]), *fields[at + surplus + 1 :]]
        if joined[state].split(" ")[0].removesuffix("+").upper() in STATES:
            return joined
    return fields


OPTIONAL = (
    *(
        "User",
        "Account",
        "Partition",
        "QOS",
        "Constraints",
        "Eligible",
        "Timelimit",
        "TimelimitRaw",
        "NNodes",
        "AllocNodes",
    ),
    *("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "NCPUS", "AllocCPUS", "ReqCPUS"),
)


def _bad(where: str, column: str, value: str, expected: str) -> GanglineError:
    return GanglineError(f"{where}: {column} is {shown(value) if value else 'empty'}, expected {expected}")


def _job(row: int, where: str, line: Mapping[str, str], report: dict[str, int]) -> _Job:
    state = line["State"].split(" ")[0].removesuffix("+").upper()  # CANCELLED by 1000; CANCELLED+ where cut to width
    if state not in STATES:
        whole = [known for known in STATES if len(state) > 4 and known.startswith(state)]
        if len(whole) != 1:
            raise _bad(where, "State", line["State"], "a state such as COMPLETED or TIMEOUT")
        state = whole[0]
    submit_ms = parsed(where, "Submit", line["Submit"], date_ms)
    if submit_ms is None:
        raise _bad(where, "Submit", line["Submit"], "a time such as 2024-03-01T12:00:00")
    start_ms, end_ms = (parsed(where, name, line[name], date_ms) for name in ("Start", "End"))
    if start_ms is not None and end_ms is not None and end_ms < start_ms:
        raise _bad(where, "End", line["End"], f"a time not before Start {line['Start']}")
    return _Job(
        row=row,
        submit_ms=submit_ms,
        eligible_ms=parsed(where, "Eligible", line.get("Eligible", ""), date_ms),
        start_ms=start_ms,
        end_ms=end_ms,
        number=line["JobID"],
        state=state,
        constraint=line.get("Constraints", ""),
        claim_ms=_claim_ms(where, line, report),
        names=(
            line.get("Account", "").lower(),
            line.get("User", ""),
            line.get("QOS", ""),
            line.get("Partition", ""),
        ),
        parts=[_amounts(where, line)],
    )


def _claim_ms(where: str, line: Mapping[str, str], report: dict[str, int]) -> int | None:
    """The walltime limit; None = endless."""
    text = line.get("Timelimit") or line.get("TimelimitRaw", "")
    if text.lower().replace("_", "") == "partitionlimit":
        report["claim_partition_limit"] += 1
        return None
    return (parsed(where, "Timelimit", text, time_ms) if text else None) or None


def _amounts(where: str, line: Mapping[str, str]) -> _Part:
    """What the whole component had: allocated, else requested."""
    name = "AllocTRES" if line.get("AllocTRES") else "ReqTRES"
    amounts = parsed(where, name, line.get(name, ""), _tres)
    nodes = amounts.get("node", 0)
    for column in ("NNodes", "AllocNodes"):
        if not nodes and line.get(column, "").isdigit():
            nodes = int(line[column])
    gpus, _ = gpus_of(amounts)
    if not gpus and not amounts:
        column = "AllocGRES" if line.get("AllocGRES") else "ReqGRES"
        per_node = parsed(where, column, line.get(column, ""), gres)  # old sacct: of one node
        gpus = max(nodes, 1) * sum(entry.number for entry in per_node if entry.name == "gpu")
    cpus = amounts.get("cpu", 0)
    for column in ("NCPUS", "AllocCPUS", "ReqCPUS"):
        if not cpus and line.get(column):
            cpus = parsed(where, column, line[column], count)
    asked = parsed(where, "ReqTRES", line.get("ReqTRES", ""), _tres)  # what was given is no wish for it
    return _Part(nodes, gpus, cpus, amounts.get("mem", 0), gpus_of(asked)[1] or "")


_tres = lru_cache(maxsize=4096)(tres)  # a month has few different requests


def _started(jobs: list[_Job], running: str, report: dict[str, int]) -> list[_Job]:
    """The jobs that ran, with an end each."""
    started = [job for job in jobs if job.start_ms is not None and job.state not in WAITING]
    started = [job for job in started if job.end_ms is None or job.end_ms > (job.start_ms or 0) or job.state in DONE]
    report["dropped_never_started"] = len(jobs) - len(started)
    last = max((max(job.submit_ms, job.start_ms or 0, job.end_ms or 0) for job in jobs), default=0)
    ended = []
    num_running = 0
    for job in started:
        if job.end_ms is None:
            num_running += 1
            if running == "drop":
                continue
            job.end_ms = last
        ended.append(job)
    report["dropped_running" if running == "drop" else "repaired_running"] = num_running
    return ended


# ---------------------------------------------------------------------------------------------------------------
# Jobs -> tables
# ---------------------------------------------------------------------------------------------------------------


def _follow_state(rows: np.ndarray, state: np.ndarray, start_ms: np.ndarray) -> None:
    """Hidden outcomes from the states; see `load`."""
    run = rows["work_ms"].copy()
    fails = np.isin(state, FAILED)
    rows["outcome"][fails] = Outcome.FAILED
    rows["outcome_ms"][fails] = run[fails]
    rows["work_ms"][fails] = run[fails] + 1  # so that it fails rather than finishes at the same instant
    has_claim = rows["claim_ms"] < NEVER
    cancelled = state == "CANCELLED"
    rows["cancel_ms"][cancelled] = (start_ms + run)[cancelled]
    until = np.where(has_claim, np.maximum(run + 1, rows["claim_ms"]), run + 1)
    rows["work_ms"][cancelled] = until[cancelled]
    timed_out = (state == "TIMEOUT") & has_claim
    rows["killed_at_claim"][timed_out] = True
    rows["work_ms"][timed_out] = np.maximum(run, rows["claim_ms"] + 1)[timed_out]


class _Entry(NamedTuple):
    """Equal pods: an entry of the pod-set table."""

    pods: int
    amounts: tuple[int, int, int]  # of each: milli-GPU, milli-CPU, bytes
    gpu_type: str


def _pod_sets(
    rows: np.ndarray, jobs: list[_Job], resources: str, gpus_per_pod: int, types: list[str], report: dict[str, int]
) -> np.ndarray:
    """The pod-set table; equal jobs share their entries. Writes the rows' columns that point into it."""
    table: list[_Entry] = []
    place: dict[tuple[_Part, ...], tuple[int, int, int]] = {}
    report["uneven_jobs"] = 0
    for i, job in enumerate(jobs):
        parts = tuple(job.parts)
        if parts not in place:
            own = [entry for part in parts for entry in _cut(part, gpus_per_pod)]
            place[parts] = len(table), len(own), sum(entry.pods for entry in own)
            table += own
        report["uneven_jobs"] += any(part.gpus % part.nodes if part.nodes else part.gpus > 1 for part in parts)
        rows["first_pod_set"][i], rows["num_pod_sets"][i], rows["min_member"][i] = place[parts]
    pod_sets = new_pod_sets(len(table))
    for r, _ in enumerate(RESOURCES[resources]):
        amounts = np.array([entry.amounts[r] for entry in table], np.int64)
        pod_sets["request"][:, r] = amounts
        pod_sets["asked"] |= ((amounts > 0) << r).astype(np.uint8)
    pod_sets["count"] = pod_sets["min_count"] = [entry.pods for entry in table]
    for row, entry in enumerate(table):
        if entry.gpu_type in types:
            pod_sets["flavors"][row] = NONE
            pod_sets["flavors"][row, 0] = types.index(entry.gpu_type)
    return pod_sets


def _cut(part: _Part, gpus_per_pod: int) -> list[_Entry]:
    """A component as pods: one a node; GPUs that do not divide by the nodes fill one node after the other."""
    nodes, gpus, cpus, memory, kind = part
    if _is_by_node(part):
        return [_Entry(nodes, (gpus // nodes * ONE_GPU, -(-cpus * 1000 // nodes), -(-memory // nodes)), kind)]
    if not gpus:
        return [_Entry(1, (0, cpus * 1000, memory), kind)]
    pods = pods_of(np.array([gpus * ONE_GPU]), gpus_per_pod)
    return [
        _Entry(count, (milli, -(-cpus * milli // gpus), -(-memory * milli // (gpus * ONE_GPU))), kind)
        for count, milli in zip(pods.table["count"].tolist(), pods.table["request"][:, 0].tolist(), strict=True)
    ]


def _tenants(jobs: list[_Job], tenant: str, report: dict[str, int]) -> tuple[list[str], np.ndarray]:
    """Tenant names, and (num_jobs,) int32 the tenant of each job."""
    if tenant == "none":
        return ["all"], np.zeros(len(jobs), np.int32)
    named = [job.names[TENANTS.index(tenant)] or "unknown" for job in jobs]
    report["unknown_tenant"] = named.count("unknown")
    names, index = np.unique(np.array(named, dtype=object).astype(str), return_inverse=True)
    return names.tolist(), index.astype(np.int32)


def _users(jobs: list[_Job], tenant: np.ndarray, tenants: list[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """User names, (num_jobs,) int32 user of each job (NONE where unknown), (num_users,) int32 tenant of each user.

    A person who works for two tenants is two users, `name@tenant`.
    """
    pairs: dict[tuple[int, str], int] = {}
    of_user = np.full(len(jobs), NONE, np.int32)
    for i, job in enumerate(jobs):
        if job.names[1]:
            of_user[i] = pairs.setdefault((int(tenant[i]), job.names[1]), len(pairs))
    num_tenants: dict[str, int] = {}
    for _, name in pairs:
        num_tenants[name] = num_tenants.get(name, 0) + 1
    names = [f"{name}@{tenants[t]}" if num_tenants[name] > 1 else name for t, name in pairs]
    return names, of_user, np.array([t for t, _ in pairs], np.int32)
