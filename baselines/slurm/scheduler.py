"""Slurm's controller at the compiled door: what it does at each look at the world, in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gangline.baselines.base import CompiledScheduler
from gangline.baselines.slurm.accounting import notice_runs, plan_rejections, take_in_new_jobs
from gangline.baselines.slurm.backfill import begin_backfill_pass, go_on_with_backfill_pass
from gangline.baselines.slurm.config import SlurmConfig
from gangline.baselines.slurm.fair_share import refresh_fair_share
from gangline.baselines.slurm.gang import plan_turns
from gangline.baselines.slurm.main_loop import begin_main_pass, go_on_with_main_pass
from gangline.baselines.slurm.preemption import plan_resume
from gangline.baselines.slurm.priority import tick
from gangline.baselines.slurm.setup import block_for
from gangline.baselines.slurm.tables import SLURM, Stage, block_dtype
from gangline.envs.core.compiled import helper
from gangline.envs.core.driver import compile_decide
from gangline.envs.core.types import AGAIN, NEVER, NONE, SIZE_CLASSES, SizeClass
from gangline.envs.core.world import World

SMALL, MEDIUM, LARGE = (block_dtype(size) for size in SIZE_CLASSES)
SMALL_BYTES, MEDIUM_BYTES, LARGE_BYTES = SMALL.itemsize, MEDIUM.itemsize, LARGE.itemsize


def decide_small(w: Any, private: Any, out: Any) -> int:
    """Slurm's controller over the record of a small world."""
    return run_controller(w, private[:SMALL_BYTES].view(SMALL)[0], private[SMALL_BYTES:].view(np.int32), out)


def decide_medium(w: Any, private: Any, out: Any) -> int:
    """Slurm's controller over the record of a medium world."""
    return run_controller(w, private[:MEDIUM_BYTES].view(MEDIUM)[0], private[MEDIUM_BYTES:].view(np.int32), out)


def decide_large(w: Any, private: Any, out: Any) -> int:
    """Slurm's controller over the record of a large world."""
    return run_controller(w, private[:LARGE_BYTES].view(LARGE)[0], private[LARGE_BYTES:].view(np.int32), out)


DECIDE = dict(zip(SIZE_CLASSES, (decide_small, decide_medium, decide_large), strict=True))


@helper
def run_controller(w: Any, s: Any, rows: Any, out: Any) -> int:
    """Charge and rank; take in new jobs; resume the suspended; then the passes that are due, main and backfill.

    A pass sees what its own starts have changed, so it plans one start at a time and goes on at the next call.
    """
    own = s.own[0]
    has_ended = notice_runs(w, s, rows)
    if own.newcomer != NONE and plan_turns(w, s, out):
        return AGAIN
    if own.stage == Stage.IDLE:
        if own.num_arrived < 0:  # the first look: usage from before, no tick yet
            refresh_fair_share(s)
        if w.now_ms >= own.next_tick_ms:
            tick(w, s)
        has_new = take_in_new_jobs(w, s, rows)
        note_changes(w, s, has_ended or has_new)
        if plan_rejections(s, out):
            return AGAIN
        if plan_turns(w, s, out) or plan_resume(w, s, out):
            return AGAIN
        begin_due_pass(w, s)
    if own.stage == Stage.MAIN and go_on_with_main_pass(w, s, out):
        return AGAIN
    if own.stage == Stage.IDLE:
        begin_due_backfill(w, s)
    if own.stage == Stage.BACKFILL and go_on_with_backfill_pass(w, s, out):
        return AGAIN
    return next_look_ms(w, s)


@helper
def note_changes(w: Any, s: Any, has_changed: bool) -> None:
    """Something has changed: passes are wanted. The limited one comes with the loop's next turn, or at once."""
    own = s.own[0]
    if w.room_version != own.room_version:
        own.room_version = w.room_version
        has_changed = True
    if own.wake_ms <= w.now_ms:
        own.wake_ms = NEVER
        has_changed = True
    if not has_changed:
        return
    own.full_is_wanted = 1
    own.backfill_is_wanted = 1
    due_ms = w.now_ms + own.delay_ms
    if own.loop_ms > 0:
        due_ms = -(-due_ms // own.loop_ms) * own.loop_ms
    own.main_ms = min(own.main_ms, due_ms)


@helper
def begin_due_pass(w: Any, s: Any) -> None:
    """Begin a main pass if its time has come: full every sched_interval, limited after a change."""
    own = s.own[0]
    if own.by_hand:
        if own.asked == Stage.MAIN:
            own.asked = Stage.IDLE
            begin_main_pass(w, s, 1)
        return
    if own.num_order == 0:
        return
    if own.loop_ms > 0 and own.next_full_ms < w.now_ms:  # the loop has slept past it: with its next turn
        own.next_full_ms = -(-w.now_ms // own.loop_ms) * own.loop_ms
    if own.full_is_wanted and w.now_ms >= own.next_full_ms:
        own.full_is_wanted = 0
        begin_main_pass(w, s, 1)
    elif w.now_ms >= own.main_ms:
        begin_main_pass(w, s, 0)
    if own.full_is_wanted:
        own.next_full_ms = (w.now_ms // own.sched_interval_ms + 1) * own.sched_interval_ms


@helper
def begin_due_backfill(w: Any, s: Any) -> None:
    """Begin a backfill pass if one is wanted and its interval is over."""
    own = s.own[0]
    if own.by_hand:
        if own.asked == Stage.BACKFILL:
            own.asked = Stage.IDLE
            begin_backfill_pass(w, s)
        return
    if not own.backfills or not own.backfill_is_wanted or own.num_order == 0:
        return
    if w.now_ms >= own.next_backfill_ms:
        own.backfill_is_wanted = 0
        own.next_backfill_ms = NEVER
        begin_backfill_pass(w, s)
    elif own.next_backfill_ms >= NEVER:
        own.next_backfill_ms = (
            (w.now_ms - own.bf_phase_ms) // own.bf_interval_ms + 1
        ) * own.bf_interval_ms + own.bf_phase_ms


@helper
def next_look_ms(w: Any, s: Any) -> int:
    """The next time at which this scheduler has something to do by itself."""
    own = s.own[0]
    next_ms = min(own.wake_ms, own.next_slice_ms)
    if w.num_jobs > 0 and (own.num_running > 0 or w.now_ms < own.busy_ms + own.idle_limit_ms):
        next_ms = min(next_ms, own.next_tick_ms)
    if own.num_order > 0 and not own.by_hand:
        next_ms = min(next_ms, own.main_ms)
        if own.full_is_wanted:
            next_ms = min(next_ms, own.next_full_ms)
        if own.backfills and own.backfill_is_wanted:
            next_ms = min(next_ms, own.next_backfill_ms)
    return next_ms


@dataclass(frozen=True)
class SlurmScheduler(CompiledScheduler):
    """Slurm with its configuration: its private bytes are made for each world."""

    config: SlurmConfig = field(default_factory=SlurmConfig)

    def compiled(self, size: SizeClass) -> Any:
        """`decide`, compiled for worlds of a size class."""
        return compile_decide(DECIDE[size], size)

    def private_for(self, world: World) -> np.ndarray:
        """(num_bytes,) uint8: the block of a world; see `tables.py`."""
        super().private_for(world)
        return block_for(self.config, world)


def slurm(config: SlurmConfig) -> SlurmScheduler:
    """Slurm as configured."""
    return SlurmScheduler("slurm", decide_small, np.zeros(1, SLURM), config=config)
