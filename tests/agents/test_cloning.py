"""Cloning a baseline: what the teacher says is what the baseline does, and the policy comes to say the same."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="agents need gangline[train]")

from agents.fakes import GoodAndBadJobs
from gangline.agents import evaluate, ppo
from gangline.agents.batches import batch_of
from gangline.agents.cloning import Teacher
from gangline.agents.kernel_net import Layout
from gangline.agents.ppo import Learner, PolicyNet, Settings
from gangline.baselines import base
from gangline.envs.config import load_world
from gangline.envs.errors import GanglineError

SHORT = {"episode.horizon_h": 48, "episode.warm_h": 12, "observation.num_oldest": 64}
WORLD = load_world("small", **SHORT)


class Asked:
    """A teacher as a policy."""

    def __init__(self, teacher):
        self.teacher = teacher
        self.has_begun = False

    def act(self, observation, mask):
        if not self.has_begun:
            self.teacher.begin(0)
        self.has_begun = True
        actions, is_known = self.teacher.choose()
        assert is_known.all()
        assert mask[actions[0, 0]] == 1
        return actions[0, 0]


@pytest.mark.parametrize("name", ["sjf", "fair_reclaim"])
def test_the_teachers_actions_in_the_environment_are_what_the_baseline_does(name):
    want = evaluate.play(WORLD, base.build(name), 7, {})
    batch = batch_of(WORLD, 1, keep_log=True)
    got, _ = evaluate.play_on(batch.batch, Asked(Teacher(name, {}, batch)), 7, {})
    for report in (got, want):
        report.values.pop("decisions_per_hour")  # of a baseline only
    assert got.values == want.values
    if name == "fair_reclaim":
        assert want.values["preemptions_per_1000_jobs"] > 0  # so that making room has been said too


def test_a_policy_learns_to_do_the_same_and_values_come_with_it():
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    batch = batch_of(WORLD, 16)
    net = PolicyNet(Layout.of(batch.agent, every_kind=True), 32)
    learner = Learner(batch, net, Settings(steps_per_rollout=64, batch_size=256, learning_rate=3e-3), seed=0)
    teacher = Teacher("drf_greedy", {}, batch)
    learner.begin(teacher)
    first = learner.imitate(teacher)
    for _ in range(7):
        last = learner.imitate(teacher)
    assert last["clone/agreement"] > 0.92 > first["clone/agreement"]
    assert last["train/explained_variance"] > 0.3
    assert learner.num_cloned == 8 * 16 * 64 and learner.num_steps == 0


def test_what_the_agent_cannot_do_is_not_learned_and_the_environment_waits():
    narrow = load_world("small", **{**SHORT, "observation.num_oldest": 1, "observation.num_shortest": 0})
    batch = batch_of(narrow, 8)
    teacher = Teacher("sjf", {}, batch)
    for i in range(8):
        batch.reset_one(i, i, {})
    batch.begin(0, 8)
    unknown = 0
    for _ in range(60):
        actions, is_known = teacher.choose()
        assert (actions[~is_known] == 0).all()
        unknown += (~is_known).sum()
        assert np.take_along_axis(batch.masks[:, 0], actions, axis=1).all()
        batch.actions[:] = actions
        batch.step(0, 8)
    assert unknown > 0


@pytest.mark.parametrize(
    ("settings", "want"),
    [({"clone": "drf"}, "unknown scheduler 'drf'"), ({"clone": "sjf", "clone_options": {"rul": 1}}, "unknown option")],
)
def test_a_baseline_that_there_is_not_is_refused_by_name(settings, want):
    with pytest.raises(GanglineError, match=want):
        ppo.train(WORLD, total_steps=1, seed=0, report=lambda *_: None, num_envs=2, **settings)


def test_several_agents_have_no_baseline_to_imitate():
    with pytest.raises(GanglineError, match="expected null where several agents act"):
        Teacher("sjf", {}, GoodAndBadJobs(2, 3))
