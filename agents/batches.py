"""Environments as a learner sees them: stepped together, with one agent each or several.

`envs/multi_agent_env.TenantsBatch` is a `SeveralAgents` as it stands; `OneAgent` makes one of
the single-agent batch, `Roles` of the batch in which roles take turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from gangline.envs.cluster_env import Batch
from gangline.envs.config import WorldConfig, one_of
from gangline.envs.errors import GanglineError

WAIT = 0


class SeveralAgents(Protocol):
    """Environments stepped together, each with the same number of agents.

    Attributes:
        num_envs, num_agents: how many; num_agents is of each environment.
        agent: AGENT record.
        observations: (num_envs, num_agents, flat_size) float32.
        masks: (num_envs, num_agents, num_actions) int8.
        actions: (num_envs, num_agents) int64, read by `step`.
        rewards: (num_envs, num_agents), of the last step.
        discounts: (num_envs,), exp(-beta dt) of the last step.
        terminated, truncated: (num_envs,) bool.
    """

    num_envs: int
    num_agents: int
    agent: np.void
    observations: np.ndarray
    masks: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    def reset_one(self, i: int, seed: int, options: Mapping[str, Any]) -> Any:
        """Draw environment i's next episode; call `begin` after."""

    def begin(self, lo: int, hi: int) -> None:
        """Go to the first choice in the environments [lo, hi)."""

    def step(self, lo: int, hi: int) -> None:
        """Apply `actions` in [lo, hi) and go on to the next choice."""

    def state(self) -> dict[str, Any]:
        """Everything that can change."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Return to a state."""


class OneAgent:
    """The batch of single-agent environments: one agent in each."""

    num_agents = 1

    def __init__(self, world: WorldConfig, num_envs: int, *, keep_log: bool = False) -> None:
        own = [*world.observation.own_blocks, *(n for n in world.reward.weights if "." in n)]
        if own:
            raise GanglineError(f"{own[0]!r} is Python code, expected only built-in blocks and terms in a batch")
        self.batch = Batch(world, num_envs, keep_log=keep_log)
        commands = self.batch.actions.shape[1]
        if commands != 1:
            raise GanglineError(f"time.commands_per_tick is {commands}, expected 1: the agent takes one action a step")
        self.num_envs = num_envs
        self.agent = self.batch.agent
        self.observations, self.masks = self.batch.observations[:, None], self.batch.masks[:, None]
        self.actions = self.batch.actions
        self.reset_one, self.begin, self.step = self.batch.reset_one, self.batch.begin, self.batch.step
        self.state, self.restore = self.batch.state, self.batch.restore

    @property
    def rewards(self) -> np.ndarray:
        """(num_envs, 1) of the last step."""
        return self.batch.envs["reward"][:, None].copy()  # type: ignore[no-any-return]

    @property
    def discounts(self) -> np.ndarray:
        """(num_envs,) exp(-beta dt) of the last step."""
        return self.batch.envs["transition"]["discount"].copy()  # type: ignore[no-any-return]

    @property
    def terminated(self) -> np.ndarray:
        """(num_envs,) bool: nothing is left to do."""
        return self.batch.envs["terminated"].copy()  # type: ignore[no-any-return]

    @property
    def truncated(self) -> np.ndarray:
        """(num_envs,) bool: the horizon is reached."""
        return self.batch.envs["truncated"].copy()  # type: ignore[no-any-return]


class Roles:
    """The batch of roles environments: admitter, placer and preemptor, of whom one has the turn; the others wait.

    They share the reward, so each earns at every turn, also at another's.
    """

    def __init__(self, world: WorldConfig, num_envs: int, *, keep_log: bool = False) -> None:
        from gangline.envs.multi_agent_env import RolesBatch

        self.batch = RolesBatch(world, num_envs, keep_log=keep_log)
        self.num_envs, self.num_agents = num_envs, self.batch.num_agents
        self.agent = self.batch.agent
        self.observations = self.batch.observations
        self.masks = np.zeros_like(self.batch.masks)
        self.actions = np.zeros((num_envs, self.num_agents), np.int64)
        self.reset_one, self.state = self.batch.reset_one, self.batch.state

    @property
    def turns(self) -> np.ndarray:
        """(num_envs,) whose turn it is."""
        return self.batch.envs["turn"]  # type: ignore[no-any-return]

    @property
    def rewards(self) -> np.ndarray:
        """(num_envs, num_agents) of the last step: the same for all."""
        return self.batch.envs["reward"][:, None].repeat(self.num_agents, axis=1)

    @property
    def discounts(self) -> np.ndarray:
        """(num_envs,) exp(-beta dt) of the last step."""
        return self.batch.discounts

    @property
    def terminated(self) -> np.ndarray:
        """(num_envs,) bool: nothing is left to do."""
        return self.batch.terminated

    @property
    def truncated(self) -> np.ndarray:
        """(num_envs,) bool: the horizon is reached."""
        return self.batch.truncated

    def begin(self, lo: int, hi: int) -> None:
        """Go to the first choice in [lo, hi)."""
        self.batch.begin(lo, hi)
        self._give_turns()

    def step(self, lo: int, hi: int) -> None:
        """Apply the actions of those who have the turn in [lo, hi)."""
        self.batch.actions[:, 0] = np.take_along_axis(self.actions, self.turns[:, None], axis=1)[:, 0]
        self.batch.step(lo, hi)
        self._give_turns()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Return to a state."""
        self.batch.restore(state)
        self._give_turns()

    def _give_turns(self) -> None:
        everybody = np.arange(self.num_envs)
        self.masks[:] = 0
        self.masks[:, :, WAIT] = 1
        self.masks[everybody, self.turns] = self.batch.masks[everybody, self.turns]


def batch_of(world: WorldConfig, num_envs: int, who: str = "cluster", *, keep_log: bool = False) -> SeveralAgents:
    """The environments of a world.

    Args:
        world: its configuration.
        num_envs: how many.
        keep_log: ended jobs are written to a log (one environment only).
        who: acts in it: one agent for the `cluster`, one for each of the `tenants`, or three `roles`.

    Raises:
        GanglineError: another word, or a world in which they cannot act.
    """
    one_of("agent.who", who, ("cluster", "tenants", "roles"))
    batch: Any
    if who == "tenants":
        from gangline.envs.multi_agent_env import TenantsBatch

        batch = TenantsBatch(world, num_envs, keep_log=keep_log)
    elif who == "roles":
        batch = Roles(world, num_envs, keep_log=keep_log)
    else:
        batch = OneAgent(world, num_envs, keep_log=keep_log)
    return batch  # type: ignore[no-any-return]
