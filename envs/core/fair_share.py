"""Who should have how much: the water-filled share of each tenant, decayed usage, and the exact integrals of both.

docs/model.md section 7; spec/metrics.md sections 1 and 5.
"""

from __future__ import annotations

import math
from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER


@helper
def decayed_usage(usage: float, rate: float, elapsed_ms: int, half_life_ms: int) -> float:
    """Usage after `elapsed_ms` at a constant rate, with exact half-life decay.

    Args:
        usage: milli-GPU x ms before.
        rate: milli-GPU held all the while.
        elapsed_ms: ms.
        half_life_ms: NEVER = no decay.
    Returns: `u 2^(-dt/h) + a h / ln 2 (1 - 2^(-dt/h))`. Slurm's own factor, 1 - 0.693/h per second, differs.
    """
    if half_life_ms >= NEVER:
        return usage + rate * elapsed_ms
    kept = math.exp2(-elapsed_ms / half_life_ms)
    return usage * kept + rate * (half_life_ms / math.log(2.0)) * (1.0 - kept)


@helper
def slurm_decay(elapsed_s: int, half_life_s: int) -> float:
    """What Slurm leaves of usage after `elapsed_s`: (1 - 0.693 / half-life) ^ elapsed; 1 with a half-life of 0.

    Not 2^(-elapsed / half-life): 0.693 is ln 2 to three digits, and the factor of a second is linear in it.
    Source: Slurm priority_multifactor.c, `decay_factor`.
    """
    if half_life_s <= 0:
        return 1.0
    return math.pow(1.0 - 0.693 / half_life_s, elapsed_s)


@helper
def accrue_tenant_usage(w: Any, tenant: int) -> None:
    """Bring a tenant's decayed usage up to now; call before its rate changes and before reading."""
    record = w.tenants[tenant]
    elapsed = w.now_ms - record.usage_ms
    if elapsed > 0:
        record.usage = decayed_usage(record.usage, record.held, elapsed, w.params.half_life_ms)
        record.usage_ms = w.now_ms


@helper
def accrue_user_usage(w: Any, user: int) -> None:
    """The same for a user."""
    record = w.users[user]
    elapsed = w.now_ms - record.usage_ms
    if elapsed > 0:
        record.usage = decayed_usage(record.usage, record.held, elapsed, w.params.half_life_ms)
        record.usage_ms = w.now_ms


@helper
def water_fill(w: Any) -> None:
    """Set every tenant's `fair`: the weighted max-min share of the GPUs that are up, capped by demand.

    The shares are whole milli-GPUs and sum to min(capacity, demand) exactly. docs/model.md section 7.
    """
    for k in range(w.num_tenants):
        w.tenants[k].fair = w.tenants[k].demand
    if w.demand <= w.gpus_up:
        return
    left = w.gpus_up
    weights = 0
    for k in range(w.num_tenants):
        w.tenants[k].fair = -1
        weights += w.tenants[k].weight
    while weights > 0:
        capped_gpus = 0
        capped_weights = 0
        for k in range(w.num_tenants):
            tenant = w.tenants[k]
            if tenant.fair < 0 and tenant.weight > 0 and tenant.demand * weights <= left * tenant.weight:
                tenant.fair = tenant.demand
                capped_gpus += tenant.demand
                capped_weights += tenant.weight
        if capped_weights == 0:
            break
        left -= capped_gpus
        weights -= capped_weights
    rest = left
    for k in range(w.num_tenants):
        tenant = w.tenants[k]
        if tenant.fair < 0 and tenant.weight > 0:
            tenant.fair = left * tenant.weight // weights
            rest -= tenant.fair
            tenant.fair = -2 - tenant.fair  # marks: open for a leftover milli-GPU
    for k in range(w.num_tenants):
        tenant = w.tenants[k]
        if tenant.fair <= -2:
            tenant.fair = -2 - tenant.fair
            if rest > 0:
                tenant.fair += 1
                rest -= 1
    for k in range(w.num_tenants):  # weight 0: only what nobody else can use
        tenant = w.tenants[k]
        if tenant.fair < 0:
            tenant.fair = min(tenant.demand, rest)
            rest -= tenant.fair


@helper
def refresh_shares(w: Any) -> None:
    """Recompute fair shares, over-share and deficit if anything they depend on has changed."""
    if not w.shares_are_stale:
        return
    w.shares_are_stale = False
    water_fill(w)
    over = 0
    deficit = 0
    for k in range(w.num_tenants):
        tenant = w.tenants[k]
        gap = tenant.held - tenant.fair
        if gap > 0:
            over += gap
        else:
            deficit -= gap
    w.over = over
    w.deficit = deficit
    w.jain = jain_of_satisfaction(w)


@helper
def jain_of_satisfaction(w: Any) -> float:
    """Jain index of min(A_k / F_k, 1) over tenants with demand; 1 where nobody wants anything. In [1/n, 1]."""
    total = 0.0
    squares = 0.0
    count = 0
    for k in range(w.num_tenants):
        tenant = w.tenants[k]
        if tenant.demand > 0:
            x = min(tenant.held / tenant.fair, 1.0) if tenant.fair > 0 else 1.0
            total += x
            squares += x * x
            count += 1
    if squares == 0.0:
        return 1.0 if count == 0 else 1.0 / count
    return total * total / (count * squares)


@helper
def integrate_areas(w: Any, until_ms: int) -> None:
    """Add the time from the last call to `until_ms` to every integral. Nothing may have changed in between."""
    elapsed = until_ms - w.areas_ms
    if elapsed <= 0:
        return
    w.areas_ms = until_ms
    refresh_shares(w)
    totals = w.totals
    wanted = min(w.gpus_up, w.demand)
    totals.capacity_area += elapsed * w.gpus_up
    totals.held_area += elapsed * w.gpus_held
    totals.running_area += elapsed * w.gpus_running
    totals.demand_area += elapsed * w.demand
    totals.wanted_area += elapsed * wanted
    totals.idle_area += elapsed * max(0, wanted - w.gpus_running)
    totals.over_area += elapsed * w.over
    totals.deficit_area += elapsed * w.deficit
    totals.hang_area += elapsed * w.gpus_hung
    totals.reserved_area += elapsed * w.gpus_reserved
    totals.replica_wanted_area += elapsed * w.replicas_wanted
    totals.replica_missing_area += elapsed * w.replicas_missing
    totals.waiting_area += elapsed * w.num_waiting
    totals.in_system_area += elapsed * w.num_jobs
    totals.gpus_waiting_area += elapsed * w.gpus_waiting
    totals.slowness_area += elapsed * w.slowness
    totals.jain_area += elapsed * w.jain
    for k in range(w.num_tenants):
        tenant = w.tenants[k]
        tenant.held_area += elapsed * tenant.held
        tenant.running_area += elapsed * tenant.running
        tenant.demand_area += elapsed * tenant.demand
        tenant.fair_area += elapsed * tenant.fair
        if tenant.held > tenant.fair:
            tenant.over_area += elapsed * (tenant.held - tenant.fair)
        else:
            tenant.deficit_area += elapsed * (tenant.fair - tenant.held)
