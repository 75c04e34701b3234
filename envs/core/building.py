"""From names to indices: turn a `WorldSpec` and a `JobTrace` into the tables and the record that the kernels read."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gangline.envs.core.spec import ChangeSpec, JobSpec, NodeSpec, QuotaSpec, WorldSpec
from gangline.envs.core.trace import JobTrace, new_pod_sets, new_rows
from gangline.envs.core.types import (
    MAX_FLAVORS,
    MAX_FRAG_CLASSES,
    MAX_GPUS_PER_NODE,
    MAX_QUOTA_CELLS,
    MAX_RESOURCES,
    MAX_TOPOLOGIES,
    NEVER,
    NO_LIMIT,
    NONE,
    ONE_GPU,
    PAGE,
    SCHEDULE_ROW,
    SIZE_CLASSES,
    ChangeKind,
    JobKind,
    NodeState,
    Outcome,
    Quota,
    Shape,
    SizeClass,
)
from gangline.envs.errors import GanglineError, unknown_name

_MASK64 = (1 << 64) - 1


@dataclass(frozen=True)
class Names:
    """What the indices of a world are called."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]
    topologies: tuple[str, ...]
    nodes: tuple[str, ...]
    domains: tuple[str, ...]
    tenants: tuple[str, ...]
    users: tuple[str, ...]
    queues: tuple[str, ...]
    cells: tuple[tuple[str, str], ...]  # (flavor, resource)
    gpu_types: tuple[str, ...]
    jobs: tuple[str, ...] = ()  # by row, where the jobs have names

    def find(self, kind: str, name: str) -> int:
        """Index of a name; kind is the field's name.

        Raises:
            GanglineError: listing the known names.
        """
        known: tuple[str, ...] = getattr(self, kind)
        try:
            return known.index(name)
        except ValueError:
            raise unknown_name(_singular(kind), name, known) from None


def _singular(kind: str) -> str:
    return {"topologies": "topology", "cells": "quota cell"}.get(kind, kind.removesuffix("s").replace("_", " "))


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _ranks(names: Sequence[str]) -> np.ndarray:
    """(n,) int32: place of each name in string order, equal names by position."""
    ranks = np.zeros(len(names), np.int32)
    ranks[sorted(range(len(names)), key=lambda i: names[i])] = np.arange(len(names), dtype=np.int32)
    return ranks


def names_of(spec: WorldSpec) -> Names:
    """Number everything in a spec, checking that references exist and nothing is named twice."""
    names = Names(
        resources=tuple(spec.resources),
        flavors=tuple(spec.flavors),
        topologies=_unique(d.topology for d in spec.domains),
        nodes=tuple(n.name for n in spec.nodes),
        domains=tuple(f"{d.topology}/{d.name}" for d in spec.domains),
        tenants=tuple(t.name for t in spec.tenants),
        users=tuple(u.name for u in spec.users),
        queues=tuple(q.name for q in spec.queues),
        cells=_unique_cells(spec),
        gpu_types=_unique(n.gpu_type for n in spec.nodes),
    )
    for kind in ("resources", "flavors", "nodes", "domains", "tenants", "users", "queues"):
        known = getattr(names, kind)
        if len(set(known)) != len(known):
            twice = next(n for n in known if known.count(n) > 1)
            raise GanglineError(f"{_singular(kind)} {twice!r} is defined twice, expected names to differ")
    for limit, kind in (
        (MAX_RESOURCES, "resources"),
        (MAX_FLAVORS, "flavors"),
        (MAX_TOPOLOGIES, "topologies"),
        (MAX_QUOTA_CELLS, "cells"),
    ):
        if len(getattr(names, kind)) > limit:
            raise GanglineError(f"{len(getattr(names, kind))} {kind}, expected at most {limit}")
    for resource in (spec.gpu_resource, spec.pods_resource):
        if resource is not None and resource not in names.resources:
            raise unknown_name("resource", resource, names.resources)
    return names


def _unique_cells(spec: WorldSpec) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys(cell for q in spec.queues for cell in q.quotas))


# ---------------------------------------------------------------------------------------------------------------
# Tables
# ---------------------------------------------------------------------------------------------------------------


def trace_of(spec: WorldSpec, names: Names) -> tuple[JobTrace, tuple[JobSpec, ...]]:
    """The spec's jobs as a trace: those that are already there first, then the others, each by submission.

    Returns: the trace, and the job specs by row.
    """
    living = sorted((j for j in spec.jobs if j.live is not None), key=lambda j: j.submit_ms)
    coming = sorted((j for j in spec.jobs if j.live is None), key=lambda j: j.submit_ms)
    jobs = (*living, *coming)
    job_names = [j.name for j in jobs]
    row_of = {name: row for row, name in enumerate(job_names)}
    if len(row_of) != len(jobs):
        twice = next(n for n in job_names if job_names.count(n) > 1)
        raise GanglineError(f"job {twice!r} is defined twice, expected names to differ")
    rows = new_rows(len(jobs))
    pod_sets = new_pod_sets(sum(len(j.pod_sets) for j in jobs))
    next_pod_set = 0
    for row, job in enumerate(jobs):
        record = rows[row]
        record["first_pod_set"] = next_pod_set
        record["num_pod_sets"] = len(job.pod_sets)
        if not job.pod_sets:
            raise GanglineError(f"job {job.name!r} has no pod sets, expected at least one")
        for pod_set in job.pod_sets:
            _fill_pod_set(pod_sets[next_pod_set], pod_set, spec, names, job.name)
            next_pod_set += 1
        _fill_row(record, job, names, row_of)
    rows["name_rank"] = _ranks(job_names)
    rows["uid_rank"] = _ranks([j.uid for j in jobs])
    trace = JobTrace.build(
        rows,
        pod_sets,
        names.tenants,
        names.users,
        names.resources,
        names.flavors,
        np.array([names.find("tenants", u.tenant) for u in spec.users], np.int32),
        first_unordered=len(living),
    )
    return trace, jobs


def _fill_pod_set(record: np.void, pod_set, spec: WorldSpec, names: Names, job: str) -> None:  # type: ignore[no-untyped-def]
    record["count"] = pod_set.count
    record["min_count"] = pod_set.count if pod_set.min_count is None else pod_set.min_count
    request = dict(pod_set.request)
    if spec.pods_resource is not None:
        request.setdefault(spec.pods_resource, 1)
    for resource, amount in request.items():
        r = names.find("resources", resource)
        record["request"][r] = amount
        record["asked"] |= np.uint8(1 << r)
        if resource == spec.gpu_resource and amount > ONE_GPU and amount % ONE_GPU:
            raise GanglineError(
                f"job {job!r} asks for {amount} milli-GPU a pod, expected a multiple of 1000, or less than 1000"
            )
    if pod_set.flavors is not None:
        record["flavors"] = NONE
        for i, flavor in enumerate(pod_set.flavors):
            record["flavors"][i] = names.find("flavors", flavor)


def _fill_row(record: np.void, job: JobSpec, names: Names, row_of: dict[str, int]) -> None:
    pods = sum(p.count for p in job.pod_sets)
    record["submit_ms"] = job.submit_ms
    record["eligible_ms"] = job.submit_ms if job.eligible_ms is None else job.eligible_ms
    record["cancel_ms"] = NEVER if job.cancel_ms is None else job.cancel_ms
    record["work_ms"] = job.work_ms
    record["outcome"] = Outcome[job.outcome.upper()]
    record["outcome_ms"] = NEVER if job.outcome_ms is None else job.outcome_ms
    record["claim_ms"] = NEVER if job.claim_ms is None else job.claim_ms
    record["checkpoint_interval_ms"] = NEVER if job.checkpoint_interval_ms is None else job.checkpoint_interval_ms
    record["checkpoint_cost_ms"] = job.checkpoint_cost_ms
    record["restart_cost_ms"] = job.restart_cost_ms
    record["priority"] = job.priority
    record["tenant"] = names.find("tenants", job.tenant)
    record["user"] = NONE if job.user is None else names.find("users", job.user)
    record["queue"] = NONE if job.queue is None else names.find("queues", job.queue)
    record["kind"] = JobKind[job.kind.upper()]
    training = job.kind == "training"
    record["min_member"] = (pods if training else 1) if job.min_member is None else job.min_member
    record["after_row"] = NONE
    if job.after is not None:
        if job.after not in row_of:
            raise unknown_name("job", job.after, row_of)
        record["after_row"] = row_of[job.after]
    record["preemptible"] = job.preemptible
    record["requeue"] = job.requeue
    record["killed_at_claim"] = job.killed_at_claim
    if job.topology is not None:
        record["topology_wish"] = Shape[job.topology.mode.upper()]
        record["topology_tier"] = job.topology.tier
        record["topology"] = names.find("topologies", job.topology.topology)


def schedule_of(changes: Sequence[ChangeSpec], names: Names, row_of: dict[str, int]) -> np.ndarray:
    """(num_changes,) SCHEDULE_ROW in order of time."""
    table = np.zeros(len(changes), SCHEDULE_ROW)
    for record, change in zip(table, sorted(changes, key=lambda c: c.time_ms), strict=True):
        fill_change(record, change, names, row_of)
    return table


def fill_change(record: np.void, change: ChangeSpec, names: Names, row_of: dict[str, int]) -> None:
    """Write one change by names into a SCHEDULE_ROW."""
    kind = ChangeKind[change.what.upper()]
    record["time_ms"] = change.time_ms
    record["what"] = kind
    if kind in (ChangeKind.NOMINAL, ChangeKind.BORROWING_LIMIT, ChangeKind.LENDING_LIMIT):
        record["index"] = names.find("queues", change.target)
        if change.cell not in names.cells:
            raise unknown_name("quota cell", change.cell, names.cells)
        record["cell"] = names.cells.index(change.cell)
    elif kind == ChangeKind.QUEUE_WEIGHT:
        record["index"] = names.find("queues", change.target)
    elif kind == ChangeKind.TENANT_WEIGHT:
        record["index"] = names.find("tenants", change.target)
    elif kind == ChangeKind.NODE_STATE:
        record["index"] = names.find("nodes", change.target)
    else:
        if change.target not in row_of:
            raise unknown_name("job", change.target, row_of)
        record["index"] = row_of[change.target]
        record["cell"] = change.pod_set
    if kind == ChangeKind.NODE_STATE:
        record["value"] = NodeState[str(change.value).upper()]
    elif change.value is None:
        record["value"] = NO_LIMIT
    else:
        record["value"] = int(change.value)
        if record["value"] < 0:
            raise GanglineError(f"{change.what} of {change.target!r} is {change.value}, expected at least 0")


# ---------------------------------------------------------------------------------------------------------------
# The record
# ---------------------------------------------------------------------------------------------------------------


def size_class_for(spec: WorldSpec, trace: JobTrace, live_jobs: int | None = None) -> SizeClass:
    """The smallest size class that holds a world; `live_jobs` bounds how many jobs are there at once (default: all)."""
    jobs = trace.num_jobs if live_jobs is None else live_jobs
    share = jobs / max(trace.num_jobs, 1)
    pods = int(trace.pod_sets["count"].sum() * share) + 1
    needed = {
        "max_nodes": len(spec.nodes),
        "max_domains": len(spec.domains),
        "max_tenants": len(spec.tenants),
        "max_users": len(spec.users),
        "max_queues": len(spec.queues),
        "max_groups": trace.num_groups,
        "max_shapes": trace.num_shapes,
    }
    hoped = {"max_jobs": jobs, "max_pod_sets": int(len(trace.pod_sets) * share), "max_pods": pods}
    for size in SIZE_CLASSES:
        if all(getattr(size, k) >= v for k, v in {**needed, **hoped}.items()):
            return size
    largest = SIZE_CLASSES[-1]
    for field, value in needed.items():
        if getattr(largest, field) < value:
            what = field.removeprefix("max_").replace("_", " ")
            raise GanglineError(
                f"the world needs {value} {what}, the largest size class holds {getattr(largest, field)}"
            )
    return largest  # jobs come and go: whether they fit at once shows when they run


def new_records(count: int, kind: np.dtype[Any]) -> np.ndarray:
    """(count,) records of zeros, the first at the beginning of a page of memory.

    A record is mostly room for what a world might hold. Only pages that are written take memory, therefore: none is
    set aside in advance, and none is a large one, as numpy would ask for.
    """
    size = count * kind.itemsize
    if not hasattr(mmap, "MAP_PRIVATE"):  # no Unix
        room = np.zeros(size + PAGE, np.uint8)
        first = -room.ctypes.data % PAGE
        return room[first : first + size].view(kind)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    memory = mmap.mmap(-1, max(size, PAGE), flags=flags)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without large pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, kind, count)


def fill_record(w: np.void, spec: WorldSpec, names: Names, trace: JobTrace) -> None:
    """Write the world of a spec, without jobs, into a record of zeros."""
    w["now_ms"] = spec.now_ms
    w["areas_ms"] = spec.now_ms
    for field in (
        "free_job",
        "free_pod_set",
        "free_pod",
        "free_reservation",
        "first_running",
        "last_running",
        "first_group",
    ):
        w[field] = NONE
    for field in ("heap_place", "slot_keys"):
        w[field][:] = NONE
    w["no_room_at"][:] = NONE
    w["thin_below"] = _MASK64
    w["next_arrival_ms"] = NEVER
    w["timer_ms"] = NEVER
    w["shares_are_stale"] = True
    _fill_params(w["params"], spec, names)
    _fill_domains(w, spec, names)
    _fill_nodes(w, spec, names)
    _fill_queues(w, spec, names)
    _fill_tenants(w, spec, names)
    groups = w["groups"]
    for field in ("root", "head", "shortest_place", "next", "prev", "no_room_at"):
        groups[field] = NONE
    groups["head_key"] = NEVER
    w["num_groups"] = trace.num_groups
    w["num_shapes"] = trace.num_shapes
    if trace.num_jobs:
        groups["tenant"][trace.rows["group"]] = trace.rows["tenant"]
        groups["shape"][trace.rows["group"]] = trace.rows["shape"]
    _fill_frag_classes(w, trace)
    w["end_row"] = trace.num_jobs


def _fill_params(params: np.void, spec: WorldSpec, names: Names) -> None:
    options = spec.options
    for name in ("half_life_ms", "usage_tick_ms", "hang_timeout_ms"):
        value = getattr(options, name)
        if value is not None and value <= 0:
            raise GanglineError(f"{name} is {value}, expected a positive time, or null for none")
    for name in ("start_latency_ms", "completing_ms", "limit_check_ms", "requeue_hold_ms"):
        if getattr(options, name) < 0:
            raise GanglineError(f"{name} is {getattr(options, name)}, expected at least 0")
    params["num_resources"] = len(names.resources)
    params["gpu_resource"] = NONE if spec.gpu_resource is None else names.find("resources", spec.gpu_resource)
    params["pods_resource"] = NONE if spec.pods_resource is None else names.find("resources", spec.pods_resource)
    params["quota"] = Quota[options.quota.upper()]
    params["gang"] = options.gang
    params["reject_oversized"] = options.reject_oversized
    params["track_users"] = bool(spec.users)
    params["half_life_ms"] = NEVER if options.half_life_ms is None else options.half_life_ms
    params["usage_tick_ms"] = NEVER if options.usage_tick_ms is None else options.usage_tick_ms
    params["start_latency_ms"] = options.start_latency_ms
    params["completing_ms"] = options.completing_ms
    params["limit_check_ms"] = options.limit_check_ms
    params["requeue_hold_ms"] = options.requeue_hold_ms
    params["hang_timeout_ms"] = NEVER if options.hang_timeout_ms is None else options.hang_timeout_ms
    params["mean_up_ms"] = options.mean_up_ms or 0.0
    params["mean_down_ms"] = options.mean_down_ms
    locality = list(options.locality) or [1000]
    if len(locality) > MAX_GPUS_PER_NODE or min(locality) < 1 or max(locality) > 1000:
        raise GanglineError(
            f"locality is {locality}, expected at most {MAX_GPUS_PER_NODE} speeds in 1..1000 thousandths"
        )
    params["locality"] = (locality + [locality[-1]] * MAX_GPUS_PER_NODE)[:MAX_GPUS_PER_NODE]
    has_topology = bool(options.locality) and options.locality_topology in names.topologies
    params["locality_topology"] = names.topologies.index(options.locality_topology) if has_topology else NONE


def _fill_domains(w: np.void, spec: WorldSpec, names: Names) -> None:
    w["num_domains"] = len(spec.domains)
    w["num_topologies"] = len(names.topologies)
    ranks = _ranks(names.domains)
    for d, domain in enumerate(spec.domains):
        record = w["domains"][d]
        record["topology"] = names.topologies.index(domain.topology)
        record["tier"] = domain.tier
        record["name_rank"] = ranks[d]
        record["parent"] = (
            NONE if domain.parent is None else names.find("domains", f"{domain.topology}/{domain.parent}")
        )
        if domain.parent is not None and spec.domains[record["parent"]].tier <= domain.tier:
            raise GanglineError(f"domain {domain.name!r} has tier {domain.tier}, expected less than its parent's")


def _fill_nodes(w: np.void, spec: WorldSpec, names: Names) -> None:
    w["num_nodes"] = len(spec.nodes)
    w["num_flavors"] = len(names.flavors)
    w["nodes"]["domain"] = NONE
    w["nodes"]["first_pod"] = NONE
    ranks = _ranks(names.nodes)
    for n, node in enumerate(spec.nodes):
        record = w["nodes"][n]
        _fill_node(record, node, spec, names)
        record["name_rank"] = ranks[n]
        record["accrued_ms"] = spec.now_ms
        record["next_change_ms"] = NEVER
        record["failure_rng"] = (spec.options.failure_seed * 0x9E3779B97F4A7C15 + n * 0xD1342543DE82EF95) & _MASK64
    gpus = w["nodes"]["num_gpus"].astype(np.int64) * ONE_GPU
    w["gpus_total"] = gpus.sum()
    w["gpus_up"] = gpus[w["nodes"]["state"] != NodeState.DOWN].sum()


def _fill_node(record: np.void, node: NodeSpec, spec: WorldSpec, names: Names) -> None:
    record["gpu_type"] = names.gpu_types.index(node.gpu_type)
    record["flavor"] = names.find("flavors", node.flavor)
    record["speed"] = node.speed
    record["state"] = NodeState[node.state.upper()]
    if not 1 <= node.speed <= 100_000:
        raise GanglineError(f"node {node.name!r} has speed {node.speed}, expected thousandths in 1..100000")
    for resource, amount in node.amounts.items():
        r = names.find("resources", resource)
        if amount < 0:
            raise GanglineError(f"node {node.name!r} offers {amount} {resource}, expected at least 0")
        record["has"] |= np.uint8(1 << r)
        record["capacity"][r] = amount
        record["idle"][r] = amount
        if resource == spec.gpu_resource:
            if amount % ONE_GPU or amount > MAX_GPUS_PER_NODE * ONE_GPU:
                raise GanglineError(
                    f"node {node.name!r} offers {amount} milli-GPU, expected whole GPUs, at most {MAX_GPUS_PER_NODE}"
                )
            record["num_gpus"] = amount // ONE_GPU
            record["free_gpus"] = amount // ONE_GPU
            record["gpu_free"][: amount // ONE_GPU] = ONE_GPU
    for topology, domain in node.domains.items():
        record["domain"][names.find("topologies", topology)] = names.find("domains", f"{topology}/{domain}")


def _fill_queues(w: np.void, spec: WorldSpec, names: Names) -> None:
    w["num_queues"] = len(spec.queues)
    w["num_cells"] = len(names.cells)
    w["cell_of"] = NONE
    for cell, (flavor, resource) in enumerate(names.cells):
        f, r = names.find("flavors", flavor), names.find("resources", resource)
        w["cell_flavor"][cell], w["cell_resource"][cell] = f, r
        w["cell_of"][f][r] = cell
    queues = w["queues"]
    queues["borrowing_limit"] = NO_LIMIT
    queues["lending_limit"] = NO_LIMIT
    queues["parent"] = NONE
    ranks = _ranks(names.queues)
    for q, queue in enumerate(spec.queues):
        record = queues[q]
        record["is_cohort"] = queue.is_cohort
        record["weight"] = queue.weight
        record["name_rank"] = ranks[q]
        if queue.parent is not None:
            record["parent"] = names.find("queues", queue.parent)
            if not spec.queues[record["parent"]].is_cohort:
                raise GanglineError(f"queue {queue.name!r} has parent {queue.parent!r}, expected a cohort")
        for cell_name, quota in queue.quotas.items():
            _fill_quota(record, names.cells.index(cell_name), quota, queue.name, cell_name)
    for q, queue in enumerate(spec.queues):
        seen = {q}
        above = int(queues[q]["parent"])
        while above != NONE:
            if above in seen:
                raise GanglineError(f"cohort cycle through {queue.name!r}, expected a tree")
            seen.add(above)
            above = int(queues[above]["parent"])


def _fill_quota(record: np.void, cell: int, quota: QuotaSpec, queue: str, cell_name: tuple[str, str]) -> None:
    for field in ("nominal", "borrowing_limit", "lending_limit"):
        value = getattr(quota, field)
        if value is None:
            continue
        if value < 0:
            raise GanglineError(f"{field} of queue {queue!r} for {'/'.join(cell_name)} is {value}, expected at least 0")
        record[field][cell] = min(value, NEVER)


def _fill_tenants(w: np.void, spec: WorldSpec, names: Names) -> None:
    w["num_tenants"] = len(spec.tenants)
    w["num_users"] = len(spec.users)
    ranks = _ranks(names.tenants)
    total_weight = sum(t.weight for t in spec.tenants)
    for k, tenant in enumerate(spec.tenants):
        record = w["tenants"][k]
        if tenant.weight < 0:
            raise GanglineError(f"tenant {tenant.name!r} has weight {tenant.weight}, expected at least 0")
        record["weight"] = tenant.weight
        record["entitled"] = int(w["gpus_total"]) * tenant.weight // total_weight if total_weight else 0
        record["name_rank"] = ranks[k]
        record["queue"] = NONE
        if tenant.queue is not None:
            record["queue"] = names.find("queues", tenant.queue)
        elif tenant.name in names.queues:
            record["queue"] = names.queues.index(tenant.name)
        record["usage"] = spec.usage.get(tenant.name, 0.0)
        record["usage_ms"] = spec.now_ms
    for u, user in enumerate(spec.users):
        record = w["users"][u]
        record["tenant"] = names.find("tenants", user.tenant)
        record["usage"] = spec.usage.get(user.name, 0.0)
        record["usage_ms"] = spec.now_ms
    for name in spec.usage:
        if name not in names.tenants and name not in names.users:
            raise unknown_name("tenant or user with usage", name, (*names.tenants, *names.users))


def _fill_frag_classes(w: np.void, trace: JobTrace) -> None:
    """Task classes of the fragmentation measure: the most frequent pod requests, until 95 % of pods are covered."""
    if not trace.num_jobs:
        return
    first = trace.rows["first_pod_set"]
    sets = trace.pod_sets[first]
    key = np.column_stack([sets["request"], sets["asked"]])
    classes, index, counts = np.unique(key, axis=0, return_index=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    covered = np.cumsum(counts[order]) / counts.sum()
    chosen = order[: min(int(np.searchsorted(covered, 0.95)) + 1, MAX_FRAG_CLASSES, len(classes))]
    w["num_frag_classes"] = len(chosen)
    for i, c in enumerate(chosen):
        w["frag_classes"][i]["popularity"] = counts[c] / counts[chosen].sum()
        w["frag_classes"][i]["request"] = sets["request"][index[c]]
        w["frag_classes"][i]["asked"] = sets["asked"][index[c]]
