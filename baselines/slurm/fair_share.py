"""Who has used how much and whose turn it therefore is: usage as Slurm charges it, Fair Tree, classic fair share.

Source: Slurm src/plugins/priority/multifactor/{fair_tree.c,priority_multifactor.c}, src/common/assoc_mgr.c.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gangline.baselines.slurm.tables import NUM_TRES
from gangline.envs.core.compiled import helper
from gangline.envs.core.fair_share import slurm_decay
from gangline.envs.core.types import NEVER, NONE

# ---------------------------------------------------------------------------------------------------------------
# Usage
# ---------------------------------------------------------------------------------------------------------------


@helper
def decay_usage(s: Any, elapsed_s: int) -> None:
    """Let every association's and QOS's usage fade."""
    factor = slurm_decay(elapsed_s, s.own[0].half_life_s)
    if factor == 1.0:
        return
    for a in range(s.own[0].num_assocs):
        assoc = s.assocs[a]
        assoc.raw *= factor
        for t in range(NUM_TRES):
            assoc.raw_tres[t] *= factor
        assoc.raw_wall *= factor
    for q in range(s.own[0].num_qos):
        qos = s.qos[q]
        if not qos.no_decay:
            qos.raw *= factor
            for t in range(NUM_TRES):
                qos.raw_tres[t] *= factor
            qos.raw_wall *= factor


@helper
def charge_job(s: Any, slot: int, until_s: int) -> None:
    """Charge a job's run since it started, or since the last tick, to its association and all above it.

    New usage fades for the whole interval although it came about gradually; what is charged at a job's end fades
    once more at the next tick.
    """
    own = s.own[0]
    job = s.slots[slot]
    ran_s = until_s - max(job.start_s, own.tick_s)
    if ran_s <= 0:
        return
    seconds = ran_s * slurm_decay(ran_s, own.half_life_s)
    usage_factor = s.qos[job.qos].usage_factor
    used = seconds * job.billing * usage_factor
    for i in range(2):
        q = job.qos if i == 0 else s.partitions[job.partition].qos
        if q == NONE or (i == 1 and q == job.qos):
            break
        qos = s.qos[q]
        qos.raw += used
        qos.raw_wall += seconds * usage_factor
        for t in range(NUM_TRES):
            if job.tres[t] > 0:
                qos.raw_tres[t] += seconds * job.tres[t] * usage_factor
    a = job.assoc
    while a >= 0:
        assoc = s.assocs[a]
        assoc.raw += used
        assoc.raw_wall += seconds * usage_factor
        for t in range(NUM_TRES):
            if job.tres[t] > 0:
                assoc.raw_tres[t] += seconds * job.tres[t] * usage_factor
        a = assoc.parent


@helper
def clear_usage(s: Any) -> None:
    """PriorityUsageResetPeriod: everything is forgotten."""
    for a in range(s.own[0].num_assocs):
        s.assocs[a].raw = 0.0
        for t in range(NUM_TRES):
            s.assocs[a].raw_tres[t] = 0.0
        s.assocs[a].raw_wall = 0.0
    for q in range(s.own[0].num_qos):
        s.qos[q].raw = 0.0
        for t in range(NUM_TRES):
            s.qos[q].raw_tres[t] = 0.0
        s.qos[q].raw_wall = 0.0


@helper
def refresh_fair_share(s: Any) -> None:
    """Bring every association's factor in line with its usage."""
    if s.own[0].is_classic:
        refresh_classic(s)
        for a in range(s.own[0].num_assocs):
            take_classic_usage(s, a)
    else:
        refresh_fair_tree(s)


# ---------------------------------------------------------------------------------------------------------------
# Classic (NO_FAIR_TREE)
# ---------------------------------------------------------------------------------------------------------------


@helper
def refresh_classic(s: Any) -> None:
    """Effective usage of the accounts as of now; that of users is taken when it is first needed."""
    for a in range(s.own[0].num_assocs):
        s.assocs[a].is_taken = False
        if not s.assocs[a].is_user:
            take_classic_usage(s, a)


@helper
def take_classic_usage(s: Any, a: int) -> None:
    """Effective usage and factor of one association, its parents' being known. It stands until the next tick."""
    own = s.own[0]
    assoc = s.assocs[a]
    if assoc.is_taken:
        return
    assoc.is_taken = True
    total = s.assocs[own.root].raw
    assoc.norm_usage = min(assoc.raw / total, 1.0) if total > 0.0 else 0.0
    if a == own.root:
        assoc.effective = 1.0
    else:
        above = s.assocs[assoc.share_parent]
        if assoc.is_parent_share:
            assoc.effective = above.effective
        elif assoc.share_parent == own.root:
            assoc.effective = assoc.norm_usage
        elif assoc.level_shares <= 0.0:
            assoc.effective = above.effective
        else:
            share = assoc.shares / assoc.level_shares
            assoc.effective = assoc.norm_usage + (above.effective - assoc.norm_usage) * share
    if assoc.norm_shares <= 0.0:
        assoc.factor = 0.0
    else:
        assoc.factor = math.pow(2.0, -((assoc.effective / assoc.norm_shares) / own.dampening))


# ---------------------------------------------------------------------------------------------------------------
# Fair Tree
# ---------------------------------------------------------------------------------------------------------------


@helper
def refresh_fair_tree(s: Any) -> None:
    """Rank the users by a walk of the tree, best-served level by level; a user's factor is its rank / users."""
    own = s.own[0]
    total = s.assocs[own.root].raw
    for a in range(s.own[0].num_assocs):
        assoc = s.assocs[a]
        assoc.norm_usage = min(assoc.raw / total, 1.0) if total > 0.0 else 0.0
        if a == own.root:
            assoc.effective = 1.0
        else:
            measure_level(assoc, s.assocs[assoc.share_parent].raw)
    rank_users(s)


@helper
def measure_level(assoc: Any, parent_raw: float) -> None:
    """Level fair share S / U, in the 80 bits that Slurm computes it with: ties are ties of all 64 mantissa bits."""
    share = assoc.shares / assoc.level_shares if assoc.level_shares > 0.0 else 0.0
    assoc.effective = assoc.raw / parent_raw if parent_raw > 0.0 else 0.0
    if not assoc.is_parent_share and share == 0.0:
        assoc.level_fs = 0.0
        assoc.level_exponent = -NEVER
        assoc.level_mantissa = np.uint64(0)
    elif assoc.is_parent_share or assoc.effective == 0.0:
        assoc.level_fs = math.inf
        assoc.level_exponent = NEVER
        assoc.level_mantissa = np.uint64(0)
    else:
        used = extended_quotient(extended(assoc.raw), extended(parent_raw))
        exponent, mantissa = extended_quotient(extended(share), used)
        assoc.level_fs = share / assoc.effective
        assoc.level_exponent = exponent
        assoc.level_mantissa = mantissa


@helper
def extended(value: float) -> Any:
    """A positive double as (exponent, mantissa): mantissa x 2^exponent with the top of 64 bits set."""
    fraction, exponent = math.frexp(value)
    return exponent - 64, np.uint64(np.int64(fraction * 9007199254740992.0)) << np.uint64(11)


@helper
def extended_quotient(a: Any, b: Any) -> Any:
    """a / b rounded to 64 bits of mantissa, half to even: what the x87 unit does with a C `long double`."""
    one = np.uint64(1)
    left = a[1]
    divisor = b[1]
    exponent = a[0] - b[0] - 63
    carry = np.uint64(0)
    if left < divisor:
        carry = left >> np.uint64(63)
        left = left << one
        exponent -= 1
    quotient = np.uint64(0)
    for _ in range(64):
        quotient = quotient << one
        if carry != 0 or left >= divisor:
            quotient = quotient | one
            left = left - divisor
        carry = left >> np.uint64(63)
        left = left << one
    is_more_than_half = carry != 0 or left > divisor
    is_half = carry == 0 and left == divisor
    if is_more_than_half or (is_half and (quotient & one) != 0):
        quotient = quotient + one
        if quotient == 0:
            quotient = one << np.uint64(63)
            exponent += 1
    return exponent, quotient


@helper
def is_tied(a: Any, b: Any) -> bool:
    """Whether two level fair shares are the same to the last bit."""
    return a.level_exponent == b.level_exponent and a.level_mantissa == b.level_mantissa


@helper
def goes_before(a: Any, b: Any) -> bool:
    """Order within a level: level fair share, users before accounts, list order."""
    if a.level_exponent != b.level_exponent:
        return a.level_exponent > b.level_exponent
    if a.level_mantissa != b.level_mantissa:
        return a.level_mantissa > b.level_mantissa
    if a.is_user != b.is_user:
        return a.is_user
    return a.place < b.place


@helper
def sort_level(s: Any, a: int) -> None:
    """Sort an account's level. It was in order at the last tick, so that few have to move."""
    first = s.assocs[a].first_child
    for i in range(first + 1, first + s.assocs[a].num_children):
        moved = s.levels[i]
        at = i
        while at > first and goes_before(s.assocs[moved], s.assocs[s.levels[at - 1]]):
            s.levels[at] = s.levels[at - 1]
            at -= 1
        s.levels[at] = moved


@helper
def rank_users(s: Any) -> None:
    """Walk the levels depth first. A tie gives the same rank; the next who is not tied gets what is left.

    Tied accounts are not merged: the second is walked after the first, and its first user inherits the rank that
    stands then. Slurm's comments say otherwise, its code does this.
    """
    own = s.own[0]
    num_users = own.num_users
    rank = num_users
    rank_no_tie = num_users
    depth = 0
    stack = s.stack  # three cells per depth: account, next child, whether its first child is tied
    stack[0] = own.root
    stack[1] = 0
    stack[2] = 0
    sort_level(s, own.root)
    while depth >= 0:
        above = s.assocs[stack[3 * depth]]
        i = stack[3 * depth + 1]
        if i >= above.num_children:
            depth -= 1
            continue
        stack[3 * depth + 1] += 1
        at = s.levels[above.first_child + i]
        assoc = s.assocs[at]
        if i == 0:
            tied = stack[3 * depth + 2] != 0
        else:
            tied = is_tied(s.assocs[s.levels[above.first_child + i - 1]], assoc)
        if assoc.is_user:
            if not tied:
                rank = rank_no_tie
            assoc.factor = rank / num_users
            rank_no_tie -= 1
        else:
            sort_level(s, at)
            depth += 1
            stack[3 * depth] = at
            stack[3 * depth + 1] = 0
            stack[3 * depth + 2] = 1 if tied else 0
