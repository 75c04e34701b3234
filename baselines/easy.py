"""EASY backfill: the head keeps a reserved start; others may go before it if, by their claims, they do not delay it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.baselines.base import CompiledScheduler, placement_rule
from gangline.baselines.primitives.backfill import backfill_one, lift_until_fit
from gangline.envs.core.queue import first_waiting
from gangline.envs.core.transactions import plan, put_all_back
from gangline.envs.core.types import AGAIN, NEVER, NONE

PRIVATE = np.dtype(
    [
        ("rule", np.int64),
        ("head_row", np.int64),  # whose reservation the next two belong to
        ("room_version", np.int64),
        ("shadow_ms", np.int64),  # its reserved start
        ("stamp", np.int64),  # number of the state for which `delays` holds
    ]
)
PRIVATE_BYTES = PRIVATE.itemsize


def decide(w: Any, private: Any, out: Any) -> int:
    """Start the head; or reserve for it and start one job that does not delay it; else wait."""
    own = private[:PRIVATE_BYTES].view(PRIVATE)[0]
    cells = private[PRIVATE_BYTES:].view(np.int64)
    head = first_waiting(w)
    if head == NONE:
        return NEVER
    if plan(w, head, own.rule, out):
        return AGAIN
    delays = cells[: len(w.groups)]
    is_past = own.shadow_ms < w.now_ms  # a job has outrun its claim
    if own.head_row != w.jobs[head].row or own.room_version != w.room_version or is_past:
        ends = cells[len(w.groups) : len(w.groups) + len(w.jobs)]
        slots = cells[len(w.groups) + len(w.jobs) :]
        own.shadow_ms = lift_until_fit(w, head, own.rule, ends, slots)
        put_all_back(w)
        own.head_row = w.jobs[head].row
        own.room_version = w.room_version
        own.stamp += 1
    if backfill_one(w, head, own.shadow_ms, own.rule, delays, own.stamp, out):
        own.stamp += 1  # what delays the head depends on where it would go, and that on who is there
        return AGAIN
    return NEVER


def build(rule: str = "pack") -> CompiledScheduler:
    """EASY backfill with a placement rule."""
    return CompiledScheduler(
        "easy",
        decide,
        np.array([(placement_rule(rule), NONE, NONE, NEVER, 0)], PRIVATE),
        scratch_cells=lambda size: size.max_groups + 2 * size.max_jobs,
    )
