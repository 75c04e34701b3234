"""Rollouts that value time, not decisions: advantages with each step's own discount.

Several commands at one instant take no time: their discount is 1, and lambda is 1 across them, so that splitting one
decision into k commands changes no return and no advantage. A step of dt hours is discounted by exp(-beta dt).
Source: generalized advantage estimation (Schulman et al., 2016) in its semi-Markov form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer


class TimeDiscountedBuffer(MaskableRolloutBuffer):
    """A rollout buffer that reads the discount of each step from the environment (`source.discounts`)."""

    discounts: np.ndarray

    def __init__(self, *args: Any, source: Any = None, **kwargs: Any) -> None:
        self.source = source
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        """Empty the buffer."""
        super().reset()
        self.discounts = np.ones((self.buffer_size, self.n_envs), np.float32)

    def add(self, obs: np.ndarray, action: np.ndarray, reward: np.ndarray, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Store a step, and the discount of the time that it took.

        What the algorithm has added to the reward is the value of a state that was cut off: it lies at the end of the
        step and is discounted like everything there. The algorithm's own gamma must be 1.
        """
        self.discounts[self.pos] = self.source.discounts
        bootstrap = reward - self.source.rewards
        super().add(obs, action, self.source.rewards + self.source.discounts * bootstrap, *args, **kwargs)

    def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: np.ndarray) -> None:
        """Fill `advantages` and `returns`, both (buffer_size, num_envs)."""
        next_values = last_values.clone().cpu().numpy().flatten()
        self.advantages[:], self.returns[:] = time_discounted_advantages(
            self.rewards, self.values, self.episode_starts, self.discounts, next_values, dones, self.gae_lambda
        )


def time_discounted_advantages(
    rewards: np.ndarray,
    values: np.ndarray,
    episode_starts: np.ndarray,
    discounts: np.ndarray,
    last_values: np.ndarray,
    last_dones: np.ndarray,
    gae_lambda: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and returns with a discount per step.

    Args:
        rewards, values: (steps, num_envs); the reward of step t is already discounted to its beginning.
        episode_starts: (steps, num_envs), 1 where an episode begins at step t.
        discounts: (steps, num_envs), exp(-beta dt) of step t; 1 for a step without time, across which lambda is 1.
        last_values, last_dones: (num_envs,) after the last step.
        gae_lambda: lambda of a step that takes time.
    """
    advantages = np.zeros_like(rewards)
    carried = np.zeros_like(last_values)
    next_values = last_values
    goes_on = 1.0 - last_dones.astype(np.float32)
    for step in reversed(range(len(rewards))):
        discount = discounts[step] * goes_on
        delta = rewards[step] + discount * next_values - values[step]
        carried = delta + discount * np.where(discounts[step] == 1.0, 1.0, gae_lambda) * carried
        advantages[step] = carried
        next_values = values[step]
        goes_on = 1.0 - episode_starts[step]
    return advantages, advantages + values
