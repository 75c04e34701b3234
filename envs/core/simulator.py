"""The scheduling cycle: every change of a world starts here.

`run_instant` is the table of contents: go to the time of the next event, apply all events of that instant in
order; `ask` then lets the scheduler decide and applies its transactions, until it waits. docs/model.md sections 4, 8.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gangline.envs.core.compiled import helper, inlined
from gangline.envs.core.events import (
    ARRIVAL,
    SCHEDULE,
    TICK,
    TIMER,
    next_job,
    next_kind,
    next_node,
    next_time_ms,
    node_entity,
    set_event,
)
from gangline.envs.core.fair_share import accrue_tenant_usage, accrue_user_usage, integrate_areas
from gangline.envs.core.placement import fits_empty_cluster
from gangline.envs.core.progress import settle_undecided
from gangline.envs.core.quota import refresh_quota
from gangline.envs.core.slots import remember_slot, slot_of, take_job, take_pod_set
from gangline.envs.core.transactions import (
    begin,
    commit,
    drop_reservations,
    end_job,
    forget_journal,
    gangs_are_whole,
    pod_set_slot,
    pods_were_lost,
    release_due_pods,
    release_pod,
    schedule_job,
    settle,
    touch,
    try_command,
    undo,
)
from gangline.envs.core.types import (
    AGAIN,
    FULL_SPEED,
    MAX_COMMANDS,
    NEVER,
    NO_TIME,
    NONE,
    SHORTEST_WORK_MS,
    SLOWNESS,
    ChangeKind,
    ErrorCode,
    EventKind,
    JobKind,
    JobState,
    NodeState,
    Outcome,
    PodState,
    Reason,
    Result,
    Then,
)

MAX_CYCLES_WITHOUT_CHANGE = 1000


# ---------------------------------------------------------------------------------------------------------------
# Time
# ---------------------------------------------------------------------------------------------------------------


@inlined
def run_instant(w: Any, rows: Any, pod_sets: Any, schedule: Any, log: Any) -> bool:
    """Go to the next event's time and apply every event of that instant; True if the scheduler should be asked."""
    go_to(w, next_time_ms(w))
    should_ask = False
    while next_time_ms(w) <= w.now_ms and w.error == ErrorCode.NONE:
        kind = next_kind(w)
        w.totals.num_events += 1
        if kind != EventKind.USAGE_TICK:
            should_ask = True
        apply_event(w, kind, rows, pod_sets, schedule, log)
    w.totals.num_instants += 1
    return should_ask


@helper
def go_to(w: Any, time_ms: int) -> None:
    """Let time pass; nothing happens in between."""
    integrate_areas(w, time_ms)
    w.now_ms = time_ms


@helper
def apply_event(w: Any, kind: int, rows: Any, pod_sets: Any, schedule: Any, log: Any) -> None:
    """Apply the first event of the queue."""
    if kind == EventKind.RELEASED:
        _released(w, next_job(w), log)
    elif kind == EventKind.FINISH:
        _finish(w, next_job(w), log)
    elif kind == EventKind.FAIL_OR_HANG:
        _fail_or_hang(w, next_job(w), log)
    elif kind == EventKind.WALLTIME:
        _end(w, next_job(w), Outcome.TIMEOUT, Reason.UNSPECIFIED, log)
    elif kind == EventKind.NODE:
        _node_event(w, next_node(w), log)
    elif kind == EventKind.SCHEDULE:
        apply_change(w, schedule[w.next_change], log)
        w.next_change += 1
        plan_next_change(w, schedule)
    elif kind == EventKind.CANCEL:
        _end(w, next_job(w), Outcome.CANCELLED, Reason.BY_USER, log)
    elif kind == EventKind.ELIGIBLE:
        _eligible(w, next_job(w), log)
    elif kind == EventKind.ARRIVAL:
        arrive(w, rows[w.next_row], w.next_row, pod_sets, log)
        w.next_row += 1
        plan_next_arrival(w, rows)
    elif kind == EventKind.USAGE_TICK:
        _usage_tick(w)
    else:
        w.timer_ms = NEVER
        set_event(w, TIMER, NEVER, 0, 0)


# ---------------------------------------------------------------------------------------------------------------
# The scheduler's turn
# ---------------------------------------------------------------------------------------------------------------


@helper
def apply_decision(w: Any, out: Any, log: Any) -> int:
    """Apply every transaction of a decision, each for itself; returns how many were applied."""
    applied = 0
    i = 0
    while i < out.num_commands:
        number = out.commands[i].transaction
        begin(w)
        result: int = Result.OK
        j = i
        while j < out.num_commands and out.commands[j].transaction == number:
            if result == Result.OK:
                result = try_command(w, out.commands[j])
            j += 1
        if result == Result.OK and not gangs_are_whole(w):
            result = Result.GANG_INCOMPLETE
        if result == Result.OK:
            commit(w, log)
            applied += 1
        else:
            undo(w)
            w.totals.num_refused += 1
        w.totals.num_transactions += 1
        if 0 <= number < MAX_COMMANDS:
            out.results[number] = result
        i = j
    return applied


@inlined
def settle_instant(w: Any, rows: Any, pod_sets: Any, schedule: Any, log: Any) -> None:
    """Apply the events that a transaction has created for this same instant."""
    while next_time_ms(w) <= w.now_ms and w.error == ErrorCode.NONE:
        w.totals.num_events += 1
        apply_event(w, next_kind(w), rows, pod_sets, schedule, log)


@inlined
def ask(w: Any, decide: Any, private: Any, out: Any, rows: Any, pod_sets: Any, schedule: Any, log: Any) -> None:
    """Let the scheduler decide until it waits, applying what it returns and what follows at the same instant."""
    idle_cycles = 0
    while w.error == ErrorCode.NONE:
        out.num_commands = 0
        out.num_transactions = 0
        w.totals.num_decisions += 1
        until = decide(w, private, out)
        applied = apply_decision(w, out, log)
        settle_instant(w, rows, pod_sets, schedule, log)
        if until != AGAIN:
            w.timer_ms = until if until > w.now_ms else NEVER
            set_event(w, TIMER, w.timer_ms, EventKind.TIMER, 0)
            return
        idle_cycles = 0 if applied > 0 else idle_cycles + 1
        if idle_cycles >= MAX_CYCLES_WITHOUT_CHANGE:
            w.error = ErrorCode.ENDLESS_CYCLE


# ---------------------------------------------------------------------------------------------------------------
# Arrivals and changes from outside
# ---------------------------------------------------------------------------------------------------------------


@helper
def hash_of_row(seed: Any, row: int) -> Any:
    """Uniform 64-bit draw of a trace row: splitmix64 of seed x golden ratio + row."""
    return splitmix64(np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(row))


@helper
def splitmix64(x: Any) -> Any:
    """Sebastiano Vigna's splitmix64 output for state x."""
    z = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@helper
def plan_next_arrival(w: Any, rows: Any) -> None:
    """Set the event of the next row that the thinning keeps."""
    while w.next_row < w.end_row and hash_of_row(w.thin_seed, w.next_row) > w.thin_below:
        w.next_row += 1
    if w.next_row >= w.end_row:
        w.next_arrival_ms = NEVER
    else:
        w.next_arrival_ms = max(w.now_ms, rows[w.next_row].submit_ms - w.time_offset_ms)
    set_event(w, ARRIVAL, w.next_arrival_ms, EventKind.ARRIVAL, w.next_row)


@helper
def plan_next_change(w: Any, schedule: Any) -> None:
    """Set the event of the next scheduled change."""
    time_ms = NEVER
    if w.next_change < w.end_change:
        time_ms = max(w.now_ms, schedule[w.next_change].time_ms)
    set_event(w, SCHEDULE, time_ms, EventKind.SCHEDULE, w.next_change)


@helper
def arrive(w: Any, row: Any, number: int, pod_sets: Any, log: Any) -> int:
    """A job arrives: it gets a slot and pod sets, and is queued, not eligible yet, or rejected. Returns the slot."""
    slot = take_job(w)
    if slot == NONE:
        return NONE
    w.totals.num_arrived += 1
    w.num_jobs += 1
    w.slowness += SLOWNESS // max(row.work_ms, SHORTEST_WORK_MS)
    job = w.jobs[slot]
    clear_job(w, slot)
    job.row = number
    job.tenant = row.tenant
    job.user = row.user
    job.queue = row.queue if row.queue != NONE else w.tenants[row.tenant].queue
    job.group = row.group
    job.shape = row.shape
    job.min_member = row.min_member if row.kind == JobKind.TRAINING else 1
    job.name_rank = row.name_rank
    job.uid_rank = row.uid_rank
    job.kind = row.kind
    job.outcome = row.outcome
    job.preemptible = row.preemptible
    job.requeue = row.requeue
    job.killed_at_claim = row.killed_at_claim
    job.has_dependents = row.has_dependents
    job.topology_wish = row.topology_wish
    job.topology_tier = row.topology_tier
    job.topology = row.topology
    job.priority = row.priority
    job.claim_ms = row.claim_ms
    job.work_ms = row.work_ms
    job.checkpoint_interval_ms = row.checkpoint_interval_ms
    job.checkpoint_cost_ms = row.checkpoint_cost_ms
    job.restart_cost_ms = row.restart_cost_ms
    job.cancel_ms = row.cancel_ms - w.time_offset_ms if row.cancel_ms < NEVER else NEVER
    job.submit_ms = row.submit_ms - w.time_offset_ms
    job.last_submit_ms = job.submit_ms
    job.eligible_ms = row.eligible_ms - w.time_offset_ms
    job.progress.left = row.work_ms * FULL_SPEED
    job.progress.saved_left = job.progress.left
    job.progress.outcome_left = NONE
    hangs_apart = row.kind == JobKind.BATCH and row.outcome == Outcome.HANGS  # pods of a batch job do not hang
    if row.outcome != Outcome.DONE and row.outcome_ms < row.work_ms and not hangs_apart:
        job.progress.outcome_left = (row.work_ms - row.outcome_ms) * FULL_SPEED
    job.accrued_ms = w.now_ms
    _arrive_pod_sets(w, slot, row, pod_sets)
    if w.error != ErrorCode.NONE:
        return NONE
    if row.has_dependents or row.kind == JobKind.SERVICE:
        remember_slot(w, slot)
    begin(w)
    w.before[0].slot = slot
    w.before[0].job = job  # a free slot that adds to no total
    w.num_touched = 1
    job.change = w.change
    job.state = JobState.NOT_ELIGIBLE
    if row.after_row != NONE:
        _wait_for(w, slot, row.after_row)
    if w.params.reject_oversized and not fits_empty_cluster(w, job):
        end_job(w, slot, Outcome.REJECTED, Reason.LARGER_THAN_CLUSTER)
    elif job.after_job == NONE and job.eligible_ms <= w.now_ms:
        job.state = JobState.QUEUED
    commit(w, log)
    return slot


@helper
def clear_job(w: Any, slot: int) -> None:
    """A slot as it is before its job is anything."""
    job = w.jobs[slot]
    job.state = JobState.FREE
    job.is_hung = False
    job.has_stopped = False
    job.is_first_placement = False
    job.is_lifted = False
    job.is_let_in = False
    job.cost_of_search = 0
    job.waits_by_scheduler = False
    job.is_queued = False
    job.is_listed = False
    job.is_admitted = False
    job.then = Then.REQUEUE
    job.end_outcome = Outcome.DONE
    job.end_reason = Reason.UNSPECIFIED
    job.after_job = NONE
    job.first_dependent = NONE
    job.next_dependent = NONE
    job.starts = 0
    job.preemptions = 0
    job.admit_ms = NO_TIME
    job.evict_ms = NO_TIME
    job.first_start_ms = NEVER
    job.start_ms = NEVER
    job.hang_since_ms = NEVER
    job.end_ms = NEVER
    job.touch_ms = NO_TIME
    job.speed = 0
    job.num_wanted = 0
    job.num_bound = 0
    job.num_releasing = 0
    job.num_done = 0
    job.num_gone = 0
    job.gpus_wanted = 0
    job.gpus_bound = 0
    job.gpus_releasing = 0
    job.gpus_surplus = 0
    job.demand = 0
    job.freed_mask = 0
    job.holding_ms = 0
    job.reserve_until_ms = NEVER
    job.first_reservation = NONE
    job.no_room_at = NONE
    job.first_pod = NONE
    job.place = NONE
    job.queue_place = NONE
    job.last_pod = NONE
    job.first_pod_set = NONE
    job.num_pod_sets = 0
    job.next = NONE
    job.prev = NONE
    job.progress.overhead_ms = 0
    job.progress.cycle_ms = 0
    job.progress.undecided = 0
    counters = job.gpu_time
    counters.held = 0
    counters.kept = 0
    counters.lost = 0
    counters.hang = 0
    counters.suspended = 0
    counters.overhead = 0
    counters.releasing = 0
    counters.surplus = 0
    counters.undecided = 0


@helper
def _arrive_pod_sets(w: Any, slot: int, row: Any, pod_sets: Any) -> None:
    """Copy a job's pod sets from the trace into slots, in order."""
    job = w.jobs[slot]
    last = NONE
    for i in range(row.num_pod_sets):
        ps = take_pod_set(w)
        if ps == NONE:
            return
        source = pod_sets[row.first_pod_set + i]
        pod_set = w.pod_sets[ps]
        pod_set.job = slot
        pod_set.next = NONE
        pod_set.index = i
        pod_set.count = source.count
        pod_set.min_count = source.min_count
        pod_set.num_admitted = 0
        pod_set.num_bound = 0
        pod_set.num_releasing = 0
        pod_set.num_done = 0
        pod_set.asked = source.asked
        for r in range(len(pod_set.request)):
            pod_set.request[r] = source.request[r]
            pod_set.admitted_flavor[r] = NONE
        for f in range(len(pod_set.flavors)):
            pod_set.flavors[f] = source.flavors[f]
        if last == NONE:
            job.first_pod_set = ps
        else:
            w.pod_sets[last].next = ps
        last = ps
        job.num_pod_sets += 1
    count_wanted(w, slot)


@helper
def count_wanted(w: Any, slot: int) -> None:
    """Pods and GPUs that a job wants now."""
    job = w.jobs[slot]
    job.num_wanted = 0
    job.gpus_wanted = 0
    gpu = w.params.gpu_resource
    ps = job.first_pod_set
    while ps != NONE:
        pod_set = w.pod_sets[ps]
        wanted = pod_set.count - pod_set.num_done
        job.num_wanted += wanted
        if gpu != NONE and (pod_set.asked >> gpu) & 1:
            job.gpus_wanted += wanted * pod_set.request[gpu]
        ps = pod_set.next


@helper
def _wait_for(w: Any, slot: int, row: int) -> None:
    """Make a job wait for the end of another, if that one is there."""
    other = slot_of(w, row)
    if other == NONE:
        return
    w.jobs[slot].after_job = other
    w.jobs[slot].next_dependent = w.jobs[other].first_dependent
    w.jobs[other].first_dependent = slot


@helper
def apply_change(w: Any, change: Any, log: Any) -> None:
    """Quota, limit, weight, replicas or node state, as a schedule or an injected event says."""
    if change.what == ChangeKind.NOMINAL:
        w.queues[change.index].nominal[change.cell] = change.value
        refresh_quota(w)
    elif change.what == ChangeKind.BORROWING_LIMIT:
        w.queues[change.index].borrowing_limit[change.cell] = change.value
        refresh_quota(w)
    elif change.what == ChangeKind.LENDING_LIMIT:
        w.queues[change.index].lending_limit[change.cell] = change.value
        refresh_quota(w)
    elif change.what == ChangeKind.TENANT_WEIGHT:
        w.tenants[change.index].weight = change.value
        w.shares_are_stale = True
        refresh_entitlements(w)
    elif change.what == ChangeKind.QUEUE_WEIGHT:
        w.queues[change.index].weight = change.value
    elif change.what == ChangeKind.REPLICAS:
        _set_replicas(w, slot_of(w, change.index), change.cell, change.value, log)
    elif change.what == ChangeKind.NODE_STATE:
        set_node_state(w, change.index, change.value, log)
    w.room_version += 1


@helper
def refresh_entitlements(w: Any) -> None:
    """Each tenant's weight share of the cluster, milli-GPU."""
    weights = 0
    for k in range(w.num_tenants):
        weights += w.tenants[k].weight
    for k in range(w.num_tenants):
        w.tenants[k].entitled = w.gpus_total * w.tenants[k].weight // weights if weights > 0 else 0


@helper
def _set_replicas(w: Any, slot: int, index: int, replicas: int, log: Any) -> None:
    """A service wants another number of replicas; surplus ones, bound last, go at once."""
    if slot == NONE:
        return
    ps = pod_set_slot(w, slot, index)
    if ps == NONE or (w.jobs[slot].state == JobState.RELEASING and w.jobs[slot].then == Then.CANCEL):
        return
    begin(w)
    touch(w, slot)
    pod_set = w.pod_sets[ps]
    pod_set.count = replicas
    pod_set.min_count = min(pod_set.min_count, replicas)
    count_wanted(w, slot)
    at = w.jobs[slot].last_pod
    while at != NONE and pod_set.num_bound > replicas:
        pod = w.pods[at]
        if pod.pod_set == ps and pod.state == PodState.BOUND:
            pod.gives_back = True
            release_pod(w, at)
        at = pod.prev
    forget_journal(w)
    if w.jobs[slot].state == JobState.RUNNING and w.jobs[slot].num_bound == 0:
        wait_again(w, slot)
    commit(w, log)


@helper
def wait_again(w: Any, slot: int) -> None:
    """A job that has no bound pod left, by its own doing: waiting again, once its releasing pods are gone.

    That is no requeue: no delay, no new submission, its admission stays.
    """
    job = w.jobs[slot]
    if job.num_releasing > 0:
        job.state = JobState.RELEASING
        job.then = Then.SHRINK
    else:
        job.state = JobState.ADMITTED if job.is_admitted else JobState.QUEUED


# ---------------------------------------------------------------------------------------------------------------
# What happens to jobs
# ---------------------------------------------------------------------------------------------------------------


@helper
def _released(w: Any, slot: int, log: Any) -> None:
    """Pods whose release time has come leave their nodes."""
    begin(w)
    touch(w, slot)
    release_due_pods(w, slot)
    commit(w, log)


@helper
def _end(w: Any, slot: int, outcome: int, reason: int, log: Any) -> None:
    """A job ends."""
    begin(w)
    touch(w, slot)
    end_job(w, slot, outcome, reason)
    commit(w, log)


@helper
def _finish(w: Any, slot: int, log: Any) -> None:
    """A job has done its work, a service has lived its life, or pods of a batch job have done theirs."""
    job = w.jobs[slot]
    if job.kind != JobKind.BATCH:
        _end(w, slot, Outcome.DONE, Reason.UNSPECIFIED, log)
        return
    begin(w)
    touch(w, slot)
    at = job.first_pod
    while at != NONE:
        pod = w.pods[at]
        if pod.state == PodState.BOUND and pod.progress.left <= 0:
            settle_undecided(pod.progress, job.gpu_time)
            pod.gives_back = True
            w.pod_sets[pod.pod_set].num_done += 1
            job.num_done += 1
            release_pod(w, at)
            forget_journal(w)
        at = pod.next
    count_wanted(w, slot)
    if job.num_wanted == 0:
        end_job(w, slot, Outcome.DONE, Reason.UNSPECIFIED)
    elif job.num_bound == 0:
        wait_again(w, slot)
    commit(w, log)


@helper
def _fail_or_hang(w: Any, slot: int, log: Any) -> None:
    """The hidden outcome strikes, or a hang is found out."""
    job = w.jobs[slot]
    hangs_now = job.is_hung or job.state == JobState.PARTIAL
    if hangs_now and job.hang_since_ms + w.params.hang_timeout_ms <= w.now_ms:
        _stop_and_requeue(w, slot, Outcome.FAILED, log)
    elif job.outcome == Outcome.HANGS:
        begin(w)
        touch(w, slot)
        job.is_hung = True
        job.hang_since_ms = w.now_ms
        commit(w, log)
    else:
        _end(w, slot, Outcome.FAILED, Reason.UNSPECIFIED, log)


@helper
def _stop_and_requeue(w: Any, slot: int, outcome: int, log: Any) -> None:
    """All bound pods go at once; back to the last checkpoint and to the queue, or the end if it may not requeue."""
    begin(w)
    touch(w, slot)
    job = w.jobs[slot]
    at = job.first_pod
    while at != NONE:
        if w.pods[at].state == PodState.BOUND:
            release_pod(w, at)
            forget_journal(w)
        at = w.pods[at].next
    job.preemptions += 1
    pods_were_lost(w, slot, Then.REQUEUE)
    if job.then == Then.CANCEL and job.end_outcome == Outcome.PREEMPTED:
        job.end_outcome = outcome
        job.end_ms = w.now_ms
    release_due_pods(w, slot)
    commit(w, log)


@helper
def _eligible(w: Any, slot: int, log: Any) -> None:
    """Begin time, hold or requeue delay is over, or a reservation has expired."""
    begin(w)
    touch(w, slot)
    job = w.jobs[slot]
    if job.reserve_until_ms <= w.now_ms:
        drop_reservations(w, slot)
    if job.state == JobState.NOT_ELIGIBLE and job.after_job == NONE and job.eligible_ms <= w.now_ms:
        job.state = JobState.QUEUED
        job.waits_by_scheduler = False
    commit(w, log)


@helper
def _usage_tick(w: Any) -> None:
    """Bring all decayed usage up to now."""
    for k in range(w.num_tenants):
        accrue_tenant_usage(w, k)
    for u in range(w.num_users):
        accrue_user_usage(w, u)
    set_event(w, TICK, w.now_ms + w.params.usage_tick_ms, EventKind.USAGE_TICK, 0)


# ---------------------------------------------------------------------------------------------------------------
# Nodes
# ---------------------------------------------------------------------------------------------------------------


@helper
def plan_node_change(w: Any, n: int) -> None:
    """Draw the time of a node's next failure (if it is up) or repair (if it failed by itself)."""
    node = w.nodes[n]
    mean = w.params.mean_up_ms if node.state == NodeState.UP else w.params.mean_down_ms
    if w.params.mean_up_ms <= 0 or node.state == NodeState.DRAINED:
        node.next_change_ms = NEVER
    else:
        node.failure_rng += np.uint64(0x9E3779B97F4A7C15)
        draw = splitmix64(node.failure_rng - np.uint64(0x9E3779B97F4A7C15))
        uniform = np.float64(draw >> np.uint64(11)) / 9007199254740992.0
        node.next_change_ms = w.now_ms + max(1, np.int64(math.ceil(-mean * math.log(1.0 - uniform))))
    set_event(w, node_entity(n), node.next_change_ms, EventKind.NODE, n)


@helper
def _node_event(w: Any, n: int, log: Any) -> None:
    """A node fails or is repaired."""
    if w.nodes[n].state == NodeState.UP:
        w.totals.num_node_failures += 1
        set_node_state(w, n, NodeState.DOWN, log)
    else:
        set_node_state(w, n, NodeState.UP, log)


@helper
def set_node_state(w: Any, n: int, state: int, log: Any) -> None:
    """Up, drained or down; going down takes the node's pods with it."""
    node = w.nodes[n]
    if node.state == state:
        return
    gpus = node.num_gpus * 1000
    if node.state == NodeState.DOWN:
        w.gpus_up += gpus
    elif state == NodeState.DOWN:
        w.gpus_up -= gpus
    node.state = state
    w.shares_are_stale = True
    w.room_version += 1
    if state == NodeState.DOWN:
        while node.first_pod != NONE:
            _lose_node(w, _first_row_on(w, n), n, log)
    plan_node_change(w, n)


@helper
def _first_row_on(w: Any, n: int) -> int:
    """Slot of the job with the lowest row among those with pods on a node."""
    best = NONE
    at = w.nodes[n].first_pod
    while at != NONE:
        slot = w.pods[at].job
        if best == NONE or w.jobs[slot].row < w.jobs[best].row:
            best = slot
        at = w.pods[at].next_on_node
    return best


@helper
def _lose_node(w: Any, slot: int, n: int, log: Any) -> None:
    """A job loses its pods on a node: a gang all its pods, others only those."""
    begin(w)
    touch(w, slot)
    job = w.jobs[slot]
    is_gang = job.kind == JobKind.TRAINING
    lost_bound = False
    at = job.first_pod
    while at != NONE:
        pod = w.pods[at]
        if pod.node == n and (pod.state == PodState.BOUND or pod.state == PodState.RELEASING):
            lost_bound = lost_bound or pod.state == PodState.BOUND
            release_pod(w, at)
            forget_journal(w)
        at = pod.next
    if lost_bound:
        if is_gang:
            at = job.first_pod
            while at != NONE:
                if w.pods[at].state == PodState.BOUND:
                    release_pod(w, at)
                    forget_journal(w)
                at = w.pods[at].next
        job.preemptions += 1
        pods_were_lost(w, slot, Then.REQUEUE)
        if job.state == JobState.RELEASING and job.then == Then.CANCEL:
            job.end_outcome = Outcome.NODE_FAIL
            job.end_ms = w.now_ms
    release_due_pods(w, slot)
    commit(w, log)


@helper
def settle_alone(w: Any, slot: int, log: Any) -> None:
    """Settle a job that was changed from outside (a world entered mid-life)."""
    settle(w, slot, w.before[0].job, log)
    schedule_job(w, slot)
