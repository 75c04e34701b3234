"""What changes between two looks at the world: who has ended, who has started, who is new in the queue.

Source: Slurm src/slurmctld/acct_policy.c (what running jobs count against), src/common/assoc_mgr.c (billing).
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.slurm.fair_share import charge_job
from gangline.baselines.slurm.limits import is_rejected
from gangline.baselines.slurm.nodes import choose_nodes
from gangline.baselines.slurm.priority import first_partition_of, limit_ms, record_priority
from gangline.baselines.slurm.queue import drop_dead_records, insert_record
from gangline.baselines.slurm.tables import BILLING_TRES, NODE_TRES, NUM_TRES, TYPE_TRES
from gangline.envs.core.compiled import helper
from gangline.envs.core.transactions import _new_command
from gangline.envs.core.types import NEVER, NONE, ONE_GPU, JobState, NodeState, Op, PodState, Quota
from gangline.envs.core.types import Reason as JobReason

SECOND_MS = 1000


@helper
def adopt(w: Any, s: Any, rows: Any, slot: int) -> None:
    """Begin to remember a job that is new in its slot."""
    own = s.own[0]
    job = w.jobs[slot]
    mine = s.slots[slot]
    if mine.row == job.row and mine.is_known:
        return
    is_new = mine.row != job.row
    mine.row = job.row
    mine.is_known = False
    mine.is_stopped = False
    mine.is_sliced = False
    mine.reason = 0
    mine.preempt_ms = NEVER
    mine.accrue_s = (w.now_ms if own.num_arrived >= 0 else job.eligible_ms) // SECOND_MS
    if not is_new:
        return
    mine.is_running = False
    mine.request = 0
    mine.array = NONE
    if 2 * job.row + 1 < len(rows):
        mine.request = rows[2 * job.row]
        mine.array = rows[2 * job.row + 1]
    request = s.requests[mine.request]
    mine.qos = request.qos
    mine.partition = first_partition_of(s, slot)
    mine.assoc = request.assoc
    if mine.assoc == NONE:
        mine.assoc = s.assoc_of_user[job.user] if job.user != NONE else s.assoc_of_tenant[job.tenant]


@helper
def take_in_new_jobs(w: Any, s: Any, rows: Any) -> bool:
    """Give jobs that have come into the queue their priority and place; True if there were any."""
    own = s.own[0]
    own.num_rejected = 0
    queued = 0
    g = w.first_group
    while g != NONE:
        queued += w.groups[g].num_waiting
        g = w.groups[g].next
    if w.totals.num_arrived == own.num_arrived and queued == own.num_known:
        return False
    drop_dead_records(w, s)
    is_any = False
    if queued != own.num_known:
        for slot in range(w.jobs_used):
            job = w.jobs[slot]
            if job.is_queued and not (s.slots[slot].is_known and s.slots[slot].row == job.row):
                is_new = s.slots[slot].row != job.row
                adopt(w, s, rows, slot)
                if is_new and (is_one_too_many(w, s, slot) or partitions_for(w, s, slot) == 0):
                    s.rejected[own.num_rejected] = slot
                    own.num_rejected += 1
                    s.slots[slot].row = NONE
                    continue
                enter_queue(w, s, slot)
                own.busy_ms = w.now_ms
                is_any = True
    own.num_arrived = w.totals.num_arrived
    return is_any


@helper
def is_one_too_many(w: Any, s: Any, slot: int) -> bool:
    """Whether a limit on submissions turns a new job away; those that were there before the world began have been
    accepted.
    """
    own = s.own[0]
    return own.has_submit_limits != 0 and own.num_arrived >= 0 and is_rejected(w, s, slot)


@helper
def partitions_for(w: Any, s: Any, slot: int) -> int:
    """Those of a job's partitions, a bit each, whose nodes could hold it if nothing else ran.

    Where nodes are down, or quotas are the world's to grant, nobody knows; then all of them.
    """
    own = s.own[0]
    asked = s.requests[s.slots[slot].request].partitions
    if w.params.quota == Quota.ENFORCED:
        return asked
    width = own.num_resources + 1
    for n in range(w.num_nodes):
        if w.nodes[n].state != NodeState.UP:
            return asked
        for r in range(width - 1):
            s.work[n * width + r] = w.nodes[n].capacity[r]
        s.work[n * width + width - 1] = w.nodes[n].num_gpus * ONE_GPU
    found = 0
    for partition in range(own.num_partitions):
        if (asked >> partition) & 1:
            for i in range(own.words):
                s.candidates[i] = s.partition_nodes[partition * own.words + i]
            if choose_nodes(w, s, slot, partition, False):
                found |= 1 << partition
    return found


@helper
def plan_rejections(s: Any, out: Any) -> bool:
    """Cancel jobs that a limit on submissions turns away or no partition could ever hold: Slurm does not take them."""
    own = s.own[0]
    if own.num_rejected == 0:
        return False
    for i in range(own.num_rejected):
        if _new_command(out, Op.CANCEL, s.rejected[i]) == NONE:
            break  # the others are looked at again
        out.commands[out.num_commands - 1].reason = JobReason.BY_SCHEDULER
        out.num_transactions += 1
    own.num_rejected = 0
    return True


@helper
def enter_queue(w: Any, s: Any, slot: int) -> None:
    """One record for each partition, each with its own priority."""
    own = s.own[0]
    job = w.jobs[slot]
    mine = s.slots[slot]
    mine.is_known = True
    mine.priority = NONE
    own.num_known += 1
    partitions = partitions_for(w, s, slot)
    for partition in range(s.own[0].num_partitions):
        if not (partitions >> partition) & 1 or own.num_order >= len(s.order):
            continue
        record = s.order[own.num_order]
        record.slot = slot
        record.row = job.row
        record.partition = partition
        record.qos = mine.qos
        record.tested_pass = NONE
        record.tier = s.partitions[partition].tier
        record.priority = record_priority(w, s, slot, partition, w.now_ms // SECOND_MS)
        record.submit_s = job.last_submit_ms // SECOND_MS
        if mine.priority == NONE:  # of its first partition
            mine.priority = record.priority
        own.present |= 1 << partition
        own.num_order += 1
        insert_record(s, record)


@helper
def notice_runs(w: Any, s: Any, rows: Any) -> bool:
    """Charge jobs that have ended since the last look, take note of those that have started: True if any ended."""
    own = s.own[0]
    count = 0
    for i in range(own.num_running):
        slot = s.running[i]
        mine = s.slots[slot]
        job = w.jobs[slot]
        if job.row == mine.row and job.state != JobState.FREE and job.num_bound > 0 and job.start_ms == mine.start_ms:
            s.running[count] = slot
            count += 1
            continue
        charge_job(s, slot, w.now_ms // SECOND_MS)
        count_usage(s, slot, -1)
        mine.is_running = False
        if mine.is_stopped:
            mine.is_stopped = False
            own.num_stopped -= 1
    has_ended = count < own.num_running
    if own.num_running > 0:
        own.busy_ms = w.now_ms
    own.num_running = count
    at = w.last_running
    while at != NONE and not (s.slots[at].is_running and s.slots[at].row == w.jobs[at].row):
        at = w.jobs[at].prev
    at = w.first_running if at == NONE else w.jobs[at].next
    while at != NONE:
        if not (s.slots[at].is_running and s.slots[at].row == w.jobs[at].row):
            begin_run(w, s, rows, at)
        at = w.jobs[at].next
    return has_ended


@helper
def begin_run(w: Any, s: Any, rows: Any, slot: int) -> None:
    """A job runs: what it holds, what that costs, when it ends at the latest."""
    own = s.own[0]
    job = w.jobs[slot]
    mine = s.slots[slot]
    if mine.row != job.row:
        adopt(w, s, rows, slot)
    if mine.is_known:
        mine.is_known = False
        own.num_known -= 1
    mine.is_running = True
    mine.reason = 0
    mine.preempt_ms = NEVER
    mine.resumed_ms = NEVER
    mine.start_ms = job.start_ms
    mine.start_s = min(job.start_ms, w.now_ms) // SECOND_MS
    limit = limit_ms(w, s, slot, mine.partition)
    mine.end_ms = mine.start_s * SECOND_MS + limit if limit < NEVER else NEVER
    measure_allocation(w, s, slot)
    mine.billing = billing_of(s, mine)
    mine.tres[BILLING_TRES] = int(mine.billing)
    count_usage(s, slot, 1)
    s.running[own.num_running] = slot
    own.num_running += 1


@helper
def measure_allocation(w: Any, s: Any, slot: int) -> None:
    """TRES that a running job holds."""
    mine = s.slots[slot]
    gpu = w.params.gpu_resource
    for t in range(NUM_TRES):
        mine.tres[t] = 0
    for i in range(s.own[0].words):
        s.tried[i] = 0
    at = w.jobs[slot].first_pod
    while at != NONE:
        pod = w.pods[at]
        if pod.state == PodState.BOUND:
            for r in range(w.params.num_resources):
                mine.tres[r] += pod.held[r]
            if gpu != NONE and 0 <= w.nodes[pod.node].gpu_type < BILLING_TRES - TYPE_TRES:
                mine.tres[TYPE_TRES + w.nodes[pod.node].gpu_type] += pod.held[gpu]
            if not (s.tried[pod.node >> 6] >> (pod.node & 63)) & 1:
                s.tried[pod.node >> 6] |= 1 << (pod.node & 63)
                mine.tres[NODE_TRES] += 1
        at = pod.next
    mine.num_nodes = mine.tres[NODE_TRES]


@helper
def billing_of(s: Any, mine: Any) -> float:
    """Billing TRES of an allocation: weighted by the partition, else its CPUs, whatever GPUs it holds."""
    own = s.own[0]
    part = s.partitions[mine.partition]
    if not part.has_weights:
        return mine.tres[own.cpu] / own.scale[own.cpu] if own.cpu != NONE else 1.0 * mine.num_nodes
    total = 0.0
    most = 0.0
    of_gres = 0.0
    for t in range(NUM_TRES):
        part_of = part.weights[t] * (mine.tres[t] / own.scale[t])
        total += part_of
        is_plain = t == own.cpu or t == NODE_TRES
        if own.max_tres == 2 and not is_plain:
            of_gres += part_of
        else:
            most = max(most, part_of)
    if own.max_tres:
        return most + of_gres
    return total


@helper
def count_usage(s: Any, slot: int, sign: int) -> None:
    """Count a running job against the limits of its associations, its QOS, its partition's QOS and its array."""
    mine = s.slots[slot]
    of_partition = s.partitions[mine.partition].qos
    for i in range(2):
        q = mine.qos if i == 0 else of_partition
        if q == NONE or (i == 1 and q == mine.qos):
            break
        qos = s.qos[q]
        qos.used_jobs += sign
        for t in range(NUM_TRES):
            qos.used_tres[t] += sign * mine.tres[t]
    if mine.array != NONE:
        s.arrays[mine.array].num_running += sign
    a = mine.assoc
    while a >= 0:
        assoc = s.assocs[a]
        assoc.used_jobs += sign
        for t in range(NUM_TRES):
            assoc.used_tres[t] += sign * mine.tres[t]
        a = assoc.parent
