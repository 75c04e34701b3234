"""Who has to go so that a job may start: victims as select/cons_tres chooses them, and how they go.

Source: Slurm src/interfaces/preempt.c, src/plugins/preempt/*, `_run_now` in src/plugins/select/cons_tres/job_test.c.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.slurm.limits import is_limited, tres_limit
from gangline.baselines.slurm.nodes import choose_nodes, copy_free, demands_of, has_node, take_away, write_start
from gangline.baselines.slurm.queue import outranks
from gangline.baselines.slurm.tables import Mode, PreemptBy, Reason
from gangline.envs.core.compiled import helper
from gangline.envs.core.transactions import _new_command, plan_evict
from gangline.envs.core.types import NEVER, NONE, JobState, Op, PodState, Then

ALL = -1  # every resource
NODE_COUNT_LIMIT = 65_536


@helper
def victim_mode(s: Any, slot: int) -> int:
    """What happens to a job that is preempted."""
    own = s.own[0]
    mine = s.slots[slot]
    mode = s.qos[mine.qos].mode if own.preempt_by == PreemptBy.QOS else s.partitions[mine.partition].mode
    return mode if mode >= 0 else own.preempt_mode


@helper
def grace_of(s: Any, slot: int) -> int:
    """GraceTime of a victim, ms."""
    mine = s.slots[slot]
    if s.own[0].preempt_by == PreemptBy.QOS:
        return s.qos[mine.qos].grace_ms
    return s.partitions[mine.partition].grace_ms


@helper
def holds_any(w: Any, slot: int, nodes: Any) -> bool:
    """Whether a running job has a pod on one of a set of nodes."""
    at = w.jobs[slot].first_pod
    while at != NONE:
        if w.pods[at].state == PodState.BOUND and has_node(nodes, w.pods[at].node):
            return True
        at = w.pods[at].next
    return False


@helper
def list_candidates(w: Any, s: Any, slot: int, partition: int, suspends: bool) -> None:
    """Fill `s.victims` with whom a job may preempt: lowest QOS or tier, fewest nodes, id; or youngest first."""
    own = s.own[0]
    mine = s.slots[slot]
    own.num_victims = 0
    for i in range(own.num_running):
        other = s.running[i]
        theirs = s.slots[other]
        if (victim_mode(s, other) == Mode.SUSPEND) != suspends or not holds_any(w, other, s.candidates):
            continue
        if victim_mode(s, other) == Mode.OFF:
            continue
        if not outranks(
            s, mine.qos, s.partitions[partition].tier, mine.priority, theirs.qos, theirs.partition, theirs.priority
        ):
            continue
        exempt_ms = s.qos[theirs.qos].exempt_ms
        if w.now_ms - w.jobs[other].start_ms < exempt_ms:
            own.wake_ms = min(own.wake_ms, w.jobs[other].start_ms + exempt_ms)
            continue
        if theirs.priority > own.min_exempt_priority or w.jobs[other].num_releasing > 0:
            continue
        at = own.num_victims
        own.num_victims += 1
        while at > 0 and goes_first(w, s, other, s.victims[at - 1]):
            s.victims[at] = s.victims[at - 1]
            at -= 1
        s.victims[at] = other


@helper
def goes_first(w: Any, s: Any, a: int, b: int) -> bool:
    """Order of candidates; GPUs, run time and priority do not enter."""
    if s.own[0].youngest_first:
        if w.jobs[a].start_ms // 1000 != w.jobs[b].start_ms // 1000:
            return w.jobs[a].start_ms > w.jobs[b].start_ms
        return w.jobs[a].row < w.jobs[b].row
    first = candidate_weight(s, a)
    second = candidate_weight(s, b)
    return first < second or (first == second and w.jobs[a].row < w.jobs[b].row)


@helper
def candidate_weight(s: Any, slot: int) -> int:
    """QOS priority or tier, then node count."""
    mine = s.slots[slot]
    rank = s.qos[mine.qos].priority if s.own[0].preempt_by == PreemptBy.QOS else s.partitions[mine.partition].tier
    return rank * NODE_COUNT_LIMIT + mine.num_nodes


@helper
def plan_preemption(w: Any, s: Any, slot: int, partition: int, out: Any) -> bool:
    """Plan that victims go, so that a job fits among `s.candidates`; False, with nobody touched, if that cannot be.

    Jobs that have a grace period keep running through it; they go at the first attempt after it.
    """
    own = s.own[0]
    if own.preempt_by == PreemptBy.NOBODY:
        return False
    if own.preempt_mode == Mode.SUSPEND and plan_suspension(w, s, slot, partition, out):
        return True
    list_candidates(w, s, slot, partition, False)
    if own.num_victims == 0:
        return False
    copy_free(w, s)
    num_removed = remove_until_fit(w, s, slot, partition)
    reorders = 0
    while num_removed > 0 and reorders <= own.reorder_count and reorders + 1 < own.num_victims:
        reorders += 1
        reorder_candidates(w, s, num_removed)
        num_removed = remove_until_fit(w, s, slot, partition)
    if num_removed == 0:
        return False
    if is_limited(s, slot, partition):  # nobody goes for a job that may not start then
        exclusive, _, _, _, _ = demands_of(s, slot, partition)
        if tres_limit(w, s, slot, partition, True, exclusive) != Reason.NONE:
            return False
    is_waiting = False
    for i in range(num_removed):
        victim = s.victims[i]
        if not holds_any(w, victim, s.chosen):
            continue
        theirs = s.slots[victim]
        if theirs.preempt_ms >= NEVER and grace_of(s, victim) > 0:
            theirs.preempt_ms = w.now_ms + grace_of(s, victim)
            theirs.end_ms = min(theirs.end_ms, theirs.preempt_ms)
        if w.now_ms < theirs.preempt_ms < NEVER:
            own.wake_ms = min(own.wake_ms, theirs.preempt_ms)
            is_waiting = True
    if is_waiting:
        return False
    first = out.num_commands
    for i in range(num_removed):
        if holds_any(w, s.victims[i], s.chosen):
            then = Then.CANCEL if victim_mode(s, s.victims[i]) == Mode.CANCEL else Then.REQUEUE
            if not plan_evict(out, s.victims[i], 0, then):
                out.num_commands = first
                return False
    out.num_transactions += 1
    return out.num_commands > first


@helper
def remove_until_fit(w: Any, s: Any, slot: int, partition: int) -> int:
    """Take candidates off their nodes, in order, until the job fits; how many that took, 0 if it never fits."""
    for i in range(s.own[0].num_free):
        s.work[i] = s.free[i]
    for i in range(s.own[0].num_victims):
        take_away(w, s, s.victims[i], ALL)
        if choose_nodes(w, s, slot, partition, False):
            return i + 1
    return 0


@helper
def reorder_candidates(w: Any, s: Any, num_removed: int) -> None:
    """The candidate that made the job fit goes first; the others by how many of the chosen nodes they occupy."""
    last = s.victims[num_removed - 1]
    for i in range(num_removed - 1, 0, -1):
        s.victims[i] = s.victims[i - 1]
    s.victims[0] = last
    if s.own[0].strict_order:
        return
    for i in range(2, num_removed):
        moved = s.victims[i]
        occupied = num_chosen_held(w, s, moved)
        at = i
        while at > 1 and num_chosen_held(w, s, s.victims[at - 1]) < occupied:
            s.victims[at] = s.victims[at - 1]
            at -= 1
        s.victims[at] = moved


@helper
def num_chosen_held(w: Any, s: Any, slot: int) -> int:
    """How many of the chosen nodes a running job occupies."""
    count = 0
    seen = NONE
    at = w.jobs[slot].first_pod
    while at != NONE:
        pod = w.pods[at]
        if pod.state == PodState.BOUND and pod.node != seen and has_node(s.chosen, pod.node):
            count += 1
            seen = pod.node
        at = pod.next
    return count


# ---------------------------------------------------------------------------------------------------------------
# SUSPEND, which needs the gang scheduler: only cores are given up
# ---------------------------------------------------------------------------------------------------------------


@helper
def plan_suspension(w: Any, s: Any, slot: int, partition: int, out: Any) -> bool:
    """Plan that victims stop and give up their cores, and the job starts in their place. GPUs and memory stay taken."""
    own = s.own[0]
    if own.cpu == NONE:
        return False
    list_candidates(w, s, slot, partition, True)
    if own.num_victims == 0:
        return False
    cores = 1 << own.cpu
    copy_free(w, s)
    for i in range(s.own[0].num_free):
        s.work[i] = s.free[i]
    for i in range(own.num_victims):
        take_away(w, s, s.victims[i], cores)
    if not choose_nodes(w, s, slot, partition, False):
        return False
    # cores are not numbered here: on the chosen nodes jobs stop in order until there are enough
    for i in range(s.own[0].num_free):
        s.work[i] = s.free[i]
    for i in range(s.own[0].words):
        s.tried[i] = s.candidates[i]
        s.candidates[i] = s.chosen[i]
    first = out.num_commands
    fits = False
    for i in range(own.num_victims):
        victim = s.victims[i]
        if w.jobs[victim].state != JobState.RUNNING or not holds_any(w, victim, s.candidates):
            continue
        take_away(w, s, victim, cores)
        at = _new_command(out, Op.SUSPEND, victim)
        if at == NONE:
            break
        out.commands[at].freed_mask = cores
        if choose_nodes(w, s, slot, partition, False):
            fits = True
            break
    for i in range(s.own[0].words):
        s.candidates[i] = s.tried[i]
    num_stopped = out.num_commands - first
    if not fits or not write_start(w, s, slot, partition, out):
        out.num_commands = first
        return False
    for i in range(first, first + num_stopped):
        stop(w, s, out.commands[i].job)
    out.num_transactions += 1
    return True


@helper
def stop(w: Any, s: Any, slot: int) -> None:
    """Remember that a job was suspended."""
    mine = s.slots[slot]
    if not mine.is_stopped:
        mine.is_stopped = True
        mine.stopped_ms = w.now_ms
        s.own[0].num_stopped += 1


@helper
def plan_resume(w: Any, s: Any, out: Any) -> bool:
    """Plan that a suspended job whose cores are free again goes on; before anyone new may take them."""
    own = s.own[0]
    if own.num_stopped == 0 or own.cpu == NONE:
        return False
    for i in range(own.num_running):
        slot = s.running[i]
        mine = s.slots[slot]
        if not mine.is_stopped:
            continue
        if w.jobs[slot].state != JobState.SUSPENDED:  # the transaction that was to stop it was refused
            mine.is_stopped = False
            own.num_stopped -= 1
            continue
        if cores_are_free(w, s, slot) and _new_command(out, Op.RESUME, slot) != NONE:
            out.num_transactions += 1
            go_on(w, s, slot)
            return True
    return False


@helper
def go_on(w: Any, s: Any, slot: int) -> None:
    """Remember that a job was resumed: its limit is pushed back by the time it stood still."""
    mine = s.slots[slot]
    mine.is_stopped = False
    s.own[0].num_stopped -= 1
    if mine.end_ms < NEVER:
        mine.end_ms += w.now_ms - mine.stopped_ms


@helper
def cores_are_free(w: Any, s: Any, slot: int) -> bool:
    """Whether a suspended job finds its cores free on every node."""
    cpu = s.own[0].cpu
    at = w.jobs[slot].first_pod
    while at != NONE:
        pod = w.pods[at]
        asked = 0
        other = w.jobs[slot].first_pod
        while other != NONE:
            if w.pods[other].node == pod.node:
                asked += w.pods[other].held[cpu]
            other = w.pods[other].next
        if w.nodes[pod.node].idle[cpu] - w.nodes[pod.node].planned[cpu] < asked:
            return False
        at = pod.next
    return True
