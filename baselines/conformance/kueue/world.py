"""A recorded case of Kueue as a world: what the core runs, and what only Kueue knows of it.

Units: the records count whole GPUs; where a world has nodes with at most 16 GPUs each, GPUs are device-backed and
counted in milli-GPU. In a world without nodes, or with larger ones, they are a scalar resource in the record's units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gangline.envs.core.spec import (
    HOUR_MS,
    Admission,
    DomainSpec,
    JobSpec,
    LiveSpec,
    NodeSpec,
    OptionsSpec,
    PlacedPods,
    PodSetSpec,
    QueueSpec,
    QuotaSpec,
    TenantSpec,
    TopologyWish,
    WorldSpec,
)
from gangline.envs.core.types import MAX_GPUS_PER_NODE, ONE_GPU

WORK_MS = 10_000 * HOUR_MS  # jobs of records without run times: they do not end by themselves
UNLIMITED = 1 << 60  # sums of a few of them stay within int64

Case = Mapping[str, Any]


class Loaded(NamedTuple):
    """A recorded case as a world, and what the core does not know of it."""

    world: WorldSpec
    private: dict[str, dict[str, Any]]  # by job name
    system: dict[str, Any]


def without(record: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """`record` less these keys."""
    return {key: value for key, value in record.items() if key not in keys}


class Units:
    """The amounts of a record in the core's units, and back."""

    def __init__(self, gpu_resource: str | None) -> None:
        self.gpu_resource = gpu_resource

    def scale(self, resource: str) -> int:
        """Base units of the core in one unit of the record."""
        return ONE_GPU if resource == self.gpu_resource else 1

    def to_core(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """Amounts of a record in the core's units."""
        return {resource: amount * self.scale(resource) for resource, amount in amounts.items()}

    def to_core_cells(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """The same for amounts by `flavor/resource`, less those of 0."""
        return {cell: v * self.scale(cell.partition("/")[2]) for cell, v in amounts.items() if v}

    def to_record(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """Amounts of the core in the record's units."""
        return {resource: amount // self.scale(resource) for resource, amount in amounts.items()}


def device_backed(node_amounts: Iterable[Mapping[str, int]]) -> str | None:
    """The GPU resource if nodes offer one and none of them has too many of it, else None."""
    most: Counter[str] = Counter()
    for amounts in node_amounts:
        for resource, amount in amounts.items():
            if resource.endswith("gpu"):
                most[resource] = max(most[resource], amount)
    small = [resource for resource, amount in sorted(most.items()) if amount <= MAX_GPUS_PER_NODE]
    return small[0] if small else None


TAS_JOB = "workload"  # the only job of a `tas` case
USAGE_JOB = "usage of "  # a job that stands for the usage put on a queue directly
COHORT = "cohort/"  # queues and cohorts have names of their own kind; in the core they share one


def kueue_world(case: Case) -> Loaded:
    """A Kueue case: quotas, cohorts, workloads with their reservations; nodes and topology where it has them."""
    nodes = list(kueue_nodes(case))
    units = Units(device_backed(node["free"] for node in nodes))
    flavors = _kueue_flavors(case)
    jobs: list[JobSpec] = []
    private: dict[str, dict[str, Any]] = {}
    covered = {queue["name"]: _covered(queue) for queue in case.get("queues", [])}
    for queue, usage in case.get("usage", {}).items():
        jobs.append(_kueue_usage(queue, usage))
        private[jobs[-1].name] = {"is_usage": True}
    for workload in case.get("admitted", []):
        jobs.append(_kueue_admitted(workload, nodes, units))
    for workload in kueue_pending(case):
        arrives = "steps" in case and "pending" not in case
        jobs.append(
            _kueue_waiting(workload, case, flavors, units, arrives, "pods" in covered.get(workload["queue"], ()))
        )
    for workload in [*case.get("admitted", []), *kueue_pending(case)]:
        private[workload["name"]] = {
            **without(workload, "name", "queue", "priority", "created", "uid", "reserved_at"),
            "pod_sets": [
                without(p, "count", "min_count", "per_pod", "usage", "flavors", "ineligible_flavors")
                for p in workload["pod_sets"]
            ],
        }
    queues = [*_kueue_cohorts(case, units), *_kueue_queues(case, units)]
    tenants = [TenantSpec(name=queue["name"]) for queue in case.get("queues", [])] or [TenantSpec(name=TAS_JOB)]
    resources = _kueue_resources(case, nodes, queues, jobs)
    world = WorldSpec(
        resources=resources,
        gpu_resource=units.gpu_resource,
        pods_resource="pods" if nodes else None,
        flavors=flavors,
        nodes=[_kueue_node(node, units) for node in nodes],
        domains=list(_kueue_domains(nodes)),
        queues=queues,
        tenants=tenants,
        jobs=jobs,
        options=OptionsSpec(
            quota="enforced" if queues else "off", reject_oversized=False, half_life_ms=None, locality_topology=""
        ),
        now_ms=max([0, *(job.submit_ms for job in jobs if job.live)]),  # some upstream jobs are created after "now"
    )
    system = {
        **without(case, "cohorts", "queues", "usage", "admitted", "pending", "nodes", "topologies", "pod_sets"),
        "queues": {queue["name"]: without(queue, "name", "cohort", "fair_weight") for queue in case.get("queues", [])},
        "levels": {flavor: levels for flavor, levels, _ in kueue_topologies(case)},
    }
    return Loaded(world, private, system)


def kueue_topologies(case: Case) -> list[tuple[str, list[str], list[dict[str, Any]]]]:
    """(flavor, level names from coarse to fine, nodes) of each topology."""
    if "levels" in case:
        return [("default", case["levels"], case["nodes"])]
    return [(flavor, t["levels"], t["nodes"]) for flavor, t in case.get("topologies", {}).items()]


def kueue_nodes(case: Case) -> Iterator[dict[str, Any]]:
    """Nodes of all topologies of a case, each with its flavor and the number of levels."""
    for flavor, levels, nodes in kueue_topologies(case):
        for node in nodes:
            yield {**node, "flavor": flavor, "num_levels": len(levels)}


def _kueue_node(node: dict[str, Any], units: Units) -> NodeSpec:
    return NodeSpec(
        name=node["name"],
        amounts=units.to_core(node["free"]),
        flavor=node["flavor"],
        domains={node["flavor"]: "/".join(node["path"])},
    )


def _kueue_domains(nodes: Iterable[dict[str, Any]]) -> Iterator[DomainSpec]:
    """A domain for every prefix of a node's path: values repeat under different parents, paths do not."""
    seen = set()
    for node in nodes:
        for depth in range(1, node["num_levels"] + 1):
            path = node["path"][:depth]
            if (node["flavor"], *path) not in seen:
                seen.add((node["flavor"], *path))
                yield DomainSpec(
                    name="/".join(path),
                    topology=node["flavor"],
                    parent="/".join(path[:-1]) or None,
                    tier=node["num_levels"] - depth + 1,
                )


def kueue_pending(case: Case) -> list[dict[str, Any]]:
    """Workloads that wait, of whatever form the case gives them in."""
    if "levels" in case:
        return [
            {"name": TAS_JOB, "queue": TAS_JOB, "priority": 0, "created": 0, "uid": "", "pod_sets": case["pod_sets"]}
        ]
    pending = case.get("pending", [])
    if isinstance(pending, dict):
        return [pending]
    return pending + [w for step in case.get("steps", []) if step["op"] == "arrive" for w in step["workloads"]]


def _kueue_flavors(case: Case) -> tuple[str, ...]:
    """Names in the order in which queues, cohorts, usage and topologies name them first."""
    names = [
        f["name"] for queue in case.get("queues", []) for group in queue["resource_groups"] for f in group["flavors"]
    ]
    names += [flavor for cohort in case.get("cohorts", []) for flavor in cohort["quotas"]]
    names += [step["flavor"] for step in case.get("steps", []) if step["op"] == "quota"]
    names += [flavor for usage in case.get("usage", {}).values() for flavor in usage]
    names += [flavor for flavor, _, _ in kueue_topologies(case)]
    for workload in kueue_pending(case):
        names += [flavor for p in workload["pod_sets"] for flavor in p.get("ineligible_flavors", [])]
    return tuple(dict.fromkeys(names)) or ("default",)


def _kueue_resources(
    case: Case, nodes: list[dict[str, Any]], queues: list[QueueSpec], jobs: list[JobSpec]
) -> tuple[str, ...]:
    names = [resource for queue in queues for _, resource in queue.quotas]
    names += [resource for node in nodes for resource in node["free"]]
    names += [resource for job in jobs for p in job.pod_sets for resource in p.request]
    return tuple(sorted({*names, "pods"} if nodes else set(names)))  # ties of dominant resources go by name


def _kueue_quota(quota: Mapping[str, Any], resource: str, units: Units) -> QuotaSpec:
    def amount(key: str) -> int | None:
        value = quota[key]
        if value is None:
            return None
        return UNLIMITED if value == "inf" else int(value) * units.scale(resource)

    return QuotaSpec(
        nominal=amount("nominal") or 0,
        borrowing_limit=amount("borrowing_limit"),
        lending_limit=amount("lending_limit"),
    )


def cells_of(owner: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(flavor, resource, quota) of a queue or cohort."""
    for group in owner.get("resource_groups", []):
        for flavor in group["flavors"]:
            for resource, quota in flavor["quotas"].items():
                yield flavor["name"], resource, quota
    for flavor, quotas in owner.get("quotas", {}).items():
        for resource, quota in quotas.items():
            yield flavor, resource, quota


def _changed_cells(case: Case, kind: str, name: str) -> dict[tuple[str, str], QuotaSpec]:
    """Cells that a later quota step names, with no quota: a cell has to be there from the beginning."""
    return {
        (step["flavor"], step["resource"]): QuotaSpec()
        for step in case.get("steps", [])
        if step["op"] == "quota" and step["node"] == kind and step["name"] == name
    }


def _kueue_cohorts(case: Case, units: Units) -> Iterator[QueueSpec]:
    for cohort in case.get("cohorts", []):
        yield QueueSpec(
            name=COHORT + cohort["name"],
            parent=COHORT + cohort["parent"] if cohort["parent"] else None,
            is_cohort=True,
            weight=round(cohort["fair_weight"] * 1000),
            quotas=_changed_cells(case, "cohort", cohort["name"])
            | {(f, r): _kueue_quota(q, r, units) for f, r, q in cells_of(cohort)},
        )


def _kueue_queues(case: Case, units: Units) -> Iterator[QueueSpec]:
    for queue in case.get("queues", []):
        yield QueueSpec(
            name=queue["name"],
            parent=COHORT + queue["cohort"] if queue["cohort"] else None,
            weight=round(queue["fair_weight"] * 1000),
            quotas=_changed_cells(case, "queue", queue["name"])
            | {(f, r): _kueue_quota(q, r, units) for f, r, q in cells_of(queue)},
        )


def _covered(queue: Mapping[str, Any]) -> set[str]:
    return {resource for group in queue["resource_groups"] for resource in group["resources"]}


def _kueue_usage(queue: str, usage: Mapping[str, Mapping[str, int]]) -> JobSpec:
    """Usage without a workload: a job of one pod per flavor that holds it."""
    return JobSpec(
        name=USAGE_JOB + queue,
        tenant=queue,
        work_ms=WORK_MS,
        checkpoint_interval_ms=None,
        pod_sets=[PodSetSpec(count=1, request=dict(amounts)) for amounts in usage.values()],
        live=LiveSpec(
            admissions=[
                Admission(pod_set=i, count=1, flavors=dict.fromkeys(amounts, flavor))
                for i, (flavor, amounts) in enumerate(usage.items())
            ]
        ),
    )


def _kueue_admitted(workload: Mapping[str, Any], nodes: list[dict[str, Any]], units: Units) -> JobSpec:
    pod_sets, admissions, placed = [], [], []
    for i, pods in enumerate(workload["pod_sets"]):
        count = admitted_count(pods)
        pod_sets.append(PodSetSpec(count=count, request=units.to_core(_per_pod(pods))))
        admissions.append(Admission(pod_set=i, count=count, flavors=pods["flavors"]))
        for node, on_node in kueue_placed(pods, nodes):
            placed.append(PlacedPods(pod_set=i, node=node["name"], count=on_node))
    return JobSpec(
        name=workload["name"],
        tenant=workload["queue"],
        uid=workload["uid"],
        priority=workload["priority"],
        submit_ms=workload["created"],
        work_ms=WORK_MS,
        checkpoint_interval_ms=None,
        pod_sets=pod_sets,
        live=LiveSpec(
            pods=placed,
            admissions=admissions,
            admit_ms=workload["reserved_at"],
            evict_ms=workload["evicted"]["at"] if "evicted" in workload else None,
        ),
    )


def admitted_count(pods: Mapping[str, Any]) -> int:
    """Pods of an admitted pod set. Two upstream cases count 1 where usage and topology have 2: the latter hold."""
    return max(pods["count"], sum(d["count"] for d in pods.get("topology", {}).get("domains", [])))


def _per_pod(pods: Mapping[str, Any]) -> dict[str, int]:
    return {resource: total // admitted_count(pods) for resource, total in pods["usage"].items()}


def kueue_placed(pods: Mapping[str, Any], nodes: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """(node, pods) of an admitted pod set. Domains whose node is gone have no place in the world: not yielded."""
    for domain in pods.get("topology", {}).get("domains", []):
        values = domain["values"]
        for node in nodes:
            if node["flavor"] in pods["flavors"].values() and node["path"][-len(values) :] == values:
                yield node, domain["count"]
                break


def _kueue_waiting(
    workload: Mapping[str, Any],
    case: Case,
    flavors: tuple[str, ...],
    units: Units,
    arrives: bool,
    asks_for_pods: bool,
) -> JobSpec:
    """A workload without a reservation. `asks_for_pods`: its queue has quota for pods, so each pod asks for one."""
    pod_sets = []
    for pods in workload["pod_sets"]:
        barred = pods.get("ineligible_flavors")
        pod_sets.append(
            PodSetSpec(
                count=pods["count"],
                min_count=pods.get("min_count"),
                request=units.to_core(pods["per_pod"]) | ({"pods": 1} if asks_for_pods else {}),
                flavors=None if barred is None else [f for f in flavors if f not in barred],
            )
        )
    return JobSpec(
        name=workload["name"],
        tenant=workload["queue"],
        uid=workload["uid"],
        priority=workload["priority"],
        submit_ms=workload["created"],
        work_ms=WORK_MS,
        checkpoint_interval_ms=None,
        pod_sets=pod_sets,
        min_member=max(1, sum(p.count if p.min_count is None else p.min_count for p in pod_sets)),
        topology=_kueue_wish(workload, case),
        live=None if arrives else LiveSpec(),
    )


def _kueue_wish(workload: Mapping[str, Any], case: Case) -> TopologyWish | None:
    """What all pods of the job want together: where there is one pod set and one topology. The rest is private."""
    topologies = [(flavor, levels) for flavor, levels, nodes in kueue_topologies(case) if nodes]
    if len(workload["pod_sets"]) != 1 or len(topologies) != 1:
        return None
    request = workload["pod_sets"][0].get("topology_request") or {}
    ((flavor, levels),) = topologies
    if request.get("required") in levels:
        return TopologyWish(tier=len(levels) - levels.index(request["required"]), topology=flavor, mode="required")
    if request.get("preferred") in levels:
        return TopologyWish(tier=len(levels) - levels.index(request["preferred"]), topology=flavor, mode="preferred")
    return None
