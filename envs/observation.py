"""What an agent sees: blocks of float32 rows, scaled to about [0, 1] and cut to the space.

A block is a fixed number of rows with named features; absent rows are zero and say so in their first feature,
`valid`. Nothing depends on the future or on hidden truth. Worlds with more nodes than the block has rows are shown
as groups of consecutive nodes; what does not fit into the queue block is summed up per tenant in `tenants`.

To add a feature or a block: its names in `FEATURES`, its lines in the `write_...` function, all in this file.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gangline.envs.core.compiled import helper, inlined
from gangline.envs.core.fair_share import decayed_usage, refresh_shares
from gangline.envs.core.preemption import loss_of_row
from gangline.envs.core.queue import heads_before, shortest
from gangline.envs.core.types import NEVER, NONE, ONE_GPU, NodeState
from gangline.envs.errors import GanglineError

LOW, HIGH = -1.0, 4.0  # bounds of every feature

FEATURES: dict[str, tuple[str, ...]] = {
    "cluster": (
        "hour_sin",
        "hour_cos",
        "weekday_sin",
        "weekday_cos",
        "held",  # GPUs, over the cluster
        "up",
        "demand",  # over the cluster, / 4
        "waiting_gpus",  # / 4
        "waiting_jobs",  # log scale
        "empty_nodes",  # share of nodes with all GPUs free
        "largest_hole",  # most free GPUs on one node, / 8
        "commands_here",  # commands at this instant, over the cap
        "time_left",  # of the episode
    ),
    "tenants": (
        "valid",
        "entitled",  # share of the cluster
        "held",
        "fair",  # water-filled share
        "over",  # (held - fair) over the cluster
        "usage",  # share of all decayed usage
        "demand",  # over the cluster, / 4
        "quota_left",  # entitlement not held, over the cluster
        "borrowed",  # held beyond entitlement
        "waiting_jobs",  # log scale
        "waiting_gpus",  # / 4
        "oldest_age",  # log scale
        "running_jobs",  # log scale
    ),
    "nodes": (
        "valid",
        "free",  # share of its GPUs
        "empty_gpus",  # / 8
        "speed",
        "is_up",
        "planned",
        "gpu_share",  # its GPUs over the cluster's
    ),
    "queue": (
        "valid",
        "is_oldest",
        "is_tenant_head",
        "is_shortest",
        "is_gang",
        "gpus",  # over the cluster
        "gpus_log",
        "pods",  # log scale
        "gpus_per_pod",  # / 8
        "age",  # log scale, since first submission
        "has_claim",
        "claim",  # log scale
        "restarts",  # log scale
        "fits",
        "can_make_room",
        "tenant",  # index / tenants
        "tenant_entitled",
        "tenant_held",
        "tenant_fair",
        "tenant_gap",  # (fair - held) over the cluster
        "tenant_waiting",  # / 4
        "tenant_usage",
        "stays_in_share",  # held + its GPUs <= fair
        "same_shape_waiting",  # log scale
    ),
    "running": (
        "valid",
        "gpus",
        "gpus_log",
        "run_time",  # log scale
        "loss",  # GPU time lost if stopped now: cluster-hours, log scale
        "may_be_stopped",
        "claim_left",  # log scale; 1 = endless
        "tenant",
        "tenant_over",
        "preemptions",  # log scale
    ),
}
BLOCKS = tuple(FEATURES)
NUM_CLUSTER = len(FEATURES["cluster"])
NUM_TENANT = len(FEATURES["tenants"])
NUM_NODE = len(FEATURES["nodes"])
NUM_QUEUE = len(FEATURES["queue"])
NUM_RUNNING = len(FEATURES["running"])

AT_OLDEST, AT_TENANT_HEAD, AT_SHORTEST = 1, 2, 4  # why a job is shown

HOUR_MS = 3_600_000.0
WEEK_MS = 7 * 24 * HOUR_MS


ROOT_OF_HALF_BITS = 0x3FE6A09E667F3BCD
TWO_TO_52, TWO_TO_52_BITS = 4503599627370496.0, 0x4330000000000000
LOGS_AT_ONCE = 16
LOG_OF_COUNT = np.log1p(np.arange(256.0))  # log(1 + n)


@helper
def log_1_plus(x: float) -> float:
    """log(1 + x) of x >= 0 to ten digits; an observation has a hundred of them.

    1 + x = m 2^e with m between the square roots of 1/2 and of 2, taken from its bits; log m = 2 artanh s with
    s = (m - 1) / (m + 1), which is below .172, as a series.
    """
    bits = np.float64(1.0 + x).view(np.int64) - ROOT_OF_HALF_BITS
    mantissa = np.int64((bits & 0x000FFFFFFFFFFFFF) + ROOT_OF_HALF_BITS).view(np.float64)
    exponent = np.int64((bits >> 52) | TWO_TO_52_BITS).view(np.float64) - TWO_TO_52  # a number's last bits
    s = (mantissa - 1.0) / (mantissa + 1.0)
    t = s * s
    series = 1.0 + t * (1.0 / 3 + t * (1.0 / 5 + t * (1.0 / 7 + t * (1.0 / 9 + t * (1.0 / 11)))))
    return exponent * 0.6931471805599453 + 2.0 * s * series


@helper
def take_logs(values: Any, count: int) -> None:
    """Replace the first `count` values x >= 0 by log(1 + x), in a loop of its own: a processor does several at once.

    What stands behind them is replaced too, up to whole `LOGS_AT_ONCE`: the last few one by one would take longer.
    """
    for i in range((count + LOGS_AT_ONCE - 1) // LOGS_AT_ONCE * LOGS_AT_ONCE):
        values[i] = log_1_plus(values[i])


@helper
def minutes(ms: int) -> float:
    """What is shown of a length of time, as log(1 + minutes) / 10: an hour is .41, a day .73, a month 1.07."""
    return max(ms, 0) * (1.0 / 60_000.0)


@helper
def log_count(n: int) -> float:
    """log(1 + n) of a whole number n >= 0."""
    return LOG_OF_COUNT[n] if n < 256 else log_1_plus(n)


@inlined
def log_gpus(gpus: int) -> float:
    """log(1 + GPUs) of an amount in milli-GPU."""
    whole = gpus // ONE_GPU
    return log_count(whole) if whole * ONE_GPU == gpus else log_1_plus(gpus / ONE_GPU)


@helper
def sine_and_cosine(turns: float) -> tuple[float, float]:
    """Of an angle of so many whole turns, to ten digits: Taylor's series within an eighth of a turn of an axis."""
    quarter = math.floor(4.0 * turns + 0.5)
    x = (4.0 * turns - quarter) * (math.pi / 2)
    t = x * x
    sine = x * (1 - t / 6 * (1 - t / 20 * (1 - t / 42 * (1 - t / 72 * (1 - t / 110)))))
    cosine = 1 - t / 2 * (1 - t / 12 * (1 - t / 30 * (1 - t / 56 * (1 - t / 90 * (1 - t / 132)))))
    axis = quarter & 3
    if axis & 1:
        sine, cosine = cosine, -sine
    return (-sine, -cosine) if axis & 2 else (sine, cosine)


@helper
def read_tenants(w: Any, env: Any, scratch: Any) -> None:
    """Fill `scratch.tenants`, once for all rows that say something of a tenant; the records are unchanged."""
    share = 1.0 / max(w.gpus_total, 1)
    step = 1.0 / max(w.num_tenants, 1) if env.tenant == NONE else 0.0
    total = 0.0
    for k in range(w.num_tenants):
        tenant = w.tenants[k]
        usage = decayed_usage(tenant.usage, tenant.held, w.now_ms - tenant.usage_ms, w.params.half_life_ms)
        scratch.usage[k] = usage
        total += usage
    for k in range(w.num_tenants):
        tenant = w.tenants[k]
        seen = scratch.tenants[k]
        seen.index = k * step
        seen.entitled = tenant.entitled * share
        seen.held = tenant.held * share
        seen.fair = tenant.fair * share
        seen.gap = (tenant.fair - tenant.held) * share
        seen.waiting = tenant.gpus_waiting * share * 0.25
        seen.usage = scratch.usage[k] / total if total > 0.0 else 0.0
        seen.over = (tenant.held - tenant.fair) * share
        seen.is_over = 1.0 if tenant.held > tenant.fair else 0.0


@helper
def write_cluster(w: Any, env: Any, agent: Any, out: Any) -> None:
    """Time, load and holes of the whole cluster: one row."""
    share = 1.0 / max(w.gpus_total, 1)
    phase = (w.now_ms + w.time_offset_ms + agent.epoch_ms) / HOUR_MS
    out[0], out[1] = sine_and_cosine(phase / 24.0)
    out[2], out[3] = sine_and_cosine(phase / 168.0)
    out[4] = w.gpus_held * share
    out[5] = w.gpus_up * share
    out[6] = w.demand * share * 0.25
    out[7] = w.gpus_waiting * share * 0.25
    out[8] = log_count(w.num_waiting) * 0.1
    empty = 0
    hole = 0
    for n in range(w.num_nodes):
        node = w.nodes[n]
        if node.state == NodeState.UP:
            empty += node.free_gpus == node.num_gpus
            hole = max(hole, node.free_gpus)
    out[9] = empty / max(w.num_nodes, 1)
    out[10] = hole / 8.0
    out[11] = env.commands_here / max(agent.max_commands_per_instant, 1)
    out[12] = (env.end_ms - w.now_ms) / max(env.end_ms - env.begin_ms, 1)


@helper
def write_tenants(w: Any, env: Any, scratch: Any, rows: int, out: Any) -> None:
    """One row per tenant: entitlement, what it holds, wants and has used, and what waits.

    A tenant's agent sees itself first, and of the others neither how many jobs they have nor how old those are.
    """
    share = 1.0 / max(w.gpus_total, 1)
    for row in range(min(w.num_tenants, rows)):
        k = row
        if env.tenant != NONE:  # its own first; of the others what a tenant is told
            k = env.tenant if row == 0 else (row - 1 if row <= env.tenant else row)
        tenant = w.tenants[k]
        seen = scratch.tenants[k]
        at = row * NUM_TENANT
        out[at] = 1.0
        out[at + 1] = seen.entitled
        out[at + 2] = seen.held
        out[at + 3] = seen.fair
        out[at + 4] = seen.over
        out[at + 5] = seen.usage
        out[at + 6] = tenant.demand * share * 0.25
        out[at + 7] = max(0, tenant.entitled - tenant.held) * share
        out[at + 8] = max(0, tenant.held - tenant.entitled) * share
        out[at + 10] = seen.waiting
        if env.tenant == NONE or env.tenant == k:
            out[at + 9] = log_count(tenant.num_waiting) * 0.1
            age = minutes(w.now_ms - env.oldest[k]) if env.oldest[k] < NEVER else 0.0
            out[at + 11] = log_1_plus(age) * 0.1
            out[at + 12] = log_count(tenant.num_running) * 0.1


@helper
def write_nodes(w: Any, rows: int, out: Any) -> None:
    """One row per node; in worlds with more nodes than rows, one per group of consecutive nodes, mean values."""
    share = 1.0 / max(w.gpus_total, 1)
    num_rows = min(rows, w.num_nodes)
    end = 0
    for i in range(num_rows):
        first = end
        end = i + 1 if num_rows == w.num_nodes else (i + 1) * w.num_nodes // num_rows
        gpus = 0
        free = 0
        empty = 0
        speed = 0
        up = 0
        planned = 0
        for n in range(first, end):
            node = w.nodes[n]
            gpus += node.num_gpus * ONE_GPU
            speed += node.speed
            if node.state == NodeState.UP:
                up += 1
                empty += node.free_gpus
                if w.params.gpu_resource != NONE:
                    free += node.idle[w.params.gpu_resource]
                    planned += node.planned[w.params.gpu_resource]
        part = 1.0 / (end - first)
        gpu_part = 1.0 / max(gpus, 1)
        at = i * NUM_NODE
        out[at] = 1.0
        out[at + 1] = free * gpu_part
        out[at + 2] = empty * part * 0.125
        out[at + 3] = speed * part * 0.001
        out[at + 4] = up * part
        out[at + 5] = planned * gpu_part
        out[at + 6] = gpus * share


@helper
def choose_queue_rows(w: Any, env: Any, agent: Any, oldest: Any, scratch: Any) -> None:
    """Choose the jobs of the queue block: oldest first, then the heads of the tenants not shown yet, then the shortest.

    Fills `env.queue_jobs`, `env.queue_why` and `oldest` (first submission of each tenant's oldest waiting job), unless
    they are of this very queue.
    """
    if env.rows_of == w.queue_version:
        return
    env.rows_of = w.queue_version
    num_groups = _read_heads(w, env, oldest, scratch)
    count = _choose_oldest(w, env, agent, num_groups, scratch)
    for k in range(w.num_tenants):
        if env.tenant_head[k] != NONE:
            place = w.groups[env.tenant_head[k]].head_place
            count = _show(w, env, count, agent.queue_rows, place, AT_TENANT_HEAD)
    env.num_queue_rows = _choose_shortest(w, env, agent, num_groups, count, scratch)


@helper
def _read_heads(w: Any, env: Any, oldest: Any, scratch: Any) -> int:
    """Note the head and the smallest claim of every group that waits, in order, the first job's last, and each tenant's
    first; returns their number.
    """
    for k in range(w.num_tenants):
        oldest[k] = NEVER
        env.tenant_head[k] = NONE
    count = 0
    g = w.first_group
    while g != NONE:
        group = w.groups[g]
        if env.tenant != NONE and env.tenant != group.tenant:
            g = group.next
            continue
        scratch.cursor[count] = group.head_place
        scratch.cursor_key[count] = group.head_key
        scratch.cursor_row[count] = group.head_row
        scratch.cursor_group[count] = g
        scratch.cursor_claim[count] = group.least_claim_ms
        place = count  # the list begins with the group that was the last to be empty
        while place > 0 and _is_before(scratch, scratch.cursor_order[place - 1], count):
            scratch.cursor_order[place] = scratch.cursor_order[place - 1]
            place -= 1
        scratch.cursor_order[place] = count
        k = group.tenant
        if env.tenant_head[k] == NONE or heads_before(group, w.groups[env.tenant_head[k]]):
            env.tenant_head[k] = g
        oldest[k] = min(oldest[k], w.waiting[group.head_place].submit_ms)
        count += 1
        g = group.next
    return count


@helper
def _choose_oldest(w: Any, env: Any, agent: Any, num_groups: int, scratch: Any) -> int:
    """Show the first jobs over all groups, merging their orders; returns how many."""
    count = 0
    left = num_groups
    while count < agent.num_oldest and left > 0:
        best = scratch.cursor_order[left - 1]
        row = w.waiting[scratch.cursor[best]]
        env.queue_jobs[count] = row.job
        env.queue_at[count] = scratch.cursor[best]
        env.queue_groups[count] = row.group
        env.queue_why[count] = AT_OLDEST
        count += 1
        after = row.next
        if after == NONE:
            left -= 1
            continue
        scratch.cursor[best] = after
        scratch.cursor_key[best] = w.waiting[after].order_key
        scratch.cursor_row[best] = w.waiting[after].row
        place = left - 1
        while place > 0 and _is_before(scratch, scratch.cursor_order[place - 1], best):
            scratch.cursor_order[place] = scratch.cursor_order[place - 1]
            place -= 1
        scratch.cursor_order[place] = best
    return count


@helper
def _is_before(scratch: Any, a: int, b: int) -> bool:
    """Whether the next job of cursor a comes before that of cursor b."""
    if scratch.cursor_key[a] != scratch.cursor_key[b]:
        return scratch.cursor_key[a] < scratch.cursor_key[b]
    return scratch.cursor_row[a] < scratch.cursor_row[b]


@helper
def _choose_shortest(w: Any, env: Any, agent: Any, num_groups: int, count: int, scratch: Any) -> int:
    """Show the jobs with the smallest claims, equal ones by row, one of each group: the others ask for the same.

    Returns the number of rows.
    """
    for _ in range(agent.num_shortest):
        best = NONE
        best_place = NONE
        for i in range(num_groups):
            if best == NONE or scratch.cursor_claim[i] < scratch.cursor_claim[best]:
                best = i
                best_place = NONE
            elif scratch.cursor_claim[i] == scratch.cursor_claim[best] and scratch.cursor_claim[i] < NEVER:
                if best_place == NONE:
                    best_place = shortest(w, scratch.cursor_group[best])
                place = shortest(w, scratch.cursor_group[i])
                if w.waiting[place].row < w.waiting[best_place].row:
                    best = i
                    best_place = place
        if best == NONE or scratch.cursor_claim[best] >= NEVER:
            break
        if best_place == NONE:
            best_place = shortest(w, scratch.cursor_group[best])
        scratch.cursor_claim[best] = NEVER
        count = _show(w, env, count, agent.queue_rows, best_place, AT_SHORTEST)
    return count


@helper
def _show(w: Any, env: Any, count: int, most: int, place: int, why: int) -> int:
    """Add a waiting job to the rows, or the reason to the row that it has; returns the number of rows."""
    for i in range(count):
        if env.queue_at[i] == place:
            env.queue_why[i] |= why
            return count
    if count >= most:
        return count
    env.queue_jobs[count] = w.waiting[place].job
    env.queue_at[count] = place
    env.queue_groups[count] = w.waiting[place].group
    env.queue_why[count] = why
    return count + 1


@helper
def write_queue(w: Any, env: Any, scratch: Any, out: Any) -> None:
    """One row per job that `choose_queue_rows` has chosen; the masks must have been computed."""
    share = 1.0 / max(w.gpus_total, 1)
    logs = scratch.logs
    for i in range(env.num_queue_rows):
        job = w.waiting[env.queue_at[i]]
        logs[2 * i] = minutes(w.now_ms - job.submit_ms)
        logs[2 * i + 1] = minutes(job.claim_ms) if job.claim_ms < NEVER else 0.0
    take_logs(logs, 2 * env.num_queue_rows)
    for i in range(env.num_queue_rows):
        job = w.waiting[env.queue_at[i]]
        tenant = w.tenants[job.tenant]
        seen = scratch.tenants[job.tenant]
        why = env.queue_why[i]
        at = i * NUM_QUEUE
        out[at] = 1.0
        out[at + 1] = 1.0 if why & AT_OLDEST else 0.0
        out[at + 2] = 1.0 if why & AT_TENANT_HEAD else 0.0
        out[at + 3] = 1.0 if why & AT_SHORTEST else 0.0
        out[at + 4] = 1.0 if job.is_gang else 0.0
        out[at + 5] = job.gpus_wanted * share
        out[at + 6] = log_gpus(job.gpus_wanted) * 0.2
        out[at + 7] = log_count(job.num_wanted) * 0.1
        out[at + 8] = job.gpus_wanted / (max(job.num_wanted, 1) * (8.0 * ONE_GPU))
        out[at + 9] = logs[2 * i] * 0.1
        out[at + 10] = 1.0 if job.claim_ms < NEVER else 0.0
        out[at + 11] = logs[2 * i + 1] * 0.1
        out[at + 12] = log_count(job.starts) * 0.1
        out[at + 13] = env.fits[i]
        out[at + 14] = env.can_make_room[i]
        out[at + 15] = seen.index
        out[at + 16] = seen.entitled
        out[at + 17] = seen.held
        out[at + 18] = seen.fair
        out[at + 19] = seen.gap
        out[at + 20] = seen.waiting
        out[at + 21] = seen.usage
        out[at + 22] = 1.0 if tenant.held + job.gpus_wanted <= tenant.fair else 0.0
        out[at + 23] = log_count(w.groups[job.group].num_waiting) * 0.1


@helper
def choose_running_rows(w: Any, env: Any, agent: Any) -> None:
    """Choose the running jobs of the running block: those that lose least if stopped, in that order; of equals those
    that run longer first.

    `env.running_at` keeps all of them, the chosen first, so that the next choice finds them nearly in order.
    """
    order = env.running_at
    count = 0
    keeps_all = w.num_running <= len(order)
    if keeps_all:
        _keep_places(w, env)
    else:
        env.num_places = 0
    for turn in range(w.num_running):
        i = order[turn] if keeps_all else w.num_running - 1 - turn
        row = w.running[i]
        if not row.may_be_shown or (env.tenant != NONE and env.tenant != row.tenant):
            continue
        loss = loss_of_row(w, row)
        if count < agent.running_rows:
            count += 1
        elif count == 0 or not _loses_less(w, env, loss, row.listed, count - 1):
            continue
        place = count - 1
        if keeps_all:
            order[turn] = order[place]  # who makes room, or nobody's place yet
        while place > 0 and _loses_less(w, env, loss, row.listed, place - 1):
            env.running_loss[place] = env.running_loss[place - 1]
            order[place] = order[place - 1]
            place -= 1
        env.running_loss[place] = loss
        order[place] = i
    for place in range(count):
        env.running_jobs[place] = w.running[order[place]].job
    env.num_running_rows = count


@helper
def _keep_places(w: Any, env: Any) -> None:
    """Make `env.running_at` an order of the table of running jobs again, which may have become longer or shorter."""
    if env.num_places > w.num_running:
        kept = 0
        for k in range(env.num_places):
            if env.running_at[k] < w.num_running:
                env.running_at[kept] = env.running_at[k]
                kept += 1
    for i in range(env.num_places, w.num_running):
        env.running_at[i] = i
    env.num_places = w.num_running


@helper
def _loses_less(w: Any, env: Any, loss: int, listed: int, place: int) -> bool:
    """Whether a running job comes before the one of a row that is chosen so far."""
    other = env.running_loss[place]
    return loss < other or (loss == other and listed < w.running[env.running_at[place]].listed)


@helper
def write_running(w: Any, env: Any, agent: Any, scratch: Any, out: Any) -> None:
    """One row per running job that `choose_running_rows` has just chosen."""
    share = 1.0 / max(w.gpus_total, 1)
    logs = scratch.logs
    for i in range(env.num_running_rows):
        job = w.running[env.running_at[i]]
        run_ms = w.now_ms - job.start_ms
        logs[3 * i] = minutes(run_ms)
        logs[3 * i + 1] = max(env.running_loss[i] * share * (1000.0 / HOUR_MS), 0.0)
        logs[3 * i + 2] = minutes(job.claim_ms - run_ms) if job.claim_ms < NEVER else 0.0
    take_logs(logs, 3 * env.num_running_rows)
    for i in range(env.num_running_rows):
        job = w.running[env.running_at[i]]
        seen = scratch.tenants[job.tenant]
        run_ms = w.now_ms - job.start_ms
        at = i * NUM_RUNNING
        out[at] = 1.0
        out[at + 1] = job.gpus_bound * share
        out[at + 2] = log_gpus(job.gpus_bound) * 0.2
        out[at + 3] = logs[3 * i] * 0.1
        out[at + 4] = logs[3 * i + 1] * 0.1
        out[at + 5] = seen.is_over if run_ms >= agent.min_run_ms else 0.0
        out[at + 6] = 1.0 if job.claim_ms >= NEVER else min(1.0, logs[3 * i + 2] * 0.1)
        out[at + 7] = seen.index
        out[at + 8] = seen.over
        out[at + 9] = log_count(job.preemptions) * 0.1


@helper
def write_observation(w: Any, env: Any, agent: Any, scratch: Any, out: Any) -> None:
    """Write every block that the agent's parameters ask for, one after another, and cut to [LOW, HIGH]."""
    refresh_shares(w)
    for i in range(len(out)):
        out[i] = 0.0
    if agent.tenant_rows > 0 or agent.shows_queue or agent.shows_running:
        read_tenants(w, env, scratch)
    at = 0
    if agent.shows_cluster:
        write_cluster(w, env, agent, out[at : at + NUM_CLUSTER])
        at += NUM_CLUSTER
    if agent.tenant_rows > 0:
        write_tenants(w, env, scratch, agent.tenant_rows, out[at : at + agent.tenant_rows * NUM_TENANT])
        at += agent.tenant_rows * NUM_TENANT
    if agent.node_rows > 0:
        write_nodes(w, agent.node_rows, out[at : at + agent.node_rows * NUM_NODE])
        at += agent.node_rows * NUM_NODE
    if agent.shows_queue:
        write_queue(w, env, scratch, out[at : at + agent.queue_rows * NUM_QUEUE])
        at += agent.queue_rows * NUM_QUEUE
    if agent.shows_running:
        choose_running_rows(w, env, agent)
        write_running(w, env, agent, scratch, out[at : at + agent.running_rows * NUM_RUNNING])
        at += agent.running_rows * NUM_RUNNING
    for i in range(at):
        out[i] = min(max(out[i], np.float32(LOW)), np.float32(HIGH))


def block_shapes(agent: np.void) -> dict[str, tuple[int, ...]]:
    """Shape of each block that is shown, in the order in which they are written."""
    shapes: dict[str, tuple[int, ...]] = {}
    if agent["shows_cluster"]:
        shapes["cluster"] = (NUM_CLUSTER,)
    if agent["tenant_rows"]:
        shapes["tenants"] = (int(agent["tenant_rows"]), NUM_TENANT)
    if agent["node_rows"]:
        shapes["nodes"] = (int(agent["node_rows"]), NUM_NODE)
    if agent["shows_queue"]:
        shapes["queue"] = (int(agent["queue_rows"]), NUM_QUEUE)
    if agent["shows_running"]:
        shapes["running"] = (int(agent["running_rows"]), NUM_RUNNING)
    return shapes


def own_block(path: str) -> Callable[[Any], np.ndarray]:
    """A block of your own package by its dotted path: `block(view: ClusterView) -> array` of one fixed shape.

    Raises:
        GanglineError: if it cannot be imported or called.
    """
    module_name, _, function_name = path.rpartition(".")
    try:
        block = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise GanglineError(
            f"observation block {path!r} cannot be imported ({error}), expected package.function"
        ) from None
    if not callable(block):
        raise GanglineError(f"observation block {path!r} is {block!r}, expected a function of a ClusterView")
    found: Callable[[Any], np.ndarray] = block
    return found


def flat_size(agent: np.void) -> int:
    """Number of float32 values of all blocks."""
    return sum(int(np.prod(shape)) for shape in block_shapes(agent).values())


def split(flat: np.ndarray, agent: np.void) -> dict[str, np.ndarray]:
    """Blocks of a flat observation, shape (..., flat_size), as views by name."""
    blocks = {}
    at = 0
    for name, shape in block_shapes(agent).items():
        size = int(np.prod(shape))
        blocks[name] = flat[..., at : at + size].reshape(*flat.shape[:-1], *shape)
        at += size
    return blocks
