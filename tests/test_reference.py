"""Stories of the reference simulator alone, against numbers worked out by hand from docs/model.md.

`test_lockstep.py` then says that the compiled simulator does the same.
"""

from __future__ import annotations

from typing import Any

import pytest
from builders import admit, batch, cohort, evict, gang, milli, minutes, nodes, place, queue, racks, service, world
from reference import ReferenceWorld
from reference.simulator import splitmix64, water_fill

from gangline.envs.core.spec import (
    ChangeSpec,
    Command,
    JobSpec,
    LiveSpec,
    NodeSpec,
    PlacedPods,
    PodSetSpec,
    TenantSpec,
    WorldSpec,
)
from gangline.envs.errors import GanglineError

HOUR = minutes(60)


def started(spec: WorldSpec) -> ReferenceWorld:
    """A world at its first instant, arrivals of that instant in."""
    w = ReferenceWorld.from_state(spec)
    w.advance(w.now_ms)
    return w


def do(w: ReferenceWorld, *commands: Command) -> None:
    """One transaction that must be applied."""
    assert w.apply([list(commands)]) == ["ok"]


def at(w: ReferenceWorld, minute: float) -> dict[str, Any]:
    """The world at that minute."""
    w.advance(minutes(minute))
    return w.dump()


def gpu_minutes(value: int) -> float:
    return value / 1000 / minutes(1)


# ---------------------------------------------------------------------------------------------------------------
# Checkpoints, lost work, restart cost
# ---------------------------------------------------------------------------------------------------------------


def test_preemption_50_minutes_in_loses_the_20_since_the_30_minute_checkpoint_and_pays_the_restart() -> None:
    w = started(world(nodes(8), [gang("a", 1, gpus=8, work_min=100, restart_cost_min=5)]))
    do(w, place("a", "n0"))
    at(w, 50)
    do(w, evict("a"))
    a = w.dump()["jobs"]["a"]
    assert (a["state"], a["preemptions"], a["left"]) == ("queued", 1, minutes(70) * 1000)
    assert gpu_minutes(a["gpu_time"]["lost"]) == 20 * 8
    assert gpu_minutes(a["gpu_time"]["kept"]) == 30 * 8
    do(w, place("a", "n0"))
    assert w.next_event_ms() == minutes(50 + 5 + 70)
    [end] = at(w, 125)["ended"]
    want = {"held": 125, "kept": 100, "lost": 20, "overhead": 5, "undecided": 0}
    assert {k: gpu_minutes(end["gpu_time"][k]) / 8 for k in want} == want
    assert (end["outcome"], end["starts"], end["end_ms"]) == ("done", 2, minutes(125))
    totals = w.dump()["totals"]
    assert gpu_minutes(totals["lost_area"]) == 20 * 8
    assert gpu_minutes(totals["restart_area"]) == 5 * 8


def test_writing_checkpoints_takes_time_but_the_end_does_not_wait_for_one() -> None:
    # 30 compute, 2 write, 30 compute, 2 write, 30 compute = 94; the last interval ends with the job, nothing is written
    w = started(world(nodes(1), [gang("a", 1, work_min=90, checkpoint_cost_min=2)]))
    do(w, place("a", "n0"))
    assert w.next_event_ms() == minutes(94)
    [end] = at(w, 94)["ended"]
    assert gpu_minutes(end["gpu_time"]["overhead"]) == 4
    assert gpu_minutes(end["gpu_time"]["kept"]) == 90


def test_a_checkpoint_counts_only_once_it_is_written() -> None:
    w = started(world(nodes(1), [gang("a", 1, work_min=90, checkpoint_cost_min=2)]))
    do(w, place("a", "n0"))
    assert at(w, 31)["jobs"]["a"]["saved_left"] == minutes(90) * 1000
    assert at(w, 32)["jobs"]["a"]["saved_left"] == minutes(60) * 1000


def test_no_checkpoints_means_everything_is_lost() -> None:
    w = started(world(nodes(1), [gang("a", 1, work_min=90, checkpoint_min=None)]))
    do(w, place("a", "n0"))
    at(w, 80)
    do(w, evict("a"))
    assert gpu_minutes(w.dump()["jobs"]["a"]["gpu_time"]["lost"]) == 80


def test_a_job_that_fails_keeps_its_gpu_time_as_kept_bad() -> None:
    w = started(world(nodes(1), [gang("a", 1, work_min=90, outcome="failed", outcome_ms=minutes(40))]))
    do(w, place("a", "n0"))
    assert w.next_event_ms() == minutes(40)
    dump = at(w, 60)
    assert dump["ended"][0]["outcome"] == "failed"
    assert (dump["totals"]["kept"], gpu_minutes(dump["totals"]["kept_bad"])) == (0, 40)


# ---------------------------------------------------------------------------------------------------------------
# Gangs
# ---------------------------------------------------------------------------------------------------------------


def test_with_the_gang_on_three_of_four_workers_are_refused_and_nothing_is_bound() -> None:
    w = started(world(nodes(8), [gang("a", 4, gpus=2)]))
    assert w.apply([[place("a", "n0", 3)]]) == ["gang_incomplete"]
    assert w.dump()["jobs"]["a"]["state"] == "queued"
    assert w.dump()["nodes"]["n0"]["idle"] == {"gpu": 8000}


def test_with_the_gang_off_a_half_started_job_hangs_with_its_6_gpus_until_the_timeout() -> None:
    w = started(world(nodes(8), [gang("a", 4, gpus=2)], gang=False, hang_timeout_ms=HOUR))
    do(w, place("a", "n0", 3))
    a = at(w, 40)["jobs"]["a"]
    assert (a["state"], a["left"]) == ("partial", HOUR * 1000)
    assert gpu_minutes(a["gpu_time"]["hang"]) == 6 * 40
    dump = at(w, 100)
    assert dump["jobs"]["a"]["state"] == "queued"
    assert dump["jobs"]["a"]["last_submit_ms"] == HOUR
    assert gpu_minutes(dump["totals"]["hang_area"]) == 6 * 60
    assert dump["tenants"]["t0"]["running_area"] == 0


def test_the_last_worker_starts_a_half_started_gang() -> None:
    w = started(world(nodes(8), [gang("a", 4, gpus=2)], gang=False))
    do(w, place("a", "n0", 3))
    at(w, 10)
    do(w, place("a", "n0", 1))
    assert w.next_event_ms() == minutes(70)
    assert w.dump()["jobs"]["a"]["first_start_ms"] == minutes(10)


def test_a_hanging_job_hangs_once() -> None:
    job = gang("a", 1, gpus=2, outcome="hangs", outcome_ms=minutes(40))
    w = started(world(nodes(2), [job], hang_timeout_ms=minutes(20), requeue_hold_ms=minutes(3)))
    do(w, place("a", "n0"))
    dump = at(w, 50)
    assert dump["jobs"]["a"]["is_hung"]
    assert gpu_minutes(dump["jobs"]["a"]["gpu_time"]["hang"]) == 2 * 10
    dump = at(w, 62)
    assert (dump["jobs"]["a"]["state"], dump["jobs"]["a"]["eligible_ms"]) == ("not_eligible", minutes(63))
    assert gpu_minutes(dump["jobs"]["a"]["gpu_time"]["lost"]) == 2 * 10
    assert dump["tenants"]["t0"]["demand"] == milli(2)  # a requeue delay is not the user's wish
    at(w, 63)
    do(w, place("a", "n0"))
    [end] = at(w, 63 + 30)["ended"]
    assert end["outcome"] == "done"


# ---------------------------------------------------------------------------------------------------------------
# Speed
# ---------------------------------------------------------------------------------------------------------------


def test_an_elastic_job_runs_at_the_share_of_its_workers_and_faster_once_grown() -> None:
    w = started(world(nodes(4), [gang("a", 4, min_member=2, work_min=60)]))
    do(w, place("a", "n0", 2))
    assert w.dump()["jobs"]["a"]["speed"] == 500
    assert w.next_event_ms() == minutes(120)
    at(w, 60)
    do(w, place("a", "n0", 2))
    assert w.next_event_ms() == minutes(90)


def test_shrinking_keeps_the_progress_while_min_member_stay() -> None:
    w = started(world(nodes(4), [gang("a", 4, min_member=2, work_min=60)]))
    do(w, place("a", "n0", 4))
    at(w, 20)
    do(w, evict("a", 2, then="shrink"))
    a = w.dump()["jobs"]["a"]
    assert (a["state"], a["speed"], a["left"], a["gpu_time"]["lost"]) == ("running", 500, minutes(40) * 1000, 0)


def test_shrinking_below_min_member_stops_and_rolls_back() -> None:
    w = started(world(nodes(4), [gang("a", 4, min_member=2, work_min=60)]))
    do(w, place("a", "n0", 4))
    at(w, 40)
    do(w, evict("a", 3))
    a = w.dump()["jobs"]["a"]
    assert (a["state"], a["left"]) == ("partial", minutes(30) * 1000)
    assert gpu_minutes(a["gpu_time"]["lost"]) == 4 * 10


def test_locality_slows_a_job_that_spans_racks() -> None:
    members, domains = racks(2, 2)
    spec = world(members, [gang("a", 2, gpus=8)], domains=domains, locality=(1000, 900, 700))
    for second, want_speed in (("n1", 900), ("n2", 700)):
        w = started(spec)
        do(w, place("a", "n0"), place("a", second))
        assert w.dump()["jobs"]["a"]["speed"] == want_speed


def test_the_slowest_node_sets_the_pace_and_the_finish_is_rounded_up() -> None:
    fast, slow = nodes(1, 1)
    spec = world([fast, NodeSpec(name="n1", amounts=slow.amounts, speed=700)], [gang("a", 2, work_min=1)])
    w = started(spec)
    do(w, place("a", "n0"), place("a", "n1"))
    assert w.next_event_ms() == 85_715  # 60,000 / 0.7 = 85,714.29


# ---------------------------------------------------------------------------------------------------------------
# GPUs and other resources
# ---------------------------------------------------------------------------------------------------------------


def test_fractions_go_to_the_fullest_gpu_that_suffices_and_whole_gpus_to_the_lowest_empty_ones() -> None:
    jobs = [gang(f"j{i}", 1, gpus=g) for i, g in enumerate((0.5, 0.7, 0.3, 2, 0.4))]
    w = started(world(nodes(4), jobs))
    for i in range(5):
        do(w, place(f"j{i}", "n0"))
    want = {"j0": (0,), "j1": (1,), "j2": (1,), "j3": (2, 3), "j4": (0,)}
    assert {name: job["bound"][0][2] for name, job in w.dump()["jobs"].items()} == want
    assert w.dump()["nodes"]["n0"]["gpu_free"] == [100, 0, 0, 0]


def test_two_shares_of_600_do_not_fit_one_gpu() -> None:
    w = started(world(nodes(1), [gang("a", 1, gpus=0.6), gang("b", 1, gpus=0.6)]))
    assert w.apply([[place("a", "n0")], [place("b", "n0")]]) == ["ok", "no_room"]


def test_a_gpu_and_a_half_is_refused_when_the_world_is_built() -> None:
    with pytest.raises(GanglineError, match="1500"):
        ReferenceWorld.from_state(world(nodes(2), [gang("a", 1, gpus=1.5)]))


def test_a_whole_node_holds_more_than_it_asked_for_and_the_rest_is_surplus() -> None:
    w = started(world(nodes(8), [gang("a", 1, gpus=3)]))
    do(w, place("a", "n0", whole_node=True))
    dump = at(w, 10)
    time = dump["jobs"]["a"]["gpu_time"]
    assert [gpu_minutes(time[k]) for k in ("held", "surplus", "undecided")] == [80, 50, 30]
    assert dump["tenants"]["t0"]["held"] == milli(8)


def test_an_oversized_job_is_rejected_on_arrival() -> None:
    dump = started(world(nodes(8, 7), [gang("a", 2, gpus=8), gang("b", 2, gpus=7)])).dump()
    assert [(e["name"], e["outcome"], e["reason"]) for e in dump["ended"]] == [("a", "rejected", "larger_than_cluster")]
    assert list(dump["jobs"]) == ["b"]


def test_reserved_gpus_are_refused_to_others_until_the_reservation_expires() -> None:
    w = started(world(nodes(8), [gang("big", 1, gpus=8), gang("small", 1, gpus=3)]))
    do(w, Command(op="reserve", job="big", node="n0", amounts={"gpu": 6000}, until_ms=HOUR))
    assert w.apply([[place("small", "n0")]]) == ["no_room"]
    assert gpu_minutes(at(w, 60)["totals"]["reserved_area"]) == 6 * 60
    do(w, place("small", "n0"))


# ---------------------------------------------------------------------------------------------------------------
# Eviction, suspension, walltime, failures, waiting
# ---------------------------------------------------------------------------------------------------------------


def test_under_grace_the_gpus_stay_held_and_nothing_else_fits_until_the_release() -> None:
    w = started(world(nodes(4), [gang("a", 2, gpus=2), gang("b", 1, gpus=2)]))
    do(w, place("a", "n0", 2))
    at(w, 10)
    do(w, evict("a", grace_min=3))
    assert w.apply([[place("b", "n0")]]) == ["no_room"]
    dump = at(w, 12)
    assert dump["jobs"]["a"]["state"] == "releasing"
    assert dump["nodes"]["n0"]["releasing"] == {"gpu": 4000}
    dump = at(w, 13)
    assert (dump["jobs"]["a"]["state"], dump["jobs"]["a"]["last_submit_ms"]) == ("queued", minutes(13))
    assert gpu_minutes(dump["jobs"]["a"]["gpu_time"]["releasing"]) == 4 * 3
    do(w, place("b", "n0"))


def test_evicting_without_grace_makes_room_within_the_same_transaction() -> None:
    w = started(world(nodes(4), [gang("a", 1, gpus=4), gang("b", 1, gpus=4)]))
    do(w, place("a", "n0"))
    do(w, evict("a"), place("b", "n0"))
    assert {n: j["state"] for n, j in w.dump()["jobs"].items()} == {"a": "queued", "b": "running"}


def test_a_refused_command_undoes_those_before_it() -> None:
    w = started(world(nodes(4), [gang("a", 1, gpus=4), gang("b", 2, gpus=4)], reject_oversized=False))
    do(w, place("a", "n0"))
    before = w.dump()
    assert w.apply([[evict("a"), place("b", "n0", 2)]]) == ["no_room"]
    assert w.dump() == before


def test_a_job_that_may_not_be_requeued_ends_preempted() -> None:
    w = started(world(nodes(4), [gang("a", 1, gpus=4, requeue=False)]))
    do(w, place("a", "n0"))
    at(w, 10)
    do(w, evict("a", grace_min=1))
    assert w.dump()["tenants"]["t0"]["demand"] == milli(4)  # it adds what it holds
    [end] = at(w, 20)["ended"]
    assert (end["outcome"], end["end_ms"], gpu_minutes(end["gpu_time"]["lost"])) == ("preempted", minutes(11), 40)


def test_a_suspended_job_frees_what_it_is_told_to_and_resumes_on_its_old_gpus() -> None:
    two_gpus_and_cpu = PodSetSpec(count=1, request={"gpu": 2000, "cpu": 6000})
    spec = world(
        nodes(4, amounts={"cpu": 8000}),
        [
            JobSpec(name="a", tenant="t0", pod_sets=[two_gpus_and_cpu], work_ms=HOUR),
            gang("b", 1, gpus=1),
        ],
        resources=("gpu", "cpu"),
    )
    w = started(spec)
    do(w, place("a", "n0"))
    at(w, 10)
    do(w, Command(op="suspend", job="a", freed=("gpu",)))
    assert w.dump()["nodes"]["n0"]["idle"] == {"gpu": 4000, "cpu": 2000}
    do(w, place("b", "n0"))
    at(w, 20)
    assert w.apply([[Command(op="resume", job="a")]]) == ["no_room"]
    do(w, evict("b"))
    do(w, Command(op="resume", job="a"))
    a = w.dump()["jobs"]["a"]
    assert (a["state"], a["gpu_time"]["suspended"], a["bound"]) == ("running", 0, [(0, "n0", (0, 1), 1000)])
    assert w.next_event_ms() == minutes(70)


def test_a_job_is_killed_at_its_claim_rounded_up_to_the_limit_check() -> None:
    job = gang("a", 1, claim_ms=minutes(10) + 1, killed_at_claim=True, submit_min=0)
    w = started(world(nodes(1), [job], limit_check_ms=30_000))
    do(w, place("a", "n0"))
    [end] = at(w, 30)["ended"]
    assert (end["outcome"], end["end_ms"]) == ("timeout", minutes(10.5))
    assert end["gpu_time"]["lost"] == 0


def test_completing_keeps_the_node_for_a_while_but_not_the_end_time() -> None:
    w = started(world(nodes(1), [gang("a", 1, work_min=10), gang("b", 1, after="a")], completing_ms=1000))
    do(w, place("a", "n0"))
    dump = at(w, 10)
    assert (dump["jobs"]["a"]["state"], dump["jobs"]["b"]["state"]) == ("releasing", "not_eligible")
    w.advance(minutes(10) + 1000)
    dump = w.dump()
    assert dump["jobs"]["b"]["state"] == "queued"  # the job that it waited for is gone, to its last pod
    [end] = dump["ended"]
    assert (end["end_ms"], end["gpu_time"]["releasing"]) == (minutes(10), 1000 * 1000)


def test_a_node_failure_stops_the_whole_gang_and_takes_only_its_own_pods_of_a_batch_job() -> None:
    jobs = [gang("a", 2, gpus=2), batch("b", 2, gpus=2)]
    n1_fails = ChangeSpec(time_ms=minutes(40), what="node_state", target="n1", value="down")
    w = started(world(nodes(4, 4), jobs, changes=[n1_fails]))
    do(w, place("a", "n0"), place("a", "n1"))
    do(w, place("b", "n0"), place("b", "n1"))
    dump = at(w, 40)
    assert dump["jobs"]["a"]["state"] == "queued"
    assert gpu_minutes(dump["jobs"]["a"]["gpu_time"]["lost"]) == 4 * 10
    assert [p[1] for p in dump["jobs"]["b"]["bound"]] == ["n0"]
    assert gpu_minutes(dump["jobs"]["b"]["gpu_time"]["lost"]) == 2 * 40
    assert w.apply([[place("b", "n1")]]) == ["node_unavailable"]
    assert gpu_minutes(at(w, 50)["totals"]["capacity_area"]) == 8 * 40 + 4 * 10


def test_nodes_fail_at_times_of_their_own_whatever_is_scheduled() -> None:
    spec = world(nodes(4, 4), [gang("a", 1, gpus=4, work_min=10_000)], mean_up_ms=HOUR * 10, mean_down_ms=HOUR)
    idle, busy = started(spec), started(spec)
    do(busy, place("a", "n0"))
    states = []
    for minute in range(0, 10_000, 100):
        states.append([n["state"] for n in at(idle, minute)["nodes"].values()])
        assert states[-1] == [n["state"] for n in at(busy, minute)["nodes"].values()]
    assert {"up", "down"} == {s for pair in states for s in pair}


def test_splitmix64_gives_its_published_first_numbers() -> None:
    state, first = splitmix64(0)
    assert first == 0xE220A8397B1DCDAF
    assert splitmix64(state)[1] == 0x6E789E6AA1B965F4


def test_a_job_waits_for_its_begin_time_and_for_the_job_before_it_and_wants_nothing_meanwhile() -> None:
    jobs = [gang("a", 1, work_min=10), gang("b", 1, after="a"), gang("c", 1, eligible_ms=minutes(5))]
    w = started(world(nodes(4), jobs))
    do(w, place("a", "n0"))
    assert w.dump()["tenants"]["t0"]["demand"] == milli(1)
    assert at(w, 5)["tenants"]["t0"]["demand"] == milli(2)
    dump = at(w, 10)
    assert {n: j["state"] for n, j in dump["jobs"].items()} == {"b": "queued", "c": "queued"}
    assert dump["totals"]["waiting_area"] == minutes(5)


def test_a_user_cancels_where_the_job_is() -> None:
    w = started(world(nodes(1), [gang("a", 1, cancel_ms=minutes(7)), gang("b", 1, cancel_ms=minutes(7))]))
    do(w, place("a", "n0"))
    ended = at(w, 7)["ended"]
    assert [(e["name"], e["outcome"], e["reason"]) for e in ended] == [(n, "cancelled", "by_user") for n in "ab"]
    assert gpu_minutes(ended[0]["gpu_time"]["kept"]) == 7


# ---------------------------------------------------------------------------------------------------------------
# Batch jobs and services
# ---------------------------------------------------------------------------------------------------------------


def test_batch_pods_end_one_by_one_and_give_back_their_gpus_at_once() -> None:
    w = started(world(nodes(2), [batch("a", 3, work_min=10)], reject_oversized=False))
    do(w, place("a", "n0"))
    at(w, 4)
    do(w, place("a", "n0"))
    dump = at(w, 10)
    assert len(dump["jobs"]["a"]["bound"]) == 1
    assert dump["nodes"]["n0"]["idle"] == {"gpu": 1000}
    do(w, place("a", "n0"))
    assert w.apply([[place("a", "n0")]]) == ["too_many_pods"]
    [end] = at(w, 30)["ended"]
    assert (end["end_ms"], gpu_minutes(end["gpu_time"]["kept"]), end["starts"]) == (minutes(20), 30, 1)


def test_an_evicted_batch_pod_starts_again_from_nothing() -> None:
    w = started(world(nodes(2), [batch("a", 2, work_min=50, checkpoint_min=10, restart_cost_min=1)]))
    do(w, place("a", "n0", 2))
    at(w, 40)
    do(w, evict("a", 1), place("a", "n0"))
    [end] = at(w, 200)["ended"]
    assert end["end_ms"] == minutes(40 + 1 + 50)
    assert gpu_minutes(end["gpu_time"]["lost"]) == 40


def test_a_service_lives_from_its_first_pod_on_and_follows_its_wanted_replicas() -> None:
    changes = [ChangeSpec(time_ms=minutes(t), what="replicas", target="s", value=v) for t, v in ((10, 4), (20, 1))]
    w = started(world(nodes(4), [service("s", 2, work_min=60)], changes=changes))
    do(w, place("s", "n0", 2))
    at(w, 10)
    do(w, place("s", "n0", 2))
    assert at(w, 20)["jobs"]["s"]["bound"] == [(0, "n0", (0,), 1000)]
    [end] = at(w, 100)["ended"]
    assert (end["outcome"], end["end_ms"]) == ("done", minutes(60))
    assert gpu_minutes(end["gpu_time"]["kept"]) == 2 * 10 + 4 * 10 + 1 * 40


# ---------------------------------------------------------------------------------------------------------------
# Shares
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "weights", "demands", "want"),
    [
        pytest.param(100, [1, 1], [30, 40], [30, 40], id="enough for all: everyone gets what it wants"),
        pytest.param(90, [1, 1, 1], [10, 100, 100], [10, 40, 40], id="what one does not want the others share"),
        pytest.param(100, [1, 3], [100, 100], [25, 75], id="by weight"),
        pytest.param(100, [1, 1, 1], [100, 100, 100], [34, 33, 33], id="left-over milli-GPUs in index order"),
        pytest.param(
            100, [1, 1, 2], [20, 45, 100], [20, 27, 53], id="80 left by 1:2: floors 26, 53; the odd one to the first"
        ),
        pytest.param(100, [0, 1], [50, 80], [20, 80], id="weight 0 gets what nobody else wants"),
        pytest.param(100, [0, 1], [50, 200], [0, 100], id="weight 0 gets nothing while somebody else wants it"),
        pytest.param(0, [1, 1], [5, 0], [0, 0], id="no GPUs"),
    ],
)
def test_water_filled_shares(capacity: int, weights: list[int], demands: list[int], want: list[int]) -> None:
    assert water_fill(capacity, weights, demands) == want


def test_areas_split_the_deficit_into_idling_and_over_share() -> None:
    # 8 GPUs: x holds 6 and wants 6, y wants 6 and holds none. Shares 4 and 4. 2 idle.
    jobs = [gang("x", 1, gpus=6, tenant="tx"), gang("y", 1, gpus=6, tenant="ty")]
    w = started(world(nodes(8), jobs))
    do(w, place("x", "n0"))
    dump = at(w, 10)
    totals = dump["totals"]
    want = {"over_area": 2, "deficit_area": 4, "idle_area": 2, "wanted_area": 8, "demand_area": 12, "running_area": 6}
    assert {k: gpu_minutes(totals[k]) / 10 for k in want} == want
    assert totals["deficit_area"] == totals["over_area"] + totals["idle_area"]


def test_usage_halves_in_a_half_life_however_the_steps_fall() -> None:
    spec = world(nodes(8), [gang("a", 1, gpus=8)], half_life_ms=HOUR, usage={"t0": 1e9})
    coarse, fine = started(spec), started(spec)
    coarse.advance(2 * HOUR)
    for minute in range(121):
        fine.advance(minutes(minute))
    assert coarse.dump()["tenants"]["t0"]["usage"] == pytest.approx(2.5e8)
    assert fine.dump()["tenants"]["t0"]["usage"] == pytest.approx(2.5e8)


# ---------------------------------------------------------------------------------------------------------------
# Quota
# ---------------------------------------------------------------------------------------------------------------


def quota_world(jobs: list[JobSpec], **limits: float | None) -> ReferenceWorld:
    """Two tenants of 4 GPUs each in one cohort; `limits` are those of the first queue."""
    queues = [cohort("all", nominal=0), queue("qa", "all", nominal=4, **limits), queue("qb", "all", nominal=4)]
    tenants = [TenantSpec(name="ta", queue="qa"), TenantSpec(name="tb", queue="qb")]
    return started(world(nodes(16), jobs, tenants=tenants, queues=queues, quota="enforced"))


def test_a_queue_borrows_what_the_other_does_not_use() -> None:
    w = quota_world([gang("a", 1, gpus=7, tenant="ta"), gang("b", 1, gpus=2, tenant="tb")])
    do(w, admit("a", 1))
    assert w.apply([[admit("b", 1)]]) == ["no_quota"]
    assert w.dump()["queues"] == {"all": {"default/gpu": 7000}, "qa": {"default/gpu": 7000}, "qb": {}}


def test_a_borrowing_limit_caps_what_is_taken_beyond_nominal() -> None:
    w = quota_world([gang("a", 1, gpus=7, tenant="ta"), gang("a2", 1, gpus=6, tenant="ta")], borrowing_limit=2)
    assert w.apply([[admit("a", 1)], [admit("a2", 1)]]) == ["no_quota", "ok"]


def test_a_lending_limit_keeps_quota_at_home() -> None:
    # qa lends only 1 of its 4: qb may have 4 + 1; qa's own 3 never show in the cohort
    jobs = [gang("b6", 1, gpus=6, tenant="tb"), gang("b5", 1, gpus=5, tenant="tb"), gang("a", 1, gpus=3, tenant="ta")]
    w = quota_world(jobs, lending_limit=1)
    assert w.apply([[admit("b6", 1)], [admit("b5", 1)], [admit("a", 1)]]) == ["no_quota", "ok", "ok"]
    used = {q: u.get("default/gpu", 0) for q, u in w.dump()["queues"].items()}
    assert used == {"all": 5000, "qa": 3000, "qb": 5000}


def test_pods_are_bound_only_within_an_admission_and_quota_comes_back_with_the_last_pod() -> None:
    w = quota_world([gang("a", 4, min_member=2, min_count=2, tenant="ta")])
    assert w.apply([[place("a", "n0", 4)]]) == ["not_admitted"]
    do(w, admit("a", 3))
    assert w.apply([[place("a", "n0", 4)]]) == ["too_many_pods"]
    do(w, place("a", "n0", 3))
    do(w, evict("a", grace_min=2))
    assert w.dump()["queues"]["qa"] == {"default/gpu": 3000}
    dump = at(w, 2)
    assert dump["queues"]["qa"] == {}
    assert dump["jobs"]["a"]["state"] == "queued"


def test_shrinking_gives_back_the_admission_of_the_pods_that_went() -> None:
    w = quota_world([gang("a", 4, min_member=2, tenant="ta")])
    do(w, admit("a", 4), place("a", "n0", 4))
    do(w, evict("a", 2, then="shrink"))
    assert w.dump()["queues"]["qa"] == {"default/gpu": 2000}
    assert w.apply([[place("a", "n0")]]) == ["too_many_pods"]


def test_a_job_enters_the_world_in_the_middle_of_its_life() -> None:
    live = LiveSpec(pods=[PlacedPods(pod_set=0, node="n0", count=2)], progress_ms=minutes(40), saved_ms=minutes(30))
    w = started(world(nodes(4), [gang("a", 2, live=live)]))
    assert w.next_event_ms() == minutes(20)
    at(w, 10)
    do(w, evict("a"))
    assert w.dump()["jobs"]["a"]["left"] == minutes(30) * 1000
