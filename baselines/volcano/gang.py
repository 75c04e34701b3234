"""The gang plugin: valid, ready, pipelined, starving; and the same questions asked of all plugins.

Source: volcano-sh/volcano pkg/scheduler/plugins/gang/gang.go, pkg/scheduler/framework/session_plugins.go.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.volcano.state import Kind, Point
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER, NONE


@helper
def is_on(k: Any, i: int, point: int) -> bool:
    """Whether a plugin's extension point is enabled."""
    return (k.plugins[i].enabled >> point) & 1 == 1


@helper
def counts_suffice(ready: int, pipelined: int, pending_best_effort: int, min_member: int) -> bool:
    """Enough tasks to be a gang; pending best-effort tasks need no room and count."""
    return ready + pipelined + pending_best_effort >= min_member


@helper
def gang_ready(w: Any, k: Any, slot: int) -> bool:
    """Enough tasks are placed."""
    return _is_complete(w, k, slot, False)


@helper
def gang_pipelined(w: Any, k: Any, slot: int) -> bool:
    """Enough tasks are placed or wait for room that is being freed."""
    return _is_complete(w, k, slot, True)


@helper
def _is_complete(w: Any, k: Any, slot: int, with_pipelined: bool) -> bool:
    job = k.jobs[slot]
    if not counts_suffice(job.ready, job.pipelined * with_pipelined, job.pending_best_effort, job.min_member):
        return False
    if not _roles_are_complete(w, k, slot, 1 + with_pipelined):
        return False
    for policy in range(job.num_policies):
        if job.min_sub_groups[policy] > 0:
            complete = 0
            for i in range(job.first_sub_job, job.first_sub_job + job.num_sub_jobs):
                if k.sub_jobs[i].policy == policy and sub_job_complete(w, k, slot, i, with_pipelined):
                    complete += 1
            if complete < job.min_sub_groups[policy]:
                return False
    return True


@helper
def _roles_are_complete(w: Any, k: Any, slot: int, level: int) -> bool:
    """Every role has its minimum: of valid tasks (0), placed ones (1), placed or pipelined ones (2). T7: not asked
    when minMember is below the sum of the minima.
    """
    job = k.jobs[slot]
    if job.min_member < job.total_role_min:
        return True
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        s = k.sets[ps]
        if s.role_min > 0:
            count = 0
            other = w.jobs[slot].first_pod_set
            while other != NONE:
                o = k.sets[other]
                if o.role == s.role:
                    count += o.ready
                    if level != 1:
                        count += o.pipelined
                    if level == 0 or o.is_best_effort:
                        count += o.pending
                other = w.pod_sets[other].next
            if count < s.role_min:
                return False
        ps = w.pod_sets[ps].next
    return True


@helper
def sub_job_complete(w: Any, k: Any, slot: int, sub_job: int, with_pipelined: bool) -> bool:
    """The same for a sub-group, against its size."""
    count = 0
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        s = k.sets[ps]
        if s.sub_job == sub_job:
            count += s.ready + with_pipelined * s.pipelined
            if s.is_best_effort:
                count += s.pending
        ps = w.pod_sets[ps].next
    return count >= k.sub_jobs[sub_job].size


@helper
def job_valid(w: Any, k: Any, slot: int) -> bool:
    """Whether a job can be seen by allocate, preempt, reclaim and backfill. The enable switches do not matter."""
    for i in range(k.num_plugins):
        if k.plugins[i].kind == Kind.GANG:
            job = k.jobs[slot]
            valid = job.ready + job.pipelined + job.pending + job.pending_best_effort
            if valid < job.min_member or not _roles_are_complete(w, k, slot, 0):
                return False
            for policy in range(job.num_policies):
                there = 0
                for s in range(job.first_sub_job, job.first_sub_job + job.num_sub_jobs):
                    there += k.sub_jobs[s].policy == policy
                if there < job.min_sub_groups[policy]:
                    return False
    return True


@helper
def job_ready(w: Any, k: Any, slot: int) -> bool:
    """All plugins agree that a job may be bound; without gang each task commits alone."""
    for i in range(k.num_plugins):
        if k.plugins[i].kind == Kind.GANG and is_on(k, i, Point.JOB_READY) and not gang_ready(w, k, slot):
            return False
    return True


@helper
def job_pipelined(w: Any, k: Any, slot: int) -> bool:
    """Votes: any -1 met on the way is no; a tier with +1 and no -1 is yes; nobody votes is yes."""
    i = 0
    while i < k.num_plugins:
        tier = k.plugins[i].tier
        has_yes = False
        while i < k.num_plugins and k.plugins[i].tier == tier:
            if is_on(k, i, Point.JOB_PIPELINED):
                if k.plugins[i].kind == Kind.GANG:
                    if not gang_pipelined(w, k, slot):
                        return False
                    has_yes = True
                elif k.plugins[i].kind == Kind.SLA and deadline(w, k, slot) <= w.now_ms:
                    has_yes = True
            i += 1
        if has_yes:
            return True
    return True


@helper
def deadline(w: Any, k: Any, slot: int) -> int:
    """When a job has waited as long as sla allows; NEVER."""
    return NEVER if k.jobs[slot].sla_ms >= NEVER else w.jobs[slot].submit_ms + k.jobs[slot].sla_ms


@helper
def job_starving(w: Any, k: Any, slot: int) -> bool:
    """Whether a job needs more: of the first tier with an opinion all must say so; without any, no."""
    job = k.jobs[slot]
    i = 0
    while i < k.num_plugins:
        tier = k.plugins[i].tier
        is_asked = False
        while i < k.num_plugins and k.plugins[i].tier == tier:
            kind = k.plugins[i].kind
            if is_on(k, i, Point.JOB_STARVING) and (kind == Kind.GANG or kind == Kind.PRIORITY):
                is_asked = True
                wanted = job.min_member if kind == Kind.GANG else job.num_tasks  # T6: no roles, no best effort
                if job.ready + job.pipelined >= wanted:
                    return False
            i += 1
        if is_asked:
            return True
    return False


@helper
def sub_job_ready(w: Any, k: Any, slot: int, sub_job: int) -> bool:
    """Whether a job, or the sub-group of it that is being placed, may stop."""
    if sub_job == NONE:
        return job_ready(w, k, slot)
    for i in range(k.num_plugins):
        is_asked = k.plugins[i].kind == Kind.GANG and is_on(k, i, Point.SUB_JOB_READY)
        if is_asked and not sub_job_complete(w, k, slot, sub_job, False):
            return False
    return True


@helper
def sub_job_pipelined(w: Any, k: Any, slot: int, sub_job: int) -> bool:
    """The same with pipelined tasks counted."""
    if sub_job == NONE:
        return job_pipelined(w, k, slot)
    for i in range(k.num_plugins):
        is_asked = k.plugins[i].kind == Kind.GANG and is_on(k, i, Point.SUB_JOB_PIPELINED)
        if is_asked and not sub_job_complete(w, k, slot, sub_job, True):
            return False
    return True
