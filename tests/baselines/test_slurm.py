"""Slurm as stories: one for each trap that its rules set."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from builders import gang, milli, nodes, world

from gangline.baselines.base import build
from gangline.baselines.conformance.slurm.formulas import association_rows
from gangline.baselines.conformance.slurm.replay import Replay
from gangline.baselines.slurm.config import (
    Account,
    Limits,
    Partition,
    Preemption,
    Priority,
    Qos,
    Request,
    SchedulerParameters,
    SlurmConfig,
    User,
    world_defaults,
)
from gangline.baselines.slurm.setup import block_for
from gangline.envs.core.fair_share import slurm_decay
from gangline.envs.core.spec import JobSpec, NodeSpec, PodSetSpec, WorldSpec
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError

MINUTE_MS = 60_000
SECOND_MS = 1000
FIFO = SlurmConfig(scheduler=SchedulerParameters(bf_resolution_s=1))


def job(name: str, *, gpus: int = 0, cpus: int = 1, on: int = 1, run_s: float = 600, limit_min: int = 10, **fields):
    """A job with the same request on each of `on` nodes."""
    request = {"cpu": cpus * 1000} | ({"gpu": milli(gpus)} if gpus else {})
    return JobSpec(
        name=name,
        tenant=fields.pop("tenant", "a"),
        pod_sets=[PodSetSpec(count=on, request=request)],
        work_ms=round(run_s * SECOND_MS),
        submit_ms=round(fields.pop("submit_s", 0) * SECOND_MS),
        claim_ms=limit_min * MINUTE_MS,
        killed_at_claim=True,
        checkpoint_interval_ms=None,
        **fields,
    )


def cluster(count: int, jobs: list[JobSpec], **fields) -> WorldSpec:
    """Nodes of 8 GPUs and 64 CPUs."""
    return world(
        nodes(*[8] * count, amounts={"cpu": 64_000}), jobs, resources=("gpu", "cpu"), **{"requeue_hold_ms": 0, **fields}
    )


def requests(**said: Request) -> dict[str, Request]:
    """Requests of jobs whose pods are their parts of nodes."""
    return {name: dataclasses.replace(request, whole_nodes=True) for name, request in said.items()}


def started(replay: Replay) -> dict[str, tuple[float, list[str]]]:
    """(second, nodes) of the last start of each job that has started."""
    return {name: (runs[-1].start_s, runs[-1].nodes) for name, runs in replay.runs.items() if runs}


def play(spec: WorldSpec, config: SlurmConfig, until_s: float) -> Replay:
    replay = Replay(spec, config)
    replay.run_until(until_s)
    return replay


# ---------------------------------------------------------------------------------------------------------------
# Usage and shares
# ---------------------------------------------------------------------------------------------------------------


def test_the_user_root_takes_a_share_and_counts_among_the_users():
    """Traps 1: 40/30/30 is 40/101; four users, not three, share the ranks."""
    accounts = [Account(name=a, shares=s, children=[User(name=a)]) for a, s in (("a", 40), ("b", 30), ("c", 30))]
    rows = association_rows(SlurmConfig(accounts=accounts), {"a:a": 900.0, "b:b": 50.0, "c:c": 50.0})
    assert rows["a", None]["norm_shares"] == 40 / 101
    assert rows["root", "root"]["factor"] == 1.0
    assert rows["a", "a"]["factor"] == 1 / 4  # last of four; never 0


def test_the_second_of_two_tied_accounts_is_walked_after_the_first():
    """Trap 2: not merged; its first user inherits the rank that stands, so list order matters."""
    accounts = [
        Account(name="a", children=[User(name="a1"), User(name="a2")]),
        Account(name="b", children=[User(name="b1"), User(name="b2")]),
    ]
    usage = {"a:a1": 100.0, "a:a2": 300.0, "b:b1": 100.0, "b:b2": 300.0}
    rows = association_rows(SlurmConfig(accounts=accounts), usage)
    want = {"b1": 4, "b2": 3, "a1": 3, "a2": 1}  # of five; newest account first; merged it would be 4, 2, 4, 2
    assert {u: round(float(rows[u[0], u]["factor"]) * 5) for u in want} == want
    rows = association_rows(SlurmConfig(accounts=accounts), usage, "alphabetical")
    want = {"a1": 4, "a2": 3, "b1": 3, "b2": 1}
    assert {u: round(float(rows[u[0], u]["factor"]) * 5) for u in want} == want


def test_a_tie_is_a_tie_in_80_bits():
    """Trap 3: 40:30:30 shares with 400:300:300 used is one in doubles, none in Slurm."""
    accounts = [Account(name=a, shares=s, children=[User(name=a)]) for a, s in (("a", 40), ("b", 30), ("c", 30))]
    rows = association_rows(SlurmConfig(accounts=accounts), {"a:a": 400.0, "b:b": 300.0, "c:c": 300.0})
    exact = [(int(rows[a, None]["level_exponent"]), int(rows[a, None]["level_mantissa"])) for a in "abc"]
    assert exact[1] == exact[2] and exact[0] > exact[1]
    longdouble = np.longdouble
    if np.finfo(longdouble).nmant == 63:  # the x87 unit itself
        want = longdouble(40 / 101) / (longdouble(400) / longdouble(1000))
        mantissa, exponent = np.frexp(want)
        assert exact[0] == (int(exponent) - 64, int(mantissa * longdouble(2) ** 64))


def test_usage_decays_by_half_per_half_life_however_the_steps_fall():
    decay = slurm_decay.py_func
    week = 7 * 86_400
    assert decay(week, week) == pytest.approx(0.5, abs=2e-4)  # 0.693 is not quite ln 2
    assert decay(60, week) * decay(240, week) * decay(week - 300, week) == pytest.approx(decay(week, week), rel=1e-12)
    assert decay(1, 120) == 1 - 0.693 / 120 != 2 ** (-1 / 120)
    assert decay(10**9, 0) == 1.0  # PriorityDecayHalfLife=0: usage stays


def test_usage_written_at_a_jobs_end_decays_once_more_at_the_tick():
    """Trap 3: spec/slurm.md section 2.1, 30 s at billing 8 with a half-life of 120 s."""
    config = SlurmConfig(
        priority=Priority(decay_half_life_s=120, calc_period_s=60, weight_fairshare=1),
        partitions=[Partition(name="p", is_default=True, tres_billing_weights={"gres/gpu": 1.0})],
    )
    replay = Replay(cluster(1, [job("j", gpus=8, run_s=30), job("later", gpus=8, run_s=1, submit_s=300)]), config)
    replay.run_until(31)
    assert replay.associations()["a", "a"]["raw"] == pytest.approx(201.721237, abs=1e-6)
    replay.run_until(61)
    assert replay.associations()["a", "a"]["raw"] == pytest.approx(142.505749, abs=1e-6)
    assert replay.associations()["root", None]["raw"] == replay.associations()["a", "a"]["raw"]


def test_gpus_cost_nothing_unless_billing_weights_say_so():
    """Trap 7: a CPU user and a GPU user hold a node for the same time."""
    jobs = [job("cpu", cpus=64, run_s=100, tenant="c"), job("gpu", gpus=8, cpus=1, run_s=100, tenant="g")]
    end = job("end", run_s=1, submit_s=200, tenant="c")
    for weights, want in (
        ({}, (6400, 100)),
        ({"cpu": 1.0, "gres/gpu": 8.0}, (6400, 6500)),
        ({"gres/gpu": 1.0}, (0, 800)),
    ):
        partition = Partition(name="p", is_default=True, tres_billing_weights=weights)
        config = SlurmConfig(priority=Priority(decay_half_life_s=0), partitions=[partition])
        replay = play(cluster(2, [*jobs, end]), config, 101)
        rows = replay.associations()
        assert (rows["c", "c"]["raw"], rows["g", "g"]["raw"]) == want, weights


def test_priorities_stand_still_between_ticks():
    """Trap 4: age is sampled when the decay thread wakes."""
    config = SlurmConfig(priority=Priority(weight_age=6000, max_age_s=600, calc_period_s=60, decay_half_life_s=0))
    replay = Replay(cluster(1, [job("runs", gpus=8), job("waits", gpus=8, submit_s=20)]), config)
    seen = []
    for second in (21, 59, 61, 119, 121):
        replay.run_until(second)
        seen.append(replay.priority_of("waits"))
    assert seen == [1, 1, 400, 400, 1000]  # 0 is kept for held jobs


# ---------------------------------------------------------------------------------------------------------------
# Order, main loop, nodes
# ---------------------------------------------------------------------------------------------------------------


def test_the_first_job_that_cannot_start_stops_its_partition():
    """Only a job in another partition, on nodes outside the first's, starts before it. No backfill here."""
    config = SlurmConfig(
        scheduler=SchedulerParameters(scheduler_type="sched/builtin"),
        partitions=[
            Partition(name="main", nodes=["n0", "n1"], is_default=True),
            Partition(name="all"),
        ],
        requests=requests(big=Request(), small=Request(), other=Request(partitions=["all"])),
    )
    jobs = [
        job("runs", gpus=8),
        job("big", gpus=8, on=2, submit_s=1),
        job("small", gpus=8, submit_s=2),
        job("other", gpus=8, submit_s=3),
    ]
    replay = play(cluster(3, jobs), config, 10)
    assert started(replay) == {"runs": (0.0, ["n0"]), "other": (3.0, ["n2"])}
    assert (replay.reason_of("big"), replay.reason_of("small")) == ("Resources", "Priority")


def test_tier_beats_priority_and_preemption_beats_tier():
    """Trap 11."""
    partitions = [
        Partition(name="main", is_default=True),
        Partition(name="urgent", priority_tier=10),
    ]
    qos = [Qos(name="normal"), Qos(name="high", priority=100, preempts=["normal"])]
    said = requests(
        nice=Request(nice=-1000), tiered=Request(partitions=["urgent"]), urgent=Request(qos="high", partitions=["main"])
    )
    jobs = [
        job("runs", gpus=8, run_s=60),
        *(job(n, gpus=8, run_s=60, submit_s=1) for n in ("nice", "tiered", "urgent")),
    ]
    config = SlurmConfig(partitions=partitions, qos=qos, requests=said)
    order = [n for n, _ in sorted(started(play(cluster(1, jobs), config, 300)).items(), key=lambda item: item[1])]
    assert order == ["runs", "tiered", "nice", "urgent"]
    spared = Preemption(type="preempt/qos", modes=frozenset({"REQUEUE"}), exempt_time_s=10_000)
    config = dataclasses.replace(config, preemption=spared)
    order = [n for n, _ in sorted(started(play(cluster(1, jobs), config, 300)).items(), key=lambda item: item[1])]
    assert order == ["runs", "urgent", "tiered", "nice"]


def test_gpu_jobs_take_the_lowest_usable_node_and_cpu_jobs_the_tightest():
    """Trap 6: n2 has exactly two GPUs and the fewest CPUs left; the GPU job goes to n0 all the same."""
    fill = [
        job("f0", gpus=2, cpus=4, tenant="f"),
        job("f1", gpus=4, cpus=32, tenant="f"),
        job("f2", gpus=6, cpus=56, tenant="f"),
    ]
    said = requests(**{f"f{i}": Request(nodelist=[f"n{i}"]) for i in range(3)}, g=Request(), c=Request())
    jobs = [*fill, job("g", gpus=2, submit_s=1), job("c", cpus=8, submit_s=2)]
    where = started(play(cluster(3, jobs), dataclasses.replace(FIFO, requests=said), 5))
    assert where["g"] == (1.0, ["n0"])
    assert where["c"] == (2.0, ["n2"])


def test_two_nodes_side_by_side_before_two_with_a_hole_between():
    said = requests(f=Request(nodelist=["n1"]), two=Request())
    jobs = [job("f", gpus=8), job("two", gpus=4, on=2, submit_s=1)]
    where = started(play(cluster(4, jobs), dataclasses.replace(FIFO, requests=said), 5))
    assert where["two"] == (1.0, ["n2", "n3"])


def test_an_exclusive_job_holds_and_pays_for_the_whole_node():
    """Trap 13."""
    said = requests(ex=Request(exclusive=True), one=Request())
    config = dataclasses.replace(
        FIFO, requests=said, partitions=[Partition(name="p", is_default=True, tres_billing_weights={"gres/gpu": 1.0})]
    )
    replay = play(cluster(2, [job("ex", gpus=1), job("one", gpus=1, submit_s=1)]), config, 5)
    assert replay.gpus_of("ex") == {"n0": list(range(8))}
    assert replay.remembered("ex")["billing"] == 8.0
    assert started(replay)["one"][1] == ["n1"]


def test_all_or_nothing():
    jobs = [job(f"f{i}", gpus=2) for i in range(4)]
    said = requests(**{f"f{i}": Request(nodelist=[f"n{i}"]) for i in range(4)}, big=Request())
    replay = play(cluster(4, [*jobs, job("big", gpus=8, submit_s=1)]), dataclasses.replace(FIFO, requests=said), 60)
    assert replay.state_of("big") == "PD"  # 24 GPUs are free, six on each node
    assert replay.plans()["big"] == (600.0, ["n0"])


# ---------------------------------------------------------------------------------------------------------------
# Backfill
# ---------------------------------------------------------------------------------------------------------------


def test_a_reservation_closes_whole_nodes_for_as_long_as_a_limit_lasts():
    """Trap 5: `top` plans four GPUs a node; the long job with the other four waits, the short one fits before."""
    said = requests(**{n: Request() for n in ("runs", "top", "long", "short")})
    jobs = [
        job("runs", gpus=8, on=3, limit_min=2),
        job("top", gpus=4, on=4, limit_min=3, submit_s=1),
        job("long", gpus=4, limit_min=10, run_s=1, submit_s=2),
        job("short", gpus=4, limit_min=1, run_s=50, submit_s=3),
    ]
    replay = play(cluster(4, jobs), dataclasses.replace(FIFO, requests=said), 40)
    assert started(replay)["short"] == (30.0, ["n3"])  # at the first backfill pass
    assert replay.plans()["top"] == (120.0, ["n0", "n1", "n2", "n3"])
    assert replay.plans()["long"] == (300.0, ["n3"])  # run time is not known: only its limit counts


def test_who_is_over_a_limit_neither_blocks_nor_plans():
    """Trap 9."""
    cap = Qos(name="cap", limits=Limits(max_tres_per_user={"gres/gpu": 8}, max_jobs_per_user=2))
    said = requests(a=Request(qos="cap"), b=Request(qos="cap"), c=Request(qos="cap"), d=Request())
    jobs = [
        job("a", gpus=4),
        job("b", gpus=6, submit_s=1),
        job("c", gpus=4, submit_s=2),
        job("d", gpus=8, submit_s=3, tenant="d"),
    ]
    config = dataclasses.replace(FIFO, requests=said, qos=[Qos(name="normal"), cap])
    replay = play(cluster(2, jobs), config, 40)
    assert set(started(replay)) == {"a", "c", "d"}
    assert replay.reason_of("b") == "QOSMaxJobsPerUserLimit"  # counts are tested before TRES
    assert "b" not in replay.plans()


def test_a_group_limit_holds_for_all_below_the_account():
    accounts = [
        Account(
            name="top",
            limits=Limits(grp_tres={"gres/gpu": 8}),
            children=[Account(name="a", children=[User(name="a")]), Account(name="b", children=[User(name="b")])],
        )
    ]
    jobs = [job("x", gpus=6), job("y", gpus=4, submit_s=1, tenant="b"), job("z", gpus=2, submit_s=2, tenant="b")]
    replay = play(cluster(2, jobs), dataclasses.replace(FIFO, accounts=accounts), 5)
    assert set(started(replay)) == {"x", "z"}
    assert replay.reason_of("y") == "AssocGrpGRES"


def random_queue(seed: int) -> tuple[WorldSpec, SlurmConfig]:
    """Jobs of one to three nodes, some running, most waiting, priorities by nice."""
    rng = np.random.default_rng(seed)
    jobs, said = [], {}
    for i in range(24):
        limit = int(rng.integers(1, 20))
        jobs.append(
            job(
                f"j{i}",
                gpus=int(rng.choice([1, 2, 4, 8])),
                on=int(rng.integers(1, 4)),
                limit_min=limit,
                run_s=60 * limit,
                submit_s=float(rng.integers(0, 20)),
                tenant="abc"[rng.integers(3)],
            )
        )
        said[f"j{i}"] = Request(nice=-int(rng.integers(0, 50)))
    return cluster(4, jobs), dataclasses.replace(FIFO, requests=requests(**said))


@pytest.mark.parametrize("seed", range(8))
def test_backfill_never_delays_a_planned_start_of_higher_priority(seed):
    """Within a pass, with frozen priorities and true limits: who starts touches no node that is planned for anyone
    before it during its own limit, and the plans of the first k do not depend on how many are tested after them.
    """
    spec, config = random_queue(seed)
    replay = Replay(spec, config, by_hand=True)
    replay.run_until(21)
    replay.one_pass("Main")
    before = replay.save()
    order = [replay.world.job_name(int(r["row"])) for r in replay.slurm.order[: int(replay.own["num_order"])]]
    replay.one_pass("Backfill")
    plans, starts = replay.plans(), {name: run for name, run in started(replay).items() if run[0] == 21.0}
    limits = {j.name: (j.claim_ms or 0) / SECOND_MS for j in spec.jobs}
    waiting = [name for name in order if replay.state_of(name) == "PD"]
    assert waiting
    for name, (_, where) in starts.items():
        for other in waiting:
            if name in order and order.index(other) < order.index(name) and plans[other][0] <= 21 + limits[name]:
                assert not set(where) & set(plans[other][1]), (name, other)
    replay.restore(before)
    replay.own["bf_max_test"] = len(order) // 2
    replay.one_pass("Backfill")
    for name, plan in replay.plans().items():
        assert plans[name] == plan


# ---------------------------------------------------------------------------------------------------------------
# Preemption, failures
# ---------------------------------------------------------------------------------------------------------------

PREEMPTS = SlurmConfig(
    qos=[Qos(name="normal"), Qos(name="low", priority=10), Qos(name="high", priority=100, preempts=["low"])],
    preemption=Preemption(type="preempt/qos", modes=frozenset({"REQUEUE"})),
)


def test_the_first_candidate_goes_whatever_gpus_it_holds_and_comes_back_later():
    """Trap 8: two GPUs are wanted, the job with six is first by id; it sits out the delay and runs from zero."""
    said = requests(six=Request(qos="low"), two=Request(qos="low"), high=Request(qos="high"))
    jobs = [
        job("six", gpus=6, run_s=100),
        job("two", gpus=2, run_s=400, submit_s=1),
        job("high", gpus=2, run_s=30, submit_s=10),
    ]
    replay = play(cluster(1, jobs, requeue_hold_ms=121_000), dataclasses.replace(PREEMPTS, requests=said), 400)
    assert [(v.label, v.at_s) for v in replay.victims] == [("six", 10.0)]
    assert [run.start_s for run in replay.runs["high"]] == [10.0]
    assert [run.start_s for run in replay.runs["six"]] == [0.0, 131.0]
    assert replay.runs["six"][-1].end_s == 231.0


def test_nobody_goes_if_all_together_would_not_suffice():
    said = requests(low=Request(qos="low"), normal=Request(), high=Request(qos="high"))
    jobs = [job("low", gpus=8), job("normal", gpus=8), job("high", gpus=8, on=2, submit_s=5)]
    replay = play(cluster(2, jobs), dataclasses.replace(PREEMPTS, requests=said), 60)
    assert replay.victims == [] and replay.state_of("high") == "PD"


def test_youngest_first_exempt_time_and_cancel():
    said = requests(old=Request(qos="low"), young=Request(qos="low"), high=Request(qos="high"))
    jobs = [job("old", gpus=8), job("young", gpus=8, submit_s=5), job("high", gpus=8, submit_s=10)]
    how = Preemption(type="preempt/qos", modes=frozenset({"CANCEL"}), youngest_first=True, exempt_time_s=20)
    replay = play(cluster(2, jobs), dataclasses.replace(PREEMPTS, requests=said, preemption=how), 60)
    assert [(v.label, v.at_s) for v in replay.victims] == [("old", 20.0)]  # the young one is still exempt
    assert replay.final_state("old") == "PREEMPTED"


def test_a_victim_runs_on_through_its_grace_time():
    low = Qos(name="low", priority=10, grace_time_s=10)
    said = requests(low=Request(qos="low"), high=Request(qos="high"))
    config = dataclasses.replace(PREEMPTS, requests=said, qos=[PREEMPTS.qos[0], low, PREEMPTS.qos[2]])
    replay = Replay(cluster(1, [job("low", gpus=8), job("high", gpus=8, submit_s=5)]), config)
    replay.run_until(14)
    assert (replay.state_of("low"), replay.state_of("high")) == ("R", "PD")
    replay.run_until(16)
    assert (replay.state_of("low"), replay.state_of("high")) == ("PD", "R")


def test_suspension_gives_up_cores_and_keeps_gpus():
    """Trap 12: the urgent CPU job runs in place of the suspended one, the urgent GPU job waits."""
    config = SlurmConfig(
        partitions=[
            Partition(name="main", is_default=True),
            Partition(name="urgent", priority_tier=10, preempt_mode="OFF"),
        ],
        preemption=Preemption(type="preempt/partition_prio", modes=frozenset({"SUSPEND", "GANG"})),
        requests=requests(victim=Request(), urgent=Request(partitions=["urgent"])),
    )
    victim = job("victim", gpus=8, cpus=64, run_s=100)
    replay = play(cluster(1, [victim, job("urgent", cpus=64, run_s=20, submit_s=10)]), config, 15)
    assert (replay.state_of("victim"), replay.state_of("urgent")) == ("S", "R")
    replay.run_until(200)
    assert replay.runs["victim"][0].suspended == [(10.0, 30.0)]
    assert replay.runs["victim"][0].end_s == 120.0
    replay = play(cluster(1, [victim, job("urgent", gpus=1, cpus=1, run_s=20, submit_s=10)]), config, 15)
    assert (replay.state_of("victim"), replay.state_of("urgent")) == ("R", "PD")


def test_jobs_on_the_same_cores_take_turns():
    """Trap 12: what Slurm calls gang scheduling."""
    config = SlurmConfig(
        partitions=[Partition(name="p", is_default=True, over_subscribe=2)],
        preemption=Preemption(modes=frozenset({"GANG"}), time_slice_s=5),
        requests=requests(a=Request(), b=Request()),
    )
    replay = Replay(cluster(1, [job("a", cpus=64), job("b", cpus=64, submit_s=1)]), config)
    seen = []
    for second in (4, 9, 14, 19):
        replay.run_until(second)
        seen.append((replay.state_of("a"), replay.state_of("b")))
    assert seen == [("R", "S"), ("S", "R"), ("R", "S"), ("S", "R")]


# ---------------------------------------------------------------------------------------------------------------
# In the environment
# ---------------------------------------------------------------------------------------------------------------


def test_it_runs_any_world_with_tenants_as_accounts():
    """Weights are shares: with equal usage the tenant with more shares is first."""
    jobs = [gang("first", 1, gpus=8, tenant="rich", work_min=10)]
    jobs += [
        gang(f"{t}{i}", 1, gpus=8, tenant=t, work_min=10, submit_min=1) for i in range(2) for t in ("poor", "rich")
    ]
    spec = world(nodes(8), jobs, weights={"poor": 1, "rich": 1})
    done = World.from_state(spec)
    done.run(build("slurm"))
    order = [done.job_name(int(row["row"])) for row in done.ended()]
    assert order[0] == "first" and order[1] == "poor0"  # rich has used, poor has not
    assert len(order) == 5


def test_it_keeps_to_the_worlds_quotas_and_topology():
    from builders import queue, racks

    from gangline.envs.core.spec import TopologyWish

    jobs = [gang("over", 2, gpus=8), gang("fits", 1, gpus=8, submit_min=1)]
    spec = world(nodes(8, 8), jobs, quota="enforced", queues=[queue("t0", nominal=8)])
    done = World.from_state(spec)
    done.run(build("slurm"), 30 * MINUTE_MS)
    assert done.slot_of("fits") is not None and done.dump()["jobs"]["fits"]["state"] == "running"
    assert done.dump()["jobs"]["over"]["state"] == "queued"
    machines, domains = racks(2, 2)
    jobs = [gang("f", 1, gpus=8), gang("wish", 2, gpus=8, submit_min=1, topology=TopologyWish(tier=1))]
    done = World.from_state(world(machines, jobs, domains=domains))
    done.run(build("slurm"), 5 * MINUTE_MS)
    assert [pod[1] for pod in done.dump()["jobs"]["wish"]["bound"]] == ["n2", "n3"]


@pytest.mark.parametrize(
    ("config", "want"),
    [
        (SlurmConfig(partitions=[Partition(name="p"), Partition(name="p")]), "partitions 'p' is defined twice"),
        (SlurmConfig(priority=Priority(flags=frozenset({"NO_FAIRTREE"}))), "did you mean 'NO_FAIR_TREE'"),
        (SlurmConfig(qos=[Qos(name="a", preempts=["b"])]), "unknown QOS 'b'"),
        (SlurmConfig(requests={"nobody": Request()}), "unknown job with a request 'nobody'"),
        (SlurmConfig(preemption=Preemption(modes=frozenset({"SUSPEND"}))), "expected SUSPEND,GANG"),
        (SlurmConfig(accounts=[Account(name="other")]), "tenant 'a' is no account"),
        (SlurmConfig(usage={"a:nobody": 1.0}), "unknown association with usage"),
        (SlurmConfig(scheduler=SchedulerParameters(bf_max_job_test=5000)), "expected at most 1000"),
    ],
)
def test_settings_that_contradict_themselves_are_one_line(config, want):
    with pytest.raises(GanglineError, match=want) as error:
        block_for(config, World.from_state(cluster(1, [job("j", gpus=1)])))
    assert "\n" not in str(error.value)


def test_defaults_are_what_the_docs_say():
    config = world_defaults()
    assert (config.priority.weight_fairshare, config.priority.weight_age) == (10_000, 1_000)
    assert config.scheduler.bf_interval_s == 30 and config.scheduler.bf_max_job_test == 500
    assert isinstance(nodes(8)[0], NodeSpec)
