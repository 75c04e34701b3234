"""sched/backfill: a planned start for every tested job, and whoever can start now without touching those plans.

The map is a list of intervals with the nodes that are free in each. A job that has to wait reserves its nodes, whole,
from its planned start to the end of its limit; lower jobs may only use nodes that nobody has reserved during their
own limit. Running jobs are counted by what they really hold, until the end of their limits.

Source: Slurm src/plugins/sched/backfill/backfill.c, `_will_run_test` in src/plugins/select/cons_tres/job_test.c.
"""

from __future__ import annotations

from typing import Any

from gangline.baselines.slurm.limits import is_limited, limit_of, tres_limit
from gangline.baselines.slurm.main_loop import open_up_nodes
from gangline.baselines.slurm.nodes import choose_nodes, copy_free, demands_of, take_away, write_start
from gangline.baselines.slurm.preemption import ALL, holds_any, plan_preemption
from gangline.baselines.slurm.priority import limit_ms, requested_nodes
from gangline.baselines.slurm.queue import is_alive, sort_ends
from gangline.baselines.slurm.tables import MAX_CLOSED, MAX_END_CELLS, NUM_ANSWERS, Reason, Stage
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER, NONE, JobState

SECOND_MS = 1000
MINUTE_MS = 60_000
YEAR_MS = 365 * 24 * 60 * MINUTE_MS
FIRST_WINDOW_MS = 30_000


@helper
def begin_backfill_pass(w: Any, s: Any) -> None:
    """A pass begins with an empty map: every node that is up, from now to the end of the window."""
    own = s.own[0]
    own.stage = Stage.BACKFILL
    own.position = 0
    own.num_tested = 0
    own.num_started = 0
    own.num_plans = 0
    own.num_intervals = 1
    own.num_backfills += 1
    now_ms = w.now_ms // SECOND_MS * SECOND_MS
    s.intervals[0].start_ms = now_ms
    s.intervals[0].end_ms = now_ms + own.bf_window_ms
    open_up_nodes(w, s.interval_nodes, own.words)
    for a in range(s.own[0].num_assocs):
        s.assocs[a].num_tested = 0
        s.assocs[a].num_tested_of_person = 0
    for p in range(s.own[0].num_partitions):
        s.partitions[p].num_tested = 0
        s.partitions[p].num_closed = 0


@helper
def go_on_with_backfill_pass(w: Any, s: Any, out: Any) -> bool:
    """Go on where the last start has left the pass; True if a transaction was planned, False at its end."""
    own = s.own[0]
    own.stamp += 1
    list_ends(w, s)
    copy_free(w, s)
    while own.position < own.num_order and own.num_tested < own.bf_max_test:
        record = s.order[own.position]
        own.position += 1
        slot = record.slot
        if not is_alive(w, record) or record.priority == 0:
            continue
        if own.bf_max_start > 0 and own.num_started >= own.bf_max_start:
            break
        mine = s.slots[slot]
        limit = limit_of(w, s, slot, record.partition)
        if limit != Reason.NONE:
            mine.reason = limit
            continue
        if is_over_count(s, slot, record.partition):
            continue
        record.tested_pass = own.num_backfills
        own.num_tested += 1
        start_ms = find_start(w, s, slot, record.partition, out)
        if out.num_commands > 0:
            own.num_started += 1
            return True
        note_plan(s, record, start_ms)
        if (
            start_ms < NEVER
            and start_ms - s.intervals[0].start_ms <= own.bf_window_ms
            and not s.qos[mine.qos].no_reserve
        ):
            if is_young(w, s, slot) or own.num_intervals + 2 > len(s.intervals):
                continue
            reserve(s, start_ms, start_ms + planned_limit_ms(w, s, slot, record.partition))
            if mine.array != NONE:
                s.arrays[mine.array].num_planned += 1
    own.stage = Stage.IDLE
    return False


@helper
def is_over_count(s: Any, slot: int, partition: int) -> bool:
    """Whether bf_max_job_user, _user_part, _assoc or _part jobs have been tested already, or bf_max_job_array_resv
    elements of the job's array have a plan; counts this one.
    """
    own = s.own[0]
    assoc = s.assocs[s.slots[slot].assoc]
    person = s.assocs[assoc.person]
    part = s.partitions[partition]
    if own.bf_max_user > 0 and person.num_tested_of_person >= own.bf_max_user:
        return True
    if own.bf_max_assoc > 0 and assoc.num_tested >= own.bf_max_assoc:
        return True
    if own.bf_max_part > 0 and part.num_tested >= own.bf_max_part:
        return True
    if own.bf_max_user_part > 0 and num_tested_beside(s, slot, partition) >= own.bf_max_user_part:
        return True
    if s.slots[slot].array != NONE:
        array = s.arrays[s.slots[slot].array]
        if array.backfill_pass != own.num_backfills:
            array.backfill_pass = own.num_backfills
            array.num_planned = 0
        if array.num_planned >= own.bf_max_array:
            return True
    person.num_tested_of_person += 1
    assoc.num_tested += 1
    part.num_tested += 1
    return False


@helper
def num_tested_beside(s: Any, slot: int, partition: int) -> int:
    """Records of the same user and partition that this pass has tested."""
    own = s.own[0]
    person = s.assocs[s.slots[slot].assoc].person
    count = 0
    for i in range(own.position - 1):
        record = s.order[i]
        is_here = record.tested_pass == own.num_backfills and record.partition == partition
        if is_here and s.assocs[s.slots[record.slot].assoc].person == person:
            count += 1
    return count


@helper
def is_young(w: Any, s: Any, slot: int) -> bool:
    """bf_min_age_reserve, bf_min_prio_reserve: too young or too low to reserve anything."""
    own = s.own[0]
    if own.bf_min_age_ms > 0 and w.now_ms - w.jobs[slot].last_submit_ms < own.bf_min_age_ms:
        return True
    return s.slots[slot].priority < own.bf_min_prio


@helper
def planned_limit_ms(w: Any, s: Any, slot: int, partition: int) -> int:
    """The limit to plan with: a year where there is none, a minute for jobs that never reserve."""
    if s.qos[s.slots[slot].qos].no_reserve:
        return MINUTE_MS
    limit = limit_ms(w, s, slot, partition)
    if limit >= NEVER:
        limit = s.partitions[partition].max_time_ms
    return min(limit, YEAR_MS)


@helper
def list_ends(w: Any, s: Any) -> None:
    """Running jobs by the ends of their limits; one that has outrun its limit ends soon."""
    own = s.own[0]
    now_ms = w.now_ms // SECOND_MS * SECOND_MS
    own.num_ends = 0
    for i in range(own.num_running):
        slot = s.running[i]
        if w.jobs[slot].state == JobState.SUSPENDED:
            continue
        mine = s.slots[slot]
        end_ms = mine.end_ms
        if end_ms >= NEVER:
            limit = min(s.partitions[mine.partition].max_time_ms, YEAR_MS)
            end_ms = mine.start_s * SECOND_MS + limit
        if end_ms <= now_ms:
            end_ms = max(end_ms + own.kill_wait_ms, now_ms + SECOND_MS)
        entry = s.ends[own.num_ends]
        entry.end_ms = end_ms
        entry.slot = slot
        entry.row = w.jobs[slot].row
        own.num_ends += 1
    sort_ends(s, own.num_ends)
    for i in range(min(own.num_ends, MAX_END_CELLS // own.words)):
        for k in range(own.words):
            s.end_nodes[i * own.words + k] = 0
        at = w.jobs[s.ends[i].slot].first_pod
        while at != NONE:
            s.end_nodes[i * own.words + (w.pods[at].node >> 6)] |= 1 << (w.pods[at].node & 63)
            at = w.pods[at].next


@helper
def ends_on_candidates(w: Any, s: Any, i: int) -> bool:
    """Whether the running job of an end holds one of the candidate nodes."""
    words = s.own[0].words
    if (i + 1) * words > MAX_END_CELLS:
        return holds_any(w, s.ends[i].slot, s.candidates)
    shared = 0
    for k in range(words):
        shared |= s.end_nodes[i * words + k] & s.candidates[k]
    return shared != 0


@helper
def find_start(w: Any, s: Any, slot: int, partition: int, out: Any) -> int:
    """Start a job now if it touches no plan; else the start that it can count on, NEVER if there is none.

    The nodes of the planned start are left in `s.chosen`.
    """
    own = s.own[0]
    now_ms = s.intervals[0].start_ms
    limit = planned_limit_ms(w, s, slot, partition)
    from_ms = closed_until(s, partition, limit, now_ms)
    if from_ms >= NEVER:
        return NEVER
    found_ms = NEVER
    at = 0  # the first interval that ends after from_ms
    own.window_end = NONE
    is_first = from_ms == now_ms
    is_new = True
    was_closed = True  # so far no node stayed open for the limit
    while True:
        while at < own.num_intervals - 1 and s.intervals[at].end_ms <= from_ms:
            at += 1
        later_ms = next_boundary(s, partition, at)
        if gather_candidates(s, partition, at, from_ms + limit) or is_new:
            found_ms = will_run(w, s, slot, partition)
        is_new = False
        if was_closed and (later_ms == NONE or num_nodes_in(s.candidates, own.words) > 0):
            was_closed = False
            is_empty = num_nodes_in(s.candidates, own.words) == 0
            note_closed(s, partition, limit, NEVER if is_empty else from_ms)
        if is_first and found_ms > now_ms and plan_preemption(w, s, slot, partition, out):
            own.stage = Stage.IDLE
            own.main_ms = w.now_ms
            own.backfill_is_wanted = 1
            return now_ms
        is_first = False
        start_ms = max(found_ms, from_ms)
        if start_ms <= now_ms:
            start_now(w, s, slot, partition, out)
            return NEVER
        if s.qos[s.slots[slot].qos].no_reserve:
            return NEVER
        if found_ms >= NEVER or (later_ms != NONE and start_ms > later_ms):
            if later_ms == NONE:
                return NEVER
            from_ms = later_ms
            continue
        if start_ms - now_ms > own.bf_window_ms or not touches_plan(s, at, start_ms, start_ms + limit):
            return start_ms
        from_ms = start_ms


@helper
def closed_until(s: Any, partition: int, limit: int, now_ms: int) -> int:
    """Before which time no node of the partition stays open for a limit, as earlier searches of this pass have found.

    Reservations only close: what was closed for a shorter limit is closed for this one. NEVER = for good.
    """
    part = s.partitions[partition]
    until_ms = now_ms
    for i in range(part.num_closed):
        if part.closed_limit_ms[i] <= limit:
            until_ms = max(until_ms, part.closed_until_ms[i])
    return until_ms


@helper
def note_closed(s: Any, partition: int, limit: int, until_ms: int) -> None:
    """Remember that for later searches of this pass."""
    part = s.partitions[partition]
    for i in range(part.num_closed):
        if part.closed_limit_ms[i] == limit:
            part.closed_until_ms[i] = max(part.closed_until_ms[i], until_ms)
            return
    if part.num_closed < MAX_CLOSED:
        part.closed_limit_ms[part.num_closed] = limit
        part.closed_until_ms[part.num_closed] = until_ms
        part.num_closed += 1


@helper
def next_boundary(s: Any, partition: int, at: int) -> int:
    """The first boundary of the map, from an interval on, that opens a node of the partition; NONE.

    Boundaries that open none are passed over: the recorded plans of 22.05 say so, as does the 2026 source.
    """
    own = s.own[0]
    words = own.words
    for i in range(at, own.num_intervals - 1):
        for k in range(words):
            opened = s.interval_nodes[(i + 1) * words + k] & ~s.interval_nodes[i * words + k]
            if opened & s.partition_nodes[partition * words + k] != 0:
                return s.intervals[i].end_ms
    return NONE


@helper
def gather_candidates(s: Any, partition: int, at: int, until_ms: int) -> bool:
    """Nodes of the partition that nobody has reserved from an interval on until a time, that time included.

    A search moves its window forward only. Of its intervals, `window_back` holds what is open from each up to the
    middle, `window_front` what is open in all after that: every interval is looked at twice, however often it moves.
    Returns: False if the nodes are the same as at the last try.
    """
    own = s.own[0]
    words = own.words
    if at > own.window_end:
        own.window_end = at - 1
        own.window_middle = at - 1
    while own.window_end + 1 < own.num_intervals and s.intervals[own.window_end + 1].start_ms <= until_ms:
        own.window_end += 1
        for k in range(words):
            s.window_front[k] &= s.interval_nodes[own.window_end * words + k]
    if at > own.window_middle:
        own.window_middle = own.window_end
        for k in range(words):
            open_nodes = -1
            for i in range(own.window_end, at - 1, -1):
                open_nodes &= s.interval_nodes[i * words + k]
                s.window_back[i * words + k] = open_nodes
            s.window_front[k] = -1
    has_changed = False
    for k in range(words):
        s.candidates[k] = s.partition_nodes[partition * words + k] & s.window_back[at * words + k] & s.window_front[k]
        if s.candidates[k] != s.tried[k]:
            has_changed = True
        s.tried[k] = s.candidates[k]
    return has_changed


@helper
def num_nodes_in(nodes: Any, words: int) -> int:
    """How many nodes are in a set."""
    count = 0
    for k in range(words):
        word = nodes[k]
        while word != 0:
            word &= word - 1
            count += 1
    return count


@helper
def will_run(w: Any, s: Any, slot: int, partition: int) -> int:
    """When a job could run on the candidates: now, or once running jobs have left at the ends of their limits.

    Jobs of a shape and a request get the same answer on the same candidates as long as nobody starts: it is remembered.
    """
    own = s.own[0]
    if num_nodes_in(s.candidates, own.words) < requested_nodes(w, s, slot):
        return NEVER
    job = w.jobs[slot]
    request = s.slots[slot].request
    words = own.words
    key = (job.shape * 31 + partition) * 1_000_003 + request
    for k in range(words):
        key = (key ^ s.candidates[k]) * 0x2545F4914F6CDD1D
    place = (key >> 32) & (NUM_ANSWERS - 1)
    answer = s.answers[place]
    first = 2 * place * words
    is_same = answer.stamp == own.stamp and answer.shape == job.shape and answer.partition == partition
    is_same = is_same and answer.request == request
    for k in range(words):
        is_same = is_same and s.answer_nodes[first + k] == s.candidates[k]
    if is_same and answer.start_ms > s.intervals[0].start_ms:
        for k in range(words):
            s.chosen[k] = s.answer_nodes[first + words + k]
        return answer.start_ms
    answer.stamp = own.stamp
    answer.shape = job.shape
    answer.request = request
    answer.partition = partition
    answer.start_ms = search_run(w, s, slot, partition)
    for k in range(words):
        s.answer_nodes[first + k] = s.candidates[k]
        s.answer_nodes[first + words + k] = s.chosen[k]
    return answer.start_ms


@helper
def search_run(w: Any, s: Any, slot: int, partition: int) -> int:
    """The search behind `will_run`.

    Jobs leave in batches. The first reaches 30 to 60 s beyond the first end, on a grid of 30 s of the clock; each
    further one is at least twice as wide. The answer is the last end of the batch that made room, which may be later
    than needed; so are the nodes, first by index of all that have come free.
    """
    own = s.own[0]
    if choose_nodes(w, s, slot, partition, True):
        return s.intervals[0].start_ms
    for i in range(s.own[0].num_free):
        s.work[i] = s.free[i]
    at = 0
    window_ms = FIRST_WINDOW_MS
    base_ms = NONE
    while at < own.num_ends:
        last_ms = NONE
        while at < own.num_ends:
            entry = s.ends[at]
            at += 1
            if not ends_on_candidates(w, s, at - 1):
                continue  # Slurm skips it without a look at the window
            if base_ms == NONE:
                wall_ms = entry.end_ms + own.epoch_ms
                base_ms = (wall_ms // FIRST_WINDOW_MS + 1) * FIRST_WINDOW_MS - own.epoch_ms
            take_away(w, s, entry.slot, ALL)
            last_ms = entry.end_ms
            if at == own.num_ends or s.ends[at].end_ms > base_ms + window_ms:
                break
        if last_ms == NONE:
            return NEVER
        if choose_nodes(w, s, slot, partition, False):
            return last_ms
        window_ms = wider(window_ms, own.bf_linear_ms)
        while at < own.num_ends and s.ends[at].end_ms > base_ms + window_ms:
            window_ms = wider(window_ms, own.bf_linear_ms)
    return NEVER


@helper
def wider(window_ms: int, linear_ms: int) -> int:
    """The next window of will_run."""
    return window_ms + linear_ms if linear_ms > 0 else 2 * window_ms


@helper
def start_now(w: Any, s: Any, slot: int, partition: int, out: Any) -> None:
    """Plan the start of a job on the chosen nodes, unless a limit on what it would hold there forbids it."""
    if is_limited(s, slot, partition):
        exclusive, _, _, _, _ = demands_of(s, slot, partition)
        reason = tres_limit(w, s, slot, partition, True, exclusive)
        if reason != Reason.NONE:
            s.slots[slot].reason = reason
            return
    if write_start(w, s, slot, partition, out):
        out.num_transactions += 1


@helper
def touches_plan(s: Any, at: int, start_ms: int, end_ms: int) -> bool:
    """Whether the chosen nodes are reserved by somebody in [start, end), intervals before `at` being over by then."""
    own = s.own[0]
    for i in range(at, own.num_intervals):
        if s.intervals[i].start_ms >= end_ms:
            break
        if s.intervals[i].end_ms > start_ms:
            for k in range(own.words):
                if s.chosen[k] & ~s.interval_nodes[i * own.words + k] != 0:
                    return True
    return False


@helper
def note_plan(s: Any, record: Any, start_ms: int) -> None:
    """Write down a planned start and its nodes."""
    own = s.own[0]
    if own.num_plans >= len(s.plans):
        return
    plan = s.plans[own.num_plans]
    plan.slot = record.slot
    plan.row = record.row
    plan.partition = record.partition
    plan.start_ms = start_ms
    for k in range(own.words):
        s.plan_nodes[own.num_plans * own.words + k] = s.chosen[k] if start_ms < NEVER else 0
    own.num_plans += 1


@helper
def reserve(s: Any, start_ms: int, end_ms: int) -> None:
    """Close the chosen nodes in the map from start to end, on the grid of bf_resolution."""
    own = s.own[0]
    grid = own.bf_resolution_ms
    start_ms = max(start_ms // grid * grid, s.intervals[0].start_ms)
    end_ms = -(-end_ms // grid) * grid
    split_at(s, start_ms)
    split_at(s, end_ms)
    for i in range(own.num_intervals):
        if s.intervals[i].start_ms >= start_ms and s.intervals[i].end_ms <= end_ms:
            for k in range(own.words):
                s.interval_nodes[i * own.words + k] &= ~s.chosen[k]


@helper
def split_at(s: Any, time_ms: int) -> None:
    """Make a time a boundary of the map."""
    own = s.own[0]
    words = own.words
    for i in range(own.num_intervals):
        if s.intervals[i].start_ms < time_ms < s.intervals[i].end_ms:
            for j in range(own.num_intervals, i, -1):
                s.intervals[j] = s.intervals[j - 1]
                for k in range(words):
                    s.interval_nodes[j * words + k] = s.interval_nodes[(j - 1) * words + k]
            s.intervals[i].end_ms = time_ms
            s.intervals[i + 1].start_ms = time_ms
            own.num_intervals += 1
            return
