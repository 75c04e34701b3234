"""What Python calls: kernels over a batch of worlds, and the compiled door through which schedulers are asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types as nbt

from gangline.envs.core.compiled import compile_for, helper, kernel
from gangline.envs.core.events import TICK, next_time_ms, set_event
from gangline.envs.core.fair_share import accrue_tenant_usage, accrue_user_usage, refresh_shares
from gangline.envs.core.progress import accrue_job
from gangline.envs.core.queue import dequeue, enqueue
from gangline.envs.core.quota import refresh_quota
from gangline.envs.core.simulator import (
    apply_change,
    apply_decision,
    arrive,
    ask,
    go_to,
    plan_next_arrival,
    plan_next_change,
    plan_node_change,
    run_instant,
    settle_instant,
)
from gangline.envs.core.transactions import (
    _charge_pod_set,
    begin,
    bind_pod,
    commit,
    end_job,
    mark_releasing,
    pod_set_slot,
    set_running_state,
    touch,
)
from gangline.envs.core.types import (
    DECISION,
    FULL_SPEED,
    JOB_ROW,
    LOG_ROW,
    NEVER,
    NO_TIME,
    POD_SET_ROW,
    SCHEDULE_ROW,
    ErrorCode,
    EventKind,
    JobKind,
    JobState,
    Outcome,
    SizeClass,
    Then,
    world_dtype,
)


@kernel
def start_worlds(worlds: Any, rows: Any, schedule: Any) -> None:
    """Set the first events of fresh worlds: arrivals, changes, node failures, usage ticks."""
    for i in range(len(worlds)):
        w = worlds[i]
        refresh_quota(w)
        plan_next_arrival(w, rows)
        plan_next_change(w, schedule)
        for n in range(w.num_nodes):
            plan_node_change(w, n)
        if w.params.usage_tick_ms < NEVER:
            set_event(w, TICK, w.now_ms + w.params.usage_tick_ms, EventKind.USAGE_TICK, 0)
        refresh_shares(w)


@kernel
def prepare_template(worlds: Any) -> None:
    """Subtree quotas and fair shares of empty worlds; no events yet."""
    for i in range(len(worlds)):
        refresh_quota(worlds[i])
        refresh_shares(worlds[i])


@kernel
def advance(worlds: Any, i: int, rows: Any, pod_sets: Any, schedule: Any, log: Any, until_ms: int) -> None:
    """Apply every event up to and including `until_ms`, nobody being asked, and set the clock to it."""
    w = worlds[i]
    while next_time_ms(w) < NEVER and next_time_ms(w) <= until_ms and w.error == ErrorCode.NONE:
        run_instant(w, rows, pod_sets, schedule, log)
    if w.error == ErrorCode.NONE:
        go_to(w, until_ms)


@kernel
def apply(worlds: Any, i: int, out: Any, rows: Any, pod_sets: Any, schedule: Any, log: Any) -> None:
    """Apply a decision from outside, and what follows from it at the same instant."""
    w = worlds[i]
    apply_decision(w, out[0], log)
    settle_instant(w, rows, pod_sets, schedule, log)


@kernel
def inject_change(worlds: Any, i: int, change: Any, log: Any) -> None:
    """Apply a change from outside now."""
    apply_change(worlds[i], change[0], log)


@kernel
def inject_end(worlds: Any, i: int, slot: int, outcome: int, reason: int, log: Any) -> None:
    """End a job from outside now."""
    w = worlds[i]
    begin(w)
    touch(w, slot)
    end_job(w, slot, outcome, reason)
    commit(w, log)


@kernel
def bring_up_to_date(worlds: Any, i: int) -> None:
    """Bring every lazily kept counter up to now, before reading."""
    w = worlds[i]
    for slot in range(w.jobs_used):
        if w.jobs[slot].state != JobState.FREE:
            accrue_job(w, slot)
    for k in range(w.num_tenants):
        accrue_tenant_usage(w, k)
    for u in range(w.num_users):
        accrue_user_usage(w, u)
    refresh_shares(w)


@kernel
def reorder_queue(worlds: Any, i: int, order: int) -> None:
    """Order the waiting jobs by another `QueueOrder` from now on."""
    w = worlds[i]
    if w.params.queue_order == order:
        return
    for slot in range(w.jobs_used):
        if w.jobs[slot].is_queued:
            dequeue(w, slot)
            w.jobs[slot].is_queued = True
    w.params.queue_order = order
    for slot in range(w.jobs_used):
        if w.jobs[slot].is_queued:
            enqueue(w, slot)


@kernel
def next_event_time(worlds: Any, i: int) -> int:
    """Time of the next event; NEVER."""
    return next_time_ms(worlds[i])


# ---------------------------------------------------------------------------------------------------------------
# Entering a world mid-life
# ---------------------------------------------------------------------------------------------------------------


@kernel
def enter_job(worlds: Any, i: int, rows: Any, row: int, pod_sets: Any, log: Any) -> int:
    """A job that is there when the world begins gets its slot. Returns it."""
    w = worlds[i]
    slot = arrive(w, rows[row], row, pod_sets, log)
    return slot


@kernel
def enter_admission(
    worlds: Any, i: int, slot: int, index: int, count: int, flavors: Any, admit_ms: int, log: Any
) -> None:
    """It holds quota, whether the limits allow that or not."""
    w = worlds[i]
    job = w.jobs[slot]
    ps = pod_set_slot(w, slot, index)
    pod_set = w.pod_sets[ps]
    begin(w)
    touch(w, slot)
    pod_set.num_admitted = count
    for r in range(w.params.num_resources):
        pod_set.admitted_flavor[r] = flavors[r]
    _charge_pod_set(w, slot, ps, count, 1)
    job.is_admitted = True
    job.admit_ms = admit_ms
    if job.state == JobState.QUEUED:
        job.state = JobState.ADMITTED
    commit(w, log)


@kernel
def enter_pods(
    worlds: Any,
    i: int,
    slot: int,
    index: int,
    node: int,
    count: int,
    gpu: int,
    whole_node: bool,
    release_ms: int,
    log: Any,
) -> None:
    """It has pods on a node, bound or releasing until `release_ms` (NEVER = bound)."""
    w = worlds[i]
    begin(w)
    touch(w, slot)
    ps = pod_set_slot(w, slot, index)
    for _ in range(count):
        bind_pod(w, slot, ps, node, gpu, whole_node)
        if release_ms < NEVER:
            mark_releasing(w, w.jobs[slot].last_pod, release_ms)
    if w.jobs[slot].num_bound > 0:
        set_running_state(w, slot)
    elif w.jobs[slot].num_releasing > 0:
        w.jobs[slot].state = JobState.RELEASING
    commit(w, log)


@kernel
def enter_suspension(worlds: Any, i: int, slot: int, log: Any) -> None:
    """It is suspended, holding everything."""
    w = worlds[i]
    begin(w)
    touch(w, slot)
    w.jobs[slot].state = JobState.SUSPENDED
    commit(w, log)


@kernel
def enter_history(
    worlds: Any,
    i: int,
    slot: int,
    progress_ms: int,
    saved_ms: int,
    starts: int,
    preemptions: int,
    times: Any,
    ends_after_release: bool,
    log: Any,
) -> None:
    """Its past: progress, counts, times (first start, start, last submission, eviction, eligible; NO_TIME = leave)."""
    w = worlds[i]
    begin(w)
    touch(w, slot)
    job = w.jobs[slot]
    full = job.work_ms * FULL_SPEED
    job.progress.left = full - progress_ms * FULL_SPEED
    job.progress.saved_left = full - saved_ms * FULL_SPEED
    job.progress.overhead_ms = 0
    if job.kind == JobKind.BATCH:
        at = job.first_pod
        while at >= 0:
            w.pods[at].progress.left = full - progress_ms * FULL_SPEED
            w.pods[at].progress.overhead_ms = 0
            at = w.pods[at].next
    if job.checkpoint_interval_ms < NEVER:
        job.progress.cycle_ms = min(progress_ms - saved_ms, job.checkpoint_interval_ms)
    job.starts = starts
    job.preemptions = preemptions
    if times[0] != NO_TIME:
        job.first_start_ms = times[0]
    if times[1] != NO_TIME:
        job.start_ms = times[1]
    if times[2] != NO_TIME:
        job.last_submit_ms = times[2]
    if times[3] != NO_TIME:
        job.evict_ms = times[3]
    if times[4] != NO_TIME and job.state == JobState.QUEUED:
        job.state = JobState.NOT_ELIGIBLE
        job.eligible_ms = times[4]
        job.waits_by_scheduler = True
    if ends_after_release and job.state == JobState.RELEASING:
        job.then = Then.CANCEL
        job.end_outcome = Outcome.PREEMPTED
        job.end_ms = NEVER
    commit(w, log)


@kernel
def clear_history(worlds: Any, i: int) -> None:
    """Forget what entering the world has counted: totals and areas start from zero."""
    w = worlds[i]
    w.totals.num_started = 0
    w.totals.num_preemptions = 0
    w.totals.restart_area = 0
    w.totals.lost_area = 0
    for k in range(w.num_tenants):
        w.tenants[k].waste_area = 0
    w.totals.num_transactions = 0


# ---------------------------------------------------------------------------------------------------------------
# The compiled door
# ---------------------------------------------------------------------------------------------------------------


@helper
def _run(
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
) -> int:
    w = worlds[i]
    while next_time_ms(w) < NEVER and next_time_ms(w) <= until_ms and w.error == ErrorCode.NONE:
        if run_instant(w, rows, pod_sets, schedule, log) and w.error == ErrorCode.NONE:
            ask(w, decide, private, out[0], rows, pod_sets, schedule, log)
    if w.error == ErrorCode.NONE and until_ms < NEVER:
        go_to(w, until_ms)
    return w.error


@helper
def _cycles(
    worlds: Any,
    i: int,
    decide: Any,
    private: Any,
    out: Any,
    rows: Any,
    pod_sets: Any,
    schedule: Any,
    log: Any,
    count: int,
) -> int:
    w = worlds[i]
    until = NEVER
    for _ in range(count):
        out[0].num_commands = 0
        out[0].num_transactions = 0
        until = decide(w, private, out[0])
        apply_decision(w, out[0], log)
        settle_instant(w, rows, pod_sets, schedule, log)
    return until


def door_type(size: SizeClass) -> nbt.FunctionType:
    """The numba type of a compiled `decide(world, private, out) -> next` for a size class."""
    return nbt.FunctionType(_door_signature(size))


def _door_signature(size: SizeClass) -> Any:
    world = numba.typeof(np.zeros(1, world_dtype(size))).dtype
    decision = numba.typeof(np.zeros(1, DECISION)).dtype
    return nbt.int64(world, nbt.Array(nbt.uint8, 1, "C"), decision)


@cache
def compile_decide(decide: Callable[..., Any], size: SizeClass) -> Any:
    """Compile a scheduler's `decide` for the door of a size class (cached on disk)."""
    return compile_for(decide, _door_signature(size))


@cache
def _compile_driver(function: Callable[..., Any], size: SizeClass) -> Any:
    """The machine code of a driver, for any scheduler at the door.

    Called through its dispatcher it would be compiled once more for each scheduler, with the scheduler as a type.
    """
    signature = runner_signature(size)
    return compile_for(function, signature).get_overload(signature)


def runner_signature(size: SizeClass) -> Any:
    """The numba signature of `_run` and `_cycles` for a size class."""
    worlds = numba.typeof(np.zeros(1, world_dtype(size)))

    def table(dtype: Any, readonly: bool) -> Any:
        record = numba.typeof(np.zeros(1, dtype)).dtype
        return nbt.Array(record, 1, "C", readonly=readonly)

    return nbt.int64(
        worlds,
        nbt.int64,
        door_type(size),
        nbt.Array(nbt.uint8, 1, "C"),
        table(DECISION, False),
        table(JOB_ROW, True),
        table(POD_SET_ROW, True),
        table(SCHEDULE_ROW, False),
        table(LOG_ROW, False),
        nbt.int64,
    )


@cache
def scheduler_runner(size: SizeClass) -> Any:
    """`_run`, compiled, to be called by a kernel through its address: arguments as `run_scheduler` without the size."""
    return compile_for(_python(_run), runner_signature(size))


def run_scheduler(size: SizeClass, *arguments: Any) -> int:
    """Run a world under a compiled scheduler until a time; arguments as `_run`. Returns the error code."""
    result: int = _compile_driver(_python(_run), size)(*arguments)
    return result


def run_cycles(size: SizeClass, *arguments: Any) -> int:
    """Ask a compiled scheduler exactly n times, no time passing; arguments as `_cycles`. Returns its last `next`."""
    result: int = _compile_driver(_python(_cycles), size)(*arguments)
    return result


def _python(function: Any) -> Callable[..., Any]:
    return getattr(function, "py_func", function)
