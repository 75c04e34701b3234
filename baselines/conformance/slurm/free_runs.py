"""Histories from their inputs alone: order of starts, victims, start times, nodes.

The real system's latencies are part of such a run: a job's end is seen 0.1 s late, the main pass comes with the next
turn of a loop that wakes once a second, the backfill pass each bf_interval. Where in their periods these two clocks
stood is not recorded: one of a few phases must fit the whole history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from gangline.baselines.conformance.cases import Case, Facts
from gangline.baselines.conformance.slurm.replay import Replay
from gangline.baselines.conformance.slurm.worlds import SlurmWorld, slurm_world
from gangline.baselines.slurm.config import SlurmConfig
from gangline.envs.core.spec import JobSpec

SECOND_MS = 1000
SEEN_LATE_MS = 100
LOOP_S = 1
LOOP_PHASES_MS = (0, 250, 500, 750)
BACKFILL_PHASES = 6
NO_ORDER_S = 2.0  # starts nearer than this have no order
CLOCK_S = 5.0
BACKFILL_CLOCK_S = 8.0  # of starts that the record gives to backfill, as in recorded runs: 3 s and 5 s
TAIL_S = 10.0


def is_comparable(case: Case) -> bool:
    """Whether a free run was found to be a fact of the case, not chance, in both of its recorded runs."""
    return all(case.get("free_run_reproduced", (False,)))


def check_free_run(facts: Facts, about: Case, case: Case) -> None:
    """Add what differs in the phase that fits best; nothing if one fits."""
    world, config = slurm_world(about, case)
    best: list[tuple[str, Any, Any]] | None = None
    for phases in clock_phases(config):
        found = differences(case, free_run(SlurmWorld(world, config), case, phases), phases.loop_ms / SECOND_MS)
        if best is None or len(found) < len(best):
            best = found
        if not best:
            return
    for fact, want, actual in best or ():
        facts.check(f"free run: {fact}", want, actual)


class Phases(NamedTuple):
    """How far the clocks of the loop and of backfill are from the recorded second 0."""

    loop_ms: int
    backfill_ms: int


def clock_phases(config: SlurmConfig) -> Iterator[Phases]:
    """Those that are tried: four of the loop, six of backfill."""
    interval_ms = config.scheduler.bf_interval_s * SECOND_MS
    for i in range(BACKFILL_PHASES):
        for loop_ms in LOOP_PHASES_MS:
            yield Phases(loop_ms, i * interval_ms // BACKFILL_PHASES)


def free_run(case_world: SlurmWorld, case: Case, phases: Phases) -> Replay:
    """The case from its inputs, all times later by the loop's phase."""
    phase_ms = phases.loop_ms
    spec, config = case_world
    config = dataclasses.replace(config, scheduler=dataclasses.replace(config.scheduler, sched_loop_s=LOOP_S))
    spec = dataclasses.replace(
        spec,
        jobs=[later(job, phase_ms) for job in spec.jobs],
        changes=[dataclasses.replace(change, time_ms=change.time_ms + phase_ms) for change in spec.changes],
        options=dataclasses.replace(spec.options, completing_ms=SEEN_LATE_MS),
    )
    replay = Replay(spec, config)
    replay.own["bf_phase_ms"] = phases.backfill_ms
    replay.own["epoch_ms"] = case.get("t0_mod_30", 0) * SECOND_MS - phase_ms
    if case["ticks"]:
        replay.set_next_tick(case["ticks"][0] + phase_ms / SECOND_MS)
    replay.run_until(last_start_s(case) + TAIL_S + phase_ms / SECOND_MS)
    return replay


def later(job: JobSpec, by_ms: int) -> JobSpec:
    """A job with its times moved."""
    eligible_ms = None if job.eligible_ms is None else job.eligible_ms + by_ms
    return dataclasses.replace(job, submit_ms=job.submit_ms + by_ms, eligible_ms=eligible_ms)


def last_start_s(case: Case) -> float:
    """When the last compared run starts."""
    return max(start_s for _, _, start_s, *_ in recorded(case))


def recorded(case: Case) -> list[tuple[str, int, float, list[str] | None, float]]:
    """(label, number of its run, start, nodes or None, tolerance) of each recorded start, in order."""
    until_s = case.get("compare_until", float("inf"))
    loose = {(entry["label"], entry["run"]) for entry in case["nodes_not_exact"]}
    exact = all(case.get("free_run_nodes_reproduced", (False,)))
    found = [
        (
            label,
            number,
            run["start"],
            sorted(run["nodes"]) if exact and (label, number) not in loose else None,
            BACKFILL_CLOCK_S if run.get("scheduler") == "Backfill" else CLOCK_S,
        )
        for label, observed in case["observed"].items()
        for number, run in enumerate(observed.get("runs", ()))
        if run["start"] < until_s
    ]
    return sorted(found, key=lambda run: run[2])


def differences(case: Case, replay: Replay, shift_s: float) -> list[tuple[str, Any, Any]]:
    """(fact, expected, actual) where a run is not what was recorded."""
    found: list[tuple[str, Any, Any]] = []
    want = recorded(case)
    ours: dict[tuple[str, int], float] = {}
    for label, number, start_s, nodes, tolerance_s in want:
        runs = replay.runs[label]
        actual = runs[number].start_s - shift_s if number < len(runs) else None
        if actual is None or abs(actual - start_s) > tolerance_s:
            found.append((f"start {number + 1} of {label}", start_s, actual))
        if actual is None:
            continue
        ours[label, number] = actual
        if nodes is not None and sorted(runs[number].nodes) != nodes:
            found.append((f"nodes of start {number + 1} of {label}", nodes, sorted(runs[number].nodes)))
    for i, (a, n, before_s, *_) in enumerate(want):
        for b, m, after_s, *_ in want[i + 1 :]:
            if after_s - before_s > NO_ORDER_S and (a, n) in ours and (b, m) in ours and ours[a, n] > ours[b, m]:
                found.append((f"order of {a} and {b}", (before_s, after_s), (ours[a, n], ours[b, m])))
    until_s = case.get("compare_until", float("inf"))
    victims = [victim["label"] for victim in case["facts"]["victims"] if victim["at"] < until_s]
    actual_victims = [v.label for v in replay.victims if v.at_s - shift_s < min(until_s, last_start_s(case) + CLOCK_S)]
    if actual_victims != victims:
        found.append(("victims", victims, actual_victims))
    return found
