"""MaskablePPO (sb3-contrib) with the kernel policy on the native batch, time discounted as the world says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback

from gangline.agents.buffer import TimeDiscountedBuffer
from gangline.agents.policies import KernelPolicy, Layout
from gangline.agents.sb3_env import BatchVecEnv
from gangline.envs.config import WorldConfig

Report = Callable[[int, float | None], None]


class Progress(BaseCallback):
    """Tells how far training is: frames so far, and the running mean of the last episodes' returns."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report

    def _on_step(self) -> bool:
        scores = self.training_env.get_attr("episode_scores")[0][-50:]
        score = sum(scores) / len(scores) if scores else None
        if score is not None:
            self.logger.record("rollout/score", score)
        self._report(self.num_timesteps, score)
        return True


def train(
    world: WorldConfig,
    *,
    total_steps: int,
    seed: int,
    report: Report,
    log_dir: Path | None = None,
    num_envs: int = 64,
    steps_per_rollout: int = 128,
    batch_size: int = 1024,
    epochs: int = 4,
    learning_rate: float = 1e-3,
    entropy_weight: float = 0.005,
    gae_lambda: float = 0.95,
    clip_range: float = 0.2,
    hidden: int = 32,
) -> MaskablePPO:
    """Train on episodes of a world.

    Args:
        world: event time, flat observations.
        total_steps: decisions, over all environments.
        seed: of the network, the sampling and the episodes.
        report: called with the steps so far and the running score.
        log_dir: TensorBoard files go there; None = none.
        num_envs: environments stepped together.
        steps_per_rollout: per environment.
        hidden: width of the policy's small networks.
    """
    torch.set_num_threads(1)  # two threads beside any other load run many times slower
    env = BatchVecEnv(world, num_envs, seed=seed)
    model = MaskablePPO(
        KernelPolicy,
        env,
        learning_rate=learning_rate,
        n_steps=steps_per_rollout,
        batch_size=batch_size,
        n_epochs=epochs,
        gamma=1.0,  # the buffer discounts by time
        gae_lambda=gae_lambda,
        clip_range=clip_range,
        ent_coef=entropy_weight,
        policy_kwargs={"layout": Layout.of(env.batch.agent).as_dict(), "hidden": hidden},
        rollout_buffer_class=TimeDiscountedBuffer,
        rollout_buffer_kwargs={"source": env},
        tensorboard_log=None if log_dir is None else str(log_dir),
        seed=seed,
        device="cpu",
    )
    model.learn(total_steps, callback=Progress(report), tb_log_name="tensorboard")
    return model


def save(model: MaskablePPO, path: Path) -> None:
    """Save a model; the environment that its buffer reads from stays behind."""
    model.rollout_buffer_kwargs = {}
    model.save(path, exclude=["rollout_buffer_class", "rollout_buffer_kwargs"])


def load(path: Path) -> Any:
    """A saved model, for acting."""
    return MaskablePPO.load(path, device="cpu")
