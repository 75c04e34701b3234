"""What happened in a run, instant by instant: who held which GPU, what became of each job, the story in words.

`follow(world, scheduler, until_ms, names)` runs a world to a time and notes every instant at which something happened,
or the state at equal distances where that would be too much. The scheduler keeps its memory between the instants, so
that the run is the one that `World.run` alone would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gangline.baselines.base import CompiledScheduler
from gangline.envs.core.spec import HOUR_MS
from gangline.envs.core.types import NONE, ONE_GPU, JobState, Outcome, PodState, SizeClass
from gangline.envs.core.world import World

FREE = -1
NOT_THERE, WAITS, STUCK, RUNS, ENDED = range(5)  # phases of a job
_PHASE = {JobState.PARTIAL: STUCK, JobState.RUNNING: RUNS, JobState.SUSPENDED: STUCK, JobState.RELEASING: STUCK}
_PHASE_OF_STATE = np.array([_PHASE.get(JobState(s), WAITS) for s in range(max(JobState) + 1)], np.int8)


@dataclass
class Timeline:
    """A run, as noted at each of its instants; what an instant says holds until the next.

    Attributes:
        names: of the jobs, by row.
        tenants: (num_jobs,) int32.
        gpus: (num_jobs,) float, GPUs that each job asks for.
        pods: (num_jobs,) int, pods that each job asks for.
        times_ms: instants.
        holders: for each instant (num_gpus,) int32: row of the job that holds each GPU, or FREE.
        phases: for each instant (num_jobs,) int8.
        story: (time in ms, row, what happened).
        end_ms: end of the run.
    """

    names: Sequence[str]
    tenants: np.ndarray
    gpus: np.ndarray
    pods: np.ndarray
    times_ms: list[int] = field(default_factory=list)
    holders: list[np.ndarray] = field(default_factory=list)
    phases: list[np.ndarray] = field(default_factory=list)
    story: list[tuple[int, int, str]] = field(default_factory=list)
    end_ms: int = 0

    def at(self, time_ms: int) -> int:
        """Index of the instant that holds at a time."""
        return int(np.searchsorted(self.times_ms, time_ms, side="right")) - 1

    def held(self, time_ms: int) -> np.ndarray:
        """(num_tenants,) GPUs that each tenant holds at a time, whole devices."""
        holders = self.holders[self.at(time_ms)]
        return np.bincount(self.tenants[holders[holders >= 0]], minlength=int(self.tenants.max()) + 1)

    def spans(self, row: int, *phases: int) -> list[tuple[float, float]]:
        """(begin, end) in hours of the times that a job spent in one of the phases."""
        is_in = np.isin([phase[row] for phase in self.phases], phases)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], is_in, [False]]).astype(np.int8)))
        times = [*self.times_ms, self.end_ms]
        return [(times[a] / HOUR_MS, times[b] / HOUR_MS) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def follow(
    world: World,
    scheduler: CompiledScheduler,
    until_ms: int | None,
    names: Sequence[str],
    *,
    every_ms: int | None = None,
) -> Timeline:
    """Run a fresh world to a time (None: until nothing happens any more) and note what happens.

    Args:
        world: with a trace.
        scheduler: at its door.
        until_ms: end.
        names: of the jobs, by row.
        every_ms: note the state at these distances only, without a story; needs an end. None = every instant.
    """
    assert world.trace is not None
    trace = world.trace
    totals = np.concatenate([[0], np.cumsum(trace.pod_sets["count"].astype(np.int64))])
    first = trace.rows["first_pod_set"]
    timeline = Timeline(
        names=names,
        tenants=trace.rows["tenant"].astype(np.int64),
        gpus=trace.gpus() / ONE_GPU,
        pods=totals[first + trace.rows["num_pod_sets"]] - totals[first],
    )
    door = _OneMemory(scheduler, world)
    before = _Jobs.of(world, timeline)
    while (at_ms := world.next_event_ms()) is not None and (until_ms is None or at_ms <= until_ms):
        if every_ms is not None:
            at_ms = world.now_ms // every_ms * every_ms + every_ms if timeline.times_ms else at_ms
            if until_ms is None or at_ms > until_ms:
                break
        world.run(door, at_ms)
        now = _Jobs.of(world, timeline)
        if every_ms is None:
            timeline.story += now.since(before, timeline, world.now_ms)
        timeline.times_ms.append(world.now_ms)
        timeline.holders.append(_gpu_holders(world))
        timeline.phases.append(now.phase)
        before = now
    if until_ms is not None:
        world.run(door, until_ms)
    timeline.end_ms = world.now_ms
    return timeline


class _OneMemory:
    """A scheduler at the door that keeps its private bytes from one call of `World.run` to the next."""

    def __init__(self, scheduler: CompiledScheduler, world: World) -> None:
        self._scheduler = scheduler
        self._private = scheduler.private_for(world)

    def compiled(self, size: SizeClass) -> Any:
        """The scheduler's own."""
        return self._scheduler.compiled(size)

    def private_for(self, world: World) -> np.ndarray:
        """The bytes as the last call left them."""
        return self._private


def _gpu_holders(world: World) -> np.ndarray:
    """(num_gpus,) int32: row of the job that holds each GPU (the last bound part of it), or FREE; node by node."""
    w = world.record
    first = np.concatenate([[0], np.cumsum(w["nodes"]["num_gpus"][: int(w["num_nodes"])])])
    holders = np.full(int(first[-1]), FREE, np.int32)
    pods = w["pods"][: int(w["pods_used"])]
    live = pods[np.isin(pods["state"], (PodState.BOUND, PodState.RELEASING))]
    rows = w["jobs"]["row"][live["job"]]
    for gpu in range(16):
        holds = (live["gpu_mask"] >> gpu & 1).astype(bool)
        holders[first[live["node"][holds]] + gpu] = rows[holds]
    return holders


@dataclass
class _Jobs:
    """Jobs at an instant, by row: (num_jobs,) each."""

    phase: np.ndarray  # int8
    bound: np.ndarray  # pods
    preemptions: np.ndarray
    lost: np.ndarray  # GPU-hours
    hang: np.ndarray  # GPU-hours
    outcome: np.ndarray  # of those that have ended

    @classmethod
    def of(cls, world: World, timeline: Timeline) -> _Jobs:
        """As they are now."""
        world.refresh()
        count = len(timeline.names)
        jobs = cls(*(np.zeros(count, kind) for kind in (np.int8, int, int, float, float, int)))
        w = world.record
        live = w["jobs"][: int(w["jobs_used"])]
        live = live[live["state"] != JobState.FREE]
        ended = world.ended()
        for rows, table in ((live["row"], live), (ended["row"], ended)):
            jobs.preemptions[rows] = table["preemptions"]
        for name in ("lost", "hang"):
            getattr(jobs, name)[live["row"]] = live["gpu_time"][name] / (ONE_GPU * HOUR_MS)
            getattr(jobs, name)[ended["row"]] = ended[name] / (ONE_GPU * HOUR_MS)
        jobs.phase[live["row"]] = np.where(live["is_hung"], STUCK, _PHASE_OF_STATE[live["state"]])
        jobs.phase[ended["row"]] = ENDED
        jobs.outcome[ended["row"]] = ended["outcome"]
        pods = w["pods"][: int(w["pods_used"])]
        slots = pods["job"][pods["state"] == PodState.BOUND]
        np.add.at(jobs.bound, w["jobs"]["row"][slots[slots != NONE]], 1)
        return jobs

    def since(self, before: _Jobs, timeline: Timeline, now_ms: int) -> list[tuple[int, int, str]]:
        """What has happened to each job, in words."""
        changed = np.flatnonzero(
            (self.phase != before.phase) | (self.bound != before.bound) | (self.preemptions != before.preemptions)
        )
        told = [(now_ms, int(row), self._told(before, timeline, int(row))) for row in changed]
        return sorted((line for line in told if line[2]), key=lambda line: _order(line[2]))

    def _told(self, before: _Jobs, timeline: Timeline, row: int) -> str:
        was, now = before.phase[row], self.phase[row]
        pods, gpus, bound = int(timeline.pods[row]), timeline.gpus[row], int(self.bound[row])
        words = ["comes"] if was == NOT_THERE else []
        if self.preemptions[row] > before.preemptions[row] and now != ENDED:
            lost = self.lost[row] - before.lost[row]
            words.append(
                f"is stopped, {lost:.1f} GPU-hours of its work are lost" if lost else "is stopped, no work is lost"
            )
        if now == ENDED and was != ENDED:
            end = Outcome(int(self.outcome[row]))
            words.append("ends" if end == Outcome.DONE else f"ends ({end.name.lower()})")
        elif now == RUNS and was != RUNS:
            hung = self.hang[row]
            wasted = (
                f"; its pods have held GPUs without progress for {hung:.1f} GPU-hours" if was == STUCK and hung else ""
            )
            words.append(f"starts on {gpus:g} GPUs{wasted}")
        elif now == STUCK and bound and bound != before.bound[row]:
            words.append(f"has {bound} of its {pods} pods: they hold GPUs and make no progress")
        elif now == WAITS and was != WAITS:
            if was in (STUCK, RUNS) and not words:
                words.append("gives its GPUs back")
            words.append("waits")
        elif now == RUNS and bound != before.bound[row] and pods > 1:
            words.append(f"has {bound} of its {pods} pods")
        return ", ".join(words)


def _order(text: str) -> int:
    """What makes room is told before what fills it."""
    return 0 if text.startswith("ends") else 1 if text.startswith("is stopped") else 2
