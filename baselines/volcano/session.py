"""A session: the snapshot of the world on which a cycle decides, how an operation changes it, and its close.

Source: volcano-sh/volcano pkg/scheduler/framework/session.go, pkg/scheduler/api/job_info.go, node_info.go.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.volcano.gang import gang_ready, job_valid
from gangline.baselines.volcano.resources import assign, share_of, zero
from gangline.baselines.volcano.state import ALL_NODES, MAX_POLICIES, Kind, Phase
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import MAX_RESOURCES, NONE, JobState, NodeState, Shape

ASSUMED_CPU = 100
ASSUMED_MEMORY = 200 * 1024 * 1024


@helper
def open_session(w: Any, k: Any) -> None:
    """Take the snapshot: nodes, queues, jobs with their tasks counted by status."""
    k.session += 1
    k.num_ops = 0
    k.num_kept = 0
    k.num_evicted = 0
    k.is_full = False
    k.has_changed = False
    k.is_broken = False
    _open_nodes(w, k)
    _open_nominations(w, k)
    for q in range(k.num_queues):
        queue = k.queues[q]
        queue.num_jobs = 0
        zero(queue.allocated)
        zero(queue.request)
        zero(queue.inqueue)
        zero(queue.elastic)
    zero(k.overcommit_inqueue)
    for g in range(w.num_groups):
        k.waiting[0, g] = 0
        k.waiting[1, g] = 0
    for slot in range(w.jobs_used):
        state = w.jobs[slot].state
        k.jobs[slot].is_in = False
        if state == JobState.FREE or k.jobs[slot].is_gated:
            continue
        _open_job(w, k, slot)
    _open_groups(w, k)


@helper
def _open_nodes(w: Any, k: Any) -> None:
    zero(k.total)
    zero(k.total_used)
    k.is_releasing = False
    for n in range(w.num_nodes):
        node = w.nodes[n]
        note = k.nodes[n]
        note.is_up = node.state == NodeState.UP
        note.num_pods = node.num_pods
        note.assumed_cpu = 0
        note.assumed_memory = 0
        note.whole_gpus = node.free_gpus
        note.fractions = 0
        for r in range(MAX_RESOURCES):
            note.idle[r] = node.idle[r] - node.planned[r]
            note.used[r] = node.used[r]
            note.releasing[r] = node.releasing[r]
            note.pipelined[r] = 0
            k.is_releasing = k.is_releasing or node.releasing[r] > 0
            if note.is_up:
                k.total[r] += node.capacity[r]
                k.total_used[r] += node.used[r]


@helper
def _open_nominations(w: Any, k: Any) -> None:
    """Forget nominations of pods that are bound, or whose job has gone."""
    kept = 0
    for i in range(k.num_nominations):
        old = k.nominations[i]
        job = w.jobs[old.slot]
        if job.state == JobState.FREE or job.row != old.row:
            continue
        pod_set = w.pod_sets[old.pod_set]
        if old.place < pod_set.num_done + pod_set.num_bound:
            continue
        new = k.nominations[kept]
        new.slot = old.slot
        new.row = old.row
        new.pod_set = old.pod_set
        new.place = old.place
        new.node = old.node
        kept += 1
    k.num_nominations = kept


@helper
def _has_nominations(k: Any, slot: int) -> bool:
    found = False
    for i in range(k.num_nominations):
        found = found or k.nominations[i].slot == slot
    return found


@helper
def nominated_node(k: Any, slot: int, ps: int) -> int:
    """The node on which room was made for the next pending pod of a set; NONE."""
    for i in range(k.num_nominations - 1, -1, -1):
        nomination = k.nominations[i]
        if nomination.pod_set == ps and nomination.slot == slot and nomination.place == k.sets[ps].next:
            return nomination.node
    return NONE


@helper
def _open_job(w: Any, k: Any, slot: int) -> None:
    """Count a job's tasks by status, unless nothing has happened to it. Jobs that may not run yet, suspended ones and
    those on their way out are left out as candidates, but what they hold counts.
    """
    job = w.jobs[slot]
    note = k.jobs[slot]
    is_counted = note.row == job.row + 1 and note.seen_change == job.change and not note.is_dirty
    if is_counted and note.is_plain:
        note.is_in = True
        k.waiting[1 if note.phase == Phase.INQUEUE else 0, job.group] += 1
        k.one_of[job.group] = slot
        return
    if note.row != job.row + 1:
        _meet(w, k, slot)
    if is_counted:
        update_job_share(k, slot)  # the cluster may have more nodes, or fewer
    else:
        _count_job(w, k, slot)
    if k.cpu != NONE or k.memory != NONE:
        _assume_pods(w, k, slot)
    note.is_in = note.is_known
    if not note.is_in:
        return
    if note.phase == Phase.PENDING and note.running > 0 and not k.one_session:
        note.phase = Phase.RUNNING  # it was running before Volcano saw it
    note.is_plain = _is_plain(w, k, slot)
    if note.is_plain:
        k.waiting[1 if note.phase == Phase.INQUEUE else 0, job.group] += 1
        k.one_of[job.group] = slot
    else:
        _add_to_queue(w, k, slot, 1)


@helper
def _is_plain(w: Any, k: Any, slot: int) -> bool:
    """Whether a job waits and is like all others of its group that do: one of them stands for all."""
    job = w.jobs[slot]
    note = k.jobs[slot]
    waits = job.state == JobState.QUEUED and (note.phase == Phase.PENDING or note.phase == Phase.INQUEUE)
    is_untouched = job.num_bound == 0 and job.num_releasing == 0 and job.num_done == 0 and note.min_member > 0
    return waits and is_untouched and k.num_named == 0 and job.queue == w.tenants[job.tenant].queue


@helper
def _count_job(w: Any, k: Any, slot: int) -> None:
    job = w.jobs[slot]
    note = k.jobs[slot]
    note.seen_change = job.change
    note.is_dirty = False
    note.num_tasks = 0
    note.ready = job.num_done
    note.done = job.num_done
    note.running = 0
    note.releasing = 0
    note.pipelined = 0
    note.pending = 0
    note.pending_best_effort = 0
    note.newly_bound = 0
    zero(note.allocated)
    note.is_unschedulable = False
    can_wait = (
        job.state == JobState.QUEUED
        or job.state == JobState.ADMITTED
        or job.state == JobState.PARTIAL
        or job.state == JobState.RUNNING
    )
    ps = job.first_pod_set
    while ps != NONE:
        pod_set = w.pod_sets[ps]
        s = k.sets[ps]
        bound = pod_set.num_bound
        count = pod_set.num_admitted + pod_set.num_done if job.is_admitted else pod_set.count  # fewer if admitted so
        s.pending = max(0, count - pod_set.num_done - bound - pod_set.num_releasing) if can_wait else 0
        s.ready = bound + pod_set.num_done
        s.pipelined = 0
        s.skipped = 0
        s.has_failed = False
        note.num_tasks += s.pending + bound + pod_set.num_releasing + pod_set.num_done
        note.ready += bound
        note.running += bound
        note.releasing += pod_set.num_releasing
        if s.is_best_effort:
            note.pending_best_effort += s.pending
        else:
            note.pending += s.pending
        for r in range(MAX_RESOURCES):
            note.allocated[r] += bound * pod_set.request[r]
        ps = pod_set.next
    update_job_share(k, slot)
    _number_pods(w, k, slot)
    if not _has_nominations(k, slot):
        note.nominated_hypernode = NONE
        for i in range(note.first_sub_job, note.first_sub_job + note.num_sub_jobs):
            k.sub_jobs[i].nominated_hypernode = NONE
    note.is_ready = gang_ready(w, k, slot)
    note.is_valid = job_valid(w, k, slot)


@helper
def _add_to_queue(w: Any, k: Any, slot: int, jobs: int) -> None:
    """What so many jobs like this one hold, ask for and have admitted counts in their queue."""
    note = k.jobs[slot]
    queue = k.queues[note.queue]
    queue.num_jobs += jobs
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        for r in range(MAX_RESOURCES):
            queue.request[r] += jobs * k.sets[ps].pending * w.pod_sets[ps].request[r]
        ps = w.pod_sets[ps].next
    counts_inqueue = note.phase == Phase.INQUEUE or (note.phase == Phase.RUNNING and note.running >= note.min_member)
    for r in range(MAX_RESOURCES):
        queue.allocated[r] += jobs * note.allocated[r]
        queue.request[r] += jobs * note.allocated[r]
        queue.elastic[r] += jobs * max(0.0, note.allocated[r] - note.min_resources[r])
    if counts_inqueue and note.has_min_resources:
        _add_inqueue(k, slot, note.phase == Phase.INQUEUE, jobs)


@helper
def _add_inqueue(k: Any, slot: int, in_full: bool, jobs: int) -> None:
    """T20: overcommit counts what is admitted in full, proportion and capacity what it lacks."""
    note = k.jobs[slot]
    for r in range(MAX_RESOURCES):
        lacks = max(0.0, note.min_resources[r] - note.allocated[r])
        k.queues[note.queue].inqueue[r] += jobs * lacks
        k.overcommit_inqueue[r] += jobs * (note.min_resources[r] if in_full else lacks)


@helper
def _open_groups(w: Any, k: Any) -> None:
    """Plain jobs, group by group."""
    for g in range(w.num_groups):
        pending, admitted = k.waiting[0, g], k.waiting[1, g]
        if pending + admitted == 0:
            continue
        slot = k.one_of[g]
        note = k.jobs[slot]
        phase = note.phase
        note.phase = Phase.PENDING
        _add_to_queue(w, k, slot, pending + admitted)
        note.phase = phase
        if note.has_min_resources:
            _add_inqueue(k, slot, True, admitted)


@helper
def _number_pods(w: Any, k: Any, slot: int) -> None:
    """Places of a job's pods among their sets', in order of binding."""
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        k.sets[ps].next = w.pod_sets[ps].num_done
        ps = w.pod_sets[ps].next
    at = w.jobs[slot].first_pod
    while at != NONE:
        s = k.sets[w.pods[at].pod_set]
        k.place[at] = s.next
        s.next += 1
        at = w.pods[at].next


@helper
def _assume_pods(w: Any, k: Any, slot: int) -> None:
    at = w.jobs[slot].first_pod
    while at != NONE:
        assume(w, k, w.pods[at].pod_set, w.pods[at].node, 1)
        at = w.pods[at].next


@helper
def assume(w: Any, k: Any, ps: int, n: int, sign: int) -> None:
    """In scores, Kubernetes counts 100m and 200 MiB for a pod that asks for no cpu, no memory."""
    if k.cpu != NONE and w.pod_sets[ps].request[k.cpu] == 0:
        k.nodes[n].assumed_cpu += sign * ASSUMED_CPU
    if k.memory != NONE and w.pod_sets[ps].request[k.memory] == 0:
        k.nodes[n].assumed_memory += sign * ASSUMED_MEMORY


@helper
def _meet(w: Any, k: Any, slot: int) -> None:
    """A job that Volcano has not seen before: what is configured of it, or what follows from the world's job."""
    job = w.jobs[slot]
    note = k.jobs[slot]
    note.row = job.row + 1
    note.queue = job.queue if job.queue != NONE else w.tenants[job.tenant].queue
    if k.one_queue:
        note.queue = w.num_queues
    elif note.queue == NONE:
        note.queue = job.tenant if k.tenants_are_queues else w.num_queues  # the queue `default`
    note.num_policies = 0
    note.num_sub_jobs = 0
    note.allocated_hypernode = NONE
    note.nominated_hypernode = NONE
    note.sla_ms = k.sla_ms
    if job.row < k.num_named and k.named[job.row].is_named:
        _copy_named(w, k, slot, job.row)
        return
    note.is_known = True
    note.phase = Phase.PENDING
    note.min_member = job.min_member
    note.is_preemptable = 1 if job.preemptible else 0
    note.has_wish = job.topology_wish != Shape.NO_WISH and k.topology != NONE
    note.is_hard = note.has_wish
    note.limit = job.topology_tier if job.topology_wish == Shape.REQUIRED else NONE
    note.has_min_resources = True
    zero(note.min_resources)
    note.total_role_min = 0
    left = job.min_member
    role = 0
    ps = job.first_pod_set
    while ps != NONE:
        pod_set = w.pod_sets[ps]
        _plain_set(w, k, ps, role)
        note.total_role_min += k.sets[ps].role_min
        taken = min(left, pod_set.count)
        left -= taken
        for r in range(MAX_RESOURCES):
            note.min_resources[r] += taken * pod_set.request[r]
        role += 1
        ps = pod_set.next


@helper
def _plain_set(w: Any, k: Any, ps: int, role: int) -> None:
    """Pods of which nothing is configured."""
    s = k.sets[ps]
    preemptible = w.jobs[w.pod_sets[ps].job].preemptible
    s.role = role
    s.named_role = True
    s.role_min = w.pod_sets[ps].min_count
    s.priority = 1
    s.has_priority = False
    s.is_preemptable = preemptible
    s.never_preempts = False
    s.is_critical = False
    s.sub_job = NONE
    s.nodes = ALL_NODES
    s.first_rank = 0
    s.num_ranks = 0
    _note_best_effort(w, k, ps)


@helper
def _copy_named(w: Any, k: Any, slot: int, row: int) -> None:
    note = k.jobs[slot]
    named = k.named[row]
    note.is_known = named.is_known
    note.phase = named.phase
    note.min_member = named.min_member
    note.total_role_min = named.total_role_min
    assign(note.min_resources, named.min_resources)
    note.has_min_resources = named.has_min_resources
    note.is_preemptable = named.is_preemptable
    note.num_policies = named.num_policies
    if named.sla_ms != NONE:
        note.sla_ms = named.sla_ms
    for i in range(MAX_POLICIES):
        note.min_sub_groups[i] = named.min_sub_groups[i]
    note.first_sub_job = named.first_sub_job
    note.num_sub_jobs = named.num_sub_jobs
    note.allocated_hypernode = named.allocated_hypernode
    if named.is_hard == NONE:
        wish = w.jobs[slot].topology_wish
        note.has_wish = wish != Shape.NO_WISH and k.topology != NONE
        note.is_hard = note.has_wish
        note.limit = w.jobs[slot].topology_tier if wish == Shape.REQUIRED else NONE
    else:
        note.has_wish = named.has_wish
        note.is_hard = named.is_hard == 1
        note.limit = named.limit
    ps = w.jobs[slot].first_pod_set
    i = named.first_set
    while ps != NONE:
        if i < named.first_set + named.num_sets:
            s = k.sets[ps]
            given = k.named_sets[i]
            s.role = given.role
            s.named_role = given.named_role
            s.role_min = given.role_min
            s.priority = given.priority
            s.has_priority = given.has_priority
            s.is_preemptable = given.is_preemptable
            s.never_preempts = given.never_preempts
            s.is_critical = given.is_critical
            s.sub_job = NONE if given.sub_job == NONE else note.first_sub_job + given.sub_job
            s.nodes = given.nodes
            s.first_rank = given.first_rank
            s.num_ranks = given.num_ranks
            _note_best_effort(w, k, ps)
        else:
            _plain_set(w, k, ps, i - named.first_set)
            k.sets[ps].role_min = 0
        i += 1
        ps = w.pod_sets[ps].next


@helper
def _note_best_effort(w: Any, k: Any, ps: int) -> None:
    """Best effort: a request that is empty apart from `pods`."""
    k.sets[ps].is_best_effort = True
    for r in range(MAX_RESOURCES):
        if r != k.pods and w.pod_sets[ps].request[r] > 0:
            k.sets[ps].is_best_effort = False


@helper
def update_job_share(k: Any, slot: int) -> None:
    """Dominant share of a job (drf)."""
    note = k.jobs[slot]
    note.share = 0.0
    for r in range(MAX_RESOURCES):
        note.share = max(note.share, share_of(note.allocated[r], k.total[r]))


@helper
def close_session(w: Any, k: Any) -> None:
    """Unschedulable conditions of the gang plugin, then the phase of every PodGroup."""
    has_gang = False
    for i in range(k.num_plugins):
        has_gang = has_gang or k.plugins[i].kind == Kind.GANG
    for slot in range(w.jobs_used):
        note = k.jobs[slot]
        if not note.is_in or (note.is_plain and not note.is_dirty):  # who waits and got nothing stays as it is
            continue
        scheduled = note.running + note.done  # what this session binds is Binding, not yet Bound
        is_unschedulable = False
        if has_gang and note.num_tasks > 0 and not gang_ready(w, k, slot):
            waits = note.pending + note.pending_best_effort + note.pipelined > 0
            is_unschedulable = not skips_condition(waits, scheduled + note.releasing, note.min_member)
        phase = next_phase(
            note.phase,
            note.min_member,
            note.running,
            scheduled + note.releasing,
            note.done,
            is_unschedulable,
        )
        if phase != note.phase:
            note.phase = phase
            k.has_changed = True


@helper
def skips_condition(waits: bool, scheduled: int, min_member: int) -> bool:
    """A gang that is not ready is not called unschedulable while enough of it is only on its way out."""
    return not waits and scheduled >= min_member


@helper
def next_phase(
    phase: int, min_member: int, running: int, scheduled: int, completed: int, is_unschedulable: bool
) -> int:
    """Phase of a PodGroup at the close of a session; `scheduled` counts releasing tasks on a node too."""
    if running > 0 and is_unschedulable:
        return Phase.UNKNOWN
    if scheduled >= min_member:
        return Phase.COMPLETED if scheduled == completed else Phase.RUNNING
    return Phase.INQUEUE if phase == Phase.INQUEUE else Phase.PENDING
