"""The gang scheduler: jobs that over-subscribe the same cores (OverSubscribe=FORCE:n, PreemptMode=GANG) take turns.

In Slurm "gang" means time slices, not all-or-nothing, and only cores are shared: GPUs are never.
Source: Slurm src/slurmctld/gang.c.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.slurm.nodes import choose_nodes, copy_free, take_away, write_start
from gangline.baselines.slurm.preemption import go_on, holds_any, stop
from gangline.envs.core.compiled import helper
from gangline.envs.core.transactions import _new_command
from gangline.envs.core.types import NEVER, NONE, JobState, Op, PodState


@helper
def plan_shared_start(w: Any, s: Any, slot: int, partition: int, out: Any) -> bool:
    """Plan the start of a job on cores that others hold, if its partition shares them and a layer is left.

    Whoever is in its way stops for it to be placed; `plan_turns` then lets them go on and makes the newcomer wait for
    its first slice.
    """
    own = s.own[0]
    layers = s.partitions[partition].over_subscribe
    if layers < 2 or not own.is_gang or own.cpu == NONE:
        return False
    width = own.num_resources + 1
    copy_free(w, s)
    for i in range(own.num_free):
        s.work[i] = s.free[i]
    for n in range(w.num_nodes):
        s.work[n * width + own.cpu] = layers * w.nodes[n].capacity[own.cpu]
    for i in range(own.num_running):
        at = w.jobs[s.running[i]].first_pod
        while at != NONE:
            if w.pods[at].state == PodState.BOUND:
                s.work[w.pods[at].node * width + own.cpu] -= w.pods[at].held[own.cpu]
            at = w.pods[at].next
    if not choose_nodes(w, s, slot, partition, False):
        return False
    for i in range(own.words):
        s.candidates[i] = s.chosen[i]
    first = out.num_commands
    for i in range(own.num_free):
        s.work[i] = s.free[i]
    for i in range(own.num_running):
        if choose_nodes(w, s, slot, partition, False):
            break
        other = s.running[i]
        if w.jobs[other].state == JobState.RUNNING and holds_any(w, other, s.candidates):
            take_away(w, s, other, 1 << own.cpu)
            plan_stop(w, s, other, out)
            s.slots[other].is_sliced = True
    if not choose_nodes(w, s, slot, partition, False) or not write_start(w, s, slot, partition, out):
        out.num_commands = first
        return False
    out.num_transactions += 1
    own.newcomer = slot
    if own.next_slice_ms >= NEVER:
        own.next_slice_ms = w.now_ms + own.slice_ms
    return True


@helper
def plan_stop(w: Any, s: Any, slot: int, out: Any) -> None:
    """Write the command that takes a job's cores, and remember that it stands still."""
    at = _new_command(out, Op.SUSPEND, slot)
    if at != NONE:
        out.commands[at].freed_mask = 1 << s.own[0].cpu
        stop(w, s, slot)


@helper
def plan_turns(w: Any, s: Any, out: Any) -> bool:
    """Plan the next turn: a newcomer waits for its first; after each slice those that stood still run."""
    own = s.own[0]
    if own.newcomer != NONE:
        newcomer = own.newcomer
        own.newcomer = NONE
        s.slots[newcomer].is_sliced = True
        if w.jobs[newcomer].state != JobState.RUNNING:
            return False
        note_nodes(w, s, newcomer)
        plan_stop(w, s, newcomer, out)
        for i in range(own.num_running):
            other = s.running[i]
            if other != newcomer and s.slots[other].is_stopped and holds_any(w, other, s.tried):
                plan_go_on(w, s, other, out)
        out.num_transactions += 1
        return True
    if w.now_ms < own.next_slice_ms:
        return False
    for i in range(own.num_running):
        slot = s.running[i]
        mine = s.slots[slot]
        if not mine.is_sliced or not mine.is_stopped or mine.stopped_ms == w.now_ms:
            continue
        note_nodes(w, s, slot)
        first = out.num_commands
        for j in range(own.num_running):
            other = s.running[j]
            theirs = s.slots[other]
            is_its_turn_over = theirs.is_sliced and not theirs.is_stopped and theirs.resumed_ms != w.now_ms
            if is_its_turn_over and w.jobs[other].state == JobState.RUNNING and holds_any(w, other, s.tried):
                plan_stop(w, s, other, out)
        if out.num_commands > first:
            plan_go_on(w, s, slot, out)
            out.num_transactions += 1
            return True
    own.next_slice_ms = w.now_ms + own.slice_ms if own.num_stopped > 0 else NEVER
    return False


@helper
def plan_go_on(w: Any, s: Any, slot: int, out: Any) -> None:
    """Write the command that gives a job its cores back."""
    if _new_command(out, Op.RESUME, slot) != NONE:
        s.slots[slot].resumed_ms = w.now_ms
        go_on(w, s, slot)


@helper
def note_nodes(w: Any, s: Any, slot: int) -> None:
    """Fill `s.tried` with a job's nodes."""
    for i in range(s.own[0].words):
        s.tried[i] = 0
    at = w.jobs[slot].first_pod
    while at != NONE:
        s.tried[w.pods[at].node >> 6] |= 1 << (w.pods[at].node & 63)
        at = w.pods[at].next
