"""Builders for stories: `world(nodes=nodes(8, 7), jobs=[gang("a", 2, gpus=8)])` reads as what it means.

Times are given in minutes, GPUs in GPUs (fractions allowed); the specs that come out are in milliseconds and milli-GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gangline.envs.core.spec import (
    MINUTE_MS,
    Command,
    DomainSpec,
    JobSpec,
    NodeSpec,
    OptionsSpec,
    PodSetSpec,
    QueueSpec,
    QuotaSpec,
    TenantSpec,
    WorldSpec,
)


def minutes(number: float) -> int:
    """Minutes in milliseconds."""
    return round(number * MINUTE_MS)


def milli(gpus: float) -> int:
    """GPUs in milli-GPU."""
    return round(gpus * 1000)


# ---------------------------------------------------------------------------------------------------------------
# The cluster
# ---------------------------------------------------------------------------------------------------------------


def nodes(*gpus: int, **fields: Any) -> list[NodeSpec]:
    """`nodes(8, 7)`: n0 with 8 GPUs and n1 with 7. More resources by `amounts=`."""
    more = fields.pop("amounts", {})
    return [NodeSpec(name=f"n{i}", amounts={"gpu": milli(g), **more}, **fields) for i, g in enumerate(gpus)]


def racks(*per_rack: int, gpus: int = 8) -> tuple[list[NodeSpec], list[DomainSpec]]:
    """`racks(2, 2)`: n0, n1 in rack0 and n2, n3 in rack1; both racks in one block of tier 2."""
    domains = [DomainSpec(name="block", tier=2)]
    members = []
    for rack, size in enumerate(per_rack):
        domains.append(DomainSpec(name=f"rack{rack}", tier=1, parent="block"))
        for _ in range(size):
            place = {"default": f"rack{rack}"}
            members.append(NodeSpec(name=f"n{len(members)}", amounts={"gpu": milli(gpus)}, domains=place))
    return members, domains


def cohort(name: str, parent: str | None = None, **gpu_quota: float | None) -> QueueSpec:
    """A cohort; `nominal=`, `borrowing_limit=`, `lending_limit=` in GPUs."""
    return _queue(name, parent, True, gpu_quota)


def queue(name: str, parent: str | None = None, **gpu_quota: float | None) -> QueueSpec:
    """A queue; `nominal=`, `borrowing_limit=`, `lending_limit=` in GPUs."""
    return _queue(name, parent, False, gpu_quota)


def _queue(name: str, parent: str | None, is_cohort: bool, gpu_quota: Mapping[str, float | None]) -> QueueSpec:
    quota = QuotaSpec(**{k: None if v is None else milli(v) for k, v in gpu_quota.items()})  # type: ignore[arg-type]
    return QueueSpec(name=name, parent=parent, is_cohort=is_cohort, quotas={("default", "gpu"): quota})


# ---------------------------------------------------------------------------------------------------------------
# Jobs
# ---------------------------------------------------------------------------------------------------------------


def gang(
    name: str,
    workers: int,
    *,
    gpus: float = 1,
    tenant: str = "t0",
    work_min: float = 60,
    checkpoint_min: float | None = 30,
    checkpoint_cost_min: float = 0,
    restart_cost_min: float = 0,
    submit_min: float = 0,
    **fields: Any,
) -> JobSpec:
    """A training job: `workers` pods of `gpus` GPUs that start together unless `min_member` says fewer will do."""
    return JobSpec(
        name=name,
        tenant=tenant,
        pod_sets=[PodSetSpec(count=workers, request={"gpu": milli(gpus)}, min_count=fields.pop("min_count", None))],
        work_ms=minutes(work_min),
        checkpoint_interval_ms=None if checkpoint_min is None else minutes(checkpoint_min),
        checkpoint_cost_ms=minutes(checkpoint_cost_min),
        restart_cost_ms=minutes(restart_cost_min),
        submit_ms=minutes(submit_min),
        **fields,
    )


def batch(name: str, pods: int, **fields: Any) -> JobSpec:
    """A job of independent pods."""
    return gang(name, pods, kind="batch", **fields)


def service(name: str, replicas: int, **fields: Any) -> JobSpec:
    """A resident job."""
    return gang(name, replicas, kind="service", **fields)


# ---------------------------------------------------------------------------------------------------------------
# The world and what is done in it
# ---------------------------------------------------------------------------------------------------------------


def world(
    nodes: Sequence[NodeSpec], jobs: Sequence[JobSpec] = (), *, weights: Mapping[str, int] | None = None, **fields: Any
) -> WorldSpec:
    """A world; tenants are those of the jobs unless `weights` names them. World options may be given by name."""
    names = weights or dict.fromkeys([j.tenant for j in jobs] or ["t0"], 1)
    spec_fields = {k: fields.pop(k) for k in list(fields) if k in WorldSpec.__dataclass_fields__}
    return WorldSpec(
        nodes=nodes,
        jobs=jobs,
        tenants=spec_fields.pop("tenants", [TenantSpec(name=t, weight=w) for t, w in names.items()]),
        options=OptionsSpec(**fields),
        **spec_fields,
    )


def place(job: str, node: str, pods: int = 1, **fields: Any) -> Command:
    """Bind pods of the first pod set, unless `pod_set=` names another."""
    return Command(op="place", job=job, node=node, pods=pods, **{"pod_set": 0, **fields})


def admit(job: str, pods: int, flavor: str = "default", **fields: Any) -> Command:
    """Reserve quota for GPUs of one flavor."""
    return Command(op="admit", job=job, pods=pods, **{"pod_set": 0, "flavors": {"gpu": flavor}, **fields})


def evict(job: str, pods: int | None = None, *, grace_min: float = 0, **fields: Any) -> Command:
    """Evict pods, all unless a number is given."""
    return Command(op="evict", job=job, pods=pods, grace_ms=minutes(grace_min), **fields)
