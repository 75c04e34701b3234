"""Slurm's formulas against values worked out by hand; what time does to usage."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from builders import milli

from baselines.test_slurm import FIFO, cluster, job, play, requests
from gangline.baselines.conformance.slurm.formulas import association_rows
from gangline.baselines.conformance.slurm.replay import Replay
from gangline.baselines.slurm.config import Account, Partition, Priority, Qos, Request, SlurmConfig, User
from gangline.envs.core.fair_share import slurm_decay
from gangline.envs.core.spec import NodeSpec
from gangline.envs.errors import GanglineError
from gangline.envs.files import slurm_conf

GPUS = Partition(name="p", is_default=True, tres_billing_weights={"gres/gpu": 1.0})
CLOCK = job(
    "clock", run_s=10**7, limit_min=10**6, tenant="z"
)  # costs nothing where GPUs are billed; keeps ticks coming


def priority_at_submission(priority: Priority, **fields) -> int | None:
    """Of a job on two of four nodes with 16 of 64 CPUs each, 10 minutes, behind one that fills the cluster."""
    jobs = [job("fill", gpus=8, on=4), job("j", gpus=4, cpus=16, on=2, limit_min=10, submit_s=1)]
    config = dataclasses.replace(FIFO, priority=priority, requests=requests(fill=Request(), j=Request()), **fields)
    return play(cluster(4, jobs), config, 2).priority_of("j")


# ---------------------------------------------------------------------------------------------------------------
# Priority
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("favor_small", "flags", "want"),
    [
        # N = 2 of 4 nodes, C = 32 of 256 CPUs
        (False, set(), 312_500),  # (1/2 + 1/8) / 2
        (True, set(), 687_500),  # (2/4 + 224/256) / 2
        (False, {"SMALL_RELATIVE_TO_TIME"}, 50_000),  # max(2 x 256/4, 32) / 10 min / 256
        (True, {"SMALL_RELATIVE_TO_TIME"}, 950_000),  # 1 - that
    ],
)
def test_the_four_forms_of_the_job_size_factor(favor_small, flags, want):
    priority = Priority(weight_job_size=1_000_000, favor_small=favor_small, flags=frozenset(flags))
    assert priority_at_submission(priority) == want


def test_tres_factors_divide_by_the_partition_and_job_size_by_the_cluster():
    """Trap 10: 8 of the partition's 16 GPUs and 32 of its 128 CPUs, but 2 of the cluster's 4 nodes."""
    half = Partition(name="half", nodes=["n0", "n1"], is_default=True)
    tres = Priority(weight_tres={"gres/gpu": 1000.0, "cpu": 1000.0})
    assert priority_at_submission(tres, partitions=[half, Partition(name="all")]) == 750  # 1/2 + 1/4
    assert priority_at_submission(Priority(weight_job_size=1000), partitions=[half, Partition(name="all")]) == 312


def test_qos_and_partition_factors_divide_by_the_greatest_of_all():
    """Trap 10: giving one QOS more takes from every other."""
    mine, other = Qos(name="normal", priority=30), Qos(name="other", priority=60)
    assert priority_at_submission(Priority(weight_qos=1000), qos=[mine, other]) == 500
    assert (
        priority_at_submission(Priority(weight_qos=1000), qos=[mine, dataclasses.replace(other, priority=120)]) == 250
    )
    raw = Priority(weight_qos=1000, flags=frozenset({"NO_NORMAL_QOS"}))
    assert priority_at_submission(raw, qos=[mine, other]) == 30_000
    factors = [
        Partition(name="p", is_default=True, priority_job_factor=20),
        Partition(name="q", priority_job_factor=50),
    ]
    assert priority_at_submission(Priority(weight_partition=1000), partitions=factors) == 400
    assert priority_at_submission(Priority(weight_partition=1000)) == 1000  # with nothing set each has 1.0


def test_typed_and_untyped_gpus_are_two_tres():
    nodes = [
        NodeSpec(name=f"n{i}", amounts={"gpu": milli(8), "cpu": 64_000}, flavor=t, gpu_type=t)
        for i, t in enumerate("hha")
    ]
    spec = dataclasses.replace(cluster(1, [job("j", gpus=4)]), nodes=nodes, flavors=("h", "a"))
    wish = dataclasses.replace(spec.jobs[0], pod_sets=[dataclasses.replace(spec.jobs[0].pod_sets[0], flavors=["h"])])
    held = Request(priority=None, nice=0)
    weights = Priority(weight_tres={"gres/gpu": 2400.0, "gres/gpu:h": 1600.0})
    config = dataclasses.replace(FIFO, priority=weights, requests=requests(j=held))
    assert play(spec, config, 1).first_priority["j"] == 400  # 4 of 24 GPUs
    assert play(dataclasses.replace(spec, jobs=[wish]), config, 1).first_priority["j"] == 800  # and 4 of 16 of its type


def test_the_sum_is_truncated_once_and_never_below_one():
    assert priority_at_submission(Priority(weight_job_size=3)) == 1  # 0.9375 -> 0 -> 1
    two = Priority(weight_job_size=3, weight_partition=1)  # 0.9375 + 1.0
    assert priority_at_submission(two) == 1
    assert priority_at_submission(Priority(weight_job_size=4, weight_partition=1)) == 2  # 1.25 + 1.0
    nice = Request(nice=5000)
    jobs = [job("fill", gpus=8), job("j", gpus=8, submit_s=1)]
    config = dataclasses.replace(
        FIFO, priority=Priority(weight_partition=100), requests=requests(fill=Request(), j=nice)
    )
    assert play(cluster(1, jobs), config, 2).priority_of("j") == 1


def test_age_is_a_ratio_first_and_shows_double_noise():
    """23 s of 600 s at weight 6000 is 229, not 230."""
    aged = Priority(weight_age=6000, max_age_s=600, calc_period_s=60, decay_half_life_s=0)
    replay = play(cluster(1, [job("f", gpus=8), job("j", gpus=8, submit_s=37)]), SlurmConfig(priority=aged), 61)
    assert replay.priority_of("j") == int(23 / 600 * 6000) == 229
    replay = Replay(
        cluster(1, [job("f", gpus=8, run_s=3000, limit_min=60), job("j", gpus=8)]), SlurmConfig(priority=aged)
    )
    replay.run_until(1000)
    assert replay.priority_of("j") == 6000  # it stops at PriorityMaxAge


# ---------------------------------------------------------------------------------------------------------------
# Fair share
# ---------------------------------------------------------------------------------------------------------------

TREE = [
    Account(name="a", shares=60, children=[User(name="a1", shares=1), User(name="a2", shares=3)]),
    Account(name="b", shares=39, children=[User(name="b1")]),
]
USAGE = {"a:a1": 100.0, "a:a2": 200.0, "b:b1": 100.0}


def test_classic_fair_share_by_hand():
    config = SlurmConfig(accounts=TREE, priority=Priority(flags=frozenset({"NO_FAIR_TREE"})))
    rows = association_rows(config, USAGE)
    # shares of 100 with root's user: a .60, a1 .15, a2 .45, b .39; used: a 3/4, a1 1/4, a2 1/2, b 1/4
    assert [float(rows[k]["norm_shares"]) for k in (("a", None), ("a", "a1"), ("a", "a2"))] == pytest.approx(
        [0.6, 0.15, 0.45]
    )
    a1 = 0.25 + (0.75 - 0.25) * 1 / 4
    a2 = 0.50 + (0.75 - 0.50) * 3 / 4
    assert float(rows["a", "a1"]["effective"]) == pytest.approx(a1)
    assert float(rows["a", "a1"]["factor"]) == pytest.approx(2 ** -(a1 / 0.15))
    assert float(rows["a", "a2"]["factor"]) == pytest.approx(2 ** -(a2 / 0.45))
    assert float(rows["b", "b1"]["factor"]) == pytest.approx(2 ** -(0.25 / 0.39))
    damped = dataclasses.replace(config, priority=dataclasses.replace(config.priority, dampening_factor=5))
    assert float(association_rows(damped, USAGE)["b", "b1"]["factor"]) == pytest.approx(2 ** -(0.25 / 0.39 / 5))


def test_fair_tree_by_hand():
    """Levels: root's user inf, b .39/.25 = 1.56, a .6/.75 = .8; in a: a1 (1/4)/(1/3) = .75, a2 (3/4)/(2/3) = 1.125."""
    rows = association_rows(SlurmConfig(accounts=TREE), USAGE)
    assert float(rows["b", None]["level_fs"]) == pytest.approx(1.56)
    assert float(rows["a", "a1"]["level_fs"]) == pytest.approx(0.75)
    want = {("root", "root"): 4, ("b", "b1"): 3, ("a", "a2"): 2, ("a", "a1"): 1}
    assert {k: float(rows[k]["factor"]) * 4 for k in want} == want


def test_a_parent_share_stands_in_its_parents_level():
    tree = [Account(name="a", shares="parent", children=[User(name="a1", shares=2)]), User(name="u", shares=1)]
    rows = association_rows(SlurmConfig(accounts=tree), {"a:a1": 30.0, "root:u": 70.0})
    assert float(rows["a", "a1"]["norm_shares"]) == 2 / 4  # beside u and root's user
    assert float(rows["a", "a1"]["level_fs"]) == pytest.approx((2 / 4) / 0.3)


# ---------------------------------------------------------------------------------------------------------------
# What time does
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_usage_is_halved_per_half_life_however_the_steps_fall(seed):
    """Random steps that add up to a half-life; 0.693 is not quite ln 2, and 1 - x not quite exp(-x)."""
    rng = np.random.default_rng(seed)
    half_life = int(rng.integers(3600, 30 * 86_400))
    cuts = np.sort(rng.integers(0, half_life, rng.integers(1, 200)))
    steps = np.diff([0, *cuts, half_life])
    left = 1.0
    for step in steps.tolist():
        left *= slurm_decay.py_func(step, half_life)
    assert left == pytest.approx(0.5, rel=3e-4)
    assert left == pytest.approx(slurm_decay.py_func(half_life, half_life), rel=1e-10)


@pytest.mark.parametrize("period_s", [30, 60, 300, 1700])
def test_usage_is_halved_in_a_world_however_often_it_ticks(period_s):
    """Half of what a job has used is left an hour of half-life after its end."""
    config = SlurmConfig(priority=Priority(decay_half_life_s=3600, calc_period_s=period_s), partitions=[GPUS])
    replay = Replay(cluster(1, [CLOCK, job("j", gpus=8, run_s=10 * period_s, limit_min=400)]), config)
    replay.run_until(10 * period_s + 1)
    before = float(replay.associations()["a", "a"]["raw"])
    steps = -(-3600 // period_s)
    replay.run_until((10 + steps) * period_s + 1)
    after = float(replay.associations()["a", "a"]["raw"])
    assert after / before == pytest.approx(0.5 ** (steps * period_s / 3600), rel=1e-3)


def test_half_life_zero_keeps_usage_for_good_and_a_reset_period_clears_it():
    jobs = [CLOCK, job("j", gpus=8, run_s=100)]
    kept = SlurmConfig(priority=Priority(decay_half_life_s=0, calc_period_s=60), partitions=[GPUS])
    assert play(cluster(1, jobs), kept, 29 * 3600).associations()["a", "a"]["raw"] == 800.0
    daily = dataclasses.replace(kept, priority=dataclasses.replace(kept.priority, usage_reset_period="DAILY"))
    replay = Replay(cluster(1, jobs), daily)
    replay.run_until(23 * 3600)
    assert replay.associations()["a", "a"]["raw"] == 800.0
    replay.run_until(25 * 3600)
    assert replay.associations()["a", "a"]["raw"] == 0.0


@pytest.mark.parametrize(
    ("lines", "want_s"),
    [
        ("", 7 * 86_400),  # Slurm's default, not 0
        ("PriorityDecayHalfLife=0\nPriorityUsageResetPeriod=NONE\n", 0),
        ("PriorityDecayHalfLife=14-0\n", 14 * 86_400),
        ("PriorityDecayHalfLife=1-12:00:00\n", 36 * 3600),
    ],
)
def test_a_missing_half_life_is_a_week_and_never_a_tie(tmp_path, lines, want_s):
    """Two accounts with the same shares and different usage have different factors, whatever the file says."""
    from gangline.baselines.slurm.files import read_config

    (tmp_path / "slurm.conf").write_text(
        f"PriorityWeightFairshare=1000\n{lines}NodeName=n0 CPUs=64 Gres=gpu:8\nPartitionName=p Nodes=ALL Default=YES\n"
    )
    config = read_config(tmp_path / "slurm.conf")
    assert config.priority.decay_half_life_s == want_s
    jobs = [job("x", gpus=8, run_s=600, tenant="x"), job("y", gpus=8, run_s=60, tenant="y", submit_s=1)]
    jobs += [job(f"{t}1", gpus=8, tenant=t, submit_s=2) for t in "xy"]
    replay = play(cluster(1, jobs), config, 650)
    factors = [float(replay.associations()[t, t]["factor"]) for t in "xy"]
    assert factors[1] > factors[0]
    assert replay.priority_of("y1") > replay.priority_of("x1")


def test_half_life_zero_without_a_reset_period_is_refused_as_slurm_does(tmp_path):
    path = tmp_path / "slurm.conf"
    path.write_text("ClusterName=c\nPriorityDecayHalfLife=0\nNodeName=n0\nPartitionName=p Nodes=ALL\n")
    with pytest.raises(
        GanglineError, match=r"slurm.conf line 2: PriorityDecayHalfLife is '0'.* expected a line"
    ) as error:
        slurm_conf.read(path)
    assert "\n" not in str(error.value)


def test_use_is_weighted_as_configured_for_a_cpu_user_and_a_gpu_user():
    """The same node for the same time: who held CPUs and who held GPUs differ by the weights, and so do their ranks."""
    jobs = [job("cpu", cpus=64, run_s=100, tenant="c"), job("gpu", gpus=8, cpus=8, run_s=100, tenant="g")]
    jobs.append(job("later", gpus=1, run_s=400, submit_s=101, tenant="z"))
    for weights, want in (
        ({"cpu": 1.0, "gres/gpu": 16.0}, (6400, 13_600)),
        ({"cpu": 1.0, "gres/gpu": 2.0}, (6400, 2400)),
    ):
        partition = Partition(name="p", is_default=True, tres_billing_weights=weights)
        config = SlurmConfig(priority=Priority(decay_half_life_s=0, weight_fairshare=1000), partitions=[partition])
        rows = play(cluster(2, jobs), config, 301).associations()
        assert (rows["c", "c"]["raw"], rows["g", "g"]["raw"]) == want
        assert (rows["c", "c"]["factor"] > rows["g", "g"]["factor"]) == (want[0] < want[1])


@pytest.mark.parametrize(("flags", "want"), [(set(), 18.5), ({"MAX_TRES"}, 16.0), ({"MAX_TRES_GRES"}, 16.0 + 2.0)])
def test_billing_is_a_sum_or_the_greatest_part(flags, want):
    """CPUs 32 x .5 = 16, GPUs 8 x .25 = 2, nodes 1 x .5."""
    weights = {"cpu": 0.5, "gres/gpu": 0.25, "node": 0.5}
    partition = Partition(name="p", is_default=True, tres_billing_weights=weights)
    config = SlurmConfig(priority=Priority(flags=frozenset(flags)), partitions=[partition])
    assert play(cluster(1, [job("j", gpus=8, cpus=32)]), config, 1).remembered("j")["billing"] == want


def test_factors_are_the_same_in_whatever_order_accounts_were_made_unless_they_tie():
    trees = itertools.permutations(TREE)
    found = [association_rows(SlurmConfig(accounts=list(tree)), USAGE) for tree in trees]
    for key in (("a", "a1"), ("a", "a2"), ("b", "b1")):
        assert len({float(rows[key]["factor"]) for rows in found}) == 1
