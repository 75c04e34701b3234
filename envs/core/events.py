"""The event queue: one entry per thing that can have an event, ordered by (time, kind, index).

An indexed 4-ary heap over *entities*: job slots, nodes, and four single ones. An entity has one next event; when
its plans change its entry moves, so there are no stale events. `EventKind`'s order is the same-time order.
"""

from __future__ import annotations

from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER, NONE

KIND_SHIFT = 40


# entities: first the single ones, then nodes, then job slots
ARRIVAL, SCHEDULE, TICK, TIMER, FIRST_NODE = 0, 1, 2, 3, 4


@helper
def node_entity(n: int) -> int:
    """Entity of a node."""
    return FIRST_NODE + n


@helper
def job_entity(w: Any, slot: int) -> int:
    """Entity of a job."""
    return FIRST_NODE + len(w.nodes) + slot


@helper
def next_node(w: Any) -> int:
    """The node that the next event is of."""
    return w.heap[0].entity - FIRST_NODE


@helper
def next_job(w: Any) -> int:
    """Slot of the job that the next event is of."""
    return w.heap[0].entity - FIRST_NODE - len(w.nodes)


@helper
def next_time_ms(w: Any) -> int:
    """Time of the next event; NEVER if there is none."""
    if w.heap_size == 0:
        return NEVER
    return w.heap[0].time_ms


@helper
def next_kind(w: Any) -> int:
    """Kind of the next event. The heap must not be empty."""
    return w.heap[0].rank >> KIND_SHIFT


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
    elif w.heap[place].time_ms == time_ms and w.heap[place].rank == rank:
        return
    _sift(w, place, time_ms, rank, entity)


@helper
def _remove(w: Any, place: int) -> None:
    """Take the entry at a place out of the heap; the last one takes its place."""
    w.heap_place[w.heap[place].entity] = NONE
    w.heap_size -= 1
    if place != w.heap_size:
        last = w.heap[w.heap_size]
        _sift(w, place, last.time_ms, last.rank, last.entity)


@helper
def _comes_before(entry: Any, time_ms: int, rank: int) -> bool:
    """Whether an entry is applied before an event."""
    return entry.time_ms < time_ms or (entry.time_ms == time_ms and entry.rank < rank)


@helper
def _sift(w: Any, place: int, time_ms: int, rank: int, entity: int) -> None:
    """Write an event at a place whose entry is free, moved towards the root or away from it as far as it goes."""
    heap = w.heap
    while place > 0:
        above = (place - 1) >> 2
        if _comes_before(heap[above], time_ms, rank):
            break
        heap[place] = heap[above]
        w.heap_place[heap[place].entity] = place
        place = above
    while True:
        first = 4 * place + 1
        if first >= w.heap_size:
            break
        least = first
        for child in range(first + 1, min(first + 4, w.heap_size)):
            if _comes_before(heap[child], heap[least].time_ms, heap[least].rank):
                least = child
        if not _comes_before(heap[least], time_ms, rank):
            break
        heap[place] = heap[least]
        w.heap_place[heap[place].entity] = place
        place = least
    heap[place].time_ms = time_ms
    heap[place].rank = rank
    heap[place].entity = entity
    w.heap_place[entity] = place
