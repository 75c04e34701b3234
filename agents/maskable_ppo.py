"""MaskablePPO (sb3-contrib) with the kernel policy on the native batch, time discounted as the world says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback

from gangline.agents import checkpoint, learning_curve
from gangline.agents.buffer import TimeDiscountedBuffer
from gangline.agents.keeper import Keeper, Report, Stopped
from gangline.agents.kernel_net import Layout
from gangline.agents.policies import KernelPolicy
from gangline.agents.sb3_env import BatchVecEnv
from gangline.envs.config import WorldConfig


class Progress(BaseCallback):
    """Tells how far training is: frames so far, and the running mean of the last episodes' returns; checkpoints."""

    def __init__(self, report: Report, keeper: Keeper | None = None) -> None:
        super().__init__()
        self._report = report
        self._keeper = keeper
        self._saved_at = time.monotonic()

    def _on_rollout_start(self) -> None:
        keeper = self._keeper
        if keeper is not None and (keeper.stop or time.monotonic() - self._saved_at >= keeper.every_s):
            checkpoint.save(self.model, self.training_env, keeper.folder)  # type: ignore[arg-type]
            self._saved_at = time.monotonic()
            if keeper.stop:
                raise Stopped

    def _on_step(self) -> bool:
        self._report(self.num_timesteps, self._score())
        return True

    def _on_rollout_end(self) -> None:
        score = self._score()
        if score is not None:
            self.logger.record("rollout/score", score)
            if self._keeper is not None:
                learning_curve.add(self._keeper.folder, self.num_timesteps, score)

    def _score(self) -> float | None:
        """Mean return of the last episodes."""
        scores = self.training_env.get_attr("episode_scores")[0][-50:]
        return sum(scores) / len(scores) if scores else None


def train(
    world: WorldConfig,
    *,
    total_steps: int,
    seed: int,
    report: Report,
    log_dir: Path | None = None,
    keeper: Keeper | None = None,
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
        keeper: checkpoints, and resuming from one.
        num_envs: environments stepped together.
        steps_per_rollout: per environment.
        hidden: width of the policy's small networks.
    """
    torch.set_num_threads(1)  # two threads beside any other load run many times slower
    env = BatchVecEnv(world, num_envs, seed=seed)
    model = new_model(
        env,
        seed=seed,
        log_dir=log_dir,
        steps_per_rollout=steps_per_rollout,
        batch_size=batch_size,
        epochs=epochs,
        learning_rate=learning_rate,
        entropy_weight=entropy_weight,
        gae_lambda=gae_lambda,
        clip_range=clip_range,
        hidden=hidden,
    )
    left = total_steps
    resumes = keeper is not None and keeper.resume
    if keeper is not None and keeper.resume:
        checkpoint.restore(model, env, keeper.folder)
        left = total_steps - model.num_timesteps
        keeper.steps_before = model.num_timesteps
    if keeper is not None:
        learning_curve.cut(keeper.folder, keeper.steps_before)
    if left > 0:
        model.learn(left, callback=Progress(report, keeper), tb_log_name="tensorboard", reset_num_timesteps=not resumes)
    return model


def new_model(
    env: BatchVecEnv,
    *,
    seed: int,
    log_dir: Path | None = None,
    steps_per_rollout: int = 128,
    batch_size: int = 1024,
    epochs: int = 4,
    learning_rate: float = 1e-3,
    entropy_weight: float = 0.005,
    gae_lambda: float = 0.95,
    clip_range: float = 0.2,
    hidden: int = 32,
) -> MaskablePPO:
    """An untrained model on a batch; arguments as those of `train`."""
    return MaskablePPO(
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


def save(model: MaskablePPO, path: Path) -> None:
    """Save a model, whole or not at all; the environment that its buffer reads from stays behind."""
    model.rollout_buffer_kwargs = {}
    part = path.with_name(f"part-{path.name}")
    model.save(part, exclude=["rollout_buffer_class", "rollout_buffer_kwargs"])
    part.replace(path)


def load(path: Path) -> Any:
    """A saved model, for acting."""
    return MaskablePPO.load(path, device="cpu")
