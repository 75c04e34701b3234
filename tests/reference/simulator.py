"""`ReferenceWorld`: docs/model.md written down a second time, plainly. Section numbers in comments are that page's."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gangline.envs.core.spec import Command, JobSpec, NodeSpec, PodSetSpec, WorldSpec
from gangline.envs.errors import GanglineError

ONE_GPU = 1000  # milli-GPU

# The order of events at one instant (section 4)
RELEASED, FINISH, FAIL_OR_HANG, WALLTIME, NODE, SCHEDULE, CANCEL, ELIGIBLE, ARRIVAL, USAGE_TICK = range(10)

NEVER = 1 << 62  # the `until` that a hold or a reservation must stay below

SLOWNESS, SHORTEST_WORK_MS = 1_000_000_000, 10_000  # a job adds SLOWNESS / max(work, 10 s) to the slowdown integral

GPU_TIME_PARTS = ("kept", "lost", "hang", "suspended", "overhead", "releasing", "surplus")


class Refused(Exception):
    """A command is refused: the transaction is undone and this is its result."""

    def __init__(self, result: str):
        super().__init__(result)
        self.result = result


@dataclass
class Progress:
    """How far a training job, or one pod of a batch job, has come (section 3)."""

    left: int  # work left, thousandths x ms
    saved_left: int  # the same at the last checkpoint
    outcome_left: int | None  # work left when the hidden outcome strikes; None = it never does
    overhead_ms: int = 0  # start and restore time still to pass
    cycle_ms: int = 0  # x: position in the checkpoint cycle
    undecided: int = 0  # milli-GPU x ms since the last checkpoint


@dataclass
class Pod:
    """A pod on a node: bound, or on its way out."""

    serial: int  # order of binding
    pod_set: int
    node: str
    gpus: tuple[int, ...]  # indices of the GPUs that it is on
    gpu_milli: int  # what it takes of each
    takes: dict[str, int]  # resource -> amount, what it holds unless suspension has freed it
    gpus_asked: int  # milli-GPU, its request; what it takes beyond is surplus
    release_ms: int | None = None  # None = bound
    gives_up_admission: bool = False  # shrunk away: its admission goes with it
    freed: frozenset[str] = frozenset()  # resources given back while suspended
    is_new: bool = False  # bound by the transaction that is being tried
    progress: Progress | None = None  # batch only

    @property
    def is_bound(self) -> bool:
        return self.release_ms is None

    def holds(self, resource: str | None) -> int:
        return 0 if resource is None or resource in self.freed else self.takes.get(resource, 0)


@dataclass
class Admitted:
    """The admission of one pod set: how many pods, in which flavors."""

    count: int
    flavors: dict[str, str]


@dataclass
class Reservation:
    node: str
    amounts: dict[str, int]


@dataclass
class Job:
    """A job that has arrived and whose last pod has not left yet."""

    spec: JobSpec
    row: int
    min_member: int
    counts: list[int]  # wanted pods by pod set
    done: list[int]  # of them, batch pods that have ended
    progress: Progress  # training only
    eligible_ms: int
    last_submit_ms: int
    pods: list[Pod] = field(default_factory=list)  # in binding order
    is_admitted: bool = False
    admitted: dict[int, Admitted] = field(default_factory=dict)  # pod set -> admission
    not_eligible: str | None = None  # None, or by whose wish: "user" or "scheduler"
    waits_for: str | None = None  # name of the live job it depends on
    is_started: bool = False  # reached min_member and has not stopped since
    is_hung: bool = False
    is_suspended: bool = False
    hang_since_ms: int | None = None
    start_ms: int | None = None
    first_start_ms: int | None = None
    starts: int = 0
    preemptions: int = 0
    after_release: str | None = None  # once the last pod is gone: "requeue" or "end"
    outcome: str | None = None  # how it ended, or will when its pods are gone
    reason: str = "unspecified"
    end_ms: int | None = None  # the moment it ended
    reservations: list[Reservation] = field(default_factory=list)
    reserve_until_ms: int | None = None
    gpu_time: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("held", *GPU_TIME_PARTS), 0))
    holding_ms: int = 0

    @property
    def bound(self) -> list[Pod]:
        return [p for p in self.pods if p.is_bound]

    @property
    def releasing(self) -> list[Pod]:
        return [p for p in self.pods if not p.is_bound]

    @property
    def num_wanted(self) -> int:
        return sum(self.counts) - sum(self.done)

    @property
    def is_training(self) -> bool:
        return self.spec.kind == "training"

    @property
    def is_batch(self) -> bool:
        return self.spec.kind == "batch"

    @property
    def is_service(self) -> bool:
        return self.spec.kind == "service"

    @property
    def is_ending(self) -> bool:
        """It has ended, or ends as soon as its pods are gone."""
        return self.after_release == "end"

    @property
    def state(self) -> str:
        """Section 2."""
        if self.pods and not self.bound:
            return "releasing"
        if self.pods:
            if self.is_suspended:
                return "suspended"
            return "partial" if len(self.bound) < self.min_member else "running"
        if self.not_eligible:
            return "not_eligible"
        return "admitted" if self.is_admitted else "queued"

    @property
    def is_waiting(self) -> bool:
        """Section 2: queued, admitted, or not eligible by the scheduler's doing (requeue delay, hold)."""
        if self.state == "not_eligible":
            return self.not_eligible == "scheduler"
        return self.state in ("queued", "admitted")

    @property
    def makes_progress(self) -> bool:
        return self.state == "running" and not self.is_hung


@dataclass
class Tenant:
    weight: int
    usage: float = 0.0
    areas: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("held", "running", "demand", "fair", "over", "deficit"), 0)
    )


@dataclass
class Quota:
    """Quota of one queue and cell (section 6)."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass
class Event:
    """Something that is due; the earliest is applied first, at one instant by (kind, row, order)."""

    time_ms: int
    kind: int
    row: int  # job row, node index or schedule row
    order: int  # pod binding order
    what: str
    subject: Any = None
    pod: Any = None


AREAS = ("capacity", "held", "running", "demand", "wanted", "idle", "over", "deficit", "hang", "lost", "restart")
COUNTS = ("kept", "kept_bad", "num_arrived", "num_ended", "num_preemptions")
MORE_AREAS = ("waiting", "gpus_waiting", "in_system", "reserved", "replica_wanted", "replica_missing", "slowness")
TOTALS = (*(f"{a}_area" for a in (*AREAS, *MORE_AREAS)), *COUNTS)


class ReferenceWorld:
    """One world. `apply` takes transactions, `advance` lets time pass, `dump` shows everything."""

    # ------------------------------------------------------------------------------------------------------------
    # Building
    # ------------------------------------------------------------------------------------------------------------

    def __init__(self, spec: WorldSpec):
        self.spec = spec
        self.options = spec.options
        self.gpu = spec.gpu_resource
        self.now_ms = spec.now_ms
        self.nodes: dict[str, NodeSpec] = {n.name: n for n in spec.nodes}
        self.node_index = {n.name: i for i, n in enumerate(spec.nodes)}
        self.node_state: dict[str, str] = {n.name: n.state for n in spec.nodes}
        self.tenants = {t.name: Tenant(t.weight, spec.usage.get(t.name, 0.0)) for t in spec.tenants}
        self.queue_names = [q.name for q in spec.queues]
        # (flavor, resource) pairs that carry quota
        self.cells = sorted({cell for q in spec.queues for cell in q.quotas})
        self.parent = {q.name: q.parent for q in spec.queues}
        self.children = {q.name: [c.name for c in spec.queues if c.parent == q.name] for q in spec.queues}
        self.quotas: dict[tuple[str, tuple[str, str]], Quota] = {}
        for q in spec.queues:
            for cell in self.cells:
                given = q.quotas.get(cell)
                self.quotas[q.name, cell] = (
                    Quota(given.nominal, given.borrowing_limit, given.lending_limit) if given else Quota()
                )
        # rows of the trace: the jobs that are already there, then the others, each by submission
        rows = sorted(range(len(spec.jobs)), key=lambda i: (spec.jobs[i].live is None, spec.jobs[i].submit_ms, i))
        self.rows: list[JobSpec] = [spec.jobs[i] for i in rows]
        for job_spec in self.rows:
            self._check_requests(job_spec)
        self.row_of = {j.name: row for row, j in enumerate(self.rows)}
        self.coming = [row for row, j in enumerate(self.rows) if j.live is None]
        self.changes = sorted(range(len(spec.changes)), key=lambda i: (spec.changes[i].time_ms, i))
        self.jobs: dict[str, Job] = {}  # live, by name
        self.ended: list[dict[str, Any]] = []
        self.totals = dict.fromkeys(TOTALS, 0)
        self.next_serial = 0
        tick = self.options.usage_tick_ms
        self.next_tick_ms = None if not tick else self.now_ms + tick
        # node failures (section 4): a stream of its own for each node
        self.failure_state = {n.name: failure_stream(self.options.failure_seed, i) for i, n in enumerate(spec.nodes)}
        self.node_change_ms: dict[str, int | None] = {}
        for n in spec.nodes:
            self._draw_node_change(n.name)
        for row, job_spec in enumerate(self.rows):
            if job_spec.live is not None:
                self._enter_mid_life(row)

    @staticmethod
    def from_state(spec: WorldSpec) -> ReferenceWorld:
        return ReferenceWorld(spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> ReferenceWorld:
        """A copy with a state of its own; the specs, which nobody changes, stay shared."""
        for shared in (self.spec, self.nodes, self.rows, *self.rows):
            memo[id(shared)] = shared
        twin = object.__new__(ReferenceWorld)
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def _check_requests(self, job: JobSpec) -> None:
        for i, pod_set in enumerate(job.pod_sets):
            gpus = pod_set.request.get(self.gpu, 0) if self.gpu else 0
            if gpus > ONE_GPU and gpus % ONE_GPU:
                raise GanglineError(
                    f"job {job.name!r} pod set {i}: request is {gpus} milli-GPU, expected whole GPUs or less than one"
                )

    def _new_job(self, row: int) -> Job:
        spec = self.rows[row]
        all_pods = sum(p.count for p in spec.pod_sets)
        default_min = all_pods if spec.kind == "training" else 1
        work = spec.work_ms * 1000
        outcome_left = None
        strikes = spec.outcome_ms is not None and spec.outcome_ms < spec.work_ms
        # a gang fails or hangs; a batch job fails when its first pod does; a service does neither
        if (
            strikes
            and spec.outcome in {"training": ("failed", "hangs"), "batch": ("failed",), "service": ()}[spec.kind]
        ):
            assert spec.outcome_ms is not None
            outcome_left = work - spec.outcome_ms * 1000
        return Job(
            spec=spec,
            row=row,
            min_member=1 if spec.kind != "training" else (default_min if spec.min_member is None else spec.min_member),
            counts=[p.count for p in spec.pod_sets],
            done=[0 for _ in spec.pod_sets],
            progress=Progress(work, work, outcome_left),
            eligible_ms=spec.submit_ms if spec.eligible_ms is None else spec.eligible_ms,
            last_submit_ms=spec.submit_ms,
        )

    def _enter_mid_life(self, row: int) -> None:
        """A job that is already there when the world begins (`LiveSpec`)."""
        job = self._new_job(row)
        spec, live = job.spec, job.spec.live
        assert live is not None
        self.jobs[spec.name] = job
        self.totals["num_arrived"] += 1
        for a in live.admissions:
            job.is_admitted = True
            job.admitted[a.pod_set] = Admitted(a.count, dict(a.flavors))
        for placed in live.pods:
            for _ in range(placed.count):
                pod = self._bind(job, placed.pod_set, placed.node, placed.gpu, placed.whole_node)
                pod.release_ms = placed.release_ms
                if pod.progress is not None:
                    pod.progress.overhead_ms = 0
                    pod.progress.left -= live.progress_ms * 1000
        job.progress.left = (spec.work_ms - live.progress_ms) * 1000
        job.progress.saved_left = (spec.work_ms - live.saved_ms) * 1000
        interval = spec.checkpoint_interval_ms
        if interval is not None:
            since_saved = min(live.progress_ms - live.saved_ms, interval)
            job.progress.cycle_ms = since_saved % (interval + spec.checkpoint_cost_ms)
        job.last_submit_ms = job.last_submit_ms if live.last_submit_ms is None else live.last_submit_ms
        job.starts = (1 if job.pods else 0) if live.starts is None else live.starts
        job.preemptions = live.preemptions
        if len(job.bound) >= job.min_member:
            job.is_started = True
            job.start_ms = self.now_ms if live.start_ms is None else live.start_ms
        job.first_start_ms = live.first_start_ms
        if job.first_start_ms is None:
            job.first_start_ms = self.now_ms if live.start_ms is None and live.pods else live.start_ms
        if job.bound and not job.is_started:
            job.hang_since_ms = self.now_ms
        job.is_suspended = live.suspended
        if job.pods and not job.bound:
            if live.evicted_to == "cancel":
                job.after_release, job.outcome = "end", "preempted"
            else:
                job.after_release = "requeue"
        if not job.pods:
            self._wait_as_the_user_wishes(job)

    # ------------------------------------------------------------------------------------------------------------
    # Names of things
    # ------------------------------------------------------------------------------------------------------------

    def queue_of(self, job: Job) -> str | None:
        """The queue a job's quota comes from; None = it needs none."""
        if job.spec.queue is not None:
            return job.spec.queue
        tenant = next(t for t in self.spec.tenants if t.name == job.spec.tenant)
        if tenant.queue is not None:
            return tenant.queue
        return tenant.name if tenant.name in self.queue_names else None

    def request_of(self, pod_set: PodSetSpec) -> dict[str, int]:
        """What one pod asks for. Section 1: with a `pods` resource every pod asks for 1 of it."""
        request = dict(pod_set.request)
        if self.spec.pods_resource is not None:
            request.setdefault(self.spec.pods_resource, 1)
        return request

    def flavor_is_allowed(self, pod_set: PodSetSpec, flavor: str) -> bool:
        return pod_set.flavors is None or flavor in pod_set.flavors

    def live_jobs(self) -> list[Job]:
        return sorted(self.jobs.values(), key=lambda j: j.row)

    def pods_on(self, node: str) -> Iterator[tuple[Job, Pod]]:
        for job in self.live_jobs():
            for pod in job.pods:
                if pod.node == node:
                    yield job, pod

    # ------------------------------------------------------------------------------------------------------------
    # Nodes: always counted anew from the pods (sections 1 and 5)
    # ------------------------------------------------------------------------------------------------------------

    def capacity(self, node: str, resource: str) -> int:
        return self.nodes[node].amounts.get(resource, 0)

    def idle(self, node: str, resource: str) -> int:
        return self.capacity(node, resource) - sum(pod.holds(resource) for _, pod in self.pods_on(node))

    def releasing(self, node: str, resource: str) -> int:
        return sum(pod.holds(resource) for _, pod in self.pods_on(node) if not pod.is_bound)

    def planned(self, node: str, resource: str, without: Job | None = None) -> int:
        """What reservations keep on a node; `without`: not counting that job's own."""
        return sum(
            r.amounts.get(resource, 0)
            for job in self.live_jobs()
            if job is not without
            for r in job.reservations
            if r.node == node
        )

    def gpu_free(self, node: str) -> list[int]:
        """milli-GPU left on each GPU."""
        if self.gpu is None:
            return []
        free = [ONE_GPU] * (self.capacity(node, self.gpu) // ONE_GPU)
        for _, pod in self.pods_on(node):
            if self.gpu not in pod.freed:
                for g in pod.gpus:
                    free[g] -= pod.gpu_milli
        return free

    def num_fitting(self, job: Job, pod_set: PodSetSpec, node: str) -> int:
        """NODE_FITS (section 5): number of further pods that fit."""
        room = {r: self.idle(node, r) - self.planned(node, r, without=job) for r in self.spec.resources}
        planned_gpus = self.planned(node, self.gpu, without=job) // ONE_GPU if self.gpu else 0
        return self._count_fitting(self.request_of(pod_set), node, room, self.gpu_free(node), planned_gpus)

    def _count_fitting(
        self, request: dict[str, int], node: str, room: dict[str, int], gpu_free: list[int], planned_gpus: int
    ) -> int:
        fits = []
        for resource, amount in request.items():
            if amount == 0:
                continue
            if resource not in self.nodes[node].amounts:
                return 0
            if resource != self.gpu:
                fits.append(max(0, room[resource]) // amount)
                continue
            empty = max(0, gpu_free.count(ONE_GPU) - planned_gpus)  # empty GPUs count only as far as not planned
            if amount % ONE_GPU == 0:
                fits.append(empty // (amount // ONE_GPU))
            else:
                in_use = [left for left in gpu_free if left < ONE_GPU]
                fits.append(sum(left // amount for left in in_use) + empty * (ONE_GPU // amount))
        return min(fits, default=1 << 30)

    @staticmethod
    def choose_gpus(gpu_free: list[int], amount: int) -> tuple[int, ...]:
        """Section 1: whole GPUs lowest index first; a share of the one with the least left that suffices."""
        if amount == 0:
            return ()
        if amount % ONE_GPU == 0:
            return tuple([g for g, left in enumerate(gpu_free) if left == ONE_GPU][: amount // ONE_GPU])
        _, gpu = min((left, g) for g, left in enumerate(gpu_free) if left >= amount)
        return (gpu,)

    def _bind(self, job: Job, index: int, node: str, gpu: int | None, whole_node: bool) -> Pod:
        """Put one pod on a node; that it fits has been checked."""
        request = self.request_of(job.spec.pod_sets[index])
        asked = request.get(self.gpu, 0) if self.gpu else 0
        if whole_node:
            takes = {r: self.capacity(node, r) for r in self.nodes[node].amounts}
            gpus = tuple(range(len(self.gpu_free(node))))
            milli = ONE_GPU if gpus else 0
        else:
            takes = {r: n for r, n in request.items() if n > 0}
            gpus = self.choose_gpus(self.gpu_free(node), asked) if gpu is None or asked % ONE_GPU == 0 else (gpu,)
            milli = min(asked, ONE_GPU)
        pod = Pod(self.next_serial, index, node, gpus, milli, takes, asked)
        self.next_serial += 1
        if job.is_batch:
            work = job.spec.work_ms * 1000
            pod.progress = Progress(work, work, job.progress.outcome_left)
            pod.progress.overhead_ms = self.options.start_latency_ms
            pod.progress.overhead_ms += job.spec.restart_cost_ms if job.preemptions > 0 else 0
        job.pods.append(pod)
        return pod

    # ------------------------------------------------------------------------------------------------------------
    # Quota: always summed anew, by formula (section 6)
    # ------------------------------------------------------------------------------------------------------------

    def charges(self, job: Job) -> dict[tuple[str, str], int]:
        """(flavor, resource) -> what a job is charged."""
        total: dict[tuple[str, str], int] = {}

        def add(flavor: str | None, resource: str, amount: int) -> None:
            if (flavor, resource) in self.cells:
                assert flavor is not None
                total[flavor, resource] = total.get((flavor, resource), 0) + amount

        if self.options.quota == "enforced":
            for index, admitted in job.admitted.items():
                for resource, amount in self.request_of(job.spec.pod_sets[index]).items():
                    add(admitted.flavors.get(resource), resource, amount * admitted.count)
        if self.options.quota == "tracked":
            for pod in job.pods:  # releasing ones too: charged until the release
                for resource, amount in self.request_of(job.spec.pod_sets[pod.pod_set]).items():
                    add(self.nodes[pod.node].flavor, resource, amount)
        return total

    def usage(self, queue: str, cell: tuple[str, str]) -> int:
        """U: of a queue the charges of its jobs, of a cohort what its children use beyond what they never lend."""
        from_jobs = sum(self.charges(job).get(cell, 0) for job in self.jobs.values() if self.queue_of(job) == queue)
        return from_jobs + sum(max(0, self.usage(c, cell) - self.guaranteed(c, cell)) for c in self.children[queue])

    def subtree_quota(self, queue: str, cell: tuple[str, str]) -> int:
        """S."""
        lent = sum(self.subtree_quota(c, cell) - self.guaranteed(c, cell) for c in self.children[queue])
        return self.quotas[queue, cell].nominal + lent

    def guaranteed(self, queue: str, cell: tuple[str, str]) -> int:
        """G: what a queue or cohort never lends."""
        limit = self.quotas[queue, cell].lending_limit
        return 0 if limit is None else max(0, self.subtree_quota(queue, cell) - limit)

    def available(self, queue: str, cell: tuple[str, str]) -> int:
        """avail."""
        s, u = self.subtree_quota(queue, cell), self.usage(queue, cell)
        parent = self.parent[queue]
        if parent is None:
            return s - u
        g, limit = self.guaranteed(queue, cell), self.quotas[queue, cell].borrowing_limit
        p = self.available(parent, cell)
        if limit is not None:
            p = min(p, s - g - max(0, u - g) + limit)
        return max(0, g - u) + p

    # ------------------------------------------------------------------------------------------------------------
    # Demand and shares (section 7)
    # ------------------------------------------------------------------------------------------------------------

    def gpus_wanted(self, job: Job) -> int:
        if self.gpu is None:
            return 0
        return sum(
            (count - done) * p.request.get(self.gpu, 0)
            for count, done, p in zip(job.counts, job.done, job.spec.pod_sets, strict=True)
        )

    def gpus_held(self, job: Job) -> int:
        return sum(pod.holds(self.gpu) for pod in job.pods)

    def gpus_asked(self, pods: list[Pod]) -> int:
        """Of what these pods hold, what they asked for."""
        return sum(min(pod.gpus_asked, pod.holds(self.gpu)) for pod in pods)

    def demand(self, job: Job) -> int:
        if job.is_ending or (job.state == "not_eligible" and job.not_eligible == "user"):
            return self.gpus_held(job)
        return max(self.gpus_held(job), self.gpus_wanted(job))

    def gpus_running(self, job: Job) -> int:
        """Requested GPUs of a running (not hung, not suspended) job."""
        return self.gpus_asked(job.bound) if job.makes_progress else 0

    def gpus_hanging(self, job: Job) -> int:
        """Requested GPUs of a partial or hung job."""
        return self.gpus_asked(job.bound) if job.state == "partial" or (job.state == "running" and job.is_hung) else 0

    def replicas_wanted(self, job: Job) -> int:
        """Of a service that is neither kept back nor ending."""
        return 0 if not job.is_service or job.is_ending or job.state == "not_eligible" else job.num_wanted

    def gpus_up(self) -> int:
        """C: drained nodes count, nodes that are down do not."""
        if self.gpu is None:
            return 0
        return sum(self.capacity(n, self.gpu) for n in self.nodes if self.node_state[n] != "down")

    def shares(self) -> dict[str, dict[str, int]]:
        """Per tenant: held A, running P, demand D, fair F."""
        result = {}
        for name in self.tenants:
            jobs = [j for j in self.jobs.values() if j.spec.tenant == name]
            result[name] = {
                "held": sum(map(self.gpus_held, jobs)),
                "running": sum(map(self.gpus_running, jobs)),
                "demand": sum(map(self.demand, jobs)),
            }
        weights = [t.weight for t in self.tenants.values()]
        fair = water_fill(self.gpus_up(), weights, [s["demand"] for s in result.values()])
        for name, share in zip(result, fair, strict=True):
            result[name]["fair"] = share
        return result

    # ------------------------------------------------------------------------------------------------------------
    # Speed and progress (section 3)
    # ------------------------------------------------------------------------------------------------------------

    def speed(self, job: Job) -> int:
        """Of a training job, thousandths."""
        nodes = [pod.node for pod in job.bound]
        wanted = job.num_wanted
        speed = min(self.nodes[n].speed for n in nodes)
        speed = speed * self.locality(nodes) // 1000
        speed = speed * min(len(nodes), wanted) // wanted
        return max(1, speed)

    def locality(self, nodes: list[str]) -> int:
        table, topology = self.options.locality, self.options.locality_topology
        if not table or not any(d.topology == topology for d in self.spec.domains) or len(set(nodes)) == 1:
            return 1000
        tier = {d.name: d.tier for d in self.spec.domains if d.topology == topology}
        parent = {d.name: d.parent for d in self.spec.domains if d.topology == topology}
        common: set[str] | None = None
        for node in nodes:
            above = set()
            domain = self.nodes[node].domains.get(topology)
            while domain is not None:
                above.add(domain)
                domain = parent[domain]
            common = above if common is None else common & above
        if not common:
            return table[-1]
        lowest = min(tier[d] for d in common)
        return table[min(lowest, len(table) - 1)]

    def ms_until(self, progress: Progress, target: int, speed: int, interval: int | None, cost: int) -> int:
        """Time from now at which `left` has come down to `target`: walk through the checkpoint cycle phase by phase."""
        to_make = max(0, -(-(progress.left - target) // speed))  # ms of progress
        time, x = progress.overhead_ms, progress.cycle_ms
        while to_make > 0:
            if interval is None:
                return time + to_make
            if x >= interval:  # writing
                time += interval + cost - x
                x = 0
            step = min(to_make, interval - x)
            time, x, to_make = time + step, x + step, to_make - step
        return time

    def checkpoints(self, job: Job) -> tuple[int | None, int]:
        """(interval, cost). Checkpoints do not apply to batch pods (section 4)."""
        return (job.spec.checkpoint_interval_ms, job.spec.checkpoint_cost_ms) if job.is_training else (None, 0)

    def make_progress(self, job: Job, progress: Progress, speed: int, gpus: int, duration: int) -> None:
        """Let `duration` ms pass for a running gang or batch pod that asked for `gpus`; say where its GPU time goes."""
        interval, cost = self.checkpoints(job)
        overhead = min(duration, progress.overhead_ms)
        progress.overhead_ms -= overhead
        job.gpu_time["overhead"] += gpus * overhead
        duration -= overhead
        while duration > 0:
            if interval is None or progress.cycle_ms < interval:  # computing
                step = duration if interval is None else min(duration, interval - progress.cycle_ms)
                progress.left -= step * speed
                progress.undecided += gpus * step
            else:  # writing a checkpoint
                step = min(duration, interval + cost - progress.cycle_ms)
                job.gpu_time["overhead"] += gpus * step
            duration -= step
            if interval is not None:
                progress.cycle_ms += step
                if progress.cycle_ms == interval + cost:  # written: what was done is safe
                    progress.cycle_ms = 0
                    progress.saved_left = progress.left
                    job.gpu_time["kept"] += progress.undecided
                    progress.undecided = 0

    def start(self, job: Job) -> None:
        """It has reached `min_member` (section 3, Starting)."""
        again = job.starts > 0
        job.is_started = True
        job.start_ms = self.now_ms
        job.hang_since_ms = None
        job.starts += 1
        if job.first_start_ms is None:
            job.first_start_ms = self.now_ms
        if job.is_training:
            job.progress.overhead_ms = self.options.start_latency_ms + (job.spec.restart_cost_ms if again else 0)
            job.progress.cycle_ms = 0
            self.totals["restart_area"] += self.gpus_asked(job.bound) * job.progress.overhead_ms

    def lose(self, job: Job, progress: Progress) -> None:
        job.gpu_time["lost"] += progress.undecided
        self.totals["lost_area"] += progress.undecided
        progress.undecided = 0

    def stop_and_roll_back(self, job: Job) -> None:
        """Section 3: undecided is lost, back to the last checkpoint. What batch pods lose is lost when they go."""
        job.is_started = False
        job.is_hung = False
        job.hang_since_ms = None
        if job.is_training:
            self.lose(job, job.progress)
            job.progress.left = job.progress.saved_left
            job.progress.cycle_ms = 0

    # ------------------------------------------------------------------------------------------------------------
    # Pods that leave, jobs that go back to the queue or end (section 2)
    # ------------------------------------------------------------------------------------------------------------

    def leave(self, job: Job, pod: Pod) -> None:
        """A pod leaves its node."""
        job.pods.remove(pod)
        if pod.gives_up_admission and pod.pod_set in job.admitted:
            job.admitted[pod.pod_set].count -= 1

    def settle(self, job: Job) -> None:
        """After pods have left: what becomes of the job."""
        if not job.bound and not job.is_ending:
            job.is_started = job.is_hung = job.is_suspended = False
            job.hang_since_ms = None
        if job.pods or job.after_release is None:
            return
        job.is_admitted = False  # its quota is given back
        job.admitted.clear()
        if job.after_release == "requeue":
            job.after_release = None
            job.last_submit_ms = self.now_ms
            if self.options.requeue_hold_ms > 0:
                job.eligible_ms = self.now_ms + self.options.requeue_hold_ms
                job.not_eligible = "scheduler"
            return
        if job.end_ms is None:  # evicted for good: it ends now that its pods are gone
            job.end_ms = self.now_ms
        self.log(job)
        self.wake_dependents(job)

    def end(self, job: Job, outcome: str, reason: str = "unspecified", completing_ms: int = 0) -> None:
        """The job ends now; its pods go at once, or stay for `completing_ms` (section 4)."""
        for progress in [job.progress, *(p.progress for p in job.pods if p.progress)]:
            job.gpu_time["kept"] += progress.undecided
            progress.undecided = 0
        for pod in job.bound:
            if completing_ms > 0:
                pod.release_ms = self.now_ms + completing_ms
            else:
                self.leave(job, pod)
        job.after_release = "end"
        job.outcome, job.reason, job.end_ms = outcome, reason, self.now_ms
        job.reservations.clear()
        self.settle(job)

    def lose_bound_pods(self, job: Job, outcome_if_not_requeued: str) -> None:
        """A gang stops on a node failure or a hang abort: rolls back, its bound pods go at once, requeued whole."""
        self.stop_and_roll_back(job)
        for pod in job.bound:
            self.leave(job, pod)
        if job.spec.requeue:
            job.after_release = "requeue"
            self.settle(job)
        else:
            self.end(job, outcome_if_not_requeued)

    def count_preemption(self, job: Job) -> None:
        """Evicting commands, node failures and hang aborts are counted."""
        job.preemptions += 1
        self.totals["num_preemptions"] += 1

    def log(self, job: Job) -> None:
        del self.jobs[job.spec.name]
        well = job.outcome == "done" or job.is_service
        self.totals["kept" if well else "kept_bad"] += job.gpu_time["kept"]
        self.totals["num_ended"] += 1
        self.ended.append(
            {
                "name": job.spec.name,
                "outcome": job.outcome,
                "reason": job.reason,
                "submit_ms": job.spec.submit_ms,
                "first_start_ms": job.first_start_ms,
                "end_ms": job.end_ms,
                "starts": job.starts,
                "preemptions": job.preemptions,
                "holding_ms": job.holding_ms,
                "gpu_time": {**job.gpu_time, "undecided": 0},
            }
        )

    def wake_dependents(self, ended: Job) -> None:
        for job in self.live_jobs():
            if job.waits_for == ended.spec.name:
                job.waits_for = None  # eligible by an event of this instant, or at its begin time

    def _wait_as_the_user_wishes(self, job: Job) -> None:
        """Not eligible before the begin time that the user asked for, nor before the job it depends on has ended."""
        if job.spec.after in self.jobs:  # there until its last pod has left
            job.waits_for = job.spec.after
        if job.waits_for is not None or job.eligible_ms > self.now_ms:
            job.not_eligible = "user"

    # ------------------------------------------------------------------------------------------------------------
    # Events (section 4)
    # ------------------------------------------------------------------------------------------------------------

    def events(self) -> Iterator[Event]:
        """Everything that is due some day, as things stand now."""
        now = self.now_ms
        for job in self.live_jobs():
            row, spec = job.row, job.spec
            for pod in job.releasing:
                assert pod.release_ms is not None
                yield Event(pod.release_ms, RELEASED, row, pod.serial, "released", job, pod)
            if job.is_ending:
                continue
            if job.is_training and job.makes_progress:
                speed, (interval, cost) = self.speed(job), self.checkpoints(job)
                due = now + self.ms_until(job.progress, 0, speed, interval, cost)
                yield Event(due, FINISH, row, 0, "finish", job)
                target = job.progress.outcome_left
                if target is not None:
                    due = now + self.ms_until(job.progress, target, speed, interval, cost)
                    yield Event(due, FAIL_OR_HANG, row, 0, "outcome", job)
            if job.is_batch and job.makes_progress:
                for pod in job.bound:
                    assert pod.progress is not None
                    speed, target = self.nodes[pod.node].speed, pod.progress.outcome_left
                    due = now + self.ms_until(pod.progress, 0, speed, None, 0)
                    yield Event(due, FINISH, row, pod.serial, "finish_pod", job, pod)
                    if target is not None:
                        due = now + self.ms_until(pod.progress, target, speed, None, 0)
                        yield Event(due, FAIL_OR_HANG, row, pod.serial, "outcome", job)
            if job.is_service and job.first_start_ms is not None:
                yield Event(job.first_start_ms + spec.work_ms, FINISH, row, 0, "finish", job)
            if job.hang_since_ms is not None and self.options.hang_timeout_ms is not None:
                yield Event(job.hang_since_ms + self.options.hang_timeout_ms, FAIL_OR_HANG, row, 0, "hang_abort", job)
            if spec.killed_at_claim and spec.claim_ms is not None and job.is_started:
                assert job.start_ms is not None
                due = round_up(job.start_ms + spec.claim_ms, self.options.limit_check_ms)
                yield Event(due, WALLTIME, row, 0, "walltime", job)
            if spec.cancel_ms is not None:
                yield Event(spec.cancel_ms, CANCEL, row, 0, "user_cancel", job)
            if job.not_eligible and job.waits_for is None:
                yield Event(job.eligible_ms, ELIGIBLE, row, 0, "eligible", job)
            if job.reservations:
                assert job.reserve_until_ms is not None
                yield Event(job.reserve_until_ms, ELIGIBLE, row, 0, "reservation_expired", job)
        for name, index in self.node_index.items():
            due_ms = self.node_change_ms[name]
            if due_ms is not None:
                yield Event(due_ms, NODE, index, 0, "node", name)
        for change in self.changes[:1]:
            yield Event(self.spec.changes[change].time_ms, SCHEDULE, change, 0, "schedule", change)
        for row in self.coming:
            yield Event(self.rows[row].submit_ms, ARRIVAL, row, 0, "arrival", row)
        if self.next_tick_ms is not None:
            yield Event(self.next_tick_ms, USAGE_TICK, 0, 0, "usage_tick")

    def next_event_ms(self) -> int | None:
        """When the next event is due; now, if one already is."""
        return min((max(e.time_ms, self.now_ms) for e in self.events()), default=None)

    def advance(self, until_ms: int) -> None:
        """Apply every event up to and including `until_ms`, in order; the clock then stands there."""
        if until_ms < self.now_ms:
            raise GanglineError(f"advance to {until_ms}, expected a time not before now, {self.now_ms}")
        while (due := self.next_event_ms()) is not None and due <= until_ms:
            self.pass_time(due - self.now_ms)
            self.happen_now()
        self.pass_time(until_ms - self.now_ms)

    def happen_now(self) -> None:
        """All events of this instant, in order, including those that they create for it."""
        while due := [e for e in self.events() if e.time_ms <= self.now_ms]:
            self.happen(min(due, key=lambda e: (e.kind, e.row, e.order)))

    def happen(self, event: Event) -> None:
        job: Job = event.subject
        completing = self.options.completing_ms
        match event.what:
            case "released":
                self.leave(job, event.pod)
                self.settle(job)
            case "finish":
                self.end(job, "done", completing_ms=completing)
            case "finish_pod":
                # Gives back its node and quota at once
                job.gpu_time["kept"] += event.pod.progress.undecided
                event.pod.progress.undecided = 0
                job.done[event.pod.pod_set] += 1
                event.pod.gives_up_admission = True
                self.leave(job, event.pod)
                self.settle(job)
                if job.num_wanted == 0:
                    self.end(job, "done", completing_ms=completing)
            case "outcome":
                job.progress.outcome_left = None  # strikes once
                if job.spec.outcome == "failed":
                    self.end(job, "failed", completing_ms=completing)
                else:
                    job.is_hung = True
                    job.hang_since_ms = self.now_ms
            case "hang_abort":
                self.count_preemption(job)
                self.lose_bound_pods(job, "failed")
            case "walltime":
                self.end(job, "timeout", completing_ms=completing)
            case "user_cancel":
                self.end(job, "cancelled", "by_user", completing_ms=completing)
            case "eligible":
                job.not_eligible = None
            case "reservation_expired":
                job.reservations.clear()
            case "node":
                self.set_node_state(event.subject, "down" if self.node_state[event.subject] == "up" else "up")
            case "schedule":
                self.changes.pop(0)
                self.change(event.subject)
            case "arrival":
                self.coming.remove(event.subject)
                self.arrive(event.subject)
            case "usage_tick":
                assert self.next_tick_ms is not None and self.options.usage_tick_ms is not None
                self.next_tick_ms += self.options.usage_tick_ms

    def arrive(self, row: int) -> None:
        job = self._new_job(row)
        self.jobs[job.spec.name] = job
        self.totals["num_arrived"] += 1
        if self.options.reject_oversized and not self.fits_empty_cluster(job):
            self.end(job, "rejected", "larger_than_cluster")
            return
        self._wait_as_the_user_wishes(job)

    def fits_empty_cluster(self, job: Job) -> bool:
        """Section 2: pod sets in order, nodes filled in index order, capacity for idle."""
        room = {n: {r: self.capacity(n, r) for r in self.spec.resources} for n in self.nodes}
        gpu_free = {n: [ONE_GPU] * (room[n].get(self.gpu, 0) // ONE_GPU) if self.gpu else [] for n in self.nodes}
        for pod_set in job.spec.pod_sets:
            request, missing = self.request_of(pod_set), pod_set.count
            for n in self.nodes:
                if not self.flavor_is_allowed(pod_set, self.nodes[n].flavor):
                    continue
                while missing > 0 and self._count_fitting(request, n, room[n], gpu_free[n], 0) > 0:
                    for g in self.choose_gpus(gpu_free[n], request.get(self.gpu, 0) if self.gpu else 0):
                        gpu_free[n][g] -= min(request[self.gpu], ONE_GPU)  # type: ignore[index]
                    for resource, amount in request.items():
                        if amount > 0:
                            room[n][resource] -= amount
                    missing -= 1
            if missing > 0:
                return False
        return True

    def set_node_state(self, node: str, state: str) -> None:
        if state == self.node_state[node]:
            return
        self.node_state[node] = state
        self._draw_node_change(node)
        if state != "down":
            return
        for job in self.live_jobs():
            here = [p for p in job.pods if p.node == node]
            bound_here = [p for p in here if p.is_bound]
            if bound_here:
                self.count_preemption(job)
            for pod in here:
                if pod.progress is not None:
                    self.lose(job, pod.progress)
                self.leave(job, pod)
            if bound_here and (job.is_training or not job.bound):  # a gang, or nothing left: requeued whole
                self.lose_bound_pods(job, "node_fail")
            elif here:
                self.settle(job)

    def _draw_node_change(self, node: str) -> None:
        """When an up node fails or a down one is repaired; a drained one does neither."""
        mean_up, state = self.options.mean_up_ms, self.node_state[node]
        if mean_up is None or state == "drained":
            self.node_change_ms[node] = None
            return
        self.failure_state[node], draw = splitmix64(self.failure_state[node])
        u = (draw >> 11) / (1 << 53)
        mean = mean_up if state == "up" else self.options.mean_down_ms
        self.node_change_ms[node] = self.now_ms + max(1, math.ceil(-mean * math.log(1 - u)))

    def change(self, index: int) -> None:
        change = self.spec.changes[index]
        match change.what:
            case "nominal" | "borrowing_limit" | "lending_limit":
                assert change.cell is not None
                setattr(self.quotas[change.target, change.cell], change.what, change.value)
            case "tenant_weight":
                assert isinstance(change.value, int)
                self.tenants[change.target].weight = change.value
            case "node_state":
                self.set_node_state(change.target, str(change.value))
            case "replicas":
                if change.target in self.jobs and not self.jobs[change.target].is_ending:
                    assert isinstance(change.value, int)
                    self.set_replicas(self.jobs[change.target], change.pod_set, change.value)
            case "queue_weight":
                pass  # read by schedulers only

    def set_replicas(self, job: Job, index: int, wanted: int) -> None:
        job.counts[index] = wanted
        bound = [p for p in job.bound if p.pod_set == index]
        for pod in bound[wanted:]:  # those bound last go at once
            pod.gives_up_admission = True
            self.leave(job, pod)
        self.settle(job)

    # ------------------------------------------------------------------------------------------------------------
    # Time (sections 3 and 7): between two events every rate is constant
    # ------------------------------------------------------------------------------------------------------------

    def pass_time(self, duration: int) -> None:
        if duration == 0:
            return
        shares = self.shares()
        jobs = self.live_jobs()
        total = {key: sum(s[key] for s in shares.values()) for key in ("held", "running", "demand", "fair")}
        capacity = self.gpus_up()
        wanted = min(capacity, total["demand"])
        rates = {
            "capacity_area": capacity,
            "held_area": total["held"],
            "running_area": total["running"],
            "demand_area": total["demand"],
            "wanted_area": wanted,
            "idle_area": max(0, wanted - total["running"]),
            "over_area": sum(max(0, s["held"] - s["fair"]) for s in shares.values()),
            "deficit_area": sum(max(0, s["fair"] - s["held"]) for s in shares.values()),
            "hang_area": sum(map(self.gpus_hanging, jobs)),
            "waiting_area": sum(j.is_waiting for j in jobs),
            "gpus_waiting_area": sum(self.gpus_wanted(j) for j in jobs if j.is_waiting),
            "replica_wanted_area": sum(map(self.replicas_wanted, jobs)),
            "replica_missing_area": sum(max(0, self.replicas_wanted(j) - len(j.bound)) for j in jobs),
            "in_system_area": len(jobs),
            "slowness_area": sum(SLOWNESS // max(j.spec.work_ms, SHORTEST_WORK_MS) for j in jobs),
            "reserved_area": sum(self.planned(n, self.gpu) for n in self.nodes) if self.gpu else 0,
        }
        for key, rate in rates.items():
            self.totals[key] += rate * duration
        for name, tenant in self.tenants.items():
            share = shares[name]
            for key in ("held", "running", "demand", "fair"):
                tenant.areas[key] += share[key] * duration
            tenant.areas["over"] += max(0, share["held"] - share["fair"]) * duration
            tenant.areas["deficit"] += max(0, share["fair"] - share["held"]) * duration
            tenant.usage = decayed(tenant.usage, share["held"], duration, self.options.half_life_ms)
        for job in jobs:
            self.spend(job, duration)
        self.now_ms += duration

    def spend(self, job: Job, duration: int) -> None:
        """Where a job's GPU time goes (section 3)."""
        held, asked = self.gpus_held(job), self.gpus_asked(job.bound)
        held_bound = sum(pod.holds(self.gpu) for pod in job.bound)
        job.gpu_time["held"] += held * duration
        job.gpu_time["surplus"] += (held_bound - asked) * duration
        job.gpu_time["releasing"] += (held - held_bound) * duration
        if held > 0:
            job.holding_ms += duration
        if job.state == "suspended":
            job.gpu_time["suspended"] += asked * duration
        elif job.state == "partial" or (job.state == "running" and job.is_hung):
            job.gpu_time["hang"] += asked * duration
        elif job.state == "running" and job.is_service:
            job.gpu_time["kept"] += asked * duration
        elif job.state == "running" and job.is_training:
            self.make_progress(job, job.progress, self.speed(job), asked, duration)
        elif job.state == "running":
            for pod in job.bound:
                assert pod.progress is not None
                self.make_progress(job, pod.progress, self.nodes[pod.node].speed, pod.gpus_asked, duration)

    # ------------------------------------------------------------------------------------------------------------
    # Transactions (section 5)
    # ------------------------------------------------------------------------------------------------------------

    def apply(self, transactions: list[list[Command]]) -> list[str]:
        """Each transaction whole or not at all, one after another; the result of each."""
        results = []
        for commands in transactions:
            before = copy.deepcopy(self)
            try:
                self.transact(commands)
                results.append("ok")
            except Refused as refusal:
                self.__dict__ = before.__dict__
                results.append(refusal.result)
        self.happen_now()
        return results

    def transact(self, commands: list[Command]) -> None:
        touched: list[Job] = []  # by the first command that names it
        new_gangs: list[Job] = []  # training jobs that got pods and had none bound before
        admitted_here: list[Job] = []
        num_ended = len(self.ended)
        for c in commands:
            require(c.job in self.jobs, "bad_index")
            job = self.jobs[c.job]
            if job not in touched:
                touched.append(job)
            match c.op:
                case "admit":
                    self.admit(job, c, job in admitted_here)
                    admitted_here.append(job)
                case "unadmit":
                    require(job.state == "admitted", "wrong_state")
                    job.is_admitted = False
                    job.admitted.clear()
                case "place":
                    if job.is_training and not job.bound:
                        new_gangs.append(job)
                    self.place(job, c)
                case "evict":
                    self.evict(job, c)
                case "suspend":
                    self.suspend(job, c)
                case "resume":
                    self.resume(job)
                case "hold":
                    require(job.state == "queued", "wrong_state")
                    require(self.now_ms < c.until_ms < NEVER, "bad_time")
                    job.not_eligible = "scheduler"
                    job.eligible_ms = c.until_ms
                case "cancel":
                    require(not job.is_ending, "wrong_state")
                    self.end(job, "cancelled", c.reason, completing_ms=self.options.completing_ms)
                case "reserve":
                    self.reserve(job, c)
                case "unreserve":
                    require(bool(job.reservations), "wrong_state")
                    job.reservations.clear()
        if self.options.gang:
            for job in new_gangs:
                require(not 0 < len(job.bound) < job.min_member, "gang_incomplete")
        for job in touched:  # where a transaction leaves a job with pods, it starts or hangs
            self.set_going(job)
        order = [job.spec.name for job in touched]
        self.ended[num_ended:] = sorted(self.ended[num_ended:], key=lambda entry: order.index(entry["name"]))

    def set_going(self, job: Job) -> None:
        for pod in job.bound:
            if pod.is_new and pod.progress is not None:
                self.totals["restart_area"] += pod.gpus_asked * pod.progress.overhead_ms
            pod.is_new = False
        if job.state == "running" and not job.is_started:
            self.start(job)
        if job.state == "partial" and job.hang_since_ms is None:
            job.hang_since_ms = self.now_ms

    def pod_set_of(self, job: Job, c: Command) -> int:
        index = 0 if c.pod_set is None else c.pod_set
        require(0 <= index < len(job.counts), "bad_index")
        return index

    def admit(self, job: Job, c: Command, is_admitted_here: bool) -> None:
        index = self.pod_set_of(job, c)
        require(self.options.quota == "enforced", "wrong_state")
        require(job.state == "queued" or (job.state == "admitted" and is_admitted_here), "wrong_state")
        require(index not in job.admitted or job.admitted[index].count == 0, "wrong_state")
        pod_set = job.spec.pod_sets[index]
        wanted = job.counts[index] - job.done[index]
        least = wanted if pod_set.min_count is None else min(pod_set.min_count, wanted)
        pods = 1 if c.pods is None else c.pods
        require(least <= pods <= wanted, "too_many_pods")
        queue, flavors = self.queue_of(job), {}
        for resource, amount in self.request_of(pod_set).items():
            flavor = c.flavors.get(resource)
            if flavor is None:
                continue
            require(flavor in self.spec.flavors, "bad_index")
            flavors[resource] = flavor
            if queue is not None and (flavor, resource) in self.cells:
                has_room = self.available(queue, (flavor, resource)) >= amount * pods
                require(c.beyond_quota or has_room, "no_quota")
        job.is_admitted = True
        job.admitted[index] = Admitted(pods, flavors)

    def place(self, job: Job, c: Command) -> None:
        index = self.pod_set_of(job, c)
        require(c.node in self.nodes, "bad_index")
        assert c.node is not None
        node, pod_set, pods = c.node, job.spec.pod_sets[index], 1 if c.pods is None else c.pods
        flavor, request = self.nodes[node].flavor, self.request_of(pod_set)
        require(job.state in ("queued", "admitted", "partial", "running"), "wrong_state")
        require(self.node_state[node] == "up", "node_unavailable")
        enforced = self.options.quota == "enforced"
        require(job.is_admitted or not enforced, "not_admitted")
        there = sum(p.pod_set == index for p in job.pods)
        require(pods >= 1 and there + job.done[index] + pods <= job.counts[index], "too_many_pods")
        admitted = job.admitted.get(index, Admitted(0, {}))
        require(not enforced or there + pods <= admitted.count, "too_many_pods")
        require(self.flavor_is_allowed(pod_set, flavor), "not_admitted")
        if enforced:
            for resource in request:
                given = admitted.flavors.get(resource)
                require((given, resource) not in self.cells or given == flavor, "not_admitted")
        job.reservations.clear()
        if c.whole_node:
            is_idle = not any(self.pods_on(node)) and not any(self.planned(node, r) for r in self.spec.resources)
            require(pods == 1 and is_idle, "no_room")
        require(self.num_fitting(job, pod_set, node) >= pods, "no_room")
        if c.gpu is not None:
            self.check_gpu(node, c.gpu, pods, request.get(self.gpu, 0) if self.gpu else 0)
        for _ in range(pods):
            self._bind(job, index, node, c.gpu, c.whole_node).is_new = True

    def check_gpu(self, node: str, gpu: int, pods: int, asked: int) -> None:
        """The GPU that a command names must have the shares left, and not be an empty one that is planned."""
        free = self.gpu_free(node)
        require(0 < asked < ONE_GPU and 0 <= gpu < len(free) and free[gpu] >= asked * pods, "no_room")
        assert self.gpu is not None
        planned = self.planned(node, self.gpu) // ONE_GPU
        require(free[gpu] < ONE_GPU or free.count(ONE_GPU) > planned, "no_room")

    def evict(self, job: Job, c: Command) -> None:
        require(c.pod_set is None or 0 <= c.pod_set < len(job.counts), "bad_index")
        require(c.node is None or c.node in self.nodes, "bad_index")
        there = [p for p in job.bound if c.pod_set in (None, p.pod_set) and c.node in (None, p.node)]
        pods, num_bound = len(there) if c.pods is None else c.pods, len(job.bound)
        require(num_bound > 0, "wrong_state")
        # a suspended job goes whole or not at all
        require(pods >= num_bound or job.state != "suspended", "wrong_state")
        require(1 <= pods <= len(there), "too_many_pods")
        require(pods == num_bound or c.then != "cancel", "too_many_pods")
        require(0 <= c.grace_ms < NEVER, "bad_time")
        chosen, was_going = there[-pods:], job.state in ("running", "suspended")  # those bound last go first
        self.count_preemption(job)
        for pod in chosen:
            pod.release_ms = self.now_ms + c.grace_ms
            pod.gives_up_admission = c.then == "shrink"
            if pod.progress is not None:
                self.lose(job, pod.progress)
        if not job.bound:
            self.stop_and_roll_back(job)
            job.is_suspended = False
            if c.then == "cancel" or not job.spec.requeue:
                job.after_release, job.outcome = "end", "preempted"
            else:
                job.after_release = "requeue"
        elif len(job.bound) < job.min_member and was_going:
            self.stop_and_roll_back(job)
            job.hang_since_ms = self.now_ms
        if c.grace_ms == 0:
            for pod in chosen:
                self.leave(job, pod)
            self.settle(job)

    def suspend(self, job: Job, c: Command) -> None:
        require(all(r in self.spec.resources for r in c.freed), "bad_index")
        require(job.state == "running" and not job.releasing and not job.is_service, "wrong_state")
        job.is_suspended = True
        for pod in job.pods:
            pod.freed = frozenset(c.freed)

    def resume(self, job: Job) -> None:
        require(job.state == "suspended", "wrong_state")
        for pod in job.bound:
            for resource in pod.freed:
                need = pod.takes.get(resource, 0)
                if need and resource != self.gpu:
                    require(self.idle(pod.node, resource) - self.planned(pod.node, resource) >= need, "no_room")
                if need and resource == self.gpu:
                    free = self.gpu_free(pod.node)
                    require(all(free[g] >= pod.gpu_milli for g in pod.gpus), "no_room")
                    empty_after = sum(left == ONE_GPU and g not in pod.gpus for g, left in enumerate(free))
                    takes_empty = any(free[g] == ONE_GPU for g in pod.gpus)
                    planned = self.planned(pod.node, resource) // ONE_GPU
                    require(not takes_empty or empty_after >= planned, "no_room")
            pod.freed = frozenset()
        job.is_suspended = False

    def reserve(self, job: Job, c: Command) -> None:
        require(c.node in self.nodes, "bad_index")
        assert c.node is not None
        require(job.state in ("queued", "admitted"), "wrong_state")
        require(self.now_ms < c.until_ms < NEVER, "bad_time")
        require(self.node_state[c.node] == "up", "node_unavailable")
        require(any(c.amounts.values()), "no_room")
        for resource, amount in c.amounts.items():
            require(resource in self.spec.resources, "bad_index")
            if resource == self.gpu:
                require(amount % ONE_GPU == 0, "no_room")
                empty = self.gpu_free(c.node).count(ONE_GPU) - self.planned(c.node, resource) // ONE_GPU
                require(empty >= amount // ONE_GPU, "no_room")
            else:
                require(self.idle(c.node, resource) - self.planned(c.node, resource) >= amount, "no_room")
        job.reservations.append(Reservation(c.node, dict(c.amounts)))
        job.reserve_until_ms = c.until_ms

    # ------------------------------------------------------------------------------------------------------------
    # Showing everything
    # ------------------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """The whole state by names."""
        shares = self.shares()
        return {
            "now_ms": self.now_ms,
            "nodes": {n: self._dump_node(n) for n in self.nodes},
            "jobs": {j.spec.name: self._dump_job(j) for j in self.live_jobs()},
            "tenants": {
                name: {**shares[name], **{f"{k}_area": v for k, v in tenant.areas.items()}, "usage": tenant.usage}
                for name, tenant in self.tenants.items()
            },
            "queues": {
                q: {f"{f}/{r}": used for f, r in self.cells if (used := self.usage(q, (f, r)))}
                for q in self.queue_names
            },
            "ended": copy.deepcopy(self.ended),
            "totals": dict(self.totals),
        }

    def _dump_node(self, node: str) -> dict[str, Any]:
        offered = self.nodes[node].amounts
        return {
            "state": self.node_state[node],
            "idle": {r: self.idle(node, r) for r in offered},
            "releasing": {r: self.releasing(node, r) for r in offered},
            "planned": {r: self.planned(node, r) for r in offered},
            "gpu_free": self.gpu_free(node),
        }

    def _dump_job(self, job: Job) -> dict[str, Any]:
        undecided = job.progress.undecided + sum(p.progress.undecided for p in job.pods if p.progress)
        return {
            "state": job.state,
            "bound": [(p.pod_set, p.node, p.gpus, p.gpu_milli) for p in job.bound],
            "releasing": [(p.pod_set, p.node, p.gpus, p.gpu_milli, p.release_ms) for p in job.releasing],
            "admitted": [(i, a.count, dict(a.flavors)) for i, a in sorted(job.admitted.items()) if a.count > 0],
            "speed": self.speed(job) if job.is_training and job.state == "running" else 0,
            "left": job.progress.left if job.is_training else 0,
            "saved_left": job.progress.saved_left if job.is_training else 0,
            "gpu_time": {**job.gpu_time, "undecided": undecided},
            "starts": job.starts,
            "preemptions": job.preemptions,
            "first_start_ms": job.first_start_ms,
            "eligible_ms": job.eligible_ms,
            "last_submit_ms": job.last_submit_ms,
            "demand": self.demand(job),
            "is_hung": job.is_hung,
        }


# ---------------------------------------------------------------------------------------------------------------
# Plain functions
# ---------------------------------------------------------------------------------------------------------------


def require(condition: bool, result: str) -> None:
    if not condition:
        raise Refused(result)


def round_up(time_ms: int, step: int) -> int:
    return time_ms if step <= 0 else -(-time_ms // step) * step


def decayed(usage: float, rate: int, duration: int, half_life_ms: int | None) -> float:
    """Section 7: usage after `duration` at a constant rate."""
    if half_life_ms is None:
        return usage + rate * duration
    keep = 2.0 ** (-duration / half_life_ms)
    return usage * keep + rate * half_life_ms / math.log(2) * (1 - keep)


def water_fill(capacity: int, weights: list[int], demands: list[int]) -> list[int]:
    """Section 7, Water-filled share."""
    if sum(demands) <= capacity:
        return list(demands)
    fair = [0] * len(demands)
    open_tenants = [k for k, w in enumerate(weights) if w > 0]  # not yet capped
    left = capacity
    while open_tenants:
        total_weight = sum(weights[k] for k in open_tenants)
        capped = [k for k in open_tenants if demands[k] * total_weight <= left * weights[k]]
        if not capped:
            for k in open_tenants:
                fair[k] = left * weights[k] // total_weight
            remainder = left - sum(fair[k] for k in open_tenants)
            for k in open_tenants[:remainder]:
                fair[k] += 1
            return fair
        for k in capped:
            fair[k] = demands[k]
            open_tenants.remove(k)
        left -= sum(demands[k] for k in capped)
    for k, w in enumerate(weights):  # weight 0: from what is left when everything else is satisfied
        if w == 0:
            fair[k] = min(demands[k], left)
            left -= fair[k]
    return fair


MASK64 = (1 << 64) - 1


def splitmix64(state: int) -> tuple[int, int]:
    """(next state, output)."""
    state = (state + 0x9E3779B97F4A7C15) & MASK64
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return state, z ^ (z >> 31)


def failure_stream(seed: int, node: int) -> int:
    """Initial state of a node's stream."""
    return (seed * 0x9E3779B97F4A7C15 + node * 0xD1342543DE82EF95) & MASK64
