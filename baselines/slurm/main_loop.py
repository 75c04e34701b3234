"""The main scheduling loop: jobs in order, until the first of each partition that cannot start.

Source: Slurm src/slurmctld/job_scheduler.c, `_schedule`.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.slurm.gang import plan_shared_start
from gangline.baselines.slurm.limits import is_limited, job_limit, limit_of, tres_limit
from gangline.baselines.slurm.nodes import choose_nodes, demands_of, write_start
from gangline.baselines.slurm.preemption import plan_preemption
from gangline.baselines.slurm.priority import requested_nodes
from gangline.baselines.slurm.queue import is_alive
from gangline.baselines.slurm.tables import FIRST_LIMIT, Reason, Stage
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER, NONE, NodeState


@helper
def begin_main_pass(w: Any, s: Any, is_full: int) -> None:
    """A pass begins: all nodes that are up are open, no partition has failed."""
    own = s.own[0]
    own.stage = Stage.MAIN
    own.position = 0
    own.num_tested = 0
    own.num_started = 0
    own.is_full_pass = is_full
    own.failed = 0
    own.main_ms = NEVER
    own.num_passes += 1
    for p in range(s.own[0].num_partitions):
        s.partitions[p].num_tested = 0
    open_up_nodes(w, s.open, own.words)


@helper
def open_up_nodes(w: Any, nodes: Any, words: int) -> None:
    """Fill a set with the nodes that are up."""
    for i in range(words):
        nodes[i] = 0
    for n in range(w.num_nodes):
        if w.nodes[n].state == NodeState.UP:
            nodes[n >> 6] |= 1 << (n & 63)


@helper
def go_on_with_main_pass(w: Any, s: Any, out: Any) -> bool:
    """Go on where the last start has left the pass; True if a transaction was planned, False at its end."""
    own = s.own[0]
    one_partition = own.present & (own.present - 1) == 0
    while own.position < own.num_order:
        if one_partition and own.failed & own.present:
            break  # whoever is behind waits by priority
        record = s.order[own.position]
        own.position += 1
        if not is_alive(w, record):
            continue
        slot = record.slot
        mine = s.slots[slot]
        part = s.partitions[record.partition]
        if (own.failed >> record.partition) & 1:
            if mine.reason < FIRST_LIMIT:
                mine.reason = Reason.PRIORITY
            continue
        if record.priority == 0:
            mine.reason = Reason.HELD
            continue
        if array_has_failed(s, slot, record.partition):
            continue
        if own.is_full_pass == 0 and own.num_tested >= own.queue_depth:
            break
        if own.partition_depth > 0 and part.num_tested >= own.partition_depth:
            continue
        if own.max_job_start > 0 and own.num_started >= own.max_job_start:
            break
        if is_first_of_array(s, slot):
            own.num_tested += 1
            part.num_tested += 1
        if mine.reason >= FIRST_LIMIT and limit_of(w, s, slot, record.partition) != Reason.NONE:
            note_failure(s, slot, record.partition)
            continue
        limit = test_and_start(w, s, slot, record.partition, out)
        if out.num_commands > 0:
            own.num_started += 1
            return True
        if limit != Reason.NONE:
            mine.reason = limit
            note_failure(s, slot, record.partition)
            if own.limit_stop:
                own.failed |= 1 << record.partition
            continue
        if plan_shared_start(w, s, slot, record.partition, out):
            return True
        if plan_preemption(w, s, slot, record.partition, out):
            own.stage = Stage.IDLE  # the next pass starts it: nobody is kept from taking what has come free
            own.main_ms = w.now_ms
            return True
        mine.reason = Reason.RESOURCES
        mine.reason_pass = own.num_passes
        note_failure(s, slot, record.partition)
        block(w, s, slot, record.partition)
    own.stage = Stage.IDLE
    return False


@helper
def array_has_failed(s: Any, slot: int, partition: int) -> bool:
    """Whether an element of the job's array could not start in this pass: the others need not be tried."""
    if s.slots[slot].array == NONE:
        return False
    array = s.arrays[s.slots[slot].array]
    return array.failed_pass == s.own[0].num_passes and (array.failed_partitions >> partition) & 1 != 0


@helper
def note_failure(s: Any, slot: int, partition: int) -> None:
    """Remember for the other elements of the job's array that this one could not start."""
    if s.slots[slot].array == NONE:
        return
    array = s.arrays[s.slots[slot].array]
    if array.failed_pass != s.own[0].num_passes:
        array.failed_pass = s.own[0].num_passes
        array.failed_partitions = 0
    array.failed_partitions |= 1 << partition


@helper
def is_first_of_array(s: Any, slot: int) -> bool:
    """Whether a job counts towards the depth of this pass: of an array, one record in Slurm, only the first."""
    if s.slots[slot].array == NONE:
        return True
    array = s.arrays[s.slots[slot].array]
    if array.counted_pass == s.own[0].num_passes:
        return False
    array.counted_pass = s.own[0].num_passes
    return True


@helper
def test_and_start(w: Any, s: Any, slot: int, partition: int, out: Any) -> int:
    """Plan the start of a job on the nodes that are open to it, if it fits; the limit that stops it, or Reason.NONE."""
    own = s.own[0]
    limited = is_limited(s, slot, partition)
    if limited:
        reason = job_limit(w, s, slot, partition)
        if reason != Reason.NONE:
            return reason
    for i in range(own.words):
        s.candidates[i] = s.open[i] & s.partition_nodes[partition * own.words + i]
    if not choose_nodes(w, s, slot, partition, True):
        return Reason.NONE
    if limited:
        exclusive, _, _, _, _ = demands_of(s, slot, partition)
        reason = tres_limit(w, s, slot, partition, True, exclusive)
        if reason != Reason.NONE:
            return reason
    if write_start(w, s, slot, partition, out):
        out.num_transactions += 1
    return Reason.NONE


@helper
def block(w: Any, s: Any, slot: int, partition: int) -> None:
    """A job that found no room: nothing behind it in its partition starts, and nobody else on the partition's nodes.

    One that named its nodes blocks only those.
    """
    own = s.own[0]
    if own.bf_min_age_ms > 0 and w.now_ms - w.jobs[slot].last_submit_ms < own.bf_min_age_ms:
        return
    if s.slots[slot].priority < own.bf_min_prio:
        return
    request = s.requests[s.slots[slot].request]
    if request.nodelist != NONE and request.num_listed >= requested_nodes(w, s, slot):
        for i in range(own.words):
            s.open[i] &= ~s.nodelists[request.nodelist * own.words + i]
        return
    own.failed |= 1 << partition
    for i in range(own.words):
        s.open[i] &= ~s.partition_nodes[partition * own.words + i]
