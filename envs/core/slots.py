"""Slots and links of the record: taking and returning job, pod-set, pod and reservation slots, list membership.

Free slots form a list through their `next` field; below the high-water mark `*_used`, above it they are fresh.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NONE, ONE_GPU, ErrorCode, JobState


@helper
def fail(w: Any, code: int, value: int) -> None:
    """Note an error that Python has to raise; the first one stands."""
    if w.error == ErrorCode.NONE:
        w.error = code
        w.error_value = value


@helper
def take_job(w: Any) -> int:
    """A free job slot, or NONE with the error noted."""
    slot = w.free_job
    if slot != NONE:
        w.free_job = w.jobs[slot].next
        return slot
    if w.jobs_used >= len(w.jobs):
        fail(w, ErrorCode.TOO_MANY_JOBS, len(w.jobs) + 1)
        return NONE
    w.jobs_used += 1
    return w.jobs_used - 1


@helper
def return_job(w: Any, slot: int) -> None:
    """Give a job slot back."""
    w.jobs[slot].next = w.free_job
    w.free_job = slot


@helper
def take_pod_set(w: Any) -> int:
    """A free pod-set slot, or NONE with the error noted."""
    slot = w.free_pod_set
    if slot != NONE:
        w.free_pod_set = w.pod_sets[slot].next
        return slot
    if w.pod_sets_used >= len(w.pod_sets):
        fail(w, ErrorCode.TOO_MANY_POD_SETS, len(w.pod_sets) + 1)
        return NONE
    w.pod_sets_used += 1
    return w.pod_sets_used - 1


@helper
def return_pod_set(w: Any, slot: int) -> None:
    """Give a pod-set slot back."""
    w.pod_sets[slot].next = w.free_pod_set
    w.free_pod_set = slot


@helper
def pods_left(w: Any) -> bool:
    """Whether a pod slot is free."""
    return w.free_pod != NONE or w.pods_used < len(w.pods)


@helper
def take_pod(w: Any) -> int:
    """A free pod slot; ask `pods_left` first."""
    slot = w.free_pod
    if slot != NONE:
        w.free_pod = w.pods[slot].next
        return slot
    w.pods_used += 1
    return w.pods_used - 1


@helper
def return_pod(w: Any, slot: int) -> None:
    """Give a pod slot back."""
    w.pods[slot].next = w.free_pod
    w.free_pod = slot


@helper
def link_pod(w: Any, slot: int) -> None:
    """Append a pod to its job's list and put it at the head of its node's."""
    pod = w.pods[slot]
    job = w.jobs[pod.job]
    pod.next = NONE
    pod.prev = job.last_pod
    if job.last_pod == NONE:
        job.first_pod = slot
    else:
        w.pods[job.last_pod].next = slot
    job.last_pod = slot
    node = w.nodes[pod.node]
    pod.prev_on_node = NONE
    pod.next_on_node = node.first_pod
    if node.first_pod != NONE:
        w.pods[node.first_pod].prev_on_node = slot
    node.first_pod = slot
    node.num_pods += 1


@helper
def unlink_pod(w: Any, slot: int) -> None:
    """Take a pod out of both lists."""
    pod = w.pods[slot]
    job = w.jobs[pod.job]
    if pod.prev == NONE:
        job.first_pod = pod.next
    else:
        w.pods[pod.prev].next = pod.next
    if pod.next == NONE:
        job.last_pod = pod.prev
    else:
        w.pods[pod.next].prev = pod.prev
    node = w.nodes[pod.node]
    if pod.prev_on_node == NONE:
        node.first_pod = pod.next_on_node
    else:
        w.pods[pod.prev_on_node].next_on_node = pod.next_on_node
    if pod.next_on_node != NONE:
        w.pods[pod.next_on_node].prev_on_node = pod.prev_on_node
    node.num_pods -= 1


@helper
def list_running(w: Any, slot: int) -> None:
    """Append a job to the running list."""
    job = w.jobs[slot]
    job.is_listed = True
    job.next = NONE
    job.prev = w.last_running
    if w.last_running == NONE:
        w.first_running = slot
    else:
        w.jobs[w.last_running].next = slot
    w.last_running = slot
    job.place = w.num_running
    w.running[job.place].job = slot
    w.running[job.place].listed = w.num_listed
    w.num_listed += 1
    w.num_running += 1


@helper
def note_running(w: Any, slot: int) -> None:
    """Copy to the table of running jobs what has changed of a listed job."""
    job = w.jobs[slot]
    row = w.running[job.place]
    row.tenant = job.tenant
    row.start_ms = job.start_ms
    row.cycle_from_ms = job.start_ms
    row.gpus_bound = job.gpus_bound
    row.checkpoint_interval_ms = job.checkpoint_interval_ms
    row.checkpoint_cost_ms = job.checkpoint_cost_ms
    row.restart_cost_ms = job.restart_cost_ms
    row.claim_ms = job.claim_ms
    row.preemptions = job.preemptions
    row.touch_ms = job.touch_ms
    row.may_be_shown = job.state == JobState.RUNNING and job.preemptible
    row.may_be_stopped = job.state != JobState.SUSPENDED and job.num_bound > 0 and job.preemptible
    row.node = NONE
    is_one_pod = job.num_bound == 1 and job.first_pod == job.last_pod
    if is_one_pod and job.gpus_surplus == 0 and job.gpus_bound % ONE_GPU == 0:
        row.node = w.pods[job.first_pod].node


@helper
def unlist_running(w: Any, slot: int) -> None:
    """Take a job out of the running list."""
    job = w.jobs[slot]
    job.is_listed = False
    if job.prev == NONE:
        w.first_running = job.next
    else:
        w.jobs[job.prev].next = job.next
    if job.next == NONE:
        w.last_running = job.prev
    else:
        w.jobs[job.next].prev = job.prev
    job.next = NONE
    job.prev = NONE
    w.num_running -= 1
    if job.place != w.num_running:  # the last of the table takes its place
        w.running[job.place] = w.running[w.num_running]
        w.jobs[w.running[job.place].job].place = job.place
    job.place = NONE


@helper
def remember_slot(w: Any, slot: int) -> None:
    """Enter a job into the map from trace row to slot (open addressing, linear probing)."""
    size = len(w.slot_keys)
    at = _place_of(w, w.jobs[slot].row)
    while w.slot_keys[at] != NONE:
        at = (at + 1) % size
    w.slot_keys[at] = slot


@helper
def slot_of(w: Any, row: int) -> int:
    """Slot of a live job that was remembered, or NONE."""
    size = len(w.slot_keys)
    at = _place_of(w, row)
    while w.slot_keys[at] != NONE:
        if w.jobs[w.slot_keys[at]].row == row:
            return w.slot_keys[at]
        at = (at + 1) % size
    return NONE


@helper
def forget_slot(w: Any, slot: int) -> None:
    """Take a job out of the map, closing the gap behind it."""
    size = len(w.slot_keys)
    gap = _place_of(w, w.jobs[slot].row)
    while w.slot_keys[gap] != slot:
        gap = (gap + 1) % size
    at = (gap + 1) % size
    while w.slot_keys[at] != NONE:
        home = _place_of(w, w.jobs[w.slot_keys[at]].row)
        if (at - home) % size >= (at - gap) % size:
            w.slot_keys[gap] = w.slot_keys[at]
            gap = at
        at = (at + 1) % size
    w.slot_keys[gap] = NONE


@helper
def _place_of(w: Any, row: int) -> int:
    """Home of a row in the map."""
    mixed = np.uint64(row) * np.uint64(0x9E3779B97F4A7C15)
    return int(np.int64(mixed >> np.uint64(20))) % len(w.slot_keys)
