"""EASY backfill: the head's reserved start holds, and others use what it leaves.

The reservation is computed here a second time, from names and plain numbers, node by node.
"""

from __future__ import annotations

import random
from itertools import groupby

import pytest
from builders import gang, minutes, nodes, world

from baselines.stepping import start_min, step_through, until
from gangline.baselines import base
from gangline.envs.core.spec import JobSpec, WorldSpec
from gangline.envs.core.types import NEVER, JobState
from gangline.envs.core.world import World

NUM_WORLDS = 40
EASY = base.build("easy")


def claims(job_min: float) -> int:
    """A walltime claim, minutes."""
    return minutes(job_min)


# ---------------------------------------------------------------------------------------------------------------
# Stories
# ---------------------------------------------------------------------------------------------------------------


def test_small_jobs_with_true_short_claims_backfill() -> None:
    # n0: a a a a . . . .   until 60; the head wants all 8 then
    spec = world(
        nodes(8),
        [
            gang("a", 4, work_min=60, claim_ms=claims(60)),
            gang("head", 8, work_min=10, claim_ms=claims(10), submit_min=1),
            gang("too_long", 2, work_min=60, claim_ms=claims(60), submit_min=2),
            gang("short", 2, work_min=30, claim_ms=claims(30), submit_min=3),
            gang("just", 2, work_min=56, claim_ms=claims(56), submit_min=4),
        ],
    )
    want_start = {"a": 0, "head": 60, "short": 3, "just": 4, "too_long": 70}
    assert start_min(until(spec, EASY)) == want_start


def test_a_job_without_a_claim_counts_as_endless_not_as_0() -> None:
    spec = world(
        nodes(8),
        [
            gang("a", 4, work_min=60, claim_ms=claims(60)),
            gang("head", 8, work_min=10, submit_min=1),
            gang("no_claim", 4, work_min=5, submit_min=2),  # would be done by minute 60, but nobody knows
        ],
    )
    assert start_min(until(spec, EASY)) == {"a": 0, "head": 60, "no_claim": 70}


def test_a_head_behind_a_running_job_without_a_claim_waits_until_it_ends() -> None:
    spec = world(
        nodes(8),
        [
            gang("endless", 4, work_min=60),
            gang("head", 8, work_min=10, submit_min=1),
            gang("short", 4, work_min=20, claim_ms=claims(20), submit_min=2),
        ],
    )
    assert start_min(until(spec, EASY)) == {"endless": 0, "short": 2, "head": 60}


def test_a_long_job_backfills_onto_nodes_that_the_head_does_not_need() -> None:
    # n0: a a a a   n1: b b . .   n2: . .   the head wants four GPUs on one node: n0 at minute 30
    spec = world(
        nodes(4, 4, 2),
        [
            gang("a", 1, gpus=4, work_min=30, claim_ms=claims(30)),
            gang("b", 1, gpus=2, work_min=90, claim_ms=claims(90)),
            gang("c", 1, gpus=2, work_min=90, claim_ms=claims(90)),
            gang("head", 1, gpus=4, work_min=10, claim_ms=claims(10), submit_min=1),
            gang("long", 1, gpus=2, work_min=900, claim_ms=claims(900), submit_min=2),
        ],
    )
    assert start_min(until(spec, EASY)) == {"a": 0, "b": 0, "c": 0, "long": 2, "head": 30}


def test_jobs_that_outrun_their_claims_delay_the_head_but_do_not_stop_backfill() -> None:
    # n0: a a a a . . . .   claims 10, runs 60; the head may start at any moment from 10 on
    spec = world(
        nodes(8, 2),
        [
            gang("a", 4, work_min=60, claim_ms=claims(10)),
            gang("head", 1, gpus=8, work_min=10, claim_ms=claims(10), submit_min=1),
            gang("beside", 2, work_min=30, claim_ms=claims(30), submit_min=20),  # fits on n1
        ],
    )
    assert start_min(until(spec, EASY))["beside"] == 20
    assert start_min(until(spec, EASY))["head"] == 60


def test_endless_small_jobs_do_not_starve_a_large_one() -> None:
    """gpu-choochoo, flux-sched#197: full cluster, a large head, a small job every four minutes for ever."""
    small = [gang(f"s{i}", 1, work_min=35 + i % 7, claim_ms=claims(35 + i % 7), submit_min=4 * i) for i in range(100)]
    head = gang("head", 8, work_min=10, claim_ms=claims(10), submit_min=50)
    spec = world(nodes(8), sorted([*small, head], key=lambda j: j.submit_ms))
    assert start_min(until(spec, EASY))["head"] < 50 + 2 * 41  # those ahead start, and end
    assert start_min(until(spec, base.build("greedy_fifo")))["head"] > 400


# ---------------------------------------------------------------------------------------------------------------
# The reservation holds in random worlds
# ---------------------------------------------------------------------------------------------------------------


def random_jobs(rng: random.Random, sizes: list[int], exact: bool) -> list[JobSpec]:
    """Gangs that fit on these nodes when empty; claims are true, or at least never too short."""
    jobs = []
    at = 0.0
    for i in range(40):
        gpus = min(rng.choice([1, 1, 1, 2, 2, 4, 8]), max(sizes))
        most = sum(s // gpus for s in sizes)
        workers = min(most, rng.choice([1, 1, 2, 3, most]))
        at += rng.choice([0, 0, 1, 5, 20])
        work_min = rng.choice([1, 5, 10, 30, 60, 61, 240])
        claim_min = work_min if exact else work_min * rng.choice([1, 1, 1.5, 4])
        jobs.append(gang(f"j{i}", workers, gpus=gpus, work_min=work_min, claim_ms=claims(claim_min), submit_min=at))
    return jobs


def random_spec(seed: int, exact: bool = True) -> WorldSpec:
    """Nodes of several sizes under a load that makes jobs wait."""
    rng = random.Random(seed)
    sizes = [rng.choice([1, 2, 4, 8]) for _ in range(rng.randint(1, 6))]
    return world(nodes(*sizes), random_jobs(rng, sizes, exact))


def head_of(world: World) -> int | None:
    """Slot of the oldest queued job."""
    jobs = world.record["jobs"][: int(world.record["jobs_used"])]
    queued = [
        (int(j["submit_ms"]), int(j["row"]), slot) for slot, j in enumerate(jobs) if j["state"] == JobState.QUEUED
    ]
    return min(queued)[2] if queued else None


def reserved_start_ms(world: World, slot: int) -> int | None:
    """When a gang fits at the earliest if running jobs end as they claim; now, if it fits now; None = never."""
    record = world.record
    job = record["jobs"][slot]
    (pod_set,) = world.pod_sets_of(job)
    gpus, workers = int(pod_set["request"][0]), int(pod_set["count"])
    free = [int(n["idle"][0]) for n in record["nodes"][: int(record["num_nodes"])]]

    def fits() -> bool:
        return sum(f // gpus for f in free) >= workers

    if fits():
        return world.now_ms
    ends = []
    for other in record["jobs"][: int(record["jobs_used"])]:
        if other["state"] == JobState.RUNNING and other["claim_ms"] < NEVER:
            ends.append((max(world.now_ms, int(other["start_ms"] + other["claim_ms"])), other))
    ends.sort(key=lambda e: e[0])
    for end_ms, leaving in groupby(ends, key=lambda e: e[0]):
        for _, other in leaving:
            for pod in world.pods_of(other):
                free[int(pod["node"])] += int(pod["held"][0])
        if fits():
            return end_ms
    return None


def promises(world: World, scheduler: base.CompiledScheduler) -> dict[str, int]:
    """Run a world; for each job, its reserved start when it first was the head."""
    promised: dict[str, int] = {}

    def look(world: World) -> None:
        head = head_of(world)
        if head is not None:
            reserved_ms = reserved_start_ms(world, head)
            if reserved_ms is not None:
                promised.setdefault(world.job_name(int(world.record["jobs"][head]["row"])), reserved_ms)

    step_through(world, scheduler, look)
    return promised


def delays_ms(seed: int, scheduler: base.CompiledScheduler, exact: bool = True) -> list[int]:
    """By how much each head started after its promise, in a random world."""
    stepped = World.from_state(random_spec(seed, exact))
    promised = promises(stepped, scheduler)
    starts = {e["name"]: e["first_start_ms"] for e in stepped.dump()["ended"]}
    assert len(starts) == stepped.trace.num_jobs
    return [starts[name] - promised_ms for name, promised_ms in promised.items()]


@pytest.mark.parametrize("exact", [True, False], ids=["true claims", "claims too long"])
def test_the_head_starts_no_later_than_it_was_promised(exact: bool) -> None:
    late, waited = [], 0
    for seed in range(NUM_WORLDS):
        delays = delays_ms(seed, EASY, exact)
        late += [(seed, d) for d in delays if d > 0]
        waited += len(delays)
    assert not late
    assert waited > 10 * NUM_WORLDS  # there were heads


def test_with_true_claims_the_head_starts_exactly_when_it_was_promised() -> None:
    for seed in range(NUM_WORLDS):
        assert set(delays_ms(seed, EASY)) == {0}


def test_greedy_passing_over_is_wrong_here() -> None:
    greedy = base.build("greedy_fifo")
    assert any(max(delays_ms(seed, greedy)) > 0 for seed in range(10))


@pytest.mark.parametrize("seed", range(10))
def test_what_it_remembers_between_questions_changes_nothing(seed: int) -> None:
    stepped = World.from_state(random_spec(seed))
    step_through(stepped, EASY, lambda world: None)
    straight = World.from_state(random_spec(seed))
    straight.run(EASY)
    assert stepped.ended().tobytes() == straight.ended().tobytes()


def test_jobs_wait_less_than_under_strict_fifo() -> None:
    for seed in range(10):
        wait_ms = {}
        for name in ("easy", "fifo"):
            ended = until(random_spec(seed), base.build(name)).ended()
            wait_ms[name] = (ended["first_start_ms"] - ended["submit_ms"]).mean()
        assert wait_ms["easy"] <= wait_ms["fifo"]
