"""The native batch: equal to single environments, in every autoreset mode, at every size and thread split."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import gangline  # noqa: F401

SHORT = {"episode.horizon_h": 12, "episode.warm_h": 6}


def make_batch(num_envs, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return gymnasium.make_vec("gangline/GpuCluster-v0", num_envs=num_envs, **{**SHORT, **settings})


def make_single(**settings):
    return gymnasium.make("gangline/GpuCluster-v0", **{**SHORT, **settings})


def choose(mask, rng):
    return int(rng.choice(np.flatnonzero(mask)))


@pytest.mark.parametrize(("num_envs", "threads"), [(1, 1), (7, 1), (7, 3), (16, 2), (256, 2)])
def test_each_environment_equals_a_single_one_seeded_s_plus_i_through_three_resets(num_envs, threads):
    length = {"episode.horizon_h": 2, "episode.warm_h": 2} if num_envs > 16 else {}
    batch = make_batch(num_envs, threads=threads, autoreset_mode=AutoresetMode.SAME_STEP, **length)
    singles = [make_single(**length) for _ in range(num_envs)]
    observation, info = batch.reset(seed=40)
    states = [env.reset(seed=40 + i) for i, env in enumerate(singles)]
    rngs = [np.random.default_rng(i) for i in range(num_envs)]
    resets = np.zeros(num_envs, int)
    for _ in range(3000):
        actions = np.array([choose(info["action_mask"][i], rngs[i]) for i in range(num_envs)])
        observation, reward, terminated, truncated, info = batch.step(actions)
        for i, env in enumerate(singles):
            own = env.step(int(actions[i]))
            assert reward[i] == own[1] and terminated[i] == own[2] and truncated[i] == own[3]
            if own[2] or own[3]:
                assert np.array_equal(info["final_obs"][i], own[0])
                assert info["final_info"]["action_mask"][i].sum() == 1  # wait only
                assert info["final_info"]["time_s"][i] == own[4]["time_s"]
                states[i] = env.reset()
                resets[i] += 1
            else:
                states[i] = (own[0], own[4])
            assert np.array_equal(observation[i], states[i][0])
            assert np.array_equal(info["action_mask"][i], states[i][1]["action_mask"])
            assert info["discount"][i] == states[i][1]["discount"] or own[2] or own[3]
        if resets.min() >= 3:
            return
    pytest.fail("the environments did not reset three times")


def test_next_step_mode_resets_in_the_step_after_the_end():
    batch = make_batch(3)
    assert batch.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    batch.reset(seed=0)
    had_ended = np.zeros(3, bool)
    seen = 0
    for _ in range(2000):
        _observation, reward, terminated, truncated, info = batch.step(np.zeros(3, int))
        assert np.array_equal(info["reset_step"], had_ended)
        for i in np.flatnonzero(had_ended):
            assert reward[i] == 0 and info["dt_s"][i] == 0 and not terminated[i] and not truncated[i]
            seen += 1
        had_ended = terminated | truncated
        for i in np.flatnonzero(had_ended):
            assert info["action_mask"][i].tolist() == [1] + [0] * (info["action_mask"].shape[1] - 1)
            assert truncated[i] and not terminated[i]
        if seen >= 4:
            return
    pytest.fail("too few resets")


def test_disabled_mode_leaves_an_ended_environment_alone_until_it_is_reset():
    batch = make_batch(2, autoreset_mode=AutoresetMode.DISABLED)
    batch.reset(seed=0)
    ended = np.zeros(2, bool)
    while not ended.any():
        observation, _, terminated, truncated, _ = batch.step(np.zeros(2, int))
        ended = terminated | truncated
    before = observation.copy()
    observation, reward, *_ = batch.step(np.zeros(2, int))
    i = int(np.flatnonzero(ended)[0])
    assert reward[i] == 0 and np.array_equal(observation[i], before[i])
    observation, _info = batch.reset(options={"reset_mask": ended})
    assert not np.array_equal(observation[i], before[i])
    assert not batch.batch.envs[i]["truncated"]


def test_a_batch_ends_episodes_at_max_episode_steps():
    batch = make_batch(2, max_episode_steps=5)
    batch.reset(seed=0)
    for step in range(5):
        *_, truncated, _ = batch.step(np.zeros(2, int))
        assert truncated.all() == (step == 4)


def test_copies_are_kept_and_views_are_not():
    kept = make_batch(2)
    first, _ = kept.reset(seed=0)
    copy = first.copy()
    kept.step(np.zeros(2, int))
    assert np.array_equal(first, copy)
    shared = make_batch(2, copy=False)
    first, _ = shared.reset(seed=0)
    assert np.shares_memory(first, shared.step(np.zeros(2, int))[0])


def test_dict_observations_and_composite_actions_work_in_a_batch():
    batch = make_batch(3, **{"observation.form": "dict", "time.mode": "tick", "time.commands_per_tick": 2})
    observation, _info = batch.reset(seed=0)
    assert batch.observation_space.contains(observation)
    for _ in range(20):
        observation, *_ = batch.step(batch.action_space.sample())
        assert batch.observation_space.contains(observation)


def test_stepping_before_reset_and_wrong_settings_are_refused():
    with pytest.raises(gymnasium.error.ResetNeeded):
        make_batch(2).step(np.zeros(2, int))
    with pytest.raises(ValueError, match="reset_mask"):
        make_batch(2).reset(options={"reset_mask": np.zeros(2, bool)})
    with pytest.raises(ValueError, match="3 seeds, expected 2"):
        make_batch(2).reset(seed=[1, 2, 3])
