"""One step of a batch of environments: the table of contents of what happens between two decisions.

`drive` takes an action for each environment, applies its transaction, lets time pass until the agent has a choice
again, and writes observation, mask and reward. The single environment is a batch of one. There is one kernel for
stepping and beginning, since all of the simulator is compiled into it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from gangline.envs.action import decode, mark_touched, plan_action, write_mask
from gangline.envs.agent import Kind, TimeMode
from gangline.envs.core.compiled import helper, inlined, kernel
from gangline.envs.core.events import next_time_ms, set_event, tick_entity
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
from gangline.envs.reward import NUM_TERMS, evaluate_terms
from gangline.envs.transition import add_piece, clear_transition, read_areas


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
    agents: Any,
    rows: Any,
    pod_sets: Any,
    schedule: Any,
    log: Any,
    out: Any,
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
        agents: (1,) AGENT.
        rows, pod_sets, schedule, log: tables of the worlds.
        out: (1,) DECISION, scratch.
        actions: (batch, commands) int64, read by STEP; more than one command only in tick mode.
        observations: (batch, flat_size) float32, written.
        masks: (batch, num_actions) int8, written.
        begins, ends: (batch,) int64, read by BEGIN and WARM: ms of the first decision and of the horizon.
    """
    agent = agents[0]
    num_errors = 0
    for i in range(lo, hi):
        w = worlds[i]
        env = envs[i]
        time_passes = False
        if mode == Mode.STEP:
            begin_step(env)
            if env.terminated or env.truncated:  # an episode that is over stays as it is
                env.reward = 0.0
                continue
            for c in range(actions.shape[1]):
                waits = act(w, env, agent, actions[i, c], out[0], rows, pod_sets, schedule, log)
                time_passes = waits or agent.time_mode == TimeMode.TICK
        else:
            start_world(w, rows, schedule)
            warm_up(w, out[0], rows, pod_sets, schedule, log, begins[i])
            if mode == Mode.WARM:
                num_errors += w.error != ErrorCode.NONE
                continue
            clear_episode(w, env, agent, begins[i], ends[i])
        while True:
            if time_passes:
                pass_time(w, env, agent, rows, pod_sets, schedule, log)
            has_choice = look(w, env, agent, masks[i])
            if is_over(w, env) or has_choice or agent.time_mode == TimeMode.TICK or not agent.skips_forced:
                break
            time_passes = True
        if mode == Mode.STEP:
            end_step(env, agent)
        else:
            forget_past(w, env, agent)
        write_observation(w, env, agent, observations[i])
        num_errors += w.error != ErrorCode.NONE
    return num_errors


@helper
def start_world(w: Any, rows: Any, schedule: Any) -> None:
    """Set the first events of a fresh world."""
    plan_next_arrival(w, rows)
    plan_next_change(w, schedule)
    for k in range(w.num_tenants):
        for n in range(w.num_nodes):
            w.held_on[k, n] = 0
    for n in range(w.num_nodes):
        plan_node_change(w, n)
    if w.params.usage_tick_ms < NEVER:
        set_event(w, tick_entity(w), w.now_ms + w.params.usage_tick_ms, EventKind.USAGE_TICK, 0)


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
    env.rows_of = NONE
    read_areas(w, agent.uses_utility, env.areas)
    env.areas_ms = w.now_ms
    clear_transition(env.transition)


@helper
def forget_past(w: Any, env: Any, agent: Any) -> None:
    """The episode starts at its first choice: what led there belongs to no decision."""
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
def begin_step(env: Any) -> None:
    """A decision has been taken: the next transition begins."""
    clear_transition(env.transition)
    env.last_was_legal = True


@inlined
def act(w: Any, env: Any, agent: Any, action: int, out: Any, rows: Any, pod_sets: Any, schedule: Any, log: Any) -> bool:
    """Apply an action now; True if it is `wait`. An illegal one changes nothing and is counted."""
    kind, row, rule = decode(agent, action)
    if kind == Kind.WAIT:
        return True
    out.num_commands = 0
    out.num_transactions = 0
    env.commands_here += 1
    legal = env.commands_here <= agent.max_commands_per_instant
    if not (legal and kind != NONE and plan_action(w, env, agent, kind, row, rule, out)):
        env.num_illegal += 1
        env.last_was_legal = False
        return False
    mark_touched(w, out)
    apply_decision(w, out, log)
    settle_instant(w, rows, pod_sets, schedule, log)
    note_time(w, env, agent)
    return False


@inlined
def look(w: Any, env: Any, agent: Any, mask: Any) -> bool:
    """Choose the rows to show and compute the mask; True if the agent has a choice."""
    refresh_shares(w)
    choose_queue_rows(w, env, agent, env.oldest)
    if agent.may_preempt:
        choose_running_rows(w, env, agent)
    env.num_decisions += 1
    env.num_overflows += w.num_waiting > env.num_queue_rows
    return write_mask(w, env, agent, mask)


@helper
def note_time(w: Any, env: Any, agent: Any) -> None:
    """Add what has passed since the last reading to the transition."""
    read_areas(w, agent.uses_utility, env.areas_now)
    add_piece(env.transition, env.areas, env.areas_now, w.now_ms - env.areas_ms, agent.beta_per_h)
    env.areas_ms = w.now_ms


@inlined
def pass_time(w: Any, env: Any, agent: Any, rows: Any, pod_sets: Any, schedule: Any, log: Any) -> None:
    """Let instants pass: in event time until something happens, in tick time up to the next tick; or to the end."""
    env.commands_here = 0
    is_tick = agent.time_mode == TimeMode.TICK
    until_ms = env.end_ms
    if is_tick:
        until_ms = min(until_ms, w.now_ms + agent.tick_ms - (w.now_ms - env.begin_ms) % agent.tick_ms)
    while not is_over(w, env):
        if next_time_ms(w) >= until_ms:
            go_to(w, until_ms)
            note_time(w, env, agent)
            break
        has_happened = run_instant(w, rows, pod_sets, schedule, log)
        note_time(w, env, agent)
        if has_happened and not is_tick:
            break


@helper
def is_over(w: Any, env: Any) -> bool:
    """Whether the episode has ended: nothing is left (terminated), the horizon (truncated), or an error."""
    if w.num_jobs == 0 and w.next_arrival_ms >= NEVER:
        env.terminated = True
    elif w.now_ms >= env.end_ms:
        env.truncated = True
    return env.terminated or env.truncated or w.error != ErrorCode.NONE


@helper
def end_step(env: Any, agent: Any) -> None:
    """Evaluate the reward of the transition and add it to the episode's sums."""
    evaluate_terms(env.transition.plain, env.terms)
    evaluate_terms(env.transition.discounted, env.discounted_terms)
    reward = 0.0
    for k in range(NUM_TERMS):
        reward += agent.weights[k] * env.discounted_terms[k]
        env.term_sums[k] += env.terms[k]
    env.reward = reward * agent.reward_scale
    env.return_sum += env.reward
    env.num_steps += 1


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
