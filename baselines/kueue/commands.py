"""What a cycle asks of the world: evictions and admissions as transactions, and the placement behind them.

Kueue decides whether a job may enter, not where it goes. `place_next` is the stage that stands in for the pod
scheduler; another one can take its place (`kueue+volcano`).
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.kueue.queues import push
from gangline.baselines.kueue.state import Bucket, Reason
from gangline.baselines.kueue.tas import write_placement
from gangline.baselines.kueue.watch import free, mark_evicted
from gangline.envs.core.compiled import helper
from gangline.envs.core.transactions import _new_command, plan, plan_evict
from gangline.envs.core.types import MAX_COMMANDS, NEVER, NONE, JobState, Op, Quota, Then


@helper
def write_eviction(w: Any, k: Any, slot: int, reason: int, out: Any) -> bool:
    """Evict a workload; it keeps its quota until its pods are gone. False if there is no room for the command."""
    job = w.jobs[slot]
    if job.num_bound > 0:
        if not plan_evict(out, slot, min(k.grace_ms, NEVER // 4), Then.REQUEUE):
            return False
        out.num_transactions += 1
        mark_evicted(w, k, slot, reason)
        return True
    if k.grace_ms >= NEVER:  # told from outside when it is over
        mark_evicted(w, k, slot, reason)
        return True
    if w.params.quota == Quota.ENFORCED and job.is_admitted:  # no pods to wait for
        if _new_command(out, Op.UNADMIT, slot) == NONE:
            return False
        out.num_transactions += 1
        mark_evicted(w, k, slot, reason)
        return True
    mark_evicted(w, k, slot, reason)
    free(w, k, slot)
    push(w, k, slot)
    return True


@helper
def write_admission(w: Any, k: Any, entry: Any, out: Any) -> bool:
    """Admit a workload with the flavors and the topology of its assignment; False if there is no room for that."""
    slot = entry.slot
    first = out.num_commands
    if w.params.quota == Quota.ENFORCED:
        if out.num_commands + w.jobs[slot].num_pod_sets > MAX_COMMANDS:
            return False
        ps = w.jobs[slot].first_pod_set
        while ps != NONE:
            command = out.commands[_new_command(out, Op.ADMIT, slot)]
            command.pod_set = w.pod_sets[ps].index
            # the fit test counts the quota of victims as free, and nothing always fits, also where a quota is overdrawn
            command.beyond_quota = k.num_preempting > 0 or _asks_for_nothing(w, k, ps)
            command.pods = k.pod_sets[ps].count
            for r in range(w.params.num_resources):
                command.flavor[r] = k.pod_sets[ps].flavor[r]
            ps = w.pod_sets[ps].next
    if not write_placement(w, k, slot, out):
        out.num_commands = first
        return False
    if out.num_commands > first:
        out.num_transactions += 1
        k.asked[k.num_asked] = slot
        k.num_asked += 1
    return True


@helper
def _asks_for_nothing(w: Any, k: Any, ps: int) -> bool:
    """Whether a pod set asks for 0 of some resource with quota: it has no pods, or they ask for 0."""
    for r in range(w.params.num_resources):
        flavor = k.pod_sets[ps].flavor[r]
        amount = k.pod_sets[ps].count * w.pod_sets[ps].request[r]
        if flavor != NONE and w.cell_of[flavor, r] != NONE and amount == 0:
            return True
    return False


@helper
def take_back_refused(w: Any, k: Any) -> None:
    """Admissions of the last decision that the world has refused: pending again."""
    for i in range(k.num_asked):
        slot = k.asked[i]
        note = k.workloads[slot]
        job = w.jobs[slot]
        is_same = note.is_known and job.row == note.row and note.bucket == Bucket.RESERVED
        if is_same and job.state == JobState.QUEUED and w.params.quota == Quota.ENFORCED:
            free(w, k, slot)
            push(w, k, slot)
    k.num_asked = 0


@helper
def place_next(w: Any, k: Any, out: Any) -> bool:
    """Plan the nodes of the first admitted workload, in order of admission, that finds room; False if none does."""
    at = k.first_unplaced
    while at != NONE:
        if plan(w, at, k.rule, out):
            return True
        at = k.workloads[at].next_unplaced
    return False


@helper
def evict_not_ready(w: Any, k: Any, out: Any) -> int:
    """Evict workloads whose pods were not bound in time (waitForPodsReady); returns when the next one is due."""
    next_ms = NEVER
    at = k.first_unplaced
    while at != NONE:
        following = k.workloads[at].next_unplaced
        note = k.workloads[at]
        if note.ready_by_ms <= w.now_ms and k.backoff_limit != NONE and note.num_requeues >= k.backoff_limit:
            if _new_command(out, Op.CANCEL, at) != NONE:  # deactivated
                out.num_transactions += 1
        elif note.ready_by_ms <= w.now_ms:
            note.num_requeues += 1
            doubled_ms = k.backoff_base_ms << min(note.num_requeues - 1, 20)
            note.backoff_ms = w.now_ms + min(doubled_ms, k.backoff_max_ms)
            if k.orders_by_eviction:
                note.timestamp_ms = w.now_ms
            write_eviction(w, k, at, Reason.POD_SETS_NOT_READY, out)
        else:
            next_ms = min(next_ms, note.ready_by_ms)
        at = following
    at = k.first_backoff
    while at != NONE:
        next_ms = min(next_ms, k.workloads[at].backoff_ms)
        at = k.workloads[at].next
    return next_ms
