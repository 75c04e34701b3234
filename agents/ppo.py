"""Masked PPO in one file, on the native batch: rollout, advantages, update. One agent per environment, or several.

    collect()   every environment takes a number of steps; what was decided is kept
    returns     targets that value time: each step has its own discount exp(-beta dt)
    update()    a few epochs of the clipped objective over minibatches

With several agents (`who`) all share one network: independent PPO (IPPO), or with a value that sees every agent's
tenant (`central_value`, MAPPO). What an agent could not decide (nothing but waiting was legal) is left out of the
policy's loss. Sources: PPO (Schulman et al., 2017), GAE (Schulman et al., 2016) in semi-Markov form, masks (Huang and
Ontanon, 2022), MAPPO (Yu et al., 2022), PopArt (van Hasselt et al., 2016).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from gangline.agents import checkpoint, learning_curve
from gangline.agents.batches import SeveralAgents, batch_of
from gangline.agents.keeper import Keeper, Report, Stopped
from gangline.agents.kernel_net import ILLEGAL, KernelNet, Layout, most_probable
from gangline.agents.pairs import met_by_pairs
from gangline.envs import observation as observations
from gangline.envs.agent import AGENT
from gangline.envs.cluster_env import MAX_SEED
from gangline.envs.config import WorldConfig, from_mapping
from gangline.envs.errors import GanglineError
from gangline.envs.observation import NUM_TENANT

FORMAT = "gangline-ppo-1"
GRADIENT_NORM = 0.5
SLOWEST_STATISTIC = 0.02  # the running deviation of returns forgets no slower than this part per update


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
    value_weight: float = 0.5,
    gae_lambda: float = 0.95,
    clip_range: float = 0.2,
    hidden: int = 32,
    forced_share: float = 0.0625,
    paired: int = 1,
    clone: str | None = None,
    clone_options: Mapping[str, Any] | None = None,
    clone_steps: int = 50_000,
    who: str = "cluster",
    central_value: bool = False,
) -> Model:
    """Train on episodes of a world.

    Args:
        world: event time; a tick of one command works too.
        total_steps: steps, over all environments; of several agents a round is one step.
        seed: of the network, the sampling and the episodes.
        report: called with the steps so far and the running score.
        log_dir: TensorBoard files go there; None = none.
        keeper: checkpoints, and resuming from one.
        num_envs: environments stepped together.
        steps_per_rollout: per environment.
        gae_lambda: lambda of a step that takes time and leads to a choice.
        hidden: width of the policy's small networks.
        forced_share: part of the forced waits from which the value learns.
        paired: so many environments play the same jobs, and what they all met at a time is taken off their advantages.
        clone: a baseline to imitate first; clone_options are its options, clone_steps how long.
        who: acts: one agent for the `cluster`, one for each of the `tenants`, or three `roles` in turn.
        central_value: the value sees every tenant.
    """
    torch.set_num_threads(1)  # two threads beside any other load run many times slower
    settings = Settings(
        steps_per_rollout=steps_per_rollout,
        batch_size=batch_size,
        epochs=epochs,
        learning_rate=learning_rate,
        entropy_weight=entropy_weight,
        value_weight=value_weight,
        gae_lambda=gae_lambda,
        clip_range=clip_range,
        forced_share=forced_share,
        paired=paired,
    )
    batch = batch_of(world, num_envs, who)
    layout = Layout.of(batch.agent, every_kind=True, own_first=who == "tenants")
    torch.manual_seed(seed)
    net = PolicyNet(layout, hidden, who=who, central_value=central_value)
    learner = Learner(batch, net, settings, seed)
    teacher = None
    if clone is not None:
        from gangline.agents.cloning import Teacher

        teacher = Teacher(clone, clone_options or {}, batch)
    if keeper is not None:
        if keeper.resume:
            with checkpoint.reading(keeper.folder) as content:
                learner.restore(content, teacher)
        keeper.steps_before = learner.num_steps
        learning_curve.cut(keeper.folder, learner.num_steps)
    _learn(learner, teacher, clone_steps if clone else 0, total_steps, report, log_dir, keeper)
    return Model(net, learner.num_steps, np.array([batch.agent]))


def check(
    world: WorldConfig,
    *,
    num_envs: int = 64,
    hidden: int = 32,
    clone: str | None = None,
    clone_options: Mapping[str, Any] | None = None,
    clone_steps: int = 50_000,
    who: str = "cluster",
    central_value: bool = False,
    **settings: Any,
) -> None:
    """Find fault with the arguments of `train` before anything is begun.

    Raises:
        GanglineError: one that makes no sense, by name.
    """
    for name, value in (("num_envs", num_envs), ("hidden", hidden), ("clone_steps", clone_steps)):
        if not isinstance(value, int) or value < 1:
            raise GanglineError(f"agent.{name} is {value!r}, expected a whole number of at least 1")
    known = {f.name for f in fields(Settings)}
    from_mapping(Settings, {name: value for name, value in settings.items() if name in known}).check(num_envs)
    batch = batch_of(world, 1, who)
    PolicyNet(Layout.of(batch.agent, every_kind=True, own_first=who == "tenants"), 1, central_value=central_value)
    if clone is not None:
        from gangline.agents.cloning import Teacher

        Teacher(clone, clone_options or {}, batch)


def _learn(
    learner: Learner,
    teacher: Any,
    clone_steps: int,
    total_steps: int,
    report: Report,
    log_dir: Path | None,
    keeper: Keeper | None,
) -> None:
    """Imitate, then improve; a checkpoint now and then between two updates."""
    board = None if log_dir is None else _board(log_dir / "tensorboard")
    saved_at = time.monotonic()
    learner.begin(teacher)
    while learner.num_cloned < clone_steps or learner.num_steps < total_steps:
        if keeper is not None and (keeper.stop or time.monotonic() - saved_at >= keeper.every_s):
            checkpoint.write(learner.state(teacher), keeper.folder)
            saved_at = time.monotonic()
            if keeper.stop:
                raise Stopped
        if learner.num_cloned < clone_steps:
            losses = learner.imitate(teacher)
        else:
            losses = learner.improve()
            if keeper is not None and learner.score is not None:
                learning_curve.add(keeper.folder, learner.num_steps, learner.score)
        report(learner.num_steps, learner.score)
        if board is not None:
            for name, value in losses.items():
                board.add_scalar(name, value, learner.num_cloned + learner.num_steps)
    if board is not None:
        board.close()


# ---------------------------------------------------------------------------------------------------------------
# The network and what is saved of it
# ---------------------------------------------------------------------------------------------------------------


class PolicyNet(nn.Module):
    """The kernel network with a value head.

    The head tells values in units of the returns' running deviation, from their running mean on: `value_mean` and
    `value_scale`, which only an update changes. A central value has, beside the agent's own features, the mean over
    all agents of their own tenants' rows: in any order, for any number of them.
    """

    value_mean: torch.Tensor
    value_scale: torch.Tensor

    def __init__(self, layout: Layout, hidden: int, *, who: str = "cluster", central_value: bool = False) -> None:
        super().__init__()
        if central_value and not layout.own_first:
            raise GanglineError("agent.central_value is true, expected false: only tenants see different things")
        self.settings = {"layout": layout.as_dict(), "hidden": hidden, "who": who, "central_value": central_value}
        self.layout = layout
        self.kernel = KernelNet(layout, hidden)
        self.team = nn.Sequential(nn.Linear(NUM_TENANT, hidden), nn.ReLU()) if central_value else None
        self.beside_team = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU()) if central_value else None
        self.value = nn.Linear(hidden, 1)
        self.register_buffer("value_mean", torch.zeros(()))
        self.register_buffer("value_scale", torch.ones(()))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.orthogonal_(module.weight, float(np.sqrt(2)))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for last in (self.kernel.score, *list(self.kernel.kind)[-1:]):
            nn.init.orthogonal_(last.weight, 0.01)  # type: ignore[arg-type]  # nothing is preferred at first
        nn.init.orthogonal_(self.value.weight, 1.0)

    def forward(
        self, flat: torch.Tensor, legal: torch.Tensor, team: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities (batch, num_actions) and normalised values (batch,).

        Args:
            flat: (batch, flat_size) float32. legal: (batch, num_actions) bool.
            team: (batch, num_agents, NUM_TENANT) every agent's own row; only a central value reads it.
        """
        logits, features = self.kernel(flat, legal)
        return torch.log_softmax(logits.masked_fill(~legal, ILLEGAL), dim=1), self._valued(features, team)

    def values(self, flat: torch.Tensor, team: torch.Tensor | None) -> torch.Tensor:
        """(batch,) values in units of the reward."""
        return self.in_reward(self._valued(self.kernel.forward_critic(flat), team))

    def in_reward(self, normalised: torch.Tensor) -> torch.Tensor:
        """What the head says, in units of the reward."""
        return self.value_mean + self.value_scale * normalised

    def _valued(self, features: torch.Tensor, team: torch.Tensor | None) -> torch.Tensor:
        if self.team is not None and self.beside_team is not None:
            assert team is not None
            features = self.beside_team(torch.cat([features, self.team(team).mean(dim=1)], dim=1))
        values: torch.Tensor = self.value(features).squeeze(1)
        return values

    @torch.no_grad()
    def rescale(self, mean: float, deviation: float) -> None:
        """Normalise by another mean and deviation from now on; what the head says in units of the reward stays."""
        scale = max(deviation, 1e-4)
        self.value.weight *= self.value_scale / scale
        self.value.bias.copy_((self.value_scale * self.value.bias + self.value_mean - mean) / scale)
        self.value_mean.fill_(mean)
        self.value_scale.fill_(scale)


@dataclass(frozen=True)
class Model:
    """A trained network, for acting: `evaluate.policy_of` in an environment, `agents/scheduler.py` in any world.

    Attributes:
        net: the network. num_timesteps: steps that it was trained for.
        agents: (1,) AGENT, what it is shown and may do.
    """

    net: PolicyNet
    num_timesteps: int
    agents: np.ndarray

    @property
    def who(self) -> str:
        """For whom it acts: `cluster`, `tenants` or `roles`."""
        return str(self.net.settings["who"])

    @property
    def observation_space(self) -> spaces.Box:
        """What one agent sees, flat."""
        return spaces.Box(observations.LOW, observations.HIGH, (observations.flat_size(self.agents[0]),), np.float32)

    def predict(
        self, observation: np.ndarray, deterministic: bool = True, action_masks: np.ndarray | None = None
    ) -> tuple[np.ndarray, None]:
        """The actions to take for good (`kernel_net.most_probable`); observations (n,) or (batch, n).

        The signature is that of Stable-Baselines3's models.
        """
        if action_masks is None or not deterministic:
            raise ValueError("a model acts without chance and by masks, expected action_masks and deterministic")
        flat = torch.as_tensor(np.atleast_2d(observation), dtype=torch.float32)
        legal = torch.as_tensor(np.atleast_2d(action_masks).astype(bool))
        with torch.no_grad():
            logits = self.net.kernel.forward_actor(flat, legal).masked_fill(~legal, ILLEGAL)
        actions = most_probable(self.net.layout, torch.softmax(logits, dim=1).numpy())
        return (actions[0] if observation.ndim == 1 else actions), None


def save(model: Model, path: Path) -> None:
    """Save a model, whole or not at all."""
    part = path.with_name(f"part-{path.name}")
    content = {
        "format": FORMAT,
        "settings": model.net.settings,
        "num_timesteps": model.num_timesteps,
        "weights": model.net.state_dict(),
        "agent": {name: model.agents[name][0].tolist() for name in model.agents.dtype.names or ()},
    }
    torch.save(content, part)
    part.replace(path)


def load(path: Path) -> Model:
    """A saved model.

    Raises:
        GanglineError: the file is not one.
    """
    try:
        content = torch.load(path, weights_only=True)
        if content["format"] != FORMAT:
            raise KeyError(content["format"])
        settings = content["settings"]
        settings["layout"] = Layout(**settings["layout"])
        net = PolicyNet(**settings)
        net.load_state_dict(content["weights"])
        agents = np.zeros(1, AGENT)
        for name, value in content["agent"].items():
            agents[name] = value
    except Exception as error:  # whatever a damaged or foreign file makes torch say
        reason = " ".join(str(error).split())[:120]
        raise GanglineError(f"{path} is no model of agents/ppo.py ({reason}), expected a run's model.zip") from None
    return Model(net, int(content["num_timesteps"]), agents)


# ---------------------------------------------------------------------------------------------------------------
# Learning
# ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """Of the algorithm; `train` says what they mean."""

    steps_per_rollout: int = 128
    batch_size: int = 1024
    epochs: int = 4
    learning_rate: float = 1e-3
    entropy_weight: float = 0.005
    value_weight: float = 0.5
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    forced_share: float = 0.0625
    paired: int = 1

    def check(self, num_envs: int) -> None:
        """Raise GanglineError for a setting that makes no sense."""
        for name in ("steps_per_rollout", "batch_size", "epochs", "paired"):
            if getattr(self, name) < 1:
                raise GanglineError(f"agent.{name} is {getattr(self, name)}, expected at least 1")
        for name in ("gae_lambda", "forced_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise GanglineError(f"agent.{name} is {getattr(self, name)}, expected a share in [0, 1]")
        if not self.learning_rate > 0:
            raise GanglineError(f"agent.learning_rate is {self.learning_rate}, expected more than 0")
        if num_envs % self.paired:
            raise GanglineError(f"agent.paired is {self.paired}, expected a divisor of num_envs {num_envs}")


@dataclass
class Samples:
    """What was seen and done in a rollout, one after another; tensors of the same length but for `team`.

    Attributes:
        observations, legal, actions, log_probs, values: of one agent at one step each.
        decides: whether the agent had a choice.
        returns, advantages: what came of it.
        team: (steps x num_envs, num_agents, NUM_TENANT) every agent's own row; None without a central value.
        moment: which of these a sample belongs to.
    """

    observations: torch.Tensor
    legal: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    decides: torch.Tensor
    values: torch.Tensor
    returns: torch.Tensor
    advantages: torch.Tensor
    team: torch.Tensor | None
    moment: torch.Tensor

    def team_of(self, chosen: torch.Tensor) -> torch.Tensor | None:
        """(chosen, num_agents, NUM_TENANT) all agents' own rows beside chosen samples."""
        return None if self.team is None else self.team[self.moment[chosen]]


class _Seen(NamedTuple):
    """The samples of one step; places: (3, samples) step, environment, agent."""

    seen: torch.Tensor
    legal: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    learns: torch.Tensor
    places: np.ndarray


class Learner:
    """Environments, a network, its optimizer and every random stream: all that decides how training goes on.

    Attributes:
        num_steps: steps of reinforcement learning over all environments; num_cloned: of imitation.
        scores: returns of the last episodes that the policy has ended, mean over agents.
    """

    def __init__(self, batch: SeveralAgents, net: PolicyNet, settings: Settings, seed: int) -> None:
        settings.check(batch.num_envs)
        if settings.paired > 1 and not float(batch.agent["beta_per_h"]) > 0:
            raise GanglineError("agent.paired needs a discount over time, expected time.beta_per_h above 0")
        self.batch, self.net, self.settings = batch, net, settings
        self.optimizer = torch.optim.Adam(net.parameters(), lr=settings.learning_rate, eps=1e-5, fused=True)
        self.num_steps = 0
        self.num_cloned = 0
        self.num_updates = 0
        self.scores: list[float] = []
        self._sampling = torch.Generator().manual_seed(seed)
        self._shuffling = np.random.default_rng(seed)
        # environments of a pair draw the same jobs
        self._seeds = [np.random.default_rng(seed + i // settings.paired) for i in range(batch.num_envs)]
        self._sums = np.zeros(batch.num_envs)  # reward of the running episodes, mean over agents
        self._clock = np.zeros(batch.num_envs)  # time in the running episodes, in units of 1 / beta
        self._episode = np.zeros(batch.num_envs, np.int64)
        self._has_begun = False

    @property
    def score(self) -> float | None:
        """Mean return of the last episodes."""
        last = self.scores[-50:]
        return sum(last) / len(last) if last else None

    def begin(self, teacher: Any = None) -> None:
        """Begin an episode in every environment, unless they are in one."""
        if not self._has_begun:
            for i in range(self.batch.num_envs):
                self._next_episode(i)
            self.batch.begin(0, self.batch.num_envs)
            for i in range(self.batch.num_envs if teacher is not None else 0):
                teacher.begin(i)
        self._has_begun = True

    def improve(self) -> dict[str, float]:
        """A rollout and an update from it; returns what it looked like."""
        samples = self.collect()
        self.num_steps += self.settings.steps_per_rollout * self.batch.num_envs
        return self._update(samples, self._policy_loss)

    def imitate(self, teacher: Any) -> dict[str, float]:
        """A rollout in which a teacher acts, and an update towards what it did."""
        samples = self.collect(teacher)
        self.num_cloned += self.settings.steps_per_rollout * self.batch.num_envs
        return self._update(samples, self._imitation_loss)

    # -- rollout -----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def collect(self, teacher: Any = None) -> Samples:
        """Every environment takes `steps_per_rollout` steps, by the policy or by a teacher.

        A teacher has `choose() -> (actions, is_known)`, both (num_envs, num_agents), and `begin(i)`, called when an
        episode of environment i begins.
        """
        batch, net, settings = self.batch, self.net, self.settings
        shape = (settings.steps_per_rollout, batch.num_envs, batch.num_agents)
        rewards, values, end_values = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        decides = np.zeros(shape, bool)
        discounts, ends = np.ones(shape[:2]), np.zeros(shape[:2], bool)
        clock, episode = np.zeros(shape[:2]), np.zeros(shape[:2], np.int64)
        kept: list[_Seen] = []
        team = None if net.team is None else torch.zeros(*shape, NUM_TENANT)
        for step in range(shape[0]):
            choice = batch.masks.sum(axis=2, dtype=np.int64) > 1
            batch.actions[:] = 0
            learns = choice
            if teacher is not None:
                batch.actions[:], learns = teacher.choose()
                learns = learns & choice
            chosen = learns
            if settings.forced_share > 0 and not choice.all():
                chosen = learns | (~choice & (self._shuffling.random(choice.shape) < settings.forced_share))
            seen = torch.as_tensor(batch.observations[chosen])  # a copy
            legal = torch.as_tensor(batch.masks[chosen] > 0)
            env, agent = np.nonzero(chosen)
            beside = None
            if team is not None:
                team[step] = self._own_rows()
                beside = team[step][torch.as_tensor(env)]
            log_probs, value = net(seen, legal, beside)
            if teacher is None:
                drawn = torch.empty_like(log_probs).exponential_(generator=self._sampling)
                actions = (log_probs - drawn.log_()).argmax(dim=1)  # Gumbel: a draw by these probabilities
                batch.actions[env, agent] = actions.numpy()
            else:
                actions = torch.as_tensor(batch.actions[chosen])
            values[step][chosen] = net.in_reward(value).numpy()
            decides[step] = learns
            clock[step], episode[step] = self._clock, self._episode
            of_actions = log_probs.gather(1, actions.unsqueeze(1)).squeeze(1)
            places = np.stack([np.full(len(env), step), env, agent])
            kept.append(_Seen(seen, legal, actions, of_actions, torch.as_tensor(learns[chosen]), places))

            batch.step(0, batch.num_envs)
            rewards[step], discounts[step] = batch.rewards, batch.discounts
            self._sums += rewards[step].mean(axis=1)
            self._clock -= np.log(discounts[step])
            ends[step], end_values[step] = self._end_episodes(teacher)
        returns = time_discounted_returns(
            rewards, values, decides, discounts, ends, end_values, self._values_now(), settings.gae_lambda
        )
        advantages = returns - values
        if settings.paired > 1:
            advantages -= met_by_pairs(advantages, decides, clock, episode, settings.paired)
        where = tuple(np.concatenate([k.places for k in kept], axis=1))  # step, environment, agent
        return Samples(
            observations=torch.cat([k.seen for k in kept]),
            legal=torch.cat([k.legal for k in kept]),
            actions=torch.cat([k.actions for k in kept]),
            log_probs=torch.cat([k.log_probs for k in kept]),
            decides=torch.cat([k.learns for k in kept]),
            values=torch.as_tensor(values[where], dtype=torch.float32),
            returns=torch.as_tensor(returns[where], dtype=torch.float32),
            advantages=torch.as_tensor(advantages[where], dtype=torch.float32),
            team=None if team is None else team.flatten(0, 1),
            moment=torch.as_tensor(where[0] * batch.num_envs + where[1]),
        )

    def _end_episodes(self, teacher: Any) -> tuple[np.ndarray, np.ndarray]:
        """Which episodes the last step has ended, (num_envs,), and what lay beyond, (num_envs, num_agents).

        Beyond a horizon things go on: its value counts. Where nothing is left to do it is zero. The others of a pair
        are cut off with the first of them, so that they stay on the same jobs.
        """
        batch, paired = self.batch, self.settings.paired
        terminated = batch.terminated
        over = terminated | batch.truncated
        ends = over.reshape(-1, paired).any(axis=1).repeat(paired)
        beyond = np.zeros((batch.num_envs, batch.num_agents))
        if not ends.any():
            return ends, beyond
        cut = ends & ~terminated
        beyond[cut] = self._values_now(cut)
        for i in np.flatnonzero(ends).tolist():
            if over[i] and teacher is None:
                self.scores = [*self.scores[-99:], float(self._sums[i])]
            self._next_episode(i)
            batch.begin(i, i + 1)
            if teacher is not None:
                teacher.begin(i)
        return ends, beyond

    def _next_episode(self, i: int) -> None:
        self.batch.reset_one(i, int(self._seeds[i].integers(MAX_SEED)), {})
        self._sums[i] = self._clock[i] = 0.0
        self._episode[i] += 1

    def _values_now(self, of: np.ndarray | None = None) -> np.ndarray:
        """(environments, num_agents) values of what some environments, or all, show now."""
        batch = self.batch
        of = np.ones(batch.num_envs, bool) if of is None else of
        seen = torch.as_tensor(batch.observations[of])
        team = None if self.net.team is None else self._own_rows()[torch.as_tensor(of)]
        beside = None if team is None else team.repeat_interleave(batch.num_agents, dim=0)
        values: np.ndarray = self.net.values(seen.flatten(0, 1), beside).reshape(-1, batch.num_agents).numpy()
        return values

    def _own_rows(self) -> torch.Tensor:
        """(num_envs, num_agents, NUM_TENANT) each agent's own row of the tenants block."""
        at = self.net.layout.tenants_at
        return torch.as_tensor(self.batch.observations[:, :, at : at + NUM_TENANT].copy())

    # -- update ------------------------------------------------------------------------------------------------

    def _update(
        self, samples: Samples, loss_of: Callable[..., tuple[torch.Tensor, dict[str, torch.Tensor]]]
    ) -> dict[str, float]:
        """Epochs over minibatches; returns means of what the loss looked at."""
        net, settings = self.net, self.settings
        self._measure_returns(samples.returns)
        targets = (samples.returns - net.value_mean) / net.value_scale
        deciding = samples.advantages[samples.decides]
        if len(deciding) > 1:
            samples.advantages = (samples.advantages - deciding.mean()) / (deciding.std() + 1e-8)
        seen: dict[str, list[torch.Tensor]] = {}
        for _ in range(settings.epochs):
            order = torch.as_tensor(self._shuffling.permutation(len(samples.actions)))
            for chosen in order.split(settings.batch_size):
                log_probs, values = net(samples.observations[chosen], samples.legal[chosen], samples.team_of(chosen))
                loss, looks = loss_of(samples, chosen, log_probs)
                value_loss = nn.functional.mse_loss(values, targets[chosen])
                self.optimizer.zero_grad(set_to_none=True)
                (loss + settings.value_weight * value_loss).backward()
                nn.utils.clip_grad_norm_(net.parameters(), GRADIENT_NORM)
                self.optimizer.step()
                for name, look in {**looks, "train/value_loss": value_loss}.items():
                    seen.setdefault(name, []).append(look.detach())
        self.num_updates += 1
        means = {name: float(torch.stack(looks).mean()) for name, looks in seen.items()}
        error = (samples.returns - samples.values).var()
        means["train/explained_variance"] = float(1 - error / samples.returns.var().clamp(min=1e-8))
        means["train/value_scale"] = float(net.value_scale)
        return means if self.score is None else {**means, "rollout/score": self.score}

    def _policy_loss(
        self, samples: Samples, chosen: torch.Tensor, log_probs: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The clipped objective and the entropy, over samples in which there was a choice."""
        clip = self.settings.clip_range
        decides = samples.decides[chosen].float()
        count = decides.sum().clamp(min=1.0)
        of_actions = log_probs.gather(1, samples.actions[chosen].unsqueeze(1)).squeeze(1)
        change = of_actions - samples.log_probs[chosen]
        ratio = change.exp()
        advantage = samples.advantages[chosen]
        gain = torch.minimum(advantage * ratio, advantage * ratio.clamp(1 - clip, 1 + clip))
        policy_loss = -(gain * decides).sum() / count
        entropy = -((log_probs.exp() * log_probs).sum(dim=1) * decides).sum() / count
        looks = {
            "train/policy_loss": policy_loss,
            "train/entropy": entropy,
            "train/approx_kl": ((ratio - 1 - change) * decides).sum() / count,
            "train/clip_fraction": (((ratio - 1).abs() > clip) * decides).sum() / count,
        }
        return policy_loss - self.settings.entropy_weight * entropy, looks

    def _imitation_loss(
        self, samples: Samples, chosen: torch.Tensor, log_probs: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Cross-entropy to what the teacher did."""
        decides = samples.decides[chosen].float()
        count = decides.sum().clamp(min=1.0)
        of_actions = log_probs.gather(1, samples.actions[chosen].unsqueeze(1)).squeeze(1)
        agrees = (log_probs.argmax(dim=1) == samples.actions[chosen]).float()
        loss = -(of_actions * decides).sum() / count
        return loss, {"clone/loss": loss, "clone/agreement": (agrees * decides).sum() / count}

    def _measure_returns(self, returns: torch.Tensor) -> None:
        """Take a rollout's returns into the running mean and deviation of the value head."""
        net = self.net
        weight = max(1.0 / (self.num_updates + 1), SLOWEST_STATISTIC)
        mean, square = float(returns.mean()), float((returns**2).mean())
        before = float(net.value_mean)
        square_before = float(net.value_scale) ** 2 + before**2
        mean = before + weight * (mean - before)
        square = square_before + weight * (square - square_before)
        net.rescale(mean, max(square - mean**2, 0.0) ** 0.5)

    # -- checkpoints -------------------------------------------------------------------------------------------

    def state(self, teacher: Any = None) -> dict[str, Any]:
        """Everything that decides how training goes on, for `restore`; between two updates."""
        return {
            "settings": {**asdict(self.settings), **self.net.settings},
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "num_timesteps": self.num_steps,
            "num_cloned": self.num_cloned,
            "num_updates": self.num_updates,
            "scores": list(self.scores),
            "sampling": self._sampling.get_state(),
            "shuffling": self._shuffling.bit_generator.state,
            "seeds": [g.bit_generator.state for g in self._seeds],
            "running": (self._sums.copy(), self._clock.copy(), self._episode.copy()),
            "environments": self.batch.state(),
            "teacher": None if teacher is None else teacher.state(),
        }

    def restore(self, state: Mapping[str, Any], teacher: Any = None) -> None:
        """Return to a state of the same configuration.

        Raises:
            ValueError, KeyError, RuntimeError: it belongs to another.
        """
        if state["settings"] != {**asdict(self.settings), **self.net.settings}:
            raise ValueError("it was written with other settings")
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.batch.restore(state["environments"])
        self.num_steps, self.num_cloned = state["num_timesteps"], state["num_cloned"]
        self.num_updates, self.scores = state["num_updates"], list(state["scores"])
        self._sampling.set_state(state["sampling"])
        self._shuffling.bit_generator.state = state["shuffling"]
        for generator, saved in zip(self._seeds, state["seeds"], strict=True):
            generator.bit_generator.state = saved
        self._sums, self._clock, self._episode = (values.copy() for values in state["running"])
        if teacher is not None:
            teacher.restore(state["teacher"])
        self._has_begun = True


# ---------------------------------------------------------------------------------------------------------------
# Returns
# ---------------------------------------------------------------------------------------------------------------


def time_discounted_returns(
    rewards: np.ndarray,
    values: np.ndarray,
    decides: np.ndarray,
    discounts: np.ndarray,
    ends: np.ndarray,
    end_values: np.ndarray,
    last_values: np.ndarray,
    gae_lambda: float,
) -> np.ndarray:
    """(steps, num_envs, num_agents) lambda-returns with a discount per step; less `values` they are the advantages.

    Several commands at one instant take no time: their discount is 1, and lambda is 1 across them, so that splitting
    one decision into k commands changes nothing. A state in which an agent has no choice is none of its decisions:
    lambda is 1 across it too, so that its value, which nobody may have asked for, cancels out.

    Args:
        rewards, values: (steps, num_envs, num_agents); a reward is already discounted to the beginning of its step.
        decides: (steps, num_envs, num_agents) bool, whether the agent had a choice.
        discounts: (steps, num_envs), exp(-beta dt) of the step.
        ends: (steps, num_envs) bool, whether the step has ended its episode.
        end_values: (steps, num_envs, num_agents), value of what lay beyond such an end: 0 where nothing did.
        last_values: (num_envs, num_agents), of the state after the last step.
        gae_lambda: lambda of a step that takes time and leads to a choice.
    """
    returns = np.zeros_like(rewards)
    value, following, is_choice = last_values, last_values, np.ones_like(decides[0])
    for step in reversed(range(len(rewards))):
        discount, ended = discounts[step][:, None], ends[step][:, None]
        value = np.where(ended, end_values[step], value)
        following = np.where(ended, end_values[step], following)
        trust = np.where(is_choice & (discount != 1.0), gae_lambda, 1.0)
        returns[step] = rewards[step] + discount * ((1.0 - trust) * value + trust * following)
        value, following, is_choice = values[step], returns[step], decides[step]
    return returns


def _board(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))
