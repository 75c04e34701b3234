"""Behaviour cloning: a baseline acts in the agent's environments, and the policy learns to do the same.

At every choice the baseline is asked what it would do, on the world's own record; what it would start is the agent's
action wherever the agent has one for it. Where it has none (the job is not among the rows shown, a reservation that
the agent cannot make), the environment waits and nothing is learned from it. Values are learned on the way, so that
PPO goes on from there. Source: DeepRM (Mao et al., HotNets 2016), which begins so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gangline.agents.batches import OneAgent
from gangline.baselines import base
from gangline.envs.core.compiled import entry_point, helper, kernel
from gangline.envs.core.driver import reorder_queue
from gangline.envs.core.types import DECISION, NONE, Op
from gangline.envs.errors import GanglineError

WAIT = 0
UNKNOWN = -1


class Teacher:
    """A baseline that says what it would do in each environment of a batch.

    `choose` gives its actions; `begin(i)` forgets what it remembers of environment i.
    """

    def __init__(self, name: str, options: Mapping[str, Any], batch: Any) -> None:
        """A baseline by name.

        Raises:
            GanglineError: unknown name or option, or a batch with several agents.
        """
        self._scheduler = base.build(name, **options)
        if not isinstance(batch, OneAgent):
            raise GanglineError(f"agent.clone is {name!r}, expected null where several agents act: a baseline is one")
        self._batch = batch.batch
        self._decide = self._scheduler.compiled(self._batch.size)
        self._out = np.zeros(1, DECISION)
        self._queue_order = int(self._batch.template[0]["params"]["queue_order"])
        self._memory = np.stack([self._fresh(i) for i in range(batch.num_envs)])
        self._actions = np.zeros(batch.num_envs, np.int64)
        self._ask: Any = None

    def choose(self) -> tuple[np.ndarray, np.ndarray]:
        """((num_envs, 1) actions, (num_envs, 1) bool): what it would do now, and whether the agent can do that."""
        batch = self._batch
        arguments = (
            self._decide,
            batch.worlds,
            batch.envs,
            batch.agents,
            batch.masks,
            self._memory,
            self._out,
            int(self._scheduler.queue_order),
            self._actions,
        )
        if self._ask is None:
            self._ask = entry_point(ask, *arguments)
        self._ask(*arguments)
        is_known = self._actions != UNKNOWN
        return np.where(is_known, self._actions, WAIT)[:, None], is_known[:, None]

    def begin(self, i: int) -> None:
        """Environment i begins an episode."""
        self._memory[i] = self._fresh(i)

    def state(self) -> np.ndarray:
        """What it remembers."""
        return self._memory.copy()

    def restore(self, state: np.ndarray) -> None:
        """Remember it again."""
        self._memory[:] = state

    def _fresh(self, i: int) -> np.ndarray:
        memory = self._scheduler.private_for(self._batch.world_of(i))
        reorder_queue(self._batch.worlds, i, self._queue_order)
        return memory


@kernel
def ask(
    decide: Any,
    worlds: Any,
    envs: Any,
    agents: Any,
    masks: Any,
    memory: Any,
    out: Any,
    queue_order: int,
    actions: Any,
) -> None:
    """Write what a compiled scheduler would do in each environment; UNKNOWN where the agent cannot do it.

    Args:
        decide: its door. memory: (num_envs, bytes) uint8, what it remembers. queue_order: the order of queues it reads.
        worlds, envs: (num_envs,) records; agents: (1,) AGENT; masks: (num_envs, num_actions) int8.
        out: (1,) DECISION, scratch.
        actions: (num_envs,) int64, written.
    """
    for i in range(len(worlds)):
        shown_order = worlds[i].params.queue_order
        reorder_queue(worlds, i, queue_order)
        out[0].num_commands = 0
        out[0].num_transactions = 0
        decide(worlds[i], memory[i], out[0])
        reorder_queue(worlds, i, shown_order)  # what the agent is shown is in its own order
        actions[i] = action_of(out[0], envs[i], agents[0], masks[i])


@helper
def action_of(decision: Any, env: Any, agent: Any, mask: Any) -> int:
    """The agent's action for the first thing that a decision does: WAIT if nothing, UNKNOWN if it has none for any.

    The rest is not lost: the scheduler is asked again after this action. Where several placement rules would start
    the job, or several victim rules make room for it, it is the first.
    """
    rows = agent.queue_rows
    for t in range(decision.num_transactions):
        placed, evicted, admitted, reserved = NONE, NONE, NONE, NONE
        for c in range(decision.num_commands):
            command = decision.commands[c]
            if command.transaction != t:
                continue
            if command.op == Op.PLACE:
                placed = command.job
            elif command.op == Op.EVICT:
                evicted = command.job
            elif command.op == Op.ADMIT:
                admitted = command.job
            elif command.op == Op.RESERVE:
                reserved = command.job
        first = 1
        ways = agent.num_rules
        job = placed
        if placed != NONE and evicted != NONE:
            first += agent.num_rules * rows
            ways = agent.num_victim_rules
        elif placed == NONE and admitted != NONE and agent.may_admit:
            first += (agent.num_rules + agent.num_victim_rules) * rows
            ways = 1
            job = admitted
        elif placed == NONE and reserved != NONE and agent.may_reserve:
            first += (agent.num_rules + agent.num_victim_rules + agent.may_admit) * rows
            ways = 1
            job = reserved
        if job != NONE:
            for row in range(env.num_queue_rows):
                for way in range(ways):
                    if env.queue_jobs[row] == job and mask[first + way * rows + row] == 1:
                        return first + way * rows + row
        elif evicted != NONE and agent.may_preempt:
            first = agent.num_actions - agent.running_rows
            for row in range(env.num_running_rows):
                if env.running_jobs[row] == evicted and mask[first + row] == 1:
                    return first + row
    return WAIT if decision.num_transactions == 0 else UNKNOWN
