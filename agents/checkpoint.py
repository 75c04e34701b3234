"""Checkpoints of a training run: everything that decides how it goes on, so that a resumed run equals an unbroken one.

A checkpoint is taken between an update and the next rollout: network and optimizer, every environment's state, every
random stream (Stable-Baselines3 shuffles with numpy's global one), counters. It is written beside the old one and then
put in its place, so a kill at any moment leaves a whole one.
"""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gangline.envs.errors import GanglineError

if TYPE_CHECKING:
    from gangline.agents.sb3_env import BatchVecEnv

NAME = "checkpoint.pt"


def save(model: Any, env: BatchVecEnv, folder: Path) -> Path:
    """Write a checkpoint of a MaskablePPO model and its environments; returns the file."""
    content = {
        "policy": model.policy.state_dict(),
        "optimizer": model.policy.optimizer.state_dict(),
        "num_timesteps": model.num_timesteps,
        "n_updates": model._n_updates,
        "last_observation": model._last_obs,
        "last_episode_starts": model._last_episode_starts,
        "environments": env.state(),
        "torch_random": torch.get_rng_state(),
        "numpy_random": np.random.get_state(),  # noqa: NPY002
        "python_random": random.getstate(),
    }
    return write(content, folder)


def write(content: dict[str, Any], folder: Path) -> Path:
    """Put a checkpoint in the place of the old one, whole; returns the file."""
    part = folder / f"{NAME}.part"
    with part.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / NAME)
    return folder / NAME


def restore(model: Any, env: BatchVecEnv, folder: Path) -> None:
    """Bring a fresh model and its environments to where the checkpoint stands.

    Raises:
        GanglineError: no checkpoint, or one that cannot be read.
    """
    with reading(folder) as content:
        model.policy.load_state_dict(content["policy"])
        model.policy.optimizer.load_state_dict(content["optimizer"])
        env.restore(content["environments"])
    model.num_timesteps = content["num_timesteps"]
    model._n_updates = content["n_updates"]
    model._last_obs = content["last_observation"]
    model._last_episode_starts = content["last_episode_starts"]
    torch.set_rng_state(content["torch_random"])
    np.random.set_state(content["numpy_random"])  # noqa: NPY002
    random.setstate(content["python_random"])


@contextmanager
def reading(folder: Path) -> Iterator[dict[str, Any]]:
    """The content of a folder's checkpoint; an error while it is taken over says that it does not fit.

    Raises:
        GanglineError: no checkpoint, or one that cannot be read or does not belong here.
    """
    path = folder / NAME
    if not path.exists():
        raise GanglineError(f"{folder} holds no {NAME}, expected the folder of a run that has begun training")
    try:
        yield torch.load(path, weights_only=False)
    except (RuntimeError, KeyError, ValueError, EOFError, pickle.UnpicklingError) as error:
        reason = " ".join(str(error).split())[:200]
        raise GanglineError(f"{path} does not belong to this configuration or is damaged ({reason})") from None


def steps_in(folder: Path) -> int:
    """Steps that a folder's checkpoint has behind it; 0 without one."""
    path = folder / NAME
    return int(torch.load(path, weights_only=False)["num_timesteps"]) if path.exists() else 0
