"""What holds in every state of every world. For tests and for debugging: slow, complete, in plain numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from gangline.envs.core.types import NEVER, NONE, ONE_GPU, JobKind, JobState, NodeState, PodState, Quota

if TYPE_CHECKING:
    from gangline.envs.core.world import World


def broken_invariants(world: World) -> list[str]:
    """One line for everything that does not hold; empty if all is well."""
    world.refresh()
    return [*_nodes(world), *_jobs(world), *_tenants(world), *_quota(world), *_events(world), *_gpu_time(world)]


def _live(world: World) -> Iterator[tuple[int, np.void]]:
    w = world.record
    for slot in range(int(w["jobs_used"])):
        if w["jobs"][slot]["state"] != JobState.FREE:
            yield slot, w["jobs"][slot]


def _nodes(world: World) -> Iterator[str]:
    """Resources are conserved on every node, GPU by GPU."""
    w = world.record
    resources = len(world.names.resources)
    gpu = int(w["params"]["gpu_resource"])
    used = np.zeros((int(w["num_nodes"]), resources), np.int64)
    gpu_used = np.zeros((int(w["num_nodes"]), 16), np.int64)
    for _, job in _live(world):
        for pod in world.pods_of(job):
            n = int(pod["node"])
            for r in range(resources):
                if not int(job["freed_mask"]) >> r & 1:
                    used[n, r] += pod["held"][r]
                    if r == gpu:
                        mask = [g for g in range(16) if int(pod["gpu_mask"]) >> g & 1]
                        gpu_used[n, mask] += pod["gpu_milli"]
    for n, name in enumerate(world.names.nodes):
        node = w["nodes"][n]
        gpus = int(node["num_gpus"])
        if not np.array_equal(node["idle"][:resources] + node["used"][:resources], node["capacity"][:resources]):
            yield f"node {name}: idle + used is not its capacity"
        if not np.array_equal(node["used"][:resources], used[n]):
            yield f"node {name}: used {node['used'][:resources]}, its pods hold {used[n]}"
        if (node["gpu_free"][:gpus] != ONE_GPU - gpu_used[n, :gpus]).any() or (node["gpu_free"][:gpus] < 0).any():
            yield f"node {name}: GPUs {node['gpu_free'][:gpus]} do not match its pods"
        if node["free_gpus"] != np.count_nonzero(node["gpu_free"][:gpus] == ONE_GPU):
            yield f"node {name}: {node['free_gpus']} empty GPUs noted"
        if node["state"] == NodeState.DOWN and node["first_pod"] != NONE:
            yield f"node {name}: down with pods on it"


def _jobs(world: World) -> Iterator[str]:
    """Gangs are whole, counts match pods, states match counts, lists hold what they should."""
    w = world.record
    num = {"waiting": 0, "listed": 0, "live": 0}
    for slot, job in _live(world):
        name = world.job_name(int(job["row"]))
        num["live"] += 1
        pods = world.pods_of(job)
        bound = sum(p["state"] == PodState.BOUND for p in pods)
        if bound != job["num_bound"] or len(pods) - bound != job["num_releasing"]:
            noted = (int(job["num_bound"]), int(job["num_releasing"]))
            yield f"job {name}: {noted} pods noted, {(bound, len(pods) - bound)} there"
        is_gang = job["kind"] == JobKind.TRAINING
        if job["state"] == JobState.RUNNING and is_gang and bound < job["min_member"]:
            yield f"job {name}: runs with {bound} of {job['min_member']} pods"
        if job["state"] in (JobState.QUEUED, JobState.ADMITTED) and pods:
            yield f"job {name}: waits and has pods"
        if (job["state"] in (JobState.QUEUED, JobState.ADMITTED)) != bool(job["is_queued"]):
            yield f"job {name}: state {JobState(int(job['state'])).name}, in the queue: {bool(job['is_queued'])}"
        if job["order_key"] >= NEVER and w["params"]["queue_order"] == 0:
            yield f"job {name}: has no place in the queue's order"
        num["waiting"] += bool(job["is_queued"]) or bool(
            job["state"] == JobState.NOT_ELIGIBLE and job["waits_by_scheduler"]
        )
        num["listed"] += bool(job["is_listed"])
        if slot >= int(w["jobs_used"]):
            yield f"job {name}: stands above the high-water mark"
    for field, count in (("num_jobs", "live"), ("num_waiting", "waiting"), ("num_running", "listed")):
        if w[field] != num[count]:
            yield f"{field} is {w[field]}, counted {num[count]}"
    yield from _running_table(world)
    yield from _waiting_table(world)
    queued = int(w["groups"]["num_waiting"][: max(int(w["num_groups"]), 1)].sum())
    if queued != sum(bool(job["is_queued"]) for _, job in _live(world)):
        yield f"groups hold {queued} waiting jobs"


def _table(world: World, name: str, count: str, place: str, flag: str, fields: tuple[str, ...]) -> Iterator[str]:
    """Every job with a flag has a row in a table that says what the job says, and nobody else has one."""
    w = world.record
    rows = w[name][: int(w[count])]
    jobs = {slot: job for slot, job in _live(world) if job[flag]}
    if sorted(rows["job"].tolist()) != sorted(jobs):
        yield f"the table of {name} jobs holds slots {sorted(rows['job'].tolist())}, expected {sorted(jobs)}"
        return
    for slot, job in jobs.items():
        row = rows[int(job[place])]
        if row["job"] != slot:
            yield f"job {world.job_name(int(job['row']))}: not at its place in the table of {name} jobs"
        for field in fields:
            if row[field] != job[field]:
                yield f"job {world.job_name(int(job['row']))}: {field} {job[field]}, in the table {row[field]}"


def _running_table(world: World) -> Iterator[str]:
    """The table of running jobs; where a single pod is."""
    fields = ("tenant", "start_ms", "gpus_bound", "restart_cost_ms", "claim_ms", "preemptions", "touch_ms")
    yield from _table(world, "running", "num_running", "place", "is_listed", fields)
    w = world.record
    for row in w["running"][: int(w["num_running"])]:
        nodes = {int(pod["node"]) for pod in world.pods_of(w["jobs"][int(row["job"])])}
        if row["node"] != NONE and {int(row["node"])} != nodes:
            yield f"slot {row['job']}: on nodes {sorted(nodes)}, in the table {row['node']}"


def _waiting_table(world: World) -> Iterator[str]:
    """The table of waiting jobs; each group's are linked in order."""
    fields = ("tenant", "group", "submit_ms", "claim_ms", "gpus_wanted", "num_wanted", "starts", "touch_ms")
    yield from _table(world, "waiting", "num_queued", "queue_place", "is_queued", fields)
    w = world.record
    rows = w["waiting"][: int(w["num_queued"])]
    groups: dict[int, list[tuple[int, int, int]]] = {}
    for row in rows:
        job = w["jobs"][int(row["job"])]
        if row["is_plain"] != (job["state"] == JobState.QUEUED and job["first_reservation"] == NONE):
            yield f"slot {row['job']}: in the table as one of its group: {row['is_plain']}"
        groups.setdefault(int(job["group"]), []).append((int(job["order_key"]), int(job["row"]), int(row["job"])))
    for group, jobs in groups.items():
        linked: list[int] = []
        at = int(w["groups"][group]["head_place"])
        while at != NONE and len(linked) < len(jobs):
            linked.append(int(rows[at]["job"]))
            at = int(rows[at]["next"])
        if at != NONE or linked != [slot for *_, slot in sorted(jobs)]:
            yield f"group {group}: slots {[slot for *_, slot in sorted(jobs)]} wait, linked are {linked}"
        place = int(w["groups"][group]["shortest_place"])
        shortest = min(jobs, key=lambda job: (int(w["jobs"][job[2]]["claim_ms"]), job))[2]
        if place != NONE and rows[place]["job"] != shortest:
            yield f"group {group}: slot {shortest} has the smallest claim, noted is {rows[place]['job']}"


def _tenants(world: World) -> Iterator[str]:
    """Sums over jobs; shares that add up; usage that is never negative."""
    w = world.record
    held = np.zeros(len(world.names.tenants), np.int64)
    demand = np.zeros(len(world.names.tenants), np.int64)
    for _, job in _live(world):
        held[int(job["tenant"])] += job["gpus_bound"] + job["gpus_surplus"] + job["gpus_releasing"]
        demand[int(job["tenant"])] += job["demand"]
    tenants = w["tenants"][: len(held)]
    if not np.array_equal(tenants["held"], held):
        yield f"tenants hold {tenants['held']}, their jobs {held}"
    if not np.array_equal(tenants["demand"], demand):
        yield f"tenants' demand is {tenants['demand']}, their jobs' {demand}"
    if w["gpus_held"] != held.sum() or w["demand"] != demand.sum():
        yield f"the cluster's sums are {w['gpus_held']} and {w['demand']}, the tenants' {held.sum()} and {demand.sum()}"
    if tenants["weight"].sum() > 0 and tenants["fair"].sum() != min(int(w["gpus_up"]), int(demand.sum())):
        yield f"fair shares sum to {tenants['fair'].sum()}, expected min(capacity, demand)"
    if (tenants["usage"] < 0).any():
        yield "a tenant's usage is negative"


def _quota(world: World) -> Iterator[str]:
    """Usage of a queue is what its jobs are charged for."""
    w = world.record
    mode = int(w["params"]["quota"])
    if mode == Quota.OFF or not world.names.cells:
        return
    charged = np.zeros((len(world.names.queues), len(world.names.cells)), np.int64)
    for _, job in _live(world):
        if job["queue"] == NONE:
            continue
        for pod_set in world.pod_sets_of(job):
            if mode == Quota.ENFORCED and job["is_admitted"]:
                for cell in range(len(world.names.cells)):
                    r = int(w["cell_resource"][cell])
                    if pod_set["asked"] >> r & 1 and pod_set["admitted_flavor"][r] == w["cell_flavor"][cell]:
                        charged[int(job["queue"]), cell] += int(pod_set["num_admitted"]) * int(pod_set["request"][r])
        if mode == Quota.TRACKED:
            for pod in world.pods_of(job):
                pod_set = w["pod_sets"][int(pod["pod_set"])]
                for cell in range(len(world.names.cells)):
                    r = int(w["cell_resource"][cell])
                    flavor = w["nodes"][int(pod["node"])]["flavor"]
                    if pod_set["asked"] >> r & 1 and flavor == w["cell_flavor"][cell]:
                        charged[int(job["queue"]), cell] += int(pod_set["request"][r])
    queues = w["queues"][: len(charged)]
    usage = queues["usage"][:, : charged.shape[1]]
    for q in np.flatnonzero(~queues["is_cohort"]):
        if not np.array_equal(usage[q], charged[q]):
            yield f"queue {world.names.queues[q]}: usage {usage[q]}, its jobs are charged {charged[q]}"


def _events(world: World) -> Iterator[str]:
    """The event heap is a heap, and time does not go back."""
    w = world.record
    size = int(w["heap_size"])
    heap = w["heap"][:size]
    key = [(int(entry["time_ms"]), int(entry["rank"])) for entry in heap]
    for place in range(1, size):
        if key[(place - 1) // 4] > key[place]:
            yield f"event heap: place {place} comes before its parent"
    if size and key[0][0] < world.now_ms:
        yield f"an event at {key[0][0]} ms is in the past of {world.now_ms} ms"


def _gpu_time(world: World) -> Iterator[str]:
    """Every milli-GPU x ms that a job has held is in exactly one account."""
    for _, job in _live(world):
        time = job["gpu_time"]
        undecided = int(job["progress"]["undecided"]) + sum(int(p["progress"]["undecided"]) for p in world.pods_of(job))
        parts = sum(int(time[f]) for f in ("kept", "lost", "hang", "suspended", "overhead", "releasing", "surplus"))
        if int(time["held"]) != parts + undecided:
            yield f"job {world.job_name(int(job['row']))}: held {time['held']}, accounts {parts} + {undecided}"
