"""kube-scheduler without gang support: pod by pod, spread, with backoff and preemption by priority.

A job of several workers is started as far as there is room; what is placed holds its GPUs and nothing releases it, so
two half-started jobs can block each other for ever. That is what the baseline is for, in worlds without the gang rule
(`gang: false`); where the world demands whole gangs it gives the first pods of a gang nodes in one transaction.
Source: kubernetes/kubernetes 1.36 pkg/scheduler (queuesort, noderesources, defaultpreemption). docs/volcano.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.baselines.base import CompiledScheduler
from gangline.envs.core.compiled import helper
from gangline.envs.core.placement import Rule, node_is_open, pods_that_fit
from gangline.envs.core.transactions import _new_command, plan, quota_suffices
from gangline.envs.core.types import (
    AGAIN,
    MAX_COMMANDS,
    NEVER,
    NONE,
    JobKind,
    JobState,
    Op,
    PodState,
    Quota,
    SizeClass,
    Then,
)
from gangline.envs.errors import GanglineError

if TYPE_CHECKING:
    from gangline.envs.core.world import World

PARAMETERS = np.dtype(
    [("preempts", np.int64), ("grace_ms", np.int64), ("cpu", np.int64), ("memory", np.int64), ("start", np.int64)]
)
NUM_BYTES = PARAMETERS.itemsize
ROW, ATTEMPTS, BACKOFF_UNTIL, PARKED_AT, NOMINATED, RETRY_AT = range(6)  # what is noted of a pod set
NUM_NOTES = 6
FIRST_BACKOFF_MS = 1000
MAX_BACKOFF_MS = 10_000
MAX_PARKED_MS = 5 * 60_000  # retried by then, whatever happens
FEW_NODES = 100


GATED = 1  # an admission layer in front of the scheduler holds the job back: it has no pods yet


def decide_kube(w: Any, private: Any, out: Any) -> int:
    """Try the first pod of the queue, and again, until none is left to be tried."""
    return schedule_pods(w, private[:NUM_BYTES].view(PARAMETERS)[0], private[NUM_BYTES:].view(np.int64), out)


@helper
def schedule_pods(w: Any, k: Any, cells: Any, out: Any) -> int:
    """The same over the parts of the private bytes: parameters; notes of pod sets, marks of pods, gates of jobs."""
    notes = cells[: NUM_NOTES * len(w.pod_sets)]
    marks = cells[NUM_NOTES * len(w.pod_sets) :]
    while True:
        slot, ps, wake_ms = _next_pod(w, notes, gates_of(w, cells))
        if ps == NONE:
            return wake_ms
        if _schedule_pod(w, k, notes, marks, slot, ps, out):
            return AGAIN
        _park(w, notes, ps)


@helper
def gates_of(w: Any, cells: Any) -> Any:
    """By job slot: GATED, or anything else."""
    return cells[NUM_NOTES * len(w.pod_sets) + len(w.pods) :]


@helper
def _next_pod(w: Any, notes: Any, gates: Any) -> tuple[int, int, int]:
    """First pod in queue order (priority, then time of entering the queue; pods of one instant by index) that is not
    parked; else when the next one may be tried.
    """
    best = NONE
    best_slot = NONE
    best_index = 0
    wake_ms = NEVER
    for slot in range(w.jobs_used):
        job = w.jobs[slot]
        if not (
            job.state == JobState.QUEUED
            or job.state == JobState.ADMITTED
            or job.state == JobState.PARTIAL
            or job.state == JobState.RUNNING
        ):
            continue
        ps = job.first_pod_set if gates[slot] != GATED else NONE
        while ps != NONE:
            pod_set = w.pod_sets[ps]
            here = pod_set.num_bound + pod_set.num_releasing + pod_set.num_done
            count = pod_set.num_admitted + pod_set.num_done if job.is_admitted else pod_set.count
            if here < count:
                note = ps * NUM_NOTES
                if notes[note + ROW] != job.row:
                    notes[note + ROW] = job.row
                    notes[note + ATTEMPTS] = 0
                    notes[note + BACKOFF_UNTIL] = 0
                    notes[note + PARKED_AT] = -1
                    notes[note + NOMINATED] = NONE
                    notes[note + RETRY_AT] = NEVER
                may_help = notes[note + PARKED_AT] != w.room_version or notes[note + RETRY_AT] <= w.now_ms
                if not may_help:
                    wake_ms = min(wake_ms, notes[note + RETRY_AT])
                elif notes[note + BACKOFF_UNTIL] > w.now_ms:
                    wake_ms = min(wake_ms, notes[note + BACKOFF_UNTIL])
                elif best == NONE or _is_before(w, slot, here, best_slot, best_index):
                    best = ps
                    best_slot = slot
                    best_index = here
            ps = pod_set.next
    return best_slot, best, wake_ms


@helper
def _is_before(w: Any, a: int, index_a: int, b: int, index_b: int) -> bool:
    """Queue order. Pods of one instant enter by index, as controllers create the pods of several jobs side by side."""
    if w.jobs[a].priority != w.jobs[b].priority:
        return w.jobs[a].priority > w.jobs[b].priority
    if w.jobs[a].last_submit_ms != w.jobs[b].last_submit_ms:
        return w.jobs[a].last_submit_ms < w.jobs[b].last_submit_ms
    if index_a != index_b:
        return index_a < index_b
    return w.jobs[a].row < w.jobs[b].row


@helper
def _park(w: Any, notes: Any, ps: int) -> None:
    """Unschedulable: until something happens that may help, and at least for the backoff."""
    note = ps * NUM_NOTES
    notes[note + ATTEMPTS] += 1
    backoff_ms = min(FIRST_BACKOFF_MS << min(notes[note + ATTEMPTS] - 1, 10), MAX_BACKOFF_MS)
    notes[note + BACKOFF_UNTIL] = w.now_ms + backoff_ms
    notes[note + PARKED_AT] = w.room_version
    notes[note + RETRY_AT] = w.now_ms + MAX_PARKED_MS


@helper
def _schedule_pod(w: Any, k: Any, notes: Any, marks: Any, slot: int, ps: int, out: Any) -> bool:
    """Filter, score, bind; if there is no node, make room by preemption. False if the pod has to wait."""
    job = w.jobs[slot]
    if w.params.gang and job.kind == JobKind.TRAINING and job.num_bound == 0 and job.min_member > 1:
        return plan(w, slot, Rule.SPREAD, out)
    flavor = NONE
    if w.params.quota == Quota.ENFORCED and not job.is_admitted:
        flavor = _write_admission(w, slot, out)
        if flavor == NONE:
            out.num_commands = 0
            return False
    elif w.params.quota == Quota.ENFORCED:
        flavor = w.pod_sets[ps].admitted_flavor[0]
        for r in range(w.params.num_resources):
            if (w.pod_sets[ps].asked >> r) & 1 and w.pod_sets[ps].admitted_flavor[r] != NONE:
                flavor = w.pod_sets[ps].admitted_flavor[r]
    n = _find_node(w, k, notes, slot, ps, flavor)
    if n != NONE and out.num_commands < MAX_COMMANDS:
        command = out.commands[_new_command(out, Op.PLACE, slot)]
        command.pod_set = w.pod_sets[ps].index
        command.node = n
        command.pods = 1
        out.num_transactions += 1
        notes[ps * NUM_NOTES + ATTEMPTS] = 0
        notes[ps * NUM_NOTES + NOMINATED] = NONE
        return True
    out.num_commands = 0
    return k.preempts != 0 and _preempt(w, k, notes, marks, slot, ps, flavor, out)


@helper
def _write_admission(w: Any, slot: int, out: Any) -> int:
    """Where the world enforces quota: the job is admitted as a whole, with its first pod. NONE if it has no quota."""
    job = w.jobs[slot]
    found = NONE
    ps = job.first_pod_set
    while ps != NONE:
        pod_set = w.pod_sets[ps]
        pods = pod_set.count - pod_set.num_done
        flavor = NONE
        for i in range(len(pod_set.flavors)):
            f = pod_set.flavors[i]
            if f == NONE or f >= w.num_flavors:
                break
            if flavor == NONE and quota_suffices(w, job, pod_set, pods, f):
                flavor = f
        if flavor == NONE or out.num_commands >= MAX_COMMANDS - 1:
            return NONE
        command = out.commands[_new_command(out, Op.ADMIT, slot)]
        command.pod_set = pod_set.index
        command.pods = pods
        for r in range(w.params.num_resources):
            command.flavor[r] = flavor
        found = flavor if found == NONE else found
        ps = pod_set.next
    return found


@helper
def _find_node(w: Any, k: Any, notes: Any, slot: int, ps: int, flavor: int) -> int:
    """Best feasible node. In a large cluster the search ends once enough are found, and goes on from there next time.

    kube-scheduler draws among equal scores; here the node with the fewest pods wins, then the first.
    """
    wanted = w.num_nodes
    if w.num_nodes > FEW_NODES:
        wanted = max(FEW_NODES, w.num_nodes * max(5, 50 - w.num_nodes // 125) // 100)
    best = NONE
    best_score = 0
    found = 0
    looked = 0
    while looked < w.num_nodes and found < wanted:
        n = (max(0, k.start) + looked) % w.num_nodes if w.num_nodes > FEW_NODES else looked
        looked += 1
        if not node_is_open(w, w.pod_sets[ps], n, flavor):
            continue
        if pods_that_fit(w, w.jobs[slot], w.pod_sets[ps], n) < 1 or _is_promised(w, notes, slot, ps, n):
            continue
        found += 1
        score = _score(w, k, ps, n)
        if best == NONE or score > best_score or (score == best_score and w.nodes[n].num_pods < w.nodes[best].num_pods):
            best = n
            best_score = score
    k.start = (max(0, k.start) + looked) % max(1, w.num_nodes)
    return best


@helper
def _is_promised(w: Any, notes: Any, slot: int, ps: int, n: int) -> bool:
    """Whether the room on a node is kept for pods of at least this priority that have made it: they count as there."""
    promised = np.zeros(w.params.num_resources, np.int64)
    for other in range(w.jobs_used):
        job = w.jobs[other]
        if job.state == JobState.FREE or job.priority < w.jobs[slot].priority or job.num_bound >= job.num_wanted:
            continue
        at = job.first_pod_set
        while at != NONE:
            note = at * NUM_NOTES
            if at != ps and notes[note + ROW] == job.row and notes[note + NOMINATED] == n:
                for r in range(w.params.num_resources):
                    promised[r] += w.pod_sets[at].request[r]
            at = w.pod_sets[at].next
    is_promised = False
    for r in range(w.params.num_resources):
        request = w.pod_sets[ps].request[r]
        is_short = request > 0 and promised[r] > 0 and w.nodes[n].idle[r] < promised[r] + request
        is_promised = is_promised or is_short
    return is_promised


@helper
def _score(w: Any, k: Any, ps: int, n: int) -> int:
    """LeastAllocated and BalancedAllocation over cpu and memory. GPUs do not count: pods spread over GPU nodes."""
    least = 0
    count = 0
    low = 1.0
    high = 0.0
    low_before = 1.0
    high_before = 0.0
    for r in (k.cpu, k.memory):
        if r == NONE or w.nodes[n].capacity[r] == 0:
            continue
        capacity = w.nodes[n].capacity[r]
        request = w.pod_sets[ps].request[r]
        assumed = request if request > 0 else (100 if r == k.cpu else 200 * 1024 * 1024)
        used = w.nodes[n].used[r]
        least += max(0, capacity - used - assumed) * 100 // capacity
        count += 1
        low, high = min(low, (used + request) / capacity), max(high, (used + request) / capacity)
        low_before, high_before = min(low_before, used / capacity), max(high_before, used / capacity)
    if count == 0:
        return 0
    after = 100 if count < 2 else int(100 * (1 - (high - low) / 2))
    before = 100 if count < 2 else int(100 * (1 - (high_before - low_before) / 2))
    return least // count + 50 + (50 + after - before) // 2


# ---------------------------------------------------------------------------------------------------------------
# PostFilter: preemption
# ---------------------------------------------------------------------------------------------------------------


@helper
def _preempt(w: Any, k: Any, notes: Any, marks: Any, slot: int, ps: int, flavor: int, out: Any) -> bool:
    """Evict the fewest and least important pods of lower priority from one node. Gangs of victims do not count."""
    note = ps * NUM_NOTES
    nominated = notes[note + NOMINATED]
    if nominated != NONE and nominated < w.num_nodes:
        for r in range(w.params.num_resources):
            if w.nodes[nominated].releasing[r] > 0:  # still waits for the room that it has made
                return False
    best = NONE
    best_highest, best_sum, best_count, best_start = 0, 0, 0, 0
    for n in range(w.num_nodes):
        if not node_is_open(w, w.pod_sets[ps], n, flavor) or not _mark_victims(w, marks, slot, ps, n):
            continue
        highest, total, count, start = -(1 << 62), 0, 0, 1 << 62
        at = w.nodes[n].first_pod
        while at != NONE:
            if marks[at] == 1:
                highest = max(highest, w.jobs[w.pods[at].job].priority)
            at = w.pods[at].next_on_node
        at = w.nodes[n].first_pod
        while at != NONE:
            job = w.jobs[w.pods[at].job]
            if marks[at] == 1:
                total += job.priority + (1 << 31)
                count += 1
                if job.priority == highest:
                    start = min(start, job.start_ms)
                marks[at] = 0
            at = w.pods[at].next_on_node
        is_better = best == NONE or highest < best_highest
        if not is_better and highest == best_highest:
            is_better = total < best_sum or (
                total == best_sum and (count < best_count or (count == best_count and start > best_start))
            )
        if is_better:
            best, best_highest, best_sum, best_count, best_start = n, highest, total, count, start
    if best == NONE or not _mark_victims(w, marks, slot, ps, best):
        return False
    at = w.nodes[best].first_pod
    while at != NONE:
        pod = w.pods[at]
        if marks[at] == 1:
            marks[at] = 0
            if out.num_commands < MAX_COMMANDS:
                command = out.commands[_new_command(out, Op.EVICT, pod.job)]
                command.pod_set = w.pod_sets[pod.pod_set].index
                command.node = best
                command.pods = 1
                command.grace_ms = k.grace_ms
                command.then = Then.REQUEUE
        at = pod.next_on_node
    out.num_transactions += 1
    notes[note + NOMINATED] = best
    notes[note + BACKOFF_UNTIL] = 0
    return True


@helper
def _mark_victims(w: Any, marks: Any, slot: int, ps: int, n: int) -> bool:
    """Mark the pods that have to go from a node: all of lower priority, less
    those that may stay, highest priority and longest running first. False, with none marked, if that does not help.
    """
    pod_set = w.pod_sets[ps]
    marked = 0
    free = np.zeros(w.params.num_resources, np.int64)
    for r in range(w.params.num_resources):
        free[r] = w.nodes[n].idle[r] - w.nodes[n].planned[r]
    at = w.nodes[n].first_pod
    while at != NONE:
        pod = w.pods[at]
        if pod.state == PodState.BOUND and w.jobs[pod.job].priority < w.jobs[slot].priority:
            marks[at] = 1
            marked += 1
            for r in range(w.params.num_resources):
                free[r] += pod.held[r]
        at = pod.next_on_node
    if marked == 0 or not _fits(w, pod_set, free):
        _unmark(w, marks, n)
        return False
    order = np.zeros(marked, np.int64)
    count = 0
    at = w.nodes[n].first_pod
    while at != NONE:
        if marks[at] == 1:
            order[count] = at
            count += 1
            i = count - 1
            while i > 0 and _is_spared_before(w, order[i], order[i - 1]):
                order[i], order[i - 1] = order[i - 1], order[i]
                i -= 1
        at = w.pods[at].next_on_node
    for i in range(count):
        pod = w.pods[order[i]]
        for r in range(w.params.num_resources):
            free[r] -= pod.held[r]
        if _fits(w, pod_set, free):
            marks[order[i]] = 0
            marked -= 1
        else:
            for r in range(w.params.num_resources):
                free[r] += pod.held[r]
    return marked > 0


@helper
def _unmark(w: Any, marks: Any, n: int) -> None:
    at = w.nodes[n].first_pod
    while at != NONE:
        marks[at] = 0
        at = w.pods[at].next_on_node


@helper
def _is_spared_before(w: Any, a: int, b: int) -> bool:
    """Higher priority first, then longer running."""
    job_a, job_b = w.jobs[w.pods[a].job], w.jobs[w.pods[b].job]
    if job_a.priority != job_b.priority:
        return job_a.priority > job_b.priority
    return job_a.start_ms < job_b.start_ms


@helper
def _fits(w: Any, pod_set: Any, free: Any) -> bool:
    fits = True
    for r in range(w.params.num_resources):
        fits = fits and (not (pod_set.asked >> r) & 1 or pod_set.request[r] <= free[r])
    return fits


@dataclass(frozen=True)
class KubeScheduler(CompiledScheduler):
    """The compiled scheduler; it is told which of the world's resources are cpu and memory."""

    def private_for(self, world: World) -> np.ndarray:
        """(num_bytes,) uint8: parameters, then notes of pod sets, marks of pods and gates of jobs."""
        private = super().private_for(world)
        k = private[:NUM_BYTES].view(PARAMETERS)[0]
        names = list(world.names.resources)
        k["cpu"] = names.index("cpu") if "cpu" in names else NONE
        k["memory"] = names.index("memory") if "memory" in names else NONE
        return private


def num_cells(size: SizeClass) -> int:
    """Length of the notes, marks and gates behind the parameters."""
    return NUM_NOTES * size.max_pod_sets + size.max_pods + size.max_jobs


def build(preemption: bool = True, grace_s: float = 0.0) -> CompiledScheduler:
    """kube-scheduler with its default plugins.

    Args:
        preemption: evict pods of lower priority for a pod that finds no node.
        grace_s: seconds between an eviction and the release of what the pod held.
    """
    if not 0 <= grace_s < NEVER / 4000:
        raise GanglineError(f"grace_s is {grace_s}, expected 0 seconds or more")
    private = np.array((int(preemption), round(grace_s * 1000), NONE, NONE, 0), PARAMETERS)
    return KubeScheduler("kube_scheduler", decide_kube, private, num_cells)
