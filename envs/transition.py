"""`Transition`: what happened between two decisions, as integrals. All that a reward may see.

Each quantity is an exact integral of a rate over the time passed, kept twice: plain, and discounted to the moment of
the decision, `int exp(-beta x) u(t + x) dx`, as a semi-Markov return wants (Bradtke and Duff, NIPS 1994). Amounts
that are charged at an event (lost work, restarts) are discounted by the event's time.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np

from gangline.envs.core.compiled import helper
from gangline.envs.core.fair_share import accrue_tenant_usage
from gangline.envs.core.types import SLOWNESS

HOUR_MS = 3_600_000


class Quantity(IntEnum):
    """Index of a quantity. Unit: hours of the whole cluster (GPU-hours / GPUs), unless said otherwise."""

    HELD = 0
    RUNNING = 1  # GPUs of jobs that make progress
    DEMAND = 2
    IDLE = 3  # [min(C, D) - running]+: idle, hung or suspended while somebody could use it
    OVER_SHARE = 4  # sum_k [A_k - F_k]+
    DEFICIT = 5  # sum_k [F_k - A_k]+
    HANG = 6
    GPUS_WAITING = 7
    JOBS_WAITING = 8  # jobs x hours
    JOBS_IN_SYSTEM = 9  # jobs x hours
    SLOWNESS = 10  # sum over jobs in the system of 1 / max(work, 10 s): hours / s
    UNFAIRNESS = 11  # hours x (1 - Jain index of min(A_k / F_k, 1))
    REPLICAS_MISSING = 12  # replicas x hours
    LOST = 13  # charged at the event, as all that follow
    RESTART = 14
    UTILITY = 15  # of decayed service, see `usage_utility`; kept only where a reward asks for it


class Own(IntEnum):
    """Index of a tenant's own quantity. Unit: hours of an n-th of the cluster, n tenants."""

    RUNNING = 0
    OVER_SHARE = 1  # [A_k - F_k]+
    DEFICIT = 2  # [F_k - A_k]+
    WASTE = 3  # charged at the event: work lost, restarts


NUM_OWN = len(Own)
NUM_QUANTITIES = len(Quantity)
FIRST_CHARGED = int(Quantity.LOST)

TRANSITION = np.dtype(
    [
        ("plain", np.float64, (NUM_QUANTITIES,)),
        ("discounted", np.float64, (NUM_QUANTITIES,)),
        ("elapsed_h", np.float64),
        ("discount", np.float64),  # exp(-beta x elapsed)
    ]
)


@helper
def clear_transition(t: Any) -> None:
    """Begin a transition: no time has passed."""
    for q in range(NUM_QUANTITIES):
        t.plain[q] = 0.0
        t.discounted[q] = 0.0
    t.elapsed_h = 0.0
    t.discount = 1.0


@helper
def read_areas(w: Any, with_utility: bool, areas: Any) -> None:
    """(NUM_QUANTITIES,) the world's integrals so far, in the units of a transition."""
    totals = w.totals
    unit = 1.0 / (max(w.gpus_total, 1) * HOUR_MS)
    hour = 1.0 / HOUR_MS
    areas[Quantity.HELD] = totals.held_area * unit
    areas[Quantity.RUNNING] = totals.running_area * unit
    areas[Quantity.DEMAND] = totals.demand_area * unit
    areas[Quantity.IDLE] = totals.idle_area * unit
    areas[Quantity.OVER_SHARE] = totals.over_area * unit
    areas[Quantity.DEFICIT] = totals.deficit_area * unit
    areas[Quantity.HANG] = totals.hang_area * unit
    areas[Quantity.GPUS_WAITING] = totals.gpus_waiting_area * unit
    areas[Quantity.JOBS_WAITING] = totals.waiting_area * hour
    areas[Quantity.JOBS_IN_SYSTEM] = totals.in_system_area * hour
    areas[Quantity.SLOWNESS] = totals.slowness_area * hour * (1000.0 / SLOWNESS)
    areas[Quantity.UNFAIRNESS] = (w.areas_ms - totals.jain_area) * hour
    areas[Quantity.REPLICAS_MISSING] = totals.replica_missing_area * hour
    areas[Quantity.LOST] = totals.lost_area * unit
    areas[Quantity.RESTART] = totals.restart_area * unit
    areas[Quantity.UTILITY] = usage_utility(w) if with_utility else 0.0


@helper
def add_piece(t: Any, before: Any, after: Any, elapsed_ms: int, beta_per_h: float) -> tuple[float, float]:
    """Add a piece of time in which all rates were constant, and what was charged at its end.

    Args:
        t: TRANSITION.
        before: (NUM_QUANTITIES,) areas at the beginning of the piece; overwritten with `after`.
        after: (NUM_QUANTITIES,) areas at its end, events applied.
        elapsed_ms: its length.
        beta_per_h: discount rate.
    Returns: what a rate during the piece is multiplied by, and what is charged at its end.
    """
    elapsed_h = elapsed_ms / HOUR_MS
    begins = t.discount
    ends = math.exp(-beta_per_h * (t.elapsed_h + elapsed_h))
    mean = begins
    if beta_per_h * elapsed_h > 1e-9:
        mean = (begins - ends) / (beta_per_h * elapsed_h)
    for q in range(NUM_QUANTITIES):
        gain = after[q] - before[q]
        before[q] = after[q]
        t.plain[q] += gain
        t.discounted[q] += gain * (mean if q < FIRST_CHARGED else ends)
    t.elapsed_h += elapsed_h
    t.discount = ends
    return mean, ends


@helper
def own_area(w: Any, tenant: int, which: int) -> float:
    """One of a tenant's integrals so far, `Own`."""
    record = w.tenants[tenant]
    area = record.running_area
    if which == Own.OVER_SHARE:
        area = record.over_area
    elif which == Own.DEFICIT:
        area = record.deficit_area
    elif which == Own.WASTE:
        area = record.waste_area
    return area * (w.num_tenants / (max(w.gpus_total, 1) * HOUR_MS))


@helper
def add_own_piece(w: Any, member: Any, mean: float, ends: float) -> None:
    """Add a piece of time to a tenant's own quantities; what `add_piece` returned says how much it counts."""
    for q in range(NUM_OWN):
        now = own_area(w, member.tenant, q)
        member.own_gains[q] += (now - member.own_areas[q]) * (ends if q == Own.WASTE else mean)
        member.own_areas[q] = now


@helper
def usage_utility(w: Any) -> float:
    """sum_k e_k log(x_k + 0.05), x_k = decayed service of tenant k over its share of all: alpha-fair, alpha 1."""
    total = 0.0
    weights = 0.0
    for k in range(w.num_tenants):
        accrue_tenant_usage(w, k)
        total += w.tenants[k].usage
        weights += w.tenants[k].weight
    if total <= 0.0 or weights <= 0.0:
        return 0.0
    utility = 0.0
    for k in range(w.num_tenants):
        share = w.tenants[k].weight / weights
        if share > 0.0:
            utility += share * math.log(w.tenants[k].usage / total / share + 0.05)
    return utility
