"""The event queue: one entry per thing that can have an event, ordered by (time, kind, index).

An indexed 4-ary heap over *entities*: job slots, nodes, and four single ones. An entity has one next event; when
its plans change its entry moves, so there are no stale events. `EventKind`'s order is the same-time order.
"""

from __future__ import annotations

from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER, NONE

KIND_SHIFT = 40


@helper
def node_entity(w: Any, node: int) -> int:
    """Entity of a node."""
    return len(w.jobs) + node


@helper
def arrival_entity(w: Any) -> int:
    """Entity of the next arrival."""
    return len(w.jobs) + len(w.nodes)


@helper
def schedule_entity(w: Any) -> int:
    """Entity of the world's schedule of changes."""
    return len(w.jobs) + len(w.nodes) + 1


@helper
def tick_entity(w: Any) -> int:
    """Entity of the usage tick."""
    return len(w.jobs) + len(w.nodes) + 2


@helper
def timer_entity(w: Any) -> int:
    """Entity of the scheduler's timer."""
    return len(w.jobs) + len(w.nodes) + 3


@helper
def next_time_ms(w: Any) -> int:
    """Time of the next event; NEVER if there is none."""
    if w.heap_size == 0:
        return NEVER
    return w.event_ms[w.heap[0]]


@helper
def next_kind(w: Any) -> int:
    """Kind of the next event. The heap must not be empty."""
    return w.event_rank[w.heap[0]] >> KIND_SHIFT


@helper
def set_event(w: Any, entity: int, time_ms: int, kind: int, index: int) -> None:
    """Make this the entity's next event; a time of NEVER removes it."""
    place = w.heap_place[entity]
    if time_ms >= NEVER:
        if place != NONE:
            _remove(w, place)
        return
    rank = (kind << KIND_SHIFT) | index
    if place == NONE:
        place = w.heap_size
        w.heap_size += 1
        w.heap[place] = entity
        w.heap_place[entity] = place
    elif w.event_ms[entity] == time_ms and w.event_rank[entity] == rank:
        return
    w.event_ms[entity] = time_ms
    w.event_rank[entity] = rank
    _sift_down(w, _sift_up(w, place))


@helper
def _remove(w: Any, place: int) -> None:
    """Take the entry at a place out of the heap."""
    w.heap_place[w.heap[place]] = NONE
    w.heap_size -= 1
    if place == w.heap_size:
        return
    moved = w.heap[w.heap_size]
    w.heap[place] = moved
    w.heap_place[moved] = place
    _sift_down(w, _sift_up(w, place))


@helper
def _comes_before(w: Any, a: int, b: int) -> bool:
    """Whether entity a's event is applied before entity b's."""
    if w.event_ms[a] != w.event_ms[b]:
        return w.event_ms[a] < w.event_ms[b]
    return w.event_rank[a] < w.event_rank[b]


@helper
def _sift_up(w: Any, place: int) -> int:
    """Move an entry towards the root as far as it goes; returns its new place."""
    entity = w.heap[place]
    while place > 0:
        above = (place - 1) >> 2
        if not _comes_before(w, entity, w.heap[above]):
            break
        w.heap[place] = w.heap[above]
        w.heap_place[w.heap[place]] = place
        place = above
    w.heap[place] = entity
    w.heap_place[entity] = place
    return place


@helper
def _sift_down(w: Any, place: int) -> None:
    """Move an entry away from the root as far as it goes."""
    entity = w.heap[place]
    while True:
        first = 4 * place + 1
        if first >= w.heap_size:
            break
        least = first
        for child in range(first + 1, min(first + 4, w.heap_size)):
            if _comes_before(w, w.heap[child], w.heap[least]):
                least = child
        if not _comes_before(w, w.heap[least], entity):
            break
        w.heap[place] = w.heap[least]
        w.heap_place[w.heap[place]] = place
        place = least
    w.heap[place] = entity
    w.heap_place[entity] = place
