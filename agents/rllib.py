"""Training on a Ray cluster: RLlib's PPO over the same environments, for more than one machine.

    train.py engine=rllib num_env_runners=8 address=auto env=philly64

RLlib steps single environments in its env runners and learns elsewhere; the network is that of `agents/ppo.py`, so the
result is loaded, compared and used as its models are. RLlib knows one constant discount per step: take `env.time.mode`
`tick`, where a step is always as long. It pins another Gymnasium, so it has an extra and an environment of its own
(docs/rllib.md).
"""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import ray
import torch
from gymnasium import spaces
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
from ray.tune.registry import register_env

from gangline.agents.batches import batch_of
from gangline.agents.keeper import Keeper, Report, Stopped
from gangline.agents.kernel_net import Layout
from gangline.agents.ppo import Model, PolicyNet, load, save
from gangline.envs import config as configs
from gangline.envs.cluster_env import GpuClusterEnv
from gangline.envs.config import WorldConfig, from_mapping, one_of
from gangline.envs.errors import GanglineError
from gangline.envs.multi_agent_env import TenantsEnv

__all__ = ["check", "load", "save", "train"]

SHARED = "shared"  # the one policy that every tenant acts by


def train(
    world: WorldConfig,
    *,
    total_steps: int,
    seed: int,
    report: Report,
    log_dir: Path | None = None,
    keeper: Keeper | None = None,
    who: str = "cluster",
    num_env_runners: int = 1,
    address: str | None = None,
    num_envs: int = 4,
    steps_per_update: int = 4000,
    batch_size: int = 512,
    epochs: int = 4,
    learning_rate: float = 1e-3,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
    entropy_weight: float = 0.005,
    clip_range: float = 0.2,
    hidden: int = 32,
) -> Model:
    """Train on episodes of a world, on a Ray cluster.

    Args:
        world: event time or ticks; RLlib discounts every step by gamma, so ticks are what it can value rightly.
        total_steps: steps of environments, over all runners.
        seed: of runners and learner; RLlib does not promise equal runs.
        report: called with the steps so far and the running score.
        log_dir, keeper: where checkpoints go, and resuming from one.
        who: acts: one agent for the `cluster`, or one for each of the `tenants`, with one shared policy.
        num_env_runners: processes that step environments; 0 = the learner's own.
        address: of a running Ray cluster (`auto` = the one of this machine); None = start one here, for this run.
        num_envs: environments in each runner.
        steps_per_update: steps that are learned from at once.
    """
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    starts_ray = not ray.is_initialized()
    if starts_ray:
        _connect(address, num_env_runners)
    try:
        algorithm = _config(
            world,
            who,
            seed=seed,
            num_env_runners=num_env_runners,
            num_envs=num_envs,
            hidden=hidden,
            training={
                "train_batch_size_per_learner": steps_per_update,
                "minibatch_size": batch_size,
                "num_epochs": epochs,
                "lr": learning_rate,
                "gamma": gamma,
                "lambda_": gae_lambda,
                "entropy_coeff": entropy_weight,
                "clip_param": clip_range,
                "grad_clip": 0.5,
            },
        ).build_algo()
        return _learn(algorithm, world, who, hidden, total_steps, report, keeper)
    finally:
        if starts_ray:
            ray.shutdown()


def check(world: WorldConfig, *, who: str = "cluster", num_env_runners: int = 1, num_envs: int = 4, **_: Any) -> None:
    """Find fault with the arguments of `train` before anything is begun.

    Raises:
        GanglineError: one that makes no sense, by name.
    """
    one_of("agent.who", who, ("cluster", "tenants"))
    for name, value, least in (("num_env_runners", num_env_runners, 0), ("num_envs", num_envs, 1)):
        if not isinstance(value, int) or value < least:
            raise GanglineError(f"agent.{name} is {value!r}, expected a whole number of at least {least}")
    Layout.of(batch_of(world, 1, who).agent, every_kind=True, own_first=who == "tenants")


# ---------------------------------------------------------------------------------------------------------------
# Environments and network, as RLlib wants them
# ---------------------------------------------------------------------------------------------------------------


class MaskedEnv(gymnasium.Wrapper):  # type: ignore[type-arg]
    """The single agent's environment with its mask beside the observation."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        count = int(env.action_space.n)  # type: ignore[attr-defined]
        mask = spaces.Box(0, 1, (count,), np.int8)
        self.observation_space = spaces.Dict({"observation": env.observation_space, "action_mask": mask})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return {"observation": observation, "action_mask": info["action_mask"]}, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Apply an action; an illegal one changes nothing."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return {"observation": observation, "action_mask": info["action_mask"]}, reward, terminated, truncated, {}


def single_env(context: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """An environment with one agent, of a configuration as plain data."""
    return MaskedEnv(GpuClusterEnv(context["world"]))


def tenants_env(context: dict[str, Any]) -> ParallelPettingZooEnv:
    """An environment with an agent per tenant."""
    return ParallelPettingZooEnv(TenantsEnv(context["world"]))


class KernelModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """The network of `agents/ppo.py`: masked logits for acting, values for learning."""

    def setup(self) -> None:
        """Build it from `model_config`: layout, hidden, who."""
        super().setup()
        layout = from_mapping(Layout, self.model_config["layout"])
        self.net = PolicyNet(layout, self.model_config["hidden"], who=self.model_config["who"])

    def _forward(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        seen = batch[Columns.OBS]
        logits, _values = self.net(seen["observation"].float(), seen["action_mask"].bool(), None)
        return {Columns.ACTION_DIST_INPUTS: logits}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        """(batch,) values in units of the reward."""
        return self.net.values(batch[Columns.OBS]["observation"].float(), None)


# ---------------------------------------------------------------------------------------------------------------
# Learning
# ---------------------------------------------------------------------------------------------------------------


def _connect(address: str | None, num_env_runners: int) -> None:
    """Join the cluster at an address, or start one of this machine."""
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is not None:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        else:
            ray.init(num_cpus=num_env_runners + 1, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise GanglineError(f"address={address}: no Ray cluster answers there ({reason}), expected `auto`, host:port, "
                            "or none to start one here") from None  # fmt: skip


def _config(
    world: WorldConfig,
    who: str,
    *,
    seed: int,
    num_env_runners: int,
    num_envs: int,
    hidden: int,
    training: dict[str, Any],
) -> PPOConfig:
    """RLlib's configuration of one run."""
    layout = Layout.of(batch_of(world, 1, who).agent, every_kind=True, own_first=who == "tenants")
    spec = RLModuleSpec(
        module_class=KernelModule, model_config={"layout": layout.as_dict(), "hidden": hidden, "who": who}
    )
    name = f"gangline-{who}"
    register_env(name, tenants_env if who == "tenants" else single_env)
    config = (
        PPOConfig()
        .environment(name, env_config={"world": configs.to_mapping(world)}, disable_env_checking=True)
        .framework("torch")
        .debugging(seed=seed, log_level="ERROR")
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=num_envs if who == "cluster" else 1,
            rollout_fragment_length="auto",
        )
        .training(vf_clip_param=float("inf"), use_kl_loss=False, **training)
        .rl_module(rl_module_spec=spec)
    )
    if who == "tenants":
        config = config.multi_agent(policies={SHARED}, policy_mapping_fn=lambda agent, episode, **_: SHARED)
    return config


def _learn(
    algorithm: Any, world: WorldConfig, who: str, hidden: int, total_steps: int, report: Report, keeper: Keeper | None
) -> Model:
    """Train until `total_steps`, from the beginning or from the folder's checkpoint."""
    import time

    module_id = SHARED if who == "tenants" else "default_policy"
    steps = 0
    if keeper is not None and keeper.resume:
        steps = int(torch.load(keeper.folder / "checkpoint.pt", weights_only=True)["steps"])
        keeper.steps_before = steps
        algorithm.restore_from_path(str((keeper.folder / f"rllib-{steps}").resolve()))
    saved_at = time.monotonic()
    while steps < total_steps:
        result = algorithm.train()
        steps = int(result["num_env_steps_sampled_lifetime"])
        score = result["env_runners"].get("episode_return_mean")
        report(min(steps, total_steps), None if score is None or np.isnan(score) else float(score))
        if keeper is not None and (keeper.stop or time.monotonic() - saved_at >= keeper.every_s):
            _save(algorithm, keeper.folder, steps)
            saved_at = time.monotonic()
            if keeper.stop:
                raise Stopped
    batch = batch_of(world, 1, who)
    net = PolicyNet(Layout.of(batch.agent, every_kind=True, own_first=who == "tenants"), hidden, who=who)
    net.load_state_dict(algorithm.get_module(module_id).net.state_dict())
    algorithm.stop()
    inner: Any = getattr(batch, "batch", batch)
    return Model(net.eval(), steps, inner.agents.copy())


def _save(algorithm: Any, folder: Path, steps: int) -> None:
    """Write a checkpoint beside the last one, then point to it: a kill in between leaves the last one in place."""
    algorithm.save_to_path(str((folder / f"rllib-{steps}").resolve()))
    part = folder / "checkpoint.part"
    torch.save({"steps": steps}, part)
    part.replace(folder / "checkpoint.pt")
    for old in folder.glob("rllib-*"):
        if old.name != f"rllib-{steps}":
            shutil.rmtree(old, ignore_errors=True)
