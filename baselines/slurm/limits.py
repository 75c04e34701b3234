"""Limits of QOS and associations. A job that a limit holds back is passed over: it blocks nobody and plans nothing.

Source: Slurm src/slurmctld/acct_policy.c.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.slurm.priority import limit_ms, requested_tres
from gangline.baselines.slurm.tables import NODE_TRES, NUM_TRES, Reason
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER


@helper
def is_limited(s: Any, slot: int) -> bool:
    """Whether any limit may concern a job."""
    mine = s.slots[slot]
    return s.own[0].has_limits != 0 and (s.qos[mine.qos].has_limits or s.assocs[mine.assoc].has_limits)


@helper
def job_limit(w: Any, s: Any, slot: int, partition: int) -> int:
    """The limit on job counts or wall time that keeps a job from starting; Reason.NONE."""
    mine = s.slots[slot]
    qos = s.qos[mine.qos]
    if qos.grp_jobs >= 0 and qos.used_jobs >= qos.grp_jobs:
        return Reason.QOS_GRP_JOBS
    if qos.max_jobs_per_user >= 0 and jobs_beside(s, slot, False) >= qos.max_jobs_per_user:
        return Reason.QOS_MAX_JOBS_PER_USER
    if qos.max_jobs_per_account >= 0 and jobs_beside(s, slot, True) >= qos.max_jobs_per_account:
        return Reason.QOS_MAX_JOBS_PER_ACCOUNT
    limit = limit_ms(w, s, slot, partition)
    if 0 <= qos.max_wall_ms < limit < NEVER:
        return Reason.QOS_MAX_WALL
    a = mine.assoc
    while a >= 0:
        assoc = s.assocs[a]
        if assoc.grp_jobs >= 0 and qos.grp_jobs < 0 and assoc.used_jobs >= assoc.grp_jobs:
            return Reason.ASSOC_GRP_JOBS
        if a == mine.assoc:  # an account's value is what its users inherit, not a sum
            if assoc.max_jobs >= 0 and qos.max_jobs_per_user < 0 and assoc.used_jobs >= assoc.max_jobs:
                return Reason.ASSOC_MAX_JOBS
            if qos.max_wall_ms < 0 and 0 <= assoc.max_wall_ms < limit < NEVER:
                return Reason.ASSOC_MAX_WALL
        a = assoc.parent
    return Reason.NONE


@helper
def is_beside(s: Any, slot: int, other: int, by_account: bool) -> bool:
    """Whether two jobs are of the same QOS and of the same user, or account."""
    if s.slots[slot].qos != s.slots[other].qos:
        return False
    a = s.slots[slot].assoc
    b = s.slots[other].assoc
    return s.assocs[a].parent == s.assocs[b].parent if by_account else a == b


@helper
def jobs_beside(s: Any, slot: int, by_account: bool) -> int:
    """Running jobs of the same QOS and user (account)."""
    count = 0
    for i in range(s.own[0].num_running):
        if is_beside(s, slot, s.running[i], by_account):
            count += 1
    return count


@helper
def tres_beside(s: Any, slot: int, tres: int, by_account: bool) -> int:
    """What running jobs of the same QOS and user (account) hold of a TRES."""
    amount = 0
    for i in range(s.own[0].num_running):
        if is_beside(s, slot, s.running[i], by_account):
            amount += s.slots[s.running[i]].tres[tres]
    return amount


@helper
def asked_tres(w: Any, s: Any, slot: int, tres: int, with_choice: bool, exclusive: bool) -> int:
    """What a job would hold of a TRES: on the nodes chosen for it, or by its request alone."""
    if not with_choice:
        return requested_tres(w, s, slot, tres)
    own = s.own[0]
    amount = 0
    for n in range(w.num_nodes):
        if (s.chosen[n >> 6] >> (n & 63)) & 1:
            if tres == NODE_TRES:
                amount += 1
            elif exclusive and tres < own.num_resources:
                amount += w.nodes[n].capacity[tres]
    if tres == NODE_TRES or (exclusive and tres < own.num_resources):
        return amount
    return requested_tres(w, s, slot, tres)


@helper
def tres_limit(w: Any, s: Any, slot: int, with_choice: bool, exclusive: bool) -> int:
    """The limit on TRES that keeps a job from starting; Reason.NONE. The TRES is noted with the job."""
    mine = s.slots[slot]
    qos = s.qos[mine.qos]
    for t in range(NUM_TRES):
        asked = -1
        for level in range(NUM_LEVELS):
            if not level_is_set(s, mine, qos, t, level):
                continue
            if asked < 0:
                asked = asked_tres(w, s, slot, t, with_choice, exclusive)
            reason = exceeded(s, slot, mine, qos, t, level, asked)
            if reason != Reason.NONE:
                mine.reason_tres = t
                return reason
    return Reason.NONE


NUM_LEVELS = 5  # QOS group, QOS per user, QOS per account, QOS per job, associations


@helper
def level_is_set(s: Any, mine: Any, qos: Any, t: int, level: int) -> bool:
    """Whether a level of limits has one for a TRES."""
    if level == 0:
        return qos.grp_tres[t] >= 0
    if level == 1:
        return qos.max_tres_per_user[t] >= 0
    if level == 2:
        return qos.max_tres_per_account[t] >= 0
    if level == 3:
        return qos.max_tres_per_job[t] >= 0
    a = mine.assoc
    while a >= 0:
        assoc = s.assocs[a]
        if assoc.grp_tres[t] >= 0 or assoc.max_tres_per_job[t] >= 0 or assoc.grp_tres_mins[t] >= 0:
            return True
        a = assoc.parent
    return False


@helper
def exceeded(s: Any, slot: int, mine: Any, qos: Any, t: int, level: int, asked: int) -> int:
    """The limit of a level that a job would exceed; a value of the QOS hides the associations'."""
    if asked <= 0:
        return Reason.NONE
    if level == 0:
        return Reason.QOS_GRP_TRES if qos.used_tres[t] + asked > qos.grp_tres[t] else Reason.NONE
    if level == 1:
        beside = tres_beside(s, slot, t, False)
        return Reason.QOS_MAX_TRES_PER_USER if beside + asked > qos.max_tres_per_user[t] else Reason.NONE
    if level == 2:
        beside = tres_beside(s, slot, t, True)
        return Reason.QOS_MAX_TRES_PER_ACCOUNT if beside + asked > qos.max_tres_per_account[t] else Reason.NONE
    if level == 3:
        return Reason.QOS_MAX_TRES_PER_JOB if asked > qos.max_tres_per_job[t] else Reason.NONE
    a = mine.assoc
    while a >= 0:
        assoc = s.assocs[a]
        if qos.grp_tres[t] < 0 and 0 <= assoc.grp_tres[t] < assoc.used_tres[t] + asked:
            return Reason.ASSOC_GRP_TRES
        if qos.max_tres_per_job[t] < 0 and a == mine.assoc and 0 <= assoc.max_tres_per_job[t] < asked:
            return Reason.ASSOC_MAX_TRES_PER_JOB
        if assoc.grp_tres_mins[t] >= 0 and assoc.raw_tres[t] / 60.0 >= assoc.grp_tres_mins[t]:
            return Reason.ASSOC_GRP_TRES_MINS
        a = assoc.parent
    return Reason.NONE


@helper
def limit_of(w: Any, s: Any, slot: int, partition: int) -> int:
    """The limit that a job's request runs into, whatever nodes it gets; Reason.NONE."""
    if not is_limited(s, slot):
        return Reason.NONE
    reason = job_limit(w, s, slot, partition)
    if reason != Reason.NONE:
        return reason
    return tres_limit(w, s, slot, False, False)
