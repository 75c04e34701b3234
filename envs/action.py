"""What an agent can do: one flat, masked action per decision, and the transaction that it stands for.

    0                      wait
    1 + rule x Q + slot    place the job of queue row `slot` by a placement rule
    ... victim x Q + slot  make room for it and place it (one atomic transaction)
    ... + slot             admit it (quota: enforced), reserve for it
    ... + row              preempt the job of running row `row`

A kind is legal exactly if its transaction would be applied: the mask asks the function that writes the transaction.
A job touched at this instant cannot be touched again in it.

To add a kind: a member of `Kind` (agent.py), its segment in `decode`, `plan_action` and `write_mask`, all here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.envs.agent import Kind, Role
from gangline.envs.core.compiled import helper
from gangline.envs.core.fair_share import refresh_shares
from gangline.envs.core.placement import measure_fit, node_is_open
from gangline.envs.core.preemption import Scope, can_make_room, enough_is_stoppable, may_be_stopped, plan_make_room
from gangline.envs.core.transactions import (
    _new_command,
    lift,
    may_have_room,
    plan,
    plan_evict,
    put_all_back,
)
from gangline.envs.core.types import NONE, ONE_GPU, JobState, Op, PodState, Quota, Shape, Then

WAIT = 0


@helper
def decode(agent: Any, action: int) -> tuple[int, int, int]:
    """(kind, row, rule) of a flat action; (NONE, 0, 0) if it is out of range."""
    if action == WAIT:
        return Kind.WAIT + 0, 0, 0
    rows = agent.queue_rows
    at = action - 1
    if at < 0 or action >= agent.num_actions:
        return NONE, 0, 0
    if at < agent.num_rules * rows:
        return Kind.PLACE + 0, at % rows, at // rows
    at -= agent.num_rules * rows
    if at < agent.num_victim_rules * rows:
        return Kind.MAKE_ROOM + 0, at % rows, at // rows
    at -= agent.num_victim_rules * rows
    if agent.may_admit:
        if at < rows:
            return Kind.ADMIT + 0, at, 0
        at -= rows
    if agent.may_reserve:
        if at < rows:
            return Kind.RESERVE + 0, at, 0
        at -= rows
    return Kind.PREEMPT + 0, at, 0


def num_actions(agent: np.void) -> int:
    """Size of the flat action space."""
    rows = int(agent["queue_rows"])
    segments = int(agent["num_rules"]) + int(agent["num_victim_rules"])
    segments += int(agent["may_admit"]) + int(agent["may_reserve"])
    return 1 + segments * rows + int(agent["may_preempt"]) * int(agent["running_rows"])


@helper
def plan_action(w: Any, env: Any, agent: Any, kind: int, row: int, rule: int, out: Any) -> bool:
    """Append the transaction of an action to `out`; False if it is not legal. The world is unchanged."""
    if kind == Kind.PREEMPT:
        if row >= env.num_running_rows:
            return False
        if env.tenant != NONE:
            return plan_give_back(w, agent, env.running_jobs[row], out)
        return plan_preempt(w, env, agent, env.running_jobs[row], out)
    if row >= env.num_queue_rows:
        return False
    slot = env.queue_jobs[row]
    if w.jobs[slot].touch_ms == w.now_ms:
        return False
    if kind == Kind.PLACE:
        return plan(w, slot, agent.rules[rule], out)
    if kind == Kind.MAKE_ROOM:
        return (
            may_reclaim(w, env, agent, slot)
            and (not can_start(w, slot))
            and plan_make_room(
                w, slot, agent.rules[0], agent.victim_rules[rule], Scope.OVER_SHARE, agent.min_run_ms, out
            )
        )
    if kind == Kind.ADMIT:
        return plan_admit(w, slot, out)
    if kind == Kind.RESERVE:
        return plan_reserve(w, slot, agent.reserve_ms, out)
    return False


@helper
def may_reclaim(w: Any, env: Any, agent: Any, slot: int) -> bool:
    """Whether an agent may have others stopped for a job: a tenant's, or one so set, only up to the fair share."""
    if env.tenant == NONE and not agent.reclaims_within_share:
        return True
    job = w.jobs[slot]
    tenant = w.tenants[job.tenant]
    return tenant.held + job.gpus_wanted <= tenant.fair


@helper
def can_start(w: Any, slot: int) -> bool:
    """Whether a waiting job finds nodes (and quota) now, by any placement rule. Exactly when `plan` would succeed."""
    if not may_have_room(w, slot):
        return False
    job = w.jobs[slot]
    if job.num_pod_sets == 1 and w.params.quota != Quota.ENFORCED and job.topology_wish == Shape.NO_WISH:
        pod_set = w.pod_sets[job.first_pod_set]
        wanted = pod_set.count - pod_set.num_done
        if measure_fit(w, job, pod_set, NONE, wanted) >= wanted:
            return True
        if job.first_reservation == NONE:
            w.no_room_at[job.shape] = w.room_version
        return False
    scratch = w.scratch[0]
    scratch.num_commands = 0
    scratch.num_transactions = 0
    return plan(w, slot, 0, scratch)


@helper
def plan_admit(w: Any, slot: int, out: Any) -> bool:
    """Reserve quota for every pod set of a queued job, in its first allowed flavor that has enough."""
    job = w.jobs[slot]
    if job.state != JobState.QUEUED:
        return False
    scratch = w.scratch[0]
    scratch.num_commands = 0
    scratch.num_transactions = 0
    if not plan(w, slot, 0, scratch):
        return False
    for i in range(scratch.num_commands):
        if scratch.commands[i].op == Op.ADMIT:
            at = _new_command(out, Op.ADMIT, slot)
            if at == NONE:
                return False
            out.commands[at].pod_set = scratch.commands[i].pod_set
            out.commands[at].pods = scratch.commands[i].pods
            for r in range(w.params.num_resources):
                out.commands[at].flavor[r] = scratch.commands[i].flavor[r]
    out.num_transactions += 1
    return True


@helper
def plan_reserve(w: Any, slot: int, length_ms: int, out: Any) -> bool:
    """Keep empty GPUs for a job that does not fit, roomiest nodes first, up to what it wants, for a limited time."""
    job = w.jobs[slot]
    gpu = w.params.gpu_resource
    if gpu == NONE or job.num_pod_sets != 1 or job.first_reservation != NONE or can_start(w, slot):
        return False
    pod_set = w.pod_sets[job.first_pod_set]
    request = pod_set.request[gpu]
    if request < ONE_GPU:
        return False
    left = job.gpus_wanted
    first = out.num_commands
    for n in range(w.num_nodes):
        w.fit[n] = 0
        if node_is_open(w, pod_set, n, NONE):
            w.fit[n] = max(0, w.nodes[n].free_gpus - w.nodes[n].planned[gpu] // ONE_GPU)
    while left > 0:
        best = NONE
        for n in range(w.num_nodes):
            if w.fit[n] > 0 and (best == NONE or w.fit[n] > w.fit[best]):
                best = n
        if best == NONE:
            break
        amount = min(left, w.fit[best] * ONE_GPU)
        at = _new_command(out, Op.RESERVE, slot)
        if at == NONE:
            break
        out.commands[at].node = best
        out.commands[at].until_ms = w.now_ms + length_ms
        for r in range(w.params.num_resources):
            out.commands[at].amount[r] = 0
        out.commands[at].amount[gpu] = amount
        left -= amount
        w.fit[best] = 0
    if out.num_commands == first:
        return False
    out.num_transactions += 1
    return True


@helper
def plan_preempt(w: Any, env: Any, agent: Any, slot: int, out: Any) -> bool:
    """Stop a running job, if some shown waiting job would then fit, further preemptible jobs on its nodes counted."""
    victim = w.jobs[slot]
    if victim.touch_ms == w.now_ms or victim.num_bound == 0:
        return False
    helps = False
    for i in range(env.num_queue_rows):
        waiting = env.queue_jobs[i]
        job = w.jobs[waiting]
        if job.touch_ms == w.now_ms or not may_be_stopped(w, victim, job, Scope.OVER_SHARE, agent.min_run_ms):
            continue
        if can_start(w, waiting):
            continue
        _lift_with_neighbours(w, slot, waiting, agent.min_run_ms)
        pod_set = w.pod_sets[job.first_pod_set]
        helps = measure_fit(w, job, pod_set, NONE, pod_set.count) >= pod_set.count - pod_set.num_done
        put_all_back(w)
        if helps:
            break
    if not helps or not plan_evict(out, slot, 0, Then.REQUEUE):
        return False
    out.commands[out.num_commands - 1].transaction = out.num_transactions
    out.num_transactions += 1
    return True


@helper
def plan_give_back(w: Any, agent: Any, slot: int, out: Any) -> bool:
    """Stop a job of the agent's own tenant, which holds more than its fair share: what it borrowed goes back."""
    victim = w.jobs[slot]
    tenant = w.tenants[victim.tenant]
    ran_ms = w.now_ms - victim.start_ms
    if victim.touch_ms == w.now_ms or victim.num_bound == 0 or ran_ms < agent.min_run_ms or tenant.held <= tenant.fair:
        return False
    if not plan_evict(out, slot, 0, Then.REQUEUE):
        return False
    out.commands[out.num_commands - 1].transaction = out.num_transactions
    out.num_transactions += 1
    return True


@helper
def _lift_with_neighbours(w: Any, slot: int, waiting: int, min_run_ms: int) -> None:
    """Lift a job and those on its nodes that may be stopped for the waiting one."""
    lift(w, slot)
    at = w.jobs[slot].first_pod
    while at != NONE:
        other = w.nodes[w.pods[at].node].first_pod
        while other != NONE:
            pod = w.pods[other]
            if pod.state == PodState.BOUND and may_be_stopped(
                w, w.jobs[pod.job], w.jobs[waiting], Scope.OVER_SHARE, min_run_ms
            ):
                lift(w, pod.job)
            other = pod.next_on_node
        at = w.pods[at].next


@helper
def has_no_choice(w: Any, agent: Any) -> bool:
    """Whether certainly nobody may do anything but wait: no waiting job finds room, and none can be made for one.

    A look at the first job of each group, before rows are chosen and masks computed. False says nothing.
    """
    has_more_kinds = agent.may_preempt or agent.may_reserve
    if has_more_kinds or w.params.quota == Quota.ENFORCED or w.reservations_used > 0:
        return False
    refresh_shares(w)
    g = w.first_group
    while g != NONE:
        group = w.groups[g]
        has_tried = group.no_room_at == w.room_version or w.no_room_at[group.shape] == w.room_version
        if not has_tried and can_start(w, group.head):
            return False
        if agent.num_victim_rules > 0 and _could_make_room(w, group.head, group.tenant, agent):
            return False
        g = group.next
    return True


@helper
def write_mask(w: Any, env: Any, agent: Any, mask: Any) -> bool:
    """Fill the mask, int8 of size num_actions; also `env.fits` and `env.can_make_room`. True if there is a choice.

    Jobs of one group (tenant, shape) that are in the same state share the answer.
    """
    for i in range(len(mask)):
        mask[i] = 0
    mask[WAIT] = 1
    if env.commands_here >= agent.max_commands_per_instant:
        for i in range(env.num_queue_rows):
            env.fits[i] = 0.0
            env.can_make_room[i] = 0.0
        return False
    has_choice = False
    rows = agent.queue_rows
    out = w.probe[0]
    for i in range(env.num_queue_rows):
        slot = env.queue_jobs[i]
        row = w.waiting[env.queue_at[i]]
        touched = row.touch_ms == w.now_ms
        same = NONE if touched else _same_before(w, env, i)
        env.fits[i] = 0.0
        env.can_make_room[i] = 0.0
        at = 1
        if same != NONE:
            env.fits[i] = env.fits[same]
            env.can_make_room[i] = env.can_make_room[same]
        elif not touched:
            env.fits[i] = 1.0 if can_start(w, slot) else 0.0
        for rule in range(agent.num_rules):
            if env.fits[i] > 0.0:
                legal = True
                if row.has_parts:  # later pod sets depend on where a rule puts the earlier
                    out.num_commands = 0
                    out.num_transactions = 0
                    legal = plan(w, slot, agent.rules[rule], out)
                mask[at + rule * rows + i] = legal
                has_choice = has_choice or legal
        at += agent.num_rules * rows
        for rule in range(agent.num_victim_rules):
            if env.fits[i] == 0.0 and not touched:
                if same != NONE:
                    legal = mask[at + rule * rows + same] == 1
                else:
                    legal = may_reclaim(w, env, agent, slot) and _could_make_room(w, slot, row.tenant, agent)
                    legal = legal and can_make_room(
                        w, slot, agent.rules[0], agent.victim_rules[rule], Scope.OVER_SHARE, agent.min_run_ms, out
                    )
                if legal:
                    mask[at + rule * rows + i] = 1
                    env.can_make_room[i] = 1.0
                    has_choice = True
        at += agent.num_victim_rules * rows
        if agent.may_admit:
            if env.fits[i] > 0.0 and not touched and w.jobs[slot].state == JobState.QUEUED:
                mask[at + i] = 1
                has_choice = True
            at += rows
        if agent.may_reserve:
            if not touched:
                out.num_commands = 0
                out.num_transactions = 0
                if plan_reserve(w, slot, agent.reserve_ms, out):
                    mask[at + i] = 1
                    has_choice = True
            at += rows
    if agent.may_preempt:
        at = agent.num_actions - agent.running_rows
        for i in range(env.num_running_rows):
            out.num_commands = 0
            out.num_transactions = 0
            if plan_action(w, env, agent, Kind.PREEMPT + 0, i, 0, out):
                mask[at + i] = 1
                has_choice = True
    if env.role != NONE:
        return _leave_to_role(w, env, agent, mask)
    return has_choice


@helper
def _leave_to_role(w: Any, env: Any, agent: Any, mask: Any) -> bool:
    """Leave of a mask what a role may do; True if that is anything but waiting.

    The admitter lets in what could start, at once or once there is room; what has been let in the placer starts, and
    the preemptor makes room for.
    """
    has_choice = False
    for action in range(1, agent.num_actions):
        kind, row, _ = decode(agent, action)
        if kind == Kind.PREEMPT:
            legal = mask[action] == 1 and env.role == Role.PREEMPTOR
        elif row >= env.num_queue_rows:
            legal = False
        else:
            is_let_in = w.jobs[env.queue_jobs[row]].is_let_in
            if kind == Kind.ADMIT:
                could_start = env.fits[row] > 0.0 or env.can_make_room[row] > 0.0
                legal = env.role == Role.ADMITTER and could_start and not is_let_in
            else:
                of_role = Role.PREEMPTOR if kind == Kind.MAKE_ROOM else Role.PLACER
                legal = mask[action] == 1 and is_let_in and env.role == of_role
        mask[action] = legal
        has_choice = has_choice or legal
    return has_choice


@helper
def _same_before(w: Any, env: Any, i: int) -> int:
    """An earlier row whose job asks for the same, is not touched and has no reservation, as this one; NONE."""
    row = w.waiting[env.queue_at[i]]
    if not row.is_plain:
        return NONE
    for j in range(i):
        if env.queue_groups[j] == env.queue_groups[i]:
            other = w.waiting[env.queue_at[j]]
            # batch jobs may have done a part
            if other.touch_ms != w.now_ms and other.is_plain and other.num_wanted == row.num_wanted:
                return j
    return NONE


@helper
def _could_make_room(w: Any, slot: int, own: int, agent: Any) -> bool:
    """Quick necessary test for `plan_make_room`: tenants above their share, but for the job's own, hold enough."""
    for k in range(w.num_tenants):
        if k != own and w.tenants[k].held > w.tenants[k].fair:
            return enough_is_stoppable(w, slot, agent.min_run_ms)
    return False


@helper
def mark_touched(w: Any, out: Any) -> None:
    """Note which jobs a transaction has touched at this instant; call before it is applied."""
    for i in range(out.num_commands):
        job = w.jobs[out.commands[i].job]
        job.touch_ms = w.now_ms
        if job.is_queued:
            w.waiting[job.queue_place].touch_ms = w.now_ms
        if job.is_listed:
            w.running[job.place].touch_ms = w.now_ms
