"""The next environments of a batch, asked for before their turn.

A few hundred environments are more than a processor's own cache holds, and what a step reads of one it finds only by
way of other reads: the counts of the world, the rows that it shows, the job in such a row, the pods of that job. So
the three environments that come next are each asked for one part further, by what has arrived since the last time.
A request that turns out to be for nothing costs little and changes nothing.
"""

from __future__ import annotations

from typing import Any

from gangline.envs.core.compiled import helper, inlined
from gangline.envs.core.events import ARRIVAL, FIRST_NODE, job_entity
from gangline.envs.core.prefetch import prefetch, prefetch_element, prefetch_first, prefetch_line
from gangline.envs.core.types import CACHE_LINE, NONE, SIZE_CLASSES, world_dtype

# the same in all size classes: arrays whose length depends on the class come after them
_WORLD: Any = world_dtype(SIZE_CLASSES[0]).fields
_COUNTS, _AFTER_COUNTS = (_WORLD[name][1] for name in ("num_nodes", "cell_flavor"))
MOST_ROWS = 32  # of a table


@inlined
def ask_ahead(worlds: Any, envs: Any, actions: Any, rows: Any, i: int, hi: int) -> None:
    """Ask for what the steps of the environments after i, before hi, will read."""
    if i + 3 < hi:
        _ask_for_counts(worlds[i + 3], envs[i + 3], actions[i + 3, 0])
    if i + 2 < hi:
        _ask_for_jobs(worlds[i + 2], envs[i + 2], actions[i + 2, 0], rows)
    if i + 1 < hi:
        _ask_for_pods(worlds[i + 1], envs[i + 1], actions[i + 1, 0])


@helper
def _ask_for_counts(w: Any, env: Any, action: int) -> None:
    """How much of a world is used, its next event, and the job that the action is about."""
    prefetch_line(w, 0)
    for at in range(_COUNTS, _AFTER_COUNTS, CACHE_LINE):
        prefetch_line(w, at)
    prefetch(w.heap[0])
    prefetch_line(env, 0)
    prefetch_element(env.queue_jobs, max(action - 1, 0))


@helper
def _ask_for_jobs(w: Any, env: Any, action: int, rows: Any) -> None:
    """The jobs of the action and of the next event, the tables of jobs, and where changes are noted."""
    slot = _acted_on(env, action)
    if slot != NONE:
        _ask_for_job(w, slot)
    slot = _next_job(w)
    if slot != NONE:
        _ask_for_job(w, slot)
    elif w.heap_size > 0 and w.heap[0].entity == ARRIVAL:
        prefetch(rows[w.next_row])
        if w.free_job != NONE:
            _ask_for_job(w, w.free_job)
    if w.free_pod != NONE:
        prefetch(w.pods[w.free_pod])
    if w.free_pod_set != NONE:
        prefetch(w.pod_sets[w.free_pod_set])
    for row in range(min(env.num_queue_rows, MOST_ROWS)):
        job = w.jobs[env.queue_jobs[row]]
        prefetch_line(job, 0)
        prefetch_line(job, CACHE_LINE)
    prefetch_first(w.groups, min(w.num_groups, MOST_ROWS))
    prefetch_first(w.waiting, min(w.num_queued, MOST_ROWS))
    prefetch_first(w.running, min(w.num_running, MOST_ROWS))
    prefetch(w.before[0])
    prefetch(w.pod_sets_before[0])
    prefetch(w.journal[0])
    prefetch_line(w.probe[0], 0)
    prefetch_line(w.scratch[0], 0)


@helper
def _ask_for_job(w: Any, slot: int) -> None:
    """A job, and the place of its event."""
    prefetch(w.jobs[slot])
    prefetch_element(w.heap_place, job_entity(w, slot))


@helper
def _ask_for_pods(w: Any, env: Any, action: int) -> None:
    """Pod sets of waiting jobs that could start, and pods of the job that ends."""
    g = w.first_group
    for _ in range(MOST_ROWS):
        if g == NONE:
            break
        _ask_for_pod_set(w, w.groups[g].head)
        g = w.groups[g].next
    slot = _acted_on(env, action)
    if slot != NONE:
        _ask_for_pod_set(w, slot)
    slot = _next_job(w)
    if slot != NONE:
        job = w.jobs[slot]
        _ask_for_pod_set(w, slot)
        if job.first_pod != NONE:
            prefetch(w.pods[job.first_pod])
        if job.is_listed and w.running[job.place].node != NONE:
            prefetch(w.nodes[w.running[job.place].node])


@helper
def _ask_for_pod_set(w: Any, slot: int) -> None:
    """A job's first pod set."""
    if w.jobs[slot].first_pod_set != NONE:
        prefetch(w.pod_sets[w.jobs[slot].first_pod_set])


@helper
def _acted_on(env: Any, action: int) -> int:
    """The job of an action in the first segment, start by the first rule; NONE for others."""
    return env.queue_jobs[action - 1] if 0 < action <= env.num_queue_rows else NONE


@helper
def _next_job(w: Any) -> int:
    """The job that the next event is of, or NONE."""
    entity = w.heap[0].entity if w.heap_size > 0 else 0
    slot = entity - FIRST_NODE - len(w.nodes)
    return slot if slot >= 0 else NONE
