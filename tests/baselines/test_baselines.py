"""What each baseline does, as stories; and what all of them owe: whole gangs, no hidden truth, the same run twice.

A picture in a comment shows the GPUs of a node, one letter each, `.` idle.
"""

from __future__ import annotations

import inspect
import math
import random
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from builders import gang, milli, minutes, nodes, place, world

from baselines.stepping import end_min, gpus_of, jobs_in, running, start_min, step_through, until
from gangline.baselines import base
from gangline.baselines.base import CompiledScheduler
from gangline.envs.core.spec import Command, LiveSpec, NodeSpec, PlacedPods, TenantSpec, WorldSpec
from gangline.envs.core.trace import JobTrace
from gangline.envs.core.types import AGAIN, NEVER, NONE, JobState, Op, Outcome
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError
from gangline.envs.workloads.base import fresh
from gangline.envs.workloads.synthetic import Synthetic

BASELINES = tuple(base.scheduler_names())
OPTIONS = {n: inspect.signature(import_module(base.module_of(n)).build).parameters for n in BASELINES}
RULED = tuple(n for n in BASELINES if "rule" in OPTIONS[n])
# Volcano decides in sessions a second apart and waits for the next rather than ask again. It knows no reservations.
AT_ONCE = tuple(n for n in BASELINES if "volcano" not in n)
TRUTHFUL = tuple(n for n in BASELINES if n != "srtf_oracle")  # all but the one that is told
HOURS = 60  # minutes


@cache
def scheduler(name: str) -> CompiledScheduler:
    """A baseline with its defaults."""
    return base.build(name)


def claim(job_min: float) -> int:
    """A walltime claim, minutes."""
    return minutes(job_min)


# ---------------------------------------------------------------------------------------------------------------
# Orders
# ---------------------------------------------------------------------------------------------------------------

# a has 6 of 8 GPUs until minute 60; `wide` does not fit beside it, `narrow` does
BLOCKED = world(nodes(8), [gang("a", 6), gang("wide", 4, submit_min=1), gang("narrow", 2, submit_min=2)])


def test_fifo_blocks_behind_a_head_that_does_not_fit() -> None:
    assert start_min(until(BLOCKED, scheduler("fifo"))) == {"a": 0, "wide": 60, "narrow": 60}


def test_greedy_fifo_passes_over_a_head_that_does_not_fit() -> None:
    assert start_min(until(BLOCKED, scheduler("greedy_fifo"))) == {"a": 0, "wide": 60, "narrow": 2}


ONE_AT_A_TIME = [
    gang("first", 8, work_min=10, claim_ms=claim(10)),
    gang("long", 8, work_min=10, claim_ms=claim(90), submit_min=1),
    gang("unclaimed", 8, work_min=10, submit_min=2),
    gang("short", 8, work_min=10, claim_ms=claim(15), submit_min=3),
    gang("short_too", 8, work_min=10, claim_ms=claim(15), submit_min=4),
]


def order_of_starts(world: World) -> list[str]:
    """Names by first start."""
    starts = start_min(world)
    return sorted(starts, key=lambda name: starts[name])


def test_sjf_takes_the_shortest_claim_first_and_no_claim_last() -> None:
    want = ["first", "short", "short_too", "long", "unclaimed"]
    assert order_of_starts(until(world(nodes(8), ONE_AT_A_TIME), scheduler("sjf"))) == want


def test_sjf_without_claims_is_greedy_fifo() -> None:
    unclaimed = [gang(f"j{i}", i % 5 + 1, work_min=7 * i % 31 + 1, submit_min=i) for i in range(30)]
    spec = world(nodes(4, 2), unclaimed)
    assert start_min(until(spec, scheduler("sjf"))) == start_min(until(spec, scheduler("greedy_fifo")))


def test_f1_weighs_claim_processors_and_submission() -> None:
    """log10(claim) x processors + 870 log10(submit), in seconds: on a late clock size and claim decide."""
    late_min = 100_000
    jobs = [gang("first", 8, work_min=60, claim_ms=claim(60), submit_min=late_min)]
    for i, (workers, claim_min) in enumerate([(8, 600), (1, 600), (8, 5), (4, 60), (2, 9000)]):
        jobs.append(gang(f"j{i}", workers, work_min=1, claim_ms=claim(claim_min), submit_min=late_min + 1 + i / 100))
    score = {
        j.name: math.log10((j.claim_ms or 0) / 1000) * j.pod_sets[0].count + 870 * math.log10(j.submit_ms / 1000)
        for j in jobs[1:]
    }
    want = sorted(score, key=lambda name: score[name])
    assert want not in (list(score), [j.name for j in sorted(jobs[1:], key=lambda j: j.claim_ms or 0)])
    w = until(world(nodes(8), jobs), scheduler("f1"), late_min + 2)
    queued = [j for j in w.record["jobs"][: int(w.record["jobs_used"])] if j["state"] == JobState.QUEUED]
    assert [w.job_name(int(j["row"])) for j in sorted(queued, key=lambda j: j["order_key"])] == want
    w.run(scheduler("f1"), minutes(late_min + 60))  # there is room: those that come first, as far as they fit
    assert running(w) == sorted(want[:3])


def test_committed_waits_for_its_choice_though_a_better_one_comes() -> None:
    jobs = [
        gang("a", 8, work_min=60, claim_ms=claim(60)),
        gang("chosen", 8, work_min=10, claim_ms=claim(50), submit_min=1),
        gang("shorter", 8, work_min=10, claim_ms=claim(10), submit_min=2),
    ]
    spec = world(nodes(8), jobs)
    assert order_of_starts(until(spec, base.build("committed", order="claim"))) == ["a", "chosen", "shorter"]
    assert order_of_starts(until(spec, scheduler("sjf"))) == ["a", "shorter", "chosen"]


def test_committed_backfills_only_what_ends_before_the_shadow_time() -> None:
    jobs = [
        gang("a", 6, work_min=60, claim_ms=claim(60)),
        gang("chosen", 8, work_min=10, claim_ms=claim(10), submit_min=1),
        gang("until_60", 1, work_min=58, claim_ms=claim(58), submit_min=2),  # ends at the shadow time: not before
        gang("until_59", 1, work_min=56, claim_ms=claim(56), submit_min=3),
        gang("unclaimed", 1, work_min=1, submit_min=4),
    ]
    starts = start_min(until(world(nodes(8), jobs), base.build("committed", backfill=True)))
    assert starts == {"a": 0, "chosen": 60, "until_59": 3, "until_60": 70, "unclaimed": 70}


# ---------------------------------------------------------------------------------------------------------------
# Shares
# ---------------------------------------------------------------------------------------------------------------


def test_drf_greedy_serves_the_tenant_with_the_smallest_share() -> None:
    # n0: r r r r . .   rich has asked first
    jobs = [
        gang("r", 4, tenant="rich", work_min=600),
        gang("r2", 2, tenant="rich", submit_min=1),
        gang("p", 2, tenant="poor", submit_min=1),
    ]
    assert running(until(world(nodes(6), jobs), scheduler("drf_greedy"), 2)) == ["p", "r"]
    assert running(until(world(nodes(6), jobs), scheduler("greedy_fifo"), 2)) == ["r", "r2"]


def test_drf_greedy_weighs_shares() -> None:
    # heavy holds 4 of weight 4, light holds 2 of weight 1: heavy is the poorer
    jobs = [
        gang("h", 4, tenant="heavy", work_min=600),
        gang("l", 2, tenant="light", work_min=600),
        gang("l2", 2, tenant="light", submit_min=1),
        gang("h2", 2, tenant="heavy", submit_min=1),
    ]
    spec = world(nodes(8), jobs, weights={"heavy": 4, "light": 1})
    assert running(until(spec, scheduler("drf_greedy"), 2)) == ["h", "h2", "l"]


def test_drf_greedy_serves_a_tenant_of_weight_0_last() -> None:
    jobs = [
        gang("guest", 2, tenant="none"),
        gang("r", 4, tenant="rich", work_min=600),
        gang("guest2", 2, tenant="none", submit_min=1),
        gang("r2", 2, tenant="rich", submit_min=1),
    ]
    spec = world(nodes(6), jobs, weights={"none": 0, "rich": 1})
    assert running(until(spec, scheduler("drf_greedy"), 2)) == ["guest", "r"]
    assert start_min(until(spec, scheduler("drf_greedy")))["r2"] == 60
    assert start_min(until(spec, scheduler("drf_greedy")))["guest2"] == 120


def shared(*jobs: Any, gpus: int = 12, **weights: int) -> WorldSpec:
    """Tenants a, b, c of weight 1 on one node each of four GPUs; jobs by `gang`."""
    return world(nodes(*[4] * (gpus // 4)), jobs, weights=weights or {"a": 1, "b": 1, "c": 1})


def test_reclaim_takes_from_those_above_their_share_only_and_only_what_is_needed() -> None:
    # a holds 8, b its share of 4; c comes with 4 after the protected time
    a_jobs = [gang(f"a{i}", 2, tenant="a", work_min=6000) for i in range(4)]
    b_jobs = [gang(f"b{i}", 2, tenant="b", work_min=6000) for i in range(2)]
    spec = shared(*a_jobs, *b_jobs, gang("c", 4, tenant="c", submit_min=3 * HOURS))
    w = until(spec, scheduler("fair_reclaim"), 3 * HOURS + 1)
    assert {"b0", "b1", "c"} < set(running(w))
    assert len(running(w)) == 2 + 2 + 1
    w = until(spec, scheduler("drf_greedy"), 3 * HOURS + 1)
    assert jobs_in(w, "queued") == ["c"]


def test_reclaim_stops_the_jobs_that_lose_least() -> None:
    # checkpoints at 30, 60, ... minutes: at minute 185 `old` loses 5 minutes of work, `new` 25, `never` all of it
    jobs = [
        gang("never", 2, tenant="a", work_min=6000, checkpoint_min=None),
        gang("old", 2, tenant="a", work_min=6000),
        gang("new", 2, tenant="a", work_min=6000, submit_min=10),
        gang("c", 2, tenant="c", submit_min=185),
    ]
    spec = world(nodes(2, 2, 2), jobs)
    w = until(spec, scheduler("fair_reclaim"), 186)
    assert running(w) == ["c", "never", "new"]
    assert w.dump()["jobs"]["old"]["gpu_time"]["lost"] == milli(2) * minutes(5)


def test_reclaim_never_stops_a_job_younger_than_min_run_h_and_looks_again_when_it_is_older() -> None:
    jobs = [gang("a", 8, tenant="a", work_min=6000), gang("b", 4, tenant="b", submit_min=10)]
    spec = world(nodes(8), jobs)
    assert running(until(spec, scheduler("fair_reclaim"), 2 * HOURS - 0.001)) == ["a"]
    assert running(until(spec, scheduler("fair_reclaim"), 2 * HOURS)) == ["b"]
    assert running(until(spec, base.build("fair_reclaim", min_run_h=0.5), 30)) == ["b"]
    assert running(until(spec, base.build("fair_reclaim", min_run_h=0), 10)) == ["b"]


def test_a_reclaimer_stays_within_its_own_share() -> None:
    # fair shares are 4 and 4: b may take 4, not 5
    a_jobs = [gang(f"a{i}", 1, tenant="a", work_min=6000) for i in range(8)]
    for workers, want_running in ((5, 8), (4, 5)):
        jobs = [*a_jobs, gang("b", workers, tenant="b", submit_min=3 * HOURS)]
        w = until(world(nodes(8), jobs), scheduler("fair_reclaim"), 3.5 * HOURS)
        assert len(running(w)) == want_running
        assert ("b" in running(w)) == (workers == 4)


def test_one_gpu_costs_one_small_job_and_not_a_gang() -> None:
    """volcano#5984: one GPU is needed, there is a gang of 7 and a job of 1."""
    jobs = [
        gang("large", 7, tenant="a", work_min=6000),
        gang("small", 1, tenant="a", work_min=6000),
        gang("b", 1, tenant="b", submit_min=3 * HOURS),
    ]
    w = until(world(nodes(8), jobs), scheduler("fair_reclaim"), 3 * HOURS)
    assert running(w) == ["b", "large"]


def commands_of(w: World) -> list[tuple[int, ...]]:
    """The commands of the last decision, as numbers."""
    out = w.decision[0]
    fields = ("op", "transaction", "job", "pod_set", "node", "pods", "gpu", "grace_ms", "until_ms")
    return [tuple(int(c[f]) for f in fields) for c in out["commands"][: int(out["num_commands"])]]


def contested(seed: int) -> WorldSpec:
    """Four tenants of random weight that come and go on four nodes of eight GPUs, with gangs over several nodes."""
    rng = random.Random(seed)
    jobs = []
    at = 0.0
    for i in range(80):
        at += rng.choice([0, 0, 1, 10, 60])
        gpus = rng.choice([1, 1, 2, 4, 8])
        workers = rng.choice([1, 1, 1, 2, 3])
        tenant = f"t{rng.choice([0, 0, 1, 1, 2, 3])}"
        jobs.append(
            gang(f"j{i}", workers, gpus=gpus, tenant=tenant, work_min=rng.choice([30, 100, 400]), submit_min=at)
        )
    return world(nodes(8, 8, 8, 8), jobs, weights={f"t{k}": rng.choice([1, 1, 2, 3]) for k in range(4)})


@pytest.mark.parametrize("seed", range(20))
def test_reclaim_settles_and_nobody_takes_back_at_once(seed: int) -> None:
    """No ping-pong: with no protection at all, the questions of an instant come to an end."""
    eager = base.build("fair_reclaim", min_run_h=0)
    w = World.from_state(contested(seed))
    seen: dict[int, int] = {}

    def look(w: World) -> None:
        seen[w.now_ms] = seen.get(w.now_ms, 0) + 1
        assert seen[w.now_ms] < 200, f"ping-pong at {w.now_ms} ms"

    step_through(w, eager, look)
    assert int(w.record["totals"]["num_preemptions"]) > 0


@pytest.mark.parametrize("seed", range(10))
def test_reclaim_evicts_a_smallest_sufficient_set_from_those_above_their_share(seed: int) -> None:
    """Each reclaim: without any one of its evictions the rest is refused; no victim's tenant was within its share."""
    eager = base.build("fair_reclaim", min_run_h=0)
    w, trial = World.from_state(contested(seed)), World.from_state(contested(seed))
    num_reclaims = 0

    def look(w: World) -> None:
        nonlocal num_reclaims
        if int(w.record["num_waiting"]) == 0:
            return
        trial.set_state(w.get_state())
        trial.refresh()
        tenants = trial.record["tenants"].copy()
        trial.cycles(eager, 1)
        out = trial.decision[0]
        commands = out["commands"][: int(out["num_commands"])].copy()
        evictions = np.flatnonzero(commands["op"] == Op.EVICT)
        if not len(evictions):
            return
        num_reclaims += 1
        reclaimer = w.record["jobs"][commands["job"][-1]]
        assert tenants["held"][reclaimer["tenant"]] + reclaimer["gpus_wanted"] <= tenants["fair"][reclaimer["tenant"]]
        for i in evictions:
            victim = w.record["jobs"][commands["job"][i]]
            assert victim["tenant"] != reclaimer["tenant"]
            assert tenants["held"][victim["tenant"]] > tenants["fair"][victim["tenant"]]
            assert not fits_after(w, np.delete(commands, i)), f"{w.now_ms} ms: victim {i} was not needed"

    step_through(w, eager, look)
    assert num_reclaims > 0


def fits_after(w: World, commands: np.ndarray) -> bool:
    """Whether a gang would find room on the nodes once the evictions among some commands are done."""
    free = w.record["nodes"]["idle"][: int(w.record["num_nodes"]), 0].astype(int)
    for command in commands[commands["op"] == Op.EVICT]:
        for pod in w.pods_of(w.record["jobs"][command["job"]]):
            free[int(pod["node"])] += int(pod["held"][0])
    wanted = sorted(
        (int(s["request"][0]) for s in w.pod_sets_of(w.record["jobs"][commands["job"][-1]]) for _ in range(s["count"])),
        reverse=True,
    )
    for request in wanted:  # the sizes divide each other: largest first is exact
        n = int(np.argmax(free))
        if free[n] < request:
            return False
        free[n] -= request
    return True


# ---------------------------------------------------------------------------------------------------------------
# Preemptive orders
# ---------------------------------------------------------------------------------------------------------------


def test_las_stops_a_job_of_a_higher_class_for_a_new_one() -> None:
    jobs = [gang("old", 8, work_min=600), gang("new", 8, work_min=5, submit_min=2 * HOURS)]
    w = until(world(nodes(8), jobs), scheduler("las"), 2 * HOURS + 1)
    assert running(w) == ["new"]
    assert end_min(until(world(nodes(8), jobs), scheduler("las"))) == {"new": 125, "old": 605}


def test_las_is_fifo_within_a_class() -> None:
    jobs = [gang("first", 1, work_min=50), gang("second", 1, work_min=1, submit_min=1)]
    assert start_min(until(world(nodes(1), jobs), scheduler("las"))) == {"first": 0, "second": 50}


def test_las_sets_its_timer_to_the_next_change_of_class() -> None:
    # one GPU: class 0 until one GPU-hour
    jobs = [gang("first", 1, work_min=600), gang("second", 1, work_min=1, submit_min=1)]
    w = until(world(nodes(1), jobs), scheduler("las"), 59)
    assert running(w) == ["first"]
    assert w.next_event_ms() is not None
    assert start_min(until(world(nodes(1), jobs), scheduler("las"))) == {"first": 0, "second": 60}


def test_las_looks_again_when_a_protected_job_has_run_long_enough() -> None:
    # three GPUs: class 1 from minute 20, class 2 from minute 40; protected until minute 30
    jobs = [gang("first", 3, work_min=600), gang("second", 3, work_min=1, submit_min=1)]
    assert start_min(until(world(nodes(3), jobs), scheduler("las")))["second"] == 30


def test_las_needs_no_claims() -> None:
    with_claims = until(world(nodes(8), ONE_AT_A_TIME), scheduler("las"))
    assert order_of_starts(with_claims) == [j.name for j in ONE_AT_A_TIME]


def test_srtf_oracle_runs_what_has_least_left() -> None:
    # claims say nothing: the truth does
    jobs = [
        gang("long", 1, work_min=100, claim_ms=claim(1), checkpoint_min=10),
        gang("short", 1, work_min=10, claim_ms=claim(999), submit_min=20),
        gang("middle", 1, work_min=50, claim_ms=claim(500), submit_min=20),
    ]
    w = until(world(nodes(1), jobs), scheduler("srtf_oracle"))
    assert end_min(w) == {"short": 30, "middle": 80, "long": 160}


def test_srtf_oracle_counts_what_is_left_not_what_there_was() -> None:
    # at minute 80 `long` has 20 left: a newcomer of 30 waits
    jobs = [gang("long", 1, work_min=100), gang("new", 1, work_min=30, submit_min=80)]
    assert start_min(until(world(nodes(1), jobs), scheduler("srtf_oracle"))) == {"long": 0, "new": 100}


# ---------------------------------------------------------------------------------------------------------------
# Whole gangs
# ---------------------------------------------------------------------------------------------------------------


def two_gangs(workers: int) -> WorldSpec:
    """As many one-GPU nodes as one of two gangs has workers; both arrive in the same instant."""
    return world(nodes(*[1] * workers), [gang("a", workers), gang("b", workers)])


def assert_one_holds_all(w: World, workers: int) -> None:
    """One gang runs on every node, the other has nothing and waits."""
    held = sorted(gpus_of(w, job) for job in ("a", "b"))
    assert held == [0, workers]
    assert len(running(w)) == len(jobs_in(w, "queued")) == 1
    assert jobs_in(w, "partial") == []


@pytest.mark.parametrize("name", BASELINES)
def test_of_two_gangs_at_one_instant_one_holds_all_and_the_other_nothing(name: str) -> None:
    assert_one_holds_all(until(two_gangs(50), scheduler(name), 1), 50)


@pytest.mark.parametrize("name", ["committed", "fifo"])
def test_of_two_100_worker_gangs_one_holds_all_and_the_other_nothing(name: str) -> None:
    """volcano#3373, at its size."""
    assert_one_holds_all(until(two_gangs(100), scheduler(name), 1), 100)


@pytest.mark.parametrize("name", BASELINES)
def test_an_8_gpu_gang_waits_while_6_are_free_and_holds_nothing(name: str) -> None:
    # n0: x x . . . . . .
    spec = world(nodes(8), [gang("x", 2, work_min=20), gang("big", 8, submit_min=1)])
    w = until(spec, scheduler(name), 2)
    assert jobs_in(w, "queued") == ["big"]
    assert gpus_of(w, "big") == 0
    assert int(w.record["gpus_held"]) == milli(2)
    assert start_min(until(spec, scheduler(name))) == {"x": 0, "big": 20}
    assert int(until(spec, scheduler(name)).record["totals"]["hang_area"]) == 0


def test_without_the_gang_rule_pod_by_pod_placement_holds_6_gpus_for_nothing() -> None:
    jobs = [gang("x", 2, work_min=20), gang("big", 8, work_min=60, submit_min=1)]
    w = World.from_state(world(nodes(8), jobs, gang=False))
    w.advance(0)
    assert w.apply([[place("x", "n0", 2)]]) == ["ok"]
    w.advance(minutes(1))
    assert w.apply([[place("big", "n0")] for _ in range(8)]) == ["ok"] * 6 + ["no_room"] * 2
    w.advance(minutes(11))
    big = w.dump()["jobs"]["big"]
    assert (big["state"], len(big["bound"]), big["speed"]) == ("partial", 6, 0)
    assert big["left"] == minutes(60) * 1000
    assert big["gpu_time"]["hang"] == w.dump()["totals"]["hang_area"] == milli(6) * minutes(10)


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_gang_whose_reservation_does_not_suffice_yet_waits_for_the_rest(name: str) -> None:
    # n0: x R   where R is kept for `big`, which needs both
    jobs = [gang("x", 1, work_min=20), gang("big", 2), gang("late", 1, submit_min=1)]
    w = World.from_state(world(nodes(2), jobs))
    w.advance(0)
    reserve = Command(op="reserve", job="big", node="n0", amounts={"gpu": milli(1)}, until_ms=minutes(999))
    assert w.apply([[place("x", "n0")], [reserve]]) == ["ok", "ok"]
    w.run(scheduler(name))
    starts = start_min(w)
    assert (starts["x"], starts["big"]) == (0, 20)
    assert starts["late"] > 20


@pytest.mark.parametrize("name", BASELINES)
def test_a_job_larger_than_the_cluster_is_rejected_and_blocks_nobody(name: str) -> None:
    spec = world(nodes(8, 8), [gang("giant", 17), gang("split", 1, gpus=16), gang("a", 16), gang("b", 4)])
    w = until(spec, scheduler(name))
    ended = {e["name"]: (e["outcome"], e["reason"]) for e in w.dump()["ended"]}
    assert ended["giant"] == ended["split"] == ("rejected", "larger_than_cluster")
    assert ended["a"] == ended["b"] == ("done", "unspecified")
    if name == "fifo":
        assert start_min(w) == {"a": 0, "b": 60}


# ---------------------------------------------------------------------------------------------------------------
# On generated jobs
# ---------------------------------------------------------------------------------------------------------------


def cluster(num_nodes: int) -> WorldSpec:
    """Nodes of eight GPUs and the generator's four tenants."""
    workload = Synthetic(capacity_gpus=8 * num_nodes, num_jobs=1)
    tenants = [
        TenantSpec(name=name, weight=weight)
        for name, weight in zip((p.name for p in workload.tenant_profiles), workload.entitlements, strict=True)
    ]
    return WorldSpec(nodes=[NodeSpec(name=f"n{i}", amounts={"gpu": 8000}) for i in range(num_nodes)], tenants=tenants)


@cache
def jobs_of(seed: int, num_jobs: int = 200) -> JobTrace:
    """Jobs that overload four nodes, some of which fail, are cancelled or hang; claims are true or generous."""
    workload = Synthetic(
        capacity_gpus=32, load=1.5, num_jobs=num_jobs, claims="informative", fail=0.1, cancel=0.1, exact_load=True
    )
    return workload.sample(np.random.default_rng(seed))


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_keeps_the_invariants_and_ends_all_jobs(name: str) -> None:
    w = World(cluster(4), jobs_of(1))
    last_ms = int(jobs_of(1).rows["submit_ms"][-1])
    for until_ms in np.linspace(last_ms / 20, last_ms, 20).astype(int):
        w.run(scheduler(name), int(until_ms))
        assert_conserved(w)
    w.run(scheduler(name))
    assert_conserved(w)
    ended = w.ended()
    assert len(ended) == w.trace.num_jobs
    assert int(w.record["num_jobs"]) == int(w.record["gpus_held"]) == 0
    parts = ("kept", "lost", "hang", "suspended", "overhead", "releasing", "surplus", "undecided")
    assert (ended["held"] == sum(ended[p] for p in parts)).all()
    done = ended[ended["outcome"] == Outcome.DONE]
    assert (done["kept"] == done["gpus"] * done["work_ms"]).all()  # work is done once, whatever was preempted
    assert (done["end_ms"] >= done["first_start_ms"] + done["work_ms"]).all()


def assert_conserved(w: World) -> None:
    """No negative idle, every GPU is idle or a pod's, gangs are whole, sums are the sums."""
    record = w.record
    held = np.zeros(int(record["num_nodes"]), int)
    total = 0
    for job in record["jobs"][: int(record["jobs_used"])]:
        if job["state"] == JobState.FREE:
            continue
        pods = w.pods_of(job)
        assert len(pods) in (0, int(job["num_wanted"]))
        for pod in pods:
            held[int(pod["node"])] += int(pod["held"][0])
        total += sum(int(p["held"][0]) for p in pods)
    nodes_used = record["nodes"][: int(record["num_nodes"])]
    assert (nodes_used["idle"][:, 0] >= 0).all()
    assert (nodes_used["idle"][:, 0] + held == 8000).all()
    assert (nodes_used["gpu_free"].sum(axis=1) == nodes_used["idle"][:, 0]).all()
    assert int(record["gpus_held"]) == int(record["tenants"]["held"].sum()) == total


@pytest.mark.parametrize("name", BASELINES)
def test_the_same_jobs_run_the_same_twice(name: str) -> None:
    logs = []
    for _ in range(2):
        w = World(cluster(4), jobs_of(2))
        w.run(base.build(name))
        logs.append(w.ended().tobytes())
    assert logs[0] == logs[1]


def with_other_truth(w: World, rng: np.random.Generator) -> World:
    """A world of the same jobs whose rows say something else about what is hidden."""
    rows = w.trace.rows.copy()
    rows["work_ms"] = rng.integers(1, 10**9, len(rows))
    rows["cancel_ms"] = np.where(rng.random(len(rows)) < 0.5, NEVER, rows["submit_ms"] + rng.integers(1, 10**9))
    rows["outcome"] = rng.integers(0, 3, len(rows))
    rows["outcome_ms"] = rng.integers(0, 10**9, len(rows))
    return World(w.spec, fresh(w.trace, rows), size=w.size)


def poison(w: World, rng: np.random.Generator) -> None:
    """Change the hidden truth of the live jobs.

    What is hidden still lies ahead: an outcome that strikes at more work than is left would end a job in the instant
    in which it is placed, for all to see.
    """
    for job in w.record["jobs"][: int(w.record["jobs_used"])]:
        job["work_ms"] = rng.integers(1, 10**9)
        job["cancel_ms"] = NEVER if rng.random() < 0.5 else w.now_ms + rng.integers(1, 10**9)
        job["outcome"] = rng.integers(0, 3)
        job["is_hung"] = rng.random() < 0.2
        progress = job["progress"]
        progress["left"] = rng.integers(10**6, 10**12)
        progress["saved_left"] = progress["left"] + rng.integers(0, 10**12)
        progress["outcome_left"] = rng.integers(0, progress["left"] - 10**5) if rng.random() < 0.5 else NONE
        progress["undecided"] = rng.integers(1, 10**12)
        progress["cycle_ms"] = rng.integers(0, 1_800_000)


def whole_second(time_ms: int) -> int:
    """The next whole second: Volcano's sessions begin there."""
    return -(-time_ms // 1000) * 1000


@cache
def decisions(name: str) -> list[tuple[list[tuple[int, ...]], list[tuple[int, ...]]]]:
    """Non-empty decisions at random instants of a run: as they are, and with the hidden truth poisoned.

    Volcano is asked for one session, and for two at the same instant.
    """
    rng = np.random.default_rng(7)
    pairs = []
    w = World(cluster(4), jobs_of(3, 300))
    as_it_is, other = World(cluster(4), w.trace), with_other_truth(w, rng)
    span_ms = int(w.trace.rows["submit_ms"][-1])
    asked = base.build(name, **({"order": "claim", "backfill": True} if name == "committed" else {}))
    blocking = base.build("fifo")
    for step in range(80):
        w.run(blocking, whole_second(w.now_ms + int(rng.integers(0, span_ms // 40))))
        as_it_is.set_state(w.get_state())
        if step % 2:  # nobody is asked for a while: jobs come and go, and there is much to decide
            as_it_is.advance(whole_second(w.now_ms + span_ms // 50))
        other.set_state(as_it_is.get_state())
        poison(other, rng)
        before = as_it_is.get_state(), other.get_state()
        for num_cycles in (1,) if name in AT_ONCE else (1, 2):
            answers = []
            for asked_world, state in zip((as_it_is, other), before, strict=True):
                asked_world.set_state(state)
                next_ms = asked_world.cycles(asked, num_cycles)
                answers.append([*commands_of(asked_world), (next_ms or -2,)])
            if len(answers[0]) + len(answers[1]) > 2:
                pairs.append((answers[0], answers[1]))
    return pairs


@pytest.mark.parametrize("name", TRUTHFUL)
def test_hidden_truth_changes_no_decision(name: str) -> None:
    for as_it_is, with_poison in decisions(name):
        assert as_it_is == with_poison
    assert len(decisions(name)) > 20


def test_hidden_truth_does_change_the_oracles_decisions() -> None:
    """So the poison reaches what it should."""
    assert any(as_it_is != with_poison for as_it_is, with_poison in decisions("srtf_oracle"))


# ---------------------------------------------------------------------------------------------------------------
# Names and options
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "want_message"),
    [
        ("fifoo", {}, "unknown scheduler 'fifoo'; known: {names}; did you mean 'fifo'?"),
        ("zzz", {}, "unknown scheduler 'zzz'; known: {names}"),
        ("base", {}, "unknown scheduler 'base'; known: {names}"),
        ("fifo", {"rulle": "pack"}, "unknown option of scheduler 'fifo' 'rulle'; known: rule; did you mean 'rule'?"),
        (
            "fifo",
            {"rule": "pakc"},
            "unknown placement rule 'pakc'; known: fgd, first, pack, spread, topology_aware; did you mean 'pack'?",
        ),
        (
            "fair_reclaim",
            {"victims": "newst"},
            "unknown victim rule 'newst'; known: least_lost, most_over_share, newest; did you mean 'newest'?",
        ),
        (
            "committed",
            {"order": "submitt"},
            "unknown order 'submitt'; known: claim, f1, submit; did you mean 'submit'?",
        ),
        ("las", {"min_run_h": -1}, "min_run_h is -1, expected 0 hours or more"),
        ("fair_reclaim", {"min_run_h": math.nan}, "min_run_h is nan, expected 0 hours or more"),
        ("srtf_oracle", {"min_run_h": math.inf}, "min_run_h is inf, expected 0 hours or more"),
        ("no_such_package.of_mine", {}, "scheduler 'no_such_package.of_mine' cannot be imported"),
        ("gangline.envs.errors", {}, "scheduler module 'gangline.envs.errors' has no build(), expected one"),
    ],
)
def test_bad_names_and_options_are_one_line_that_says_the_way_out(
    name: str, options: dict[str, Any], want_message: str
) -> None:
    with pytest.raises(GanglineError) as error:
        base.build(name, **options)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(want_message.format(names=", ".join(BASELINES)))


@pytest.mark.parametrize("name", RULED)
def test_every_baseline_without_a_node_choice_of_its_own_takes_a_placement_rule(name: str) -> None:
    w = World(cluster(4), jobs_of(4, 40))
    w.run(base.build(name, rule="spread"))
    assert len(w.ended()) == 40


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_baseline_can_take_over_a_world_in_mid_life(name: str) -> None:
    live = LiveSpec(pods=[PlacedPods(pod_set=0, node="n0", count=4)])
    jobs = [gang("a", 4, live=live), gang("b", 4, submit_min=1), gang("c", 4, submit_min=2)]
    w = World.from_state(world(nodes(8), jobs))
    w.advance(minutes(3))  # nobody is asked
    assert w.cycles(scheduler(name), 1) == AGAIN
    assert running(w) == ["a", "b"]
    w.run(scheduler(name))
    assert end_min(w) == {"a": 60, "b": 63, "c": 120}
