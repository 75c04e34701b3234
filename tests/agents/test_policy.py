"""The kernel policy and the time-discounted buffer, by their properties."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="agents need gangline[train]")

from gangline.agents import maskable_ppo
from gangline.agents.buffer import time_discounted_advantages
from gangline.agents.policies import KernelNet, Layout
from gangline.agents.sb3_env import BatchVecEnv
from gangline.envs.config import load_world
from gangline.envs.observation import NUM_QUEUE

WORLD = load_world("small", **{"episode.horizon_h": 24, "episode.warm_h": 12})


def observations(count=40):
    env = BatchVecEnv(WORLD, 4, seed=0)
    rows = [env.reset()]
    rng = np.random.default_rng(0)
    for _ in range(count):
        masks = env.action_masks()
        actions = np.array([rng.choice(np.flatnonzero(m)) for m in masks])
        env.step_async(actions)
        rows.append(env.step_wait()[0])
    return env, torch.as_tensor(np.concatenate(rows))


def test_permuting_the_queue_rows_permutes_the_logits():
    env, flat = observations()
    layout = Layout.of(env.batch.agent)
    net = KernelNet(layout, 16)
    order = torch.randperm(layout.queue_rows, generator=torch.Generator().manual_seed(0))
    begin, end = layout.queue_at, layout.queue_at + layout.queue_rows * NUM_QUEUE
    permuted = flat.clone()
    permuted[:, begin:end] = flat[:, begin:end].reshape(len(flat), layout.queue_rows, NUM_QUEUE)[:, order].flatten(1)
    logits, moved = net.forward_actor(flat), net.forward_actor(permuted)
    ways = (layout.num_actions - 1) // layout.queue_rows
    by_row = logits[:, 1:].reshape(len(flat), ways, layout.queue_rows)[:, :, order].flatten(1)
    assert torch.allclose(moved[:, :1], logits[:, :1], atol=1e-5)
    assert torch.allclose(moved[:, 1:], by_row, atol=1e-4)
    assert torch.allclose(net.forward_critic(flat), net.forward_critic(permuted), atol=1e-5)


def test_logits_are_log_probabilities_of_the_legal_actions():
    env, flat = observations()
    net = KernelNet(Layout.of(env.batch.agent), 16)
    total = net.forward_actor(flat).exp().sum(dim=1)
    assert torch.allclose(total, torch.ones(len(flat)), atol=1e-3)


def test_wait_does_not_start_at_one_over_the_number_of_slots():
    env, flat = observations()
    net = KernelNet(Layout.of(env.batch.agent), 16)
    assert net.forward_actor(flat)[:, 0].exp().mean() > 0.15


def test_the_policy_is_small():
    env, _ = observations(1)
    net = KernelNet(Layout.of(env.batch.agent), 32)
    assert sum(p.numel() for p in net.parameters()) < 12_000


def test_saving_and_loading_gives_equal_logits(tmp_path):
    model = maskable_ppo.train(
        WORLD, total_steps=256, seed=0, report=lambda *_: None, num_envs=4, steps_per_rollout=32, batch_size=64
    )
    maskable_ppo.save(model, tmp_path / "model.zip")
    loaded = maskable_ppo.load(tmp_path / "model.zip")
    _, flat = observations(5)
    with torch.no_grad():
        before = model.policy.mlp_extractor.forward_actor(flat)
        after = loaded.policy.mlp_extractor.forward_actor(flat)
    assert torch.equal(before, after)


def test_splitting_a_decision_into_commands_without_time_changes_no_return_and_no_advantage():
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(6, 1)).astype(np.float32)
    values = rng.normal(size=(6, 1)).astype(np.float32)
    starts = np.zeros((6, 1), np.float32)
    discounts = rng.uniform(0.7, 0.99, (6, 1)).astype(np.float32)
    last = rng.normal(size=1).astype(np.float32)
    done = np.zeros(1)
    whole, whole_returns = time_discounted_advantages(rewards, values, starts, discounts, last, done, 0.9)
    # step 2 becomes three: two commands without time and reward, valued alike, then the step itself
    again = [0, 1, 2, 2, 2, 3, 4, 5]
    split_rewards, split_discounts = rewards[again].copy(), discounts[again].copy()
    split_rewards[[2, 3]] = 0.0
    split_discounts[[2, 3]] = 1.0
    split, split_returns = time_discounted_advantages(
        split_rewards, values[again], starts[again], split_discounts, last, done, 0.9
    )
    assert np.allclose(split[[0, 1, 4, 5, 6, 7]], whole, atol=1e-6)
    assert np.allclose(split_returns[[0, 1, 4, 5, 6, 7]], whole_returns, atol=1e-6)
    assert np.allclose(split[[2, 3]], whole[2], atol=1e-6)


def test_advantages_with_lambda_1_are_discounted_returns_less_values():
    rewards = np.array([[1.0], [2.0], [3.0]])
    values = np.array([[0.5], [0.25], [0.125]])
    discounts = np.array([[0.9], [0.8], [0.7]])
    advantages, returns = time_discounted_advantages(
        rewards, values, np.zeros((3, 1)), discounts, np.array([10.0]), np.zeros(1), 1.0
    )
    want = [1 + 0.9 * (2 + 0.8 * (3 + 0.7 * 10)), 2 + 0.8 * (3 + 0.7 * 10), 3 + 0.7 * 10]
    assert np.allclose(returns[:, 0], want)
    assert np.allclose(advantages[:, 0], np.array(want) - values[:, 0])


def test_an_episodes_end_cuts_the_return():
    rewards = np.ones((3, 1))
    starts = np.array([[0.0], [0.0], [1.0]])  # step 2 begins another episode
    _, returns = time_discounted_advantages(
        rewards, np.zeros((3, 1)), starts, np.full((3, 1), 0.5), np.array([100.0]), np.ones(1), 1.0
    )
    assert np.allclose(returns[:, 0], [1.5, 1.0, 1.0])


def test_the_batch_gives_the_observation_before_the_reset_as_terminal_and_counts_truncation():
    env = BatchVecEnv(WORLD, 3, seed=0)
    env.reset()
    ended = 0
    for _ in range(400):
        env.step_async(np.zeros(3, np.int64))
        observation, _, dones, infos = env.step_wait()
        for i in np.flatnonzero(dones):
            assert infos[i]["TimeLimit.truncated"]
            assert not np.array_equal(infos[i]["terminal_observation"], observation[i])
            ended += 1
    assert ended >= 3
