"""What every workload shares: the `Workload` protocol, how GPUs become pods, and how a file is read.

A loader reads a table once, converts units at the edge (milliseconds, milli-GPU), sorts stably by submission, moves
time so that the first kept submission is 0, and counts whatever it repaired or dropped in `JobTrace.report`. Nothing
is dropped in silence, and every bad value is one line that names the file, the row and what was expected.

Rows are counted as in a spreadsheet without its header: row 1 is the first job of the file. `source_row` in the
trace counts from 0.

Keys that a report may hold, all integers: `rows_read`, `rows_kept`, `dropped_<reason>`, `repaired_<reason>`, plain
counts of what was seen and left as it was (`duplicate_rows`), and `t0_epoch_ms`, the Unix time of time 0 (naive
timestamps are read as UTC).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from gangline.envs.core.spec import DEFAULT_CHECKPOINT_INTERVAL_MS
from gangline.envs.core.trace import JobTrace, new_pod_sets, new_rows
from gangline.envs.core.types import NEVER, ONE_GPU, Outcome
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.files.text import read_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "JobTrace",
    "PodSets",
    "Replay",
    "Workload",
    "chosen",
    "fit",
    "fresh",
    "gang_rows",
    "pods_of",
    "run_ms",
    "with_checkpoints",
]

OVERSIZED = ("reject", "cap", "keep")


@runtime_checkable
class Workload(Protocol):
    """Something that makes jobs. The same generator state gives the same jobs."""

    def sample(self, rng: np.random.Generator) -> JobTrace:
        """A trace of jobs in order of submission, time 0 at the start of the episode or the first job."""
        ...


@dataclass(frozen=True)
class Replay:
    """The workload that is always the same trace."""

    trace: JobTrace

    def sample(self, rng: np.random.Generator) -> JobTrace:
        """The trace; `rng` is not touched."""
        return self.trace


@dataclass(frozen=True)
class PodSets:
    """Jobs cut into pods. Jobs of equal size share their entries of the table, which nobody writes to.

    Attributes:
        table: (num_pod_sets,) POD_SET_ROW.
        first: (num_jobs,) int32, first entry of each job.
        count: (num_jobs,) int32, entries of each job, 1 or 2.
        pods: (num_jobs,) int32, pods of each job over its entries.
    """

    table: np.ndarray
    first: np.ndarray
    count: np.ndarray
    pods: np.ndarray


def pods_of(gpus: np.ndarray, gpus_per_pod: int = 8) -> PodSets:
    """Cut jobs into pods of at most `gpus_per_pod` GPUs: full pods, and one smaller pod for what is left over.

    16 GPUs on 8-GPU nodes are 2 pods of 8; 12 are a pod set of 1 x 8 and one of 1 x 4; 0.5 is one pod of half a GPU.

    Args:
        gpus: (num_jobs,) int64, milli-GPU: a multiple of 1000, or less than 1000.
        gpus_per_pod: whole GPUs; normally those of a node.

    Raises:
        GanglineError: for an amount that is neither whole nor a fraction of one GPU.
    """
    if gpus_per_pod < 1:
        raise GanglineError(f"gpus_per_pod is {gpus_per_pod}, expected at least 1")
    gpus = np.asarray(gpus, np.int64)
    bad = (gpus < 1) | ((gpus > ONE_GPU) & (gpus % ONE_GPU != 0))
    if bad.any():
        job = int(np.flatnonzero(bad)[0])
        raise GanglineError(f"job {job}: {gpus[job]} milli-GPU, expected a multiple of 1000, or 1..999")
    sizes, size_of = np.unique(gpus, return_inverse=True)
    per_pod = gpus_per_pod * ONE_GPU
    full, rest = sizes // per_pod, sizes % per_pod
    num_sets = (full > 0).astype(np.int32) + (rest > 0)
    first = np.cumsum(num_sets) - num_sets
    table = new_pod_sets(int(num_sets.sum()))
    table["asked"] = 1  # bit 0: the GPU is the first resource
    for has, entry, count, request in (
        (full > 0, first, full, np.full_like(sizes, per_pod)),
        (rest > 0, first + (full > 0), np.ones_like(sizes), rest),
    ):
        table["count"][entry[has]] = table["min_count"][entry[has]] = count[has]
        table["request"][entry[has], 0] = request[has]
    pods = (full + (rest > 0)).astype(np.int32)
    return PodSets(table, first[size_of].astype(np.int32), num_sets[size_of].astype(np.int32), pods[size_of])


def gang_rows(
    submit_ms: np.ndarray,
    work_ms: np.ndarray,
    gpus: np.ndarray,
    tenant: np.ndarray,
    *,
    gpus_per_pod: int = 8,
    checkpoint_interval_ms: int | None = DEFAULT_CHECKPOINT_INTERVAL_MS,
) -> tuple[np.ndarray, np.ndarray]:
    """Training jobs that need all their pods and complete: the tables for `JobTrace.build`, which callers refine.

    Args:
        submit_ms: (num_jobs,) int64, in order.
        work_ms: (num_jobs,) int64, run time at full speed.
        gpus: (num_jobs,) int64, milli-GPU of the whole job.
        tenant: (num_jobs,) int32.
        gpus_per_pod: see `pods_of`.
        checkpoint_interval_ms: of progress time; None = no checkpoints.

    Returns: rows (num_jobs,) JOB_ROW, pod sets (num_pod_sets,) POD_SET_ROW.
    """
    pod_sets = pods_of(gpus, gpus_per_pod)
    rows = new_rows(len(submit_ms))
    rows["submit_ms"] = rows["eligible_ms"] = submit_ms
    rows["work_ms"] = work_ms
    rows["tenant"] = tenant
    rows["first_pod_set"] = pod_sets.first
    rows["num_pod_sets"] = pod_sets.count
    rows["min_member"] = pod_sets.pods
    rows["checkpoint_interval_ms"] = NEVER if checkpoint_interval_ms is None else checkpoint_interval_ms
    return rows, pod_sets.table


def run_ms(trace: JobTrace) -> np.ndarray:
    """(num_jobs,) int64: how long each job runs at full speed if it starts when it may: its work, less what a hidden
    failure or its user's cancellation cuts off. Hangs are not counted: a restarted job goes through.
    """
    rows = trace.rows
    run = rows["work_ms"].copy()
    fails = rows["outcome"] == Outcome.FAILED
    run[fails] = np.minimum(run, rows["outcome_ms"])[fails]
    return np.minimum(run, np.maximum(rows["cancel_ms"] - rows["eligible_ms"], 0))


def with_checkpoints(
    trace: JobTrace, interval_ms: int | None, *, cost_ms: int = 0, restart_cost_ms: int = 0
) -> JobTrace:
    """The same jobs, each with a checkpoint every `interval_ms` of progress (None = never)."""
    rows = trace.rows.copy()
    rows["checkpoint_interval_ms"] = NEVER if interval_ms is None else interval_ms
    rows["checkpoint_cost_ms"] = cost_ms
    rows["restart_cost_ms"] = restart_cost_ms
    return fresh(trace, rows)


def fit(trace: JobTrace, capacity_milli_gpus: int, oversized: str = "reject") -> JobTrace:
    """Deal with jobs that ask for more GPUs than the world has, before it is thinned or replayed.

    Args:
        trace: any trace.
        capacity_milli_gpus: GPUs of the world.
        oversized: `reject` drops them, `cap` takes pods away (last ones first) until they fit and leaves their run
            time as it is, `keep` leaves them to the simulator, which rejects them at arrival with a reason.

    Returns: the trace; its report counts `oversized`, and `dropped_oversized` or `repaired_oversized`.
    """
    chosen("oversized", oversized, OVERSIZED)
    too_large = trace.gpus() > capacity_milli_gpus
    report = {**trace.report, "oversized": int(too_large.sum())}
    if not too_large.any() or oversized == "keep":
        return replace(trace, report=report)
    if oversized == "reject":
        report["dropped_oversized"] = report["oversized"]
        report["rows_kept"] = trace.num_jobs - report["oversized"]
        return replace(trace.select(~too_large), report=report)
    report["repaired_oversized"] = report["oversized"]
    rows = trace.rows.copy()
    gpu = trace.resources.index("gpu")
    tables = [trace.pod_sets]
    for job in np.flatnonzero(too_large):
        first, num = rows["first_pod_set"][job], rows["num_pod_sets"][job]
        own = trace.pod_sets[first : first + num].copy()
        left = capacity_milli_gpus
        for i in range(num):
            request = own["request"][i, gpu]
            if i == 0:  # a job keeps at least a part of its first pod
                request = own["request"][i, gpu] = min(request, left // ONE_GPU * ONE_GPU or left)
            own["count"][i] = min(own["count"][i], left // request if request else own["count"][i])
            own["min_count"][i] = min(own["min_count"][i], own["count"][i])
            left -= own["count"][i] * request
        own = own[own["count"] > 0]
        rows["first_pod_set"][job] = sum(len(t) for t in tables)
        rows["num_pod_sets"][job] = len(own)
        rows["min_member"][job] = min(rows["min_member"][job], int(own["count"].sum()))
        tables.append(own)
    return JobTrace.build(
        rows,
        np.concatenate(tables),
        trace.tenants,
        trace.users,
        trace.resources,
        trace.flavors,
        trace.user_tenant,
        report,
    )


def fresh(trace: JobTrace, rows: np.ndarray, report: dict[str, int] | None = None) -> JobTrace:
    """The trace with other rows (times, claims, outcomes; not its pods), checked again."""
    return JobTrace.build(
        rows,
        trace.pod_sets,
        trace.tenants,
        trace.users,
        trace.resources,
        trace.flavors,
        trace.user_tenant,
        trace.report if report is None else report,
    )


def chosen(option: str, value: str, known: Sequence[str]) -> str:
    """`value`, if it is one of `known`."""
    if value not in known:
        raise unknown_name(f"value of {option}", value, known)
    return value


# ---------------------------------------------------------------------------------------------------------------
# Reading files. pandas is imported where it is used: generated workloads do not need its half second.
# ---------------------------------------------------------------------------------------------------------------


def read_table(path: str | Path, what: str, columns: Sequence[str]) -> pd.DataFrame:
    """A CSV file as strings, surrounding blanks stripped from the column names; blank lines are skipped.

    Raises:
        GanglineError: naming the column that is missing.
    """
    import pandas as pd

    text = read_text(path, f"{what} trace")
    try:
        table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False, index_col=False)
    except pd.errors.EmptyDataError:
        raise GanglineError(f"{what} trace {path}: is empty, expected the columns {', '.join(columns)}") from None
    except pd.errors.ParserError as error:
        raise GanglineError(f"{what} trace {path}: not a table ({str(error).strip()})") from None
    table.columns = table.columns.str.strip()
    for column in columns:
        if column not in table.columns:
            found = ", ".join(map(str, table.columns[:12]))
            raise GanglineError(
                f"{what} trace {path}: no column {column!r}; expected {', '.join(columns)}, found {found}"
            )
    return table


def numbers(
    column: pd.Series, where: str, *, at_least: float = -np.inf, whole: bool = False, name: str | None = None
) -> np.ndarray:
    """(num_rows,) float64: a column of text as numbers.

    Args:
        column: text or numbers.
        where: start of the message, `philly trace`.
        at_least: smallest number allowed.
        whole: refuse 1.5.
        name: of the column in messages; the column's own by default.

    Raises:
        GanglineError: naming the first row (from 1) whose value will not do, and the value.
    """
    import pandas as pd

    value = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, copy=True)
    bad = ~np.isfinite(value) | (value < at_least)
    if whole:
        bad |= value != np.floor(value)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        kind = "a whole number" if whole else "a number"
        expected = kind if np.isnan(value[row]) or value[row] >= at_least else f">= {at_least:g}"
        raise bad_value(where, row, name or str(column.name), column.iloc[row], expected)
    return value


def bad_value(where: str, row: int, column: str, value: object, expected: str) -> GanglineError:
    """`philly trace row 812: num_gpus is -1, expected >= 1`; `row` counts from 0 here, from 1 in the message."""
    shown = str(value) if str(value).strip() else "empty"
    return GanglineError(f"{where} row {row + 1}: {column} is {shown}, expected {expected}")


def to_ms(seconds: np.ndarray) -> np.ndarray:
    """Seconds as int64 milliseconds, rounded up."""
    return np.ceil(np.asarray(seconds, np.float64) * 1000).astype(np.int64)
