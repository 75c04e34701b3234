"""Limits of QOS and associations. A job that a limit holds back is passed over: it blocks nobody and plans nothing.

Source: Slurm src/slurmctld/acct_policy.c.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.slurm.priority import limit_ms, requested_tres
from gangline.baselines.slurm.tables import BILLING_TRES, NODE_TRES, NUM_TRES, Reason
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER, NONE, JobState

SECOND_MS = 1000
MINUTE_MS = 60_000


@helper
def is_limited(s: Any, slot: int, partition: int) -> bool:
    """Whether any limit may concern a job."""
    mine = s.slots[slot]
    if mine.array != NONE and s.arrays[mine.array].limit >= 0:
        return True
    if s.own[0].has_limits == 0:
        return False
    of_partition = s.partitions[partition].qos
    if of_partition != NONE and s.qos[of_partition].has_limits:
        return True
    return s.qos[mine.qos].has_limits or s.assocs[mine.assoc].has_limits


@helper
def qos_in_order(s: Any, slot: int, partition: int) -> Any:
    """(first, second) QOS whose limits hold for a job: its partition's, then its own; what the first sets hides the
    second's, and both hide the associations'. NONE where there is no second.
    """
    of_job = int(s.slots[slot].qos)
    of_partition = int(s.partitions[partition].qos)
    if of_partition == of_job:
        of_partition = NONE
    if of_partition == NONE or s.qos[of_job].is_over_partition:
        return of_job, of_partition
    return of_partition, of_job


@helper
def job_limit(w: Any, s: Any, slot: int, partition: int) -> int:
    """The limit on job counts or wall time that keeps a job from starting; Reason.NONE."""
    mine = s.slots[slot]
    if mine.array != NONE and 0 <= s.arrays[mine.array].limit <= s.arrays[mine.array].num_running:
        return Reason.ARRAY_TASKS
    if s.own[0].has_limits == 0:
        return Reason.NONE
    limit = limit_ms(w, s, slot, partition)
    has_grp_jobs = has_grp_wall = has_per_user = has_per_account = has_wall = False
    first, second = qos_in_order(s, slot, partition)
    for i in range(2):
        q = first if i == 0 else second
        if q == NONE:
            break
        qos = s.qos[q]
        if qos.grp_jobs >= 0 and not has_grp_jobs and qos.used_jobs >= qos.grp_jobs:
            return Reason.QOS_GRP_JOBS
        if qos.grp_wall_ms >= 0 and not has_grp_wall and qos.raw_wall * SECOND_MS >= qos.grp_wall_ms:
            return Reason.QOS_GRP_WALL
        if not has_per_user and 0 <= qos.max_jobs_per_user <= jobs_beside(s, slot, q, False):
            return Reason.QOS_MAX_JOBS_PER_USER
        if not has_per_account and 0 <= qos.max_jobs_per_account <= jobs_beside(s, slot, q, True):
            return Reason.QOS_MAX_JOBS_PER_ACCOUNT
        if not has_wall and 0 <= qos.max_wall_ms < limit < NEVER:
            return Reason.QOS_MAX_WALL
        has_grp_jobs = has_grp_jobs or qos.grp_jobs >= 0
        has_grp_wall = has_grp_wall or qos.grp_wall_ms >= 0
        has_per_user = has_per_user or qos.max_jobs_per_user >= 0
        has_per_account = has_per_account or qos.max_jobs_per_account >= 0
        has_wall = has_wall or qos.max_wall_ms >= 0
    a = mine.assoc
    while a >= 0:
        assoc = s.assocs[a]
        if assoc.grp_jobs >= 0 and not has_grp_jobs and assoc.used_jobs >= assoc.grp_jobs:
            return Reason.ASSOC_GRP_JOBS
        if assoc.grp_wall_ms >= 0 and not has_grp_wall and assoc.raw_wall * SECOND_MS >= assoc.grp_wall_ms:
            return Reason.ASSOC_GRP_WALL
        if a == mine.assoc:  # an account's value is what its users inherit, not a sum
            if assoc.max_jobs >= 0 and not has_per_user and assoc.used_jobs >= assoc.max_jobs:
                return Reason.ASSOC_MAX_JOBS
            if not has_wall and 0 <= assoc.max_wall_ms < limit < NEVER:
                return Reason.ASSOC_MAX_WALL
        a = assoc.parent
    return Reason.NONE


@helper
def is_rejected(w: Any, s: Any, slot: int) -> bool:
    """Whether a limit on submissions, of waiting and running jobs together, turns a new job away."""
    mine = s.slots[slot]
    has_grp = has_per_user = False
    first, second = qos_in_order(s, slot, mine.partition)
    for i in range(2):
        q = first if i == 0 else second
        if q == NONE:
            break
        qos = s.qos[q]
        if not has_grp and 0 <= qos.grp_submit <= num_submitted(w, s, slot, q, NONE, 0):
            return True
        if not has_per_user and 0 <= qos.max_submit_per_user <= num_submitted(w, s, slot, q, NONE, 1):
            return True
        if 0 <= qos.max_submit_per_account <= num_submitted(w, s, slot, q, NONE, 2):
            return True
        has_grp = has_grp or qos.grp_submit >= 0
        has_per_user = has_per_user or qos.max_submit_per_user >= 0
    a = mine.assoc
    while a >= 0:
        assoc = s.assocs[a]
        if not has_grp and 0 <= assoc.grp_submit <= num_submitted(w, s, slot, NONE, a, 0):
            return True
        is_own = a == mine.assoc and not has_per_user
        if is_own and 0 <= assoc.max_submit <= num_submitted(w, s, slot, NONE, a, 0):
            return True
        a = assoc.parent
    return False


@helper
def num_submitted(w: Any, s: Any, slot: int, q: int, a: int, beside: int) -> int:
    """Other live jobs: of a QOS (and of the same user, 1, or account, 2), or below an association."""
    count = 0
    for other in range(w.jobs_used):
        theirs = s.slots[other]
        if other == slot or w.jobs[other].state == JobState.FREE or theirs.row != w.jobs[other].row:
            continue
        if q != NONE:
            is_one = counts_in(s, other, q) and (beside == 0 or is_beside(s, slot, other, beside == 2))
        else:
            at = theirs.assoc
            while at >= 0 and at != a:
                at = s.assocs[at].parent
            is_one = at == a
        if is_one:
            count += 1
    return count


@helper
def counts_in(s: Any, slot: int, q: int) -> bool:
    """Whether a job counts in a QOS: its own, or its partition's."""
    return s.slots[slot].qos == q or s.partitions[s.slots[slot].partition].qos == q


@helper
def is_beside(s: Any, slot: int, other: int, by_account: bool) -> bool:
    """Whether two jobs are of the same user, in whatever account, or of the same account."""
    a = s.assocs[s.slots[slot].assoc]
    b = s.assocs[s.slots[other].assoc]
    return a.parent == b.parent if by_account else a.person == b.person


@helper
def jobs_beside(s: Any, slot: int, q: int, by_account: bool) -> int:
    """Running jobs of a QOS and the same user (account)."""
    count = 0
    for i in range(s.own[0].num_running):
        if counts_in(s, s.running[i], q) and is_beside(s, slot, s.running[i], by_account):
            count += 1
    return count


@helper
def tres_beside(s: Any, slot: int, q: int, tres: int, by_account: bool) -> int:
    """What running jobs of a QOS and the same user (account) hold of a TRES."""
    amount = 0
    for i in range(s.own[0].num_running):
        if counts_in(s, s.running[i], q) and is_beside(s, slot, s.running[i], by_account):
            amount += s.slots[s.running[i]].tres[tres]
    return amount


@helper
def asked_billing(w: Any, s: Any, slot: int, partition: int, with_choice: bool, exclusive: bool) -> int:
    """The billing TRES that a job would hold; see `billing_of`."""
    own = s.own[0]
    part = s.partitions[partition]
    if not part.has_weights:
        return asked_held(w, s, slot, own.cpu, with_choice, exclusive) // own.scale[own.cpu] if own.cpu != NONE else 0
    total = 0.0
    most = 0.0
    of_gres = 0.0
    for t in range(BILLING_TRES):
        if part.weights[t] == 0.0:
            continue
        part_of = part.weights[t] * (asked_held(w, s, slot, t, with_choice, exclusive) / own.scale[t])
        total += part_of
        if own.max_tres == 2 and t != own.cpu and t != NODE_TRES:
            of_gres += part_of
        else:
            most = max(most, part_of)
    return int(most + of_gres) if own.max_tres else int(total)


@helper
def asked_tres(w: Any, s: Any, slot: int, partition: int, tres: int, with_choice: bool, exclusive: bool) -> int:
    """What a job would hold of a TRES: on the nodes chosen for it, or by its request alone."""
    if tres == BILLING_TRES:
        return asked_billing(w, s, slot, partition, with_choice, exclusive)
    return asked_held(w, s, slot, tres, with_choice, exclusive)


@helper
def asked_held(w: Any, s: Any, slot: int, tres: int, with_choice: bool, exclusive: bool) -> int:
    """The same of anything but billing."""
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
def tres_limit(w: Any, s: Any, slot: int, partition: int, with_choice: bool, exclusive: bool) -> int:
    """The limit on TRES that keeps a job from starting; Reason.NONE. The TRES is noted with the job."""
    if s.own[0].has_limits == 0:
        return Reason.NONE
    mine = s.slots[slot]
    first, second = qos_in_order(s, slot, partition)
    minutes = limit_ms(w, s, slot, partition) / MINUTE_MS
    num_nodes = asked_tres(w, s, slot, partition, NODE_TRES, with_choice, exclusive)
    for t in range(NUM_TRES):
        if not is_set(s, slot, first, t) and not (second != NONE and is_set(s, slot, second, t)):
            continue
        asked = asked_tres(w, s, slot, partition, t, with_choice, exclusive)
        if asked <= 0:
            continue
        reason = exceeded(s, slot, first, second, t, asked, asked // max(num_nodes, 1), asked * minutes)
        if reason != Reason.NONE:
            mine.reason_tres = t
            return reason
    return Reason.NONE


@helper
def is_set(s: Any, slot: int, q: int, t: int) -> bool:
    """Whether a QOS, or an association of a job, has a limit on a TRES."""
    qos = s.qos[q]
    if (
        qos.grp_tres[t] >= 0
        or qos.grp_tres_mins[t] >= 0
        or qos.max_tres_per_user[t] >= 0
        or qos.max_tres_per_account[t] >= 0
        or qos.max_tres_per_job[t] >= 0
        or qos.max_tres_per_node[t] >= 0
        or qos.max_tres_mins_per_job[t] >= 0
    ):
        return True
    a = s.slots[slot].assoc
    while a >= 0:
        assoc = s.assocs[a]
        if (
            assoc.grp_tres[t] >= 0
            or assoc.grp_tres_mins[t] >= 0
            or assoc.max_tres_per_job[t] >= 0
            or assoc.max_tres_per_node[t] >= 0
            or assoc.max_tres_mins_per_job[t] >= 0
        ):
            return True
        a = assoc.parent
    return False


@helper
def exceeded(s: Any, slot: int, first: int, second: int, t: int, asked: int, per_node: int, asked_mins: float) -> int:
    """The limit on a TRES that a job would exceed; what the first QOS sets hides the second's and the associations'."""
    has_grp = has_mins = has_job = has_node = has_job_mins = has_user = has_account = False
    for i in range(2):
        q = first if i == 0 else second
        if q == NONE:
            break
        qos = s.qos[q]
        if not has_mins and qos.grp_tres_mins[t] >= 0 and qos.raw_tres[t] / 60.0 >= qos.grp_tres_mins[t]:
            return Reason.QOS_GRP_TRES_MINS
        if not has_grp and 0 <= qos.grp_tres[t] < qos.used_tres[t] + asked:
            return Reason.QOS_GRP_TRES
        if not has_job_mins and 0 <= qos.max_tres_mins_per_job[t] < asked_mins:
            return Reason.QOS_MAX_TRES_MINS
        if not has_job and 0 <= qos.max_tres_per_job[t] < asked:
            return Reason.QOS_MAX_TRES_PER_JOB
        if not has_node and 0 <= qos.max_tres_per_node[t] < per_node:
            return Reason.QOS_MAX_TRES_PER_NODE
        if not has_account and 0 <= qos.max_tres_per_account[t] < tres_beside(s, slot, q, t, True) + asked:
            return Reason.QOS_MAX_TRES_PER_ACCOUNT
        if not has_user and 0 <= qos.max_tres_per_user[t] < tres_beside(s, slot, q, t, False) + asked:
            return Reason.QOS_MAX_TRES_PER_USER
        has_grp = has_grp or qos.grp_tres[t] >= 0
        has_mins = has_mins or qos.grp_tres_mins[t] >= 0
        has_job = has_job or qos.max_tres_per_job[t] >= 0
        has_node = has_node or qos.max_tres_per_node[t] >= 0
        has_job_mins = has_job_mins or qos.max_tres_mins_per_job[t] >= 0
        has_user = has_user or qos.max_tres_per_user[t] >= 0
        has_account = has_account or qos.max_tres_per_account[t] >= 0
    a = s.slots[slot].assoc
    own = a
    while a >= 0:
        assoc = s.assocs[a]
        if not has_mins and assoc.grp_tres_mins[t] >= 0 and assoc.raw_tres[t] / 60.0 >= assoc.grp_tres_mins[t]:
            return Reason.ASSOC_GRP_TRES_MINS
        if not has_grp and 0 <= assoc.grp_tres[t] < assoc.used_tres[t] + asked:
            return Reason.ASSOC_GRP_TRES
        if a == own:
            if not has_job_mins and 0 <= assoc.max_tres_mins_per_job[t] < asked_mins:
                return Reason.ASSOC_MAX_TRES_MINS
            if not has_job and 0 <= assoc.max_tres_per_job[t] < asked:
                return Reason.ASSOC_MAX_TRES_PER_JOB
            if not has_node and 0 <= assoc.max_tres_per_node[t] < per_node:
                return Reason.ASSOC_MAX_TRES_PER_NODE
        a = assoc.parent
    return Reason.NONE


@helper
def limit_of(w: Any, s: Any, slot: int, partition: int) -> int:
    """The limit that a job's request runs into, whatever nodes it gets; Reason.NONE."""
    if not is_limited(s, slot, partition):
        return Reason.NONE
    reason = job_limit(w, s, slot, partition)
    if reason != Reason.NONE:
        return reason
    return tres_limit(w, s, slot, partition, False, False)
