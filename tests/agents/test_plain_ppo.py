"""Stable-Baselines3 as anybody would use it: no masks, no buffer of ours, one tick per step."""

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="training needs gangline[train]")

import torch
from stable_baselines3 import PPO

import gangline  # noqa: F401

TICK = {"time.mode": "tick", "episode.horizon_h": 12, "episode.warm_h": 6}


def test_plain_ppo_learns_in_tick_mode_where_every_step_takes_the_same_time():
    torch.set_num_threads(1)
    env = gymnasium.make("gangline/GpuCluster-v0", **TICK)
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=32, n_epochs=1, seed=0, device="cpu")
    before = model.policy.state_dict()["action_net.weight"].clone()
    model.learn(128)
    assert not torch.equal(before, model.policy.state_dict()["action_net.weight"])
    observation, info = env.reset(seed=0)
    discounts = set()
    for _ in range(50):
        action, _ = model.predict(observation, deterministic=True)
        observation, reward, terminated, truncated, info = env.step(action)
        assert np.isfinite(reward)
        discounts.add(info["discount"])
        if terminated or truncated:
            break
    assert len(discounts) == 1  # so the algorithm's own gamma is an honest one
