"""Microsoft Philly, flattened to one row per job: `timestamp,duration,num_gpus,gpu_time,cluster`.

Source: siasosp23/artifacts `sia-simulator/traces/philly.csv` (commit aaf7a0d); data (c) Microsoft, CC BY 4.0, Jeon et
al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019.

The file has no users, job ids, states or queue delays; the tenant is the virtual cluster. Its rows are not in order
of time, and 65 of them are exact duplicates of another: within bursts of a second, so they are kept unless asked
otherwise. Four of its fifteen virtual clusters have 18 jobs together.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gangline.envs.core.spec import DEFAULT_CHECKPOINT_INTERVAL_MS
from gangline.envs.core.types import ONE_GPU
from gangline.envs.errors import GanglineError
from gangline.envs.workloads.base import (
    OVERSIZED,
    JobTrace,
    bad_value,
    chosen,
    gang_rows,
    numbers,
    read_table,
    to_ms,
)

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
TRIVIAL_TENANTS = ("23dbec", "51b7ef", "795a4c", "925e2b")

# 8-GPU nodes per virtual cluster, an assumption of the Helios authors, not a published quota table.
# Source: S-Lab-System-Group/HeliosArtifact `framework/QSSF Service/data/philly_vc.csv` (commit bdaae10), MIT.
NODES_BY_TENANT = {
    "0e4a51": 32,
    "103959": 8,
    "11cb48": 16,
    "2869ce": 16,
    "6214e9": 64,
    "6c71a0": 32,
    "7f04ca": 32,
    "b436b2": 64,
    "e13805": 16,
    "ed69ec": 8,
    "ee9e8c": 64,
}


def load(
    path: str | Path,
    *,
    oversized: str = "reject",
    capacity_gpus: int | None = None,
    drop_duplicates: bool = False,
    trivial_tenants: str = "keep",
    zero_duration: str = "repair",
    gpus_per_pod: int = 8,
    checkpoint_interval_ms: int | None = DEFAULT_CHECKPOINT_INTERVAL_MS,
) -> JobTrace:
    """Read the file.

    Args:
        path: `philly.csv` or `philly.csv.gz`.
        oversized: jobs larger than `capacity_gpus`: `reject` drops them, `cap` makes them as large as the cluster with
            the same run time, `keep` leaves them to the simulator, which rejects them at arrival.
        capacity_gpus: GPUs of the world; None = every job fits.
        drop_duplicates: drop all but the first of equal rows.
        trivial_tenants: `keep` the four virtual clusters with a handful of jobs, `merge` them into `other`, or `drop`
            them. The statistics of 2017-10-09..11-05 that are usually quoted (38,463 jobs) are those with `drop` and
            without duplicates.
        zero_duration: a job of 0 s is given 1 s (`repair`), or dropped (`drop`). The public file has none.
        gpus_per_pod: GPUs of a node; a job becomes pods of at most that many.
        checkpoint_interval_ms: of progress time; None = no checkpoints.

    Returns: training jobs that complete, without walltime claims (`claims.py` makes them). Report: `rows_read`,
        `rows_kept`, `out_of_order`, `duplicate_rows`, `gpu_time_mismatch`, `oversized`, `dropped_*`, `repaired_*`,
        `merged_trivial_tenant`, `t0_epoch_ms`.

    Raises:
        GanglineError: no such file, a missing column, or the first row with a value that makes no sense.
    """
    import pandas as pd

    chosen("oversized", oversized, OVERSIZED)
    chosen("trivial_tenants", trivial_tenants, ("keep", "merge", "drop"))
    chosen("zero_duration", zero_duration, ("repair", "drop"))
    if oversized == "cap" and capacity_gpus is None:
        raise GanglineError("oversized is 'cap', expected capacity_gpus with it: the GPUs of the world")

    table = read_table(path, "philly", COLUMNS)
    where = "philly trace"
    duration_s = numbers(table["duration"], where, at_least=0)
    gpus = numbers(table["num_gpus"], where, at_least=1, whole=True).astype(np.int64)
    time = pd.to_datetime(table["timestamp"], format="%Y-%m-%d %H:%M:%S", errors="coerce")
    for bad, column, expected in (
        (time.isna().to_numpy(), "timestamp", "YYYY-MM-DD HH:MM:SS"),
        ((table["cluster"].str.strip() == "").to_numpy(), "cluster", "the name of a virtual cluster"),
    ):
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise bad_value(where, row, column, table[column].iloc[row], expected)
    epoch_ms = time.to_numpy().astype("datetime64[ms]").astype(np.int64)
    cluster = table["cluster"].str.strip().to_numpy(dtype=object)

    report = {"rows_read": len(table), "out_of_order": int((np.diff(epoch_ms) < 0).sum())}
    is_duplicate = table.duplicated(list(COLUMNS)).to_numpy()
    report["duplicate_rows"] = int(is_duplicate.sum())
    if "gpu_time" in table.columns:
        gpu_time = pd.to_numeric(table["gpu_time"], errors="coerce").to_numpy(np.float64)
        report["gpu_time_mismatch"] = int((~np.isclose(gpu_time, duration_s * gpus)).sum())

    keep = np.ones(len(table), bool)

    def drop(bad: np.ndarray, reason: str) -> None:
        report[f"dropped_{reason}"] = int((keep & bad).sum())
        keep[bad] = False

    if drop_duplicates:
        drop(is_duplicate, "duplicate")
    is_trivial = np.isin(cluster.astype(str), TRIVIAL_TENANTS)
    if trivial_tenants == "drop":
        drop(is_trivial, "trivial_tenant")
    elif trivial_tenants == "merge":
        report["merged_trivial_tenant"] = int((keep & is_trivial).sum())
        cluster[is_trivial] = "other"
    is_zero = duration_s == 0
    if zero_duration == "drop":
        drop(is_zero, "zero_duration")
    else:
        report["repaired_zero_duration"] = int((keep & is_zero).sum())
        duration_s[is_zero] = 1
    if capacity_gpus is not None:
        is_oversized = gpus > capacity_gpus
        report["oversized"] = int((keep & is_oversized).sum())
        if oversized == "reject":
            drop(is_oversized, "oversized")
        elif oversized == "cap":
            report["repaired_oversized"] = report["oversized"]
            gpus = np.minimum(gpus, capacity_gpus)

    source = np.flatnonzero(keep)
    source = source[np.argsort(epoch_ms[source], kind="stable")]
    tenants, tenant = np.unique(cluster[source].astype(str), return_inverse=True)
    report["rows_kept"] = len(source)
    if not len(source):
        raise GanglineError(f"philly trace {path}: no job is left of {len(table)} rows; expected at least one")
    report["t0_epoch_ms"] = int(epoch_ms[source[0]])
    rows, pod_sets = gang_rows(
        epoch_ms[source] - report["t0_epoch_ms"],
        to_ms(duration_s[source]),
        gpus[source] * ONE_GPU,
        tenant.astype(np.int32),
        gpus_per_pod=gpus_per_pod,
        checkpoint_interval_ms=checkpoint_interval_ms,
    )
    rows["source_row"] = source
    return JobTrace.build(rows, pod_sets, tenants.tolist(), report=report)
