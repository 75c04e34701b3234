"""`GpuClusterVectorEnv`: a batch of environments stepped by one kernel call. Gymnasium's vector API.

`gymnasium.make_vec("gangline/GpuCluster-v0", num_envs=256)` makes one. Environment i of a batch seeded s equals a
single environment seeded s + i, through later resets, at every batch size and thread split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from gangline.envs import observation as observations
from gangline.envs import reward as rewards
from gangline.envs.cluster_env import MAX_SEED, Batch, GpuClusterEnv
from gangline.envs.config import load_world
from gangline.envs.errors import GanglineError


class GpuClusterVectorEnv(VectorEnv[Any, Any, Any]):
    """The batch of `GpuClusterEnv`.

    Arguments:
        num_envs: environments.
        world, overrides: as `GpuClusterEnv`.
        autoreset_mode: `NEXT_STEP` (the step after an end resets: reward 0, dt 0, `info["reset_step"]`; the terminal
            observation has a wait-only mask), `SAME_STEP` (the observation is of the new episode; the old one's is in
            `info["final_obs"]` and `info["final_info"]`, with its own mask), or `DISABLED` (the user resets, with
            `reset(options={"reset_mask": ...})`; until then an environment that has ended stays as it is, at reward 0).
        threads: the batch is cut into so many ranges, each stepped by a thread of its own.
        copy: False = observations, masks and rewards are views of buffers that the next step overwrites.
    """

    def __init__(
        self,
        num_envs: int,
        world: str | Mapping[str, Any] = "small",
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        threads: int = 1,
        copy: bool = True,
        render_mode: str | None = None,
        **overrides: Any,
    ) -> None:
        if num_envs < 1 or threads < 1:
            raise GanglineError(f"num_envs is {num_envs} and threads {threads}, expected at least 1 of each")
        if render_mode is not None:
            raise GanglineError("a batch draws no pictures, expected render_mode=None")
        self.config = load_world(world, **overrides)
        own = [*self.config.observation.own_blocks, *(n for n in self.config.reward.weights if "." in n)]
        if own:
            raise GanglineError(f"{own[0]!r} is Python code, expected only built-in blocks and terms in a batch")
        single = GpuClusterEnv(world, **overrides)
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**GpuClusterEnv.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = None
        self.single_observation_space = single.observation_space
        self.single_action_space = single.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.batch = Batch(self.config, num_envs, threads=threads)
        self._flat_action = single.flat_actions
        self._is_dict = self.config.observation.form == "dict"
        self._max_steps = max_episode_steps
        self._copy = copy
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        edges = np.linspace(0, num_envs, threads + 1).astype(int)
        self._ranges = [(int(a), int(b)) for a, b in pairwise(edges) if b > a]
        self._generators: list[np.random.Generator | None] = [None] * num_envs
        self._has_ended = np.zeros(num_envs, bool)

    # -- Gymnasium ---------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every environment, or in those of `options["reset_mask"]` ((num_envs,) bool)."""
        options = dict(options or {})
        mask = np.asarray(options.pop("reset_mask", np.ones(self.num_envs, bool)))
        if mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
            raise GanglineError(f"reset_mask is {mask!r}, expected {self.num_envs} booleans, at least one true")
        seeds = [None if seed is None else seed + i for i in range(self.num_envs)] if _is_one(seed) else list(seed)  # type: ignore[arg-type, operator]
        if len(seeds) != self.num_envs:
            raise GanglineError(f"{len(seeds)} seeds, expected {self.num_envs}")
        for i in np.flatnonzero(mask).tolist():
            if seeds[i] is not None or self._generators[i] is None:
                self._generators[i] = seeding.np_random(seeds[i])[0]
            self._begin(i, options)
        self._has_ended[mask] = False
        return self._observation(), self._info()

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Apply an action in every environment and go on to its next choice.

        Args:
            actions: (num_envs,) int, or (num_envs, n) for a MultiDiscrete action space.
        """
        batch, envs = self.batch, self.batch.envs
        resets_now = self.autoreset_mode == AutoresetMode.NEXT_STEP
        begins: list[int] = np.flatnonzero(self._has_ended).tolist() if resets_now else []
        for i, action in enumerate(np.asarray(actions).reshape(self.num_envs, -1)):
            batch.actions[i] = self._flat_action(action)
        self._over_ranges(batch.step)
        for i in begins:
            self._begin(i, {})
        terminated, truncated = self._ends()
        reward = envs["reward"].copy()
        info: dict[str, Any] = {}
        ended = terminated | truncated
        if self.autoreset_mode == AutoresetMode.SAME_STEP and ended.any():
            info = self._final(ended)
            for i in np.flatnonzero(ended).tolist():
                self._begin(i, {})
        elif self.autoreset_mode == AutoresetMode.NEXT_STEP:
            batch.masks[ended] = 0
            batch.masks[ended, 0] = 1
        self._has_ended = ended & (self.autoreset_mode != AutoresetMode.SAME_STEP)
        info.update(self._info())
        if self.autoreset_mode == AutoresetMode.NEXT_STEP:
            info["reset_step"] = np.zeros(self.num_envs, bool)
            info["reset_step"][begins] = True
            info["_reset_step"] = np.ones(self.num_envs, bool)
        return self._observation(), reward, terminated, truncated, info

    def action_masks(self) -> np.ndarray:
        """(num_envs, num_actions) bool: what is legal now."""
        return self.batch.masks.astype(bool)

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    # -- inside ------------------------------------------------------------------------------------------------

    def _begin(self, i: int, options: Mapping[str, Any]) -> None:
        generator = self._generators[i]
        if generator is None:
            raise gymnasium.error.ResetNeeded("step() was called before reset()")
        self.batch.reset_one(i, int(generator.integers(MAX_SEED)), options)
        self.batch.begin(i, i + 1)

    def _over_ranges(self, step: Callable[..., None]) -> None:
        if any(g is None for g in self._generators):
            raise gymnasium.error.ResetNeeded("step() was called before reset()")
        if self._pool is None:
            step(0, self.num_envs)
            return
        for done in [self._pool.submit(step, lo, hi, t) for t, (lo, hi) in enumerate(self._ranges)]:
            done.result()

    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        envs = self.batch.envs
        terminated, truncated = envs["terminated"].copy(), envs["truncated"].copy()
        if self._max_steps is not None:
            truncated |= envs["num_steps"] >= self._max_steps
        return terminated, truncated

    def _given(self, array: np.ndarray) -> np.ndarray:
        return array.copy() if self._copy else array

    def _observation(self) -> Any:
        flat = self._given(self.batch.observations)
        if not self._is_dict:
            return flat
        return {**observations.split(flat, self.batch.agent), "action_mask": self._given(self.batch.masks)}

    def _info(self) -> dict[str, Any]:
        envs = self.batch.envs
        values: dict[str, Any] = {
            "dt_s": envs["transition"]["elapsed_h"] * 3600.0,
            "discount": envs["transition"]["discount"].copy(),
            "action_mask": self._given(self.batch.masks),
            "legal": envs["last_was_legal"].copy(),
            "num_illegal": envs["num_illegal"].copy(),
            "overflow_share": envs["num_overflows"] / np.maximum(1, envs["num_decisions"]),
            "time_s": self.batch.worlds["now_ms"] / 1000.0,
        }
        everyone = np.ones(self.num_envs, bool)
        info: dict[str, Any] = {}
        for name, value in values.items():
            info[name], info[f"_{name}"] = value, everyone
        for name, field in (("reward_terms", "terms"), ("reward_term_sums", "term_sums")):
            info[name] = {term: envs[field][:, k].copy() for k, term in enumerate(rewards.TERM_NAMES)}
            info[f"_{name}"] = everyone
        return info

    def _final(self, ended: np.ndarray) -> dict[str, Any]:
        """The last observation and info of the episodes that have just ended."""
        final = np.full(self.num_envs, None, object)
        flat = self.batch.observations.copy()
        masks = self.batch.masks.copy()
        masks[ended] = 0
        masks[ended, 0] = 1
        for i in np.flatnonzero(ended):
            final[i] = flat[i]
            if self._is_dict:
                final[i] = {**observations.split(flat[i], self.batch.agent), "action_mask": masks[i]}
        info = self._info()
        info["action_mask"] = masks
        for name in list(info):
            if name.startswith("_"):
                info[name] = ended
        return {"final_obs": final, "_final_obs": ended, "final_info": info, "_final_info": ended}


def _is_one(seed: Any) -> bool:
    return seed is None or isinstance(seed, int | np.integer)
