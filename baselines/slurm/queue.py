"""The queue: a record for each waiting job and partition, kept in the order in which Slurm looks at them.

Priorities stand still between ticks, so that the order only gains and loses records: a pass never sorts it.
Source: Slurm src/slurmctld/job_scheduler.c, `sort_job_queue2`.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.slurm.tables import PreemptBy
from gangline.envs.core.compiled import helper

SECOND_MS = 1000


@helper
def is_alive(w: Any, record: Any) -> bool:
    """Whether a record's job still waits as it did when the record was made."""
    job = w.jobs[record.slot]
    return job.row == record.row and job.is_queued and job.last_submit_ms // SECOND_MS == record.submit_s


@helper
def outranks(
    s: Any, qos: int, tier: int, priority: int, other_qos: int, other_partition: int, other_priority: int
) -> bool:
    """Whether a job may preempt another by their QOS or partitions."""
    own = s.own[0]
    if own.preempt_by == PreemptBy.PARTITION:
        other = s.partitions[other_partition]
        mode = other.mode if other.mode >= 0 else own.preempt_mode
        return tier > other.tier and mode != 0
    if own.preempt_by != PreemptBy.QOS:
        return False
    if qos == other_qos:
        return own.within_qos != 0 and priority > other_priority
    if not (s.qos[qos].preempts >> other_qos) & 1:
        return False
    return own.priority_must_be_higher == 0 or priority > other_priority


@helper
def record_precedes(s: Any, a: Any, b: Any) -> bool:
    """Slurm's order: preemptor first, tier, priority, time of submission in seconds, id."""
    if s.own[0].preempt_by != PreemptBy.NOBODY:
        if outranks(s, a.qos, a.tier, a.priority, b.qos, b.partition, b.priority):
            return True
        if outranks(s, b.qos, b.tier, b.priority, a.qos, a.partition, a.priority):
            return False
    if a.tier != b.tier:
        return a.tier > b.tier
    if a.priority != b.priority:
        return a.priority > b.priority
    if a.submit_s != b.submit_s:
        return a.submit_s < b.submit_s
    if a.row != b.row:
        return a.row < b.row
    return a.partition < b.partition


@helper
def insert_record(s: Any, record: Any) -> None:
    """Put a new record, the last of the table, where it belongs."""
    own = s.own[0]
    s.order_scratch[0] = record
    new = s.order_scratch[0]
    low = 0
    high = own.num_order - 1
    while low < high:
        middle = (low + high) // 2
        if record_precedes(s, new, s.order[middle]):
            high = middle
        else:
            low = middle + 1
    for i in range(own.num_order - 1, low, -1):
        s.order[i] = s.order[i - 1]
    s.order[low] = new


@helper
def sort_order(s: Any) -> None:
    """Merge sort of the whole queue, after a tick."""
    count = s.own[0].num_order
    width = 1
    while width < count:
        left = 0
        while left < count:
            middle = min(left + width, count)
            right = min(left + 2 * width, count)
            a = left
            b = middle
            for k in range(left, right):
                if a < middle and (b >= right or not record_precedes(s, s.order[b], s.order[a])):
                    s.order_scratch[k] = s.order[a]
                    a += 1
                else:
                    s.order_scratch[k] = s.order[b]
                    b += 1
            left = right
        for k in range(count):
            s.order[k] = s.order_scratch[k]
        width *= 2


@helper
def drop_dead_records(w: Any, s: Any) -> None:
    """Take out of the queue whoever waits no longer."""
    own = s.own[0]
    kept = 0
    own.present = 0
    for i in range(own.num_order):
        record = s.order[i]
        mine = s.slots[record.slot]
        if is_alive(w, record):
            own.present |= 1 << record.partition
            if kept < i:
                s.order[kept] = record
            kept += 1
        elif mine.row == record.row and mine.is_known:
            mine.is_known = False
            own.num_known -= 1
    own.num_order = kept


@helper
def sort_ends(s: Any, count: int) -> None:
    """Shell sort of the table of ends by (time, row, slot)."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            time_ms = s.ends[i].end_ms
            slot = s.ends[i].slot
            row = s.ends[i].row
            at = i
            while at >= gap and (
                s.ends[at - gap].end_ms > time_ms or (s.ends[at - gap].end_ms == time_ms and s.ends[at - gap].row > row)
            ):
                s.ends[at] = s.ends[at - gap]
                at -= gap
            s.ends[at].end_ms = time_ms
            s.ends[at].slot = slot
            s.ends[at].row = row
        gap //= 3
