"""Environments as a learner sees them: stepped together, with one agent each or several.

`envs/multi_agent_env.TenantsBatch` is a `SeveralAgents` as it stands; `OneAgent` makes one of the single-agent batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from gangline.envs.cluster_env import Batch
from gangline.envs.config import WorldConfig
from gangline.envs.errors import GanglineError


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

    def __init__(self, world: WorldConfig, num_envs: int) -> None:
        own = [*world.observation.own_blocks, *(n for n in world.reward.weights if "." in n)]
        if own:
            raise GanglineError(f"{own[0]!r} is Python code, expected only built-in blocks and terms in a batch")
        self.batch = Batch(world, num_envs)
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


def batch_of(world: WorldConfig, num_envs: int, *, tenants: bool) -> SeveralAgents:
    """The environments of a world: one agent for the cluster, or one for each tenant."""
    if tenants:
        from gangline.envs.multi_agent_env import TenantsBatch

        batch: Any = TenantsBatch(world, num_envs)
    else:
        batch = OneAgent(world, num_envs)
    return batch  # type: ignore[no-any-return]
