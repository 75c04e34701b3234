"""`JobTrace`: the jobs of a workload as read-only tables, the form in which the simulator reads them.

A loader or a generator fills `rows` and `pod_sets`; `JobTrace.build` then checks every value and numbers the
*shapes* (jobs with equal pod sets, gang minimum and topology wish) and *groups* (tenant, shape), so that a
scheduler that has found no room for one job knows it for all of its shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gangline.envs.core.types import (
    JOB_ROW,
    MAX_FLAVORS,
    MAX_RESOURCES,
    NEVER,
    NONE,
    ONE_GPU,
    POD_SET_ROW,
    JobKind,
    Outcome,
)
from gangline.envs.errors import GanglineError


@dataclass(frozen=True)
class JobTrace:
    """Jobs in order of submission.

    Attributes:
        rows: (num_jobs,) JOB_ROW.
        pod_sets: (num_pod_sets,) POD_SET_ROW; row j owns `[first_pod_set, first_pod_set + num_pod_sets)`.
        tenants: names by tenant index.
        users: names by user index, may be empty.
        resources: names by resource index.
        flavors: names by flavor index.
        user_tenant: (num_users,) tenant of each user.
        report: what a loader read, kept, repaired and dropped, for people.
    """

    rows: np.ndarray
    pod_sets: np.ndarray
    tenants: tuple[str, ...]
    users: tuple[str, ...] = ()
    resources: tuple[str, ...] = ("gpu",)
    flavors: tuple[str, ...] = ("default",)
    user_tenant: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    report: dict[str, int] = field(default_factory=dict)

    @property
    def num_jobs(self) -> int:
        """Number of jobs."""
        return len(self.rows)

    @property
    def num_shapes(self) -> int:
        """Number of distinct shapes."""
        return int(self.rows["shape"].max()) + 1 if len(self.rows) else 0

    @property
    def num_groups(self) -> int:
        """Number of distinct (tenant, shape) pairs."""
        return int(self.rows["group"].max()) + 1 if len(self.rows) else 0

    def gpus(self) -> np.ndarray:
        """(num_jobs,) int64: milli-GPU that each job asks for with all its pods."""
        return self.amounts("gpu") if "gpu" in self.resources else np.zeros(self.num_jobs, np.int64)

    def amounts(self, resource: str) -> np.ndarray:
        """(num_jobs,) int64: what each job asks for of a resource with all its pods, base units."""
        per_set = self.pod_sets["count"].astype(np.int64) * self.pod_sets["request"][:, self.resources.index(resource)]
        total = np.concatenate([[0], np.cumsum(per_set)])
        first = self.rows["first_pod_set"]
        return total[first + self.rows["num_pod_sets"]] - total[first]

    def select(self, chosen: np.ndarray) -> JobTrace:
        """The jobs of a boolean mask or an index array, in their order; shapes and groups are numbered anew.

        Dependencies on jobs that are not chosen are dropped.
        """
        index = np.flatnonzero(chosen) if chosen.dtype == bool else np.asarray(chosen)
        rows = self.rows[index].copy()
        new_place = np.full(self.num_jobs + 1, NONE, np.int32)
        new_place[index] = np.arange(len(index), dtype=np.int32)
        rows["after_row"] = new_place[rows["after_row"]]  # NONE indexes the extra last entry
        return JobTrace.build(
            rows, self.pod_sets, self.tenants, self.users, self.resources, self.flavors, self.user_tenant, self.report
        )

    @staticmethod
    def build(
        rows: np.ndarray,
        pod_sets: np.ndarray,
        tenants: Sequence[str],
        users: Sequence[str] = (),
        resources: Sequence[str] = ("gpu",),
        flavors: Sequence[str] = ("default",),
        user_tenant: np.ndarray | None = None,
        report: dict[str, int] | None = None,
        first_unordered: int = 0,
    ) -> JobTrace:
        """Check the tables, number shapes and groups, and freeze them.

        The first `first_unordered` rows, jobs that are there before the world begins, are in an order of their own.

        Raises:
            GanglineError: naming the first bad row and column.
        """
        rows = rows.copy()
        pod_sets = pod_sets.copy()
        _check(rows, pod_sets, tuple(tenants), tuple(resources), first_unordered)
        rows["has_dependents"] = False
        depends = rows["after_row"][rows["after_row"] >= 0]
        rows["has_dependents"][depends] = True
        rows["shape"] = _number_shapes(rows, pod_sets)
        pair = rows["tenant"].astype(np.int64) * (int(rows["shape"].max(initial=0)) + 1) + rows["shape"]
        rows["group"] = np.unique(pair, return_inverse=True)[1].astype(np.int32)
        rows.setflags(write=False)
        pod_sets.setflags(write=False)
        return JobTrace(
            rows,
            pod_sets,
            tuple(tenants),
            tuple(users),
            tuple(resources),
            tuple(flavors),
            np.zeros(0, np.int32) if user_tenant is None else user_tenant,
            report or {},
        )


def new_rows(num_jobs: int) -> np.ndarray:
    """(num_jobs,) JOB_ROW with every column at its default: a training job that completes, one pod set each."""
    rows = np.zeros(num_jobs, JOB_ROW)
    for column in ("cancel_ms", "outcome_ms", "claim_ms", "checkpoint_interval_ms"):
        rows[column] = NEVER
    rows["num_pod_sets"] = 1
    rows["first_pod_set"] = np.arange(num_jobs)
    rows["after_row"] = NONE
    rows["user"] = NONE
    rows["queue"] = NONE
    rows["min_member"] = 1
    rows["preemptible"] = True
    rows["requeue"] = True
    rows["kind"] = JobKind.TRAINING
    rows["outcome"] = Outcome.DONE
    rows["topology"] = NONE
    rows["source_row"] = np.arange(num_jobs)
    rows["name_rank"] = np.arange(num_jobs)
    rows["uid_rank"] = np.arange(num_jobs)
    return rows


def new_pod_sets(num_pod_sets: int) -> np.ndarray:
    """(num_pod_sets,) POD_SET_ROW: one pod that asks for nothing, any flavor."""
    pod_sets = np.zeros(num_pod_sets, POD_SET_ROW)
    pod_sets["count"] = 1
    pod_sets["min_count"] = 1
    pod_sets["flavors"] = np.arange(MAX_FLAVORS, dtype=np.int8)
    return pod_sets


def _number_shapes(rows: np.ndarray, pod_sets: np.ndarray) -> np.ndarray:
    """(num_jobs,) int32: equal numbers for jobs that any placement treats alike, numbered by first appearance."""
    if not len(rows):
        return np.zeros(0, np.int32)
    per_set = np.unique(_as_bytes(pod_sets), return_inverse=True)[1]
    most = int(rows["num_pod_sets"].max())
    key = np.full((len(rows), most + 5), NONE, np.int64)
    for i in range(most):
        has = rows["num_pod_sets"] > i
        key[has, i] = per_set[rows["first_pod_set"][has] + i]
    for i, column in enumerate(("min_member", "topology_wish", "topology_tier", "topology", "kind")):
        key[:, most + i] = rows[column]
    _, first, shape = np.unique(key, axis=0, return_index=True, return_inverse=True)
    by_appearance = np.argsort(np.argsort(first))
    return by_appearance[shape.ravel()].astype(np.int32)


def _as_bytes(records: np.ndarray) -> np.ndarray:
    """(n,) void: records as comparable bytes, padding zeroed."""
    packed = np.zeros(len(records), np.dtype([(n, records.dtype[n]) for n in records.dtype.names or ()]))
    for name in packed.dtype.names or ():
        packed[name] = records[name]
    return packed.view(np.dtype((np.void, packed.dtype.itemsize))).ravel()


def _check(
    rows: np.ndarray, pod_sets: np.ndarray, tenants: tuple[str, ...], resources: tuple[str, ...], first_unordered: int
) -> None:
    """Refuse what the simulator could not run, naming the first offender."""
    if len(resources) > MAX_RESOURCES:
        raise GanglineError(f"{len(resources)} resources ({', '.join(resources)}), expected at most {MAX_RESOURCES}")
    end = rows["first_pod_set"] + rows["num_pod_sets"]
    request = pod_sets["request"]
    gpu = request[:, resources.index("gpu")] if "gpu" in resources else np.zeros(len(pod_sets), np.int64)
    goes_back = np.diff(rows["submit_ms"], prepend=rows["submit_ms"][:1]) < 0
    goes_back[: first_unordered + 1] = False
    for bad, table, column, expected in (
        (goes_back, rows, "submit_ms", "rows in order of submission"),
        (rows["eligible_ms"] < rows["submit_ms"], rows, "eligible_ms", "not before submit_ms"),
        (rows["work_ms"] <= 0, rows, "work_ms", "at least 1"),
        (rows["work_ms"] > NEVER // 4000, rows, "work_ms", "a finite run time"),
        (rows["claim_ms"] <= 0, rows, "claim_ms", "at least 1"),
        (rows["outcome_ms"] < 0, rows, "outcome_ms", "at least 0"),
        (rows["checkpoint_interval_ms"] <= 0, rows, "checkpoint_interval_ms", "at least 1, or NEVER"),
        (rows["checkpoint_cost_ms"] < 0, rows, "checkpoint_cost_ms", "at least 0"),
        (rows["restart_cost_ms"] < 0, rows, "restart_cost_ms", "at least 0"),
        ((rows["tenant"] < 0) | (rows["tenant"] >= len(tenants)), rows, "tenant", f"an index below {len(tenants)}"),
        (rows["num_pod_sets"] < 1, rows, "num_pod_sets", "at least 1"),
        ((rows["first_pod_set"] < 0) | (end > len(pod_sets)), rows, "first_pod_set", "inside the pod-set table"),
        (rows["min_member"] < 1, rows, "min_member", "at least 1"),
        ((rows["after_row"] >= np.arange(len(rows))), rows, "after_row", "an earlier row, or NONE"),
        (pod_sets["count"] < 0, pod_sets, "count", "at least 0"),
        ((pod_sets["min_count"] < 0) | (pod_sets["min_count"] > pod_sets["count"]), pod_sets, "min_count", "0..count"),
        ((request < 0).any(axis=1), pod_sets, "request", "at least 0"),
        ((gpu > ONE_GPU) & (gpu % ONE_GPU != 0), pod_sets, "request", "whole GPUs, or a fraction of one (milli-GPU)"),
    ):
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            name = "job row" if table is rows else "pod set"
            raise GanglineError(f"trace {name} {first}: {column} is {table[column][first]}, expected {expected}")
    pods = np.concatenate([[0], np.cumsum(pod_sets["count"])])
    too_high = rows["min_member"] > np.maximum(pods[end] - pods[rows["first_pod_set"]], 1)
    if too_high.any():
        first = int(np.flatnonzero(too_high)[0])
        raise GanglineError(
            f"trace job row {first}: min_member is {rows['min_member'][first]}, expected at most the number of its pods"
        )
