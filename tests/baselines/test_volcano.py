"""Stories of Volcano and of kube-scheduler: what a user of the real system would see."""

from __future__ import annotations

import pytest
from builders import gang, minutes, nodes, queue

from gangline.baselines.base import build
from gangline.baselines.volcano import volcano
from gangline.baselines.volcano.config import CHART_TIERS, PodGroup, VolcanoConfig, plugin
from gangline.baselines.volcano.state import Phase, volcano_dtype
from gangline.envs.core.spec import OptionsSpec, PodSetSpec, QueueSpec, TenantSpec, WorldSpec
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError

PREEMPTING = "allocate, preempt"  # enqueue would not admit what finds the cluster full


def cluster(*gpus, jobs, queues=(), tenants=None, **options):
    tenants = tenants or [TenantSpec(name="t0")]
    return World.from_state(
        WorldSpec(nodes=nodes(*gpus), jobs=jobs, queues=queues, tenants=tenants, options=OptionsSpec(**options))
    )


def held(world):
    """GPUs that each live job holds."""
    return {name: len(job["bound"]) for name, job in world.dump()["jobs"].items()}


def outcome(world):
    return {row["name"]: (row["outcome"], row["first_start_ms"]) for row in world.dump()["ended"]}


# ---------------------------------------------------------------------------------------------------------------
# Gangs
# ---------------------------------------------------------------------------------------------------------------


def test_two_gangs_of_a_hundred_workers_never_hold_half_each():
    world = cluster(*[8] * 19, jobs=[gang("a", 100), gang("b", 100)])
    scheduler = build("volcano")
    for minute in range(0, 130, 10):
        world.run(scheduler, minutes(minute))
        assert all(count in (0, 100) for count in held(world).values())
    assert outcome(world) == {"a": ("done", 0), "b": ("done", minutes(60))}


def test_kube_scheduler_starts_half_of_each_gang_and_neither_ever_runs():
    world = cluster(3, 3, jobs=[gang("a", 4), gang("b", 4)], gang=False)
    world.run(build("kube_scheduler"), minutes(600))
    assert held(world) == {"a": 3, "b": 3}
    assert all(job["state"] == "partial" for job in world.dump()["jobs"].values())


def test_volcano_runs_one_of_them_and_then_the_other():
    world = cluster(3, 3, jobs=[gang("a", 4), gang("b", 4)], gang=False)
    world.run(build("volcano"), minutes(600))
    assert outcome(world) == {"a": ("done", 0), "b": ("done", minutes(60))}


def test_a_small_job_overtakes_a_gang_that_does_not_fit_because_a_failed_gang_holds_nothing():
    jobs = [gang("first", 4), gang("big", 8, submit_min=1), gang("small", 2, submit_min=2)]
    world = cluster(8, jobs=jobs)
    config = VolcanoConfig(tiers=[[plugin("gang"), plugin("predicates")]])
    world.run(volcano(config), minutes(3))
    assert held(world) == {"first": 4, "big": 0, "small": 2}


def test_overcommit_holds_back_what_goes_beyond_twelve_tenths_of_the_cluster():
    jobs = [gang("first", 10), gang("second", 3, submit_min=1), gang("third", 2, submit_min=2)]
    world = cluster(10, jobs=jobs)
    config = VolcanoConfig(tiers=[[plugin("gang"), plugin("overcommit"), plugin("predicates")]])
    scheduler = volcano(config, one_session=True)
    private = scheduler.private_for(world)
    k = private.view(volcano_dtype(world.size))[0]
    door = type("Door", (), {"compiled": scheduler.compiled, "private_for": lambda self, world: private})
    world.run(door(), minutes(3))
    phases = {name: Phase(int(k["jobs"][world.slot_of(name)]["phase"])).name for name in ("first", "second", "third")}
    assert phases == {"first": "RUNNING", "second": "PENDING", "third": "INQUEUE"}  # 10 run, 12 - 10 are left


def test_a_gang_takes_its_minimum_first_and_its_surplus_in_turns_with_others():
    a = gang("a", 6, min_member=2)
    b = gang("b", 6, min_member=2)
    world = cluster(8, jobs=[a, b])
    config = VolcanoConfig(tiers=[[plugin("gang"), plugin("drf"), plugin("predicates")]])
    world.run(volcano(config), minutes(1))
    assert held(world) == {"a": 4, "b": 4}


# ---------------------------------------------------------------------------------------------------------------
# Preempt and reclaim
# ---------------------------------------------------------------------------------------------------------------


def test_with_the_chart_preempt_may_break_a_running_gang():
    jobs = [gang("low", 8), gang("high", 4, priority=10, submit_min=10)]
    world = cluster(8, jobs=jobs)
    world.run(build("volcano", actions=PREEMPTING), minutes(11))
    assert held(world) == {"low": 4, "high": 4}
    assert world.dump()["jobs"]["low"]["state"] == "partial"


def test_an_empty_answer_of_gang_is_no_veto_the_next_tier_is_asked():
    jobs = [gang("low", 8), gang("high", 4, priority=10, submit_min=10)]
    world = cluster(8, jobs=jobs)
    world.run(build("volcano", actions=PREEMPTING, tiers="built_in"), minutes(11))
    assert held(world) == {"low": 4, "high": 4}  # drf, one tier further down, gives them up


def test_gang_protects_a_running_gang_where_no_other_tier_is_asked():
    jobs = [gang("low", 8), gang("high", 4, priority=10, submit_min=10)]
    world = cluster(8, jobs=jobs)
    tiers = [[plugin("priority"), plugin("gang")], [plugin("predicates"), plugin("nodeorder")]]
    world.run(volcano(VolcanoConfig(actions=("allocate", "preempt"), tiers=tiers)), minutes(11))
    assert held(world) == {"low": 8, "high": 0}


def test_reclaim_takes_what_is_beyond_the_deserved_share_and_leaves_gangs_whole():
    tenants = [TenantSpec(name="mine", queue="mine"), TenantSpec(name="theirs", queue="theirs")]
    jobs = [
        gang("borrower", 8, min_member=2, tenant="theirs"),
        gang("owner", 4, tenant="mine", submit_min=10),
    ]
    world = cluster(8, jobs=jobs, tenants=tenants, queues=[QueueSpec(name="mine"), QueueSpec(name="theirs")])
    world.run(build("volcano", actions="allocate, reclaim"), minutes(11))
    assert held(world) == {"borrower": 4, "owner": 4}


def test_enqueue_keeps_a_job_from_preempting_in_a_full_cluster():
    jobs = [gang("low", 8), gang("high", 4, priority=10, submit_min=10)]
    world = cluster(8, jobs=jobs)
    world.run(build("volcano", actions="enqueue, allocate, preempt"), minutes(11))
    assert held(world) == {"low": 8, "high": 0}


def test_preempt_never_crosses_queues():
    tenants = [TenantSpec(name="mine", queue="mine"), TenantSpec(name="theirs", queue="theirs")]
    jobs = [gang("low", 8, tenant="theirs"), gang("high", 4, tenant="mine", priority=10, submit_min=10)]
    world = cluster(8, jobs=jobs, tenants=tenants, queues=[QueueSpec(name="mine"), QueueSpec(name="theirs")])
    world.run(build("volcano", actions=PREEMPTING), minutes(11))
    assert held(world) == {"low": 8, "high": 0}


def test_kube_scheduler_evicts_single_workers_of_a_gang():
    jobs = [gang("low", 8), gang("high", 1, priority=10, submit_min=10)]
    world = cluster(4, 4, jobs=jobs, gang=False)
    world.run(build("kube_scheduler"), minutes(11))
    assert held(world) == {"low": 7, "high": 1}


def test_kube_scheduler_without_preemption_waits():
    jobs = [gang("low", 8), gang("high", 1, priority=10, submit_min=10)]
    world = cluster(4, 4, jobs=jobs, gang=False)
    world.run(build("kube_scheduler", preemption=False), minutes(11))
    assert held(world) == {"low": 8, "high": 0}


# ---------------------------------------------------------------------------------------------------------------
# Every world
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["volcano", "kube_scheduler"])
@pytest.mark.parametrize("quota", ["off", "tracked", "enforced"])
@pytest.mark.parametrize("is_gang", [True, False])
def test_every_kind_of_world_is_worked_off(name, quota, is_gang):
    jobs = [
        gang("gang", 4, gpus=2),
        gang("batch", 5, kind="batch", submit_min=1),
        gang("half", 2, gpus=0.5, submit_min=2),
        gang("service", 2, kind="service", submit_min=3),
        gang("mixed", 1, submit_min=4),
    ]
    tenants = [TenantSpec(name="t0", queue="q")]
    world = cluster(8, 8, jobs=jobs, tenants=tenants, queues=[queue("q", nominal=12)], quota=quota, gang=is_gang)
    world.run(build(name))
    assert {name: end for name, (end, _) in outcome(world).items()} == dict.fromkeys((j.name for j in jobs), "done")


def test_one_world_gives_the_same_schedule_twice():
    jobs = [gang(f"j{i}", 1 + i % 5, submit_min=i / 7, work_min=10 + i % 13) for i in range(80)]
    starts = []
    for _ in range(2):
        world = cluster(8, 4, 2, jobs=jobs)
        world.run(build("volcano"))
        starts.append(outcome(world))
    assert starts[0] == starts[1]
    assert len(starts[0]) == 80


def test_a_queue_without_limits_of_its_own_lends_everything():
    tenants = [TenantSpec(name="a"), TenantSpec(name="b")]
    world = cluster(8, jobs=[gang("all", 8, tenant="a")], tenants=tenants)
    world.run(build("volcano"), minutes(1))
    assert held(world) == {"all": 8}


def test_best_effort_pods_are_what_backfill_places():
    job = gang("job", 1)
    job = type(job)(**{**vars(job), "pod_sets": [*job.pod_sets, PodSetSpec(count=1, request={})], "min_member": 1})
    world = cluster(1, jobs=[job])
    world.run(build("volcano", actions="enqueue, allocate"), minutes(1))
    assert held(world) == {"job": 1}
    world = cluster(1, jobs=[job])
    world.run(build("volcano"), minutes(1))
    assert held(world) == {"job": 2}


def with_a_pod_that_asks_nothing(job):
    sets = [*job.pod_sets, PodSetSpec(count=1, request={})]
    return type(job)(**{**vars(job), "pod_sets": sets, "min_member": job.pod_sets[0].count + 1})


def test_a_gang_with_a_best_effort_pod_starts_whole_where_the_world_demands_it():
    world = cluster(8, jobs=[with_a_pod_that_asks_nothing(gang("job", 4))])
    world.run(build("volcano"), 0)
    assert held(world) == {"job": 5}


def test_what_the_world_refuses_is_not_tried_again_until_something_happens():
    world = cluster(8, jobs=[with_a_pod_that_asks_nothing(gang("job", 4)), gang("late", 1, submit_min=10)])
    groups = [PodGroup(job="job", min_member=2)]  # less than the world's gang rule wants
    config = VolcanoConfig(tiers=[[plugin("gang"), plugin("predicates")]], pod_groups=groups)
    world.run(volcano(config), minutes(60))
    assert held(world) == {"job": 0, "late": 1}
    assert int(world.record["totals"]["num_refused"]) < 10
    world.run(volcano(config))  # comes to an end


# ---------------------------------------------------------------------------------------------------------------
# Bad input
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"actions": "enqueue, alocate"}, "alocate"),
        ({"tiers": "chrat"}, "chrat"),
        ({"grace_s": -1}, "grace_s"),
        ({"config": VolcanoConfig(tiers=[[plugin("gnag")]])}, "gnag"),
        ({"config": VolcanoConfig(tiers=[[plugin("drf", on=["hierarchy"]), plugin("proportion")]])}, "hierarchy"),
    ],
)
def test_a_wrong_configuration_is_one_clear_line(options, words):
    world = cluster(1, jobs=[])
    with pytest.raises(GanglineError) as raised:
        build("volcano", **options).private_for(world)
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_the_default_is_what_the_chart_installs():
    config = build("volcano").config
    assert config.actions == ("enqueue", "allocate", "backfill")
    assert config.tiers is CHART_TIERS
    assert [p.name for p in config.tiers[0]] == ["priority", "gang", "conformance"]
    assert "preemptable" not in config.tiers[0][1].enabled
