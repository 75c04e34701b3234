"""What a run is worth: numbers from the log of ended jobs and the exact integrals of the world, never from an agent.

    start = snapshot(world)                    # after the warm-up
    world.run(scheduler, until_ms=...)
    report = measure(world, start)             # everything over [start, now]
    report.values["over_share"], report.to_dict()

To leave out a cool-down: `stop = snapshot(world)`, let the world drain, `measure(world, start, stop)`. Integrals are
then those of [start, stop], and the jobs those submitted in it, however late they ended. "metrics 2" in a docstring is
section 2 of `spec/metrics.md`.

**Which jobs count**: those submitted in [start, stop], both ends included, and not rejected. Of these

* *finished* jobs came to an end of their own: done, failed, timeout, or cancelled by their user;
* *killed* jobs did not: evicted for good, cancelled by the scheduler, lost with a node. Their work is still owed;
* *unfinished* jobs are those still in the system and the killed ones. For them "so far" means until now: a lower bound.

A mean over finished jobs alone gets better when a slow job is never started. The headline times therefore count every
job, unfinished ones with what they have waited or stayed so far. Each number stands beside the count it is taken over,
and no percentile is taken of fewer than MIN_JOBS jobs.

**Which GPU time is productive**: *kept* time, in the window in which it becomes kept (at a checkpoint, or when the job
ends). Of an unfinished job that is what its checkpoints hold; what it has done since the last one is *undecided*: not
counted, and reported as of the end of the window. What was undecided when a window began and is kept in it counts in
it, so that the windows of a run add up to the run.

**Denominators**: every integral of a comparison is divided by the same `C H`: all GPUs of the world x the length of the
window, whatever a policy did. Sums are exact integers (milli-GPU x ms) up to that division, all but the Jain index.

A value is None where it is not defined: no job, no time, no GPU, fewer than MIN_JOBS jobs for a percentile. Never NaN.

**What needs to know when**: windows of a day, envy, borrowing, reclaim delay, fragmentation, finish-time fairness come
from a recording (`measure(..., recording=recording)`, envs/recording.py); without one they are None. A recording whose
integrals are not the core's, to the last milli-GPU x ms, has missed something and is not used: `Report.is_recorded`.

Not here: what needs a second simulation (sharing incentive: agents/private_clusters.py) or a clock outside (decision
cost: `gangline benchmark` keeps it apart from results); the quality of hang detection (only the world's timeout ends a
hang, so nothing is detected wrongly), deadlines of batch jobs and latencies of requests: the model has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from gangline.envs.core.spec import HOUR_MS
from gangline.envs.core.types import GPU_TIME, NEVER, NONE, ONE_GPU, JobKind, JobState, Outcome, PodState, Reason, Then
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError
from gangline.envs.recording import Recording
from gangline.envs.timeline import Log, Timeline, timeline_of

MIN_JOBS = 20  # no percentile of fewer
TAU_MS = 10_000  # of the bounded slowdown
STARVED_MS = 24 * HOUR_MS  # a wait is starvation if it is longer than this and than STARVED_RUNS run times
STARVED_RUNS = 10
GPU_H = ONE_GPU * HOUR_MS  # milli-GPU x ms in a GPU-hour
SECOND_MS = 1000

Number = float | int | None

LINE = np.dtype(  # one job, ended or not, as of now
    [
        ("row", np.int32),
        ("tenant", np.int32),
        ("preemptions", np.int32),
        ("outcome", np.int8),  # where it has ended
        ("reason", np.int8),
        ("has_ended", np.bool_),
        ("submit_ms", np.int64),
        ("first_start_ms", np.int64),  # NEVER
        ("end_ms", np.int64),  # NEVER
        ("work_ms", np.int64),
        ("holding_ms", np.int64),
        ("gpus", np.int64),  # milli-GPU asked for by all its pods
        ("left", np.int64),  # work left, milli-GPU x ms at full speed; 0 where it has ended
    ],
    align=True,
)

SIZE_CLASSES = ("0", "1", "2-4", "5-8", ">8")  # GPUs of a job; a fraction counts as 1
_SIZE_LIMITS = (0, 1 * ONE_GPU, 4 * ONE_GPU, 8 * ONE_GPU)
_TENANT_AREAS = ("held_area", "running_area", "demand_area", "fair_area", "over_area", "deficit_area")
_PARTS = ("kept", "kept_bad", "lost", "hang", "suspended", "overhead", "releasing", "surplus", "undecided")
_NO_TOTALS = ("gpu_time", "kept_bad", "jain_area")  # read on their own
_FROM_LOG = ("row", "tenant", "preemptions", "outcome", "reason", "submit_ms", "first_start_ms", "end_ms")


# ---------------------------------------------------------------------------------------------------------------
# An instant, a window, a report
# ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The counters of a world at an instant.

    Attributes:
        now_ms: the instant.
        gpus: C, milli-GPU of all nodes.
        gpus_per_node: milli-GPU of the largest node.
        totals: integrals (milli-GPU x ms, jobs x ms, replicas x ms) and counts since the world began, TOTALS by name.
        jain_area: index x ms since the world began; the one integral that is no integer.
        gpu_time: milli-GPU x ms of all jobs, ended and live: held, and the parts that add up to it. `kept_bad` is kept
            by jobs that have ended, and not well (services always end well).
        tenants: by name of an integral, one value a tenant; `kept` is that of all its jobs.
        weights: entitlement of each tenant.
        usage: decayed usage of each tenant, milli-GPU x ms.
        backlog: work left of all jobs in the system, milli-GPU x ms.
        log_used: lines of the log.
        open_rows: (num_open,) jobs that have not ended.
        open_kept: (num_open,) int64, their kept GPU time.
        bad_rows: jobs that have ended, and not well, and still hold GPUs (they are not in the log yet).
    """

    now_ms: int
    gpus: int
    gpus_per_node: int
    totals: dict[str, int]
    jain_area: float
    gpu_time: dict[str, int]
    tenants: dict[str, tuple[int, ...]]
    weights: tuple[int, ...]
    usage: tuple[float, ...]
    backlog: int
    log_used: int
    open_rows: np.ndarray
    open_kept: np.ndarray
    bad_rows: np.ndarray


@dataclass(frozen=True)
class Identity:
    """Where the GPU time of a world went. metrics 2, "identity".

    Attributes:
        held: milli-GPU x ms that jobs have held, summed over jobs.
        held_area: the same, as the integral of GPUs held.
        parts: what became of it.
    """

    held: int
    held_area: int
    parts: dict[str, int]

    @property
    def holds(self) -> bool:
        """Whether held = held_area = the sum of the parts, to the last milli-GPU x ms."""
        return self.held == self.held_area == sum(self.parts.values())


@dataclass(frozen=True, eq=False)
class Window:
    """What metrics are computed from: the differences between two snapshots, and the jobs submitted between them.

    Attributes:
        start_ms, stop_ms: of the integrals.
        now_ms: up to when jobs are known; later than `stop_ms` after a drain.
        gpus: C, milli-GPU.
        gpus_per_node: milli-GPU of the largest node.
        totals: integrals and counts of the window, by TOTALS name.
        jain_area: index x ms of the window.
        gpu_time: milli-GPU x ms of the window: held, and the parts that add up to it. `kept_bad` is kept by jobs that
            ended in the window, and not well. `undecided` is its change, and may be negative.
        undecided: milli-GPU x ms that are undecided at `stop_ms`.
        backlog: work left of all jobs in the system at `stop_ms`, milli-GPU x ms.
        tenants: by name of an integral, one value a tenant.
        weights: entitlement of each tenant.
        jobs: (num_jobs,) LINE, without rejected ones.
        num_rejected: jobs submitted in the window and rejected.
        usage: decayed usage of each tenant at `stop_ms`, milli-GPU x ms.
        timeline: from a recording; None = there is none, or it has missed something.
    """

    start_ms: int
    stop_ms: int
    now_ms: int
    gpus: int
    gpus_per_node: int
    totals: dict[str, int]
    jain_area: float
    gpu_time: dict[str, int]
    undecided: int
    backlog: int
    tenants: dict[str, tuple[int, ...]]
    weights: tuple[int, ...]
    jobs: np.ndarray
    num_rejected: int
    usage: tuple[float, ...] = ()
    timeline: Timeline | None = None

    @property
    def length_ms(self) -> int:
        """H."""
        return self.stop_ms - self.start_ms

    def of_cluster(self, area: int) -> Number:
        """An integral over C H; None for a window without time or GPUs."""
        return _ratio(area, self.gpus * self.length_ms)

    @cached_property
    def is_finished(self) -> np.ndarray:
        """(num_jobs,) bool: came to an end of its own."""
        jobs = self.jobs
        is_killed = (jobs["outcome"] == Outcome.PREEMPTED) | (jobs["outcome"] == Outcome.NODE_FAIL)
        is_killed |= (jobs["outcome"] == Outcome.CANCELLED) & (jobs["reason"] != Reason.BY_USER)
        return jobs["has_ended"] & ~is_killed  # type: ignore[no-any-return]

    @cached_property
    def is_started(self) -> np.ndarray:
        """(num_jobs,) bool: had its pods at least once."""
        return self.jobs["first_start_ms"] < NEVER  # type: ignore[no-any-return]

    @cached_property
    def is_done(self) -> np.ndarray:
        """(num_jobs,) bool: did all of its work."""
        return self.is_finished & (self.jobs["outcome"] == Outcome.DONE)

    @cached_property
    def jct_so_far_ms(self) -> np.ndarray:
        """(num_jobs,) int64: time in the system; of an unfinished job until now."""
        return np.where(self.is_finished, self.jobs["end_ms"], self.now_ms) - self.jobs["submit_ms"]  # type: ignore[no-any-return]

    @cached_property
    def wait_so_far_ms(self) -> np.ndarray:
        """(num_jobs,) int64: time to the first start; of a job that never started until it finished, or now."""
        last = np.where(self.is_finished, self.jobs["end_ms"], self.now_ms)
        return np.where(self.is_started, self.jobs["first_start_ms"], last) - self.jobs["submit_ms"]  # type: ignore[no-any-return]

    @cached_property
    def wait_ms(self) -> np.ndarray:
        """(num_started,) int64, sorted: first start - submission."""
        return np.sort(self.wait_so_far_ms[self.is_started])

    @cached_property
    def jct_ms(self) -> np.ndarray:
        """(num_finished,) int64, sorted: end - submission."""
        return np.sort(self.jct_so_far_ms[self.is_finished])

    @cached_property
    def queueing_ms(self) -> np.ndarray:
        """(num_finished,) int64, sorted: time in the system without GPUs, at least 0."""
        without = self.jct_so_far_ms[self.is_finished] - self.jobs["holding_ms"][self.is_finished]
        return np.sort(np.maximum(without, 0))  # pods that go on holding after the end (completing) are no queueing

    @cached_property
    def slowdown(self) -> np.ndarray:
        """(num_done,) float64, sorted: JCT / W."""
        return np.sort(self.jct_so_far_ms[self.is_done] / self.jobs["work_ms"][self.is_done])

    @cached_property
    def bounded_slowdown(self) -> np.ndarray:
        """(num_done,) float64, sorted: max(1, JCT / max(W, tau))."""
        run = np.maximum(self.jobs["work_ms"][self.is_done], TAU_MS)
        return np.sort(np.maximum(self.jct_so_far_ms[self.is_done] / run, 1.0))

    @cached_property
    def is_starved(self) -> np.ndarray:
        """(num_jobs,) bool: has waited longer than max(24 h, 10 W)."""
        limit = np.maximum(STARVED_RUNS * self.jobs["work_ms"], STARVED_MS)
        return self.wait_so_far_ms > limit  # type: ignore[no-any-return]

    @cached_property
    def phi(self) -> tuple[Number, ...]:
        """Service ratio of each tenant; None for one that had no claim to anything."""
        pairs = zip(self.tenants["held_area"], self.tenants["fair_area"], strict=True)
        return tuple(_ratio(held, fair) for held, fair in pairs)

    @cached_property
    def finish_time_ratio(self) -> np.ndarray:
        """(n,) float64, sorted: rho of each job with GPUs and work; of an unfinished one so far. See `ftf_worst`."""
        if self.timeline is None:
            return np.zeros(0)
        jobs = self.jobs[(self.jobs["gpus"] > 0) & (self.jobs["work_ms"] > 0)]
        jct = self.jct_so_far_ms[(self.jobs["gpus"] > 0) & (self.jobs["work_ms"] > 0)]
        active, fair = self.timeline.means_over(jobs["tenant"], jobs["submit_ms"], jobs["submit_ms"] + jct)
        slice_ = fair / np.maximum(active, 1.0)
        slower = np.divide(jobs["gpus"], slice_, out=np.full(len(jobs), np.inf), where=slice_ > 0)
        return np.sort(jct / (jobs["work_ms"] * np.maximum(slower, 1.0)))

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many jobs there are of each kind that a metric may be taken over."""
        outcome, finished = self.jobs["outcome"], self.is_finished
        num_finished, num_ended = int(finished.sum()), int(self.jobs["has_ended"].sum())
        return {
            "jobs": len(self.jobs),
            "started": int(self.is_started.sum()),
            "finished": num_finished,
            "done": int(self.is_done.sum()),
            "failed": int((finished & (outcome == Outcome.FAILED)).sum()),
            "timeout": int((finished & (outcome == Outcome.TIMEOUT)).sum()),
            "cancelled_by_user": int((finished & (outcome == Outcome.CANCELLED)).sum()),
            "unfinished": len(self.jobs) - num_finished,
            "killed": num_ended - num_finished,
            "gangs": int((self.jobs["gpus"] > self.gpus_per_node).sum()),
            "rejected": self.num_rejected,
            "reclaims": 0 if self.timeline is None else len(self.timeline.reclaim_ms),
        }


@dataclass(frozen=True)
class Metric:
    """One number of a report.

    Attributes:
        compute: from a window; its docstring is formula and source.
        unit: of the value.
        better: which direction is.
        is_headline: reported for every policy, also when it is worse.
        over: name of the count that stands beside it, where it is taken over jobs.
    """

    compute: Callable[[Window], Number]
    unit: str
    better: Literal["higher", "lower", "none"]
    is_headline: bool = False
    over: str | None = None


@dataclass(frozen=True)
class Report:
    """All numbers of one run, in a fixed order, ready for JSON.

    Attributes:
        window: start, stop and now (ms), GPUs.
        values: by metric name.
        counts: jobs by what became of them.
        sizes: by size class, counts and times of its jobs.
        tenants: by tenant, its share, its service and the counts and times of its jobs.
        gpu_time: milli-GPU x ms held in the window, and what became of it.
        cluster_ftf: finish-time fairness in the form of Themis and Sia, a table of its own: see `cluster_ftf`.
        identity_holds: whether `gpu_time` adds up exactly and equals the integral of GPUs held.
        is_recorded: whether what needs to know when comes from a recording that missed nothing.
    """

    window: dict[str, Number]
    values: dict[str, Number]
    counts: dict[str, int]
    sizes: dict[str, dict[str, Number]]
    tenants: dict[str, dict[str, Number]]
    gpu_time: dict[str, int]
    identity_holds: bool
    is_recorded: bool = False
    cluster_ftf: dict[str, Number] = field(default_factory=dict)

    def headline(self) -> dict[str, Number]:
        """The values that are reported for every policy."""
        return {name: value for name, value in self.values.items() if METRICS[name].is_headline}

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, numbers and None, each value with its unit, direction and count."""
        metrics: dict[str, Any] = {}
        for name, value in self.values.items():
            metric = METRICS[name]
            entry = {"value": value, "unit": metric.unit, "better": metric.better, "headline": metric.is_headline}
            metrics[name] = entry if metric.over is None else {**entry, "jobs": self.counts[metric.over]}
        return {
            "window": dict(self.window),
            "metrics": metrics,
            "counts": dict(self.counts),
            "sizes": {name: dict(table) for name, table in self.sizes.items()},
            "tenants": {name: dict(table) for name, table in self.tenants.items()},
            "gpu_time": dict(self.gpu_time),
            "identity_holds": self.identity_holds,
            "is_recorded": self.is_recorded,
            "cluster_ftf": dict(self.cluster_ftf),
        }


def snapshot(world: World) -> Snapshot:
    """The counters of a world now. The world is left bit for bit as it was.

    Raises:
        GanglineError: if the world keeps no log.
    """
    return _read(world)[0]


def measure(world: World, start: Snapshot, stop: Snapshot | None = None, recording: Recording | None = None) -> Report:
    """Every metric over the window from `start` to `stop` (None: now). The world is left bit for bit as it was.

    Args:
        world: the world that both snapshots are of, at `stop` or later.
        start: when counting begins, after the warm-up.
        stop: when it ends, before the drain.
        recording: of the world since `start`, or earlier; closed.

    Raises:
        GanglineError: if the window ends before it begins or the world keeps no log.
    """
    return report_of(window_of(world, start, stop, recording), world.names.tenants)


def identity(world: World) -> Identity:
    """Where the GPU time went since the world began. It must add up: see `Identity.holds`."""
    gpu_time, totals = _gpu_time_and_totals(world)
    return Identity(gpu_time["held"], totals["held_area"], {part: gpu_time[part] for part in _PARTS})


def window_of(
    world: World, start: Snapshot, stop: Snapshot | None = None, recording: Recording | None = None
) -> Window:
    """The window from `start` to `stop` (None: now), and its jobs as of now. Arguments and errors as `measure`."""
    now, live = _read(world)
    stop = now if stop is None else stop
    if not start.now_ms <= stop.now_ms <= now.now_ms:
        raise GanglineError(
            f"the window is from {start.now_ms} to {stop.now_ms} ms, expected it to end in order and by {now.now_ms} ms"
        )
    lines = np.concatenate([_lines_of_log(world.ended()), live])
    jobs = lines[(lines["submit_ms"] >= start.now_ms) & (lines["submit_ms"] <= stop.now_ms)]
    is_rejected = jobs["has_ended"] & (jobs["outcome"] == Outcome.REJECTED)
    totals = {name: stop.totals[name] - start.totals[name] for name in stop.totals}
    tenants = {
        name: tuple(after - before for after, before in zip(stop.tenants[name], start.tenants[name], strict=True))
        for name in stop.tenants
    }
    return Window(
        start_ms=start.now_ms,
        stop_ms=stop.now_ms,
        now_ms=now.now_ms,
        gpus=stop.gpus,
        gpus_per_node=stop.gpus_per_node,
        totals=totals,
        jain_area=stop.jain_area - start.jain_area,
        gpu_time=_gpu_time_between(world, start, stop),
        undecided=stop.gpu_time["undecided"],
        backlog=stop.backlog,
        tenants=tenants,
        weights=stop.weights,
        jobs=jobs[~is_rejected],
        num_rejected=int(is_rejected.sum()),
        usage=stop.usage,
        timeline=None if recording is None else _timeline(recording, tenants, start.now_ms, stop.now_ms),
    )


def _timeline(
    recording: Recording, tenants: dict[str, tuple[int, ...]], start_ms: int, stop_ms: int
) -> Timeline | None:
    """The timeline of a recording, if it agrees with the core's integrals."""
    if not recording.begin_ms <= start_ms <= stop_ms <= recording.end_ms:
        return None
    timeline = timeline_of(Log.of(recording), len(tenants["held_area"]), start_ms, stop_ms)
    agrees = timeline.agrees_with(tenants["held_area"], tenants["demand_area"], tenants["fair_area"])
    return timeline if agrees else None


def size_class_of(jobs: np.ndarray) -> np.ndarray:
    """(num_jobs,) index into SIZE_CLASSES of (num_jobs,) LINE."""
    return np.searchsorted(_SIZE_LIMITS, jobs["gpus"])


def report_of(window: Window, tenant_names: Sequence[str]) -> Report:
    """Every metric of METRICS, and the tables by size and tenant."""
    gpu_time = window.gpu_time
    parts = {part: gpu_time[part] for part in _PARTS}
    by_size = size_class_of(window.jobs)
    return Report(
        window={
            "start_ms": window.start_ms,
            "stop_ms": window.stop_ms,
            "now_ms": window.now_ms,
            "gpus": window.gpus / ONE_GPU,
        },
        values={name: _finite(metric.compute(window)) for name, metric in METRICS.items()},
        counts=window.counts,
        sizes=_by_group(window, by_size, SIZE_CLASSES),
        tenants=_tenant_table(window, tenant_names),
        gpu_time={"held": gpu_time["held"], **parts},
        identity_holds=gpu_time["held"] == window.totals["held_area"] == sum(parts.values()),
        is_recorded=window.timeline is not None,
        cluster_ftf=cluster_ftf(window),
    )


# ---------------------------------------------------------------------------------------------------------------
# Utilization and waste: metrics 2
# ---------------------------------------------------------------------------------------------------------------


def allocation_utilization(w: Window) -> Number:
    """`int A dt / (C H)`. metrics 2. In an open system this is the offered load: never the only headline."""
    return w.of_cluster(w.totals["held_area"])


def allocation_utilization_of_up(w: Window) -> Number:
    """`int A dt / int C(t) dt`, `C(t)` = GPUs of nodes that are not down. metrics 2, the variant for failing nodes."""
    return _ratio(w.totals["held_area"], w.totals["capacity_area"])


def productive_utilization(w: Window) -> Number:
    """`kept / (C H)`: GPU time that became kept in the window. metrics 2 (goodput) and 5 (productive service).

    Without hang, restore, checkpoint writes, what was lost since a checkpoint, and what is undecided at the end.
    """
    return w.of_cluster(w.gpu_time["kept"] + w.gpu_time["kept_bad"])


def productive_utilization_ok(w: Window) -> Number:
    """`productive_utilization` without what was kept by jobs that ended in the window, and not well. metrics 2."""
    return w.of_cluster(w.gpu_time["kept"])


def demand_bounded_utilization(w: Window) -> Number:
    """`int min(A, C) dt / int min(C, sum D) dt`: 1 = never idle while somebody could use it. metrics 2.

    `A <= C` and `A <= sum D` hold in the model. The denominator grows with a policy's backlog: for light loads only.
    """
    return _ratio(w.totals["held_area"], w.totals["wanted_area"])


def productive_gpu_h(w: Window) -> Number:
    """GPU time that became kept in the window. metrics 5, productive service before the division."""
    return _gpu_h(w.gpu_time["kept"] + w.gpu_time["kept_bad"])


def wasted_hang_gpu_h(w: Window) -> Number:
    """GPU time held without progress: hung, or with fewer pods than the gang needs. metrics 2."""
    return _gpu_h(w.gpu_time["hang"])


def wasted_lost_gpu_h(w: Window) -> Number:
    """GPU time since the last checkpoint, at every stop that rolls back. metrics 2."""
    return _gpu_h(w.gpu_time["lost"])


def wasted_overhead_gpu_h(w: Window) -> Number:
    """GPU time of start, restore and checkpoint writes. metrics 2."""
    return _gpu_h(w.gpu_time["overhead"])


def suspended_gpu_h(w: Window) -> Number:
    """GPU time held by suspended jobs. metrics 2, identity."""
    return _gpu_h(w.gpu_time["suspended"])


def releasing_gpu_h(w: Window) -> Number:
    """GPU time of pods on their way out (grace, completing). metrics 2, identity."""
    return _gpu_h(w.gpu_time["releasing"])


def surplus_gpu_h(w: Window) -> Number:
    """GPU time held beyond the request, by whole-node placement. metrics 2, identity."""
    return _gpu_h(w.gpu_time["surplus"])


def undecided_gpu_h(w: Window) -> Number:
    """GPU time since the last checkpoint of what runs at the end of the window, to be kept or lost. metrics 2."""
    return _gpu_h(w.undecided)


def reserved_gpu_h(w: Window) -> Number:
    """Idle GPU time that reservations kept free."""
    return _gpu_h(w.totals["reserved_area"])


def offered_load(w: Window) -> Number:
    """`sum g W / (C H)` of the jobs submitted in the window. metrics 7."""
    return w.of_cluster(_exact_dot(w.jobs["gpus"], w.jobs["work_ms"]))


def backlog_gpu_h(w: Window) -> Number:
    """Work left at full speed of all jobs in the system at the end of the window. metrics 2: beside utilization."""
    return _gpu_h(w.backlog)


def productive_utilization_at_speed(w: Window) -> Number:
    """`productive_utilization` x relative speed, for GPUs of several models and jobs slowed by their span. metrics 2.

    Relative speed is the mean over all GPU time of running pods, kept or not, full speed = 1.
    """
    if w.timeline is None or w.timeline.run_area == 0:
        return None
    speed = w.timeline.speed_area / (1000 * w.timeline.run_area)
    value = productive_utilization(w)
    return None if value is None else value * speed


def stranded_gpu_h(w: Window) -> Number:
    """Idle GPU time while the head job wants no more GPUs than are idle, and no placement takes it. metrics 2."""
    return None if w.timeline is None else _gpu_h(int(w.timeline.cluster["stranded"]))


def hung_attempts(w: Window) -> Number:
    """Attempts that made no progress for a time: hung, or with fewer pods than the gang needs. metrics 2."""
    return None if w.timeline is None else len(w.timeline.hung_ms)


def hang_delay_mean_s(w: Window) -> Number:
    """Mean time that such an attempt went on holding its GPUs: detection delay. metrics 2. None without one."""
    return None if w.timeline is None else _mean_s(w.timeline.hung_ms)


# ---------------------------------------------------------------------------------------------------------------
# Fragmentation: metrics 3
# ---------------------------------------------------------------------------------------------------------------


def fragmentation(w: Window) -> Number:
    """`int F dt / (C H)`, F = GPUs that are idle where the usual jobs cannot use them. metrics 3; FGD, Weng, ATC 2023.

    Task classes and their popularity come from the trace and are the same for every policy.
    """
    return None if w.timeline is None else _ratio(w.timeline.cluster["fragmented"], w.gpus * w.length_ms)


def fragmentation_of_free(w: Window) -> Number:
    """`int F dt / int R dt`, R = idle GPUs: the share of what is free that the usual jobs cannot use. metrics 3."""
    if w.timeline is None:
        return None
    return _ratio(w.timeline.cluster["fragmented"], int(w.timeline.cluster["idle"]))


def whole_free_share(w: Window) -> Number:
    """Idle GPU time on nodes with every GPU free / idle GPU time: what gangs of whole nodes could take. metrics 3."""
    if w.timeline is None:
        return None
    return _ratio(w.timeline.cluster["whole_free"], int(w.timeline.cluster["idle"]))


# ---------------------------------------------------------------------------------------------------------------
# Jobs: metrics 4
# ---------------------------------------------------------------------------------------------------------------


def wait_mean_s(w: Window) -> Number:
    """Mean of first start - submission, over jobs that started. metrics 4. A job never started is not in it."""
    return _mean_s(w.wait_ms)


def wait_p50_s(w: Window) -> Number:
    """Median of first start - submission. metrics 4."""
    return _percentile_s(w.wait_ms, 50)


def wait_p95_s(w: Window) -> Number:
    """95th percentile of first start - submission, linear interpolation. metrics 4."""
    return _percentile_s(w.wait_ms, 95)


def wait_p99_s(w: Window) -> Number:
    """99th percentile of first start - submission, linear interpolation. metrics 4."""
    return _percentile_s(w.wait_ms, 99)


def wait_so_far_mean_s(w: Window) -> Number:
    """Mean wait of all jobs; one that never started has waited until now, or until its user cancelled it. metrics 4."""
    return _mean_s(w.wait_so_far_ms)


def wait_max_s(w: Window) -> Number:
    """Longest wait of any job, so far where it never started. metrics 4."""
    return _max_s(w.wait_so_far_ms)


def wait_max_gang_s(w: Window) -> Number:
    """Longest wait, so far, of a job that needs more GPUs than a node has. metrics 4."""
    return _max_s(w.wait_so_far_ms[w.jobs["gpus"] > w.gpus_per_node])


def oldest_waiting_s(w: Window) -> Number:
    """Age of the oldest job that has not started and is still there; 0 if there is none. metrics 4."""
    waits = ~w.is_started & ~w.jobs["has_ended"]
    return (w.now_ms - int(w.jobs["submit_ms"][waits].min(initial=w.now_ms))) / SECOND_MS


def queueing_mean_s(w: Window) -> Number:
    """Mean of end - submission - time holding GPUs, over finished jobs: waits after preemption too. metrics 4."""
    return _mean_s(w.queueing_ms)


def queueing_p95_s(w: Window) -> Number:
    """95th percentile of the total queueing. metrics 4."""
    return _percentile_s(w.queueing_ms, 95)


def jct_mean_s(w: Window) -> Number:
    """Mean of end - submission, over finished jobs. metrics 4. A job never started is not in it."""
    return _mean_s(w.jct_ms)


def jct_p50_s(w: Window) -> Number:
    """Median of end - submission. metrics 4."""
    return _percentile_s(w.jct_ms, 50)


def jct_p95_s(w: Window) -> Number:
    """95th percentile of end - submission. metrics 4."""
    return _percentile_s(w.jct_ms, 95)


def jct_p99_s(w: Window) -> Number:
    """99th percentile of end - submission. metrics 4."""
    return _percentile_s(w.jct_ms, 99)


def jct_so_far_mean_s(w: Window) -> Number:
    """Mean time in the system of all jobs, until now for unfinished ones. metrics 4."""
    return _mean_s(w.jct_so_far_ms)


def jct_weighted_s(w: Window) -> Number:
    """Mean JCT of finished jobs, each weighted by the GPU time it asked for: `sum g W JCT / sum g W`. metrics 4."""
    return _weighted_mean_s(w.jobs[w.is_finished], w.jct_so_far_ms[w.is_finished])


def jct_so_far_weighted_s(w: Window) -> Number:
    """The same over all jobs, until now for unfinished ones: `sum g W T / sum g W`. metrics 4."""
    return _weighted_mean_s(w.jobs, w.jct_so_far_ms)


def slowdown_mean(w: Window) -> Number:
    """Mean of JCT / W, over jobs that are done: W of the others is hidden. metrics 4."""
    return _mean(w.slowdown)


def slowdown_p50(w: Window) -> Number:
    """Median of JCT / W. metrics 4."""
    return _percentile(w.slowdown, 50)


def slowdown_p95(w: Window) -> Number:
    """95th percentile of JCT / W. metrics 4."""
    return _percentile(w.slowdown, 95)


def bounded_slowdown_mean(w: Window) -> Number:
    """Mean of max(1, JCT / max(W, 10 s)), over jobs that are done. metrics 4; RLScheduler, SC 2020."""
    return _mean(w.bounded_slowdown)


def bounded_slowdown_p50(w: Window) -> Number:
    """Median of the bounded slowdown. metrics 4."""
    return _percentile(w.bounded_slowdown, 50)


def bounded_slowdown_p95(w: Window) -> Number:
    """95th percentile of the bounded slowdown. metrics 4."""
    return _percentile(w.bounded_slowdown, 95)


def bounded_slowdown_p99(w: Window) -> Number:
    """99th percentile of the bounded slowdown. metrics 4."""
    return _percentile(w.bounded_slowdown, 99)


def makespan_s(w: Window) -> Number:
    """`max end - min submission`; None while a job is unfinished. metrics 4. Meaningful for closed batches only."""
    if not len(w.jobs) or not w.is_finished.all():
        return None
    return (int(w.jobs["end_ms"].max()) - int(w.jobs["submit_ms"].min())) / SECOND_MS


def starved_jobs(w: Window) -> Number:
    """Jobs that have waited longer than max(24 h, 10 W), so far where they never started. metrics 4."""
    return int(w.is_starved.sum())


def unfinished_jobs(w: Window) -> Number:
    """Jobs that are still there, or were killed. metrics 4."""
    return w.counts["unfinished"]


def unfinished_gpu_h(w: Window) -> Number:
    """Work left of the unfinished jobs at full speed; all of a killed job's work is owed. metrics 4."""
    is_killed = w.jobs["has_ended"] & ~w.is_finished
    owed = _exact_dot(w.jobs["gpus"][is_killed], w.jobs["work_ms"][is_killed])
    return _gpu_h(owed + int(w.jobs["left"].sum()))


def waiting_jobs_mean(w: Window) -> Number:
    """`int waiting jobs dt / H`. metrics 4: by Little's law, arrival rate x mean wait, preempted waits included."""
    return _ratio(w.totals["waiting_area"], w.length_ms)


def jobs_in_system_mean(w: Window) -> Number:
    """`int jobs in the system dt / H`. metrics 4: by Little's law, arrival rate x mean JCT."""
    return _ratio(w.totals["in_system_area"], w.length_ms)


def waiting_load(w: Window) -> Number:
    """`int GPUs asked for by waiting jobs dt / (C H)`: the backlog in clusters, on average."""
    return w.of_cluster(w.totals["gpus_waiting_area"])


# ---------------------------------------------------------------------------------------------------------------
# Tenants: metrics 5
# ---------------------------------------------------------------------------------------------------------------


def over_share(w: Window) -> Number:
    """`int sum_k [A_k - F_k]+ dt / (C H)`: held beyond the fair share while others lack theirs. metrics 5.

    The headline fairness axis, never read alone: a GPU left idle that only a tenant above its share could have used
    lowers it, and shows up in `productive_utilization` and `idle_with_demand`.
    """
    return w.of_cluster(w.totals["over_area"])


def deficit(w: Window) -> Number:
    """`int sum_k [F_k - A_k]+ dt / (C H)`, in [0, 1]. metrics 5. Equals `over_share + idle_with_demand`, exactly."""
    return w.of_cluster(w.totals["deficit_area"])


def idle_with_demand(w: Window) -> Number:
    """`int [min(C, sum D) - A]+ dt / (C H)`: GPUs that nobody held while somebody wanted them. metrics 5."""
    return w.of_cluster(w.totals["wanted_area"] - w.totals["held_area"])  # A <= min(C, sum D) at all times


def unproductive_with_demand(w: Window) -> Number:
    """`int [min(C, sum D) - P]+ dt / (C H)`, P = requested GPUs of jobs that are going. docs/model.md section 7.

    More than `idle_with_demand` by what is hung, suspended, releasing or surplus while somebody wants it.
    """
    return w.of_cluster(w.totals["idle_area"])


def jain(w: Window) -> Number:
    """`(1/H) int Jain(x) dt`, `x_k = min(A_k / F_k, 1)` over tenants with demand, 1 where nobody wants anything.

    `Jain(x) = (sum x)^2 / (n sum x^2)`. metrics 5. Like `over_share` never read alone: equal misery is 1.
    """
    return _ratio(w.jain_area, w.length_ms)


def min_phi(w: Window) -> Number:
    """`min_k phi_k`, `phi_k = int A_k dt / int F_k dt`, over tenants that had a claim. metrics 5, min share.

    `F_k` follows the backlog that a policy leaves, so that this is no headline: read it beside `deficit`.
    """
    return min((phi for phi in w.phi if phi is not None), default=None)


def jain_phi(w: Window) -> Number:
    """`Jain(phi) = (sum phi)^2 / (n sum phi^2)` of the window, over tenants that had a claim. metrics 5 (Jain 1984).

    Long-term, unlike the time-averaged `jain`: turns that tenants take in being short even out.
    """
    phi = [p for p in w.phi if p is not None]
    squares = sum(p * p for p in phi)
    return None if squares == 0 else sum(phi) ** 2 / (len(phi) * squares)


def score(w: Window) -> Number:
    """`productive_utilization - over_share`: the declared scalar of a comparison, its two headline axes. metrics 7.

    A GPU left idle to lower the over-share is missing from the service, so that neither is bought with the other.
    """
    service, over = productive_utilization(w), over_share(w)
    return None if service is None or over is None else service - over


def jain_phi_day_mean(w: Window) -> Number:
    """Mean over the whole 24 h windows of `Jain(phi)` in each. metrics 5. None where there is no whole day."""
    values = _daily_jain(w)
    return _mean(values)


def jain_phi_day_p5(w: Window) -> Number:
    """5th percentile of the same, linear interpolation, of however many days there are. metrics 5."""
    values = _daily_jain(w)
    return float(np.percentile(values, 5)) if len(values) else None


def _daily_jain(w: Window) -> np.ndarray:
    """(num_days,) Jain index of `int A_k / int F_k` of each whole day, over tenants that had a claim in it."""
    if w.timeline is None:
        return np.zeros(0)
    indices = []
    for held, fair in w.timeline.day_phi:
        phi = held[fair > 0] / fair[fair > 0]
        if (phi > 0).any():
            indices.append(phi.sum() ** 2 / (len(phi) * (phi * phi).sum()))
    return np.array(indices)


def envy_max(w: Window) -> Number:
    """`max_{k,l} int E_kl dt / (C H)`, `E_kl = [min(A_l w_k / w_l, D_k) - A_k]+`. metrics 5. Max-min has none."""
    if w.timeline is None or not w.timeline.envy.size:
        return None
    return _ratio(float(w.timeline.envy.max()), w.gpus * w.length_ms)


def dominant_share_gap(w: Window) -> Number:
    """`(1/H) int (max_k ds_k - min_{k: D_k > 0} ds_k) dt`, ds = largest share of a resource / e_k. metrics 5; DRF."""
    return None if w.timeline is None else _ratio(w.timeline.dominant_gap, w.length_ms)


def kueue_share_max(w: Window) -> Number:
    """`(1/H) int max_k v_k dt`, v = 1000 x borrowed / lendable / weight, weights of mean 1. metrics 5; Kueue's."""
    return None if w.timeline is None else _ratio(w.timeline.kueue_share, w.length_ms)


def slurm_factor_min(w: Window) -> Number:
    """`min_k 2^(-U_k / S_k)` at the end, U = share of decayed usage, S = e_k. metrics 5; Slurm's, .5 = even."""
    total, weights = sum(w.usage), sum(w.weights)
    if not total or not weights:
        return None
    pairs = zip(w.usage, w.weights, strict=True)
    return min((2.0 ** -(u / total * weights / weight) for u, weight in pairs if weight), default=None)


def ftf_worst(w: Window) -> Number:
    """Largest rho, finish-time fairness in its tenant form. metrics 5; Themis, NSDI 2020.

    `rho = T / (W max(1, g n / max(e_k C, F_k)))`, n = mean active jobs of the tenant, F_k its mean fair share, both
    while the job was there; T = JCT, so far for an unfinished job. 1 = as fast as alone on its slice of the share.
    """
    return float(w.finish_time_ratio[-1]) if len(w.finish_time_ratio) else None


def ftf_p95(w: Window) -> Number:
    """95th percentile of rho."""
    return _percentile(w.finish_time_ratio, 95)


def ftf_unfair_share(w: Window) -> Number:
    """Share of the jobs with rho > 1. metrics 5."""
    rho = w.finish_time_ratio
    return _ratio(int((rho > 1).sum()), len(rho))


def cluster_ftf(w: Window) -> dict[str, Number]:
    """Worst, 95th percentile, unfair share of `rho = T / (W max(1, g N / C))`, N = mean jobs in the system meanwhile.

    The form of Themis (NSDI 2020) as computed in Sia (SOSP 2023), where every job has an equal claim, whosever it is.
    Not comparable with `ftf_worst`, and so in no table with it. metrics 5.
    """
    if w.timeline is None or w.gpus == 0:
        return {}
    has_work = (w.jobs["gpus"] > 0) & (w.jobs["work_ms"] > 0)
    jobs, jct = w.jobs[has_work], w.jct_so_far_ms[has_work]
    in_system = np.maximum(w.timeline.mean_in_system(jobs["submit_ms"], jobs["submit_ms"] + jct), 1.0)
    rho = np.sort(jct / (jobs["work_ms"] * np.maximum(jobs["gpus"] * in_system / w.gpus, 1.0)))
    return {
        "jobs": len(rho),
        "worst": float(rho[-1]) if len(rho) else None,
        "p95": _percentile(rho, 95),
        "unfair_share": _ratio(int((rho > 1).sum()), len(rho)),
    }


# ---------------------------------------------------------------------------------------------------------------
# Preemption, services, decisions: metrics 6
# ---------------------------------------------------------------------------------------------------------------


def preemptions(w: Window) -> Number:
    """Stops in the window that a job did not ask for: evictions, node failures, hang aborts. metrics 6."""
    return w.totals["num_preemptions"]


def preemptions_per_1000_jobs(w: Window) -> Number:
    """1000 x preemptions of the window's jobs / jobs. metrics 6."""
    return _ratio(1000 * int(w.jobs["preemptions"].sum()), len(w.jobs))


def preemptions_per_gpu_h(w: Window) -> Number:
    """Preemptions in the window per GPU-hour held in it. metrics 6."""
    return _ratio(w.totals["num_preemptions"] * GPU_H, w.totals["held_area"])


def preemptions_max(w: Window) -> Number:
    """Most preemptions of one job. metrics 6."""
    return int(w.jobs["preemptions"].max(initial=0))


def preempted_share(w: Window) -> Number:
    """Share of the jobs that were preempted at least once. metrics 6."""
    return _ratio(int((w.jobs["preemptions"] > 0).sum()), len(w.jobs))


def stops_by_node(w: Window) -> Number:
    """Attempts that a node failure stopped. metrics 6."""
    return None if w.timeline is None else w.timeline.stops["by_node"]


def stops_by_hang(w: Window) -> Number:
    """Attempts that were aborted after the hang timeout. metrics 6."""
    return None if w.timeline is None else w.timeline.stops["by_hang"]


def stops_for_priority(w: Window) -> Number:
    """Attempts evicted whose GPUs went, within a minute, to a job of higher priority of the same tenant. metrics 6."""
    return None if w.timeline is None else w.timeline.stops["priority"]


def stops_for_reclaim(w: Window) -> Number:
    """Attempts evicted whose GPUs went to another tenant within its own nominal quota. metrics 6."""
    return None if w.timeline is None else w.timeline.stops["reclaim"]


def stops_for_fair_share(w: Window) -> Number:
    """Attempts evicted whose GPUs went to another tenant beyond its nominal quota. metrics 6."""
    return None if w.timeline is None else w.timeline.stops["fair_share"]


def stops_other(w: Window) -> Number:
    """Attempts evicted whose GPUs went to nobody within a minute, or to a job of no higher priority. metrics 6."""
    return None if w.timeline is None else w.timeline.stops["other"]


def thrash(w: Window) -> Number:
    """Attempts stopped within 2 x (restart cost + checkpoint interval) of their restart. metrics 6."""
    return None if w.timeline is None else w.timeline.thrash


def quota_violation_gpu_h(w: Window) -> Number:
    """`int sum_k [A_k - limit_k]+ dt`, limit = nominal quota + borrowing limit. metrics 6."""
    return None if w.timeline is None else _gpu_h(int(w.timeline.tenants["beyond_limit"].sum()))


def borrowed_gpu_h(w: Window) -> Number:
    """`int sum_k [A_k - Q_k]+ dt`, Q = nominal quota, the entitlement where there is none. metrics 6."""
    return None if w.timeline is None else _gpu_h(int(w.timeline.tenants["borrowed"].sum()))


def lent_gpu_h(w: Window) -> Number:
    """`int min(sum_k [A_k - Q_k]+, sum_k [Q_k - A_k]+) dt`: own quota idle while others borrow. metrics 6."""
    return None if w.timeline is None else _gpu_h(w.timeline.lent)


def reclaim_delay_mean_s(w: Window) -> Number:
    """Mean time from "the job fits into its tenant's own quota" to its start; so far where it has not. metrics 6."""
    return None if w.timeline is None else _mean_s(w.timeline.reclaim_ms)


def reclaim_delay_p95_s(w: Window) -> Number:
    """95th percentile of the same. metrics 6."""
    return None if w.timeline is None else _percentile_s(w.timeline.reclaim_ms, 95)


def priority_inversion_gpu_h(w: Window) -> Number:
    """GPU time of lower priority while a higher one of the same tenant waits that would fit there. metrics 6."""
    return None if w.timeline is None else _gpu_h(w.timeline.inversion)


def slo_attainment(w: Window) -> Number:
    """`1 - int [n - running]+ dt / int n dt` over services, n = replicas wanted. metrics 6."""
    wanted = w.totals["replica_wanted_area"]
    return _ratio(wanted - w.totals["replica_missing_area"], wanted)


def decisions_per_hour(w: Window) -> Number:
    """Decisions asked of the scheduler per simulated hour. metrics 6."""
    return _ratio(w.totals["num_decisions"] * HOUR_MS, w.length_ms)


# ---------------------------------------------------------------------------------------------------------------
# Arithmetic
# ---------------------------------------------------------------------------------------------------------------


def _ratio(part: float, whole: int) -> float | None:
    """part / whole, correctly rounded; None where there is no whole."""
    return None if whole == 0 else part / whole


def _gpu_h(area: int) -> float:
    return area / GPU_H


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _mean_s(times_ms: np.ndarray) -> float | None:
    return _ratio(int(times_ms.sum()), SECOND_MS * len(times_ms))


def _max_s(times_ms: np.ndarray) -> float | None:
    return int(times_ms.max()) / SECOND_MS if len(times_ms) else None


def _percentile(sorted_values: np.ndarray, percent: int) -> float | None:
    """By linear interpolation between the two nearest, numpy's default; None of fewer than MIN_JOBS values."""
    if len(sorted_values) < MIN_JOBS:
        return None
    index, hundredths = divmod((len(sorted_values) - 1) * percent, 100)
    low = sorted_values[index].item()
    high = sorted_values[min(index + 1, len(sorted_values) - 1)].item()
    return float(low + (high - low) * hundredths / 100)


def _percentile_s(sorted_ms: np.ndarray, percent: int) -> float | None:
    value = _percentile(sorted_ms, percent)
    return None if value is None else value / SECOND_MS


def _weighted_mean_s(jobs: np.ndarray, times_ms: np.ndarray) -> float | None:
    asked = jobs["gpus"] * jobs["work_ms"]
    return _ratio(_exact_dot(asked, times_ms), SECOND_MS * int(asked.sum()))


_LIMB_BITS = 21  # products of two limbs are below 2**42, so that 2**20 of them fit into an int64
_CHUNK = 1 << 20


def _exact_dot(a: np.ndarray, b: np.ndarray) -> int:
    """sum a_i b_i of non-negative int64, exact where it does not fit into 64 bits."""
    total = 0
    for first in range(0, len(a), _CHUNK):
        limbs_a = _limbs(a[first : first + _CHUNK])
        limbs_b = _limbs(b[first : first + _CHUNK])
        for i, x in enumerate(limbs_a):
            for j, y in enumerate(limbs_b):
                total += int(np.dot(x, y)) << _LIMB_BITS * (i + j)
    return total


def _limbs(values: np.ndarray) -> list[np.ndarray]:
    """21-bit digits, lowest first, as many as the largest value has."""
    num_limbs = -(-int(values.max(initial=0)).bit_length() // _LIMB_BITS)
    return [values >> _LIMB_BITS * i & (1 << _LIMB_BITS) - 1 for i in range(num_limbs)]


def _finite(value: Number) -> Number:
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---------------------------------------------------------------------------------------------------------------
# Tables by size and tenant
# ---------------------------------------------------------------------------------------------------------------

_GROUP_COUNTS = ("jobs", "started", "finished", "done", "unfinished")
_GROUP_METRICS = (
    *("wait_mean_s", "wait_p50_s", "wait_p95_s", "wait_p99_s", "wait_max_s", "queueing_mean_s"),
    *("jct_mean_s", "jct_p50_s", "jct_p95_s", "jct_p99_s", "jct_so_far_mean_s", "jct_so_far_weighted_s"),
    *("bounded_slowdown_mean", "bounded_slowdown_p50", "bounded_slowdown_p95", "bounded_slowdown_p99"),
    *("starved_jobs", "unfinished_gpu_h", "preempted_share"),
)


def _by_group(w: Window, group: np.ndarray, names: Sequence[str]) -> dict[str, dict[str, Number]]:
    """Counts and times of the jobs of each group; percentiles of fewer than MIN_JOBS jobs are None."""
    order = np.argsort(group.astype(np.int16), kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=len(names)))
    table: dict[str, dict[str, Number]] = {}
    for index, name in enumerate(names):
        first = int(ends[index - 1]) if index else 0
        part = replace(w, jobs=w.jobs[order[first : int(ends[index])]])
        counts: dict[str, Number] = {count: part.counts[count] for count in _GROUP_COUNTS}
        table[name] = {**counts, **{m: _finite(METRICS[m].compute(part)) for m in _GROUP_METRICS}}
    return table


def _tenant_table(w: Window, names: Sequence[str]) -> dict[str, dict[str, Number]]:
    """Of each tenant: what it was entitled to, what it got (metrics 5), and the times of its jobs."""
    times = _by_group(w, w.jobs["tenant"], names)
    table: dict[str, dict[str, Number]] = {}
    for k, name in enumerate(names):
        area = {field: values[k] for field, values in w.tenants.items()}
        entitlement = _ratio(w.weights[k], sum(w.weights))  # e_k
        share = _ratio(area["held_area"], w.totals["held_area"])  # S_k
        table[name] = {
            "entitlement": entitlement,
            "service_share": share,
            "share_vs_entitlement": None if share is None or not entitlement else share / entitlement,
            "phi": w.phi[k],
            "held_gpu_h": _gpu_h(area["held_area"]),
            "kept_gpu_h": _gpu_h(area["kept"]),
            "demand": w.of_cluster(area["demand_area"]),
            "fair_share": w.of_cluster(area["fair_area"]),
            "over_share": w.of_cluster(area["over_area"]),
            "deficit": w.of_cluster(area["deficit_area"]),
            "borrowed_gpu_h": None if w.timeline is None else _gpu_h(int(w.timeline.tenants["borrowed"][k])),
            "lent_gpu_h": None if w.timeline is None else _gpu_h(int(w.timeline.tenants["lent"][k])),
            **times[name],
        }
    return table


# ---------------------------------------------------------------------------------------------------------------
# Reading a world
# ---------------------------------------------------------------------------------------------------------------


@contextmanager
def _up_to_date(world: World) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Live jobs and live pods with every counter right as of now; afterwards the world is bit for bit as it was.

    Decayed usage is a float that rounds each time it is brought up to date, and a policy may look at it: a measurement
    must not change the run.
    """
    w = world.record
    used = {"jobs": "jobs_used", "pods": "pods_used", "tenants": "num_tenants", "users": "num_users"}
    saved = {name: w[name][: int(w[count])].copy() for name, count in used.items()}
    scalars = {name: w[name].item() for name in ("over", "deficit", "jain", "shares_are_stale")}
    world.refresh()
    try:
        yield np.asarray(w["jobs"][: int(w["jobs_used"])]), np.asarray(w["pods"][: int(w["pods_used"])])
    finally:
        for name, values in saved.items():
            w[name][: len(values)] = values
        for name, value in scalars.items():
            w[name] = value


def _read(world: World) -> tuple[Snapshot, np.ndarray]:
    """A snapshot, and the (num_live,) LINE of the jobs that are not in the log."""
    w = world.record
    if int(w["log_used"]) != int(w["totals"]["num_ended"]):
        raise GanglineError("the world keeps no log of ended jobs, expected World(..., log=True) for a report")
    with _up_to_date(world) as (jobs, pods):
        slots = np.flatnonzero(jobs["state"] != JobState.FREE)
        live = jobs[slots]
        left = _work_left(live, slots, jobs, pods, world.now_ms)
        usage = tuple(map(float, w["tenants"]["usage"][: int(w["num_tenants"])]))
    gpu_time, totals = _gpu_time_and_totals(world)
    has_ended = _has_ended(live)
    is_open, is_bad = ~has_ended, has_ended & _is_bad(live["end_outcome"], live["kind"])
    lines = np.zeros(len(live), LINE)
    for name in ("row", "tenant", "preemptions", "submit_ms", "first_start_ms", "work_ms", "holding_ms"):
        lines[name] = live[name]
    lines["has_ended"] = has_ended
    lines["outcome"] = live["end_outcome"]
    lines["reason"] = live["end_reason"]
    lines["end_ms"] = np.where(has_ended, live["end_ms"], NEVER)
    lines["left"] = np.where(has_ended, 0, left)
    lines["gpus"] = _gpus_asked(live, w)
    tenants = w["tenants"][: int(w["num_tenants"])]
    kept = np.zeros(len(tenants), np.int64)
    np.add.at(kept, world.ended()["tenant"], world.ended()["kept"])
    np.add.at(kept, live["tenant"], live["gpu_time"]["kept"])
    nodes = w["nodes"][: int(w["num_nodes"])]
    return (
        Snapshot(
            now_ms=world.now_ms,
            gpus=int(w["gpus_total"]),
            gpus_per_node=ONE_GPU * int(nodes["num_gpus"].max(initial=0)),
            totals=totals,
            jain_area=float(w["totals"]["jain_area"]),
            gpu_time=gpu_time,
            tenants={**{f: tuple(map(int, tenants[f])) for f in _TENANT_AREAS}, "kept": tuple(map(int, kept))},
            weights=tuple(map(int, tenants["weight"])),
            usage=usage,
            backlog=int(lines["left"].sum()),
            log_used=int(w["log_used"]),
            open_rows=live["row"][is_open],
            open_kept=live["gpu_time"]["kept"][is_open],
            bad_rows=live["row"][is_bad],
        ),
        lines,
    )


def _gpus_asked(live: np.ndarray, w: np.void) -> np.ndarray:
    """(num_live,) int64: milli-GPU that live jobs ask for with all their pods, as the log says it of ended ones."""
    gpus = np.zeros(len(live), np.int64)
    resource = int(w["params"]["gpu_resource"])
    pod_sets = w["pod_sets"][: int(w["pod_sets_used"])]
    at = live["first_pod_set"].copy()
    while resource != NONE and (at != NONE).any():
        there = at != NONE
        pod_set = pod_sets[at[there]]
        gpus[there] += pod_set["count"] * pod_set["request"][:, resource]
        at[there] = pod_set["next"]
    return gpus


def _has_ended(live: np.ndarray) -> np.ndarray:
    """(num_live,) bool: has ended, and only its last pods are still there."""
    return (live["state"] == JobState.RELEASING) & (live["then"] == Then.CANCEL)  # type: ignore[no-any-return]


def _is_bad(outcome: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """(num_jobs,) bool: what such a job has kept is `kept_bad`. A service was useful while it ran, however it ended."""
    return (outcome != Outcome.DONE) & (kind != JobKind.SERVICE)  # type: ignore[no-any-return]


def _gpu_time_and_totals(world: World) -> tuple[dict[str, int], dict[str, int]]:
    """GPU time of all jobs so far, ended and live, and the world's integrals and counts. Needs no log."""
    with _up_to_date(world) as (jobs, pods):
        live = jobs[jobs["state"] != JobState.FREE]
        undecided = int(pods["progress"]["undecided"][pods["state"] != PodState.FREE].sum())
    totals = world.record["totals"]
    ended_bad = _has_ended(live) & _is_bad(live["end_outcome"], live["kind"])
    gpu_time = {f: int(totals["gpu_time"][f]) + int(live["gpu_time"][f].sum()) for f in GPU_TIME.names or ()}
    completing_bad = int(live["gpu_time"]["kept"][ended_bad].sum())
    gpu_time["kept"] -= completing_bad
    gpu_time["kept_bad"] = int(totals["kept_bad"]) + completing_bad
    gpu_time["undecided"] += undecided + int(live["progress"]["undecided"].sum())
    return gpu_time, {f: int(totals[f]) for f in totals.dtype.names or () if f not in _NO_TOTALS}


def _gpu_time_between(world: World, start: Snapshot, stop: Snapshot) -> dict[str, int]:
    """GPU time of a window. `kept_bad` only where it became kept in the window, not all of a job that ended in it."""
    between = {part: stop.gpu_time[part] - start.gpu_time[part] for part in stop.gpu_time}
    ended = world.ended()[start.log_used : stop.log_used]
    bad_rows = np.concatenate([ended["row"][_is_bad(ended["outcome"], ended["kind"])], stop.bad_rows])
    kept_before = int(start.open_kept[np.isin(start.open_rows, bad_rows)].sum())
    between["kept_bad"] -= kept_before
    between["kept"] += kept_before
    return between


def _work_left(live: np.ndarray, slots: np.ndarray, jobs: np.ndarray, pods: np.ndarray, now_ms: int) -> np.ndarray:
    """(num_live,) int64: milli-GPU x ms that live jobs still need at full speed, times rounded up to whole ms."""
    left = live["gpus_wanted"] * -(-live["progress"]["left"] // 1000)
    is_batch, is_service = live["kind"] == JobKind.BATCH, live["kind"] == JobKind.SERVICE
    bound = pods[(pods["state"] == PodState.BOUND) & (pods["job"] != NONE)]
    done = np.zeros(len(jobs), np.int64)  # by bound pods of batch jobs, milli-GPU x ms; the others start from nothing
    did_ms = jobs["work_ms"][bound["job"]] - -(-bound["progress"]["left"] // 1000)
    np.add.at(done, bound["job"], bound["gpus_asked"] * did_ms)
    left[is_batch] = (live["gpus_wanted"] * live["work_ms"] - done[slots])[is_batch]
    started = live["first_start_ms"] < NEVER
    lived = np.where(started, now_ms - np.where(started, live["first_start_ms"], 0), 0)
    left[is_service] = (live["gpus_wanted"] * np.maximum(live["work_ms"] - lived, 0))[is_service]
    return left  # type: ignore[no-any-return]


def _lines_of_log(log: np.ndarray) -> np.ndarray:
    """(num_ended,) LINE."""
    lines = np.zeros(len(log), LINE)
    for name in (*_FROM_LOG, "work_ms", "holding_ms", "gpus"):
        lines[name] = log[name]
    lines["has_ended"] = True
    return lines


# Every metric, in the order of a report. To add one: a function above, a line here.
METRICS: dict[str, Metric] = {
    "productive_utilization": Metric(productive_utilization, "share", "higher", is_headline=True),
    "productive_utilization_ok": Metric(productive_utilization_ok, "share", "higher"),
    "productive_utilization_at_speed": Metric(productive_utilization_at_speed, "share", "higher"),
    "allocation_utilization": Metric(allocation_utilization, "share", "none"),
    "allocation_utilization_of_up": Metric(allocation_utilization_of_up, "share", "none"),
    "demand_bounded_utilization": Metric(demand_bounded_utilization, "share", "higher"),
    "productive_gpu_h": Metric(productive_gpu_h, "GPU-h", "higher"),
    "wasted_hang_gpu_h": Metric(wasted_hang_gpu_h, "GPU-h", "lower"),
    "wasted_lost_gpu_h": Metric(wasted_lost_gpu_h, "GPU-h", "lower"),
    "wasted_overhead_gpu_h": Metric(wasted_overhead_gpu_h, "GPU-h", "lower"),
    "suspended_gpu_h": Metric(suspended_gpu_h, "GPU-h", "lower"),
    "releasing_gpu_h": Metric(releasing_gpu_h, "GPU-h", "lower"),
    "surplus_gpu_h": Metric(surplus_gpu_h, "GPU-h", "lower"),
    "undecided_gpu_h": Metric(undecided_gpu_h, "GPU-h", "none"),
    "reserved_gpu_h": Metric(reserved_gpu_h, "GPU-h", "none"),
    "stranded_gpu_h": Metric(stranded_gpu_h, "GPU-h", "lower"),
    "hung_attempts": Metric(hung_attempts, "attempts", "none"),
    "hang_delay_mean_s": Metric(hang_delay_mean_s, "s", "lower"),
    "offered_load": Metric(offered_load, "share", "none", over="jobs"),
    "backlog_gpu_h": Metric(backlog_gpu_h, "GPU-h", "lower"),
    "fragmentation": Metric(fragmentation, "share", "lower"),
    "fragmentation_of_free": Metric(fragmentation_of_free, "share", "lower"),
    "whole_free_share": Metric(whole_free_share, "share", "none"),
    "wait_mean_s": Metric(wait_mean_s, "s", "lower", over="started"),
    "wait_p50_s": Metric(wait_p50_s, "s", "lower", over="started"),
    "wait_p95_s": Metric(wait_p95_s, "s", "lower", over="started"),
    "wait_p99_s": Metric(wait_p99_s, "s", "lower", over="started"),
    "wait_so_far_mean_s": Metric(wait_so_far_mean_s, "s", "lower", over="jobs"),
    "wait_max_s": Metric(wait_max_s, "s", "lower", is_headline=True, over="jobs"),
    "wait_max_gang_s": Metric(wait_max_gang_s, "s", "lower", over="gangs"),
    "oldest_waiting_s": Metric(oldest_waiting_s, "s", "lower", over="unfinished"),
    "queueing_mean_s": Metric(queueing_mean_s, "s", "lower", over="finished"),
    "queueing_p95_s": Metric(queueing_p95_s, "s", "lower", over="finished"),
    "jct_mean_s": Metric(jct_mean_s, "s", "lower", over="finished"),
    "jct_p50_s": Metric(jct_p50_s, "s", "lower", over="finished"),
    "jct_p95_s": Metric(jct_p95_s, "s", "lower", over="finished"),
    "jct_p99_s": Metric(jct_p99_s, "s", "lower", over="finished"),
    "jct_so_far_mean_s": Metric(jct_so_far_mean_s, "s", "lower", is_headline=True, over="jobs"),
    "jct_weighted_s": Metric(jct_weighted_s, "s", "lower", over="finished"),
    "jct_so_far_weighted_s": Metric(jct_so_far_weighted_s, "s", "lower", is_headline=True, over="jobs"),
    "slowdown_mean": Metric(slowdown_mean, "ratio", "lower", over="done"),
    "slowdown_p50": Metric(slowdown_p50, "ratio", "lower", over="done"),
    "slowdown_p95": Metric(slowdown_p95, "ratio", "lower", over="done"),
    "bounded_slowdown_mean": Metric(bounded_slowdown_mean, "ratio", "lower", over="done"),
    "bounded_slowdown_p50": Metric(bounded_slowdown_p50, "ratio", "lower", over="done"),
    "bounded_slowdown_p95": Metric(bounded_slowdown_p95, "ratio", "lower", over="done"),
    "bounded_slowdown_p99": Metric(bounded_slowdown_p99, "ratio", "lower", over="done"),
    "makespan_s": Metric(makespan_s, "s", "lower", over="finished"),
    "starved_jobs": Metric(starved_jobs, "jobs", "lower", is_headline=True, over="jobs"),
    "unfinished_jobs": Metric(unfinished_jobs, "jobs", "lower", over="jobs"),
    "unfinished_gpu_h": Metric(unfinished_gpu_h, "GPU-h", "lower", is_headline=True, over="unfinished"),
    "waiting_jobs_mean": Metric(waiting_jobs_mean, "jobs", "lower"),
    "jobs_in_system_mean": Metric(jobs_in_system_mean, "jobs", "lower"),
    "waiting_load": Metric(waiting_load, "share", "lower"),
    "over_share": Metric(over_share, "share", "lower", is_headline=True),
    "score": Metric(score, "share", "higher", is_headline=True),
    "deficit": Metric(deficit, "share", "lower", is_headline=True),
    "idle_with_demand": Metric(idle_with_demand, "share", "lower"),
    "unproductive_with_demand": Metric(unproductive_with_demand, "share", "lower"),
    "jain": Metric(jain, "index", "higher", is_headline=True),
    "min_phi": Metric(min_phi, "ratio", "higher"),
    "jain_phi": Metric(jain_phi, "index", "higher"),
    "jain_phi_day_mean": Metric(jain_phi_day_mean, "index", "higher"),
    "jain_phi_day_p5": Metric(jain_phi_day_p5, "index", "higher"),
    "envy_max": Metric(envy_max, "share", "lower"),
    "dominant_share_gap": Metric(dominant_share_gap, "ratio", "lower"),
    "kueue_share_max": Metric(kueue_share_max, "thousandths", "lower"),
    "slurm_factor_min": Metric(slurm_factor_min, "factor", "higher"),
    "ftf_worst": Metric(ftf_worst, "ratio", "lower", over="jobs"),
    "ftf_p95": Metric(ftf_p95, "ratio", "lower", over="jobs"),
    "ftf_unfair_share": Metric(ftf_unfair_share, "share", "lower", over="jobs"),
    "preemptions": Metric(preemptions, "stops", "lower"),
    "preemptions_per_1000_jobs": Metric(preemptions_per_1000_jobs, "stops", "lower", over="jobs"),
    "preemptions_per_gpu_h": Metric(preemptions_per_gpu_h, "stops/GPU-h", "lower"),
    "preemptions_max": Metric(preemptions_max, "stops", "lower", over="jobs"),
    "preempted_share": Metric(preempted_share, "share", "lower", over="jobs"),
    "stops_by_node": Metric(stops_by_node, "stops", "none"),
    "stops_by_hang": Metric(stops_by_hang, "stops", "none"),
    "stops_for_priority": Metric(stops_for_priority, "stops", "none"),
    "stops_for_reclaim": Metric(stops_for_reclaim, "stops", "none"),
    "stops_for_fair_share": Metric(stops_for_fair_share, "stops", "none"),
    "stops_other": Metric(stops_other, "stops", "none"),
    "thrash": Metric(thrash, "stops", "lower"),
    "quota_violation_gpu_h": Metric(quota_violation_gpu_h, "GPU-h", "lower"),
    "borrowed_gpu_h": Metric(borrowed_gpu_h, "GPU-h", "none"),
    "lent_gpu_h": Metric(lent_gpu_h, "GPU-h", "none"),
    "reclaim_delay_mean_s": Metric(reclaim_delay_mean_s, "s", "lower", over="reclaims"),
    "reclaim_delay_p95_s": Metric(reclaim_delay_p95_s, "s", "lower", over="reclaims"),
    "priority_inversion_gpu_h": Metric(priority_inversion_gpu_h, "GPU-h", "lower"),
    "slo_attainment": Metric(slo_attainment, "share", "higher"),
    "decisions_per_hour": Metric(decisions_per_hour, "decisions/h", "none"),
}
