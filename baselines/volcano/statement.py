"""A statement: operations that change the session at once, and are committed to the world or discarded.

Source: volcano-sh/volcano pkg/scheduler/framework/statement.go.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.volcano.gang import gang_ready
from gangline.baselines.volcano.queues import charge_queue
from gangline.baselines.volcano.session import assume, update_job_share
from gangline.baselines.volcano.state import Status
from gangline.baselines.volcano.topology import charge_domains
from gangline.envs.core.compiled import helper
from gangline.envs.core.transactions import _new_command
from gangline.envs.core.types import MAX_COMMANDS, MAX_RESOURCES, NONE, ONE_GPU, Op, Quota, Then


@helper
def place(w: Any, k: Any, slot: int, ps: int, n: int, status: int) -> bool:
    """Allocate the next pending pod of a set on a node, or pipeline it there; False if the log is full."""
    if k.num_ops >= len(k.ops):
        return False
    op = k.ops[k.num_ops]
    op.status = status
    op.slot = slot
    op.pod_set = ps
    op.node = n
    op.pod = NONE
    op.place = k.sets[ps].next
    k.num_ops += 1
    _move_task(w, k, slot, ps, n, status, 1)
    return True


@helper
def evict(w: Any, k: Any, p: int) -> bool:
    """Evict a bound pod: its queue has the room at once (T13), its node in the future."""
    if k.num_ops >= len(k.ops):
        return False
    op = k.ops[k.num_ops]
    op.status = Status.RELEASING
    op.slot = w.pods[p].job
    op.pod_set = w.pods[p].pod_set
    op.node = w.pods[p].node
    op.pod = p
    k.num_ops += 1
    _move_victim(w, k, p, 1)
    return True


@helper
def _move_task(w: Any, k: Any, slot: int, ps: int, n: int, status: int, sign: int) -> None:
    job = k.jobs[slot]
    s = k.sets[ps]
    node = k.nodes[n]
    request = w.pod_sets[ps].request
    s.pending -= sign
    s.next += sign
    if s.is_best_effort:
        job.pending_best_effort -= sign
    else:
        job.pending -= sign
    if status == Status.ALLOCATED:
        job.ready += sign
        job.newly_bound += sign
        s.ready += sign
    else:
        job.pipelined += sign
        s.pipelined += sign
    for r in range(MAX_RESOURCES):
        if status == Status.ALLOCATED:
            node.idle[r] -= sign * request[r]
            node.used[r] += sign * request[r]
        else:
            node.pipelined[r] += sign * request[r]
        job.allocated[r] += sign * request[r]
    node.num_pods += sign
    job.is_dirty = True
    job.is_ready = gang_ready(w, k, slot)
    if status == Status.ALLOCATED and k.gpu != NONE and w.params.gpu_resource == k.gpu:
        if request[k.gpu] % ONE_GPU != 0:
            node.fractions += sign
            node.whole_gpus -= sign
        else:
            node.whole_gpus -= sign * (request[k.gpu] // ONE_GPU)
    assume(w, k, ps, n, sign)
    update_job_share(k, slot)
    charge_queue(k, job.queue, request, sign)
    charge_domains(w, k, n, request, sign)


@helper
def _move_victim(w: Any, k: Any, p: int, sign: int) -> None:
    pod = w.pods[p]
    job = k.jobs[pod.job]
    node = k.nodes[pod.node]
    request = w.pod_sets[pod.pod_set].request
    k.evicted[p] = k.session if sign > 0 else 0
    job.ready -= sign
    job.running -= sign
    job.releasing += sign
    k.sets[pod.pod_set].ready -= sign
    for r in range(MAX_RESOURCES):
        node.releasing[r] += sign * pod.held[r]
        job.allocated[r] -= sign * request[r]
    node.num_pods -= sign
    job.is_dirty = True
    job.is_ready = gang_ready(w, k, pod.job)
    update_job_share(k, pod.job)
    charge_queue(k, job.queue, request, -sign)
    charge_domains(w, k, pod.node, request, -sign)


@helper
def discard(w: Any, k: Any, start: int) -> None:
    """Undo what was done since the log was `start` long, last first."""
    while k.num_ops > start:
        k.num_ops -= 1
        op = k.ops[k.num_ops]
        if op.status == Status.RELEASING:
            _move_victim(w, k, op.pod, -1)
        else:
            _move_task(w, k, op.slot, op.pod_set, op.node, op.status, -1)


@helper
def keep(w: Any, k: Any, start: int) -> None:
    """Leave what was done in effect to the end of the session: reservations of pipelined tasks (T4)."""
    for i in range(start, k.num_ops):
        if k.ops[i].status == Status.PIPELINED and k.num_kept < len(k.kept):
            k.kept[k.num_kept].slot = k.ops[i].slot
            k.kept[k.num_kept].node = k.ops[i].node
            k.num_kept += 1
    k.num_ops = start


@helper
def commit(w: Any, k: Any, start: int, out: Any) -> bool:
    """Real evictions and binds, as one transaction; what is pipelined stays a reservation. Discards and returns False
    if the decision has no room: the session ends then, and another follows.
    """
    if k.is_full or not _write(w, k, start, out):
        discard(w, k, start)
        k.is_full = True
        return False
    _nominate(w, k, start)
    keep(w, k, start)
    return True


@helper
def _nominate(w: Any, k: Any, start: int) -> None:
    """Where somebody was evicted, pods that wait for that room are tried there first in the next sessions."""
    has_evicted = False
    for i in range(start, k.num_ops):
        has_evicted = has_evicted or k.ops[i].status == Status.RELEASING
    if not has_evicted:
        return
    for i in range(start, k.num_ops):
        op = k.ops[i]
        if op.status == Status.PIPELINED and k.num_nominations < len(k.nominations):
            nomination = k.nominations[k.num_nominations]
            nomination.slot = op.slot
            nomination.row = w.jobs[op.slot].row
            nomination.pod_set = op.pod_set
            nomination.place = op.place
            nomination.node = op.node
            k.num_nominations += 1


@helper
def _write(w: Any, k: Any, start: int, out: Any) -> bool:
    first = out.num_commands
    for i in range(start, k.num_ops):
        op = k.ops[i]
        if op.status == Status.PIPELINED:
            continue
        needs_quota = w.params.quota == Quota.ENFORCED and not w.jobs[op.slot].is_admitted
        if op.status == Status.ALLOCATED and needs_quota and not _admit_here(w, k, op.slot, first, out):
            out.num_commands = first
            return False
        code = Op.EVICT if op.status == Status.RELEASING else Op.PLACE
        at = _same_command(out, first, code, op.slot, w.pod_sets[op.pod_set].index, op.node)
        if at == NONE:
            if out.num_commands >= MAX_COMMANDS:
                out.num_commands = first
                return False
            at = _new_command(out, code, op.slot)
            command = out.commands[at]
            command.pod_set = w.pod_sets[op.pod_set].index
            command.node = op.node
            command.pods = 0
            command.then = Then.REQUEUE
            command.grace_ms = k.grace_ms
        out.commands[at].pods += 1
        if op.status == Status.RELEASING and k.num_evicted < len(k.evicted_now):
            k.evicted_now[k.num_evicted] = op.pod
            k.num_evicted += 1
            k.total_evicted += 1
    if out.num_commands > first:
        out.num_transactions += 1
    return True


@helper
def _same_command(out: Any, first: int, code: int, slot: int, index: int, node: int) -> int:
    """A command of this transaction that does the same to another pod; a gang's come one after another."""
    for i in range(out.num_commands - 1, first - 1, -1):
        command = out.commands[i]
        if command.op == code and command.job == slot and command.pod_set == index and command.node == node:
            return i
    return NONE


@helper
def _admit_here(w: Any, k: Any, slot: int, first: int, out: Any) -> bool:
    """The job's admission is part of the transaction, once."""
    is_written = False
    for i in range(first, out.num_commands):
        is_written = is_written or (out.commands[i].op == Op.ADMIT and out.commands[i].job == slot)
    return is_written or _write_admission(w, k, slot, out)


@helper
def _write_admission(w: Any, k: Any, slot: int, out: Any) -> bool:
    """In a world that enforces quota a job is admitted as a whole, with its first pods."""
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        if out.num_commands >= MAX_COMMANDS:
            return False
        command = out.commands[_new_command(out, Op.ADMIT, slot)]
        command.pod_set = w.pod_sets[ps].index
        command.pods = w.pod_sets[ps].count - w.pod_sets[ps].num_done
        flavor = k.sets[ps].quota_flavor
        for r in range(w.params.num_resources):
            command.flavor[r] = flavor
        ps = w.pod_sets[ps].next
    return True
