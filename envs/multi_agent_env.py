"""Several agents in one cluster, as PettingZoo environments over the same simulator.

*Tenants* (`TenantsEnv`, a `ParallelEnv`): one agent per tenant. An instant is a sequence of rounds, a step is one
round: each agent asks for one thing, the arbiter orders what they ask, each command is checked again when its turn
comes, and the loser is told `info["refused"] = "conflict"`. The instant ends when all wait in one round; instants at
which nobody has a choice are passed over, while time and reward add up.

*Roles* (`RolesEnv`, an `AECEnv`): admitter, placer and preemptor in turn, as Kueue (may it enter?) and Volcano (where?)
share the work.

An example of a round, `docs/multi_agent.md` has more: 8 free GPUs, tenants `a` (holds 16 of its 32) and `b` (holds 24
of its 32) both ask to start an 8-GPU job. `a` holds less of its entitlement, so its command comes first and is applied;
`b`'s no longer fits and is refused. No time has passed; the next round begins, in which both may ask again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import AgentSelector

from gangline.envs import observation as observations
from gangline.envs.agent import Face, Refused, Role, env_dtype
from gangline.envs.cluster_env import MAX_SEED, Batch
from gangline.envs.config import WorldConfig, load_world
from gangline.envs.core.types import NONE
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError
from gangline.envs.rendering import RENDER_MODES, Screen
from gangline.envs.worlds import Episode

WAIT = 0
ROLES = tuple(role.name.lower() for role in Role)
REFUSED: dict[int, str | None] = {Refused.NO: None, Refused.CONFLICT: "conflict", Refused.ILLEGAL: "illegal"}


def tenants_env(world: str | Mapping[str, Any] = "small", **kwargs: Any) -> TenantsEnv:
    """One agent per tenant: `TenantsEnv(world, ...)`; its AEC form is `pettingzoo.utils.parallel_to_aec` of it."""
    return TenantsEnv(world, **kwargs)


def roles_env(world: str | Mapping[str, Any] = "small", **kwargs: Any) -> RolesEnv:
    """Admitter, placer and preemptor in turn: `RolesEnv(world, ...)`."""
    return RolesEnv(world, **kwargs)


# ---------------------------------------------------------------------------------------------------------------
# Batches
# ---------------------------------------------------------------------------------------------------------------


class SeveralAgentsBatch(Batch):
    """A batch of environments with several agents each.

    Attributes:
        num_agents: of each environment.
        observations: (num_envs, num_agents, flat_size) float32; masks: (num_envs, num_agents, num_actions) int8.
        actions: (num_envs, num_agents) int64, read by `step`.
    """

    def _views(self) -> tuple[np.ndarray, np.ndarray]:
        return self.seen, self.allowed

    @property
    def num_agents(self) -> int:
        """Agents of each environment."""
        return int(self.members.shape[1])

    @property
    def rewards(self) -> np.ndarray:
        """(num_envs, num_agents) float32, of the last step."""
        return self.members["reward"].astype(np.float32)

    @property
    def discounts(self) -> np.ndarray:
        """(num_envs,) float64: exp(-beta x time of the last step)."""
        return self.envs["transition"]["discount"].copy()  # type: ignore[no-any-return]

    @property
    def had_choice(self) -> np.ndarray:
        """(num_envs, num_agents) bool: whether the last action was chosen among several."""
        return self.members["had_choice"].copy()  # type: ignore[no-any-return]

    @property
    def terminated(self) -> np.ndarray:
        """(num_envs,) bool: nothing is left to do."""
        return self.envs["terminated"].copy()  # type: ignore[no-any-return]

    @property
    def truncated(self) -> np.ndarray:
        """(num_envs,) bool: the horizon is reached."""
        return self.envs["truncated"].copy()  # type: ignore[no-any-return]


class TenantsBatch(SeveralAgentsBatch):
    """A batch of tenants environments: agent k is the tenant of index k."""

    face = Face.TENANTS

    def _members(self) -> np.ndarray:
        members = np.zeros((self.num_envs, len(self.spec.tenants)), env_dtype(self.size))
        members["tenant"] = np.arange(members.shape[1])
        members["role"] = NONE
        return members


class RolesBatch(SeveralAgentsBatch):
    """A batch of roles environments: agent r is the role of index r; `actions[i, 0]` is of the one whose turn it is."""

    face = Face.ROLES

    def _members(self) -> np.ndarray:
        members = np.zeros((self.num_envs, len(Role)), env_dtype(self.size))
        members["tenant"] = NONE
        members["role"] = np.arange(len(Role))
        return members


# ---------------------------------------------------------------------------------------------------------------
# What both environments have
# ---------------------------------------------------------------------------------------------------------------


class _OneEnvironment:
    """A batch of one with named agents: spaces, seeds, pictures."""

    batch: SeveralAgentsBatch
    render_mode: str | None
    observation_spaces: dict[str, spaces.Dict]
    action_spaces: dict[str, spaces.Discrete]

    def _set_up(
        self, batch: type[SeveralAgentsBatch], world: Any, render_mode: str | None, overrides: Mapping[str, Any]
    ) -> None:
        self._screen = Screen(render_mode)
        self.render_mode = render_mode
        self.config = several_agents_config(world, overrides)
        self.batch = batch(self.config, 1)
        agent = self.batch.agent
        self._box = spaces.Box(observations.LOW, observations.HIGH, (observations.flat_size(agent),), np.float32)
        self._mask = spaces.Box(0, 1, (int(agent["num_actions"]),), np.int8)
        self._num_actions = int(agent["num_actions"])
        self._generator: np.random.Generator | None = None
        self.episode: Episode | None = None

    def _spaces(self, names: list[str]) -> tuple[dict[str, spaces.Dict], dict[str, spaces.Discrete]]:
        """Spaces of each agent: one object each, whose samples do not depend on the others'."""
        seen = {n: spaces.Dict({"observation": self._box, "action_mask": self._mask}) for n in names}
        return seen, {n: spaces.Discrete(self._num_actions) for n in names}

    def _begin(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        if seed is not None or self._generator is None:
            self._generator = seeding.np_random(seed)[0]
        given = {name: value for name, value in (options or {}).items() if name != "options"}  # PettingZoo's own test
        self.episode = self.batch.reset_one(0, int(self._generator.integers(MAX_SEED)), given)
        self.batch.begin(0, 1)
        self._screen.begin(self.world)

    def _seen(self, k: int) -> dict[str, np.ndarray]:
        return {"observation": self.batch.seen[0, k].copy(), "action_mask": self.batch.allowed[0, k].copy()}

    @property
    def world(self) -> World:
        """The simulated cluster, for looking at: a view of this environment's own state."""
        if self.episode is None:
            raise gymnasium.error.ResetNeeded("there is no world before reset()")
        return self.batch.world_of(0)

    def render(self) -> str | np.ndarray | None:
        """The cluster now: text, pixels (height, width, 3) uint8, or None (a window, or no render mode)."""
        return self._screen.render(self.world)

    def close(self) -> None:
        """Close the window, if there is one."""
        self._screen.close()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """The space of an agent's actions."""
        return self.action_spaces[agent]


def several_agents_config(world: str | Mapping[str, Any], overrides: Mapping[str, Any]) -> WorldConfig:
    """The configuration of a world in which several agents act.

    Raises:
        GanglineError: it asks for what only the single agent has.
    """
    config = load_world(world, **overrides)
    if config.action.head != "slots":
        raise GanglineError(f"action.head is {config.action.head!r}, expected 'slots' where several agents act")
    if config.observation.own_blocks:
        raise GanglineError(f"observation block {config.observation.own_blocks[0]!r} is Python code, expected built-in")
    if config.time.commands_per_tick != 1:
        raise GanglineError(
            f"time.commands_per_tick is {config.time.commands_per_tick}, expected 1 where several agents act"
        )
    return config


# ---------------------------------------------------------------------------------------------------------------
# Tenants
# ---------------------------------------------------------------------------------------------------------------


class TenantsEnv(_OneEnvironment, ParallelEnv):  # type: ignore[misc]
    """One agent per tenant of a shared GPU cluster.

    Observation:
        `{"observation": Box (n,) float32, "action_mask": Box (num_actions,) int8}`. The blocks of the single agent; the
        queue and the running rows are the tenant's own, its row comes first in the tenants block, and of the others it
        is told usage, entitlement, what they hold, want and wait for in GPUs: not how many jobs they have or how old.

    Action:
        Discrete: 0 = wait; then start an own job by a placement rule; have others that hold more than their fair share
        stopped for it, as long as the own share is not exceeded by it; optionally reserve for a gang; give back: stop
        an own job while holding more than the fair share. Anything the mask forbids changes nothing and is counted.

    Reward:
        `(1 - mu) own + mu mean over tenants of own`, with `multi_agent.mu` .5. own = productive use - 2 over-share -
        deficit - waste, each as a share of an n-th of the cluster (`multi_agent.own_weights`), exact integrals over the
        time passed, discounted to the round.

    Episode end:
        As the single agent's, for all at once. Agents that have nothing to do stay, with a wait-only mask.

    Information, per agent:
        `dt_s`, `discount` = exp(-beta dt): 1 between rounds of an instant; `had_choice`: whether the action was chosen
        among several, for leaving forced waits out of a policy loss; `refused`: None, "conflict" or "illegal";
        `time_s`.

    Arguments:
        world, overrides: as `GpuClusterEnv`. render_mode: as `GpuClusterEnv`.

    Versions:
        v0: first.
    """

    metadata = {"name": "gangline_tenants_v0", "render_modes": list(RENDER_MODES), "is_parallelizable": True}  # noqa: RUF012

    def __init__(
        self, world: str | Mapping[str, Any] = "small", *, render_mode: str | None = None, **overrides: Any
    ) -> None:
        self._set_up(TenantsBatch, world, render_mode, overrides)
        self.possible_agents = list(self.batch.names.tenants)
        self.agents: list[str] = []
        self.observation_spaces, self.action_spaces = self._spaces(self.possible_agents)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; `options` as those of `GpuClusterEnv.reset`."""
        self._begin(seed, options)
        self.agents = list(self.possible_agents)
        return self._all_seen(), self._infos()

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Play a round: one action of each agent; one that says nothing waits."""
        if self.episode is None:
            raise gymnasium.error.ResetNeeded("step() was called before reset()")
        unknown = [name for name in actions if name not in self.possible_agents]
        if unknown:
            raise GanglineError(f"action of agent {unknown[0]!r}, expected some of {self.possible_agents}")
        batch = self.batch
        batch.actions[0] = [int(actions.get(name, WAIT)) for name in self.possible_agents]
        batch.step(0, 1)
        self._screen.note(self.world)
        ended, cut = bool(batch.envs[0]["terminated"]), bool(batch.envs[0]["truncated"])
        rewards = dict(zip(self.agents, batch.members[0]["reward"].tolist(), strict=True))
        terminations, truncations = dict.fromkeys(self.agents, ended), dict.fromkeys(self.agents, cut)
        seen, infos = self._all_seen(), self._infos()
        if ended or cut:
            self.agents = []
        return seen, rewards, terminations, truncations, infos

    def _all_seen(self) -> dict[str, Any]:
        return {name: self._seen(k) for k, name in enumerate(self.agents)}

    def _infos(self) -> dict[str, Any]:
        batch = self.batch
        transition = batch.envs[0]["transition"]
        common = {
            "dt_s": float(transition["elapsed_h"]) * 3600.0,
            "discount": float(transition["discount"]),
            "time_s": int(batch.worlds[0]["now_ms"]) / 1000.0,
        }
        had_choice = batch.members[0]["had_choice"].tolist()
        refused = batch.members[0]["refused"].tolist()
        return {
            name: {**common, "had_choice": had_choice[k], "refused": REFUSED[refused[k]]}
            for k, name in enumerate(self.agents)
        }


# ---------------------------------------------------------------------------------------------------------------
# Roles
# ---------------------------------------------------------------------------------------------------------------


class RolesEnv(_OneEnvironment, AECEnv):  # type: ignore[misc]
    """Three agents share the scheduler's work, in turn: `admitter`, `placer`, `preemptor`.

    Observation:
        `{"observation": Box (n,) float32, "action_mask": Box (num_actions,) int8}`, the blocks of the single agent.

    Action:
        The single agent's flat actions and one segment more, `admit`; the mask leaves to each role its own. The
        admitter lets in a job that could start, at once or once room is made. The placer starts what has been let in,
        by a placement rule. The preemptor has others stopped for what has been let in and does not fit. All may wait.

    Turns and time:
        A round is a turn of each. Time passes when all three have waited in a round, to the next instant at which one
        of them has a choice. A job that is stopped has to be let in again.

    Reward:
        The single agent's, the same for all; `last()` gives what has come since that agent's last turn, discounted to
        it, and `info["discount"]`, `info["dt_s"]` say how much time that was.

    Arguments:
        world, overrides: as `GpuClusterEnv`. render_mode: as `GpuClusterEnv`.

    Versions:
        v0: first.
    """

    metadata = {"name": "gangline_roles_v0", "render_modes": list(RENDER_MODES), "is_parallelizable": False}  # noqa: RUF012

    def __init__(
        self, world: str | Mapping[str, Any] = "small", *, render_mode: str | None = None, **overrides: Any
    ) -> None:
        super().__init__()
        self._set_up(RolesBatch, world, render_mode, overrides)
        self.possible_agents = list(ROLES)
        self.agents: list[str] = []
        self.observation_spaces, self.action_spaces = self._spaces(self.possible_agents)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode; `options` as those of `GpuClusterEnv.reset`."""
        self._begin(seed, options)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._selector = AgentSelector(self.agents)
        self.agent_selection = self._selector.next()
        self._write_infos()

    def observe(self, agent: str) -> dict[str, np.ndarray]:
        """What an agent sees now; its mask is what would be legal if it had the turn."""
        return self._seen(self.possible_agents.index(agent))

    def step(self, action: Any) -> None:
        """Apply the action of the agent whose turn it is."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        batch = self.batch
        batch.actions[0] = int(action)
        batch.step(0, 1)
        self._screen.note(self.world)
        self.rewards = dict(zip(self.possible_agents, batch.members[0]["reward"].tolist(), strict=True))
        ended, cut = bool(batch.envs[0]["terminated"]), bool(batch.envs[0]["truncated"])
        self.terminations = dict.fromkeys(self.agents, ended)
        self.truncations = dict.fromkeys(self.agents, cut)
        self.agent_selection = self._selector.next()
        self._write_infos()
        self._accumulate_rewards()

    def _write_infos(self) -> None:
        members = self.batch.members[0]
        self.infos = {
            name: {
                "dt_s": float(members[r]["since_h"]) * 3600.0,
                "discount": float(members[r]["since_discount"]),
                "had_choice": bool(members[r]["had_choice"]),
                "refused": REFUSED[int(members[r]["refused"])],
                "time_s": int(self.batch.worlds[0]["now_ms"]) / 1000.0,
            }
            for r, name in enumerate(self.possible_agents)
        }
