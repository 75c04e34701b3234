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

from gangline.envs.core.compiled import helper
from gangline.envs.core.fair_share import decayed_usage, refresh_shares
from gangline.envs.core.preemption import visible_loss
from gangline.envs.core.queue import following, precedes, shortest
from gangline.envs.core.types import NEVER, NONE, ONE_GPU, JobKind, JobState, NodeState
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


@helper
def log_1_plus(x: float) -> float:
    """log(1 + x) of x >= 0 to ten digits, the same on every machine; an observation has a hundred of them.

    1 + x = m 2^e with m in [.71, 1.41], taken from its bits; log m = 2 artanh((m - 1) / (m + 1)) as a series.
    """
    bits = np.float64(1.0 + x).view(np.int64)
    exponent = (bits >> 52) - 1023
    mantissa = np.int64((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)
    if mantissa > 1.4142135623730951:
        mantissa *= 0.5
        exponent += 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    series = 1.0 + z * (1.0 / 3.0 + z * (1.0 / 5.0 + z * (1.0 / 7.0 + z * (1.0 / 9.0 + z * (1.0 / 11.0)))))
    return exponent * 0.6931471805599453 + 2.0 * s * series


@helper
def log_scale(x: float) -> float:
    """log(1 + x) / 10: 0 .. about 2.5 for counts up to e^25."""
    return log_1_plus(max(x, 0.0)) * 0.1


@helper
def log_hours(ms: float) -> float:
    """log(1 + minutes) / 10: an hour is .41, a day .73, a month 1.07."""
    return log_1_plus(max(ms, 0.0) / 60_000.0) * 0.1


@helper
def read_usage_shares(w: Any, shares: Any) -> None:
    """(num_tenants,) each tenant's share of all decayed usage now; the records are unchanged."""
    total = 0.0
    for k in range(w.num_tenants):
        record = w.tenants[k]
        shares[k] = decayed_usage(record.usage, record.held, w.now_ms - record.usage_ms, w.params.half_life_ms)
        total += shares[k]
    for k in range(w.num_tenants):
        shares[k] = shares[k] / total if total > 0.0 else 0.0


@helper
def write_cluster(w: Any, env: Any, agent: Any, out: Any) -> None:
    """Time, load and holes of the whole cluster: one row."""
    total = max(w.gpus_total, 1)
    phase = (w.now_ms + w.time_offset_ms + agent.epoch_ms) / HOUR_MS
    out[0] = math.sin(phase * (2.0 * math.pi / 24.0))
    out[1] = math.cos(phase * (2.0 * math.pi / 24.0))
    out[2] = math.sin(phase * (2.0 * math.pi / 168.0))
    out[3] = math.cos(phase * (2.0 * math.pi / 168.0))
    out[4] = w.gpus_held / total
    out[5] = w.gpus_up / total
    out[6] = w.demand / total / 4.0
    out[7] = w.gpus_waiting / total / 4.0
    out[8] = log_scale(w.num_waiting)
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
def write_tenants(w: Any, env: Any, rows: int, out: Any) -> None:
    """One row per tenant: entitlement, what it holds, wants and has used, and what waits."""
    total = float(max(w.gpus_total, 1))
    for k in range(min(w.num_tenants, rows)):
        tenant = w.tenants[k]
        at = k * NUM_TENANT
        out[at] = 1.0
        out[at + 1] = tenant.entitled / total
        out[at + 2] = tenant.held / total
        out[at + 3] = tenant.fair / total
        out[at + 4] = (tenant.held - tenant.fair) / total
        out[at + 5] = env.usage_share[k]
        out[at + 6] = tenant.demand / total / 4.0
        out[at + 7] = max(0, tenant.entitled - tenant.held) / total
        out[at + 8] = max(0, tenant.held - tenant.entitled) / total
        out[at + 9] = log_scale(tenant.num_waiting)
        out[at + 10] = tenant.gpus_waiting / total / 4.0
        out[at + 11] = log_hours(w.now_ms - env.oldest[k]) if env.oldest[k] < NEVER else 0.0
        out[at + 12] = log_scale(tenant.num_running)


@helper
def write_nodes(w: Any, rows: int, out: Any) -> None:
    """One row per node; in worlds with more nodes than rows, one per group of consecutive nodes, mean values."""
    total = float(max(w.gpus_total, 1))
    num_rows = min(rows, w.num_nodes)
    for i in range(num_rows):
        first = i * w.num_nodes // num_rows
        end = (i + 1) * w.num_nodes // num_rows
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
        count = end - first
        at = i * NUM_NODE
        out[at] = 1.0
        out[at + 1] = free / max(gpus, 1)
        out[at + 2] = empty / count / 8.0
        out[at + 3] = speed / count / 1000.0
        out[at + 4] = up / count
        out[at + 5] = planned / max(gpus, 1)
        out[at + 6] = gpus / total


@helper
def choose_queue_rows(w: Any, env: Any, agent: Any, oldest: Any) -> None:
    """Choose the jobs of the queue block: oldest first, then the heads of the tenants not shown yet, then the shortest.

    Fills `env.queue_jobs`, `env.queue_why` and `oldest` (first submission of each tenant's oldest waiting job).
    """
    count = 0
    for k in range(w.num_tenants):
        oldest[k] = NEVER
        env.tenant_head[k] = NONE
    g = w.first_group
    while g != NONE:
        head = w.groups[g].head
        env.cursor[g] = head
        k = w.groups[g].tenant
        best = env.tenant_head[k]
        if best == NONE or precedes(w.jobs[head], w.jobs[best]):
            env.tenant_head[k] = head
        oldest[k] = min(oldest[k], w.jobs[head].submit_ms)
        g = w.groups[g].next
    while count < agent.num_oldest:
        best = NONE
        g = w.first_group
        while g != NONE:
            at = env.cursor[g]
            if at != NONE and (best == NONE or precedes(w.jobs[at], w.jobs[best])):
                best = at
            g = w.groups[g].next
        if best == NONE:
            break
        env.cursor[w.jobs[best].group] = following(w, best)
        env.queue_jobs[count] = best
        env.queue_why[count] = AT_OLDEST
        count += 1
    for k in range(w.num_tenants):
        if env.tenant_head[k] != NONE:
            count = _show(env, count, agent.queue_rows, env.tenant_head[k], AT_TENANT_HEAD)
    for _ in range(agent.num_shortest):
        best = NONE
        g = w.first_group
        while g != NONE:
            if env.cursor[g] > NONE - 1:
                at = shortest(w, g)
                if best == NONE or _is_shorter(w.jobs[at], w.jobs[best]):
                    best = at
            g = w.groups[g].next
        if best == NONE or w.jobs[best].claim_ms >= NEVER:
            break
        env.cursor[w.jobs[best].group] = NONE - 1  # one of each group: the others ask for the same
        count = _show(env, count, agent.queue_rows, best, AT_SHORTEST)
    env.num_queue_rows = count


@helper
def _is_shorter(a: Any, b: Any) -> bool:
    """Whether job a has the smaller claim; equal claims by row."""
    if a.claim_ms != b.claim_ms:
        return a.claim_ms < b.claim_ms
    return a.row < b.row


@helper
def _show(env: Any, count: int, most: int, slot: int, why: int) -> int:
    """Add a job to the rows, or the reason to the row that it has; returns the number of rows."""
    for i in range(count):
        if env.queue_jobs[i] == slot:
            env.queue_why[i] |= why
            return count
    if count >= most:
        return count
    env.queue_jobs[count] = slot
    env.queue_why[count] = why
    return count + 1


@helper
def write_queue(w: Any, env: Any, out: Any) -> None:
    """One row per job that `choose_queue_rows` has chosen; the masks must have been computed."""
    total = float(max(w.gpus_total, 1))
    for i in range(env.num_queue_rows):
        job = w.jobs[env.queue_jobs[i]]
        tenant = w.tenants[job.tenant]
        why = env.queue_why[i]
        at = i * NUM_QUEUE
        out[at] = 1.0
        out[at + 1] = 1.0 if why & AT_OLDEST else 0.0
        out[at + 2] = 1.0 if why & AT_TENANT_HEAD else 0.0
        out[at + 3] = 1.0 if why & AT_SHORTEST else 0.0
        out[at + 4] = 1.0 if job.kind == JobKind.TRAINING and job.min_member > 1 else 0.0
        out[at + 5] = job.gpus_wanted / total
        out[at + 6] = log_1_plus(job.gpus_wanted / ONE_GPU) * 0.2
        out[at + 7] = log_scale(job.num_wanted)
        out[at + 8] = job.gpus_wanted / max(job.num_wanted, 1) / (8.0 * ONE_GPU)
        out[at + 9] = log_hours(w.now_ms - job.submit_ms)
        out[at + 10] = 1.0 if job.claim_ms < NEVER else 0.0
        out[at + 11] = log_hours(job.claim_ms) if job.claim_ms < NEVER else 0.0
        out[at + 12] = log_scale(job.starts)
        out[at + 13] = env.fits[i]
        out[at + 14] = env.can_make_room[i]
        out[at + 15] = job.tenant / max(w.num_tenants, 1)
        out[at + 16] = tenant.entitled / total
        out[at + 17] = tenant.held / total
        out[at + 18] = tenant.fair / total
        out[at + 19] = (tenant.fair - tenant.held) / total
        out[at + 20] = tenant.gpus_waiting / total / 4.0
        out[at + 21] = env.usage_share[job.tenant]
        out[at + 22] = 1.0 if tenant.held + job.gpus_wanted <= tenant.fair else 0.0
        out[at + 23] = log_scale(w.groups[job.group].num_waiting)


@helper
def choose_running_rows(w: Any, env: Any, agent: Any) -> None:
    """Choose the running jobs of the running block: those that lose least if stopped, in that order."""
    count = 0
    at = w.first_running
    while at != NONE:
        job = w.jobs[at]
        if job.state == JobState.RUNNING and job.preemptible:
            loss = visible_loss(w, job)
            if count < agent.running_rows or loss < env.running_loss[count - 1]:
                place = min(count, agent.running_rows - 1)
                while place > 0 and env.running_loss[place - 1] > loss:
                    env.running_loss[place] = env.running_loss[place - 1]
                    env.running_jobs[place] = env.running_jobs[place - 1]
                    place -= 1
                env.running_loss[place] = loss
                env.running_jobs[place] = at
                count = min(count + 1, agent.running_rows)
        at = job.next
    env.num_running_rows = count


@helper
def write_running(w: Any, env: Any, agent: Any, out: Any) -> None:
    """One row per running job that `choose_running_rows` has chosen."""
    total = float(max(w.gpus_total, 1))
    for i in range(env.num_running_rows):
        job = w.jobs[env.running_jobs[i]]
        tenant = w.tenants[job.tenant]
        run_ms = w.now_ms - job.start_ms
        at = i * NUM_RUNNING
        out[at] = 1.0
        out[at + 1] = job.gpus_bound / total
        out[at + 2] = log_1_plus(job.gpus_bound / ONE_GPU) * 0.2
        out[at + 3] = log_hours(run_ms)
        out[at + 4] = log_scale(env.running_loss[i] / total / HOUR_MS * 1000.0)
        out[at + 5] = 1.0 if run_ms >= agent.min_run_ms and tenant.held > tenant.fair else 0.0
        out[at + 6] = 1.0 if job.claim_ms >= NEVER else min(1.0, log_hours(job.claim_ms - run_ms))
        out[at + 7] = job.tenant / max(w.num_tenants, 1)
        out[at + 8] = (tenant.held - tenant.fair) / total
        out[at + 9] = log_scale(job.preemptions)


@helper
def write_observation(w: Any, env: Any, agent: Any, out: Any) -> None:
    """Write every block that the agent's parameters ask for, one after another, and cut to [LOW, HIGH]."""
    refresh_shares(w)
    for i in range(len(out)):
        out[i] = 0.0
    if agent.tenant_rows > 0 or agent.shows_queue:
        read_usage_shares(w, env.usage_share)
    at = 0
    if agent.shows_cluster:
        write_cluster(w, env, agent, out[at : at + NUM_CLUSTER])
        at += NUM_CLUSTER
    if agent.tenant_rows > 0:
        write_tenants(w, env, agent.tenant_rows, out[at : at + agent.tenant_rows * NUM_TENANT])
        at += agent.tenant_rows * NUM_TENANT
    if agent.node_rows > 0:
        write_nodes(w, agent.node_rows, out[at : at + agent.node_rows * NUM_NODE])
        at += agent.node_rows * NUM_NODE
    if agent.shows_queue:
        write_queue(w, env, out[at : at + agent.queue_rows * NUM_QUEUE])
        at += agent.queue_rows * NUM_QUEUE
    if agent.shows_running:
        choose_running_rows(w, env, agent)
        write_running(w, env, agent, out[at : at + agent.running_rows * NUM_RUNNING])
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
