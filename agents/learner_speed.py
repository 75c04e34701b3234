"""How fast the learners learn: `python -m gangline.agents.learner_speed`. All in one run, by turns.

Frames per second of CPU time of one core (other work on a shared machine takes time that is not ours): rollout, update
and all, with the same batch, the same epochs and minibatches and the same network. The best of the rounds counts. A
frame is a step of an environment; of `mappo`, one agent per tenant, a round of all of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from gangline.agents import maskable_ppo, ppo
from gangline.agents.batches import batch_of
from gangline.agents.kernel_net import Layout
from gangline.agents.sb3_env import BatchVecEnv
from gangline.envs.config import WorldConfig, load_world

SETTINGS: dict[str, Any] = {"steps_per_rollout": 32, "batch_size": 2048, "epochs": 4}


def measure(world: WorldConfig, num_envs: int, rounds: int) -> dict[str, float]:
    """Frames/s of each learner, by name.

    Args:
        world: event time; the tenants of `mappo` live in it too.
        num_envs: environments stepped together.
        rounds: rollouts with an update that are measured of each learner, after one that is not.
    """
    learners = {
        "ppo": _own(world, num_envs),
        "maskable_ppo": _sb3(world, num_envs),
        "mappo": _own(world, num_envs, "tenants"),
    }
    best = dict.fromkeys(learners, 0.0)
    for number in range(1 + rounds):
        for name, learn in learners.items():
            started = time.process_time()
            learn()
            rate = num_envs * SETTINGS["steps_per_rollout"] / (time.process_time() - started)
            best[name] = max(best[name], rate) if number > 0 else 0.0
    return best


def _own(world: WorldConfig, num_envs: int, who: str = "cluster") -> Callable[[], object]:
    torch.manual_seed(0)
    batch = batch_of(world, num_envs, who)
    several = who == "tenants"
    layout = Layout.of(batch.agent, every_kind=True, own_first=several)
    net = ppo.PolicyNet(layout, 32, who=who, central_value=several)
    learner = ppo.Learner(batch, net, ppo.Settings(**SETTINGS), seed=0)
    learner.begin()
    return learner.improve


def _sb3(world: WorldConfig, num_envs: int) -> Callable[[], object]:
    model = maskable_ppo.new_model(BatchVecEnv(world, num_envs, seed=0), seed=0, **SETTINGS)
    frames = num_envs * SETTINGS["steps_per_rollout"]
    return lambda: model.learn(frames, reset_num_timesteps=False)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m gangline.agents.learner_speed", description=__doc__)
    parser.add_argument("--world", default="philly64", help="a preset (default: philly64)")
    parser.add_argument("--num-envs", type=int, default=256, help="environments stepped together (default: 256)")
    parser.add_argument("--rounds", type=int, default=5, help="rollouts measured of each learner (default: 5)")
    parser.add_argument("overrides", nargs="*", help="settings as key=value, for example workload.path=philly.csv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = dict(given.split("=", 1) for given in options.overrides)
    rates = measure(load_world(options.world, **settings), options.num_envs, options.rounds)
    for name, rate in rates.items():
        print(f"{name:<14} {rate:>8,.0f} frames/s")
    print(f"{'ppo / maskable':<14} {rates['ppo'] / rates['maskable_ppo']:>8.2f}")


if __name__ == "__main__":
    main()
