"""Stable-Baselines3's `VecEnv` over the native batch: one kernel call steps all environments.

The observation at an episode's end is given as `terminal_observation` before the reset, `TimeLimit.truncated` is set
only when an episode was cut off and had not ended, and `action_masks` come with every observation.
`discounts` and `rewards` hold the last step's `exp(-beta dt)` and reward of each environment, for `agents/buffer.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from gangline.envs import observation as observations
from gangline.envs.cluster_env import MAX_SEED, Batch
from gangline.envs.config import WorldConfig
from gangline.envs.errors import GanglineError
from gangline.envs.reward import TERM_NAMES


class BatchVecEnv(VecEnv):
    """A batch of single-agent environments with flat observations and one Discrete action each."""

    def __init__(self, config: WorldConfig, num_envs: int, seed: int = 0) -> None:
        own = [*config.observation.own_blocks, *(n for n in config.reward.weights if "." in n)]
        if own:
            raise GanglineError(f"{own[0]!r} is Python code, expected only built-in blocks and terms in a batch")
        self.batch = Batch(config, num_envs)
        agent = self.batch.agent
        box = spaces.Box(observations.LOW, observations.HIGH, (observations.flat_size(agent),), np.float32)
        self.render_mode = None
        super().__init__(num_envs, box, spaces.Discrete(int(agent["num_actions"])))
        self.discounts = np.ones(num_envs, np.float32)
        self.rewards = np.zeros(num_envs, np.float32)  # of the last step
        self.episode_scores: list[float] = []
        self._generators = [np.random.default_rng(seed + i) for i in range(num_envs)]

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Environment i draws its episodes from seed + i."""
        base = 0 if seed is None else seed
        self._generators = [np.random.default_rng(base + i) for i in range(self.num_envs)]
        return [base + i for i in range(self.num_envs)]

    def reset(self) -> np.ndarray:
        """Begin an episode in every environment."""
        for i in range(self.num_envs):
            self.batch.reset_one(i, self._next_seed(i), {})
        self.batch.begin(0, self.num_envs)
        return self.batch.observations.copy()

    def _next_seed(self, i: int) -> int:
        return int(self._generators[i].integers(MAX_SEED))

    def state(self) -> dict[str, Any]:
        """Everything that decides how the environments go on, for `restore`."""
        return {
            "batch": self.batch.state(),
            "generators": [g.bit_generator.state for g in self._generators],
            "scores": list(self.episode_scores[-100:]),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a state of the same configuration and size."""
        self.batch.restore(state["batch"])
        for generator, saved in zip(self._generators, state["generators"], strict=True):
            generator.bit_generator.state = saved
        self.episode_scores = list(state["scores"])

    def step_async(self, actions: np.ndarray) -> None:
        """Remember the actions."""
        self.batch.actions[:, 0] = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Step all environments; those whose episode has ended begin the next."""
        batch = self.batch
        batch.step(0, self.num_envs)
        envs = batch.envs
        self.discounts = envs["transition"]["discount"].astype(np.float32)
        self.rewards = envs["reward"].astype(np.float32)
        terminated, truncated = envs["terminated"].copy(), envs["truncated"].copy()
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(done):
            infos[i] = {
                "terminal_observation": batch.observations[i].copy(),
                "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
                "episode": {"r": float(envs["return_sum"][i]), "l": int(envs["num_steps"][i]), "t": 0.0},
                "reward_term_sums": dict(zip(TERM_NAMES, envs["term_sums"][i].tolist(), strict=True)),
            }
            self.episode_scores.append(float(envs["return_sum"][i]))
            batch.reset_one(int(i), self._next_seed(int(i)), {})
            batch.begin(int(i), int(i) + 1)
        return batch.observations.copy(), self.rewards.copy(), done, infos

    def action_masks(self) -> np.ndarray:
        """(num_envs, num_actions) bool: what is legal now."""
        return self.batch.masks.astype(bool)

    def close(self) -> None:
        """Nothing to close."""

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """An attribute of this object, once per environment."""
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """Set an attribute of this object."""
        setattr(self, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: int | Iterable[int] | None = None, **method_kwargs: Any
    ) -> list[Any]:
        """`action_masks` of the chosen environments; there is no other method."""
        if method_name != "action_masks":
            raise AttributeError(f"environments of a batch have no method {method_name!r}, only 'action_masks'")
        masks = self.action_masks()
        return [masks[i] for i in self._get_indices(indices)]

    def has_attr(self, attr_name: str) -> bool:
        """Whether `get_attr` would find it, or `env_method` knows it."""
        return attr_name == "action_masks" or hasattr(self, attr_name)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: int | Iterable[int] | None = None) -> list[bool]:
        """No environment of a batch is wrapped."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> list[np.ndarray | None]:
        """A batch draws no pictures."""
        return [None] * self.num_envs
