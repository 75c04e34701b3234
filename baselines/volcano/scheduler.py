"""What Volcano does when it is asked: one session each schedule period, its actions in order."""

from __future__ import annotations

from typing import Any

from gangline.baselines.volcano.allocate import allocate_action, backfill_action, enqueue_action
from gangline.baselines.volcano.gang_eviction import gang_eviction_action
from gangline.baselines.volcano.preempt import preempt_action, reclaim_action, shuffle_action
from gangline.baselines.volcano.queues import open_queues
from gangline.baselines.volcano.session import close_session, open_session
from gangline.baselines.volcano.state import Action, volcano_dtype
from gangline.baselines.volcano.topology import open_domains
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import AGAIN, NEVER, SIZE_CLASSES, Result

NOW = -2
EVICTING = ("preempt", "reclaim", "gangpreempt", "gangreclaim", "shuffle")

SMALL, MEDIUM, LARGE = (volcano_dtype(size) for size in SIZE_CLASSES)
SMALL_BYTES, MEDIUM_BYTES, LARGE_BYTES = SMALL.itemsize, MEDIUM.itemsize, LARGE.itemsize


def decide_small(w: Any, private: Any, out: Any) -> int:
    """The door of the small size class, for configurations that evict nobody: half as much to compile."""
    return schedule(w, private[:SMALL_BYTES].view(SMALL)[0], out)


def decide_medium(w: Any, private: Any, out: Any) -> int:
    """The same of the medium size class."""
    return schedule(w, private[:MEDIUM_BYTES].view(MEDIUM)[0], out)


def decide_large(w: Any, private: Any, out: Any) -> int:
    """The same of the large size class."""
    return schedule(w, private[:LARGE_BYTES].view(LARGE)[0], out)


def decide_evicting_small(w: Any, private: Any, out: Any) -> int:
    """The door of the small size class, for all actions."""
    return schedule_evicting(w, private[:SMALL_BYTES].view(SMALL)[0], out)


def decide_evicting_medium(w: Any, private: Any, out: Any) -> int:
    """The same of the medium size class."""
    return schedule_evicting(w, private[:MEDIUM_BYTES].view(MEDIUM)[0], out)


def decide_evicting_large(w: Any, private: Any, out: Any) -> int:
    """The same of the large size class."""
    return schedule_evicting(w, private[:LARGE_BYTES].view(LARGE)[0], out)


def _by_size(*doors: Any) -> dict[str, Any]:
    return {size.name: door for size, door in zip(SIZE_CLASSES, doors, strict=True)}


DOORS = _by_size(decide_small, decide_medium, decide_large)
EVICTING_DOORS = _by_size(decide_evicting_small, decide_evicting_medium, decide_evicting_large)


@helper
def schedule(w: Any, k: Any, out: Any) -> int:
    """A session of actions that only place."""
    until = open_if_due(w, k, out)
    if until != NOW:
        return until
    for i in range(k.num_actions):
        _place(w, k, k.actions[i], out)
    return close(w, k, out)


@helper
def schedule_evicting(w: Any, k: Any, out: Any) -> int:
    """A session of any actions."""
    until = open_if_due(w, k, out)
    if until != NOW:
        return until
    for i in range(k.num_actions):
        _place(w, k, k.actions[i], out)
        _evict(w, k, k.actions[i], out)
    return close(w, k, out)


@helper
def open_if_due(w: Any, k: Any, out: Any) -> int:
    """Snapshot and plugins: at every multiple of the schedule period, unless nothing has changed since the last one.
    Returns NOW, or when to be asked again.
    """
    if not k.one_session:
        if _is_as_it_was(w, k, out) and not k.has_changed and k.sla_ms >= NEVER:
            return NEVER
        past = w.now_ms % k.period_ms
        if past != 0:
            return w.now_ms + k.period_ms - past
    k.seen_change = w.change
    k.seen_room = w.room_version
    open_session(w, k)
    open_queues(w, k)
    open_domains(w, k)
    return NOW


@helper
def _is_as_it_was(w: Any, k: Any, out: Any) -> bool:
    """Whether the world is as the last session found it: nothing has happened, and what it sent was refused."""
    if w.change != k.seen_change + k.sent or w.room_version != k.seen_room:
        return False
    was_refused = True
    for i in range(k.sent):
        was_refused = was_refused and out.results[i] != Result.OK
    return was_refused


@helper
def _place(w: Any, k: Any, action: int, out: Any) -> None:
    """The actions that place."""
    if action == Action.ENQUEUE:
        enqueue_action(w, k)
    elif action == Action.ALLOCATE:
        allocate_action(w, k, out)
    elif action == Action.BACKFILL:
        backfill_action(w, k, out)


@helper
def _evict(w: Any, k: Any, action: int, out: Any) -> None:
    """The actions that evict."""
    if action == Action.PREEMPT:
        preempt_action(w, k, out)
    elif action == Action.RECLAIM:
        reclaim_action(w, k, out)
    elif action == Action.GANGPREEMPT:
        gang_eviction_action(w, k, False, out)
    elif action == Action.GANGRECLAIM:
        gang_eviction_action(w, k, True, out)
    elif action == Action.SHUFFLE:
        shuffle_action(w, k, out)


@helper
def close(w: Any, k: Any, out: Any) -> int:
    """Phases; returns when the next session is due."""
    close_session(w, k)
    k.sent = out.num_transactions
    if k.is_full and out.num_commands > 0:
        return AGAIN
    return w.now_ms + k.period_ms if k.has_changed or k.sent > 0 else NEVER
