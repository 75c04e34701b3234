"""Comparing schedulers: each plays the same held-out episodes, and the metrics are read from the same simulator.

An episode is fixed by (trace seed, start, load): same jobs, same warm start, whoever schedules. A baseline goes
through the compiled door, a policy through the environment's step; both act on the same kind of record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np

from gangline.agents.batches import SeveralAgents, batch_of
from gangline.baselines.base import CompiledScheduler, Scheduler, run_python
from gangline.envs import metrics
from gangline.envs.cluster_env import Batch
from gangline.envs.config import WorldConfig
from gangline.envs.core.driver import run_scheduler
from gangline.envs.core.types import NEVER
from gangline.envs.recording import Recording
from gangline.envs.worlds import Episode

WAIT = 0


class Policy(Protocol):
    """Something that chooses a flat action from a flat observation and a mask."""

    def act(self, observation: np.ndarray, mask: np.ndarray) -> int:
        """The action to take."""


@dataclass(frozen=True)
class GreedyPolicy:
    """A trained MaskablePPO model, deterministic: argmax of the legal logits, ties to the lowest index."""

    model: Any

    def act(self, observation: np.ndarray, mask: np.ndarray) -> int:
        """The most probable legal action."""
        action, _ = self.model.predict(observation, deterministic=True, action_masks=mask.astype(bool))
        return int(action)


@dataclass(frozen=True)
class SeveralPolicy:
    """A trained model of agents/ppo.py that acts for tenants or roles, each from what that agent sees."""

    model: Any

    def batch(self, config: WorldConfig) -> SeveralAgents:
        """An environment of the kind that it acts in, with a log."""
        return batch_of(config, 1, self.model.who, keep_log=True)

    def act(self, batch: SeveralAgents) -> None:
        """Write the actions of those that have a choice; the others wait."""
        batch.actions[:] = WAIT
        choice = batch.masks[0].sum(axis=1) > 1
        if choice.any():
            seen, masks = batch.observations[0][choice], batch.masks[0][choice]
            batch.actions[0, choice], _ = self.model.predict(seen, action_masks=masks)


Actor = CompiledScheduler | Scheduler | Policy | SeveralPolicy


def policy_of(model: Any) -> GreedyPolicy | SeveralPolicy:
    """How a trained model takes part in a comparison."""
    return GreedyPolicy(model) if getattr(model, "who", "cluster") == "cluster" else SeveralPolicy(model)


@dataclass(frozen=True)
class Run:
    """What one scheduler did in one episode."""

    scheduler: str
    trace: int
    load: float | None
    report: metrics.Report


def play(config: WorldConfig, actor: Actor, trace: int, options: Mapping[str, Any]) -> metrics.Report:
    """One episode of `config` under a scheduler or a policy, from the first decision to the horizon."""
    return play_on(stage_for(config, actor), actor, trace, options)[0]


def stage_for(config: WorldConfig, actor: Actor) -> Any:
    """A batch of one, with a log, in which an actor can act."""
    return actor.batch(config) if isinstance(actor, SeveralPolicy) else Batch(config, 1, keep_log=True)


def batch_behind(stage: Any) -> Batch:
    """The batch that holds the worlds of a stage."""
    batch: Batch = getattr(stage, "batch", stage)
    return batch


def play_on(batch: Any, actor: Actor, trace: int, options: Mapping[str, Any]) -> tuple[metrics.Report, float | None]:
    """The same on a batch that `stage_for` has made; returns the report and the measured load."""
    inner = batch_behind(batch)
    episode = batch.reset_one(0, trace, {"trace": trace, **options})
    inner.warm(0)
    start = metrics.snapshot(inner.world_of(0))
    if isinstance(actor, CompiledScheduler):
        run_baseline(inner, actor)
    elif hasattr(actor, "decide"):
        _run_python(inner, cast(Scheduler, actor))
    else:
        batch.reset_one(0, trace, {"trace": trace, **options})
        batch.begin(0, 1)  # goes on to the first choice: what is measured begins before it, as for a baseline
        _run_policy(batch, inner, actor)
    return metrics.measure(inner.world_of(0), start), episode.load


@dataclass(frozen=True)
class Recorded:
    """A run with its recording.

    Attributes:
        report: every metric over [first decision, horizon]; jobs as of the end of the drain.
        window: what they are computed from.
        recording: from the first decision to the end of the drain; closed.
        decision_s: (n,) wall time of each instant of a baseline, or of each decision of a policy.
        episode: the jobs.
    """

    report: metrics.Report
    window: metrics.Window
    recording: Recording
    decision_s: np.ndarray
    episode: Episode


def play_recorded(
    stage: Any,
    actor: CompiledScheduler | Policy | SeveralPolicy,
    trace: int,
    options: Mapping[str, Any],
    *,
    drain_ms: int = 0,
) -> Recorded:
    """One episode on a stage of `stage_for`, every instant recorded; then a drain of at most `drain_ms`.

    Arrivals stop at the horizon, and so do the integrals: the drain only lets jobs end. A policy needs a batch whose
    configuration does not skip forced instants (`recordable`).
    """
    batch = batch_behind(stage)
    episode = stage.reset_one(0, trace, {"trace": trace, **options})
    end_ms = int(batch.ends[0])
    is_baseline = isinstance(actor, CompiledScheduler)
    if is_baseline:
        batch.warm(0)
    else:
        stage.begin(0, 1)
    world = batch.world_of(0)
    start = metrics.snapshot(world)
    recording = Recording(world)
    decision_s: list[float] = []
    stop = None
    for until_ms in (end_ms, None if end_ms >= NEVER else end_ms + drain_ms):
        if until_ms is None or (stop is not None and drain_ms <= 0):
            continue
        if isinstance(actor, CompiledScheduler):
            recording.run(actor, None if until_ms >= NEVER else until_ms, take_times=True)
        else:
            _run_recorded(stage, actor, recording, until_ms, decision_s)
        stop = metrics.snapshot(world) if stop is None else stop
    recording.close()
    window = metrics.window_of(world, start, stop, recording)
    report = metrics.report_of(window, world.names.tenants)
    return Recorded(report, window, recording, np.array(recording.instant_s if is_baseline else decision_s), episode)


def recordable(config: WorldConfig) -> WorldConfig:
    """The same world, handing back every instant, also those without a choice, so that each can be noted."""
    return replace(config, time=replace(config.time, skip_forced=False))


def _run_recorded(
    stage: Any, policy: Policy | SeveralPolicy, recording: Recording, until_ms: int, seconds: list[float]
) -> None:
    """Let a policy play to a time on the world's clock, and note each instant."""
    env = batch_behind(stage).envs[0]
    env["end_ms"] = until_ms
    env["truncated"] = False
    while not (env["terminated"] or env["truncated"]):
        stage.actions[0] = WAIT
        if (stage.masks[0].sum(axis=-1, dtype=np.int64) > 1).any():
            began = time.perf_counter()
            _act(stage, policy)
            seconds.append(time.perf_counter() - began)
        stage.step(0, 1)
        recording.note()
    recording.world.check()


def _act(stage: Any, policy: Policy | SeveralPolicy) -> None:
    if isinstance(policy, SeveralPolicy):
        policy.act(stage)
    else:
        stage.actions[0] = policy.act(stage.observations[0], stage.masks[0])


def run_baseline(batch: Batch, scheduler: CompiledScheduler) -> None:
    """Let a compiled scheduler run a warmed-up batch of one to its horizon."""
    world = batch.world_of(0)
    end_ms = int(batch.ends[0])
    run_scheduler(
        batch.size,
        world.records,
        0,
        scheduler.compiled(batch.size),
        scheduler.private_for(world),
        world.decision,
        *world.tables,
        NEVER if end_ms >= NEVER else end_ms,
    )
    world.check()


def _run_python(batch: Batch, scheduler: Scheduler) -> None:
    """Let a scheduler written in Python run a warmed-up batch of one to its horizon."""
    world = batch.world_of(0)
    begin_ms, end_ms = int(batch.begins[0]), int(batch.ends[0])
    if hasattr(scheduler, "begin"):
        scheduler.begin(world, begin_ms, end_ms)
    run_python(world, scheduler, None if end_ms >= NEVER else end_ms)


def _run_policy(batch: Any, inner: Batch, policy: Policy | SeveralPolicy) -> None:
    env = inner.envs[0]
    while not (env["terminated"] or env["truncated"]):
        _act(batch, policy)
        batch.step(0, 1)


def compare(
    config: WorldConfig,
    actors: Mapping[str, Actor],
    traces: Sequence[int],
    options: Mapping[str, Any] | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Iterator[Run]:
    """Every actor on every trace, trace by trace."""
    stages: dict[str, Any] = {}
    for trace in traces:
        for name, actor in actors.items():
            if progress is not None:
                progress(name, trace)
            kind = actor.model.who if isinstance(actor, SeveralPolicy) else "cluster"
            if kind not in stages:
                stages[kind] = stage_for(config, actor)
            report, load = play_on(stages[kind], actor, trace, options or {})
            yield Run(name, trace, load, report)
