"""A trained policy as a `Scheduler`: it goes through `decide(view)`, like any scheduler written in Python.

    scheduler = gangline.baselines.base.build("gangline.agents.scheduler", path="runs/mine/model.zip")
    gangline.baselines.base.run_python(world, scheduler)

It sees a world as the environment would show it to the agent and answers with the transaction that the environment
would make of the action. Tenants speak in rounds, roles in turn, within the decision; one transaction is given at a
time, so that each is planned on what the ones before have left.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from gangline.envs import observation as observations
from gangline.envs.action import decode, mark_touched, plan_action
from gangline.envs.agent import Face, Kind, Role, env_dtype, scratch_dtype
from gangline.envs.core.compiled import entry_point, helper, kernel
from gangline.envs.core.spec import Command
from gangline.envs.core.types import DECISION, NONE, Op, Then
from gangline.envs.core.view import ClusterView
from gangline.envs.core.world import World
from gangline.envs.stepping import look, next_to_speak, show

WAIT = 0
HOUR_MS = 3_600_000


def build(path: str, horizon_h: float = 168.0) -> PolicyScheduler:
    """The scheduler of a model that `train.py agent=ppo`, `ippo` or `mappo` has saved.

    Args:
        path: `model.zip` of a run.
        horizon_h: the policy is told how much of an episode of this length is left.
    """
    from gangline.agents import ppo

    return PolicyScheduler(ppo.load(Path(path)), horizon_h)


class PolicyScheduler:
    """Decides what the policy of a model chooses.

    Attributes:
        name: for tables.
        model: of agents/ppo.py.
    """

    name = "policy"

    def __init__(self, model: Any, horizon_h: float = 168.0) -> None:
        self.model = model
        self._horizon_ms = round(horizon_h * HOUR_MS)
        self._seat: _Seat | None = None

    def begin(self, world: World, begin_ms: int, end_ms: int) -> None:
        """Forget what was before: an episode begins, of a length that the policy is told."""
        self._seat = _Seat(self.model, world, begin_ms, end_ms)

    def decide(self, view: ClusterView) -> Sequence[Sequence[Command]]:
        """One transaction, or none: then it waits for the next event."""
        world = view._world
        if self._seat is None or self._seat.is_of_another(world):
            self.begin(world, world.now_ms, world.now_ms + self._horizon_ms)
        assert self._seat is not None
        return [commands_of(world, self._seat.decision[0])] if self._seat.speaks(world) else []


class Task(IntEnum):
    """What `attend` does."""

    LOOK = 0
    SPEAK = 1


class _Seat:
    """What the environment would keep of the agents in one world: records, what they see, what they say this round."""

    def __init__(self, model: Any, world: World, begin_ms: int, end_ms: int) -> None:
        self._model = model
        self.agents = model.agents
        agent = self.agents[0]
        tenants = len(world.names.tenants)
        count = {Face.SINGLE: 0, Face.TENANTS: tenants, Face.ROLES: len(Role)}[Face(int(agent["face"]))]
        self.envs = np.zeros(1, env_dtype(world.size))
        self.scratch = np.zeros(1, scratch_dtype(world.size))
        self.members = np.zeros((1, count), env_dtype(world.size))
        for records in (self.envs, self.members):
            records["tenant"] = records["role"] = records["rows_of"] = NONE
            records["begin_ms"], records["end_ms"] = begin_ms, end_ms
        if agent["face"] == Face.TENANTS:
            self.members["tenant"] = np.arange(count)
        elif agent["face"] == Face.ROLES:
            self.members["role"] = np.arange(count)
        seats = max(count, 1)
        self.actions = np.zeros((1, seats), np.int64)
        self.observations = np.zeros((1, seats, observations.flat_size(agent)), np.float32)
        self.masks = np.zeros((1, seats, int(agent["num_actions"])), np.int8)
        self.decision = np.zeros(1, DECISION)
        self._records = world.records
        self._now_ms = NONE
        self._is_in_round = False
        self._attend: Any = None

    def is_of_another(self, world: World) -> bool:
        """Whether it was made for another world."""
        return world.records is not self._records and not np.shares_memory(world.records, self._records)

    def speaks(self, world: World) -> bool:
        """Whether an agent has said something, which then is in `decision`; else all wait for time to pass."""
        if world.now_ms != self._now_ms:
            self._now_ms, self._is_in_round = world.now_ms, False
            self.envs["commands_here"] = 0
        while True:
            if not self._is_in_round:
                if not self._do(Task.LOOK) and self.envs[0]["turn"] == 0:
                    return False
                self._choose()
                self._is_in_round = True
            if self._do(Task.SPEAK):
                return True
            self._is_in_round = False
            if self._round_is_idle():
                return False

    def _choose(self) -> None:
        """What everybody says this round; those without a choice wait."""
        choice = self.masks[0].sum(axis=1) > 1
        self.actions[:] = WAIT
        if choice.any():
            self.actions[0, choice], _ = self._model.predict(
                self.observations[0, choice], action_masks=self.masks[0, choice]
            )
        self.members["has_spoken"] = self.envs["has_spoken"] = False
        face, env = self.agents[0]["face"], self.envs[0]
        if face == Face.ROLES:
            env["somebody_acts"] |= self.actions[0, env["turn"]] != WAIT
        else:
            env["somebody_acts"] = (self.actions != WAIT).any()
            env["commands_here"] += env["somebody_acts"]

    def _round_is_idle(self) -> bool:
        """End a round, of roles a turn; True if nobody has done anything in it."""
        env = self.envs[0]
        if self.agents[0]["face"] == Face.ROLES:
            env["turn"] = (env["turn"] + 1) % len(Role)
            if env["turn"] > 0:
                return False
            env["commands_here"] += env["somebody_acts"]
        idle = not env["somebody_acts"]
        env["somebody_acts"] = False
        env["num_rounds"] += 1
        return idle

    def _do(self, task: Task) -> bool:
        arguments = (
            int(task),
            self._records,
            self.envs,
            self.members,
            self.agents,
            self.actions,
            self.observations,
            self.masks,
            self.decision,
            self.scratch,
        )
        if self._attend is None:
            self._attend = entry_point(attend, *arguments)
        return bool(self._attend(*arguments))


@kernel
def attend(
    task: int,
    worlds: Any,
    envs: Any,
    members: Any,
    agents: Any,
    actions: Any,
    observations: Any,
    masks: Any,
    out: Any,
    scratch: Any,
) -> bool:
    """LOOK: write what everybody sees and may do; True if anybody has a choice. SPEAK: plan what the next says.

    SPEAK leaves a transaction in `out` and returns True, or returns False when nobody is left in the round.
    Arrays as those of `envs/stepping.drive`, for one environment.
    """
    w = worlds[0]
    env = envs[0]
    agent = agents[0]
    if task == Task.LOOK:
        has_choice = look(w, env, members[0], agent, scratch[0], masks[0])
        show(w, env, members[0], agent, scratch[0], observations[0])
        return has_choice
    if agent.face == Face.SINGLE:
        return say(w, env, env, agent, actions[0, 0], out[0])
    if agent.face == Face.ROLES:
        return say(w, env, members[0, env.turn], agent, actions[0, env.turn], out[0])
    while True:
        k = next_to_speak(w, env, members[0], agent, actions[0])
        if k == NONE:
            return False
        if say(w, env, members[0, k], agent, actions[0, k], out[0]):
            return True


@helper
def say(w: Any, env: Any, viewer: Any, agent: Any, action: int, out: Any) -> bool:
    """Plan an action as one transaction; False if it is `wait`, not legal any more, said before, or lets a job in."""
    if viewer.has_spoken:
        return False
    viewer.has_spoken = True
    kind, row, rule = decode(agent, action)
    if kind == Kind.WAIT or kind == NONE:
        return False
    if agent.face == Face.ROLES and kind != Kind.PREEMPT:
        w.jobs[viewer.queue_jobs[row]].is_let_in = kind == Kind.ADMIT
        if kind == Kind.ADMIT:
            return False
    out.num_commands = 0
    out.num_transactions = 0
    if not (
        env.commands_here <= agent.max_commands_per_instant and plan_action(w, viewer, agent, kind, row, rule, out)
    ):
        return False
    mark_touched(w, out)
    return True


def commands_of(world: World, decision: np.void) -> list[Command]:
    """The commands of a decision of one transaction, by names."""
    names = world.names
    found = []
    for record in decision["commands"][: int(decision["num_commands"])]:
        op = Op(int(record["op"]))
        node, pods = int(record["node"]), int(record["pods"])
        found.append(
            Command(
                op=op.name.lower(),  # type: ignore[arg-type]
                job=world.job_name(int(world.record["jobs"][int(record["job"])]["row"])),
                pod_set=None if record["pod_set"] == NONE else int(record["pod_set"]),
                node=names.nodes[node] if node != NONE and op in (Op.PLACE, Op.EVICT, Op.RESERVE) else None,
                pods=pods if pods != NONE and op in (Op.ADMIT, Op.PLACE, Op.EVICT) else None,
                flavors={
                    names.resources[r]: names.flavors[int(f)]
                    for r, f in enumerate(record["flavor"][: len(names.resources)])
                    if op == Op.ADMIT and f != NONE
                },
                beyond_quota=bool(record["beyond_quota"]),
                whole_node=bool(record["whole_node"]),
                gpu=int(record["gpu"]) if op == Op.PLACE and record["gpu"] != NONE else None,
                grace_ms=int(record["grace_ms"]) if op == Op.EVICT else 0,
                then=Then(int(record["then"])).name.lower() if op == Op.EVICT else "requeue",  # type: ignore[arg-type]
                until_ms=int(record["until_ms"]) if op in (Op.HOLD, Op.RESERVE) else 0,
                amounts={
                    names.resources[r]: int(a)
                    for r, a in enumerate(record["amount"][: len(names.resources)])
                    if op == Op.RESERVE and a
                },
            )
        )
    return found
