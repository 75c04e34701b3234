"""`ClusterView`: what a scheduler written in Python may see. Never the hidden truth.

Compiled baselines read the record itself; a test poisons the hidden fields and expects the same decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangline.envs.core.types import NEVER, JobKind, JobState, NodeState, PodState

if TYPE_CHECKING:
    import numpy as np

    from gangline.envs.core.world import World

WAITING = (JobState.QUEUED, JobState.ADMITTED)
HOLDING = (JobState.PARTIAL, JobState.RUNNING, JobState.SUSPENDED)


@dataclass(frozen=True)
class PodSetView:
    """Equal pods of a job: how many it wants, and what each asks for (base units by resource)."""

    count: int
    request: dict[str, int]
    num_bound: int


@dataclass(frozen=True)
class JobView:
    """One live job. Times in ms, GPUs in milli-GPU; None = not set or never."""

    name: str
    tenant: str
    state: str
    kind: str
    priority: int
    preemptible: bool
    min_member: int
    pod_sets: tuple[PodSetView, ...]
    submit_ms: int
    start_ms: int | None
    claim_ms: int | None
    gpus_wanted: int
    gpus_bound: int
    nodes: tuple[str, ...]  # one entry per bound pod


@dataclass(frozen=True)
class NodeView:
    """One node."""

    name: str
    state: str
    flavor: str
    idle: dict[str, int]
    gpu_free: tuple[int, ...]


@dataclass(frozen=True)
class TenantView:
    """One tenant: GPUs (milli) that it holds and wants, its water-filled fair share, its decayed usage."""

    name: str
    weight: int
    held: int
    demand: int
    fair: int
    usage: float


class ClusterView:
    """A world as a scheduler may see it, read when asked for."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def now_ms(self) -> int:
        """The clock, ms."""
        return self._world.now_ms

    def jobs(self) -> Iterator[JobView]:
        """Live jobs, in slot order."""
        record = self._world.record
        for job in record["jobs"][: int(record["jobs_used"])]:
            if job["state"] != JobState.FREE:
                yield self._job(job)

    def waiting(self) -> list[JobView]:
        """Jobs in the queue, by first submission."""
        names = [s.name.lower() for s in WAITING]
        return sorted((j for j in self.jobs() if j.state in names), key=lambda j: (j.submit_ms, j.name))

    def running(self) -> list[JobView]:
        """Jobs that hold pods, by start."""
        names = [s.name.lower() for s in HOLDING]
        return sorted((j for j in self.jobs() if j.state in names), key=lambda j: (j.start_ms or 0, j.name))

    def nodes(self) -> list[NodeView]:
        """Nodes, by index."""
        world = self._world
        views = []
        for n, name in enumerate(world.names.nodes):
            node = world.record["nodes"][n]
            views.append(
                NodeView(
                    name=name,
                    state=NodeState(int(node["state"])).name.lower(),
                    flavor=world.names.flavors[int(node["flavor"])],
                    idle={r: int(node["idle"][i]) for i, r in enumerate(world.names.resources)},
                    gpu_free=tuple(int(g) for g in node["gpu_free"][: int(node["num_gpus"])]),
                )
            )
        return views

    def tenants(self) -> list[TenantView]:
        """Tenants, by index."""
        world = self._world
        world.refresh()
        return [
            TenantView(
                name=name,
                weight=int(t["weight"]),
                held=int(t["held"]),
                demand=int(t["demand"]),
                fair=int(t["fair"]),
                usage=float(t["usage"]),
            )
            for name, t in zip(world.names.tenants, world.record["tenants"], strict=False)
        ]

    def _job(self, job: np.void) -> JobView:
        world = self._world
        return JobView(
            name=world.job_name(int(job["row"])),
            tenant=world.names.tenants[int(job["tenant"])],
            state=JobState(int(job["state"])).name.lower(),
            kind=JobKind(int(job["kind"])).name.lower(),
            priority=int(job["priority"]),
            preemptible=bool(job["preemptible"]),
            min_member=int(job["min_member"]),
            pod_sets=tuple(
                PodSetView(
                    count=int(s["count"]),
                    request={
                        r: int(s["request"][i]) for i, r in enumerate(world.names.resources) if s["asked"] >> i & 1
                    },
                    num_bound=int(s["num_bound"]),
                )
                for s in world.pod_sets_of(job)
            ),
            submit_ms=int(job["submit_ms"]),
            start_ms=None if job["start_ms"] >= NEVER else int(job["start_ms"]),
            claim_ms=None if job["claim_ms"] >= NEVER else int(job["claim_ms"]),
            gpus_wanted=int(job["gpus_wanted"]),
            gpus_bound=int(job["gpus_bound"]),
            nodes=tuple(world.names.nodes[int(p["node"])] for p in world.pods_of(job) if p["state"] == PodState.BOUND),
        )
