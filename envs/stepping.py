"""One step of a batch of environments: the table of contents of what happens between two decisions.

`drive` takes an action for each environment, applies its transaction, lets time pass until the agent has a choice
again, and writes observation, mask and reward. The single environment is a batch of one. There is one kernel for
stepping and beginning, since all of the simulator is compiled into it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from gangline.envs.action import WAIT, decode, has_no_choice, mark_touched, plan_action, write_mask
from gangline.envs.agent import Arbiter, Face, Kind, Refused, TimeMode
from gangline.envs.core.compiled import helper, inlined, kernel
from gangline.envs.core.events import TICK, next_time_ms, set_event
from gangline.envs.core.fair_share import refresh_shares
from gangline.envs.core.queue import first_waiting
from gangline.envs.core.simulator import (
    apply_decision,
    go_to,
    plan_next_arrival,
    plan_next_change,
    plan_node_change,
    run_instant,
    settle_instant,
    splitmix64,
)
from gangline.envs.core.transactions import plan
from gangline.envs.core.types import NEVER, NONE, ErrorCode, EventKind
from gangline.envs.observation import choose_queue_rows, choose_running_rows, write_observation
from gangline.envs.read_ahead import ask_ahead
from gangline.envs.reward import NUM_TERMS, evaluate_terms, own_reward
from gangline.envs.transition import NUM_OWN, add_own_piece, add_piece, clear_transition, own_area, read_areas


class Mode(IntEnum):
    """What `drive` does with an environment."""

    STEP = 0  # apply its action, go on to the next choice
    BEGIN = 1  # begin an episode: warm the fresh world up, go on to the first choice
    WARM = 2  # warm the fresh world up and stop there, for a scheduler at the compiled door


@kernel
def drive(
    mode: int,
    worlds: Any,
    envs: Any,
    members: Any,
    agents: Any,
    rows: Any,
    pod_sets: Any,
    schedule: Any,
    log: Any,
    out: Any,
    scratch: Any,
    actions: Any,
    observations: Any,
    masks: Any,
    begins: Any,
    ends: Any,
    lo: int,
    hi: int,
) -> int:
    """Step the environments [lo, hi), or begin their episodes. Returns how many of their worlds are in error.

    Args:
        mode: Mode.
        worlds, envs: (batch,) records.
        members: (batch, agents) records of the agents of each environment, where there are several; (batch, 0).
        agents: (1,) AGENT.
        rows, pod_sets, schedule, log: tables of the worlds.
        out, scratch: (1,) DECISION and `scratch_dtype`, of the calling thread.
        actions: (batch, commands) int64, read by STEP; more than one command only in tick mode. Tenants: one each; of
            roles the first is read, as the action of the one whose turn it is.
        observations: (batch, agents or 1, flat_size) float32, written.
        masks: (batch, agents or 1, num_actions) int8, written.
        begins, ends: (batch,) int64, read by BEGIN and WARM: ms of the first decision and of the horizon.
    """
    agent = agents[0]
    num_errors = 0
    for i in range(lo, hi):
        w = worlds[i]
        env = envs[i]
        time_passes = False
        if mode == Mode.STEP:
            ask_ahead(worlds, envs, actions, rows, i, hi)
            begin_step(env, members[i], agent)
            if env.terminated or env.truncated:  # an episode that is over stays as it is
                env.reward = 0.0
                continue
            if agent.face == Face.TENANTS:
                time_passes = play_round(
                    w, env, members[i], agent, masks[i], actions[i], out[0], rows, pod_sets, schedule, log
                )
            elif agent.face == Face.ROLES:
                time_passes = take_turn(
                    w, env, members[i], agent, masks[i], actions[i], out[0], rows, pod_sets, schedule, log
                )
            else:
                for c in range(actions.shape[1]):
                    env.commands_here += actions[i, c] != WAIT
                    waits = act(w, env, env, members[i], agent, actions[i, c], out[0], rows, pod_sets, schedule, log)
                    time_passes = waits or agent.time_mode == TimeMode.TICK
        else:
            start_world(w, rows, schedule)
            warm_up(w, out[0], rows, pod_sets, schedule, log, begins[i])
            if mode == Mode.WARM:
                num_errors += w.error != ErrorCode.NONE
                continue
            clear_episode(w, env, agent, begins[i], ends[i])
            for k in range(len(members[i])):
                clear_episode(w, members[i, k], agent, begins[i], ends[i])
        while True:
            if time_passes:
                pass_time(w, env, members[i], agent, rows, pod_sets, schedule, log)
            may_pass = agent.skips_forced and agent.time_mode == TimeMode.EVENT and env.turn == 0
            time_passes = not is_over(w, env) and may_pass  # asked in any case: it is what ends the episode
            if time_passes and has_no_choice(w, agent):
                continue
            if look(w, env, members[i], agent, scratch[0], masks[i]) or not time_passes:
                break
        if mode == Mode.STEP:
            end_step(w, env, members[i], agent)
        else:
            forget_past(w, env, members[i], agent)
        show(w, env, members[i], agent, scratch[0], observations[i])
        num_errors += w.error != ErrorCode.NONE
    return num_errors


@helper
def start_world(w: Any, rows: Any, schedule: Any) -> None:
    """Set the first events of a fresh world."""
    plan_next_arrival(w, rows)
    plan_next_change(w, schedule)
    for n in range(w.num_nodes):
        plan_node_change(w, n)
    if w.params.usage_tick_ms < NEVER:
        set_event(w, TICK, w.now_ms + w.params.usage_tick_ms, EventKind.USAGE_TICK, 0)


@inlined
def warm_up(w: Any, out: Any, rows: Any, pod_sets: Any, schedule: Any, log: Any, until_ms: int) -> None:
    """Run the world under strict FIFO with packing up to a time: the same state for every policy."""
    while next_time_ms(w) < until_ms and w.error == ErrorCode.NONE:
        run_instant(w, rows, pod_sets, schedule, log)
        while w.error == ErrorCode.NONE:
            head = first_waiting(w)
            out.num_commands = 0
            out.num_transactions = 0
            if head == NONE or not plan(w, head, 0, out):
                break
            apply_decision(w, out, log)
    go_to(w, until_ms)


@helper
def clear_episode(w: Any, env: Any, agent: Any, begin_ms: int, end_ms: int) -> None:
    """Nothing has happened in this episode yet."""
    env.begin_ms = begin_ms
    env.end_ms = end_ms
    env.commands_here = 0
    env.num_steps = 0
    env.num_illegal = 0
    env.num_overflows = 0
    env.num_decisions = 0
    env.terminated = False
    env.truncated = False
    env.num_queue_rows = 0
    env.num_running_rows = 0
    env.num_places = 0
    env.rows_of = NONE
    env.num_rounds = 0
    env.turn = 0
    env.somebody_acts = False
    read_areas(w, agent.uses_utility, env.areas)
    env.areas_ms = w.now_ms
    clear_transition(env.transition)


@helper
def forget_past(w: Any, env: Any, members: Any, agent: Any) -> None:
    """The episode starts at its first choice: what led there belongs to no decision."""
    for k in range(len(members)):
        member = members[k]
        for q in range(NUM_OWN):
            member.own_gains[q] = 0.0
            member.own_areas[q] = own_area(w, member.tenant, q) if member.tenant != NONE else 0.0
        forget_turn(member)
        member.return_sum = 0.0
        member.last_was_legal = True
        member.had_choice = False
        member.refused = Refused.NO
    read_areas(w, agent.uses_utility, env.areas)
    env.areas_ms = w.now_ms
    clear_transition(env.transition)
    env.reward = 0.0
    env.return_sum = 0.0
    env.last_was_legal = True
    for k in range(NUM_TERMS):
        env.terms[k] = 0.0
        env.discounted_terms[k] = 0.0
        env.term_sums[k] = 0.0


@helper
def begin_step(env: Any, members: Any, agent: Any) -> None:
    """A decision has been taken: the next transition begins."""
    clear_transition(env.transition)
    env.last_was_legal = True
    for k in range(len(members)):
        member = members[k]
        if agent.face == Face.TENANTS or k == env.turn:
            member.had_choice = member.has_choice
        member.last_was_legal = True
        member.refused = Refused.NO
        for q in range(NUM_OWN):
            member.own_gains[q] = 0.0


@inlined
def act(
    w: Any,
    env: Any,
    viewer: Any,
    members: Any,
    agent: Any,
    action: int,
    out: Any,
    rows: Any,
    pod_sets: Any,
    schedule: Any,
    log: Any,
) -> bool:
    """Apply an action now; True if it is `wait`. An illegal one changes nothing and is counted.

    `viewer` has chosen it from its rows: the environment itself, or one of several agents.
    """
    kind, row, rule = decode(agent, action)
    if kind == Kind.WAIT:
        return True
    out.num_commands = 0
    out.num_transactions = 0
    legal = env.commands_here <= agent.max_commands_per_instant
    if not (legal and kind != NONE and plan_action(w, viewer, agent, kind, row, rule, out)):
        viewer.num_illegal += 1
        viewer.last_was_legal = False
        return False
    mark_touched(w, out)
    apply_decision(w, out, log)
    settle_instant(w, rows, pod_sets, schedule, log)
    note_time(w, env, members, agent)
    return False


@inlined
def look(w: Any, env: Any, members: Any, agent: Any, scratch: Any, masks: Any) -> bool:
    """Choose the rows to show and compute the masks; True if anybody has a choice."""
    refresh_shares(w)
    if agent.face == Face.SINGLE:
        return look_as(w, env, agent, scratch, masks[0])
    has_choice = False
    for k in range(len(members)):
        member = members[k]
        member.commands_here = env.commands_here
        member.has_choice = look_as(w, member, agent, scratch, masks[k])
        has_choice = has_choice or member.has_choice
    return has_choice


@helper
def look_as(w: Any, viewer: Any, agent: Any, scratch: Any, mask: Any) -> bool:
    """Choose the rows that somebody is shown and compute the mask; True if that leaves a choice."""
    choose_queue_rows(w, viewer, agent, viewer.oldest, scratch)
    if agent.may_preempt:
        choose_running_rows(w, viewer, agent)
    return write_mask(w, viewer, agent, mask)


@helper
def show(w: Any, env: Any, members: Any, agent: Any, scratch: Any, observations: Any) -> None:
    """Write what everybody sees."""
    env.num_decisions += 1
    if agent.face == Face.SINGLE:
        env.num_overflows += w.num_waiting > env.num_queue_rows
        write_observation(w, env, agent, scratch, observations[0])
    for k in range(len(members)):
        member = members[k]
        num_waiting = w.num_waiting if member.tenant == NONE else w.tenants[member.tenant].num_waiting
        member.num_decisions += 1
        member.num_overflows += num_waiting > member.num_queue_rows
        write_observation(w, member, agent, scratch, observations[k])


@helper
def note_time(w: Any, env: Any, members: Any, agent: Any) -> None:
    """Add what has passed since the last reading to the transition, and to what tenants earn for themselves."""
    read_areas(w, agent.uses_utility, env.areas_now)
    mean, ends = add_piece(env.transition, env.areas, env.areas_now, w.now_ms - env.areas_ms, agent.beta_per_h)
    env.areas_ms = w.now_ms
    if agent.face == Face.TENANTS:
        for k in range(len(members)):
            add_own_piece(w, members[k], mean, ends)


@inlined
def pass_time(w: Any, env: Any, members: Any, agent: Any, rows: Any, pod_sets: Any, schedule: Any, log: Any) -> None:
    """Let instants pass: in event time until something happens, in tick time up to the next tick; or to the end."""
    env.commands_here = 0
    is_tick = agent.time_mode == TimeMode.TICK
    until_ms = env.end_ms
    if is_tick:
        until_ms = min(until_ms, w.now_ms + agent.tick_ms - (w.now_ms - env.begin_ms) % agent.tick_ms)
    while not is_over(w, env):
        if next_time_ms(w) >= until_ms:
            go_to(w, until_ms)
            note_time(w, env, members, agent)
            break
        has_happened = run_instant(w, rows, pod_sets, schedule, log)
        note_time(w, env, members, agent)
        if has_happened and not is_tick:
            break


# ---------------------------------------------------------------------------------------------------------------
# Several agents
# ---------------------------------------------------------------------------------------------------------------


@inlined
def play_round(
    w: Any,
    env: Any,
    members: Any,
    agent: Any,
    masks: Any,
    actions: Any,
    out: Any,
    rows: Any,
    pod_sets: Any,
    schedule: Any,
    log: Any,
) -> bool:
    """Apply a command of each tenant, one after another as the arbiter says, each checked again; True if all wait."""
    all_wait = True
    for k in range(len(members)):
        members[k].has_spoken = False
        all_wait = all_wait and actions[k] == WAIT
    env.commands_here += not all_wait
    for _ in range(len(members)):
        k = next_to_speak(w, env, members, agent, actions)
        member = members[k]
        member.has_spoken = True
        was_legal = (
            0 <= actions[k] < agent.num_actions and masks[k, max(0, min(actions[k], agent.num_actions - 1))] == 1
        )
        act(w, env, member, members, agent, actions[k], out, rows, pod_sets, schedule, log)
        if not member.last_was_legal:
            member.refused = Refused.CONFLICT if was_legal else Refused.ILLEGAL
            member.num_illegal -= was_legal
    env.num_rounds += 1
    return all_wait or agent.time_mode == TimeMode.TICK


@helper
def is_legal(agent: Any, mask: Any, action: int) -> bool:
    """Whether a mask allows an action, which may be any number."""
    return 0 <= action < agent.num_actions and mask[action] == 1


@helper
def next_to_speak(w: Any, env: Any, members: Any, agent: Any, actions: Any) -> int:
    """Whose command is dealt with next. Ties go to the first from a place that moves on by one in each round."""
    count = len(members)
    best = NONE
    for i in range(count):
        k = (env.num_rounds + i) % count
        if members[k].has_spoken:
            continue
        if best == NONE:
            best = k
        elif agent.arbiter == Arbiter.ENTITLEMENT_DEFICIT:
            a = w.tenants[members[k].tenant]
            b = w.tenants[members[best].tenant]
            if a.held * b.entitled < b.held * a.entitled:
                best = k
        elif agent.arbiter == Arbiter.PRIORITY:
            level = priority_of(w, members[k], agent, actions[k])
            best = k if level > priority_of(w, members[best], agent, actions[best]) else best
    return best


@helper
def priority_of(w: Any, member: Any, agent: Any, action: int) -> int:
    """Priority of the job that a tenant's command is about; the lowest for `wait`."""
    kind, row, _ = decode(agent, action)
    if kind == Kind.PREEMPT and row < member.num_running_rows:
        return w.jobs[member.running_jobs[row]].priority
    if kind != Kind.WAIT and kind != Kind.PREEMPT and kind != NONE and row < member.num_queue_rows:
        return w.jobs[member.queue_jobs[row]].priority
    return -NEVER


@helper
def pay_tenants(members: Any, agent: Any) -> None:
    """What each tenant earns for itself, mixed with the mean over all."""
    team = 0.0
    for k in range(len(members)):
        team += own_reward(members[k].own_gains, agent.own_weights)
    team /= len(members)
    for k in range(len(members)):
        own = own_reward(members[k].own_gains, agent.own_weights)
        members[k].reward = ((1.0 - agent.mu) * own + agent.mu * team) * agent.reward_scale
        members[k].return_sum += members[k].reward


@inlined
def take_turn(
    w: Any,
    env: Any,
    members: Any,
    agent: Any,
    masks: Any,
    actions: Any,
    out: Any,
    rows: Any,
    pod_sets: Any,
    schedule: Any,
    log: Any,
) -> bool:
    """Apply the action of the role whose turn it is, pass the turn on; True if a round in which all waited is over."""
    member = members[env.turn]
    forget_turn(member)
    action = actions[0]
    env.somebody_acts = env.somebody_acts or action != WAIT
    kind, row, _ = decode(agent, action)
    if not is_legal(agent, masks[env.turn], action):
        member.num_illegal += 1
        member.last_was_legal = False
        member.refused = Refused.ILLEGAL
    elif kind == Kind.ADMIT:
        w.jobs[member.queue_jobs[row]].is_let_in = True
    elif kind != Kind.WAIT:
        if kind != Kind.PREEMPT:
            w.jobs[member.queue_jobs[row]].is_let_in = False  # once stopped, it has to be let in again
        act(w, env, member, members, agent, action, out, rows, pod_sets, schedule, log)
    env.turn += 1
    if env.turn < len(members):
        return False
    env.turn = 0
    all_wait = not env.somebody_acts
    env.somebody_acts = False
    env.commands_here += not all_wait
    env.num_rounds += 1
    return all_wait or agent.time_mode == TimeMode.TICK


@helper
def forget_turn(member: Any) -> None:
    """What comes belongs to the turn that a role now takes."""
    member.since_discount = 1.0
    member.since_h = 0.0
    member.reward = 0.0


@helper
def pay_roles(env: Any, members: Any) -> None:
    """Add what has been earned to every role's reward, discounted to its last turn."""
    for k in range(len(members)):
        member = members[k]
        member.reward = member.since_discount * env.reward
        member.since_discount *= env.transition.discount
        member.since_h += env.transition.elapsed_h
        member.return_sum += member.reward


@helper
def is_over(w: Any, env: Any) -> bool:
    """Whether the episode has ended: nothing is left (terminated), the horizon (truncated), or an error."""
    if w.num_jobs == 0 and w.next_arrival_ms >= NEVER:
        env.terminated = True
    elif w.now_ms >= env.end_ms:
        env.truncated = True
    return env.terminated or env.truncated or w.error != ErrorCode.NONE


@helper
def end_step(w: Any, env: Any, members: Any, agent: Any) -> None:
    """Evaluate the reward of the transition and add it to the episode's sums; then what each of several agents gets."""
    evaluate_terms(env.transition.plain, env.terms)
    evaluate_terms(env.transition.discounted, env.discounted_terms)
    reward = 0.0
    for k in range(NUM_TERMS):
        reward += agent.weights[k] * env.discounted_terms[k]
        env.term_sums[k] += env.terms[k]
    env.reward = reward * agent.reward_scale
    env.return_sum += env.reward
    env.num_steps += 1
    if agent.face == Face.TENANTS:
        pay_tenants(members, agent)
    elif agent.face == Face.ROLES:
        pay_roles(env, members)


@kernel
def reset_worlds(bytes_of_worlds: Any, template: Any, lo: int, hi: int) -> None:
    """Copy the template's bytes over the part of each world that must begin anew.

    Args:
        bytes_of_worlds: (batch, record size) uint8.
        template: (prefix,) uint8.
    """
    for i in range(lo, hi):
        for k in range(len(template)):
            bytes_of_worlds[i, k] = template[k]


@kernel
def read_episode_areas(worlds: Any, i: int, areas: Any) -> None:
    """(NUM_QUANTITIES,) a world's integrals so far, in the units of a transition, decayed usage included."""
    read_areas(worlds[i], True, areas)


@kernel
def terms_of(areas: Any, out: Any) -> None:
    """(NUM_TERMS,) every built-in reward term of the areas, for Python."""
    evaluate_terms(areas, out)


@kernel
def failure_seeds(worlds: Any, i: int, seed: Any) -> None:
    """Give every node its own failure stream from an episode's seed."""
    w = worlds[i]
    for n in range(w.num_nodes):
        w.nodes[n].failure_rng = splitmix64(seed) + splitmix64(n)
