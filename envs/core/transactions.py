"""Transactions: commands tried one after another on the state, then all committed or all undone.

Trying changes only what later commands must see: nodes, pods, quota, reservations and the counters of the jobs
concerned. A job is copied before its first change, every other step is noted in a journal, and `undo` walks it
backwards. What follows from a change (roll-back, queue, running list, tenants' totals, next event, log) is brought
in line by `settle`, once per touched job, when the change is certain. Events use the same steps: there is one way
to change a world. docs/model.md section 5.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.core.events import job_entity, set_event
from gangline.envs.core.fair_share import accrue_tenant_usage, accrue_user_usage
from gangline.envs.core.placement import (
    choose_node,
    flavor_allowed,
    fullest_gpu,
    measure_fit,
    narrow_by_wish,
    pods_per_turn,
    pods_that_fit,
)
from gangline.envs.core.progress import (
    accrue_job,
    begin_attempt,
    job_speed,
    roll_back,
    settle_undecided,
    time_until,
)
from gangline.envs.core.queue import dequeue, enqueue, note_waiting
from gangline.envs.core.quota import available, cell_of, charge, give_back
from gangline.envs.core.slots import (
    fail,
    forget_slot,
    link_pod,
    list_running,
    note_running,
    pods_left,
    return_job,
    return_pod,
    return_pod_set,
    take_pod,
    unlink_pod,
    unlist_running,
)
from gangline.envs.core.types import (
    FULL_SPEED,
    MAX_COMMANDS,
    NEVER,
    NONE,
    ONE_GPU,
    SHORTEST_WORK_MS,
    SLOWNESS,
    ErrorCode,
    EventKind,
    JobKind,
    JobState,
    NodeState,
    Op,
    Outcome,
    PodState,
    Quota,
    Result,
    Then,
)


class Step(IntEnum):
    """Steps that the journal can undo."""

    BIND = 0
    RELEASE = 1
    MARK = 2
    CHARGE = 3
    GIVE_BACK = 4
    RESERVE = 5
    UNRESERVE = 6
    SUSPEND = 7
    RESUME = 8
    SETTLED = 9


# ---------------------------------------------------------------------------------------------------------------
# Changes: begin, then commit or undo
# ---------------------------------------------------------------------------------------------------------------


@helper
def begin(w: Any) -> None:
    """Begin a change."""
    w.change += 1
    w.num_touched = 0
    w.num_journal = 0
    w.num_pod_sets_before = 0


@helper
def touch(w: Any, slot: int) -> bool:
    """Bring a job up to now and copy it, once per change; False if the change touches too many jobs."""
    job = w.jobs[slot]
    if job.change == w.change:
        return True
    if w.num_touched >= len(w.before) or w.num_pod_sets_before + job.num_pod_sets > len(w.pod_sets_before):
        return False
    accrue_job(w, slot)
    w.before[w.num_touched].slot = slot
    w.before[w.num_touched].job = job
    w.num_touched += 1
    ps = job.first_pod_set
    while ps != NONE:
        w.pod_sets_before[w.num_pod_sets_before] = w.pod_sets[ps]
        w.num_pod_sets_before += 1
        ps = w.pod_sets[ps].next
    job.change = w.change
    return True


@helper
def note(w: Any, step: int, a: int, b: int, amount: int) -> None:
    """Write a step into the journal. An event, which is never undone, may overrun it."""
    if w.num_journal >= len(w.journal):
        return
    entry = w.journal[w.num_journal]
    entry.step = step
    entry.a = a
    entry.b = b
    entry.amount = amount
    w.num_journal += 1


@helper
def journal_has_room(w: Any, steps: int) -> bool:
    """Whether the journal takes that many more steps."""
    return w.num_journal + steps <= len(w.journal)


@helper
def forget_journal(w: Any) -> None:
    """An event is never undone: its steps need not be kept. Room may have been made."""
    w.num_journal = 0
    w.room_version += 1


@helper
def undo(w: Any) -> None:
    """Take every step of the change back."""
    for i in range(w.num_journal - 1, -1, -1):
        entry = w.journal[i]
        if entry.step == Step.BIND:
            _unbind(w, entry.a)
        elif entry.step == Step.RELEASE:
            _take_again(w, entry.a, entry.b, entry.amount)
        elif entry.step == Step.MARK:
            pod = w.pods[entry.a]
            pod.state = PodState.BOUND
            pod.release_ms = NEVER
            pod.gives_back = False
            _add_releasing(w, entry.a, entry.amount, -1)
        elif entry.step == Step.CHARGE:
            give_back(w, entry.a, entry.b, entry.amount)
        elif entry.step == Step.GIVE_BACK:
            charge(w, entry.a, entry.b, entry.amount)
        elif entry.step == Step.RESERVE:
            _plan_amounts(w, entry.a, -1)
            w.reservations[entry.a].next = w.free_reservation
            w.free_reservation = entry.a
        elif entry.step == Step.UNRESERVE:
            _plan_amounts(w, entry.a, 1)
        elif entry.step == Step.SUSPEND:
            _hold_masked(w, entry.a, entry.b, 1)
            w.jobs[entry.a].freed_mask = 0
        elif entry.step == Step.SETTLED:
            w.pods[entry.a].progress.undecided = entry.amount
        else:  # RESUME
            _hold_masked(w, entry.a, entry.b, -1)
            w.jobs[entry.a].freed_mask = entry.b
    k = 0
    for i in range(w.num_touched):
        slot = w.before[i].slot
        w.jobs[slot] = w.before[i].job
        ps = w.jobs[slot].first_pod_set
        while ps != NONE:
            w.pod_sets[ps] = w.pod_sets_before[k]
            k += 1
            ps = w.pod_sets[ps].next
    w.num_touched = 0
    w.num_journal = 0


@helper
def commit(w: Any, log: Any) -> None:
    """Make the change certain: bring everything that follows from it in line."""
    w.candidates_of[0] = 0
    w.stoppable_of[0] = 0
    for i in range(w.num_journal):
        entry = w.journal[i]
        if entry.step == Step.UNRESERVE:
            w.reservations[entry.a].next = w.free_reservation
            w.free_reservation = entry.a
        if entry.step in (Step.RELEASE, Step.GIVE_BACK, Step.UNRESERVE, Step.SUSPEND):
            w.room_version += 1
    w.num_journal = 0
    for i in range(w.num_touched):
        settle(w, w.before[i].slot, w.before[i].job, log)
    w.num_touched = 0


# ---------------------------------------------------------------------------------------------------------------
# Steps
# ---------------------------------------------------------------------------------------------------------------


@helper
def bind_pod(w: Any, slot: int, ps: int, n: int, gpu: int, whole_node: bool) -> None:
    """Put one pod on a node. It must fit."""
    job = w.jobs[slot]
    pod_set = w.pod_sets[ps]
    node = w.nodes[n]
    p = take_pod(w)
    pod = w.pods[p]
    pod.job = slot
    pod.pod_set = ps
    pod.node = n
    pod.serial = w.next_serial
    w.next_serial += 1
    pod.state = PodState.BOUND
    pod.gives_back = False
    pod.is_new = True
    pod.release_ms = NEVER
    pod.gpu_mask = 0
    pod.gpu_milli = 0
    pod.gpus_asked = 0
    for r in range(w.params.num_resources):
        asked = pod_set.request[r] if (pod_set.asked >> r) & 1 else 0
        held = node.idle[r] if whole_node else asked
        pod.held[r] = held
        if r == w.params.gpu_resource:
            pod.gpus_asked = asked
            if held > 0:
                _choose_gpus(node, pod, held, gpu)
    if job.kind == JobKind.BATCH:
        progress = pod.progress
        progress.left = job.work_ms * FULL_SPEED
        progress.saved_left = progress.left
        progress.outcome_left = job.progress.outcome_left
        progress.undecided = 0
        overhead = w.params.start_latency_ms
        if job.preemptions > 0:
            overhead += job.restart_cost_ms
        begin_attempt(progress, overhead)
    link_pod(w, p)
    _hold(w, p, 1)
    job.num_bound += 1
    pod_set.num_bound += 1
    job.gpus_bound += pod.gpus_asked
    if w.params.gpu_resource != NONE:
        job.gpus_surplus += pod.held[w.params.gpu_resource] - pod.gpus_asked
    if w.params.quota == Quota.TRACKED:
        _charge_pod(w, p, 1)
    note(w, Step.BIND, p, 0, 0)


@helper
def _unbind(w: Any, p: int) -> None:
    """Undo `bind_pod`; the job's counters are restored from its copy."""
    _hold(w, p, -1)
    if w.params.quota == Quota.TRACKED:
        _charge_pod(w, p, -1)
    unlink_pod(w, p)
    w.pods[p].state = PodState.FREE
    return_pod(w, p)
    w.next_serial -= 1


@helper
def _choose_gpus(node: Any, pod: Any, held: int, gpu: int) -> None:
    """Fix which GPUs a pod takes: whole ones from the lowest index, a fraction on the fullest that suffices."""
    mask = 0
    if held < ONE_GPU:
        if gpu == NONE:
            gpu = fullest_gpu(node, held)
        mask = 1 << gpu
        pod.gpu_milli = held
    else:
        left = held // ONE_GPU
        for g in range(node.num_gpus):
            if left > 0 and node.gpu_free[g] == ONE_GPU:
                mask |= 1 << g
                left -= 1
        pod.gpu_milli = ONE_GPU
    pod.gpu_mask = mask


@helper
def _hold(w: Any, p: int, sign: int) -> None:
    """Take (1) a pod's resources from its node or give them back (-1), less what its job has freed by suspension."""
    _hold_resources(w, p, ~w.jobs[w.pods[p].job].freed_mask, sign)


@helper
def _hold_resources(w: Any, p: int, mask: int, sign: int) -> None:
    """The same for the resources of a mask."""
    pod = w.pods[p]
    node = w.nodes[pod.node]
    for r in range(w.params.num_resources):
        if not (mask >> r) & 1 or pod.held[r] == 0:
            continue
        node.idle[r] -= sign * pod.held[r]
        node.used[r] += sign * pod.held[r]
        if r == w.params.gpu_resource:
            for g in range(node.num_gpus):
                if (pod.gpu_mask >> g) & 1:
                    was_empty = node.gpu_free[g] == ONE_GPU
                    node.gpu_free[g] -= sign * pod.gpu_milli
                    is_empty = node.gpu_free[g] == ONE_GPU
                    node.free_gpus += is_empty - was_empty


@helper
def _add_releasing(w: Any, p: int, freed: int, sign: int) -> None:
    """Count a pod's resources, less those freed by suspension, as releasing on its node, or no longer."""
    pod = w.pods[p]
    node = w.nodes[pod.node]
    for r in range(w.params.num_resources):
        if not (freed >> r) & 1:
            node.releasing[r] += sign * pod.held[r]


@helper
def _gpus_held(w: Any, p: int) -> int:
    """Milli-GPU that a pod holds now."""
    gpu = w.params.gpu_resource
    if gpu == NONE or (w.jobs[w.pods[p].job].freed_mask >> gpu) & 1:
        return 0
    return w.pods[p].held[gpu]


@helper
def mark_releasing(w: Any, p: int, release_ms: int) -> None:
    """A bound pod is on its way out until `release_ms`; it keeps what it holds."""
    pod = w.pods[p]
    job = w.jobs[pod.job]
    pod_set = w.pod_sets[pod.pod_set]
    held = _gpus_held(w, p)
    pod.state = PodState.RELEASING
    pod.release_ms = release_ms
    _add_releasing(w, p, job.freed_mask, 1)
    job.num_bound -= 1
    job.num_releasing += 1
    pod_set.num_bound -= 1
    pod_set.num_releasing += 1
    if held > 0:
        job.gpus_bound -= pod.gpus_asked
        job.gpus_surplus -= held - pod.gpus_asked
        job.gpus_releasing += held
    note(w, Step.MARK, p, 0, job.freed_mask)


@helper
def release_pod(w: Any, p: int) -> None:
    """A pod leaves its node now; it is unlinked when the change is settled."""
    pod = w.pods[p]
    job = w.jobs[pod.job]
    pod_set = w.pod_sets[pod.pod_set]
    note(w, Step.RELEASE, p, pod.state, job.freed_mask)
    held = _gpus_held(w, p)
    if pod.state == PodState.RELEASING:
        _add_releasing(w, p, job.freed_mask, -1)
        job.num_releasing -= 1
        pod_set.num_releasing -= 1
        job.gpus_releasing -= held
    else:
        job.num_bound -= 1
        pod_set.num_bound -= 1
        if held > 0:
            job.gpus_bound -= pod.gpus_asked
            job.gpus_surplus -= held - pod.gpus_asked
    _hold(w, p, -1)
    pod.state = PodState.GONE
    job.num_gone += 1
    if w.params.quota == Quota.TRACKED:
        _charge_pod(w, p, -1)
    elif pod.gives_back and w.params.quota == Quota.ENFORCED and job.is_admitted:
        pod_set.num_admitted -= 1
        _charge_pod_set(w, pod.job, pod.pod_set, 1, -1)


@helper
def _take_again(w: Any, p: int, state: int, freed: int) -> None:
    """Undo `release_pod`; charges of an admission are undone by their own entries."""
    pod = w.pods[p]
    pod.state = state
    _hold_resources(w, p, ~freed, 1)
    if state == PodState.RELEASING:
        _add_releasing(w, p, freed, 1)
    if w.params.quota == Quota.TRACKED:
        _charge_pod(w, p, 1)


@helper
def _charge_pod(w: Any, p: int, sign: int) -> None:
    """Charge (1) or give back (-1) one pod's quota by its node's flavor. Not journaled: part of bind and release."""
    pod = w.pods[p]
    pod_set = w.pod_sets[pod.pod_set]
    queue = w.jobs[pod.job].queue
    for r in range(w.params.num_resources):
        cell = cell_of(w, w.nodes[pod.node].flavor, r)
        if queue != NONE and cell != NONE and (pod_set.asked >> r) & 1:
            if sign > 0:
                charge(w, queue, cell, pod_set.request[r])
            else:
                give_back(w, queue, cell, pod_set.request[r])


@helper
def _charge_pod_set(w: Any, slot: int, ps: int, pods: int, sign: int) -> None:
    """Charge or give back the quota of admitted pods, journaled."""
    pod_set = w.pod_sets[ps]
    queue = w.jobs[slot].queue
    for r in range(w.params.num_resources):
        cell = cell_of(w, pod_set.admitted_flavor[r], r)
        amount = pods * pod_set.request[r]
        if queue == NONE or cell == NONE or amount == 0 or not (pod_set.asked >> r) & 1:
            continue
        if sign > 0:
            charge(w, queue, cell, amount)
            note(w, Step.CHARGE, queue, cell, amount)
        else:
            give_back(w, queue, cell, amount)
            note(w, Step.GIVE_BACK, queue, cell, amount)


@helper
def give_back_admission(w: Any, slot: int) -> None:
    """End a job's admission: its quota goes back."""
    job = w.jobs[slot]
    if not job.is_admitted:
        return
    ps = job.first_pod_set
    while ps != NONE:
        pod_set = w.pod_sets[ps]
        _charge_pod_set(w, slot, ps, pod_set.num_admitted, -1)
        pod_set.num_admitted = 0
        for r in range(w.params.num_resources):
            pod_set.admitted_flavor[r] = NONE
        ps = pod_set.next
    job.is_admitted = False


@helper
def _plan_amounts(w: Any, reservation: int, sign: int) -> None:
    """Add a reservation to its node's planned amounts, or take it away."""
    record = w.reservations[reservation]
    node = w.nodes[record.node]
    for r in range(w.params.num_resources):
        node.planned[r] += sign * record.amount[r]
    if w.params.gpu_resource != NONE:
        w.gpus_reserved += sign * record.amount[w.params.gpu_resource]


@helper
def drop_reservations(w: Any, slot: int) -> None:
    """A job's reservations end. Their slots are returned at commit."""
    job = w.jobs[slot]
    at = job.first_reservation
    while at != NONE:
        _plan_amounts(w, at, -1)
        note(w, Step.UNRESERVE, at, 0, 0)
        at = w.reservations[at].next
    job.first_reservation = NONE
    job.reserve_until_ms = NEVER


@helper
def _hold_masked(w: Any, slot: int, mask: int, sign: int) -> None:
    """Take back (1) or free (-1) the masked resources of all of a job's pods (resume, suspend)."""
    at = w.jobs[slot].first_pod
    while at != NONE:
        if w.pods[at].state != PodState.GONE:
            _hold_resources(w, at, mask, sign)
        at = w.pods[at].next


# ---------------------------------------------------------------------------------------------------------------
# Commands
# ---------------------------------------------------------------------------------------------------------------


@helper
def try_command(w: Any, command: Any) -> int:
    """Try one command on the state as the change has left it so far; returns a Result."""
    slot = command.job
    if slot < 0 or slot >= w.jobs_used or w.jobs[slot].state == JobState.FREE:
        return Result.BAD_INDEX
    if not journal_has_room(w, 64) or not touch(w, slot):
        return Result.NO_CAPACITY
    return _try_touched(w, slot, command)


@helper
def _try_touched(w: Any, slot: int, command: Any) -> int:
    """Try a command on a job that is part of the change already."""
    if command.op == Op.PLACE:
        return _try_place(w, slot, command)
    if command.op == Op.EVICT:
        return _try_evict(w, slot, command)
    if command.op == Op.ADMIT:
        return _try_admit(w, slot, command)
    if command.op == Op.UNADMIT:
        return _try_unadmit(w, slot)
    if command.op == Op.SUSPEND:
        return _try_suspend(w, slot, command)
    if command.op == Op.RESUME:
        return _try_resume(w, slot)
    if command.op == Op.HOLD:
        return _try_hold(w, slot, command)
    if command.op == Op.CANCEL and w.jobs[slot].state == JobState.RELEASING and w.jobs[slot].then == Then.CANCEL:
        return Result.WRONG_STATE
    if command.op == Op.CANCEL:
        if not journal_has_room(w, 4 * w.jobs[slot].num_bound + 64):
            return Result.NO_CAPACITY
        end_job(w, slot, Outcome.CANCELLED, command.reason)
        return Result.OK
    if command.op == Op.RESERVE:
        return _try_reserve(w, slot, command)
    if command.op == Op.UNRESERVE:
        if w.jobs[slot].first_reservation == NONE:
            return Result.WRONG_STATE
        drop_reservations(w, slot)
        return Result.OK
    return Result.BAD_INDEX


@helper
def gangs_are_whole(w: Any) -> bool:
    """The gang rule, after the last command: whoever got first pods has min_member of them."""
    if not w.params.gang:
        return True
    for i in range(w.num_touched):
        job = w.jobs[w.before[i].slot]
        if job.is_first_placement and job.kind == JobKind.TRAINING and 0 < job.num_bound < job.min_member:
            return False
    return True


@helper
def pod_set_slot(w: Any, slot: int, index: int) -> int:
    """Slot of a job's pod set by its index, or NONE."""
    ps = w.jobs[slot].first_pod_set
    while ps != NONE and w.pod_sets[ps].index != index:
        ps = w.pod_sets[ps].next
    return ps


@helper
def _try_admit(w: Any, slot: int, command: Any) -> int:
    """Reserve quota for one pod set."""
    job = w.jobs[slot]
    ps = pod_set_slot(w, slot, command.pod_set)
    if ps == NONE:
        return Result.BAD_INDEX
    pod_set = w.pod_sets[ps]
    admitted_now = job.is_admitted and job.admit_change == w.change
    if w.params.quota != Quota.ENFORCED or not (
        job.state == JobState.QUEUED or (job.state == JobState.ADMITTED and admitted_now)
    ):
        return Result.WRONG_STATE
    if pod_set.num_admitted > 0:
        return Result.WRONG_STATE
    wanted = pod_set.count - pod_set.num_done
    if command.pods > wanted or command.pods < min(pod_set.min_count, wanted):
        return Result.TOO_MANY_PODS
    for r in range(w.params.num_resources):
        if not (pod_set.asked >> r) & 1:
            continue
        flavor = command.flavor[r]
        if flavor < NONE or flavor >= w.num_flavors:
            return Result.BAD_INDEX
        cell = cell_of(w, flavor, r)
        has_limit = cell != NONE and job.queue != NONE and not command.beyond_quota
        if has_limit and available(w, job.queue, cell) < command.pods * pod_set.request[r]:
            return Result.NO_QUOTA
        pod_set.admitted_flavor[r] = flavor
    pod_set.num_admitted = command.pods
    _charge_pod_set(w, slot, ps, command.pods, 1)
    job.is_admitted = True
    job.admit_ms = w.now_ms
    job.admit_change = w.change
    job.state = JobState.ADMITTED
    return Result.OK


@helper
def _place_touched(w: Any, slot: int) -> int:
    """Where in the list of touched jobs this one stands."""
    for i in range(w.num_touched):
        if w.before[i].slot == slot:
            return i
    return NONE


@helper
def _try_unadmit(w: Any, slot: int) -> int:
    """Give an admission back before anything is bound."""
    job = w.jobs[slot]
    if job.state != JobState.ADMITTED:
        return Result.WRONG_STATE
    give_back_admission(w, slot)
    job.state = JobState.QUEUED
    return Result.OK


@helper
def _try_place(w: Any, slot: int, command: Any) -> int:
    """Bind pods of one pod set on one node."""
    job = w.jobs[slot]
    ps = pod_set_slot(w, slot, command.pod_set)
    n = command.node
    if ps == NONE or n < 0 or n >= w.num_nodes:
        return Result.BAD_INDEX
    if not (
        job.state == JobState.QUEUED
        or job.state == JobState.ADMITTED
        or job.state == JobState.PARTIAL
        or job.state == JobState.RUNNING
    ):
        return Result.WRONG_STATE
    pod_set = w.pod_sets[ps]
    node = w.nodes[n]
    if node.state != NodeState.UP:
        return Result.NODE_UNAVAILABLE
    if w.params.quota == Quota.ENFORCED and not job.is_admitted:
        return Result.NOT_ADMITTED
    most = pod_set.count - pod_set.num_done
    if w.params.quota == Quota.ENFORCED:
        most = min(most, pod_set.num_admitted)
    if command.pods < 1 or pod_set.num_bound + pod_set.num_releasing + command.pods > most:
        return Result.TOO_MANY_PODS
    if not flavor_allowed(pod_set, node.flavor):
        return Result.NOT_ADMITTED
    if w.params.quota == Quota.ENFORCED:
        for r in range(w.params.num_resources):
            flavor = pod_set.admitted_flavor[r]
            if (pod_set.asked >> r) & 1 and cell_of(w, flavor, r) != NONE and flavor != node.flavor:
                return Result.NOT_ADMITTED
    drop_reservations(w, slot)
    if command.whole_node:
        if command.pods != 1 or node.num_pods > _num_gone_on(w, n):
            return Result.NO_ROOM
        for r in range(w.params.num_resources):
            if node.planned[r] > 0:
                return Result.NO_ROOM
    if pods_that_fit(w, job, pod_set, n) < command.pods:
        return Result.NO_ROOM
    gpu = command.gpu
    if gpu != NONE:
        request = pod_set.request[w.params.gpu_resource] if w.params.gpu_resource != NONE else 0
        if (
            gpu < 0
            or gpu >= node.num_gpus
            or request == 0
            or request >= ONE_GPU
            or command.pods * request > node.gpu_free[gpu]
        ):
            return Result.NO_ROOM
        if node.gpu_free[gpu] == ONE_GPU and node.free_gpus * ONE_GPU <= node.planned[w.params.gpu_resource]:
            return Result.NO_ROOM
    if job.num_bound == 0:
        job.is_first_placement = True
    for _ in range(command.pods):
        if not pods_left(w) or not journal_has_room(w, 8):
            return Result.NO_CAPACITY
        bind_pod(w, slot, ps, n, gpu, command.whole_node)
    set_running_state(w, slot)
    return Result.OK


@helper
def _num_gone_on(w: Any, n: int) -> int:
    """Pods that have left a node within this change and are still linked to it."""
    count = 0
    at = w.nodes[n].first_pod
    while at != NONE:
        if w.pods[at].state == PodState.GONE:
            count += 1
        at = w.pods[at].next_on_node
    return count


@helper
def set_running_state(w: Any, slot: int) -> None:
    """State of a job that has bound pods and is not suspended."""
    job = w.jobs[slot]
    if job.num_bound >= job.min_member or job.kind != JobKind.TRAINING:
        job.state = JobState.RUNNING
    else:
        job.state = JobState.PARTIAL


@helper
def _try_evict(w: Any, slot: int, command: Any) -> int:
    """Preempt pods: mark them releasing, or let them go at once."""
    job = w.jobs[slot]
    if command.pod_set != NONE and pod_set_slot(w, slot, command.pod_set) == NONE:
        return Result.BAD_INDEX
    if command.node < NONE or command.node >= w.num_nodes:
        return Result.BAD_INDEX
    there = 0
    at = job.first_pod
    while at != NONE:
        if _is_meant(w, at, command):
            there += 1
        at = w.pods[at].next
    wanted = there if command.pods == NONE else command.pods
    if job.state == JobState.SUSPENDED and wanted < job.num_bound:
        return Result.WRONG_STATE
    if there == 0 or wanted < 1 or wanted > there:
        return Result.TOO_MANY_PODS if job.num_bound > 0 else Result.WRONG_STATE
    if command.then == Then.CANCEL and wanted < job.num_bound:
        return Result.TOO_MANY_PODS
    if command.grace_ms < 0 or command.grace_ms >= NEVER:
        return Result.BAD_TIME
    if not journal_has_room(w, 2 * wanted + 64):
        return Result.NO_CAPACITY
    job.preemptions += 1
    job.evict_ms = w.now_ms
    at = job.last_pod
    while at != NONE and wanted > 0:
        if _is_meant(w, at, command):
            wanted -= 1
            w.pods[at].gives_back = command.then == Then.SHRINK
            mark_releasing(w, at, w.now_ms + command.grace_ms)
        at = w.pods[at].prev
    pods_were_lost(w, slot, command.then)
    if command.grace_ms == 0:
        release_due_pods(w, slot)
    return Result.OK


@helper
def _is_meant(w: Any, p: int, command: Any) -> bool:
    """Whether an eviction means this pod."""
    pod = w.pods[p]
    return (
        pod.state == PodState.BOUND
        and (command.node == NONE or pod.node == command.node)
        and (command.pod_set == NONE or w.pod_sets[pod.pod_set].index == command.pod_set)
    )


@helper
def pods_were_lost(w: Any, slot: int, then: int) -> None:
    """State of a job after some of its bound pods were taken from it: goes on, is broken, or is on its way out."""
    job = w.jobs[slot]
    is_broken = job.kind == JobKind.TRAINING and job.num_bound < job.min_member
    was_going = job.state == JobState.RUNNING or job.state == JobState.SUSPENDED
    if (is_broken and was_going) or job.num_bound == 0:
        job.has_stopped = True
    if job.num_bound == 0:
        job.state = JobState.RELEASING
        job.then = Then.REQUEUE
        if then == Then.CANCEL or not job.requeue:
            job.then = Then.CANCEL
            job.end_outcome = Outcome.PREEMPTED
            job.end_ms = NEVER
    elif job.state != JobState.SUSPENDED or is_broken:
        set_running_state(w, slot)


@helper
def release_due_pods(w: Any, slot: int) -> None:
    """Let the releasing pods go whose time has come, and the job on, if they were its last."""
    job = w.jobs[slot]
    at = job.first_pod
    while at != NONE:
        pod = w.pods[at]
        if pod.state == PodState.RELEASING and pod.release_ms <= w.now_ms:
            release_pod(w, at)
        at = pod.next
    if job.state == JobState.RELEASING and job.num_releasing == 0:
        if job.then == Then.CANCEL:
            leave(w, slot)
        elif job.then == Then.SHRINK:
            job.freed_mask = 0
            job.state = JobState.ADMITTED if job.is_admitted else JobState.QUEUED
        else:
            requeue(w, slot)


@helper
def requeue(w: Any, slot: int) -> None:
    """A job without pods goes back to the queue; its quota goes back."""
    job = w.jobs[slot]
    give_back_admission(w, slot)
    job.freed_mask = 0
    job.last_submit_ms = w.now_ms
    if w.params.requeue_hold_ms > 0:
        job.state = JobState.NOT_ELIGIBLE
        job.eligible_ms = w.now_ms + w.params.requeue_hold_ms
        job.waits_by_scheduler = True
    else:
        job.state = JobState.QUEUED


@helper
def end_job(w: Any, slot: int, outcome: int, reason: int) -> None:
    """A job ends now, in whatever state; its pods go at once, or are completing for a while."""
    job = w.jobs[slot]
    if job.state == JobState.RELEASING and job.then == Then.CANCEL:
        return
    job.end_outcome = outcome
    job.end_reason = reason
    job.end_ms = w.now_ms
    job.then = Then.CANCEL
    drop_reservations(w, slot)
    if not job.has_stopped:
        settle_undecided(job.progress, job.gpu_time)
    at = job.first_pod
    while at != NONE:
        pod = w.pods[at]
        if pod.state == PodState.BOUND:
            note(w, Step.SETTLED, at, 0, pod.progress.undecided)
            settle_undecided(pod.progress, job.gpu_time)
            mark_releasing(w, at, w.now_ms + w.params.completing_ms)
        at = pod.next
    job.state = JobState.RELEASING
    release_due_pods(w, slot)


@helper
def leave(w: Any, slot: int) -> None:
    """A job without pods leaves the world; `settle` writes the log."""
    give_back_admission(w, slot)
    if w.jobs[slot].end_ms >= NEVER:
        w.jobs[slot].end_ms = w.now_ms
    w.jobs[slot].state = JobState.FREE


@helper
def _try_suspend(w: Any, slot: int, command: Any) -> int:
    """Stop a running job where it stands and free some of its resources."""
    job = w.jobs[slot]
    if job.state != JobState.RUNNING or job.num_releasing > 0 or job.kind == JobKind.SERVICE:
        return Result.WRONG_STATE
    mask = command.freed_mask
    _hold_masked(w, slot, mask, -1)
    note(w, Step.SUSPEND, slot, mask, 0)
    job.freed_mask = mask
    job.state = JobState.SUSPENDED
    if w.params.gpu_resource != NONE and (mask >> w.params.gpu_resource) & 1:
        job.gpus_bound = 0
        job.gpus_surplus = 0
    return Result.OK


@helper
def _try_resume(w: Any, slot: int) -> int:
    """Go on after a suspension, on the same nodes and GPUs."""
    job = w.jobs[slot]
    if job.state != JobState.SUSPENDED or job.num_releasing > 0:
        return Result.WRONG_STATE
    mask = job.freed_mask
    at = job.first_pod
    while at != NONE:
        if w.pods[at].state == PodState.GONE:
            at = w.pods[at].next
            continue
        if not _can_hold_again(w, at, mask):
            _undo_hold_before(w, slot, at, mask)
            return Result.NO_ROOM
        _hold_resources(w, at, mask, 1)
        at = w.pods[at].next
    note(w, Step.RESUME, slot, mask, 0)
    job.freed_mask = 0
    if w.params.gpu_resource != NONE and (mask >> w.params.gpu_resource) & 1:
        at = job.first_pod
        while at != NONE:
            pod = w.pods[at]
            if pod.state == PodState.GONE:
                at = pod.next
                continue
            job.gpus_bound += pod.gpus_asked
            job.gpus_surplus += pod.held[w.params.gpu_resource] - pod.gpus_asked
            at = pod.next
    set_running_state(w, slot)
    return Result.OK


@helper
def _undo_hold_before(w: Any, slot: int, stop: int, mask: int) -> None:
    """Free again what the pods before `stop` have taken."""
    at = w.jobs[slot].first_pod
    while at != stop:
        if w.pods[at].state != PodState.GONE:
            _hold_resources(w, at, mask, -1)
        at = w.pods[at].next


@helper
def _can_hold_again(w: Any, p: int, mask: int) -> bool:
    """Whether a suspended pod's freed resources are free again."""
    pod = w.pods[p]
    node = w.nodes[pod.node]
    for r in range(w.params.num_resources):
        if not (mask >> r) & 1 or pod.held[r] == 0:
            continue
        if r == w.params.gpu_resource:
            empty_taken = 0
            for g in range(node.num_gpus):
                if (pod.gpu_mask >> g) & 1:
                    if node.gpu_free[g] < pod.gpu_milli:
                        return False
                    if node.gpu_free[g] == ONE_GPU:
                        empty_taken += 1
            if (node.free_gpus - empty_taken) * ONE_GPU < node.planned[r]:
                return False
        elif node.idle[r] - node.planned[r] < pod.held[r]:
            return False
    return True


@helper
def _try_hold(w: Any, slot: int, command: Any) -> int:
    """Keep a queued job out of the queue until a time."""
    job = w.jobs[slot]
    if job.state != JobState.QUEUED:
        return Result.WRONG_STATE
    if command.until_ms <= w.now_ms or command.until_ms >= NEVER:
        return Result.BAD_TIME
    job.state = JobState.NOT_ELIGIBLE
    job.eligible_ms = command.until_ms
    job.waits_by_scheduler = True
    return Result.OK


@helper
def _try_reserve(w: Any, slot: int, command: Any) -> int:
    """Keep amounts on a node for a waiting job."""
    job = w.jobs[slot]
    if command.node < 0 or command.node >= w.num_nodes:
        return Result.BAD_INDEX
    if job.state != JobState.QUEUED and job.state != JobState.ADMITTED:
        return Result.WRONG_STATE
    if command.until_ms <= w.now_ms or command.until_ms >= NEVER:
        return Result.BAD_TIME
    node = w.nodes[command.node]
    if node.state != NodeState.UP:
        return Result.NODE_UNAVAILABLE
    some = False
    for r in range(w.params.num_resources):
        amount = command.amount[r]
        if amount == 0:
            continue
        some = True
        if r == w.params.gpu_resource:
            if amount < 0 or amount % ONE_GPU != 0 or node.free_gpus * ONE_GPU - node.planned[r] < amount:
                return Result.NO_ROOM
        elif amount < 0 or not (node.has >> r) & 1 or node.idle[r] - node.planned[r] < amount:
            return Result.NO_ROOM
    if not some:
        return Result.NO_ROOM
    at = w.free_reservation
    if at != NONE:
        w.free_reservation = w.reservations[at].next
    elif w.reservations_used < len(w.reservations):
        at = w.reservations_used
        w.reservations_used += 1
    else:
        return Result.NO_CAPACITY
    reservation = w.reservations[at]
    reservation.job = slot
    reservation.node = command.node
    for r in range(w.params.num_resources):
        reservation.amount[r] = command.amount[r]
    reservation.next = job.first_reservation
    job.first_reservation = at
    job.reserve_until_ms = command.until_ms
    _plan_amounts(w, at, 1)
    note(w, Step.RESERVE, at, 0, 0)
    return Result.OK


# ---------------------------------------------------------------------------------------------------------------
# Settling: what follows from a change
# ---------------------------------------------------------------------------------------------------------------


@helper
def demand_of(job: Any) -> int:
    """What a job adds to its tenant's demand, milli-GPU. docs/model.md section 7."""
    held = job.gpus_bound + job.gpus_surplus + job.gpus_releasing
    if job.state == JobState.FREE:
        return 0
    if job.state == JobState.NOT_ELIGIBLE and not job.waits_by_scheduler:
        return held
    if job.state == JobState.RELEASING and job.then == Then.CANCEL:
        return held
    return max(held, job.gpus_wanted)


@helper
def running_gpus(job: Any) -> int:
    """Requested GPUs of a job that makes progress, milli-GPU."""
    return job.gpus_bound if job.state == JobState.RUNNING and not job.is_hung else 0


@helper
def hung_gpus(job: Any) -> int:
    """Requested GPUs of a job that holds them and makes no progress, milli-GPU."""
    return job.gpus_bound if job.state == JobState.PARTIAL or (job.state == JobState.RUNNING and job.is_hung) else 0


@helper
def is_waiting(job: Any) -> bool:
    """Whether a job waits for its first pods, and not by its user's wish."""
    return (
        job.state == JobState.QUEUED
        or job.state == JobState.ADMITTED
        or (job.state == JobState.NOT_ELIGIBLE and job.waits_by_scheduler)
    )


@helper
def replicas_wanted(job: Any) -> int:
    """Replicas that a service wants now."""
    if job.kind != JobKind.SERVICE or job.state == JobState.FREE or job.state == JobState.NOT_ELIGIBLE:
        return 0
    return 0 if job.state == JobState.RELEASING and job.then == Then.CANCEL else job.num_wanted


@helper
def settle(w: Any, slot: int, before: Any, log: Any) -> None:
    """Bring progress, lists, totals, the next event and the log in line with a job's new state."""
    job = w.jobs[slot]
    _settle_pods(w, slot)
    if job.has_stopped:
        _settle_stop(w, job)
    _settle_start(w, slot, before)
    _settle_lists(w, slot)
    _settle_totals(w, job, before)
    if job.state == JobState.FREE:
        _remove(w, slot, log)
    else:
        job.has_stopped = False
        job.is_first_placement = False
        schedule_job(w, slot)


@helper
def _settle_pods(w: Any, slot: int) -> None:
    """Unlink pods that have left; a batch pod that leaves undecided work behind has lost it."""
    job = w.jobs[slot]
    is_batch = job.kind == JobKind.BATCH
    if job.num_gone == 0 and not is_batch:
        return
    at = job.first_pod
    while at != NONE:
        pod = w.pods[at]
        following = pod.next
        if is_batch:
            if pod.state == PodState.BOUND:
                if pod.is_new:
                    _charge_restart(w, job, pod.progress.overhead_ms * pod.gpus_asked)
            else:
                _charge_lost(w, job, roll_back(pod.progress, job.gpu_time))
        pod.is_new = False
        if pod.state == PodState.GONE:
            unlink_pod(w, at)
            pod.state = PodState.FREE
            return_pod(w, at)
        at = following
    job.num_gone = 0


@helper
def _charge_lost(w: Any, job: Any, amount: int) -> None:
    """Charge lost work (milli-GPU x ms) to the world and to the job's tenant."""
    w.totals.lost_area += amount
    w.tenants[job.tenant].waste_area += amount


@helper
def _charge_restart(w: Any, job: Any, amount: int) -> None:
    """Charge start and restart time (milli-GPU x ms) to the world and to the job's tenant."""
    w.totals.restart_area += amount
    w.tenants[job.tenant].waste_area += amount


@helper
def _settle_stop(w: Any, job: Any) -> None:
    """An attempt was ended before its time: back to the last checkpoint."""
    _charge_lost(w, job, roll_back(job.progress, job.gpu_time))
    if job.is_hung:
        job.is_hung = False
        job.progress.outcome_left = NONE  # it hangs only once
    job.hang_since_ms = NEVER


@helper
def _settle_start(w: Any, slot: int, before: Any) -> None:
    """An attempt begins, or the speed of the running one changes."""
    job = w.jobs[slot]
    if job.state == JobState.PARTIAL and (before.state != JobState.PARTIAL or job.has_stopped):
        job.hang_since_ms = w.now_ms
    if job.state != JobState.RUNNING:
        return
    was_going = (before.state == JobState.RUNNING or before.state == JobState.SUSPENDED) and not job.has_stopped
    if not was_going:
        job.starts += 1
        job.start_ms = w.now_ms
        w.totals.num_started += 1
        if job.first_start_ms >= NEVER:
            job.first_start_ms = w.now_ms
        if job.kind == JobKind.TRAINING:
            overhead = w.params.start_latency_ms
            if job.starts > 1:
                overhead += job.restart_cost_ms
            begin_attempt(job.progress, overhead)
            _charge_restart(w, job, overhead * job.gpus_bound)
            job.hang_since_ms = NEVER
    if job.kind == JobKind.TRAINING:
        job.speed = job_speed(w, slot)


@helper
def _settle_lists(w: Any, slot: int) -> None:
    """Queue and running list follow the state."""
    job = w.jobs[slot]
    belongs_in_queue = job.state == JobState.QUEUED or job.state == JobState.ADMITTED
    if belongs_in_queue != job.is_queued:
        if belongs_in_queue:
            enqueue(w, slot)
        else:
            dequeue(w, slot)
    elif belongs_in_queue:
        note_waiting(w, slot)
    runs = job.state == JobState.PARTIAL or job.state == JobState.RUNNING or job.state == JobState.SUSPENDED
    if runs != job.is_listed:
        if runs:
            list_running(w, slot)
        else:
            unlist_running(w, slot)
    if runs:
        note_running(w, slot)
    if job.state != JobState.RUNNING:
        job.speed = 0


@helper
def _settle_totals(w: Any, job: Any, before: Any) -> None:
    """Sums over jobs follow the difference between the job before and now."""
    tenant = w.tenants[job.tenant]
    held = job.gpus_bound + job.gpus_surplus + job.gpus_releasing
    held_before = before.gpus_bound + before.gpus_surplus + before.gpus_releasing
    if held != held_before:
        accrue_tenant_usage(w, job.tenant)
        tenant.held += held - held_before
        w.gpus_held += held - held_before
        if job.user != NONE:
            accrue_user_usage(w, job.user)
            w.users[job.user].held += held - held_before
        w.shares_are_stale = True
    job.demand = demand_of(job)
    if job.demand != before.demand:
        tenant.demand += job.demand - before.demand
        w.demand += job.demand - before.demand
        w.shares_are_stale = True
    running = running_gpus(job) - running_gpus(before)
    tenant.running += running
    w.gpus_running += running
    w.gpus_hung += hung_gpus(job) - hung_gpus(before)
    waits = is_waiting(job)
    waited = is_waiting(before)
    if waits != waited or (waits and job.gpus_wanted != before.gpus_wanted):
        gpus = (job.gpus_wanted if waits else 0) - (before.gpus_wanted if waited else 0)
        count = waits - waited
        tenant.num_waiting += count
        tenant.gpus_waiting += gpus
        w.num_waiting += count
        w.totals.most_waiting = max(w.totals.most_waiting, w.num_waiting)
        w.gpus_waiting += gpus
    runs = job.is_listed - before.is_listed
    tenant.num_running += runs
    if job.kind == JobKind.SERVICE:
        wanted = replicas_wanted(job)
        wanted_before = replicas_wanted(before)
        w.replicas_wanted += wanted - wanted_before
        w.replicas_missing += max(0, wanted - job.num_bound) - max(0, wanted_before - before.num_bound)
    w.totals.num_preemptions += job.preemptions - before.preemptions


@helper
def _remove(w: Any, slot: int, log: Any) -> None:
    """Write an ended job to the log, add it to the totals, and free its slots."""
    job = w.jobs[slot]
    totals = w.totals
    is_good = job.end_outcome == Outcome.DONE
    is_kept = is_good or job.kind == JobKind.SERVICE
    counters = job.gpu_time
    totals.gpu_time.held += counters.held
    if is_kept:
        totals.gpu_time.kept += counters.kept
    else:
        totals.kept_bad += counters.kept
    totals.gpu_time.lost += counters.lost
    totals.gpu_time.hang += counters.hang
    totals.gpu_time.suspended += counters.suspended
    totals.gpu_time.overhead += counters.overhead
    totals.gpu_time.releasing += counters.releasing
    totals.gpu_time.surplus += counters.surplus
    totals.num_ended += 1
    totals.num_done += is_good
    totals.num_rejected += job.end_outcome == Outcome.REJECTED
    if len(log) > 0:
        if w.log_used < len(log):
            write_log(w, slot, log[w.log_used])
        else:
            fail(w, ErrorCode.LOG_FULL, w.log_used + 1)
        w.log_used += 1
    set_event(w, job_entity(w, slot), NEVER, 0, 0)
    _release_dependents(w, slot)
    if job.after_job != NONE:
        _forget_dependent(w, slot)
    if job.has_dependents or job.kind == JobKind.SERVICE:
        forget_slot(w, slot)
    ps = job.first_pod_set
    while ps != NONE:
        following = w.pod_sets[ps].next
        return_pod_set(w, ps)
        ps = following
    w.num_jobs -= 1
    w.slowness -= SLOWNESS // max(job.work_ms, SHORTEST_WORK_MS)
    return_job(w, slot)


@helper
def write_log(w: Any, slot: int, row: Any) -> None:
    """One line of the log: what a job asked for, how it went, where its GPU time went."""
    job = w.jobs[slot]
    row.row = job.row
    row.tenant = job.tenant
    row.user = job.user
    row.submit_ms = job.submit_ms
    row.eligible_ms = job.eligible_ms
    row.first_start_ms = job.first_start_ms
    row.end_ms = job.end_ms
    row.work_ms = job.work_ms
    row.claim_ms = job.claim_ms
    row.holding_ms = job.holding_ms
    row.gpus = 0
    row.pods = 0
    ps = job.first_pod_set
    while ps != NONE:
        pod_set = w.pod_sets[ps]
        row.pods += pod_set.count
        if w.params.gpu_resource != NONE:
            row.gpus += pod_set.count * pod_set.request[w.params.gpu_resource]
        ps = pod_set.next
    row.starts = job.starts
    row.preemptions = job.preemptions
    row.kind = job.kind
    row.outcome = job.end_outcome
    row.reason = job.end_reason
    row.held = job.gpu_time.held
    row.kept = job.gpu_time.kept
    row.lost = job.gpu_time.lost
    row.hang = job.gpu_time.hang
    row.suspended = job.gpu_time.suspended
    row.overhead = job.gpu_time.overhead
    row.releasing = job.gpu_time.releasing
    row.surplus = job.gpu_time.surplus
    row.undecided = 0


@helper
def _release_dependents(w: Any, slot: int) -> None:
    """Jobs that waited for this one may become eligible."""
    at = w.jobs[slot].first_dependent
    while at != NONE:
        dependent = w.jobs[at]
        following = dependent.next_dependent
        dependent.after_job = NONE
        dependent.next_dependent = NONE
        schedule_job(w, at)
        at = following
    w.jobs[slot].first_dependent = NONE


@helper
def _forget_dependent(w: Any, slot: int) -> None:
    """A job that waited for another has ended before it."""
    job = w.jobs[slot]
    at = w.jobs[job.after_job].first_dependent
    if at == slot:
        w.jobs[job.after_job].first_dependent = job.next_dependent
        return
    while w.jobs[at].next_dependent != slot:
        at = w.jobs[at].next_dependent
    w.jobs[at].next_dependent = job.next_dependent


@helper
def schedule_job(w: Any, slot: int) -> None:
    """Find a job's next event: the earliest of what can happen to it, by (time, kind)."""
    job = w.jobs[slot]
    time_ms = NEVER
    kind = 0
    if job.num_releasing > 0:
        at = job.first_pod
        while at != NONE:
            pod = w.pods[at]
            if pod.state == PodState.RELEASING and pod.release_ms < time_ms:
                time_ms = pod.release_ms
            at = pod.next
        kind = EventKind.RELEASED
    if job.state == JobState.RELEASING and job.then == Then.CANCEL:
        set_event(w, job_entity(w, slot), time_ms, kind, job.row)
        return
    if job.state == JobState.RUNNING:
        if job.kind == JobKind.TRAINING:
            if not job.is_hung:
                progress = job.progress
                interval = job.checkpoint_interval_ms
                cost = job.checkpoint_cost_ms
                at_ms = w.now_ms + time_until(progress, 0, job.speed, interval, cost)
                if at_ms < time_ms or (at_ms == time_ms and kind > EventKind.FINISH):
                    time_ms = at_ms
                    kind = EventKind.FINISH
                if progress.outcome_left >= 0:
                    at_ms = w.now_ms + time_until(progress, progress.outcome_left, job.speed, interval, cost)
                    if at_ms < time_ms or (at_ms == time_ms and kind > EventKind.FAIL_OR_HANG):
                        time_ms = at_ms
                        kind = EventKind.FAIL_OR_HANG
        elif job.kind == JobKind.BATCH:
            at = job.first_pod
            while at != NONE:
                pod = w.pods[at]
                if pod.state == PodState.BOUND:
                    speed = w.nodes[pod.node].speed
                    at_ms = w.now_ms + time_until(pod.progress, 0, speed, NEVER, 0)
                    if at_ms < time_ms or (at_ms == time_ms and kind > EventKind.FINISH):
                        time_ms = at_ms
                        kind = EventKind.FINISH
                    if pod.progress.outcome_left >= 0:
                        at_ms = w.now_ms + time_until(pod.progress, pod.progress.outcome_left, speed, NEVER, 0)
                        if at_ms < time_ms or (at_ms == time_ms and kind > EventKind.FAIL_OR_HANG):
                            time_ms = at_ms
                            kind = EventKind.FAIL_OR_HANG
                at = pod.next
    if job.kind == JobKind.SERVICE and job.first_start_ms < NEVER:
        at_ms = max(w.now_ms, job.first_start_ms + job.work_ms)
        if at_ms < time_ms or (at_ms == time_ms and kind > EventKind.FINISH):
            time_ms = at_ms
            kind = EventKind.FINISH
    if (
        job.hang_since_ms < NEVER
        and w.params.hang_timeout_ms < NEVER
        and (job.state == JobState.PARTIAL or job.is_hung)
    ):
        at_ms = max(w.now_ms, job.hang_since_ms + w.params.hang_timeout_ms)
        if at_ms < time_ms or (at_ms == time_ms and kind > EventKind.FAIL_OR_HANG):
            time_ms = at_ms
            kind = EventKind.FAIL_OR_HANG
    if (
        job.killed_at_claim
        and job.claim_ms < NEVER
        and (job.state == JobState.RUNNING or job.state == JobState.SUSPENDED)
    ):
        at_ms = job.start_ms + job.claim_ms
        if w.params.limit_check_ms > 0:
            at_ms = -(-at_ms // w.params.limit_check_ms) * w.params.limit_check_ms
        at_ms = max(w.now_ms, at_ms)
        if at_ms < time_ms or (at_ms == time_ms and kind > EventKind.WALLTIME):
            time_ms = at_ms
            kind = EventKind.WALLTIME
    if job.cancel_ms < time_ms or (job.cancel_ms == time_ms and kind > EventKind.CANCEL):
        time_ms = max(w.now_ms, job.cancel_ms)
        kind = EventKind.CANCEL
    if job.state == JobState.NOT_ELIGIBLE and job.after_job == NONE:
        at_ms = max(w.now_ms, job.eligible_ms)
        if at_ms < time_ms:
            time_ms = at_ms
            kind = EventKind.ELIGIBLE
    if job.reserve_until_ms < time_ms:
        time_ms = max(w.now_ms, job.reserve_until_ms)
        kind = EventKind.ELIGIBLE
    set_event(w, job_entity(w, slot), time_ms, kind, job.row)


# ---------------------------------------------------------------------------------------------------------------
# What if: take running jobs off their nodes for a search
# ---------------------------------------------------------------------------------------------------------------


@helper
def lift(w: Any, slot: int) -> bool:
    """Take a job's bound pods off their nodes, and its quota back, to see what would fit; False if the list is full."""
    if w.num_lifted >= len(w.lifted):
        return False
    w.lifted[w.num_lifted] = slot
    w.num_lifted += 1
    _lift_or_put_back(w, slot, -1)
    w.jobs[slot].is_lifted = True
    return True


@helper
def put_back(w: Any, slot: int) -> None:
    """Undo `lift` for one job; order does not matter. It stays in the list, no longer marked."""
    _lift_or_put_back(w, slot, 1)
    w.jobs[slot].is_lifted = False


@helper
def put_all_back(w: Any) -> None:
    """Undo every `lift`."""
    for i in range(w.num_lifted - 1, -1, -1):
        if w.jobs[w.lifted[i]].is_lifted:
            put_back(w, w.lifted[i])
    w.num_lifted = 0


@helper
def _lift_or_put_back(w: Any, slot: int, sign: int) -> None:
    """Node resources and quota of a job's bound pods."""
    at = w.jobs[slot].first_pod
    while at != NONE:
        if w.pods[at].state == PodState.BOUND:
            _hold(w, at, sign)
            if w.params.quota == Quota.TRACKED:
                _charge_pod(w, at, sign)
        at = w.pods[at].next
    if w.params.quota == Quota.ENFORCED and w.jobs[slot].is_admitted:
        journal = w.num_journal
        ps = w.jobs[slot].first_pod_set
        while ps != NONE:
            _charge_pod_set(w, slot, ps, w.pod_sets[ps].num_admitted, sign)
            ps = w.pod_sets[ps].next
        w.num_journal = journal


# ---------------------------------------------------------------------------------------------------------------
# Planning: find nodes for a whole job, and write the commands
# ---------------------------------------------------------------------------------------------------------------


@helper
def plan(w: Any, slot: int, rule: int, out: Any) -> bool:
    """Find nodes for all pods that a waiting job wants, by a placement rule, and append one transaction to `out`.

    Pods are bound for the search and unbound again, so later pod sets see what earlier ones took. With quota
    enforced the transaction admits the job too, in the first allowed flavor whose quota and nodes suffice.
    Returns: False, with `out` and the world unchanged, if there is no room.
    """
    job = w.jobs[slot]
    if not may_have_room(w, slot):
        return False
    w.totals.num_attempts += 1
    first = out.num_commands
    begin(w)
    found = touch(w, slot) and plan_within(w, slot, rule, out)
    undo(w)
    if not found:
        out.num_commands = first
        job.no_room_at = w.room_version
        if job.num_bound == 0:
            w.groups[job.group].no_room_at = w.room_version
        return False
    for i in range(first, out.num_commands):
        out.commands[i].transaction = out.num_transactions
    out.num_transactions += 1
    return True


@helper
def may_have_room(w: Any, slot: int) -> bool:
    """False if a job of the same shape or group has found no room since room was last made."""
    job = w.jobs[slot]
    if job.first_reservation != NONE or job.num_bound > 0:
        return job.no_room_at != w.room_version  # it sees room that others of its group do not
    return w.no_room_at[job.shape] != w.room_version and w.groups[job.group].no_room_at != w.room_version


@helper
def plan_within(w: Any, slot: int, rule: int, out: Any) -> bool:
    """The same inside a change that has begun and touched the job: tries the commands and leaves the state so."""
    job = w.jobs[slot]
    ps = job.first_pod_set
    while ps != NONE:
        pod_set = w.pod_sets[ps]
        wanted = pod_set.count - pod_set.num_done - pod_set.num_bound - pod_set.num_releasing
        flavor = NONE
        if wanted > 0 and w.params.quota == Quota.ENFORCED:
            if pod_set.num_admitted == 0 and not _plan_admission(w, slot, ps, wanted, out):
                return False
            flavor = _quota_flavor(w, pod_set)
            wanted = min(wanted, pod_set.num_admitted - pod_set.num_bound - pod_set.num_releasing)
        if wanted > 0 and not _plan_nodes(w, slot, ps, flavor, wanted, rule, out):
            return False
        ps = pod_set.next
    return gangs_are_whole(w)


@helper
def _plan_admission(w: Any, slot: int, ps: int, pods: int, out: Any) -> bool:
    """Admit pods of a pod set in the first allowed flavor whose quota and nodes suffice."""
    job = w.jobs[slot]
    pod_set = w.pod_sets[ps]
    for i in range(len(pod_set.flavors)):
        flavor = pod_set.flavors[i]
        if flavor == NONE:
            return False
        if flavor >= w.num_flavors or not quota_suffices(w, job, pod_set, pods, flavor):
            continue
        if measure_fit(w, job, pod_set, flavor, pods) >= pods:
            at = _new_command(out, Op.ADMIT, slot)
            if at == NONE:
                return False
            command = out.commands[at]
            command.pod_set = pod_set.index
            command.pods = pods
            for r in range(w.params.num_resources):
                command.flavor[r] = flavor
            return journal_has_room(w, 64) and _try_admit(w, slot, command) == Result.OK
    return False


@helper
def _quota_flavor(w: Any, pod_set: Any) -> int:
    """The flavor that an admitted pod set's quota ties it to; NONE if it has none."""
    for r in range(w.params.num_resources):
        if (pod_set.asked >> r) & 1 and cell_of(w, pod_set.admitted_flavor[r], r) != NONE:
            return pod_set.admitted_flavor[r]
    return NONE


@helper
def quota_suffices(w: Any, job: Any, pod_set: Any, pods: int, flavor: int) -> bool:
    """Whether a queue may take that many pods of a flavor now."""
    if job.queue == NONE:
        return True
    for r in range(w.params.num_resources):
        cell = cell_of(w, flavor, r)
        if cell != NONE and (pod_set.asked >> r) & 1 and available(w, job.queue, cell) < pods * pod_set.request[r]:
            return False
    return True


@helper
def _plan_nodes(w: Any, slot: int, ps: int, flavor: int, wanted: int, rule: int, out: Any) -> bool:
    """Nodes of one flavor (NONE = any allowed) for `wanted` pods."""
    job = w.jobs[slot]
    pod_set = w.pod_sets[ps]
    if measure_fit(w, job, pod_set, flavor, wanted) < wanted:
        if flavor == NONE and pod_set.index == 0 and job.num_bound == 0 and w.num_touched == 1 and w.num_lifted == 0:
            w.no_room_at[job.shape] = w.room_version
        return False
    if not narrow_by_wish(w, job, rule, wanted):
        return False
    while wanted > 0:
        n = choose_node(w, pod_set, rule, wanted)
        at = _new_command(out, Op.PLACE, slot)
        if n == NONE or at == NONE:
            return False
        pods = pods_per_turn(rule, w.fit[n], wanted)
        command = out.commands[at]
        command.pod_set = pod_set.index
        command.node = n
        command.pods = pods
        if _try_place(w, slot, command) != Result.OK:
            return False
        wanted -= pods
        w.fit[n] = min(w.fit[n] - pods, pods_that_fit(w, job, pod_set, n))
    return True


@helper
def _new_command(out: Any, op: int, slot: int) -> int:
    """Index of a fresh command in a decision, or NONE if it is full."""
    if out.num_commands >= MAX_COMMANDS:
        return NONE
    i = out.num_commands
    out.num_commands += 1
    command = out.commands[i]
    command.op = op
    command.then = Then.REQUEUE
    command.beyond_quota = False
    command.whole_node = False
    command.gpu = NONE
    command.freed_mask = 0
    command.reason = 0
    command.transaction = out.num_transactions
    command.job = slot
    command.pod_set = NONE
    command.node = NONE
    command.pods = NONE
    command.grace_ms = 0
    command.until_ms = 0
    return i


@helper
def plan_evict(out: Any, slot: int, grace_ms: int, then: int) -> bool:
    """Append a command that evicts all pods of a job, as part of the transaction being written."""
    i = _new_command(out, Op.EVICT, slot)
    if i == NONE:
        return False
    out.commands[i].grace_ms = grace_ms
    out.commands[i].then = then
    return True
