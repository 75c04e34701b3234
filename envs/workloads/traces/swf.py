"""Standard Workload Format 2.2: 18 blank-separated numbers a job, `;` comments, -1 for "missing".

Source: Feitelson, cs.huji.ac.il/labs/parallel/workload/swf.html. A processor becomes a pod of one GPU, so a job is one
gang of as many pods: the count-only pool of the scheduling literature.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np

from gangline.envs.core.types import NEVER, NONE, ONE_GPU, Outcome
from gangline.envs.errors import GanglineError
from gangline.envs.files.text import read_text
from gangline.envs.workloads.base import (
    OVERSIZED,
    JobTrace,
    bad_value,
    chosen,
    gang_rows,
    numbers,
    to_ms,
)
from gangline.envs.workloads.draws import job_hash

FIELDS = (
    *("job", "submit", "wait", "run", "used_procs", "cpu_time", "used_memory", "asked_procs", "asked_time"),
    *("asked_memory", "status", "user", "group", "executable", "queue", "partition", "preceding_job", "think_time"),
)
TENANTS = ("user", "group", "queue", "partition", "synthetic", "none")
STATUS_FAILED, STATUS_DONE, STATUS_PARTIAL, STATUS_LAST_DONE, STATUS_LAST_FAILED, STATUS_CANCELLED = range(6)


def load(
    path: str | Path,
    *,
    tenant: str = "user",
    procs: str = "requested",
    oversized: str = "reject",
    capacity_gpus: int | None = None,
    outcomes: bool = False,
    partial: str = "keep",
    dependencies: bool = True,
    num_tenants: int = 4,
    seed: int = 0,
) -> JobTrace:
    """Read the file.

    Dropped and counted: a job number that came before, run time <= 0, processors <= 0.

    Args:
        path: `.swf` or `.swf.gz`.
        tenant: the field that names the tenant; -1 becomes `unknown`. `synthetic` deals the jobs out to `num_tenants`
            evenly by (seed, row), for files without any such field; `none` makes one tenant `all`.
        procs: `requested` = field 8, or 5 where that is missing; `max` = the larger of the two (as RLScheduler does).
        oversized: jobs with more processors than `capacity_gpus`: `reject`, `cap` or `keep`, see `philly.load`.
        capacity_gpus: None = the header's `MaxProcs`, if it has one.
        outcomes: follow the status: failed jobs (0, 4) fail at the end of their run time; cancelled ones (5) are
            cancelled at the time they were, and would have gone on to their requested time. Otherwise all complete.
        partial: rows that are one stretch of a checkpointed job (status 2, 3, 4): `keep` as jobs, or `drop`.
        dependencies: a job waits for its preceding job (field 17). Its think time (field 18) cannot count from an end
            that depends on the scheduler: it counts from the earliest end, submission + run time of that job.
        num_tenants: of `synthetic`.
        seed: of `synthetic`.

    Returns: training gangs; the walltime claim is field 9, or the run time where that is missing
        (`claim_from_run` counts them; `claim_below_run` counts claims that the job outran). Report also: `rows_read`,
        `rows_kept`, `out_of_order`, `unknown_tenant`, `oversized`, `dropped_*`, `repaired_*`, `status_<n>`,
        `max_procs` and `t0_epoch_ms` where the header says so, `t0_source_ms` = time 0 on the file's own clock.

    Raises:
        GanglineError: naming the first row (from 1, comments not counted) that is not 18 numbers.
    """
    import pandas as pd

    chosen("tenant", tenant, TENANTS)
    chosen("procs", procs, ("requested", "max"))
    chosen("oversized", oversized, OVERSIZED)
    chosen("partial", partial, ("keep", "drop"))
    where = "swf trace"
    text = read_text(path, "swf trace")
    header = {k: int(v) for k, v in re.findall(r"^\s*;\s*(MaxProcs|UnixStartTime):\s*(\d+)", text, re.MULTILINE)}
    try:
        table = pd.read_csv(
            io.StringIO(text), sep=r"\s+", comment=";", header=None, dtype=str, keep_default_na=False, na_filter=False
        )
    except pd.errors.EmptyDataError:
        raise GanglineError(f"swf trace {path}: no jobs, expected rows of 18 numbers") from None
    except pd.errors.ParserError as error:
        raise GanglineError(f"swf trace {path}: expected rows of 18 numbers ({str(error).strip()})") from None
    if table.shape[1] != len(FIELDS):
        raise GanglineError(f"swf trace {path}: rows of {table.shape[1]} fields, expected 18")
    table.columns = pd.Index(FIELDS)
    field = {name: numbers(table[name], where) for name in FIELDS}
    bad = field["submit"] < 0
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise bad_value(where, row, "submit (field 2)", table["submit"].iloc[row], ">= 0")

    report = {"rows_read": len(table), "out_of_order": int((np.diff(field["submit"]) < 0).sum())}
    status = field["status"].astype(np.int64)
    for value, count in zip(*np.unique(status, return_counts=True), strict=True):
        report[f"status_{value}" if value >= 0 else "status_unknown"] = int(count)
    keep = np.ones(len(table), bool)

    def drop(bad: np.ndarray, reason: str) -> None:
        report[f"dropped_{reason}"] = int((keep & bad).sum())
        keep[bad] = False

    drop(pd.Series(field["job"]).duplicated().to_numpy(), "duplicate")
    if partial == "drop":
        drop(np.isin(status, (STATUS_PARTIAL, STATUS_LAST_DONE, STATUS_LAST_FAILED)), "partial")
    drop(field["run"] <= 0, "no_run")
    size = np.where(field["asked_procs"] > 0, field["asked_procs"], field["used_procs"])
    if procs == "max":
        size = np.maximum(field["asked_procs"], field["used_procs"])
    drop(size <= 0, "no_procs")
    if "MaxProcs" in header:
        report["max_procs"] = header["MaxProcs"]
    capacity = header.get("MaxProcs") if capacity_gpus is None else capacity_gpus
    if capacity is None:
        if oversized == "cap":
            raise GanglineError(
                f"swf trace {path}: oversized is 'cap' without MaxProcs in the header; give capacity_gpus"
            )
    else:
        is_oversized = size > capacity
        report["oversized"] = int((keep & is_oversized).sum())
        if oversized == "reject":
            drop(is_oversized, "oversized")
        elif oversized == "cap":
            report["repaired_oversized"] = report["oversized"]
            size = np.minimum(size, capacity)

    source = np.flatnonzero(keep)
    source = source[np.argsort(field["submit"][source], kind="stable")]
    report["rows_kept"] = len(source)
    if not len(source):
        raise GanglineError(f"swf trace {path}: no job is left of {len(table)} rows; expected at least one")
    epoch_ms = to_ms(field["submit"][source])
    report["t0_source_ms"] = int(epoch_ms[0])
    if "UnixStartTime" in header:
        report["t0_epoch_ms"] = header["UnixStartTime"] * 1000 + report["t0_source_ms"]

    names, index = _tenants(field, source, tenant, num_tenants, seed, report)
    run = to_ms(field["run"][source])
    rows, pod_sets = gang_rows(
        epoch_ms - epoch_ms[0],
        run,
        size[source].astype(np.int64) * ONE_GPU,
        index,
        gpus_per_pod=1,
        checkpoint_interval_ms=None,
    )
    rows["source_row"] = source
    asked = to_ms(field["asked_time"][source])
    rows["claim_ms"] = np.where(asked > 0, asked, run)
    report["claim_from_run"] = int((asked <= 0).sum())
    report["claim_below_run"] = int((rows["claim_ms"] < run).sum())
    if outcomes:
        _follow_status(rows, status[source], to_ms(np.maximum(field["wait"][source], 0)))
    if dependencies:
        _chain(rows, field, source, report)
    users, of_user, user_tenant = _users(field["user"][source].astype(np.int64), index)
    rows["user"] = of_user
    return JobTrace.build(rows, pod_sets, names, users, user_tenant=user_tenant, report=report)


def _tenants(
    field: dict[str, np.ndarray], source: np.ndarray, tenant: str, num_tenants: int, seed: int, report: dict[str, int]
) -> tuple[list[str], np.ndarray]:
    """Tenant names, and (num_jobs,) int32 the tenant of each job."""
    if tenant == "none":
        return ["all"], np.zeros(len(source), np.int32)
    if tenant == "synthetic":
        if num_tenants < 1:
            raise GanglineError(f"num_tenants is {num_tenants}, expected at least 1")
        dealt = (job_hash(seed, source) >> np.uint64(32)) * np.uint64(num_tenants) >> np.uint64(32)
        return [f"tenant{k}" for k in range(num_tenants)], dealt.astype(np.int32)
    value = field[tenant][source].astype(np.int64)
    report["unknown_tenant"] = int((value < 0).sum())
    value[value < 0] = NEVER  # last in the order of numbers
    ids, index = np.unique(value, return_inverse=True)
    return [f"{tenant}{i}" if i < NEVER else "unknown" for i in ids], index.astype(np.int32)


def _users(user: np.ndarray, tenant: np.ndarray) -> tuple[list[str], np.ndarray, np.ndarray]:
    """User names, (num_jobs,) int32 user of each job (NONE where unknown), (num_users,) int32 tenant of each user.

    A person who works for two tenants is two users.
    """
    of_user = np.full(len(user), NONE, np.int32)
    known = user >= 0
    pairs, index = np.unique(np.stack([tenant[known], user[known]], axis=1), axis=0, return_inverse=True)
    of_user[known] = index.ravel()
    twice = np.isin(pairs[:, 1], [u for u, n in zip(*np.unique(pairs[:, 1], return_counts=True), strict=True) if n > 1])
    names = [f"user{u}@{t}" if double else f"user{u}" for (t, u), double in zip(pairs, twice, strict=True)]
    return names, of_user, pairs[:, 0].astype(np.int32)


def _follow_status(rows: np.ndarray, status: np.ndarray, wait_ms: np.ndarray) -> None:
    """Hidden outcomes from field 11; see `load`."""
    run = rows["work_ms"].copy()
    fails = np.isin(status, (STATUS_FAILED, STATUS_LAST_FAILED))
    rows["outcome"][fails] = Outcome.FAILED
    rows["outcome_ms"][fails] = run[fails]
    rows["work_ms"][fails] = run[fails] + 1  # so that it fails rather than finishes at the same instant
    cancelled = status == STATUS_CANCELLED
    rows["cancel_ms"][cancelled] = (rows["submit_ms"] + wait_ms + run)[cancelled]
    rows["work_ms"][cancelled] = np.maximum(run + 1, rows["claim_ms"])[cancelled]


def _chain(rows: np.ndarray, field: dict[str, np.ndarray], source: np.ndarray, report: dict[str, int]) -> None:
    """Preceding jobs and think times from fields 17 and 18."""
    place = {int(job): row for row, job in enumerate(field["job"][source].astype(np.int64))}
    for row, (before, think) in enumerate(
        zip(field["preceding_job"][source].astype(np.int64), field["think_time"][source], strict=True)
    ):
        if before < 0:
            continue
        earlier = place.get(int(before), NONE)
        if not 0 <= earlier < row:  # dropped, unknown, or submitted later
            report["dropped_dependency"] = report.get("dropped_dependency", 0) + 1
            continue
        rows["after_row"][row] = earlier
        report["dependencies"] = report.get("dependencies", 0) + 1
        earliest_end = rows["submit_ms"][earlier] + to_ms(field["run"][source[earlier]])
        rows["eligible_ms"][row] = max(rows["submit_ms"][row], earliest_end + to_ms(np.maximum(think, 0)))
