"""Making room: the smallest sufficient set of running jobs whose eviction lets a waiting one start.

The search lifts running jobs off their nodes, one after another where they cost least, and puts back in the end
those without whom the job fits all the same. What it returns is one transaction, evictions first, then the placement.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.core.fair_share import refresh_shares
from gangline.envs.core.placement import measure_fit, node_is_open, pods_that_fit
from gangline.envs.core.transactions import (
    begin,
    lift,
    plan_evict,
    plan_within,
    put_back,
    touch,
    try_command,
    undo,
)
from gangline.envs.core.types import (
    LAST_SEARCH,
    MAX_COMMANDS,
    NEVER,
    NONE,
    ONE_GPU,
    JobKind,
    JobState,
    PodState,
    Quota,
    Result,
    Shape,
    Then,
)


class VictimRule(IntEnum):
    """Whom to stop first."""

    LEAST_LOST = 0  # least GPU time since the last checkpoint, restart cost included
    NEWEST = 1  # shortest time since its start
    MOST_OVER_SHARE = 2  # tenant with the most GPUs above its fair share


class Scope(IntEnum):
    """Whose jobs may be stopped."""

    OVER_SHARE = 0  # tenants that hold more than their fair share, other than the job's own
    LONGER_REMAINING = 1  # oracle: jobs with more work left (per GPU-time) than the job
    MORE_ATTAINED = 2  # jobs in a higher class of attained service (2D-LAS)


UNAFFORDABLE = 1 << 61
MIN_RUN = 6  # entry of `candidates_of`: how long a job is protected after its start
NOT_COMPUTED = -1  # cost of a candidate that nobody has asked for yet


@helper
def visible_loss(w: Any, job: Any) -> int:
    """GPU time (milli-GPU x ms) that an observer expects to be lost if a job is stopped now, restart included.

    From its start, checkpoint interval and restart cost only, not from its hidden progress.
    """
    run = max(0, w.now_ms - job.start_ms) if job.start_ms < NEVER else 0
    if job.checkpoint_interval_ms < NEVER:
        cycle = job.checkpoint_interval_ms + job.checkpoint_cost_ms
        if run >= cycle:
            run %= cycle
        run = min(run, job.checkpoint_interval_ms)
    return (run + job.restart_cost_ms) * job.gpus_bound


@helper
def loss_of_row(w: Any, row: Any) -> int:
    """`visible_loss` of a row of the table of running jobs, which remembers when its checkpoint cycle began."""
    run = w.now_ms - row.cycle_from_ms
    cycle = row.checkpoint_interval_ms + row.checkpoint_cost_ms  # without checkpoints it does not come to an end
    if run >= cycle:
        whole = run // cycle * cycle
        row.cycle_from_ms += whole
        run -= whole
    return (min(run, row.checkpoint_interval_ms) + row.restart_cost_ms) * row.gpus_bound


@helper
def victim_cost(w: Any, job: Any, rule: int) -> int:
    """Cost of stopping a job by a rule; the least is stopped first, costs add up over victims."""
    if rule == VictimRule.NEWEST:
        return (w.now_ms - job.start_ms) * max(job.gpus_bound, 1) if job.start_ms < NEVER else 0
    if rule == VictimRule.MOST_OVER_SHARE:
        tenant = w.tenants[job.tenant]
        over = max(0, tenant.held - tenant.leaving - tenant.fair)
        return (1 << 20) * job.gpus_bound // (1 + over) + 1
    return visible_loss(w, job) + 1


@helper
def may_be_stopped(w: Any, victim: Any, job: Any, scope: int, min_run_ms: int) -> bool:
    """Whether a running job may be a victim for `job`: not protected by its kind, its age or its tenant's share."""
    if victim.is_lifted or not _is_candidate(w, victim, job, scope, min_run_ms):
        return False
    return scope != Scope.OVER_SHARE or _is_over_share(w, victim, job)


@helper
def _is_over_share(w: Any, victim: Any, job: Any) -> bool:
    """Whether a running job belongs to another tenant that holds more than its fair share, victims so far left out."""
    tenant = w.tenants[victim.tenant]
    return victim.tenant != job.tenant and tenant.held - tenant.leaving > tenant.fair


@helper
def _is_candidate(w: Any, victim: Any, job: Any, scope: int, min_run_ms: int) -> bool:
    """The same for every waiting job that has the scope's property in common with `job`: any tenant, work, or class."""
    if not victim.preemptible or victim.num_bound == 0 or victim.state == JobState.SUSPENDED:
        return False
    if victim.start_ms < NEVER and w.now_ms - victim.start_ms < min_run_ms:
        return False
    if victim.touch_ms == w.now_ms:
        return False
    if scope == Scope.OVER_SHARE:
        return True  # if its tenant still is above its share: that changes within a search
    if scope == Scope.LONGER_REMAINING:
        return victim.progress.left > job.progress.left
    return victim.order_key > job.order_key


@helper
def plan_make_room(w: Any, slot: int, rule: int, victims: int, scope: int, min_run_ms: int, out: Any) -> bool:
    """Plan one transaction that evicts a smallest sufficient set and places a waiting job whole.

    Args:
        slot: the waiting job.
        rule: placement rule.
        victims: VictimRule.
        scope: Scope.
        min_run_ms: a job that has run for less since its last start is protected.
        out: decision that the transaction is appended to.
    Returns: False, with `out` and the world unchanged, if no allowed set suffices.
    """
    found = _find_victims(w, slot, victims, scope, min_run_ms)
    count = _put_victims_back(w)
    if not found or count == 0:
        return False
    first = out.num_commands
    begin(w)
    for i in range(count):
        at = out.num_commands
        if not plan_evict(out, w.lifted[i], 0, Then.REQUEUE) or try_command(w, out.commands[at]) != Result.OK:
            found = False
            break
    found = found and touch(w, slot) and plan_within(w, slot, rule, out)
    undo(w)
    if not found:
        out.num_commands = first
        return False
    for i in range(first, out.num_commands):
        out.commands[i].transaction = out.num_transactions
    out.num_transactions += 1
    return True


@helper
def can_make_room(w: Any, slot: int, rule: int, victims: int, scope: int, min_run_ms: int, out: Any) -> bool:
    """Whether `plan_make_room` would succeed; `out` is scratch. The world is unchanged."""
    if w.jobs[slot].num_wanted == 1 and _is_simple(w, w.jobs[slot]):
        return _some_node_can_take(w, slot, victims, scope, min_run_ms)
    found = _find_victims(w, slot, victims, scope, min_run_ms)
    count = _put_victims_back(w)
    if not found or count == 0:
        return False
    pods = w.jobs[slot].num_wanted
    for i in range(count):
        pods += w.jobs[w.lifted[i]].num_bound
    if (
        _is_simple(w, w.jobs[slot]) and pods + count < MAX_COMMANDS
    ):  # the transaction has room: nothing can be in its way
        return True
    out.num_commands = 0
    out.num_transactions = 0
    return plan_make_room(w, slot, rule, victims, scope, min_run_ms, out)


@helper
def _some_node_can_take(w: Any, slot: int, victims: int, scope: int, min_run_ms: int) -> bool:
    """Whether there is a node where stopping candidates, the cheapest first, lets the single pod of a job in."""
    _forget_leaving(w)
    if not _note_candidates(w, slot, victims, scope, min_run_ms):
        return False
    job = w.jobs[slot]
    pod_set = w.pod_sets[job.first_pod_set]
    gpu = w.params.gpu_resource
    only_gpus = gpu != NONE and pod_set.asked == 1 << gpu and pod_set.request[gpu] >= ONE_GPU
    is_plain = only_gpus and scope == Scope.OVER_SHARE and job.first_reservation == NONE
    for n in range(w.num_nodes):
        w.fit[n] = 0
        node = w.nodes[n]
        if (
            node.first_pod == NONE
            or _most_pods(w, job, pod_set, n, scope) == 0
            or not node_is_open(w, pod_set, n, NONE)
        ):
            continue
        if is_plain and w.stops_plainly[n]:  # whoever goes first, all may go
            empty = node.free_gpus - node.planned[gpu] // ONE_GPU
            if empty + _stoppable(w, job, n, scope) // ONE_GPU >= pod_set.request[gpu] // ONE_GPU:
                return True
            continue
        cost = _lift_for_one_more(w, slot, n, victims, scope, UNAFFORDABLE)
        _put_back_from(w, 0)
        if cost < UNAFFORDABLE:
            return True
    return False


@helper
def _forget_leaving(w: Any) -> None:
    """A new search: nobody is on the way out."""
    refresh_shares(w)
    for k in range(w.num_tenants):
        w.tenants[k].leaving = 0


@helper
def _find_victims(w: Any, slot: int, victims: int, scope: int, min_run_ms: int) -> bool:
    """Lift a smallest sufficient set of running jobs; what is marked as lifted then is that set, if there is one."""
    _forget_leaving(w)
    return _note_candidates(w, slot, victims, scope, min_run_ms) and _lift_enough(w, slot, victims, scope)


@helper
def _put_victims_back(w: Any) -> int:
    """Put back all that is lifted; the front of the list keeps those that still were. Returns how many."""
    count = 0
    for i in range(w.num_lifted):
        if w.jobs[w.lifted[i]].is_lifted:
            put_back(w, w.lifted[i])
            w.lifted[count] = w.lifted[i]
            count += 1
    w.num_lifted = 0
    return count


@helper
def _is_simple(w: Any, job: Any) -> bool:
    """Whether room on nodes is all that a job needs: one pod set, no topology wish, no quota in the way."""
    return job.num_pod_sets == 1 and w.params.quota != Quota.ENFORCED and job.topology_wish == Shape.NO_WISH


@helper
def _note_candidates(w: Any, slot: int, rule: int, scope: int, min_run_ms: int) -> bool:
    """Note each running job's cost as a victim, and what the candidates hold on each node; False if all of it together
    would not make room.
    """
    job = w.jobs[slot]
    if _is_new_search(w, job, rule, scope, min_run_ms):
        w.candidates_of[LAST_SEARCH] += 1
        if scope != Scope.OVER_SHARE:
            _note_each(w, job, rule, scope, min_run_ms)
    if scope == Scope.OVER_SHARE:
        _note_stoppable(w, min_run_ms)
    pod_set = w.pod_sets[job.first_pod_set]
    return _could_be_enough(w, job, pod_set, scope, pod_set.count - pod_set.num_done)


@helper
def enough_is_stoppable(w: Any, slot: int, min_run_ms: int) -> bool:
    """Whether stopping all that is allowed of other tenants above their share could make room, for a job or for any
    other of its group. Necessary, not sufficient.
    """
    _note_stoppable(w, min_run_ms)
    job = w.jobs[slot]
    pod_set = w.pod_sets[job.first_pod_set]
    wanted = 1 if job.kind == JobKind.BATCH else pod_set.count  # a batch job may have done a part
    return _could_be_enough(w, job, pod_set, Scope.OVER_SHARE + 0, wanted)


@helper
def _could_be_enough(w: Any, job: Any, pod_set: Any, scope: int, wanted: int) -> bool:
    """Whether that many pods could fit if every candidate was stopped; by GPUs only."""
    gpu = w.params.gpu_resource
    if gpu == NONE or not _is_simple(w, job) or not (pod_set.asked >> gpu) & 1 or pod_set.request[gpu] == 0:
        return True
    most = 0
    for n in range(w.num_nodes):
        if node_is_open(w, pod_set, n, NONE):
            most += _most_pods(w, job, pod_set, n, scope)
            if most >= wanted:
                return True
    return False


@helper
def _is_new_search(w: Any, job: Any, rule: int, scope: int, min_run_ms: int) -> bool:
    """Whether the candidates are others than those of the last search: another state, rule, or kind of waiting job."""
    whose = job.order_key
    if scope == Scope.OVER_SHARE:
        whose = 0  # a tenant's own jobs are left out when costs are asked for
    elif scope == Scope.LONGER_REMAINING:
        whose = job.progress.left
    key = w.candidates_of
    is_same = (
        _is_of_this_state(w, key)
        and key[3] == whose
        and key[4] == scope
        and key[5] == rule
        and key[MIN_RUN] == min_run_ms
    )
    key[3] = whose
    key[4] = scope
    key[5] = rule
    key[MIN_RUN] = min_run_ms
    return not is_same


@helper
def _is_of_this_state(w: Any, key: Any) -> bool:
    """Whether what a key stands for was found in this very state; from now on it is. `commit` forgets keys."""
    events = 1 + w.totals.num_events
    transactions = w.totals.num_transactions
    is_same = key[0] == events and key[1] == transactions and key[2] == w.now_ms
    key[0] = events
    key[1] = transactions
    key[2] = w.now_ms
    return is_same


@helper
def _note_stoppable(w: Any, min_run_ms: int) -> None:
    """Sum up, for each node, what may be stopped there of every tenant above its share, unless that has been done for
    this very state. Nobody may be lifted.
    """
    if _is_of_this_state(w, w.stoppable_of) and w.stoppable_of[3] == min_run_ms:
        return
    w.stoppable_of[3] = min_run_ms
    for n in range(w.num_nodes):
        w.all_stoppable[n] = 0
        w.stops_plainly[n] = True
    some_are_over = False
    for k in range(w.num_tenants):
        if w.tenants[k].held > w.tenants[k].fair:
            some_are_over = True
            for n in range(w.num_nodes):
                w.stoppable[k, n] = 0
    if not some_are_over or w.params.gpu_resource == NONE:
        return
    for i in range(w.num_running):
        row = w.running[i]
        tenant = w.tenants[row.tenant]
        is_protected = row.start_ms < NEVER and w.now_ms - row.start_ms < min_run_ms
        if tenant.held <= tenant.fair or is_protected or not row.may_be_stopped or row.touch_ms == w.now_ms:
            continue
        if row.node != NONE:
            w.stoppable[row.tenant, row.node] += row.gpus_bound
            w.all_stoppable[row.node] += row.gpus_bound
        else:
            _note_stoppable_pods(w, row.job)
    for k in range(w.num_tenants):
        tenant = w.tenants[k]
        if tenant.held > tenant.fair:
            for n in range(w.num_nodes):
                if w.stoppable[k, n] > tenant.held - tenant.fair:  # whoever goes first protects the others
                    w.stops_plainly[n] = False


@helper
def _note_stoppable_pods(w: Any, slot: int) -> None:
    """The same for a job of several pods, or with parts of GPUs."""
    job = w.jobs[slot]
    at = job.first_pod
    while at != NONE:
        pod = w.pods[at]
        if pod.state == PodState.BOUND:
            held = pod.held[w.params.gpu_resource]
            w.stoppable[job.tenant, pod.node] += held
            w.all_stoppable[pod.node] += held
            w.stops_plainly[pod.node] = False
        at = pod.next


@helper
def _stoppable(w: Any, job: Any, n: int, scope: int) -> int:
    """Milli-GPU on a node of candidates for a job."""
    if scope != Scope.OVER_SHARE:
        return w.may_free[n]
    own = w.tenants[job.tenant]
    return w.all_stoppable[n] - (w.stoppable[job.tenant, n] if own.held > own.fair else 0)


@helper
def _note_each(w: Any, job: Any, rule: int, scope: int, min_run_ms: int) -> None:
    """Mark the running jobs that are candidates for `job` and its like, and sum up what they hold on each node."""
    gpu = w.params.gpu_resource
    for n in range(w.num_nodes):
        w.may_free[n] = 0
    at = w.first_running
    while at != NONE:
        victim = w.jobs[at]
        victim.victim_cost = NEVER
        victim.cost_of_search = w.candidates_of[LAST_SEARCH]
        if _is_candidate(w, victim, job, scope, min_run_ms):
            victim.victim_cost = NOT_COMPUTED
            p = victim.first_pod
            while p != NONE:
                pod = w.pods[p]
                if gpu != NONE and pod.state == PodState.BOUND:
                    w.may_free[pod.node] += pod.held[gpu]
                p = pod.next
        at = victim.next


@helper
def _most_pods(w: Any, job: Any, pod_set: Any, n: int, scope: int) -> int:
    """Upper bound of the pods that fit on a node if every candidate there is stopped; by GPUs only."""
    gpu = w.params.gpu_resource
    if gpu == NONE or not (pod_set.asked >> gpu) & 1 or pod_set.request[gpu] == 0:
        return NEVER
    return (w.nodes[n].idle[gpu] + _stoppable(w, job, n, scope)) // pod_set.request[gpu]


@helper
def _cost_now(w: Any, victim: Any, job: Any, rule: int, scope: int) -> int:
    """Cost of stopping a job for `job`, lifted ones counted as stopped; NEVER if it may not be, or is lifted itself."""
    if victim.is_lifted or (scope == Scope.OVER_SHARE and not _is_over_share(w, victim, job)):
        return NEVER
    if victim.cost_of_search != w.candidates_of[LAST_SEARCH]:
        victim.cost_of_search = w.candidates_of[LAST_SEARCH]
        victim.victim_cost = NOT_COMPUTED if _is_candidate(w, victim, job, scope, w.candidates_of[MIN_RUN]) else NEVER
    if victim.victim_cost >= NEVER:
        return NEVER
    if rule == VictimRule.MOST_OVER_SHARE:
        return victim_cost(w, victim, rule)
    if victim.victim_cost == NOT_COMPUTED:
        victim.victim_cost = victim_cost(w, victim, rule)
    return victim.victim_cost


@helper
def _lift_enough(w: Any, slot: int, rule: int, scope: int) -> bool:
    """Lift victims, on the node where one more pod costs least, until every pod of the job fits."""
    job = w.jobs[slot]
    if not _is_simple(w, job):
        return _lift_by_cost(w, slot, rule, scope)
    pod_set = w.pod_sets[job.first_pod_set]
    wanted = pod_set.count - pod_set.num_done
    total = measure_fit(w, job, pod_set, NONE, wanted)
    while total < wanted:
        best = NONE
        best_cost = UNAFFORDABLE
        for n in range(w.num_nodes):
            if (
                w.nodes[n].first_pod != NONE
                and _most_pods(w, job, pod_set, n, scope) > w.fit[n]
                and node_is_open(w, pod_set, n, NONE)
            ):
                first = w.num_lifted
                cost = _lift_for_one_more(w, slot, n, rule, scope, best_cost)
                _put_back_from(w, first)
                if cost < best_cost:
                    best_cost = cost
                    best = n
        if best == NONE:
            return False
        _lift_for_one_more(w, slot, best, rule, scope, UNAFFORDABLE)
        total = measure_fit(w, job, pod_set, NONE, wanted)
    for i in range(w.num_lifted - 2, -1, -1):  # who made room for one pod may not be needed after the others
        if w.jobs[w.lifted[i]].is_lifted:
            _put_victim_back(w, w.lifted[i])
            if measure_fit(w, job, pod_set, NONE, wanted) < wanted:
                _lift_again(w, w.lifted[i])
    return True


@helper
def _lift_for_one_more(w: Any, slot: int, n: int, rule: int, scope: int, give_up_at: int) -> int:
    """Lift the cheapest jobs of a node until one more pod fits there; returns the cost, or UNAFFORDABLE."""
    job = w.jobs[slot]
    pod_set = w.pod_sets[job.first_pod_set]
    first = w.num_lifted
    fits = w.fit[n]
    total = 0
    while pods_that_fit(w, job, pod_set, n) <= fits:
        best = NONE
        best_cost = UNAFFORDABLE
        at = w.nodes[n].first_pod
        while at != NONE:
            pod = w.pods[at]
            if pod.state == PodState.BOUND:
                victim = w.jobs[pod.job]
                cost = _cost_now(w, victim, job, rule, scope)
                if cost < best_cost or (best != NONE and cost == best_cost and victim.row > w.jobs[best].row):
                    best_cost = cost
                    best = pod.job
            at = pod.next_on_node
        if best == NONE or total + best_cost >= give_up_at or not _lift_victim(w, best):
            return UNAFFORDABLE
        total += best_cost
    for i in range(w.num_lifted - 2, first - 1, -1):  # without whom does one more fit all the same?
        victim_slot = w.lifted[i]
        _put_victim_back(w, victim_slot)
        if pods_that_fit(w, job, pod_set, n) > fits:
            total -= victim_cost(w, w.jobs[victim_slot], rule)
        else:
            _lift_again(w, victim_slot)
    return total


@helper
def _lift_by_cost(w: Any, slot: int, rule: int, scope: int) -> bool:
    """Lift the cheapest anywhere until all fits: for several pod sets, a topology wish, or enforced quota."""
    while not _fits_whole(w, slot):
        best = NONE
        best_cost = UNAFFORDABLE
        at = w.first_running
        while at != NONE:
            victim = w.jobs[at]
            cost = _cost_now(w, victim, w.jobs[slot], rule, scope)
            if cost < best_cost:
                best_cost = cost
                best = at
            at = victim.next
        if best == NONE or not _lift_victim(w, best):
            return False
    for i in range(w.num_lifted - 2, -1, -1):
        _put_victim_back(w, w.lifted[i])
        if not _fits_whole(w, slot):
            _lift_again(w, w.lifted[i])
    return True


@helper
def _fits_whole(w: Any, slot: int) -> bool:
    """Whether every pod set of a job would find nodes and quota, with those lifted out of the way."""
    begin(w)
    if not touch(w, slot):
        return False
    scratch = w.scratch[0]
    scratch.num_commands = 0
    scratch.num_transactions = 0
    fits = plan_within(w, slot, 0, scratch)
    undo(w)
    return fits


@helper
def _lift_victim(w: Any, slot: int) -> bool:
    """Lift a victim and count what its tenant loses."""
    if not lift(w, slot):
        return False
    w.tenants[w.jobs[slot].tenant].leaving += w.jobs[slot].gpus_bound
    return True


@helper
def _lift_again(w: Any, slot: int) -> None:
    """Lift a victim that is in the list already."""
    lift(w, slot)
    w.num_lifted -= 1
    w.tenants[w.jobs[slot].tenant].leaving += w.jobs[slot].gpus_bound


@helper
def _put_victim_back(w: Any, slot: int) -> None:
    """Put a victim back; it stays in the list, no longer marked."""
    put_back(w, slot)
    w.tenants[w.jobs[slot].tenant].leaving -= w.jobs[slot].gpus_bound


@helper
def _put_back_from(w: Any, first: int) -> None:
    """Put back the victims lifted since the list had `first` entries, and shorten it."""
    for i in range(w.num_lifted - 1, first - 1, -1):
        if w.jobs[w.lifted[i]].is_lifted:
            _put_victim_back(w, w.lifted[i])
    w.num_lifted = first
