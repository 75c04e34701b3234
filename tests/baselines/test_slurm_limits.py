"""Limits, arrays and what submissions ask for: a story for each rule."""

from __future__ import annotations

import dataclasses
import math

import pytest
from builders import milli, nodes, world

from baselines.test_slurm import FIFO, MINUTE_MS, PREEMPTS, SECOND_MS, cluster, job, play, requests, started
from gangline.baselines.base import build
from gangline.baselines.conformance.slurm.replay import Replay
from gangline.baselines.slurm.config import (
    Account,
    Limits,
    Partition,
    Preemption,
    Priority,
    Qos,
    Request,
    RowRequests,
    SchedulerParameters,
    SlurmConfig,
    User,
)
from gangline.baselines.slurm.setup import block_for, constraint
from gangline.envs.core.spec import JobSpec, PodSetSpec, UserSpec, WorldSpec
from gangline.envs.core.types import Outcome
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError

NORMAL = Qos(name="normal")
BY_GPU = Partition(name="p", is_default=True, tres_billing_weights={"gres/gpu": 1.0})


def limited(**limits) -> SlurmConfig:
    """One QOS, that of all jobs, with limits."""
    return dataclasses.replace(FIFO, qos=[Qos(name="normal", limits=Limits(**limits))])


def accounts(**limits) -> list[Account]:
    """Account `a` with the limits, users `u` and `v` below it."""
    return [Account(name="a", limits=Limits(**limits), children=[User(name="u"), User(name="v")])]


def people(count: int, jobs: list[JobSpec], **fields) -> WorldSpec:
    """The same cluster, with users `u` and `v` of tenant `a`."""
    return cluster(count, jobs, users=[UserSpec(name="u", tenant="a"), UserSpec(name="v", tenant="a")], **fields)


# ---------------------------------------------------------------------------------------------------------------
# Whose limit counts
# ---------------------------------------------------------------------------------------------------------------


def test_a_partitions_qos_limits_all_jobs_in_it_whatever_their_own_says():
    part = Qos(name="part", limits=Limits(grp_tres={"gres/gpu": 8}))
    own = Qos(name="own", limits=Limits(grp_tres={"gres/gpu": 100}))
    said = requests(a=Request(qos="own"), b=Request(), c=Request(qos="own", partitions=["free"]))
    jobs = [job("a", gpus=6), job("b", gpus=4, submit_s=1), job("c", gpus=4, submit_s=2)]
    partitions = [Partition(name="p", is_default=True, qos="part"), Partition(name="free")]
    config = dataclasses.replace(FIFO, qos=[NORMAL, part, own], partitions=partitions, requests=said)
    replay = play(cluster(3, jobs), config, 5)
    assert set(started(replay)) == {"a", "c"}
    assert replay.reason_of("b") == "QOSGrpGRES"


def test_over_part_qos_turns_the_two_round():
    part = Qos(name="part", limits=Limits(grp_tres={"gres/gpu": 8}))
    over = Qos(name="over", flags=frozenset({"OverPartQOS"}), limits=Limits(grp_tres={"gres/gpu": 100}))
    said = requests(a=Request(), b=Request(qos="over"))
    jobs = [job("a", gpus=6), job("b", gpus=4, submit_s=1)]
    config = dataclasses.replace(
        FIFO, qos=[NORMAL, part, over], partitions=[Partition(name="p", is_default=True, qos="part")], requests=said
    )
    assert set(started(play(cluster(2, jobs), config, 5))) == {"a", "b"}


def test_what_the_partitions_qos_leaves_open_the_jobs_own_decides():
    part = Qos(name="part", limits=Limits(max_jobs_per_user=1))
    own = Qos(name="own", limits=Limits(max_jobs_per_user=9, max_tres_per_user={"gres/gpu": 2}))
    said = requests(a=Request(qos="own"), b=Request(qos="own"))
    partitions = [Partition(name="p", is_default=True, qos="part")]
    config = dataclasses.replace(FIFO, qos=[NORMAL, part, own], partitions=partitions, requests=said)
    replay = play(cluster(2, [job("a", gpus=4), job("b", gpus=1, submit_s=1)]), config, 5)
    assert replay.reason_of("a") == "QOSMaxGRESPerUser"  # of its own QOS
    assert set(started(replay)) == {"b"}
    replay = play(cluster(2, [job("a", gpus=1), job("b", gpus=1, submit_s=1)]), config, 5)
    assert replay.reason_of("b") == "QOSMaxJobsPerUserLimit"  # of the partition's: 1, not 9


def test_a_value_of_the_qos_hides_that_of_the_association():
    jobs = [job("x", gpus=6), job("y", gpus=6, submit_s=1)]
    tree = [Account(name="a", limits=Limits(grp_tres={"gres/gpu": 8}), children=[User(name="a")])]
    hidden = dataclasses.replace(limited(grp_tres={"gres/gpu": 16}), accounts=tree)
    assert set(started(play(cluster(2, jobs), hidden, 5))) == {"x", "y"}
    seen = dataclasses.replace(limited(max_wall_min=600), accounts=tree)
    replay = play(cluster(2, jobs), seen, 5)
    assert set(started(replay)) == {"x"} and replay.reason_of("y") == "AssocGrpGRES"


def test_max_jobs_of_an_account_is_what_each_of_its_users_inherits_and_grp_jobs_is_the_sum():
    jobs = [job(f"{user}{i}", gpus=1, user=user, submit_s=i) for user in "uv" for i in range(2)]
    replay = play(people(2, jobs), dataclasses.replace(FIFO, accounts=accounts(max_jobs=1)), 5)
    assert set(started(replay)) == {"u0", "v0"}
    assert replay.reason_of("u1") == "AssocMaxJobsLimit"
    replay = play(people(2, jobs), dataclasses.replace(FIFO, accounts=accounts(grp_jobs=1)), 5)
    assert set(started(replay)) == {"u0"}
    assert replay.reason_of("v0") == "AssocGrpJobsLimit"


def test_nothing_is_limited_unless_slurm_is_told_to_enforce():
    off = dataclasses.replace(limited(max_jobs_per_user=1), enforces_limits=False)
    jobs = [job("a", gpus=1), job("b", gpus=1, submit_s=1)]
    assert set(started(play(cluster(1, jobs), off, 5))) == {"a", "b"}
    assert set(started(play(cluster(1, jobs), limited(max_jobs_per_user=1), 5))) == {"a"}


def test_a_limit_per_user_counts_a_person_in_all_accounts():
    tree = [Account(name=name, children=[User(name="u")]) for name in "ab"]
    users = [UserSpec(name="u@a", tenant="a"), UserSpec(name="u@b", tenant="b")]
    jobs = [job("x", gpus=1, user="u@a"), job("y", gpus=1, user="u@b", tenant="b", submit_s=1)]
    config = dataclasses.replace(limited(max_jobs_per_user=1), accounts=tree)
    replay = play(cluster(1, jobs, users=users), config, 5)
    assert set(started(replay)) == {"x"}
    config = dataclasses.replace(FIFO, accounts=tree)  # their usage is each account's own
    replay = play(cluster(1, jobs, users=users), dataclasses.replace(config, partitions=[BY_GPU]), 5)
    row = replay.associations()
    assert int(replay.remembered("x")["assoc"]) != int(replay.remembered("y")["assoc"])
    assert ("a", "u") in row and ("b", "u") in row


# ---------------------------------------------------------------------------------------------------------------
# Each kind
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "on", "gpus", "want"),
    [
        ({"max_tres_per_node": {"gres/gpu": 4}}, 2, 6, "QOSMaxGRESPerNode"),
        ({"max_tres_per_node": {"gres/gpu": 6}}, 2, 6, None),
        ({"max_tres_per_job": {"gres/gpu": 8}}, 2, 6, "QOSMaxGRESPerJob"),
        ({"max_tres_mins_per_job": {"gres/gpu": 119}}, 2, 6, "QOSMaxGRESMinutesPerJob"),  # 12 GPUs for 10 minutes
        ({"max_tres_mins_per_job": {"gres/gpu": 120}}, 2, 6, None),
        ({"max_tres_per_job": {"billing": 11}}, 2, 6, "QOSMaxBillingPerJob"),
        ({"max_tres_per_job": {"node": 1}}, 2, 6, "QOSMaxNodePerJob"),
        ({"max_wall_min": 9}, 1, 1, "QOSMaxWallDurationPerJobLimit"),
    ],
)
def test_limits_of_one_job(limits, on, gpus, want):
    config = dataclasses.replace(limited(**limits), partitions=[BY_GPU], requests=requests(j=Request()))
    replay = play(cluster(2, [job("j", gpus=gpus, on=on)]), config, 5)
    assert replay.reason_of("j") == (want or "None")
    assert bool(started(replay)) == (want is None)


@pytest.mark.parametrize("where", ["qos", "account"])
def test_minutes_of_a_group_fade_with_the_half_life(where):
    """GrpTRESMins: 8 GPUs for 10 minutes. With x = d^60, nine ticks of 480 GPU-seconds and the job's end leave
    480 (x^2 + ... + x^10 + x^2) after the tenth tick, 75.0 minutes; they are below 60 twenty ticks later.
    """
    x = (1 - 0.693 / 3600) ** 60
    left = 480 * (sum(x**k for k in range(2, 11)) + x**2) / 60
    ticks = math.ceil(math.log(60 / left) / math.log(x))
    assert (round(left, 1), ticks) == (75.0, 20)
    limits = {"grp_tres_mins": {"gres/gpu": 60}}
    config = limited(**limits) if where == "qos" else dataclasses.replace(FIFO, accounts=accounts(**limits))
    config = dataclasses.replace(config, priority=Priority(decay_half_life_s=3600, calc_period_s=60))
    jobs = [job("first", gpus=8, run_s=600, user="u"), job("second", gpus=1, user="u", submit_s=601)]
    replay = play(people(1, jobs), config, 700)
    assert replay.reason_of("second") == ("QOSGrpGRESMinutes" if where == "qos" else "AssocGrpGRESMinutes")
    replay.run_until(3600)
    assert started(replay)["second"][0] == 600 + 60 * ticks


def test_wall_of_a_group_counts_minutes_whatever_is_held():
    jobs = [job(f"j{i}", gpus=i + 1, run_s=300, submit_s=i) for i in range(2)]
    jobs.append(job("late", gpus=1, submit_s=400))
    config = dataclasses.replace(limited(grp_wall_min=10), priority=Priority(decay_half_life_s=0))
    replay = play(cluster(1, jobs), config, 500)
    assert replay.reason_of("late") == "QOSGrpWallLimit"  # two jobs of five minutes each
    config = dataclasses.replace(limited(grp_wall_min=11), priority=Priority(decay_half_life_s=0))
    assert "late" in started(play(cluster(1, jobs), config, 500))


@pytest.mark.parametrize(
    ("config", "want"),
    [
        (limited(max_submit_per_user=2), {"u0", "u1", "v0", "v1"}),
        (limited(max_submit_per_account=3), {"u0", "v0", "u1"}),
        (limited(grp_submit=1), {"u0"}),
        (dataclasses.replace(FIFO, accounts=accounts(max_submit=1)), {"u0", "v0"}),
        (dataclasses.replace(FIFO, accounts=accounts(grp_submit=3)), {"u0", "v0", "u1"}),
    ],
)
def test_one_job_too_many_is_rejected_at_submission(config, want):
    """Waiting and running ones count; what was turned away does not come back."""
    if not config.accounts:
        config = dataclasses.replace(config, accounts=accounts())
    jobs = [
        job(f"{user}{i}", gpus=8, user=user, run_s=100, submit_s=2 * i + (user == "v"))
        for i in range(3)
        for user in "uv"
    ]
    replay = play(people(1, sorted(jobs, key=lambda j: j.submit_ms)), config, 10)
    kept = {j.name for j in jobs if replay.state_of(j.name) is not None}
    assert kept == want
    assert {replay.final_state(j.name) for j in jobs if j.name not in want} == {"CANCELLED"}
    later = job("later", gpus=8, user="u", submit_s=300)
    replay = play(people(1, [*sorted(jobs, key=lambda j: j.submit_ms), later]), config, 301)
    assert replay.state_of("later") is not None or config.qos[0].limits.grp_submit == 1


def test_nobody_is_stopped_for_a_job_that_a_limit_would_hold_back():
    high = Qos(name="high", priority=100, preempts=["low"], limits=Limits(max_tres_per_user={"gres/gpu": 4}))
    said = requests(low=Request(qos="low"), high=Request(qos="high"))
    config = dataclasses.replace(PREEMPTS, qos=[*PREEMPTS.qos[:2], high], requests=said)
    replay = play(cluster(1, [job("low", gpus=8), job("high", gpus=6, submit_s=5)]), config, 60)
    assert replay.victims == [] and replay.state_of("low") == "R"


# ---------------------------------------------------------------------------------------------------------------
# Arrays
# ---------------------------------------------------------------------------------------------------------------


def array(count: int, limit: int | None = None, **fields) -> tuple[list[JobSpec], dict[str, Request]]:
    jobs = [job(f"a_{i}", gpus=1, run_s=60, **fields) for i in range(count)]
    return jobs, requests(**{j.name: Request(array="a", array_limit=limit) for j in jobs})


def test_as_many_elements_of_an_array_run_as_its_limit_says():
    jobs, said = array(5, limit=2)
    replay = play(cluster(1, jobs), dataclasses.replace(FIFO, requests=said), 5)
    assert set(started(replay)) == {"a_0", "a_1"}
    assert replay.reason_of("a_2") == "JobArrayTaskLimit"
    replay.run_until(65)
    assert set(started(replay)) == {"a_0", "a_1", "a_2", "a_3"}
    other = job("other", gpus=1, submit_s=1)
    replay = play(cluster(1, [*jobs, other]), dataclasses.replace(FIFO, requests=said), 5)
    assert "other" in started(replay)  # an array at its limit holds nobody up


def test_an_element_that_cannot_start_keeps_the_rest_of_its_array_from_being_tried():
    """And an array counts once towards the depth of a pass, as the one record that it is."""
    jobs, said = array(5)
    jobs += [job("other", gpus=1, submit_s=1)]
    config = dataclasses.replace(FIFO, scheduler=SchedulerParameters(default_queue_depth=2, bf_interval_s=1000))
    assert "other" in started(play(cluster(1, jobs), dataclasses.replace(config, requests=said), 5))
    alone = {name: dataclasses.replace(request, array=None) for name, request in said.items()}
    assert "other" not in started(play(cluster(1, jobs), dataclasses.replace(config, requests=alone), 1.5))


def test_backfill_plans_so_many_elements_of_an_array():
    jobs, said = array(6, limit_min=5)
    fill = [job("fill", gpus=8, limit_min=10)]
    jobs = [dataclasses.replace(j, submit_ms=SECOND_MS) for j in jobs]
    for most, want in ((20, 6), (2, 2)):
        scheduler = SchedulerParameters(bf_max_job_array_resv=most, bf_resolution_s=1)
        replay = play(cluster(1, [*fill, *jobs]), dataclasses.replace(FIFO, scheduler=scheduler, requests=said), 40)
        assert len(replay.plans()) == want


# ---------------------------------------------------------------------------------------------------------------
# Which nodes
# ---------------------------------------------------------------------------------------------------------------


def test_nodes_of_lower_weight_are_taken_first():
    weights = {"n0": 20, "n1": 10, "n2": 10}
    config = dataclasses.replace(FIFO, node_weights=weights, requests=requests(a=Request(), b=Request()))
    jobs = [job("a", gpus=8), job("b", gpus=8, on=2, submit_s=1)]
    where = started(play(cluster(3, jobs), config, 5))
    assert where["a"] == (0.0, ["n1"])
    assert where["b"] == (1.0, ["n0", "n2"])  # the lighter one that is left, and then the heavy


def test_least_loaded_nodes_are_counted_by_cpus_and_never_by_gpus():
    """Trap 6: n0 has more GPUs free, n1 more CPUs."""
    fill = [job("f0", cpus=40, tenant="f"), job("f1", gpus=7, cpus=8, tenant="f")]
    said = requests(f0=Request(nodelist=["n0"]), f1=Request(nodelist=["n1"]), j=Request())
    config = dataclasses.replace(FIFO, partitions=[Partition(name="p", is_default=True, lln=True)], requests=said)
    assert started(play(cluster(2, [*fill, job("j", gpus=1, submit_s=1)]), config, 5))["j"] == (1.0, ["n1"])


def test_constraints_and_excluded_nodes_keep_a_job_off():
    features = {"n0": ["old"], "n1": ["new", "ib"], "n2": ["new"]}
    said = {
        "new": Request(constraint="new"),
        "both": Request(constraint="new&ib"),
        "either": Request(constraint="(old|ib)&new", exclude=["n0"]),
        "not": Request(exclude=["n0"]),
        "never": Request(constraint="newest"),
    }
    want = {"new": "n1", "both": "n1", "either": "n1", "not": "n1", "never": None}
    for name, request in said.items():
        config = dataclasses.replace(FIFO, node_features=features, requests=requests(**{name: request}))
        replay = play(cluster(3, [job(name, gpus=1)]), config, 5)
        assert started(replay).get(name, (0, [None]))[1] == [want[name]], name
        assert (replay.final_state(name) == "CANCELLED") == (name == "never")  # no node could ever do


@pytest.mark.parametrize("text", ["a&b|c", "[a|b]", "a*2", "a&", "(a", "|a", ""])
def test_constraints_that_are_not_modelled_are_one_line(text):
    with pytest.raises(GanglineError, match="expected features with") as error:
        constraint(text)
    assert "\n" not in str(error.value)


def test_gpus_without_nodes_fill_the_first_and_spill_over():
    """Trap 13: --gpus=8 is 6 and 2, not 4 and 4."""
    pods = JobSpec(
        name="j",
        tenant="a",
        work_ms=MINUTE_MS,
        submit_ms=SECOND_MS,
        claim_ms=MINUTE_MS,
        checkpoint_interval_ms=None,
        pod_sets=[PodSetSpec(count=8, request={"gpu": milli(1), "cpu": 125})],
    )
    fill = [job("f0", gpus=2), job("f1", gpus=4)]
    said = {
        "f0": Request(nodelist=["n0"]),
        "f1": Request(nodelist=["n1"]),
        "j": Request(tasks_per_node_are_fixed=False),
    }
    replay = play(cluster(2, [*fill, pods]), dataclasses.replace(FIFO, requests=said), 5)
    assert {node: len(gpus) for node, gpus in replay.gpus_of("j").items()} == {"n0": 6, "n1": 2}


# ---------------------------------------------------------------------------------------------------------------
# Ends of the story
# ---------------------------------------------------------------------------------------------------------------


def test_what_no_partition_could_ever_hold_is_rejected_at_submission():
    """And does not block the partition as a job that waits for resources would."""
    partitions = [Partition(name="one", nodes=["n0"], is_default=True), Partition(name="two", nodes=["n1", "n2"])]
    said = requests(big=Request(), fits=Request(partitions=["one", "two"]), after=Request())
    jobs = [job("big", gpus=8, on=2), job("fits", gpus=8, on=2), job("after", gpus=8, submit_s=1)]
    replay = play(cluster(3, jobs), dataclasses.replace(FIFO, partitions=partitions, requests=said), 5)
    assert replay.final_state("big") == "CANCELLED"
    assert started(replay) == {"fits": (0.0, ["n1", "n2"]), "after": (1.0, ["n0"])}


@pytest.mark.parametrize("limits", [{"max_tres_per_job": {"gres/gpu": 4}}, {"grp_tres_mins": {"gres/gpu": 0}}])
def test_a_world_comes_to_its_end_although_a_limit_holds_a_job_back_for_good(limits):
    spec = cluster(1, [job("runs", gpus=1, tenant="b"), job("never", gpus=8)])
    qos = [NORMAL, Qos(name="tight", limits=Limits(**limits))]
    config = dataclasses.replace(FIFO, qos=qos, requests=requests(never=Request(qos="tight"), runs=Request()))
    done = World.from_state(spec)
    done.run(build("slurm", config=config))
    assert [done.job_name(int(row["row"])) for row in done.ended()] == ["runs"]
    assert done.ended()[0]["outcome"] == Outcome.DONE and done.slot_of("never") is not None


def test_requests_of_a_trace_go_by_its_rows():
    jobs = [job(f"j{i}", gpus=1, submit_s=i) for i in range(4)]
    qos = [NORMAL, Qos(name="one", limits=Limits(max_jobs_per_user=1))]
    said = RowRequests(distinct=[Request(qos="one"), Request()], of_row=[0, 0, 1, 0], array_of_row=None)
    replay = play(cluster(1, jobs), dataclasses.replace(FIFO, qos=qos, requests=said), 5)
    assert set(started(replay)) == {"j0", "j2"}


def test_billing_weights_of_nothing_that_is_counted_are_refused():
    """Else nobody would ever be charged, and all would tie in silence."""
    spec = world(nodes(8), [job("j", gpus=1)], resources=("gpu", "cpu"))
    partition = Partition(name="p", is_default=True, tres_billing_weights={"mem": 0.25, "cpu": 0.0})
    with pytest.raises(GanglineError, match="TRESBillingWeights are of mem, which this world does not count"):
        block_for(dataclasses.replace(FIFO, partitions=[partition]), World.from_state(spec))


def test_running_jobs_are_ranked_anew_only_if_slurm_is_told_to():
    """CALCULATE_RUNNING: a victim's priority counts where the preemptor must have more."""
    how = Preemption(type="preempt/qos", modes=frozenset({"REQUEUE"}), priority_must_be_higher=True)
    said = requests(low=Request(qos="low"), high=Request(qos="high", nice=-100))
    jobs = [job("low", gpus=8, run_s=2000, limit_min=60), job("high", gpus=8, submit_s=400)]
    for flags, want in ((set(), ["low"]), ({"CALCULATE_RUNNING"}, [])):
        ages = Priority(weight_age=100_000, max_age_s=3600, calc_period_s=60, flags=frozenset(flags))
        config = dataclasses.replace(PREEMPTS, preemption=how, priority=ages, requests=said)
        replay = play(cluster(1, jobs), config, 410)
        assert [victim.label for victim in replay.victims] == want, flags


def test_a_requeued_job_submits_anew_and_has_no_age_left():
    """Trap 8: what came later and waited is before it now."""
    said = requests(low=Request(qos="low"), other=Request(), high=Request(qos="high"))
    jobs = [
        job("low", gpus=8, run_s=500),
        job("high", gpus=8, run_s=300, submit_s=10),
        job("other", gpus=8, submit_s=20),
    ]
    ages = Priority(weight_age=1000, max_age_s=600, calc_period_s=60, decay_half_life_s=0)
    config = dataclasses.replace(PREEMPTS, requests=said, priority=ages)
    replay = Replay(cluster(1, jobs, requeue_hold_ms=121_000), config)
    replay.run_until(250)
    assert [victim.label for victim in replay.victims] == ["low"]
    assert replay.priority_of("other") > replay.priority_of("low")
    replay.run_until(400)
    assert (replay.state_of("other"), replay.state_of("low")) == ("R", "PD")
