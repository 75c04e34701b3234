"""Running a world under a baseline step by step, so that a test can look at every state in which it is asked."""

from __future__ import annotations

from collections.abc import Callable

from builders import minutes

from gangline.baselines.base import CompiledScheduler
from gangline.envs.core.spec import WorldSpec
from gangline.envs.core.types import AGAIN
from gangline.envs.core.world import World


def until(spec: WorldSpec, scheduler: CompiledScheduler, minute: float | None = None) -> World:
    """The world after some minutes under a baseline; None: until nothing happens any more."""
    world = World.from_state(spec)
    world.run(scheduler, None if minute is None else minutes(minute))
    return world


def jobs_in(world: World, *states: str) -> list[str]:
    """Names of the live jobs in one of the states."""
    return sorted(name for name, job in world.dump()["jobs"].items() if job["state"] in states)


def running(world: World) -> list[str]:
    """Names of the running jobs."""
    return jobs_in(world, "running")


def gpus_of(world: World, job: str) -> int:
    """GPUs that a live job holds."""
    return len(world.dump()["jobs"][job]["bound"])


def start_min(world: World) -> dict[str, float]:
    """First starts of the ended jobs, minutes."""
    return {
        e["name"]: e["first_start_ms"] / minutes(1) for e in world.dump()["ended"] if e["first_start_ms"] is not None
    }


def end_min(world: World) -> dict[str, float]:
    """Ends of the ended jobs, minutes."""
    return {e["name"]: e["end_ms"] / minutes(1) for e in world.dump()["ended"]}


def step_through(world: World, scheduler: CompiledScheduler, look: Callable[[World], None]) -> None:
    """Run a world to its end, calling `look` before every single question to the baseline.

    The baseline has a fresh memory at each question; timers that it sets are kept.
    """
    timer_ms: int | None = None
    while True:
        times = [t for t in (world.next_event_ms(), timer_ms) if t is not None]
        if not times:
            return
        world.advance(min(times))
        next_ms: int | None = AGAIN
        while next_ms == AGAIN:
            look(world)
            next_ms = world.cycles(scheduler, 1)
        timer_ms = next_ms if next_ms is not None and next_ms > world.now_ms else None
