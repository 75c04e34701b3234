"""Our own PPO by its properties: returns in closed form, exact resume, what the network may and may not depend on."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="agents need gangline[train]")

from agents.fakes import ROWS, GoodAndBadJobs, agent_record
from gangline.agents import checkpoint, ppo
from gangline.agents.batches import batch_of
from gangline.agents.buffer import time_discounted_advantages
from gangline.agents.keeper import Keeper, Stopped
from gangline.agents.kernel_net import KernelNet, Layout, most_probable
from gangline.agents.pairs import met_by_pairs
from gangline.agents.ppo import Learner, PolicyNet, Settings, time_discounted_returns
from gangline.envs.config import load_world
from gangline.envs.errors import GanglineError
from gangline.envs.observation import NUM_CLUSTER, NUM_QUEUE, NUM_TENANT

WORLD = load_world("small", **{"episode.horizon_h": 24, "episode.warm_h": 12})
QUICK = {"num_envs": 4, "steps_per_rollout": 32, "batch_size": 64, "epochs": 2}


def returns_of(rewards, values, discounts, *, decides=None, ends=None, end_values=None, last, gae_lambda):
    """`time_discounted_returns` of one agent in one environment, from lists."""

    def column(x, kind=float):
        return np.asarray(x, kind).reshape(-1, 1)

    steps = len(rewards)
    return time_discounted_returns(
        column(rewards)[:, :, None],
        column(values)[:, :, None],
        column(np.ones(steps) if decides is None else decides, bool)[:, :, None],
        column(discounts),
        column(np.zeros(steps) if ends is None else ends, bool),
        column(np.zeros(steps) if end_values is None else end_values)[:, :, None],
        np.array([[float(last)]]),
        gae_lambda,
    )[:, 0, 0]


class TestReturns:
    def test_lambda_1_is_the_discounted_sum_to_the_last_value(self):
        got = returns_of([1, 2, 3], [9, 9, 9], [0.9, 0.8, 0.7], last=10, gae_lambda=1.0)
        assert np.allclose(got, [1 + 0.9 * (2 + 0.8 * (3 + 0.7 * 10)), 2 + 0.8 * (3 + 0.7 * 10), 3 + 0.7 * 10])

    def test_lambda_0_looks_one_step_ahead(self):
        got = returns_of([1, 2, 3], [4, 5, 6], [0.9, 0.8, 0.7], last=10, gae_lambda=0.0)
        assert np.allclose(got, [1 + 0.9 * 5, 2 + 0.8 * 6, 3 + 0.7 * 10])

    def test_an_end_cuts_the_return_and_a_horizon_goes_on_with_the_value_beyond_discounted_by_the_last_step(self):
        for beyond in (0.0, 7.0):
            got = returns_of(
                [1, 1, 1], [0, 0, 0], [0.5] * 3, ends=[0, 1, 0], end_values=[0, beyond, 0], last=100, gae_lambda=1
            )
            assert np.allclose(got, [1 + 0.5 * (1 + 0.5 * beyond), 1 + 0.5 * beyond, 1 + 0.5 * 100])

    def test_splitting_a_decision_into_commands_without_time_changes_nothing(self):
        rng = np.random.default_rng(0)
        rewards, values, discounts = rng.normal(size=6), rng.normal(size=6), rng.uniform(0.7, 0.99, 6)
        whole = returns_of(rewards, values, discounts, last=2, gae_lambda=0.9)
        again = [0, 1, 2, 2, 2, 3, 4, 5]
        split_rewards, split_discounts = rewards[again], discounts[again]
        split_rewards[[2, 3]], split_discounts[[2, 3]] = 0.0, 1.0
        split = returns_of(split_rewards, values[again], split_discounts, last=2, gae_lambda=0.9)
        assert np.allclose(split, whole[again])

    def test_states_without_a_choice_belong_to_the_step_before_and_their_values_do_not_count(self):
        rewards, values, discounts = [1.0, 2.0, 4.0, 8.0], [0.5, 1e9, -1e9, 3.0], [0.9, 0.8, 1.0, 0.5]
        got = returns_of(rewards, values, discounts, decides=[1, 0, 0, 1], last=6, gae_lambda=0.7)
        merged = returns_of([1 + 0.9 * 2 + 0.9 * 0.8 * 4, 8], [0.5, 3], [0.9 * 0.8, 0.5], last=6, gae_lambda=0.7)
        # the last of the merged steps takes no time, so that lambda is 1 into the choice that follows
        with_lambda_1 = 1 + 0.9 * 2 + 0.72 * 4 + 0.72 * merged[1]
        assert np.allclose(got[[0, 3]], [with_lambda_1, merged[1]])

    def test_it_agrees_with_the_buffer_for_stable_baselines(self):
        rng = np.random.default_rng(1)
        shape = (20, 5)
        rewards, values = rng.normal(size=shape), rng.normal(size=shape)
        discounts = np.where(rng.random(shape) < 0.3, 1.0, rng.uniform(0.5, 1, shape))
        ends = rng.random(shape) < 0.1
        beyond, last = rng.normal(size=shape) * ends, rng.normal(size=5)
        got = time_discounted_returns(
            rewards[..., None], values[..., None], np.ones((*shape, 1), bool), discounts, ends, beyond[..., None],
            last[:, None], 0.95,
        )[..., 0]  # fmt: skip
        starts = np.zeros(shape)
        starts[1:] = ends[:-1]
        _, want = time_discounted_advantages(
            rewards + discounts * beyond, values, starts, discounts, last, ends[-1].astype(float), 0.95
        )
        assert np.allclose(got, want)


class TestPairs:
    def test_what_all_met_at_a_time_is_the_mean_of_the_others_between_their_decisions(self):
        clock = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 1.0], [2.0, 4.0, 3.0]])
        advantages = np.array([[1.0, 10.0, 100.0], [2.0, 20.0, 200.0], [3.0, 30.0, 300.0]])[:, :, None]
        met = met_by_pairs(advantages, np.ones((3, 3, 1), bool), clock, np.ones((3, 3), int), 3)[:, :, 0]
        assert np.allclose(met[:, 0], [(10 + 100) / 2, (15 + 200) / 2, (20 + 250) / 2])
        assert np.allclose(met[1, 1], (3.0 + 250.0) / 2)
        assert met[2, 1] == 0.0  # nobody else was there at that time

    def test_other_groups_and_other_episodes_do_not_count(self):
        advantages = np.arange(8.0).reshape(2, 4, 1)
        clock = np.array([[0.0] * 4, [1.0] * 4])
        episode = np.array([[1, 1, 1, 2]] * 2)
        met = met_by_pairs(advantages, np.ones((2, 4, 1), bool), clock, episode, 2)[:, :, 0]
        assert np.allclose(met, [[1, 0, 0, 0], [5, 4, 0, 0]])

    def test_environments_of_a_pair_play_the_same_jobs_through_resets(self):
        batch = batch_of(WORLD, 4)
        learner = Learner(batch, PolicyNet(Layout.of(batch.agent), 8), Settings(steps_per_rollout=64, paired=2), seed=3)
        learner.begin()
        assert np.array_equal(batch.observations[0], batch.observations[1])
        assert not np.array_equal(batch.observations[0], batch.observations[2])
        for _ in range(8):
            learner.improve()
            assert np.array_equal(batch.batch.begins[::2], batch.batch.begins[1::2])
            assert np.array_equal(learner._episode[::2], learner._episode[1::2])
        assert learner._episode.max() > 1  # there were resets
        rows = batch.batch._own_rows.reshape(4, -1)
        for first in (0, 2):
            count = int(batch.batch.worlds[first]["end_row"]) - first * rows.shape[1]
            assert rows[first, :count].tobytes() == rows[first + 1, :count].tobytes()


class TestNetwork:
    def layout(self, **changes):
        agent = agent_record(2)
        agent["shows_running"], agent["running_rows"], agent["may_preempt"] = True, 2, True
        agent["num_actions"] = 1 + ROWS + 2
        return Layout.of(agent, every_kind=True, **changes)

    def test_permuting_queue_and_running_rows_permutes_the_probabilities(self):
        layout = self.layout()
        net = PolicyNet(layout, 16)
        for parameter in net.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        generator = torch.Generator().manual_seed(0)
        flat = torch.rand(30, NUM_CLUSTER + 2 * NUM_TENANT + ROWS * NUM_QUEUE + 2 * 10, generator=generator)
        layout.queue(flat)[:, :, 0] = (torch.rand(30, ROWS, generator=generator) < 0.7).float()
        legal = torch.rand(30, layout.num_actions, generator=generator) < 0.6
        legal[:, 1 : 1 + ROWS] &= layout.queue(flat)[:, :, 0] > 0.5
        legal[:, 0] = True
        order, swap = torch.tensor([2, 0, 1]), torch.tensor([1, 0])
        moved, legal_moved = flat.clone(), legal.clone()
        layout.queue(moved)[:] = layout.queue(flat)[:, order]
        layout.running(moved)[:] = layout.running(flat)[:, swap]
        actions = torch.cat([torch.tensor([0]), 1 + order, 1 + ROWS + swap])
        legal_moved[:] = legal[:, actions]
        log_probs, values = net(flat, legal, None)
        log_probs_moved, values_moved = net(moved, legal_moved, None)
        assert torch.allclose(log_probs_moved, log_probs[:, actions], atol=1e-4)
        assert torch.allclose(values, values_moved, atol=1e-5)
        assert (log_probs.exp().sum(dim=1) - 1).abs().max() < 1e-4
        assert (log_probs[~legal] < -1e3).all()

    def test_it_acts_when_acting_is_more_probable_than_waiting_then_picks_the_kind_and_the_row(self):
        layout = self.layout()  # wait, three jobs to start, two to stop
        probabilities = np.array(
            [
                [0.4, 0.2, 0.15, 0.05, 0.1, 0.1],
                [0.6, 0.4, 0.0, 0.0, 0.0, 0.0],
                [0.3, 0.2, 0.0, 0.0, 0.1, 0.4],
                [0.2, 0.2, 0.2, 0.0, 0.4, 0.0],  # ties: the first kind, its first row
                [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            ]
        )
        assert most_probable(layout, probabilities).tolist() == [1, 0, 5, 1, 0]

    def test_a_central_value_does_not_depend_on_the_order_of_the_others_and_takes_any_number(self):
        batch = GoodAndBadJobs(4, 3)
        net = PolicyNet(Layout.of(batch.agent, own_first=True), 8, central_value=True)
        flat = torch.rand(5, batch.observations.shape[2])
        team = torch.rand(5, 3, NUM_TENANT)
        assert torch.allclose(net.values(flat, team), net.values(flat, team[:, [2, 0, 1]]), atol=1e-6)
        assert not torch.allclose(net.values(flat, team), net.values(flat, team + 0.5))
        assert net.values(flat, torch.rand(5, 7, NUM_TENANT)).shape == (5,)

    def test_other_units_of_the_value_change_no_value(self):
        net = PolicyNet(self.layout(), 8)
        flat = torch.rand(6, NUM_CLUSTER + 2 * NUM_TENANT + ROWS * NUM_QUEUE + 2 * 10)
        before = net.values(flat, None)
        net.rescale(mean=-3.0, deviation=0.25)
        net.rescale(mean=5.0, deviation=40.0)
        assert torch.allclose(net.values(flat, None), before, atol=1e-4)
        assert float(net.value_scale) == 40.0

    def test_a_world_without_the_blocks_that_it_reads_is_refused(self):
        agent = agent_record(2)
        agent["shows_queue"] = False
        with pytest.raises(GanglineError, match=r"observation.blocks lacks 'queue'"):
            Layout.of(agent)
        with pytest.raises(GanglineError, match="central_value is true, expected false"):
            PolicyNet(Layout.of(agent_record(2)), 8, central_value=True)

    def test_without_a_mask_the_flags_of_the_rows_say_what_is_legal(self):
        batch = batch_of(WORLD, 8)
        for i in range(8):
            batch.reset_one(i, i, {})
        batch.begin(0, 8)
        net = KernelNet(Layout.of(batch.agent), 8)
        flat, legal = torch.as_tensor(batch.observations[:, 0]), torch.as_tensor(batch.masks[:, 0] > 0)
        assert torch.allclose(net.forward_actor(flat).exp(), net.forward_actor(flat, legal).exp(), atol=1e-6)


class TestLearning:
    @pytest.mark.parametrize("central_value", [False, True])
    def test_several_agents_learn_to_start_the_good_job(self, central_value):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        batch = GoodAndBadJobs(16, 3)
        net = PolicyNet(Layout.of(batch.agent, own_first=True), 16, central_value=central_value)
        learner = Learner(batch, net, Settings(steps_per_rollout=40, batch_size=256, learning_rate=3e-3), seed=0)
        learner.begin()
        for _ in range(25):
            learner.improve()
        best = 0.5 * 20  # a choice in half of twenty rounds
        assert learner.score > 0.8 * best
        assert float(net.value_scale) != 1.0

    def test_forced_waits_are_not_in_the_policys_loss_and_a_part_of_them_teaches_the_value(self):
        batch = GoodAndBadJobs(8, 3)
        learner = Learner(batch, PolicyNet(Layout.of(batch.agent, own_first=True), 8), Settings(), seed=0)
        learner.begin()
        samples = learner.collect()
        forced = ~samples.decides
        assert torch.equal(samples.legal.sum(dim=1) == 1, forced)
        assert 0 < forced.sum() < 0.3 * samples.decides.sum()
        log_probs, _ = learner.net(samples.observations, samples.legal, None)
        chosen = torch.arange(len(forced))
        loss, _ = learner._policy_loss(samples, chosen, log_probs)
        samples.advantages = torch.where(forced, 1e6, samples.advantages)
        assert torch.equal(loss, learner._policy_loss(samples, chosen, log_probs)[0])
        only, _ = learner._policy_loss(samples, chosen[samples.decides], log_probs[samples.decides])
        assert torch.allclose(loss, only, atol=1e-6)

    def test_the_first_epoch_starts_at_a_ratio_of_one(self):
        batch = batch_of(WORLD, 4)
        learner = Learner(batch, PolicyNet(Layout.of(batch.agent), 8), Settings(steps_per_rollout=16), seed=0)
        learner.begin()
        samples = learner.collect()
        with torch.no_grad():
            log_probs, _ = learner.net(samples.observations, samples.legal, None)
        of_actions = log_probs.gather(1, samples.actions[:, None])[:, 0]
        assert torch.allclose(of_actions, samples.log_probs, atol=1e-5)
        assert samples.legal.gather(1, samples.actions[:, None]).all()

    @pytest.mark.parametrize(
        ("bad", "want"),
        [
            ({"paired": 3}, "agent.paired is 3, expected a divisor of num_envs 4"),
            ({"epochs": 0}, "agent.epochs is 0"),
            ({"gae_lambda": 1.5}, "agent.gae_lambda is 1.5"),
            ({"learning_rate": 0.0}, "agent.learning_rate is 0"),
        ],
    )
    def test_settings_that_make_no_sense_are_refused_by_name(self, bad, want):
        batch = GoodAndBadJobs(4, 1)
        with pytest.raises(GanglineError, match=want.replace(".", r"\.")):
            Learner(batch, PolicyNet(Layout.of(batch.agent), 8), Settings(**bad), seed=0)


class TestRuns:
    @pytest.mark.parametrize("settings", [{}, {"clone": "drf_greedy", "clone_steps": 256, "paired": 2}])
    def test_a_stopped_run_goes_on_exactly(self, tmp_path, settings):
        whole, broken = tmp_path / "whole", tmp_path / "broken"
        whole.mkdir()
        broken.mkdir()
        given = {"seed": 0, "total_steps": 512, **QUICK, **settings}
        want = ppo.train(WORLD, report=lambda *_: None, keeper=Keeper(whole), **given)
        for resume in (False, True, True, True, True, True, True, True):
            keeper = Keeper(broken, resume=resume)

            def stop(*_, keeper=keeper):
                keeper.stop = True

            try:
                got = ppo.train(WORLD, report=stop, keeper=keeper, **given)
            except Stopped:
                continue
            break
        assert keeper.steps_before > 0
        for name, values in want.net.state_dict().items():
            assert torch.equal(values, got.net.state_dict()[name]), name
        assert (whole / "curve.csv").read_text() == (broken / "curve.csv").read_text()

    def test_a_checkpoint_of_other_settings_is_refused(self, tmp_path):
        batch = GoodAndBadJobs(4, 1)
        learner = Learner(batch, PolicyNet(Layout.of(batch.agent), 8), Settings(), seed=0)
        checkpoint.write(learner.state(), tmp_path)
        with pytest.raises(GanglineError, match="does not belong to this configuration"):
            ppo.train(
                WORLD, total_steps=128, seed=0, report=lambda *_: None, keeper=Keeper(tmp_path, resume=True), **QUICK
            )

    def test_a_saved_model_acts_as_it_did(self, tmp_path):
        model = ppo.train(WORLD, total_steps=256, seed=0, report=lambda *_: None, **QUICK)
        ppo.save(model, tmp_path / "model.zip")
        loaded = ppo.load(tmp_path / "model.zip")
        batch = batch_of(WORLD, 8)
        for i in range(8):
            batch.reset_one(i, i, {})
        batch.begin(0, 8)
        seen, masks = batch.observations[:, 0], batch.masks[:, 0]
        actions, _ = model.predict(seen, action_masks=masks)
        assert np.array_equal(actions, loaded.predict(seen, action_masks=masks)[0])
        assert all(masks[i, a] for i, a in enumerate(actions))
        assert loaded.predict(seen[0], action_masks=masks[0])[0] == actions[0]
        assert loaded.num_timesteps == model.num_timesteps == 256

    def test_a_file_that_is_no_model_is_one_line(self, tmp_path):
        (tmp_path / "model.zip").write_bytes(b"nothing of that kind")
        with pytest.raises(GanglineError, match=r"model.zip is no model"):
            ppo.load(tmp_path / "model.zip")
