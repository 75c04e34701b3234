"""The multifactor priority of a job in a partition, and the tick that recomputes all of them.

All arithmetic is in doubles, in Slurm's order of operations; only the sum is truncated. Priorities move at
submission and at ticks, never in between.
Source: Slurm src/plugins/priority/multifactor/priority_multifactor.c.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.slurm.fair_share import (
    charge_job,
    clear_usage,
    decay_usage,
    refresh_classic,
    refresh_fair_tree,
    take_classic_usage,
)
from gangline.baselines.slurm.queue import sort_ends, sort_order
from gangline.baselines.slurm.tables import NODE_TRES, NUM_TRES, TYPE_TRES
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER, NONE, NodeState

HIGHEST = (1 << 32) - 1
MINUTE_MS = 60_000
SECOND_MS = 1000


@helper
def limit_ms(w: Any, s: Any, slot: int, partition: int) -> int:
    """A job's time limit: its own, else the partition's default; NEVER = unlimited."""
    claim_ms = w.jobs[slot].claim_ms
    return claim_ms if claim_ms < NEVER else s.partitions[partition].default_time_ms


@helper
def requested_tres(w: Any, s: Any, slot: int, tres: int) -> int:
    """How much of a TRES a waiting job asks for, core units."""
    job = w.jobs[slot]
    amount = 0
    ps = job.first_pod_set
    while ps != NONE:
        pod_set = w.pod_sets[ps]
        if tres < w.params.num_resources and (pod_set.asked >> tres) & 1:
            amount += pod_set.count * pod_set.request[tres]
        elif tres >= TYPE_TRES and pod_set.flavors[0] != NONE and pod_set.flavors[1] == NONE:
            gpu = w.params.gpu_resource
            if gpu != NONE and flavor_type(w, pod_set.flavors[0]) == tres - TYPE_TRES:
                amount += pod_set.count * pod_set.request[gpu]
        ps = pod_set.next
    if tres == NODE_TRES:
        amount = requested_nodes(w, s, slot)
    return amount


@helper
def flavor_type(w: Any, flavor: int) -> int:
    """The GPU type of a flavor's nodes; NONE without nodes."""
    for n in range(w.num_nodes):
        if w.nodes[n].flavor == flavor:
            return w.nodes[n].gpu_type
    return NONE


@helper
def requested_nodes(w: Any, s: Any, slot: int) -> int:
    """The least number of nodes that a job asks for."""
    return w.jobs[slot].num_wanted if s.requests[s.slots[slot].request].whole_nodes else 1


@helper
def requested_cpus(w: Any, s: Any, slot: int) -> float:
    """CPUs that a job asks for."""
    cpu = s.own[0].cpu
    return requested_tres(w, s, slot, cpu) / s.own[0].scale[cpu] if cpu != NONE else 0.0


@helper
def job_size_factor(w: Any, s: Any, slot: int, partition: int) -> float:
    """Share of the cluster's nodes and CPUs, never GPUs: large jobs gain, or small ones, or those short of time."""
    own = s.own[0]
    active = 0
    for n in range(w.num_nodes):
        if w.nodes[n].state != NodeState.DOWN:
            active += 1
    if active == 0:
        return 0.0
    nodes = requested_nodes(w, s, slot)
    cpus = requested_cpus(w, s, slot)
    total = own.cluster_cpus
    if own.small_relative_to_time:
        minutes = min(limit_ms(w, s, slot, partition), s.partitions[partition].max_time_ms) / MINUTE_MS
        if total > 0:
            factor = max(nodes * total / active, cpus) / minutes / total
        else:
            factor = nodes / active / minutes
        if own.favor_small:
            factor = 1.0 - factor
    elif own.favor_small:
        factor = (active - nodes) / active
        if cpus > 0.0 and total > 0:
            factor = (factor + (total - cpus) / total) / 2.0
    else:
        factor = nodes / active
        if cpus > 0.0 and total > 0:
            factor = (factor + cpus / total) / 2.0
    return min(max(factor, 0.0), 1.0)


@helper
def record_priority(w: Any, s: Any, slot: int, partition: int, now_s: int) -> int:
    """Priority of a waiting job in one of its partitions."""
    own = s.own[0]
    mine = s.slots[slot]
    job = w.jobs[slot]
    request = s.requests[mine.request]
    if request.fixed_priority >= 0:
        return request.fixed_priority
    since_s = job.last_submit_ms // SECOND_MS if own.accrue_always else mine.accrue_s
    waited_s = max(0, now_s - since_s)
    mine.age = waited_s / own.max_age_s if waited_s < own.max_age_s else 1.0
    assoc = s.assocs[mine.assoc]
    qos = s.qos[mine.qos]
    part = s.partitions[partition]
    if own.is_classic:
        take_classic_usage(s, mine.assoc)
    mine.fair_share = assoc.factor
    mine.job_size = job_size_factor(w, s, slot, partition) if own.weight_job_size != 0.0 else 0.0
    of_assoc = assoc.priority
    if not own.raw_assoc:
        of_assoc = of_assoc / own.max_assoc_priority if own.max_assoc_priority > 0.0 else 0.0
    of_partition = part.factor
    if not own.raw_partition:
        of_partition = of_partition / own.max_partition_factor if own.max_partition_factor > 0.0 else 0.0
    of_qos = 1.0 * qos.priority
    if not own.raw_qos:
        of_qos = of_qos / own.max_qos_priority if own.max_qos_priority > 0.0 else 0.0
    of_tres = 0.0
    for t in range(NUM_TRES):
        if own.weight_tres[t] != 0.0:
            asked = requested_tres(w, s, slot, t) / own.scale[t]
            if not own.raw_tres:
                asked = asked / part.totals[t] if part.totals[t] > 0.0 else 0.0
            of_tres += asked * own.weight_tres[t]
    total = mine.age * own.weight_age
    total += of_assoc * own.weight_assoc
    total += mine.fair_share * own.weight_fairshare
    total += mine.job_size * own.weight_job_size
    total += of_partition * own.weight_partition
    total += of_qos * own.weight_qos
    total += of_tres
    total -= request.nice
    return max(1, int(min(total, HIGHEST)))  # 0 is kept for held jobs


@helper
def tick(w: Any, s: Any) -> None:
    """PriorityCalcPeriod is over: usage fades, running jobs are charged, factors and priorities follow.

    Ticks at which nothing could have happened are passed in one.
    """
    own = s.own[0]
    period_ms = own.calc_period_s * SECOND_MS
    at_ms = own.next_tick_ms + (w.now_ms - own.next_tick_ms) // period_ms * period_ms
    at_s = at_ms // SECOND_MS
    if at_s >= own.next_reset_s:
        clear_usage(s)
        own.next_reset_s = (at_s // own.reset_period_s + 1) * own.reset_period_s
    decay_usage(s, at_s - own.tick_s)
    if own.is_classic:
        refresh_classic(s)
        walk_by_id(w, s, at_s)
    else:
        for i in range(own.num_running):
            charge_job(s, s.running[i], at_s)
        refresh_fair_tree(s)
        for i in range(own.num_order):
            refresh_record(w, s, s.order[i], at_s)
    if own.ranks_running:
        for i in range(own.num_running):
            refresh_running(w, s, s.running[i], at_s)
    own.tick_s = at_s
    own.next_tick_ms = at_ms + period_ms
    sort_order(s)
    own.full_is_wanted = 1
    own.backfill_is_wanted = 1


@helper
def refresh_record(w: Any, s: Any, record: Any, now_s: int) -> None:
    """Recompute a waiting job's priority."""
    if w.jobs[record.slot].row != record.row or not w.jobs[record.slot].is_queued:
        return
    priority = record_priority(w, s, record.slot, record.partition, now_s)
    if s.own[0].incr_only:
        priority = max(priority, record.priority)
    record.priority = priority
    if record.partition == first_partition_of(s, record.slot):
        s.slots[record.slot].priority = priority


@helper
def refresh_running(w: Any, s: Any, slot: int, now_s: int) -> None:
    """CALCULATE_RUNNING: recompute a running job's priority, which counts where it may be a victim."""
    priority = record_priority(w, s, slot, s.slots[slot].partition, now_s)
    s.slots[slot].priority = max(priority, s.slots[slot].priority) if s.own[0].incr_only else priority


@helper
def first_partition_of(s: Any, slot: int) -> int:
    """The first of the partitions that a job may run in."""
    partitions = s.requests[s.slots[slot].request].partitions
    at = 0
    while not (partitions >> at) & 1:
        at += 1
    return at


@helper
def walk_by_id(w: Any, s: Any, now_s: int) -> None:
    """Classic: jobs once in the order of their ids. A running one is charged, a waiting one is ranked by what has been
    charged up to then.
    """
    own = s.own[0]
    count = 0
    for i in range(own.num_running):
        s.ends[count].end_ms = 2 * w.jobs[s.running[i]].row
        s.ends[count].slot = s.running[i]
        s.ends[count].row = NONE
        count += 1
    for i in range(own.num_order):
        if count < len(s.ends):
            s.ends[count].end_ms = 2 * s.order[i].row + 1
            s.ends[count].slot = i
            s.ends[count].row = s.order[i].row
            count += 1
    sort_ends(s, count)
    for i in range(count):
        if s.ends[i].row == NONE:
            charge_job(s, s.ends[i].slot, now_s)
        else:
            refresh_record(w, s, s.order[s.ends[i].slot], now_s)
