"""A log of exact intervals of a run: who held which GPU, who wanted how much, and why each attempt ended.

    recording = Recording(world)            # from now on
    recording.run(scheduler, until_ms=...)  # as world.run, and every instant is noted
    recording.close()
    recording.changes, recording.attempts, recording.spans, recording.cluster

The core's counters say how much; what needs to know *when* (metrics 5 and 6: windows, envy, borrowing, reclaim
delay, Gantt charts) is computed from these rows by `envs/timeline.py`. The recorder only reads the world, between two
instants: a recorded run is bit for bit the run without. An instant costs what has changed in it, plus a walk over the
running jobs; never one over the queue.

A run that is not driven by a compiled scheduler calls `note()` after each instant, all of them. Whether none was left
out is checked: `timeline.agrees_with(window)` compares the recorded integrals with the core's, with `==`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types as nbt
from numba.core.types import WrapperAddressProtocol

from gangline.envs.core import driver
from gangline.envs.core.compiled import compile_for, entry_point, helper, kernel
from gangline.envs.core.events import next_time_ms
from gangline.envs.core.placement import fragmentation, measure_fit, narrow_by_wish
from gangline.envs.core.queue import first_waiting
from gangline.envs.core.types import (
    MAX_RESOURCES,
    NEVER,
    NO_LIMIT,
    NONE,
    ErrorCode,
    JobKind,
    JobState,
    NodeState,
    Outcome,
    PodState,
    SizeClass,
    Then,
)
from gangline.envs.core.world import CompiledDoor, World


class Kind(IntEnum):
    """What a pod does with its GPUs during a span."""

    RUNNING = 0  # starting, making progress or writing a checkpoint
    NO_PROGRESS = 1  # hung, or fewer pods than the gang needs
    SUSPENDED = 2
    RELEASING = 3


class End(IntEnum):
    """How an attempt (a stretch in which a job had its pods) ended."""

    OPEN = 0  # not yet, when the recording ended
    ENDED = 1  # the job has left: finished, failed, cancelled, ...
    BY_NODE = 2  # a node failed
    BY_HANG = 3  # aborted after the hang timeout
    STOPPED = 4  # evicted


CHANGE = np.dtype(  # a tenant, from `time_ms` until its next row
    [
        ("time_ms", np.int64),
        ("held", np.int64),  # A_k, milli-GPU
        ("demand", np.int64),  # D_k
        ("nominal", np.int64),  # Q_k; the entitlement where there is no quota
        ("limit", np.int64),  # nominal + borrowing limit; NEVER
        ("weight", np.int64),
        ("dominant", np.float64),  # max over resources of used / capacity
        ("tenant", np.int32),
        ("active", np.int32),  # jobs waiting or running
    ],
    align=True,
)

ATTEMPT = np.dtype(  # a job from a start to its stop
    [
        ("begin_ms", np.int64),
        ("end_ms", np.int64),  # NEVER while open
        ("queued_ms", np.int64),  # when this wait began: submission, or the last requeue
        ("priority", np.int64),
        ("gpus", np.int64),  # milli-GPU wanted
        ("thrash_ms", np.int64),  # stopped before it has lasted so long is thrash: 2 x (restart cost + interval); NEVER
        ("run_area", np.int64),  # milli-GPU x ms of running pods
        ("speed_area", np.int64),  # the same x speed in thousandths
        ("hung_ms", np.int64),  # time without progress
        ("row", np.int32),
        ("tenant", np.int32),
        ("starts", np.int32),  # number of this start; 1 = the first
        ("end", np.int8),
        ("was_there", np.bool_),  # it ran already when the recording began
    ],
    align=True,
)

SPAN = np.dtype(  # a pod that did one thing on the same GPUs
    [
        ("begin_ms", np.int64),
        ("end_ms", np.int64),  # NEVER while open
        ("attempt", np.int32),
        ("row", np.int32),
        ("tenant", np.int32),
        ("node", np.int32),
        ("gpu_milli", np.int32),  # of each GPU of the mask
        ("gpu_mask", np.uint16),
        ("kind", np.int8),
        ("pod", np.int32),  # slot
        ("serial", np.int32),
        ("next", np.int32),  # open spans of the job
    ],
    align=True,
)

CLUSTER = np.dtype(  # the cluster, from `time_ms` until the next row
    [
        ("time_ms", np.int64),
        ("up", np.int64),  # milli-GPU of nodes that are not down
        ("idle", np.int64),  # milli-GPU that nobody holds, on nodes that take pods
        ("whole_free", np.int64),  # of it, on nodes with every GPU free
        ("stranded", np.int64),  # idle while the head job fits the count and no placement
        ("fragmented", np.float64),  # F, milli-GPU
        ("waiting", np.int32),  # jobs
        ("in_system", np.int32),
    ],
    align=True,
)

WAIT = np.dtype(  # a job that wants to start, or start again
    [
        ("begin_ms", np.int64),
        ("end_ms", np.int64),  # its start, its end, or the end of the recording
        ("priority", np.int64),
        ("gpus", np.int64),  # milli-GPU wanted
        ("row", np.int32),
        ("tenant", np.int32),
        ("attempt", np.int32),  # that ended it; NONE
        ("is_open", np.bool_),  # it waits still
    ],
    align=True,
)

_STATUS = np.dtype(
    [
        ("num_changes", np.int64),
        ("num_attempts", np.int64),
        ("num_spans", np.int64),
        ("num_cluster", np.int64),
        ("num_watched", np.int64),
        ("last_change", np.int64),  # change number of the world when it was last noted
        ("mark", np.int64),
        ("up", np.int64),  # GPUs and schedule row when every node and quota was last looked at
        ("next_change", np.int64),
        ("idle", np.int64),  # sums over nodes
        ("whole_free", np.int64),
        ("fragmented", np.int64),
        ("capacity", np.int64, (MAX_RESOURCES,)),
        ("is_first", np.bool_),
    ],
    align=True,
)

_SLOT = np.dtype(  # what is known of the job in a slot
    [
        ("mark", np.int64),  # instant at which it was last seen
        ("change", np.int64),
        ("since_ms", np.int64),  # up to when its attempt's areas are right
        ("stuck_ms", np.int64),  # since when it makes no progress
        ("running", np.int64),  # milli-GPU of running pods since then
        ("row", np.int32),  # NONE = not watched
        ("starts", np.int32),
        ("attempt", np.int32),  # NONE once it is over
        ("last_attempt", np.int32),
        ("first_span", np.int32),
        ("speed", np.int32),
        ("state", np.int8),
        ("is_stuck", np.bool_),  # without progress since then
    ],
    align=True,
)

_NODE = np.dtype(  # what a node adds to the cluster's row
    [
        ("mark", np.int64),  # instant at which it was last looked at
        ("idle", np.int64),
        ("whole_free", np.int64),
        ("fragmented", np.int64),  # micro-GPU: whole numbers, so that sums do not drift
    ],
    align=True,
)

MICRO = 1000  # micro-GPU in a milli-GPU
DONE, FULL, MORE = 0, 1, 2
ALL_INSTANTS = 1 << 60
TOLD_EVERY = 4096


class Recording:
    """The log of a world from now on.

    Attributes:
        world: what is recorded.
        begin_ms, end_ms: the time that the log covers; `end_ms` is set by `close`.
        changes: (num_changes,) CHANGE, in order of time; the first num_tenants rows are of `begin_ms`.
        attempts: (num_attempts,) ATTEMPT, in order of their start.
        spans: (num_spans,) SPAN, in order of their start.
        cluster: (num_instants,) CLUSTER.
        waits: (num_waits,) WAIT, set by `close`.
        instant_s: wall time of each instant, where `run` was asked to take it: its events and decisions, its recording,
            and some 20 us for the crossing from Python.
    """

    def __init__(self, world: World) -> None:
        w = world.record
        self.world = world
        self.begin_ms = world.now_ms
        self.end_ms = world.now_ms
        self.instant_s: list[float] = []
        self.waits = np.zeros(0, WAIT)
        self._scheduler: CompiledDoor | None = None
        self._private = np.zeros(0, np.uint8)
        self._status = np.zeros(1, _STATUS)
        self._status["is_first"] = True
        self._slots = np.zeros(world.size.max_jobs, _SLOT)
        self._slots["row"] = self._slots["first_span"] = NONE
        self._nodes = np.zeros(max(int(w["num_nodes"]), 1), _NODE)
        self._watched = np.zeros(world.size.max_jobs, np.int32)
        self._pod_span = np.full(world.size.max_pods, NONE, np.int32)
        self._pod_held = np.zeros((world.size.max_pods, MAX_RESOURCES), np.int64)
        self._usage = np.zeros((max(int(w["num_tenants"]), 1), MAX_RESOURCES), np.int64)
        self._last = np.zeros(max(int(w["num_tenants"]), 1), CHANGE)
        self._rows = {
            "changes": np.zeros(1024, CHANGE),
            "attempts": np.zeros(1024, ATTEMPT),
            "spans": np.zeros(1024, SPAN),
            "cluster": np.zeros(1024, CLUSTER),
        }
        self.note()

    @property
    def changes(self) -> np.ndarray:
        """(num_changes,) CHANGE."""
        return self._written("changes")

    @property
    def attempts(self) -> np.ndarray:
        """(num_attempts,) ATTEMPT."""
        return self._written("attempts")

    @property
    def spans(self) -> np.ndarray:
        """(num_spans,) SPAN, those without length left out."""
        spans = self._written("spans")
        return spans[spans["end_ms"] > spans["begin_ms"]]

    @property
    def cluster(self) -> np.ndarray:
        """(num_instants,) CLUSTER."""
        return self._written("cluster")

    def note(self) -> None:
        """Note the world as it is now, after everything that happens at this instant."""
        while not _has_room(self.world.records, self._status, *self._logs()):
            self._grow()
        _note_now(self.world.records, *self._arrays())

    def run(
        self,
        scheduler: CompiledDoor,
        until_ms: int | None = None,
        *,
        take_times: bool = False,
        tell: Callable[[int], None] | None = None,
    ) -> None:
        """Let a compiled scheduler run the world until a time (None: until nothing happens any more).

        Args:
            scheduler: at the compiled door; asked to go on, it remembers what it did before.
            until_ms: on the world's clock.
            take_times: note the wall time of each instant, which costs some 30 us for each.
            tell: is told the clock (ms) every few thousand instants.
        """
        world = self.world
        until = NEVER if until_ms is None else until_ms
        size = world.size
        if scheduler is not self._scheduler:  # who goes on keeps its memory
            self._scheduler, self._private = scheduler, scheduler.private_for(world)
        decide, private = scheduler.compiled(size), self._private
        loop, step = _loop(size), _Address(driver.scheduler_runner(size), driver.runner_signature(size))
        decide = _Address(decide, driver.door_type(size).signature)
        most = 1 if take_times else ALL_INSTANTS if tell is None else TOLD_EVERY
        while True:
            began = time.perf_counter()
            result = loop(
                step, world.records, 0, decide, private, world.decision, *world.tables, until, most, *self._arrays()
            )
            if result == FULL:
                self._grow()
            elif result == DONE:
                break
            elif take_times:
                self.instant_s.append(time.perf_counter() - began)
            if tell is not None:
                tell(world.now_ms)
        world.check()
        if until < NEVER:
            world.advance(until)

    def close(self) -> None:
        """The log ends now."""
        self.end_ms = self.world.now_ms
        _close_all(self.world.records, self.end_ms, *self._arrays())
        for name in ("attempts", "spans"):
            rows = self._written(name)
            rows["end_ms"] = np.minimum(rows["end_ms"], self.end_ms)
        self._learn_ends()
        self.waits = self._waits()

    def _learn_ends(self) -> None:
        """Tell jobs that ended from those that were stopped for good, which leave the world in the same way."""
        attempts, ended = self.attempts, self.world.ended()
        if not len(attempts):
            return
        outcome = np.zeros(max(int(attempts["row"].max()), int(ended["row"].max(initial=0))) + 1, np.int8)
        outcome[ended["row"]] = ended["outcome"]
        own = outcome[attempts["row"]]
        has_ended = attempts["end"] == End.ENDED
        attempts["end"][has_ended & (own == Outcome.PREEMPTED)] = End.STOPPED
        attempts["end"][has_ended & (own == Outcome.NODE_FAIL)] = End.BY_NODE

    def _waits(self) -> np.ndarray:
        """Waits that ended with a start, with the job's end, and those that have not ended."""
        w, attempts = self.world.record, self.attempts
        started = np.flatnonzero(~attempts["was_there"])
        ended = self.world.ended()
        gone = ended[(ended["first_start_ms"] >= NEVER) & (ended["end_ms"] > ended["submit_ms"])]
        jobs = w["jobs"][: int(w["jobs_used"])]
        by_scheduler = (jobs["state"] == JobState.NOT_ELIGIBLE) & jobs["waits_by_scheduler"]
        live = jobs[np.isin(jobs["state"], (JobState.QUEUED, JobState.ADMITTED)) | by_scheduler]
        waits = np.zeros(len(started) + len(gone) + len(live), WAIT)
        own, left, open_ = np.split(waits, [len(started), len(started) + len(gone)])
        own["begin_ms"], own["end_ms"] = attempts["queued_ms"][started], attempts["begin_ms"][started]
        own["attempt"] = started
        left["begin_ms"], left["end_ms"], left["attempt"] = gone["submit_ms"], gone["end_ms"], NONE
        left["priority"] = self.world.tables[0]["priority"][gone["row"]]
        open_["begin_ms"], open_["end_ms"], open_["attempt"] = live["last_submit_ms"], self.end_ms, NONE
        open_["is_open"] = True
        for name in ("row", "tenant", "gpus"):
            own[name], left[name] = attempts[name][started], gone[name]
            open_[name] = live["gpus_wanted" if name == "gpus" else name]
        own["priority"], open_["priority"] = attempts["priority"][started], live["priority"]
        return waits

    # -- inside ------------------------------------------------------------------------------------------------

    def _written(self, name: str) -> np.ndarray:
        return self._rows[name][: int(self._status[f"num_{name}"][0])]

    def _logs(self) -> tuple[np.ndarray, ...]:
        return tuple(self._rows.values())

    def _arrays(self) -> tuple[np.ndarray, ...]:
        own = (self._slots, self._nodes, self._watched, self._pod_span, self._pod_held, self._usage, self._last)
        return (self._status, *own, *self._logs())

    def _grow(self) -> None:
        """Twice the room, or as much as an instant may need."""
        needed = _room_needed(self.world.records, self._status)
        for i, (name, rows) in enumerate(self._rows.items()):
            used = int(self._status[f"num_{name}"][0])
            grown = np.zeros(max(2 * len(rows), used + 2 * int(needed[i])), rows.dtype)
            grown[:used] = rows[:used]
            self._rows[name] = grown


# ---------------------------------------------------------------------------------------------------------------
# Running
# ---------------------------------------------------------------------------------------------------------------


def _run_noting(
    step: Any,
    worlds: Any,
    i: int,
    decide: Any,
    private: Any,
    out: Any,
    rows: Any,
    pod_sets: Any,
    schedule: Any,
    log: Any,
    until_ms: int,
    most_instants: int,
    status: Any,
    slots: Any,
    nodes: Any,
    watched: Any,
    pod_span: Any,
    pod_held: Any,
    usage: Any,
    last: Any,
    changes: Any,
    attempts: Any,
    spans: Any,
    cluster: Any,
) -> int:
    """Let instants pass and note each. Returns DONE, MORE after the most, FULL before one that might find no room."""
    w = worlds[i]
    for _ in range(most_instants):
        next_ms = next_time_ms(w)
        if next_ms >= NEVER or next_ms > until_ms or w.error != ErrorCode.NONE:
            return DONE
        if not has_room(w, status[0], changes, attempts, spans, cluster):
            return FULL
        step(worlds, i, decide, private, out, rows, pod_sets, schedule, log, next_ms)
        note_instant(
            w,
            False,
            status[0],
            slots,
            nodes,
            watched,
            pod_span,
            pod_held,
            usage,
            last,
            changes,
            attempts,
            spans,
            cluster,
        )
    return MORE


class _Address(WrapperAddressProtocol):
    """A compiled function by its address: numba takes 50 us a call to look that of a dispatcher up."""

    def __init__(self, dispatcher: Any, signature: Any) -> None:
        compiled = dispatcher.get_compile_result(signature)
        self._compiled = compiled  # keeps the code alive
        self._address = int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name))
        self._signature = signature

    def __wrapper_address__(self) -> int:
        return self._address

    def signature(self) -> Any:
        """Types of the arguments and of the result."""
        return self._signature


@cache
def _loop(size: SizeClass) -> Any:
    """The machine code of `_run_noting` for a size class. The driver is called by pointer: it is not compiled again."""
    own = (_STATUS, _SLOT, _NODE)
    status, slots, nodes = (nbt.Array(numba.typeof(np.zeros(1, d)).dtype, 1, "C") for d in own)
    logs = [nbt.Array(numba.typeof(np.zeros(1, d)).dtype, 1, "C") for d in (CHANGE, ATTEMPT, SPAN, CLUSTER)]
    watched = nbt.Array(nbt.int32, 1, "C")
    amounts = nbt.Array(nbt.int64, 2, "C")
    step = driver.runner_signature(size)
    signature = nbt.int64(
        nbt.FunctionType(step),
        *step.args,
        nbt.int64,
        *(status, slots, nodes, watched, watched, amounts, amounts, logs[0]),
        *logs,
    )
    return compile_for(_run_noting, signature).get_overload(signature)


@kernel
def _note(
    worlds: Any,
    status: Any,
    slots: Any,
    nodes: Any,
    watched: Any,
    pod_span: Any,
    pod_held: Any,
    usage: Any,
    last: Any,
    changes: Any,
    attempts: Any,
    spans: Any,
    cluster: Any,
) -> None:
    note_instant(
        worlds[0],
        True,
        status[0],
        slots,
        nodes,
        watched,
        pod_span,
        pod_held,
        usage,
        last,
        changes,
        attempts,
        spans,
        cluster,
    )


_entry_points: dict[Any, Any] = {}


def _note_now(*arguments: Any) -> None:
    """`_note`, without asking for the types of its arguments each time."""
    key = arguments[0].dtype
    if key not in _entry_points:
        _entry_points[key] = entry_point(_note, *arguments)
    _entry_points[key](*arguments)


@kernel
def _close_all(
    worlds: Any,
    now_ms: int,
    status: Any,
    slots: Any,
    nodes: Any,
    watched: Any,
    pod_span: Any,
    pod_held: Any,
    usage: Any,
    last: Any,
    changes: Any,
    attempts: Any,
    spans: Any,
    cluster: Any,
) -> None:
    """Bring the areas of open attempts up to now."""
    for place in range(status[0].num_watched):
        known = slots[watched[place]]
        if known.attempt != NONE:
            add_time(known, attempts[known.attempt], now_ms)


# ---------------------------------------------------------------------------------------------------------------
# An instant
# ---------------------------------------------------------------------------------------------------------------


@helper
def has_room(w: Any, s: Any, changes: Any, attempts: Any, spans: Any, cluster: Any) -> bool:
    """Whether the next instant will find room for its rows, whatever happens in it."""
    return (
        s.num_changes + w.num_tenants <= len(changes)
        and s.num_attempts + w.num_nodes * 16 + w.num_running + 64 <= len(attempts)
        and s.num_spans + w.pods_used + w.num_nodes * 16 + 64 <= len(spans)
        and s.num_cluster + 1 <= len(cluster)
    )


@kernel
def _has_room(worlds: Any, status: Any, changes: Any, attempts: Any, spans: Any, cluster: Any) -> bool:
    return has_room(worlds[0], status[0], changes, attempts, spans, cluster)


def _room_needed(worlds: np.ndarray, status: np.ndarray) -> tuple[int, int, int, int]:
    w = worlds[0]
    gpus = int(w["num_nodes"]) * 16
    return int(w["num_tenants"]), gpus + int(w["num_running"]) + 64, int(w["pods_used"]) + gpus + 64, 1


@helper
def note_instant(
    w: Any,
    all_may_have_changed: bool,
    s: Any,
    slots: Any,
    nodes: Any,
    watched: Any,
    pod_span: Any,
    pod_held: Any,
    usage: Any,
    last: Any,
    changes: Any,
    attempts: Any,
    spans: Any,
    cluster: Any,
) -> None:
    """Write what has changed since the last instant: pods that have gone, pods that have come, cluster, tenants."""
    looks_at_all = s.is_first or all_may_have_changed or w.gpus_up != s.up or w.next_change != s.next_change
    if w.change == s.last_change and not looks_at_all:
        return
    s.last_change = w.change
    s.mark += 1
    slot = w.first_running
    while slot != NONE:  # what has gone first: its pods' places may have been taken already
        known = slots[slot]
        if is_watched(w, known, slot):
            known.mark = s.mark
            if w.jobs[slot].change != known.change:
                close_spans(w, s, slot, known, nodes, pod_held, usage, spans, False)
        slot = w.jobs[slot].next
    close_vanished(w, s, slots, nodes, watched, pod_held, usage, attempts, spans)
    slot = w.first_running
    while slot != NONE:
        known = slots[slot]
        job = w.jobs[slot]
        if known.mark != s.mark or job.change != known.change:
            if known.mark != s.mark:
                begin_attempt(w, s, slot, known, watched, attempts)
            see(w, s, slot, known, nodes, pod_span, pod_held, usage, attempts, spans)
        slot = job.next
    for place in range(s.num_watched):
        slot = watched[place]
        if w.jobs[slot].state == JobState.RELEASING and w.jobs[slot].change != slots[slot].change:
            see(w, s, slot, slots[slot], nodes, pod_span, pod_held, usage, attempts, spans)
    if s.is_first or not all_held_is_known(w, usage):
        watch_unseen(w, s, slots, nodes, watched, pod_span, pod_held, usage, attempts, spans)
    if looks_at_all:  # nodes fail and drain, quotas change
        s.up = w.gpus_up
        s.next_change = w.next_change
        look_at_all_nodes(w, s, nodes)
    note_cluster(w, s, cluster)
    note_tenants(w, s, looks_at_all, usage, last, changes)
    s.is_first = False


@helper
def is_watched(w: Any, known: Any, slot: int) -> bool:
    """Whether the attempt of a running job is the one that is known."""
    job = w.jobs[slot]
    if known.row != job.row or known.state == JobState.RELEASING:
        return False
    return known.starts == job.starts or known.state == JobState.PARTIAL  # the rest of its gang has come


@helper
def close_vanished(
    w: Any, s: Any, slots: Any, nodes: Any, watched: Any, pod_held: Any, usage: Any, attempts: Any, spans: Any
) -> None:
    """Attempts that are over: of jobs that have left the running list, or stand in it by another start."""
    place = 0
    while place < s.num_watched:
        slot = watched[place]
        known = slots[slot]
        if known.mark == s.mark:
            place += 1
            continue
        job = w.jobs[slot]
        is_there = job.row == known.row and job.state != JobState.FREE
        if known.attempt != NONE:
            attempt = attempts[known.attempt]
            add_time(known, attempt, w.now_ms)
            attempt.end_ms = w.now_ms
            attempt.end = how_it_ended(w, job, known, is_there, spans)
            known.attempt = NONE
        if is_there and job.state == JobState.RELEASING:  # its pods are still on their nodes
            if known.state != JobState.RELEASING or job.change != known.change:
                close_spans(w, s, slot, known, nodes, pod_held, usage, spans, False)
            known.mark = s.mark
            place += 1
            continue
        close_spans(w, s, slot, known, nodes, pod_held, usage, spans, True)
        known.row = NONE
        s.num_watched -= 1
        watched[place] = watched[s.num_watched]


@helper
def all_held_is_known(w: Any, usage: Any) -> bool:
    """Whether the pods that are known hold all the GPUs that are held."""
    gpu = w.params.gpu_resource
    held = 0
    for k in range(w.num_tenants):
        held += usage[k, max(gpu, 0)]
    return gpu == NONE or held == w.gpus_held


@helper
def watch_unseen(
    w: Any,
    s: Any,
    slots: Any,
    nodes: Any,
    watched: Any,
    pod_span: Any,
    pod_held: Any,
    usage: Any,
    attempts: Any,
    spans: Any,
) -> None:
    """Jobs whose pods are on their way out and that were never seen to run: started and stopped at one instant."""
    for slot in range(w.jobs_used):
        job = w.jobs[slot]
        known = slots[slot]
        if job.state == JobState.RELEASING and known.row != job.row:
            known.row = job.row
            known.starts = job.starts
            known.attempt = NONE
            known.last_attempt = NONE
            known.first_span = NONE
            known.mark = s.mark
            watched[s.num_watched] = slot
            s.num_watched += 1
            see(w, s, slot, known, nodes, pod_span, pod_held, usage, attempts, spans)


@helper
def how_it_ended(w: Any, job: Any, known: Any, is_there: bool, spans: Any) -> int:
    """Why an attempt is over."""
    if (
        is_there
        and job.state == JobState.RELEASING
        and job.then == Then.CANCEL
        and job.end_outcome != Outcome.PREEMPTED
    ):
        return End.ENDED  # completing
    at = known.first_span
    while at != NONE:
        if w.nodes[spans[at].node].state == NodeState.DOWN:
            return End.BY_NODE
        at = spans[at].next
    if not is_there:
        return End.ENDED
    if known.is_stuck and w.now_ms - known.stuck_ms >= w.params.hang_timeout_ms:
        return End.BY_HANG
    return End.STOPPED


@helper
def begin_attempt(w: Any, s: Any, slot: int, known: Any, watched: Any, attempts: Any) -> None:
    """A job has started."""
    job = w.jobs[slot]
    attempt = attempts[s.num_attempts]
    attempt.begin_ms = w.now_ms
    attempt.end_ms = NEVER
    attempt.queued_ms = job.last_submit_ms
    attempt.priority = job.priority
    attempt.gpus = job.gpus_wanted
    attempt.thrash_ms = NEVER
    if job.checkpoint_interval_ms < NEVER:
        attempt.thrash_ms = 2 * (job.restart_cost_ms + job.checkpoint_interval_ms)
    attempt.run_area = 0
    attempt.speed_area = 0
    attempt.hung_ms = 0
    attempt.row = job.row
    attempt.tenant = job.tenant
    attempt.starts = job.starts
    attempt.end = End.OPEN
    attempt.was_there = s.is_first
    known.row = job.row
    known.starts = job.starts
    known.attempt = s.num_attempts
    known.last_attempt = s.num_attempts
    known.first_span = NONE
    known.since_ms = w.now_ms
    known.running = 0
    known.speed = 0
    known.is_stuck = False
    known.mark = s.mark
    watched[s.num_watched] = slot
    s.num_watched += 1
    s.num_attempts += 1


@helper
def see(
    w: Any,
    s: Any,
    slot: int,
    known: Any,
    nodes: Any,
    pod_span: Any,
    pod_held: Any,
    usage: Any,
    attempts: Any,
    spans: Any,
) -> None:
    """Note what a job has now: a span for each pod that has none, and its speed."""
    job = w.jobs[slot]
    if known.attempt != NONE:
        add_time(known, attempts[known.attempt], w.now_ms)
    known.change = job.change
    known.starts = job.starts
    known.state = job.state
    known.since_ms = w.now_ms
    is_stuck = job.is_hung or job.state == JobState.PARTIAL
    if is_stuck and not known.is_stuck:
        known.stuck_ms = w.now_ms
    known.is_stuck = is_stuck
    known.speed = job.speed
    if job.kind != JobKind.TRAINING:
        known.speed = 1000
    known.running = 0
    at = job.first_pod
    while at != NONE:
        pod = w.pods[at]
        kind = kind_of(job, pod)
        if kind == Kind.RUNNING:
            known.running += pod.gpus_asked
        noted = pod_span[at]
        if noted == NONE or spans[noted].serial != pod.serial or spans[noted].end_ms < NEVER:
            open_span(w, s, slot, known, at, kind, pod_span, pod_held, usage, spans)
            look_at_node(w, s, nodes, pod.node)
        at = pod.next


@helper
def kind_of(job: Any, pod: Any) -> int:
    """What a pod does."""
    if pod.state == PodState.RELEASING:
        return Kind.RELEASING
    if job.state == JobState.SUSPENDED:
        return Kind.SUSPENDED
    if job.is_hung or job.state == JobState.PARTIAL:
        return Kind.NO_PROGRESS
    return Kind.RUNNING


@helper
def open_span(
    w: Any, s: Any, slot: int, known: Any, at: int, kind: int, pod_span: Any, pod_held: Any, usage: Any, spans: Any
) -> None:
    """A pod does something from now on."""
    pod = w.pods[at]
    span = spans[s.num_spans]
    span.begin_ms = w.now_ms
    span.end_ms = NEVER
    span.attempt = known.last_attempt
    span.row = known.row
    span.tenant = w.jobs[slot].tenant
    span.node = pod.node
    gives_up_gpus = (w.jobs[slot].freed_mask >> max(w.params.gpu_resource, 0)) & 1
    span.gpu_milli = 0 if gives_up_gpus else pod.gpu_milli
    span.gpu_mask = 0 if gives_up_gpus else pod.gpu_mask
    span.kind = kind
    span.pod = at
    span.serial = pod.serial
    span.next = known.first_span
    known.first_span = s.num_spans
    pod_span[at] = s.num_spans
    for r in range(w.params.num_resources):
        is_freed = (w.jobs[slot].freed_mask >> r) & 1
        pod_held[at, r] = 0 if is_freed else pod.held[r]
        usage[span.tenant, r] += pod_held[at, r]
    s.num_spans += 1


@helper
def close_spans(
    w: Any, s: Any, slot: int, known: Any, nodes: Any, pod_held: Any, usage: Any, spans: Any, all_of_them: bool
) -> None:
    """End the spans of pods that have gone, or do something else now."""
    job = w.jobs[slot]
    before = NONE
    at = known.first_span
    while at != NONE:
        span = spans[at]
        following = span.next
        pod = w.pods[span.pod]
        stays = not all_of_them and pod.job == slot and pod.serial == span.serial
        stays = stays and (pod.state == PodState.BOUND or pod.state == PodState.RELEASING)
        if stays and kind_of(job, pod) == span.kind:
            before = at
        else:
            span.end_ms = w.now_ms
            look_at_node(w, s, nodes, span.node)
            for r in range(w.params.num_resources):
                usage[span.tenant, r] -= pod_held[span.pod, r]
            if before == NONE:
                known.first_span = following
            else:
                spans[before].next = following
        at = following


@helper
def add_time(known: Any, attempt: Any, now_ms: int) -> None:
    """Add the time since the job was last looked at to its attempt."""
    elapsed = now_ms - known.since_ms
    attempt.run_area += elapsed * known.running
    attempt.speed_area += elapsed * known.running * known.speed
    if known.is_stuck:
        attempt.hung_ms += elapsed
    known.since_ms = now_ms


@helper
def look_at_all_nodes(w: Any, s: Any, nodes: Any) -> None:
    """Capacity by resource, and what every node adds to the cluster's row."""
    for r in range(w.params.num_resources):
        s.capacity[r] = 0
        for n in range(w.num_nodes):
            if w.nodes[n].state != NodeState.DOWN:
                s.capacity[r] += w.nodes[n].capacity[r]
    for n in range(w.num_nodes):
        look_at_node(w, s, nodes, n)


@helper
def look_at_node(w: Any, s: Any, nodes: Any, n: int) -> None:
    """Bring a node's part of the sums up to now, once an instant."""
    seen = nodes[n]
    if seen.mark == s.mark:
        return
    s.idle -= seen.idle
    s.whole_free -= seen.whole_free
    s.fragmented -= seen.fragmented
    seen.mark = s.mark
    seen.idle = 0
    seen.whole_free = 0
    seen.fragmented = 0
    node = w.nodes[n]
    gpu = w.params.gpu_resource
    if gpu == NONE or node.state != NodeState.UP:
        return
    seen.idle = node.idle[gpu]
    if node.free_gpus == node.num_gpus:
        seen.whole_free = node.idle[gpu]
    if w.num_frag_classes > 0:
        seen.fragmented = round(fragmentation(w, w.pod_sets[0], n, False) * MICRO)
    s.idle += seen.idle
    s.whole_free += seen.whole_free
    s.fragmented += seen.fragmented


@helper
def note_cluster(w: Any, s: Any, cluster: Any) -> None:
    """Write the cluster's row."""
    row = cluster[s.num_cluster]
    row.time_ms = w.now_ms
    row.up = w.gpus_up
    row.idle = s.idle
    row.whole_free = s.whole_free
    row.stranded = s.idle if is_stranded(w, s.idle) else 0
    row.fragmented = s.fragmented / MICRO
    row.waiting = w.num_waiting
    row.in_system = w.num_jobs
    s.num_cluster += 1


@helper
def is_stranded(w: Any, idle: int) -> bool:
    """Whether the head of the queue asks for no more GPUs than are idle, and there is no placement for it."""
    slot = first_waiting(w)
    if slot == NONE or w.jobs[slot].gpus_wanted == 0 or w.jobs[slot].gpus_wanted > idle:
        return False
    job = w.jobs[slot]
    ps = job.first_pod_set
    while ps != NONE:  # each pod set for itself
        pod_set = w.pod_sets[ps]
        wanted = pod_set.count - pod_set.num_done
        if wanted > 0:
            fits = measure_fit(w, job, pod_set, NONE, wanted)
            if fits < wanted or not narrow_by_wish(w, job, 0, wanted):
                return True
        ps = pod_set.next
    return False


@helper
def note_tenants(w: Any, s: Any, quotas_may_have_changed: bool, usage: Any, last: Any, changes: Any) -> None:
    """Write a row for each tenant that is not as it was."""
    for k in range(w.num_tenants):
        tenant = w.tenants[k]
        now = last[k]
        dominant = 0.0
        for r in range(w.params.num_resources):
            if s.capacity[r] > 0 and r != w.params.pods_resource:
                dominant = max(dominant, usage[k, r] / s.capacity[r])
        nominal, limit = now.nominal, now.limit
        if quotas_may_have_changed:
            nominal, limit = quota_of(w, k)
        active = tenant.num_waiting + tenant.num_running
        if (
            s.is_first
            or now.held != tenant.held
            or now.demand != tenant.demand
            or now.active != active
            or now.nominal != nominal
            or now.limit != limit
            or now.weight != tenant.weight
            or now.dominant != dominant
        ):
            now.time_ms = w.now_ms
            now.held = tenant.held
            now.demand = tenant.demand
            now.nominal = nominal
            now.limit = limit
            now.weight = tenant.weight
            now.dominant = dominant
            now.tenant = k
            now.active = active
            changes[s.num_changes] = now
            s.num_changes += 1


@helper
def quota_of(w: Any, k: int) -> Any:
    """Nominal GPU quota of a tenant, and the most that it may hold with what it borrows (milli-GPU)."""
    q = w.tenants[k].queue
    gpu = w.params.gpu_resource
    nominal = 0
    limit = 0
    num_cells = 0
    is_shared = False
    for other in range(w.num_tenants):
        if other != k and w.tenants[other].queue == q:
            is_shared = True
    if q != NONE and not is_shared:
        for cell in range(w.num_cells):
            if w.cell_resource[cell] == gpu:
                num_cells += 1
                nominal += w.queues[q].nominal[cell]
                if limit < NEVER:
                    borrowing = w.queues[q].borrowing_limit[cell]
                    limit = NEVER if borrowing == NO_LIMIT else limit + w.queues[q].nominal[cell] + borrowing
    if num_cells == 0:
        return np.int64(w.tenants[k].entitled), np.int64(NEVER)
    return np.int64(nominal), np.int64(limit)
