"""`GpuClusterEnv`: one agent schedules the whole cluster. The Gymnasium face of the simulator.

It is a batch of one: the same kernels step it that step the vector environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from gangline.envs import action as actions
from gangline.envs import observation as observations
from gangline.envs import reward as rewards
from gangline.envs import stepping
from gangline.envs.agent import (
    AGENT,
    MAX_QUEUE_ROWS,
    MAX_RULES,
    MAX_RUNNING_ROWS,
    Arbiter,
    Face,
    Kind,
    TimeMode,
    env_dtype,
    scratch_dtype,
)
from gangline.envs.config import MultiAgentConfig, WorldConfig, load_world, one_of
from gangline.envs.core import building
from gangline.envs.core.compiled import entry_point
from gangline.envs.core.placement import Rule
from gangline.envs.core.preemption import VictimRule
from gangline.envs.core.queue import QueueOrder
from gangline.envs.core.spec import WorldSpec
from gangline.envs.core.state import restore_state, state_of
from gangline.envs.core.trace import JobTrace
from gangline.envs.core.types import (
    DECISION,
    JOB_ROW,
    LOG_ROW,
    NONE,
    RESET_BOUNDARY,
    SCHEDULE_ROW,
    ErrorCode,
    SizeClass,
    world_dtype,
)
from gangline.envs.core.view import ClusterView
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError
from gangline.envs.rendering import RENDER_MODES, Screen
from gangline.envs.stepping import Mode
from gangline.envs.worlds import HOUR_MS, Episode, EpisodeSource, build_world

MAX_SEED = 1 << 62


class GpuClusterEnv(gymnasium.Env[Any, Any]):
    """A shared GPU cluster whose queue one agent works off: admit, place, preempt, wait.

    Observation:
        `observation.form: flat` - Box (n,) float32, the blocks one after another; `dict` - a Dict of the blocks and
        `action_mask`. Blocks: `cluster` (time, load, holes), `tenants` (entitlement, use, usage, demand, backlog),
        `nodes`, `queue` (oldest, tenants' heads, shortest: one row per job), `running` (preemption candidates).
        Features and scales: `gangline.envs.observation.FEATURES`. Never the hidden truth.

    Action:
        Discrete: 0 = wait until the next choice; then (rule, slot) = start the job of a queue row by a placement rule;
        (victim rule, slot) = preempt the smallest sufficient set and start it; optionally admit, reserve, preempt.
        `action_masks()` and `info["action_mask"]` say what is legal; anything else changes nothing and is counted.
        `action.head: multi_discrete` takes (kind, slot, rule).

    Reward:
        Weighted, named integrals over the time passed (`gangline.envs.reward.TERMS`), discounted to the decision; every
        term is in `info["reward_terms"]`. Default: - idle-with-demand - over-share - waste.

    Episode end:
        Truncated at the horizon; terminated when every job has ended and none will come.
        `info["dt_s"]` is the time passed, `info["discount"]` = exp(-beta dt): several commands at one instant have dt 0
        and discount 1, so a learner that multiplies gamma per step values time wrongly; use `info["discount"]`, or
        `time.mode: tick`.

    Arguments:
        world: a preset (`toy`, `small`, `philly64`, ...), a YAML file, or a mapping.
        render_mode: `ansi` (nodes, queue and tenants as text), `rgb_array` (a picture: who holds which GPU since the
            episode began, queue, tenants' shares beside entitlements), `human` (that picture in a window), or None.
        overrides: any key of `gangline.envs.config.WorldConfig`, nested or dotted: `**{"action.min_run_h": 1}`.
        `reset(options={"trace": seed, "start_s": s, "load": l})` fixes the jobs apart from the seed.

    Versions:
        v0: first.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 4}  # noqa: RUF012

    def __init__(
        self, world: str | Mapping[str, Any] = "small", *, render_mode: str | None = None, **overrides: Any
    ) -> None:
        self._screen = Screen(render_mode)
        self.render_mode = render_mode
        self.config = load_world(world, **overrides)
        self.batch = Batch(self.config, 1)
        self._read = _Readings.of(self.batch)
        agent = self.batch.agent
        self._own_terms = {n: rewards.own_term(n) for n in self.config.reward.weights if "." in n}
        self._own_blocks = {n: observations.own_block(n) for n in self.config.observation.own_blocks}
        self._is_dict = self.config.observation.form == "dict"
        self.observation_space = self._observation_space(agent)
        self.action_space = self._action_space(agent)
        self.episode: Episode | None = None

    # -- Gymnasium ---------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. The same seed gives the same jobs, whatever is done in it."""
        super().reset(seed=seed)
        episode_seed = int(self.np_random.integers(MAX_SEED))
        self.episode = self.batch.reset_one(0, episode_seed, options or {})
        self.batch.begin(0, 1)
        self._screen.begin(self.world)
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Apply an action and go on to the next choice."""
        if self.episode is None:
            raise gymnasium.error.ResetNeeded("step() was called before reset()")
        self.batch.actions[0] = self.flat_actions(action)
        self.batch.step(0, 1)
        if self.render_mode is not None:
            self._screen.note(self.world)
        read = self._read
        reward = read.reward.item()
        info = self._info()
        for name, term in self._own_terms.items():
            value = float(term(self.batch.envs[0]["transition"]))
            info["reward_terms"][name] = value
            reward += self.config.reward.weights[name] * value * float(self.batch.agent["reward_scale"])
        return self._observation(), reward, read.terminated.item(), read.truncated.item(), info

    def render(self) -> str | np.ndarray | None:  # type: ignore[override]
        """The cluster now: text, pixels (height, width, 3) uint8, or None (a window, or no render mode)."""
        return self._screen.render(self.world)

    def close(self) -> None:
        """Close the window, if there is one."""
        self._screen.close()

    def action_masks(self) -> np.ndarray:
        """(num_actions,) bool: what is legal now; for a MultiDiscrete head the masks of its dimensions in one."""
        mask = self.batch.masks[0].astype(bool)
        if self.config.action.head == "slots":
            return mask
        return self._multi_mask(mask)

    # -- for tools ---------------------------------------------------------------------------------------------

    @property
    def world(self) -> World:
        """The simulated cluster, for looking at: a view of this environment's own state."""
        if self.episode is None:
            raise gymnasium.error.ResetNeeded("there is no world before reset()")
        return self.batch.world_of(0)

    # -- inside ------------------------------------------------------------------------------------------------

    def _observation(self) -> Any:
        flat = self.batch.observations[0].copy()
        own = self._write_own_blocks()
        if not self._is_dict:
            return np.concatenate([flat, *(block.reshape(-1) for block in own.values())]) if own else flat
        blocks = {name: block.copy() for name, block in observations.split(flat, self.batch.agent).items()}
        return {**blocks, **own, "action_mask": self.batch.masks[0].copy()}

    def _write_own_blocks(self) -> dict[str, np.ndarray]:
        """Blocks of the user's own package, cut to the space: a slow Python path."""
        if not self._own_blocks:
            return {}
        view = ClusterView(self.batch.world_of(0))
        low, high = observations.LOW, observations.HIGH
        return {n: np.clip(np.asarray(block(view), np.float32), low, high) for n, block in self._own_blocks.items()}

    def _info(self) -> dict[str, Any]:
        read = self._read
        return {
            "dt_s": read.elapsed_h.item() * 3600.0,
            "discount": read.discount.item(),
            "action_mask": self.batch.masks[0].copy(),
            "reward_terms": dict(zip(rewards.TERM_NAMES, read.terms.tolist(), strict=True)),
            "reward_term_sums": dict(zip(rewards.TERM_NAMES, read.term_sums.tolist(), strict=True)),
            "legal": read.last_was_legal.item(),
            "num_illegal": read.num_illegal.item(),
            "overflow_share": read.num_overflows.item() / max(1, read.num_decisions.item()),
            "time_s": read.now_ms.item() / 1000.0,
            "load": None if self.episode is None else self.episode.load,
        }

    def _observation_space(self, agent: np.void) -> spaces.Space[Any]:
        def box(shape: tuple[int, ...]) -> spaces.Box:
            return spaces.Box(observations.LOW, observations.HIGH, shape, np.float32)

        own = {name: block.shape for name, block in self._write_own_blocks().items()}
        if not self._is_dict:
            return box((observations.flat_size(agent) + sum(int(np.prod(shape)) for shape in own.values()),))
        shapes = {**observations.block_shapes(agent), **own}
        blocks: dict[str, spaces.Space[Any]] = {name: box(shape) for name, shape in shapes.items()}
        blocks["action_mask"] = spaces.Box(0, 1, (int(agent["num_actions"]),), np.int8)
        return spaces.Dict(blocks)

    def _action_space(self, agent: np.void) -> spaces.Space[Any]:
        commands = int(self.batch.actions.shape[1])
        if self.config.action.head == "multi_discrete":
            rules = max(int(agent["num_rules"]), int(agent["num_victim_rules"]), 1)
            one = [len(Kind), int(agent["queue_rows"]), rules]
            return spaces.MultiDiscrete(one * commands)
        if commands > 1:
            return spaces.MultiDiscrete([int(agent["num_actions"])] * commands)
        return spaces.Discrete(int(agent["num_actions"]))

    def flat_actions(self, action: Any) -> np.ndarray:
        """(commands,) int64 flat actions; what cannot be one becomes -1, an illegal action."""
        values = np.asarray(action, np.int64).reshape(-1)
        if self.config.action.head == "slots":
            return values
        agent = self.batch.agent
        flat = [self.flat_action(agent, *(int(v) for v in values[i : i + 3])) for i in range(0, len(values), 3)]
        return np.array(flat, np.int64)

    @staticmethod
    def flat_action(agent: np.void, kind: int, slot: int, rule: int) -> int:
        """Flat index of (kind, slot, rule); NONE where there is no such action."""
        rows = int(agent["queue_rows"])
        if kind == Kind.WAIT:
            return 0
        if kind == Kind.PLACE:
            return 1 + rule * rows + slot if rule < agent["num_rules"] else NONE
        at = 1 + int(agent["num_rules"]) * rows
        if kind == Kind.MAKE_ROOM:
            return at + rule * rows + slot if rule < agent["num_victim_rules"] else NONE
        at += int(agent["num_victim_rules"]) * rows
        if kind == Kind.ADMIT:
            return at + slot if agent["may_admit"] else NONE
        at += int(agent["may_admit"]) * rows
        if kind == Kind.RESERVE:
            return at + slot if agent["may_reserve"] else NONE
        at += int(agent["may_reserve"]) * rows
        return at + slot if agent["may_preempt"] and slot < agent["running_rows"] else NONE

    def _multi_mask(self, mask: np.ndarray) -> np.ndarray:
        """Masks of (kind, slot, rule), each true if some legal action has that value: they cannot be independent."""
        agent = self.batch.agent
        rows = int(agent["queue_rows"])
        rules = max(int(agent["num_rules"]), int(agent["num_victim_rules"]), 1)
        kinds = np.zeros(len(Kind), bool)
        slots = np.zeros(rows, bool)
        some = np.zeros(rules, bool)
        for kind in Kind:
            for slot in range(rows):
                for rule in range(rules):
                    index = self.flat_action(agent, kind, slot, rule)
                    if 0 <= index < len(mask) and mask[index]:
                        kinds[kind] = slots[slot] = some[rule] = True
        one = np.concatenate([kinds, slots, some])
        return np.tile(one, int(self.batch.actions.shape[1]))


class _Readings(NamedTuple):
    """Numbers of a batch of one, as views: looking a field of a record up by name takes ten times as long."""

    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    elapsed_h: np.ndarray
    discount: np.ndarray
    terms: np.ndarray
    term_sums: np.ndarray
    last_was_legal: np.ndarray
    num_illegal: np.ndarray
    num_overflows: np.ndarray
    num_decisions: np.ndarray
    now_ms: np.ndarray

    @classmethod
    def of(cls, batch: Batch) -> _Readings:
        """The views of a batch."""
        transition = batch.envs["transition"]
        own = {
            "elapsed_h": transition["elapsed_h"],
            "discount": transition["discount"],
            "now_ms": batch.worlds["now_ms"],
        }
        return cls(**{name: (own[name] if name in own else batch.envs[name])[0, ...] for name in cls._fields})


class Batch:
    """Records and buffers of a number of environments of one configuration, and the kernels over them.

    Attributes:
        worlds, envs: (num_envs,) records.
        agent: () AGENT, shared.
        actions: (num_envs, commands) int64, read by `step`.
        observations: (num_envs, flat_size) float32; masks: (num_envs, num_actions) int8; written by `begin`, `step`.
    """

    face = Face.SINGLE

    def __init__(self, config: WorldConfig, num_envs: int, *, keep_log: bool = False, threads: int = 1) -> None:
        """Build the worlds; with `keep_log`, ended jobs are written to a log (one environment only)."""
        if keep_log and num_envs != 1:
            raise GanglineError(f"a log of {num_envs} environments, expected one: batches keep no log")
        self.config = config
        self.num_envs = num_envs
        self._keep_log = keep_log
        self.spec, self.source = build_world(config)
        layout = self.source.layout()
        self.names = building.names_of(self.spec)
        self.size = self._size_class(layout)
        self.template = building.new_records(1, world_dtype(self.size))
        building.fill_record(self.template[0], self.spec, self.names, layout)
        self.template[0]["params"]["queue_order"] = QueueOrder.SUBMIT
        _refresh_template(self.template)
        self.worlds = building.new_records(num_envs, world_dtype(self.size))
        self.envs = building.new_records(num_envs, env_dtype(self.size))
        self.envs["tenant"] = self.envs["role"] = NONE
        self.members = self._members()
        self.agents = agent_parameters(config, self.spec, self.source, self.face)
        self.decisions = [np.zeros(1, DECISION) for _ in range(threads)]  # scratch, one for each thread
        self.scratch = [np.zeros(1, scratch_dtype(self.size)) for _ in range(threads)]
        seats = max(1, self.members.shape[1])
        commands = config.time.commands_per_tick if config.time.mode == "tick" else 1
        self.actions = np.zeros((num_envs, commands if self.face == Face.SINGLE else seats), np.int64)
        self.seen = np.zeros((num_envs, seats, observations.flat_size(self.agent)), np.float32)
        self.allowed = np.zeros((num_envs, seats, int(self.agent["num_actions"])), np.int8)
        self.observations, self.masks = self._views()
        self.begins = np.zeros(num_envs, np.int64)
        self.ends = np.zeros(num_envs, np.int64)
        self.trace = layout
        self._rows_per_env = 0
        self._own_rows = np.zeros(0, JOB_ROW)
        self._rows = layout.rows
        self._schedule = np.zeros(0, SCHEDULE_ROW)
        self._log = np.zeros(0, LOG_ROW)
        fields: Any = self.worlds.dtype.fields
        prefix = fields[RESET_BOUNDARY][1]  # bytes of the record that a reset copies
        self._kernel: Any = None
        self._template_bytes = self.template.view(np.uint8).reshape(-1)[:prefix].copy()
        self._raw_worlds = self.worlds.view(np.uint8).reshape(num_envs, -1)
        stepping.reset_worlds(self._raw_worlds, self._template_bytes, 0, num_envs)  # the rest is zero

    def _members(self) -> np.ndarray:
        """(num_envs, agents) records of several agents; none for the single one."""
        return np.zeros((self.num_envs, 0), env_dtype(self.size))

    def _views(self) -> tuple[np.ndarray, np.ndarray]:
        """Observations and masks as the user sees them: of the one agent, without an axis for agents."""
        return self.seen[:, 0], self.allowed[:, 0]

    @property
    def agent(self) -> np.void:
        """Parameters of the agent's side."""
        return self.agents[0]  # type: ignore[no-any-return]

    def reset_one(self, i: int, seed: int, options: Mapping[str, Any]) -> Episode:
        """Draw environment i's next episode and set its world to begin it; call `begin` after."""
        episode = self.source.draw(seed, options)
        stepping.reset_worlds(self._raw_worlds, self._template_bytes, i, i + 1)
        w = self.worlds[i]
        first = self._take_rows(i, episode)
        w["next_row"], w["end_row"] = episode.first_row + first, episode.end_row + first
        w["thin_seed"], w["thin_below"] = episode.thin_seed, episode.thin_below
        w["time_offset_ms"] = episode.offset_ms
        rows = episode.trace.rows
        if len(rows) and episode.trace is not self.source.layout():
            num_groups, num_shapes = int(rows["group"].max()) + 1, int(rows["shape"].max()) + 1
            w["num_groups"], w["num_shapes"] = num_groups, num_shapes
            if num_groups > self.size.max_groups or num_shapes > self.size.max_shapes:
                raise GanglineError(f"the episode has more job shapes than size class {self.size.name!r} holds")
            w["groups"]["tenant"][rows["group"]] = rows["tenant"]
            w["groups"]["shape"][rows["group"]] = rows["shape"]
        if self.config.cluster.mean_up_h is not None:
            stepping.failure_seeds(self.worlds, i, np.uint64(seed))
        self.begins[i], self.ends[i] = episode.begin_ms, episode.end_ms
        return episode

    def _take_rows(self, i: int, episode: Episode) -> int:
        """Make an episode's jobs readable for environment i; returns where its row 0 stands in the table.

        A real trace is one table for all environments and resets; generated jobs are copied into a stretch per
        environment.
        """
        if episode.trace is self.source.layout():
            first = 0
        else:
            count = episode.trace.num_jobs
            if count > self._rows_per_env:
                grown = np.zeros((self.num_envs, count + count // 2), JOB_ROW)
                old = self._own_rows.reshape(self.num_envs, -1) if self._rows_per_env else grown[:, :0]
                grown[:, : self._rows_per_env] = old
                for e in range(self.num_envs):
                    moved = e * (grown.shape[1] - self._rows_per_env)
                    self.worlds[e]["next_row"] += moved
                    self.worlds[e]["end_row"] += moved
                self._rows_per_env = grown.shape[1]
                self._own_rows = grown.reshape(-1)
                self._rows = self._own_rows.view()
                self._rows.setflags(write=False)
            first = i * self._rows_per_env
            rows = episode.trace.rows
            self._own_rows[first : first + count].view(np.uint8)[:] = rows.view(np.uint8)  # field by field takes 10 x
            self.trace = episode.trace
        if self._keep_log:
            self._log = np.zeros(episode.end_row - episode.first_row, LOG_ROW)
        return first

    def warm(self, i: int) -> None:
        """Warm environment i's world up, for a scheduler that goes through the compiled door instead of `step`."""
        self._drive(Mode.WARM, i, i + 1)

    def begin(self, lo: int, hi: int) -> None:
        """Warm the worlds of [lo, hi) up and go to the first choice."""
        self._drive(Mode.BEGIN, lo, hi)

    def step(self, lo: int, hi: int, thread: int = 0) -> None:
        """Apply `actions` of [lo, hi). Ranges that do not meet may be stepped by threads at once."""
        self._drive(Mode.STEP, lo, hi, thread)

    def _drive(self, mode: int, lo: int, hi: int, thread: int = 0) -> None:
        arguments = (
            int(mode),
            self.worlds,
            self.envs,
            self.members,
            self.agents,
            self._rows,
            self.trace.pod_sets,
            self._schedule,
            self._log,
            self.decisions[thread],
            self.scratch[thread],
            self.actions,
            self.seen,
            self.allowed,
            self.begins,
            self.ends,
            lo,
            hi,
        )
        if self._kernel is None:
            self._kernel = entry_point(stepping.drive, *arguments)
        if self._kernel(*arguments):
            self._raise(lo)

    def state(self) -> dict[str, Any]:
        """Everything that can change, for `restore`: of each world what is in use, not the scratch."""
        return {
            "worlds": [state_of(w) for w in self.worlds],
            "envs": self.envs.copy(),
            "members": self.members.copy(),
            "rows": self._own_rows.copy(),
            "rows_per_env": self._rows_per_env,
            "observations": self.observations.copy(),
            "masks": self.masks.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Return to a state of a batch of the same configuration and size.

        Raises:
            ValueError: it belongs to another.
        """
        if len(state["worlds"]) != self.num_envs or state["envs"].dtype != self.envs.dtype:
            raise ValueError(f"the state is of {len(state['worlds'])} environments, expected {self.num_envs}")
        for w, saved in zip(self.worlds, state["worlds"], strict=True):
            restore_state(w, saved)
        self.envs[:] = state["envs"]
        self.members[:] = state["members"]
        self._rows_per_env = state["rows_per_env"]
        if self._rows_per_env:
            self._own_rows = state["rows"].copy()
            self._rows = self._own_rows.view()
            self._rows.setflags(write=False)
        self.observations[:] = state["observations"]
        self.masks[:] = state["masks"]

    def world_of(self, i: int) -> World:
        """Environment i's state as a `World` that shares its record."""
        world = World.__new__(World)
        world.attach(
            self.spec, self.names, self.size, self.worlds[i : i + 1], self._rows, self.trace.pod_sets, self._log
        )
        return world

    def _size_class(self, layout: JobTrace) -> SizeClass:
        """The smallest class that holds cluster and tenants, and a third of an episode's jobs at once."""
        hoped = self.source.most_jobs // 3
        return building.size_class_for(self.spec, layout, live_jobs=hoped)

    def _raise(self, lo: int) -> None:
        """Raise what a kernel has noted for the first environment from `lo` on."""
        i = lo + int(np.flatnonzero(self.worlds["error"][lo:])[0])
        code = ErrorCode(int(self.worlds[i]["error"]))
        what = code.name.lower().removeprefix("too_many_").replace("_", " ")
        raise GanglineError(
            f"environment {i} needs room for {int(self.worlds[i]['error_value'])} {what} at once, "
            f"size class {self.size.name!r} holds less; lower the load or shorten the episode"
        )


def _refresh_template(template: np.ndarray) -> None:
    """Subtree quotas and fair shares of the empty world."""
    from gangline.envs.core.driver import prepare_template

    prepare_template(template)


def agent_parameters(
    config: WorldConfig, spec: WorldSpec, source: EpisodeSource, face: Face = Face.SINGLE
) -> np.ndarray:
    """(1,) AGENT of a configuration."""
    rewards.check_weights(config.reward.weights)
    for block in config.observation.blocks:
        one_of("observation block", block, observations.BLOCKS)
    agents = np.zeros(1, AGENT)
    a = agents[0]
    show = config.observation
    a["shows_cluster"] = "cluster" in show.blocks
    a["shows_queue"] = "queue" in show.blocks
    a["shows_running"] = "running" in show.blocks
    a["tenant_rows"] = len(spec.tenants) if "tenants" in show.blocks else 0
    a["node_rows"] = min(len(spec.nodes), show.most_node_rows) if "nodes" in show.blocks else 0
    a["num_oldest"] = show.num_oldest
    a["num_shortest"] = show.num_shortest
    heads = 1 if face == Face.TENANTS else len(spec.tenants)  # a tenant's agent sees its own jobs only
    a["queue_rows"] = show.num_oldest + show.num_shortest + heads
    a["running_rows"] = max(show.running_rows, 1)
    for name, most in (("queue_rows", MAX_QUEUE_ROWS), ("running_rows", MAX_RUNNING_ROWS)):
        if a[name] > most:
            raise GanglineError(f"observation.{name} is {a[name]}, expected at most {most}")
    a["epoch_ms"] = source.epoch_ms
    do = config.action
    if max(len(do.placement_rules), len(do.victim_rules)) > MAX_RULES:
        raise GanglineError(f"more than {MAX_RULES} placement or victim rules, expected fewer")
    a["num_rules"] = len(do.placement_rules)
    a["rules"][: len(do.placement_rules)] = [Rule[r.upper()] for r in do.placement_rules]
    a["num_victim_rules"] = len(do.victim_rules)
    a["victim_rules"][: len(do.victim_rules)] = [VictimRule[r.upper()] for r in do.victim_rules]
    a["may_admit"] = do.may_admit or face == Face.ROLES
    a["may_reserve"] = do.may_reserve
    a["may_preempt"] = do.may_preempt or face == Face.TENANTS  # a tenant gives back what it has borrowed
    a["min_run_ms"] = round(do.min_run_h * HOUR_MS)
    a["reclaims_within_share"] = do.reclaim_within_share
    a["reserve_ms"] = max(1, round(do.reserve_h * HOUR_MS))
    a["max_commands_per_instant"] = do.max_commands_per_instant
    a["num_actions"] = actions.num_actions(a)
    time = config.time
    a["time_mode"] = TimeMode[time.mode.upper()]
    a["tick_ms"] = max(1, round(time.tick_s * 1000))
    a["commands_per_tick"] = time.commands_per_tick
    a["skips_forced"] = time.skip_forced
    a["beta_per_h"] = time.beta_per_h if time.mode == "event" else 0.0
    horizon_h = config.episode.horizon_h or 24.0
    automatic = float(a["beta_per_h"]) or 1.0 / horizon_h
    a["reward_scale"] = automatic if config.reward.scale is None else config.reward.scale
    for i, name in enumerate(rewards.TERM_NAMES):
        a["weights"][i] = config.reward.weights.get(name, 0.0)
    a["uses_utility"] = bool(config.reward.weights.get("alpha_fair", 0.0))
    several = config.multi_agent
    one_of("multi_agent.arbiter", several.arbiter, [x.name.lower() for x in Arbiter])
    for name in several.own_weights:
        one_of("own reward term", name, rewards.OWN_TERMS)
    a["face"] = face
    a["arbiter"] = Arbiter[several.arbiter.upper()]
    a["mu"] = several.mu
    own_weights = {**MultiAgentConfig().own_weights, **several.own_weights}  # what is not said stays as it is
    a["own_weights"] = [own_weights[name] for name in rewards.OWN_TERMS]
    return agents
