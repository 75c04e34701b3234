"""Jobs written down in a configuration: one by one, as `sbatch` lines, or as streams that a seed draws.

    workload:
      name: listed
      options:
        jobs:
          - {name: big, tenant: research, at_h: 0.5, hours: 4, pods: 8, gpus: 1}
          - {name: hpc, tenant: chem, at_h: 1, hours: 6, sbatch: "sbatch --nodes=8 --gres=gpu:h100:8 train.sh"}
          - {name: web, tenant: inference, kind: service, hours: 72, gpus: 2, priority: 10}
          - {name: fit, tenant: research, every_h: 0.5, hours: 4, spread: 0.8, pods: 8, gpus: 1}   # a stream

A stream's gaps are exponential with mean `every_h` (`batch` jobs at once), from `at_h` to `until_h` or the horizon; its
run times lognormal with median `hours` and standard deviation `spread` of the logarithm (0 = all alike).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gangline.envs.config import from_mapping, one_of
from gangline.envs.core.building import names_of, trace_of
from gangline.envs.core.spec import HOUR_MS, JobSpec, PodSetSpec, TenantSpec, WorldSpec
from gangline.envs.core.trace import JobTrace
from gangline.envs.core.types import NEVER, ONE_GPU
from gangline.envs.errors import GanglineError
from gangline.envs.files.sbatch import JobRequest, read_command

KINDS = ("training", "batch", "service")
MOST_JOBS = 200_000


@dataclass(frozen=True)
class ListedJob:
    """One entry of the list: a job, or a stream of equal ones."""

    name: str = ""
    tenant: str = ""
    at_h: float = 0.0  # submitted; of a stream: from then on
    hours: float = 1.0  # run time; of a stream: the median
    pods: int = 1
    gpus: float = 1.0  # of a pod
    kind: str = "training"
    min_member: int | None = None
    priority: int = 0
    preemptible: bool = True
    limit_h: float | None = None  # walltime claim, for `claims: own`
    sbatch: str | None = None  # its nodes, GPUs, limit and QOS instead of the above
    every_h: float | None = None  # mean gap: a stream
    batch: int = 1  # jobs that a stream submits at once
    spread: float = 0.0
    until_h: float | None = None


@dataclass(frozen=True)
class _Options:
    jobs: tuple[ListedJob, ...] = field(default_factory=tuple)
    only: tuple[str, ...] | None = None  # tenants whose jobs come; None = all


class Listing:
    """The entries, checked, and the jobs that they stand for.

    Attributes:
        entries: in the order of the list.
        tenants: in order of first appearance.
        requests: by entry, what its `sbatch` line asks for; None without one.
    """

    def __init__(self, options: Mapping[str, Any], resources: Sequence[str], flavors: Sequence[str]) -> None:
        """Check the entries.

        Raises:
            GanglineError: an unknown key, a name that is there twice, a time that makes no sense, a wrong sbatch line.
        """
        given = from_mapping(_Options, options, "workload.options")
        if not given.jobs:
            raise GanglineError("workload.options.jobs is empty, expected at least one job")
        for i, entry in enumerate(given.jobs):
            _check(entry, f"workload.options.jobs[{i}]")
        for tenant in given.only or ():
            one_of("tenant in workload.options.only", tenant, {entry.tenant for entry in given.jobs})
        self.entries = tuple(e for e in given.jobs if given.only is None or e.tenant in given.only)
        self.tenants = tuple(dict.fromkeys(entry.tenant for entry in self.entries))
        self.requests = tuple(None if e.sbatch is None else read_command(e.sbatch) for e in self.entries)
        specs = [_job_spec(e, r, i) for i, (e, r) in enumerate(zip(self.entries, self.requests, strict=True))]
        world = WorldSpec(
            resources=resources, flavors=flavors, tenants=[TenantSpec(name=t) for t in self.tenants], jobs=specs
        )
        self._one_each = trace_of(world, names_of(world))[0]

    @property
    def has_streams(self) -> bool:
        """Whether a seed makes a difference."""
        return any(entry.every_h is not None for entry in self.entries)

    def sample(self, rng: np.random.Generator, horizon_ms: int | None) -> JobTrace:
        """The jobs in order of submission; `source_row` is the entry of each."""
        submit: list[int] = []
        work: list[int] = []
        source: list[int] = []
        for i, (entry, own) in enumerate(zip(self.entries, rng.spawn(len(self.entries)), strict=True)):
            times = _submissions(entry, own, horizon_ms)
            hours = entry.hours * np.exp(entry.spread * own.standard_normal(len(times)))
            submit += times
            work += np.maximum(1, np.rint(hours * HOUR_MS)).astype(int).tolist()
            source += [i] * len(times)
        if len(submit) > MOST_JOBS:
            raise GanglineError(f"the list stands for {len(submit)} jobs, expected at most {MOST_JOBS}")
        order = np.argsort(submit, kind="stable")
        rows = self._one_each.rows[np.array(source, int)[order]].copy()
        rows["submit_ms"] = rows["eligible_ms"] = np.array(submit, np.int64)[order]
        rows["work_ms"] = np.array(work, np.int64)[order]
        rows["source_row"] = np.array(source, int)[order]
        rows["name_rank"] = rows["uid_rank"] = np.arange(len(rows))
        one = self._one_each
        return JobTrace.build(rows, one.pod_sets, one.tenants, one.users, one.resources, one.flavors, one.user_tenant)

    def names_of(self, trace: JobTrace) -> tuple[str, ...]:
        """Name of each job of a sample: the entry's, numbered where it is a stream."""
        seen = [0] * len(self.entries)
        names = []
        for source in trace.rows["source_row"]:
            entry = self.entries[source]
            seen[source] += 1
            names.append(entry.name if entry.every_h is None else f"{entry.name}-{seen[source]}")
        return tuple(names)


def _check(entry: ListedJob, where: str) -> None:
    for key in ("name", "tenant"):
        if not getattr(entry, key):
            raise GanglineError(f"{where}.{key} is missing, expected a name")
    one_of(f"{where}.kind", entry.kind, KINDS)
    for key, least in (("at_h", 0), ("pods", 1), ("gpus", 0), ("spread", 0), ("batch", 1)):
        if not getattr(entry, key) >= least:
            raise GanglineError(f"{where}.{key} is {getattr(entry, key)}, expected at least {least}")
    for key in ("hours", "every_h", "limit_h"):
        value = getattr(entry, key)
        if value is not None and not value > 0:
            raise GanglineError(f"{where}.{key} is {value}, expected more than 0")


def _job_spec(entry: ListedJob, request: JobRequest | None, place: int) -> JobSpec:
    """The entry as a job; submitted at its place in the list, so that rows keep that order."""
    work_ms = max(1, round(entry.hours * HOUR_MS))
    if request is not None:
        spec = request.job_spec(entry.name, tenant=entry.tenant, submit_ms=place, work_ms=work_ms, with_cpus=False)
        return JobSpec(**{**spec.__dict__, "priority": entry.priority, "preemptible": entry.preemptible})
    return JobSpec(
        name=entry.name,
        tenant=entry.tenant,
        submit_ms=place,
        work_ms=work_ms,
        kind=entry.kind,  # type: ignore[arg-type]
        pod_sets=[PodSetSpec(count=entry.pods, request={"gpu": round(entry.gpus * ONE_GPU)})],
        min_member=entry.min_member,
        priority=entry.priority,
        preemptible=entry.preemptible,
        claim_ms=None if entry.limit_h is None else round(entry.limit_h * HOUR_MS),
    )


def _submissions(entry: ListedJob, rng: np.random.Generator, horizon_ms: int | None) -> list[int]:
    """Times of submission, ms, in order."""
    start = entry.at_h * HOUR_MS
    if entry.every_h is None:
        return [round(start)]
    ends = [t for t in (None if entry.until_h is None else entry.until_h * HOUR_MS, horizon_ms) if t is not None]
    if not ends or min(ends) >= NEVER:
        raise GanglineError(f"stream {entry.name!r} has no end, expected until_h or episode.horizon_h")
    times: list[int] = []
    while (start := start + rng.exponential(entry.every_h * HOUR_MS)) < min(ends) and len(times) <= MOST_JOBS:
        times += [round(start)] * entry.batch
    return times
